//! Plain descriptions of one list of values: centre, spread, quantiles.
//!
//! Called by the result writer, the terminal table and the report. These numbers describe one arm
//! alone; they must never be used to compare two arms, which is what `ratio` is for.

use super::student::student_t_quantile;

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
}
