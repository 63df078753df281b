//! What both loops keep, and the turn that they take alike.
//!
//! ```text
//!  commands ► prepare ► wait ► serve what came ► unfinished ones ► deadlines ► commands ► wakes ► accept
//!                                                                               └ again ┘
//! ```
//!
//! [`TurnLoop`] is what differs: how a loop waits, serves and calls a session. Commands, deadlines,
//! wakes and connects stand here once.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use pollux_poller::Token;
use pollux_sys::descriptors::NONE_LEFT;
use rustix::io::Errno;

use crate::actions::Sharing;
use crate::admission::{Admission, LoopBalancer};
use crate::clock::Clock;
use crate::connecting::{Begun, begin, outcome};
use crate::conversation::{Conversation, SessionCall};
use crate::flow::Flow;
use crate::output::{Expiry, OutputState};
use crate::session::refused;
use crate::sources::Sources;
use crate::timerfd::Alarm;
use crate::timers::Timers;
use crate::trimming::Trimming;
use crate::{
    AcceptedSocket, CloseCause, Command, ConnectError, ConnectTo, ConnectionId, Counter, Counters,
    Limits, Moment, Session,
};

/// Times in a turn that commands are done which the calls for others left: a bound, as two sessions may wake
/// each other for ever.
const FURTHER_ROUNDS: u32 = 3;

/// What a loop keeps beside its connections, whatever drives it.
pub(crate) struct TurnState<S: Session> {
    pub(crate) shared: S::Shared,
    pub(crate) limits: Limits,
    pub(crate) counters: Arc<Counters>,
    pub(crate) clock: Clock,
    pub(crate) timers: Timers,
    pub(crate) alarm: Alarm,
    pub(crate) sources: Sources<S::Shared>,
    pub(crate) admission: Admission,
    /// Where accepted connections go first.
    pub(crate) hand_out: Option<LoopBalancer>,
    /// Connections that are open.
    pub(crate) open: u32,
    /// Of those, the ones that go to peers.
    pub(crate) outgoing: u32,
    trimming: Trimming,
    /// Sessions to be called in this turn, or the next one.
    pub(crate) wakes: Vec<ConnectionId>,
    /// Connections that continue in the next turn, whatever happens.
    pub(crate) unfinished: Vec<ConnectionId>,
    /// Empty between two turns; kept for its memory.
    fired: Vec<u32>,
    pub(crate) is_draining: bool,
}

impl<S: Session> TurnState<S> {
    pub(crate) fn new(
        shared: S::Shared,
        limits: Limits,
        clock: Clock,
        counters: Arc<Counters>,
        alarm: Alarm,
    ) -> Self {
        Self {
            shared,
            limits,
            counters,
            timers: Timers::new(clock.now().at),
            clock,
            alarm,
            sources: Sources::new(),
            admission: Admission::new(),
            hand_out: None,
            open: 0,
            outgoing: 0,
            trimming: Trimming::new(),
            wakes: Vec::new(),
            unfinished: Vec::new(),
            fired: Vec::new(),
            is_draining: false,
        }
    }

    /// Lets `hand_out` have accepted connections first.
    pub(crate) fn hand_out(&mut self, hand_out: LoopBalancer) {
        self.admission.accept_for_others();
        self.hand_out = Some(hand_out);
    }

    /// Gives an accepted connection to the loop that should have it; back when that is this one.
    pub(crate) fn hand_over(&mut self, socket: OwnedFd) -> Option<OwnedFd> {
        let Some(hand_out) = &mut self.hand_out else { return Some(socket) };
        let kept = hand_out.give(socket);
        if kept.is_none() {
            self.counters.count(Counter::HandedOut);
        }
        kept
    }

    /// What counts against the limit: with others to hand out to, the count of the loop with the fewest.
    pub(crate) fn open_for_accepts(&self) -> u32 {
        let own = self.limits.accepted(self.open, self.outgoing);
        self.hand_out.as_ref().map_or(own, |others| others.open_least(own))
    }

    /// Counts a connection that is there from now on.
    #[inline]
    pub(crate) fn opened(&mut self, conversation: &Conversation<S>) {
        self.outgoing += u32::from(conversation.is_outgoing());
        self.open += 1;
        self.trimming.opened();
    }

