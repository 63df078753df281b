//! One thread of a run: its loop, and what has to be done between turns.
//!
//! ```text
//!  crowd ► active connections ► all threads ready ► turns: open again, wake for what is due
//!                                                     │
//!       close ◄ all threads done ◄ what is under way ◄┘ end by time, number, or stop
//! ```
//!
//! Sessions never open connections, and an idle one can't begin by itself: they leave both to
//! the worker, in what they share with it.

mod finish;
mod set_up;
mod turns;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use pollux_engine::{ConnectError, ConnectionId, EventLoop, Limits, Moment};
use rustix::thread::set_current_timer_slack;

use crate::active::Active;
use crate::cause::Cause;
use crate::control::{Control, Counts};
use crate::course::Course;
use crate::crowd::Kind;
use crate::gather::{Handed, ThreadOutcome};
use crate::opener::Opener;
use crate::own_use::{self, OwnUse};
use crate::requests::Requests;
use crate::session::ClientSession;
use crate::shared::{Reopen, Shared, monotonic_ns};
use crate::supply::{Budget, Supply};
use crate::tally::Interval;
use crate::tls::Tls;
use crate::{LoadError, Plan};

/// Connects of one thread that are under way at the same time. Below the backlog of any server,
/// for what does not fit there is tried again by the kernel after a second only.
const CONNECTING_MAX: u32 = 512;
/// Time between two looks that others can take at what was counted.
const SHOWN_EVERY_NS: u64 = 100_000_000;
/// Longest wait: so late is a stop noticed.
const WAIT_MAX: Duration = Duration::from_millis(50);
/// Wait while other threads are not ready, or not done.
const WAIT_READY: Duration = Duration::from_millis(1);
/// So long before a request is due the thread stops sleeping: waking up takes about as long.
const SPIN: Duration = Duration::from_micros(30);
/// An empty turn takes about a microsecond. In one that took longer than this the thread had
/// lost its CPU, and what it did not have it did not spend on spinning.
const SPUN_MAX_NS: u64 = 20_000;
/// The shortest slack of timers that the kernel takes (`prctl(2)`, PR_SET_TIMERSLACK).
const TIMER_SLACK_NS: u64 = 1;
const SECOND_NS: u64 = 1_000_000_000;

/// What a worker is made from.
pub(crate) struct Seat {
    pub(crate) thread: u32,
    pub(crate) plan: Arc<Plan>,
    pub(crate) control: Arc<Control>,
    pub(crate) requests: Requests,
    pub(crate) supply: Supply,
    pub(crate) budget: Budget,
    pub(crate) tls: Option<Tls>,
    pub(crate) sender: Sender<Handed>,
    pub(crate) spares: Receiver<Box<Interval>>,
}

/// One thread's part of a run.
pub(crate) struct Worker {
    thread: u32,
    plan: Arc<Plan>,
    control: Arc<Control>,
    event_loop: EventLoop<ClientSession>,
    opener: Opener,
    tls: Option<Tls>,
    sender: Sender<Handed>,
    spares: Receiver<Box<Interval>>,
    /// What was handed over so far, and when the last look at all of it was possible.
    counts: Counts,
    shown_ns: u64,
    /// When the interval ends that is counted now, and its number.
    boundary_ns: u64,
    interval: u32,
    before: Option<(OwnUse, u64)>,
    spun_ns: u64,
    /// CPU time of the thread when it last handed over, and what it had spun by then.
    handed: (Duration, u64),
    course: Course,
    told: Told,
    woken: Vec<ConnectionId>,
}

/// What a thread has told already.
#[derive(Debug, Default)]
struct Told {
    answered: bool,
    connected: bool,
    failed: bool,
}

/// A thread's part of `all`.
pub(crate) fn share(all: u64, thread: u32, threads: u32) -> u64 {
    let (thread, threads) = (u64::from(thread), u64::from(threads));
    all / threads + u64::from(thread < all % threads)
}

