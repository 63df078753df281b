//! What the sessions of one thread share: the plan's terms, the requests, the tally, and what
//! they leave for the worker to do between turns; and where the worker's connections come from.
//!
//! Only the thread itself ever sees it; nothing here is locked.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use pollux_engine::{ConnectTo, ConnectionId, ListenAddress, Now};
use pollux_http::h2;
use pollux_sys::clock::monotonic_ns;

use crate::active::{Active, Again, UnderWay};
use crate::answer::Answer;
use crate::crowd::CrowdTally;
use crate::kept_answer::Firsts;
use crate::protocol::{HEAD_BYTES_MAX, ask_room_bytes};
use crate::requests::ANSWER_LIMITS;
use crate::requests::Requests;
use crate::schedule::{Budget, Start, Supply};
use crate::tally::{Blame, Cause, Fault, Interval, Tally, Verdict};
use crate::{Expect, Plan, Protocol};

/// Requests never sent that are looked at one by one, in some tens of milliseconds. Of more, at
/// rates that no machine reaches, only the number is worked out.
const UNSENT_LOOKED_AT: u32 = 500_000;

/// Requests of a thread that are its first: they are sent while few are out.
const FIRST_SENT: u32 = 16;

/// Length of an interval.
pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// Streams of a connection before its server has said how many it allows.
const STREAMS_FIRST: u32 = 100;
/// Of the requests that are to be sent again so many are looked at for one that a connection may take.
const AGAIN_LOOKED_AT: usize = 64;
/// Connections from one source address to one server: below the 28,232 ports that Linux gives
/// out (`ip_local_port_range`), with room for those in TIME_WAIT.
const PER_SOURCE: u32 = 20_000;

/// What a plan asks of each connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) pipeline: u32,
    pub(crate) requests_per_connection: u32,
    pub(crate) think_time: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) drip: Duration,
    pub(crate) expect: Expect,
    pub(crate) http: Protocol,
    pub(crate) is_encrypted: bool,
    /// Requests under way on one connection of HTTP/2.
    pub(crate) streams: u32,
    pub(crate) keeps_cookies: bool,
    /// What this end announces to a server of HTTP/2.
    pub(crate) settings: h2::Settings,
}

impl Terms {
    /// Those of `plan`.
    pub(crate) fn of(plan: &Plan) -> Self {
        Self {
            pipeline: plan.pipeline,
            requests_per_connection: plan.requests_per_connection.map_or(u32::MAX, u32::from),
            think_time: plan.think_time,
            request_timeout: plan.request_timeout,
            drip: plan.crowd.drip,
            expect: plan.expect,
            http: plan.http,
            is_encrypted: plan.targets[0].tls_name.is_some(),
            streams: plan.streams,
            keeps_cookies: plan.keeps_cookies,
            settings: h2::Settings {
                // Of its own: a client takes no streams of its peer, and remembers as many that it has reset.
                streams_max: plan.streams,
                stream_window: plan.stream_window,
                connection_window: plan.connection_window,
                head_bytes: ANSWER_LIMITS.head_bytes as u32,
                ..h2::Settings::DEFAULT
            },
        }
    }
}

/// Where a run is, for its sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Connections are opened; no request leaves but those of the crowd.
    SettingUp,
    /// Requests leave.
    Running,
    /// No new request leaves.
    Ending,
}

/// An active connection that wants another socket.
#[derive(Debug)]
pub(crate) struct Reopen {
    pub(crate) active: Box<Active>,
    /// Not before.
    pub(crate) at_ns: u64,
}

/// The sockets of an active connection that speaks HTTP/2: a server may end one whose answers are still to come.
#[derive(Clone, Default, Debug)]
pub(crate) struct Sockets {
    /// Streams under way on those whose place another has taken.
    pub(crate) leaving: u32,
    /// The one that asks.
    pub(crate) socket: Option<ConnectionId>,
    /// Values of Set-Cookie that came on those whose place another has taken, each with what it answers, until that one asks.
    pub(crate) late_cookies: Vec<(UnderWay, Vec<u8>)>,
}

