//! The requests that a [`super::Ring`] takes, and their form for the kernel.
//!
//! The io-uring crate builds all of them but the poll update, which it has no opcode for.
//!
//! The requests of a stream ring: what each asks of the kernel, and what its completion means.
//!
//! The completion loop calls these methods. Each builds one entry; the heads of `stream` and
//! [`StreamRing::push`] say why what an entry references stays valid.
//!
//! The sending side of a stream ring, usable while its receive buffers are being read.
//!
//! A session answers in the same breath in which it is shown its input: the input lies in a
//! leased buffer, the answer goes into the arena, and both belong to one ring.

use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::{io, mem, ptr};

use io_uring::{opcode, squeue, types};

use super::memory::{Arena, Sent};
use super::owned::ARMED;
use super::owned::{InFlight, Kept, OWNED};
use super::stream::{GROUP, StreamRing};
use super::{QueueFull, Received, Ring};

/// How often a poll request completes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shots {
    /// Once, at once if a condition holds already.
    One,
    /// With every wake-up of the file, until it is cancelled or the completion queue is full.
    Many,
}

/// A request made of numbers.
///
/// Descriptors are plain numbers, because a request may wait in the queue longer than any
/// borrow. A number that was closed meanwhile gives EBADF, one that was used again is polled:
/// that shows the readiness of another file and touches neither its data nor memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// Watches `fd` for `events` (`poll(2)` bits, and EPOLLEXCLUSIVE).
    PollAdd {
        /// Number of the descriptor when the request is submitted.
        fd: RawFd,
        /// Conditions to report; error and hang-up are always among them.
        events: u32,
        /// How often.
        shots: Shots,
        /// Comes back with every completion.
        user_data: u64,
    },
    /// Gives the poll request `target` other events and another number, and looks at its
    /// readiness anew. Completes only when that failed: ENOENT when no such request is armed,
    /// EALREADY when it is just about to complete and stays as it was.
    PollUpdate {
        /// `user_data` of the request to change.
        target: u64,
        /// Its `user_data` from now on.
        becomes: u64,
        /// Conditions to report from now on.
        events: u32,
        /// What the request was armed with: an update can't change it.
        shots: Shots,
        /// Comes back with a failure.
        user_data: u64,
    },
    /// Ends the request `target`, which completes with ECANCELED. Completes itself only when
    /// there is no such request (ENOENT).
    ///
    /// This is the general cancellation. IORING_OP_POLL_REMOVE costs the same but leaves a
    /// poll armed that is just about to complete (EALREADY).
    Cancel {
        /// `user_data` of the request to end.
        target: u64,
        /// Comes back with a failure.
        user_data: u64,
    },
}

impl Request {
    pub(super) fn entry(self) -> squeue::Entry {
        match self {
            Self::PollAdd { fd, events, shots, user_data } => {
                opcode::PollAdd::new(types::Fd(fd), events)
                    .multi(shots == Shots::Many)
                    .build()
                    .user_data(user_data)
            }
            Self::PollUpdate { target, becomes, events, shots, user_data } => {
                poll_update(target, becomes, events, shots)
                    .flags(squeue::Flags::SKIP_SUCCESS)
                    .user_data(user_data)
            }
            Self::Cancel { target, user_data } => opcode::AsyncCancel::new(target)
                .build()
                .flags(squeue::Flags::SKIP_SUCCESS)
                .user_data(user_data),
        }
    }
}

/// `struct io_uring_sqe` of the kernel's interface, as IORING_OP_POLL_REMOVE reads it.
#[repr(C)]
struct PollRemoveEntry {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: i32,
    new_user_data: u64,
    target: u64,
    update_flags: u32,
    events: u32,
    user_data: u64,
    unused: [u64; 3],
}

const OP_POLL_REMOVE: u8 = opcode::PollRemove::CODE;
const POLL_ADD_MULTI: u32 = 1 << 0;
const POLL_UPDATE_EVENTS: u32 = 1 << 1;
const POLL_UPDATE_USER_DATA: u32 = 1 << 2;

fn poll_update(target: u64, becomes: u64, events: u32, shots: Shots) -> squeue::Entry {
    let multi = if shots == Shots::Many { POLL_ADD_MULTI } else { 0 };
    // The kernel reads the two halves of the mask in the order that older ones had.
    let events = if cfg!(target_endian = "big") { events.rotate_left(16) } else { events };
    let entry = PollRemoveEntry {
        opcode: OP_POLL_REMOVE,
        flags: 0,
        ioprio: 0,
        fd: -1,
        new_user_data: becomes,
        target,
        update_flags: POLL_UPDATE_EVENTS | POLL_UPDATE_USER_DATA | multi,
        events,
        user_data: 0,
        unused: [0; 3],
    };
    // SAFETY: `Entry` is repr(C) over the kernel's 64-byte `io_uring_sqe`, all integers and
    // unions of integers, so every bit pattern is one; `PollRemoveEntry` lays the same fields
    // out at the same places without padding, and `transmute` checks the size.
    unsafe { mem::transmute::<PollRemoveEntry, squeue::Entry>(entry) }
}

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
            Shots::One => opcode::Recv::new(fd, ptr::null_mut(), 0)
                .buf_group(GROUP)
                .build()
                .flags(squeue::Flags::BUFFER_SELECT),
        };
        self.push_armed(&entry.user_data(numbered(user_data) | ARMED))
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
    /// the completion; one that nobody takes is closed.
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
    // SAFETY: what the entries of this module and `owned` reference stays
    // valid while they run: receives name the group of buffers only; a send out of the arena
    // lies in what `Arena::take` makes read-only until `reset_arena`, which waits for the queue
    // to be empty; the buffers of owned requests stand in `Owned` until the last completion.
    // `teardown` keeps all three when requests may be left.
    unsafe { ring.io.submission().push(entry) }.map_err(|_| QueueFull)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_that_of_the_kernel_header() {
        assert_eq!(size_of::<PollRemoveEntry>(), 64);
        assert_eq!(mem::offset_of!(PollRemoveEntry, fd), 4);
        assert_eq!(mem::offset_of!(PollRemoveEntry, new_user_data), 8);
        assert_eq!(mem::offset_of!(PollRemoveEntry, target), 16);
        assert_eq!(mem::offset_of!(PollRemoveEntry, update_flags), 24);
        assert_eq!(mem::offset_of!(PollRemoveEntry, events), 28);
        assert_eq!(mem::offset_of!(PollRemoveEntry, user_data), 32);
    }

    #[test]
    fn the_crate_reads_our_entry_as_its_own() {
        let entry = poll_update(1, 2, 3, Shots::One).user_data(4);
        assert_eq!(entry.get_opcode(), u32::from(OP_POLL_REMOVE));
        assert_eq!(entry.get_user_data(), 4);
    }
}
