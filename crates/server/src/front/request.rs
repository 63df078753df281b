//! A request beside its parsed head: the body while it is read, dropped or sent back at once, and the first
//! line of bytes that may be anything.
//!
//! The session keeps a [`Body`] while one is under way, so an idle connection does not pay for it.

use pollux_engine::{Actions, Moment};
use pollux_http::{
    BodyReader, CHUNK_END, CHUNK_HEAD_BYTES_MAX, Framing, LAST_CHUNK, Limits, Method, Rejection,
    Request, Status, write_chunk_head,
};

use crate::body_clock::{BodyClock, BodyTime};
use crate::config;
use crate::config::FIELDS_BYTES_MAX;
use crate::front::kept::Kept;
use crate::handlers::answer::Persistence;
use crate::head::shared_fields::{Common, FieldContext};
use crate::record::Cut;

/// Room that the head of an echo takes at most.
pub(super) const ECHO_HEAD_BYTES_MAX: usize = 512 + FIELDS_BYTES_MAX;

/// Room that the head of an echo and the framing of its pieces take at most.
const OVERHEAD_BYTES_MAX: usize = ECHO_HEAD_BYTES_MAX;

/// A body under way, and the head of its request.
#[derive(Debug)]
pub(crate) struct Body {
    /// Kept for the answer and the log.
    pub(crate) head: Box<[u8]>,
    pub(crate) clock: BodyClock,
    pub(crate) received_bytes: u64,
    pub(crate) echo: Option<Echo>,
    /// Why the connection is cut in its middle.
    pub(crate) cut: Option<Cut>,
    pub(super) kept: Kept,
    /// How long it may take.
    pub(super) time: BodyTime,
    reader: BodyReader,
}

/// How long bodies may take by these settings.
pub(super) fn body_time(limits: &config::Limits) -> BodyTime {
    BodyTime { timeout: limits.body_timeout, rate_min_bytes: limits.body_rate_min_bytes }
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
    pub(crate) fn new(
        head: &[u8],
        framing: Framing,
        limits: &Limits,
        (began, time): (Moment, BodyTime),
    ) -> Self {
        let reader = BodyReader::new(framing, limits);
        let head = head.into();
        let clock = BodyClock::started(began);
        Self {
            head,
            clock,
            received_bytes: 0,
            echo: None,
            cut: None,
            kept: Kept::default(),
            time,
            reader,
        }
    }

    /// Has the body sent back while it is read.
    pub(crate) fn echoed(
        mut self,
        request: &Request<'_>,
        is_last: bool,
        asked: FieldContext,
    ) -> Self {
        let persistence = Persistence::for_client(request.version_minor, is_last);
        let framing = request.framing;
        self.echo = Some(Echo { framing, persistence, asked, is_last, has_begun: false });
        self
    }

    /// By when more of it has to come.
    pub(super) fn deadline(&self) -> Moment {
        self.clock.deadline(self.received_bytes, self.time)
    }

    /// What the head of an echo depends on.
    pub(crate) fn asked(&self) -> FieldContext {
        self.echo.as_ref().map_or_else(FieldContext::default, |echo| echo.asked)
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
                    echo.end(actions, common);
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

    fn end(&mut self, actions: &mut Actions<'_>, common: &Common) {
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
        let Self { framing, persistence, asked, .. } = *self;
        let head_bytes = write_echo_head(common, actions.spare(), framing, persistence, asked);
        actions.advance(head_bytes);
    }
}

/// Writes the head of an echo, framed as what it answers; says how long it is.
pub(super) fn write_echo_head(
    common: &Common,
    out: &mut [u8],
    framing: Framing,
    persistence: Persistence,
    asked: FieldContext,
) -> usize {
    let mut head = common.begin(out, Status::OK, asked);
    // A type that no browser renders: the bytes are the client's.
    head.field("Content-Type", b"application/octet-stream");
    match framing {
        Framing::Chunked => head.chunked(),
        Framing::Length(len_bytes) => head.content_length(len_bytes),
        Framing::None => head.content_length(0),
    };
    persistence.write(&mut head);
    head.finish().expect("the overhead was left free")
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

/// Whether this is something whole of another protocol that looks like HTTP: its first line has a word in the place of a
/// method, which is none that is known, and no version.
pub(crate) fn is_foreign(input: &[u8]) -> bool {
    let RequestLine { method, version, .. } = request_line(input);
    let is_other = !method.is_empty() && matches!(Method::named(method), Method::Other(_));
    is_other && version.is_empty() && input.ends_with(b"\r\n\r\n")
}

/// What a log says of the first line of a request.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct RequestLine<'h> {
    /// A token; empty where there is no request line.
    pub(crate) method: &'h str,
    /// As it was sent, whatever bytes it has.
    pub(crate) target: &'h [u8],
    /// As `1.1`; empty where none was sent.
    pub(crate) version: &'h str,
}

/// What a refused request has of a head: as far as whole lines came, up to the empty line. The rest may be anything.
pub(crate) fn refused_head<'h>(input: &'h [u8], limits: &Limits) -> &'h [u8] {
    let start = input.iter().position(|byte| !matches!(byte, b'\r' | b'\n'));
    let input = &input[start.unwrap_or(input.len())..];
    let input = &input[..input.len().min(limits.head_bytes)];
    let mut end = 0;
    for line in input.split_inclusive(|byte| *byte == b'\n') {
        let is_over = !line.ends_with(b"\n") || matches!(line, b"\n" | b"\r\n");
        if is_over && end > 0 {
            break;
        }
        end += line.len();
    }
    &input[..end]
}

