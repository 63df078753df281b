//! The figures that the generator is to be believed for, against what must come out.
//!
//! What is exact by construction is required exactly; times have bounds that a busy machine
//! keeps. `cargo test --release -p pollux-cli --test load figures -- --nocapture` prints the
//! figures of the machine that it runs on.

#![expect(clippy::print_stdout, reason = "the figures are what --nocapture is for")]

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, ScopedJoinHandle};
use std::time::{Duration, Instant};

use pollux_testing::{DEADLINE, Pid, Signal, or_skip, skip, wait_until};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;

use crate::{Said, Server, kinds, load, started, wait};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// They measure times: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn quantile_s(json: &Value, quantile: f64) -> f64 {
    let all = json["latency"]["quantiles"].as_array().expect("quantiles");
    let found = all.iter().find(|each| each["quantile"].as_f64() == Some(quantile));
    found.and_then(|each| each["ns"].as_f64()).expect("a quantile") / 1e9
}

fn number(json: &Value, part: &str, name: &str) -> f64 {
    json[part][name].as_f64().unwrap_or_else(|| panic!("no {part}.{name} in {json}"))
}

#[test]
fn a_moderate_rate_is_the_rate_that_was_asked_for() {
    let server = Server::start();
    let rate = 1_000.0;
    let seconds = 1.0;
    let flags = ["--rate", "1000", "-d", "1s", "--warm-up", "200ms", "--json", "-", "-q"];
    let said = load(&[&flags[..], &[&server.url]].concat());
    let json = said.json();
    let total = |name| number(&json, "totals", name);
    let measured_s = json["measured_s"].as_f64().expect("a time");
    let achieved = total("answered") / measured_s;
    let off = (achieved / rate - 1.0) * 100.0;
    println!(
        "open loop: {rate} requests/s asked for, {} due and {} sent in {seconds} s, {achieved:.1} \
         answered each second: {off:+.3} %",
        total("due"),
        total("sent")
    );
    assert!((total("due") - rate * seconds).abs() <= 1.0, "{json}");
    assert_eq!(total("sent") + number(&json, "errors", "unsent"), total("due"));
    let is_missed = kinds(&json).contains(&"rate-missed");
    assert!(off < 1.0 && (off > -2.0 || is_missed), "{achieved}: {said:?}");
}

/// Received in small pieces, the window of a connection closes and waits for a probe: on the ring of then the first
/// second had 6 to 67 of 100 answers.
#[test]
fn large_replies_come_at_the_rate_that_was_asked_for() {
    let _alone = alone();
    let server = Server::start_with(&["--reply", "1048576", "--listen", "127.0.0.1:0"]);
    let flags = ["--rate", "100", "-d", "1s", "--warm-up", "0s", "--json", "-", "-q", "--poller"];
    let answered = |driver: &str| {
        let said = load(&[&flags[..], &[driver, &server.url]].concat());
        if said.stderr.contains("is not available here") {
            return Err(said.stderr);
        }
        let json = said.json();
        let answered = json["seconds"][0]["answered"].as_f64().expect("a count");
        println!("{driver}: {answered} of 100 replies of 1 MiB in the first second");
        Ok(answered)
    };
    // The best of some tries in turns, as others use this machine too.
    let mut ring: f64 = 0.0;
    let mut epoll: f64 = 0.0;
    for _ in 0..10 {
        ring = ring.max(match answered("uring") {
            Ok(answered) => answered,
            Err(refused) => return skip(refused.trim()),
        });
        if ring >= 90.0 {
            return;
        }
        epoll = epoll.max(answered("epoll-et").expect("epoll is everywhere"));
    }
    if epoll < 90.0 {
        return skip(format_args!("this machine is too busy: {epoll} of 100 on epoll-et"));
    }
    panic!("{ring} of 100 replies in the first second on uring, {epoll} on epoll-et");
}

