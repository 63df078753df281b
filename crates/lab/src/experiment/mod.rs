//! The experiments: what each one is called, which axes it has and what it measures.
//!
//! Job files and command-line flags are checked against these tables, help texts and
//! `docs/job-file.md` are printed from them. What an experiment does is in a file of its own.

use std::collections::BTreeMap;
use std::fmt;

use crate::error::MeasureError;
use crate::measure::{Gauge, RunSpec};

mod axis;
mod pipes;
mod streams;
mod transport;

pub use axis::{Axis, AxisKind, AxisValueError};

/// An experiment of the lab.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum Experiment {
    /// Many streams fed by a writer thread (seed 000, `epoll_bench`).
    Streams,
    /// Tokens that hop between pipes (seed 001, `pipetest`).
    Pipes,
}

impl Experiment {
    /// Every experiment, in the order of lists.
    pub const ALL: [Self; 2] = [Self::Streams, Self::Pipes];

    /// Name on command lines, in job files and results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Streams => "streams",
            Self::Pipes => "pipes",
        }
    }

    /// The experiment called `name`.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|experiment| experiment.name() == name)
    }

    /// One line for lists.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Streams => {
                "a writer thread sends single bytes to random streams, a reader collects them \
                 through the poller (Dumazet's epoll_bench, 2006)"
            }
            Self::Pipes => {
                "tokens hop between pipes of which all but a few are idle: what does watching \
                 cost? (LaHaise's pipetest, 2002)"
            }
        }
    }

    /// The question, as the title of a report that has only this experiment.
    #[must_use]
    pub const fn question(self) -> &'static str {
        match self {
            Self::Streams => "Which event mechanism collects most from many active streams?",
            Self::Pipes => "What does it cost to watch many idle descriptors?",
        }
    }

    /// What is measured.
    #[must_use]
    pub const fn metric(self) -> Metric {
        match self {
            Self::Streams => Metric { name: "events per second", unit: "events/s" },
            Self::Pipes => Metric { name: "passes per second", unit: "passes/s" },
        }
    }

    /// Whether the workload opens and closes the measured window itself, because it is a fixed
    /// amount of work; otherwise the window is a stretch of time.
    pub(crate) const fn has_own_window(self) -> bool {
        matches!(self, Self::Pipes)
    }

    /// Runs the workload in the calling thread until it is done or stopped.
    pub(crate) fn run(self, spec: &RunSpec, gauge: &Gauge) -> Result<(), MeasureError> {
        match self {
            Self::Streams => streams::run(spec, gauge),
            Self::Pipes => pipes::run(spec, gauge),
        }
    }

    /// Descriptors that a run at this point needs, beside the few that every process has.
    ///
    /// # Panics
    /// When `axes` lacks the axis that counts them.
    #[must_use]
    pub fn fds_needed(self, axes: &BTreeMap<String, String>) -> u64 {
        let axis = match self {
            Self::Streams => "nfds",
            Self::Pipes => "pipes",
        };
        2 * axes[axis].parse::<u64>().expect("checked when the job was read")
    }

    /// The axes; each is a key of a job and a flag of `pollux lab run`.
    #[must_use]
    pub const fn axes(self) -> &'static [Axis] {
        match self {
            Self::Streams => axis::STREAMS,
            Self::Pipes => axis::PIPES,
        }
    }
}

impl fmt::Display for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What an experiment measures. More is better for every metric so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metric {
    /// In words.
    pub name: &'static str,
    /// As written behind a value.
    pub unit: &'static str,
}
