//! Heads, written anew by the rules of `fields.rs`: a request's for the backend, an answer's for the client.
//!
//! Both sides of an exchange call it with a head that was found sound. What frames a request, where it goes and
//! which client asked is written by the proxy. How an answer ends is as well: a length where one is known,
//! chunks for clients that know them, else the end of the connection. All other fields follow in order, one
//! line each.

use pollux_http::{DateCache, Form, Method, Request, RequestKind, Response, ResponseBody, Status};
use pollux_tls::ClientIdentity;

use crate::config::Forwarding;
use crate::fields;
use crate::fields::{FieldRule, Kind, Named};
use crate::head::Version;
use crate::head::rules::Applying;
use crate::head::sets::{CLIENT_CERT, CLIENT_SHA256, CLIENT_SUBJECT, USER};
use crate::head::websocket::{self, Accept};
use crate::route::rewrite::Rewrite;
use crate::sticky::{NewCookie, StickyCookie};

/// What the head is written by, beside the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestContext<'a> {
    /// The client's address without its port; empty on a unix socket.
    pub(crate) peer: &'a str,
    /// What the client speaks.
    pub(crate) version: Version,
    /// What Host says: the authority that the request is for, or the backend.
    pub(crate) host: &'a str,
    /// Whether the client speaks TLS.
    pub(crate) is_secure: bool,
    pub(crate) x_forwarded: Forwarding,
    pub(crate) forwarded: Forwarding,
    /// What is done to other fields.
    pub(crate) rules: &'a [FieldRule],
    /// What is left of Max-Forwards, where it counts.
    pub(crate) max_forwards: Option<u64>,
    /// Path and query, where a route has made another one of them.
    pub(crate) target: Option<&'a [u8]>,
    /// Who asks, for a backend that is to get it; empty for nobody.
    pub(crate) user: &'a str,
    /// Whether its client has shown a certificate that was asked for, and whose; none where its site asks for none.
    pub(crate) client: Option<Option<&'a ClientIdentity>>,
    /// What that has taken away from the beginning of the path; empty for nothing.
    pub(crate) prefix: &'a str,
    /// The cookie that the backend does not see.
    pub(crate) cookie: Option<&'a StickyCookie>,
    /// The backend gets it by a stream.
    pub(crate) is_by_stream: bool,
}

/// Writes the head of a request behind what is in `out`, but for what its connection adds; says whether it asks to continue
/// with the WebSocket protocol.
pub(crate) fn write_request(
    out: &mut Vec<u8>,
    request: &Request<'_>,
    context: &RequestContext<'_>,
) -> bool {
    write_request_line(out, request, context.target);
    let host = fields::host_of(context.rules).unwrap_or(context.host);
    fields::write(out, "Host", host.as_bytes());
    let fields_start = out.len();
    let seen = write_request_fields(out, request, context, None).unwrap_or_else(|| {
        // Rare: some of those that were written have to go.
        out.truncate(fields_start);
        let named = Named::in_fields(request.fields);
        write_request_fields(out, request, context, Some(&named)).unwrap_or_default()
    });
    if let Some(left) = context.max_forwards {
        out.extend_from_slice(b"Max-Forwards: ");
        fields::write_number(out, left);
        out.extend_from_slice(b"\r\n");
    }
    fields::write_added(out, context.rules);
    if context.x_forwarded.writes() {
        write_x_forwarded(out, request, context, seen);
    }
    if context.forwarded.writes() {
        write_forwarded(out, request, context, seen);
    }
    if !context.user.is_empty() {
        fields::write(out, USER, context.user.as_bytes());
    }
    if let Some(client) = context.client {
        write_client(out, client);
    }
    if context.writes_prefix() {
        fields::write(out, PREFIX, context.prefix.as_bytes());
    }
    out.extend_from_slice(match context.version {
        Version::Http10 => b"Via: 1.0 pollux\r\n",
        Version::Http11 => b"Via: 1.1 pollux\r\n",
        Version::Http2 => b"Via: 2.0 pollux\r\n",
    });
    seen.upgrade && wants_upgrade(request)
}

