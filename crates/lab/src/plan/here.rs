//! What this machine has of what a plan asks for; whoever prints or runs a plan passes it on.

use pollux_engine::Driver;
use pollux_poller::Mechanism;

use super::{Resources, Wanted};
use crate::arm::{Peer, Wait};
use crate::experiments::chain;
use crate::experiments::http;
use crate::host::{compiler, programs};

/// Why this machine can't give what is wanted, if it can't: each reason names the remedy where
/// one is known.
#[must_use]
pub fn missing_here(wanted: Wanted) -> Option<String> {
    match wanted {
        Wanted::Generator(generator) => http::missing(generator),
        Wanted::Driver(_, driver) => refused(driver),
        Wanted::Wait(Wait::Uring) => refused(Driver::Completion),
        Wanted::Wait(_) => None,
        Wanted::Peer(_, peer) => missing_peer(peer),
    }
}

impl Resources {
    /// Reads what is free here.
    #[must_use]
    pub fn here() -> Self {
        let number = |path: &str| {
            let text = std::fs::read_to_string(path).ok()?;
            text.trim().parse::<u64>().ok()
        };
        let aio_slots = number("/proc/sys/fs/aio-max-nr").zip(number("/proc/sys/fs/aio-nr"));
        Self {
            memory_bytes: memory_available_bytes(),
            aio_slots: aio_slots.map(|(max, used)| max.saturating_sub(used)),
        }
    }
}

/// Memory that programs may still take, by the kernel's estimate.
fn memory_available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Why a driver can't be opened.
fn refused(driver: Driver) -> Option<String> {
    let mechanism = match driver {
        Driver::Readiness(mechanism) => mechanism,
        // The same ring, and the same rights.
        Driver::Completion => Mechanism::UringPoll,
    };
    mechanism.open().err().map(|error| error.to_string())
}

fn missing_peer(peer: Peer) -> Option<String> {
    match peer {
        Peer::RawEpoll | Peer::Mio | Peer::Polling | Peer::Pool | Peer::PoolEpoll => None,
        Peer::RawC => compiler::missing(),
        Peer::RawUring => refused(Driver::Completion),
        Peer::Nginx | Peer::Haproxy | Peer::H2o | Peer::Lighttpd => {
            programs::missing(peer.name(), peer.package().unwrap_or_default())
        }
        Peer::Libev | Peer::Libuv | Peer::Libevent => chain::library::missing(peer),
    }
}
