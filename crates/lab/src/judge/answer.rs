//! One line for each kind of load: which mechanism, by how much.
//!
//! Verdicts are corrected for all comparisons of a run, so a short run decides little; the 95 % interval of each arm
//! still bounds what may hide in it. Where the verdicts rule nothing out the answer therefore says which way it leans,
//! or how far apart the arms can be at most. That is never called a verdict: it says "probably", or names the bound.
//!
//! The words of the reasons are in `why.rs`; here it is decided for which rows they are given.

use pollux_report::number::effect_in_words;
use pollux_stats::SETS_MIN;

use super::estimates::more_sets;
use super::why::{self, one_or_more};
use super::{forms, is_plain_driver};
use crate::axis::Value;
use crate::experiments::PROCESSES;
use crate::plan::{Plan, PlannedPoint, SAME_AGAIN};
use crate::published;
use crate::record::{Answer, Record, ResultRow, Verdict};

/// From so many names on it is shorter to say which are not meant.
const NAMES_MIN: usize = 4;
/// What is said of a load at which only one arm could be judged.
const ALONE: &str = "nothing to compare with";
/// A bound beyond this says nothing: a choice between arms depends on half as much again.
const BOUND_MAX: f64 = 0.5;
/// Stands behind every "probably".
const LIKELY: &str = "probable by 95 % intervals, not certain after the correction for all \
                      comparisons of the run";

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
            // Two sentences on forms are of one load.
            let is_one_load = forms::stand_at(point);
            !is_one_load
                && answer.choice == found.choice
                && point.experiment.span.is_some_and(differs)
        };
        match (answers.iter_mut().rfind(same), point.experiment.span) {
            (Some((first, answer)), Some(span)) => {
                let at = place(point, span);
                answer.reason = format!("at {at} {span}: {}", found.reason);
                (answer.place, answer.better) = (found.place, found.better);
                let words = format!("{} to {at}", place(first, span));
                // A point that stands for all from the first to this one.
                let mut all = first.clone();
                all.point.axes.set(span, Value::Word(words));
                answer.load = why::load(&all);
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
    let (mut choice, mut reason) = match rows.len() {
        1 => (ALONE.to_owned(), format!("only {} could be judged", first.arm)),
        _ => {
            let Recommendation { choice, lead, remark } = choice(&rows);
            // What is said first is of the arm that the card names.
            let lead = rows.iter().copied().find(|row| lead.as_ref() == Some(&row.arm));
            let mut reason = match point.experiment.curve {
                Some(curve) => why::of_curve(plan, point, record, &rows, lead, curve),
                None => why::of_point(&rows, lead),
            };
            if let Some(remark) = remark {
                reason.push_str(&format!("; {remark}"));
            }
            (choice, reason)
        }
    };
    reason.push_str(&why::beside(&beside));
    for (arm, why) in failed {
        reason.push_str(&format!("; {arm}: {why}"));
    }
    let place = Some([plan.part_name(point).to_owned(), point.point.label.clone()]);
    if let Some((form, sentences)) = forms::answer(plan, point, record) {
        (choice, reason) = (form, sentences);
    }
    let better = better(&rows).into_iter().map(str::to_owned).collect();
    Some(Answer { load: why::load(point), choice, reason, place, better })
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
    // The row itself says why.
    let how_many = |note: &'a String| note.split_once(": ").map_or(note.as_str(), |(what, _)| what);
    failed.map(|row| (&*row.arm, row.notes.first().map_or("failed", how_many))).collect()
}

/// Those that were shown to be better than the baseline and no worse than the best of them; where
/// there are none, everything that was shown not to be worse. Where nothing was shown, what the
/// intervals still allow to say. A small difference, one within the minimum effect, chooses nothing.
fn choice(rows: &[&ResultRow]) -> Recommendation {
    let decided = |choice: String, named: &[&str]| Recommendation {
        choice,
        lead: named.first().map(|name| (*name).to_owned()),
        remark: None,
    };
    let is = |row: &ResultRow, verdict| row.verdict == verdict && !row.is_small_difference();
    let best = better(rows);
    if !best.is_empty() {
        return Recommendation { remark: unsettled(rows), ..decided(one_or_more(&best), &best) };
    }
    let names = |is_wanted: &dyn Fn(&ResultRow) -> bool| -> Vec<&str> {
        rows.iter().filter(|row| is_wanted(row)).map(|row| row.arm.as_str()).collect()
    };
    let is_open = |row: &ResultRow| row.verdict == Verdict::Inconclusive;
    let slower = names(&|row| is(row, Verdict::Slower));
    let open = names(&is_open);
    let rest = names(&|row| !is(row, Verdict::Slower) && !is_open(row));
    match (slower.is_empty(), open.is_empty()) {
        (false, true) => decided(any_but(&slower, &rest), &rest),
        (false, false) => {
            let named = if rest.is_empty() { &open } else { &rest };
            let remark = format!("undecided: {}", open.join(", "));
            let why = unsettled(rows).map_or_else(String::new, |why| format!("; {why}"));
            let remark = Some(remark + &why);
            Recommendation { remark, ..decided(one_or_more(named), named) }
        }
        (true, false) => recommendation(rows),
        (true, true) => decided(equal(rows), &[]),
    }
}

/// Those that were shown to be better than the baseline, by more than what is small, and no worse than the best.
fn better<'a>(rows: &[&'a ResultRow]) -> Vec<&'a str> {
    leaders(rows, &|row| row.verdict == Verdict::Faster && !row.is_small_difference())
}

