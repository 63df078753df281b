//! A reverse proxy for HTTP/1.1 as sessions of the engine.
//!
//! ```text
//!  client ──► Client ──► Exchange: request way  ──► Upstream ──► backend
//!         ◄──        ◄──           response way ◄──          ◄──
//! ```
//!
//! A client and an upstream connection are two sessions of one loop. They never touch each other:
//! what goes from one to the other lies in the `exchange` that both know by its number, and
//! whoever puts something there wakes the other one. What leaves was written anew from what was
//! understood; no head and no framing is passed through.
//!
//! | part | one job |
//! |---|---|
//! | `config`, `table` | what the user said, and what it is read by |
//! | `session` | which of the two a connection is |
//! | `client`, `upstream` | the two sides |
//! | `booking` | what is counted and logged of a request |
//! | `secrets` | certificates, keys and trust, read from their files |
//! | `stream`, `pair`, `pipes` | TCP mode: a side, what both know, and what their bytes go through |
//! | `backends`, `balance`, `check` | who may have requests, who gets the next one, and a look at how they are |
//! | `groups` | which backends a front end leads to |
//! | `exchange`, `way` | one request with its answer, and the bytes of one direction |
//! | `request`, `response`, `fields` | heads, written anew |
//! | `repeats` | the last heads, which may come again |
//! | `fault` | what can go wrong, whose fault it is and what the client gets |
//! | `shared`, `links`, `counters` | what the sessions of one loop share |
//! | `standing` | orders and health, passed from one worker to the next |
//! | `plan` | what it would do, in words |
//! | `assign` | how a request comes to an upstream connection |
//! | `pool`, `passing` | idle connections and waiting requests of all loops |
//! | `start` | loops, banner and facts of a running proxy |

mod assign;
mod backends;
mod balance;
mod booking;
mod check;
mod client;
mod config;
mod counters;
mod exchange;
mod fault;
pub(crate) mod fields;
mod groups;
mod links;
mod pair;
mod passing;
mod pipes;
mod plan;
mod pool;
mod repeats;
mod request;
mod response;
mod secrets;
mod session;
mod shared;
pub(crate) mod standing;
mod start;
mod stream;
mod upstream;
mod way;

pub use crate::rules::{FieldRule, FieldRules};
pub(crate) use backends::WEIGHT_MAX;
pub use backends::{Backend, BackendCounts};
pub use balance::Balance;
pub use check::Check;
pub use config::{
    BackendConfig, Forwarding, Frontend, GroupConfig, Health, Mode, ProxyConfig, ProxyLimits,
    ServerTls,
};
pub use counters::{ProxyCounter, ProxyCounters};
pub use fault::{Fault, Party};
pub use passing::Passing;
pub use pool::PoolView;
pub use secrets::Secrets;
pub use session::ProxySession;
pub use shared::{ProxyShared, backends_of};
