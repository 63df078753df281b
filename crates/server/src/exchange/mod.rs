//! What answers requests later, by backends: one request under way with its answer, and the side of the backend.
//!
//! ```text
//!  client ──► HttpSession ──► Exchange: request message  ──► Upstream ──► backend
//!         ◄──             ◄──           response message ◄──          ◄──
//! ```
//!
//! A client's connection and an upstream one are two sessions of one loop, and a client's of HTTP/2 has an exchange for each
//! of its streams. They never touch each other:
//! what goes from one to the other lies in the [`Exchange`](table::Exchange) that both know by its number, and a side
//! that adds to it wakes the other one. Each head and its framing is written anew from what was
//! understood; none is passed through.
//!
//! | part | one job |
//! |---|---|
//! | `table`, `asker` | the exchanges of a loop; whom an exchange wakes |
//! | `connections` | the upstream connections of a loop |
//! | `message` | head, body and end in one direction |
//! | `h1_output`, `h2_output` | how they leave by a connection of HTTP/1, and by a stream of HTTP/2 |
//! | `direction`, `tcp_pair` | a message between two sides, and what reads it; two of them, for TCP mode |
//! | `request` | the order of a request, from its head to its last byte: one function for each step |
//! | `booking` | its end: it is counted, logged and gone |
//! | `held_bytes` | what the streams of a loop hold together, and which of them go where that is too much |
//! | `deadlines` | by when a client has to have sent, and to be answered |
//! | `assign`, `multiplex` | how a request comes to an upstream connection, and to one of HTTP/2, which carries many |
//! | `upstream` | the side of a backend, of HTTP/1.1 and below it of HTTP/2; that of a client is in `front`, as of any request |
//! | `tcp`, `health_check` | a side of TCP mode; checks of backends |
//! | `pipes`, `splicing` | the pipes of one loop; which bytes go through them |
//! | `epoch` | what of the settings a request keeps to its end |
//! | `proxy_loop` | what one loop of a proxy has of backends, and of what is under way to them |

pub(crate) mod asker;
mod assign;
mod booking;
pub(crate) mod connections;
pub(crate) mod deadlines;
pub(crate) mod direction;
pub(crate) mod epoch;
mod h1_output;
pub(crate) mod h2_output;
pub(crate) mod health_check;
mod held_bytes;
mod message;
mod multiplex;
mod pipes;
pub(crate) mod proxy_loop;
pub(crate) mod request;
mod splicing;
pub(crate) mod table;
pub(crate) mod tcp;
pub(crate) mod tcp_pair;
pub(crate) mod upstream;
