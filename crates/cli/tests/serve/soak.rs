//! Random clients against every driver, with one and with two threads: afterwards every
//! connection is accounted for, no descriptor and no memory is kept, and the healthy clients
//! beside them had every answer right. `POLLUX_SOAK_S` says how long for each driver and
//! `POLLUX_SOAK_POLLER` names one of them; what failed can be repeated with `POLLUX_SOAK_SEED`.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pollux_engine::Driver;
use pollux_stats::Rng;
use rustix::net::sockopt::set_socket_linger;

use crate::child::{Metrics, Server, Wire, alone};

const SOAK_S_DEFAULT: u64 = 1;
/// Memory that a second phase, as wild as the first, may leave behind: what the allocator keeps
/// in pieces, far below what its thousands of connections would leak at a kilobyte each.
const GROWTH_BYTES_MAX: u64 = 1 << 20;
/// Memory that each completion loop maps at its start, receive buffers and arena: a long burst
/// may touch parts of it for the first time in the second phase.
const RING_BYTES: u64 = 2 << 20;
/// Largest body of a healthy client.
const BODY_BYTES_MAX: usize = 300_000;
const FILE_SIZES: [usize; 6] = [0, 100, 5_000, 33_000, 400_000, 3_000_000];

/// Connections that one client has open at most.
const OPEN_MAX: usize = 40;
/// Largest script.
const SCRIPT_BYTES_MAX: usize = 1 << 21;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Service {
    Echo,
    Files,
}

#[derive(Clone, Copy)]
struct Arm {
    service: Service,
    threads: u64,
    listeners: &'static str,
}

/// Both services with one and with two threads, and all ways to share a listener.
const ARMS: [Arm; 5] = [
    Arm { service: Service::Echo, threads: 1, listeners: "reuseport" },
    Arm { service: Service::Echo, threads: 2, listeners: "reuseport" },
    Arm { service: Service::Echo, threads: 2, listeners: "exclusive" },
    Arm { service: Service::Files, threads: 1, listeners: "reuseport" },
    Arm { service: Service::Files, threads: 2, listeners: "single" },
];

/// Connections and requests that were answered.
#[derive(Clone, Copy, Default)]
struct Done {
    connects: u64,
    requests: u64,
}