/// Writes what is known of a client that was asked for a certificate.
#[cold]
fn write_client(out: &mut Vec<u8>, client: Option<&ClientIdentity>) {
    match client {
        None => fields::write(out, CLIENT_CERT, b"none"),
        Some(ClientIdentity { subject, sha256 }) => {
            fields::write(out, CLIENT_CERT, b"verified");
            fields::write(out, CLIENT_SUBJECT, subject.as_bytes());
            fields::write(out, CLIENT_SHA256, sha256.as_bytes());
        }
    }
}

#[derive(Clone, Copy, Default)]
struct SeenInRequest {
    forwarded_for: bool,
    forwarded_other: bool,
    forwarded: bool,
    upgrade: bool,
    te: bool,
}

/// Tells a backend what of the path it was not sent, for the links that it makes.
const PREFIX: &str = "X-Forwarded-Prefix";

impl RequestContext<'_> {
    /// Whether the backend gets a prefix; what the client says of one is dropped then.
    fn writes_prefix(&self) -> bool {
        !self.prefix.is_empty() && self.x_forwarded.writes() && !fields::drops(self.rules, PREFIX)
    }
}

fn write_request_line(out: &mut Vec<u8>, request: &Request<'_>, target: Option<&[u8]>) {
    out.extend_from_slice(request.method.name().as_bytes());
    out.push(b' ');
    if let Some(target) = target {
        out.extend_from_slice(target);
        return out.extend_from_slice(b" HTTP/1.1\r\n");
    }
    let target = request.target.path_and_query().unwrap_or_default();
    match request.target.form() {
        // OPTIONS of a whole server, asked through a proxy (RFC 9112 3.2.4).
        Form::Absolute if request.method == Method::Options && target.is_empty() => out.push(b'*'),
        Form::Asterisk => out.push(b'*'),
        _ => {
            if target.first() != Some(&b'/') {
                out.push(b'/');
            }
            out.extend_from_slice(target);
        }
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
}

/// Writes the fields that are passed on. None when Connection names some of them and `named` was not
/// given.
fn write_request_fields(
    out: &mut Vec<u8>,
    request: &Request<'_>,
    context: &RequestContext<'_>,
    named: Option<&Named>,
) -> Option<SeenInRequest> {
    let mut seen = SeenInRequest::default();
    let is_stream = context.version == Version::Http2;
    let has_stream = is_stream || context.is_by_stream;
    for field in request.fields {
        let kind = match fields::kind(field.name) {
            Kind::ForwardedFor | Kind::ForwardedOther
                if context.x_forwarded == Forwarding::Keep =>
            {
                Kind::EndToEnd
            }
            Kind::Forwarded if context.forwarded == Forwarding::Keep => Kind::EndToEnd,
            Kind::ClaimsClient if !context.x_forwarded.believes() => Kind::Dropped,
            Kind::ClaimsClient if context.writes_prefix() && field.is(PREFIX) => Kind::Dropped,
            Kind::ClaimsClient => Kind::EndToEnd,
            // HTTP/2 has none: that of a connection on the other side is made, or answered, here.
            Kind::EndToEnd if has_stream && field.is(websocket::KEY) => Kind::Dropped,
            kind => kind,
        };
        match kind {
            Kind::EndToEnd if fields::drops(context.rules, field.name) => {}
            Kind::EndToEnd | Kind::Date if named.is_some_and(|named| named.has(field.name)) => {}
            Kind::EndToEnd if context.cookie.is_some() && field.is("cookie") => {
                let cookie = context.cookie.expect("there is one");
                cookie.write_others(out, field.name, field.value);
            }
            Kind::EndToEnd | Kind::Date => fields::write(out, field.name, field.value),
            Kind::Connection if named.is_none() && fields::names_others(field.value) => {
                return None;
            }
            Kind::ForwardedFor => seen.forwarded_for = true,
            Kind::ForwardedOther => seen.forwarded_other = true,
            Kind::Forwarded => seen.forwarded = true,
            Kind::Upgrade => seen.upgrade |= is_websocket(field.value),
            // Of HTTP/2 it can say nothing else than that trailers are taken. It is about one connection, which has to be said
            // (RFC 9110 10.1.4).
            Kind::Te if is_stream && !seen.te => {
                seen.te = true;
                out.extend_from_slice(b"TE: trailers\r\nConnection: te\r\n");
            }
            // It counts for two methods only; for others it is passed on (RFC 9110 7.6.2).
            Kind::MaxForwards if context.max_forwards.is_none() => {
                fields::write(out, field.name, field.value);
            }
            _ => {}
        }
    }
    Some(seen)
}

/// WebSocket is the one protocol that connections are handed over to; h2c would carry requests
/// past the proxy.
fn is_websocket(value: &[u8]) -> bool {
    fields::options(value).any(|protocol| protocol.eq_ignore_ascii_case(b"websocket"))
}

fn wants_upgrade(request: &Request<'_>) -> bool {
    let says_so = request
        .fields
        .all("connection")
        .any(|value| fields::options(value).any(|option| option.eq_ignore_ascii_case(b"upgrade")));
    says_so && request.version_minor > 0 && !request.framing.has_body()
}

fn scheme(context: &RequestContext<'_>) -> &'static str {
    if context.is_secure { "https" } else { "http" }
}

/// Writes the values of the fields of this name, each with a comma behind it.
fn write_said(out: &mut Vec<u8>, request: &Request<'_>, name: &str) {
    for value in request.fields.all(name).filter(|value| !value.is_empty()) {
        out.extend_from_slice(value);
        out.extend_from_slice(b", ");
    }
}

fn write_x_forwarded(
    out: &mut Vec<u8>,
    request: &Request<'_>,
    context: &RequestContext<'_>,
    seen: SeenInRequest,
) {
    let adds = context.x_forwarded == Forwarding::Add;
    out.extend_from_slice(b"X-Forwarded-For: ");
    if seen.forwarded_for && adds {
        write_said(out, request, "x-forwarded-for");
    }
    let peer = if context.peer.is_empty() { "unknown" } else { context.peer };
    out.extend_from_slice(peer.as_bytes());
    let scheme = scheme(context);
    let host = request.host().unwrap_or_default();
    // There is one of each: that of the first proxy holds.
    let said = |name| request.fields.first(name).filter(|_| seen.forwarded_other && adds);
    out.extend_from_slice(b"\r\nX-Forwarded-Proto: ");
    out.extend_from_slice(said("x-forwarded-proto").unwrap_or(scheme.as_bytes()));
    out.extend_from_slice(b"\r\n");
    // A request of HTTP/1.0 may name no host.
    let host = said("x-forwarded-host").unwrap_or(host.as_bytes());
    if !host.is_empty() {
        fields::write(out, "X-Forwarded-Host", host);
    }
}

fn write_forwarded(
    out: &mut Vec<u8>,
    request: &Request<'_>,
    context: &RequestContext<'_>,
    seen: SeenInRequest,
) {
    out.extend_from_slice(b"Forwarded: ");
    if seen.forwarded && context.forwarded == Forwarding::Add {
        write_said(out, request, "forwarded");
    }
    // An IPv6 address has colons, so it stands in brackets and quotes (RFC 7239 6).
    let (open, close) = match context.peer {
        "" => ("for=unknown", ""),
        peer if peer.contains(':') => ("for=\"[", "]\""),
        _ => ("for=", ""),
    };
    let scheme = scheme(context);
    let host = request.host().unwrap_or_default();
    let parts = [open, context.peer, close, ";proto=", scheme];
    parts.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
    // A request of HTTP/1.0 may name no host.
    if !host.is_empty() {
        [";host=\"", host, "\""].iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
    }
    out.extend_from_slice(b"\r\n");
}

/// What the head is written by, beside the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerContext<'a> {
    pub(crate) kind: RequestKind,
    pub(crate) date: &'a DateCache,
    /// What is done to fields.
    pub(crate) rules: Applying<'a>,
    /// What its route has changed of the path, where it has one.
    pub(crate) rewrite: Option<Rewritten<'a>>,
    /// The cookie that it sets.
    pub(crate) cookie: Option<NewCookie<'a>>,
}

/// What was changed of the path of a request, for what its answer says of paths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rewritten<'a> {
    pub(crate) by: &'a Rewrite,
    /// The backend's own.
    pub(crate) host: &'a str,
    /// What the backend was asked for.
    pub(crate) asked_host: &'a [u8],
}

