//! A turn of the completion loop: one enter, the completions in their order, and the rest.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use pollux_poller::Token;
use pollux_sys::ring::{Received, Shots, StreamCompletion};
use rustix::io::Errno;

use super::connection::{Connection, Receiving};
use super::sending::TurnSend;
use super::slots::{self, Kind};
use super::{CompletionLoop, SUBMITS_MAX, shots_of};
use crate::actions::Sharing;
use crate::connecting::Begun;
use crate::conversation::{Conversation, Occasion, Progress};
use crate::ending::Tail;
use crate::event_loop::LoopError;
use crate::output::{Output, Piece, UnderWay, broken};
use crate::pipe::Seen;
use crate::sources::SourceId;
use crate::turn::{LoopState, Parts, Turning};
use crate::{
    Actions, CloseCause, ConnectTo, ConnectionId, Counter, ListenAddress, Moment, Session,
};

impl<S: Session> Turning<S> for CompletionLoop<S> {
    #[inline]
    fn state(&mut self) -> &mut LoopState<S> {
        &mut self.state
    }

    fn parts(&mut self, token: Token) -> Option<Parts<'_, S>> {
        let connection = self.connections.get_mut(token)?;
        let Connection { socket, conversation, tail, flow, .. } = connection;
        Some(Parts {
            socket: OwnedFd::as_fd(socket),
            conversation,
            tail,
            flow,
            state: &mut self.state,
        })
    }

    fn token_of(&self, slot: u32) -> Option<Token> {
        self.connections.token_of(slot)
    }

    fn may_call(&mut self, token: Token) -> bool {
        self.connections.get_mut(token).is_some()
    }

    fn may_act(&mut self, token: Token) -> bool {
        self.may_call(token)
    }

    /// What came since the last wait stands in front of the sends of this submission.
    fn prepare(&mut self) -> bool {
        self.is_woken = false;
        self.set_aside();
        !self.backlog.is_empty() || self.has_arrivals()
    }

    /// Submits everything, and waits, spins, or only looks.
    fn wait(&mut self, timeout: Option<Duration>, began: Moment) -> Result<(), LoopError> {
        self.enter(timeout, began)
            .map_err(|cause| LoopError::System { call: "io_uring_enter", cause })?;
        if std::mem::take(&mut self.is_mixed)
            || !self.backlog.is_empty()
            || self.ring.has_overflow()
        {
            self.set_aside();
        }
        Ok(())
    }

    fn serve(&mut self) {
        let before = self.state.counters.value(Counter::Completions);
        self.complete();
        let completions = self.state.counters.value(Counter::Completions) - before;
        self.pace.learn(self.state.clock.now().at, completions as u32);
    }

    fn proceed(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        if connection.tail.is_waiting() {
            self.flush(token);
        } else {
            self.play(token, None, None);
        }
    }

    fn call(&mut self, token: Token, occasion: Occasion) {
        self.play(token, Some(occasion), None);
    }

    fn flush(&mut self, token: Token) {
        self.send_waiting(token);
    }

    fn close(&mut self, token: Token, cause: CloseCause) {
        self.close_connection(token, cause);
    }

    fn accept(&mut self) {
        self.accept_share();
    }

    fn is_woken(&self) -> bool {
        self.is_woken
    }

    fn admit(&mut self, socket: OwnedFd) {
        let shots = shots_of(&socket);
        self.admit_with(socket, shots);
    }

    /// `connect(2)` was called, and a poll asks for room when that is in progress; `connecting.rs` says
    /// why not by a request of its own.
    fn begin_connect(
        &mut self,
        Begun { socket, is_in_progress }: Begun,
        to: &ConnectTo,
        conversation: Conversation<S>,
    ) -> ConnectionId {
        let shots = match to.peer {
            ListenAddress::Tcp(_) => Shots::Many,
            ListenAddress::Unix(_) => Shots::One,
        };
        let mut output = Box::new(Output::connecting(is_in_progress));
        output.under_way = is_in_progress.then_some(UnderWay::Poll);
        let id = self.insert(socket, shots, |_, _, io| {
            *io.tail = Tail::Waiting(output);
            (conversation, Ok(Progress::Idle))
        });
        if is_in_progress {
            self.watch_connect(id.0);
        }
        id
    }

    /// No session of such a loop shares its connection.
    fn take_over(&mut self, _: Sharing, session: S, _: Moment) {
        session.closed(&mut self.state.shared, CloseCause::Aborted);
    }

    fn take_back(&mut self, _: Token) {}
}

impl<S: Session> CompletionLoop<S> {
    /// Submits everything and waits, spins, or only looks.
    fn enter(&mut self, timeout: Option<Duration>, began: Moment) -> io::Result<()> {
        if timeout == Some(Duration::ZERO) {
            self.look()?;
        } else if self.state.limits.busy_poll {
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
        self.pace.no_wish();
        match self.ring.look() {
            Ok(false) => Ok(()),
            outcome => self.entered(outcome.map(drop)),
        }
    }

    /// One system call. No timer is armed when nothing is waited for.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let (wish, at_most) = self.pace.wish();
        let timeout = timeout.into_iter().chain(at_most).min();
        let outcome = self.ring.enter(wish, timeout).map(drop);
        self.entered(outcome)
    }

    fn entered(&self, outcome: io::Result<()>) -> io::Result<()> {
        self.state.counters.count(Counter::RingEnters);
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
        self.state.counters.count(Counter::Completions);
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
        connection.conversation.peer_ended();
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
/// begins anew, and 0 is nobody's.
fn following(submission: u32) -> u32 {
    submission.checked_add(1).unwrap_or(2)
}

/// Whether an enter that failed lost nothing: a signal came, the timeout is over, there is no
/// memory for requests just now, or completions have to be taken first.
fn has_passed(error: &io::Error) -> bool {
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
}
