//! Request heads: from bytes to facts, or to a refusal with its rule.
//!
//! The server calls [`Request::parse`] with all bytes that wait on a connection. The verdict
//! depends on the bytes alone: whatever arrives behind a decided head changes nothing, and a head
//! that is refused once all of it is here was not accepted earlier in part.
//!
//! ```text
//!  empty lines ─► request line ─► target form ─► field lines (httparse) ─► CRLF check ─► rules
//!   (bounded)     (request_line)   (target)                                 framing, connection,
//!                                                                           host
//! ```

use httparse::{EMPTY_HEADER, Header};

use crate::connection::ConnectionFields;
use crate::framing::FramingFields;
use crate::host;
use crate::request_line::{self, RequestLine, TARGET_LONG};
use crate::{Fields, Framing, Limits, Method, Rejection, Status, Target};

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
    /// Checked to be ASCII.
    host: Option<&'b [u8]>,
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

/// Field slots tried first: enough for most, and cheap to make.
const SLOTS_FEW: usize = 16;

const EMPTY_LINE: Rejection = Rejection::bad("a line end without its CR or LF", "RFC 9112 2.2");
const EMPTY_LINES: Rejection =
    Rejection::bad("too many empty lines before a request", "RFC 9112 2.2");
const HEAD_LARGE: Rejection =
    Rejection::new(Status::FIELDS_TOO_LARGE, "the head exceeds the limit", "RFC 6585 5");
const FIELDS_MANY: Rejection =
    Rejection::new(Status::FIELDS_TOO_LARGE, "more field lines than the limit", "RFC 6585 5");
const FIELD_NAME: Rejection = Rejection::bad(
    "a field line does not start with a token and a colon, or is folded",
    "RFC 9112 5",
);
const FIELD_VALUE: Rejection =
    Rejection::bad("a control byte or a bare CR in a field value", "RFC 9110 5.5");
const BARE_LF: Rejection = Rejection::bad("a line ends in LF without CR", "RFC 9112 2.2");
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
        self.target.authority().or_else(|| str::from_utf8(self.host?).ok())
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
    match read_fields::<SLOTS_FEW>(&window[line.len..], &line, target, limits)? {
        Some((request, len)) => Ok(Some((request, skipped + line.len + len))),
        None if is_full => Err(&HEAD_LARGE),
        None => Ok(None),
    }
}

/// How many bytes of empty lines stand in front; none when only those have arrived.
#[inline]
fn skip_empty_lines(input: &[u8]) -> Result<Option<usize>, &'static Rejection> {
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

/// Reads `block`, all that follows the request line, into a request and the bytes it took. Tries
/// `SLOTS` fields first, then as many as there may be.
#[inline(always)]
fn read_fields<'b, const SLOTS: usize>(
    block: &'b [u8],
    line: &RequestLine<'b>,
    target: Target<'b>,
    limits: &Limits,
) -> Result<Option<(Request<'b>, usize)>, &'static Rejection> {
    let fields_max = limits.fields.min(Limits::FIELDS_MAX);
    let mut slots = [EMPTY_HEADER; SLOTS];
    match httparse::parse_headers(block, &mut slots[..fields_max.min(SLOTS)]) {
        Ok(httparse::Status::Complete((len, headers))) => {
            judge(&block[..len], headers, line, target, limits).map(Some)
        }
        Ok(httparse::Status::Partial) => Ok(None),
        Err(httparse::Error::TooManyHeaders) if SLOTS < fields_max => {
            read_many_fields(block, line, target, limits)
        }
        Err(error) => Err(rejection_of(error)),
    }
}

#[cold]
#[inline(never)]
fn read_many_fields<'b>(
    block: &'b [u8],
    line: &RequestLine<'b>,
    target: Target<'b>,
    limits: &Limits,
) -> Result<Option<(Request<'b>, usize)>, &'static Rejection> {
    read_fields::<{ Limits::FIELDS_MAX }>(block, line, target, limits)
}

/// Turns the fields of a whole head into the request, when every rule is kept.
#[inline(always)]
fn judge<'b>(
    block: &'b [u8],
    headers: &[Header<'b>],
    line: &RequestLine<'b>,
    target: Target<'b>,
    limits: &Limits,
) -> Result<(Request<'b>, usize), &'static Rejection> {
    if !lines_end_in_crlf(block, headers) {
        return Err(&BARE_LF);
    }
    let facts = Facts::gather(headers)?;
    let framing = facts.framing.judge(line.minor, limits)?;
    let expects_continue = facts.connection.expects_continue(line.minor)?;
    let request = Request {
        method: line.method,
        target,
        version_minor: line.minor,
        fields: Fields::of_checked(&block[..block.len() - 2]),
        framing,
        keep_alive: facts.connection.keeps_alive(line.minor),
        expects_continue: expects_continue && framing.has_body(),
        host: sound_host(facts.host, line.minor)?,
    };
    Ok((request, block.len()))
}

/// What the fields say that every request is judged by.
#[derive(Default)]
struct Facts<'b> {
    host: Option<&'b [u8]>,
    framing: FramingFields,
    connection: ConnectionFields,
}

impl<'b> Facts<'b> {
    #[inline(always)]
    fn gather(headers: &[Header<'b>]) -> Result<Self, &'static Rejection> {
        let mut facts = Self::default();
        for Header { name, value } in headers {
            // The length tells most fields apart from these five before a byte is compared.
            match name.len() {
                4 if name.eq_ignore_ascii_case("host") => facts.note_host(value)?,
                6 if name.eq_ignore_ascii_case("expect") => facts.connection.note_expect(value),
                10 if name.eq_ignore_ascii_case("connection") => {
                    facts.connection.note_connection(value);
                }
                14 if name.eq_ignore_ascii_case("content-length") => {
                    facts.framing.note_length(value)?;
                }
                17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                    facts.framing.note_coding(value)?;
                }
                _ => {}
            }
        }
        Ok(facts)
    }

    fn note_host(&mut self, value: &'b [u8]) -> Result<(), &'static Rejection> {
        self.host.replace(value).map_or(Ok(()), |_| Err(&HOST_TWICE))
    }
}

#[inline(always)]
fn sound_host(host: Option<&[u8]>, minor: u8) -> Result<Option<&[u8]>, &'static Rejection> {
    match host {
        Some(value) if host::is_host_and_port(value) => Ok(host),
        Some(_) => Err(&HOST_INVALID),
        None if minor == 0 => Ok(None),
        None => Err(&HOST_MISSING),
    }
}

/// Whether every line of a block that httparse took whole ends in CRLF. It takes a bare LF for a
/// line end, too; but where its lines start is known from the names, and a CR can stand nowhere
/// else than before a LF.
#[inline(always)]
fn lines_end_in_crlf(block: &[u8], headers: &[Header<'_>]) -> bool {
    let start = block.as_ptr().addr();
    let starts_behind_crlf = |header: &Header<'_>| {
        let at = header.name.as_ptr().addr() - start;
        at == 0 || matches!(block[..at], [.., b'\r', b'\n'])
    };
    let ends_in_crlf = match block {
        [.., b'\r', b'\n', b'\r', b'\n'] => true,
        [b'\r', b'\n'] => headers.is_empty(),
        _ => false,
    };
    ends_in_crlf && headers.iter().all(starts_behind_crlf)
}

fn rejection_of(error: httparse::Error) -> &'static Rejection {
    match error {
        httparse::Error::TooManyHeaders => &FIELDS_MANY,
        httparse::Error::HeaderValue => &FIELD_VALUE,
        httparse::Error::NewLine => &EMPTY_LINE,
        _ => &FIELD_NAME,
    }
}
