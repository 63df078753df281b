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
//!
//! Before the first request: the crowd, the active connections, the start. Nothing that fails here ends the run: a
//! member of the crowd that is refused is counted in the outcome, and an active connection is tried again when
//! requests begin.
//!
//! The end: requests under way are waited for, cut off and counted, and all counts are handed over.

use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use pollux_engine::{CloseCause, ConnectError, ConnectionId, EventLoop, Limits, Moment};
use pollux_sys::clock::{self, monotonic_ns};
use rustix::thread::set_current_timer_slack;

use crate::active::Active;
use crate::control::{Control, Counts};
use crate::crowd::{Kind, Member};
use crate::gather::{Handed, OwnUse, ThreadOutcome};
use crate::requests::Requests;
use crate::schedule::{Budget, Supply};
use crate::session::{Client, ClientSession, Tls};
use crate::shared::{Opener, Reopen, SECOND_NS, Shared, Stage};
use crate::tally::{Cause, Interval};
use crate::timeline::{Course, Waits};
use crate::{LoadError, Plan};

/// Connects of one thread that are under way at the same time. Below the backlog of any server,
/// for what does not fit there is tried again by the kernel after a second only.
const CONNECTING_MAX: u32 = 512;
/// Time between two looks that others can take at what was counted.
const SHOWN_EVERY_NS: u64 = 100_000_000;
/// Longest wait: so late is a stop noticed.
pub(crate) const WAIT_MAX: Duration = Duration::from_millis(50);
/// Wait while other threads are not ready, or not done.
const WAIT_READY: Duration = Duration::from_millis(1);
/// So long before a request is due the thread stops sleeping: waking up takes about as long.
const SPIN: Duration = Duration::from_micros(30);
/// An empty turn takes about a microsecond. In one that took longer than this the thread had
/// lost its CPU, and what it did not have it did not spend on spinning.
const SPUN_MAX_NS: u64 = 20_000;
/// The shortest slack of timers that the kernel takes (`prctl(2)`, PR_SET_TIMERSLACK).
const TIMER_SLACK_NS: u64 = 1;

/// Members of the crowd that are being set up at the same time, their first answer included: a
/// server that is given more than its backlog holds loses a second with each.
const UNSETTLED_MAX: u32 = 256;
/// What a request may outlive its time limit: deadlines fire a tick late.
pub(crate) const TIMEOUT_SLACK: Duration = Duration::from_millis(20);
/// How long what is under way is waited for after a stop, at most.
const STOP_GRACE: Duration = Duration::from_secs(1);
/// A server that has said nothing since the end is waited for until its silence is so long: then
/// it is known to stand still, and not only to be slow.
const SILENCE: Duration = Duration::from_millis(1_040);
/// From such a time on a run without any answer has nothing more to wait for.
const HOPELESS: Duration = Duration::from_secs(1);
/// A last interval that is shorter belongs to the one before.
const INTERVAL_MIN_NS: u64 = SECOND_NS / 10;

/// What a worker is made from.
pub(crate) struct WorkerParts {
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
    pub(crate) plan: Arc<Plan>,
    control: Arc<Control>,
    pub(crate) event_loop: EventLoop<ClientSession>,
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
    reported: Reported,
    woken: Vec<ConnectionId>,
    /// Why the kernel keeps its own slack of timers, where it does.
    coarse_timers: Option<String>,
}

/// What a thread has reported to the others already.
#[derive(Debug, Default)]
struct Reported {
    answered: bool,
    connected: bool,
    failed: bool,
}

/// A thread's part of `all`.
pub(crate) fn share(all: u64, thread: u32, threads: u32) -> u64 {
    let thread = u64::from(thread);
    let threads = u64::from(threads);
    all / threads + u64::from(thread < all % threads)
}

