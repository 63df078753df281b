//! A program that is started and never outlives its handle: a server, a load generator, a process that measures.
//!
//! Waiting is on the process itself (a pidfd) or on what it prints, so that an early end is seen at once and nothing
//! sleeps. Its standard error is read by a thread of its own and kept; standard output is read by the
//! caller, because a thread on the way of an answer would cost it another wakeup. Ending is SIGTERM and, after a
//! deadline, SIGKILL; one that leads a process group is killed with all that is in the group; a process that is
//! dropped is ended as well. What has left the group is killed with its [`Tree`].

use std::borrow::BorrowMut;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{PipeReader, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};

use super::streams::{Output, SLICE, Said, is_ready, is_ready_within, listen};
use super::{Error, Tree};
use crate::patience;

/// How long a signal has before it is sent again.
const SIGNAL_AGAIN: Duration = Duration::from_secs(1);
/// Between two looks at which signals are caught.
const LOOK: Duration = Duration::from_millis(5);
/// Longest line of standard output; of a longer one the end is kept.
const OUTPUT_LINE_BYTES_MAX: usize = 1 << 20;
/// Bytes of standard output, from the first, that are kept where all of it is asked for.
const OUTPUT_BYTES_MAX: usize = 16 << 20;

/// A running process.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
    handle: OwnedFd,
    /// Its standard output, where it was made a pipe.
    output: Output,
    /// The lines of standard error, where that is read. The lock is never contended: threads may share a program.
    lines: Option<Mutex<Receiver<String>>>,
    /// The last of them.
    last: Arc<Mutex<Said>>,
    leads_group: bool,
    is_over: bool,
}

impl Program {
    /// Starts `command`, which says what becomes of standard input and output; `name` stands for it
    /// in messages.
    ///
    /// # Errors
    /// It can't be started.
    pub fn start(name: &str, command: impl BorrowMut<Command>) -> Result<Self, Error> {
        Self::start_reading(name, command, false, false)
    }

