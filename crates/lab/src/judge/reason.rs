//! The words of an answer: what kind of load, by how much, what loses, what stands beside it.

use super::answer::{is_same_curve, place, rows_of};
use crate::experiment::{Curve, Experiment, is_split};
use crate::plan::{Plan, PlannedPoint};
use crate::record::{Record, ResultRow, Verdict};

/// A value counts as kept over an axis when it gets worse by less than this.
const KEPT: f64 = 0.15;
/// Most other systems that an answer names.
const BESIDE_MAX: usize = 5;

/// The kind of load of a point.
pub(super) fn load(point: &PlannedPoint) -> String {
    let axes = &point.point.axes;
    match point.experiment {
        Experiment::Streams => {
            let transport = match axes["transport"].as_str() {
                "pipe" => "pipes",
                "unix" => "AF_UNIX",
                _ => "TCP",
            };
            format!("{} streams, all active ({transport})", axes["nfds"])
        }
        Experiment::Pipes => {
            let watched = format!("{} pipes watched, {} active", axes["pipes"], axes["messages"]);
            match axes["rule"].as_str() {
                "hopping" => format!("{watched}, hopping over cold caches"),
                _ => watched,
            }
        }
        Experiment::Chain => {
            format!("{} socket pairs watched, {} active", axes["pairs"], axes["active"])
        }
        Experiment::Http => {
            let mut words = format!("HTTP on {} connections", axes["connections"]);
            if axes["keepalive"] == "false" {
                words += ", each for one request";
            }
            if axes["pipeline"] != "1" {
                words += &format!(", {} requests at once", axes["pipeline"]);
            }
            if is_split(axes) {
                words += ", each reply in two writes";
            }
            if axes["idle"] != "0" {
                words += &format!(", {} idle beside them", axes["idle"]);
            }
            words
        }
    }
}

/// The best and the worst of the rows of one point, which stand in this order.
pub(super) fn of_point(rows: &[&ResultRow]) -> String {
    let Some(best) = rows.first() else { return String::new() };
    let worst = rows.last().filter(|worst| worst.arm != best.arm);
    let lead = format!("{}: {}", best.arm, ratio_in_words(best));
    match worst {
        Some(worst) => format!("{lead}; {}: {}", worst.arm, ratio_in_words(worst)),
        None => lead,
    }
}

/// How much worse each arm gets from the narrowest to the widest point of the curve; of a curve of
/// one point, what is said of a point.
pub(super) fn of_curve(
    plan: &Plan,
    widest: &PlannedPoint,
    record: &Record,
    rows: &[&ResultRow],
    curve: Curve,
) -> String {
    let at = |point: &PlannedPoint| place(point, curve.axis);
    let points = plan.points.iter().filter(|other| is_same_curve(widest, other));
    let narrow = points.filter(|point| at(point) >= curve.from).min_by_key(|point| at(point));
    let Some(narrow) = narrow.filter(|narrow| at(narrow) < at(widest)) else {
        return of_point(rows);
    };
    let narrow_rows = rows_of(plan, narrow, record);
    let worse: Vec<(f64, &ResultRow)> = rows
        .iter()
        .filter_map(|row| {
            let from = narrow_rows.iter().find(|other| other.arm == row.arm)?.value?;
            Some((worse_by(row, from)?, *row))
        })
        .collect();
    let kept: Vec<&str> =
        worse.iter().filter(|(by, _)| *by < KEPT).map(|(_, row)| row.arm.as_str()).collect();
    let (verb, from) =
        (if rows.iter().all(|row| row.more_is_better) { "lose" } else { "rise" }, at(narrow));
    let worst = worse.iter().max_by(|a, b| a.0.total_cmp(&b.0));
    let worst = worst.map_or(String::new(), |(by, row)| {
        format!("{} {verb}s {:.0} % from {from} {} on", row.arm, by * 100.0, curve.axis)
    });
    match kept.is_empty() {
        true => format!("every mechanism {verb}s; {worst}"),
        false => format!(
            "{} {verb} less than {:.0} %; {worst}",
            one_or_more(&kept).replace(" or ", " and "),
            KEPT * 100.0
        ),
    }
}

/// The share by which a value is worse than `from`: what a rate has lost, what a cost has gained.
fn worse_by(row: &ResultRow, from: f64) -> Option<f64> {
    let change = row.value? / from - 1.0;
    Some(if row.more_is_better { -change } else { change })
}

/// Floors and other people's programs with their ratios, the best first; nothing where there are
/// none.
pub(super) fn beside(others: &[&ResultRow]) -> String {
    let named = others.iter().take(BESIDE_MAX).filter_map(|row| {
        let ratio = row.ratio?;
        Some(format!("{} {ratio:.2}", row.arm))
    });
    let named: Vec<String> = named.collect();
    if named.is_empty() { String::new() } else { format!("; beside it {}", named.join(", ")) }
}

/// Names in a row with `or` before the last.
pub(super) fn one_or_more(names: &[&str]) -> String {
    match names {
        [] => "none".to_owned(),
        [one] => (*one).to_owned(),
        [rest @ .., last] => format!("{} or {last}", rest.join(", ")),
    }
}

fn ratio_in_words(row: &ResultRow) -> String {
    match (row.ratio, row.ci_low, row.ci_high) {
        (Some(ratio), Some(low), Some(high)) => {
            format!("{ratio:.2} of {} [{low:.2}, {high:.2}]", row.baseline)
        }
        (Some(_), ..) if row.verdict == Verdict::Baseline => "the baseline".to_owned(),
        (Some(ratio), ..) => format!("{ratio:.2} of {}", row.baseline),
        _ => "not measured".to_owned(),
    }
}
