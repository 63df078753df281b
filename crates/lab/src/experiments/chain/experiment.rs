//! What `chain` is: its axes, arms, needs and words.

use pollux_engine::Driver;

use super::readiness::{LIBEV, LIBEVENT, LIBUV};
use crate::arm::{Peer, RAW_EPOLL};
use crate::axis::{Axes, Axis, AxisKind};
use crate::experiments::contract::{Experiment, Facts, Metric, Needs, PIPE_COST, Started};
use crate::measure::RunSpec;

/// Bytes that go round a chain of socket pairs (libevent's `bench`).
pub(crate) struct Chain;

/// The Rust library mio.
pub(super) const MIO: Peer = Peer::of_pollux("mio");
/// The Rust library polling.
pub(super) const POLLING: Peer = Peer::of_pollux("polling");

/// Two descriptors for each pair.
const AXES: &[Axis] = &[
    Axis {
        name: "pairs",
        about: "number of socket pairs, one end of each watched",
        original: Some("-n"),
        kind: AxisKind::Count(1, 250_000),
        default: "100,1000",
    },
    Axis {
        name: "active",
        about: "bytes under way at once, spread over the pairs",
        original: Some("-a"),
        kind: AxisKind::Count(1, 250_000),
        default: "100",
    },
    Axis {
        name: "writes",
        about: "writes that follow in each round: for each byte read one goes to the next pair, \
                until they are used up",
        original: Some("-w"),
        kind: AxisKind::Count(1, 1_000_000),
        default: "10000",
    },
];

const FACTS: Facts = Facts {
    name: "chain",
    title: "Chain",
    about: "bytes go round a chain of socket pairs, each event is one read and one write (the benchmark \
            that event libraries show themselves with)",
    question: "What does one event cost, and what do event libraries add?",
    axes: AXES,
    drivers: &Driver::ALL,
    peers: &[RAW_EPOLL, LIBEV, LIBUV, LIBEVENT, MIO, POLLING],
    of_runs: Metric::cost("time per event", "ns/event"),
    ..Facts::PLAIN
};

impl Experiment for Chain {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    fn load(&self, axes: &Axes) -> String {
        format!("{} socket pairs watched, {} active", axes.number("pairs"), axes.number("active"))
    }

    fn point_fault(&self, axes: &Axes) -> Option<String> {
        (axes.number("active") > axes.number("pairs"))
            .then(|| "more bytes under way than there are pairs".to_owned())
    }

    fn needs(&self, axes: &Axes) -> Needs {
        Needs::of_thread(2 * axes.number("pairs"), PIPE_COST)
    }

    fn start<'a>(&self, spec: &RunSpec, _: &'a dyn Fn() -> bool) -> Started<'a> {
        super::open(spec)
    }
}
