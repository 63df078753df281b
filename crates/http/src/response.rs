//! Response heads: from bytes to facts, or to a refusal with its rule, and the last one of a connection,
//! which often comes again. The mirror of the requests.
//!
//! The load generator and the proxy call [`Response::parse`] with all bytes that wait on a
//! connection. As with requests the verdict depends on the bytes alone, and the first wrong line
//! decides; only the fields of the framing are judged together when all of them are there.
//!
//! Where RFC 9112 lets a recipient repair or refuse, this refuses: a bare CR or LF, a NUL, an
//! empty line in front, white space before a colon. A folded line, too: a gateway may answer 502
//! for it (5.2), and though a browser has to take it for a space, it has not been sent for decades
//! and a value with line ends inside must not be handed on.

use std::fmt;

use crate::fields::{self, is_name, is_value_byte, run_len};
use crate::framing::ResponseFraming;
use crate::request::{ConnectionFields, HEAD_LARGE, minor_version};
use crate::{Fields, Limits, Rejection, RequestKind, ResponseBody, Status};

/// A sound response head; borrows from the bytes it was read from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Response<'b> {
    /// What decides how the connection continues.
    pub facts: ResponseFacts,
    /// The phrase behind the status: any text, often empty; it means nothing.
    pub reason: &'b [u8],
    /// All field lines.
    pub fields: Fields<'b>,
}

/// What a response head means for its connection, without its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResponseFacts {
    /// 100 to 999. What is above 599 is to be taken for a 5xx (RFC 9110 15).
    pub status: Status,
    /// 0 for HTTP/1.0, 1 for HTTP/1.1 and every later 1.x.
    pub version_minor: u8,
    /// Whether the connection can carry another request behind this answer. Says nothing about an
    /// interim one.
    pub keep_alive: bool,
    /// Bytes of the head with its empty line; the body starts there.
    pub head_len: usize,
    /// Where the body ends.
    pub body: ResponseBody,
}

impl ResponseFacts {
    /// Whether the answer proper is still to come: 1xx, but for 101, behind which no HTTP follows.
    #[must_use]
    pub fn is_interim(&self) -> bool {
        self.status.code() < 200 && self.status.code() != 101
    }
}

impl<'b> Response<'b> {
    /// Reads the head at the front of `input`; the whole of it each time, for nothing is kept
    /// between calls. `to` is what it answers. None when nothing is wrong so far and more bytes
    /// are needed; an answer that is none at the end of the connection was cut.
    ///
    /// # Errors
    /// When a rule is broken or a limit exceeded, always with status 502, which is what a gateway
    /// answers then: close, and look at nothing that follows.
    #[inline]
    pub fn parse(
        input: &'b [u8],
        limits: &Limits,
        to: RequestKind,
    ) -> Result<Option<Self>, Rejection> {
        parse(input, limits, to).map_err(|rejection| rejection.of_answer())
    }
}

#[inline(always)]
fn parse<'b>(
    input: &'b [u8],
    limits: &Limits,
    to: RequestKind,
) -> Result<Option<Response<'b>>, &'static Rejection> {
    // No byte beyond the limit is looked at, so none can change the verdict.
    let window = &input[..input.len().min(limits.head_bytes)];
    let missing = || if window.len() == limits.head_bytes { Err(&HEAD_LARGE) } else { Ok(None) };

    let Some(line) = status_line(window)? else { return missing() };
    let block = &window[line.len..];
    let mut noted = Noted::default();
    let note = |name: &[u8], value: &[u8]| {
        noted.note(name, value);
        Ok(())
    };
    let Some(len) = fields::read(block, limits.fields, note)? else { return missing() };
    Ok(Some(Response {
        facts: noted.judge(&line, line.len + len, limits, to)?,
        reason: line.reason,
        fields: Fields::of_checked(&block[..len - 2]),
    }))
}

/// What the fields say that every response is judged by.
#[derive(Default)]
struct Noted {
    framing: ResponseFraming,
    connection: ConnectionFields,
}

