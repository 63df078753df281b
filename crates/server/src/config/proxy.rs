//! Every setting of the proxy: flags, keys of the file, help and defaults, and what they are read as.
//! The command line fills it; nothing is opened here.

use std::net::SocketAddr;
use std::time::Duration;

use pollux_engine::{Address, ListenAddress};
use pollux_settings::{Keys, Kind, Table, bytes, integer, one_of, table};

use crate::config::acme;
use crate::config::descriptors::{CONNECTIONS_DEFAULT, KEPT, limit, without_files};
use crate::config::rates::{self, LimitConfig};
use crate::config::sections;
use crate::config::sites;
use crate::config::sites::Known;
use crate::config::sites::RouteAnswer;
use crate::config::users;
use crate::config::written_paths::note_shared_paths;
use crate::config::{
    ADDRESSES_MAX, CONNECTIONS_MAX, Http2, Limits, Loops, Monitoring, UnixSockets, address,
    elsewhere, foreign_keys, identity, note_overlap, note_unix_only, timeout,
};
use crate::config::{
    BackendConfig, Frontend, GroupConfig, Health, Mode, Protocol, RouteConfig, Sites,
};
use crate::identity::Identity;

/// The name of the group that has no section of its own.
pub(crate) const GROUP_DEFAULT: &str = "default";
/// Most groups of backends.
const GROUPS_MAX: usize = 64;
/// Most workers of earlier settings that keep tunnels: each is a process with its memory.
const TUNNEL_WORKERS_MAX: u64 = 1024;
/// Most patterns of files that are included.
const INCLUDES_MAX: usize = 64;
/// Most idle upstream connections.
const IDLE_MAX: u64 = 65_536;
/// Bounds of what streams of HTTP/2 may hold: at least what a few do.
const WAITING_BYTES_MIN: u64 = 1 << 20;
const WAITING_BYTES_MAX: u64 = 1 << 40;
/// Most requests that wait for a connection to a backend.
const QUEUE_MAX: u64 = 100_000;

/// Limits without a meaning where every front end passes on bytes.
const HTTP_LIMITS: [&str; 19] = [
    "idle_timeout",
    "first_byte_timeout",
    "body_timeout",
    "body_rate_min",
    "request_timeout",
    "upstream_idle_timeout",
    "max_body",
    "max_head",
    "max_fields",
    "max_target",
    "upstream_idle_max",
    "upstream_idle_total",
    "queue_max",
    "queue_timeout",
    "half_close",
    "no_http2",
    "http2_streams",
    "http2_requests",
    "http2_waiting_max",
];

/// A proxy's configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProxyConfig {
    /// Where clients come; at least one.
    pub frontends: Vec<Frontend>,
    /// Where requests go; at least one where there are no sites.
    pub groups: Vec<GroupConfig>,
    /// What answers at front ends that lead to no backend.
    pub sites: Sites,
    /// How often each client may ask, where a route of a site says which of them holds.
    pub rates: Vec<LimitConfig>,
    /// Whether and how clients may speak HTTP/2.
    pub http2: Http2,
    /// Who may connect to its unix sockets.
    pub sockets: UnixSockets,
    /// The user that its workers become; none for the one that started it.
    pub identity: Option<Identity>,
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
        let Ways { frontends, mut groups, sites, rates } = ways(keys);
        let about = "Most connections to each server at once, for those that have no max_connections of \
                     their own; requests beyond wait";
        let most = keys.key("server_max_connections", about).otherwise("no limit");
        let most = most.optional(&integer(1..=CONNECTIONS_MAX));
        let is_tcp = keys.is_right() && frontends.iter().all(|front| front.mode == Mode::Tcp);
        if is_tcp {
            sections::only_http(keys, "server_max_connections");
        }
        let servers = groups.iter_mut().flat_map(|group| &mut group.servers);
        servers.for_each(|each| each.connections_max = each.connections_max.or(most));
        if keys.is_right()
            && let Some(wrong) = wrong(&frontends, &groups)
        {
            keys.refuse(wrong);
        }
        keys.heading("HTTP/2");
        let http2 = Http2::read(keys);
        keys.heading("Unix sockets");
        let sockets = UnixSockets::read(keys);
        keys.heading("User");
        let identity = identity(keys);
        let loops = Loops::read(keys);
        let about = "For measurements: deregister a connection as soon as another thread takes it over, instead of \
                     with the next update";
        let lets_go_at_once = keys.key("let_go_at_once", about).switch();
        keys.heading("Limits");
        let limits = ProxyLimits::read(keys);
        let monitoring = Monitoring::read(keys);
        let listen: Vec<_> =
            frontends.iter().flat_map(|each| each.listen.iter().cloned()).collect();
        note_overlap(keys, &listen, &monitoring);
        note_shared_paths(keys, &listen, &monitoring);
        note_unix_only(keys, &listen, &monitoring);
        foreign_keys(keys);
        elsewhere(
            keys,
            &[
                ("upstream", "nginx's; servers are --backend ADDRESS, or [[server]] in a file"),
                ("proxy_pass", "nginx's; servers are --backend ADDRESS, or [[server]] in a file"),
                ("proxy_connect_timeout", "nginx's; the time for a connect is connect_timeout"),
                ("proxy_read_timeout", "nginx's; the time for an answer is first_byte_timeout"),
            ],
        );
        if keys.is_right() && frontends.iter().all(|front| front.tls.is_on()) {
            no_effect(keys, "pipes_max", "has no effect where all clients speak TLS");
        }
        let mut servers = groups.iter().flat_map(|group| &group.servers);
        if keys.is_right() && !servers.any(|it| matches!(it.address, Address::Name { .. })) {
            no_effect(keys, "lookup_interval", "applies only to servers that are names of hosts");
        }
        if keys.is_right() && limits.queue_max == 0 {
            no_effect(
                keys,
                "queue_timeout",
                "has no effect beside queue_max = 0: no request waits",
            );
        }
        if is_tcp {
            HTTP_LIMITS.iter().for_each(|name| sections::only_http(keys, name));
        }
        Self {
            frontends,
            groups,
            sites,
            rates,
            http2,
            sockets,
            identity,
            loops,
            lets_go_at_once,
            limits,
            monitoring,
        }
    }
}

