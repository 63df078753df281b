//! From an interval to a word: faster, slower, equivalent or not known yet; and the correction of such words for
//! looking at many rows at once.
//!
//! Called by the judge and by `compare`. It must never turn missing evidence into
//! "equivalent", and it never looks at a point estimate alone.
//!
//! The correction is made once per table, and must be given every row of the family, also the dull
//! ones: leaving out rows because they showed nothing undoes it. The A/A row is a control
//! and not a question, so it stays out, as do baselines and failed arms.

use super::confidence::Method;
use super::ratio::RatioEstimate;
use super::sample_size::{SETS_MIN, more_sets};
use super::summary::{student_t_cdf, student_t_quantile};

/// No forecast goes beyond this: a comparison that needs a thousand more blocks needs another machine.
pub const MORE_BLOCKS_MAX: u32 = 1_000;

/// The chance, at most, that a table with no real difference shows even one.
const FAMILY_ERROR_RATE: f64 = 0.05;
/// Beyond this many rows the strictest single test would leave the range of the t quantile.
const ROWS_MAX: usize = 1_000_000;

/// What the measurements allow to say about an arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Better than the baseline by more than the effect that counts.
    Faster,
    /// Worse than the baseline by more than the effect that counts.
    Slower,
    /// Within the effect that counts of the baseline, shown and not just assumed.
    Equivalent,
    /// The blocks at hand do not decide.
    Inconclusive {
        /// About how many more blocks would, if the estimate stands; at least 1.
        more_blocks: u32,
    },
}

/// Which way a metric gets better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Rates: events per second.
    HigherIsBetter,
    /// Costs: latencies, CPU time per event, counts per request.
    LowerIsBetter,
}

impl Verdict {
    /// Judges an arm against the bands of `delta`.
    ///
    /// Faster or slower when the 95 % interval lies wholly beyond the band of difference, equivalent
    /// when the arm was shown to be within the band of equivalence, inconclusive otherwise; fewer sets
    /// than [`SETS_MIN`] show nothing.
    ///
    /// # Panics
    ///
    /// When an effect of `delta` is negative or not a number.
    #[must_use]
    pub fn of(estimate: &RatioEstimate, delta: impl Into<Delta>, direction: Direction) -> Self {
        let delta = delta.into();
        let band = band_log(delta.difference);
        match estimate.ci95 {
            _ if rests_on_little(estimate) => {
                Self::no_difference(estimate, delta, FAMILY_ERROR_RATE)
            }
            Some(ci95) if ci95.lo.ln() > band => Self::outside(true, direction),
            Some(ci95) if ci95.hi.ln() < -band => Self::outside(false, direction),
            _ => Self::no_difference(estimate, delta, FAMILY_ERROR_RATE),
        }
    }

    /// Equivalent or inconclusive: what is left where no difference was shown at `level`.
    fn no_difference(estimate: &RatioEstimate, delta: Delta, level: f64) -> Self {
        if estimate.is_within(delta.equivalence) && !rests_on_little(estimate) {
            return Self::Equivalent;
        }
        Self::Inconclusive { more_blocks: missing(estimate, delta, level) }
    }

    /// Whether the verdict claims a difference.
    #[must_use]
    pub fn is_difference(self) -> bool {
        matches!(self, Self::Faster | Self::Slower)
    }

    fn outside(is_above: bool, direction: Direction) -> Self {
        if is_above == (direction == Direction::HigherIsBetter) {
            Self::Faster
        } else {
            Self::Slower
        }
    }
}

/// The least difference that is not noise: how far the A/A arm's 95 % interval reaches from 1.
///
/// 0.02 stands for ratios from 1/1.02 to 1.02. None when the A/A arm has no interval; without it no
/// verdict on another arm deserves trust.
#[must_use]
pub fn noise_level(same_against_same: &RatioEstimate) -> Option<f64> {
    let ci95 = same_against_same.ci95?;
    Some(ci95.hi.max(1.0 / ci95.lo) - 1.0)
}

