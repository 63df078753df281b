//! Mean and deviation of a few samples, for the tools that summarise windows.
//!
//! The deviation is that of a sample (divided by one less than the count), as `ab`, `wrk` and
//! `httperf` print it; [`Distribution::stddev_ns`] divides by the count.

use crate::Distribution;

/// What a list of samples comes to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Moments {
    pub(super) count: usize,
    pub(super) min: f64,
    pub(super) mean: f64,
    pub(super) max: f64,
    /// `None` of a single sample.
    pub(super) deviation: Option<f64>,
}

impl Moments {
    /// Of all samples; `None` without any.
    pub(super) fn of(samples: &[f64]) -> Option<Self> {
        let count = samples.len();
        let mean = samples.iter().sum::<f64>() / count as f64;
        let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
        Some(Self {
            count,
            min: samples.iter().copied().reduce(f64::min)?,
            mean,
            max: samples.iter().copied().reduce(f64::max)?,
            deviation: (count > 1).then(|| (squares / (count - 1) as f64).sqrt()),
        })
    }

    /// Part of the samples that is not further from the mean than the deviation.
    pub(super) fn share_within(&self, samples: &[f64]) -> Option<f64> {
        let deviation = self.deviation?;
        let is_within = |sample: &&f64| (**sample - self.mean).abs() <= deviation;
        Some(samples.iter().filter(is_within).count() as f64 / self.count as f64)
    }
}

/// The deviation of a distribution as that of a sample; `None` below two values.
pub(super) fn sample_deviation_ns(times: &Distribution) -> Option<f64> {
    let count = times.count() as f64;
    times.stddev_ns().filter(|_| count > 1.0).map(|all| all * (count / (count - 1.0)).sqrt())
}

/// Part of the values that is not further from the mean than the deviation.
pub(super) fn share_within_deviation(times: &Distribution) -> Option<f64> {
    let (mean, deviation) = (times.mean_ns()?, sample_deviation_ns(times)?);
    let is_within = |value: u64| (value as f64 - mean).abs() <= deviation;
    let histogram = times.histogram();
    let within: u64 = histogram
        .iter_recorded()
        .filter(|step| is_within(histogram.median_equivalent(step.value_iterated_to())))
        .map(|step| step.count_since_last_iteration())
        .sum();
    Some(within as f64 / times.count() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_samples_by_hand() {
        let samples = [10.0, 20.0, 60.0];
        let moments = Moments::of(&samples).expect("samples");
        assert_eq!((moments.min, moments.mean, moments.max), (10.0, 30.0, 60.0));
        // (400 + 100 + 900) / 2 = 700
        assert!((moments.deviation.expect("three") - 700f64.sqrt()).abs() < 1e-9);
        assert_eq!(moments.share_within(&samples), Some(2.0 / 3.0));
    }

    #[test]
    fn one_sample_has_no_deviation_and_none_have_nothing() {
        assert_eq!(Moments::of(&[5.0]).expect("one").deviation, None);
        assert_eq!(Moments::of(&[]), None);
        assert_eq!(sample_deviation_ns(&Distribution::new()), None);
    }

    #[test]
    fn the_outlier_is_outside_of_the_deviation() {
        let mut times = Distribution::new();
        [100, 100, 100, 100, 1000].into_iter().for_each(|each| times.record(each));
        assert_eq!(share_within_deviation(&times), Some(0.8));
    }
}
