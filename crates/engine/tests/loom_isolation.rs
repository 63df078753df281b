//! Every interleaving of loops and requesters: none runs inside an isolation, all continue.
//!
//! Checks `src/isolation.rs`, which is taken in as it stands, on a model of wakers. Threads that
//! wait for each other for ever show as a deadlock, which loom reports; a loop that runs inside
//! shows in a flag. Loom's clock stands still, so a timeout is either over at once or never.
//! Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p pollux-engine --test loom_isolation --release`.
#![cfg(loom)]

#[path = "../src/inbox.rs"]
pub mod inbox;
#[path = "../src/isolation.rs"]
pub mod isolation;

use std::panic::UnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use inbox::Wake;
use isolation::{Isolation, StillRunning};
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::sync::{Condvar, Mutex};
use loom::thread::{self, JoinHandle};

/// How often loom may take the processor from a thread that could run; without a bound a run
/// takes hours.
const PREEMPTIONS_MAX: usize = 3;

const FOR_EVER: Duration = Duration::from_secs(1_000_000);

/// The waker of one loop, level-triggered: reported until it is acknowledged.
#[derive(Clone)]
struct ModelWaker(Arc<(Mutex<bool>, Condvar)>);

impl Wake for ModelWaker {
    fn wake(&self) {
        *self.0.0.lock().expect("no thread panics with it") = true;
        self.0.1.notify_one();
    }
}

impl ModelWaker {
    fn new() -> Self {
        Self(Arc::new((Mutex::new(false), Condvar::new())))
    }

    fn wait(&self) {
        let mut is_rung = self.0.0.lock().expect("no thread panics with it");
        while !*is_rung {
            is_rung = self.0.1.wait(is_rung).expect("no thread panics with it");
        }
    }

    fn acknowledge(&self) {
        *self.0.0.lock().expect("no thread panics with it") = false;
    }
}

/// A group of loops and what can be seen of them.
struct Group {
    isolation: Isolation,
    wakers: Vec<ModelWaker>,
    at_work: Vec<AtomicBool>,
    /// Requesters inside an isolation.
    inside: AtomicUsize,
    is_stopped: AtomicBool,
}

impl Group {
    fn new(loops: usize) -> Arc<Self> {
        Arc::new(Self {
            isolation: Isolation::new(loops),
            wakers: (0..loops).map(|_| ModelWaker::new()).collect(),
            at_work: (0..loops).map(|_| AtomicBool::new(false)).collect(),
            inside: AtomicUsize::new(0),
            is_stopped: AtomicBool::new(false),
        })
    }

    /// One turn's work of a loop, in which nobody is inside.
    fn work(&self, index: usize) {
        self.at_work[index].store(true, Ordering::Relaxed);
        assert_eq!(self.inside.load(Ordering::Relaxed), 0, "runs inside");
        self.at_work[index].store(false, Ordering::Relaxed);
    }

    fn isolate(&self, timeout: Duration) -> Result<(), StillRunning> {
        self.isolation.isolate(&self.wakers, timeout, || {
            assert_eq!(self.inside.fetch_add(1, Ordering::Relaxed), 0, "two at a time");
            for at_work in &self.at_work {
                assert!(!at_work.load(Ordering::Relaxed), "runs inside");
            }
            self.inside.fetch_sub(1, Ordering::Relaxed);
        })
    }

    fn stop(&self, loops: Vec<JoinHandle<()>>) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.wakers.iter().for_each(Wake::wake);
        loops.into_iter().for_each(|each| each.join().expect("loops do not panic"));
    }
}

/// A loop: works, waits, reads the request, until it is ended.
fn turns(group: &Group, index: usize) {
    while !group.is_stopped.load(Ordering::Relaxed) {
        group.work(index);
        group.wakers[index].wait();
        group.wakers[index].acknowledge();
        if group.isolation.is_requested() {
            group.isolation.stop(index);
        }
    }
    group.isolation.leave(index);
}

