//! One connection of the completion loop: its session's calls, what leaves with them, what is armed for it, its end.
//!
//! | receiving | armed | data | end, error, cancelled | the session takes no input |
//! |---|---|---|---|---|
//! | idle | arm | - | - | stays |
//! | once | - | idle | idle | stays: what comes is kept |
//! | many | - | many (idle when it has its bound, or the kernel ended it) | idle | without a bound, cancel when much is kept: ending |
//! | ending | - | ending | idle | stays |
//! | watching | - | - | idle | stays |
//!
//! A receive of many ends by itself after what [`BOUND`] says where the kernel takes a bound (Linux 6.17): what a
//! session that pauses is sent meanwhile is no more than that, without a cancellation. Elsewhere a connection that is sent
//! much at a time is received from once by once, and only what a receive of many brought until its cancellation is more.
//!
//! *Watching* is a poll for a session that leaves its input in the socket; a receive of many is cancelled
//! when one does so. Before the poll it is called once to look: more lies there as a rule when it has just been sent something, or
//! has taken none for a while. A session that is about to leave input, such as the body behind a head, asks for a small receive
//! in front of it, as a large one would bring the body too.
//!
//! A call's output leaves out of the turn's arena, one request for each connection and turn. What such a request could
//! not send comes back with a completion before anything else of the connection does, so until then the output counts as
//! gone. A second output in the same turn waits for the next one: it could overtake the rest of the first. A large one is
//! sent by a call at once, so that the session is not told to make more than the peer takes.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use pollux_poller::Token;
use pollux_sys::ring::{Bound, QueueFull, Received, Sending, Sent as Slice, Shots};
use rustix::io::Errno;
use rustix::net::sockopt::socket_domain;
use rustix::net::{AddressFamily, Shutdown, shutdown};

use super::requests::{Kind, SUBMITS_MAX, errno, is_errno, label, numbered, read_label};
use super::{CompletionLoop, POLLIN, POLLOUT};
use crate::actions::{Ending, Payload};
use crate::conversation::{ConnectionIo, Conversation, Progress, Sent, SessionCall, Turn};
use crate::flow::Flow;
use crate::output::{Linger, Output, OutputState, PendingOutput, Piece, cause_of, drop_untaken};
use crate::pipe::ReadOutcome;
use crate::{Actions, CloseCause, ConnectionId, Counter, Counters, Limits, Moment, Session};

/// What a receive of many brings at most, where it is bounded, before it is armed again, which a session that pauses does
/// not do.
pub(super) const BOUND: Bound = Bound { each: 128 * 1024, enough: 64 * 1024 };
/// The same of a connection of ours: what it is sent is for a peer that may not read. A proxy pauses it with as much.
const BOUND_OUTGOING: Bound = Bound { each: 64 * 1024, enough: 32 * 1024 };
/// Input kept for a session that takes none, before a receive that has no bound is cancelled.
const KEPT_BYTES_MAX: usize = 64 * 1024;
/// A receive of that many bytes is one of a stream.
const STREAM_BYTES: usize = 16 * 1024;
/// Receives of less after which a connection is one of small messages again.
const STREAM_RECEIVES: u8 = 64;
/// A receive before which the session asked for little: room for a head.
const HEAD_BYTES: u32 = 4096;
/// An output of that many bytes leaves by a call.
const LARGE_BYTES: usize = 32 * 1024;
/// Bytes that an empty socket always takes: the least send buffer that Linux allows is larger
/// (SOCK_MIN_SNDBUF, socket(7)).
const SURE_BYTES: usize = 4096;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Receiving {
    Idle,
    Once,
    Many,
    Ending,
    Watching,
}

pub(super) struct Connection<S> {
    pub(super) socket: OwnedFd,
    pub(super) receiving: Receiving,
    pub(super) has_received: bool,
    pub(super) shots: Shots,
    /// Receives for which the connection still counts as a stream.
    pub(super) stream_receives: u8,
    /// Its session is to look what is in the socket before that is waited for.
    pub(super) looks: bool,
    pub(super) marks: SendMarks,
    pub(super) conversation: Conversation<S>,
    pub(super) output_state: OutputState,
    pub(super) flow: Flow,
}

