//! What a row of results says of itself: how wide it is, whether that is enough.

use super::{ResultRow, Verdict};
use crate::stats::Aim;

impl ResultRow {
    /// Whether all of the interval lies within the minimum effect although the arms differ; only said
    /// of arms that took turns.
    pub(crate) fn is_small_difference(&self) -> bool {
        matches!(self.verdict, Verdict::Faster | Verdict::Slower)
            && self.turns.is_some()
            && self.is_within_minimum()
    }

    /// Whether the arm is certainly worse than the baseline, and by its estimate by more than what is
    /// called no difference.
    #[must_use]
    pub fn is_regression(&self) -> bool {
        let worse = |ratio: f64| if self.more_is_better { 1.0 / ratio } else { ratio };
        self.verdict == Verdict::Slower
            && self.ratio.is_some_and(|ratio| worse(ratio) > 1.0 + self.no_difference)
    }

    /// Whether all of the interval lies within the band of no difference.
    pub(crate) fn is_within_minimum(&self) -> bool {
        let most = 1.0 + self.no_difference;
        self.ci_low.is_some_and(|low| low >= 1.0 / most)
            && self.ci_high.is_some_and(|high| high <= most)
    }

    /// About how many more sets reach `aim` where an interval of `half_width` is asked for; none where
    /// it is reached, or where nothing tells.
    #[must_use]
    pub(crate) fn sets_until(&self, aim: Aim, half_width: f64) -> Option<u32> {
        aim.sets_missing(self.blocks, self.ratio?.ln(), self.half_width()?, half_width)
    }

    /// Whether `aim` is reached; never without an interval.
    pub(crate) fn has_reached(&self, aim: Aim, half_width: f64) -> bool {
        self.half_width().is_some() && self.sets_until(aim, half_width).is_none()
    }

    /// Half-width of the 95 % interval of the ratio, relative to it; none without an interval.
    pub(crate) fn half_width(&self) -> Option<f64> {
        let (low, high) = self.ci_low.zip(self.ci_high)?;
        Some((high / low).sqrt() - 1.0)
    }
}
