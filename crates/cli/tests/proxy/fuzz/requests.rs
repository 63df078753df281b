//! What a fuzzed client sends: sound requests, and among them ones that `odd` changes.
//!
//! Each request has a target of its own, so that it is known again wherever it comes out. Bodies hold
//! requests too, with targets that no client asks for.

use super::Random;
use super::odd::{make_odd, scramble};

/// What a backend must never be asked for.
pub(crate) const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: x\r\nX-Id: smuggled\r\n\r\n";

/// All that one connection sends, and where its requests begin.
pub(crate) struct Script {
    pub(crate) bytes: Vec<u8>,
    pub(crate) begins: Vec<usize>,
    /// Nothing was made odd: all of it has to be answered.
    pub(crate) is_sound: bool,
}

/// A request in parts.
pub(super) struct Parts {
    pub(super) line: Vec<u8>,
    /// Without their ends.
    pub(super) fields: Vec<Vec<u8>>,
    pub(super) line_end: &'static [u8],
    pub(super) body: Vec<u8>,
}

impl Parts {
    fn write(&self, out: &mut Vec<u8>) {
        for line in std::iter::once(&self.line).chain(&self.fields) {
            out.extend_from_slice(line);
            out.extend_from_slice(self.line_end);
        }
        out.extend_from_slice(self.line_end);
        out.extend_from_slice(&self.body);
    }

    pub(super) fn place(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|line| line.to_ascii_lowercase().starts_with(name.as_bytes()))
    }

    pub(super) fn drop_framing(&mut self) {
        let is_framing = |line: &Vec<u8>| {
            let line = line.to_ascii_lowercase();
            line.starts_with(b"content-length") || line.starts_with(b"transfer-encoding")
        };
        self.fields.retain(|line| !is_framing(line));
    }

    pub(super) fn add_one(&mut self, random: &mut Random, of: &[&str]) {
        let line = *random.pick(of);
        self.add(random, line);
    }

    pub(super) fn add(&mut self, random: &mut Random, line: impl Into<Vec<u8>>) {
        let at = random.below(self.fields.len() + 1);
        self.fields.insert(at, line.into());
    }
}

/// The script of a connection; `id` is its own alone.
pub(crate) fn script(random: &mut Random, id: &str) -> Script {
    let is_sound = random.once_in(3);
    let mut script = Script { bytes: Vec::new(), begins: Vec::new(), is_sound };
    let count = 1 + random.below(6);
    let odd = random.below(count);
    for number in 0..count {
        let mut parts = sound(random, &format!("{id}-{number}"));
        script.begins.push(script.bytes.len());
        if !is_sound && (number == odd || random.once_in(8)) {
            make_odd(random, &mut parts);
            let begin = script.bytes.len();
            parts.write(&mut script.bytes);
            if random.once_in(8) {
                scramble(random, &mut script.bytes, begin);
            }
        } else {
            parts.write(&mut script.bytes);
        }
    }
    script
}

fn sound(random: &mut Random, id: &str) -> Parts {
    let method = *random.pick(&["GET", "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"]);
    let rest = *random.pick(&[
        "",
        "",
        "?a=b&c",
        "/a/b?x=%20",
        "//a",
        "/%2e%2E/x",
        "/a;b=c,d",
        "/?q=http://x/",
        "/~!$&'()*+,;=:@",
    ]);
    let version = if random.once_in(12) { "HTTP/1.0" } else { "HTTP/1.1" };
    let line = format!("{method} /{id}{rest} {version}").into_bytes();
    let mut parts = Parts { line, fields: Vec::new(), line_end: b"\r\n", body: Vec::new() };
    parts.fields.push(format!("X-Id: {id}").into_bytes());
    if version == "HTTP/1.0" {
        parts.fields.push(b"Connection: keep-alive".to_vec());
    }
    for _ in 0..random.below(6) {
        let line = field(random);
        parts.add(random, line);
    }
    parts.add_one(random, &["Host: x", "host:x:80", "HOST: \ta.example\t", "Host: [::1]:8"]);
    let is_bare = matches!(method, "GET" | "HEAD" | "DELETE" | "OPTIONS");
    if !is_bare || random.once_in(6) {
        let data = data(random);
        if version == "HTTP/1.1" && random.once_in(2) {
            let coding = *random.pick(&["chunked", "Chunked", "CHUNKED"]);
            parts.add(random, format!("Transfer-Encoding: {coding}"));
            parts.body = chunks(random, &data);
        } else {
            parts.add(random, format!("Content-Length: {}", data.len()));
            parts.body = data;
        }
        if version == "HTTP/1.1" && random.once_in(6) {
            parts.add(random, "Expect: 100-continue");
        }
    }
    parts
}

fn field(random: &mut Random) -> Vec<u8> {
    const FIELDS: &[&[u8]] = &[
        b"Accept: */*",
        b"Cookie: a=b; c=\"d\"",
        b"Content-Type: text/plain",
        b"X-Empty:",
        b"X-Bytes: \x80\xff\xc3\xa4",
        b"X-Tab: a\tb",
        b"TE: trailers",
        b"Connection: keep-alive",
        b"Connection: X-Named, TE",
        b"X-Named: ends here",
        b"Keep-Alive: timeout=5",
        b"Proxy-Connection: keep-alive",
        b"X-Forwarded-For: 6.6.6.6",
        b"X-Forwarded-Host: other",
        b"X_Forwarded_For: 6.6.6.6",
        b"Forwarded: for=6.6.6.6",
        b"Upgrade: h2c",
        b"HTTP2-Settings: AAMAAABk",
        b"Trailer: X-T",
        b"Via: 1.1 before",
        b"Date: Sun, 06 Nov 1994 08:49:37 GMT",
        b"!#$%&'*+-.^_`|~: odd name",
        b"X-Request: GET /smuggled HTTP/1.1",
    ];
    if random.once_in(20) {
        return [b"X-Long: ".to_vec(), vec![b'l'; random.below(2_500)]].concat();
    }
    random.pick(FIELDS).to_vec()
}

/// A body: bytes of any kind, the ends of chunked bodies and requests among them.
pub(super) fn data(random: &mut Random) -> Vec<u8> {
    let len = random.len(100_000);
    let mut data = Vec::with_capacity(len);
    while data.len() < len {
        match random.below(5) {
            0 => data.extend_from_slice(SMUGGLED.as_bytes()),
            1 => data.extend_from_slice(b"\r\n0\r\n\r\n"),
            2 => data.extend_from_slice(&random.next().to_le_bytes()),
            _ => data.extend_from_slice(&vec![b'd'; 1 + random.below(300)]),
        }
    }
    data.truncate(len);
    data
}

pub(super) fn chunks(random: &mut Random, data: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), data);
    while !rest.is_empty() {
        let (chunk, behind) = rest.split_at(1 + random.below(rest.len().min(3_000)));
        let line = match random.below(6) {
            0 => format!("{:X}\r\n", chunk.len()),
            1 => format!("{:04x}\r\n", chunk.len()),
            2 => format!("{:x};a=b\r\n", chunk.len()),
            3 => format!("{:x} ; a = \"b;c\"\r\n", chunk.len()),
            _ => format!("{:x}\r\n", chunk.len()),
        };
        out.extend_from_slice(line.as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
        rest = behind;
    }
    out.extend_from_slice(random.pick::<&[u8]>(&[
        b"0\r\n\r\n",
        b"000\r\n\r\n",
        b"0\r\nX-T: trailer\r\n\r\n",
        b"0;last\r\nContent-Length: 5\r\nHost: other\r\n\r\n",
    ]));
    out
}
