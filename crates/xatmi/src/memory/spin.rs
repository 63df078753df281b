//! Whether to look for a moment before sleeping: bounded, and only as long as it pays.
//!
//! Clients (for a reply) and workers (for a request) spin where what they wait for comes within
//! microseconds from another CPU: a sleep and the wake out of it cost several times as much. Where it
//! comes later (long services, more runnable threads than CPUs), spinning is CPU time taken from
//! others, so it stops by itself. Pure but for the clock and the number of CPUs.
//!
//! ```text
//!  score    0 ............ PAYS ............ SCORE_MAX     a success adds a part of what is missing,
//!           spin each TRY_EACH-th time │ spin              a failure takes a part of it away
//! ```

use std::hint::spin_loop;
use std::sync::OnceLock;

use crate::clock::monotonic_ns;

/// The longest spin: what a sleep and a wake cost on a virtual machine, so that a failure at most
/// doubles the cost of a wait.
const SPIN_NS_MAX: u64 = 10_000;
/// Looks between two readings of the clock.
const LOOKS: u32 = 8;

const SCORE_MAX: u32 = 1 << 10;
/// A success or a failure moves the score by this part of the distance.
const WEIGHT_SHIFT: u32 = 3;
/// From this score on it is worth spinning each time.
const PAYS: u32 = SCORE_MAX / 4;
/// Below it, how often it is tried all the same: a failure each costs little, and what changed is noticed.
const TRY_EACH: u32 = 16;

/// How it went lately.
#[derive(Debug)]
pub(crate) struct Spin {
    score: u32,
    skipped: u32,
}

impl Default for Spin {
    fn default() -> Self {
        Self { score: SCORE_MAX / 2, skipped: 0 }
    }
}

impl Spin {
    /// Whether to spin before this sleep.
    #[inline]
    pub(crate) fn is_due(&mut self) -> bool {
        has_other_cpu() && self.is_worth_it()
    }

    /// Looks until `is_there`, or until the time for it is over; whether it is there.
    #[inline]
    pub(crate) fn spin(&mut self, mut is_there: impl FnMut() -> bool) -> bool {
        let end_ns = monotonic_ns() + SPIN_NS_MAX;
        loop {
            for _ in 0..LOOKS {
                if is_there() {
                    self.note(true);
                    return true;
                }
                spin_loop();
            }
            if monotonic_ns() >= end_ns {
                self.note(false);
                return false;
            }
        }
    }

    fn is_worth_it(&mut self) -> bool {
        if self.score >= PAYS {
            return true;
        }
        self.skipped += 1;
        if self.skipped >= TRY_EACH {
            self.skipped = 0;
            return true;
        }
        false
    }

    fn note(&mut self, is_success: bool) {
        match is_success {
            true => self.score += (SCORE_MAX - self.score) >> WEIGHT_SHIFT,
            false => self.score -= self.score.div_ceil(1 << WEIGHT_SHIFT),
        }
    }
}

/// Whether another thread can run while this one does.
fn has_other_cpu() -> bool {
    static CPUS: OnceLock<usize> = OnceLock::new();
    *CPUS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from)) > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stops_where_nothing_comes_and_begins_again_where_something_does() {
        let mut spin = Spin::default();
        assert!(spin.is_worth_it());
        let failures = (0..).take_while(|_| {
            spin.note(false);
            spin.score >= PAYS
        });
        assert!(failures.count() < 10, "a few failures are enough");
        for _ in 0..100 {
            spin.note(false);
        }
        let tries = (0..TRY_EACH * 10).filter(|_| spin.is_worth_it()).count();
        assert_eq!(tries, 10, "it is tried now and then");
        let successes = (0..).take_while(|_| {
            spin.note(true);
            spin.score < PAYS
        });
        assert!(successes.count() < 4, "a few successes are enough");
        for _ in 0..100 {
            spin.note(true);
        }
        assert!(spin.score <= SCORE_MAX && spin.is_worth_it());
    }

    #[test]
    fn a_spin_ends_with_what_it_waits_for_or_after_its_time() {
        let mut spin = Spin::default();
        let mut looks = 0;
        assert!(spin.spin(|| {
            looks += 1;
            looks == 3
        }));
        let since_ns = monotonic_ns();
        assert!(!spin.spin(|| false));
        assert!(monotonic_ns() - since_ns >= SPIN_NS_MAX);
    }
}
