//! The rules for fields (RFC 9113 8): a decoded block becomes the lines that HTTP/1.1 would have, in one form, so that all
//! that reads heads is there once.
//!
//! ```text
//!  :method :scheme :authority :path  ─►  GET /where HTTP/2.0
//!                                        host: authority
//!  name, value                       ─►  name: value
//!  cookie, cookie                    ─►  cookie: a; b
//!  CONNECT with :protocol websocket  ─►  GET /where HTTP/2.0 .. connection: upgrade, upgrade: websocket
//! ```
//!
//! A stream that is to become a WebSocket (RFC 8441) reads as the request that asks for one in HTTP/1.1; no other request can
//! say so, as fields of a connection are malformed.
//!
//! Nothing with a line end in it gets through, so no head can hold more lines than fields were sent. A head that
//! breaks a rule is *malformed*: its stream is reset, for another program might read it in another way. One that is sound
//! and more than the limits allow is *refused* and gets an answer.

use std::ops::Range;

use crate::fields::{self, FIELDS_MANY, is_token_byte, is_value_byte, run_len};
use crate::framing::FramingFields;
use crate::h2::hpack::decode::{BlockField, Strings};
use crate::h2::priority::Priority;
use crate::request::{ConnectionFields, HEAD_LARGE, METHOD_LONG, TARGET_LONG, is_target_byte};
use crate::{Framing, Limits, Method, Rejection, Status, target};

/// Room for what is decoded; the connections of a loop share one.
#[derive(Default, Debug)]
pub struct Scratch {
    pub(crate) strings: Strings,
    /// The pseudo fields, and the head behind them.
    pub(crate) text: Vec<u8>,
    cookies: Vec<u8>,
}

/// Which fields of a head, or of trailers, their sender has marked as never to be put into a table of HPACK: who passes them on
/// by HTTP/2 says the same (RFC 7541 6.2.3).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NeverIndexed(u64);

/// The last place that has a bit, which is for all that are behind; the bit above is that of the path.
const PLACE_LAST: usize = 62;
const PATH_BIT: u64 = 1 << 63;

impl NeverIndexed {
    /// Whether the field at this place is so, the first at 0, as the fields of the message are counted.
    #[must_use]
    pub fn has(self, place: usize) -> bool {
        (self.0 >> place.min(PLACE_LAST)) & 1 != 0
    }

    /// Whether the path of a request is.
    #[must_use]
    pub fn has_path(self) -> bool {
        self.0 & PATH_BIT != 0
    }

    fn add(&mut self, place: usize) {
        self.0 |= 1 << place.min(PLACE_LAST);
    }
}

/// Why a head is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// A rule of the protocol is broken.
    Malformed(&'static Rejection),
    /// It is sound, and not served.
    Refused(&'static Rejection),
}

/// What a sound request head says beside its lines.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct RequestFacts {
    /// Content-Length.
    pub(crate) length: Option<u64>,
    pub(crate) expects_continue: bool,
    /// It asks for a WebSocket: what follows on its stream is not a body.
    pub(crate) is_websocket: bool,
    /// What it says of its priority, where that can be read.
    pub(crate) priority: Option<Priority>,
    pub(crate) never_indexed: NeverIndexed,
}

const fn malformed(reason: &'static str, rfc: &'static str) -> Rejection {
    Rejection::bad(reason, rfc)
}

const NAME: Rejection = malformed("a field name is not a token in lower case", "RFC 9113 8.2.1");
const VALUE: Rejection = malformed(
    "a field value holds a control byte, or begins or ends with white space",
    "RFC 9113 8.2.1",
);
const OF_CONNECTION: Rejection =
    malformed("a field of HTTP/1 connections, such as Connection", "RFC 9113 8.2.2");
const TE: Rejection = malformed("TE says something else than trailers", "RFC 9113 8.2.2");
const PSEUDO_UNKNOWN: Rejection =
    malformed("a pseudo field that is not defined for this message", "RFC 9113 8.3");
const PSEUDO_LATE: Rejection = malformed("a pseudo field behind another field", "RFC 9113 8.3");
const PSEUDO_TWICE: Rejection = malformed("a pseudo field stands twice", "RFC 9113 8.3");
const PSEUDO_MISSING: Rejection =
    malformed(":method, :scheme or :path is missing", "RFC 9113 8.3.1");
const METHOD: Rejection = malformed(":method is not a token", "RFC 9113 8.3.1");
const SCHEME: Rejection = malformed(":scheme is not a scheme", "RFC 9113 8.3.1");
const SCHEME_OTHER: Rejection = malformed(":scheme is neither http nor https", "RFC 9110 4.2");
const PATH: Rejection = malformed(
    ":path is not visible ASCII without # that begins with / (or * for OPTIONS)",
    "RFC 9113 8.3.1",
);
const AUTHORITY: Rejection = malformed(":authority is not host[:port]", "RFC 9113 8.3.1");
const CONNECT: Rejection = malformed("CONNECT has :method and :authority alone", "RFC 9113 8.5");
const PROTOCOL: Rejection = malformed(
    ":protocol is a token, and stands with CONNECT, :scheme, :path and :authority, without Content-Length",
    "RFC 8441 4",
);
const PROTOCOL_OTHER: Rejection =
    Rejection::new(Status::NOT_IMPLEMENTED, ":protocol is another than websocket", "RFC 8441 5");
