//! Why a run could not be prepared or carried out: of each error what is wrong, and what is expected.

use std::io;

use pollux_engine::LoopError;

/// Why a run could not be prepared or carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The URL is not one, or not one of ours.
    #[error("URL {url}: {why}")]
    Url {
        /// What was given.
        url: String,
        /// What is wrong with it, and what is expected.
        why: String,
    },
    /// The URL's host could not be looked up.
    #[error("\"{host}\" can't be looked up; check the name and the resolver")]
    Lookup {
        host: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// A part of the plan makes no sense.
    #[error("{what}: {why}")]
    Plan {
        /// The part, by the name of its flag.
        what: &'static str,
        /// What is wrong, and what is expected.
        why: String,
    },
    /// It needs more descriptors than this process may have.
    #[error("{why}")]
    Descriptors {
        /// Which parts of the plan need how many, and what allows them.
        why: String,
    },
    /// A run that had begun could not come to a result.
    #[error("{why}")]
    Run {
        /// What happened, and what to try.
        why: String,
    },
    /// A loop could not be opened: what is wrong, and what would allow it.
    #[error(transparent)]
    Loop(LoopError),
    /// A loop stopped.
    #[error("the loop of thread {thread} stopped")]
    Stopped {
        /// Which one, from 0.
        thread: u32,
        source: LoopError,
    },
    /// A system call failed.
    #[error("{call} failed")]
    System {
        /// Name of the call.
        call: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}