/// Writes the head of a final answer behind what is in `out`, but for what its connection adds. False when a coding stands
/// before the chunks: it was not asked for, and the client could not tell. Nothing is written then.
pub(crate) fn write_answer(
    out: &mut Vec<u8>,
    response: &Response<'_>,
    context: &AnswerContext<'_>,
) -> bool {
    let facts = &response.facts;
    let before = out.len();
    write_status_line(out, response);
    let fields_start = out.len();
    let written = write_answer_fields(out, response, context, None).or_else(|| {
        // Rare: some of those that were written have to go.
        out.truncate(fields_start);
        write_answer_fields(out, response, context, Some(&Named::in_fields(response.fields)))
    });
    let SeenInAnswer { has_date, length, has_coding, is_ambiguous } = written.unwrap_or_default();
    if has_coding && facts.body != ResponseBody::None {
        out.truncate(before);
        return false;
    }
    context.rules.write_added(out);
    if let Some(cookie) = &context.cookie {
        cookie.write_to(out, response.fields, context.rules.adds("cache-control"));
    }
    if !has_date {
        fields::write(out, "Date", context.date.text());
    }
    // What GET would have had, or has (RFC 9110 8.6).
    let is_number =
        |len: &&[u8]| (1..20).contains(&len.len()) && len.iter().all(u8::is_ascii_digit);
    if facts.body == ResponseBody::None
        && let Some(len) = length.filter(is_number)
        && allows_length(context.kind, facts.status.code())
        && !is_ambiguous
    {
        fields::write(out, "Content-Length", len);
    }
    true
}

