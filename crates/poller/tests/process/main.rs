//! Conformance cases that change the process they run in: signals, fork, limits, descriptor
//! numbers. Each runs in a process of its own, which is this binary started again.
//!
//! `cargo test -p pollux-poller --test process -- [FILTER]... [--list]`.
#![deny(unsafe_code)]

mod fork;
mod limits;
mod numbers;
mod signals;
#[path = "../suite/mod.rs"]
#[expect(dead_code, reason = "the verbs of the other test binary stand there too")]
mod suite;

use std::process::ExitCode;

use pollux_poller::{Error, Mechanism, Poller};

use suite::isolation::Isolation;
use suite::{Group, runner};

const GROUPS: &[Group] = &[
    Group { name: "process/signals", cases: signals::CASES },
    Group { name: "process/fork", cases: fork::CASES },
    Group { name: "process/limits", cases: limits::CASES },
    Group { name: "process/numbers", cases: numbers::CASES },
];

fn main() -> ExitCode {
    runner::main(&runner::Suite {
        title: "process",
        groups: GROUPS,
        checks: &[],
        isolation: Isolation::Process,
        backends: &runner::BACKENDS,
        mended: &[],
        judged_as: None,
    })
}

/// The poller that the scripts run on.
fn open(mechanism: Mechanism) -> Result<Box<dyn Poller>, Error> {
    mechanism.open()
}
