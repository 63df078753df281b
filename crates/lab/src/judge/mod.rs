//! From raw runs to judged rows: what is faster, by how much, and whether to believe it.
//!
//! A pure function of the plan and of the runs, blocks and counts in a record. The runner calls
//! it after every block, so that a run that is stopped has its results. The statistics are in
//! `stats`; here they are applied block by block, arm by arm.

use std::collections::BTreeMap;

use crate::plan::{Arm, ArmKind, Plan, PlannedPoint, SAME_AGAIN};
use crate::record::{Outcome, Record, ResultRow, Run, Verdict};
use crate::stats::{
    self, Delta, Direction, Outlier, RatioEstimate, Resampling, Row, decision_delta, holm,
    log_ratios, median, noise_floor, tukey_flags,
};

mod answer;
mod reason;
#[cfg(test)]
mod tests;
mod trust;
mod undecided;
mod why;

pub(crate) use trust::is_noisy;

/// With fewer undisturbed blocks than this the disturbed ones are used as well.
const UNDISTURBED_MIN: usize = 3;
/// Findings that are about the generator's own figures, which stand in the section on the load with
/// how busy it was: a row compares CPU time of the server.
const OF_THE_GENERATOR: [&str; 2] = ["generator-bound", "few-answers"];
/// Outcomes of runs by block, for one arm at one point.
type Series = Vec<(u32, f64)>;

/// Fills `results`, `why`, `trust` and `answers` of the record from its runs.
pub fn judge(plan: &Plan, record: &mut Record) {
    record.why = why::rows(plan, record);
    let mut results = Vec::new();
    let mut compared = Vec::new();
    for point in &plan.points {
        judge_point(plan, point, record, &mut results, &mut compared);
    }
    correct_for_many(&mut results, compared);
    why::flag_unexplained(&mut results, &record.why);
    record.results = results;
    record.trust = trust::of(record);
    record.answers = answer::of(plan, record);
}

/// The comparisons whose width decides whether more blocks are needed: at each part's first
/// point every arm against the baseline, the A/A arm among them.
#[must_use]
pub fn headline(plan: &Plan, record: &Record) -> Vec<RatioEstimate> {
    let mut seen_parts = Vec::new();
    let mut estimates = Vec::new();
    for point in &plan.points {
        if seen_parts.contains(&point.part) {
            continue;
        }
        seen_parts.push(point.part);
        let runs = PointRuns::of(plan, point, record);
        let others = point.arms.iter().enumerate().filter(|(index, _)| *index != point.baseline);
        estimates.extend(others.filter_map(|(_, arm)| runs.estimate(arm).map(|found| found.0)));
    }
    estimates
}

/// The usable runs of one point.
struct PointRuns<'a> {
    point: &'a PlannedPoint,
    part: &'a str,
    runs: Vec<&'a Run>,
    disturbed: Vec<u32>,
}

impl<'a> PointRuns<'a> {
    fn of(plan: &'a Plan, point: &'a PlannedPoint, record: &'a Record) -> Self {
        let part = plan.part_name(point);
        let of_point = |run: &&Run| run.experiment == part && run.point == point.point.label;
        let disturbed = record.blocks.iter().filter(|block| !block.disturbances.is_empty());
        Self {
            point,
            part,
            runs: record.runs.iter().filter(of_point).collect(),
            disturbed: disturbed.map(|block| block.block).collect(),
        }
    }

    /// The values of an arm by block.
    fn values(&self, arm: &Arm) -> Series {
        let of_arm = self.runs.iter().filter(|run| run.arm == arm.name);
        of_arm
            .filter_map(|run| match &run.outcome {
                Outcome::Measured(measured) => Some((run.block, measured.value)),
                Outcome::Failed { .. } => None,
            })
            .collect()
    }

    /// Reasons of the runs of an arm that failed.
    fn failures(&self, arm: &Arm) -> Vec<&str> {
        let of_arm = self.runs.iter().filter(|run| run.arm == arm.name);
        of_arm
            .filter_map(|run| match &run.outcome {
                Outcome::Failed { reason } => Some(reason.as_str()),
                Outcome::Measured(_) => None,
            })
            .collect()
    }

