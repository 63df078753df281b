//! Sessions on every loop: the same bytes whatever drives them.
//!
//! A driver that this machine forbids is skipped with the reason; with `POLLUX_FORBID_SKIP` set
//! that is a failure.
#![expect(clippy::print_stdout, reason = "a seed is named")]

mod broadcast;
mod bytes;
mod catalogue;
mod connecting;
mod ends;
mod errands;
mod failures;
mod handover;
mod limits;
mod lines;
mod peer;
mod puppet;
mod random;
mod receiving;
mod sharing;
mod sources;
mod stalls;
mod takeover;
mod takers;
mod threads;
