//! The callers: one process with a thread for each, which call as soon as they were answered.
//!
//! `pollux lab herd-callers` calls [`run`]. It is told over its standard input (`desk`) to call for
//! some time or so often, once for the ramp and once for the window, and says what came of it. A
//! closed loop: what is under way at the end is waited for, so every call that was counted was
//! answered. `raw.c` says and is told the same.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use pollux_load::Distribution;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use pollux_processes::Desk;

use super::bank::Customer;
use super::message::{Message, Purpose};
use super::pool;
use super::requests::{Answers, Requests};
use super::source::Source;
use crate::error::{MeasureError, in_words};
use crate::host::process::user_and_system;
use crate::measure::Tick;
use crate::record::Interval;

/// How long an answer may take after the end; the slowest that was seen took a second.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Most intervals that are kept of a run: a thousand seconds of the usual ones.
const INTERVALS_MAX: usize = 10_000;
/// The quantiles that a run keeps, by the name of their figure.
const QUANTILES: [(&str, f64); 2] = [("latency_p50_us", 0.5), ("latency_p99_us", 0.99)];

/// What the callers are told first. The descriptors beside it are those of the source.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Orders {
    /// What they call.
    pub(super) calls: Calls,
    /// Number of callers.
    pub(super) callers: usize,
}

/// What callers call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Calls {
    /// A source, and where it listens, where it does.
    Source { source: Source, address: Option<SocketAddr> },
    /// The pool whose names begin so.
    Pool(String),
}

/// What they are told then; as four numbers, which a program in C reads as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u64; 4]", into = "[u64; 4]")]
pub(super) struct Go {
    /// Whether the calls are those of the window.
    pub(super) is_window: bool,
    /// How long new calls begin, where that is not told by `calls`.
    pub(super) time_ms: u64,
    /// Length of an interval.
    pub(super) interval_ms: u64,
    /// Calls that each caller makes; 0 for as many as there is time for.
    pub(super) calls: u64,
}

impl From<[u64; 4]> for Go {
    fn from([is_window, time_ms, interval_ms, calls]: [u64; 4]) -> Self {
        Self { is_window: is_window != 0, time_ms, interval_ms, calls }
    }
}

impl From<Go> for [u64; 4] {
    fn from(go: Go) -> Self {
        [u64::from(go.is_window), go.time_ms, go.interval_ms, go.calls]
    }
}

/// What they say.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Word {
    /// The processes of the workers, where they are those of the program that calls.
    Crew(Vec<u32>),
    /// They are ready to call.
    Ready,
    /// What those workers did in the run that has just ended.
    Served(Served),
    /// An interval of the run that has just ended.
    Interval(Interval),
    /// The run has ended, and these were its intervals.
    Called(Called),
    /// A call failed.
    Failed(String),
}

/// What the workers of a program did that has both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Served {
    /// Calls that each of them answered.
    pub(super) calls: Vec<u64>,
    /// Times that they returned from waiting.
    pub(super) waits: u64,
    /// Times that they found nothing then.
    pub(super) empty: u64,
}

