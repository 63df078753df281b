//! The conformance suite: every case on every backend, against one table of differences.
//!
//! Each is a test of its own, such as `epoll::triggers::edge_reports_once`: `cargo test -p pollux-poller --test
//! conformance epoll::`. What needs a process of its own (signals, fork, limits, descriptor numbers) is in
//! `tests/process`.
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

use suite::runner::{self, Check, Isolation, Suite};
use suite::{Group, differences};

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
    let suite = Suite {
        name: None,
        groups: GROUPS,
        backends: &runner::BACKENDS,
        isolation: Isolation::Thread,
        mended: &[],
        judged_as: None,
    };
    let checks: [Check; 2] = [
        ("differences::are_of_known_cases", || differences::check_names(GROUPS)),
        ("differences::stand_in_the_page_in_docs", differences::check_page),
    ];
    runner::main(&[suite], &checks)
}

/// The poller that the scripts run on.
fn open(mechanism: Mechanism) -> Result<Box<dyn Poller>, Error> {
    mechanism.open()
}
