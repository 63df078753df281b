//! Messages between the controller and agents, as JSON. The controller asks, an agent answers; nothing is said unasked, so
//! what was lost on the way is asked for again, and a second that came is never missed.
//!
//! ```text
//!  controller                                  agent
//!    Hello ─────────────────────────────────►   Here (facts)
//!    Ping, 20 times ────────────────────────►   Pong (its clock)
//!    Prepare (the order) ───────────────────►   Accepted, or Refused
//!    Status, twice a second ────────────────►   Status: preparing … ready … running, its seconds … finished
//!    Start (a moment of its clock) ─────────►   Accepted, or Refused
//!    Stop ──────────────────────────────────►   Accepted
//!    Piece, one by one ─────────────────────►   Piece of its result
//!    Dismiss ───────────────────────────────►   Accepted; it is idle again
//! ```
//!
//! The lab asks for a load in turns instead (`turns`), of which an agent holds several of one campaign:
//!
//! ```text
//!    Open (a number, the order) ────────────►   Opened, when all connections are
//!    Turn (of that number, its own number) ─►   Turned, when it is over
//!    Hold (of that number), once a second ──►   Held: up to which turn it is done
//!    Close (of that number) ────────────────►   Accepted
//! ```
//!
//! An agent takes bytes from a network: each message has a version, which is looked at first, and a bound.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AgentName, LoadOrder, TurnReport, TurnsDemand, TurnsOpened};
use crate::{Errors, Outcome, Phase, Second, Totals};

/// The version of these messages; others are refused.
pub const VERSION: u32 = 2;
/// The longest message: what a broker takes by default.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Seconds in one message at most.
pub const SECONDS_MAX: usize = 8;
/// No run counts so far, or lasts so many nanoseconds.
const COUNT_MAX: f64 = 1e17;
/// Pieces of a result at most.
pub const PIECES_MAX: u32 = 4096;
/// The longest result: a second has some kilobytes, so this is a run of a day.
pub const RESULT_BYTES_MAX: usize = 256 << 20;

/// Why a message can't be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// It is longer than any.
    #[error("{0} bytes; expected {MESSAGE_BYTES_MAX} at most")]
    TooLong(usize),
    /// The sender is of another version.
    #[error(
        "messages of version {0}; this program speaks version {VERSION}: install the same pollux on all hosts"
    )]
    Version(u32),
    /// It cannot be read.
    #[error("not a message: {0}")]
    Malformed(String),
    /// It holds more than it may.
    #[error("{what}: {found}; expected {most} at most")]
    TooMany {
        /// What.
        what: &'static str,
        /// How many.
        found: usize,
        /// The bound.
        most: usize,
    },
}

/// What the controller asks of an agent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CampaignRequest {
    /// [`VERSION`].
    pub version: u32,
    /// Which run it belongs to. An agent that is busy with another refuses it.
    pub campaign: AgentName,
    /// The process that is meant, as it has named itself; 0 for any, which no order may have: one that was started anew is
    /// another, and does nothing that was asked of the one before.
    pub instance: u64,
    /// What.
    pub demand: Demand,
}

/// What is asked.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Demand {
    /// Who is there?
    Hello,
    /// What does the clock say?
    Ping,
    /// Open the connections of this order, and say when that is done.
    Prepare(Box<LoadOrder>),
    /// How far is it? With the seconds from this number on; also the beat without which an agent stops.
    Status {
        /// From 0.
        seconds_from: u32,
    },
    /// Begin at this time of the agent's clock.
    Start {
        /// In nanoseconds.
        at_ns: u64,
    },
    /// End early; what was measured is the result.
    Stop,
    /// A piece of the result.
    Piece {
        /// From 0.
        number: u32,
    },
    /// Forget the run, whatever it is at.
    Dismiss,
    /// Something of a load that comes in turns.
    Turns(TurnsDemand),
}

/// What an agent answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CampaignReply {
    /// [`VERSION`].
    pub version: u32,
    /// Who.
    pub agent: AgentName,
    /// The process: a number that it drew when it started.
    pub instance: u64,
    /// What its clock said.
    pub now_ns: u64,
    /// What.
    pub said: Said,
}

/// What is answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Said {
    /// To [`Demand::Hello`].
    Here(AgentFacts),
    /// To [`Demand::Ping`].
    Pong,
    /// It is done, or begun.
    Accepted,
    /// It is not, and why.
    Refused(String),
    /// To [`Demand::Status`].
    Status(Box<AgentStatus>),
    /// To [`Demand::Piece`].
    Piece {
        /// How many there are.
        of: u32,
        /// In base64.
        bytes: String,
    },
    /// To [`TurnsDemand::Open`], when that is done.
    Opened(Box<TurnsOpened>),
    /// To [`TurnsDemand::Turn`], when it is over.
    Turned(TurnReport),
    /// To [`TurnsDemand::Hold`].
    Held {
        /// The last turn that is over; 0 when connections are open and none was, and nothing before that.
        done: Option<u32>,
    },
}

