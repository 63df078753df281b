//! The worker processes of a run: started, watched, ended, and never left behind.
//!
//! Workers share one [`ControlSocket`]: each takes one of as many orders. They end when the pipe that all of
//! them watch is closed; those that block take a request each that says stop. One that has not ended
//! by a deadline is killed, and so are all when [`WorkerProcesses`] is dropped.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::pipe::{PipeFlags, pipe_with};

use pollux_processes::ControlSocket;

use super::message::{Message, Purpose};
use super::requests::Requests;
use super::source::{Opened, Source};
use super::wait::Wait;
use super::waiting;
use super::worker::{Orders, Report, Word};
use crate::error::MeasureError;

/// How long all workers may take until they wait; a hundred times what one takes.
const READY_PATIENCE: Duration = Duration::from_secs(60);
/// How long they may take to end when they are asked to.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// Workers that wait for a source.
#[derive(Debug)]
pub(super) struct WorkerProcesses {
    control: ControlSocket,
    children: Vec<Child>,
    wait: Wait,
    /// Closing it is the end for all who watch the other side.
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
                Some(waiting::instance(work, end_watched.as_fd(), EventFlags::empty())?)
            }
            _ => None,
        };
        let mut fds: Vec<BorrowedFd<'_>> = vec![end_watched.as_fd()];
        fds.extend(shared.as_ref().map(AsFd::as_fd));
        fds.extend(opened.for_workers());
        let orders = Orders { source, wait };
        let (control, theirs) = ControlSocket::pair()?;
        let mut processes = Self { control, children: Vec::new(), wait, end: Some(end) };
        for number in 1..=count {
            if is_interrupted() {
                return Err(MeasureError::Interrupted);
            }
            let child = start("herd-worker", &theirs);
            processes.children.push(child.map_err(|cause| MeasureError::Setup {
                what: format!("worker {number} of {count} (see ulimit -u and pids.max)"),
                cause,
            })?);
            processes.control.send(&orders, &fds)?;
        }
        // From here on the control socket ends with the last worker.
        drop(theirs);
        processes.wait_until_ready(is_interrupted)?;
        Ok(processes)
    }

    fn wait_until_ready(&self, is_interrupted: &dyn Fn() -> bool) -> Result<(), MeasureError> {
        let start = Instant::now();
        for ready in 0..self.children.len() {
            let left = READY_PATIENCE.saturating_sub(start.elapsed());
            match self.control.receive_within(left, is_interrupted)? {
                Some(Word::Ready) => {}
                Some(Word::Failed(what)) => return Err(failed(what)),
                Some(Word::Ended(_)) | None => {
                    let count = self.children.len();
                    return Err(failed(format!("only {ready} of {count} were ready in time")));
                }
            }
        }
        Ok(())
    }

    /// Their process numbers.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.children.iter().map(Child::id).collect()
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
        let count = self.children.len();
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
        // Those that have ended by themselves do not mind.
        self.children.iter_mut().for_each(|child| drop(child.kill()));
        self.children.iter_mut().for_each(|child| drop(child.wait()));
    }
}

/// Starts a hidden command of this program with `control socket` as its standard input.
pub(super) fn start(name: &str, control: &OwnedFd) -> std::io::Result<Child> {
    command(name, control)?.spawn()
}

/// The same before it is started.
pub(super) fn command(name: &str, control: &OwnedFd) -> std::io::Result<Command> {
    let control = control.try_clone()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["lab", name]).stdin(Stdio::from(control));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}

fn failed(what: String) -> MeasureError {
    MeasureError::Program { program: "a worker".to_owned(), what }
}