/// The effects that count, both as the distance from 1: 0.03 stands for 1/1.03 to 1.03.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Delta {
    /// A difference must be larger than this.
    pub difference: f64,
    /// Equivalence must be shown within this.
    pub equivalence: f64,
}

impl Delta {
    /// Where arms took turns: any difference that the interval shows counts, however small, and
    /// equivalence is shown within the least effect.
    #[must_use]
    pub fn in_turns(min_effect: f64) -> Self {
        Self { difference: 0.0, equivalence: min_effect }
    }
}

impl From<f64> for Delta {
    fn from(delta: f64) -> Self {
        Self { difference: delta, equivalence: delta }
    }
}

/// What counts: a difference must leave the least effect and the noise level behind, equivalence
/// must be shown within the least effect: on a noisy machine "no difference" would otherwise
/// mean nothing.
#[must_use]
pub fn decision_delta(min_effect: f64, noise_level: Option<f64>) -> Delta {
    let difference = min_effect.max(noise_level.unwrap_or(0.0));
    Delta { difference, equivalence: min_effect }
}

/// One judged comparison of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Arm against baseline.
    pub estimate: RatioEstimate,
    /// The effects that counted in the verdict.
    pub delta: Delta,
    /// The verdict; after [`holm`] the one that holds for the table as a whole.
    pub verdict: Verdict,
    /// Two-sided probability of data this far outside the band when the truth lies on its edge.
    ///
    /// Read off the interval (see [`Row::judged`]); none below two blocks.
    pub p_value: Option<f64>,
    /// The p-value after Holm's step-down correction; none before [`holm`] or without `p_value`.
    pub p_holm: Option<f64>,
}

impl Row {
    /// Judges one arm by itself.
    ///
    /// The p-value tests what the verdict claims, a difference *beyond* `delta`, not the weaker claim
    /// that the ratio is not exactly 1. It is the Student probability of the estimate's distance to
    /// the band, measured in half-widths of the very interval that the verdict used. So p is below
    /// 5 % exactly when the verdict is a difference, whichever method made the interval.
    ///
    /// # Panics
    ///
    /// When `delta` is negative or not a number.
    #[must_use]
    pub fn judged(estimate: RatioEstimate, delta: impl Into<Delta>, direction: Direction) -> Self {
        let delta = delta.into();
        Self {
            verdict: Verdict::of(&estimate, delta, direction),
            p_value: p_beyond(&estimate, delta.difference),
            p_holm: None,
            estimate,
            delta,
        }
    }

    /// Whether the row lies beyond the band of difference after the correction of [`holm`], whatever
    /// its verdict.
    #[must_use]
    pub fn is_significant(&self) -> bool {
        self.p_holm.is_some_and(|p| p < FAMILY_ERROR_RATE)
    }
}

/// Corrects the verdicts of all rows of one table by Holm's step-down method (Holm 1979).
///
/// A row that claims a difference and does not survive at an error rate of 5 % for the family becomes inconclusive,
/// with the blocks that it would need at its stricter level, or equivalent where it was shown to be
/// within the least effect (which only happens over sets, where any difference counts). Rows that claim
/// equivalence keep their verdict: the family is the claims of difference, and equivalence has its own
/// test at 5 % per row.
///
/// # Panics
///
/// When there are more than a million rows.
pub fn holm(rows: &mut [Row]) {
    assert!(rows.len() <= ROWS_MAX, "{} rows are too many for one table", rows.len());
    let mut tested: Vec<(f64, &mut Row)> =
        rows.iter_mut().filter_map(|row| row.p_value.map(|p| (p, row))).collect();
    tested.sort_by(|left, right| left.0.total_cmp(&right.0));
    let mut p_least = 0.0_f64;
    let mut still_open = tested.len();
    for (p, row) in tested {
        p_least = p_least.max(p * still_open as f64).min(1.0);
        row.p_holm = Some(p_least);
        // Strictly below, as in "the interval lies wholly outside the band".
        if row.verdict.is_difference() && p_least >= FAMILY_ERROR_RATE {
            let level = FAMILY_ERROR_RATE / still_open as f64;
            row.verdict = Verdict::no_difference(&row.estimate, row.delta, level);
        }
        still_open -= 1;
    }
}

