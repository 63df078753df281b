//! Why a baseline server ended: the network never ends one, only its own mechanism does.

use std::io;

/// Why a baseline server could not begin or continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BaselineError {
    /// Its listener or its ring could not be obtained.
    #[error("could not set up {what}")]
    Setup {
        /// What was wanted.
        what: String,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// A system call failed that serves all connections.
    #[error("{call} failed")]
    Io {
        /// The call.
        call: &'static str,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// A ring without a free slot after so many tries.
    #[error("the ring failed: {0}")]
    Ring(String),
}

impl BaselineError {
    pub(crate) fn io(call: &'static str) -> impl Fn(rustix::io::Errno) -> Self {
        move |errno| Self::Io { call, cause: errno.into() }
    }
}
