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
//! Nothing is pinned: which worker is woken where is part of what is measured.
//!
//! What a report shows of workers that share one source: what a call cost the machine, and how the calls were shared.
//! All figures are medians over the timing runs; the curves are the mean of the runs, rank by rank.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use pollux_doctor::Concern;
use pollux_host::Reading;
use pollux_host::sources::Sources;
use pollux_host::task_use::TaskUse;
use pollux_report::number;
use pollux_stats as stats;
use strum::VariantNames as _;

use super::{
    Column, Cost, Curve, Description, Experiment, GENERATOR_RUNTIME_MIN, Metric, Needs,
    SERVER_COST, Section, Started, Topic,
};
use crate::arm::{ArmKind, Peer, RAW_C};
use crate::axis::{Axes, Axis, AxisKind, Value, counted};
use crate::error::MeasureError;
use crate::measure::{Done, Observed, RunSpec};
use crate::record::{Interval, Measurement};
use crate::subject::Subject;
use callers::CallResult;
use processes::pool_missing;
use requests::Requests;
use running::RunningHerd;
use sources::{Opened, Wait, needed_bytes};

mod bank;
mod callers;
mod pool;
mod processes;
mod requests;
mod running;
mod sources;

pub use pool::{run_manager, run_pool, run_server};
pub use processes::{run_callers, run_worker};
pub use sources::Source;

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

/// The measured window: what the workers had used when it began.
struct Window {
    workers: Vec<u32>,
    before: TaskUse,
    observed: Observed,
}

impl Window {
    fn open(spec: &RunSpec, workers: Vec<u32>, callers: u32) -> Self {
        let threads = || workers.iter().map(|&pid| (pid, pid)).collect();
        let sources = spec.sources.as_ref().map(without_wakeups);
        let spec = RunSpec { sources, ..spec.clone() };
        // The kernel wakes a herd in the time of the caller.
        let observed = Observed::start(&spec, threads, Some(callers));
        let before = TaskUse::of_processes(&workers);
        Self { workers, before, observed }
    }

