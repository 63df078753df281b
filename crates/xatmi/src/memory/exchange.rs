//! The part of the memory that all processes write, and how one is woken.
//!
//! Clients, workers and the manager go through it to rings, wake flags and requests. Every index from the
//! memory itself is looked at here.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use pollux_sys::futex;
use pollux_sys::shared::SharedPart;

use super::geometry::{BLOCK_REQUESTS, Geometry, SERVICES_MAX};
use super::idle::{self, Idle};
use super::request::Request;
use super::ring::Ring;
use super::{Words, directory};

/// A client that sleeps for its replies.
const ASLEEP: u64 = 1;

/// The mapping.
#[derive(Debug)]
pub(crate) struct Exchange {
    words: SharedPart,
    geometry: Geometry,
    /// Which file it is; as long as it is mapped, no other one has the number.
    inode: u64,
}

/// Requests that belong to one context. Copies are handles on the same words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block<'a> {
    pub(crate) number: usize,
    /// Process and context that have it; 0 for none.
    owner: &'a AtomicU64,
    /// What its client sleeps on.
    wake_flag: &'a AtomicU64,
}

impl Exchange {
    pub(super) fn map(fd: BorrowedFd<'_>, geometry: Geometry) -> io::Result<Self> {
        let words = SharedPart::map(fd, 0, geometry.exchange_words())?;
        Ok(Self { words, geometry, inode: rustix::fs::fstat(fd)?.st_ino })
    }

    pub(crate) fn inode(&self) -> u64 {
        self.inode
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    #[inline]
    pub(crate) fn idle(&self) -> Idle<'_> {
        let (words, spinning) = (self.geometry.worker_words(), self.geometry.spinning());
        Idle::over(&self.words[..words], &self.words[spinning..][..words])
    }

    /// The wake_flag of worker `worker`, which is one of the pool's.
    #[inline]
    pub(crate) fn wake_flag(&self, worker: usize) -> &AtomicU64 {
        assert!(worker < self.geometry.workers(), "worker {worker} of the pool");
        &self.words[self.geometry.wake_flag(worker)]
    }

