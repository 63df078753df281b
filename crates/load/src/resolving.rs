//! Which address of a name is asked. A name may have several, as `localhost` has `::1` and `127.0.0.1`, and a server
//! may listen on one of them only: they are tried in the order of the resolver (RFC 6724), before the run, and all
//! connections go to the first that takes one.
//!
//! It blocks, and uses no loop. A name with one address, an IP address and a unix socket cost nothing here.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use pollux_engine::ListenAddress;

use crate::{Plan, Target};

/// Longest wait for an address that does not answer, beside the time limit of connects: others come after it.
const PATIENCE_MAX: Duration = Duration::from_secs(1);

impl Target {
    /// Every address of its server, in the order in which they are tried.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = &ListenAddress> {
        std::iter::once(&self.address).chain(&self.further)
    }

    /// Whether both are at the same server: resolvers name the addresses of one in turns.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        let holds = |all: &Self, one: &ListenAddress| all.addresses().any(|each| each == one);
        self.addresses().all(|one| holds(other, one))
            && other.addresses().all(|one| holds(self, one))
    }
}

impl Plan {
    /// Decides which address of its targets' name is asked: the first that takes a connection, else the last, of those that
    /// the sources can reach. Blocks; it does nothing where there is one address only, or when it was decided before.
    pub fn reach(&mut self) {
        let Some(target) = self.targets.first() else { return };
        if target.further.is_empty() {
            return;
        }
        let is_of_sources = |address: &&ListenAddress| match (address, self.sources.first()) {
            (ListenAddress::Tcp(address), Some(source)) => address.is_ipv4() == source.is_ipv4(),
            _ => true,
        };
        let mut left: Vec<ListenAddress> =
            target.addresses().filter(is_of_sources).cloned().collect();
        if left.is_empty() {
            // What is wrong with the sources is said by the check.
            left = vec![target.address.clone()];
        }
        let patience = self.connect_timeout.min(PATIENCE_MAX);
        let mut in_vain = Vec::new();
        while left.len() > 1 && !takes_connections(&left[0], patience) {
            in_vain.push(left.remove(0));
        }
        let chosen = left.swap_remove(0);
        for target in &mut self.targets {
            target.address.clone_from(&chosen);
            target.further.clear();
            target.in_vain.clone_from(&in_vain);
        }
    }
}

fn takes_connections(address: &ListenAddress, patience: Duration) -> bool {
    match address {
        ListenAddress::Tcp(address) => TcpStream::connect_timeout(address, patience).is_ok(),
        ListenAddress::Unix(_) => true,
    }
}

/// What a host's addresses are with its port.
pub(crate) fn with_port(addresses: Vec<IpAddr>, port: u16) -> Vec<ListenAddress> {
    addresses.into_iter().map(|ip| SocketAddr::new(ip, port).into()).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A target whose name has these addresses.
    fn named(addresses: &[SocketAddr]) -> Target {
        let mut all = addresses.iter().map(|address| ListenAddress::Tcp(*address));
        let target = Target::parse("http://127.0.0.1:1/", None).expect("a URL");
        Target { address: all.next().expect("one"), further: all.collect(), ..target }
    }

    fn plan(addresses: &[SocketAddr]) -> Plan {
        Plan::new(vec![named(addresses), named(addresses)], "poll".parse().expect("a driver"))
    }

    /// One that nobody listens at, and one that somebody does.
    fn closed_and_open() -> (SocketAddr, SocketAddr, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let open = listener.local_addr().expect("an address");
        // The same port of an address without a listener.
        (SocketAddr::new([127, 0, 0, 2].into(), open.port()), open, listener)
    }

    #[test]
    fn the_first_address_that_takes_a_connection_is_asked_wherever_it_stands() {
        let (closed, open, _listener) = closed_and_open();
        for (addresses, in_vain) in
            [(vec![closed, open], 1), (vec![open, closed], 0), (vec![closed, open, closed], 1)]
        {
            let mut plan = plan(&addresses);
            plan.reach();
            for target in &plan.targets {
                assert_eq!(target.address, open.into(), "{addresses:?}");
                assert_eq!((target.in_vain.len(), target.further.len()), (in_vain, 0));
            }
        }
        let mut vain = plan(&[closed, closed]);
        vain.reach();
        assert_eq!(vain.targets[0].in_vain, [closed.into()]);
    }

    #[test]
    fn sources_choose_among_the_families() {
        let (_, open, _listener) = closed_and_open();
        let other = SocketAddr::new("::1".parse().expect("an address"), open.port());
        let mut plan = plan(&[other, open]);
        plan.sources = vec![[127, 0, 0, 3].into()];
        plan.reach();
        assert_eq!(plan.targets[0].address, open.into());
    }

    #[test]
    fn one_server_is_known_in_whatever_order_it_is_named() {
        let (a, b, _listener) = closed_and_open();
        assert!(named(&[a, b]).is_beside(&named(&[b, a])));
        assert!(!named(&[a, b]).is_beside(&named(&[a])) && !named(&[a]).is_beside(&named(&[a, b])));
    }
}
