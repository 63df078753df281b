//! Every interleaving of clients, workers and a manager in what they share: the memory of a pool, and what a
//! worker that serves leaves to a reader.
//!
//! Checks `src/memory/{request,ring,workers}.rs` and `src/slots/record.rs`, which are taken in as they stand, with
//! rings of two cells. In the memory a death is an end between any two steps of a worker, after which the manager
//! does what it does while others continue. In a slot, what a killed worker leaves is the beginning of its stores,
//! in an order that compiler and processor may choose within the rules of the atomics; so the readers look against
//! the order of the worker: what they see is what some death leaves. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p pollux-xatmi --test loom_pool --release`.
#![cfg(loom)]

/// What the files expect above themselves.
#[path = "../src"]
mod memory {
    pub(crate) use loom::sync::atomic;

    pub(crate) use pollux_xatmi::priority::Priority;

    /// Cells of a ring: as few as show everything.
    const RING_LEN: usize = 2;

    #[path = "memory/request.rs"]
    #[expect(dead_code, reason = "not all of it is of interest here")]
    pub(crate) mod request;
    #[path = "memory/ring.rs"]
    #[expect(dead_code, reason = "not all of it is of interest here")]
    pub(crate) mod ring;
    #[path = "memory/workers.rs"]
    #[expect(dead_code, reason = "not all of it is of interest here")]
    pub(crate) mod workers;
}

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
use memory::Priority;
use memory::request::{Delivery, REQUEST_HEAD_WORDS, Request, State};
use memory::ring::{RING_WORDS, Ring};
use memory::workers::{self, CLAIM_WORDS, Claim, Idle, Ticket};
use slots::record::{Caller, Slot, UnsentReply, WORDS_PER_WORKER};
use slots::{Notes, Slots, record};

/// Deaths are modelled by steps, and what is left in a slot by some interleaving, so that threads need to be
/// interrupted only a few times.
const PREEMPTIONS_MAX: usize = 2;
/// Steps of a worker from a request to its answer.
const STEPS: usize = 6;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(model);
}

/// The memory of a pool with one ring, one request and two workers.
struct Pool {
    ring: [AtomicU64; RING_WORDS],
    claims: [[AtomicU64; CLAIM_WORDS]; 2],
    head: [AtomicU64; REQUEST_HEAD_WORDS],
    message: [AtomicU64; 1],
    idle: [AtomicU64; 1],
    spinning: [AtomicU64; 1],
    awake: [AtomicU64; 1],
    wake_flag: AtomicU64,
    /// Times that the service ran.
    served: AtomicU64,
}

fn words<const N: usize>() -> [AtomicU64; N] {
    std::array::from_fn(|_| AtomicU64::new(0))
}