#[derive(Clone, Copy, Default)]
struct SeenInAnswer<'b> {
    has_date: bool,
    length: Option<&'b [u8]>,
    /// A coding beside chunked.
    has_coding: bool,
    /// The length is not that of GET: a coding goes before it, or two differ (RFC 9112 6.3).
    is_ambiguous: bool,
}

/// Writes the fields that are passed on. None when Connection names some of them and `named` was not
/// given.
fn write_answer_fields<'b>(
    out: &mut Vec<u8>,
    response: &Response<'b>,
    context: &AnswerContext<'_>,
    named: Option<&Named>,
) -> Option<SeenInAnswer<'b>> {
    let mut seen = SeenInAnswer::default();
    for field in response.fields {
        match fields::kind(field.name) {
            Kind::EndToEnd | Kind::ClaimsClient if context.rules.drops(field.name) => {}
            Kind::Connection if named.is_none() && fields::names_others(field.value) => {
                return None;
            }
            Kind::Connection | Kind::Dropped | Kind::Te | Kind::Upgrade => {}
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
                if !named.is_some_and(|named| named.has(field.name)) {
                    match context.rewrite {
                        Some(Rewritten { by, host, asked_host }) if field.is("location") => {
                            let location = by.location(field.value, host.as_bytes(), asked_host);
                            fields::write(out, field.name, &location);
                        }
                        _ => fields::write(out, field.name, field.value),
                    }
                }
            }
        }
    }
    Some(seen)
}

/// Writes the head of an interim answer, with its empty line: there is nothing to add.
pub(crate) fn write_interim(out: &mut Vec<u8>, response: &Response<'_>) {
    write_status_line(out, response);
    write_end_to_end(out, response, None, |_| true);
    out.extend_from_slice(b"\r\n");
}

/// Writes the head of the answer that makes the client's connection a WebSocket, but for what says so; where its stream
/// becomes one, with the status that says so there, once `accept` was answered.
///
/// # Errors
/// Why it is not what was asked for. Nothing is written then.
pub(crate) fn write_upgrade(
    out: &mut Vec<u8>,
    response: &Response<'_>,
    accept: Option<&Accept>,
    own: Option<&str>,
) -> Result<(), &'static str> {
    let mut protocols = response.fields.all("upgrade").flat_map(fields::options);
    if !protocols.next().is_some_and(|protocol| protocol.eq_ignore_ascii_case(b"websocket")) {
        return Err("an upgrade (101) that was not asked for");
    }
    let Some(accept) = accept else {
        write_status_line(out, response);
        write_end_to_end(out, response, own, |_| true);
        return Ok(());
    };
    let mut said = response.fields.all(websocket::ACCEPT);
    if !said.next().is_some_and(|said| accept.is(said)) || said.next().is_some() {
        return Err("an upgrade (101) whose Sec-WebSocket-Accept is not that of the key");
    }
    out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    write_end_to_end(out, response, own, |name| !name.eq_ignore_ascii_case(websocket::ACCEPT));
    Ok(())
}

