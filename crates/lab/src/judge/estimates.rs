//! The runs of one point, the estimate of each of its arms, and how many more would decide the rows that are open.
//!
//! Where arm and baseline took turns, each set of fresh processes has its ratio already, and a set
//! that a gate calls disturbed counts as any other: both were disturbed alike within each round. Whole
//! runs are paired block by block, without disturbed blocks where enough are left.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pollux_report::number;
use pollux_settings::share_text;
use pollux_stats::{
    Levels, Outlier, RatioEstimate, Resampling, SETS_MAX, SetRatio, log_ratios, mean, median,
    tukey_flags,
};

use crate::arm::{Arm, ArmKind};
use crate::plan::{Plan, PlannedPoint, minutes};
use crate::record::{Ending, Measurement, Record, ResultRow, RowTurns, Run, Verdict, WarmUp};
use crate::warm_up::CHEAP;

/// With fewer undisturbed blocks than this the disturbed ones are used as well.
const UNDISTURBED_MIN: usize = 3;
/// What a set takes on top of the turns that have a figure: lead-ins, falling asleep, starts and ends.
const SET_OVER_TURNS: f64 = 1.6;
/// A cost that changed by less while an arm was loaded is not worth a word.
const WARM_UP_MIN: f64 = 0.1;
/// The narrowest interval that can be asked for.
const PRECISION_MIN: f64 = 0.001;
/// Rows that would take more than so many times what the run took are not worth the wait.
const EXTRA_TIME_FACTOR_MAX: f64 = 3.0;

/// Outcomes of runs by block, for one arm at one point.
type Series = Vec<(u32, f64)>;

/// Arm against baseline.
pub(super) struct Estimated {
    pub(super) estimate: RatioEstimate,
    /// Blocks or sets outside Tukey's fences.
    pub(super) outliers: u32,
    /// Whether disturbed blocks were left out.
    pub(super) has_left_out: bool,
    /// Where they took turns.
    pub(super) turns: Option<RowTurns>,
}

/// The usable runs of one point.
pub(super) struct PointRuns<'a> {
    pub(super) point: &'a PlannedPoint,
    pub(super) part: &'a str,
    runs: Vec<&'a Run>,
    disturbed: Vec<u32>,
}

impl<'a> PointRuns<'a> {
    pub(super) fn of(plan: &'a Plan, point: &'a PlannedPoint, record: &'a Record) -> Self {
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

    /// What the runs of an arm gave that went to their end.
    pub(super) fn measured(&self, arm: &Arm) -> impl Iterator<Item = &'a Measurement> {
        let name = arm.name.clone();
        let of_arm = self.runs.iter().filter(move |run| run.arm == name);
        of_arm.filter_map(|run| run.measured())
    }

    /// The values of an arm, of each run or set.
    pub(super) fn values(&self, arm: &Arm) -> Vec<f64> {
        self.measured(arm).map(|measured| measured.value).collect()
    }

    /// Reasons of the runs of an arm that failed.
    pub(super) fn failures(&self, arm: &Arm) -> Vec<&str> {
        let of_arm = self.runs.iter().filter(|run| run.arm == arm.name);
        of_arm.filter_map(|run| run.failure()).collect()
    }

    /// What was found about the runs of an arm, but for what is about the load's generator, once for each kind.
    pub(super) fn findings(&self, arm: &Arm) -> Vec<String> {
        let measured: Vec<_> = self.measured(arm).map(|measured| &measured.findings).collect();
        let mut found: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
        for (kind, text) in measured.iter().copied().flatten() {
            let (count, last) = found.entry(kind).or_default();
            (*count, *last) = (*count + 1, text);
        }
        let of_generator = self.point.experiment.of_generator.map_or(&[][..], |of| of.findings);
        let shown = found.into_iter().filter(|(kind, _)| !of_generator.contains(kind));
        let all = measured.len();
        shown.map(|(_, (count, text))| format!("in {count} of {all} runs: {text}")).collect()
    }

    /// How many sets an arm had, and how many starts of it those were; of a process that ran before, one.
    pub(super) fn sets_and_starts(&self, arm: &Arm) -> (usize, usize) {
        let turns: Vec<_> = self.measured(arm).filter_map(|measured| measured.turns).collect();
        let starts = match arm.kind {
            ArmKind::Running { .. } => 1,
            _ => turns.iter().filter(|turns| !turns.is_kept).count().max(1),
        };
        (turns.len(), starts)
    }

