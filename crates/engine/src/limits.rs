//! What a loop bounds, with the defaults and their reasons; which connections it accepts within that.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;

use crate::listener::{Accepted, accept};
use crate::{Counter, Counters, Moment};

/// Bounds and budgets of one loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most connections open at once; the listener pauses there and continues when one closes.
    /// The default is far below what a process may open as files.
    pub connections_max: u32,
    /// Most connections to peers open at once, which are counted apart then; none to count them
    /// among `connections_max`. For servers that open a connection for what they accepted.
    pub connects_max: Option<u32>,
    /// Most connections accepted in one turn, after all live connections had theirs.
    pub accepts_per_turn: u32,
    /// Most events of one wait: a bigger batch makes the last one wait longer.
    pub events_per_turn: u32,
    /// How long a peer may take nothing of what was sent to it, wherever that waits: then the
    /// connection is closed, up to 1/16 later, and reset when it is a TCP one. What a TCP peer's
    /// kernel acknowledged counts as taken, on a unix socket what the peer has read.
    ///
    /// A peer's kernel reports what it read in steps, of 64 KiB on loopback: in the default time
    /// a peer with 1.1 kB/s makes one.
    pub write_timeout: Duration,
    /// What a peer has to take in each second, in bytes, while something waits for it; 0 for
    /// anything. It may fall behind by 64 KiB and by what this makes in `write_timeout`.
    pub write_rate_min: u64,
    /// How long the peer's last bytes are waited for after the output was ended and taken.
    pub linger_time: Duration,
    /// Most bytes dropped while lingering.
    pub linger_bytes: u64,
    /// How long the listener pauses when no descriptor or memory is left.
    pub accept_pause: Duration,
    /// Whether the loop spins instead of sleeping.
    pub busy_poll: bool,
    /// Whether a readiness loop takes error, hang-up and end of stream for readable where reading is
    /// wanted, so that the read alone tells what it was: against a kernel or a poller that reports wrongly.
    /// A completion loop learns it from its reads in any case.
    pub mask_ends: bool,
}

impl Limits {
    /// Whether a loop with that many open connections, of which `outgoing` go to peers, has as many
    /// as it may have of those that it opens itself; then how many that are.
    pub(crate) fn connects_full(&self, open: u32, outgoing: u32) -> Option<u32> {
        let (count, most) = match self.connects_max {
            Some(most) => (outgoing, most),
            None => (open, self.connections_max),
        };
        (count >= most).then_some(most)
    }

    /// What counts against `connections_max`.
    pub(crate) fn accepted(&self, open: u32, outgoing: u32) -> u32 {
        if self.connects_max.is_some() { open - outgoing } else { open }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            connects_max: None,
            accepts_per_turn: 64,
            events_per_turn: 512,
            write_timeout: Duration::from_secs(60),
            write_rate_min: 512,
            linger_time: Duration::from_secs(2),
            linger_bytes: 1 << 20,
            accept_pause: Duration::from_millis(100),
            busy_poll: false,
            mask_ends: false,
        }
    }
}

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

/// The accepting of one loop.
///
/// Its budget, the connection limit and the pauses of a listener. Both loops ask it after the live connections
/// had their turn, so that a storm of new ones can't starve them: what is beyond the budget waits in the kernel's
/// backlog.
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

    /// From now on other loops take a part of what is accepted. They do not say when they have
    /// room again, so at the limit the listener pauses for a time.
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
