//! Request heads: from bytes to facts, or to a refusal with its rule.
//!
//! The server calls [`Request::parse`] with all bytes that wait on a connection. The verdict
//! depends on the bytes alone: whatever arrives behind a decided head changes nothing, and a head
//! that is refused once all of it is here was not accepted earlier in part. It is read from the
//! left, and the first wrong line decides, whether or not the rest has arrived.
//!
//! ```text
//!  empty lines ─► request line ─► target form ─► field lines ─► rules
//!   (bounded)                       (target)      (fields)       framing, connection, host
//! ```

use std::fmt;

use crate::fields::{self, is_name, is_token_byte, list, run_len};
use crate::framing::FramingFields;
use crate::{Fields, Framing, LimitName, Limits, Rejection, Status, Target, target};

/// A sound request head; borrows from the bytes it was read from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'b> {
    /// What is to be done.
    pub method: Method<'b>,
    /// About what.
    pub target: Target<'b>,
    /// 0 for HTTP/1.0, 1 for HTTP/1.1 and every later 1.x.
    pub version_minor: u8,
    /// All field lines.
    pub fields: Fields<'b>,
    /// Where the body ends.
    pub framing: Framing,
    /// Whether the client lets the connection stay open.
    pub keep_alive: bool,
    /// Whether there is a body and the client waits for [`CONTINUE`](crate::CONTINUE) before it
    /// sends it. A body whose first bytes are there is not waited for any more.
    pub expects_continue: bool,
}

/// What ends the request line of a stream, and a space in front.
const STREAM_VERSION: &[u8] = b" HTTP/2.0\r\n";

/// The verdict on the bytes that have arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parsed<'b> {
    /// So far nothing is wrong; more bytes are needed.
    Incomplete,
    /// A head, and how many bytes it takes from the front; its body starts there.
    Complete(Request<'b>, usize),
    /// Refused: answer, close, and look at nothing that follows.
    Rejected(Rejection),
}

/// Empty lines before a request line that are skipped, for clients that end a body with one too
/// many (RFC 9112 2.2).
const EMPTY_LINES_MAX: usize = 4;

const EMPTY_LINE: Rejection = Rejection::bad("a line end without its CR or LF", "RFC 9112 2.2");
const EMPTY_LINES: Rejection =
    Rejection::bad("too many empty lines before a request", "RFC 9112 2.2");
pub(crate) const HEAD_LARGE: Rejection = Rejection::beyond(
    LimitName::Head,
    Status::FIELDS_TOO_LARGE,
    "the head exceeds the limit",
    "RFC 6585 5",
);
const HOST_MISSING: Rejection = Rejection::bad("HTTP/1.1 without Host", "RFC 9112 3.2");
const HOST_TWICE: Rejection = Rejection::bad("more than one Host", "RFC 9112 3.2");
const HOST_INVALID: Rejection = Rejection::bad("Host is not host[:port]", "RFC 9112 3.2");

impl<'b> Request<'b> {
    /// Reads the head at the front of `input`; the whole of it each time, for nothing is kept
    /// between calls.
    #[must_use]
    pub fn parse(input: &'b [u8], limits: &Limits) -> Parsed<'b> {
        match parse(input, limits) {
            Ok(Some((request, len))) => Parsed::Complete(request, len),
            Ok(None) => Parsed::Incomplete,
            Err(rejection) => Parsed::Rejected(*rejection),
        }
    }

    /// The request whose head stands in `head`, as [`h2`](crate::h2) writes those that it has judged: a request line, lines
    /// of fields, an empty line. None where it is not one.
    #[must_use]
    pub fn of_stream(head: &'b [u8], framing: Framing, expects_continue: bool) -> Option<Self> {
        let method_len = head.iter().position(|&byte| byte == b' ')?;
        let rest = &head[method_len + 1..];
        let target_len = rest.iter().position(|&byte| byte == b' ')?;
        let lines = rest[target_len..].strip_prefix(STREAM_VERSION)?.strip_suffix(b"\r\n")?;
        let method = Method::named(str::from_utf8(&head[..method_len]).ok()?);
        Some(Self {
            method,
            target: Target::parse(&rest[..target_len], method).ok()?,
            version_minor: 1,
            fields: Fields::of_checked(lines),
            framing,
            keep_alive: true,
            expects_continue: expects_continue && framing.has_body(),
        })
    }

    /// The authority asked for: that of the target, or else of the Host field. None when an
    /// HTTP/1.0 request names none; may be empty.
    #[must_use]
    pub fn host(&self) -> Option<&'b str> {
        self.target.authority().or_else(|| str::from_utf8(self.fields.first("host")?).ok())
    }
}

