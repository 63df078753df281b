//! When an experiment has enough blocks.
//!
//! Called by the runner after each block. It must never look at a verdict, a p-value or on which side of
//! 1 an estimate lies: only at how many blocks there are and how wide the intervals are.

use super::ratio::RatioEstimate;

/// How many blocks to run, and how narrow the intervals shall become.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StoppingRule {
    /// Blocks that are always run.
    pub blocks_min: usize,
    /// Blocks after which the experiment ends, however wide the intervals.
    pub blocks_max: usize,
    /// Half-width of the 95 % interval to reach, 0.015 for ±1.5 %.
    pub target_half_width: f64,
}

impl Default for StoppingRule {
    /// The laboratory's defaults: 12 blocks, up to 30 while an interval is wider than ±1.5 %.
    fn default() -> Self {
        Self { blocks_min: 12, blocks_max: 30, target_half_width: 0.015 }
    }
}

impl StoppingRule {
    /// Whether another block is needed after `blocks` of them, given the estimates that matter.
    ///
    /// Pass the headline comparison *and* the A/A arm: a narrow comparison judged against a wide noise
    /// level would be decided by the noise of its yardstick. An estimate without an interval counts as
    /// too wide. The time budget is the caller's: it may always stop earlier.
    #[must_use]
    pub fn needs_more_blocks(&self, blocks: usize, estimates: &[RatioEstimate]) -> bool {
        if blocks < self.blocks_min {
            return true;
        }
        blocks < self.blocks_max && estimates.iter().any(|estimate| self.is_too_wide(estimate))
    }

    fn is_too_wide(&self, estimate: &RatioEstimate) -> bool {
        estimate.ci95.is_none_or(|ci95| ci95.half_width_log() > self.target_half_width)
    }
}

#[cfg(test)]
mod tests {
    use super::super::confidence::Resampling;
    use super::*;

    /// An estimate from blocks that lie `spread` above and below 1 in turn.
    fn spread_by(spread: f64) -> RatioEstimate {
        let arm: Vec<f64> = (0..12).map(|i| 1.0 + spread * f64::from(i % 2 * 2 - 1)).collect();
        RatioEstimate::from_pairs(&arm, &[1.0; 12], Resampling::default()).expect("good blocks")
    }

    #[test]
    fn the_least_blocks_are_always_run_and_the_most_never_exceeded() {
        let rule = StoppingRule::default();
        assert!(rule.needs_more_blocks(11, &[spread_by(0.0)]));
        assert!(!rule.needs_more_blocks(12, &[spread_by(0.0)]));
        assert!(rule.needs_more_blocks(29, &[spread_by(0.5)]));
        assert!(!rule.needs_more_blocks(30, &[spread_by(0.5)]));
    }

    #[test]
    fn one_wide_interval_is_enough_to_proceed() {
        let rule = StoppingRule::default();
        let (narrow, wide) = (spread_by(0.005), spread_by(0.1));
        assert!(!rule.needs_more_blocks(12, &[narrow, narrow]));
        assert!(rule.needs_more_blocks(12, &[narrow, wide]));
        let missing = RatioEstimate { ci95: None, ..narrow };
        assert!(rule.needs_more_blocks(12, &[narrow, missing]));
    }
}
