//! A program that is started and never outlives its handle: a server, a load generator.
//!
//! Waiting is on the process itself (a pidfd), so that an early end is seen at once and nothing
//! sleeps. Ending is SIGTERM and, after a deadline, SIGKILL; a process that is dropped is ended as
//! well. What it has started is its `Tree`'s.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::Error;

/// How long a signal has before it is sent again.
const SIGNAL_AGAIN: Duration = Duration::from_secs(1);
/// Between two looks at which signals are caught.
const LOOK: Duration = Duration::from_millis(5);
/// How long a process may take to end when it is asked to.
const END_PATIENCE: Duration = Duration::from_secs(3);
/// How long an interruption from outside may go unnoticed.
const SLICE: Duration = Duration::from_millis(50);
/// Lines that are handed over of what a process says on standard error.
const LINES_MAX: usize = 64;
/// Lines of its last words.
const LAST_LINES: usize = 3;
/// How long the last words of a process may take after its end.
const LAST_WORDS_PATIENCE: Duration = Duration::from_millis(200);
/// Longest line that is looked at; the rest of it counts as another.
const LINE_BYTES_MAX: u64 = 4096;
/// Longest standard output that is read.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;

/// A running process.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
    handle: OwnedFd,
    /// What it says first on standard error.
    lines: Receiver<String>,
    /// What it said last.
    last: Arc<Mutex<VecDeque<String>>>,
    line: String,
    is_over: bool,
}

impl Program {
    /// Starts `command`, which says what becomes of standard input and output; `name` stands for it
    /// in messages.
    pub fn start(name: &str, command: Command) -> Result<Self, Error> {
        let (output, said) = Self::pipe(name)?;
        Self::start_with(name, command, output, said)
    }

    /// The same with what it prints on standard output among its words.
    pub fn start_reading_all(name: &str, mut command: Command) -> Result<Self, Error> {
        let (output, said) = Self::pipe(name)?;
        let copy = output.try_clone();
        command.stdout(copy.map_err(|cause| Error::Io { call: "dup", cause })?);
        Self::start_with(name, command, output, said)
    }

    fn pipe(name: &str) -> Result<(PipeWriter, PipeReader), Error> {
        let pipe = std::io::pipe();
        let (said, output) =
            pipe.map_err(|cause| Error::Setup { what: format!("a pipe from {name}"), cause })?;
        Ok((output, said))
    }

