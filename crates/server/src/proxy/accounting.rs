//! What the client's side counts and logs of a request that has ended.

use std::net::IpAddr;

use pollux_engine::{Actions, Moment};
use pollux_http::{Request, Status};

use super::client::Client;
use super::counters::ProxyCounter;
use super::fault::Fault;
use super::shared::ProxyShared;
use crate::log::{AccessLog, Entry, Proxied};

impl Client {
    /// Counts and logs the end of an exchange.
    pub(super) fn record(&self, shared: &mut ProxyShared, at: u32, fault: Option<Fault>) {
        let now = shared.now;
        if let Some(fault) = fault {
            shared.proxied.count_fault(fault);
        }
        let exchange = shared.exchanges.get_mut(at);
        let bytes = exchange.response.body_bytes;
        shared.proxied.add(ProxyCounter::AnswerBytes, bytes);
        if exchange.status != 0 {
            shared.counters.count_answer(Status::of(exchange.status));
        }
        let Some(log) = &mut shared.log else { return };
        let Line { method, target, referer, agent } = Line::of(&exchange.line);
        let backend = exchange.backend.map_or("", |backend| shared.backends[backend].name.as_str());
        let times = exchange.times;
        let since = |moment: Option<Moment>| moment.map(|moment| moment - times.began);
        let proxied = Proxied {
            backend,
            queued: since(times.assigned),
            connected: since(times.connected),
            first_byte: since(times.first_byte),
            total: now.at - times.began,
            tries: exchange.tries,
            end: fault.map_or("ok", Fault::name),
            state: fault.map(|_| exchange.state()),
            is_retry_safe: fault.map(|_| exchange.is_retry_safe()),
        };
        let entry = Entry {
            peer: self.peer.as_deref().unwrap_or_default(),
            method,
            target,
            is_old: exchange.minor == 0,
            status: exchange.status,
            body_bytes: bytes,
            referer,
            agent,
            proxied: Some(proxied),
        };
        log.add(&entry, &shared.counters);
    }

    /// Logs an answer of the proxy's own.
    pub(super) fn log(
        &mut self,
        shared: &mut ProxyShared,
        actions: &Actions<'_>,
        (line, is_old): (&[u8], bool),
        status: u16,
        body_bytes: u64,
    ) {
        let Some(log) = &mut shared.log else { return };
        let peer = self.peer.get_or_insert_with(|| address_text(actions));
        let Line { method, target, referer, agent } = Line::of(line);
        let entry = Entry {
            peer,
            method,
            target,
            is_old,
            status,
            body_bytes,
            referer,
            agent,
            proxied: None,
        };
        log.add(&entry, &shared.counters);
    }
}

/// The address without its port; empty on a unix socket.
pub(super) fn address_text(actions: &Actions<'_>) -> Box<str> {
    let address: Option<IpAddr> = actions.peer().map(|peer| peer.ip().to_canonical());
    address.map_or_else(String::new, |address| address.to_string()).into()
}

/// Keeps what the log says of a request: method and target, and for the combined form two fields behind
/// them; no value of a field has a line feed.
pub(super) fn note_line(line: &mut Vec<u8>, request: &Request<'_>, log: &AccessLog) {
    line.extend_from_slice(request.method.name().as_bytes());
    line.push(b' ');
    line.extend_from_slice(request.target.text());
    if log.names_agents() {
        for name in ["referer", "user-agent"] {
            line.push(b'\n');
            line.extend_from_slice(request.fields.first(name).unwrap_or_default());
        }
    }
}

/// What [`note_line`] kept.
#[derive(Default)]
struct Line<'l> {
    method: &'l str,
    target: &'l str,
    referer: &'l str,
    agent: &'l str,
}

impl<'l> Line<'l> {
    fn of(line: &'l [u8]) -> Self {
        let mut parts = line.split(|byte| *byte == b'\n');
        let mut next = || str::from_utf8(parts.next().unwrap_or_default()).unwrap_or_default();
        let (method, target) = next().split_once(' ').unwrap_or_default();
        Self { method, target, referer: next(), agent: next() }
    }
}