/// Refuses a key that has no effect as the others are.
fn no_effect(keys: &mut Keys<'_>, name: &str, why: &str) {
    if keys.has(name) {
        keys.note(name, why);
    }
}

/// Where clients come, and what answers them.
struct Ways {
    frontends: Vec<Frontend>,
    groups: Vec<GroupConfig>,
    sites: Sites,
    rates: Vec<LimitConfig>,
}

/// Front ends and the backends that they lead to: one of each by flags or at the top of the file, or
/// as many as there are sections.
fn ways(keys: &mut Keys<'_>) -> Ways {
    let has_sites = keys.names("site");
    let listen = keys.key("listen", sections::LISTEN).default("127.0.0.1:8080");
    let listen = listen.list(&address(), 1..=ADDRESSES_MAX);
    let front = Frontend { listen, ..Frontend::read(keys) };
    let said_of_front = keys.first_given();
    let about = "HOST:PORT, [IPV6]:PORT or unix:PATH of a server that requests go to; each address of a host is a server; \
                 repeatable";
    let addresses = keys
        .key("backend", about)
        .only_flag()
        .list(&sections::server_address(), 0..=sections::BACKENDS_MAX);
    let has_flags = !addresses.is_empty();
    let of_file =
        keys.tables("server", sections::SERVER, 0..=sections::BACKENDS_MAX, BackendConfig::read);
    let has_servers = !of_file.is_empty();
    let servers = addresses.into_iter().map(BackendConfig::at).chain(of_file).collect();
    keys.heading("Backends");
    let group = GroupConfig::read_named(keys, GROUP_DEFAULT.to_owned(), |_| servers);
    let said = keys.first_given();
    let said_of_group = keys.first_given_of(&GROUP_KEYS);
    let before = keys.mistakes();
    let about = "Servers that answer the same requests, where there are several such groups";
    let groups = keys.tables("backend", about, 0..=GROUPS_MAX, GroupConfig::read);
    // None where those are wrong: which names they have is not known then.
    let are_right = keys.mistakes() == before;
    let names =
        are_right.then(|| groups.iter().map(|group| group.name.clone()).collect::<Vec<_>>());
    let about = "Where clients come, and the backends that their requests go to";
    let frontends = keys.tables("frontend", about, 0..=ADDRESSES_MAX, |keys| {
        Frontend::of_section(keys, names.as_deref(), has_sites)
    });
    let rates = rates::limits(keys);
    let users = users::users(keys);
    included(keys);
    let fronts_of_sites = if frontends.is_empty() {
        vec![Frontend { group: None, ..front.clone() }]
    } else {
        frontends.clone()
    };
    let known = Known { limits: &rates, users };
    let sites = sites_of(keys, names.as_deref(), &fronts_of_sites, known);
    if let Some(sites) = sites.filter(|_| has_sites) {
        let ways = Ways { frontends: fronts_of_sites, groups, sites, rates };
        let said =
            Said { of_front: said_of_front, of_group: said_of_group, has_servers, has_flags };
        ways.consistent_sites(keys, said);
        return ways;
    }
    let ways = Ways { frontends, groups, sites: Sites::default(), rates };
    ways.without_sites(keys, (front, group), said, has_servers)
}

/// Names the files that are read with this one.
fn included(keys: &mut Keys<'_>) {
    keys.heading("Sites");
    let about = "Read these files as well, by names with * from the folder of this one: [[site]], [[backend]] and other such sections, \
                 in the order of their names";
    let pattern = Kind::new("FILES", "names such as sites/*.toml", |text| {
        if text.is_empty() { Err(String::new()) } else { Ok(text.to_owned()) }
    });
    // They were taken in with the file.
    let key = keys.key("include", about).only_file().example("\"sites/*.toml\"");
    key.list(&pattern, 0..=INCLUDES_MAX);
}

/// The sites, which front ends without a backend have; none where there are none, and then nothing may be said that is for them
/// alone.
fn sites_of(
    keys: &mut Keys<'_>,
    names: Option<&[String]>,
    frontends: &[Frontend],
    known: Known<'_>,
) -> Option<Sites> {
    if !keys.names("site") && !keys.is_describing() {
        keys.foreign("trusted_proxies", || {
            "trusted_proxies: applies only to sites, whose allow and deny it is for; expected [[site]]"
                .to_owned()
        });
        for name in ["request_id", "request_id_answer", "acme_challenges"] {
            keys.foreign(name, || format!("{name}: applies only to sites; expected [[site]]"));
        }
        return None;
    }
    let mut sites = sites::sites(keys, names, frontends, known);
    if let Some(folder) = acme::challenges(keys) {
        acme::answer_challenges(&mut sites.all, &folder);
        sites.challenges = Some(folder);
    }
    let leads_round = |front: &Frontend| front.leads_to_https && !front.x_forwarded.believes();
    let speaks_tls = |front: &Frontend| front.group.is_none() && front.tls.is_on();
    if !frontends.iter().any(speaks_tls) && frontends.iter().any(leads_round) {
        sites.warnings.push(HTTPS_NOWHERE.to_owned());
    }
    sites.warnings.extend(open_passwords(&sites, frontends));
    sites.warnings.extend(one_for_all(&sites, frontends));
    Some(sites)
}