impl Worker {
    /// Opens the loop, on the CPU that the plan says.
    ///
    /// # Errors
    /// The CPU or the driver is not to be had.
    pub(crate) fn open(seat: Seat) -> Result<Self, LoadError> {
        let Seat { thread, plan, control, requests, supply, budget, tls, sender, spares } = seat;
        if let Some(cpus) = &plan.cpus {
            let refused = |error: pollux_engine::CpuError| LoadError::Plan {
                what: "--cpus",
                why: error.to_string(),
            };
            cpus.pin(thread as usize).map_err(refused)?;
        }
        let slack = set_current_timer_slack(NonZeroU64::new(TIMER_SLACK_NS));
        slack.map_err(|errno| LoadError::System { call: "prctl", source: errno.into() })?;
        let seats = share(plan.connections.into(), thread, plan.threads) as u32;
        let crowd: u64 = Kind::ALL.iter().map(|kind| Self::crowd_share(*kind, &plan, thread)).sum();
        let limits = Limits { connections_max: seats + crowd as u32 + 1, ..Limits::default() };
        let shared = Shared::new(&plan, requests, supply, budget, seats);
        let event_loop = EventLoop::open(plan.driver, shared, limits);
        let event_loop = event_loop.map_err(|source| LoadError::Loop { thread, source })?;
        let opener = Opener::new(&plan, thread);
        let (boundary_ns, interval, before, spun_ns) = (u64::MAX, 0, None, 0);
        Ok(Self {
            thread,
            plan,
            control,
            event_loop,
            opener,
            tls,
            sender,
            spares,
            counts: Counts::default(),
            shown_ns: 0,
            boundary_ns,
            interval,
            before,
            spun_ns,
            handed: (Duration::ZERO, 0),
            course: Course::default(),
            told: Told::default(),
            woken: Vec::new(),
        })
    }

    /// Carries out this thread's part of the plan.
    ///
    /// # Errors
    /// The loop failed.
    pub(crate) fn run(mut self) -> Result<ThreadOutcome, LoadError> {
        let set_up = self.set_up_crowd()?;
        self.set_up_active()?;
        self.control.ready();
        self.wait_for_start()?;
        self.drive()?;
        self.finish(set_up)
    }

    fn crowd_share(kind: Kind, plan: &Plan, thread: u32) -> u64 {
        share(kind.asked(&plan.crowd).into(), thread, plan.threads)
    }

    /// Turns until no more requests are to begin.
    fn drive(&mut self) -> Result<(), LoadError> {
        let is_open_loop = matches!(self.shared().supply, Supply::Open(_));
        let measure_from_ns = self.control.measure_from_ns().unwrap_or_default();
        let mut had_worked = true;
        loop {
            let turn_ns = self.shared().turn_ns;
            let now_ns = if is_open_loop { monotonic_ns() } else { turn_ns };
            if now_ns >= self.boundary_ns {
                self.hand_over(now_ns);
            }
            if self.before.is_none() && now_ns >= measure_from_ns {
                self.before = Some((OwnUse::read(), now_ns));
            }
            if is_open_loop {
                self.give_out(now_ns);
            }
            if now_ns >= self.shared().end_ns || self.is_over(now_ns) {
                // Those that were just woken still send.
                return self.turn_and_look(Duration::ZERO);
            }
            self.open_again(now_ns);
            let wait = self.wait(now_ns, is_open_loop);
            self.turn_and_look(wait)?;
            // What a turn has left to do is done by the next one, so that is no spin yet.
            let has_worked = self.shared().has_worked;
            if is_open_loop && wait.is_zero() && !has_worked && !had_worked {
                self.spun_ns += (monotonic_ns() - now_ns).min(SPUN_MAX_NS);
            }
            had_worked = has_worked;
        }
    }

    fn is_over(&mut self, now_ns: u64) -> bool {
        self.control.is_stopped() || self.shared().is_spent() || self.control.is_in_vain(now_ns)
    }

    /// How long the next turn may wait.
    fn wait(&mut self, now_ns: u64, is_open_loop: bool) -> Duration {
        let mut until_ns = self.boundary_ns.min(self.shared().end_ns);
        if self.before.is_none() {
            until_ns = until_ns.min(self.control.measure_from_ns().unwrap_or(u64::MAX));
        }
        until_ns = until_ns.min(self.opener.next_ns().unwrap_or(u64::MAX));
        if is_open_loop
            && self.shared().seats.idle() > 0
            && let Supply::Open(due) = &self.shared().supply
            && let Some(due_ns) = due.next_ns()
        {
            until_ns = until_ns.min(due_ns.saturating_sub(SPIN.as_nanos() as u64));
        }
        Duration::from_nanos(until_ns.saturating_sub(now_ns)).min(WAIT_MAX)
    }

    /// Wakes an idle connection for each request that is due. Without one it stays where it is.
    fn give_out(&mut self, now_ns: u64) {
        let shared = self.event_loop.shared();
        let Supply::Open(due) = &mut shared.supply else { return };
        let mut orphans = due.given_out();
        while shared.seats.idle() > 0 && (orphans > 0 || due.give_out(now_ns)) {
            orphans = orphans.saturating_sub(1);
            self.woken.extend(shared.seats.pop());
        }
        for id in self.woken.drain(..) {
            self.event_loop.wake(id);
        }
    }

