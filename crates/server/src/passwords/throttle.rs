//! How often the passwords of each client are checked: a wrong one is charged, a right one given back. A table of fixed size,
//! which is asked for checks alone, of which there are few in a second.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::time::Duration;

use pollux_engine::Moment;

/// Wrong passwords that a client may try at once.
pub(super) const TRIES_MAX: u64 = 10;
/// After this time it may try one more.
pub(super) const TRY_EACH: Duration = Duration::from_secs(6);
/// Places for clients; and of how many one of them has its own.
const SLOTS: usize = 16_384;
const WAYS: usize = 8;

/// The clients that have tried wrong passwords of late.
pub(super) struct Throttle {
    slots: Box<[Slot]>,
    /// With a key that nobody outside knows.
    hasher: RandomState,
}

#[derive(Clone, Copy)]
struct Slot {
    client: u64,
    /// When it has been forgiven everything.
    clear: Moment,
}

impl Throttle {
    pub(super) fn new() -> Self {
        let slots = vec![Slot { client: 0, clear: Moment::default() }; SLOTS];
        Self { slots: slots.into(), hasher: RandomState::new() }
    }

    /// The place of a client, an address of IPv4 or the /64 of one of IPv6; all that are not known are one.
    pub(super) fn key(&self, client: Option<IpAddr>) -> u64 {
        self.hasher.hash_one(match client {
            None => (0, 0),
            Some(IpAddr::V4(address)) => (4, u64::from(u32::from(address))),
            Some(IpAddr::V6(address)) => (6, (u128::from(address) >> 64) as u64),
        })
    }

    /// Charges a check to a client.
    ///
    /// # Errors
    /// It has tried too much; after so many seconds it may again.
    pub(super) fn charge(&mut self, client: u64, now: Moment) -> Result<(), u64> {
        let slot = self.slot(client, now);
        let clear = slot.clear.max(now);
        let most = now + TRY_EACH * (TRIES_MAX - 1) as u32;
        if clear > most {
            let wait = clear - most;
            return Err(wait.as_secs() + u64::from(wait.subsec_nanos() > 0));
        }
        slot.clear = clear + TRY_EACH;
        Ok(())
    }

    /// The password was right.
    pub(super) fn give_back(&mut self, client: u64, now: Moment) {
        let slot = self.slot(client, now);
        let each = TRY_EACH.as_nanos() as u64;
        slot.clear = Moment::from_nanos(slot.clear.as_nanos().saturating_sub(each));
    }

    /// Its own slot, or that of the one that is forgiven first.
    fn slot(&mut self, client: u64, now: Moment) -> &mut Slot {
        let set = (client as usize % (SLOTS / WAYS)) * WAYS;
        let set = &mut self.slots[set..set + WAYS];
        let own = set.iter().position(|slot| slot.client == client);
        let place = own.unwrap_or_else(|| {
            let first = (0..WAYS).min_by_key(|way| set[*way].clear).expect("there are some");
            set[first] = Slot { client, clear: now };
            first
        });
        &mut set[place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_ten_wrong_tries_and_one_more_each_six_seconds() {
        let mut throttle = Throttle::new();
        let at = |seconds: u64| Moment::from_nanos(1_000_000_000 * (1000 + seconds));
        let of = |throttle: &Throttle, address: &str| throttle.key(address.parse().ok());
        let one = of(&throttle, "2001:db8::1");
        assert_eq!(one, of(&throttle, "2001:db8::ffff:2"), "a /64 is a client");
        assert_ne!(one, of(&throttle, "2001:db8:0:1::1"));
        for _ in 0..TRIES_MAX {
            assert_eq!(throttle.charge(one, at(0)), Ok(()));
        }
        assert_eq!(throttle.charge(one, at(0)), Err(6));
        assert_eq!(throttle.charge(one, at(5)), Err(1));
        assert_eq!(throttle.charge(one, at(6)), Ok(()));
        assert_eq!(throttle.charge(one, at(6)), Err(6));
        throttle.give_back(one, at(6));
        assert_eq!(throttle.charge(one, at(6)), Ok(()));
        let other = of(&throttle, "192.0.2.1");
        assert_eq!(throttle.charge(other, at(6)), Ok(()));
        assert_eq!(throttle.key(None), throttle.key(None));
    }

    #[test]
    fn right_passwords_alone_are_never_too_many() {
        let mut throttle = Throttle::new();
        let now = Moment::from_nanos(1 << 40);
        for _ in 0..1000 {
            assert_eq!(throttle.charge(7, now), Ok(()));
            throttle.give_back(7, now);
        }
    }

    #[test]
    fn many_clients_take_no_more_room_and_those_that_are_forgiven_last_are_kept() {
        let mut throttle = Throttle::new();
        let now = Moment::from_nanos(1 << 40);
        let bad = 42;
        (0..TRIES_MAX).for_each(|_| throttle.charge(bad, now).expect("it may"));
        // Each of these has a place of the same set.
        for other in 1..=10_000 {
            let other = bad + other * (SLOTS / WAYS) as u64;
            assert_eq!(throttle.charge(other, now), Ok(()));
        }
        assert!(throttle.charge(bad, now).is_err());
        assert_eq!(throttle.slots.len(), SLOTS);
    }
}
