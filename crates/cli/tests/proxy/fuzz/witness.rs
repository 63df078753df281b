//! What the proxy sends to backends, written down: by a backend that reads strictly, and by one that gets the same
//! bytes through nginx.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use pollux_testing::{DEADLINE, Process, has, uninterrupted, wait_until};
use tempfile::TempDir;

use super::strict::{self, Head, Writer, canonical, end_to_end, mark, waits_to_proceed};

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
        let over = Arc::clone(&is_over);
        let play = Arc::new(play);
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
    while let Ok(len @ 1..) = uninterrupted(|| socket.read(&mut buffer)) {
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
        let bytes = Vec::new();
        let writer = Writer::Proxy;
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
        let head = &self.head;
        let bytes = self.bytes.escape_ascii();
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

/// A running nginx: a second reader of what the proxy sends, which passes requests on to a backend that says what
/// it was asked to.
pub(super) struct Nginx {
    process: Process,
    folder: TempDir,
}

impl Nginx {
    /// One that passes requests on to that address; none where nginx is not installed.
    pub(crate) fn start(origin: SocketAddr) -> Option<Self> {
        if !has("nginx") {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().display();
        let config = format!(
            "daemon off; master_process off; pid {path}/pid; error_log {path}/error.log;\n\
             events {{ worker_connections 512; }}\n\
             http {{\n\
             access_log off; merge_slashes off; underscores_in_headers on;\n\
             client_header_buffer_size 64k; large_client_header_buffers 4 64k;\n\
             client_max_body_size 0; client_body_buffer_size 256k;\n\
             client_body_temp_path {path}/body; proxy_temp_path {path}/proxy;\n\
             fastcgi_temp_path {path}/fastcgi; uwsgi_temp_path {path}/uwsgi; scgi_temp_path {path}/scgi;\n\
             keepalive_requests 1000000; keepalive_timeout 600s;\n\
             server {{ listen unix:{path}/nginx.sock; location / {{\n\
             proxy_pass http://{origin}; proxy_http_version 1.1; proxy_set_header Connection close;\n\
             proxy_set_header Host $http_host; proxy_ignore_client_abort on;\n\
             }} }} }}\n"
        );
        let file = folder.path().join("nginx.conf");
        std::fs::write(&file, config).expect("written");
        let mut command = Command::new("nginx");
        command.arg("-c").arg(&file).arg("-p").arg(folder.path());
        command.arg("-e").arg(folder.path().join("error.log"));
        let mut nginx = Self { process: Process::start(command.stdin(Stdio::null())), folder };
        wait_until("nginx", || {
            let log = || std::fs::read_to_string(nginx.folder.path().join("error.log"));
            assert!(nginx.process.status().is_none(), "nginx ended: {:?}", log());
            UnixStream::connect(nginx.socket()).is_ok()
        });
        Some(nginx)
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> PathBuf {
        Path::join(self.folder.path(), "nginx.sock")
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
        while let Ok(len @ 1..) = uninterrupted(|| socket.read(&mut buffer)) {
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