/// What is said where passwords are asked for on a connection that others can read on the way.
fn open_passwords(sites: &Sites, frontends: &[Frontend]) -> Option<String> {
    let asks = sites.routes().any(|route| route.users.is_some());
    let is_open = |front: &&Frontend| {
        let is_guarded = front.tls.is_on() || front.leads_to_https || front.x_forwarded.believes();
        front.group.is_none() && !is_guarded
    };
    let front = frontends.iter().find(is_open).filter(|_| asks)?;
    let listen: Vec<String> = front.listen.iter().map(ToString::to_string).collect();
    Some(format!(
        "users: passwords that come by {} can be read on their way, as no TLS is spoken there; expected cert and key, or redirect \
         = \"https\", in its [[frontend]]",
        listen.join(" ")
    ))
}

/// What is said where wrong passwords of any client are held against all, as none of them has an address.
fn one_for_all(sites: &Sites, frontends: &[Frontend]) -> Option<String> {
    let asks = sites.routes().any(|route| route.users.is_some());
    if !asks || sites.trusted.has_unix_sockets {
        return None;
    }
    let fronts = frontends.iter().filter(|front| front.group.is_none() && !front.accepts_header);
    let mut listens = fronts.flat_map(|front| &front.listen);
    let unix = listens.find(|at| matches!(at, Address::Known(ListenAddress::Unix(_))))?;
    Some(format!(
        "users: clients that come by {unix} have no address, so that ten wrong passwords of one hold up all; expected \"unix:\" in \
         trusted_proxies where a proxy in front says whose request it is, or accept_proxy"
    ))
}

/// What is said where every request is led to what nobody here speaks.
const HTTPS_NOWHERE: &str = "redirect = \"https\" leads to https, which no [[frontend]] with the sites speaks, and no proxy in front is \
                             believed to (x_forwarded \"add\" or \"keep\"): its clients may be led round";

/// Keys of a group that has no section of its own.
const GROUP_KEYS: [&str; 21] = [
    "protocol",
    "balance",
    "sticky",
    "sticky_cookie",
    "sticky_secret",
    "sticky_same_site",
    "health_check",
    "health_path",
    "health_host",
    "health_service",
    "health_interval",
    "health_timeout",
    "down_time",
    "slow_start",
    "rise",
    "fall",
    "send_proxy",
    "tls",
    "sni",
    "ca",
    "verify",
];

/// What is said at the top of a file, or by flags, beside sites.
#[derive(Clone, Copy)]
struct Said {
    of_front: Option<&'static str>,
    of_group: Option<&'static str>,
    has_servers: bool,
    has_flags: bool,
}

impl Ways {
    /// These where there are no sites: where no section has a front end and backends, it is the ones of flags or of the top
    /// of the file, of which `said` is a key that was said.
    fn without_sites(
        self,
        keys: &mut Keys<'_>,
        (front, group): (Frontend, GroupConfig),
        said: Option<&'static str>,
        has_servers: bool,
    ) -> Self {
        if keys.names("users") && keys.is_right() {
            keys.refuse("[[users]] applies only to sites; expected [[site]] as well");
        }
        if !self.rates.is_empty() && keys.is_right() {
            keys.refuse("[[limit]] applies only to sites; expected [[site]] as well");
        }
        let groups = &self.groups;
        let twice = |at: &usize| groups[..*at].iter().any(|other| other.name == groups[*at].name);
        match said {
            _ if !keys.is_right() => {}
            _ if groups.is_empty() && self.frontends.is_empty() => {
                if group.servers.is_empty() {
                    keys.refuse(
                        "no backend; expected --backend ADDRESS, or [[server]] in the file",
                    );
                }
                return Self {
                    frontends: vec![front],
                    groups: vec![group],
                    sites: Sites::default(),
                    rates: Vec::new(),
                };
            }
            Some(name) => {
                keys.note(
                    name,
                    "has no effect beside [[frontend]] and [[backend]]; expected it in them",
                );
            }
            None if has_servers => {
                keys.refuse("[[server]] is outside of [[backend]]; expected [[backend.server]] beside [[backend]]");
            }
            None if groups.is_empty() || self.frontends.is_empty() => {
                keys.refuse("expected [[frontend]] and [[backend]] sections, at least one of each");
            }
            None => {
                if let Some(at) = (0..groups.len()).find(twice) {
                    let name = &groups[at].name;
                    keys.refuse(format!("two [[backend]] sections are called \"{name}\""));
                }
            }
        }
        Self { rates: Vec::new(), ..self }
    }