    /// The same, with standard output read as part of standard error.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_reading_all(name: &str, command: impl BorrowMut<Command>) -> Result<Self, Error> {
        Self::start_reading(name, command, true, false)
    }

    /// The same as the leader of a process group, with pipes for standard input and output: an interrupt on the
    /// terminal does not reach it, and what it leaves running in its group is killed when it has ended.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_group(name: &str, mut command: impl BorrowMut<Command>) -> Result<Self, Error> {
        let streams = command.borrow_mut().stdin(Stdio::piped()).stdout(Stdio::piped());
        Self::start_reading(name, streams.process_group(0), false, true)
    }

    /// The same without a reader of standard error, which goes where `command` says: for hundreds of processes.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_unread(name: &str, mut command: impl BorrowMut<Command>) -> Result<Self, Error> {
        Self::spawn(name, command.borrow_mut(), None, false)
    }

    fn start_reading(
        name: &str,
        mut command: impl BorrowMut<Command>,
        reads_output: bool,
        leads_group: bool,
    ) -> Result<Self, Error> {
        let command = command.borrow_mut();
        let setup = |cause| Error::Setup { what: format!("a pipe from {name}"), cause };
        let (said, writer) = std::io::pipe().map_err(setup)?;
        if reads_output {
            command.stdout(writer.try_clone().map_err(setup)?);
        }
        command.stderr(writer);
        let started = Self::spawn(name, command, Some(said), leads_group);
        // Closes ours of its ends: standard error is over when its last process is.
        command.stderr(Stdio::piped());
        if reads_output {
            command.stdout(Stdio::piped());
        }
        started
    }

    fn spawn(
        name: &str,
        command: &mut Command,
        said: Option<PipeReader>,
        leads_group: bool,
    ) -> Result<Self, Error> {
        let setup = |cause| Error::Setup { what: format!("the process {name}"), cause };
        let mut child = command.spawn().map_err(setup)?;
        let handle = match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(handle) => handle,
            Err(errno) => {
                let _ = child.kill();
                let _ = child.wait();
                let needs = "which needs Linux 5.3 and, in a container, a filter that allows it";
                let cause = format!("pidfd_open(2): {errno}, {needs}");
                return Err(setup(std::io::Error::new(errno.kind(), cause)));
            }
        };
        let last = Arc::default();
        let lines = said.map(|said| Mutex::new(listen(said, Arc::clone(&last))));
        let output = Output { from: child.stdout.take(), read: Vec::new(), is_over: false };
        let name = name.to_owned();
        Ok(Self { name, child, handle, output, lines, last, leads_group, is_over: false })
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
        let has_ended = self.has_ended(Duration::ZERO).unwrap_or(false);
        has_ended.then(|| self.wait().ok()).flatten()
    }

    /// How it ended, in words; only of one that has.
    pub fn how_it_ended(&mut self) -> String {
        self.status().map_or_else(|| "ended".to_owned(), |status| format!("ended with {status}"))
    }

    /// Whether it has ended with status 0.
    pub fn has_succeeded(&mut self) -> bool {
        self.status().is_some_and(|status| status.success())
    }

    /// Waits for its end, however long it takes; what it leaves in its group is killed while its number can't be
    /// another's.
    ///
    /// # Errors
    /// It can't be waited for.
    pub fn wait(&mut self) -> Result<ExitStatus, Error> {
        if self.leads_group && !self.is_over {
            while !self.has_ended(SLICE).unwrap_or(true) {}
            self.kill_group();
        }
        let status = self.child.wait().map_err(|cause| Error::Io { call: "waitid", cause })?;
        self.is_over = true;
        Ok(status)
    }

    /// Gives up this handle and lets the process run.
    pub fn leave_running(mut self) {
        self.is_over = true;
    }

    fn kill_group(&self) {
        // Nothing is there any more, in the best case.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
    }

    /// Writes a line to its standard input, which was made a pipe. One that has ended is noticed by its answer.
    pub fn write_line(&mut self, line: &str) {
        if let Some(input) = &mut self.child.stdin {
            let _ = writeln!(input, "{line}");
        }
    }

    /// Ends its standard input, which was made a pipe.
    pub fn end_input(&mut self) {
        drop(self.take_input());
    }

    /// Its standard input, where it was made a pipe and not taken before.
    pub fn take_input(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Its standard output, where it was made a pipe and not taken or read to its end before.
    pub fn take_output(&mut self) -> Option<ChildStdout> {
        self.output.from.take()
    }

    /// The next line of standard output, which was made a pipe, waited for at most `time`; none at its end. Gives up
    /// when the run is interrupted from outside.
    ///
    /// # Errors
    /// [`Error::Deadline`] when there was none in time.
    pub fn output_line_within(
        &mut self,
        time: Duration,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<String>, Error> {
        let start = Instant::now();
        loop {
            if let Some(line) = self.output.next_line() {
                return Ok(Some(line));
            }
            if !self.read_on(time, start, is_interrupted)? {
                return Ok(None);
            }
            self.output.keep_last(OUTPUT_LINE_BYTES_MAX);
        }
    }

    /// Standard output, which was made a pipe, to its end, as far as it was not read as lines; waited for at most
    /// `time`. Gives up when the run is interrupted from outside.
    ///
    /// # Errors
    /// [`Error::Deadline`] when it did not end in time.
    pub fn output_within(
        &mut self,
        time: Duration,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<String, Error> {
        let start = Instant::now();
        while self.read_on(time, start, is_interrupted)? {
            self.output.read.truncate(OUTPUT_BYTES_MAX);
        }
        Ok(String::from_utf8_lossy(&std::mem::take(&mut self.output.read)).into_owned())
    }

    /// Standard output as [`output_within`](Self::output_within) gives it, however long it takes, and how the process
    /// ended.
    ///
    /// # Errors
    /// It can't be read or waited for.
    pub fn output(mut self) -> Result<(String, ExitStatus), Error> {
        let text = self.output_within(Duration::MAX, &|| false)?;
        let status = self.wait()?;
        Ok((text, status))
    }

    /// Reads once from standard output, or waits a moment for it; whether there may be more. `time` counts from `start`.
    fn read_on(
        &mut self,
        time: Duration,
        start: Instant,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<bool, Error> {
        let Some(from) = &self.output.from else { return Ok(false) };
        if is_interrupted() {
            return Err(Error::Interrupted);
        }
        let left = time.saturating_sub(start.elapsed());
        if is_ready(from, left.min(SLICE))? {
            self.output.read_on();
        } else if left.is_zero() {
            return Err(Error::Deadline { program: self.name.clone(), time });
        } else if self.leads_group && self.has_ended(Duration::ZERO)? {
            // What it left behind holds its output open.
            self.kill_group();
        }
        Ok(true)
    }

    /// Waits until the process ends, at most `time`; whether it has ended. Gives up when the run
    /// is interrupted from outside.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub fn ends_within(
        &self,
        time: Duration,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<bool, Error> {
        is_ready_within(&self.handle, time, is_interrupted)
    }

    /// Waits for a line with `words` on standard error, at most `time`. Gives up when the process
    /// ends without it, or when the run is interrupted from outside.
    ///
    /// # Errors
    /// [`Error::Program`] when there was no such line, with the last words.
    pub fn wait_for_line(
        &mut self,
        words: &str,
        time: Duration,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        let start = Instant::now();
        loop {
            // Asked before the line is waited for: the last line may come with the end.
            let has_ended = self.has_ended(Duration::ZERO)?;
            let is_over = has_ended || start.elapsed() > time;
            match self.line_within(SLICE) {
                Ok(Some(line)) if line.contains(words) => return Ok(()),
                Ok(Some(_)) => {}
                Ok(None) => return Err(self.failed("ended before it was ready")),
                Err(_) if has_ended => return Err(self.failed("ended before it was ready")),
                Err(_) if is_over => {
                    return Err(self.failed(&format!("was not ready within {time:.1?}")));
                }
                Err(_) => {}
            }
            if is_interrupted() {
                return Err(Error::Interrupted);
            }
        }
    }

    fn has_ended(&self, time: Duration) -> Result<bool, Error> {
        is_ready(&self.handle, time)
    }

    /// The next line of standard error, waited for at most `time`; none at its end, which comes when every process
    /// that has it is gone, and where it is not read.
    ///
    /// # Errors
    /// [`Error::Deadline`] when there was none in time.
    pub fn line_within(&mut self, time: Duration) -> Result<Option<String>, Error> {
        let Some(lines) = &mut self.lines else { return Ok(None) };
        match lines.get_mut().unwrap_or_else(PoisonError::into_inner).recv_timeout(time) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => {
                Err(Error::Deadline { program: self.name.clone(), time })
            }
        }
    }

    /// Sends it a signal; whether it could be sent, which it can't to a process that was waited for.
    pub fn signal(&self, signal: Signal) -> bool {
        pidfd_send_signal(&self.handle, signal).is_ok()
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

    /// Ends it: asks, waits, kills; a group is killed at once.
    pub fn end(&mut self) {
        if self.is_over {
            return;
        }
        if self.leads_group {
            self.kill_group();
        } else {
            self.signal(Signal::TERM);
            // An interruption has to wait for the deadline as well: that is what it is for.
            if !self.ends_within(patience::PROCESS_ENDS, &|| false).unwrap_or(false) {
                self.signal(Signal::KILL);
            }
        }
        let _ = self.wait();
    }

    /// Kills it at once, with all that it has started and that still comes from it.
    pub fn kill_tree(&mut self) {
        if self.is_over {
            return;
        }
        let tree = Tree::of(&[self.pid()]);
        self.signal(Signal::KILL);
        let _ = self.wait();
        if let Ok(tree) = tree {
            tree.signal(Signal::KILL);
        }
    }

    /// How many bytes it has said on standard error, where that is read.
    pub fn printed_bytes(&self) -> u64 {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }

    /// The last lines that it said on standard error.
    pub fn stderr_tail(&mut self) -> String {
        // Its end follows that of its output, and what it said right before may still be on its way.
        let end = if self.output.is_over { patience::LAST_WORDS } else { Duration::ZERO };
        let is_over = self.is_over || self.has_ended(end).unwrap_or(true);
        let patience = if is_over { patience::LAST_WORDS } else { Duration::ZERO };
        let start = Instant::now();
        while let Ok(Some(_)) = self.line_within(patience.saturating_sub(start.elapsed())) {}
        let said = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        said.last.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("; ")
    }

    /// A failure of this process, with the last that it said.
    pub fn failed(&mut self, what: &str) -> Error {
        let said = self.stderr_tail();
        let what = if said.is_empty() { what.to_owned() } else { format!("{what}: {said}") };
        Error::Program { program: self.name.clone(), what }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}

/// The program `name` made of `source` in C with these flags, by the compiler of the machine; it stays in `folder`
/// for the runs that follow.
///
/// # Errors
/// [`Error`] when the folder can't be written, or with what the compiler said first.
pub fn built_from_c(
    folder: &Path,
    name: &str,
    source: &str,
    flags: &[&str],
) -> Result<PathBuf, Error> {
    // A folder that outlives a build of pollux may hold the program of another one.
    let mut hasher = DefaultHasher::new();
    (source, flags).hash(&mut hasher);
    let program = folder.join(format!("{name}-{:016x}", hasher.finish()));
    if program.exists() {
        return Ok(program);
    }
    let setup = |path: &Path| {
        let what = path.display().to_string();
        move |cause| Error::Setup { what, cause }
    };
    let own = std::process::id();
    let text = folder.join(format!("{name}-{own}.c"));
    std::fs::write(&text, source).map_err(setup(&text))?;
    // Under another name until it is whole: a run that was stopped must leave no half program, and
    // another one may build it at the same time.
    let unfinished = folder.join(format!("{name}-{own}.new"));
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-Wall", "-o"]).arg(&unfinished).arg(&text).args(flags);
    let output = compiler.stdin(Stdio::null()).output().map_err(setup(Path::new("cc")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let first = said.lines().find(|line| line.contains("error")).unwrap_or("no reason");
        let what = format!("could not be built: {first}");
        return Err(Error::Program { program: name.to_owned(), what });
    }
    std::fs::rename(&unfinished, &program).map_err(setup(&program))?;
    Ok(program)
}

#[cfg(test)]
mod tests {
    use pollux_testing::{DEADLINE, await_end};

    use super::*;

    fn shell(line: &str) -> Program {
        let mut command = Command::new("sh");
        command.args(["-c", line]).stdin(Stdio::null()).stdout(Stdio::piped());
        Program::start("sh", command).expect("a shell")
    }

    #[test]
    fn an_end_is_seen_with_output_and_code() {
        let mut process = shell("echo out; echo err >&2; exit 3");
        assert!(process.ends_within(DEADLINE, &|| false).expect("waited"));
        assert_eq!(process.line_within(DEADLINE).expect("read").as_deref(), Some("err"));
        let (text, status) = process.output().expect("read");
        assert_eq!((text.as_str(), status.code()), ("out\n", Some(3)));
    }

    #[test]
    fn a_line_is_waited_for_and_its_end_as_well() {
        let mut process = shell("echo hello >&2; echo ready: 5 >&2; sleep 600");
        process.wait_for_line("ready", DEADLINE, &|| false).expect("it said so");
        let mut process = shell("echo hello >&2; echo ready >&2");
        process.ends_within(DEADLINE, &|| false).expect("waited");
        process.wait_for_line("ready", DEADLINE, &|| false).expect("it said so before its end");
        let mut process = shell("echo no such address >&2");
        let error = process.wait_for_line("ready", DEADLINE, &|| false).expect_err("it ended");
        assert_eq!(error.to_string(), "sh: ended before it was ready: no such address");
        let mut process = shell("echo busy >&2; exec sleep 600");
        let time = Duration::from_millis(300);
        let error = process.wait_for_line("ready", time, &|| false).expect_err("it sleeps");
        assert_eq!(error.to_string(), "sh: was not ready within 300.0ms: busy");
    }

    #[test]
    fn an_interruption_is_noticed_while_waiting() {
        let process = shell("sleep 600");
        let waited = process.ends_within(Duration::from_secs(600), &|| true);
        assert!(matches!(waited, Err(Error::Interrupted)), "{waited:?}");
    }

    #[test]
    fn a_failure_carries_the_last_words() {
        let many = "i=0; while [ $i -lt 100 ]; do echo line $i >&2; i=$((i+1)); done";
        let mut process = shell(&format!("{many}; echo 'no such address' >&2; exit 1"));
        process.ends_within(DEADLINE, &|| false).expect("waited");
        assert_eq!(
            process.failed("ended too early").to_string(),
            "sh: ended too early: line 98; line 99; no such address"
        );
    }

    #[test]
    fn words_behind_the_end_of_the_output_are_waited_for() {
        let mut process = group("exec >&-; echo 'no such address' >&2; exit 1");
        assert_eq!(process.output_line_within(DEADLINE, &|| false).expect("waited"), None);
        assert_eq!(process.stderr_tail(), "no such address");
    }

    #[test]
    fn what_ends_by_the_second_signal_is_asked_twice_once_it_listens() {
        let mut process = shell("trap '[ $n ] && exit 0; n=1' TERM; while :; do sleep 0.01; done");
        process.catches_within(Signal::TERM, DEADLINE, &|| false).expect("looked");
        assert!(process.ends_by(Signal::TERM, DEADLINE, &|| false).expect("asked"));
        assert!(process.has_succeeded());
    }

    fn group(line: &str) -> Program {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        Program::start_group("sh", command).expect("a shell")
    }

    #[test]
    fn lines_are_answered_until_the_end_of_the_input() {
        let mut process = group("while read line; do echo got $line; done; printf rest");
        for line in ["one", "two"] {
            process.write_line(line);
            let answer = process.output_line_within(DEADLINE, &|| false).expect("waited");
            assert_eq!(answer, Some(format!("got {line}")));
        }
        let silent = process.output_line_within(Duration::ZERO, &|| false);
        assert!(matches!(silent, Err(Error::Deadline { .. })), "{silent:?}");
        process.end_input();
        let mut next = || process.output_line_within(DEADLINE, &|| false).expect("waited");
        assert_eq!((next().as_deref(), next()), (Some("rest"), None));
        // Its output closes a moment before its exit can be seen.
        assert!(process.ends_within(DEADLINE, &|| false).expect("waited"));
        assert!(process.has_succeeded());
    }

    #[test]
    fn what_the_leader_of_a_group_leaves_running_is_killed() {
        let mut process = group("sleep 600 & echo $!; exit 3");
        let pid =
            process.output_line_within(DEADLINE, &|| false).expect("waited").expect("a number");
        // The output ends when the sleep does.
        assert_eq!(process.output_line_within(DEADLINE, &|| false).expect("waited"), None);
        assert_eq!(process.status().and_then(|status| status.code()), Some(3));
        await_end(Pid::from_raw(pid.parse().expect("a number")).expect("not zero"));
    }
}
