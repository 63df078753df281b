//! Two records side by side: did something get slower?
//!
//! Rates of two runs on different days differ by more than any change of code, so what is
//! compared is each arm's ratio to the baseline of its own run. The change of that ratio has an
//! interval of its own, whose half-width is that of both runs' intervals in quadrature, on a
//! logarithmic scale: their errors are independent, so two intervals may touch and the change be
//! certain. That interval knows how sets of one run differ, and not how two runs do, between which the
//! machine has changed. So a row has changed when the interval, corrected for all rows (Bonferroni), lies
//! beyond [`BETWEEN_RUNS`] or the wider band of no difference of the two runs, whichever is more; it is
//! the same when its 95 % interval lies within the minimum effect: noise makes nothing the same.
//!
//! A gate that finds nothing says how many rows could have shown something.

use pollux_report::number::{change_in_words, effect_in_words};
use pollux_report::terminal::Page;
use pollux_report::{Cell, Table, Tone};
use pollux_stats::student_t_quantile;
pub use pollux_stats::{BETWEEN_RUNS, Change};
use serde::Serialize;

use crate::record::{Record, ResultRow, Verdict};

/// The change for which a gate counts the rows that could have shown it.
const GATE_EFFECT: f64 = 0.1;

/// Facts that must agree for rates to be comparable.
const MACHINE_FACTS: [&str; 5] = ["kernel", "architecture", "CPU", "CPUs online", "mitigations"];

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
    /// Both have the rows, and no row of both has an interval.
    #[error(
        "nothing to compare: no row has an interval in both, as fewer than two sets or blocks were run; give \
         more --blocks or a longer --budget"
    )]
    NoIntervals,
    /// No arm at no point is in both.
    #[error("nothing to compare: no experiment, point and arm is in both")]
    NothingInCommon,
    /// The same rows, but of another metric.
    #[error(
        "nothing to compare: the first measured {a}, the second {b}; run both with --rates, or both \
         without"
    )]
    Metrics {
        /// A metric of the first record.
        a: String,
        /// What the second has at the same place.
        b: String,
    },
}

/// One row of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    pub experiment: String,
    pub point: String,
    pub arm: String,
    /// The baseline, the same in both.
    pub baseline: String,
    /// Ratio to the baseline and its interval in the first record.
    pub before: [f64; 3],
    /// The same in the second, where it was measured.
    pub after: Option<[f64; 3]>,
    /// Second ratio over the first with the interval of the change, where both were measured.
    pub ratio: Option<[f64; 3]>,
    /// Noise of whole runs where it is more than the minimum effect, 0.1 for 1/1.1 to 1.1: only a change
    /// beyond it is one.
    pub noise: Option<f64>,
    /// The least change that the interval could have distinguished from none, 0.1 for 10 %.
    pub could_show: Option<f64>,
    pub change: Change,
}

impl Compared {
    /// The judgement, with the noise where that may be why nothing is clear.
    fn words(&self) -> String {
        match (self.change, self.noise) {
            (Change::Unclear, Some(noise)) => {
                format!("unclear (noise ± {})", effect_in_words(noise))
            }
            (change, _) => change.to_string(),
        }
    }
}

