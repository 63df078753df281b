//! One enter of the completion loop, how many completions it waits for, and their answers in order.

use std::io;
use std::time::Duration;

use pollux_poller::Token;
use pollux_sys::ring::{Received, Shots, StreamCompletion};
use rustix::io::Errno;

use super::connection::{Receiving, TurnSend};
use super::{CompletionLoop, Kind, SUBMITS_MAX, errno, is, read_label};
use crate::conversation::Occasion;
use crate::pipe::Seen;
use crate::sources::SourceId;
use crate::tail::{Piece, Tail, broken};
use crate::turn::Turning;
use crate::{Actions, CloseCause, ConnectionId, Counter, Moment, Session};

impl<S: Session> CompletionLoop<S> {
    /// Submits everything and waits, spins, or only looks.
    pub(super) fn enter(&mut self, timeout: Option<Duration>, began: Moment) -> io::Result<()> {
        if timeout == Some(Duration::ZERO) {
            self.look()?;
        } else if self.state.limits.busy_poll {
            self.spin(timeout, began)?;
        } else {
            self.sleep(timeout)?;
        }
        if self.ring.queued() == 0 {
            self.is_closing = false;
            self.next_submission();
        }
        Ok(())
    }

    /// Looks again and again; the shared date is left alone meanwhile.
    fn spin(&mut self, timeout: Option<Duration>, began: Moment) -> io::Result<()> {
        let end = timeout.map_or(Moment::NEVER, |timeout| began + timeout);
        loop {
            self.look()?;
            if self.ring.has_completions() || self.state.clock.spin() >= end {
                return Ok(());
            }
            self.state.counters.count(Counter::BusySpins);
        }
    }

    /// No system call, unless something is to be submitted or the kernel has left work to this
    /// thread; which of the two shows in memory that is shared with it.
    #[inline]
    fn look(&mut self) -> io::Result<()> {
        self.pace.no_target();
        match self.ring.look() {
            Ok(false) => Ok(()),
            outcome => self.entered(outcome.map(drop)),
        }
    }

    /// One system call. No timer is armed when nothing is waited for.
    fn sleep(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let (target, at_most) = self.pace.target();
        let timeout = timeout.into_iter().chain(at_most).min();
        let outcome = self.ring.enter(target, timeout).map(drop);
        self.entered(outcome)
    }

    fn entered(&self, outcome: io::Result<()>) -> io::Result<()> {
        self.state.counters.count(Counter::RingEnters);
        outcome.or_else(|error| if has_passed(&error) { Ok(()) } else { Err(error) })
    }

    /// Answers all completions that are there.
    pub(super) fn complete(&mut self) {
        loop {
            while let Some(completion) = self.next_completion() {
                self.answer(completion);
            }
            if !self.fetch_overflow() {
                break;
            }
        }
        self.renew_arena();
        // What a storm needed is given back: it would be counted to the connections for ever.
        if self.backlog.is_empty() && self.backlog.capacity() > QUEUE_KEPT {
            self.backlog.shrink_to(QUEUE_KEPT);
        }
    }

    fn next_completion(&mut self) -> Option<StreamCompletion> {
        self.backlog.pop_front().or_else(|| self.ring.next_completion())
    }

    fn answer(&mut self, completion: StreamCompletion) {
        self.state.counters.count(Counter::Completions);
        let (kind, token) = read_label(completion.user_data);
        if kind == Kind::Send {
            return self.fell_short(token, completion.result);
        }
        self.renew_arena();
        match kind {
            Kind::Receive => self.received(token, completion),
            Kind::SendWaiting => self.sent_waiting(token, completion),
            Kind::Writable => self.writable(token),
            Kind::Readable => self.readable(token),
            Kind::Listener => self.accepted(token.slot(), completion),
            Kind::Source => self.source_readable(SourceId(token.slot()), completion.result),
            Kind::Waker => self.woken(completion.has_more),
            Kind::Alarm => self.alarm_rang(completion.has_more),
            // What it was for is gone already, or about to go by itself.
            Kind::Cleanup => {}
            Kind::Send => unreachable!("answered above"),
        }
    }

    /// Answers the sends that fell short and keeps all other completions for later, also those
    /// that did not fit the queue: a send that fell short may be the last of them.
    pub(super) fn set_aside(&mut self) {
        loop {
            while let Some(completion) = self.ring.next_completion() {
                match read_label(completion.user_data) {
                    (Kind::Send, send) => self.fell_short(send, completion.result),
                    _ => self.backlog.push_back(completion),
                }
            }
            if !self.fetch_overflow() {
                return;
            }
        }
    }

