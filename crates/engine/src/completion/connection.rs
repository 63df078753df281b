//! One connection of the completion loop: its session's calls, what is armed for it, its end; and the table by which a
//! completion finds it.
//!
//! | receiving | armed | data | end, error, cancelled | the session takes no input |
//! |---|---|---|---|---|
//! | idle | arm | - | - | stays |
//! | once | - | idle | idle | stays: what comes is kept |
//! | many | - | many (idle when the kernel ended it) | idle | cancel when much is kept: ending |
//! | ending | - | ending | idle | stays |
//! | watching | - | - | idle | stays |
//!
//! *Watching* is a poll for a session that leaves its input in the socket; a receive of many is cancelled
//! when one does so.
//!
//! A call's output leaves out of the turn's arena, one request for each connection and turn. What such a request could
//! not send comes back with a completion before anything else of the connection does, so until then the output counts as
//! gone. A second output in the same turn waits for the next one: it could overtake the rest of the first.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use pollux_poller::Token;
use pollux_sys::ring::{QueueFull, Received, Sending, Sent as Slice, Shots};
use rustix::net::{Shutdown, shutdown};

use super::{CompletionLoop, Kind, POLLIN, POLLOUT, label, numbered};
use crate::actions::{Ending, Source};
use crate::conversation::{ConnectionIo, Conversation, Occasion, Progress, Sent, Turn};
use crate::flow::Flow;
use crate::tail::{Linger, Output, Tail, UnderWay, drop_untaken};
use crate::turn::Turning;
use crate::{Actions, CloseCause, ConnectionId, Counter, Counters, Limits, Moment, Session};

