//! Whether a run had one level: steady, drifting, or two regimes.
//!
//! Called by the runner on the interval rates of one run. It must never correct a run: a run that
//! changed its level half-way keeps all its intervals and gets the name of what happened.

use super::random::Rng;
use super::summary::median;

/// Of fewer intervals, even a clean jump is too likely a chance order at the alarm rate below.
const INTERVALS_MIN: usize = 10;
/// A regime lasts at least this many intervals; shorter ones are outliers.
const REGIME_INTERVALS_MIN: usize = 3;
/// Smaller drifts over the window do not disturb a comparison with the default effect of 3 %.
const DRIFT_MIN: f64 = 0.05;
/// The mean of two levels closer than this is within 8 % of both: no second regime, but still a drift.
const STEP_MIN: f64 = 0.15;
/// Chance of a false alarm for each of the two tests on a steady run.
const FALSE_ALARM_RATE: f64 = 0.02;
/// Shuffles per test: the least p-value is then 0.1 %, well below the alarm rate.
const SHUFFLES: usize = 999;
/// Fixed, so that the same intervals always get the same name.
const SHUFFLE_SEED: u64 = 1_602_006;

/// What happened to the level inside one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Steadiness {
    /// One level, as far as the intervals can tell.
    Steady,
    /// The level slid in one direction.
    Drift {
        /// Change from the first to the last interval, in percent of the mean; negative when falling.
        slope_pct_per_window: f64,
    },
    /// The level jumped once: the run's mean describes neither part.
    TwoRegime {
        /// First interval of the second regime, from 0.
        change_index: usize,
        /// Median of the intervals before the change.
        before: f64,
        /// Median of the intervals after it.
        after: f64,
    },
    /// Fewer than ten intervals, or one of them is not a number.
    TooShort,
}

/// Names what the interval rates of one run (never negative) did, in their order.
///
/// Two descriptions compete: the least-squares line, and the best split into two levels. Either must
/// be large enough to matter (the line's change and the difference of the two halves' medians; the
/// step between the two medians) and stronger than in 98 % of random shuffles of the same intervals,
/// which needs no assumption about their distribution. If both pass, the better fit wins, a split
/// paying for its extra parameter (Bayesian information criterion).
#[must_use]
pub fn steadiness(intervals: &[f64]) -> Steadiness {
    if intervals.len() < INTERVALS_MIN || !intervals.iter().all(|rate| rate.is_finite()) {
        return Steadiness::TooShort;
    }
    let n = intervals.len() as f64;
    let scores = Scores::of(intervals);
    let drift = scores.slope * (n - 1.0);
    let split = scores.split_index;
    let before = middle(&intervals[..split]);
    let after = middle(&intervals[split..]);

    let is_large_drift = is_large_drift(intervals, drift);
    let is_large_step = relative_change(before, after).abs() >= STEP_MIN;
    if !is_large_drift && !is_large_step {
        return Steadiness::Steady;
    }
    let (p_drift, p_step) = shuffled_p_values(intervals, &scores);
    let is_drift = is_large_drift && p_drift <= FALSE_ALARM_RATE;
    let is_step = is_large_step && p_step <= FALSE_ALARM_RATE;
    let split_is_better = n * (scores.line_rest / scores.split_rest).ln() > n.ln();
    if is_step && (split_is_better || !is_drift) {
        Steadiness::TwoRegime { change_index: split, before, after }
    } else if is_drift {
        let slope_pct_per_window = 100.0 * drift / scores.mean;
        Steadiness::Drift { slope_pct_per_window }
    } else {
        Steadiness::Steady
    }
}

/// How well the line and the best split describe a series.
struct Scores {
    mean: f64,
    /// Change per interval of the least-squares line.
    slope: f64,
    /// Squares that the line leaves unexplained.
    line_rest: f64,
    /// First interval after the best split.
    split_index: usize,
    /// Squares that the split leaves unexplained.
    split_rest: f64,
}

