//! A command that a test starts: what it says on standard error is kept, every wait has a deadline, and it is
//! killed with all that it started when it is dropped.
//!
//! ```
//! use std::process::Command;
//!
//! let mut shell = Command::new("sh");
//! shell.args(["-c", "echo ready: http://127.0.0.1:80/ >&2; exec sleep 600"]);
//! let mut process = pollux_testing::Process::start(&mut shell);
//! let line = process.says("ready");
//! assert_eq!(pollux_testing::addresses(&line), ["127.0.0.1:80".parse().unwrap()]);
//! process.signal(pollux_testing::Signal::TERM);
//! assert_eq!(process.wait().code(), None);
//! ```
//! A failure names the command and has everything that it said.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::DEADLINE;

/// A running command.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
    /// A lock that is never contended: threads share a process to signal it.
    lines: Mutex<Receiver<String>>,
    said: Vec<String>,
}

/// How a command ended, and what it wrote.
#[derive(Debug)]
pub struct Ended {
    /// How.
    pub status: ExitStatus,
    /// All of standard output, where it was a pipe that was not taken.
    pub stdout: String,
    /// All of standard error, from the first line.
    pub stderr: String,
}

impl Process {
    /// Starts `command`. Standard error is read here; the other streams are as the command says.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> Self {
        let name = format!("{command:?}");
        let spawned = command.stderr(Stdio::piped()).spawn();
        let mut child = spawned.unwrap_or_else(|error| panic!("{name}: {error}"));
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        let (sender, lines) = channel();
        // Reads to the end, so that the command never waits for a reader.
        std::thread::spawn(move || {
            for line in stderr.split(b'\n').map_while(Result::ok) {
                let _ = sender.send(String::from_utf8_lossy(&line).into_owned());
            }
        });
        Self { child, name, lines: Mutex::new(lines), said: Vec::new() }
    }

    /// Runs `command` to its end, with standard output read as well.
    ///
    /// # Panics
    /// When it cannot be started, or does not end in time.
    pub fn run(command: &mut Command) -> Ended {
        Self::start(command.stdout(Stdio::piped())).ended()
    }

    /// Waits for a line of standard error that contains `part`, and gives it.
    ///
    /// # Panics
    /// When the command ends, or [`DEADLINE`] passes, without it.
    pub fn says(&mut self, part: &str) -> String {
        let line = self.says_or_ends(part);
        line.unwrap_or_else(|| panic!("no \"{part}\" to its end; {}", self.shown()))
    }

    /// The same; none when the command ends without such a line.
    ///
    /// # Panics
    /// When [`DEADLINE`] passes without it.
    pub fn says_or_ends(&mut self, part: &str) -> Option<String> {
        let end = Instant::now() + DEADLINE;
        loop {
            match self.line_until(end) {
                Ok(line) => {
                    self.said.push(line.clone());
                    if line.contains(part) {
                        return Some(line);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => panic!("no \"{part}\" yet; {}", self.shown()),
            }
        }
    }

    /// The lines of standard error up to its end, or up to the one that was waited for last.
    #[must_use]
    pub fn said(&self) -> &[String] {
        &self.said
    }

    /// All lines of standard error; waits until every process that has it is gone.
    ///
    /// # Panics
    /// When that takes longer than [`DEADLINE`].
    pub fn all_said(&mut self) -> &[String] {
        let end = Instant::now() + DEADLINE;
        loop {
            match self.line_until(end) {
                Ok(line) => self.said.push(line),
                Err(RecvTimeoutError::Disconnected) => return &self.said,
                Err(RecvTimeoutError::Timeout) => panic!("it runs on; {}", self.shown()),
            }
        }
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Its number, as files and tables have it.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its standard input, which was made a pipe.
    ///
    /// # Panics
    /// When it was not, or was taken before.
    pub fn take_stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().expect("a pipe that was not taken")
    }

    /// Its standard output, which was made a pipe.
    ///
    /// # Panics
    /// When it was not, or was taken before.
    pub fn take_stdout(&mut self) -> ChildStdout {
        self.child.stdout.take().expect("a pipe that was not taken")
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// When it was waited for before.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }

    /// How it ended; none while it runs.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child of this process")
    }

    /// Whether it ends within `limit`, which this waits for.
    #[must_use]
    pub fn ends_within(&self, limit: Duration) -> bool {
        ends_within(self.pid(), limit)
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When that takes longer than [`DEADLINE`].
    pub fn wait(&mut self) -> ExitStatus {
        if self.status().is_none() && !self.ends_within(DEADLINE) {
            while let Ok(line) = self.line_until(Instant::now()) {
                self.said.push(line);
            }
            panic!("did not end within {DEADLINE:?}; {}", self.shown());
        }
        self.child.wait().expect("a child of this process")
    }

    /// Waits for its end, with everything that it wrote.
    ///
    /// # Panics
    /// As [`wait`](Self::wait); or when what it started keeps its outputs open.
    pub fn ended(mut self) -> Ended {
        // Read beside the wait: a full pipe would keep it from its end.
        let stdout = self.child.stdout.take().map(|mut stdout| {
            let (sender, read) = channel();
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                stdout.read_to_end(&mut bytes).expect("a pipe");
                let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
            });
            read
        });
        let status = self.wait();
        self.all_said();
        let stdout = stdout.map(|read| {
            read.recv_timeout(DEADLINE).unwrap_or_else(|_| {
                panic!("standard output is open after its end; {}", self.shown())
            })
        });
        let mut stderr = self.said.join("\n");
        if !stderr.is_empty() {
            stderr.push('\n');
        }
        Ended { status, stdout: stdout.unwrap_or_default(), stderr }
    }

    /// Sends SIGKILL and waits for its end; what it started is left alone.
    ///
    /// # Panics
    /// When it does not end.
    pub fn kill(&mut self) -> ExitStatus {
        self.child.kill().expect("a child of this process");
        self.wait()
    }

    fn line_until(&mut self, end: Instant) -> Result<String, RecvTimeoutError> {
        let lines = self.lines.get_mut().unwrap_or_else(PoisonError::into_inner);
        lines.recv_timeout(end.saturating_duration_since(Instant::now()))
    }

    fn shown(&self) -> String {
        format!("{} said:\n{}", self.name, self.said.join("\n"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let tree = descendants(self.id());
        // One that was waited for is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for pid in tree {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Runs a command that must succeed, for as long as it takes: a compiler, a program under valgrind.
///
/// # Panics
/// When it cannot be started, or fails; with everything that it wrote.
pub fn succeeded(command: &mut Command) -> Ended {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}: {stdout}{stderr}", output.status);
    Ended { status: output.status, stdout, stderr }
}

/// Waits until a process has ended, whichever started it.
///
/// # Panics
/// When that takes longer than [`DEADLINE`].
pub fn await_end(pid: Pid) {
    assert!(ends_within(pid, DEADLINE), "process {pid:?} still runs after {DEADLINE:?}");
}

fn ends_within(pid: Pid, limit: Duration) -> bool {
    let handle = match pidfd_open(pid, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return true,
        opened => opened.expect("Linux 5.3"),
    };
    let end = Instant::now() + limit;
    loop {
        let left = Timespec::try_from(end.saturating_duration_since(Instant::now()));
        match poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&left.expect("a time"))) {
            Err(Errno::INTR) => {}
            ready => return ready.expect("a descriptor") > 0,
        }
    }
}

/// The state of a process as `/proc` has it; none of one that is not there.
fn state(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    // The name stands in brackets and may hold anything (proc_pid_stat(5)).
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Whether a process runs.
#[must_use]
pub fn is_running(pid: Pid) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

/// The processes that `parent` has started and that run.
#[must_use]
pub fn children(parent: u32) -> Vec<Pid> {
    let threads = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| {
        // Those that this thread has started (proc_tid_children(5)).
        std::fs::read_to_string(thread.path().join("children")).ok()
    });
    let numbers = lists.flat_map(|list| {
        list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>()
    });
    numbers.filter_map(Pid::from_raw).filter(|pid| is_running(*pid)).collect()
}

/// All that run and were started by `root` or by one of its descendants.
fn descendants(root: u32) -> Vec<Pid> {
    let mut found = children(root);
    let mut at = 0;
    while let Some(next) = found.get(at) {
        found.extend(children(next.as_raw_pid().cast_unsigned()));
        at += 1;
    }
    found
}

/// The addresses of the URLs in what a server says, in their order.
///
/// # Panics
/// When one of them is not an IP address with a port.
#[must_use]
pub fn addresses(text: &str) -> Vec<SocketAddr> {
    let authorities = text.split("://").skip(1);
    let authorities =
        authorities.map(|rest| rest.split(['/', ' ', '\n']).next().unwrap_or_default());
    authorities
        .map(|at| at.parse().unwrap_or_else(|_| panic!("not an address: \"{at}\" of {text}")))
        .collect()
}

/// The whole answer to `GET path` over HTTP, on a connection of its own.
///
/// # Panics
/// When there is no answer.
#[must_use]
pub fn get(server: SocketAddr, path: &str) -> String {
    let connected = TcpStream::connect(server);
    let mut socket = connected.unwrap_or_else(|error| panic!("{server}: {error}"));
    socket.set_read_timeout(Some(DEADLINE)).expect("a time");
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).unwrap_or_else(|error| panic!("{server}: {error}"));
    let mut answer = String::new();
    let read = socket.read_to_string(&mut answer);
    read.unwrap_or_else(|error| panic!("{server}{path}: {error} behind {answer}"));
    answer
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn shell(script: &str) -> Process {
        Process::start(Command::new("sh").args(["-c", script]).stdin(Stdio::null()))
    }

    #[test]
    fn a_line_is_waited_for_and_the_rest_kept() {
        let mut process = shell("echo one >&2; echo ready >&2; echo last >&2; exit 3");
        assert_eq!(process.says("read"), "ready");
        assert_eq!(process.said(), ["one", "ready"]);
        assert_eq!(process.says_or_ends("more"), None);
        let ended = process.ended();
        assert_eq!(ended.status.code(), Some(3));
        assert_eq!(ended.stderr, "one\nready\nlast\n");
    }

    #[test]
    fn a_failure_names_the_command_and_what_it_said() {
        let mut process = shell("echo no such address >&2");
        let failed = catch_unwind(AssertUnwindSafe(|| process.says("ready")));
        let message = failed.expect_err("it ended without the line");
        let message = message.downcast_ref::<String>().expect("a text");
        assert!(message.contains("\"sh\"") && message.contains("no such address"), "{message}");
    }

    #[test]
    fn both_outputs_are_read_while_it_runs() {
        let big = "head -c 300000 /dev/zero | tr '\\0' x";
        let ended = Process::run(Command::new("sh").args(["-c", &format!("{big}; {big} >&2")]));
        assert_eq!((ended.stdout.len(), ended.stderr.len()), (300_000, 300_001));
    }

    #[test]
    fn what_it_started_ends_with_it() {
        let mut process = shell("( sleep 600 & sleep 600 & wait ) & echo started >&2; wait");
        process.says("started");
        let tree = crate::wait_for("three processes", || {
            let tree = descendants(process.id());
            (tree.len() == 3).then_some(tree)
        });
        drop(process);
        tree.into_iter().for_each(await_end);
    }

    #[test]
    fn addresses_are_those_of_the_urls() {
        let text = "x: http://127.0.0.1:80 (epoll)\nmetrics: http://[::1]:91/metrics\n";
        let found: Vec<String> = addresses(text).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["127.0.0.1:80", "[::1]:91"]);
    }
}