    fn close(self, spec: &RunSpec, called: &CallResult) -> Result<Done, MeasureError> {
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
            ..self.observed.finish()
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
/// have to pass; a worker's voluntary switches show the same.
fn without_wakeups(sources: &Sources) -> Sources {
    let mut sources = sources.clone();
    sources.sched_waking =
        Reading::unavailable("not counted for a herd; voluntary switches show the same");
    sources
}

/// Many processes that wait for one event source (published: epollexclusive).
pub(crate) struct Herd;

/// The service pool of pollux, whose workers wait with EPOLLEXCLUSIVE.
const POOL: Peer = Peer { name: "pool", missing: pool_missing };
/// The same by one switch with plain epoll.
const POOL_EPOLL: Peer = Peer { name: "pool-epoll", missing: pool_missing };

/// The same with requests in shared memory.
const POOL_MEMORY: Peer = Peer { name: "pool-memory", missing: pool_missing };

/// How a pool is to be measured.
#[derive(Clone, Copy)]
struct Form {
    /// Which workers a message wakes, by the flag `--wake`.
    wake: &'static str,
    /// How requests travel, by the flag `--transport`.
    transport: &'static str,
}

/// The form of the pool; none where the arm is not a pool.
fn form(arm: &ArmKind) -> Option<Form> {
    let forms = [
        (POOL, Form { wake: "one", transport: "queues" }),
        (POOL_EPOLL, Form { wake: "all", transport: "queues" }),
        (POOL_MEMORY, Form { wake: "one", transport: "memory" }),
    ];
    forms.into_iter().find(|(peer, _)| arm.is(*peer)).map(|(_, form)| form)
}

/// Starting and ending one worker, by a build with optimisations.
const WORKER_COST: Duration = Duration::from_millis(3);

/// A process for each worker, a thread for each caller.
const AXES: &[Axis] = &[
    Axis {
        name: "source",
        about: "what all workers wait for: a POSIX message queue, a listening TCP socket, an \
                eventfd that counts what lies in a pipe, a pipe",
        original: None,
        kind: AxisKind::Word(Source::VARIANTS),
        default: "queue",
    },
    Axis {
        name: "workers",
        about: "processes that wait",
        original: Some("min and max of its server"),
        kind: AxisKind::Count(1, 1000),
        default: "1,16,50,100,250",
    },
    Axis {
        name: "callers",
        about: "threads of one process, each with its next call as soon as the last is answered",
        original: None,
        kind: AxisKind::Count(1, 64),
        default: "10",
    },
    Axis {
        name: "calls",
        about: "calls that each caller makes, however long that takes; 0 for as many as the window \
                has time for",
        original: Some("100,000"),
        kind: AxisKind::Count(0, 10_000_000),
        default: "0",
    },
];

const DESCRIPTION: Description = Description {
    name: "herd",
    title: "Herd",
    about: "many processes wait for one queue, socket, eventfd or pipe: how many wake for one call? (the \
            test of EPOLLEXCLUSIVE with 250 servers, 2015)",
    question: "What does one call cost when many workers wait for it?",
    axes: AXES,
    curve: Some(Curve { axis: "workers", from: 1 }),
    drivers: &[],
    ways: &[
        Wait::Exclusive.way(),
        Wait::Epoll.way(),
        Wait::Edge.way(),
        Wait::Shared.way(),
        Wait::Block.way(),
        Wait::Uring.way(),
    ],
    // The way that was made against herds.
    baseline: Wait::Exclusive.name(),
    peers: &[RAW_C, POOL, POOL_EPOLL, POOL_MEMORY],
    has_processes: true,
    cost: Cost { is_shared: true, ..Cost::us("CPU time per call", "µs/call") },
    of_runs: Metric::rate("calls per second", "calls/s"),
    section: Some(&SECTION),
    ..Description::PLAIN
};

impl Experiment for Herd {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn load(&self, axes: &Axes) -> String {
        let source = match axes.word("source").unwrap_or_default() {
            "queue" => "message queue",
            "socket" => "listening socket",
            other => other,
        };
        let count = |axis| counted(&Value::Number(axes.number(axis)), axis);
        format!("{} on one {source}, {}", count("workers"), count("callers"))
    }

    fn arm_fault(&self, axes: &Axes, arm: &ArmKind) -> Option<String> {
        let peer = arm.peer().filter(|_| !axes.is("source", Source::Queue.name()))?;
        Some(format!("the workers of {peer} wait for queues"))
    }

    /// A pool takes nearly all of the message queues that a user may have.
    fn takes_all(&self, arm: &ArmKind) -> bool {
        form(arm).is_some()
    }

    fn needs(&self, axes: &Axes) -> Needs {
        let workers = axes.number("workers");
        let is_queue = axes.is("source", Source::Queue.name());
        // So many calls take as long as they take; the runtime only says how long that is.
        let runtime_min =
            if axes.number("calls") == 0 { GENERATOR_RUNTIME_MIN } else { Duration::MAX };
        // Counters of the counting pass, and a few for each caller.
        let fds = 8 * workers + 4 * axes.number("callers");
        Needs {
            start: SERVER_COST + WORKER_COST * workers as u32,
            runtime_min,
            queue_bytes: if is_queue { needed_bytes(axes.number("callers")) } else { 0 },
            concerns: if is_queue { &[Concern::Queues] } else { &[Concern::Descriptors] },
            ..Needs::of_thread(fds, Duration::ZERO)
        }
    }

    fn takes_turns(&self, axes: &Axes) -> bool {
        axes.number("calls") == 0
    }

    fn start<'a>(&self, spec: &RunSpec, is_interrupted: &'a dyn Fn() -> bool) -> Started<'a> {
        Ok(Box::new(RunningHerd::start(spec, is_interrupted)?))
    }