const HOST_TWICE: Rejection = malformed("more than one Host", "RFC 9110 7.2");
const HOST: Rejection = malformed("Host is not host[:port]", "RFC 9110 7.2");
const HOST_DIFFERS: Rejection =
    malformed("Host names another server than :authority", "RFC 9113 8.3.1");
const HOST_MISSING: Rejection = malformed("neither :authority nor Host", "RFC 9113 8.3.1");
pub(crate) const LENGTH: Rejection =
    malformed("Content-Length is not the length of the body", "RFC 9113 8.1.1");
const IN_TRAILERS: Rejection =
    malformed("trailers with a pseudo field, or one of framing or routing", "RFC 9113 8.1");
const STATUS: Rejection =
    malformed("there is not one :status of three digits, and nothing else", "RFC 9113 8.3.2");

/// Bytes of all fields as RFC 9113 6.5.2 counts them, in limits of a head: what is beyond is an attack.
const SUM_FACTOR: usize = 4;

/// So much is none under the smallest limits.
const SUM_FREE_BYTES: usize = 16 * 1024;

/// What no field of a message may be (RFC 9113 8.2).
fn check(field: BlockField<'_>) -> Result<(), &'static Rejection> {
    let BlockField { name, value, .. } = field;
    let len = run_len(name, fields::not_in_names, is_token_byte);
    if len < name.len() || name.is_empty() || name.iter().any(u8::is_ascii_uppercase) {
        return Err(&NAME);
    }
    check_value(value)?;
    match name.len() {
        2 if name == b"te" && !value.eq_ignore_ascii_case(b"trailers") => Err(&TE),
        7 if name == b"upgrade" => Err(&OF_CONNECTION),
        10 if name == b"connection" || name == b"keep-alive" => Err(&OF_CONNECTION),
        16 if name == b"proxy-connection" => Err(&OF_CONNECTION),
        17 if name == b"transfer-encoding" => Err(&OF_CONNECTION),
        _ => Ok(()),
    }
}

fn check_value(value: &[u8]) -> Result<(), &'static Rejection> {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let len = run_len(value, fields::not_text, is_value_byte);
    if len < value.len() || is_blank(value.first()) || is_blank(value.last()) {
        Err(&VALUE)
    } else {
        Ok(())
    }
}

/// Pseudo fields of a request, by their places.
const PSEUDO: [&[u8]; 5] = [b":method", b":scheme", b":authority", b":path", b":protocol"];
const PSEUDO_SCHEME: usize = 1;
const PSEUDO_AUTHORITY: usize = 2;
const PSEUDO_PATH: usize = 3;
const PSEUDO_PROTOCOL: usize = 4;

/// Lines under construction: what requests, answers and trailers have in common.
#[derive(Debug)]
struct Lines<'s> {
    text: &'s mut Vec<u8>,
    cookies: &'s mut Vec<u8>,
    /// Where the head begins in the text; the pseudo fields stand in front of it.
    head_at: usize,
    fields: usize,
    /// Lines behind the first one.
    lines: usize,
    never_indexed: NeverIndexed,
    is_cookie_never_indexed: bool,
    /// Bytes as RFC 9113 6.5.2 counts them.
    sum: usize,
    limits: Limits,
    wrong: Option<Verdict>,
}

impl<'s> Lines<'s> {
    fn new(text: &'s mut Vec<u8>, cookies: &'s mut Vec<u8>, limits: &Limits) -> Self {
        text.clear();
        cookies.clear();
        Self {
            text,
            cookies,
            head_at: 0,
            fields: 0,
            lines: 0,
            never_indexed: NeverIndexed::default(),
            is_cookie_never_indexed: false,
            sum: 0,
            limits: *limits,
            wrong: None,
        }
    }

    /// The first thing that is wrong counts.
    fn note(&mut self, wrong: Verdict) {
        self.wrong.get_or_insert(wrong);
    }

    fn count(&mut self, field: BlockField<'_>) {
        self.sum = self.sum.saturating_add(field.name.len() + field.value.len() + 32);
    }

    /// Whether so many more bytes are within the limit of a head.
    fn fits(&mut self, more: usize) -> bool {
        let len = self.text.len() - self.head_at + self.cookies.len() + more + 2;
        if len > self.limits.head_bytes {
            self.note(Verdict::Refused(&HEAD_LARGE));
        }
        self.wrong.is_none()
    }

