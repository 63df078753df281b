//! The ratio of an arm to its baseline: of one set in which both took turns ([`set_ratio`]), and over sets or paired
//! blocks with confidence intervals ([`RatioEstimate`]).
//!
//! A *set* is one fresh start of all arms of a point; within it the arms take turns, every arm once in each *round*.
//! Rounds are not samples of their own: what a start decides (addresses, placement) is the same in all rounds of a
//! set, so the interval is one over sets. Called by the runner after each set and block, and by the judge. It
//! must never see single events, only one value per run or round. It drops no block: which sets are long enough to
//! count is for its callers to say.

use super::confidence::{Interval, Method, Resampling, intervals};
use super::summary::{mean, median, standard_deviation, weighted};

/// From this many blocks on the bootstrap has enough distinct resamples to beat Student's t.
const BOOTSTRAP_BLOCKS_MIN: usize = 10;
/// Above this lag-1 autocorrelation neighbouring blocks cannot pass for independent.
const AUTOCORRELATION_MAX: f64 = 0.3;

/// Of so many starts the highest and the lowest one count no more than the next.
const STARTS_TRIMMED: usize = 8;

/// Share of a set's rounds that is trimmed at each end: rounds that an interrupt or a neighbour hit.
/// On shared machines they are many: with a tenth instead, the same interval takes half as many rounds
/// again.
const TRIMMED_SHARE: f64 = 0.25;
/// How far fresh processes of one program lie apart at least, as a deviation of log ratios: so much is
/// taken for granted where one set can't tell.
pub(super) const BETWEEN_SETS: f64 = 0.003;

/// What one set says of an arm: the figures of `record::Turns`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SetRatio {
    /// Trimmed mean over the rounds of ln(arm / baseline), formed within each round.
    pub log_ratio: f64,
    /// Deviation of a round: over the root of the rounds it is the standard error of `log_ratio`
    /// within this set. None below three rounds.
    pub round_sd: Option<f64>,
    /// Rounds in which both had a figure.
    pub rounds: u32,
}

impl SetRatio {
    /// The mean of the ratios of one arm to two copies of the baseline. The arm's own part of the
    /// deviation is in both, those of the copies are not: of twice a variance one and a half are left.
    #[must_use]
    pub fn mean(self, other: Self) -> Self {
        let sd = self.round_sd.zip(other.round_sd);
        Self {
            log_ratio: f64::midpoint(self.log_ratio, other.log_ratio),
            round_sd: sd.map(|(one, two)| f64::midpoint(one, two) * 0.75_f64.sqrt()),
            rounds: self.rounds.min(other.rounds),
        }
    }
}

/// The ratio of one set from the costs of arm and baseline, round by round.
///
/// A round without a figure is one whose value is not a finite number above 0, or that only one of the
/// slices has; it is left out. None without any round. The deviation is the winsorised one over the
/// share that is kept (Tukey & McLaughlin 1963; Yuen 1974), which a few wild rounds leave alone.
#[must_use]
pub fn set_ratio(arm: &[f64], baseline: &[f64]) -> Option<SetRatio> {
    let has_figure = |value: f64| value.is_finite() && value > 0.0;
    let mut logs: Vec<f64> = arm
        .iter()
        .zip(baseline)
        .filter(|(above, below)| has_figure(**above) && has_figure(**below))
        .map(|(above, below)| above.ln() - below.ln())
        .collect();
    logs.sort_unstable_by(f64::total_cmp);
    let rounds = logs.len();
    let cut = (rounds as f64 * TRIMMED_SHARE) as usize;
    let Trimmed { kept, mean, winsorised_sd } = Trimmed::of(&logs, cut)?;
    let share_kept = kept.len() as f64 / rounds as f64;
    let round_sd = winsorised_sd.filter(|_| rounds > 2).map(|sd| sd / share_kept);
    Some(SetRatio { log_ratio: mean, round_sd, rounds: rounds as u32 })
}

/// Sorted values without the outermost ones.
struct Trimmed<'a> {
    kept: &'a [f64],
    mean: f64,
    /// Deviation of all of them, of which each that was left out counts as the next one that was kept.
    winsorised_sd: Option<f64>,
}

impl<'a> Trimmed<'a> {
    /// None where `cut` at each end leaves nothing.
    fn of(sorted: &'a [f64], cut: usize) -> Option<Self> {
        let kept = sorted.get(cut..sorted.len().checked_sub(cut)?)?;
        let first = *kept.first()?;
        let last = *kept.last()?;
        let winsorised: Vec<f64> = sorted.iter().map(|value| value.clamp(first, last)).collect();
        Some(Self { kept, mean: mean(kept)?, winsorised_sd: standard_deviation(&winsorised) })
    }
}

