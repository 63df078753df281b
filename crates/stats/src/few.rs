//! What few sets show: not how large a difference is, but how large it is at least.
//!
//! Called by the judge for rows of fewer than [`SETS_MIN`](super::SETS_MIN) sets, which have no verdict of their own: an
//! arm that costs a thousand times as much need not wait for five of them. It must never give a bound that is wrong
//! more often than in one of a hundred rows, so it takes the wider of two allowances for the spread between sets.
//! Student's quantile of the row's own spread holds whatever that spread is. Two or three sets may by chance lie next
//! to each other, the more so where starts fall into two kinds; the widest spread that another row of the same point
//! shows, or the usual one of the run, taken as known, stands against that.

use super::confidence::{Interval, Method};
use super::ratio::{BETWEEN_SETS, RatioEstimate};
use super::sample_size::SETS_MIN;
use super::summary::{median, student_t_quantile};

/// Each bound holds with this probability.
const CONFIDENCE: f64 = 0.99;
/// The normal quantile at it.
const NORMAL: f64 = 2.326_348;
/// A difference of less than this factor is not called large: it waits for [`SETS_MIN`] sets.
const LARGE: f64 = 1.5;

/// Whether an estimate rests on sets that are too few for a verdict and enough for a bound.
fn is_few(estimate: &RatioEstimate) -> bool {
    estimate.method == Method::Sets && (2..SETS_MIN as usize).contains(&estimate.n)
}

/// The bounds of the ratio of each row that has few sets, in the order of the rows; none for the others. All rows of
/// the run belong in here with the number of their point, controls too: each lends the others its spread.
#[must_use]
pub fn bounds_of_few_sets(rows: &[(usize, &RatioEstimate)]) -> Vec<Option<Interval>> {
    let spread = |row: &RatioEstimate| row.sd_log.filter(|_| row.method == Method::Sets);
    let all: Vec<f64> = rows.iter().filter_map(|(_, row)| spread(row)).collect();
    let usual = median(&all).unwrap_or(0.0).max(BETWEEN_SETS);
    let widest_beside = |own: usize| {
        let (point, _) = rows[own];
        let others = rows.iter().enumerate();
        let others = others.filter(|(place, (other, _))| *place != own && *other == point);
        others.filter_map(|(_, (_, row))| spread(row)).fold(usual, f64::max)
    };
    let bounds = |(place, (_, row)): (usize, &(usize, &RatioEstimate))| {
        let own = spread(row).filter(|_| is_few(row))?;
        let by_itself = student_t_quantile(CONFIDENCE, (row.n - 1) as u32) * own;
        let reach = by_itself.max(NORMAL * widest_beside(place)) / (row.n as f64).sqrt();
        let centre = row.ratio.ln();
        Some(Interval::from_logs(centre - reach, centre + reach))
    };
    rows.iter().enumerate().map(bounds).collect()
}

impl Interval {
    /// How many times as much, or as little, it shows at least: 5 where all of it lies above 5 or below a fifth. None
    /// where that is less than half as much again.
    #[must_use]
    pub fn at_least(&self) -> Option<f64> {
        Some(self.lo.max(1.0 / self.hi)).filter(|times| *times >= LARGE)
    }
}

#[cfg(test)]
mod tests {
    use super::super::random::Rng;
    use super::super::ratio::alike;
    use super::super::summary::{mean, standard_deviation};
    use super::*;

    /// Ratio, deviation between sets and that within them, over the root of the rounds, of rows of the default job
    /// (runs/2026-11-22-quick-turns), the widest among them; and at which point each is.
    const POINTS: [usize; 14] = [0, 0, 0, 1, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5];
    const ROWS: [[f64; 3]; 14] = [
        [3.619, 0.0373, 0.0394],
        [3.523, 0.0456, 0.0296],
        [1.001, 0.0000, 0.0426],
        [2.317, 0.0094, 0.0129],
        [12.501, 0.0284, 0.0154],
        [0.998, 0.0063, 0.0141],
        [2307.091, 0.1706, 0.0562],
        [2284.972, 0.1902, 0.0449],
        [0.999, 0.0222, 0.0192],
        [2.753, 0.0591, 0.0770],
        [2.778, 0.1363, 0.0763],
        [1.007, 0.0259, 0.0299],
        [15.027, 0.0433, 0.0447],
        [0.662, 0.0001, 0.0453],
    ];

    fn estimate(logs: &[f64]) -> RatioEstimate {
        RatioEstimate::over_sets(&alike(logs)).expect("sets")
    }

    /// A draw from the normal distribution: twelve even ones.
    fn normal(rng: &mut Rng) -> f64 {
        (0..12).map(|_| rng.below(1 << 20) as f64 / f64::from(1 << 20)).sum::<f64>() - 6.0
    }