    /// Adds a line, or joins a cookie with those before it (RFC 9113 8.2.3).
    fn add(&mut self, field: BlockField<'_>) {
        let BlockField { name, value, is_never_indexed } = field;
        if name == b"cookie" {
            self.is_cookie_never_indexed |= is_never_indexed;
            if self.fits(value.len() + 12) {
                if !self.cookies.is_empty() {
                    self.cookies.extend_from_slice(b"; ");
                }
                self.cookies.extend_from_slice(value);
            }
            return;
        }
        if self.fields == self.limits.fields {
            return self.note(Verdict::Refused(&FIELDS_MANY));
        }
        self.fields += 1;
        if self.fits(name.len() + value.len() + 4) {
            self.line(name, value, is_never_indexed);
        }
    }

    fn line(&mut self, name: &[u8], value: &[u8], is_never_indexed: bool) {
        self.note_line(is_never_indexed);
        for part in [name, b": ", value, b"\r\n"] {
            self.text.extend_from_slice(part);
        }
    }

    fn note_line(&mut self, is_never_indexed: bool) {
        if is_never_indexed {
            self.never_indexed.add(self.lines);
        }
        self.lines += 1;
    }

    /// Adds the empty line.
    fn end(&mut self) {
        if !self.cookies.is_empty() {
            self.note_line(self.is_cookie_never_indexed);
            self.text.extend_from_slice(b"cookie: ");
            self.text.extend_from_slice(self.cookies);
            self.text.extend_from_slice(b"\r\n");
        }
        self.text.extend_from_slice(b"\r\n");
    }

    /// Whether it is more than any limit explains.
    fn is_attack(&self) -> bool {
        self.sum > self.limits.head_bytes.saturating_mul(SUM_FACTOR).saturating_add(SUM_FREE_BYTES)
    }
}

/// Takes the fields of a request.
#[derive(Debug)]
pub(crate) struct RequestReader<'s> {
    lines: Lines<'s>,
    pseudo: [Option<Range<usize>>; PSEUDO.len()],
    /// One bit for each that is never indexed.
    pseudo_never_indexed: u8,
    has_begun: bool,
    has_host: bool,
    /// The settings say that a client may ask for a protocol.
    has_connect_protocol: bool,
    is_websocket: bool,
    framing: FramingFields,
    connection: ConnectionFields,
    priority: Option<Priority>,
}

impl<'s> RequestReader<'s> {
    pub(crate) fn new(
        scratch: &'s mut Scratch,
        limits: &Limits,
        has_connect_protocol: bool,
    ) -> (Self, &'s mut Strings) {
        let Scratch { strings, text, cookies } = scratch;
        let reader = Self {
            lines: Lines::new(text, cookies, limits),
            pseudo: Default::default(),
            pseudo_never_indexed: 0,
            has_begun: false,
            has_host: false,
            has_connect_protocol,
            is_websocket: false,
            framing: FramingFields::default(),
            connection: ConnectionFields::default(),
            priority: None,
        };
        (reader, strings)
    }

    pub(crate) fn take(&mut self, field: BlockField<'_>) {
        self.lines.count(field);
        if self.lines.wrong.is_some() {
            return;
        }
        let taken = match field.name.first() {
            Some(b':') => self.take_pseudo(field),
            _ => self.take_regular(field),
        };
        if let Err(wrong) = taken {
            self.lines.note(wrong);
        }
    }

    fn take_pseudo(&mut self, field: BlockField<'_>) -> Result<(), Verdict> {
        let wrong = |rejection| Err(Verdict::Malformed(rejection));
        let Some(place) = PSEUDO.iter().position(|name| *name == field.name) else {
            return wrong(&PSEUDO_UNKNOWN);
        };
        if place == PSEUDO_PROTOCOL && !self.has_connect_protocol {
            return wrong(&PSEUDO_UNKNOWN);
        }
        if self.has_begun {
            return wrong(&PSEUDO_LATE);
        }
        if self.pseudo[place].is_some() {
            return wrong(&PSEUDO_TWICE);
        }
        if self.lines.fits(field.value.len() + 16) {
            let at = self.lines.text.len();
            self.lines.text.extend_from_slice(field.value);
            self.pseudo[place] = Some(at..at + field.value.len());
            self.pseudo_never_indexed |= u8::from(field.is_never_indexed) << place;
        }
        Ok(())
    }

    fn take_regular(&mut self, field: BlockField<'_>) -> Result<(), Verdict> {
        check(field).map_err(Verdict::Malformed)?;
        self.begin()?;
        let BlockField { name, value, .. } = field;
        match name.len() {
            4 if name == b"host" => return self.take_host(field),
            6 if name == b"expect" => self.connection.note_expect(value),
            8 if name == b"priority" => {
                self.priority = Priority::parse(value, self.priority).or(self.priority);
            }
            14 if name == b"content-length" => {
                self.framing.note_length(value).map_err(Verdict::Malformed)?;
            }
            _ => {}
        }
        self.lines.add(field);
        Ok(())
    }

