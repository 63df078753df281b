//! One run in its own process: what it receives, what it answers, and the clockwork around it.
//!
//! The runner starts a fresh process for each run and hands it a [`RunSpec`] (`child`), which prints
//! one JSON [`Line`] for each interval and one for the result. What an experiment measures itself
//! where its workload has processes of its own; `alone` does it for all others.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use pollux_engine::Driver;
use pollux_poller::{CountersSnapshot, Mechanism};
use serde::{Deserialize, Serialize};

use crate::arm::ArmKind;
use crate::axis::Axes;
use crate::error::MeasureError;
use crate::host::Reading;
use crate::host::sources::Sources;
use crate::record::{Interval, RequestTimes, SymbolShare};

mod controller;

pub(crate) use crate::host::Profiling;
pub(crate) use controller::Watched;
pub(crate) use controller::alone;

/// One run: an arm of pollux at one point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSpec {
    /// What runs. A build of pollux is one where it is started as a server; what has its workload in
    /// the measuring process is that build itself, and the arm its driver.
    pub arm: ArmKind,
    /// The value of every axis.
    pub axes: Axes,
    /// Seed of the workload.
    pub seed: u64,
    /// Time before the window.
    pub ramp_ms: u64,
    /// Length of the window.
    pub runtime_ms: u64,
    /// Length of an interval in it.
    pub interval_ms: u64,
    /// Whether the value of a whole run is its rate, where it could be a cost as well.
    #[serde(default)]
    pub is_rate: bool,
    /// What the run is for.
    pub pass: Pass,
    /// Where the counting pass may count, as probed by the runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sources: Option<Sources>,
    /// A private folder for configurations and programs that the lab writes; what it holds may be
    /// used by later runs. The runner removes it.
    pub scratch: PathBuf,
    /// What the whole job may take; nothing waits for longer.
    #[serde(default)]
    pub budget_ms: Option<u64>,
}

/// The counters of a poller by name, and its waits by how many events they returned; both empty without.
pub(crate) fn polled(counted: Option<CountersSnapshot>) -> (BTreeMap<String, u64>, Vec<u64>) {
    let Some(counted) = counted else { return Default::default() };
    let named = counted.named().into_iter().map(|(name, value)| (name.to_owned(), value));
    (named.collect(), counted.events_per_wait.to_vec())
}

/// What a run is for. Only the timing pass is compared; the others disturb what they look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pass {
    /// Nothing runs beside the workload.
    Timing,
    /// Kernel counters are attached to the measured thread.
    Counting,
    /// A server of pollux times each request inside.
    RequestTimes,
    /// The CPU clock is sampled this often.
    Profile {
        /// Samples per second and CPU.
        rate_hz: u32,
    },
}

/// A line that the process prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// An interval ended.
    Interval(Interval),
    /// The run ended well.
    Done(Box<Done>),
}

/// The result of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// The value of the experiment's metric.
    pub value: f64,
    /// Events (passes, requests) per second over the window.
    pub events_per_s: f64,
    /// Events in the window as the controller saw them.
    pub events: u64,
    /// Length of the window.
    pub window_s: f64,
    /// The mechanism that was opened, by its own word; none without a poller.
    pub mechanism: Option<String>,
    /// The load generator and its version, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator: Option<String>,
    /// What the load generator found about its run, by kind.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub findings: BTreeMap<String, String>,
    /// What the poller noted about itself: ring sizes and the like.
    pub notes: Vec<String>,
    /// Other figures that belong to the run, by name with the unit last.
    #[serde(default)]
    pub figures: BTreeMap<String, f64>,
    /// Calls that each worker of a herd answered in the window.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub worker_calls: Vec<u64>,
    /// CPU time of the measured thread, or of the server's processes, in the window.
    pub cpu_ns: Reading<u64>,
    /// CPU time of the process in the window.
    pub process_cpu_ns: Reading<u64>,
    /// The poller's counters over the window.
    pub counters: BTreeMap<String, u64>,
    /// Waits with 0, 1, 2–3, 4–7, … events.
    pub events_per_wait_histogram: Vec<u64>,
    /// What the kernel counted for the measured thread; empty in the timing pass.
    pub kernel: BTreeMap<String, Reading<u64>>,
    /// Number of samples of the profile pass, or why there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<Reading<u64>>,
    /// What a server of pollux timed inside, in the pass that asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_times: Option<RequestTimes>,
    /// The symbols that were hit most.
    pub symbols: Vec<SymbolShare>,
}

#[cfg(test)]
impl RunSpec {
    /// A timing run of a millisecond.
    pub(crate) fn of(arm: ArmKind, axes: Axes) -> Self {
        Self {
            arm,
            axes,
            seed: 1,
            ramp_ms: 0,
            runtime_ms: 1,
            interval_ms: 1,
            is_rate: false,
            pass: Pass::Timing,
            sources: None,
            scratch: PathBuf::new(),
            budget_ms: None,
        }
    }
}

impl RunSpec {
    /// Time before the window.
    pub(crate) fn ramp_time(&self) -> Duration {
        Duration::from_millis(self.ramp_ms)
    }

    /// Length of the window.
    #[must_use]
    pub fn runtime(&self) -> Duration {
        Duration::from_millis(self.runtime_ms)
    }

    /// Length of an interval.
    #[must_use]
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms.max(1))
    }

    /// So much patience, and no more than the job has time.
    pub(crate) fn at_most(&self, patience: Duration) -> Duration {
        self.budget_ms.map_or(patience, |budget| patience.min(Duration::from_millis(budget)))
    }

    /// The mechanism of the poller, where the arm has one.
    pub(crate) fn mechanism(&self) -> Result<Option<Mechanism>, MeasureError> {
        match self.arm.driver() {
            Some(Driver::Readiness(mechanism)) => Ok(Some(mechanism)),
            None => Ok(None),
            Some(Driver::Completion) => {
                Err(MeasureError::Spec("a completion loop has no poller to ask".into()))
            }
        }
    }

    /// The word of an axis; empty where it has none.
    pub(crate) fn word(&self, axis: &str) -> &str {
        self.axes.word(axis).unwrap_or_default()
    }

    /// The count of an axis.
    pub(crate) fn count(&self, axis: &str) -> usize {
        self.axes.number(axis) as usize
    }
}
