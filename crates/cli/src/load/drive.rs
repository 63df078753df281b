//! Starts a run and stays with it to its end: shows it, ends it early when somebody asks.
//!
//! The caller is `load.rs`, once for a run, or the search for the capacity, once for a trial.

use std::time::{Duration, Instant};

use pollux_engine::Signals;
use pollux_load::{Load, LoadError, Outcome, Plan, Running};

use super::scraped::Scraped;
use super::view::View;
use super::wish::Wish;
use super::{failure, plan};
use crate::output::{self, Failure};

/// So late is the end of a run noticed; often enough for people, too rare to disturb.
const STEP: Duration = Duration::from_millis(25);
/// Time between two looks at how far it is: to copy a second's latencies and to draw them takes
/// CPU time that the generator needs.
const LOOK: Duration = Duration::from_millis(250);

/// A run that came to its end.
pub(crate) struct Ran {
    pub(crate) outcome: Outcome,
    /// Who ended it early, if anybody did.
    pub(crate) wish: Option<Wish>,
    /// Why there was nobody to ask, where that is so.
    pub(crate) why_in_vain: Option<String>,
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
/// a run that has nobody to connect to is given up as soon as all connections have been tried.
pub(crate) fn to_the_end(
    running: Running,
    view: &mut View,
    (signals, scraped): (&mut Signals, &Scraped),
) -> Result<Ran, Failure> {
    let mut wish = None;
    let mut looked = Instant::now();
    while !running.is_finished() {
        if let Some(now) = view.wait(signals, STEP)? {
            if wish.is_some() {
                view.close();
                return Err(at_once(now));
            }
            wish = Some(now);
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
    Ok(Ran { why_in_vain: why.filter(|_| is_alone || is_in_vain), outcome, wish })
}

/// What the second wish to end does: nothing is shown.
pub(super) fn at_once(wish: Wish) -> Failure {
    let message = "ended at once; nothing was shown".to_owned();
    Failure { message, code: wish.exit_code() }
}