    fn take_host(&mut self, field: BlockField<'_>) -> Result<(), Verdict> {
        let value = field.value;
        if std::mem::replace(&mut self.has_host, true) {
            return Err(Verdict::Malformed(&HOST_TWICE));
        }
        if !target::is_host_and_port(value) {
            return Err(Verdict::Malformed(&HOST));
        }
        let Some(authority) = self.pseudo[PSEUDO_AUTHORITY].clone() else {
            if value.is_empty() {
                return Err(Verdict::Malformed(&HOST));
            }
            self.lines.add(field);
            return Ok(());
        };
        let scheme = self.pseudo[PSEUDO_SCHEME].clone().unwrap_or_default();
        let text = &self.lines.text;
        let port: &[u8] = if text[scheme].len() == 5 { b":443" } else { b":80" };
        let without = |host: &'_ [u8]| host.strip_suffix(port).map_or(host.len(), <[u8]>::len);
        let own = &value[..without(value)];
        let authority = &text[authority];
        if own.eq_ignore_ascii_case(&authority[..without(authority)]) {
            Ok(())
        } else {
            Err(Verdict::Malformed(&HOST_DIFFERS))
        }
    }

    /// Writes the request line and Host, once the pseudo fields are through.
    fn begin(&mut self) -> Result<(), Verdict> {
        if std::mem::replace(&mut self.has_begun, true) {
            return Ok(());
        }
        let wrong = |rejection| Err(Verdict::Malformed(rejection));
        let [method, scheme, authority, path, protocol] = self.pseudo.clone();
        let Some(method) = method else { return wrong(&PSEUDO_MISSING) };
        let text = &mut *self.lines.text;
        let name = &text[method.clone()];
        if name.is_empty() || !name.iter().all(|&byte| is_token_byte(byte)) {
            return wrong(&METHOD);
        }
        if name.len() > Method::BYTES_MAX {
            return Err(Verdict::Refused(&METHOD_LONG));
        }
        if let Some(authority) = &authority
            && (authority.is_empty() || !target::is_host_and_port(&text[authority.clone()]))
        {
            return wrong(&AUTHORITY);
        }
        let mut refused = None;
        if let Some(protocol) = protocol {
            let protocol = &text[protocol];
            let is_token = !protocol.is_empty() && protocol.iter().all(|&it| is_token_byte(it));
            let is_whole = scheme.is_some() && authority.is_some() && path.is_some();
            if name != b"CONNECT" || !is_token || !is_whole {
                return wrong(&PROTOCOL);
            }
            self.is_websocket = true;
            // The words for upgrades may have upper case (RFC 9110 7.8).
            if !protocol.eq_ignore_ascii_case(b"websocket") {
                refused = Some(&PROTOCOL_OTHER);
            }
        }
        let target = if name == b"CONNECT" && !self.is_websocket {
            match (scheme, &authority, path) {
                (None, Some(authority), None)
                    if target::has_host_and_port(&text[authority.clone()]) =>
                {
                    authority.clone()
                }
                _ => return wrong(&CONNECT),
            }
        } else {
            let (Some(scheme), Some(path)) = (scheme, path) else {
                return wrong(&PSEUDO_MISSING);
            };
            match check_scheme(&text[scheme]) {
                Err(Verdict::Refused(other)) => refused = refused.or(Some(other)),
                checked => checked?,
            }
            check_path(&text[path.clone()], name == b"OPTIONS")?;
            path
        };
        if target.len() > self.lines.limits.target_bytes {
            refused = refused.or(Some(&TARGET_LONG));
        }
        // What is refused is sound and gets an answer: the line says whether it has a body.
        self.lines.head_at = text.len();
        if self.is_websocket {
            text.extend_from_slice(b"GET");
        } else {
            text.extend_from_within(method);
        }
        text.push(b' ');
        text.extend_from_within(target);
        text.extend_from_slice(b" HTTP/2.0\r\n");
        if let Some(authority) = authority {
            text.extend_from_slice(b"host: ");
            text.extend_from_within(authority);
            text.extend_from_slice(b"\r\n");
            self.lines.note_line(self.pseudo_never_indexed & (1 << PSEUDO_AUTHORITY) != 0);
        }
        if self.pseudo_never_indexed & (1 << PSEUDO_PATH) != 0 {
            self.lines.never_indexed.0 |= PATH_BIT;
        }
        refused.map_or(Ok(()), |refused| Err(Verdict::Refused(refused)))
    }

    /// Where the head stands in the text, of one that has a first line, and what came of it. None for an attack.
    pub(crate) fn finish(mut self) -> Option<(Range<usize>, Result<RequestFacts, Verdict>)> {
        if self.lines.is_attack() {
            return None;
        }
        let verdict = self.judge();
        if self.lines.head_at == 0 {
            return Some((0..0, verdict));
        }
        if self.is_websocket {
            self.lines.line(b"connection", b"upgrade", false);
            self.lines.line(b"upgrade", b"websocket", false);
        }
        self.lines.end();
        let never_indexed = self.lines.never_indexed;
        let verdict = verdict.map(|facts| RequestFacts { never_indexed, ..facts });
        Some((self.lines.head_at..self.lines.text.len(), verdict))
    }

