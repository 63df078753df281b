//! A service pool after the XATMI specification: typed buffers, field tables, queues and calls.
//!
//! Servers, clients and the C interface stand on it.
//!
//! | question | answered by |
//! |---|---|
//! | what does a message carry? | [`buffer::Buffer`] |
//! | which fields does it hold? | [`ubf::Ubf`], [`ubf::UbfRef`], [`ubf::UbfMut`] |
//! | what are the fields called? | [`field_table::FieldTable`] |
//! | how does a buffer become a text, and back? | [`export`] |
//! | which structs of C are buffers, and what is in them? | [`view::View`] |
//! | which buffers does an expression hold for? | [`expression::Expression`] |
//! | what travels beside the data of a buffer? | [`call_info`] |
//! | how is a service called? | [`client::Client`] |
//! | how do a client and a service send to each other in turns? | [`conversation::Conversation`] |
//! | which of the requests that wait is served first? | [`priority::Priority`] |
//! | how do programs publish events? | [`events`] |
//! | how does a program offer services? | [`worker::Worker`] |
//! | which workers should a pool have? | [`config::PoolConfig`] |
//! | what does the configuration of Tuxedo become? | [`ubbconfig::convert`] |
//! | what has to be done about them now? | [`supervisor::Supervisor`] |
//! | what starts, watches and ends them? | [`pool::Pool`] |
//! | which users may use a pool beside its own? | [`environment::Group`] |
//! | how is a running pool asked? | [`control::Control`] |
//! | what went wrong, as a number of the specification? | [`error::Error`] |
//! | what does the environment ask for? | [`environment::Environment`] |
//! | what stands in files in its place? | [`common_config::CommonConfig`] |
//! | what do the bytes of a message mean? | [`wire`] |
//! | what are queues called, how are they sent to and read? | [`queue`] |
//! | what if a payload is longer than a message? | [`large`] |
//! | do the queues fit the limits of this machine? | [`needs`] |
//! | what is known of a worker, even when it is dead? | [`slots`] |
//! | what do a worker and the manager say to each other? | [`link`] |
#![forbid(unsafe_code)]

pub mod buffer;
pub mod call_info;
pub mod client;
pub mod common_config;
pub mod config;
pub mod control;
pub mod conversation;
pub mod environment;
pub mod error;
pub mod events;
pub mod export;
pub mod expression;
pub mod field_table;
pub mod large;
pub mod link;
mod memory;
pub mod needs;
pub mod pool;
pub mod priority;
pub mod queue;
pub mod slots;
pub mod supervisor;
pub mod ubbconfig;
pub mod ubf;
pub mod view;
pub mod wire;
pub mod worker;
