//! What a thread does before it sleeps, and when it leaves its CPU to others.
//!
//! Clients (for a reply) and workers (for a request) wait for what mostly comes within microseconds; a sleep and the wake
//! out of it cost several times as much as a short call. So each first
//!
//! 1. looks at the memory for up to 10 µs ([`Patience`]), where that pays and no more threads of the pool and its clients can run
//!    than there are CPUs (`runnable`): beside more it would take the CPU from one that has the work;
//! 2. gives way a few times and looks when it is back ([`GivingWay`]): by `sched_yield(2)` the one that is asked comes to run and
//!    answers, while the one that asked waits its turn. Nobody is put to sleep and woken for each call.
//!
//! Looking stops by itself where what is waited for comes late, and is tried now and then:
//!
//! ```text
//!  score    0 ............ PAYS ............ SCORE_MAX     a success adds a part of what is missing,
//!           spin each TRY_EACH-th time │ spin              a failure takes a part of it away
//! ```
//!
//! Giving way is free where nobody else wants the CPU, and evens out among threads that all do it. But Linux from 6.18 on takes
//! a whole slice from a thread that gives way: beside a program that computes, and beside threads that sleep and are woken
//! instead, it waits for theirs. So the time lost in absences beyond a millisecond is counted for the whole pool; beyond a 32nd
//! of all time, and 50 ms at once, everyone rests from giving way, and sleeps, until less than that is unpaid. The sum is an estimate:
//! threads write it without waiting for each other.

use std::hint::spin_loop;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::queue::monotonic_ns;

/// The longest spin: what a sleep and a wake cost on a virtual machine, so that a failure at most
/// doubles the cost of a wait.
const SPIN_NS_MAX: u64 = 10_000;
/// Looks between two readings of the clock.
const LOOKS: u32 = 8;
/// How often a thread gives way before it sleeps.
const GIVES_WAY: u32 = 4;
/// A thread that is away for longer waited for the slice of another, or for more threads than giving way is for.
const AWAY_NS_MAX: u64 = 1_000_000;
/// What one absence counts for at most: a client that is stopped, or has used up its share, says nothing about the others.
const ABSENCE_NS_MAX: u64 = 20_000_000;
/// One part of the time in so many may be lost in such absences.
const LOST_ONE_IN: u64 = 32;
/// How far ahead of that part they may be: 50 ms lost at once, which those that begin together need until all of them give way.
const AHEAD_NS_MAX: u64 = LOST_ONE_IN * 50_000_000;
/// The longest rest, so that no value of the words stops it for good.
const REST_NS_MAX: u64 = 8_000_000_000;
const SCORE_MAX: u32 = 1 << 10;
/// A success or a failure moves the score by this part of the distance.
const WEIGHT_SHIFT: u32 = 3;
/// From this score on it is worth trying each time.
const PAYS: u32 = SCORE_MAX / 4;
/// Below it, how often it is tried all the same: a failure each costs little, and what changed is noticed.
const TRY_EACH: u32 = 16;

/// How a thread waits before it sleeps, and what it learned of that.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    spins: Score,
}

/// How it went lately.
#[derive(Debug)]
struct Score {
    score: u32,
    skipped: u32,
}

impl Patience {
    /// Looks for a moment, as far as that pays, then gives way a few times; whether `is_there` then. `missed` is called each
    /// time that this thread had given way and found nothing.
    #[inline]
    pub(crate) fn wait(
        &mut self,
        giving_way: Option<GivingWay<'_>>,
        mut is_there: impl FnMut() -> bool,
        is_crowded: impl Fn() -> bool,
        missed: impl FnMut(),
    ) -> bool {
        if is_there() {
            return true;
        }
        if cpus() > 1
            && !is_crowded()
            && self.spins.is_worth_it()
            && self.spin(&mut is_there, is_crowded)
        {
            return true;
        }
        let Some(giving_way) = giving_way else { return false };
        a_few_times(|| giving_way.give_way(), is_there, missed)
    }

    /// Looks until `is_there`, until others want the CPU, or until the time for it is over; whether it is there.
    fn spin(&mut self, mut is_there: impl FnMut() -> bool, is_crowded: impl Fn() -> bool) -> bool {
        let end_ns = monotonic_ns() + SPIN_NS_MAX;
        loop {
            for _ in 0..LOOKS {
                if is_there() {
                    self.spins.note(true);
                    return true;
                }
                spin_loop();
            }
            if is_crowded() {
                // This says nothing about how soon it would have come.
                return false;
            }
            if monotonic_ns() >= end_ns {
                self.spins.note(false);
                return false;
            }
        }
    }
}