impl Worker {
    /// Opens the loop, on the CPU that the plan says.
    ///
    /// # Errors
    /// The CPU or the driver is not available.
    pub(crate) fn open(parts: WorkerParts) -> Result<Self, LoadError> {
        let WorkerParts { thread, plan, control, requests, supply, budget, tls, sender, spares } =
            parts;
        if let Some(cpus) = &plan.cpus {
            let refused = |error: pollux_engine::CpuError| LoadError::Plan {
                what: "--cpus",
                why: error.to_string(),
            };
            cpus.pin(thread as usize).map_err(refused)?;
        }
        // Without it waits may last some 50 µs longer, which the lag shows.
        let slack = set_current_timer_slack(NonZeroU64::new(TIMER_SLACK_NS));
        let coarse_timers = slack.err().map(|errno| io::Error::from(errno).to_string());
        let connections = share(plan.connections.into(), thread, plan.threads) as u32;
        let crowd: u64 = Kind::ALL.iter().map(|kind| Self::crowd_share(*kind, &plan, thread)).sum();
        // One that its server ends may have answers to come while another takes its place.
        let active = connections * if plan.may_be_http2() { 2 } else { 1 };
        let limits = Limits { connections_max: active + crowd as u32 + 1, ..Limits::default() };
        let shared = Shared::new(&plan, requests, supply, budget, connections);
        let event_loop = EventLoop::open(plan.driver, shared, limits);
        let event_loop = event_loop.map_err(LoadError::Loop)?;
        let opener = Opener::new(&plan, thread);
        let boundary_ns = u64::MAX;
        let interval = 0;
        let before = None;
        let spun_ns = 0;
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
            reported: Reported::default(),
            woken: Vec::new(),
            coarse_timers,
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
            if self.before.is_none() && now_ns >= measure_from_ns {
                // Before the last second of the warm-up is handed over: it belongs there.
                self.shared().drop_backlog();
                self.before = Some((OwnUse::read(), now_ns));
            }
            if now_ns >= self.boundary_ns {
                self.hand_over(now_ns);
            }
            if is_open_loop {
                self.give_out(now_ns);
            }
            if now_ns >= self.shared().end_ns || self.is_over(now_ns) {
                // Those that were just woken still send.
                return self.turn_and_look(Duration::ZERO);
            }
            self.open_again(now_ns);
            self.give_again();
            let wait = self.wait(now_ns, is_open_loop);
            self.turn_and_look(wait)?;
            // What a turn has left to do is done by the next one, so that does not count as spinning yet.
            let has_worked = self.shared().has_worked;
            if is_open_loop && wait.is_zero() && !has_worked && !had_worked {
                self.spun_ns += (monotonic_ns() - now_ns).min(SPUN_MAX_NS);
            }
            had_worked = has_worked;
        }
    }

    fn is_over(&mut self, now_ns: u64) -> bool {
        self.control.is_stopped()
            || self.shared().is_spent()
            || self.control.has_elapsed_unanswered(now_ns)
    }

    /// How long the next turn may wait.
    fn wait(&mut self, now_ns: u64, is_open_loop: bool) -> Duration {
        let mut until_ns = self.boundary_ns.min(self.shared().end_ns);
        if self.before.is_none() {
            until_ns = until_ns.min(self.control.measure_from_ns().unwrap_or(u64::MAX));
        }
        until_ns = until_ns.min(self.opener.next_ns().unwrap_or(u64::MAX));
        until_ns = until_ns.min(self.shared().again_next_ns(now_ns));
        if is_open_loop
            && self.shared().idle_queue.idle() > 0
            && let Supply::Open(due) = &self.shared().supply
            && let Some(due_ns) = due.next_ns()
        {
            until_ns = until_ns.min(due_ns.saturating_sub(SPIN.as_nanos() as u64));
        }
        Duration::from_nanos(until_ns.saturating_sub(now_ns)).min(WAIT_MAX)
    }

    /// Wakes an idle connection for each request that is due. Without one it stays where it is.
    fn give_out(&mut self, now_ns: u64) {
        let shared = self.event_loop.shared_mut();
        let Supply::Open(due) = &mut shared.supply else { return };
        let mut orphans = due.given_out();
        while shared.idle_queue.idle() > 0 && (orphans > 0 || due.give_out(now_ns)) {
            orphans = orphans.saturating_sub(1);
            self.woken.extend(shared.idle_queue.pop());
        }
        for id in self.woken.drain(..) {
            self.event_loop.wake(id);
        }
    }

    /// Wakes a connection with room for each request that has to be sent again.
    pub(crate) fn give_again(&mut self) {
        let shared = self.event_loop.shared_mut();
        if shared.again.is_empty() && shared.freed.is_empty() {
            return;
        }
        self.woken.append(&mut shared.freed);
        let now_ns = monotonic_ns();
        shared.give_up_late(now_ns);
        shared.wake_for_again(now_ns, &mut self.woken);
        for id in self.woken.drain(..) {
            self.event_loop.wake(id);
        }
    }

    /// Opens what sessions and time have left to be opened again.
    pub(crate) fn open_again(&mut self, now_ns: u64) {
        while self.may_open() {
            let Some(Reopen { active, at_ns }) = self.shared().reopen.pop() else { break };
            if at_ns <= now_ns {
                self.open_active(active);
            } else {
                self.opener.keep(Reopen { active, at_ns });
            }
        }
        while self.may_open() {
            let Some(active) = self.opener.due(now_ns) else { break };
            self.open_active(active);
        }
    }

    /// Whether another connection may be opened now.
    pub(crate) fn may_open(&mut self) -> bool {
        let unproven_max = self.plan.unproven_max.map_or(u32::MAX, u32::from);
        let shared = self.shared();
        let is_below = shared.connecting < CONNECTING_MAX && shared.unproven < unproven_max;
        // At the end only for those that are to be sent again, and no more than they are.
        let is_wanted = match shared.stage {
            Stage::Ending => (shared.connecting as usize) < shared.again.len(),
            _ => shared.budget.allows_opening() || !shared.again.is_empty(),
        };
        is_below && is_wanted
    }

    pub(crate) fn open_active(&mut self, mut active: Box<Active>) {
        let now_ns = monotonic_ns();
        if !active.reserve(self.shared(), now_ns) {
            return;
        }
        active.begins(now_ns, self.shared().terms.requests_per_connection);
        let deadline = Moment::from_nanos(now_ns) + self.plan.connect_timeout;
        let session = self.session(Client::Active(active));
        match self.event_loop.connect(self.opener.way(), session, deadline) {
            Ok(_) => {
                let shared = self.shared();
                (shared.connecting, shared.unproven) = (shared.connecting + 1, shared.unproven + 1);
            }
            Err((session, error)) => {
                let mut active = session.into_active().expect("the session comes back as it was");
                let cause = match &error {
                    ConnectError::System { cause, .. } => Cause::System(cause),
                    _ => Cause::Full,
                };
                // Sockets whose answers are still to come may take all places: one of them ends first.
                let is_full = matches!(cause, Cause::Full) && self.plan.may_be_http2();
                if !is_full {
                    active.failed_to_open(self.shared(), &cause);
                }
                let at_ns = active.retry_at(now_ns);
                self.opener.keep(Reopen { active, at_ns });
            }
        }
    }

    /// The session, through TLS where the targets are encrypted.
    fn session(&self, client: Client) -> ClientSession {
        match &self.tls {
            Some(tls) => ClientSession::Encrypted(Box::new(tls.connection(client))),
            None => ClientSession::Plain(client),
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
        let now = (clock::thread_cpu(), self.spun_ns);
        let (cpu, spun_ns) = std::mem::replace(&mut self.handed, now);
        let spun = Duration::from_nanos(now.1.saturating_sub(spun_ns));
        let cpu = now.0.saturating_sub(cpu).saturating_sub(spun);
        let shared = self.event_loop.shared_mut();
        let counted = std::mem::replace(&mut shared.interval, fresh);
        self.counts.add(&counted.measured.totals, &counted.measured.errors);
        self.control.counted(self.thread, &self.counts);
        let handed = Handed { thread: self.thread, interval, end_ns, open, cpu, counted };
        // There is no receiver only when the gathering thread has failed, which it reports itself.
        let _ = self.sender.send(handed);
    }

    pub(crate) fn turn(&mut self, at_most: Duration) -> Result<(), LoadError> {
        let turned = self.event_loop.turn(Some(at_most));
        turned.map(drop).map_err(|source| LoadError::Stopped { thread: self.thread, source })
    }

    /// A turn, and what it changed: which requests were answered, and which still wait.
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
        let is_asking = self.event_loop.shared().is_asking() || self.opener.is_retrying();
        let waits = match (is_asking, self.event_loop.shared().under_way) {
            (false, _) => Waits::Nothing,
            (true, 0) => Waits::ForConnections,
            (true, _) => Waits::ForAnswers,
        };
        self.course.look(turn_ns, at_most.as_nanos() as u64, last_answer_ns, waits);
        self.report();
        Ok(())
    }

    /// Reports what happened for the first time to those that follow the run.
    fn report(&mut self) {
        let shared = self.event_loop.shared_mut();
        if shared.last_answer_ns > 0 && !std::mem::replace(&mut self.reported.answered, true) {
            self.control.answered();
        }
        if shared.was_connected && !std::mem::replace(&mut self.reported.connected, true) {
            self.control.connected();
        }
        if let (Some(why), false) = (&shared.first_failure, self.reported.failed) {
            self.reported.failed = true;
            self.control.failed(why);
        }
        if shared.is_misunderstood {
            self.control.misunderstood();
        }
    }

    pub(crate) fn shared(&mut self) -> &mut Shared {
        self.event_loop.shared_mut()
    }
}

