//! The proxy's side of one connection of HTTP/2 to a backend: requests out and answers in, each on a stream of its own.
//!
//! ```text
//!  requests that joined it ─► HEADERS, DATA by turns ─► backend ─► HEADERS, DATA ─► their exchanges
//!                                          windows ◄── what clients have taken ◄──┘
//! ```
//!
//! | what the backend does | what becomes of it |
//! |---|---|
//! | its SETTINGS | from here on requests leave: as many at a time as it allows, the others go to other connections |
//! | an answer | that of its stream; what comes is taken whole, within the window of that |
//! | 2xx to a request for a WebSocket (RFC 8441) | a tunnel: DATA is its bytes, END_STREAM the end of a side |
//! | a malformed answer | that request gets 502, or is cut; the others continue |
//! | RST_STREAM `refused_stream` | a second try, whatever the method: it was not looked at |
//! | RST_STREAM | a second try where safe, 502, or the client's stream is reset with the same code |
//! | GOAWAY | no other request comes; streams above the last one get a second try, the others continue |
//! | a fault of the protocol, the end | all that is under way fails: a second try where safe, 502, or a cut |
//!
//! A client that takes nothing withholds the window of its stream and of no other. A stream whose client is gone is reset;
//! the connection lives on.
//!
//! | deadline | what happens |
//! |---|---|
//! | connect timeout, from the connect to the SETTINGS | closed: its requests go elsewhere |
//! | those of an exchange (`deadlines.rs`) | its stream is reset: 504, or a cut |
//! | write timeout of a stream whose window is closed; the least rate of one that opens by little | the same |
//! | half of the first byte timeout of a stream that waits for an answer, or its end, while nothing at all came so long | PING; no request comes until it is answered, and without that in the connect timeout it is closed |
//! | connect timeout of output that waits, while requests do for that | these go to other connections |
//! | idle timeout: no request | GOAWAY, closed |

use std::borrow::Cow;
use std::io;

use pollux_engine::{Actions, CloseCause, Moment};
use pollux_http::Response;
use pollux_http::h2::{
    CONTROL_ROOM_BYTES, Connection, ErrorCode, Event, Output, Role, Scratch, Sending, Settings,
};

use crate::body_clock::{BodyClock, BodyTime};
use crate::config::ProxyLimits;
use crate::exchange::h2_output::{AskedBy, Waits, write_frames};
use crate::exchange::multiplex::STREAMS_MAX;
use crate::exchange::proxy_loop::ProxyLoop;
use crate::exchange::table::{Next, Stage};
use crate::fault::{Fault, ProxyCounter};
use crate::ids::{ExchangeId, UpstreamId};

/// The smallest frame of a body that is worth its head, where more is to follow.
const PIECE_BYTES_MIN: usize = 1024;

/// Bytes of answers to control frames that may wait behind other output: a backend that wants more of them and reads
/// nothing is not read from.
const CONTROL_BYTES_MAX: usize = 64 * 17;

/// Output that the kernel may hold beyond what it can send at once: a new request is not behind more of others.
const UNSENT_BYTES_MAX: u32 = 128 * 1024;

/// So many more streams than were answered may be reset from here before no other request is given to a connection: below what
/// servers take for an attack by clients that reset rapidly.
const RESETS_MAX: u32 = 100;

/// What the PING carries that asks whether the backend is there.
const ALIVE_PING: [u8; 8] = *b"is there";

/// What a stream belongs to.
#[derive(Default, Debug)]
struct Carried {
    at: Option<ExchangeId>,
    /// While its request's body waits for windows.
    taking: Option<Taking>,
}

/// How a backend takes a body: since when, and how much of it.
#[derive(Clone, Copy, Debug)]
struct Taking {
    pace: BodyClock,
    sent_bytes: u64,
}

/// One connection of HTTP/2 to a backend.
#[derive(Debug)]
pub(crate) struct Http2Upstream {
    upstream: UpstreamId,
    connection: Connection<Carried>,
    /// Why the connection will be closed, once that is known here.
    fault: Option<Fault>,
    /// By ALPN.
    has_agreed: bool,
    is_connected: bool,
    /// It is counted as open.
    is_counted: bool,
    /// Nothing is read or sent any more.
    is_over: bool,
    is_draining: bool,
    /// When streams are looked at that may be over their time: never after one of them is due.
    look_at: Moment,
    /// When something came last.
    received: Moment,
    /// When the backend was asked whether it is there, while that is not answered.
    asked: Option<Moment>,
    /// Since when there is no request.
    idle_since: Option<Moment>,
    /// Bytes of control frames that went behind waiting output.
    control_bytes: usize,
    /// Streams that were begun, and those of them that are counted as over.
    begun: u64,
    ended: u64,
    /// Streams that were reset from here, as far as no answer has made up for them.
    resets: u32,
    /// Requests that are looked at; empty between calls.
    looked_at: Vec<ExchangeId>,
}

/// What a call works with.
struct Call<'c, 'a> {
    proxy: &'c mut ProxyLoop,
    actions: &'c mut Actions<'a>,
}

