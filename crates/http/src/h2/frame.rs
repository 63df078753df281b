//! Frames (RFC 9113 4, 6): their heads, what can be judged by those alone, and writing them.

use crate::h2::error::{ErrorCode, Fault};
use crate::h2::output::Output;

/// Bytes in front of each payload.
pub(crate) const HEAD_BYTES: usize = 9;

/// Largest payload that is taken, which is what is announced by default.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 16_384;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
/// RFC 9218 7.1.
pub(crate) const PRIORITY_UPDATE: u8 = 0x10;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;
pub(crate) const WITH_PRIORITY: u8 = 0x20;

/// What a client begins with (RFC 9113 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Whether what comes is DATA, as far as the head of its frame says so.
#[must_use]
pub fn is_data(part: &[u8]) -> bool {
    FrameHead::read(part).is_some_and(|head| head.kind == DATA)
}

/// Whether what comes is the end of this stream, without a byte of its body: some clients say so in a frame of its own.
#[must_use]
#[inline]
pub fn is_empty_end(part: &[u8], stream: u32) -> bool {
    FrameHead::read(part).is_some_and(|head| {
        head.kind == DATA && head.len == 0 && head.has(END_STREAM) && head.stream == stream
    })
}

/// The head of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameHead {
    pub(crate) len: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

impl FrameHead {
    /// Reads the head in front; none when it has not arrived whole.
    #[inline]
    pub(crate) fn read(input: &[u8]) -> Option<Self> {
        let head: &[u8; HEAD_BYTES] = input.first_chunk()?;
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        Some(Self { len, kind: head[3], flags: head[4], stream })
    }

    #[inline]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Judges what needs no payload: sizes, and whether the kind belongs to a stream.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), Fault> {
        if self.len > PAYLOAD_BYTES_MAX {
            return Err(Fault::size("a frame is larger than SETTINGS allow", "RFC 9113 4.2"));
        }
        let len = self.len;
        let is_of_stream = self.stream != 0;
        let (belongs, fits) = match self.kind {
            DATA | HEADERS | CONTINUATION => (is_of_stream, true),
            PRIORITY => (is_of_stream, len == 5),
            RST_STREAM => (is_of_stream, len == 4),
            SETTINGS => (!is_of_stream, len.is_multiple_of(6) && !(self.has(ACK) && len > 0)),
            PUSH_PROMISE => (is_of_stream, len >= 4),
            PING => (!is_of_stream, len == 8),
            GOAWAY => (!is_of_stream, len >= 8),
            WINDOW_UPDATE => (true, len == 4),
            PRIORITY_UPDATE => (!is_of_stream, len >= 4),
            _ => (true, true),
        };
        if !belongs {
            return Err(Fault::protocol(
                "a frame on a stream that its kind does not go with",
                "RFC 9113 6",
            ));
        }
        if fits { Ok(()) } else { Err(Fault::size("a frame has a wrong size", "RFC 9113 4.2")) }
    }

    /// The payload without padding.
    #[inline]
    pub(crate) fn unpadded<'p>(&self, payload: &'p [u8]) -> Result<&'p [u8], Fault> {
        if !self.has(PADDED) {
            return Ok(payload);
        }
        let (&padding, rest) = payload.split_first().ok_or(PADDING)?;
        let len = rest.len().checked_sub(usize::from(padding)).ok_or(PADDING)?;
        Ok(&rest[..len])
    }
}

pub(crate) const PADDING: Fault =
    Fault::protocol("padding is longer than its frame", "RFC 9113 6.1");

/// The bytes of a head.
#[inline]
pub(crate) fn head(len: usize, kind: u8, flags: u8, stream: u32) -> [u8; HEAD_BYTES] {
    let [_, a, b, c] = u32::try_from(len).expect("frames are small").to_be_bytes();
    let [e, f, g, h] = stream.to_be_bytes();
    [a, b, c, kind, flags, e, f, g, h]
}

/// Writes a whole frame.
#[inline]
pub(crate) fn write(out: &mut Output<'_>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.put(&head(payload.len(), kind, flags, stream));
    out.put(payload);
}

