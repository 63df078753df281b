//! One line for each kind of load: which mechanism, by how much.

use super::is_plain_poller;
use crate::experiment::Experiment;
use crate::plan::{Plan, PlannedPoint};
use crate::record::{Answer, Record, ResultRow};

/// A rate counts as kept over an axis when less than this share is lost.
const KEPT: f64 = 0.15;

/// The answers of a judged record.
pub(super) fn of(plan: &Plan, record: &Record) -> Vec<Answer> {
    let mut answers = Vec::new();
    for (index, point) in plan.points.iter().enumerate() {
        let is_last_of_axis = match point.experiment {
            Experiment::Streams => true,
            Experiment::Pipes => is_widest(plan, index),
        };
        if is_last_of_axis {
            answers.extend(answer(plan, point, record));
        }
    }
    answers
}

/// Whether no other point of the same part and rule watches more pipes.
fn is_widest(plan: &Plan, index: usize) -> bool {
    let point = &plan.points[index];
    plan.points
        .iter()
        .all(|other| !is_same_curve(point, other) || pipes_of(other) <= pipes_of(point))
}

fn is_same_curve(a: &PlannedPoint, b: &PlannedPoint) -> bool {
    let rest = |point: &PlannedPoint| {
        let mut axes = point.point.axes.clone();
        axes.remove("pipes");
        axes
    };
    a.part == b.part && rest(a) == rest(b)
}

fn pipes_of(point: &PlannedPoint) -> u64 {
    point.point.axes.get("pipes").and_then(|pipes| pipes.parse().ok()).unwrap_or_default()
}

fn answer(plan: &Plan, point: &PlannedPoint, record: &Record) -> Option<Answer> {
    let part = plan.part_name(point);
    let mut rows = rows_of(part, point, record);
    rows.sort_by(|a, b| b.ratio.unwrap_or(0.0).total_cmp(&a.ratio.unwrap_or(0.0)));
    let best = *rows.first()?;
    let best_low = best.ci_low.or(best.ratio)?;
    let as_good: Vec<&str> = rows
        .iter()
        .filter(|row| row.ci_high.or(row.ratio).is_some_and(|high| high >= best_low))
        .map(|row| row.arm.as_str())
        .collect();
    let reason = match point.experiment {
        Experiment::Streams => rate_reason(best, &rows),
        Experiment::Pipes => curve_reason(plan, point, record, best),
    };
    Some(Answer { load: load(point), choice: one_or_more(&as_good), reason })
}

fn rows_of<'a>(part: &str, point: &PlannedPoint, record: &'a Record) -> Vec<&'a ResultRow> {
    let plain = |name: &str| point.arms.iter().any(|arm| arm.name == name && is_plain_poller(arm));
    let of_point = |row: &&ResultRow| row.experiment == part && row.point == point.point.label;
    let rows = record.results.iter().filter(of_point);
    rows.filter(|row| row.ratio.is_some() && plain(&row.arm)).collect()
}

fn load(point: &PlannedPoint) -> String {
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
    }
}

fn one_or_more(names: &[&str]) -> String {
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
        (Some(_), ..) => format!("{} is the baseline", row.arm),
        _ => "not measured".to_owned(),
    }
}

fn rate_reason(best: &ResultRow, rows: &[&ResultRow]) -> String {
    let worst = rows.last().filter(|worst| worst.arm != best.arm);
    match worst {
        Some(worst) => {
            let ratio = worst.ratio.unwrap_or_default();
            let lead = ratio_in_words(best);
            format!("{lead}; last is {} with {ratio:.2}", worst.arm)
        }
        None => ratio_in_words(best),
    }
}

/// How much each arm loses from the narrowest to the widest point of the curve.
fn curve_reason(plan: &Plan, widest: &PlannedPoint, record: &Record, best: &ResultRow) -> String {
    const FROM_PIPES: u64 = 100;
    let curve = plan.points.iter().filter(|other| is_same_curve(widest, other));
    let narrow = curve.filter(|point| pipes_of(point) >= FROM_PIPES).min_by_key(|p| pipes_of(p));
    let Some(narrow) = narrow.filter(|narrow| pipes_of(narrow) < pipes_of(widest)) else {
        return ratio_in_words(best);
    };
    let part = plan.part_name(widest);
    let narrow_rows = rows_of(part, narrow, record);
    let losses: Vec<(f64, &str)> = rows_of(part, widest, record)
        .into_iter()
        .filter_map(|row| {
            let from = narrow_rows.iter().find(|other| other.arm == row.arm)?.value?;
            Some((1.0 - row.value? / from, row.arm.as_str()))
        })
        .collect();
    let kept: Vec<&str> =
        losses.iter().filter(|(loss, _)| *loss < KEPT).map(|(_, arm)| *arm).collect();
    let worst = losses.iter().max_by(|a, b| a.0.total_cmp(&b.0));
    let from = pipes_of(narrow);
    let lost = worst.map_or(String::new(), |(loss, arm)| {
        format!("{arm} loses {:.0} % from {from} pipes on", loss * 100.0)
    });
    match kept.is_empty() {
        true => format!("every mechanism loses; {lost}"),
        false => format!(
            "{} lose less than {:.0} %; {lost}",
            one_or_more(&kept).replace(" or ", " and "),
            KEPT * 100.0
        ),
    }
}
