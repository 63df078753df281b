//! Starts a run and stays with it to its end: shows it, ends it early when somebody asks.
//!
//! The caller is `load.rs`, once for a run, or the search for the capacity, once for a trial.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use pollux_engine::{ListenAddress, Signals};
use pollux_load::{Load, LoadError, Outcome, Plan, Progress, Running};

use super::view::View;
use super::{EARLY, failure, plan};
use crate::output::{self, Failure};

/// So late is the end of a run noticed; often enough for people, too rare to disturb.
const STEP: Duration = Duration::from_millis(25);
/// Time between two looks at how far it is: to copy a second's latencies and to draw them takes
/// CPU time that the generator needs.
const LOOK: Duration = Duration::from_millis(250);

/// A run that came to its end.
pub(crate) struct Ran {
    pub(crate) outcome: Outcome,
    /// Whether somebody ended it.
    pub(crate) is_early: bool,
}

/// Starts `plan`. When nobody chose its driver and it can't be opened, the next one takes its
/// place in the plan.
pub(crate) fn start(plan: &mut Plan, is_free: bool) -> Result<Running, Failure> {
    match Load::start(plan.clone()) {
        Err(error @ LoadError::Loop { .. }) if is_free && plan.driver == plan::FASTEST => {
            let why = pollux_lab::error::in_words(&error);
            let (fastest, next) = (plan::FASTEST, plan::NEXT);
            output::remark(&format!("pollux load: {next} instead of {fastest}: {why}"));
            plan.driver = next;
            Load::start(plan.clone()).map_err(|error| failure(&error))
        }
        started => started.map_err(|error| failure(&error)),
    }
}

/// Waits for the end of a run. The first wish to end it is obeyed gently, the second at once;
/// a run that nobody answers is given up after its first second.
pub(crate) fn to_the_end(
    running: Running,
    view: &mut View,
    signals: &mut Signals,
) -> Result<Ran, Failure> {
    let mut is_early = false;
    let mut looked = Instant::now();
    while !running.is_finished() {
        if view.wait(signals, STEP)? {
            if is_early {
                view.close();
                return Err(at_once());
            }
            is_early = true;
            running.stop();
        }
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            let progress = running.progress();
            view.show(&progress)?;
            if is_hopeless(&progress) {
                running.stop();
            }
        }
    }
    view.show(&running.progress())?;
    let outcome = running.join().map_err(|error| failure(&error))?;
    Ok(Ran { outcome, is_early })
}

/// What the second wish to end does: nothing is shown.
fn at_once() -> Failure {
    let message = "ended at once; nothing was shown".to_owned();
    Failure { message, code: ExitCode::from(EARLY) }
}

/// Whether a whole second has passed without a connection and without an answer.
fn is_hopeless(progress: &Progress) -> bool {
    let Some(last) = &progress.last else { return false };
    last.end_s <= 1.0 && last.open == 0 && last.answered == 0 && last.sent == 0 && last.errors > 0
}

/// Why there was no connection, when there was none: the kernel's own words.
pub(crate) fn why_unconnected(plan: &Plan, outcome: &Outcome) -> Option<String> {
    let is_answered = outcome.totals.answered > 0;
    if is_answered || outcome.totals.sent > 0 || outcome.totals.connects > 0 {
        return None;
    }
    let address = &plan.targets.first()?.address;
    let tried = match address {
        ListenAddress::Tcp(at) => TcpStream::connect_timeout(at, plan.connect_timeout).map(drop),
        ListenAddress::Unix(path) => UnixStream::connect(path).map(drop),
    };
    let error = tried.err()?;
    Some(format!("can't connect to {address}: {error}; check that the server runs there"))
}
