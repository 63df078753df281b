//! For how many completions an enter of the completion loop waits.
//!
//! Waiting for one wakes the thread for each that comes alone; waiting
//! for several saves wake-ups and delays the first of them. So the loop waits for as many as its recent pace
//! brings within `DELAY`, with a timeout in case the load falls just then. Running into that timeout is dear (a
//! timer costs some 30 µs of CPU on a virtual machine), so one that was run into switches the waiting off for a
//! while, and for longer each time in a row.
//!
//! ```text
//!  gap ≥ DELAY / 2, or resting: wait for 1, no timer
//!  steady for STEADY_TURNS:     wait for DELAY / gap, at most COMPLETIONS_MAX, until 4 × DELAY
//!  fell short:                  rest for REST_TURNS, twice as long after each further time
//! ```

use std::time::Duration;

use crate::Moment;

/// What the first completion of a batch may be delayed by.
const DELAY: Duration = Duration::from_micros(20);
/// More in a batch save nothing: beyond 20 the kernel hands them over in pieces anyway.
const COMPLETIONS_MAX: u32 = 16;
/// Turns at a pace before it is relied upon.
const STEADY_TURNS: u32 = 64;
/// Turns without waiting for several, after the first time that fewer came.
const REST_TURNS: u32 = 1024;
/// Longest such rest.
const REST_TURNS_MAX: u32 = 1 << 20;
/// The average forgets: one part in so many is new.
const AVERAGE_TURNS: u64 = 16;
/// Pauses beyond this say nothing more, and the average leaves them behind sooner.
const GAP_NS_MAX: u64 = 1_000_000;

/// The recent pace of a loop, and what follows from it.
#[derive(Debug)]
pub(super) struct Pace {
    gap_ns: u64,
    steady_turns: u32,
    resting_turns: u32,
    next_rest_turns: u32,
    target: u32,
    last: Moment,
}

impl Pace {
    pub(super) fn new(now: Moment) -> Self {
        Self {
            gap_ns: GAP_NS_MAX,
            steady_turns: 0,
            resting_turns: 0,
            next_rest_turns: REST_TURNS,
            target: 1,
            last: now,
        }
    }

    /// How many completions to wait for now, and how long at most when it is more than one.
    pub(super) fn target(&mut self) -> (u32, Option<Duration>) {
        let delay_ns = DELAY.as_nanos() as u64;
        let within = u32::try_from(delay_ns / self.gap_ns.max(1)).unwrap_or(u32::MAX);
        let may_wait = self.steady_turns >= STEADY_TURNS && self.resting_turns == 0;
        self.target = if may_wait { within.clamp(1, COMPLETIONS_MAX) } else { 1 };
        (self.target, (self.target > 1).then_some(4 * DELAY))
    }

    /// The next enter will not wait: nothing can be learned from what it brings.
    pub(super) fn no_target(&mut self) {
        self.target = 0;
    }

    /// Learns from a turn that began at `now` with so many completions.
    pub(super) fn learn(&mut self, now: Moment, completions: u32) {
        let elapsed_ns = (now - self.last).as_nanos() as u64;
        self.last = now;
        let gap_ns = (elapsed_ns / u64::from(completions.max(1))).min(GAP_NS_MAX);
        self.gap_ns = self.gap_ns - self.gap_ns / AVERAGE_TURNS + gap_ns / AVERAGE_TURNS;
        self.resting_turns = self.resting_turns.saturating_sub(1);
        if self.target > 1 && completions < self.target {
            self.resting_turns = self.next_rest_turns;
            self.next_rest_turns = (self.next_rest_turns * 2).min(REST_TURNS_MAX);
            self.steady_turns = 0;
        } else if 2 * self.gap_ns > DELAY.as_nanos() as u64 {
            self.steady_turns = 0;
        } else {
            self.steady_turns = self.steady_turns.saturating_add(1);
            if self.steady_turns > self.next_rest_turns {
                self.next_rest_turns = REST_TURNS;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(pace: &mut Pace, turns: u32, gap: Duration, completions: impl Fn(u32) -> u32) -> u32 {
        let mut waits = 0;
        for _ in 0..turns {
            let (target, timeout) = pace.target();
            assert_eq!(timeout.is_some(), target > 1);
            waits += u32::from(target > 1);
            let came = completions(target);
            pace.learn(pace.last + gap * came.max(1), came);
        }
        waits
    }

    #[test]
    fn a_steady_pace_is_waited_for_and_a_slow_one_is_not() {
        let mut pace = Pace::new(Moment::default());
        run(&mut pace, 500, Duration::from_micros(2), |target| target);
        assert!((8..=10).contains(&pace.target().0), "{pace:?}");
        run(&mut pace, 500, Duration::from_micros(100), |target| target);
        assert_eq!(pace.target(), (1, None));
    }

    #[test]
    fn the_first_load_after_a_pause_is_not_waited_for() {
        let mut pace = Pace::new(Moment::default());
        assert_eq!(pace.target(), (1, None));
        pace.learn(Moment::from_nanos(10_000_000_000), 1);
        assert_eq!(pace.target(), (1, None));
    }

    #[test]
    fn falling_short_costs_one_timer_in_a_long_time() {
        let mut pace = Pace::new(Moment::default());
        let turns = 100_000;
        let waits = run(&mut pace, turns, Duration::from_micros(1), |_| 1);
        assert!(waits <= 10, "{waits} timers in {turns} turns");
    }
}
