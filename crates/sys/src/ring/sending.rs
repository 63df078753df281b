//! The sending side of a stream ring, usable while its receive buffers are being read.
//!
//! A session answers in the same breath in which it is shown its input: the input lies in a
//! leased buffer, the answer goes into the arena, and both belong to one ring.

use std::io;
use std::os::fd::RawFd;

use io_uring::{opcode, squeue, types};

use super::arena::{Arena, Sent};
use super::stream::StreamRing;
use super::stream_request::silent;
use super::{QueueFull, Received, Ring};

/// The arena and the submission queue of a [`StreamRing`].
pub struct Sending<'a> {
    ring: &'a mut Ring,
    arena: &'a mut Arena,
}

impl StreamRing {
    /// The bytes of a receive, and the sending side.
    ///
    /// # Panics
    /// When the lease is of another ring.
    #[inline]
    pub fn bytes_and_sending(&mut self, received: &Received) -> (&[u8], Sending<'_>) {
        let sending = Sending { ring: &mut self.ring, arena: &mut self.arena };
        (self.ledger.pool.bytes(received), sending)
    }

    /// The sending side alone.
    #[inline]
    pub fn sending(&mut self) -> Sending<'_> {
        Sending { ring: &mut self.ring, arena: &mut self.arena }
    }
}

impl Sending<'_> {
    /// As [`StreamRing::spare`].
    #[inline]
    pub fn spare(&mut self) -> &mut [u8] {
        self.arena.spare()
    }

    /// As [`StreamRing::send_spare`].
    ///
    /// # Errors
    /// [`QueueFull`]; nothing was queued and the bytes are still spare.
    ///
    /// # Panics
    /// When `len` is 0 or more than is spare.
    #[inline]
    pub fn send_spare(&mut self, fd: RawFd, len: usize, user_data: u64) -> Result<Sent, QueueFull> {
        const FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
        let start = self.arena.front(len);
        let len_bytes = u32::try_from(len).expect("one request sends less than 4 GiB");
        let entry = opcode::Send::new(types::Fd(fd), start, len_bytes).flags(FLAGS).build();
        push(self.ring, &silent(entry, user_data))?;
        Ok(self.arena.take(len))
    }

    /// As [`Ring::submit`]: makes room in the queue.
    ///
    /// # Errors
    /// As [`Ring::submit`].
    pub fn submit(&mut self) -> io::Result<usize> {
        self.ring.submit()
    }
}

/// Queues an entry that references no memory, or memory of the ring by the stream ring's rules.
#[inline]
pub(super) fn push(ring: &mut Ring, entry: &squeue::Entry) -> Result<(), QueueFull> {
    // SAFETY: what the entries of this module, `stream_request` and `teardown` reference stays
    // valid while they run: receives name the group of buffers only; a send out of the arena
    // lies in what `Arena::take` makes read-only until `reset_arena`, which waits for the queue
    // to be empty; the buffers of owned requests stand in `Owned` until the last completion.
    // `teardown` keeps all three when requests may be left.
    unsafe { ring.io.submission().push(entry) }.map_err(|_| QueueFull)
}
