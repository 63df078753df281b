//! The proxy's side of one connection of HTTP/1.1 to a backend: requests out, answers in, one at a time. One of HTTP/2 is in `h2`.
//!
//! | what comes | without a request | before the answer | in the answer |
//! |---|---|---|---|
//! | bytes | closed: not asked for | the head, or 502 | passed on |
//! | the backend's end | closed | a second try where safe, else 502 | its end where that ends it, else the client is cut |
//! | the deadline | closed | 504, but not before anything was sent on a kept connection | the client is cut |
//!
//! The exchange that it has is found by its number. It is parted from the exchange before it ends,
//! so an answer never meets another request.

pub(crate) mod h2;

use std::borrow::Cow;
use std::io;

use pollux_engine::{Actions, CloseCause, Moment};
use pollux_http::{BodyReader, Response, ResponseBody, ResponseFacts};

use crate::exchange::connections::UpstreamConnection;
use crate::exchange::proxy_loop::ProxyLoop;
use crate::exchange::table::{Next, Stage};
use crate::fault::{Fault, ProxyCounter};
use crate::head::explanation;
use crate::ids::{ExchangeId, UpstreamId};

/// What is read of an answer that a page took the place of, so that its connection can carry another request.
const DROPPED_BYTES_MAX: usize = 64 * 1024;

/// One connection to a backend.
#[derive(Debug)]
pub(crate) struct Upstream {
    upstream: UpstreamId,
    /// Why the connection will be closed, once that is known here.
    fault: Option<Fault>,
    /// Whether the connection can carry another request behind this answer.
    keep_alive: bool,
    is_draining: bool,
    /// What follows of an answer that nobody gets.
    dropped: Option<Box<Dropped>>,
}

/// The rest of an answer that a page took the place of: its client waits for nothing of it.
#[derive(Debug)]
struct Dropped {
    reader: BodyReader,
    /// So much of it may still come before the connection is closed for it.
    left_bytes: usize,
}

impl Upstream {
    pub(crate) fn new(upstream: UpstreamId) -> Self {
        Self { upstream, fault: None, keep_alive: false, is_draining: false, dropped: None }
    }

    /// Says whose connection it is, where the backend wants that.
    pub(crate) fn announce(&self, proxy: &mut ProxyLoop, actions: &mut Actions<'_>) {
        if let Some(at) = proxy.connections.get_mut(self.upstream).exchange {
            let exchange = proxy.exchanges.get(at);
            proxy.announce(exchange.group, exchange.header, actions);
        }
    }

    pub(crate) fn connected(&mut self, proxy: &mut ProxyLoop, actions: &mut Actions<'_>) {
        // A backend may answer, and wait for us to read that, before it has the whole request.
        actions.read_on();
        let upstream = proxy.connections.get_mut(self.upstream);
        upstream.id = Some(actions.id());
        match upstream.exchange {
            Some(at) => {
                let now = proxy.now.at;
                let exchange = proxy.exchange(at);
                exchange.times.connected = Some(now);
                exchange.reach(Stage::Requesting);
                proxy.set_upstream_deadline(at, actions);
                proxy.upstream_ready(at, actions);
            }
            // Its client is gone meanwhile.
            None => self.become_idle(proxy, actions),
        }
    }

    pub(crate) fn connect_failed(&mut self, proxy: &mut ProxyLoop, error: &io::Error) {
        let fault = *self.fault.get_or_insert(Fault::of_connect(error));
        let UpstreamConnection { backend, exchange, .. } =
            *proxy.connections.get_mut(self.upstream);
        let waits = exchange.filter(|_| fault == Fault::UpstreamsFull);
        if waits.is_none_or(|at| !proxy.wait_for_room(at)) {
            proxy.report_connect(backend, error);
        }
    }

    /// There was no room for its connection.
    pub(crate) fn was_refused(&self) -> bool {
        self.fault == Some(Fault::UpstreamsFull)
    }

    pub(crate) fn tls_failed(&mut self, proxy: &mut ProxyLoop, error: Option<&pollux_tls::Error>) {
        self.fault.get_or_insert(Fault::TlsFailed);
        let backend = proxy.connections.get_mut(self.upstream).backend;
        proxy.report_tls(backend, error);
    }

