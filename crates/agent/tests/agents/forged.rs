//! An agent that a test plays: it answers what it is asked over a connection of its own, and sends no request anywhere.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use pollux_load::campaign::{
    AgentFacts, AgentName, AgentState, AgentStatus, CampaignReply, CampaignRequest, Demand, Said,
    VERSION, pieces,
};
use pollux_load::{Errors, Outcome, Phase, Totals};

use crate::broker::{Broker, Raw};

/// The process that it says it is.
const INSTANCE: u64 = 7;
/// Bytes of a piece of its result.
const PIECE_BYTES: usize = 300_000;

/// How it behaves.
#[derive(Clone)]
pub(crate) enum Manner {
    /// It is finished as soon as it began, with a result in these pieces.
    Finishes(Arc<[String]>),
    /// The same, but nobody gets its result.
    KeepsItsResult,
    /// It does not answer to the start.
    NeverBegins,
    /// Its answers take so long that its clock is known to no better than 60 ms.
    AnswersLate,
}

/// How long they take then.
const LATE: Duration = Duration::from_millis(120);

impl Manner {
    pub(crate) fn finishes(outcome: &Outcome) -> Self {
        let result = serde_json::to_string(outcome).expect("plain data");
        Self::Finishes(pieces(&result, PIECE_BYTES).into())
    }
}

/// Plays an agent until the broker ends.
pub(crate) fn forged(broker: &Broker, name: &'static str, manner: Manner) -> JoinHandle<()> {
    let mut own = broker.raw();
    own.subscribe("pollux-load.default.hello");
    own.subscribe(&format!("pollux-load.default.agent.{name}"));
    std::thread::spawn(move || play(own, name, &manner))
}

fn play(mut own: Raw, name: &str, manner: &Manner) {
    let result: &[String] = match manner {
        Manner::Finishes(pieces) => pieces,
        Manner::KeepsItsResult | Manner::NeverBegins | Manner::AnswersLate => &[],
    };
    let mut state = AgentState::Idle;
    while let Some((reply, asked)) = own.message_or_end() {
        let asked = CampaignRequest::decode(&asked).expect("what a controller asks");
        if matches!(manner, Manner::AnswersLate) {
            std::thread::sleep(LATE);
        }
        let said = match asked.demand {
            Demand::Hello => Some(Said::Here(facts())),
            Demand::Ping => Some(Said::Pong),
            Demand::Prepare(_) => {
                state = AgentState::Ready;
                Some(Said::Accepted)
            }
            Demand::Status { .. } => Some(Said::Status(Box::new(status(state)))),
            Demand::Start { .. } if matches!(manner, Manner::NeverBegins) => None,
            Demand::Start { .. } => {
                state = AgentState::Finished;
                Some(Said::Accepted)
            }
            Demand::Stop => Some(Said::Accepted),
            Demand::Turns(_) => None,
            Demand::Piece { number } => {
                let of = result.len() as u32;
                result.get(number as usize).map(|bytes| Said::Piece { of, bytes: bytes.clone() })
            }
            Demand::Dismiss => {
                state = AgentState::Idle;
                Some(Said::Accepted)
            }
        };
        let (Some(said), Some(reply)) = (said, reply) else { continue };
        let agent = AgentName::nearest(name);
        let now_ns = pollux_sys::clock::monotonic_ns();
        let answer = CampaignReply { version: VERSION, agent, instance: INSTANCE, now_ns, said };
        if own.publish_or_end(&reply, "", &answer.encode()).is_none() {
            return;
        }
    }
}

fn facts() -> AgentFacts {
    AgentFacts {
        host: "forged".to_owned(),
        pollux: String::new(),
        kernel: String::new(),
        cpus: 1,
        load: None,
        descriptors: 1_000,
        connections_max: 1_000,
        allowed: "all".to_owned(),
        campaign: None,
    }
}

fn status(state: AgentState) -> AgentStatus {
    AgentStatus {
        state,
        why: None,
        phase: Phase::SettingUp,
        elapsed_ns: 0,
        totals: Totals::default(),
        errors: Errors::default(),
        crowd_connected: 0,
        first: 0,
        seconds: Vec::new(),
        pieces: 0,
    }
}