impl Call<'_, '_> {
    /// Sends what `write` writes.
    fn send<R>(&mut self, write: impl FnOnce(&mut Output<'_>) -> R) -> R {
        write_frames(self.actions, write)
    }

    fn now(&self) -> Moment {
        self.proxy.now.at
    }

    fn now_ms(&self) -> u64 {
        self.now().as_nanos() / 1_000_000
    }

    fn count_reset(&self, code: ErrorCode, is_own: bool) {
        let counts = self.proxy.proxied.streams();
        let of = if is_own { &counts.resets_sent } else { &counts.resets_received };
        of[code.index()].add(1);
    }
}

/// What the loop calls.
impl Http2Upstream {
    pub(crate) fn new(upstream: UpstreamId, proxy: &ProxyLoop) -> Self {
        let head_bytes = u32::try_from(proxy.answer_limits.head_bytes).unwrap_or(u32::MAX);
        let settings = Settings { streams_max: STREAMS_MAX, head_bytes, ..Settings::DEFAULT };
        Self {
            upstream,
            connection: Connection::new(Role::Client, settings),
            fault: None,
            has_agreed: false,
            is_connected: false,
            is_counted: false,
            is_over: false,
            is_draining: false,
            look_at: Moment::NEVER,
            received: proxy.now.at,
            asked: None,
            idle_since: None,
            control_bytes: 0,
            begun: 0,
            ended: 0,
            resets: 0,
            looked_at: Vec::new(),
        }
    }

    /// Both sides agreed on HTTP/2 in TLS.
    pub(crate) fn agreed(&mut self) {
        self.has_agreed = true;
    }

    pub(crate) fn connected(&mut self, proxy: &mut ProxyLoop, actions: &mut Actions<'_>) {
        self.is_connected = true;
        let upstream = proxy.connections.get(self.upstream);
        let backend = upstream.backend;
        let is_encrypted = upstream.tls.is_some();
        if is_encrypted && !self.has_agreed {
            self.fault = Some(Fault::NoHttp2);
            proxy.report_http2(backend, NOT_AGREED);
            return actions.abort();
        }
        let counts = &proxy.proxied.backends()[backend.place()];
        counts.http2_opened.add(1);
        self.is_counted = true;
        actions.read_on();
        actions.limit_unsent(UNSENT_BYTES_MAX);
        self.received = proxy.now.at;
        Call { proxy, actions }.send(|out| self.connection.start(out));
    }

    pub(crate) fn connect_failed(&mut self, proxy: &mut ProxyLoop, error: &io::Error) {
        let fault = *self.fault.get_or_insert(Fault::of_connect(error));
        // A request that gets the place of one of these is not to join it.
        proxy.close_to_others(self.upstream);
        let mut waiting = proxy.connections.get_mut(self.upstream).streams().ready.clone();
        if fault == Fault::UpstreamsFull {
            waiting.retain(|at| !proxy.wait_for_room(*at));
        }
        if !waiting.is_empty() || fault != Fault::UpstreamsFull {
            proxy.report_connect(proxy.connections.get(self.upstream).backend, error);
        }
    }

    /// There was no room for its connection.
    pub(crate) fn was_refused(&self) -> bool {
        self.fault == Some(Fault::UpstreamsFull)
    }

    pub(crate) fn tls_failed(&mut self, proxy: &mut ProxyLoop, error: Option<&pollux_tls::Error>) {
        let backend = proxy.connections.get(self.upstream).backend;
        if refuses_http2(error) {
            self.fault.get_or_insert(Fault::NoHttp2);
            return proxy.report_http2(backend, NOT_AGREED);
        }
        self.fault.get_or_insert(Fault::TlsFailed);
        proxy.report_tls(backend, error);
    }

    /// The connection is this session's until here.
    pub(crate) fn closed(mut self, proxy: &mut ProxyLoop, cause: CloseCause) {
        proxy.close_to_others(self.upstream);
        let upstream = proxy.connections.get_mut(self.upstream);
        let backend = upstream.backend;
        let is_handshake = !self.is_connected && upstream.tls.is_some();
        let unsent = std::mem::take(&mut upstream.streams().ready);
        let dropped = std::mem::take(&mut upstream.streams().dropped).len();
        let has_requests = upstream.streams().carried > 0;
        let has_begun = self.connection.has_begun();
        if is_handshake && has_requests && self.fault.is_none() {
            self.tls_failed(proxy, None);
        }
        let counts = &proxy.proxied.backends()[backend.place()];
        counts.http2_closed.add(u64::from(self.is_counted));
        counts.streams_ended.add(self.begun - self.ended);
        let carried = self.connection.take_all().filter_map(|(_, carried)| carried.at);
        let all: Vec<ExchangeId> = carried.chain(unsent).collect();
        // All of it is one failure. Who broke the rules has failed whichever request it was.
        let mut is_blamed = self.fault == Some(Fault::BadAnswer);
        if is_blamed {
            proxy.backend_failed(backend);
        }
        for at in all {
            // One that was sent and is to be looked at stands there twice.
            if proxy.exchange(at).upstream != Some(self.upstream) {
                continue;
            }
            if proxy.exchange(at).is_tunnel() {
                proxy.leave_tunnel(at);
                proxy.wake_asker_later(at);
                continue;
            }
            proxy.detach(at);
            let exchange = proxy.exchange(at);
            if exchange.fault.is_some() {
                continue;
            }
            let was_begun = exchange.request.has_begun_to_leave();
            let own = self.fault.filter(|fault| *fault != Fault::BadAnswer);
            let fault = own.or_else(|| Fault::of_end(cause)).unwrap_or_else(|| {
                match (cause, exchange.has_answer()) {
                    (_, true) if self.fault.is_some() => Fault::BadAnswer,
                    // It was not sent, whatever the others have run into.
                    (_, false) if has_begun && !was_begun => Fault::Refused,
                    // It took nothing of the requests.
                    (CloseCause::SlowReader, false) => Fault::FirstByteTimeout,
                    (CloseCause::SlowReader, true) => Fault::BodyTimeout,
                    (_, false) => Fault::Closed,
                    (_, true) => Fault::Cut,
                }
            });
            let counts = fault != Fault::Refused && !(fault == Fault::Closed && exchange.is_reused);
            if proxy.fault_together(at, fault, !is_blamed) != Next::Retry {
                proxy.wake_asker_later(at);
            }
            is_blamed |= counts;
        }
        for _ in 0..dropped {
            proxy.place_is_free(self.upstream);
        }
        proxy.end_multiplexed(self.upstream);
    }

