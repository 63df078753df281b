//! Response heads: from bytes to facts, or to a refusal with its rule. The mirror of the requests.
//!
//! The load generator and the proxy call [`Response::parse`] with all bytes that wait on a
//! connection. As with requests the verdict depends on the bytes alone, and the first wrong line
//! decides; only the fields of the framing are judged together when all of them are there.
//!
//! Where RFC 9112 lets a recipient repair or refuse, this refuses: a bare CR or LF, a NUL, an
//! empty line in front, white space before a colon. A folded line, too: a gateway may answer 502
//! for it (5.2), and though a browser has to take it for a space, it has not been sent for decades
//! and a value with line ends inside must not be handed on.

use crate::connection::ConnectionFields;
use crate::field_lines;
use crate::fields::is_name;
use crate::request::HEAD_LARGE;
use crate::response_framing::ResponseFraming;
use crate::status_line::{self, StatusLine};
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

    let Some(line) = status_line::parse(window)? else { return missing() };
    let block = &window[line.len..];
    let fields_max = limits.fields.min(Limits::FIELDS_MAX);
    let mut noted = Noted::default();
    let note = |name: &[u8], value: &[u8]| {
        noted.note(name, value);
        Ok(())
    };
    let Some(len) = field_lines::read(block, fields_max, note)? else { return missing() };
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
        let body = self.framing.judge(line.status, to, line.minor, limits)?;
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
