//! The part of the memory that all processes write, and how one waits and is woken.
//!
//! Clients, workers and the manager go through it to rings, wake flags and requests. Every index from the
//! memory itself is looked at here.

use std::cell::Cell;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use pollux_sys::futex;
use pollux_sys::shared::SharedPart;

use super::patience::{GivingWay, cpus};
use super::records::{self, BLOCK_REQUESTS, BLOCK_WORDS, Geometry, Records, SERVICES_MAX, Words};
use super::request::Request;
use super::ring::Ring;
use super::runnable::Runnable;
use super::workers::{self, Idle};

/// A client that sleeps for its replies.
const ASLEEP: u64 = 1;

thread_local! {
    /// The worker that this thread is, with the file of its pool: in a call of its own it is one thread, not two.
    static WORKER: Cell<Option<(u64, usize)>> = const { Cell::new(None) };
}

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
    runnable: Runnable<'a>,
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
        let geometry = &self.geometry;
        let words = geometry.worker_words();
        let spinning = &self.words[geometry.spinning()..][..words];
        Idle::over(&self.words[..words], spinning, &self.words[geometry.awake()..][..words])
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
        let owner = self.geometry.owner(number);
        let wake_flag = self.geometry.block_flag(number);
        let owner = &self.words[owner];
        let wake_flag = &self.words[wake_flag];
        Some(Block { number, owner, wake_flag, runnable: self.runnable() })
    }

    /// What the threads of pool and clients do.
    #[inline]
    pub(crate) fn runnable(&self) -> Runnable<'_> {
        let geometry = &self.geometry;
        let words = self.geometry.worker_words();
        Runnable {
            present: &self.words[geometry.present()..][..words],
            idle: &self.words[..words],
            calling: &self.words[geometry.calling()..][..BLOCK_WORDS],
            asleep: &self.words[geometry.asleep()..][..BLOCK_WORDS],
        }
    }

    /// This thread is worker `worker` from now on.
    pub(crate) fn serve_here(&self, worker: usize) {
        WORKER.set(Some((self.inode, worker)));
        self.idle().come(worker);
        self.runnable().set_present(worker, true);
    }

    /// Whether the worker that this thread is, if it is one, counts as such, and not as a client.
    #[inline]
    pub(crate) fn set_worker_here(&self, is_present: bool) {
        // A thread that is ending calls no more.
        let here = WORKER.try_with(Cell::get).ok().flatten();
        if let Some((_, worker)) = here.filter(|(inode, _)| *inode == self.inode) {
            self.runnable().set_present(worker, is_present);
        }
    }

    /// Whether to leave the CPUs to others: more threads can run than there are CPUs.
    #[inline]
    pub(crate) fn is_crowded(&self, records: &Records) -> bool {
        !records.always_spins() && self.runnable().is_above(cpus(), self.words_used(records))
    }

    /// How threads let others run before they sleep, where they may.
    #[inline]
    pub(crate) fn giving_way(&self, records: &Records) -> Option<GivingWay<'_>> {
        let [paid_at_ns, lost_until_ns] =
            [0, 1].map(|at| &self.words[self.geometry.giving_way() + at]);
        (!records.always_spins()).then_some(GivingWay { paid_at_ns, lost_until_ns })
    }

    /// Words of workers' and of blocks' bits in which some can be set.
    #[inline]
    fn words_used(&self, records: &(impl Words + ?Sized)) -> [usize; 2] {
        let blocks = self.words[self.geometry.blocks_used()].load(Ordering::Relaxed);
        let blocks = usize::try_from(blocks).unwrap_or(usize::MAX);
        let blocks = blocks.min(self.geometry.blocks()).div_ceil(64);
        [records::words_used(records, &self.geometry), blocks]
    }

    /// Takes the first block without an owner for `owner`.
    pub(crate) fn take_block(&self, owner: u64) -> Option<Block<'_>> {
        let block = self.blocks().find(|block| block.take(owner))?;
        let used = &self.words[self.geometry.blocks_used()];
        used.fetch_max(block.number as u64 + 1, Ordering::Relaxed);
        Some(block)
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = Block<'_>> {
        (0..self.geometry.blocks()).filter_map(|number| self.block(number))
    }

    /// Wakes the lowest idle worker that offers the service of `ring`; whether there was one.
    #[inline]
    pub(crate) fn wake_one(&self, records: &(impl Words + ?Sized), ring: usize) -> bool {
        let used = || records::words_used(records, &self.geometry);
        let offers = |at| records::offers(records, &self.geometry, ring, at);
        let found = self.idle().claim_lowest(used, offers);
        // The mask is of the manager's, and of a worker's words there are as many as there are bits.
        if let Some(worker) = found {
            self.set_wake_flag(worker, workers::WORK);
        }
        found.is_some()
    }

    /// The same, unless one that offers it is coming, which will see what was pushed.
    #[inline]
    pub(crate) fn wake_one_if_none_comes(&self, records: &(impl Words + ?Sized), ring: usize) {
        let used = || records::words_used(records, &self.geometry);
        let always_spins = records.word(records::ALWAYS_SPINS) != 0;
        if always_spins || !self.idle().is_any_coming(used, self.present(records, ring)) {
            self.wake_one(records, ring);
        }
    }

    /// A request has waited for long: workers that were coming for the service of `ring` are not relied on.
    pub(crate) fn doubt(&self, records: &(impl Words + ?Sized), ring: usize) {
        let used = records::words_used(records, &self.geometry);
        self.idle().doubt(used, self.present(records, ring));
    }

    /// The bits of the workers that offer the service of `ring` and are there.
    #[inline]
    fn present<'a>(
        &'a self,
        records: &'a (impl Words + ?Sized),
        ring: usize,
    ) -> impl Fn(usize) -> u64 + 'a {
        let present = &self.words[self.geometry.present()..];
        move |at: usize| {
            let offers = records::offers(records, &self.geometry, ring, at);
            present[at].load(Ordering::SeqCst) & offers
        }
    }

    /// Whether a worker that offers the service of `ring` looks into it at the moment.
    #[inline]
    pub(crate) fn is_looked_into(&self, records: &(impl Words + ?Sized), ring: usize) -> bool {
        let used = records::words_used(records, &self.geometry);
        self.idle().is_any_spinning(used, |at| records::offers(records, &self.geometry, ring, at))
    }

    /// Sets the wake flag of a worker, and wakes it if it may sleep.
    pub(crate) fn set_wake_flag(&self, worker: usize, what: u64) {
        let wake_flag = self.wake_flag(worker);
        if workers::set_flag(wake_flag, what) {
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

    /// Whether its client is in a call.
    #[inline]
    pub(crate) fn set_calling(&self, is_calling: bool) {
        self.runnable.set_calling(self.number, is_calling);
    }

    /// Its client is about to sleep: it looks for replies after this.
    #[inline]
    pub(crate) fn arm(&self) {
        self.runnable.set_asleep(self.number, true);
        self.wake_flag.store(ASLEEP, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Its client does not sleep.
    #[inline]
    pub(crate) fn disarm(&self) {
        self.wake_flag.store(0, Ordering::Relaxed);
        self.runnable.set_asleep(self.number, false);
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
            self.runnable.set_asleep(self.number, false);
            futex::wake(self.wake_flag, 1);
        }
    }
}

/// The owner of a block: never 0, as no process is 0.
pub(crate) fn owner_of(pid: u32, context: u32) -> u64 {
    u64::from(pid) << 32 | u64::from(context)
}
