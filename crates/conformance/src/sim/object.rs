//! What a simulated file can be: the interface of the model objects, and the two small ones.
//!
//! An object answers what is ready at each of its sides, and says with every change which watchers
//! the kernel would wake: that is what makes an edge. It knows no poller and no descriptor; the
//! simulated kernel (`kernel.rs`) carries its wakes to them. What is written has no content.

use std::collections::VecDeque;

use pollux_poller::Readiness;
use rustix::io::Errno;

/// One end of an object with two ends; objects with one have [`Side::A`] only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Side {
    A,
    B,
}

impl Side {
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// A call of the wait queue of one side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wake {
    pub(crate) side: Side,
    /// Only watchers of these conditions are called; none means all.
    pub(crate) key: Readiness,
    /// Exclusive watchers are called like others, not only until one of them was woken.
    pub(crate) is_for_all: bool,
}

impl Wake {
    pub(crate) const fn of(side: Side, key: Readiness) -> Self {
        Self { side, key, is_for_all: false }
    }

    /// What ends and errors do: all watchers look again.
    pub(crate) const fn all(side: Side) -> Self {
        Self { side, key: Readiness::NONE, is_for_all: true }
    }
}

/// A thing that descriptors can name. Operations never block: they give `EAGAIN`.
pub(crate) trait Object {
    /// What `poll(2)` would find at `side`.
    fn readiness(&self, side: Side) -> Readiness;

    /// Takes up to `len_bytes` from `side`.
    fn write(
        &mut self,
        side: Side,
        len_bytes: usize,
        wakes: &mut Vec<Wake>,
    ) -> Result<usize, Errno>;

    /// Gives up to `len_bytes` to `side`; 0 is the end.
    fn read(&mut self, side: Side, len_bytes: usize, wakes: &mut Vec<Wake>)
    -> Result<usize, Errno>;

    /// The last descriptor of `side` was closed.
    fn release(&mut self, side: Side, wakes: &mut Vec<Wake>);

    /// What only sockets can do; `None` where this is not a socket.
    fn as_socket(&mut self) -> Option<&mut crate::sim::streams::Pair> {
        None
    }
}

/// `eventfd(2)`: every write of 8 bytes adds one, a read takes all.
#[derive(Default)]
pub(crate) struct Eventfd {
    count: u64,
}

impl Eventfd {
    /// What one read or write moves.
    const LEN_BYTES: usize = 8;
}

impl Object for Eventfd {
    fn readiness(&self, _: Side) -> Readiness {
        // The counter that would block a writer, 2^64 - 2, can't be reached by ones.
        if self.count > 0 { Readiness::READABLE | Readiness::WRITABLE } else { Readiness::WRITABLE }
    }

    fn write(
        &mut self,
        side: Side,
        len_bytes: usize,
        wakes: &mut Vec<Wake>,
    ) -> Result<usize, Errno> {
        if len_bytes < Self::LEN_BYTES {
            return Err(Errno::INVAL);
        }
        self.count += 1;
        wakes.push(Wake::of(side, Readiness::READABLE));
        Ok(Self::LEN_BYTES)
    }

    fn read(
        &mut self,
        side: Side,
        len_bytes: usize,
        wakes: &mut Vec<Wake>,
    ) -> Result<usize, Errno> {
        if len_bytes < Self::LEN_BYTES {
            return Err(Errno::INVAL);
        }
        if self.count == 0 {
            return Err(Errno::AGAIN);
        }
        self.count = 0;
        wakes.push(Wake::of(side, Readiness::WRITABLE));
        Ok(Self::LEN_BYTES)
    }

    fn release(&mut self, _: Side, _: &mut Vec<Wake>) {}
}

/// A message queue as `mq_overview(7)` has it: each write is one message, each read takes one.
pub(crate) struct Queue {
    messages: VecDeque<usize>,
    capacity_messages: usize,
}

impl Queue {
    pub(crate) fn new(capacity_messages: usize) -> Self {
        assert!(capacity_messages > 0, "a queue for no message can't be made (EINVAL)");
        Self { messages: VecDeque::new(), capacity_messages }
    }

    /// The kernel keeps one wait queue for both directions and calls it without a key.
    fn wake(side: Side) -> Wake {
        Wake::of(side, Readiness::NONE)
    }
}

impl Object for Queue {
    fn readiness(&self, _: Side) -> Readiness {
        let mut found = Readiness::NONE;
        if !self.messages.is_empty() {
            found |= Readiness::READABLE;
        }
        if self.messages.len() < self.capacity_messages {
            found |= Readiness::WRITABLE;
        }
        found
    }

    fn write(
        &mut self,
        side: Side,
        len_bytes: usize,
        wakes: &mut Vec<Wake>,
    ) -> Result<usize, Errno> {
        if self.messages.len() >= self.capacity_messages {
            return Err(Errno::AGAIN);
        }
        self.messages.push_back(len_bytes);
        wakes.push(Self::wake(side));
        Ok(len_bytes)
    }

    fn read(
        &mut self,
        side: Side,
        len_bytes: usize,
        wakes: &mut Vec<Wake>,
    ) -> Result<usize, Errno> {
        let message = *self.messages.front().ok_or(Errno::AGAIN)?;
        if message > len_bytes {
            return Err(Errno::MSGSIZE);
        }
        self.messages.pop_front();
        wakes.push(Self::wake(side));
        Ok(message)
    }

    fn release(&mut self, _: Side, _: &mut Vec<Wake>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_writable_until_it_is_full_and_wakes_all_each_time() {
        let mut queue = Queue::new(2);
        let mut wakes = Vec::new();
        assert_eq!(queue.write(Side::A, 5, &mut wakes), Ok(5));
        assert_eq!(queue.readiness(Side::A), Readiness::READABLE | Readiness::WRITABLE);
        assert_eq!(queue.write(Side::A, 7, &mut wakes), Ok(7));
        assert_eq!(queue.readiness(Side::A), Readiness::READABLE);
        assert_eq!(queue.write(Side::A, 7, &mut wakes), Err(Errno::AGAIN));
        assert_eq!(queue.read(Side::A, 4, &mut wakes), Err(Errno::MSGSIZE));
        assert_eq!(queue.read(Side::A, 64, &mut wakes), Ok(5));
        assert_eq!(wakes, [Queue::wake(Side::A); 3]);
    }

    #[test]
    fn an_eventfd_gives_all_that_was_added_at_once() {
        let mut eventfd = Eventfd::default();
        let mut wakes = Vec::new();
        assert_eq!(eventfd.read(Side::A, 8, &mut wakes), Err(Errno::AGAIN));
        assert_eq!(eventfd.write(Side::A, 8, &mut wakes), Ok(8));
        assert_eq!(eventfd.write(Side::A, 8, &mut wakes), Ok(8));
        assert_eq!(eventfd.read(Side::A, 8, &mut wakes), Ok(8));
        assert_eq!(eventfd.readiness(Side::A), Readiness::WRITABLE);
    }
}
