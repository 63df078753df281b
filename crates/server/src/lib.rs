//! An HTTP server as sessions of the engine.
//!
//! The command line and the lab start it: [`config::serve_or_proxy::ServeOrProxy`] are read from flags and files,
//! [`Server::start`] runs the loops. A session gets bytes and time and gives answers; it never
//! waits and never touches a poller, so every loop of the engine can run it, and a rehearsal
//! without a kernel as well.
//!
//! Modules use those below them:
//!
//! | part | one job |
//! |---|---|
//! | `run` | loops, endpoints, signals; the master of a proxy and its workers; reloads; what a server gives up |
//! | `front` | what a connection is; one connection of a client: requests, answers at once or later, deadlines |
//! | `handlers` | answers at once: replies, files, redirects |
//! | `exchange` | answers of backends, which come later; TCP mode |
//! | `backends` | which backends there are, and which gets the next request; idle connections of all loops |
//! | `head` | heads, written anew |
//! | `config` | the settings, checked |
//! | `epochs` | which settings a request keeps to its end, whatever is reloaded meanwhile |
//! | `route` | which route of a site a request takes |
//! | `site_orders` | which sites are in maintenance by an order |
//! | `record` | the one place where a request is counted and logged, at its end |
//! | `log`, `counters` | what is written and counted |
//! | `fault`, `refusal` | what can go wrong with a backend, and whose fault it is; why a request is refused |
//! | `fields`, `body_clock` | which fields a proxy passes on, and the user's rules; by when the rest of a body has to come |
//! | `certificate_needs` | which names need certificates, for the program that gets them |
//! | `certificates` | what the clients of each front end are shown in TLS |
//! | `tls`, `identity`, `system` | what clients of HTTP say to a server of TLS; users and groups; sockets and notifications of a service manager, the id file |
//! | `coding` | what bodies are compressed with |
//! | `html` | text in pages |
//! | `error` | what keeps a server from running |
//! | `passwords` | whether clients are the users that they say they are |
//! | `rates` | how often each client may ask |
//! | `sticky` | the cookie by which a client comes to the server that it had |
//! | `random` | random bytes of the kernel |
//! | `ids`, `places` | the numbers of exchanges, upstream connections, streams and front ends, each a type of its own; a table by such a number |
#![forbid(unsafe_code)]

mod backends;
mod body_clock;
mod certificate_needs;
mod certificates;
mod coding;
pub mod config;
mod counters;
mod epochs;
mod error;
mod exchange;
mod fault;
mod fields;
mod front;
mod handlers;
mod head;
mod html;
mod identity;
mod ids;
mod log;
mod passwords;
mod places;
mod random;
mod rates;
mod record;
mod refusal;
mod route;
mod run;
mod site_orders;
mod sticky;
pub mod system;
pub mod tls;

pub use backends::groups::Secrets;
pub use backends::names::Resolver;
pub use backends::pool::PoolView;
pub use backends::shared_upstreams::SharedUpstreams;
pub use backends::{Backend, backends_of};
pub use certificate_needs::{CertificateNeeds, SiteNames};
pub use counters::{REFUSALS, RequestTimes, ServerCounter, ServerCounters};
pub use error::ServerError;
pub use fault::{BackendCounts, Fault, Party, ProxyCounter, ProxyCounters, StreamCounts};
pub use fields::FieldRule;
pub use front::ProxyConnection;
pub use front::h1::HttpSession;
pub use front::state::LoopState;
pub use handlers::Pages;
pub use identity::{Identity, SocketOwner};
pub use log::Logs;
pub use passwords::password_line;
pub use run::{OwnProcess, Server, explain, master, privileges, stats};