/// The words of the first line of a head, or of what was refused as one; nothing where it has none.
pub(crate) fn request_line(head: &[u8]) -> RequestLine<'_> {
    let none = RequestLine::default();
    let line = head.trim_ascii_start().split(|byte| matches!(byte, b'\r' | b'\n')).next();
    let line = line.unwrap_or_default();
    let Some(end) = line.iter().position(|byte| *byte == b' ') else { return none };
    let method = &line[..end];
    let rest = &line[end + 1..];
    let method = str::from_utf8(method).unwrap_or_default();
    // The version is the last word: a target with a space in it is refused, and shown.
    let last = rest.iter().rposition(|byte| *byte == b' ').map(|at| (&rest[..at], &rest[at + 1..]));
    let (target, version) = match last {
        Some((target, [b'H', b'T', b'T', b'P', b'/', version @ ..])) => (target, version),
        _ => (rest, &b""[..]),
    };
    let is_version =
        matches!(version, [major, b'.', minor] if major.is_ascii_digit() && minor.is_ascii_digit());
    let version = str::from_utf8(version).ok().filter(|_| is_version).unwrap_or_default();
    if Method::is_name(method.as_bytes()) && !target.is_empty() {
        RequestLine { method, target, version }
    } else {
        none
    }
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
        let words = |head: &'static [u8]| {
            let RequestLine { method, target, version } = request_line(head);
            (method, target, version)
        };
        let line = b"\r\nGET /a?b HTTP/1.0\r\nHost: c\r\n\r\n";
        assert_eq!(words(line), ("GET", &b"/a?b"[..], "1.0"));
        assert_eq!(words(b"PUT / HTTP/1.1\r\n"), ("PUT", &b"/"[..], "1.1"));
        assert_eq!(words(b"FOO /\xff\x00 HTTP/2.0\n"), ("FOO", &b"/\xff\x00"[..], "2.0"));
        assert_eq!(words(b"GET /a b HTTP/1.1\r\n"), ("GET", &b"/a b"[..], "1.1"));
        assert_eq!(words(b"GET /a HTTP/1.1x\r\n"), ("GET", &b"/a"[..], ""));
        assert_eq!(words(b"GET /aa"), ("GET", &b"/aa"[..], ""));
        for none in
            [&b"\xff / HTTP/1.0\r\n"[..], b"", b"G\x00 / HTTP/1.1\r\n", b"\x16\x03\x01\0 a", b"GET"]
        {
            assert_eq!(request_line(none), RequestLine::default(), "{}", none.escape_ascii());
        }
    }

    #[test]
    fn of_refused_bytes_nothing_beyond_the_head_is_shown() {
        let of = |input: &'static [u8]| refused_head(input, &Limits::DEFAULT);
        let head = b"GET / HTTP/1.1\r\nA: b\r\n";
        assert_eq!(of(b"\r\nGET / HTTP/1.1\r\nA: b\r\n\r\nUser-Agent: no\r\n"), head);
        assert_eq!(of(b"GET / HTTP/1.1\r\nA: b\r\nUser-Ag"), head);
        assert_eq!((of(b"GET /aa"), of(b"\r\n")), (&b"GET /aa"[..], &b""[..]));
        let long = [b"GET /", &[b'a'; 100][..]].concat();
        let limits = Limits { head_bytes: 64, ..Limits::DEFAULT };
        assert_eq!(refused_head(&long, &limits).len(), 64);
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
