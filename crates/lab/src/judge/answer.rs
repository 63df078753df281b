//! One line for each kind of load: which mechanism, by how much.
//!
//! The words of the reasons are in `reason`; here it is decided what they are said of.

use super::undecided::Leaning;
use super::{is_plain_driver, reason, undecided};
use crate::axis::Value;
use crate::experiments::PROCESSES;
use crate::plan::{Plan, PlannedPoint, SAME_AGAIN};
use crate::published;
use crate::record::{Answer, Record, ResultRow, Verdict};

/// From so many names on it is shorter to say which are not meant.
const NAMES_MIN: usize = 4;

/// What is said of a load at which only one arm could be judged.
const ALONE: &str = "nothing to compare with";

/// The answers of a judged record: to the question of the document that it repeats, if it repeats
/// one, and for each kind of load.
pub(super) fn of(plan: &Plan, record: &Record) -> Vec<Answer> {
    let of_document = published::beside(record).map(|beside| beside.answer());
    let mut of_loads = of_loads(plan, record);
    if of_document.is_some() {
        of_loads.retain(|answer| answer.choice != ALONE);
    }
    of_document.into_iter().chain(of_loads).collect()
}

fn of_loads(plan: &Plan, record: &Record) -> Vec<Answer> {
    let answered = plan.points.iter().filter(|point| is_widest(plan, point) || is_plain(point));
    let mut answers: Vec<(PlannedPoint, Answer)> = Vec::new();
    for point in answered {
        let Some(found) = answer(plan, point, record) else { continue };
        let same = |(other, answer): &&mut (PlannedPoint, Answer)| {
            let differs = |span| differ_in_nothing_but(other, point, &[span]);
            answer.choice == found.choice && point.experiment.span.is_some_and(differs)
        };
        match (answers.iter_mut().rfind(same), point.experiment.span) {
            (Some((first, answer)), Some(span)) => {
                let at = place(point, span);
                answer.reason = format!("at {at} {span}: {}", found.reason);
                let words = format!("{} to {at}", place(first, span));
                // A point that stands for all from the first to this one.
                let mut all = first.clone();
                all.point.axes.set(span, Value::Word(words));
                answer.load = reason::load(&all);
            }
            _ => answers.push((point.clone(), found)),
        }
    }
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Whether no other point of the same curve lies farther out; where an experiment has no curve,
/// every point is one by itself.
fn is_widest(plan: &Plan, point: &PlannedPoint) -> bool {
    let Some(curve) = point.experiment.curve else { return true };
    let at = |point: &PlannedPoint| place(point, curve.axis);
    plan.points.iter().all(|other| !is_same_curve(point, other) || at(other) <= at(point))
}

/// Whether a point has nothing of what its curve is over: a server without dead connections is a
/// load of its own, and the most usual one.
fn is_plain(point: &PlannedPoint) -> bool {
    point.experiment.curve.is_some_and(|curve| place(point, curve.axis) == 0)
}

/// Whether two points differ in nothing but the axis of their experiment's curve.
pub(super) fn is_same_curve(a: &PlannedPoint, b: &PlannedPoint) -> bool {
    let Some(curve) = a.experiment.curve else { return false };
    // How many processes follows from where the point stands and the limits of the machine.
    differ_in_nothing_but(a, b, &[curve.axis, PROCESSES])
}

/// Whether two points of a part have the same value on every other axis.
fn differ_in_nothing_but(a: &PlannedPoint, b: &PlannedPoint, axes: &[&str]) -> bool {
    let rest = |point: &PlannedPoint| {
        let mut rest = point.point.axes.clone();
        axes.iter().for_each(|axis| drop(rest.remove(axis)));
        rest
    };
    a.part == b.part && rest(a) == rest(b)
}

/// Where a point stands on a numeric axis.
pub(super) fn place(point: &PlannedPoint, axis: &str) -> u64 {
    point.point.axes.get(axis).and_then(Value::number).unwrap_or_default()
}

fn answer(plan: &Plan, point: &PlannedPoint, record: &Record) -> Option<Answer> {
    let Candidates { rows, beside } = candidates(plan, point, record);
    let first = rows.first()?;
    let failed = failures(plan, point, record);
    let (choice, mut reason) = match rows.len() {
        1 => (ALONE.to_owned(), format!("only {} could be judged", first.arm)),
        _ => {
            let mut reason = match point.experiment.curve {
                Some(curve) => reason::of_curve(plan, point, record, &rows, curve),
                None => reason::of_point(&rows),
            };
            let Leaning { choice, remark } = choice(&rows);
            if let Some(remark) = remark {
                reason.push_str(&format!("; {remark}"));
            }
            (choice, reason)
        }
    };
    reason.push_str(&reason::beside(&beside));
    for (arm, why) in failed {
        reason.push_str(&format!("; {arm}: {why}"));
    }
    Some(Answer { load: reason::load(point), choice, reason })
}

/// What a load can choose from, and what it is seen beside; the best first.
struct Candidates<'a> {
    rows: Vec<&'a ResultRow>,
    beside: Vec<&'a ResultRow>,
}

