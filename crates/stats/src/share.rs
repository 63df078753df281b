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
