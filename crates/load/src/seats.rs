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
