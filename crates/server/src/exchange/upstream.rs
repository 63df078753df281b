//! The proxy's side of one connection of HTTP/1.1 to a backend: requests out, answers in, one at a time. One of HTTP/2 is in `h2`.
//!
//! | what comes | without a request | before the answer | in the answer |
//! |---|---|---|---|
//! | bytes | closed: not asked for | the head, or 502 | passed on |
//! | the backend's end | closed | a second try where safe, else 502 | its end where that ends it, else the client is cut |
//! | the deadline | closed | 504, but not before anything was sent on a kept connection | the client is cut |
//!
//! The exchange that it has is found by its link. It is parted from the exchange before it ends,
//! so an answer never meets another request.

pub(crate) mod h2;

use std::borrow::Cow;
use std::io;

use pollux_engine::{Actions, CloseCause, Moment};
use pollux_http::{Response, ResponseBody, ResponseFacts};

use crate::exchange::table::{Link, Next, Stage};
use crate::exchange::upstreams::Upstreams;
use crate::fault::{Fault, ProxyCounter};
use crate::head::explanation;
use crate::ids::{ExchangeId, UpstreamId};

/// One connection to a backend.
#[derive(Debug)]
pub(crate) struct Upstream {
    link: UpstreamId,
    /// Why the connection will be closed, once that is known here.
    fault: Option<Fault>,
    /// Whether the connection can carry another request behind this answer.
    keep_alive: bool,
    is_draining: bool,
}

impl Upstream {
    pub(crate) fn new(link: UpstreamId) -> Self {
        Self { link, fault: None, keep_alive: false, is_draining: false }
    }

    /// Says whose connection it is, where the backend wants that.
    pub(crate) fn announce(&self, upstreams: &mut Upstreams, actions: &mut Actions<'_>) {
        if let Some(at) = upstreams.links.get_mut(self.link).exchange {
            let exchange = upstreams.exchanges.get(at);
            upstreams.announce(exchange.group, exchange.header, actions);
        }
    }

    pub(crate) fn connected(&mut self, upstreams: &mut Upstreams, actions: &mut Actions<'_>) {
        // A backend may answer, and wait for us to read that, before it has the whole request.
        actions.read_on();
        let link = upstreams.links.get_mut(self.link);
        link.id = Some(actions.id());
        match link.exchange {
            Some(at) => {
                let now = upstreams.now.at;
                let exchange = upstreams.exchange(at);
                exchange.times.connected = Some(now);
                exchange.reach(Stage::Requesting);
                upstreams.set_upstream_deadline(at, actions);
                upstreams.upstream_ready(at, actions);
            }
            // Its client is gone meanwhile.
            None => self.become_idle(upstreams, actions),
        }
    }

    pub(crate) fn connect_failed(&mut self, upstreams: &mut Upstreams, error: &io::Error) {
        let fault = *self.fault.get_or_insert(Fault::of_connect(error));
        let Link { backend, exchange, .. } = *upstreams.links.get_mut(self.link);
        let waits = exchange.filter(|_| fault == Fault::UpstreamsFull);
        if waits.is_none_or(|at| !upstreams.wait_for_room(at)) {
            upstreams.report_connect(backend, error);
        }
    }

    /// There was no room for its connection.
    pub(crate) fn was_refused(&self) -> bool {
        self.fault == Some(Fault::UpstreamsFull)
    }

    pub(crate) fn tls_failed(
        &mut self,
        upstreams: &mut Upstreams,
        error: Option<&pollux_tls::Error>,
    ) {
        self.fault.get_or_insert(Fault::TlsFailed);
        let backend = upstreams.links.get_mut(self.link).backend;
        upstreams.report_tls(backend, error);
    }

    /// The link is this session's until here.
    pub(crate) fn closed(mut self, upstreams: &mut Upstreams, cause: CloseCause) {
        let link = upstreams.links.get_mut(self.link);
        let is_handshake = link.id.is_none() && link.tls.is_some();
        if is_handshake && link.exchange.is_some() && self.fault.is_none() {
            self.tls_failed(upstreams, None);
        }
        let link = upstreams.links.get_mut(self.link);
        if link.pooled.is_some() && link.id.is_none() {
            upstreams.proxied.count(ProxyCounter::Stale);
        }
        if let Some(at) = upstreams.links.get_mut(self.link).exchange {
            upstreams.detach(at);
            let exchange = upstreams.exchange(at);
            let is_tunnel = exchange.is_tunnel();
            if is_tunnel {
                exchange.request.set_whole(true);
                // A stream can tell an end from a cut, and does.
                let is_said = exchange.response.is_whole() || !exchange.asker.is_stream();
                exchange.response.set_whole(is_said);
            }
            let fault = match (cause, exchange.has_answer()) {
                // It took nothing of the request.
                (CloseCause::SlowReader, false) => Fault::FirstByteTimeout,
                (CloseCause::SlowReader, true) => Fault::BodyTimeout,
                (_, false) => Fault::Closed,
                (_, true) => Fault::Cut,
            };
            let fault = self.fault.or_else(|| Fault::of_end(cause)).unwrap_or(fault);
            // A tunnel has come to its end.
            if is_tunnel || upstreams.fault(at, fault) != Next::Retry {
                upstreams.wake_asker_later(at);
            }
        }
        upstreams.end_link(self.link, cause == CloseCause::TakenOver);
    }

