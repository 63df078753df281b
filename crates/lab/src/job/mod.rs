//! A job: what to measure, on which arms, how often. The model behind job files and flags.
//!
//! A job file is parsed into a [`Job`]; the flags of `pollux lab run EXPERIMENT` build one as
//! well. The plan is made from it and nothing else.

mod builtin;
mod documentation;
mod keys;
mod kind;
mod mistake;
mod overrides;
mod parse;
mod rules;
#[cfg(test)]
mod tests;
mod walk;
mod write;

pub use builtin::{Builtin, DEFAULT_JOB, builtin, find, list};
pub use documentation::documentation_page;
pub use keys::{KEYS, Key, SCHEMA, Section};
pub use kind::Kind;
pub use mistake::{JobError, Mistake, Place, did_you_mean};
pub use overrides::{Overrides, commands_from_flags};
pub(crate) use rules::default_baseline;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use pollux_engine::Driver;

use crate::experiment::{Experiment, Peer, Wait};

/// Everything that a lab run is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Name for titles and folders.
    pub name: String,
    /// The question that it answers; title of the report.
    pub question: String,
    /// Seed of the block order and of the workloads.
    pub seed: u64,
    /// Blocks to run.
    pub blocks: u32,
    /// Most blocks, when the headline interval is wider than `target_ci`.
    pub blocks_max: u32,
    /// Wanted half-width of the 95 % interval, relative.
    pub target_ci: f64,
    /// Smallest relative effect that counts.
    pub min_effect: f64,
    /// Most wall time for everything; the plan is cut to fit.
    pub budget: Option<Duration>,
    /// Sampling rate of the CPU-clock profile, or none.
    pub profile_hz: Option<u32>,
    /// Whether each interval of each timing run is printed while it runs.
    pub shows_intervals: bool,
    /// Whether servers of pollux time each request inside, in a pass of its own.
    pub times_requests: bool,
    /// Sources that must be readable, or the run is refused.
    pub require: Vec<String>,
    /// The experiments, in the order in which a block visits them.
    pub parts: Vec<Part>,
}

/// One experiment of a job, with its axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Name within the job.
    pub name: String,
    /// The experiment.
    pub experiment: Experiment,
    /// Drivers of pollux to compare, each an arm.
    pub pollers: Vec<Driver>,
    /// Builds of pollux: where there are some, each is an arm for each driver, instead of the
    /// program that runs the job.
    pub builds: Vec<Build>,
    /// Ways of waiting to compare, each an arm; only `herd` has them.
    pub waits: Vec<Wait>,
    /// Floors and other systems to compare with, each an arm.
    pub peers: Vec<Peer>,
    /// Name of the arm that the others are compared with: a poller, a peer or an external arm.
    pub baseline: String,
    /// External commands, each an arm.
    pub commands: Vec<Command>,
    /// Values of each axis of the experiment, complete and checked.
    pub axes: BTreeMap<String, Vec<String>>,
    /// Time before the measured window.
    pub ramp_time: Duration,
    /// Length of the measured window.
    pub runtime: Duration,
    /// Length of one interval within it.
    pub interval: Duration,
    /// Whether whole runs are measured for their rates, instead of costs in turns.
    pub rates: bool,
}

/// A build of pollux as an arm, to be compared with another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    /// Name of the arm; where there are several drivers it follows theirs.
    pub name: String,
    /// The `pollux` binary.
    pub program: PathBuf,
}

/// The arms of pollux: each driver, or each build on each driver.
#[must_use]
pub fn arms_of_pollux<'a>(
    pollers: &[Driver],
    builds: &'a [Build],
) -> Vec<(String, Driver, Option<&'a Build>)> {
    if builds.is_empty() {
        return pollers.iter().map(|&driver| (driver.name().to_owned(), driver, None)).collect();
    }
    let name = |driver: Driver, build: &Build| match pollers {
        [_] => build.name.clone(),
        _ => format!("{driver}-{}", build.name),
    };
    let of =
        |driver: Driver| builds.iter().map(move |build| (name(driver, build), driver, Some(build)));
    pollers.iter().flat_map(|&driver| of(driver)).collect()
}

/// An external program as an arm: it prints its own figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Name of the arm.
    pub name: String,
    /// Command line, split like a POSIX shell splits words; no shell runs it.
    pub line: String,
    /// Regular expression whose first group is the figure, searched in standard output and
    /// standard error; the last match counts.
    pub pattern: String,
}
