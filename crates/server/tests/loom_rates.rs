//! Every interleaving of threads that charge requests in one table: a burst is admitted once, whichever thread has the slot.
//!
//! Checks `src/rates/table.rs`, which is taken in as it stands. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p pollux-server --test loom_rates --release`.
#![cfg(loom)]

#[path = "../src/rates/table.rs"]
#[expect(dead_code, reason = "the proxy reads more of it")]
pub mod table;

use std::sync::Arc;

use loom::sync::atomic::{self, AtomicU64};
use loom::thread;
use table::{Charged, Pace, RateTable};

/// How often loom may take the processor from a thread that could continue.
const PREEMPTIONS_MAX: usize = 3;
/// Slots of one set.
const SLOTS: usize = 8;

fn explore(run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS_MAX);
    model.check(run);
}

fn words() -> Arc<[AtomicU64]> {
    (0..RateTable::words(SLOTS)).map(|_| AtomicU64::new(0)).collect()
}

/// Whether a request is taken when all slots of the set are in use since a while.
fn is_admitted(words: &[AtomicU64], key: u64, pace: Pace) -> bool {
    let now_ns = 10_000_000;
    matches!(RateTable::new(words).charge(key, pace, now_ns), Charged::Admitted { .. })
}

/// A key whose set is the only one, with another mark for each number.
fn key(number: u64) -> u64 {
    number << 52 | number
}

#[test]
fn two_threads_with_the_same_new_key_admit_one_burst() {
    explore(|| {
        let words = words();
        let pace = Pace::new(1, 1_000_000_000, 1);
        let other = {
            let words = Arc::clone(&words);
            thread::spawn(move || is_admitted(&words, key(5), pace))
        };
        let own = is_admitted(&words, key(5), pace);
        let other = other.join().expect("no panic");
        assert!(own ^ other, "one of both: {own} {other}");
        assert!(!is_admitted(&words, key(5), pace), "and no third one");
    });
}

#[test]
fn a_slot_that_changes_hands_charges_nobody_else() {
    explore(|| {
        let words = words();
        let pace = Pace::new(1, 1_000_000_000, 2);
        // All slots are taken, the first one by the key that is due first.
        for number in 1..=SLOTS as u64 {
            let now_ns = 1_000 + number * 1_000_000;
            assert!(matches!(
                RateTable::new(&words).charge(key(number), pace, now_ns),
                Charged::Admitted { .. }
            ));
        }
        let other = {
            let words = Arc::clone(&words);
            thread::spawn(move || is_admitted(&words, key(9), pace))
        };
        // Its slot is the one that the new key takes.
        let _ = is_admitted(&words, key(1), pace);
        assert!(other.join().expect("no panic"), "a new key is taken");
        let rest = [(); 2].map(|()| is_admitted(&words, key(9), pace));
        assert_eq!(rest, [true, false], "it has its burst, and no more");
    });
}
