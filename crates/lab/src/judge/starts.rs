//! What the sets of a row can't show: how other starts of a program differ from the few that were measured.
//!
//! Where each set starts its arms anew, the spread over the sets holds it. The sets of one process, of the user or of a
//! program that is dear to load, agree with each other more closely than with the next process of the same program:
//! where its memory lies, what was compiled in which order. So the interval of such a row is at least as wide as its
//! starts lie apart, each with the mean of its sets, where there are four of them. Of fewer it is wider by an allowance,
//! and a difference within that stays undecided.

use pollux_report::number::percent;
use pollux_stats::{Aim, standard_deviation, student_t_quantile};

use super::estimates::PointRuns;
use crate::arm::{Arm, ArmKind};
use crate::plan::{Method, Plan};
use crate::record::{Record, ResultRow, Verdict};

/// How far the starts of one program lie apart, as a deviation of the logarithm of its cost. Seen here: 0.8 % of two
/// servers in C, 2 % of Go and Python, 3 to 5 % of Node and a JVM.
const BETWEEN_STARTS: f64 = 0.03;
/// So many deviations to each side are the interval.
const DEVIATIONS: f64 = 1.96;
/// So many starts show how they differ.
const STARTS_MIN: usize = 4;

/// Widens the rows of which a side had fewer starts than sets.
pub(super) fn allow(plan: &Plan, record: &Record, results: &mut [ResultRow]) {
    for point in plan.points.iter().filter(|point| point.method == Method::Turns) {
        let runs = PointRuns::of(plan, point, record);
        let baseline = &point.arms[point.baseline];
        let unseen = |arm: &Arm| match runs.sets_and_starts(arm) {
            (sets, starts) if starts < sets => BETWEEN_STARTS.powi(2) / starts as f64,
            _ => 0.0,
        };
        let is_running = |arm: &Arm| matches!(arm.kind, ArmKind::Running { .. });
        let is_other = |arm: &&Arm| !is_one_process(&arm.kind, &baseline.kind);
        for arm in point.arms.iter().filter(is_other) {
            let allowance = DEVIATIONS * (unseen(arm) + unseen(baseline)).sqrt();
            let here = |row: &&mut ResultRow| {
                row.experiment == runs.part && row.point == point.point.label && row.arm == arm.name
            };
            let is_judged = arm.name != baseline.name && allowance > 0.0;
            let Some(row) = results.iter_mut().find(here).filter(|_| is_judged) else { continue };
            let starts = runs.means_of_starts(arm, baseline);
            if let Some(half_width) = half_width(&starts) {
                row.widen(|shown| shown.max(half_width));
                if row.is_open() {
                    row.verdict = Verdict::Inconclusive;
                }
            } else {
                let is_lasting = is_running(arm) || is_running(baseline);
                widen(row, allowance, is_lasting);
            }
            if row.verdict == Verdict::Inconclusive && row.starts_allowance.is_none() {
                row.more_blocks = row.sets_until(Aim::Decide, plan.job.precision);
            }
        }
    }
}

/// Whether both are one process that ran before, under whatever names: no start of it differs from the other.
fn is_one_process(arm: &ArmKind, other: &ArmKind) -> bool {
    let pid = |kind: &ArmKind| match kind {
        ArmKind::Running { pid, .. } => Some(*pid),
        _ => None,
    };
    pid(arm).is_some() && pid(arm) == pid(other)
}

/// Half of the 95 % interval of the mean of as many starts as show how they differ, each a logarithm of a ratio.
fn half_width(starts: &[f64]) -> Option<f64> {
    let deviation = standard_deviation(starts).filter(|_| starts.len() >= STARTS_MIN)?;
    let df = u32::try_from(starts.len() - 1).ok()?;
    Some(student_t_quantile(0.975, df) * deviation / (starts.len() as f64).sqrt())
}

/// Adds an allowance, a half-width of the logarithm of the ratio, to what the sets of a row show. It lasts where no set
/// can have another start.
fn widen(row: &mut ResultRow, allowance: f64, is_lasting: bool) {
    let Some(ratio) = row.ratio else { return };
    row.widen(|shown| shown.hypot(allowance));
    row.starts_allowance = is_lasting.then(|| allowance.exp_m1());
    if row.is_open() || (row.verdict == Verdict::Inconclusive && ratio.ln().abs() <= allowance) {
        (row.verdict, row.more_blocks) = (Verdict::Inconclusive, None);
        let more = if is_lasting {
            "--arm NAME='COMMAND' has them started anew"
        } else {
            "more budget gives more starts"
        };
        let differ = percent(allowance.exp_m1());
        row.notes
            .push(format!("other starts of the same programs may differ by ± {differ}: {more}"));
    }
}

impl ResultRow {
    /// Moves the ends of its interval and its bounds, each so far from the ratio, in logarithms, as is given for where
    /// it was.
    fn widen(&mut self, wider: impl Fn(f64) -> f64) {
        let Some(ratio) = self.ratio else { return };
        let below = |end: f64| ratio * (-wider((ratio / end).ln().max(0.0))).exp();
        let above = |end: f64| ratio * wider((end / ratio).ln().max(0.0)).exp();
        self.ci_low = self.ci_low.map(below);
        self.ci_high = self.ci_high.map(above);
        self.bounds = self.bounds.map(|[low, high]| [below(low), above(high)]);
    }

    /// Whether its verdict says more than its interval.
    fn is_open(&self) -> bool {
        match self.verdict {
            Verdict::Faster | Verdict::Slower => self.holds_one(),
            Verdict::Equivalent => !self.is_within_minimum(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::row_in_turns;

    fn widened(verdict: Verdict, interval: [f64; 3]) -> ResultRow {
        let mut row = row_in_turns("node", verdict).with_interval(interval);
        widen(&mut row, 0.08, true);
        row
    }

    #[test]
    fn one_process_under_two_names_has_no_other_start() {
        let running = |pid, port| {
            let address = std::net::SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, port));
            ArmKind::Running { pid, address }
        };
        assert!(is_one_process(&running(7, 8080), &running(7, 8081)));
        assert!(!is_one_process(&running(7, 8080), &running(8, 8080)));
        let started = ArmKind::Driver(pollux_engine::Driver::Completion);
        assert!(!is_one_process(&started, &started));
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

    #[test]
    fn what_further_starts_can_narrow_is_part_of_the_width_that_more_sets_are_for() {
        let mut row = row_in_turns("node", Verdict::Slower).with_interval([1.04, 1.03, 1.05]);
        widen(&mut row, 0.08, false);
        assert_eq!((row.verdict, row.starts_allowance), (Verdict::Inconclusive, None));
        assert!(row.notes[0].ends_with("more budget gives more starts"), "{:?}", row.notes);
        assert!(row.half_width().is_some_and(|half| half > 0.08));
    }

    #[test]
    fn four_starts_show_how_they_differ() {
        assert_eq!(half_width(&[0.02, 0.03, 0.04]), None);
        // Student's t of three degrees of freedom, 3.182.
        let half = half_width(&[0.02, 0.04, 0.02, 0.04]).expect("an interval");
        assert!((half - 3.182 * 0.011547 / 2.0).abs() < 1e-4, "{half}");
        let mut row = row_in_turns("node", Verdict::Slower).with_interval([1.04, 1.03, 1.05]);
        row.widen(|shown| shown.max(0.005));
        assert!((row.ci_high.expect("an end") - 1.05).abs() < 1e-12 && !row.is_open());
        row.widen(|shown| shown.max(0.05));
        assert!(row.is_open());
    }
}
