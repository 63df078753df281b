//! What a fuzzed client sends: sound requests, and odd ones among them.
//!
//! Each request has a target of its own, so that it is known again wherever it comes out. Bodies hold
//! requests too, with targets that no client asks for. What makes a request odd: framing that can be read in two
//! ways, line ends, white space, targets, versions and amounts. Some of these are allowed after all; what follows is
//! for the judges to say.

use super::Random;

/// What a backend must never be asked for.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: x\r\nX-Id: smuggled\r\n\r\n";

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

    fn drop_framing(&mut self) {
        let is_framing = |line: &Vec<u8>| {
            let line = line.to_ascii_lowercase();
            line.starts_with(b"content-length") || line.starts_with(b"transfer-encoding")
        };
        self.fields.retain(|line| !is_framing(line));
    }

    fn add_one(&mut self, random: &mut Random, of: &[&str]) {
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
    let mut out = Vec::new();
    let mut rest = data;
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

const LENGTHS: &[&str] = &[
    "Content-Length: +{}",
    "Content-Length: -{}",
    "Content-Length: {}, {}",
    "Content-Length: {},{}0",
    "Content-Length: 000{}",
    "Content-Length: 0x{}",
    "Content-Length: {} 1",
    "Content-Length: {}_0",
    "Content-Length: {}.0",
    "Content-Length: \"{}\"",
    "Content-Length: {}\x0b",
    "Content-Length: 9999999999999999999{}",
    "Content-Length : {}",
    "Content-Length\t: {}",
    "Content_Length: {}",
    "Content-Length: {}\rX: y",
    "Content-Length:",
    "Content-Length: 0",
    "Content-Length: 5",
];

const CODINGS: &[&str] = &[
    "Transfer-Encoding: chunked",
    "Transfer-Encoding:chunked ",
    "Transfer-Encoding: \tchunked\t",
    "Transfer-Encoding: chunked, chunked",
    "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding: identity, chunked",
    "Transfer-Encoding: identity",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding: chunked;q=1",
    "Transfer-Encoding: \x0bchunked",
    "Transfer-Encoding: chunked\x0c",
    "Transfer-Encoding: \"chunked\"",
    "Transfer-Encoding: chunke",
    "Transfer-Encoding: chunked,",
    "Transfer-Encoding: ,chunked",
    "Transfer-Encoding:",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding\0: chunked",
    " Transfer-Encoding: chunked",
    "Transfer_Encoding: chunked",
    "Transfer\tEncoding: chunked",
    "TrAnSfEr-EnCoDiNg: cHuNkEd",
    "X: y\nTransfer-Encoding: chunked",
    "X: y\rTransfer-Encoding: chunked",
    "Transfer-Encoding:\r\n chunked",
];

const ODD_CHUNKS: &[&str] = &[
    "0x5\r\nabcde\r\n0\r\n\r\n",
    " 5\r\nabcde\r\n0\r\n\r\n",
    "5 \r\nabcde\r\n0\r\n\r\n",
    "+5\r\nabcde\r\n0\r\n\r\n",
    "-5\r\nabcde\r\n0\r\n\r\n",
    "5\nabcde\r\n0\r\n\r\n",
    "5\rabcde\r\n0\r\n\r\n",
    "5\r\nabcde\n0\r\n\r\n",
    "5\r\nabcde0\r\n\r\n",
    "5\r\nabcdef\r\n0\r\n\r\n",
    "5\r\nabcd\r\n0\r\n\r\n",
    "5\r\nabcde\r\n0\n\r\n",
    "5\r\nabcde\r\n0\r\r\n\r\n",
    "5\r\nabcde\r\n0\r\n\n",
    "5\r\nabcde\r\n0\r\nA b: c\r\n\r\n",
    "5\r\nabcde\r\n0\r\nA: b\r\n c\r\n\r\n",
    "5\r\nabcde\r\n0\r\nTransfer-Encoding : x\r\n\r\n",
    "5;\r\nabcde\r\n0\r\n\r\n",
    "5;a\nb\r\nabcde\r\n0\r\n\r\n",
    "5;a=\"\r\nabcde\r\n0\r\n\r\n",
    "5;a\rb\r\nabcde\r\n0\r\n\r\n",
    "FFFFFFFFFFFFFFFF5\r\nabcde\r\n0\r\n\r\n",
    "FFFFFFFFFFFFFFFF\r\nabcde\r\n0\r\n\r\n",
    // Beyond 64 digits also where some are taken out.
    "00000000000000000000000000000000000000000000000000000000000000000000000000000005\r\nabcde\r\n0\r\n\r\n",
    "5\r\nabcde\r\n",
    "5\r\nabcde\r\n\r\n0\r\n\r\n",
    "\r\n0\r\n\r\n",
    "g\r\n\r\n0\r\n\r\n",
];

const LINES: &[&str] = &[
    "Host: y",
    "Host: x",
    "Host : y",
    "A: b\r\n c",
    "A: b\r\n\tc",
    " A: b",
    "\tA: b",
    "A : b",
    "A\t: b",
    "A: b\rc",
    "A: b\nHost: y",
    "A: b\n\r\nGET /smuggled HTTP/1.1\r\nHost: x",
    "A: b\r\rGET /smuggled HTTP/1.1",
    "A: b\0c",
    "A\0: b",
    "A: b\x7f",
    "A b: c",
    "no colon",
    ": no name",
    "A: b\r",
    "Expect: tea",
    "Expect: 100-continue, tea",
    "Upgrade: websocket\r\nConnection: upgrade",
    "Upgrade: h2c\r\nConnection: upgrade, http2-settings",
    "Connection: close",
    "Connection: Host, Content-Length, Transfer-Encoding, X-Id",
    "Connection: close, keep-alive",
    "Proxy-Authorization: Basic eA==",
    "Max-Forwards: 5",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "Content-Length: 5\r\nContent-Length: 5",
    "Content-Length: 5\r\nContent-Length: 6",
];

/// Each `{id}` is the target without its query.
const REQUEST_LINES: &[&str] = &[
    "GET http://a.example{id} HTTP/1.1",
    "GET HTTPS://a.example:81{id}?x HTTP/1.1",
    "GET http://{id} HTTP/1.1",
    "GET http://u:p@a{id} HTTP/1.1",
    "GET http://a b{id} HTTP/1.1",
    "GET ftp://a{id} HTTP/1.1",
    "GET a{id} HTTP/1.1",
    "GET *{id} HTTP/1.1",
    "GET {id}#f HTTP/1.1",
    "GET {id} x HTTP/1.1",
    "GET  {id} HTTP/1.1",
    "GET\t{id} HTTP/1.1",
    "GET {id}  HTTP/1.1",
    "GET {id} HTTP/1.1 ",
    "GET {id} HTTP/1.1\t",
    " GET {id} HTTP/1.1",
    "GET {id} HTTP/1.2",
    "GET {id} HTTP/1.10",
    "GET {id} HTTP/2.0",
    "GET {id} HTTP/0.9",
    "GET {id} http/1.1",
    "GET {id} HTTP/1,1",
    "GET {id} HTTP/1.1\rX",
    "GET {id}",
    "GET {id}\r\n",
    "GET {id}\0 HTTP/1.1",
    "GET {id}\x7f HTTP/1.1",
    "GET {id}\\..\\x HTTP/1.1",
    "get {id} HTTP/1.1",
    "G@T {id} HTTP/1.1",
    "BREW {id} HTTP/1.1",
    "CONNECT x:80 HTTP/1.1",
    "CONNECT {id} HTTP/1.1",
    "TRACE {id} HTTP/1.1",
    "OPTIONS * HTTP/1.1",
    "OPTIONS http://a HTTP/1.1",
    "PRI * HTTP/2.0",
    "POST {id} HTTP/1.0",
    "AMETHODTHATISMUCHLONGERTHANANYTHATISKNOWN {id} HTTP/1.1",
    "\r\n\r\nGET {id} HTTP/1.1",
    "\r\n\r\n\r\n\r\n\r\n\r\nGET {id} HTTP/1.1",
    "\nGET {id} HTTP/1.1",
    "\rGET {id} HTTP/1.1",
];

/// Changes a sound request in one of many ways.
fn make_odd(random: &mut Random, parts: &mut Parts) {
    let len = parts.body.len().to_string();
    match random.below(12) {
        0 => {
            let line = random.pick(LENGTHS).replace("{}", &len);
            if random.once_in(2) {
                parts.drop_framing();
            }
            parts.add(random, line);
        }
        1 => {
            if random.once_in(2) {
                parts.drop_framing();
            }
            parts.add_one(random, CODINGS);
            if random.once_in(2) {
                let data = data(random);
                parts.body = chunks(random, &data);
            }
        }
        2 => {
            parts.drop_framing();
            parts.add(random, "Transfer-Encoding: chunked");
            parts.body = random.pick(ODD_CHUNKS).as_bytes().to_vec();
            if random.once_in(4) {
                parts.add_one(random, &["Content-Length: 5", "Content-Length: 0"]);
            }
        }
        3 => {
            // A length that is not the body's.
            parts.drop_framing();
            let len = parts.body.len();
            let len = if random.once_in(2) { len + 1 + random.below(90) } else { len / 2 };
            parts.add(random, format!("Content-Length: {len}"));
        }
        4 | 5 => parts.add_one(random, LINES),
        6 | 7 => {
            let line = String::from_utf8_lossy(&parts.line).into_owned();
            let target = line.split(' ').nth(1).unwrap_or_default();
            let id = target.split(['?', '#']).next().unwrap_or_default();
            parts.line = random.pick(REQUEST_LINES).replace("{id}", id).into_bytes();
        }
        8 => {
            let end = *random.pick(&[b"\n".as_slice(), b"\r", b"\r\r\n", b"\n\r", b"\r\n "]);
            let at = random.below(parts.fields.len() + 1);
            match at.checked_sub(1) {
                _ if random.once_in(3) => parts.line_end = end,
                Some(at) => parts.fields[at].extend_from_slice(end),
                None => parts.line.extend_from_slice(end),
            }
        }
        9 => {
            if let Some(at) = parts.place("host") {
                parts.fields[at] = random
                    .pick(&[
                        "Host:",
                        "Host: x/y",
                        "Host: x y",
                        "Host: u@x",
                        "Host: x:y",
                        "Host: [::1",
                        "X: y",
                    ])
                    .as_bytes()
                    .to_vec();
            }
        }
        10 => match random.below(3) {
            0 => (0..120).for_each(|number| parts.fields.push(format!("X-{number}: y").into())),
            1 => parts.fields.push([b"X: ".to_vec(), vec![b'y'; 20_000]].concat()),
            _ => parts.line = format!("GET /{} HTTP/1.1", "long".repeat(2_500)).into_bytes(),
        },
        _ => {
            let name = *random.pick(&["content-length", "transfer-encoding", "x-id", "connection"]);
            if let Some(at) = parts.place(name) {
                let copy = parts.fields[at].clone();
                let other = copy.to_ascii_uppercase();
                let line = if random.once_in(2) { copy } else { other };
                parts.add(random, line);
            }
        }
    }
}

/// Changes, takes out, doubles or puts in some bytes of what was written last.
fn scramble(random: &mut Random, bytes: &mut Vec<u8>, begin: usize) {
    const BYTES: &[u8] = b"\r\n\0 \t:;,0915aHT/\x0b\x7f\xff";
    for _ in 0..1 + random.below(3) {
        if bytes.len() <= begin {
            return;
        }
        let at = begin + random.below((bytes.len() - begin).min(400));
        match random.below(4) {
            0 => bytes[at] = *random.pick(BYTES),
            1 => drop(bytes.remove(at)),
            2 => bytes.insert(at, *random.pick(BYTES)),
            _ => bytes.insert(at, bytes[at]),
        }
    }
}
