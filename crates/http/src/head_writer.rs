//! Heads and chunks as bytes: answers, written into a slice that the caller owns; the requests of a client;
//! and the dates in both.
//!
//! The server writes straight into its output. Nothing is allocated, nothing is written beyond
//! the slice, and no value, wherever it comes from, can end its own line.

use std::fmt;
use std::io::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use crate::fields::{is_token_byte, is_value_byte};
use crate::request::is_target_byte;
use crate::{Field, Framing, Method, Status, Target, target};

/// The interim answer that lets a waiting client send its body (RFC 9110 10.1.1).
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// What follows the bytes of each chunk.
pub const CHUNK_END: &[u8] = b"\r\n";

/// What ends a chunked body without trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Longest line that [`write_chunk_head`] writes: 16 digits and CRLF.
pub const CHUNK_HEAD_BYTES_MAX: usize = 18;

/// Writes the line before a chunk of `len_bytes` and returns the line's length.
///
/// # Errors
/// [`BufferFull`] when `out` is too short; [`CHUNK_HEAD_BYTES_MAX`] always suffice.
///
/// # Panics
/// When the chunk is empty: that would end the body.
pub fn write_chunk_head(out: &mut [u8], len_bytes: u64) -> Result<usize, BufferFull> {
    assert!(len_bytes > 0, "an empty chunk would end the body");
    let digits = 16 - len_bytes.leading_zeros() as usize / 4;
    let line = out.get_mut(..digits + 2).ok_or(BufferFull)?;
    for (at, digit) in line[..digits].iter_mut().enumerate() {
        let nibble = len_bytes >> (4 * (digits - 1 - at)) & 0xf;
        *digit = b"0123456789abcdef"[nibble as usize];
    }
    line[digits..].copy_from_slice(b"\r\n");
    Ok(digits + 2)
}

/// The output's room does not hold what was to be written; what stands in it is of no use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferFull;

impl fmt::Display for BufferFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the head does not fit into the output; flush it first")
    }
}

impl std::error::Error for BufferFull {}

/// Writes one answer's head, line by line; [`HeadWriter::finish`] says whether all of it fitted.
#[derive(Debug)]
pub struct HeadWriter<'o> {
    out: &'o mut [u8],
    len: usize,
    fits: bool,
}

impl<'o> HeadWriter<'o> {
    /// Starts a head with its status line. The version is 1.1 whatever the client speaks: it
    /// tells what the server can do (RFC 9110 2.5).
    #[must_use]
    #[inline]
    pub fn new(out: &'o mut [u8], status: Status) -> Self {
        let mut head = Self { out, len: 0, fits: true };
        if status == Status::OK {
            head.put(b"HTTP/1.1 200 OK\r\n");
            return head;
        }
        head.put(b"HTTP/1.1 ");
        head.put_decimal(status.code().into());
        head.put(b" ");
        head.put(status.reason().as_bytes());
        head.put(b"\r\n");
        head
    }

    /// Adds a field. Control bytes in the value become spaces (RFC 9110 5.5), so that nothing a
    /// client sent can smuggle a line into an answer.
    ///
    /// # Panics
    /// When the name is not a token: names are ours, never the network's.
    #[inline]
    pub fn field(&mut self, name: &str, value: &[u8]) -> &mut Self {
        assert!(!name.is_empty() && name.bytes().all(is_token_byte), "a field name is a token");
        self.put(name.as_bytes());
        self.put(b": ");
        let start = self.len;
        self.put(value);
        for b in &mut self.out[start..self.len] {
            if !is_value_byte(*b) {
                *b = b' ';
            }
        }
        self.put(b"\r\n");
        self
    }

    /// Adds Content-Length. Not together with [`HeadWriter::chunked`], nor for 1xx and 204.
    #[inline]
    pub fn content_length(&mut self, len_bytes: u64) -> &mut Self {
        self.put(b"Content-Length: ");
        self.put_decimal(len_bytes);
        self.put(b"\r\n");
        self
    }

    /// Adds Transfer-Encoding: chunked; for clients of HTTP/1.1 only.
    #[inline]
    pub fn chunked(&mut self) -> &mut Self {
        self.put(b"Transfer-Encoding: chunked\r\n");
        self
    }

    /// Adds Date as it stands in the cache.
    #[inline]
    pub fn date(&mut self, date: &DateCache) -> &mut Self {
        self.put(b"Date: ");
        self.put(date.text());
        self.put(b"\r\n");
        self
    }

    /// Adds Content-Range of a part: `bytes first-last/whole` (RFC 9110 14.4).
    ///
    /// # Panics
    /// When the part is empty or ends beyond the whole.
    pub fn content_range(&mut self, part: crate::ByteRange, whole_bytes: u64) -> &mut Self {
        assert!(part.len_bytes > 0, "an empty part has no Content-Range");
        let last = part.offset + (part.len_bytes - 1);
        assert!(last < whole_bytes, "a part ends within its whole");
        self.put(b"Content-Range: bytes ");
        self.put_decimal(part.offset);
        self.put(b"-");
        self.put_decimal(last);
        self.put(b"/");
        self.put_decimal(whole_bytes);
        self.put(b"\r\n");
        self
    }

