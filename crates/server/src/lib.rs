//! An HTTP server as sessions of the engine.
//!
//! The command line and the lab start it. It never waits and never touches a poller.
#![forbid(unsafe_code)]

pub mod config;
mod error;
pub mod files;

pub use error::ServerError;
