//! The conformance suite of the pollers, through the epoll interface: the same scripts and the same
//! table of differences, but for those that the interface mends.
//!
//! It runs in each of three ways ([`Way`]), in a process of its own each: `POLLUX_TEST_WAY=alone` runs one.
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

use std::process::{Command, ExitCode};

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

/// How the instance of a script is used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// By the thread that made it.
    Alone,
    /// By two threads: one changes it, the other one waits.
    Threads,
    /// By a child of the process that made it.
    Child,
}

impl Way {
    const ALL: [Self; 3] = [Self::Alone, Self::Threads, Self::Child];
    /// Names the one way of this process.
    const VARIABLE: &str = "POLLUX_TEST_WAY";

    const fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Threads => "threads",
            Self::Child => "child",
        }
    }

    /// That of this process, if it was said.
    fn of_this_process() -> Option<Self> {
        let name = std::env::var_os(Self::VARIABLE)?;
        let way = Self::ALL.into_iter().find(|way| *way.name() == *name);
        Some(way.expect("alone, threads or child"))
    }

    fn title(self) -> &'static str {
        match self {
            Self::Alone => "through the epoll interface",
            Self::Threads => {
                "through the epoll interface, changed by one thread, waited on by another"
            }
            Self::Child => "through the epoll interface, by a child",
        }
    }

    fn run(self) -> ExitCode {
        let alone = self != Self::Child;
        runner::main(&runner::Suite {
            title: self.title(),
            groups: GROUPS,
            checks: &[],
            isolation: if alone { Isolation::Thread } else { Isolation::Process },
            backends: &[
                Backend::Select,
                Backend::Poll,
                Backend::Aio,
                Backend::Epoll,
                Backend::Uring,
            ],
            mended: &[Deviation::AcceptsFiles, Deviation::ErrorLater, Deviation::Replaces],
        })
    }
}

fn main() -> ExitCode {
    if let Some(way) = Way::of_this_process() {
        return way.run();
    }
    let program = std::env::current_exe().expect("the own path");
    let has_passed = |way: &Way| {
        let mut again = Command::new(&program);
        again.args(std::env::args_os().skip(1)).env(Way::VARIABLE, way.name());
        again.status().expect("it starts").success()
    };
    // All of them, also behind one that failed.
    let failed = Way::ALL.iter().filter(|way| !has_passed(way)).count();
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The poller that the scripts run on.
fn open(mechanism: Mechanism) -> Result<Box<dyn Poller>, Error> {
    let way = Way::of_this_process().expect("said by the first process");
    Ok(Box::new(interface::Interface::open(mechanism, way)?))
}