/// When an answer came, and what it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Came {
    pub(crate) first_ns: u64,
    pub(crate) now_ns: u64,
    pub(crate) verdict: Verdict,
}

/// What the sessions of one thread share.
pub(crate) struct Shared {
    pub(crate) terms: Terms,
    pub(crate) requests: Requests,
    pub(crate) stage: Stage,
    /// Requests that begin earlier are the warm-up's.
    pub(crate) measure_from_ns: u64,
    /// No request begins from here on.
    pub(crate) end_ns: u64,
    /// Whether requests come in turns: then a connection that was opened for one sends it also when the turn is
    /// over. A server that serves one connection at a time would wait for it, and all others behind it.
    pub(crate) is_in_turns: bool,
    pub(crate) supply: Supply,
    pub(crate) budget: Budget,
    pub(crate) interval: Box<Interval>,
    pub(crate) idle_queue: IdleQueue,
    /// For the worker: connections to be opened again.
    pub(crate) reopen: Vec<Reopen>,
    /// Requests under way that no server has looked at, for the next connection with a free stream; never more than were under way.
    pub(crate) again: VecDeque<Again>,
    /// What is known of the sockets of each active connection that speak HTTP/2.
    pub(crate) slots: Vec<Sockets>,
    /// Sockets that may ask more, because one whose place they have taken has ended: for the worker to wake.
    pub(crate) freed: Vec<ConnectionId>,
    /// How many streams the server allowed last; most allow 100.
    pub(crate) streams_allowed: u32,
    /// Room for the heads that HTTP/2 packs.
    pub(crate) scratch: h2::Scratch,
    /// Room for output that the largest request of HTTP/2 takes, without its body.
    pub(crate) ask_room_bytes: usize,
    /// Requests under way.
    pub(crate) under_way: u64,
    /// Active connections that are open.
    pub(crate) open: u32,
    /// Connects that have not come to an end.
    pub(crate) connecting: u32,
    /// Active connections that were opened and had no answer yet: a server may not have accepted them.
    pub(crate) unproven: u32,
    pub(crate) crowd: CrowdTally,
    /// When the last request was answered, or failed.
    pub(crate) last_outcome_ns: u64,
    /// When the last one was answered.
    pub(crate) last_answer_ns: u64,
    /// When the last request was sent.
    pub(crate) last_sent_ns: u64,
    /// How many more are among the first, and when the last of these was sent.
    first_left: u32,
    first_until_ns: u64,
    /// Whether an active connection ever came about.
    pub(crate) was_connected: bool,
    /// Why the first one that failed did not, in words.
    pub(crate) first_failure: Option<String>,
    /// The first answers that were not right.
    pub(crate) firsts: Firsts,
    /// The server speaks TLS, and the URL does not: no request will be answered rightly.
    pub(crate) is_misunderstood: bool,
    blame: Blame,
    /// Whether a session was called in this turn.
    pub(crate) has_worked: bool,
    /// When the turn began.
    pub(crate) turn_ns: u64,
    /// Room for what encrypted sessions send; empty without any.
    pub(crate) plain_room: Vec<u8>,
    /// The latest that the clock said.
    read_ns: u64,
}

impl Shared {
    /// For a thread with so many active connections.
    pub(crate) fn new(
        plan: &Plan,
        requests: Requests,
        supply: Supply,
        budget: Budget,
        connections: u32,
    ) -> Self {
        let targets = requests.targets();
        let head_bytes =
            if plan.keeps_cookies { HEAD_BYTES_MAX } else { requests.head_bytes_max() };
        Self {
            terms: Terms::of(plan),
            ask_room_bytes: ask_room_bytes(head_bytes),
            requests,
            stage: Stage::SettingUp,
            // Without a warm-up the first connects count too.
            measure_from_ns: if plan.warm_up.is_zero() { 0 } else { u64::MAX },
            end_ns: u64::MAX,
            is_in_turns: false,
            supply,
            budget,
            interval: Box::new(Interval::new(targets)),
            idle_queue: IdleQueue::new(connections),
            reopen: Vec::new(),
            again: VecDeque::new(),
            slots: vec![Sockets::default(); connections as usize],
            freed: Vec::new(),
            streams_allowed: STREAMS_FIRST,
            scratch: h2::Scratch::default(),
            under_way: 0,
            open: 0,
            connecting: 0,
            unproven: 0,
            crowd: CrowdTally::new(&plan.crowd),
            last_outcome_ns: 0,
            last_answer_ns: 0,
            last_sent_ns: 0,
            first_left: FIRST_SENT,
            first_until_ns: 0,
            was_connected: false,
            first_failure: None,
            firsts: Firsts::default(),
            is_misunderstood: false,
            blame: Blame::new(plan),
            has_worked: false,
            turn_ns: 0,
            plain_room: Vec::new(),
            read_ns: 0,
        }
    }

