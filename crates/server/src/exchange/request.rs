//! The order of a request that a backend answers, top to bottom: one function for each step.
//!
//! | step | called by | when |
//! |---|---|---|
//! | [`begin`](ProxyLoop::begin), [`begin_again`](ProxyLoop::begin_again) | the asker's session | the head of a request is sound, and a backend is to answer it; the second where it is the last one of this loop again |
//! | [`choose`](ProxyLoop::choose), [`obtain`](ProxyLoop::obtain) | `begin`, `fault` for a second try, and `assign.rs` where a request that waited has its turn or its backend went down | a backend, and a connection to it |
//! | [`upstream_ready`](ProxyLoop::upstream_ready), [`request_leaves_by`](ProxyLoop::request_leaves_by) | the upstream's session | it is connected, was woken, or has got rid of what it had |
//! | [`request_bytes`](ProxyLoop::request_bytes), [`request_data`](ProxyLoop::request_data) | the asker's session | behind `begin`, with what came behind the head; then whenever more of the body came |
//! | [`wake_found`](ProxyLoop::wake_found) | `request_bytes` | all of the request is there: an idle connection that was found sends it |
//! | [`interim`](ProxyLoop::interim) | the upstream's session | an interim answer (1xx) came |
//! | [`upgraded`](ProxyLoop::upgraded), [`upgraded_by_stream`](ProxyLoop::upgraded_by_stream) | the upstream's session | the backend continues with WebSocket (101, or 2xx by a stream): a tunnel from here on |
//! | [`leave_tunnel`](ProxyLoop::leave_tunnel) | the upstream's session | it has lost a tunnel, which is over |
//! | [`answer_head`](ProxyLoop::answer_head), [`answer_head_of_stream`](ProxyLoop::answer_head_of_stream) | the upstream's session | the head of the answer came (`answer_head_again`: the last one again): from here on there is no second try |
//! | [`answer_bytes`](ProxyLoop::answer_bytes), [`answer_data`](ProxyLoop::answer_data) | the upstream's session | some of its body came |
//! | [`answer_end`](ProxyLoop::answer_end) | the upstream's session | all of it came: the exchange lets go of the connection |
//! | [`park`](ProxyLoop::park) | the upstream's session | right behind `answer_end`, before the client has the answer: the connection is kept for another request |
//! | [`answer_leaves`](ProxyLoop::answer_leaves), [`answer_leaves_by`](ProxyLoop::answer_leaves_by) | the asker's session | it was woken, or has got rid of what it had |
//! | [`fault`](ProxyLoop::fault) | either session, at any time | a second try, a page, or a cut |
//! | [`finish`](ProxyLoop::finish) | the asker's session | the last byte was handed over, or the client is gone (`booking.rs`) |
//!
//! A step changes the [`Exchange`](crate::exchange::table::Exchange) and wakes the other side. What a session does with its own
//! connection beside that stands in its file: `front/h1/later.rs`, `front/h2/later.rs`, `upstream.rs`. An exchange knows whom
//! it has to wake, the [`Asker`], and nothing else of who asked: a connection of HTTP/1.1, or a stream of one of HTTP/2. Where
//! these differ the step says so: a stream never pauses its connection, gives all that its window let through
//! ([`request_data`](ProxyLoop::request_data), [`answer_data`](ProxyLoop::answer_data)), and takes frames
//! ([`answer_leaves_by`](ProxyLoop::answer_leaves_by), [`request_leaves_by`](ProxyLoop::request_leaves_by)). So it is with
//! the other side, whose connection has one request at a time (`upstream.rs`), or streams (`upstream/h2.rs`).
//!
//! | of an exchange | is |
//! |---|---|
//! | `request`, `response` | what goes one way, bounded: `head` is written into, `take` adds what came of a body, `send` gives the connection of the other side what fits, with the framing; `is_whole` once all of it came, `is_done` once all has left |
//! | `stage` | how far it came, the word of the log |
//! | `upstream`, `ticket` | the upstream connection that has it; its place in the queue for one |
//! | `body_clock`, the deadlines | by when the client has to act (`deadlines.rs`, `set_asker_deadline`) |

use std::borrow::Cow;
use std::sync::Arc;

use pollux_engine::Actions;
use pollux_http::h2::NeverIndexed;
use pollux_http::{
    BodyReader, Fields, Limits, Method, ProxyHeader, Rejection, Request, Response, ResponseBody,
    ResponseFacts, Status,
};
use pollux_tls::{ClientIdentity, ShownId};

use crate::backends::Target;
use crate::backends::groups::Group;
use crate::backends::pool::Admission;
use crate::body_clock::BodyClock;
use crate::coding::Encoder;
use crate::counters::ServerCounter;
use crate::exchange::asker::Asker;
use crate::exchange::booking::note_line;
use crate::exchange::deadlines::UpstreamWait;
use crate::exchange::direction::{Direction, Side};
use crate::exchange::h2_output;
use crate::exchange::proxy_loop::ProxyLoop;
use crate::exchange::table::{Exchange, Next, OFFERS_MAX, Stage};
use crate::fault::{Fault, Party, ProxyCounter};
use crate::fields;
use crate::head::Version;
use crate::head::cache::{AnswerKey, LastRequest, RequestFacts, RequestKey};
use crate::head::changed::{encode_head, vary_by_coding};
use crate::head::proxied::{
    AnswerContext, RequestContext, Rewritten, write_answer, write_interim, write_request,
    write_tunnel, write_upgrade,
};
use crate::head::tail::{HeadTail, HopFields, TAIL_BYTES_MAX};
use crate::head::websocket::{self, Key};
use crate::ids::{BackendId, ExchangeId, FrontId, GroupId};
use crate::log::AccessLog;
use crate::sticky::{Brought, Mark, NewCookie};

/// Upstream connections that one request may have, one after the other.
const TRIES_MAX: u32 = 3;
/// Interim answers to one request; a backend that sends them for ever is not answering. One each ten seconds, as a
/// sign that a long request is under way (RFC 2518 10.1), makes 360 in the hour that it has by default.
const INTERIMS_MAX: u32 = 1024;
/// With this much of them waiting for the client no other one is taken. One more, and the page for a fault
/// behind them, fit into a call ([`Actions::ROOM_MIN`]): what a client gets of an interim answer is whole.
const INTERIM_BYTES_MAX: usize = 40 * 1024;
/// Longest interim answer that is passed on.
const INTERIM_HEAD_BYTES_MAX: usize = 16 * 1024;

