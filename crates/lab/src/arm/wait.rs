//! Ways in which a worker waits for an event source that it shares with others.
//!
//! The arms of `herd`. Which system calls each one makes is said in `herd::waiting`.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, VariantArray, VariantNames};

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
    VariantArray,
    VariantNames,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Wait {
    /// An epoll instance for each worker, EPOLLEXCLUSIVE.
    Exclusive,
    /// An epoll instance for each worker, level-triggered: what the seed's servers did before.
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
    /// Every way, in the order of lists.
    pub const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;

    /// Name of the arm, and in job files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        <Self as VariantNames>::VARIANTS[self as usize]
    }
}
