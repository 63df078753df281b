//! A service pool after the XATMI specification: typed buffers, field tables, queues and calls.
//!
//! Servers, clients and the C interface stand on it.
//!
//! | question | answered by |
//! |---|---|
//! | what went wrong, as a number of the specification? | [`error::Error`] |
//! | what did the environment ask for? | [`environment::Environment`] |
//! | what do the bytes of a message mean? | [`wire`] |
//! | what are queues called, how are they sent to and read? | [`queue`] |
//! | what if a payload is longer than a message? | [`large`] |
//! | do the queues fit the limits of this machine? | [`needs`] |
//! | how is a service called? | [`client::Client`] |
//! | what does a worker tell the pool about itself? | [`link`], [`slots`] |
//! | which workers should a pool have? | [`config::PoolConfig`] |
//! | what has to be done about them now? | [`supervisor::Supervisor`] |
//! | who starts, watches and ends them? | [`pool::Pool`] |
//! | how is a running pool asked? | [`control`] |
#![forbid(unsafe_code)]

pub mod client;
pub mod clock;
pub mod config;
pub mod control;
pub mod environment;
pub mod error;
pub mod large;
pub mod link;
pub mod needs;
pub mod pool;
pub mod queue;
pub mod slots;
pub mod supervisor;
pub mod wire;