const SWITCHING_PROTOCOLS: Status = Status::of(101);

const HEAD_TOO_LONG: &str = "a head of more than 56 KiB, which no client of HTTP/2 gets";

/// What an exchange has to know of who asks, beside the request.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) asker: Asker,
    pub(crate) front: FrontId,
    /// Whether the client speaks TLS.
    pub(crate) is_secure: bool,
    /// The certificate that the client has seen, where there are several by name.
    pub(crate) shown: Option<ShownId>,
    /// The group of backends that its front end leads to.
    pub(crate) group: GroupId,
    /// The client's address without its port; empty on a unix socket.
    pub(crate) peer: &'a str,
    /// Whose it is, where a PROXY head says so in front of the connection to the backend.
    pub(crate) header: Option<ProxyHeader>,
    /// No request follows on the client's connection.
    pub(crate) is_last: bool,
}

impl<'a> Asked<'a> {
    /// By what the same head may be meant otherwise.
    fn key(&self) -> RequestKey<'a> {
        let is_stream = self.asker.is_stream();
        let Self { front, is_secure, shown, peer, .. } = *self;
        RequestKey { front, is_secure, is_stream, shown, peer }
    }
}

/// The head of a request, as it came.
#[derive(Debug)]
pub(crate) struct NewHead<'a> {
    pub(crate) request: &'a Request<'a>,
    pub(crate) head: &'a [u8],
    /// Whether the same head may be passed on again without being looked at.
    pub(crate) may_repeat: bool,
    /// The id of the request; empty where it has none.
    pub(crate) id: &'a str,
    /// Who asks, as a password has shown, and the same for a backend that is to get it; empty where there was none.
    pub(crate) user: (&'a str, &'a str),
    /// What its client has shown that was asked for a certificate; `client_passed` where its site asks for one.
    pub(crate) client: Option<&'a ClientIdentity>,
    pub(crate) client_passed: bool,
    /// How a log calls its site and its route; empty where it has none.
    pub(crate) names: (&'a str, &'a str),
    /// What the backend is asked for, where a route has read the path.
    pub(crate) target: Option<&'a [u8]>,
    pub(crate) facts: RequestFacts,
    /// What is left of Max-Forwards, where it counts.
    pub(crate) max_forwards: Option<u64>,
    /// What of it is put into no table at the next hop.
    pub(crate) never_indexed: NeverIndexed,
    /// Of the request's body.
    pub(crate) limits: &'a Limits,
    pub(crate) log: Option<&'a AccessLog>,
}

impl ProxyLoop {
    /// A sound head came: the request has an exchange, in which its head stands as the backend gets it, and a connection
    /// that is found, opened or waited for.
    pub(crate) fn begin(&mut self, asked: &Asked<'_>, new: &NewHead<'_>) -> ExchangeId {
        let NewHead { request, head, target, facts, max_forwards, never_indexed, limits, .. } =
            *new;
        let (user, user_passed) = new.user;
        let log = new.log;
        let (at, backend) = self.enter(asked, facts);
        let front = self.frontends.get(asked.front);
        let settings = self.epochs.now();
        let is_secure = asked.is_secure;
        let is_by_stream = self.exchanges.get(at).is_multiplexed;
        let host = request.host();
        let context = RequestContext {
            peer: asked.peer,
            version: facts.version,
            host: host.unwrap_or(&self.backends[backend.place()].host),
            is_secure,
            x_forwarded: front.x_forwarded,
            forwarded: front.forwarded,
            rules: &settings.fields[facts.fields.place()].request,
            max_forwards,
            target,
            user: user_passed,
            client: new.client_passed.then_some(new.client),
            prefix: facts.route.map_or("", |route| &settings.rewrites[route.place()].strip),
            cookie: self.groups[asked.group.place()].cookie.as_ref(),
            is_by_stream,
        };
        let exchange = self.exchanges.get_mut(at);
        // What its answer says of paths at this host gets back what the route has taken away.
        if facts.route.is_some_and(|route| settings.rewrites[route.place()].is_some()) {
            let host = fields::host_of(context.rules).unwrap_or(context.host);
            exchange.host.extend_from_slice(host.as_bytes());
        }
        let asks = write_request(exchange.request.head(), request, &context);
        write_key(exchange, request, asks, facts.version == Version::Http2);
        let written_bytes = exchange.request.head().len();
        if let Some(config) = settings.request_id.as_ref().filter(|_| !new.id.is_empty()) {
            exchange.id.extend_from_slice(new.id.as_bytes());
            fields::write(exchange.request.head(), &config.name, new.id.as_bytes());
        }
        let hop = HopFields::of_request(request, facts.version, exchange.wants_upgrade);
        let tail = HeadTail::of(if exchange.is_multiplexed { hop.on_stream() } else { hop });
        let head_bytes = exchange.request.head().len() + TAIL_BYTES_MAX;
        let is_marked = never_indexed != NeverIndexed::default();
        if exchange.is_multiplexed {
            exchange.request.mark(request.fields, never_indexed);
        }
        let is_too_long = exchange.is_multiplexed && head_bytes > h2_output::HEAD_BYTES_MAX;
        match facts.version {
            Version::Http2 => exchange.request.begin_of_stream(request.framing.has_body(), &tail),
            _ => exchange.request.begin_body(BodyReader::new(request.framing, limits), &tail),
        }
        if let Some(log) = log {
            note_line(&mut exchange.line, request, (user, new.client), new.names, log);
        }
        if request.framing.has_body() {
            self.counters.add(ServerCounter::Bodies, 1);
        } else if host.is_some()
            && hop == HopFields::default()
            && request.method != Method::Options
            && !is_marked
            && new.may_repeat
        {
            let last = self.repeats.request.get_or_insert_default();
            let written = &exchange.request.head()[..written_bytes];
            last.note(head, asked.key(), written, &exchange.line, &exchange.host, facts);
        }
        if is_too_long {
            self.part(at);
            self.give_up_later(at, Fault::BadRequest(Status::FIELDS_TOO_LARGE));
        }
        at
    }

