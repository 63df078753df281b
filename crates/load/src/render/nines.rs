//! The latency curve over "nines": a step along it is the same ratio of answers that are slower.
//!
//! The percentile chart and the CSV of percentiles are made from it.

use crate::Distribution;

/// Points for each nine: from 90 to 99 %, from 99 to 99.9 % and so on.
const POINTS_PER_NINE: u32 = 20;

/// One point of the curve.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Point {
    /// Part of the values that do not exceed the time, below 1.
    pub(super) quantile: f64,
    pub(super) ns: u64,
}

impl Point {
    /// Place on the axis: 0 at 0 %, 1 at 90 %, 2 at 99 %.
    pub(super) fn nines(&self) -> f64 {
        nines(self.quantile)
    }
}

/// The place of a quantile on the axis of nines.
pub(super) fn nines(quantile: f64) -> f64 {
    (1.0 / (1.0 - quantile)).log10()
}

/// The curve from the shortest value to the quantile that only one value exceeds; empty without
/// values.
pub(super) fn curve(times: &Distribution) -> Vec<Point> {
    let last = (times.count() as f64).log10();
    let steps = (last * f64::from(POINTS_PER_NINE)).floor() as u32;
    let point = |step: u32| {
        let quantile = 1.0 - 10f64.powf(-f64::from(step) / f64::from(POINTS_PER_NINE));
        Some(Point { quantile, ns: times.quantile_ns(quantile)? })
    };
    (0..=steps).filter_map(point).collect()
}

/// A quantile that the values can tell: at least one of them is beyond it.
pub(super) fn told_ns(times: &Distribution, quantile: f64) -> Option<u64> {
    let beyond = times.count() as f64 * (1.0 - quantile);
    // 1000 * (1 - 0.999) is a little below one.
    times.quantile_ns(quantile).filter(|_| beyond >= 1.0 - 1e-6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::sample;

    #[test]
    fn the_curve_ends_where_one_value_is_left() {
        let curve = curve(&sample::times(1000, |index| (index + 1) * 1000));
        let (first, last) = (curve[0], curve[curve.len() - 1]);
        assert_eq!((curve.len(), first.quantile, last.ns / 1000), (61, 0.0, 999));
        assert!((last.nines() - 3.0).abs() < 1e-9, "{last:?}");
        assert!(super::curve(&Distribution::new()).is_empty());
    }

    #[test]
    fn a_quantile_without_values_beyond_it_is_not_told() {
        let times = sample::times(1000, |index| index + 1);
        assert_eq!((told_ns(&times, 0.999), told_ns(&times, 0.9999)), (Some(999), None));
    }
}