    /// Adds Content-Range of a 416: `bytes */whole`.
    pub fn content_range_unsatisfied(&mut self, whole_bytes: u64) -> &mut Self {
        self.put(b"Content-Range: bytes */");
        self.put_decimal(whole_bytes);
        self.put(b"\r\n");
        self
    }

    /// Adds Connection when the client could not know: `close` when this is the last answer,
    /// `keep-alive` when an HTTP/1.0 client asked for it. Without a request `version_minor` is 1.
    #[inline]
    pub fn connection(&mut self, version_minor: u8, is_last: bool) -> &mut Self {
        if is_last {
            self.put(b"Connection: close\r\n");
        } else if version_minor == 0 {
            self.put(b"Connection: keep-alive\r\n");
        }
        self
    }

    /// Ends the head with its empty line and returns its length in bytes.
    ///
    /// # Errors
    /// [`BufferFull`] when not all of it fitted.
    #[inline]
    pub fn finish(&mut self) -> Result<usize, BufferFull> {
        self.put(b"\r\n");
        if self.fits { Ok(self.len) } else { Err(BufferFull) }
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        match self.out.get_mut(self.len..).and_then(|room| room.get_mut(..bytes.len())) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.len += bytes.len();
            }
            None => self.fits = false,
        }
    }

    #[inline]
    fn put_decimal(&mut self, number: u64) {
        self.put(decimal(number, &mut [0; 20]));
    }
}

/// The digits of `number`, at the end of `digits`.
#[inline]
pub fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

/// The parts of an HTTP/1.1 request head.
///
/// The load generator builds its requests with it before the first byte is sent. What it is given
/// may come from a command line, so nothing in it can end its own line or frame the request
/// anew: that is an error, never repaired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestHead<'h> {
    /// What is to be done.
    pub method: Method<'h>,
    /// About what, in a form that the method allows; visible ASCII.
    pub target: &'h str,
    /// `host[:port]` of the Host field, which is always written; may be empty.
    pub host: &'h str,
    /// All other fields, in their order.
    pub fields: &'h [Field<'h>],
    /// How the body is announced; [`Framing::None`] writes nothing.
    pub framing: Framing,
}

/// What is wrong with the parts of a request head. Fields are counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestFault {
    /// The method is not a token of at most [`Method::BYTES_MAX`] bytes.
    Method,
    /// The target has bytes that no target has, or not a form that the method allows.
    Target,
    /// The host is not `host[:port]`.
    Host,
    /// The field's name is not a token.
    FieldName(usize),
    /// The field's value holds a control byte, a line end perhaps.
    FieldValue(usize),
    /// The field is Host, Content-Length or Transfer-Encoding: the head writes them itself.
    FieldReserved(usize),
}

/// Fields that the other parts stand for.
const RESERVED: [&str; 3] = ["host", "content-length", "transfer-encoding"];

impl RequestHead<'_> {
    /// Appends the head with its empty line to `out`.
    ///
    /// # Errors
    /// When a part is not sound; nothing is written then.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), RequestFault> {
        self.check()?;
        let line = [self.method.name(), " ", self.target, " HTTP/1.1\r\nHost: ", self.host, "\r\n"];
        line.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
        for field in self.fields {
            let line = [field.name.as_bytes(), b": ", field.value, b"\r\n"];
            line.iter().for_each(|part| out.extend_from_slice(part));
        }
        match self.framing {
            Framing::None => {}
            Framing::Length(len) => {
                out.extend_from_slice(format!("Content-Length: {len}\r\n").as_bytes());
            }
            Framing::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        }
        out.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn check(&self) -> Result<(), RequestFault> {
        let method = self.method.name();
        if !is_token(method) || method.len() > Method::BYTES_MAX {
            return Err(RequestFault::Method);
        }
        let target = self.target.as_bytes();
        if !target.iter().all(|&b| is_target_byte(b)) || Target::parse(target, self.method).is_err()
        {
            return Err(RequestFault::Target);
        }
        if !target::is_host_and_port(self.host.as_bytes()) {
            return Err(RequestFault::Host);
        }
        for (at, field) in self.fields.iter().enumerate() {
            if !is_token(field.name) {
                return Err(RequestFault::FieldName(at));
            }
            if RESERVED.iter().any(|name| field.is(name)) {
                return Err(RequestFault::FieldReserved(at));
            }
            if !field.value.iter().all(|&b| is_value_byte(b)) {
                return Err(RequestFault::FieldValue(at));
            }
        }
        Ok(())
    }
}

fn is_token(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(is_token_byte)
}

impl fmt::Display for RequestFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method => {
                write!(f, "the method is not a token of 1 to {} bytes", Method::BYTES_MAX)
            }
            Self::Target => f.write_str(
                "the target is not visible ASCII without # in a form that the method allows, \
                 as /path?query",
            ),
            Self::Host => f.write_str("the host is not host[:port]"),
            Self::FieldName(at) => write!(f, "the name of field {at} is not a token"),
            Self::FieldValue(at) => {
                write!(f, "the value of field {at} holds a control byte; a line end, perhaps")
            }
            Self::FieldReserved(at) => write!(
                f,
                "field {at} is Host, Content-Length or Transfer-Encoding; give the host and the \
                 framing instead"
            ),
        }
    }
}

