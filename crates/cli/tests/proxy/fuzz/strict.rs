//! A reader of HTTP/1.1 messages that refuses everything doubtful (RFC 9110, 9112). It shares no code
//! with the product, so that both have to be wrong in the same way before a fault is missed.
//!
//! What the proxy sends to a backend is held to a single form: see [`Writer::Proxy`]. Of what clients
//! send the tolerances that `docs/http-server.md` names are taken as well.

/// The sender of the message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writer {
    /// Any client: empty lines in front, an absolute target, HTTP/1.0, chunk extensions, trailers.
    Client,
    /// The proxy, to a backend: none of these, one Host, and nothing about the connection.
    Proxy,
}

/// Where a body ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Frame {
    Nothing,
    Length(usize),
    Chunks,
    UntilEnd,
}

/// The head of a request.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) minor: u8,
    pub(crate) fields: Fields,
    pub(crate) frame: Frame,
    /// Bytes of it, and of what stood in front.
    pub(crate) len: usize,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: Fields,
    pub(crate) body: Vec<u8>,
    pub(crate) len: usize,
}

/// Names in small letters, and values without the white space around them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields(pub(crate) Vec<(String, Vec<u8>)>);

/// Nothing while the message is not whole.
pub(crate) type Read<T> = Result<Option<T>, &'static str>;

impl Fields {
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.0.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_slice())
    }

    pub(crate) fn first<'a>(&'a self, name: &'a str) -> Option<&'a [u8]> {
        self.all(name).next()
    }

    /// Whether a list of such a field has that element.
    pub(crate) fn has(&self, name: &str, element: &str) -> bool {
        self.all(name).any(|value| {
            value
                .split(|byte| *byte == b',')
                .any(|part| part.trim_ascii().eq_ignore_ascii_case(element.as_bytes()))
        })
    }
}

/// Reads the head of a request.
pub(crate) fn request(bytes: &[u8], writer: Writer) -> Read<Head> {
    let mut at = 0;
    while writer == Writer::Client && bytes[at..].starts_with(b"\r\n") {
        at += 2;
    }
    let Some(line) = line(bytes, &mut at)? else { return Ok(None) };
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err("the line is not three words");
    };
    if method.is_empty() || !method.iter().copied().all(is_token) {
        return Err("the method is not a token");
    }
    if !target.iter().all(|byte| (b'!'..=b'~').contains(byte) && *byte != b'#') {
        return Err("the target is not visible ASCII");
    }
    let minor = match version {
        b"HTTP/1.1" => 1,
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor @ b'0'..=b'9']
            if writer == Writer::Client =>
        {
            u8::from(*minor != b'0')
        }
        _ => return Err("the version is not HTTP/1.1"),
    };
    let Some(fields) = fields(bytes, &mut at, writer == Writer::Proxy)? else { return Ok(None) };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let method = text(method);
    let target = text(target);
    // The proxy answers TRACE itself and continues; what follows CONNECT may be meant for its tunnel.
    if method == "CONNECT" || (method == "TRACE" && writer == Writer::Proxy) {
        return Err("a method that goes no further");
    }
    let is_path = target.starts_with('/') || (target == "*" && method == "OPTIONS");
    if !is_path && (writer == Writer::Proxy || authority(&target).is_none()) {
        return Err("the target is not a path");
    }
    let hosts: Vec<_> = fields.all("host").collect();
    if hosts.len() > 1 || (hosts.is_empty() && minor > 0) {
        return Err("there is not one Host");
    }
    if !hosts.iter().all(|host| is_authority(host)) {
        return Err("Host is not an authority");
    }
    let frame = match frame(&fields)? {
        Frame::Chunks if minor == 0 => return Err("chunks of HTTP/1.0"),
        Frame::UntilEnd => Frame::Nothing,
        frame => frame,
    };
    if writer == Writer::Proxy {
        is_for_a_backend(&fields)?;
    }
    Ok(Some(Head { method, target, minor, fields, frame, len: at }))
}

/// What a proxy must not send on, or only so.
fn is_for_a_backend(fields: &Fields) -> Result<(), &'static str> {
    const NEVER: [&str; 8] = [
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "proxy-authenticate",
        "te",
        "trailer",
        "http2-settings",
        "forwarded",
    ];
    if fields.0.iter().any(|(name, _)| NEVER.contains(&name.replace('_', "-").as_str())) {
        return Err("a field about one connection was sent on");
    }
    let alone = |name: &str, value: &[u8]| {
        let mut all = fields.all(name);
        let first = all.next();
        first.is_none_or(|first| first == value) && all.next().is_none()
    };
    let is_upgrade = fields.first("upgrade").is_some();
    if !alone("connection", b"upgrade") || is_upgrade != fields.first("connection").is_some() {
        return Err("Connection is not upgrade");
    }
    if !alone("upgrade", b"websocket") || !alone("expect", b"100-continue") {
        return Err("an upgrade or expectation that is not known");
    }
    if !alone("transfer-encoding", b"chunked") {
        return Err("Transfer-Encoding is not chunked");
    }
    Ok(())
}