    /// Called when a turn begins.
    #[inline]
    pub(crate) fn begin_turn(&mut self, now: Now) {
        self.turn_ns = now.at.as_nanos();
        self.read_ns = self.turn_ns;
        self.has_worked = false;
    }

    /// Called when the sessions of a turn were called. In a closed loop the time since the turn
    /// began is what an answer may have waited for its session.
    #[inline]
    pub(crate) fn end_turn(&mut self) {
        let is_closed = matches!(self.supply, Supply::Closed);
        if is_closed && self.read_ns > self.turn_ns && self.turn_ns >= self.measure_from_ns {
            self.interval.lag.record(self.read_ns - self.turn_ns);
        }
    }

    /// What time it is now, within the turn.
    #[inline]
    pub(crate) fn read_clock(&mut self) -> u64 {
        self.read_ns = monotonic_ns();
        self.read_ns
    }

    /// The tally of a request, or of a connection, that began at `start_ns`.
    #[inline]
    pub(crate) fn tally(&mut self, start_ns: u64) -> &mut Tally {
        let Interval { warm_up, measured, .. } = &mut *self.interval;
        if start_ns >= self.measure_from_ns { measured } else { warm_up }
    }

    /// Notes that a request is sent.
    #[inline]
    pub(crate) fn sends(&mut self, now_ns: u64) {
        self.last_sent_ns = now_ns;
        if self.first_left > 0 {
            self.first_left -= 1;
            self.first_until_ns = now_ns;
        }
    }

    /// Counts an answer by when it came, whichever part its request, of `start_ns` and sent at `sent_ns`, began in.
    #[inline]
    pub(crate) fn came(&mut self, (start_ns, sent_ns): (u64, u64), now_ns: u64, answer: &Answer) {
        let took_ns = now_ns.saturating_sub(sent_ns);
        if sent_ns <= self.first_until_ns {
            self.interval.first_sent_to_answer.record(took_ns);
        }
        if now_ns < self.measure_from_ns {
            return;
        }
        let is_in_time = now_ns < self.end_ns;
        if is_in_time {
            self.interval.sent_to_answer.record(took_ns);
        }
        let interval = &mut *self.interval;
        let came = if is_in_time { &mut interval.in_time } else { &mut interval.late };
        came.answered += 1;
        came.of_warm_up += u64::from(start_ns < self.measure_from_ns);
        came.bytes_in += answer.wire_bytes;
        came.body_bytes_in += answer.body_bytes;
    }

    /// The number of the interval in which `at_ns` lies, as the worker hands them over.
    fn interval_of(&self, at_ns: u64) -> u32 {
        let Supply::Open(due) = &self.supply else { return 0 };
        // The first one ends so that the measured part begins with one.
        let first_ns = match self.measure_from_ns.saturating_sub(due.origin_ns) % SECOND_NS {
            0 => SECOND_NS,
            part_ns => part_ns,
        };
        ((at_ns.saturating_sub(due.origin_ns) + SECOND_NS - first_ns) / SECOND_NS) as u32
    }

    /// Notes a wait from `start_ns` to `now_ns` that is not in a latency of the measured part.
    pub(crate) fn waited(&mut self, start_ns: u64, now_ns: u64) {
        let is_warm_up = now_ns < self.measure_from_ns;
        let Interval { longest_ns, warm_up_longest_ns, .. } = &mut *self.interval;
        let longest = if is_warm_up { warm_up_longest_ns } else { longest_ns };
        *longest = (*longest).max(now_ns.saturating_sub(start_ns));
    }

