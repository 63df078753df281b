//! The words of the report: verdicts, badges, trust, reasons.
//!
//! One place, so that page, terminal and CI summary say the same thing in the same words.

use pollux_report::markup::capital;
use pollux_report::number::{NA, bound_in_words, effect_in_words, size_in_words};
use pollux_report::{Cell, Tone};

use pollux_host::Reading;
use serde::Deserialize;

use super::{Comparison, in_order, number};
use crate::experiments;
use crate::judge::{is_noisy, more_sets, trust_in, undecided_rows};
use crate::record::{
    Answer, Badge, Ending, Record, ResultRow, SteadyKind, Trust, TurnsQuality, Verdict,
};

/// More blocks than this are not run for one row: what needs them is too noisy.
const MORE_BLOCKS_MAX: u32 = 100;

/// The verdict on a row in one or two words, for where the figures stand beside it. A metric of which
/// less is better is a cost.
pub(super) fn verdict(row: &ResultRow) -> &'static str {
    let in_turns = row.turns.is_some();
    let is_small = row.is_small_difference();
    match (row.verdict, row.more_is_better) {
        (Verdict::Inconclusive, _) if row.unsettled.is_some() => "unsettled",
        (Verdict::Inconclusive, more_is_better) => unconfirmed(row, more_is_better),
        (Verdict::NoiseLevel, _) if in_turns => "control",
        (Verdict::Faster, false) | (Verdict::Slower, true) if is_small => "less, small",
        (Verdict::Faster, true) | (Verdict::Slower, false) if is_small => "more, small",
        (Verdict::Faster, true) | (Verdict::Slower, false) if in_turns => "more",
        (Verdict::Slower, true) if in_turns => "less",
        (Verdict::Equivalent, _) if in_turns => "equal",
        (verdict, more_is_better) => verdict_of_runs(verdict, more_is_better),
    }
}

/// The verdict on a row whose arms took turns with its size, such as `1.6 % less`, for where only the
/// ratio stands beside it, or what few sets show, such as `at least 12 times`; of whole runs what [`verdict`] says.
pub(super) fn judgement(row: &ResultRow) -> String {
    let short = verdict(row).to_owned();
    let (Some(_), Some(ratio)) = (row.turns, row.ratio) else { return short };
    if let Some(times) = row.at_least() {
        return bound_in_words(times, ratio > 1.0);
    }
    match row.verdict {
        Verdict::Faster | Verdict::Slower if row.is_small_difference() => {
            format!("{}, small", size_in_words(ratio))
        }
        Verdict::Faster | Verdict::Slower => size_in_words(ratio),
        Verdict::Equivalent => format!("equal within {}", effect_in_words(row.no_difference)),
        Verdict::Inconclusive if row.unsettled.is_some() => {
            row.unsettled.clone().unwrap_or_default()
        }
        Verdict::Inconclusive if row.half_width().is_none() => {
            format!("{short}: {} of its sets succeeded, too few for an interval", row.blocks)
        }
        Verdict::Inconclusive => match row.more_blocks {
            Some(sets) => format!("{short}: {}", more_sets(sets)),
            None => short,
        },
        _ => short,
    }
}

/// The verdict on whole runs.
fn verdict_of_runs(verdict: Verdict, more_is_better: bool) -> &'static str {
    match verdict {
        Verdict::Baseline => "baseline",
        Verdict::NoiseLevel => "noise level",
        Verdict::Faster if more_is_better => "faster",
        Verdict::Faster => "less",
        Verdict::Slower if more_is_better => "slower",
        Verdict::Slower => "more",
        Verdict::Equivalent => "equivalent",
        Verdict::Inconclusive => "undecided",
        Verdict::Failed => "failed",
    }
}