/// Gives way until `is_there`; whether it is.
#[inline]
fn a_few_times(
    mut give_way: impl FnMut() -> bool,
    mut is_there: impl FnMut() -> bool,
    mut missed: impl FnMut(),
) -> bool {
    for _ in 0..GIVES_WAY {
        if !give_way() {
            return false;
        }
        if is_there() {
            return true;
        }
        missed();
    }
    false
}

impl Score {
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
        if is_success {
            self.score += (SCORE_MAX - self.score) >> WEIGHT_SHIFT;
        } else {
            self.score -= self.score.div_ceil(1 << WEIGHT_SHIFT);
        }
    }
}

impl Default for Score {
    fn default() -> Self {
        Self { score: SCORE_MAX / 2, skipped: 0 }
    }
}

/// What giving way has cost lately, for all threads of a pool and its clients. Copies are handles on the same words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GivingWay<'a> {
    /// When the time lost so far is its part of all time again.
    pub(super) paid_at_ns: &'a AtomicU64,
    /// Until when time was counted as lost: what several lose at the same time counts once.
    pub(super) lost_until_ns: &'a AtomicU64,
}

impl GivingWay<'_> {
    /// Lets others run, unless that has cost too much lately; whether it did.
    #[inline]
    pub(crate) fn give_way(self) -> bool {
        self.give_way_by(monotonic_ns, std::thread::yield_now)
    }

    #[inline]
    fn give_way_by(self, mut now_ns: impl FnMut() -> u64, yield_now: impl FnOnce()) -> bool {
        let before_ns = now_ns();
        let ahead_ns = self.paid_at_ns.load(Ordering::Relaxed).saturating_sub(before_ns);
        if (AHEAD_NS_MAX..=AHEAD_NS_MAX + REST_NS_MAX).contains(&ahead_ns) {
            return false;
        }
        yield_now();
        let after_ns = now_ns();
        if after_ns.saturating_sub(before_ns) > AWAY_NS_MAX {
            self.note_loss(before_ns, after_ns);
        }
        true
    }

    /// Counts an absence. Words that two write at the same moment keep what one of them wrote.
    #[cold]
    fn note_loss(self, before_ns: u64, after_ns: u64) {
        let most_ns = after_ns + AHEAD_NS_MAX + REST_NS_MAX;
        let sane =
            |word: &AtomicU64| Some(word.load(Ordering::Relaxed)).filter(|ns| *ns <= most_ns);
        let counted_ns = sane(self.lost_until_ns).unwrap_or(0);
        let lost_ns = after_ns.saturating_sub(before_ns.max(counted_ns)).min(ABSENCE_NS_MAX);
        self.lost_until_ns.store(after_ns.max(counted_ns), Ordering::Relaxed);
        let from_ns = sane(self.paid_at_ns).unwrap_or(0).max(after_ns);
        let next_ns = from_ns.saturating_add(lost_ns * LOST_ONE_IN).min(most_ns);
        self.paid_at_ns.store(next_ns, Ordering::Relaxed);
    }
}

