//! What a client gets from its exchange: the answer of a backend, one of the proxy, or a cut; and what follows it.

use pollux_engine::{Actions, Moment};
use pollux_http::{Method, Rejection, Request, RequestKind, Status};

use crate::body_clock::{BodyClock, BodyTime};
use crate::counters::ServerCounter;
use crate::exchange::channel::ChannelEnd;
use crate::exchange::table::Stage;
use crate::fault::{Fault, Party, ProxyCounter};
use crate::front::h1::{HttpSession, Phase};
use crate::front::request::version;
use crate::front::shared::Shared;
use crate::handlers::answer;
use crate::handlers::answer::Persistence;
use crate::head::common::FieldContext;
use crate::head::explanation;
use crate::ids::ExchangeId;
use crate::log::{AccessLog, CLIENT_GONE, Entry, Proxied};

impl HttpSession {
    /// Something happened to the exchange: it failed, has something to send, or takes input again.
    pub(super) fn exchange_moved(
        &mut self,
        state: &mut Shared,
        actions: &mut Actions<'_>,
        at: ExchangeId,
    ) {
        let exchange = state.upstreams().exchange(at);
        exchange.is_client_woken = false;
        let was_queued = std::mem::take(&mut exchange.was_queued);
        if let Some(fault) = exchange.fault {
            return self.fail(state, actions, at, fault, None);
        }
        if was_queued {
            self.set_later_deadline(state, actions, at);
        }
        let exchange = state.upstreams().exchange(at);
        // What came early, behind a request that became a tunnel, is part of it.
        let waits = exchange.is_client_paused || exchange.is_tunnel();
        if exchange.is_tunnel() {
            actions.read_on();
        }
        if waits && !exchange.request.is_full() {
            exchange.is_client_paused = false;
            actions.resume_input();
            self.set_later_deadline(state, actions, at);
            state.upstreams().leave_long_body(at, ChannelEnd::Client, actions);
        }
        self.send(state, actions, at);
    }

    /// What was sent of the answer has left.
    pub(super) fn answer_left(
        &mut self,
        state: &mut Shared,
        actions: &mut Actions<'_>,
        at: ExchangeId,
    ) {
        let shared = state.upstreams();
        if shared.exchanges.get_mut(at).response.has_left(&mut shared.pipes) {
            shared.wake_upstream(at, actions);
        }
        if !shared.exchange(at).request.is_whole {
            self.set_later_deadline(state, actions, at);
        }
        self.send(state, actions, at);
    }

    /// Sends on what the answer has; ends the exchange when that was all.
    fn send(&mut self, state: &mut Shared, actions: &mut Actions<'_>, at: ExchangeId) {
        let now = state.now.at;
        let exchange = state.upstreams().exchange(at);
        let channel = &mut exchange.response;
        if channel.is_leaving {
            return;
        }
        let sent_bytes = channel.send(actions);
        if exchange.stage == Stage::Answering && sent_bytes > 0 {
            exchange.stage = Stage::Committed;
        }
        let channel = &mut exchange.response;
        if channel.is_done() && exchange.is_tunnel() && !exchange.request.is_whole {
            // The backend has ended its output; the client may continue.
            return actions.end_output();
        }
        if channel.is_done() && exchange.has_answer() {
            return self.answered_later(state, actions, at);
        }
        if sent_bytes == 0 {
            return;
        }
        // More is to come: only when this has left, so that what waits here stays little.
        channel.is_leaving = true;
        if !exchange.request.is_whole {
            if !exchange.has_answer() {
                // The client may have waited for the interim answer with its body.
                exchange.body_clock = BodyClock::started(now);
            }
            self.set_later_deadline(state, actions, at);
        }
        actions.call_again();
    }

    /// All of the answer was given on.
    fn answered_later(&mut self, state: &mut Shared, actions: &mut Actions<'_>, at: ExchangeId) {
        let shared = state.upstreams();
        let exchange = shared.exchange(at);
        let is_read = exchange.request.is_whole;
        let is_last = exchange.is_last || self.is_last || !is_read;
        let is_tunnel = exchange.is_tunnel();
        self.record(state, at, None);
        state.upstreams().end(at);
        self.finish(state, actions, is_last, is_read && !is_tunnel);
    }

    /// Continues with the next request, or ends.
    fn finish(&mut self, state: &Shared, actions: &mut Actions<'_>, is_last: bool, is_read: bool) {
        (self.phase, self.is_last) = (Phase::Idle, is_last);
        let is_input_used_up = is_read && !actions.is_input_paused();
        if !is_last {
            actions.resume_input();
        }
        self.settle(state, actions, is_input_used_up);
    }

