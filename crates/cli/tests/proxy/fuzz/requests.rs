//! What a fuzzed client sends: sound requests, and among them ones that `odd` changes.
//!
//! Each request has a target of its own, so that it is known again wherever it comes out. Bodies hold
//! requests too, with targets that no client asks for.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use pollux_testing::DEADLINE;

use super::Random;
use super::asker::{canonical, end_to_end, mark, waits_to_proceed};
use super::odd::{make_odd, scramble};
use super::strict::{self, Head, Writer};

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

// What the proxy sends to backends, written down: by a backend that reads strictly, and by one that
// gets the same bytes through nginx.

/// A request as a backend saw it.
pub(super) struct Seen {
    pub(crate) method: String,
    pub(crate) target: String,
    /// Head without what the proxy adds.
    pub(crate) head: String,
    /// None when its end did not come.
    pub(crate) body: Option<(usize, u64)>,
}

/// What backends have seen.
#[derive(Default)]
pub(super) struct Witness {
    /// Of the proxy, by the strict reader.
    pub(crate) direct: Mutex<Vec<Seen>>,
    /// Of nginx, which was sent a part of these.
    pub(crate) by_nginx: Mutex<Vec<Seen>>,
    /// What is wrong whatever clients sent.
    pub(crate) wrong: Mutex<Vec<String>>,
    /// Unasked bytes, by name, that a backend sent while a request was on its way to it.
    pub(crate) crossed: Mutex<Vec<String>>,
}

impl Witness {
    pub(crate) fn is_wrong(&self, what: impl Into<String>) {
        self.wrong.lock().expect("whole").push(what.into());
    }
}

/// A listener whose connections are played by one function each, in threads of their own.
pub(super) struct Stand {
    pub(crate) address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stand {
    pub(crate) fn start(play: impl Fn(u64, TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let is_over = Arc::<AtomicBool>::default();
        let (over, play) = (Arc::clone(&is_over), Arc::new(play));
        let thread = std::thread::spawn(move || {
            let mut playing = Vec::<JoinHandle<()>>::new();
            let mut number = 0;
            while let Ok((socket, _)) = listener.accept() {
                if over.load(SeqCst) {
                    break;
                }
                socket.set_nodelay(true).expect("set");
                let play = Arc::clone(&play);
                playing.retain(|thread| !thread.is_finished());
                playing.push(std::thread::spawn(move || play(number, socket)));
                number += 1;
            }
            playing.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
        });
        Self { address, is_over, thread: Some(thread) }
    }

    /// Waits until all connections have ended.
    pub(crate) fn end(mut self) {
        self.is_over.store(true, SeqCst);
        drop(TcpStream::connect(self.address));
        self.thread.take().expect("once").join().expect("it does not panic");
    }
}

/// A backend that writes down and answers with the target of each request.
pub(super) fn direct(witness: Arc<Witness>) -> Stand {
    Stand::start(move |_, socket| {
        answer_all(socket, Writer::Proxy, &witness, |witness| &witness.direct);
    })
}

/// A backend behind nginx.
pub(super) fn origin(witness: Arc<Witness>) -> Stand {
    Stand::start(move |_, socket| {
        answer_all(socket, Writer::Client, &witness, |witness| &witness.by_nginx);
    })
}

fn answer_all(
    mut socket: TcpStream,
    writer: Writer,
    witness: &Witness,
    list: impl Fn(&Witness) -> &Mutex<Vec<Seen>>,
) {
    let mut notes = Notes { writer, ..Notes::default() };
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(len @ 1..) = socket.read(&mut buffer) {
        notes.bytes.extend_from_slice(&buffer[..len]);
        let is_over = loop {
            match notes.next(witness) {
                Some(Step::Request(seen, is_head)) => {
                    let target = seen.target.clone();
                    list(witness).lock().expect("whole").push(seen);
                    if socket.write_all(&answer(&target, is_head)).is_err() {
                        break true;
                    }
                }
                Some(Step::GoOn) if socket.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").is_err() => {
                    break true;
                }
                Some(Step::GoOn) => {}
                Some(Step::Refused) => break true,
                None => break false,
            }
        };
        if is_over {
            break;
        }
    }
    list(witness).lock().expect("whole").extend(notes.rest());
}

/// Answers differ in their framing, each target has one.
fn answer(target: &str, is_head: bool) -> Vec<u8> {
    let len = target.len();
    let (fields, body) = match mark(target.as_bytes()).1 % 3 {
        0 => ("Transfer-Encoding: chunked".to_owned(), format!("{len:x}\r\n{target}\r\n0\r\n\r\n")),
        _ => (format!("Content-Length: {len}"), target.to_owned()),
    };
    let body = if is_head { "" } else { &body };
    format!("HTTP/1.1 200 OK\r\nX-Id: {target}\r\n{fields}\r\n\r\n{body}").into_bytes()
}

/// What came of a connection, up to now.
struct Notes {
    bytes: Vec<u8>,
    writer: Writer,
    /// The head whose body is on its way.
    head: Option<Head>,
    is_reported: bool,
    is_refused: bool,
}

impl Default for Notes {
    fn default() -> Self {
        let (bytes, writer) = (Vec::new(), Writer::Proxy);
        Self { bytes, writer, head: None, is_reported: false, is_refused: false }
    }
}

enum Step {
    /// A request is whole; whether it is HEAD.
    Request(Seen, bool),
    /// Its sender waits for a word before it sends the body.
    GoOn,
    Refused,
}

impl Notes {
    fn next(&mut self, witness: &Witness) -> Option<Step> {
        if self.is_refused {
            return None;
        }
        if self.head.is_none() {
            match strict::request(&self.bytes, self.writer) {
                Ok(None) => return None,
                Ok(Some(head)) => {
                    self.bytes.drain(..head.len);
                    self.head = Some(head);
                }
                Err(why) => return Some(self.refuse(witness, why)),
            }
        }
        let head = self.head.as_ref()?;
        match strict::body(&self.bytes, head.frame, self.writer) {
            Ok(None) if waits_to_proceed(head) && !self.is_reported => {
                self.is_reported = true;
                Some(Step::GoOn)
            }
            Ok(None) => None,
            Ok(Some((body, len))) => {
                self.bytes.drain(..len);
                self.is_reported = false;
                let head = self.head.take()?;
                let is_head = head.method == "HEAD";
                Some(Step::Request(seen(&head, Some(mark(&body)), self.writer), is_head))
            }
            Err(why) => Some(self.refuse(witness, why)),
        }
    }