/// Reads an answer; `is_head` when it is one to HEAD. What lasts until the end of the connection is
/// whole when `has_ended`.
pub(crate) fn answer(bytes: &[u8], is_head: bool, has_ended: bool) -> Read<Answer> {
    let mut at = 0;
    let Some(line) = line(bytes, &mut at)? else { return Ok(None) };
    let [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'1', b' ', code @ ..] = line else {
        return Err("the status line does not begin with HTTP/1.1");
    };
    let (code, reason) = code.split_at(code.len().min(3));
    let status = str::from_utf8(code).ok().and_then(|code| code.parse::<u16>().ok());
    let Some(status) = status.filter(|status| *status >= 100) else {
        return Err("the status is not three digits");
    };
    if reason.first() != Some(&b' ') || !reason.iter().copied().all(is_text) {
        return Err("the reason is not text behind a space");
    }
    let Some(fields) = fields(bytes, &mut at, true)? else { return Ok(None) };
    let frame = if is_head || status < 200 || matches!(status, 204 | 304) {
        Frame::Nothing
    } else {
        frame(&fields)?
    };
    let body = if frame == Frame::UntilEnd {
        has_ended.then(|| (bytes[at..].to_vec(), bytes.len() - at))
    } else {
        body(&bytes[at..], frame, Writer::Proxy)?
    };
    Ok(body.map(|(body, len)| Answer { status, fields, body, len: at + len }))
}

/// Reads a body: its bytes, and how many it took.
pub(crate) fn body(bytes: &[u8], frame: Frame, writer: Writer) -> Read<(Vec<u8>, usize)> {
    match frame {
        Frame::Nothing => Ok(Some((Vec::new(), 0))),
        Frame::Length(len) => Ok(bytes.get(..len).map(|body| (body.to_vec(), len))),
        Frame::Chunks => chunks(bytes, writer),
        Frame::UntilEnd => Ok(None),
    }
}

fn chunks(bytes: &[u8], writer: Writer) -> Read<(Vec<u8>, usize)> {
    let mut body = Vec::new();
    let mut at = 0;
    loop {
        let Some(line) = line(bytes, &mut at)? else { return Ok(None) };
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (size, extension) = line.split_at(digits);
        if !(1..=16).contains(&digits) {
            return Err("a chunk size is not 1 to 16 hex digits");
        }
        let begins = extension.trim_ascii_start().first();
        let is_extended = writer == Writer::Client && begins == Some(&b';');
        if !extension.is_empty() && !is_extended {
            return Err("bytes behind a chunk size");
        }
        let size = size.iter().fold(0_u64, |size, digit| {
            size << 4 | u64::from(char::from(*digit).to_digit(16).unwrap_or_default())
        });
        if size == 0 {
            break;
        }
        let size = usize::try_from(size).map_err(|_| "a chunk beyond all memory")?;
        let end = at.checked_add(size).ok_or("a chunk beyond all memory")?;
        let Some(data) = bytes.get(at..end) else { return Ok(None) };
        body.extend_from_slice(data);
        match bytes.get(end..) {
            Some([b'\r', b'\n', ..]) => at = end + 2,
            None | Some([] | [b'\r']) => return Ok(None),
            Some(_) => return Err("a chunk is not followed by CRLF"),
        }
    }
    match fields(bytes, &mut at, writer == Writer::Proxy)? {
        Some(trailers) if writer == Writer::Proxy && !trailers.0.is_empty() => {
            Err("trailers were sent on")
        }
        Some(_) => Ok(Some((body, at))),
        None => Ok(None),
    }
}

/// The next line without its CRLF.
fn line<'b>(bytes: &'b [u8], at: &mut usize) -> Read<&'b [u8]> {
    let rest = &bytes[*at..];
    let Some(end) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n' | 0)) else {
        return Ok(None);
    };
    match &rest[end..] {
        [b'\r', b'\n', ..] => {
            *at += end + 2;
            Ok(Some(&rest[..end]))
        }
        [b'\r'] => Ok(None),
        _ => Err("a bare CR, a bare LF or a NUL"),
    }
}

/// Field lines up to the empty one. With `is_plain` each colon is followed by one space, as programs
/// write it, and nothing stands behind the value.
fn fields(bytes: &[u8], at: &mut usize, is_plain: bool) -> Read<Fields> {
    let mut fields = Fields::default();
    loop {
        let Some(line) = line(bytes, at)? else { return Ok(None) };
        if line.is_empty() {
            return Ok(Some(fields));
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            return Err("a field line without a colon");
        };
        let name = &line[..colon];
        let value = &line[colon + 1..];
        if name.is_empty() || !name.iter().copied().all(is_token) {
            return Err("the name of a field is not a token, or the line is folded");
        }
        if !value.iter().copied().all(is_text) {
            return Err("a control byte in a field");
        }
        let trimmed = value.trim_ascii();
        if is_plain && value.strip_prefix(b" ") != Some(trimmed) {
            return Err("white space around the value of a field");
        }
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        fields.0.push((name, trimmed.to_vec()));
    }
}

