//! A server in a process of its own: started, looked at from outside with its counters, ended; and clients
//! that do everything right, and want the same of the server.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pollux_testing::{DEADLINE, Output, Process, Signal, addresses, get, uninterrupted};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// What is written at once without reading meanwhile: socket buffers hold more.
const UNREAD_BYTES_MAX: usize = 16 * 1024;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";

/// Tests that load the machine hold this.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Allows this process all descriptors that it may have; how many.
pub(crate) fn raise_descriptor_limit() -> usize {
    let limit = pollux_sys::descriptors::raise().expect("up to the maximum");
    usize::try_from(limit.soft).expect("64 bits")
}

/// A running server.
pub(crate) struct Server {
    process: Process,
    pub(crate) address: SocketAddr,
    stats: SocketAddr,
}

impl Server {
    /// Starts `pollux serve` on this driver; none where it is not available, which is named.
    pub(crate) fn start(driver: &str, flags: &[&str]) -> Option<Self> {
        Self::start_within(driver, flags, None)
    }

    /// The same with a limit for its descriptors.
    pub(crate) fn start_within(
        driver: &str,
        flags: &[&str],
        descriptors: Option<u32>,
    ) -> Option<Self> {
        let limit = descriptors.map(|most| format!("ulimit -n {most} && exec \"$0\" \"$@\""));
        Self::start_by(driver, flags, limit.as_deref())
    }

    /// The same by a shell, whose command runs `"$0" "$@"` in its own place.
    pub(crate) fn start_by(driver: &str, flags: &[&str], script: Option<&str>) -> Option<Self> {
        let mut command = match script {
            None => Command::new(env!("CARGO_BIN_EXE_pollux")),
            Some(script) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", script, env!("CARGO_BIN_EXE_pollux")]);
                shell
            }
        };
        // Memory of tables that grew goes back to the kernel at once (mallopt(3)), and does not stay with the
        // allocator or not, by the addresses that it was given: 24 bytes for each of 5,000 connections.
        command.env("MALLOC_MMAP_THRESHOLD_", "65536");
        command.args(["serve", "--listen", "127.0.0.1:0", "--stats", "127.0.0.1:0"]);
        command.args(["--poller", driver]).args(flags);
        let mut process = Process::start(&mut command);
        let Some(line) = process.try_wait_for_stderr_line("/metrics") else {
            pollux_testing::skip(format_args!("{driver}: {}", process.stderr_lines().join("; ")));
            return None;
        };
        let stats = addresses(&line)[0];
        let said = process.stderr_lines().join("\n");
        Some(Self { address: addresses(&said)[0], stats, process })
    }

    /// Waits for a line with this part; gives it.
    pub(crate) fn wait_for_stderr_line(&mut self, part: &str) -> String {
        self.process.wait_for_stderr_line(part)
    }

    pub(crate) fn metrics(&self) -> Metrics {
        Metrics::read(self.stats)
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Waits until `is_so` holds for the counters.
    pub(crate) fn await_that(
        &self,
        what: &str,
        mut is_so: impl FnMut(&Metrics) -> bool,
    ) -> Metrics {
        let end = Instant::now() + DEADLINE;
        loop {
            let metrics = self.metrics();
            if is_so(&metrics) {
                return metrics;
            }
            assert!(Instant::now() < end, "{what} did not happen:\n{}", metrics.shown());
        }
    }

    /// Waits until every connection is closed.
    pub(crate) fn await_rest(&self) -> Metrics {
        self.await_that("the end of all connections", |now| now.sum("connections_open") == 0)
    }

    /// Bytes of its own memory that are resident, exactly: the kernel walks the page tables.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let rollup = std::fs::read_to_string(self.proc("smaps_rollup")).expect("our own child");
        let line = rollup.lines().find_map(|line| line.strip_prefix("Anonymous:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).expect("in KiB");
        kib.trim().parse::<u64>().expect("a number") * 1024
    }

    /// How many descriptors it has open.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(self.proc("fd")).expect("our own child").count()
    }

    /// What it says from here to its end, which has to be a good one.
    pub(crate) fn ended(self) -> String {
        rest_of(self.process)
    }

    /// Ends it gently: it has to end well, and may not have complained.
    pub(crate) fn end(self) {
        self.end_with(|_| false);
    }

    /// The same after clients that sent random bytes: some of those begin a TLS record, which is worth a warning.
    pub(crate) fn end_after_random_bytes(self) {
        self.end_with(|line| {
            // The first of them is named, a client of a unix socket too.
            line.contains(" pollux serve: warn: ")
                && line.contains(" speaks TLS, which this server")
                || line.ends_with(" more like this (clients that speak TLS)")
        });
    }

    /// Ends it gently: it has to end well, and may have complained only of what `is_expected`.
    fn end_with(self, is_expected: impl Fn(&str) -> bool) {
        self.signal(Signal::TERM);
        let said = self.ended();
        // Its last line of the start, where it has a control socket.
        let is_start = |line: &str| line.starts_with("pollux serve: control: ");
        assert!(said.lines().all(|line| is_start(line) || is_expected(line)), "{said}");
    }

    pub(crate) fn proc(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{file}", self.process.id()))
    }

    /// Whether every thread waits for something to do.
    pub(crate) fn sleeps(&self) -> bool {
        let threads = std::fs::read_dir(self.proc("task")).expect("it runs");
        let mut states = threads.map(|thread| {
            let stat = thread.expect("readable").path().join("stat");
            let stat = std::fs::read_to_string(stat).expect("threads stay");
            // Behind the name, which is in parentheses.
            stat.rsplit(") ").next().and_then(|rest| rest.chars().next())
        });
        states.all(|state| state == Some('S'))
    }
}

