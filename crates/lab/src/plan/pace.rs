//! How an arm takes turns, as far as a first look at it says: how long a turn is, and how many a set can have.
//!
//! A turn holds some waves of requests and takes milliseconds. Where a single answer takes longer than that, a turn is
//! one wave: one request on each connection, without a lead-in, and a set has few of them. Forecasts are made from it,
//! and sets keep to it.

use std::time::Duration;

use pollux_stats::ROUNDS_MIN;

use super::PlannedPoint;
use crate::arm::ArmKind;
use crate::record::ArmTimes;

/// A turn. How much a round varies hardly depends on how long its turns are, so many short ones say more
/// than few long ones.
pub(crate) const TURN: Duration = Duration::from_micros(1500);
/// One that ends by its units holds at least so many waves of them, as the first and the last cost
/// something else; of waves so large that it would then take long, so many units and one wave at least.
pub(crate) const WAVES: u64 = 3;
pub(crate) const UNITS_ENOUGH: u64 = 500;
/// An arm is slow whose usual turn takes longer.
const SLOW_TURN: Duration = Duration::from_millis(200);
/// The fewest turns of a slow arm in a set, and of every other.
pub(super) const SLOW_TURNS_MIN: u32 = 2;

/// The least number of units of a turn that holds waves of so many.
pub(crate) fn least_units(wave: u64) -> u64 {
    (wave * WAVES).min(wave.max(UNITS_ENOUGH))
}

/// How an arm takes turns at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    pub(crate) turn: Duration,
    /// Whether it is one wave, without a lead-in.
    pub(crate) is_slow: bool,
}

impl Pace {
    /// Of an arm that takes so long, with so many requests under way at a time; a turn that is not slow lasts `turn_min` at
    /// least.
    pub(crate) fn of(times: &ArmTimes, wave: u64, turn_min: Duration) -> Self {
        let usual =
            times.request.saturating_mul(u32::try_from(least_units(wave)).unwrap_or(u32::MAX));
        if usual > SLOW_TURN {
            Self { turn: times.wave.max(times.request), is_slow: true }
        } else {
            Self { turn: usual.max(turn_min), is_slow: false }
        }
    }
}

impl PlannedPoint {
    /// How an arm takes turns here, where a look at it says so.
    pub(crate) fn pace(&self, arm: &str) -> Option<Pace> {
        let index = self.arms.iter().position(|known| known.name == arm)?;
        let wave = self.experiment.wave(&self.point.axes);
        Some(Pace::of(self.times[index].as_ref()?, wave, self.turn_min()))
    }

    /// A turn of an arm that is not slow, at least.
    pub(super) fn turn_min(&self) -> Duration {
        TURN.max(self.experiment.needs(&self.point.axes).turn_min)
    }

    /// What the fewest of these are together.
    pub(super) fn window_min(&self) -> Duration {
        self.turn_min().min(self.runtime) * ROUNDS_MIN
    }

    /// Whether an arm has to be killed at its end, as a look at it says.
    pub(crate) fn kills(&self, kind: &ArmKind) -> bool {
        let mut arms = self.arms.iter().zip(&self.times);
        arms.any(|(arm, times)| arm.kind == *kind && times.is_some_and(|times| times.was_killed))
    }

    /// How long the arms take to end, all at the same time, as far as looks say so.
    pub(crate) fn end_time(&self) -> Duration {
        let each =
            self.times.iter().flatten().map(|times| times.end + times.request.min(times.wave));
        each.max().unwrap_or_default()
    }

    /// How long a turn of each slow arm takes together.
    pub(super) fn slow_round(&self) -> Duration {
        let paces = self.arms.iter().filter_map(|arm| self.pace(&arm.name));
        paces.filter(|pace| pace.is_slow).map(|pace| pace.turn).sum()
    }

    /// The fewest turns of an arm in a set, and the time that they take.
    pub(super) fn fewest_turns(pace: &Pace, rounds_min: u32) -> Duration {
        if pace.is_slow {
            pace.turn * SLOW_TURNS_MIN
        } else {
            // With its lead-in.
            pace.turn.mul_f64(1.25) * rounds_min
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arm_is_slow_where_three_waves_take_long() {
        let of = |wave_ms: u64, connections: u64| {
            let wave = Duration::from_millis(wave_ms);
            let request = wave / connections as u32;
            let times = ArmTimes { wave, request, ..ArmTimes::default() };
            Pace::of(&times, connections, TURN)
        };
        assert_eq!(of(0, 64), Pace { turn: TURN, is_slow: false });
        assert_eq!(of(10, 64), Pace { turn: Duration::from_nanos(156_250) * 192, is_slow: false });
        assert_eq!(of(1000, 16), Pace { turn: Duration::from_secs(1), is_slow: true });
        assert!(!of(150, 1000).is_slow, "one wave is enough of so many");
    }
}
