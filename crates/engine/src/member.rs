//! One loop of a group, in its thread: turns, messages, and the end.
//!
//! How the one loop that accepts for all of a group spreads the connections.
//!
//! That loop asks for each connection that it accepted. What was handed over counts at once: the
//! other loops' own counts lag behind a burst.

use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use pollux_poller::Waker;

use crate::event_loop::EventLoop;
use crate::group::GroupError;
use crate::{
    CloseCause, Counter, Counters, CpuList, Driver, Inbox, Limits, Listener, Sender, Session,
    SharedDate, Undelivered,
};

/// Messages that wait for a loop. Connections that are handed over are most of them; with more
/// than this the acceptor keeps what comes.
const MESSAGES_MAX: usize = 4096;

/// What a [`LoopHandle`](crate::LoopHandle) has done in the loop's thread.
pub(crate) type Call = Box<dyn FnOnce(&mut dyn Any) + Send>;

/// What other threads send to a loop.
pub(crate) enum Message {
    /// Run this connection.
    Admit(OwnedFd),
    /// Call this with the loop: an [`EventLoop`] of the group's sessions.
    Call(Call),
    /// Describe every descriptor, at the end of the turn.
    Describe(mpsc::Sender<Vec<String>>),
    /// No more connections are handed over.
    LastAdmitted,
    /// Come to an end, within this time.
    Drain(Duration),
    /// End now.
    Stop,
}

/// The listeners of a loop, each with whether other loops take connections from it too.
pub(crate) type LoopListeners = Vec<(Listener, bool)>;

/// What a loop's thread is given.
pub(crate) struct Setup {
    pub(crate) index: usize,
    pub(crate) driver: Driver,
    pub(crate) limits: Limits,
    pub(crate) cpus: Option<CpuList>,
    pub(crate) listeners: LoopListeners,
    /// Whether another loop hands connections over to this one.
    pub(crate) is_fed: bool,
    pub(crate) peers: Vec<(Sender<Message, Waker>, Arc<Counters>)>,
    pub(crate) date: Arc<SharedDate>,
}

impl Setup {
    /// Moves the calling thread to its CPU.
    pub(crate) fn pin(&self) -> Result<(), GroupError> {
        let Some(cpus) = &self.cpus else { return Ok(()) };
        cpus.pin(self.index).map(drop).map_err(GroupError::Cpu)
    }
}

/// A loop and its inbox.
pub(crate) struct Member<S: Session> {
    event_loop: EventLoop<S>,
    inbox: Inbox<Message>,
    mail: Vec<Message>,
    /// Another loop may still hand connections over.
    is_fed: bool,
    drain_by: Option<Instant>,
    is_stopped: bool,
}

impl<S: Session + 'static> Member<S> {
    pub(crate) fn new(
        mut event_loop: EventLoop<S>,
        setup: Setup,
    ) -> (Self, Sender<Message, Waker>) {
        let (inbox, sender) = Inbox::new(MESSAGES_MAX, event_loop.waker());
        for (listener, is_shared) in setup.listeners {
            event_loop.listen(listener, is_shared);
        }
        if !setup.peers.is_empty() {
            event_loop.hand_out(HandOut::new(setup.peers, event_loop.counters()));
        }
        let is_fed = setup.is_fed;
        let (mail, drain_by, is_stopped) = (Vec::new(), None, false);
        (Self { event_loop, inbox, mail, is_fed, drain_by, is_stopped }, sender)
    }

    /// Turns until the group ends.
    pub(crate) fn run(mut self) -> Result<(), GroupError> {
        let outcome = self.turn_to_the_end();
        let cause =
            if self.drain_by.is_some() { CloseCause::Drained } else { CloseCause::LoopEnded };
        self.event_loop.close_all(cause);
        outcome
    }

    fn turn_to_the_end(&mut self) -> Result<(), GroupError> {
        while !self.is_over() || self.has_late_mail() {
            let time_left = self.drain_by.map(|end| end.saturating_duration_since(Instant::now()));
            if self.event_loop.turn(time_left).map_err(GroupError::Loop)? {
                self.read_mail();
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        let has_drained = |end: Instant| {
            let may_get_more = self.is_fed || self.event_loop.is_listening();
            let is_empty = self.event_loop.open_connections() == 0 && !may_get_more;
            is_empty || Instant::now() >= end
        };
        self.is_stopped || self.drain_by.is_some_and(has_drained)
    }

    /// Connections that were handed over just before the end are served, or at least closed
    /// and counted.
    fn has_late_mail(&mut self) -> bool {
        self.read_mail();
        !self.is_over()
    }

    fn read_mail(&mut self) {
        let mut mail = std::mem::take(&mut self.mail);
        self.inbox.drain(&mut mail);
        for message in mail.drain(..) {
            self.event_loop.count_message();
            match message {
                Message::Admit(socket) => self.event_loop.admit(socket),
                Message::Call(call) => call(&mut self.event_loop),
                Message::Describe(answer) => {
                    // A requester that has given up takes no answer.
                    let _ = answer.send(self.event_loop.describe());
                }
                Message::LastAdmitted => self.is_fed = false,
                Message::Drain(at_most) => {
                    // A second wish may bring the end nearer, or put it off.
                    self.drain_by = Some(Instant::now() + at_most);
                    self.event_loop.drain();
                }
                Message::Stop => self.is_stopped = true,
            }
        }
        self.mail = mail;
    }
}

struct Peer {
    sender: Sender<Message, Waker>,
    counters: Arc<Counters>,
    handed: u64,
}

impl Peer {
    fn open(&self) -> u64 {
        let begun = self.handed + self.counters.value(Counter::Connects);
        begun.saturating_sub(self.counters.closed_total())
    }
}

/// The other loops of a group, as the accepting one sees them. When it is dropped they are sent that
/// nothing more comes: a loop that drains waits for this.
pub(crate) struct HandOut {
    peers: Vec<Peer>,
    own: Arc<Counters>,
}

impl HandOut {
    /// For the loop that counts in `own`, which is none of `peers`.
    pub(crate) fn new(
        peers: Vec<(Sender<Message, Waker>, Arc<Counters>)>,
        own: Arc<Counters>,
    ) -> Self {
        let peer = |(sender, counters)| Peer { sender, counters, handed: 0 };
        Self { peers: peers.into_iter().map(peer).collect(), own }
    }

    /// How many connections the loop has that has the fewest, when this one has `own`.
    pub(crate) fn open_least(&self, own: u32) -> u32 {
        let least = self.peers.iter().map(Peer::open).min().unwrap_or(u64::MAX);
        own.min(u32::try_from(least).unwrap_or(u32::MAX))
    }

    /// Gives a connection to the loop that has the fewest; back when that is this one, or
    /// no other takes it.
    pub(crate) fn give(&mut self, socket: OwnedFd) -> Option<OwnedFd> {
        let Some(least) = self.peers.iter_mut().min_by_key(|peer| peer.open()) else {
            return Some(socket);
        };
        if self.own.open() <= least.open() {
            return Some(socket);
        }
        match least.sender.send(Message::Admit(socket)).map_err(Undelivered::into_message) {
            Err(Message::Admit(socket)) => Some(socket),
            _ => {
                least.handed += 1;
                None
            }
        }
    }
}

impl Drop for HandOut {
    fn drop(&mut self) {
        for peer in &self.peers {
            // A full inbox is read in the peer's next turn; one that has ended needs no message.
            while let Err(Undelivered::Full(_)) = peer.sender.send(Message::LastAdmitted) {
                std::thread::yield_now();
            }
        }
    }
}
