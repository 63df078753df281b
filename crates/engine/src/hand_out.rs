//! What the loops of a group are sent, and how the one that accepts for all spreads its connections over them.

use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use pollux_poller::Waker;

use crate::{Counter, Counters, Sender, Undelivered};

/// What a [`LoopHandle`](crate::LoopHandle) has done in the loop's thread.
pub(crate) type Call = Box<dyn FnOnce(&mut dyn Any) + Send>;

/// What other threads send to a loop.
pub(crate) enum Message {
    /// Run this connection.
    Admit(OwnedFd),
    /// Call this with the loop: an [`EventLoop`](crate::EventLoop) of the group's sessions.
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

/// The other loops of a group, to which the accepting one gives connections.
///
/// What was handed over counts at once, because their own counts lag behind a burst. When this is dropped they
/// are notified that nothing more comes: a loop that drains waits for it.
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

    /// Connections of the least loaded loop, where this one has `own`.
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
