//! Settings of a group of servers: who they are, how they are chosen, looked at and spoken to.

use pollux_engine::ListenAddress;
use pollux_http::ProxyVersion;
use pollux_settings::{Keys, Kind, Table, duration, name, one_of, path, whole};
use pollux_tls::server_name;

use super::BACKENDS_MAX;
use crate::config::table::{CONNECTIONS_MAX, TIMEOUT_MAX, TIMEOUT_MIN};
use crate::proxy::backends::{BackendConfig, WEIGHT_MAX};
use crate::proxy::balance::Balance;
use crate::proxy::check::Check;
use crate::proxy::config::{GroupConfig, Health, ServerTls};
use crate::tls::Trust;

pub(super) const SERVER: &str = "A server that requests go to, with its weight";

impl Table for GroupConfig {
    fn read(keys: &mut Keys<'_>) -> Option<Self> {
        let name = keys.key("name", "Name for [[frontend]]").required(&name());
        let balance = balance(keys);
        let health = Health::read(keys);
        let (sends_header, tls) = (sends_header(keys), server_tls(keys));
        let servers = keys.tables("server", SERVER, 1..=BACKENDS_MAX, BackendConfig::read);
        let (balance, health, sends_header) = (balance?, health?, sends_header?);
        let (name, servers) = (name?, servers?);
        let tls = named(keys, tls?, &servers)?;
        Some(Self { name, servers, balance, health, sends_header, tls })
    }
}

impl Table for BackendConfig {
    fn read(keys: &mut Keys<'_>) -> Option<Self> {
        let address = keys.key("address", "HOST:PORT, [IPV6]:PORT or unix:PATH");
        let address = address.required(&pollux_settings::address());
        let weight = keys.key("weight", "Share of the requests in relation to the others");
        let weight = weight.default("1").one(&whole(1..=WEIGHT_MAX.into()));
        let connections_max = keys
            .key(
                "max_connections",
                "Most connections to it at once, those without a request among them",
            )
            .otherwise("that of --server-max-connections")
            .optional(&whole(1..=CONNECTIONS_MAX));
        Some(Self { address: address?, weight: weight?, connections_max: connections_max? })
    }
}

pub(super) fn balance(keys: &mut Keys<'_>) -> Option<Balance> {
    let ways = Balance::ALL.map(|each| (each.name(), each.about(), each));
    keys.key("balance", "Which backend gets a request")
        .default("round-robin")
        .one(&one_of("way", ways).called("HOW"))
}

pub(super) fn sends_header(keys: &mut Keys<'_>) -> Option<Option<ProxyVersion>> {
    let versions = [("v1", "a line of text", ProxyVersion::V1), ("v2", "binary", ProxyVersion::V2)];
    keys.key(
        "send_proxy",
        "Begin each connection to a backend with a head of the PROXY protocol; it is then not kept \
         for other clients",
    )
    .optional(&one_of("version", versions).called("VERSION"))
}

/// How TLS is spoken to servers, if it is.
pub(super) fn server_tls(keys: &mut Keys<'_>) -> Option<Option<ServerTls>> {
    let is_spoken = keys.key("tls", "Speak TLS to these servers").switch();
    let why = "it is of no use without TLS to servers";
    let name = keys
        .key("sni", "Name that the servers are asked for and that their certificates have to have")
        .otherwise("the address of each, which is not sent")
        .needs("tls", why)
        .optional(&Kind::new("NAME", "a name such as app.example, or an address", |text| {
            server_name(text).map(|_| text.to_owned())
        }));
    let ca = keys
        .key(
            "ca",
            "A PEM file with the authorities that have signed the servers' certificates, or with these \
             themselves; a reload reads it again",
        )
        .otherwise("the authorities that this system trusts")
        .needs("tls", why)
        .optional(&path());
    let ways = [
        ("full", "it has to be signed by an authority, for the name, and in its time", true),
        ("none", "nothing: whoever is on the way may be the server", false),
    ];
    let verify = keys
        .key("verify", "What is looked at in the certificate of a server")
        .default("full")
        .needs("tls", why)
        .one(&one_of("check", ways));
    let (is_spoken, name, ca, verify) = (is_spoken?, name?, ca?, verify?);
    if ca.is_some() && !verify {
        keys.note("ca", "is of no use where nothing is verified; expected verify \"full\"");
        return None;
    }
    let trust = match ca {
        _ if !verify => Trust::Anybody,
        Some(path) => Trust::File(path),
        None => Trust::System,
    };
    Some(is_spoken.then_some(ServerTls { name, trust }))
}

/// Whether each of the servers has a name, where TLS is spoken to them.
pub(super) fn named(
    keys: &mut Keys<'_>,
    tls: Option<ServerTls>,
    servers: &[BackendConfig],
) -> Option<Option<ServerTls>> {
    let is_unnamed = tls.as_ref().is_some_and(|tls| tls.name.is_none());
    let unix = servers.iter().find(|server| matches!(server.address, ListenAddress::Unix(_)));
    if let Some(unix) = unix.filter(|_| is_unnamed) {
        keys.note("tls", format!("{} has no name; expected one with sni", unix.address));
        return None;
    }
    Some(tls)
}

impl Table for Health {
    fn read(keys: &mut Keys<'_>) -> Option<Self> {
        let timeout = duration(TIMEOUT_MIN..=TIMEOUT_MAX);
        let kinds = [
            ("none", "requests alone show how backends are", Check::None),
            ("tcp", "a connection has to come about", Check::Tcp),
            (
                "http",
                "GET of --health-path has to be answered with 200 to 399",
                Check::Http(String::new()),
            ),
        ];
        let check = keys
            .key("health_check", "How backends are looked at")
            .default("none")
            .one(&one_of("check", kinds).called("HOW"));
        let path = keys
            .key("health_path", "With --health-check http: the path")
            .default("/")
            .one(&target());
        let mut time = |name, about, default| keys.key(name, about).default(default).one(&timeout);
        let interval = time("health_interval", "Time between two checks of a backend", "2s");
        let limit = time("health_timeout", "Time for a check", "1s");
        let down_time = time(
            "down_time",
            "Without checks: how long a backend that is down gets no requests",
            "5s",
        );
        let slow_start = keys
            .key(
                "slow_start",
                "Time in which a backend that came up is given its share little by little",
            )
            .otherwise("its whole share at once")
            .optional(&timeout);
        let rows = whole(1..=1000);
        let rise = keys
            .key("rise", "Good checks in a row after which a backend is up again")
            .default("2")
            .one(&rows);
        let fall = keys
            .key("fall", "Failures in a row, of requests or checks, after which a backend is down")
            .default("3")
            .one(&rows);
        let (check, path) = (check?, path?);
        Some(Self {
            check: if matches!(check, Check::Http(_)) { Check::Http(path) } else { check },
            interval: interval?,
            timeout: limit?,
            rise: rise?,
            fall: fall?,
            down_time: down_time?,
            slow_start: slow_start?.unwrap_or_default(),
        })
    }
}

/// A path, with a query perhaps, as it stands in a request line.
fn target() -> Kind<String> {
    Kind::new("PATH", "a path such as /health", |text| {
        let is_sound = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_sound { Ok(text.to_owned()) } else { Err(String::new()) }
    })
}
