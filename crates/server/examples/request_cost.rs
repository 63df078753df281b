//! Prints what one request costs the sessions, without any system call of a socket:
//! `cargo run --release -p pollux-server --example request_cost`.
//!
//! Requests come pipelined in batches, so the share of the rehearsal around the session is small; those of the proxy come
//! one by one, with a backend that is played beside. Those of HTTP/2 come in bursts of as many streams as the name says; of
//! `h2-open` ones all answers wait for their windows, which open one after the other. No head is like the one before it, unless the line says so: equal
//! ones are read once.
//!
//! With `count NAME ROUNDS` it plays that one and prints how many requests it was: `cargo xtask instructions` has
//! valgrind count the instructions, which do not depend on what else the machine does.
#![expect(clippy::print_stdout, reason = "an example's answer is what it prints")]

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use pollux_engine::{Command, ListenAddress, Now, Rehearsal, Session};
use pollux_server::config::ProxyConfig;
use pollux_server::{HttpSession, Logs, LoopState, ProxyConnection, ServerCounters};
use pollux_server::{ProxyCounters, SharedUpstreams, backends_of};
use pollux_settings::Given;

/// Requests in one batch: their answers fit the room of one call.
const BATCH: usize = 100;
/// The same of files, whose answers need more.
const BATCH_OF_FILES: usize = 8;
const ROUNDS: usize = 2000;

const LEAST: &str = "GET / HTTP/1.1\r\nHost: 127.0.0.1:7771\r\n\r\n";
const OF_AB: &str =
    "GET / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: x\r\nAccept: */*\r\n\r\n";
const OF_A_BROWSER: &str = "GET /assets/app.js?v=20260101 HTTP/1.1\r\nHost: www.example.org\r\n\
     User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
     Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
     Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n\
     Connection: keep-alive\r\n\r\n";
const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello";

/// What is played.
enum Play {
    Reply,
    Files,
    Proxy,
    /// A proxy by so many sites, with so many routes each.
    Sites(usize, usize),
    /// So many streams at a time, whose answers wait for their windows, or not.
    Streams(usize, bool),
}

/// A name, what answers, a request, and whether the next one is another.
const CASES: [(&str, Play, &str, bool); 15] = [
    ("reply-least", Play::Reply, LEAST, true),
    ("reply-ab", Play::Reply, OF_AB, true),
    ("reply-browser", Play::Reply, OF_A_BROWSER, true),
    ("reply-equal", Play::Reply, LEAST, false),
    ("file-browser", Play::Files, OF_A_BROWSER, true),
    ("file-equal", Play::Files, OF_A_BROWSER, false),
    ("proxy-browser", Play::Proxy, OF_A_BROWSER, true),
    ("proxy-equal", Play::Proxy, OF_A_BROWSER, false),
    ("sites-1-by-1", Play::Sites(1, 1), OF_A_BROWSER, true),
    ("sites-1000-by-20", Play::Sites(1000, 20), OF_A_BROWSER, true),
    ("h2-1", Play::Streams(1, false), "", false),
    ("h2-100", Play::Streams(100, false), "", false),
    ("h2-open-16", Play::Streams(16, true), "", false),
    ("h2-open-100", Play::Streams(100, true), "", false),
    ("h2-open-1000", Play::Streams(1000, true), "", false),
];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let counted = match arguments.as_slice() {
        [word, name, rounds] if word == "count" => Some((name, rounds.parse::<usize>()?)),
        _ => None,
    };
    for (name, play, request, is_varied) in CASES {
        if counted.is_some_and(|(only, _)| only != name) {
            continue;
        }
        let next = if is_varied { request.replace("Host", "HOST") } else { request.to_owned() };
        let mut played = Played::of(&play, request, &next)?;
        if let Some((_, rounds)) = counted {
            (0..rounds).for_each(|_| played.round());
            println!("{}", rounds * played.requests());
            continue;
        }
        let mut best = f64::MAX;
        for _ in 0..ROUNDS {
            let start = Instant::now();
            played.round();
            best = best.min(start.elapsed().as_secs_f64() * 1e9 / played.requests() as f64);
        }
        println!("{name:22} {:4} bytes  {best:6.1} ns", request.len());
    }
    Ok(())
}

