//! The conformance suite: every case on every backend, against one table of differences.
//!
//! `cargo test -p pollux-poller --test conformance -- [FILTER]... [--list]`. What needs a process
//! of its own (signals, fork, limits, descriptor numbers) is in `tests/process`.
#![forbid(unsafe_code)]

mod batch;
mod counters;
mod errno;
mod fairness;
mod hangup;
mod nesting;
mod network;
mod reuse;
mod scale;
#[path = "../suite/mod.rs"]
#[expect(dead_code, reason = "the verbs of the other test binary stand there too")]
mod suite;
mod timeouts;
mod triggers;
mod wakes;

use std::process::ExitCode;

use pollux_poller::{Error, Mechanism, Poller};

use suite::isolation::Isolation;
use suite::{Group, document, runner};

const GROUPS: &[Group] = &[
    Group { name: "errno", cases: errno::CASES },
    Group { name: "triggers", cases: triggers::CASES },
    Group { name: "hangup", cases: hangup::CASES },
    Group { name: "network", cases: network::CASES },
    Group { name: "reuse", cases: reuse::CASES },
    Group { name: "fairness", cases: fairness::CASES },
    Group { name: "timeouts", cases: timeouts::CASES },
    Group { name: "wakes", cases: wakes::CASES },
    Group { name: "batch", cases: batch::CASES },
    Group { name: "counters", cases: counters::CASES },
    Group { name: "nesting", cases: nesting::CASES },
    Group { name: "scale", cases: scale::CASES },
];

fn main() -> ExitCode {
    runner::main(&runner::Suite {
        title: "conformance",
        groups: GROUPS,
        checks: &[("docs/poller-differences.md", document::check)],
        isolation: Isolation::Thread,
        backends: &runner::BACKENDS,
        mended: &[],
        judged_as: None,
    })
}

/// The poller that the scripts run on.
fn open(mechanism: Mechanism) -> Result<Box<dyn Poller>, Error> {
    mechanism.open()
}
