//! A safe io_uring instance that receives, accepts and sends.
//!
//! The engine's completion loop calls it. Unlike [`super::Ring`]'s, its requests reference
//! memory, and the ring owns all of it, in three kinds:
//!
//! | memory | owner, and until when |
//! |---|---|
//! | receive buffers | the kernel, until a completion names one or a part of one; that then the caller, as a [`Received`], until [`StreamRing::give_back`] |
//! | the arena of the turn | the caller writes its spare rest; what a send took is only read, and not reset while that send is queued. A send out of the arena never waits, so the kernel is done with it when the submitting call returns |
//! | the buffers of [`StreamRing::send_owned`] | the ring, from the queueing of the request to its last completion, which hands them back. A cancellation changes nothing of it |
//!
//! A queued request counts as one that the kernel has. Dropping the ring cancels what is left
//! and frees the memory only when every request that references it has ended: closing a ring cancels its requests, but some time later and without a word,
//! so they are cancelled and awaited first. A fork's child that drops its copy leaves all to its parent.
//!
//! Descriptors are plain numbers, because a request may wait longer than any borrow: a caller that
//! closes one first ends its requests, else its next owner's data is received.

use std::io;
use std::time::{Duration, Instant};

use io_uring::types::CancelBuilder;
use io_uring::{opcode, squeue};

use super::ledger::{Ledger, NO_SLOT, Owned, StreamCompletion};
use super::memory::{Arena, Sent};
use super::open::{RingUnavailable, STREAMS, Setup, Sizes, forbidden, is_forbidden};
use super::pool::{Pool, ReceiveBuffers, Received};
use super::stream_request::push;
use super::trial::{self, Bounds};
use super::{EnterFailure, QueueFull, Ring};
use crate::process::ForkMark;

/// The only group of provided buffers of a ring.
pub(super) const GROUP: u16 = 0;

/// `IOU_PBUF_RING_INC` of the kernel's interface.
const INCREMENTAL: u16 = 2;

/// How large the parts of a stream ring are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamSizes {
    /// Entries of the two queues.
    pub ring: Sizes,
    /// Receive buffers, shared by all connections.
    pub receive: ReceiveBuffers,
    /// What a ring has instead where the kernel does not know those. None: it is not opened then.
    pub otherwise: Option<ReceiveBuffers>,
    /// Bytes of the arena: what one turn may send without a buffer of its own.
    pub arena_bytes: usize,
}

/// An io_uring instance with receive buffers and a send arena. See the head of this module.
///
/// It stays with the thread that opened it:
///
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<pollux_sys::ring::StreamRing>();
/// ```
pub struct StreamRing {
    // Dropped first: the ring is closed before any memory is freed.
    pub(super) ring: Ring,
    pub(super) ledger: Ledger,
    pub(super) arena: Arena,
    pub(super) bounds: Bounds,
    mark: ForkMark,
}

impl StreamRing {
    /// Opens a ring as [`Ring::open`] does and gives its receive buffers to the kernel, after a trial where they are
    /// of the kind that some kernels name in the wrong order.
    ///
    /// # Errors
    /// [`RingUnavailable`] says what forbids io_uring here and what would allow it.
    ///
    /// # Panics
    /// When a size breaks its rule in [`StreamSizes`].
    pub fn open(wanted: StreamSizes) -> Result<Self, RingUnavailable> {
        let is_incremental = wanted.receive.is_incremental;
        Self::open_after(wanted, if is_incremental { trial::run() } else { Ok(Bounds::Unknown) })
    }

    /// Opens a ring with the receive buffers that are wanted, or where their trial failed with those instead.
    pub(super) fn open_after(
        wanted: StreamSizes,
        tried: Result<Bounds, String>,
    ) -> Result<Self, RingUnavailable> {
        let (receive, bounds, refused) = match (tried, wanted.otherwise) {
            (Ok(bounds), _) => (wanted.receive, bounds, None),
            (Err(reason), Some(otherwise)) => (otherwise, Bounds::Unknown, Some(reason)),
            (Err(reason), None) => {
                let cause = io::Error::from_raw_os_error(libc::EINVAL);
                return Err(RingUnavailable { reason, cause });
            }
        };
        let mut ring = Self::open_with(wanted, receive)?;
        ring.bounds = bounds;
        ring.ring.setup.refused.extend(refused);
        Ok(ring)
    }

