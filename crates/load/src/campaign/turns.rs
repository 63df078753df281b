//! A load that an agent gives in turns: what it is asked to hold open, one turn, and what came of it. The lab asks for it
//! through the program that has the client of the broker; the arms of the lab take turns, and each has a load of its own.
//!
//! ```text
//!  lab ── TurnsLine::Open ──► pollux-agent turns ── TurnsDemand::Open ──► agent: connections are opened, each asks once
//!   │ ◄── TurnsTold::Opened ───────┤ ◄── Said::Opened ────────────────┤ they stay open and idle
//!   ├──── TurnsLine::Turn ─────────┤ ─── TurnsDemand::Turn (number) ──────►│ a turn, by the agent's own clock
//!   │ ◄── TurnsTold::Turned ───────┘ ◄── Said::Turned ────────────────┘
//! ```
//!
//! The answer to a turn comes when the turn is over, and is kept until the next: asked for again, under the same number, it
//! is said again, and nothing is done twice.

use std::num::NonZeroU32;
use std::time::Duration;

use pollux_engine::Driver;
use serde::{Deserialize, Serialize};

use super::{AgentName, LoadOrder};
use crate::{LoadError, Pace, Plan, Turned};

/// How long one answer, or one connection, of a turn may be waited for: so much longer than it was to last may a turn be.
pub const TURN_ANSWER_MAX: Duration = Duration::from_secs(30);

/// Which of the loads of a campaign that are given in turns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TurnsNumber(pub u64);

/// Connections that an agent holds open for turns, and what is asked on them.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TurnsOrder {
    order: LoadOrder,
    /// New connections at a time, where the server's backlog allows only so many.
    unproven_max: Option<NonZeroU32>,
}

impl TurnsOrder {
    /// Of `plan`, on the mechanism that the agent finds best.
    ///
    /// # Errors
    /// [`LoadError::Plan`] names what is of this host alone.
    pub fn of(plan: &Plan) -> Result<Self, LoadError> {
        Ok(Self { order: LoadOrder::of(plan, true)?, unproven_max: plan.unproven_max })
    }

    /// The plan that was ordered, with the mechanism that it names, if it does.
    ///
    /// # Errors
    /// [`LoadError::Plan`]: a value is beyond what any order may ask for, or the load is none that comes in turns.
    pub fn plan(&self) -> Result<(Plan, Option<Driver>), LoadError> {
        let (mut plan, driver) = self.order.plan()?;
        let wrong = |what, why: String| Err(LoadError::Plan { what, why });
        if !matches!(plan.pace, Pace::Closed) {
            return wrong("--rate", "a load in turns is a closed loop".to_owned());
        }
        let crowd = [plan.crowd.dead, plan.crowd.silent, plan.crowd.slow];
        if crowd != [0; 3] {
            return wrong("--dead", "a load in turns has active connections alone".to_owned());
        }
        for (what, time) in
            [("--timeout", plan.request_timeout), ("--connect-timeout", plan.connect_timeout)]
        {
            if time > TURN_ANSWER_MAX {
                return wrong(what, format!("{time:?}; expected {TURN_ANSWER_MAX:?} at most"));
            }
        }
        plan.unproven_max = self.unproven_max;
        Ok((plan, driver))
    }
}

/// What an agent is asked of a load that comes in turns.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TurnsDemand {
    /// Open the connections of this order, and hold them.
    Open {
        /// Drawn by the controller, and not used again.
        number: TurnsNumber,
        /// What.
        order: Box<TurnsOrder>,
    },
    /// A turn on them. Asked for once more it is not done once more.
    Turn {
        /// Whose.
        of: TurnsNumber,
        /// What.
        turn: TurnOrder,
    },
    /// Hold them: the beat without which they are closed.
    Hold {
        /// Which.
        of: TurnsNumber,
    },
    /// Close them.
    Close {
        /// Which.
        of: TurnsNumber,
    },
}

