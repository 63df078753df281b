//! Which connections a loop accepts: the budget of a turn, the connection limit, the pauses of its listeners; and how
//! the loop that accepts for a group spreads them over the others, by the messages that loops of a group are sent.
//!
//! Both loops accept after the live connections had their turn, so that a storm of new ones can't starve them:
//! what is beyond the budget waits in the kernel's backlog.

use std::any::Any;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use pollux_poller::Waker;
use rustix::io::Errno;

use crate::listener::{Accepted, accept};
use crate::{Counter, Counters, Limits, Moment, Sender, Undelivered};

/// Whether more connections may wait at the listener after a turn's share was accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Queue {
    /// No call waits any more.
    Empty,
    /// The budget was used up first.
    MayHaveMore,
    /// The listener pauses: [`Admission::may_resume`] says when it continues.
    Paused,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pause {
    /// Until a connection closes.
    Full,
    /// Until then, since other loops do not say when they can take more.
    Until(Moment),
    /// No descriptor or memory was left: until then, or a connection closes.
    Exhausted(Moment),
}

/// The connections that one loop accepts.
#[derive(Debug)]
pub(crate) struct Admission {
    is_for_others: bool,
    pause: Option<Pause>,
    arrivals: Vec<OwnedFd>,
}

impl Admission {
    pub(crate) fn new() -> Self {
        Self { is_for_others: false, pause: None, arrivals: Vec::new() }
    }

    /// From now on other loops take a part of what is accepted. They do not report when
    /// they are below their limit again, so at the limit the listener pauses for a time.
    pub(crate) fn accept_for_others(&mut self) {
        self.is_for_others = true;
    }

    /// Accepts up to `share` connections into [`Admission::arrivals`].
    pub(crate) fn accept(
        &mut self,
        listener: BorrowedFd<'_>,
        open: u32,
        share: u32,
        now: Moment,
        limits: &Limits,
        counters: &Counters,
    ) -> Queue {
        for _ in 0..share {
            if open as usize + self.arrivals.len() >= limits.connections_max as usize {
                self.pause_full(now, limits, counters);
                return Queue::Paused;
            }
            match accept(listener) {
                Accepted::Socket(socket) => {
                    counters.count(Counter::Accepted);
                    self.arrivals.push(socket);
                }
                Accepted::Empty => {
                    counters.count(Counter::AcceptsEmpty);
                    return Queue::Empty;
                }
                Accepted::Aborted => counters.count(Counter::AcceptsAborted),
                // A broken listener is left alone for a while too: the reason may pass.
                Accepted::Exhausted(errno) | Accepted::Broken(errno) => {
                    self.pause_exhausted(errno, now, limits, counters);
                    return Queue::Paused;
                }
            }
        }
        Queue::MayHaveMore
    }

    /// Pauses because there are as many connections as there may be.
    pub(crate) fn pause_full(&mut self, now: Moment, limits: &Limits, counters: &Counters) {
        counters.count(Counter::FullPauses);
        self.pause = Some(if self.is_for_others {
            Pause::Until(now + limits.accept_pause)
        } else {
            Pause::Full
        });
    }

    /// Pauses because no descriptor or memory is left.
    pub(crate) fn pause_exhausted(
        &mut self,
        errno: Errno,
        now: Moment,
        limits: &Limits,
        counters: &Counters,
    ) {
        counters.set_accept_errno(errno);
        counters.count(Counter::AcceptPauses);
        self.pause = Some(Pause::Exhausted(now + limits.accept_pause));
    }

    /// A descriptor of this loop's was closed: a pause for lack of them is over.
    pub(crate) fn freed(&mut self) {
        if let Some(Pause::Exhausted(until)) = &mut self.pause {
            *until = Moment::default();
        }
    }

    /// Takes the connections that were accepted; give the list back with [`Admission::reuse`].
    pub(crate) fn arrivals(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.arrivals)
    }

    /// Keeps the emptied list for the next turn.
    pub(crate) fn reuse(&mut self, list: Vec<OwnedFd>) {
        debug_assert!(list.is_empty(), "an arrival was dropped");
        self.arrivals = list;
    }

    /// Whether listeners are paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.pause.is_some()
    }

    /// When a pause ends by itself.
    pub(crate) fn resumes_at(&self) -> Moment {
        match self.pause {
            Some(Pause::Until(moment) | Pause::Exhausted(moment)) => moment,
            _ => Moment::NEVER,
        }
    }

    /// Ends the pause when its reason is gone; says whether it did.
    pub(crate) fn may_resume(&mut self, open: u32, now: Moment, limits: &Limits) -> bool {
        let is_over = match self.pause {
            None => false,
            Some(Pause::Full) => open < limits.connections_max,
            Some(Pause::Until(moment) | Pause::Exhausted(moment)) => moment <= now,
        };
        if is_over {
            self.pause = None;
        }
        is_over
    }
}

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
pub(crate) struct LoopBalancer {
    peers: Vec<Peer>,
    own: Arc<Counters>,
}

impl LoopBalancer {
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

impl Drop for LoopBalancer {
    fn drop(&mut self) {
        for peer in &self.peers {
            // A full inbox is read in the peer's next turn; one that has ended needs no message.
            while let Err(Undelivered::Full(_)) = peer.sender.send(Message::LastAdmitted) {
                std::thread::yield_now();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Listener;
    use std::net::TcpStream;
    use std::os::fd::AsFd;

    fn listener_with(clients: usize) -> (OwnedFd, Vec<TcpStream>) {
        let listener = Listener::open(&"127.0.0.1:0".parse().expect("an address"), false);
        let listener = listener.expect("opened");
        let address = listener.address().to_string();
        let connect = || TcpStream::connect(&address).expect("connected");
        let clients = (0..clients).map(|_| connect()).collect();
        (listener.into_socket(), clients)
    }

    fn limits(connections_max: u32) -> Limits {
        Limits { connections_max, ..Limits::default() }
    }

    #[test]
    fn a_turn_accepts_no_more_than_its_budget() {
        let (listener, _clients) = listener_with(5);
        let counters = Counters::default();
        let mut admission = Admission::new();
        let now = Moment::default();
        let queue = admission.accept(listener.as_fd(), 0, 3, now, &limits(100), &counters);
        assert_eq!((queue, admission.arrivals().len()), (Queue::MayHaveMore, 3));
        let queue = admission.accept(listener.as_fd(), 3, 3, now, &limits(100), &counters);
        assert_eq!((queue, admission.arrivals().len()), (Queue::Empty, 2));
        assert_eq!(counters.value(Counter::Accepted), 5);
    }

    #[test]
    fn at_the_limit_it_pauses_until_a_connection_closes() {
        let (listener, _clients) = listener_with(3);
        let counters = Counters::default();
        let limits = limits(2);
        let mut admission = Admission::new();
        let now = Moment::default();
        let queue = admission.accept(listener.as_fd(), 0, 10, now, &limits, &counters);
        assert_eq!((queue, admission.arrivals().len()), (Queue::Paused, 2));
        assert!(!admission.may_resume(2, now, &limits));
        assert!(admission.is_paused());
        assert!(admission.may_resume(1, now, &limits));
        let queue = admission.accept(listener.as_fd(), 1, 10, now, &limits, &counters);
        assert_eq!((queue, admission.arrivals().len()), (Queue::Paused, 1));
    }
}