impl Pool {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            ring: words(),
            claims: [words(), words()],
            head: words(),
            message: words(),
            idle: words(),
            spinning: words(),
            awake: words(),
            wake_flag: AtomicU64::new(0),
            served: AtomicU64::new(0),
        })
    }

    fn ring(&self) -> Ring<'_> {
        Ring::over(&self.ring)
    }

    fn idle(&self) -> Idle<'_> {
        Idle::over(&self.idle, &self.spinning, &self.awake)
    }

    /// What follows a push: wakes a worker unless one is coming; which.
    fn wake_if_none_comes(&self) -> Option<usize> {
        if self.idle().is_any_coming(|| 1, |_| 0b11) {
            return None;
        }
        self.idle().claim_lowest(|| 1, |_| u64::MAX)
    }

    fn request(&self) -> Request<'_> {
        Request::over(0, &self.head, &self.message)
    }

    fn claim(&self, worker: usize) -> Claim<'_> {
        Claim::over(&self.claims[worker])
    }

    /// A call on its way.
    fn ask(&self, byte: u8) -> Ticket {
        let ticket = self.request().open(0).expect("it is free");
        self.request().write(ticket, &[byte]);
        self.request().ask(ticket, true);
        assert!(matches!(self.ring().push(0), Ok(Some(_))), "there is room");
        ticket
    }

    /// Worker 0 takes a request if one waits; whether it did.
    fn takes(&self) -> bool {
        let Some((at, number)) = self.ring().first().expect("sound") else { return false };
        assert!(self.ring().grab(at, number, 0) && self.ring().free(at, 0), "there is one worker");
        true
    }

    /// A worker takes a request and answers it, or dies after some steps; what was delivered.
    fn work(&self, worker: usize, steps: usize) -> Option<Delivery> {
        let mut left = steps;
        let mut is_alive = || {
            left = left.saturating_sub(1);
            left > 0
        };
        let ring = self.ring();
        let claim = self.claim(worker);
        loop {
            let (at, number) = ring.first().expect("sound")?;
            claim.begin(0, at, number);
            if !is_alive() {
                return None;
            }
            if !ring.grab(at, number, worker as u32) {
                claim.withdraw();
                continue;
            }
            if !is_alive() {
                return None;
            }
            let (state, ticket) = self.request().state();
            claim.hold(ticket);
            if !is_alive() {
                return None;
            }
            ring.free(at, worker as u32);
            if !is_alive() {
                return None;
            }
            claim.settle();
            if !is_alive() {
                return None;
            }
            if state == State::Abandoned {
                self.request().drop_unwanted(ticket);
                claim.let_go();
                return Some(Delivery::Abandoned);
            }
            let mut byte = [0];
            assert_eq!(self.request().read(ticket, &mut byte), Some(1), "a whole message");
            self.served.fetch_add(1, Ordering::Relaxed);
            self.request().write(ticket, &byte);
            let delivery = self.request().answer(ticket, 0);
            if is_alive() {
                claim.let_go();
            }
            return Some(delivery);
        }
    }

    /// What the manager does for a dead worker; what was delivered.
    fn answer_for_dead(&self, worker: usize) -> Option<Delivery> {
        let ring = self.ring();
        let claim = self.claim(worker);
        if let Some(claimed) = claim.claimed()
            && let Some(at) = ring.taken_by(worker as u32, |at| claimed.is_at(at))
        {
            let delivery = self.request().answer(self.request().state().1, 10);
            assert!(ring.free(at, worker as u32), "no other worker frees it");
            return Some(delivery);
        }
        claim.held().map(|ticket| self.request().answer(ticket, 10))
    }
}

/// Of a client that pushes and a worker that goes to sleep, one sees the other.
#[test]
fn a_request_is_seen_by_the_worker_or_the_worker_by_its_client() {
    check(|| {
        let pool = Pool::new();
        let worker = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || {
                pool.idle().arm(0);
                pool.ring().first().expect("sound").is_some()
            })
        };
        pool.ask(1);
        let woken = pool.idle().claim_lowest(|| 1, |_| u64::MAX);
        if woken.is_some() {
            assert!(workers::set_flag(&pool.wake_flag, workers::WORK), "it was not set before");
        }
        assert!(worker.join().expect("no panic") || woken == Some(0), "it sleeps for ever");
    });
}

/// A client that sees a worker spin gives it a moment, and wakes one if its request was not taken.
#[test]
fn a_request_is_taken_by_the_worker_that_spins_or_wakes_one() {
    for dies_spinning in [false, true] {
        check(move || {
            let pool = Pool::new();
            // Another worker, which sleeps.
            pool.idle().arm(1);
            let worker = {
                let pool = Arc::clone(&pool);
                thread::spawn(move || {
                    pool.idle().spin(0);
                    if dies_spinning {
                        return false;
                    }
                    let is_found = pool.ring().first().expect("sound").is_some();
                    pool.idle().stop_spinning(0);
                    if is_found {
                        return pool.takes();
                    }
                    pool.idle().arm(0);
                    pool.takes()
                })
            };
            pool.request().open(0).expect("it is free");
            let at = pool.ring().push(0).expect("sound").expect("there is room");
            let is_left_to_it = pool.idle().is_any_spinning(1, |_| u64::MAX);
            let is_taken = is_left_to_it && !pool.ring().is_waiting(at, 0);
            let woken = if is_taken { None } else { pool.idle().claim_lowest(|| 1, |_| u64::MAX) };
            let is_served = worker.join().expect("no panic");
            assert!(is_served || woken.is_some(), "no worker takes it");
            assert!(!is_taken || is_served, "no worker has it");
        });
    }
}