    /// Notes whether the output of a connection waits for its peer, after each call that can change it.
    #[inline]
    pub(crate) fn note_waiting(&mut self, conversation: &mut Conversation<S>) {
        if let Some(is_waiting) = conversation.waiting_changed() {
            self.trimming.waits(is_waiting, self.clock.now().at);
        }
    }

    /// Forgets a connection that is there no more.
    #[inline]
    pub(crate) fn closed(&mut self, token: Token, conversation: &Conversation<S>) {
        self.open -= 1;
        let now = self.clock.now().at;
        if conversation.was_waiting() {
            self.trimming.waits(false, now);
        }
        self.trimming.closed(now);
        self.outgoing -= u32::from(conversation.is_outgoing());
        self.timers.clear(token.slot());
    }

    /// How long a turn may sleep from `began` on, when the caller allows `at_most`.
    fn patience(&mut self, at_most: Option<Duration>, began: Moment) -> Option<Duration> {
        if !self.unfinished.is_empty() || !self.wakes.is_empty() {
            return Some(Duration::ZERO);
        }
        let deadline = self.timers.next_deadline().unwrap_or(Moment::NEVER);
        let alarm = deadline
            .min(self.admission.resumes_at())
            .min(S::next_command_at(&self.shared))
            .min(self.trimming.due());
        let timeout = self.alarm.end_wait_at(alarm, began);
        timeout.into_iter().chain(at_most).min()
    }

    /// Gives back what connections needed that have left, once that is due.
    #[cold]
    fn give_back_memory(&mut self) {
        let receives = self.counters.value(Counter::Receives);
        if !self.trimming.begin(receives, self.clock.now().at) {
            return;
        }
        S::release_memory(&mut self.shared);
        if pollux_sys::heap::trim() {
            self.counters.count(Counter::HeapTrims);
        }
    }
}

/// One connection of a loop, and the loop's state beside it.
pub(crate) struct ConnectionView<'a, S: Session> {
    pub(crate) socket: BorrowedFd<'a>,
    pub(crate) conversation: &'a mut Conversation<S>,
    pub(crate) output_state: &'a mut OutputState,
    pub(crate) flow: &'a mut Flow,
    pub(crate) state: &'a mut TurnState<S>,
}

/// A loop that takes turns: what differs between the two, and below it what they do alike.
pub(crate) trait TurnLoop<S: Session> {
    fn state(&mut self) -> &mut TurnState<S>;

    fn view(&mut self, token: Token) -> Option<ConnectionView<'_, S>>;

    /// The connection that is in `slot` now.
    fn token_of(&self, slot: u32) -> Option<Token>;

    /// Whether the connection is there and this loop may act on it.
    fn may_call(&mut self, token: Token) -> bool;

    /// As `may_call`, where the session may end up not being called.
    fn may_act(&mut self, token: Token) -> bool;

    /// Passes on what the last turn left, before the wait. Says whether something is to be done that
    /// no wait reports.
    fn prepare(&mut self) -> bool;

    /// Waits, spins, or only looks.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    fn wait(&mut self, timeout: Option<Duration>, began: Moment) -> Result<(), LoopError>;

    /// Serves what the wait brought.
    fn serve(&mut self);

    /// Continues a connection that had not finished in the last turn.
    fn proceed(&mut self, token: Token);

    /// Makes this call of the session, and carries on as it requested.
    fn call(&mut self, token: Token, call: SessionCall);

    /// Sends what waits.
    fn flush(&mut self, token: Token);

    fn close(&mut self, token: Token, cause: CloseCause);

    /// Takes this turn's share of new connections.
    fn accept(&mut self);

    /// Whether a waker ended the wait of this turn.
    fn is_woken(&self) -> bool;

    /// Starts a session on an accepted socket.
    fn admit(&mut self, socket: OwnedFd);

    /// Starts a session on a socket that connects, or is connected.
    fn begin_connect(
        &mut self,
        begun: Begun,
        to: &ConnectTo,
        conversation: Conversation<S>,
    ) -> ConnectionId;

    /// Starts a session on an accepted socket, and receives what lies there where that takes no request.
    fn adopt_accepted(&mut self, accepted: AcceptedSocket, session: S);

    /// Starts a session on a connection that was taken from another loop.
    fn take_over(&mut self, sharing: Sharing, session: S, deadline: Moment);

    /// Continues a connection that this loop has never let go of.
    fn take_back(&mut self, token: Token);

