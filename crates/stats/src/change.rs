//! What became of a figure from one result to another: worse, better, the same, or not known.
//!
//! Called by the comparisons of `pollux load` and `pollux lab`, which form the change and its interval each in its own way.
//! An interval that knows how the parts of one run differ does not know how two runs do, between which the machine has
//! changed: so a change counts from a band on.

use std::fmt;

use serde::Serialize;

/// How far two runs of one build may lie apart by more than their intervals say, on a machine that is shared.
pub const BETWEEN_RUNS: f64 = 0.05;

/// What became of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It got worse, beyond noise.
    Worse,
    /// It got better, beyond noise.
    Better,
    /// The interval of the change lies within the least effect.
    Same,
    /// Neither: too wide to tell, or too near to the noise.
    Unclear,
    /// There is no interval: too few seconds, or too few answers for this quantile.
    Open,
    /// It was measured before, but failed or was not measured after.
    Missing,
}

impl Change {
    /// Judges a change of `better` with its interval of ± `reach`, and of ± `corrected` for looking at many rows: beyond
    /// `band` it counts, within `least` it does not matter. All of them are logarithms, and more is better.
    #[must_use]
    pub fn judged(better: f64, reach: f64, corrected: f64, band: f64, least: f64) -> Self {
        if better - reach >= -least && better + reach <= least {
            Self::Same
        } else if better + corrected < -band {
            Self::Worse
        } else if better - corrected > band {
            Self::Better
        } else {
            Self::Unclear
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Worse => "worse",
            Self::Better => "better",
            Self::Same => "same",
            Self::Unclear => "unclear",
            Self::Open => "n/a",
            Self::Missing => "missing",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_beyond_the_band_and_is_the_same_within_the_least_effect() {
        let judged = |better, reach| Change::judged(better, reach, reach * 1.5, 0.05, 0.02);
        for (better, reach, expected) in [
            (-0.2, 0.05, Change::Worse),
            (0.2, 0.05, Change::Better),
            // The corrected interval touches the band.
            (-0.2, 0.11, Change::Unclear),
            (0.005, 0.01, Change::Same),
            (0.015, 0.01, Change::Unclear),
            (0.0, 0.021, Change::Unclear),
        ] {
            assert_eq!(judged(better, reach), expected, "{better} {reach}");
        }
        // Without a band what is certain counts, and what is certainly small does not.
        assert_eq!(Change::judged(0.01, 0.001, 0.002, 0.0, 0.02), Change::Same);
        assert_eq!(Change::judged(0.03, 0.001, 0.002, 0.0, 0.02), Change::Better);
    }
}