    pub(crate) fn on_wake(&mut self, upstreams: &mut Upstreams, actions: &mut Actions<'_>) {
        let link = upstreams.links.get_mut(self.link);
        link.is_woken = false;
        if link.is_cut {
            return actions.abort();
        }
        let Some(at) = link.exchange else {
            // Something happened that was nothing: it is idle as before.
            if upstreams.take_from_pool(self.link) {
                self.become_idle(upstreams, actions);
            }
            return;
        };
        self.resume(upstreams, actions, at);
        upstreams.upstream_ready(at, actions);
    }

    pub(crate) fn on_output_sent(&mut self, upstreams: &mut Upstreams, actions: &mut Actions<'_>) {
        let Some(at) = upstreams.links.get_mut(self.link).exchange else { return };
        let exchange = upstreams.exchanges.get_mut(at);
        // A stream's window grows by all that leaves.
        let takes_more =
            exchange.request.has_left(&mut upstreams.pipes) || exchange.asker.is_stream();
        if takes_more {
            upstreams.wake_paused_asker(at, actions);
        }
        upstreams.upstream_ready(at, actions);
    }

    pub(crate) fn on_bytes(
        &mut self,
        upstreams: &mut Upstreams,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        let Some(at) = upstreams.links.get_mut(self.link).exchange else {
            return self.unasked(upstreams, actions, input);
        };
        let exchange = upstreams.exchange(at);
        if !exchange.request.has_begun_to_leave() {
            // The answer to a request that has not been sent belongs to another one, or to none.
            self.fault = Some(Fault::Closed);
            return self.unasked(upstreams, actions, input);
        }
        if exchange.is_tunnel() {
            return upstreams.tunnel_bytes(at, actions, input);
        }
        let mut used = 0;
        while !upstreams.exchange(at).has_answer() {
            match self.on_head(upstreams, actions, at, &input[used..]) {
                Ok(0) => return used,
                Ok(head_bytes) => used += head_bytes,
                Err(why) => return self.refuse(upstreams, actions, &why, input),
            }
        }
        if upstreams.exchange(at).is_tunnel() {
            return used + upstreams.tunnel_bytes(at, actions, &input[used..]);
        }
        match upstreams.answer_bytes(at, actions, &input[used..]) {
            Ok(body_bytes) => used += body_bytes,
            Err(refused) => {
                let why = explanation(&refused, &upstreams.answer_limits);
                return self.refuse(upstreams, actions, &why, input);
            }
        }
        if upstreams.exchange(at).response.is_whole() {
            self.answer_is_whole(upstreams, actions, at, used == input.len());
            return input.len();
        }
        used
    }

    /// Takes what is in the socket of the answer's body into a pipe.
    pub(crate) fn on_readable(&mut self, upstreams: &mut Upstreams, actions: &mut Actions<'_>) {
        let Some(at) = upstreams.links.get_mut(self.link).exchange else {
            return actions.take_input();
        };
        upstreams.answer_piped(at, actions);
        if upstreams.exchange(at).response.is_whole() {
            let is_all_used = !actions.has_unread();
            self.answer_is_whole(upstreams, actions, at, is_all_used);
        }
    }

    pub(crate) fn on_end(&mut self, upstreams: &mut Upstreams, actions: &mut Actions<'_>) {
        let Some(at) = upstreams.links.get_mut(self.link).exchange else {
            upstreams.proxied.count(ProxyCounter::IdleClosed);
            return actions.close();
        };
        let exchange = upstreams.exchange(at);
        if exchange.has_answer() && !exchange.is_tunnel() && exchange.response.end().is_ok() {
            self.keep_alive = false;
            return self.answer_is_whole(upstreams, actions, at, true);
        }
        if exchange.is_tunnel() {
            // The client may continue; its bytes are passed on as long as the backend takes them.
            exchange.response.set_whole(true);
            let is_over = exchange.request.is_done();
            upstreams.set_upstream_deadline(at, actions);
            upstreams.wake_asker(at, actions);
            if is_over {
                actions.close();
            }
            return;
        }
        // `closed` tells the rest.
        actions.abort();
    }