/// A client that sees a worker come wakes none: that worker sees the request, or sleeps and is woken.
#[test]
fn a_request_is_seen_by_the_worker_that_comes_or_wakes_one() {
    check(|| {
        let pool = Pool::new();
        // Worker 1 is in a service; worker 0 was woken.
        pool.idle().come(1);
        let worker = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || {
                pool.idle().come(0);
                if pool.takes() {
                    return true;
                }
                pool.idle().arm(0);
                pool.takes()
            })
        };
        pool.ask(1);
        let woken = pool.wake_if_none_comes();
        assert!(worker.join().expect("no panic") || woken == Some(0), "it sleeps for ever");
    });
}

/// A worker that comes and takes one of two requests wakes another for the one that was left to it.
#[test]
fn what_a_worker_that_came_leaves_wakes_another() {
    check(|| {
        let pool = Pool::new();
        pool.idle().arm(1);
        assert!(matches!(pool.ring().push(5), Ok(Some(_))), "there is room");
        let client = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || {
                assert!(matches!(pool.ring().push(6), Ok(Some(_))), "there is room");
                pool.wake_if_none_comes()
            })
        };
        pool.idle().come(0);
        assert!(pool.takes(), "it was there before");
        let is_left = pool.ring().first().expect("sound").is_some();
        let by_worker = if is_left { pool.wake_if_none_comes() } else { None };
        // It is in its service from here on.
        let by_client = client.join().expect("no panic");
        assert!(by_worker == Some(1) || by_client == Some(1), "nobody takes the other one");
    });
}

/// Two clients wake two workers, not one of them twice.
#[test]
fn a_bit_is_claimed_once() {
    check(|| {
        let pool = Pool::new();
        let idle = pool.idle();
        idle.arm(0);
        idle.arm(1);
        let other = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.idle().claim_lowest(|| 1, |_| u64::MAX))
        };
        let ours = idle.claim_lowest(|| 1, |_| u64::MAX).expect("two are there");
        let theirs = other.join().expect("no panic").expect("two are there");
        assert_ne!(ours, theirs);
        assert_eq!(idle.claim_lowest(|| 1, |_| u64::MAX), None);
    });
}

/// Pushes of two clients and a worker that takes: nothing is lost, nothing taken twice.
#[test]
fn what_is_pushed_is_taken_once() {
    check(|| {
        let pool = Pool::new();
        let push = |number| {
            let pool = Arc::clone(&pool);
            thread::spawn(move || assert!(matches!(pool.ring().push(number), Ok(Some(_)))))
        };
        let pushes = [push(5), push(6)];
        let take = |pool: &Pool| {
            let (at, number) = pool.ring().first().expect("sound")?;
            let is_ours = pool.ring().grab(at, number, 0);
            assert!(is_ours && pool.ring().free(at, 0), "there is one worker");
            Some(number)
        };
        let mut taken: Vec<u32> = take(&pool).into_iter().collect();
        pushes.into_iter().for_each(|push| push.join().expect("no panic"));
        taken.extend(std::iter::from_fn(|| take(&pool)));
        taken.sort_unstable();
        assert_eq!(taken, [5, 6]);
        pool.ring().settle();
        assert_eq!(pool.ring().waiting(), 0);
    });
}

/// The same with priorities: of those that are there when a worker looks it takes the highest.
#[test]
fn what_is_pushed_with_a_priority_is_taken_once() {
    check(|| {
        let pool = Pool::new();
        let push = |number, priority| {
            let pool = Arc::clone(&pool);
            thread::spawn(move || {
                let priority = Priority::new(priority).expect("one");
                let pushed = pool.ring().push_with(number, priority);
                assert!(matches!(pushed, Ok(Some(_))));
            })
        };
        let pushes = [push(5, 20), push(6, 70)];
        let take = |pool: &Pool| {
            let (at, number) = pool.ring().next().expect("sound")?;
            let is_ours = pool.ring().grab(at, number, 0);
            assert!(is_ours && pool.ring().free(at, 0), "there is one worker");
            Some(number)
        };
        let early = take(&pool);
        pushes.into_iter().for_each(|push| push.join().expect("no panic"));
        let late: Vec<u32> = std::iter::from_fn(|| take(&pool)).collect();
        match early {
            Some(5) => assert_eq!(late, [6]),
            Some(6) => assert_eq!(late, [5]),
            _ => assert_eq!(late, [6, 5]),
        }
        pool.ring().settle();
        assert!(pool.ring().waiting() == 0 && pool.ring().is_sound(|_, _| false));
    });
}