    /// The same of a head that is the last one of this loop again.
    #[inline]
    pub(crate) fn begin_again(
        &mut self,
        asked: &Asked<'_>,
        last: &LastRequest,
        id: &str,
    ) -> ExchangeId {
        let (at, _) = self.enter(asked, last.facts);
        let exchange = self.exchanges.get_mut(at);
        exchange.request.head().extend_from_slice(&last.written);
        if let Some(config) = self.epochs.now().request_id.as_ref().filter(|_| !id.is_empty()) {
            exchange.id.extend_from_slice(id.as_bytes());
            fields::write(exchange.request.head(), &config.name, id.as_bytes());
        }
        let tail = if exchange.is_multiplexed { HeadTail::STREAM } else { HeadTail::NONE };
        exchange.request.begin_without_body(&tail);
        exchange.line.extend_from_slice(&last.line);
        exchange.host.extend_from_slice(&last.host);
        at
    }

    /// Makes the exchange, and finds a backend for it.
    fn enter(&mut self, asked: &Asked<'_>, facts: RequestFacts) -> (ExchangeId, BackendId) {
        let group = asked.group;
        let is_encrypted = asked.is_secure || self.groups[group.place()].tls.is_some();
        let is_multiplexed = self.groups[group.place()].protocol.is_http2();
        let is_framed = is_encrypted || is_multiplexed || asked.asker.is_stream();
        let may_splice = !is_framed && self.pipes.is_on();
        let at = self.exchanges.begin(asked.asker, self.now.at);
        let exchange = self.exchanges.get_mut(at);
        (exchange.group, exchange.route) = (group, facts.route);
        exchange.epoch = Some(self.epochs.hold());
        exchange.counted = facts.route.map(|route| self.epochs.now().counted[route.place()]);
        if let Some(header) = asked.header {
            exchange.header = header;
        }
        (exchange.key, exchange.kind, exchange.version) = (facts.key, facts.kind, facts.version);
        exchange.brought = facts.brought;
        (exchange.is_idempotent, exchange.may_splice) = (facts.is_idempotent, may_splice);
        (exchange.fields, exchange.rules) = (facts.fields, facts.rules);
        exchange.wishes = facts.wishes;
        exchange.is_last = asked.is_last;
        exchange.is_multiplexed = is_multiplexed;
        // A stream that is refused was not looked at, whatever it asks for.
        exchange.request.keep_sent(facts.is_idempotent || is_multiplexed);
        let backend = self.choose(at);
        if !facts.brought.mark.is_none() {
            self.count_brought(facts.brought.mark, backend);
        }
        (at, backend)
    }

    /// A request with this mark went to that backend first.
    #[cold]
    fn count_brought(&self, mark: Mark, backend: BackendId) {
        let is_kept = self.targets[backend.place()].as_ref().is_some_and(|it| it.mark == mark);
        self.proxied.count(if is_kept {
            ProxyCounter::StickyKept
        } else {
            ProxyCounter::StickyMoved
        });
    }

    /// Writes the cookie that an answer sets which makes a tunnel of its connection.
    fn write_new_cookie(&mut self, at: ExchangeId) {
        let exchange = self.exchanges.get_mut(at);
        let Some(cookie) = new_cookie(&self.groups, &self.targets, exchange) else { return };
        cookie.write(exchange.response.head());
        self.proxied.count(ProxyCounter::StickySet);
    }

    /// Finds the backend whose turn it is, and obtains a connection to it. Says which one that is; where none may have the
    /// request the first one of the group, for its address.
    pub(crate) fn choose(&mut self, at: ExchangeId) -> BackendId {
        let exchange = self.exchanges.get_mut(at);
        if let Some(failed) = exchange.backend {
            exchange.tried.add(failed);
        }
        let group = exchange.group;
        let tried = exchange.tried;
        let key = exchange.key;
        let mark = exchange.brought.mark;
        let Some(backend) = self.pick_backend(group, &tried, key, mark) else {
            self.give_up_later(at, self.why_none(group));
            return self.groups[group.place()].first();
        };
        let exchange = self.exchanges.get_mut(at);
        exchange.tries += 1;
        exchange.backend = Some(backend);
        self.proxied.backends()[backend.place()].begun.add(1);
        self.obtain(at, backend);
        backend
    }

    /// Gives the request an idle connection to the backend, opens one, or has it wait for one. An idle one is woken when the
    /// head is written ([`Self::wake_found`]).
    fn obtain(&mut self, at: ExchangeId, backend: BackendId) {
        match self.ask_pool(at, backend) {
            Admission::Private => self.reuse_local(at, backend),
            Admission::Own(pooled) => self.take_own(at, backend, pooled),
            Admission::Other(pooled) => self.take_over(Some(at), backend, pooled),
            Admission::Open => self.open_for(at, backend),
            Admission::Wait(keeper) => self.wait(at, backend, keeper),
            Admission::Full => {
                self.proxied.backends()[backend.place()].ended.add(1);
                self.give_up_later(at, Fault::QueueFull);
            }
        }
    }

    /// The upstream connection is there, was woken, or has got rid of what it was given: what there is of the request
    /// leaves by it.
    pub(super) fn upstream_ready(&mut self, at: ExchangeId, actions: &mut Actions<'_>) {
        let exchange = self.exchanges.get_mut(at);
        if exchange.request.is_leaving {
            return;
        }
        let sent_bytes = exchange.request.send(actions);
        if exchange.asker.is_stream() && sent_bytes > 0 {
            exchange.moved = self.now.at;
            self.count_held(at);
        }
        let exchange = self.exchanges.get_mut(at);
        if exchange.request.is_done() {
            exchange.reach(Stage::Waiting);
            if exchange.is_tunnel() {
                // The client has said its last word, and all of it has gone.
                if exchange.response.is_whole() {
                    return actions.close();
                }
                self.set_upstream_deadline(at, actions);
                return actions.end_output();
            }
            if !exchange.has_answer() {
                actions.set_deadline(UpstreamWait::FirstByte.end(self.now.at, &self.limits));
            }
            return;
        }
        if sent_bytes == 0 {
            return;
        }
        // More is to come: only when this has left, so that what waits here stays little.
        exchange.request.is_leaving = true;
        if exchange.is_tunnel() || !exchange.has_answer() {
            // An answer that came early has a time of its own.
            self.set_upstream_deadline(at, actions);
        }
        actions.notify_when_sent();
    }

