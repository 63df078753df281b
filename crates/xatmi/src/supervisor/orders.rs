//! What users order: start, stop and restart of some workers, and the end of all.
//!
//! The pool calls these when a command arrives. They only change what is wanted; what follows
//! is the business of the state machine.

use std::fmt;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::member::{Member, Phase, Then};
use super::{Action, Supervisor};

/// Which workers an order is for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selection {
    /// All; a start means the `min` copies of each program.
    All,
    /// The copies of one program; a start means its `min` copies.
    Program(String),
    /// One worker, standby or not.
    Id(u32),
}

/// No worker is selected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoSuchWorker(Selection);

impl fmt::Display for NoSuchWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Selection::All => f.write_str("the configuration has no worker"),
            Selection::Program(name) => {
                write!(f, "the configuration has no <server name=\"{name}\">")
            }
            Selection::Id(id) => write!(f, "the configuration has no worker with the id {id}"),
        }
    }
}

impl std::error::Error for NoSuchWorker {}

impl Supervisor {
    /// Starts what is not running; returns how many workers will be started.
    ///
    /// # Errors
    /// [`NoSuchWorker`].
    pub fn start(
        &mut self,
        which: &Selection,
        now: Instant,
        out: &mut Vec<Action>,
    ) -> Result<usize, NoSuchWorker> {
        let mut started = 0;
        for id in self.selected(which, true)? {
            let member = self.members.get_mut(&id).expect("selected from the members");
            started += usize::from(member.start(now, out));
        }
        self.take_turns(now, out);
        Ok(started)
    }

    /// Stops what is running; returns how many workers were asked, or taken off the queue.
    ///
    /// # Errors
    /// [`NoSuchWorker`].
    pub fn stop(
        &mut self,
        which: &Selection,
        now: Instant,
        out: &mut Vec<Action>,
    ) -> Result<usize, NoSuchWorker> {
        self.change(which, Then::Stay, now, out)
    }

    /// Stops what is running and starts it again, each as soon as it is gone; one that is down is
    /// started if it was meant by its id.
    ///
    /// # Errors
    /// [`NoSuchWorker`].
    pub fn restart(
        &mut self,
        which: &Selection,
        now: Instant,
        out: &mut Vec<Action>,
    ) -> Result<usize, NoSuchWorker> {
        self.change(which, Then::Again, now, out)
    }

    /// Tells all workers to stop; nothing is started from now on.
    pub fn end(&mut self, now: Instant, out: &mut Vec<Action>) {
        self.is_ending = true;
        self.learning_until = None;
        for member in self.members.values_mut() {
            member.stop(Then::Stay, now, out);
        }
    }

    /// Kills all workers at once, whatever `autokill` is: it was asked for twice.
    pub fn end_now(&mut self, now: Instant, out: &mut Vec<Action>) {
        self.end(now, out);
        for member in self.members.values().filter(|member| member.is_alive()) {
            out.push(Action::Signal { id: member.id, signal: 9 });
        }
    }

    fn change(
        &mut self,
        which: &Selection,
        then: Then,
        now: Instant,
        out: &mut Vec<Action>,
    ) -> Result<usize, NoSuchWorker> {
        let mut changed = 0;
        for id in self.selected(which, false)? {
            let member = self.members.get_mut(&id).expect("selected from the members");
            let is_down = matches!(member.phase, Phase::Down);
            if is_down && then == Then::Again && matches!(which, Selection::Id(_)) {
                changed += usize::from(member.start(now, out));
            } else {
                changed += usize::from(!is_down);
                member.stop(then, now, out);
            }
        }
        self.take_turns(now, out);
        Ok(changed)
    }

    /// The ids that are meant, of those of `min` only where asked.
    fn selected(&self, which: &Selection, of_min: bool) -> Result<Vec<u32>, NoSuchWorker> {
        let is_meant = |member: &&Member| match which {
            Selection::Id(id) => member.id == *id,
            Selection::All => !of_min || self.mins[member.entry].0.contains(&member.id),
            Selection::Program(name) => {
                let (ids, program) = &self.mins[member.entry];
                program == name && (!of_min || ids.contains(&member.id))
            }
        };
        let members = self.members.values().filter(|member| !member.is_removed);
        let ids: Vec<u32> = members.filter(is_meant).map(|member| member.id).collect();
        let is_known = match which {
            Selection::Program(name) => self.mins.iter().any(|(_, program)| program == name),
            Selection::Id(_) | Selection::All => !ids.is_empty(),
        };
        if is_known { Ok(ids) } else { Err(NoSuchWorker(which.clone())) }
    }
}
