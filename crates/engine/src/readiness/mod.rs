//! The readiness loop: sessions over any poller.
//!
//! ```text
//!  ┌► apply the update list ► wait ► live connections: read, call (`events.rs`), send at once
//!  │                                        │
//!  │      end of turn ◄ accept a share ◄ unfinished ones, deadlines, messages, wakes
//!  └────────────┘
//! ```
//!
//! Reading goes into one buffer that all connections share, in slices; output is tried at once, and only a
//! short send asks for writability. New connections are accepted last, so no descriptor is used
//! again while events for its number may lie in the batch.

mod events;
mod takeover;

use std::io;
use std::ops::{ControlFlow, Range};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use pollux_poller::{Error, Events, Interest, Mechanism, Poller, Registration, Token, Trigger};
use rustix::net::{Shutdown, shutdown};

use crate::actions::{Ending, Payload};
use crate::clock::Clock;
use crate::conversation::{ConnectionIo, Conversation, Progress, Sent, SessionCall, Turn};
use crate::fd_table::{FdTable, Watch};
use crate::flow::Flow;
use crate::output::{Linger, Output, OutputState};
use crate::sources::SourceId;
use crate::timerfd::Alarm;
use crate::turn::{TurnLoop, TurnState};
use crate::{
    Actions, CloseCause, ConnectionId, Counter, Counters, Limits, Listener, Moment, Now, Session,
};
use events::{BUFFER_BYTES, NOTHING};

/// The table's slots are lower; from here on stand the sources, and at the very end the timer.
const SOURCES: u32 = FdTable::<OwnedFd>::SLOTS_MAX as u32;

/// What the poller calls the timer.
const ALARM: Token = Token::new(u32::MAX, 0);

struct Connection<S> {
    token: Token,
    conversation: Conversation<S>,
    output_state: OutputState,
    flow: Flow,
    /// An event came for it while another loop had it, and it has not been back since.
    has_lost_event: bool,
    /// Its last receive was more than a slice.
    is_bulk: bool,
}

/// One thread's loop over a poller.
pub(crate) struct ReadinessLoop<S: Session> {
    poller: Box<dyn Poller>,
    trigger: Trigger,
    table: FdTable,
    refused: Vec<(Token, Error)>,
    connections: Vec<Option<Connection<S>>>,
    listeners: Vec<Token>,
    pub(crate) state: TurnState<S>,
    events: Events,
    /// A client waits at a listener.
    has_arrivals: bool,
    input: Box<[u8]>,
    /// Whose bytes stand in the slices of the input, and how many.
    received: Vec<(Token, usize)>,
    buffer: Box<[u8]>,
    /// Connections that other loops have taken over, until the next update batch.
    lost: Vec<ConnectionId>,
}

impl<S: Session> ReadinessLoop<S> {
    /// A loop on `mechanism` with a poller of its own.
    ///
    /// # Errors
    /// The mechanism is not available here.
    pub(crate) fn open(
        mechanism: Mechanism,
        shared: S::Shared,
        limits: Limits,
        clock: Clock,
        counters: Arc<Counters>,
    ) -> Result<Self, Error> {
        let mut poller = mechanism.open()?;
        let alarm = Alarm::new()
            .map_err(|errno| Error::System { call: "timerfd_create", cause: errno.into() })?;
        let how = Registration::new(Interest::READABLE, Trigger::Level);
        poller.add(alarm.fd(), ALARM, how)?;
        let mut table = FdTable::new(FdTable::<OwnedFd>::SLOTS_MAX);
        if limits.mask_ends {
            table.mask_ends();
        }
        Ok(Self {
            trigger: mechanism.trigger(),
            table,
            refused: Vec::new(),
            connections: Vec::new(),
            listeners: Vec::new(),
            events: Events::with_capacity(limits.events_per_turn as usize),
            has_arrivals: false,
            input: vec![0; BUFFER_BYTES].into(),
            received: Vec::new(),
            buffer: vec![0; Actions::ROOM_MIN].into(),
            lost: Vec::new(),
            poller,
            state: TurnState::new(shared, limits, clock, counters, alarm),
        })
    }

