//! Which worker should run, and what has to be done about it now: a pure state machine.
//!
//! The pool tells it what happened and does what it answers; it never touches a process, a
//! socket or a clock. All limits are looked at once in each check cycle, `sanity` apart.
//!
//! ```text
//!                  start              turn comes            Ready
//!      ┌──────────┐      ┌──────────┐ (Spawn)  ┌──────────┐       ┌──────┐
//!      │   down   ├─────►│  queued  ├─────────►│ starting ├──────►│  up  │◄─── adopted
//!      └──────────┘      └──────────┘          └──┬───┬───┘       └─┬──┬─┘     ▲
//!        ▲      ▲             ▲  cycles over      │   │             │  │       │
//!        │      │ no respawn  └─────────┐    died │   │ start_max   │  │   ┌───┴────┐
//!        │      │                  ┌────┴────┐    │   │             │  │   │ orphan │
//!        │      └──────────────────┤ waiting │◄───┘   │    ping_max │  │   └───┬────┘
//!        │                         └─────────┘◄───────┼───── died ──┘  │ stop  │ learning
//!        │  died                        ▲ died        ▼                ▼       ▼ is over
//!   ┌────┴─────┐     end_max            │        ┌──────────────────────────┐
//!   │  ending  ├────────────────────────┼───────►│ killing  2, 15, 9, 9, …  │
//!   └──────────┘                        └────────┴──────────────────────────┘
//! ```
//!
//! | phase | ends by | limit, in cycles | at the limit |
//! |---|---|---|---|
//! | queued | its turn: entries in order, 64 at once | | |
//! | starting | Ready, Refused, Died | `start_max` | kill, if `autokill` |
//! | up | Died, stop | `ping_max` after a ping every `pingtime` | kill, if `autokill` |
//! | ending | Died | `end_max` | kill, if `autokill` |
//! | killing | Died | `killtime` for each signal | the next signal |
//! | waiting | time | min(`restart_max`, `restart_min` + `restart_step` × failures) | queued |
//! | orphan | adopted, stop (to ending), Died | `restart_to_check` seconds for all | kill, if `autokill` |
//!
//! A worker that died in *up* or *starting* waits if it is to `respawn`, else it is down. One
//! that was asked to stop is down, or queued when it was a restart. Failures in a row are
//! forgotten once a worker was up for a whole cycle.

mod member;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::config::{Entry, PoolConfig, Settings};
use member::{Member, Phase, Then};

pub use member::{Action, MemberView, State};

/// Workers that may be starting at once: more would only wait for the processors.
const STARTING_MAX: usize = 64;

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

impl Selection {
    /// Whether a start means copies of `entry`.
    #[must_use]
    pub fn starts(&self, entry: &Entry) -> bool {
        match self {
            Self::All => entry.min > 0,
            Self::Program(name) => entry.program == *name,
            Self::Id(id) => entry.ids().contains(id),
        }
    }
}

impl NoSuchWorker {
    #[must_use]
    pub const fn new(which: Selection) -> Self {
        Self(which)
    }
}

/// What a process of the pool did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The worker can take calls.
    Ready { id: u32 },
    /// The worker's own start said no; its end follows.
    Refused {
        id: u32,
        /// What it said.
        why: String,
    },
    /// The process ended, or could not be started.
    Died {
        id: u32,
        /// How, for people.
        how: String,
    },
    /// The answer to a ping.
    Pong {
        id: u32,
        /// The number of the ping.
        number: u64,
    },
}

/// All workers of a pool.
#[derive(Debug)]
pub struct Supervisor {
    settings: Settings,
    /// Copies to run for each entry.
    mins: Vec<(Range<u32>, String)>,
    /// What it begins with.
    only: Selection,
    members: BTreeMap<u32, Member>,
    next_cycle: Instant,
    /// Until when workers of an earlier manager may report.
    learning_until: Option<Instant>,
    /// Until when what stands behind a copy that is up waits for its start: `sleep_after`.
    paused_until: Option<Instant>,
    is_ending: bool,
    cycles: u64,
}

