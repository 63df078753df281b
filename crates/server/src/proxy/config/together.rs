//! Settings that are right one by one, and wrong together.

use pollux_engine::ListenAddress;

use super::{Frontend, GroupConfig, Mode};

/// What is wrong, if anything is.
pub(super) fn wrong(frontends: &[Frontend], groups: &[GroupConfig]) -> Option<String> {
    let listens: Vec<_> = frontends.iter().flat_map(|front| &front.listen).collect();
    if let Some(twice) = repeated(&listens).filter(|address| !is_any_port(address)) {
        return Some(format!("{twice} is listened on twice; expected each address once"));
    }
    for group in groups {
        let addresses: Vec<_> = group.servers.iter().map(|server| &server.address).collect();
        if let Some(twice) = repeated(&addresses) {
            return Some(format!(
                "two servers of \"{}\" have the address {twice}; expected each once, with a weight",
                group.name
            ));
        }
    }
    // A group that is not there has been reported.
    frontends.iter().find_map(|front| wrong_way(front, groups.get(front.group)?))
}

/// What is wrong with a front end that leads to this group.
fn wrong_way(front: &Frontend, group: &GroupConfig) -> Option<String> {
    let mut servers = group.servers.iter();
    let is_round = |address| front.listen.iter().any(|listens| reaches(address, listens));
    if let Some(server) = servers.clone().find(|server| is_round(&server.address)) {
        return Some(format!(
            "the server {} is where the proxy listens, so requests would come back to it; expected another \
             address",
            server.address
        ));
    }
    let is_limited = servers.any(|server| server.connections_max.is_some());
    (front.mode == Mode::Tcp && is_limited).then(|| {
        format!(
            "a server of \"{}\" has max_connections, which mode \"tcp\" can't keep; expected none there",
            group.name
        )
    })
}

fn repeated<'a>(addresses: &[&'a ListenAddress]) -> Option<&'a ListenAddress> {
    let mut places = addresses.iter().enumerate();
    places.find(|(place, each)| addresses[..*place].contains(each)).map(|(_, each)| *each)
}

/// Port 0 is another one each time.
fn is_any_port(address: &ListenAddress) -> bool {
    matches!(address, ListenAddress::Tcp(address) if address.port() == 0)
}

/// Whether a connection to `address` comes to `listens`, as far as the addresses tell.
fn reaches(address: &ListenAddress, listens: &ListenAddress) -> bool {
    match (address, listens) {
        (ListenAddress::Tcp(to), ListenAddress::Tcp(at)) if to.port() == at.port() => {
            let is_here = to.ip().is_loopback() || to.ip().is_unspecified();
            to.port() != 0 && (to.ip() == at.ip() || (at.ip().is_unspecified() && is_here))
        }
        _ => address == listens,
    }
}
