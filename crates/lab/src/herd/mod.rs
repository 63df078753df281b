//! `herd`: many worker processes wait for one event source; what does one call cost?
//!
//! The measuring process opens the source, starts the workers and one process of callers, lets the
//! callers call for the ramp and once more for the window, and ends all. Callers stand still between
//! the two, so what the workers had used before is read exactly. The metric is calls per second;
//! beside it stand the context switches of the whole machine and of the workers for each call, CPU
//! time, latencies, and how the calls were shared, counted by the workers themselves. The sum of
//! their shares must be the number of calls, or the run has failed.
//!
//! A service pool is measured in the same way, with a manager in the place of the crew (`pool`).
//!
//! Nobody is pinned: which worker is woken where is part of what is measured.

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::process::Child;
use std::time::Duration;

use pollux_xatmi::worker::Wake;

use crate::error::MeasureError;
use crate::experiment::{Peer, Wait};
use crate::host::Reading;
use crate::host::counting::{CountReadings, Counting};
use crate::host::process::TaskUse;
use crate::host::sources::Sources;
use crate::measure::{Done, Pass, Profiling, RunSpec};
use crate::record::Interval;
use crate::stats;

pub mod bank;
pub mod callers;
mod crew;
mod desk;
mod intake;
mod message;
pub mod pool;
mod requests;
mod source;
mod waiting;
pub mod worker;

pub use source::Source;
pub(crate) use source::needed_bytes;

use callers::{Called, Go, Orders, PATIENCE, Word};
use crew::Crew;
use desk::Desk;
use requests::Requests;
use source::Opened;

/// A worker with more than this share of the calls is one of the busy ones.
const BUSY_SHARE: f64 = 0.01;