impl Supervisor {
    /// All workers of `config`, none of them running.
    #[must_use]
    pub fn new(config: &PoolConfig, now: Instant) -> Self {
        let settings = config.settings.clone();
        let mut supervisor = Self {
            next_cycle: now + settings.sanity,
            settings,
            mins: Vec::new(),
            only: Selection::All,
            members: BTreeMap::new(),
            learning_until: None,
            paused_until: None,
            is_ending: false,
            cycles: 0,
        };
        supervisor.take_entries(&config.entries, now);
        supervisor
    }

    /// The same, which begins with these workers; the others stay down until they are ordered.
    #[must_use]
    pub fn limited_to(self, only: Selection) -> Self {
        Self { only, ..self }
    }

    /// Begins: starts the copies of `min` if no process of an earlier manager was found, else
    /// waits for those to report. `found` holds their ids; unknown ones are ignored.
    pub fn begin(&mut self, found: &[u32], now: Instant, out: &mut Vec<Action>) {
        for id in found {
            if let Some(member) = self.members.get_mut(id) {
                (member.phase, member.since) = (Phase::Orphan, now);
            }
        }
        // A configuration may be empty.
        let ids = self.selected(&self.only, true).unwrap_or_default();
        for id in ids {
            let member = self.members.get_mut(&id).expect("of the configuration");
            if matches!(member.phase, Phase::Down) {
                member.enqueue(true, now);
            }
        }
        self.learning_until = Some(now + self.settings.learning);
        self.end_learning(now, out);
    }

    /// Takes up another configuration. Workers that are no longer in it are asked to stop, those
    /// that are new in a `min` are started, those whose id has another program now are restarted;
    /// what else runs keeps its process, with the new limits.
    pub fn reload(&mut self, config: &PoolConfig, now: Instant, out: &mut Vec<Action>) {
        self.settings = config.settings.clone();
        self.next_cycle = self.next_cycle.min(now + self.settings.sanity);
        let old_mins = self.mins.clone();
        let old_programs = self.programs();
        for member in self.members.values_mut() {
            member.is_removed = true;
        }
        self.take_entries(&config.entries, now);
        let has = |mins: &[(Range<u32>, String)], id| mins.iter().any(|(ids, _)| ids.contains(&id));
        for member in self.members.values_mut() {
            if member.is_removed {
                member.stop(Then::Stay, now, out);
                continue;
            }
            if old_programs.get(&member.id).is_some_and(|old| *old != member.program) {
                member.stop(Then::Again, now, out);
            }
            if has(&self.mins, member.id) && !has(&old_mins, member.id) {
                member.start(now, out);
            }
        }
        self.forget_removed();
        self.take_turns(now, out);
    }

    /// Something happened to a worker.
    pub fn event(&mut self, event: Event, now: Instant, out: &mut Vec<Action>) {
        let (Event::Ready { id }
        | Event::Refused { id, .. }
        | Event::Died { id, .. }
        | Event::Pong { id, .. }) = event;
        let Some(member) = self.members.get_mut(&id) else { return };
        match event {
            Event::Ready { .. } => {
                let pause = member.policy.pause_after;
                if member.ready(now) && !pause.is_zero() {
                    self.paused_until = self.paused_until.max(Some(now + pause));
                }
            }
            Event::Refused { why, .. } => member.refused(why, now),
            Event::Pong { number, .. } => member.pong(number),
            Event::Died { how, .. } => {
                member.died(how, &self.settings, now);
                if self.is_ending && !member.is_alive() {
                    member.stop(Then::Stay, now, out);
                }
            }
        }
        self.forget_removed();
        self.end_learning(now, out);
        self.take_turns(now, out);
    }

