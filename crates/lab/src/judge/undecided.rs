//! What an answer says where the verdicts rule nothing out: which way it leans, or how far apart the
//! arms can be at most.
//!
//! Called by `answer`. Verdicts are corrected for all comparisons of a run, so a short run decides
//! little; the 95 % interval of each arm still bounds what may hide in it. What is said here is never
//! called a verdict: it says "probably", or names the bound.

use super::answer::{any_but, gain, leaders};
use super::reason::one_or_more;
use super::rest::more_sets;
use crate::record::{ResultRow, Verdict};
use crate::stats::SETS_MIN;
use pollux_report::change::effect_in_words;

/// A bound beyond this says nothing: a choice between arms depends on half as much again.
const BOUND_MAX: f64 = 0.5;
/// Stands behind every "probably".
const LIKELY: &str = "probable by 95 % intervals, not certain after the correction for all \
                      comparisons of the run";

/// A choice, and what has to stand behind the reason for it.
pub(super) struct Leaning {
    pub(super) choice: String,
    pub(super) remark: Option<String>,
}

/// What the intervals of these rows allow to say; the baseline among them has none.
pub(super) fn leaning(rows: &[&ResultRow]) -> Leaning {
    let rests_on_little = |row: &&ResultRow| {
        row.verdict != Verdict::Baseline && row.turns.is_some() && row.blocks < SETS_MIN
    };
    if rows.iter().copied().any(|row| rests_on_little(&row)) {
        let remark = Some(format!("fewer than {SETS_MIN} sets"));
        return Leaning { choice: "not decided".to_owned(), remark };
    }
    let likely = |names: &str| Leaning {
        choice: format!("probably {names}"),
        remark: Some(LIKELY.to_owned()),
    };
    let best = leaders(rows, &|row| gain(row).is_some_and(|gain| gain.low > counts_from(row)));
    if !best.is_empty() {
        return likely(&one_or_more(&best));
    }
    let is_behind =
        |row: &ResultRow| gain(row).is_some_and(|gain| gain.high < 1.0 / counts_from(row));
    let names = |is_wanted: bool| -> Vec<&str> {
        rows.iter().filter(|row| is_behind(row) == is_wanted).map(|row| &*row.arm).collect()
    };
    let behind = names(true);
    if behind.is_empty() { bounded(rows) } else { likely(&not(&behind, &names(false))) }
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
fn bounded(rows: &[&ResultRow]) -> Leaning {
    let not_decided = Leaning { choice: "not decided".to_owned(), remark: None };
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
    Leaning { choice, remark: Some(remark + &more(rows)) }
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

    fn row(arm: &str, interval: [f64; 2]) -> ResultRow {
        let row = row_for_tests(arm, Verdict::Inconclusive).within(interval);
        ResultRow { no_difference: 0.13, ..row }
    }

    fn baseline() -> ResultRow {
        ResultRow { ratio: Some(1.0), ..row_for_tests("epoll", Verdict::Baseline) }
    }

    fn said(mut rows: Vec<ResultRow>) -> (String, String) {
        rows.push(baseline());
        let leaning = leaning(&rows.iter().collect::<Vec<_>>());
        (leaning.choice, leaning.remark.unwrap_or_default())
    }

    #[test]
    fn where_all_intervals_are_near_the_baseline_the_bound_is_the_answer() {
        let (choice, remark) = said(vec![row("poll", [0.94, 1.198]), row("aio", [0.85, 1.10])]);
        assert_eq!(choice, "no difference larger than 20 % was found");
        assert_eq!(remark, "by 95 % intervals none is farther from epoll than 20 %");
        let wide = said(vec![row("poll", [0.60, 1.40])]);
        assert_eq!(wide, ("not decided".to_owned(), String::new()));
        assert_eq!(said(Vec::new()).0, "not decided");
        let noisy = ResultRow { no_difference: 0.73, ..row("poll", [0.9, 1.1]) };
        assert_eq!(said(vec![noisy]).0, "not decided", "the same program twice is not so near");
        assert_eq!(said(vec![row("poll", [f64::NAN, 1.0])]).0, "not decided");
        let once = ResultRow { ci_low: None, ci_high: None, ..row("aio", [1.0, 1.0]) };
        assert_eq!(said(vec![row("poll", [0.94, 1.1]), once]).0, "not decided", "of one block");
    }

    #[test]
    fn what_lies_beyond_noise_by_its_own_interval_is_likely() {
        let slow = row("epoll-oneshot", [0.49, 0.74]);
        let rest = [row("poll", [1.11, 1.31]), row("select", [1.02, 1.24]), row("aio", [0.9, 1.2])];
        let (choice, remark) = said([vec![slow.clone()], rest.to_vec()].concat());
        assert_eq!(choice, "probably not epoll-oneshot");
        assert_eq!(remark, LIKELY);
        assert_eq!(said(vec![slow.clone(), row("aio", [0.9, 1.2])]).0, "probably aio or epoll");
        // Ahead beyond noise comes first; an arm that overlaps the best is as good.
        let fast = vec![row("poll", [1.2, 1.4]), row("select", [1.15, 1.25]), slow];
        assert_eq!(said(fast).0, "probably poll or select");
    }

    #[test]
    fn of_costs_less_is_ahead() {
        let cost = |arm, interval| row(arm, interval).of_cost("CPU");
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
