//! A server in a process of its own: started, looked at from outside, ended.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process, setrlimit};

use crate::metrics::Metrics;

/// Far longer than anything here takes on a busy machine; what waits so long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Tests that load the machine hold this.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Allows this process all descriptors that it may have; how many.
pub(crate) fn raise_descriptor_limit() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("up to the maximum");
    limit.maximum.map_or(usize::MAX, |maximum| maximum as usize)
}

/// A running server.
pub(crate) struct Server {
    process: Child,
    stderr: BufReader<ChildStderr>,
    pub(crate) address: SocketAddr,
    stats: SocketAddr,
}

impl Server {
    /// Starts `pollux serve` on this driver; none where it is not to be had, which is named.
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
        let mut process = command.stderr(Stdio::piped()).spawn().expect("pollux starts");
        let mut stderr = BufReader::new(process.stderr.take().expect("piped"));
        let mut said = String::new();
        while !said.contains("/metrics") {
            if stderr.read_line(&mut said).expect("lines") == 0 {
                let _ = process.wait();
                skip(driver, &said);
                return None;
            }
        }
        let address = |at: usize| {
            let part = said.split("://").nth(at).expect("an address");
            let end = part.find([' ', '/']).expect("something behind it");
            part[..end].parse().expect("a socket address")
        };
        Some(Self { address: address(1), stats: address(2), process, stderr })
    }

    /// Waits for a line with this part; gives it.
    pub(crate) fn says(&mut self, part: &str) -> String {
        let mut said = String::new();
        loop {
            let mut line = String::new();
            assert!(self.stderr.read_line(&mut line).expect("lines") > 0, "no {part} in {said}");
            if line.contains(part) {
                return line;
            }
            said.push_str(&line);
        }
    }

    pub(crate) fn metrics(&self) -> Metrics {
        Metrics::read(self.stats)
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("it runs");
    }

    /// Waits until `is_so` holds for the counters.
    pub(crate) fn await_that(&self, what: &str, is_so: impl Fn(&Metrics) -> bool) -> Metrics {
        let end = Instant::now() + PATIENCE;
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

    /// What it says to its end, which has to be a good one.
    pub(crate) fn ended(mut self) -> String {
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).expect("text");
        let status = self.process.wait().expect("it ends");
        assert!(status.success(), "{status}: {said}");
        said
    }

    /// Ends it gently: it has to end well, and may not have complained.
    pub(crate) fn end(self) {
        self.signal(Signal::TERM);
        let said = self.ended();
        // Its last line of the start, where it has a control socket.
        let is_start = |line: &str| line.starts_with("pollux serve: control: ");
        assert!(said.lines().all(is_start), "{said}");
    }

    pub(crate) fn proc(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{file}", self.process.id()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Also after a test that failed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn skip(driver: &str, reason: &str) {
    let reason = reason.trim();
    assert!(std::env::var_os("POLLUX_FORBID_SKIP").is_none(), "{driver}: {reason}");
    println!("{driver} is skipped: {reason}");
}
