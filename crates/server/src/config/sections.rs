//! Settings of the sections of a proxy: front ends, groups of servers, and the servers themselves.

use std::path::PathBuf;
use std::time::Duration;

use pollux_engine::{Address, ListenAddress};
use pollux_http::{ProxyVersion, is_host_and_port};
use pollux_settings::{Keys, Kind, Table, integer, name, one_of, path, table};
use pollux_tls::server_name;

use crate::config::added;
use crate::config::answers::{fit_into_a_head, passed_rule};
use crate::config::backend_answers;
use crate::config::backend_answers::PassedAnswers;
use crate::config::named::place_of;
use crate::config::{
    ADDRESSES_MAX, AnswerRule, CONNECTIONS_MAX, ClientTls, RULES_MAX, Sticky, address,
    read_address, request_rule, timeout,
};
use crate::fields::FieldRule;
use crate::tls::Trust;

/// Most backends.
pub(super) const BACKENDS_MAX: usize = 256;
/// Longest name of a service that a check asks for: its length is a byte in the message.
const SERVICE_BYTES_MAX: usize = 100;
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
    /// What leads clients back to the one that they had, if something does.
    pub sticky: Option<Sticky>,
    /// When they are taken for up and down.
    pub health: Health,
    /// Whether each connection to them begins with a head of the PROXY protocol. Such a connection is
    /// one client's, and is not kept for others.
    pub sends_header: Option<ProxyVersion>,
    /// How TLS is spoken to them, where it is.
    pub tls: Option<ServerTls>,
    /// What requests go to them by.
    pub protocol: Protocol,
}

impl Table for GroupConfig {
    fn read(keys: &mut Keys<'_>) -> Self {
        let name = keys.key("name", "Name for [[frontend]]").required(&name());
        Self::read_named(keys, name.unwrap_or_default(), |keys| {
            keys.tables("server", SERVER, 1..=BACKENDS_MAX, BackendConfig::read)
        })
    }
}

impl GroupConfig {
    /// The group called `name`, whose servers are read last.
    pub(super) fn read_named(
        keys: &mut Keys<'_>,
        name: String,
        servers: impl FnOnce(&mut Keys<'_>) -> Vec<BackendConfig>,
    ) -> Self {
        let ways = Balance::ALL.map(|each| (each.name(), each.about(), each));
        let balance = keys.key("balance", "Which backend gets a request").default("round-robin");
        let balance = balance.one(&one_of("policy", ways).called("HOW"));
        let sticky = Sticky::read(keys, &name);
        let health = Health::read(keys);
        let about = "Send a PROXY protocol header on each connection to a backend; connections are then not reused \
                     for other clients";
        let versions =
            [("v1", "a line of text", ProxyVersion::V1), ("v2", "binary", ProxyVersion::V2)];
        let sends_header = keys.key("send_proxy", about);
        let sends_header = sends_header.optional(&one_of("version", versions).called("VERSION"));
        let tls = UpstreamTls::read(keys).tls();
        let protocol =
            keys.key("protocol", "What requests go to the backends by").default("http/1.1");
        let protocol = protocol.one(&Protocol::kind());
        if keys.is_right() {
            protocol.note_misfits(keys, tls.is_some(), &health.check);
        }
        let servers = servers(keys);
        let is_unnamed = tls.as_ref().is_some_and(|tls| tls.name.is_none());
        let unix = servers
            .iter()
            .find(|server| matches!(server.address, Address::Known(ListenAddress::Unix(_))));
        if let Some(unix) = unix.filter(|_| is_unnamed && keys.is_right()) {
            keys.note("tls", format!("{} has no name; expected one with sni", unix.address));
        }
        Self { name, servers, balance, sticky, health, sends_header, tls, protocol }
    }
}

/// What requests go to backends by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Protocol {
    /// HTTP/1.1, in TLS where that is used.
    #[default]
    Http1,
    /// HTTP/2 in TLS, which both sides agree on by ALPN.
    H2,
    /// HTTP/2 in clear text, which the backend is known to speak.
    H2c,
}

