//! Workers as processes, with a small stand-in for the manager.
//!
//! Each worker is this binary, started again: [`a_worker_process`] is its main function, and
//! `behaviours.rs` says what it offers.

mod behaviours;
mod caller;
mod calls;
mod deaths;
mod stand_in;
mod wakes;

/// Not a test of its own: the body of the processes that the tests start.
#[test]
fn a_worker_process() {
    if std::env::var_os(pollux_xatmi::worker::LINK_VARIABLE).is_some() {
        std::process::exit(behaviours::run());
    }
}