/// What a host that waits for orders can carry.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentFacts {
    /// The name of the host.
    pub host: String,
    /// Version of pollux.
    pub pollux: String,
    /// Release of the kernel.
    pub kernel: String,
    /// CPUs that the agent may run on.
    pub cpus: u32,
    /// Processes that want to run, over the last minute; `None` where the kernel does not say.
    pub load: Option<f64>,
    /// Descriptors that the process may have.
    pub descriptors: u64,
    /// Connections of one order at most.
    pub connections_max: u64,
    /// Targets that it allows, in words.
    pub allowed: String,
    /// The run that it is busy with.
    pub campaign: Option<AgentName>,
}

/// What an agent is at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentState {
    /// It has no order of this campaign.
    Idle,
    /// Connections are opened.
    Preparing,
    /// It waits for the moment to begin.
    Ready,
    /// Requests are sent, or waited for.
    Running,
    /// Its result can be fetched.
    Finished,
    /// It could not continue.
    Failed,
}

/// How far an agent is.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentStatus {
    /// What it is at.
    pub state: AgentState,
    /// Why it failed, or ended.
    pub why: Option<String>,
    /// Which part of the run.
    pub phase: Phase,
    /// Since requests began.
    pub elapsed_ns: u64,
    /// Counted so far, without the warm-up.
    pub totals: Totals,
    /// What went wrong so far.
    pub errors: Errors,
    /// Connections beside the active ones so far.
    pub crowd_connected: u32,
    /// Number of the first of the seconds.
    pub first: u32,
    /// Whole seconds, in order.
    pub seconds: Vec<Second>,
    /// Pieces of the result, where it is finished.
    pub pieces: u32,
}

impl Demand {
    /// Whether connections are opened for it.
    #[must_use]
    pub fn is_order(&self) -> bool {
        matches!(self, Self::Prepare(_) | Self::Turns(TurnsDemand::Open { .. }))
    }
}

impl CampaignRequest {
    /// Reads what came.
    ///
    /// # Errors
    /// [`MessageError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        decoded(bytes)
    }

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data")
    }
}

impl CampaignReply {
    /// Reads what came.
    ///
    /// # Errors
    /// [`MessageError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let reply: Self = decoded(bytes)?;
        if let Said::Status(status) = &reply.said
            && status.pieces > PIECES_MAX
        {
            let found = status.pieces as usize;
            let most = PIECES_MAX as usize;
            return Err(MessageError::TooMany { what: "pieces", found, most });
        }
        Ok(reply)
    }

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data")
    }
}

/// A result in pieces of so many bytes, in base64.
#[must_use]
pub fn pieces(result: &str, len_bytes: usize) -> Vec<String> {
    result.as_bytes().chunks(len_bytes.max(1)).map(|piece| STANDARD.encode(piece)).collect()
}

/// Reads a result from its pieces put together.
///
/// # Errors
/// [`MessageError`].
pub fn result_of(bytes: &[u8]) -> Result<Outcome, MessageError> {
    let malformed = |error: serde_json::Error| MessageError::Malformed(error.to_string());
    let mut value: Value = serde_json::from_slice(bytes).map_err(malformed)?;
    countable(&value)?;
    without_controls(&mut value);
    serde_json::from_value(value).map_err(malformed)
}

/// Replaces control characters in texts, which are shown on a terminal.
fn without_controls(value: &mut Value) {
    let is_of_terminal = |letter: char| letter.is_control() && letter != '\n';
    match value {
        Value::String(text) if text.contains(is_of_terminal) => {
            *text = text.replace(is_of_terminal, "\u{fffd}");
        }
        Value::Array(values) => values.iter_mut().for_each(without_controls),
        Value::Object(fields) => fields.values_mut().for_each(without_controls),
        _ => {}
    }
}

/// Refuses numbers that no run counts to: sums of those that are left never overflow.
fn countable(value: &Value) -> Result<(), MessageError> {
    match value {
        Value::Number(number) => {
            let is_countable = number.as_f64().is_some_and(|number| number.abs() < COUNT_MAX);
            let refused = || MessageError::Malformed(format!("{number} is not a count"));
            is_countable.then_some(()).ok_or_else(refused)
        }
        Value::Array(values) => values.iter().try_for_each(countable),
        Value::Object(fields) => fields.values().try_for_each(countable),
        _ => Ok(()),
    }
}