    fn judge(&mut self) -> Result<RequestFacts, Verdict> {
        let begun = self.begin();
        if let Some(wrong) = self.lines.wrong {
            // Its first line is for the log.
            return Err(wrong);
        }
        begun?;
        if self.pseudo[PSEUDO_AUTHORITY].is_none() && !self.has_host {
            return Err(Verdict::Malformed(&HOST_MISSING));
        }
        let expects_continue = self.connection.expects_continue(1).map_err(Verdict::Refused)?;
        let length = self.framing.length();
        let priority = self.priority;
        let is_websocket = self.is_websocket;
        if is_websocket && length.is_some() {
            return Err(Verdict::Malformed(&PROTOCOL));
        }
        let never_indexed = NeverIndexed::default();
        Ok(RequestFacts { length, expects_continue, is_websocket, priority, never_indexed })
    }
}

fn check_scheme(scheme: &[u8]) -> Result<(), Verdict> {
    if scheme.eq_ignore_ascii_case(b"http") || scheme.eq_ignore_ascii_case(b"https") {
        return Ok(());
    }
    let is_in_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    match scheme.first() {
        Some(first) if first.is_ascii_alphabetic() && scheme.iter().all(is_in_scheme) => {
            Err(Verdict::Refused(&SCHEME_OTHER))
        }
        _ => Err(Verdict::Malformed(&SCHEME)),
    }
}

fn check_path(path: &[u8], is_options: bool) -> Result<(), Verdict> {
    let is_path = path.first() == Some(&b'/') || (is_options && path == b"*");
    if is_path && path.iter().all(|&byte| is_target_byte(byte)) {
        Ok(())
    } else {
        Err(Verdict::Malformed(&PATH))
    }
}

impl RequestFacts {
    /// How the body is framed: one whose length was not said ends with its stream, as chunks would.
    pub(crate) fn framing(&self, ends: bool) -> Result<Framing, &'static Rejection> {
        if self.is_websocket {
            return Ok(Framing::None);
        }
        match (ends, self.length) {
            (true, None | Some(0)) => Ok(Framing::None),
            (true, Some(_)) => Err(&LENGTH),
            (false, Some(length)) => Ok(Framing::Length(length)),
            (false, None) => Ok(Framing::Chunked),
        }
    }
}

/// Takes the fields of an answer, whose head is written as one of HTTP/1.1.
#[derive(Debug)]
pub(crate) struct ResponseReader<'s> {
    lines: Lines<'s>,
    has_status: bool,
}

impl<'s> ResponseReader<'s> {
    pub(crate) fn new(scratch: &'s mut Scratch, limits: &Limits) -> (Self, &'s mut Strings) {
        let Scratch { strings, text, cookies } = scratch;
        (Self { lines: Lines::new(text, cookies, limits), has_status: false }, strings)
    }

    pub(crate) fn take(&mut self, field: BlockField<'_>) {
        self.lines.count(field);
        if self.lines.wrong.is_some() {
            return;
        }
        let BlockField { name, value, .. } = field;
        if name == b":status" && !self.has_status && self.lines.text.is_empty() {
            let is_status = matches!(value, [b'1'..=b'9', rest @ ..] if rest.len() == 2
                && rest.iter().all(u8::is_ascii_digit));
            if !is_status {
                return self.lines.note(Verdict::Malformed(&STATUS));
            }
            self.has_status = true;
            for part in [&b"HTTP/1.1 "[..], value, b" \r\n"] {
                self.lines.text.extend_from_slice(part);
            }
            return;
        }
        if name.first() == Some(&b':') || !self.has_status {
            return self.lines.note(Verdict::Malformed(&STATUS));
        }
        match check(field) {
            Ok(()) => self.lines.add(field),
            Err(rejection) => self.lines.note(Verdict::Malformed(rejection)),
        }
    }

    /// The end of the head in the text, and which fields are marked. None for an attack.
    pub(crate) fn finish(mut self) -> Option<Result<(usize, NeverIndexed), Verdict>> {
        if self.lines.is_attack() {
            return None;
        }
        let is_sound = self.has_status;
        self.lines.end();
        Some(match self.lines.wrong {
            Some(wrong) => Err(wrong),
            None if is_sound => Ok((self.lines.text.len(), self.lines.never_indexed)),
            None => Err(Verdict::Malformed(&STATUS)),
        })
    }
}

/// Takes the fields behind a body.
#[derive(Debug)]
pub(crate) struct TrailersReader<'s>(Lines<'s>);

impl<'s> TrailersReader<'s> {
    pub(crate) fn new(scratch: &'s mut Scratch, limits: &Limits) -> (Self, &'s mut Strings) {
        let Scratch { strings, text, cookies } = scratch;
        let limits = Limits { head_bytes: limits.trailer_bytes as usize, ..*limits };
        (Self(Lines::new(text, cookies, &limits)), strings)
    }

