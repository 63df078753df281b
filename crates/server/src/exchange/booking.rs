//! The end of an exchange: its request is counted and logged, and the exchange is gone.
//!
//! What the log says of a request is kept with its exchange from the head on, as a line ([`note_line`]).

use pollux_engine::Moment;
use pollux_http::Request;
use pollux_tls::ClientIdentity;

use crate::exchange::proxy_loop::ProxyLoop;
use crate::fault::Fault;
use crate::ids::ExchangeId;
use crate::log::{AccessLog, Entry, Proxied};
use crate::record::{Books, End, Outcome};

impl ProxyLoop {
    /// The exchange is over: it is booked and gone.
    pub(crate) fn finish(
        &mut self,
        at: ExchangeId,
        fault: Option<Fault>,
        peer: &str,
        log: Option<&mut AccessLog>,
    ) {
        let exchange = self.exchanges.get(at);
        if let Some((route, status)) = exchange.counted.zip(exchange.status) {
            self.proxied.count_route(route, status);
        }
        if fault.is_some() || log.is_some() {
            self.book(at, fault, peer, log);
        } else {
            let exchange = self.exchanges.get(at);
            let books = Books { counters: &self.counters, proxied: Some(&self.proxied), log };
            books.count_answer(exchange.status, exchange.response.body_bytes());
        }
        self.end(at);
    }

    #[cold]
    #[inline(never)]
    fn book(&self, at: ExchangeId, fault: Option<Fault>, peer: &str, log: Option<&mut AccessLog>) {
        let exchange = self.exchanges.get(at);
        let outcome = Outcome {
            status: exchange.status,
            body_bytes: exchange.response.body_bytes(),
            end: fault.map_or(End::Whole, |fault| End::Failed(fault, exchange.refusal)),
        };
        let books = Books { counters: &self.counters, proxied: Some(&self.proxied), log };
        books.book(outcome, |_, outcome| self.entry(at, outcome, peer));
    }

    /// What the log says of it.
    fn entry<'a>(&'a self, at: ExchangeId, outcome: &Outcome, peer: &'a str) -> Entry<'a> {
        let exchange = self.exchanges.get(at);
        let fault = outcome.end.fault();
        let Line { method, target, referer, agent, user, client, site, route } =
            Line::of(&exchange.line);
        let times = exchange.times;
        let since = |moment: Option<Moment>| moment.map(|moment| moment - times.began);
        let proxied = Proxied {
            backend: exchange.backend.map_or("", |backend| self.name(backend)),
            queued: since(times.assigned),
            connected: since(times.connected),
            first_byte: since(times.first_byte),
            total: Some(self.now.at - times.began),
            tries: exchange.tries,
            end: outcome.end.word(),
            state: fault.map(|_| exchange.state()),
            is_retry_safe: fault.map(|_| exchange.is_retry_safe()),
        };
        Entry {
            peer,
            method,
            target,
            version: exchange.version.text(),
            status: outcome.status_logged(),
            body_bytes: outcome.body_bytes,
            referer,
            agent,
            user,
            client,
            request_id: exchange.request_id(),
            site,
            route,
            cut: None,
            proxied: Some(proxied),
        }
    }
}

/// Keeps what the log says of a request: method and target, and for the combined form two fields behind
/// them; then who asked, and where there are sites which of them and which of its routes has it. No value of a field has a
/// line feed, and neither have the names of routes.
pub(super) fn note_line(
    line: &mut Vec<u8>,
    request: &Request<'_>,
    (user, client): (&str, Option<&ClientIdentity>),
    (site, route): (&str, &str),
    log: &AccessLog,
) {
    line.extend_from_slice(request.method.name().as_bytes());
    line.push(b' ');
    line.extend_from_slice(request.target.text());
    if log.names_agents() {
        for name in ["referer", "user-agent"] {
            line.push(b'\n');
            line.extend_from_slice(request.fields.first(name).unwrap_or_default());
        }
    }
    let client = client.filter(|_| log.names_clients());
    let has_route = log.names_routes() && !site.is_empty();
    if !user.is_empty() || client.is_some() || has_route {
        line.extend_from_slice(if log.names_agents() { b"\n" } else { b"\n\n\n" });
        line.extend_from_slice(user.as_bytes());
    }
    let (subject, sha256) = client.map_or(("", ""), |client| (&client.subject, &client.sha256));
    let more: &[&str] = match (has_route, client) {
        (true, _) => &[subject, sha256, site, route],
        (false, Some(_)) => &[subject, sha256],
        (false, None) => &[],
    };
    for text in more {
        line.push(b'\n');
        line.extend_from_slice(text.as_bytes());
    }
}

/// What [`note_line`] kept.
#[derive(Default)]
struct Line<'l> {
    method: &'l str,
    target: &'l [u8],
    referer: &'l [u8],
    agent: &'l [u8],
    user: &'l str,
    client: (&'l str, &'l str),
    site: &'l str,
    route: &'l str,
}

impl<'l> Line<'l> {
    fn of(line: &'l [u8]) -> Self {
        let mut parts = line.split(|byte| *byte == b'\n');
        let mut next = || parts.next().unwrap_or_default();
        let mut words = next().splitn(2, |byte| *byte == b' ');
        let mut word = || words.next().unwrap_or_default();
        // Methods are ASCII.
        let method = str::from_utf8(word()).unwrap_or_default();
        let target = word();
        let referer = next();
        let agent = next();
        let mut text = || str::from_utf8(next()).unwrap_or_default();
        let user = text();
        let client = (text(), text());
        let site = text();
        let route = text();
        Self { method, target, referer, agent, user, client, site, route }
    }
}