impl Worker {
    /// Opens the crowd; says how long it took.
    pub(crate) fn set_up_crowd(&mut self) -> Result<Duration, LoadError> {
        let began_ns = monotonic_ns();
        let mut reported = 0;
        for kind in Kind::ALL {
            let mut left = Self::crowd_share(kind, &self.plan, self.thread);
            while (left > 0 || self.shared().crowd.unsettled > 0) && !self.control.is_stopped() {
                while left > 0 && self.shared().crowd.unsettled < UNSETTLED_MAX {
                    self.open_member(kind);
                    left -= 1;
                }
                self.turn(WAIT_MAX)?;
                let connected = self.shared().crowd.connected();
                self.control.crowd_grew(connected - std::mem::replace(&mut reported, connected));
            }
        }
        Ok(Duration::from_nanos(monotonic_ns() - began_ns))
    }

    fn open_member(&mut self, kind: Kind) {
        self.shared().crowd.unsettled += 1;
        let deadline = Moment::from_nanos(monotonic_ns()) + self.plan.connect_timeout;
        let member = Client::Crowd(Member::new(kind));
        let session = match kind {
            // Those that never send don't begin a handshake either.
            Kind::Silent => ClientSession::Plain(member),
            Kind::Dead | Kind::Slow => self.session(member),
        };
        match self.event_loop.connect(self.opener.way(), session, deadline) {
            Ok(_) => self.shared().connecting += 1,
            Err(_) => self.shared().crowd.refused(kind),
        }
    }