    /// The mean logarithm of the ratio of each start of two arms, over the sets that it lived through.
    pub(super) fn means_of_starts(&self, arm: &Arm, baseline: &Arm) -> Vec<f64> {
        let turns = |run: &&&Run| run.measured().and_then(|measured| measured.turns);
        let is_kept = |arm: &Arm, block: u32| {
            let mut of_arm = self.runs.iter().filter(|run| run.arm == arm.name);
            let run = of_arm.find(|run| run.block == block);
            matches!(arm.kind, ArmKind::Running { .. })
                || run.as_ref().and_then(turns).is_some_and(|turns| turns.is_kept)
        };
        let of_arm = self.runs.iter().filter(|run| run.arm == arm.name);
        let mut sets: Vec<(u32, f64)> =
            of_arm.filter_map(|run| Some((run.block, turns(&run)?.log_ratio?))).collect();
        sets.sort_by_key(|(block, _)| *block);
        let starts =
            sets.chunk_by(|_, (block, _)| is_kept(arm, *block) || is_kept(baseline, *block));
        starts
            .filter_map(|sets| mean(&sets.iter().map(|(_, log)| *log).collect::<Vec<_>>()))
            .collect()
    }

    /// That the sets of an arm are not as many starts of it, if so.
    pub(super) fn starts(&self, arm: &Arm) -> Option<String> {
        let (sets, starts) = self.sets_and_starts(arm);
        let many = match (&arm.kind, starts) {
            (_, starts) if starts >= sets => return None,
            (ArmKind::Running { .. }, _) => "one process".to_owned(),
            (_, 1) => "1 start, as loading it takes long".to_owned(),
            _ => format!("{starts} starts, as loading it takes long"),
        };
        Some(format!(
            "{sets} sets of {many}: they show how its connections differ, and little of how its starts do"
        ))
    }

    /// How the cost of an arm changed while it was loaded before it was timed for the first time, if it did.
    /// Or that it was not, as it answers too slowly.
    pub(super) fn warm_up(&self, arm: &Arm) -> Option<String> {
        let mut turns = self.measured(arm).filter_map(|measured| measured.turns).peekable();
        turns.peek()?;
        let Some(found) = turns.find_map(|turns| turns.warm_up) else { return self.no_load(arm) };
        let WarmUp { first_ns, last_ns, units, time_s, flat_after, flat_after_s, .. } = found;
        let (way, units, time_s) = match last_ns / first_ns {
            ratio if ratio < 1.0 - WARM_UP_MIN => ("cheaper", flat_after, flat_after_s),
            ratio if ratio > 1.0 + WARM_UP_MIN => ("dearer", units, time_s),
            _ => return None,
        };
        let cost = &self.point.experiment.cost;
        let (unit, what) = cost.metric.unit.split_once('/').unwrap_or((cost.metric.unit, "unit"));
        let [first, last] = [first_ns, last_ns].map(|ns| number::si(ns / cost.unit_ns));
        // Of one whose first window was as cheap as any, the first turn alone was dearer.
        let within = if units == 0 {
            "at once".to_owned()
        } else {
            format!("within {time_s:.1} s ({} {what}s)", number::count(units))
        };
        Some(format!(
            "got {way} while it was loaded before the first set: {first} to {last} {unit} {within}"
        ))
    }

    fn no_load(&self, arm: &Arm) -> Option<String> {
        let pace = self.point.pace(&arm.name).filter(|pace| pace.is_slow)?;
        let is_loaded = self.point.fixed_ramp_time().is_some_and(|time| !time.is_zero());
        (!is_loaded).then(|| {
            let wave = number::duration(pace.turn.as_secs_f64());
            format!(
                "not loaded before it was timed, as one request on each connection takes {wave}"
            )
        })
    }

    /// That an arm answers requests with another length than the baseline, if so.
    pub(super) fn other_answer(&self, arm: &Arm) -> Option<String> {
        let bytes = |arm: &Arm| {
            self.measured(arm).find_map(|measured| measured.figures.get("answer_bytes").copied())
        };
        let baseline = &self.point.arms[self.point.baseline];
        let own = bytes(arm)?;
        let others = bytes(baseline)?;
        (own != others).then(|| {
            format!("it answers {own} bytes, {} answers {others}: not the same work", baseline.name)
        })
    }