    /// Books a request that is out when the run ends.
    pub(crate) fn cut_off(&mut self, start_ns: u64) {
        let now_ns = self.turn_ns;
        self.tally(start_ns).cut_off(now_ns.saturating_sub(start_ns));
        self.waited(start_ns, now_ns);
    }

    /// Books a request that was to be sent again and was not.
    fn give_up_again(&mut self, again: &Again, fault: Fault) {
        let now_ns = self.turn_ns;
        self.under_way -= 1;
        self.last_outcome_ns = now_ns;
        self.waited(again.request.start_ns, now_ns);
        self.tally(again.request.start_ns).failed(fault, Some(again.request.target));
    }

    /// The first of those that are to be sent again which an active connection may take now.
    #[inline]
    pub(crate) fn take_again(&mut self, slot: u32, now_ns: u64) -> Option<Again> {
        if self.again.is_empty() {
            return None;
        }
        let mut looked_at = self.again.iter().take(AGAIN_LOOKED_AT);
        let at = looked_at.position(|again| again.may_go_to(slot, now_ns))?;
        self.again.remove(at)
    }

    /// When more connections may take one of them than now, if ever.
    pub(crate) fn again_next_ns(&self, now_ns: u64) -> u64 {
        let next = self.again.iter().filter_map(|again| again.next_ns(now_ns));
        next.min().unwrap_or(u64::MAX)
    }

    /// Chooses connections with room for those of them that may be sent now.
    pub(crate) fn wake_for_again(&mut self, now_ns: u64, woken: &mut Vec<ConnectionId>) {
        let Self { again, idle_queue, .. } = self;
        for again in again.iter().filter(|again| again.at_ns <= now_ns) {
            if idle_queue.idle() == 0 {
                return;
            }
            let other = idle_queue.pop_where(|slot| slot != again.refused_by);
            woken.extend(other.or_else(|| {
                let is_anywhere = again.anywhere_ns <= now_ns;
                if is_anywhere { idle_queue.pop() } else { None }
            }));
        }
    }

    /// Gives up those that have waited for a connection for longer than an answer may take.
    pub(crate) fn give_up_late(&mut self, now_ns: u64) {
        let timeout_ns = self.terms.request_timeout.as_nanos() as u64;
        let is_late = |again: &&Again| again.request.sent_ns.saturating_add(timeout_ns) <= now_ns;
        while let Some(again) = self.again.front().filter(is_late).copied() {
            self.again.pop_front();
            self.give_up_again(&again, Fault::Timeout);
        }
    }

    /// Books the requests that were to be sent again when the run ends.
    pub(crate) fn cut_off_again(&mut self) {
        while let Some(again) = self.again.pop_front() {
            self.under_way -= 1;
            self.cut_off(again.request.start_ns);
        }
    }

    /// Whether a request waits for its answer, or for the connection that it takes. After the end of the
    /// time only requests count that were sent since the last answer: a server that answered all that it
    /// serves sends nothing more, and earlier requests are never served.
    pub(crate) fn is_asking(&self) -> bool {
        let is_running = self.stage == Stage::Running;
        if !is_running && !self.is_spent() && self.last_sent_ns < self.last_answer_ns {
            return false;
        }
        let wants = || match &self.supply {
            // Those whose time comes later think, or have failed before: the worker knows.
            Supply::Closed => {
                let is_due = |reopen: &Reopen| reopen.at_ns <= self.turn_ns;
                self.connecting > 0 || self.reopen.iter().any(is_due)
            }
            Supply::Open(due) => due.is_behind(self.turn_ns),
        };
        self.under_way > 0 || (is_running && wants())
    }

    /// Takes a request for a connection that is about to be opened, where requests are a number: whether one
    /// was taken; `None` when no request would follow.
    pub(crate) fn reserve(&mut self, now_ns: u64) -> Option<bool> {
        if !self.again.is_empty() {
            return Some(false);
        }
        if now_ns < self.measure_from_ns { Some(false) } else { self.budget.reserve() }
    }

