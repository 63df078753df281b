//! Every interleaving of two wakers and the owner of a poller: no wake is lost.
//!
//! Checks the protocol of `src/waker.rs`, which is taken in as it stands, on a model of an
//! eventfd. A lost wake shows as an owner that sleeps for ever, which loom reports. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p pollux-poller --test loom_waker --release`.
#![cfg(loom)]

#[path = "../src/waker.rs"]
#[expect(dead_code, reason = "the eventfd of the waker, which the model stands in for")]
mod waker;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use pollux_poller::Error;
use waker::{WakeFd, WakeFlag};

/// An eventfd that a poller watches: what is in it, and whether a ring was not reported yet.
struct Eventfd {
    state: Mutex<Rings>,
    is_rung: Condvar,
}

#[derive(Default)]
struct Rings {
    count: usize,
    has_edge: bool,
}

impl WakeFd for Eventfd {
    fn signal(&self) {
        let mut state = self.state.lock().expect("no thread panics with it");
        state.count += 1;
        state.has_edge = true;
        self.is_rung.notify_one();
    }

    fn drain(&self) {
        self.state.lock().expect("no thread panics with it").count = 0;
    }
}

impl Eventfd {
    fn new() -> Self {
        Self { state: Mutex::new(Rings::default()), is_rung: Condvar::new() }
    }

    /// Sleeps as a poller does that reports a readable eventfd again and again.
    fn wait_level(&self) {
        let mut state = self.state.lock().expect("no thread panics with it");
        while state.count == 0 {
            state = self.is_rung.wait(state).expect("no thread panics with it");
        }
    }

    /// Sleeps as a poller does that reports each ring once and never reads.
    fn wait_edge(&self) {
        let mut state = self.state.lock().expect("no thread panics with it");
        while !state.has_edge {
            state = self.is_rung.wait(state).expect("no thread panics with it");
        }
        state.has_edge = false;
    }
}

type Flag = WakeFlag<Eventfd>;

/// How often loom may take the processor from a thread that could run. A lost wake needs
/// one such moment in the owner and one in each waker; without a bound a run takes hours.
const PREEMPTIONS_MAX: usize = 3;

/// Two threads publish three data and wake after each; the owner waits until it has seen all.
/// Three, because a swallowed ring harms only the wake after it.
fn run(wait: fn(&Flag)) {
    let flag = Arc::new(WakeFlag::new(Eventfd::new()));
    let published = Arc::new(AtomicUsize::new(0));
    let threads = [2, 1].map(|wakes| {
        let flag = Arc::clone(&flag);
        let published = Arc::clone(&published);
        thread::spawn(move || {
            for _ in 0..wakes {
                published.fetch_add(1, Ordering::Relaxed);
                flag.wake();
            }
        })
    });
    while published.load(Ordering::Relaxed) < 3 {
        wait(&flag);
    }
    threads.into_iter().for_each(|thread| thread.join().expect("wakers do not panic"));
}

fn explore(wait: fn(&Flag)) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS_MAX);
    model.check(move || run(wait));
}

/// Whether loom finds an interleaving in which the owner sleeps for ever.
fn loses_a_wake(wait: fn(&Flag)) -> bool {
    let Err(panic) = std::panic::catch_unwind(|| explore(wait)) else { return false };
    let reason = panic.downcast_ref::<String>().expect("loom panics with a message");
    assert!(reason.contains("deadlock"), "lost in another way: {reason}");
    true
}

#[test]
fn no_wake_is_lost_by_a_level_poller() {
    explore(|flag| {
        flag.fd().wait_level();
        flag.acknowledge_level();
    });
}

#[test]
fn no_wake_is_lost_by_an_edge_poller() {
    explore(|flag| {
        flag.fd().wait_edge();
        flag.acknowledge_edge();
    });
}

/// The simulated poller asks the flag first and sleeps on the eventfd only when it is clear.
#[test]
fn no_wake_is_lost_by_a_poller_that_asks_the_flag() {
    explore(|flag| {
        if !flag.is_pending() {
            flag.fd().wait_level();
        }
        flag.acknowledge_level();
    });
}

#[test]
fn clearing_the_flag_before_emptying_the_bell_would_lose_a_wake() {
    assert!(loses_a_wake(|flag| {
        flag.fd().wait_level();
        flag.acknowledge_edge();
        flag.fd().drain();
    }));
}

#[test]
fn not_clearing_the_flag_would_lose_a_wake() {
    assert!(loses_a_wake(|flag| flag.fd().wait_edge()));
}