/// The same of an answer by a stream, whose status has agreed to it (RFC 8441 5): for a client of HTTP/1.1 with the proof that its
/// key was understood.
pub(crate) fn write_tunnel(
    out: &mut Vec<u8>,
    response: &Response<'_>,
    proof: Option<&Accept>,
    own: Option<&str>,
) {
    out.extend_from_slice(match proof {
        Some(_) => b"HTTP/1.1 101 Switching Protocols\r\n",
        None => b"HTTP/1.1 200 OK\r\n",
    });
    write_end_to_end(out, response, own, |name| !name.eq_ignore_ascii_case(websocket::ACCEPT));
    if let Some(proof) = proof {
        fields::write(out, websocket::ACCEPT, proof.text());
    }
}

/// Writes the fields that are not of one hop, but for one that the proxy has of its `own`.
fn write_end_to_end(
    out: &mut Vec<u8>,
    response: &Response<'_>,
    own: Option<&str>,
    passes: impl Fn(&str) -> bool,
) {
    let named = Named::in_fields(response.fields);
    for field in response.fields {
        let kind = fields::kind(field.name);
        let is_passed = matches!(kind, Kind::EndToEnd | Kind::ClaimsClient | Kind::Date);
        let is_own = own.is_some_and(|own| own.eq_ignore_ascii_case(field.name));
        if is_passed && !is_own && passes(field.name) && !named.has(field.name) {
            fields::write(out, field.name, field.value);
        }
    }
}