    /// What the load generator found about the runs of an arm, once for each kind.
    fn findings(&self, arm: &Arm) -> Vec<String> {
        let of_arm = self.runs.iter().filter(|run| run.arm == arm.name);
        let measured: Vec<_> = of_arm
            .filter_map(|run| match &run.outcome {
                Outcome::Measured(measured) => Some(&measured.findings),
                Outcome::Failed { .. } => None,
            })
            .collect();
        let mut found: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
        for (kind, text) in measured.iter().copied().flatten() {
            let (count, last) = found.entry(kind).or_default();
            (*count, *last) = (*count + 1, text);
        }
        let told = found.into_iter().filter(|(kind, _)| !OF_THE_GENERATOR.contains(kind));
        let all = measured.len();
        told.map(|(_, (count, text))| format!("in {count} of {all} runs: {text}")).collect()
    }

    /// Arm and baseline in the blocks that have both; without disturbed blocks when enough are
    /// left. The flag says whether disturbed blocks were left out.
    fn pairs(&self, arm: &Arm) -> (Vec<f64>, Vec<f64>, bool) {
        let baseline = self.values(&self.point.arms[self.point.baseline]);
        let both: Vec<(u32, f64, f64)> = self
            .values(arm)
            .into_iter()
            .filter_map(|(block, value)| {
                let of_baseline = baseline.iter().find(|(other, _)| *other == block)?;
                Some((block, value, of_baseline.1))
            })
            .collect();
        let quiet: Vec<_> =
            both.iter().copied().filter(|(block, ..)| !self.disturbed.contains(block)).collect();
        let has_left_out = quiet.len() >= UNDISTURBED_MIN && quiet.len() < both.len();
        let used = if has_left_out { quiet } else { both };
        let arm_values = used.iter().map(|(_, value, _)| *value).collect();
        (arm_values, used.iter().map(|(_, _, baseline)| *baseline).collect(), has_left_out)
    }

    fn estimate(&self, arm: &Arm) -> Option<(RatioEstimate, u32, bool)> {
        let (values, baseline, has_left_out) = self.pairs(arm);
        let estimate = RatioEstimate::from_pairs(&values, &baseline, Resampling::default()).ok()?;
        let ratios = log_ratios(&values, &baseline).ok()?;
        let outliers = tukey_flags(&ratios).iter().filter(|flag| **flag != Outlier::None).count();
        Some((estimate, outliers as u32, has_left_out))
    }
}

fn judge_point(
    plan: &Plan,
    point: &PlannedPoint,
    record: &Record,
    results: &mut Vec<ResultRow>,
    compared: &mut Vec<(usize, Row)>,
) {
    let runs = PointRuns::of(plan, point, record);
    let same_again = point.arms.iter().find(|arm| arm.name == SAME_AGAIN);
    let noise = same_again.and_then(|arm| runs.estimate(arm)).and_then(|(aa, ..)| noise_floor(&aa));
    let delta = decision_delta(plan.job.min_effect, noise);
    for (index, arm) in point.arms.iter().enumerate() {
        let mut row = unjudged(&runs, arm, delta);
        if index == point.baseline {
            if row.value.is_some() {
                (row.verdict, row.ratio, row.ratio_median) =
                    (Verdict::Baseline, Some(1.0), Some(1.0));
            }
        } else if let Some((estimate, outliers, has_left_out)) = runs.estimate(arm) {
            row.ratio = Some(estimate.ratio);
            row.ratio_median = Some(estimate.median_ratio);
            row.ci_low = estimate.ci95.map(|ci| ci.lo);
            row.ci_high = estimate.ci95.map(|ci| ci.hi);
            row.blocks = estimate.n as u32;
            row.method = method(&estimate);
            row.outliers = outliers;
            if has_left_out {
                row.notes.push("disturbed blocks left out".to_owned());
            }
            if arm.name == SAME_AGAIN {
                row.verdict = Verdict::NoiseFloor;
            } else {
                let direction = point.metric().direction;
                compared.push((results.len(), Row::judged(estimate, delta, direction)));
            }
        }
        if noise.is_none() && row.verdict != Verdict::Failed && index != point.baseline {
            row.notes.push("no noise floor: the A/A arm has no interval".to_owned());
        }
        results.push(row);
    }
}

