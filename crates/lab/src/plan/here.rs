//! What this machine has of what a plan asks for; whoever prints or runs a plan passes it on.

use pollux_engine::Driver;
use pollux_poller::Mechanism;

use super::Wanted;
use crate::arm::{Peer, Wait};
use crate::experiments::{missing_generator, missing_library};
use crate::host::programs;

/// Why this machine can't give what is wanted, if it can't: each reason names the remedy where
/// one is known.
#[must_use]
pub fn missing_here(wanted: Wanted) -> Option<String> {
    match wanted {
        Wanted::Generator(generator) => missing_generator(generator),
        Wanted::Driver(driver) => refused(driver),
        Wanted::Wait(Wait::Uring) => refused(Driver::Completion),
        Wanted::Wait(_) => None,
        Wanted::Peer(peer) => missing_peer(peer),
    }
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
        Peer::RawEpoll | Peer::Mio | Peer::Polling => None,
        Peer::EpollPlain | Peer::Pool | Peer::PoolEpoll => None,
        Peer::RawC => programs::missing("cc", "gcc"),
        Peer::RawUring => refused(Driver::Completion),
        Peer::Nginx | Peer::Haproxy | Peer::H2o | Peer::Lighttpd => {
            programs::missing(peer.name(), peer.package().unwrap_or_default())
        }
        Peer::Libev | Peer::Libuv | Peer::Libevent => missing_library(peer),
    }
}
