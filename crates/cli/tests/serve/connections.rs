//! What many connections cost a server, from its own counters, which are exact: they are counted where the calls
//! are made. System calls for a connection and a request, descriptors, bytes of idle ones, of HTTP/2 too; and ten thousand
//! connects at once while live connections continue: none of them starves, no turn accepts more than its share, and the
//! kernel doesn't bring more than a few unasked. Times are printed only.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use pollux_testing::{DEADLINE, uninterrupted, wait_until};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};

use crate::child::{Answered, ClosedLoop, Metrics, Server, Wire, alone, raise_descriptor_limit};

const CONNECTIONS: usize = 256;
const REQUESTS: u64 = 20_000;

/// Calls that change what the poller watches.
fn changes(metrics: &Metrics) -> u64 {
    metrics.sum("poller_system_calls_total") - metrics.sum("poller_waits_total")
}

#[test]
fn a_keep_alive_connection_is_registered_and_no_more() {
    let _turn = alone();
    for driver in ["epoll", "epoll-et"] {
        let Some(server) = Server::start(driver, &["--reply", "128"]) else { continue };
        let before = changes(&server.metrics());
        ClosedLoop::connect(server.address, CONNECTIONS).run(|requests| requests >= REQUESTS);
        let each = (changes(&server.await_rest()) - before) as f64 / CONNECTIONS as f64;
        println!("{driver}: {each} epoll_ctl calls for each keep-alive connection");
        assert!(each <= 2.0, "{driver}: {each} epoll_ctl calls for each connection");
        server.end();
    }
}

#[test]
fn a_request_takes_few_system_calls() {
    let _turn = alone();
    let of_readiness: &[&str] =
        &["poller_system_calls_total", "loop_receives_total", "loop_sends_total"];
    let of_completion: &[&str] = &["loop_ring_enters_total"];
    for (driver, calls, calls_max) in
        [("epoll-et", of_readiness, 2.15), ("uring", of_completion, 0.15)]
    {
        let Some(server) = Server::start(driver, &["--reply", "128"]) else { continue };
        let sum = |metrics: &Metrics| calls.iter().map(|name| metrics.sum(name)).sum::<u64>();
        let mut live = ClosedLoop::connect(server.address, CONNECTIONS);
        let before = sum(&server.metrics());
        let requests = live.run(|requests| requests >= REQUESTS).requests();
        let each = (sum(&server.metrics()) - before) as f64 / requests as f64;
        println!("{driver}: {each:.3} system calls for each of {requests} requests");
        assert!(each <= calls_max, "{driver}: {each} system calls for each request");
        drop(live);
        server.await_rest();
        server.end();
    }
}

/// Descriptors that the server may have.
const DESCRIPTORS: u32 = 1024;
/// More than half of what is left beside listeners, logs and endpoints; less than three quarters.
const SILENT: usize = 500;

#[test]
fn silent_connections_beside_a_small_descriptor_limit_stop_no_answer() {
    let _turn = alone();
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("index.html"), "hello").expect("written");
    std::fs::write(folder.path().join("large"), vec![b'x'; 1 << 20]).expect("written");
    let folder = folder.path().to_str().expect("a plain path");
    for driver in ["epoll", "uring"] {
        let flags = [folder, "--header-timeout", "10m"];
        let Some(server) = Server::start_within(driver, &flags, Some(DESCRIPTORS)) else {
            continue;
        };
        let connect = |_| TcpStream::connect(server.address).expect("connected");
        let silent: Vec<TcpStream> = (0..SILENT).map(connect).collect();
        let mut live = Wire::connect(server.address);
        for (path, bytes) in [("/", 5), ("/large", 1 << 20)] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
            let answers = live.ask(request.as_bytes(), &[false]).expect("answered");
            assert_eq!((answers[0].status, answers[0].body.len()), (200, bytes), "{driver}");
        }
        let metrics = server.metrics();
        assert_eq!(metrics.sum("connections_open"), SILENT as u64 + 1, "{driver}");
        assert_eq!(metrics.sum("loop_full_pauses_total"), 0, "{driver}");
        drop((silent, live));
        server.await_rest();
        server.end();
    }
}

const IDLE: usize = 5000;
/// Some 250 on epoll-et, and what the heap had free when it was trimmed before the first count.
const BYTES_EACH_MAX: u64 = 320;
/// Requests of the warm-up, which touch every buffer of a loop.
const WARM_UP: u64 = 5000;

#[test]
fn an_idle_connection_costs_few_bytes() {
    let _turn = alone();
    let allowed = raise_descriptor_limit();
    assert!(allowed > IDLE + 300, "{allowed} descriptors are too few: ulimit -n");
    for driver in ["epoll-et", "uring"] {
        let Some(grown) = grown_for_each(driver) else { continue };
        assert!(grown.iter().all(|each| *each <= BYTES_EACH_MAX), "{driver}: {grown:?} bytes");
    }
}