    /// Notes what has no place beside sites.
    fn consistent_sites(&self, keys: &mut Keys<'_>, said: Said) {
        if !keys.is_right() {
            return;
        }
        let has_sections = keys.names("frontend");
        let names = || self.groups.iter().map(|group| &group.name);
        let twice =
            names().enumerate().find(|(at, name)| names().take(*at).any(|one| one == *name));
        match said {
            Said { of_front: Some(name), .. } if has_sections => {
                keys.note(name, "has no effect beside [[frontend]]; expected it in them");
            }
            Said { of_group: Some(name), .. } => {
                keys.note(name, "has no effect beside [[site]]; expected it in [[backend]]");
            }
            Said { has_flags: true, .. } => {
                keys.note("backend", "has no effect beside [[site]]; expected [[backend]] in the file, and its name in a route");
            }
            Said { has_servers: true, .. } => {
                keys.refuse("[[server]] is outside of [[backend]]; expected [[backend.server]] beside [[site]]");
            }
            _ if self.frontends.iter().all(|front| front.group.is_some()) => {
                keys.refuse("no front end has the sites: each [[frontend]] has a backend; expected one without");
            }
            _ if !has_sections && self.frontends.iter().any(|front| front.mode == Mode::Tcp) => {
                keys.note("mode", "\"tcp\" has no sites; expected \"http\"");
            }
            _ => {
                if let Some((_, name)) = twice {
                    keys.refuse(format!("two [[backend]] sections are called \"{name}\""));
                }
            }
        }
    }
}

impl ProxyConfig {
    /// A proxy from `listen` to `backends` with all defaults.
    #[must_use]
    pub fn new<A: Into<Address>>(listen: Vec<A>, backends: Vec<A>) -> Self {
        let group = GroupConfig {
            name: GROUP_DEFAULT.to_owned(),
            servers: backends.into_iter().map(Into::into).map(BackendConfig::at).collect(),
            balance: Default::default(),
            sticky: None,
            health: Health::default(),
            sends_header: None,
            tls: None,
            protocol: Protocol::default(),
        };
        Self {
            frontends: vec![Frontend {
                listen: listen.into_iter().map(Into::into).collect(),
                ..Frontend::default()
            }],
            groups: vec![group],
            sites: Sites::default(),
            rates: Vec::new(),
            http2: Http2::default(),
            sockets: UnixSockets::default(),
            identity: None,
            loops: Loops::default(),
            lets_go_at_once: false,
            limits: ProxyLimits::default(),
            monitoring: Monitoring::default(),
        }
    }

    /// Every address, in the order of the front ends.
    #[must_use]
    pub fn listen(&self) -> Vec<Address> {
        self.frontends.iter().flat_map(|each| each.listen.iter().cloned()).collect()
    }

    /// Client connections that so many descriptors allow.
    ///
    /// Connections to backends are as many at most as those of clients: with a request, kept without one, or
    /// for a check. One that threads share has a descriptor more, and a pipe has two.
    pub(crate) fn connections_within(&self, descriptors: u64) -> u64 {
        let left = beside_kept(descriptors) - 2 * self.pipes_within(descriptors);
        let left = match self.folders() {
            0 => left,
            folders => without_files(left.saturating_sub(folders)),
        };
        left / if self.loops.threads > 1 { 3 } else { 2 }
    }

    /// Folders of sites that stay open, in each loop.
    fn folders(&self) -> u64 {
        let has_files = |route: &&RouteConfig| matches!(route.answer, RouteAnswer::Files(_));
        let routes = self.sites.routes().filter(has_files).count();
        (routes * self.loops.threads) as u64
    }

    /// Pipes that so many descriptors allow: they have half of what there is where a client of TCP mode may need two, else an
    /// eighth, as bytes go through buffers where there is none.
    fn pipes_within(&self, descriptors: u64) -> u64 {
        if self.frontends.iter().all(|front| front.tls.is_on()) {
            return 0;
        }
        let has_streams = self.frontends.iter().any(|front| front.mode == Mode::Tcp);
        let most = beside_kept(descriptors) / if has_streams { 2 } else { 8 };
        (self.limits.pipes_max as u64).min(most / 2)
    }

    /// Most pipes that are open at once.
    pub(crate) fn pipes_max(&self) -> usize {
        self.pipes_within(limit()) as usize
    }

    /// Most client connections: what was configured, else what the descriptor limit allows.
    pub(crate) fn connections_max(&self) -> u32 {
        let allowed = || self.connections_within(limit()).clamp(1, CONNECTIONS_DEFAULT);
        self.limits
            .clients
            .connections_max
            .unwrap_or_else(|| u32::try_from(allowed()).expect("clamped"))
    }

    /// Every backend, in the order of the groups.
    pub fn servers(&self) -> impl Iterator<Item = &BackendConfig> {
        self.groups.iter().flat_map(|group| &group.servers)
    }
}

/// What is left of so many descriptors for connections and pipes; a small limit is shared evenly with what is kept.
fn beside_kept(descriptors: u64) -> u64 {
    descriptors - KEPT.min(descriptors / 2)
}

