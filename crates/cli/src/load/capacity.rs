//! `pollux load --find-capacity`: trial after trial, a line for each, and what they say together.
//!
//! The search itself is the generator's; here its trials are run and shown. It begins at half of
//! what a closed loop reaches, because from there the answer is near.

use std::process::ExitCode;

use pollux_engine::Signals;
use pollux_load::render::count;
use pollux_load::{CapacitySearch, End, Pace, Plan};

use super::drive::{self, Interrupt, Ran, View};
use super::files::Files;
use super::flags::LoadSettings;
use super::scrape::Scraped;
use super::trials::{Found, Sought, Trial, plot};
use super::{NOT_AS_ASKED, plan};
use crate::output::{self, Failure};

/// Part of the closed loop's rate that the search begins with.
const FIRST_SHARE: f64 = 0.5;

/// Searches the highest rate at which the objectives of `flags` hold.
pub(crate) fn run(
    flags: &LoadSettings,
    mut plan: Plan,
    files: &Files,
    (signals, scraped): (&mut Signals, &Scraped),
) -> Result<ExitCode, Failure> {
    let sought = Sought::new(&flags.objectives)
        .ok_or_else(|| Failure::usage("--find-capacity needs --slo with such as p99=5ms"))?;
    let lines = Lines { are_beside: files.are_printed(), is_quiet: flags.output.is_quiet };
    let closed = closed_loop(flags, &mut plan, (signals, scraped))?;
    let reached = closed.outcome.answered_per_s();
    lines.print(&format!(
        "{sought}: a closed loop of {} connections on {} reaches {} requests/s\n\n{}",
        plan.connections,
        plan.driver,
        count(reached.round() as u64),
        Trial::head(&sought)
    ))?;
    let mut search = CapacitySearch::new(reached * FIRST_SHARE);
    let mut trials = Vec::new();
    let mut interrupt = closed.interrupt;
    while let (Some(rate), None) = (search.next_per_s(), interrupt) {
        let ran = once(&mut plan::trial(flags, &plan, rate), flags, (signals, scraped))?;
        interrupt = ran.interrupt;
        if interrupt.is_none() {
            let trial = Trial::of(rate, &ran.outcome, &sought);
            lines.print(&trial.line(output::width_chars()))?;
            search.tried(trial.broken_by.is_none());
            trials.push(trial);
        }
    }
    let is_early = interrupt.is_some();
    let found = Found::new(&sought, &closed.outcome, &trials, &search, is_early).json();
    files.write_json(&found)?;
    let verdict = Verdict::of(&search, &trials, is_early);
    lines.print(&format!("\n{}\n{}", plot(&trials, &sought), verdict.words(&sought)))?;
    if files.are_printed() {
        output::result(&found)?;
    }
    Ok(verdict.exit_code(interrupt))
}

/// The loop before the search: what the server can do at all.
fn closed_loop(
    flags: &LoadSettings,
    plan: &mut Plan,
    (signals, scraped): (&mut Signals, &Scraped),
) -> Result<Ran, Failure> {
    plan.pace = Pace::Closed;
    plan.end = End { requests: None, after: Some(plan::trial_length(flags)) };
    plan.warm_up = plan::trial_warm_up(flags);
    if !flags.output.is_quiet {
        let (trial, warm_up) = (plan::trial_length(flags), plan.warm_up);
        output::remark(&format!(
            "pollux load: a closed loop, then trials until two of three agree on each rate; \
             {trial:?} each, after {warm_up:?} of warm-up"
        ));
    }
    let closed = once(plan, flags, (signals, scraped))?;
    let has_answers = closed.outcome.totals.answered > 0;
    if closed.why_in_vain.is_none() && (has_answers || closed.interrupt.is_some()) {
        return Ok(closed);
    }
    let nothing = || "nothing was answered; there is no capacity to find".to_owned();
    Err(Failure::failed(closed.why_in_vain.unwrap_or_else(nothing)))
}

/// One trial; the lines of the search take the place of a view.
fn once(
    plan: &mut Plan,
    flags: &LoadSettings,
    (signals, scraped): (&mut Signals, &Scraped),
) -> Result<Ran, Failure> {
    let running = drive::start(plan, flags.poller.is_none())?;
    drive::to_the_end(running, &mut View::Quiet, (signals, scraped))
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
                 not the server: give it more threads (--threads) and CPUs",
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

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(rate_per_s: f64, did_hold: bool, is_generator_bound: bool) -> Trial {
        Trial {
            rate_per_s,
            answered_per_s: rate_per_s,
            latency_ns: Some(1),
            errors: 0,
            is_generator_bound,
            broken_by: (!did_hold).then(|| "slow".to_owned()),
        }
    }

    /// The verdict on a server that holds rates below 1500, with a generator that has no time
    /// from `bound_per_s` on.
    fn verdict(bound_per_s: f64, trials: usize) -> Verdict {
        let mut search = CapacitySearch::new(1_000.0);
        let mut done = Vec::new();
        while let (Some(rate), true) = (search.next_per_s(), done.len() < trials) {
            done.push(trial(rate, rate < 1_500.0, rate >= bound_per_s));
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
        let sought = Sought::new(&["p99=5ms".parse().expect("an objective")]).expect("a quantile");
        assert!(bound.words(&sought).contains("at least"));
        assert_eq!(bound.exit_code(None), ExitCode::from(NOT_AS_ASKED));
    }

    #[test]
    fn a_search_that_was_ended_says_what_it_knew() {
        assert_eq!(verdict(f64::INFINITY, 0), Verdict::NotYet);
        assert_eq!(verdict(f64::INFINITY, 2), Verdict::AtLeast(1_000.0));
        let key = Verdict::NotYet.exit_code(Some(Interrupt::Key));
        assert_eq!(key, ExitCode::from(130));
    }
}
