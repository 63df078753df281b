//! What the sets of a row can't show: how other starts of a program differ from the few that were measured.
//!
//! Where each set starts its arms anew, the spread over the sets holds it. The sets of one process, of the user or of a
//! program that is dear to load, agree with each other more closely than with the next process of the same program:
//! where its memory lies, what was compiled in which order. The interval of such a row is widened by an allowance for
//! that, and a difference within the allowance stays undecided.

use super::runs::PointRuns;
use crate::arm::{Arm, ArmKind};
use crate::plan::{Method, Plan, SAME_AGAIN};
use crate::record::{Record, ResultRow, Verdict};
use pollux_report::number::percent;

/// How far the starts of one program lie apart, as a deviation of the logarithm of its cost. Seen here: 0.8 % of two
/// servers in C, 2 % of Go and Python, 3 to 5 % of Node and a JVM.
const BETWEEN_STARTS: f64 = 0.03;
/// So many deviations to each side are the interval.
const DEVIATIONS: f64 = 1.96;

/// Widens the rows of which a side had fewer starts than sets.
pub(super) fn allow(plan: &Plan, record: &Record, results: &mut [ResultRow]) {
    for point in plan.points.iter().filter(|point| point.method == Method::Turns) {
        let runs = PointRuns::of(plan, point, record);
        let baseline = &point.arms[point.baseline];
        let unseen = |arm: &Arm| match runs.sets_and_starts(arm) {
            (sets, starts) if starts < sets => BETWEEN_STARTS.powi(2) / starts as f64,
            _ => 0.0,
        };
        // A process that ran before is the same process beside itself.
        let is_same =
            |arm: &&Arm| arm.name == SAME_AGAIN && matches!(arm.kind, ArmKind::Running { .. });
        for arm in point.arms.iter().filter(|arm| !is_same(arm)) {
            let half_width = DEVIATIONS * (unseen(arm) + unseen(baseline)).sqrt();
            let here = |row: &&mut ResultRow| {
                row.experiment == runs.part && row.point == point.point.label && row.arm == arm.name
            };
            let is_judged = arm.name != baseline.name && half_width > 0.0;
            if let Some(row) = results.iter_mut().find(here).filter(|_| is_judged) {
                widen(row, half_width);
            }
        }
    }
}

/// Adds an allowance, a half-width of the logarithm of the ratio, to what the sets of a row show.
fn widen(row: &mut ResultRow, allowance: f64) {
    let Some(ratio) = row.ratio else { return };
    let wider = |end: f64| {
        let shown = (end / ratio).ln();
        ratio * shown.hypot(allowance).copysign(shown).exp()
    };
    // An end that is the ratio itself has no side of its own.
    let (lower, upper) = (
        |end: f64| wider(end.min(ratio * (1.0 - 1e-12))),
        |end: f64| wider(end.max(ratio * (1.0 + 1e-12))),
    );
    row.ci_low = row.ci_low.map(lower);
    row.ci_high = row.ci_high.map(upper);
    row.bounds = row.bounds.map(|[low, high]| [lower(low), upper(high)]);
    row.starts_allowance = Some(allowance.exp_m1());
    let is_open = match row.verdict {
        Verdict::Faster | Verdict::Slower => row.holds_one(),
        Verdict::Equivalent => !row.is_within_minimum(),
        Verdict::Inconclusive => ratio.ln().abs() <= allowance,
        _ => false,
    };
    if is_open {
        (row.verdict, row.more_blocks) = (Verdict::Inconclusive, None);
        row.notes.push(format!(
            "other starts of the same programs may differ by ± {}: --arm NAME='COMMAND' has them started anew",
            percent(allowance.exp_m1())
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::row_in_turns;

    fn widened(verdict: Verdict, interval: [f64; 3]) -> ResultRow {
        let mut row = row_in_turns("node", verdict).with_interval(interval);
        widen(&mut row, 0.08);
        row
    }

    #[test]
    fn an_interval_holds_its_sets_and_the_starts_that_they_do_not_show() {
        let row = widened(Verdict::Faster, [0.5, 0.5 * (-0.06f64).exp(), 0.5 * 0.06f64.exp()]);
        assert_eq!(row.verdict, Verdict::Faster);
        let half = |end: f64| (end / 0.5).ln().abs();
        let ends = row.ci_low.zip(row.ci_high).expect("an interval");
        assert!((half(ends.0) - 0.1).abs() < 1e-9 && (half(ends.1) - 0.1).abs() < 1e-9, "{ends:?}");
        // What more sets can change is their part alone.
        assert!((row.half_width().expect("an interval") - 0.06f64.exp_m1()).abs() < 1e-9);
    }

    #[test]
    fn a_difference_within_what_starts_differ_by_has_no_verdict_and_says_why() {
        let found = [
            (Verdict::Slower, [1.04, 1.03, 1.05]),
            (Verdict::Equivalent, [1.0, 0.995, 1.005]),
            (Verdict::Inconclusive, [1.01, 0.98, 1.04]),
        ];
        for (verdict, interval) in found {
            let row = widened(verdict, interval);
            assert_eq!((row.verdict, row.more_blocks), (Verdict::Inconclusive, None));
            assert!(row.notes[0].contains("may differ by ± 8.3 %"), "{:?}", row.notes);
        }
        assert_eq!(widened(Verdict::Slower, [1.2, 1.19, 1.21]).verdict, Verdict::Slower);
    }
}
