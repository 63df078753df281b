//! What goes into a call and what comes out of it, without a word on how.
//!
//! The client gives these out; the C interface turns them into pointers and numbers.

use std::fmt;

use crate::buffer::{Buffer, BufferType};
use crate::error::{Code, Error};

/// A buffer to send, borrowed for the time of the call.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Its type; `None` when there is no buffer.
    pub buffer_type: Option<BufferType>,
    /// The size of the whole buffer, at least as long as `bytes`; the receiver makes room for it.
    pub buffer_size_bytes: usize,
    /// What of it is sent.
    pub bytes: &'a [u8],
}

impl<'a> Outgoing<'a> {
    /// No buffer.
    pub const NONE: Outgoing<'static> =
        Outgoing { buffer_type: None, buffer_size_bytes: 0, bytes: &[] };

    /// What `buffer` sends: text with its NUL, fields as far as they are used, `len_bytes` of
    /// anything else.
    ///
    /// # Errors
    /// TPEINVAL when its content is not of its type, or shorter than `len_bytes`.
    pub fn of(buffer: &'a Buffer, len_bytes: usize) -> Result<Self, Error> {
        let used = buffer.used_len(len_bytes)?;
        Ok(Self {
            buffer_type: Some(buffer.buffer_type()),
            buffer_size_bytes: buffer.size(),
            bytes: &buffer.as_bytes()[..used],
        })
    }
}

/// Names a call that is out, within its client; positive, as in C.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Descriptor(pub(super) i32);

impl Descriptor {
    /// The descriptor with this number; the client refuses one that names no call.
    #[must_use]
    pub const fn from_number(number: i32) -> Self {
        Self(number)
    }

    /// The number, as in C.
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0
    }
}

/// Which reply is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// That to one call.
    One(Descriptor),
    /// Whatever comes first.
    Any,
}

/// A reply that is about to be delivered: what room has to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arriving {
    /// The type of the buffer; `None` when the service returned none.
    pub buffer_type: Option<BufferType>,
    /// The size of the buffer at the sender: what the receiver's should have at least.
    pub buffer_size_bytes: usize,
    /// Bytes that will be written.
    pub len_bytes: usize,
}

/// A reply that was delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrived {
    /// The call that it belongs to; used up now.
    pub descriptor: Descriptor,
    /// Whether the service said TPFAIL: TPESVCFAIL, with the buffer.
    pub is_failure: bool,
    /// What the service gave `tpreturn` first.
    pub rval: i32,
    /// What it gave for `tpurcode`.
    pub urcode: i64,
    /// The buffer.
    pub payload: Arriving,
}

/// Why no reply was delivered.
#[derive(Debug)]
pub struct ReplyError {
    /// The call that the error belongs to, where there is one: used up now, except after TPETIME,
    /// TPEBLOCK and TPGOTSIG.
    pub descriptor: Option<Descriptor>,
    /// What went wrong.
    pub error: Error,
}

impl ReplyError {
    /// What kind of error it is.
    #[must_use]
    pub fn code(&self) -> Code {
        self.error.code()
    }
}

impl From<ReplyError> for Error {
    fn from(failed: ReplyError) -> Self {
        failed.error
    }
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for ReplyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.error)
    }
}