/// Input kept for a session that takes none, before its receive is cancelled.
const KEPT_BYTES_MAX: usize = 64 * 1024;
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
    pub(super) marks: SendMarks,
    pub(super) conversation: Conversation<S>,
    pub(super) tail: Tail,
    pub(super) flow: Flow,
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
        let (now, token) = (self.state.clock.now(), self.connections.next_token());
        let mut turn = Turn { now, id: ConnectionId(token), wakes: &mut self.state.wakes };
        let (mut tail, mut flow) = (Tail::None, Flow::Quiet);
        let mut marks = SendMarks::default();
        let mut io = RingIo {
            sending: self.ring.sending(),
            socket: socket.as_fd(),
            token,
            tail: &mut tail,
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
            marks,
            conversation,
            tail,
            flow,
        });
        self.settle(token, done);
        if self.state.is_draining {
            self.play(token, Some(Occasion::Drain), None);
        }
        ConnectionId(token)
    }

    /// Calls the session, with bytes that were received if there are any, and carries on as it
    /// requested.
    pub(super) fn play(
        &mut self,
        token: Token,
        occasion: Option<Occasion>,
        input: Option<&Received>,
    ) {
        self.make_room();
        let Some(connection) = self.connections.get_mut(token) else { return };
        let Connection { socket, conversation, tail, flow, marks, .. } = connection;
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
            tail,
            flow,
            marks,
            submission: self.submission,
            sends: &mut self.sends,
            counters: &self.state.counters,
            limits: &self.state.limits,
            now: now.at,
        };
        let shared = &mut self.state.shared;
        let called = match occasion {
            Some(occasion) => conversation.occasion(occasion, shared, &mut turn, &mut io),
            None => Ok(()),
        };
        let done = called.and_then(|()| conversation.pump(shared, &mut turn, &mut io, input));
        self.settle(token, done);
    }

    /// After a call: what the connection waits for from now on.
    pub(super) fn settle(&mut self, token: Token, done: Result<Progress, CloseCause>) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        match done {
            Err(cause) => return self.close(token, cause),
            Ok(Progress::Unfinished) => self.state.unfinished.push(ConnectionId(token)),
            Ok(Progress::Idle) => {}
        }
        if connection.tail.is_connecting() && connection.conversation.ending().is_some() {
            return self.close(token, CloseCause::Session);
        }
        let is_under_way = connection.marks.submission == self.submission;
        match (&mut connection.tail, connection.conversation.ending()) {
            (Tail::Waiting(output), _) if !output.is_in_flight() => {
                if output.is_blocked() && !output.is_connecting() {
                    self.watch_room(token);
                } else {
                    // For the send of this turn, or its share of it: the next one continues it.
                    self.state.unfinished.push(ConnectionId(token));
                }
            }
            (Tail::Waiting(_), _) => {}
            // Its last output may fall short, and then the end comes behind the rest of it.
            (Tail::None, Some(ending))
                if is_under_way && (ending == Ending::Linger || !connection.marks.is_sure) =>
            {
                self.state.unfinished.push(ConnectionId(token));
            }
            (Tail::None, Some(ending)) => {
                let has_input_ended = connection.conversation.has_input_ended();
                let is_watched = connection.flow.is_watched();
                if has_input_ended || (ending == Ending::Close && !is_watched) {
                    let cause =
                        if has_input_ended { CloseCause::PeerClosed } else { CloseCause::Session };
                    return self.close(token, cause);
                }
                // The call, not the request: that one always takes a worker thread. ENOTCONN
                // means that the peer is gone: receiving will say so.
                let _ = shutdown(&connection.socket, Shutdown::Write);
                connection.tail =
                    Tail::Lingering(Linger::new(self.state.clock.now().at, &self.state.limits));
            }
            (Tail::None, None) if connection.conversation.ends_output() => {
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
            connection.tail.deadline(&connection.flow, connection.conversation.deadline());
        if self.state.timers.set(token.slot(), deadline) {
            self.state.counters.count(Counter::DeadlinesMoved);
        }
    }

    /// Arms or cancels the receive, as the table at the head of this file says.
    pub(super) fn receive_as_wanted(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        let conversation = &connection.conversation;
        let is_lingering = connection.tail.is_lingering() && !conversation.has_input_ended();
        let fd = connection.socket.as_raw_fd();
        let leaves_input = conversation.leaves_input() && !connection.tail.is_lingering();
        match connection.receiving {
            Receiving::Idle if leaves_input && conversation.wants_input() => {
                connection.receiving = Receiving::Watching;
                let watch = label(Kind::Readable, token);
                self.push(|ring| ring.poll(fd, POLLIN, Shots::One, watch));
            }
            Receiving::Idle if is_lingering || conversation.wants_input() => {
                let shots = if connection.has_received { connection.shots } else { Shots::One };
                connection.receiving = match shots {
                    Shots::One => Receiving::Once,
                    Shots::Many => Receiving::Many,
                };
                self.push(|ring| ring.receive(fd, shots, label(Kind::Receive, token)));
            }
            Receiving::Many
                if leaves_input || !is_lingering && conversation.kept_bytes() > KEPT_BYTES_MAX =>
            {
                connection.receiving = Receiving::Ending;
                let target = label(Kind::Receive, token);
                self.push(|ring| ring.cancel(target, numbered(Kind::Cleanup, 0)));
            }
            _ => {}
        }
    }

    /// Output waits for room in a socket that was full.
    pub(super) fn watch_room(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        let fd = connection.socket.as_raw_fd();
        let watch = label(Kind::Writable, token);
        self.push(|ring| ring.poll(fd, POLLOUT, Shots::One, watch));
        self.set_under_way(token, UnderWay::Poll);
    }

    /// A request of the output is under way.
    pub(super) fn set_under_way(&mut self, token: Token, under_way: UnderWay) {
        if let Some(connection) = self.connections.get_mut(token)
            && let Tail::Waiting(output) = &mut connection.tail
        {
            output.under_way = Some(under_way);
        }
    }

    pub(super) fn close_connection(&mut self, token: Token, cause: CloseCause) {
        let Some(mut connection) = self.connections.remove(token) else { return };
        self.state.closed(token, &connection.conversation);
        if cause.drops_untaken(connection.tail.is_lingering()) {
            drop_untaken(connection.socket.as_fd());
        }
        if connection.receiving != Receiving::Idle {
            // Armed, it would keep the socket open, and the peer would see no end.
            let is_watching = connection.receiving == Receiving::Watching;
            let kind = if is_watching { Kind::Readable } else { Kind::Receive };
            let target = label(kind, token);
            self.push(|ring| ring.cancel(target, numbered(Kind::Cleanup, 0)));
        }
        if let Tail::Waiting(output) = &mut connection.tail {
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
            Some(UnderWay::Send(request, _)) => {
                self.push(|ring| ring.cancel_owned(request, numbered(Kind::Cleanup, 0)));
            }
            Some(UnderWay::Poll) => {
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
    pub(super) tail: &'a mut Tail,
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

    fn send(&mut self, len: usize, source: Option<Source>) -> Result<Sent, CloseCause> {
        if matches!(self.tail, Tail::None) && (self.marks.submission == self.submission) {
            *self.tail = Tail::Waiting(Box::default());
        }
        if let Tail::Waiting(output) = self.tail {
            output.push_bytes(&self.sending.spare()[..len])?;
            source.into_iter().for_each(|source| output.push_source(source));
            return Ok(Sent::Waits);
        }
        let Some(source) = source else {
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
        let output =
            Output::begin_with_source(head, source, *socket, counters, flow, *now, limits)?;
        if output.is_empty() {
            return Ok(Sent::Gone);
        }
        *self.tail = Tail::Waiting(Box::new(output));
        Ok(Sent::Waits)
    }
}

impl RingIo<'_> {
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

/// A table of `T` by [`Token`].
///
/// Dense and reused, each use with its own generation: a completion whose generation is not that of the slot
/// belongs to a connection that is gone.
#[derive(Debug)]
pub(super) struct Slots<T> {
    entries: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    content: Option<T>,
}

impl<T> Slots<T> {
    pub(super) fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }

    /// The token that the next [`Slots::insert`] will use.
    pub(super) fn next_token(&self) -> Token {
        match self.free.last() {
            Some(slot) => Token::new(*slot, self.entries[*slot as usize].generation),
            None => Token::new(self.entries.len() as u32, 0),
        }
    }

    pub(super) fn insert(&mut self, content: T) -> Token {
        let token = self.next_token();
        match self.free.pop() {
            Some(slot) => self.entries[slot as usize].content = Some(content),
            None => self.entries.push(Slot { generation: 0, content: Some(content) }),
        }
        token
    }

    /// Empties the slot of `token`; its next use has another generation.
    pub(super) fn remove(&mut self, token: Token) -> Option<T> {
        self.get_mut(token)?;
        let slot = &mut self.entries[token.slot() as usize];
        slot.generation = token.next_generation().generation();
        self.free.push(token.slot());
        slot.content.take()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        let slot = self.entries.get_mut(token.slot() as usize)?;
        slot.content.as_mut().filter(|_| slot.generation == token.generation())
    }

    /// The token of what is in `slot` now.
    pub(super) fn token_of(&self, slot: u32) -> Option<Token> {
        let entry = self.entries.get(slot as usize)?;
        entry.content.as_ref().map(|_| Token::new(slot, entry.generation))
    }

    /// The tokens of all that is there.
    pub(super) fn tokens(&self) -> Vec<Token> {
        (0..self.entries.len() as u32).filter_map(|slot| self.token_of(slot)).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Token, &T)> {
        self.entries.iter().enumerate().filter_map(|(slot, entry)| {
            let content = entry.content.as_ref()?;
            Some((Token::new(slot as u32, entry.generation), content))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_slot_does_not_answer_to_its_old_token() {
        let mut slots = Slots::new();
        let first = slots.insert('a');
        assert_eq!(slots.remove(first), Some('a'));
        assert_eq!(slots.next_token().slot(), first.slot());
        let second = slots.insert('b');
        assert_eq!(slots.get_mut(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.get_mut(second), Some(&mut 'b'));
        assert_eq!(slots.tokens(), [second]);
    }
}