impl<S> Connection<S> {
    /// Books a receive of `bytes`.
    #[inline]
    pub(super) fn received(&mut self, bytes: usize) {
        let fewer = self.stream_receives.saturating_sub(1);
        self.stream_receives = if bytes >= STREAM_BYTES { STREAM_RECEIVES } else { fewer };
        (self.has_received, self.looks) = (true, true);
    }
}

/// What a connection remembers of its sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct SendMarks {
    /// Number of the submission that its last send rides with; none was made before 1.
    pub(super) submission: u32,
    /// Something was sent, by a request or by a call.
    has_sent: bool,
    /// Its only send so far was so short that every empty socket takes it whole.
    is_sure: bool,
}

/// A send of this turn, by which its rest is found when it falls short.
#[derive(Clone, Copy, Debug)]
pub(super) struct TurnSend {
    pub(super) token: Token,
    pub(super) slice: Slice,
}

/// Arena that one call of a connection may need: what it sends, and room to make what waits.
const CALL_BYTES: usize = 2 * Actions::ROOM_MIN;

/// How a connection receives from its second receive on.
///
/// From Linux 6.17 on a multishot receive of a unix socket misses an end that comes together
/// with data: it takes the socket's word that nothing is left to receive, and is not woken
/// again. Arming anew looks once more.
pub(super) fn shots_of(socket: &OwnedFd) -> Shots {
    match socket_domain(socket) {
        Ok(AddressFamily::UNIX) => Shots::One,
        _ => Shots::Many,
    }
}

impl<S: Session> CompletionLoop<S> {
    pub(super) fn insert(
        &mut self,
        socket: OwnedFd,
        shots: Shots,
        begin: impl FnOnce(
            &mut S::Shared,
            &mut Turn<'_>,
            &mut RingIo<'_>,
        ) -> (Conversation<S>, Result<Progress, CloseCause>),
    ) -> ConnectionId {
        self.make_room();
        let now = self.state.clock.now();
        let token = self.connections.next_token();
        let mut turn = Turn { now, id: ConnectionId(token), wakes: &mut self.state.wakes };
        let mut output_state = OutputState::None;
        let mut flow = Flow::Quiet;
        let mut marks = SendMarks::default();
        let mut io = RingIo {
            sending: self.ring.sending(),
            socket: socket.as_fd(),
            token,
            output_state: &mut output_state,
            flow: &mut flow,
            marks: &mut marks,
            submission: self.submission,
            sends: &mut self.sends,
            counters: &self.state.counters,
            limits: &self.state.limits,
            now: now.at,
        };
        let (conversation, done) = begin(&mut self.state.shared, &mut turn, &mut io);
        self.state.opened(&conversation);
        self.connections.insert(Connection {
            socket,
            receiving: Receiving::Idle,
            has_received: false,
            shots,
            stream_receives: 0,
            looks: true,
            marks,
            conversation,
            output_state,
            flow,
        });
        self.settle(token, done);
        if self.state.is_draining {
            self.call_session(token, Some(SessionCall::Shutdown), None);
        }
        ConnectionId(token)
    }

    /// Calls the session, with bytes that were received if there are any, and carries on as it
    /// requested.
    pub(super) fn call_session(
        &mut self,
        token: Token,
        call: Option<SessionCall>,
        input: Option<&Received>,
    ) {
        self.make_room();
        let Some(connection) = self.connections.get_mut(token) else { return };
        let Connection { socket, conversation, output_state, flow, marks, .. } = connection;
        let now = self.state.clock.now();
        let mut turn = Turn { now, id: ConnectionId(token), wakes: &mut self.state.wakes };
        let (input, sending) = match input {
            Some(received) => self.ring.bytes_and_sending(received),
            None => (&[][..], self.ring.sending()),
        };
        let mut io = RingIo {
            sending,
            socket: socket.as_fd(),
            token,
            output_state,
            flow,
            marks,
            submission: self.submission,
            sends: &mut self.sends,
            counters: &self.state.counters,
            limits: &self.state.limits,
            now: now.at,
        };
        let shared = &mut self.state.shared;
        let called = match call {
            Some(call) => conversation.notify(call, shared, &mut turn, &mut io),
            None => Ok(()),
        };
        let done = called.and_then(|()| conversation.pump(shared, &mut turn, &mut io, input));
        self.settle(token, done);
    }

