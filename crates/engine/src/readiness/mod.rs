//! The readiness loop: sessions over any poller.
//!
//! ```text
//!  ┌► apply the update list ► wait ► live connections: read, call, send at once
//!  │                                        │
//!  │      end of turn ◄ accept a share ◄ unfinished ones, deadlines, messages, wakes
//!  └────────────┘
//! ```
//!
//! Reading goes into one buffer that all connections share; output is tried at once, and only a
//! short send asks for writability. New connections are accepted last, so no descriptor is used
//! again while events for its number may lie in the batch.

mod wire;

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use pollux_poller::{Error, Event, Events, Mechanism, Poller, Readiness, Token, Trigger};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};

use crate::actions::Ending;
use crate::admission::{Admission, Queue};
use crate::clock::Clock;
use crate::conversation::{Conversation, Occasion, Progress, Turn};
use crate::ending::{Due, Linger, Tail};
use crate::fd_table::{FdSnapshot, FdTable, Watch};
use crate::hand_out::HandOut;
use crate::output::{Flushed, broken};
use crate::timers::Timers;
use crate::{
    Actions, CloseCause, ConnectionId, Counter, Counters, Limits, Listener, Moment, Session,
};
use wire::Wire;

/// Most bytes of one receive call.
const INPUT_BYTES: usize = 64 * 1024;
/// What says that no more will come: it has to be looked for behind the data.
const ENDS: Readiness = Readiness::RDHUP.or(Readiness::HUP).or(Readiness::ERROR);
/// Receive calls for one connection before the others get their turn.
const READS_MAX: u32 = 4;

struct Connection<S> {
    token: Token,
    conversation: Conversation<S>,
    tail: Tail,
}