    pub(crate) fn on_wake(&mut self, proxy: &mut ProxyLoop, actions: &mut Actions<'_>) {
        let upstream = proxy.connections.get_mut(self.upstream);
        upstream.is_woken = false;
        if upstream.is_cut {
            return actions.abort();
        }
        if self.connection.has_begun() {
            self.proceed(&mut Call { proxy, actions });
        }
    }

    pub(crate) fn on_output_sent(&mut self, proxy: &mut ProxyLoop, actions: &mut Actions<'_>) {
        self.control_bytes = 0;
        actions.read_on();
        if self.connection.has_begun() {
            self.proceed(&mut Call { proxy, actions });
        }
    }

    pub(crate) fn on_bytes(
        &mut self,
        proxy: &mut ProxyLoop,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        if self.is_over {
            return input.len();
        }
        self.received = proxy.now.at;
        if self.asked.take().is_some() {
            // It lives.
            proxy.connections.get_mut(self.upstream).streams().is_asked = false;
            self.look_at = proxy.now.at;
        }
        let mut scratch = std::mem::take(&mut proxy.scratch);
        let mut call = Call { proxy, actions };
        let used = self.read(&mut call, &mut scratch, input);
        call.proxy.scratch = scratch;
        if !self.is_over && self.connection.has_begun() {
            self.proceed(&mut call);
        }
        used
    }

    pub(crate) fn on_end(&mut self, proxy: &mut ProxyLoop, actions: &mut Actions<'_>) {
        if self.is_idle(proxy) {
            proxy.proxied.count(ProxyCounter::IdleClosed);
            return actions.close();
        }
        // `closed` tells the rest.
        actions.abort();
    }

    pub(crate) fn on_deadline(&mut self, proxy: &mut ProxyLoop, actions: &mut Actions<'_>) {
        if !self.connection.has_begun() {
            self.fault.get_or_insert(Fault::ConnectTimeout);
            return actions.abort();
        }
        let now = proxy.now.at;
        let is_dead = self.asked.is_some_and(|asked| asked + proxy.limits.connect_timeout <= now);
        if is_dead {
            let backend = proxy.connections.get(self.upstream).backend;
            proxy.report_http2(backend, "nothing comes by a connection any more, which is closed");
            return actions.abort();
        }
        let streams = proxy.connections.get_mut(self.upstream).streams();
        let stands_max = proxy.limits.connect_timeout;
        if streams.stands_since.is_some_and(|since| since + stands_max <= now) {
            // What was not sent goes elsewhere.
            proxy.close_to_others(self.upstream);
            let unsent = proxy.connections.get_mut(self.upstream).streams().ready.clone();
            for at in unsent {
                if self.is_of(proxy, at, 0) {
                    proxy.move_on(at);
                }
            }
        }
        // One may have joined it in this turn.
        let idle_since = self.idle_since.filter(|_| self.is_idle(proxy));
        let mut call = Call { proxy, actions };
        let idle_max = call.proxy.limits.upstream_idle_timeout;
        if idle_since.is_some_and(|since| since + idle_max <= now) {
            call.proxy.proxied.count(ProxyCounter::IdleDropped);
            return self.say_goodbye(&mut call);
        }
        if self.look_at <= now {
            self.look(&mut call);
        }
        self.proceed(&mut call);
    }

    pub(crate) fn on_shutdown(&mut self, proxy: &mut ProxyLoop, actions: &mut Actions<'_>) {
        self.is_draining = true;
        if self.connection.has_begun() {
            self.settle(&mut Call { proxy, actions });
        }
    }

    /// Whether it has no request.
    fn is_idle(&self, proxy: &mut ProxyLoop) -> bool {
        proxy.connections.get_mut(self.upstream).streams().carried == 0
    }

    /// The exchange whose stream this is, if it is still that.
    fn exchange_of(&mut self, proxy: &ProxyLoop, stream: u32) -> Option<ExchangeId> {
        let at = self.connection.data_mut(stream)?.at?;
        self.is_of(proxy, at, stream).then_some(at)
    }

    /// Whether the exchange still has this stream. Its number may be that of another request by now, which has another one.
    fn is_of(&self, proxy: &ProxyLoop, at: ExchangeId, stream: u32) -> bool {
        let exchange = proxy.exchanges.get(at);
        exchange.upstream == Some(self.upstream) && exchange.stream == stream
    }

