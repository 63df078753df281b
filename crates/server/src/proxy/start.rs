//! Starts a proxy: its loops, and what is shown of them; what `--check` prints. Endpoints, logs, signals
//! and the end are those of every [`Server`].

use std::fmt::Write;
use std::sync::Arc;

use pollux_engine::{Driver, Group, GroupConfig, GroupError, Limits, ListenAddress, Sockets};
use pollux_poller::Waker;

use super::backends::restore_states;
use super::config::{self, Check, Frontend, Mode, ProxyConfig, ProxyLimits};
use super::passing::Passing;
use super::session::ProxySession;
use super::shared::{ProxyShared, backends_of};
use crate::counters::{ProxyCounters, ServerCounters};
use crate::descriptors::{limit, proxy_connections_max, proxy_connections_within};
use crate::log::{ErrorWriter, Event, unix_s};
use crate::master::ProxySockets;
use crate::serve::start::start_on_first;
use crate::serve::{Parts, Reporter, SocketPaths, shortage, url};
use crate::stats::Overview;
use crate::{Logs, Server, ServerError};

const PROXY: &str = "proxy";

/// The counters of one loop.
type LoopCounters = (Arc<ServerCounters>, Arc<ProxyCounters>);

impl Server {
    /// Starts a proxy; all its loops and endpoints run when this returns. Backends are asked for a
    /// connection when the first request comes.
    ///
    /// # Errors
    /// [`ServerError`]; what was started already is ended.
    ///
    /// # Panics
    /// Without an address, a backend or a thread.
    pub fn start_proxy(config: &ProxyConfig) -> Result<Self, ServerError> {
        let sockets = ProxySockets::open(config)?;
        let mut paths = SocketPaths(sockets.paths());
        let mut server = Self::start_proxy_on(config, &sockets, None)?;
        server.own(std::mem::take(&mut paths));
        Ok(server)
    }

    /// As [`Server::start_proxy`], on sockets that the caller opened, and whose paths are the caller's
    /// to remove; under a master, with the waker of the thread that talks to it, and how backends stood
    /// for the worker before.
    ///
    /// # Errors
    /// [`ServerError`]; what was started already is ended.
    ///
    /// # Panics
    /// Without a backend or a thread.
    pub(crate) fn start_proxy_on(
        config: &ProxyConfig,
        sockets: &ProxySockets,
        master: Option<(Waker, &str)>,
    ) -> Result<Self, ServerError> {
        assert!(config.servers().next().is_some(), "a proxy has a backend");
        let logs = Logs::of(PROXY, config.monitoring.log_level);
        let error_writer = ErrorWriter::open(&config.monitoring.error_log)?;
        let backends = backends_of(config);
        if let Some((_, states)) = &master {
            restore_states(&backends, "", states);
        }
        let of_loop = |_| (Arc::default(), Arc::new(ProxyCounters::new(backends.len())));
        let counters: Vec<LoopCounters> = (0..config.loops.threads).map(of_loop).collect();
        let passing = Passing::new(config, Arc::clone(&backends));
        let (clients, endpoints) = sockets.divided()?;
        let (group, driver, refused) = start_group(config, &clients, &passing, &counters, &logs)?;
        let connections_max = proxy_connections_max(config);
        let remedy = format!(
            "raise --max-connections, now {connections_max}, and the descriptor limit of {} (ulimit \
             -Hn, LimitNOFILE=), of which each needs {}",
            limit(),
            if config.loops.threads > 1 { 3 } else { 2 },
        );
        let of_loops = counters.into_iter().map(|(server, proxied)| (server, Some(proxied)));
        let facts = facts(config, group.addresses());
        let overview = Overview {
            backends,
            passing: Some(passing),
            ..Overview::of_group(&group, driver, facts, of_loops)
        };
        if let Some((master, _)) = master {
            // Before the control socket is there, where a client may wait to ask for a reload.
            overview.supervised.begin(master);
        }
        let parts = Parts {
            overview,
            banner: banner(config, group.addresses(), driver, &refused),
            reporter: Reporter::new(connections_max, remedy, config.monitoring.access_log.as_ref()),
            drain_timeout: config.limits.drain_timeout,
            // A reload starts another worker, which reads it.
            certificate: None,
            reload: None,
            group,
            logs,
            error_writer,
            paths: SocketPaths::default(),
        };
        Self::assemble(parts, endpoints)
    }
}

/// Starts the loops, on the configured driver or on the best that works; says what was refused.
fn start_group(
    config: &ProxyConfig,
    sockets: &Sockets,
    passing: &Arc<Passing>,
    counters: &[LoopCounters],
    logs: &Logs,
) -> Result<(Group, Driver, Vec<String>), ServerError> {
    let secrets = config.read_secrets()?;
    for remark in &secrets.remarks {
        logs.errors.report(Event::Certificate, unix_s(), || remark.clone());
    }
    start_on_first(PROXY, config.loops.poller, |driver| {
        let (shared_config, counters, logs) = (config.clone(), counters.to_vec(), logs.clone());
        let (passing, addresses) = (Arc::clone(passing), sockets.addresses());
        let secrets = secrets.clone();
        let make = move |index: usize| {
            let (server, proxied) = counters[index].clone();
            let passing = Arc::clone(&passing);
            let config = &shared_config;
            let shared =
                ProxyShared::new(index, config, &addresses, passing, server, proxied, &logs);
            shared.map(|shared| shared.secured(secrets.clone()))
        };
        let again = sockets.duplicate().map_err(|error| GroupError::System("dup", error))?;
        Group::start_on::<ProxySession, _, _>(&group_config(config, driver), again, make)
    })
}

