//! Limits for what a peer may send, and why its bytes were refused. Every reader of this crate returns it; the server turns it
//! into an answer and closes, for after a refusal it is not known where the next request starts.

use std::fmt;

use crate::Status;

/// A refusal: what to answer, what was wrong, which rule says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rejection {
    /// The answer's status.
    pub status: Status,
    /// What was wrong and, where it is not obvious, what would be right.
    pub reason: &'static str,
    /// The rule, as `RFC 9112 6.3`.
    pub rfc: &'static str,
}

impl Rejection {
    /// A refusal with any status.
    #[must_use]
    pub const fn new(status: Status, reason: &'static str, rfc: &'static str) -> Self {
        Self { status, reason, rfc }
    }

    /// A refusal with 400 Bad Request.
    pub(crate) const fn bad(reason: &'static str, rfc: &'static str) -> Self {
        Self::new(Status::BAD_REQUEST, reason, rfc)
    }

    /// The same refusal of an answer: 502 is what a gateway tells its own client then.
    pub(crate) const fn of_answer(self) -> Self {
        Self::new(Status::BAD_GATEWAY, self.reason, self.rfc)
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.status, self.reason, self.rfc)
    }
}

impl std::error::Error for Rejection {}

/// Upper bounds for one request; more is refused, never cut.
///
/// How much of each thing a peer may send. The server's configuration fills it; every reader of
/// this crate obeys it. A limit is never checked against a length that a peer only announced
/// without the matching check on what arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Request line, fields and the empty line after them: 414 or 431 beyond.
    pub head_bytes: usize,
    /// The request target: 414 beyond. RFC 9110 4.1 asks for at least 8000.
    pub target_bytes: usize,
    /// Field lines of a head, and again of a trailer section: 431 beyond. At most
    /// [`Limits::FIELDS_MAX`]; a larger figure means that.
    pub fields: usize,
    /// Body without its framing: 413 beyond.
    pub body_bytes: u64,
    /// Extensions of one chunk, from its size to the line's end: 400 beyond.
    pub chunk_line_bytes: u32,
    /// Extensions of all chunks of one body: 400 beyond. Without it a body of one-byte chunks
    /// could carry a thousand times its size in bytes that were not asked for.
    pub extension_bytes: u32,
    /// Trailer section: 431 beyond.
    pub trailer_bytes: u32,
}

impl Limits {
    /// Slots that a head can use at all; browsers send about 20 fields, proxies add some.
    pub const FIELDS_MAX: usize = 100;
}

impl Default for Limits {
    /// 16 KiB heads, 8000-byte targets, 100 fields, 1 GiB bodies, 8 KiB trailers.
    fn default() -> Self {
        Self {
            head_bytes: 16 * 1024,
            target_bytes: 8000,
            fields: Self::FIELDS_MAX,
            body_bytes: 1 << 30,
            chunk_line_bytes: 1024,
            extension_bytes: 16 * 1024,
            trailer_bytes: 8 * 1024,
        }
    }
}