/// What is open: an interval that leaves 1 out shows a direction, which the correction
/// for all comparisons of the run did not confirm.
fn unconfirmed(row: &ResultRow, more_is_better: bool) -> &'static str {
    match (row.ci_low, row.ci_high, more_is_better) {
        (_, Some(high), true) if high < 1.0 => "slower, unconfirmed",
        (Some(low), _, true) if low > 1.0 => "faster, unconfirmed",
        (_, Some(high), false) if high < 1.0 => "less, unconfirmed",
        (Some(low), _, false) if low > 1.0 => "more, unconfirmed",
        _ => "undecided",
    }
}

/// How a verdict is to be taken.
pub(super) fn tone(verdict: Verdict) -> Tone {
    match verdict {
        Verdict::Faster => Tone::Good,
        Verdict::Slower | Verdict::Failed => Tone::Bad,
        Verdict::Inconclusive => Tone::Open,
        Verdict::Baseline | Verdict::NoiseLevel | Verdict::Equivalent => Tone::Same,
    }
}

/// Value, ratio and verdict of a row.
pub(super) fn cells(row: &ResultRow) -> [Cell; 3] {
    let ratio = Cell::number(&ratio_and_interval(row), row.ratio.unwrap_or(f64::NAN));
    let verdict = Cell::text(&judgement(row)).tone(tone(row.verdict));
    [Cell::number_or(row.value, |_| value(row), "–", ""), ratio, verdict]
}

/// A sign that stands for the verdict where there is no room for the word.
const fn verdict_sign(verdict: Verdict) -> char {
    match verdict {
        Verdict::Faster => '▲',
        Verdict::Slower => '▼',
        Verdict::Inconclusive => '?',
        Verdict::Failed => '×',
        Verdict::Baseline | Verdict::Equivalent => '=',
        Verdict::NoiseLevel => '~',
    }
}

/// The badge in words, and its class.
pub(super) fn badge(trust: &Trust) -> (String, &'static str) {
    let (words, class) = match trust.badge {
        Badge::Quiet if is_noisy(trust.noise) => return (noisy(trust), "open"),
        Badge::Quiet => ("quiet machine", "good"),
        Badge::Disturbed => ("disturbed machine", "open"),
        Badge::Noisy => return (noisy(trust), "open"),
        Badge::Unwatched if trust.turns.is_some() => ("too few sets for an A/A control", "open"),
        Badge::Unwatched => ("unwatched machine", "open"),
        Badge::Controlled => return (controlled(trust), "good"),
        Badge::Biased => ("A/A control fails", "open"),
        Badge::Invalid => return (invalid(trust), "bad"),
    };
    (words.to_owned(), class)
}

/// The badge of one table, by its own A/A arms.
pub(super) fn badge_of(record: &Record, rows: &[&ResultRow]) -> (String, &'static str) {
    badge(&trust_in(record, rows))
}

