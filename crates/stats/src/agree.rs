//! Whether two series go the same way: direction by their ends, shape by their steps and ranks.
//!
//! Absolute figures of two machines twenty years apart say nothing of each other; what can be
//! repeated is which way a curve goes and how steeply. Changes below the tolerance are none.

use std::fmt;

use serde::Deserialize;

/// A change of less than this is none, whatever the noise: layout alone moves programs by percents.
const TOLERANCE_MIN: f64 = 0.05;
/// On a machine that is noisier than this, what stays within the noise is not called the same.
const TOLERANCE_MAX: f64 = 0.25;
/// Part of the steps that must go the same way.
const STEPS_MIN: f64 = 0.75;
/// Ranks that agree at least so well stand for steps that do.
const RANKS_MIN: f64 = 0.8;
/// From end to end one may change this many times as much as the other.
const ENDS_MAX: f64 = 2.0;

/// Which way a series goes from its first value to its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trend {
    Rises,
    /// Nowhere, within the tolerance.
    Stays,
    Falls,
}

impl fmt::Display for Trend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Rises => "rises",
            Self::Stays => "stays",
            Self::Falls => "falls",
        })
    }
}

/// Whether ours agrees with theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// Direction and shape do.
    Agrees,
    /// The direction does, the shape or the size does not.
    SameDirection,
    /// They go different ways.
    Differs,
    /// Fewer than two places were measured, or the machine is too noisy.
    Unknown,
}

/// An agreement with its reason in words.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// Whether they agree.
    pub agreement: Agreement,
    /// By how much each changes, and how many steps go the same way.
    pub words: String,
}

/// The tolerance on a machine whose same program twice differs by `noise`, relative.
pub fn tolerance(noise: Option<f64>) -> f64 {
    noise.unwrap_or(0.0).max(TOLERANCE_MIN)
}

/// Whether ours stays only because the machine is too noisy to show a change.
fn is_hidden_by_noise(way_here: Trend, tolerance: f64) -> bool {
    way_here == Trend::Stays && tolerance > TOLERANCE_MAX
}

/// Judges two series over the same places.
///
/// # Panics
/// If they are not equally long.
pub fn series(theirs: &[f64], ours: &[f64], tolerance: f64) -> Judgement {
    assert_eq!(theirs.len(), ours.len(), "values at the same places");
    if theirs.len() < 2 {
        return unknown("fewer than two places were measured");
    }
    if !theirs.iter().chain(ours).all(|value| value.is_finite() && *value > 0.0) {
        return unknown("a figure is not above zero, so there is no ratio");
    }
    let there = change(theirs);
    let here = change(ours);
    let way_there = way(there, TOLERANCE_MIN);
    let way_here = way(here, tolerance);
    let ends = format!(
        "there it {way_there} (×{}), here it {way_here} (×{})",
        factor(there),
        factor(here)
    );
    // Ours may hide a change of their size in its noise.
    let is_hidden = way_there != Trend::Stays
        && way_here == Trend::Stays
        && there.ln().abs() <= tolerance.ln_1p();
    if is_hidden || is_hidden_by_noise(way_here, tolerance) {
        let words = format!("{ends}; on this machine such a change is noise");
        return Judgement { agreement: Agreement::Unknown, words };
    }
    if way_there != way_here {
        return Judgement { agreement: Agreement::Differs, words: ends };
    }
    let is_as_steep = (there / here).ln().abs() <= ENDS_MAX.ln();
    let (same, all) = same_steps(theirs, ours, tolerance);
    let ranks = rank_correlation(theirs, ours).filter(|_| way_there != Trend::Stays && all > 1);
    let has_shape = same as f64 >= all as f64 * STEPS_MIN || ranks.is_some_and(|r| r >= RANKS_MIN);
    let steps = match all {
        1 => String::new(),
        _ => format!("; {same} of {all} steps go the same way"),
    };
    let ranks = ranks.map_or(String::new(), |ranks| format!(", rank correlation {ranks:.2}"));
    let agreement =
        if is_as_steep && has_shape { Agreement::Agrees } else { Agreement::SameDirection };
    Judgement { agreement, words: format!("{ends}{steps}{ranks}") }
}

/// Judges a series of which the document says in words which way it goes.
pub fn claim(said: Trend, ours: &[f64], tolerance: f64) -> Judgement {
    if ours.len() < 2 {
        return unknown("fewer than two places were measured");
    }
    if !ours.iter().all(|value| value.is_finite() && *value > 0.0) {
        return unknown("a figure is not above zero, so there is no ratio");
    }
    let here = change(ours);
    let way_here = way(here, tolerance);
    let words = format!("by its words it {said}, here it {way_here} (×{})", factor(here));
    if is_hidden_by_noise(way_here, tolerance) {
        let words = format!("{words}; on this machine such a change is noise");
        return Judgement { agreement: Agreement::Unknown, words };
    }
    // Of a curve that is said to stay, every place has to be where the first one is.
    let is_level = ours.iter().all(|value| way(value / ours[0], tolerance) == Trend::Stays);
    let agreement = if way_here != said {
        Agreement::Differs
    } else if said == Trend::Stays && !is_level {
        Agreement::SameDirection
    } else {
        Agreement::Agrees
    };
    Judgement { agreement, words }
}

fn unknown(why: &str) -> Judgement {
    Judgement { agreement: Agreement::Unknown, words: why.to_owned() }
}

fn change(values: &[f64]) -> f64 {
    values[values.len() - 1] / values[0]
}

fn way(change: f64, tolerance: f64) -> Trend {
    match change.ln() {
        log if log > tolerance.ln_1p() => Trend::Rises,
        log if log < -tolerance.ln_1p() => Trend::Falls,
        _ => Trend::Stays,
    }
}