    /// How an arm was measured where it took turns.
    pub(super) fn turns(&self, arm: &Arm) -> Option<RowTurns> {
        let turns: Vec<_> = self.measured(arm).filter_map(|measured| measured.turns).collect();
        let middle = |of: &dyn Fn(&crate::record::Turns) -> f64| {
            median(&turns.iter().map(of).collect::<Vec<_>>())
        };
        let levels = Levels::of(&self.sets(arm));
        Some(RowTurns {
            rounds: middle(&|turns| f64::from(turns.rounds))? as u32,
            turn_us: middle(&|turns| turns.turn_us as f64)? as u64,
            between_sets: levels.map(|levels| levels.between_sets),
            within_set: levels.map(|levels| levels.within_set),
        })
    }

    /// The ratio of each set in which the arm took turns with the baseline.
    fn sets(&self, arm: &Arm) -> Vec<SetRatio> {
        let turns = self.measured(arm).filter_map(|measured| measured.turns);
        let ratio = |turns: crate::record::Turns| {
            let log_ratio = turns.log_ratio?;
            Some(SetRatio { log_ratio, round_sd: turns.round_sd, rounds: turns.rounds })
        };
        turns.filter_map(ratio).collect()
    }

    /// Arm against baseline: over sets where they took turns, else over blocks.
    pub(super) fn estimate(&self, arm: &Arm) -> Option<Estimated> {
        let sets = self.sets(arm);
        let baseline = &self.point.arms[self.point.baseline];
        let estimate = if [arm, baseline].iter().any(|arm| self.is_loaded_long(arm)) {
            RatioEstimate::over_starts(&whole(&sets))
        } else {
            RatioEstimate::over_sets(&sets)
        };
        if let Some(estimate) = estimate {
            let logs: Vec<f64> = sets.iter().map(|set| set.log_ratio).collect();
            let outliers = outliers(&logs);
            let turns = self.turns(arm);
            return Some(Estimated { estimate, outliers, has_left_out: false, turns });
        }
        let (values, baseline, has_left_out) = self.pairs(arm);
        let estimate = RatioEstimate::from_pairs(&values, &baseline, Resampling::default()).ok()?;
        let outliers = outliers(&log_ratios(&values, &baseline).ok()?);
        Some(Estimated { estimate, outliers, has_left_out, turns: None })
    }

    /// Whether an arm is a program that each of its starts was loaded for long: they differ.
    fn is_loaded_long(&self, arm: &Arm) -> bool {
        let loads = self.measured(arm).filter_map(|measured| measured.turns?.warm_up);
        let times: Vec<f64> = loads.map(|load| load.time_s).collect();
        mean(&times).is_some_and(|time_s| time_s > CHEAP.as_secs_f64())
    }

    /// The values of an arm by block, of whole runs; turns are not included.
    fn whole(&self, arm: &Arm) -> Series {
        let of_arm = self.runs.iter().filter(|run| run.arm == arm.name);
        let whole = of_arm.filter_map(|run| Some((run.block, run.measured()?)));
        whole
            .filter(|(_, run)| run.turns.is_none())
            .map(|(block, run)| (block, run.value))
            .collect()
    }

