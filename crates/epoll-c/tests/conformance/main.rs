//! The conformance suite of the pollers, through the epoll interface: the same scripts and the same
//! table of differences, but for those that the interface mends.
//!
//! Each script runs in each of four ways ([`Way`]), in a process of its own, as a test such as
//! `select::alone::errno::a_regular_file_is_eperm`.

#[path = "../deviations/calls.rs"]
#[expect(dead_code, reason = "scripts of another kind use the others")]
mod calls;
mod interface;

use std::process::ExitCode;

use pollux_conformance::runner::{self, Way};
use pollux_poller::{Error, Mechanism, Poller};

fn main() -> ExitCode {
    runner::main(&Way::ALL.map(|way| way.suite(open, |_, _| ())), &[])
}

/// The poller that the scripts run on.
fn open(mechanism: Mechanism) -> Result<Box<dyn Poller>, Error> {
    Ok(Box::new(interface::Interface::open(mechanism, Way::of_this_process())?))
}