#[test]
fn random_clients_leave_nothing_behind_and_harm_no_other_client() {
    let _turn = alone();
    let seconds = number_of("POLLUX_SOAK_S").unwrap_or(SOAK_S_DEFAULT);
    let seed = number_of("POLLUX_SOAK_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("{seconds} s for each driver, POLLUX_SOAK_SEED={seed}");
    let site = Site::new();
    let each = Duration::from_secs(seconds) / ARMS.len() as u32;
    let only = std::env::var("POLLUX_SOAK_POLLER").ok();
    let is_wanted = |driver: &&str| only.as_ref().is_none_or(|only| only == driver);
    for driver in Driver::ALL.iter().map(|driver| driver.name()).filter(is_wanted) {
        for arm in ARMS {
            soak(driver, arm, seed, each, &site);
        }
    }
}

fn number_of(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {value}")))
}

fn soak(driver: &str, arm: Arm, seed: u64, time: Duration, site: &Site) {
    let Arm { service, threads, listeners } = arm;
    let root = site.root.display().to_string();
    let count = threads.to_string();
    let mut flags = vec!["--threads", &count, "--listeners", listeners, "--drain-timeout", "2s"];
    match service {
        Service::Echo => flags.push("--echo"),
        Service::Files => flags.push(&root),
    }
    let Some(server) = Server::start(driver, &flags) else { return };
    let what = format!("{driver}, {service:?}, {threads} threads, {listeners}, seed {seed}");
    // What the first phase leaves behind is there once; the second may add nothing to it.
    let first = phase(&server, service, seed, time * 2 / 5);
    server.await_rest();
    let resident = server.resident_bytes();
    let descriptors = server.descriptors();
    let second = phase(&server, service, seed + 1, time * 3 / 5);
    let metrics = server.await_rest();
    let grown = server.resident_bytes().saturating_sub(resident);
    let connects = first.connects + second.connects;
    let requests = first.requests + second.requests;
    println!("{what}: {connects} connections, {requests} checked answers, {grown} bytes grown");
    assert_eq!(server.descriptors(), descriptors, "{what}: descriptors");
    let touched = if driver == "uring" { threads * RING_BYTES } else { 0 };
    assert!(grown <= GROWTH_BYTES_MAX + touched, "{what}: {grown} bytes more memory");
    explain(&what, &metrics, connects, requests);
    server.end_after_random_bytes();
}

/// Every connection and every answer has to be in the counters.
fn explain(what: &str, metrics: &Metrics, connects: u64, requests: u64) {
    let count = |name| metrics.sum(name);
    let shown = || format!("{what}:\n{}", metrics.shown());
    assert_eq!(count("loop_accepted_total"), connects, "{}", shown());
    assert_eq!(count("connections_closed_total"), connects, "{}", shown());
    assert_eq!(count("loop_handed_out_total"), count("loop_adopted_total"), "{}", shown());
    let asked = count("http_requests_total");
    let answered = count("http_answers_total");
    let refused = count("http_refusals_total");
    let incomplete = count("http_incomplete_total");
    assert!(answered >= requests && asked >= requests, "{}", shown());
    assert!(answered <= asked + refused, "more answers than requests: {}", shown());
    // A request without an answer is one whose connection ended within its body: by the peer's
    // end, which is counted as incomplete, or in any way but a quiet one.
    let quiet = ["session", "peer_closed"]
        .map(|cause| metrics.sum_of("connections_closed_total", &format!("cause=\"{cause}\"")));
    let broken = connects - quiet.iter().sum::<u64>();
    println!(
        "  closed quietly {quiet:?}, otherwise {broken}; requests {asked}, answers {answered}"
    );
    assert!(asked <= answered + incomplete + broken, "{}", shown());
    assert!(incomplete <= connects, "{}", shown());
    assert_eq!(count("http_timeouts_idle_total"), 0, "{}", shown());
}

fn phase(server: &Server, service: Service, seed: u64, time: Duration) -> Done {
    let end = Instant::now() + time;
    let paths: Vec<String> = FILE_SIZES.iter().map(|size| format!("/{size}")).collect();
    let target = Target { address: server.address, paths: &paths };
    std::thread::scope(|scope| {
        let wild = scope.spawn(move || rage(target, Random::new(seed, 1), end));
        let healthy: Vec<_> = (2..4)
            .map(|stream| {
                let random = Random::new(seed, stream);
                scope.spawn(move || healthy(service, target.address, random, end))
            })
            .collect();
        let connects = wild.join().expect("the wild client only sends");
        let done = Done { connects, requests: 0 };
        healthy.into_iter().fold(done, |done, client| {
            let own = client.join().expect("every answer was right");
            Done { connects: done.connects + own.connects, requests: done.requests + own.requests }
        })
    })
}

/// Asks in all ways that are right, and checks every answer.
fn healthy(service: Service, address: SocketAddr, mut random: Random, end: Instant) -> Done {
    let mut done = Done::default();
    // Once at least, however busy the machine is.
    while done.requests == 0 || Instant::now() < end {
        let mut wire = Wire::connect(address);
        done.connects += 1;
        for _ in 0..=random.size(64) {
            let exchange = match service {
                Service::Echo => Exchange::echo(&mut random),
                Service::Files => Exchange::files(&mut random),
            };
            done.requests += exchange.hold(&mut wire);
            if Instant::now() >= end {
                break;
            }
        }
    }
    done
}

/// Requests that are sent at once, and what they must be answered with.
#[derive(Default)]
struct Exchange {
    sent: Vec<u8>,
    heads: Vec<bool>,
    expected: Vec<(u16, Vec<u8>)>,
}

impl Exchange {
    fn echo(random: &mut Random) -> Self {
        let mut exchange = Self::default();
        for _ in 0..=random.size(16) {
            let len = random.size(BODY_BYTES_MAX);
            let body = random.bytes(len);
            let is_chunked = random.below(3) == 0;
            let framing = if is_chunked {
                "Transfer-Encoding: chunked".to_owned()
            } else {
                format!("Content-Length: {}", body.len())
            };
            exchange
                .sent
                .extend(format!("POST / HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n").bytes());
            if is_chunked {
                for chunk in body.chunks(random.size(9000) + 1) {
                    exchange.sent.extend(format!("{:x}\r\n", chunk.len()).bytes());
                    exchange.sent.extend(chunk.iter().chain(b"\r\n"));
                }
                exchange.sent.extend(b"0\r\n\r\n");
            } else {
                exchange.sent.extend(&body);
            }
            exchange.heads.push(false);
            exchange.expected.push((200, body));
        }
        exchange
    }

    fn files(random: &mut Random) -> Self {
        let mut exchange = Self::default();
        for _ in 0..=random.size(16) {
            let size = random.of(&FILE_SIZES);
            let is_head = random.below(4) == 0;
            let from = random.below(size + 1);
            let is_part = !is_head && from < size && random.below(2) == 0;
            let method = if is_head { "HEAD" } else { "GET" };
            let field = if is_part { format!("Range: bytes={from}-\r\n") } else { String::new() };
            let head = format!("{method} /{size} HTTP/1.1\r\nHost: h\r\n{field}\r\n");
            exchange.sent.extend(head.bytes());
            exchange.heads.push(is_head);
            exchange.expected.push(match (is_head, is_part) {
                (true, _) => (200, Vec::new()),
                (_, true) => (206, content(size).split_off(from)),
                _ => (200, content(size)),
            });
        }
        exchange
    }

    /// Says how many answers came; all of them have to.
    fn hold(self, wire: &mut Wire) -> u64 {
        let answers = wire.ask(&self.sent, &self.heads).expect("all answers");
        for (at, (answer, (status, body))) in answers.iter().zip(&self.expected).enumerate() {
            assert_eq!(answer.status, *status, "answer {at} of {}", answers.len());
            assert!(answer.body == *body, "answer {at} of {}: another body", answers.len());
        }
        answers.len() as u64
    }
}

/// A folder with a file of each size.
struct Site {
    root: PathBuf,
}

impl Site {
    fn new() -> Self {
        let name = format!("soak-site-{}", std::process::id());
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&root).expect("a folder");
        for size in FILE_SIZES {
            std::fs::write(root.join(size.to_string()), content(size)).expect("written");
        }
        Self { root }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

/// Bytes that differ from place to place and from file to file.
fn content(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ size) as u8).collect()
}

