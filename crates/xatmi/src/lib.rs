//! A service pool after the XATMI specification: typed buffers, field tables, queues and calls.
//!
//! Servers, clients and the C interface stand on it.
//!
//! | question | answered by |
//! |---|---|
//! | what does a message carry? | [`buffer::Buffer`] |
//! | which fields does it hold? | [`ubf::Ubf`], [`ubf::UbfRef`], [`ubf::UbfMut`] |
//! | what are the fields called? | [`field_table::FieldTable`] |
//! | how is a service called? | [`client::Client`] |
//! | what went wrong, as a number of the specification? | [`error::Error`] |
//! | what does the environment ask for? | [`environment::Environment`] |
//! | what do the bytes of a message mean? | [`wire`] |
//! | what are queues called, how are they sent to and read? | [`queue`] |
//! | what if a payload is longer than a message? | [`large`] |
//! | do the queues fit the limits of this machine? | [`needs`] |
#![forbid(unsafe_code)]

pub mod buffer;
pub mod client;
pub mod clock;
pub mod environment;
pub mod error;
pub mod field_table;
pub mod large;
pub mod needs;
pub mod queue;
pub mod ubf;
pub mod wire;
