//! One connection of the completion loop: its session's calls, what is armed for it, its end.
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

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use pollux_poller::Token;
use pollux_sys::ring::{Received, Shots};
use rustix::net::{Shutdown, shutdown};

use super::sending::{RingIo, SendMarks};
use super::slots::{Kind, label, numbered};
use super::{CompletionLoop, POLLIN};
use crate::actions::Ending;
use crate::conversation::{Conversation, Occasion, Progress, Turn};
use crate::flow::Flow;
use crate::tail::{Linger, Tail, drop_untaken};
use crate::turn::Turning;
use crate::{CloseCause, ConnectionId, Counter, Session};

/// Input kept for a session that takes none, before its receive is cancelled.
const KEPT_BYTES_MAX: usize = 64 * 1024;

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
                let has_ended = connection.conversation.has_peer_ended();
                let is_watched = connection.flow.is_watched();
                if has_ended || (ending == Ending::Close && !is_watched) {
                    let cause =
                        if has_ended { CloseCause::PeerClosed } else { CloseCause::Session };
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
        let is_lingering = connection.tail.is_lingering() && !conversation.has_peer_ended();
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
