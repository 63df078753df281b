//! Sessions on every loop: the same bytes whatever drives them.
//!
//! A driver that this machine forbids is skipped with the reason; with `POLLUX_FORBID_SKIP` set
//! that is a failure.
#![expect(clippy::print_stdout, reason = "a seed is named")]

mod bytes;
mod connecting;
mod ends;
mod failures;
mod groups;
mod many_peers;
mod puppet;
mod reading_on;
mod server;
mod sources;
mod stalls;
mod takeover;
mod takers;
