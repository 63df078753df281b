//! An HTTP server as sessions of the engine.
//!
//! The command line and the lab start it: [`settings::ServerSettings`] are read from flags and files,
//! [`Server::start`] runs the loops. A session gets bytes and time and gives answers; it never
//! waits and never touches a poller, so every loop of the engine can run it, and a rehearsal
//! without a kernel as well.
//!
//! | part | one job |
//! |---|---|
//! | `config` | the settings, checked |
//! | `settings` | one grammar for those of `serve` and of `proxy` |
//! | `front` | what a connection of a proxy is; PROXY heads and TLS below it |
//! | `session`, `request`, `answer` | one connection of a client: requests, bodies, answers at once or later, deadlines |
//! | `body_clock` | by when the rest of a request's body has to come |
//! | `files` | answers with files |
//! | `common_fields`, `fields` | what all answers have in common, media types; which fields a proxy passes on, and the user's rules |
//! | `proxy` | exchanges with backends, which answer later |
//! | `tls` | encryption below sessions |
//! | `master` | the master of a proxy with the sockets, its workers, reloads |
//! | `shared`, `log`, `counters` | what the sessions of one loop share, of a server as of a proxy; new settings for loops that run |
//! | `error` | what keeps a server from running; how many connections the descriptor limit allows |
//! | `system` | sockets and notifications of a service manager, the id file; users, rights, the sandbox |
//! | `serve`, `stats` | loops, endpoints, signals; what the endpoints show, and what the error log reports |
#![forbid(unsafe_code)]

mod answer;
mod body_clock;
mod common_fields;
pub mod config;
mod counters;
mod error;
mod fields;
mod files;
mod front;
mod log;
pub mod master;
pub mod proxy;
mod request;
mod serve;
mod session;
pub mod settings;
mod shared;
pub mod stats;
pub mod system;
pub mod tls;

pub use counters::{RequestTimes, ServerCounter, ServerCounters};
pub use error::ServerError;
pub use front::FrontSession;
pub use log::Logs;
pub use serve::{OwnProcess, Server};
pub use session::HttpSession;
pub use shared::Shared;
