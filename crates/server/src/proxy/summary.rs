//! What a proxy configured so would do, in words: for `pollux proxy --check`.

use std::fmt::Write;

use super::config::{Check, GroupConfig, Mode, ProxyConfig};
use crate::descriptors::proxy_connections_max;

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
