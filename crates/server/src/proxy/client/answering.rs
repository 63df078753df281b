//! What a client gets: the answer of a backend, one of the proxy, or a cut; and what follows it.

use std::net::IpAddr;

use pollux_engine::{Actions, Moment};
use pollux_http::{Method, Rejection, Request, RequestKind, Status};

use super::super::fault::{Fault, Party};
use super::super::shared::ProxyShared;
use super::{Client, Phase};
use crate::answer::{self, Answered, Persistence};
use crate::body_clock::{BodyClock, BodyTime};
use crate::common_fields::FieldContext;
use crate::counters::ServerCounter;
use crate::log::{AccessLog, CLIENT_GONE, Entry, Event, Proxied};
use crate::proxy::fault::ProxyCounter;
use crate::request::{field, is_head, is_tls, request_line, version};

impl Client {
    /// Sends on what the answer has; ends the exchange when that was all.
    pub(super) fn send(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>, at: u32) {
        let now = shared.now.at;
        let exchange = shared.exchange(at);
        let channel = &mut exchange.response;
        if channel.is_leaving {
            return;
        }
        let sent_bytes = channel.send(actions);
        exchange.has_answered |= exchange.has_answer && sent_bytes > 0;
        let channel = &mut exchange.response;
        if channel.is_done() && exchange.is_tunnel && !exchange.request.is_whole {
            // The backend has ended its output; the client may continue.
            return actions.end_output();
        }
        if channel.is_done() && (exchange.has_answer || exchange.is_tunnel) {
            return self.answered(shared, actions, at);
        }
        if sent_bytes == 0 {
            return;
        }
        // More is to come: only when this has left, so that what waits here stays little.
        channel.is_leaving = true;
        if !exchange.request.is_whole {
            if !exchange.has_answer {
                // The client may have waited for the interim answer with its body.
                exchange.body_clock = BodyClock::started(now);
            }
            self.set_busy_deadline(shared, actions, at);
        }
        actions.call_again();
    }

    /// All of the answer was given on.
    pub(super) fn answered(
        &mut self,
        shared: &mut ProxyShared,
        actions: &mut Actions<'_>,
        at: u32,
    ) {
        let exchange = shared.exchange(at);
        let is_read = exchange.request.is_whole;
        let is_last = exchange.is_last || self.is_last || !is_read;
        let is_tunnel = exchange.is_tunnel;
        self.record(shared, at, None);
        shared.end(at);
        self.phase = Phase::Idle;
        self.settle(shared, actions, is_last, is_read && !is_tunnel);
    }

    /// The body of a request is not sound, or too large.
    #[cold]
    pub(super) fn refuse_body(
        &mut self,
        shared: &mut ProxyShared,
        actions: &mut Actions<'_>,
        at: u32,
        rejection: &Rejection,
    ) {
        let why = answer::explanation(rejection, &shared.head_limits);
        self.report_refusal(shared, actions, rejection.status, &why);
        shared.counters.count_refusal(rejection.status);
        self.fail_because(shared, actions, at, Fault::BadRequest(rejection.status), Some(&why));
    }

    /// The exchange has failed: an answer of the proxy where none has begun, else the end.
    #[cold]
    pub(super) fn fail(
        &mut self,
        shared: &mut ProxyShared,
        actions: &mut Actions<'_>,
        at: u32,
        fault: Fault,
    ) {
        self.fail_because(shared, actions, at, fault, None);
    }

