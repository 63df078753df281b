//! Request heads: from bytes to facts, or to a refusal with its rule.
//!
//! The server calls [`Request::parse`] with all bytes that wait on a connection. The verdict
//! depends on the bytes alone: whatever arrives behind a decided head changes nothing, and a head
//! that is refused once all of it is here was not accepted earlier in part. It is read from the
//! left, and the first wrong line decides, whether or not the rest has arrived.
//!
//! ```text
//!  empty lines ─► request line ─► target form ─► field lines ─► rules
//!   (bounded)     (request_line)   (target)      (fields)       framing, connection, host
//! ```

use crate::fields::{self, is_name, list};
use crate::framing::FramingFields;
use crate::request_line::{self, RequestLine, TARGET_LONG};
use crate::{Fields, Framing, Limits, Method, Rejection, Status, Target, target};

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
pub(crate) const HEAD_LARGE: Rejection =
    Rejection::new(Status::FIELDS_TOO_LARGE, "the head exceeds the limit", "RFC 6585 5");
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

    let Some(line) = request_line::parse(window, limits)? else {
        return if is_full { Err(&TARGET_LONG) } else { Ok(None) };
    };
    let target = Target::parse(line.target, line.method)?;
    let block = &window[line.len..];
    let fields_max = limits.fields.min(Limits::FIELDS_MAX);
    let mut facts = Facts::default();
    match fields::read(block, fields_max, |name, value| facts.note(name, value))? {
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
        let framing = self.framing.judge(line.minor, limits)?;
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
#[derive(Default)]
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
}
