//! `pollux serve` as a process of its own under hostile and under heavy load.
//!
//! | file | what it holds the server to |
//! |---|---|
//! | `soak` | random clients leave nothing behind, and hurt nobody beside them |
//! | `storm` | ten thousand connects at once starve no live connection |
//! | `idle` | an idle connection costs few bytes |
//! | `daemon` | reloads, the manager, the id file, sockets of before, rights that are given up |
//! | `sandbox` | a server that gave up what it does not need does all that others do |
//! | `descriptors` | connections that wait leave descriptors to those that ask |
//! | `calls` | system calls of a connection and of a request |
//! | `check` | `--check` |
//! | `full_disk` | a log on a full disk costs lines that are counted, and no answer |
//! | `certificates` | files that are not a certificate and its key, at a start and at a reload |
//! | `encrypted` | TLS: what other programs say of it, and a certificate that changes under load |
//!
//! `child` starts and ends servers, `metrics` reads their counters, `wire` is a client that is
//! right, `chaos` one that is not. Times are printed and never judged. The tests take turns, for
//! each of them wants the machine.
#![expect(clippy::print_stdout, reason = "figures, and drivers that are skipped, are shown")]

mod calls;
mod certificates;
mod chaos;
mod check;
mod child;
mod closed_loop;
mod daemon;
mod descriptors;
mod encrypted;
mod full_disk;
mod idle;
mod metrics;
mod random;
mod rights;
mod sandbox;
mod soak;
mod storm;
mod wire;