/// With a rate r, requests of the time T and a server that stands still for F, a request that
/// was to begin at the time t of the stall waits F - t; so a part (F - x) / T of all takes longer
/// than x, and the quantile q is at F - (1 - q) T.
#[test]
fn a_frozen_server_is_seen_as_the_closed_form_says() {
    let _alone = alone();
    let server = Server::start();
    let lasts_s = 2.0;
    let flags = ["--rate", "400", "-d", "2s", "--warm-up", "0s", "--json", "-", &server.url];
    let load = started(&flags);
    server.answers(100);
    let frozen_s = freeze(&server);
    let said = Said::of(load.ended());
    let json = said.json();
    for quantile in [0.95, 0.99, 0.999] {
        let expected_s = frozen_s - (1.0 - quantile) * lasts_s;
        let found_s = quantile_s(&json, quantile);
        println!(
            "frozen for {frozen_s:.3} s of {lasts_s}: p{} must be {expected_s:.3} s, is \
             {found_s:.3} s",
            quantile * 100.0
        );
        // Once it runs again it has a backlog to answer, on a CPU that others use too.
        let bounds = expected_s - 0.01..expected_s + 0.5;
        assert!(bounds.contains(&found_s), "{quantile}: {found_s} is not in {bounds:?}\n{said:?}");
    }
}

/// Stops the server's process for a while; says for how long.
fn freeze(server: &Server) -> f64 {
    server.signal(Signal::STOP);
    let began = Instant::now();
    wait(Duration::from_millis(300));
    server.signal(Signal::CONT);
    began.elapsed().as_secs_f64()
}

/// Quantiles of the generator are never below those that the responder gave, and as near to them
/// as the way to it allows; the nearest of a few tries, for others use this machine too. Where they
/// use it in two of them, what they took from a witness and from the responder is allowed beside. Most
/// of the difference is the time that an idle CPU takes to wake up, so it is looked at once more with
/// CPUs that are kept awake.
#[test]
fn quantiles_are_those_of_a_responder_that_is_known() {
    let _alone = alone();
    are_near("CPUs sleep");
    match KeptAwake::start() {
        Ok(_spinning) => are_near("CPUs are kept awake"),
        Err(error) => println!("chrt, which keeps CPUs awake: {error}"),
    }
}

/// A process on each CPU that spins when no other process wants to run, and adds nothing to the queue
/// of those who do.
struct KeptAwake(Vec<Child>);

impl KeptAwake {
    fn start() -> std::io::Result<Self> {
        let cpus = std::thread::available_parallelism()?.get();
        let mut command = Command::new("chrt");
        command.args(["-i", "0", "sh", "-c", "while :; do :; done"]);
        let mut kept = Self(Vec::new());
        for _ in 0..cpus {
            kept.0.push(command.spawn()?);
        }
        Ok(kept)
    }
}

impl Drop for KeptAwake {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Ended already if the system has no such class.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A thread that sleeps for short times, and so meets what else runs on the machine as the generator
/// does.
struct Witness(Sender<()>, JoinHandle<Duration>);

impl Witness {
    fn start() -> Self {
        const SLEEP: Duration = Duration::from_millis(5);
        let (end, ended) = channel();
        let sleeping = std::thread::spawn(move || {
            let mut latest = Duration::ZERO;
            let mut began = Instant::now();
            while ended.recv_timeout(SLEEP) == Err(RecvTimeoutError::Timeout) {
                latest = latest.max(began.elapsed().saturating_sub(SLEEP));
                began = Instant::now();
            }
            latest
        });
        Self(end, sleeping)
    }