/// How many threads can run at once.
pub(super) fn cpus() -> usize {
    static CPUS: OnceLock<usize> = OnceLock::new();
    *CPUS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn it_stops_where_nothing_comes_and_begins_again_where_something_does() {
        let mut spins = Score::default();
        assert!(spins.is_worth_it());
        (0..100).for_each(|_| spins.note(false));
        let tries = (0..TRY_EACH * 10).filter(|_| spins.is_worth_it()).count();
        assert_eq!(tries, 10, "it is tried now and then");
        let successes = (0..).take_while(|_| {
            spins.note(true);
            spins.score < PAYS
        });
        assert!(successes.count() < 4, "a few successes are enough");
        (0..100).for_each(|_| spins.note(true));
        assert!(spins.score <= SCORE_MAX && spins.is_worth_it());
    }

    #[test]
    fn a_spin_ends_with_what_it_waits_for_or_after_its_time() {
        let mut patience = Patience::default();
        let mut looks = 0;
        let third_time = || {
            looks += 1;
            looks == 3
        };
        assert!(patience.spin(third_time, || false));
        let since_ns = monotonic_ns();
        assert!(!patience.spin(|| false, || false));
        assert!(monotonic_ns() - since_ns >= SPIN_NS_MAX);
    }

    #[test]
    fn a_thread_does_not_spin_while_others_want_its_cpu() {
        let mut patience = Patience::default();
        let score = patience.spins.score;
        let looks = Cell::new(0);
        let is_there = || {
            looks.set(looks.get() + 1);
            false
        };
        assert!(!patience.wait(None, is_there, || true, || {}));
        assert_eq!(looks.take(), 1, "what is there already is seen");
        assert!(!patience.spin(is_there, || true));
        assert_eq!(
            (looks.get(), patience.spins.score),
            (LOOKS, score),
            "it looked once, and learned nothing"
        );
    }

    #[test]
    fn it_gives_way_a_few_times_and_says_each_time_that_it_missed() {
        let missed = Cell::new(0);
        let miss = || missed.set(missed.get() + 1);
        assert!(!a_few_times(|| true, || false, miss));
        assert_eq!(missed.take(), GIVES_WAY);
        assert!(a_few_times(|| true, || missed.get() == 1, miss));
        assert_eq!(missed.take(), 1);
        assert!(!a_few_times(|| false, || true, miss), "all rest");
        assert_eq!(missed.take(), 0);
        let word = AtomicU64::new(0);
        let unused = Some(GivingWay { paid_at_ns: &word, lost_until_ns: &word });
        let there = Patience::default().wait(unused, || true, || true, || panic!("it is there"));
        assert!(there);
        assert!(
            !Patience::default().wait(None, || false, || true, miss),
            "a pool that always spins"
        );
        assert_eq!(missed.take(), 0);
    }

    #[test]
    fn short_absences_cost_nothing_and_long_ones_stop_it_until_they_are_paid() {
        let words = [AtomicU64::new(0), AtomicU64::new(0)];
        let clock = Cell::new(1_000 * MS);
        for _ in 0..10_000 {
            assert!(give_way(&words, &clock, AWAY_NS_MAX));
        }
        let begin = clock.get();
        let long = (0..).take_while(|_| give_way(&words, &clock, 5 * MS)).count();
        // What is paid meanwhile is a 32nd.
        assert_eq!(long, 11, "50 ms at once");
        assert!(!give_way(&words, &clock, 5 * MS));
        assert_eq!(clock.get(), begin + 55 * MS, "it was not away");
        clock.set(begin + 10_000 * MS);
        assert!(give_way(&words, &clock, MS / 2));
        let mut lost = 0;
        for _ in 0..2_000 {
            clock.set(clock.get() + 5 * MS);
            lost += u64::from(give_way(&words, &clock, 5 * MS)) * 5 * MS;
        }
        let most = (clock.get() - begin - 10_000 * MS) / LOST_ONE_IN + 60 * MS;
        assert!(lost <= most, "{lost} ns lost of {most} that may be");
        assert!(lost > most / 2, "{lost} ns: it is tried again");
    }

    #[test]
    fn what_several_lose_at_the_same_time_counts_once() {
        let words = [AtomicU64::new(0), AtomicU64::new(0)];
        for _ in 0..100 {
            of(&words).note_loss(1_000 * MS, 1_010 * MS);
        }
        let clock = Cell::new(1_010 * MS);
        assert!(give_way(&words, &clock, 0));
    }

    #[test]
    fn a_thread_that_was_stopped_for_long_does_not_stop_the_others() {
        let words = [AtomicU64::new(0), AtomicU64::new(0)];
        let clock = Cell::new(1_000 * MS);
        assert!(give_way(&words, &clock, 60_000 * MS));
        assert!(give_way(&words, &clock, 0));
    }

    #[test]
    fn words_that_another_process_wrote_stop_it_for_some_seconds_at_most() {
        for strange in [u64::MAX, u64::MAX / 2, 1_020 * MS + AHEAD_NS_MAX + REST_NS_MAX] {
            let words = [AtomicU64::new(strange), AtomicU64::new(strange)];
            let clock = Cell::new(1_000 * MS);
            give_way(&words, &clock, 5 * MS);
            clock.set(clock.get() + AHEAD_NS_MAX + REST_NS_MAX);
            assert!(give_way(&words, &clock, 0), "{strange}");
        }
    }

    fn of(words: &[AtomicU64; 2]) -> GivingWay<'_> {
        GivingWay { paid_at_ns: &words[0], lost_until_ns: &words[1] }
    }

    /// Gives way for so long; whether it did.
    fn give_way(words: &[AtomicU64; 2], clock: &Cell<u64>, away_ns: u64) -> bool {
        of(words).give_way_by(|| clock.get(), || clock.set(clock.get() + away_ns))
    }
}