    /// The body of a request is not sound, or too large.
    #[cold]
    pub(super) fn refuse_body(
        &mut self,
        state: &mut Shared,
        actions: &mut Actions<'_>,
        at: ExchangeId,
        rejection: Rejection,
    ) {
        let why = explanation(&rejection, &state.head_limits);
        let status = rejection.status;
        self.report_refusal(state, actions, rejection, false);
        state.counters.count_refusal(status);
        self.fail(state, actions, at, Fault::BadRequest(status), Some(&why));
    }

    /// The exchange has failed: an answer of the proxy where none has begun, with the reason where the client is to
    /// blame; else the end.
    #[cold]
    fn fail(
        &mut self,
        state: &mut Shared,
        actions: &mut Actions<'_>,
        at: ExchangeId,
        fault: Fault,
        because: Option<&str>,
    ) {
        let shared = state.upstreams.as_mut().expect("a proxy has backends");
        // Why a connect failed, or why bytes are not an answer, was reported where it was seen.
        let is_reported =
            matches!(fault, Fault::ConnectFailed | Fault::TlsFailed | Fault::BadAnswer);
        if fault.party() == Party::Upstream && !is_reported {
            shared.report_fault(at, fault);
        }
        let exchange = shared.exchanges.get_mut(at);
        exchange.fault = Some(fault);
        if exchange.stage >= Stage::Committed {
            // `closed` records it.
            return actions.reset();
        }
        if exchange.has_answer() {
            exchange.response.drop_piped(&mut shared.pipes);
            exchange.response.reset();
        }
        let status = fault.status();
        let is_read = exchange.request.is_whole;
        let is_last = exchange.is_last || self.is_last || !is_read;
        let persistence = Persistence::of(exchange.minor, is_last);
        let is_head = exchange.kind == RequestKind::Head;
        exchange.status = status.code();
        // An interim answer may still stand in front.
        exchange.response.send(actions);
        let context = answer::Context { persistence, is_head, asked: FieldContext::default() };
        let mut details = format!("{}/{}", fault.name(), exchange.state());
        if fault.party() != Party::Client {
            details.push_str(if exchange.is_retry_safe() {
                ", a retry is safe"
            } else {
                ", it may have been done: a retry is not safe"
            });
        }
        let proxy_status = format!("pollux;error={};details=\"{details}\"", fault.error_type());
        let why = because.unwrap_or(&details);
        let answered = answer::explained(actions, &state.common, context, status, why, |head| {
            head.field("Proxy-Status", proxy_status.as_bytes());
        });
        shared.exchange(at).response.body_bytes = answered.body_bytes;
        self.record(state, at, Some(fault));
        state.upstreams().end(at);
        self.finish(state, actions, is_last, is_read);
    }

    /// The deadline of a request that has an exchange is over.
    pub(super) fn later_too_long(
        &mut self,
        state: &mut Shared,
        actions: &mut Actions<'_>,
        at: ExchangeId,
    ) {
        let now = state.now.at;
        let shared = state.upstreams();
        let (request_timeout, queue_timeout) =
            (shared.limits.request_timeout, shared.limits.queue_timeout);
        if shared.drain_end <= now {
            shared.exchange(at).fault = Some(Fault::Ended);
            // `closed` records it.
            return actions.reset();
        }
        let exchange = shared.exchange(at);
        if exchange.times.began + request_timeout <= now {
            return self.fail(state, actions, at, Fault::RequestTimeout, None);
        }
        let queued = exchange.times.queued.filter(|_| exchange.ticket.is_some());
        if queued.is_some_and(|queued| queued + queue_timeout <= now) {
            return self.fail(state, actions, at, Fault::QueueTimeout, None);
        }
        if exchange.request.is_whole || body_deadline(state, at) > now {
            return self.set_later_deadline(state, actions, at);
        }
        state.counters.add(ServerCounter::TimeoutsBody, 1);
        self.is_last = true;
        let why = "the body stood still, or came too slowly (RFC 9110 15.5.9)";
        self.fail(state, actions, at, Fault::ClientTimeout, Some(why));
    }

