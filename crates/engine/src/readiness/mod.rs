//! The readiness loop: sessions over any poller.
//!
//! ```text
//!  ┌► apply the update list ► wait ► live connections: read, call (`receiving.rs`), send at once
//!  │                                        │
//!  │      end of turn ◄ accept a share ◄ unfinished ones, deadlines, messages, wakes
//!  └────────────┘
//! ```
//!
//! Reading goes into one buffer that all connections share, in slices; output is tried at once, and only a
//! short send asks for writability. New connections are accepted last, so no descriptor is used
//! again while events for its number may lie in the batch.

mod connecting;
mod receiving;
mod sending;
mod takeover;
mod turns;

use std::io;
use std::ops::{ControlFlow, Range};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use pollux_poller::{Error, Events, Interest, Mechanism, Poller, Registration, Token, Trigger};
use rustix::net::{Shutdown, shutdown};

use crate::actions::Ending;
use crate::admission::Admission;
use crate::alarm::Alarm;
use crate::clock::Clock;
use crate::conversation::{Conversation, Occasion, Progress, Turn};
use crate::ending::{Linger, Tail, drop_untaken};
use crate::fd_table::{FdSnapshot, FdTable, Watch};
use crate::flow::Flow;
use crate::member::HandOut;
use crate::sources::{SourceId, Sources};
use crate::timers::Timers;
use crate::{Actions, CloseCause, ConnectionId, Counter, Counters, Limits, Listener, Now, Session};
use receiving::{BUFFER_BYTES, NOTHING};
use sending::SocketIo;

/// The table's slots are lower; from here on stand the sources, and at the very end the timer.
const SOURCES: u32 = FdTable::<OwnedFd>::SLOTS_MAX as u32;

/// What the poller calls the timer.
const ALARM: Token = Token::new(u32::MAX, 0);

struct Connection<S> {
    token: Token,
    conversation: Conversation<S>,
    tail: Tail,
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
    open: u32,
    /// Of those, the ones that go to peers.
    outgoing: u32,
    listeners: Vec<Token>,
    admission: Admission,
    timers: Timers,
    alarm: Alarm,
    clock: Clock,
    limits: Limits,
    counters: Arc<Counters>,
    shared: S::Shared,
    sources: Sources<S::Shared>,
    events: Events,
    input: Box<[u8]>,
    /// Whose bytes stand in the slices of the input, and how many.
    received: Vec<(Token, usize)>,
    room: Box<[u8]>,
    wakes: Vec<ConnectionId>,
    unfinished: Vec<ConnectionId>,
    fired: Vec<u32>,
    hand_out: Option<HandOut>,
    /// Connections that other loops have taken over, until the next update batch.
    lost: Vec<ConnectionId>,
    is_draining: bool,
}