impl Scores {
    fn of(series: &[f64]) -> Self {
        let n = series.len() as f64;
        let mean = series.iter().sum::<f64>() / n;
        let total: f64 = series.iter().map(|y| (y - mean).powi(2)).sum();
        let centre = (n - 1.0) / 2.0;
        let mut time_product = 0.0;
        let mut sum = 0.0;
        let mut split_index = REGIME_INTERVALS_MIN;
        let mut explained_most = 0.0;
        for (index, y) in series.iter().enumerate() {
            if (REGIME_INTERVALS_MIN..=series.len() - REGIME_INTERVALS_MIN).contains(&index) {
                let length = index as f64;
                // Squares explained by two levels instead of one; `sum` is of the deviations so far.
                let explained = sum * sum * n / (length * (n - length));
                if explained > explained_most {
                    (split_index, explained_most) = (index, explained);
                }
            }
            sum += y - mean;
            time_product += (index as f64 - centre) * (y - mean);
        }
        let time_squares = n * (n * n - 1.0) / 12.0;
        Self {
            mean,
            slope: time_product / time_squares,
            line_rest: (total - time_product * time_product / time_squares).max(0.0),
            split_index,
            split_rest: (total - explained_most).max(0.0),
        }
    }
}

/// Whether line and halves agree that the level moved by enough to matter.
fn is_large_drift(series: &[f64], drift: f64) -> bool {
    let (first, second) = series.split_at(series.len() / 2);
    let early = middle(first);
    let late = middle(second);
    let level = middle(series);
    // Half of a linear drift shows between the halves; half of that is asked for, with its sign.
    let between_halves = (late - early) * drift.signum();
    drift.abs() >= DRIFT_MIN * level && between_halves >= 0.25 * DRIFT_MIN * level
}

/// The share of shuffles that show as strong a slope, and as strong a step, by chance.
fn shuffled_p_values(series: &[f64], scores: &Scores) -> (f64, f64) {
    let mut rng = Rng::seeded(SHUFFLE_SEED);
    let mut shuffled = series.to_vec();
    let mut slopes = 1;
    let mut steps = 1;
    for _ in 0..SHUFFLES {
        rng.shuffle(&mut shuffled);
        let by_chance = Scores::of(&shuffled);
        slopes += usize::from(by_chance.slope.abs() >= scores.slope.abs());
        steps += usize::from(by_chance.split_rest <= scores.split_rest);
    }
    let share = |count: usize| count as f64 / (SHUFFLES + 1) as f64;
    (share(slopes), share(steps))
}

/// Median of a part that is known not to be empty.
fn middle(part: &[f64]) -> f64 {
    median(part).unwrap_or(f64::NAN)
}