    /// What every call ends with: requests leave as far as they can, and the next deadline is set.
    fn proceed(&mut self, call: &mut Call<'_, '_>) {
        self.drop_streams(call);
        self.take_up(call);
        self.send_bodies(call);
        self.settle(call);
    }
}

/// Answers.
impl Http2Upstream {
    fn read(&mut self, call: &mut Call<'_, '_>, scratch: &mut Scratch, input: &[u8]) -> usize {
        if !self.connection.has_begun() && input.starts_with(b"HTTP/") {
            return self.fail(
                call,
                "it answers by HTTP/1; expected protocol \"http/1.1\" for it",
                None,
                input,
            );
        }
        let is_waiting = call.actions.is_output_waiting();
        let limits = call.proxy.answer_limits;
        let now_ms = call.now_ms();
        let mut used = 0;
        while used < input.len() && !self.is_over {
            let sent_before = call.actions.len();
            let connection = &mut self.connection;
            let read = call.send(|out| {
                let read = connection.read(&input[used..], scratch, out, &limits, now_ms);
                read.inspect_err(|fault| connection.fail(out, fault))
            });
            let written = call.actions.len() - sent_before;
            match read {
                Err(fault) => {
                    return self.fail(call, &fault.to_string(), Some(fault.code), input);
                }
                Ok(step) => {
                    used += step.used;
                    let Some(event) = step.event else { break };
                    if matches!(event, Event::NoRoom) {
                        call.actions.notify_when_sent();
                        break;
                    }
                    self.on_event(call, event);
                }
            }
            if is_waiting {
                self.control_bytes += written;
                if self.control_bytes > CONTROL_BYTES_MAX {
                    call.actions.read_in_turn();
                    call.actions.notify_when_sent();
                    break;
                }
            }
        }
        used
    }

    fn on_event(&mut self, call: &mut Call<'_, '_>, event: Event<'_, Carried>) {
        match event {
            Event::Response { stream, response, never_indexed, ends } => {
                if let Some(at) = self.exchange_of(call.proxy, stream) {
                    call.proxy.mark_answer(at, response.fields, never_indexed);
                    self.on_head(call, stream, at, &response, ends);
                }
            }
            Event::Data { stream, data, ends } => {
                let Some(at) = self.exchange_of(call.proxy, stream) else { return };
                call.proxy.answer_data(at, call.actions, data, ends);
                self.answer_moved(call, stream, at, ends);
            }
            Event::Trailers { stream, fields, never_indexed } => {
                let Some(at) = self.exchange_of(call.proxy, stream) else { return };
                call.proxy.mark_answer(at, fields, never_indexed);
                call.proxy.answer_trailers(at, fields);
                self.answer_moved(call, stream, at, true);
            }
            Event::Reset { stream, code, data } => {
                call.count_reset(code, false);
                if let Some(at) = data.at.filter(|at| self.is_of(call.proxy, *at, stream)) {
                    self.was_reset(call, at, code);
                }
            }
            Event::Malformed { stream, code, rejection, data, .. } => {
                call.count_reset(code, true);
                let backend = call.proxy.connections.get(self.upstream).backend;
                call.proxy
                    .report_http2(backend, &format!("{} ({})", rejection.reason, rejection.rfc));
                let at = data.and_then(|data| data.at);
                if let Some(at) = at.filter(|at| self.is_of(call.proxy, *at, stream)) {
                    self.give_up(call, at, Fault::BadAnswer);
                }
            }
            Event::GoneAway { last, code } => self.gone_away(call, last, code),
            Event::WindowOpened => self.begin(call),
            Event::PingAnswered { .. } | Event::TooMany { .. } => {}
            Event::NoRoom => unreachable!("nothing more is read then"),
            Event::Request { .. } | Event::Refused { .. } => {
                unreachable!("a server asks for nothing")
            }
        }
    }

    fn on_head(
        &mut self,
        call: &mut Call<'_, '_>,
        stream: u32,
        at: ExchangeId,
        response: &Response<'_>,
        ends: bool,
    ) {
        let Call { proxy, actions } = call;
        // HTTP/2 has no phrases, which clients of HTTP/1.1 show to people.
        let reason = response.facts.status.reason().as_bytes();
        let response = &Response { reason, ..*response };
        let exchange = proxy.exchange(at);
        let (asks, is_2xx) =
            (exchange.wants_upgrade, matches!(response.facts.status.code(), 200..=299));
        let taken: Result<(), Cow<'static, str>> = if response.facts.is_interim() {
            proxy.interim(at, actions, response)
        } else if asks && is_2xx {
            proxy.upgraded_by_stream(at, actions, response, ends)
        } else {
            proxy.answer_head_of_stream(at, response, ends)
        };
        if let Err(why) = taken {
            let backend = proxy.connections.get(self.upstream).backend;
            proxy.report_http2(backend, &why);
            return self.fail_stream(call, stream, at, Fault::BadAnswer, ErrorCode::PROTOCOL_ERROR);
        }
        if response.facts.is_interim() {
            return self.note_deadline(call.proxy, at);
        }
        if call.proxy.exchange(at).fault.is_some() {
            return self.leave_answer(call, stream, at, ends);
        }
        if asks && !is_2xx {
            // There is no WebSocket, and nothing else follows.
            call.send(|out| self.connection.send_data(out, stream, &[], true));
        }
        if !ends || (asks && is_2xx) {
            call.proxy.answer_grew(at, call.actions);
        }
        self.answer_moved(call, stream, at, ends);
    }

