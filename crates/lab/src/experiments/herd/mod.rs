//! `herd`: many worker processes wait for one event source; what does one call cost?
//!
//! The measuring process opens the source, starts the workers and one process of callers, lets the
//! callers call for the ramp and once more for the window, and ends all. Callers stand still between
//! the two, so what the workers had used before is read exactly. The metric is calls per second;
//! beside it stand the context switches of the whole machine and of the workers for each call, CPU
//! time, latencies, and how the calls were shared, counted by the workers themselves. The sum of
//! their shares must be the number of calls, or the run has failed.
//!
//! Programs that have callers and workers themselves are measured in the same way: a service pool
//! (`pool`) and one in C (`raw`). Whole runs and turns are those of the same subject.
//!
//! Nobody is pinned: which worker is woken where is part of what is measured.

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use pollux_processes::ControlSocket;

use crate::error::MeasureError;
use crate::host::Reading;
use crate::host::process::TaskUse;
use crate::host::sources::Sources;
use crate::measure::{Done, RunSpec, Watched};
use crate::record::Interval;
use crate::stats;
use crate::turns::Subject;

pub mod callers;
mod experiment;
mod foreign;
mod requests;
mod section;
mod source;
mod subject;
mod waiting;
pub mod worker;

pub(crate) use experiment::Herd;
use experiment::{Form, form};

pub use source::Source;
use subject::RunningHerd;

use callers::Orders;
use pollux_callers::{Called, Go, PATIENCE, Served, Word};
use requests::Requests;
use source::Opened;
use waiting::Wait;

/// A worker with more than this share of the calls is one of the busy ones.
const BUSY_SHARE: f64 = 0.01;

