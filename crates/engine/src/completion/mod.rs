//! The completion loop: sessions over io_uring.
//!
//! ```text
//!  ┌► one enter: submit everything, give buffers back, wait
//!  │      │
//!  │      ▼   completions, those of sends that fell short first
//!  │   received ► call ► output into the arena, one send request for each connection
//!  │      │
//!  │  unfinished ones, deadlines, wakes ► accept a share ► end of turn
//!  └──────┘
//! ```
//!
//! A connection's first receive is single-shot: one that ends after one request then costs no
//! cancellation. From the second on a multishot receive stays armed, but for unix sockets
//! (`shots_of` says why); bytes come in buffers of the ring and go back to it within the turn.
//! New connections are accepted after the events of open ones were handled.
//!
//! ```text
//!  this file        the turn: who is called when
//!     ▼
//!  completions.rs   what a completion says: input, room, a source   accepting.rs   new connections
//!     ▼                                                                ▼
//!  connection.rs    a session's call and what follows it: sends, receives, the end
//!     ▼
//!  requests.rs      labels, the queue, one enter   pace.rs   for how many completions it waits
//! ```
//!
//! Each calls those below it alone. `completions.rs` hands an accept that completed to `accepting.rs`, and a connect to
//! what both loops do then (`turn.rs`).

mod accepting;
mod completions;
mod connection;
mod pace;
#[cfg(test)]
mod receiving_tests;
mod requests;

use std::collections::VecDeque;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use pollux_poller::{Token, Waker};
use pollux_sys::descriptors::NONE_LEFT;
use pollux_sys::ring::{
    ReceiveBuffers, RingUnavailable, Shots, Sizes, StreamCompletion, StreamRing, StreamSizes,
};

use crate::actions::Sharing;
use crate::clock::Clock;
use crate::connecting::Begun;
use crate::conversation::{Conversation, Progress, SessionCall};
use crate::output::{Output, OutputState, PendingOutput};
use crate::sources::SourceId;
use crate::timerfd::Alarm;
use crate::turn::{ConnectionView, LoopError, TurnLoop, TurnState};
use crate::{
    AcceptedSocket, CloseCause, ConnectTo, ConnectionId, Counter, Counters, Limits, ListenAddress,
    Moment, Now, Session,
};
use accepting::Listening;
use connection::{Connection, TurnSend, shots_of};
use pace::Pace;
use requests::{Kind, Slots, numbered};

/// Requests between two system calls, completions that wait to be taken, receive buffers and
/// the arena.
///
/// The kernel goes through all receive buffers in turn, so their sum is what they take of the
/// caches; and a receive brings at most one buffer, so its size is what a body is cut into. Of
/// buffers that are filled piece by piece two large ones serve small requests and bodies alike.
const SIZES: StreamSizes = StreamSizes {
    ring: Sizes { submission: 1024, completion: 8192 },
    receive: INCREMENTAL,
    otherwise: Some(WHOLE),
    arena_bytes: 1 << 20,
};

/// Linux 6.12 and newer.
const INCREMENTAL: ReceiveBuffers = ReceiveBuffers::incremental(2, 128 << 10);
/// Before that.
const WHOLE: ReceiveBuffers = ReceiveBuffers::whole(64, 16 << 10);

/// `poll(2)` bit: a connection waits, or the waker was used.
const POLLIN: u32 = 1;

/// `poll(2)` bit: the socket is writable.
const POLLOUT: u32 = 4;

/// One thread's loop over io_uring.
pub(crate) struct CompletionLoop<S: Session> {
    ring: StreamRing,
    backlog: VecDeque<StreamCompletion>,
    connections: Slots<Connection<S>>,
    listeners: Vec<Listening>,
    pub(crate) state: TurnState<S>,
    waker: Waker,
    is_woken: bool,
    /// Number of the next submission.
    submission: u32,
    /// Sends that ride with the next submission, and those of the last one.
    sends: Vec<TurnSend>,
    submitted_sends: Vec<TurnSend>,
    /// The next submission has more than sends: what it completes at once may stand in front of
    /// a send that fell short.
    is_mixed: bool,
    /// Descriptors are free again once the queue was submitted.
    is_closing: bool,
    /// The arena holds only what was submitted.
    is_arena_stale: bool,
    pace: Pace,
    /// A receive of many ends by itself.
    is_bounded: bool,
}

impl<S: Session> CompletionLoop<S> {
    /// A loop with a ring of its own.
    ///
    /// # Errors
    /// io_uring is not available here, or no descriptor is left.
    pub(crate) fn open(
        shared: S::Shared,
        limits: Limits,
        clock: Clock,
        counters: Arc<Counters>,
    ) -> Result<Self, RingUnavailable> {
        Self::with_sizes(SIZES, shared, limits, clock, counters)
    }

    fn with_sizes(
        sizes: StreamSizes,
        shared: S::Shared,
        limits: Limits,
        clock: Clock,
        counters: Arc<Counters>,
    ) -> Result<Self, RingUnavailable> {
        let ring = StreamRing::open(sizes)?;
        let waker = Waker::new()
            .map_err(|error| no_descriptor(error.raw_os_error().unwrap_or_default()))?;
        let alarm = Alarm::new().map_err(|errno| no_descriptor(errno.raw_os_error()))?;
        let mut this = Self {
            is_bounded: ring.bounds_receives(),
            ring,
            backlog: VecDeque::new(),
            connections: Slots::new(),
            listeners: Vec::new(),
            pace: Pace::new(clock.now().at),
            state: TurnState::new(shared, limits, clock, counters, alarm),
            waker,
            is_woken: false,
            submission: 1,
            sends: Vec::new(),
            submitted_sends: Vec::new(),
            is_mixed: false,
            is_closing: false,
            is_arena_stale: false,
        };
        this.watch_waker();
        this.watch_alarm();
        Ok(this)
    }