    /// Opens what sessions and time have left to be opened again.
    fn open_again(&mut self, now_ns: u64) {
        while self.shared().connecting < CONNECTING_MAX {
            let Some(Reopen { active, at_ns }) = self.shared().reopen.pop() else { break };
            if at_ns <= now_ns {
                self.open_active(active);
            } else {
                self.opener.keep(Reopen { active, at_ns });
            }
        }
        while self.shared().connecting < CONNECTING_MAX {
            let Some(active) = self.opener.due(now_ns) else { break };
            self.open_active(active);
        }
    }

    fn open_active(&mut self, mut active: Box<Active>) {
        let now_ns = monotonic_ns();
        active.begins(now_ns, self.shared().terms.requests_per_connection);
        let deadline = Moment::from_nanos(now_ns) + self.plan.connect_timeout;
        let session = self.encrypted(ClientSession::Active(active));
        match self.event_loop.connect(self.opener.way(), session, deadline) {
            Ok(_) => self.shared().connecting += 1,
            Err((session, error)) => {
                let mut active = session.into_active().expect("the session comes back as it was");
                let cause = match &error {
                    ConnectError::System { cause, .. } => Cause::System(cause),
                    _ => Cause::Full,
                };
                self.shared().connect_failed(&cause);
                let at_ns = active.retry_at(now_ns);
                self.opener.keep(Reopen { active, at_ns });
            }
        }
    }

    /// The session, through TLS where the targets are encrypted.
    fn encrypted(&self, session: ClientSession) -> ClientSession {
        match &self.tls {
            Some(tls) => ClientSession::Encrypted(Box::new(tls.connection(session))),
            None => session,
        }
    }

    /// Gives what was counted to the gathering thread.
    fn hand_over(&mut self, now_ns: u64) {
        let passed = (now_ns - self.boundary_ns) / SECOND_NS;
        let interval = self.interval + passed as u32;
        let end_ns = self.boundary_ns + passed * SECOND_NS;
        let open = self.shared().open;
        self.send(interval, end_ns, open);
        self.interval = interval + 1;
        self.boundary_ns = end_ns + SECOND_NS;
    }

    fn send(&mut self, interval: u32, end_ns: u64, open: u32) {
        let targets = self.shared().requests.targets();
        let fresh = self.spares.try_recv().unwrap_or_else(|_| Box::new(Interval::new(targets)));
        let now = (own_use::cpu_time(), self.spun_ns);
        let (cpu, spun_ns) = std::mem::replace(&mut self.handed, now);
        let spun = Duration::from_nanos(now.1.saturating_sub(spun_ns));
        let cpu = now.0.saturating_sub(cpu).saturating_sub(spun);
        let shared = self.event_loop.shared();
        let counted = std::mem::replace(&mut shared.interval, fresh);
        self.counts.add(&counted.measured.totals, &counted.measured.errors);
        self.control.counted(self.thread, &self.counts);
        let handed = Handed { thread: self.thread, interval, end_ns, open, cpu, counted };
        // Nobody listens any more only when the gathering thread has failed; it tells of that.
        let _ = self.sender.send(handed);
    }

    fn turn(&mut self, at_most: Duration) -> Result<(), LoadError> {
        let turned = self.event_loop.turn(Some(at_most));
        turned.map(drop).map_err(|source| LoadError::Loop { thread: self.thread, source })
    }

    /// A turn of which is kept who was answered in it, and who still waits.
    fn turn_and_look(&mut self, at_most: Duration) -> Result<(), LoadError> {
        self.turn(at_most)?;
        let Shared { turn_ns, last_answer_ns, .. } = *self.event_loop.shared();
        if turn_ns >= self.shown_ns + SHOWN_EVERY_NS {
            self.shown_ns = turn_ns;
            let measured = &self.event_loop.shared().interval.measured;
            let mut counts = self.counts;
            counts.add(&measured.totals, &measured.errors);
            self.control.counted(self.thread, &counts);
        }
        let is_asking = self.event_loop.shared().is_asking() || self.opener.next_ns().is_some();
        self.course.look(turn_ns, at_most.as_nanos() as u64, last_answer_ns, is_asking);
        self.tell();
        Ok(())
    }

    /// Tells all who look at the run what happened for the first time.
    fn tell(&mut self) {
        let shared = self.event_loop.shared();
        if shared.last_answer_ns > 0 && !std::mem::replace(&mut self.told.answered, true) {
            self.control.answered();
        }
        if shared.was_connected && !std::mem::replace(&mut self.told.connected, true) {
            self.control.connected();
        }
        if let (Some(why), false) = (&shared.first_failure, self.told.failed) {
            self.told.failed = true;
            self.control.failed(why);
        }
        if shared.is_misunderstood {
            self.control.misunderstood();
        }
    }

    fn shared(&mut self) -> &mut Shared {
        self.event_loop.shared()
    }
}
