//! Plain descriptions of one list of values (centre, spread, quantiles, values that stand apart, how evenly they share
//! their sum), and Student's t distribution.
//!
//! Called by the judge and the report, and by the `herd` experiment with the calls that each worker answered. The figures describe one arm alone; they must never be used to
//! compare two arms, which is what `ratio` is for. Values that stand apart are flagged and never left
//! out: the odd block is often the one that matters. Student's t must never be approximated by the
//! normal distribution: at twelve blocks that would make every interval 11 % too narrow.

use std::f64::consts::FRAC_2_PI;

/// Arithmetic mean; none of an empty list.
#[must_use]
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Median: the middle value, or the mean of the two middle ones; none of an empty list.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Sample standard deviation (divisor n - 1); none below two values, exactly 0 of equal values.
#[must_use]
pub fn standard_deviation(values: &[f64]) -> Option<f64> {
    let (first, rest) = values.split_first()?;
    if rest.is_empty() {
        return None;
    }
    // The rounded mean of equal values may differ from them in the last bit.
    if rest.iter().all(|value| value == first) {
        return Some(0.0);
    }
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / rest.len() as f64).sqrt())
}

/// Mean and sample standard deviation (none below two) of at least one value, each counting as its
/// weight says; `weights` are as many as the values, and 1 on average. The deviation is that of a value
/// whose weight is 1, where the variance of each is one over its weight.
pub(super) fn weighted(values: &[f64], weights: &[f64]) -> (f64, Option<f64>) {
    let each = || values.iter().zip(weights);
    let count = values.len() as f64;
    let centre = each().map(|(value, weight)| value * weight).sum::<f64>() / count;
    let squares: f64 = each().map(|(value, weight)| weight * (value - centre).powi(2)).sum();
    let deviation = (values.len() > 1).then(|| (squares / (count - 1.0)).sqrt());
    (centre, deviation)
}

/// The value below which the share `q` of the values lies, linear between neighbours.
///
/// This is definition 7 of Hyndman & Fan (1996), the default of R and NumPy. None of an empty list.
///
/// # Panics
///
/// When `q` is not within `0.0..=1.0`.
#[must_use]
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    assert!((0.0..=1.0).contains(&q), "a quantile lies in 0..=1, not at {q}");
    if values.is_empty() {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    Some(quantile_of_sorted(&sorted, q))
}

/// As [`quantile`], of values already in ascending order and at least one of them.
pub(super) fn quantile_of_sorted(sorted: &[f64], q: f64) -> f64 {
    let place = q * (sorted.len() - 1) as f64;
    let lower = sorted[place.floor() as usize];
    let upper = sorted[place.ceil() as usize];
    // Equal neighbours may be infinite, and infinity minus infinity is not a number.
    if lower == upper {
        return lower;
    }
    lower + (upper - lower) * place.fract()
}

/// Half-width of the mean's 95 % Student interval as a share of the mean.
///
/// None below two values or at mean 0.
#[must_use]
pub fn mean_half_width_rel(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|mean| *mean != 0.0)?;
    let variation = standard_deviation(values)? / mean.abs();
    let df = u32::try_from(values.len() - 1).ok()?;
    Some(student_t_quantile(0.975, df) * variation / (values.len() as f64).sqrt())
}

/// Tukey's inner fences stand this many interquartile ranges outside the quartiles.
const MILD_RANGES: f64 = 1.5;
/// Tukey's outer fences.
const SEVERE_RANGES: f64 = 3.0;
/// Below this many values quartiles say nothing.
const FENCED_VALUES_MIN: usize = 5;

/// Where a value stands to Tukey's fences (Tukey, Exploratory Data Analysis, 1977).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outlier {
    /// Within the inner fences.
    None,
    /// Beyond an inner fence, 1.5 interquartile ranges from the quartile.
    Mild,
    /// Beyond an outer fence, 3 interquartile ranges from the quartile.
    Severe,
}