    /// So late it woke up, at most, in seconds.
    fn late_s(self) -> f64 {
        drop(self.0);
        self.1.join().expect("it slept").as_secs_f64()
    }
}

fn are_near(how: &str) {
    /// Tries with no other process on the CPUs, and beside others.
    const TRIES: u32 = 3;
    const TRIES_BESIDE: u32 = 2;
    /// So late is a thread that wakes up on a machine of its own.
    const WAKE_S: f64 = 500e-6;
    /// Shorter than the time for which the scheduler gives a CPU to another process.
    const ALONE_S: f64 = 2e-3;
    let mut tries_alone = 0;
    let mut tries_beside = 0;
    let mut was_within = false;
    println!("{how}:");
    while tries_beside < TRIES_BESIDE || !was_within && tries_beside < 2 * TRIES_BESIDE {
        let responder = Responder::start(8, mixed);
        let flags = ["-n", "500", "-c", "8", "--json", "-", "-q", &responder.url];
        let witness = Witness::start();
        let json = load(&flags).json();
        let late_s = witness.late_s();
        let (given, away_s) = responder.given_s();
        assert_eq!(given.len(), 500);
        println!(
            "a witness woke up {:.0} µs late at most, the responder was away for {:.0} µs at most",
            late_s * 1e6,
            away_s * 1e6
        );
        let mut is_near = true;
        let mut is_within = true;
        for quantile in [0.5, 0.9, 0.99, 0.999] {
            let given_s = given[(quantile * given.len() as f64).ceil() as usize - 1];
            let found_s = quantile_s(&json, quantile);
            let over_us = (found_s - given_s) * 1e6;
            let over = found_s / given_s - 1.0;
            println!(
                "p{}: given {:.3} ms, found {:.3} ms: {over_us:+.0} µs, {:+.2} %",
                quantile * 100.0,
                given_s * 1e3,
                found_s * 1e3,
                over * 100.0
            );
            // The histogram has three digits.
            assert!(over > -0.001, "{found_s} is less than {given_s}");
            is_near &= over < 0.05 || found_s - given_s < WAKE_S;
            is_within &= over < 0.05 || found_s - given_s < WAKE_S + late_s + away_s;
        }
        if is_near {
            return;
        }
        let is_alone = late_s.max(away_s) < ALONE_S;
        tries_alone += u32::from(is_alone);
        tries_beside += u32::from(!is_alone);
        assert!(tries_alone < TRIES, "{how}: not near in {TRIES} tries on idle CPUs");
        was_within |= is_within;
    }
    assert!(was_within, "{how}: further off in {tries_beside} tries than what was taken away");
    println!("{how}: others used the CPUs; within what they took");
}

#[test]
fn a_crowd_of_the_dead_is_set_up_quickly_and_costs_little_memory() {
    let mut limit = getrlimit(Resource::Nofile);
    limit = Rlimit { current: limit.maximum, ..limit };
    setrlimit(Resource::Nofile, limit).expect("up to the maximum");
    let allowed = limit.maximum.map_or(u64::MAX, |maximum| maximum);
    // The server holds the other ends, in a process of its own. So many show what each of them costs.
    let dead = allowed.saturating_sub(500).min(2_000);
    assert!(dead >= 100, "{allowed} descriptors are too few for a crowd");
    let crowds = std::thread::scope(|scope| {
        let crowd = |dead, poller| scope.spawn(move || crowd_of(dead, poller));
        let ring = or_skip(pollux_poller::Mechanism::UringPoll.open()).map(|_| "uring");
        let pollers = std::iter::once("epoll-et").chain(ring);
        let started: Vec<_> =
            pollers.map(|poller| (poller, crowd(0, poller), crowd(dead, poller))).collect();
        let joined =
            |(poller, none, many): (_, ScopedJoinHandle<'_, _>, ScopedJoinHandle<'_, _>)| {
                (poller, none.join(), many.join())
            };
        started.into_iter().map(joined).collect::<Vec<_>>()
    });
    for (poller, none, many) in crowds {
        let ((alone_bytes, _), (bytes, json)) = (none.expect("a run"), many.expect("a run"));
        let each = (bytes as f64 - alone_bytes as f64) / dead as f64;
        let kind = &json["crowd"][0];
        let set_up_s = kind["set_up_s"].as_f64().expect("a time");
        println!("{poller}: {dead} dead connections in {set_up_s:.2} s, {each:.0} bytes each");
        assert_eq!((&kind["answered"], &kind["open_at_end"]), (&dead.into(), &dead.into()));
        assert!(set_up_s < 60.0 && each < 1_024.0, "{set_up_s} s, {each} bytes");
    }
}

/// Memory of the generator beside so many dead connections, and its result.
fn crowd_of(dead: u64, poller: &str) -> (u64, Value) {
    let server =
        Server::start_with(&["--reply", "128", "--listen", "127.0.0.1:0", "--idle-timeout", "10m"]);
    let number = dead.to_string();
    let flags = ["--dead", &number, "-c", "1", "--rate", "100", "--warm-up", "0s", "-d", "1h"];
    let more = ["--poller", poller, "--json", "-", &server.url];
    let load = started(&[&flags[..], &more].concat());
    // Those of the crowd were answered before.
    wait_until("answers", || server.requests() >= dead + 20);
    let bytes = resident_bytes(load.pid());
    load.signal(Signal::INT);
    (bytes, Said::of(load.ended()).json())
}

/// `VmRSS` of `proc_pid_status(5)`.
fn resident_bytes(pid: Pid) -> u64 {
    let path = format!("/proc/{}/status", pid.as_raw_nonzero());
    let status = fs::read_to_string(path).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("kB");
    kib * 1024
}

/// Of five hundred requests; no quantile that is looked at lies on a step.
fn mixed(number: usize) -> Duration {
    // 317 has no factor of 500, so all remainders occur, well mixed.
    Duration::from_millis(match number * 317 % 500 {
        0..400 => 2,
        400..490 => 10,
        490..499 => 40,
        _ => 100,
    })
}

/// A server whose delays are known: chosen by the number of the request, and measured by itself. One thread that
/// never sleeps serves all connections, so that no wake-up of its own is added to what it gives. It ends with its
/// last connection.
pub(crate) struct Responder {
    pub(crate) url: String,
    serving: JoinHandle<(Vec<f64>, Duration)>,
}

impl Responder {
    /// One for so many connections, with the delay of each request by its number.
    pub(crate) fn start(connections: usize, delay: fn(usize) -> Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("bound"));
        let serving = std::thread::spawn(move || {
            let clients = (0..connections).map(|_| Client::accept(&listener)).collect();
            serve(clients, delay)
        });
        Self { url, serving }
    }

