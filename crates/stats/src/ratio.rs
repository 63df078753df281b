//! The ratio of an arm to its baseline over paired blocks, with confidence intervals.
//!
//! Called by the runner after each block (for the stopping rule) and by the result writer. It must
//! never see single events, only one value per run. It drops no block: which sets are long enough to
//! count is for its callers to say.

use super::confidence::{Interval, Method, Resampling, intervals};
use super::summary::{mean, median, standard_deviation, weighted};
use super::turns::{SetRatio, weights};

/// From this many blocks on the bootstrap has enough distinct resamples to beat Student's t.
const BOOTSTRAP_BLOCKS_MIN: usize = 10;
/// Above this lag-1 autocorrelation neighbouring blocks cannot pass for independent.
const AUTOCORRELATION_MAX: f64 = 0.3;

/// How much an arm's value is of the baseline's, from one pair of values per block, or from one log
/// ratio per set; what is said of blocks then holds of sets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RatioEstimate {
    /// Geometric mean of the per-block ratios: 1.08 means 8 % above the baseline.
    pub ratio: f64,
    /// Median of the per-block ratios; far from `ratio`, it says that few blocks made the mean.
    pub median_ratio: f64,
    /// 95 % interval of the ratio; none below two blocks.
    pub ci95: Option<Interval>,
    /// 90 % interval of the ratio, for equivalence of whole runs; none below two blocks.
    pub ci90: Option<Interval>,
    /// Blocks that went in.
    pub n: usize,
    /// Standard deviation of the log ratios, roughly a relative deviation; none below two blocks.
    pub sd_log: Option<f64>,
    /// How the intervals were computed.
    pub method: Method,
    /// Correlation of each block's log ratio with the next; none below three blocks or at spread 0.
    pub autocorrelation_lag1: Option<f64>,
}

/// Why no ratio could be formed.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum RatioError {
    /// No block was given.
    #[error("there is no complete block to compare; at least one is needed")]
    NoBlocks,
    /// A value has no logarithm.
    #[error("block {block} has the value {value}; a ratio needs finite values above 0")]
    NotPositive {
        /// Place of the block in the input, from 0.
        block: usize,
        /// The offending value.
        value: f64,
    },
}

impl RatioEstimate {
    /// Estimates arm over baseline from `arm[i]` and `baseline[i]`, both measured in block `i`.
    ///
    /// # Errors
    ///
    /// When there is no block, or a value is zero, negative or not finite.
    ///
    /// # Panics
    ///
    /// When the slices differ in length or `resampling` asks for no resamples.
    pub fn from_pairs(
        arm: &[f64],
        baseline: &[f64],
        resampling: Resampling,
    ) -> Result<Self, RatioError> {
        Ok(Self::from_log_ratios(&log_ratios(arm, baseline)?, resampling))
    }

    /// Estimates from the sets in which arm and baseline took turns, those of more rounds with more
    /// weight; none without a set.
    #[must_use]
    pub fn over_sets(sets: &[SetRatio]) -> Option<Self> {
        let logs: Vec<f64> = sets.iter().map(|set| set.log_ratio).collect();
        let is_usable = !logs.is_empty() && logs.iter().all(|log| log.is_finite());
        is_usable.then(|| Self::by(Method::Sets, &logs, &weights(sets), Resampling::default()))
    }

    /// Whether the arm was shown to be within `effect` of the baseline, 0.02 for 1/1.02 to 1.02.
    ///
    /// By the 90 % interval (two one-sided tests at 5 %); over sets by the 95 % interval, so that
    /// the interval shows why.
    pub(super) fn is_within(&self, effect: f64) -> bool {
        let interval = if self.method == Method::Sets { self.ci95 } else { self.ci90 };
        let band = effect.ln_1p();
        interval.is_some_and(|ci| -band <= ci.lo.ln() && ci.hi.ln() <= band)
    }

    /// Estimates from `d`, at least one log ratio.
    pub(super) fn from_log_ratios(d: &[f64], resampling: Resampling) -> Self {
        let method = method_for(d.len(), standard_deviation(d), autocorrelation_lag1(d));
        Self::by(method, d, &vec![1.0; d.len()], resampling)
    }

    fn by(method: Method, d: &[f64], weights: &[f64], resampling: Resampling) -> Self {
        let autocorrelation_lag1 = autocorrelation_lag1(d);
        // The mean of equal values is that value, whatever rounding makes of their sum.
        let (centre, sd_log) = match standard_deviation(d) {
            Some(0.0) => (d[0], Some(0.0)),
            _ => weighted(d, weights),
        };
        let ci = sd_log.map(|sd| intervals(d, centre, sd, method, resampling));
        Self {
            ratio: centre.exp(),
            median_ratio: median(d).unwrap_or(centre).exp(),
            ci95: ci.map(|(ci95, _)| ci95),
            ci90: ci.map(|(_, ci90)| ci90),
            n: d.len(),
            sd_log,
            method,
            autocorrelation_lag1,
        }
    }
}

/// The natural logarithm of arm over baseline for each block; what outlier flags look at.
///
/// # Errors
///
/// When there is no block, or a value is zero, negative or not finite.
///
/// # Panics
///
/// When the slices differ in length.
pub fn log_ratios(arm: &[f64], baseline: &[f64]) -> Result<Vec<f64>, RatioError> {
    assert_eq!(arm.len(), baseline.len(), "arm and baseline must come from the same blocks");
    if arm.is_empty() {
        return Err(RatioError::NoBlocks);
    }
    let mut logs = Vec::with_capacity(arm.len());
    for (block, (&above, &below)) in arm.iter().zip(baseline).enumerate() {
        for value in [above, below] {
            if !(value.is_finite() && value > 0.0) {
                return Err(RatioError::NotPositive { block, value });
            }
        }
        logs.push(above.ln() - below.ln());
    }
    Ok(logs)
}

