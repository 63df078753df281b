//! Two records side by side: did something get slower?
//!
//! Rates of two runs on different days differ by more than any change of code, so what is
//! compared is each arm's ratio to the baseline of its own run. The change of that ratio has an
//! interval of its own, whose half-width is that of both runs' intervals in quadrature, on a
//! logarithmic scale: their errors are independent, so two intervals may touch and the change be
//! certain. A row has changed when all of that interval lies beyond the wider band of no difference
//! of the two runs, and is the same when all of it lies within.

use std::fmt;

use serde::Serialize;

use crate::record::{Record, ResultRow, Verdict};

/// Why two records can't be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// They come from different machines.
    #[error("different machines: {what} was \"{a}\" and is \"{b}\"; compare them with --across")]
    Machines {
        /// The fact that differs.
        what: String,
        /// In the first record.
        a: String,
        /// In the second.
        b: String,
    },
    /// They come from different jobs.
    #[error("different jobs: \"{a}\" and \"{b}\"; compare them with --across")]
    Jobs {
        /// Name of the first.
        a: String,
        /// Name of the second.
        b: String,
    },
    /// No arm at no point is in both.
    #[error("nothing to compare: no experiment, point and arm is in both")]
    NothingInCommon,
}

/// How a row changed from the first record to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Its ratio to the baseline fell, or rose where it is one of costs, beyond noise.
    Worse,
    /// Its ratio moved the other way, beyond noise.
    Better,
    /// The interval of the change lies within the band of no difference.
    Same,
    /// That interval reaches over an edge of the band: too wide to tell.
    Unclear,
    /// It was measured in the first record, but failed or was not run in the second.
    Missing,
}

/// One row of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// The experiment.
    pub experiment: String,
    /// The point.
    pub point: String,
    /// The arm.
    pub arm: String,
    /// The baseline, the same in both.
    pub baseline: String,
    /// Ratio to the baseline and its interval in the first record.
    pub before: [f64; 3],
    /// The same in the second, where it was measured.
    pub after: Option<[f64; 3]>,
    /// A change that is smaller than this share is called none: the wider of the two runs' own
    /// bands, which are as wide as their noise.
    pub no_difference: f64,
    /// The judgement.
    pub change: Change,
}

impl Compared {
    /// The judgement, with the band where it is the band that decides.
    fn words(&self) -> String {
        let percent = (self.no_difference * 100.0).ceil();
        match self.change {
            Change::Same => format!("same (within {percent:.0} %)"),
            change => change.to_string(),
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
            Self::Missing => "missing",
        })
    }
}

/// Facts that must agree for rates to be comparable.
const MACHINE_FACTS: [&str; 5] = ["kernel", "architecture", "CPU", "CPUs online", "mitigations"];

/// Compares every row that both records have.
///
/// # Errors
/// [`CompareError`]; the first two can be waived by `is_across`.
pub fn compare(a: &Record, b: &Record, is_across: bool) -> Result<Vec<Compared>, CompareError> {
    if !is_across {
        same_machine(a, b)?;
        if a.job.name != b.job.name {
            let (a, b) = (a.job.name.clone(), b.job.name.clone());
            return Err(CompareError::Jobs { a, b });
        }
    }
    let rows: Vec<Compared> = a
        .results
        .iter()
        .filter(|row| !matches!(row.verdict, Verdict::Baseline | Verdict::NoiseFloor))
        .filter_map(|before| {
            let is_same = |row: &&ResultRow| {
                row.experiment == before.experiment
                    && row.point == before.point
                    && row.arm == before.arm
                    && row.baseline == before.baseline
            };
            compared(before, b.results.iter().find(is_same))
        })
        .collect();
    let has_common = rows.iter().any(|row| row.after.is_some());
    if has_common || !is_across && !rows.is_empty() {
        Ok(rows)
    } else {
        Err(CompareError::NothingInCommon)
    }
}

/// The rows for a terminal.
#[must_use]
pub fn table(rows: &[Compared]) -> String {
    let estimate = |[ratio, low, high]: [f64; 3]| format!("{ratio:.2} [{low:.2}, {high:.2}]");
    let mut text = format!(
        "{:<34} {:<16} {:<22} {:<22} {}\n",
        "experiment, point", "arm", "before", "after", "change"
    );
    for row in rows {
        let place = format!("{}, {}", row.experiment, row.point);
        let before = estimate(row.before);
        let after = row.after.map_or("not measured".to_owned(), estimate);
        text += &format!("{place:<34} {:<16} {before:<22} {after:<22} {}\n", row.arm, row.words());
    }
    text += "ratios to each run's own baseline, with 95 % intervals; \"same\" names the band of no \
             difference,\nwhich is as wide as the noise of the two runs: a smaller change is not seen\n";
    text
}

