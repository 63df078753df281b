//! What the sessions of one loop of a proxy share, and what changes for both sides at once.
//!
//! Each loop makes its own, so nothing here is locked; the counters are read from other threads.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use pollux_engine::{Actions, ConnectTo, ConnectionId, Errand, Moment, Now};
use pollux_http::DateCache;

use super::config::{Forwarded, ProxyConfig, ProxyLimits};
use super::counters::{ProxyCounter, ProxyCounters};
use super::exchange::{Exchange, Exchanges};
use super::fault::Fault;
use super::links::Links;
use super::session::ProxySession;
use crate::ServerError;
use crate::counters::ServerCounters;
use crate::log::{AccessLog, Event, Logs};

/// Upstream connections that one request may have, one after the other.
const TRIES_MAX: u32 = 3;

/// What the sessions of one loop of a proxy share.
#[derive(Debug)]
pub struct ProxyShared {
    pub(super) backends: Vec<Backend>,
    pub(super) limits: ProxyLimits,
    pub(super) forwarded: Forwarded,
    pub(super) trusts_forwarded: bool,
    /// Of requests, and of answers.
    pub(super) head_limits: pollux_http::Limits,
    pub(super) answer_limits: pollux_http::Limits,
    pub(super) date: DateCache,
    pub(super) now: Now,
    pub(super) exchanges: Exchanges,
    pub(super) links: Links,
    pub(super) log: Option<AccessLog>,
    pub(super) logs: Logs,
    pub(super) counters: Arc<ServerCounters>,
    pub(super) proxied: Arc<ProxyCounters>,
    pub(super) is_draining: bool,
    errands: VecDeque<Errand<ProxySession>>,
    next_backend: usize,
}

/// Where requests go.
#[derive(Clone, Debug)]
pub(super) struct Backend {
    pub(super) to: ConnectTo,
    /// Its address, for the log and for requests that name no host.
    pub(super) name: String,
}

impl ProxyShared {
    /// What one loop of a proxy configured so needs; the counters are kept by the caller too.
    ///
    /// # Errors
    /// When the log cannot be opened.
    pub fn new(
        config: &ProxyConfig,
        counters: Arc<ServerCounters>,
        proxied: Arc<ProxyCounters>,
        logs: &Logs,
    ) -> Result<Self, ServerError> {
        let open = |target| AccessLog::open(target, config.access_log_format, logs.clone());
        let log = config.access_log.as_ref().map(open).transpose()?;
        let backends = config.backends.iter().map(|peer| Backend {
            to: ConnectTo { peer: peer.clone(), source: None },
            name: peer.to_string(),
        });
        let body_bytes = config.limits.body_bytes_max;
        Ok(Self {
            backends: backends.collect(),
            limits: config.limits.clone(),
            forwarded: config.forwarded,
            trusts_forwarded: config.trusts_forwarded,
            head_limits: pollux_http::Limits { body_bytes, ..pollux_http::Limits::default() },
            // An answer is passed on piece by piece, however long it is.
            answer_limits: pollux_http::Limits {
                body_bytes: u64::MAX,
                ..pollux_http::Limits::default()
            },
            date: DateCache::new(0),
            now: Now::default(),
            exchanges: Exchanges::default(),
            links: Links::new(config.backends.len()),
            log,
            logs: logs.clone(),
            counters,
            proxied,
            is_draining: false,
            errands: VecDeque::new(),
            next_backend: 0,
        })
    }

    /// Requests under way, and upstream connections.
    #[must_use]
    pub fn open(&self) -> (usize, usize) {
        (self.exchanges.open(), self.links.open())
    }

    /// Upstream connections without a request, to the backend at this place.
    #[must_use]
    pub fn idle(&self, backend: usize) -> usize {
        self.links.idle(backend)
    }

    pub(super) fn begin_turn(&mut self, now: Now) {
        if now.unix_s != self.now.unix_s {
            self.date.at(now.unix_s);
        }
        self.now = now;
        if let Some(log) = &mut self.log {
            log.begin_turn(now.unix_s, &self.counters);
        }
    }

    pub(super) fn end_turn(&mut self) {
        if let Some(log) = &mut self.log {
            log.end_turn(&self.counters);
        }
    }

    pub(super) fn errand(&mut self) -> Option<Errand<ProxySession>> {
        self.errands.pop_front()
    }

    /// The exchange of this number.
    pub(super) fn exchange(&mut self, at: u32) -> &mut Exchange {
        self.exchanges.get(at)
    }

    /// Finds an upstream connection for the exchange: an idle one of the backend whose turn it is,
    /// or a new one. Says which backend that is.
    pub(super) fn assign(&mut self, at: u32) -> usize {
        let backend = self.next_backend;
        self.next_backend = (backend + 1) % self.backends.len();
        let now = self.now.at;
        let exchange = self.exchanges.get(at);
        exchange.tries += 1;
        exchange.backend = Some(backend);
        exchange.times.assigned.get_or_insert(now);
        // A second try needs a connection that cannot have been closed long ago.
        let idle = match exchange.tries {
            1 => self.links.take_idle(backend, at),
            _ => None,
        };
        exchange.is_reused = idle.is_some();
        if let Some(link) = idle {
            exchange.link = Some(link);
            exchange.times.connected = Some(now);
            self.proxied.count(ProxyCounter::Reuses);
            return backend;
        }
        let link = self.links.begin(backend, at);
        exchange.link = Some(link);
        self.proxied.count(ProxyCounter::Connects);
        let to = self.backends[backend].to.clone();
        let deadline = now + self.limits.connect_timeout;
        let session = ProxySession::upstream(link);
        self.errands.push_back(Errand::Connect { to, session, deadline });
        backend
    }

