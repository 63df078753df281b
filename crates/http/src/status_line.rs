//! The status line, byte by byte from the left, so that the first wrong byte decides and it does
//! not matter how many more have arrived. [`crate::Response::parse`] calls it.

use crate::fields::is_value_byte;
use crate::request_line::minor_version;
use crate::scan::{self, run_len};
use crate::{Rejection, Status};

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
    let (reason, end) = rest.split_at(run_len(rest, scan::not_text, is_value_byte));
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
