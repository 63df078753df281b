//! Settings of a group of servers: their addresses, how they are chosen, checked and connected to.

use std::path::PathBuf;
use std::time::Duration;

use pollux_engine::ListenAddress;
use pollux_http::ProxyVersion;
use pollux_settings::{Keys, Kind, Table, name, one_of, path, table, whole};
use pollux_tls::server_name;

use super::BACKENDS_MAX;
use crate::config::{CONNECTIONS_MAX, address, timeout};
use crate::proxy::balance::Balance;
use crate::tls::Trust;

/// Largest weight.
pub(crate) const WEIGHT_MAX: u32 = 256;
pub(super) const SERVER: &str = "A server that requests go to, with its weight";

/// Backends that answer the same requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupConfig {
    /// For front ends, logs and metrics.
    pub name: String,
    /// Where requests go; at least one.
    pub servers: Vec<BackendConfig>,
    /// How requests are spread over them.
    pub balance: Balance,
    /// When they are taken for up and down.
    pub health: Health,
    /// Whether each connection to them begins with a head of the PROXY protocol. Such a connection is
    /// one client's, and is not kept for others.
    pub sends_header: Option<ProxyVersion>,
    /// How TLS is spoken to them, where it is.
    pub tls: Option<ServerTls>,
}

impl Table for GroupConfig {
    fn read(keys: &mut Keys<'_>) -> Self {
        let name = keys.key("name", "Name for [[frontend]]").required(&name());
        Self::of(keys, name.unwrap_or_default(), |keys| {
            keys.tables("server", SERVER, 1..=BACKENDS_MAX, BackendConfig::read)
        })
    }
}

impl GroupConfig {
    /// The group called `name`, whose servers are read last.
    pub(super) fn of(
        keys: &mut Keys<'_>,
        name: String,
        servers: impl FnOnce(&mut Keys<'_>) -> Vec<BackendConfig>,
    ) -> Self {
        let ways = Balance::ALL.map(|each| (each.name(), each.about(), each));
        let balance = keys.key("balance", "Which backend gets a request").default("round-robin");
        let balance = balance.one(&one_of("way", ways).called("HOW"));
        let health = Health::read(keys);
        let about = "Begin each connection to a backend with a head of the PROXY protocol; it is then not kept \
                     for other clients";
        let versions =
            [("v1", "a line of text", ProxyVersion::V1), ("v2", "binary", ProxyVersion::V2)];
        let sends_header = keys.key("send_proxy", about);
        let sends_header = sends_header.optional(&one_of("version", versions).called("VERSION"));
        let tls = Asked::read(keys).tls();
        let servers = servers(keys);
        let is_unnamed = tls.as_ref().is_some_and(|tls| tls.name.is_none());
        let unix = servers.iter().find(|server| matches!(server.address, ListenAddress::Unix(_)));
        if let Some(unix) = unix.filter(|_| is_unnamed && keys.is_right()) {
            keys.note("tls", format!("{} has no name; expected one with sni", unix.address));
        }
        Self { name, servers, balance, health, sends_header, tls }
    }
}

table! { keys, key;
    /// A backend as it was configured.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct BackendConfig {
        /// HOST:PORT, [IPV6]:PORT or unix:PATH
        pub address: ListenAddress =
            key.required(&address()).unwrap_or_else(|| ListenAddress::Unix(PathBuf::new())),
        /// Share of the requests in relation to the others
        pub weight: u32 = key.default("1").one(&whole(1..=WEIGHT_MAX.into())),
        /// Most connections to it at once, those without a request among them
        pub connections_max as "max_connections": Option<u32> =
            key.otherwise("that of --server-max-connections").optional(&whole(1..=CONNECTIONS_MAX)),
    }
}

impl BackendConfig {
    /// The one at this address, with all defaults.
    pub(super) fn at(address: ListenAddress) -> Self {
        Self { address, weight: 1, connections_max: None }
    }
}

/// TLS to backends.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServerTls {
    /// The name that they are asked for, and that their certificates have to have; none for the address
    /// of each.
    pub name: Option<String>,
    /// Whose certificates are accepted.
    pub trust: Trust,
}

const NO_TLS: &str = "it is of no use without TLS to servers";