fn method_for(n: usize, sd_log: Option<f64>, autocorrelation: Option<f64>) -> Method {
    if n < BOOTSTRAP_BLOCKS_MIN || sd_log == Some(0.0) {
        Method::StudentT
    } else if autocorrelation.is_some_and(|lag1| lag1 > AUTOCORRELATION_MAX) {
        Method::MovingBlockBootstrap
    } else {
        Method::Bootstrap
    }
}

/// Correlation between each value and its successor.
fn autocorrelation_lag1(d: &[f64]) -> Option<f64> {
    if d.len() < 3 || standard_deviation(d)? == 0.0 {
        return None;
    }
    let centre = mean(d)?;
    let square: f64 = d.iter().map(|x| (x - centre).powi(2)).sum();
    let product: f64 = d.windows(2).map(|pair| (pair[0] - centre) * (pair[1] - centre)).sum();
    Some(product / square)
}

#[cfg(test)]
mod tests {
    use super::super::turns::alike;
    use super::*;

    const QUICK: Resampling = Resampling { resamples: 400, seed: 1 };

    fn estimate(d: &[f64]) -> RatioEstimate {
        RatioEstimate::from_log_ratios(d, QUICK)
    }

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-6, "{found} is not {expected}");
    }

    #[test]
    fn a_hand_computed_ratio() {
        // d = ln 1.1, ln 1.2, ln 1.0: mean 0.0925439, sd 0.0911925, t(0.975, 2) = 4.3026527.
        let found = RatioEstimate::from_pairs(&[110.0, 60.0, 7.0], &[100.0, 50.0, 7.0], QUICK)
            .expect("three good blocks");
        close(found.ratio, (1.32_f64).cbrt());
        close(found.median_ratio, 1.1);
        assert_eq!((found.n, found.method), (3, Method::StudentT));
        let sd = found.sd_log.expect("a deviation of three");
        assert!((sd - 0.091_192_5).abs() < 1e-6, "{sd}");
        let ci95 = found.ci95.expect("an interval of three");
        close(ci95.half_width_log(), 4.302_652_73 * sd / 3.0_f64.sqrt());
        close(ci95.lo * ci95.hi, found.ratio * found.ratio);
        let ci90 = found.ci90.expect("an interval of three");
        close(ci90.half_width_log(), 2.919_985_58 * sd / 3.0_f64.sqrt());
    }

    #[test]
    fn one_block_gives_a_ratio_without_an_interval() {
        let found = estimate(&[0.5]);
        close(found.ratio, 0.5_f64.exp());
        assert_eq!((found.ci95, found.ci90, found.sd_log), (None, None, None));
        assert_eq!(found.autocorrelation_lag1, None);
    }

    #[test]
    fn equal_blocks_give_a_point() {
        for n in [2, 9, 12, 30] {
            let found = estimate(&vec![0.1; n]);
            let point = Interval::from_logs(0.1, 0.1);
            assert_eq!((found.ci95, found.ci90), (Some(point), Some(point)), "{n} blocks");
            assert_eq!(found.ratio, point.lo);
        }
    }

    #[test]
    fn values_without_a_logarithm_are_refused_with_their_place() {
        let refused = RatioEstimate::from_pairs(&[1.0, 2.0], &[1.0, 0.0], QUICK);
        let expected = RatioError::NotPositive { block: 1, value: 0.0 };
        assert_eq!(refused, Err(expected));
        assert!(expected.to_string().contains("block 1 has the value 0"));
        assert!(log_ratios(&[f64::NAN], &[1.0]).is_err());
        assert_eq!(log_ratios(&[], &[]), Err(RatioError::NoBlocks));
    }

    #[test]
    fn a_change_of_level_chooses_the_moving_blocks() {
        let d: Vec<f64> = (0..12).map(|i| f64::from(i / 6) * 0.02).collect();
        let found = estimate(&d);
        assert_eq!(found.method, Method::MovingBlockBootstrap);
        let alternating: Vec<f64> = (0..12).map(|i| f64::from(i % 2) * 0.02).collect();
        let plain = estimate(&alternating);
        assert_eq!(plain.method, Method::Bootstrap);
        let width = |of: RatioEstimate| of.ci95.expect("twelve blocks").half_width_log();
        assert!(width(found) > 1.2 * width(plain));
    }

    #[test]
    fn sets_are_judged_by_students_interval_however_many_there_are() {
        let d: Vec<f64> = (0..20).map(|i| 0.01 + 0.002 * f64::from(i / 10)).collect();
        let found = RatioEstimate::over_sets(&alike(&d)).expect("twenty sets");
        assert_eq!(found.method, Method::Sets);
        let half = found.ci95.expect("twenty sets").half_width_log();
        close(half, 2.093_024_05 * found.sd_log.expect("a deviation") / 20.0_f64.sqrt());
        assert_eq!(RatioEstimate::over_sets(&[]), None);
        assert_eq!(RatioEstimate::over_sets(&alike(&[0.0, f64::NAN])), None);
    }
}