    /// A page takes the place of the answer: the client has it at once, and the backend is to send nothing more of the other one.
    #[cold]
    fn leave_answer(&mut self, call: &mut Call<'_, '_>, stream: u32, at: ExchangeId, ends: bool) {
        if ends {
            return self.answer_moved(call, stream, at, true);
        }
        self.reset(call, stream, ErrorCode::CANCEL);
        call.proxy.answer_end(at, call.actions);
        self.resets = self.resets.saturating_sub(1);
        self.note_limit(call);
    }

    /// More of an answer is there, or all of it.
    fn answer_moved(&mut self, call: &mut Call<'_, '_>, stream: u32, at: ExchangeId, ends: bool) {
        if !ends {
            self.note_deadline(call.proxy, at);
            return self.release(call, stream, at);
        }
        if call.proxy.exchange(at).is_tunnel() {
            // The client may continue; its bytes are passed on as long as the backend takes them.
            self.note_deadline(call.proxy, at);
            return self.leave_done_tunnel(call, stream, at);
        }
        call.proxy.answer_end(at, call.actions);
        self.resets = self.resets.saturating_sub(1);
        self.note_limit(call);
        if self.connection.take_done(stream).is_none() {
            // Nobody wants the rest of its request.
            self.reset(call, stream, ErrorCode::CANCEL);
        }
    }

    /// A tunnel that both sides have ended is no more.
    fn leave_done_tunnel(&mut self, call: &mut Call<'_, '_>, stream: u32, at: ExchangeId) {
        if self.connection.take_done(stream).is_some() {
            self.resets = self.resets.saturating_sub(1);
            call.proxy.leave_tunnel(at);
            call.proxy.wake_asker(at, call.actions);
        }
    }

    /// Lets the backend send as much of an answer as its client has taken.
    fn release(&mut self, call: &mut Call<'_, '_>, stream: u32, at: ExchangeId) {
        let more = call.proxy.answer_gone(at);
        if more > 0 {
            call.send(|out| self.connection.release(out, stream, more as usize));
        }
    }

    /// The backend has given up a stream.
    fn was_reset(&mut self, call: &mut Call<'_, '_>, at: ExchangeId, code: ErrorCode) {
        let fault = match code {
            ErrorCode::REFUSED_STREAM if !call.proxy.exchange(at).has_answer() => Fault::Refused,
            _ => Fault::Reset,
        };
        // Others say something of a connection, which is not that of the client.
        let passes_on = matches!(
            code,
            ErrorCode::CANCEL | ErrorCode::INTERNAL_ERROR | ErrorCode::ENHANCE_YOUR_CALM
        );
        call.proxy.exchange(at).reset_code = Some(code).filter(|_| passes_on);
        if fault == Fault::Refused {
            // It takes no more than that for now: another try goes elsewhere, where there is something else.
            let streams = call.proxy.connections.get_mut(self.upstream).streams();
            streams.streams_max = streams.streams_max.min(streams.carried.saturating_sub(1)).max(1);
        }
        self.give_up(call, at, fault);
    }

    /// So many requests it may have.
    fn note_limit(&mut self, call: &mut Call<'_, '_>) {
        let peer_max = self.connection.peer_streams_max();
        let connections = &mut call.proxy.connections;
        let upstream = connections.get_mut(self.upstream);
        upstream.streams().streams_max = STREAMS_MAX.min(peer_max);
        let backend = upstream.backend;
        connections.streams_max[backend.place()] = peer_max;
    }

    /// The backend takes no stream above this one.
    #[cold]
    fn gone_away(&mut self, call: &mut Call<'_, '_>, last: u32, code: ErrorCode) {
        call.proxy.proxied.streams().goaways_received[code.index()].add(1);
        call.proxy.close_to_others(self.upstream);
        if code != ErrorCode::NO_ERROR {
            let backend = call.proxy.connections.get(self.upstream).backend;
            if self.begun == 0 {
                call.proxy.backend_failed(backend);
            }
            call.proxy.report_http2(backend, &format!("it ends a connection: {code}"));
        }
        let above = self.connection.streams().filter(|(stream, _)| *stream > last);
        let above: Vec<u32> = above.map(|(stream, _)| stream).collect();
        for stream in above {
            let at = self.connection.forget(stream).and_then(|carried| carried.at);
            if let Some(at) = at.filter(|at| self.is_of(call.proxy, *at, stream)) {
                self.give_up(call, at, Fault::Refused);
            }
        }
    }

    /// Its SETTINGS are there, for the first time or anew.
    fn begin(&mut self, call: &mut Call<'_, '_>) {
        self.note_limit(call);
        let upstream = call.proxy.connections.get_mut(self.upstream);
        if upstream.id.replace(call.actions.id()).is_some() {
            return;
        }
        // That of the connect.
        call.actions.set_deadline(Moment::NEVER);
    }

    /// The backend has broken the rules of the connection, which is over.
    #[cold]
    fn fail(
        &mut self,
        call: &mut Call<'_, '_>,
        why: &str,
        code: Option<ErrorCode>,
        input: &[u8],
    ) -> usize {
        let fault = if self.connection.has_begun() { Fault::BadAnswer } else { Fault::NoHttp2 };
        self.fault = Some(fault);
        let backend = call.proxy.connections.get(self.upstream).backend;
        call.proxy.report_http2(backend, why);
        call.proxy.close_to_others(self.upstream);
        self.is_over = true;
        match code {
            Some(code) if !call.actions.is_output_waiting() => {
                call.proxy.proxied.streams().goaways_sent[code.index()].add(1);
                call.actions.close();
            }
            _ => call.actions.abort(),
        }
        input.len()
    }
}

