//! A fixed table of when each client may ask again, which all loops share, and workers one after the other.
//!
//! A rate is held to by the generic cell rate algorithm (ITU-T I.371): of each key one moment is known, that at which all of
//! its requests so far would have been due at the rate. A request is admitted as long as that moment lies ahead by at most what the
//! burst allows, and moves it on by the time between two requests.
//!
//! ```text
//!  a slot, two words        63      62..51       50..0
//!  ┌──────────────────┐   ┌───────┬────────────┬─────────────────────────────┐
//!  │ mark of the key  │   │claimed│ 12 bits of │ moment, in units of 128 ns; │
//!  │ (64 bits)        │   │       │ the mark   │ 0: never used               │
//!  └──────────────────┘   └───────┴────────────┴─────────────────────────────┘
//! ```
//!
//! | step | by |
//! |---|---|
//! | a request of a key that has a slot | compare and exchange of the second word: the key's bits in it fail it when the slot was taken away meanwhile |
//! | of one that has none | the slot of the set whose moment is the earliest: exchange to *claimed*, with the new moment; the mark is stored; *claimed* is taken off |
//! | while it is claimed | the 12 bits alone are compared, so that two loops with the same new key have one slot |
//!
//! Nobody waits for anybody; a worker that is killed between two steps leaves a slot that its key can use. A key whose slot
//! is taken away while its moment is still ahead starts anew: that is counted. Keys with the same 64 bits are one.
//!
//! `tests/loom_rates.rs` takes in this file as it stands, with atomics of its own; so nothing here may name anything else of
//! the crate.

use super::atomic::AtomicU64;
use super::atomic::Ordering::{AcqRel, Acquire, Release};

/// Slots that a key may have: more of them are full at the same time only by very many keys.
pub(crate) const WAYS: usize = 8;
/// Words of a slot.
const SLOT_WORDS: usize = 2;
/// Nanoseconds of a unit of time.
pub(crate) const UNIT_NS: u64 = 128;

const MOMENT_BITS: u32 = 51;
const MOMENT_MASK: u64 = (1 << MOMENT_BITS) - 1;
const PART_BITS: u32 = 12;
const CLAIMED: u64 = 1 << 63;

/// How often a key may ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pace {
    /// Units of time between two requests; at least one.
    pub(crate) interval: u64,
    /// How far ahead the moment of a key may be for a request of it.
    pub(crate) ahead_max: u64,
}

impl Pace {
    /// So many requests in so many nanoseconds, and as many at once as the burst says, at least one.
    pub(crate) fn new(requests: u64, time_ns: u64, burst: u64) -> Self {
        let interval = (time_ns / (requests * UNIT_NS)).max(1);
        Self { interval, ahead_max: interval * (burst - 1) }
    }
}

/// What becomes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Charged {
    /// It is admitted; whether the slot was taken from a key whose moment was still ahead.
    Admitted { evicted: bool },
    /// It is not, and one so many nanoseconds later would be.
    Refused { wait_ns: u64 },
}

/// A table in words that are all zero at first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateTable<'w>(&'w [AtomicU64]);

impl<'w> RateTable<'w> {
    /// How many words a table of so many slots has.
    pub(crate) const fn words(slots: usize) -> usize {
        slots * SLOT_WORDS
    }

    /// In these words.
    ///
    /// # Panics
    /// When they do not make a whole number of sets, which is a power of two.
    pub(crate) fn new(words: &'w [AtomicU64]) -> Self {
        let sets = words.len() / (WAYS * SLOT_WORDS);
        assert!(sets.is_power_of_two() && words.len() == sets * WAYS * SLOT_WORDS, "whole sets");
        Self(words)
    }

    /// Charges a request of a key, which is a hash with all 64 bits, at a moment in nanoseconds.
    pub(crate) fn charge(&self, key: u64, pace: Pace, now_ns: u64) -> Charged {
        // Never 0, which is a slot that was never used.
        let now = (now_ns / UNIT_NS + 1) & MOMENT_MASK;
        let set = self.set(key);
        loop {
            // All at one look, so that two loops with the same new key try for the same slot.
            let states: [u64; WAYS] = std::array::from_fn(|way| moment(set, way).load(Acquire));
            let found = (0..WAYS).find(|way| is_of(key, states[*way], mark(set, *way)));
            let Some(way) = found else {
                match claim(set, &states, key, now, pace) {
                    Some(evicted) => return Charged::Admitted { evicted },
                    // Somebody was faster, perhaps for the same key.
                    None => continue,
                }
            };
            let state = states[way];
            let due = (state & MOMENT_MASK).max(now);
            let ahead = due - now;
            if ahead > pace.ahead_max {
                return Charged::Refused { wait_ns: (ahead - pace.ahead_max) * UNIT_NS };
            }
            let next = (state & !MOMENT_MASK) | (due + pace.interval).min(MOMENT_MASK);
            if moment(set, way).compare_exchange(state, next, AcqRel, Acquire).is_ok() {
                return Charged::Admitted { evicted: false };
            }
        }
    }

