//! The ways in which the instance of a script is used, each in a process of its own.

use std::process::{Command, ExitCode};

use pollux_poller::Backend;

use crate::groups::GROUPS;
use crate::suite::isolation::{CHILD, Isolation};
use crate::suite::{Deviation, runner};

/// How the instance of a script is used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// By the thread that made it.
    Alone,
    /// By two threads: one changes it, the other one waits.
    Threads,
    /// By a child of the process that made it.
    Child,
    /// By the program that the one which made it became.
    Program,
}

impl Way {
    pub(crate) const ALL: [Self; 4] = [Self::Alone, Self::Threads, Self::Child, Self::Program];
    /// Names the one way of this process.
    const VARIABLE: &str = "POLLUX_TEST_WAY";

    const fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Threads => "threads",
            Self::Child => "child",
            Self::Program => "program",
        }
    }

    /// That of this process, if it was said.
    pub(crate) fn of_this_process() -> Option<Self> {
        let name = std::env::var_os(Self::VARIABLE)?;
        let way = Self::ALL.into_iter().find(|way| *way.name() == *name);
        Some(way.expect("alone, threads, child or program"))
    }

    /// What it is called behind the name of the functions.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Alone => "by one thread",
            Self::Threads => "changed by one thread, waited on by another",
            Self::Child => "by a child",
            Self::Program => "by another program",
        }
    }

    /// This binary once more, with the same arguments, for this way.
    pub(crate) fn process(self) -> Command {
        let mut again = Command::new(std::env::current_exe().expect("the own path"));
        again.args(std::env::args_os().skip(1)).env(Self::VARIABLE, self.name());
        again
    }

    /// Runs the suite in this way.
    pub(crate) fn run(self, title: &'static str, backends: &'static [Backend]) -> ExitCode {
        let in_threads = matches!(self, Self::Alone | Self::Threads);
        runner::main(&runner::Suite {
            title,
            groups: GROUPS,
            checks: &[],
            isolation: if in_threads { Isolation::Thread } else { Isolation::Process },
            backends,
            mended: &[Deviation::AcceptsFiles, Deviation::ErrorLater, Deviation::Replaces],
            // Behind execve(2) it is an epoll of the kernel's.
            judged_as: (self == Self::Program).then_some(Backend::Epoll),
        })
    }
}

/// Whether this process was started for one script.
pub(crate) fn is_of_one_script() -> bool {
    std::env::args().nth(1).is_some_and(|first| first == CHILD)
}