impl Protocol {
    fn kind() -> Kind<Self> {
        let http1 = "one request at a time on each connection";
        let h2 = "HTTP/2 in TLS, agreed on by ALPN: many requests on each connection";
        let h2c = "HTTP/2 in clear text, with prior knowledge: many requests on each connection";
        let protocols =
            [("http/1.1", http1, Self::Http1), ("h2", h2, Self::H2), ("h2c", h2c, Self::H2c)];
        one_of("protocol", protocols).called("PROTOCOL")
    }

    /// Its name in settings.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Http1 => "http/1.1",
            Self::H2 => "h2",
            Self::H2c => "h2c",
        }
    }

    /// Whether a connection carries many requests.
    #[inline]
    pub(crate) const fn is_http2(self) -> bool {
        matches!(self, Self::H2 | Self::H2c)
    }

    /// Notes what does not go with it.
    fn note_misfits(self, keys: &mut Keys<'_>, has_tls: bool, check: &Check) {
        if self == Self::H2 && !has_tls {
            keys.note(
                "protocol",
                "\"h2\" is HTTP/2 in TLS; expected tls beside it, or \"h2c\" for clear text",
            );
        }
        if self == Self::H2c && has_tls {
            keys.note("protocol", "\"h2c\" is HTTP/2 in clear text; expected \"h2\" beside tls");
        }
        if self.is_http2() && keys.has("send_proxy") {
            keys.note(
                "send_proxy",
                "names one client, and a connection of HTTP/2 carries requests of many; expected none beside \
                 protocol \"h2\" or \"h2c\"",
            );
        }
        if !self.is_http2() && matches!(check, Check::Grpc(_)) {
            keys.note(
                "health_check",
                "\"grpc\" is asked by HTTP/2; expected protocol \"h2c\" or \"h2\" as well",
            );
        }
    }
}

/// How requests are spread over backends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Balance {
    /// In turn, by weight.
    #[default]
    RoundRobin,
    /// The one with the fewest requests for its weight.
    Least,
    /// Of two picked at random, the one with fewer.
    Random,
    /// By the client's address.
    Client,
    /// By path and query.
    Path,
}

impl Balance {
    /// All of them, in the order of help texts.
    pub const ALL: [Self; 5] =
        [Self::RoundRobin, Self::Least, Self::Random, Self::Client, Self::Path];

    /// Name on command lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round-robin",
            Self::Least => "least",
            Self::Random => "random",
            Self::Client => "client",
            Self::Path => "path",
        }
    }

    const fn about(self) -> &'static str {
        match self {
            Self::RoundRobin => "in turn, by weight",
            Self::Least => "the one with the fewest requests for its weight",
            Self::Random => "of two picked at random, the one with fewer requests",
            Self::Client => "by the client's address: the same backend while it is up",
            Self::Path => "by path and query: the same backend while it is up",
        }
    }
}

table! { keys, key;
    /// A backend as it was configured.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct BackendConfig {
        /// HOST:PORT, [IPV6]:PORT or unix:PATH
        pub address: Address =
            key.required(&server_address()).unwrap_or_else(|| ListenAddress::Unix(PathBuf::new()).into()),
        /// Share of the requests in relation to the others
        pub weight: u32 = key.default("1").one(&integer(1..=WEIGHT_MAX.into())),
        /// Most connections to it at once, those without a request among them
        pub connections_max as "max_connections": Option<u32> =
            key.otherwise("that of --server-max-connections").optional(&integer(1..=CONNECTIONS_MAX)),
        /// When its name is looked up again
        pub resolve: Option<Resolve> = key.otherwise("every lookup_interval").optional(&resolve()),
    }
    => of_its_address
}

/// When the name of a server is looked up again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Resolve {
    /// So long after the last time, and earlier when a server of the name fails.
    Every(Duration),
    /// Never: it stays where it was found at the start, or by the last reload.
    Never,
}

