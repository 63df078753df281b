//! The conformance suite of the pollers, through the epoll interface: the same scripts and the same
//! table of differences, but for those that the interface mends.
//!
//! Left out are the groups that ask for counters (counters, wakes, reuse) and for much memory (scale).

#[path = "../../../poller/tests/conformance/batch.rs"]
mod batch;
#[path = "../../../poller/tests/conformance/errno.rs"]
mod errno;
#[path = "../../../poller/tests/conformance/fairness.rs"]
mod fairness;
#[path = "../../../poller/tests/conformance/hangup.rs"]
mod hangup;
mod interface;
#[path = "../../../poller/tests/conformance/nesting.rs"]
mod nesting;
#[path = "../../../poller/tests/conformance/network.rs"]
mod network;
#[path = "../../../poller/tests/suite/mod.rs"]
#[expect(dead_code, reason = "the verbs of the other test binaries stand there too")]
mod suite;
#[path = "../../../poller/tests/conformance/timeouts.rs"]
mod timeouts;
#[path = "../../../poller/tests/conformance/triggers.rs"]
mod triggers;

use std::process::ExitCode;

use pollux_poller::{Backend, Error, Mechanism, Poller};

use suite::isolation::Isolation;
use suite::{Deviation, Group, runner};

const GROUPS: &[Group] = &[
    Group { name: "errno", cases: errno::CASES },
    Group { name: "triggers", cases: triggers::CASES },
    Group { name: "hangup", cases: hangup::CASES },
    Group { name: "network", cases: network::CASES },
    Group { name: "fairness", cases: fairness::CASES },
    Group { name: "timeouts", cases: timeouts::CASES },
    Group { name: "batch", cases: batch::CASES },
    Group { name: "nesting", cases: nesting::CASES },
];

fn main() -> ExitCode {
    runner::main(&runner::Suite {
        title: "through the epoll interface",
        groups: GROUPS,
        checks: &[],
        isolation: Isolation::Thread,
        backends: &[Backend::Select, Backend::Poll, Backend::Aio, Backend::Epoll, Backend::Uring],
        mended: &[Deviation::AcceptsFiles, Deviation::ErrorLater, Deviation::Replaces],
    })
}

/// The poller that the scripts run on.
fn open(mechanism: Mechanism) -> Result<Box<dyn Poller>, Error> {
    Ok(Box::new(interface::Interface::open(mechanism)?))
}
