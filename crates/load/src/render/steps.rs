//! The steps of a schedule one by one: what was asked for in each, and what came of it. A ramp is shown in parts, so
//! that one sees where it bends.
//!
//! A pure function of the outcome: the schedule stands in its setting, and what was answered in its seconds. A step that is
//! shorter than a second may have none of its own.

use pollux_report::Table;
use pollux_report::number::{self, NA, or_na};

use super::facts::grid;
use super::{Stretch, measured_from_s, with_starts};
use crate::{Outcome, Second, parse_rate};

/// Parts of a ramp at most.
const RAMP_PARTS_MAX: f64 = 10.0;
/// Rows at most: a longer schedule is read from the seconds.
const STEPS_MAX: usize = 40;
/// What is shorter is the rounding of another one.
const SHORTEST_S: f64 = 0.1;
/// Part of the requests of a step by which it has to answer more, and steps before it less, to be said.
const NOTABLE_SHARE: f64 = 0.05;
/// What a step answers that was asked for before it.
const BACKLOG: &str = "backlog of the steps before";

/// A row for each step of the schedule within the measured time; `None` of a closed loop and of a single rate.
pub(super) fn steps(outcome: &Outcome) -> Option<Table> {
    let spans = spans(outcome);
    let stretches: Vec<Option<Stretch>> = spans.iter().map(|span| within(outcome, *span)).collect();
    let mut behind = 0.0;
    let is_catching_up = |stretch: &Option<Stretch>| {
        let Some((asked, stretch)) = stretch.as_ref().and_then(|all| Some((all.asked?, all)))
        else {
            return false;
        };
        let more = stretch.answered as f64 - asked;
        let is = [more, behind].iter().all(|requests| *requests > asked * NOTABLE_SHARE);
        behind -= more;
        is
    };
    let catching_up: Vec<bool> = stretches.iter().map(is_catching_up).collect();
    let has_notes = catching_up.contains(&true);
    let mut headings = vec!["step", "#asked/s", "#answered/s", "#p50", "#p99", "#max", "#errors"];
    headings.extend(has_notes.then_some("of them"));
    let rows: Vec<Vec<String>> = spans
        .into_iter()
        .zip(&stretches)
        .zip(catching_up)
        .map(|((span, stretch), is_catching_up)| {
            let note = if is_catching_up { BACKLOG } else { "" };
            let mut cells = row(span, stretch.as_ref());
            cells.extend(has_notes.then(|| note.to_owned()));
            cells
        })
        .collect();
    (rows.len() > 1).then(|| grid(&headings, rows))
}

/// From when to when each step lasts, in seconds from the start of the warm-up.
fn spans(outcome: &Outcome) -> Vec<(f64, f64)> {
    let Ok(stages) = parse_rate(&outcome.setting.pace) else { return Vec::new() };
    let from_s = measured_from_s(outcome);
    let until_s = from_s + outcome.measured.as_secs_f64();
    let mut spans = Vec::new();
    let mut begin_s = 0.0;
    for stage in &stages {
        let lasts_s = stage.lasts.map_or(until_s - begin_s, |lasts| lasts.as_secs_f64());
        let parts = if stage.from_per_s == stage.to_per_s {
            1.0
        } else {
            lasts_s.floor().clamp(1.0, RAMP_PARTS_MAX)
        };
        let part_s = lasts_s / parts;
        spans.extend((0..parts as u32).map(|part| {
            let start_s = begin_s + f64::from(part) * part_s;
            (start_s, start_s + part_s)
        }));
        begin_s += lasts_s;
    }
    // The last rate holds until the end.
    spans.push((begin_s, until_s));
    let clipped = spans.into_iter().map(|(start, end)| (start.max(from_s), end.min(until_s)));
    clipped.filter(|(start, end)| end - start > SHORTEST_S).take(STEPS_MAX).collect()
}

