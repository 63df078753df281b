//! Whether a server works, for the watchdog of its manager: every loop has taken a turn since it was
//! asked for one.
//!
//! The thread that waits for signals asks, so a loop that hangs is noticed although that thread does not.

use std::time::{Duration, Instant};

/// When it is asked next, and the turns that each loop had taken when it was asked last.
#[derive(Debug)]
pub(super) struct Watchdog {
    every: Duration,
    due: Instant,
    turns: Vec<u64>,
}

impl Watchdog {
    /// One that is asked for now, and then this often.
    pub(super) fn new(every: Duration, now: Instant) -> Self {
        Self { every, due: now, turns: Vec::new() }
    }

    /// How long until it is asked for next.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        self.due.saturating_duration_since(now)
    }

    /// When it is due, whether each loop has taken turns since it was due last; every loop has to be
    /// nudged then. The first time nothing is known against them.
    pub(super) fn is_alive(
        &mut self,
        now: Instant,
        turns: impl Iterator<Item = u64>,
    ) -> Option<bool> {
        if now < self.due {
            return None;
        }
        self.due = now + self.every;
        let before = std::mem::replace(&mut self.turns, turns.collect());
        Some(before.iter().zip(&self.turns).all(|(before, now)| now > before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_takes_no_turn_stops_the_pulse_and_one_that_does_again_starts_it() {
        let (begin, every) = (Instant::now(), Duration::from_secs(1));
        let mut watchdog = Watchdog::new(every, begin);
        for (at, turns, is_alive) in [
            (0, [5, 0], Some(true)),
            (0, [9, 9], None),
            (1, [6, 1], Some(true)),
            (2, [7, 1], Some(false)),
            (3, [8, 1], Some(false)),
            (4, [8, 2], Some(false)),
            (5, [9, 3], Some(true)),
        ] {
            assert_eq!(watchdog.is_alive(begin + every * at, turns.into_iter()), is_alive, "{at}");
        }
        assert_eq!(watchdog.wait(begin + every * 5), every);
        assert_eq!(watchdog.wait(begin + every * 9), Duration::ZERO);
    }
}
