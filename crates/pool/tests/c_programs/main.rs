//! C programs on a running pool: the bank of seed 4 as it is, the bank example, and small scenarios
//! for each kind of call.
//!
//! Programs are built by `pollux pool build-server` and `build-client`, or by the seed's own link
//! line; pools have prefixes of their own. Without a C compiler or without the seed's document
//! tests are skipped with the reason, which `POLLUX_FORBID_SKIP` forbids.

mod access;
mod building;
mod scenarios;
mod workshop;
