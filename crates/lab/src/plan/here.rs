//! What this machine has of what a plan asks for; the code that prints or runs a plan passes it on.

use super::Wanted;
use crate::arm::missing_driver;
use crate::experiments::missing_generator;

/// Why this machine can't give what is wanted, if it can't: each reason names the remedy where
/// one is known.
#[must_use]
pub fn missing_here(wanted: Wanted) -> Option<String> {
    match wanted {
        Wanted::Generator(generator) => missing_generator(generator),
        Wanted::Driver(driver) => missing_driver(driver),
        Wanted::Peer(peer) => (peer.missing)(),
    }
}
