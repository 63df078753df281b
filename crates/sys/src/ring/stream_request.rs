//! The requests of a stream ring: what each asks of the kernel, and what its completion means.
//!
//! The completion loop calls these methods. Each builds one entry; the head of `stream.rs` and [`push`] say why
//! what an entry references stays valid. [`Sending`] has those that send out of the arena apart, usable while
//! receive buffers are being read: a session answers while it reads its input, which lies in a leased buffer.

use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::{io, mem, ptr};

use io_uring::{opcode, squeue, types};

use super::ledger::{ARMED, InFlight, Kept, OWNED};
use super::memory::{Arena, Sent};
use super::pool::Received;
use super::stream::{GROUP, StreamRing};
use super::{QueueFull, Request, Ring, Shots};

impl StreamRing {
    /// The largest number that a request may carry: the two upper bits are the ring's.
    pub const USER_DATA_MAX: u64 = ARMED - 1;

    /// Queues a receive into one of the ring's buffers, which comes with the completion. With
    /// [`Shots::Many`] it stays armed until the end of the stream (result 0), an error, or until
    /// the kernel gives up: every completion without `has_more` ends it.
    ///
    /// ENOBUFS means that no buffer was left, possibly without any bytes to receive: arm it
    /// anew when buffers were given back. O_NONBLOCK on the socket makes no difference: an
    /// empty socket is waited for.
    ///
    /// # Errors
    /// [`QueueFull`]; nothing was queued.
    ///
    /// # Panics
    /// When `user_data` is above [`StreamRing::USER_DATA_MAX`], as with every request.
    pub fn receive(&mut self, fd: RawFd, shots: Shots, user_data: u64) -> Result<(), QueueFull> {
        let fd = types::Fd(fd);
        let entry = match shots {
            Shots::Many => opcode::RecvMulti::new(fd, GROUP).build(),
            // All that a buffer takes.
            Shots::One => receive_once(fd.0, 0),
        };
        self.push_armed(&entry.user_data(numbered(user_data) | ARMED))
    }

    /// As [`StreamRing::receive`] with [`Shots::One`], of so many bytes at most.
    ///
    /// # Errors
    /// [`QueueFull`]; nothing was queued.
    ///
    /// # Panics
    /// When `bytes_max` is 0.
    pub fn receive_once(
        &mut self,
        fd: RawFd,
        bytes_max: u32,
        user_data: u64,
    ) -> Result<(), QueueFull> {
        assert!(bytes_max > 0, "0 stands for a whole buffer");
        self.push_armed(&receive_once(fd, bytes_max).user_data(numbered(user_data) | ARMED))
    }

    /// As [`StreamRing::receive`] with [`Shots::Many`], until enough came: the completion that brings the last of it has no
    /// `has_more`. No cancellation is needed then to receive no more.
    ///
    /// # Errors
    /// [`QueueFull`]; nothing was queued.
    ///
    /// # Panics
    /// Where [`StreamRing::bounds_receives`] is false, and when a part of `bound` is 0.
    pub fn receive_up_to(
        &mut self,
        fd: RawFd,
        bound: Bound,
        user_data: u64,
    ) -> Result<(), QueueFull> {
        let is_known = self.bounds_receives() && bound.each > 0 && bound.enough > 0;
        assert!(is_known, "a bound that this kernel knows");
        self.push_armed(&receive_up_to(fd, bound).user_data(numbered(user_data) | ARMED))
    }

    /// Queues a poll of `fd` for `events` (`poll(2)` bits, and EPOLLEXCLUSIVE).
    ///
    /// # Errors
    /// [`QueueFull`]; nothing was queued.
    pub fn poll(
        &mut self,
        fd: RawFd,
        events: u32,
        shots: Shots,
        user_data: u64,
    ) -> Result<(), QueueFull> {
        let user_data = numbered(user_data) | ARMED;
        self.push_armed(&Request::PollAdd { fd, events, shots, user_data }.entry())
    }