/// The badge of the whole run: that of its tables, where they agree, else how many are good and which are not.
pub(super) fn badge_of_all(
    record: &Record,
    comparisons: &[Comparison<'_>],
) -> (String, &'static str) {
    let badges: Vec<_> =
        comparisons.iter().map(|each| (each, badge_of(record, &each.rows))).collect();
    let (good, bad): (Vec<_>, Vec<_>) = badges.iter().partition(|(_, (_, class))| *class == "good");
    if good.is_empty() || bad.is_empty() {
        return badge(&record.trust);
    }
    let names = in_order(bad.iter().map(|(each, _)| each.title.as_str())).join(", ");
    let holds = if record.trust.turns.is_some() { "A/A control holds" } else { "quiet" };
    let good = good.len();
    let all = badges.len();
    (format!("{holds} in {good} of {all} tables, not in: {names}"), "open")
}

/// The load of an answer; with the part of the job where two answers have the same.
pub(super) fn load(record: &Record, answer: &Answer) -> String {
    let same = record.answers.iter().filter(|other| other.load == answer.load).count();
    match &answer.place {
        Some([experiment, _]) if same > 1 => {
            format!("{} ({})", answer.load, part(record, experiment))
        }
        _ => answer.load.clone(),
    }
}

/// Why the figures of a run are worth nothing, and what to do.
fn invalid(trust: &Trust) -> String {
    let why = if trust.runs == trust.runs_failed {
        "nothing was measured; each row has the reason"
    } else {
        "the same program twice differs from itself; end what else runs on this machine and run \
             it again"
    };
    format!("invalid run: {why}")
}

/// That the same program twice shows no difference, and how small a difference would have been seen.
fn controlled(trust: &Trust) -> String {
    let within = trust.turns.as_ref().and_then(|turns| turns.control_half_width_max);
    let within = within.map(|within| format!(" within {}", number::percent(within)));
    format!("A/A control holds{}", within.unwrap_or_default())
}

/// How far the same program twice may have been apart, at the point where that is farthest.
fn noisy(trust: &Trust) -> String {
    let in_turns = trust.turns.as_ref().and_then(|turns| turns.control_half_width_max);
    let apart = trust.noise.map(|[_, low, high]| high.max(1.0 / low) - 1.0).or(in_turns);
    let apart = apart.map(|apart| format!(": A/A up to {:.0} % apart", apart * 100.0));
    format!("noisy machine{}", apart.unwrap_or_default())
}

/// What the reader must know about a run that did not go to its end, or left rows open.
pub(super) fn ending(record: &Record) -> Option<String> {
    let said: Vec<String> =
        [why_it_ended(record), undecided_rows(record)].into_iter().flatten().collect();
    (!said.is_empty()).then(|| said.join(" "))
}

fn why_it_ended(record: &Record) -> Option<String> {
    let why = match record.ending {
        Ending::Complete => return None,
        Ending::Interrupted => "Stopped by the user".to_owned(),
        Ending::Interim => {
            "This run did not come to its end: it is still going, or it was killed. What it had measured until then"
                .to_owned()
        }
        Ending::Budget => {
            let of = record.job.budget_s.map(|s| format!(" of {}", number::duration(s)));
            let of = of.unwrap_or_default();
            format!(
                "The time budget{of} ended before the intervals reached the requested precision"
            )
        }
    };
    let ran = record.trust.blocks;
    let planned = record.job.blocks;
    let most = record.job.blocks_max;
    let turns = record.trust.turns.as_ref();
    let sets = turns.map(|turns| match turns.sets {
        [1, 1] => "1 set per row".to_owned(),
        sets => format!("{} sets per row", span(sets)),
    });
    let has_runs = turns.is_none_or(|turns| turns.rows_of_whole_runs > 0);
    let blocks = has_runs.then(|| number::plural(ran.into(), "block"));
    let ran = sets.into_iter().chain(blocks).collect::<Vec<_>>().join(", ");
    let planned = number::plural(planned.into(), unit(record));
    Some(format!("{why}: {ran} ({planned} planned, at most {most})."))
}

/// What the run repeated: sets where arms took turns in all rows, else blocks.
pub(super) fn unit(record: &Record) -> &'static str {
    let turns = record.trust.turns.as_ref();
    if turns.is_some_and(|turns| turns.rows_of_whole_runs == 0) { "set" } else { "block" }
}

/// The steadiness of a run in a word.
pub(super) fn steady(kind: SteadyKind) -> &'static str {
    match kind {
        SteadyKind::Steady => "steady",
        SteadyKind::Drift => "drift",
        SteadyKind::TwoRegime => "two regimes",
        SteadyKind::TooShort => "too short to tell",
    }
}