    /// Opens the active connections; each was tried once when this returns.
    pub(crate) fn set_up_active(&mut self) -> Result<(), LoadError> {
        let connections =
            share(self.plan.connections.into(), self.thread, self.plan.threads) as u32;
        let mut opened = 0;
        while (opened < connections || self.shared().connecting > 0) && !self.control.is_stopped() {
            while opened < connections && self.shared().connecting < CONNECTING_MAX {
                self.open_active(Active::new(opened, self.plan.pipeline, self.plan.keeps_cookies));
                opened += 1;
            }
            self.turn(WAIT_MAX)?;
        }
        self.report();
        Ok(())
    }

    fn wait_for_start(&mut self) -> Result<(), LoadError> {
        while self.control.origin_ns().is_none_or(|origin_ns| monotonic_ns() < origin_ns) {
            if self.control.is_stopped() {
                return Ok(());
            }
            self.turn(WAIT_READY)?;
        }
        let origin_ns = self.control.origin_ns().unwrap_or_default();
        let measure_from_ns = self.control.measure_from_ns().unwrap_or_default();
        let after = self.plan.end.after.map_or(u64::MAX, |after| after.as_nanos() as u64);
        let first_ns = match self.plan.warm_up.as_nanos() as u64 % SECOND_NS {
            0 => SECOND_NS,
            part_ns => part_ns,
        };
        self.boundary_ns = origin_ns + first_ns;
        self.handed = (clock::thread_cpu(), self.spun_ns);
        self.course.begin(origin_ns);
        let shared = self.event_loop.shared_mut();
        shared.stage = Stage::Running;
        if !self.plan.warm_up.is_zero() {
            shared.measure_from_ns = measure_from_ns;
        }
        shared.end_ns = measure_from_ns.saturating_add(after);
        if let Supply::Open(due) = &mut shared.supply {
            (due.origin_ns, due.end_ns) = (origin_ns, shared.end_ns);
        } else {
            while let Some(id) = self.event_loop.shared_mut().idle_queue.pop() {
                self.event_loop.wake(id);
            }
        }
        Ok(())
    }
}

