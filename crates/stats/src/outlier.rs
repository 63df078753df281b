//! Values that stand apart.
//!
//! Called by the judge on the log ratios of blocks or sets, to count those that stand apart, and by the
//! report, which marks runs. Flags only: nobody leaves a value out by them, because the odd block is often
//! the one that matters.

use super::summary::quantile;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