/// Pollux's own mechanisms and the programs that the user named are compared with each other, baseline servers and
/// other systems beside them. One arm alone is compared with those, whatever they are.
fn candidates<'a>(plan: &Plan, point: &PlannedPoint, record: &'a Record) -> Candidates<'a> {
    let is_named = |row: &&ResultRow| {
        let mut arms = point.arms.iter().filter(|arm| arm.name == row.arm);
        arms.any(|arm| is_plain_driver(arm) || arm.kind.is_of_user())
    };
    let is_control = |row: &&ResultRow| row.arm == SAME_AGAIN;
    let all = measured(plan, point, record).filter(|row| !is_control(row));
    let (rows, mut beside): (Vec<_>, Vec<_>) = all.partition(is_named);
    if rows.len() < 2 {
        return Candidates { rows: sorted([rows, beside].concat()), beside: Vec::new() };
    }
    let is_other =
        |row: &&ResultRow| point.arms.iter().any(|arm| arm.name == row.arm && arm.kind.is_other());
    beside.retain(is_other);
    Candidates { rows: sorted(rows), beside: sorted(beside) }
}

/// The arms of a point that failed in every run, with the last reason.
fn failures<'a>(plan: &Plan, point: &PlannedPoint, record: &'a Record) -> Vec<(&'a str, &'a str)> {
    let failed = rows_at(plan, point, record)
        .filter(|row| row.verdict == Verdict::Failed && row.arm != SAME_AGAIN);
    failed.map(|row| (&*row.arm, row.notes.first().map_or("failed", String::as_str))).collect()
}

/// Those that were shown to be better than the baseline and no worse than the best of them; where
/// there are none, everything that was shown not to be worse. Where nothing was shown, what the
/// intervals still allow to say. A small difference, one within the minimum effect, chooses nothing.
fn choice(rows: &[&ResultRow]) -> Leaning {
    let decided = |choice: String| Leaning { choice, remark: None };
    let is = |row: &ResultRow, verdict| row.verdict == verdict && !row.is_small_difference();
    let best = leaders(rows, &|row| is(row, Verdict::Faster));
    if !best.is_empty() {
        return decided(reason::one_or_more(&best));
    }
    let names = |is_wanted: &dyn Fn(&ResultRow) -> bool| -> Vec<&str> {
        rows.iter().filter(|row| is_wanted(row)).map(|row| row.arm.as_str()).collect()
    };
    let is_open = |row: &ResultRow| row.verdict == Verdict::Inconclusive;
    let slower = names(&|row| is(row, Verdict::Slower));
    let open = names(&is_open);
    let rest = names(&|row| !is(row, Verdict::Slower) && !is_open(row));
    match (slower.is_empty(), open.is_empty()) {
        (false, true) => decided(any_but(&slower, &rest)),
        (false, false) => Leaning {
            choice: reason::one_or_more(if rest.is_empty() { &open } else { &rest }),
            remark: Some(format!("undecided: {}", open.join(", "))),
        },
        (true, false) => undecided::leaning(rows),
        (true, true) => decided(undecided::equal(rows)),
    }
}

/// Of those that are better the ones that reach the best.
pub(super) fn leaders<'a>(
    rows: &[&'a ResultRow],
    is_better: &dyn Fn(&ResultRow) -> bool,
) -> Vec<&'a str> {
    let better: Vec<(&str, Gain)> = rows
        .iter()
        .filter(|row| is_better(row))
        .filter_map(|row| Some((row.arm.as_str(), gain(row)?)))
        .collect();
    let best = better.iter().max_by(|a, b| a.1.ratio.total_cmp(&b.1.ratio));
    let low = best.map_or(f64::INFINITY, |(_, best)| best.low);
    better.iter().filter(|(_, gain)| gain.high >= low).map(|(name, _)| *name).collect()
}

/// Everything but the worse ones, in the shorter way.
pub(super) fn any_but(worse: &[&str], rest: &[&str]) -> String {
    match rest.len() {
        NAMES_MIN.. => format!("any but {}", reason::one_or_more(worse).replace(" or ", " and ")),
        _ => reason::one_or_more(rest),
    }
}

