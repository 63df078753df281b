//! The proxy's side of one client connection: requests in, answers out, one at a time.
//!
//! ```text
//!            first byte            whole head
//!   Fresh ──────────────► Head ──────────────► Busy ── answer gone ──► Idle ──► Head
//!                                               │
//!                                               └── an upgrade: a tunnel until either side ends
//! ```
//!
//! | deadline | in | what happens |
//! |---|---|---|
//! | header timeout | Fresh, Head | closed silently; 408 |
//! | body timeout and rate (`body_clock`) | Busy, while the request's body comes | 408, or cut |
//! | request timeout | Busy | 504, or cut |
//! | idle timeout | Idle | closed silently |
//! | drain timeout | Busy, but for tunnels, once the loop drains | cut |
//!
//! A request that comes before the answer to the one before it is gone waits unread.

mod answering;

use std::time::Duration;

use pollux_engine::{Actions, CloseCause, ListenAddress};
use pollux_http::{
    BodyReader, Method, Parsed, ProxyHeader, Rejection, Request, RequestKind, Status,
};

use super::channel::{ChannelEnd, Frame};
use super::config::Balance;
use super::fault::Fault;
use super::groups::hash;
use super::head_cache::{RequestFacts, RequestKey};
use super::heads::{RequestContext, is_idempotent, write_request};
use super::shared::ProxyShared;
use crate::counters::{ServerCounter, index_of};
use crate::request::{is_blank, refused_head, request_line, version};
use answering::{address_text, note_line, note_refused_line};

/// How long a drained proxy waits for a request on a connection: one that was on its way has arrived
/// by then, and is answered as the last one.
const DRAIN_GRACE: Duration = Duration::from_secs(1);

/// One client connection.
#[derive(Debug)]
pub(super) struct Client {
    phase: Phase,
    /// The place of the front end that it came by.
    front: usize,
    /// The backends that its front end leads to.
    group: usize,
    /// It speaks TLS.
    is_secure: bool,
    /// The client's address, once it was asked for; empty on a unix socket.
    pub(super) peer: Option<Box<str>>,
    /// What a proxy in front said of it.
    header: Option<Box<ProxyHeader>>,
    /// Nothing more is read from it.
    is_last: bool,
    is_draining: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Accepted; nothing has arrived.
    Fresh,
    /// Between two requests.
    Idle,
    /// Part of a head has arrived.
    Head,
    /// A request is under way: the number of its exchange.
    Busy(u32),
}

impl Client {
    pub(super) fn accepted(
        shared: &mut ProxyShared,
        actions: &mut Actions<'_>,
        front: usize,
        group: usize,
        is_secure: bool,
    ) -> Self {
        actions.set_deadline(shared.deadline(shared.limits.header_timeout));
        let phase = Phase::Fresh;
        Self {
            phase,
            front,
            group,
            is_secure,
            peer: None,
            header: None,
            is_last: false,
            is_draining: false,
        }
    }

    /// Whose connection it is, where a proxy in front says so.
    pub(super) fn belongs_to(&mut self, header: ProxyHeader) {
        if let ProxyHeader::Of { source, .. } = header {
            self.peer = Some(source.ip().to_canonical().to_string().into());
            self.header = Some(Box::new(header));
        }
    }

    /// Its PROXY head in front of a connection to a backend.
    fn header(&self, actions: &Actions<'_>) -> ProxyHeader {
        if let Some(header) = &self.header {
            return **header;
        }
        header_of(actions)
    }