    /// The connection is this session's until here.
    pub(crate) fn closed(mut self, proxy: &mut ProxyLoop, cause: CloseCause) {
        let upstream = proxy.connections.get_mut(self.upstream);
        let is_handshake = upstream.id.is_none() && upstream.tls.is_some();
        if is_handshake && upstream.exchange.is_some() && self.fault.is_none() {
            self.tls_failed(proxy, None);
        }
        let upstream = proxy.connections.get_mut(self.upstream);
        if upstream.pooled.is_some() && upstream.id.is_none() {
            proxy.proxied.count(ProxyCounter::Stale);
        }
        let exchange = proxy.connections.get_mut(self.upstream).exchange;
        if let Some(at) = exchange.filter(|at| proxy.exchanges.get(*at).is_tunnel()) {
            proxy.leave_tunnel(at);
            proxy.wake_asker_later(at);
        } else if let Some(at) = exchange {
            proxy.detach(at);
            let exchange = proxy.exchange(at);
            let fault = match (cause, exchange.has_answer()) {
                // It took nothing of the request.
                (CloseCause::SlowReader, false) => Fault::FirstByteTimeout,
                (CloseCause::SlowReader, true) => Fault::BodyTimeout,
                (_, false) => Fault::Closed,
                (_, true) => Fault::Cut,
            };
            let fault = self.fault.or_else(|| Fault::of_end(cause)).unwrap_or(fault);
            if proxy.fault(at, fault) != Next::Retry {
                proxy.wake_asker_later(at);
            }
        }
        proxy.end_upstream(self.upstream, cause == CloseCause::TakenOver);
    }

    pub(crate) fn on_wake(&mut self, proxy: &mut ProxyLoop, actions: &mut Actions<'_>) {
        let upstream = proxy.connections.get_mut(self.upstream);
        upstream.is_woken = false;
        if upstream.is_cut {
            return actions.abort();
        }
        let Some(at) = upstream.exchange else {
            // Something happened that was nothing: it is idle as before.
            if proxy.take_from_pool(self.upstream) {
                self.become_idle(proxy, actions);
            }
            return;
        };
        self.resume(proxy, actions, at);
        proxy.upstream_ready(at, actions);
    }

    pub(crate) fn on_output_sent(&mut self, proxy: &mut ProxyLoop, actions: &mut Actions<'_>) {
        let Some(at) = proxy.connections.get_mut(self.upstream).exchange else { return };
        let exchange = proxy.exchanges.get_mut(at);
        // A stream's window grows by all that leaves.
        let takes_more = exchange.request.has_left(&mut proxy.pipes) || exchange.asker.is_stream();
        if takes_more {
            proxy.wake_paused_asker(at, actions);
        }
        proxy.upstream_ready(at, actions);
    }

    pub(crate) fn on_bytes(
        &mut self,
        proxy: &mut ProxyLoop,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        let Some(at) = proxy.connections.get_mut(self.upstream).exchange else {
            return match self.dropped {
                Some(_) => self.drop_rest(proxy, actions, input),
                None => self.unasked(proxy, actions, input),
            };
        };
        let exchange = proxy.exchange(at);
        if !exchange.request.has_begun_to_leave() {
            // The answer to a request that has not been sent belongs to another one, or to none.
            self.fault = Some(Fault::Closed);
            return self.unasked(proxy, actions, input);
        }
        if exchange.is_tunnel() {
            return proxy.tunnel_bytes(at, actions, input);
        }
        let mut used = 0;
        while !proxy.exchange(at).has_answer() {
            match self.on_head(proxy, actions, at, &input[used..]) {
                Ok(0) => return used,
                Ok(head_bytes) => used += head_bytes,
                Err(why) => return self.refuse(proxy, actions, &why, input),
            }
            if self.dropped.is_some() {
                return self.leave_answer(proxy, actions, at, &input[used..]) + used;
            }
        }
        if proxy.exchange(at).is_tunnel() {
            return used + proxy.tunnel_bytes(at, actions, &input[used..]);
        }
        match proxy.answer_bytes(at, actions, &input[used..]) {
            Ok(body_bytes) => used += body_bytes,
            Err(refused) => {
                let why = explanation(&refused, &proxy.answer_limits);
                return self.refuse(proxy, actions, &why, input);
            }
        }
        if proxy.exchange(at).response.is_whole() {
            self.answer_is_whole(proxy, actions, at, used == input.len());
            return input.len();
        }
        used
    }