fn same_machine(a: &Record, b: &Record) -> Result<(), CompareError> {
    let fact = |record: &Record, name: &str| {
        let found = record.environment.iter().find(|fact| fact.name == name);
        found.and_then(|fact| fact.reading.value().cloned()).unwrap_or_else(|| "n/a".to_owned())
    };
    for what in MACHINE_FACTS {
        let (a, b) = (fact(a, what), fact(b, what));
        if a != b {
            return Err(CompareError::Machines { what: what.to_owned(), a, b });
        }
    }
    Ok(())
}

fn compared(before: &ResultRow, after: Option<&ResultRow>) -> Option<Compared> {
    let estimate = |row: &ResultRow| Some([row.ratio?, row.ci_low?, row.ci_high?]);
    let first = estimate(before)?;
    let second = after.and_then(estimate);
    let delta = after.map_or(0.0, |after| after.no_difference).max(before.no_difference);
    Some(Compared {
        experiment: before.experiment.clone(),
        point: before.point.clone(),
        arm: before.arm.clone(),
        baseline: before.baseline.clone(),
        before: first,
        after: second,
        no_difference: delta,
        change: second.map_or(Change::Missing, |second| match before.more_is_better {
            true => change(first, second, delta),
            false => change(first.map(f64::recip), second.map(f64::recip), delta),
        }),
    })
}

/// The ratio of the two ratios, with an interval from the two half-widths in quadrature. More is
/// better here; ratios of costs come in turned over.
fn change(before: [f64; 3], after: [f64; 3], delta: f64) -> Change {
    let centre = (after[0] / before[0]).ln();
    let half = |estimate: [f64; 3]| (estimate[2] / estimate[1]).ln().abs() / 2.0;
    let reach = half(before).hypot(half(after));
    let band = delta.ln_1p();
    match (centre - reach, centre + reach) {
        (_, high) if high < -band => Change::Worse,
        (low, _) if low > band => Change::Better,
        (low, high) if low >= -band && high <= band => Change::Same,
        _ => Change::Unclear,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fall_beyond_both_intervals_and_the_band_is_worse() {
        let worse = change([1.10, 1.09, 1.11], [1.00, 0.99, 1.01], 0.03);
        assert_eq!(worse, Change::Worse);
        let better = change([1.00, 0.99, 1.01], [1.10, 1.09, 1.11], 0.03);
        assert_eq!(better, Change::Better);
    }

    #[test]
    fn narrow_and_close_is_the_same_but_wide_is_unclear() {
        assert_eq!(change([1.10, 1.09, 1.11], [1.10, 1.09, 1.11], 0.03), Change::Same);
        assert_eq!(change([1.10, 0.90, 1.30], [1.10, 0.90, 1.30], 0.03), Change::Unclear);
    }

    #[test]
    fn intervals_that_touch_may_be_a_change_and_those_apart_none() {
        // Half-widths of 3 % each make 4.2 % of the change, not 6 %.
        let (before, after) = ([1.000, 0.970, 1.031], [0.944, 0.916, 0.973]);
        assert!(after[2] > before[1], "they touch");
        assert_eq!(change(before, after, 0.01), Change::Worse);
        let (before, after) = ([1.00, 0.99, 1.01], [0.96, 0.95, 0.97]);
        assert!(after[2] < before[1], "they lie apart");
        assert_eq!(change(before, after, 0.03), Change::Unclear, "but may be within the band");
    }

    #[test]
    fn a_row_that_is_the_same_says_within_which_band() {
        let row = ResultRow {
            ratio: Some(1.0),
            ci_low: Some(0.99),
            ci_high: Some(1.01),
            no_difference: 0.64,
            ..crate::judge::row_for_tests("uring", Verdict::Inconclusive)
        };
        let same = compared(&row, Some(&row)).expect("both were measured");
        let shown = table(&[same]);
        assert!(shown.contains("same (within 64 %)\n"), "{shown}");
        assert!(shown.contains("as wide as the noise of the two runs"), "{shown}");
    }

    #[test]
    fn a_cost_that_fell_is_better() {
        let row = |ratio: f64| ResultRow {
            ratio: Some(ratio),
            ci_low: Some(ratio * 0.99),
            ci_high: Some(ratio * 1.01),
            more_is_better: false,
            ..crate::judge::row_for_tests("uring", Verdict::Faster)
        };
        let fell = compared(&row(1.0), Some(&row(0.8))).expect("both were measured");
        assert_eq!(fell.change, Change::Better);
        let rose = compared(&row(1.0), Some(&row(1.2))).expect("both were measured");
        assert_eq!(rose.change, Change::Worse);
    }

    #[test]
    fn empty_records_have_nothing_in_common_and_other_jobs_are_refused() {
        let (a, mut b) = (Record::empty(), Record::empty());
        assert_eq!(compare(&a, &b, false), Err(CompareError::NothingInCommon));
        b.job.name = "other".into();
        assert!(matches!(compare(&a, &b, false), Err(CompareError::Jobs { .. })));
    }
}
