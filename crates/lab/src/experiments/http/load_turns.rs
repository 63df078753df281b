//! A load that comes in turns: of this thread, or of an agent on another host; and which failures of one spoil a
//! measurement.

use std::time::Duration;

use pollux_load::{Plan, Turned, Turns};
use pollux_report::number;
use pollux_settings::command::output::error_chain;

use super::Generator;
use super::agent::{self, AgentTurns};
use super::server::Server;
use crate::error::MeasureError;
use crate::measure::RunSpec;
use crate::subject::TurnSize;

/// More failures than this, and than this share of the answers, spoil a measurement: a single reset connection is none
/// of what is compared, and its turn is left out.
const FAILED_MAX: u64 = 3;
const FAILED_SHARE_MAX: f64 = 0.001;

/// A load that comes in turns: of this thread, or of an agent on another host.
pub(super) enum LoadTurns {
    Here(Box<Turns>),
    Agent(Box<AgentTurns>),
}

impl LoadTurns {
    /// Opens the connections.
    pub(super) fn open(
        spec: &RunSpec,
        plan: &Plan,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Self, MeasureError> {
        match Generator::agent(&spec.axes) {
            Some(agent) => AgentTurns::open(spec, agent, plan, is_interrupted)
                .map(|turns| Self::Agent(Box::new(turns))),
            None => Turns::open(plan.clone())
                .map(|turns| Self::Here(Box::new(turns)))
                .map_err(|error| generator_failed(&error)),
        }
    }

    pub(super) fn opened(&self) -> Turned {
        match self {
            Self::Here(turns) => turns.opened(),
            Self::Agent(turns) => turns.opened(),
        }
    }

    pub(super) fn turn(
        &mut self,
        size: TurnSize,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Turned, MeasureError> {
        match self {
            Self::Here(turns) => {
                turns.turn(size.length, size.units).map_err(|error| generator_failed(&error))
            }
            Self::Agent(turns) => turns.turn(size, is_interrupted),
        }
    }

    pub(super) fn why_failed(&mut self) -> Option<String> {
        match self {
            Self::Here(turns) => turns.why_failed(),
            Self::Agent(turns) => turns.why_failed(),
        }
    }

    /// The process that speaks with an agent: it is none of the server's.
    pub(super) fn pid(&self) -> Option<u32> {
        match self {
            Self::Here(_) => None,
            Self::Agent(turns) => Some(turns.pid()),
        }
    }

    /// CPU time of an agent so far; that of this thread is read by its clock.
    pub(super) fn used(&self) -> Duration {
        match self {
            Self::Here(_) => Duration::ZERO,
            Self::Agent(turns) => turns.used(),
        }
    }

    pub(super) fn shortest_turn(&self) -> Duration {
        match self {
            Self::Here(_) => Duration::ZERO,
            Self::Agent(_) => agent::TURN_MIN,
        }
    }
}

/// Whether so many failures beside so many answers are too many to say what a request costs.
pub(super) fn are_too_many(failed: u64, right: u64) -> bool {
    failed > 0
        && (right == 0 || (failed > FAILED_MAX && failed as f64 > right as f64 * FAILED_SHARE_MAX))
}

/// That too many requests to a server failed, and why.
pub(super) fn failures(
    server: &mut Server,
    why: Option<String>,
    failed: u64,
    right: u64,
) -> MeasureError {
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    let counts = format!(
        "{} beside {}{why}",
        number::plural(failed, "failure"),
        number::plural(right, "answer")
    );
    let what = match server.ending() {
        Some(how) => format!("{how} while it was measured ({counts})"),
        None => counts,
    };
    server.failed(&what)
}

pub(super) fn generator_failed(error: &pollux_load::LoadError) -> MeasureError {
    MeasureError::Program { program: "the load generator".to_owned(), what: error_chain(error) }
}