    /// The start of a request that may be sent now, and counts it as due. `is_reserved` where it was taken when its
    /// connection was opened.
    #[inline]
    pub(crate) fn start(&mut self, now_ns: u64, is_reserved: &mut bool) -> Option<Start> {
        if self.stage != Stage::Running {
            return None;
        }
        // A turn may last over the end of the warm-up: what had not begun by then is none of its requests either.
        if now_ns >= self.measure_from_ns {
            self.drop_backlog();
        }
        let start = match &mut self.supply {
            Supply::Closed if now_ns >= self.end_ns && !(self.is_in_turns && *is_reserved) => {
                return None;
            }
            Supply::Closed => Start { at_ns: now_ns, had_connection: false },
            Supply::Open(_) if self.budget.is_spent() => return None,
            Supply::Open(due) => due.start(now_ns)?,
        };
        if start.at_ns >= self.measure_from_ns {
            if std::mem::take(is_reserved) {
                self.budget.begin_reserved();
            } else if !self.budget.take() {
                return None;
            }
        }
        self.tally(start.at_ns).totals.due += 1;
        Some(start)
    }

    /// Drops the open loop's requests of the warm-up that have not begun by its end: served first, they would take the
    /// time of those that count, and their own answers count nowhere. They are errors of the warm-up.
    pub(crate) fn drop_backlog(&mut self) {
        let until_ns = self.measure_from_ns;
        let Supply::Open(due) = &mut self.supply else { return };
        let Some((dropped, first_ns)) = due.drop_before(until_ns) else { return };
        let warm_up = &mut self.interval.warm_up;
        warm_up.totals.due += dropped;
        warm_up.errors.unsent += dropped;
        self.waited(first_ns, until_ns - 1);
    }

    /// Books the open loop's requests that were due by `until_ns` and found no connection.
    pub(crate) fn count_unsent(&mut self, until_ns: u64) {
        for _ in 0..UNSENT_LOOKED_AT {
            if matches!(self.supply, Supply::Closed) {
                return;
            }
            let Some(start) = self.start(until_ns, &mut false) else { return };
            self.tally(start.at_ns).errors.unsent += 1;
            if start.at_ns >= self.measure_from_ns {
                let interval = self.interval_of(start.at_ns);
                *self.interval.unsent_in.entry(interval).or_default() += 1;
            }
            self.waited(start.at_ns, until_ns);
        }
        let Supply::Open(due) = &mut self.supply else { return };
        let Interval { warm_up, measured, .. } = &mut *self.interval;
        let early = due.skip(until_ns.min(self.measure_from_ns));
        let counted = self.budget.take_up_to(due.skip(until_ns));
        for (tally, unsent) in [(warm_up, early), (measured, counted)] {
            tally.totals.due += unsent;
            tally.errors.unsent += unsent;
        }
    }

    /// Books a connection that was not established. The request that it was for is lost with it;
    /// in an open loop only if one was due.
    #[cold]
    pub(crate) fn connect_failed(&mut self, cause: &Cause<'_>, is_reserved: &mut bool) {
        let fault = self.blame.fault(cause);
        self.note_failure(cause);
        // It was for those that are to be sent again.
        if let Some(again) = self.again.pop_front() {
            return self.give_up_again(&again, fault);
        }
        if self.stage != Stage::Running {
            return;
        }
        let now_ns = self.read_clock();
        let start = self.start(now_ns, is_reserved);
        let is_closed = matches!(self.supply, Supply::Closed);
        if start.is_some() || !is_closed {
            let at_ns = start.map_or(now_ns, |start| start.at_ns);
            self.tally(at_ns).failed(fault, None);
            if at_ns >= self.measure_from_ns && self.firsts.failure.is_none() {
                self.firsts.failure = Some((now_ns, self.blame.words(cause)));
            }
        }
    }