    pub(crate) fn take(&mut self, field: BlockField<'_>) {
        let lines = &mut self.0;
        lines.count(field);
        if lines.wrong.is_some() {
            return;
        }
        let name = field.name;
        let is_out_of_place =
            name.first() == Some(&b':') || matches!(name, b"content-length" | b"host" | b"te");
        match check(field) {
            _ if is_out_of_place => lines.note(Verdict::Malformed(&IN_TRAILERS)),
            Ok(()) => lines.add(field),
            Err(rejection) => lines.note(Verdict::Malformed(rejection)),
        }
    }

    /// The length of the lines, without an empty one, and which are marked. None for an attack.
    pub(crate) fn finish(mut self) -> Option<Result<(usize, NeverIndexed), Verdict>> {
        if self.0.is_attack() {
            return None;
        }
        self.0.end();
        Some(match self.0.wrong {
            Some(wrong) => Err(wrong),
            None => Ok((self.0.text.len() - 2, self.0.never_indexed)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_under(fields: &[(&str, &str)], limits: &Limits) -> Result<String, Verdict> {
        read_by(fields, limits, false)
    }

    fn read_by(
        fields: &[(&str, &str)],
        limits: &Limits,
        has_connect_protocol: bool,
    ) -> Result<String, Verdict> {
        let mut scratch = Scratch::default();
        let (mut reader, _) = RequestReader::new(&mut scratch, limits, has_connect_protocol);
        for (name, value) in fields {
            reader.take(BlockField::new(name.as_bytes(), value.as_bytes()));
        }
        let (head, verdict) = reader.finish().expect("no attack");
        verdict.map(|_| String::from_utf8_lossy(&scratch.text[head]).replace("\r\n", "|"))
    }

    fn read(fields: &[(&str, &str)]) -> Result<String, Verdict> {
        read_under(fields, &Limits::default())
    }

    const GET: [(&str, &str); 4] =
        [(":method", "GET"), (":scheme", "http"), (":path", "/a?b"), (":authority", "h:1")];

    fn with(fields: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
        GET.iter().chain(fields).copied().collect()
    }

    #[test]
    fn a_request_becomes_lines() {
        let fields = with(&[
            ("a", "b"),
            ("cookie", "x=1"),
            ("c", ""),
            ("cookie", "y=2"),
            ("te", "Trailers"),
        ]);
        let head = "GET /a?b HTTP/2.0|host: h:1|a: b|c: |te: Trailers|cookie: x=1; y=2||";
        assert_eq!(read(&fields).as_deref(), Ok(head));
        let reordered = [GET[2], GET[3], GET[1], GET[0]];
        assert_eq!(read(&reordered).as_deref(), Ok("GET /a?b HTTP/2.0|host: h:1||"));
        let host = [GET[0], GET[1], GET[2], ("host", "h")];
        assert_eq!(read(&host).as_deref(), Ok("GET /a?b HTTP/2.0|host: h||"));
        assert_eq!(read(&with(&[("host", "H:1")])).as_deref(), Ok("GET /a?b HTTP/2.0|host: h:1||"));
        let connect = [(":method", "CONNECT"), (":authority", "h:1")];
        assert_eq!(read(&connect).as_deref(), Ok("CONNECT h:1 HTTP/2.0|host: h:1||"));
        let options = [(":method", "OPTIONS"), GET[1], (":path", "*"), GET[3]];
        assert_eq!(read(&options).as_deref(), Ok("OPTIONS * HTTP/2.0|host: h:1||"));
    }

    #[test]
    fn a_stream_that_is_to_become_a_websocket_reads_as_the_request_for_one() {
        let connect = [
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "https"),
            (":path", "/chat?a"),
            (":authority", "h:1"),
            ("origin", "o"),
        ];
        let read = |fields: &[(&str, &str)]| read_by(fields, &Limits::default(), true);
        let head =
            "GET /chat?a HTTP/2.0|host: h:1|origin: o|connection: upgrade|upgrade: websocket||";
        assert_eq!(read(&connect).as_deref(), Ok(head));
        let with = |place: usize, value: &'static str| {
            let mut fields = connect;
            fields[place].1 = value;
            read(&fields)
        };
        assert_eq!(with(1, "WebSocket").as_deref(), Ok(head));
        for other in ["connect-udp", "h2c"] {
            assert_eq!(with(1, other), Err(Verdict::Refused(&PROTOCOL_OTHER)), "{other}");
        }
        for value in ["", "web socket", "websocket, h2c"] {
            assert_eq!(with(1, value), Err(Verdict::Malformed(&PROTOCOL)), "{value}");
        }
        assert_eq!(with(0, "GET"), Err(Verdict::Malformed(&PROTOCOL)));
        assert_eq!(with(3, "chat"), Err(Verdict::Malformed(&PATH)));
        for place in 2..5 {
            let mut fields = connect.to_vec();
            fields.remove(place);
            assert_eq!(read(&fields), Err(Verdict::Malformed(&PROTOCOL)), "{place}");
        }
        for (more, why) in [
            ((":protocol", "websocket"), &PSEUDO_TWICE),
            (("content-length", "0"), &PROTOCOL),
            (("upgrade", "websocket"), &OF_CONNECTION),
            (("connection", "upgrade"), &OF_CONNECTION),
        ] {
            let mut fields = connect.to_vec();
            fields.insert(5, more);
            assert_eq!(read(&fields), Err(Verdict::Malformed(why)), "{more:?}");
        }
        let late = [connect[0], connect[2], connect[3], connect[4], connect[5], connect[1]];
        // The fields before it were judged already.
        assert_eq!(read(&late), Err(Verdict::Malformed(&CONNECT)));
        // Who was not told that it may has no leave.
        assert_eq!(
            read_under(&connect, &Limits::default()),
            Err(Verdict::Malformed(&PSEUDO_UNKNOWN))
        );
        // What has no :protocol is as before.
        assert_eq!(
            read(&[connect[0], connect[2], connect[3], connect[4]]),
            Err(Verdict::Malformed(&CONNECT))
        );
        let plain = [connect[0], connect[4]];
        assert_eq!(read(&plain).as_deref(), Ok("CONNECT h:1 HTTP/2.0|host: h:1||"));
    }

    #[test]
    fn a_default_port_makes_no_difference_for_its_scheme() {
        let of = |scheme, authority, host| {
            read(&[GET[0], (":scheme", scheme), GET[2], (":authority", authority), ("host", host)])
        };
        assert!(of("http", "a", "A:80").is_ok() && of("https", "a:443", "a").is_ok());
        assert_eq!(of("http", "a", "a:443"), Err(Verdict::Malformed(&HOST_DIFFERS)));
        assert_eq!(of("https", "a", "b"), Err(Verdict::Malformed(&HOST_DIFFERS)));
    }

    /// The payloads that others have passed on (HTTP/2 to HTTP/1 smuggling, and what looks like it).
    #[test]
    fn payloads_are_malformed() {
        let mut payloads = vec![
            (with(&[("transfer-encoding", "chunked")]), &OF_CONNECTION),
            (with(&[("transfer-encoding", "identity")]), &OF_CONNECTION),
            (with(&[("connection", "")]), &OF_CONNECTION),
            (with(&[("keep-alive", "1")]), &OF_CONNECTION),
            (with(&[("proxy-connection", "x")]), &OF_CONNECTION),
            (with(&[("upgrade", "websocket")]), &OF_CONNECTION),
            (with(&[("te", "gzip")]), &TE),
            (with(&[("te", "trailers, deflate")]), &TE),
            (with(&[("a:b", "c")]), &NAME),
            (with(&[(":foo", "c")]), &PSEUDO_UNKNOWN),
            (with(&[(":status", "200")]), &PSEUDO_UNKNOWN),
            (with(&[(":protocol", "websocket")]), &PSEUDO_UNKNOWN),
            (with(&[("a", "b"), (":path", "/")]), &PSEUDO_LATE),
            (with(&[("host", "h:1"), ("host", "h:1")]), &HOST_TWICE),
            (with(&[("host", "a b")]), &HOST),
            (with(&[("host", "other")]), &HOST_DIFFERS),
            (GET[1..].to_vec(), &PSEUDO_MISSING),
            (vec![GET[0], GET[2], GET[3]], &PSEUDO_MISSING),
            (vec![GET[0], GET[1], GET[3]], &PSEUDO_MISSING),
            (GET[..3].to_vec(), &HOST_MISSING),
            (vec![(":method", "CONNECT"), GET[1], GET[2], GET[3]], &CONNECT),
            (vec![(":method", "CONNECT"), (":authority", "h")], &CONNECT),
            (vec![(":method", "GET"), GET[1], (":path", "*"), GET[3]], &PATH),
        ];
        for pseudo in GET {
            payloads.push((with(&[pseudo]), &PSEUDO_TWICE));
        }
        for value in
            ["\r\nx: y", "a\nb", "a\rb", "a\0", "\u{1}", "\u{7f}", " a", "a ", "\ta", "a\t"]
        {
            payloads.push((with(&[("a", value)]), &VALUE));
        }
        for name in ["", "A", "a b", "a ", "a\r\nb", "a\0", "\u{80}", "(", "transfer-encoding:"] {
            payloads.push((with(&[(name, "chunked")]), &NAME));
        }
        let of = |place: usize, value| {
            let mut fields = GET.to_vec();
            fields[place].1 = value;
            fields
        };
        for value in ["GET /x HTTP/1.1\r\nA: b", "GET x", "", "\u{e4}"] {
            payloads.push((of(0, value), &METHOD));
        }
        for value in ["http://evil/x?", "", "ht\r\ntp", "1a"] {
            payloads.push((of(1, value), &SCHEME));
        }
        for value in [
            "/ HTTP/1.1 x",
            "/\t",
            "/\r\n",
            "/\0",
            "/#",
            "/\u{80}",
            "http://evil/x",
            "index.html",
            "",
            "@evil/",
            ":80/",
        ] {
            payloads.push((of(2, value), &PATH));
        }
        for value in ["u@h", "h/x", "h h", "", ":80", "h:99999"] {
            payloads.push((of(3, value), &AUTHORITY));
        }
        for (fields, rejection) in payloads {
            assert_eq!(read(&fields), Err(Verdict::Malformed(rejection)), "{fields:?}");
        }
        for value in ["5, 5", "+5", "-5", "0x5", ""] {
            let read = read(&with(&[("content-length", value)]));
            assert!(matches!(read, Err(Verdict::Malformed(_))), "{value}");
        }
        let twice = with(&[("content-length", "5"), ("content-length", "5")]);
        assert!(matches!(read(&twice), Err(Verdict::Malformed(_))));
    }

    #[test]
    fn what_is_sound_and_not_served_is_refused() {
        let status = |read: Result<String, Verdict>| match read {
            Err(Verdict::Refused(rejection)) => rejection.status.code(),
            other => panic!("{other:?}"),
        };
        let limits = Limits { head_bytes: 100, target_bytes: 8, fields: 2, ..Limits::default() };
        let read = |fields: &[(&str, &str)]| status(read_under(fields, &limits));
        assert_eq!(read(&[GET[0], GET[1], (":path", "/12345678"), GET[3]]), 414);
        assert_eq!(read(&with(&[("a", "b"), ("a", "b"), ("a", "b")])), 431);
        let long = "x".repeat(80);
        assert_eq!(read(&[GET[0], GET[1], GET[2], GET[3], ("a", &long)]), 431);
        let crumbs = [("cookie", "abcdefghijklmnop"); 8];
        assert_eq!(read(&with(&crumbs)), 431);
        assert_eq!(read(&with(&[("expect", "x")])), 417);
        assert_eq!(read(&[GET[0], (":scheme", "ftp"), GET[2], GET[3]]), 400);
        let method = "M".repeat(33);
        assert_eq!(read(&[(":method", &method), GET[1], GET[2], GET[3]]), 501);
    }

    #[test]
    fn lengths_and_ends_agree() {
        let websocket = RequestFacts { is_websocket: true, ..RequestFacts::default() };
        assert_eq!([true, false].map(|ends| websocket.framing(ends)), [Ok(Framing::None); 2]);
        let facts = |length| RequestFacts { length, ..RequestFacts::default() };
        assert_eq!(facts(None).framing(true), Ok(Framing::None));
        assert_eq!(facts(Some(0)).framing(true), Ok(Framing::None));
        assert_eq!(facts(Some(5)).framing(true), Err(&LENGTH));
        assert_eq!(facts(Some(5)).framing(false), Ok(Framing::Length(5)));
        assert_eq!(facts(None).framing(false), Ok(Framing::Chunked));
    }

    #[test]
    fn far_beyond_the_limit_is_an_attack() {
        let limits = Limits { head_bytes: 100, ..Limits::default() };
        let mut scratch = Scratch::default();
        let (mut reader, _) = RequestReader::new(&mut scratch, &limits, false);
        for _ in 0..1000 {
            reader.take(BlockField::new(b"cookie", b""));
        }
        assert!(reader.finish().is_none());
    }

    #[test]
    fn trailers_have_no_pseudo_fields_and_frame_nothing() {
        let read = |name: &str| {
            let mut scratch = Scratch::default();
            let (mut reader, _) = TrailersReader::new(&mut scratch, &Limits::default());
            reader.take(BlockField::new(name.as_bytes(), b"trailers"));
            reader.finish().expect("no attack").map(|(len, _)| scratch.text[..len].to_vec())
        };
        assert_eq!(read("grpc-status"), Ok(b"grpc-status: trailers\r\n".to_vec()));
        for name in [":path", ":status", "content-length", "transfer-encoding", "host", "te", "A"] {
            assert!(matches!(read(name), Err(Verdict::Malformed(_))), "{name}");
        }
    }

    #[test]
    fn answers_have_one_status_in_front() {
        let read = |fields: &[(&str, &str)]| {
            let mut scratch = Scratch::default();
            let (mut reader, _) = ResponseReader::new(&mut scratch, &Limits::default());
            for (name, value) in fields {
                reader.take(BlockField::new(name.as_bytes(), value.as_bytes()));
            }
            let read = reader.finish().expect("no attack");
            read.map(|(len, _)| String::from_utf8_lossy(&scratch.text[..len]).replace("\r\n", "|"))
        };
        let sound = read(&[(":status", "200"), ("a", "b")]);
        assert_eq!(sound.as_deref(), Ok("HTTP/1.1 200 |a: b||"));
        for fields in [
            &[][..],
            &[("a", "b")],
            &[("a", "b"), (":status", "200")],
            &[(":status", "200"), (":status", "200")],
            &[(":status", "2x0")],
            &[(":status", "020")],
            &[(":status", "2000")],
            &[(":status", "200"), (":path", "/")],
            &[(":status", "200"), ("connection", "close")],
            &[(":status", "200"), ("A", "b")],
        ] {
            assert!(matches!(read(fields), Err(Verdict::Malformed(_))), "{fields:?}");
        }
    }
}