    /// Has the kernel move completions that did not fit into the queue; says whether it did.
    fn fetch_overflow(&mut self) -> bool {
        if !self.ring.has_overflow() {
            return false;
        }
        self.state.counters.count(Counter::RingOverflows);
        self.state.counters.count(Counter::RingEnters);
        self.ring.enter(0, None).is_ok()
    }

    /// Those sends of the last submission that fell short are known: the arena can be used anew.
    fn renew_arena(&mut self) {
        if self.is_arena_stale && self.sends.is_empty() && self.ring.reset_arena() {
            self.is_arena_stale = false;
        }
    }

    /// Makes sure that the output of a call fits: when the arena is used up within a turn,
    /// what was sent is submitted now, and what came meanwhile is answered later.
    pub(super) fn make_room(&mut self) {
        let mut tries = 0;
        while self.ring.spare().len() < CALL_BYTES {
            self.submit();
            if self.ring.queued() == 0 {
                self.next_submission();
            }
            self.set_aside();
            self.renew_arena();
            tries += 1;
            assert!(tries < SUBMITS_MAX, "the kernel takes no requests from a full queue");
        }
    }

    /// Hands the queue to the kernel. Congestion passes: what was not taken stays queued.
    pub(super) fn submit(&mut self) {
        self.state.counters.count(Counter::RingEnters);
        let _ = self.ring.enter(0, None);
    }

    /// Everything queued was submitted: its sends have their fate, in the queue or to come first.
    fn next_submission(&mut self) {
        std::mem::swap(&mut self.sends, &mut self.submitted_sends);
        self.sends.clear();
        self.submission = following(self.submission);
        self.is_arena_stale = true;
    }

    /// A send out of the arena was not taken whole: its rest waits, in front of what followed.
    /// `send` is its number among those of its submission, which may be the one that is being
    /// filled: a full queue is submitted in the middle of a turn.
    fn fell_short(&mut self, send: Token, result: i32) {
        self.state.counters.count(Counter::SendsShort);
        let is_of_this = send.generation() == self.submission & 1;
        let sends = if is_of_this { &self.sends } else { &self.submitted_sends };
        let Some(&TurnSend { token, slice }) = sends.get(send.slot() as usize) else {
            return self.state.counters.count(Counter::Stale);
        };
        let Some(connection) = self.connections.get_mut(token) else {
            return self.state.counters.count(Counter::Stale);
        };
        let taken = match usize::try_from(result) {
            Ok(taken) => taken,
            Err(_) if is(result, Errno::AGAIN) => 0,
            Err(_) => return self.close(token, broken(errno(result))),
        };
        let Some(bytes) = self.ring.sent_bytes(slice) else {
            // Not seen, and better cut than with a gap.
            return self.close(token, CloseCause::SocketError);
        };
        let rest = bytes[taken..].to_vec();
        // They were counted as gone when they were queued.
        self.state.counters.add(Counter::BytesOut, (rest.len() as u64).wrapping_neg());
        connection.flow.came_back(rest.len());
        connection.flow.is_full(self.state.clock.now().at, &self.state.limits);
        if let Tail::None = connection.tail {
            connection.tail = Tail::Waiting(Box::default());
        }
        if let Tail::Waiting(output) = &mut connection.tail {
            output.push_front(Piece::Bytes(rest, 0));
            connection.conversation.output_waits();
            self.state.unfinished.push(ConnectionId(token));
        }
    }

    fn received(&mut self, token: Token, mut completion: StreamCompletion) {
        let lease = completion.received.take();
        self.state.counters.count(Counter::Receives);
        match self.connections.get_mut(token) {
            None => self.state.counters.count(Counter::Stale),
            Some(connection) => {
                if !completion.has_more {
                    connection.receiving = Receiving::Idle;
                }
                match (&lease, completion.result) {
                    (Some(lease), 1..) => self.take_input(token, lease, completion.has_more),
                    (_, 0) => self.input_ended(token),
                    (_, result) => self.receive_failed(token, result),
                }
            }
        }
        if let Some(lease) = lease {
            self.ring.give_back(lease);
        }
    }

