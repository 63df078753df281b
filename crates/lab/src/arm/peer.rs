//! Whole systems that stand beside what an experiment varies: floors, servers, libraries, and the
//! service pool.
//!
//! Which experiment has which is said in `Experiment::peers`; how one is started is said where the
//! experiment is. A peer that this machine lacks is left out of the plan with the package to
//! install.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, VariantArray, VariantNames};

/// A system to compare with.
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
    /// Pollux itself without the behaviour that a check is about.
    EpollPlain,
    /// The service pool of pollux, whose workers wait with EPOLLEXCLUSIVE.
    Pool,
    /// The same by one switch with plain epoll.
    PoolEpoll,
}

impl Peer {
    /// Every peer, in the order of lists.
    pub const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;

    const NAMES: &[&'static str] = <Self as VariantNames>::VARIANTS;

    /// Name of the arm, and in job files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
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
            Self::Mio | Self::Polling | Self::EpollPlain | Self::Pool | Self::PoolEpoll => None,
        }
    }
}
