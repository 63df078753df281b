//! What a turn of the readiness loop does with its events: one wait, what became ready, and how it reads.
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
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use pollux_poller::{Event, Readiness, Token};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::{Connection, ReadinessLoop, SOURCES, socket};
use crate::actions::Sharing;
use crate::admission::Queue;
use crate::connecting::Begun;
use crate::conversation::{Conversation, Progress, SessionCall};
use crate::output::{Flushed, Output, OutputState, cause_of, drop_untaken};
use crate::pipe::ReadOutcome;
use crate::turn::{ConnectionView, LoopError, TurnLoop, TurnState};
use crate::{AcceptedSocket, CloseCause, ConnectTo, ConnectionId, Counter, Moment, Session};

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

impl<S: Session> TurnLoop<S> for ReadinessLoop<S> {
    #[inline]
    fn state(&mut self) -> &mut TurnState<S> {
        &mut self.state
    }

    fn view(&mut self, token: Token) -> Option<ConnectionView<'_, S>> {
        let connection = self.connections.get_mut(token.slot() as usize)?.as_mut()?;
        let Connection { conversation, output_state, flow, .. } = connection;
        let socket = socket(&self.table, token);
        Some(ConnectionView { socket, conversation, output_state, flow, state: &mut self.state })
    }

    fn token_of(&self, slot: u32) -> Option<Token> {
        self.connections[slot as usize].as_ref().map(|connection| connection.token)
    }

    fn may_call(&mut self, token: Token) -> bool {
        self.table.is_current(token) && self.owns(token)
    }

    fn may_act(&mut self, token: Token) -> bool {
        self.table.is_current(token) && self.owns_or_wakes(token)
    }

    /// Applies the update list; a connection whose descriptor the poller refuses is closed.
    fn prepare(&mut self) -> bool {
        self.release_lost();
        self.table.apply(&mut *self.poller, &self.state.counters, &mut self.refused);
        for (token, _) in std::mem::take(&mut self.refused) {
            self.close(token, CloseCause::SocketError);
        }
        false
    }

    fn wait(&mut self, timeout: Option<Duration>, began: Moment) -> Result<(), LoopError> {
        if !self.state.limits.busy_poll {
            return self.poller.wait(&mut self.events, timeout).map_err(LoopError::of_poller);
        }
        let end = timeout.map_or(Moment::NEVER, |timeout| began + timeout);
        loop {
            let looked = self.poller.wait(&mut self.events, Some(Duration::ZERO));
            looked.map_err(LoopError::of_poller)?;
            let is_idle = self.events.is_empty() && !self.events.is_woken();
            if !is_idle || self.events.is_interrupted() || self.state.clock.spin() >= end {
                return Ok(());
            }
            self.state.counters.count(Counter::BusySpins);
        }
    }

    fn serve(&mut self) {
        self.has_arrivals = false;
        for index in 0..self.events.len() {
            let Event { token, readiness } = self.events.as_slice()[index];
            if token.slot() >= SOURCES {
                self.ready_beside_connections(token);
                continue;
            }
            let Some(due) = self.table.reported(token, readiness) else { continue };
            if self.listeners.contains(&token) {
                self.has_arrivals |= due.read;
                continue;
            }
            if due == crate::Ready::NOTHING || !self.owns_for_event(token, readiness) {
                continue;
            }
            if due.write || due.closed {
                self.flush(token);
            }
            if due.closed || due.read && readiness.intersects(Readiness::ENDS) {
                self.receive(token, true);
            } else if due.read {
                self.receive_with_others(token);
            }
        }
        self.call_those_received();
    }

    fn proceed(&mut self, token: Token) {
        if !self.may_act(token) {
            return;
        }
        match &self.connections[token.slot() as usize] {
            Some(Connection {
                output_state: OutputState::Waiting(output), conversation, ..
            }) => {
                let reads_on = conversation.reads_on();
                let is_unfinished = conversation.progress() == Progress::Unfinished;
                if !output.is_blocked() || !reads_on {
                    self.flush(token);
                }
                if is_unfinished {
                    self.call_session(token, None, NOTHING);
                }
                if reads_on {
                    self.receive_if_ready(token);
                }
            }
            Some(Connection {
                output_state: OutputState::None | OutputState::Broken(_), ..
            }) => {
                self.call_session(token, None, NOTHING);
                self.receive_if_ready(token);
            }
            Some(Connection { output_state: OutputState::Lingering(_), .. }) => {
                self.receive_if_ready(token);
            }
            None => {}
        }
    }

    fn call(&mut self, token: Token, call: SessionCall) {
        self.call_session(token, Some(call), NOTHING);
    }

    fn flush(&mut self, token: Token) {
        let Some(connection) = &mut self.connections[token.slot() as usize] else { return };
        let OutputState::Waiting(output) = &mut connection.output_state else { return };
        if output.is_connecting() {
            self.table.stop_write(token);
            return self.connected(token);
        }
        let socket = socket(&self.table, token);
        let now = self.state.clock.now().at;
        match output.flush(
            socket,
            &self.state.counters,
            &mut connection.flow,
            now,
            &self.state.limits,
        ) {
            Ok(Flushed::All) => {
                connection.output_state = OutputState::None;
                connection.conversation.output_left();
                self.table.stop_write(token);
                self.call_session(token, None, NOTHING);
            }
            Ok(Flushed::Full) => {
                self.table.cannot_write(token);
                self.table.want_write(token);
            }
            Ok(Flushed::Budget) => self.state.unfinished.push(ConnectionId(token)),
            Err(CloseCause::PeerReset) if connection.conversation.reads_on() => {
                let limits = &self.state.limits;
                connection.output_state.break_off(0, CloseCause::PeerReset, now, limits);
                self.table.stop_write(token);
                self.call_session(token, None, NOTHING);
            }
            Err(cause) => self.close(token, cause),
        }
    }

    fn close(&mut self, token: Token, cause: CloseCause) {
        let slot = self.connections.get_mut(token.slot() as usize);
        let Some(mut connection) = slot.and_then(Option::take) else { return };
        self.state.closed(token, &connection.conversation);
        connection.conversation.output_lost(&connection.output_state);
        if cause.drops_untaken(connection.output_state.is_lingering()) {
            drop_untaken(socket(&self.table, token));
        }
        let cause = self.detach(token, connection.conversation.sharing(), cause);
        self.state.admission.freed();
        self.state.counters.count_close(cause);
        connection.conversation.closed(&mut self.state.shared, cause);
    }

    fn accept(&mut self) {
        let now = self.state.clock.now();
        if self.state.admission.is_paused() {
            if !self.state.admission.may_resume(
                self.state.open_for_accepts(),
                now.at,
                &self.state.limits,
            ) {
                return;
            }
            for token in &self.listeners {
                self.table.want_read(*token);
            }
            return;
        }
        if !self.has_arrivals {
            return;
        }
        for index in 0..self.listeners.len() {
            let token = self.listeners[index];
            let open = self.state.open_for_accepts();
            let socket = socket(&self.table, token);
            let limits = &self.state.limits;
            let share = limits.accepts_per_turn;
            let queue = self.state.admission.accept(
                socket,
                open,
                share,
                now.at,
                limits,
                &self.state.counters,
            );
            if queue == Queue::Empty {
                self.table.cannot_read(token);
            }
            self.admit_arrivals();
            if queue == Queue::Paused {
                self.listeners.iter().for_each(|token| self.table.stop_read(*token));
                return;
            }
        }
    }

    fn is_woken(&self) -> bool {
        self.events.is_woken()
    }

    fn admit(&mut self, socket: OwnedFd) {
        self.insert(socket, |shared, turn, io| Conversation::accept(shared, turn, io));
    }

    /// The socket is watched for room as a full one is. The table registers reading along with
    /// it, so an edge trigger needs one call for the whole life, and a level trigger one more to let go of
    /// writing.
    fn begin_connect(
        &mut self,
        Begun { socket, is_in_progress }: Begun,
        _: &ConnectTo,
        conversation: Conversation<S>,
    ) -> ConnectionId {
        self.insert(socket, |_, _, io| {
            *io.output_state = OutputState::Waiting(Box::new(Output::connecting(is_in_progress)));
            (conversation, Ok(Progress::Idle))
        })
    }

    /// What a client says first lies there already as a rule. A connection that is answered and closed at once is
    /// never registered.
    fn adopt_accepted(&mut self, accepted: AcceptedSocket, session: S) {
        let ConnectionId(token) = self.adopt(accepted.into(), session);
        self.call_session(token, Some(SessionCall::Connected), NOTHING);
        if self.connections[token.slot() as usize].is_some() {
            self.receive(token, false);
        }
    }

    fn take_over(&mut self, sharing: Sharing, session: S, deadline: Moment) {
        self.take_from_another(sharing, session, deadline);
    }

    fn take_back(&mut self, token: Token) {
        self.take_again(token);
    }
}

