//! One worker as the supervisor sees it: its phase, and one verb for each arrow of the picture.
//!
//! Pure: time and settings are handed in, what has to be done is appended to a list. Only the
//! supervisor calls it; it knows nothing of processes, sockets or other members.

use std::time::{Duration, Instant};

use crate::config::{Entry, Policy, Settings};

/// What is sent behind the signals of a policy, and repeated.
const LAST_SIGNAL: i32 = 9;

/// What the pool has to do; it adds nothing to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Start a process for this id.
    Spawn { id: u32 },
    /// Ask the worker for a sign of life.
    Ping {
        id: u32,
        /// To be given back in the answer.
        number: u64,
    },
    /// Tell the worker to stop.
    Stop { id: u32 },
    /// Send a signal to the process.
    Signal {
        id: u32,
        /// Its number.
        signal: i32,
    },
}

/// What a worker is doing. The picture is in the head of [`super`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// No process, and none is wanted.
    Down,
    /// A process is wanted as soon as it is its turn.
    Queued {
        /// Whether earlier entries of the configuration come first.
        in_order: bool,
    },
    /// A process was started and is not ready.
    Starting,
    Up(Pinging),
    /// Asked to stop.
    Ending(Then),
    /// Signals are sent to it.
    Killing {
        step: usize,
        cycles_left: u32,
        then: Then,
    },
    /// It died and will be started again.
    Waiting {
        cycles_left: u32,
    },
    /// A process of an earlier manager that has not reported yet.
    Orphan,
}

/// What follows the death of a worker that was asked to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Then {
    Stay,
    /// It starts again at once.
    Again,
    /// It starts again as if it had died by itself.
    Retry,
}

/// How far the pings of a worker are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Pinging {
    /// Cycles since the last ping.
    cycles: u32,
    /// The ping that has no answer yet.
    open: Option<(u64, Instant)>,
}

/// One id of the configuration.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) id: u32,
    /// Index of its entry, which is the order of the start.
    pub(super) entry: usize,
    pub(super) program: String,
    pub(super) policy: Policy,
    pub(super) phase: Phase,
    /// When the phase began.
    pub(super) since: Instant,
    /// Failures in a row.
    pub(super) failures: u32,
    /// Processes that were started.
    pub(super) starts: u32,
    /// Whether the configuration has this id no more.
    pub(super) is_removed: bool,
    /// Why it is not up, as far as that is known.
    pub(super) cause: Option<String>,
    pings: u64,
}

/// One worker as tables and orders that wait read it: a copy of one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberView {
    pub id: u32,
    pub program: String,
    /// What it is doing.
    pub state: State,
    /// How long it has been doing so.
    pub age: Duration,
    /// Whether a stop that is under way is followed by a start.
    pub starts_again: bool,
    /// Until the next start of one that waits for it, as far as that is known.
    pub next_start: Option<Duration>,
    /// Processes started so far.
    pub starts: u32,
    /// Failures in a row.
    pub failures: u32,
    /// Why it is not up, as far as that is known.
    pub cause: Option<String>,
}

/// What a worker is doing, in a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Not running, not wanted.
    Down,
    /// About to be started.
    Queued,
    /// Started, not ready.
    Starting,
    Up,
    /// Gives no answer to pings, or did not report to the new manager, and may not be killed.
    Silent,
    /// Asked to stop.
    Stopping,
    /// Being sent signals.
    Killing,
    /// Died; will be started again.
    Waiting,
    /// Of an earlier manager, has not reported yet.
    Orphan,
}

impl State {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Queued => "queued",
            Self::Starting => "starting",
            Self::Up => "up",
            Self::Silent => "silent",
            Self::Stopping => "stopping",
            Self::Killing => "killing",
            Self::Waiting => "waiting",
            Self::Orphan => "orphan",
        }
    }
}

impl Member {
    pub(super) fn new(id: u32, index: usize, entry: &Entry, now: Instant) -> Self {
        Self {
            id,
            entry: index,
            program: entry.program.clone(),
            policy: entry.policy.clone(),
            phase: Phase::Down,
            since: now,
            failures: 0,
            starts: 0,
            is_removed: false,
            cause: None,
            pings: 0,
        }
    }

    /// Whether there is a process, as far as is known.
    pub(super) fn is_alive(&self) -> bool {
        !matches!(self.phase, Phase::Down | Phase::Queued { .. } | Phase::Waiting { .. })
    }

    /// Whether a stop that is under way is followed by a start.
    pub(super) fn starts_again(&self) -> bool {
        let then = Then::Again;
        matches!(self.phase, Phase::Ending(t) | Phase::Killing { then: t, .. } if t == then)
    }

