//! Why bytes of a peer were refused. Every reader of this crate returns it; the server turns it
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
