//! The trials of a search for the capacity: what is kept of each, its line, and all as JSON.
//!
//! [`capacity`](super::capacity) fills it; nothing here runs anything.

use pollux_load::render::{count, time};
use std::fmt;
use std::time::Duration;

use pollux_load::{
    CapacitySearch, FindingKind, Objective, Outcome, Setting, broken_by, percentile,
};
use serde::{Serialize, Serializer};

/// What the `schema` field of the JSON says.
const SCHEMA: &str = "pollux-load-capacity";
/// What its `version` field says; it grows when a field changes its meaning or goes away.
const VERSION: u32 = 1;

/// What the search wants to hold.
#[derive(Clone, Debug)]
pub(crate) struct Sought {
    objectives: Vec<Objective>,
    /// The first quantile of the latency among them, 0 to 1: it is what trials show.
    quantile: f64,
    /// Its limit.
    pub(crate) at_most: Duration,
}

impl Sought {
    /// All of `objectives`; `None` when no quantile of the latency is among them.
    pub(crate) fn new(objectives: &[Objective]) -> Option<Self> {
        let (quantile, at_most) = objectives.iter().find_map(Objective::latency_quantile)?;
        Some(Self { objectives: objectives.to_vec(), quantile, at_most })
    }

    /// The name of the quantile that trials show.
    pub(crate) fn name(&self) -> String {
        percentile(self.quantile)
    }
}

impl fmt::Display for Sought {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.objectives.iter().map(ToString::to_string).collect();
        f.write_str(&words.join(", "))
    }
}

/// One trial of one rate.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Trial {
    /// Requests per second that were asked for.
    pub(crate) rate_per_s: f64,
    /// Answers per second that came.
    pub(crate) answered_per_s: f64,
    /// Latency at the objective's quantile; none without answers.
    pub(crate) latency_ns: Option<u64>,
    /// Requests that failed.
    pub(crate) errors: u64,
    /// Whether a thread of the generator had no time left.
    pub(crate) is_generator_bound: bool,
    /// Why it did not hold; none when it did.
    pub(crate) broken_by: Option<String>,
}

impl Trial {
    /// What `outcome` says about a rate.
    pub(crate) fn of(rate_per_s: f64, outcome: &Outcome, sought: &Sought) -> Self {
        let is_bound = |kind| kind == FindingKind::GeneratorBound;
        Self {
            rate_per_s,
            answered_per_s: outcome.answered_per_s(),
            latency_ns: outcome.latency.quantile_ns(sought.quantile),
            errors: outcome.errors.total(),
            is_generator_bound: outcome.findings.iter().any(|finding| is_bound(finding.kind)),
            broken_by: broken_by(&sought.objectives, outcome),
        }
    }

    /// The head of the lines.
    pub(crate) fn head(sought: &Sought) -> String {
        let quantile = sought.name();
        format!("{:>12}  {:>12}  {quantile:>9}  {:>8}  verdict", "asked/s", "answered/s", "errors")
    }

    /// The trial in one line under [`Trial::head`]; why it failed stands in the next one where
    /// `width_chars` are too few.
    pub(crate) fn line(&self, width_chars: usize) -> String {
        let latency = self.latency_ns.map_or_else(|| "n/a".to_owned(), |ns| time(ns as f64));
        let bound = if self.is_generator_bound { " (generator bound)" } else { "" };
        let verdict = self
            .broken_by
            .as_ref()
            .map_or_else(|| format!("holds{bound}"), |why| format!("fails{bound}: {why}"));
        let figures = format!(
            "{:>12}  {:>12}  {latency:>9}  {:>8}  ",
            count(self.rate_per_s.round() as u64),
            count(self.answered_per_s.round() as u64),
            count(self.errors)
        );
        match figures.chars().count() + verdict.chars().count() <= width_chars {
            true => figures + &verdict,
            false => format!("{}\n              {verdict}", figures.trim_end()),
        }
    }
}

/// A search, for programs.
#[derive(Serialize)]
pub(crate) struct Found<'a> {
    schema: &'static str,
    version: u32,
    setting: &'a Setting,
    #[serde(serialize_with = "in_words")]
    objective: &'a Sought,
    objective_quantile: f64,
    objective_ns: u64,
    /// Answers per second of a closed loop, where the search began.
    closed_loop_per_s: f64,
    trials: &'a [Trial],
    highest_holding_per_s: Option<f64>,
    lowest_failing_per_s: Option<f64>,
    was_ended_early: bool,
}

impl<'a> Found<'a> {
    /// What `search` found in `trials`; `closed` was the loop before them.
    pub(crate) fn new(
        objective: &'a Sought,
        closed: &'a Outcome,
        trials: &'a [Trial],
        search: &CapacitySearch,
        was_ended_early: bool,
    ) -> Self {
        Self {
            schema: SCHEMA,
            version: VERSION,
            setting: &closed.setting,
            objective,
            objective_quantile: objective.quantile,
            objective_ns: objective.at_most.as_nanos() as u64,
            closed_loop_per_s: closed.answered_per_s(),
            trials,
            highest_holding_per_s: search.highest_per_s(),
            lowest_failing_per_s: search.lowest_failing_per_s(),
            was_ended_early,
        }
    }

    /// As one indented JSON object.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data") + "\n"
    }
}

fn in_words<S: Serializer>(sought: &&Sought, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(sought)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_was_asked_and_why_it_failed() {
        let mut trial = Trial {
            rate_per_s: 50_000.4,
            answered_per_s: 49_998.0,
            latency_ns: Some(6_200_000),
            errors: 0,
            is_generator_bound: true,
            broken_by: Some("p99 was 6.20ms".to_owned()),
        };
        let line = trial.line(120);
        for part in ["50,000", "49,998", "6.20 ms", "fails (generator bound): p99 was 6.20ms"] {
            assert!(line.contains(part), "no {part} in {line}");
        }
        (trial.broken_by, trial.is_generator_bound) = (None, false);
        assert!(trial.line(120).ends_with("holds"));
        trial.broken_by = Some("98.2 % of the rate answered".to_owned());
        assert!(
            trial.line(60).lines().all(|line| line.chars().count() <= 60),
            "{}",
            trial.line(60)
        );
        assert!(trial.line(60).ends_with("fails: 98.2 % of the rate answered"));
        let objectives = ["errors=1%", "p99.9=5ms"].map(|text| text.parse().expect("an objective"));
        let sought = Sought::new(&objectives).expect("a quantile");
        assert!(Trial::head(&sought).contains("p99.9"));
        assert_eq!(sought.to_string(), "errors at most 1 %, p99.9 at most 5.00 ms");
        assert!(Sought::new(&objectives[..1]).is_none());
    }
}