    /// Has the upstream connection of the exchange look at it, if it is connected.
    pub(super) fn wake_upstream(&mut self, at: u32, actions: &mut Actions<'_>) {
        let Some(link) = self.exchanges.get(at).link else { return };
        let link = self.links.get(link);
        if let Some(id) = link.id
            && !std::mem::replace(&mut link.is_woken, true)
        {
            actions.wake(id);
        }
    }

    /// Has the client look at the exchange.
    pub(super) fn wake_client(&mut self, at: u32, actions: &mut Actions<'_>) {
        let exchange = self.exchanges.get(at);
        if !std::mem::replace(&mut exchange.is_client_woken, true) {
            actions.wake(exchange.client);
        }
    }

    /// Parts the exchange and its upstream connection. Returns the connection.
    pub(super) fn part(&mut self, at: u32) -> Option<u32> {
        let link = self.exchanges.get(at).link.take()?;
        self.links.get(link).exchange = None;
        Some(link)
    }

    /// Takes the exchange from its upstream connection before the answer is whole: that one ends,
    /// for what still comes belongs to nobody.
    pub(super) fn take_back(&mut self, at: u32) {
        let Some(link) = self.part(at) else { return };
        let link = self.links.get(link);
        // One that is being opened has seen nothing and can serve another request.
        if let Some(id) = link.id {
            link.is_cut = true;
            self.errands.push_back(Errand::Wake(id));
        }
    }

    /// The upstream connection of the exchange has failed and was parted from it. Another one gets
    /// it where that is safe, else the client is told.
    pub(super) fn upstream_failed(&mut self, at: u32, fault: Fault) {
        if self.may_try_again(at, fault) {
            self.proxied.count(ProxyCounter::Retries);
            self.assign(at);
            return;
        }
        let exchange = self.exchanges.get(at);
        exchange.fault = Some(fault);
        exchange.is_client_woken = true;
        let client = exchange.client;
        self.errands.push_back(Errand::Wake(client));
    }

    /// Safe is a second try when the backend has seen nothing of the request, or when it closed an
    /// idle connection, which it may do at any time, and the request can be repeated.
    fn may_try_again(&mut self, at: u32, fault: Fault) -> bool {
        let backends = self.backends.len() as u32;
        let exchange = self.exchanges.get(at);
        if exchange.has_answer || exchange.interims > 0 || exchange.tries >= TRIES_MAX {
            return false;
        }
        let has_left = exchange.request.has_begun_to_leave();
        let is_safe = match fault {
            // Another backend may be there.
            Fault::ConnectFailed | Fault::ConnectTimeout => exchange.tries < backends,
            Fault::Closed if exchange.is_reused => !has_left || exchange.is_idempotent,
            _ => false,
        };
        is_safe && exchange.request.rewind()
    }

    /// Has the client go on with the body of its request, if that was too much before.
    pub(super) fn wake_paused_client(&mut self, at: u32, actions: &mut Actions<'_>) {
        if self.exchanges.get(at).is_client_paused {
            self.wake_client(at, actions);
        }
    }

    /// The upstream connection of a tunnel has ended: the client gets what came, and its own end.
    pub(super) fn tunnel_ended(&mut self, at: u32) {
        let exchange = self.exchanges.get(at);
        exchange.is_client_woken = true;
        let client = exchange.client;
        self.errands.push_back(Errand::Wake(client));
    }

    /// Has the error log say why a backend could not be reached.
    #[cold]
    pub(super) fn report_connect(&self, backend: usize, error: &io::Error) {
        let name = &self.backends[backend].name;
        let text = || format!("no connection to the backend {name}: {error}");
        self.logs.errors.report(Event::BackendLost, self.now.unix_s, text);
    }

    /// Has the error log say what was wrong with a backend.
    #[cold]
    pub(super) fn report_fault(&self, at: u32, fault: Fault) {
        let exchange = self.exchanges.look(at);
        let Some(backend) = exchange.backend else { return };
        let name = &self.backends[backend].name;
        let text = || format!("the backend {name}: {}", fault.about());
        self.logs.errors.report(Event::BackendFailed, self.now.unix_s, text);
    }

    /// The deadline `after` from now.
    pub(super) fn deadline(&self, after: std::time::Duration) -> Moment {
        self.now.at + after
    }

    /// Ends the exchange; whoever has it upstream loses it.
    pub(super) fn end(&mut self, at: u32) {
        self.take_back(at);
        self.exchanges.end(at);
    }

    pub(super) fn begin(&mut self, client: ConnectionId) -> u32 {
        let began = self.now.at;
        self.exchanges.begin(client, began)
    }
}

impl Drop for ProxyShared {
    /// The last lines of the log.
    fn drop(&mut self) {
        if let Some(log) = &mut self.log {
            log.flush(&self.counters);
        }
    }
}