    /// As `fail`; a client is answered with the reason, where it is to blame.
    fn fail_because(
        &mut self,
        shared: &mut ProxyShared,
        actions: &mut Actions<'_>,
        at: u32,
        fault: Fault,
        because: Option<&str>,
    ) {
        // Why a connect failed, or why bytes are not an answer, was reported where it was seen.
        let is_reported =
            matches!(fault, Fault::ConnectFailed | Fault::TlsFailed | Fault::BadAnswer);
        if fault.party() == Party::Upstream && !is_reported {
            shared.report_fault(at, fault);
        }
        let exchange = shared.exchanges.get_mut(at);
        exchange.fault = Some(fault);
        if exchange.has_answered {
            // `closed` records it.
            return actions.reset();
        }
        if exchange.has_answer {
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
        let exchange = shared.exchanges.get(at);
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
        let answered = answer::explained(actions, &shared.common, context, status, why, |head| {
            head.field("Proxy-Status", proxy_status.as_bytes());
        });
        shared.exchange(at).response.body_bytes = answered.body_bytes;
        self.record(shared, at, Some(fault));
        shared.end(at);
        self.phase = Phase::Idle;
        self.settle(shared, actions, is_last, is_read);
    }

    /// Continues with the next request, or ends.
    pub(super) fn settle(
        &mut self,
        shared: &ProxyShared,
        actions: &mut Actions<'_>,
        is_last: bool,
        is_read: bool,
    ) {
        self.is_last = is_last;
        if !is_last {
            actions.set_deadline(shared.deadline(shared.limits.idle_timeout));
            actions.resume_input();
        } else if is_read && !actions.is_input_paused() {
            actions.close();
        } else {
            actions.linger();
        }
    }

    pub(super) fn busy_too_long(
        &mut self,
        shared: &mut ProxyShared,
        actions: &mut Actions<'_>,
        at: u32,
    ) {
        if shared.drain_end <= shared.now.at {
            shared.exchange(at).fault = Some(Fault::Ended);
            // `closed` records it.
            return actions.reset();
        }
        let request_end = shared.exchange(at).times.began + shared.limits.request_timeout;
        let is_request_over = request_end <= shared.now.at;
        if is_request_over {
            return self.fail(shared, actions, at, Fault::RequestTimeout);
        }
        let queue_timeout = shared.limits.queue_timeout;
        let exchange = shared.exchange(at);
        let queued = exchange.times.queued.filter(|_| exchange.ticket.is_some());
        if queued.is_some_and(|queued| queued + queue_timeout <= shared.now.at) {
            return self.fail(shared, actions, at, Fault::QueueTimeout);
        }
        let now = shared.now.at;
        if shared.exchange(at).request.is_whole || body_deadline(shared, at) > now {
            return self.set_busy_deadline(shared, actions, at);
        }
        shared.counters.add(ServerCounter::TimeoutsBody, 1);
        self.is_last = true;
        let why = "the body stood still, or came too slowly (RFC 9110 15.5.9)";
        self.fail_because(shared, actions, at, Fault::ClientTimeout, Some(why));
    }

    /// By when something has to happen: the whole of it, and the next piece of a body.
    pub(super) fn set_busy_deadline(
        &self,
        shared: &mut ProxyShared,
        actions: &mut Actions<'_>,
        at: u32,
    ) {
        let request_timeout = shared.limits.request_timeout;
        let queue_timeout = shared.limits.queue_timeout;
        let (now, drain_end) = (shared.now.at, shared.drain_end);
        let exchange = shared.exchange(at);
        if !exchange.request.is_whole {
            // While an answer waits for the client, no more of its body is read.
            let is_standing = exchange.is_client_paused || exchange.response.is_leaving;
            exchange.body_clock.set_standing(is_standing, now);
        }
        let mut end = drain_end.min(exchange.times.began + request_timeout);
        if let Some(queued) = exchange.times.queued.filter(|_| exchange.ticket.is_some()) {
            end = end.min(queued + queue_timeout);
        }
        actions.set_deadline(if exchange.is_tunnel {
            // The upstream side looks at how quiet it is.
            Moment::NEVER
        } else if exchange.request.is_whole {
            end
        } else {
            end.min(body_deadline(shared, at))
        });
    }

    /// Answers a request that goes no further.
    pub(super) fn answer_here(
        &mut self,
        shared: &mut ProxyShared,
        actions: &mut Actions<'_>,
        request: &Request<'_>,
        status: Status,
        is_last: bool,
    ) {
        let is_last = is_last || request.framing.has_body();
        let persistence = Persistence::of(request.version_minor, is_last);
        let context = answer::Context {
            persistence,
            is_head: request.method == Method::Head,
            asked: FieldContext::default(),
        };
        let allow: &[u8] = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
        let answered = if status == Status::NO_CONTENT {
            answer::empty(actions, &shared.common, context, status, |head| {
                head.field("Allow", allow);
            })
        } else {
            shared.counters.count_refusal(status);
            answer::page(actions, &shared.common, context, status, |head| {
                head.field("Allow", allow);
            })
        };
        shared.counters.count_answer(status);
        let mut line = Vec::new();
        if let Some(log) = &shared.log {
            note_line(&mut line, request, log);
        }
        self.log(shared, actions, (&line, version(request.version_minor)), &answered);
        self.phase = Phase::Idle;
        self.settle(shared, actions, is_last, false);
    }

    /// Answers a request whose head did not come in time; without a body, for what came of it may begin one of HEAD.
    #[cold]
    pub(super) fn time_out(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        let status = Status::REQUEST_TIMEOUT;
        shared.counters.count_refusal(status);
        shared.counters.count_answer(status);
        let context = answer::Context {
            persistence: Persistence::Close,
            is_head: false,
            asked: FieldContext::default(),
        };
        let answered = answer::empty(actions, &shared.common, context, status, |_| {});
        self.log(shared, actions, (b"", ""), &answered);
        self.phase = Phase::Idle;
        self.is_last = true;
        actions.linger();
    }

    /// Reports what was wrong with a client's bytes.
    fn report_refusal(
        &self,
        shared: &ProxyShared,
        actions: &Actions<'_>,
        status: Status,
        why: &str,
    ) {
        let text = || format!("{}: {status}: {why}", self.name(actions));
        shared.logs.errors.report(Event::RequestRefused, shared.now.unix_s, text);
    }

    /// The client, as the error log names it.
    fn name(&self, actions: &Actions<'_>) -> Box<str> {
        let peer = self.peer.clone().unwrap_or_else(|| address_text(actions));
        if peer.is_empty() { "a client of a unix socket".into() } else { peer }
    }

    /// Refuses bytes that are not a request that is served; nothing behind them is read. The log gets `line`, if
    /// they have one, and the version in it.
    #[cold]
    pub(super) fn refuse(
        &mut self,
        shared: &mut ProxyShared,
        actions: &mut Actions<'_>,
        rejection: Rejection,
        input: &[u8],
        line: (&[u8], &str),
    ) {
        if is_tls(input) {
            shared.logs.errors.report(Event::TlsSpoken, shared.now.unix_s, || {
                let client = self.name(actions);
                format!(
                    "{client} speaks TLS, which this proxy does not: use http://, or give it --cert and --key"
                )
            });
        } else {
            let why = answer::explanation(&rejection, &shared.head_limits);
            self.report_refusal(shared, actions, rejection.status, &why);
        }
        shared.counters.count_refusal(rejection.status);
        shared.counters.count_answer(rejection.status);
        let refused = answer::refusal(
            actions,
            &shared.common,
            rejection,
            &shared.head_limits,
            is_head(input),
        );
        self.log(shared, actions, line, &refused);
        self.phase = Phase::Idle;
        self.is_last = true;
        actions.linger();
    }
}

impl Client {
    /// Counts and logs the end of an exchange.
    pub(in crate::proxy) fn record(&self, shared: &mut ProxyShared, at: u32, fault: Option<Fault>) {
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
            peer: self.peer.as_deref().unwrap_or_default(),
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
        log.add(&entry, &shared.counters);
    }

