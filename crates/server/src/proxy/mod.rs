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
//! | `session` | which of the sides a connection is; checks of backends |
//! | `client`, `upstream` | the two sides |
//! | `secrets` | certificates, keys and trust, read from their files |
//! | `stream`, `pair` | TCP mode: a side, and what both know |
//! | `backends`, `groups` | which backends may have requests, and which gets the next one |
//! | `exchange`, `channel` | one request with its answer, and the bytes of one direction |
//! | `request`, `response` | heads, written anew by the rules of `fields.rs` |
//! | `head_cache` | the last heads, which may come again |
//! | `fault` | what can go wrong, whose fault it is and what the client gets |
//! | `shared` | what the sessions of one loop share |
//! | `assign` | how a request comes to an upstream connection |
//! | `pool`, `passing` | idle connections and waiting requests of all loops |
//! | `counters` | what is counted for each loop and backend |

mod assign;
pub(crate) mod backends;
mod channel;
mod client;
mod config;
mod counters;
mod exchange;
pub(crate) mod fault;
mod groups;
mod head_cache;
mod pair;
mod passing;
mod pool;
mod request;
mod response;
mod secrets;
mod session;
mod shared;
mod stream;
mod upstream;

pub use crate::fields::{FieldRule, FieldRules};
pub use backends::Backend;
pub(crate) use config::WEIGHT_MAX;
pub use config::{
    BackendConfig, Balance, Check, Forwarding, Frontend, GroupConfig, Health, Mode, ProxyConfig,
    ProxyLimits, ServerTls,
};
pub use counters::{BackendCounts, ProxyCounter, ProxyCounters};
pub use fault::{Fault, Party};
pub use passing::Passing;
pub use pool::PoolView;
pub use secrets::Secrets;
pub use session::ProxySession;
pub use shared::{ProxyShared, backends_of};
