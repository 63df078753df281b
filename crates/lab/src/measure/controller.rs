//! The controller of one run: opens and closes the window, cuts intervals, reads counters.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::Thread;
use std::time::{Duration, Instant};

use pollux_engine::Driver;
use pollux_poller::{Counters, CountersSnapshot};

use super::profile::Profiling;
use super::switches;
use super::{Done, Gauge, Notice, Pass, RunSpec};
use crate::error::MeasureError;
use crate::experiment::Experiment;
use crate::host::counting::Counting;
use crate::host::process::TaskUse;
use crate::record::Interval;
use crate::stats::Direction;

/// Setting up 20,000 TCP connections takes a second; nothing takes this long.
const SETUP_MAX: Duration = Duration::from_secs(60);
/// How much longer than planned a run of fixed work may take: its pace was guessed in the ramp.
const OVERRUN_FACTOR: u32 = 20;
/// Grace on top, for runs of a few milliseconds.
const OVERRUN_GRACE: Duration = Duration::from_secs(10);

/// Runs `workload` in a thread of its own and measures it; `on_interval` hears of each interval
/// when it ends.
pub(super) fn measure(
    spec: &RunSpec,
    workload: fn(&RunSpec, &Gauge) -> Result<(), MeasureError>,
    on_interval: &mut dyn FnMut(&Interval),
) -> Result<Done, MeasureError> {
    let experiment = spec.experiment()?;
    let (sender, notices) = channel();
    let gauge = Gauge::new(sender);
    std::thread::scope(|scope| {
        let measured = std::thread::Builder::new()
            .name("measured".to_owned())
            .spawn_scoped(scope, || {
                let ran = workload(spec, &gauge);
                gauge.leave();
                ran
            })
            .map_err(|cause| MeasureError::Setup { what: "the measured thread".into(), cause })?;
        let workload = measured.thread().clone();
        let controller =
            Controller { spec, experiment, gauge: &gauge, workload, notices, on_interval };
        let done = controller.run();
        gauge.stop();
        measured.thread().unpark();
        let ran = measured.join().expect("the workload does not panic");
        ran.and(done)
    })
}

struct Controller<'a> {
    spec: &'a RunSpec,
    experiment: Experiment,
    gauge: &'a Gauge,
    /// The measured thread, to wake it.
    workload: Thread,
    notices: Receiver<Notice>,
    on_interval: &'a mut dyn FnMut(&Interval),
}

/// What is attached to the measured thread besides the clock.
struct Attached {
    counting: Option<Counting>,
    profiling: Option<Profiling>,
}