    fn measure(
        &self,
        spec: &RunSpec,
        on_interval: &mut dyn FnMut(&Interval),
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Done, MeasureError> {
        measure(spec, on_interval, is_interrupted)
    }
}

/// Of runs that had workers.
const SECTION: Section = Section {
    id: "herd",
    title: "workers and calls",
    is_of: |run| !run.worker_calls.is_empty(),
    topics: &[TIMES, COSTS, SHARES],
    remarks: |_, _| Vec::new(),
    counts_for_each: None,
    is_in_summary: true,
};

const UNCOUNTED: &str = "a pool's workers don't count their waits";
const IN_TURNS: &str = "turns show what a call costs, not rate or latency";

/// Calls per second, of a run whose value is a rate: those have latencies, turns have none.
fn rate(run: &Measurement) -> Option<f64> {
    run.figures.contains_key("latency_p50_us").then_some(run.value)
}

/// What a call cost.
const COSTS: Topic = Topic {
    heading: "what a call cost",
    about: "Switches of the whole machine are those of callers, workers and all other processes. A worker \
            that is woken in vain, finds nothing and sleeps again switches twice and answers nothing: \
            a herd shows here before it shows anywhere else. Callers are a closed loop, each with one \
            call under way: a stall is one long latency for each of them, and not one for every call \
            that others would have wanted to make meanwhile.",
    columns: &[
        Column::of("calls/s", rate, number::si).lacking(IN_TURNS),
        Column::figure("switches/call, whole machine", "switches_per_call", number::si),
        Column::figure(
            "voluntary switches/call, workers",
            "worker_switches_voluntary_per_call",
            number::si,
        ),
        Column::figure("CPU µs/call, workers", "worker_us_per_call", number::si),
        Column::figure("CPU µs/call, callers", "caller_us_per_call", number::si),
        Column::figure("p50 µs", "latency_p50_us", number::si).lacking(IN_TURNS),
        Column::figure("p99 µs", "latency_p99_us", number::si).lacking(IN_TURNS),
        Column::figure("longest µs", "latency_max_us", number::si).lacking(IN_TURNS),
    ],
    is_drawn: false,
};

/// How the calls were shared.
const SHARES: Topic = Topic {
    heading: "how the calls were shared",
    about: "As the workers counted them. A curve shows which part of the calls the least busy workers \
            had together: on the diagonal all had the same. The Gini coefficient is twice the area \
            between both, 0 where all had the same, near 1 where few had all.",
    columns: &[
        Column::figure("Gini coefficient", "gini", number::si),
        Column::figure("share of the busiest", "busiest_share", number::percent),
        Column::figure("workers above 1 %", "workers_above_1pct", number::tick),
        Column::figure("workers without a call", "workers_idle", number::tick),
        Column::figure("waits/call", "waits_per_call", number::si).lacking(UNCOUNTED),
        Column::figure("waits in vain/call", "empty_waits_per_call", number::si).lacking(UNCOUNTED),
    ],
    is_drawn: true,
};

/// A fixed number of calls, as a shell's `time` shows it.
const TIMES: Topic = Topic {
    heading: "the time of 1,000,000 calls",
    about: "Each caller made so many calls as the point says; where that is not a million in all, the \
            times are scaled to a million. Real is from the first request to the last answer; user and \
            sys are the CPU time of the callers' process meanwhile, which is what `time` of a client \
            shows.",
    columns: &[
        Column::figure("real s", "real_s_per_million_calls", number::si),
        Column::figure("user s", "user_s_per_million_calls", number::si),
        Column::figure("sys s", "sys_s_per_million_calls", number::si),
    ],
    is_drawn: false,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_in_turns_is_not_shown_as_a_rate() {
        let turns = Measurement { value: 9.44, ..Measurement::default() };
        let figures = [("latency_p50_us".to_owned(), 51.0)].into();
        let timed = Measurement { value: 187_893.0, figures, ..Measurement::default() };
        let calls = &COSTS.columns[0];
        assert_eq!(calls.median(&[&turns]), None);
        assert_eq!(calls.median(&[&timed]), Some(187_893.0));
    }
}