/// What the trust strip says: a name and a value for each item.
pub(super) fn trust(trust: &Trust) -> Vec<(&'static str, String)> {
    let steal = match trust.steal.value() {
        Some(share) => number::percent(*share),
        None => missing(trust.steal.reason()),
    };
    let counters = match trust.hardware_counters.value() {
        Some(state) => state.clone(),
        None => missing(trust.hardware_counters.reason()),
    };
    let mut items = trust.turns.as_ref().map(in_turns).unwrap_or_default();
    let disturbed = format!("{} of {}", trust.blocks_disturbed, trust.blocks);
    let is_all_turns = trust.turns.as_ref().is_some_and(|turns| turns.rows_of_whole_runs == 0);
    if is_all_turns {
        let why_kept = match trust.blocks_disturbed {
            0 => "",
            _ => ", whose sets are kept, because a disturbance affects arm and baseline alike",
        };
        // A block has a set of each point, and is disturbed as a whole.
        items.push(("disturbed blocks", disturbed + why_kept));
        items.push(("stolen CPU", steal));
    } else {
        let noise = trust.noise.map_or_else(
            || "n/a: no A/A arm with an interval".to_owned(),
            |[ratio, low, high]| number::ratio_and_interval(ratio, low, high),
        );
        items.push(("A/A, same program twice", noise));
        items.push(("disturbed blocks", disturbed));
        items.push(("stolen CPU", steal));
        items.push(("steady state", steady_state(trust)));
    }
    items.push(("hardware counters", counters));
    if trust.runs_failed > 0 {
        items.push((
            "failed runs",
            format!("{} of {}", trust.runs_failed, number::count(trust.runs.into())),
        ));
    }
    items
}

/// What speaks for the rows in turns.
fn in_turns(turns: &TurnsQuality) -> Vec<(&'static str, String)> {
    let TurnsQuality { controls, controls_hold, controls_differ, .. } = turns;
    let control = match controls {
        0 => "n/a: no A/A arm with an interval".to_owned(),
        _ => format!(
            "interval contains 1.00 in {controls_hold} of {controls} rows, {controls_differ} rows differ \
             after correction"
        ),
    };
    let mut items = vec![
        ("A/A control", control),
        ("sets × rounds", format!("{} × {}", span(turns.sets), span(turns.rounds))),
    ];
    if let Some(widest) = turns.half_width_max {
        items.push(("widest interval", format!("± {}", number::percent(widest))));
    }
    if let Some(load) = &turns.load_average {
        items.push(("load average before", load.clone()));
    }
    items
}

fn span([least, most]: [u32; 2]) -> String {
    if least == most { least.to_string() } else { format!("{least} to {most}") }
}

fn steady_state(trust: &Trust) -> String {
    let tested = trust.runs.saturating_sub(trust.runs_failed + trust.runs_too_short);
    if tested == 0 {
        return "n/a: too few intervals in every run".to_owned();
    }
    let runs = number::count(tested.into());
    match (trust.runs_unsteady, trust.runs_two_regime) {
        (0, 0) => format!("all {runs} runs that can tell"),
        (unsteady, 0) => format!("not in {unsteady} of {runs} runs"),
        (unsteady, two) if unsteady == two => format!("{two} of {runs} runs in two regimes"),
        (unsteady, two) => format!("not in {unsteady} of {runs} runs, {two} in two regimes"),
    }
}

/// A figure that may be missing, with its reason.
pub(super) fn figure_of(reading: &Reading<f64>, show: fn(f64) -> String) -> Cell {
    Cell::number_or(reading.value().copied(), show, NA, reading.reason().unwrap_or_default())
}

/// `n/a` with its reason.
pub(super) fn missing(reason: Option<&str>) -> String {
    format!("n/a: {}", reason.unwrap_or("no reason was recorded"))
}

/// The ratio and its interval; nothing for the baseline itself.
pub(super) fn ratio_and_interval(row: &ResultRow) -> String {
    match (row.verdict, row.ratio, row.ci_low, row.ci_high) {
        (Verdict::Baseline, ..) => "1".to_owned(),
        (_, Some(ratio), Some(low), Some(high)) if row.turns.is_some() => {
            number::close_ratio_and_interval(ratio, low, high)
        }
        (_, Some(ratio), Some(low), Some(high)) => number::ratio_and_interval(ratio, low, high),
        (_, Some(ratio), ..) => number::ratio(ratio),
        _ => "–".to_owned(),
    }
}