fn group_config(config: &ProxyConfig, driver: Driver) -> GroupConfig {
    let connections_max = proxy_connections_max(config);
    config.loops.group(
        driver,
        &Limits {
            connections_max,
            connects_max: Some(connections_max),
            write_timeout: config.limits.write_timeout,
            ..Limits::default()
        },
    )
}

fn facts(config: &ProxyConfig, addresses: &[ListenAddress]) -> Vec<(String, String)> {
    let ProxyLimits {
        header_timeout,
        idle_timeout,
        connect_timeout,
        first_byte_timeout,
        body_timeout,
        request_timeout,
        tunnel_timeout,
        upstream_idle_timeout,
        ..
    } = &config.limits;
    let listen = addresses.iter().map(|address| ("listen", address.to_string()));
    let backends = config.servers().map(|each| ("backend", each.address.to_string()));
    let times = [
        ("header-timeout", header_timeout),
        ("idle-timeout", idle_timeout),
        ("connect-timeout", connect_timeout),
        ("first-byte-timeout", first_byte_timeout),
        ("body-timeout", body_timeout),
        ("request-timeout", request_timeout),
        ("tunnel-timeout", tunnel_timeout),
        ("upstream-idle-timeout", upstream_idle_timeout),
    ];
    let times = times.into_iter().map(|(name, time)| (name, format!("{time:?}")));
    let others = [
        ("listeners", config.loops.listeners.to_string()),
        ("max-connections", proxy_connections_max(config).to_string()),
        ("max-body", format!("{} bytes", config.limits.body_bytes_max)),
    ];
    let balance = config.groups.iter().map(|group| ("balance", group.balance.name().to_owned()));
    let all = listen.chain(backends).chain(balance).chain(others).chain(times);
    all.map(|(name, value)| (name.to_owned(), value)).collect()
}

fn banner(
    config: &ProxyConfig,
    addresses: &[ListenAddress],
    driver: Driver,
    refused: &[String],
) -> Vec<String> {
    let fronts = config.frontends.iter().flat_map(|front| front.listen.iter().map(move |_| front));
    let place = |(address, front): (&ListenAddress, &Frontend)| match (address, front.mode) {
        (ListenAddress::Tcp(address), Mode::Tcp) => format!("tcp://{address}"),
        _ => url(address, front.tls.is_some(), ""),
    };
    let urls: Vec<String> = addresses.iter().zip(fronts).map(place).collect();
    let backends: Vec<String> = config.servers().map(|each| each.address.to_string()).collect();
    let threads = config.loops.summary();
    let first = format!("{} to {} ({driver}, {threads})", urls.join(" "), backends.join(" "));
    let few =
        shortage(proxy_connections_max(config).into(), proxy_connections_within(limit(), config));
    std::iter::once(first).chain(refused.iter().cloned()).chain(few).collect()
}

impl ProxyConfig {
    /// One line for each front end, group and backend, and one for what runs it.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut text = String::new();
        for front in &self.frontends {
            let group = &self.groups[front.group].name;
            for address in &front.listen {
                let header = if front.accepts_header { " behind a PROXY head" } else { "" };
                let mode = match (front.mode, &front.tls) {
                    (Mode::Tcp, None) => "TCP",
                    (Mode::Tcp, Some(_)) => "TCP in TLS",
                    (Mode::Http, None) => "HTTP",
                    (Mode::Http, Some(_)) => "HTTP in TLS",
                };
                writeln!(text, "listen on {address}: {mode}{header} to the backend \"{group}\"")
                    .expect("a string");
            }
        }
        for group in &self.groups {
            writeln!(text, "backend \"{}\": {}", group.name, group_summary(group))
                .expect("a string");
            for server in &group.servers {
                writeln!(text, "  {} weight {}", server.address, server.weight).expect("a string");
            }
        }
        let (loops, poller) = (&self.loops, self.loops.poller);
        let poller = poller.map_or_else(|| "the best poller".to_owned(), |it| it.to_string());
        let count = loops.threads;
        let threads = if count == 1 { "1 thread".to_owned() } else { format!("{count} threads") };
        let connections = proxy_connections_max(self);
        writeln!(text, "{threads}, {poller}, {}, at most {connections} clients", loops.listeners)
            .expect("a string");
        text
    }
}

/// How requests are spread, and backends looked at.
fn group_summary(group: &config::GroupConfig) -> String {
    let health = &group.health;
    let check = match &health.check {
        Check::None => format!("no checks, down for {:?} after {}", health.down_time, health.fall),
        Check::Tcp => format!("a connect every {:?}", health.interval),
        Check::Http(path) => format!("GET {path} every {:?}", health.interval),
    };
    let header = if group.sends_header.is_some() { "; with a PROXY head" } else { "" };
    let tls = if group.tls.is_some() { "; in TLS" } else { "" };
    format!("{}; {check}{header}{tls}", group.balance.name())
}
