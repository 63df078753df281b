//! Which request may begin now: the end of the plan for a closed loop, the schedule for an open
//! one.
//!
//! Sessions and the worker of one thread ask it. A number of requests that threads share is
//! taken in portions, so that the shared counter stays out of the way.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::schedule::Arrivals;

/// Requests taken from the shared number at once; fewer when there are few.
const PORTION_MAX: u64 = 64;

/// How many requests are left, those of the warm-up apart.
#[derive(Debug)]
pub(crate) struct Budget {
    /// This thread's.
    left: u64,
    /// What all threads may still take.
    pool: Option<Arc<AtomicU64>>,
    portion: u64,
}

impl Budget {
    /// As many as there is time for.
    pub(crate) fn unlimited() -> Self {
        Self { left: u64::MAX, pool: None, portion: 0 }
    }

    /// So many for this thread alone.
    pub(crate) fn own(requests: u64) -> Self {
        Self { left: requests, pool: None, portion: 0 }
    }

    /// A part of what `pool` holds, with so many takers.
    pub(crate) fn shared(pool: Arc<AtomicU64>, takers: u64) -> Self {
        let portion = (pool.load(Relaxed) / (takers * 8).max(1)).clamp(1, PORTION_MAX);
        Self { left: 0, pool: Some(pool), portion }
    }

    /// Takes one; false when none is left.
    #[inline]
    pub(crate) fn take(&mut self) -> bool {
        if self.left == 0 && !self.refill() {
            return false;
        }
        self.left -= 1;
        true
    }

    /// Takes so many, or those that are left; says how many. Only for one that is not shared.
    pub(crate) fn take_up_to(&mut self, requests: u64) -> u64 {
        let taken = requests.min(self.left);
        self.left -= taken;
        taken
    }

    /// Whether none is left.
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.left == 0 && self.pool.as_ref().is_none_or(|pool| pool.load(Relaxed) == 0)
    }

    fn refill(&mut self) -> bool {
        let Some(pool) = &self.pool else { return false };
        let portion = self.portion;
        let before = pool.fetch_update(Relaxed, Relaxed, |left| Some(left.saturating_sub(portion)));
        self.left = before.map_or(0, |left| left.min(portion));
        self.left > 0
    }
}

/// A request that may begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Start {
    /// From when its latency counts.
    pub(crate) at_ns: u64,
    /// A connection was free at that time, so it should have left then.
    pub(crate) had_connection: bool,
}

/// Where requests come from.
#[derive(Debug)]
pub(crate) enum Supply {
    /// One for each that was answered.
    Closed,
    /// The schedule's.
    Open(Box<Due>),
}

/// An open loop's requests on one thread.
#[derive(Debug)]
pub(crate) struct Due {
    arrivals: Arrivals,
    /// When the schedule began.
    pub(crate) origin_ns: u64,
    /// No request that is due from here on is sent.
    pub(crate) end_ns: u64,
    /// Due, and an idle connection was woken for each.
    given_out: VecDeque<u64>,
}

impl Due {
    /// The requests of `arrivals`; nothing is due before `origin_ns` is set.
    pub(crate) fn new(arrivals: Arrivals) -> Self {
        Self { arrivals, origin_ns: u64::MAX, end_ns: u64::MAX, given_out: VecDeque::new() }
    }

    /// When the next request is due that nobody was woken for.
    #[inline]
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let due = self.origin_ns.saturating_add(self.arrivals.peek()?);
        (due < self.end_ns).then_some(due)
    }

    /// Whether a request is due by `now_ns` that has not begun.
    pub(crate) fn is_behind(&self, now_ns: u64) -> bool {
        !self.given_out.is_empty() || self.next_ns().is_some_and(|due| due <= now_ns)
    }

    /// How many wait for a connection that was woken for them and is gone.
    pub(crate) fn given_out(&self) -> usize {
        self.given_out.len()
    }

    /// Sets the next request aside for an idle connection, if it is due.
    pub(crate) fn give_out(&mut self, now_ns: u64) -> bool {
        let due = self.take(now_ns);
        self.given_out.extend(due);
        due.is_some()
    }

    /// The next request that is due.
    #[inline]
    pub(crate) fn start(&mut self, now_ns: u64) -> Option<Start> {
        if let Some(at_ns) = self.given_out.pop_front() {
            return Some(Start { at_ns, had_connection: true });
        }
        self.take(now_ns).map(|at_ns| Start { at_ns, had_connection: false })
    }

    /// Passes all that are due before `until_ns`; says how many.
    pub(crate) fn skip(&mut self, until_ns: u64) -> u64 {
        self.arrivals.skip(until_ns.min(self.end_ns).saturating_sub(self.origin_ns))
    }

    #[inline]
    fn take(&mut self, now_ns: u64) -> Option<u64> {
        let due = self.next_ns().filter(|due| *due <= now_ns)?;
        let _taken = self.arrivals.take(due - self.origin_ns);
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arrival, Stage};

    #[test]
    fn takers_share_exactly_the_number_there_is() {
        for requests in [0, 1, 7, 1_000, 10_001] {
            let pool = Arc::new(AtomicU64::new(requests));
            let mut takers: Vec<Budget> =
                (0..3).map(|_| Budget::shared(Arc::clone(&pool), 3)).collect();
            let mut taken = 0;
            while takers.iter().any(|taker| !taker.is_spent()) {
                taken += takers.iter_mut().map(|taker| u64::from(taker.take())).sum::<u64>();
            }
            assert_eq!(taken, requests);
        }
    }

    #[test]
    fn what_is_due_is_given_once_and_never_early_nor_after_the_end() {
        let stage = Stage { from_per_s: 1_000.0, to_per_s: 1_000.0, lasts: None };
        let mut due = Due::new(Arrivals::new(&[stage], Arrival::Constant, 0, 1, 0));
        assert_eq!(due.start(u64::MAX - 1), None, "no origin yet");
        (due.origin_ns, due.end_ns) = (50_000_000, 53_000_000);
        assert_eq!(due.start(49_999_999), None);
        assert!(due.give_out(51_000_000));
        assert_eq!((due.given_out(), due.next_ns()), (1, Some(51_000_000)));
        let start = |at_ns, had_connection| Some(Start { at_ns, had_connection });
        assert_eq!(due.start(51_000_000), start(50_000_000, true));
        assert_eq!(due.start(51_000_000), start(51_000_000, false));
        assert_eq!(due.start(51_999_000), None);
        assert_eq!(due.start(60_000_000), start(52_000_000, false));
        assert_eq!((due.start(60_000_000), due.next_ns()), (None, None));
    }
}