    /// Takes back a charge, of a request that something else refuses.
    pub(crate) fn refund(&self, key: u64, pace: Pace) {
        let set = self.set(key);
        for way in 0..WAYS {
            let state = moment(set, way).load(Acquire);
            if is_of(key, state, mark(set, way)) {
                let before = (state & MOMENT_MASK).saturating_sub(pace.interval).max(1);
                let next = (state & !MOMENT_MASK) | before;
                // Where somebody else changes it at this moment it stays: one request too many is charged.
                let _ = moment(set, way).compare_exchange(state, next, AcqRel, Acquire);
                return;
            }
        }
    }

    fn set(&self, key: u64) -> &'w [AtomicU64] {
        let sets = self.0.len() / (WAYS * SLOT_WORDS);
        // The bits of the mark in the second word are others.
        let at = (key as usize & (sets - 1)) * WAYS * SLOT_WORDS;
        &self.0[at..at + WAYS * SLOT_WORDS]
    }
}

/// The bits of a key that stand beside its moment.
fn part(key: u64) -> u64 {
    (key >> (64 - PART_BITS)) << MOMENT_BITS
}

/// Whether a slot, whose second word is this, is the key's.
fn is_of(key: u64, state: u64, mark: &AtomicU64) -> bool {
    let is_part = state & !(CLAIMED | MOMENT_MASK) == part(key) && state & MOMENT_MASK != 0;
    is_part && (state & CLAIMED != 0 || mark.load(Acquire) == key)
}

/// The first word of a slot.
fn mark(set: &[AtomicU64], way: usize) -> &AtomicU64 {
    &set[way * SLOT_WORDS]
}

/// The second word of a slot.
fn moment(set: &[AtomicU64], way: usize) -> &AtomicU64 {
    &set[way * SLOT_WORDS + 1]
}