    /// Ring `ring`, none beyond the last.
    #[inline]
    pub(crate) fn ring(&self, ring: usize) -> Option<Ring<'_>> {
        if ring >= SERVICES_MAX {
            return None;
        }
        self.words[self.geometry.ring(ring)..].first_chunk().map(Ring::over)
    }

    /// Request `number`, none beyond the last.
    #[inline]
    pub(crate) fn request(&self, number: u32) -> Option<Request<'_>> {
        if number as usize >= self.geometry.requests() {
            return None;
        }
        let words = &self.words[self.geometry.request(number as usize)..];
        let (head, rest) = words.split_first_chunk()?;
        Some(Request::over(number, head, &rest[..self.geometry.message_words()]))
    }

    /// Block `number`, none beyond the last.
    #[inline]
    pub(crate) fn block(&self, number: usize) -> Option<Block<'_>> {
        if number >= self.geometry.blocks() {
            return None;
        }
        let (owner, wake_flag) = (self.geometry.owner(number), self.geometry.block_flag(number));
        Some(Block { number, owner: &self.words[owner], wake_flag: &self.words[wake_flag] })
    }

    /// All blocks.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = Block<'_>> {
        (0..self.geometry.blocks()).filter_map(|number| self.block(number))
    }

    /// Wakes the lowest idle worker that offers the service of `ring`; whether there was one.
    #[inline]
    pub(crate) fn wake_one(&self, records: &(impl Words + ?Sized), ring: usize) -> bool {
        let offers = |at| directory::offers(records, &self.geometry, ring, at);
        let found = self.idle().claim_lowest(offers);
        // The mask is of the manager's, and of a worker's words there are as many as there are bits.
        if let Some(worker) = found {
            self.set_wake_flag(worker, idle::WORK);
        }
        found.is_some()
    }

    /// Whether a worker that offers the service of `ring` looks into it at the moment.
    #[inline]
    pub(crate) fn is_looked_into(&self, records: &(impl Words + ?Sized), ring: usize) -> bool {
        self.idle().is_any_spinning(|at| directory::offers(records, &self.geometry, ring, at))
    }

    /// Sets the wake flag of a worker, and wakes it if it may sleep.
    pub(crate) fn set_wake_flag(&self, worker: usize, what: u64) {
        let wake_flag = self.wake_flag(worker);
        if idle::ring(wake_flag, what) {
            futex::wake(wake_flag, 1);
        }
    }

    /// Wakes the client that has the request, if it sleeps. Called after an answer.
    #[inline]
    pub(crate) fn wake_client(&self, request: &Request<'_>) {
        if let Some(home) = self.block(request.home()) {
            home.wake();
        }
    }

    /// Announces that a client will wait for room in a ring; whether there is still none.
    pub(crate) fn announce_wait_for_room(&self, ring: usize) -> bool {
        let Some(ring) = self.ring(ring) else { return false };
        ring.room().store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        ring.waiting() >= super::RING_LEN
    }

    /// Waits for room in a ring, which was announced, until the monotonic clock shows `until_ns`.
    ///
    /// # Errors
    /// As [`futex::wait`].
    pub(crate) fn wait_for_room(&self, ring: usize, until_ns: u64) -> io::Result<()> {
        let Some(ring) = self.ring(ring) else { return Ok(()) };
        futex::wait(ring.room(), 1, Some(until_ns))
    }

    /// Bytes of the longest message.
    pub(crate) fn message_len_bytes(&self) -> usize {
        self.geometry.message_len_bytes()
    }

    /// Wakes the clients that wait for room in a ring, if some do. Called after a request was taken.
    #[inline]
    pub(crate) fn tell_room(&self, ring: &Ring<'_>) {
        let room = ring.room();
        if room.load(Ordering::SeqCst) != 0 && room.swap(0, Ordering::SeqCst) != 0 {
            futex::wake(room, u32::MAX >> 1);
        }
    }
}

impl Block<'_> {
    /// Takes it for `owner` if it has no owner.
    pub(crate) fn take(&self, owner: u64) -> bool {
        self.owner.compare_exchange(0, owner, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Gives it back, if `owner` has it.
    pub(crate) fn give_back(&self, owner: u64) {
        // Of another owner by now: that does not matter here.
        let _ = self.owner.compare_exchange(owner, 0, Ordering::SeqCst, Ordering::Relaxed);
    }

    pub(crate) fn owner(&self) -> u64 {
        self.owner.load(Ordering::SeqCst)
    }

    /// The numbers of its requests.
    pub(crate) fn requests(&self) -> std::ops::Range<u32> {
        let first = (self.number * BLOCK_REQUESTS) as u32;
        first..first + BLOCK_REQUESTS as u32
    }

    /// Its client is about to sleep: it looks for replies after this.
    #[inline]
    pub(crate) fn arm(&self) {
        self.wake_flag.store(ASLEEP, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Its client does not sleep.
    #[inline]
    pub(crate) fn disarm(&self) {
        self.wake_flag.store(0, Ordering::Relaxed);
    }

    /// Sleeps until it is woken, until the monotonic clock shows `until_ns`, or for a signal.
    ///
    /// # Errors
    /// As [`futex::wait`].
    pub(crate) fn sleep(&self, until_ns: u64) -> io::Result<()> {
        futex::wait(self.wake_flag, ASLEEP as u32, Some(until_ns))
    }

    /// Called after an answer to one of its client's requests.
    fn wake(&self) {
        fence(Ordering::SeqCst);
        let is_asleep = self.wake_flag.load(Ordering::SeqCst) == ASLEEP;
        if is_asleep && self.wake_flag.swap(0, Ordering::SeqCst) == ASLEEP {
            futex::wake(self.wake_flag, 1);
        }
    }
}

/// The owner of a block: never 0, as no process is 0.
pub(crate) fn owner_of(pid: u32, context: u32) -> u64 {
    u64::from(pid) << 32 | u64::from(context)
}
