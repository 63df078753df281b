//! The words of the report: verdicts, badges, trust, reasons.
//!
//! One place, so that page, terminal and CI summary say the same thing in the same words.

use super::number;
use crate::judge::is_noisy;
use crate::record::{Badge, Ending, Record, ResultRow, SteadyKind, Trust, Verdict};

/// Nobody runs more blocks than this for one row: what needs them is too noisy.
const MORE_BLOCKS_MAX: u32 = 100;

/// The verdict in one or two words. A metric of which less is better is a cost.
pub(super) fn verdict(verdict: Verdict, more_is_better: bool) -> &'static str {
    match verdict {
        Verdict::Baseline => "baseline",
        Verdict::NoiseFloor => "noise floor",
        Verdict::Faster if more_is_better => "faster",
        Verdict::Faster => "less",
        Verdict::Slower if more_is_better => "slower",
        Verdict::Slower => "more",
        Verdict::Equivalent => "equivalent",
        Verdict::Inconclusive => "inconclusive",
        Verdict::Failed => "failed",
    }
}

/// The class that colours a verdict.
pub(super) fn verdict_class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Faster => "good",
        Verdict::Slower | Verdict::Failed => "bad",
        Verdict::Inconclusive => "open",
        Verdict::Baseline | Verdict::NoiseFloor | Verdict::Equivalent => "same",
    }
}

/// A sign that stands for the verdict where there is no room for the word.
pub(super) fn verdict_sign(verdict: Verdict) -> char {
    match verdict {
        Verdict::Faster => '▲',
        Verdict::Slower => '▼',
        Verdict::Inconclusive => '?',
        Verdict::Failed => '×',
        Verdict::Baseline | Verdict::NoiseFloor | Verdict::Equivalent => '=',
    }
}

/// The badge in words, and its class.
pub(super) fn badge(trust: &Trust) -> (String, &'static str) {
    let (words, class) = match trust.badge {
        Badge::Quiet if is_noisy(trust.noise) => return (noisy(trust), "open"),
        Badge::Quiet => ("quiet machine", "good"),
        Badge::Disturbed => ("disturbed machine", "open"),
        Badge::Noisy => return (noisy(trust), "open"),
        Badge::Unwatched => ("unwatched machine", "open"),
        Badge::Invalid => return (invalid(trust), "bad"),
    };
    (words.to_owned(), class)
}

/// Why the figures of a run are worth nothing, and what to do.
fn invalid(trust: &Trust) -> String {
    let why = match trust.runs == trust.runs_failed {
        true => "nothing was measured; the reasons of the failures stand below",
        false => {
            "the same program twice differs from itself; end what else runs on this machine and run \
             it again"
        }
    };
    format!("invalid run: {why}")
}

/// How far the same program twice may have been apart, at the point where that is farthest.
fn noisy(trust: &Trust) -> String {
    let apart = trust.noise.map(|[_, low, high]| high.max(1.0 / low) - 1.0);
    let apart = apart.map(|apart| format!(": A/A up to {:.0} % apart", apart * 100.0));
    format!("noisy machine{}", apart.unwrap_or_default())
}