/// Compares every row that both records have.
///
/// # Errors
/// [`CompareError`]; the first two can be waived by `is_across`.
pub fn compare(a: &Record, b: &Record, is_across: bool) -> Result<Vec<Compared>, CompareError> {
    if !is_across {
        same_machine(a, b)?;
        if a.job.name != b.job.name {
            let a = a.job.name.clone();
            let b = b.job.name.clone();
            return Err(CompareError::Jobs { a, b });
        }
    }
    let min_effect = a.job.min_effect.max(b.job.min_effect);
    let mut metrics = None;
    let judged = a.results.iter().filter(|row| row.ci_low.is_some()).count();
    let rows: Vec<Compared> = a
        .results
        .iter()
        .filter(|row| !matches!(row.verdict, Verdict::Baseline | Verdict::NoiseLevel))
        .filter_map(|before| {
            let is_same =
                |row: &&ResultRow| row.key() == before.key() && row.baseline == before.baseline;
            let at_place: Vec<&ResultRow> = b.results.iter().filter(is_same).collect();
            let after = at_place.iter().copied().find(|after| after.metric == before.metric);
            if let (None, Some(other)) = (after, at_place.first()) {
                metrics = Some((before.metric.clone(), other.metric.clone()));
                return None;
            }
            compared(before, after, min_effect, judged)
        })
        .collect();
    let has_common = rows.iter().any(|row| row.after.is_some());
    if has_common || !is_across && !rows.is_empty() {
        Ok(rows)
    } else {
        Err(match metrics {
            Some((a, b)) => CompareError::Metrics { a, b },
            None if has_same_rows(a, b) => CompareError::NoIntervals,
            None => CompareError::NothingInCommon,
        })
    }
}

/// Whether a row of both could be compared if it had an interval.
fn has_same_rows(a: &Record, b: &Record) -> bool {
    let is_row = |row: &&ResultRow| !matches!(row.verdict, Verdict::Baseline | Verdict::NoiseLevel);
    let keys: Vec<_> = b.results.iter().filter(is_row).map(ResultRow::key).collect();
    a.results.iter().filter(is_row).any(|row| keys.contains(&row.key()))
}

/// The rows for a terminal.
#[must_use]
pub fn table(rows: &[Compared]) -> String {
    let estimate = |[ratio, low, high]: [f64; 3]| format!("{ratio:.3} [{low:.3}, {high:.3}]");
    let headings = ["experiment, point", "arm", "before", "after", "change", "verdict"];
    let mut table = Table::new(headings);
    for row in rows {
        let change = row.ratio.map(|[ratio, low, high]| change_in_words(ratio, low, high));
        let cells = [
            format!("{}, {}", row.experiment, row.point),
            row.arm.clone(),
            estimate(row.before),
            row.after.map_or("not measured".to_owned(), estimate),
            change.unwrap_or_default(),
            row.words(),
        ];
        table.row(cells.map(|text| Cell::text(&text)));
    }
    let mut page = Page::new(usize::MAX, false);
    page.table(&table);
    let about = format!(
        "ratios to each run's own baseline and the change between them, with 95 % intervals; worse and \
         better are corrected for all rows and lie beyond {}, as two runs of one build may be that far apart",
        effect_in_words(BETWEEN_RUNS)
    );
    page.words(&about, Tone::Plain);
    page.words(&sensitivity(rows), Tone::Plain);
    page.finish()
}

/// How many rows could have shown a change that a gate should find.
fn sensitivity(rows: &[Compared]) -> String {
    let could = |row: &&Compared| row.could_show.is_some_and(|least| least <= GATE_EFFECT);
    let could = rows.iter().filter(could).count();
    let all = rows.len();
    format!("{could} of {all} rows could have shown a change of {}", effect_in_words(GATE_EFFECT))
}

fn same_machine(a: &Record, b: &Record) -> Result<(), CompareError> {
    let fact =
        |record: &Record, name| record.fact(name).cloned().unwrap_or_else(|| "n/a".to_owned());
    for what in MACHINE_FACTS {
        let a = fact(a, what);
        let b = fact(b, what);
        if a != b {
            return Err(CompareError::Machines { what: what.to_owned(), a, b });
        }
    }
    Ok(())
}

