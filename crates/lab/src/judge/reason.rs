//! The words of an answer: what kind of load, by how much, what loses, what stands beside it.

use pollux_report::change::{TIMES_MIN, effect_in_words, interval_in_words, size_in_words};

use super::answer::{is_same_curve, measured, place};
use crate::experiments::Curve;
use crate::plan::{Plan, PlannedPoint};
use crate::record::{Record, ResultRow, Verdict};

/// A value counts as kept over an axis when it gets worse by less than this.
const KEPT: f64 = 0.15;
/// Most other systems that an answer names.
const BESIDE_MAX: usize = 5;

/// The kind of load of a point.
pub(super) fn load(point: &PlannedPoint) -> String {
    point.experiment.load(&point.point.axes)
}

/// The best and the worst of the rows of one point, which stand in this order.
pub(super) fn of_point(rows: &[&ResultRow]) -> String {
    let Some(best) = rows.first() else { return String::new() };
    let worst = rows.last().filter(|worst| worst.arm != best.arm);
    match worst {
        Some(worst) => format!("{}; {}", difference(best), difference(worst)),
        None => difference(best),
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
    let narrow_rows: Vec<&ResultRow> = measured(plan, narrow, record).collect();
    let worse: Vec<(f64, &ResultRow)> = rows
        .iter()
        .filter_map(|row| {
            let from = narrow_rows.iter().find(|other| other.arm == row.arm)?.value?;
            Some((worse_by(row, from)?, *row))
        })
        .collect();
    let kept: Vec<&str> =
        worse.iter().filter(|(by, _)| *by < KEPT).map(|(_, row)| row.arm.as_str()).collect();
    let best = rows.first().filter(|best| best.verdict != Verdict::Baseline);
    let best = best.map_or_else(String::new, |best| format!("{}; ", difference(best)));
    let is_rate = rows.iter().all(|row| row.more_is_better);
    let (verb, worsens) = if is_rate { ("lose", "get slower") } else { ("rise", "cost more") };
    let (from, to) = (at(narrow), at(widest));
    let worst = worse.iter().max_by(|a, b| a.0.total_cmp(&b.0));
    let worst = worst.map_or_else(String::new, |(by, row)| {
        let change = match (row.more_is_better, *by) {
            (true, by) if by < 0.0 => format!("gains {:.0} %", -by * 100.0),
            (true, by) => format!("loses {:.0} %", by * 100.0),
            (false, by) if by < 0.0 => format!("falls {:.0} %", -by * 100.0),
            (false, by) if by >= TIMES_MIN - 1.0 => format!("rises to {:.1} times", 1.0 + by),
            (false, by) => format!("rises {:.0} %", by * 100.0),
        };
        format!("{} {change} from {from} to {to} {}", row.arm, curve.axis)
    });
    let percent = KEPT * 100.0;
    let trend = match kept.as_slice() {
        [] => format!("all {worsens} with more {}; ", curve.axis),
        [one] => format!("{one} {verb}s less than {percent:.0} %; "),
        all => {
            format!(
                "{} {verb} less than {percent:.0} %; ",
                one_or_more(all).replace(" or ", " and ")
            )
        }
    };
    format!("{best}{trend}{worst}")
}

/// The share by which a value is worse than `from`: what a rate has lost, what a cost has gained.
fn worse_by(row: &ResultRow, from: f64) -> Option<f64> {
    let change = row.value? / from - 1.0;
    Some(if row.more_is_better { -change } else { change })
}

/// Baseline servers and other people's programs with their ratios, the best first; nothing where there are
/// none.
pub(super) fn beside(others: &[&ResultRow]) -> String {
    let named = others.iter().take(BESIDE_MAX).filter_map(|row| {
        let ratio = row.ratio?;
        Some(format!("{} {ratio:.2}×", row.arm))
    });
    let named: Vec<String> = named.collect();
    if named.is_empty() { String::new() } else { format!("; external: {}", named.join(", ")) }
}

/// Names in a row with `or` before the last.
pub(super) fn one_or_more(names: &[&str]) -> String {
    match names {
        [] => "none".to_owned(),
        [one] => (*one).to_owned(),
        [rest @ .., last] => format!("{} or {last}", rest.join(", ")),
    }
}

/// How far a row is from the baseline, in the words of its metric: rates and costs are both "more"
/// or "less", and which of them is better stands in the choice.
fn difference(row: &ResultRow) -> String {
    let ResultRow { arm, metric, baseline, .. } = row;
    if row.verdict == Verdict::Baseline {
        return format!("{arm} is the baseline");
    }
    let Some(ratio) = row.ratio else { return format!("{arm}: not measured") };
    if let (Some(_), Some(low), Some(high)) = (row.turns, row.ci_low, row.ci_high) {
        return in_turns(row, [ratio, low, high]);
    }
    let interval = match (row.ci_low, row.ci_high) {
        (Some(low), Some(high)) => format!(" [{low:.2}, {high:.2}]"),
        _ => String::new(),
    };
    if ratio >= TIMES_MIN {
        return format!("{arm}: {ratio:.1} times the {metric} of {baseline}{interval}");
    }
    let percent = ((ratio - 1.0) * 100.0).round();
    match percent as i64 {
        0 => format!("{arm}: as much {metric} as {baseline}{interval}"),
        1.. => format!("{arm}: {percent} % more {metric} than {baseline}{interval}"),
        _ => format!("{arm}: {} % {} {metric} than {baseline}{interval}", -percent, less(metric)),
    }
}

/// What is counted is fewer, what is measured is less.
fn less(metric: &str) -> &'static str {
    let first = metric.split(' ').next().unwrap_or_default();
    if first.ends_with('s') { "fewer" } else { "less" }
}