/// A row with everything but the comparison.
fn unjudged(runs: &PointRuns<'_>, arm: &Arm, delta: Delta) -> ResultRow {
    let metric = runs.point.metric();
    let values: Vec<f64> = runs.values(arm).into_iter().map(|(_, value)| value).collect();
    let failures = runs.failures(arm);
    let mut notes = Vec::new();
    if values.is_empty() && failures.is_empty() {
        notes.push("not run".to_owned());
    }
    if let Some(reason) = failures.last() {
        let tried = failures.len() + values.len();
        notes.push(format!("{} of {tried} runs failed: {reason}", failures.len()));
    }
    notes.extend(runs.findings(arm));
    ResultRow {
        experiment: runs.part.to_owned(),
        point: runs.point.point.label.clone(),
        axes: runs.point.point.axes.clone(),
        arm: arm.name.clone(),
        metric: metric.name.to_owned(),
        more_is_better: metric.direction == Direction::HigherIsBetter,
        value: median(&values),
        value_half_width: stats::mean_half_width_rel(&values),
        unit: metric.unit.to_owned(),
        baseline: runs.point.arms[runs.point.baseline].name.clone(),
        ratio: None,
        ratio_median: None,
        ci_low: None,
        ci_high: None,
        verdict: match values.is_empty() && !failures.is_empty() {
            true => Verdict::Failed,
            false => Verdict::Inconclusive,
        },
        more_blocks: None,
        blocks: values.len() as u32,
        no_difference: delta.difference,
        method: "none".to_owned(),
        outliers: 0,
        notes,
    }
}

/// Holm's correction over all rows of the record, then the verdicts into their rows.
fn correct_for_many(results: &mut [ResultRow], compared: Vec<(usize, Row)>) {
    let (indices, mut rows): (Vec<usize>, Vec<Row>) = compared.into_iter().unzip();
    holm(&mut rows);
    for (index, row) in indices.into_iter().zip(rows) {
        let result = &mut results[index];
        (result.verdict, result.more_blocks) = match row.verdict {
            stats::Verdict::Faster => (Verdict::Faster, None),
            stats::Verdict::Slower => (Verdict::Slower, None),
            stats::Verdict::Equivalent => (Verdict::Equivalent, None),
            stats::Verdict::Inconclusive { more_blocks } => {
                (Verdict::Inconclusive, Some(more_blocks))
            }
        };
    }
}

fn method(estimate: &RatioEstimate) -> String {
    match estimate.method {
        stats::Method::Bootstrap => "studentised bootstrap over blocks",
        stats::Method::StudentT => "Student t over blocks",
        stats::Method::MovingBlockBootstrap => {
            "moving-block bootstrap: successive blocks resemble each other"
        }
    }
    .to_owned()
}

/// Whether an arm is pollux on a mechanism, or a way of waiting, with the workload as it is by default.
fn is_plain_driver(arm: &Arm) -> bool {
    let is_ours = matches!(
        arm.kind,
        ArmKind::Driver(_, crate::measure::Pattern::Random) | ArmKind::Build(..) | ArmKind::Wait(_)
    );
    is_ours && arm.name != SAME_AGAIN
}

/// A row that the tests of this crate fill in.
#[cfg(test)]
pub(crate) fn row_for_tests(arm: &str, verdict: Verdict) -> ResultRow {
    ResultRow {
        experiment: "streams".into(),
        point: "pipe".into(),
        axes: BTreeMap::new(),
        arm: arm.into(),
        metric: "events per second".into(),
        more_is_better: true,
        value: Some(1.0),
        value_half_width: None,
        unit: "events/s".into(),
        baseline: "epoll".into(),
        ratio: None,
        ratio_median: None,
        ci_low: None,
        ci_high: None,
        verdict,
        more_blocks: None,
        blocks: 12,
        no_difference: 0.03,
        method: String::new(),
        outliers: 0,
        notes: Vec::new(),
    }
}