    /// Takes connections from `listener` from the next turn on.
    pub(crate) fn listen(&mut self, listener: Listener, exclusive: bool) {
        // Without it a connection wakes all loops, and all but one find no connection to take.
        let exclusive = exclusive && self.poller.caps().exclusive;
        let watch = Watch::Listener { exclusive };
        let token = self.table.insert(listener.into_socket(), watch);
        let token = token.expect("listeners come first");
        self.table.want_read(token);
        self.listeners.push(token);
    }

    /// Calls `on_readable` in each turn in which `source` is readable.
    ///
    /// # Errors
    /// Of [`Sources::insert`], and what the poller says of the descriptor.
    pub(crate) fn watch<T, F>(&mut self, source: T, on_readable: F) -> io::Result<SourceId>
    where
        T: AsFd + 'static,
        F: FnMut(&mut T, &mut S::Shared, Now) -> ControlFlow<()> + 'static,
    {
        let id = self.state.sources.insert(source, on_readable, u32::MAX - SOURCES)?;
        let fd = self.state.sources.fd(id).expect("just inserted");
        let how = Registration::new(Interest::READABLE, Trigger::Level);
        if let Err(error) = self.poller.add(fd, Token::new(SOURCES + id.0, 0), how) {
            self.state.sources.remove(id);
            return Err(error.into());
        }
        Ok(id)
    }

    pub(crate) fn unwatch(&mut self, id: SourceId) -> bool {
        let Some(fd) = self.state.sources.fd(id) else { return false };
        // What the poller does not have any more needs no deletion.
        let _ = self.poller.delete(fd);
        self.state.sources.remove(id);
        true
    }

    /// The timer rang, or a source is readable.
    fn ready_beside_connections(&mut self, token: Token) {
        if token == ALARM {
            return self.state.alarm.rang();
        }
        let id = SourceId(token.slot() - SOURCES);
        let now = self.state.clock.now();
        let Some(answer) = self.state.sources.readable(id, &mut self.state.shared, now) else {
            return;
        };
        self.state.counters.count(Counter::SourcesReadable);
        if answer.is_break() {
            self.unwatch(id);
        }
    }

    /// Takes over a connected, non-blocking socket and starts a session on it.
    pub(crate) fn adopt(&mut self, socket: OwnedFd, session: S) -> ConnectionId {
        self.state.counters.count(Counter::Adopted);
        let conversation = Conversation::new(session);
        self.insert(socket, |_, _, _| (conversation, Ok(Progress::Idle)))
    }

    pub(crate) fn notes(&self) -> Vec<String> {
        self.poller.caps().notes.clone()
    }

