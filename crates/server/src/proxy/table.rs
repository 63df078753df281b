//! Every setting of the proxy: flags, keys of the file, help and defaults.

use pollux_engine::ListenAddress;
use pollux_http::ProxyVersion;
use pollux_settings::{
    Key, Keys, Kind, Table, address, bytes, did_you_mean, duration, name, one_of, path, whole,
};
use pollux_tls::server_name;

use super::backends::{BackendConfig, WEIGHT_MAX};
use super::balance::Balance;
use super::check::Check;
use super::config::{
    Forwarded, Frontend, GROUP_DEFAULT, GroupConfig, Health, Mode, ProxyConfig, ProxyLimits,
    ServerTls,
};
use super::rules::{FieldRule, FieldRules};
use crate::config::table::{
    ADDRESSES_MAX, BODY_BYTES_MAX, CONNECTIONS_MAX, TIMEOUT_MAX, TIMEOUT_MIN,
};
use crate::config::{Loops, Watching};
use crate::tls::{self, Trust};

/// Most backends.
const BACKENDS_MAX: usize = 256;
/// Most groups of backends.
const GROUPS_MAX: usize = 64;
/// Most idle upstream connections.
const IDLE_MAX: u64 = 65_536;
/// Most requests that wait for a connection to a backend.
const QUEUE_MAX: u64 = 100_000;

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
        keys.heading("Requests");
        let forwarded = keys
            .key(
                "forwarded",
                "Which fields tell the backend who asked; those of the client are dropped",
            )
            .default("x")
            .one(&one_of(
                "kind of fields",
                Forwarded::ALL.map(|each| (each.name(), about(each), each)),
            ));
        let trusts_forwarded = keys
            .key(
                "trust_forwarded",
                "Keep what clients say in these fields, in front of what the proxy adds: for clients \
                 that are proxies of your own",
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
            forwarded: forwarded?,
            trusts_forwarded: trusts_forwarded?,
            watching: watching?,
        })
    }
}

