//! Turns: all arms of a point live at once, asleep, and each works when it is its turn.
//!
//! ```text
//!   runner: set ──► one process for each arm: `pollux lab subject`
//!                     │ spec, then orders, a line of JSON each, on standard input
//!                     ▼
//!   child::take_orders ──► Subject::turn(lead-in), CPU time, Subject::turn(length), CPU time ──► reply
//! ```
//!
//! The figure of a turn is the CPU time that the measured side used in it over the units of work
//! that were done: both are read while it sleeps, so they are exact and belong together. A
//! `Subject` is whatever does the work: the thread that runs the workload, a server with its load
//! generator, a herd with its callers. Nothing outside knows which: `Experiment::start` makes it. Processes of arms are started by
//! `run/set.rs`, and serve it by `child.rs`.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;

use pollux_host::sources::Sources;
use pollux_host::symbols::SymbolShare;
use pollux_host::{Program, Reading, patience};
use pollux_poller::{CountersSnapshot, Mechanism, Poller};
use pollux_sys::process::process_cpu_time;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

use crate::error::MeasureError;

/// What is measured: it works when it is asked to, and sleeps in between.
pub trait Subject {
    /// Begins work as `size` says, ends what it began, and returns with nothing under way: the
    /// units of work that were done.
    ///
    /// # Errors
    /// [`MeasureError`] when the work failed, or was not what it should be.
    fn turn(&mut self, size: TurnSize) -> Result<u64, MeasureError>;

    /// CPU time that the measured side has used since it started; called when it sleeps. That of this
    /// thread, where it is what works.
    ///
    /// # Errors
    /// [`MeasureError`] when it can't be read: the arm is gone.
    fn cpu_time(&mut self) -> Result<Duration, MeasureError> {
        Ok(own_cpu_time())
    }

    /// CPU time of what gives the load beside the measured side, on this machine: what slows down one slows down both. Nothing
    /// where it is on another.
    fn own_time(&self) -> Duration {
        own_time()
    }

    /// The threads of the measured side, each with its process, for the kernel's counters.
    fn threads(&mut self) -> Vec<(u32, u32)> {
        vec![own_thread()]
    }

    /// The poller's own counters, where there is one in this process.
    fn counters(&self) -> Option<CountersSnapshot> {
        None
    }

    /// What the loop of another process has counted, by name; empty where that can't be asked.
    fn loop_counters(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }

    /// By how many bytes the measured side has grown for each connection that is open, or why that is not known; none
    /// where it has no connections.
    fn memory_per_connection(&mut self) -> Option<Reading<u64>> {
        None
    }

    /// What it says of itself.
    fn described(&self) -> SubjectInfo;

    /// Lets go of its connections and opens new ones, where what is measured lives on: what its life came to so far.
    /// None where there is nothing to renew.
    ///
    /// # Errors
    /// [`MeasureError`] when that failed.
    fn renew(&mut self) -> Result<Option<Life>, MeasureError> {
        Ok(None)
    }

    /// Ends what it started; what its whole life came to.
    ///
    /// # Errors
    /// [`MeasureError`] when something was lost on the way: the figures of the turns can't stand.
    fn end(self: Box<Self>) -> Result<Life, MeasureError> {
        Ok(Life::default())
    }
}

/// How much work begins in a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TurnSize {
    /// For how long at most.
    pub(crate) length: Duration,
    /// How many units at most; none without a limit. Only a subject whose units come in waves
    /// ([`SubjectInfo::wave`]) looks at it.
    pub(crate) units: Option<u64>,
}

impl TurnSize {
    /// For so long, with as many units as there is time for.
    pub(crate) fn of(length: Duration) -> Self {
        Self { length, units: None }
    }
}

/// Between two looks at whether processes sleep.
const LOOK: Duration = Duration::from_micros(100);
/// Looks after which they count as never sleeping: what they do then is in their figures.
const LOOKS_MAX: u32 = 20;

/// CPU time of processes, read when it does not grow any more: they may still have something to do
/// when the last answer has come.
pub(crate) fn cpu_time_asleep(pids: &[u32]) -> Result<Duration, MeasureError> {
    until_asleep(&|| {
        let of_one = |pid: &u32| process_cpu_time(*pid);
        let sum: std::io::Result<Duration> = pids.iter().map(of_one).sum();
        sum.map_err(MeasureError::io("clock_gettime"))
    })
}

/// What `used` says when it says the same twice, or never.
pub(crate) fn until_asleep<E>(used: &dyn Fn() -> Result<Duration, E>) -> Result<Duration, E> {
    let mut before = used()?;
    for _ in 0..LOOKS_MAX {
        std::thread::sleep(LOOK);
        let now = used()?;
        if now == before {
            break;
        }
        before = now;
    }
    Ok(before)
}

/// CPU time of the calling thread, exact: that of a subject which works on it.
pub(crate) fn own_cpu_time() -> Duration {
    pollux_sys::clock::thread_cpu()
}