fn resolve() -> Kind<Resolve> {
    let every = timeout();
    let accepts = format!("{}, or never", every.accepts());
    Kind::new("HOW", accepts, move |text| match text {
        "never" => Ok(Resolve::Never),
        text => every.read(text).map(Resolve::Every),
    })
}

/// The address of a server, which is one machine, or several by one name.
pub(super) fn server_address() -> Kind<Address> {
    let accepts = "HOST:PORT, [IPV6]:PORT or unix:PATH, such as 10.0.0.1:9000";
    Kind::new("ADDRESS", accepts, |text| match read_address(text)? {
        Address::Known(ListenAddress::Tcp(address)) if address.ip().is_unspecified() => {
            Err(format!(
                "{text} stands for every address of this machine; expected the address of a server"
            ))
        }
        address => Ok(address),
    })
}

impl BackendConfig {
    /// Refuses what is said of names where there is none.
    fn of_its_address(self, keys: &mut Keys<'_>) -> Self {
        if self.resolve.is_some()
            && keys.is_right()
            && !matches!(self.address, Address::Name { .. })
        {
            keys.note("resolve", "applies only to servers that are names of hosts; expected none");
        }
        self
    }

    /// The one at this address, with all defaults.
    pub(super) fn at(address: Address) -> Self {
        Self { address, weight: 1, connections_max: None, resolve: None }
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

const NO_TLS: &str = "applies only to TLS to backends";

table! { keys, key;
    /// What is said of TLS to servers.
    struct UpstreamTls {
        /// Use TLS to the backends
        is_spoken as "tls": bool = key.switch(),
        /// Name that is sent as SNI and required in the certificates of the backends
        name as "sni": Option<String> = key.otherwise("the name of each; of an address, which is not sent, the address")
            .needs("tls", NO_TLS)
            .optional(&Kind::new("NAME", "a name such as app.example, or an address", |text| {
                server_name(text).map(|_| text.to_owned())
            })),
        /// A PEM file with the authorities that signed the certificates of the backends, or with these
        /// themselves; a reload reads it again
        ca: Option<PathBuf> = key.otherwise("the authorities that this system trusts")
            .needs("tls", NO_TLS)
            .optional(&path()),
        /// How the certificate of a backend is verified
        is_verified as "verify": bool = key.default("full").needs("tls", NO_TLS).one(&verify()),
    }
    => consistent
}

impl UpstreamTls {
    fn consistent(self, keys: &mut Keys<'_>) -> Self {
        if self.ca.is_some() && !self.is_verified {
            keys.note("ca", "has no effect where nothing is verified; expected verify \"full\"");
        }
        self
    }

    fn tls(self) -> Option<ServerTls> {
        let trust = match self.ca {
            _ if !self.is_verified => Trust::AnyCertificate,
            Some(path) => Trust::File(path),
            None => Trust::System,
        };
        self.is_spoken.then_some(ServerTls { name: self.name, trust })
    }
}

fn verify() -> Kind<bool> {
    let full = "signed by a trusted authority, valid for the name, not expired";
    let none = "not at all: any machine on the network path may pose as the backend";
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
    /// To say by the health service of gRPC that this service is serving; an empty name stands for all of the server.
    Grpc(String),
}

/// When backends are taken for up and down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HealthRules {
    pub(crate) rise: u32,
    pub(crate) fall: u32,
    /// Without checks: how long a backend that is down gets no requests.
    pub(crate) down_time: Duration,
    pub(crate) has_checks: bool,
    pub(crate) slow_start: Duration,
}

table! { keys, key, default;
    /// When backends are taken for up and down.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Health {
        /// Kind of health check.
        pub check: Check = check(keys),
        /// With --health-check http or grpc: the Host
        pub host as "health_host": Option<String> =
            key.otherwise("--sni, else the name or address of each; localhost on a unix socket").optional(&host()),
        /// Time between two checks of a backend
        pub interval as "health_interval": Duration = key.default("2s").one(&timeout()),
        /// Time for a check
        pub timeout as "health_timeout": Duration = key.default("1s").one(&timeout()),
        /// Without checks: how long a backend that is down gets no requests
        pub down_time: Duration = key.default("5s").one(&timeout()),
        /// Time in which the share of a backend that came up grows to the whole one
        pub slow_start: Duration =
            key.otherwise("its whole share at once").optional(&timeout()).unwrap_or_default(),
        /// Good checks in a row after which a backend is up again
        pub rise: u32 = key.default("2").one(&integer(1..=1000)),
        /// Failures in a row, of requests or checks, after which a backend is down
        pub fall: u32 = key.default("3").one(&integer(1..=1000)),
    }
    => of_its_checks
}

