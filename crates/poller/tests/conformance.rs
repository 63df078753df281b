//! The conformance suite: every case on every backend, against one table of differences.
//!
//! Each is a test of its own, such as `epoll::triggers::edge_reports_once`: `cargo test -p pollux-poller --test
//! conformance epoll::`. The cases are those of `crates/conformance`; what needs a process of its own (signals,
//! fork, limits, descriptor numbers) is in `tests/process`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use pollux_conformance::runner::{self, Check, Isolation, Suite};
use pollux_conformance::{OF_INTERFACES, OF_POLLERS, differences};

fn main() -> ExitCode {
    let suites = [OF_INTERFACES, OF_POLLERS].map(|groups| Suite {
        name: None,
        groups,
        backends: &runner::BACKENDS,
        open: |mechanism| mechanism.open(),
        isolation: Isolation::Thread,
        mended: &[],
        judged_as: None,
    });
    let checks: [Check; 2] = [
        ("differences::are_of_known_cases", || {
            differences::check_names(&[OF_INTERFACES, OF_POLLERS].concat());
        }),
        ("differences::stand_in_the_page_in_docs", differences::check_page),
    ];
    runner::main(&suites, &checks)
}