    /// Logs an answer of the proxy's own, to a request that no backend had. Its line has the columns of all
    /// others.
    pub(in crate::proxy) fn log(
        &mut self,
        shared: &mut ProxyShared,
        actions: &Actions<'_>,
        (line, version): (&[u8], &str),
        answered: &Answered,
    ) {
        let Some(log) = &mut shared.log else { return };
        let (status, body_bytes) = (answered.status.code(), answered.body_bytes);
        let end = match status {
            200..400 => "ok",
            408 => Fault::ClientTimeout.name(),
            _ => Fault::BadRequest(answered.status).name(),
        };
        let proxied = Proxied {
            backend: "",
            queued: None,
            connected: None,
            first_byte: None,
            total: None,
            tries: 0,
            end,
            state: None,
            is_retry_safe: None,
        };
        let peer = self.peer.get_or_insert_with(|| address_text(actions));
        let Line { method, target, referer, agent } = Line::of(line);
        let entry = Entry {
            peer,
            method,
            target,
            version,
            status,
            body_bytes,
            referer,
            agent,
            cut: None,
            proxied: Some(proxied),
        };
        log.add(&entry, &shared.counters);
    }
}

/// By when more of the request's body has to come.
fn body_deadline(shared: &ProxyShared, at: u32) -> Moment {
    let limits = &shared.limits;
    let (timeout, rate_min_bytes) = (limits.body_timeout, limits.body_rate_min_bytes);
    let exchange = shared.exchanges.get(at);
    exchange.body_clock.deadline(exchange.request.body_bytes, BodyTime { timeout, rate_min_bytes })
}

/// The address without its port; empty on a unix socket.
pub(in crate::proxy) fn address_text(actions: &Actions<'_>) -> Box<str> {
    let address: Option<IpAddr> = actions.peer().map(|peer| peer.ip().to_canonical());
    address.map_or_else(String::new, |address| address.to_string()).into()
}

/// Keeps what the log says of a request: method and target, and for the combined form two fields behind
/// them; no value of a field has a line feed.
pub(in crate::proxy) fn note_line(line: &mut Vec<u8>, request: &Request<'_>, log: &AccessLog) {
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

/// The same of a head that was refused, as far as it came.
pub(in crate::proxy) fn note_refused_line(line: &mut Vec<u8>, head: &[u8], log: &AccessLog) {
    let said = request_line(head);
    line.extend_from_slice(said.method.as_bytes());
    line.push(b' ');
    line.extend_from_slice(said.target);
    if log.names_agents() {
        for name in ["referer", "user-agent"] {
            line.push(b'\n');
            line.extend_from_slice(field(head, name));
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
