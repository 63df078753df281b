//! A subject's process as the runner sees it: started, given orders, ended.
//!
//! It lives as long as its set. Every answer has a deadline, and whatever happens, it ends with
//! this handle, together with everything that it started.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::child::{Guard, Said, listen};
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
    answers: Receiver<Said>,
    complaints: Vec<String>,
    /// Of standard output and standard error, how many are open.
    open: u32,
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
        let answers = listen(&mut child);
        let mut living =
            Self { process: Guard::of(child), orders, answers, complaints: Vec::new(), open: 2 };
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
            if is_stopped() {
                return Err("stopped by the user".to_owned());
            }
            if start.elapsed() > patience {
                return Err(format!("gave no answer within {patience:.0?} and was killed"));
            }
            match self.answers.recv_timeout(LOOK) {
                Ok(Said::Out(line)) => {
                    return serde_json::from_str(&line)
                        .map_err(|error| format!("said \"{}\": {error}", line.trim()));
                }
                Ok(Said::Err(line)) => self.complaints.push(line.trim().to_owned()),
                Err(RecvTimeoutError::Timeout) if !self.process.has_ended() => {}
                Ok(Said::Closed) => {
                    self.open -= 1;
                    if self.open == 0 {
                        return Err(self.last_words());
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.last_words()),
                // What it still says comes before the end of its output.
                Err(RecvTimeoutError::Timeout) => self.process.kill_group(),
            }
        }
    }

    fn last_words(&mut self) -> String {
        let patience = Instant::now() + LOOK;
        while let Ok(said) = self.answers.recv_timeout(patience - Instant::now().min(patience)) {
            if let Said::Err(line) = said {
                self.complaints.push(line.trim().to_owned());
            }
        }
        self.complaints.retain(|line| !line.is_empty());
        let last = &self.complaints[self.complaints.len().saturating_sub(QUOTED_LINES)..];
        match last {
            [] => "ended without a word".to_owned(),
            lines => lines.join("; "),
        }
    }
}