    pub(crate) fn poller_fd(&self) -> Option<BorrowedFd<'_>> {
        self.poller.fd()
    }

    pub(crate) fn waker(&self) -> pollux_poller::Waker {
        self.poller.waker()
    }

    pub(crate) fn poller_counters(&self) -> &Arc<pollux_poller::Counters> {
        self.poller.counters()
    }

    pub(crate) fn is_listening(&self) -> bool {
        !self.listeners.is_empty()
    }

    /// Calls [`Session::on_shutdown`] of every session, once, and takes no new connections.
    pub(crate) fn drain(&mut self) {
        if std::mem::replace(&mut self.state.is_draining, true) {
            return;
        }
        let sockets = self.stop_listening();
        for token in self.table.tokens().collect::<Vec<_>>() {
            if self.owns(token) {
                self.call_session(token, Some(SessionCall::Shutdown), NOTHING);
            }
        }
        // A waiting client's wake may have gone to this loop alone; another process that has the
        // sockets too is not woken for it.
        for socket in &sockets {
            self.accept_last(socket.as_fd());
        }
        self.state.hand_out = None;
    }

    /// Closes everything that is still open.
    pub(crate) fn close_all(&mut self, cause: CloseCause) {
        drop(self.stop_listening());
        for token in self.table.tokens().collect::<Vec<_>>() {
            self.close(token, cause);
        }
        S::end_turn(&mut self.state.shared);
    }

    /// What `show fd` prints: every descriptor of this loop.
    pub(crate) fn describe(&self) -> Vec<String> {
        self.table.tokens().filter_map(|token| self.table.describe(token)).collect()
    }

    /// Takes no more connections; gives back the sockets that they came from.
    fn stop_listening(&mut self) -> Vec<OwnedFd> {
        let listeners = std::mem::take(&mut self.listeners);
        let remove = |token| self.table.remove(token, &mut *self.poller).ok().flatten();
        listeners.into_iter().filter_map(remove).collect()
    }

    /// Calls the session with these bytes of the shared buffer, and carries on as it requested.
    fn call_session(&mut self, token: Token, call: Option<SessionCall>, input: Range<usize>) {
        let Some(connection) = &mut self.connections[token.slot() as usize] else { return };
        let Connection { conversation, output_state, flow, .. } = connection;
        let now = self.state.clock.now();
        let id = ConnectionId(token);
        let mut turn = Turn { now, id, wakes: &mut self.state.wakes };
        let mut io = SocketIo {
            socket: socket(&self.table, token),
            buffer: &mut self.buffer,
            output_state,
            flow,
            counters: &self.state.counters,
            limits: &self.state.limits,
            now: now.at,
        };
        let shared = &mut self.state.shared;
        let called = match call {
            Some(call) => conversation.notify(call, shared, &mut turn, &mut io),
            None => Ok(()),
        };
        let is_receiving = !input.is_empty() || call == Some(SessionCall::Readable);
        let input = &self.input[input];
        let done = called.and_then(|()| conversation.pump(shared, &mut turn, &mut io, input));
        self.settle(token, done, is_receiving);
    }

    /// After a call: what the connection waits for from now on.
    fn settle(&mut self, token: Token, done: Result<Progress, CloseCause>, is_receiving: bool) {
        let Some(connection) = &mut self.connections[token.slot() as usize] else { return };
        match done {
            Err(cause) => return self.close(token, cause),
            Ok(Progress::Unfinished) => self.state.unfinished.push(ConnectionId(token)),
            Ok(Progress::Idle) => {}
        }
        let Connection { conversation, output_state, flow, .. } = connection;
        if let OutputState::Broken(broken) = output_state
            && done == Ok(Progress::Idle)
            && !conversation.wants_input()
        {
            let is_over = conversation.ending().is_some();
            let cause = if is_over { CloseCause::Session } else { broken.cause };
            return self.close(token, cause);
        }
        if output_state.is_connecting() {
            if conversation.ending().is_some() {
                return self.close(token, CloseCause::Session);
            }
        } else {
            self.state.note_waiting(conversation);
        }
        if let OutputState::Waiting(output) = output_state {
            if output.is_blocked() {
                self.table.cannot_write(token);
                self.table.want_write(token);
            } else {
                self.state.unfinished.push(ConnectionId(token));
            }
        } else if let (Some(ending), OutputState::None) = (conversation.ending(), &output_state) {
            let has_input_ended = conversation.has_input_ended();
            if has_input_ended || (ending == Ending::Close && !flow.is_watched()) {
                let cause =
                    if has_input_ended { CloseCause::PeerClosed } else { CloseCause::Session };
                return self.close(token, cause);
            }
            // ENOTCONN means that the peer is gone: reading will say so.
            let _ = shutdown(socket(&self.table, token), Shutdown::Write);
            *output_state =
                OutputState::Lingering(Linger::new(self.state.clock.now().at, &self.state.limits));
        }
        if conversation.ends_output() && matches!(output_state, OutputState::None) {
            // ENOTCONN means that the peer is gone: reading will say so.
            let _ = shutdown(socket(&self.table, token), Shutdown::Write);
            conversation.output_ended();
        }
        if conversation.wants_input() || output_state.is_lingering() {
            self.table.want_read(token);
            if !is_receiving && self.table.ready_without_event(token).read {
                // Perhaps more is there, and no event will report it again.
                self.state.unfinished.push(ConnectionId(token));
            }
        } else {
            self.table.stop_read(token);
        }
        let deadline = output_state.deadline(flow, conversation.deadline());
        if self.state.timers.set(token.slot(), deadline) {
            self.state.counters.count(Counter::DeadlinesMoved);
        }
    }

    fn insert(
        &mut self,
        accepted: OwnedFd,
        begin: impl FnOnce(
            &mut S::Shared,
            &mut Turn<'_>,
            &mut SocketIo<'_>,
        ) -> (Conversation<S>, Result<Progress, CloseCause>),
    ) -> ConnectionId {
        let Ok(token) = self.table.insert(accepted, Watch::Connection(self.trigger)) else {
            unreachable!("`connections_max` is far below the table's limit");
        };
        let slot = token.slot() as usize;
        if slot >= self.connections.len() {
            self.connections.resize_with(slot + 1, || None);
        }
        let now = self.state.clock.now();
        let id = ConnectionId(token);
        let mut turn = Turn { now, id, wakes: &mut self.state.wakes };
        let mut output_state = OutputState::None;
        let mut flow = Flow::Quiet;
        let mut io = SocketIo {
            socket: socket(&self.table, token),
            buffer: &mut self.buffer,
            output_state: &mut output_state,
            flow: &mut flow,
            counters: &self.state.counters,
            limits: &self.state.limits,
            now: now.at,
        };
        let (conversation, done) = begin(&mut self.state.shared, &mut turn, &mut io);
        self.state.opened(&conversation);
        let has_lost_event = false;
        let is_bulk = false;
        self.connections[slot] =
            Some(Connection { token, conversation, output_state, flow, has_lost_event, is_bulk });
        self.settle(token, done, false);
        if self.state.is_draining {
            self.call_session(token, Some(SessionCall::Shutdown), NOTHING);
        }
        id
    }
}

