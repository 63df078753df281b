//! What `streams` is: its axes, arms, needs and words.

use std::collections::BTreeMap;

use super::{ALL, FREE};
use crate::arm::{Arm, ArmKind, RAW_C};
use crate::axis::{Axes, Axis, AxisKind, Value};
use crate::experiments::contract::{Experiment, Facts, Needs, PIPE_COST, Started, TCP_COST};
use crate::measure::RunSpec;

/// Many streams fed by a writer thread (published: epoll-bench, `epoll_bench`).
pub(crate) struct Streams;

/// Descriptors are bounded by RLIMIT_NOFILE later, in the plan.
const AXES: &[Axis] = &[
    Axis {
        name: "transport",
        about: "what a stream is: a pipe, an AF_UNIX socketpair, a TCP connection on loopback",
        original: Some("-u, -i"),
        kind: AxisKind::Word(&["pipe", "unix", "tcp"]),
        default: "pipe",
    },
    Axis {
        name: "nfds",
        about: "number of streams",
        original: Some("-n"),
        kind: AxisKind::Count(1, 500_000),
        default: "2000",
    },
    Axis {
        name: "ready",
        about: "streams that are ready whenever the reader looks, so that it is known how many events \
                a wait finds; free lets a writer run against the reader, as the original does, and \
                measures the rate",
        original: None,
        kind: AxisKind::WordOrCount(&[ALL, FREE], 1, 500_000),
        default: "16",
    },
    Axis {
        name: "maxevents",
        about: "most events that one wait may return",
        original: Some("-e"),
        kind: AxisKind::Count(1, 65_536),
        default: "1024",
    },
    Axis {
        name: "yield_below",
        about: "the reader yields the CPU after a wait that returned fewer events than this",
        original: Some("-l"),
        kind: AxisKind::Count(0, 65_536),
        default: "1000",
    },
    Axis {
        name: "cpus",
        about: "where the two threads run: split gives each a CPU of its own, free leaves it to \
                the scheduler, as the original does",
        original: None,
        kind: AxisKind::Cpus,
        default: "split",
    },
    Axis {
        name: "no_poller",
        about: "two more arms: cyclic instead of random writes with the baseline's poller, and \
                cyclic writes with blocking reads and no poller",
        original: Some("-f"),
        kind: AxisKind::Switch,
        default: "false",
    },
];

const FACTS: Facts = Facts {
    name: "streams",
    title: "Streams",
    about: "a writer thread sends single bytes to random streams, a reader collects them through the \
            poller (Dumazet's epoll_bench, 2006)",
    question: "Which event mechanism collects most from many active streams?",
    axes: AXES,
    peers: &[RAW_C],
    ..Facts::PLAIN
};

impl Experiment for Streams {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    fn load(&self, axes: &Axes) -> String {
        let transport = match axes.word("transport") {
            Some("pipe") => "pipes",
            Some("unix") => "AF_UNIX",
            _ => "TCP",
        };
        format!("{} streams, all active ({transport})", axes.number("nfds"))
    }

    /// The two arms of `no_poller`: the baseline's poller (or the first) with cyclic writes, and the
    /// same writes without a poller. The original's `-f` changed both at once.
    fn more_arms(
        &self,
        axes: &BTreeMap<String, Vec<Value>>,
        arms: &[Arm],
        baseline: &str,
    ) -> Vec<Arm> {
        if axes.get("no_poller").is_none_or(|values| values[0] != Value::Switch(true)) {
            return Vec::new();
        }
        let reference = arms.iter().find(|arm| arm.name == baseline).or(arms.first());
        let cyclic = reference.and_then(|arm| match arm.kind {
            ArmKind::Driver(driver) => {
                Some(Arm { name: format!("{} cyclic", arm.name), kind: ArmKind::Cyclic(driver) })
            }
            _ => None,
        });
        let without = Arm { name: "no poller cyclic".to_owned(), kind: ArmKind::WithoutPoller };
        cyclic.into_iter().chain([without]).collect()
    }

    fn arm_fault(&self, axes: &Axes, arm: &ArmKind) -> Option<String> {
        (arm.is(RAW_C) && !self.takes_turns(axes))
            .then(|| "the program in C takes turns and has no writer that runs free".to_owned())
    }

    fn needs(&self, axes: &Axes) -> Needs {
        let fd_cost = if axes.is("transport", "tcp") { TCP_COST } else { PIPE_COST };
        Needs::of_thread(2 * axes.number("nfds"), fd_cost)
    }

    fn takes_turns(&self, axes: &Axes) -> bool {
        !axes.is("ready", FREE)
    }

    fn start<'a>(&self, spec: &RunSpec, _: &'a dyn Fn() -> bool) -> Started<'a> {
        super::open(spec)
    }
}
