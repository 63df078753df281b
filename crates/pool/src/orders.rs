//! Orders to a running pool, with their progress.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pollux_xatmi::control::{Answer, AskError, Control, Progress, Request};
use pollux_xatmi::pool::workers_left;
use pollux_xatmi::supervisor::Selection;

use crate::{SILENCE, asked, connect, environment};
use pollux_command::output::{self, Failure};

/// The longest time without any progress: limits of a configuration are up to a day of seconds,
/// but a user at a terminal has given up long before.
const ORDER_SILENCE: Duration = Duration::from_secs(600);
/// From the last worker's end until it is said that the manager is still there.
const END_PROGRESS_AFTER: Duration = Duration::from_secs(2);

/// Starts workers of the running pool.
pub(crate) fn start(what: Selection) -> Result<ExitCode, Failure> {
    order(&Request::Start { what }, "starting")
}

/// Stops workers, or the pool.
pub(crate) fn stop(what: Option<Selection>, now: bool) -> Result<ExitCode, Failure> {
    let Some(what) = what else { return end(now) };
    order(&Request::Stop { what }, "stopping")
}

/// Restarts workers.
pub(crate) fn restart(what: Option<Selection>) -> Result<ExitCode, Failure> {
    order(&Request::Restart { what: what.unwrap_or(Selection::All) }, "restarting")
}

/// Has the configuration read again.
pub(crate) fn reload() -> Result<ExitCode, Failure> {
    let said = connect()?.ask(&Request::Reload, SILENCE, |_| {});
    output::remark(&said.map_err(|error| asked(&error))?);
    Ok(ExitCode::SUCCESS)
}

/// Sends an order and shows how far it is; the words at its end.
pub(crate) fn follow(
    control: &mut Control,
    request: &Request,
    verb: &'static str,
) -> Result<String, AskError> {
    let bar = std::io::stderr().is_terminal().then(|| bar(verb));
    let outcome = control.ask(request, ORDER_SILENCE, |answer| {
        if let (Some(bar), Answer::Progress(Progress { done, of, failed })) = (&bar, answer) {
            bar.set_length(of as u64);
            bar.set_position(done as u64);
            if failed > 0 {
                bar.set_message(format!("{failed} failed"));
            }
        }
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    outcome
}

fn order(request: &Request, verb: &'static str) -> Result<ExitCode, Failure> {
    let said = follow(&mut connect()?, request, verb).map_err(|error| asked(&error))?;
    output::remark(&said);
    Ok(ExitCode::SUCCESS)
}

fn end(now: bool) -> Result<ExitCode, Failure> {
    let began = Instant::now();
    let prefix = environment()?.prefix;
    let mut control = Control::connect(&prefix).map_err(|error| {
        let left = match error {
            AskError::NoPool { .. } => workers_left(&prefix).len(),
            _ => 0,
        };
        let failure = asked(&error);
        match left {
            0 => failure,
            _ => Failure::failed(format!(
                "{}; {left} workers of a manager that was killed are left: a `start` takes them \
                 over, else they end within a minute",
                failure.message
            )),
        }
    })?;
    let said = follow(&mut control, &Request::End { now }, "stopping");
    let said = said.map_err(|error| asked(&error))?;
    wait_for_end(&mut control)?;
    output::remark(&format!("{said} after {:.2} s", began.elapsed().as_secs_f64()));
    Ok(ExitCode::SUCCESS)
}

/// Waits until the process of the manager has ended: until then the prefix and its files are in use.
fn wait_for_end(control: &mut Control) -> Result<(), Failure> {
    let outcome = match control.wait_for_end(END_PROGRESS_AFTER) {
        Err(AskError::Silent(_)) => {
            let pid = control.manager();
            output::remark(&format!(
                "all workers are stopped; the manager, process {pid}, is still ending"
            ));
            control.wait_for_end(SILENCE)
        }
        other => other,
    };
    outcome.map_err(|error| match error {
        AskError::Silent(_) => Failure::failed(format!(
            "all workers are stopped, and the manager, process {pid}, has not ended within {} s; its log says \
             what it waits for, `kill -9 {pid}` ends it",
            (END_PROGRESS_AFTER + SILENCE).as_secs(),
            pid = control.manager(),
        )),
        error => asked(&error),
    })
}

fn bar(verb: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{prefix} {bar:24} {pos}/{len} {msg}");
    bar.set_style(style.expect("a constant template"));
    bar.set_prefix(verb);
    bar
}