/// One flag per value, in the order of the values; no outliers below five values.
#[must_use]
pub fn tukey_flags(values: &[f64]) -> Vec<Outlier> {
    let quartiles = quantile(values, 0.25).zip(quantile(values, 0.75));
    let Some((lower, upper)) = quartiles.filter(|_| values.len() >= FENCED_VALUES_MIN) else {
        return vec![Outlier::None; values.len()];
    };
    let range = upper - lower;
    values
        .iter()
        .map(|&value| {
            let beyond = (lower - value).max(value - upper);
            if beyond > SEVERE_RANGES * range {
                Outlier::Severe
            } else if beyond > MILD_RANGES * range {
                Outlier::Mild
            } else {
                Outlier::None
            }
        })
        .collect()
}

/// The Gini coefficient: 0 where all have the same, (n - 1) / n where one of n has everything; none
/// where there is nothing to share.
///
/// Source: the mean absolute difference of all pairs over twice the mean (Gini, 1912), by the sum
/// over ranks that equals it.
#[must_use]
pub fn gini(counts: &[u64]) -> Option<f64> {
    let count = counts.len() as f64;
    let sum = counts.iter().sum::<u64>() as f64;
    if sum == 0.0 {
        return None;
    }
    let mut sorted = counts.to_vec();
    sorted.sort_unstable();
    let ranked = sorted.iter().zip(1u32..).map(|(own, rank)| f64::from(rank) * *own as f64);
    Some(2.0 * ranked.sum::<f64>() / (count * sum) - (count + 1.0) / count)
}

/// The Lorenz curve: what the part of those with least have together, from (0, 0) to (1, 1), with a
/// corner for each; empty where there is nothing to share.
#[must_use]
pub fn lorenz(counts: &[f64]) -> Vec<(f64, f64)> {
    let sum: f64 = counts.iter().sum();
    if sum <= 0.0 {
        return Vec::new();
    }
    let mut sorted = counts.to_vec();
    sorted.sort_by(f64::total_cmp);
    let mut below = 0.0;
    let corner = |(index, own): (usize, &f64)| {
        below += own;
        ((index + 1) as f64 / counts.len() as f64, below / sum)
    };
    std::iter::once((0.0, 0.0)).chain(sorted.iter().enumerate().map(corner)).collect()
}

/// What the part of those with least have together, between the corners of their Lorenz curve; none
/// where there is none.
#[must_use]
pub fn lorenz_at(curve: &[(f64, f64)], part: f64) -> Option<f64> {
    let pair = curve.windows(2).find(|pair| pair[1].0 >= part)?;
    let ((from, below), (to, above)) = (pair[0], pair[1]);
    Some(below + (part - from) / (to - from) * (above - below))
}

/// The mean share at each rank, from the least, of several ways in which something was shared.
/// What was shared among another number than the first time is left out.
#[must_use]
pub fn mean_shares<'a>(all: impl IntoIterator<Item = &'a [u64]>) -> Vec<f64> {
    let mut sums: Vec<f64> = Vec::new();
    for counts in all {
        let sum: u64 = counts.iter().sum();
        let mut sorted = counts.to_vec();
        sorted.sort_unstable();
        sums.resize(if sums.is_empty() { sorted.len() } else { sums.len() }, 0.0);
        if sums.len() == sorted.len() && sum > 0 {
            let shares = sorted.iter().map(|own| *own as f64 / sum as f64);
            sums.iter_mut().zip(shares).for_each(|(sum, share)| *sum += share);
        }
    }
    let all: f64 = sums.iter().sum();
    sums.iter().map(|sum| if all > 0.0 { sum / all } else { 0.0 }).collect()
}

/// How far into a tail the quantile is computed; farther out rounding of `1 - p` takes over.
const TAIL_MIN: f64 = 1e-9;
/// Enough halvings to use up all bits of an f64.
const BISECTIONS: u32 = 100;

/// The probability that a t variable with `df` degrees of freedom is at most `t`.
///
/// Exact finite sums for whole `df` (Abramowitz & Stegun 26.7.3 and 26.7.4); the absolute error is
/// about 1e-15.
///
/// # Panics
///
/// When `df` is 0.
pub(crate) fn student_t_cdf(t: f64, df: u32) -> f64 {
    assert!(df > 0, "Student's t needs at least one degree of freedom");
    0.5 + 0.5 * central_probability(t, df)
}

