//! What `pipes` is: its axes, needs and words.

use super::Tokens;
use crate::axis::{Axes, Axis, AxisKind};
use crate::experiments::contract::{
    Cost, Curve, Experiment, Facts, Metric, Needs, PIPE_COST, Started,
};
use crate::measure::RunSpec;

/// Tokens that hop between pipes (published: sys-epoll, `pipetest`).
pub(crate) struct Pipes;

/// Two descriptors for each pipe.
const AXES: &[Axis] = &[
    Axis {
        name: "pipes",
        about: "number of pipes, all watched",
        original: Some("num_pipes"),
        kind: AxisKind::Count(2, 500_000),
        default: "10,100,500,1000,2000,4000,8000,16000",
    },
    Axis {
        name: "rule",
        about: "where a token goes next: hopping over the whole set (2002), or always the same \
                pipe near the end of the set (fixed, 2006)",
        original: None,
        kind: AxisKind::Word(&["fixed", "hopping"]),
        default: "fixed,hopping",
    },
    Axis {
        name: "messages",
        about: "tokens under way at once; pipetest calls them message threads",
        original: Some("message_threads"),
        kind: AxisKind::Count(1, 1024),
        default: "1",
    },
    Axis {
        name: "message_bytes",
        about: "size of a token on its way; at least the 16 bytes that it consists of",
        original: Some("--bufsize"),
        kind: AxisKind::Count(16, 4096),
        default: "16",
    },
];

const FACTS: Facts = Facts {
    name: "pipes",
    title: "Pipes",
    about: "tokens hop between pipes of which all but a few are idle: what does watching cost? \
            (LaHaise's pipetest, 2002)",
    question: "What does it cost to watch many idle descriptors?",
    axes: AXES,
    curve: Some(Curve { axis: "pipes", from: 100 }),
    cost: Cost::ns("CPU time per pass", "ns/pass"),
    of_runs: Metric::rate("passes per second", "passes/s"),
    ..Facts::PLAIN
};

impl Experiment for Pipes {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    fn load(&self, axes: &Axes) -> String {
        let (pipes, messages) = (axes.number("pipes"), axes.number("messages"));
        let hops = if axes.is("rule", "hopping") { ", hopping over cold caches" } else { "" };
        format!("{pipes} pipes watched, {messages} active{hops}")
    }

    fn needs(&self, axes: &Axes) -> Needs {
        Needs::of_thread(2 * axes.number("pipes"), PIPE_COST)
    }

    fn start<'a>(&self, spec: &RunSpec, _: &'a dyn Fn() -> bool) -> Started<'a> {
        Ok(Box::new(Tokens::open(spec)?))
    }
}