pub(crate) fn write_reset(out: &mut Output<'_>, stream: u32, code: ErrorCode) {
    write(out, RST_STREAM, 0, stream, &code.number().to_be_bytes());
}

pub(crate) fn write_window_update(out: &mut Output<'_>, stream: u32, by: u32) {
    write(out, WINDOW_UPDATE, 0, stream, &by.to_be_bytes());
}

/// The number at the front of a payload whose size was checked; without its first bit where that is reserved.
#[inline]
pub(crate) fn number(payload: &[u8]) -> u32 {
    payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_go_both_ways() {
        let bytes = head(0x01_02_03, HEADERS, END_HEADERS, 0x7fff_fffe);
        let read = FrameHead::read(&bytes).expect("whole");
        assert_eq!((read.len, read.kind, read.flags), (0x01_02_03, HEADERS, END_HEADERS));
        assert_eq!(read.stream, 0x7fff_fffe);
        assert_eq!(FrameHead::read(&bytes[..8]), None);
        // The reserved bit is ignored.
        assert_eq!(
            FrameHead::read(&head(0, DATA, 0, 0x8000_0001)).map(|head| head.stream),
            Some(1)
        );
    }

    #[test]
    fn an_end_alone_is_known_by_its_head() {
        assert!(is_empty_end(&head(0, DATA, END_STREAM, 3), 3));
        for (len, kind, flags, stream) in [
            (1, DATA, END_STREAM, 3),
            (0, DATA, 0, 3),
            (0, HEADERS, END_STREAM, 3),
            (0, DATA, END_STREAM, 5),
        ] {
            assert!(!is_empty_end(&head(len, kind, flags, stream), 3), "{len} {kind} {flags}");
        }
        assert!(!is_empty_end(&head(0, DATA, END_STREAM, 3)[..8], 3));
    }

    #[test]
    fn sizes_and_streams_are_judged_by_the_head() {
        let code = |kind, flags, stream, len| {
            FrameHead { len, kind, flags, stream }.check().err().map(|fault| fault.code)
        };
        let size = Some(ErrorCode::FRAME_SIZE_ERROR);
        let protocol = Some(ErrorCode::PROTOCOL_ERROR);
        for (kind, flags, stream, len, expected) in [
            (DATA, 0, 1, 16_384, None),
            (DATA, 0, 1, 16_385, size),
            (DATA, 0, 0, 1, protocol),
            (HEADERS, 0, 0, 1, protocol),
            (PRIORITY, 0, 1, 4, size),
            (PRIORITY, 0, 0, 5, protocol),
            (RST_STREAM, 0, 1, 5, size),
            (RST_STREAM, 0, 0, 4, protocol),
            (SETTINGS, 0, 0, 5, size),
            (SETTINGS, 0, 1, 6, protocol),
            (SETTINGS, ACK, 0, 6, size),
            (SETTINGS, ACK, 0, 0, None),
            (PING, 0, 0, 7, size),
            (PING, 0, 1, 8, protocol),
            (GOAWAY, 0, 0, 7, size),
            (GOAWAY, 0, 1, 8, protocol),
            (WINDOW_UPDATE, 0, 0, 3, size),
            (CONTINUATION, 0, 0, 0, protocol),
            (PRIORITY_UPDATE, 0, 1, 4, protocol),
            (PRIORITY_UPDATE, 0, 0, 3, size),
            (0xa, 0, 0, 7, None),
            (0xff, 0, 9, 16_385, size),
        ] {
            assert_eq!(code(kind, flags, stream, len), expected, "{kind} {flags} {stream} {len}");
        }
    }

    #[test]
    fn padding_is_taken_off() {
        let head = FrameHead { len: 0, kind: DATA, flags: PADDED, stream: 1 };
        assert_eq!(head.unpadded(&[2, b'a', b'b', 0, 0]), Ok(&b"ab"[..]));
        assert_eq!(head.unpadded(&[2, 0, 0]), Ok(&b""[..]));
        assert_eq!(head.unpadded(&[3, 0, 0]), Err(PADDING));
        assert_eq!(head.unpadded(&[]), Err(PADDING));
    }
}
