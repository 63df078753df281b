//! The request line and its method, byte by byte from the left, so that the first wrong byte decides and
//! it does not matter how many more have arrived. [`crate::Request::parse`] calls it.

use std::fmt;

use crate::fields::{self, is_token_byte, run_len};
use crate::{Limits, Rejection, Status};

/// A request line that is whole and sound, and the bytes it took with its CRLF.
pub(crate) struct RequestLine<'b> {
    pub(crate) method: Method<'b>,
    pub(crate) target: &'b [u8],
    pub(crate) minor: u8,
    pub(crate) len: usize,
}

const METHOD_LONG: Rejection =
    Rejection::new(Status::NOT_IMPLEMENTED, "no method is that long", "RFC 9112 3");
const METHOD: Rejection = Rejection::bad("the method is not a token and a space", "RFC 9112 3.1");
const NOT_HTTP: Rejection =
    Rejection::bad("this looks like TLS; the port speaks plain HTTP", "RFC 9112 3");
const TARGET: Rejection =
    Rejection::bad("the target is not visible ASCII without # and one space", "RFC 9112 3.2");
pub(crate) const TARGET_LONG: Rejection =
    Rejection::new(Status::URI_TOO_LONG, "the target exceeds the limit", "RFC 9112 3");
const VERSION: Rejection =
    Rejection::bad("the line does not end in HTTP/1.1 and CRLF", "RFC 9112 2.3");
const MAJOR: Rejection =
    Rejection::new(Status::VERSION_NOT_SUPPORTED, "only HTTP/1 is spoken here", "RFC 9110 15.6.6");

/// First byte of a TLS record that carries a handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// Reads the line at the front of `head`; none when it has not arrived whole.
#[inline]
pub(crate) fn parse<'b>(
    head: &'b [u8],
    limits: &Limits,
) -> Result<Option<RequestLine<'b>>, &'static Rejection> {
    let Some((method, at)) = method(head)? else { return Ok(None) };
    let Some(target) = target(&head[at..], limits)? else { return Ok(None) };
    let at = at + target.len() + 1;
    let Some(minor) = version(&head[at..])? else { return Ok(None) };
    Ok(Some(RequestLine { method, target, minor, len: at + VERSION_BYTES }))
}

/// The method and where the target starts.
#[inline]
fn method(head: &[u8]) -> Result<Option<(Method<'_>, usize)>, &'static Rejection> {
    if head.first_chunk() == Some(b"GET ") {
        return Ok(Some((Method::Get, 4)));
    }
    other_method(head)
}

#[inline(never)]
fn other_method(head: &[u8]) -> Result<Option<(Method<'_>, usize)>, &'static Rejection> {
    let window = &head[..head.len().min(Method::BYTES_MAX + 1)];
    let Some(end) = window.iter().position(|&b| !is_token_byte(b)) else {
        return if window.len() > Method::BYTES_MAX { Err(&METHOD_LONG) } else { Ok(None) };
    };
    if window[0] == TLS_HANDSHAKE {
        return Err(&NOT_HTTP);
    }
    if end == 0 || window[end] != b' ' {
        return Err(&METHOD);
    }
    let name = str::from_utf8(&window[..end]).map_err(|_| &METHOD)?;
    Ok(Some((Method::named(name), end + 1)))
}

/// The bytes before the space.
#[inline]
fn target<'b>(rest: &'b [u8], limits: &Limits) -> Result<Option<&'b [u8]>, &'static Rejection> {
    let window = &rest[..rest.len().min(limits.target_bytes.saturating_add(1))];
    let end = run_len(window, fields::not_in_target, is_target_byte);
    match window.get(end) {
        Some(b' ') if end > 0 => Ok(Some(&window[..end])),
        Some(_) => Err(&TARGET),
        None if end > limits.target_bytes => Err(&TARGET_LONG),
        None => Ok(None),
    }
}

/// Visible ASCII. Some of it (`"<>\^{|}` and the backtick) is not a URI's, yet browsers send it.
pub(crate) const fn is_target_byte(b: u8) -> bool {
    b'!' <= b && b <= b'~' && b != b'#'
}

/// `HTTP/1.1` and CRLF.
const VERSION_BYTES: usize = 10;

/// The minor version: 0, or 1 for every other one (RFC 9110 2.5).
#[inline]
fn version(rest: &[u8]) -> Result<Option<u8>, &'static Rejection> {
    if rest.first_chunk() == Some(b"HTTP/1.1\r\n") {
        return Ok(Some(1));
    }
    minor_version(rest, b"HTTP/1.d\r\n", &VERSION)
}

