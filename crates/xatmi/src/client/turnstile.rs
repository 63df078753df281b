//! Threads of this process that wait for room in the same queue: one polls it, the others wait.
//!
//! poll(2) wakes every thread that waits for room as soon as there is room for one message; with
//! 64 threads most of their CPU time is spent on that. Here the others sleep in futex(2), and one
//! that leaves wakes one.
//!
//! Nothing is allocated and nothing is locked: a place is taken by a compare-and-swap of the key,
//! so `fork(2)` copies no lock that nobody opens; the child has keys of its own. A thread that
//! never leaves (a signal handler that jumped out of it) costs the others no more than the time
//! that they were ready to wait: each tries to send at the end of it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex;
use rustix::time::Timespec;

use crate::queue::{Prefix, ServiceName};

/// Queues for which threads line up. Those of further queues all poll.
const TURNSTILES: usize = 64;

static ALL: [Turnstile; TURNSTILES] = [const { Turnstile::new() }; TURNSTILES];

/// The states of a turnstile.
const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and somebody may wait for it.
const AWAITED: u32 = 2;

/// All bits: woken by every futex::wake.
const ANY_WAKER: NonZeroU32 = NonZeroU32::MAX;

/// Where the threads of a process line up for one queue.
#[derive(Debug)]
pub(super) struct Turnstile {
    /// A hash of process, pool and service; 0 when nobody needed it yet.
    key: AtomicU64,
    state: AtomicU32,
}

/// The right to poll, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    turnstile: &'static Turnstile,
}

/// How a wait for the turn ended.
#[derive(Debug)]
pub(super) enum Entered {
    /// It is this thread's turn.
    Turn(Turn),
    /// `until_ns` has come.
    Late,
    /// A signal handler ran.
    Interrupted,
}

impl Turnstile {
    const fn new() -> Self {
        Self { key: AtomicU64::new(0), state: AtomicU32::new(FREE) }
    }

    /// The one of a queue; `None` when all belong to other queues.
    pub(super) fn of(prefix: &Prefix, service: &ServiceName) -> Option<&'static Self> {
        let mut hasher = DefaultHasher::new();
        (std::process::id(), prefix.as_str(), service.as_str()).hash(&mut hasher);
        Self::with_key(hasher.finish().max(1))
    }

    fn with_key(key: u64) -> Option<&'static Self> {
        let first = (key % TURNSTILES as u64) as usize;
        let (before, from) = ALL.split_at(first);
        from.iter().chain(before).find(|turnstile| {
            let found = turnstile.key.compare_exchange(0, key, Relaxed, Relaxed);
            found.map_or_else(|owner| owner == key, |_| true)
        })
    }

    /// Waits for the turn until the monotonic clock shows `until_ns`.
    pub(super) fn enter(&'static self, until_ns: u64) -> Entered {
        let until = Duration::from_nanos(until_ns);
        let until = Timespec::try_from(until).expect("nanoseconds in 64 bits are few seconds");
        let flags = futex::Flags::PRIVATE;
        if self.state.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_ok() {
            return Entered::Turn(Turn { turnstile: self });
        }
        while self.state.swap(AWAITED, Acquire) != FREE {
            match futex::wait_bitset(&self.state, flags, AWAITED, Some(&until), ANY_WAKER) {
                Ok(()) | Err(Errno::AGAIN) => {}
                Err(Errno::INTR) => return Entered::Interrupted,
                // ETIMEDOUT; whatever else there is, the caller tries to send and comes again.
                Err(_) => return Entered::Late,
            }
        }
        Entered::Turn(Turn { turnstile: self })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let state = &self.turnstile.state;
        if state.swap(FREE, Release) == AWAITED {
            // It fails for no reason but a bad address.
            let _ = futex::wake(state, futex::Flags::PRIVATE, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::clock::monotonic_ns;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn one_thread_has_the_turn_and_each_gets_it() {
        let turnstile = Turnstile::with_key(0x1001).expect("a free one");
        let (inside, turns) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        let Entered::Turn(turn) = turnstile.enter(monotonic_ns() + 60 * SECOND_NS)
                        else {
                            panic!("a minute is enough");
                        };
                        assert_eq!(inside.fetch_add(1, Relaxed), 0);
                        turns.fetch_add(1, Relaxed);
                        inside.fetch_sub(1, Relaxed);
                        drop(turn);
                    }
                });
            }
        });
        assert_eq!(turns.into_inner(), 8_000);
    }

    #[test]
    fn a_wait_ends_at_its_time_and_the_turn_is_still_to_be_had_later() {
        let turnstile = Turnstile::with_key(0x1002).expect("a free one");
        let far = monotonic_ns() + 60 * SECOND_NS;
        let Entered::Turn(turn) = turnstile.enter(far) else { panic!("it was free") };
        let until_ns = monotonic_ns() + SECOND_NS / 100;
        assert!(matches!(turnstile.enter(until_ns), Entered::Late));
        assert!(monotonic_ns() >= until_ns);
        drop(turn);
        assert!(matches!(turnstile.enter(far), Entered::Turn(_)));
    }

    #[test]
    fn each_queue_has_its_own_and_the_same_one_each_time() {
        let prefix = Prefix::new("/turnstile").expect("a prefix");
        let service = |name| ServiceName::new(name).expect("a service");
        let of = |name| Turnstile::of(&prefix, &service(name)).expect("a free one");
        assert!(std::ptr::eq(of("A"), of("A")));
        assert!(!std::ptr::eq(of("A"), of("B")));
    }
}