    /// The same where the upstream connection has streams: `send` gives that of the exchange what windows and room take, and
    /// says how many bytes that were.
    pub(super) fn request_leaves_by(
        &mut self,
        at: ExchangeId,
        actions: &mut Actions<'_>,
        send: impl FnOnce(&mut Direction, &mut Actions<'_>) -> u64,
    ) {
        let exchange = self.exchanges.get_mut(at);
        let sent_bytes = send(&mut exchange.request, actions);
        // Such a connection takes no more than has left.
        exchange.request.has_left(&mut self.pipes);
        if exchange.request.is_done() {
            exchange.reach(Stage::Waiting);
        }
        if exchange.asker.is_stream() && sent_bytes > 0 {
            exchange.moved = self.now.at;
            self.count_held(at);
        }
        let exchange = self.exchanges.get(at);
        if exchange.is_tunnel() || !exchange.has_answer() {
            self.set_upstream_deadline(at, actions);
        }
        if sent_bytes > 0 {
            self.wake_paused_asker(at, actions);
        }
    }

    /// Input of the client while its request is under way: more of its body, or what follows that and waits unread. Says
    /// how much was used.
    ///
    /// # Errors
    /// What is wrong with the body.
    pub(crate) fn request_bytes(
        &mut self,
        at: ExchangeId,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> Result<usize, Rejection> {
        let exchange = self.exchanges.get_mut(at);
        let request = &mut exchange.request;
        if request.is_whole() && exchange.stage != Stage::Tunnel {
            self.wake_found(at, actions, input);
            return Ok(0);
        }
        let before = request.body_bytes();
        let used = match exchange.stage {
            Stage::Tunnel => request.take_raw(input),
            _ => request.take(input)?,
        };
        let body_bytes = request.body_bytes() - before;
        if self.request_grew(at, actions, body_bytes) || used < input.len() {
            actions.pause_input();
        }
        self.leave_long_body(at, Side::Client, actions);
        Ok(used)
    }

    /// The same from a stream of HTTP/2, whose window bounds it, and whose frames say where it `ends`. Of a tunnel that the
    /// backend has left nothing is kept.
    ///
    /// # Errors
    /// It is longer than it may be.
    pub(crate) fn request_data(
        &mut self,
        at: ExchangeId,
        actions: &mut Actions<'_>,
        data: &[u8],
        ends: bool,
        limits: &Limits,
    ) -> Result<(), Rejection> {
        let exchange = self.exchanges.get_mut(at);
        if exchange.is_tunnel() && !exchange.has_backend() {
            return Ok(());
        }
        let request = &mut exchange.request;
        let is_body = exchange.stage != Stage::Tunnel;
        request.take_all(data);
        if is_body && request.body_bytes() > limits.body_bytes {
            return Err(Rejection::BODY_LARGE);
        }
        request.set_whole(ends);
        self.request_grew(at, actions, data.len() as u64);
        self.count_more_held(at);
        Ok(())
    }

    /// Fields behind the body of a stream, which [`Self::request_data`] ends, and those of them that are put into no table.
    pub(crate) fn request_trailers(
        &mut self,
        at: ExchangeId,
        trailers: Fields<'_>,
        never_indexed: NeverIndexed,
    ) {
        let exchange = self.exchanges.get_mut(at);
        if exchange.is_multiplexed {
            exchange.request.mark(trailers, never_indexed);
        }
        if exchange.is_tunnel() {
            // It has left the settings that its rules are of, and bytes have no trailers.
            return exchange.request.add_trailers(trailers, |_| true);
        }
        let rules = &exchange.settings(&self.epochs).fields[exchange.fields.place()].request;
        exchange.request.add_trailers(trailers, |name| fields::drops(rules, name));
    }

    /// All of the request is there: the idle connection that [`Self::obtain`] found is woken, and sends it
    /// ([`Self::upstream_ready`]); one that is being opened does so when it is connected. What the client sends behind it
    /// waits unread.
    #[inline]
    fn wake_found(&mut self, at: ExchangeId, actions: &mut Actions<'_>, behind: &[u8]) {
        if !behind.is_empty() {
            actions.pause_input();
        }
        self.wake_upstream(at, actions);
    }

    /// The same as [`Self::request_bytes`], from the client's socket into a pipe.
    pub(crate) fn request_piped(&mut self, at: ExchangeId, actions: &mut Actions<'_>) {
        let body_bytes = self.splice_body(at, Side::Client, actions);
        if body_bytes == 0 && !self.exchange(at).request.is_full() {
            return;
        }
        self.request_grew(at, actions, body_bytes);
        if self.exchange(at).is_asker_paused {
            actions.pause_input();
        }
    }

    /// So much of the body was taken; says whether that is all that there is room for.
    fn request_grew(&mut self, at: ExchangeId, actions: &mut Actions<'_>, body_bytes: u64) -> bool {
        self.counters.add(ServerCounter::BodyBytes, body_bytes);
        let exchange = self.exchanges.get_mut(at);
        if body_bytes > 0 {
            exchange.body_clock.on_bytes(exchange.body_time(self.now.at));
        }
        let is_full = exchange.request.is_full();
        let is_stream = exchange.asker.is_stream();
        let waits = if is_stream { exchange.request.body_bytes_left() > 0 } else { is_full };
        exchange.is_asker_paused = waits && !exchange.request.is_whole();
        if exchange.request.is_whole() && !is_stream {
            actions.read_in_turn();
        }
        self.set_asker_deadline(at, actions);
        self.wake_upstream(at, actions);
        is_full
    }

    /// An interim answer (1xx) came.
    ///
    /// # Errors
    /// Why it is not taken.
    pub(crate) fn interim(
        &mut self,
        at: ExchangeId,
        actions: &mut Actions<'_>,
        response: &Response<'_>,
    ) -> Result<(), Cow<'static, str>> {
        let exchange = self.exchanges.get_mut(at);
        exchange.request.forget_sent();
        exchange.interims += 1;
        if exchange.interims > INTERIMS_MAX {
            return Err("more interim answers (1xx) than 1024".into());
        }
        // The backend is at work.
        self.set_upstream_deadline(at, actions);
        let exchange = self.exchanges.get_mut(at);
        // Clients of HTTP/1.0 know none (RFC 9110 15.2).
        if exchange.version == Version::Http10 {
            return Ok(());
        }
        if response.facts.head_len > INTERIM_HEAD_BYTES_MAX {
            return Err("an interim answer (1xx) of more than 16 KiB".into());
        }
        let head = exchange.response.head();
        if head.len() > INTERIM_BYTES_MAX {
            return Err("more interim answers (1xx) than the client takes".into());
        }
        write_interim(head, response);
        self.proxied.count(ProxyCounter::Interim);
        self.wake_asker(at, actions);
        Ok(())
    }

    /// The backend continues with the WebSocket protocol (101): what follows is a tunnel.
    ///
    /// # Errors
    /// Why it is not taken.
    pub(super) fn upgraded(
        &mut self,
        at: ExchangeId,
        actions: &mut Actions<'_>,
        response: &Response<'_>,
    ) -> Result<(), Cow<'static, str>> {
        let exchange = self.exchanges.get_mut(at);
        exchange.request.forget_sent();
        if !exchange.wants_upgrade || exchange.version == Version::Http10 {
            return Err("an upgrade (101) that was not asked for".into());
        }
        let before = exchange.response.head().len();
        let own = exchange.settings(&self.epochs).answered_id();
        write_upgrade(exchange.response.head(), response, exchange.accept.as_ref(), own)?;
        self.write_new_cookie(at);
        self.write_id(at);
        self.begin_tunnel(at, actions, before)
    }

