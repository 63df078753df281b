//! The active connections of a thread that could take a request, longest idle first.
//!
//! Every active connection has a seat for the whole run, whichever socket it has at the time; a
//! seat stands in the queue at most once, so the queue is never longer than there are seats.

use std::collections::VecDeque;

use pollux_engine::ConnectionId;

#[derive(Clone, Copy, Debug, Default)]
struct Seat {
    /// The connection, while it is idle.
    idle: Option<ConnectionId>,
    is_queued: bool,
}

/// Who is idle.
#[derive(Debug)]
pub(crate) struct Seats {
    seats: Vec<Seat>,
    queue: VecDeque<u32>,
    idle: u32,
}

impl Seats {
    /// So many seats, nobody idle.
    pub(crate) fn new(seats: u32) -> Self {
        let seats = vec![Seat::default(); seats as usize];
        Self { queue: VecDeque::with_capacity(seats.len()), seats, idle: 0 }
    }

    /// The connection of `seat` could take a request.
    pub(crate) fn is_idle(&mut self, seat: u32, id: ConnectionId) {
        let entry = &mut self.seats[seat as usize];
        if entry.idle.replace(id).is_none() {
            self.idle += 1;
        }
        if !std::mem::replace(&mut entry.is_queued, true) {
            self.queue.push_back(seat);
        }
    }

    /// It can't any more.
    #[inline]
    pub(crate) fn is_busy(&mut self, seat: u32) {
        if self.seats[seat as usize].idle.take().is_some() {
            self.idle -= 1;
        }
    }

    /// Takes the one that is idle for the longest time.
    pub(crate) fn pop(&mut self) -> Option<ConnectionId> {
        while let Some(seat) = self.queue.pop_front() {
            let entry = &mut self.seats[seat as usize];
            entry.is_queued = false;
            if let Some(id) = entry.idle.take() {
                self.idle -= 1;
                return Some(id);
            }
        }
        None
    }

    /// How many are idle.
    #[inline]
    pub(crate) fn idle(&self) -> u32 {
        self.idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pollux_engine::{Actions, Driver, EventLoop, Limits, Listener, Session};

    /// Connections have ids only in a loop.
    struct Nobody;

    impl Session for Nobody {
        type Shared = ();
        fn accepted(_: &mut (), _: &mut Actions<'_>) -> Self {
            Self
        }
        fn on_bytes(&mut self, _: &mut (), _: &mut Actions<'_>, input: &[u8]) -> usize {
            input.len()
        }
        fn on_end(&mut self, _: &mut (), _: &mut Actions<'_>) {}
        fn on_deadline(&mut self, _: &mut (), _: &mut Actions<'_>) {}
        fn on_drain(&mut self, _: &mut (), _: &mut Actions<'_>) {}
    }

    fn ids(count: usize) -> Vec<ConnectionId> {
        let listener = Listener::open(&"127.0.0.1:0".parse().expect("an address"), false);
        let listener = listener.expect("a listener");
        let to = pollux_engine::ConnectTo { peer: listener.address().clone(), source: None };
        let driver: Driver = "poll".parse().expect("a driver");
        let mut event_loop = EventLoop::open(driver, (), Limits::default()).expect("a loop");
        let mut connect = || {
            let begun = event_loop.connect(&to, Nobody, pollux_engine::Moment::NEVER);
            begun.map_err(|(_, error)| error).expect("begun")
        };
        (0..count).map(|_| connect()).collect()
    }

    #[test]
    fn who_is_idle_longest_comes_first_and_nobody_comes_twice() {
        let ids = ids(4);
        let mut seats = Seats::new(3);
        (0..3).for_each(|seat| seats.is_idle(seat, ids[seat as usize]));
        seats.is_busy(1);
        assert_eq!((seats.idle(), seats.pop()), (2, Some(ids[0])));
        // A seat that was queued keeps its place, with its new connection.
        seats.is_idle(1, ids[3]);
        seats.is_idle(1, ids[3]);
        assert_eq!((seats.pop(), seats.pop(), seats.pop()), (Some(ids[3]), Some(ids[2]), None));
        assert_eq!(seats.idle(), 0);
    }
}
