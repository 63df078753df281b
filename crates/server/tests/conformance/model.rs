//! A server without I/O: what the rules of `pollux-http` alone make of the table.
//!
//! It shows that the table can be kept, and keeps the parser to it. It is not a server: it holds
//! whole streams in memory and knows nothing of time.

use pollux_http::{
    Acceptable, BodyReader, CONTINUE, ContentCoding, DateCache, EntityTag, FilePath, HeadWriter,
    Limits, Method, Outcome, Parsed, Rejection, Representation, Request, Status, evaluate,
};

use crate::cases::{BODY_BYTES_MAX, Case, Setup};
use crate::stage;

/// The tag of every file.
const TAG: &[u8] = b"\"v1\"";

/// Sends the case's request in pieces; returns what came and whether the connection ended.
pub(crate) fn exchange(case: &Case, piece_bytes: usize) -> (Vec<u8>, bool) {
    let mut model = Model::new(case.setup);
    for part in [&case.request_with(TAG), &case.after_continue] {
        for piece in part.chunks(piece_bytes) {
            model.take(piece);
        }
    }
    (model.output, model.has_ended)
}

struct Model {
    setup: Setup,
    limits: Limits,
    input: Vec<u8>,
    output: Vec<u8>,
    /// The request whose body is read.
    pending: Option<Pending>,
    has_ended: bool,
}

struct Pending {
    reader: BodyReader,
    body: Vec<u8>,
    reply: Reply,
    waits_for_continue: bool,
}

/// An answer but for an echo's body.
struct Reply {
    status: Status,
    fields: Vec<(&'static str, String)>,
    body: Vec<u8>,
    version_minor: u8,
    is_last: bool,
    is_head: bool,
    is_echo: bool,
}

impl Model {
    fn new(setup: Setup) -> Self {
        let limits = Limits { body_bytes: BODY_BYTES_MAX as u64, ..Limits::default() };
        let input = Vec::new();
        let output = Vec::new();
        Self { setup, limits, input, output, pending: None, has_ended: false }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        while !self.has_ended {
            let is_on = if self.pending.is_some() { self.read_body() } else { self.read_head() };
            match is_on {
                Ok(true) => {}
                Ok(false) => break,
                Err(rejection) => self.answer(Reply::refusal(rejection.status), Vec::new()),
            }
        }
    }

    /// Whether there may be more to do.
    fn read_head(&mut self) -> Result<bool, Rejection> {
        let (request, len) = match Request::parse(&self.input, &self.limits) {
            Parsed::Incomplete => return Ok(false),
            Parsed::Rejected(rejection) => return Err(rejection),
            Parsed::Complete(request, len) => (request, len),
        };
        if request.target.is_https() {
            return Err(Rejection::HTTPS_WITHOUT_TLS);
        }
        let reply = reply_to(self.setup, &request);
        let is_refused_early = reply.is_last && request.expects_continue;
        self.pending = Some(Pending {
            reader: BodyReader::new(request.framing, &self.limits),
            body: Vec::new(),
            waits_for_continue: request.expects_continue && request.framing.has_body(),
            reply,
        });
        self.input.drain(..len);
        if is_refused_early {
            self.finish();
        }
        Ok(true)
    }

    fn read_body(&mut self) -> Result<bool, Rejection> {
        let pending = self.pending.as_mut().expect("called with a request");
        let step = pending.reader.feed(&self.input)?;
        pending.body.extend_from_slice(&self.input[step.data.clone()]);
        self.input.drain(..step.consumed);
        if step.is_done {
            self.finish();
            return Ok(true);
        }
        if std::mem::take(&mut pending.waits_for_continue) && step.consumed == 0 {
            self.output.extend_from_slice(CONTINUE);
        }
        Ok(!self.input.is_empty())
    }

    fn finish(&mut self) {
        let Pending { reply, body, .. } = self.pending.take().expect("called with a request");
        self.answer(reply, body);
    }

    fn answer(&mut self, reply: Reply, echo: Vec<u8>) {
        let body = if reply.is_echo { echo } else { reply.body };
        let mut out = [0; 1024];
        let mut head = HeadWriter::new(&mut out, reply.status);
        head.date(&DateCache::new(stage::MODIFIED_S + 60))
            .connection(reply.version_minor, reply.is_last);
        for (name, value) in &reply.fields {
            head.field(name, value.as_bytes());
        }
        if reply.status.allows_body() {
            head.content_length(body.len() as u64);
        }
        let len = head.finish().expect("the answers of a model are short");
        self.output.extend_from_slice(&out[..len]);
        if reply.status.allows_body() && !reply.is_head {
            self.output.extend_from_slice(&body);
        }
        self.has_ended |= reply.is_last;
    }
}

impl Reply {
    fn of(status: Status) -> Self {
        let fields = Vec::new();
        let body = Vec::new();
        Self {
            status,
            fields,
            body,
            version_minor: 1,
            is_last: false,
            is_head: false,
            is_echo: false,
        }
    }