/// The value that a t variable with `df` degrees of freedom stays below with probability `p`.
///
/// # Panics
///
/// When `df` is 0 or `p` lies outside `1e-9..=1 - 1e-9`.
#[must_use]
pub fn student_t_quantile(p: f64, df: u32) -> f64 {
    assert!(
        (TAIL_MIN..=1.0 - TAIL_MIN).contains(&p),
        "the quantile of {p} is outside the supported range"
    );
    if p < 0.5 {
        return -student_t_quantile(1.0 - p, df);
    }
    let mut above = 1.0;
    while student_t_cdf(above, df) < p {
        above *= 2.0;
    }
    let mut below = 0.0;
    for _ in 0..BISECTIONS {
        let middle = 0.5 * (below + above);
        if student_t_cdf(middle, df) < p {
            below = middle;
        } else {
            above = middle;
        }
    }
    0.5 * (below + above)
}

/// The signed probability between `-t` and `t`.
fn central_probability(t: f64, df: u32) -> f64 {
    let angle = (t / f64::from(df).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    if df.is_multiple_of(2) {
        sine * power_sum(1.0, cosine, (2..df).step_by(2))
    } else if df == 1 {
        FRAC_2_PI * angle
    } else {
        FRAC_2_PI * (angle + sine * power_sum(cosine, cosine, (3..df).step_by(2)))
    }
}

/// `first + first·c²·(k-1)/k + …`, one more factor for each `k`.
fn power_sum(first: f64, cosine: f64, steps: impl Iterator<Item = u32>) -> f64 {
    let mut term = first;
    let mut sum = first;
    for k in steps {
        term *= cosine * cosine * f64::from(k - 1) / f64::from(k);
        sum += term;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: Option<f64>, expected: f64) {
        let found = found.expect("a value");
        assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
    }

    #[test]
    fn a_hand_computed_list() {
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        close(mean(&values), 5.0);
        close(median(&values), 4.5);
        close(standard_deviation(&values), (32.0_f64 / 7.0).sqrt());
        // t(0.975, 7) = 2.364624; times sd over root of 8, over 5.
        let half_width = mean_half_width_rel(&values).expect("eight values");
        assert!((half_width - 0.357_498).abs() < 1e-5, "{half_width}");
    }

    #[test]
    fn quantiles_follow_definition_seven() {
        let values = [40.0, 10.0, 30.0, 20.0];
        close(quantile(&values, 0.0), 10.0);
        close(quantile(&values, 0.25), 17.5);
        close(quantile(&values, 0.5), 25.0);
        close(quantile(&values, 0.9), 37.0);
        close(quantile(&values, 1.0), 40.0);
    }

    #[test]
    fn equal_values_have_no_spread_at_all() {
        let values = [0.1; 10];
        assert_eq!(standard_deviation(&values), Some(0.0));
        assert_eq!(mean_half_width_rel(&values), Some(0.0));
        assert_eq!(mean_half_width_rel(&[3.0]), None);
        assert_eq!(mean_half_width_rel(&[-1.0, 1.0]), None, "a share of nothing");
    }

    #[test]
    fn fences_stand_where_tukey_put_them() {
        // Quartiles of the ten values are 3.25 and 7.75: fences at -3.5, 14.5 and -10.25, 21.25.
        let mut values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 14.4];
        assert_eq!(tukey_flags(&values), [Outlier::None; 10]);
        values[9] = 14.6;
        assert_eq!(tukey_flags(&values)[9], Outlier::Mild);
        values[9] = 21.3;
        assert_eq!(tukey_flags(&values)[9], Outlier::Severe);
        assert_eq!(tukey_flags(&values)[..9], [Outlier::None; 9]);
    }

    #[test]
    fn low_values_are_flagged_too_and_few_values_never() {
        let flags = tukey_flags(&[-9.0, 0.1, 0.2, 0.1, 0.2, 0.1, 0.2]);
        assert_eq!(flags[0], Outlier::Severe);
        assert_eq!(tukey_flags(&[0.0, 0.0, 0.0, 9.0]), [Outlier::None; 4]);
        assert_eq!(tukey_flags(&[]), []);
    }

    #[test]
    fn quantiles_agree_with_the_printed_table() {
        let table = [
            (0.975, 1, 12.7062),
            (0.975, 2, 4.3027),
            (0.975, 3, 3.1824),
            (0.975, 4, 2.7764),
            (0.975, 11, 2.2010),
            (0.975, 29, 2.0452),
            (0.975, 120, 1.9799),
            (0.95, 1, 6.3138),
            (0.95, 5, 2.0150),
            (0.95, 11, 1.7959),
            (0.995, 9, 3.2498),
            (0.9995, 10, 4.5869),
            (0.9995, 7, 5.4079),
        ];
        for (p, df, expected) in table {
            let found = student_t_quantile(p, df);
            assert!((found - expected).abs() < 6e-5, "p {p}, df {df}: {found}");
        }
    }

    #[test]
    fn the_distribution_is_symmetric_about_zero() {
        for df in [1, 2, 7, 30] {
            assert_eq!(student_t_cdf(0.0, df), 0.5);
            assert!((student_t_cdf(1.3, df) + student_t_cdf(-1.3, df) - 1.0).abs() < 1e-15);
            assert_eq!(student_t_quantile(0.1, df), -student_t_quantile(0.9, df));
        }
    }

    #[test]
    fn the_quantile_undoes_the_probability_deep_into_the_tail() {
        for df in [1, 2, 11, 100] {
            for tail in [1e-8, 1e-4, 0.3] {
                let back = student_t_cdf(student_t_quantile(1.0 - tail, df), df);
                assert!((back - (1.0 - tail)).abs() < 1e-12, "df {df}, tail {tail}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "outside the supported range")]
    fn certainty_has_no_quantile() {
        let _ = student_t_quantile(1.0, 5);
    }

    #[test]
    fn closed_forms_of_the_coefficient() {
        close(gini(&[5, 5, 5, 5]), 0.0);
        // One of four has everything.
        close(gini(&[0, 0, 0, 8]), 0.75);
        // 1, 2, …, n: (n² - 1) / (3n · n) · n / (n + 1) = (n - 1) / 3n.
        let rising: Vec<u64> = (1..=100).collect();
        close(gini(&rising), 99.0 / 300.0);
        close(gini(&[7]), 0.0);
        assert_eq!((gini(&[]), gini(&[0, 0])), (None, None));
    }

    #[test]
    fn the_coefficient_is_twice_the_area_above_the_curve() {
        let counts = [3u64, 0, 14, 5, 5, 90];
        let curve = lorenz(&counts.map(|count| count as f64));
        let area: f64 = curve
            .windows(2)
            .map(|pair| (pair[1].0 - pair[0].0) * (pair[0].1 + pair[1].1) / 2.0)
            .sum();
        close(gini(&counts), 1.0 - 2.0 * area);
    }

    #[test]
    fn the_curve_goes_from_zero_to_one() {
        assert_eq!(lorenz(&[1.0, 3.0]), [(0.0, 0.0), (0.5, 0.25), (1.0, 1.0)]);
        assert!(lorenz(&[0.0]).is_empty() && lorenz(&[]).is_empty());
    }

    #[test]
    fn a_curve_is_read_between_its_corners() {
        let curve = lorenz(&[1.0, 3.0]);
        let at = [0.25, 0.75].map(|part| lorenz_at(&curve, part));
        assert_eq!((at, lorenz_at(&[], 0.5)), ([Some(0.125), Some(0.625)], None));
    }

    #[test]
    fn shares_are_averaged_rank_by_rank() {
        let runs: [&[u64]; 2] = [&[30, 10], &[0, 8]];
        assert_eq!(mean_shares(runs), [0.125, 0.875]);
        assert!(mean_shares(std::iter::empty()).is_empty());
        assert_eq!(mean_shares([[0u64, 0].as_slice()]), [0.0, 0.0]);
    }
}
