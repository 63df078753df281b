//! A load that agents on several hosts put on one server together: what orders, messages, clocks and sums are. Pure: the
//! programs of `pollux-agent` carry the messages over a broker, `pollux load --agents` shows what comes of it.
//!
//! ```text
//!  Plan ──► LoadOrder ──► a part for each agent ──► LoadOrder::plan ──► LoadBounds::check ──► Load::prepare
//!                                                                                              │
//!  pollux load ◄── Told ◄── LiveSum, ResultSum ◄── CampaignReply: status, seconds, pieces ◄── begin at the same moment
//! ```
//!
//! | module | one job |
//! |---|---|
//! | `name` | names of agents and groups, which are parts of subjects |
//! | `order` | a plan as plain data, its parts, and what cannot be sent |
//! | `bounds` | what an agent lets an order ask for |
//! | `message` | requests of the controller and replies of agents: versioned, bounded |
//! | `clock` | the distance of two monotonic clocks, and its uncertainty |
//! | `turns` | a load that an agent gives in turns, for the lab |
//! | `sum` | seconds and results of all agents, added up |
//! | `told` | lines between `pollux load` and the program that drives the agents |

mod bounds;
mod clock;
mod message;
mod name;
mod order;
mod sum;
mod told;
mod turns;

pub use bounds::{AllowedTarget, ByName, LoadBounds};
pub use clock::{ClockDistance, PingSample};
pub use message::{
    AgentFacts, AgentState, AgentStatus, CampaignReply, CampaignRequest, Demand, MESSAGE_BYTES_MAX,
    MessageError, PIECES_MAX, RESULT_BYTES_MAX, SECONDS_MAX, Said, VERSION, pieces, result_of,
};
pub use name::AgentName;
pub use order::LoadOrder;
pub use sum::{AgentEnd, Ended, LiveSum, ResultSum, lost_all};
pub use told::{AgentNow, AgentsNow, OnLostAgent, Told, ToldOrder};
pub use turns::{
    TURN_ANSWER_MAX, TurnOrder, TurnReport, TurnsDemand, TurnsLine, TurnsNumber, TurnsOpened,
    TurnsOrder, TurnsTold,
};
