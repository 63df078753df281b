//! Ways in which a worker waits for an event source that it shares with others.
//!
//! The arms of `herd`. Which system calls each one makes is said in `herd::waiting`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A way of waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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
    pub const ALL: [Self; 6] =
        [Self::Exclusive, Self::Epoll, Self::Edge, Self::Shared, Self::Block, Self::Uring];

    /// Name of the arm, and in job files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Epoll => "epoll",
            Self::Edge => "edge",
            Self::Shared => "shared",
            Self::Block => "block",
            Self::Uring => "uring",
        }
    }

    /// The way called `name`.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|wait| wait.name() == name)
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_finds_its_way() {
        for wait in Wait::ALL {
            assert_eq!(Wait::by_name(wait.name()), Some(wait));
        }
        assert_eq!(Wait::by_name("poll"), None);
    }
}