/// Runs one arm once.
pub(crate) fn measure(
    spec: &RunSpec,
    on_interval: &mut dyn FnMut(&Interval),
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Done, MeasureError> {
    let began = Instant::now();
    let mut herd = RunningHerd::start(spec, is_interrupted)?;
    let boot_s = began.elapsed().as_secs_f64();
    herd.ramp(spec)?;
    let (workers, callers) = herd.pids();
    let window = Window::open(spec, workers, callers);
    let (called, intervals) = herd.window(spec)?;
    let mut done = window.close(spec, &called)?;
    intervals.iter().for_each(on_interval);
    done.mechanism = herd.described().mechanism;
    if form(&spec.arm).is_some() {
        done.figures.insert("boot_s".to_owned(), boot_s);
    }
    let work = herd.ended()?;
    done.figures.extend(work.figures());
    done.counters = work.counters();
    done.worker_calls = work.calls;
    Ok(done)
}

/// How the workers of the arm wait.
fn wait_of(spec: &RunSpec) -> Result<Wait, MeasureError> {
    let wait = spec.arm.way().and_then(|name| name.parse().ok());
    wait.ok_or_else(|| MeasureError::Spec("herd needs a way of waiting".into()))
}

/// The callers' side once more, for what ends workers that block.
fn requests_of(source: Source, opened: &Opened, callers: usize) -> Result<Requests, MeasureError> {
    let fds: std::io::Result<Vec<_>> = opened.callers.iter().map(OwnedFd::try_clone).collect();
    let fds = fds.map_err(MeasureError::io("fcntl"))?;
    Requests::new(source, opened.address, fds, callers).map(|(requests, _)| requests)
}

/// Every call that was answered has one worker that counted it.
fn check_sum(when: &str, answered: u64, counted: u64) -> Result<(), MeasureError> {
    if answered == counted {
        return Ok(());
    }
    Err(MeasureError::Protocol(format!(
        "{answered} calls of the {when} were answered, and the workers counted {counted}"
    )))
}

/// How unevenly the calls were shared.
fn shares(calls: &[u64]) -> BTreeMap<String, f64> {
    let sum = calls.iter().sum::<u64>() as f64;
    let busiest = calls.iter().max().copied().unwrap_or_default() as f64 / sum.max(1.0);
    let count = |is_it: &dyn Fn(f64) -> bool| {
        calls.iter().filter(|calls| is_it(**calls as f64)).count() as f64
    };
    let busy = count(&|calls| calls > BUSY_SHARE * sum);
    let mut figures = BTreeMap::from([
        ("busiest_share".to_owned(), busiest),
        ("workers_above_1pct".to_owned(), busy),
        ("workers_idle".to_owned(), count(&|calls| calls == 0.0)),
    ]);
    if let Some(gini) = stats::gini(calls) {
        figures.insert("gini".to_owned(), gini);
    }
    figures
}

/// The process of the callers.
struct Calling {
    control: ControlSocket,
    child: Child,
    /// The workers, where they are that program's own.
    workers: Vec<u32>,
    /// What those did in the last run.
    served: Served,
    /// How long it may take to end what it has started.
    end_patience: Duration,
}

impl Calling {
    fn start(
        orders: &Orders,
        fds: &[BorrowedFd<'_>],
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Self, MeasureError> {
        let (control, theirs) = ControlSocket::pair()?;
        let command = worker::command("herd-callers", &theirs);
        let calling = Self::spawn(control, command, theirs, Duration::ZERO)?;
        calling.control.send(orders, fds)?;
        calling.ready(is_interrupted)
    }

    /// Starts a program with a control socket as its standard input; `theirs` ends with it. Other programs than
    /// this one may take `end_patience` to end what they have started.
    fn spawn(
        control: ControlSocket,
        command: std::io::Result<Command>,
        theirs: OwnedFd,
        end_patience: Duration,
    ) -> Result<Self, MeasureError> {
        let what = || "the process of the callers".to_owned();
        let setup = |cause| MeasureError::Setup { what: what(), cause };
        let child = command.map_err(setup)?.spawn().map_err(setup)?;
        drop(theirs);
        Ok(Self { control, child, workers: Vec::new(), served: Served::default(), end_patience })
    }

    /// Waits until they are about to call.
    fn ready(mut self, is_interrupted: &dyn Fn() -> bool) -> Result<Self, MeasureError> {
        loop {
            match self.control.receive_within(PATIENCE + self.end_patience, is_interrupted)? {
                Some(Word::Workers(pids)) => self.workers = pids,
                Some(Word::Ready) => return Ok(self),
                Some(Word::Failed(what)) => return Err(failed(what)),
                _ => return Err(self.not_ready()),
            }
        }
    }

    /// Why they are not; a program of another version knows no herd.
    fn not_ready(&mut self) -> MeasureError {
        match self.child.try_wait() {
            Ok(Some(status)) => {
                let what = "expected pollux-pool of this version, where a pool was asked for";
                failed(format!("ended before they were ready ({status}); {what}"))
            }
            _ => failed("were not ready in time".to_owned()),
        }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets a program with workers of its own end them; it is over when this returns.
    fn end(self, is_interrupted: &dyn Fn() -> bool) -> Result<(), MeasureError> {
        self.control.hang_up();
        match self.control.receive_within(PATIENCE + self.end_patience, is_interrupted)? {
            None => Ok(()),
            Some(Word::Failed(what)) => Err(failed(what)),
            Some(_) => Err(failed("said more than they were asked".to_owned())),
        }
    }

    /// Lets them call, for no longer than `longest`; what came of it, with its intervals.
    /// `complaint` tells what a worker has said that failed.
    fn call(
        &mut self,
        go: Go,
        longest: Duration,
        complaint: &dyn Fn() -> Option<MeasureError>,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<(Called, Vec<Interval>), MeasureError> {
        self.control.send(&go, &[])?;
        let patience = longest + PATIENCE * 2;
        let mut intervals = Vec::new();
        loop {
            match self.control.receive_within(patience, is_interrupted)? {
                Some(Word::Interval(interval)) => intervals.push(interval_of(interval)),
                Some(Word::Called(called)) => return Ok((called, intervals)),
                // A call that fails does so because of a worker, if one has failed.
                Some(Word::Failed(what)) => {
                    return Err(complaint().unwrap_or_else(|| failed(what)));
                }
                Some(Word::Served(served)) => self.served = served,
                Some(Word::Ready | Word::Workers(_)) => {}
                None => {
                    let silent = || failed("did not end when they should".to_owned());
                    return Err(complaint().unwrap_or_else(silent));
                }
            }
        }
    }
}

/// As a record has it.
fn interval_of(of_calls: pollux_callers::Interval) -> Interval {
    Interval {
        end_s: of_calls.end_s,
        events_per_s: of_calls.calls_per_s,
        events_per_wait: None,
        process_switches_per_s: None,
        machine_switches_per_s: of_calls.machine_switches_per_s,
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !self.end_patience.is_zero() {
            // What it has started ends by itself then, and has the other side of the control socket until it has.
            while let Ok(Some(_)) =
                self.control.receive_within::<Word>(self.end_patience, &|| false)
            {}
        }
    }
}

fn failed(what: String) -> MeasureError {
    MeasureError::Program { program: "the callers".to_owned(), what }
}

/// The measured window: what the workers had used when it began.
struct Window {
    workers: Vec<u32>,
    before: TaskUse,
    watched: Watched,
}

impl Window {
    fn open(spec: &RunSpec, workers: Vec<u32>, callers: u32) -> Self {
        let threads = || workers.iter().map(|&pid| (pid, pid)).collect();
        let sources = spec.sources.as_ref().map(without_wakeups);
        let spec = RunSpec { sources, ..spec.clone() };
        // The kernel wakes a herd in the time of the caller.
        let watched = Watched::start(&spec, threads, Some(callers));
        let before = TaskUse::of_processes(&workers);
        Self { workers, before, watched }
    }

    fn close(self, spec: &RunSpec, called: &Called) -> Result<Done, MeasureError> {
        let used = TaskUse::of_processes(&self.workers).since(&self.before);
        let mut figures = called.latencies.clone();
        figures.extend(for_each_call(called.calls, &used, called.cpu_ns, called.machine_switches));
        if spec.count("calls") > 0 {
            let millions = called.calls as f64 / 1e6;
            let times = [("real", Some(called.elapsed_s)), ("user", called.user_s)];
            for (name, seconds) in times.into_iter().chain([("sys", called.system_s)]) {
                let per_million = seconds.map(|seconds| seconds / millions);
                figures.extend(per_million.map(|s| (format!("{name}_s_per_million_calls"), s)));
            }
        }
        let calls_per_s = called.calls as f64 / called.elapsed_s;
        Ok(Done {
            value: calls_per_s,
            events_per_s: calls_per_s,
            events: called.calls,
            window_s: called.elapsed_s,
            figures,
            cpu_ns: used.cpu_ns.map(|workers| workers + called.cpu_ns),
            process_cpu_ns: Reading::Value(called.cpu_ns),
            ..self.watched.finish()
        })
    }
}

/// What a call cost: what the workers used, CPU time of the callers, switches of the whole machine.
fn for_each_call(
    calls: u64,
    workers: &TaskUse,
    callers_ns: u64,
    machine_switches: Option<u64>,
) -> BTreeMap<String, f64> {
    let read = |reading: &Reading<u64>| reading.value().map(|count| *count as f64);
    let figures = [
        ("switches_per_call", machine_switches.map(|count| count as f64)),
        ("worker_switches_voluntary_per_call", read(&workers.switches_voluntary)),
        ("worker_switches_involuntary_per_call", read(&workers.switches_involuntary)),
        ("worker_us_per_call", read(&workers.cpu_ns).map(|ns| ns / 1000.0)),
        ("caller_us_per_call", Some(callers_ns as f64 / 1000.0)),
    ];
    let each =
        |(name, sum): (&str, Option<f64>)| Some((name.to_owned(), sum? / calls.max(1) as f64));
    figures.into_iter().filter_map(each).collect()
}

/// Wake-ups are counted by a filter for each thread on every CPU, which each wake-up of a herd would
/// have to pass; a worker's voluntary switches tell the same.
fn without_wakeups(sources: &Sources) -> Sources {
    let mut sources = sources.clone();
    sources.sched_waking =
        Reading::unavailable("not counted for a herd; voluntary switches tell the same");
    sources
}
