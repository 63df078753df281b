//! Answers, written into a slice that the caller owns: heads and the framing of chunks.
//!
//! The server writes straight into its output. Nothing is allocated, nothing is written beyond
//! the slice, and no value, wherever it comes from, can end its own line.

use std::fmt;

use crate::{DateCache, Request, Status};

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
/// [`NoRoom`] when `out` is too short; [`CHUNK_HEAD_BYTES_MAX`] always suffice.
///
/// # Panics
/// When the chunk is empty: that would end the body.
pub fn write_chunk_head(out: &mut [u8], len_bytes: u64) -> Result<usize, NoRoom> {
    assert!(len_bytes > 0, "an empty chunk would end the body");
    let digits = 16 - len_bytes.leading_zeros() as usize / 4;
    let line = out.get_mut(..digits + 2).ok_or(NoRoom)?;
    for (at, digit) in line[..digits].iter_mut().enumerate() {
        let nibble = len_bytes >> (4 * (digits - 1 - at)) & 0xf;
        *digit = b"0123456789abcdef"[nibble as usize];
    }
    line[digits..].copy_from_slice(b"\r\n");
    Ok(digits + 2)
}

/// The output's room does not hold what was to be written; what stands in it is of no use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoRoom;

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the head does not fit into the output; flush it first")
    }
}

impl std::error::Error for NoRoom {}

/// Writes one answer's head, line by line; [`HeadWriter::finish`] tells whether all of it fitted.
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
        assert!(
            !name.is_empty() && name.bytes().all(crate::fields::is_token_byte),
            "a field name is a token"
        );
        self.put(name.as_bytes());
        self.put(b": ");
        let start = self.len;
        self.put(value);
        for b in &mut self.out[start..self.len] {
            if !crate::fields::is_value_byte(*b) {
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

    /// [`HeadWriter::connection`] as the request wants it.
    #[inline]
    pub fn connection_of(&mut self, request: &Request<'_>) -> &mut Self {
        self.connection(request.version_minor, !request.keep_alive)
    }

    /// Ends the head with its empty line and returns its length in bytes.
    ///
    /// # Errors
    /// [`NoRoom`] when not all of it fitted.
    #[inline]
    pub fn finish(&mut self) -> Result<usize, NoRoom> {
        self.put(b"\r\n");
        if self.fits { Ok(self.len) } else { Err(NoRoom) }
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
            assert_eq!(write(&mut vec![0; short]), Err(NoRoom), "{short}");
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
            assert_eq!(write_chunk_head(&mut out[..line.len() - 1], len), Err(NoRoom));
        }
    }
}
