//! Transcripts of both programs: for each file below `scenes`, what a client sends, and what `serve` and `proxy` make
//! of it: every byte, how the connection ends, and the lines of both logs.
//!
//! A change of behaviour shows as a difference of a file. Each scene is played on the kernel, against servers of
//! this process, whose counters are compared with the lines of the log (`books`); dates, durations and ports are masked. `POLLUX_BLESS=1 cargo test -p pollux-server --test
//! transcripts` writes the files anew.

mod books;
#[path = "../proxy/identity.rs"]
#[expect(dead_code, reason = "the tests of the proxy use the others")]
mod identity;
mod scene;

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use pollux_engine::ListenAddress;
use pollux_server::Server;
use pollux_server::config::ProxyConfig;
use pollux_server::config::ServeConfig;
use pollux_settings::Given;
use pollux_testing::{DEADLINE, uninterrupted, wait_until};

use books::Books;
use identity::Identity;
use scene::{Program, Scene, Script, Step};

const BLESS: &str = "POLLUX_BLESS";

#[test]
fn both_programs_do_what_their_transcripts_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts/scenes");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("the folder of the scenes")
        .map(|entry| entry.expect("read").path())
        .collect();
    paths.sort();
    assert!(paths.len() > 10, "{} scenes", paths.len());
    let mut differing = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("a text");
        let scene = Scene::parse(&text).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        let played = scene.with_results(|program| play(&scene, program));
        if played == text {
            continue;
        }
        if std::env::var_os(BLESS).is_some() {
            std::fs::write(&path, played).expect("written");
        } else {
            differing.push(format!("{}:\n{}", path.display(), difference(&text, &played)));
        }
    }
    assert!(
        differing.is_empty(),
        "{}\nIf that is meant: {BLESS}=1 cargo test -p pollux-server --test transcripts",
        differing.join("\n")
    );
}

/// The lines that only one of them has, with those around left out.
fn difference(old: &str, new: &str) -> String {
    let mut out = String::new();
    for (sign, lines, others) in [('-', old, new), ('+', new, old)] {
        for line in lines.lines().filter(|line| !others.lines().any(|other| other == *line)) {
            writeln!(out, "{sign} {line}").expect("a String");
        }
    }
    if out.is_empty() { format!("the order of lines differs; now:\n{new}") } else { out }
}

/// Plays the scene against a program: its transcript.
fn play(scene: &Scene, program: Program) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let access = folder.path().join("access");
    let errors = folder.path().join("errors");
    let identity = scene.has_tls.then(Identity::make);
    let mut settings = format!(
        "listen = \"127.0.0.1:0\"\nquiet = true\npoller = \"epoll-et\"\nlog_level = \"debug\"\n\
         error_log = {errors:?}\naccess_log = {access:?}\n"
    );
    if !scene.sets(program, "access_log_format") {
        settings.push_str("access_log_format = \"json\"\n");
    }
    if let Some(identity) = &identity {
        let keys = identity.keys();
        writeln!(settings, "cert = {:?}\nkey = {:?}", keys.cert, keys.key).expect("a String");
    }
    scene.settings(program).for_each(|line| settings.extend([line, "\n"]));
    let backend = Backend::start(scene.backend.clone());
    let server = match program {
        Program::Serve => {
            if !["reply", "echo", "dir"].iter().any(|key| scene.sets(program, key)) {
                settings.push_str("reply = 2\n");
            }
            let config: ServeConfig = Given::from_toml(&settings, "scene").read().expect("right");
            Server::start(&config).expect("started")
        }
        Program::Proxy => {
            writeln!(settings, "[[server]]\naddress = \"{}\"", backend.address).expect("a String");
            let config: ProxyConfig = Given::from_toml(&settings, "scene").read().expect("right");
            Server::start_proxy(&config).expect("started")
        }
    };
    let ListenAddress::Tcp(front) = server.addresses()[0] else { panic!("a TCP address") };
    let books = Books { sources: server.overview().loops.clone() };
    let mut client = Client::connect(front);
    for (at, step) in scene.steps.iter().enumerate() {
        match step {
            Step::Send(bytes) => {
                // With the end behind them they are one segment, and no race.
                client.cork(scene.steps.get(at + 1) == Some(&Step::HalfClose));
                client.send(bytes);
            }
            Step::Await(text) => client.read_until(text),
            Step::HalfClose => client.socket.shutdown(Shutdown::Write).expect("open"),
            Step::Drain => {
                server.drain();
                // From then on every session knows.
                let is_refused = || TcpStream::connect(front).is_err();
                wait_until("the listener to close", is_refused);
            }
            Step::BackendCloses => backend.closes(),
            Step::Reset => {
                // What came is part of the transcript; what is on its way may be lost.
                client.reset();
                break;
            }
        }
    }
    let end = client.end();
    let mut out = String::new();
    let shown = scene::shown(&client.received);
    shown.lines().for_each(|line| writeln!(out, "< {line}").expect("a String"));
    writeln!(out, "{end}").expect("a String");
    drop(client);
    // It ends with its last connection, when every line is written.
    server.drain();
    server.join().expect("ended");
    let read = |path: &Path| std::fs::read_to_string(path).expect("it was opened");
    if !scene.sets(program, "access_log_format") {
        let compared = books.compare(&read(&access));
        compared.unwrap_or_else(|wrong| panic!("{wrong}\n{}{out}", read(&access)));
    }
    for (log, lines) in [("access", read(&access)), ("error", read(&errors))] {
        for line in lines.lines() {
            let line = scene::masked(line).replace(&backend.address.to_string(), "BACKEND");
            writeln!(out, "{log}: {line}").expect("a String");
        }
    }
    out
}