    fn start_with(
        name: &str,
        mut command: Command,
        output: PipeWriter,
        said: PipeReader,
    ) -> Result<Self, Error> {
        let setup = |cause| Error::Setup { what: format!("the process {name}"), cause };
        command.stderr(output);
        let mut child = command.spawn().map_err(setup)?;
        // Ours of its ends: the end of its words is that of its last process.
        drop(command);
        let pid = Pid::from_child(&child);
        let handle = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(handle) => handle,
            Err(errno) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(setup(errno.into()));
            }
        };
        let last = Arc::default();
        let lines = listen(said, Arc::clone(&last));
        let (name, line) = (name.to_owned(), String::new());
        Ok(Self { name, child, handle, lines, last, line, is_over: false })
    }

    /// Its kernel number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What stands for it in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it ended; none while it runs.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// How it ended, in words; only of one that has.
    pub fn how_it_ended(&mut self) -> String {
        match self.child.try_wait() {
            Ok(Some(status)) => format!("ended with {status}"),
            _ => "ended".to_owned(),
        }
    }

    /// Whether it has ended with status 0.
    pub fn has_succeeded(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(status)) if status.success())
    }

    /// Ends its standard input, which was made a pipe.
    pub fn end_input(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Waits until the process ends, at most `time`; whether it has ended. Gives up when the run
    /// is interrupted from outside.
    pub fn ends_within(
        &mut self,
        time: Duration,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<bool, Error> {
        let start = Instant::now();
        loop {
            if is_interrupted() {
                return Err(Error::Interrupted);
            }
            let left = time.saturating_sub(start.elapsed());
            if self.has_ended(left.min(SLICE))? {
                return Ok(true);
            }
            if left.is_zero() {
                return Ok(false);
            }
        }
    }

    /// Waits for a line with `words` on standard error, at most `time`. Gives up when the process
    /// ends without it, or when the run is interrupted from outside.
    pub fn says_within(
        &mut self,
        words: &str,
        time: Duration,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        let start = Instant::now();
        while !self.line_within(SLICE).is_some_and(|line| line.contains(words)) {
            if is_interrupted() {
                return Err(Error::Interrupted);
            }
            if self.has_ended(Duration::ZERO)? || start.elapsed() > time {
                return Err(self.failed("was not ready in time"));
            }
        }
        Ok(())
    }

    fn has_ended(&self, time: Duration) -> Result<bool, Error> {
        let mut fds = [PollFd::new(&self.handle, PollFlags::IN)];
        let time = Timespec::try_from(time).expect("a slice of a second");
        match poll(&mut fds, Some(&time)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(Error::io("poll")(errno)),
        }
    }

    /// The next line of standard error, waited for at most `time`.
    pub fn line_within(&mut self, time: Duration) -> Option<&str> {
        self.line = self.lines.recv_timeout(time).ok()?;
        Some(&self.line)
    }

    /// Sends it a signal; one that has ended already does not mind.
    pub fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.handle, signal);
    }

    /// Waits until it catches `signal`, at most `time`: an earlier one would end it. One that ends, or
    /// never does, is not waited for. Gives up when the run is interrupted from outside.
    pub fn catches_within(
        &mut self,
        signal: Signal,
        time: Duration,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        let start = Instant::now();
        let path = format!("/proc/{}/status", self.pid());
        let catches = || {
            let status = std::fs::read_to_string(&path).unwrap_or_default();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            let caught = caught.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
            caught.is_some_and(|bits| bits & (1 << (signal.as_raw() - 1)) != 0)
        };
        while !catches() && start.elapsed() < time {
            if self.ends_within(LOOK, is_interrupted)? {
                break;
            }
        }
        Ok(())
    }

    /// Sends it `signal` again and again until it ends, for at most `time`; whether it has ended.
    pub fn ends_by(
        &mut self,
        signal: Signal,
        time: Duration,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<bool, Error> {
        let start = Instant::now();
        while start.elapsed() < time {
            self.signal(signal);
            if self.ends_within(SIGNAL_AGAIN, is_interrupted)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Ends it: asks, waits, kills.
    pub fn end(&mut self) {
        if self.is_over {
            return;
        }
        self.signal(Signal::TERM);
        // An interruption has to wait for the deadline as well: that is what it is for.
        if !self.ends_within(END_PATIENCE, &|| false).unwrap_or(false) {
            self.signal(Signal::KILL);
        }
        let _ = self.child.wait();
        self.is_over = true;
    }

    /// Standard output and exit code of a process that has ended.
    pub fn output(mut self) -> Result<(String, Option<i32>), Error> {
        let mut text = String::new();
        if let Some(stdout) = self.child.stdout.take() {
            let read = stdout.take(OUTPUT_BYTES_MAX).read_to_string(&mut text);
            read.map_err(|cause| Error::Io { call: "read", cause })?;
        }
        let status = self.child.wait();
        let status = status.map_err(|cause| Error::Io { call: "waitid", cause })?;
        self.is_over = true;
        Ok((text, status.code()))
    }

    /// A failure of this process, with the last that it said.
    pub fn failed(&mut self, what: &str) -> Error {
        // What it said right before its end may still be on its way.
        let is_over = self.is_over || self.has_ended(Duration::ZERO).unwrap_or(true);
        let patience = if is_over { LAST_WORDS_PATIENCE } else { Duration::ZERO };
        let start = Instant::now();
        while self.lines.recv_timeout(patience.saturating_sub(start.elapsed())).is_ok() {}
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let said = last.iter().map(String::as_str).collect::<Vec<_>>().join("; ");
        drop(last);
        let what = if said.is_empty() { what.to_owned() } else { format!("{what}: {said}") };
        Error::Program { program: self.name.clone(), what }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}

fn listen(said: PipeReader, last: Arc<Mutex<VecDeque<String>>>) -> Receiver<String> {
    let (sender, lines) = channel();
    // Ends with the process; all is read, so that the process never waits for a reader.
    std::thread::spawn(move || {
        let mut said = BufReader::new(said);
        let (mut line, mut kept) = (Vec::new(), 0);
        while let Ok(1..) = said.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            line.clear();
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            last.push_back(text.clone());
            let over = last.len().saturating_sub(LAST_LINES);
            last.drain(..over);
            drop(last);
            if kept < LINES_MAX {
                kept += 1;
                // The receiver goes away with the process.
                let _ = sender.send(text);
            }
        }
    });
    lines
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    fn shell(line: &str) -> Program {
        let mut command = Command::new("sh");
        command.args(["-c", line]).stdin(Stdio::null()).stdout(Stdio::piped());
        Program::start("sh", command).expect("a shell")
    }

    #[test]
    fn an_end_is_seen_with_output_and_code() {
        let mut process = shell("echo out; echo err >&2; exit 3");
        assert!(process.ends_within(Duration::from_secs(20), &|| false).expect("waited"));
        assert_eq!(process.line_within(Duration::from_secs(20)), Some("err"));
        assert_eq!(process.output().expect("read"), ("out\n".to_owned(), Some(3)));
    }

    #[test]
    fn a_line_is_waited_for_and_its_end_as_well() {
        let mut process = shell("echo hello >&2; echo ready: 5 >&2; sleep 600");
        let patience = Duration::from_secs(20);
        process.says_within("ready", patience, &|| false).expect("it said so");
        let mut process = shell("echo no such address >&2");
        let error = process.says_within("ready", patience, &|| false).expect_err("it ended");
        assert!(error.to_string().starts_with("sh: was not ready"), "{error}");
    }

    #[test]
    fn an_interruption_is_noticed_while_waiting() {
        let mut process = shell("sleep 600");
        let waited = process.ends_within(Duration::from_secs(600), &|| true);
        assert!(matches!(waited, Err(Error::Interrupted)), "{waited:?}");
    }

    #[test]
    fn a_failure_carries_the_last_words() {
        let many = "i=0; while [ $i -lt 100 ]; do echo line $i >&2; i=$((i+1)); done";
        let mut process = shell(&format!("{many}; echo 'no such address' >&2; exit 1"));
        process.ends_within(Duration::from_secs(20), &|| false).expect("waited");
        assert_eq!(
            process.failed("ended too early").to_string(),
            "sh: ended too early: line 98; line 99; no such address"
        );
    }

    #[test]
    fn what_ends_by_the_second_signal_is_asked_twice_once_it_listens() {
        let mut process = shell("trap '[ $n ] && exit 0; n=1' TERM; while :; do sleep 0.01; done");
        let patience = Duration::from_secs(60);
        process.catches_within(Signal::TERM, patience, &|| false).expect("looked");
        assert!(process.ends_by(Signal::TERM, patience, &|| false).expect("asked"));
        assert!(process.has_succeeded());
    }
}