    /// Down or waiting → queued.
    pub(super) fn enqueue(&mut self, in_order: bool, now: Instant) {
        self.enter(Phase::Queued { in_order }, now);
    }

    /// Queued → starting.
    pub(super) fn spawn(&mut self, now: Instant, out: &mut Vec<Action>) {
        self.starts += 1;
        self.cause = None;
        self.enter(Phase::Starting, now);
        out.push(Action::Spawn { id: self.id });
    }

    /// Starting → up; whether it was on its way.
    pub(super) fn ready(&mut self, now: Instant) -> bool {
        let is_starting = matches!(self.phase, Phase::Starting);
        if is_starting {
            self.enter(Phase::Up(Pinging::default()), now);
        }
        is_starting
    }

    /// Starting → ending: it said that it does not want to run.
    pub(super) fn refused(&mut self, why: String, now: Instant) {
        self.cause = Some(why);
        if matches!(self.phase, Phase::Starting) {
            self.enter(Phase::Ending(Then::Retry), now);
        }
    }

    /// Anything without a process, or an orphan → up. False when another process has this id.
    pub(super) fn adopted(&mut self, now: Instant) -> bool {
        let is_free = !self.is_alive() || matches!(self.phase, Phase::Orphan);
        if is_free && !self.is_removed {
            self.cause = None;
            self.enter(Phase::Up(Pinging::default()), now);
        }
        is_free && !self.is_removed
    }

    /// Up, and its link is another one: pings that it did not get are forgotten.
    pub(super) fn reconnected(&mut self) -> bool {
        let is_up = matches!(self.phase, Phase::Up(_)) && !self.is_removed;
        if is_up {
            self.phase = Phase::Up(Pinging::default());
        }
        is_up
    }

    /// The answer to a ping.
    pub(super) fn pong(&mut self, number: u64) {
        if let Phase::Up(pinging) = &mut self.phase
            && pinging.open.is_some_and(|(open, _)| open == number)
        {
            pinging.open = None;
        }
    }

    /// Not running, or on its way out → queued, at once or when it is gone. Whether that changed
    /// anything.
    pub(super) fn start(&mut self, now: Instant, out: &mut Vec<Action>) -> bool {
        match self.phase {
            Phase::Down | Phase::Waiting { .. } => self.enqueue(true, now),
            Phase::Ending(_) | Phase::Killing { .. } => self.stop(Then::Again, now, out),
            _ => return false,
        }
        self.failures = 0;
        true
    }

    /// Alive → ending; queued or waiting → down.
    pub(super) fn stop(&mut self, then: Then, now: Instant, out: &mut Vec<Action>) {
        match &mut self.phase {
            Phase::Down => {}
            Phase::Queued { .. } if then == Then::Again => {}
            // A user that restarts it by hand has fixed it, and does not want to wait.
            Phase::Waiting { .. } if then == Then::Again => {
                self.failures = 0;
                self.enqueue(false, now);
            }
            Phase::Queued { .. } | Phase::Waiting { .. } => self.enter(Phase::Down, now),
            // It was asked already; only what follows may change.
            Phase::Ending(of) | Phase::Killing { then: of, .. } => *of = then,
            Phase::Starting | Phase::Up(_) => {
                self.enter(Phase::Ending(then), now);
                out.push(Action::Stop { id: self.id });
            }
            // It is asked when it reports; until then the call at hand would have no answer.
            Phase::Orphan => self.enter(Phase::Ending(then), now),
        }
    }

    /// Alive → killing, with the first signal.
    pub(super) fn kill(&mut self, then: Then, now: Instant, out: &mut Vec<Action>) {
        let cycles_left = self.policy.kill_cycles;
        self.enter(Phase::Killing { step: 0, cycles_left, then }, now);
        out.push(Action::Signal { id: self.id, signal: self.signal(0) });
    }

    /// Alive → what comes next: down, queued or waiting.
    pub(super) fn died(&mut self, how: String, settings: &Settings, now: Instant) {
        if !self.is_alive() {
            return;
        }
        // A reason that it gave itself, or that of the kill, says more than its end.
        self.cause.get_or_insert(how);
        let then = match self.phase {
            Phase::Ending(then) | Phase::Killing { then, .. } => then,
            _ => Then::Retry,
        };
        match then {
            _ if self.is_removed => self.enter(Phase::Down, now),
            Then::Stay => self.enter(Phase::Down, now),
            Then::Again => self.enqueue(false, now),
            Then::Retry if !self.policy.respawns => self.enter(Phase::Down, now),
            Then::Retry => self.wait(settings, now),
        }
    }

