//! What is seen of a run while it runs: the live view on a terminal, a line for each second
//! elsewhere, nothing with `--quiet`.
//!
//! Everything goes to standard error. It is also what waits for the wish to end the run, because
//! on a terminal in raw mode Ctrl-C is a key like any other.

use std::io::IsTerminal;
use std::time::Duration;

use pollux_engine::Signals;
use pollux_load::{Plan, Progress};

use super::lines::Lines;
use super::live::Live;
use super::wish::Wish;
use crate::output::{self, Failure};

/// How a run is shown.
pub(crate) enum View {
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

    /// Waits at most so long; who wishes to end the run, if anybody does.
    pub(crate) fn wait(
        &mut self,
        signals: &mut Signals,
        at_most: Duration,
    ) -> Result<Option<Wish>, Failure> {
        match self {
            Self::Quiet | Self::Lines(_) => {
                let signal = signals.wait(Some(at_most)).map_err(Failure::failed)?;
                Ok(signal.map(Wish::Signal))
            }
            Self::Live(live) => {
                let is_key = live.wait(at_most).map_err(Failure::failed)?;
                let signal = signals.take().map(Wish::Signal);
                Ok(signal.or(is_key.then_some(Wish::Key)))
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

/// Whether somebody looks at a terminal that may be redrawn. Standard output counts too: the
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