/// Change as a share of the larger level: -1 to 1 for rates, 0 between two zeros.
fn relative_change(before: f64, after: f64) -> f64 {
    let level = before.abs().max(after.abs());
    if level > 0.0 { (after - before) / level } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events per second of Dumazet's 2006 runs, one value per second.
    const PIPES: [f64; 15] = [
        255_320.0, 254_054.0, 249_868.0, 181_010.0, 233_368.0, 284_682.0, 292_485.0, 279_194.0,
        267_917.0, 291_450.0, 266_837.0, 272_762.0, 253_756.0, 251_250.0, 260_706.0,
    ];
    const AF_UNIX: [f64; 15] = [
        264_827.0, 259_241.0, 262_266.0, 262_730.0, 253_212.0, 255_219.0, 166_655.0, 111_348.0,
        104_812.0, 95_897.0, 97_096.0, 113_808.0, 102_509.0, 100_318.0, 102_893.0,
    ];
    const AF_INET: [f64; 15] = [
        69_210.0, 59_436.0, 60_722.0, 60_583.0, 58_192.0, 54_291.0, 47_978.0, 59_009.0, 58_248.0,
        58_708.0, 58_613.0, 58_490.0, 59_108.0, 59_636.0, 59_355.0,
    ];
    const AF_INET_NO_EPOLL: [f64; 15] = [
        79_939.0, 78_468.0, 73_153.0, 73_668.0, 73_667.0, 74_106.0, 73_442.0, 74_220.0, 74_367.0,
        64_402.0, 53_555.0, 46_000.0, 67_052.0, 68_460.0, 67_629.0,
    ];

    /// Counts how many of 200 simulated runs are named as `is_named` wants.
    fn named(
        mut rate: impl FnMut(f64, &mut Rng) -> f64,
        is_named: fn(&Steadiness) -> bool,
    ) -> usize {
        let mut rng = Rng::seeded(21);
        (0..200)
            .filter(|_| {
                let series: Vec<f64> =
                    (0..20).map(|i| rate(f64::from(i) / 19.0, &mut rng)).collect();
                is_named(&steadiness(&series))
            })
            .count()
    }

    #[test]
    fn the_af_unix_run_of_2006_has_two_regimes() {
        let Steadiness::TwoRegime { change_index, before, after } = steadiness(&AF_UNIX) else {
            panic!("{:?}", steadiness(&AF_UNIX));
        };
        assert!((6..=7).contains(&change_index), "{change_index}");
        assert!((250_000.0..270_000.0).contains(&before), "{before}");
        assert!((95_000.0..115_000.0).contains(&after), "{after}");
    }

    #[test]
    fn the_other_runs_of_2006_have_not() {
        assert_eq!(steadiness(&PIPES), Steadiness::Steady);
        assert_eq!(steadiness(&AF_INET), Steadiness::Steady);
        // Falls from 74k by way of a dip to 67k: not level, but its mean is near every part.
        let without_epoll = steadiness(&AF_INET_NO_EPOLL);
        assert!(matches!(without_epoll, Steadiness::Drift { .. }), "{without_epoll:?}");
    }

    #[test]
    fn stationary_noise_is_steady() {
        let steady =
            named(|_, rng| 1e6 * (1.0 + 0.05 * rng.normal()), |s| *s == Steadiness::Steady);
        assert!(steady > 190, "{steady} of 200");
    }

    #[test]
    fn rare_stalls_of_a_level_run_are_steady() {
        let stalling = |_, rng: &mut Rng| {
            let stall = if rng.unit_f64() < 0.1 { 0.5 } else { 1.0 };
            1e6 * stall * (1.0 + 0.02 * rng.normal())
        };
        let steady = named(stalling, |s| *s == Steadiness::Steady);
        assert!(steady > 190, "{steady} of 200");
    }

    #[test]
    fn a_slide_is_a_drift_and_a_jump_has_two_regimes() {
        let slide = |time, rng: &mut Rng| 1e6 * (0.9 + 0.2 * time + 0.02 * rng.normal());
        let drifts = named(slide, |s| matches!(s, Steadiness::Drift { .. }));
        assert!(drifts > 190, "{drifts} of 200");
        let jump =
            |time, rng: &mut Rng| 1e6 * (if time < 0.6 { 1.2 } else { 1.0 } + 0.02 * rng.normal());
        let jumps =
            named(jump, |s| matches!(s, Steadiness::TwoRegime { change_index: 11..=13, .. }));
        assert!(jumps > 190, "{jumps} of 200");
    }

    #[test]
    fn an_exact_slide_and_an_exact_jump() {
        let slide: Vec<f64> = (0..11).map(|i| 90.0 + 2.0 * f64::from(i)).collect();
        let Steadiness::Drift { slope_pct_per_window } = steadiness(&slide) else {
            panic!("{:?}", steadiness(&slide));
        };
        assert!((slope_pct_per_window - 20.0).abs() < 1e-9, "{slope_pct_per_window}");
        let jump = [5.0, 5.0, 5.0, 5.0, 5.0, 9.0, 9.0, 9.0, 9.0, 9.0];
        let expected = Steadiness::TwoRegime { change_index: 5, before: 5.0, after: 9.0 };
        assert_eq!(steadiness(&jump), expected);
    }

    #[test]
    fn flat_and_short_runs_are_named_plainly() {
        assert_eq!(steadiness(&[7.0; 20]), Steadiness::Steady);
        assert_eq!(steadiness(&[0.0; 20]), Steadiness::Steady);
        assert_eq!(steadiness(&[7.0; 9]), Steadiness::TooShort);
        assert_eq!(steadiness(&[f64::NAN; 20]), Steadiness::TooShort);
        assert_eq!(steadiness(&[]), Steadiness::TooShort);
    }
}