    /// Keeps in words why the first failure was one, where nothing has failed before.
    #[cold]
    pub(crate) fn note_failure(&mut self, cause: &Cause<'_>) {
        if self.first_failure.is_none() {
            self.first_failure = Some(self.blame.words(cause));
        }
    }

    /// The server says that it speaks TLS; whether the URL does not, which is then the first failure. The
    /// request has failed.
    #[cold]
    pub(crate) fn speaks_tls(&mut self) -> bool {
        if self.blame.is_plain() {
            self.speaks_other(&Cause::SpeaksTls);
        }
        self.is_misunderstood
    }

    /// The server speaks something else, which is then the first failure.
    #[cold]
    pub(crate) fn speaks_other(&mut self, cause: &Cause<'_>) {
        self.is_misunderstood = true;
        self.note_failure(cause);
    }

    /// Books an answer to a request that began at `start_ns`.
    #[inline]
    pub(crate) fn answered(&mut self, request: &UnderWay, came: &Came, answer: &Answer) {
        let Came { first_ns, now_ns, verdict } = *came;
        let latency_ns = now_ns.saturating_sub(request.start_ns);
        let first_ns = first_ns.saturating_sub(request.start_ns);
        (self.last_outcome_ns, self.last_answer_ns) = (now_ns, now_ns);
        if request.start_ns < self.measure_from_ns {
            self.waited(request.start_ns, now_ns);
        }
        self.came((request.start_ns, request.sent_ns), now_ns, answer);
        let tally = self.tally(request.start_ns);
        tally.answered(answer, verdict, latency_ns, first_ns, request.target);
    }

    /// When what is read now came: the turn's clock, unless the request left later in the same turn.
    #[inline]
    pub(crate) fn came_ns(&mut self, request: &UnderWay) -> u64 {
        if self.turn_ns > request.sent_ns { self.turn_ns } else { self.read_clock() }
    }

    /// Notes how much later than meant a request leaves that had a connection.
    #[inline]
    pub(crate) fn note_lag(&mut self, start: &Start, now_ns: u64) {
        let had_connection = start.had_connection
            || (self.idle_queue.idle() > 0 && !matches!(self.supply, Supply::Closed));
        if had_connection && start.at_ns >= self.measure_from_ns {
            self.interval.lag.record(now_ns.saturating_sub(start.at_ns));
        }
    }

    /// Whether every request has begun that is to begin.
    pub(crate) fn is_spent(&self) -> bool {
        self.budget.is_spent()
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// The connection, while it is idle.
    idle: Option<ConnectionId>,
    is_queued: bool,
}

/// The active connections of a thread that could take a request, longest idle first.
///
/// Every active connection has a slot for the whole run, whichever socket it has at the time; a slot is in the queue
/// at most once, so the queue is never longer than there are slots.
#[derive(Debug)]
pub(crate) struct IdleQueue {
    slots: Vec<Slot>,
    queue: VecDeque<u32>,
    idle: u32,
}

impl IdleQueue {
    /// For so many connections, none of them idle.
    pub(crate) fn new(connections: u32) -> Self {
        let slots = vec![Slot::default(); connections as usize];
        Self { queue: VecDeque::with_capacity(slots.len()), slots, idle: 0 }
    }

    /// The connection of `slot` could take a request.
    pub(crate) fn is_idle(&mut self, slot: u32, id: ConnectionId) {
        let entry = &mut self.slots[slot as usize];
        if entry.idle.replace(id).is_none() {
            self.idle += 1;
        }
        if !std::mem::replace(&mut entry.is_queued, true) {
            self.queue.push_back(slot);
        }
    }

    /// It can't any more.
    #[inline]
    pub(crate) fn is_busy(&mut self, slot: u32) {
        if self.slots[slot as usize].idle.take().is_some() {
            self.idle -= 1;
        }
    }

    /// Takes the one that is idle for the longest time.
    pub(crate) fn pop(&mut self) -> Option<ConnectionId> {
        while let Some(slot) = self.queue.pop_front() {
            let entry = &mut self.slots[slot as usize];
            entry.is_queued = false;
            if let Some(id) = entry.idle.take() {
                self.idle -= 1;
                return Some(id);
            }
        }
        None
    }

