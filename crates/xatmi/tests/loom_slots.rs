//! Every interleaving of a worker that serves and a reader of its slot: what the reader takes
//! for one call is of one call.
//!
//! Checks the protocol of `src/slots/record.rs`, which is taken in as it stands. A dead worker's
//! slot is the case in which the reader comes last, so it is among the interleavings. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p pollux-xatmi --test loom_slots --release`.
#![cfg(loom)]

/// What `record.rs` expects above itself.
#[path = "../src"]
mod slots {
    use loom::sync::atomic;

    #[path = "slots/record.rs"]
    pub(crate) mod record;
}

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use slots::record::{Caller, Slot, State, WORDS_PER_WORKER};

/// A worker that is killed after any store leaves a state that some interleaving shows, so the
/// reader needs to be interrupted only a few times.
const PREEMPTIONS_MAX: usize = 2;

fn caller(number: u64) -> Caller {
    let half = number as u32;
    Caller { pid: half, context: half, call_id: number, nonce: number }
}

#[test]
fn a_busy_slot_names_one_call_and_never_a_mixture() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS_MAX);
    model.check(|| {
        let words: Arc<[AtomicU64; WORDS_PER_WORKER]> =
            Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
        let worker = {
            let words = Arc::clone(&words);
            thread::spawn(move || {
                let slot = Slot::over(&words);
                for number in 1..=2 {
                    slot.begin(&caller(number), 0, true, number);
                    slot.rest();
                }
            })
        };
        let seen = Slot::over(&words).occupation();
        if seen.state == State::Busy {
            assert_eq!(seen.caller, caller(seen.since_ns));
        }
        worker.join().expect("the worker ends");
        let last = Slot::over(&words).occupation();
        assert_eq!((last.state, last.caller), (State::Idle, caller(2)));
    });
}