    /// A worker of an earlier manager reports. False when it is not wanted: its id is unknown or
    /// another program's, another process has it, or the pool is ending.
    #[must_use]
    pub fn adopt(&mut self, id: u32, program: &str, now: Instant, out: &mut Vec<Action>) -> bool {
        let member = self.members.get_mut(&id).filter(|member| member.program == program);
        let is_taken = !self.is_ending && member.is_some_and(|member| member.adopted(now));
        self.end_learning(now, out);
        is_taken
    }

    /// A worker that was up and had lost its link has another one; whether it is still wanted.
    #[must_use]
    pub fn reconnect(&mut self, id: u32) -> bool {
        !self.is_ending && self.members.get_mut(&id).is_some_and(Member::reconnected)
    }

    /// A worker of an earlier manager reported and can't be taken over: it was asked to end, and
    /// another one is started as soon as it is gone.
    pub fn replace(&mut self, id: u32, now: Instant, out: &mut Vec<Action>) {
        let orphan = self.members.get_mut(&id).filter(|member| is_orphan(member));
        if let Some(member) = orphan {
            let then = if member.is_removed { Then::Stay } else { Then::Again };
            member.stop(then, now, out);
        }
        self.end_learning(now, out);
    }

    /// Time passes: runs the check cycle if it is due.
    pub fn pass(&mut self, now: Instant, out: &mut Vec<Action>) {
        self.end_learning(now, out);
        if self.paused_until.is_some_and(|until| now >= until) {
            self.paused_until = None;
            self.take_turns(now, out);
        }
        if now < self.next_cycle {
            return;
        }
        self.cycles += 1;
        // A manager that learns checks nothing: it does not know yet.
        if self.learning_until.is_none() {
            for member in self.members.values_mut() {
                member.cycle(&self.settings, now, out);
            }
        }
        self.next_cycle = now + self.settings.sanity;
        self.take_turns(now, out);
    }

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

    /// Whether this id is of the configuration, or still has a process of an earlier one.
    #[must_use]
    pub fn knows(&self, id: u32) -> bool {
        self.members.contains_key(&id)
    }

    /// When [`Supervisor::pass`] has to be called next.
    #[must_use]
    pub fn next_moment(&self) -> Instant {
        let others = [self.learning_until, self.paused_until].into_iter().flatten();
        others.fold(self.next_cycle, Instant::min)
    }

    /// Check cycles so far.
    #[must_use]
    pub fn cycles(&self) -> u64 {
        self.cycles
    }

    /// Whether workers of an earlier manager may still report.
    #[must_use]
    pub fn is_learning(&self) -> bool {
        self.learning_until.is_some()
    }

