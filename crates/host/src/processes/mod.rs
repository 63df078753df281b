//! Other programs that are run and observed: servers, load generators, any that a user names.
//!
//! [`Program`] starts one, reads its output and ends it; [`Tree`] is all that it has started, with
//! the CPU time of the whole; [`listens_at`] and [`listener_at`] say which of them listens where, [`children`], [`descendants`] and
//! [`threads_of`] what else `/proc` shows. The lab measures servers with it, and the tests of every crate start
//! commands with it (`pollux_testing::Process`). A [`ControlSocket`] is where a process and those of its own that it starts talk, and [`built_from_c`]
//! makes small programs that others are measured beside. Nothing here knows what is measured, nothing sleeps where
//! something can be waited for, and nothing outlives its handle.

use std::io;

mod backlog;
mod control_socket;
pub mod holders;
mod listeners;
mod proc;
mod program;
mod streams;
mod tree;

pub use backlog::{Backlog, backlog_at};
pub use control_socket::ControlSocket;
pub use listeners::{addresses_of, listener_at, listens_at};
pub use proc::{children, descendants, ends_within, is_running, parent, threads, threads_of};
pub use program::{Program, built_from_c};
pub use tree::Tree;

/// Why a program could not be run, or did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A process or a descriptor for it could not be obtained.
    #[error("could not set up {what}")]
    Setup {
        /// What was wanted.
        what: String,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// The kernel refused to show a process.
    #[error("{call} failed")]
    Io {
        /// The system call.
        call: &'static str,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// It did not do what it should.
    #[error("{program}: {what}")]
    Program {
        program: String,
        /// What it did instead, with its last words.
        what: String,
    },
    /// It printed nothing for too long.
    #[error("{program}: did not answer within {time:.1?}")]
    Deadline {
        program: String,
        /// How long it was waited for.
        time: std::time::Duration,
    },
    /// It sent a message that can't be read.
    #[error("a message can't be read: {0}")]
    Protocol(String),
    /// The wait was interrupted.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    fn io(call: &'static str) -> impl Fn(rustix::io::Errno) -> Self {
        move |errno| Self::Io { call, cause: errno.into() }
    }
}
