//! Ten thousand connects at once, while live connections continue: none of them starves, no turn
//! accepts more than its share, and the kernel doesn't bring more than a few unasked. Times are
//! printed only.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use pollux_testing::DEADLINE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};

use crate::child::{Server, alone, raise_descriptor_limit};

const LIVE: usize = 64;
const CONNECTS_MAX: usize = 10_000;
/// Descriptors of this process for all else.
const DESCRIPTORS_KEPT: usize = 500;
/// How long the live connections are looked at before the storm.
const CALM: Duration = Duration::from_secs(1);
/// Most connections that a loop accepts in a turn, as `Limits` has it.
const ACCEPTS_PER_TURN: u64 = 64;
/// Most completions in a turn that are not receives: four armed accepts, the waker, the alarm. One
/// accept that takes everybody would bring thousands before any live connection's bytes.
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
            let accepted = |now: &crate::child::Metrics| now.sum("loop_accepted_total");
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

// Live keep-alive connections, each of which asks again as soon as it has its answer.

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";

/// Connections that were answered once; all answers of the server are as long as the first.
pub(crate) struct ClosedLoop {
    live: Vec<Live>,
    answer_bytes: usize,
}

struct Live {
    stream: TcpStream,
    asked: Instant,
    missing_bytes: usize,
    answers: u64,
}

/// What came in one run.
pub(crate) struct Answered {
    /// Time from each request to its answer, in order of size.
    pub(crate) latencies: Vec<Duration>,
    /// Of the connection with the fewest.
    pub(crate) fewest: u64,
}

impl Answered {
    pub(crate) fn requests(&self) -> u64 {
        self.latencies.len() as u64
    }

    /// The time within which this share of the answers came.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        let last = self.latencies.len() - 1;
        self.latencies[(last as f64 * share) as usize]
    }
}

impl ClosedLoop {
    pub(crate) fn connect(address: SocketAddr, connections: usize) -> Self {
        let connect = |_| {
            let stream = TcpStream::connect(address).expect("connected");
            stream.set_nodelay(true).expect("set");
            stream.set_read_timeout(Some(DEADLINE)).expect("set");
            Live { stream, asked: Instant::now(), missing_bytes: 0, answers: 0 }
        };
        let mut live: Vec<Live> = (0..connections).map(connect).collect();
        let answer_bytes = live.iter_mut().map(Live::first_answer).last().expect("some");
        for live in &live {
            live.stream.set_nonblocking(true).expect("set");
        }
        Self { live, answer_bytes }
    }

    /// Asks on all connections until `is_over`, which is asked once a round, and takes the last
    /// answers. Each has to come within [`DEADLINE`].
    pub(crate) fn run(&mut self, mut is_over: impl FnMut(u64) -> bool) -> Answered {
        let mut latencies = Vec::new();
        for live in &mut self.live {
            live.answers = 0;
            live.ask(self.answer_bytes);
        }
        let (mut open, mut is_ending) = (self.live.len(), false);
        while open > 0 {
            is_ending |= is_over(latencies.len() as u64);
            for place in self.ready() {
                let live = &mut self.live[place];
                if let Some(latency) = live.take() {
                    latencies.push(latency);
                    if is_ending {
                        open -= 1;
                    } else {
                        live.ask(self.answer_bytes);
                    }
                }
            }
        }
        latencies.sort_unstable();
        let fewest = self.live.iter().map(|live| live.answers).min().unwrap_or(0);
        Answered { latencies, fewest }
    }

    /// Connections that have something to read.
    fn ready(&self) -> Vec<usize> {
        let poll_fd = |live| PollFd::new(live, PollFlags::IN);
        let streams = self.live.iter().map(|live| &live.stream);
        let mut polled: Vec<PollFd<'_>> = streams.map(poll_fd).collect();
        let patience = Timespec { tv_sec: DEADLINE.as_secs() as i64, tv_nsec: 0 };
        let found = poll(&mut polled, Some(&patience)).expect("polled");
        assert!(found > 0, "no answer on any connection in {DEADLINE:?}");
        let now = Instant::now();
        for live in &self.live {
            let is_late = live.missing_bytes > 0 && now - live.asked > DEADLINE;
            assert!(!is_late, "a connection starves");
        }
        let is_ready = |(_, polled): &(usize, &PollFd<'_>)| !polled.revents().is_empty();
        polled.iter().enumerate().filter(is_ready).map(|(place, _)| place).collect()
    }
}

impl Live {
    /// Asks, and says how long the answer is: its head says how long its body is.
    fn first_answer(&mut self) -> usize {
        self.stream.write_all(GET).expect("sent");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte).expect("a byte");
            head.push(byte[0]);
        }
        let text = String::from_utf8_lossy(&head);
        let len = text.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let len: usize = len.and_then(|len| len.parse().ok()).expect("a length");
        let mut body = vec![0; len];
        self.stream.read_exact(&mut body).expect("a body");
        head.len() + len
    }

    fn ask(&mut self, answer_bytes: usize) {
        self.asked = Instant::now();
        self.missing_bytes = answer_bytes;
        self.stream.write_all(GET).expect("there is room for one request");
    }

    /// Reads what is there; how long the answer took when it is whole.
    fn take(&mut self) -> Option<Duration> {
        let mut room = [0; 4096];
        match self.stream.read(&mut room) {
            Ok(0) => panic!("a live connection was closed"),
            Ok(read) => self.missing_bytes = self.missing_bytes.checked_sub(read).expect("no more"),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            Err(error) => panic!("a live connection failed: {error}"),
        }
        (self.missing_bytes == 0).then(|| {
            self.answers += 1;
            self.asked.elapsed()
        })
    }
}