/// A ratio with its interval, turned so that more is better.
pub(super) struct Gain {
    pub(super) ratio: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

pub(super) fn gain(row: &ResultRow) -> Option<Gain> {
    let (ratio, low, high) = (row.ratio?, row.ci_low?, row.ci_high?);
    Some(match row.more_is_better {
        true => Gain { ratio, low, high },
        false => Gain { ratio: 1.0 / ratio, low: 1.0 / high, high: 1.0 / low },
    })
}

/// The best first. The baseline has a ratio and no interval.
fn sorted(mut rows: Vec<&ResultRow>) -> Vec<&ResultRow> {
    let key = |row: &ResultRow| {
        let ratio = row.ratio.unwrap_or(0.0);
        if row.more_is_better { ratio } else { -ratio }
    };
    rows.sort_by(|a, b| key(b).total_cmp(&key(a)));
    rows
}

/// The rows of one point that have a ratio.
pub(super) fn measured<'a>(
    plan: &Plan,
    point: &PlannedPoint,
    record: &'a Record,
) -> impl Iterator<Item = &'a ResultRow> {
    rows_at(plan, point, record).filter(|row| row.ratio.is_some())
}

fn rows_at<'a>(
    plan: &Plan,
    point: &PlannedPoint,
    record: &'a Record,
) -> impl Iterator<Item = &'a ResultRow> {
    let (part, label) = (plan.part_name(point).to_owned(), point.point.label.clone());
    record.results.iter().filter(move |row| row.experiment == part && row.point == label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{row_for_tests, row_in_turns};

    fn row(arm: &str, interval: [f64; 2], verdict: Verdict) -> ResultRow {
        row_for_tests(arm, verdict).within(interval)
    }

    fn chosen(rows: &[ResultRow]) -> String {
        choice(&rows.iter().collect::<Vec<_>>()).choice
    }

    #[test]
    fn the_faster_ones_that_overlap_the_best_are_chosen() {
        let rows = [
            row("poll", [1.15, 1.25], Verdict::Faster),
            row("select", [1.10, 1.20], Verdict::Faster),
            row("aio", [1.05, 1.10], Verdict::Faster),
            row("epoll-et", [1.00, 1.40], Verdict::Inconclusive),
        ];
        assert_eq!(chosen(&rows), "poll or select");
    }

    #[test]
    fn without_a_faster_one_only_the_slower_are_ruled_out() {
        let same = |arm| row(arm, [0.98, 1.02], Verdict::Equivalent);
        let slower = |arm| row(arm, [0.1, 0.2], Verdict::Slower);
        assert_eq!(chosen(&[same("a"), same("b"), same("c"), same("d")]), "no difference");
        let open = |interval| row("b", interval, Verdict::Inconclusive);
        assert_eq!(chosen(&[same("a"), open([0.6, 1.7])]), "not decided");
        assert_eq!(
            chosen(&[same("a"), open([0.9, 1.1])]),
            "no difference larger than 12 % was found"
        );
        assert_eq!(chosen(&[same("a"), same("b"), slower("c")]), "a or b");
        let many = [same("a"), same("b"), same("c"), same("d"), slower("e"), slower("f")];
        assert_eq!(chosen(&many), "any but e and f");
    }

    #[test]
    fn where_arms_took_turns_a_mechanism_is_named_or_all_are_equal_within_the_minimum_effect() {
        use Verdict::{Equivalent, Faster, Slower};
        let turned = |arm, interval, verdict| row_in_turns(arm, verdict).within(interval);
        let base = || ResultRow { ratio: Some(1.0), ..row_in_turns("epoll", Verdict::Baseline) };
        let et = || turned("epoll-et", [0.978, 0.990], Faster);
        let small = || turned("uring-poll", [0.985, 0.998], Faster);
        let same = || turned("poll", [0.995, 1.012], Equivalent);
        let oneshot = || turned("epoll-oneshot", [1.049, 1.077], Slower);
        assert_eq!(chosen(&[base(), et(), small(), same(), oneshot()]), "epoll-et");
        assert_eq!(chosen(&[base(), small(), same()]), "equal within 2 %");
        assert_eq!(chosen(&[base(), small(), same(), oneshot()]), "epoll, uring-poll or poll");
    }

    #[test]
    fn of_costs_the_lowest_are_chosen() {
        let cost = |arm, interval, verdict| row(arm, interval, verdict).of_cost("CPU");
        let rows = [
            cost("poll", [1.90, 2.10], Verdict::Slower),
            cost("uring", [0.80, 0.86], Verdict::Faster),
            cost("uring-poll", [0.85, 0.90], Verdict::Faster),
            cost("epoll-oneshot", [0.92, 0.95], Verdict::Faster),
        ];
        assert_eq!(chosen(&rows), "uring or uring-poll");
        assert_eq!(sorted(rows.iter().collect())[0].arm, "uring");
    }
}