/// The cell of a curve's matrix for an arm beside the baseline: its ratio with the sign of the
/// verdict; of the same program twice how far its interval reaches.
pub(super) fn cell(row: &ResultRow) -> Option<String> {
    let sign = verdict_sign(row.verdict);
    match (row.verdict, row.ratio?, row.half_width()) {
        (Verdict::NoiseLevel, _, Some(half)) => Some(format!("{sign} ±{}", number::percent(half))),
        (_, ratio, _) => Some(format!("{sign} {}", number::ratio(ratio))),
    }
}

/// What the signs of [`cell`] mean.
pub(super) const SIGNS: &str = "▲ better ▼ worse = equivalent ? open × failed ~ A/A";

/// Whether a unit is one of time for each thing done, and not a rate.
pub(super) fn is_cost(unit: &str) -> bool {
    ["ns/", "µs/", "ms/"].iter().any(|time| unit.starts_with(time))
}

/// A value of a row without its unit, in the same digits wherever it stands.
pub(super) fn amount(value: f64, unit: &str) -> String {
    if unit.starts_with("ns") { number::nanoseconds(value) } else { number::si(value) }
}

/// The absolute value with half of its interval, without the unit.
pub(super) fn value(row: &ResultRow) -> String {
    let show = |value| amount(value, &row.unit);
    match (row.value, row.value_half_width) {
        (Some(value), Some(half)) => format!("{} ± {}", show(value), number::percent(half)),
        (Some(value), None) => show(value),
        (None, _) => "–".to_owned(),
    }
}

/// Everything that the row wants to be known, in one line.
pub(super) fn row_notes(row: &ResultRow) -> String {
    let mut notes = row.notes.clone();
    let unit = if row.turns.is_some() { "set" } else { "block" };
    if let Some(more) = row.more_blocks.filter(|_| row.turns.is_none()) {
        notes.push(match more {
            1 => "about 1 more block would decide".to_owned(),
            2..=MORE_BLOCKS_MAX => format!("about {more} more blocks would decide"),
            _ => "too noisy here to decide".to_owned(),
        });
    }
    match row.outliers {
        0 => {}
        1 => notes.push(format!("1 outlying {unit}, kept")),
        many => notes.push(format!("{many} outlying {unit}s, kept")),
    }
    notes.join("; ")
}

/// Axes that hold still, in words: `rule fixed, messages 1`.
pub(super) fn held<'a>(axes: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    axes.map(|(name, value)| format!("{name} {}", number::axis_value(value)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// A part of a job as a heading names it: by its title, its experiment, or its name in words.
pub(super) fn part(record: &Record, name: &str) -> String {
    let job: Titles = toml::from_str(&record.job.toml).unwrap_or_default();
    let title = job.parts.into_iter().find(|part| part.name.as_deref() == Some(name));
    let title = title.and_then(|part| part.title);
    let title = title.or_else(|| Some(experiments::by_name(name)?.title.to_owned()));
    title.unwrap_or_else(|| capital(&name.replace('-', " ")))
}

/// What is read of the job of a record; results of before there were titles have none.
#[derive(Default, Deserialize)]
struct Titles {
    #[serde(default, rename = "job")]
    parts: Vec<Titled>,
}

#[derive(Deserialize)]
struct Titled {
    name: Option<String>,
    title: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{row_for_tests, row_in_turns};

    #[test]
    fn the_same_program_twice_is_never_marked_equivalent() {
        let row = |verdict, interval| row_for_tests("A/A", verdict).within(interval);
        assert_eq!(cell(&row(Verdict::NoiseLevel, [0.48, 3.38])).as_deref(), Some("~ ±165 %"));
        assert_eq!(cell(&row(Verdict::NoiseLevel, [0.99, 1.01])).as_deref(), Some("~ ±1.0 %"));
        assert_eq!(cell(&row(Verdict::Equivalent, [0.99, 1.01])).as_deref(), Some("= 1.00"));
    }

