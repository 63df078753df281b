//! The conformance suite of the pollers, through the epoll interface: the same scripts and the same
//! table of differences, but for those that the interface mends.
//!
//! It runs in each of four ways ([`Way`]), in a process of its own each: `POLLUX_TEST_WAY=alone` runs one.

#[path = "../deviations/calls.rs"]
#[expect(dead_code, reason = "scripts of another kind use the others")]
mod calls;
mod groups;
mod interface;
#[path = "../../../poller/tests/suite/mod.rs"]
#[expect(dead_code, reason = "the verbs of the other test binaries stand there too")]
mod suite;
mod ways;

use std::process::ExitCode;

use pollux_poller::{Backend, Error, Mechanism, Poller};

use ways::Way;

const BACKENDS: &[Backend] =
    &[Backend::Select, Backend::Poll, Backend::Aio, Backend::Epoll, Backend::Uring];

fn main() -> ExitCode {
    if let Some(way) = Way::of_this_process() {
        let title = format!("through the epoll interface, {}", way.title());
        return way.run(title.leak(), BACKENDS);
    }
    let has_passed = |way: &Way| way.process().status().expect("it starts").success();
    // All of them, also behind one that failed.
    let failed = Way::ALL.iter().filter(|way| !has_passed(way)).count();
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The poller that the scripts run on.
fn open(mechanism: Mechanism) -> Result<Box<dyn Poller>, Error> {
    let way = Way::of_this_process().expect("said by the first process");
    Ok(Box::new(interface::Interface::open(mechanism, way)?))
}