/// Half-width of the band in logarithms.
fn band_log(delta: f64) -> f64 {
    assert!(delta >= 0.0, "the effect that counts cannot be {delta}");
    delta.ln_1p()
}

/// How far outside the band the estimate lies, in 95 % half-widths of the side that faces the band.
///
/// Above 1 exactly when the verdict is a difference; negative inside the band; none without interval.
fn clearance(estimate: &RatioEstimate, band: f64) -> Option<f64> {
    let ci95 = estimate.ci95?;
    let centre = estimate.ratio.ln();
    let facing = if centre > 0.0 { ci95.lo.ln() } else { ci95.hi.ln() };
    let distance = centre.abs() - band;
    let reach = (centre - facing).abs();
    if reach > 0.0 {
        Some(distance / reach)
    } else {
        Some(if distance > 0.0 { f64::INFINITY } else { f64::NEG_INFINITY })
    }
}

/// Whether there are too few sets for a verdict.
fn rests_on_little(estimate: &RatioEstimate) -> bool {
    estimate.method == Method::Sets && estimate.n < SETS_MIN as usize
}

/// Blocks (sets) still missing until the estimate, should it stand, is a difference at `level` or
/// equivalent, whichever comes first.
fn missing(estimate: &RatioEstimate, delta: Delta, level: f64) -> u32 {
    let band = band_log(delta.difference);
    let inner = band_log(delta.equivalence);
    let centre = estimate.ratio.ln();
    let df = degrees_of_freedom(estimate);
    match (estimate.sd_log, estimate.method) {
        (Some(sd), Method::Sets) => {
            let until = |distance, level| more_sets(estimate.n, sd, distance, level);
            let decided = until(centre.abs() - band, level)
                .min(until(inner - centre.abs(), FAMILY_ERROR_RATE));
            decided.max(SETS_MIN.saturating_sub(estimate.n as u32))
        }
        _ => {
            let stricter =
                student_t_quantile(1.0 - level / 2.0, df) / student_t_quantile(0.975, df);
            let apart = clearance(estimate, band).map_or(0.0, |clearance| clearance / stricter);
            let within = estimate.ci90.map_or(0.0, |ci90| {
                let above = (inner - centre) / (ci90.hi.ln() - centre);
                let below = (inner + centre) / (centre - ci90.lo.ln());
                above.min(below)
            });
            match estimate.ci95 {
                Some(_) => more_blocks(estimate.n, apart.max(within).max(0.0)),
                None => 1,
            }
        }
    }
}

/// One less than the blocks; at least 1, for the quantile's sake.
fn degrees_of_freedom(estimate: &RatioEstimate) -> u32 {
    u32::try_from(estimate.n.saturating_sub(estimate.left_out + 1)).unwrap_or(u32::MAX).max(1)
}

/// Blocks still missing when the interval of `n` blocks must shrink to `width_factor` of its width.
///
/// Widths fall with the root of n, which is the familiar `n = (t s / distance)^2`.
fn more_blocks(n: usize, width_factor: f64) -> u32 {
    let needed = (n as f64 / (width_factor * width_factor)).ceil();
    // A factor of 0 (the estimate lies on the boundary) makes this infinite, and the limit holds.
    let missing = (needed - n as f64).clamp(1.0, f64::from(MORE_BLOCKS_MAX));
    if missing.is_nan() { MORE_BLOCKS_MAX } else { missing as u32 }
}