    /// Opens a ring with the buffers `receive`.
    pub(super) fn open_with(
        wanted: StreamSizes,
        receive: ReceiveBuffers,
    ) -> Result<Self, RingUnavailable> {
        assert!(receive.count <= 1 << 15, "the kernel knows at most 32,768 buffers");
        let mut ring = Ring::open_for(wanted.ring, STREAMS)?;
        require_streams(&ring)?;
        let pool = Pool::new(receive).map_err(no_memory)?;
        let arena = Arena::new(wanted.arena_bytes).map_err(no_memory)?;
        if let Err(error) = ring.door.register() {
            ring.setup.refused.push(format!("no registered index for the ring: {error}"));
        }
        let ledger = Ledger { pool, owned: Owned::default(), armed: 0 };
        let mark = ForkMark::new().map_err(no_memory)?;
        let mut ring = Self { ring, ledger, arena, bounds: Bounds::Unknown, mark };
        ring.register_pool()?;
        Ok(ring)
    }

    fn register_pool(&mut self) -> Result<(), RingUnavailable> {
        let address = self.ledger.pool.ring_address();
        let sizes = self.ledger.pool.sizes();
        let submitter = self.ring.io.submitter();
        let flags = if sizes.is_incremental { INCREMENTAL } else { 0 };
        // SAFETY: `address` is a page-aligned block of `count` entries that lives as long as
        // `self.ledger`, which is dropped after the ring is closed; the buffers that its entries
        // name live there too.
        unsafe { submitter.register_buf_ring_with_flags(address, sizes.count, GROUP, flags) }
            .map_err(|cause| RingUnavailable { reason: explain_pool(&cause, sizes), cause })?;
        self.ledger.pool.publish();
        Ok(())
    }

    /// Whether this process is a child of the one that opened the ring (`fork(2)`). Its queues are its parent's memory: what a
    /// child takes out of one is missing there, and what it puts into the other is submitted there.
    #[must_use]
    #[inline]
    pub fn is_inherited(&self) -> bool {
        !self.mark.is_here()
    }

    /// Whether [`StreamRing::receive_up_to`] is there.
    #[must_use]
    #[inline]
    pub fn bounds_receives(&self) -> bool {
        self.bounds == Bounds::Known
    }

    /// The receive buffers that it has.
    #[must_use]
    pub fn receive_buffers(&self) -> ReceiveBuffers {
        self.ledger.pool.sizes()
    }

    /// What was granted at open.
    #[must_use]
    pub fn setup(&self) -> &Setup {
        self.ring.setup()
    }

    /// The unused rest of the arena, to be written to.
    #[inline]
    pub fn spare(&mut self) -> &mut [u8] {
        self.arena.spare()
    }

    /// The bytes that a send took, while the arena was not reset since.
    #[must_use]
    pub fn sent_bytes(&self, sent: Sent) -> Option<&[u8]> {
        self.arena.bytes(sent)
    }

    /// Makes the whole arena spare again. Refused, with `false`, while requests are queued,
    /// which may reference it, and while completions overflow, which may report bytes that were
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

