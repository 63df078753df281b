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
#![forbid(unsafe_code)]

pub mod client;
pub mod clock;
pub mod environment;
pub mod error;
pub mod large;
pub mod needs;
pub mod queue;
pub mod wire;
