//! What the system around a server gives it and is told by it: sockets that a manager opened, its id in a
//! file, when it is ready, and the user that it goes on as.
//!
//! The command line and the thread that waits for signals call it; loops never do.

pub mod activation;
mod notify;
mod pid_file;
mod privileges;

pub(crate) use notify::{Manager, State};
pub(crate) use pid_file::PidFile;
pub(crate) use privileges::ACCOUNTS;
pub use privileges::Identity;
