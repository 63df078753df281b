//! Whole simulated experiments: does the recipe as a whole keep its promises?
//!
//! Test code only. Each experiment goes through the same steps as the laboratory: a baseline, its A/A
//! copy and one arm per block, the default stopping rule on both comparisons, a noise level from the A/A
//! arm, the default least effect, and the default interval method (with fewer resamples, for speed).

use super::confidence::Resampling;
use super::ratio::RatioEstimate;
use super::rng::Rng;
use super::stopping::StoppingRule;
use super::verdict::{Direction, Verdict, decision_delta, noise_level};

const EXPERIMENTS: usize = 1_000;
const MIN_EFFECT: f64 = 0.03;
/// Relative noise of one run; a ratio of two runs carries 2.8 %.
const NOISE: f64 = 0.02;
const RESAMPLING: Resampling = Resampling { resamples: 200, seed: 1 };

/// The verdict of one experiment whose arm is truly `true_ratio` times the baseline.
fn experiment(true_ratio: f64, rng: &mut Rng) -> Verdict {
    let rule = StoppingRule::default();
    let (mut baseline, mut copy, mut arm) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let mut run = |ratio: f64| 1e6 * ratio * (NOISE * rng.normal()).exp();
        baseline.push(run(1.0));
        copy.push(run(1.0));
        arm.push(run(true_ratio));
        // The rule asks for both comparisons; when the first is too wide, the second need not be computed.
        let is_wide =
            |estimates: &[RatioEstimate]| rule.needs_more_blocks(baseline.len(), estimates);
        let estimate = |values: &[f64]| {
            RatioEstimate::from_pairs(values, &baseline, RESAMPLING).expect("good blocks")
        };
        if is_wide(&[]) {
            continue;
        }
        let same = estimate(&copy);
        if is_wide(&[same]) {
            continue;
        }
        let other = estimate(&arm);
        if !is_wide(&[other]) {
            let delta = decision_delta(MIN_EFFECT, noise_level(&same));
            return Verdict::of(&other, delta, Direction::HigherIsBetter);
        }
    }
}

/// How many of the experiments at this true ratio end in a verdict that `is_counted`.
fn verdicts(true_ratio: f64, is_counted: fn(Verdict) -> bool) -> usize {
    let mut rng = Rng::seeded(2_006);
    (0..EXPERIMENTS).filter(|_| is_counted(experiment(true_ratio, &mut rng))).count()
}

#[test]
fn identical_systems_are_hardly_ever_called_different() {
    let different = verdicts(1.0, Verdict::is_difference);
    assert!(different < EXPERIMENTS / 20, "{different} of {EXPERIMENTS}");
}

#[test]
fn an_effect_of_eight_percent_is_found() {
    let faster = verdicts(1.08, |verdict| verdict == Verdict::Faster);
    assert!(faster > EXPERIMENTS * 95 / 100, "{faster} of {EXPERIMENTS}");
}

#[test]
fn an_effect_of_five_percent_is_not_called_equivalent() {
    let equivalent = verdicts(1.05, |verdict| verdict == Verdict::Equivalent);
    assert!(equivalent < EXPERIMENTS / 100, "{equivalent} of {EXPERIMENTS}");
}