    /// The same among those of which this is true.
    fn pop_where(&mut self, is_one: impl Fn(u32) -> bool) -> Option<ConnectionId> {
        let is_idle = |slot: u32| self.slots[slot as usize].idle.is_some();
        let at = self.queue.iter().position(|slot| is_idle(*slot) && is_one(*slot))?;
        let slot = self.queue.remove(at)?;
        let entry = &mut self.slots[slot as usize];
        entry.is_queued = false;
        self.idle -= 1;
        entry.idle.take()
    }

    /// How many are idle.
    #[inline]
    pub(crate) fn idle(&self) -> u32 {
        self.idle
    }
}

/// Hands out source addresses in turn, and connections whose time to be opened again has come.
pub(crate) struct Opener {
    ways: Vec<ConnectTo>,
    next: usize,
    /// By the time at which they are tried again.
    #[expect(clippy::vec_box, reason = "sessions keep an active connection in a box")]
    later: BTreeMap<u64, Vec<Box<Active>>>,
    /// Of these, how many are tried again; the others think.
    retrying: usize,
}

impl Opener {
    /// For `thread` of the plan's; threads begin with different sources.
    pub(crate) fn new(plan: &Plan, thread: u32) -> Self {
        let peer = &plan.targets[0].address;
        let way = |source| ConnectTo { peer: peer.clone(), source };
        let sources = sources(plan, peer);
        let ways: Vec<ConnectTo> = if sources.is_empty() {
            vec![way(None)]
        } else {
            sources.into_iter().map(|source| way(Some(source))).collect()
        };
        let next = thread as usize % ways.len();
        Self { ways, next, later: BTreeMap::new(), retrying: 0 }
    }

    /// Where the next connection goes, and where from.
    pub(crate) fn way(&mut self) -> &ConnectTo {
        let now = self.next;
        self.next = (now + 1) % self.ways.len();
        &self.ways[now]
    }

    /// Keeps a connection until its time.
    pub(crate) fn keep(&mut self, reopen: Reopen) {
        self.retrying += usize::from(reopen.active.is_retrying());
        self.later.entry(reopen.at_ns).or_default().push(reopen.active);
    }

    /// A connection whose time has come.
    pub(crate) fn due(&mut self, now_ns: u64) -> Option<Box<Active>> {
        let mut first = self.later.first_entry().filter(|first| *first.key() <= now_ns)?;
        let active = first.get_mut().pop();
        if first.get().is_empty() {
            first.remove();
        }
        let is_retrying = active.as_ref().is_some_and(|active| active.is_retrying());
        self.retrying -= usize::from(is_retrying);
        active
    }

    /// Whether one of them failed and is tried again: a request waits for it.
    pub(crate) fn is_retrying(&self) -> bool {
        self.retrying > 0
    }

    /// When the next one's time comes.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.later.first_key_value().map(|(at_ns, _)| *at_ns)
    }
}

/// The plan's, or as many of 127.0.0.0/8 as it takes for this many connections to loopback.
fn sources(plan: &Plan, peer: &ListenAddress) -> Vec<IpAddr> {
    if !plan.sources.is_empty() {
        return plan.sources.clone();
    }
    let connections = plan.connections + plan.crowd.len();
    let ListenAddress::Tcp(address) = peer else { return Vec::new() };
    let is_loopback = matches!(address.ip(), IpAddr::V4(ip) if ip.is_loopback());
    if !is_loopback || connections <= PER_SOURCE {
        return Vec::new();
    }
    let first = Ipv4Addr::new(127, 0, 0, 2).to_bits();
    let last = first + connections.div_ceil(PER_SOURCE);
    (first..last).map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))).collect()
}

#[cfg(test)]
mod tests {
    use pollux_engine::{Driver, EventLoop, Limits, Listener, NoSession};

    use super::*;
    use crate::{Crowd, Target};

