//! A server in words: for its start-up lines, for `--check` and for the endpoints while it runs.

use std::fmt::Write;

use pollux_engine::{Driver, ListenAddress};
use pollux_sys::descriptors::RAISED_BY;

use crate::config::{Answer, ServeConfig};
use crate::descriptors::{connections_max, connections_within, limit};
use crate::proxy::{Check, Frontend, GroupConfig, Mode, ProxyConfig, ProxyLimits};

/// What a server configured so would do, in lines.
pub(super) fn summary(config: &ServeConfig) -> String {
    let facts = facts(config, &config.listen);
    facts.into_iter().map(|(name, value)| format!("{name}: {value}\n")).collect()
}

pub(super) fn facts(config: &ServeConfig, addresses: &[ListenAddress]) -> Vec<(String, String)> {
    let limits = &config.limits;
    let listen = addresses.iter().map(|address| ("listen", address.to_string()));
    let tls = config
        .tls
        .as_ref()
        .map_or_else(|| "none".to_owned(), |keys| keys.cert.display().to_string());
    let pin = config.loops.pin.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
    let others = [
        ("answer", answer(&config.answer)),
        ("cert", tls),
        ("listeners", config.loops.listeners.to_string()),
        ("pin", pin),
        ("busy-poll", config.loops.is_busy_polling.to_string()),
        ("max-connections", connections_max(config).to_string()),
        ("header-timeout", format!("{:?}", limits.header_timeout)),
        ("body-timeout", format!("{:?}", limits.body_timeout)),
        ("idle-timeout", format!("{:?}", limits.idle_timeout)),
        ("write-timeout", format!("{:?}", limits.write_timeout)),
        ("max-body", format!("{} bytes", limits.body_bytes_max)),
    ];
    listen.chain(others).map(|(name, value)| (name.to_owned(), value)).collect()
}

/// What is shown at the start.
pub(super) fn banner(
    config: &ServeConfig,
    addresses: &[ListenAddress],
    driver: Driver,
    refused: &[String],
) -> Vec<String> {
    let urls: Vec<String> =
        addresses.iter().map(|address| url(address, config.tls.is_some(), "")).collect();
    let threads = config.loops.summary();
    let answer = answer(&config.answer);
    let first = format!("{} ({driver}, {threads}, {answer})", urls.join(" "));
    let few = shortage(connections_max(config).into(), connections_within(limit(), &config.answer));
    std::iter::once(first).chain(refused.iter().cloned()).chain(few).collect()
}

pub(super) fn proxy_facts(
    config: &ProxyConfig,
    addresses: &[ListenAddress],
) -> Vec<(String, String)> {
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
        ("max-connections", config.connections_max().to_string()),
        ("max-body", format!("{} bytes", config.limits.body_bytes_max)),
    ];
    let balance = config.groups.iter().map(|group| ("balance", group.balance.name().to_owned()));
    let all = listen.chain(backends).chain(balance).chain(others).chain(times);
    all.map(|(name, value)| (name.to_owned(), value)).collect()
}

pub(super) fn proxy_banner(
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
    let few = shortage(config.connections_max().into(), config.connections_within(limit()));
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
        let connections = self.connections_max();
        writeln!(text, "{threads}, {poller}, {}, at most {connections} clients", loops.listeners)
            .expect("a string");
        text
    }
}

/// How requests are spread, and backends looked at.
fn group_summary(group: &GroupConfig) -> String {
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

/// A remark when more connections were configured than there can be.
fn shortage(wanted: u64, allowed: u64) -> Option<String> {
    (wanted > allowed).then(|| {
        format!(
            "max-connections is {wanted}, but the descriptor limit allows about {allowed}; \
             raise it ({RAISED_BY})"
        )
    })
}

fn answer(answer: &Answer) -> String {
    match answer {
        Answer::Reply { len_bytes, is_split } => {
            let how = if *is_split { ", in two writes without TCP_NODELAY" } else { "" };
            format!("a fixed reply, size {len_bytes}{how}")
        }
        Answer::Echo => "echo".to_owned(),
        Answer::Files(files) => format!("files of {}", files.root.display()),
    }
}

/// Where a browser finds it.
pub(super) fn url(address: &ListenAddress, is_secure: bool, path: &str) -> String {
    let scheme = if is_secure { "https" } else { "http" };
    match address {
        ListenAddress::Tcp(address) => format!("{scheme}://{address}{path}"),
        ListenAddress::Unix(_) => format!("{address}{path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_limit_that_is_too_low_is_reported() {
        assert_eq!(shortage(10, 10), None);
        assert!(shortage(11, 10).is_some_and(|line| line.contains("allows about 10")));
    }
}