/// What a chaotic client knows of the server.
#[derive(Clone, Copy)]
struct Target<'a> {
    address: SocketAddr,
    /// Paths that exist.
    paths: &'a [String],
}

struct Victim {
    stream: TcpStream,
    script: Vec<u8>,
    sent: usize,
}

/// Does what clients should not, until `end`: scripts of requests, parts of requests and garbage, sent and read in
/// pieces at random, half-closed, reset, or left alone. Nothing blocks, and nothing of what comes is looked at: that
/// is the healthy clients' part. Says how many connections it made.
fn rage(target: Target<'_>, mut random: Random, end: Instant) -> u64 {
    let mut open = Vec::<Victim>::new();
    let mut connects = 0;
    while Instant::now() < end {
        if open.is_empty() || open.len() < OPEN_MAX && random.below(4) == 0 {
            open.push(Victim::connect(target, &mut random));
            connects += 1;
        }
        let place = random.below(open.len());
        if !open[place].act(&mut random) {
            open.swap_remove(place);
        }
    }
    connects
}

impl Victim {
    fn connect(target: Target<'_>, random: &mut Random) -> Self {
        let stream = TcpStream::connect(target.address).expect("connected");
        stream.set_nonblocking(true).expect("set");
        let mut script = Vec::new();
        for _ in 0..random.size(32) {
            fragment(&mut script, target, random);
            script.truncate(SCRIPT_BYTES_MAX);
        }
        Self { stream, script, sent: 0 }
    }

