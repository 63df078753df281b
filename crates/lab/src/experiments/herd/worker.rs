//! Worker processes: what one does, how it waits, and how all of a run are started, observed, ended, and never left
//! behind.
//!
//! `pollux lab herd-worker` calls [`run`]: a process that waits for the source, takes requests and answers
//! them. It receives its orders over a [`ControlSocket`] that all workers share, says there when it is ready,
//! and at the end how many calls it answered. Workers end when the pipe that all of them watch is closed;
//! those that block take a request each that says stop. One that has not ended by a deadline is killed, and
//! so are all when `WorkerProcesses` is dropped.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pollux_processes::{ControlSocket, Program};
use rustix::event::epoll::EventFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::requests::{Intake, Message, Purpose, Requests};
use super::sources::{Opened, Source};
use super::waiting::{Wait, Waiting, Woken, instance};
use crate::error::{MeasureError, in_words};

/// What a worker receives. The descriptors beside it: the end of the run, the epoll instance of all
/// workers where there is one, then those of the source.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Orders {
    /// What it waits for.
    pub(super) source: Source,
    /// How.
    pub(super) wait: Wait,
}

/// What a worker says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Word {
    /// It is about to wait for the first time.
    Ready,
    /// It has ended well.
    Ended(Report),
    /// It has not.
    Failed(String),
}

/// What a worker counted in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Report {
    /// Calls of the ramp that it answered.
    pub(super) calls_ramp: u64,
    /// Calls of the window that it answered.
    pub(super) calls: u64,
    /// Times that it returned from waiting.
    pub(super) waits: u64,
    /// Times that it found nothing then.
    pub(super) empty: u64,
}

/// Works until the run is over.
///
/// # Errors
/// [`MeasureError`] when a failure can't be reported; one that is reported is not an error here.
pub fn run() -> Result<(), MeasureError> {
    let control = ControlSocket::on_stdin()?;
    let Some((orders, fds)) = control.receive::<Orders>()? else { return Ok(()) };
    let word = match work(&control, &orders, fds) {
        Ok(report) => Word::Ended(report),
        Err(error) => Word::Failed(in_words(&error)),
    };
    Ok(control.send(&word, &[])?)
}

fn work(
    control: &ControlSocket,
    orders: &Orders,
    fds: Vec<OwnedFd>,
) -> Result<Report, MeasureError> {
    let Orders { source, wait } = *orders;
    let mut fds = fds.into_iter();
    let end =
        fds.next().ok_or_else(|| MeasureError::Spec("no descriptor of the end".to_owned()))?;
    let shared = (wait == Wait::Shared).then(|| fds.next()).flatten();
    let intake = Intake::new(source, fds.collect())?;
    let mut waiting = Waiting::open(wait, intake.waited_for(), end.as_fd(), shared)?;
    control.send(&Word::Ready, &[])?;
    serve(&intake, &mut waiting, wait == Wait::Edge)
}

/// Waits and serves until the end, or until a request that says stop.
fn serve(intake: &Intake, waiting: &mut Waiting, drains: bool) -> Result<Report, MeasureError> {
    let mut report = Report::default();
    // A wake-up without a request belongs to the calls around it.
    let (mut purpose, mut waits, mut empty) = (Purpose::Ramp, 0, 0);
    while waiting.wait()? == Woken::Work {
        waits += 1;
        loop {
            let Some(message) = intake.serve()? else {
                empty += 1;
                break;
            };
            match message.purpose {
                Purpose::Stop => return Ok(report.with(purpose, waits, empty)),
                Purpose::Window => report.calls += 1,
                Purpose::Ramp => report.calls_ramp += 1,
            }
            if purpose != message.purpose {
                (purpose, waits, empty) = (message.purpose, 1, 0);
            }
            if !drains {
                break;
            }
        }
    }
    Ok(report.with(purpose, waits, empty))
}

impl Report {
    /// With the waits that were counted since the window's first call, if it had one.
    fn with(self, purpose: Purpose, waits: u64, empty: u64) -> Self {
        match purpose {
            Purpose::Window => Self { waits, empty, ..self },
            Purpose::Ramp | Purpose::Stop => self,
        }
    }
}

/// How long all workers may take until they wait; a hundred times what one takes.
const READY_PATIENCE: Duration = Duration::from_secs(60);
/// How long they may take to end when they are asked to.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// Workers that wait for a source.
#[derive(Debug)]
pub(super) struct WorkerProcesses {
    control: ControlSocket,
    workers: Vec<Program>,
    wait: Wait,
    /// Closing it is the end for all that watch the other side.
    end: Option<OwnedFd>,
}