/// One row of `rows` that are judged.
fn compared(
    before: &ResultRow,
    after: Option<&ResultRow>,
    min_effect: f64,
    rows: usize,
) -> Option<Compared> {
    let estimate = |row: &ResultRow| Some([row.ratio?, row.ci_low?, row.ci_high?]);
    let first = estimate(before)?;
    let second = after.and_then(estimate);
    let noise = after.map_or(0.0, |after| after.no_difference).max(before.no_difference);
    let band = noise.max(min_effect).max(BETWEEN_RUNS);
    // That of fewer sets: its quantile grows most with the level.
    let blocks = after.map_or(before.blocks, |after| after.blocks.min(before.blocks));
    let stricter = stricter(rows, blocks);
    let of_both = second.map(|second| Moved { stricter, ..Moved::between(first, second) });
    Some(Compared {
        experiment: before.experiment.clone(),
        point: before.point.clone(),
        arm: before.arm.clone(),
        baseline: before.baseline.clone(),
        before: first,
        after: second,
        ratio: of_both.map(|moved| moved.bounds().map(f64::exp)),
        noise: (noise > min_effect).then_some(noise),
        could_show: of_both.map(|moved| (band.ln_1p() + moved.reach * moved.stricter).exp_m1()),
        change: of_both.map_or(Change::Missing, |moved| {
            if before.more_is_better {
                moved.judged(band, min_effect)
            } else {
                Moved { centre: -moved.centre, ..moved }.judged(band, min_effect)
            }
        }),
    })
}

/// How many times wider than a 95 % interval one is that is corrected for so many rows, over `blocks` blocks
/// or sets.
fn stricter(rows: usize, blocks: u32) -> f64 {
    let df = blocks.saturating_sub(1).max(1);
    let tail = (1.0 - 0.95) / 2.0;
    student_t_quantile(1.0 - tail / rows.max(1) as f64, df) / student_t_quantile(1.0 - tail, df)
}

/// The change of a ratio from one record to the other, in logarithms.
#[derive(Clone, Copy)]
struct Moved {
    centre: f64,
    /// Half-width of its interval: the two half-widths in quadrature.
    reach: f64,
    /// As [`stricter`].
    stricter: f64,
}

impl Moved {
    fn between(before: [f64; 3], after: [f64; 3]) -> Self {
        let half = |estimate: [f64; 3]| (estimate[2] / estimate[1]).ln().abs() / 2.0;
        let centre = (after[0] / before[0]).ln();
        Self { centre, reach: half(before).hypot(half(after)), stricter: 1.0 }
    }

    /// Centre, low and high.
    fn bounds(self) -> [f64; 3] {
        [self.centre, self.centre - self.reach, self.centre + self.reach]
    }

    /// More is better here; ratios of costs come in turned over.
    fn judged(self, band: f64, min_effect: f64) -> Change {
        let corrected = self.reach * self.stricter;
        Change::judged(self.centre, self.reach, corrected, band.ln_1p(), min_effect.ln_1p())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(before: [f64; 3], after: [f64; 3], band: f64) -> Change {
        Moved::between(before, after).judged(band, band)
    }

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
        let before = [1.000, 0.970, 1.031];
        let after = [0.944, 0.916, 0.973];
        assert!(after[2] > before[1], "they touch");
        assert_eq!(change(before, after, 0.01), Change::Worse);
        let before = [1.00, 0.99, 1.01];
        let after = [0.96, 0.95, 0.97];
        assert!(after[2] < before[1], "they lie apart");
        assert_eq!(change(before, after, 0.03), Change::Unclear, "but may be within the band");
    }

    fn row(ratio: f64, half: f64) -> ResultRow {
        let row = crate::judge::row_for_tests("uring", Verdict::Faster).of_cost("CPU");
        row.with_interval([ratio, ratio / (1.0 + half), ratio * (1.0 + half)])
    }

    #[test]
    fn a_cost_that_fell_is_better() {
        let changed = |ratio| {
            compared(&row(1.0, 0.01), Some(&row(ratio, 0.01)), 0.02, 40)
                .expect("both were measured")
        };
        assert_eq!(changed(0.8).change, Change::Better);
        assert_eq!(changed(1.2).change, Change::Worse);
        assert_eq!(changed(1.0).change, Change::Same);
    }