/// Bytes for each idle connection to a new server: the first ones, and when as many were there before.
fn grown_for_each(driver: &str) -> Option<[u64; 2]> {
    let server = Server::start(driver, &["--reply", "128"])?;
    ClosedLoop::connect(server.address, 64).run(|requests| requests >= WARM_UP);
    server.await_rest();
    // The tables of the loop are small still, so their growth is counted.
    let before = server.resident_bytes();
    let grown = [(); 2].map(|()| {
        let idle = ClosedLoop::connect(server.address, IDLE);
        assert_eq!(server.metrics().sum("connections_open"), IDLE as u64);
        let each = server.resident_bytes().saturating_sub(before) / IDLE as u64;
        drop(idle);
        server.await_rest();
        each
    });
    println!("{driver}: {grown:?} bytes for each of {CONNECTIONS} idle connections");
    server.end();
    Some(grown)
}

/// Connections of either version.
const WORKED: usize = 2000;
/// Requests of each at once.
const BURST: usize = 16;
/// What one of HTTP/2 may cost more than one of HTTP/1.1, once it is idle.
const MORE_BYTES_MAX: u64 = 1024;

#[test]
fn an_idle_connection_of_http2_costs_a_kibibyte_more_at_most_whatever_it_did_before() {
    let _turn = alone();
    let allowed = raise_descriptor_limit();
    assert!(allowed > 2 * WORKED + 300, "{allowed} descriptors are too few: ulimit -n");
    // At once: what is waited for is that each server gives memory back.
    std::thread::scope(|scope| {
        for driver in ["epoll-et", "uring"] {
            scope.spawn(move || {
                if let Some(http1) = worked_and_idle(driver, Asker::of_http1, 0) {
                    worked_and_idle(driver, Asker::of_http2, http1 + MORE_BYTES_MAX);
                }
            });
        }
    });
}

/// Bytes for each connection to a new server that has had a burst answered and is idle, once they are at most `expected`.
fn worked_and_idle(driver: &str, open: fn(SocketAddr) -> Asker, expected: u64) -> Option<u64> {
    let server = Server::start(driver, &["--reply", "128"])?;
    // Every buffer of the loop is there then.
    (0..BURST).for_each(|_| open(server.address).ask());
    server.await_rest();
    let before = server.resident_bytes();
    let each = || server.resident_bytes().saturating_sub(before) / WORKED as u64;
    let mut askers: Vec<Asker> = (0..WORKED).map(|_| open(server.address)).collect();
    // Again when all of them are there.
    for _ in 0..2 {
        askers.iter_mut().for_each(Asker::ask);
    }
    let busy = each();
    let mut idle = busy;
    if expected > 0 {
        wait_until(format_args!("{driver}: {expected} bytes for each, {busy} were needed"), || {
            idle = each();
            idle <= expected
        });
    }
    println!("{driver}: {busy} bytes for each of {WORKED} connections, {idle} when they are idle");
    // They have lost nothing by it.
    askers.iter_mut().step_by(100).for_each(Asker::ask);
    drop(askers);
    server.await_rest();
    server.end();
    Some(idle)
}

/// A client that asks in bursts.
struct Asker {
    stream: TcpStream,
    /// The number of the next stream; none with HTTP/1.1.
    next: Option<u32>,
}

impl Asker {
    fn of_http1(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("connected");
        stream.set_read_timeout(Some(DEADLINE)).expect("set");
        Self { stream, next: None }
    }

    fn of_http2(address: SocketAddr) -> Self {
        let mut asker = Self { next: Some(1), ..Self::of_http1(address) };
        let start = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        asker.stream.write_all(start).expect("sent");
        asker
    }