    /// After a call: what the connection waits for from now on.
    fn settle(&mut self, token: Token, done: Result<Progress, CloseCause>) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        match done {
            Err(cause) => return self.close_connection(token, cause),
            Ok(Progress::Unfinished) => self.state.unfinished.push(ConnectionId(token)),
            Ok(Progress::Idle) => {}
        }
        if connection.output_state.is_connecting() {
            if connection.conversation.ending().is_some() {
                return self.close_connection(token, CloseCause::Session);
            }
        } else {
            self.state.note_waiting(&mut connection.conversation);
        }
        if let OutputState::Broken(broken) = &connection.output_state
            && done == Ok(Progress::Idle)
            && !connection.conversation.wants_input()
        {
            let is_over = connection.conversation.ending().is_some();
            let cause = if is_over { CloseCause::Session } else { broken.cause };
            return self.close_connection(token, cause);
        }
        let is_under_way = connection.marks.submission == self.submission;
        match (&mut connection.output_state, connection.conversation.ending()) {
            (OutputState::Waiting(output), _) if !output.is_in_flight() => {
                if output.is_blocked() && !output.is_connecting() {
                    self.watch_room(token);
                } else {
                    // For the send of this turn, or its share of it: the next one continues it.
                    self.state.unfinished.push(ConnectionId(token));
                }
            }
            (OutputState::Waiting(_), _) => {}
            // Its last output may fall short, and then the end comes behind the rest of it.
            (OutputState::None, Some(ending))
                if is_under_way && (ending == Ending::Linger || !connection.marks.is_sure) =>
            {
                self.state.unfinished.push(ConnectionId(token));
            }
            (OutputState::None, Some(ending)) => {
                let has_input_ended = connection.conversation.has_input_ended();
                let is_watched = connection.flow.is_watched();
                if has_input_ended || (ending == Ending::Close && !is_watched) {
                    let cause =
                        if has_input_ended { CloseCause::PeerClosed } else { CloseCause::Session };
                    return self.close_connection(token, cause);
                }
                // The call, not the request: that one always takes a worker thread. ENOTCONN
                // means that the peer is gone: receiving will say so.
                let _ = shutdown(&connection.socket, Shutdown::Write);
                connection.output_state = OutputState::Lingering(Linger::new(
                    self.state.clock.now().at,
                    &self.state.limits,
                ));
            }
            (OutputState::None, None) if connection.conversation.ends_output() => {
                if is_under_way {
                    self.state.unfinished.push(ConnectionId(token));
                } else {
                    let _ = shutdown(&connection.socket, Shutdown::Write);
                    connection.conversation.output_ended();
                }
            }
            _ => {}
        }
        self.receive_as_wanted(token);
        let Some(connection) = self.connections.get_mut(token) else { return };
        let deadline =
            connection.output_state.deadline(&connection.flow, connection.conversation.deadline());
        if self.state.timers.set(token.slot(), deadline) {
            self.state.counters.count(Counter::DeadlinesMoved);
        }
    }

    /// Arms or cancels the receive, as the table at the head of this file says.
    pub(super) fn receive_as_wanted(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        let conversation = &mut connection.conversation;
        let is_lingering =
            connection.output_state.is_lingering() && !conversation.has_input_ended();
        let fd = connection.socket.as_raw_fd();
        let leaves_input = conversation.leaves_input() && !connection.output_state.is_lingering();
        match connection.receiving {
            Receiving::Idle if leaves_input && !conversation.wants_input() => {
                connection.looks = true;
            }
            Receiving::Idle if leaves_input && connection.looks => {
                connection.looks = false;
                self.call_readable(token);
            }
            Receiving::Idle if leaves_input => {
                connection.receiving = Receiving::Watching;
                let watch = label(Kind::Readable, token);
                self.push(|ring| ring.poll(fd, POLLIN, Shots::One, watch));
            }
            Receiving::Idle if conversation.wants_input() && conversation.receives_little() => {
                connection.receiving = Receiving::Once;
                let label = label(Kind::Receive, token);
                self.push(|ring| ring.receive_once(fd, HEAD_BYTES, label));
            }
            Receiving::Idle if is_lingering || conversation.wants_input() => {
                let is_bounded = self.is_bounded;
                // Connections of ours are not ended by their first answer.
                let is_outgoing = conversation.is_outgoing();
                let bound = if is_outgoing { BOUND_OUTGOING } else { BOUND };
                let may_last = connection.has_received || is_bounded && is_outgoing;
                let is_many = may_last
                    && connection.shots == Shots::Many
                    && (is_bounded || connection.stream_receives == 0);
                connection.receiving = if is_many { Receiving::Many } else { Receiving::Once };
                let label = label(Kind::Receive, token);
                self.push(|ring| {
                    if is_many && is_bounded {
                        ring.receive_up_to(fd, bound, label)
                    } else {
                        ring.receive(fd, if is_many { Shots::Many } else { Shots::One }, label)
                    }
                });
            }
            Receiving::Many
                if leaves_input
                    || !self.is_bounded
                        && !is_lingering
                        && conversation.kept_bytes() > KEPT_BYTES_MAX =>
            {
                connection.receiving = Receiving::Ending;
                let target = label(Kind::Receive, token);
                self.push(|ring| ring.cancel(target, numbered(Kind::Cleanup, 0)));
            }
            _ => {}
        }
    }

    /// Calls a session that reads its socket itself.
    pub(super) fn call_readable(&mut self, token: Token) {
        self.call_session(token, Some(SessionCall::Readable), None);
        let Some(connection) = self.connections.get_mut(token) else { return };
        let seen = connection.conversation.take_seen();
        seen.count(&self.state.counters);
        match seen {
            ReadOutcome::Unseen | ReadOutcome::Bytes(_) | ReadOutcome::Nothing => {}
            ReadOutcome::Ended => self.input_ended(token),
            ReadOutcome::Broken(errno) => self.close_connection(token, cause_of(errno)),
        }
    }

    /// The peer will send no more.
    pub(super) fn input_ended(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        if connection.output_state.is_lingering() {
            return self.close_connection(token, CloseCause::Session);
        }
        if let OutputState::Broken(broken) = &connection.output_state {
            let cause = broken.cause;
            return self.close_connection(token, cause);
        }
        connection.conversation.input_ended();
        self.call_session(token, None, None);
    }

    /// Output waits for room in a socket that was full.
    pub(super) fn watch_room(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        let fd = connection.socket.as_raw_fd();
        let watch = label(Kind::Writable, token);
        self.push(|ring| ring.poll(fd, POLLOUT, Shots::One, watch));
        self.set_under_way(token, PendingOutput::Poll);
    }

    /// Nothing is watched when the session has ended the connection already.
    pub(super) fn watch_connect(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        let fd = connection.socket.as_raw_fd();
        self.push(|ring| ring.poll(fd, POLLOUT, Shots::One, label(Kind::Writable, token)));
    }

    /// A request of the output is under way.
    pub(super) fn set_under_way(&mut self, token: Token, under_way: PendingOutput) {
        if let Some(connection) = self.connections.get_mut(token)
            && let OutputState::Waiting(output) = &mut connection.output_state
        {
            output.under_way = Some(under_way);
        }
    }

    /// Makes sure that the output of a call fits: when the arena is used up within a turn,
    /// what was sent is submitted now, and what came meanwhile is answered later.
    fn make_room(&mut self) {
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

    /// A send out of the arena was not taken whole: its rest waits, in front of what followed.
    /// `send` is its number among those of its submission, which may be the one that is being
    /// filled: a full queue is submitted in the middle of a turn.
    ///
    /// EAGAIN says that the socket was full. As it is tried once and never waits (MSG_DONTWAIT), it is neither interrupted nor
    /// cancelled: every other errno is the socket's own.
    pub(super) fn fell_short(&mut self, send: Token, result: i32) {
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
            Err(_) if is_errno(result, Errno::AGAIN) => 0,
            Err(_) => return self.send_failed(token, cause_of(errno(result))),
        };
        let Some(bytes) = self.ring.sent_bytes(slice) else {
            // Not seen, and better cut than with a gap.
            return self.close_connection(token, CloseCause::SocketError);
        };
        let rest = bytes[taken..].to_vec();
        // They were counted as gone when they were queued.
        self.state.counters.add(Counter::BytesOut, (rest.len() as u64).wrapping_neg());
        connection.flow.came_back(rest.len());
        connection.flow.is_full(self.state.clock.now().at, &self.state.limits);
        if let OutputState::None = connection.output_state {
            connection.output_state = OutputState::Waiting(Box::default());
        }
        if let OutputState::Waiting(output) = &mut connection.output_state {
            output.push_front(Piece::Bytes(rest, 0));
            connection.conversation.output_waits();
            self.state.note_waiting(&mut connection.conversation);
            self.state.unfinished.push(ConnectionId(token));
        }
    }

    /// The peer takes nothing any more: closes, unless the session is to be shown first what has come.
    pub(super) fn send_failed(&mut self, token: Token, cause: CloseCause) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        if cause != CloseCause::PeerReset || !connection.conversation.reads_on() {
            return self.close_connection(token, cause);
        }
        let now = self.state.clock.now().at;
        let limits = &self.state.limits;
        connection.output_state.break_off(0, cause, now, limits);
        connection.conversation.output_waits();
        self.state.unfinished.push(ConnectionId(token));
    }

    pub(super) fn close_connection(&mut self, token: Token, cause: CloseCause) {
        let Some(mut connection) = self.connections.remove(token) else { return };
        self.state.closed(token, &connection.conversation);
        connection.conversation.output_lost(&connection.output_state);
        if cause.drops_untaken(connection.output_state.is_lingering()) {
            drop_untaken(connection.socket.as_fd());
        }
        if connection.receiving != Receiving::Idle {
            // Armed, it would keep the socket open, and the peer would see no end.
            let is_watching = connection.receiving == Receiving::Watching;
            let kind = if is_watching { Kind::Readable } else { Kind::Receive };
            let target = label(kind, token);
            self.push(|ring| ring.cancel(target, numbered(Kind::Cleanup, 0)));
        }
        if let OutputState::Waiting(output) = &mut connection.output_state {
            self.abandon(token, output);
        }
        self.close_fd(connection.socket);
        self.state.admission.freed();
        self.state.counters.count_close(cause);
        connection.conversation.closed(&mut self.state.shared, cause);
    }

    /// Lets go of output that will not be taken: what is under way is cancelled.
    fn abandon(&mut self, token: Token, output: &mut Output) {
        match output.under_way.take() {
            Some(PendingOutput::Send { request, .. }) => {
                self.push(|ring| ring.cancel_owned(request, numbered(Kind::Cleanup, 0)));
            }
            Some(PendingOutput::Poll) => {
                let watch = label(Kind::Writable, token);
                self.push(|ring| ring.cancel(watch, numbered(Kind::Cleanup, 0)));
            }
            None => {}
        }
    }

    /// Closes a descriptor behind the requests that were queued for it.
    pub(super) fn close_fd(&mut self, fd: OwnedFd) {
        self.is_closing = true;
        let mut waiting = Some(fd);
        self.push(|ring| {
            let Some(fd) = waiting.take() else { return Ok(()) };
            ring.close(fd, numbered(Kind::Cleanup, 0)).map_err(|(full, fd)| {
                waiting = Some(fd);
                full
            })
        });
    }
}