    #[test]
    fn a_change_is_one_beyond_what_runs_of_one_build_differ_by_and_the_chance_of_many_rows() {
        let with = |ratio, half, rows| {
            let after = row(ratio, half);
            compared(&row(1.0, half), Some(&after), 0.02, rows).expect("both").change
        };
        assert_eq!(with(1.08, 0.015, 1), Change::Worse, "6 to 10 % more");
        assert_eq!(with(1.06, 0.015, 1), Change::Unclear, "4 to 8 % more: runs differ by as much");
        assert_eq!(with(1.08, 0.015, 47), Change::Unclear, "one row of 47");
        assert_eq!(with(1.12, 0.015, 47), Change::Worse);
    }

    #[test]
    fn a_large_fall_between_noisy_runs_is_unclear_and_its_size_is_reported() {
        // Two runs on a busy machine: noise of 265 %, and a ratio that fell by a quarter.
        let noisy =
            |ratio| ResultRow { no_difference: 2.65, more_is_better: true, ..row(ratio, 0.4) };
        let noisy =
            compared(&noisy(1.12), Some(&noisy(0.84)), 0.03, 2).expect("both were measured");
        assert_eq!(noisy.change, Change::Unclear);
        let narrow = compared(&row(1.0, 0.005), Some(&row(1.001, 0.005)), 0.03, 2).expect("both");
        assert_eq!(narrow.change, Change::Same);
        let text = table(&[noisy, narrow]);
        assert!(text.contains("25.0 % less [-20.7, 53.4]  unclear (noise ± 265 %)\n"), "{text}");
        assert!(text.contains("0.1 % more [-0.6, 0.8]     same\n"), "{text}");
        assert!(text.ends_with("1 of 2 rows could have shown a change of 10 %\n"), "{text}");
    }

    #[test]
    fn a_row_of_another_metric_is_not_compared_and_both_are_named() {
        let mut a = Record::empty();
        let mut b = Record::empty();
        a.results = vec![row(1.0, 0.01)];
        b.results = vec![row(0.9, 0.01).of_cost("CPU per event")];
        assert_eq!(
            compare(&a, &b, true).expect_err("other metrics").to_string(),
            "nothing to compare: the first measured CPU, the second CPU per event; run \
             both with --rates, or both without"
        );
        b.results.push(row(0.9, 0.01));
        assert_eq!(compare(&a, &b, true).expect("one row of each metric").len(), 1);
    }

    #[test]
    fn a_result_of_the_first_schema_is_read_and_compared() {
        let kept =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runs/2026-11-21-quick");
        let old = crate::store::load(&kept).expect("a kept result");
        assert_eq!(old.schema, 1);
        let rows = compare(&old, &old, false).expect("the same rows");
        assert!(rows.iter().all(|row| matches!(row.change, Change::Same | Change::Unclear)));
        // The same rows as a newer pollux writes them, whose arms took turns.
        let mut new = old.clone();
        new.schema = crate::record::SCHEMA_VERSION;
        for row in new.results.iter_mut().filter(|row| row.ratio.is_some()) {
            row.turns = crate::judge::row_in_turns(&row.arm, row.verdict).turns;
            row.no_difference = new.job.min_effect;
        }
        let text = serde_json::to_string(&new).expect("plain data");
        let new: Record = serde_json::from_str(&text).expect("what was just written");
        assert_eq!(compare(&old, &new, false).expect("the same rows").len(), rows.len());
    }

    #[test]
    fn rows_that_both_have_without_an_interval_are_said_to_lack_that() {
        let row = ResultRow { ci_low: None, ci_high: None, ..row(1.1, 0.1) };
        let one = Record { results: vec![row], ..Record::empty() };
        let refused = compare(&one, &one.clone(), false).expect_err("no interval");
        assert_eq!(refused, CompareError::NoIntervals);
        assert!(refused.to_string().contains("no row has an interval in both"), "{refused}");
    }

    #[test]
    fn empty_records_have_nothing_in_common_and_other_jobs_are_refused() {
        let a = Record::empty();
        let mut b = Record::empty();
        assert_eq!(compare(&a, &b, false), Err(CompareError::NothingInCommon));
        b.job.name = "other".into();
        assert!(matches!(compare(&a, &b, false), Err(CompareError::Jobs { .. })));
    }
}