impl Served {
    /// With what the same workers did in another run.
    pub(super) fn add(&mut self, other: Self) {
        self.calls.resize(other.calls.len(), 0);
        self.calls.iter_mut().zip(other.calls).for_each(|(sum, calls)| *sum += calls);
        self.waits += other.waits;
        self.empty += other.empty;
    }
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Called {
    /// Calls that were answered.
    pub(super) calls: u64,
    /// From the first request to the last answer.
    pub(super) elapsed_s: f64,
    /// Context switches of the whole machine meanwhile; none where they can't be read.
    pub(super) machine_switches: Option<u64>,
    /// CPU time of this process.
    pub(super) cpu_ns: u64,
    /// The part of it in user mode; none where it can't be read.
    pub(super) user_s: Option<f64>,
    /// And in the kernel.
    pub(super) system_s: Option<f64>,
    /// Latencies by name, in microseconds.
    pub(super) latencies: std::collections::BTreeMap<String, f64>,
}

/// Calls as often as it is told to.
///
/// # Errors
/// [`MeasureError`] when it can't be told what went wrong; else it is told, and this is fine.
pub fn run() -> Result<(), MeasureError> {
    let desk = Desk::on_stdin()?;
    serve(&desk).or_else(|error| Ok(desk.send(&Word::Failed(in_words(&error)), &[])?))
}

fn serve(desk: &Desk) -> Result<(), MeasureError> {
    let Some((orders, fds)) = desk.receive::<Orders>()? else { return Ok(()) };
    let lines = Arc::new(Lines::open(&orders, fds)?);
    desk.send(&Word::Ready, &[])?;
    while let Some((go, _)) = desk.receive::<Go>()? {
        let (called, intervals) = call_for(go, &lines, desk)?;
        for interval in intervals {
            desk.send(&Word::Interval(interval), &[])?;
        }
        desk.send(&Word::Called(called), &[])?;
    }
    Ok(())
}

/// What is called, with what each caller needs for it.
enum Lines {
    /// A source.
    Source(Requests, Vec<Answers>),
    /// A pool. Each has one caller, which holds its lock without a rival.
    Pool(Vec<Mutex<Customer>>),
}

impl Lines {
    fn open(orders: &Orders, fds: Vec<OwnedFd>) -> Result<Self, MeasureError> {
        match &orders.calls {
            Calls::Pool(prefix) => {
                let environment = pool::environment(prefix)?;
                let customer = |number| Customer::open(&environment, number).map(Mutex::new);
                (0..orders.callers).map(customer).collect::<Result<_, _>>().map(Self::Pool)
            }
            Calls::Source { source, address } => {
                let (requests, answers) = Requests::new(*source, *address, fds, orders.callers)?;
                Ok(Self::Source(requests, answers))
            }
        }
    }

    fn callers(&self) -> usize {
        match self {
            Self::Source(_, answers) => answers.len(),
            Self::Pool(customers) => customers.len(),
        }
    }