/// What the reader must know about a run that did not go to its end.
pub(super) fn ending(record: &Record) -> Option<String> {
    let why = match record.ending {
        Ending::Complete => return None,
        Ending::Interrupted => "Stopped by the user",
        Ending::Budget => "The time budget ended before the intervals were as narrow as wanted",
    };
    let (ran, planned, most) = (record.trust.blocks, record.job.blocks, record.job.blocks_max);
    Some(format!("{why}: {ran} blocks ran, {planned} were planned, {most} at most."))
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
    let noise = trust.noise.map_or_else(
        || "n/a: no A/A arm with an interval".to_owned(),
        |[ratio, low, high]| number::ratio_and_interval(ratio, low, high),
    );
    let steal = match trust.steal.value() {
        Some(share) => number::percent(*share),
        None => missing(trust.steal.reason()),
    };
    let counters = match trust.hardware_counters.value() {
        Some(state) => state.clone(),
        None => missing(trust.hardware_counters.reason()),
    };
    let mut items = vec![
        ("A/A, same program twice", noise),
        ("disturbed blocks", format!("{} of {}", trust.blocks_disturbed, trust.blocks)),
        ("stolen CPU", steal),
        ("steady state", steady_state(trust)),
        ("hardware counters", counters),
    ];
    if trust.runs_failed > 0 {
        items.push((
            "failed runs",
            format!("{} of {}", trust.runs_failed, number::count(trust.runs.into())),
        ));
    }
    items
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

/// `n/a` with its reason.
pub(super) fn missing(reason: Option<&str>) -> String {
    format!("n/a: {}", reason.unwrap_or("no reason was recorded"))
}

/// The ratio and its interval; nothing for the baseline itself.
pub(super) fn ratio_and_interval(row: &ResultRow) -> String {
    match (row.verdict, row.ratio, row.ci_low, row.ci_high) {
        (Verdict::Baseline, ..) => "1".to_owned(),
        (_, Some(ratio), Some(low), Some(high)) => number::ratio_and_interval(ratio, low, high),
        (_, Some(ratio), ..) => number::ratio(ratio),
        _ => "–".to_owned(),
    }
}

/// The absolute value with half of its interval, without the unit.
pub(super) fn value(row: &ResultRow) -> String {
    let show = if row.unit.starts_with("ns") { number::nanoseconds } else { number::si };
    match (row.value, row.value_half_width) {
        (Some(value), Some(half)) => format!("{} ± {}", show(value), number::percent(half)),
        (Some(value), None) => show(value),
        (None, _) => "–".to_owned(),
    }
}

/// Everything that the row wants to be known, in one line.
pub(super) fn row_notes(row: &ResultRow) -> String {
    let mut notes = row.notes.clone();
    if let Some(more) = row.more_blocks {
        notes.push(match more {
            1 => "about 1 more block would decide".to_owned(),
            2..=MORE_BLOCKS_MAX => format!("about {more} more blocks would decide"),
            _ => "too noisy here to decide".to_owned(),
        });
    }
    match row.outliers {
        0 => {}
        1 => notes.push("1 outlying block, kept".to_owned()),
        many => notes.push(format!("{many} outlying blocks, kept")),
    }
    notes.join("; ")
}

/// Axes that hold still, in words: `rule fixed, messages 1`.
pub(super) fn held<'a>(axes: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    axes.map(|(name, value)| format!("{name} {}", number::axis_value(value)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// A part of a job as a heading names it: the built-in parts in words, others as they are called.
pub(super) fn part(name: &str) -> String {
    let known = match name {
        "http" => "HTTP",
        "tcp" => "TCP",
        "pipe-unix" => "Pipes and AF_UNIX sockets",
        "dead" => "Dead connections",
        "keep-alive" => "Kept connections",
        "pipelined" => "Several requests at once",
        "churn" => "A connection for each request",
        "sweep" => "Sweep over connections",
        "queue" => "Message queue",
        "others" => "Other things to wait for",
        "bank" => "Calls to a bank",
        "time" => "Time of many calls",
        "time-plain" => "Time of many calls without EPOLLEXCLUSIVE",
        _ => return capital(name),
    };
    known.to_owned()
}

/// The text with a capital at its start.
pub(super) fn capital(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map(|first| first.to_uppercase().chain(rest).collect()).unwrap_or_default()
}

/// The command line as a shell would take it.
pub(super) fn command_line(words: &[String]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    let quoted = words.iter().map(|word| match !word.is_empty() && word.chars().all(is_plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_survives_the_shell() {
        let words = ["pollux", "lab", "it's", "a b", ""].map(str::to_owned);
        assert_eq!(command_line(&words), "pollux lab 'it'\\''s' 'a b' ''");
    }

    #[test]
    fn a_cost_is_less_or_more() {
        assert_eq!(verdict(Verdict::Faster, false), "less");
        assert_eq!(verdict(Verdict::Slower, true), "slower");
    }
}