    /// Connections have ids only in a loop.
    fn ids(count: usize) -> Vec<ConnectionId> {
        let listener = Listener::open(&"127.0.0.1:0".parse().expect("an address"), false);
        let listener = listener.expect("a listener");
        let to = ConnectTo { peer: listener.address().clone(), source: None };
        let driver: Driver = "poll".parse().expect("a driver");
        let mut event_loop = EventLoop::open(driver, (), Limits::default()).expect("a loop");
        let mut connect = || {
            let begun = event_loop.connect(&to, NoSession::default(), pollux_engine::Moment::NEVER);
            begun.map_err(|(_, error)| error).expect("begun")
        };
        (0..count).map(|_| connect()).collect()
    }

    #[test]
    fn the_longest_idle_connection_comes_first_and_none_twice() {
        let ids = ids(4);
        let mut queue = IdleQueue::new(3);
        (0..3).for_each(|slot| queue.is_idle(slot, ids[slot as usize]));
        queue.is_busy(1);
        assert_eq!((queue.idle(), queue.pop()), (2, Some(ids[0])));
        // A slot that was queued keeps its position, with its new connection.
        queue.is_idle(1, ids[3]);
        queue.is_idle(1, ids[3]);
        assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some(ids[3]), Some(ids[2]), None));
        assert_eq!(queue.idle(), 0);
    }

    #[test]
    fn a_refused_request_goes_to_another_connection_and_late_to_the_same() {
        let ids = ids(3);
        let mut queue = IdleQueue::new(3);
        (0..3).for_each(|slot| queue.is_idle(slot, ids[slot as usize]));
        queue.is_busy(1);
        assert_eq!(queue.pop_where(|slot| slot != 0), Some(ids[2]));
        assert_eq!((queue.idle(), queue.pop_where(|slot| slot != 0)), (1, None));
        assert_eq!((queue.pop_where(|_| true), queue.idle()), (Some(ids[0]), 0));
        // What was taken out of the middle can be queued again.
        queue.is_idle(2, ids[2]);
        assert_eq!(queue.pop(), Some(ids[2]));
        let request = UnderWay::default();
        let again = Again { request, refused: 1, refused_by: 7, at_ns: 10, anywhere_ns: 20 };
        let may = |slot: u32| [9, 10, 19, 20].map(|now_ns| again.may_go_to(slot, now_ns));
        assert_eq!(may(3), [false, true, true, true]);
        assert_eq!(may(7), [false, false, false, true]);
        assert_eq!([9, 10, 20].map(|now_ns| again.next_ns(now_ns)), [Some(10), Some(20), None]);
    }

    fn plan(url: &str, dead: u32) -> Plan {
        let target = Target::parse(url, None).expect("a URL");
        let plan = Plan::new(vec![target], "poll".parse().expect("a driver"));
        Plan { threads: 2, crowd: Crowd { dead, ..Crowd::default() }, ..plan }
    }

    #[test]
    fn a_crowd_on_loopback_comes_from_several_addresses() {
        let sources = |url: &str, dead: u32| {
            let opener = Opener::new(&plan(url, dead), 0);
            let shown = |way: &ConnectTo| way.source.map_or("any".into(), |ip| ip.to_string());
            opener.ways.iter().map(shown).collect::<Vec<String>>()
        };
        assert_eq!(sources("http://127.0.0.1/", 19_999), ["any"]);
        assert_eq!(sources("http://127.0.0.1/", 20_000), ["127.0.0.2", "127.0.0.3"]);
        assert_eq!(sources("http://127.0.0.1/", 59_999).len(), 3);
        assert_eq!(sources("http://192.0.2.1/", 60_000), ["any"]);
    }

    #[test]
    fn connections_wait_for_their_time_in_its_order() {
        let mut opener = Opener::new(&plan("http://127.0.0.1/", 0), 1);
        for at_ns in [30, 10, 20] {
            opener.keep(Reopen { active: Active::new(0, 1, false), at_ns });
        }
        assert_eq!(opener.next_ns(), Some(10));
        assert!(opener.due(9).is_none() && opener.due(10).is_some() && opener.due(10).is_none());
        assert!(opener.due(40).is_some() && opener.due(40).is_some());
        assert_eq!(opener.next_ns(), None);
    }
}