table! { keys, key;
    /// What is said of TLS to servers.
    struct Asked {
        /// Speak TLS to these servers
        is_spoken as "tls": bool = key.switch(),
        /// Name that the servers are asked for and that their certificates have to have
        name as "sni": Option<String> = key.otherwise("the address of each, which is not sent")
            .needs("tls", NO_TLS)
            .optional(&Kind::new("NAME", "a name such as app.example, or an address", |text| {
                server_name(text).map(|_| text.to_owned())
            })),
        /// A PEM file with the authorities that have signed the servers' certificates, or with these
        /// themselves; a reload reads it again
        ca: Option<PathBuf> = key.otherwise("the authorities that this system trusts")
            .needs("tls", NO_TLS)
            .optional(&path()),
        /// What is looked at in the certificate of a server
        is_verified as "verify": bool = key.default("full").needs("tls", NO_TLS).one(&verify()),
    }
    => consistent
}

impl Asked {
    fn consistent(self, keys: &mut Keys<'_>) -> Self {
        if self.ca.is_some() && !self.is_verified {
            keys.note("ca", "is of no use where nothing is verified; expected verify \"full\"");
        }
        self
    }

    fn tls(self) -> Option<ServerTls> {
        let trust = match self.ca {
            _ if !self.is_verified => Trust::Anybody,
            Some(path) => Trust::File(path),
            None => Trust::System,
        };
        self.is_spoken.then_some(ServerTls { name: self.name, trust })
    }
}

fn verify() -> Kind<bool> {
    let full = "it has to be signed by an authority, for the name, and in its time";
    let none = "nothing: any machine on the network path may pass for the server";
    one_of("check", [("full", full, true), ("none", none, false)])
}

/// What a backend has to do to pass.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Check {
    /// Nothing: only requests show how it is.
    #[default]
    None,
    /// To accept a connection.
    Tcp,
    /// To answer GET of this path with a status from 200 to 399.
    Http(String),
}

/// When backends are taken for up and down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::proxy) struct HealthRules {
    pub(in crate::proxy) rise: u32,
    pub(in crate::proxy) fall: u32,
    /// Without checks: how long a backend that is down gets no requests.
    pub(in crate::proxy) down_time: Duration,
    pub(in crate::proxy) has_checks: bool,
    pub(in crate::proxy) slow_start: Duration,
}

table! { keys, key, default;
    /// When backends are taken for up and down.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Health {
        /// What they are looked at by.
        pub check: Check = check(keys),
        /// Time between two checks of a backend
        pub interval as "health_interval": Duration = key.default("2s").one(&timeout()),
        /// Time for a check
        pub timeout as "health_timeout": Duration = key.default("1s").one(&timeout()),
        /// Without checks: how long a backend that is down gets no requests
        pub down_time: Duration = key.default("5s").one(&timeout()),
        /// Time in which a backend that came up is given its share little by little
        pub slow_start: Duration =
            key.otherwise("its whole share at once").optional(&timeout()).unwrap_or_default(),
        /// Good checks in a row after which a backend is up again
        pub rise: u32 = key.default("2").one(&whole(1..=1000)),
        /// Failures in a row, of requests or checks, after which a backend is down
        pub fall: u32 = key.default("3").one(&whole(1..=1000)),
    }
}

impl Health {
    pub(in crate::proxy) fn rules(&self) -> HealthRules {
        HealthRules {
            rise: self.rise,
            fall: self.fall,
            down_time: self.down_time,
            has_checks: self.check != Check::None,
            slow_start: self.slow_start,
        }
    }
}

fn check(keys: &mut Keys<'_>) -> Check {
    let kinds = [
        ("none", "requests alone show how backends are", Check::None),
        ("tcp", "a connection has to come about", Check::Tcp),
        (
            "http",
            "GET of --health-path has to be answered with 200 to 399",
            Check::Http(String::new()),
        ),
    ];
    let check = keys.key("health_check", "How backends are looked at").default("none");
    let check = check.one(&one_of("check", kinds).called("HOW"));
    let path = keys.key("health_path", "With --health-check http: the path").default("/");
    let path = path.one(&target());
    if matches!(check, Check::Http(_)) { Check::Http(path) } else { check }
}

/// A path, with a query perhaps, as it stands in a request line.
fn target() -> Kind<String> {
    Kind::new("PATH", "a path such as /health", |text| {
        let is_sound = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_sound { Ok(text.to_owned()) } else { Err(String::new()) }
    })
}
