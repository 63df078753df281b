//! Stops all loops of a group at the end of a turn, for as long as something runs that must find
//! none of them at work: a dump of all connections, a change of what they share.
//!
//! ```text
//!  requester:  take the turn ─ request ─ wake all ─ wait until no loop runs ─ f ─ release
//!  loop:       … turn ─ wait ─ requested? ─ stop …………………………………………………………………┘ turn …
//!              … turn ─ end ─ leave
//! ```
//!
//! Releasing starts every loop at once, also where the next requester stands ready: each isolation
//! asks for a stop of its own, so that loops have a turn in between however many
//! requesters there are. The request comes before the wakes, and a loop reads it after its wait,
//! or it could sleep through. Nothing is locked while `f` runs, so whatever happens in there,
//! a panic included, loops can leave and requesters can give up.
//!
//! `tests/loom_isolation.rs` takes in this file as it stands, with that of the inbox; so
//! nothing here may name anything else of the crate.

use std::fmt;
use std::time::{Duration, Instant};

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering};
#[cfg(loom)]
use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(not(loom))]
use std::sync::{Condvar, Mutex, MutexGuard};

use crate::inbox::Wake;

/// Loops did not stop in time; nothing was run, and those that did were released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StillRunning {
    /// Indices of the loops that were at work. None when all the time went by with another
    /// requester's isolation.
    pub loops: Vec<usize>,
}

impl fmt::Display for StillRunning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.loops {
            [] => f.write_str("another isolation did not end in time"),
            loops => write!(f, "loops {loops:?} did not stop in time"),
        }
    }
}

impl std::error::Error for StillRunning {}

/// Where a loop is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LoopState {
    Running,
    Stopped,
    Ended,
}

#[derive(Debug)]
struct State {
    loops: Vec<LoopState>,
    /// Whether a requester has its turn.
    is_taken: bool,
    /// Counts releases; a loop is stopped until the next one.
    releases: u64,
}

impl State {
    fn running(&self) -> impl Iterator<Item = usize> {
        let all = self.loops.iter().enumerate();
        all.filter(|(_, state)| **state == LoopState::Running).map(|(index, _)| index)
    }
}

/// What the loops of a group and the threads that stop them share.
#[derive(Debug)]
pub struct Isolation {
    /// A hint that spares loops the lock; what counts is under it.
    is_requested: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

impl Isolation {
    /// For loops with the indices below `loops`, all of them running.
    #[must_use]
    pub fn new(loops: usize) -> Self {
        let loops = vec![LoopState::Running; loops];
        Self {
            is_requested: AtomicBool::new(false),
            state: Mutex::new(State { loops, is_taken: false, releases: 0 }),
            changed: Condvar::new(),
        }
    }

    /// Whether a loop should [`stop`](Self::stop). Asked once a turn, after the wait.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        // What a wake makes known needs no order here: the waker's flag and the lock have it.
        self.is_requested.load(Ordering::Relaxed)
    }

    /// Blocks the loop `index`, which calls it, until the isolation under way is over.
    ///
    /// # Panics
    /// When the loop has left.
    pub fn stop(&self, index: usize) {
        let mut state = self.lock();
        assert!(state.loops[index] == LoopState::Running, "loop {index} has left");
        if !state.is_taken {
            return;
        }
        state.loops[index] = LoopState::Stopped;
        self.changed.notify_all();
        let releases = state.releases;
        drop(self.wait_until(state, None, |state| state.releases != releases));
    }

    /// Takes the loop `index`, which calls it and ends, out of the count.
    pub fn leave(&self, index: usize) {
        self.lock().loops[index] = LoopState::Ended;
        self.changed.notify_all();
    }

    /// Runs `f` while every loop is stopped or has ended, after one turn of each at the most. `wakers`
    /// are those of the loops. Requesters take turns.
    ///
    /// Not for threads of the loops themselves: theirs would run. `f` must not wait for a loop.
    ///
    /// # Errors
    /// [`StillRunning`] when `timeout` is over before all are stopped; then `f` does not run.
    pub fn isolate<W: Wake, R>(
        &self,
        wakers: &[W],
        timeout: Duration,
        f: impl FnOnce() -> R,
    ) -> Result<R, StillRunning> {
        // A moment beyond what the clock can count never comes.
        let end = Instant::now().checked_add(timeout);
        self.request(end)?;
        wakers.iter().for_each(Wake::wake);
        let all_stopped = self.await_stopped(end);
        let _release = Release(self);
        all_stopped.map(|()| f())
    }

