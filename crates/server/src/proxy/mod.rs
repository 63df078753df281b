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
//! | `stream` | a side of TCP mode |
//! | `backends`, `groups` | which backends may have requests, which gets the next one, and the TLS to it |
//! | `names` | the addresses of their names, looked up in threads of their own |
//! | `exchange`, `channel` | one request with its answer; the bytes of one direction, and of both of a stream |
//! | `pipes`, `splicing` | the pipes of one loop; which bytes go through them |
//! | `heads` | heads, written anew by the rules of `fields.rs` |
//! | `head_cache` | the last heads, which may come again |
//! | `fault` | what can go wrong, whose fault it is and what the client gets; what is counted for each loop and backend |
//! | `shared` | what the sessions of one loop share |
//! | `assign` | how a request comes to an upstream connection |
//! | `pool`, `passing` | idle connections and waiting requests of all loops |

mod assign;
pub(crate) mod backends;
mod channel;
mod client;
mod config;
mod exchange;
pub(crate) mod fault;
mod groups;
mod head_cache;
mod heads;
pub(crate) mod names;
mod passing;
mod pipes;
mod pool;
mod session;
mod shared;
mod splicing;
mod stream;
mod upstream;

pub use crate::fields::{FieldRule, FieldRules};
pub use backends::Backend;
pub(crate) use config::WEIGHT_MAX;
pub use config::{
    BackendConfig, Balance, Check, Forwarding, Frontend, GroupConfig, Health, Mode, ProxyConfig,
    ProxyLimits, ServerTls,
};
pub use fault::{BackendCounts, Fault, Party, ProxyCounter, ProxyCounters};
pub use groups::Secrets;
pub use names::Resolver;
pub use passing::Passing;
pub use pool::PoolView;
pub use session::ProxySession;
pub use shared::{ProxyShared, backends_of};