fn factor(change: f64) -> String {
    match change {
        0.1..10.0 => format!("{change:.2}"),
        10.0.. => format!("{change:.0}"),
        _ => format!("{change:.3}"),
    }
}

/// Steps between neighbours that go the same way, and all of them.
fn same_steps(theirs: &[f64], ours: &[f64], tolerance: f64) -> (usize, usize) {
    let steps = |values: &[f64], tolerance: f64| -> Vec<Trend> {
        values.windows(2).map(|pair| way(pair[1] / pair[0], tolerance)).collect()
    };
    let there = steps(theirs, TOLERANCE_MIN);
    let here = steps(ours, tolerance);
    (there.iter().zip(&here).filter(|(a, b)| a == b).count(), there.len())
}

/// Spearman's rank correlation, ties with their mean rank; none where one does not vary.
fn rank_correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    let a = ranks(a);
    let b = ranks(b);
    let mean = (a.len() as f64 + 1.0) / 2.0;
    let product =
        |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| (x - mean) * (y - mean)).sum::<f64>();
    let spread = (product(&a, &a) * product(&b, &b)).sqrt();
    (spread > 0.0).then(|| product(&a, &b) / spread)
}

fn ranks(values: &[f64]) -> Vec<f64> {
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count();
        let equal = values.iter().filter(|other| *other == value).count();
        below as f64 + (equal as f64 + 1.0) / 2.0
    };
    values.iter().map(rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEIRS: [f64; 5] = [2266.0, 6799.0, 11_336.0, 17_517.0, 22_522.0];

    #[test]
    fn a_curve_on_a_faster_machine_agrees() {
        let judged = series(&THEIRS, &THEIRS.map(|value| value * 7.0), 0.05);
        assert_eq!(judged.agreement, Agreement::Agrees);
        assert_eq!(
            judged.words,
            "there it rises (×9.94), here it rises (×9.94); 4 of 4 steps go the same way, rank \
             correlation 1.00"
        );
    }

    #[test]
    fn a_flat_curve_beside_a_rising_one_differs_and_a_steeper_one_agrees_in_direction() {
        let flat = [5000.0, 5010.0, 4990.0, 5000.0, 5005.0];
        assert_eq!(series(&THEIRS, &flat, 0.05).agreement, Agreement::Differs);
        let slower = [2266.0, 2400.0, 2600.0, 2800.0, 3000.0];
        assert_eq!(series(&THEIRS, &slower, 0.05).agreement, Agreement::SameDirection);
        assert_eq!(
            series(&flat, &[44.0, 44.5, 43.8, 44.0, 44.1], 0.05).agreement,
            Agreement::Agrees
        );
    }

    #[test]
    fn two_places_are_a_direction_and_one_is_nothing() {
        let judged = series(&[42.0, 52.0], &[10.0, 12.0], 0.05);
        assert_eq!(judged.agreement, Agreement::Agrees);
        assert_eq!(judged.words, "there it rises (×1.24), here it rises (×1.20)");
        assert_eq!(series(&[1.0], &[1.0], 0.05).agreement, Agreement::Unknown);
        assert_eq!(claim(Trend::Stays, &[1.0, 1.02], 0.05).agreement, Agreement::Agrees);
        assert_eq!(claim(Trend::Stays, &[1.0, 0.2], 0.05).agreement, Agreement::Differs);
    }

    #[test]
    fn ranks_of_ties_are_shared_and_what_does_not_vary_has_no_correlation() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0]), [2.5, 1.0, 2.5]);
        assert_eq!(rank_correlation(&[1.0, 2.0, 3.0], &[9.0, 5.0, 1.0]), Some(-1.0));
        assert_eq!(rank_correlation(&[1.0, 1.0], &[1.0, 2.0]), None);
    }

    #[test]
    fn a_change_within_the_noise_of_this_machine_is_unknown() {
        assert_eq!(series(&[1.0, 1.1], &[1.0, 1.02], 0.2).agreement, Agreement::Unknown);
        assert_eq!(series(&[1.0, 9.0], &[1.0, 1.02], 0.2).agreement, Agreement::Differs);
        assert_eq!(series(&[1.0, 1.1], &[1.0, 1.02], 0.05).agreement, Agreement::Differs);
    }

    #[test]
    fn noise_widens_what_counts_as_staying() {
        assert_eq!((tolerance(None), tolerance(Some(0.1)), tolerance(Some(3.0))), (0.05, 0.1, 3.0));
    }

    #[test]
    fn noise_is_not_called_agreement() {
        assert_eq!(series(&[1.0, 0.98], &[1.0, 0.8], 3.0).agreement, Agreement::Unknown);
        assert_eq!(claim(Trend::Stays, &[1.0, 0.8], 3.0).agreement, Agreement::Unknown);
        assert_eq!(claim(Trend::Rises, &[1.0, 90.0], 3.0).agreement, Agreement::Agrees);
    }

    #[test]
    fn figures_that_have_no_ratio_are_not_judged() {
        for wrong in [-1.0, 0.0, f64::NAN] {
            assert_eq!(series(&[1.0, 2.0], &[wrong, 2.0], 0.1).agreement, Agreement::Unknown);
            assert_eq!(claim(Trend::Rises, &[1.0, wrong], 0.1).agreement, Agreement::Unknown);
        }
    }

    #[test]
    fn a_curve_with_a_dip_does_not_stay() {
        assert_eq!(claim(Trend::Stays, &[1.0, 0.2, 1.0], 0.1).agreement, Agreement::SameDirection);
        assert_eq!(claim(Trend::Stays, &[1.0, 1.02, 1.0], 0.1).agreement, Agreement::Agrees);
    }
}