/// Gives the slot that is due first to a new key, with its first request; whether another key loses it that is due later
/// than now. None where the slot is no more what it was.
fn claim(set: &[AtomicU64], states: &[u64; WAYS], key: u64, now: u64, pace: Pace) -> Option<bool> {
    let way = (0..WAYS).min_by_key(|way| states[*way] & MOMENT_MASK).expect("a set has ways");
    let new = part(key) | (now + pace.interval).min(MOMENT_MASK);
    let state = states[way];
    let slot = moment(set, way);
    slot.compare_exchange(state, new | CLAIMED, AcqRel, Acquire).ok()?;
    mark(set, way).store(key, Release);
    // Whatever was charged meanwhile stays.
    slot.fetch_and(!CLAIMED, AcqRel);
    Some(state & MOMENT_MASK > now)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn words(slots: usize) -> Vec<AtomicU64> {
        (0..RateTable::words(slots)).map(|_| AtomicU64::new(0)).collect()
    }

    /// SplitMix64: spreads numbers as a keyed hash does.
    fn hashed(number: u64) -> u64 {
        let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A bucket that leaks, in floating point: so much is in it.
    #[derive(Default)]
    struct Bucket {
        level: f64,
        at_s: f64,
    }

    /// What it says of one more request, or that it is too close to call.
    fn bucket_takes(bucket: &mut Bucket, rate: f64, burst: f64, now_s: f64) -> Option<bool> {
        let level = (bucket.level - (now_s - bucket.at_s) * rate).max(0.0);
        let left = burst - 1.0 - level;
        // Units of 128 ns, cut off once at each request.
        let blur = 1e-3 + rate * 1e-6 * burst;
        match left {
            _ if left.abs() < blur => None,
            _ if left < 0.0 => Some(false),
            _ => {
                *bucket = Bucket { level: level + 1.0, at_s: now_s };
                Some(true)
            }
        }
    }

    proptest! {
        #[test]
        fn requests_are_admitted_as_by_a_bucket_in_floating_point(
            per_s in 1_u64..2000,
            burst in 1_u64..50,
            steps in prop::collection::vec((0_u64..4, 0_u64..200_000_000), 1..400),
        ) {
            let words = words(64);
            let pace = Pace::new(per_s, 1_000_000_000, burst);
            let table = RateTable::new(&words);
            let mut twins: HashMap<u64, Bucket> = HashMap::new();
            let mut now_ns = 5_000_000_000;
            // As the table rounds it.
            let rate = 1e9 / (pace.interval * UNIT_NS) as f64;
            for (key, later_ns) in steps {
                now_ns += later_ns / per_s;
                let bucket = twins.entry(key).or_default();
                let expected = bucket_takes(bucket, rate, burst as f64, now_ns as f64 / 1e9);
                match (table.charge(hashed(key), pace, now_ns), expected) {
                    (Charged::Admitted { evicted }, Some(true)) => prop_assert!(!evicted),
                    (Charged::Refused { .. }, Some(false)) => {}
                    (charged, None) => {
                        // Whatever it was, the twin follows.
                        if matches!(charged, Charged::Admitted { .. }) {
                            let level = (bucket.level - (now_ns as f64 / 1e9 - bucket.at_s) * rate).max(0.0);
                            *bucket = Bucket { level: level + 1.0, at_s: now_ns as f64 / 1e9 };
                        }
                    }
                    (charged, expected) => prop_assert!(false, "{charged:?}, expected {expected:?}"),
                }
            }
        }

        #[test]
        fn one_that_is_refused_is_admitted_when_it_was_said_and_no_earlier(
            per_s in 1_u64..100_000,
            burst in 1_u64..100,
            start_ns in 0_u64..1_000_000_000_000_000,
        ) {
            let words = words(64);
            let pace = Pace::new(per_s, 1_000_000_000, burst);
            let table = RateTable::new(&words);
            for _ in 0..burst {
                let admitted = Charged::Admitted { evicted: false };
                prop_assert_eq!(table.charge(7, pace, start_ns), admitted);
            }
            let Charged::Refused { wait_ns } = table.charge(7, pace, start_ns) else {
                panic!("the burst is over");
            };
            let early = table.charge(7, pace, start_ns + wait_ns.saturating_sub(UNIT_NS));
            let is_refused = matches!(early, Charged::Refused { .. });
            prop_assert!(is_refused, "{:?}", early);
            let due = table.charge(7, pace, start_ns + wait_ns);
            prop_assert_eq!(due, Charged::Admitted { evicted: false });
        }
    }

    #[test]
    fn a_million_keys_stay_within_the_table_and_lose_slots_to_each_other_in_the_order_of_their_moments()
     {
        let words = words(65_536);
        assert_eq!(size_of_val(&words[..]), 1 << 20);
        let table = RateTable::new(&words);
        // One a minute: each key's moment is ahead for the whole test.
        let pace = Pace::new(1, 60_000_000_000, 1);
        let mut evictions = 0;
        for number in 0..1_000_000_u64 {
            match table.charge(hashed(number), pace, 1_000_000 + number * 1000) {
                Charged::Admitted { evicted } => evictions += u64::from(evicted),
                Charged::Refused { .. } => panic!("{number} has asked for nothing yet"),
            }
        }
        assert!((930_000..=934_464).contains(&evictions), "all that do not fit: {evictions}");
        // The last ones are still held to their rate.
        let now_ns = 1_000_000 + 1_000_000 * 1000;
        let held = (999_000..1_000_000)
            .filter(|number| {
                matches!(table.charge(hashed(*number), pace, now_ns), Charged::Refused { .. })
            })
            .count();
        assert!(held > 990, "{held}");
    }

    #[test]
    fn a_charge_that_is_taken_back_was_never_there() {
        let words = words(8);
        let pace = Pace::new(1, 1_000_000_000, 2);
        let table = RateTable::new(&words);
        for _ in 0..50 {
            assert!(matches!(table.charge(9, pace, 1_000), Charged::Admitted { .. }));
            table.refund(9, pace);
        }
        let all: Vec<_> = (0..3).map(|_| table.charge(9, pace, 1_000)).collect();
        assert!(
            matches!(all[..], [_, Charged::Admitted { .. }, Charged::Refused { .. }]),
            "{all:?}"
        );
        // Of a key without a slot there is nothing to take back.
        table.refund(10, pace);
    }

    #[test]
    fn threads_admit_no_more_than_one_burst_together() {
        let words = words(64);
        let pace = Pace::new(1, 3_600_000_000_000, 1000);
        let admitted: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let table = RateTable::new(&words);
                        let all = (0..2000).map(|_| table.charge(hashed(3), pace, 1_000));
                        all.filter(|charged| matches!(charged, Charged::Admitted { .. })).count()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        assert_eq!(admitted, 1000);
    }
}