    pub(super) fn on_bytes(
        &mut self,
        shared: &mut ProxyShared,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        if let Phase::Busy(at) = self.phase {
            return self.on_more(shared, actions, at, input);
        }
        if self.is_last {
            return input.len();
        }
        if let Some((at, used)) = self.begin_again(shared, actions, input) {
            return used + self.on_more(shared, actions, at, &input[used..]);
        }
        match Request::parse(input, &shared.head_limits) {
            Parsed::Complete(request, head_bytes) => {
                let mut used = head_bytes;
                shared.counters.count_request(request.method);
                if let Some(at) = self.begin(shared, actions, &request, &input[..head_bytes]) {
                    used += self.on_more(shared, actions, at, &input[used..]);
                } else if used < input.len() && !self.is_last {
                    actions.call_again();
                }
                used
            }
            Parsed::Incomplete if is_blank(input) => 0,
            Parsed::Incomplete => {
                if self.phase == Phase::Idle {
                    actions.set_deadline(shared.deadline(shared.limits.header_timeout));
                }
                self.phase = Phase::Head;
                0
            }
            Parsed::Rejected(rejection) => {
                let head = refused_head(input, &shared.head_limits);
                let said = request_line(head);
                let mut line = Vec::new();
                if let Some(log) = &shared.log
                    && !said.method.is_empty()
                {
                    note_refused_line(&mut line, head, log);
                }
                self.refuse(shared, actions, rejection, input, (&line, said.version));
                0
            }
        }
    }

    pub(super) fn on_end(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        match self.phase {
            Phase::Fresh | Phase::Idle => actions.close(),
            Phase::Head => {
                shared.counters.add(ServerCounter::Incomplete, 1);
                actions.close();
            }
            Phase::Busy(at) => {
                let answers = shared.limits.answers_half_closed;
                let exchange = shared.exchange(at);
                if exchange.is_tunnel {
                    exchange.request.is_whole = true;
                    shared.wake_upstream(at, actions);
                } else if exchange.request.is_whole && answers {
                    // What was asked for is still sent to a client that only stopped talking.
                    exchange.is_last = true;
                    self.is_last = true;
                } else {
                    let is_whole = exchange.request.is_whole;
                    shared.counters.add(ServerCounter::Incomplete, u64::from(!is_whole));
                    actions.abort();
                }
            }
        }
    }

    pub(super) fn on_drained(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        let Phase::Busy(at) = self.phase else { return };
        if shared.exchanges.get_mut(at).response.has_left(&mut shared.pipes) {
            shared.wake_upstream(at, actions);
        }
        if !shared.exchange(at).request.is_whole {
            self.set_busy_deadline(shared, actions, at);
        }
        self.send(shared, actions, at);
    }

    pub(super) fn on_wake(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        let Phase::Busy(at) = self.phase else { return };
        let exchange = shared.exchange(at);
        exchange.is_client_woken = false;
        let was_queued = std::mem::take(&mut exchange.was_queued);
        if let Some(fault) = exchange.fault {
            return self.fail(shared, actions, at, fault);
        }
        if was_queued {
            self.set_busy_deadline(shared, actions, at);
        }
        let exchange = shared.exchange(at);
        // What came early, behind a request that became a tunnel, is part of it.
        let waits = exchange.is_client_paused || exchange.is_tunnel;
        if waits && !exchange.request.is_full() {
            exchange.is_client_paused = false;
            actions.resume_input();
            self.set_busy_deadline(shared, actions, at);
            shared.leave_long_body(at, ChannelEnd::Client, actions);
        }
        self.send(shared, actions, at);
    }

    pub(super) fn on_deadline(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        let count = |counter| shared.counters.add(counter, 1);
        match self.phase {
            Phase::Fresh => count(ServerCounter::TimeoutsSilent),
            Phase::Idle => count(ServerCounter::TimeoutsIdle),
            Phase::Head => count(ServerCounter::TimeoutsHeader),
            Phase::Busy(at) => return self.busy_too_long(shared, actions, at),
        }
        if self.phase == Phase::Head {
            self.time_out(shared, actions);
        } else {
            actions.close();
        }
    }

    pub(super) fn on_drain(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        self.is_draining = true;
        match self.phase {
            Phase::Fresh | Phase::Idle => {
                let grace = shared.deadline(DRAIN_GRACE);
                actions.set_deadline(actions.deadline().min(grace));
            }
            Phase::Head => actions.set_deadline(actions.deadline().min(shared.drain_end)),
            Phase::Busy(at) => {
                shared.exchange(at).is_last = true;
                self.set_busy_deadline(shared, actions, at);
            }
        }
    }

    pub(super) fn closed(self, shared: &mut ProxyShared, cause: CloseCause) {
        let Phase::Busy(at) = self.phase else { return };
        let exchange = shared.exchange(at);
        // What cut the connection from here has said so.
        let fault = exchange.fault.or_else(|| Fault::of_end(cause)).or(match cause {
            _ if exchange.is_tunnel => None,
            CloseCause::SlowReader => Some(Fault::ClientTimeout),
            _ => Some(Fault::ClientGone),
        });
        self.record(shared, at, fault);
        shared.end(at);
    }

