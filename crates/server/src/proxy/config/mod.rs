//! Every setting of the proxy: flags, keys of the file, help and defaults, and what they are read as.
//! The command line fills it; nothing is opened here.

mod fronts;
mod groups;
#[cfg(test)]
mod tests;
mod together;

use std::time::Duration;

use pollux_engine::ListenAddress;
use pollux_settings::{Keys, Kind, Table, bytes, one_of, table, whole};

use crate::config::{
    ADDRESSES_MAX, BODY_BYTES_MAX, CONNECTIONS_MAX, Loops, Monitoring, address, connections_max,
    timeout,
};
pub use fronts::{Forwarding, Frontend, Mode};
pub(super) use groups::HealthRules;
pub(crate) use groups::WEIGHT_MAX;
pub use groups::{BackendConfig, Check, GroupConfig, Health, ServerTls};

/// The name of the group that has no section of its own.
pub(super) const GROUP_DEFAULT: &str = "default";
/// Most backends.
const BACKENDS_MAX: usize = 256;
/// Most groups of backends.
const GROUPS_MAX: usize = 64;
/// Most idle upstream connections.
const IDLE_MAX: u64 = 65_536;
/// Most requests that wait for a connection to a backend.
const QUEUE_MAX: u64 = 100_000;

/// A proxy's configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProxyConfig {
    /// Where clients come; at least one.
    pub frontends: Vec<Frontend>,
    /// Where requests go; at least one.
    pub groups: Vec<GroupConfig>,
    /// What runs it.
    pub loops: Loops,
    /// Whether a thread lets go of a connection that another one has taken over as soon as that is
    /// known, instead of with its next update.
    pub lets_go_at_once: bool,
    /// Times and amounts.
    pub limits: ProxyLimits,
    /// How it is watched.
    pub monitoring: Monitoring,
}

impl Table for ProxyConfig {
    fn read(keys: &mut Keys<'_>) -> Self {
        keys.heading("Addresses");
        let (frontends, mut groups) = ways(keys);
        let about = "Most connections to each server at once, for those that have no max_connections of \
                     their own; requests beyond wait";
        let most = keys.key("server_max_connections", about).otherwise("no limit");
        let most = most.optional(&whole(1..=CONNECTIONS_MAX));
        let servers = groups.iter_mut().flat_map(|group| &mut group.servers);
        servers.for_each(|each| each.connections_max = each.connections_max.or(most));
        if keys.is_right()
            && let Some(wrong) = together::wrong(&frontends, &groups)
        {
            keys.refuse(wrong);
        }
        let loops = Loops::read(keys);
        let about = "Have a thread let go of a connection that another one has taken over at once, instead \
                     of with its next update: for measurements";
        let lets_go_at_once = keys.key("let_go_at_once", about).switch();
        keys.heading("Limits");
        let (limits, monitoring) = (ProxyLimits::read(keys), Monitoring::read(keys));
        Self { frontends, groups, loops, lets_go_at_once, limits, monitoring }
    }
}

/// Front ends and the backends that they lead to: one of each by flags or at the top of the file, or
/// as many as there are sections.
fn ways(keys: &mut Keys<'_>) -> (Vec<Frontend>, Vec<GroupConfig>) {
    let listen = keys.key("listen", fronts::LISTEN).default("127.0.0.1:8080");
    let listen = listen.list(&address(), 1..=ADDRESSES_MAX);
    let front = Frontend { listen, ..Frontend::read(keys) };
    let about = "HOST:PORT, [IPV6]:PORT or unix:PATH of a server that requests go to; repeatable";
    let addresses = keys.key("backend", about).only_flag().list(&address(), 0..=BACKENDS_MAX);
    let of_file = keys.tables("server", groups::SERVER, 0..=BACKENDS_MAX, BackendConfig::read);
    let has_servers = !of_file.is_empty();
    let servers = addresses.into_iter().map(BackendConfig::at).chain(of_file).collect();
    keys.heading("Backends");
    let group = GroupConfig::of(keys, GROUP_DEFAULT.to_owned(), |_| servers);
    let said = keys.first_said();
    let before = keys.mistakes();
    let about = "Servers that answer the same requests, where there are several such groups";
    let groups = keys.tables("backend", about, 0..=GROUPS_MAX, GroupConfig::read);
    // None where those are wrong: which names they have is not known then.
    let are_right = keys.mistakes() == before;
    let names =
        are_right.then(|| groups.iter().map(|group| group.name.clone()).collect::<Vec<_>>());
    let about = "Where clients come, and the backends that their requests go to";
    let frontends = keys.tables("frontend", about, 0..=ADDRESSES_MAX, |keys| {
        Frontend::of_section(keys, names.as_deref())
    });
    let twice = |at: &usize| groups[..*at].iter().any(|other| other.name == groups[*at].name);
    match said {
        _ if !keys.is_right() => {}
        _ if groups.is_empty() && frontends.is_empty() => {
            if group.servers.is_empty() {
                keys.refuse("no backend; expected --backend ADDRESS, or [[server]] in the file");
            }
            return (vec![front], vec![group]);
        }
        Some(name) => {
            keys.note(
                name,
                "is of no use beside [[frontend]] and [[backend]]; expected it in them",
            );
        }
        None if has_servers => {
            keys.refuse("[[server]] stands alone; expected [[backend.server]] beside [[backend]]");
        }
        None if groups.is_empty() || frontends.is_empty() => {
            keys.refuse("expected [[frontend]] and [[backend]] sections, at least one of each");
        }
        None => {
            if let Some(at) = (0..groups.len()).find(twice) {
                let name = &groups[at].name;
                keys.refuse(format!("two [[backend]] sections are called \"{name}\""));
            }
        }
    }
    (frontends, groups)
}

