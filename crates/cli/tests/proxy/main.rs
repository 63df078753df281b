//! `pollux proxy` as processes: a master that holds the sockets, and workers that serve.
//!
//! | file | what it holds them to |
//! |---|---|
//! | `stage` | starts proxies, backends and clients |
//! | `daemon` | new settings under load cost no request; `--check`, the manager, the id file, the access log |
//! | `deaths` | kill -9 of each process |
//! | `fuzz` | fuzzed clients and fuzzed backends |
//! | `http2` | clients of HTTP/2 through reloads and the end |
//! | `sites` | sites and their routes: `explain`, `--check`, reloads |

mod daemon;
mod deaths;
mod fuzz;
mod http2;
mod sites;
mod stage;
