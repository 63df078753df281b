//! The conformance suite: every case on every backend, against one table of differences.
//!
//! Each is a test of its own, such as `epoll::triggers::edge_reports_once`: `cargo test -p pollux-poller --test
//! conformance epoll::`. The cases are those of `crates/conformance`, and here those that change the process they run
//! in (signals, fork, limits, descriptor numbers): each of these runs in a process of its own, which is this binary
//! started again.
#![deny(unsafe_code)]

mod descriptors;
mod fork;
mod signals;

use std::process::ExitCode;

use pollux_conformance::runner::{self, Check, Isolation, Suite};
use pollux_conformance::{Group, OF_INTERFACES, OF_NUMBERS, OF_POLLERS, differences};

const OF_PROCESSES: &[Group] = &[
    Group { name: "process::signals", cases: signals::CASES },
    Group { name: "process::fork", cases: fork::CASES },
    Group { name: "process::descriptors", cases: descriptors::CASES },
];

fn main() -> ExitCode {
    let suite = |groups, isolation| Suite {
        name: None,
        groups,
        backends: &runner::BACKENDS,
        open: |mechanism| mechanism.open(),
        isolation,
        mended: &[],
        judged_as: None,
        left_out: &[],
    };
    let suites = [
        suite(OF_INTERFACES, Isolation::Thread),
        suite(OF_POLLERS, Isolation::Thread),
        suite(OF_NUMBERS, Isolation::Process(|_, _| ())),
        suite(OF_PROCESSES, Isolation::Process(|_, _| ())),
    ];
    let checks: [Check; 2] = [
        ("differences::are_of_known_cases", || {
            differences::check_names(
                &[OF_INTERFACES, OF_POLLERS, OF_NUMBERS, OF_PROCESSES].concat(),
            );
        }),
        ("differences::stand_in_the_page_in_docs", differences::check_page),
    ];
    runner::main(&suites, &checks)
}