    /// The same by a stream that was asked for one, whose answer of 2xx says so (RFC 8441 5). The backend may end its side with it.
    ///
    /// # Errors
    /// Why it is not taken.
    pub(super) fn upgraded_by_stream(
        &mut self,
        at: ExchangeId,
        actions: &mut Actions<'_>,
        response: &Response<'_>,
        ends: bool,
    ) -> Result<(), Cow<'static, str>> {
        let exchange = self.exchanges.get_mut(at);
        exchange.request.forget_sent();
        let before = exchange.response.head().len();
        let own = exchange.settings(&self.epochs).answered_id();
        write_tunnel(exchange.response.head(), response, exchange.accept.as_ref(), own);
        self.write_new_cookie(at);
        self.write_id(at);
        self.begin_tunnel(at, actions, before)?;
        self.exchanges.get_mut(at).response.set_whole(ends);
        Ok(())
    }

    /// The head is there that makes a tunnel of the client's connection or stream, behind what was there `before`.
    fn begin_tunnel(
        &mut self,
        at: ExchangeId,
        actions: &mut Actions<'_>,
        before: usize,
    ) -> Result<(), Cow<'static, str>> {
        let exchange = self.exchanges.get_mut(at);
        let is_stream = exchange.asker.is_stream();
        if is_stream && exchange.response.head().len() > h2_output::HEAD_BYTES_MAX {
            exchange.response.head().truncate(before);
            return Err(HEAD_TOO_LONG.into());
        }
        exchange.reach(Stage::Tunnel);
        // It may live for long, and needs nothing else of them.
        let settings = exchange.settings(&self.epochs);
        let of_route = exchange.route.map(|route| settings.tunnel_timeouts[route.place()]);
        exchange.tunnel_timeout = of_route.unwrap_or(settings.limits.tunnel_timeout);
        exchange.leave_epoch(&self.epochs);
        let (tail, status) = if is_stream {
            (HeadTail::STREAM, Status::OK)
        } else {
            (HeadTail::of(HopFields::UPGRADE), SWITCHING_PROTOCOLS)
        };
        exchange.response.begin_tunnel(&tail);
        exchange.request.reopen();
        exchange.is_last = true;
        exchange.status = Some(status);
        exchange.times.first_byte = Some(self.now.at);
        self.proxied.count(ProxyCounter::Upgrades);
        self.wake_asker(at, actions);
        Ok(())
    }

    /// The upstream connection, or the stream there, is no more that a tunnel had: both of its sides have come to their end.
    pub(super) fn leave_tunnel(&mut self, at: ExchangeId) {
        self.detach(at);
        let exchange = self.exchanges.get_mut(at);
        exchange.request.set_whole(true);
        // A stream can tell an end from a cut, and does.
        let is_said = exchange.response.is_whole() || !exchange.asker.is_stream();
        exchange.response.set_whole(is_said);
    }

    /// The head of the answer came, with a body behind it unless it `ends`: what was sent of the request is kept no more, as
    /// there is no second try. Where a page takes its place nothing of it is passed on ([`Fault::Replaced`]).
    ///
    /// # Errors
    /// Why it is not taken.
    pub(super) fn answer_head(
        &mut self,
        at: ExchangeId,
        response: &Response<'_>,
        head: &[u8],
        ends: bool,
    ) -> Result<(), Cow<'static, str>> {
        let by = self.answer_key(at);
        let exchange = self.exchanges.get_mut(at);
        if exchange.wants_tunnel() && matches!(response.facts.status.code(), 200..=299) {
            return Err("an answer of 2xx to the request for a WebSocket, which a stream would take for one".into());
        }
        let settings = exchange.settings(&self.epochs);
        let set = &settings.fields[exchange.fields.place()];
        let status = response.facts.status;
        exchange.request.forget_sent();
        if exchange.wishes.has_changes && set.changes.replaces(status, exchange.wishes) {
            self.answer_is_there(at);
            self.exchanges.get_mut(at).fault = Some(Fault::Replaced(status));
            return Ok(());
        }
        let is_early = !exchange.request.is_whole();
        let cookie = new_cookie(&self.groups, &self.targets, exchange);
        // Nobody wants the rest: the answer says that the connection ends here (RFC 9112 9.5).
        exchange.is_last |= is_early && status.code() >= 400;
        let rules = set.response.applying(exchange.rules, status.code());
        let context = AnswerContext {
            kind: exchange.kind,
            date: &self.date,
            rules,
            rewrite: exchange.route.map(|route| Rewritten {
                by: &settings.rewrites[route.place()],
                host: exchange.backend.map_or("", |backend| &self.backends[backend.place()].host),
                asked_host: &exchange.host,
            }),
            cookie,
        };
        let out = exchange.response.head();
        let before = out.len();
        if !write_answer(out, response, &context) {
            return Err("a coding before chunked, which was not asked for".into());
        }
        let mut encoder = None;
        if exchange.wishes.has_changes && !ends && set.changes.compresses(response, rules) {
            let coding = exchange.wishes.coding;
            if let Some(coding) = coding {
                encoder = self.encoders.begin(coding, self.now.unix_s);
            }
            if let Some(coding) = coding.filter(|_| encoder.is_some()) {
                encode_head(out, before, coding);
            }
            vary_by_coding(out, before);
        }
        if exchange.asker.is_stream() && out.len() > h2_output::HEAD_BYTES_MAX {
            out.truncate(before);
            return Err(HEAD_TOO_LONG.into());
        }
        // Where it leads depends on the host that was asked for.
        let is_led = !exchange.host.is_empty() && response.fields.first("location").is_some();
        if cookie.is_some() {
            self.proxied.count(ProxyCounter::StickySet);
        } else if !is_early && !head.is_empty() && !is_led && !exchange.wishes.has_changes {
            self.repeats.note_answer(head, by, &out[before..], response.facts);
        }
        self.write_id(at);
        self.answer_began(at, &response.facts, encoder);
        Ok(())
    }

    /// The same from a stream, which may end with it.
    ///
    /// # Errors
    /// Why it is not taken.
    pub(super) fn answer_head_of_stream(
        &mut self,
        at: ExchangeId,
        response: &Response<'_>,
        ends: bool,
    ) -> Result<(), Cow<'static, str>> {
        let mut facts = response.facts;
        if ends && facts.body == ResponseBody::UntilClose && !self.exchange(at).asker.is_stream() {
            facts.body = ResponseBody::Length(0);
        }
        self.answer_head(at, &Response { facts, ..*response }, &[], ends)?;
        let exchange = self.exchanges.get_mut(at);
        if exchange.fault.is_some() {
            return Ok(());
        }
        exchange.ends_with_head = ends;
        exchange.response.set_whole(ends);
        Ok(())
    }

    /// The same, if it is the last one of this loop again; says what it means.
    pub(super) fn answer_head_again(
        &mut self,
        at: ExchangeId,
        input: &[u8],
    ) -> Option<ResponseFacts> {
        let by = self.answer_key(at);
        let exchange = self.exchanges.get_mut(at);
        if !exchange.request.is_whole() || exchange.wants_tunnel() || exchange.wishes.has_changes {
            return None;
        }
        if new_cookie(&self.groups, &self.targets, exchange).is_some() {
            return None;
        }
        let facts = self.repeats.answer(input, by, exchange.response.head())?;
        exchange.request.forget_sent();
        self.write_id(at);
        self.answer_began(at, &facts, None);
        Some(facts)
    }

    /// Adds it to the head of an answer: each request has its own, so that it is not remembered with that.
    #[inline]
    fn write_id(&mut self, at: ExchangeId) {
        let exchange = self.exchanges.get_mut(at);
        if let Some(name) = exchange.settings(&self.epochs).answered_id()
            && !exchange.id.is_empty()
        {
            fields::write(exchange.response.head(), name, &exchange.id);
        }
    }

    fn answer_key(&self, at: ExchangeId) -> AnswerKey {
        let exchange = self.exchanges.get(at);
        AnswerKey {
            epoch: exchange.epoch,
            fields: exchange.fields,
            kind: exchange.kind,
            unix_s: self.now.unix_s,
            rules: exchange.rules,
            route: exchange.route,
            backend: exchange.backend.filter(|_| exchange.route.is_some()),
        }
    }

    fn answer_began(
        &mut self,
        at: ExchangeId,
        facts: &ResponseFacts,
        encoder: Option<Box<Encoder>>,
    ) {
        let exchange = self.exchanges.get_mut(at);
        let reader = BodyReader::of_response(facts.body, &self.answer_limits);
        // How long what is made of it will be is not known.
        let body = if encoder.is_some() { ResponseBody::Chunked } else { facts.body };
        let (tail, is_last) = self.repeats.tail((body, exchange.version, exchange.is_last));
        exchange.response.begin_body(reader, tail);
        if tail.is_of_stream {
            exchange.response.take_trailers();
        }
        if let Some(encoder) = encoder {
            exchange.response.encode_by(encoder);
        }
        exchange.reach(Stage::Answering);
        exchange.is_last = is_last;
        exchange.status = Some(facts.status);
        self.answer_is_there(at);
    }

    /// The backend has begun to answer, whatever becomes of that.
    fn answer_is_there(&mut self, at: ExchangeId) {
        let exchange = self.exchanges.get_mut(at);
        exchange.times.first_byte = Some(self.now.at);
        let times = exchange.times;
        let waited = times.connected.zip(times.first_byte).map(|(from, to)| to - from);
        let backend = exchange.backend.expect("it answers");
        let counts = &self.proxied.backends()[backend.place()];
        counts.answered.add(1);
        counts.wait_us.add(waited.unwrap_or_default().as_micros() as u64);
        self.backend_answered(backend);
    }

    /// Some of the answer's body came; says how much of it was used. Behind the last byte [`Self::answer_end`] follows.
    ///
    /// # Errors
    /// What is wrong with the body.
    pub(super) fn answer_bytes(
        &mut self,
        at: ExchangeId,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> Result<usize, Rejection> {
        let exchange = self.exchanges.get_mut(at);
        let used = exchange.response.take(input)?;
        if let Some(section) = exchange.response.whole_trailers() {
            let status = exchange.status.unwrap_or(Status::OK).code();
            let settings = exchange.settings(&self.epochs);
            let rules = &settings.fields[exchange.fields.place()].response;
            let rules = rules.applying(exchange.rules, status);
            let trailers = Fields::of_trailers(&section);
            exchange.response.add_trailers(trailers, |name| rules.drops(name));
        }
        if !self.exchanges.get(at).response.is_whole() {
            self.answer_grew(at, actions);
        }
        self.leave_long_body(at, Side::Backend, actions);
        Ok(used)
    }

    /// The same from a stream, whose window bounds it, and whose frames say where it `ends`.
    pub(super) fn answer_data(
        &mut self,
        at: ExchangeId,
        actions: &mut Actions<'_>,
        data: &[u8],
        ends: bool,
    ) {
        let response = &mut self.exchanges.get_mut(at).response;
        response.take_all(data);
        response.set_whole(ends);
        if !ends || self.exchanges.get(at).is_tunnel() {
            self.answer_grew(at, actions);
        }
    }

    /// The fields of a head, or of trailers, that a backend has marked are put into no table for a client's stream either.
    #[inline]
    pub(super) fn mark_answer(
        &mut self,
        at: ExchangeId,
        fields: Fields<'_>,
        never_indexed: NeverIndexed,
    ) {
        let exchange = self.exchanges.get_mut(at);
        if exchange.asker.is_stream() {
            exchange.response.mark(fields, never_indexed);
        }
    }

    /// Fields behind the body of an answer by a stream, which end it. Clients of HTTP/1.1 get none.
    pub(super) fn answer_trailers(&mut self, at: ExchangeId, trailers: Fields<'_>) {
        let exchange = self.exchanges.get_mut(at);
        // A tunnel has left the settings that its rules are of, and bytes have no trailers.
        if exchange.asker.is_stream() && !exchange.is_tunnel() {
            let status = exchange.status.unwrap_or(Status::OK).code();
            let settings = exchange.settings(&self.epochs);
            let rules = &settings.fields[exchange.fields.place()].response;
            let rules = rules.applying(exchange.rules, status);
            exchange.response.add_trailers(trailers, |name| rules.drops(name));
        }
        exchange.response.set_whole(true);
    }

    /// How much of the body that came by a stream the client has taken since this was asked last: its window opens by so much.
    pub(super) fn answer_gone(&mut self, at: ExchangeId) -> u64 {
        let exchange = self.exchanges.get_mut(at);
        let gone = exchange.response.gone_bytes();
        let more = gone.saturating_sub(exchange.released);
        exchange.released += more;
        more
    }

    /// The same, from the backend's socket into a pipe.
    pub(super) fn answer_piped(&mut self, at: ExchangeId, actions: &mut Actions<'_>) {
        let bytes = self.splice_body(at, Side::Backend, actions);
        let response = &self.exchanges.get(at).response;
        if !response.is_whole() && (bytes > 0 || response.is_full()) {
            self.answer_grew(at, actions);
        }
    }

    /// Bytes of a tunnel came from the backend; says how many were used.
    pub(super) fn tunnel_bytes(
        &mut self,
        at: ExchangeId,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        let used = self.exchanges.get_mut(at).response.take_raw(input);
        self.answer_grew(at, actions);
        used
    }

    pub(super) fn answer_grew(&mut self, at: ExchangeId, actions: &mut Actions<'_>) {
        self.slow_down(at, actions);
        self.wake_asker(at, actions);
        self.count_more_held(at);
    }

    /// Pauses the upstream connection while the client does not take what is there; sets the deadline of the next piece. A
    /// stream has its window instead.
    pub(super) fn slow_down(&mut self, at: ExchangeId, actions: &mut Actions<'_>) {
        let exchange = self.exchanges.get(at);
        let response = &exchange.response;
        let is_full = response.is_full();
        let has_pipe = response.has_pipe();
        if is_full && !exchange.is_multiplexed {
            // With a pipe each piece is a pause.
            self.proxied.add(ProxyCounter::Pauses, u64::from(!has_pipe));
            actions.pause_input();
        }
        self.set_upstream_deadline(at, actions);
    }

    /// All of the answer came: the upstream connection has no exchange any more. Says whether that may carry another
    /// request, as far as this one goes.
    pub(super) fn answer_end(&mut self, at: ExchangeId, actions: &mut Actions<'_>) -> bool {
        self.count_more_held(at);
        let is_request_gone =
            self.exchanges.get(at).request.is_done() && !actions.is_output_waiting();
        self.detach(at);
        self.wake_asker(at, actions);
        is_request_gone
    }

    /// Gives the client what there is of the answer; says whether that was the last of it.
    #[inline]
    pub(crate) fn answer_leaves(&mut self, at: ExchangeId, actions: &mut Actions<'_>) -> bool {
        self.answer_leaves_by(at, actions, Direction::send)
    }

    /// The same by what `send` gives its stream of it, which says how many bytes that were.
    #[inline]
    pub(crate) fn answer_leaves_by(
        &mut self,
        at: ExchangeId,
        actions: &mut Actions<'_>,
        send: impl FnOnce(&mut Direction, &mut Actions<'_>) -> u64,
    ) -> bool {
        let exchange = self.exchanges.get_mut(at);
        if exchange.response.is_leaving {
            return false;
        }
        exchange.response.flush();
        let sent_bytes = send(&mut exchange.response, actions);
        if exchange.stage == Stage::Answering && sent_bytes > 0 {
            exchange.stage = Stage::Committed;
        }
        if exchange.response.is_done() {
            if exchange.is_tunnel() && exchange.asker.is_stream() {
                // Its side of the stream has ended in the last frame. What the client still sends is passed on until the upstream
                // connection ends, which is the end of both.
                let is_over = !exchange.has_backend();
                self.answer_left(at, actions);
                return is_over;
            }
            if exchange.is_tunnel() && !exchange.request.is_whole() {
                // The backend has ended its output; the client may continue.
                actions.end_output();
                return false;
            }
            if exchange.has_answer() {
                return true;
            }
        }
        if sent_bytes == 0 {
            return false;
        }
        // More is to come: only when this has left, so that what waits here stays little. A connection with several streams
        // takes no more than has left of all.
        let is_stream = exchange.asker.is_stream();
        if is_stream {
            exchange.moved = self.now.at;
        }
        exchange.response.is_leaving = !is_stream;
        if !exchange.request.is_whole() {
            if !exchange.has_answer() {
                // The client may have waited for the interim answer with its body.
                exchange.body_clock = BodyClock::started(exchange.body_time(self.now.at));
            }
            self.set_asker_deadline(at, actions);
        }
        if is_stream {
            self.answer_left(at, actions);
            self.count_held(at);
        } else {
            actions.notify_when_sent();
        }
        false
    }

    /// What was given to the client has left: the backend may send more.
    pub(crate) fn answer_left(&mut self, at: ExchangeId, actions: &mut Actions<'_>) {
        if self.exchanges.get_mut(at).response.has_left(&mut self.pipes) {
            self.wake_upstream(at, actions);
        }
    }

    /// Something went wrong, on either side: the one place that decides between a second try, a page and a cut.
    pub(crate) fn fault(&mut self, at: ExchangeId, fault: Fault) -> Next {
        self.fault_together(at, fault, true)
    }

    /// The same of requests that fail together, by the end of the connection that they had: only the first of them is held
    /// against the backend.
    pub(super) fn fault_together(&mut self, at: ExchangeId, fault: Fault, is_first: bool) -> Next {
        let exchange = self.exchanges.get_mut(at);
        // An idle connection that was closed says nothing of its backend, nor does a request that takes long altogether, nor
        // one that is to go elsewhere, or that asks for more than HTTP.
        let is_its_fault = fault.party() == Party::Upstream
            && !matches!(fault, Fault::RequestTimeout | Fault::Refused | Fault::NoWebSocket)
            && !(fault == Fault::Closed && exchange.is_reused)
            && is_first;
        if let Some(backend) = exchange.backend.filter(|_| is_its_fault) {
            self.backend_failed(backend);
        }
        if self.may_try_again(at, fault) {
            if is_its_fault && fault == Fault::Closed {
                // The client sees nothing of it.
                self.report_fault(at, fault);
            }
            self.proxied.count(ProxyCounter::Retries);
            self.choose(at);
            self.wake_all(at);
            return Next::Retry;
        }
        // Why a connect failed, or why bytes are not an answer, was reported where it was seen.
        let is_reported = matches!(
            fault,
            Fault::ConnectFailed
                | Fault::TlsFailed
                | Fault::NoHttp2
                | Fault::NoWebSocket
                | Fault::BadAnswer
        );
        if fault.party() == Party::Upstream && !is_reported && is_first {
            self.report_fault(at, fault);
        }
        self.give_up(at, fault)
    }

    /// Safe is a second try when the backend has seen nothing of the request, or when it closed the
    /// connection or reset the stream before an answer, as one does that ends or is started anew, and the request can be repeated.
    /// A backend that has failed does not get it again: it may be what made the backend fail.
    fn may_try_again(&mut self, at: ExchangeId, fault: Fault) -> bool {
        let exchange = self.exchanges.get(at);
        let was_idle = fault == Fault::Refused || (fault == Fault::Closed && exchange.is_reused);
        let failed = exchange.backend.filter(|_| !was_idle);
        if failed.is_some_and(|it| !self.has_another(exchange.group, &exchange.tried, it)) {
            return false;
        }
        let exchange = self.exchanges.get_mut(at);
        let tries_max = if fault == Fault::ConnectFailed { OFFERS_MAX as u32 } else { TRIES_MAX };
        if exchange.has_answer() || exchange.interims > 0 || exchange.tries >= tries_max {
            return false;
        }
        let has_left = exchange.request.has_begun_to_leave();
        let is_safe = match fault {
            // Another backend may be there.
            Fault::ConnectFailed | Fault::ConnectTimeout => true,
            // It was not looked at (RFC 9113 8.7).
            Fault::Refused => true,
            Fault::TlsFailed | Fault::NoHttp2 | Fault::NoWebSocket => !has_left,
            Fault::Closed | Fault::Reset => !has_left || exchange.is_idempotent,
            _ => false,
        };
        is_safe && exchange.rewind()
    }

    /// The request ends by this fault: a page while nothing of an answer has left.
    pub(crate) fn give_up(&mut self, at: ExchangeId, fault: Fault) -> Next {
        let exchange = self.exchanges.get_mut(at);
        exchange.fault = Some(fault);
        if exchange.stage == Stage::Answering {
            exchange.response.drop_piped(&mut self.pipes);
            exchange.response.reset();
        }
        Next::after_fault(exchange.stage, fault)
    }

    /// The time to drain is over: what is under way is cut, whether an answer has begun or not.
    pub(crate) fn drained(&mut self, at: ExchangeId) -> Next {
        self.exchanges.get_mut(at).fault = Some(Fault::Ended);
        Next::Cut
    }

    /// The same as [`Self::give_up`], where the client's session is not the one that is called: it gets a wake.
    pub(super) fn give_up_later(&mut self, at: ExchangeId, fault: Fault) {
        self.give_up(at, fault);
        self.wake_asker_later(at);
    }
}

/// What a request for a WebSocket says of its key, where the two sides speak different versions: a stream has none, so a
/// backend of HTTP/1.1 gets one of the proxy's own, and that of a client is answered here.
fn write_key(exchange: &mut Exchange, request: &Request<'_>, asks: bool, is_stream: bool) {
    let is_by_stream = exchange.is_multiplexed;
    let own = (asks && is_stream && !is_by_stream).then(Key::random);
    let of_client = if asks && !is_stream && is_by_stream { Key::of(request) } else { None };
    if let Some(key) = &own {
        fields::write(exchange.request.head(), websocket::KEY, key.text());
    }
    exchange.accept = own.or(of_client).map(|key| key.accept());
    // Without a key to answer it is a GET, whose Upgrade may be ignored (RFC 9110 7.8).
    exchange.wants_upgrade = asks && (is_stream == is_by_stream || exchange.accept.is_some());
}

/// The cookie that the answer to a request sets: where its group has one, and its backend is another one than the client had.
#[inline]
fn new_cookie<'g>(
    groups: &'g [Group],
    targets: &[Option<Arc<Target>>],
    exchange: &Exchange,
) -> Option<NewCookie<'g>> {
    let of = groups[exchange.group.place()].cookie.as_ref()?;
    let Brought { mark: had, is_secure } = exchange.brought;
    let mark = targets[exchange.backend?.place()].as_ref()?.mark;
    (mark != had).then_some(NewCookie { of, mark, is_secure })
}