/// `?` for refusals; none while bytes are missing.
#[inline(always)]
fn parse<'b>(
    input: &'b [u8],
    limits: &Limits,
) -> Result<Option<(Request<'b>, usize)>, &'static Rejection> {
    let Some(skipped) = skip_empty_lines(input)? else { return Ok(None) };
    let rest = &input[skipped..];
    // No byte beyond the limit is looked at, so none can change the verdict.
    let window = &rest[..rest.len().min(limits.head_bytes)];
    let is_full = window.len() == limits.head_bytes;

    let Some(line) = request_line(window, limits)? else {
        return if is_full { Err(&LINE_LONG) } else { Ok(None) };
    };
    let target = Target::parse(line.target, line.method)?;
    let block = &window[line.len..];
    let mut facts = Facts::default();
    match fields::read(block, limits.fields, |name, value| facts.note(name, value))? {
        Some(len) => {
            let fields = Fields::of_checked(&block[..len - 2]);
            let request = facts.judge(&line, target, fields, limits)?;
            Ok(Some((request, skipped + line.len + len)))
        }
        None if is_full => Err(&HEAD_LARGE),
        None => Ok(None),
    }
}

/// How many bytes of empty lines stand in front; none when only those have arrived.
#[inline(always)]
fn skip_empty_lines(input: &[u8]) -> Result<Option<usize>, &'static Rejection> {
    match input {
        [] => Ok(None),
        [b'\r' | b'\n', ..] => count_empty_lines(input),
        _ => Ok(Some(0)),
    }
}

#[cold]
fn count_empty_lines(input: &[u8]) -> Result<Option<usize>, &'static Rejection> {
    let mut at = 0;
    loop {
        match input.get(at..).unwrap_or_default() {
            [] | [b'\r'] => return Ok(None),
            [b'\r', b'\n', ..] if at == 2 * EMPTY_LINES_MAX => return Err(&EMPTY_LINES),
            [b'\r', b'\n', ..] => at += 2,
            [b'\r' | b'\n', ..] => return Err(&EMPTY_LINE),
            _ => return Ok(Some(at)),
        }
    }
}

/// What the fields say that every request is judged by.
#[derive(Default)]
struct Facts {
    has_host: bool,
    framing: FramingFields,
    connection: ConnectionFields,
}

impl Facts {
    /// Takes one field line; its value may have white space around it.
    #[inline(always)]
    fn note(&mut self, name: &[u8], value: &[u8]) -> Result<(), &'static Rejection> {
        // The length tells most fields apart from these five before a byte is compared.
        match name.len() {
            4 if is_name(name, b"host") => self.note_host(value.trim_ascii()),
            6 if is_name(name, b"expect") => {
                self.connection.note_expect(value);
                Ok(())
            }
            10 if is_name(name, b"connection") => {
                self.connection.note_connection(value);
                Ok(())
            }
            14 if is_name(name, b"content-length") => self.framing.note_length(value.trim_ascii()),
            17 if is_name(name, b"transfer-encoding") => self.framing.note_coding(value),
            _ => Ok(()),
        }
    }

    #[inline(always)]
    fn note_host(&mut self, value: &[u8]) -> Result<(), &'static Rejection> {
        if std::mem::replace(&mut self.has_host, true) {
            return Err(&HOST_TWICE);
        }
        if target::is_host_and_port(value) { Ok(()) } else { Err(&HOST_INVALID) }
    }

    /// The request, when every rule is kept.
    #[inline(always)]
    fn judge<'b>(
        self,
        line: &RequestLine<'b>,
        target: Target<'b>,
        fields: Fields<'b>,
        limits: &Limits,
    ) -> Result<Request<'b>, &'static Rejection> {
        let framing = self.framing.decide(line.minor, limits)?;
        let expects_continue = self.connection.expects_continue(line.minor)?;
        if !self.has_host && line.minor > 0 {
            return Err(&HOST_MISSING);
        }
        Ok(Request {
            method: line.method,
            target,
            version_minor: line.minor,
            fields,
            framing,
            keep_alive: self.connection.keeps_alive(line.minor),
            expects_continue: expects_continue && framing.has_body(),
        })
    }
}

/// What the Connection and Expect fields of one head have said so far.
#[derive(Default, Debug)]
pub(crate) struct ConnectionFields {
    has_close: bool,
    has_keep_alive: bool,
    has_continue: bool,
    has_other_expectation: bool,
}

const EXPECTATION: Rejection = Rejection::new(
    Status::EXPECTATION_FAILED,
    "100-continue is the only expectation there is",
    "RFC 9110 10.1.1",
);