    /// What comes before the wait of a turn; says when that begins and how long it may be, when the
    /// caller allows `at_most`.
    fn begin_wait(&mut self, at_most: Option<Duration>) -> (Moment, Option<Duration>) {
        self.run_commands();
        let is_busy = self.prepare();
        let state = self.state();
        let began = state.clock.begin_wait(&state.counters);
        let timeout = if is_busy { Some(Duration::ZERO) } else { state.patience(at_most, began) };
        (began, timeout)
    }

    /// One turn: waits at most `timeout` for something to do, and does it. Says whether a waker ended
    /// the wait.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    fn turn(&mut self, timeout: Option<Duration>) -> Result<bool, LoopError> {
        let (began, timeout) = self.begin_wait(timeout);
        self.wait(timeout, began)?;
        let state = self.state();
        state.counters.count(Counter::Turns);
        let now = state.clock.begin_turn(&state.counters);
        S::begin_turn(&mut state.shared, now);
        let unfinished = std::mem::take(&mut state.unfinished);
        self.serve();
        self.proceed_with(unfinished);
        self.fire_deadlines();
        self.run_commands();
        self.wake_sessions();
        self.run_further_commands();
        self.accept();
        let state = self.state();
        state.trimming.awake(S::awake(&state.shared), now.at);
        if state.trimming.due() <= now.at {
            state.give_back_memory();
        }
        S::end_turn(&mut state.shared);
        Ok(self.is_woken())
    }

    /// Commands and calls of woken sessions, as in a turn, without a wait.
    fn run_commands_now(&mut self) {
        let state = self.state();
        let now = state.clock.begin_turn(&state.counters);
        S::begin_turn(&mut state.shared, now);
        self.run_commands();
        self.wake_sessions();
        self.run_further_commands();
        S::end_turn(&mut self.state().shared);
    }

    /// Does what the calls for commands left, such as the close behind an answer: without this each step would
    /// cost a wait.
    fn run_further_commands(&mut self) {
        for _ in 0..FURTHER_ROUNDS {
            if !self.run_commands() {
                break;
            }
            self.wake_sessions();
        }
    }

    /// Does what the sessions left to be done; says whether there was anything.
    fn run_commands(&mut self) -> bool {
        let mut is_any = false;
        while let Some(command) = S::next_command(&mut self.state().shared) {
            is_any = true;
            match command {
                Command::Wake(id) => self.state().wakes.push(id),
                Command::Connect { to, session, deadline } => {
                    if let Err((session, error)) = self.connect(&to, session, deadline) {
                        refused(&mut self.state().shared, session, error);
                    }
                }
                Command::Adopt { accepted, session } => self.adopt_accepted(accepted, session),
                Command::TakeOver { socket, owner, session, deadline } => {
                    self.take_over(Sharing { socket, owner }, session, deadline);
                }
                Command::TakeBack(id) => self.take_back(id.0),
            }
        }
        is_any
    }

    /// Connections that had not finished in the last turn.
    fn proceed_with(&mut self, mut ids: Vec<ConnectionId>) {
        ids.drain(..).for_each(|ConnectionId(token)| self.proceed(token));
        let state = self.state();
        if state.unfinished.is_empty() {
            state.unfinished = ids;
        }
    }

    fn fire_deadlines(&mut self) {
        let state = self.state();
        let mut fired = std::mem::take(&mut state.fired);
        state.timers.expire(state.clock.now().at, &mut fired);
        for slot in fired.drain(..) {
            self.state().counters.count(Counter::DeadlinesFired);
            if let Some(token) = self.token_of(slot)
                && self.may_act(token)
            {
                self.fire(token);
            }
        }
        self.state().fired = fired;
    }

    fn fire(&mut self, token: Token) {
        let Some(ConnectionView { socket, conversation, output_state, flow, state }) =
            self.view(token)
        else {
            return;
        };
        let deadline = conversation.deadline();
        let now = state.clock.now().at;
        match output_state.due(flow, socket, deadline, now, &state.limits, &state.counters) {
            Expiry::Close(cause) => self.close(token, cause),
            Expiry::Later(deadline) => {
                state.timers.set(token.slot(), deadline);
            }
            Expiry::Flush => {
                state.timers.set(token.slot(), output_state.deadline(flow, deadline));
                self.flush(token);
            }
            Expiry::Session => {
                conversation.deadline_fired();
                self.call(token, SessionCall::Deadline);
            }
        }
    }

    /// Calls the sessions that others woke; those that are woken now come in the next turn.
    fn wake_sessions(&mut self) {
        let state = self.state();
        if state.wakes.is_empty() {
            return;
        }
        let mut woken = std::mem::take(&mut state.wakes);
        for ConnectionId(token) in woken.drain(..) {
            if self.may_call(token) {
                self.state().counters.count(Counter::SessionWakes);
                self.call(token, SessionCall::Wake);
            }
        }
        let state = self.state();
        if state.wakes.is_empty() {
            state.wakes = woken;
        }
    }

    /// Starts a session on a connection that another loop accepted, unless this one is full.
    fn admit_handed(&mut self, socket: OwnedFd) {
        let state = self.state();
        state.counters.count(Counter::Adopted);
        if state.limits.accepted(state.open, state.outgoing) >= state.limits.connections_max {
            return state.counters.count_close(CloseCause::LoopFull);
        }
        self.admit(socket);
    }

    /// Begins a connection to a peer and a session on it.
    fn connect(
        &mut self,
        to: &ConnectTo,
        session: S,
        deadline: Moment,
    ) -> Result<ConnectionId, (S, ConnectError)> {
        let state = self.state();
        if let Some(connections_max) = state.limits.connects_full(state.open, state.outgoing) {
            return Err((session, ConnectError::LoopFull { connections_max }));
        }
        let begun = match begin(to) {
            Ok(begun) => begun,
            Err(error) => return Err((session, error)),
        };
        state.counters.count(Counter::Connects);
        Ok(self.begin_connect(begun, to, Conversation::connecting(session, deadline)))
    }

    /// A connect has come to its end.
    fn connected(&mut self, token: Token) {
        let Some(ConnectionView { socket, conversation, output_state, flow, state }) =
            self.view(token)
        else {
            return;
        };
        let OutputState::Waiting(output) = output_state else { return };
        if let Err(errno) = outcome(socket) {
            conversation.connect_failed(&mut state.shared, errno.into());
            return self.close(token, CloseCause::ConnectFailed);
        }
        output.connected();
        flow.sent(0, state.clock.now().at, &state.limits);
        if output.is_empty() {
            *output_state = OutputState::None;
            conversation.output_left();
        }
        self.call(token, SessionCall::Connected);
    }
}