    /// One call of a caller, answered.
    fn call(&self, caller: usize, purpose: Purpose) -> Result<(), MeasureError> {
        match self {
            Self::Source(requests, answers) => {
                requests.call(&answers[caller], Message { caller: caller as u8, purpose })
            }
            Self::Pool(customers) => {
                customers[caller].lock().expect("a caller does not panic").ask()
            }
        }
    }
}

/// What the threads of one run share with the one that waits for them.
struct Shared {
    /// Released when all are there.
    start: Barrier,
    is_over: AtomicBool,
    /// Calls of each caller so far.
    counts: Vec<Count>,
}

/// A count on cache lines of its own: two, as they are fetched in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Count(AtomicU64);

/// What one thread ends with.
type Ended = Result<Distribution, MeasureError>;

fn call_for(
    go: Go,
    lines: &Arc<Lines>,
    desk: &Desk,
) -> Result<(Called, Vec<Interval>), MeasureError> {
    let callers = lines.callers();
    let shared = Arc::new(Shared {
        start: Barrier::new(callers + 1),
        is_over: AtomicBool::new(false),
        counts: (0..callers).map(|_| Count::default()).collect(),
    });
    let (sender, ended) = channel();
    for caller in 0..callers {
        spawn(caller, go, &shared, lines, &sender)?;
    }
    drop(sender);
    let (cpu_before, split_before) = (cpu_ns(), user_and_system());
    let first = tick(&shared.counts);
    shared.start.wait();
    let mut watch = Watch { go, first, intervals: Vec::new(), times: Vec::new() };
    let watched = watch.until_end(&shared, &ended, desk);
    shared.is_over.store(true, Relaxed);
    watched.map_err(|early| MeasureError::Protocol(format!("a caller ended early: {early}")))?;
    while watch.times.len() < callers {
        match ended.recv_timeout(PATIENCE) {
            Ok(of_one) => watch.times.push(of_one?),
            // The thread still waits; it ends with this process.
            Err(_) => return Err(MeasureError::Silent(PATIENCE, "towards a caller")),
        }
    }
    let last = tick(&shared.counts);
    let mut times = Distribution::new();
    watch.times.iter().for_each(|of_one| times.add(of_one));
    let split = user_and_system().and_then(|now| split_before.map(|then| [now, then]));
    let seconds = |which: usize| {
        let both: Option<&[[Duration; 2]; 2]> = split.value();
        both.map(|[now, then]| now[which].saturating_sub(then[which]).as_secs_f64())
    };
    let micros = |ns: u64| ns as f64 / 1000.0;
    let quantile =
        |(name, share): (&str, f64)| Some((name.to_owned(), micros(times.quantile_ns(share)?)));
    let longest = times.max_ns().map(|ns| ("latency_max_us".to_owned(), micros(ns)));
    let called = Called {
        calls: last.events,
        elapsed_s: (last.at - first.at).as_secs_f64(),
        machine_switches: last
            .machine_switches
            .zip(first.machine_switches)
            .map(|(last, first)| last - first),
        cpu_ns: cpu_ns() - cpu_before,
        user_s: seconds(0),
        system_s: seconds(1),
        latencies: QUANTILES.into_iter().filter_map(quantile).chain(longest).collect(),
    };
    Ok((called, watch.intervals))
}

/// A caller's thread: calls until the end, then says how long each call took.
fn spawn(
    caller: usize,
    go: Go,
    shared: &Arc<Shared>,
    lines: &Arc<Lines>,
    ended: &Sender<Ended>,
) -> Result<(), MeasureError> {
    let purpose = if go.is_window { Purpose::Window } else { Purpose::Ramp };
    let (shared, lines, ended) = (Arc::clone(shared), Arc::clone(lines), ended.clone());
    let call = move || {
        shared.start.wait();
        let mut times = Distribution::new();
        let mut calls = 0;
        while !shared.is_over.load(Relaxed) && (go.calls == 0 || calls < go.calls) {
            let start = Instant::now();
            lines.call(caller, purpose)?;
            times.record(start.elapsed().as_nanos() as u64);
            calls += 1;
            shared.counts[caller].0.store(calls, Relaxed);
        }
        Ok(times)
    };
    let spawned = std::thread::Builder::new().name(format!("caller {caller}")).spawn(move || {
        // Whoever waits for it may have given up.
        let _ = ended.send(call());
    });
    let failed = |cause| MeasureError::Setup { what: format!("caller {caller}"), cause };
    spawned.map(drop).map_err(failed)
}

/// What is seen of a run while it goes on.
struct Watch {
    go: Go,
    first: Tick,
    intervals: Vec<Interval>,
    /// Of the callers that have ended.
    times: Vec<Distribution>,
}

impl Watch {
    /// Waits for the end of the run and cuts its intervals.
    ///
    /// # Errors
    /// In words, why a caller ended before.
    fn until_end(
        &mut self,
        shared: &Shared,
        ended: &Receiver<Ended>,
        desk: &Desk,
    ) -> Result<(), String> {
        let (time, each) = (self.go.time_ms, Duration::from_millis(self.go.interval_ms));
        let time = (self.go.calls == 0).then(|| Duration::from_millis(time));
        let mut before = self.first;
        for cut in 1.. {
            let due = (each * cut).min(time.unwrap_or(Duration::MAX));
            if self.is_last_heard(self.first.at + due, shared.counts.len(), ended)? {
                break;
            }
            if desk.is_deserted() {
                // Whoever measured was killed; threads that wait end with this process.
                return Err("nobody measures any more".to_owned());
            }
            let now = tick(&shared.counts);
            // A stub that is much shorter than its siblings says nothing about the rate.
            if (now.at - before.at) * 2 >= each && self.intervals.len() < INTERVALS_MAX {
                self.intervals.push(now.interval_since(&before, &self.first));
            }
            before = now;
            if time.is_some_and(|time| due >= time) {
                break;
            }
        }
        Ok(())
    }

    /// Hears who has ended, until a moment or until it was the last of so many; whether it was.
    fn is_last_heard(
        &mut self,
        at: Instant,
        callers: usize,
        ended: &Receiver<Ended>,
    ) -> Result<bool, String> {
        while self.times.len() < callers {
            match ended.recv_timeout(at.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => return Ok(false),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err("its thread gave no result".to_owned());
                }
                Ok(Ok(_)) if self.go.calls == 0 => return Err("without an error".to_owned()),
                Ok(Ok(times)) => self.times.push(times),
                Ok(Err(error)) => return Err(in_words(&error)),
            }
        }
        Ok(true)
    }
}

fn tick(counts: &[Count]) -> Tick {
    Tick::of_others(counts.iter().map(|count| count.0.load(Relaxed)).sum())
}

/// CPU time of this process, with its threads that have ended.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_callers_are_told_is_four_numbers() {
        let go = Go { is_window: true, time_ms: 2000, interval_ms: 100, calls: 7 };
        let text = serde_json::to_string(&go).expect("plain data");
        assert_eq!(text, "[1,2000,100,7]");
        assert_eq!(serde_json::from_str::<Go>(&text).expect("its own"), go);
    }
}
