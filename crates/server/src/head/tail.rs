//! What the one hop that a message leaves by adds to its head: how long the body is, what becomes of the connection, and the
//! empty line. The head before it goes from end to end.

use pollux_http::{Framing, Method, Request, ResponseBody};

use crate::head::Version;

/// Longest tail: a length of 20 digits before "Connection: keep-alive" and the empty line.
pub(crate) const TAIL_BYTES_MAX: usize = 64;

/// How the end of a body is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Length {
    /// There is no body, or the connection ends with it.
    #[default]
    Unsaid,
    Bytes(u64),
    Chunks,
}

/// What the head says of its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Hop {
    #[default]
    Unsaid,
    Close,
    KeepAlive,
    /// It continues with the WebSocket protocol.
    Upgrade,
    /// There is none to say anything of: the message has a stream, which ends with it.
    Stream,
}

/// What it says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct HopFields {
    pub(crate) length: Length,
    pub(crate) hop: Hop,
    pub(crate) expects_continue: bool,
}

impl HopFields {
    /// Of a request to a backend.
    pub(crate) fn of_request(request: &Request<'_>, version: Version, wants_upgrade: bool) -> Self {
        let has_use_for_body = matches!(request.method, Method::Post | Method::Put | Method::Patch);
        let length = match request.framing {
            // A stream that ends with its head says so where a length would have to stand (RFC 9110 8.6).
            Framing::None if version == Version::Http2 && has_use_for_body => Length::Bytes(0),
            Framing::None => Length::Unsaid,
            Framing::Length(len) => Length::Bytes(len),
            Framing::Chunked => Length::Chunks,
        };
        let hop = if wants_upgrade { Hop::Upgrade } else { Hop::Unsaid };
        Self { length, hop, expects_continue: request.expects_continue }
    }

    /// The same where it leaves by a stream, whose end is that of the body.
    pub(crate) fn on_stream(self) -> Self {
        let length = if self.length == Length::Chunks { Length::Unsaid } else { self.length };
        Self { length, hop: Hop::Stream, ..self }
    }

    /// Of an answer to a client of this version, after which its connection ends or does not. Who knows no chunks finds the
    /// end of a body by that of the connection, or of the stream.
    #[inline]
    pub(crate) fn of_answer(body: ResponseBody, version: Version, is_last: bool) -> Self {
        let (length, is_last) = match (body, version) {
            (ResponseBody::None, _) => (Length::Unsaid, is_last),
            (ResponseBody::Length(len), _) => (Length::Bytes(len), is_last),
            (_, Version::Http11) => (Length::Chunks, is_last),
            (_, Version::Http10) => (Length::Unsaid, true),
            (_, Version::Http2) => (Length::Unsaid, is_last),
        };
        let hop = match (is_last, version) {
            (_, Version::Http2) => Hop::Stream,
            (true, _) => Hop::Close,
            (false, Version::Http10) => Hop::KeepAlive,
            (false, Version::Http11) => Hop::Unsaid,
        };
        Self { length, hop, expects_continue: false }
    }

    /// Of the answer which makes the connection a WebSocket.
    pub(crate) const UPGRADE: Self =
        Self { length: Length::Unsaid, hop: Hop::Upgrade, expects_continue: false };
}

/// The tail of a head as text, with the empty line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadTail {
    /// More than is used, so that it is copied in one piece.
    text: [u8; TAIL_BYTES_MAX],
    len: u8,
    /// The body follows in chunks.
    pub(crate) is_chunked: bool,
    /// It leaves by a stream, whose end is that of the message.
    pub(crate) is_of_stream: bool,
}

impl Default for HeadTail {
    /// That of [`HopFields::default`].
    fn default() -> Self {
        Self::NONE
    }
}

impl HeadTail {
    /// The empty line alone.
    pub(crate) const NONE: Self = {
        let mut text = [0; TAIL_BYTES_MAX];
        (text[0], text[1]) = (b'\r', b'\n');
        Self { text, len: 2, is_chunked: false, is_of_stream: false }
    };

    /// The same of a message that leaves by a stream.
    pub(crate) const STREAM: Self = Self { is_of_stream: true, ..Self::NONE };

