//! How evenly something is shared: the Lorenz curve and the Gini coefficient.
//!
//! The `herd` experiment calls it with the calls that each worker answered.

/// The Gini coefficient: 0 where all have the same, (n - 1) / n where one of n has everything; none
/// where there is nothing to share.
///
/// Source: the mean absolute difference of all pairs over twice the mean (Gini, 1912), by the sum
/// over ranks that equals it.
#[must_use]
pub fn gini(counts: &[u64]) -> Option<f64> {
    let (count, sum) = (counts.len() as f64, counts.iter().sum::<u64>() as f64);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: Option<f64>, b: f64) -> bool {
        a.is_some_and(|a| (a - b).abs() < 1e-12)
    }

    #[test]
    fn closed_forms_of_the_coefficient() {
        assert!(close(gini(&[5, 5, 5, 5]), 0.0));
        assert!(close(gini(&[0, 0, 0, 8]), 0.75), "one of four has everything");
        // 1, 2, …, n: (n² - 1) / (3n · n) · n / (n + 1) = (n - 1) / 3n.
        let rising: Vec<u64> = (1..=100).collect();
        assert!(close(gini(&rising), 99.0 / 300.0));
        assert!(close(gini(&[7]), 0.0));
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
        assert!(close(gini(&counts), 1.0 - 2.0 * area));
    }

    #[test]
    fn the_curve_goes_from_nobody_to_all() {
        assert_eq!(lorenz(&[1.0, 3.0]), [(0.0, 0.0), (0.5, 0.25), (1.0, 1.0)]);
        assert!(lorenz(&[0.0]).is_empty() && lorenz(&[]).is_empty());
    }
}