    /// Does something; false when the connection is over.
    fn act(&mut self, random: &mut Random) -> bool {
        match random.below(32) {
            0..14 => {
                let len = random.size(self.script.len() - self.sent + 1);
                let piece = &self.script[self.sent..(self.sent + len).min(self.script.len())];
                match self.stream.write(piece) {
                    Ok(written) => self.sent += written,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => return false,
                }
            }
            14..26 => {
                let mut room = vec![0; random.size(1 << 18) + 1];
                match self.stream.read(&mut room) {
                    Ok(0) => return false,
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => return false,
                }
            }
            26..28 => {
                let _ = self.stream.shutdown(Shutdown::Write);
            }
            28 => {
                set_socket_linger(&self.stream, Some(Duration::ZERO)).expect("set");
                return false;
            }
            29 => return false,
            _ => {}
        }
        true
    }
}

/// Adds a part of a script.
fn fragment(script: &mut Vec<u8>, Target { paths, .. }: Target<'_>, random: &mut Random) {
    let path = &paths[random.below(paths.len())];
    match random.below(13) {
        0 => {
            let len = random.size(2000);
            script.extend(random.bytes(len));
        }
        // The begin of a TLS ClientHello, which random bytes would be too seldom to be seen in each run.
        11 => script.extend(b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03"),
        1..5 => {
            let method = random.of(&["GET", "GET", "HEAD", "OPTIONS", "DELETE", "BREW"]);
            let field =
                random.of(&["", "Connection: close\r\n", "Range: bytes=5-\r\n", "X : y\r\n"]);
            script.extend(format!("{method} {path} HTTP/1.1\r\nHost: h\r\n{field}\r\n").bytes());
        }
        5 => {
            let head = format!("GET {path} HTTP/1.1\r\nHost: h\r\nA: b\r\n\r\n");
            script.extend(&head.as_bytes()[..random.below(head.len())]);
        }
        6..9 => {
            let len = random.size(1 << 20);
            let said = random.of(&[0, 0, 0, 7]);
            let expect = random.of(&["", "", "Expect: 100-continue\r\n"]);
            let length = len + said;
            let head =
                format!("POST {path} HTTP/1.1\r\nHost: h\r\n{expect}Content-Length: {length}");
            script.extend(head.bytes().chain(*b"\r\n\r\n"));
            script.resize(script.len() + len, b'b');
        }
        9..11 => {
            let head = "Host: h\r\nTransfer-Encoding: chunked\r\n\r\n";
            script.extend(format!("PUT {path} HTTP/1.1\r\n{head}").bytes());
            for _ in 0..random.size(64) {
                let len = random.size(5000) + 1;
                script.extend(format!("{len:x}\r\n{}\r\n", "c".repeat(len)).bytes());
            }
            script.extend(random.of(&["0\r\n\r\n", "0\r\nX: y\r\n\r\n", "g\r\n", ""]).bytes());
        }
        _ => script.extend(b"\r\n"),
    }
}

/// Choices that follow from a seed, so that a run can be repeated.
struct Random(Rng);

impl Random {
    /// `stream` tells generators of one seed apart.
    fn new(seed: u64, stream: u64) -> Self {
        Self(Rng::stream(seed, stream))
    }

    /// A number below `end`, which is not 0.
    fn below(&mut self, end: usize) -> usize {
        self.0.below(end)
    }

    /// One of `choices`.
    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Small sizes often, sizes up to `max` sometimes.
    fn size(&mut self, max: usize) -> usize {
        let bits = self.below(max.ilog2() as usize + 1);
        self.below((1 << bits) + 1).min(max)
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> =
            (0..len.div_ceil(8)).flat_map(|_| self.0.next_u64().to_le_bytes()).collect();
        bytes.truncate(len);
        bytes
    }
}
