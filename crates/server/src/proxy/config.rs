//! The configuration of a proxy, as plain data. The command line fills it; nothing is opened here.

use std::time::Duration;

use pollux_engine::ListenAddress;
use pollux_http::ProxyVersion;
use pollux_settings::Given;

use super::backends::{BackendConfig, HealthRules};
use super::balance::Balance;
use super::check::Check;
use crate::config::{Loops, Watching};
use crate::rules::FieldRules;
use crate::tls::{Keys, Trust};

/// The name of the group that has no section of its own.
pub(super) const GROUP_DEFAULT: &str = "default";

/// What becomes of fields that tell the backend who asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forwarding {
    /// What the client said goes on, with what the proxy knows behind it.
    Add,
    /// What the client said is dropped: no client can claim to be another one.
    Replace,
    /// What the client said goes on, and the proxy says nothing.
    Keep,
    /// They are dropped.
    Remove,
}

impl Forwarding {
    /// All of them, in the order of help texts.
    pub const ALL: [Self; 4] = [Self::Replace, Self::Add, Self::Keep, Self::Remove];

    /// Name on command lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Replace => "replace",
            Self::Keep => "keep",
            Self::Remove => "remove",
        }
    }

    pub(super) const fn about(self) -> &'static str {
        match self {
            Self::Add => {
                "what the proxy knows stands behind what clients say: for proxies of your own"
            }
            Self::Replace => "the proxy writes them; what clients say is dropped",
            Self::Keep => {
                "the client's fields are passed on unchanged, and nothing is added: for proxies of your own"
            }
            Self::Remove => "what clients say is dropped, and nothing is written",
        }
    }

    /// Whether the proxy says who asked.
    pub(super) fn writes(self) -> bool {
        matches!(self, Self::Add | Self::Replace)
    }
}

/// Times and amounts that clients and backends may take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProxyLimits {
    /// For a whole request head, from its first byte; for the first one from the accept.
    pub header_timeout: Duration,
    /// Between two requests of a client.
    pub idle_timeout: Duration,
    /// For a connection to a backend to come about.
    pub connect_timeout: Duration,
    /// From a request that was sent whole to the first byte of its answer.
    pub first_byte_timeout: Duration,
    /// Without a byte in the middle of a request's or an answer's body.
    pub body_timeout: Duration,
    /// For a request and its answer together.
    pub request_timeout: Duration,
    /// Without a byte in either direction after an upgrade.
    pub tunnel_timeout: Duration,
    /// That an upstream connection is kept without a request. Shorter than the backend's own, or
    /// requests meet connections that are just being closed.
    pub upstream_idle_timeout: Duration,
    /// In which a peer must take something of what was sent to it.
    pub write_timeout: Duration,
    /// For open connections to end once the proxy drains.
    pub drain_timeout: Duration,
    /// Largest request body.
    pub body_bytes_max: u64,
    /// Most client connections at once; none for what the descriptor limit allows.
    pub connections_max: Option<u32>,
    /// Most upstream connections to each backend that are kept without a request.
    pub upstream_idle_max: usize,
    /// Most upstream connections to all backends that are kept without a request.
    pub upstream_idle_total: usize,
    /// Most pipes of all threads that bytes of TCP mode go through; beyond, and with 0, they go through
    /// buffers.
    pub pipes_max: usize,
    /// Most requests that wait for a connection to each backend.
    pub queue_max: usize,
    /// Whether a client that ended its side is still answered; else it is taken for gone.
    pub answers_half_closed: bool,
    /// For a request to wait for a connection.
    pub queue_timeout: Duration,
}

impl Default for ProxyLimits {
    /// As the table of settings says.
    fn default() -> Self {
        Given::default().read().expect("the defaults are right")
    }
}

/// When backends are taken for up and down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Health {
    /// What they are looked at by.
    pub check: Check,
    /// Between two checks of a backend.
    pub interval: Duration,
    /// For a check to pass.
    pub timeout: Duration,
    /// Good checks in a row after which a backend is up again.
    pub rise: u32,
    /// Failures in a row, of requests or checks, after which it is down.
    pub fall: u32,
    /// Without checks: how long it gets no requests then.
    pub down_time: Duration,
    /// Until it has its whole share after it came up.
    pub slow_start: Duration,
}

impl Default for Health {
    /// As the table of settings says.
    fn default() -> Self {
        Given::default().read().expect("the defaults are right")
    }
}

impl Health {
    pub(super) fn rules(&self) -> HealthRules {
        HealthRules {
            rise: self.rise,
            fall: self.fall,
            down_time: self.down_time,
            has_checks: self.check != Check::None,
            slow_start: self.slow_start,
        }
    }
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

/// A front end: where clients come, and where their requests go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frontend {
    /// Where it listens; at least one.
    pub listen: Vec<ListenAddress>,
    /// What it passes on.
    pub mode: Mode,
    /// Its certificate, where clients speak TLS.
    pub tls: Option<Keys>,
    /// The place of its backends in [`ProxyConfig::groups`].
    pub group: usize,
    /// Whether each connection has to begin with a head of the PROXY protocol, which says whose it is.
    pub accepts_header: bool,
    /// What becomes of X-Forwarded-For, X-Forwarded-Proto and X-Forwarded-Host.
    pub x_forwarded: Forwarding,
    /// What becomes of Forwarded (RFC 7239).
    pub forwarded: Forwarding,
    /// What is done to fields of its requests and their answers.
    pub rules: FieldRules,
}

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

/// TLS to backends.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServerTls {
    /// The name that they are asked for, and that their certificates have to have; none for the address
    /// of each.
    pub name: Option<String>,
    /// Whose certificates are accepted.
    pub trust: Trust,
}

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
    pub watching: Watching,
}

impl ProxyConfig {
    /// A proxy from `listen` to `backends` with all defaults.
    #[must_use]
    pub fn new(listen: Vec<ListenAddress>, backends: Vec<ListenAddress>) -> Self {
        let one = |address| BackendConfig { address, weight: 1, connections_max: None };
        let group = GroupConfig {
            name: GROUP_DEFAULT.to_owned(),
            servers: backends.into_iter().map(one).collect(),
            balance: Balance::default(),
            health: Health::default(),
            sends_header: None,
            tls: None,
        };
        Self {
            frontends: vec![Frontend {
                listen,
                mode: Mode::Http,
                tls: None,
                group: 0,
                accepts_header: false,
                x_forwarded: Forwarding::Replace,
                forwarded: Forwarding::Remove,
                rules: FieldRules::default(),
            }],
            groups: vec![group],
            loops: Loops::default(),
            lets_go_at_once: false,
            limits: ProxyLimits::default(),
            watching: Watching::default(),
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