/// What is played, with its input.
enum Played {
    Serve(Box<Served>),
    Proxy(Box<Proxied>),
    Streams(Box<Streams>),
}

impl Played {
    fn of(play: &Play, request: &str, next: &str) -> Result<Self, Box<dyn Error>> {
        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join("assets"))?;
        std::fs::write(folder.path().join("assets/app.js"), [b'x'; 2000])?;
        let (settings, requests) = match play {
            Play::Reply => ("reply = 128".to_owned(), BATCH),
            Play::Files => (format!("dir = {:?}", folder.path()), BATCH_OF_FILES),
            Play::Proxy => {
                let any = |port| {
                    Ok::<_, Box<dyn Error>>(ListenAddress::Tcp(
                        format!("127.0.0.1:{port}").parse()?,
                    ))
                };
                let config = ProxyConfig::new(vec![any(0)?], vec![any(9)?]);
                return Ok(Self::Proxy(Box::new(Proxied::new(&config, request, next)?)));
            }
            Play::Sites(sites, routes) => {
                let config = Given::from_toml(&sites_of(*sites, *routes), "example").read()?;
                return Ok(Self::Proxy(Box::new(Proxied::new(&config, request, next)?)));
            }
            Play::Streams(open, waits) => {
                return Ok(Self::Streams(Box::new(Streams::new(*open, *waits)?)));
            }
        };
        let config = Given::from_toml(&settings, "example").read()?;
        let shared = LoopState::new(&config, Arc::default(), &Logs::default())?;
        let input = format!("{request}{next}").repeat(requests / 2).into_bytes();
        let session = Rehearsal::new(shared, Now::default());
        Ok(Self::Serve(Box::new(Served { session, input, requests, _folder: folder })))
    }

    /// Requests of one round.
    fn requests(&self) -> usize {
        match self {
            Self::Serve(served) => served.requests,
            Self::Proxy(_) => 2,
            Self::Streams(streams) => streams.open,
        }
    }

    fn round(&mut self) {
        match self {
            Self::Serve(served) => {
                served.session.feed(black_box(&served.input));
                black_box(served.session.take_output());
            }
            Self::Proxy(proxied) => {
                proxied.ask(0);
                proxied.ask(1);
            }
            Self::Streams(streams) => streams.round(),
        }
    }
}

/// A client of the server.
struct Served {
    session: Rehearsal<HttpSession>,
    input: Vec<u8>,
    requests: usize,
    _folder: tempfile::TempDir,
}

/// A client of HTTP/2.
struct Streams {
    session: Rehearsal<HttpSession>,
    open: usize,
    waits: bool,
    next: u32,
    input: Vec<u8>,
}

/// Bytes of the body of an answer that waits for its window.
const WAITING_BYTES: u32 = 200;