impl ProxyConfig {
    /// A proxy from `listen` to `backends` with all defaults.
    #[must_use]
    pub fn new(listen: Vec<ListenAddress>, backends: Vec<ListenAddress>) -> Self {
        let group = GroupConfig {
            name: GROUP_DEFAULT.to_owned(),
            servers: backends.into_iter().map(BackendConfig::at).collect(),
            balance: Default::default(),
            health: Health::default(),
            sends_header: None,
            tls: None,
        };
        Self {
            frontends: vec![Frontend { listen, ..Frontend::default() }],
            groups: vec![group],
            loops: Loops::default(),
            lets_go_at_once: false,
            limits: ProxyLimits::default(),
            monitoring: Monitoring::default(),
        }
    }

    /// Every address, in the order of the front ends.
    #[must_use]
    pub fn listen(&self) -> Vec<ListenAddress> {
        self.frontends.iter().flat_map(|each| each.listen.iter().cloned()).collect()
    }

    /// Every backend, in the order of the groups.
    pub fn servers(&self) -> impl Iterator<Item = &BackendConfig> {
        self.groups.iter().flat_map(|group| &group.servers)
    }
}

table! { keys, key, default;
    /// Times and amounts that clients and backends may take.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct ProxyLimits {
        /// Most client connections at once, and as many to backends
        pub connections_max as "max_connections": Option<u32> = connections_max(key),
        /// Time for a whole request head
        pub header_timeout: Duration = key.default("10s").one(&timeout()),
        /// Time between two requests of a connection
        pub idle_timeout: Duration = key.default("60s").one(&timeout()),
        /// Time for a connection to a backend to come about
        pub connect_timeout: Duration = key.default("5s").one(&timeout()),
        /// Time from a request that was sent whole to the first byte of its answer
        pub first_byte_timeout: Duration = key.default("60s").one(&timeout()),
        /// Longest time without a byte in the middle of a body, in either direction
        pub body_timeout: Duration = key.default("30s").one(&timeout()),
        /// Time for a request and its answer together
        pub request_timeout: Duration = key.default("1h").one(&timeout()),
        /// Longest time without a byte in either direction after an upgrade (WebSocket)
        pub tunnel_timeout: Duration = key.default("1h").one(&timeout()),
        /// Time that a connection to a backend is kept without a request; shorter than the backend's
        /// own
        pub upstream_idle_timeout: Duration = key.default("20s").one(&timeout()),
        /// Longest time in which a peer takes nothing of what was sent to it
        pub write_timeout: Duration = key.default("60s").one(&timeout()),
        /// Time that connections have to end after a first SIGTERM or SIGINT
        pub drain_timeout: Duration = key.default("10s").one(&timeout()),
        /// Largest request body
        pub body_bytes_max as "max_body": u64 = key.default("1GiB").one(&bytes(0..=BODY_BYTES_MAX)),
        /// Most connections to each backend that are kept without a request
        pub upstream_idle_max: Option<usize> =
            key.otherwise("as many as --max-connections").optional(&whole(0..=IDLE_MAX)),
        /// Most connections to all backends together that are kept without a request
        pub upstream_idle_total: Option<usize> =
            key.otherwise("as many as --max-connections").optional(&whole(0..=IDLE_MAX)),
        /// Most pipes that bytes of TCP mode go through in the kernel, two for each connection while
        /// something is under way; others go through buffers, as all do with 0 and in TLS
        pub pipes_max: usize = key.default("1024").one(&whole(0..=IDLE_MAX)),
        /// Most requests that wait for a connection to each backend; others get 503
        pub queue_max: usize = key.default("1024").one(&whole(0..=QUEUE_MAX)),
        /// Time for a request to wait for a connection, then it gets 503
        pub queue_timeout: Duration = key.default("5s").one(&timeout()),
        /// What happens to a request whose client ends its side meanwhile
        pub answers_half_closed as "half_close": bool = key.default("answer").one(&half_close()),
    }
}

/// Whether a client that ended its side is still answered; else it is taken for gone.
fn half_close() -> Kind<bool> {
    let answer = "it is answered: the client may only have nothing more to ask";
    let drop = "it is dropped: the client is taken for gone";
    one_of("way", [("answer", answer, true), ("drop", drop, false)])
}
