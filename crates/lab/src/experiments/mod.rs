//! The experiments: what each one is called, which axes it has and what it measures.
//!
//! Job files and command-line flags are checked against these tables, help texts and
//! `docs/job-file.md` are printed from them. What an experiment does is in a file of its own.

use std::collections::BTreeMap;
use std::fmt;

use pollux_engine::Driver;
use pollux_poller::Mechanism;

use crate::arm::{Peer, Wait};
use crate::error::MeasureError;
use crate::measure::RunSpec;
use crate::stats::Direction;
use crate::turns::Subject;

mod axis;
pub(crate) mod chain;
mod generator;
pub mod herd;
pub(crate) mod http;
mod pipes;
mod streams;

use herd::Herd;
use http::Served;
pub use http::floor;

pub use axis::{Axis, AxisKind, AxisValueError};
pub use generator::Generator;

/// An experiment of the lab.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum Experiment {
    /// Many streams fed by a writer thread (seed 000, `epoll_bench`).
    Streams,
    /// Tokens that hop between pipes (seed 001, `pipetest`).
    Pipes,
    /// Bytes that go round a chain of socket pairs (libevent's `bench`).
    Chain,
    /// A server under a load generator (seeds 001 and 002).
    Http,
    /// Many processes that wait for one event source (seed 004).
    Herd,
}

/// What the plan adds to the axes of a point whose server takes several processes: their number.
pub const PROCESSES: &str = "processes";

/// An experiment's axis along which values are expected to change, and from where on that counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Curve {
    /// Name of the axis.
    pub axis: &'static str,
    /// Points below are start-up cost more than anything else.
    pub from: u64,
}

/// Where the measured work is done.
pub(crate) enum Workload {
    /// In a thread of the measuring process.
    Thread,
    /// In processes of its own, which the measuring process starts and ends: a server and its load
    /// generator.
    Server,
    /// Workers and their callers, likewise.
    Herd,
}

impl Experiment {
    /// Every experiment, in the order of lists.
    pub const ALL: [Self; 5] = [Self::Streams, Self::Pipes, Self::Chain, Self::Http, Self::Herd];

