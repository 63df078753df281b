//! Every interleaving of threads that wait on and change one instance: no event stays beside a thread that
//! waits, no change is lost on the thread that polls, and a thread that leaves lets the next one poll.
//!
//! Checks `src/waiters.rs`, which is taken in as it stands, on a model of a poller and of the semaphore. A
//! thread that is stranded shows as one that sleeps for ever, which loom reports. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p pollux-epoll-c --test loom_waiters --release`.
#![cfg(loom)]

#[path = "../src/waiters.rs"]
#[expect(dead_code, reason = "forks are not in the model")]
mod waiters;

use std::sync::Arc;

use loom::sync::{Condvar, Mutex};
use loom::thread;
use waiters::{Subject, Wait, Waiters};

/// How often loom may take the processor from a thread that could continue.
const PREEMPTIONS_MAX: usize = 3;

/// What the kernel knows: which files are ready, whether the thread that polls was interrupted, and the posts that no thread took.
struct Kernel {
    state: Mutex<Known>,
    changed: Condvar,
}

#[derive(Default)]
struct Known {
    ready: u32,
    /// What the poller of an instance holds.
    held: u32,
    is_interrupted: bool,
    posts: u32,
}

impl Kernel {
    fn with<T>(&self, change: impl FnOnce(&mut Known) -> T) -> T {
        let mut state = self.state.lock().expect("no thread panics with it");
        let done = change(&mut state);
        self.changed.notify_all();
        done
    }

    fn until<T>(&self, look: impl Fn(&mut Known) -> Option<T>) -> T {
        let mut state = self.state.lock().expect("no thread panics with it");
        loop {
            if let Some(seen) = look(&mut state) {
                return seen;
            }
            state = self.changed.wait(state).expect("no thread panics with it");
        }
    }
}

/// Files by their bits.
struct Model {
    kernel: Arc<Kernel>,
    wanted: u32,
    is_over: bool,
    /// Which of the following pollers is not available; 0: none.
    refuses_the: u32,
    has_semaphore: bool,
    has_waker: bool,
}

struct Poller {
    applied: u32,
    found: u32,
}

#[derive(Debug, PartialEq, Eq)]
struct Refused;

impl Subject for Model {
    type Poller = Poller;
    type Semaphore = Arc<Kernel>;
    type Error = Refused;

    fn is_over(&self) -> bool {
        self.is_over
    }

    fn poller(&mut self, spare: Option<Poller>) -> Result<Poller, Refused> {
        // A spare one is none for another thread.
        let is_refused = self.refuses_the == 1;
        self.refuses_the = self.refuses_the.saturating_sub(1);
        if is_refused {
            return Err(Refused);
        }
        Ok(spare.unwrap_or(Poller { applied: 0, found: 0 }))
    }

    fn apply(&mut self, poller: &mut Poller) -> Result<(), Refused> {
        poller.applied = self.wanted;
        self.kernel.with(|known| known.held = self.wanted);
        Ok(())
    }

    fn interrupt(&self) {
        if self.has_waker {
            self.kernel.with(|known| known.is_interrupted = true);
        }
    }

    fn semaphore(&mut self) -> Result<Arc<Kernel>, Refused> {
        Ok(Arc::clone(&self.kernel))
    }

    fn post(&self) {
        if self.has_semaphore {
            self.kernel.with(|known| known.posts += 1);
        }
    }
}

/// A wait with room for one event.
struct Patient(Arc<Kernel>);

impl Wait<Model> for Patient {
    fn sleep_in_queue(&mut self, semaphore: Arc<Kernel>) -> Result<bool, Refused> {
        semaphore.until(|known| {
            known.posts = known.posts.checked_sub(1)?;
            Some(true)
        });
        Ok(true)
    }

    fn poll(&mut self, poller: &mut Poller) -> Result<(), Refused> {
        poller.found = self.0.until(|known| {
            let found = known.ready & poller.applied;
            (found != 0 || std::mem::take(&mut known.is_interrupted)).then_some(found)
        });
        Ok(())
    }

    /// As a oneshot: it is not ready again.
    fn deliver(&mut self, _: &mut Model, poller: &Poller) -> Result<Option<usize>, Refused> {
        let first = poller.found & poller.found.wrapping_neg();
        self.0.with(|known| known.ready &= !first);
        Ok((first != 0).then_some(1))
    }
}

/// A wait whose time is over as soon as it queues: it may have taken a post then.
struct Impatient(Patient);

impl Wait<Model> for Impatient {
    fn sleep_in_queue(&mut self, semaphore: Arc<Kernel>) -> Result<bool, Refused> {
        semaphore.with(|known| known.posts = known.posts.saturating_sub(1));
        Ok(false)
    }

    fn poll(&mut self, poller: &mut Poller) -> Result<(), Refused> {
        self.0.poll(poller)
    }

    fn deliver(&mut self, model: &mut Model, poller: &Poller) -> Result<Option<usize>, Refused> {
        self.0.deliver(model, poller)
    }
}

type Shared = (Arc<Waiters<Model>>, Arc<Kernel>);

/// An instance whose files `ready` are ready, and of which it watches `wanted`.
fn instance(ready: u32, wanted: u32, adjust: impl FnOnce(&mut Model)) -> Shared {
    let state = Known { ready, ..Known::default() };
    let kernel = Arc::new(Kernel { state: Mutex::new(state), changed: Condvar::new() });
    let mut model = Model {
        kernel: Arc::clone(&kernel),
        wanted,
        is_over: false,
        refuses_the: 0,
        has_semaphore: true,
        has_waker: true,
    };
    adjust(&mut model);
    (Arc::new(Waiters::new(model)), kernel)
}