impl WorkerProcesses {
    /// Starts so many workers and returns when all of them are about to wait.
    pub(super) fn start(
        count: usize,
        source: Source,
        wait: Wait,
        opened: &Opened,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Self, MeasureError> {
        let (end_watched, end) =
            pipe_with(PipeFlags::CLOEXEC).map_err(MeasureError::io("pipe2"))?;
        let shared = match wait {
            Wait::Shared => {
                let work = opened.workers[0].as_fd();
                Some(instance(work, end_watched.as_fd(), EventFlags::empty())?)
            }
            _ => None,
        };
        let mut fds: Vec<BorrowedFd<'_>> = vec![end_watched.as_fd()];
        fds.extend(shared.as_ref().map(AsFd::as_fd));
        fds.extend(opened.for_workers());
        let orders = Orders { source, wait };
        let (control, theirs) = ControlSocket::pair()?;
        let mut processes = Self { control, workers: Vec::new(), wait, end: Some(end) };
        for number in 1..=count {
            if is_interrupted() {
                return Err(MeasureError::Interrupted);
            }
            let name = format!("worker {number} of {count} (see ulimit -u and pids.max)");
            let command = command("herd-worker", &theirs)
                .map_err(|cause| MeasureError::Setup { what: name.clone(), cause })?;
            processes.workers.push(Program::start_unread(&name, command)?);
            processes.control.send(&orders, &fds)?;
        }
        // From here on the control socket ends with the last worker.
        drop(theirs);
        processes.wait_until_ready(is_interrupted)?;
        Ok(processes)
    }

    fn wait_until_ready(&self, is_interrupted: &dyn Fn() -> bool) -> Result<(), MeasureError> {
        let start = Instant::now();
        for ready in 0..self.workers.len() {
            let left = READY_PATIENCE.saturating_sub(start.elapsed());
            match self.control.receive_within(left, is_interrupted)? {
                Some(Word::Ready) => {}
                Some(Word::Failed(what)) => return Err(failed(what)),
                Some(Word::Ended(_)) | None => {
                    let count = self.workers.len();
                    return Err(failed(format!("only {ready} of {count} were ready in time")));
                }
            }
        }
        Ok(())
    }

    /// Their process numbers.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.workers.iter().map(Program::pid).collect()
    }

    /// What a worker has said that failed meanwhile, if one has.
    pub(super) fn complaint(&self) -> Option<MeasureError> {
        match self.control.receive_within(Duration::ZERO, &|| false) {
            Ok(Some(Word::Failed(what))) => Some(failed(what)),
            _ => None,
        }
    }

    /// Ends all workers, by `requests` those that block; what each of them counted.
    pub(super) fn end(
        mut self,
        requests: &Requests,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Vec<Report>, MeasureError> {
        let count = self.workers.len();
        // A connection is kept until its worker has read what is on it.
        let mut connections = Vec::new();
        if self.wait == Wait::Block {
            for _ in 0..count {
                let stop = Message { caller: 0, purpose: Purpose::Stop };
                connections.push(requests.send(stop)?);
            }
        }
        drop(self.end.take());
        let start = Instant::now();
        let mut reports = Vec::new();
        while reports.len() < count {
            let left = END_PATIENCE.saturating_sub(start.elapsed());
            match self.control.receive_within(left, is_interrupted)? {
                Some(Word::Ended(report)) => reports.push(report),
                Some(Word::Failed(what)) => return Err(failed(what)),
                Some(Word::Ready) => {}
                None => {
                    let ended = reports.len();
                    let what = format!("{ended} of {count} ended when they were asked to");
                    return Err(failed(what));
                }
            }
        }
        Ok(reports)
    }
}

impl Drop for WorkerProcesses {
    fn drop(&mut self) {
        // All at once: each waits for its end when it is dropped.
        for worker in &self.workers {
            worker.signal(Signal::KILL);
        }
    }
}

/// A hidden command of this program with a control socket as its standard input; what goes wrong in it is said where
/// this process says it.
pub(super) fn command(name: &str, control: &OwnedFd) -> std::io::Result<Command> {
    let control = control.try_clone()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["lab", name]).stdin(Stdio::from(control));
    command.stdout(Stdio::null());
    Ok(command)
}

fn failed(what: String) -> MeasureError {
    MeasureError::Program { program: "a worker".to_owned(), what }
}
