//! What each worker shows: what it takes and holds, in memory that survives its death and that clients cannot
//! write, and whether it sleeps or is about to, with the word that it sleeps on.
//!
//! ```text
//!  nothing ──begin──▶ claims (ring, position, request) ──hold──▶ claims and holds ──settle──▶ holds
//!     ▲                  │ withdraw (another was quicker)                                      │
//!     └──────────────────┴───────────────────────── let_go (answered, freed or passed on) ─────┘
//! ```
//!
//! A claim has one writer, the worker; the manager reads after its death. It can be killed between any two
//! instructions, so the order of the stores is the protocol (`tests/loom_pool.rs`):
//!
//! | killed after | the manager sees | and does |
//! |---|---|---|
//! | begin | a claim; the cell is not taken by this worker | nothing |
//! | the cell was grabbed | a claim; the cell is taken by this worker | frees the cell, answers the claimed request |
//! | hold | both | the same; the request is the same |
//! | the cell was freed, settle | what it holds | answers that |
//! | the answer | what it holds; the request is not asked any more | nothing |
//!
//! A worker that finds nothing sets its bit, looks into all of its rings again, and sleeps; the client
//! that pushed a request clears the lowest bit among the workers that offer its service, writes that
//! worker's wake flag and wakes it. So work stays with few workers, whose caches are warm.
//!
//! It wakes none while one of them is coming: woken, or about to sleep, and with a look into its rings ahead of it. Such a
//! worker has neither its idle bit nor its awake bit, so a wake makes it one in a single step, and none is left over when a
//! client dies. What it finds and does not take itself it hands over: it wakes another when it has taken its first
//! request. One that is stopped on its way is in doubt after the first sleep of a client that waits for it.
//!
//! ```text
//!  worker:  spins (bit of `spinning` set, rings looked into, bit cleared)
//!           arm (awake bit cleared, bit set) ── fence ── look into the rings ── sleep until the flag is set
//!           come (awake bit set) ── fence ── look into the rings ── take one, hand over the others
//!  client:  push ── a worker spins: wait a moment for it to take the request; if it did not:
//!           fence ── one is coming: nothing; else look for a bit, clear it ── set the flag, wake
//! ```
//!
//! All fences are sequentially consistent: of a worker that looks and a client that looks at the same
//! time, one sees what the other wrote. The bits of `spinning` only tell when it
//! is worth a moment's wait before a worker is woken: a client looks whether its request was taken before
//! it sleeps, so a worker that is stopped or killed while it spins delays no other process.

// The parent chooses the atomics, so that the loom model takes this file in as it stands.
use super::atomic::{AtomicU64, Ordering, fence};

/// Words of one worker: a cache line, so that no two workers write to one.
pub(crate) const CLAIM_WORDS: usize = 8;

const POSITION: usize = 0;
const REQUEST: usize = 1;
const HELD: usize = 2;
const PID: usize = 3;

/// Bits of a position within the claim, as many as a cell tells; the ring is above them.
const POSITION_BITS: u32 = 40;
const POSITION_MASK: u64 = (1 << POSITION_BITS) - 1;

/// Words of one wake flag: a cache line. The first is in use.
pub(crate) const FLAG_WORDS: usize = 8;
/// A request may wait.
pub(crate) const WORK: u64 = 1;
/// The link to the manager has something, or ended.
pub(crate) const LINK: u64 = 2;
/// The program's own descriptor is readable.
pub(crate) const PROGRAM: u64 = 4;

/// A request under way: its number, and which use of that number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Ticket {
    pub(crate) request: u32,
    pub(crate) generation: u32,
    /// How often it was passed on from service to service.
    pub(crate) hops: u8,
}

/// What a worker was about to take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Claimed {
    pub(crate) ring: usize,
    /// The last bits of it: enough to know it again.
    pub(crate) position: u64,
    pub(crate) request: u32,
}

/// The record of one worker. Copies are handles on the same words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim<'a> {
    words: &'a [AtomicU64; CLAIM_WORDS],
}

/// The bits of all workers. Copies are handles on the same words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Idle<'a> {
    words: &'a [AtomicU64],
    spinning: &'a [AtomicU64],
    awake: &'a [AtomicU64],
}