impl Worker {
    /// Waits for what is under way, then for the other threads, and ends.
    fn finish(mut self, set_up: Duration) -> Result<ThreadOutcome, LoadError> {
        self.control.finishing();
        let ended_ns = monotonic_ns();
        self.count_unsent();
        let mut give_up_ns = ended_ns.saturating_add(self.patience_ns(ended_ns));
        let mut was_stopped = false;
        while self.shared().under_way > 0
            && monotonic_ns() < self.at_least_silence(ended_ns, give_up_ns)
        {
            let now_ns = monotonic_ns();
            // A stop may also come while this waits.
            if self.control.is_stopped() && !std::mem::replace(&mut was_stopped, true) {
                give_up_ns = give_up_ns.min(now_ns + STOP_GRACE.as_nanos() as u64);
            }
            if now_ns >= self.boundary_ns {
                self.hand_over(now_ns);
            }
            if !self.shared().again.is_empty() {
                self.open_again(now_ns);
                self.give_again();
            }
            let until_ns = self
                .at_least_silence(ended_ns, give_up_ns)
                .min(self.shared().again_next_ns(now_ns))
                .min(self.opener.next_ns().unwrap_or(u64::MAX));
            let left = Duration::from_nanos(until_ns.saturating_sub(now_ns));
            self.turn_and_look(left.min(WAIT_MAX))?;
        }
        let now_ns = monotonic_ns();
        let (before, measured_ns) = match self.before {
            Some((before, since_ns)) => (before, now_ns - since_ns),
            None => (OwnUse::read(), 0),
        };
        let used = OwnUse::read().since(&before);
        self.control.finished();
        while !self.control.are_all_finished() {
            self.turn(WAIT_READY)?;
        }
        // What is out now is booked as that, before the last is handed over.
        let open = self.shared().open;
        self.event_loop.close_all(CloseCause::LoopEnded);
        self.shared().cut_off_again();
        self.send_last(now_ns, open);
        Ok(self.outcome(used, measured_ns, (ended_ns, now_ns), set_up))
    }

    /// How long what is under way is waited for from `ended_ns` on.
    fn patience_ns(&mut self, ended_ns: u64) -> u64 {
        let run_ns =
            self.control.origin_ns().map_or(0, |origin_ns| ended_ns.saturating_sub(origin_ns));
        let hopeless_ns = HOPELESS.as_nanos() as u64;
        if !self.control.was_answered() && run_ns >= hopeless_ns && !self.shared().is_spent() {
            return 0;
        }
        // A run that ends by number is to have all of them, but not longer than it may take.
        let grace_ns = self.plan.grace.as_nanos() as u64;
        if self.shared().is_spent() {
            let whole_ns = (self.plan.request_timeout + TIMEOUT_SLACK).as_nanos() as u64;
            let left_ns = self.shared().end_ns.saturating_sub(ended_ns);
            return whole_ns.min(left_ns.saturating_add(grace_ns));
        }
        grace_ns
    }

    /// `give_up_ns`, or later while the server has said nothing since the end.
    fn at_least_silence(&mut self, ended_ns: u64, give_up_ns: u64) -> u64 {
        let last_ns = self.shared().last_answer_ns;
        let is_asking = self.shared().is_asking();
        if last_ns == 0 || last_ns >= ended_ns || !is_asking || self.control.is_stopped() {
            return give_up_ns;
        }
        give_up_ns
            .max((last_ns + SILENCE.as_nanos() as u64).min(ended_ns + STOP_GRACE.as_nanos() as u64))
    }

    /// The open loop's requests that were due and found no connection.
    fn count_unsent(&mut self) {
        let shared = self.event_loop.shared_mut();
        let end_ns = shared.end_ns.min(monotonic_ns());
        shared.count_unsent(end_ns);
        // The measured time of a run that ended early is over, too.
        if !shared.is_spent() {
            shared.end_ns = end_ns;
        }
        shared.stage = Stage::Ending;
    }

    /// Hands over what was counted last; a moment's worth goes to the interval before.
    fn send_last(&mut self, now_ns: u64, open: u32) {
        let began_ns = self.boundary_ns.saturating_sub(SECOND_NS);
        let is_short = now_ns.saturating_sub(began_ns) < INTERVAL_MIN_NS;
        // What counts does not go into a second of the warm-up.
        let is_first = self.control.measure_from_ns().is_none_or(|from_ns| began_ns <= from_ns);
        let is_short = is_short && !is_first && self.interval > 0;
        self.send(self.interval - u32::from(is_short), now_ns, open);
    }

    fn outcome(
        mut self,
        used: OwnUse,
        measured_ns: u64,
        (ended_ns, waited_until_ns): (u64, u64),
        set_up: Duration,
    ) -> ThreadOutcome {
        let shared = self.event_loop.shared_mut();
        let mut crowd = shared.crowd.outcomes();
        crowd.iter_mut().for_each(|kind| kind.set_up_s = set_up.as_secs_f64());
        ThreadOutcome {
            used,
            spun: Duration::from_nanos(self.spun_ns),
            measured: Duration::from_nanos(measured_ns),
            ended_ns,
            waited_until_ns,
            last_outcome_ns: shared.last_outcome_ns,
            last_answer_ns: shared.last_answer_ns,
            firsts: std::mem::take(&mut shared.firsts),
            coarse_timers: self.coarse_timers,
            course: self.course,
            crowd,
        }
    }
}
