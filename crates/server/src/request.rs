//! A request beside its parsed head: the body while it is read, dropped or sent back at once, and the first
//! line of bytes that may be anything.
//!
//! The session keeps a [`Body`] while one is under way, so an idle connection does not pay for it.

use pollux_engine::{Actions, Moment};
use pollux_http::{
    BodyReader, CHUNK_END, CHUNK_HEAD_BYTES_MAX, Framing, LAST_CHUNK, Limits, Rejection, Request,
    Status, write_chunk_head,
};

use crate::answer::Persistence;
use crate::common_fields::{Common, FieldContext};
use crate::config::FIELDS_BYTES_MAX;

/// Room that the head of an echo and the framing of its pieces take at most.
const OVERHEAD_BYTES_MAX: usize = 512 + FIELDS_BYTES_MAX;

/// A body under way, and the head of its request.
#[derive(Debug)]
pub(crate) struct Body {
    /// Kept for the answer and the log.
    pub(crate) head: Box<[u8]>,
    pub(crate) began: Moment,
    pub(crate) received_bytes: u64,
    pub(crate) echo: Option<Echo>,
    reader: BodyReader,
}

/// An answer that consists of the body.
#[derive(Debug)]
pub(crate) struct Echo {
    framing: Framing,
    persistence: Persistence,
    asked: FieldContext,
    /// Whether the connection ends with it, as its head says.
    pub(crate) is_last: bool,
    /// Whether its head was sent: from then on there is no other answer.
    pub(crate) has_begun: bool,
}

/// How far a body came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    NeedsMore,
    IsDone,
}

impl Body {
    pub(crate) fn new(head: &[u8], framing: Framing, limits: &Limits, began: Moment) -> Self {
        let reader = BodyReader::new(framing, limits);
        Self { head: head.into(), began, received_bytes: 0, echo: None, reader }
    }

    /// Has the body sent back while it is read.
    pub(crate) fn echoed(
        mut self,
        request: &Request<'_>,
        is_last: bool,
        asked: FieldContext,
    ) -> Self {
        let persistence = Persistence::of(request.version_minor, is_last);
        let framing = request.framing;
        self.echo = Some(Echo { framing, persistence, asked, is_last, has_begun: false });
        self
    }

    /// Whether an answer was begun that cannot be taken back.
    pub(crate) fn has_answer_begun(&self) -> bool {
        self.echo.as_ref().is_some_and(|echo| echo.has_begun)
    }

    /// Reads on, no further than the room for an echo goes; says how much input it used.
    ///
    /// # Errors
    /// What is wrong with the body.
    pub(crate) fn read(
        &mut self,
        actions: &mut Actions<'_>,
        common: &Common,
        input: &[u8],
    ) -> Result<(usize, Progress), Rejection> {
        if self.echo.as_ref().is_some_and(|echo| !echo.has_begun) {
            self.check(input)?;
        }
        let mut used = 0;
        while used < input.len() {
            let mut piece = &input[used..];
            if self.echo.is_some() {
                let Some(room) = actions.room().checked_sub(OVERHEAD_BYTES_MAX) else { break };
                piece = &piece[..piece.len().min(room)];
                if piece.is_empty() {
                    break;
                }
            }
            let step = self.reader.feed(piece)?;
            self.received_bytes += step.data.len() as u64;
            if let Some(echo) = &mut self.echo {
                echo.send(actions, common, &piece[step.data]);
            }
            used += step.consumed;
            if step.is_done {
                if let Some(echo) = &mut self.echo {
                    echo.finish(actions, common);
                }
                return Ok((used, Progress::IsDone));
            }
        }
        Ok((used, Progress::NeedsMore))
    }

    /// Reads ahead before an echo begins: a fault in what is here can still be answered.
    fn check(&self, input: &[u8]) -> Result<(), Rejection> {
        let mut reader = self.reader.clone();
        let mut used = 0;
        while used < input.len() && !reader.is_done() {
            used += reader.feed(&input[used..])?.consumed;
        }
        Ok(())
    }
}

impl Echo {
    fn send(&mut self, actions: &mut Actions<'_>, common: &Common, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        self.begin(actions, common);
        if self.framing != Framing::Chunked {
            actions.send(data);
            return;
        }
        let mut head = [0; CHUNK_HEAD_BYTES_MAX];
        let head_bytes = write_chunk_head(&mut head, data.len() as u64).expect("room for any");
        actions.send(&head[..head_bytes]);
        actions.send(data);
        actions.send(CHUNK_END);
    }

