//! Which backends a request may go to: those of the group that its front end names.
//!
//! All backends of a proxy are numbered through; a group is a range of them, with its own way to
//! choose and its own checks. A front end is known by the address that a connection was accepted on.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use pollux_engine::{Actions, ListenAddress};
use pollux_http::ProxyVersion;
use pollux_tls::ServerConfig;

use super::balance::Balancer;
use super::config::{Check, Frontend, GroupConfig, ProxyConfig};
use super::secrets::ServerSecrets;

/// One group, as one loop has it.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) members: Range<usize>,
    pub(super) balancer: Balancer,
    pub(super) sends_header: Option<ProxyVersion>,
    /// What its servers speak TLS with, if they do.
    pub(super) tls: Option<ServerSecrets>,
    pub(super) check: Check,
    pub(super) check_interval: Duration,
    pub(super) check_timeout: Duration,
}

impl Group {
    /// The groups of a proxy; `seed` makes the draws of one loop differ from those of another.
    pub(super) fn all(config: &ProxyConfig, seed: u64) -> Box<[Self]> {
        let mut first = 0;
        let one = |group: &GroupConfig| {
            let members = first..first + group.servers.len();
            first = members.end;
            Self {
                balancer: Balancer::new(group.balance, members.len(), seed),
                sends_header: group.sends_header,
                tls: None,
                check: group.health.check.clone(),
                check_interval: group.health.interval,
                check_timeout: group.health.timeout,
                members,
            }
        };
        config.groups.iter().map(one).collect()
    }
}

/// The front ends, by the addresses that they listen on.
#[derive(Clone, Debug)]
pub(super) struct FrontendTable {
    all: Vec<Frontend>,
    /// For each, where its clients speak TLS.
    secured: Vec<Option<Arc<ServerConfig>>>,
    by_address: Vec<(ListenAddress, usize)>,
}

impl FrontendTable {
    /// `addresses` are those that the kernel gave, in the order of the configuration.
    pub(super) fn new(config: &ProxyConfig, addresses: &[ListenAddress]) -> Self {
        let places = config.frontends.iter().enumerate();
        let places = places.flat_map(|(place, each)| each.listen.iter().map(move |_| place));
        let by_address = addresses.iter().cloned().zip(places).collect();
        let all = config.frontends.clone();
        Self { secured: vec![None; all.len()], all, by_address }
    }

    /// The place of the front end that a connection was accepted by. A system call where there are
    /// several.
    pub(super) fn of(&self, actions: &Actions<'_>) -> usize {
        match self.all.len() {
            1 => 0,
            // A connection that is gone already ends wherever it is led.
            _ => actions.local().map_or(0, |local| self.find(&local)),
        }
    }

    /// The front end at this place.
    pub(super) fn get(&self, place: usize) -> &Frontend {
        &self.all[place]
    }

    /// What clients of the front end at this place speak TLS with.
    pub(super) fn secured(&self, place: usize) -> Option<&Arc<ServerConfig>> {
        self.secured[place].as_ref()
    }

    /// What clients speak TLS with, for each front end.
    pub(super) fn secure(&mut self, secured: Vec<Option<Arc<ServerConfig>>>) {
        assert_eq!(secured.len(), self.all.len(), "one for each front end");
        self.secured = secured;
    }

    /// The kernel gives a connection to the listener of its very address before one of all
    /// addresses with the port.
    fn find(&self, local: &ListenAddress) -> usize {
        let exact = |listens: &ListenAddress| match (listens, local) {
            (ListenAddress::Tcp(one), ListenAddress::Tcp(two)) => {
                (one.ip().to_canonical(), one.port()) == (two.ip().to_canonical(), two.port())
            }
            (one, two) => one == two,
        };
        let any = |listens: &ListenAddress| match (listens, local) {
            (ListenAddress::Tcp(one), ListenAddress::Tcp(two)) => {
                one.ip().is_unspecified() && one.port() == two.port()
            }
            _ => false,
        };
        let mut all = self.by_address.iter();
        let found = all.clone().find(|(listens, _)| exact(listens));
        found.or_else(|| all.find(|(listens, _)| any(listens))).map_or(0, |(_, place)| *place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_belongs_to_the_front_end_whose_address_it_was_accepted_on() {
        let listens = ["127.0.0.1:80", "[::]:80", "0.0.0.0:81", "[::1]:81", "unix:/a", "unix:/b"];
        let read = |text: &str| text.parse::<ListenAddress>().expect("an address");
        let by_address = listens.iter().map(|text| read(text)).zip(0..).collect();
        let frontends = FrontendTable { all: Vec::new(), secured: Vec::new(), by_address };
        for (local, place) in [
            ("127.0.0.1:80", 0),
            ("[::ffff:127.0.0.1]:80", 0),
            ("[::1]:80", 1),
            ("[::ffff:10.0.0.1]:80", 1),
            ("127.0.0.1:81", 2),
            ("[::1]:81", 3),
            ("unix:/b", 5),
        ] {
            assert_eq!(frontends.find(&read(local)), place, "{local}");
        }
    }
}