impl Noted {
    /// Takes one field line; its value may have white space around it.
    #[inline(always)]
    fn note(&mut self, name: &[u8], value: &[u8]) {
        // The length tells most fields apart from these three before a byte is compared.
        match name.len() {
            10 if is_name(name, b"connection") => self.connection.note_connection(value),
            14 if is_name(name, b"content-length") => self.framing.note_length(value),
            17 if is_name(name, b"transfer-encoding") => self.framing.note_coding(value),
            _ => {}
        }
    }

    /// The facts, when every rule is kept.
    #[inline(always)]
    fn judge(
        self,
        line: &StatusLine<'_>,
        head_len: usize,
        limits: &Limits,
        to: RequestKind,
    ) -> Result<ResponseFacts, &'static Rejection> {
        let body = self.framing.decide(line.status, to, line.minor, limits)?;
        let can_proceed = body != ResponseBody::UntilClose
            && !to.leaves_http(line.status)
            && !self.framing.is_ambiguous();
        Ok(ResponseFacts {
            status: line.status,
            version_minor: line.minor,
            keep_alive: can_proceed && self.connection.keeps_alive(line.minor),
            head_len,
            body,
        })
    }
}

/// Reads heads like [`Response::parse`] under fixed limits, and remembers the last one.
///
/// It takes little more than [`HeadCache::HEAD_BYTES_MAX`] bytes and allocates nothing.
///
/// The last response head and its meaning: a server under load sends the same head over and over,
/// but for Date, which changes once a second. Comparing costs a fraction of reading.
///
/// The load generator keeps one per loop and request. It never answers otherwise than
/// [`Response::parse`]: a head is whole in itself, its end included, so equal bytes in front mean
/// an equal verdict, whatever follows them. A test holds both side by side.
#[derive(Clone)]
pub struct HeadCache {
    limits: Limits,
    /// What the head in `bytes` answered, and its meaning; none at the start.
    known: Option<(RequestKind, ResponseFacts)>,
    bytes: [u8; Self::HEAD_BYTES_MAX],
}

impl HeadCache {
    /// Longer heads are read each time: they cost more in copying, and servers that are measured
    /// send 100 to 300 bytes.
    pub const HEAD_BYTES_MAX: usize = 1024;

    /// A cache that knows no head yet.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, known: None, bytes: [0; Self::HEAD_BYTES_MAX] }
    }

    /// The verdict of [`Response::parse`] without the fields.
    ///
    /// # Errors
    /// Those of [`Response::parse`]; the head that was known stays known.
    #[inline]
    pub fn read(
        &mut self,
        input: &[u8],
        to: RequestKind,
    ) -> Result<Option<ResponseFacts>, Rejection> {
        match self.lookup(input, to) {
            Some(facts) => Ok(Some(facts)),
            None => self.parse(input, to),
        }
    }

    /// What the head in front means, when it is the known one; none says nothing about it.
    #[must_use]
    #[inline]
    pub fn lookup(&self, input: &[u8], to: RequestKind) -> Option<ResponseFacts> {
        let (known_to, facts) = self.known?;
        let is_known = known_to == to && input.starts_with(&self.bytes[..facts.head_len]);
        is_known.then_some(facts)
    }

    #[inline(never)]
    fn parse(&mut self, input: &[u8], to: RequestKind) -> Result<Option<ResponseFacts>, Rejection> {
        let Some(response) = Response::parse(input, &self.limits, to)? else { return Ok(None) };
        let facts = response.facts;
        if let Some(room) = self.bytes.get_mut(..facts.head_len) {
            room.copy_from_slice(&input[..facts.head_len]);
            self.known = Some((to, facts));
        }
        Ok(Some(facts))
    }
}

impl fmt::Debug for HeadCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeadCache").field("known", &self.known).finish_non_exhaustive()
    }
}