impl Health {
    /// Refuses what is said of checks where there are none, and the other way round.
    fn of_its_checks(self, keys: &mut Keys<'_>) -> Self {
        let (names, why): (&[&str], _) = match self.check {
            Check::None => (
                &["health_interval", "health_timeout", "rise"],
                "applies only to checks; expected health_check as well",
            ),
            Check::Tcp | Check::Http(_) | Check::Grpc(_) => (
                &["down_time"],
                "applies only where there are no checks; expected none beside health_check",
            ),
        };
        let is_known = !keys.is_wrong("health_check");
        if self.host.is_some() && is_known && !matches!(self.check, Check::Http(_) | Check::Grpc(_))
        {
            keys.note("health_host", "applies only to health_check \"http\" and \"grpc\"");
        }
        for name in names {
            if is_known && keys.has(name) {
                keys.note(name, why);
            }
        }
        self
    }

    pub(crate) fn rules(&self) -> HealthRules {
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
        ("none", "no active checks; failed requests mark a backend as down", Check::None),
        ("tcp", "a connection has to be established", Check::Tcp),
        (
            "http",
            "GET of --health-path has to be answered with 200 to 399",
            Check::Http(String::new()),
        ),
        (
            "grpc",
            "the health service of gRPC has to say that --health-service is serving",
            Check::Grpc(String::new()),
        ),
    ];
    let check = keys.key("health_check", "How backends are checked").default("none");
    let check = check.one(&one_of("check", kinds).called("HOW"));
    let path = keys.key("health_path", "With --health-check http: the path").default("/");
    let path = path.one(&target());
    if keys.has("health_path") && keys.is_right() && !matches!(check, Check::Http(_)) {
        keys.note("health_path", "applies only to health_check \"http\"");
    }
    let about = "With --health-check grpc: the service that is asked for";
    let service = keys.key("health_service", about).otherwise("the server as a whole");
    let service = service.optional(&service_name());
    if service.is_some() && keys.is_right() && !matches!(check, Check::Grpc(_)) {
        keys.note("health_service", "applies only to health_check \"grpc\"");
    }
    match check {
        Check::Http(_) => Check::Http(path),
        Check::Grpc(_) => Check::Grpc(service.unwrap_or_default()),
        other => other,
    }
}

/// A service of gRPC, with its package.
fn service_name() -> Kind<String> {
    let accepts = "a service such as shop.v1.Orders, at most 100 bytes long";
    Kind::new("SERVICE", accepts, |text| {
        let is_in_name =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'/');
        let is_sound =
            (1..=SERVICE_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_in_name);
        if is_sound { Ok(text.to_owned()) } else { Err(String::new()) }
    })
}

/// What Host says.
fn host() -> Kind<String> {
    Kind::new("HOST", "a name or an address, with a port perhaps, such as app.example", |text| {
        let is_sound = !text.is_empty() && is_host_and_port(text.as_bytes());
        if is_sound { Ok(text.to_owned()) } else { Err(String::new()) }
    })
}

/// A path, with a query perhaps, as it stands in a request line.
fn target() -> Kind<String> {
    Kind::new("PATH", "a path such as /health", |text| {
        let is_sound = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_sound { Ok(text.to_owned()) } else { Err(String::new()) }
    })
}

pub(super) const LISTEN: &str = "HOST:PORT, :PORT (every address of this machine), [IPV6]:PORT or unix:PATH; \
                                 repeatable; port 0 takes a free one";

