//! Whole systems that stand beside what an experiment varies: floors, servers, libraries, and the
//! service pool.
//!
//! Which experiment has which is said in `Experiment::peers`; how one is started is said where the
//! experiment is. A peer that this machine lacks is left out of the plan with the package to
//! install.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A system to compare with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Peer {
    /// Bare edge- or level-triggered epoll: the lab's own floor.
    RawEpoll,
    /// Bare io_uring by completion: the lab's own floor.
    RawUring,
    /// Bare message queues with EPOLLEXCLUSIVE in C, callers and workers: the lab's own floor.
    RawC,
    /// The server nginx.
    Nginx,
    /// The proxy HAProxy, answering by itself.
    Haproxy,
    /// The server H2O.
    H2o,
    /// The server lighttpd.
    Lighttpd,
    /// The library libev.
    Libev,
    /// The library libuv.
    Libuv,
    /// The library libevent.
    Libevent,
    /// The Rust library mio.
    Mio,
    /// The Rust library polling.
    Polling,
    /// The service pool of pollux, whose workers wait with EPOLLEXCLUSIVE.
    Pool,
    /// The same by one switch with plain epoll.
    PoolEpoll,
}

impl Peer {
    /// Every peer, in the order of lists.
    pub const ALL: [Self; 14] = [
        Self::RawEpoll,
        Self::RawUring,
        Self::RawC,
        Self::Nginx,
        Self::Haproxy,
        Self::H2o,
        Self::Lighttpd,
        Self::Libev,
        Self::Libuv,
        Self::Libevent,
        Self::Mio,
        Self::Polling,
        Self::Pool,
        Self::PoolEpoll,
    ];

    /// Name of the arm, and in job files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RawEpoll => "raw-epoll",
            Self::RawUring => "raw-uring",
            Self::RawC => "raw-c",
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::H2o => "h2o",
            Self::Lighttpd => "lighttpd",
            Self::Libev => "libev",
            Self::Libuv => "libuv",
            Self::Libevent => "libevent",
            Self::Mio => "mio",
            Self::Polling => "polling",
            Self::Pool => "pool",
            Self::PoolEpoll => "pool-epoll",
        }
    }

    /// The peer called `name`.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|peer| peer.name() == name)
    }

    /// Whether it is a floor of the lab: bare system calls, no system of its own.
    #[must_use]
    pub const fn is_floor(self) -> bool {
        matches!(self, Self::RawEpoll | Self::RawUring | Self::RawC)
    }

    /// The Debian package that brings it; none for what is part of this program.
    #[must_use]
    pub const fn package(self) -> Option<&'static str> {
        match self {
            Self::Nginx | Self::Haproxy | Self::H2o | Self::Lighttpd => Some(self.name()),
            Self::Libev => Some("libev-dev"),
            Self::Libuv => Some("libuv1-dev"),
            Self::Libevent => Some("libevent-dev"),
            Self::RawEpoll | Self::RawUring | Self::RawC => None,
            Self::Mio | Self::Polling | Self::Pool | Self::PoolEpoll => None,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_finds_its_peer_and_none_is_a_driver() {
        for peer in Peer::ALL {
            assert_eq!(Peer::by_name(peer.name()), Some(peer));
            assert!(peer.name().parse::<pollux_engine::Driver>().is_err(), "{peer}");
        }
    }
}