    /// Queues an accept (SOCK_CLOEXEC and SOCK_NONBLOCK, without the peer's address). The connection comes with
    /// the completion; one that is not taken is closed.
    ///
    /// # Errors
    /// [`QueueFull`]; nothing was queued.
    pub fn accept(
        &mut self,
        fd: RawFd,
        shots: Shots,
        user_data: u64,
    ) -> Result<InFlight, QueueFull> {
        let fd = types::Fd(fd);
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let entry = match shots {
            Shots::Many => opcode::AcceptMulti::new(fd).flags(flags).build(),
            Shots::One => {
                opcode::Accept::new(fd, ptr::null_mut(), ptr::null_mut()).flags(flags).build()
            }
        };
        self.push_owned(entry, user_data, Kept::Accepting).map_err(|(full, _)| full)
    }

    /// Queues the end of the receive or poll `target`, which completes with ECANCELED, or as it
    /// would have without. Completes itself only when it failed: ENOENT when no such request
    /// is armed, EALREADY when it is just about to complete.
    ///
    /// # Errors
    /// [`QueueFull`]; nothing was queued.
    pub fn cancel(&mut self, target: u64, user_data: u64) -> Result<(), QueueFull> {
        self.push_cancel(numbered(target) | ARMED, user_data)
    }

    /// As [`StreamRing::cancel`], of an accept or a request with a buffer. That request's own
    /// completion hands the buffer back, never the cancellation.
    ///
    /// # Errors
    /// [`QueueFull`]; nothing was queued.
    pub fn cancel_owned(&mut self, target: InFlight, user_data: u64) -> Result<(), QueueFull> {
        self.push_cancel(target.number(), user_data)
    }

    /// Queues the closing of `fd`. Completes only when it failed. Requests that are armed on
    /// the file keep it open: end them first, or the peer sees no end.
    ///
    /// # Errors
    /// [`QueueFull`] with the descriptor; nothing was queued.
    pub fn close(&mut self, fd: OwnedFd, user_data: u64) -> Result<(), (QueueFull, OwnedFd)> {
        let entry = opcode::Close::new(types::Fd(fd.as_raw_fd())).build();
        match self.push(&silent(entry, user_data)) {
            Ok(()) => {
                // The kernel closes it from here on.
                let _ = fd.into_raw_fd();
                Ok(())
            }
            Err(full) => Err((full, fd)),
        }
    }

    /// Queues the sending of the first `len` bytes of [`StreamRing::spare`], which are no
    /// longer spare from now on.
    ///
    /// It never waits for the peer: it is over when the call that submits it returns. It
    /// completes only when not everything was taken: with the number of bytes that were, or a
    /// negated errno (EAGAIN: none; EPIPE, without a signal). [`StreamRing::sent_bytes`] has
    /// the rest. Two sends on one socket keep their order, but the second is tried even if the
    /// first was cut short: queue one for each connection and submission.
    ///
    /// # Errors
    /// [`QueueFull`]; nothing was queued and the bytes are still spare.
    ///
    /// # Panics
    /// When `len` is 0 or more than is spare.
    #[inline]
    pub fn send_spare(&mut self, fd: RawFd, len: usize, user_data: u64) -> Result<Sent, QueueFull> {
        self.sending().send_spare(fd, len, user_data)
    }

    /// Queues the sending of `buffer[from..]`; waits for the peer to make room. Completes with
    /// the number of bytes taken, which may be fewer, or a negated errno, and hands the buffer
    /// back with it.
    ///
    /// # Errors
    /// [`QueueFull`] with the buffer; nothing was queued.
    ///
    /// # Panics
    /// When `from` is not inside the buffer.
    pub fn send_owned(
        &mut self,
        fd: RawFd,
        buffer: Vec<u8>,
        from: usize,
        user_data: u64,
    ) -> Result<InFlight, (QueueFull, Vec<u8>)> {
        let rest = &buffer[from..];
        assert!(!rest.is_empty(), "there is something to send");
        let len_bytes = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        let entry = opcode::Send::new(types::Fd(fd), rest.as_ptr(), len_bytes)
            .flags(libc::MSG_NOSIGNAL)
            .build();
        self.push_owned(entry, user_data, Kept::Sending(buffer))
            .map_err(|(full, kept)| (full, kept.into_buffer()))
    }

    fn push_cancel(&mut self, target: u64, user_data: u64) -> Result<(), QueueFull> {
        let user_data = numbered(user_data);
        self.push(&Request::Cancel { target, user_data }.entry())
    }

    fn push_armed(&mut self, entry: &squeue::Entry) -> Result<(), QueueFull> {
        self.push(entry)?;
        self.ledger.armed += 1;
        Ok(())
    }