/// The minor version, read byte by byte where the pattern has its `d`; status lines start with
/// what request lines end in. What does not fit the pattern is `wrong`; a version that fits but
/// for its major digit, where the pattern has its `1`, is one that is not spoken here.
#[inline(never)]
pub(crate) fn minor_version(
    rest: &[u8],
    pattern: &[u8],
    wrong: &'static Rejection,
) -> Result<Option<u8>, &'static Rejection> {
    let (mut minor, mut is_spoken) = (1, true);
    for (at, &pattern) in pattern.iter().enumerate() {
        let Some(&b) = rest.get(at) else { return Ok(None) };
        match pattern {
            b'd' if b.is_ascii_digit() => minor = u8::from(b != b'0'),
            b'd' => return Err(wrong),
            b'1' if b.is_ascii_digit() => is_spoken = b == b'1',
            _ if b == pattern => {}
            _ => return Err(wrong),
        }
    }
    if is_spoken { Ok(Some(minor)) } else { Err(&MAJOR) }
}

/// A method of RFC 9110 9 or PATCH; names are case-sensitive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method<'b> {
    /// GET.
    Get,
    /// HEAD: answered like GET, without the body.
    Head,
    /// POST.
    Post,
    /// PUT.
    Put,
    /// DELETE.
    Delete,
    /// CONNECT: the target names a host and port.
    Connect,
    /// OPTIONS: the target may be `*`.
    Options,
    /// TRACE.
    Trace,
    /// PATCH.
    Patch,
    /// Any other token; a server that does not know it answers 501.
    Other(&'b str),
}

impl<'b> Method<'b> {
    /// Longest method that is looked at; a longer one is refused with 501 (RFC 9112 3). The
    /// longest registered one has 17 letters.
    pub const BYTES_MAX: usize = 32;

    /// The method of that name.
    #[must_use]
    pub fn named(name: &'b str) -> Self {
        match name {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "DELETE" => Self::Delete,
            "CONNECT" => Self::Connect,
            "OPTIONS" => Self::Options,
            "TRACE" => Self::Trace,
            "PATCH" => Self::Patch,
            other => Self::Other(other),
        }
    }

    /// Its name, as it stands in the request line.
    #[must_use]
    pub fn name(self) -> &'b str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
            Self::Options => "OPTIONS",
            Self::Trace => "TRACE",
            Self::Patch => "PATCH",
            Self::Other(name) => name,
        }
    }
}

impl fmt::Display for Method<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(line: &[u8]) -> Option<u16> {
        parse(line, &Limits { target_bytes: 8, ..Limits::default() })
            .err()
            .map(|rejection| rejection.status.code())
    }

    #[test]
    fn minor_versions_are_zero_or_one() {
        for (line, minor) in [("1.0", 0), ("1.1", 1), ("1.2", 1), ("1.9", 1)]
            .map(|(v, m)| (format!("GET / HTTP/{v}\r\n"), m))
        {
            let Ok(Some(parsed)) = parse(line.as_bytes(), &Limits::default()) else {
                panic!("{line}")
            };
            assert_eq!((parsed.minor, parsed.len), (minor, line.len()));
        }
    }

    #[test]
    fn wrong_lines_get_their_status() {
        for (line, code) in [
            (&b"GET / HTTP/2.0\r\n"[..], 505),
            (b"PRI * HTTP/2.0\r\n", 505),
            (b"GET / HTTP/0.9\r\n", 505),
            (b"GET / HTTP/01", 400),
            (b"GET / HTTP/2\r", 400),
            (b"GET / HTTP/2.00", 400),
            (b"GET / HTTP/1.x", 400),
            (b"GET / HTTP/d.1", 400),
            (b"GET / HTTP/1.d\r\n", 400),
            (b"GET / HTTP/11", 400),
            (b"GET / http", 400),
            (b"GET / HTTP/1.1\n", 400),
            (b"GET / HTTP/1.1 ", 400),
            (b"GET  ", 400),
            (b"GET /\r\n", 400),
            (b"GET /#a ", 400),
            (b"GET /\x80 ", 400),
            (b"G\0", 400),
            (b" GET", 400),
            (b"\x16\x03\x01", 400),
            (b"GET /12345678", 414),
            (b"ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG", 501),
        ] {
            assert_eq!(status(line), Some(code), "{}", line.escape_ascii());
        }
    }

    #[test]
    fn a_target_may_be_as_long_as_the_limit() {
        assert_eq!(status(b"GET /1234567 HTTP/1.1\r\n"), None);
        assert_eq!(status(b"GET /1234567"), None);
    }

    #[test]
    fn names_go_there_and_back_and_keep_their_case() {
        for name in
            ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "BREW"]
        {
            assert_eq!(Method::named(name).name(), name);
        }
        assert_eq!(Method::named("get"), Method::Other("get"));
    }
}
