//! The counters of one worker: totals, and one entry for each service that it offers.
//!
//! Only the worker adds; sums over workers are the reader's. All counters begin at zero when a
//! worker is started and stay until its slot is taken again, so those of a dead one can be read.

use std::ops::Index;
use std::sync::atomic::{AtomicU64, Ordering};

use super::record::{Slot, WORDS_PER_WORKER};

/// The most services that one server offers (notes of the interface: 48).
pub const SERVICES_MAX: usize = 48;

const TOTALS_FIRST: usize = 5;
const SERVICES_FIRST: usize = 16;
const SERVICE_WORDS: usize = 5;

const NAME: usize = 0;
const OK: usize = 1;
const FAILED: usize = 2;
const MAX_NS: usize = 3;
const LAST_NS: usize = 4;

const _: () = {
    assert!(TOTALS_FIRST + Total::ALL.len() <= SERVICES_FIRST);
    assert!(SERVICES_FIRST + SERVICES_MAX * SERVICE_WORDS == WORDS_PER_WORKER);
};

/// What a worker counts over all its services.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Total {
    /// Requests given to a service.
    Calls,
    /// Those that ended otherwise than with success or a forward.
    Failed,
    /// Requests not served because their deadline was over.
    Late,
    /// Replies thrown away: their deadline was over while their queue was full.
    Dropped,
    /// Replies that had to wait for room.
    Parked,
    /// Replies whose caller was gone.
    Gone,
    /// Messages that were no request, or whose payload could not be had.
    Malformed,
    /// Wakes that found nothing: another worker was quicker, or there was only room.
    Empty,
    /// Messages that a nudge found waiting.
    Nudged,
    /// Bytes of the payloads of requests and replies.
    PayloadBytes,
}

impl Total {
    /// All of them, in the order of their words.
    pub const ALL: [Self; 10] = [
        Self::Calls,
        Self::Failed,
        Self::Late,
        Self::Dropped,
        Self::Parked,
        Self::Gone,
        Self::Malformed,
        Self::Empty,
        Self::Nudged,
        Self::PayloadBytes,
    ];
}

/// The totals of one worker at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals([u64; Total::ALL.len()]);

impl Index<Total> for Totals {
    type Output = u64;

    fn index(&self, total: Total) -> &u64 {
        &self.0[total as usize]
    }
}

/// What a worker counted for one of its services.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServiceTally {
    /// Its entry, see [`super::Occupation::service`].
    pub entry: usize,
    /// [`name_hash`] of the service's name.
    pub name_hash: u64,
    /// Calls that ended with success or a forward.
    pub ok: u64,
    /// Calls that ended otherwise.
    pub failed: u64,
    /// The longest call, in nanoseconds.
    pub max_ns: u64,
    /// The last call, in nanoseconds.
    pub last_ns: u64,
}

/// The number under which a service's name stands in a slot; never zero (FNV-1a, 64 bits).
#[must_use]
pub fn name_hash(name: &str) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x100_0000_01b3;
    let hash = name.bytes().fold(BASIS, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    hash.max(1)
}

impl Slot<'_> {
    /// Adds `more` to a total. Called by the worker.
    #[inline]
    pub fn add(&self, total: Total, more: u64) {
        add(&self.words[TOTALS_FIRST + total as usize], more);
    }

    /// Gives entry `entry` to the service `name`, with nothing counted. Called by the worker.
    ///
    /// # Panics
    /// When `entry` is not below [`SERVICES_MAX`].
    pub fn offer(&self, entry: usize, name: &str) {
        let words = self.service(entry);
        for word in &words[OK..] {
            word.store(0, Ordering::Relaxed);
        }
        words[NAME].store(name_hash(name), Ordering::Release);
    }

    /// Gives the entry back. Called by the worker.
    ///
    /// # Panics
    /// When `entry` is not below [`SERVICES_MAX`].
    pub fn withdraw(&self, entry: usize) {
        self.service(entry)[NAME].store(0, Ordering::Release);
    }

    /// Counts a call of the service that took `took_ns`. Called by the worker.
    ///
    /// # Panics
    /// When `entry` is not below [`SERVICES_MAX`].
    #[inline]
    pub fn served(&self, entry: usize, is_ok: bool, took_ns: u64) {
        let words = self.service(entry);
        add(&words[if is_ok { OK } else { FAILED }], 1);
        words[LAST_NS].store(took_ns, Ordering::Relaxed);
        if took_ns > words[MAX_NS].load(Ordering::Relaxed) {
            words[MAX_NS].store(took_ns, Ordering::Relaxed);
        }
    }

    /// The totals. Called by the manager.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let word = |index: usize| self.words[TOTALS_FIRST + index].load(Ordering::Relaxed);
        Totals(std::array::from_fn(word))
    }

    /// What was counted for each service on offer. Called by the manager.
    #[must_use]
    pub fn services(&self) -> Vec<ServiceTally> {
        (0..SERVICES_MAX).filter_map(|entry| self.tally(entry)).collect()
    }

    fn tally(&self, entry: usize) -> Option<ServiceTally> {
        let words = self.service(entry);
        let name_hash = words[NAME].load(Ordering::Acquire);
        let word = |index: usize| words[index].load(Ordering::Relaxed);
        let (ok, failed, max_ns, last_ns) = (word(OK), word(FAILED), word(MAX_NS), word(LAST_NS));
        (name_hash != 0).then_some(ServiceTally { entry, name_hash, ok, failed, max_ns, last_ns })
    }

    fn service(&self, entry: usize) -> &[AtomicU64] {
        assert!(entry < SERVICES_MAX, "service entry {entry}: a server offers {SERVICES_MAX}");
        let first = SERVICES_FIRST + entry * SERVICE_WORDS;
        &self.words[first..first + SERVICE_WORDS]
    }
}

/// One writer, so no locked instruction is needed.
#[inline]
fn add(word: &AtomicU64, more: u64) {
    word.store(word.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Box<[AtomicU64; WORDS_PER_WORKER]> {
        Box::new(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    #[test]
    fn a_service_is_counted_under_its_entry_and_gone_when_withdrawn() {
        let words = words();
        let slot = Slot::over(&words);
        slot.offer(0, "BALANCE");
        slot.offer(47, "DEBIT");
        slot.served(47, true, 30);
        slot.served(47, true, 900);
        slot.served(47, false, 20);
        let debit = ServiceTally {
            entry: 47,
            name_hash: name_hash("DEBIT"),
            ok: 2,
            failed: 1,
            max_ns: 900,
            last_ns: 20,
        };
        assert_eq!(slot.services()[1], debit);
        slot.withdraw(47);
        assert_eq!(slot.services().len(), 1);
        slot.offer(47, "CREDIT");
        assert_eq!(slot.services()[1].ok, 0);
    }

    #[test]
    fn totals_stand_beside_each_other() {
        let words = words();
        let slot = Slot::over(&words);
        for (count, total) in Total::ALL.into_iter().enumerate() {
            slot.add(total, count as u64 + 1);
        }
        let totals = slot.totals();
        for (count, total) in Total::ALL.into_iter().enumerate() {
            assert_eq!(totals[total], count as u64 + 1, "{total:?}");
        }
        assert!(slot.services().is_empty());
    }
}