/// The two levels of variance behind the ratios of sets, as standard deviations of log ratios.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Levels {
    /// What a fresh start changes; 0 where the rounds alone explain that the sets differ.
    pub between_sets: f64,
    /// What differs from round to round; over the root of a set's rounds it is what they add to the
    /// deviation of the set.
    pub within_set: f64,
}

impl Levels {
    /// The levels of two sets or more whose rounds have a deviation.
    #[must_use]
    pub fn of(sets: &[SetRatio]) -> Option<Self> {
        let logs: Vec<f64> = sets.iter().map(|set| set.log_ratio).collect();
        let all = standard_deviation(&logs)?.powi(2);
        let rounds: Vec<(f64, f64)> = sets
            .iter()
            .filter_map(|set| Some((set.round_sd?.powi(2), f64::from(set.rounds))))
            .collect();
        let within = mean(&rounds.iter().map(|(square, _)| *square).collect::<Vec<_>>())?;
        let explained =
            mean(&rounds.iter().map(|(square, rounds)| square / rounds).collect::<Vec<_>>())?;
        let between_sets = (all - explained).max(0.0).sqrt();
        Some(Self { between_sets, within_set: within.sqrt() })
    }
}

/// How much each set counts in a mean over sets, 1 on average: a set of more rounds is known more closely,
/// unless fresh starts differ by more than rounds do.
pub(super) fn weights(sets: &[SetRatio]) -> Vec<f64> {
    let levels = Levels::of(sets).unwrap_or(Levels { between_sets: 0.0, within_set: 0.0 });
    let start = levels.between_sets.max(BETWEEN_SETS).powi(2);
    let each =
        |set: &SetRatio| (start + levels.within_set.powi(2) / f64::from(set.rounds.max(1))).recip();
    let weights: Vec<f64> = sets.iter().map(each).collect();
    let average = mean(&weights).unwrap_or(1.0);
    weights.into_iter().map(|weight| weight / average).collect()
}

/// Sets alike but for their ratios.
#[cfg(test)]
pub(super) fn alike(log_ratios: &[f64]) -> Vec<SetRatio> {
    let set =
        |log_ratio: &f64| SetRatio { log_ratio: *log_ratio, round_sd: Some(0.02), rounds: 12 };
    log_ratios.iter().map(set).collect()
}

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
    /// How many of them the mean leaves out, half at each end.
    pub left_out: usize,
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

    /// Estimates from sets of which each had a start of programs that differ from start to start, now and then by a
    /// quarter, as one that compiles itself does: what most starts have in common. Of eight starts and more the
    /// outermost at each end, one of so many, are left out of the mean, and its interval is that of a trimmed mean over a
    /// winsorised deviation (Yuen 1974). Of fewer it is as [`RatioEstimate::over_sets`].
    #[must_use]
    pub fn over_starts(sets: &[SetRatio]) -> Option<Self> {
        let cut = sets.len() / STARTS_TRIMMED;
        let all = Self::over_sets(sets).filter(|_| cut > 0);
        let Some(all) = all else { return Self::over_sets(sets) };
        let mut logs: Vec<f64> = sets.iter().map(|set| set.log_ratio).collect();
        logs.sort_unstable_by(f64::total_cmp);
        let Trimmed { kept, mean: centre, winsorised_sd } = Trimmed::of(&logs, cut)?;
        // So that it says of the kept ones what it says of a mean: its root of their number is the standard error.
        let sd = winsorised_sd? * (logs.len() as f64 / kept.len() as f64).sqrt();
        let (ci95, ci90) = intervals(kept, centre, sd, Method::Sets, Resampling::default());
        let left_out = logs.len() - kept.len();
        let ci95 = Some(ci95);
        let ci90 = Some(ci90);
        let sd_log = Some(sd);
        Some(Self { ratio: centre.exp(), ci95, ci90, sd_log, left_out, ..all })
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
            left_out: 0,
            sd_log,
            method,
            autocorrelation_lag1,
        }
    }
}

