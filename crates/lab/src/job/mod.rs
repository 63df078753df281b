//! A job: what to measure, on which arms, how often. The model behind job files and flags.
//!
//! `table` is what a job file and the flags of `pollux lab run` say, read by `pollux-settings`; `part`
//! holds it together. The plan is made from the [`Job`] and nothing else.

mod arms;
mod builtin;
#[cfg(test)]
mod documentation;
mod part;
mod table;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use arms::default_baseline;
#[cfg(test)]
pub(crate) use builtin::of_text;
pub use builtin::{Builtin, DEFAULT_JOB, PUBLISHED, VERSION_JOB, builtin, find, list, read};

use std::collections::BTreeMap;
use std::time::Duration;

use crate::arm::Arm;
use crate::axis::Value;
use crate::experiments::Experiment;

/// Everything that a lab run is asked to do.
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
    /// Most blocks, when the headline interval is wider than `precision`.
    pub blocks_max: u32,
    /// Wanted half-width of the 95 % interval, relative.
    pub precision: f64,
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
    /// Its heading in reports, where that is not made of the name.
    pub title: Option<String>,
    /// The experiment.
    pub experiment: &'static dyn Experiment,
    /// What is compared, each under a name of its own.
    pub arms: Vec<Arm>,
    /// Name of the arm that the others are compared with.
    pub baseline: String,
    /// Values of each axis of the experiment, complete and checked.
    pub axes: BTreeMap<String, Vec<Value>>,
    /// Time before the measured window.
    pub ramp_time: Duration,
    /// Length of the measured window.
    pub runtime: Duration,
    /// Length of one interval within it.
    pub interval: Duration,
    /// Whether whole runs are measured for their rates, instead of costs in turns.
    pub rates: bool,
}