impl Streams {
    fn new(open: usize, waits: bool) -> Result<Self, Box<dyn Error>> {
        let reply = if waits { WAITING_BYTES } else { 128 };
        let settings =
            format!("reply = {reply}\nhttp2_streams = {open}\nhttp2_requests = 1000000000\n");
        let config = Given::from_toml(&settings, "example").read()?;
        let shared = LoopState::new(&config, Arc::default(), &Logs::default())?;
        let mut session = Rehearsal::new(shared, Now::default());
        session.feed(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        // The window of each stream; those of the server are known.
        let window: u32 = if waits { 0 } else { 65_535 };
        session.feed(&frame(4, 0, 0, &[&[0, 4][..], &window.to_be_bytes()].concat()));
        session.feed(&frame(4, 1, 0, &[]));
        session.take_output();
        Ok(Self { session, open, waits, next: 1, input: Vec::new() })
    }

    fn round(&mut self) {
        let first = self.next;
        let bytes = u32::try_from(self.open).expect("few") * WAITING_BYTES;
        self.input.clear();
        self.input.extend_from_slice(&frame(8, 0, 0, &bytes.to_be_bytes()));
        for _ in 0..self.open {
            self.input.extend_from_slice(&frame(1, 5, self.next, b"\x82\x86\x84\x01\x01a"));
            self.next += 2;
        }
        self.session.feed(black_box(&self.input));
        black_box(self.session.take_output());
        if self.waits {
            self.input.clear();
            for stream in (first..self.next).step_by(2) {
                self.input.extend_from_slice(&frame(8, 0, stream, &WAITING_BYTES.to_be_bytes()));
            }
            self.session.feed(black_box(&self.input));
            black_box(self.session.take_output());
        }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).expect("small").to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A file of so many sites with so many routes each, of which the one in the middle has the host of a browser's request.
fn sites_of(sites: usize, routes: usize) -> String {
    let backend = "[[backend]]\nname = \"app\"\n[[backend.server]]\naddress = \"127.0.0.1:9\"\n";
    let mut text = format!("listen = \"127.0.0.1:0\"\n{backend}");
    for site in 0..sites {
        let host = if site == sites / 2 {
            "www.example.org".to_owned()
        } else {
            format!("s{site}.example.org")
        };
        text +=
            &format!("[[site]]\nhost = \"{host}\"\nroute = [{{ path = \"/\", backend = \"app\" }}");
        for route in 1..routes {
            text += &format!(", {{ path = \"/part{route}/\", backend = \"app\" }}");
        }
        text += "]\n";
    }
    text
}

/// A client and an upstream connection of one loop, and the backend behind it.
struct Proxied {
    client: Rehearsal<ProxyConnection>,
    upstream: Rehearsal<ProxyConnection>,
    requests: [Vec<u8>; 2],
}

impl Proxied {
    fn new(config: &ProxyConfig, request: &str, next: &str) -> Result<Self, Box<dyn Error>> {
        let shared = || {
            let upstreams = SharedUpstreams::new(config, backends_of(config));
            let counters = Arc::<ServerCounters>::default();
            let proxied = Arc::new(ProxyCounters::new(1));
            LoopState::for_proxy(0, config, &[], upstreams, counters, proxied, &Logs::default())
        };
        let now = Now::default();
        let mut client = Rehearsal::<ProxyConnection>::new(shared()?, now);
        client.feed(request.as_bytes());
        let Some(Command::Connect { session, .. }) =
            ProxyConnection::next_command(&mut client.shared)
        else {
            return Err("a first request opens a connection".into());
        };
        // What both share goes to the one that is called.
        let upstream = Rehearsal::outgoing(session, shared()?, now);
        let requests = [request, next].map(|request| request.as_bytes().to_vec());
        let mut proxied = Self { client, upstream, requests };
        proxied.swap();
        proxied.upstream.connected();
        proxied.answer();
        Ok(proxied)
    }

    fn swap(&mut self) {
        std::mem::swap(&mut self.client.shared, &mut self.upstream.shared);
    }

    fn ask(&mut self, which: usize) {
        self.client.feed(black_box(&self.requests[which]));
        self.swap();
        self.upstream.woken();
        self.answer();
    }

    /// The backend answers; the client gets it.
    fn answer(&mut self) {
        let asked = self.upstream.take_output();
        assert!(asked.ends_with(b"\r\n\r\n"), "{}", asked.escape_ascii());
        self.upstream.feed(black_box(ANSWER));
        self.swap();
        self.client.woken();
        let answer = self.client.take_output();
        assert!(answer.ends_with(b"hello"), "{}", answer.escape_ascii());
    }
}