/// Of those that are better the ones that reach the best.
fn leaders<'a>(rows: &[&'a ResultRow], is_better: &dyn Fn(&ResultRow) -> bool) -> Vec<&'a str> {
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
fn any_but(worse: &[&str], rest: &[&str]) -> String {
    match rest.len() {
        NAMES_MIN.. => format!("any but {}", one_or_more(worse).replace(" or ", " and ")),
        _ => one_or_more(rest),
    }
}

/// A ratio with its interval, turned so that more is better.
pub(super) struct Gain {
    pub(super) ratio: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

fn gain(row: &ResultRow) -> Option<Gain> {
    // Of few sets the bounds hold where the interval may not.
    let interval = row.bounds.map(|[low, high]| (low, high)).or(row.ci_low.zip(row.ci_high));
    let (ratio, (low, high)) = (row.ratio?, interval?);
    Some(if row.more_is_better {
        Gain { ratio, low, high }
    } else {
        Gain { ratio: 1.0 / ratio, low: 1.0 / high, high: 1.0 / low }
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
    let part = plan.part_name(point).to_owned();
    let label = point.point.label.clone();
    record.results.iter().filter(move |row| row.experiment == part && row.point == label)
}

/// A choice, and what has to stand behind the reason for it.
pub(super) struct Recommendation {
    pub(super) choice: String,
    /// The first of the arms that it names, where it names some.
    pub(super) lead: Option<String>,
    pub(super) remark: Option<String>,
}

/// What the intervals of these rows allow to say; the baseline among them has none.
fn recommendation(rows: &[&ResultRow]) -> Recommendation {
    // What still changes may end anywhere, however narrow its interval.
    if let remark @ Some(_) = unsettled(rows) {
        return Recommendation { choice: "not decided".to_owned(), lead: None, remark };
    }
    let rests_on_little = |row: &&ResultRow| {
        row.verdict != Verdict::Baseline
            && row.turns.is_some()
            && row.blocks < SETS_MIN
            && row.bounds.is_none()
    };
    let little: Vec<&ResultRow> = rows.iter().copied().filter(rests_on_little).collect();
    if !little.is_empty() {
        let has_one_set = little.iter().any(|row| row.blocks < 2);
        let remark =
            has_one_set.then(|| "two sets at least are needed for any interval".to_owned());
        return Recommendation { choice: "not decided".to_owned(), lead: None, remark };
    }
    let likely = |names: &str, lead: Option<&&str>| Recommendation {
        choice: format!("probably {names}"),
        lead: lead.map(|name| (*name).to_owned()),
        remark: Some(LIKELY.to_owned()),
    };
    let best = leaders(rows, &|row| gain(row).is_some_and(|gain| gain.low > counts_from(row)));
    if !best.is_empty() {
        return likely(&one_or_more(&best), best.first());
    }
    let is_behind =
        |row: &ResultRow| gain(row).is_some_and(|gain| gain.high < 1.0 / counts_from(row));
    let names = |is_wanted: bool| -> Vec<&str> {
        rows.iter().filter(|row| is_behind(row) == is_wanted).map(|row| &*row.arm).collect()
    };
    let behind = names(true);
    let rest = names(false);
    if behind.is_empty() { bounded(rows) } else { likely(&not(&behind, &rest), rest.first()) }
}

/// Why rows have no verdict whose cost still changed; what is the same of several is said once.
fn unsettled(rows: &[&ResultRow]) -> Option<String> {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in rows {
        let Some(why) = row.unsettled.as_deref() else { continue };
        match found.iter_mut().find(|(said, _)| *said == why) {
            Some((_, arms)) => arms.push(&row.arm),
            None => found.push((why, vec![&row.arm])),
        }
    }
    let said = found.iter().map(|(why, arms)| format!("{}: {why}", arms.join(", ")));
    let said: Vec<String> = said.collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// The names that are left, or where those are many the ones that are not.
fn not(behind: &[&str], rest: &[&str]) -> String {
    let any_but = any_but(behind, rest);
    any_but.strip_prefix("any but ").map_or(any_but.clone(), |names| format!("not {names}"))
}

/// Where all arms are decided and none is chosen or ruled out.
pub(super) fn equal(rows: &[&ResultRow]) -> String {
    let in_turns = rows.iter().filter(|row| row.turns.is_some());
    match in_turns.map(|row| row.no_difference).reduce(f64::max) {
        Some(effect) => format!("equal within {}", effect_in_words(effect)),
        None => "no difference".to_owned(),
    }
}

/// The ratio beyond which an interval leans to one side: of whole runs it must leave the noise behind,
/// turns have none.
fn counts_from(row: &ResultRow) -> f64 {
    if row.turns.is_some() && !row.is_within_minimum() { 1.0 } else { 1.0 + row.no_difference }
}

/// How far the farthest interval reaches from the baseline, if that says anything. An arm without an
/// interval could be anywhere, and none is known better than the same program twice.
fn bounded(rows: &[&ResultRow]) -> Recommendation {
    let not_decided = Recommendation { choice: "not decided".to_owned(), lead: None, remark: None };
    let compared = rows.iter().filter(|row| row.verdict != Verdict::Baseline);
    let reach = |row: &&ResultRow| {
        let gain = gain(row).filter(|gain| gain.low > 0.0 && gain.high.is_finite())?;
        Some(gain.high.max(1.0 / gain.low).max(1.0 + row.no_difference))
    };
    let reaches: Option<Vec<f64>> = compared.map(reach).collect();
    let farthest = reaches.and_then(|reaches| reaches.into_iter().reduce(f64::max));
    let Some(farthest) = farthest.filter(|farthest| *farthest <= 1.0 + BOUND_MAX) else {
        return not_decided;
    };
    let percent = ((farthest - 1.0) * 100.0).ceil();
    let baseline = rows[0].baseline.as_str();
    let remark = format!("by 95 % intervals none is farther from {baseline} than {percent:.0} %");
    let choice = format!("no difference larger than {percent:.0} % was found");
    Recommendation { choice, lead: None, remark: Some(remark + &more(rows)) }
}

/// What would decide, where the arms took turns.
fn more(rows: &[&ResultRow]) -> String {
    let in_turns = rows.iter().filter(|row| row.turns.is_some());
    match in_turns.filter_map(|row| row.more_blocks).max() {
        Some(sets) => format!("; {} would decide", more_sets(sets)),
        None => String::new(),
    }
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

    fn undecided(arm: &str, interval: [f64; 2]) -> ResultRow {
        let row = row_for_tests(arm, Verdict::Inconclusive).within(interval);
        ResultRow { no_difference: 0.13, ..row }
    }

    fn baseline() -> ResultRow {
        ResultRow { ratio: Some(1.0), ..row_for_tests("epoll", Verdict::Baseline) }
    }

    fn said(mut rows: Vec<ResultRow>) -> (String, String) {
        rows.push(baseline());
        let recommendation = recommendation(&rows.iter().collect::<Vec<_>>());
        (recommendation.choice, recommendation.remark.unwrap_or_default())
    }

    #[test]
    fn where_all_intervals_are_near_the_baseline_the_bound_is_the_answer() {
        let (choice, remark) =
            said(vec![undecided("poll", [0.94, 1.198]), undecided("aio", [0.85, 1.10])]);
        assert_eq!(choice, "no difference larger than 20 % was found");
        assert_eq!(remark, "by 95 % intervals none is farther from epoll than 20 %");
        let wide = said(vec![undecided("poll", [0.60, 1.40])]);
        assert_eq!(wide, ("not decided".to_owned(), String::new()));
        assert_eq!(said(Vec::new()).0, "not decided");
        let noisy = ResultRow { no_difference: 0.73, ..undecided("poll", [0.9, 1.1]) };
        assert_eq!(said(vec![noisy]).0, "not decided", "the same program twice is not so near");
        assert_eq!(said(vec![undecided("poll", [f64::NAN, 1.0])]).0, "not decided");
        let once = ResultRow { ci_low: None, ci_high: None, ..undecided("aio", [1.0, 1.0]) };
        assert_eq!(
            said(vec![undecided("poll", [0.94, 1.1]), once]).0,
            "not decided",
            "of one block"
        );
    }

    #[test]
    fn a_card_says_what_still_changes_and_calls_nothing_of_it_probable() {
        let why = "getting dearer: 14.7 to 32.8 µs; --ramp-time shows whether that ends";
        let moving = |arm: &str, interval| {
            let row = row_in_turns(arm, Verdict::Inconclusive).within(interval);
            // As the judge leaves it: four sets, no bounds.
            ResultRow { unsettled: Some(why.to_owned()), blocks: 4, ..row }
        };
        let not_decided = |arms: &str| ("not decided".to_owned(), format!("{arms}: {why}"));
        assert_eq!(said(vec![moving("dear", [2.3, 6.1])]), not_decided("dear"));
        let two = vec![moving("dear", [2.3, 6.1]), moving("more", [1.3, 1.5])];
        assert_eq!(said(two), not_decided("dear, more"));
        let faster = row_in_turns("new", Verdict::Faster).within([0.5, 0.6]);
        let rows = [baseline(), faster, moving("dear", [2.3, 6.1])];
        let chosen = choice(&rows.iter().collect::<Vec<_>>());
        assert_eq!((chosen.choice.as_str(), chosen.remark), ("new", Some(format!("dear: {why}"))));
    }

    #[test]
    fn what_lies_beyond_noise_by_its_own_interval_is_likely() {
        let slow = undecided("epoll-oneshot", [0.49, 0.74]);
        let rest = [
            undecided("poll", [1.11, 1.31]),
            undecided("select", [1.02, 1.24]),
            undecided("aio", [0.9, 1.2]),
        ];
        let (choice, remark) = said([vec![slow.clone()], rest.to_vec()].concat());
        assert_eq!(choice, "probably not epoll-oneshot");
        assert_eq!(remark, LIKELY);
        assert_eq!(
            said(vec![slow.clone(), undecided("aio", [0.9, 1.2])]).0,
            "probably aio or epoll"
        );
        // Ahead beyond noise comes first; an arm that overlaps the best is as good.
        let fast = vec![undecided("poll", [1.2, 1.4]), undecided("select", [1.15, 1.25]), slow];
        assert_eq!(said(fast).0, "probably poll or select");
    }

    #[test]
    fn of_costs_less_is_ahead() {
        let cost = |arm, interval| undecided(arm, interval).of_cost("CPU");
        assert_eq!(said(vec![cost("uring", [0.75, 0.85])]).0, "probably uring");
        assert_eq!(said(vec![cost("poll", [3.0, 4.0])]).0, "probably epoll");
    }

    #[test]
    fn turns_have_no_noise_to_leave_behind_and_say_how_many_sets_are_missing() {
        let turned = |arm, interval, more_blocks| {
            let row = row_in_turns(arm, Verdict::Inconclusive).within(interval);
            ResultRow { more_blocks, ..row }
        };
        assert_eq!(said(vec![turned("uring", [0.965, 0.995], Some(2))]).0, "probably uring");
        let open =
            vec![turned("uring", [0.985, 1.028], Some(3)), turned("poll", [0.99, 1.01], None)];
        let (choice, remark) = said(open);
        assert_eq!(choice, "no difference larger than 3 % was found");
        assert_eq!(
            remark,
            "by 95 % intervals none is farther from epoll than 3 %; about 3 more sets would decide"
        );
        let small =
            vec![turned("uring", [0.985, 0.998], Some(1)), turned("poll", [0.9, 1.1], None)];
        let nothing = "no difference larger than 12 % was found";
        assert_eq!(said(small).0, nothing, "a small difference chooses nothing");
    }
}
