//! Which connections a loop accepts: the budget of a turn, the connection limit, the pauses of its listeners.
//!
//! Both loops accept after the live connections had their turn, so that a storm of new ones can't starve them:
//! what is beyond the budget waits in the kernel's backlog.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::listener::{Accepted, accept};
use crate::{Counter, Counters, Limits, Moment};

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
        self.pause = Some(match self.is_for_others {
            true => Pause::Until(now + limits.accept_pause),
            false => Pause::Full,
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
        let (counters, limits) = (Counters::default(), limits(2));
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