impl<S: Session> ReadinessLoop<S> {
    /// Takes a last share of the clients that wait at a listener that is given up.
    pub(super) fn accept_last(&mut self, listener: BorrowedFd<'_>) {
        let open = self.state.open_for_accepts();
        let now = self.state.clock.now().at;
        let share = self.state.limits.accepts_per_turn;
        let limits = &self.state.limits;
        // Clients that are left wait in the socket's queue for the next process that accepts from it.
        let _ =
            self.state.admission.accept(listener, open, share, now, limits, &self.state.counters);
        self.admit_arrivals();
    }

    fn admit_arrivals(&mut self) {
        let mut arrivals = self.state.admission.arrivals();
        for socket in arrivals.drain(..) {
            if let Some(kept) = self.state.hand_over(socket) {
                self.admit(kept);
            }
        }
        self.state.admission.reuse(arrivals);
    }

    fn receive_if_ready(&mut self, token: Token) {
        if self.connections[token.slot() as usize].is_some()
            && self.table.ready_without_event(token).read
        {
            // What ended it may lie behind the data: read to the very end.
            self.receive(token, true);
        }
    }
}

impl<S: Session> ReadinessLoop<S> {
    /// Receives from a connection, whose session is called with the others'.
    fn receive_with_others(&mut self, token: Token) {
        let Some(connection) = &self.connections[token.slot() as usize] else { return };
        let conversation = &connection.conversation;
        let is_usual = !connection.output_state.is_lingering()
            && conversation.wants_input()
            && !conversation.leaves_input();
        if !is_usual || connection.is_bulk {
            return self.receive(token, false);
        }
        self.state.counters.count(Counter::Receives);
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
                self.state.counters.count(Counter::ReceivesEmpty);
                self.table.cannot_read(token);
            }
            Err(Errno::INTR) => self.receive(token, false),
            Err(errno) => self.close(token, cause_of(errno)),
        }
    }

    /// Calls the sessions of all that was received into slices.
    fn call_those_received(&mut self) {
        for index in 0..self.received.len() {
            let (token, received) = self.received[index];
            let connection = self.connections[token.slot() as usize].as_mut();
            let Some(connection) = connection.filter(|connection| connection.token == token) else {
                continue;
            };
            self.state.counters.add(Counter::BytesIn, received as u64);
            let is_emptied = received < SLICE_BYTES;
            connection.is_bulk = !is_emptied;
            if is_emptied {
                self.table.cannot_read(token);
            }
            let start = slice(index).start;
            self.call_session(token, None, start..start + received);
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
        if let OutputState::Broken(broken) = &connection.output_state {
            let cause = broken.cause;
            return self.close(token, cause);
        }
        connection.conversation.input_ended();
        self.call_session(token, None, NOTHING);
    }

    /// Reads from a connection and lets its session answer.
    ///
    /// A receive that fills less than the buffer emptied the socket, unless the end of the
    /// stream came in the same event: then no other event will report it, so the loop reads until it finds it.
    pub(super) fn receive(&mut self, token: Token, has_input_ended: bool) {
        for read in 0..READS_MAX {
            let Some(connection) = &mut self.connections[token.slot() as usize] else { return };
            let is_lingering = connection.output_state.is_lingering();
            if !is_lingering && !connection.conversation.wants_input() {
                return;
            }
            if !is_lingering && connection.conversation.leaves_input() {
                match self.call_readable(token) {
                    ControlFlow::Continue(()) => continue,
                    ControlFlow::Break(()) => return,
                }
            }
            self.state.counters.count(Counter::Receives);
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
                    self.state.counters.add(Counter::BytesIn, received as u64);
                    let was_bulk = read > 0 && connection.is_bulk;
                    connection.is_bulk = was_bulk || received > SLICE_BYTES;
                    let is_emptied = received < INPUT_BYTES && !has_input_ended;
                    if is_emptied {
                        self.table.cannot_read(token);
                    }
                    if !is_lingering {
                        self.call_session(token, None, 0..received);
                    } else if !self.drop_input(token, received) {
                        return;
                    }
                    if is_emptied {
                        return;
                    }
                }
                Err(Errno::AGAIN) => {
                    self.state.counters.count(Counter::ReceivesEmpty);
                    return self.table.cannot_read(token);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return self.close(token, cause_of(errno)),
            }
        }
        self.state.unfinished.push(ConnectionId(token));
    }

    /// Calls a session that reads its socket itself.
    fn call_readable(&mut self, token: Token) -> ControlFlow<()> {
        self.call_session(token, Some(SessionCall::Readable), NOTHING);
        let Some(connection) = &mut self.connections[token.slot() as usize] else {
            return ControlFlow::Break(());
        };
        let seen = connection.conversation.take_seen();
        seen.count(&self.state.counters);
        match seen {
            ReadOutcome::Unseen => {}
            // What comes behind it by `on_bytes` begins anew, with a slice.
            ReadOutcome::Bytes(_) => connection.is_bulk = false,
            ReadOutcome::Nothing => {
                self.table.cannot_read(token);
                return ControlFlow::Break(());
            }
            ReadOutcome::Ended => {
                self.input_ended(token);
                return ControlFlow::Break(());
            }
            ReadOutcome::Broken(errno) => {
                self.close(token, cause_of(errno));
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    /// Books input of a lingering connection; closes it and says false when it was too much.
    fn drop_input(&mut self, token: Token, bytes: usize) -> bool {
        let Some(connection) = &mut self.connections[token.slot() as usize] else { return false };
        let OutputState::Lingering(linger) = &mut connection.output_state else { return false };
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