    /// Takes what is in the socket of the answer's body into a pipe.
    pub(crate) fn on_readable(&mut self, proxy: &mut ProxyLoop, actions: &mut Actions<'_>) {
        let Some(at) = proxy.connections.get_mut(self.upstream).exchange else {
            return actions.take_input();
        };
        proxy.answer_piped(at, actions);
        if proxy.exchange(at).response.is_whole() {
            let is_all_used = !actions.has_unread();
            self.answer_is_whole(proxy, actions, at, is_all_used);
        }
    }

    pub(crate) fn on_end(&mut self, proxy: &mut ProxyLoop, actions: &mut Actions<'_>) {
        let Some(at) = proxy.connections.get_mut(self.upstream).exchange else {
            let is_idle = self.dropped.is_none();
            proxy.proxied.add(ProxyCounter::IdleClosed, u64::from(is_idle));
            return actions.close();
        };
        let exchange = proxy.exchange(at);
        if exchange.has_answer() && !exchange.is_tunnel() && exchange.response.end().is_ok() {
            self.keep_alive = false;
            return self.answer_is_whole(proxy, actions, at, true);
        }
        if exchange.is_tunnel() {
            // The client may continue; its bytes are passed on as long as the backend takes them.
            exchange.response.set_whole(true);
            let is_over = exchange.request.is_done();
            proxy.set_upstream_deadline(at, actions);
            proxy.wake_asker(at, actions);
            if is_over {
                actions.close();
            }
            return;
        }
        // `closed` tells the rest.
        actions.abort();
    }

    /// The end of the connection without one of its encryption: an answer without an end of its own may be cut.
    pub(crate) fn on_cut(&mut self, proxy: &mut ProxyLoop, actions: &mut Actions<'_>) {
        match proxy.connections.get_mut(self.upstream).exchange {
            None => self.on_end(proxy, actions),
            Some(_) => actions.abort(),
        }
    }

    pub(crate) fn on_deadline(&mut self, proxy: &mut ProxyLoop, actions: &mut Actions<'_>) {
        let upstream = proxy.connections.get_mut(self.upstream);
        let is_connected = upstream.id.is_some();
        match upstream.exchange {
            None if is_connected && self.dropped.is_none() => {
                proxy.proxied.count(ProxyCounter::IdleDropped);
            }
            None => {}
            Some(at) => {
                let exchange = proxy.exchange(at);
                if exchange.is_reused && !exchange.request.has_begun_to_leave() {
                    // It was idle for too long in the turn in which it is needed again.
                    return actions.set_deadline(Moment::NEVER);
                }
                self.fault = Some(match (is_connected, exchange.has_answer()) {
                    (false, _) => Fault::ConnectTimeout,
                    (true, false) => Fault::FirstByteTimeout,
                    (true, true) => Fault::BodyTimeout,
                });
            }
        }
        actions.abort();
    }

    pub(crate) fn on_shutdown(&mut self, proxy: &mut ProxyLoop, actions: &mut Actions<'_>) {
        self.is_draining = true;
        let upstream = proxy.connections.get_mut(self.upstream);
        if upstream.exchange.is_none() && upstream.id.is_some() {
            actions.close();
        }
    }