/// The calling thread, with its process.
fn own_thread() -> (u32, u32) {
    (std::process::id(), rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs())
}

/// Keeps the calling thread, and what it starts from now on, on one CPU.
pub(crate) fn pin(cpu: usize) -> Result<(), MeasureError> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(MeasureError::io("sched_setaffinity"))
}

/// The first two CPUs that this process may use; on a machine of one, that one twice. The measured
/// side of every arm works on the first, what makes its load on the second.
pub(crate) fn cpus() -> Result<[usize; 2], MeasureError> {
    let allowed = sched_getaffinity(None).map_err(MeasureError::io("sched_getaffinity"))?;
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    let first = cpus.next().ok_or_else(|| MeasureError::Spec("no CPU to use".into()))?;
    Ok([first, cpus.next().unwrap_or(first)])
}

impl SubjectInfo {
    /// Of a poller of pollux that was asked for as `mechanism`: the name stands only where the
    /// poller itself says that it is that one.
    pub(crate) fn of_poller(poller: &dyn Poller, mechanism: Mechanism) -> Self {
        let backend = poller.caps().backend;
        let mechanism = if backend == mechanism.backend() {
            mechanism.name().to_owned()
        } else {
            backend.to_string()
        };
        Self { mechanism: Some(mechanism), notes: poller.caps().notes.clone(), ..Self::default() }
    }
}

/// What the life of a subject came to, turns under counters included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Life {
    /// Figures by name, with the unit last.
    pub figures: BTreeMap<String, f64>,
    /// What a reader has to know of it, by kind.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub findings: BTreeMap<String, String>,
    /// Calls that each worker of a herd answered.
    pub worker_calls: Vec<u64>,
}

/// What a subject says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubjectInfo {
    /// The mechanism that was opened; none without one of pollux.
    pub mechanism: Option<String>,
    /// The load generator, where there is one.
    pub generator: Option<String>,
    /// What the poller noted about itself.
    pub notes: Vec<String>,
    /// Units that are under way at the same time, as requests on many connections are: a turn can end
    /// by the units that were done, and should. One of so much time holds one wave or five, whatever
    /// else the machine does meanwhile, and the first wave costs most. 0 where units come one by one.
    #[serde(default)]
    pub wave: u64,
    /// A shorter turn would have figures that are too coarse; 0 where every length will do.
    #[serde(default)]
    pub shortest_turn_us: u64,
    /// What a reader has to know of it, by kind.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub findings: BTreeMap<String, String>,
}

/// What a subject's process receives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubjectCommand {
    /// A turn: a lead-in that is not counted, then so many parts of `length_us`, each with a figure
    /// of its own.
    Turn {
        /// Length of the lead-in.
        lead_in_us: u64,
        /// Length of a part.
        length_us: u64,
        /// Number of parts, one after the other.
        parts: u32,
        /// Units of a part after which it ends before its time is over; older builds know none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        units: Option<u64>,
    },
    /// So many turns like those that are timed, under the kernel's counters.
    Count {
        /// Number of turns.
        turns: u32,
        /// Length of each.
        length_us: u64,
        /// Units after which one ends before its time is over; older builds know none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        units: Option<u64>,
        /// Where counts can be read.
        sources: Sources,
    },
    /// So many turns like those that are timed, under a sampling of the CPU clock.
    Profile {
        /// Number of turns.
        turns: u32,
        /// Length of each.
        length_us: u64,
        /// Units after which one ends before its time is over; older builds know none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        units: Option<u64>,
        /// Samples for each second of CPU time.
        rate_hz: u32,
    },
    /// Work that is not compared, before the first turn that is: older builds know none.
    Load {
        /// For how long at most.
        length_us: u64,
        /// Units after which it ends.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        units: Option<u64>,
        /// Whether it ends when a unit costs no less than before.
        #[serde(default)]
        until_flat: bool,
    },
    /// The end of a set, with new connections for another one where there are some; else the end.
    Renew,
    End,
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// It is set up and asleep.
    Ready(SubjectInfo),
    /// A turn is over: a figure for each part.
    Turned(Vec<Figure>),
    /// A load is over.
    Loaded(WarmUp),
    /// What was counted.
    Counted(Box<Counted>),
    /// It, or a set of it, has ended well.
    Ended(Life),
}

/// The load of an arm before it was timed, and what a unit of work cost it meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WarmUp {
    /// Units of work.
    pub units: u64,
    /// How long it took.
    pub time_s: f64,
    /// CPU time of a unit in the first turn of it.
    pub first_ns: f64,
    /// CPU time of a unit in the last quarter of its units.
    pub last_ns: f64,
    /// The share by which the cheapest stretch of that quarter lies above the cheapest before it, or below where it is
    /// negative; 0 where they are alike.
    pub change: f64,
    /// Whether they are.
    pub is_flat: bool,
    /// Units after which the cost was the lowest of all, or nearly.
    pub flat_after: u64,
    /// How long those took.
    pub flat_after_s: f64,
    /// Whether its time was over before the end could be seen: a unit had become much cheaper, and what becomes so takes
    /// long.
    #[serde(default)]
    pub is_short: bool,
}

