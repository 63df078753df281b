//! An HTTP server as sessions of the engine.
//!
//! The command line and the lab start it. It never waits and never touches a poller.
#![forbid(unsafe_code)]

mod answer;
mod body;
pub mod config;
mod counters;
mod error;
mod files;
mod log;
mod reply;
mod rest;
mod serve;
mod session;
mod shared;
pub mod stats;

pub use counters::{CLASSES, METHODS, REFUSALS, ServerCounter, ServerCounters};
pub use error::ServerError;
pub use log::ReopenSignal;
pub use serve::Server;
pub use session::HttpSession;
pub use shared::Shared;