    /// One check cycle.
    pub(super) fn cycle(&mut self, settings: &Settings, now: Instant, out: &mut Vec<Action>) {
        match self.phase {
            Phase::Down | Phase::Queued { .. } | Phase::Orphan => {}
            Phase::Waiting { cycles_left } => match cycles_left.saturating_sub(1) {
                0 => self.enqueue(false, now),
                cycles_left => self.phase = Phase::Waiting { cycles_left },
            },
            Phase::Starting => {
                let limit = self.policy.start_max_cycles;
                self.kill_when_over(limit, "was not ready within start_max", settings, now, out);
            }
            Phase::Ending(_) => {
                let limit = self.policy.end_max_cycles;
                // Said again each time: a link that was full has lost it.
                out.push(Action::Stop { id: self.id });
                self.kill_when_over(limit, "did not end within end_max", settings, now, out);
            }
            Phase::Killing { step, cycles_left, then } => {
                self.kill_on(step, cycles_left, then, out);
            }
            Phase::Up(pinging) => self.ping(pinging, settings, now, out),
        }
    }

    /// Whether a ping has had no answer for longer than is allowed.
    pub(super) fn is_silent(&self, settings: &Settings, now: Instant) -> bool {
        let Phase::Up(Pinging { open: Some((_, since)), .. }) = self.phase else { return false };
        self.policy.ping_max_cycles.is_some_and(|limit| now - since >= settings.sanity * limit)
    }

    fn ping(
        &mut self,
        mut pinging: Pinging,
        settings: &Settings,
        now: Instant,
        out: &mut Vec<Action>,
    ) {
        if now - self.since >= settings.sanity {
            self.failures = 0;
        }
        if self.is_silent(settings, now) {
            if self.policy.kills {
                self.cause = Some(self.over("did not answer a ping within ping_max"));
                self.kill(Then::Retry, now, out);
            }
            return;
        }
        pinging.cycles += 1;
        let is_due = self.policy.ping_cycles.is_some_and(|period| pinging.cycles >= period);
        if is_due && pinging.open.is_none() {
            self.pings += 1;
            pinging = Pinging { cycles: 0, open: Some((self.pings, now)) };
            out.push(Action::Ping { id: self.id, number: self.pings });
        }
        self.phase = Phase::Up(pinging);
    }

    fn kill_when_over(
        &mut self,
        limit_cycles: Option<u32>,
        what: &str,
        settings: &Settings,
        now: Instant,
        out: &mut Vec<Action>,
    ) {
        let is_over = limit_cycles.is_some_and(|limit| now - self.since >= settings.sanity * limit);
        if is_over && self.policy.kills {
            self.cause = Some(self.over(what));
            let then = if let Phase::Ending(then) = self.phase { then } else { Then::Retry };
            self.kill(then, now, out);
        }
    }

    fn kill_on(&mut self, step: usize, cycles_left: u32, then: Then, out: &mut Vec<Action>) {
        let mut step = step;
        let mut cycles_left = cycles_left.saturating_sub(1);
        if cycles_left == 0 {
            step = (step + 1).min(self.policy.kill_sequence.len());
            cycles_left = self.policy.kill_cycles;
            out.push(Action::Signal { id: self.id, signal: self.signal(step) });
        }
        self.phase = Phase::Killing { step, cycles_left, then };
    }

    fn signal(&self, step: usize) -> i32 {
        self.policy.kill_sequence.get(step).copied().unwrap_or(LAST_SIGNAL)
    }

    fn over(&self, what: &str) -> String {
        match &self.cause {
            Some(cause) => format!("{what}; before: {cause}"),
            None => what.to_owned(),
        }
    }

    /// The pause before the next start grows with each failure in a row.
    fn wait(&mut self, settings: &Settings, now: Instant) {
        let grown = settings.restart_step_cycles.saturating_mul(self.failures);
        let pause = settings.restart_min_cycles.saturating_add(grown);
        // A pause of nothing is for a worker that had run well, or a crash would be a busy loop.
        let least = u32::from(self.failures > 0);
        let pause = pause.min(settings.restart_max_cycles).max(least);
        self.failures = self.failures.saturating_add(1);
        if pause == 0 {
            self.enqueue(false, now);
        } else {
            self.enter(Phase::Waiting { cycles_left: pause }, now);
        }
    }

    fn enter(&mut self, phase: Phase, now: Instant) {
        self.phase = phase;
        self.since = now;
    }
}

/// How long ago, for tables.
pub(super) fn age(since: Instant, now: Instant) -> Duration {
    now.saturating_duration_since(since)
}
