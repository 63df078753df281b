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
//! New connections are let in after the live ones had their turn (`accepting.rs`).

mod accepting;
mod connecting;
mod connection;
#[cfg(test)]
mod overflow_tests;
mod pace;
mod sending;
mod slots;
mod sources;
mod turns;
mod waiting;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use pollux_poller::{Token, Waker};
use pollux_sys::ring::{
    QueueFull, RingUnavailable, Shots, Sizes, StreamCompletion, StreamRing, StreamSizes,
};
use rustix::net::AddressFamily;
use rustix::net::sockopt::socket_domain;

use crate::admission::Admission;
use crate::alarm::Alarm;
use crate::clock::Clock;
use crate::conversation::{Conversation, Occasion, Progress};
use crate::member::HandOut;
use crate::sources::Sources;
use crate::timers::Timers;
use crate::{CloseCause, ConnectionId, Counter, Counters, Limits, Now, Session};
use accepting::Listening;
use connection::Connection;
use pace::Pace;
use sending::TurnSend;
use slots::Slots;
use slots::{Kind, numbered};

/// Requests between two system calls, completions that wait to be taken, receive buffers and
/// the arena. 256 buffers of 4 KiB stay in the cache of one core; runs with 4,096 were slower.
const SIZES: StreamSizes = StreamSizes {
    ring: Sizes { submission: 1024, completion: 8192 },
    buffers: 256,
    buffer_bytes: 4096,
    arena_bytes: 1 << 20,
};

/// `poll(2)` bit: a connection waits, or the waker was used.
const POLLIN: u32 = 1;

/// One thread's loop over io_uring.
pub(crate) struct CompletionLoop<S: Session> {
    ring: StreamRing,
    backlog: VecDeque<StreamCompletion>,
    connections: Slots<Connection<S>>,
    open: u32,
    /// Of those, the ones that go to peers.
    outgoing: u32,
    listeners: Vec<Listening>,
    admission: Admission,
    timers: Timers,
    alarm: Alarm,
    clock: Clock,
    limits: Limits,
    counters: Arc<Counters>,
    shared: S::Shared,
    sources: Sources<S::Shared>,
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
    wakes: Vec<ConnectionId>,
    unfinished: Vec<ConnectionId>,
    fired: Vec<u32>,
    hand_out: Option<HandOut>,
    is_draining: bool,
    pace: Pace,
}

