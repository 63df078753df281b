//! `pollux load --find-capacity`: trial after trial, a line for each, and what they say together, as JSON and as
//! rate against latency on one screen.
//!
//! The search itself is the generator's; here its trials are run and shown. It begins at half of
//! what a closed loop reaches, because from there the answer is near.

use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

use pollux_engine::Signals;
use pollux_load::render::{count, plural, time};
use pollux_load::{
    CapacitySearch, End, FindingKind, Objective, Outcome, Pace, Plan, Setting, backlog_grew,
    broken_by, percentile,
};
use serde::{Serialize, Serializer};

mod page;

use super::flags::LoadSettings;
use super::results::Files;
use super::view::View;
use super::{Interrupt, NOT_AS_ASKED, Ran, Scraped, plan, start, to_the_end};
use crate::output::{self, Failure};

/// Part of the closed loop's rate that the search begins with.
const FIRST_SHARE: f64 = 0.5;
/// What the `schema` field of the JSON says.
const SCHEMA: &str = "pollux-load-capacity";
/// What its `version` field says; it grows when a field changes its meaning or goes away.
const VERSION: u32 = 1;
/// Columns of a bar at most.
const BAR: usize = 24;
/// Columns before the bars.
const LEFT: usize = 28;

/// Searches the highest rate at which the objectives of `flags` hold, with trials that this process carries out.
pub(crate) fn run(
    flags: &LoadSettings,
    plan: Plan,
    files: &Files,
    (signals, scraped): (&mut Signals, &Scraped),
) -> Result<ExitCode, Failure> {
    search(flags, plan, files, |plan| once(plan, flags, (signals, scraped)))
}

/// The search, with trials that `once` carries out.
pub(crate) fn search(
    flags: &LoadSettings,
    mut plan: Plan,
    files: &Files,
    mut once: impl FnMut(&mut Plan) -> Result<Ran, Failure>,
) -> Result<ExitCode, Failure> {
    let sought = Sought::new(&flags.objectives)
        .ok_or_else(|| Failure::usage("--find-capacity needs --slo with such as p99=5ms"))?;
    let lines = Lines { are_beside: files.are_printed(), is_quiet: flags.output.is_quiet };
    let closed = closed_loop(flags, &mut plan, &mut once)?;
    let reached = closed.outcome.answered_per_s();
    lines.print(&format!(
        "{sought}: a closed loop of {} on {} reaches {} requests/s\n\n{}",
        plural(plan.connections.into(), "connection"),
        closed.outcome.setting.driver,
        count(reached.round() as u64),
        Trial::head(&sought)
    ))?;
    let mut search = CapacitySearch::new(reached * FIRST_SHARE);
    let mut trials = Vec::new();
    let mut interrupt = closed.interrupt;
    while let (Some(rate), None) = (search.next_per_s(), interrupt) {
        let ran = once(&mut plan::trial(flags, &plan, rate))?;
        interrupt = ran.interrupt;
        if interrupt.is_none() {
            let trial = Trial::of(rate, &ran.outcome, &sought);
            lines.print(&trial.line(output::width_chars()))?;
            search.tried(trial.broken_by.is_none());
            trials.push(trial);
        }
    }
    let is_early = interrupt.is_some();
    let found = SearchResult::new(&sought, &closed.outcome, &trials, &search, is_early).json();
    let verdict = Verdict::of(&search, &trials, is_early);
    let mut shown =
        lines.print(&format!("\n{}\n{}", plot(&trials, &sought), verdict.words(&sought)));
    let page = || page::html(&closed.outcome, &sought, &verdict, &rows(&trials), &trials);
    if files.is_page_printed() {
        shown = shown.and(output::result(&page()));
    } else if files.are_printed() {
        shown = shown.and(output::result(&found));
    }
    let written = files.write_search(&found, &page);
    shown.and(written)?;
    Ok(verdict.exit_code(interrupt))
}

/// The loop before the search: what the server can do at all.
fn closed_loop(
    flags: &LoadSettings,
    plan: &mut Plan,
    once: &mut impl FnMut(&mut Plan) -> Result<Ran, Failure>,
) -> Result<Ran, Failure> {
    plan.pace = Pace::Closed;
    plan.end = End { requests: None, after: Some(plan::trial_length(flags)) };
    plan.warm_up = plan::trial_warm_up(flags);
    if !flags.output.is_quiet {
        let trial = plan::trial_length(flags);
        let warm_up = plan.warm_up;
        output::remark(&format!(
            "pollux load: a closed loop, then trials until two of three agree on each rate; \
             {trial:?} each, after {warm_up:?} of warm-up"
        ));
    }
    let closed = once(plan)?;
    let has_answers = closed.outcome.totals.answered > 0;
    if closed.why_in_vain.is_none() && (has_answers || closed.interrupt.is_some()) {
        return Ok(closed);
    }
    let nothing = || "nothing was answered; there is no capacity to find".to_owned();
    Err(Failure::failed(closed.why_in_vain.unwrap_or_else(nothing)))
}