    /// Reads a head; says how many bytes it took, none while it is not there, or what is wrong with it.
    fn on_head(
        &mut self,
        proxy: &mut ProxyLoop,
        actions: &mut Actions<'_>,
        at: ExchangeId,
        input: &[u8],
    ) -> Result<usize, Cow<'static, str>> {
        if let Some(facts) = proxy.answer_head_again(at, input) {
            self.keep_alive = keeps_alive(&facts);
            return Ok(facts.head_len);
        }
        let limits = proxy.answer_limits;
        let response = match Response::parse(input, &limits, proxy.exchange(at).kind) {
            Ok(Some(response)) => response,
            Ok(None) => return Ok(0),
            Err(refused) => return Err(explanation(&refused, &limits).into()),
        };
        let facts = response.facts;
        if facts.is_interim() {
            proxy.interim(at, actions, &response)?;
        } else if facts.status.code() == 101 {
            proxy.upgraded(at, actions, &response)?;
        } else {
            proxy.answer_head(at, &response, &input[..facts.head_len], false)?;
            self.keep_alive = keeps_alive(&facts);
            if proxy.exchange(at).fault.is_some() {
                let reader = BodyReader::of_response(facts.body, &limits);
                let left_bytes = DROPPED_BYTES_MAX;
                self.dropped = Some(Box::new(Dropped { reader, left_bytes }));
            }
        }
        Ok(facts.head_len)
    }

    /// The answer is whole. Keeps the connection for another request where nothing speaks against
    /// it.
    fn answer_is_whole(
        &mut self,
        proxy: &mut ProxyLoop,
        actions: &mut Actions<'_>,
        at: ExchangeId,
        is_all_used: bool,
    ) {
        let is_request_gone = proxy.answer_end(at, actions);
        if !is_all_used {
            proxy.proxied.count(ProxyCounter::Unasked);
        }
        if self.keep_alive && is_request_gone && is_all_used {
            self.become_idle(proxy, actions);
        } else {
            actions.abort();
        }
    }

    /// A page takes the place of the answer: the client has it at once, whatever still comes of the other one.
    #[cold]
    fn leave_answer(
        &mut self,
        proxy: &mut ProxyLoop,
        actions: &mut Actions<'_>,
        at: ExchangeId,
        input: &[u8],
    ) -> usize {
        self.keep_alive &= proxy.answer_end(at, actions);
        actions.set_deadline(proxy.deadline(proxy.limits.clients.body_timeout));
        self.drop_rest(proxy, actions, input)
    }

    /// Drops what comes of it. The connection is kept for another request where all of that is short, and comes in time.
    #[cold]
    fn drop_rest(
        &mut self,
        proxy: &mut ProxyLoop,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        let Some(Dropped { reader, left_bytes }) = self.dropped.as_deref_mut() else { return 0 };
        let mut used = 0;
        let mut is_sound = true;
        while is_sound && used < input.len() && !reader.is_done() {
            match reader.feed(&input[used..]) {
                Ok(step) => used += step.consumed,
                Err(_) => is_sound = false,
            }
        }
        let is_done = reader.is_done();
        let is_short = used <= *left_bytes;
        *left_bytes -= used.min(*left_bytes);
        if !is_sound || !is_short || !self.keep_alive {
            actions.abort();
        } else if is_done {
            self.dropped = None;
            if used < input.len() {
                return self.unasked(proxy, actions, input);
            }
            self.become_idle(proxy, actions);
        }
        input.len()
    }

    /// Waits for the next request.
    fn become_idle(&mut self, proxy: &mut ProxyLoop, actions: &mut Actions<'_>) {
        if !self.is_draining && proxy.park(self.upstream, actions) {
            self.keep_alive = false;
            actions.set_deadline(proxy.deadline(proxy.limits.upstream_idle_timeout));
        } else {
            actions.close();
        }
    }

    /// Continues when the client has taken what was there.
    fn resume(&mut self, proxy: &mut ProxyLoop, actions: &mut Actions<'_>, at: ExchangeId) {
        let exchange = proxy.exchange(at);
        if exchange.has_answer() && !exchange.response.is_full() {
            actions.resume_input();
            proxy.slow_down(at, actions);
        }
    }

    /// The bytes are not an answer; the error log gets why.
    #[cold]
    fn refuse(
        &mut self,
        proxy: &mut ProxyLoop,
        actions: &mut Actions<'_>,
        why: &str,
        input: &[u8],
    ) -> usize {
        self.fault = Some(Fault::BadAnswer);
        proxy.report_answer(proxy.connections.get(self.upstream).backend, why);
        actions.abort();
        input.len()
    }

    #[cold]
    fn unasked(&mut self, proxy: &mut ProxyLoop, actions: &mut Actions<'_>, input: &[u8]) -> usize {
        proxy.proxied.count(ProxyCounter::Unasked);
        actions.abort();
        input.len()
    }
}

/// Whether the connection can carry another request behind this answer.
fn keeps_alive(facts: &ResponseFacts) -> bool {
    facts.keep_alive && facts.body != ResponseBody::UntilClose
}