/// The same of an arm that took turns, whose interval is narrow enough for tenths of a percent.
fn in_turns(row: &ResultRow, [ratio, low, high]: [f64; 3]) -> String {
    let ResultRow { arm, metric, baseline, .. } = row;
    let (size, interval) = (size_in_words(ratio), interval_in_words(ratio, low, high));
    let words = match row.verdict {
        Verdict::Equivalent => {
            let effect = effect_in_words(row.no_difference);
            format!("{arm}: as much {metric} as {baseline} within {effect}: {size} {interval}")
        }
        _ if ratio >= TIMES_MIN => format!("{arm}: {size} the {metric} of {baseline} {interval}"),
        _ => format!("{arm}: {size} {metric} than {baseline} {interval}"),
    };
    let remark = match row.verdict {
        Verdict::Inconclusive => ", undecided",
        _ if row.is_small_difference() => ", a small difference",
        _ => "",
    };
    words + remark
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{row_for_tests, row_in_turns};

    fn row(ratio: f64, verdict: Verdict) -> ResultRow {
        row_for_tests("poll", verdict).told([ratio, ratio - 0.01, ratio + 0.01])
    }

    #[test]
    fn differences_are_reported_in_words_of_the_metric() {
        let rate = row(1.2, Verdict::Faster);
        assert_eq!(difference(&rate), "poll: 20 % more events per second than epoll [1.19, 1.21]");
        let cost = |ratio| row(ratio, Verdict::Slower).of_cost("server CPU per request");
        for (ratio, words) in [
            (0.85, "poll: 15 % less server CPU per request than epoll [0.84, 0.86]"),
            (1.001, "poll: as much server CPU per request as epoll [0.99, 1.01]"),
            (22.8, "poll: 22.8 times the server CPU per request of epoll [22.79, 22.81]"),
        ] {
            assert_eq!(difference(&cost(ratio)), words);
        }
        let fewer = "poll: 10 % fewer events per second than epoll [0.89, 0.91]";
        assert_eq!(difference(&row(0.9, Verdict::Slower)), fewer);
        assert_eq!(difference(&row(1.0, Verdict::Baseline)), "poll is the baseline");
    }

    #[test]
    fn what_took_turns_is_asked_to_a_tenth_of_a_percent() {
        use Verdict::{Equivalent, Faster, Inconclusive, Slower};
        for (verdict, interval, words) in [
            (Faster, [0.984, 0.978, 0.99], "1.6 % less CPU per event than epoll [1.0, 2.2]"),
            (
                Slower,
                [1.008, 1.004, 1.012],
                "0.8 % more CPU per event than epoll [0.4, 1.2], a small difference",
            ),
            (
                Equivalent,
                [1.002, 0.995, 1.009],
                "as much CPU per event as epoll within 2 %: 0.2 % more [-0.5, 0.9]",
            ),
            (
                Inconclusive,
                [1.014, 0.995, 1.033],
                "1.4 % more CPU per event than epoll [-0.5, 3.3], undecided",
            ),
            (Slower, [22.8, 22.5, 23.1], "22.8 times the CPU per event of epoll [22.5, 23.1]"),
        ] {
            assert_eq!(
                difference(&row_in_turns("poll", verdict).told(interval)),
                format!("poll: {words}")
            );
        }
    }
}
