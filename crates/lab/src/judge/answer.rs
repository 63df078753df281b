//! One line for each kind of load: which mechanism, by how much.

use super::is_plain_poller;
use crate::experiment::Experiment;
use crate::plan::{Plan, PlannedPoint};
use crate::record::{Answer, Record, ResultRow, Verdict};

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
    let reason = match point.experiment {
        Experiment::Streams => rate_reason(best, &rows),
        Experiment::Pipes => curve_reason(plan, point, record, best),
    };
    Some(Answer { load: load(point), choice: choice(&rows), reason })
}

/// Those that were shown to be faster than the baseline and no worse than the best of them;
/// where there are none, everything that was not shown to be slower.
fn choice(rows: &[&ResultRow]) -> String {
    let names = |wanted: &dyn Fn(&ResultRow) -> bool| -> Vec<&str> {
        rows.iter().filter(|row| wanted(row)).map(|row| row.arm.as_str()).collect()
    };
    let best_low = rows.iter().find(|row| row.verdict == Verdict::Faster).and_then(|r| r.ci_low);
    if let Some(best_low) = best_low {
        return one_or_more(&names(&|row| {
            row.verdict == Verdict::Faster && row.ci_high.is_some_and(|high| high >= best_low)
        }));
    }
    let slower = names(&|row| row.verdict == Verdict::Slower);
    let rest = names(&|row| row.verdict != Verdict::Slower);
    match (slower.len(), rest.len()) {
        (0, 1) => rest[0].to_owned(),
        (0, _) if rows.iter().any(|row| row.verdict == Verdict::Inconclusive) => {
            "not decided".to_owned()
        }
        (0, _) => "no difference".to_owned(),
        (_, NAMES_MIN..) => format!("any but {}", one_or_more(&slower).replace(" or ", " and ")),
        _ => one_or_more(&rest),
    }
}

/// From so many names on it is shorter to say which are not meant.
const NAMES_MIN: usize = 4;

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
        (Some(_), ..) => "the baseline".to_owned(),
        _ => "not measured".to_owned(),
    }
}

fn rate_reason(best: &ResultRow, rows: &[&ResultRow]) -> String {
    let worst = rows.last().filter(|worst| worst.arm != best.arm);
    let lead = format!("{}: {}", best.arm, ratio_in_words(best));
    match worst {
        Some(worst) => format!("{lead}; {}: {}", worst.arm, ratio_in_words(worst)),
        None => lead,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn row(arm: &str, interval: [f64; 2], verdict: Verdict) -> ResultRow {
        ResultRow {
            experiment: "streams".into(),
            point: "pipe".into(),
            axes: std::collections::BTreeMap::new(),
            arm: arm.into(),
            metric: "events per second".into(),
            more_is_better: true,
            value: Some(1.0),
            value_half_width: None,
            unit: "events/s".into(),
            baseline: "epoll".into(),
            ratio: Some(f64::midpoint(interval[0], interval[1])),
            ratio_median: None,
            ci_low: Some(interval[0]),
            ci_high: Some(interval[1]),
            verdict,
            more_blocks: None,
            blocks: 12,
            no_difference: 0.03,
            method: String::new(),
            outliers: 0,
            notes: Vec::new(),
        }
    }

    fn chosen(rows: &[ResultRow]) -> String {
        choice(&rows.iter().collect::<Vec<_>>())
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
        let open = row("b", [0.7, 1.5], Verdict::Inconclusive);
        assert_eq!(chosen(&[same("a"), open]), "not decided");
        assert_eq!(chosen(&[same("a"), same("b"), slower("c")]), "a or b");
        let many = [same("a"), same("b"), same("c"), same("d"), slower("e"), slower("f")];
        assert_eq!(chosen(&many), "any but e and f");
    }
}