    /// The share of runs in which the bound of a row is wrong, row by row, and in which it is a large difference.
    fn simulated(sets: usize, widths: f64, draw: &dyn Fn(&mut Rng) -> f64) -> Vec<[f64; 2]> {
        const RUNS: usize = 3000;
        let mut rng = Rng::seeded(7);
        let mut counts = vec![[0.0; 2]; ROWS.len()];
        // Its intervals take long and are not asked for.
        let of_two = estimate(&[0.0, 0.0]);
        for _ in 0..RUNS {
            let row = |[ratio, between, within]: &[f64; 3], rng: &mut Rng| {
                let log = |_| ratio.ln() + widths * (between * draw(rng) + within * normal(rng));
                let logs: Vec<f64> = (0..sets).map(log).collect();
                RatioEstimate {
                    ratio: mean(&logs).expect("sets").exp(),
                    sd_log: standard_deviation(&logs),
                    n: sets,
                    left_out: 0,
                    ..of_two
                }
            };
            let rows: Vec<RatioEstimate> = ROWS.iter().map(|each| row(each, &mut rng)).collect();
            let bounds = bounds_of_few_sets(&POINTS.into_iter().zip(&rows).collect::<Vec<_>>());
            for (([ratio, ..], bounds), [wrong, large]) in ROWS.iter().zip(bounds).zip(&mut counts)
            {
                let bounds = bounds.expect("few sets");
                // The bound that is claimed: the one towards 1.
                let is_wrong = if *ratio > 1.0 { bounds.lo > *ratio } else { bounds.hi < *ratio };
                *wrong += f64::from(u8::from(is_wrong)) / RUNS as f64;
                *large += f64::from(u8::from(bounds.at_least().is_some())) / RUNS as f64;
            }
        }
        counts
    }

    #[test]
    fn the_bound_of_few_sets_is_wrong_in_at_most_one_of_a_hundred() {
        for sets in 2..SETS_MIN as usize {
            // As on the quiet machine of the record, and on one where all spreads are four times as wide.
            for widths in [1.0, 4.0] {
                let found = simulated(sets, widths, &normal);
                // Three deviations of a share of 1 % in 3,000 runs.
                let most = found.iter().map(|[wrong, _]| *wrong).fold(0.0, f64::max);
                assert!(most <= 0.0155, "{sets} sets, × {widths}: {found:?}");
                let all = found.iter().map(|[wrong, _]| wrong).sum::<f64>() / found.len() as f64;
                assert!(all <= 0.01, "{sets} sets, × {widths}: {all}");
            }
        }
    }

    #[test]
    fn starts_of_two_kinds_do_not_fool_the_bound() {
        // Every second start lands on the one side: two sets agree in half of all runs.
        let two_kinds = |rng: &mut Rng| if rng.below(2) == 0 { -1.0 } else { 1.0 };
        for sets in 2..SETS_MIN as usize {
            let found = simulated(sets, 1.0, &two_kinds);
            let all = found.iter().map(|[wrong, _]| wrong).sum::<f64>() / found.len() as f64;
            assert!(all <= 0.01, "{sets} sets: {found:?}");
        }
    }

    #[test]
    fn a_thousand_times_is_decided_with_two_sets_and_three_times_with_four() {
        let share = |sets, row: usize| simulated(sets, 1.0, &normal)[row][1];
        assert!(share(2, 6) > 0.85, "2307 times");
        assert!(share(3, 4) > 0.99, "12.5 times");
        assert!(share(4, 0) > 0.95, "3.6 times");
        assert_eq!(share(4, 2), 0.0, "the same program");
    }

    #[test]
    fn only_few_sets_have_bounds_and_neighbours_widen_them() {
        let row = |logs: &[f64]| estimate(logs);
        let one = row(&[2.0]);
        let five = row(&[2.0, 2.01, 2.0, 2.01, 2.0]);
        assert_eq!(bounds_of_few_sets(&[(0, &one), (0, &five)]), [None, None]);
        let close = row(&[2.0, 2.0]);
        let wide = row(&[0.0, 0.4]);
        let alone = bounds_of_few_sets(&[(0, &close)])[0].expect("two sets");
        let beside = bounds_of_few_sets(&[(0, &close), (0, &wide)])[0].expect("two sets");
        assert!(alone.lo > 7.3 && beside.lo < 5.0, "{alone:?} {beside:?}");
        let elsewhere = [(0, &close), (1, &wide), (2, &close), (3, &close)];
        let elsewhere = bounds_of_few_sets(&elsewhere)[0].expect("two sets");
        assert_eq!(elsewhere.lo, alone.lo, "another point is not this one");
    }

    #[test]
    fn less_is_bounded_as_more_is() {
        let few = |centre: f64| {
            let sets = [centre - 0.01, centre, centre + 0.01];
            bounds_of_few_sets(&[(0, &estimate(&sets))])[0].expect("three sets").at_least()
        };
        let more = few(3.0).expect("20 times");
        let less = few(-3.0).expect("a twentieth");
        assert!((more - less).abs() < 1e-9 && (19.0..20.1).contains(&more), "{more} {less}");
        assert_eq!(few(0.4), None);
    }
}
