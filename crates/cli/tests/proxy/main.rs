//! `pollux proxy` as processes: a master that holds the sockets, and workers that serve.
//!
//! | file | what it holds them to |
//! |---|---|
//! | `stage` | starts proxies, backends and clients |
//! | `settings` | `--check` |
//! | `reload` | new settings under load cost no request |
//! | `deaths` | kill -9 of each process |
//! | `fuzz` | fuzzed clients and fuzzed backends |

mod deaths;
mod fuzz;
mod reload;
mod settings;
mod stage;
