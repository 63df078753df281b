//! A run of one arm by itself: a ramp, then a window that is cut into intervals.
//!
//! For rates: how much a loop carries when nothing else runs. What an event costs is measured in
//! turns.
//!
//! What is looked at beside a whole run, as its pass asks for it: counters or a profile.

use std::time::{Duration, Instant};

use pollux_poller::CountersSnapshot;

use super::{Done, Pass, RunSpec, polled};
use crate::error::MeasureError;
use crate::host::counting::{CountReadings, Counting};
use crate::host::process::TaskUse;
use crate::host::{Profiling, Reading, machine};
use crate::record::Interval;
use crate::turns::{Stint, Subject};

/// Runs `subject` for the ramp and the window of `spec`; `on_interval` receives each interval when
/// it ends.
pub(crate) fn alone(
    mut subject: Box<dyn Subject + '_>,
    spec: &RunSpec,
    on_interval: &mut dyn FnMut(&Interval),
) -> Result<Done, MeasureError> {
    let described = subject.described();
    if !spec.ramp_time().is_zero() {
        subject.turn(Stint::of(spec.ramp_time()))?;
    }
    let threads = subject.threads();
    let profiled = threads.last().map(|(pid, _)| *pid);
    let mut watched = Watched::start(spec, || threads, profiled);
    let process_before = TaskUse::of_process(std::process::id());
    let (cpu_before, first) = (subject.cpu_time()?, Tick::take(0, subject.counters()));
    let (mut events, mut before) = (0, first);
    while before.at - first.at < spec.runtime() {
        events += subject.turn(Stint::of(spec.interval()))?;
        let tick = Tick::take(events, subject.counters());
        on_interval(&tick.interval_since(&before, &first));
        watched.drain();
        before = tick;
    }
    let (last, cpu) = (before, subject.cpu_time()?.saturating_sub(cpu_before));
    let process = TaskUse::of_process(std::process::id()).since(&process_before);
    let watched = watched.finish();
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
        ..watched
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
pub(crate) struct Watched {
    counting: Option<Counting>,
    profiling: Option<Profiling>,
}

impl Watched {
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
        let kernel = self.counting.map(|counting| CountReadings::named(counting.stop()));
        let (samples, symbols) = self.profiling.map_or((None, Vec::new()), Profiling::finish);
        Done { kernel: kernel.unwrap_or_default(), samples, symbols, ..Done::default() }
    }
}