impl<'a> Claim<'a> {
    pub(crate) fn over(words: &'a [AtomicU64; CLAIM_WORDS]) -> Self {
        Self { words }
    }

    /// Notes what is about to be taken. Called by the worker, before it grabs the cell.
    pub(crate) fn begin(&self, ring: usize, position: u64, request: u32) {
        self.words[REQUEST].store(request.into(), Ordering::Relaxed);
        let claim = (ring as u64 + 1) << POSITION_BITS | position & POSITION_MASK;
        self.words[POSITION].store(claim, Ordering::Release);
    }

    /// Another worker was quicker.
    pub(crate) fn withdraw(&self) {
        self.words[POSITION].store(0, Ordering::Release);
    }

    /// The request is this worker's. Called before it frees the cell.
    pub(crate) fn hold(&self, ticket: Ticket) {
        self.words[HELD].store(packed(ticket), Ordering::Release);
    }

    /// The cell is free again: only the request is left.
    pub(crate) fn settle(&self) {
        self.words[POSITION].store(0, Ordering::Release);
    }

    /// The request is not this worker's any more.
    pub(crate) fn let_go(&self) {
        self.words[HELD].store(0, Ordering::Release);
    }

    pub(crate) fn claimed(&self) -> Option<Claimed> {
        let claim = self.words[POSITION].load(Ordering::Acquire);
        let ring = usize::try_from(claim >> POSITION_BITS).ok()?.checked_sub(1)?;
        let request = self.words[REQUEST].load(Ordering::Relaxed) as u32;
        Some(Claimed { ring, position: claim & POSITION_MASK, request })
    }

    pub(crate) fn held(&self) -> Option<Ticket> {
        let held = self.words[HELD].load(Ordering::Acquire);
        let request = (held & 0xff_ffff).checked_sub(1)? as u32;
        Some(Ticket { request, generation: (held >> 32) as u32, hops: (held >> 24) as u8 })
    }

    /// The process that has this record; 0 for none. Written by the manager.
    pub(crate) fn pid(&self) -> u32 {
        self.words[PID].load(Ordering::Acquire) as u32
    }

    /// Gives the record to a process, with nothing claimed; 0 for none. Called by the manager.
    pub(crate) fn give_to(&self, pid: u32) {
        for word in [POSITION, REQUEST, HELD] {
            self.words[word].store(0, Ordering::Relaxed);
        }
        self.words[PID].store(pid.into(), Ordering::Release);
    }

    /// The process is known now, which the worker may be quicker than. Called by the manager.
    pub(crate) fn name(&self, pid: u32) {
        self.words[PID].store(pid.into(), Ordering::Release);
    }
}

impl Claimed {
    /// Whether this speaks of the position.
    pub(crate) fn is_at(&self, position: u64) -> bool {
        self.position == position & POSITION_MASK
    }
}

impl<'a> Idle<'a> {
    pub(crate) fn over(
        words: &'a [AtomicU64],
        spinning: &'a [AtomicU64],
        awake: &'a [AtomicU64],
    ) -> Self {
        Self { words, spinning, awake }
    }

    /// The worker looks into its rings for a moment before it sleeps.
    #[inline]
    pub(crate) fn spin(&self, worker: usize) {
        self.spinning[worker / 64].fetch_or(1 << (worker % 64), Ordering::SeqCst);
    }

    /// The worker does not spin. Called before it serves and before it arms.
    #[inline]
    pub(crate) fn stop_spinning(&self, worker: usize) {
        self.spinning[worker / 64].fetch_and(!(1 << (worker % 64)), Ordering::SeqCst);
    }

    /// Whether one of the workers of `offers` spins; bits are set in the first `used` words only.
    #[inline]
    pub(crate) fn is_any_spinning(&self, used: usize, offers: impl Fn(usize) -> u64) -> bool {
        let words = self.spinning.iter().take(used).enumerate();
        words
            .map(|(at, word)| (at, word.load(Ordering::SeqCst)))
            .any(|(at, bits)| bits != 0 && bits & offers(at) != 0)
    }