    /// The times from a request to its answer that it gave, in seconds, shortest first; once its
    /// connections have ended. And the longest time in which it looked at nothing, which a request
    /// that came meanwhile took longer than is known here.
    fn given_s(self) -> (Vec<f64>, f64) {
        let (mut times_s, away) = self.serving.join().expect("it served");
        times_s.sort_by(f64::total_cmp);
        (times_s, away.as_secs_f64())
    }
}

fn serve(mut clients: Vec<Client>, delay: fn(usize) -> Duration) -> (Vec<f64>, Duration) {
    let mut given_s = Vec::new();
    let mut delays = (0..).map(delay);
    let mut looked = Instant::now();
    let mut away = Duration::ZERO;
    let end = looked + DEADLINE;
    while !clients.is_empty() {
        clients.retain_mut(|client| client.continues(&mut delays, &mut given_s));
        away = away.max(looked.elapsed());
        looked = Instant::now();
        assert!(looked < end, "its clients stay");
    }
    (given_s, away)
}

struct Client {
    stream: TcpStream,
    head: Vec<u8>,
    /// When the request was there, and how long its answer takes.
    asked: Option<(Instant, Duration)>,
}

impl Client {
    fn accept(listener: &TcpListener) -> Self {
        let (stream, _) = listener.accept().expect("a client");
        stream.set_nodelay(true).expect("set");
        stream.set_nonblocking(true).expect("set");
        Self { stream, head: Vec::new(), asked: None }
    }

    /// Whether it is still there.
    fn continues(
        &mut self,
        delays: &mut impl Iterator<Item = Duration>,
        given_s: &mut Vec<f64>,
    ) -> bool {
        let Some((began, delay)) = self.asked else { return self.read(delays) };
        let took = began.elapsed();
        if took < delay {
            return true;
        }
        self.asked = None;
        // Before the answer leaves: then no client can have it earlier than is booked here.
        given_s.push(took.as_secs_f64());
        self.stream.write_all(ANSWER).is_ok()
    }

    fn read(&mut self, delays: &mut impl Iterator<Item = Duration>) -> bool {
        let mut bytes = [0; 512];
        match self.stream.read(&mut bytes) {
            Ok(0) => return false,
            Ok(len) => self.head.extend_from_slice(&bytes[..len]),
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
        if self.head.ends_with(b"\r\n\r\n") {
            self.head.clear();
            self.asked = delays.next().map(|delay| (Instant::now(), delay));
        }
        true
    }
}
