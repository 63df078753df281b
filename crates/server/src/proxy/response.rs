//! An answer's head for the client, written anew from the backend's.
//!
//! The upstream side calls it with a head that was found sound. How the answer ends is written by
//! the proxy: a length where one is known, chunks for clients that know them, else the end of the
//! connection.

use pollux_http::{DateCache, Method, RequestKind, Response, ResponseBody, Status};

use super::channel::Frame;
use crate::fields::{self, FieldRule, Kind};

/// What the head is written by, beside the answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context<'a> {
    pub(super) kind: RequestKind,
    /// The client speaks HTTP/1.`minor`.
    pub(super) minor: u8,
    /// No request may follow on the client's connection.
    pub(super) is_last: bool,
    pub(super) date: &'a DateCache,
    /// What is done to fields.
    pub(super) rules: &'a [FieldRule],
}

/// How the answer continues behind its head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BodyFraming {
    pub(super) frame: Frame,
    /// The client's connection ends with it.
    pub(super) is_last: bool,
}

/// Writes the head of a final answer behind what is in `out`. None when a coding stands before the
/// chunks: it was not asked for, and the client could not tell. Nothing is written then.
pub(super) fn write(
    out: &mut Vec<u8>,
    response: &Response<'_>,
    context: &Context<'_>,
) -> Option<BodyFraming> {
    let facts = &response.facts;
    let before = out.len();
    write_line(out, response);
    let fields_start = out.len();
    let written = write_fields(out, response, context.rules, false).or_else(|| {
        // Rare: some of those that were written have to go.
        out.truncate(fields_start);
        write_fields(out, response, context.rules, true)
    });
    let Seen { has_date, length, has_coding, is_ambiguous } = written.unwrap_or_default();
    if has_coding && facts.body != ResponseBody::None {
        out.truncate(before);
        return None;
    }
    fields::write_added(out, context.rules);
    if !has_date {
        fields::write(out, "Date", context.date.text());
    }
    let mut framing = BodyFraming { frame: Frame::Plain, is_last: context.is_last };
    match facts.body {
        // What GET would have had, or has (RFC 9110 8.6).
        ResponseBody::None => {
            let is_number =
                |len: &&[u8]| (1..20).contains(&len.len()) && len.iter().all(u8::is_ascii_digit);
            let is_allowed = allows_length(context.kind, facts.status.code());
            if let Some(len) = length.filter(is_number)
                && is_allowed
                && !is_ambiguous
            {
                fields::write(out, "Content-Length", len);
            }
        }
        ResponseBody::Length(len) => {
            out.extend_from_slice(b"Content-Length: ");
            fields::write_number(out, len);
            out.extend_from_slice(b"\r\n");
        }
        ResponseBody::Chunked | ResponseBody::UntilClose if context.minor > 0 => {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
            framing.frame = Frame::Chunks;
        }
        ResponseBody::Chunked | ResponseBody::UntilClose => framing.is_last = true,
    }
    if framing.is_last {
        out.extend_from_slice(b"Connection: close\r\n");
    } else if context.minor == 0 {
        out.extend_from_slice(b"Connection: keep-alive\r\n");
    }
    out.extend_from_slice(b"\r\n");
    Some(framing)
}

#[derive(Clone, Copy, Default)]
struct Seen<'b> {
    has_date: bool,
    length: Option<&'b [u8]>,
    /// A coding beside chunked.
    has_coding: bool,
    /// The length is not that of GET: a coding goes before it, or two differ (RFC 9112 6.3).
    is_ambiguous: bool,
}

/// Writes the fields that are passed on. None when Connection names some of them and `has_named` did
/// not say so.
fn write_fields<'b>(
    out: &mut Vec<u8>,
    response: &Response<'b>,
    rules: &[FieldRule],
    has_named: bool,
) -> Option<Seen<'b>> {
    let mut seen = Seen::default();
    for field in response.fields {
        match fields::kind(field.name) {
            Kind::EndToEnd if fields::drops(rules, field.name) => {}
            Kind::Connection if !has_named && fields::names_others(field.value) => return None,
            Kind::Connection | Kind::Dropped | Kind::Upgrade => {}
            Kind::Coding => {
                seen.is_ambiguous = true;
                seen.has_coding |= !field.value.eq_ignore_ascii_case(b"chunked");
            }
            Kind::Length => {
                let before = seen.length.replace(field.value);
                seen.is_ambiguous |= before.is_some_and(|before| before != field.value);
            }
            kind => {
                seen.has_date |= kind == Kind::Date;
                if !has_named || !fields::is_named(response.fields, field.name) {
                    fields::write(out, field.name, field.value);
                }
            }
        }
    }
    Some(seen)
}

/// Writes the head of an interim answer.
pub(super) fn write_interim(out: &mut Vec<u8>, response: &Response<'_>) {
    write_line(out, response);
    write_end_to_end(out, response);
    out.extend_from_slice(b"\r\n");
}

/// Writes the head of the answer that makes the connection a WebSocket; false when it is not what
/// was asked for.
pub(super) fn write_upgrade(out: &mut Vec<u8>, response: &Response<'_>) -> bool {
    let mut protocols = response.fields.all("upgrade").flat_map(fields::options);
    if !protocols.next().is_some_and(|protocol| protocol.eq_ignore_ascii_case(b"websocket")) {
        return false;
    }
    write_line(out, response);
    write_end_to_end(out, response);
    out.extend_from_slice(b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    true
}

fn write_end_to_end(out: &mut Vec<u8>, response: &Response<'_>) {
    for field in response.fields {
        let is_passed = matches!(fields::kind(field.name), Kind::EndToEnd | Kind::Date);
        if is_passed && !fields::is_named(response.fields, field.name) {
            fields::write(out, field.name, field.value);
        }
    }
}

fn write_line(out: &mut Vec<u8>, response: &Response<'_>) {
    if response.facts.status == Status::OK && response.reason == b"OK" {
        return out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    }
    out.extend_from_slice(b"HTTP/1.1 ");
    fields::write_number(out, response.facts.status.code().into());
    out.push(b' ');
    out.extend_from_slice(response.reason);
    out.extend_from_slice(b"\r\n");
}

fn allows_length(kind: RequestKind, status: u16) -> bool {
    status == 304 || (kind == RequestKind::Head && status >= 200 && status != 204)
}

/// Whether sent twice it does no more than once (RFC 9110 9.2.2).
pub(super) fn is_idempotent(method: Method<'_>) -> bool {
    matches!(
        method,
        Method::Get | Method::Head | Method::Options | Method::Put | Method::Delete | Method::Trace
    )
}
