//! What this host can carry as an agent of a load from several hosts: the least of descriptors, ports and memory says how many
//! connections it opens.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use pollux_host::Reading;
use pollux_report::number::count;

use crate::check::Concern::Agents;
use crate::check::{Check, Judgement, Remedy, Subject};
use crate::limits::{CONNECTION_BYTES, FDS_SPARE, MEMORY_PARTS};
use crate::network::port_count;
use crate::readings::Readings;

/// What an order may ask of an agent by default (`--max-connections`).
const CONNECTIONS: u64 = 10_000;
/// The addresses of this host, those of its loopback and networks among them.
const ADDRESSES: &str = "/proc/net/fib_trie";
/// One end of a connection alone is here.
const END_BYTES: u64 = CONNECTION_BYTES / 2;

pub(super) fn checks(readings: &Readings) -> Vec<Check> {
    vec![connections(readings)]
}

/// A resource with what it allows, and what would raise that.
struct Room {
    connections: u64,
    what: String,
    remedy: Option<Remedy>,
}

fn connections(readings: &Readings) -> Check {
    let concerns = &[Agents];
    let subject = Subject { name: "agent_connections", unit: Some("connections"), concerns };
    let wanted = format!("{}: what orders may ask of an agent by default", count(CONNECTIONS));
    let found = rooms(readings).map(|rooms| {
        let least = rooms.into_iter().min_by_key(|room| room.connections);
        least.expect("there are three")
    });
    let number = found.as_ref().map(|room| room.connections);
    subject.judge(number, wanted, |connections| {
        let Reading::Value(Room { what, remedy, .. }) = &found else { return Judgement::ok() };
        let what = format!(
            "pollux-agent opens {} connections here to one address of a server: {what}",
            count(*connections)
        );
        Judgement::unless(*connections >= CONNECTIONS, what).mended_by(remedy.clone())
    })
}

fn rooms(readings: &Readings) -> Reading<[Room; 3]> {
    let environment = &readings.environment;
    let descriptors = environment.limits.open_files.hard.unwrap_or(u64::MAX);
    let descriptors = Room {
        connections: descriptors.saturating_sub(FDS_SPARE),
        what: "each takes a descriptor".to_owned(),
        remedy: Remedy::raise(environment, "nofile", CONNECTIONS + FDS_SPARE),
    };
    let memory = readings.files.field("/proc/meminfo", "MemAvailable").map(|kib| Room {
        connections: (kib << 10) / MEMORY_PARTS / END_BYTES,
        what: format!("each takes about {} KiB, of half of what is available", END_BYTES >> 10),
        remedy: None,
    });
    let addresses = readings.files.text(ADDRESSES).map(|text| addresses(&text).len().max(1) as u64);
    // Where they can't be read there is one at least.
    let addresses = addresses.value().copied().unwrap_or(1);
    let ports = port_count(readings).map(|ports| Room {
        connections: ports * addresses,
        what: format!(
            "{} ports of {addresses} source {}; --source ADDRESS names further ones",
            count(ports),
            if addresses == 1 { "address" } else { "addresses" }
        ),
        remedy: Some(Remedy::sysctl("net.ipv4.ip_local_port_range", "1024 65535")),
    });
    memory.and_then(|memory| ports.map(|ports| [descriptors, memory, ports]))
}

/// The addresses of this host that are not loopback's: each stands above a line that calls it local.
fn addresses(fib_trie: &str) -> BTreeSet<Ipv4Addr> {
    let mut found = BTreeSet::new();
    let mut last = None;
    for line in fib_trie.lines() {
        let line = line.trim();
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse::<Ipv4Addr>().ok();
        } else if line.ends_with("/32 host LOCAL") {
            found.extend(last.filter(|address| !address.is_loopback()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_host_are_those_that_are_local_and_no_loopback() {
        let text = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n\
                    Local:\n     |-- 10.0.2.7\n        /32 host LOCAL\n     |-- 10.0.2.255\n        /32 link \
                    BROADCAST\n        |-- 127.0.0.1\n           /32 host LOCAL\n     |-- 10.0.2.8\n        /32 \
                    host LOCAL\n     |-- 10.0.2.7\n        /32 host LOCAL\n";
        let found: Vec<String> = addresses(text).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["10.0.2.7", "10.0.2.8"]);
    }
}
