//! A safe io_uring instance that receives, accepts and sends.
//!
//! The engine's completion loop calls it. Unlike [`super::Ring`]'s, its requests reference
//! memory, and the ring owns all of it, in three kinds:
//!
//! | memory | who holds it, and until when |
//! |---|---|
//! | receive buffers | the kernel, until a completion names one; then the caller, as a [`Received`], until [`StreamRing::give_back`] |
//! | the arena of the turn | the caller writes its spare rest; what a send took is only read, and not reset while that send is queued. A send out of the arena never waits, so the kernel is done with it when the submitting call returns |
//! | the buffers of [`StreamRing::send_owned`] and [`StreamRing::read_owned`] | the ring, from the queueing of the request to its last completion, which hands them back. A cancellation changes nothing of it |
//!
//! A queued request counts as one that the kernel has. Dropping the ring cancels what is left
//! and frees the memory only when every request that references it has ended; see `teardown`.
//!
//! Descriptors are plain numbers, because a request may wait longer than any borrow: whoever
//! closes one first ends its requests, else its next owner's data is received.

use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use io_uring::{opcode, squeue, types};

use super::arena::{Arena, Sent};
use super::buffers::{Pool, Received};
use super::completion::{ARMED, Ledger, StreamCompletion};
use super::open::{RingUnavailable, Setup, Sizes};
use super::owned::{InFlight, Kept, OWNED, Owned};
use super::request::{Request, Shots};
use super::{QueueFull, Ring};

/// The only group of provided buffers of a ring.
const GROUP: u16 = 0;

/// The arena and the submission queue of a [`StreamRing`], while its buffers are being read.
pub struct Sending<'a> {
    ring: &'a mut Ring,
    arena: &'a mut Arena,
}

impl Sending<'_> {
    /// As [`StreamRing::spare`].
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

/// How large the parts of a stream ring are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamSizes {
    /// Entries of the two queues.
    pub ring: Sizes,
    /// Receive buffers, shared by all connections: a power of two up to 32,768.
    pub buffers: u16,
    /// Bytes of one receive buffer.
    pub buffer_bytes: u32,
    /// Bytes of the arena: what one turn may send without a buffer of its own.
    pub arena_bytes: usize,
}

/// An io_uring instance with receive buffers and a send arena. See the head of this module.
pub struct StreamRing {
    // Dropped first: the ring is closed before any memory is freed.
    pub(super) ring: Ring,
    pub(super) ledger: Ledger,
    pub(super) arena: Arena,
}

impl StreamRing {
    /// The largest number that a request may carry: the two upper bits are the ring's.
    pub const USER_DATA_MAX: u64 = ARMED - 1;

    /// Opens a ring as [`Ring::open`] does and gives its receive buffers to the kernel.
    ///
    /// # Errors
    /// [`RingUnavailable`] says who forbids io_uring here and what would allow it.
    ///
    /// # Panics
    /// When a size breaks its rule in [`StreamSizes`].
    pub fn open(wanted: StreamSizes) -> Result<Self, RingUnavailable> {
        assert!(wanted.buffers <= 1 << 15, "the kernel knows at most 32,768 buffers");
        let mut ring = Ring::open(wanted.ring)?;
        require_streams(&ring)?;
        let pool = Pool::new(wanted.buffers, wanted.buffer_bytes).map_err(no_memory)?;
        let arena = Arena::new(wanted.arena_bytes).map_err(no_memory)?;
        if let Err(error) = ring.door.register() {
            ring.setup.refused.push(format!("no registered index for the ring: {error}"));
        }
        let ledger = Ledger { pool, owned: Owned::default(), armed: 0 };
        let mut ring = Self { ring, ledger, arena };
        ring.register_pool()?;
        Ok(ring)
    }

    fn register_pool(&mut self) -> Result<(), RingUnavailable> {
        let (address, count) = (self.ledger.pool.ring_address(), self.ledger.pool.count());
        let submitter = self.ring.io.submitter();
        // SAFETY: `address` is a page-aligned block of `count` entries that lives as long as
        // `self.ledger`, which is dropped after the ring is closed; the buffers that its entries
        // name live there too.
        unsafe { submitter.register_buf_ring_with_flags(address, count, GROUP, 0) }
            .map_err(|cause| RingUnavailable { reason: explain_pool(&cause), cause })?;
        self.ledger.pool.publish();
        Ok(())
    }

