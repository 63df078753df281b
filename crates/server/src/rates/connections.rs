//! How many connections each client has, of all loops of a process: a client that has as many as it may gets no more.
//!
//! A client that has none is not known, so there are as many entries as open connections at most. The lock is held for one
//! look at a map, when a connection begins and when it ends.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;

/// Parts with a lock of their own.
const PARTS: usize = 16;
/// Bits of an address of IPv6 that are one client's.
const IPV6_PREFIX: u32 = 64;

/// Connections by client.
#[derive(Default, Debug)]
pub(crate) struct ClientConnections([Mutex<HashMap<IpAddr, u32>>; PARTS]);

impl ClientConnections {
    /// Counts a connection of this address, unless its client has as many as it may.
    pub(crate) fn enter(&self, address: IpAddr, most: u32) -> bool {
        let client = client_of(address);
        let mut part = self.part(client).lock().expect("nothing panics under this lock");
        let count = part.entry(client).or_default();
        let may_enter = *count < most;
        *count += u32::from(may_enter);
        may_enter
    }

    /// One that was counted has ended.
    pub(crate) fn leave(&self, address: IpAddr) {
        let client = client_of(address);
        let mut part = self.part(client).lock().expect("nothing panics under this lock");
        let count = part.get_mut(&client).expect("it has entered");
        *count -= 1;
        if *count == 0 {
            part.remove(&client);
        }
    }

    fn part(&self, client: IpAddr) -> &Mutex<HashMap<IpAddr, u32>> {
        let bits = match client {
            IpAddr::V4(client) => u64::from(u32::from(client)),
            IpAddr::V6(client) => (u128::from(client) >> (128 - IPV6_PREFIX)) as u64,
        };
        // The upper bits of the product depend on all of them.
        &self.0[(bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize % PARTS]
    }
}

/// Who has an address.
fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let bits = u128::from(address) & u128::MAX << (128 - IPV6_PREFIX);
            IpAddr::V6(bits.into())
        }
        four => four,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_as_many_as_it_may_and_one_more_when_one_has_ended() {
        let all = ClientConnections::default();
        let address = |text: &str| text.parse::<IpAddr>().expect(text);
        let enter = |text| all.enter(address(text), 2);
        assert_eq!(["192.0.2.1"; 4].map(enter), [true, true, false, false]);
        assert!(!enter("::ffff:192.0.2.1") && enter("192.0.2.2"), "one written in two ways");
        assert_eq!(["2001:db8::1", "2001:db8::2", "2001:db8::3"].map(enter), [true, true, false]);
        assert!(enter("2001:db8:0:1::1"));
        all.leave(address("192.0.2.1"));
        assert_eq!(["192.0.2.1"; 2].map(enter), [true, false]);
        for text in
            ["192.0.2.1", "192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::9", "2001:db8:0:1::1"]
        {
            all.leave(address(text));
        }
        let left: usize = all.0.iter().map(|part| part.lock().expect("unlocked").len()).sum();
        assert_eq!(left, 0, "nobody is known who has none");
    }
}