    /// Begins a request; none when it was answered here.
    fn begin(
        &mut self,
        shared: &mut ProxyShared,
        actions: &mut Actions<'_>,
        request: &Request<'_>,
        head: &[u8],
    ) -> Option<u32> {
        let is_last = !request.keep_alive || self.is_draining;
        let Ok(max_forwards) = max_forwards(request) else {
            self.answer_here(shared, actions, request, Status::NO_CONTENT, is_last);
            return None;
        };
        let claims_tls = request.target.is_https() && !self.is_secure;
        if claims_tls && !self.is_secured_before(shared, request) {
            let mut line = Vec::new();
            if let Some(log) = &shared.log {
                note_line(&mut line, request, log);
            }
            let line = (line.as_slice(), version(request.version_minor));
            self.refuse(shared, actions, Rejection::HTTPS_WITHOUT_TLS, head, line);
            return None;
        }
        if matches!(request.method, Method::Connect | Method::Trace) {
            // What follows may be meant for the tunnel, made to look like a request.
            self.answer_here(shared, actions, request, Status::METHOD_NOT_ALLOWED, true);
            return None;
        }
        if self.peer.is_none() {
            self.peer = Some(address_text(actions));
        }
        let facts = RequestFacts {
            method: index_of(request.method),
            kind: RequestKind::of(request.method),
            is_idempotent: is_idempotent(request.method),
            minor: request.version_minor,
            keep_alive: request.keep_alive,
            key: match shared.balance(self.group) {
                Balance::Client => hash(self.peer.as_deref().unwrap_or_default().as_bytes()),
                Balance::Path => hash(request.target.path_and_query().unwrap_or_default()),
                _ => 0,
            },
        };
        let (at, backend) = self.enter(shared, actions, facts);
        let front = shared.frontends.get(self.front);
        let peer = self.peer.as_deref().unwrap_or_default();
        let host = request.host();
        let context = RequestContext {
            peer,
            host: host.unwrap_or(&shared.backends[backend].host),
            is_secure: self.is_secure,
            x_forwarded: front.x_forwarded,
            forwarded: front.forwarded,
            rules: &front.rules.request,
            max_forwards,
        };
        let exchange = shared.exchanges.get_mut(at);
        let wants_upgrade = write_request(exchange.request.head(), request, &context);
        let reader = BodyReader::new(request.framing, &shared.head_limits);
        let frame = match request.framing {
            pollux_http::Framing::Chunked => Frame::Chunks,
            _ => Frame::Plain,
        };
        exchange.request.begin_body(reader, frame);
        exchange.wants_upgrade = wants_upgrade;
        if let Some(log) = &shared.log {
            note_line(&mut exchange.line, request, log);
        }
        if request.framing.has_body() {
            shared.counters.add(ServerCounter::Bodies, 1);
        } else if host.is_some() && !wants_upgrade && request.method != Method::Options {
            let last = shared.repeats.request.get_or_insert_default();
            let by = RequestKey { front: self.front, is_secure: self.is_secure, peer };
            last.note(head, by, exchange.request.head(), &exchange.line, facts);
        }
        self.set_busy_deadline(shared, actions, at);
        Some(at)
    }