    /// Takes over a connected socket and starts a session on it.
    pub(crate) fn adopt(&mut self, socket: OwnedFd, session: S) -> ConnectionId {
        let shots = shots_of(&socket);
        self.adopt_with(socket, shots, session)
    }

    fn adopt_with(&mut self, socket: OwnedFd, shots: Shots, session: S) -> ConnectionId {
        self.state.counters.count(Counter::Adopted);
        self.insert(socket, shots, |_, _, _| (Conversation::new(session), Ok(Progress::Idle)))
    }

    pub(crate) fn notes(&self) -> Vec<String> {
        let buffers = self.ring.receive_buffers().to_string();
        self.ring.setup().notes().into_iter().chain([buffers]).collect()
    }

    /// What `show fd` prints: every listener and connection of this loop.
    pub(crate) fn describe(&self) -> Vec<String> {
        let line = |(token, connection): (Token, &Connection<S>)| {
            let Connection { socket, receiving, output_state, conversation, .. } = connection;
            format!(
                "{token:?} fd {} receiving {receiving:?} kept {} bytes{}",
                socket.as_raw_fd(),
                conversation.kept_bytes(),
                match output_state {
                    output_state if output_state.is_connecting() => ", connecting",
                    output_state if output_state.is_waiting() => ", output waits",
                    _ => "",
                },
            )
        };
        let listeners = self.listeners.iter().map(Listening::describe);
        listeners.chain(self.connections.iter().map(line)).collect()
    }

    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Calls [`Session::on_shutdown`] of every session, once, and takes no new connections.
    pub(crate) fn drain(&mut self) {
        if std::mem::replace(&mut self.state.is_draining, true) {
            return;
        }
        for token in self.connections.tokens() {
            self.call_session(token, Some(SessionCall::Shutdown), None);
        }
        self.let_go();
    }

    /// Closes everything that is still open.
    pub(crate) fn close_all(&mut self, cause: CloseCause) {
        self.stop_listening();
        for token in self.connections.tokens() {
            self.close(token, cause);
        }
        S::end_turn(&mut self.state.shared);
        // What was queued, closings among it, still reaches the kernel.
        let _ = self.ring.submit();
    }

    /// Calls `on_readable` in each turn in which `source` is readable.
    ///
    /// # Errors
    /// Of [`crate::sources::Sources::insert`].
    pub(crate) fn watch<T, F>(&mut self, source: T, on_readable: F) -> io::Result<SourceId>
    where
        T: AsFd + 'static,
        F: FnMut(&mut T, &mut S::Shared, Now) -> ControlFlow<()> + 'static,
    {
        let id = self.state.sources.insert(source, on_readable, u32::MAX)?;
        self.arm_source(id);
        Ok(id)
    }

    pub(crate) fn unwatch(&mut self, id: SourceId) -> bool {
        if self.state.sources.fd(id).is_none() {
            return false;
        }
        self.push(|ring| ring.cancel(numbered(Kind::Source, id.0), numbered(Kind::Cleanup, 0)));
        // The poll holds the file until the cancellation was submitted, with the next turn.
        self.state.sources.remove(id);
        true
    }
}

impl<S: Session> TurnLoop<S> for CompletionLoop<S> {
    #[inline]
    fn state(&mut self) -> &mut TurnState<S> {
        &mut self.state
    }

    fn view(&mut self, token: Token) -> Option<ConnectionView<'_, S>> {
        let connection = self.connections.get_mut(token)?;
        let Connection { socket, conversation, output_state, flow, .. } = connection;
        Some(ConnectionView {
            socket: OwnedFd::as_fd(socket),
            conversation,
            output_state,
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
        if !connection.output_state.is_waiting() {
            return self.call_session(token, None, None);
        }
        let is_unfinished = connection.conversation.progress() == Progress::Unfinished;
        self.flush(token);
        if is_unfinished {
            self.call_session(token, None, None);
        }
    }

    fn call(&mut self, token: Token, call: SessionCall) {
        self.call_session(token, Some(call), None);
    }

    /// Not what waits for room: its request reports that.
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

    /// `connect(2)` was called, and a poll waits for room when that is in progress; `connecting.rs` says
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
        output.under_way = is_in_progress.then_some(PendingOutput::Poll);
        let id = self.insert(socket, shots, |_, _, io| {
            *io.output_state = OutputState::Waiting(output);
            (conversation, Ok(Progress::Idle))
        });
        if is_in_progress {
            self.watch_connect(id.0);
        }
        id
    }

    fn adopt_accepted(&mut self, accepted: AcceptedSocket, session: S) {
        let is_tcp = accepted.peer().is_some();
        let socket = OwnedFd::from(accepted);
        let shots = if is_tcp { Shots::Many } else { shots_of(&socket) };
        let ConnectionId(token) = self.adopt_with(socket, shots, session);
        self.call_session(token, Some(SessionCall::Connected), None);
    }

    /// No session of such a loop shares its connection.
    fn take_over(&mut self, _: Sharing, session: S, _: Moment) {
        session.closed(&mut self.state.shared, CloseCause::Aborted);
    }

    fn take_back(&mut self, _: Token) {}
}

fn no_descriptor(errno: i32) -> RingUnavailable {
    RingUnavailable { reason: NONE_LEFT.to_owned(), cause: io::Error::from_raw_os_error(errno) }
}
