//! Status codes with their phrases, refusals that carry one, and the limits that lead to refusals.
//!
//! Every reader of this crate returns a [`Rejection`] for bytes that it refuses. The server turns it into an
//! answer and closes, for after a refusal it is not known where the next request starts.

use std::fmt;

/// A status code of RFC 9110 15.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status(u16);

#[expect(missing_docs, reason = "the phrase of each code stands in `reason`")]
impl Status {
    pub const CONTINUE: Self = Self(100);
    pub const OK: Self = Self(200);
    pub const NO_CONTENT: Self = Self(204);
    pub const PARTIAL_CONTENT: Self = Self(206);
    pub const MOVED_PERMANENTLY: Self = Self(301);
    pub const NOT_MODIFIED: Self = Self(304);
    pub const PERMANENT_REDIRECT: Self = Self(308);
    pub const BAD_REQUEST: Self = Self(400);
    pub const UNAUTHORIZED: Self = Self(401);
    pub const FORBIDDEN: Self = Self(403);
    pub const NOT_FOUND: Self = Self(404);
    pub const METHOD_NOT_ALLOWED: Self = Self(405);
    pub const REQUEST_TIMEOUT: Self = Self(408);
    pub const PRECONDITION_FAILED: Self = Self(412);
    pub const CONTENT_TOO_LARGE: Self = Self(413);
    pub const URI_TOO_LONG: Self = Self(414);
    pub const RANGE_NOT_SATISFIABLE: Self = Self(416);
    pub const EXPECTATION_FAILED: Self = Self(417);
    pub const MISDIRECTED: Self = Self(421);
    pub const TOO_MANY_REQUESTS: Self = Self(429);
    pub const FIELDS_TOO_LARGE: Self = Self(431);
    pub const INTERNAL_ERROR: Self = Self(500);
    pub const NOT_IMPLEMENTED: Self = Self(501);
    pub const BAD_GATEWAY: Self = Self(502);
    pub const UNAVAILABLE: Self = Self(503);
    pub const GATEWAY_TIMEOUT: Self = Self(504);
    pub const VERSION_NOT_SUPPORTED: Self = Self(505);
}

impl Status {
    /// Any other code, for answers that are passed on.
    ///
    /// # Panics
    /// When it has not three digits.
    #[must_use]
    pub const fn of(code: u16) -> Self {
        assert!(100 <= code && code <= 999, "a status code has three digits");
        Self(code)
    }

    /// The number, 100 to 999.
    #[must_use]
    pub const fn code(self) -> u16 {
        self.0
    }

    /// The phrase of RFC 9110 15 and RFC 6585; empty for codes that pollux never makes.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self.0 {
            100 => "Continue",
            200 => "OK",
            204 => "No Content",
            206 => "Partial Content",
            301 => "Moved Permanently",
            302 => "Found",
            303 => "See Other",
            304 => "Not Modified",
            307 => "Temporary Redirect",
            308 => "Permanent Redirect",
            400 => "Bad Request",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            406 => "Not Acceptable",
            408 => "Request Timeout",
            412 => "Precondition Failed",
            413 => "Content Too Large",
            414 => "URI Too Long",
            416 => "Range Not Satisfiable",
            417 => "Expectation Failed",
            421 => "Misdirected Request",
            431 => "Request Header Fields Too Large",
            500 => "Internal Server Error",
            501 => "Not Implemented",
            502 => "Bad Gateway",
            503 => "Service Unavailable",
            504 => "Gateway Timeout",
            505 => "HTTP Version Not Supported",
            _ => "",
        }
    }

    /// Whether an answer with this status may have a body at all (RFC 9110 6.4.1); HEAD is the
    /// caller's to know.
    #[must_use]
    pub const fn allows_body(self) -> bool {
        !(self.0 < 200 || self.0 == 204 || self.0 == 304)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, self.reason())
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A refusal: what to answer, what was wrong, which rule says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rejection {
    /// The answer's status.
    pub status: Status,
    /// What was wrong and, where it is not obvious, what would be right.
    pub reason: &'static str,
    /// The rule, as `RFC 9112 6.3`.
    pub rfc: &'static str,
    /// The limit that was exceeded, for those that a program may have settings for.
    pub limit: Option<LimitName>,
}

/// Limits that programs have settings for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitName {
    /// [`Limits::head_bytes`].
    Head,
    /// [`Limits::target_bytes`].
    Target,
    /// [`Limits::fields`].
    Fields,
    /// [`Limits::body_bytes`].
    Body,
}

impl Rejection {
    /// What a request for an https URI gets on a connection without TLS.
    pub const HTTPS_WITHOUT_TLS: Self = Self::new(
        Status::MISDIRECTED,
        "the target is https, but the connection is not secured",
        "RFC 9110 7.4",
    );

    /// What a body gets that has more bytes than it may have.
    pub const BODY_LARGE: Self =
        Self::new(Status::CONTENT_TOO_LARGE, "the body exceeds max_body", "RFC 9110 15.5.14");

    /// A refusal with any status.
    #[must_use]
    pub const fn new(status: Status, reason: &'static str, rfc: &'static str) -> Self {
        Self { status, reason, rfc, limit: None }
    }

    /// A refusal with 400 Bad Request.
    pub(crate) const fn bad(reason: &'static str, rfc: &'static str) -> Self {
        Self::new(Status::BAD_REQUEST, reason, rfc)
    }

    /// A refusal of what exceeds a limit.
    pub(crate) const fn beyond(
        limit: LimitName,
        status: Status,
        reason: &'static str,
        rfc: &'static str,
    ) -> Self {
        Self { status, reason, rfc, limit: Some(limit) }
    }

    /// The same refusal of an answer: 502 is what a gateway tells its own client then.
    pub(crate) const fn of_answer(self) -> Self {
        Self { status: Status::BAD_GATEWAY, ..self }
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
    /// Request line, fields and the empty line after them: 414 or 431 beyond. A connection keeps as much
    /// of a head that has not arrived whole, and reads it again with each piece that arrives.
    pub head_bytes: usize,
    /// The request target: 414 beyond. RFC 9110 4.1 asks for at least 8000.
    pub target_bytes: usize,
    /// Field lines of a head, and again of a trailer section: 431 beyond. They take no memory of their
    /// own.
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
    /// 40 KiB heads, 8 KiB targets, 1000 fields, 1 GiB bodies, 8 KiB trailers: all heads that nginx takes
    /// by default, which are of 33 KiB with lines of 8 KiB.
    pub const DEFAULT: Self = Self {
        head_bytes: 40 * 1024,
        target_bytes: 8 * 1024,
        fields: 1000,
        body_bytes: 1 << 30,
        chunk_line_bytes: 1024,
        extension_bytes: 16 * 1024,
        trailer_bytes: 8 * 1024,
    };
}

impl Default for Limits {
    /// [`Limits::DEFAULT`].
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_follow_the_rule_of_the_standard() {
        for (code, allows) in [(100, false), (200, true), (204, false), (206, true), (304, false)] {
            assert_eq!(Status::of(code).allows_body(), allows, "{code}");
        }
    }

    #[test]
    fn display_names_code_and_phrase() {
        assert_eq!(Status::URI_TOO_LONG.to_string(), "414 URI Too Long");
        assert_eq!(Status::of(599).reason(), "");
    }
}