/// A worker that dies after any step, beside one that looks for work: the caller is answered once, and
/// the ring is whole.
#[test]
fn each_caller_of_a_dead_worker_gets_one_answer() {
    for steps in 1..=STEPS {
        check(move || {
            let pool = Pool::new();
            let ticket = pool.ask(1);
            let dying = {
                let pool = Arc::clone(&pool);
                thread::spawn(move || pool.work(0, steps))
            };
            let other = {
                let pool = Arc::clone(&pool);
                thread::spawn(move || pool.work(1, usize::MAX))
            };
            let first = dying.join().expect("no panic");
            let second = pool.answer_for_dead(0);
            let third = other.join().expect("no panic");
            // What no worker took is there for the next one.
            let fourth = pool.work(1, usize::MAX);
            let done = [first, second, third, fourth].into_iter();
            assert_eq!(done.filter(|delivery| *delivery == Some(Delivery::Done)).count(), 1);
            assert!(matches!(pool.request().state(), (State::Answered(_), now) if now == ticket));
            assert!(pool.served.load(Ordering::Relaxed) <= 1, "it was served twice");
            pool.ring().settle();
            assert!(pool.ring().is_sound(|_, _| false));
        });
    }
}

/// A client that gives up, and calls again when it can, while a worker answers.
#[test]
fn a_reply_reaches_only_the_call_that_it_answers() {
    check(|| {
        let pool = Pool::new();
        let first = pool.ask(1);
        let worker = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.work(0, usize::MAX))
        };
        pool.request().give_up();
        let again = pool.request().open(0);
        if let Some(second) = again {
            assert_ne!(second.generation, first.generation);
            pool.request().write(second, &[2]);
            pool.request().ask(second, true);
        }
        worker.join().expect("no panic");
        match again {
            // The worker was through with the first one before it was free.
            Some(second) => assert_eq!(pool.request().state(), (State::Asked, second)),
            None => assert_eq!(pool.request().state().0, State::Free),
        }
        assert_eq!(pool.request().answer(first, 0), Delivery::Late);
    });
}

/// The manager answers for a client that is dead while a worker does.
#[test]
fn what_a_dead_client_had_is_free_in_the_end() {
    check(|| {
        let pool = Pool::new();
        pool.ask(1);
        let worker = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.work(0, usize::MAX))
        };
        pool.request().give_up();
        worker.join().expect("no panic");
        // Taken after the worker's look, or answered before the end of its client.
        let _ = pool.work(0, usize::MAX);
        pool.request().give_up();
        assert_eq!(pool.request().state().0, State::Free);
        pool.ring().settle();
        assert!(pool.ring().is_sound(|_, _| false));
    });
}

fn caller(number: u64) -> Caller {
    let half = number as u32;
    Caller { pid: half, context: half, call_id: number, nonce: number }
}

fn slot_words() -> Arc<[AtomicU64; WORDS_PER_WORKER]> {
    Arc::new(std::array::from_fn(|_| AtomicU64::new(0)))
}

#[test]
fn a_busy_slot_names_one_call_and_never_a_mixture() {
    check(|| {
        let words = slot_words();
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
        if seen.state == record::State::Busy {
            assert_eq!(seen.caller, caller(seen.since_ns));
        }
        worker.join().expect("the worker ends");
        let last = Slot::over(&words).occupation();
        assert_eq!((last.state, last.caller), (record::State::Idle, caller(2)));
    });
}

#[test]
fn a_message_is_in_the_inbox_until_the_slot_names_its_caller() {
    check(|| {
        let words = slot_words();
        let mail = Arc::new([AtomicU64::new(1)]);
        let worker = {
            let words = Arc::clone(&words);
            let mail = Arc::clone(&mail);
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
            let is_of_before =
                seen.state == record::State::Busy && seen.caller.call_id < in_the_inbox;
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