    fn take_input(&mut self, token: Token, lease: &Received, has_more: bool) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        let bytes = lease.len_bytes();
        self.state.counters.add(Counter::BytesIn, bytes as u64);
        let is_many = connection.shots == Shots::Many;
        if connection.has_received && is_many && !has_more {
            self.state.counters.count(Counter::Rearms);
        }
        connection.has_received = true;
        if let Tail::Lingering(linger) = &mut connection.tail {
            if linger.drops(bytes) {
                return self.receive_as_wanted(token);
            }
            return self.close(token, CloseCause::Session);
        }
        self.play(token, None, Some(lease));
    }

    fn input_ended(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        if connection.tail.is_lingering() {
            return self.close(token, CloseCause::Session);
        }
        connection.conversation.input_ended();
        self.play(token, None, None);
    }

    fn receive_failed(&mut self, token: Token, result: i32) {
        if is(result, Errno::NOBUFS) {
            // All buffers go back before the next submission, so it is armed with a full pool.
            self.state.counters.count(Counter::BufferStarvations);
        } else if !is(result, Errno::CANCELED) && !is(result, Errno::INTR) {
            return self.close(token, broken(errno(result)));
        }
        self.state.counters.count(Counter::Rearms);
        self.receive_as_wanted(token);
    }

    /// Calls a session that reads its socket itself.
    fn readable(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else {
            return self.state.counters.count(Counter::Stale);
        };
        connection.receiving = Receiving::Idle;
        if !connection.conversation.wants_input() || !connection.conversation.leaves_input() {
            return self.receive_as_wanted(token);
        }
        self.play(token, Some(Occasion::Readable), None);
        let Some(connection) = self.connections.get_mut(token) else { return };
        let seen = connection.conversation.take_seen();
        seen.count(&self.state.counters);
        match seen {
            Seen::Unseen | Seen::Bytes(_) | Seen::Nothing => {}
            Seen::Ended => self.input_ended(token),
            Seen::Broken(errno) => self.close(token, broken(errno)),
        }
    }

    fn alarm_rang(&mut self, has_more: bool) {
        self.state.alarm.rang();
        if !has_more {
            self.watch_alarm();
        }
    }

    fn woken(&mut self, has_more: bool) {
        self.waker.acknowledge_edge();
        self.is_woken = true;
        if !has_more {
            self.watch_waker();
        }
    }
}

/// Room that the queues between two turns keep.
const QUEUE_KEPT: usize = 256;

/// Arena that one call of a connection may need: what it sends, and room to make what waits.
const CALL_BYTES: usize = 2 * Actions::ROOM_MIN;

/// Number of the submission behind `submission`. Even and odd take turns, also where the count
/// begins anew, and 0 is unused.
fn following(submission: u32) -> u32 {
    submission.checked_add(1).unwrap_or(2)
}

/// Whether an enter that failed lost nothing: a signal came, the timeout is over, there is no
/// memory for requests just now, or completions have to be taken first.
fn has_passed(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::INTR | Errno::TIME | Errno::AGAIN | Errno::BUSY))
}

/// What the first completion of a batch may be delayed by.
const DELAY: Duration = Duration::from_micros(20);
/// More in a batch save nothing: beyond 20 the kernel hands them over in pieces anyway.
const COMPLETIONS_MAX: u32 = 16;
/// Turns at a pace before it is relied upon.
const STEADY_TURNS: u32 = 64;
/// Turns without waiting for several, after the first time that fewer came.
const REST_TURNS: u32 = 1024;
/// Longest such rest.
const REST_TURNS_MAX: u32 = 1 << 20;
/// The average forgets: one part in so many is new.
const AVERAGE_TURNS: u64 = 16;

/// Pauses beyond this say nothing more, and the average leaves them behind sooner.
const GAP_NS_MAX: u64 = 1_000_000;

/// The recent pace of a loop, and what follows from it.
///
/// For how many completions an enter waits. Waiting for one wakes the thread for each that comes alone; waiting
/// for several saves wake-ups and delays the first of them. So the loop waits for as many as its recent pace
/// brings within [`DELAY`], with a timeout in case the load falls just then. Running into that timeout is dear (a
/// timer costs some 30 µs of CPU on a virtual machine), so one that was run into switches the waiting off for a
/// while, and for longer each time in a row.
///
/// ```text
///  gap ≥ DELAY / 2, or resting: wait for 1, no timer
///  steady for STEADY_TURNS:     wait for DELAY / gap, at most COMPLETIONS_MAX, until 4 × DELAY
///  fell short:                  rest for REST_TURNS, twice as long after each further time
/// ```
#[derive(Debug)]
pub(super) struct Pace {
    gap_ns: u64,
    steady_turns: u32,
    resting_turns: u32,
    next_rest_turns: u32,
    target: u32,
    last: Moment,
}

