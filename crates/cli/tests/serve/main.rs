//! `pollux serve` as a process of its own under hostile and under heavy load.
//!
//! | file | what it holds the server to |
//! |---|---|
//! | `soak` | random clients leave nothing behind, and harm no other client |
//! | `connections` | calls, descriptors and bytes that connections cost; ten thousand connects starve no live one |
//! | `idle` | a server without clients puts no pressure on I/O |
//! | `daemon` | reloads, `--check`, the manager, the id file, sockets that were opened before, logs on a full disk |
//! | `sandbox` | a server that gave up what it does not need, rights of root too, does all that others do |
//! | `encrypted` | TLS: what other programs say of it, certificates that change under load, files that are wrong |
//!
//! `child` starts and ends servers, reads their counters, and has clients that do everything right. Times are
//! printed and never judged. The tests take turns, for each of them wants the machine.
#![expect(clippy::print_stdout, reason = "figures, and drivers that are skipped, are shown")]

mod child;
mod connections;
mod daemon;
mod encrypted;
mod http2;
mod idle;
mod sandbox;
mod soak;
