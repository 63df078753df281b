//! `pollux proxy` as processes: a master that holds the sockets, and workers that serve.
//!
//! | file | what it holds them to |
//! |---|---|
//! | `stage` | starts proxies, backends and clients |
//! | `certificates` | certificates of a folder: what is said of them, and handshakes while they change |
//! | `daemon` | new settings under load cost no request; `--check`, the manager, the id file, the access log |
//! | `deaths` | kill -9 of each process |
//! | `fuzz` | fuzzed clients and fuzzed backends |
//! | `http2` | clients of HTTP/2, and WebSockets on their streams, through reloads and the end |
//! | `upgrade` | another program in the place of the one that runs |
//! | `whole` | a whole file with sites: it runs, and each mistake in it is named |
//! | `pairs` | the same sites by nginx, HAProxy and pollux |
//! | `sites` | sites and their routes: `explain`, `--check`, reloads |

mod certificates;
mod daemon;
mod deaths;
mod fuzz;
mod http2;
mod pairs;
mod sites;
mod stage;
mod upgrade;
mod whole;
