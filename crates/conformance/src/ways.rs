//! The ways in which the instance of a script is used, each in a process of its own.

use std::process::Command;

use pollux_poller::Backend;

use crate::rig::Open;
use crate::runner::{Isolation, Suite, name_of_child};
use crate::{Deviation, OF_INTERFACES};

/// How the instance of a script is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
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
    /// Every way.
    pub const ALL: [Self; 4] = [Self::Alone, Self::Threads, Self::Child, Self::Program];

    const fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Threads => "threads",
            Self::Child => "child",
            Self::Program => "program",
        }
    }

    /// That of this process, which was started for one script.
    ///
    /// # Panics
    /// In the process that starts the others.
    pub fn of_this_process() -> Self {
        let name = name_of_child().expect("started for one script");
        let way = Self::ALL.into_iter().find(|way| name.split("::").nth(1) == Some(way.name()));
        way.expect("alone, threads, child or program")
    }

    /// The suite in this way, on what `open` opens; `prepare` adds what the process of a script needs.
    pub fn suite(self, open: Open, prepare: fn(&mut Command, Backend)) -> Suite {
        Suite {
            name: Some(self.name()),
            groups: OF_INTERFACES,
            backends: &[
                Backend::Select,
                Backend::Poll,
                Backend::Aio,
                Backend::Epoll,
                Backend::Uring,
            ],
            open,
            isolation: Isolation::Process(prepare),
            mended: &[Deviation::AcceptsFiles, Deviation::ErrorLater, Deviation::Replaces],
            // Behind execve(2) it is an epoll of the kernel's.
            judged_as: (self == Self::Program).then_some(Backend::Epoll),
        }
    }
}