    /// Arm and baseline in the blocks that have both; without disturbed blocks when enough are
    /// left. The flag says whether disturbed blocks were left out.
    fn pairs(&self, arm: &Arm) -> (Vec<f64>, Vec<f64>, bool) {
        let baseline = self.whole(&self.point.arms[self.point.baseline]);
        let both: Vec<(u32, f64, f64)> = self
            .whole(arm)
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
}

/// The sets that were not cut short by the end of the budget, with at least half as many rounds as is usual: a mean without the outermost
/// sets gives each that it keeps the same weight.
fn whole(sets: &[SetRatio]) -> Vec<SetRatio> {
    let rounds: Vec<f64> = sets.iter().map(|set| f64::from(set.rounds)).collect();
    let usual = median(&rounds).unwrap_or(0.0);
    sets.iter().copied().filter(|set| f64::from(set.rounds) * 2.0 >= usual).collect()
}

fn outliers(logs: &[f64]) -> u32 {
    tukey_flags(logs).iter().filter(|flag| **flag != Outlier::None).count() as u32
}

/// "About N more sets"; the forecast does not reach beyond [`SETS_MAX`].
pub(crate) fn more_sets(sets: u32) -> String {
    match sets {
        1 => "about 1 more set".to_owned(),
        SETS_MAX.. => format!("more than {SETS_MAX} more sets"),
        _ => format!("about {sets} more sets"),
    }
}

/// How many rows are open, how long it would take to decide those that can be decided in a time
/// that is worth it, and the limit to move for it. None where no row in turns is open.
pub(crate) fn undecided_rows(record: &Record) -> Option<String> {
    let is_open = |row: &&ResultRow| {
        row.verdict == Verdict::Inconclusive && row.turns.is_some() && row.unsettled.is_none()
    };
    let mut open: Vec<&ResultRow> = record.results.iter().filter(is_open).collect();
    if open.is_empty() {
        return None;
    }
    let said = match open.iter().filter(|row| row.half_width().is_none()).count() {
        0 => format!("{} undecided", rows(open.len())),
        without => format!("{} undecided, {without} without an interval", rows(open.len())),
    };
    open.sort_by_key(|row| missing(row));
    let set_times = set_times(record);
    let mut decided = 0;
    let mut time_s = 0.0;
    let mut sets_of: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    for row in open.iter().filter(|row| missing(row) < SETS_MAX) {
        sets_of.insert((&*row.experiment, &*row.point), missing(row));
        let total_s: f64 = sets_of
            .iter()
            .map(|(point, sets)| f64::from(*sets) * set_times.get(point).copied().unwrap_or(0.0))
            .sum();
        if total_s > record.duration_s * EXTRA_TIME_FACTOR_MAX {
            break;
        }
        (decided, time_s) = (decided + 1, total_s);
    }
    let is_cut_short = open.iter().all(|row| row.blocks < 2)
        && record.runs.iter().all(|run| run.failure().is_none());
    if is_cut_short {
        return Some(format!("{said}: one needs two sets or blocks, and the run ended before."));
    }
    if open.iter().all(|row| row.half_width().is_none()) {
        return Some(format!("{said}: their arms or the baseline failed in too many sets."));
    }
    if decided == 0 {
        return Some(format!("{said}, too close to 1 for a run of this length."));
    }
    let more = minutes(Duration::from_secs_f64(time_s.max(1.0)));
    let limits = limits(record, &open[..decided], time_s);
    Some(format!("{said}: about {more} more would decide {decided}{limits}."))
}

fn missing(row: &ResultRow) -> u32 {
    row.half_width().and(row.more_blocks).unwrap_or(SETS_MAX)
}

fn rows(count: usize) -> String {
    if count == 1 { "1 row".to_owned() } else { format!("{count} rows") }
}

/// The flags that move what ended the run before these rows were decided: its time, the most sets of a
/// point, or the width with which it was content. Nothing where the user ended it.
fn limits(record: &Record, rows: &[&ResultRow], time_s: f64) -> String {
    let mut flags = Vec::new();
    if record.ending == Ending::Budget {
        let budget_s = ((record.duration_s + time_s) / 30.0).ceil() * 30.0;
        flags.push(format!("--budget {budget_s:.0}s"));
    }
    let sets = rows.iter().map(|row| row.blocks + missing(row)).max().unwrap_or_default();
    if sets > record.job.blocks_max {
        flags.push(format!("--max-blocks {sets}"));
    }
    if flags.is_empty() && record.ending == Ending::Complete {
        let wanted = rows.iter().filter_map(|row| {
            let sets = f64::from(row.blocks);
            Some(row.half_width()? * (sets / (sets + f64::from(missing(row)))).sqrt())
        });
        let wanted = wanted.fold(record.job.target_ci, f64::min);
        flags.push(format!("--precision {}", share_text(down_to_one_digit(wanted))));
    }
    if flags.is_empty() { String::new() } else { format!(" ({})", flags.join(" ")) }
}

/// A forecast has no second digit, and an interval that is narrower than asked decides as well.
fn down_to_one_digit(share: f64) -> f64 {
    let unit = 10_f64.powi(share.log10().floor() as i32);
    ((share / unit + 1e-9).floor() * unit).max(PRECISION_MIN)
}

/// Seconds that a set took, by part and point.
fn set_times(record: &Record) -> BTreeMap<(&str, &str), f64> {
    let mut times: BTreeMap<(&str, &str), (f64, BTreeSet<u32>)> = BTreeMap::new();
    for run in &record.runs {
        let Some(measured) = run.measured() else { continue };
        let (turns_s, sets) = times.entry((&*run.experiment, &*run.point)).or_default();
        *turns_s += measured.window_s;
        sets.insert(run.block);
    }
    let mean = |(turns_s, sets): (f64, BTreeSet<u32>)| turns_s * SET_OVER_TURNS / sets.len() as f64;
    times.into_iter().map(|(point, sum)| (point, mean(sum))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::row_in_turns;
    use crate::judge::tests::run;

    fn record(more: &[u32]) -> Record {
        let mut record = Record::empty();
        record.duration_s = 10.0;
        record.runs = (0..4).map(|set| run(set, "uring", &[])).collect();
        let row = |sets: &u32| ResultRow {
            experiment: record.runs[0].experiment.clone(),
            point: record.runs[0].point.clone(),
            more_blocks: Some(*sets),
            ..row_in_turns("uring", Verdict::Inconclusive).within([0.99, 1.03])
        };
        record.ending = Ending::Budget;
        (record.job.blocks_max, record.job.target_ci) = (30, 0.01);
        let mut rows: Vec<ResultRow> = more.iter().map(row).collect();
        rows.push(row_in_turns("poll", Verdict::Slower));
        Record { results: rows, ..record }
    }

    #[test]
    fn rows_of_a_point_are_decided_together_and_hopeless_ones_are_not_waited_for() {
        assert_eq!(undecided_rows(&record(&[])), None);
        // A set of the point takes 1.6 s; five decide both rows, forty are not worth the wait.
        let text = undecided_rows(&record(&[2, 5, 40])).expect("three are open");
        assert_eq!(text, "3 rows undecided: about 8 s more would decide 2 (--budget 30s).");
        let text = undecided_rows(&record(&[40])).expect("one is open");
        assert_eq!(text, "1 row undecided, too close to 1 for a run of this length.");
    }

    #[test]
    fn the_limit_that_held_is_the_one_to_move() {
        // The rows have 12 sets.
        let said = |ending, blocks_max| {
            let mut record = record(&[5]);
            (record.ending, record.job.blocks_max) = (ending, blocks_max);
            undecided_rows(&record).expect("one is open")
        };
        let expected = |flags| format!("1 row undecided: about 8 s more would decide 1{flags}.");
        assert_eq!(said(Ending::Budget, 200), expected(" (--budget 30s)"));
        assert_eq!(said(Ending::Complete, 12), expected(" (--max-blocks 17)"));
        assert_eq!(said(Ending::Budget, 12), expected(" (--budget 30s --max-blocks 17)"));
        assert_eq!(said(Ending::Complete, 200), expected(" (--precision 1%)"));
        assert_eq!(said(Ending::Interrupted, 200), expected(""));
    }

    #[test]
    fn of_a_run_that_ended_after_its_first_set_nothing_is_said_to_have_failed() {
        let mut record = record(&[2]);
        record.results.truncate(1);
        (record.results[0].ci_low, record.results[0].blocks) = (None, 1);
        let said = undecided_rows(&record).expect("one is open");
        let expected = "1 row undecided, 1 without an interval: one needs two sets or blocks, and the run ended before.";
        assert_eq!(said, expected);
        record.runs[0].outcome = crate::record::Outcome::Failed { reason: "no answer".to_owned() };
        let said = undecided_rows(&record).expect("one is open");
        assert!(said.contains("failed in too many sets"), "{said}");
    }

    #[test]
    fn a_forecast_of_a_precision_has_one_digit_and_asks_for_no_less_than_it() {
        let said =
            [0.0099, 0.0151, 0.008, 0.0003, 0.1].map(|share| share_text(down_to_one_digit(share)));
        assert_eq!(said, ["0.9%", "1%", "0.8%", "0.1%", "10%"]);
    }

    #[test]
    fn rows_without_an_interval_are_counted_and_a_forecast_at_its_bound_is_none() {
        let mut record = record(&[2, SETS_MAX]);
        record.duration_s = 1e6;
        let without = ResultRow { ci_low: None, more_blocks: Some(4), ..record.results[0].clone() };
        record.results.push(without);
        let text = undecided_rows(&record).expect("three are open");
        let counted = "3 rows undecided, 1 without an interval: about 3 s more would decide 1 (";
        assert!(text.starts_with(counted), "{text}");
        record.results.retain(|row| row.ci_low.is_none());
        let text = undecided_rows(&record).expect("one is open");
        let failed = "1 row undecided, 1 without an interval: their arms or the baseline failed in too \
                      many sets.";
        assert_eq!(text, failed);
    }
}