    /// Sends a burst, and takes its answers.
    fn ask(&mut self) {
        let Some(first) = self.next else { return self.ask_by_http1() };
        let last = first + 2 * BURST as u32 - 2;
        self.next = Some(last + 2);
        let mut burst = Vec::new();
        for id in (first..=last).step_by(2) {
            // The first one puts its authority and agent into the table, the others name them.
            let block: &[u8] = match id {
                1 => b"\x82\x86\x84\x41\x0e127.0.0.1:8080\x7a\x0eh2load/1.52.00",
                _ => b"\x82\x86\x84\xbf\xbe",
            };
            burst.extend_from_slice(&[0, 0, block.len() as u8, 1, 5]);
            burst.extend_from_slice(&id.to_be_bytes());
            burst.extend_from_slice(block);
        }
        self.stream.write_all(&burst).expect("sent");
        loop {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).expect("a frame");
            let [_, high, low, kind, flags, id @ ..] = head;
            let mut payload = vec![0; (usize::from(high) << 8) + usize::from(low)];
            self.stream.read_exact(&mut payload).expect("its payload");
            let id = u32::from_be_bytes(id);
            assert!([0, 1, 4, 8].contains(&kind), "no RST_STREAM, GOAWAY or other: {head:?}");
            if (kind, flags) == (4, 0) {
                self.stream.write_all(b"\0\0\0\x04\x01\0\0\0\0").expect("sent");
            }
            if (kind, flags & 1, id) == (0, 1, last) {
                return;
            }
        }
    }

    fn ask_by_http1(&mut self) {
        let request =
            "GET / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: h2load/1.52.00\r\n\r\n";
        self.stream.write_all(request.repeat(BURST).as_bytes()).expect("sent");
        let mut answers = Vec::new();
        let mut room = [0; 16 * 1024];
        let whole = |answers: &[u8]| {
            let head = answers.windows(4).position(|end| end == b"\r\n\r\n")?;
            // All are equal, but for a date.
            (answers.len() == BURST * (head + 4 + 128)).then_some(())
        };
        while whole(&answers).is_none() {
            let read = uninterrupted(|| self.stream.read(&mut room)).expect("answers");
            assert!(read > 0, "the connection ended");
            answers.extend_from_slice(&room[..read]);
        }
    }
}

const LIVE: usize = 64;
const CONNECTS_MAX: usize = 10_000;
/// Descriptors of this process for all else.
const DESCRIPTORS_KEPT: usize = 500;
/// How long the live connections are looked at before the storm.
const CALM: Duration = Duration::from_secs(1);
/// Most connections that a loop accepts in a turn, as `Limits` has it.
const ACCEPTS_PER_TURN: u64 = 64;
/// Most completions in a turn that are not receives: four armed accepts, the waker, the alarm. One
/// accept that takes all that come would bring thousands before any live connection's bytes.
const UNASKED_PER_TURN: u64 = 6;

#[test]
fn an_accept_storm_starves_no_live_connection() {
    let _turn = alone();
    let connects = CONNECTS_MAX.min(raise_descriptor_limit().saturating_sub(DESCRIPTORS_KEPT));
    for driver in ["epoll-et", "uring"] {
        let Some(server) = Server::start(driver, &["--reply", "128"]) else { continue };
        let mut live = ClosedLoop::connect(server.address, LIVE);
        let start = Instant::now();
        show(driver, "before", &live.run(|_| start.elapsed() >= CALM));
        let before = server.metrics();
        let is_over = AtomicBool::new(false);
        let during = std::thread::scope(|scope| {
            let live = scope.spawn(|| live.run(|_| is_over.load(Relaxed)));
            let start = Instant::now();
            let _storm: Vec<OwnedFd> = (0..connects).map(|_| dial(server.address)).collect();
            let dialled = start.elapsed();
            let expected = (LIVE + connects) as u64;
            let accepted = |now: &Metrics| now.sum("loop_accepted_total");
            server.await_that("accepting", |now| accepted(now) == expected);
            println!(
                "{driver}: {connects} connects in {dialled:?}, accepted after {:?}",
                start.elapsed()
            );
            is_over.store(true, Relaxed);
            live.join().expect("every answer came")
        });
        show(driver, "during", &during);
        assert!(during.fewest > 0, "{driver}: a live connection had no answer during the storm");
        let after = server.metrics();
        let counted = |name| after.sum(name) - before.sum(name);
        let turns = counted("loop_turns_total");
        let share = (connects as u64).div_ceil(ACCEPTS_PER_TURN);
        assert!(turns >= share, "{driver}: {connects} connections were accepted in {turns} turns");
        let unasked =
            counted("loop_completions_total").saturating_sub(counted("loop_receives_total"));
        let most = UNASKED_PER_TURN * turns;
        println!("{driver}: {unasked} came unasked in {turns} turns");
        assert!(unasked <= most, "{driver}: {unasked} came unasked in {turns} turns");
        assert_eq!(after.sum("loop_accept_pauses_total"), 0, "{driver}");
        drop(live);
        server.await_rest();
        server.end();
    }
}

fn show(driver: &str, when: &str, answered: &Answered) {
    let [p50, p99, max] = [0.5, 0.99, 1.0].map(|share| answered.quantile(share));
    let requests = answered.requests();
    println!("{driver}: {when} p50 {p50:?}, p99 {p99:?}, max {max:?}, {requests} requests");
}

/// Begins to connect.
fn dial(address: SocketAddr) -> OwnedFd {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
    let socket = socket.expect("descriptors are left");
    match connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => socket,
        Err(error) => panic!("connecting: {error}"),
    }
}