    pub(crate) fn of(fields: HopFields) -> Self {
        if fields == HopFields::default() {
            return Self::NONE;
        }
        let mut tail = Self {
            text: [0; TAIL_BYTES_MAX],
            len: 0,
            is_chunked: fields.length == Length::Chunks,
            is_of_stream: fields.hop == Hop::Stream,
        };
        match fields.length {
            Length::Unsaid => {}
            Length::Bytes(bytes) => {
                tail.add(b"Content-Length: ");
                tail.add(decimal(&mut [0; 20], bytes));
                tail.add(b"\r\n");
            }
            Length::Chunks => tail.add(b"Transfer-Encoding: chunked\r\n"),
        }
        match fields.hop {
            Hop::Unsaid | Hop::Stream => {}
            Hop::Close => tail.add(b"Connection: close\r\n"),
            Hop::KeepAlive => tail.add(b"Connection: keep-alive\r\n"),
            Hop::Upgrade => tail.add(b"Connection: upgrade\r\nUpgrade: websocket\r\n"),
        }
        if fields.expects_continue {
            tail.add(b"Expect: 100-continue\r\n");
        }
        tail.add(b"\r\n");
        tail
    }

    fn add(&mut self, bytes: &[u8]) {
        let len = usize::from(self.len);
        self.text[len..len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len() as u8;
    }

    /// Its lines, with the empty one.
    pub(crate) fn text(&self) -> &[u8] {
        &self.text[..self.len.into()]
    }

    /// Writes it to the front of `out`, at least as long as the longest; says how long it is.
    #[inline]
    pub(crate) fn write(&self, out: &mut [u8]) -> usize {
        out[..TAIL_BYTES_MAX].copy_from_slice(&self.text);
        self.len.into()
    }
}

/// The digits of a number.
#[inline]
fn decimal(digits: &mut [u8; 20], mut number: u64) -> &[u8] {
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[start..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_says_the_length_and_then_what_becomes_of_the_connection() {
        use ResponseBody::{Chunked, Length as Bytes, None, UntilClose};
        use Version::{Http2, Http10, Http11};
        let answer = HopFields::of_answer;
        let request =
            |length, expects_continue| HopFields { length, hop: Hop::Unsaid, expects_continue };
        let most = "Content-Length: 18446744073709551615\r\n";
        let table = [
            (HopFields::default(), String::new()),
            (HopFields::UPGRADE, "Connection: upgrade\r\nUpgrade: websocket\r\n".to_owned()),
            (answer(None, Http11, false), String::new()),
            (answer(None, Http10, false), "Connection: keep-alive\r\n".to_owned()),
            (
                answer(Bytes(0), Http11, true),
                "Content-Length: 0\r\nConnection: close\r\n".to_owned(),
            ),
            (answer(Bytes(u64::MAX), Http10, false), format!("{most}Connection: keep-alive\r\n")),
            (answer(Chunked, Http11, false), "Transfer-Encoding: chunked\r\n".to_owned()),
            (answer(UntilClose, Http11, false), "Transfer-Encoding: chunked\r\n".to_owned()),
            (answer(Chunked, Http10, false), "Connection: close\r\n".to_owned()),
            (answer(UntilClose, Http10, false), "Connection: close\r\n".to_owned()),
            (answer(None, Http2, true), String::new()),
            (answer(Bytes(7), Http2, true), "Content-Length: 7\r\n".to_owned()),
            (answer(Chunked, Http2, false), String::new()),
            (answer(UntilClose, Http2, false), String::new()),
            (request(Length::Bytes(u64::MAX), true), format!("{most}Expect: 100-continue\r\n")),
            (request(Length::Chunks, false), "Transfer-Encoding: chunked\r\n".to_owned()),
            (request(Length::Chunks, true).on_stream(), "Expect: 100-continue\r\n".to_owned()),
            (request(Length::Bytes(7), false).on_stream(), "Content-Length: 7\r\n".to_owned()),
        ];
        for (fields, expected) in table {
            let mut out = [0; TAIL_BYTES_MAX];
            let len = HeadTail::of(fields).write(&mut out);
            assert_eq!(str::from_utf8(&out[..len]), Ok(&*format!("{expected}\r\n")), "{fields:?}");
        }
        let mut out = [0; TAIL_BYTES_MAX];
        let len = HeadTail::NONE.write(&mut out);
        assert_eq!(out[..len], *b"\r\n");
    }
}