table! { keys, key, default;
    /// Times and amounts that clients and backends of a proxy may take.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct ProxyLimits {
        /// What clients may take, as of any server.
        pub clients: Limits = Limits::read(keys),
        /// Time between two lookups of the names of backends; a backend that fails makes one earlier
        pub lookup_interval: Duration = key.default("5s").one(&timeout()),
        /// Time for a connection to a backend to be established
        pub connect_timeout: Duration = key.default("5s").one(&timeout()),
        /// Time from a request that was sent whole, or from an interim answer (1xx), to the whole head of
        /// its answer
        pub first_byte_timeout: Duration = key.default("60s").one(&timeout()),
        /// Time for a request and its answer together
        pub request_timeout: Duration = key.default("1h").one(&timeout()),
        /// Longest time without a byte in either direction after an upgrade (WebSocket)
        pub tunnel_timeout: Duration = key.default("1h").one(&timeout()),
        /// Time that a connection to a backend is kept without a request; shorter than the backend's
        /// own
        pub upstream_idle_timeout: Duration = key.default("20s").one(&timeout()),
        /// Time that tunnels (WebSocket) and streams of TCP mode have to end after a reload, as long as no more than
        /// tunnel_workers_max workers of earlier settings have some
        pub tunnel_drain_timeout: Duration = key.default("1h").one(&timeout()),
        /// Workers of earlier settings that may keep tunnels and streams after reloads; beyond that the oldest one ends
        /// within drain_timeout
        pub tunnel_workers_max: usize = key.default("8").one(&integer(1..=TUNNEL_WORKERS_MAX)),
        /// Most connections to each backend that are kept without a request
        pub upstream_idle_max: Option<usize> =
            key.otherwise("as many as --max-connections").optional(&integer(0..=IDLE_MAX)),
        /// Most connections to all backends together that are kept without a request
        pub upstream_idle_total: Option<usize> =
            key.otherwise("as many as --max-connections").optional(&integer(0..=IDLE_MAX)),
        /// Most pipes that long bodies and the bytes of TCP mode go through in the kernel, one for each direction of a
        /// connection while something is under way; others go through buffers, as all do with 0 and in TLS
        pub pipes_max: usize = key.default("1024").one(&integer(0..=IDLE_MAX)),
        /// Most bytes that the requests and answers of HTTP/2 clients hold in a thread while their backends or clients take
        /// none; beyond it those go of which nothing has left for longest
        pub http2_waiting_max: usize =
            key.default("256MiB").one(&bytes(WAITING_BYTES_MIN..=WAITING_BYTES_MAX)),
        /// Most requests that wait for a connection to each backend; others get 503
        pub queue_max: usize = key.default("1024").one(&integer(0..=QUEUE_MAX)),
        /// Time for a request to wait for a connection, then it gets 503
        pub queue_timeout: Duration = key.default("5s").one(&timeout()),
        /// What happens to a request whose client ends its side meanwhile
        pub answers_half_closed as "half_close": bool = key.default("answer").one(&half_close()),
    }
}

/// Whether the request of a client that ended its side is processed.
fn half_close() -> Kind<bool> {
    let answer = "the request is processed: the client may only have finished sending";
    let drop = "the request is dropped, as nginx does";
    one_of("way", [("answer", answer, true), ("drop", drop, false)])
}

/// What is wrong, if anything is.
fn wrong(frontends: &[Frontend], groups: &[GroupConfig]) -> Option<String> {
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
    frontends.iter().find_map(|front| wrong_way(front, groups.get(front.group?)?))
}

/// What is wrong with a front end that leads to this group.
fn wrong_way(front: &Frontend, group: &GroupConfig) -> Option<String> {
    let mut servers = group.servers.iter();
    let is_round = |address| front.listen.iter().any(|listens| is_round(address, listens));
    if let Some(server) = servers.clone().find(|server| is_round(&server.address)) {
        return Some(format!(
            "the server {} is where the proxy listens, so requests would come back to it; expected another \
             address",
            server.address
        ));
    }
    if front.mode == Mode::Tcp && group.protocol.is_http2() {
        return Some(format!(
            "\"{}\" has the protocol \"{}\", which applies only to mode \"http\"; expected none, as \"tcp\" leads to it",
            group.name,
            group.protocol.name()
        ));
    }
    if front.mode == Mode::Tcp && group.sticky.is_some() {
        return Some(format!(
            "\"{}\" has sticky, which applies only to mode \"http\"; expected none, as \"tcp\" leads to it",
            group.name
        ));
    }
    let limited = servers.find(|server| server.connections_max.is_some())?;
    (front.mode == Mode::Tcp).then(|| {
        format!(
            "the server {} has max_connections, which applies only to mode \"http\"; expected none, as \
             \"tcp\" leads to it",
            limited.address
        )
    })
}

fn repeated<'a>(addresses: &[&'a Address]) -> Option<&'a Address> {
    let mut places = addresses.iter().enumerate();
    places.find(|(place, each)| addresses[..*place].contains(each)).map(|(_, each)| *each)
}

/// Whether a connection to `to` comes to a socket that listens at `at`, as far as the addresses tell.
pub(crate) fn reaches(to: SocketAddr, at: SocketAddr) -> bool {
    if to.port() == 0 || to.port() != at.port() {
        return false;
    }
    let is_here = to.ip().is_loopback() || to.ip().is_unspecified();
    to.ip() == at.ip() || (at.ip().is_unspecified() && is_here)
}

/// Whether a connection to `address` comes to `listens`, as far as that is known before a lookup.
fn is_round(address: &Address, listens: &Address) -> bool {
    match (address, listens) {
        (Address::Known(ListenAddress::Tcp(to)), Address::Known(ListenAddress::Tcp(at))) => {
            reaches(*to, *at)
        }
        (Address::Name { port: 0, .. }, _) => false,
        _ => address == listens,
    }
}

#[cfg(test)]
mod tests {
    //! The table of the proxy's settings: its page, and mistakes with their places.

    use pollux_settings::Given;

    use super::*;
    use crate::config::{Balance, Check, ServerTls};
    use crate::tls::Trust;

