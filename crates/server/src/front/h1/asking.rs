//! What a client gives to its exchange: the head of its request, written anew, the body behind it, and its end.
//!
//! The client's side of [`Phase::Later`]; `answering` has what comes back.

use pollux_engine::{Actions, CloseCause};
use pollux_http::{BodyReader, Method, ProxyHeader, Rejection, Request, RequestKind, Status};

use crate::backends::groups::hash;
use crate::config::Balance;
use crate::counters::{ServerCounter, index_of};
use crate::exchange::channel::ChannelEnd;
use crate::exchange::stream::header_of;
use crate::fault::Fault;
use crate::front::h1::{HttpSession, Phase};
use crate::front::shared::Shared;
use crate::head::Frame;
use crate::head::cache::{RequestFacts, RequestKey};
use crate::head::proxied::{RequestContext, is_idempotent, write_request};
use crate::ids::ExchangeId;

impl HttpSession {
    /// Begins a request that a backend answers, unless it is answered here.
    #[inline(never)]
    pub(super) fn ask(
        &mut self,
        state: &mut Shared,
        actions: &mut Actions<'_>,
        request: &Request<'_>,
        head: &[u8],
    ) {
        let is_last = !request.keep_alive || self.is_draining;
        let Ok(max_forwards) = max_forwards(request) else {
            return self.answer_here(state, actions, request, head, Status::NO_CONTENT, is_last);
        };
        let shared = state.upstreams.as_mut().expect("a proxy has backends");
        let front = shared.frontends.get(self.front);
        let is_secure = shared.frontends.secured(self.front).is_some();
        let claims_tls = request.target.is_https() && !is_secure;
        if claims_tls && !(front.x_forwarded.believes() && is_said_secure(request)) {
            let (refused, is_head) = (Rejection::HTTPS_WITHOUT_TLS, request.method == Method::Head);
            self.report_refusal(state, actions, refused, false);
            self.refuse(state, actions, refused, head, is_head);
            return actions.linger();
        }
        if matches!(request.method, Method::Connect | Method::Trace) {
            // What follows may be meant for the tunnel, made to look like a request.
            let status = Status::METHOD_NOT_ALLOWED;
            return self.answer_here(state, actions, request, head, status, true);
        }
        self.peer(actions);
        let group = front.group;
        let facts = RequestFacts {
            method: index_of(request.method),
            kind: RequestKind::of(request.method),
            is_idempotent: is_idempotent(request.method),
            minor: request.version_minor,
            keep_alive: request.keep_alive,
            key: match shared.balance(group) {
                Balance::Client => hash(self.address().as_bytes()),
                Balance::Path => hash(request.target.path_and_query().unwrap_or_default()),
                _ => 0,
            },
        };
        let (at, backend) = self.enter(state, actions, facts);
        let Shared { upstreams, log, counters, head_limits, .. } = state;
        let shared = upstreams.as_mut().expect("a proxy has backends");
        let front = shared.frontends.get(self.front);
        let peer = self.address();
        let host = request.host();
        let context = RequestContext {
            peer,
            host: host.unwrap_or(&shared.backends[backend].host),
            is_secure,
            x_forwarded: front.x_forwarded,
            forwarded: front.forwarded,
            rules: &front.rules.request,
            max_forwards,
        };
        let exchange = shared.exchanges.get_mut(at);
        let wants_upgrade = write_request(exchange.request.head(), request, &context);
        let reader = BodyReader::new(request.framing, head_limits);
        let frame = match request.framing {
            pollux_http::Framing::Chunked => Frame::Chunks,
            _ => Frame::Plain,
        };
        exchange.request.begin_body(reader, frame);
        exchange.wants_upgrade = wants_upgrade;
        if let Some(log) = log {
            crate::front::h1::answering::note_line(&mut exchange.line, request, log);
        }
        if request.framing.has_body() {
            counters.add(ServerCounter::Bodies, 1);
            // An answer that begins early does not hold up the body.
            actions.read_on();
        } else if host.is_some() && !wants_upgrade && request.method != Method::Options {
            let last = shared.repeats.request.get_or_insert_default();
            let by = RequestKey { front: self.front, is_secure, peer };
            last.note(head, by, exchange.request.head(), &exchange.line, facts);
        }
        self.set_later_deadline(state, actions, at);
    }

