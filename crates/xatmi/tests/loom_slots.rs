//! Every interleaving of a worker that serves and a reader of what it leaves in shared memory.
//!
//! Checks the protocols of `src/slots/record.rs`, which is taken in as it stands. What a killed worker leaves is the beginning of its stores, in an order that compiler and
//! processor may choose within the rules of the atomics. So the readers here look against the
//! order of the worker: what they see is what some death leaves. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p pollux-xatmi --test loom_slots --release`.
#![cfg(loom)]

/// What the files expect above themselves.
#[path = "../src"]
mod slots {
    pub(crate) use loom::sync::atomic;

    // Not that of loom, which reports the memory that a note left to the manager keeps.
    use std::sync::Arc;

    #[path = "slots/record.rs"]
    #[expect(dead_code, reason = "the manager's half is not of interest here")]
    #[expect(unreachable_pub, reason = "some of it is public in the crate")]
    pub(crate) mod record;

    pub(crate) use record::Inbox;

    /// Words of the notes of one worker.
    pub(crate) type Notes = [atomic::AtomicU64; record::UNSENT_WORDS];

    /// The notes of one worker, where the crate has the memory of all.
    #[derive(Clone, Debug)]
    pub(crate) struct Slots(pub(crate) Arc<Notes>);

    impl Slots {
        fn unsent_replies(&self, _worker: usize) -> Option<&[atomic::AtomicU64]> {
            Some(&self.0[..])
        }
    }

    /// An inbox of one word: what is behind the first does not matter here.
    pub(crate) fn inbox(words: &[atomic::AtomicU64; 1]) -> Inbox<'_> {
        Inbox { words }
    }
}

use std::rc::Rc;
use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use slots::record::{Caller, Slot, State, UnsentReply, WORDS_PER_WORKER};
use slots::{Notes, Slots};

/// A worker that is killed after any store leaves a state that some interleaving shows, so the
/// reader needs to be interrupted only a few times.
const PREEMPTIONS_MAX: usize = 2;

fn caller(number: u64) -> Caller {
    let half = number as u32;
    Caller { pid: half, context: half, call_id: number, nonce: number }
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(model);
}

fn record() -> Arc<[AtomicU64; WORDS_PER_WORKER]> {
    Arc::new(std::array::from_fn(|_| AtomicU64::new(0)))
}

#[test]
fn a_busy_slot_names_one_call_and_never_a_mixture() {
    check(|| {
        let words = record();
        let worker = {
            let words = Arc::clone(&words);
            thread::spawn(move || {
                let slot = Slot::over(&words);
                for number in 1..=2 {
                    slot.begin(&caller(number), 0, true, number);
                    slot.idle();
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

#[test]
fn a_message_is_in_the_inbox_until_the_slot_names_its_caller() {
    check(|| {
        let (words, mail) = (record(), Arc::new([AtomicU64::new(1)]));
        let worker = {
            let (words, mail) = (Arc::clone(&words), Arc::clone(&mail));
            thread::spawn(move || {
                let slot = Slot::over(&words);
                slot.begin(&caller(1), 0, true, 1);
                slots::inbox(&mail).empty();
                slot.idle();
                // The next message, as the kernel writes it.
                mail[0].store(2, Ordering::Relaxed);
            })
        };
        let in_the_inbox = mail[0].load(Ordering::Acquire);
        let seen = Slot::over(&words).occupation();
        if in_the_inbox == 0 {
            assert_ne!(seen.caller.call_id, 0, "taken out before its caller was noted");
        } else {
            let is_of_before = seen.state == State::Busy && seen.caller.call_id < in_the_inbox;
            assert!(!is_of_before, "{seen:?} hides message {in_the_inbox}");
        }
        worker.join().expect("the worker ends");
    });
}

#[test]
fn an_unsent_reply_names_one_caller_or_none() {
    check(|| {
        let notes: Arc<Notes> = Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
        let worker = {
            let slots = Slots(Arc::clone(&notes));
            thread::spawn(move || {
                let slots = Rc::new(slots);
                let first = UnsentReply::note(&slots, 0, &caller(1)).expect("room");
                drop(first);
                UnsentReply::note(&slots, 0, &caller(2)).expect("room").leave();
            })
        };
        let [name, nonce, call_id] = &*notes;
        let seen = [call_id, nonce, name].map(|word| word.load(Ordering::Acquire));
        let is_of_first = seen[2] == 1 | 1 << 32;
        assert!(!is_of_first || (seen[0] < 2 && seen[1] < 2), "{seen:?} is of both");
        worker.join().expect("the worker ends");
        assert_eq!(UnsentReply::all(&Slots(notes), 0), [caller(2)]);
    });
}

#[test]
fn an_unsent_reply_that_is_seen_is_complete() {
    check(|| {
        let notes: Arc<Notes> = Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
        let worker = {
            let slots = Slots(Arc::clone(&notes));
            thread::spawn(move || {
                UnsentReply::note(&Rc::new(slots), 0, &caller(1)).expect("room").leave();
            })
        };
        let seen = UnsentReply::all(&Slots(Arc::clone(&notes)), 0);
        assert!(seen.is_empty() || seen == [caller(1)], "{seen:?}");
        worker.join().expect("the worker ends");
    });
}
