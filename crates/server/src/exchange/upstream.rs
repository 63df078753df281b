//! The proxy's side of one connection to a backend: requests out, answers in.
//!
//! | what comes | without a request | before the answer | in the answer |
//! |---|---|---|---|
//! | bytes | closed: not asked for | the head, or 502 | passed on |
//! | the backend's end | closed | a second try where safe, else 502 | its end where that ends it, else the client is cut |
//! | the deadline | closed | 504, but not before anything was sent on a kept connection | the client is cut |
//!
//! The exchange that it has is found by its link. It is parted from the exchange before it ends,
//! so an answer never meets another request.

use std::borrow::Cow;
use std::io;

use pollux_engine::{Actions, CloseCause, Moment};
use pollux_http::{BodyReader, Response, ResponseBody, ResponseFacts};

use crate::exchange::channel::ChannelEnd;
use crate::exchange::shared::Upstreams;
use crate::exchange::table::{Link, Stage};
use crate::fault::{Fault, ProxyCounter};
use crate::head::cache::AnswerKey;
use crate::head::explanation;
use crate::head::proxied::{
    AnswerContext, BodyFraming, write_answer, write_interim, write_upgrade,
};
use crate::ids::{ExchangeId, UpstreamId};

/// Interim answers to one request; a backend that sends them for ever is not answering. One each ten seconds, as a
/// sign that a long request is under way (RFC 2518 10.1), makes 360 in the hour that it has by default.
const INTERIMS_MAX: u32 = 1024;
/// With this much of them waiting for the client no other one is taken. One more, and the page for a fault
/// behind them, fit into a call ([`Actions::ROOM_MIN`]): what a client gets of an interim answer is whole.
const INTERIM_BYTES_MAX: usize = 40 * 1024;
/// Longest interim answer that is passed on.
const INTERIM_HEAD_BYTES_MAX: usize = 16 * 1024;

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
    pub(crate) fn announce(&self, shared: &mut Upstreams, actions: &mut Actions<'_>) {
        if let Some(at) = shared.links.get_mut(self.link).exchange {
            let exchange = shared.exchanges.get(at);
            shared.announce(exchange.group, exchange.header, actions);
        }
    }

    pub(crate) fn connected(&mut self, shared: &mut Upstreams, actions: &mut Actions<'_>) {
        // A backend may answer, and wait for us to read that, before it has the whole request.
        actions.read_on();
        let link = shared.links.get_mut(self.link);
        link.id = Some(actions.id());
        match link.exchange {
            Some(at) => {
                let now = shared.now.at;
                let exchange = shared.exchange(at);
                exchange.times.connected = Some(now);
                exchange.reach(Stage::Requesting);
                actions.set_deadline(Moment::NEVER);
                self.send(shared, actions, at);
            }
            // Its client is gone meanwhile.
            None => self.become_idle(shared, actions),
        }
    }

    pub(crate) fn connect_failed(&mut self, shared: &mut Upstreams, error: &io::Error) {
        let fault = *self.fault.get_or_insert(Fault::of_connect(error));
        let Link { backend, exchange, .. } = *shared.links.get_mut(self.link);
        let waits = exchange.filter(|_| fault == Fault::UpstreamsFull);
        if waits.is_none_or(|at| !shared.wait_for_room(at)) {
            shared.report_connect(backend, error);
        }
    }

    /// There was no room for its connection.
    pub(crate) fn was_refused(&self) -> bool {
        self.fault == Some(Fault::UpstreamsFull)
    }

    pub(crate) fn tls_failed(&mut self, shared: &mut Upstreams, error: Option<&pollux_tls::Error>) {
        self.fault.get_or_insert(Fault::TlsFailed);
        let backend = shared.links.get_mut(self.link).backend;
        shared.report_tls(backend, error);
    }

    /// The link is this session's until here.
    pub(crate) fn closed(mut self, shared: &mut Upstreams, cause: CloseCause) {
        let link = shared.links.get_mut(self.link);
        let is_handshake = link.id.is_none() && link.tls.is_some();
        if is_handshake && link.exchange.is_some() && self.fault.is_none() {
            self.tls_failed(shared, None);
        }
        let link = shared.links.get_mut(self.link);
        if link.pooled.is_some() && link.id.is_none() {
            shared.proxied.count(ProxyCounter::Stale);
        }
        if let Some(at) = shared.links.get_mut(self.link).exchange {
            shared.part(at);
            let exchange = shared.exchange(at);
            let is_tunnel = exchange.is_tunnel();
            if is_tunnel {
                (exchange.request.is_whole, exchange.response.is_whole) = (true, true);
            }
            let fault = match (cause, exchange.has_answer()) {
                // It took nothing of the request.
                (CloseCause::SlowReader, false) => Fault::FirstByteTimeout,
                (CloseCause::SlowReader, true) => Fault::BodyTimeout,
                (_, false) => Fault::Closed,
                (_, true) => Fault::Cut,
            };
            let fault = self.fault.or_else(|| Fault::of_end(cause)).unwrap_or(fault);
            if is_tunnel {
                shared.tunnel_ended(at);
            } else {
                shared.upstream_failed(at, fault);
            }
        }
        shared.end_link(self.link, cause == CloseCause::TakenOver);
    }

    pub(crate) fn on_wake(&mut self, shared: &mut Upstreams, actions: &mut Actions<'_>) {
        let link = shared.links.get_mut(self.link);
        link.is_woken = false;
        if link.is_cut {
            return actions.abort();
        }
        let Some(at) = link.exchange else {
            // Something happened that was nothing: it is idle as before.
            if shared.take_from_pool(self.link) {
                self.become_idle(shared, actions);
            }
            return;
        };
        self.resume(shared, actions, at);
        self.send(shared, actions, at);
    }

    pub(crate) fn on_drained(&mut self, shared: &mut Upstreams, actions: &mut Actions<'_>) {
        let Some(at) = shared.links.get_mut(self.link).exchange else { return };
        if shared.exchanges.get_mut(at).request.has_left(&mut shared.pipes) {
            shared.wake_paused_client(at, actions);
        }
        self.send(shared, actions, at);
    }

    pub(crate) fn on_bytes(
        &mut self,
        shared: &mut Upstreams,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        let Some(at) = shared.links.get_mut(self.link).exchange else {
            return self.unasked(shared, actions, input);
        };
        let exchange = shared.exchange(at);
        if !exchange.request.has_begun_to_leave() {
            // The answer to a request that has not been sent belongs to another one, or to none.
            self.fault = Some(Fault::Closed);
            return self.unasked(shared, actions, input);
        }
        if exchange.is_tunnel() {
            return self.pass_on(shared, actions, at, input);
        }
        let mut used = 0;
        while !shared.exchange(at).has_answer() {
            match self.on_head(shared, actions, at, &input[used..]) {
                Ok(0) => return used,
                Ok(head_bytes) => used += head_bytes,
                Err(why) => return self.refuse(shared, actions, &why, input),
            }
        }
        if shared.exchange(at).is_tunnel() {
            return used + self.pass_on(shared, actions, at, &input[used..]);
        }
        match shared.exchange(at).response.take(&input[used..]) {
            Ok(body_bytes) => used += body_bytes,
            Err(refused) => {
                let why = explanation(&refused, &shared.answer_limits);
                return self.refuse(shared, actions, &why, input);
            }
        }
        if shared.exchange(at).response.is_whole {
            shared.leave_long_body(at, ChannelEnd::Backend, actions);
            self.answered(shared, actions, at, used == input.len());
            return input.len();
        }
        self.slow_down(shared, actions, at);
        shared.wake_client(at, actions);
        shared.leave_long_body(at, ChannelEnd::Backend, actions);
        used
    }

    /// Takes what is in the socket of the answer's body into a pipe.
    pub(crate) fn on_readable(&mut self, shared: &mut Upstreams, actions: &mut Actions<'_>) {
        let Some(at) = shared.links.get_mut(self.link).exchange else {
            return actions.take_input();
        };
        let bytes = shared.splice_body(at, ChannelEnd::Backend, actions);
        let response = &shared.exchange(at).response;
        if response.is_whole {
            let is_all_used = !actions.has_unread();
            return self.answered(shared, actions, at, is_all_used);
        }
        if bytes > 0 || response.is_full() {
            self.slow_down(shared, actions, at);
            shared.wake_client(at, actions);
        }
    }

    pub(crate) fn on_end(&mut self, shared: &mut Upstreams, actions: &mut Actions<'_>) {
        let Some(at) = shared.links.get_mut(self.link).exchange else {
            shared.proxied.count(ProxyCounter::IdleClosed);
            return actions.close();
        };
        let exchange = shared.exchange(at);
        if exchange.has_answer() && !exchange.is_tunnel() && exchange.response.end().is_ok() {
            self.keep_alive = false;
            return self.answered(shared, actions, at, true);
        }
        if exchange.is_tunnel() {
            // The client may continue; its bytes are passed on as long as the backend takes them.
            exchange.response.is_whole = true;
            let is_over = exchange.request.is_done();
            actions.set_deadline(shared.quiet_end(at));
            shared.wake_client(at, actions);
            if is_over {
                actions.close();
            }
            return;
        }
        // `closed` tells the rest.
        actions.abort();
    }

    /// The end of the connection without one of its encryption: an answer without an end of its own may be cut.
    pub(crate) fn on_cut(&mut self, shared: &mut Upstreams, actions: &mut Actions<'_>) {
        match shared.links.get_mut(self.link).exchange {
            None => self.on_end(shared, actions),
            Some(_) => actions.abort(),
        }
    }

    pub(crate) fn on_deadline(&mut self, shared: &mut Upstreams, actions: &mut Actions<'_>) {
        let link = shared.links.get_mut(self.link);
        let is_connected = link.id.is_some();
        match link.exchange {
            None if is_connected => shared.proxied.count(ProxyCounter::IdleDropped),
            None => {}
            Some(at) => {
                let exchange = shared.exchange(at);
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

    pub(crate) fn on_drain(&mut self, shared: &mut Upstreams, actions: &mut Actions<'_>) {
        self.is_draining = true;
        let link = shared.links.get_mut(self.link);
        if link.exchange.is_none() && link.id.is_some() {
            actions.close();
        }
    }

    /// Sends on what the request has, and says by when the backend has to answer.
    fn send(&mut self, shared: &mut Upstreams, actions: &mut Actions<'_>, at: ExchangeId) {
        let first_byte_timeout = shared.limits.first_byte_timeout;
        let tunnel_end = shared.quiet_end(at);
        let now = shared.now.at;
        let exchange = shared.exchange(at);
        let channel = &mut exchange.request;
        if channel.is_leaving {
            return;
        }
        let sent_bytes = channel.send(actions);
        if channel.is_done() {
            exchange.reach(Stage::Waiting);
            if exchange.is_tunnel() {
                // The client has said its last word, and all of it has gone.
                if exchange.response.is_whole {
                    return actions.close();
                }
                actions.set_deadline(tunnel_end);
                return actions.end_output();
            }
            if !exchange.has_answer() {
                actions.set_deadline(now + first_byte_timeout);
            }
            return;
        }
        if sent_bytes == 0 {
            return;
        }
        if exchange.is_tunnel() && !exchange.response.is_full() {
            actions.set_deadline(tunnel_end);
        } else if !exchange.has_answer() {
            // Not idle any more; how slow the client may be is its own side's to judge.
            actions.set_deadline(Moment::NEVER);
        }
        // More is to come: only when this has left, so that what waits here stays little.
        channel.is_leaving = true;
        actions.call_again();
    }

    /// Reads a head; says how many bytes it took, none while it is not there, or what is wrong with it.
    fn on_head(
        &mut self,
        shared: &mut Upstreams,
        actions: &mut Actions<'_>,
        at: ExchangeId,
        input: &[u8],
    ) -> Result<usize, Cow<'static, str>> {
        let limits = shared.answer_limits;
        let exchange = shared.exchanges.get_mut(at);
        let by = AnswerKey {
            front: exchange.front,
            kind: exchange.kind,
            minor: exchange.minor,
            is_last: exchange.is_last,
            unix_s: shared.now.unix_s,
        };
        let is_early = !exchange.request.is_whole;
        if !is_early
            && let Some((facts, framing)) =
                shared.repeats.answer(input, by, exchange.response.head())
        {
            exchange.request.forget_sent();
            self.begin_answer(shared, at, facts, framing);
            return Ok(facts.head_len);
        }
        let response = match Response::parse(input, &limits, exchange.kind) {
            Ok(Some(response)) => response,
            Ok(None) => return Ok(0),
            Err(refused) => return Err(explanation(&refused, &limits).into()),
        };
        let facts = response.facts;
        let code = facts.status.code();
        exchange.request.forget_sent();
        let channel = &mut exchange.response;
        if facts.is_interim() {
            exchange.interims += 1;
            if exchange.interims > INTERIMS_MAX {
                return Err("more interim answers (1xx) than 1024".into());
            }
            if exchange.request.is_done() {
                // The backend is at work.
                actions.set_deadline(shared.now.at + shared.limits.first_byte_timeout);
            }
            // Clients of HTTP/1.0 know none (RFC 9110 15.2).
            if exchange.minor > 0 {
                if facts.head_len > INTERIM_HEAD_BYTES_MAX {
                    return Err("an interim answer (1xx) of more than 16 KiB".into());
                }
                if channel.head().len() > INTERIM_BYTES_MAX {
                    return Err("more interim answers (1xx) than the client takes".into());
                }
                write_interim(channel.head(), &response);
                shared.proxied.count(ProxyCounter::Interim);
                shared.wake_client(at, actions);
            }
            return Ok(facts.head_len);
        }
        if code == 101 {
            let is_wanted = exchange.wants_upgrade && exchange.minor > 0;
            if !is_wanted || !write_upgrade(channel.head(), &response) {
                return Err("an upgrade (101) that was not asked for".into());
            }
            exchange.reach(Stage::Tunnel);
            (exchange.is_last, exchange.request.is_whole) = (true, false);
            (exchange.status, exchange.times.first_byte) = (code, Some(shared.now.at));
            shared.proxied.count(ProxyCounter::Upgrades);
            shared.wake_client(at, actions);
            return Ok(facts.head_len);
        }
        // Nobody wants the rest: the answer says that the connection ends here (RFC 9112 9.5).
        exchange.is_last |= is_early && code >= 400;
        let context = AnswerContext {
            kind: exchange.kind,
            minor: exchange.minor,
            is_last: exchange.is_last,
            date: &shared.date,
            rules: &shared.frontends.get(exchange.front).rules.response,
        };
        let before = channel.head().len();
        let framing = write_answer(channel.head(), &response, &context)
            .ok_or("a coding before chunked, which was not asked for")?;
        let (head, written) = (&input[..facts.head_len], &channel.head()[before..]);
        if !is_early {
            shared.repeats.note_answer(head, by, written, (facts, framing));
        }
        self.begin_answer(shared, at, facts, framing);
        Ok(facts.head_len)
    }

    /// The head of the answer has been written.
    fn begin_answer(
        &mut self,
        shared: &mut Upstreams,
        at: ExchangeId,
        facts: ResponseFacts,
        framing: BodyFraming,
    ) {
        let limits = shared.answer_limits;
        let exchange = shared.exchanges.get_mut(at);
        let channel = &mut exchange.response;
        channel.begin_body(BodyReader::of_response(facts.body, &limits), framing.frame);
        exchange.reach(Stage::Answering);
        exchange.is_last = framing.is_last;
        (exchange.status, exchange.times.first_byte) = (facts.status.code(), Some(shared.now.at));
        let times = exchange.times;
        let waited = times.connected.zip(times.first_byte).map(|(from, to)| to - from);
        let backend = shared.links.get_mut(self.link).backend;
        let counts = &shared.proxied.backends()[backend];
        counts.answered.add(1);
        counts.wait_us.add(waited.unwrap_or_default().as_micros() as u64);
        shared.backend_answered(backend);
        self.keep_alive = facts.keep_alive && facts.body != ResponseBody::UntilClose;
    }

    /// The answer is whole. Keeps the connection for another request where nothing speaks against
    /// it.
    fn answered(
        &mut self,
        shared: &mut Upstreams,
        actions: &mut Actions<'_>,
        at: ExchangeId,
        is_all_used: bool,
    ) {
        let is_request_gone = shared.exchange(at).request.is_done() && !actions.is_output_waiting();
        shared.part(at);
        shared.wake_client(at, actions);
        if !is_all_used {
            shared.proxied.count(ProxyCounter::Unasked);
        }
        if self.keep_alive && is_request_gone && is_all_used {
            self.become_idle(shared, actions);
        } else {
            actions.abort();
        }
    }

    /// Waits for the next request.
    fn become_idle(&mut self, shared: &mut Upstreams, actions: &mut Actions<'_>) {
        if !self.is_draining && shared.park(self.link, actions) {
            self.keep_alive = false;
            actions.set_deadline(shared.deadline(shared.limits.upstream_idle_timeout));
        } else {
            actions.close();
        }
    }

    /// Bytes behind an upgrade.
    fn pass_on(
        &mut self,
        shared: &mut Upstreams,
        actions: &mut Actions<'_>,
        at: ExchangeId,
        input: &[u8],
    ) -> usize {
        let used = shared.exchange(at).response.take_raw(input);
        self.slow_down(shared, actions, at);
        shared.wake_client(at, actions);
        used
    }

    /// Pauses while the client does not take what is there; sets the deadline of the next piece.
    fn slow_down(&mut self, shared: &mut Upstreams, actions: &mut Actions<'_>, at: ExchangeId) {
        let response = &shared.exchange(at).response;
        let (is_full, has_pipe) = (response.is_full(), response.has_pipe());
        if is_full {
            // With a pipe each piece is a pause.
            shared.proxied.add(ProxyCounter::Pauses, u64::from(!has_pipe));
            actions.pause_input();
            // How slow a client may be is the loop's to judge.
            actions.set_deadline(Moment::NEVER);
        } else {
            actions.set_deadline(shared.quiet_end(at));
        }
    }

    /// Continues when the client has taken what was there.
    fn resume(&mut self, shared: &mut Upstreams, actions: &mut Actions<'_>, at: ExchangeId) {
        let exchange = shared.exchange(at);
        if exchange.has_answer() && !exchange.response.is_full() {
            actions.resume_input();
            self.slow_down(shared, actions, at);
        }
    }

    /// The bytes are not an answer; the error log gets why.
    #[cold]
    fn refuse(
        &mut self,
        shared: &mut Upstreams,
        actions: &mut Actions<'_>,
        why: &str,
        input: &[u8],
    ) -> usize {
        self.fault = Some(Fault::BadAnswer);
        shared.report_answer(shared.links.get(self.link).backend, why);
        actions.abort();
        input.len()
    }

    #[cold]
    fn unasked(
        &mut self,
        shared: &mut Upstreams,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        shared.proxied.count(ProxyCounter::Unasked);
        actions.abort();
        input.len()
    }
}