/// The socket of a live connection, or a listener.
#[inline]
fn socket(table: &FdTable, token: Token) -> BorrowedFd<'_> {
    table.fd(token).expect("a live token has its descriptor")
}

/// One connection's socket for the time of one call.
struct SocketIo<'a> {
    socket: BorrowedFd<'a>,
    buffer: &'a mut [u8],
    output_state: &'a mut OutputState,
    flow: &'a mut Flow,
    counters: &'a Counters,
    limits: &'a Limits,
    now: Moment,
}

impl ConnectionIo for SocketIo<'_> {
    const CAN_SHARE: bool = true;

    fn parts(&mut self) -> (&mut [u8], Option<BorrowedFd<'_>>) {
        (self.buffer, Some(self.socket))
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
        if let OutputState::Waiting(output) = self.output_state {
            output.push_bytes(&self.buffer[..len])?;
            payload.into_iter().for_each(|payload| output.push_payload(payload));
            return Ok(Sent::Waits);
        }
        let Self { socket, buffer, flow, counters, limits, now, .. } = self;
        let bytes = &buffer[..len];
        let Some(payload) = payload else {
            let Some(output) = Output::begin(bytes, *socket, counters, flow, *now, limits)? else {
                return Ok(Sent::Gone);
            };
            *self.output_state = OutputState::Waiting(Box::new(output));
            return Ok(Sent::Waits);
        };
        let (output, sent) =
            Output::begin_with_payload(bytes, payload, *socket, counters, flow, *now, limits);
        if output.is_empty() {
            return sent.map(|()| Sent::Gone);
        }
        *self.output_state = OutputState::Waiting(Box::new(output));
        sent.map(|()| Sent::Waits)
    }
}
