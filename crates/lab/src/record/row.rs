//! What a row of results says of itself: how wide it is, whether it is decided.

use super::{ResultRow, Verdict};
use crate::stats::half_width_wanted;

impl ResultRow {
    /// Whether all of the interval lies within the minimum effect although the arms differ; only said
    /// of arms that took turns.
    #[must_use]
    pub fn is_small_difference(&self) -> bool {
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

    /// Whether its interval is as narrow as `half_width`, or as a large effect needs.
    #[must_use]
    pub fn is_narrow(&self, half_width: f64) -> bool {
        let widths = self.ratio.zip(self.half_width());
        widths.is_some_and(|(ratio, width)| width <= half_width_wanted(ratio.ln(), half_width))
    }

    /// About how many more sets make its interval so narrow, as it narrows with the root of their
    /// number; none where it is, or where nothing tells.
    #[must_use]
    pub(crate) fn sets_until_narrow(&self, half_width: f64) -> Option<u32> {
        let wanted = half_width_wanted(self.ratio?.ln(), half_width);
        let times = (self.half_width()? / wanted).powi(2);
        (times > 1.0).then(|| (f64::from(self.blocks) * (times - 1.0)).ceil() as u32)
    }

    /// Whether it is not decided, and its interval wider than asked.
    #[must_use]
    pub fn is_open(&self, half_width: f64) -> bool {
        self.verdict == Verdict::Inconclusive && !self.is_narrow(half_width)
    }

    /// Half-width of the 95 % interval of the ratio, relative to it; none without an interval.
    #[must_use]
    pub fn half_width(&self) -> Option<f64> {
        let (low, high) = self.ci_low.zip(self.ci_high)?;
        Some((high / low).sqrt() - 1.0)
    }
}
