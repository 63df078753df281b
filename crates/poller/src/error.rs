//! The one error type of this crate.
//!
//! Display says what happened on this layer and the remedy where there is one; the operating
//! system's error is the `source()`.

use std::fmt;
use std::io;
use std::os::fd::RawFd;

use pollux_sys::descriptors::NONE_LEFT;
use rustix::io::Errno;

use crate::Backend;

/// Why a poller refused or failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The descriptor is registered already, under the same token (EEXIST).
    AlreadyRegistered {
        /// Number of the descriptor.
        fd: RawFd,
    },
    /// The descriptor is not registered (ENOENT).
    NotRegistered {
        /// Number of the descriptor.
        fd: RawFd,
    },
    /// The number names no open file, or one that is open as a path only (EBADF).
    NotOpen {
        /// The number.
        fd: RawFd,
    },
    /// The file has no readiness to wait for: a regular file or a directory (EPERM).
    NotPollable {
        /// Number of the descriptor.
        fd: RawFd,
    },
    /// The kernel interface behind this backend can't do this (EINVAL).
    Unsupported {
        /// The backend.
        backend: Backend,
        /// What it can't do, and which mechanism can.
        what: &'static str,
    },
    /// This process is a child of the one that opened the poller (`fork(2)`).
    Inherited,
    /// A bound of the backend was reached.
    Limit {
        /// Name of the bound.
        name: &'static str,
        /// Its value.
        value: usize,
    },
    /// The backend can't be opened on this machine.
    Unavailable {
        /// Which backend.
        backend: Backend,
        /// Why, and what would allow it.
        reason: String,
        /// What the kernel said.
        cause: io::Error,
    },
    /// A system call failed in a way that has no meaning of its own here.
    System {
        /// Name of the call.
        call: &'static str,
        /// What the kernel said.
        cause: io::Error,
    },
    /// One change of a batch failed.
    Batch {
        /// Its index in the batch.
        index: usize,
        /// Why.
        cause: Box<Error>,
    },
}

impl Error {
    /// The errno that `epoll_ctl(2)` gives for the same mistake, or that the kernel gave; none
    /// for [`Error::Inherited`], which no kernel interface knows.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Self::AlreadyRegistered { .. } => Some(Errno::EXIST.raw_os_error()),
            Self::NotRegistered { .. } => Some(Errno::NOENT.raw_os_error()),
            Self::NotOpen { .. } => Some(Errno::BADF.raw_os_error()),
            Self::NotPollable { .. } => Some(Errno::PERM.raw_os_error()),
            Self::Unsupported { .. } => Some(Errno::INVAL.raw_os_error()),
            Self::Limit { .. } => Some(Errno::NOSPC.raw_os_error()),
            Self::Unavailable { cause, .. } | Self::System { cause, .. } => cause.raw_os_error(),
            Self::Batch { cause, .. } => cause.raw_os_error(),
            Self::Inherited => None,
        }
    }

    /// Makes [`Error::System`] of what `call` gave.
    pub(crate) fn system(call: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| Self::System { call, cause: errno.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyRegistered { fd } => {
                write!(f, "fd {fd} is registered already: modify it, or delete it before adding")
            }
            Self::NotRegistered { fd } => write!(f, "fd {fd} is not registered: add it first"),
            Self::NotOpen { fd } => write!(f, "fd {fd} is not open, or as a path only (O_PATH)"),
            Self::NotPollable { fd } => {
                write!(f, "fd {fd} is a regular file or directory, which is always ready")
            }
            Self::Unsupported { backend, what } => write!(f, "{backend} can't do: {what}"),
            Self::Inherited => f.write_str(
                "a poller serves the process that opened it, not its children: open one here",
            ),
            Self::Limit { name, value } => write!(f, "limit {name} = {value} reached"),
            Self::Unavailable { backend, reason, .. } => {
                write!(f, "{backend} is not available here: {reason}")
            }
            Self::System { call, cause } => match Errno::from_io_error(cause) {
                Some(Errno::MFILE | Errno::NFILE) => write!(f, "{call} failed: {NONE_LEFT}"),
                _ => write!(f, "{call} failed"),
            },
            Self::Batch { index, .. } => write!(f, "change {index} of the batch failed"),
        }
    }
}

/// With the kind of the errno that [`Error::raw_os_error`] gives; the error itself is inside
/// ([`io::Error::get_ref`]).
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match (&error, error.raw_os_error()) {
            (Error::Unsupported { .. } | Error::Unavailable { .. }, _) => {
                io::ErrorKind::Unsupported
            }
            (_, Some(errno)) => Self::from_raw_os_error(errno).kind(),
            (_, None) => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unavailable { cause, .. } | Self::System { cause, .. } => Some(cause),
            Self::Batch { cause, .. } => Some(cause),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_finds_no_descriptor_left_names_the_limit() {
        let said = |errno: Errno| Error::system("eventfd")(errno).to_string();
        assert_eq!(said(Errno::MFILE), format!("eventfd failed: {NONE_LEFT}"));
        assert_eq!(said(Errno::NOMEM), "eventfd failed");
    }
}