/// The client, and what it received.
struct Client {
    socket: TcpStream,
    received: Vec<u8>,
    seen: usize,
    end: Option<&'static str>,
}

impl Client {
    fn connect(to: SocketAddr) -> Self {
        let socket = TcpStream::connect(to).expect("connected");
        socket.set_read_timeout(Some(DEADLINE)).expect("set");
        socket.set_write_timeout(Some(DEADLINE)).expect("set");
        socket.set_nodelay(true).expect("set");
        Self { socket, received: Vec::new(), seen: 0, end: None }
    }

    /// Sends; a server that has closed meanwhile shows in the end of the connection.
    fn send(&mut self, bytes: &[u8]) {
        let _ = self.socket.write_all(bytes);
    }

    fn cork(&self, is_corked: bool) {
        rustix::net::sockopt::set_tcp_cork(&self.socket, is_corked).expect("set");
    }

    fn read_until(&mut self, text: &[u8]) {
        loop {
            let news = &self.received[self.seen..];
            if let Some(at) = news.windows(text.len()).position(|window| window == text) {
                self.seen += at + text.len();
                return;
            }
            if !self.more() {
                return;
            }
        }
    }

    fn more(&mut self) -> bool {
        let mut piece = [0; 16 * 1024];
        match uninterrupted(|| self.socket.read(&mut piece)) {
            Ok(0) => self.end = Some("FIN"),
            Ok(len) => self.received.extend_from_slice(&piece[..len]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => self.end = Some("reset"),
            Err(error) => panic!("{error}, after {}", self.received.escape_ascii()),
        }
        self.end.is_none()
    }

    /// Reads until the connection ends; how it did.
    fn end(&mut self) -> &'static str {
        while self.end.is_none() && self.more() {}
        self.end.expect("it has ended")
    }

    fn reset(&mut self) {
        let linger = rustix::net::sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO));
        linger.expect("set");
        self.socket.shutdown(Shutdown::Read).expect("open");
        self.end = Some("the client resets");
    }
}

/// What stands behind the proxy.
struct Backend {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    /// Whether a connection that is to be cut may end.
    may_close: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Backend {
    fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let is_over = Arc::<AtomicBool>::default();
        let may_close = Arc::default();
        if script == Script::Missing {
            return Self { address, is_over, may_close, thread: None };
        }
        let over = Arc::clone(&is_over);
        let close = Arc::clone(&may_close);
        let thread = std::thread::spawn(move || {
            while let Ok((socket, _)) = listener.accept() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let script = script.clone();
                let close = Arc::clone(&close);
                std::thread::spawn(move || script.play(socket, &close));
            }
        });
        Self { address, is_over, may_close, thread: Some(thread) }
    }

    fn closes(&self) {
        *self.may_close.0.lock().expect("no panic") = true;
        self.may_close.1.notify_all();
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        thread.join().expect("it accepts");
    }
}

impl Script {
    /// One connection to the backend, until the other side ends it.
    fn play(&self, mut socket: TcpStream, may_close: &(Mutex<bool>, Condvar)) {
        socket.set_read_timeout(Some(DEADLINE)).expect("set");
        loop {
            let head = identity::head(&mut socket);
            if !head.ends_with("\r\n\r\n") {
                return;
            }
            let rest = |mut socket: TcpStream| drop(socket.read_to_end(&mut Vec::new()));
            let answer = match self {
                Self::Silent => return rest(socket),
                Self::Missing => unreachable!("nothing is accepted"),
                Self::Answers(answer) => {
                    read_body(&mut socket, &head);
                    answer
                }
                Self::Early(answer) => {
                    let _ = socket.write_all(answer);
                    if !answer.starts_with(b"HTTP/1.1 101") {
                        return rest(socket);
                    }
                    // A tunnel that gives back what it gets.
                    let mut from = socket.try_clone().expect("the same socket");
                    let _ = std::io::copy(&mut from, &mut socket);
                    return;
                }
                Self::Cuts(answer) => {
                    read_body(&mut socket, &head);
                    let is_closed = may_close.0.lock().expect("no panic");
                    // With the end behind it the answer is one segment.
                    rustix::net::sockopt::set_tcp_cork(&socket, *is_closed).expect("set");
                    let _ = socket.write_all(answer);
                    let waited =
                        may_close.1.wait_timeout_while(is_closed, DEADLINE, |closed| !*closed);
                    return drop(waited.expect("no panic"));
                }
            };
            let end = answer.windows(4).position(|window| window == b"\r\n\r\n");
            let len = if head.starts_with("HEAD ") { end.map(|end| end + 4) } else { None };
            let _ = socket.write_all(&answer[..len.unwrap_or(answer.len())]);
        }
    }
}

/// Reads the body that a head announces.
fn read_body(socket: &mut TcpStream, head: &str) {
    let head = head.to_ascii_lowercase();
    let len = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    if let Some(len) = len {
        let mut body = vec![0; len.parse().expect("a length")];
        let _ = socket.read_exact(&mut body);
    } else if head.contains("transfer-encoding: chunked") {
        let mut all = Vec::new();
        let mut byte = [0];
        while !all.ends_with(b"0\r\n\r\n") && socket.read_exact(&mut byte).is_ok() {
            all.push(byte[0]);
        }
    }
}