/// Front ends and the backends that they lead to: one of each by flags or at the top of the file, or
/// as many as there are sections.
fn ways(keys: &mut Keys<'_>) -> Option<(Vec<Frontend>, Vec<GroupConfig>)> {
    let listen = listen(keys.key("listen", LISTEN).default("127.0.0.1:8080"));
    let mode = mode(keys);
    let tls = tls(keys);
    let accepts_header = accepts_header(keys);
    let rules = rules(keys);
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
    let (mode, tls, accepts_header) = (mode?, tls?, accepts_header?);
    let (sends_header, server_tls) = (sends_header?, server_tls?);
    let one = |address| BackendConfig { address, weight: 1, connections_max: None };
    let servers: Vec<_> = addresses?.into_iter().map(one).chain(servers?).collect();
    if groups.is_empty() && frontends.is_empty() {
        if servers.is_empty() {
            keys.refuse("no backend; expected --backend ADDRESS, or [[server]] in the file");
            return None;
        }
        let (name, tls_to) = (GROUP_DEFAULT.to_owned(), named(keys, server_tls, &servers)?);
        return Some((
            vec![Frontend { listen, mode, tls, group: 0, accepts_header, rules: rules? }],
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

/// What is done to fields of heads.
fn rules(keys: &mut Keys<'_>) -> Option<FieldRules> {
    let rule = || {
        let accepts = "\"set NAME: VALUE\", \"add NAME: VALUE\" or \"remove NAME\"";
        Kind::new("RULE", accepts, FieldRule::read)
    };
    let request = keys
        .key("request_field", "What is done to a field of requests; repeatable, in this order")
        .list(&rule(), 0..=RULES_MAX);
    let response = keys
        .key("response_field", "What is done to a field of answers; repeatable, in this order")
        .list(&rule(), 0..=RULES_MAX);
    Some(FieldRules { request: request?, response: response? })
}

/// Most rules for fields of requests, and of answers.
const RULES_MAX: usize = 64;

/// Keys of the one group that has no section.
const SIMPLE: [&str; 23] = [
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
const LISTEN: &str = "HOST:PORT, :PORT (every address of this machine), [IPV6]:PORT or unix:PATH; \
                      repeatable; port 0 takes a free one";
const SERVER: &str = "A server that requests go to, with its weight";

fn listen(key: Key<'_, '_>) -> Option<Vec<ListenAddress>> {
    key.list(&address(), 1..=ADDRESSES_MAX)
}

fn mode(keys: &mut Keys<'_>) -> Option<Mode> {
    let modes =
        [("http", "requests of HTTP/1.1", Mode::Http), ("tcp", "bytes, both ways", Mode::Tcp)];
    keys.key("mode", "What is passed on").default("http").one(&one_of("mode", modes))
}

fn tls(keys: &mut Keys<'_>) -> Option<Option<tls::Keys>> {
    let cert = keys
        .key(
            "cert",
            "Speak TLS to clients: a PEM file with the certificate and those that lead to an authority; \
             a reload reads it again",
        )
        .needs("key", "it is no use without its key")
        .optional(&path());
    let key = keys
        .key("key", "The PEM file with the certificate's private key")
        .needs("cert", "it is of a certificate")
        .optional(&path());
    let (cert, key) = (cert?, key?);
    // One without the other was noted.
    Some(cert.zip(key).map(|(cert, key)| tls::Keys { cert, key }))
}

fn accepts_header(keys: &mut Keys<'_>) -> Option<bool> {
    keys.key(
        "accept_proxy",
        "Each connection has to begin with a head of the PROXY protocol (version 1 or 2) that says \
         whose it is: for clients that are proxies of your own",
    )
    .switch()
}

fn sends_header(keys: &mut Keys<'_>) -> Option<Option<ProxyVersion>> {
    let versions = [("v1", "a line of text", ProxyVersion::V1), ("v2", "binary", ProxyVersion::V2)];
    keys.key(
        "send_proxy",
        "Begin each connection to a backend with a head of the PROXY protocol; it is then not kept \
         for other clients",
    )
    .optional(&one_of("version", versions).called("VERSION"))
}

/// How TLS is spoken to servers, if it is.
fn server_tls(keys: &mut Keys<'_>) -> Option<Option<ServerTls>> {
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
fn named(
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

fn balance(keys: &mut Keys<'_>) -> Option<Balance> {
    let ways = Balance::ALL.map(|each| (each.name(), each.about(), each));
    keys.key("balance", "Which backend gets a request")
        .default("round-robin")
        .one(&one_of("way", ways).called("HOW"))
}

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

/// A front end, where these are the names of the groups; none where they are not known.
fn frontend(keys: &mut Keys<'_>, groups: Option<&[String]>) -> Option<Frontend> {
    let listen = listen(keys.key("listen", LISTEN));
    let backend = keys
        .key("backend", "Name of the [[backend]] that requests go to")
        .otherwise("the only one")
        .optional(&name());
    let mode = mode(keys);
    let (tls, accepts_header, rules) = (tls(keys), accepts_header(keys), rules(keys));
    let (listen, backend, groups) = (listen?, backend?, groups?);
    let (mode, tls, accepts_header, rules) = (mode?, tls?, accepts_header?, rules?);
    match (backend, groups) {
        (None, [_]) => Some(Frontend { listen, mode, tls, group: 0, accepts_header, rules }),
        (None, _) => {
            keys.refuse(
                "[[frontend]] lacks the key \"backend\"; expected the name of a [[backend]]",
            );
            None
        }
        (Some(wanted), _) => match groups.iter().position(|name| *name == wanted) {
            Some(group) => Some(Frontend { listen, mode, tls, group, accepts_header, rules }),
            None => {
                let near = did_you_mean(&wanted, groups.iter().map(String::as_str));
                keys.note("backend", format!("no [[backend]] is called \"{wanted}\"{near}"));
                None
            }
        },
    }
}

fn about(forwarded: Forwarded) -> &'static str {
    match forwarded {
        Forwarded::X => "X-Forwarded-For, X-Forwarded-Proto and X-Forwarded-Host",
        Forwarded::Standard => "Forwarded (RFC 7239)",
        Forwarded::Both => "all four",
        Forwarded::Neither => "none of them",
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

impl Table for ProxyLimits {
    fn read(keys: &mut Keys<'_>) -> Option<Self> {
        let timeout = duration(TIMEOUT_MIN..=TIMEOUT_MAX);
        let connections_max = keys
            .key("max_connections", "Most client connections at once, and as many to backends")
            .otherwise("what the descriptor limit allows, at most 100000")
            .optional(&whole(1..=CONNECTIONS_MAX));
        let mut time = |name, about, default| keys.key(name, about).default(default).one(&timeout);
        let header_timeout = time("header_timeout", "Time for a whole request head", "10s");
        let idle_timeout = time("idle_timeout", "Time between two requests of a connection", "60s");
        let connect_timeout =
            time("connect_timeout", "Time for a connection to a backend to come about", "5s");
        let first_byte_timeout = time(
            "first_byte_timeout",
            "Time from a request that was sent whole to the first byte of its answer",
            "60s",
        );
        let body_timeout = time(
            "body_timeout",
            "Longest time without a byte in the middle of a body, in either direction",
            "30s",
        );
        let request_timeout =
            time("request_timeout", "Time for a request and its answer together", "1h");
        let tunnel_timeout = time(
            "tunnel_timeout",
            "Longest time without a byte in either direction after an upgrade (WebSocket)",
            "1h",
        );
        let upstream_idle_timeout = time(
            "upstream_idle_timeout",
            "Time that a connection to a backend is kept without a request; shorter than the \
             backend's own",
            "20s",
        );
        let write_timeout = time(
            "write_timeout",
            "Longest time in which a peer takes nothing of what was sent to it",
            "60s",
        );
        let drain_timeout = time(
            "drain_timeout",
            "Time that connections have to end after a first SIGTERM or SIGINT",
            "10s",
        );
        let body_bytes_max = keys
            .key("max_body", "Largest request body")
            .default("1GiB")
            .one(&bytes(0..=BODY_BYTES_MAX));
        let upstream_idle_max = keys
            .key(
                "upstream_idle_max",
                "Most connections to each backend that are kept without a request",
            )
            .default("1024")
            .one(&whole(0..=IDLE_MAX));
        let upstream_idle_total = keys
            .key(
                "upstream_idle_total",
                "Most connections to all backends together that are kept without a request",
            )
            .default("16384")
            .one(&whole(0..=IDLE_MAX));
        let pipes_max = keys
            .key(
                "pipes_max",
                "Most pipes that bytes of TCP mode go through in the kernel, two for each connection while \
                 something is under way; others go through buffers, as all do with 0 and in TLS",
            )
            .default("1024")
            .one(&whole(0..=IDLE_MAX));
        let queue_max = keys
            .key(
                "queue_max",
                "Most requests that wait for a connection to each backend; others get 503",
            )
            .default("1024")
            .one(&whole(0..=QUEUE_MAX));
        let queue_timeout = keys
            .key("queue_timeout", "Time for a request to wait for a connection, then it gets 503")
            .default("5s")
            .one(&timeout);
        let half_close = keys
            .key("half_close", "What becomes of a request whose client ends its side meanwhile")
            .default("answer")
            .one(&one_of(
                "way",
                [
                    (
                        "answer",
                        "it is answered: the client may only have nothing more to ask",
                        true,
                    ),
                    ("drop", "it is dropped: the client is taken for gone", false),
                ],
            ));
        Some(Self {
            header_timeout: header_timeout?,
            idle_timeout: idle_timeout?,
            connect_timeout: connect_timeout?,
            first_byte_timeout: first_byte_timeout?,
            body_timeout: body_timeout?,
            request_timeout: request_timeout?,
            tunnel_timeout: tunnel_timeout?,
            upstream_idle_timeout: upstream_idle_timeout?,
            write_timeout: write_timeout?,
            drain_timeout: drain_timeout?,
            body_bytes_max: body_bytes_max?,
            connections_max: connections_max?,
            upstream_idle_max: upstream_idle_max?,
            upstream_idle_total: upstream_idle_total?,
            pipes_max: pipes_max?,
            queue_max: queue_max?,
            queue_timeout: queue_timeout?,
            answers_half_closed: half_close?,
        })
    }
}

#[cfg(test)]
mod tests;