    fn push_owned(
        &mut self,
        entry: squeue::Entry,
        user_data: u64,
        kept: Kept,
    ) -> Result<InFlight, (QueueFull, Kept)> {
        let user_data = numbered(user_data);
        if self.ledger.owned.is_full() || self.ring.io.submission().is_full() {
            return Err((QueueFull, kept));
        }
        let in_flight = self.ledger.owned.keep(user_data, kept);
        self.push(&entry.user_data(in_flight.number())).expect("there was room");
        Ok(in_flight)
    }
}

fn receive_once(fd: RawFd, bytes_max: u32) -> squeue::Entry {
    let entry = opcode::Recv::new(types::Fd(fd), ptr::null_mut(), bytes_max);
    entry.buf_group(GROUP).build().flags(squeue::Flags::BUFFER_SELECT)
}

/// How much a receive that stays armed may bring: less than the sum of both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bound {
    /// Bytes of one completion at most.
    pub each: u32,
    /// It ends with the completion with which so many bytes have come.
    pub enough: u32,
}

/// A receive that stays armed and has a bound, for which the io-uring crate has no builder: `struct io_uring_sqe` of the
/// kernel's interface, as IORING_OP_RECV reads it.
#[repr(C)]
struct ReceiveEntry {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: i32,
    unused: u64,
    address: u64,
    len_bytes: u32,
    message_flags: u32,
    user_data: u64,
    group: u16,
    personality: u16,
    enough_bytes: u32,
    unused_too: [u64; 2],
}

/// `IORING_RECV_MULTISHOT` of the kernel's interface.
const MULTISHOT: u16 = 1 << 1;

fn receive_up_to(fd: RawFd, bound: Bound) -> squeue::Entry {
    let entry = ReceiveEntry {
        opcode: opcode::Recv::CODE,
        flags: squeue::Flags::BUFFER_SELECT.bits(),
        ioprio: MULTISHOT,
        fd,
        unused: 0,
        address: 0,
        len_bytes: bound.each,
        message_flags: 0,
        user_data: 0,
        group: GROUP,
        personality: 0,
        enough_bytes: bound.enough,
        unused_too: [0; 2],
    };
    // SAFETY: `Entry` is repr(C) over the kernel's 64-byte `io_uring_sqe`, all integers and
    // unions of integers, so every bit pattern is one; `ReceiveEntry` lays the same fields
    // out at the same places without padding, and `transmute` checks the size.
    unsafe { mem::transmute::<ReceiveEntry, squeue::Entry>(entry) }
}

#[inline]
fn numbered(user_data: u64) -> u64 {
    assert!(user_data & (OWNED | ARMED) == 0, "the two upper bits are the ring's");
    user_data
}

/// Completes only when something went wrong.
#[inline]
pub(super) fn silent(entry: squeue::Entry, user_data: u64) -> squeue::Entry {
    entry.flags(squeue::Flags::SKIP_SUCCESS).user_data(numbered(user_data))
}

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
    // SAFETY: what the entries of this module and of the ring's end reference stays
    // valid while they run: receives name the group of buffers only; a send out of the arena
    // lies in what `Arena::take` makes read-only until `reset_arena`, which waits for the queue
    // to be empty; the buffers of owned requests stand in `Owned` until the last completion.
    // The end of the ring (`stream.rs`) keeps all three when requests may be left.
    unsafe { ring.io.submission().push(entry) }.map_err(|_| QueueFull)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_of_a_bounded_receive_is_that_of_the_kernel_header() {
        assert_eq!(size_of::<ReceiveEntry>(), 64);
        assert_eq!(mem::offset_of!(ReceiveEntry, address), 16);
        assert_eq!(mem::offset_of!(ReceiveEntry, len_bytes), 24);
        assert_eq!(mem::offset_of!(ReceiveEntry, user_data), 32);
        assert_eq!(mem::offset_of!(ReceiveEntry, group), 40);
        assert_eq!(mem::offset_of!(ReceiveEntry, enough_bytes), 44);
        let entry = receive_up_to(7, Bound { each: 9, enough: 5 }).user_data(4);
        assert_eq!(entry.get_opcode(), u32::from(opcode::Recv::CODE));
        assert_eq!(entry.get_user_data(), 4);
    }
}