    fn refuse(&mut self, witness: &Witness, why: &str) -> Step {
        let by = if self.writer == Writer::Proxy { "the proxy" } else { "nginx" };
        let (head, bytes) = (&self.head, self.bytes.escape_ascii());
        witness.is_wrong(format!("what {by} sent to a backend: {why}: {head:?} {bytes}"));
        self.is_refused = true;
        Step::Refused
    }

    /// What was begun and not ended.
    fn rest(self) -> Option<Seen> {
        self.head.map(|head| seen(&head, None, self.writer))
    }
}

fn seen(head: &Head, body: Option<(usize, u64)>, writer: Writer) -> Seen {
    let host = head.fields.first("host").map(|host| String::from_utf8_lossy(host).into_owned());
    let fields = if writer == Writer::Proxy { end_to_end(head, false) } else { Vec::new() };
    // Of HTTP/1.0 without Host: the backend's address.
    let host = host.filter(|host| !host.starts_with("127.0.0.1:"));
    Seen {
        method: head.method.clone(),
        target: head.target.clone(),
        head: canonical(&head.method, &head.target, host.as_deref(), &fields),
        body,
    }
}

/// A backend that passes all bytes on to nginx as they are and its answers back; what the proxy sent is
/// written down by the strict reader as well.
pub(super) fn tap(witness: Arc<Witness>, nginx: PathBuf) -> Stand {
    Stand::start(move |_, mut socket| {
        let mut there = UnixStream::connect(&nginx).expect("nginx listens");
        there.set_read_timeout(Some(DEADLINE)).expect("set");
        let mut back = there.try_clone().expect("a descriptor");
        let mut out = socket.try_clone().expect("a descriptor");
        let answers = std::thread::spawn(move || {
            drop(std::io::copy(&mut back, &mut out));
            let _ = out.shutdown(Shutdown::Both);
        });
        let mut notes = Notes::default();
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(len @ 1..) = socket.read(&mut buffer) {
            notes.bytes.extend_from_slice(&buffer[..len]);
            while let Some(step) = notes.next(&witness) {
                if let Step::Request(seen, _) = step {
                    witness.direct.lock().expect("whole").push(seen);
                }
            }
            if there.write_all(&buffer[..len]).is_err() {
                break;
            }
        }
        let _ = there.shutdown(Shutdown::Write);
        answers.join().expect("it does not panic");
        witness.direct.lock().expect("whole").extend(notes.rest());
    })
}