    /// The worker is about to sleep: it looks into its rings after this.
    pub(crate) fn arm(&self, worker: usize) {
        self.awake[worker / 64].fetch_and(!(1 << (worker % 64)), Ordering::SeqCst);
        self.words[worker / 64].fetch_or(1 << (worker % 64), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// The worker does not sleep; whether its bit was still set.
    pub(crate) fn disarm(&self, worker: usize) -> bool {
        let word = &self.words[worker / 64];
        let bit = 1 << (worker % 64);
        word.load(Ordering::Relaxed) & bit != 0 && word.fetch_and(!bit, Ordering::SeqCst) & bit != 0
    }

    /// The worker does not sleep any more, and looks into its rings after this: what is pushed from now on is not
    /// left to it.
    pub(crate) fn come(&self, worker: usize) {
        self.awake[worker / 64].fetch_or(1 << (worker % 64), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Whether one of the workers of `candidates` is coming: it looks into its rings after this, and so sees what was pushed
    /// before. Called after a push, with `used` as in [`claim_lowest`](Self::claim_lowest).
    #[inline]
    pub(crate) fn is_any_coming(
        &self,
        used: impl FnOnce() -> usize,
        candidates: impl Fn(usize) -> u64,
    ) -> bool {
        fence(Ordering::SeqCst);
        let mut words = self.words.iter().zip(self.awake).take(used()).enumerate();
        words.any(|(at, (idle, awake))| {
            let others = idle.load(Ordering::SeqCst) | awake.load(Ordering::SeqCst);
            others != u64::MAX && candidates(at) & !others != 0
        })
    }

    /// What is pushed from now on is not left to those of `candidates` that are coming, one of which may be stopped.
    pub(crate) fn doubt(&self, used: usize, candidates: impl Fn(usize) -> u64) {
        for (at, (idle, awake)) in self.words.iter().zip(self.awake).take(used).enumerate() {
            let others = idle.load(Ordering::SeqCst) | awake.load(Ordering::SeqCst);
            let coming = candidates(at) & !others;
            if coming != 0 {
                awake.fetch_or(coming, Ordering::SeqCst);
            }
        }
    }

    /// Whether the worker's bit is set.
    pub(crate) fn is_armed(&self, worker: usize) -> bool {
        self.words[worker / 64].load(Ordering::SeqCst) & 1 << (worker % 64) != 0
    }

    /// Clears the lowest bit among the workers of `offers`, and gives out whose it was. Called after a
    /// push. Bits are set in the first `used` words only, which is asked once the push can be seen: a worker
    /// whose word it leaves out was not there then, and will see the push.
    #[inline]
    pub(crate) fn claim_lowest(
        &self,
        used: impl FnOnce() -> usize,
        offers: impl Fn(usize) -> u64,
    ) -> Option<usize> {
        fence(Ordering::SeqCst);
        for (at, word) in self.words.iter().take(used()).enumerate() {
            let mut armed = word.load(Ordering::SeqCst);
            if armed == 0 {
                continue;
            }
            let offering = offers(at);
            armed &= offering;
            while armed != 0 {
                let bit = armed & armed.wrapping_neg();
                if word.fetch_and(!bit, Ordering::SeqCst) & bit != 0 {
                    return Some(at * 64 + bit.trailing_zeros() as usize);
                }
                armed = word.load(Ordering::SeqCst) & offering;
            }
        }
        None
    }
}

/// Sets a wake flag: for `what`; whether its worker may sleep, so that it has to be woken.
pub(crate) fn set_flag(wake_flag: &AtomicU64, what: u64) -> bool {
    // The kernel compares the lower half only.
    wake_flag.fetch_or(what, Ordering::SeqCst) as u32 == 0
}

/// What a wake flag was set for since the last look. Called by its worker.
pub(crate) fn take_flag(wake_flag: &AtomicU64) -> u64 {
    match wake_flag.load(Ordering::SeqCst) {
        0 => 0,
        _ => wake_flag.swap(0, Ordering::SeqCst),
    }
}

/// A request's number has 24 bits: more than there are requests.
fn packed(ticket: Ticket) -> u64 {
    let Ticket { request, generation, hops } = ticket;
    u64::from(generation) << 32 | u64::from(hops) << 24 | (u64::from(request & 0xff_ffff) + 1)
}