    fn refusal(status: Status) -> Self {
        Self { is_last: true, ..Self::of(status) }
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    fn body(self, body: &[u8]) -> Self {
        Self { body: body.to_vec(), ..self }
    }
}

fn reply_to(setup: Setup, request: &Request<'_>) -> Reply {
    let is_read = matches!(request.method, Method::Get | Method::Head);
    let is_write = matches!(request.method, Method::Post | Method::Put);
    let reply = match (setup, request.method) {
        (_, Method::Other(_)) => Reply::refusal(Status::NOT_IMPLEMENTED),
        (Setup::Echo, _) if is_read || is_write => Reply { is_echo: true, ..Reply::of(Status::OK) },
        (Setup::Reply, _) if is_read => Reply::of(Status::OK).body(&[b'x'; 128]),
        (Setup::Files, _) if is_read => {
            file_reply(request).unwrap_or_else(|rejection| Reply::refusal(rejection.status))
        }
        _ => Reply::refusal(Status::METHOD_NOT_ALLOWED).with("Allow", "GET, HEAD"),
    };
    Reply {
        version_minor: request.version_minor,
        is_last: reply.is_last || !request.keep_alive,
        is_head: request.method == Method::Head,
        ..reply
    }
}

fn file_reply(request: &Request<'_>) -> Result<Reply, Rejection> {
    let mut room = [0; 1024];
    let path = FilePath::decode(request.target.path().unwrap_or_default(), &mut room)?;
    let relative = String::from_utf8_lossy(path.relative);
    let mut name = match (path.is_directory, path.relative) {
        (true, b"") => "index.html".to_owned(),
        (true, _) => format!("{relative}/index.html"),
        (false, _) => relative.into_owned(),
    };
    if has(&format!("{name}/index.html")) {
        return Ok(Reply::of(Status::PERMANENT_REDIRECT).with("Location", format!("/{name}/")));
    }
    if !has(&name) {
        return Ok(Reply::of(Status::NOT_FOUND));
    }
    let variants = [("br", ".br"), ("zstd", ".zst"), ("gzip", ".gz")]
        .map(|(coding, suffix)| (coding, format!("{name}{suffix}")));
    let wanted = Acceptable::of(request.fields);
    let mut fields = Vec::new();
    if has(&variants[2].1) {
        use ContentCoding::{Brotli, Gzip, Identity, Zstd};
        fields.push(("Vary", "Accept-Encoding".to_owned()));
        let best = wanted.best(&[Brotli, Zstd, Gzip, Identity]).unwrap_or(Identity);
        if let Some((coding, variant)) = variants.into_iter().find(|(c, _)| *c == best.name()) {
            fields.push(("Content-Encoding", coding.to_owned()));
            name = variant;
        }
    }
    let reply = content_reply(request, stage::content(&name));
    Ok(Reply { fields: [reply.fields, fields].concat(), ..reply })
}

fn has(path: &str) -> bool {
    stage::FILES.iter().any(|(name, _)| *name == path)
}

fn content_reply(request: &Request<'_>, content: &[u8]) -> Reply {
    let whole = content.len() as u64;
    let representation = Representation {
        etag: EntityTag::parse(TAG),
        modified_s: Some(stage::MODIFIED_S),
        len_bytes: whole,
    };
    let tagged = |status| {
        let tag = String::from_utf8_lossy(TAG);
        Reply::of(status).with("ETag", tag).with("Last-Modified", stage::MODIFIED)
    };
    match evaluate(request.method, request.fields, &representation) {
        Outcome::Whole => tagged(Status::OK).with("Content-Type", "text/plain").body(content),
        Outcome::Part(part) => {
            let first = part.offset;
            let end = part.offset + part.len_bytes;
            tagged(Status::PARTIAL_CONTENT)
                .with("Content-Range", format!("bytes {first}-{}/{whole}", end - 1))
                .body(&content[first as usize..end as usize])
        }
        Outcome::NotModified => tagged(Status::NOT_MODIFIED),
        Outcome::PreconditionFailed => Reply::of(Status::PRECONDITION_FAILED),
        Outcome::Unsatisfiable => Reply::of(Status::RANGE_NOT_SATISFIABLE)
            .with("Content-Range", format!("bytes */{whole}")),
    }
}
