//! Status codes with their phrases, and the status line. Rejections carry codes, the response writer
//! prints them.

use std::fmt;

use crate::Rejection;
use crate::fields::{self, is_value_byte, run_len};
use crate::request_line::minor_version;

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
    pub const FORBIDDEN: Self = Self(403);
    pub const NOT_FOUND: Self = Self(404);
    pub const METHOD_NOT_ALLOWED: Self = Self(405);
    pub const REQUEST_TIMEOUT: Self = Self(408);
    pub const PRECONDITION_FAILED: Self = Self(412);
    pub const CONTENT_TOO_LARGE: Self = Self(413);
    pub const URI_TOO_LONG: Self = Self(414);
    pub const RANGE_NOT_SATISFIABLE: Self = Self(416);
    pub const EXPECTATION_FAILED: Self = Self(417);
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
            304 => "Not Modified",
            308 => "Permanent Redirect",
            400 => "Bad Request",
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

/// A status line that is whole and sound, and the bytes it took with its CRLF.
pub(crate) struct StatusLine<'b> {
    pub(crate) status: Status,
    pub(crate) reason: &'b [u8],
    pub(crate) minor: u8,
    pub(crate) len: usize,
}

const VERSION: Rejection =
    Rejection::bad("the answer does not start with HTTP/1.1 and a space", "RFC 9112 4");
const TLS: Rejection =
    Rejection::bad("this looks like TLS; plain HTTP was asked for", "RFC 9112 4");
const CODE: Rejection = Rejection::bad("the status is not three digits from 100 on", "RFC 9112 4");
const REASON: Rejection =
    Rejection::bad("a control byte, a bare CR or a bare LF in the status line", "RFC 9112 4");

/// First bytes of TLS records that carry an alert or a handshake.
const TLS_RECORDS: [u8; 2] = [0x15, 0x16];

/// The line of nearly every answer under load.
const USUAL: &[u8; 17] = b"HTTP/1.1 200 OK\r\n";

/// `HTTP/1.1` and a space.
const VERSION_BYTES: usize = 9;

/// Reads the line at the front of `head`; none when it has not arrived whole.
///
/// The status line, byte by byte from the left, so that the first wrong byte decides and it does
/// not matter how many more have arrived. [`crate::Response::parse`] calls it.
#[inline]
pub(crate) fn parse(head: &[u8]) -> Result<Option<StatusLine<'_>>, &'static Rejection> {
    if head.first_chunk() == Some(USUAL) {
        let (status, reason) = (Status::OK, &head[13..15]);
        return Ok(Some(StatusLine { status, reason, minor: 1, len: USUAL.len() }));
    }
    other_line(head)
}

#[inline(never)]
fn other_line(head: &[u8]) -> Result<Option<StatusLine<'_>>, &'static Rejection> {
    let wrong = if head.first().is_some_and(|b| TLS_RECORDS.contains(b)) { &TLS } else { &VERSION };
    let Some(minor) = minor_version(head, b"HTTP/1.d ", wrong)? else { return Ok(None) };
    let Some((status, rest)) = code(&head[VERSION_BYTES..])? else { return Ok(None) };
    let rest = match rest {
        [] => return Ok(None),
        [b' ', rest @ ..] => rest,
        // The space is due even before an empty reason, but some leave out both, and the line's
        // end is plain.
        [b'\r', ..] => rest,
        _ => return Err(&CODE),
    };
    let (reason, end) = rest.split_at(run_len(rest, fields::not_text, is_value_byte));
    match end {
        [b'\r', b'\n', behind @ ..] => {
            Ok(Some(StatusLine { status, reason, minor, len: head.len() - behind.len() }))
        }
        [] | [b'\r'] => Ok(None),
        _ => Err(&REASON),
    }
}

/// The code and what stands behind it.
fn code(rest: &[u8]) -> Result<Option<(Status, &[u8])>, &'static Rejection> {
    let mut number = 0;
    for at in 0..3 {
        match rest.get(at) {
            None => return Ok(None),
            Some(b'0') if at == 0 => return Err(&CODE),
            Some(b) if b.is_ascii_digit() => number = number * 10 + u16::from(b - b'0'),
            Some(_) => return Err(&CODE),
        }
    }
    Ok(Some((Status::of(number), &rest[3..])))
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

    #[test]
    fn sound_lines_give_their_parts() {
        for (line, code, reason, minor) in [
            ("HTTP/1.1 200 OK\r\n", 200, "OK", 1),
            ("HTTP/1.0 404 Not Found\r\n", 404, "Not Found", 0),
            ("HTTP/1.7 999 \r\n", 999, "", 1),
            ("HTTP/1.1 204\r\n", 204, "", 1),
            ("HTTP/1.1 200  two\tblanks \r\n", 200, " two\tblanks ", 1),
            ("HTTP/1.1 200 Sch\u{f6}n\r\n", 200, "Sch\u{f6}n", 1),
        ] {
            let Ok(Some(parsed)) = parse(line.as_bytes()) else { panic!("{line}") };
            assert_eq!((parsed.status.code(), parsed.minor), (code, minor), "{line}");
            assert_eq!((parsed.reason, parsed.len), (reason.as_bytes(), line.len()), "{line}");
            for end in 0..line.len() {
                assert!(matches!(parse(&line.as_bytes()[..end]), Ok(None)), "{end} of {line}");
            }
        }
    }

    #[test]
    fn the_first_wrong_byte_decides() {
        for (line, wrong) in [
            (&b"\r"[..], &VERSION),
            (b"HTTP/1.1\t", &VERSION),
            (b"ICY 200", &VERSION),
            (b"http/1.1", &VERSION),
            (b"HTTP/01", &VERSION),
            (b"HTTP/2 ", &VERSION),
            (b"\x15\x03", &TLS),
            (b"HTTP/1.1 0", &CODE),
            (b"HTTP/1.1  2", &CODE),
            (b"HTTP/1.1 2\r", &CODE),
            (b"HTTP/1.1 20x", &CODE),
            (b"HTTP/1.1 2000", &CODE),
            (b"HTTP/1.1 200\n", &CODE),
            (b"HTTP/1.1 200 a\0", &REASON),
            (b"HTTP/1.1 200 OK\n", &REASON),
            (b"HTTP/1.1 200 OK\rx", &REASON),
            (b"HTTP/1.1 200\rx", &REASON),
        ] {
            assert_eq!(parse(line).err(), Some(wrong), "{}", line.escape_ascii());
        }
        let major = parse(b"HTTP/2.0 ").err();
        assert!(major.is_some_and(|rejection| rejection.rfc == "RFC 9110 15.6.6"));
    }
}
