//! Conformance cases that change the process they run in: signals, fork, limits, descriptor
//! numbers. Each is a test of its own, and runs in a process of its own, which is this binary started again.
#![deny(unsafe_code)]

mod descriptors;
mod fork;
mod signals;
#[path = "../suite/mod.rs"]
#[expect(dead_code, reason = "the verbs of the other test binary stand there too")]
mod suite;

use std::process::ExitCode;

use pollux_poller::{Error, Mechanism, Poller};

use suite::runner::{self, Check, Isolation, Suite};
use suite::{Group, differences};

const GROUPS: &[Group] = &[
    Group { name: "process::signals", cases: signals::CASES },
    Group { name: "process::fork", cases: fork::CASES },
    Group { name: "process::descriptors", cases: descriptors::CASES },
];

fn main() -> ExitCode {
    let suite = Suite {
        name: None,
        groups: GROUPS,
        backends: &runner::BACKENDS,
        isolation: Isolation::Process(|_, _| ()),
        mended: &[],
        judged_as: None,
    };
    let check: Check = ("differences::are_of_known_cases", || differences::check_names(GROUPS));
    runner::main(&[suite], &[check])
}

/// The poller that the scripts run on.
fn open(mechanism: Mechanism) -> Result<Box<dyn Poller>, Error> {
    mechanism.open()
}