    fn request(&self, end: Option<Instant>) -> Result<(), StillRunning> {
        let mut state = self.wait_until(self.lock(), end, |state| !state.is_taken);
        if state.is_taken {
            return Err(StillRunning { loops: Vec::new() });
        }
        state.is_taken = true;
        self.is_requested.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn await_stopped(&self, end: Option<Instant>) -> Result<(), StillRunning> {
        let state = self.wait_until(self.lock(), end, |state| state.running().next().is_none());
        let loops: Vec<usize> = state.running().collect();
        if loops.is_empty() { Ok(()) } else { Err(StillRunning { loops }) }
    }

    fn release(&self) {
        let mut state = self.lock();
        state.is_taken = false;
        self.is_requested.store(false, Ordering::Relaxed);
        state.releases += 1;
        for a_loop in &mut state.loops {
            if *a_loop == LoopState::Stopped {
                *a_loop = LoopState::Running;
            }
        }
        self.changed.notify_all();
    }

    /// Waits until `is_so` or until `end`; without one for ever.
    fn wait_until<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        end: Option<Instant>,
        is_so: impl Fn(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        while !is_so(&state) {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            state = match left {
                Some(Duration::ZERO) => return state,
                Some(left) => self.changed.wait_timeout(state, left).expect(UNPOISONED).0,
                None => self.changed.wait(state).expect(UNPOISONED),
            };
        }
        state
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect(UNPOISONED)
    }
}

/// A loop that stops twice is a bug that panics, and takes the group with it.
const UNPOISONED: &str = "no loop called out of order";

/// Ends an isolation, also when what ran in it panics.
struct Release<'a>(&'a Isolation);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicU32, AtomicUsize};
    use std::thread;

    use pollux_poller::{Events, Mechanism, Waker};

    const LONG: Duration = Duration::from_secs(60);
    const NOBODY: &[Waker] = &[];

    #[test]
    fn a_loop_that_does_not_stop_is_named() {
        let isolation = Isolation::new(3);
        isolation.leave(1);
        let refused = isolation.isolate(NOBODY, Duration::ZERO, || panic!("a loop runs"));
        let refused = refused.expect_err("two loops run");
        assert_eq!(refused.loops, [0, 2]);
        assert_eq!(refused.to_string(), "loops [0, 2] did not stop in time");
        assert!(!isolation.is_requested(), "the request is over");
        isolation.stop(0);
    }

    #[test]
    fn with_all_loops_gone_nothing_is_waited_for() {
        let isolation = Isolation::new(2);
        isolation.leave(0);
        isolation.leave(1);
        isolation.leave(1);
        assert_eq!(isolation.isolate(NOBODY, Duration::ZERO, || 7), Ok(7));
    }

    #[test]
    fn a_requester_within_another_gives_up_and_a_panic_releases() {
        let isolation = Isolation::new(0);
        let inner = isolation.isolate(NOBODY, LONG, || {
            isolation.isolate(NOBODY, Duration::ZERO, || panic!("two at a time"))
        });
        let refused = inner.expect("no loop runs").expect_err("the first one still runs");
        assert_eq!(refused.to_string(), "another isolation did not end in time");

        let panics = || isolation.isolate(NOBODY, LONG, || panic!("on purpose"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(isolation.isolate(NOBODY, Duration::ZERO, || 7), Ok(7));
    }

    /// Loops that sleep and two requesters, for real: what the model can't have is the kernel.
    #[test]
    fn sleeping_loops_are_woken_and_have_turns_between_isolations() {
        const ISOLATIONS: usize = 200;
        let isolation = Isolation::new(2);
        let turns = AtomicUsize::new(0);
        let at_work = AtomicU32::new(0);
        let (wakers_to, wakers_from) = std::sync::mpsc::channel();
        let take_turns = |index: usize| {
            let mut poller = Mechanism::Epoll.open().expect("epoll is everywhere");
            wakers_to.clone().send(poller.waker()).expect("it is received");
            let mut events = Events::with_capacity(1);
            for _ in 0..ISOLATIONS * 2 {
                while !isolation.is_requested() {
                    poller.wait(&mut events, Some(LONG)).expect("epoll waits");
                    assert!(events.is_woken(), "slept through");
                }
                isolation.stop(index);
                at_work.fetch_add(1, Ordering::SeqCst);
                turns.fetch_add(1, Ordering::SeqCst);
                at_work.fetch_sub(1, Ordering::SeqCst);
            }
            isolation.leave(index);
        };
        thread::scope(|scope| {
            let take_turns = &take_turns;
            for index in 0..2 {
                scope.spawn(move || take_turns(index));
            }
            let wakers: Vec<Waker> = wakers_from.iter().take(2).collect();
            let request = || {
                for _ in 0..ISOLATIONS {
                    let done = isolation.isolate(&wakers, LONG, || {
                        assert_eq!(at_work.load(Ordering::SeqCst), 0, "a loop is at work");
                    });
                    done.expect("loops stop");
                }
            };
            thread::scope(|requesters| {
                requesters.spawn(request);
                requesters.spawn(request);
            });
        });
        assert_eq!(turns.into_inner(), ISOLATIONS * 4, "each isolation is a stop of each loop");
    }
}
