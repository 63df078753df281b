//! Whole systems that stand beside what an experiment varies: baseline servers, other servers, libraries, and the
//! service pool.
//!
//! An experiment lists its own in `Experiment::peers` and knows how to start them. One that this
//! machine lacks is left out of the plan, with the package to install.

use std::fmt;

use pollux_engine::Driver;
use pollux_poller::Mechanism;

use crate::host::programs;

/// A system to compare with.
#[derive(Clone, Copy)]
pub struct Peer {
    /// Name of the arm, and in job files.
    pub name: &'static str,
    /// Why this machine can't run it, if so: with the remedy where one is known.
    pub missing: fn() -> Option<String>,
}

/// Bare edge- or level-triggered epoll: a baseline server of the lab.
pub const RAW_EPOLL: Peer = Peer::of_pollux("raw-epoll");
/// Bare io_uring by completion: a baseline server of the lab.
pub const RAW_URING: Peer =
    Peer { name: "raw-uring", missing: || missing_driver(Driver::Completion) };
/// The same as the experiment in C, on bare system calls: a baseline server of the lab.
pub const RAW_C: Peer = Peer { name: "raw-c", missing: || programs::missing("cc", "gcc") };

impl Peer {
    /// What is part of this program.
    pub(crate) const fn of_pollux(name: &'static str) -> Self {
        Self { name, missing: || None }
    }
}

impl PartialEq for Peer {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Peer {}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Why a driver can't be opened here, if so.
pub(crate) fn missing_driver(driver: Driver) -> Option<String> {
    let mechanism = match driver {
        Driver::Readiness(mechanism) => mechanism,
        // The same ring, and the same rights.
        Driver::Completion => Mechanism::UringPoll,
    };
    mechanism.open().err().map(|error| error.to_string())
}
