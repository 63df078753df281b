//! Ways in which a worker waits for an event source that it shares with others.
//!
//! Which system calls each one makes is said in `waiting`.

use pollux_engine::Driver;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, VariantNames};

use crate::arm::{Peer, missing_driver};

/// A way of waiting.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Debug,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    VariantNames,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub(super) enum Wait {
    /// An epoll instance for each worker, EPOLLEXCLUSIVE.
    Exclusive,
    /// An epoll instance for each worker, level-triggered: what the published servers did before.
    Epoll,
    /// The same, edge-triggered.
    Edge,
    /// One level-triggered epoll instance for all workers.
    Shared,
    /// No poller: a receive, accept or read that blocks.
    Block,
    /// An exclusive poll request of io_uring, with a ring for each worker.
    Uring,
}

impl Wait {
    /// Name of the arm, and in job files.
    pub(super) const fn name(self) -> &'static str {
        <Self as VariantNames>::VARIANTS[self as usize]
    }

    /// As an arm.
    pub(super) const fn way(self) -> Peer {
        match self {
            Self::Uring => {
                Peer { name: self.name(), missing: || missing_driver(Driver::Completion) }
            }
            _ => Peer::of_pollux(self.name()),
        }
    }
}