table! { keys, key, default;
    /// A front end: where clients come, and where their requests go.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Frontend {
        /// Where it listens; at least one.
        pub listen: Vec<Address> = Vec::new(),
        /// The place of its backends in [`ProxyConfig::groups`](crate::config::ProxyConfig::groups); none where sites say
        /// what answers.
        pub group: Option<usize> = Some(0),
        /// Whether requests are led to https.
        pub(crate) leads_to_https: bool = false,
        /// What is passed on
        pub mode: Mode = key.default("http").one(&Mode::kind()),
        /// What its clients speak TLS with.
        pub tls: ClientTls = ClientTls::read(keys),
        /// Require a PROXY protocol header (version 1 or 2) on each connection, which names the client: for
        /// clients that are proxies of your own
        pub accepts_header as "accept_proxy": bool = key.switch(),
        /// Most connections of one client, an address of IPv4 or 64 bits of one of IPv6, at once; more of them are
        /// closed without a word
        pub connections: Option<u32> =
            key.only_file().otherwise("no limit beside max_connections").optional(&integer(1..=CONNECTIONS_MAX)),
        /// What becomes of X-Forwarded-For, X-Forwarded-Proto and X-Forwarded-Host, which name the
        /// client to the backend; others that clients could claim to be somebody by (X-Real-IP, True-Client-IP,
        /// X-Forwarded-Port and all that docs/proxy.md lists) pass only with add and keep
        pub x_forwarded: Forwarding = key.default("replace").one(&Forwarding::kind()),
        /// What becomes of Forwarded (RFC 7239), which does the same
        pub forwarded: Forwarding = key.default("remove").one(&Forwarding::kind()),
        /// What is done to fields of its requests and their answers.
        pub rules: FieldRules = rules(keys),
        /// Its pages for answers of pollux's own.
        pub(crate) pages: Vec<(u16, PathBuf)> = Vec::new(),
        /// What becomes of answers of backends.
        pub(crate) passed: PassedAnswers = PassedAnswers::default(),
    }
    => of_its_mode
}

impl Frontend {
    /// Refuses rules for requests where bytes are passed on.
    fn of_its_mode(self, keys: &mut Keys<'_>) -> Self {
        if self.mode == Mode::Tcp {
            for name in
                ["connections", "x_forwarded", "forwarded", "request_field", "response_field"]
            {
                only_http(keys, name);
            }
        }
        self
    }

    /// What its clients speak.
    pub(super) fn scheme(&self) -> &'static str {
        if self.tls.is_on() { "https" } else { "http" }
    }

    /// That of a section, where these are the names of the groups, none where they are not known, and there are sites or not.
    pub(super) fn of_section(
        keys: &mut Keys<'_>,
        groups: Option<&[String]>,
        has_sites: bool,
    ) -> Self {
        let listen = keys.key("listen", LISTEN).list(&address(), 1..=ADDRESSES_MAX);
        let backend = keys.key("backend", "Name of the [[backend]] that requests go to");
        let backend = backend.otherwise("the sites, or the only one").optional(&name());
        let about = "Lead requests to https, at the same host and path (301; 308 for other methods than GET and HEAD), but \
                     for those of /.well-known/acme-challenge/";
        let redirect = keys.key("redirect", about).optional(&one_of("way", [("https", "", ())]));
        let front = Self { listen, leads_to_https: redirect.is_some(), ..Self::read(keys) };
        let about = "Compress text of answers of backends for clients that take it (br, zstd, gzip), unless a site or a route \
                     says otherwise";
        let compresses = keys.key("compress", about).switch();
        let compresses = backend_answers::said(keys, "compress", compresses);
        let pages = added::pages(keys);
        let passed = PassedAnswers::of(keys, compresses);
        let front = Self { pages, passed, ..front };
        if front.mode == Mode::Tcp {
            for name in ["compress", "compress_types", "compress_min", "error_page", "intercept"] {
                only_http(keys, name);
            }
        }
        if let Some(why) = front.passed.without_page(&front.pages).filter(|_| !has_sites) {
            keys.note("intercept", why);
        }
        if front.leads_to_https && front.tls.is_on() {
            keys.note(
                "redirect",
                "leads to itself: clients speak TLS here; expected it where there is no cert",
            );
        }
        if has_sites && backend.is_none() {
            if front.mode == Mode::Tcp {
                keys.note("mode", "\"tcp\" has no sites; expected a backend as well");
            }
            return Self { group: None, ..front };
        }
        if front.leads_to_https {
            keys.note("redirect", "applies only to sites; expected [[site]], and no backend here");
        }
        let Some(groups) = groups.filter(|_| !keys.is_wrong("backend")) else { return front };
        let Some(wanted) = backend else {
            if groups.len() != 1 {
                let what =
                    "[[frontend]] lacks the key \"backend\"; expected the name of a [[backend]]";
                keys.refuse(what);
            }
            return front;
        };
        let known = groups.iter().map(String::as_str);
        let group = place_of(keys, "backend", "backend", &wanted, known);
        Self { group: Some(group.unwrap_or_default()), ..front }
    }
}