    fn read(text: &str) -> Result<ProxyConfig, String> {
        Given::from_toml(text, "p").read().map_err(|mistakes| mistakes.to_string())
    }

    #[test]
    fn the_page_in_docs_is_the_one_of_the_table() {
        let page = pollux_settings::reference::<ProxyConfig>();
        pollux_settings::kept("reference/proxy-settings.md", "settings", &page)
            .expect("that of the table");
    }

    #[test]
    fn every_flag_and_key_takes_the_same_spellings() {
        assert_eq!(pollux_settings::misread::<ProxyConfig>(), [""; 0]);
    }

    #[test]
    fn rules_for_fields_are_read_for_each_front_end_and_mistakes_have_their_position() {
        let text = "request_field = [\"set X-Env: prod\", \"remove Cookie\"]\n\
                response_field = \"add X-By: pollux\"\n[[server]]\naddress = \"10.0.0.1:80\"";
        let config = read(text).expect("right");
        let rules = &config.frontends[0].rules;
        assert_eq!((rules.request.len(), rules.response.len()), (2, 1));
        let wrong = "request_field = [\"set Content-Length: 1\", \"remove connection\"]\n\
                 response_field = \"drop X\"\n[[server]]\naddress = \"10.0.0.1:80\"";
        let message = read(wrong).expect_err("three mistakes");
        assert_eq!(message.lines().count(), 3, "{message}");
        let expectations = |line: &str| line.matches("expected").count();
        assert!(message.lines().all(|line| expectations(line) == 1), "{message}");
        assert!(
            message.starts_with("p:1:18: ") && message.contains("Content-Length frames"),
            "{message}"
        );
        let order = "\"drop\" is not an action; expected \"set NAME: VALUE\", ";
        assert!(message.contains("p:2:18: ") && message.contains(order), "{message}");
    }

    #[test]
    fn a_redirect_to_https_that_nobody_speaks_is_warned_of() {
        let warnings = |front: &str| {
            let text = format!(
                "[[frontend]]\nlisten = \":80\"\nredirect = \"https\"\n{front}\n[[site]]\nhost = \"*\"\nroute = [{{ path = \"/\", reply = 1 }}]"
            );
            read(&text).expect("right").sites.warnings
        };
        assert_eq!(warnings(""), [HTTPS_NOWHERE]);
        assert_eq!(warnings("x_forwarded = \"add\""), [""; 0]);
        let secure = "[[frontend]]\nlisten = \":443\"\ncert = \"c\"\nkey = \"k\"";
        assert_eq!(warnings(secure), [""; 0]);
    }

    #[test]
    fn passwords_by_a_unix_socket_without_a_client_are_warned_of() {
        let warnings = |front: &str| {
            let text = format!(
                "{front}\n[[users]]\nname = \"staff\"\nfile = \"u\"\n[[site]]\nhost = \"*\"\nusers = \"staff\"\n\
                 route = [{{ path = \"/\", reply = 1 }}]"
            );
            let warnings = read(&text).expect("right").sites.warnings;
            warnings.into_iter().filter(|it| it.contains("no address")).collect::<Vec<_>>()
        };
        let unix = "listen = [\"127.0.0.1:8080\", \"unix:/run/p.sock\"]";
        let one = warnings(unix);
        assert!(
            one.len() == 1
                && one[0].starts_with("users: clients that come by unix:/run/p.sock have no"),
            "{one:?}"
        );
        for right in [
            format!("trusted_proxies = \"unix:\"\n{unix}"),
            format!("accept_proxy = true\n{unix}"),
            "listen = \"127.0.0.1:8080\"".to_owned(),
        ] {
            assert_eq!(warnings(&right), [""; 0], "{right}");
        }
    }

    #[test]
    fn each_key_of_a_group_is_refused_at_the_top_beside_sites() {
        let description = pollux_settings::describe::<ProxyConfig>();
        let rows = |path: &str| {
            let section = description.sections.iter().find(|section| section.path == path);
            section.expect("a section").rows.iter().map(|row| row.name).collect::<Vec<_>>()
        };
        let top = rows("");
        let group = rows("backend");
        let mut both: Vec<_> = group.into_iter().filter(|name| top.contains(name)).collect();
        let mut refused = GROUP_KEYS.to_vec();
        both.sort_unstable();
        refused.sort_unstable();
        assert_eq!(both, refused);
        let text =
            "protocol = \"h2c\"\n[[site]]\nhost = \"*\"\nroute = [{ path = \"/\", reply = 1 }]";
        let message = read(text).expect_err("without effect");
        let expected =
            "p:1:12: protocol: has no effect beside [[site]]; expected it in [[backend]]";
        assert_eq!(message, expected);
    }

    #[test]
    fn a_proxy_without_a_backend_is_a_mistake() {
        let message = read("threads = 2").expect_err("no backend");
        assert!(message.contains("backend"), "{message}");
        let one = read("[[server]]\naddress = \"127.0.0.1:1\"").expect("right");
        let addresses = one.servers().map(|server| server.address.clone()).collect();
        assert_eq!(one, ProxyConfig::new(one.listen(), addresses));
    }