impl Pace {
    pub(super) fn new(now: Moment) -> Self {
        Self {
            gap_ns: GAP_NS_MAX,
            steady_turns: 0,
            resting_turns: 0,
            next_rest_turns: REST_TURNS,
            target: 1,
            last: now,
        }
    }

    /// How many completions to wait for now, and how long at most when it is more than one.
    pub(super) fn target(&mut self) -> (u32, Option<Duration>) {
        let delay_ns = DELAY.as_nanos() as u64;
        let within = u32::try_from(delay_ns / self.gap_ns.max(1)).unwrap_or(u32::MAX);
        let may_wait = self.steady_turns >= STEADY_TURNS && self.resting_turns == 0;
        self.target = if may_wait { within.clamp(1, COMPLETIONS_MAX) } else { 1 };
        (self.target, (self.target > 1).then_some(4 * DELAY))
    }

    /// The next enter will not wait: nothing can be learned from what it brings.
    pub(super) fn no_target(&mut self) {
        self.target = 0;
    }

    /// Learns from a turn that began at `now` with so many completions.
    pub(super) fn learn(&mut self, now: Moment, completions: u32) {
        let elapsed_ns = (now - self.last).as_nanos() as u64;
        self.last = now;
        let gap_ns = (elapsed_ns / u64::from(completions.max(1))).min(GAP_NS_MAX);
        self.gap_ns = self.gap_ns - self.gap_ns / AVERAGE_TURNS + gap_ns / AVERAGE_TURNS;
        self.resting_turns = self.resting_turns.saturating_sub(1);
        if self.target > 1 && completions < self.target {
            self.resting_turns = self.next_rest_turns;
            self.next_rest_turns = (self.next_rest_turns * 2).min(REST_TURNS_MAX);
            self.steady_turns = 0;
        } else if 2 * self.gap_ns > DELAY.as_nanos() as u64 {
            self.steady_turns = 0;
        } else {
            self.steady_turns = self.steady_turns.saturating_add(1);
            if self.steady_turns > self.next_rest_turns {
                self.next_rest_turns = REST_TURNS;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_enter_passes_or_ends_the_loop() {
        let has_passed = |errno: Errno| has_passed(&io::Error::from(errno));
        assert!([Errno::INTR, Errno::TIME, Errno::AGAIN, Errno::BUSY].into_iter().all(has_passed));
        // Another thread's ring, a closed one, completions that were dropped for lack of memory.
        assert!(![Errno::EXIST, Errno::BADF, Errno::BADR].into_iter().any(has_passed));
    }

    #[test]
    fn submissions_take_turns_across_the_wrap() {
        for submission in [1, 2, u32::MAX - 1, u32::MAX] {
            let next = following(submission);
            assert_ne!(next & 1, submission & 1, "{submission}");
            assert_ne!(next, 0);
        }
    }

    fn run(pace: &mut Pace, turns: u32, gap: Duration, completions: impl Fn(u32) -> u32) -> u32 {
        let mut waits = 0;
        for _ in 0..turns {
            let (target, timeout) = pace.target();
            assert_eq!(timeout.is_some(), target > 1);
            waits += u32::from(target > 1);
            let came = completions(target);
            pace.learn(pace.last + gap * came.max(1), came);
        }
        waits
    }

    #[test]
    fn a_steady_pace_is_waited_for_and_a_slow_one_is_not() {
        let mut pace = Pace::new(Moment::default());
        run(&mut pace, 500, Duration::from_micros(2), |target| target);
        assert!((8..=10).contains(&pace.target().0), "{pace:?}");
        run(&mut pace, 500, Duration::from_micros(100), |target| target);
        assert_eq!(pace.target(), (1, None));
    }

    #[test]
    fn the_first_load_after_a_pause_is_not_waited_for() {
        let mut pace = Pace::new(Moment::default());
        assert_eq!(pace.target(), (1, None));
        pace.learn(Moment::from_nanos(10_000_000_000), 1);
        assert_eq!(pace.target(), (1, None));
    }

    #[test]
    fn falling_short_costs_one_timer_in_a_long_time() {
        let mut pace = Pace::new(Moment::default());
        let turns = 100_000;
        let waits = run(&mut pace, turns, Duration::from_micros(1), |_| 1);
        assert!(waits <= 10, "{waits} timers in {turns} turns");
    }
}