    #[test]
    fn an_interval_that_leaves_1_out_is_not_called_undecided() {
        let said = |interval, more_is_better| {
            let row = row_for_tests("poll", Verdict::Inconclusive).within(interval);
            judgement(&ResultRow { more_is_better, ..row })
        };
        assert_eq!(said([4.6e-4, 1.8e-3], true), "slower, unconfirmed");
        assert_eq!(said([1.2, 3.0], true), "faster, unconfirmed");
        assert_eq!(
            [said([0.6, 0.9], false), said([1.2, 3.0], false)],
            ["less, unconfirmed", "more, unconfirmed"]
        );
        assert_eq!(said([0.9, 1.1], true), "undecided");
        assert_eq!(said([1.01, 1.1], false), "more, unconfirmed");
    }

    #[test]
    fn a_cost_is_less_or_more() {
        let mut row = row_for_tests("poll", Verdict::Slower);
        assert_eq!(verdict(&row), "slower");
        (row.verdict, row.more_is_better) = (Verdict::Faster, false);
        assert_eq!(verdict(&row), "less");
    }

    #[test]
    fn rows_in_turns_tell_direction_and_size() {
        let said = |of_row, interval, more_blocks| {
            let row = row_in_turns("epoll-et", of_row).with_interval(interval);
            let row = ResultRow { more_blocks, ..row };
            (verdict(&row), judgement(&row), ratio_and_interval(&row))
        };
        let words = |short, long: &str, ratio: &str| (short, long.to_owned(), ratio.to_owned());
        assert_eq!(
            said(Verdict::Faster, [0.984, 0.978, 0.990], None),
            words("less", "1.6 % less", "0.984 [0.978, 0.990]")
        );
        assert_eq!(
            said(Verdict::Slower, [1.005, 1.002, 1.008], None),
            words("more, small", "0.5 % more, small", "1.005 [1.002, 1.008]")
        );
        assert_eq!(
            said(Verdict::Equivalent, [1.001, 0.993, 1.009], None),
            words("equal", "equal within 2 %", "1.001 [0.993, 1.009]")
        );
        assert_eq!(
            said(Verdict::Inconclusive, [1.02, 0.99, 1.05], Some(3)),
            words("undecided", "undecided: about 3 more sets", "1.020 [0.990, 1.050]")
        );
        assert_eq!(said(Verdict::NoiseLevel, [1.0, 0.99, 1.01], None).1, "control");
        let row = row_in_turns("epoll-et", Verdict::Inconclusive);
        let row = ResultRow { ratio: Some(1.3), ci_low: None, ci_high: None, blocks: 1, ..row };
        assert_eq!(judgement(&row), "undecided: 1 of its sets succeeded, too few for an interval");
    }

    #[test]
    fn trust_in_turns_is_about_the_control_and_not_about_a_quiet_machine() {
        let mut of_run = Record::empty().trust;
        (of_run.blocks, of_run.blocks_disturbed) = (8, 3);
        of_run.turns = Some(TurnsQuality {
            rows: 40,
            rows_of_whole_runs: 0,
            half_width_max: Some(0.013),
            sets: [8, 8],
            rounds: [40, 80],
            controls: 12,
            control_half_width_max: Some(0.011),
            controls_hold: 11,
            controls_differ: 0,
            load_average: Some("7.9, 8.3, 4.1".to_owned()),
        });
        let said: Vec<String> =
            trust(&of_run).into_iter().map(|(name, value)| format!("{name} {value}")).collect();
        assert_eq!(
            said[..5],
            [
                "A/A control interval contains 1.00 in 11 of 12 rows, 0 rows differ after correction",
                "sets × rounds 8 × 40 to 80",
                "widest interval ± 1.3 %",
                "load average before 7.9, 8.3, 4.1",
                "disturbed blocks 3 of 8, whose sets are kept, because a disturbance affects arm and baseline alike",
            ]
        );
    }
}