/// The version is looked at first: another one may have other fields.
fn decoded<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, MessageError> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(MessageError::TooLong(bytes.len()));
    }
    let malformed = |error: serde_json::Error| MessageError::Malformed(error.to_string());
    let Versioned { version } = serde_json::from_slice(bytes).map_err(malformed)?;
    if version != VERSION {
        return Err(MessageError::Version(version));
    }
    let mut value: Value = serde_json::from_slice(bytes).map_err(malformed)?;
    value.get_mut("said").into_iter().for_each(without_controls);
    let said = value.get("said");
    said.map_or(Ok(()), countable)?;
    // Before each of them becomes a histogram.
    let seconds = said.and_then(|said| said.get("status")?.get("seconds")?.as_array());
    let found = seconds.map_or(0, Vec::len);
    if found > SECONDS_MAX {
        return Err(MessageError::TooMany { what: "seconds", found, most: SECONDS_MAX });
    }
    serde_json::from_value(value).map_err(malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::{TurnOrder, TurnsNumber};

    fn request(demand: Demand) -> CampaignRequest {
        CampaignRequest { version: VERSION, campaign: AgentName::nearest("c"), instance: 3, demand }
    }

    fn status(seconds: usize) -> CampaignReply {
        let status = AgentStatus {
            state: AgentState::Running,
            why: None,
            phase: Phase::Measuring,
            elapsed_ns: 5,
            totals: Totals { answered: 7, ..Totals::default() },
            errors: Errors::default(),
            crowd_connected: 0,
            first: 2,
            seconds: vec![Second { answered: 7, ..Second::default() }; seconds],
            pieces: 0,
        };
        let said = Said::Status(Box::new(status));
        let agent = AgentName::nearest("a");
        CampaignReply { version: VERSION, agent, instance: 3, now_ns: 9, said }
    }

    #[test]
    fn requests_and_replies_come_back_as_they_were() {
        for demand in [
            Demand::Hello,
            Demand::Ping,
            Demand::Status { seconds_from: 4 },
            Demand::Start { at_ns: u64::MAX },
            Demand::Stop,
            Demand::Piece { number: 1 },
            Demand::Dismiss,
            Demand::Turns(TurnsDemand::Turn {
                of: TurnsNumber(3),
                turn: TurnOrder { number: 1, length_ns: 5, requests: Some(7) },
            }),
            Demand::Turns(TurnsDemand::Hold { of: TurnsNumber(3) }),
            Demand::Turns(TurnsDemand::Close { of: TurnsNumber(3) }),
        ] {
            let request = request(demand);
            assert_eq!(CampaignRequest::decode(&request.encode()), Ok(request));
        }
        let reply = CampaignReply::decode(&status(2).encode()).expect("what was written");
        let Said::Status(status) = reply.said else { panic!("{:?}", reply.said) };
        assert_eq!((status.seconds.len(), status.seconds[1].answered), (2, 7));
    }

    #[test]
    fn another_version_is_named_whatever_else_it_says() {
        let error =
            CampaignRequest::decode(b"{\"version\": 3, \"new\": []}").expect_err("version 3");
        assert_eq!(error, MessageError::Version(3));
        assert!(error.to_string().contains("install the same pollux"), "{error}");
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        let bytes = request(Demand::Stop).encode();
        for cut in 0..bytes.len() {
            assert!(CampaignRequest::decode(&bytes[..cut]).is_err());
        }
        let unknown = String::from_utf8(bytes).expect("JSON").replace("stop", "shell");
        assert!(CampaignRequest::decode(unknown.as_bytes()).is_err());
        let long = vec![b' '; MESSAGE_BYTES_MAX + 1];
        let error = CampaignRequest::decode(&long).expect_err("too long");
        assert_eq!(error, MessageError::TooLong(MESSAGE_BYTES_MAX + 1));
        let many = CampaignReply::decode(&status(SECONDS_MAX + 1).encode()).expect_err("too many");
        assert!(many.to_string().contains("9; expected 8"), "{many}");
        assert!(CampaignReply::decode(&b"[".repeat(100_000)).is_err());
    }

    #[test]
    fn numbers_whose_sum_would_overflow_are_refused() {
        let text = String::from_utf8(status(1).encode()).expect("JSON");
        let forged = text.replacen("\"answered\":7", "\"answered\":18446744073709551615", 1);
        assert_ne!(forged, text);
        let error = CampaignReply::decode(forged.as_bytes()).expect_err("no count");
        assert!(error.to_string().contains("is not a count"), "{error}");
    }

    #[test]
    fn texts_of_agents_say_nothing_to_a_terminal() {
        let status = |why: &str| {
            let mut reply = status(0);
            if let Said::Status(status) = &mut reply.said {
                status.why = Some(why.to_owned());
            }
            reply.encode()
        };
        let reply = CampaignReply::decode(&status("a\x1b[2J\u{9b}ä\n")).expect("a reply");
        let Said::Status(status) = reply.said else { panic!("{:?}", reply.said) };
        assert_eq!(status.why.as_deref(), Some("a\u{fffd}[2J\u{fffd}ä\n"));
        let mut outcome = crate::sample::sample(8, 100, 1_000_000);
        outcome.first_failure = Some("\x1b]0;x\x07".to_owned());
        let text = serde_json::to_vec(&outcome).expect("plain data");
        let read = result_of(&text).expect("a result").first_failure;
        assert_eq!(read.as_deref(), Some("\u{fffd}]0;x\u{fffd}"));
    }

    #[test]
    fn pieces_are_the_whole() {
        let text = "ä result".repeat(50);
        let pieces = pieces(&text, 7);
        let whole: Vec<u8> =
            pieces.iter().flat_map(|piece| STANDARD.decode(piece).expect("base64")).collect();
        assert_eq!(String::from_utf8(whole).expect("text"), text);
    }
}