fn write_status_line(out: &mut Vec<u8>, response: &Response<'_>) {
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
pub(crate) fn is_idempotent(method: Method<'_>) -> bool {
    matches!(
        method,
        Method::Get | Method::Head | Method::Options | Method::Put | Method::Delete | Method::Trace
    )
}

#[cfg(test)]
mod tests {
    use pollux_http::{Framing, Limits, Parsed};

    use super::*;
    use crate::head::tail::{HeadTail, HopFields, TAIL_BYTES_MAX};

    const CONTEXT: RequestContext<'_> = RequestContext {
        peer: "192.0.2.1",
        version: Version::Http11,
        host: "backend",
        is_secure: false,
        x_forwarded: Forwarding::Remove,
        forwarded: Forwarding::Remove,
        rules: &[],
        max_forwards: None,
        target: None,
        user: "",
        client: None,
        prefix: "",
        cookie: None,
        is_by_stream: false,
    };

    fn written(head: &str, context: &RequestContext<'_>) -> String {
        let Parsed::Complete(request, _) = Request::parse(head.as_bytes(), &Limits::default())
        else {
            panic!("not sound: {head}")
        };
        let mut out = Vec::new();
        let host = request.host().unwrap_or(context.host);
        let version = Version::of_minor(request.version_minor);
        let context = RequestContext { host, version, ..*context };
        let upgrades = write_request(&mut out, &request, &context);
        let mut tail = [0; TAIL_BYTES_MAX];
        let fields = HopFields::of_request(&request, version, upgrades);
        let tail_bytes = HeadTail::of(fields).write(&mut tail);
        out.extend_from_slice(&tail[..tail_bytes]);
        let text = String::from_utf8(out).expect("ASCII");
        text.strip_suffix("Via: 1.1 pollux\r\n\r\n").unwrap_or(&text).to_owned()
    }

    #[test]
    fn fields_of_the_connection_end_here_and_others_are_passed_on() {
        let head = "GET /a?b HTTP/1.1\r\nHost: x\r\nAccept:  y \r\nConnection: close, X-Foo\r\n\
                    X-Foo: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nProxy-Connection: a\r\nUpgrade: h2c\r\n\
                    X-Bar: 2\r\nTransfer_Encoding: chunked\r\nContent_Length: 3\r\n\r\n";
        let expected = "GET /a?b HTTP/1.1\r\nHost: x\r\nAccept: y\r\nX-Bar: 2\r\n";
        assert_eq!(written(head, &CONTEXT), expected);
    }

    #[test]
    fn a_request_of_http_2_becomes_one_of_http_1() {
        let written = |head: &str, framing| {
            let request = Request::of_stream(head.as_bytes(), framing, true).expect("sound");
            let mut out = Vec::new();
            let host = request.host().expect("it is said");
            let version = Version::Http2;
            assert!(!write_request(
                &mut out,
                &request,
                &RequestContext { host, version, ..CONTEXT }
            ));
            let tail = HeadTail::of(HopFields::of_request(&request, version, false));
            out.extend_from_slice(tail.text());
            String::from_utf8(out).expect("ASCII")
        };
        let fields = "host: a:1\r\nte: trailers\r\nte: Trailers\r\ncookie: b=1; c=2\r\n\r\n";
        let expected = "GET /x?y HTTP/1.1\r\nHost: a:1\r\nTE: trailers\r\nConnection: te\r\n\
                        cookie: b=1; c=2\r\nVia: 2.0 pollux\r\n";
        let head = format!("GET /x?y HTTP/2.0\r\n{fields}");
        assert_eq!(written(&head, Framing::None), format!("{expected}\r\n"));
        let chunks = "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n";
        assert_eq!(written(&head, Framing::Chunked), format!("{expected}{chunks}"));
        // A length that was said stands once, and one that was not where a body is meant to be.
        let head = "POST / HTTP/2.0\r\nhost: a\r\ncontent-length: 5\r\n\r\n";
        let expected = "POST / HTTP/1.1\r\nHost: a\r\nVia: 2.0 pollux\r\nContent-Length: ";
        let of_five = format!("{expected}5\r\nExpect: 100-continue\r\n\r\n");
        assert_eq!(written(head, Framing::Length(5)), of_five);
        let head = "POST / HTTP/2.0\r\nhost: a\r\n\r\n";
        assert_eq!(written(head, Framing::None), format!("{expected}0\r\n\r\n"));
    }

    #[test]
    fn what_a_connection_field_names_can_hide_nothing_that_the_proxy_says() {
        let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\
                    Connection: Host, Content-Length, X-Forwarded-For\r\n\r\n";
        let text = written(head, &RequestContext { x_forwarded: Forwarding::Replace, ..CONTEXT });
        assert!(text.contains("Host: x\r\n") && text.contains("Content-Length: 2\r\n"), "{text}");
        assert!(text.contains("X-Forwarded-For: 192.0.2.1\r\n"), "{text}");
    }

    #[test]
    fn the_authority_of_an_absolute_target_is_the_host() {
        let head = "GET http://a:81?q HTTP/1.1\r\nHost: other\r\n\r\n";
        assert_eq!(written(head, &CONTEXT), "GET /?q HTTP/1.1\r\nHost: a:81\r\n");
        let head = "OPTIONS http://a HTTP/1.1\r\nHost: other\r\n\r\n";
        assert_eq!(written(head, &CONTEXT), "OPTIONS * HTTP/1.1\r\nHost: a\r\n");
        let old = written("GET / HTTP/1.0\r\n\r\n", &CONTEXT);
        assert_eq!(old, "GET / HTTP/1.1\r\nHost: backend\r\nVia: 1.0 pollux\r\n\r\n");
    }

    #[test]
    fn each_kind_of_forwarded_field_has_a_setting_of_its_own() {
        use Forwarding::{Add, Keep, Remove, Replace};
        let head = "GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 6.6.6.6\r\nx-forwarded-for: 7\r\n\
                    X-Forwarded-Proto: https\r\nForwarded: for=8\r\nX_Forwarded_For: 9\r\n\r\n";
        let message = |x_forwarded, forwarded| {
            let text = written(head, &RequestContext { x_forwarded, forwarded, ..CONTEXT });
            text.strip_prefix("GET / HTTP/1.1\r\nHost: x\r\n").expect("its line").to_owned()
        };
        let x = [
            (
                Replace,
                "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: x\r\n",
            ),
            (
                Add,
                "X-Forwarded-For: 6.6.6.6, 7, 192.0.2.1\r\nX-Forwarded-Proto: https\r\n\
                 X-Forwarded-Host: x\r\n",
            ),
            (
                Keep,
                "X-Forwarded-For: 6.6.6.6\r\nx-forwarded-for: 7\r\nX-Forwarded-Proto: https\r\n",
            ),
            (Remove, ""),
        ];
        let standard = [
            (Replace, "Forwarded: for=192.0.2.1;proto=http;host=\"x\"\r\n"),
            (Add, "Forwarded: for=8, for=192.0.2.1;proto=http;host=\"x\"\r\n"),
            (Keep, "Forwarded: for=8\r\n"),
            (Remove, ""),
        ];
        for (way, expected) in x {
            assert_eq!(message(way, Remove), expected, "{way:?}");
        }
        for (way, expected) in standard {
            assert_eq!(message(Remove, way), expected, "{way:?}");
        }
        let both = message(Replace, Add);
        assert!(both.starts_with(x[0].1) && both.ends_with(standard[1].1), "{both}");
        let context = RequestContext { x_forwarded: Replace, forwarded: Replace, ..CONTEXT };
        let old = written("GET / HTTP/1.0\r\n\r\n", &context);
        assert!(
            old.contains("\r\nX-Forwarded-Proto: http\r\nForwarded: for=192.0.2.1;proto=http\r\n")
        );
        let context = RequestContext { peer: "2001:db8::1", forwarded: Replace, ..CONTEXT };
        assert!(written(head, &context).contains("Forwarded: for=\"[2001:db8::1]\";proto"));
    }

    #[test]
    fn no_other_field_by_which_a_client_claims_to_be_somebody_passes_unless_clients_are_believed() {
        let claims = "X-Real-IP: 6.6.6.6\r\nTrue-Client-IP: 6.6.6.6\r\nX-Client-IP: 6.6.6.6\r\n\
                      X-Cluster-Client-IP: 6.6.6.6\r\nX-Forwarded-Port: 443\r\nX-Forwarded-Ssl: on\r\n\
                      X-Forwarded-Prefix: /a\r\nX-Forwarded-Scheme: https\r\nx-forwarded-server: s\r\n\
                      X-Forwarded-Protocol: https\r\nFront-End-Https: on\r\nX-Url-Scheme: https\r\n\
                      X-Scheme: https\r\nX-Forwarded-Client-Cert: c\r\nX-Original-URL: /admin\r\n\
                      X-Rewrite-URL: /admin\r\nProxy: http://6.6.6.6\r\nEarly-Data: 1\r\n";
        let head =
            format!("GET / HTTP/1.1\r\nHost: x\r\n{claims}X_Real_IP: 7\r\nX-Real: 1\r\n\r\n");
        let of = |x_forwarded| written(&head, &RequestContext { x_forwarded, ..CONTEXT });
        let passed = format!("GET / HTTP/1.1\r\nHost: x\r\n{claims}X-Real: 1\r\n");
        assert_eq!(of(Forwarding::Keep), passed);
        assert!(of(Forwarding::Add).starts_with(&passed));
        assert_eq!(of(Forwarding::Remove), "GET / HTTP/1.1\r\nHost: x\r\nX-Real: 1\r\n");
        let replaced = of(Forwarding::Replace);
        assert!(
            replaced.starts_with("GET / HTTP/1.1\r\nHost: x\r\nX-Real: 1\r\nX-Forwarded-For"),
            "{replaced}"
        );
    }

    #[test]
    fn a_websocket_is_asked_for_and_no_other_protocol() {
        let head = |upgrade: &str, more: &str| {
            format!(
                "GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: {upgrade}\r\n\
                 {more}\r\n"
            )
        };
        let asked = written(&head("WebSocket", "Sec-WebSocket-Key: k\r\n"), &CONTEXT);
        assert!(asked.contains("Connection: upgrade\r\nUpgrade: websocket\r\n"), "{asked}");
        for (upgrade, more) in [("h2c", ""), ("websocket", "Content-Length: 1\r\n")] {
            let text = written(&head(upgrade, more), &CONTEXT);
            assert!(!text.contains("pgrade"), "{text}");
        }
    }

    #[test]
    fn the_key_of_a_websocket_passes_by_connections_alone() {
        let head = "GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                    sec-websocket-key: k\r\nSec-WebSocket-Version: 13\r\n\r\n";
        let version = "Sec-WebSocket-Version: 13\r\n";
        let by_connection = written(head, &CONTEXT);
        assert!(by_connection.contains("sec-websocket-key: k\r\n"), "{by_connection}");
        assert!(by_connection.contains(version), "{by_connection}");
        let to_stream = written(head, &RequestContext { is_by_stream: true, ..CONTEXT });
        assert!(!to_stream.contains("key") && to_stream.contains(version), "{to_stream}");
        let head = head.replace("HTTP/1.1", "HTTP/2.0");
        let request = Request::of_stream(head.as_bytes(), Framing::None, false).expect("sound");
        let mut out = Vec::new();
        let context = RequestContext { version: Version::Http2, ..CONTEXT };
        assert!(write_request(&mut out, &request, &context), "it asks for one");
        let by_stream = String::from_utf8(out).expect("text");
        assert!(!by_stream.contains("key") && by_stream.contains(version), "{by_stream}");
    }

    #[test]
    fn a_stream_gets_the_answer_of_a_websocket_once_its_key_was_understood() {
        let key = websocket::Key::random();
        let accept = key.accept();
        let of = |fields: &str, accept: Option<&Accept>| {
            let head = format!("HTTP/1.1 101 Switching Protocols\r\n{fields}\r\n");
            let limits = Limits::default();
            let response = Response::parse(head.as_bytes(), &limits, RequestKind::Other);
            let mut out = Vec::new();
            let response = response.expect("sound").expect("whole");
            write_upgrade(&mut out, &response, accept, None)
                .map(|()| String::from_utf8(out).expect("text"))
        };
        let upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\n";
        let proof = str::from_utf8(accept.text()).expect("base64");
        let right = format!("Sec-WebSocket-Accept: {proof}\r\n");
        let sound = format!("{upgrade}{right}Sec-WebSocket-Protocol: chat\r\n");
        assert_eq!(
            of(&sound, Some(&accept)).as_deref(),
            Ok("HTTP/1.1 200 OK\r\nSec-WebSocket-Protocol: chat\r\n")
        );
        let passed = of(&sound, None).expect("it is the client's to judge");
        assert!(passed.starts_with("HTTP/1.1 101 ") && passed.contains(&right), "{passed}");
        for fields in [
            upgrade.to_owned(),
            format!("{upgrade}Sec-WebSocket-Accept: k\r\n"),
            format!("{upgrade}{right}{right}"),
            right.clone(),
            format!("Upgrade: h2c\r\n{right}"),
        ] {
            assert!(of(&fields, Some(&accept)).is_err(), "{fields}");
        }
    }

    #[test]
    fn a_client_of_http_1_gets_the_proof_of_its_key_where_a_stream_has_agreed() {
        let head = "HTTP/1.1 204 \r\nSec-WebSocket-Protocol: chat\r\nSec-WebSocket-Accept: own\r\n\
                    Content-Length: 5\r\nX-A: b\r\n\r\n";
        let response = Response::parse(head.as_bytes(), &Limits::default(), RequestKind::Connect);
        let response = response.expect("sound").expect("whole");
        let accept = websocket::Key::random().accept();
        let of = |proof| {
            let mut out = Vec::new();
            write_tunnel(&mut out, &response, proof, None);
            String::from_utf8(out).expect("text")
        };
        let fields = "Sec-WebSocket-Protocol: chat\r\nX-A: b\r\n";
        let proof = str::from_utf8(accept.text()).expect("base64");
        let start = "HTTP/1.1 101 Switching Protocols\r\n";
        assert_eq!(of(Some(&accept)), format!("{start}{fields}Sec-WebSocket-Accept: {proof}\r\n"));
        assert_eq!(of(None), format!("HTTP/1.1 200 OK\r\n{fields}"));
    }

    #[test]
    fn framing_is_written_anew() {
        let head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \tCHUNKED\r\n\
                    Expect: 100-Continue\r\nTrailer: X-A\r\n\r\n";
        let text = written(head, &CONTEXT);
        assert!(text.ends_with(
            "Via: 1.1 pollux\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
        ));
        assert!(!text.contains("Trailer"), "{text}");
        let text = written("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0007\r\n\r\n", &CONTEXT);
        assert!(text.ends_with("Content-Length: 7\r\n\r\n"), "{text}");
    }
}