    /// Begins a request whose head is the last one of this loop again; says how long that is.
    pub(super) fn ask_again(
        &mut self,
        state: &mut Shared,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> Option<usize> {
        let shared = state.upstreams();
        let by = RequestKey {
            front: self.front,
            is_secure: shared.frontends.secured(self.front).is_some(),
            peer: &self.peer.as_ref()?.address,
        };
        let last = shared.repeats.request.take_if(|last| last.is(input, by))?;
        state.counters.count_request_at(last.facts.method);
        let (at, _) = self.enter(state, actions, last.facts);
        let shared = state.upstreams();
        let exchange = shared.exchanges.get_mut(at);
        exchange.request.head().extend_from_slice(&last.written);
        exchange.request.begin_without_body();
        exchange.line.extend_from_slice(&last.line);
        let head_bytes = last.len();
        shared.repeats.request = Some(last);
        self.set_later_deadline(state, actions, at);
        Some(head_bytes)
    }

    /// Makes the exchange of a request, and finds a connection for it; says which backend has it.
    fn enter(
        &mut self,
        state: &mut Shared,
        actions: &Actions<'_>,
        facts: RequestFacts,
    ) -> (ExchangeId, usize) {
        let shared = state.upstreams();
        let front = self.front;
        let group = shared.frontends.get(front).group;
        let is_secure = shared.frontends.secured(front).is_some();
        let at = shared.begin(actions.id(), group);
        shared.exchange(at).key = facts.key;
        if shared.groups[group].sends_header.is_some() {
            shared.exchange(at).header = self.header(actions);
        }
        let is_encrypted = is_secure || shared.groups[group].tls.is_some();
        let may_splice = !is_encrypted && shared.pipes.is_on();
        let backend = shared.assign(at);
        let exchange = shared.exchanges.get_mut(at);
        exchange.request.keep_sent(facts.is_idempotent);
        exchange.may_splice = may_splice;
        exchange.front = front;
        exchange.kind = facts.kind;
        exchange.is_idempotent = facts.is_idempotent;
        exchange.minor = facts.minor;
        exchange.is_last = !facts.keep_alive || self.is_draining;
        self.phase = Phase::Later(at);
        (at, backend)
    }

    /// Its PROXY head in front of a connection to a backend.
    fn header(&self, actions: &Actions<'_>) -> ProxyHeader {
        let said = self.peer.as_ref().and_then(|peer| peer.header);
        said.unwrap_or_else(|| header_of(actions))
    }

    /// Input while a request is under way: its body, or what follows it.
    pub(super) fn on_more(
        &mut self,
        state: &mut Shared,
        actions: &mut Actions<'_>,
        at: ExchangeId,
        input: &[u8],
    ) -> usize {
        let shared = state.upstreams();
        let exchange = shared.exchange(at);
        let channel = &mut exchange.request;
        if channel.is_whole && !exchange.is_tunnel() {
            if !input.is_empty() {
                actions.pause_input();
            }
            shared.wake_upstream(at, actions);
            return 0;
        }
        let before = channel.body_bytes;
        let used =
            if exchange.is_tunnel() { Ok(channel.take_raw(input)) } else { channel.take(input) };
        let used = match used {
            Ok(used) => used,
            Err(rejection) => {
                self.is_last = true;
                self.refuse_body(state, actions, at, rejection);
                return input.len();
            }
        };
        let body_bytes = channel.body_bytes - before;
        let is_full = self.took(state, actions, at, body_bytes);
        if is_full || used < input.len() {
            actions.pause_input();
        }
        state.upstreams().leave_long_body(at, ChannelEnd::Client, actions);
        used
    }

    /// Takes what is in the socket of the request's body into a pipe.
    pub(super) fn splice(&mut self, state: &mut Shared, actions: &mut Actions<'_>, at: ExchangeId) {
        let shared = state.upstreams();
        let body_bytes = shared.splice_body(at, ChannelEnd::Client, actions);
        if body_bytes == 0 && !shared.exchange(at).request.is_full() {
            return;
        }
        self.took(state, actions, at, body_bytes);
        if state.upstreams().exchange(at).is_client_paused {
            actions.pause_input();
        }
    }

    /// So much of the body of the request was taken; says whether that is all that there is room for.
    fn took(
        &self,
        state: &mut Shared,
        actions: &mut Actions<'_>,
        at: ExchangeId,
        body_bytes: u64,
    ) -> bool {
        state.counters.add(ServerCounter::BodyBytes, body_bytes);
        let now = state.now.at;
        let shared = state.upstreams();
        let exchange = shared.exchange(at);
        if body_bytes > 0 {
            exchange.body_clock.on_bytes(now);
        }
        let is_full = exchange.request.is_full();
        exchange.is_client_paused = is_full && !exchange.request.is_whole;
        if exchange.request.is_whole {
            actions.read_in_turn();
        }
        self.set_later_deadline(state, actions, at);
        state.upstreams().wake_upstream(at, actions);
        is_full
    }

    /// The client sends nothing more.
    pub(super) fn asker_ended(
        &mut self,
        state: &mut Shared,
        actions: &mut Actions<'_>,
        at: ExchangeId,
    ) {
        let shared = state.upstreams();
        let answers = shared.limits.answers_half_closed;
        let exchange = shared.exchange(at);
        if exchange.is_tunnel() {
            exchange.request.is_whole = true;
            shared.wake_upstream(at, actions);
        } else if exchange.request.is_whole && answers {
            // What was asked for is still sent to a client that only stopped talking.
            exchange.is_last = true;
            self.is_last = true;
        } else {
            let is_whole = exchange.request.is_whole;
            state.counters.add(ServerCounter::Incomplete, u64::from(!is_whole));
            actions.abort();
        }
    }

    /// The client is gone, and its exchange with it.
    pub(super) fn asker_closed(self, state: &mut Shared, at: ExchangeId, cause: CloseCause) {
        let exchange = state.upstreams().exchange(at);
        // What cut the connection from here has said so.
        let fault = exchange.fault.or_else(|| Fault::of_end(cause)).or(match cause {
            _ if exchange.is_tunnel() => None,
            CloseCause::SlowReader => Some(Fault::ClientTimeout),
            _ => Some(Fault::ClientGone),
        });
        self.record(state, at, fault);
        state.upstreams().end(at);
    }
}

/// Whether a proxy in front says that the client speaks TLS with it.
#[cold]
fn is_said_secure(request: &Request<'_>) -> bool {
    let said = request.fields.first("x-forwarded-proto");
    said.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"https"))
}

/// What is left of Max-Forwards for the next one, where it counts: with OPTIONS (TRACE goes no
/// further anyway). An error when it is used up (RFC 9110 7.6.2).
fn max_forwards(request: &Request<'_>) -> Result<Option<u64>, ()> {
    if request.method != Method::Options {
        return Ok(None);
    }
    let Some(value) = request.fields.first("max-forwards") else { return Ok(None) };
    // A number that does not fit is more than this proxy counts (RFC 9110 7.6.2).
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let number = str::from_utf8(value).ok().filter(|_| is_number);
    match number.map(|text| text.parse::<u64>().unwrap_or(u64::MAX)) {
        Some(0) => Err(()),
        Some(left) => Ok(Some(left - 1)),
        None => Ok(None),
    }
}
