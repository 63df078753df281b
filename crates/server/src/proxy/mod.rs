//! A reverse proxy for HTTP/1.1 as sessions of the engine.
//!
//! ```text
//!  client ──► Client ──► Exchange: request channel  ──► Upstream ──► backend
//!         ◄──        ◄──           response channel ◄──          ◄──
//! ```
//!
//! A client and an upstream connection are two sessions of one loop. They never touch each other:
//! what goes from one to the other lies in the `exchange` that both know by its number, and a side
//! that adds to it wakes the other one. Each head and its framing is written anew from what was
//! understood; none is passed through.
//!
//! | part | one job |
//! |---|---|
//! | `config` | the settings, read and checked |
//! | `session` | which of the two a connection is |
//! | `client`, `upstream` | the two sides |
//! | `accounting` | what is counted and logged of a request |
//! | `secrets` | certificates, keys and trust, read from their files |
//! | `stream`, `pair`, `pipes` | TCP mode: a side, what both know, and what their bytes go through |
//! | `backends`, `balance`, `check` | which backends may have requests, which gets the next one, and their checks |
//! | `groups` | which backends a front end leads to |
//! | `exchange`, `channel` | one request with its answer, and the bytes of one direction |
//! | `request`, `response`, `fields` | heads, written anew |
//! | `head_cache` | the last heads, which may come again |
//! | `fault` | what can go wrong, whose fault it is and what the client gets |
//! | `shared`, `links`, `counters` | what the sessions of one loop share |
//! | `states` | orders and health, passed from one worker to the next |
//! | `summary` | what it would do, in words |
//! | `assign` | how a request comes to an upstream connection |
//! | `pool`, `passing` | idle connections and waiting requests of all loops |
//! | `start` | loops, banner and facts of a running proxy |

mod accounting;
mod assign;
mod backends;
mod balance;
mod channel;
mod check;
mod client;
mod config;
mod counters;
mod exchange;
mod fault;
pub(crate) mod fields;
mod groups;
mod head_cache;
mod links;
mod pair;
mod passing;
mod pipes;
mod pool;
mod request;
mod response;
mod secrets;
mod session;
mod shared;
mod start;
pub(crate) mod states;
mod stream;
mod summary;
mod upstream;

pub use crate::rules::{FieldRule, FieldRules};
pub use backends::{Backend, BackendCounts};
pub use balance::Balance;
pub(crate) use config::WEIGHT_MAX;
pub use config::{
    BackendConfig, Check, Forwarding, Frontend, GroupConfig, Health, Mode, ProxyConfig,
    ProxyLimits, ServerTls,
};
pub use counters::{ProxyCounter, ProxyCounters};
pub use fault::{Fault, Party};
pub use passing::Passing;
pub use pool::PoolView;
pub use secrets::Secrets;
pub use session::ProxySession;
pub use shared::{ProxyShared, backends_of};
