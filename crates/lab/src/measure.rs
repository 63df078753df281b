//! One run in its own process: what it receives, what it answers, and the clockwork around it.
//!
//! The runner starts a fresh process for each run and hands it a [`RunSpec`] (`child`), which prints
//! one JSON [`Line`] for each interval and one for the result. What an experiment measures itself
//! where its workload has processes of its own; `alone` does it for all others: a ramp, then a window that is cut into
//! intervals. What is looked at beside a whole run is as its pass asks: counters or a profile.
//!
//! That is for rates: how much a loop carries when nothing else runs. What an event costs is measured in
//! turns.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use pollux_engine::Driver;
use pollux_host::counting::Counting;
use pollux_host::sources::Sources;
use pollux_host::task_use::TaskUse;
use pollux_host::{Reading, machine};
use pollux_poller::{CountersSnapshot, Mechanism};
use serde::{Deserialize, Serialize};

use crate::arm::ArmKind;
use crate::axis::Axes;
use crate::error::MeasureError;
use crate::hosts::Hosts;
use crate::record::{Interval, Look, RequestTimes, SymbolShare};
use crate::subject::{Subject, TurnSize};

pub(crate) use pollux_host::Profiling;

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
    /// Where servers listen, and where a load comes from that is another host's.
    #[serde(default)]
    pub hosts: Hosts,
    /// Whether the server is killed at its end, as it did not end before when it was asked to.
    #[serde(default)]
    pub kills: bool,
}

/// The counters of a poller by name, and its waits by how many events they returned; both empty without.
pub(crate) fn polled(counted: Option<CountersSnapshot>) -> (BTreeMap<String, u64>, Vec<u64>) {
    let Some(counted) = counted else { return Default::default() };
    let named = counted.named().into_iter().map(|(name, value)| (name.to_owned(), value));
    (named.collect(), counted.events_per_wait.to_vec())
}

/// What counters have counted since `before`.
pub(crate) fn since(
    mut counters: BTreeMap<String, u64>,
    before: &BTreeMap<String, u64>,
) -> BTreeMap<String, u64> {
    for (name, count) in &mut counters {
        *count = count.saturating_sub(before.get(name).copied().unwrap_or_default());
    }
    counters
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
    /// What is run is looked at before anything is planned.
    Look,
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
    /// A look ended well.
    Looked(Box<Look>),
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
            hosts: Hosts::default(),
            kills: false,
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

/// Runs `subject` for the ramp and the window of `spec`; `on_interval` receives each interval when
/// it ends.
pub(crate) fn alone(
    mut subject: Box<dyn Subject + '_>,
    spec: &RunSpec,
    on_interval: &mut dyn FnMut(&Interval),
) -> Result<Done, MeasureError> {
    let described = subject.described();
    if !spec.ramp_time().is_zero() {
        subject.turn(TurnSize::of(spec.ramp_time()))?;
    }
    let threads = subject.threads();
    let profiled = threads.last().map(|(pid, _)| *pid);
    let mut observed = Observed::start(spec, || threads, profiled);
    let process_before = TaskUse::of_process(std::process::id());
    let cpu_before = subject.cpu_time()?;
    let first = Tick::take(0, subject.counters());
    let mut events = 0;
    let mut before = first;
    while before.at - first.at < spec.runtime() {
        events += subject.turn(TurnSize::of(spec.interval()))?;
        let tick = Tick::take(events, subject.counters());
        on_interval(&tick.interval_since(&before, &first));
        observed.drain();
        before = tick;
    }
    let last = before;
    let cpu = subject.cpu_time()?.saturating_sub(cpu_before);
    let process = TaskUse::of_process(std::process::id()).since(&process_before);
    let observed = observed.finish();
    let life = subject.end()?;
    let elapsed = last.at - first.at;
    let events_per_s = events as f64 / elapsed.as_secs_f64();
    let counted = last.counters.zip(first.counters).map(|(last, first)| last.since(&first));
    let (counters, events_per_wait_histogram) = polled(counted);
    Ok(Done {
        value: if spec.is_rate { events_per_s } else { 1e9 / events_per_s },
        events_per_s,
        events,
        window_s: elapsed.as_secs_f64(),
        mechanism: described.mechanism,
        generator: described.generator,
        notes: described.notes,
        figures: life.figures,
        worker_calls: life.worker_calls,
        cpu_ns: Reading::Value(cpu.as_nanos() as u64),
        process_cpu_ns: process.cpu_ns,
        counters,
        events_per_wait_histogram,
        ..observed
    })
}

/// Everything that is read at the end of an interval.
#[derive(Clone, Copy)]
struct Tick {
    at: Instant,
    events: u64,
    counters: Option<CountersSnapshot>,
    process_switches: Option<u64>,
    machine_switches: Option<u64>,
}

impl Tick {
    /// Of a workload that is this process.
    fn take(events: u64, counters: Option<CountersSnapshot>) -> Self {
        Self {
            at: Instant::now(),
            events,
            counters,
            process_switches: machine::process_switches(),
            machine_switches: machine::machine_switches(),
        }
    }

    fn interval_since(&self, before: &Self, first: &Self) -> Interval {
        let length_s = (self.at - before.at).max(Duration::from_nanos(1)).as_secs_f64();
        let per_second = |now: Option<u64>, then: Option<u64>| {
            now.zip(then).map(|(now, then)| now.saturating_sub(then) as f64 / length_s)
        };
        let polled = self.counters.zip(before.counters).map(|(now, then)| now.since(&then));
        Interval {
            end_s: (self.at - first.at).as_secs_f64(),
            events_per_s: (self.events - before.events) as f64 / length_s,
            events_per_wait: polled
                .filter(|polled| polled.waits > 0)
                .map(|polled| polled.events as f64 / polled.waits as f64),
            process_switches_per_s: per_second(self.process_switches, before.process_switches),
            machine_switches_per_s: per_second(self.machine_switches, before.machine_switches),
        }
    }
}

/// Counters and a profile under way, of which a run has one or none.
pub(crate) struct Observed {
    counting: Option<Counting>,
    profiling: Option<Profiling>,
}

impl Observed {
    /// Starts to count what `threads` do, each with its process, or to sample the process `profiled`.
    pub(crate) fn start(
        spec: &RunSpec,
        threads: impl FnOnce() -> Vec<(u32, u32)>,
        profiled: Option<u32>,
    ) -> Self {
        let counting = match (&spec.pass, &spec.sources) {
            (Pass::Counting, Some(sources)) => Some(Counting::start(&threads(), sources)),
            _ => None,
        };
        let profiling = match (spec.pass, profiled) {
            (Pass::Profile { rate_hz }, Some(pid)) => Some(Profiling::start(pid, rate_hz)),
            _ => None,
        };
        Self { counting, profiling }
    }

    /// Empties the kernel's buffers, at the end of each interval.
    pub(crate) fn drain(&mut self) {
        self.profiling.iter_mut().for_each(Profiling::drain);
    }

    /// Ends both: a result with what they found.
    pub(crate) fn finish(self) -> Done {
        let kernel = self.counting.map(Counting::stop);
        let (samples, symbols) = self.profiling.map_or((None, Vec::new()), Profiling::finish);
        Done { kernel: kernel.unwrap_or_default(), samples, symbols, ..Done::default() }
    }
}