type Waits = thread::JoinHandle<Result<usize, Refused>>;

fn patient((waiters, kernel): &Shared) -> Waits {
    let waiters = Arc::clone(waiters);
    let kernel = Arc::clone(kernel);
    thread::spawn(move || waiters.wait(&mut Patient(kernel)))
}

fn impatient((waiters, kernel): &Shared) -> Waits {
    let waiters = Arc::clone(waiters);
    let kernel = Arc::clone(kernel);
    thread::spawn(move || waiters.wait(&mut Impatient(Patient(kernel))))
}

fn ended(threads: impl IntoIterator<Item = Waits>) -> Vec<Result<usize, Refused>> {
    threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
}

fn explore(run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS_MAX);
    model.check(run);
}

/// Whether loom finds an interleaving in which a thread sleeps for ever.
fn strands_a_thread(run: impl Fn() + Sync + Send + 'static) -> bool {
    let check = std::panic::AssertUnwindSafe(|| explore(run));
    let Err(panic) = std::panic::catch_unwind(check) else { return false };
    let reason = panic.downcast_ref::<String>().expect("loom panics with a message");
    assert!(reason.contains("deadlock"), "stranded in another way: {reason}");
    true
}

fn three_take_three(adjust: fn(&mut Model)) {
    let shared = instance(0b111, 0b111, adjust);
    let threads = [patient(&shared), patient(&shared)];
    let own = shared.0.wait(&mut Patient(Arc::clone(&shared.1)));
    assert_eq!((own, ended(threads)), (Ok(1), vec![Ok(1), Ok(1)]));
    assert_eq!(shared.1.with(|known| known.ready), 0);
}

#[test]
fn each_of_three_threads_takes_an_event_that_the_others_left() {
    explore(|| three_take_three(|_| {}));
}

#[test]
fn without_a_semaphore_a_thread_would_stay_in_the_queue() {
    assert!(strands_a_thread(|| three_take_three(|model| model.has_semaphore = false)));
}

/// One file is taken out while a thread waits for it and another one, which is ready by then.
fn removed_meanwhile(adjust: fn(&mut Model)) {
    let shared = instance(0, 0b11, adjust);
    let threads = [patient(&shared)];
    let mut state = shared.0.lock();
    state.subject.wanted = 0b10;
    shared.0.removed(state).expect("nothing refuses it");
    assert_eq!(shared.1.with(|known| known.held & 0b01), 0, "it is held no more");
    shared.1.with(|known| known.ready = 0b10);
    assert_eq!(ended(threads), [Ok(1)]);
}

#[test]
fn what_is_removed_while_a_thread_waits_is_held_no_more() {
    explore(|| removed_meanwhile(|_| {}));
}

#[test]
fn a_thread_that_leaves_with_an_event_applies_what_was_removed_before() {
    explore(|| {
        let shared = instance(0b10, 0b11, |_| {});
        let threads = [patient(&shared)];
        let mut state = shared.0.lock();
        state.subject.wanted = 0;
        shared.0.removed(state).expect("nothing refuses it");
        assert_eq!(shared.1.with(|known| known.held), 0, "it is held no more");
        let mut state = shared.0.lock();
        state.subject.is_over = true;
        state.dismiss();
        drop(state);
        assert!(matches!(ended(threads)[..], [Ok(0 | 1)]));
    });
}

fn watched_meanwhile(adjust: fn(&mut Model)) {
    let shared = instance(0b11, 0, adjust);
    let threads = [patient(&shared), patient(&shared)];
    for file in [0b01, 0b10] {
        let mut state = shared.0.lock();
        state.subject.wanted |= file;
        state.changed().expect("nothing refuses it");
    }
    assert_eq!(ended(threads), [Ok(1), Ok(1)]);
}

#[test]
fn what_is_added_while_a_thread_waits_ends_its_wait() {
    explore(|| watched_meanwhile(|_| {}));
}

#[test]
fn without_a_waker_a_change_would_not_reach_the_thread_that_polls() {
    assert!(strands_a_thread(|| watched_meanwhile(|model| model.has_waker = false)));
}

#[test]
fn a_post_that_a_thread_without_patience_took_is_passed_on() {
    explore(|| {
        let shared = instance(0b111, 0b111, |_| {});
        let hasty = impatient(&shared);
        let waits = [patient(&shared)];
        let own = shared.0.wait(&mut Patient(Arc::clone(&shared.1)));
        assert_eq!((own, ended(waits)), (Ok(1), vec![Ok(1)]));
        assert!(matches!(ended([hasty])[..], [Ok(0 | 1)]));
    });
}

#[test]
fn a_thread_that_can_open_no_poller_lets_the_next_one_try() {
    for refused in 1..=3 {
        explore(move || {
            let shared = instance(0b11, 0b11, |model| model.refuses_the = refused);
            let threads = [patient(&shared), patient(&shared)];
            let own = shared.0.wait(&mut Patient(Arc::clone(&shared.1)));
            let mut all = ended(threads);
            all.push(own);
            assert_eq!(all.iter().filter(|one| **one == Ok(1)).count(), 2, "{all:?}");
            assert_eq!(all.iter().filter(|one| **one == Err(Refused)).count(), 1, "{all:?}");
        });
    }
}

#[test]
fn an_instance_that_is_over_keeps_no_thread() {
    explore(|| {
        let shared = instance(0, 0b1, |_| {});
        let threads = [patient(&shared), patient(&shared)];
        let mut state = shared.0.lock();
        state.subject.is_over = true;
        state.dismiss();
        drop(state);
        assert_eq!(ended(threads), [Ok(0), Ok(0)]);
        assert!(shared.0.lock().is_unused());
    });
}
