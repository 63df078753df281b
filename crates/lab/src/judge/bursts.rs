//! Arms that cost more on average than in their usual turns: collectors with long periods, timers, caches that are
//! written out.
//!
//! The ratio of a row is that of usual turns, as a neighbour of the machine makes single turns dearer and never cheaper.
//! What a server itself does in bursts is cut away with them, though its requests cost that too. So the totals of all
//! turns are compared as well; where they give another ratio, by more than sets differ, the row says both, and has no
//! verdict that the total contradicts.

use pollux_report::number;
use pollux_stats::ratio_of_sums;

use super::estimates::PointRuns;
use crate::arm::Arm;
use crate::plan::{Method, Plan, PlannedPoint, SAME_AGAIN};
use crate::record::{Record, ResultRow, Verdict};

/// Neighbours make the totals of two arms differ by less.
const LEAST: f64 = 0.1;
/// By how many standard errors they have to differ at least.
const ERRORS_MIN: f64 = 2.5;

/// The total of a side beside what the same requests cost in usual turns, as a logarithm with its standard error.
#[derive(Clone, Copy, Debug)]
struct Excess {
    log: f64,
    error: f64,
}

/// What the bursts of a side make of a row.
#[derive(Debug, PartialEq)]
struct Bursts {
    /// Whether they are the baseline's.
    is_of_baseline: bool,
    /// The ratio of the totals beside the row's, as a logarithm.
    log: f64,
}

/// Says of rows what bursts make of them, and takes the verdicts back that those contradict.
pub(super) fn consider(plan: &Plan, record: &Record, results: &mut [ResultRow]) {
    for point in plan.points.iter().filter(|point| point.method == Method::Turns) {
        if !point.experiment.is_server() {
            continue;
        }
        let runs = PointRuns::of(plan, point, record);
        let baseline = &point.arms[point.baseline];
        for arm in
            point.arms.iter().filter(|arm| arm.name != SAME_AGAIN && arm.name != baseline.name)
        {
            if !arm.kind.is_of_user() && !baseline.kind.is_of_user() {
                continue;
            }
            let here = |row: &&mut ResultRow| {
                row.experiment == runs.part && row.point == point.point.label && row.arm == arm.name
            };
            let Some(row) = results.iter_mut().find(here) else { continue };
            let sides = excess(&runs, arm).zip(excess(&runs, baseline));
            let Some(found) = sides.and_then(|(own, other)| bursts(own, other)) else { continue };
            let side = if found.is_of_baseline { baseline } else { arm };
            say(row, &found, &costs(&runs, side, point), side);
        }
    }
}

/// Requests, their CPU time, and what they would have cost in usual turns, of each set.
fn sets(runs: &PointRuns<'_>, arm: &Arm) -> Vec<(f64, f64)> {
    let unit_ns = runs.point.experiment.cost.unit_ns;
    let of_set = |measured: &crate::record::Measurement| {
        let total = *measured.cpu_ns.value()? as f64;
        Some((total, measured.events? as f64 * measured.value * unit_ns))
    };
    runs.measured(arm).filter_map(of_set).collect()
}

fn excess(runs: &PointRuns<'_>, arm: &Arm) -> Option<Excess> {
    let (log, error) = ratio_of_sums(&sets(runs, arm))?;
    Some(Excess { log, error })
}

/// The bursts of one of two sides, if one has some.
fn bursts(own: Excess, other: Excess) -> Option<Bursts> {
    let log = own.log - other.log;
    let error = own.error.hypot(other.error);
    let is_certain = log.abs() >= LEAST && log.abs() > ERRORS_MIN * error;
    is_certain.then_some(Bursts { is_of_baseline: log < 0.0, log })
}

/// What a request cost an arm usually, and over all turns.
fn costs(runs: &PointRuns<'_>, arm: &Arm, point: &PlannedPoint) -> [String; 2] {
    let sets = sets(runs, arm);
    let units: f64 =
        runs.measured(arm).filter_map(|measured| measured.events).map(|units| units as f64).sum();
    let unit_ns = point.experiment.cost.unit_ns;
    let of = |sum: f64| number::si(sum / units.max(1.0) / unit_ns);
    [of(sets.iter().map(|(_, usual)| usual).sum()), of(sets.iter().map(|(total, _)| total).sum())]
}

fn say(row: &mut ResultRow, found: &Bursts, [usual, total]: &[String; 2], side: &Arm) {
    let Some(ratio) = row.ratio else { return };
    let with = ratio * found.log.exp();
    let unit = row.unit.split_once('/').map_or(row.unit.as_str(), |(unit, _)| unit).to_owned();
    let text = format!(
        "{} works in bursts: {usual} {unit} in usual turns, {total} {unit} over all; with them the ratio is {}",
        side.name,
        number::si(with),
    );
    let is_decided = matches!(row.verdict, Verdict::Faster | Verdict::Slower);
    // A verdict on a twentieth is none on a server that costs half as much again.
    let do_agree = (ratio > 1.0) == (with > 1.0)
        && with.ln().abs() > row.no_difference.ln_1p()
        && found.log.abs() <= ratio.ln().abs();
    let is_judged =
        is_decided || matches!(row.verdict, Verdict::Equivalent | Verdict::Inconclusive);
    if is_judged && row.unsettled.is_none() && !(is_decided && do_agree) {
        (row.verdict, row.more_blocks, row.bounds) = (Verdict::Inconclusive, None, None);
        row.unsettled = Some(text);
    } else {
        row.notes.push(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arm::ArmKind;

    #[test]
    fn a_verdict_stands_beside_bursts_that_are_smaller_than_its_difference() {
        let side = Arm { name: "mine".to_owned(), kind: ArmKind::WithoutPoller };
        let judged = |ratio: f64, log: f64| {
            let mut row = ResultRow {
                verdict: Verdict::Slower,
                ratio: Some(ratio),
                unit: "µs/request".to_owned(),
                no_difference: 0.02,
                ..ResultRow::default()
            };
            let costs = ["6.30".to_owned(), "11.4".to_owned()];
            say(&mut row, &Bursts { is_of_baseline: false, log }, &costs, &side);
            row
        };
        let large = judged(3.0, 0.4);
        assert_eq!((large.verdict, large.notes.len()), (Verdict::Slower, 1));
        for row in [judged(1.04, 0.4), judged(1.04, -0.4)] {
            assert_eq!(row.verdict, Verdict::Inconclusive, "{row:?}");
            let text = row.unsettled.expect("said");
            assert!(
                text.starts_with("mine works in bursts: 6.30 µs in usual turns, 11.4 µs"),
                "{text}"
            );
        }
    }

    #[test]
    fn bursts_are_those_of_the_side_that_costs_more_over_all_than_in_usual_turns() {
        let steady = Excess { log: 0.02, error: 0.01 };
        let collector = Excess { log: 0.6, error: 0.1 };
        let of_arm = bursts(collector, steady).expect("certain");
        assert!(!of_arm.is_of_baseline && of_arm.log > 0.5);
        assert!(bursts(steady, collector).expect("certain").is_of_baseline);
        // Neighbours hit both, or one by little, or one in a single set.
        assert_eq!(bursts(collector, Excess { log: 0.55, error: 0.1 }), None);
        assert_eq!(bursts(Excess { log: 0.08, error: 0.01 }, steady), None);
        assert_eq!(bursts(Excess { log: 0.3, error: 0.2 }, steady), None);
    }
}
