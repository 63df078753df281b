//! `pollux load --find-capacity`: trial after trial, a line for each, and what they say together.
//!
//! The search itself is the generator's; here its trials are run and shown. It begins at half of
//! what a closed loop reaches, because from there the answer is near.

use std::process::ExitCode;

use pollux_engine::Signals;
use pollux_load::render::count;
use pollux_load::{CapacitySearch, End, Objective, Pace, Plan};

use super::drive::{self, Ran};
use super::files::Files;
use super::flags::LoadFlags;
use super::plot::plot;
use super::trials::{Found, Trial};
use super::view::View;
use super::{EARLY, NOT_AS_ASKED, plan, shout};
use crate::output::{self, Failure};

/// Part of the closed loop's rate that the search begins with.
const FIRST_SHARE: f64 = 0.5;

/// Searches the highest rate at which `objective` holds.
pub(crate) fn run(
    flags: &LoadFlags,
    mut plan: Plan,
    objective: Objective,
    files: &Files,
    signals: &mut Signals,
) -> Result<ExitCode, Failure> {
    plan.pace = Pace::Closed;
    plan.end = End { requests: None, after: Some(flags.trial) };
    plan.warm_up = plan::trial_warm_up(flags);
    let closed = once(&mut plan, flags, signals)?;
    if let Some(why) = drive::why_unconnected(&plan, &closed.outcome) {
        return Err(Failure::failed(why));
    }
    if closed.outcome.totals.answered == 0 {
        shout(&closed.outcome.findings);
        return Err(Failure::failed("nothing was answered; there is no capacity to be found"));
    }
    let lines = Lines { are_beside: files.are_printed(), is_quiet: flags.quiet };
    let reached = closed.outcome.answered_per_s();
    lines.print(&format!(
        "{objective}: a closed loop of {} connections on {} reaches {} requests/s\n\n{}",
        plan.connections,
        plan.driver,
        count(reached.round() as u64),
        Trial::head(&objective)
    ))?;
    let mut search = CapacitySearch::new(reached * FIRST_SHARE);
    let mut trials = Vec::new();
    let mut is_early = closed.is_early;
    while let (Some(rate), false) = (search.next_per_s(), is_early) {
        let ran = once(&mut plan::trial(flags, &plan, rate), flags, signals)?;
        is_early = ran.is_early;
        if !is_early {
            let trial = Trial::of(rate, &ran.outcome, &objective);
            lines.print(&trial.line())?;
            search.tried(trial.broken_by.is_none());
            trials.push(trial);
        }
    }
    let found = Found::new(&objective, &closed.outcome, &trials, &search, is_early).json();
    files.write_json(&found)?;
    let verdict = Verdict::of(&search, &trials);
    lines.print(&format!("\n{}\n{}", plot(&trials, &objective), verdict.words(&objective)))?;
    if files.are_printed() {
        output::result(&found)?;
    }
    Ok(match verdict {
        _ if is_early => ExitCode::from(EARLY),
        Verdict::Between(..) | Verdict::AtLeast(_) => ExitCode::SUCCESS,
        Verdict::GeneratorBound(_) | Verdict::Nothing => ExitCode::from(NOT_AS_ASKED),
    })
}

/// One trial; the lines of the search take the place of a view.
fn once(plan: &mut Plan, flags: &LoadFlags, signals: &mut Signals) -> Result<Ran, Failure> {
    let running = drive::start(plan, flags.poller.is_none())?;
    drive::to_the_end(running, &mut View::Quiet, signals)
}

/// Where the lines of the search go: they are the result, unless that is JSON.
struct Lines {
    are_beside: bool,
    is_quiet: bool,
}

impl Lines {
    fn print(&self, text: &str) -> Result<(), Failure> {
        match self {
            Self { are_beside: false, .. } => output::result(text)?,
            Self { is_quiet: false, .. } => output::remark(text),
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
}

impl Verdict {
    fn of(search: &CapacitySearch, trials: &[Trial]) -> Self {
        let failed_at = search.lowest_failing_per_s();
        let at_limit = |trial: &&Trial| failed_at == Some(trial.rate_per_s);
        let mut failed = trials.iter().filter(at_limit).filter(|trial| trial.broken_by.is_some());
        match (search.highest_per_s(), failed_at) {
            (holds, Some(_)) if failed.any(|trial| trial.is_generator_bound) => {
                Self::GeneratorBound(holds)
            }
            (Some(holds), Some(fails)) => Self::Between(holds, fails),
            (Some(holds), None) => Self::AtLeast(holds),
            (None, _) => Self::Nothing,
        }
    }

    fn words(self, objective: &Objective) -> String {
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
                "!! capacity: at least {} requests/s with {objective}; beyond that the generator \
                 was the bottleneck, not the server: give it more threads (--threads) and CPUs",
                holds.map_or_else(|| "n/a".to_owned(), rate)
            ),
            Self::Nothing => format!("!! no rate was found that holds {objective}"),
        }
    }
}