fn start(group: &Arc<Group>, run: fn(&Group, usize)) -> Vec<JoinHandle<()>> {
    let start_one = |index| {
        let group = Arc::clone(group);
        thread::spawn(move || run(&group, index))
    };
    (0..group.wakers.len()).map(start_one).collect()
}

fn explore(run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS_MAX);
    model.check(run);
}

/// What loom says against `run`; empty when it finds nothing.
fn fault_of(run: impl Fn() + Sync + Send + UnwindSafe + 'static) -> String {
    let Err(panic) = std::panic::catch_unwind(|| explore(run)) else { return String::new() };
    let literal = || panic.downcast_ref::<&str>().map(|reason| (*reason).to_owned());
    panic.downcast_ref::<String>().cloned().or_else(literal).expect("a panic with a message")
}

#[test]
fn no_loop_runs_inside_and_all_proceed() {
    explore(|| {
        let group = Group::new(2);
        let loops = start(&group, turns);
        assert_eq!(group.isolate(FOR_EVER), Ok(()));
        group.stop(loops);
    });
}

#[test]
fn two_requesters_take_turns() {
    explore(|| {
        let group = Group::new(1);
        let loops = start(&group, turns);
        let other = Arc::clone(&group);
        let other = thread::spawn(move || assert_eq!(other.isolate(FOR_EVER), Ok(())));
        assert_eq!(group.isolate(FOR_EVER), Ok(()));
        other.join().expect("requesters do not panic");
        group.stop(loops);
    });
}

#[test]
fn loops_may_end_while_they_are_asked_to_stop() {
    explore(|| {
        let group = Group::new(2);
        let loops = start(&group, |group, index| {
            group.work(index);
            if index == 0 && group.isolation.is_requested() {
                group.isolation.stop(index);
            }
            group.isolation.leave(index);
        });
        assert_eq!(group.isolate(FOR_EVER), Ok(()));
        loops.into_iter().for_each(|each| each.join().expect("loops do not panic"));
    });
}

/// Whether the loop happens to stop in time or not, it continues.
#[test]
fn a_requester_that_gives_up_releases_the_loops() {
    explore(|| {
        let group = Group::new(1);
        let loops = start(&group, turns);
        if let Err(refused) = group.isolate(Duration::ZERO) {
            assert_eq!(refused.loops, [0]);
        }
        group.stop(loops);
    });
}

#[test]
fn looking_before_the_wake_is_acknowledged_would_sleep_through() {
    let fault = fault_of(|| {
        let group = Group::new(1);
        let loops = start(&group, |group, index| {
            while !group.is_stopped.load(Ordering::Relaxed) {
                group.wakers[index].wait();
                if group.isolation.is_requested() {
                    group.isolation.stop(index);
                }
                group.wakers[index].acknowledge();
            }
            group.isolation.leave(index);
        });
        group.wakers[0].wake();
        assert_eq!(group.isolate(FOR_EVER), Ok(()));
        group.stop(loops);
    });
    assert!(fault.contains("deadlock"), "{fault:?}");
}

#[test]
fn waking_before_the_request_would_sleep_through() {
    let fault = fault_of(|| {
        let group = Group::new(1);
        let loops = start(&group, turns);
        group.wakers[0].wake();
        let nobody: &[ModelWaker] = &[];
        assert_eq!(group.isolation.isolate(nobody, FOR_EVER, || ()), Ok(()));
        group.stop(loops);
    });
    assert!(fault.contains("deadlock"), "{fault:?}");
}

/// That the flags show a loop inside, if there is one.
#[test]
fn working_after_leaving_would_run_inside() {
    let fault = fault_of(|| {
        let group = Group::new(1);
        let loops = start(&group, |group, index| {
            group.isolation.leave(index);
            group.work(index);
        });
        assert_eq!(group.isolate(FOR_EVER), Ok(()));
        loops.into_iter().for_each(|each| each.join().expect("loops do not panic"));
    });
    assert!(fault.contains("runs inside"), "{fault:?}");
}