    fn finish(&mut self, actions: &mut Actions<'_>, common: &Common) {
        self.begin(actions, common);
        if self.framing == Framing::Chunked {
            actions.send(LAST_CHUNK);
        }
    }

    fn begin(&mut self, actions: &mut Actions<'_>, common: &Common) {
        if self.has_begun {
            return;
        }
        self.has_begun = true;
        let mut head = common.begin(actions.spare(), Status::OK, self.asked);
        // A type that no browser renders: the bytes are the client's.
        head.field("Content-Type", b"application/octet-stream");
        match self.framing {
            Framing::Chunked => head.chunked(),
            Framing::Length(len_bytes) => head.content_length(len_bytes),
            Framing::None => head.content_length(0),
        };
        self.persistence.write(&mut head);
        let head_bytes = head.finish().expect("the overhead was left free");
        actions.advance(head_bytes);
    }
}

/// Whether an answer to these bytes, sound or not, must come without a body.
pub(crate) fn is_head(request: &[u8]) -> bool {
    request.trim_ascii_start().starts_with(b"HEAD ")
}

/// Whether nothing but line ends has come.
pub(crate) fn is_blank(input: &[u8]) -> bool {
    input.iter().all(|byte| matches!(byte, b'\r' | b'\n'))
}

/// Whether this looks like the first record of TLS, a handshake.
pub(crate) fn is_tls(input: &[u8]) -> bool {
    input.starts_with(&[0x16, 0x03])
}

/// Method, target and whether it is HTTP/1.0, of a head that was parsed before; else nothing.
pub(crate) fn request_line(head: &[u8]) -> (&str, &str, bool) {
    let line = head.trim_ascii_start().split(|byte| *byte == b'\r').next().unwrap_or(b"");
    let mut words = str::from_utf8(line).unwrap_or("").split(' ');
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    (method, target, words.next() == Some("HTTP/1.0"))
}

/// The value of the first field of that name, of a head that was parsed before; else nothing.
pub(crate) fn field<'h>(head: &'h [u8], name: &str) -> &'h [u8] {
    let lines = head.split(|byte| *byte == b'\n');
    let value = lines.skip(1).find_map(|line| {
        let (own, value) = line.split_at_checked(name.len())?;
        let value = value.strip_prefix(b":")?;
        own.eq_ignore_ascii_case(name.as_bytes()).then(|| value.trim_ascii())
    });
    value.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bytes_that_start_a_head_request_are_one() {
        for (request, is_one) in [
            ("HEAD /", true),
            ("\r\nHEAD ", true),
            ("HEAD", false),
            ("HEADS /", false),
            ("", false),
        ] {
            assert_eq!(is_head(request.as_bytes()), is_one, "{request}");
        }
    }

    #[test]
    fn line_ends_alone_are_blank() {
        assert!(is_blank(b"\r\n\r") && is_blank(b""));
        assert!(!is_blank(b"\r\nG") && !is_blank(b" "));
    }

    #[test]
    fn the_line_is_taken_apart_whatever_it_is() {
        let line = b"\r\nGET /a?b HTTP/1.0\r\nHost: c\r\n\r\n";
        assert_eq!(request_line(line), ("GET", "/a?b", true));
        assert_eq!(request_line(b"PUT / HTTP/1.1\r\n"), ("PUT", "/", false));
        assert_eq!(request_line(b"\xff / HTTP/1.0\r\n"), ("", "", false));
        assert_eq!(request_line(b""), ("", "", false));
    }

    #[test]
    fn a_field_is_found_by_its_whole_name_in_any_case() {
        let head =
            b"GET / HTTP/1.1\r\nX-User-Agent: a\r\nuser-agent:  b c \r\nUser-Agent: d\r\n\r\n";
        assert_eq!(field(head, "user-agent"), b"b c");
        for name in ["referer", "user"] {
            assert_eq!((field(head, name), field(b"", name)), (&b""[..], &b""[..]));
        }
        assert_eq!(field(b"GET / HTTP/1.1\r\nA: \xff\r\n\r\n", "a"), b"\xff");
    }
}
