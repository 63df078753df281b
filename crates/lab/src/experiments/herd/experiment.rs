//! What `herd` is: its axes, arms, needs and words.

use std::time::Duration;

use pollux_doctor::Concern;

use strum::VariantNames as _;

use super::section::SECTION;
use super::source::needed_bytes;
use super::waiting::Wait;
use super::{RunningHerd, Source};
use crate::arm::{ArmKind, Peer, RAW_C};
use crate::axis::{Axes, Axis, AxisKind, Value, counted};
use crate::error::MeasureError;
use crate::experiments::contract::{
    Cost, Curve, Experiment, Facts, GENERATOR_RUNTIME_MIN, Metric, Needs, SERVER_COST, Started,
};
use crate::measure::{Done, RunSpec};
use crate::record::Interval;

/// Many processes that wait for one event source (published: epollexclusive).
pub(crate) struct Herd;

/// The service pool of pollux, whose workers wait with EPOLLEXCLUSIVE.
const POOL: Peer = Peer { name: "pool", missing: super::foreign::pool_missing };
/// The same by one switch with plain epoll.
const POOL_EPOLL: Peer = Peer { name: "pool-epoll", missing: super::foreign::pool_missing };

/// The same with requests in shared memory.
const POOL_MEMORY: Peer = Peer { name: "pool-memory", missing: super::foreign::pool_missing };

/// How a pool is to be measured.
#[derive(Clone, Copy)]
pub(super) struct Form {
    /// Whom a message wakes, by the flag `--wake`.
    pub(super) wake: &'static str,
    /// How requests travel, by the flag `--transport`.
    pub(super) transport: &'static str,
}

/// The form of the pool; none where the arm is not a pool.
pub(super) fn form(arm: &ArmKind) -> Option<Form> {
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

const FACTS: Facts = Facts {
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
    ..Facts::PLAIN
};

impl Experiment for Herd {
    fn facts(&self) -> &'static Facts {
        &FACTS
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
        super::measure(spec, on_interval, is_interrupted)
    }
}