    /// By when something has to happen: the whole of it, and the next piece of a body.
    pub(super) fn set_later_deadline(
        &self,
        state: &mut Shared,
        actions: &mut Actions<'_>,
        at: ExchangeId,
    ) {
        let now = state.now.at;
        let shared = state.upstreams();
        let (request_timeout, queue_timeout) =
            (shared.limits.request_timeout, shared.limits.queue_timeout);
        let drain_end = shared.drain_end;
        let exchange = shared.exchange(at);
        if !exchange.request.is_whole {
            // A client that takes an answer may send the rest of its body behind that; how fast it takes it is the loop's to judge.
            let is_standing = exchange.is_client_paused || exchange.response.is_leaving;
            exchange.body_clock.set_standing(is_standing, now);
        }
        let mut end = drain_end.min(exchange.times.began + request_timeout);
        if let Some(queued) = exchange.times.queued.filter(|_| exchange.ticket.is_some()) {
            end = end.min(queued + queue_timeout);
        }
        actions.set_deadline(if exchange.is_tunnel() {
            // The upstream side looks at how quiet it is.
            Moment::NEVER
        } else if exchange.request.is_whole {
            end
        } else {
            end.min(body_deadline(state, at))
        });
    }

    /// Answers a request that goes no further; its body, if it has one, is not read.
    pub(super) fn answer_here(
        &mut self,
        state: &mut Shared,
        actions: &mut Actions<'_>,
        request: &Request<'_>,
        head: &[u8],
        status: Status,
        is_last: bool,
    ) {
        let is_last = is_last || request.framing.has_body();
        let context = answer::Context {
            persistence: Persistence::of(request.version_minor, is_last),
            is_head: request.method == Method::Head,
            asked: FieldContext::default(),
        };
        let allow: &[u8] = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
        let answered = if status == Status::NO_CONTENT {
            answer::empty(actions, &state.common, context, status, |head| {
                head.field("Allow", allow);
            })
        } else {
            state.counters.count_refusal(status);
            answer::page(actions, &state.common, context, status, |head| {
                head.field("Allow", allow);
            })
        };
        self.answered(state, actions, head, answered, is_last);
        if is_last {
            actions.linger();
        }
    }

    /// Counts and logs the end of an exchange.
    pub(super) fn record(&self, state: &mut Shared, at: ExchangeId, fault: Option<Fault>) {
        let now = state.now;
        let Shared { upstreams, log, counters, .. } = state;
        let shared = upstreams.as_mut().expect("a proxy has backends");
        if let Some(fault) = fault {
            shared.proxied.count_fault(fault);
        }
        let exchange = shared.exchanges.get(at);
        let bytes = exchange.response.body_bytes;
        shared.proxied.add(ProxyCounter::AnswerBytes, bytes);
        if exchange.status != 0 {
            counters.count_answer(Status::of(exchange.status));
        }
        let Some(log) = log else { return };
        let Line { method, target, referer, agent } = Line::of(&exchange.line);
        let backend = exchange.backend.and_then(|backend| shared.targets[backend].as_ref());
        let backend = backend.map_or("", |target| target.name.as_str());
        let times = exchange.times;
        let since = |moment: Option<Moment>| moment.map(|moment| moment - times.began);
        let proxied = Proxied {
            backend,
            queued: since(times.assigned),
            connected: since(times.connected),
            first_byte: since(times.first_byte),
            total: Some(now.at - times.began),
            tries: exchange.tries,
            end: fault.map_or("ok", Fault::name),
            state: fault.map(|_| exchange.state()),
            is_retry_safe: fault.map(|_| exchange.is_retry_safe()),
        };
        let status = match (exchange.status, fault) {
            (0, Some(Fault::ClientGone)) => CLIENT_GONE,
            (status, _) => status,
        };
        let entry = Entry {
            peer: self.address(),
            method,
            target,
            version: version(exchange.minor),
            status,
            body_bytes: bytes,
            referer,
            agent,
            cut: None,
            proxied: Some(proxied),
        };
        log.add(&entry, counters);
    }
}

/// By when more of the request's body has to come.
fn body_deadline(state: &Shared, at: ExchangeId) -> Moment {
    let limits = &state.limits;
    let (timeout, rate_min_bytes) = (limits.body_timeout, limits.body_rate_min_bytes);
    let shared = state.upstreams.as_ref().expect("a proxy has backends");
    let exchange = shared.exchanges.get(at);
    exchange.body_clock.deadline(exchange.request.body_bytes, BodyTime { timeout, rate_min_bytes })
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
    target: &'l [u8],
    referer: &'l [u8],
    agent: &'l [u8],
}

impl<'l> Line<'l> {
    fn of(line: &'l [u8]) -> Self {
        let mut parts = line.split(|byte| *byte == b'\n');
        let mut next = || parts.next().unwrap_or_default();
        let mut words = next().splitn(2, |byte| *byte == b' ');
        let mut word = || words.next().unwrap_or_default();
        // Methods are ASCII.
        let (method, target) = (str::from_utf8(word()).unwrap_or_default(), word());
        Self { method, target, referer: next(), agent: next() }
    }
}
