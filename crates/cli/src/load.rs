//! `pollux load`: flags to a plan, a run that can be ended early, its result in the forms that were asked for, and
//! an exit code.
//!
//! A run is shown on standard error (the live view on a terminal, a line for each second elsewhere, nothing with
//! `--quiet`) and to a scraper of Prometheus. What is measured and how it is judged is decided in the generator's
//! crate.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use pollux_engine::{CpuList, Driver, Signal, Signals, Started};
use pollux_load::{
    Finding, FindingKind, Load, LoadError, Outcome, Plan, Progress, Running, ScrapeListener,
    ScrapedPage, Turns, render,
};
use pollux_sys::process::ignores;

use crate::output::{self, Failure};
use flags::{LoadSettings, Style};
use results::Files;
use view::View;

pub(crate) use results::LoadCommand;

mod agents;
mod capacity;
mod flags;
mod list;
mod plan;
mod results;
mod values;
mod view;

/// The exit code of a run that was not what was asked for.
const NOT_AS_ASKED: u8 = 3;
/// So late is the end of a run noticed; often enough for people, too rare to disturb.
const STEP: Duration = Duration::from_millis(25);
/// Time between two looks at how far it is: to copy a second's latencies and to draw them takes
/// CPU time that the generator needs.
const LOOK: Duration = Duration::from_millis(250);

/// Runs the generator as the flags say, or looks at results.
pub(crate) fn run(command: &LoadCommand) -> Result<ExitCode, Failure> {
    if let Some(results) = &command.results {
        return results::run(results);
    }
    let flags = &command.flags.read().map_err(Failure::usage)?;
    let mut plan = plan::plan(flags).map_err(|error| failure(&error))?;
    if let Some(count) = flags.several.agents {
        return agents::run(flags, plan, count);
    }
    // Once for all runs of a search, and for each mechanism that is tried.
    plan.reach();
    if flags.holds {
        return hold(plan);
    }
    let files = Files::prepare(&flags.output)?;
    pollux_sys::descriptors::raise().map_err(Failure::failed)?;
    let scraped = Scraped::offer(flags.prometheus)?;
    let mut signals = Signals::catch(&Interrupt::signals()).map_err(Failure::failed)?;
    if flags.finds_capacity {
        capacity::run(flags, plan, &files, (&mut signals, &scraped))
    } else {
        run_once(flags, plan, &files, (&mut signals, &scraped))
    }
}

fn run_once(
    flags: &LoadSettings,
    mut plan: Plan,
    files: &Files,
    (signals, scraped): (&mut Signals, &Scraped),
) -> Result<ExitCode, Failure> {
    if !flags.output.is_quiet {
        remark_threads(&plan);
    }
    let (running, choice) = start(&mut plan, flags.poller.is_none())?;
    let mut view = View::open(&plan, &choice, flags.output.is_quiet);
    let Ran { outcome, interrupt, why_in_vain } =
        to_the_end(running, &mut view, (signals, scraped))?;
    view.close();
    conclude(flags, files, &outcome, (interrupt, why_in_vain.as_deref()))
}

/// Shows the result of a run in the forms that were asked for, and says how it went by the exit code.
fn conclude(
    flags: &LoadSettings,
    files: &Files,
    outcome: &Outcome,
    (interrupt, why_in_vain): (Option<Interrupt>, Option<&str>),
) -> Result<ExitCode, Failure> {
    let is_table = flags.output.style.is_none() && !files.are_printed();
    if is_table && let Some(why) = why_in_vain {
        files.write(outcome)?;
        return Err(Failure::failed(why));
    }
    // Neither costs the other: a file that can't be written, an output that nobody reads.
    let shown = show(flags, files, outcome);
    if !is_table {
        shout(&outcome.findings);
    }
    let written = files.write(outcome);
    shown.and(written)?;
    if let Some(why) = why_in_vain {
        output::error(why);
        return Ok(ExitCode::from(1));
    }
    Ok(exit_code(outcome, interrupt))
}