/// One connection's socket for the time of one call.
pub(super) struct RingIo<'a> {
    sending: Sending<'a>,
    socket: BorrowedFd<'a>,
    token: Token,
    pub(super) output_state: &'a mut OutputState,
    flow: &'a mut Flow,
    marks: &'a mut SendMarks,
    submission: u32,
    sends: &'a mut Vec<TurnSend>,
    counters: &'a Counters,
    limits: &'a Limits,
    now: Moment,
}

impl ConnectionIo for RingIo<'_> {
    fn parts(&mut self) -> (&mut [u8], Option<BorrowedFd<'_>>) {
        // The rest is for the others: one call's output is bounded by this alone.
        (&mut self.sending.spare()[..Actions::ROOM_MIN], Some(self.socket))
    }

    fn waiting_bytes(&self) -> u64 {
        self.output_state.waiting_bytes()
    }

    fn keep_reading(&mut self, bytes: u64, cause: CloseCause) -> Result<(), CloseCause> {
        self.output_state.break_off(bytes, cause, self.now, self.limits);
        Ok(())
    }

    fn send(&mut self, len: usize, payload: Option<Payload>) -> Result<Sent, CloseCause> {
        if let OutputState::Broken(broken) = self.output_state {
            broken.lost_bytes += len as u64;
            return Ok(Sent::Waits);
        }
        if matches!(self.output_state, OutputState::None)
            && (self.marks.submission == self.submission)
        {
            *self.output_state = OutputState::Waiting(Box::default());
        }
        if let OutputState::Waiting(output) = self.output_state {
            output.push_bytes(&self.sending.spare()[..len])?;
            payload.into_iter().for_each(|payload| output.push_payload(payload));
            return Ok(Sent::Waits);
        }
        let Some(payload) = payload else {
            if len >= LARGE_BYTES {
                return self.send_by_call(len);
            }
            if len > 0 {
                self.send_spare(len)?;
            }
            return Ok(Sent::Gone);
        };
        // By calls, the head too: as a request it would leave alone, in a segment of its own, and the file
        // a turn later.
        self.marks.has_sent = true;
        let Self { sending, socket, flow, counters, limits, now, .. } = self;
        let head = &sending.spare()[..len];
        let (output, sent) =
            Output::begin_with_payload(head, payload, *socket, counters, flow, *now, limits);
        if output.is_empty() {
            return sent.map(|()| Sent::Gone);
        }
        *self.output_state = OutputState::Waiting(Box::new(output));
        sent.map(|()| Sent::Waits)
    }
}

