//! A subject's process as the runner sees it: started, given orders, ended.
//!
//! It lives as long as its set. Every answer has a deadline, and whatever happens, it ends with
//! this handle, together with everything that it started.

use std::process::Command;
use std::time::Duration;

use pollux_processes::{Error, Program};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::arm::{started, stopped_or};
use crate::child::Task;
use crate::subject::{Described, Life, Order, Reply};

/// How long a subject may take to be set up: tens of thousands of connections take some seconds.
const READY_PATIENCE: Duration = Duration::from_secs(90);
/// Grace of each answer beyond the time that was ordered: a turn ends what it began.
const GRACE: Duration = Duration::from_secs(20);

/// A subject that lives.
pub(super) struct Living(Program);

impl Living {
    /// Starts the subject's process; it sets itself up while others are started.
    pub(super) fn start(mut command: Command, task: &Task) -> Result<Self, String> {
        command.args(["lab", "subject"]);
        let mut program = started(command)?;
        program.write_line(&serde_json::to_string(task).expect("a task is plain data"));
        Ok(Self(program))
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
        self.send(order);
        self.answer(length * 20 + GRACE, is_stopped)
    }

    /// Gives the order to end without waiting; servers take their time to let go of connections.
    pub(super) fn tell_end(&mut self) {
        self.send(&Order::End);
    }

    /// Waits until it has ended: what its life came to.
    pub(super) fn ended(&mut self, is_stopped: &dyn Fn() -> bool) -> Result<Life, String> {
        match self.answer(GRACE, is_stopped)? {
            Reply::Ended(life) => Ok(life),
            other => Err(format!("said {other:?} at its end")),
        }
    }

    fn send(&mut self, order: &Order) {
        self.0.write_line(&serde_json::to_string(order).expect("an order is plain data"));
    }

    fn answer(
        &mut self,
        patience: Duration,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Reply, String> {
        match self.0.output_line_within(patience, is_stopped) {
            Ok(Some(line)) => {
                serde_json::from_str(&line).map_err(|error| format!("said \"{line}\": {error}"))
            }
            Ok(None) => Err(match self.0.last_words() {
                words if words.is_empty() => {
                    "ended, and printed nothing on standard error".to_owned()
                }
                words => words,
            }),
            Err(Error::Deadline { time, .. }) => {
                Err(format!("did not answer within {time:.0?} and was killed"))
            }
            Err(error) => Err(stopped_or(error)),
        }
    }
}

/// The runner on the CPU of the thread that takes its orders, as long as this value lives: an order to
/// another CPU has to wake it, which takes a virtual machine as long as a third of a turn.
pub(super) struct Beside(CpuSet);

impl Beside {
    /// Beside a subject; none where the kernel does not say, or refuses.
    pub(super) fn of(subject: &Living) -> Option<Self> {
        let cpus = sched_getaffinity(Pid::from_raw(subject.0.pid() as i32)).ok()?;
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