/// One trial of this process; the lines of the search take the place of a view.
fn once(
    plan: &mut Plan,
    flags: &LoadSettings,
    (signals, scraped): (&mut Signals, &Scraped),
) -> Result<Ran, Failure> {
    let (running, _) = start(plan, flags.poller.is_none())?;
    to_the_end(running, &mut View::Quiet, (signals, scraped))
}

/// Where the lines of the search go: they are the result, unless that is JSON.
struct Lines {
    are_beside: bool,
    is_quiet: bool,
}

impl Lines {
    fn print(&self, text: &str) -> Result<(), Failure> {
        let text = output::shown(text);
        match self {
            Self { are_beside: false, .. } => output::result(&text)?,
            Self { is_quiet: false, .. } => output::remark(&text),
            Self { .. } => {}
        }
        Ok(())
    }
}

/// What a search found.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Verdict {
    /// The objective holds at the first rate and fails at the second.
    Between(f64, f64),
    /// It never failed.
    AtLeast(f64),
    /// It failed where the generator had no time left: the server may hold more.
    GeneratorBound(Option<f64>),
    /// It never held.
    Nothing,
    /// The search was ended by a signal before a rate was judged.
    NotYet,
}

impl Verdict {
    fn of(search: &CapacitySearch, trials: &[Trial], is_early: bool) -> Self {
        let failed_at = search.lowest_failing_per_s();
        let is_at_limit = |trial: &Trial| failed_at == Some(trial.rate_per_s);
        let is_bound = |trial: &Trial| trial.broken_by.is_some() && trial.is_generator_bound;
        match (search.highest_per_s(), failed_at) {
            (holds, Some(_)) if trials.iter().any(|each| is_at_limit(each) && is_bound(each)) => {
                Self::GeneratorBound(holds)
            }
            (Some(holds), Some(fails)) => Self::Between(holds, fails),
            (Some(holds), None) => Self::AtLeast(holds),
            (None, _) if is_early => Self::NotYet,
            (None, _) => Self::Nothing,
        }
    }

    fn exit_code(self, interrupt: Option<Interrupt>) -> ExitCode {
        match (self, interrupt) {
            (_, Some(interrupt)) => interrupt.exit_code(),
            (Self::Between(..) | Self::AtLeast(_), None) => ExitCode::SUCCESS,
            (Self::GeneratorBound(_) | Self::Nothing | Self::NotYet, None) => {
                ExitCode::from(NOT_AS_ASKED)
            }
        }
    }

    fn words(self, objective: &Sought) -> String {
        let rate = |rate: f64| count(rate.round() as u64);
        match self {
            Self::Between(holds, fails) => format!(
                "capacity: {} requests/s with {objective}; {} fail it",
                rate(holds),
                rate(fails)
            ),
            Self::AtLeast(holds) => {
                format!("capacity: at least {} requests/s with {objective}", rate(holds))
            }
            Self::GeneratorBound(holds) => format!(
                "!! capacity: {} with {objective}; beyond that the generator was the bottleneck, \
                 not the server: give it more threads (--threads) and CPUs, or more agents (--agents)",
                holds.map_or_else(
                    || "n/a".to_owned(),
                    |holds| format!("at least {} requests/s", rate(holds))
                )
            ),
            Self::Nothing => format!("!! no rate was found that holds {objective}"),
            Self::NotYet => "!! ended before a rate was judged".to_owned(),
        }
    }
}

/// What the search wants to hold.
#[derive(Clone, Debug)]
struct Sought {
    objectives: Vec<Objective>,
    /// The first quantile of the latency among them, 0 to 1: it is what trials show.
    quantile: f64,
    at_most: Duration,
}

impl Sought {
    /// All of `objectives`; `None` when no quantile of the latency is among them.
    fn new(objectives: &[Objective]) -> Option<Self> {
        let (quantile, at_most) = objectives.iter().find_map(Objective::latency_quantile)?;
        Some(Self { objectives: objectives.to_vec(), quantile, at_most })
    }

