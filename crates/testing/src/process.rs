//! A command that a test starts: its standard error is kept, every wait has a deadline, and it is
//! killed with all that it started when it is dropped.
//!
//! ```
//! use std::process::Command;
//!
//! let mut shell = Command::new("sh");
//! shell.args(["-c", "echo ready: http://127.0.0.1:80/ >&2; exec sleep 600"]);
//! let mut process = pollux_testing::Process::start(&mut shell);
//! let line = process.wait_for_stderr_line("ready");
//! assert_eq!(pollux_testing::addresses(&line), ["127.0.0.1:80".parse().unwrap()]);
//! process.signal(pollux_testing::Signal::TERM);
//! assert_eq!(process.wait().code(), None);
//! ```
//! A failure names the command and has everything that it said.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use pollux_host::{Error, Program};
use rustix::process::{Pid, Signal};

use crate::DEADLINE;

/// A running command.
#[derive(Debug)]
pub struct Process {
    program: Program,
    said: Vec<String>,
}

/// How a command ended, and what it wrote.
#[derive(Debug)]
pub struct Output {
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
        let started = Program::start(&name, command);
        let program = started.unwrap_or_else(|error| panic!("{name}: {}", with_cause(&error)));
        Self { program, said: Vec::new() }
    }

    /// Runs `command` to its end, with standard output read as well.
    ///
    /// # Panics
    /// When it cannot be started, or does not end in time.
    pub fn run(command: &mut Command) -> Output {
        Self::start(command.stdout(Stdio::piped())).ended()
    }

    /// Waits for a line of standard error that contains `part`, and gives it.
    ///
    /// # Panics
    /// When the command ends, or [`DEADLINE`] passes, without it.
    pub fn wait_for_stderr_line(&mut self, part: &str) -> String {
        let line = self.try_wait_for_stderr_line(part);
        line.unwrap_or_else(|| panic!("no \"{part}\" to its end; {}", self.shown()))
    }

    /// The same; none when the command ends without such a line.
    ///
    /// # Panics
    /// When [`DEADLINE`] passes without it.
    pub fn try_wait_for_stderr_line(&mut self, part: &str) -> Option<String> {
        let end = Instant::now() + DEADLINE;
        loop {
            match self.line_until(end) {
                Ok(Some(line)) if line.contains(part) => return Some(line),
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(_) => panic!("no \"{part}\" yet; {}", self.shown()),
            }
        }
    }

    /// The lines of standard error up to its end, or up to the one that was waited for last.
    #[must_use]
    pub fn stderr_lines(&self) -> &[String] {
        &self.said
    }

    /// All lines of standard error; waits until every process that has it is gone.
    ///
    /// # Panics
    /// When that takes longer than [`DEADLINE`].
    pub fn all_stderr_lines(&mut self) -> &[String] {
        let end = Instant::now() + DEADLINE;
        loop {
            match self.line_until(end) {
                Ok(Some(_)) => {}
                Ok(None) => return &self.said,
                Err(_) => panic!("it runs on; {}", self.shown()),
            }
        }
    }

    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.id().cast_signed()).expect("not zero")
    }

    /// Its number, as files and tables have it.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.program.pid()
    }

    /// Its standard input, which was made a pipe.
    ///
    /// # Panics
    /// When it was not, or was taken before.
    pub fn take_stdin(&mut self) -> ChildStdin {
        self.program.take_input().expect("a pipe that was not taken")
    }

    /// Its standard output, which was made a pipe.
    ///
    /// # Panics
    /// When it was not, or was taken before.
    pub fn take_stdout(&mut self) -> ChildStdout {
        self.program.take_output().expect("a pipe that was not taken")
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// When it was waited for before.
    pub fn signal(&self, signal: Signal) {
        let is_sent = self.program.signal(signal);
        assert!(is_sent, "{}: {signal:?} could not be sent", self.program.name());
    }

    /// How it ended; none while it runs.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.program.status()
    }

    /// Whether it ends within `limit`, which this waits for.
    #[must_use]
    pub fn ends_within(&self, limit: Duration) -> bool {
        self.program.ends_within(limit, &|| false).expect("a process descriptor")
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When that takes longer than [`DEADLINE`].
    pub fn wait(&mut self) -> ExitStatus {
        if !self.ends_within(DEADLINE) {
            while let Ok(Some(_)) = self.line_until(Instant::now()) {}
            panic!("did not end within {DEADLINE:?}; {}", self.shown());
        }
        self.status().expect("it has ended")
    }

    /// Waits for its end, with everything that it wrote.
    ///
    /// # Panics
    /// As [`wait`](Self::wait); or when what it started keeps its outputs open.
    pub fn ended(mut self) -> Output {
        // Read before it is waited for: a full pipe would keep it from its end.
        let stdout = self.program.output_within(DEADLINE, &|| false);
        let status = self.wait();
        self.all_stderr_lines();
        let stdout = stdout
            .unwrap_or_else(|_| panic!("standard output is open after its end; {}", self.shown()));
        let mut stderr = self.said.join("\n");
        if !stderr.is_empty() {
            stderr.push('\n');
        }
        Output { status, stdout, stderr }
    }

    /// Sends SIGKILL and waits for its end; what it started is left alone.
    ///
    /// # Panics
    /// When it does not end.
    pub fn kill(&mut self) -> ExitStatus {
        self.program.signal(Signal::KILL);
        self.wait()
    }

    /// The next line of standard error, which is kept; none at its end.
    fn line_until(&mut self, end: Instant) -> Result<Option<String>, Error> {
        let line = self.program.line_within(end.saturating_duration_since(Instant::now()))?;
        self.said.extend(line.clone());
        Ok(line)
    }

    fn shown(&self) -> String {
        format!("{} said:\n{}", self.program.name(), self.said.join("\n"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.program.kill_tree();
    }
}

/// A failure with its cause.
pub(crate) fn with_cause(error: &impl std::error::Error) -> String {
    let cause = error.source();
    cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// Runs a command that must succeed, for as long as it takes: a compiler, a program under valgrind.
///
/// # Panics
/// When it cannot be started, or fails; with everything that it wrote.
pub fn succeeded(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let stdout = text(&output.stdout);
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {stdout}{stderr}", output.status);
    Output { status: output.status, stdout, stderr }
}

/// Writes a file that can be executed. A process of its own does: what this one has open to be written, a command
/// that another thread starts has open as well for a moment, and then it can't be executed ("Text file busy").
///
/// # Panics
/// When it cannot be written.
pub fn script(path: &Path, text: &str) {
    let script = "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\"";
    succeeded(Command::new("sh").args(["-c", script]).arg(path).arg(text));
}

/// Waits until a process has ended, whichever started it.
///
/// # Panics
/// When that takes longer than [`DEADLINE`].
pub fn await_end(pid: Pid) {
    let ends = pollux_host::ends_within(number(pid), DEADLINE).expect("a process descriptor");
    assert!(ends, "process {pid:?} still runs after {DEADLINE:?}");
}

/// Whether a process runs.
#[must_use]
pub fn is_running(pid: Pid) -> bool {
    pollux_host::is_running(number(pid))
}

/// The processes that `parent` has started and that run, those last that were started last.
#[must_use]
pub fn children(parent: u32) -> Vec<Pid> {
    let children = pollux_host::children(parent).into_iter();
    children.filter_map(|pid| Pid::from_raw(pid.cast_signed())).collect()
}

fn number(pid: Pid) -> u32 {
    pid.as_raw_pid().cast_unsigned()
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
        assert_eq!(process.wait_for_stderr_line("read"), "ready");
        assert_eq!(process.stderr_lines(), ["one", "ready"]);
        assert_eq!(process.try_wait_for_stderr_line("more"), None);
        let ended = process.ended();
        assert_eq!(ended.status.code(), Some(3));
        assert_eq!(ended.stderr, "one\nready\nlast\n");
    }

    #[test]
    fn a_failure_names_the_command_and_what_it_said() {
        let mut process = shell("echo no such address >&2");
        let failed = catch_unwind(AssertUnwindSafe(|| process.wait_for_stderr_line("ready")));
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
        process.wait_for_stderr_line("started");
        let tree = crate::wait_for("three processes", || {
            let tree = pollux_host::descendants(process.id());
            (tree.len() == 3).then_some(tree)
        });
        drop(process);
        tree.into_iter().filter_map(|pid| Pid::from_raw(pid.cast_signed())).for_each(await_end);
    }

    #[test]
    fn addresses_are_those_of_the_urls() {
        let text = "x: http://127.0.0.1:80 (epoll)\nmetrics: http://[::1]:91/metrics\n";
        let found: Vec<String> = addresses(text).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["127.0.0.1:80", "[::1]:91"]);
    }
}
