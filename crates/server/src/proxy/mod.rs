//! What answers requests later, by backends: the reverse proxy below the connections of clients.
//!
//! ```text
//!  client ──► HttpSession ──► Exchange: request channel  ──► Upstream ──► backend
//!         ◄──             ◄──           response channel ◄──          ◄──
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
//! | `upstream` | the side of a backend; that of a client is in `session`, as of any request |
//! | `stream`, `check` | a side of TCP mode; checks of backends |
//! | `backends`, `groups` | which backends may have requests, which gets the next one, and the TLS to it |
//! | `names` | the addresses of their names, looked up in threads of their own |
//! | `exchange`, `channel` | one request with its answer; the bytes of one direction, and of both of a stream |
//! | `pipes`, `splicing` | the pipes of one loop; which bytes go through them |
//! | `heads` | heads, written anew by the rules of `fields.rs` |
//! | `head_cache` | the last heads, which may come again |
//! | `fault` | what can go wrong, whose fault it is and what the client gets; what is counted for each loop and backend |
//! | `shared` | what one loop has of backends, and of what is under way to them |
//! | `assign` | how a request comes to an upstream connection |
//! | `pool`, `passing` | idle connections and waiting requests of all loops |

mod assign;
pub(crate) mod backends;
pub(crate) mod channel;
pub(crate) mod check;
mod config;
pub(crate) mod exchange;
pub(crate) mod fault;
pub(crate) mod groups;
pub(crate) mod head_cache;
pub(crate) mod heads;
pub(crate) mod names;
mod passing;
mod pipes;
mod pool;
pub(crate) mod shared;
mod splicing;
pub(crate) mod stream;
pub(crate) mod upstream;

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
pub use shared::backends_of;
