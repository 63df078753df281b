//! An HTTP server as sessions of the engine.
//!
//! The command line and the lab start it: [`config::ServeConfig`] is read from
//! flags and files,
//! [`Server::start`] runs the loops. A session gets bytes and time and gives answers; it never
//! waits and never touches a poller, so every loop of the engine can run it, and a rehearsal
//! without a kernel as well.
//!
//! | part | one job |
//! |---|---|
//! | `config` | the settings, checked |
//! | `session`, `body`, `unsent` | one connection: requests, bodies, output beyond the room, deadlines |
//! | `respond`, `answer`, `reply`, `files` | what is answered |
//! | `common_fields`, `rules` | what all answers have in common, by the user's rules |
//! | `first_line` | what a request says without being parsed |
//! | `proxy` | the reverse proxy |
//! | `tls` | encryption in front of sessions |
//! | `master` | its processes: the master with the sockets, workers, reloads |
//! | `shared`, `log`, `counters` | what the sessions of one loop share |
//! | `descriptors` | how many connections the descriptor limit allows |
//! | `sandbox` | what a server gives up once it serves |
//! | `reload` | new settings for loops that run |
//! | `system` | sockets of a manager, its notifications, the id file, rights that are given up |
//! | `serve`, `stats` | loops, endpoints, signals; what the endpoints show, and what the error log reports |
#![forbid(unsafe_code)]

mod answer;
mod answer_rules;
mod body;
mod common_fields;
pub mod config;
mod counters;
mod descriptors;
mod error;
mod files;
mod first_line;
mod log;
pub mod master;
pub mod proxy;
mod reload;
mod reply;
mod request_times;
mod respond;
mod rules;
mod sandbox;
mod serve;
mod session;
mod shared;
pub mod stats;
pub mod system;
pub mod tls;
mod unsent;

pub use counters::{CLASSES, METHODS, REFUSALS, ServerCounter, ServerCounters};
pub use error::ServerError;
pub use log::Logs;
pub use request_times::RequestTimes;
pub use serve::{OwnProcess, Server};
pub use session::{EncryptedSession, HttpSession};
pub use shared::Shared;