    /// The end of the connection without one of its encryption: an answer without an end of its own may be cut.
    pub(crate) fn on_cut(&mut self, upstreams: &mut Upstreams, actions: &mut Actions<'_>) {
        match upstreams.links.get_mut(self.link).exchange {
            None => self.on_end(upstreams, actions),
            Some(_) => actions.abort(),
        }
    }

    pub(crate) fn on_deadline(&mut self, upstreams: &mut Upstreams, actions: &mut Actions<'_>) {
        let link = upstreams.links.get_mut(self.link);
        let is_connected = link.id.is_some();
        match link.exchange {
            None if is_connected => upstreams.proxied.count(ProxyCounter::IdleDropped),
            None => {}
            Some(at) => {
                let exchange = upstreams.exchange(at);
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

    pub(crate) fn on_shutdown(&mut self, upstreams: &mut Upstreams, actions: &mut Actions<'_>) {
        self.is_draining = true;
        let link = upstreams.links.get_mut(self.link);
        if link.exchange.is_none() && link.id.is_some() {
            actions.close();
        }
    }

    /// Reads a head; says how many bytes it took, none while it is not there, or what is wrong with it.
    fn on_head(
        &mut self,
        upstreams: &mut Upstreams,
        actions: &mut Actions<'_>,
        at: ExchangeId,
        input: &[u8],
    ) -> Result<usize, Cow<'static, str>> {
        if let Some(facts) = upstreams.answer_head_again(at, input) {
            self.keep_alive = keeps_alive(&facts);
            return Ok(facts.head_len);
        }
        let limits = upstreams.answer_limits;
        let response = match Response::parse(input, &limits, upstreams.exchange(at).kind) {
            Ok(Some(response)) => response,
            Ok(None) => return Ok(0),
            Err(refused) => return Err(explanation(&refused, &limits).into()),
        };
        let facts = response.facts;
        if facts.is_interim() {
            upstreams.interim(at, actions, &response)?;
        } else if facts.status.code() == 101 {
            upstreams.upgraded(at, actions, &response)?;
        } else {
            upstreams.answer_head(at, &response, &input[..facts.head_len])?;
            self.keep_alive = keeps_alive(&facts);
        }
        Ok(facts.head_len)
    }

    /// The answer is whole. Keeps the connection for another request where nothing speaks against
    /// it.
    fn answer_is_whole(
        &mut self,
        upstreams: &mut Upstreams,
        actions: &mut Actions<'_>,
        at: ExchangeId,
        is_all_used: bool,
    ) {
        let is_request_gone = upstreams.answer_end(at, actions);
        if !is_all_used {
            upstreams.proxied.count(ProxyCounter::Unasked);
        }
        if self.keep_alive && is_request_gone && is_all_used {
            self.become_idle(upstreams, actions);
        } else {
            actions.abort();
        }
    }

    /// Waits for the next request.
    fn become_idle(&mut self, upstreams: &mut Upstreams, actions: &mut Actions<'_>) {
        if !self.is_draining && upstreams.park(self.link, actions) {
            self.keep_alive = false;
            actions.set_deadline(upstreams.deadline(upstreams.limits.upstream_idle_timeout));
        } else {
            actions.close();
        }
    }

    /// Continues when the client has taken what was there.
    fn resume(&mut self, upstreams: &mut Upstreams, actions: &mut Actions<'_>, at: ExchangeId) {
        let exchange = upstreams.exchange(at);
        if exchange.has_answer() && !exchange.response.is_full() {
            actions.resume_input();
            upstreams.slow_down(at, actions);
        }
    }

    /// The bytes are not an answer; the error log gets why.
    #[cold]
    fn refuse(
        &mut self,
        upstreams: &mut Upstreams,
        actions: &mut Actions<'_>,
        why: &str,
        input: &[u8],
    ) -> usize {
        self.fault = Some(Fault::BadAnswer);
        upstreams.report_answer(upstreams.links.get(self.link).backend, why);
        actions.abort();
        input.len()
    }

    #[cold]
    fn unasked(
        &mut self,
        upstreams: &mut Upstreams,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        upstreams.proxied.count(ProxyCounter::Unasked);
        actions.abort();
        input.len()
    }
}

/// Whether the connection can carry another request behind this answer.
fn keeps_alive(facts: &ResponseFacts) -> bool {
    facts.keep_alive && facts.body != ResponseBody::UntilClose
}