impl Controller<'_> {
    fn run(mut self) -> Result<Done, MeasureError> {
        let ready = self.wait_until_ready()?;
        self.wait_for_window()?;
        let pid = ready.pid;
        let mut attached = self.attach(&ready);
        let thread_before = TaskUse::of_thread(pid, ready.tid);
        let process_before = TaskUse::of_process(pid);
        let first = Tick::take(self.gauge, ready.counters.as_ref());
        self.gauge.admit();
        self.workload.unpark();
        let closed = self.cut_intervals(&first, &ready, &mut attached)?;
        let last = Tick::take(self.gauge, ready.counters.as_ref());
        let thread = TaskUse::of_thread(pid, ready.tid).since(&thread_before);
        let process = TaskUse::of_process(pid).since(&process_before);
        let kernel = attached.counting.map(|counting| counting.stop().named());
        let (samples, symbols) = attached.profiling.map_or((None, Vec::new()), Profiling::finish);
        let seen = last.events - first.events;
        let (work, elapsed) = closed.unwrap_or((seen, last.at - first.at));
        let events_per_s = work as f64 / elapsed.as_secs_f64();
        let counted = last.counters.zip(first.counters).map(|(last, first)| last.since(&first));
        Ok(Done {
            value: match self.experiment.metric().direction {
                Direction::HigherIsBetter => events_per_s,
                Direction::LowerIsBetter => 1e9 / events_per_s,
            },
            events_per_s,
            events: seen,
            window_s: elapsed.as_secs_f64(),
            mechanism: ready.mechanism,
            generator: None,
            findings: BTreeMap::new(),
            notes: ready.notes,
            figures: BTreeMap::new(),
            worker_calls: Vec::new(),
            cpu_ns: thread.cpu_ns,
            process_cpu_ns: process.cpu_ns,
            counters: counted.map(named_counters).unwrap_or_default(),
            events_per_wait_histogram: counted
                .map(|counted| counted.events_per_wait.to_vec())
                .unwrap_or_default(),
            kernel: kernel.unwrap_or_default(),
            samples,
            request_times: None,
            symbols,
        })
    }

    fn wait_until_ready(&self) -> Result<Ready, MeasureError> {
        match self.notices.recv_timeout(SETUP_MAX) {
            Ok(Notice::Ready { pid, tid, opened, counters }) => {
                let (mechanism, notes) = self.check_mechanism(opened)?;
                Ok(Ready { pid, tid, mechanism, notes, counters })
            }
            Ok(_) | Err(RecvTimeoutError::Disconnected) => Err(GAVE_UP),
            Err(RecvTimeoutError::Timeout) => {
                Err(MeasureError::Silent(SETUP_MAX, "while setting up"))
            }
        }
    }

    /// What was opened must be what was asked for: results under a wrong name are worse than
    /// none.
    fn check_mechanism(
        &self,
        opened: Option<(String, Vec<String>)>,
    ) -> Result<(Option<String>, Vec<String>), MeasureError> {
        let backend = |driver: Driver| match driver {
            Driver::Readiness(mechanism) => mechanism.backend().to_string(),
            Driver::Completion => driver.to_string(),
        };
        match (self.spec.driver()?, opened) {
            (None, None) => Ok((None, Vec::new())),
            (Some(asked), Some((got, notes))) if backend(asked) == got => {
                Ok((Some(asked.name().to_owned()), notes))
            }
            (Some(asked), got) => {
                let got = got.map_or("no poller".to_owned(), |(backend, _)| backend);
                Err(MeasureError::WrongMechanism { asked, got })
            }
            (None, Some(_)) => Err(MeasureError::Protocol("a poller where none was asked".into())),
        }
    }

    /// Returns when the window begins: after the ramp, or when the workload says so.
    fn wait_for_window(&self) -> Result<(), MeasureError> {
        if self.experiment.has_own_window() {
            let patience = self.spec.ramp_time() * OVERRUN_FACTOR + OVERRUN_GRACE;
            return match self.notices.recv_timeout(patience) {
                Ok(Notice::WindowOpened) => Ok(()),
                Ok(_) | Err(RecvTimeoutError::Disconnected) => Err(GAVE_UP),
                Err(RecvTimeoutError::Timeout) => {
                    Err(MeasureError::Silent(patience, "during the ramp"))
                }
            };
        }
        match self.notices.recv_timeout(self.spec.ramp_time()) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Ok(_) | Err(RecvTimeoutError::Disconnected) => Err(GAVE_UP),
        }
    }

    fn attach(&self, ready: &Ready) -> Attached {
        let counting = match (&self.spec.pass, &self.spec.sources) {
            (Pass::Counting, Some(sources)) => {
                Some(Counting::start(&[(ready.pid, ready.tid)], sources))
            }
            _ => None,
        };
        let profiling = match self.spec.pass {
            Pass::Profile { rate_hz } => Some(Profiling::start(ready.pid, rate_hz)),
            _ => None,
        };
        Attached { counting, profiling }
    }

    /// Sleeps through the window and reports each interval; gives what the workload itself says
    /// of the window, where it has its own.
    fn cut_intervals(
        &mut self,
        first: &Tick,
        ready: &Ready,
        attached: &mut Attached,
    ) -> Result<Option<(u64, Duration)>, MeasureError> {
        let planned = self.spec.runtime();
        let patience = planned * OVERRUN_FACTOR + OVERRUN_GRACE;
        let has_own_window = self.experiment.has_own_window();
        let mut before = first.clone();
        for cut in 1.. {
            let due = self.spec.interval() * cut;
            let due = if has_own_window { due } else { due.min(planned) };
            let sleep = (first.at + due).saturating_duration_since(Instant::now());
            let notice = self.notices.recv_timeout(sleep);
            let tick = Tick::take(self.gauge, ready.counters.as_ref());
            // A stub that is much shorter than its siblings says nothing about the rate.
            if (tick.at - before.at) * 2 >= self.spec.interval() {
                (self.on_interval)(&tick.interval_since(&before, first));
            }
            if let Some(profiling) = &mut attached.profiling {
                profiling.drain();
            }
            before = tick;
            match notice {
                Err(RecvTimeoutError::Timeout) if !has_own_window && due >= planned => break,
                Err(RecvTimeoutError::Timeout) if due > patience => {
                    return Err(MeasureError::Silent(patience, "in the measured window"));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Notice::WindowClosed { events, elapsed }) => return Ok(Some((events, elapsed))),
                Ok(_) | Err(RecvTimeoutError::Disconnected) => return Err(GAVE_UP),
            }
        }
        Ok(None)
    }
}

/// The workload ended before it should; its own error says why and takes precedence.
const GAVE_UP: MeasureError = MeasureError::GaveUp;

/// What the workload said when it was set up.
struct Ready {
    pid: u32,
    tid: u32,
    mechanism: Option<String>,
    notes: Vec<String>,
    counters: Option<Arc<Counters>>,
}

/// Everything that is read at the end of an interval.
#[derive(Clone)]
struct Tick {
    at: Instant,
    events: u64,
    counters: Option<CountersSnapshot>,
    process_switches: Option<u64>,
    machine_switches: Option<u64>,
}

impl Tick {
    fn take(gauge: &Gauge, counters: Option<&Arc<Counters>>) -> Self {
        Self {
            at: Instant::now(),
            events: gauge.events.load(Relaxed),
            counters: counters.map(|counters| counters.snapshot()),
            process_switches: switches::of_process(),
            machine_switches: switches::of_machine(),
        }
    }

    fn interval_since(&self, before: &Self, first: &Self) -> Interval {
        let length_s = (self.at - before.at).as_secs_f64();
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

fn named_counters(counters: CountersSnapshot) -> BTreeMap<String, u64> {
    counters.named().into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