/// The seconds of a step together; `None` where it has none of its own.
fn within(outcome: &Outcome, (start_s, end_s): (f64, f64)) -> Option<Stretch> {
    let is_in = |(from_s, second): &(f64, &Second)| {
        let middle_s = f64::midpoint(*from_s, second.end_s);
        !second.is_warm_up && (start_s..end_s).contains(&middle_s)
    };
    let mut seconds = with_starts(outcome).filter(is_in);
    let (from_s, first) = seconds.next()?;
    let mut all = Stretch::of(from_s, first);
    seconds.for_each(|(_, second)| all.extend(second));
    Some(all)
}

fn row((start_s, end_s): (f64, f64), all: Option<&Stretch>) -> Vec<String> {
    let mut name = vec![format!("{} to {} s", shown(start_s), shown(end_s))];
    let Some(all) = all else {
        name.extend(std::iter::repeat_n(NA.to_owned(), 6));
        return name;
    };
    let time = |ns: Option<u64>| or_na(ns, |ns| number::time(ns as f64));
    name.extend([
        or_na(all.asked_per_s(), number::si),
        or_na(all.answered_per_s(), number::si),
        time(all.latency.known_quantile_ns(0.5)),
        time(all.latency.known_quantile_ns(0.99)),
        time(all.latency.max_ns()),
        number::count(all.errors),
    ]);
    name
}

/// Seconds to a tenth, without a zero behind.
fn shown(seconds: f64) -> f64 {
    (seconds * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    /// The sample of two seconds of warm-up and twelve that are measured, asked for by `pace`.
    fn of(pace: &str) -> Outcome {
        let mut outcome = sample::outcome();
        outcome.setting.pace = pace.to_owned();
        outcome.seconds.iter_mut().for_each(|second| second.asked_per_s = Some(2_000.0));
        outcome
    }

    #[test]
    fn each_step_and_each_part_of_a_ramp_has_a_row() {
        let steps_of = |pace: &str| spans(&of(pace));
        assert_eq!(steps_of("1000@5s,2000@5s,500"), [(2.0, 5.0), (5.0, 10.0), (10.0, 14.0)]);
        // The last rate holds for the four seconds after the ramp.
        let ramp = steps_of("100..5000@10s");
        assert_eq!((ramp.len(), ramp[0], ramp[8]), (9, (2.0, 3.0), (10.0, 14.0)));
        assert_eq!(steps_of("closed"), []);
        assert_eq!(steps_of("100@5s + 200@5s"), [], "two generators that were added up");
        assert_eq!(steps_of(&vec!["5@200ms"; 900].join(",")).len(), STEPS_MAX);
    }

    #[test]
    fn a_step_that_answers_more_than_it_was_asked_says_whose_requests_these_are() {
        let mut outcome = of("50@4s,200@2s,50@2s,50");
        for (index, second) in outcome.seconds.iter_mut().enumerate() {
            let (asked, answered) = match index {
                2 | 3 => (50.0, 50),
                4 | 5 => (200.0, 90),
                6 | 7 => (50.0, 90),
                _ => (50.0, 50),
            };
            (second.asked_per_s, second.answered) = (Some(asked), answered);
        }
        let table = steps(&outcome).expect("steps").markdown();
        let said: Vec<bool> = ["2 to 4 s", "4 to 6 s", "6 to 8 s", "8 to 14 s"]
            .iter()
            .map(|step| {
                let row = table.lines().find(|line| line.contains(step)).expect("a row");
                row.contains("backlog of the steps before")
            })
            .collect();
        assert_eq!(said, [false, false, true, false], "{table}");
        let plain = steps(&of("1000@5s,2000")).expect("two steps").markdown();
        assert!(!plain.contains("of them"), "{plain}");
    }

    #[test]
    fn a_row_has_what_was_asked_for_and_what_came() {
        let table = steps(&of("1000@5s,2000")).expect("two steps").markdown();
        // Seconds of 1,000, 1,100 and 1,200 answers.
        assert!(table.contains("| 2 to 5 s | 2.00 k | 1.10 k |"), "{table}");
        assert!(table.contains("| 5 to 14 s | 2.00 k | 1.70 k |"), "{table}");
        assert!(steps(&of("1000")).is_none() && steps(&of("closed")).is_none());
    }
}