/// Says so where there are more threads than CPUs for them: they take each other's time, and `-t 30` is a time to ab.
fn remark_threads(plan: &Plan) {
    let cpus = plan.cpus.clone().or_else(|| CpuList::allowed().ok());
    let Some(cpus) = cpus.map(|cpus| cpus.as_slice().len()) else { return };
    if plan.threads as usize > cpus {
        let cpus = render::plural(cpus as u64, "CPU");
        output::remark(&format!(
            "pollux load: {} threads (-t) on {cpus}: they wait for each other; a length is -d TIME, a limit for answers \
             --timeout TIME",
            plan.threads
        ));
    }
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
            || has(FindingKind::AgentLost)
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
    let message = output::error_chain(error);
    match error {
        LoadError::Url { .. } | LoadError::Plan { .. } | LoadError::Descriptors { .. } => {
            Failure::usage(message)
        }
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

/// A run that came to its end.
struct Ran {
    outcome: Outcome,
    /// The signal that ended it early, if one did.
    interrupt: Option<Interrupt>,
    /// Why no server could be connected to, where that is so.
    why_in_vain: Option<String>,
}

/// Starts `plan`. When its driver was not chosen and can't be opened, the next one takes its
/// place in the plan. With the driver's name, and why it was taken.
fn start(plan: &mut Plan, is_free: bool) -> Result<(Running, String), Failure> {
    // Another than the preferred one was chosen, or is the one on which this plan ran before.
    let is_chosen = !is_free || plan.driver != Driver::PREFERRED[0];
    let chosen = is_chosen.then_some(plan.driver);
    let started =
        Driver::start_first(chosen, |driver| match Load::start(Plan { driver, ..plan.clone() }) {
            Err(refused @ LoadError::Loop(_)) => Err(refused),
            started => Ok(started),
        });
    let started = started.map_err(|error| no_loop(&error, chosen))?;
    plan.driver = started.driver;
    remark_refused(&started);
    let choice = started.choice();
    Ok((started.value.map_err(|error| failure(&error))?, choice))
}

/// What to say where no loop could be opened, on `named` if one was.
fn no_loop(error: &LoadError, named: Option<Driver>) -> Failure {
    let Some(named) = named else { return failure(error) };
    let why = output::error_chain(error);
    Failure::failed(format!(
        "--poller {named}: {why}; without --poller the best that works is taken"
    ))
}

/// Says which driver took the place of those that were preferred, and why.
fn remark_refused<T>(started: &Started<T, LoadError>) {
    for (refused, error) in &started.refused {
        let driver = started.driver;
        let why = output::error_chain(error);
        output::remark(&format!("pollux load: {driver} instead of {refused}: {why}"));
    }
}

/// Waits for the end of a run. The first interrupt ends it gently, the second at once;
/// a run that can connect to no server is given up as soon as all connections have been tried.
fn to_the_end(
    running: Running,
    view: &mut View,
    (signals, scraped): (&mut Signals, &Scraped),
) -> Result<Ran, Failure> {
    let mut interrupt = None;
    let mut looked = Instant::now();
    while !running.is_finished() {
        if let Some(now) = view.wait(signals, STEP)? {
            if interrupt.is_some() {
                view.close();
                return Err(at_once(now));
            }
            interrupt = Some(now);
            running.stop();
        }
        if running.has_elapsed_unanswered() {
            running.give_up();
        }
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            let progress = running.progress();
            scraped.show(&progress);
            view.show(&progress)?;
        }
    }
    let progress = running.progress();
    scraped.show(&progress);
    let has_elapsed_unanswered = running.has_elapsed_unanswered();
    if !has_elapsed_unanswered {
        view.show(&progress)?;
    }
    let outcome = running.join().map_err(|error| failure(&error))?;
    let was_sent = outcome.seconds.iter().any(|second| second.sent > 0);
    let is_alone = !was_sent && outcome.totals.connects == 0;
    let why = outcome.first_failure.clone();
    Ok(Ran { why_in_vain: why.filter(|_| is_alone || has_elapsed_unanswered), outcome, interrupt })
}

/// What the second interrupt does: nothing is shown.
fn at_once(interrupt: Interrupt) -> Failure {
    let message = "ended at once; nothing was shown".to_owned();
    Failure { message, code: interrupt.exit_code() }
}

/// What ends a run early, and the exit code that it gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Interrupt {
    /// A key of the live view: as Ctrl-C.
    Key,
    Signal(Signal),
}

impl Interrupt {
    /// The signals that end a run; not the end of a terminal that this was started to survive (nohup(1)).
    fn signals() -> Vec<Signal> {
        let mut signals = vec![Signal::Interrupt, Signal::Terminate];
        signals.extend([Signal::HangUp].iter().filter(|signal| !ignores(signal.number())));
        signals
    }

    /// That of a command which the signal ended.
    fn exit_code(self) -> ExitCode {
        output::ended_by(match self {
            Self::Signal(signal) => signal.number(),
            Self::Key => Signal::Interrupt.number(),
        })
    }
}

/// The page of metrics, where it was asked for.
struct Scraped(Option<ScrapedPage>);

impl Scraped {
    /// Listens there, if anywhere, to the end of the process.
    fn offer(address: Option<SocketAddr>) -> Result<Self, Failure> {
        let Some(address) = address else { return Ok(Self(None)) };
        let failed = |error| {
            let what = format!("--prometheus: {address} can't be listened on: {error}");
            Failure::failed(what)
        };
        let listener = ScrapeListener::bind(address).map_err(failed)?;
        let address = listener.address().map_err(failed)?;
        let page = listener.serve().map_err(failed)?;
        output::remark(&format!("pollux load: metrics at http://{address}/metrics"));
        Ok(Self(Some(page)))
    }

    /// Offers how far the run is now.
    fn show(&self, progress: &Progress) {
        if let Some(page) = &self.0 {
            page.show(render::prometheus(progress));
        }
    }
}
