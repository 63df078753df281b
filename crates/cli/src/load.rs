//! `pollux load`: flags to a plan, a run that can be watched and ended early, its result in the
//! forms that were asked for, and an exit code.
//!
//! What is measured and how it is judged is decided in the generator's crate.

mod capacity;
mod drive;
mod files;
mod flags;
mod list;
mod live;
mod plain;
mod plan;
mod results;
mod scrape;
mod trials;
mod turns;
mod values;

use std::process::ExitCode;

use pollux_engine::Signals;
use pollux_load::{Finding, FindingKind, LoadError, Outcome, Plan, Turns, render};

use crate::output::{self, Failure};
use drive::Interrupt;
use drive::Ran;
use drive::View;
use files::Files;
use flags::{LoadSettings, Style};
use scrape::Scraped;

pub(crate) use results::LoadCommand;

/// The exit code of a run that was not what was asked for.
const NOT_AS_ASKED: u8 = 3;

/// Runs the generator as the flags say, or looks at results.
pub(crate) fn run(command: &LoadCommand) -> Result<ExitCode, Failure> {
    if let Some(results) = &command.results {
        return results::run(results);
    }
    let flags = &command.flags.read().map_err(Failure::usage)?;
    let plan = plan::plan(flags).map_err(|error| failure(&error))?;
    if flags.holds {
        return hold(plan);
    }
    let files = Files::prepare(&flags.output)?;
    pollux_sys::descriptors::raise().map_err(Failure::failed)?;
    let scraped = Scraped::offer(flags.prometheus)?;
    let mut signals = Signals::catch(&Interrupt::SIGNALS).map_err(Failure::failed)?;
    match flags.finds_capacity {
        true => capacity::run(flags, plan, &files, (&mut signals, &scraped)),
        false => run_once(flags, plan, &files, (&mut signals, &scraped)),
    }
}

fn run_once(
    flags: &LoadSettings,
    mut plan: Plan,
    files: &Files,
    (signals, scraped): (&mut Signals, &Scraped),
) -> Result<ExitCode, Failure> {
    let running = drive::start(&mut plan, flags.poller.is_none())?;
    let mut view = View::open(&plan, flags.output.is_quiet);
    let Ran { outcome, interrupt, why_in_vain } =
        drive::to_the_end(running, &mut view, (signals, scraped))?;
    view.close();
    files.write(&outcome)?;
    let is_table = flags.output.style.is_none() && !files.are_printed();
    if is_table && let Some(why) = &why_in_vain {
        return Err(Failure::failed(why));
    }
    show(flags, files, &outcome)?;
    if !is_table {
        shout(&outcome.findings);
    }
    if let Some(why) = &why_in_vain {
        output::error(why);
        return Ok(ExitCode::from(1));
    }
    Ok(exit_code(&outcome, interrupt))
}

/// Prints the result in the form that was asked for.
fn show(flags: &LoadSettings, files: &Files, outcome: &Outcome) -> Result<(), Failure> {
    let table = || render::table(outcome, output::width_chars(), output::is_colourful());
    output::result(&match (files.printed(outcome), flags.output.style) {
        (Some(file), _) => file,
        (None, Some(Style::Ab)) => render::ab(outcome),
        (None, Some(Style::Wrk)) => render::wrk(outcome),
        (None, Some(Style::Httperf)) => render::httperf(outcome),
        (None, None) => output::shown(&table()),
    })
}

/// Prints findings where a reader of the figures cannot miss them.
fn shout(findings: &[Finding]) {
    for Finding { text, advice, .. } in findings {
        let text = format!("pollux load: !! {text}\n                {advice}");
        output::remark(&output::shown(&text));
    }
}

fn exit_code(outcome: &Outcome, interrupt: Option<Interrupt>) -> ExitCode {
    let has = |kind| outcome.findings.iter().any(|finding| finding.kind == kind);
    let is_open_loop = outcome.setting.asked_per_s.is_some();
    match interrupt {
        Some(interrupt) => interrupt.exit_code(),
        None if has(FindingKind::NoAnswers) => ExitCode::from(1),
        None if has(FindingKind::RateMissed)
            || has(FindingKind::ObjectiveMissed)
            || has(FindingKind::Outage)
            || has(FindingKind::Unanswered)
            || has(FindingKind::GeneratorStalled)
            || has(FindingKind::ManyErrors)
            || (is_open_loop && has(FindingKind::GeneratorBound)) =>
        {
            ExitCode::from(NOT_AS_ASKED)
        }
        None => ExitCode::SUCCESS,
    }
}

/// What the plan got wrong is the flags' fault, the rest is the machine's.
fn failure(error: &LoadError) -> Failure {
    let message = output::in_words(error);
    match error {
        LoadError::Url { .. } | LoadError::Plan { .. } => Failure::usage(message),
        _ => Failure::failed(message),
    }
}

/// `pollux load --hold`: opens the crowd of `plan`, says so on standard error, and holds it until standard
/// input ends, as it does with the process that started this one. The lab starts it beside a server that is
/// measured: as many as the limit of descriptors asks for.
fn hold(plan: Plan) -> Result<ExitCode, Failure> {
    pollux_sys::descriptors::raise().map_err(Failure::failed)?;
    let plan = Plan { connections: 0, ..plan };
    let mut turns = Turns::open(plan).map_err(|error| failure(&error))?;
    output::remark("pollux load: the crowd is set up");
    std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink()).map_err(Failure::failed)?;
    let crowd = turns.crowd().map_err(|error| failure(&error))?;
    output::result(&serde_json::to_string(&crowd).expect("plain data"))?;
    Ok(ExitCode::SUCCESS)
}