    /// What was granted at open.
    #[must_use]
    pub fn setup(&self) -> &Setup {
        self.ring.setup()
    }

    /// Queues a receive into one of the ring's buffers, which comes with the completion. With
    /// [`Shots::Many`] it goes on until the end of the stream (result 0), an error, or until
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

    /// Queues an accept (SOCK_CLOEXEC, without the peer's address). The connection comes with
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
        let flags = libc::SOCK_CLOEXEC;
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

    /// Queues the end of one or both directions of a connection (`shutdown(2)`). Completes only
    /// when it failed.
    ///
    /// # Errors
    /// [`QueueFull`]; nothing was queued.
    pub fn shutdown(
        &mut self,
        fd: RawFd,
        how: libc::c_int,
        user_data: u64,
    ) -> Result<(), QueueFull> {
        let entry = opcode::Shutdown::new(types::Fd(fd), how).build();
        self.push(&silent(entry, user_data))
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

    /// The unused rest of the arena, to be written to.
    #[inline]
    pub fn spare(&mut self) -> &mut [u8] {
        self.arena.spare()
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

    /// The bytes that a send took, while the arena was not reset since.
    #[must_use]
    pub fn sent_bytes(&self, sent: Sent) -> Option<&[u8]> {
        self.arena.bytes(sent)
    }

    /// Makes the whole arena spare again. Refused, with `false`, while requests are queued,
    /// which may reference it, and while completions overflow, which may tell of bytes that were
    /// not sent.
    pub fn reset_arena(&mut self) -> bool {
        if self.queued() > 0 || self.has_overflow() {
            return false;
        }
        // Every send was submitted. MSG_DONTWAIT makes the kernel try it once in the submitting
        // call and complete it, whatever comes of it: it has no reason to look again.
        self.arena.reset();
        true
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

    /// Queues the reading of up to `len` bytes of a file from `offset` on, behind what `buffer`
    /// holds. Completes with the number of bytes (0 at the end of the file) or a negated errno,
    /// and hands the longer buffer back with it.
    ///
    /// # Errors
    /// [`QueueFull`] with the buffer; nothing was queued.
    pub fn read_owned(
        &mut self,
        fd: RawFd,
        offset: u64,
        mut buffer: Vec<u8>,
        len: u32,
        user_data: u64,
    ) -> Result<InFlight, (QueueFull, Vec<u8>)> {
        buffer.reserve(len as usize);
        let space = buffer.spare_capacity_mut().as_mut_ptr().cast::<u8>();
        let entry = opcode::Read::new(types::Fd(fd), space, len).offset(offset).build();
        self.push_owned(entry, user_data, Kept::Filling(buffer))
            .map_err(|(full, kept)| (full, kept.into_buffer()))
    }

    /// The bytes of a receive.
    ///
    /// # Panics
    /// When the lease is of another ring.
    #[must_use]
    #[inline]
    pub fn bytes(&self, received: &Received) -> &[u8] {
        self.ledger.pool.bytes(received)
    }

    /// The bytes of a receive, and the sending side, to answer in the same breath.
    ///
    /// # Panics
    /// When the lease is of another ring.
    pub fn bytes_and_sending(&mut self, received: &Received) -> (&[u8], Sending<'_>) {
        let sending = Sending { ring: &mut self.ring, arena: &mut self.arena };
        (self.ledger.pool.bytes(received), sending)
    }

    /// The sending side alone.
    pub fn sending(&mut self) -> Sending<'_> {
        Sending { ring: &mut self.ring, arena: &mut self.arena }
    }

    /// Ends a lease. The kernel has the buffer with the next [`StreamRing::submit`] or
    /// [`StreamRing::enter`].
    ///
    /// # Panics
    /// When the lease is of another ring.
    #[inline]
    pub fn give_back(&mut self, received: Received) {
        self.ledger.pool.give_back(received);
    }

    /// How many receive buffers are in the caller's hands.
    #[must_use]
    pub fn buffers_lent(&self) -> usize {
        self.ledger.pool.lent()
    }

    /// How many requests of [`StreamRing::send_owned`], [`StreamRing::read_owned`] and
    /// [`StreamRing::accept`] have not ended.
    #[must_use]
    pub fn owned_in_flight(&self) -> usize {
        self.ledger.owned.count()
    }

    /// How many requests are queued and not submitted yet.
    #[must_use]
    pub fn queued(&mut self) -> usize {
        self.ring.queued()
    }

    /// Hands the queued requests and the buffers given back to the kernel; otherwise as
    /// [`Ring::submit`].
    ///
    /// # Errors
    /// As [`Ring::submit`].
    pub fn submit(&mut self) -> io::Result<usize> {
        self.ledger.pool.publish();
        self.ring.submit()
    }

    /// Hands the buffers given back to the kernel; otherwise as [`Ring::enter`].
    ///
    /// # Errors
    /// As [`Ring::enter`].
    pub fn enter(&mut self, completions_min: u32, timeout: Option<Duration>) -> io::Result<usize> {
        self.ledger.pool.publish();
        self.ring.enter(completions_min, timeout)
    }

    /// Takes the oldest completion out of the queue.
    #[inline]
    pub fn next_completion(&mut self) -> Option<StreamCompletion> {
        let ledger = &mut self.ledger;
        self.ring.io.completion().find_map(|entry| ledger.read(&entry))
    }

    /// Appends all completions in the queue to `into`.
    pub fn drain_completions(&mut self, into: &mut Vec<StreamCompletion>) {
        let ledger = &mut self.ledger;
        into.extend(self.ring.io.completion().filter_map(|entry| ledger.read(&entry)));
    }

    /// As [`Ring::has_completions`].
    #[must_use]
    pub fn has_completions(&mut self) -> bool {
        self.ring.has_completions()
    }

    /// As [`Ring::has_deferred_work`].
    #[must_use]
    pub fn has_deferred_work(&mut self) -> bool {
        self.ring.has_deferred_work()
    }

    /// As [`Ring::has_overflow`].
    #[must_use]
    pub fn has_overflow(&mut self) -> bool {
        self.ring.has_overflow()
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

    /// Queues an entry that references no memory, or memory of this ring by its rules.
    #[inline]
    pub(super) fn push(&mut self, entry: &squeue::Entry) -> Result<(), QueueFull> {
        push(&mut self.ring, entry)
    }
}

fn push(ring: &mut Ring, entry: &squeue::Entry) -> Result<(), QueueFull> {
    // SAFETY: what the entries of this module reference stays valid while they run: receives
    // name the group of buffers only; a send out of the arena lies in what `Arena::take`
    // makes read-only until `reset_arena`, which waits for the queue to be empty; the
    // buffers of owned requests stand in `Owned` until the last completion. `teardown` keeps
    // all three when requests may be left.
    unsafe { ring.io.submission().push(entry) }.map_err(|_| QueueFull)
}

#[inline]
fn numbered(user_data: u64) -> u64 {
    assert!(user_data & (OWNED | ARMED) == 0, "the two upper bits are the ring's");
    user_data
}

/// Completes only when something went wrong.
#[inline]
fn silent(entry: squeue::Entry, user_data: u64) -> squeue::Entry {
    entry.flags(squeue::Flags::SKIP_SUCCESS).user_data(numbered(user_data))
}

const TOO_OLD: &str = "this kernel's io_uring is too old to receive and send: Linux 6.1 or newer \
                       is needed";

/// Multishot receives (6.0) are not announced, nor is the true count of a send that was cut
/// short (6.1): deferred work came with the latter.
fn require_streams(ring: &Ring) -> Result<(), RingUnavailable> {
    if ring.setup.flags.contains(&"DEFER_TASKRUN") {
        return Ok(());
    }
    let cause = io::Error::from_raw_os_error(libc::EINVAL);
    Err(RingUnavailable { reason: TOO_OLD.to_owned(), cause })
}

fn explain_pool(cause: &io::Error) -> String {
    match cause.raw_os_error() {
        Some(libc::EINVAL) => TOO_OLD.to_owned(),
        Some(libc::ENOMEM) => "RLIMIT_MEMLOCK has no room for the ring of receive buffers, which \
                               counts as locked memory: raise it (ulimit -l), grant \
                               CAP_IPC_LOCK or ask for fewer buffers"
            .to_owned(),
        _ => format!("io_uring_register of the receive buffers: {cause}"),
    }
}

fn no_memory(cause: io::Error) -> RingUnavailable {
    let reason = "no memory for the receive buffers and the arena".to_owned();
    RingUnavailable { reason, cause }
}
