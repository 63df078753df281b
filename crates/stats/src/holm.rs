//! Correction for looking at many rows at once.
//!
//! Called by the judge, once per table. It must be given every row of the family, also the dull
//! ones: leaving out rows because they showed nothing undoes the correction. The A/A row is a control
//! and not a question, so it stays out, as do baselines and failed arms.

use super::ratio::RatioEstimate;
use super::summary::{student_t_cdf, student_t_quantile};
use super::verdict::{Delta, Direction, Verdict, band_log, clearance, degrees_of_freedom};

/// The chance, at most, that a table with no real difference shows even one.
pub(crate) const FAMILY_ERROR_RATE: f64 = 0.05;
/// Beyond this many rows the strictest single test would leave the range of the t quantile.
const ROWS_MAX: usize = 1_000_000;

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
}

impl Row {
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

/// Two-sided probability of lying this far beyond the band by chance.
fn p_beyond(estimate: &RatioEstimate, delta: f64) -> Option<f64> {
    let half_widths = clearance(estimate, band_log(delta))?;
    let df = degrees_of_freedom(estimate);
    let t = half_widths * student_t_quantile(0.975, df);
    Some((2.0 * student_t_cdf(-t, df)).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::super::confidence::Resampling;
    use super::super::random::Rng;
    use super::super::ratio::alike;
    use super::*;

    fn row(p: f64) -> Row {
        let arm = [110.0, 111.0, 109.0];
        let estimate = RatioEstimate::from_pairs(&arm, &[100.0; 3], Resampling::default())
            .expect("good blocks");
        let mut row = Row::judged(estimate, 0.03, Direction::HigherIsBetter);
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
            let row = Row::judged(estimate, 0.03, Direction::LowerIsBetter);
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
            Row::judged(estimate, 0.03, Direction::HigherIsBetter).p_value
        };
        assert_eq!(judged(1.5), Some(0.0));
        assert_eq!(judged(1.01), Some(1.0));
    }

    #[test]
    fn over_sets_a_difference_that_does_not_survive_may_still_be_shown_to_be_small() {
        let over = |centre: f64| {
            let d: Vec<f64> = (0..8).map(|i| centre + 0.004 * f64::from(i % 2 * 2 - 1)).collect();
            let estimate = RatioEstimate::over_sets(&alike(&d)).expect("eight sets");
            Row::judged(estimate, Delta::in_turns(0.02), Direction::LowerIsBetter)
        };
        let mut rows = vec![over(0.004); 8];
        rows.push(over(0.018));
        assert!(rows.iter().all(|row| row.verdict == Verdict::Slower), "{rows:?}");
        holm(&mut rows);
        assert!(rows[..8].iter().all(|row| row.verdict == Verdict::Equivalent), "{rows:?}");
        assert_eq!(rows[8].verdict, Verdict::Slower);
    }
}
