//! Which thread of a process polls a full queue, while the others wait for that one.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex;
use rustix::time::Timespec;

use crate::queue::{Prefix, ServiceName};

/// Queues that have a lock. The threads that wait for further queues all poll.
const LOCKS_MAX: usize = 64;

static LOCKS: [PollLock; LOCKS_MAX] = [const { PollLock::new() }; LOCKS_MAX];

/// The states of a lock.
const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and another thread may wait for it.
const AWAITED: u32 = 2;

/// All bits: woken by every futex::wake.
const ANY_WAKER: NonZeroU32 = NonZeroU32::MAX;

/// Which thread of this process polls one full queue; the others wait for the lock.
///
/// poll(2) wakes every thread that waits for room as soon as there is room for one message; with 64 threads
/// most of their CPU time is spent on that. Here the others sleep in futex(2), and each that unlocks wakes one.
///
/// Nothing is allocated: a lock is given to a queue by a compare-and-swap of its key, and none is held in a
/// child of `fork(2)`, which has keys of its own. A thread that never unlocks (a signal handler jumped out of
/// it) costs the others no more than the time that they were ready to wait: each tries to send at the end of it.
#[derive(Debug)]
pub(super) struct PollLock {
    /// A hash of process, pool and service; 0 when it is free.
    key: AtomicU64,
    state: AtomicU32,
}

/// Holds the lock until it is dropped.
#[derive(Debug)]
pub(super) struct Guard {
    lock: &'static PollLock,
}

/// How a wait for the lock ended.
#[derive(Debug)]
pub(super) enum Locked {
    /// This thread has it.
    Held(Guard),
    /// `until_ns` has come.
    Late,
    /// A signal handler ran.
    Interrupted,
}

impl PollLock {
    const fn new() -> Self {
        Self { key: AtomicU64::new(0), state: AtomicU32::new(FREE) }
    }

    /// The one of a queue; `None` when all belong to other queues.
    pub(super) fn of_queue(prefix: &Prefix, service: &ServiceName) -> Option<&'static Self> {
        let mut hasher = DefaultHasher::new();
        (std::process::id(), prefix.as_str(), service.as_str()).hash(&mut hasher);
        Self::with_key(hasher.finish().max(1))
    }

    fn with_key(key: u64) -> Option<&'static Self> {
        let first = (key % LOCKS_MAX as u64) as usize;
        let (before, from) = LOCKS.split_at(first);
        from.iter().chain(before).find(|lock| {
            let found = lock.key.compare_exchange(0, key, Relaxed, Relaxed);
            found.map_or_else(|owner| owner == key, |_| true)
        })
    }

    /// Waits for the lock until the monotonic clock shows `until_ns`.
    pub(super) fn lock(&'static self, until_ns: u64) -> Locked {
        let until = Duration::from_nanos(until_ns);
        let until = Timespec::try_from(until).expect("nanoseconds in 64 bits are few seconds");
        let flags = futex::Flags::PRIVATE;
        if self.state.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok() {
            return Locked::Held(Guard { lock: self });
        }
        while self.state.swap(AWAITED, Acquire) != FREE {
            match futex::wait_bitset(&self.state, flags, AWAITED, Some(&until), ANY_WAKER) {
                Ok(()) | Err(Errno::AGAIN) => {}
                Err(Errno::INTR) => return Locked::Interrupted,
                // ETIMEDOUT; after other errors too the caller tries to send and comes again.
                Err(_) => return Locked::Late,
            }
        }
        Locked::Held(Guard { lock: self })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let state = &self.lock.state;
        if state.swap(FREE, Release) == AWAITED {
            // It fails for no reason but a bad address.
            let _ = futex::wake(state, futex::Flags::PRIVATE, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::monotonic_ns;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn one_thread_holds_the_lock_and_each_gets_it() {
        let lock = PollLock::with_key(0x1001).expect("a free one");
        let inside = AtomicU64::new(0);
        let rounds = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        let Locked::Held(guard) = lock.lock(monotonic_ns() + 60 * SECOND_NS) else {
                            panic!("a minute is enough");
                        };
                        assert_eq!(inside.fetch_add(1, Relaxed), 0);
                        rounds.fetch_add(1, Relaxed);
                        inside.fetch_sub(1, Relaxed);
                        drop(guard);
                    }
                });
            }
        });
        assert_eq!(rounds.into_inner(), 8_000);
    }

    #[test]
    fn a_wait_ends_at_its_time_and_the_lock_is_to_be_had_later() {
        let lock = PollLock::with_key(0x1002).expect("a free one");
        let far = monotonic_ns() + 60 * SECOND_NS;
        let Locked::Held(guard) = lock.lock(far) else { panic!("it was free") };
        let until_ns = monotonic_ns() + SECOND_NS / 100;
        assert!(matches!(lock.lock(until_ns), Locked::Late));
        assert!(monotonic_ns() >= until_ns);
        drop(guard);
        assert!(matches!(lock.lock(far), Locked::Held(_)));
    }

    #[test]
    fn each_queue_has_its_own_and_the_same_one_each_time() {
        let prefix = Prefix::new("/poll-lock").expect("a prefix");
        let service = |name| ServiceName::new(name).expect("a service");
        let of = |name| PollLock::of_queue(&prefix, &service(name)).expect("a free one");
        assert!(std::ptr::eq(of("A"), of("A")));
        assert!(!std::ptr::eq(of("A"), of("B")));
    }
}