    /// Name on command lines, in job files and results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Streams => "streams",
            Self::Pipes => "pipes",
            Self::Chain => "chain",
            Self::Http => "http",
            Self::Herd => "herd",
        }
    }

    /// The experiment called `name`.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|experiment| experiment.name() == name)
    }

    /// One line for lists.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Streams => {
                "a writer thread sends single bytes to random streams, a reader collects them \
                 through the poller (Dumazet's epoll_bench, 2006)"
            }
            Self::Pipes => {
                "tokens hop between pipes of which all but a few are idle: what does watching \
                 cost? (LaHaise's pipetest, 2002)"
            }
            Self::Chain => {
                "bytes go round a chain of socket pairs, each event is one read and one write \
                 (the benchmark that event libraries show themselves with)"
            }
            Self::Http => {
                "a server on one CPU answers a load generator on another: what does a request \
                 cost it? (dphttpd and deadconn, 2002; ab against sehttpd, 2020)"
            }
            Self::Herd => {
                "many processes wait for one queue, socket, eventfd or pipe: how many wake for one \
                 call? (the test of EPOLLEXCLUSIVE with 250 servers, 2015)"
            }
        }
    }

    /// The question, as the title of a report that has only this experiment.
    #[must_use]
    pub const fn question(self) -> &'static str {
        match self {
            Self::Streams => "Which event mechanism collects most from many active streams?",
            Self::Pipes => "What does it cost to watch many idle descriptors?",
            Self::Chain => "What does one event cost, and what do event libraries add?",
            Self::Http => "What does an HTTP request cost the server, and which loop is cheapest?",
            Self::Herd => "What does one call cost when many workers wait for it?",
        }
    }

    /// What is measured at a point. A server whose replies wait for acknowledgements is judged by
    /// its rate: its CPU is idle most of the time, and that is the very thing to show.
    #[must_use]
    pub fn metric_at(self, axes: &BTreeMap<String, String>, rates: bool) -> Metric {
        match self {
            Self::Http if rates || is_split(axes) => {
                Metric::rate("requests per second", "requests/s")
            }
            _ => self.metric(),
        }
    }

    /// What a unit of work costs, where arms take turns.
    #[must_use]
    pub const fn cost(self) -> Metric {
        match self {
            Self::Streams | Self::Chain => Metric::cost("CPU time per event", "ns/event"),
            Self::Pipes => Metric::cost("CPU time per pass", "ns/pass"),
            Self::Http => Metric::cost("server CPU per request", "µs/request"),
            Self::Herd => Metric::cost("CPU time per call", "µs/call"),
        }
    }

    /// Whether callers and workers share the cost of a unit, and a turn starts threads.
    #[must_use]
    pub const fn cost_is_shared(self) -> bool {
        matches!(self, Self::Herd)
    }

    /// Nanoseconds in the unit of [`Self::cost`].
    #[must_use]
    pub const fn cost_unit_ns(self) -> f64 {
        match self {
            Self::Streams | Self::Chain | Self::Pipes => 1.0,
            Self::Http | Self::Herd => 1000.0,
        }
    }

    /// Whether what runs at a point can work and sleep in turns.
    #[must_use]
    pub fn takes_turns(self, axes: &BTreeMap<String, String>) -> bool {
        let is = |axis: &str, value: &str| axes.get(axis).is_some_and(|found| found == value);
        match self {
            Self::Streams => !is("ready", streams::FREE),
            Self::Pipes | Self::Chain => true,
            Self::Http => is("generator", Generator::Pollux.name()) && !is_split(axes),
            Self::Herd => is("calls", "0"),
        }
    }

    /// What is measured at most points.
    #[must_use]
    pub const fn metric(self) -> Metric {
        match self {
            Self::Streams => Metric::rate("events per second", "events/s"),
            Self::Pipes => Metric::rate("passes per second", "passes/s"),
            Self::Chain => Metric::cost("time per event", "ns/event"),
            Self::Http => Metric::cost("server CPU per request", "µs/request"),
            Self::Herd => Metric::rate("calls per second", "calls/s"),
        }
    }

    /// The drivers of pollux that it can run on: all where sessions or completions run, those
    /// with a poller elsewhere.
    #[must_use]
    pub const fn drivers(self) -> &'static [Driver] {
        const WITH_A_POLLER: [Driver; Mechanism::ALL.len()] = {
            let mut drivers = [Driver::Readiness(Mechanism::Epoll); Mechanism::ALL.len()];
            let mut at = 0;
            while at < drivers.len() {
                drivers[at] = Driver::Readiness(Mechanism::ALL[at]);
                at += 1;
            }
            drivers
        };
        match self {
            Self::Streams | Self::Pipes => &WITH_A_POLLER,
            Self::Chain | Self::Http => &Driver::ALL,
            Self::Herd => &[],
        }
    }

    /// The ways of waiting that it can compare.
    #[must_use]
    pub const fn waits(self) -> &'static [Wait] {
        match self {
            Self::Herd => &Wait::ALL,
            Self::Streams | Self::Pipes | Self::Chain | Self::Http => &[],
        }
    }

    /// Whether a server that the user names can be an arm.
    #[must_use]
    pub const fn takes_servers(self) -> bool {
        matches!(self, Self::Http)
    }

    /// The floors and other people's systems that it can compare with.
    #[must_use]
    pub const fn peers(self) -> &'static [Peer] {
        match self {
            Self::Pipes => &[],
            Self::Streams => &[Peer::RawC],
            Self::Herd => &[Peer::RawC, Peer::Pool, Peer::PoolEpoll],
            Self::Chain => &[
                Peer::RawEpoll,
                Peer::Libev,
                Peer::Libuv,
                Peer::Libevent,
                Peer::Mio,
                Peer::Polling,
            ],
            Self::Http => &[
                Peer::RawEpoll,
                Peer::RawUring,
                Peer::Nginx,
                Peer::Haproxy,
                Peer::H2o,
                Peer::Lighttpd,
            ],
        }
    }

    /// The axis along which its values are told in words.
    #[must_use]
    pub const fn curve(self) -> Option<Curve> {
        match self {
            Self::Streams | Self::Chain => None,
            Self::Pipes => Some(Curve { axis: "pipes", from: 100 }),
            Self::Http => Some(Curve { axis: "dead", from: 0 }),
            Self::Herd => Some(Curve { axis: "workers", from: 1 }),
        }
    }

    /// What takes turns: the arm of a spec, set up and asleep.
    ///
    /// # Errors
    /// [`MeasureError`] when something can't be had, or the arm is none of this experiment.
    pub(crate) fn subject<'a>(
        self,
        spec: &RunSpec,
        is_interrupted: &'a dyn Fn() -> bool,
    ) -> Result<Box<dyn Subject + 'a>, MeasureError> {
        Ok(match self {
            Self::Streams => streams::open(spec)?,
            Self::Pipes => Box::new(pipes::Pipes::open(spec)?),
            Self::Chain => chain::open(spec)?,
            Self::Http => Box::new(Served::start(spec, is_interrupted)?),
            Self::Herd => Box::new(Herd::start(spec, is_interrupted)?),
        })
    }

    /// What runs, and where.
    pub(crate) fn workload(self) -> Workload {
        match self {
            Self::Streams | Self::Pipes | Self::Chain => Workload::Thread,
            Self::Http => Workload::Server,
            Self::Herd => Workload::Herd,
        }
    }

    /// Descriptors that one process of a run at this point needs, beside the few that every
    /// process has.
    ///
    /// # Panics
    /// When `axes` lacks the axis that counts them.
    #[must_use]
    pub fn fds_needed(self, axes: &BTreeMap<String, String>) -> u64 {
        let count = |axis: &str| axes[axis].parse::<u64>().expect("checked when the job was read");
        match self {
            Self::Streams => 2 * count("nfds"),
            Self::Pipes => 2 * count("pipes"),
            Self::Chain => 2 * count("pairs"),
            Self::Http => count("connections") + count("dead"),
            // Counters of the counting pass, and a few for each caller.
            Self::Herd => 8 * count("workers") + 4 * count("callers"),
        }
    }

    /// Why there can't be such a point, on whatever machine.
    #[must_use]
    pub fn point_fault(self, axes: &BTreeMap<String, String>) -> Option<String> {
        let count = |axis: &str| axes[axis].parse::<u64>().unwrap_or_default();
        match self {
            Self::Chain if count("active") > count("pairs") => {
                Some("more bytes under way than there are pairs".to_owned())
            }
            Self::Http if axes["keepalive"] == "false" && count("pipeline") > 1 => {
                Some("without keep-alive there is one request for each connection".to_owned())
            }
            Self::Http if axes["generator"] == Generator::Ab.name() && count("pipeline") > 1 => {
                Some("ab sends one request at a time on a connection".to_owned())
            }
            _ => None,
        }
    }

    /// Why another system can't run at a point at which pollux can, if so.
    #[must_use]
    pub fn fault_of_others(self, axes: &BTreeMap<String, String>) -> Option<String> {
        (self == Self::Http && is_split(axes))
            .then(|| "only pollux sends a reply in two writes when it is told to".to_owned())
    }

    /// The load generator of a point; none where an experiment needs none.
    #[must_use]
    pub fn generator(self, axes: &BTreeMap<String, String>) -> Option<Generator> {
        axes.get("generator").and_then(|name| Generator::by_name(name))
    }

    /// The axes; each is a key of a job and a flag of `pollux lab run`.
    #[must_use]
    pub const fn axes(self) -> &'static [Axis] {
        match self {
            Self::Streams => axis::STREAMS,
            Self::Pipes => axis::PIPES,
            Self::Chain => axis::CHAIN,
            Self::Http => axis::HTTP,
            Self::Herd => axis::HERD,
        }
    }
}

/// Whether head and body of a reply are two writes.
pub(crate) fn is_split(axes: &BTreeMap<String, String>) -> bool {
    axes.get("reply").is_some_and(|reply| reply == "split")
}

impl fmt::Display for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What an experiment measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metric {
    /// In words.
    pub name: &'static str,
    /// As written behind a value.
    pub unit: &'static str,
    /// Which way it gets better; everything that is said of a value follows from it.
    pub direction: Direction,
}

impl Metric {
    const fn rate(name: &'static str, unit: &'static str) -> Self {
        Self { name, unit, direction: Direction::HigherIsBetter }
    }

    const fn cost(name: &'static str, unit: &'static str) -> Self {
        Self { name, unit, direction: Direction::LowerIsBetter }
    }
}