/// Requests.
impl Http2Upstream {
    /// Resets streams whose requests were taken away.
    fn drop_streams(&mut self, call: &mut Call<'_, '_>) {
        let upstream = call.proxy.connections.get_mut(self.upstream);
        if upstream.streams().dropped.is_empty() {
            return;
        }
        if call.actions.is_output_waiting() {
            // A backend that reads nothing still works on them.
            return call.actions.notify_when_sent();
        }
        for stream in std::mem::take(&mut upstream.streams().dropped) {
            self.reset(call, stream, ErrorCode::CANCEL);
            call.proxy.place_is_free(self.upstream);
        }
    }

    fn reset(&mut self, call: &mut Call<'_, '_>, stream: u32, code: ErrorCode) {
        if call.send(|out| self.connection.reset(out, stream, code)).is_some() {
            call.count_reset(code, true);
            self.resets += 1;
            if self.resets > RESETS_MAX {
                // Before its backend takes that for an attack, and ends it with all that the others have asked.
                call.proxy.close_to_others(self.upstream);
            }
        }
    }

    /// Looks at the requests that something happened to, and begins those that joined it: these last, as they may fill the
    /// output, and an update of a window has to fit whole.
    fn take_up(&mut self, call: &mut Call<'_, '_>) {
        let mut looked_at = std::mem::take(&mut self.looked_at);
        std::mem::swap(
            &mut looked_at,
            &mut call.proxy.connections.get_mut(self.upstream).streams().ready,
        );
        for at in looked_at.iter().copied() {
            let exchange = call.proxy.exchange(at);
            let is_sound = exchange.upstream == Some(self.upstream) && exchange.fault.is_none();
            let stream = exchange.stream;
            if is_sound && stream != 0 && std::mem::take(&mut exchange.is_ready) {
                self.request_moved(call, stream, at);
            }
        }
        let mut left = 0;
        for place in 0..looked_at.len() {
            let at = looked_at[place];
            let exchange = call.proxy.exchange(at);
            if exchange.upstream != Some(self.upstream) || !exchange.is_ready {
                continue;
            }
            if exchange.stream == 0 && exchange.fault.is_none() && !self.fits(call, at) {
                looked_at[left] = at;
                left += 1;
                continue;
            }
            let exchange = call.proxy.exchange(at);
            exchange.is_ready = false;
            if exchange.stream == 0 && exchange.fault.is_none() {
                self.ask(call, at);
            }
        }
        looked_at.truncate(left);
        if left > 0 {
            call.actions.notify_when_sent();
            let ready = &mut call.proxy.connections.get_mut(self.upstream).streams().ready;
            ready.splice(0..0, looked_at.drain(..));
        }
        looked_at.clear();
        self.looked_at = looked_at;
    }

    /// Whether the head of a request can leave now.
    fn fits(&self, call: &mut Call<'_, '_>, at: ExchangeId) -> bool {
        let needed = match call.proxy.exchange(at).request.waits() {
            Waits::Head(room) => room,
            _ => 0,
        };
        !call.actions.is_output_waiting() && call.actions.room() >= needed + CONTROL_ROOM_BYTES
    }

    /// Begins the stream of a request.
    fn ask(&mut self, call: &mut Call<'_, '_>, at: ExchangeId) {
        let is_websocket = call.proxy.exchange(at).wants_upgrade;
        if is_websocket && !self.connection.takes_protocols() {
            let backend = call.proxy.connections.get(self.upstream).backend;
            call.proxy.report_http2(backend, NO_WEBSOCKET);
            return self.give_up(call, at, Fault::NoWebSocket);
        }
        if !self.connection.can_ask() {
            if self.connection.peer_streams_max() == 0 || self.begun == 0 {
                // It has taken nothing, and another connection may be like it: that is a try.
                call.proxy.close_to_others(self.upstream);
                return self.give_up(call, at, Fault::Refused);
            }
            let len = u32::try_from(self.connection.len()).unwrap_or(u32::MAX);
            let streams = call.proxy.connections.get_mut(self.upstream).streams();
            streams.streams_max = streams.streams_max.min(len);
            return call.proxy.move_on(at);
        }
        let is_encrypted = call.proxy.connections.get(self.upstream).tls.is_some();
        let scheme = if is_encrypted { "https" } else { "http" };
        let now = call.now();
        let exchange = call.proxy.exchange(at);
        exchange.times.connected.get_or_insert(now);
        exchange.reach(Stage::Requesting);
        let connection = &mut self.connection;
        let mut begun = None;
        call.proxy.request_leaves_by(at, call.actions, |request, actions| {
            let carried = Carried { at: Some(at), taking: None };
            let how = AskedBy { scheme, is_websocket };
            let before = actions.len();
            begun = write_frames(actions, |out| request.ask(connection, out, how, carried));
            (actions.len() - before) as u64
        });
        let stream = begun.expect("it takes another one");
        self.begun += 1;
        let backend = call.proxy.connections.get(self.upstream).backend;
        call.proxy.proxied.backends()[backend.place()].streams_begun.add(1);
        call.proxy.exchange(at).stream = stream;
        self.note_deadline(call.proxy, at);
        self.note_waits(call, stream, at);
    }

