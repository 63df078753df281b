//! Other programs that are run and looked at: servers, load generators, whatever a user names.
//!
//! [`Program`] starts one, hears what it says and ends it; [`Tree`] is all that it has started, with
//! the CPU time of the whole; [`listener`] says which of them listens where. The lab measures servers
//! with it. A [`Desk`] is where a process and those of its own that it starts talk, and
//! [`compiler`] builds small programs in C. Nothing here knows what is measured, nothing sleeps where something can be waited for, and
//! nothing outlives its handle.

#![forbid(unsafe_code)]

use std::io;

pub mod compiler;
mod desk;
pub mod listener;
mod program;
mod tree;

pub use desk::Desk;
pub use program::Program;
pub use tree::{Tree, threads_of};

/// Why a program could not be run, or did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A process or a descriptor for it could not be had.
    #[error("could not set up {what}")]
    Setup {
        /// What was wanted.
        what: String,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// The kernel refused a look at a process.
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
        /// Its name.
        program: String,
        /// What it did instead, with its last words.
        what: String,
    },
    /// It said something that makes no sense.
    #[error("was told what makes no sense: {0}")]
    Protocol(String),
    /// Whoever waited was interrupted.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    fn io(call: &'static str) -> impl Fn(rustix::io::Errno) -> Self {
        move |errno| Self::Io { call, cause: errno.into() }
    }
}