/// Runs one arm once.
///
/// # Errors
/// [`MeasureError`] when something can't be opened or started, fails or falls silent, when calls are
/// lost, or when the run is interrupted. Whatever was started is ended in any case.
pub(crate) fn measure(
    spec: &RunSpec,
    on_interval: &mut dyn FnMut(&Interval),
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Done, MeasureError> {
    let wake = match spec.peer()? {
        None => None,
        Some(Peer::Pool) => Some(Wake::One),
        Some(Peer::PoolEpoll) => Some(Wake::All),
        Some(peer) => return Err(MeasureError::Spec(format!("herd does not run on {peer}"))),
    };
    if let Some(wake) = wake {
        return pool::measure(spec, wake, on_interval, is_interrupted);
    }
    let source = spec.word("source")?;
    let unknown = || MeasureError::Spec(format!("no source is called {source}"));
    let source = Source::by_name(source).ok_or_else(unknown)?;
    let (workers, callers, wait) = (spec.count("workers")?, spec.count("callers")?, spec.wait()?);
    let opened = Opened::open(source, callers, wait == Wait::Block)?;
    let crew = Crew::start(workers, source, wait, &opened, is_interrupted)?;
    let name = source.name().to_owned();
    let orders = Orders { source: name, address: opened.address, callers, pool: None };
    let mut calling = Calling::start(&orders, &opened.for_callers(), is_interrupted)?;
    let complaint = || crew.complaint();
    let ramp = match spec.ramp_ms {
        0 => 0,
        time_ms => calling.call(false, time_ms, spec, &complaint, is_interrupted)?.0.calls,
    };
    let window = Window::open(spec, crew.pids(), calling.pid());
    let (called, intervals) =
        calling.call(true, spec.runtime_ms, spec, &complaint, is_interrupted)?;
    let mut done = window.close(&called);
    intervals.iter().for_each(on_interval);
    drop(calling);
    let reports = crew.end(&requests_of(source, &opened, callers)?, is_interrupted)?;
    check_sum("ramp", ramp, reports.iter().map(|report| report.calls_ramp).sum())?;
    check_sum("window", called.calls, reports.iter().map(|report| report.calls).sum())?;
    add_work(&mut done, &reports);
    if wait == Wait::Uring {
        // A poll request is made anew for each wait.
        let waits = done.counters["waits"];
        done.counters.insert("rearms".to_owned(), waits);
    }
    done.mechanism = Some(wait.name().to_owned());
    Ok(done)
}

/// The callers' side once more, for what ends workers that block.
fn requests_of(source: Source, opened: &Opened, callers: usize) -> Result<Requests, MeasureError> {
    let fds: std::io::Result<Vec<_>> = opened.callers.iter().map(OwnedFd::try_clone).collect();
    let fds = fds.map_err(|cause| MeasureError::Io { call: "fcntl", cause })?;
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

/// Puts in what the workers counted.
fn add_work(done: &mut Done, reports: &[worker::Report]) {
    let total = |count: fn(&worker::Report) -> u64| reports.iter().map(count).sum::<u64>();
    let (waits, empty) = (total(|report| report.waits), total(|report| report.empty));
    let calls = done.events.max(1) as f64;
    done.figures.insert("waits_per_call".to_owned(), waits as f64 / calls);
    done.figures.insert("empty_waits_per_call".to_owned(), empty as f64 / calls);
    let counters = [("events", done.events), ("waits", waits), ("empty_waits", empty)];
    done.counters = counters.map(|(name, count)| (name.to_owned(), count)).into();
    done.worker_calls = reports.iter().map(|report| report.calls).collect();
    done.figures.extend(shares(&done.worker_calls));
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
    desk: Desk,
    child: Child,
}

impl Calling {
    fn start(
        orders: &Orders,
        fds: &[BorrowedFd<'_>],
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Self, MeasureError> {
        let (desk, theirs) = Desk::pair()?;
        let child = crew::start("herd-callers", &theirs);
        let child = child.map_err(|cause| MeasureError::Setup {
            what: "the process of the callers".to_owned(),
            cause,
        })?;
        drop(theirs);
        let calling = Self { desk, child };
        calling.desk.send(orders, fds)?;
        match calling.desk.receive_within(PATIENCE, is_interrupted)? {
            Some(Word::Ready) => Ok(calling),
            Some(Word::Failed(what)) => Err(failed(what)),
            _ => Err(failed("were not ready in time".to_owned())),
        }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets them call for some time; what came of it, with its intervals. `complaint` tells what a
    /// worker has said that failed.
    fn call(
        &mut self,
        is_window: bool,
        time_ms: u64,
        spec: &RunSpec,
        complaint: &dyn Fn() -> Option<MeasureError>,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<(Called, Vec<Interval>), MeasureError> {
        let interval_ms = spec.interval().as_millis() as u64;
        self.desk.send(&Go { is_window, time_ms, interval_ms }, &[])?;
        let patience = Duration::from_millis(time_ms) + PATIENCE * 2;
        let mut intervals = Vec::new();
        loop {
            match self.desk.receive_within(patience, is_interrupted)? {
                Some(Word::Interval(interval)) => intervals.push(interval),
                Some(Word::Called(called)) => return Ok((called, intervals)),
                // A call that fails does so because of a worker, if one has failed.
                Some(Word::Failed(what)) => {
                    return Err(complaint().unwrap_or_else(|| failed(what)));
                }
                Some(Word::Ready) => {}
                None => {
                    let silent = || failed("did not end when they should".to_owned());
                    return Err(complaint().unwrap_or_else(silent));
                }
            }
        }
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn failed(what: String) -> MeasureError {
    MeasureError::Program { program: "the callers".to_owned(), what }
}

/// The measured window: what the workers had used when it began.
struct Window {
    workers: Vec<u32>,
    before: TaskUse,
    counting: Option<Counting>,
    profiling: Option<Profiling>,
}

impl Window {
    fn open(spec: &RunSpec, workers: Vec<u32>, callers: u32) -> Self {
        let counting = match (&spec.pass, &spec.sources) {
            (Pass::Counting, Some(sources)) => {
                let threads: Vec<(u32, u32)> = workers.iter().map(|&pid| (pid, pid)).collect();
                Some(Counting::start(&threads, &without_wakeups(sources)))
            }
            _ => None,
        };
        let profiling = match spec.pass {
            // The kernel wakes a herd in the time of whoever calls.
            Pass::Profile { rate_hz } => Some(Profiling::start(callers, rate_hz)),
            _ => None,
        };
        let before = TaskUse::of_processes(&workers);
        Self { workers, before, counting, profiling }
    }

    fn close(self, called: &Called) -> Done {
        let used = TaskUse::of_processes(&self.workers).since(&self.before);
        let kernel = self.counting.map(|counting| CountReadings::named(counting.stop()));
        let (samples, symbols) = self.profiling.map_or((None, Vec::new()), Profiling::finish);
        let calls = called.calls.max(1) as f64;
        let mut figures = called.latencies.clone();
        let mut put = |name: &str, value: Option<f64>| {
            figures.extend(value.map(|value| (name.to_owned(), value / calls)));
        };
        let read = |reading: &Reading<u64>| reading.value().map(|count| *count as f64);
        put("switches_per_call", called.machine_switches.map(|count| count as f64));
        put("worker_switches_voluntary_per_call", read(&used.switches_voluntary));
        put("worker_switches_involuntary_per_call", read(&used.switches_involuntary));
        put("worker_us_per_call", read(&used.cpu_ns).map(|ns| ns / 1000.0));
        put("caller_us_per_call", Some(called.cpu_ns as f64 / 1000.0));
        let calls_per_s = called.calls as f64 / called.elapsed_s;
        Done {
            value: calls_per_s,
            events_per_s: calls_per_s,
            events: called.calls,
            window_s: called.elapsed_s,
            mechanism: None,
            generator: None,
            findings: BTreeMap::new(),
            notes: Vec::new(),
            figures,
            worker_calls: Vec::new(),
            cpu_ns: used.cpu_ns.map(|workers| workers + called.cpu_ns),
            process_cpu_ns: Reading::Value(called.cpu_ns),
            counters: BTreeMap::new(),
            events_per_wait_histogram: Vec::new(),
            kernel: kernel.unwrap_or_default(),
            samples,
            request_times: None,
            symbols,
        }
    }
}

/// Wake-ups are counted by a filter for each thread on every CPU, which each wake-up of a herd would
/// have to pass; a worker's voluntary switches tell the same.
fn without_wakeups(sources: &Sources) -> Sources {
    let mut sources = sources.clone();
    sources.sched_waking =
        Reading::unavailable("not counted for a herd; voluntary switches tell the same");
    sources
}
