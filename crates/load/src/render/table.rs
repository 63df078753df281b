//! The summary of a run for a terminal.
//!
//! `pollux load` shows it at the end. What makes the figures doubtful stands first and last.

use pollux_report::Tone;
use pollux_report::terminal::{Page, bar};

use super::{facts, steps};
use crate::{Distribution, Outcome};
use pollux_report::number;

/// Names at the left of the facts; the longest is a column shorter at least.
const LABEL: usize = 15;
/// Steps of the histogram's edges within a decade.
const STEPS: [u64; 3] = [1, 2, 5];
/// More rows than this are hard to take in; decades then.
const ROWS_MAX: usize = 14;
/// From the edge, share and count of a row to its bar.
const BAR_LEFT: usize = 28;
const BAR_MAX: usize = 50;

/// The outcome as text of at most `width_chars` columns (at least 40), with colours for a
/// terminal or without.
#[must_use]
pub fn table(outcome: &Outcome, width_chars: usize, colour: bool) -> String {
    let mut page = Page::new(width_chars, colour);
    findings(&mut page, outcome);
    page.labelled(("", Tone::Plain), (&facts::answer(outcome), Tone::Bold), 0);
    page.gap();
    for (name, text) in facts::summary(outcome) {
        let is_bad = name == "errors" && outcome.errors.total() > 0;
        let tone = if is_bad { Tone::Bad } else { Tone::Plain };
        page.labelled((name, Tone::Dim), (&text, tone), LABEL);
    }
    page.gap();
    page.table(&facts::times(outcome));
    histogram(&mut page, &outcome.latency);
    let grids = [
        steps::steps(outcome),
        facts::agents(outcome),
        facts::targets(outcome),
        facts::crowd(outcome),
    ];
    for grid in grids.into_iter().flatten() {
        page.gap();
        page.table(&grid);
    }
    if !outcome.findings.is_empty() {
        page.gap();
        let text = "Read the findings at the top before you believe these figures.";
        page.labelled(("", Tone::Plain), (text, Tone::Open), 0);
    }
    page.finish()
}

fn findings(page: &mut Page, outcome: &Outcome) {
    for finding in &outcome.findings {
        let [text, advice] = [&finding.text, &finding.advice].map(|text| facts::sentence(text));
        page.labelled(("!!", Tone::Bad), (&text, Tone::Bad), 3);
        page.labelled(("", Tone::Plain), (&advice, Tone::Plain), 3);
    }
    if !outcome.findings.is_empty() {
        page.gap();
    }
}

/// The latencies in classes whose edges grow by ratios, with the quantiles that end in them.
fn histogram(page: &mut Page, times: &Distribution) {
    let (Some(min), Some(max)) = (times.min_ns(), times.max_ns()) else { return };
    let edges = edges(min, max);
    let mut counts = vec![0u64; edges.len()];
    for step in times.histogram().iter_recorded() {
        let value = step.value_iterated_to();
        let class = edges.iter().position(|edge| value <= *edge).unwrap_or(edges.len() - 1);
        counts[class] += step.count_since_last_iteration();
    }
    page.gap();
    let most = counts.iter().copied().max().unwrap_or(1).max(1);
    let room = page.width().saturating_sub(BAR_LEFT + LABEL).clamp(8, BAR_MAX);
    for (index, (edge, count)) in edges.iter().zip(&counts).enumerate() {
        let below = index.checked_sub(1).map_or(0, |index| edges[index]);
        let share = number::part(*count, times.count());
        let left = format!("≤ {:<8}{share:>9} ", number::time_tick(*edge as f64));
        let bar = bar(*count as f64 / most as f64 * room as f64);
        let marks = marks(times, below, *edge);
        page.line(&[(&left, Tone::Plain), (&bar, Tone::Open), (&marks, Tone::Dim)]);
    }
}

/// Upper edges of the classes that hold all from `min` to `max`.
fn edges(min: u64, max: u64) -> Vec<u64> {
    let within = |steps: &[u64]| {
        let all = (0..19).flat_map(|power| steps.iter().map(move |step| step * 10u64.pow(power)));
        let mut edges = Vec::new();
        for edge in all.skip_while(|edge| *edge < min) {
            edges.push(edge);
            if edge >= max {
                break;
            }
        }
        edges
    };
    let fine = within(&STEPS);
    if fine.len() <= ROWS_MAX { fine } else { within(&STEPS[..1]) }
}