/// One thread's loop over a poller.
pub(crate) struct ReadinessLoop<S: Session> {
    poller: Box<dyn Poller>,
    trigger: Trigger,
    table: FdTable,
    refused: Vec<(Token, Error)>,
    connections: Vec<Option<Connection<S>>>,
    open: u32,
    listeners: Vec<Token>,
    admission: Admission,
    timers: Timers,
    clock: Clock,
    limits: Limits,
    counters: Arc<Counters>,
    shared: S::Shared,
    events: Events,
    input: Box<[u8]>,
    room: Box<[u8]>,
    wakes: Vec<ConnectionId>,
    unfinished: Vec<ConnectionId>,
    fired: Vec<u32>,
    hand_out: Option<HandOut>,
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
        let poller = mechanism.open()?;
        Ok(Self {
            trigger: mechanism.trigger(),
            table: FdTable::new(FdTable::<OwnedFd>::SLOTS_MAX),
            refused: Vec::new(),
            connections: Vec::new(),
            open: 0,
            listeners: Vec::new(),
            admission: Admission::new(),
            timers: Timers::new(clock.now().at),
            clock,
            shared,
            events: Events::with_capacity(limits.events_per_turn as usize),
            input: vec![0; INPUT_BYTES].into(),
            room: vec![0; Actions::ROOM_MIN].into(),
            wakes: Vec::new(),
            unfinished: Vec::new(),
            fired: Vec::new(),
            hand_out: None,
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

    /// Takes over a connected, non-blocking socket and starts a session on it.
    pub(crate) fn adopt(&mut self, socket: OwnedFd, session: S) -> ConnectionId {
        self.counters.count(Counter::Adopted);
        let conversation = Conversation::new(session);
        self.insert(socket, |_, _, _| (conversation, Ok(Progress::Rests)))
    }

    /// Starts a session on a connection that another loop accepted, unless this one is full.
    pub(crate) fn admit_handed(&mut self, socket: OwnedFd) {
        self.counters.count(Counter::Adopted);
        if self.open >= self.limits.connections_max {
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

    pub(crate) fn shared(&mut self) -> &mut S::Shared {
        &mut self.shared
    }

    /// One turn: waits at most `timeout` for something to do, and does it. Says whether a
    /// waker ended the wait.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub(crate) fn turn(&mut self, timeout: Option<Duration>) -> Result<bool, Error> {
        self.tell_the_kernel();
        let began = self.clock.begin_wait(&self.counters);
        self.wait(self.patience(timeout, began), began)?;
        self.counters.count(Counter::Turns);
        let now = self.clock.begin_turn(&self.counters);
        S::begin_turn(&mut self.shared, now);
        let unfinished = std::mem::take(&mut self.unfinished);
        let has_connections = self.serve_events();
        self.go_on(unfinished);
        self.fire_deadlines();
        self.wake_sessions();
        self.accept(has_connections);
        S::end_turn(&mut self.shared);
        Ok(self.events.is_woken())
    }

    /// Tells every session once that the loop drains, and takes no new connections.
    pub(crate) fn drain(&mut self) {
        if std::mem::replace(&mut self.is_draining, true) {
            return;
        }
        self.stop_listening();
        for token in self.table.tokens().collect::<Vec<_>>() {
            self.play(token, Some(Occasion::Drain), 0);
        }
    }

    /// Closes everything that is still open.
    pub(crate) fn close_all(&mut self, cause: CloseCause) {
        self.stop_listening();
        for token in self.table.tokens().collect::<Vec<_>>() {
            self.close(token, cause);
        }
        S::end_turn(&mut self.shared);
    }

    /// What `show fd` prints: every descriptor of this loop.
    pub(crate) fn describe(&self) -> Vec<FdSnapshot> {
        self.table.tokens().filter_map(|token| self.table.describe(token)).collect()
    }

    fn stop_listening(&mut self) {
        for token in std::mem::take(&mut self.listeners) {
            drop(self.table.remove(token, &mut *self.poller));
        }
    }

    /// Applies the update list; a connection whose descriptor the poller refuses is closed.
    fn tell_the_kernel(&mut self) {
        self.table.apply(&mut *self.poller, &self.counters, &mut self.refused);
        for (token, _) in std::mem::take(&mut self.refused) {
            self.close(token, CloseCause::SocketError);
        }
    }

    /// How long this turn may sleep from `began` on, when the caller allows `at_most`.
    fn patience(&self, at_most: Option<Duration>, began: Moment) -> Option<Duration> {
        if !self.unfinished.is_empty() || !self.wakes.is_empty() {
            return Some(Duration::ZERO);
        }
        let deadline = self.timers.next_deadline().unwrap_or(Moment::NEVER);
        let alarm = deadline.min(self.admission.resumes_at());
        let alarm = alarm.is_finite().then(|| alarm - began);
        alarm.into_iter().chain(at_most).min()
    }

    fn wait(&mut self, timeout: Option<Duration>, began: Moment) -> Result<(), Error> {
        if !self.limits.busy_poll {
            return self.poller.wait(&mut self.events, timeout);
        }
        let end = timeout.map_or(Moment::NEVER, |timeout| began + timeout);
        loop {
            self.poller.wait(&mut self.events, Some(Duration::ZERO))?;
            let is_idle = self.events.is_empty() && !self.events.is_woken();
            if !is_idle || self.events.is_interrupted() || self.clock.spin() >= end {
                return Ok(());
            }
            self.counters.count(Counter::BusySpins);
        }
    }

    /// Serves what became ready; says whether somebody waits at a listener.
    fn serve_events(&mut self) -> bool {
        let mut has_connections = false;
        for index in 0..self.events.len() {
            let Event { token, readiness } = self.events.as_slice()[index];
            let Some(due) = self.table.reported(token, readiness) else { continue };
            if self.listeners.contains(&token) {
                has_connections |= due.read;
                continue;
            }
            if due.write || due.closed {
                self.flush(token);
            }
            if due.read || due.closed {
                self.receive(token, readiness.intersects(ENDS));
            }
        }
        has_connections
    }

    /// Reads from a connection and lets its session answer.
    ///
    /// A receive that fills less than the buffer emptied the socket, unless the end of the
    /// stream came in the same event: then no other event will tell of it, so it is looked for.
    fn receive(&mut self, token: Token, has_end: bool) {
        for _ in 0..READS_MAX {
            let Some(connection) = &mut self.connections[token.slot() as usize] else { return };
            let is_lingering = connection.tail.is_lingering();
            if !is_lingering && !connection.conversation.wants_input() {
                return;
            }
            self.counters.count(Counter::Receives);
            match recv(socket(&self.table, token), &mut self.input[..], RecvFlags::empty()) {
                Ok((_, 0)) => {
                    self.table.read_ended(token);
                    if is_lingering {
                        return self.close(token, CloseCause::Session);
                    }
                    connection.conversation.peer_ended();
                    return self.play(token, None, 0);
                }
                Ok((_, received)) => {
                    self.counters.add(Counter::BytesIn, received as u64);
                    let is_emptied = received < self.input.len() && !has_end;
                    if is_emptied {
                        self.table.cannot_read(token);
                    }
                    if !is_lingering {
                        self.play(token, None, received);
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

    /// Books input of a lingering connection; closes it and says false when it was too much.
    fn drop_input(&mut self, token: Token, bytes: usize) -> bool {
        let Some(connection) = &mut self.connections[token.slot() as usize] else { return false };
        let Tail::Lingering(linger) = &mut connection.tail else { return false };
        let goes_on = linger.drops(bytes);
        if !goes_on {
            self.close(token, CloseCause::Session);
        }
        goes_on
    }

    /// Sends what waits; when all of it has left, the session goes on.
    fn flush(&mut self, token: Token) {
        let Some(connection) = &mut self.connections[token.slot() as usize] else { return };
        let Tail::Waiting(output) = &mut connection.tail else { return };
        match output.flush(socket(&self.table, token), &self.counters) {
            Ok(Flushed::All) => {
                connection.tail = Tail::None;
                connection.conversation.output_left();
                self.table.stop_write(token);
                self.play(token, None, 0);
            }
            Ok(Flushed::Full) => {
                self.table.cannot_write(token);
                self.table.want_write(token);
            }
            Ok(Flushed::Budget) => self.unfinished.push(ConnectionId(token)),
            Err(cause) => self.close(token, cause),
        }
    }

    /// Calls the session with the first `input_len` bytes of the shared buffer, and carries on
    /// as it wishes.
    fn play(&mut self, token: Token, occasion: Option<Occasion>, input_len: usize) {
        let Some(connection) = &mut self.connections[token.slot() as usize] else { return };
        let Connection { conversation, tail, .. } = connection;
        let now = self.clock.now();
        let id = ConnectionId(token);
        let mut turn = Turn { now, id, wakes: &mut self.wakes };
        let mut wire = Wire {
            socket: socket(&self.table, token),
            room: &mut self.room,
            tail,
            counters: &self.counters,
            limits: &self.limits,
            now: now.at,
        };
        let shared = &mut self.shared;
        let told = match occasion {
            Some(occasion) => conversation.occasion(occasion, shared, &mut turn, &mut wire),
            None => Ok(()),
        };
        let input = &self.input[..input_len];
        let done = told.and_then(|()| conversation.pump(shared, &mut turn, &mut wire, input));
        self.settle(token, done, input_len > 0);
    }

    /// After a call: what the connection waits for from now on.
    fn settle(&mut self, token: Token, done: Result<Progress, CloseCause>, is_receiving: bool) {
        let Some(connection) = &mut self.connections[token.slot() as usize] else { return };
        match done {
            Err(cause) => return self.close(token, cause),
            Ok(Progress::Unfinished) => self.unfinished.push(ConnectionId(token)),
            Ok(Progress::Rests) => {}
        }
        let Connection { conversation, tail, .. } = connection;
        if let Tail::Waiting(output) = tail {
            if output.is_blocked() {
                self.table.cannot_write(token);
                self.table.want_write(token);
            } else {
                self.unfinished.push(ConnectionId(token));
            }
        } else if let (Some(ending), Tail::None) = (conversation.ending(), &tail) {
            let has_ended = conversation.has_peer_ended();
            if ending == Ending::Close || has_ended {
                let cause = if has_ended { CloseCause::PeerClosed } else { CloseCause::Session };
                return self.close(token, cause);
            }
            // ENOTCONN means that the peer is gone: reading will say so.
            let _ = shutdown(socket(&self.table, token), Shutdown::Write);
            *tail = Tail::Lingering(Linger::new(self.clock.now().at, &self.limits));
        }
        if conversation.wants_input() || tail.is_lingering() {
            self.table.want_read(token);
            if !is_receiving && self.table.left_to_loop(token).read {
                // Perhaps more is there, and no event will tell of it again.
                self.unfinished.push(ConnectionId(token));
            }
        } else {
            self.table.stop_read(token);
        }
        let deadline = tail.deadline(conversation.deadline());
        if self.timers.set(token.slot(), deadline) {
            self.counters.count(Counter::DeadlinesMoved);
        }
    }

    /// Connections that had not finished in the last turn.
    fn go_on(&mut self, mut ids: Vec<ConnectionId>) {
        for id in ids.drain(..) {
            let token = id.0;
            if !self.table.is_current(token) {
                continue;
            }
            match &self.connections[token.slot() as usize] {
                Some(Connection { tail: Tail::Waiting(_), .. }) => self.flush(token),
                Some(Connection { tail: Tail::None, .. }) => {
                    self.play(token, None, 0);
                    self.receive_if_ready(token);
                }
                Some(Connection { tail: Tail::Lingering(_), .. }) => self.receive_if_ready(token),
                None => {}
            }
        }
        if self.unfinished.is_empty() {
            self.unfinished = ids;
        }
    }

    fn receive_if_ready(&mut self, token: Token) {
        if self.connections[token.slot() as usize].is_some() && self.table.left_to_loop(token).read
        {
            // What ended it may lie behind the data: read to the very end.
            self.receive(token, true);
        }
    }

    fn fire_deadlines(&mut self) {
        let mut fired = std::mem::take(&mut self.fired);
        self.timers.expire(self.clock.now().at, &mut fired);
        for slot in fired.drain(..) {
            self.counters.count(Counter::DeadlinesFired);
            if let Some(connection) = &self.connections[slot as usize] {
                self.fire(connection.token);
            }
        }
        self.fired = fired;
    }

    fn fire(&mut self, token: Token) {
        let now = self.clock.now().at;
        let Some(connection) = &mut self.connections[token.slot() as usize] else { return };
        match connection.tail.due(connection.conversation.deadline(), now, &self.limits) {
            Due::Close(cause) => self.close(token, cause),
            Due::Later(deadline) => {
                self.timers.set(token.slot(), deadline);
            }
            Due::Session => {
                connection.conversation.deadline_fired();
                self.play(token, Some(Occasion::Deadline), 0);
            }
        }
    }

    /// Calls the sessions that others woke; those that are woken now come in the next turn.
    fn wake_sessions(&mut self) {
        if self.wakes.is_empty() {
            return;
        }
        let mut woken = std::mem::take(&mut self.wakes);
        for id in woken.drain(..) {
            if self.table.is_current(id.0) {
                self.counters.count(Counter::SessionWakes);
                self.play(id.0, Some(Occasion::Wake), 0);
            }
        }
        if self.wakes.is_empty() {
            self.wakes = woken;
        }
    }

    fn accept(&mut self, has_connections: bool) {
        let now = self.clock.now();
        if self.admission.is_paused() {
            if !self.admission.may_resume(self.open_for_accepts(), now.at, &self.limits) {
                return;
            }
            for token in &self.listeners {
                self.table.want_read(*token);
            }
            return;
        }
        if !has_connections {
            return;
        }
        for index in 0..self.listeners.len() {
            let token = self.listeners[index];
            let open = self.open_for_accepts();
            let (socket, limits) = (socket(&self.table, token), &self.limits);
            let queue = self.admission.accept(socket, open, now.at, limits, &self.counters);
            if queue == Queue::Empty {
                self.table.cannot_read(token);
            }
            let mut arrivals = self.admission.arrivals();
            for socket in arrivals.drain(..) {
                self.welcome(socket);
            }
            self.admission.reuse(arrivals);
            if queue == Queue::Paused {
                self.listeners.iter().for_each(|token| self.table.stop_read(*token));
                return;
            }
        }
    }

    /// What counts against the limit: with others to hand out to, theirs who have the fewest.
    fn open_for_accepts(&self) -> u32 {
        self.hand_out.as_ref().map_or(self.open, |others| others.open_least(self.open))
    }

    /// Starts a session on an accepted socket.
    pub(crate) fn admit(&mut self, socket: OwnedFd) {
        self.insert(socket, |shared, turn, wire| Conversation::accept(shared, turn, wire));
    }

    fn insert(
        &mut self,
        accepted: OwnedFd,
        begin: impl FnOnce(
            &mut S::Shared,
            &mut Turn<'_>,
            &mut Wire<'_>,
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
        let mut tail = Tail::None;
        let mut wire = Wire {
            socket: socket(&self.table, token),
            room: &mut self.room,
            tail: &mut tail,
            counters: &self.counters,
            limits: &self.limits,
            now: now.at,
        };
        let (conversation, done) = begin(&mut self.shared, &mut turn, &mut wire);
        self.connections[slot] = Some(Connection { token, conversation, tail });
        self.open += 1;
        self.settle(token, done, false);
        if self.is_draining {
            self.play(token, Some(Occasion::Drain), 0);
        }
        id
    }

    fn close(&mut self, token: Token, cause: CloseCause) {
        let slot = self.connections.get_mut(token.slot() as usize);
        let Some(connection) = slot.and_then(Option::take) else { return };
        self.open -= 1;
        self.timers.clear(token.slot());
        drop(self.table.remove(token, &mut *self.poller));
        self.counters.count_close(cause);
        connection.conversation.closed(&mut self.shared, cause);
    }
}

/// The socket of a live connection, or a listener.
#[inline]
fn socket(table: &FdTable, token: Token) -> BorrowedFd<'_> {
    table.fd(token).expect("a live token has its descriptor")
}