/// Two-sided probability of lying this far beyond the band by chance.
fn p_beyond(estimate: &RatioEstimate, delta: f64) -> Option<f64> {
    let half_widths = clearance(estimate, band_log(delta))?;
    let df = degrees_of_freedom(estimate);
    let t = half_widths * student_t_quantile(0.975, df);
    Some((2.0 * student_t_cdf(-t, df)).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::super::confidence::{Interval, Resampling};
    use super::super::random::Rng;
    use super::super::ratio::alike;
    use super::*;

    use Direction::{HigherIsBetter, LowerIsBetter};

    fn estimate(ratio: f64, reach95: f64, reach90: f64) -> RatioEstimate {
        let around =
            |reach: f64| Some(Interval { lo: ratio * (-reach).exp(), hi: ratio * reach.exp() });
        RatioEstimate {
            ratio,
            median_ratio: ratio,
            ci95: around(reach95),
            ci90: around(reach90),
            n: 12,
            left_out: 0,
            sd_log: Some(0.02),
            method: Method::Bootstrap,
            autocorrelation_lag1: None,
        }
    }

    fn judged(ratio: f64, reach95: f64, reach90: f64) -> Verdict {
        Verdict::of(&estimate(ratio, reach95, reach90), 0.03, HigherIsBetter)
    }

    #[test]
    fn intervals_outside_inside_and_across_the_band() {
        assert_eq!(judged(1.08, 0.02, 0.015), Verdict::Faster);
        assert_eq!(judged(0.90, 0.02, 0.015), Verdict::Slower);
        assert_eq!(judged(1.00, 0.035, 0.029), Verdict::Equivalent);
        assert!(matches!(judged(1.04, 0.02, 0.015), Verdict::Inconclusive { .. }));
        assert!(matches!(judged(1.00, 0.04, 0.031), Verdict::Inconclusive { .. }));
    }

    #[test]
    fn costs_are_better_when_lower() {
        let cheap = Verdict::of(&estimate(0.9, 0.02, 0.015), 0.03, LowerIsBetter);
        let dear = Verdict::of(&estimate(1.1, 0.02, 0.015), 0.03, LowerIsBetter);
        assert_eq!((cheap, dear), (Verdict::Faster, Verdict::Slower));
    }

    #[test]
    fn the_forecast_follows_the_distance_to_the_nearest_boundary() {
        // Twice too wide: four times the blocks, 48 in all.
        let outside = judged((1.03_f64.ln() + 0.02).exp(), 0.04, 0.03);
        assert_eq!(outside, Verdict::Inconclusive { more_blocks: 36 });
        let inside = judged(1.0, 0.1, 2.0 * 1.03_f64.ln() * (1.0 - 1e-9));
        assert_eq!(inside, Verdict::Inconclusive { more_blocks: 36 });
    }

    #[test]
    fn the_forecast_keeps_its_limits() {
        let boundary = judged(1.03, 0.02, 0.015);
        assert_eq!(boundary, Verdict::Inconclusive { more_blocks: MORE_BLOCKS_MAX });
        let nearly = judged(1.0, 0.04, 1.000_001 * 1.03_f64.ln());
        assert_eq!(nearly, Verdict::Inconclusive { more_blocks: 1 });
        assert_eq!(more_blocks(12, f64::NAN), MORE_BLOCKS_MAX);
    }

    #[test]
    fn no_spread_decides_at_once_and_no_interval_never() {
        assert_eq!(judged(1.04, 0.0, 0.0), Verdict::Faster);
        assert_eq!(judged(1.02, 0.0, 0.0), Verdict::Equivalent);
        let lone = RatioEstimate { ci95: None, ci90: None, n: 1, ..estimate(2.0, 0.0, 0.0) };
        let verdict = Verdict::of(&lone, 0.03, HigherIsBetter);
        assert_eq!(verdict, Verdict::Inconclusive { more_blocks: 1 });
        assert_eq!(noise_level(&lone), None);
    }

    #[test]
    fn the_noise_level_is_the_far_bound_of_the_same_against_the_same() {
        let mut same = estimate(1.0, 0.0, 0.0);
        same.ci95 = Some(Interval { lo: 0.96, hi: 1.01 });
        let level = noise_level(&same).expect("an interval");
        assert!((level - (1.0 / 0.96 - 1.0)).abs() < 1e-12);
        assert_eq!(
            decision_delta(0.03, Some(level)),
            Delta { difference: level, equivalence: 0.03 }
        );
        assert_eq!(decision_delta(0.05, Some(level)), 0.05.into());
        assert_eq!(decision_delta(0.05, None), 0.05.into());
    }

    #[test]
    fn over_sets_any_difference_counts_and_the_shown_interval_decides_equivalence() {
        let judged = |ratio, reach95, reach90| {
            let estimate =
                RatioEstimate { method: Method::Sets, ..estimate(ratio, reach95, reach90) };
            Verdict::of(&estimate, Delta::in_turns(0.02), LowerIsBetter)
        };
        assert_eq!(judged(0.984, 0.006, 0.005), Verdict::Faster);
        assert_eq!(judged(1.005, 0.004, 0.003), Verdict::Slower, "a small one too");
        assert_eq!(judged(1.003, 0.012, 0.010), Verdict::Equivalent);
        // The 90 % interval ends below 1.02, the 95 % interval that is shown beyond it.
        assert!(matches!(judged(1.003, 0.018, 0.015), Verdict::Inconclusive { .. }));
    }

    #[test]
    fn few_sets_have_no_verdict_however_narrow_their_interval() {
        let of = |sets: usize, ratio: f64| {
            let logs: Vec<f64> = (0..sets).map(|set| ratio.ln() + [1e-6, -1e-6][set % 2]).collect();
            let estimate = RatioEstimate::over_sets(&alike(&logs)).expect("sets");
            Verdict::of(&estimate, Delta::in_turns(0.02), LowerIsBetter)
        };
        for (ratio, decided) in [(1.3, Verdict::Slower), (1.0, Verdict::Equivalent)] {
            assert_eq!(of(3, ratio), Verdict::Inconclusive { more_blocks: 2 });
            assert_eq!(of(4, ratio), Verdict::Inconclusive { more_blocks: 1 });
            assert_eq!(of(5, ratio), decided);
        }
    }

    #[test]
    fn over_sets_the_forecast_takes_the_shorter_way_to_a_decision() {
        let forecast = |centre: f64, sd: f64| {
            let d: Vec<f64> = (0..6).map(|i| centre + sd * f64::from(i % 2 * 2 - 1)).collect();
            let estimate = RatioEstimate::over_sets(&alike(&d)).expect("six sets");
            match Verdict::of(&estimate, Delta::in_turns(0.02), LowerIsBetter) {
                Verdict::Inconclusive { more_blocks } => more_blocks,
                other => panic!("{other:?} at {centre}"),
            }
        };
        // Half-widths are 2.3 %. Near 1 it is equivalence that comes first, far from it a difference.
        let near = forecast(0.001, 0.02);
        let middle = forecast(0.01, 0.02);
        let far = forecast(0.02, 0.02);
        assert!(near < middle && far < middle, "{near}, {middle}, {far}");
        assert!((1..=6).contains(&near) && (1..=6).contains(&far), "{near}, {far}");
    }

    #[test]
    fn noise_makes_nothing_equivalent() {
        let delta = decision_delta(0.03, Some(0.5));
        assert_eq!(delta, Delta { difference: 0.5, equivalence: 0.03 });
        let wide = estimate(1.0, 0.2, 0.15);
        let verdict = Verdict::of(&wide, delta, HigherIsBetter);
        assert!(matches!(verdict, Verdict::Inconclusive { .. }), "{verdict:?}");
        assert_eq!(
            Verdict::of(&estimate(1.0, 0.025, 0.02), delta, HigherIsBetter),
            Verdict::Equivalent
        );
    }

    fn row(p: f64) -> Row {
        let arm = [110.0, 111.0, 109.0];
        let estimate = RatioEstimate::from_pairs(&arm, &[100.0; 3], Resampling::default())
            .expect("good blocks");
        let mut row = Row::judged(estimate, 0.03, HigherIsBetter);
        assert_eq!(row.verdict, Verdict::Faster);
        row.p_value = Some(p);
        row
    }

    #[test]
    fn holms_method_on_a_known_example() {
        // p = 0.01, 0.04, 0.03, 0.005 adjust to 0.03, 0.06, 0.06, 0.02.
        let mut rows = [0.01, 0.04, 0.03, 0.005].map(row);
        holm(&mut rows);
        for (row, expected) in rows.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            let found = row.p_holm.expect("every row has a p-value");
            assert!((found - expected).abs() < 1e-12, "{found} is not {expected}");
            assert_eq!(row.verdict.is_difference(), expected < 0.05);
        }
        assert!(matches!(rows[1].verdict, Verdict::Inconclusive { more_blocks: 1.. }));
    }

    #[test]
    fn rows_without_an_interval_are_left_alone() {
        let mut rows = [row(0.01), row(0.01)];
        rows[1].p_value = None;
        holm(&mut rows);
        assert_eq!((rows[0].p_holm, rows[1].p_holm), (Some(0.01), None));
        assert_eq!(rows[1].verdict, Verdict::Faster);
        holm(&mut []);
    }

    #[test]
    fn p_is_below_five_percent_exactly_when_the_verdict_is_a_difference() {
        let mut rng = Rng::seeded(3);
        let quick = Resampling { resamples: 200, seed: 1 };
        let mut differences = 0;
        for experiment in 0..300 {
            let n = 2 + experiment % 14;
            let arm: Vec<f64> = (0..n).map(|_| (0.06 + 0.02 * rng.normal()).exp()).collect();
            let estimate =
                RatioEstimate::from_pairs(&arm, &vec![1.0; n], quick).expect("good blocks");
            let row = Row::judged(estimate, 0.03, LowerIsBetter);
            let p = row.p_value.expect("two blocks or more");
            assert_eq!(row.verdict.is_difference(), p < 0.05, "{row:?}");
            differences += usize::from(row.verdict.is_difference());
        }
        assert!((50..250).contains(&differences), "{differences}");
    }

    #[test]
    fn no_spread_means_certainty_either_way() {
        let judged = |value: f64| {
            let estimate =
                RatioEstimate::from_pairs(&[value; 12], &[1.0; 12], Resampling::default())
                    .expect("good blocks");
            Row::judged(estimate, 0.03, HigherIsBetter).p_value
        };
        assert_eq!(judged(1.5), Some(0.0));
        assert_eq!(judged(1.01), Some(1.0));
    }

    #[test]
    fn over_sets_a_difference_that_does_not_survive_may_still_be_shown_to_be_small() {
        let over = |centre: f64| {
            let d: Vec<f64> = (0..8).map(|i| centre + 0.004 * f64::from(i % 2 * 2 - 1)).collect();
            let estimate = RatioEstimate::over_sets(&alike(&d)).expect("eight sets");
            Row::judged(estimate, Delta::in_turns(0.02), LowerIsBetter)
        };
        let mut rows = vec![over(0.004); 8];
        rows.push(over(0.018));
        assert!(rows.iter().all(|row| row.verdict == Verdict::Slower), "{rows:?}");
        holm(&mut rows);
        assert!(rows[..8].iter().all(|row| row.verdict == Verdict::Equivalent), "{rows:?}");
        assert_eq!(rows[8].verdict, Verdict::Slower);
    }
}
