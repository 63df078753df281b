//! Values that stand apart, and values that form two clusters.
//!
//! Called by the result writer on the per-block log ratios, and by the report. Flags only: nothing here
//! may ever remove a value, because the odd block is often the one that matters.

use serde::{Deserialize, Serialize};

use super::summary::quantile;

/// Tukey's inner fences stand this many interquartile ranges outside the quartiles.
const MILD_RANGES: f64 = 1.5;
/// Tukey's outer fences.
const SEVERE_RANGES: f64 = 3.0;
/// Below this many values quartiles say nothing.
const FENCED_VALUES_MIN: usize = 5;
/// Below this many values two clusters cannot be told from chance.
const CLUSTERED_VALUES_MIN: usize = 8;
/// A cluster holds at least one value in this many; fewer are outliers, not a cluster.
const CLUSTER_SHARE: usize = 5;

/// Where a value stands to Tukey's fences (Tukey, Exploratory Data Analysis, 1977).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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

/// Whether the values form two clusters, so that no single centre describes them.
///
/// A gap test: sorted, some gap between neighbours is wider than the values on either side of it are
/// spread, and each side holds a fifth of the values or more. False below eight values. Strict on
/// purpose: overlapping clusters go unnoticed, but the note, when it appears, can be seen by eye.
#[must_use]
pub fn is_bimodal(values: &[f64]) -> bool {
    let n = values.len();
    if n < CLUSTERED_VALUES_MIN {
        return false;
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let least = n.div_ceil(CLUSTER_SHARE);
    (least..=n - least).any(|split| {
        let (low, high) = sorted.split_at(split);
        high[0] - low[split - 1] > width(low).max(width(high))
    })
}

/// Last minus first of sorted values.
fn width(sorted: &[f64]) -> f64 {
    sorted[sorted.len() - 1] - sorted[0]
}

#[cfg(test)]
mod tests {
    use super::super::rng::Rng;
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

    #[test]
    fn two_clusters_are_seen_in_any_order() {
        let values = [1.0, 0.5, 1.02, 0.51, 0.99, 0.49, 1.01, 1.0, 0.5, 0.98];
        assert!(is_bimodal(&values));
    }

    #[test]
    fn one_outlier_or_one_value_is_no_second_cluster() {
        let mut values = [1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 1.01, 1.0, 1.0];
        assert!(!is_bimodal(&values));
        values[3] = 9.0;
        assert!(!is_bimodal(&values));
        assert!(!is_bimodal(&[3.0; 20]));
        assert!(!is_bimodal(&[0.0, 0.0, 9.0, 9.0]));
    }

    #[test]
    fn noise_of_one_cluster_hardly_ever_looks_like_two() {
        let mut rng = Rng::seeded(4);
        let flagged = (0..2_000)
            .filter(|_| {
                let values: Vec<f64> = (0..12).map(|_| rng.normal()).collect();
                is_bimodal(&values)
            })
            .count();
        assert!(flagged < 40, "{flagged} of 2000");
    }
}
