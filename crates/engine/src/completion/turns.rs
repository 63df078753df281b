//! A turn of the completion loop: one enter, the completions in their order, and the rest.

use std::os::fd::AsFd;
use std::time::Duration;

use pollux_poller::Token;
use pollux_sys::ring::{Received, Shots, StreamCompletion};
use rustix::io::Errno;

use super::connection::{Connection, Receiving};
use super::slots::{self, Kind};
use super::{CompletionLoop, SUBMITS_MAX, TurnSend};
use crate::conversation::Occasion;
use crate::ending::{Due, Tail};
use crate::output::{Piece, broken};
use crate::pipe::Seen;
use crate::session::refused;
use crate::sources::SourceId;
use crate::{Actions, CloseCause, ConnectionId, Counter, Errand, Moment, Session};

impl<S: Session> CompletionLoop<S> {
    /// One turn: waits at most `timeout` for something to do, and does it. Says whether a
    /// waker ended the wait.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub(crate) fn turn(&mut self, timeout: Option<Duration>) -> std::io::Result<bool> {
        self.is_woken = false;
        self.run_errands();
        // What came since stands in front of the sends of this submission.
        self.set_aside();
        let began = self.clock.begin_wait(&self.counters);
        let timeout = self.patience(timeout, began);
        self.enter(timeout, began)?;
        if std::mem::take(&mut self.is_mixed)
            || !self.backlog.is_empty()
            || self.ring.has_overflow()
        {
            self.set_aside();
        }
        self.counters.count(Counter::Turns);
        let now = self.clock.begin_turn(&self.counters);
        S::begin_turn(&mut self.shared, now);
        let unfinished = std::mem::take(&mut self.unfinished);
        let before = self.counters.value(Counter::Completions);
        self.complete();
        let completions = self.counters.value(Counter::Completions) - before;
        self.pace.learn(now.at, completions as u32);
        self.proceed(unfinished);
        self.fire_deadlines();
        self.run_errands();
        self.wake_sessions();
        self.accept();
        S::end_turn(&mut self.shared);
        Ok(self.is_woken)
    }

    /// How long this turn may sleep from `began` on, when the caller allows `at_most`.
    fn patience(&mut self, at_most: Option<Duration>, began: Moment) -> Option<Duration> {
        let is_busy = !self.unfinished.is_empty()
            || !self.wakes.is_empty()
            || !self.backlog.is_empty()
            || self.has_arrivals();
        if is_busy {
            return Some(Duration::ZERO);
        }
        let deadline = self.timers.next_deadline().unwrap_or(Moment::NEVER);
        let alarm = deadline.min(self.admission.resumes_at()).min(S::errand_at(&self.shared));
        let timeout = self.alarm.end_wait_at(alarm, began);
        timeout.into_iter().chain(at_most).min()
    }

    /// Submits everything and waits, spins, or only looks.
    fn enter(&mut self, timeout: Option<Duration>, began: Moment) -> std::io::Result<()> {
        if timeout == Some(Duration::ZERO) {
            self.look()?;
        } else if self.limits.busy_poll {
            self.spin(timeout, began)?;
        } else {
            self.wait(timeout)?;
        }
        if self.ring.queued() == 0 {
            self.is_closing = false;
            self.next_submission();
        }
        Ok(())
    }

    /// Looks again and again; the shared date is left alone meanwhile.
    fn spin(&mut self, timeout: Option<Duration>, began: Moment) -> std::io::Result<()> {
        let end = timeout.map_or(Moment::NEVER, |timeout| began + timeout);
        loop {
            self.look()?;
            if self.ring.has_completions() || self.clock.spin() >= end {
                return Ok(());
            }
            self.counters.count(Counter::BusySpins);
        }
    }

    /// No system call, unless something is to be submitted or the kernel has left work to this
    /// thread; which of the two shows in memory that is shared with it.
    #[inline]
    fn look(&mut self) -> std::io::Result<()> {
        self.pace.no_wish();
        match self.ring.look() {
            Ok(false) => Ok(()),
            outcome => self.entered(outcome.map(drop)),
        }
    }

    /// One system call. No timer is armed when nothing is waited for.
    fn wait(&mut self, timeout: Option<Duration>) -> std::io::Result<()> {
        let (wish, at_most) = self.pace.wish();
        let timeout = timeout.into_iter().chain(at_most).min();
        let outcome = self.ring.enter(wish, timeout).map(drop);
        self.entered(outcome)
    }

    fn entered(&self, outcome: std::io::Result<()>) -> std::io::Result<()> {
        self.counters.count(Counter::RingEnters);
        outcome.or_else(|error| if has_passed(&error) { Ok(()) } else { Err(error) })
    }

    /// Answers all completions that are there.
    fn complete(&mut self) {
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
        self.counters.count(Counter::Completions);
        let (kind, token) = slots::read(completion.user_data);
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
            Kind::Errand => {}
            Kind::Send => unreachable!("answered above"),
        }
    }

    /// Answers the sends that fell short and keeps all other completions for later, also those
    /// that did not fit the queue: a send that fell short may be the last of them.
    fn set_aside(&mut self) {
        loop {
            while let Some(completion) = self.ring.next_completion() {
                match slots::read(completion.user_data) {
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
        self.counters.count(Counter::RingOverflows);
        self.counters.count(Counter::RingEnters);
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
        self.counters.count(Counter::RingEnters);
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
        self.counters.count(Counter::SendsShort);
        let is_of_this = send.generation() == self.submission & 1;
        let sends = if is_of_this { &self.sends } else { &self.submitted_sends };
        let Some(&TurnSend { token, slice }) = sends.get(send.slot() as usize) else {
            return self.counters.count(Counter::Stale);
        };
        let Some(connection) = self.connections.get_mut(token) else {
            return self.counters.count(Counter::Stale);
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
        self.counters.add(Counter::BytesOut, (rest.len() as u64).wrapping_neg());
        connection.flow.came_back(rest.len());
        connection.flow.is_full(self.clock.now().at, &self.limits);
        if let Tail::None = connection.tail {
            connection.tail = Tail::Waiting(Box::default());
        }
        if let Tail::Waiting(output) = &mut connection.tail {
            output.push_front(Piece::Bytes(rest, 0));
            connection.conversation.output_waits();
            self.unfinished.push(ConnectionId(token));
        }
    }

    fn received(&mut self, token: Token, mut completion: StreamCompletion) {
        let lease = completion.received.take();
        self.counters.count(Counter::Receives);
        match self.connections.get_mut(token) {
            None => self.counters.count(Counter::Stale),
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
        self.counters.add(Counter::BytesIn, bytes as u64);
        let is_many = connection.shots == Shots::Many;
        if connection.has_received && is_many && !has_more {
            self.counters.count(Counter::Rearms);
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
        connection.conversation.peer_ended();
        self.play(token, None, None);
    }

    fn receive_failed(&mut self, token: Token, result: i32) {
        if is(result, Errno::NOBUFS) {
            // All buffers go back before the next submission, so it is armed with a full pool.
            self.counters.count(Counter::BufferStarvations);
        } else if !is(result, Errno::CANCELED) && !is(result, Errno::INTR) {
            return self.close(token, broken(errno(result)));
        }
        self.counters.count(Counter::Rearms);
        self.receive_as_wanted(token);
    }

    /// Calls a session that reads its socket itself.
    fn readable(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else {
            return self.counters.count(Counter::Stale);
        };
        connection.receiving = Receiving::Idle;
        if !connection.conversation.wants_input() || !connection.conversation.leaves_input() {
            return self.receive_as_wanted(token);
        }
        self.play(token, Some(Occasion::Readable), None);
        let Some(connection) = self.connections.get_mut(token) else { return };
        let seen = connection.conversation.take_seen();
        seen.count(&self.counters);
        match seen {
            Seen::Unseen | Seen::Bytes(_) | Seen::Nothing => {}
            Seen::Ended => self.input_ended(token),
            Seen::Broken(errno) => self.close(token, broken(errno)),
        }
    }

    fn alarm_rang(&mut self, has_more: bool) {
        self.alarm.rang();
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

    /// Connections that had not finished in the last turn.
    fn proceed(&mut self, mut ids: Vec<ConnectionId>) {
        for ConnectionId(token) in ids.drain(..) {
            let Some(connection) = self.connections.get_mut(token) else { continue };
            if connection.tail.is_waiting() {
                self.flush(token);
            } else {
                self.play(token, None, None);
            }
        }
        if self.unfinished.is_empty() {
            self.unfinished = ids;
        }
    }

    fn fire_deadlines(&mut self) {
        let mut fired = std::mem::take(&mut self.fired);
        self.timers.expire(self.clock.now().at, &mut fired);
        for slot in fired.drain(..) {
            self.counters.count(Counter::DeadlinesFired);
            if let Some(token) = self.connections.token_of(slot) {
                self.fire(token);
            }
        }
        self.fired = fired;
    }

    fn fire(&mut self, token: Token) {
        let now = self.clock.now().at;
        let Some(connection) = self.connections.get_mut(token) else { return };
        let Connection { socket, conversation, tail, flow, .. } = connection;
        let deadline = conversation.deadline();
        match tail.due(flow, socket.as_fd(), deadline, now, &self.limits, &self.counters) {
            Due::Close(cause) => self.close(token, cause),
            Due::Later(deadline) => {
                self.timers.set(token.slot(), deadline);
            }
            // The request that waits for room has the output, or reports it.
            Due::Flush => {
                self.timers.set(token.slot(), tail.deadline(flow, deadline));
            }
            Due::Session => {
                connection.conversation.deadline_fired();
                self.play(token, Some(Occasion::Deadline), None);
            }
        }
    }

    /// Does what the sessions left to be done.
    fn run_errands(&mut self) {
        while let Some(errand) = S::errand(&mut self.shared) {
            match errand {
                Errand::Wake(id) => self.wakes.push(id),
                Errand::Connect { to, session, deadline } => {
                    if let Err((session, error)) = self.connect(&to, session, deadline) {
                        refused(&mut self.shared, session, error);
                    }
                }
                // No session of such a loop shares its connection.
                Errand::TakeOver { session, .. } => {
                    session.closed(&mut self.shared, CloseCause::Aborted);
                }
                Errand::TakeBack(_) => {}
            }
        }
    }

    /// Calls the sessions that others woke; those that are woken now come in the next turn.
    fn wake_sessions(&mut self) {
        if self.wakes.is_empty() {
            return;
        }
        let mut woken = std::mem::take(&mut self.wakes);
        for ConnectionId(token) in woken.drain(..) {
            self.counters.count(Counter::SessionWakes);
            self.play(token, Some(Occasion::Wake), None);
        }
        if self.wakes.is_empty() {
            self.wakes = woken;
        }
    }
}

/// Room that the queues between two turns keep.
const QUEUE_KEPT: usize = 256;

/// Arena that one call of a connection may need: what it sends, and room to make what waits.
const CALL_BYTES: usize = 2 * Actions::ROOM_MIN;

/// Number of the submission behind `submission`. Even and odd take turns, also where the count
/// begins anew, and 0 is nobody's.
fn following(submission: u32) -> u32 {
    submission.checked_add(1).unwrap_or(2)
}

/// Whether an enter that failed lost nothing: a signal came, the timeout is over, there is no
/// memory for requests just now, or completions have to be taken first.
fn has_passed(error: &std::io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::INTR | Errno::TIME | Errno::AGAIN | Errno::BUSY))
}

pub(super) fn is(result: i32, errno: Errno) -> bool {
    result == -errno.raw_os_error()
}

pub(super) fn errno(result: i32) -> Errno {
    Errno::from_raw_os_error(-result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_refused_enter_means_to_the_loop() {
        let has_passed = |errno: Errno| has_passed(&std::io::Error::from(errno));
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
}
