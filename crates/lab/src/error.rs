//! What can go wrong in the lab.

use std::io;

use pollux_engine::Driver;

/// Why one run, in its own process, could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// The run was described wrongly: a bug of the lab, or a spec written by hand.
    #[error("this run can't be described: {0}")]
    Spec(String),
    /// A descriptor, thread or process could not be obtained.
    #[error("could not set up {what}")]
    Setup {
        /// What was wanted.
        what: String,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// The poller refused.
    #[error(transparent)]
    Poller(#[from] pollux_poller::Error),
    /// A read or write of the workload failed.
    #[error("{call} failed")]
    Io {
        /// The system call.
        call: &'static str,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// The workload saw something that it can't have seen: a broken poller.
    #[error("the workload was disturbed: {0}")]
    Protocol(String),
    /// The mechanism that opened is not the one that was asked for.
    #[error("asked for {asked}, got {got}")]
    WrongMechanism {
        /// What was asked.
        asked: Driver,
        /// What reported itself.
        got: String,
    },
    /// The workload ended before its window did, without an error of its own.
    #[error("the workload ended too early")]
    GaveUp,
    /// A program that the run needs did not do what it should.
    #[error("{program}: {what}")]
    Program {
        program: String,
        /// What it did instead, with its last words.
        what: String,
    },
    /// The run was ended from outside; what it started was ended as well.
    #[error("interrupted")]
    Interrupted,
    /// The measured thread said nothing for too long.
    #[error("the workload was silent for {0:?} {1}")]
    Silent(std::time::Duration, &'static str),
}

impl MeasureError {
    pub(crate) fn io<E: Into<io::Error>>(call: &'static str) -> impl Fn(E) -> Self + Copy {
        move |error| Self::Io { call, cause: error.into() }
    }

    pub(crate) fn setup(what: &'static str) -> impl Fn(io::Error) -> Self + Copy {
        move |cause| Self::Setup { what: what.to_owned(), cause }
    }
}

impl From<pollux_host::Error> for MeasureError {
    fn from(error: pollux_host::Error) -> Self {
        use pollux_host::Error;
        match error {
            Error::Setup { what, cause } => Self::Setup { what, cause },
            Error::Io { call, cause } => Self::Io { call, cause },
            Error::Program { program, what } => Self::Program { program, what },
            Error::Deadline { program, time } => {
                Self::Program { program, what: format!("did not answer within {time:.1?}") }
            }
            Error::Protocol(what) => Self::Protocol(what),
            Error::Interrupted => Self::Interrupted,
        }
    }
}