fn frame(fields: &Fields) -> Result<Frame, &'static str> {
    let lengths: Vec<_> = fields.all("content-length").collect();
    let codings: Vec<_> = fields.all("transfer-encoding").collect();
    match (&lengths[..], &codings[..]) {
        ([], []) => Ok(Frame::UntilEnd),
        ([], [coding]) if coding.eq_ignore_ascii_case(b"chunked") => Ok(Frame::Chunks),
        ([len], []) if !len.is_empty() && len.iter().all(u8::is_ascii_digit) => {
            let len = str::from_utf8(len).ok().and_then(|len| len.parse().ok());
            len.map(Frame::Length).ok_or("a length beyond all memory")
        }
        _ => Err("the framing can be read in two ways"),
    }
}

/// The authority of an absolute target, and what follows it.
pub(crate) fn authority(target: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = target.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return None;
    }
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let is_one = !authority.is_empty() && !authority.starts_with(':');
    (is_one && is_authority(authority.as_bytes())).then_some((authority, path))
}

fn is_authority(bytes: &[u8]) -> bool {
    let is_one = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%:[]".contains(byte);
    bytes.iter().all(is_one)
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn is_text(byte: u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~' | 0x80..)
}

/// A request that a strict reader finds in what a client sent.
pub(super) struct Asked {
    pub(crate) head: Head,
    /// None when its body is broken, or not whole.
    pub(crate) body: Option<Vec<u8>>,
}

/// All requests that a strict reader finds there, until it refuses something or a request is the last
/// one of its connection.
pub(super) fn asked(bytes: &[u8]) -> Vec<Asked> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Ok(Some(head)) = request(&bytes[at..], Writer::Client) {
        at += head.len;
        let body = body(&bytes[at..], head.frame, Writer::Client).ok().flatten();
        let is_kept = match head.minor {
            0 => head.fields.has("connection", "keep-alive"),
            _ => true,
        };
        // A body that nobody asked for is not read.
        let has_body = !matches!(head.frame, Frame::Nothing | Frame::Length(0));
        let is_unread = head.method == "TRACE" && has_body;
        let is_ended = !is_kept || head.fields.has("connection", "close");
        let is_last = is_ended || is_unread || body.is_none();
        at += body.as_ref().map_or(0, |(_, len)| *len);
        found.push(Asked { head, body: body.map(|(body, _)| body) });
        if is_last {
            break;
        }
    }
    found
}

impl Asked {
    /// As a backend must see its head: what is about the client's connection is gone.
    pub(crate) fn as_forwarded(&self) -> String {
        let mut host = self.head.fields.first("host");
        let mut target = self.head.target.clone();
        if let Some((authority, path)) = authority(&self.head.target) {
            host = Some(authority.as_bytes());
            target = match path {
                "" if self.head.method == "OPTIONS" => "*".to_owned(),
                path if path.starts_with('/') => path.to_owned(),
                path => format!("/{path}"),
            };
        }
        let host = host.map(|host| String::from_utf8_lossy(host).into_owned());
        let fields = end_to_end(&self.head, true);
        canonical(&self.head.method, &target, host.as_deref(), &fields)
    }
}

/// A request's head as text, to compare.
pub(super) fn canonical(
    method: &str,
    target: &str,
    host: Option<&str>,
    fields: &[(String, Vec<u8>)],
) -> String {
    let host = host.unwrap_or("(the backend)");
    let mut text = format!("{method} {target}\n host {host}\n");
    for (name, value) in fields {
        text.push_str(&format!(" {name}: {}\n", value.escape_ascii()));
    }
    text
}

/// The fields that go from end to end; `by_client` those of a client's request, else those of what the
/// proxy sent, without what it says itself.
pub(super) fn end_to_end(head: &Head, by_client: bool) -> Vec<(String, Vec<u8>)> {
    const ENDING: [&str; 19] = [
        "te",
        "host",
        "expect",
        "trailer",
        "upgrade",
        "forwarded",
        "connection",
        "keep-alive",
        "max-forwards",
        "content-length",
        "http2-settings",
        "x-forwarded-for",
        "proxy-connection",
        "x-forwarded-host",
        "transfer-encoding",
        "x-forwarded-proto",
        "proxy-authenticate",
        "proxy-authorization",
        "",
    ];
    let ends = |name: &str| {
        ENDING.contains(&name.replace('_', "-").as_str())
            || (by_client && head.fields.has("connection", name))
    };
    let mut fields: Vec<_> =
        head.fields.0.iter().filter(|(name, _)| !ends(name)).cloned().collect();
    if !by_client {
        // The proxy's own stands last.
        assert_eq!(fields.pop().map(|(name, _)| name).as_deref(), Some("via"));
    }
    fields
}

/// What a body is known by.
pub(super) fn mark(body: &[u8]) -> (usize, u64) {
    let hash = body.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (body.len(), hash)
}

/// Whether a request has a body, and of what kind, so that it can be answered in time.
pub(super) fn waits_to_proceed(head: &Head) -> bool {
    head.fields.has("expect", "100-continue") && head.frame != Frame::Nothing
}
