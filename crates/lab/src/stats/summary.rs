//! Plain descriptions of one list of values: centre, spread, quantiles.
//!
//! Called by the result writer, the terminal table and the report. These numbers describe one arm
//! alone; they must never be used to compare two arms, which is what `ratio` is for.

use serde::{Deserialize, Serialize};

use super::student::student_t_quantile;

/// What one arm's values look like, in the unit of the values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// How many values.
    pub n: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub median: f64,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// Sample standard deviation; none below two values.
    pub sd: Option<f64>,
    /// Geometric mean; none unless all values are positive.
    pub geometric_mean: Option<f64>,
    /// Standard deviation over mean, 0.02 for 2 %; none below two values or at mean 0.
    pub coefficient_of_variation: Option<f64>,
    /// Half-width of the mean's 95 % interval over the mean: the `±1.8%` of the terminal.
    pub mean_half_width_rel: Option<f64>,
}

impl Summary {
    /// Describes `values`; none when there are none or one of them is not a finite number.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() || !values.iter().all(|value| value.is_finite()) {
            return None;
        }
        Some(Self {
            n: values.len(),
            mean: mean(values)?,
            median: median(values)?,
            min: quantile(values, 0.0)?,
            max: quantile(values, 1.0)?,
            sd: standard_deviation(values),
            geometric_mean: geometric_mean(values),
            coefficient_of_variation: coefficient_of_variation(values),
            mean_half_width_rel: mean_half_width_rel(values),
        })
    }
}

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

/// The n-th root of the product; none of an empty list or when a value is not positive.
#[must_use]
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    if !values.iter().all(|&value| value > 0.0) {
        return None;
    }
    let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    mean(&logs).map(f64::exp)
}

/// Standard deviation as a share of the mean; none below two values or at mean 0.
#[must_use]
pub fn coefficient_of_variation(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    let sd = standard_deviation(values)?;
    (mean != 0.0).then(|| sd / mean.abs())
}

/// Half-width of the mean's 95 % Student interval as a share of the mean.
///
/// None below two values or at mean 0.
#[must_use]
pub fn mean_half_width_rel(values: &[f64]) -> Option<f64> {
    let variation = coefficient_of_variation(values)?;
    let df = u32::try_from(values.len() - 1).ok()?;
    Some(student_t_quantile(0.975, df) * variation / (values.len() as f64).sqrt())
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
        close(coefficient_of_variation(&values), (32.0_f64 / 7.0).sqrt() / 5.0);
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
    fn geometric_mean_wants_positive_values() {
        close(geometric_mean(&[1.0, 4.0, 16.0]), 4.0);
        assert_eq!(geometric_mean(&[1.0, 0.0]), None);
        assert_eq!(geometric_mean(&[]), None);
    }

    #[test]
    fn equal_values_have_no_spread_at_all() {
        let values = [0.1; 10];
        assert_eq!(standard_deviation(&values), Some(0.0));
        assert_eq!(mean_half_width_rel(&values), Some(0.0));
    }

    #[test]
    fn a_summary_says_what_it_cannot_know() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
        let one = Summary::of(&[3.0]).expect("one value is a summary");
        assert_eq!((one.n, one.mean, one.sd), (1, 3.0, None));
        assert_eq!(one.mean_half_width_rel, None);
        let two = Summary::of(&[1.0, 3.0]).expect("two values are a summary");
        assert_eq!((two.min, two.max, two.median), (1.0, 3.0, 2.0));
    }
}