    /// Whether nothing is on its way up: each worker that was asked for is up or has failed.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let is_moving =
            |member: &Member| matches!(member.phase, Phase::Queued { .. } | Phase::Starting);
        !self.is_learning() && !self.members.values().any(is_moving)
    }

    /// Whether no process is left, as far as is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.members.values().any(Member::is_alive)
    }

    /// Whether the pool was ordered to end.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.is_ending
    }

    /// Whether a worker runs or will run by itself: its services stay.
    #[must_use]
    pub fn is_expected(&self, id: u32) -> bool {
        self.members.get(&id).is_some_and(|member| match member.phase {
            Phase::Down | Phase::Ending(Then::Stay) | Phase::Killing { then: Then::Stay, .. } => {
                false
            }
            _ => !self.is_ending,
        })
    }

    /// All workers, by id.
    pub fn members(&self, now: Instant) -> impl Iterator<Item = MemberView> {
        self.members.values().map(move |member| MemberView {
            id: member.id,
            program: member.program.clone(),
            state: self.state(member, now),
            age: member::age(member.since, now),
            starts_again: member.starts_again(),
            next_start: self.next_start(member, now),
            starts: member.starts,
            failures: member.failures,
            cause: member.cause.clone(),
        })
    }

    /// When a worker that waits is started: at the check at which its cycles are over.
    fn next_start(&self, member: &Member, now: Instant) -> Option<Duration> {
        let Phase::Waiting { cycles_left } = member.phase else { return None };
        let next_cycle = self.next_cycle.saturating_duration_since(now);
        let further = self.settings.sanity * cycles_left.saturating_sub(1);
        (!self.is_learning()).then_some(next_cycle + further)
    }

    fn state(&self, member: &Member, now: Instant) -> State {
        match member.phase {
            Phase::Down => State::Down,
            Phase::Queued { .. } => State::Queued,
            Phase::Starting => State::Starting,
            Phase::Up(_) if member.is_silent(&self.settings, now) => State::Silent,
            Phase::Up(_) => State::Up,
            Phase::Ending(_) => State::Stopping,
            Phase::Killing { .. } => State::Killing,
            Phase::Waiting { .. } => State::Waiting,
            Phase::Orphan if self.is_learning() => State::Orphan,
            // Late, and it may not be killed.
            Phase::Orphan => State::Silent,
        }
    }

    /// Members for `entries`: those that stand get the new limits, the others are made.
    fn take_entries(&mut self, entries: &[Entry], now: Instant) {
        let own =
            |entry: &Entry| (entry.first_id..entry.first_id + entry.min, entry.program.clone());
        self.mins = entries.iter().map(own).collect();
        for (index, entry) in entries.iter().enumerate() {
            for id in entry.ids() {
                let fresh = || Member::new(id, index, entry, now);
                let member = self.members.entry(id).or_insert_with(fresh);
                (member.entry, member.is_removed) = (index, false);
                member.policy = entry.policy.clone();
                member.program.clone_from(&entry.program);
            }
        }
    }

    fn programs(&self) -> BTreeMap<u32, String> {
        self.members.iter().map(|(id, member)| (*id, member.program.clone())).collect()
    }

    fn forget_removed(&mut self) {
        self.members.retain(|_, member| !member.is_removed || member.is_alive());
    }

    /// Ends the wait for workers of an earlier manager: all have reported, or the time is over.
    fn end_learning(&mut self, now: Instant, out: &mut Vec<Action>) {
        let Some(until) = self.learning_until else { return };
        if now < until && self.members.values().any(is_orphan) {
            return;
        }
        self.learning_until = None;
        // Checks begin anew from here.
        self.next_cycle = now + self.settings.sanity;
        for member in self.members.values_mut().filter(|member| is_orphan(member)) {
            member.cause = Some("did not report to the new manager".to_owned());
            if member.policy.kills {
                member.kill(Then::Retry, now, out);
            }
        }
        self.take_turns(now, out);
    }

    /// Starts what is queued and whose turn it is.
    fn take_turns(&mut self, now: Instant, out: &mut Vec<Action>) {
        if self.is_ending || self.is_learning() {
            return;
        }
        let is_starting = |member: &&Member| matches!(member.phase, Phase::Starting);
        let mut starting = self.members.values().filter(is_starting).count();
        // An entry begins when nothing of an earlier one is on its way.
        let on_its_way = |member: &&Member| {
            matches!(member.phase, Phase::Starting | Phase::Queued { in_order: true })
        };
        let first = self.members.values().filter(on_its_way).map(|member| member.entry).min();
        for member in self.members.values_mut() {
            let Phase::Queued { in_order } = member.phase else { continue };
            if starting >= STARTING_MAX {
                return;
            }
            let is_its_turn = self.paused_until.is_none_or(|until| now >= until)
                && first.is_none_or(|first| member.entry == first);
            if !in_order || is_its_turn {
                member.spawn(now, out);
                starting += 1;
            }
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
        if is_known { Ok(ids) } else { Err(NoSuchWorker::new(which.clone())) }
    }
}

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

fn is_orphan(member: &Member) -> bool {
    matches!(member.phase, Phase::Orphan)
}
