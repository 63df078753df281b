//! Which workers sleep or are about to, and the word that each of them sleeps on.
//!
//! A worker that finds nothing sets its bit, looks into all of its rings again, and sleeps; the client
//! that pushed a request clears the lowest bit among the workers that offer its service, writes that
//! worker's wake flag and wakes it. So work stays with few workers, whose caches are warm.
//!
//! ```text
//!  worker:  spins (bit of `spinning` set, rings looked into, bit cleared)
//!           arm (bit set) ── fence ── look into the rings ── sleep until the flag is set
//!  client:  push ── a worker spins: wait a moment for it to take the request; if it did not:
//!           fence ── look for a bit, clear it ── set the flag, wake
//! ```
//!
//! Both fences are sequentially consistent: of a worker that looks and a client that looks at the same
//! time, one sees what the other wrote (`tests/loom_memory.rs`). The bits of `spinning` only tell when it
//! is worth a moment's wait before a worker is woken: a client looks whether its request was taken before
//! it sleeps, so a worker that is stopped or killed while it spins delays no other process.

// The parent chooses the atomics, so that the loom model takes this file in as it stands.
use super::atomic::{AtomicU64, Ordering, fence};

/// Words of one wake flag: a cache line. The first is in use.
pub(crate) const FLAG_WORDS: usize = 8;

/// A request may wait.
pub(crate) const WORK: u64 = 1;
/// The link to the manager has something, or ended.
pub(crate) const LINK: u64 = 2;
/// The program's own descriptor is readable.
pub(crate) const PROGRAM: u64 = 4;

/// The bits of all workers. Copies are handles on the same words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Idle<'a> {
    words: &'a [AtomicU64],
    spinning: &'a [AtomicU64],
}

impl<'a> Idle<'a> {
    pub(crate) fn over(words: &'a [AtomicU64], spinning: &'a [AtomicU64]) -> Self {
        Self { words, spinning }
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

    /// Whether one of the workers of `offers` spins.
    #[inline]
    pub(crate) fn is_any_spinning(&self, offers: impl Fn(usize) -> u64) -> bool {
        let words = self.spinning.iter().enumerate();
        words
            .map(|(at, word)| (at, word.load(Ordering::SeqCst)))
            .any(|(at, bits)| bits != 0 && bits & offers(at) != 0)
    }

    /// The worker is about to sleep: it looks into its rings after this.
    pub(crate) fn arm(&self, worker: usize) {
        self.words[worker / 64].fetch_or(1 << (worker % 64), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// The worker does not sleep; whether its bit was still set.
    pub(crate) fn disarm(&self, worker: usize) -> bool {
        let (word, bit) = (&self.words[worker / 64], 1 << (worker % 64));
        word.load(Ordering::Relaxed) & bit != 0 && word.fetch_and(!bit, Ordering::SeqCst) & bit != 0
    }

    /// Whether the worker's bit is set.
    pub(crate) fn is_armed(&self, worker: usize) -> bool {
        self.words[worker / 64].load(Ordering::SeqCst) & 1 << (worker % 64) != 0
    }

    /// Clears the lowest bit among the workers of `offers`, and gives out whose it was. Called after a
    /// push.
    #[inline]
    pub(crate) fn claim_lowest(&self, offers: impl Fn(usize) -> u64) -> Option<usize> {
        fence(Ordering::SeqCst);
        for (at, word) in self.words.iter().enumerate() {
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
pub(crate) fn ring(wake_flag: &AtomicU64, what: u64) -> bool {
    // The kernel compares the lower half only.
    wake_flag.fetch_or(what, Ordering::SeqCst) as u32 == 0
}

/// What a wake flag was set for since the last look. Called by its worker.
pub(crate) fn taken(wake_flag: &AtomicU64) -> u64 {
    match wake_flag.load(Ordering::SeqCst) {
        0 => 0,
        _ => wake_flag.swap(0, Ordering::SeqCst),
    }
}
