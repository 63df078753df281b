//! What a service function gets and what it gives back.
//!
//! Programs in Rust write these functions; the C interface registers one that jumps into C.
//! Plain data: nothing here sends or receives.

use std::fmt;
use std::rc::Rc;

use crate::buffer::Buffer;
use crate::error::Code;
use crate::queue::ServiceName;
use crate::wire::ClientAddress;

/// TPFAIL: the service could not do what was asked; its buffer is delivered all the same.
pub const RVAL_FAIL: i32 = 1;
/// TPSUCCESS.
pub const RVAL_SUCCESS: i32 = 2;
/// TPEXIT, to be added to one of the others: the worker ends after the reply and is started anew.
pub const RVAL_EXIT: i32 = 0x0800_0000;

/// A service function. It runs on the worker's own thread, one call at a time.
pub type Handler = Box<dyn FnMut(Incoming) -> Done>;

/// A request.
#[derive(Debug)]
pub struct Incoming {
    /// The name that was called.
    pub service: ServiceName,
    /// The function behind it, as it was advertised.
    pub function: Rc<str>,
    /// The data, in memory that does not move while this is held; none when none was sent.
    pub buffer: Option<Buffer>,
    /// Bytes that were sent; what follows them in the buffer is zero.
    pub len_bytes: usize,
    /// Whether nobody waits for a reply (TPNOREPLY).
    pub is_without_reply: bool,
    /// The caller's descriptor.
    pub cd: i32,
    /// Who calls.
    pub client: ClientAddress,
    /// When the caller stops waiting, in nanoseconds of the monotonic clock; 0 for never.
    pub deadline_ns: u64,
}

impl Incoming {
    /// Whether the caller waits for the service to come to a conversation: the descriptor is negative then.
    #[must_use]
    pub fn begins_conversation(&self) -> bool {
        self.cd < 0
    }
}

/// How a service function ended.
#[derive(Debug)]
pub enum Done {
    /// `tpreturn`: the caller gets this.
    Return(Return),
    /// `tpforward`: another service answers the caller.
    Forward {
        /// Which.
        service: ServiceName,
        /// What it gets.
        buffer: Option<Buffer>,
        /// Bytes of it, for buffers that don't tell by themselves.
        len_bytes: usize,
    },
    /// The function came back without either: the caller gets TPESVCERR.
    NoReturn,
}

/// What `tpreturn` was given.
#[derive(Debug)]
pub struct Return {
    /// [`RVAL_SUCCESS`] or [`RVAL_FAIL`], and [`RVAL_EXIT`]; whatever is no success is a failure.
    pub rval: i32,
    /// For the caller's `tpurcode`.
    pub urcode: i64,
    /// The reply; its memory is used again for the next request.
    pub buffer: Option<Buffer>,
    /// Bytes of it, for buffers that don't tell by themselves.
    pub len_bytes: usize,
    /// An error that the caller is to see instead, without data (TPSOFTTIMEOUT, TPSOFTERR).
    pub soft_error: Option<Code>,
}

impl Return {
    /// Whether the service says that it did what was asked.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.rval & !RVAL_EXIT == RVAL_SUCCESS && self.soft_error.is_none()
    }

    /// Whether the worker is to end after this reply.
    #[must_use]
    pub fn is_exit(&self) -> bool {
        let what = self.rval & !RVAL_EXIT;
        self.rval != what && matches!(what, 0 | RVAL_FAIL | RVAL_SUCCESS)
    }
}

impl Done {
    /// The service did what was asked; `buffer` is sent as far as it is used, bytes without a
    /// length of their own whole.
    #[must_use]
    pub fn success(buffer: impl Into<Option<Buffer>>) -> Self {
        Self::with(RVAL_SUCCESS, buffer.into())
    }

    /// It did not; the caller gets TPESVCFAIL and the buffer.
    #[must_use]
    pub fn failure(buffer: impl Into<Option<Buffer>>) -> Self {
        Self::with(RVAL_FAIL, buffer.into())
    }

    fn with(rval: i32, buffer: Option<Buffer>) -> Self {
        let len_bytes = buffer.as_ref().map_or(0, Buffer::size);
        Self::Return(Return { rval, urcode: 0, buffer, len_bytes, soft_error: None })
    }
}

/// How a worker's work ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The manager asked for it.
    Stopped,
    /// A service returned with [`RVAL_EXIT`].
    Exited,
    /// The manager was gone and none came back in time.
    Abandoned,
    /// A service function panicked: its caller got TPESVCERR, and the process should end as a
    /// failure, as nobody knows what the panic left behind.
    Panicked {
        /// Which service.
        service: ServiceName,
        /// What the panic said.
        message: String,
    },
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("stopped by the manager"),
            Self::Exited => f.write_str("a service returned with TPEXIT"),
            Self::Abandoned => f.write_str("the pool's manager is gone and none came back"),
            Self::Panicked { service, message } => {
                write!(f, "the function of service {service} panicked: {message}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn returned(rval: i32) -> (bool, bool) {
        let Done::Return(returned) = Done::with(rval, None) else { unreachable!("made so") };
        (returned.is_success(), returned.is_exit())
    }

    #[test]
    fn what_is_neither_success_nor_failure_is_a_failure_and_ends_nothing() {
        assert_eq!(returned(RVAL_SUCCESS), (true, false));
        assert_eq!(returned(RVAL_FAIL), (false, false));
        assert_eq!(returned(RVAL_SUCCESS | RVAL_EXIT), (true, true));
        assert_eq!(returned(RVAL_FAIL | RVAL_EXIT), (false, true));
        assert_eq!(returned(RVAL_EXIT), (false, true));
        for odd in [0, 3, 6, -1, i32::MAX, RVAL_EXIT | 3, -1 - RVAL_EXIT] {
            assert_eq!(returned(odd), (false, false), "{odd}");
        }
    }
}
