//! What the load of one run is: the axes as numbers.

use super::{Generator, is_split};
use crate::error::MeasureError;
use crate::experiments::PROCESSES;
use crate::measure::RunSpec;

/// The axes of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Load {
    /// Connections of the generator.
    pub(super) connections: usize,
    /// Requests that one of them sends at once.
    pub(super) pipeline: usize,
    /// Whether a connection serves more than one.
    pub(super) is_kept_alive: bool,
    /// Connections beside them that ask once and are silent then.
    pub(super) dead: usize,
    /// Whether head and body of a reply are two writes.
    pub(super) is_split: bool,
    /// Length of a reply's body.
    pub(super) reply_bytes: usize,
    /// What is asked for.
    pub(super) path: String,
    /// Server processes that share the port.
    pub(super) processes: usize,
    /// What makes the load.
    pub(super) generator: Generator,
}

impl Load {
    /// The load of a run.
    pub(super) fn of(spec: &RunSpec) -> Result<Self, MeasureError> {
        Ok(Self {
            connections: spec.count("connections"),
            pipeline: spec.count("pipeline"),
            is_kept_alive: spec.axes.is_on("keepalive"),
            dead: spec.count("dead"),
            is_split: is_split(&spec.axes),
            reply_bytes: spec.count("reply_bytes"),
            path: spec.word("path").to_owned(),
            processes: if spec.axes.get(PROCESSES).is_some() { spec.count(PROCESSES) } else { 1 },
            generator: generator(spec.word("generator"))?,
        })
    }

    /// Connections that the server holds at once.
    pub(super) const fn connections_at_once(&self) -> usize {
        self.connections + self.dead
    }
}

fn generator(name: &str) -> Result<Generator, MeasureError> {
    let unknown = || MeasureError::Spec(format!("no load generator is called {name}"));
    Generator::by_name(name).ok_or_else(unknown)
}
