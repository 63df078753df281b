//! Conformance cases that change the process they run in: signals, fork, limits, descriptor
//! numbers. Each is a test of its own, and runs in a process of its own, which is this binary started again.
#![deny(unsafe_code)]

mod descriptors;
mod fork;
mod signals;

use std::process::ExitCode;

use pollux_conformance::runner::{self, Check, Isolation, Suite};
use pollux_conformance::{Group, differences};

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
        open: |mechanism| mechanism.open(),
        isolation: Isolation::Process(|_, _| ()),
        mended: &[],
        judged_as: None,
    };
    let check: Check = ("differences::are_of_known_cases", || differences::check_names(GROUPS));
    runner::main(&[suite], &[check])
}