/// One turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TurnOrder {
    /// From 1, one more than that of the turn before.
    pub number: u32,
    /// For how long requests begin.
    pub length_ns: u64,
    /// After how many they end before that.
    pub requests: Option<u64>,
}

/// What came of a turn, or of opening connections for turns.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TurnReport {
    /// The number of the turn; 0 of the opening.
    pub number: u32,
    /// Right answers.
    pub right: u64,
    /// Requests and connections that failed.
    pub failed: u64,
    /// From the first request to the last answer, by the clock of the agent.
    pub took_ns: u64,
    /// CPU time of the thread that asked.
    pub cpu_ns: u64,
    /// Why requests failed so far, where some did.
    pub why_failed: Option<String>,
}

impl TurnReport {
    /// Of the turn with this number.
    #[must_use]
    pub fn of(number: u32, turned: Turned, cpu: Duration, why_failed: Option<String>) -> Self {
        let Turned { right, failed, took } = turned;
        let [took_ns, cpu_ns] = [took, cpu].map(|time| time.as_nanos() as u64);
        Self { number, right, failed, took_ns, cpu_ns, why_failed }
    }

    /// What a turn on this host would have said.
    #[must_use]
    pub fn turned(&self) -> Turned {
        let took = Duration::from_nanos(self.took_ns);
        Turned { right: self.right, failed: self.failed, took }
    }
}

/// Connections that are open.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TurnsOpened {
    /// The host of the agent.
    pub host: String,
    /// Its version of pollux.
    pub pollux: String,
    /// The mechanism of the loop that asks.
    pub driver: String,
    /// Their first requests.
    pub first: TurnReport,
}

/// Lines for the program: first [`TurnsLine::Open`]. At the end of its input the connections are closed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnsLine {
    /// Have an agent open these connections.
    Open {
        /// Which.
        agent: AgentName,
        /// The run of the lab: all its loads are of one campaign.
        campaign: AgentName,
        /// What.
        order: Box<TurnsOrder>,
    },
    /// A turn.
    Turn {
        /// For how long requests begin.
        length_ns: u64,
        /// After how many they end before that.
        requests: Option<u64>,
    },
}

/// What it tells, one for each line.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnsTold {
    /// All connections are open, or have failed once.
    Opened(Box<TurnsOpened>),
    /// A turn is over.
    Turned(TurnReport),
    /// There is no load any more.
    Failed {
        /// Why.
        why: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arrival, Crowd, Stage, Target};

    fn plan() -> Plan {
        let target = Target::parse("http://127.0.0.1:8080/", None).expect("a URL");
        let unproven_max = NonZeroU32::new(5);
        Plan { connections: 8, unproven_max, ..Plan::new(vec![target], Driver::PREFERRED[0]) }
    }

    #[test]
    fn a_plan_in_turns_comes_back_as_it_was() {
        let order = TurnsOrder::of(&plan()).expect("it can be sent");
        let text = serde_json::to_string(&order).expect("plain data");
        let read: TurnsOrder = serde_json::from_str(&text).expect("what was written");
        let (read, driver) = read.plan().expect("a plan");
        assert_eq!(driver, None);
        assert_eq!(format!("{read:?}"), format!("{:?}", plan()));
    }

    #[test]
    fn a_load_that_takes_no_turns_is_refused_by_its_flag() {
        let stages = vec![Stage { from_per_s: 10.0, to_per_s: 10.0, lasts: None }];
        let open = Pace::Open { arrival: Arrival::Constant, stages };
        let minute = Duration::from_secs(60);
        for (plan, flag) in [
            (Plan { pace: open, ..plan() }, "--rate"),
            (Plan { crowd: Crowd { slow: 1, ..Crowd::default() }, ..plan() }, "--dead"),
            (Plan { request_timeout: minute, ..plan() }, "--timeout"),
            (Plan { connect_timeout: minute, ..plan() }, "--connect-timeout"),
        ] {
            let order = TurnsOrder::of(&plan).expect("it can be sent");
            let error = order.plan().expect_err(flag).to_string();
            assert!(error.contains(flag), "{error}");
        }
    }
}