    #[test]
    fn servers_of_a_file_have_weights_and_checks_have_a_path() {
        let text = "balance = \"least\"\nhealth_check = \"http\"\nhealth_path = \"/up?x\"\n\
                [[server]]\naddress = \"10.0.0.1:80\"\nweight = 3\n\
                [[server]]\naddress = \"unix:/run/app.sock\"";
        let config = read(text).expect("right");
        let weights: Vec<_> = config.servers().map(|server| server.weight).collect();
        let group = &config.groups[0];
        assert_eq!((weights, group.balance), (vec![3, 1], Balance::Least));
        assert_eq!(group.health.check, Check::Http("/up?x".to_owned()));
        let wrong = "[[server]]\nweight = 0\n[[server]]\naddress = \"x\"";
        let message = read(wrong).expect_err("three mistakes");
        assert_eq!(message.lines().count(), 3, "{message}");
    }

    #[test]
    fn tls_to_servers_is_believed_as_the_system_does_unless_something_else_is_said() {
        let tls = |said: &str| {
            let text = format!("{said}\n[[server]]\naddress = \"10.0.0.1:80\"");
            read(&text).map(|config| config.groups[0].tls.clone())
        };
        let with = |name: Option<&str>, trust| {
            Ok(Some(ServerTls { name: name.map(str::to_owned), trust }))
        };
        assert_eq!(tls(""), Ok(None));
        assert_eq!(tls("tls = true"), with(None, Trust::System));
        let named = "tls = true\nsni = \"app.example\"\nca = \"ca.pem\"";
        assert_eq!(tls(named), with(Some("app.example"), Trust::File("ca.pem".into())));
        assert_eq!(tls("tls = true\nverify = \"none\""), with(None, Trust::AnyCertificate));
        for (said, expected) in [
            ("sni = \"app.example\"", "p:1:7: sni: "),
            ("tls = true\nsni = \"not a name\"", "p:2:7: sni"),
            ("tls = true\nca = \"x\"\nverify = \"none\"", "p:2:6: ca: has no effect"),
        ] {
            let message = tls(said).expect_err(said);
            assert!(message.contains(expected), "{message}");
        }
        let unix = "tls = true\n[[server]]\naddress = \"unix:/run/app.sock\"";
        let message = read(unix).expect_err("no name");
        assert!(
            message.contains("unix:/run/app.sock has no name; expected one with sni"),
            "{message}"
        );
    }

    #[test]
    fn a_protocol_of_backends_goes_with_what_it_needs() {
        let with = |said: &str| {
            read(&format!("{said}\n[[server]]\naddress = \"10.0.0.1:80\""))
                .map(|config| (config.groups[0].protocol, config.groups[0].health.check.clone()))
        };
        assert_eq!(with(""), Ok((Protocol::Http1, Check::None)));
        assert_eq!(with("protocol = \"http/1.1\""), Ok((Protocol::Http1, Check::None)));
        assert_eq!(with("protocol = \"h2c\""), Ok((Protocol::H2c, Check::None)));
        assert_eq!(with("protocol = \"h2\"\ntls = true"), Ok((Protocol::H2, Check::None)));
        let grpc = "protocol = \"h2c\"\nhealth_check = \"grpc\"";
        assert_eq!(with(grpc), Ok((Protocol::H2c, Check::Grpc(String::new()))));
        let service = format!("{grpc}\nhealth_service = \"a.B\"\nhealth_host = \"x\"");
        assert_eq!(with(&service), Ok((Protocol::H2c, Check::Grpc("a.B".to_owned()))));
        for (said, expected) in [
            ("protocol = \"h3\"", "p:1:12: "),
            ("protocol = \"h2\"", "expected tls beside it, or \"h2c\" for clear text"),
            ("protocol = \"h2c\"\ntls = true", "expected \"h2\" beside tls"),
            ("protocol = \"h2c\"\nsend_proxy = \"v1\"", "p:2:14: send_proxy: names one client"),
            (
                "health_check = \"grpc\"",
                "p:1:16: health_check: \"grpc\" is asked by HTTP/2; expected protocol",
            ),
            (
                "health_service = \"a\"",
                "p:1:18: health_service: applies only to health_check \"grpc\"",
            ),
            ("protocol = \"h2c\"\nhealth_check = \"grpc\"\nhealth_service = \"a b\"", "p:3:18: "),
            ("protocol = \"h2c\"\nmode = \"tcp\"", "which applies only to mode \"http\""),
        ] {
            let message = with(said).expect_err(said);
            assert!(message.contains(expected) && message.lines().count() == 1, "{message}");
        }
    }

    const SEVERAL: &str = "threads = 2\n\
    [[frontend]]\nlisten = [\"127.0.0.1:80\", \"[::1]:80\"]\nbackend = \"app\"\n\
    [[frontend]]\nlisten = \"unix:/run/p.sock\"\nbackend = \"files\"\n\
    [[backend]]\nname = \"files\"\n[[backend.server]]\naddress = \"10.0.0.1:80\"\n\
    [[backend]]\nname = \"app\"\nbalance = \"least\"\nhealth_check = \"tcp\"\n\
    [[backend.server]]\naddress = \"10.0.0.2:80\"\nweight = 5\n\
    [[backend.server]]\naddress = \"10.0.0.3:80\"\n";

    #[test]
    fn front_ends_lead_to_the_backends_that_they_name() {
        let config = read(SEVERAL).expect("right");
        let groups: Vec<_> = config.frontends.iter().map(|each| each.group).collect();
        assert_eq!((groups, config.listen().len()), (vec![Some(1), Some(0)], 3));
        assert_eq!(config.groups[1].balance, Balance::Least);
        assert_eq!(config.groups[1].health.check, Check::Tcp);
        assert_eq!(config.servers().map(|each| each.weight).collect::<Vec<_>>(), [1, 5, 1]);
    }