/// Why a loop could not be opened, or stopped.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoopError {
    /// The mechanism is not available on this machine, or to this process.
    Unavailable {
        /// As `--poller` has it.
        mechanism: &'static str,
        /// Why, and what would allow it.
        reason: String,
        /// What the kernel said.
        cause: io::Error,
    },
    /// A system call failed in a way that has no meaning of its own here.
    System {
        /// Name of the call.
        call: &'static str,
        /// What the kernel said.
        cause: io::Error,
    },
    /// The poller failed: an error of the loop, with the poller's inside.
    Poller(io::Error),
}

impl LoopError {
    pub(crate) fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Unavailable { .. } => io::ErrorKind::Unsupported,
            _ => self.cause().kind(),
        }
    }

    fn cause(&self) -> &io::Error {
        match self {
            Self::Unavailable { cause, .. } | Self::System { cause, .. } | Self::Poller(cause) => {
                cause
            }
        }
    }

    pub(crate) fn of_poller(error: pollux_poller::Error) -> Self {
        use pollux_poller::Error;
        match error {
            Error::Unavailable { backend, reason, cause } => {
                let mechanism = backend.name();
                Self::Unavailable { mechanism, reason, cause }
            }
            Error::System { call, cause } => Self::System { call, cause },
            other => Self::Poller(other.into()),
        }
    }
}

/// With the kind of its cause; the error itself is inside.
impl From<LoopError> for io::Error {
    fn from(error: LoopError) -> Self {
        Self::new(error.kind(), error)
    }
}

impl fmt::Display for LoopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable { mechanism, reason, .. } => {
                write!(f, "{mechanism} is not available here: {reason}")
            }
            Self::System { call, cause } => match Errno::from_io_error(cause) {
                Some(Errno::MFILE | Errno::NFILE) => write!(f, "{call} failed: {NONE_LEFT}"),
                _ => write!(f, "{call} failed"),
            },
            Self::Poller(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LoopError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // It speaks for itself in `fmt`.
            Self::Poller(error) => error.source(),
            other => Some(other.cause()),
        }
    }
}
