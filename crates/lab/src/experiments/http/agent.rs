//! A load in turns that an agent on another host gives (`pollux-agent`), through the program that has the client of the broker.
//! `served` gives it turns as it gives them to a load of this thread.
//!
//! ```text
//!  served ── Open, Turn ──► pollux-agent turns ── broker ── pollux-agent on another host ── requests ──► server
//!         ◄── what came of it ──┘
//! ```
//!
//! A turn is timed by the agent's clock, and what the server used is read here, while it sleeps: how long an order is under way
//! is in neither. It costs time of the run, so turns are longer than those of this host.

use std::process::Command;
use std::time::Duration;

use pollux_host::{self as host, Program};
use pollux_load::campaign::{
    AgentName, TURN_ANSWER_MAX, TurnReport, TurnsLine, TurnsOpened, TurnsOrder, TurnsTold,
};
use pollux_load::{Plan, Trust, Turned};
use pollux_settings::command::output::error_chain;

use crate::error::MeasureError;
use crate::hosts::{self, AGENT_PROGRAM};
use crate::measure::RunSpec;
use crate::subject::TurnSize;

/// A turn is so long at least: several times as long as an order is under way.
pub(super) const TURN_MIN: Duration = Duration::from_millis(50);
/// What an arm takes to find its agent and have connections opened, beside what those take on this host, and to have them
/// closed.
pub(super) const START_COST: Duration = Duration::from_millis(60);
/// How long a broker, an agent and its connections are waited for; each of those has a shorter patience of its own.
const OPENED_WITHIN: Duration = Duration::from_secs(120);
/// What a turn takes beside its length and its last answers.
const GRACE: Duration = Duration::from_secs(10);
/// How long the program may take to have the connections closed.
const END_TIME_MAX: Duration = Duration::from_secs(3);

/// Connections that an agent holds.
pub(super) struct AgentTurns {
    program: Program,
    agent: AgentName,
    opened: TurnsOpened,
    /// CPU time of the agent's thread.
    used: Duration,
    why_failed: Option<String>,
}

impl AgentTurns {
    /// Has the agent open the connections of `plan`.
    pub(super) fn open(
        spec: &RunSpec,
        agent: AgentName,
        plan: &Plan,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Self, MeasureError> {
        let path = host::find_program_beside(AGENT_PROGRAM)
            .ok_or_else(|| failed(missing().unwrap_or_default()))?;
        // The certificate is a file of this host, where the first answer was checked with it.
        let trust = match &plan.trust {
            Trust::File(_) => Trust::AnyCertificate,
            other => other.clone(),
        };
        let order = TurnsOrder::of(&Plan { trust, ..plan.clone() });
        let order = Box::new(order.map_err(|error| failed(error_chain(&error)))?);
        let mut command = Command::new(path);
        command.arg("turns").args(spec.hosts.broker_words());
        let program = Program::start_group(AGENT_PROGRAM, command)?;
        let opened = TurnsOpened {
            host: String::new(),
            pollux: String::new(),
            driver: String::new(),
            first: TurnReport::default(),
        };
        let used = Duration::ZERO;
        let mut turns = Self { program, agent, opened, used, why_failed: None };
        let open = TurnsLine::Open {
            agent: turns.agent.clone(),
            campaign: hosts::campaign(&spec.scratch),
            order,
        };
        match turns.ask(&open, OPENED_WITHIN, is_interrupted)? {
            TurnsTold::Opened(opened) => {
                turns.take(&opened.first);
                turns.opened = *opened;
                Ok(turns)
            }
            other => Err(failed(format!("said {other:?} before connections were open"))),
        }
    }

    pub(super) fn opened(&self) -> Turned {
        self.opened.first.turned()
    }

    /// What makes the load, for the record.
    pub(super) fn described(&self) -> String {
        let TurnsOpened { host, pollux, driver, .. } = &self.opened;
        format!("pollux {pollux} ({driver}) on {host} (agent {})", self.agent)
    }

    /// The process that speaks with the agent.
    pub(super) fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// CPU time of the agent's thread so far.
    pub(super) fn used(&self) -> Duration {
        self.used
    }

    pub(super) fn why_failed(&self) -> Option<String> {
        self.why_failed.clone()
    }

    pub(super) fn turn(
        &mut self,
        size: TurnSize,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Turned, MeasureError> {
        let length_ns = size.length.as_nanos() as u64;
        let turn = TurnsLine::Turn { length_ns, requests: size.units };
        let patience = size.length + TURN_ANSWER_MAX + GRACE;
        match self.ask(&turn, patience, is_interrupted)? {
            TurnsTold::Turned(report) => {
                self.take(&report);
                Ok(report.turned())
            }
            other => Err(failed(format!("said {other:?} of a turn"))),
        }
    }

    fn take(&mut self, report: &TurnReport) {
        self.used += Duration::from_nanos(report.cpu_ns);
        if report.why_failed.is_some() {
            self.why_failed.clone_from(&report.why_failed);
        }
    }

    fn ask(
        &mut self,
        line: &TurnsLine,
        patience: Duration,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<TurnsTold, MeasureError> {
        self.program.write_line(&serde_json::to_string(line).expect("plain data"));
        let Some(told) = self.program.output_line_within(patience, is_interrupted)? else {
            return Err(self.program.failed("ended without an answer").into());
        };
        match serde_json::from_str(&told) {
            Ok(TurnsTold::Failed { why }) => Err(failed(why)),
            Ok(told) => Ok(told),
            Err(error) => Err(failed(format!("{AGENT_PROGRAM} is of another version: {error}"))),
        }
    }
}

impl Drop for AgentTurns {
    /// The agent closes the connections; without a word it does so seconds later.
    fn drop(&mut self) {
        self.program.end_input();
        let _ = self.program.ends_within(END_TIME_MAX, &|| false);
    }
}

/// Why this machine can't reach agents.
pub(super) fn missing() -> Option<String> {
    host::find_program_beside(AGENT_PROGRAM).is_none().then(|| {
        format!(
            "{AGENT_PROGRAM}, the program that reaches agents over the broker, was found neither beside this program nor in \
             PATH; in the sources of pollux, build it with `cargo build --release -p {AGENT_PROGRAM}`"
        )
    })
}

fn failed(what: String) -> MeasureError {
    MeasureError::Program { program: "the load generator".to_owned(), what }
}