/// Refuses a key that has no effect on bytes.
pub(super) fn only_http(keys: &mut Keys<'_>, name: &str) {
    if keys.has(name) {
        keys.note(name, "applies only to mode \"http\"; expected it there alone");
    }
}

/// What is done to fields of heads.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FieldRules {
    /// Of requests.
    pub request: Vec<FieldRule>,
    /// Of answers: those that are passed on, and the proxy's own.
    pub response: Vec<AnswerRule>,
}

pub(super) fn rules(keys: &mut Keys<'_>) -> FieldRules {
    let about = "Change a request field, such as \"set X-Env: prod\", \"set Host: app.example\" or \"remove Cookie\"; \
                 repeatable, applied in order";
    let request = keys.key("request_field", about).list(&request_rule(), 0..=RULES_MAX);
    let about = "Change a response field: [PATH] [STATUS] set|add NAME: VALUE, or remove NAME. PATH limits the \
                 rule to a path, to all below a folder (ends with /) or to a pattern with *, STATUS to \
                 statuses (404 or 2xx,304): '/assets/ 2xx set Cache-Control: max-age=31536000'. Repeatable, \
                 applied in order";
    let response = keys.key("response_field", about).list(&passed_rule(), 0..=RULES_MAX);
    fit_into_a_head(keys, &response, 0);
    FieldRules { request, response }
}

/// What a front end passes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Requests of HTTP/1.1.
    #[default]
    Http,
    /// Bytes.
    Tcp,
}

impl Mode {
    fn kind() -> Kind<Self> {
        let http = ("http", "requests of HTTP/1.1", Self::Http);
        one_of("mode", [http, ("tcp", "bytes, both ways", Self::Tcp)])
    }
}

/// What becomes of fields that name the client to the backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forwarding {
    /// The client's fields are passed on, with the proxy's own behind them.
    Add,
    /// The client's fields are dropped: no client can claim to be another one.
    Replace,
    /// The client's fields are passed on, and the proxy writes none.
    Keep,
    /// They are dropped.
    Remove,
}

impl Forwarding {
    fn kind() -> Kind<Self> {
        let replace = "the proxy writes them; what clients say is dropped";
        let add = "what the proxy knows is added after what clients say: for proxies of your own";
        let keep = "the client's fields are passed on unchanged, and nothing is added: for proxies of your own";
        let remove = "what clients say is dropped, and nothing is written";
        let ways = [
            ("replace", replace, Self::Replace),
            ("add", add, Self::Add),
            ("keep", keep, Self::Keep),
            ("remove", remove, Self::Remove),
        ];
        one_of("way", ways).called("HOW")
    }

    /// Whether what the client says of itself is passed on.
    pub(crate) fn believes(self) -> bool {
        matches!(self, Self::Add | Self::Keep)
    }

    /// Whether the proxy names the client.
    pub(crate) fn writes(self) -> bool {
        matches!(self, Self::Add | Self::Replace)
    }
}