    #[test]
    fn what_does_not_fit_between_sections_is_reported_with_its_position() {
        for (text, expected) in [
            (
                SEVERAL.replace("backend = \"files\"", "backend = \"flies\""),
                "p:7:11: backend: no [[backend]] is called \"flies\"; did you mean \"files\"?",
            ),
            (
                SEVERAL.replace("backend = \"files\"\n", ""),
                "p:5:1: [[frontend]] lacks the key \"backend\"",
            ),
            (format!("balance = \"least\"\n{SEVERAL}"), "p:1:11: balance: has no effect beside"),
            (
                format!("{SEVERAL}[[server]]\naddress = \"10.0.0.1:1\""),
                "[[server]] is outside of [[backend]]; expected [[backend.server]]",
            ),
            (
                "[[frontend]]\nlisten = \":80\"\nbackend = \"x\"".to_owned(),
                "p:3:11: backend: no [[backend]] is called \"x\"",
            ),
            (
                SEVERAL.replace("\"files\"", "\"app\""),
                "two [[backend]] sections are called \"app\"",
            ),
        ] {
            let message = read(&text).expect_err(&text);
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn settings_that_are_wrong_together_are_reported() {
        let wrong = |text: &str| {
            let read = Given::from_toml(text, "p.toml").read::<ProxyConfig>();
            read.map(|_| ()).expect_err(text).to_string()
        };
        let to = |address: &str| format!("[[server]]\naddress = \"{address}\"\n");
        let one = to("127.0.0.1:9");
        for (text, part) in [
            (format!("listen = [\":80\", \":80\"]\n{one}"), "[::]:80 is given twice; expected"),
            (
                format!("listen = [\"0.0.0.0:80\", \"127.0.0.1:80\"]\n{one}"),
                "p.toml:1:10: listen: 0.0.0.0:80 takes connections to 127.0.0.1:80 as well",
            ),
            (
                format!("listen = \":80\"\nstats = \"127.0.0.1:80\"\n{one}"),
                "p.toml:2:9: stats: 127.0.0.1:80 takes the same connections as [::]:80 of listen",
            ),
            (
                format!("stats = \"unix:/s\"\ncontrol = \"unix:/s\"\n{one}"),
                "control: unix:/s is the address of stats as well; expected an address of its own",
            ),
            (format!("{one}{one}"), "two servers of \"default\" have the address 127.0.0.1:9"),
            (format!("listen = \":9\"\n{one}"), "127.0.0.1:9 is where the proxy listens"),
            (
                format!("listen = \"unix:/a\"\n{}", to("unix:/a")),
                "unix:/a is where the proxy listens",
            ),
            (
                format!("mode = \"tcp\"\nserver_max_connections = 1\n{one}"),
                "2:26: server_max_connections: applies only to mode \"http\"",
            ),
            (
                format!("mode = \"tcp\"\n{one}max_connections = 1"),
                "the server 127.0.0.1:9 has max_connections, which applies only to mode",
            ),
            (
                format!("mode = \"tcp\"\nresponse_field = \"set X: y\"\n{one}"),
                "2:18: response_field: applies only to mode",
            ),
            (
                format!("mode = \"tcp\"\nmax_body = 3\n{one}"),
                "2:12: max_body: applies only to mode",
            ),
            (format!("health_path = \"/\"\n{one}"), "health_path: applies only to health_check"),
            (to("0.0.0.0:9"), "0.0.0.0:9 stands for every address of this machine"),
            (to(":9"), ":9 stands for every address of this machine"),
        ] {
            let message = wrong(&text);
            assert!(message.contains(part), "{text}: {message}");
        }
        let right = format!("listen = [\"127.0.0.1:0\", \"127.0.0.1:0\", \"127.0.0.2:9\"]\n{one}");
        Given::from_toml(&right, "p.toml").read::<ProxyConfig>().expect("right together");
    }

    #[test]
    fn descriptors_are_planned_for_what_threads_share_and_for_pipes() {
        for (text, limit, clients) in [
            ("threads = 1", 20_000, 8_848),
            ("threads = 1", 1_024, 336),
            ("threads = 1", 30, 7),
            ("threads = 4", 20_000, 5_898),
            ("threads = 4\npipes_max = 0", 20_000, 6_581),
            ("threads = 1\nmode = \"tcp\"", 20_000, 8_848),
            ("threads = 1\nmode = \"tcp\"\npipes_max = 0", 20_000, 9_872),
            // Pipes that would not fit leave half to connections.
            ("threads = 1\nmode = \"tcp\"\npipes_max = 65536", 20_000, 4_936),
        ] {
            let config =
                read(&format!("{text}\n[[server]]\naddress = \"127.0.0.1:1\"")).expect("right");
            assert_eq!(config.connections_within(limit), clients, "{text}");
        }
        // A folder of each route and loop, and a quarter for files that are sent.
        for (threads, limit, clients) in [(1, 20_000, 6_635), (4, 20_000, 4_422), (1, 30, 5)] {
            let text = format!(
                "threads = {threads}\n[[site]]\nhost = \"*\"\nroute = [{{ path = \"/\", dir = \"/a\" }}, {{ path = \"/b/\", dir = \"/b\" }}]"
            );
            assert_eq!(read(&text).expect("right").connections_within(limit), clients, "{text}");
        }
    }
}
