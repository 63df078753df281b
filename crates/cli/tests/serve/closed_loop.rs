//! Live keep-alive connections, each of which asks again as soon as it has its answer.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::child::PATIENCE;

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
            stream.set_read_timeout(Some(PATIENCE)).expect("set");
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
    /// answers. Each has to come within [`PATIENCE`].
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
        let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        let found = poll(&mut polled, Some(&patience)).expect("polled");
        assert!(found > 0, "no answer on any connection in {PATIENCE:?}");
        let now = Instant::now();
        for live in &self.live {
            let is_late = live.missing_bytes > 0 && now - live.asked > PATIENCE;
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