impl std::error::Error for RequestFault {}

/// The Date field's value (`Sun, 06 Nov 1994 08:49:37 GMT`), made anew when the second changes.
#[derive(Clone, Debug)]
pub struct DateCache {
    unix_s: u64,
    text: [u8; Self::BYTES],
}

impl DateCache {
    /// Length of an IMF-fixdate (RFC 9110 5.6.7).
    pub const BYTES: usize = 29;

    /// The date of that second since 1970. Years beyond 9999 have no form and show its last
    /// second.
    #[must_use]
    pub fn new(unix_s: u64) -> Self {
        Self { unix_s, text: render(unix_s) }
    }

    /// The date of that second.
    #[inline]
    pub fn at(&mut self, unix_s: u64) -> &[u8; Self::BYTES] {
        if unix_s != self.unix_s {
            *self = Self::new(unix_s);
        }
        &self.text
    }

    /// The date that was rendered last.
    #[must_use]
    pub fn text(&self) -> &[u8; Self::BYTES] {
        &self.text
    }
}

/// The seconds since 1970 of a date in any of the three forms of RFC 9110 5.6.7; none for
/// anything else and for years before 1970.
#[must_use]
pub fn parse_date(value: &[u8]) -> Option<u64> {
    let date = httpdate::parse_http_date(str::from_utf8(value).ok()?).ok()?;
    Some(date.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

/// The last second of the year 9999.
const UNIX_S_MAX: u64 = 253_402_300_799;

fn render(unix_s: u64) -> [u8; DateCache::BYTES] {
    let date = httpdate::HttpDate::from(UNIX_EPOCH + Duration::from_secs(unix_s.min(UNIX_S_MAX)));
    let mut text = [0; DateCache::BYTES];
    write!(&mut text[..], "{date}").expect("an IMF-fixdate has 29 bytes");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ByteRange;

    #[test]
    fn a_head_is_written_line_by_line() {
        let mut out = [0; 256];
        let date = DateCache::new(784_111_777);
        let len = HeadWriter::new(&mut out, Status::OK)
            .field("Content-Type", b"text/plain")
            .content_length(0)
            .date(&date)
            .connection(1, true)
            .finish()
            .expect("room");
        assert_eq!(
            str::from_utf8(&out[..len]).expect("ASCII"),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\
             Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nConnection: close\r\n\r\n"
        );
    }

    #[test]
    fn a_slice_that_is_too_short_is_refused_without_a_panic() {
        let write = |out: &mut [u8]| {
            HeadWriter::new(out, Status::PARTIAL_CONTENT)
                .content_range(ByteRange { offset: 5, len_bytes: 10 }, 1234)
                .content_length(u64::MAX)
                .connection(0, false)
                .chunked()
                .finish()
        };
        let len = write(&mut [0; 512]).expect("room");
        for short in 0..len {
            assert_eq!(write(&mut vec![0; short]), Err(BufferFull), "{short}");
        }
        assert_eq!(write(&mut vec![0; len]), Ok(len));
    }

    #[test]
    fn a_value_cannot_end_its_line() {
        let mut out = [0; 128];
        let len = HeadWriter::new(&mut out, Status::PERMANENT_REDIRECT)
            .field("Location", b"/a\r\nSet-Cookie: x\0")
            .finish()
            .expect("room");
        assert_eq!(
            &out[..len],
            b"HTTP/1.1 308 Permanent Redirect\r\nLocation: /a  Set-Cookie: x \r\n\r\n"
        );
    }

    #[test]
    fn chunk_heads_are_plain_hex() {
        for (len, line) in [
            (1, "1\r\n"),
            (15, "f\r\n"),
            (16, "10\r\n"),
            (0xabcd, "abcd\r\n"),
            (u64::MAX, "ffffffffffffffff\r\n"),
        ] {
            let mut out = [0; CHUNK_HEAD_BYTES_MAX];
            assert_eq!(write_chunk_head(&mut out, len), Ok(line.len()));
            assert_eq!(&out[..line.len()], line.as_bytes());
            assert_eq!(write_chunk_head(&mut out[..line.len() - 1], len), Err(BufferFull));
        }
    }

    #[test]
    fn the_example_of_the_standard_goes_there_and_back() {
        let mut cache = DateCache::new(0);
        assert_eq!(cache.text(), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(cache.at(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
        for form in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(parse_date(form.as_bytes()), Some(784_111_777), "{form}");
        }
    }

    #[test]
    fn the_end_of_time_is_shown_not_crossed() {
        assert_eq!(DateCache::new(u64::MAX).text(), b"Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn what_is_not_a_date_is_none() {
        for value in
            ["", "now", "Sun, 06 Nov 1994 08:49:37", "Sun, 31 Feb 1994 08:49:37 GMT", "\u{fc}"]
        {
            assert_eq!(parse_date(value.as_bytes()), None, "{value}");
        }
    }
}