impl<S: Session> ReadinessLoop<S> {
    /// A loop on `mechanism` with a poller of its own.
    ///
    /// # Errors
    /// The mechanism is not to be had here.
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
            open: 0,
            outgoing: 0,
            listeners: Vec::new(),
            admission: Admission::new(),
            alarm,
            timers: Timers::new(clock.now().at),
            clock,
            shared,
            sources: Sources::new(),
            events: Events::with_capacity(limits.events_per_turn as usize),
            input: vec![0; BUFFER_BYTES].into(),
            received: Vec::new(),
            room: vec![0; Actions::ROOM_MIN].into(),
            wakes: Vec::new(),
            unfinished: Vec::new(),
            fired: Vec::new(),
            hand_out: None,
            lost: Vec::new(),
            is_draining: false,
            poller,
            limits,
            counters,
        })
    }

    /// Takes connections from `listener` from the next turn on.
    pub(crate) fn listen(&mut self, listener: Listener, exclusive: bool) {
        // Without it a connection wakes all loops, and all but one find nobody waiting.
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
        let id = self.sources.insert(source, on_readable, u32::MAX - SOURCES)?;
        let fd = self.sources.fd(id).expect("just inserted");
        let how = Registration::new(Interest::READABLE, Trigger::Level);
        if let Err(error) = self.poller.add(fd, Token::new(SOURCES + id.0, 0), how) {
            self.sources.remove(id);
            return Err(error.into());
        }
        Ok(id)
    }

    pub(crate) fn unwatch(&mut self, id: SourceId) -> bool {
        let Some(fd) = self.sources.fd(id) else { return false };
        // What the poller does not have any more needs no deletion.
        let _ = self.poller.delete(fd);
        self.sources.remove(id);
        true
    }

    /// The timer rang, or a source is readable.
    fn ready_beside_connections(&mut self, token: Token) {
        if token == ALARM {
            return self.alarm.rang();
        }
        let (id, now) = (SourceId(token.slot() - SOURCES), self.clock.now());
        let Some(answer) = self.sources.readable(id, &mut self.shared, now) else { return };
        self.counters.count(Counter::SourcesReadable);
        if answer.is_break() {
            self.unwatch(id);
        }
    }

    /// Takes over a connected, non-blocking socket and starts a session on it.
    pub(crate) fn adopt(&mut self, socket: OwnedFd, session: S) -> ConnectionId {
        self.counters.count(Counter::Adopted);
        let conversation = Conversation::new(session);
        self.insert(socket, |_, _, _| (conversation, Ok(Progress::Idle)))
    }

    /// Starts a session on a connection that another loop accepted, unless this one is full.
    pub(crate) fn admit_handed(&mut self, socket: OwnedFd) {
        self.counters.count(Counter::Adopted);
        if self.limits.accepted(self.open, self.outgoing) >= self.limits.connections_max {
            self.counters.count_close(CloseCause::LoopFull);
            return;
        }
        self.admit(socket);
    }

    /// Lets `hand_out` have accepted connections first.
    pub(crate) fn hand_out(&mut self, hand_out: HandOut) {
        self.admission.accept_for_others();
        self.hand_out = Some(hand_out);
    }

    pub(crate) fn wake(&mut self, session: ConnectionId) {
        self.wakes.push(session);
    }

    pub(crate) fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    fn welcome(&mut self, socket: OwnedFd) {
        let kept = match &mut self.hand_out {
            Some(hand_out) => hand_out.give(socket),
            None => Some(socket),
        };
        match kept {
            Some(socket) => self.admit(socket),
            None => self.counters.count(Counter::HandedOut),
        }
    }

    pub(crate) fn notes(&self) -> Vec<String> {
        self.poller.caps().notes.clone()
    }

    pub(crate) fn waker(&self) -> pollux_poller::Waker {
        self.poller.waker()
    }

    pub(crate) fn poller_counters(&self) -> &Arc<pollux_poller::Counters> {
        self.poller.counters()
    }

    /// Connections that are open.
    pub(crate) fn open_connections(&self) -> u32 {
        self.open
    }

    pub(crate) fn is_listening(&self) -> bool {
        !self.listeners.is_empty()
    }

    pub(crate) fn now(&self) -> Now {
        self.clock.now()
    }

    pub(crate) fn shared(&mut self) -> &mut S::Shared {
        &mut self.shared
    }

    /// Tells every session once that the loop drains, and takes no new connections.
    pub(crate) fn drain(&mut self) {
        if std::mem::replace(&mut self.is_draining, true) {
            return;
        }
        let sockets = self.stop_listening();
        for token in self.table.tokens().collect::<Vec<_>>() {
            if self.owns(token) {
                self.play(token, Some(Occasion::Drain), NOTHING);
            }
        }
        // A waiting client's wake may have gone to this loop alone; another process that has the
        // sockets too is not woken for it.
        for socket in &sockets {
            self.accept_last(socket.as_fd());
        }
        self.hand_out = None;
    }

    /// Closes everything that is still open.
    pub(crate) fn close_all(&mut self, cause: CloseCause) {
        drop(self.stop_listening());
        for token in self.table.tokens().collect::<Vec<_>>() {
            self.close(token, cause);
        }
        S::end_turn(&mut self.shared);
    }

    /// What `show fd` prints: every descriptor of this loop.
    pub(crate) fn describe(&self) -> Vec<FdSnapshot> {
        self.table.tokens().filter_map(|token| self.table.describe(token)).collect()
    }

    /// Takes no more connections; gives back the sockets that they came from.
    fn stop_listening(&mut self) -> Vec<OwnedFd> {
        let listeners = std::mem::take(&mut self.listeners);
        let remove = |token| self.table.remove(token, &mut *self.poller).ok().flatten();
        listeners.into_iter().filter_map(remove).collect()
    }

    /// Applies the update list; a connection whose descriptor the poller refuses is closed.
    fn apply_updates(&mut self) {
        self.release_lost();
        self.table.apply(&mut *self.poller, &self.counters, &mut self.refused);
        for (token, _) in std::mem::take(&mut self.refused) {
            self.close(token, CloseCause::SocketError);
        }
    }

    /// Calls the session with these bytes of the shared buffer, and carries on as it wishes.
    fn play(&mut self, token: Token, occasion: Option<Occasion>, input: Range<usize>) {
        let Some(connection) = &mut self.connections[token.slot() as usize] else { return };
        let Connection { conversation, tail, flow, .. } = connection;
        let now = self.clock.now();
        let id = ConnectionId(token);
        let mut turn = Turn { now, id, wakes: &mut self.wakes };
        let mut io = SocketIo {
            socket: socket(&self.table, token),
            room: &mut self.room,
            tail,
            flow,
            counters: &self.counters,
            limits: &self.limits,
            now: now.at,
        };
        let shared = &mut self.shared;
        let called = match occasion {
            Some(occasion) => conversation.occasion(occasion, shared, &mut turn, &mut io),
            None => Ok(()),
        };
        let is_receiving = !input.is_empty() || occasion == Some(Occasion::Readable);
        let input = &self.input[input];
        let done = called.and_then(|()| conversation.pump(shared, &mut turn, &mut io, input));
        self.settle(token, done, is_receiving);
    }

    /// After a call: what the connection waits for from now on.
    fn settle(&mut self, token: Token, done: Result<Progress, CloseCause>, is_receiving: bool) {
        let Some(connection) = &mut self.connections[token.slot() as usize] else { return };
        match done {
            Err(cause) => return self.close(token, cause),
            Ok(Progress::Unfinished) => self.unfinished.push(ConnectionId(token)),
            Ok(Progress::Idle) => {}
        }
        let Connection { conversation, tail, flow, .. } = connection;
        if tail.is_connecting() && conversation.ending().is_some() {
            return self.close(token, CloseCause::Session);
        }
        if let Tail::Waiting(output) = tail {
            if output.is_blocked() {
                self.table.cannot_write(token);
                self.table.want_write(token);
            } else {
                self.unfinished.push(ConnectionId(token));
            }
        } else if let (Some(ending), Tail::None) = (conversation.ending(), &tail) {
            let has_ended = conversation.has_peer_ended();
            if has_ended || (ending == Ending::Close && !flow.is_watched()) {
                let cause = if has_ended { CloseCause::PeerClosed } else { CloseCause::Session };
                return self.close(token, cause);
            }
            // ENOTCONN means that the peer is gone: reading will say so.
            let _ = shutdown(socket(&self.table, token), Shutdown::Write);
            *tail = Tail::Lingering(Linger::new(self.clock.now().at, &self.limits));
        }
        if conversation.ends_output() && matches!(tail, Tail::None) {
            // ENOTCONN means that the peer is gone: reading will say so.
            let _ = shutdown(socket(&self.table, token), Shutdown::Write);
            conversation.output_ended();
        }
        if conversation.wants_input() || tail.is_lingering() {
            self.table.want_read(token);
            if !is_receiving && self.table.left_to_loop(token).read {
                // Perhaps more is there, and no event will report it again.
                self.unfinished.push(ConnectionId(token));
            }
        } else {
            self.table.stop_read(token);
        }
        let deadline = tail.deadline(flow, conversation.deadline());
        if self.timers.set(token.slot(), deadline) {
            self.counters.count(Counter::DeadlinesMoved);
        }
    }

    /// Starts a session on an accepted socket.
    pub(crate) fn admit(&mut self, socket: OwnedFd) {
        self.insert(socket, |shared, turn, io| Conversation::accept(shared, turn, io));
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
        let (now, id) = (self.clock.now(), ConnectionId(token));
        let mut turn = Turn { now, id, wakes: &mut self.wakes };
        let (mut tail, mut flow) = (Tail::None, Flow::Quiet);
        let mut io = SocketIo {
            socket: socket(&self.table, token),
            room: &mut self.room,
            tail: &mut tail,
            flow: &mut flow,
            counters: &self.counters,
            limits: &self.limits,
            now: now.at,
        };
        let (conversation, done) = begin(&mut self.shared, &mut turn, &mut io);
        self.outgoing += u32::from(conversation.is_outgoing());
        let (has_lost_event, is_bulk) = (false, false);
        self.connections[slot] =
            Some(Connection { token, conversation, tail, flow, has_lost_event, is_bulk });
        self.open += 1;
        self.settle(token, done, false);
        if self.is_draining {
            self.play(token, Some(Occasion::Drain), NOTHING);
        }
        id
    }

    fn close(&mut self, token: Token, cause: CloseCause) {
        let slot = self.connections.get_mut(token.slot() as usize);
        let Some(connection) = slot.and_then(Option::take) else { return };
        self.open -= 1;
        self.outgoing -= u32::from(connection.conversation.is_outgoing());
        self.timers.clear(token.slot());
        if cause.drops_untaken(connection.tail.is_lingering()) {
            drop_untaken(socket(&self.table, token));
        }
        let cause = self.part(token, connection.conversation.sharing(), cause);
        self.admission.freed();
        self.counters.count_close(cause);
        connection.conversation.closed(&mut self.shared, cause);
    }
}

/// The socket of a live connection, or a listener.
#[inline]
fn socket(table: &FdTable, token: Token) -> BorrowedFd<'_> {
    table.fd(token).expect("a live token has its descriptor")
}