/// The logarithm of one sum over another, and its standard error by the jackknife: from the sums that lack one pair each
/// (Efron & Stein 1981). None of fewer than three pairs, or where a sum is not above 0.
#[must_use]
pub fn ratio_of_sums(pairs: &[(f64, f64)]) -> Option<(f64, f64)> {
    let n = pairs.len();
    if n < 3 {
        return None;
    }
    let above: f64 = pairs.iter().map(|(above, _)| above).sum();
    let below: f64 = pairs.iter().map(|(_, below)| below).sum();
    let log = |above: f64, below: f64| {
        let ratio = above / below;
        (ratio.is_finite() && ratio > 0.0).then(|| ratio.ln())
    };
    let without: Vec<f64> =
        pairs.iter().map(|(a, b)| log(above - a, below - b)).collect::<Option<_>>()?;
    let center = mean(&without)?;
    let squares: f64 = without.iter().map(|value| (value - center).powi(2)).sum();
    Some((log(above, below)?, (squares * (n - 1) as f64 / n as f64).sqrt()))
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
    use super::super::random::Rng;
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

    #[test]
    fn a_start_that_stands_apart_moves_no_mean_of_eight() {
        let d = [0.021, 0.03, 0.035, 0.029, 0.265, 0.033, 0.04, 0.027, 0.031];
        let all = RatioEstimate::over_sets(&alike(&d)).expect("nine sets");
        let most = RatioEstimate::over_starts(&alike(&d)).expect("nine sets");
        let low = |estimate: &RatioEstimate| estimate.ci95.expect("an interval").lo;
        assert!(low(&all) < 1.0 && low(&most) > 1.02, "{all:?} {most:?}");
        assert_eq!((most.n, most.left_out), (9, 2));
        // 0.027, 0.029, 0.030, 0.031, 0.033, 0.035, 0.040 without the ends.
        close(most.ratio, (0.225_f64 / 7.0).exp());
        // Winsorised squares about their mean, 0.292 / 9, sum to 0.000_200_222.
        let of_mean = (0.000_200_222_f64 / 8.0).sqrt() * (9.0_f64).sqrt() / 7.0;
        let half = most.ci95.expect("an interval").half_width_log();
        assert!((half - 2.446_911_85 * of_mean).abs() < 1e-5, "{half}");
        assert_eq!(
            RatioEstimate::over_starts(&alike(&d[..7])),
            RatioEstimate::over_sets(&alike(&d[..7]))
        );
        assert_eq!(RatioEstimate::over_starts(&[]), None);
    }

    #[test]
    fn intervals_of_starts_hold_the_truth_as_often_as_they_say() {
        let mut rng = Rng::seeded(14);
        for (n, apart) in [(8, 0.0), (12, 0.0), (12, 0.03), (17, 0.03)] {
            let mut held = 0;
            for _ in 0..4_000 {
                let start = |rng: &mut Rng| {
                    let dear = if (rng.below(1_000) as f64) < apart * 1_000.0 { 0.2 } else { 0.0 };
                    0.01 * rng.normal() + dear
                };
                let d: Vec<f64> = (0..n).map(|_| start(&mut rng) - start(&mut rng)).collect();
                let found = RatioEstimate::over_starts(&alike(&d)).expect("starts");
                let ci95 = found.ci95.expect("an interval");
                held += u32::from(ci95.lo <= 1.0 && ci95.hi >= 1.0);
            }
            assert!(held >= 3_760, "{n} starts, {apart} apart: {held} of 4000");
        }
    }

    /// Sets whose logs lie `spread` above and below `centre` in turn.
    fn sets(count: usize, centre: f64, spread: f64, round_sd: f64, rounds: u32) -> Vec<SetRatio> {
        let log = |i: usize| centre + spread * (i % 2 * 2) as f64 - spread;
        (0..count)
            .map(|i| SetRatio { log_ratio: log(i), round_sd: Some(round_sd), rounds })
            .collect()
    }

    #[test]
    fn the_ratio_of_sums_has_the_error_of_its_pairs() {
        assert_eq!(ratio_of_sums(&[(2.0, 1.0), (4.0, 2.0)]), None);
        assert_eq!(ratio_of_sums(&[(1.0, 0.0); 3]), None);
        let (log, error) = ratio_of_sums(&[(2.0, 1.0), (4.0, 2.0), (6.0, 3.0)]).expect("three");
        assert!((log - 2.0_f64.ln()).abs() < 1e-12 && error < 1e-12, "{log} {error}");
        // Of equal weights it is the standard error of a mean: deviation 0.1 over the root of 25, beside a mean of 1.
        let pairs: Vec<(f64, f64)> =
            (0..25).map(|at| (1.0 + 0.1 * f64::from(at % 5 - 2) / 2.0_f64.sqrt(), 1.0)).collect();
        let (log, error) = ratio_of_sums(&pairs).expect("many");
        assert!(log.abs() < 1e-12 && (error - 0.0204).abs() < 0.001, "{log} {error}");
    }

    #[test]
    fn the_ratio_of_a_set_is_the_trimmed_mean_of_its_rounds() {
        // Ten rounds: two are cut at each end, those between are 0.02 to 0.07.
        let logs = [-9.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 5.0];
        let baseline = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0, 3.0];
        let arm: Vec<f64> =
            logs.iter().zip(baseline).map(|(log, cost): (&f64, f64)| cost * log.exp()).collect();
        let set = set_ratio(&arm, &baseline).expect("ten rounds");
        close(set.log_ratio, 0.045);
        assert_eq!(set.rounds, 10);
        // Winsorised: three times 0.02, 0.03 .. 0.06, three times 0.07; squares about 0.045 sum to
        // 0.00425; over 9, root, over the share of six in ten.
        close(set.round_sd.expect("a deviation"), (0.00425_f64 / 9.0).sqrt() / 0.6);
    }

    #[test]
    fn two_copies_of_the_baseline_narrow_a_ratio_and_shift_none() {
        let mut rng = Rng::seeded(12);
        // Skewed, as costs are: now and then a turn takes half as long again.
        let mut costs = || -> Vec<f64> {
            let mut cost = || if rng.below(3) == 0 { 1.0 + 0.5 * rng.normal().abs() } else { 1.0 };
            (0..40).map(|_| cost()).collect()
        };
        let sets: Vec<[f64; 2]> = (0..2_000)
            .map(|_| {
                let arm = costs();
                let one = costs();
                let two = costs();
                let ratio = |baseline: &[f64]| set_ratio(&arm, baseline).expect("forty rounds");
                [ratio(&one).log_ratio, ratio(&one).mean(ratio(&two)).log_ratio]
            })
            .collect();
        let of = |index: usize| -> Vec<f64> { sets.iter().map(|set| set[index]).collect() };
        let [one, both] = [0, 1].map(|index| standard_deviation(&of(index)).expect("many sets"));
        assert!(both < one * 0.95, "{both} is not below {one}");
        let shift = mean(&of(1)).expect("many sets");
        assert!(shift.abs() < 4.0 * both / 2_000.0_f64.sqrt(), "{shift} with {both}");
    }

    #[test]
    fn rounds_that_one_of_both_missed_are_left_out() {
        let arm = [2.0, f64::NAN, 2.0, 0.0, 2.0, f64::INFINITY, 2.0, 7.0];
        let baseline = [1.0, 1.0, -1.0, 1.0, 1.0, 1.0, 1.0];
        let set = set_ratio(&arm, &baseline).expect("three rounds");
        assert_eq!((set.rounds, set.round_sd), (3, Some(0.0)));
        close(set.log_ratio, 2.0_f64.ln());
        assert_eq!(set_ratio(&[f64::NAN], &[1.0]), None);
        assert_eq!(set_ratio(&[], &[1.0]), None);
        assert_eq!(set_ratio(&[1.0, 1.0], &[1.0, 1.0]).expect("two").round_sd, None);
    }

    #[test]
    fn the_deviation_of_a_round_tells_the_error_of_the_set() {
        let mut rng = Rng::seeded(11);
        let sets: Vec<SetRatio> = (0..400)
            .map(|_| {
                // One round in ten is three times as wild.
                let mut cost = || {
                    let wild = if rng.below(10) == 0 { 3.0 } else { 1.0 };
                    (0.1 * wild * rng.normal()).exp()
                };
                let (arm, baseline): (Vec<f64>, Vec<f64>) =
                    (0..50).map(|_| (cost(), cost())).unzip();
                set_ratio(&arm, &baseline).expect("fifty rounds")
            })
            .collect();
        let logs: Vec<f64> = sets.iter().map(|set| set.log_ratio).collect();
        let error = standard_deviation(&logs).expect("many sets");
        let estimates: Vec<f64> = sets.iter().filter_map(|set| set.round_sd).collect();
        let estimate = mean(&estimates).expect("many sets") / 50.0_f64.sqrt();
        assert!((0.9..1.1).contains(&(estimate / error)), "{estimate} is estimated for {error}");
    }

    #[test]
    fn sets_weigh_by_their_rounds_unless_starts_differ_by_more() {
        let set = |log_ratio, rounds| SetRatio { log_ratio, round_sd: Some(0.04), rounds };
        let share = |far: f64| {
            let logs = [far, -far, far, -far];
            let sets: Vec<SetRatio> = logs
                .into_iter()
                .zip([10, 10, 40, 40])
                .map(|(log, rounds)| set(log, rounds))
                .collect();
            let weights = weights(&sets);
            close(weights.iter().sum(), 4.0);
            weights[2] / weights[0]
        };
        assert!((3.4..4.0).contains(&share(0.0)), "{}", share(0.0));
        assert!((1.0..1.1).contains(&share(0.1)), "{}", share(0.1));
        close(weights(&[set(0.01, 8)])[0], 1.0);
    }

    #[test]
    fn the_variance_is_split_between_and_within_sets() {
        let levels = Levels::of(&sets(10, 0.0, 0.01, 0.05, 100)).expect("ten sets");
        close(levels.within_set, 0.05);
        close(
            levels.between_sets,
            (0.01_f64.powi(2) * 10.0 / 9.0 - 0.05_f64.powi(2) / 100.0).sqrt(),
        );
        let alike = Levels::of(&sets(10, 0.0, 0.001, 0.05, 100)).expect("ten sets");
        assert_eq!(alike.between_sets, 0.0);
        assert_eq!(Levels::of(&sets(1, 0.0, 0.01, 0.05, 100)), None);
    }
}
