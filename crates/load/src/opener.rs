//! Where the connections of one thread come from: source addresses in turn, and those that have
//! to wait before they are tried again.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::net::{IpAddr, Ipv4Addr};

use pollux_engine::{ConnectTo, ListenAddress};

use crate::Plan;
use crate::active::Active;
use crate::shared::Reopen;

/// Connections from one source address to one server: below the 28,232 ports that Linux gives
/// out (`ip_local_port_range`), with room for those in TIME_WAIT.
const PER_SOURCE: u32 = 20_000;

/// Hands out addresses, and connections whose time to be opened again has come.
pub(crate) struct Opener {
    ways: Vec<ConnectTo>,
    next: usize,
    later: BinaryHeap<Reverse<Later>>,
}

impl Opener {
    /// For `thread` of the plan's; threads begin with different sources.
    pub(crate) fn new(plan: &Plan, thread: u32) -> Self {
        let peer = &plan.targets[0].address;
        let way = |source| ConnectTo { peer: peer.clone(), source };
        let sources = sources(plan, peer);
        let ways: Vec<ConnectTo> = match sources.is_empty() {
            true => vec![way(None)],
            false => sources.into_iter().map(|source| way(Some(source))).collect(),
        };
        let next = thread as usize % ways.len();
        Self { ways, next, later: BinaryHeap::new() }
    }

    /// Where the next connection goes, and where from.
    pub(crate) fn way(&mut self) -> &ConnectTo {
        let now = self.next;
        self.next = (now + 1) % self.ways.len();
        &self.ways[now]
    }

    /// Keeps a connection until its time.
    pub(crate) fn keep(&mut self, reopen: Reopen) {
        self.later.push(Reverse(Later(reopen)));
    }

    /// A connection whose time has come.
    pub(crate) fn due(&mut self, now_ns: u64) -> Option<Box<Active>> {
        if self.next_ns()? > now_ns {
            return None;
        }
        self.later.pop().map(|Reverse(Later(reopen))| reopen.active)
    }

    /// When the next one's time comes.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.later.peek().map(|Reverse(Later(reopen))| reopen.at_ns)
    }
}

/// The plan's, or as many of 127.0.0.0/8 as it takes for this many connections to loopback.
fn sources(plan: &Plan, peer: &ListenAddress) -> Vec<IpAddr> {
    if !plan.sources.is_empty() {
        return plan.sources.clone();
    }
    let connections = plan.connections + plan.crowd.len();
    let ListenAddress::Tcp(address) = peer else { return Vec::new() };
    let is_loopback = matches!(address.ip(), IpAddr::V4(ip) if ip.is_loopback());
    if !is_loopback || connections <= PER_SOURCE {
        return Vec::new();
    }
    let first = Ipv4Addr::new(127, 0, 0, 2).to_bits();
    let last = first + connections.div_ceil(PER_SOURCE);
    (first..last).map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))).collect()
}

/// In the order of time.
struct Later(Reopen);

impl PartialEq for Later {
    fn eq(&self, other: &Self) -> bool {
        self.0.at_ns == other.0.at_ns
    }
}

impl Eq for Later {}

impl PartialOrd for Later {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Later {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.at_ns.cmp(&other.0.at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Crowd, Target};

    fn plan(url: &str, dead: u32) -> Plan {
        let target = Target::parse(url, None).expect("a URL");
        let plan = Plan::new(vec![target], "poll".parse().expect("a driver"));
        Plan { threads: 2, crowd: Crowd { dead, ..Crowd::default() }, ..plan }
    }

    #[test]
    fn a_crowd_on_loopback_comes_from_several_addresses() {
        let sources = |url: &str, dead: u32| {
            let opener = Opener::new(&plan(url, dead), 0);
            let shown = |way: &ConnectTo| way.source.map_or("any".into(), |ip| ip.to_string());
            opener.ways.iter().map(shown).collect::<Vec<String>>()
        };
        assert_eq!(sources("http://127.0.0.1/", 19_999), ["any"]);
        assert_eq!(sources("http://127.0.0.1/", 20_000), ["127.0.0.2", "127.0.0.3"]);
        assert_eq!(sources("http://127.0.0.1/", 59_999).len(), 3);
        assert_eq!(sources("http://192.0.2.1/", 60_000), ["any"]);
    }

    #[test]
    fn connections_wait_for_their_time_in_its_order() {
        let mut opener = Opener::new(&plan("http://127.0.0.1/", 0), 1);
        for at_ns in [30, 10, 20] {
            opener.keep(Reopen { active: Active::new(0, 1, false), at_ns });
        }
        assert_eq!(opener.next_ns(), Some(10));
        assert!(opener.due(9).is_none() && opener.due(10).is_some() && opener.due(10).is_none());
        assert!(opener.due(40).is_some() && opener.due(40).is_some());
        assert_eq!(opener.next_ns(), None);
    }
}
