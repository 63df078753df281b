//! Sessions on every loop: the same bytes whatever drives them.
//!
//! A driver that this machine forbids is skipped with the reason; with `POLLUX_FORBID_SKIP` set
//! that is a failure.
#![expect(clippy::print_stdout, reason = "a seed is named")]

mod bytes;
mod commands;
mod connecting;
mod ends;
mod failures;
mod groups;
mod handles;
mod lines;
mod many_peers;
mod peer;
mod puppet;
mod random;
mod sources;
mod stalls;
mod takeover;
mod takers;
