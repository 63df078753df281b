//! What can be compared: an arm, as it is from the command line to the process that runs it.
//!
//! Job files and flags are read into [`Arm`]s once (`job::arm_specs`); the plan, the runner and the child
//! that runs one pass the same type on.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use pollux_engine::Driver;
use pollux_host as host;
use pollux_poller::Mechanism;
use serde::{Deserialize, Serialize};

use crate::form::{self, Form};

/// Something that is compared with others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    /// Its name in results and charts.
    pub name: String,
    pub kind: ArmKind,
}

/// What an arm runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArmKind {
    /// Pollux on a driver: this program.
    Driver(#[serde(with = "by_name")] Driver),
    /// The same with cyclic writes instead of random ones; `streams` has it for `no_poller`.
    Cyclic(#[serde(with = "by_name")] Driver),
    /// Blocking reads and cyclic writes without a poller, likewise.
    WithoutPoller,
    /// Another build of pollux.
    Build(Build),
    /// The way of this name, by which an experiment works in place of a driver.
    Way(String),
    /// The baseline server or other system of this name, which the experiment knows how to run.
    Peer(String),
    /// A bare server in this form of io_uring or epoll.
    Form(#[serde(with = "form::by_name")] Form),
    /// A server that the lab starts by this command line; `{port}` and `{address}` in it stand for
    /// where it has to listen. It is split like a POSIX shell splits words; no shell runs it.
    Server {
        /// The command line.
        command: String,
    },
    /// A server that runs already.
    Running {
        /// The process whose CPU time, with that of its descendants, counts.
        pid: u32,
        /// Where it listens.
        address: SocketAddr,
    },
    /// A program that runs from start to end and prints its own figure.
    Program(Program),
}

/// A build of pollux, to be compared with another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// The `pollux` binary.
    pub program: PathBuf,
    /// What it runs on.
    #[serde(with = "by_name")]
    pub driver: Driver,
}

/// A program that prints its own figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Command line, split like a POSIX shell splits words; no shell runs it. `{pipes}` and the like
    /// stand for the point's value of that axis.
    pub command: String,
    /// Regular expression whose first group is the figure, searched in standard output and
    /// standard error; the last match counts.
    pub pattern: String,
}

impl Arm {
    /// Pollux on a driver.
    #[must_use]
    pub fn driver(driver: Driver) -> Self {
        Self { name: driver.name().to_owned(), kind: ArmKind::Driver(driver) }
    }

    /// A way of the experiment's own.
    #[must_use]
    pub fn way(way: Peer) -> Self {
        Self { name: way.name.to_owned(), kind: ArmKind::Way(way.name.to_owned()) }
    }

    /// A bare server in a form.
    #[must_use]
    pub fn form(form: Form) -> Self {
        Self { name: form.to_string(), kind: ArmKind::Form(form) }
    }

    /// A baseline server or another system.
    #[must_use]
    pub fn peer(peer: Peer) -> Self {
        Self { name: peer.name.to_owned(), kind: ArmKind::Peer(peer.name.to_owned()) }
    }
}

impl ArmKind {
    /// The driver of pollux, where it is pollux on one.
    #[must_use]
    pub const fn driver(&self) -> Option<Driver> {
        match self {
            Self::Driver(driver) | Self::Cyclic(driver) => Some(*driver),
            Self::Build(build) => Some(build.driver),
            _ => None,
        }
    }

    /// Name of the way, where it is one.
    #[must_use]
    pub fn way(&self) -> Option<&str> {
        match self {
            Self::Way(name) => Some(name),
            _ => None,
        }
    }

    /// Name of the baseline server or other system, where it is one that the lab knows.
    #[must_use]
    pub fn peer(&self) -> Option<&str> {
        match self {
            Self::Peer(name) => Some(name),
            _ => None,
        }
    }

    /// The form of a bare server, where it is one.
    #[must_use]
    pub const fn form(&self) -> Option<Form> {
        match self {
            Self::Form(form) => Some(*form),
            _ => None,
        }
    }

    /// Whether it is this one.
    #[must_use]
    pub fn is(&self, peer: Peer) -> bool {
        self.peer() == Some(peer.name)
    }

    /// The other build of pollux, where it is one.
    #[must_use]
    pub const fn build(&self) -> Option<&Build> {
        match self {
            Self::Build(build) => Some(build),
            _ => None,
        }
    }

    /// Whether it is a program that runs from start to end by itself: nothing can be counted in it.
    pub(crate) const fn is_program(&self) -> bool {
        matches!(self, Self::Program(_))
    }

    /// Whether a user brought it: a server or a program.
    pub(crate) const fn is_of_user(&self) -> bool {
        matches!(self, Self::Server { .. } | Self::Running { .. } | Self::Program(_))
    }

    /// Whether it is neither pollux nor a way of it: a baseline server, another system, a program.
    #[must_use]
    pub const fn is_other(&self) -> bool {
        matches!(self, Self::Peer(_) | Self::Form(_)) || self.is_of_user()
    }
}

/// A driver by its name.
mod by_name {
    use pollux_engine::Driver;
    use serde::{Deserialize as _, Deserializer, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over references")]
    pub(super) fn serialize<S: Serializer>(driver: &Driver, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(driver.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Driver, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A system to compare with, beside what an experiment varies: a baseline server, another server, a library, the
/// service pool. An experiment lists its own in `Experiment::peers` and knows how to start them. One that this
/// machine lacks is left out of the plan, with the package to install.
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
pub const RAW_C: Peer = Peer { name: "raw-c", missing: || host::missing_program("cc", "gcc") };

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arm_reads_back_and_is_written_by_the_names_of_job_files() {
        let build = Build { program: "old/pollux".into(), driver: Driver::Completion };
        let program = Program { command: "bench".to_owned(), pattern: "(.)".to_owned() };
        let address = "127.0.0.1:80".parse().expect("an address");
        let kinds = [
            ArmKind::WithoutPoller,
            ArmKind::Build(build),
            ArmKind::Server { command: "mine {port}".to_owned() },
            ArmKind::Running { pid: 1, address },
            ArmKind::Program(program),
        ];
        let named = Driver::ALL.map(|each| (Arm::driver(each).kind, each.name()));
        let ways = [RAW_C].map(|each| (Arm::way(each).kind, each.name));
        let peers = [RAW_EPOLL, RAW_URING, RAW_C].map(|each| (Arm::peer(each).kind, each.name));
        let forms = form::tests::SOME.map(|name| (Arm::form(name.parse().expect(name)).kind, name));
        let named = named.into_iter().chain(ways).chain(peers).chain(forms);
        for (kind, name) in named.chain(kinds.map(|kind| (kind, ""))) {
            let text = serde_json::to_string(&kind).expect("plain data");
            assert!(name.is_empty() || text.ends_with(&format!(":\"{name}\"}}")), "{text}");
            assert_eq!(serde_json::from_str::<ArmKind>(&text).expect(&text), kind);
        }
    }
}
