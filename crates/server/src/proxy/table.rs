//! Every setting of the proxy: flags, keys of the file, help and defaults.

mod fronts;
mod limits;
mod servers;

use pollux_settings::{Keys, Table, address, whole};

use self::fronts::{LISTEN, frontend, listen, manner};
use self::servers::{SERVER, balance, named, sends_header, server_tls};
use super::backends::BackendConfig;
use super::config::{Frontend, GROUP_DEFAULT, GroupConfig, Health, ProxyConfig, ProxyLimits};
use crate::config::table::{ADDRESSES_MAX, CONNECTIONS_MAX};
use crate::config::{Loops, Watching};

/// Most backends.
const BACKENDS_MAX: usize = 256;
/// Most groups of backends.
const GROUPS_MAX: usize = 64;
/// Most idle upstream connections.
const IDLE_MAX: u64 = 65_536;

impl Table for ProxyConfig {
    fn read(keys: &mut Keys<'_>) -> Option<Self> {
        keys.heading("Addresses");
        let ways = ways(keys);
        let server_max = keys
            .key(
                "server_max_connections",
                "Most connections to each server at once, for those that have no max_connections of \
                 their own; requests beyond wait",
            )
            .otherwise("no limit")
            .optional(&whole(1..=CONNECTIONS_MAX));
        let loops = Loops::read(keys);
        let lets_go_at_once = keys
            .key(
                "let_go_at_once",
                "Have a thread let go of a connection that another one has taken over at once, instead \
                 of with its next update: for measurements",
            )
            .switch();
        keys.heading("Limits");
        let limits = ProxyLimits::read(keys);
        let watching = Watching::read(keys);
        let (frontends, mut groups) = ways?;
        let server_max = server_max?;
        let servers = groups.iter_mut().flat_map(|group| &mut group.servers);
        servers.for_each(|each| each.connections_max = each.connections_max.or(server_max));
        Some(Self {
            frontends,
            groups,
            loops: loops?,
            lets_go_at_once: lets_go_at_once?,
            limits: limits?,
            watching: watching?,
        })
    }
}

/// Front ends and the backends that they lead to: one of each by flags or at the top of the file, or
/// as many as there are sections.
fn ways(keys: &mut Keys<'_>) -> Option<(Vec<Frontend>, Vec<GroupConfig>)> {
    let listen = listen(keys.key("listen", LISTEN).default("127.0.0.1:8080"));
    let manner = manner(keys);
    let addresses = keys
        .key(
            "backend",
            "HOST:PORT, [IPV6]:PORT or unix:PATH of a server that requests go to; repeatable",
        )
        .only_flag()
        .list(&address(), 0..=BACKENDS_MAX);
    let servers = keys.tables("server", SERVER, 0..=BACKENDS_MAX, BackendConfig::read);
    let said = SIMPLE.into_iter().find(|name| keys.has(name));
    let has_servers = servers.as_ref().is_none_or(|servers| !servers.is_empty());
    keys.heading("Backends");
    let balance = balance(keys);
    let health = Health::read(keys);
    let sends_header = sends_header(keys);
    let server_tls = server_tls(keys);
    let about = "Servers that answer the same requests, where there are several such groups";
    let groups = keys.tables("backend", about, 0..=GROUPS_MAX, GroupConfig::read);
    // None where those are wrong: which names they have is not known then.
    let names = groups.as_ref().map(|groups: &Vec<GroupConfig>| {
        groups.iter().map(|group| group.name.clone()).collect::<Vec<_>>()
    });
    let about = "Where clients come, and the backends that their requests go to";
    let read = |keys: &mut Keys<'_>| frontend(keys, names.as_deref());
    let frontends = keys.tables("frontend", about, 0..=ADDRESSES_MAX, read);
    let (frontends, groups, names) = (frontends?, groups?, names?);
    let (listen, balance, health) = (listen?, balance?, health?);
    let (manner, sends_header, server_tls) = (manner?, sends_header?, server_tls?);
    let one = |address| BackendConfig { address, weight: 1, connections_max: None };
    let servers: Vec<_> = addresses?.into_iter().map(one).chain(servers?).collect();
    if groups.is_empty() && frontends.is_empty() {
        if servers.is_empty() {
            keys.refuse("no backend; expected --backend ADDRESS, or [[server]] in the file");
            return None;
        }
        let (name, tls_to) = (GROUP_DEFAULT.to_owned(), named(keys, server_tls, &servers)?);
        return Some((
            vec![Frontend { listen, ..manner }],
            vec![GroupConfig { name, servers, balance, health, sends_header, tls: tls_to }],
        ));
    }
    if let Some(name) = said {
        keys.note(name, "is of no use beside [[frontend]] and [[backend]]; expected it in them");
        return None;
    }
    if has_servers {
        keys.refuse("[[server]] stands alone; expected [[backend.server]] beside [[backend]]");
        return None;
    }
    if groups.is_empty() || frontends.is_empty() {
        keys.refuse("expected [[frontend]] and [[backend]] sections, at least one of each");
        return None;
    }
    for (place, name) in names.iter().enumerate() {
        if names[..place].contains(name) {
            keys.refuse(format!("two [[backend]] sections are called \"{name}\""));
            return None;
        }
    }
    Some((frontends, groups))
}

/// Keys of the one group that has no section.
const SIMPLE: [&str; 25] = [
    "x_forwarded",
    "forwarded",
    "request_field",
    "response_field",
    "listen",
    "mode",
    "cert",
    "key",
    "accept_proxy",
    "send_proxy",
    "tls",
    "sni",
    "ca",
    "verify",
    "backend",
    "balance",
    "health_check",
    "health_path",
    "health_interval",
    "health_timeout",
    "down_time",
    "slow_start",
    "rise",
    "fall",
    "server",
];
#[cfg(test)]
mod tests;
