//! Starts a run and stays with it to its end: shows it on standard error (the live view on a terminal, a line
//! for each second elsewhere, nothing with `--quiet`) and to a scraper, ends it early on a signal.
//!
//! The caller is `load.rs`, once for a run, or the search for the capacity, once for a trial.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use pollux_engine::{Driver, Signal, Signals, Started};
use pollux_load::{Load, LoadError, Outcome, Plan, Progress, Running};

use super::failure;
use super::live::Live;
use super::plain::Lines;
use super::scrape::Scraped;
use crate::output::{self, Failure};

/// So late is the end of a run noticed; often enough for people, too rare to disturb.
const STEP: Duration = Duration::from_millis(25);
/// Time between two looks at how far it is: to copy a second's latencies and to draw them takes
/// CPU time that the generator needs.
const LOOK: Duration = Duration::from_millis(250);

/// A run that came to its end.
pub(crate) struct Ran {
    pub(crate) outcome: Outcome,
    /// The signal that ended it early, if one did.
    pub(crate) interrupt: Option<Interrupt>,
    /// Why no server could be connected to, where that is so.
    pub(crate) why_in_vain: Option<String>,
}

/// Starts `plan`. When its driver was not chosen and can't be opened, the next one takes its
/// place in the plan.
pub(crate) fn start(plan: &mut Plan, is_free: bool) -> Result<Running, Failure> {
    // Another than the preferred one was chosen, or is the one on which this plan ran before.
    let is_chosen = !is_free || plan.driver != Driver::PREFERRED[0];
    let started =
        Driver::start_first(is_chosen.then_some(plan.driver), |driver| {
            match Load::start(Plan { driver, ..plan.clone() }) {
                Err(refused @ LoadError::Loop { .. }) => Err(refused),
                started => Ok(started),
            }
        });
    let started = started.map_err(|error| failure(&error))?;
    plan.driver = started.driver;
    remark_refused(&started);
    started.value.map_err(|error| failure(&error))
}

/// Says which driver took the place of those that were preferred, and why.
pub(super) fn remark_refused<T>(started: &Started<T, LoadError>) {
    for (refused, error) in &started.refused {
        let (driver, why) = (started.driver, output::in_words(error));
        output::remark(&format!("pollux load: {driver} instead of {refused}: {why}"));
    }
}

/// Waits for the end of a run. The first interrupt ends it gently, the second at once;
/// a run that can connect to no server is given up as soon as all connections have been tried.
pub(crate) fn to_the_end(
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
        if running.is_in_vain() {
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
    let is_in_vain = running.is_in_vain();
    if !is_in_vain {
        view.show(&progress)?;
    }
    let outcome = running.join().map_err(|error| failure(&error))?;
    let was_sent = outcome.seconds.iter().any(|second| second.sent > 0);
    let is_alone = !was_sent && outcome.totals.connects == 0;
    let why = outcome.first_failure.clone();
    Ok(Ran { why_in_vain: why.filter(|_| is_alone || is_in_vain), outcome, interrupt })
}

/// What the second interrupt does: nothing is shown.
pub(super) fn at_once(interrupt: Interrupt) -> Failure {
    let message = "ended at once; nothing was shown".to_owned();
    Failure { message, code: interrupt.exit_code() }
}

/// What ends a run early, and the exit code that it gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Interrupt {
    /// A key of the live view: as Ctrl-C.
    Key,
    /// A signal.
    Signal(Signal),
}

impl Interrupt {
    /// The signals that end a run.
    pub(crate) const SIGNALS: [Signal; 3] = [Signal::Interrupt, Signal::Terminate, Signal::HangUp];

    /// That of a command which the signal ended.
    pub(crate) fn exit_code(self) -> ExitCode {
        output::ended_by(match self {
            Self::Signal(signal) => signal.number(),
            Self::Key => Signal::Interrupt.number(),
        })
    }
}

/// How a run is shown.
pub(super) enum View {
    /// Not at all.
    Quiet,
    /// A line for each second.
    Lines(Lines),
    /// Redrawn in place.
    Live(Box<Live>),
}

impl View {
    /// The view that fits where standard error goes.
    pub(crate) fn open(plan: &Plan, is_quiet: bool) -> Self {
        if is_quiet {
            return Self::Quiet;
        }
        output::remark(&format!("pollux load: {}", in_words(plan)));
        if !is_interactive() {
            return Self::Lines(Lines::new(plan));
        }
        match Live::open(plan) {
            Ok(live) => Self::Live(Box::new(live)),
            // A terminal that can't say where its cursor is still shows lines.
            Err(_) => Self::Lines(Lines::new(plan)),
        }
    }

    /// Waits at most so long; the request to end the run, if there is one.
    pub(crate) fn wait(
        &mut self,
        signals: &mut Signals,
        at_most: Duration,
    ) -> Result<Option<Interrupt>, Failure> {
        match self {
            Self::Quiet | Self::Lines(_) => {
                let signal = signals.wait(Some(at_most)).map_err(Failure::failed)?;
                Ok(signal.map(Interrupt::Signal))
            }
            Self::Live(live) => {
                let is_key = live.wait(at_most).map_err(Failure::failed)?;
                let signal = signals.take().map(Interrupt::Signal);
                Ok(signal.or(is_key.then_some(Interrupt::Key)))
            }
        }
    }

    /// Shows how far the run is, if that is worth showing by now.
    pub(crate) fn show(&mut self, progress: &Progress) -> Result<(), Failure> {
        match self {
            Self::Quiet => {}
            Self::Lines(lines) => lines.show(progress),
            Self::Live(live) => live.show(progress).map_err(Failure::failed)?,
        }
        Ok(())
    }

    /// Takes the live view away; nothing is shown from here on.
    pub(crate) fn close(&mut self) {
        *self = Self::Quiet;
    }
}

/// Whether the output is a terminal that may be redrawn. Standard output counts too: the
/// question for the cursor's place is written there.
fn is_interactive() -> bool {
    let stderr = std::io::stderr();
    let is_seen = stderr.is_terminal() && std::io::stdout().is_terminal();
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    // In the background a change of the terminal's mode would stop the process.
    let is_in_front = rustix::termios::tcgetpgrp(&stderr) == Ok(rustix::process::getpgrp());
    is_seen && !is_dumb && is_in_front
}

/// What runs, in one line.
fn in_words(plan: &Plan) -> String {
    let more = match plan.targets.len() {
        0 | 1 => String::new(),
        targets => format!(" and {} more", targets - 1),
    };
    let url = plan.targets.first().map_or("", |target| &target.url);
    let threads = if plan.threads == 1 { "thread" } else { "threads" };
    let end = match (plan.end.requests, plan.end.after) {
        (Some(requests), Some(after)) => format!("{requests} requests, {after:?} at most"),
        (Some(requests), None) => format!("{requests} requests"),
        (None, after) => format!("{:?}", after.unwrap_or_default()),
    };
    let warm_up = match plan.warm_up {
        Duration::ZERO => String::new(),
        warm_up => format!(" after {warm_up:?} of warm-up"),
    };
    format!(
        "{url}{more}; {end}{warm_up}; {} connections, {} {threads} on {}",
        plan.connections, plan.threads, plan.driver
    )
}

// `--prometheus`: metrics of the run, for a scraper that asks over HTTP while it runs.
//