/// A status line that is whole and sound, and the bytes it took with its CRLF.
struct StatusLine<'b> {
    status: Status,
    reason: &'b [u8],
    minor: u8,
    len: usize,
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
/// not matter how many more have arrived.
#[inline]
fn status_line(head: &[u8]) -> Result<Option<StatusLine<'_>>, &'static Rejection> {
    if head.first_chunk() == Some(USUAL) {
        let status = Status::OK;
        let reason = &head[13..15];
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

    const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n";

    fn known(head: &str, to: RequestKind) -> HeadCache {
        let mut cache = HeadCache::new(Limits::default());
        assert!(cache.read(head.as_bytes(), to).is_ok());
        cache
    }

    #[test]
    fn a_known_head_is_found_whatever_follows_it() {
        let mut cache = known(HEAD, RequestKind::Other);
        for behind in ["", "abc", "abcHTTP/1.1 500 \r\n\r\n"] {
            let input = format!("{HEAD}{behind}");
            let facts = cache.lookup(input.as_bytes(), RequestKind::Other).expect("known");
            let parsed = Response::parse(input.as_bytes(), &cache.limits, RequestKind::Other);
            assert_eq!(parsed.map(|response| response.map(|r| r.facts)), Ok(Some(facts)));
            assert_eq!(cache.read(input.as_bytes(), RequestKind::Other), Ok(Some(facts)));
        }
    }

    #[test]
    fn another_head_another_question_or_a_part_is_not_known() {
        let cache = known(HEAD, RequestKind::Other);
        assert!(HeadCache::new(Limits::default()).lookup(b"", RequestKind::Other).is_none());
        assert_eq!(cache.lookup(HEAD.as_bytes(), RequestKind::Head), None);
        for end in 0..HEAD.len() {
            assert_eq!(cache.lookup(&HEAD.as_bytes()[..end], RequestKind::Other), None, "{end}");
            let mut other = HEAD.as_bytes().to_vec();
            other[end] ^= 1;
            assert_eq!(cache.lookup(&other, RequestKind::Other), None, "{end}");
        }
    }

    #[test]
    fn a_head_is_kept_until_another_fits() {
        let long = |len: usize| {
            let fixed = "HTTP/1.1 204 \r\nX: \r\n\r\n".len();
            format!("HTTP/1.1 204 \r\nX: {}\r\n\r\n", "a".repeat(len - fixed))
        };
        let mut cache = known(HEAD, RequestKind::Other);
        let too_long = long(HeadCache::HEAD_BYTES_MAX + 1);
        for input in [&too_long, "HTTP/1.1 2", "nonsense"] {
            assert_eq!(cache.lookup(input.as_bytes(), RequestKind::Other), None);
            let _verdict = cache.read(input.as_bytes(), RequestKind::Other);
            assert!(cache.lookup(HEAD.as_bytes(), RequestKind::Other).is_some(), "{input}");
        }
        let longest = long(HeadCache::HEAD_BYTES_MAX);
        assert!(cache.read(longest.as_bytes(), RequestKind::Other).is_ok());
        assert!(cache.lookup(longest.as_bytes(), RequestKind::Other).is_some());
        assert_eq!(cache.lookup(HEAD.as_bytes(), RequestKind::Other), None);
    }

    #[test]
    fn sound_status_lines_give_their_parts() {
        for (line, code, reason, minor) in [
            ("HTTP/1.1 200 OK\r\n", 200, "OK", 1),
            ("HTTP/1.0 404 Not Found\r\n", 404, "Not Found", 0),
            ("HTTP/1.7 999 \r\n", 999, "", 1),
            ("HTTP/1.1 204\r\n", 204, "", 1),
            ("HTTP/1.1 200  two\tblanks \r\n", 200, " two\tblanks ", 1),
            ("HTTP/1.1 200 Sch\u{f6}n\r\n", 200, "Sch\u{f6}n", 1),
        ] {
            let Ok(Some(parsed)) = status_line(line.as_bytes()) else { panic!("{line}") };
            assert_eq!((parsed.status.code(), parsed.minor), (code, minor), "{line}");
            assert_eq!((parsed.reason, parsed.len), (reason.as_bytes(), line.len()), "{line}");
            for end in 0..line.len() {
                assert!(
                    matches!(status_line(&line.as_bytes()[..end]), Ok(None)),
                    "{end} of {line}"
                );
            }
        }
    }

    #[test]
    fn the_first_wrong_byte_of_a_status_line_decides() {
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
            assert_eq!(status_line(line).err(), Some(wrong), "{}", line.escape_ascii());
        }
        let major = status_line(b"HTTP/2.0 ").err();
        assert!(major.is_some_and(|rejection| rejection.rfc == "RFC 9110 15.6.6"));
    }
}