    /// There is more of a request, or its client has taken some of the answer.
    fn request_moved(&mut self, call: &mut Call<'_, '_>, stream: u32, at: ExchangeId) {
        self.note_waits(call, stream, at);
        if call.proxy.exchange(at).has_answer() {
            self.release(call, stream, at);
            call.proxy.set_upstream_deadline(at, call.actions);
            self.note_deadline(call.proxy, at);
        }
    }

    /// Sees what of a request waits.
    fn note_waits(&mut self, call: &mut Call<'_, '_>, stream: u32, at: ExchangeId) {
        let waits = call.proxy.exchange(at).request.waits();
        let sending = match waits {
            Waits::Nothing => Sending::Nothing,
            Waits::Body => Sending::Data,
            // No window is needed for these.
            Waits::Head(_) | Waits::End(_) => Sending::End,
        };
        self.connection.set_sending(stream, sending);
        let now = call.now();
        let Some(carried) = self.connection.data_mut(stream) else { return };
        match waits {
            Waits::Body if carried.taking.is_none() => {
                carried.taking = Some(Taking { pace: BodyClock::started(now), sent_bytes: 0 });
                self.look_at = self.look_at.min(now + call.proxy.limits.clients.write_timeout);
            }
            Waits::Body => {}
            _ => carried.taking = None,
        }
    }

    /// Sends what windows and room take of the bodies of requests, a frame of each stream in turn.
    fn send_bodies(&mut self, call: &mut Call<'_, '_>) {
        if call.actions.is_output_waiting() {
            // What waits for it then has not asked for it.
            return call.actions.notify_when_sent();
        }
        while let Some(stream) = self.connection.next_sender() {
            let Some(at) = self.exchange_of(call.proxy, stream) else {
                self.connection.set_sending(stream, Sending::Nothing);
                continue;
            };
            let room_min = match call.proxy.exchange(at).request.waits() {
                Waits::Head(room) | Waits::End(room) => room,
                Waits::Body | Waits::Nothing => PIECE_BYTES_MIN,
            };
            if call.actions.room().saturating_sub(2 * CONTROL_ROOM_BYTES) < room_min {
                return call.actions.notify_when_sent();
            }
            let connection = &mut self.connection;
            let mut sent_bytes = 0;
            call.proxy.request_leaves_by(at, call.actions, |request, actions| {
                let send =
                    |out: &mut Output<'_>| request.send_frames(connection, stream, out, true);
                sent_bytes = write_frames(actions, send);
                sent_bytes
            });
            let now = call.now();
            if let Some(Carried { taking: Some(taking), .. }) = self.connection.data_mut(stream) {
                taking.pace.on_bytes(now);
                taking.sent_bytes += sent_bytes;
            }
            self.note_deadline(call.proxy, at);
            self.note_waits(call, stream, at);
            if call.proxy.exchange(at).is_tunnel() {
                self.leave_done_tunnel(call, stream, at);
            }
        }
        let stalls = self.connection.take_stalls();
        call.proxy.proxied.add(ProxyCounter::Http2WindowStalls, stalls.into());
    }

    /// Gives up a stream for what its backend did, or did not do.
    fn fail_stream(
        &mut self,
        call: &mut Call<'_, '_>,
        stream: u32,
        at: ExchangeId,
        fault: Fault,
        code: ErrorCode,
    ) {
        self.reset(call, stream, code);
        self.give_up(call, at, fault);
    }

    /// A request has no stream here any more, by this fault.
    fn give_up(&mut self, call: &mut Call<'_, '_>, at: ExchangeId, fault: Fault) {
        if call.proxy.exchange(at).is_tunnel() {
            // It has come to its end.
            call.proxy.leave_tunnel(at);
            return call.proxy.wake_asker(at, call.actions);
        }
        call.proxy.detach(at);
        if call.proxy.fault(at, fault) != Next::Retry {
            call.proxy.wake_asker(at, call.actions);
        }
    }
}

/// Times, and the end.
impl Http2Upstream {
    fn note_deadline(&mut self, proxy: &ProxyLoop, at: ExchangeId) {
        let exchange = proxy.exchanges.get(at);
        let deadline = if exchange.has_answer() {
            exchange.upstream_deadline
        } else {
            half_before(exchange.upstream_deadline, &proxy.limits)
        };
        self.look_at = self.look_at.min(deadline);
    }

    /// By when the backend has to have opened a window for a stream that waits for one. That of the connection is for all that
    /// wait.
    fn window_deadline(&self, stream: u32, taking: Taking, limits: &ProxyLimits) -> Moment {
        if self.connection.data_room(stream) > 0 {
            return Moment::NEVER;
        }
        let share = if self.connection.is_window_closed(stream) {
            1
        } else {
            self.connection.len().max(1) as u64
        };
        let timeout = limits.clients.write_timeout;
        let rate = limits.clients.read_rate_min_bytes;
        if rate == 0 {
            return taking.pace.last_byte() + timeout;
        }
        let time = BodyTime { timeout, rate_min_bytes: rate.div_ceil(share) };
        taking.pace.deadline(taking.sent_bytes, time)
    }

