//! How the readiness loop reads.
//!
//! What a wait found readable is received together, each connection into a slice of its own, and the
//! sessions are called afterwards: the code of the kernel that receives stays in the cache of the CPU while
//! it runs again and again, and so does that of the sessions. A proxy takes 4 % less CPU for a small request
//! than when each call of a session stood between two receives (`runs/2026-11-24-poller-figures.txt`).
//!
//! ```text
//!  event ─► receive into a slice ─► … ─► slices used up, or no more events: call each session
//!     └── an end came too, or the last receive was more than a slice: receive and call at once
//! ```
//!
//! A session acts on its own connection alone while it is called, and has others woken at the end of the
//! turn, so between a receive and its call nothing happens to a connection.

use std::ops::{ControlFlow, Range};

use pollux_poller::Token;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::{ReadinessLoop, socket};
use crate::conversation::Occasion;
use crate::ending::Tail;
use crate::output::broken;
use crate::pipe::Seen;
use crate::{CloseCause, ConnectionId, Counter, Session};

/// Receive calls for one connection before the others get their turn.
const READS_MAX: u32 = 4;
/// Most bytes of one receive call.
const INPUT_BYTES: usize = 64 * 1024;
/// Connections that are received from before their sessions are called. More save little, and delay the
/// first of them.
const SLICES: usize = 32;
/// Bytes of a slice: room for a head or a small message. One cache line more than 2 KiB, so that the begins
/// of slices don't share the same few places of a cache.
const SLICE_BYTES: usize = 2048 + 64;

/// Bytes of the input buffer: of one receive call, and the slices behind them.
pub(super) const BUFFER_BYTES: usize = INPUT_BYTES + SLICES * SLICE_BYTES;
/// No input.
pub(super) const NOTHING: Range<usize> = 0..0;

impl<S: Session> ReadinessLoop<S> {
    /// Receives from a connection, whose session is called with the others'.
    pub(super) fn receive_with_others(&mut self, token: Token) {
        let Some(connection) = &self.connections[token.slot() as usize] else { return };
        let conversation = &connection.conversation;
        let is_usual = !connection.tail.is_lingering()
            && conversation.wants_input()
            && !conversation.leaves_input();
        if !is_usual || connection.is_bulk {
            return self.receive(token, false);
        }
        self.counters.count(Counter::Receives);
        let slice = slice(self.received.len());
        match recv(socket(&self.table, token), &mut self.input[slice], RecvFlags::empty()) {
            Ok((_, 0)) => self.input_ended(token),
            Ok((_, received)) => {
                self.received.push((token, received));
                if self.received.len() == SLICES {
                    self.call_those_received();
                }
            }
            Err(Errno::AGAIN) => {
                self.counters.count(Counter::ReceivesEmpty);
                self.table.cannot_read(token);
            }
            Err(Errno::INTR) => self.receive(token, false),
            Err(errno) => self.close(token, broken(errno)),
        }
    }

    /// Calls the sessions of all that was received into slices.
    pub(super) fn call_those_received(&mut self) {
        for index in 0..self.received.len() {
            let (token, received) = self.received[index];
            let connection = self.connections[token.slot() as usize].as_mut();
            let Some(connection) = connection.filter(|connection| connection.token == token) else {
                continue;
            };
            self.counters.add(Counter::BytesIn, received as u64);
            let is_emptied = received < SLICE_BYTES;
            connection.is_bulk = !is_emptied;
            if is_emptied {
                self.table.cannot_read(token);
            }
            let start = slice(index).start;
            self.play(token, None, start..start + received);
            if !is_emptied {
                self.receive(token, false);
            }
        }
        self.received.clear();
    }

    /// The peer will send no more.
    fn input_ended(&mut self, token: Token) {
        let Some(connection) = &mut self.connections[token.slot() as usize] else { return };
        self.table.read_ended(token);
        connection.conversation.peer_ended();
        self.play(token, None, NOTHING);
    }

    /// Reads from a connection and lets its session answer.
    ///
    /// A receive that fills less than the buffer emptied the socket, unless the end of the
    /// stream came in the same event: then no other event will report it, so the loop reads until it finds it.
    pub(super) fn receive(&mut self, token: Token, has_end: bool) {
        for read in 0..READS_MAX {
            let Some(connection) = &mut self.connections[token.slot() as usize] else { return };
            let is_lingering = connection.tail.is_lingering();
            if !is_lingering && !connection.conversation.wants_input() {
                return;
            }
            if !is_lingering && connection.conversation.leaves_input() {
                match self.show(token) {
                    ControlFlow::Continue(()) => continue,
                    ControlFlow::Break(()) => return,
                }
            }
            self.counters.count(Counter::Receives);
            match recv(
                socket(&self.table, token),
                &mut self.input[..INPUT_BYTES],
                RecvFlags::empty(),
            ) {
                Ok((_, 0)) if is_lingering => {
                    self.table.read_ended(token);
                    return self.close(token, CloseCause::Session);
                }
                Ok((_, 0)) => return self.input_ended(token),
                Ok((_, received)) => {
                    self.counters.add(Counter::BytesIn, received as u64);
                    let was_bulk = read > 0 && connection.is_bulk;
                    connection.is_bulk = was_bulk || received > SLICE_BYTES;
                    let is_emptied = received < INPUT_BYTES && !has_end;
                    if is_emptied {
                        self.table.cannot_read(token);
                    }
                    if !is_lingering {
                        self.play(token, None, 0..received);
                    } else if !self.drop_input(token, received) {
                        return;
                    }
                    if is_emptied {
                        return;
                    }
                }
                Err(Errno::AGAIN) => {
                    self.counters.count(Counter::ReceivesEmpty);
                    return self.table.cannot_read(token);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return self.close(token, broken(errno)),
            }
        }
        self.unfinished.push(ConnectionId(token));
    }

    /// Calls a session that reads its socket itself.
    fn show(&mut self, token: Token) -> ControlFlow<()> {
        self.play(token, Some(Occasion::Readable), NOTHING);
        let Some(connection) = &mut self.connections[token.slot() as usize] else {
            return ControlFlow::Break(());
        };
        let seen = connection.conversation.take_seen();
        seen.count(&self.counters);
        match seen {
            Seen::Unseen | Seen::Bytes(_) => {}
            Seen::Nothing => {
                self.table.cannot_read(token);
                return ControlFlow::Break(());
            }
            Seen::Ended => {
                self.input_ended(token);
                return ControlFlow::Break(());
            }
            Seen::Broken(errno) => {
                self.close(token, broken(errno));
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    /// Books input of a lingering connection; closes it and says false when it was too much.
    fn drop_input(&mut self, token: Token, bytes: usize) -> bool {
        let Some(connection) = &mut self.connections[token.slot() as usize] else { return false };
        let Tail::Lingering(linger) = &mut connection.tail else { return false };
        let continues = linger.drops(bytes);
        if !continues {
            self.close(token, CloseCause::Session);
        }
        continues
    }
}

/// Where in the input buffer a slice stands.
fn slice(index: usize) -> Range<usize> {
    let start = INPUT_BYTES + index * SLICE_BYTES;
    start..start + SLICE_BYTES
}