/// What one part of a turn took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figure {
    /// Units of work: events, passes, requests, calls.
    pub units: u64,
    /// CPU time of the measured side.
    pub cpu_ns: u64,
    /// From the order to the end of what was under way.
    pub wall_ns: u64,
    /// CPU time of the process that had the subject: of a server, what giving the load cost. 0 where it is not known.
    #[serde(default)]
    pub own_ns: u64,
}

impl Figure {
    /// CPU time of one unit in nanoseconds; none where nothing was done or booked.
    #[must_use]
    pub fn cost_ns(&self) -> Option<f64> {
        (self.units > 0 && self.cpu_ns > 0).then(|| self.cpu_ns as f64 / self.units as f64)
    }

    /// CPU time beside that of the process that had the subject: a machine that slows down slows both. None where either
    /// is not known.
    #[must_use]
    pub fn beside_own(&self) -> Option<f64> {
        (self.units > 0 && self.cpu_ns > 0 && self.own_ns > 0)
            .then(|| self.cpu_ns as f64 / self.own_ns as f64)
    }
}

/// CPU time of this process so far; nothing where the kernel does not say.
pub(crate) fn own_time() -> Duration {
    process_cpu_time(std::process::id()).unwrap_or_default()
}

/// What was counted, or sampled, over some turns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// Units of work meanwhile.
    pub units: u64,
    /// The poller's counters by name.
    pub counters: BTreeMap<String, u64>,
    /// Waits with 0, 1, 2–3, 4–7, … events.
    pub events_per_wait_histogram: Vec<u64>,
    /// What the kernel counted for the measured threads.
    pub kernel: BTreeMap<String, Reading<u64>>,
    /// Number of samples of a profile, or why there are none.
    pub samples: Option<Reading<u64>>,
    /// The symbols that were hit most.
    pub symbols: Vec<SymbolShare>,
}

/// A subject that is a program of its own, with one measured thread: C programs that the lab builds.
///
/// It prints `ready` when it is set up; for each line with a number of nanoseconds on its standard input it works for
/// so long and prints how many units it did; both lines end with the CPU time in nanoseconds that its measured thread
/// has used so far. It ends when its input does.
pub(crate) struct ProgramSubject {
    program: Program,
    /// CPU time of its measured thread at the end of its last turn.
    used: Duration,
}

impl ProgramSubject {
    /// Starts `command` and waits until it is ready; `name` stands for it in messages.
    pub(crate) fn start(name: &str, mut command: Command) -> Result<Self, MeasureError> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut subject = Self { program: Program::start(name, command)?, used: Duration::ZERO };
        match subject.word(patience::BUILD_READY)?.as_str() {
            "ready" => Ok(subject),
            other => Err(subject.failed(&format!("said \"{other}\" before it was ready"))),
        }
    }

    /// The first word of the next line, behind which the CPU time stands.
    fn word(&mut self, patience: Duration) -> Result<String, MeasureError> {
        let line = self.program.output_line_within(patience, &|| false)?;
        let Some(line) = line else { return Err(self.failed("ended too early")) };
        let parts = line.split_once(' ');
        let parts = parts.and_then(|(word, ns)| Some((word, ns.trim().parse::<u64>().ok()?)));
        let Some((word, ns)) = parts else {
            return Err(self.failed(&format!("said \"{line}\"")));
        };
        self.used = Duration::from_nanos(ns);
        Ok(word.to_owned())
    }

    fn failed(&mut self, what: &str) -> MeasureError {
        self.program.failed(what).into()
    }
}

impl Subject for ProgramSubject {
    fn turn(&mut self, size: TurnSize) -> Result<u64, MeasureError> {
        self.program.write_line(&size.length.as_nanos().to_string());
        let word = self.word(size.length + patience::BUILD_READY)?;
        word.parse().map_err(|_| self.failed(&format!("said \"{word}\", not a number of units")))
    }

    fn cpu_time(&mut self) -> Result<Duration, MeasureError> {
        Ok(self.used)
    }

    fn threads(&mut self) -> Vec<(u32, u32)> {
        vec![(self.program.pid(), self.program.pid())]
    }

    fn described(&self) -> SubjectInfo {
        SubjectInfo::default()
    }

    fn end(mut self: Box<Self>) -> Result<Life, MeasureError> {
        self.program.end_input();
        let has_ended = self.program.ends_within(patience::BUILD_READY, &|| false)?;
        if has_ended && self.program.has_succeeded() {
            Ok(Life::default())
        } else {
            let how = self.program.how_it_ended();
            Err(self.failed(if has_ended { &how } else { "did not end with its input" }))
        }
    }
}