    /// The bytes of a receive.
    ///
    /// # Panics
    /// When the lease is of another ring.
    #[must_use]
    #[inline]
    pub fn bytes(&self, received: &Received) -> &[u8] {
        self.ledger.pool.bytes(received)
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

    /// How many leases of receive buffers are in the caller's hands.
    pub(crate) fn buffers_lent(&self) -> usize {
        self.ledger.pool.in_use()
    }

    /// How many requests of [`StreamRing::send_owned`] and [`StreamRing::accept`] have not
    /// ended.
    #[cfg(test)]
    pub(crate) fn owned_in_flight(&self) -> usize {
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

    /// Hands the buffers given back to the kernel, which takes no call; otherwise as [`Ring::look`].
    ///
    /// # Errors
    /// As [`Ring::look`].
    #[inline]
    pub fn look(&mut self) -> io::Result<bool> {
        self.ledger.pool.publish();
        self.ring.look()
    }

    /// Takes the oldest completion out of the queue.
    #[inline]
    pub fn next_completion(&mut self) -> Option<StreamCompletion> {
        let ledger = &mut self.ledger;
        self.ring.io.completion().find_map(|entry| ledger.read(&entry))
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

    /// Queues an entry that references no memory, or memory of this ring by its rules.
    #[inline]
    pub(super) fn push(&mut self, entry: &squeue::Entry) -> Result<(), QueueFull> {
        push(&mut self.ring, entry)
    }
}

/// Multishot receives (6.0) are not announced, nor is the true count of a send that was cut
/// short (6.1): deferred work came with the latter.
fn require_streams(ring: &Ring) -> Result<(), RingUnavailable> {
    if ring.setup.flags.contains(&"DEFER_TASKRUN") {
        return Ok(());
    }
    let cause = io::Error::from_raw_os_error(libc::EINVAL);
    Err(RingUnavailable { reason: STREAMS.too_old.to_owned(), cause })
}

fn explain_pool(cause: &io::Error, sizes: ReceiveBuffers) -> String {
    match cause.raw_os_error() {
        _ if is_forbidden(cause) => forbidden("io_uring_register"),
        Some(libc::EINVAL) if sizes.is_incremental => trial::UNKNOWN.to_owned(),
        Some(libc::EINVAL) => STREAMS.too_old.to_owned(),
        Some(libc::ENOMEM) => "RLIMIT_MEMLOCK is too low for the ring of receive buffers, which \
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

/// How long the requests may take to end. A cancelled one needs microseconds; one that runs in
/// a kernel thread ends with its system call.
const REQUESTS_END_TIME_MAX: Duration = Duration::from_secs(1);

/// How long one round waits before it cancels once more: a receive that was just being served
/// escapes a cancellation and arms itself again.
const ROUND: Duration = Duration::from_millis(10);

impl Drop for StreamRing {
    fn drop(&mut self) {
        let is_clear =
            !self.is_inherited() && self.end_requests(Instant::now() + REQUESTS_END_TIME_MAX);
        self.ring.door.unregister();
        if !is_clear {
            self.ledger.owned.leak();
            self.arena.leak();
        }
        if !is_clear || self.buffers_lent() > 0 {
            // A lease that outlives its ring must not pass for one of a later ring, whose
            // buffers stand at the same address.
            self.ledger.pool.leak();
        }
    }
}

impl StreamRing {
    /// Submits what is queued, so that no descriptor stays open whose closing was requested,
    /// then cancels everything. Says whether no request is left that references memory.
    fn end_requests(&mut self, deadline: Instant) -> bool {
        let mut asks_again = true;
        loop {
            self.drop_completions();
            if self.ledger.is_clear() && self.queued() == 0 {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            if asks_again {
                self.cancel_all();
            }
            match self.enter(1, Some(left.min(ROUND))) {
                Ok(_) => asks_again = false,
                Err(error) if EnterFailure::of(&error).is_passing() => asks_again = true,
                Err(_) => return false,
            }
        }
    }

    fn cancel_all(&mut self) {
        let cancel = opcode::AsyncCancel2::new(CancelBuilder::any().all()).build();
        // Without room the queue is submitted first, and a later round cancels.
        let _ = self.push(&cancel.user_data(NO_SLOT));
    }

    fn drop_completions(&mut self) {
        while let Some(completion) = self.next_completion() {
            if let Some(received) = completion.received {
                self.give_back(received);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_deferred_work_is_called_too_old() {
        let opened = Ring::open(Sizes { submission: 8, completion: 8 });
        let Some(mut ring) = pollux_testing::or_skip(opened) else { return };
        assert!(require_streams(&ring).is_ok());
        ring.setup.flags = &["COOP_TASKRUN"];
        let refused = require_streams(&ring).expect_err("too old");
        assert!(refused.to_string().contains("Linux 6.1"));
    }
}