/// What a command says from here to its end, which has to be a good one.
pub(crate) fn rest_of(process: Process) -> String {
    let seen = process.stderr_lines().len();
    let Output { status, stderr, .. } = process.ended();
    assert!(status.success(), "{status}: {stderr}");
    stderr.split_inclusive('\n').skip(seen).collect()
}

/// All values at one moment.
pub(crate) struct Metrics(String);

impl Metrics {
    pub(crate) fn read(stats: SocketAddr) -> Self {
        let page = get(stats, "/metrics");
        assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
        Self(page)
    }

    /// The sum over all loops and labels of `pollux_{name}`.
    ///
    /// # Panics
    /// When there is no such counter: one that could not be read is not 0.
    pub(crate) fn sum(&self, name: &str) -> u64 {
        self.sum_of(name, "")
    }

    /// The same over all loops for one label, as `cause="session"`.
    pub(crate) fn sum_of(&self, name: &str, label: &str) -> u64 {
        let head = format!("pollux_{name}{{");
        let is_meant = |line: &&str| line.starts_with(&head) && line.contains(label);
        let lines = self.0.lines().filter(is_meant);
        let values: Vec<u64> = lines
            .map(|line| line.rsplit(' ').next().and_then(|value| value.parse().ok()))
            .map(|value| value.expect("a count"))
            .collect();
        assert!(!values.is_empty(), "no {head} in\n{}", self.0);
        values.iter().sum()
    }

    /// What is not 0, in lines.
    pub(crate) fn shown(&self) -> String {
        let is_shown = |line: &&str| line.starts_with("pollux_") && !line.ends_with(" 0");
        self.0.lines().filter(is_shown).collect::<Vec<_>>().join("\n")
    }
}

/// An answer that came whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// A client with one connection.
pub(crate) struct Wire {
    stream: TcpStream,
    /// What was received and not looked at yet.
    got: Vec<u8>,
}

impl Wire {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("connected");
        stream.set_nodelay(true).expect("set");
        stream.set_read_timeout(Some(DEADLINE)).expect("set");
        stream.set_write_timeout(Some(DEADLINE)).expect("set");
        Self { stream, got: Vec::new() }
    }

    /// Sends `request` and takes an answer for each place of `heads`, which says whether it is
    /// one to HEAD.
    pub(crate) fn ask(&mut self, request: &[u8], heads: &[bool]) -> io::Result<Vec<Answer>> {
        if request.len() <= UNREAD_BYTES_MAX {
            self.send(request)?;
            return heads.iter().map(|is_head| self.answer(*is_head)).collect();
        }
        let mut writer = self.stream.try_clone()?;
        std::thread::scope(|scope| {
            let sent = scope.spawn(move || writer.write_all(request));
            let answers = heads.iter().map(|is_head| self.answer(*is_head)).collect();
            sent.join().expect("no panic")?;
            answers
        })
    }

    /// Sends `request`, which is short.
    pub(crate) fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.stream.write_all(request)
    }

    /// Takes the next answer.
    pub(crate) fn answer(&mut self, is_head: bool) -> io::Result<Answer> {
        let head_bytes = self.line_end(b"\r\n\r\n")?;
        let head = self.take(head_bytes)?;
        let head = String::from_utf8(head).map_err(|_| wrong("a head is not text"))?;
        let status = head.get(9..12).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| wrong("no status"))?;
        let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
        let body = match (field("Content-Length: "), field("Transfer-Encoding: chunked")) {
            _ if is_head => Vec::new(),
            (Some(len), None) => self.take(len.parse().map_err(|_| wrong("a length"))?)?,
            (None, Some(_)) => self.chunks()?,
            _ => return Err(wrong("one field has to say where the body ends")),
        };
        Ok(Answer { status, body })
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line_bytes = self.line_end(b"\r\n")?;
            let line = self.take(line_bytes)?;
            let line = String::from_utf8_lossy(&line);
            let len = usize::from_str_radix(line.trim_end(), 16).map_err(|_| wrong("a size"))?;
            let chunk = self.take(len + 2)?;
            body.extend_from_slice(&chunk[..len]);
            if len == 0 {
                return Ok(body);
            }
        }
    }

    /// How many bytes there are up to and with `end`.
    fn line_end(&mut self, end: &[u8]) -> io::Result<usize> {
        loop {
            if let Some(at) = self.got.windows(end.len()).position(|part| part == end) {
                return Ok(at + end.len());
            }
            self.receive()?;
        }
    }

    fn take(&mut self, len: usize) -> io::Result<Vec<u8>> {
        while self.got.len() < len {
            self.receive()?;
        }
        Ok(self.got.drain(..len).collect())
    }

    fn receive(&mut self) -> io::Result<()> {
        let mut room = [0; 16 * 1024];
        match uninterrupted(|| self.stream.read(&mut room))? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                self.got.extend_from_slice(&room[..read]);
                Ok(())
            }
        }
    }
}

fn wrong(what: &str) -> io::Error {
    io::Error::other(what)
}

/// Live keep-alive connections, each of which asks again as soon as it has its answer; all answers of the server are as long as the first.
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
        let mut open = self.live.len();
        let mut is_ending = false;
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
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            Err(error) => panic!("a live connection failed: {error}"),
        }
        (self.missing_bytes == 0).then(|| {
            self.answers += 1;
            self.asked.elapsed()
        })
    }
}
