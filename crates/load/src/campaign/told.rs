//! Lines of JSON between `pollux load --agents` and the program that drives the agents, which has the client of the broker:
//! the order in, progress and the result out. Its standard input ends with the process that started it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::LoadOrder;
use crate::{Outcome, Progress};

/// What is done when an agent is lost.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnLostAgent {
    /// All stop.
    #[default]
    Stop,
    /// The others continue, with what is theirs.
    Continue,
}

/// Lines for the program: first [`ToldOrder::Run`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToldOrder {
    /// Have so many agents carry this out.
    Run {
        /// The whole of it.
        order: Box<LoadOrder>,
        /// How many.
        agents: u32,
        /// What follows when one is lost.
        on_lost_agent: OnLostAgent,
    },
    /// End early, with the result.
    Stop,
    /// End at once, without one.
    End,
}

/// What it tells.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// Something that its user has to know.
    Remark(String),
    /// How far it is.
    Progress(Box<AgentsNow>),
    /// The end of it.
    Outcome(Box<Outcome>),
    /// The end of it, without a result.
    Failed {
        /// Why.
        why: String,
        /// Whether the command line is at fault.
        is_usage: bool,
    },
}

/// How far all of them are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentsNow {
    /// Their sum.
    pub all: Progress,
    /// Each.
    pub agents: Vec<AgentNow>,
}

/// One agent in the last second that came from it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AgentNow {
    /// Its name.
    pub name: String,
    /// Whether it is lost.
    pub is_lost: bool,
    /// Answers in that second.
    pub answered: u64,
    /// The 99th percentile of its latency.
    pub p99_ns: Option<u64>,
    /// Errors in that second.
    pub errors: u64,
    /// CPU time of its threads in that second.
    pub cpu: Duration,
}