impl RingIo<'_> {
    /// Sends at once: a large output that leaves as a request is read again when the turn ends, out of a cache that the
    /// outputs of other connections went through since, and one that falls short is copied.
    fn send_by_call(&mut self, len: usize) -> Result<Sent, CloseCause> {
        self.marks.has_sent = true;
        let Self { sending, socket, flow, counters, limits, now, .. } = self;
        let bytes = &sending.spare()[..len];
        let Some(output) = Output::begin(bytes, *socket, counters, flow, *now, limits)? else {
            return Ok(Sent::Gone);
        };
        *self.output_state = OutputState::Waiting(Box::new(output));
        Ok(Sent::Waits)
    }

    fn send_spare(&mut self, len: usize) -> Result<(), CloseCause> {
        let number = Token::new(self.sends.len() as u32, self.submission & 1);
        let label = label(Kind::Send, number);
        let fd = self.socket.as_raw_fd();
        let slice = match self.sending.send_spare(fd, len, label) {
            Ok(slice) => slice,
            Err(QueueFull) => {
                // Congestion of the kernel passes; a queue that stays full is an error of ours.
                let _ = self.sending.submit();
                self.counters.count(Counter::RingEnters);
                let again = self.sending.send_spare(fd, len, label);
                again.map_err(|QueueFull| CloseCause::SocketError)?
            }
        };
        self.sends.push(TurnSend { token: self.token, slice });
        let is_sure = !self.marks.has_sent && len <= SURE_BYTES;
        *self.marks = SendMarks { submission: self.submission, has_sent: true, is_sure };
        self.counters.count(Counter::Sends);
        self.counters.add(Counter::BytesOut, len as u64);
        self.flow.sent(len, self.now, self.limits);
        Ok(())
    }
}