    /// Looks which streams are over their time, and when that may be so next.
    fn look(&mut self, call: &mut Call<'_, '_>) {
        let now = call.now();
        let limits = &call.proxy.limits;
        let mut late = Vec::new();
        let mut next = Moment::NEVER;
        // What came just behind a request, such as an update of a window, does not show that it is looked at.
        let silent_at = self.received + limits.first_byte_timeout / 2;
        let mut is_silent = false;
        for (stream, carried) in self.connection.streams() {
            let Some(at) = carried.at.filter(|at| self.is_of(call.proxy, *at, stream)) else {
                continue;
            };
            let of_window = (carried.taking)
                .map_or(Moment::NEVER, |taking| self.window_deadline(stream, taking, limits));
            // Its window may close until then.
            let again =
                (carried.taking).map_or(Moment::NEVER, |_| now + limits.clients.write_timeout);
            let exchange = call.proxy.exchanges.get(at);
            let of_exchange = exchange.upstream_deadline;
            if self.asked.is_none() && !exchange.has_answer() {
                let ask_at = silent_at.max(half_before(of_exchange, limits));
                is_silent |= ask_at <= now;
                next = next.min(ask_at);
            }
            match of_window.min(of_exchange) {
                end if end <= now => late.push((stream, at, of_window <= now)),
                end => next = next.min(end).min(again),
            }
        }
        self.look_at = next;
        is_silent |= !late.is_empty() && silent_at <= now;
        for (stream, at, is_of_window) in late {
            if is_of_window {
                call.proxy.proxied.count(ProxyCounter::Http2WindowTimeouts);
            }
            let fault = if call.proxy.exchange(at).has_answer() {
                Fault::BodyTimeout
            } else {
                Fault::FirstByteTimeout
            };
            self.fail_stream(call, stream, at, fault, ErrorCode::CANCEL);
        }
        if is_silent && self.asked.is_none() {
            // The way to it may be cut: no other request is to find out.
            call.proxy.connections.get_mut(self.upstream).streams().is_asked = true;
            self.asked = Some(now);
            call.proxy.proxied.count(ProxyCounter::Http2Pings);
            call.send(|out| self.connection.ping(out, ALIVE_PING));
        }
    }

    /// What follows a call: the end, or the next deadline.
    fn settle(&mut self, call: &mut Call<'_, '_>) {
        self.count_ended(call.proxy);
        let now = call.now();
        let is_waiting = call.actions.is_output_waiting();
        let streams = call.proxy.connections.get_mut(self.upstream).streams();
        streams.stands_since = is_waiting.then(|| streams.stands_since.unwrap_or(now));
        let stands_since = streams.stands_since.filter(|_| !streams.ready.is_empty());
        if self.is_over || call.actions.is_ending() {
            return;
        }
        if self.connection.is_used_up() {
            call.proxy.close_to_others(self.upstream);
        }
        let mut deadline = self.look_at;
        if self.is_idle(call.proxy) {
            self.look_at = Moment::NEVER;
            if self.is_draining || !call.proxy.park_multiplexed(self.upstream) {
                return self.say_goodbye(call);
            }
            let since = *self.idle_since.get_or_insert(call.now());
            deadline = since + call.proxy.limits.upstream_idle_timeout;
        } else {
            self.idle_since = None;
        }
        for since in [self.asked, stands_since].into_iter().flatten() {
            deadline = deadline.min(since + call.proxy.limits.connect_timeout);
        }
        call.actions.set_deadline(deadline);
    }

    /// Counts the streams that have ended.
    fn count_ended(&mut self, proxy: &ProxyLoop) {
        let ended = self.begun - self.connection.len() as u64;
        let more = ended - std::mem::replace(&mut self.ended, ended);
        if more > 0 {
            let backend = proxy.connections.get(self.upstream).backend;
            proxy.proxied.backends()[backend.place()].streams_ended.add(more);
        }
    }

    /// Ends the connection, which has no request.
    fn say_goodbye(&mut self, call: &mut Call<'_, '_>) {
        call.proxy.close_to_others(self.upstream);
        call.proxy.proxied.streams().goaways_sent[ErrorCode::NO_ERROR.index()].add(1);
        call.send(|out| self.connection.end(out));
        self.is_over = true;
        call.actions.close();
    }
}

/// When half of the first byte timeout is left until this deadline of a stream that waits for an answer.
fn half_before(deadline: Moment, limits: &ProxyLimits) -> Moment {
    let half = (limits.first_byte_timeout / 2).as_nanos() as u64;
    match deadline {
        Moment::NEVER => Moment::NEVER,
        deadline => Moment::from_nanos(deadline.as_nanos().saturating_sub(half)),
    }
}

/// What is reported of a backend in TLS that speaks something else.
pub(in crate::exchange) const NOT_AGREED: &str = "it did not choose h2 by ALPN; expected protocol \"http/1.1\" for it, or a backend that speaks HTTP/2";

/// What is reported of a backend that a client wants a WebSocket of.
const NO_WEBSOCKET: &str = "it takes no WebSocket on a stream, as its SETTINGS do not say ENABLE_CONNECT_PROTOCOL (RFC 8441 3); expected protocol \"http/1.1\" for it, or a backend that does";

/// Whether the backend ended the handshake for want of a protocol that both sides speak.
pub(in crate::exchange) fn refuses_http2(error: Option<&pollux_tls::Error>) -> bool {
    let refusal = pollux_tls::AlertDescription::NoApplicationProtocol;
    matches!(error, Some(pollux_tls::Error::AlertReceived(alert)) if *alert == refusal)
}
