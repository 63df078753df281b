//! `pollux serve` as a process of its own under hostile and under heavy load.
//!
//! | file | what it holds the server to |
//! |---|---|
//! | `soak` | random clients leave nothing behind, and harm no other client |
//! | `storm` | ten thousand connects at once starve no live connection |
//! | `daemon` | reloads, the manager, the id file, sockets that were opened before |
//! | `sandbox` | a server that gave up what it does not need, rights of root too, does all that others do |
//! | `calls` | system calls, descriptors and bytes that connections cost |
//! | `reports` | `--check`; a log on a full disk costs lines that are counted, and no answer |
//! | `encrypted` | TLS: what other programs say of it, certificates that change under load, files that are wrong |
//!
//! `child` starts and ends servers, reads their counters, and has a client that does everything right. Times are
//! printed and never judged. The tests take turns, for each of them wants the machine.
#![expect(clippy::print_stdout, reason = "figures, and drivers that are skipped, are shown")]

mod calls;
mod child;
mod daemon;
mod encrypted;
mod reports;
mod sandbox;
mod soak;
mod storm;