    /// The name of the quantile that trials show.
    fn name(&self) -> String {
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
struct Trial {
    /// Requests per second that were asked for.
    rate_per_s: f64,
    /// Answers per second that came within the time of the trial.
    answered_per_s: f64,
    /// Latency at the objective's quantile; none without answers.
    latency_ns: Option<u64>,
    /// Requests that failed.
    errors: u64,
    /// Whether a thread of the generator had no time left.
    is_generator_bound: bool,
    /// Why it did not hold; none when it did.
    broken_by: Option<String>,
}

impl Trial {
    /// What `outcome` says about a rate.
    fn of(rate_per_s: f64, outcome: &Outcome, sought: &Sought) -> Self {
        let is_bound = |kind| kind == FindingKind::GeneratorBound;
        Self {
            rate_per_s,
            answered_per_s: outcome.answered_per_s(),
            latency_ns: outcome.latency.quantile_ns(sought.quantile),
            errors: outcome.errors.total(),
            is_generator_bound: outcome.findings.iter().any(|finding| is_bound(finding.kind)),
            broken_by: broken_by(&sought.objectives, outcome).or_else(|| backlog_grew(outcome)),
        }
    }

    /// The head of the lines.
    fn head(sought: &Sought) -> String {
        let quantile = sought.name();
        format!("{:>12}  {:>12}  {quantile:>9}  {:>8}  verdict", "asked/s", "answered/s", "errors")
    }

    /// The trial in one line under [`Trial::head`]; why it failed stands in the next one where
    /// `width_chars` are too few.
    fn line(&self, width_chars: usize) -> String {
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
        if figures.chars().count() + verdict.chars().count() <= width_chars {
            figures + &verdict
        } else {
            format!("{}\n              {verdict}", figures.trim_end())
        }
    }
}

/// A search, for programs.
#[derive(Serialize)]
struct SearchResult<'a> {
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

impl<'a> SearchResult<'a> {
    /// What `search` found in `trials`; `closed` was the loop before them.
    fn new(
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
    fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data") + "\n"
    }
}

fn in_words<S: Serializer>(sought: &&Sought, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(sought)
}

/// One row for each rate, rising, with the median latency of its trials on a logarithmic axis; a
/// line stands where the objective is. Empty without trials that were answered.
fn plot(trials: &[Trial], objective: &Sought) -> String {
    let rows = rows(trials);
    let limit_ns = objective.at_most.as_nanos() as f64;
    let times = || rows.iter().map(|row| row.latency_ns).chain([limit_ns]);
    let low = times().fold(f64::INFINITY, f64::min);
    let high = times().fold(0.0, f64::max);
    if rows.is_empty() {
        return String::new();
    }
    // The shortest still has a bar.
    let low = low / 1.5;
    let columns = |ns: f64| ((ns / low).ln() / (high / low).ln() * BAR as f64).round() as usize;
    let limit = columns(limit_ns);
    let mut text = format!("{:>12}  {:>10}\n", "requests/s", objective.name());
    for row in &rows {
        let bar: String = (0..=BAR.max(limit))
            .map(|column| match column {
                column if column == limit => '│',
                column if column < columns(row.latency_ns) => '━',
                _ => ' ',
            })
            .collect();
        let rate = count(row.rate_per_s.round() as u64);
        let latency = time(row.latency_ns);
        let verdict = match (row.did_hold, row.broken_by) {
            (true, _) => "holds".to_owned(),
            (false, Some(why)) => format!("fails: {why}"),
            (false, None) => "fails".to_owned(),
        };
        text += &format!("{rate:>12}  {latency:>10}  {bar}  {verdict}\n");
    }
    let words = format!("{} allowed", time(limit_ns));
    text + &format!("{:>width$} {words}\n", '└', width = LEFT - 1 + limit)
}

/// All trials of a rate.
struct Row<'a> {
    rate_per_s: f64,
    latency_ns: f64,
    did_hold: bool,
    /// Why the last that failed did.
    broken_by: Option<&'a str>,
}

fn rows<'a>(trials: &'a [Trial]) -> Vec<Row<'a>> {
    let mut answered: Vec<&Trial> =
        trials.iter().filter(|each| each.latency_ns.is_some()).collect();
    answered.sort_by(|a, b| a.rate_per_s.total_cmp(&b.rate_per_s));
    let row = |same: &[&'a Trial]| {
        let mut times: Vec<u64> = same.iter().filter_map(|each| each.latency_ns).collect();
        times.sort_unstable();
        Row {
            rate_per_s: same[0].rate_per_s,
            latency_ns: times[times.len() / 2] as f64,
            // The last of them is the one that decided, also where a rate was tried once more.
            did_hold: same.last().is_some_and(|each| each.broken_by.is_none()),
            broken_by: same.iter().rev().find_map(|each| each.broken_by.as_deref()),
        }
    };
    answered.chunk_by(|a, b| a.rate_per_s == b.rate_per_s).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(rate_per_s: f64, latency_ns: u64, did_hold: bool) -> Trial {
        Trial {
            rate_per_s,
            answered_per_s: rate_per_s,
            latency_ns: Some(latency_ns),
            errors: 0,
            is_generator_bound: false,
            broken_by: (!did_hold).then(|| "slow".to_owned()),
        }
    }

    fn p99() -> Sought {
        Sought::new(&["p99=5ms".parse().expect("an objective")]).expect("a quantile")
    }

    /// The verdict on a server that holds rates below 1500, with a generator that has no time
    /// from `bound_per_s` on.
    fn verdict(bound_per_s: f64, trials: usize) -> Verdict {
        let mut search = CapacitySearch::new(1_000.0);
        let mut done = Vec::new();
        while let (Some(rate), true) = (search.next_per_s(), done.len() < trials) {
            let is_generator_bound = rate >= bound_per_s;
            done.push(Trial { is_generator_bound, ..trial(rate, 1, rate < 1_500.0) });
            search.tried(rate < 1_500.0);
        }
        Verdict::of(&search, &done, done.len() == trials)
    }

    #[test]
    fn a_capacity_lies_between_what_holds_and_what_fails() {
        let Verdict::Between(holds, fails) = verdict(f64::INFINITY, 100) else {
            panic!("{:?}", verdict(f64::INFINITY, 100))
        };
        assert!(holds < 1_500.0 && fails >= 1_500.0, "{holds} {fails}");
        // A generator that was short of time far beyond the limit does not matter.
        assert_eq!(verdict(1_900.0, 100), Verdict::Between(holds, fails));
    }

    #[test]
    fn a_generator_without_time_at_the_limit_makes_it_a_lower_bound() {
        let bound = verdict(1_400.0, 100);
        assert!(matches!(bound, Verdict::GeneratorBound(Some(_))), "{bound:?}");
        assert!(bound.words(&p99()).contains("at least"));
        assert_eq!(bound.exit_code(None), ExitCode::from(NOT_AS_ASKED));
    }

    #[test]
    fn a_search_that_was_ended_says_what_it_knew() {
        assert_eq!(verdict(f64::INFINITY, 0), Verdict::NotYet);
        assert_eq!(verdict(f64::INFINITY, 2), Verdict::AtLeast(1_000.0));
        let key = Verdict::NotYet.exit_code(Some(Interrupt::Key));
        assert_eq!(key, ExitCode::from(130));
    }

    #[test]
    fn a_line_says_what_was_asked_and_why_it_failed() {
        let mut trial = Trial {
            answered_per_s: 49_998.0,
            is_generator_bound: true,
            broken_by: Some("p99 was 6.20ms".to_owned()),
            ..trial(50_000.4, 6_200_000, false)
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

    #[test]
    fn rates_rise_and_bars_cross_the_line_where_the_objective_fails() {
        let trials = [
            trial(8_000.0, 20_000_000, false),
            trial(8_000.0, 22_000_000, false),
            trial(1_000.0, 200_000, true),
            trial(4_000.0, 900_000, true),
        ];
        let objective = p99();
        let text = plot(&trials, &objective);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert!(lines[1].contains("1,000") && lines[1].ends_with("holds"), "{text}");
        assert!(lines[3].contains("22.0 ms") && lines[3].ends_with("fails: slow"), "{text}");
        let place = |line: &str, mark| line.chars().position(|each| each == mark);
        let line = place(lines[1], '│').expect("the objective's line");
        assert_eq!(place(lines[4], '└'), Some(line), "{text}");
        let longest = lines[3].chars().filter(|each| *each == '━').count();
        let shortest = lines[1].chars().filter(|each| *each == '━').count();
        assert!(longest > shortest && shortest > 0, "{text}");
        assert!(lines[3].chars().skip(line + 1).any(|each| each == '━'), "{text}");
    }

    #[test]
    fn without_answers_there_is_no_plot() {
        let objective = p99();
        assert_eq!(plot(&[], &objective), "");
    }
}