impl ConnectionFields {
    /// Takes one Connection field: a list of tokens without regard to case.
    #[inline(never)]
    pub(crate) fn note_connection(&mut self, value: &[u8]) {
        for option in list(value) {
            self.has_close |= option.eq_ignore_ascii_case(b"close");
            self.has_keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// Takes one Expect field.
    #[inline(never)]
    pub(crate) fn note_expect(&mut self, value: &[u8]) {
        for expectation in list(value) {
            let is_continue = expectation.eq_ignore_ascii_case(b"100-continue");
            self.has_continue |= is_continue;
            self.has_other_expectation |= !is_continue;
        }
    }

    /// Whether the connection stays open: the default of HTTP/1.1, a wish in HTTP/1.0; `close`
    /// wins over everything (RFC 9112 9.3).
    pub(crate) fn keeps_alive(&self, minor: u8) -> bool {
        !self.has_close && (minor > 0 || self.has_keep_alive)
    }

    /// Whether the client waits for 100 Continue; expectations in HTTP/1.0 are ignored.
    ///
    /// # Errors
    /// 417 for any other expectation.
    pub(crate) fn expects_continue(&self, minor: u8) -> Result<bool, &'static Rejection> {
        if minor == 0 {
            return Ok(false);
        }
        if self.has_other_expectation { Err(&EXPECTATION) } else { Ok(self.has_continue) }
    }
}

/// A request line that is whole and sound, and the bytes it took with its CRLF.
struct RequestLine<'b> {
    method: Method<'b>,
    target: &'b [u8],
    minor: u8,
    len: usize,
}

pub(crate) const METHOD_LONG: Rejection =
    Rejection::new(Status::NOT_IMPLEMENTED, "no method is that long", "RFC 9112 3");
const METHOD: Rejection = Rejection::bad("the method is not a token and a space", "RFC 9112 3.1");
const NOT_HTTP: Rejection =
    Rejection::bad("this looks like TLS; the port speaks plain HTTP", "RFC 9112 3");
const TARGET: Rejection =
    Rejection::bad("the target is not visible ASCII without # and one space", "RFC 9112 3.2");
pub(crate) const TARGET_LONG: Rejection = Rejection::beyond(
    LimitName::Target,
    Status::URI_TOO_LONG,
    "the target exceeds the limit",
    "RFC 9112 3",
);
const LINE_LONG: Rejection = Rejection::beyond(
    LimitName::Head,
    Status::URI_TOO_LONG,
    "the request line exceeds the limit of a head",
    "RFC 9112 3",
);
const VERSION: Rejection =
    Rejection::bad("the line does not end in HTTP/1.1 and CRLF", "RFC 9112 2.3");
const MAJOR: Rejection =
    Rejection::new(Status::VERSION_NOT_SUPPORTED, "only HTTP/1 is spoken here", "RFC 9110 15.6.6");

/// First byte of a TLS record that carries a handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// Reads the line at the front of `head`; none when it has not arrived whole.
#[inline]
fn request_line<'b>(
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
    let mut minor = 1;
    let mut is_spoken = true;
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

    /// Whether these bytes could name a method: a token (RFC 9110 5.6.2) of at most [`Self::BYTES_MAX`] bytes.
    #[must_use]
    pub fn is_name(word: &[u8]) -> bool {
        let is_token = word.iter().all(|&byte| is_token_byte(byte));
        !word.is_empty() && word.len() <= Self::BYTES_MAX && is_token
    }

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

    fn noted(connection: &[&str], expect: &[&str]) -> ConnectionFields {
        let mut fields = ConnectionFields::default();
        connection.iter().for_each(|value| fields.note_connection(value.as_bytes()));
        expect.iter().for_each(|value| fields.note_expect(value.as_bytes()));
        fields
    }

    #[test]
    fn the_version_decides_when_nothing_is_said() {
        assert!(noted(&[], &[]).keeps_alive(1));
        assert!(!noted(&[], &[]).keeps_alive(0));
        assert!(noted(&["Keep-Alive"], &[]).keeps_alive(0));
    }

    #[test]
    fn close_wins_wherever_it_stands() {
        for values in [&["close"][..], &["keep-alive, CLOSE"], &["keep-alive", "x, close"]] {
            assert!(!noted(values, &[]).keeps_alive(1), "{values:?}");
            assert!(!noted(values, &[]).keeps_alive(0), "{values:?}");
        }
        assert!(noted(&["closed, x-close"], &[]).keeps_alive(1));
    }

    #[test]
    fn only_one_expectation_is_known() {
        assert_eq!(noted(&[], &["100-Continue"]).expects_continue(1), Ok(true));
        assert_eq!(noted(&[], &["100-continue"]).expects_continue(0), Ok(false));
        assert_eq!(noted(&[], &[]).expects_continue(1), Ok(false));
        for value in ["x", "100-continue, x", "100-continue=1"] {
            assert_eq!(noted(&[], &[value]).expects_continue(1), Err(&EXPECTATION), "{value}");
        }
    }

    fn status(line: &[u8]) -> Option<u16> {
        request_line(line, &Limits { target_bytes: 8, ..Limits::default() })
            .err()
            .map(|rejection| rejection.status.code())
    }

    #[test]
    fn minor_versions_are_zero_or_one() {
        for (line, minor) in [("1.0", 0), ("1.1", 1), ("1.2", 1), ("1.9", 1)]
            .map(|(v, m)| (format!("GET / HTTP/{v}\r\n"), m))
        {
            let Ok(Some(parsed)) = request_line(line.as_bytes(), &Limits::default()) else {
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