    /// Whether a proxy in front that is believed says that the client speaks TLS with it.
    #[cold]
    fn is_secured_before(&self, shared: &ProxyShared, request: &Request<'_>) -> bool {
        let is_believed = shared.frontends.get(self.front).x_forwarded.believes();
        let said = request.fields.first("x-forwarded-proto");
        is_believed && said.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"https"))
    }

    /// Begins a request whose head is the last one of this loop again; says how long that is.
    fn begin_again(
        &mut self,
        shared: &mut ProxyShared,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> Option<(u32, usize)> {
        let by = RequestKey {
            front: self.front,
            is_secure: self.is_secure,
            peer: self.peer.as_deref()?,
        };
        let last = shared.repeats.request.take_if(|last| last.is(input, by))?;
        shared.counters.count_request_at(last.facts.method);
        let (at, _) = self.enter(shared, actions, last.facts);
        let exchange = shared.exchanges.get_mut(at);
        exchange.request.head().extend_from_slice(&last.written);
        exchange.request.begin_without_body();
        exchange.line.extend_from_slice(&last.line);
        let head_bytes = last.len();
        shared.repeats.request = Some(last);
        self.set_busy_deadline(shared, actions, at);
        Some((at, head_bytes))
    }

    /// Makes the exchange of a request, and finds a connection for it; says which backend has it.
    fn enter(
        &mut self,
        shared: &mut ProxyShared,
        actions: &Actions<'_>,
        facts: RequestFacts,
    ) -> (u32, usize) {
        let at = shared.begin(actions.id(), self.group);
        shared.exchange(at).key = facts.key;
        if shared.groups[self.group].sends_header.is_some() {
            shared.exchange(at).header = self.header(actions);
        }
        let is_encrypted = self.is_secure || shared.groups[self.group].tls.is_some();
        let may_splice = !is_encrypted && shared.pipes.is_on();
        let backend = shared.assign(at);
        let exchange = shared.exchanges.get_mut(at);
        exchange.request.keep_sent(facts.is_idempotent);
        exchange.may_splice = may_splice;
        exchange.front = self.front;
        exchange.kind = facts.kind;
        exchange.is_idempotent = facts.is_idempotent;
        exchange.minor = facts.minor;
        exchange.is_last = !facts.keep_alive || self.is_draining;
        self.phase = Phase::Busy(at);
        (at, backend)
    }

    /// Input while a request is under way: its body, or what follows it.
    fn on_more(
        &mut self,
        shared: &mut ProxyShared,
        actions: &mut Actions<'_>,
        at: u32,
        input: &[u8],
    ) -> usize {
        let exchange = shared.exchange(at);
        let channel = &mut exchange.request;
        if channel.is_whole && !exchange.is_tunnel {
            if !input.is_empty() {
                actions.pause_input();
            }
            shared.wake_upstream(at, actions);
            return 0;
        }
        let before = channel.body_bytes;
        let used =
            if exchange.is_tunnel { Ok(channel.take_raw(input)) } else { channel.take(input) };
        let used = match used {
            Ok(used) => used,
            Err(rejection) => {
                self.is_last = true;
                self.refuse_body(shared, actions, at, &rejection);
                return input.len();
            }
        };
        let body_bytes = channel.body_bytes - before;
        let is_full = self.took(shared, actions, at, body_bytes);
        if is_full || used < input.len() {
            actions.pause_input();
        }
        shared.leave_long_body(at, ChannelEnd::Client, actions);
        used
    }

    /// Takes what is in the socket of the request's body into a pipe.
    pub(super) fn on_readable(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        let Phase::Busy(at) = self.phase else { return actions.take_input() };
        let body_bytes = shared.splice_body(at, ChannelEnd::Client, actions);
        if body_bytes == 0 && !shared.exchange(at).request.is_full() {
            return;
        }
        self.took(shared, actions, at, body_bytes);
        if shared.exchange(at).is_client_paused {
            actions.pause_input();
        }
    }

    /// So much of the body of the request was taken; says whether that is all that there is room for.
    fn took(
        &self,
        shared: &mut ProxyShared,
        actions: &mut Actions<'_>,
        at: u32,
        body_bytes: u64,
    ) -> bool {
        shared.counters.add(ServerCounter::BodyBytes, body_bytes);
        let now = shared.now.at;
        let exchange = shared.exchange(at);
        if body_bytes > 0 {
            exchange.body_clock.on_bytes(now);
        }
        let is_full = exchange.request.is_full();
        exchange.is_client_paused = is_full && !exchange.request.is_whole;
        self.set_busy_deadline(shared, actions, at);
        shared.wake_upstream(at, actions);
        is_full
    }
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

/// Whose connection it is when no proxy in front says so.
pub(super) fn header_of(actions: &Actions<'_>) -> ProxyHeader {
    let destination = match actions.local() {
        Some(ListenAddress::Tcp(destination)) => Some(destination),
        _ => None,
    };
    ProxyHeader::of(actions.peer(), destination)
}
