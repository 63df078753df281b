//! A subject's process as the runner sees it: started, given orders, ended.
//!
//! It lives as long as its set. Every answer has a deadline, and whatever happens, it ends with
//! this handle, together with everything that it started.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::child::{Guard, LINE_MAX};
use crate::child::Task;
use crate::turns::{Described, Life, Order, Reply};

/// How long a subject may take to be set up: tens of thousands of connections take some seconds.
const READY_PATIENCE: Duration = Duration::from_secs(90);
/// Grace of each answer beyond the time that was ordered: a turn ends what it began.
const GRACE: Duration = Duration::from_secs(20);
/// How often a stop is looked for while an answer is waited for.
const LOOK: Duration = Duration::from_millis(100);
/// Lines of standard error that a failure quotes, from the end.
const QUOTED_LINES: usize = 3;

/// A subject that lives.
pub(super) struct Living {
    process: Guard,
    orders: Option<ChildStdin>,
    answers: Lines<ChildStdout>,
    complaints: Lines<ChildStderr>,
}

/// What a process writes, read when there is something: the runner waits for it in its own thread, since
/// each thread more on the way of an answer costs a turn another wakeup.
struct Lines<F> {
    from: F,
    read: Vec<u8>,
    is_open: bool,
}

impl<F: Read + AsFd> Lines<F> {
    fn of(from: F) -> Self {
        Self { from, read: Vec::new(), is_open: true }
    }

    /// The next whole line that has been read, or what was left at the end.
    fn next(&mut self) -> Option<String> {
        let end = self.read.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        let end =
            end.or_else(|| (!self.is_open && !self.read.is_empty()).then_some(self.read.len()))?;
        let line: Vec<u8> = self.read.drain(..end).collect();
        Some(String::from_utf8_lossy(&line).trim().to_owned())
    }

    /// Reads once, without waiting where [`Self::wanted`] said that there is something.
    fn read_on(&mut self) {
        let mut part = [0; 4096];
        match self.from.read(&mut part) {
            Ok(read @ 1..) => {
                self.read.extend_from_slice(&part[..read]);
                let surplus = self.read.len().saturating_sub(LINE_MAX as usize);
                self.read.drain(..surplus);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => self.is_open = false,
        }
    }

    fn wanted(&self) -> Option<PollFd<'_>> {
        self.is_open.then(|| PollFd::new(&self.from, PollFlags::IN))
    }
}

impl Living {
    /// Starts the subject's process; it sets itself up while others are started.
    pub(super) fn start(mut command: Command, task: &Task) -> Result<Self, String> {
        command.args(["lab", "subject"]).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let program = command.get_program().to_string_lossy().into_owned();
        let started =
            command.spawn().map_err(|error| format!("could not start {program}: {error}"));
        let mut child = started?;
        let orders = child.stdin.take();
        let answers = Lines::of(child.stdout.take().expect("it was made a pipe"));
        let complaints = Lines::of(child.stderr.take().expect("it was made a pipe"));
        let mut living = Self { process: Guard::of(child), orders, answers, complaints };
        living.write(&serde_json::to_string(task).expect("a task is plain data"));
        Ok(living)
    }

    /// Waits until it is set up.
    pub(super) fn ready(&mut self, is_stopped: &dyn Fn() -> bool) -> Result<Described, String> {
        match self.answer(READY_PATIENCE, is_stopped)? {
            Reply::Ready(described) => Ok(described),
            other => Err(format!("said {other:?} before it was ready")),
        }
    }

    /// Gives an order that takes about `length`, and waits for its answer.
    pub(super) fn order(
        &mut self,
        order: &Order,
        length: Duration,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Reply, String> {
        self.tell(order);
        self.answer(length * 20 + GRACE, is_stopped)
    }

    /// Gives the order to end without waiting; servers take their time to let go of connections.
    pub(super) fn tell_end(&mut self) {
        self.tell(&Order::End);
    }

    /// Waits until it has ended: what its life came to.
    pub(super) fn ended(&mut self, is_stopped: &dyn Fn() -> bool) -> Result<Life, String> {
        match self.answer(GRACE, is_stopped)? {
            Reply::Ended(life) => Ok(life),
            other => Err(format!("said {other:?} at its end")),
        }
    }

    fn tell(&mut self, order: &Order) {
        self.write(&serde_json::to_string(order).expect("an order is plain data"));
    }

    fn write(&mut self, line: &str) {
        if let Some(orders) = &mut self.orders {
            // One that has ended is noticed by its answer.
            let _ = writeln!(orders, "{line}");
        }
    }

    fn answer(
        &mut self,
        patience: Duration,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Reply, String> {
        let start = Instant::now();
        loop {
            if let Some(line) = self.answers.next() {
                return serde_json::from_str(&line)
                    .map_err(|error| format!("said \"{line}\": {error}"));
            }
            if is_stopped() {
                return Err("stopped by the user".to_owned());
            }
            if start.elapsed() > patience {
                return Err(format!("gave no answer within {patience:.0?} and was killed"));
            }
            if !self.answers.is_open && !self.complaints.is_open {
                return Err(self.last_words());
            }
            // What it still says comes before the end of its output.
            if !self.read_on(LOOK) && self.process.has_ended() {
                self.process.kill_group();
            }
        }
    }

    /// Reads what there is, after a wait of at most `patience`; whether there was something.
    fn read_on(&mut self, patience: Duration) -> bool {
        let patience = Timespec::try_from(patience).expect("a fraction of a second");
        let (answers, complaints) = (self.answers.wanted(), self.complaints.wanted());
        let is_first = answers.is_some();
        let mut wanted: Vec<PollFd<'_>> = answers.into_iter().chain(complaints).collect();
        // An error is a signal's: there is another look.
        let _ = poll(&mut wanted, Some(&patience));
        let mut ready = wanted.iter().map(|fd| !fd.revents().is_empty());
        let answers = is_first && ready.next().unwrap_or(false);
        let complaints = ready.next().unwrap_or(false);
        if answers {
            self.answers.read_on();
        }
        if complaints {
            self.complaints.read_on();
        }
        answers || complaints
    }

    fn last_words(&mut self) -> String {
        while self.complaints.is_open && self.read_on(LOOK) {}
        let complaints = std::iter::from_fn(|| self.complaints.next());
        let lines: Vec<String> = complaints.filter(|line| !line.is_empty()).collect();
        match &lines[lines.len().saturating_sub(QUOTED_LINES)..] {
            [] => "ended, and printed nothing on standard error".to_owned(),
            last => last.join("; "),
        }
    }
}

/// The runner on the CPU of the thread that takes its orders, as long as this value lives: an order to
/// another CPU has to wake it, which takes a virtual machine as long as a third of a turn.
pub(super) struct Beside(CpuSet);

impl Beside {
    /// Beside a subject; none where the kernel does not tell, or refuses.
    pub(super) fn of(subject: &Living) -> Option<Self> {
        let cpus = sched_getaffinity(subject.process.pid()).ok()?;
        let before = sched_getaffinity(None).ok()?;
        sched_setaffinity(None, &cpus).ok()?;
        Some(Self(before))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // It was allowed there before.
        let _ = sched_setaffinity(None, &self.0);
    }
}