/// The quantiles that lie above `low` and not above `high`.
fn marks(times: &Distribution, low: u64, high: u64) -> String {
    let named = [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9")];
    let is_here = |ns: u64| ns > low && ns <= high;
    let here = named.iter().filter(|(q, _)| times.known_quantile_ns(*q).is_some_and(is_here));
    let max = times.max_ns().filter(|ns| is_here(*ns)).map(|_| "max");
    here.map(|(_, name)| *name).chain(max).fold(String::new(), |all, name| all + " " + name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn no_line_is_wider_than_asked_for() {
        let mut outcome = sample::outcome();
        outcome.targets.push(outcome.targets[0].clone());
        for width in [40, 64, 80, 132] {
            let text = table(&outcome, width, false);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(width), "{width}: {widest:?}\n{text}");
        }
    }

    #[test]
    fn every_name_stands_apart_from_what_it_names() {
        let mut outcome = sample::outcome();
        outcome.first_failure = Some("can't connect to x".to_owned());
        outcome.first_redirect = outcome.first_wrong.clone();
        outcome.server = Some(crate::ServerUse { pid: 1, cpu_s: 1.0, cpu_us_per_answer: None });
        let names: Vec<&str> = facts::summary(&outcome).iter().map(|(name, _)| *name).collect();
        assert!(names.contains(&"first failure"), "{names:?}");
        assert!(names.iter().all(|name| name.len() < LABEL), "{names:?}");
        let text = table(&outcome, 100, false);
        assert!(text.contains("first failure  can't connect"), "{text}");
        assert!(text.contains("404: 15, 503: 5"), "{text}");
        assert!(text.contains("HTTP/1.1 404 Not Found, \"<h1>gone</h1>\""), "{text}");
    }

    #[test]
    fn each_agent_has_a_row_and_a_lost_one_is_marked() {
        let mut outcome = sample::outcome();
        assert!(!table(&outcome, 100, false).contains("agent"));
        let agent = |name: &str, lost: Option<&str>| crate::AgentOutcome {
            name: name.to_owned(),
            lost: lost.map(str::to_owned),
            answered: 12_345,
            p99_ns: lost.is_none().then_some(41_200_000),
            ..crate::AgentOutcome::default()
        };
        outcome.agents = vec![agent("gen-1", None), agent("gen-2", Some("no answer"))];
        let text = table(&outcome, 120, false);
        let row = |name: &str| text.lines().find(|line| line.contains(name)).unwrap_or_default();
        assert!(row("gen-1").contains("12,345") && row("gen-1").contains("41.2 ms"), "{text}");
        assert!(row("gen-2 (lost)").contains("n/a"), "{text}");
        assert!(super::super::html(&outcome).contains("gen-2 (lost)"));
    }

    #[test]
    fn findings_stand_first_and_are_recalled_last() {
        let text = table(&sample::outcome(), 100, false);
        assert!(text.starts_with("!! Answers take 41.2 ms"), "{text}");
        assert!(text.trim_end().ends_with("before you believe these figures."), "{text}");
        assert!(
            !text.contains('\u{1b}')
                && table(&sample::outcome(), 100, true).contains("\u{1b}[38;5;1m")
        );
    }

    #[test]
    fn an_empty_run_has_no_figures() {
        let text = table(&sample::empty(), 80, false);
        assert!(text.contains("No request was answered."), "{text}");
        assert!(text.contains("9 (100 %): 9 could not connect"), "{text}");
        assert!(!text.contains('█') && !text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn a_control_character_does_not_reach_the_terminal() {
        let mut outcome = sample::outcome();
        outcome.findings[0].text = "bell \u{7} and \u{1b}[2J".to_owned();
        assert!(!table(&outcome, 80, false).contains(['\u{7}', '\u{1b}']));
    }

    #[test]
    fn classes_hold_everything_from_the_shortest_to_the_longest() {
        assert_eq!(edges(100_000, 900_000), [100_000, 200_000, 500_000, 1_000_000]);
        assert_eq!(edges(7, 7), [10]);
        assert_eq!(edges(1, 1_000_000_000).len(), 10, "decades where there are many");
        assert_eq!((bar(0.0), bar(0.01), bar(2.5)), ("".into(), "▏".into(), "██▌".into()));
    }
}