impl<S: Session> CompletionLoop<S> {
    /// A loop with a ring of its own.
    ///
    /// # Errors
    /// io_uring is not to be had here, or no descriptor is left.
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
            ring,
            backlog: VecDeque::new(),
            connections: Slots::new(),
            open: 0,
            outgoing: 0,
            listeners: Vec::new(),
            admission: Admission::new(),
            alarm,
            timers: Timers::new(clock.now().at),
            pace: Pace::new(clock.now().at),
            clock,
            limits,
            counters,
            shared,
            sources: Sources::new(),
            waker,
            is_woken: false,
            submission: 1,
            sends: Vec::new(),
            submitted_sends: Vec::new(),
            is_mixed: false,
            is_closing: false,
            is_arena_stale: false,
            wakes: Vec::new(),
            unfinished: Vec::new(),
            fired: Vec::new(),
            hand_out: None,
            is_draining: false,
        };
        this.watch_waker();
        this.watch_alarm();
        Ok(this)
    }

    /// Takes over a connected socket and starts a session on it.
    pub(crate) fn adopt(&mut self, socket: OwnedFd, session: S) -> ConnectionId {
        self.counters.count(Counter::Adopted);
        let shots = shots_of(&socket);
        self.insert(socket, shots, |_, _, _| (Conversation::new(session), Ok(Progress::Idle)))
    }

    /// Starts a session on an accepted socket.
    fn admit(&mut self, socket: OwnedFd, shots: Shots) {
        self.insert(socket, shots, |shared, turn, io| Conversation::accept(shared, turn, io));
    }

    /// Starts a session on a connection that another loop accepted, unless this one is full.
    pub(crate) fn admit_handed(&mut self, socket: OwnedFd) {
        self.counters.count(Counter::Adopted);
        if self.limits.accepted(self.open, self.outgoing) >= self.limits.connections_max {
            self.counters.count_close(CloseCause::LoopFull);
            return;
        }
        let shots = shots_of(&socket);
        self.admit(socket, shots);
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

    fn welcome(&mut self, socket: OwnedFd, shots: Shots) {
        let kept = match &mut self.hand_out {
            Some(hand_out) => hand_out.give(socket),
            None => Some(socket),
        };
        match kept {
            Some(socket) => self.admit(socket, shots),
            None => self.counters.count(Counter::HandedOut),
        }
    }

    pub(crate) fn notes(&self) -> Vec<String> {
        let StreamSizes { buffers, buffer_bytes, .. } = SIZES;
        let buffers = format!("{buffers} receive buffers of {buffer_bytes} bytes");
        self.ring.setup().notes().into_iter().chain([buffers]).collect()
    }

    /// What `show fd` prints: every listener and connection of this loop.
    pub(crate) fn describe(&self) -> Vec<String> {
        let line = |(token, connection): (Token, &Connection<S>)| {
            let Connection { socket, receiving, tail, conversation, .. } = connection;
            format!(
                "{token:?} fd {} receiving {receiving:?} kept {} bytes{}",
                socket.as_raw_fd(),
                conversation.kept_bytes(),
                match tail {
                    tail if tail.is_connecting() => ", connecting",
                    tail if tail.is_waiting() => ", output waits",
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

    /// Connections that are open.
    pub(crate) fn open_connections(&self) -> u32 {
        self.open
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
        for token in self.connections.tokens() {
            self.play(token, Some(Occasion::Drain), None);
        }
        self.let_go();
    }

    /// Closes everything that is still open.
    pub(crate) fn close_all(&mut self, cause: CloseCause) {
        self.stop_listening();
        for token in self.connections.tokens() {
            self.close(token, cause);
        }
        S::end_turn(&mut self.shared);
        // What was queued, closings among it, still reaches the kernel.
        let _ = self.ring.submit();
    }

    fn watch_alarm(&mut self) {
        let fd = self.alarm.fd().as_raw_fd();
        self.push(|ring| ring.poll(fd, POLLIN, Shots::Many, numbered(Kind::Alarm, 0)));
    }

    fn watch_waker(&mut self) {
        let fd = self.waker.fd().as_raw_fd();
        self.push(|ring| ring.poll(fd, POLLIN, Shots::Many, numbered(Kind::Waker, 0)));
    }

    /// What counts against the limit: with others to hand out to, theirs who have the fewest.
    fn open_for_accepts(&self) -> u32 {
        let own = self.limits.accepted(self.open, self.outgoing);
        self.hand_out.as_ref().map_or(own, |others| others.open_least(own))
    }

    /// Queues a request, making room in the queue where needed.
    fn push(&mut self, mut request: impl FnMut(&mut StreamRing) -> Result<(), QueueFull>) {
        self.is_mixed = true;
        let mut tries = 0;
        while request(&mut self.ring).is_err() {
            self.submit();
            tries += 1;
            assert!(tries < SUBMITS_MAX, "the kernel takes no requests from a full queue");
        }
    }
}

/// How a connection receives from its second receive on.
///
/// From Linux 6.17 on a multishot receive of a unix socket misses an end that comes together
/// with data: it takes the socket's word that nothing is left to receive, and is not woken
/// again. Arming anew looks once more.
fn shots_of(socket: &OwnedFd) -> Shots {
    match socket_domain(socket) {
        Ok(AddressFamily::UNIX) => Shots::One,
        _ => Shots::Many,
    }
}

/// Submissions of a full queue before the loop gives up: each makes room unless the kernel has
/// no memory at all.
const SUBMITS_MAX: u32 = 1000;

fn no_descriptor(errno: i32) -> RingUnavailable {
    RingUnavailable {
        reason: "no descriptor is left for waker and timer: raise RLIMIT_NOFILE (ulimit -n)".into(),
        cause: io::Error::from_raw_os_error(errno),
    }
}
