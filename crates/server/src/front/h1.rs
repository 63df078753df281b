//! One HTTP connection of a client, plain or in TLS: requests in, answers out, deadlines kept.
//!
//! ```text
//!            first byte            whole head, no body
//!   Fresh ──────────────► Head ◄──────────────────────────┐
//!     │                    │ ▲ first byte                  │
//!     │ whole head         │ └──────────────── Idle ◄──────┤ all sent
//!     ▼                    ▼                    │          │
//!   [answer] ◄──────── [whole head] ◄───────────┘          │
//!     │ │ └── has a body: Body ── whole body ──► [answer]   │
//!     │ ├──── its password is looked at: Checking ─► [whole head]
//!     │ ├──── output beyond the room: Unsent, File ───────────┤
//!     │ └──── answered by a backend: Later ─────────────────┤
//!     └─────────────────────────────────────────────────────┘
//! ```
//!
//! What answers is the handler's matter: it does so at once, or has an exchange with a backend do it later. A request
//! that comes before the answer to the one before it is gone waits unread then. `later` has what a client and
//! its exchange do with each other, `routed` what becomes of a request where there are sites.
//!
//! | deadline | in | what happens |
//! |---|---|---|
//! | header timeout, from the accept | a handshake of TLS, Fresh | closed silently |
//! | header timeout, from the first byte (Fresh: from the accept) | Head | 408, closed |
//! | body timeout and rate (`body_clock`) | Body | 408, closed; cut when the answer had begun |
//! | body timeout and rate | Later, while the request's body comes | 408, or cut |
//! | thirty seconds | Checking | 503 |
//! | queue timeout | Later | 503 |
//! | request timeout | Later | 504, or cut |
//! | drain timeout | Later, but for tunnels, once the loop drains | cut |
//! | idle timeout | Idle | closed silently |
//! | write timeout, rate | all | kept by the loop |
//!
//! Each request has one line in the log: once its answer is whole in the output of the connection, or has left, or was
//! cut; with what was sent then.
//!
//! After a refusal nothing that follows is parsed. The last answer of a connection that still
//! has input is followed by a lingering close.

mod later;
mod password_check;
mod routed;

use std::sync::Arc;
use std::time::{Duration, Instant};

use pollux_engine::{Actions, CloseCause, Moment, Now, Session};
use pollux_http::h2::PREFACE;
use pollux_http::{CONTINUE, LimitName, Method, Parsed, ProxyHeader, Rejection, Request, Status};
use pollux_tls::{
    ClientShown, Error, HTTP_2, NoCertificate, Opening, PlaintextSession, ServerConfig, ShownId,
};
use rustix::io::Errno;

use crate::counters::ServerCounter;
use crate::exchange::proxy_loop::ProxyLoop;
use crate::front::h1::password_check::Checking;
use crate::front::h2::Http2Session;
use crate::front::peer::{Client, Unbooked};
use crate::front::request::{
    Body, Progress, body_time, is_blank, is_foreign, is_head, is_tls, refused_head,
};
use crate::front::sites::Occasion;
use crate::front::state::LoopState;
use crate::handlers::Handler;
use crate::handlers::answer;
use crate::handlers::answer::{Answered, Context, Left, Persistence, Unsent};
use crate::handlers::respond::respond;
use crate::ids::{ExchangeId, FrontId, RestingId};
use crate::log::Event;
use crate::record::{Books, Cut, End, Outcome};
use crate::refusal::Refusal;

/// How long a connection without a request waits for one when the loop drains: one that was on its way has arrived by
/// then.
const DRAIN_GRACE: Duration = Duration::from_secs(1);

/// The server's side of one connection.
#[derive(Debug)]
pub struct HttpSession {
    phase: Phase,
    /// Who the client is, once that is needed.
    client: Client,
    /// The place of the front end that it came by: a proxy may have several.
    front: FrontId,
    /// The certificate that it has seen, where there are several by name.
    shown: Option<ShownId>,
    /// The answer that is under way or was sent is the last one.
    is_last: bool,
    is_draining: bool,
    /// Of the answer that is under way.
    status: Status,
}

/// How the body of a request is read that a handler answers.
#[derive(Clone, Copy)]
struct Reads {
    /// Nothing of it has come.
    is_still_to_come: bool,
    /// It is the body of the answer.
    echoes: bool,
    limits: pollux_http::Limits,
}

#[derive(Debug)]
enum Phase {
    /// Accepted; nothing has arrived.
    Fresh,
    /// Between two requests.
    Idle,
    /// Part of a head has arrived.
    Head,
    /// A request body is being read.
    Body(Box<Body>),
    /// Part of an answer waits for room.
    Unsent(Box<Unsent>),
    /// A file leaves.
    File,
    /// The request has an exchange, of this number, which answers it.
    Later(ExchangeId),
    /// The password of the request is looked at elsewhere.
    Checking(Box<Checking>),
    /// It is a connection of HTTP/2.
    Http2(Box<Http2Session>),
    /// The same, which is idle: what is left of it is at this place.
    Resting(RestingId),
}

impl Phase {
    /// The streams of a connection of HTTP/2, which rests no more then.
    fn streams(&mut self, state: &mut LoopState) -> Option<&mut Http2Session> {
        if let Self::Resting(at) = self {
            *self = Self::Http2(Box::new(Http2Session::woken(state, *at)));
        }
        match self {
            Self::Http2(streams) => Some(streams),
            _ => None,
        }
    }
}

impl Session for HttpSession {
    type Shared = LoopState;

    fn begin_turn(state: &mut LoopState, now: Now) {
        state.begin_turn(now);
    }

    fn end_turn(state: &mut LoopState) {
        state.end_turn();
    }

    fn release_memory(state: &mut LoopState) {
        state.streams.resting.release_memory();
    }

    fn awake(state: &LoopState) -> u32 {
        state.streams.resting.awake()
    }

    fn accepted(state: &mut LoopState, actions: &mut Actions<'_>) -> Self {
        Self::of_front(state, actions, FrontId::default())
    }

    fn on_bytes(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        if let Some(used) = self.take_between_heads(state, actions, input) {
            return used;
        }
        let mut used = 0;
        let room = actions.room();
        let mut stopwatch = state.is_timing.then(Instant::now);
        while used < input.len() && !self.is_last && !self.is_sending() {
            if actions.room() < state.room_bytes_min {
                actions.notify_when_sent();
                break;
            }
            if let Phase::Body(_) = self.phase {
                used += self.on_body(state, actions, &input[used..]);
                continue;
            }
            if matches!(state.handler, Handler::Proxy)
                && let Some(head_bytes) = self.ask_again(state, actions, &input[used..])
            {
                used += head_bytes;
                break;
            }
            match Request::parse(&input[used..], &state.head_limits) {
                Parsed::Complete(request, head_bytes) => {
                    let head = &input[used..used + head_bytes];
                    used += head_bytes;
                    self.on_request(state, actions, &request, head, used == input.len());
                    // The verdict depends on the bytes alone: a burst of equal heads is read once.
                    while self.takes_another(state, actions) && input[used..].starts_with(head) {
                        lap(&mut stopwatch, state);
                        used += head_bytes;
                        self.on_request(state, actions, &request, head, used == input.len());
                    }
                    lap(&mut stopwatch, state);
                }
                // A client that ends a body with an empty line too many has not begun to ask: the
                // deadline of the rest stays, unless an answer has just started one.
                Parsed::Incomplete if is_blank(&input[used..]) => match used {
                    0 => return 0,
                    _ => break,
                },
                Parsed::Incomplete => {
                    if matches!(self.phase, Phase::Idle) {
                        actions.set_deadline(state.now.at + state.limits.header_timeout);
                    }
                    self.phase = Phase::Head;
                    return used;
                }
                Parsed::Rejected(rejection) => {
                    used += self.reject(state, actions, &input[used..], rejection);
                }
            }
        }
        if let Phase::Later(at) = self.phase {
            return used + self.request_continues(state, actions, at, &input[used..]);
        }
        if let Phase::Body(body) = &mut self.phase
            && actions.room() < room
        {
            // While that waits the client is not read from.
            body.clock.set_standing(true, state.now.at);
            actions.notify_when_sent();
        }
        self.settle(state, actions, used == input.len());
        used
    }

    fn on_end(&mut self, state: &mut LoopState, actions: &mut Actions<'_>) {
        match &mut self.phase {
            Phase::Fresh | Phase::Idle => actions.close(),
            Phase::Head => {
                state.counters.add(ServerCounter::Incomplete, 1);
                actions.close();
            }
            Phase::Body(body) => {
                state.counters.add(ServerCounter::Incomplete, 1);
                if body.has_answer_begun() { actions.reset() } else { actions.close() }
            }
            // What was asked for is still sent to a peer that only stopped talking.
            Phase::Unsent(_) | Phase::File => self.is_last = true,
            Phase::Later(at) => {
                let at = *at;
                self.asker_ended(state, actions, at);
            }
            // What becomes of it is known only then; it is answered where all of it is there.
            Phase::Checking(checking) => {
                checking.has_ended = true;
                self.is_draining = true;
            }
            Phase::Http2(_) | Phase::Resting(_) => {
                if let Some(streams) = self.phase.streams(state) {
                    streams.on_end(state, actions, &mut self.client);
                }
            }
        }
    }

    fn on_readable(&mut self, state: &mut LoopState, actions: &mut Actions<'_>) {
        match self.phase {
            Phase::Later(at) => state.proxy().request_piped(at, actions),
            // It does not leave its input in the socket.
            _ => actions.take_input(),
        }
    }

    fn on_output_sent(&mut self, state: &mut LoopState, actions: &mut Actions<'_>) {
        let is_all_sent = match &mut self.phase {
            Phase::Unsent(unsent) => match unsent.send(actions) {
                Ok(is_all_sent) => is_all_sent,
                // Its length was announced: the client must not take what there is for all.
                Err(errno) => {
                    state.report_cut(errno);
                    let left_bytes = unsent.left_bytes();
                    self.phase = Phase::Idle;
                    self.sent(state, left_bytes, End::Cut(Cut::FileFailed));
                    self.is_last = true;
                    return actions.reset();
                }
            },
            Phase::File => true,
            Phase::Body(body) => {
                body.clock.set_standing(false, state.now.at);
                return actions.set_deadline(body.deadline());
            }
            Phase::Later(at) => {
                let at = *at;
                return self.answer_left(state, actions, at);
            }
            Phase::Http2(streams) => {
                return streams.on_output_sent(state, actions, &mut self.client);
            }
            Phase::Fresh | Phase::Idle | Phase::Head | Phase::Resting(_) | Phase::Checking(_) => {
                return;
            }
        };
        if !is_all_sent {
            return actions.notify_when_sent();
        }
        self.phase = Phase::Idle;
        self.sent(state, 0, End::Whole);
        // Whether input was left unused is not known here, so the careful end it is.
        self.settle(state, actions, false);
    }

    fn on_wake(&mut self, state: &mut LoopState, actions: &mut Actions<'_>) {
        match &mut self.phase {
            Phase::Later(at) => {
                let at = *at;
                self.exchange_moved(state, actions, at);
            }
            Phase::Checking(_) => self.check_moved(state, actions, false),
            Phase::Http2(streams) => streams.on_wake(state, actions, &mut self.client),
            _ => {}
        }
    }

    fn on_deadline(&mut self, state: &mut LoopState, actions: &mut Actions<'_>) {
        let count = |counter| state.counters.add(counter, 1);
        match &mut self.phase {
            Phase::Fresh => {
                count(ServerCounter::TimeoutsSilent);
                actions.close();
            }
            Phase::Idle => {
                count(ServerCounter::TimeoutsIdle);
                actions.close();
            }
            Phase::Head => {
                state.identify_unread();
                self.time_out(state, actions, Refusal::LateHead, &[]);
            }
            Phase::Body(body) if body.has_answer_begun() => {
                Refusal::LateBody.count(&state.counters);
                body.cut = Some(Cut::ClientTimeout);
                actions.reset();
            }
            Phase::Body(body) => {
                let head = std::mem::take(&mut body.head);
                let epoch = body.kept.restore(&state.current_id);
                state.under(epoch, |state| {
                    self.time_out(state, actions, Refusal::LateBody, &head);
                });
            }
            Phase::Unsent(_) | Phase::File => {}
            Phase::Checking(_) => self.check_moved(state, actions, true),
            Phase::Later(at) => {
                let at = *at;
                self.later_too_long(state, actions, at);
            }
            Phase::Http2(_) | Phase::Resting(_) => self.streams_due(state, actions),
        }
    }

    fn on_shutdown(&mut self, state: &mut LoopState, actions: &mut Actions<'_>) {
        self.is_draining = true;
        match &mut self.phase {
            Phase::Fresh | Phase::Idle => {
                let grace = state.now.at + DRAIN_GRACE;
                actions.set_deadline(actions.deadline().min(grace));
            }
            Phase::Unsent(_) | Phase::File => self.is_last = true,
            Phase::Head => {
                if let Some(proxy) = &state.proxy {
                    actions.set_deadline(actions.deadline().min(proxy.drain_end));
                }
            }
            Phase::Body(_) => {}
            Phase::Checking(checking) => actions.set_deadline(checking.end(state)),
            Phase::Later(at) => {
                let proxy = state.proxy();
                proxy.exchange(*at).is_last = true;
                proxy.set_asker_deadline(*at, actions);
            }
            Phase::Http2(_) | Phase::Resting(_) => {
                if let Some(streams) = self.phase.streams(state) {
                    streams.on_shutdown(state, actions, &mut self.client);
                }
            }
        }
    }

    fn output_lost(&mut self, bytes: u64) {
        if let Some(peer) = self.client.known_mut() {
            peer.lost_bytes = bytes;
        }
    }

    /// Books a request that did not come to its end.
    fn closed(mut self, state: &mut LoopState, cause: CloseCause) {
        self.client.leave(state.rates.as_deref());
        if let Phase::Later(at) = self.phase {
            return self.asker_closed(state, at, cause);
        }
        if cause == CloseCause::FileFailed {
            state.report_cut(Errno::IO);
        }
        let lost_bytes = self.client.known().map_or(0, |peer| peer.lost_bytes);
        let cut = Cut::of_close(cause);
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Body(body) => {
                let (status, body_bytes) = if body.has_answer_begun() {
                    (Some(Status::OK), body.received_bytes.saturating_sub(lost_bytes))
                } else {
                    (None, 0)
                };
                let outcome =
                    Outcome { status, body_bytes, end: End::Cut(body.cut.unwrap_or(cut)) };
                let epoch = body.kept.restore(&state.current_id);
                state.under(epoch, |state| {
                    self.client.book(state, Some(&body.head), outcome);
                });
            }
            Phase::Unsent(unsent) => {
                self.sent(state, unsent.left_bytes() + lost_bytes, End::Cut(cut));
            }
            Phase::File => self.sent(state, lost_bytes, End::Cut(cut)),
            Phase::Checking(checking) => {
                let outcome = Outcome { status: None, body_bytes: 0, end: End::Cut(cut) };
                let epoch = checking.kept.restore(&state.current_id);
                state.under(epoch, |state| {
                    self.client.book(state, Some(&checking.head), outcome);
                });
            }
            Phase::Http2(streams) => streams.closed(state, &self.client, cause),
            Phase::Resting(at) => Http2Session::woken(state, at).closed(state, &self.client, cause),
            Phase::Fresh | Phase::Idle | Phase::Head | Phase::Later(_) => {}
        }
    }
}

impl HttpSession {
    /// One that was accepted by the front end at this place.
    pub(crate) fn of_front(state: &LoopState, actions: &mut Actions<'_>, front: FrontId) -> Self {
        actions.set_deadline(actions.now().at + state.limits.header_timeout);
        Self {
            phase: Phase::Fresh,
            client: Client::default(),
            front,
            shown: None,
            is_last: false,
            is_draining: false,
            status: Status::OK,
        }
    }

    /// Counts the connection where its front end takes so many of each client; ends it where that is too many.
    pub(crate) fn enter(&mut self, state: &LoopState, actions: &mut Actions<'_>) {
        let proxy = state.proxy.as_deref();
        let most = proxy.and_then(|it| it.frontends.get(self.front).connections);
        if let (Some(most), Some(rates)) = (most, &state.rates)
            && !self.client.enter(rates, actions, most)
        {
            state.counters.add(ServerCounter::ClientsRefused, 1);
            actions.abort();
        }
    }

    /// Whose connection it is, where a proxy in front says so.
    pub(crate) fn belongs_to(&mut self, header: ProxyHeader) {
        if matches!(header, ProxyHeader::Of { .. }) {
            self.client = Client::of_header(header);
        }
    }

    /// Whether the first bytes of the connection are those of HTTP/2; how many were used then.
    #[inline]
    fn begin_streams(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> Option<usize> {
        let len = input.len().min(PREFACE.len());
        if input[..len] != PREFACE[..len] || !self.is_http2_possible(state) {
            return None;
        }
        if len < PREFACE.len() {
            return Some(0);
        }
        let mut streams = Box::new(Http2Session::new(state, self.front, None));
        streams.start(actions);
        if self.is_draining {
            streams.on_shutdown(state, actions, &mut self.client);
        }
        let used = streams.on_bytes(state, actions, &mut self.client, input);
        self.phase = Phase::Http2(streams);
        Some(used)
    }

    /// A deadline of a connection of HTTP/2 has come; one that is idle gives its memory back then.
    fn streams_due(&mut self, state: &mut LoopState, actions: &mut Actions<'_>) {
        let Some(streams) = self.phase.streams(state) else { return };
        let comes_to_rest = streams.on_deadline(state, actions, &mut self.client);
        if comes_to_rest
            && let Phase::Http2(streams) = std::mem::replace(&mut self.phase, Phase::Idle)
        {
            self.phase = Phase::Resting(streams.rest(state, actions));
        }
    }

    /// Whether what comes may be the preface of HTTP/2. With TLS both sides have agreed before.
    fn is_http2_possible(&self, state: &LoopState) -> bool {
        let is_first = matches!(self.phase, Phase::Fresh);
        is_first && state.streams.settings.is_some() && !self.is_secure(state)
    }

    /// Whether its clients speak TLS.
    fn is_secure(&self, state: &LoopState) -> bool {
        let secured = |proxy: &ProxyLoop| proxy.frontends.secured(self.front).is_some();
        state.tls.is_some() || state.proxy.as_deref().is_some_and(secured)
    }

    /// What comes while no head and no body of HTTP/1 is due here, given to what has it: an exchange, streams, or nobody yet.
    /// Returns how much of it was used, and nothing where heads and bodies are due.
    #[inline]
    fn take_between_heads(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> Option<usize> {
        match &mut self.phase {
            Phase::Later(at) => {
                let at = *at;
                Some(self.request_continues(state, actions, at, input))
            }
            // It waits unread.
            Phase::Checking(_) => Some(0),
            Phase::Http2(streams) => {
                Some(streams.on_bytes(state, actions, &mut self.client, input))
            }
            Phase::Resting(_) => {
                let streams = self.phase.streams(state).expect("it rests");
                Some(streams.on_bytes(state, actions, &mut self.client, input))
            }
            Phase::Fresh => self.begin_streams(state, actions, input),
            _ => None,
        }
    }

    /// Refuses what is not a request; returns how much of it is dropped with that.
    #[cold]
    fn reject(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        rest: &[u8],
        rejection: Rejection,
    ) -> usize {
        state.identify_unread();
        let head = refused_head(rest, &state.head_limits);
        if self.is_http2_possible(state) && is_foreign(rest) {
            self.drop_foreign(state, actions, rejection, head);
            return rest.len();
        }
        self.refuse(state, actions, rejection, head, is_head(rest), is_tls(rest));
        0
    }

    /// A wrong preface, or another protocol: no answer of HTTP/1 would be read (RFC 9113 3.4).
    #[cold]
    fn drop_foreign(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        rejection: Rejection,
        head: &[u8],
    ) {
        self.client.peer(actions);
        self.client.report_refusal(state, actions, rejection, false);
        let outcome = Outcome { status: None, body_bytes: 0, end: End::Cut(Cut::BadRequest) };
        self.client.book(state, Some(head), outcome);
        (self.phase, self.is_last) = (Phase::Idle, true);
    }

    fn is_sending(&self) -> bool {
        matches!(self.phase, Phase::Unsent(_) | Phase::File | Phase::Later(_) | Phase::Checking(_))
    }

    /// Whether a request that follows at once can be answered in this call.
    #[inline]
    fn takes_another(&self, state: &LoopState, actions: &Actions<'_>) -> bool {
        let is_between = matches!(self.phase, Phase::Idle) && !self.is_last;
        is_between && actions.room() >= state.room_bytes_min
    }

    #[inline]
    fn on_request(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        request: &Request<'_>,
        head: &[u8],
        is_body_still_to_come: bool,
    ) {
        state.counters.count_request(request.method);
        if matches!(state.handler, Handler::Proxy) {
            return self.ask(state, actions, request, head, is_body_still_to_come);
        }
        if request.target.is_https() && state.tls.is_none() {
            return self.refuse_https(state, actions, request, head);
        }
        if request.framing.has_body() {
            if state.handler.allows(request.method) {
                let reads = Reads {
                    is_still_to_come: is_body_still_to_come,
                    echoes: matches!(state.handler, Handler::Echo),
                    limits: state.head_limits,
                };
                self.begin_body(state, actions, request, head, reads);
            } else {
                // The body is left unread, so nothing can follow.
                self.answer(state, actions, request, head, true);
                actions.linger();
            }
            return;
        }
        self.answer(state, actions, request, head, !request.keep_alive);
    }

    /// Answers a request whose body, if it has one, is through.
    #[inline]
    fn answer(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        request: &Request<'_>,
        head: &[u8],
        wants_close: bool,
    ) {
        let is_last = wants_close || self.is_draining;
        let persistence = Persistence::for_client(request.version_minor, is_last);
        let asked = state.common.asked(request);
        let context = Context { persistence, is_head: request.method == Method::Head, asked };
        let (handler, parts) = state.handler_and_parts();
        let answered = respond(handler, &parts, actions, request, None, context);
        let answered = answered.expect("where backends answer, requests are passed on");
        self.answer_begun(state, actions, head, answered, is_last);
    }

    /// An answer was begun: it is booked once all of it was sent, and until then the session stays with it.
    #[inline]
    fn answer_begun(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        head: &[u8],
        answered: Answered,
        is_last: bool,
    ) {
        let is_whole = matches!(answered.left, Left::Nothing) && answered.refusal.is_none();
        if !is_whole || state.log.is_some() {
            return self.stay_with(state, actions, head, answered, is_last);
        }
        self.is_last = is_last;
        self.phase = Phase::Idle;
        let books = Books { counters: &state.counters, proxied: None, log: None };
        books.count_answer(Some(answered.status), answered.body_bytes);
    }

    /// The same of one that is logged, refuses the request, or has not been sent whole.
    #[cold]
    #[inline(never)]
    fn stay_with(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        head: &[u8],
        answered: Answered,
        is_last: bool,
    ) {
        let Answered { status, body_bytes, left, refusal } = answered;
        if state.log.is_some() {
            // The line has it.
            self.client.peer(actions);
        }
        self.is_last = is_last || matches!(left, Left::End);
        let unsent = match left {
            Left::Nothing | Left::End => {
                self.phase = Phase::Idle;
                let end = refusal.map_or(End::Whole, End::Refused);
                let outcome = Outcome { status: Some(status), body_bytes, end };
                return self.client.book(state, Some(head), outcome);
            }
            Left::Unsent(unsent) => Phase::Unsent(unsent),
            Left::File => Phase::File,
        };
        (self.phase, self.status) = (unsent, status);
        if let Some(peer) = self.client.known_mut().filter(|_| state.log.is_some()) {
            let kept = state.keep();
            peer.unbooked = Some(Box::new(Unbooked { head: head.into(), body_bytes, kept }));
        }
        // The loop judges how fast output leaves.
        actions.set_deadline(Moment::NEVER);
        actions.notify_when_sent();
    }

    fn begin_body(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        request: &Request<'_>,
        head: &[u8],
        reads: Reads,
    ) {
        state.counters.add(ServerCounter::Bodies, 1);
        if state.log.is_some() {
            // It may end without an answer, when nobody can be asked any more.
            self.client.peer(actions);
        }
        if request.expects_continue && reads.is_still_to_come {
            state.counters.add(ServerCounter::Continues, 1);
            actions.send(CONTINUE);
        }
        let began = (state.now.at, body_time(&state.limits));
        let mut body = Body::new(head, request.framing, &reads.limits, began);
        body.kept = state.keep();
        let has_answer_body = !matches!(request.method, Method::Head | Method::Options);
        if reads.echoes && has_answer_body {
            let is_last = !request.keep_alive || self.is_draining;
            body = body.echoed(request, is_last, state.common_routed(self.front).asked(request));
        }
        self.phase = Phase::Body(Box::new(body));
    }

    /// Reads a body as far as input and room go; says how much input was used.
    fn on_body(&mut self, state: &mut LoopState, actions: &mut Actions<'_>, input: &[u8]) -> usize {
        let Phase::Body(body) = std::mem::replace(&mut self.phase, Phase::Idle) else {
            unreachable!("only called while a body is read");
        };
        let epoch = body.kept.restore(&state.current_id);
        state.under(epoch, |state| self.read_body(state, actions, body, input))
    }

    fn read_body(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        mut body: Box<Body>,
        input: &[u8],
    ) -> usize {
        let before = body.received_bytes;
        body.clock.on_bytes(state.now.at);
        let asked = body.asked();
        let read = body.read(actions, state.common_by(asked), input);
        state.counters.add(ServerCounter::BodyBytes, body.received_bytes - before);
        match read {
            Ok((used, Progress::NeedsMore)) => {
                self.phase = Phase::Body(body);
                used
            }
            Ok((used, Progress::IsDone)) => {
                self.body_done(state, actions, &body);
                used
            }
            Err(_) if body.has_answer_begun() => {
                body.cut = Some(Cut::BadRequest);
                self.phase = Phase::Body(body);
                actions.reset();
                self.is_last = true;
                input.len()
            }
            Err(rejection) => {
                let is_head = is_head(&body.head);
                // The limit is that of a route, and not the one that the page would name.
                let is_of_route = state.sites.is_some() && rejection.limit == Some(LimitName::Body);
                let rejection = if is_of_route { Rejection::BODY_LARGE } else { rejection };
                self.refuse(state, actions, rejection, &body.head, is_head, false);
                0
            }
        }
    }

    fn body_done(&mut self, state: &mut LoopState, actions: &mut Actions<'_>, body: &Body) {
        if let Some(echo) = &body.echo {
            let answered = Answered::whole(Status::OK, body.received_bytes);
            let is_last = echo.is_last || self.is_draining;
            return self.answer_begun(state, actions, &body.head, answered, is_last);
        }
        match Request::parse(&body.head, &state.head_limits) {
            Parsed::Complete(request, _) if matches!(state.handler, Handler::Proxy) => {
                self.route(state, actions, &request, &body.head, (Occasion::Kept, None));
            }
            Parsed::Complete(request, _) => {
                self.answer(state, actions, &request, &body.head, !request.keep_alive);
            }
            _ => unreachable!("the same bytes were a head before"),
        }
    }

    /// Answers what is not sound, or too much; nothing behind it is read. The logs get why, and what there is of its head.
    #[cold]
    fn refuse(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        rejection: Rejection,
        head: &[u8],
        is_head: bool,
        is_tls: bool,
    ) {
        self.client.report_refusal(state, actions, rejection, is_tls);
        let common = state.common_of(self.front);
        let answered = answer::refusal(actions, common, rejection, &state.head_limits, is_head);
        self.answer_begun(state, actions, head, answered, true);
    }

    /// Answers a request for an https URI on a connection without TLS.
    #[cold]
    fn refuse_https(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        request: &Request<'_>,
        head: &[u8],
    ) {
        let is_head = request.method == Method::Head;
        self.refuse(state, actions, Rejection::HTTPS_WITHOUT_TLS, head, is_head, false);
        actions.linger();
    }

    /// Answers a request that did not come in time.
    #[cold]
    fn time_out(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        refusal: Refusal,
        head: &[u8],
    ) {
        refusal.count(&state.counters);
        let answered = answer::late(actions, state.common_of(self.front), refusal);
        self.answer_begun(state, actions, head, answered, true);
        actions.linger();
    }

    /// What follows a call: the end, or the deadline of the phase.
    #[inline]
    fn settle(&mut self, state: &LoopState, actions: &mut Actions<'_>, is_input_used_up: bool) {
        match &self.phase {
            Phase::Idle if self.is_last && is_input_used_up => actions.close(),
            Phase::Idle if self.is_last => actions.linger(),
            Phase::Idle => actions.set_deadline(state.idle_deadline),
            Phase::Body(body) => actions.set_deadline(body.deadline()),
            Phase::Fresh
            | Phase::Head
            | Phase::Unsent(_)
            | Phase::File
            | Phase::Later(_)
            | Phase::Checking(_)
            | Phase::Http2(_)
            | Phase::Resting(_) => {}
        }
    }

    /// The answer that was under way has come to its end, with so much of its body unsent.
    fn sent(&mut self, state: &mut LoopState, unsent_bytes: u64, end: End) {
        let request = self.client.known_mut().and_then(|peer| peer.unbooked.take());
        let body_bytes = request.as_ref().map_or(0, |request| request.body_bytes);
        let body_bytes = body_bytes.saturating_sub(unsent_bytes);
        let head = request.as_ref().map(|request| &*request.head);
        let outcome = Outcome { status: Some(self.status), body_bytes, end };
        let epoch = request.as_ref().and_then(|request| request.kept.restore(&state.current_id));
        state.under(epoch, |state| self.client.book(state, head, outcome));
    }
}

/// Counts the time since the last request, or since the call began, where times are counted.
#[inline]
fn lap(stopwatch: &mut Option<Instant>, state: &LoopState) {
    if let Some(began) = stopwatch {
        let now = Instant::now();
        let nanoseconds = u64::try_from((now - *began).as_nanos()).unwrap_or(u64::MAX);
        state.counters.times().record(nanoseconds);
        *began = now;
    }
}

/// A client may end the connection without `close_notify` (RFC 8446 6.1): a request says itself where it ends, so that a
/// truncation on the network path costs at most what was not asked for yet.
impl PlaintextSession for HttpSession {
    fn plain_room(state: &mut LoopState) -> &mut Vec<u8> {
        &mut state.plain_room
    }

    fn server_config(state: &LoopState) -> Option<&Arc<ServerConfig>> {
        state.tls.as_ref()
    }

    fn opening(&self, start: &[u8]) -> Opening {
        crate::tls::opening(start)
    }

    fn named(&mut self, state: &mut LoopState, name: Option<&str>) {
        let proxy = state.proxy.as_deref();
        let certificates = proxy.and_then(|it| it.frontends.certificates(self.front));
        self.shown = certificates.and_then(|it| it.shown_for(name));
    }

    fn identified(&mut self, _: &mut LoopState, actions: &Actions<'_>, client: ClientShown) {
        self.client.peer(actions).shown = Some(Box::new(client));
    }

    fn agreed(&mut self, state: &mut LoopState, protocol: &[u8]) {
        if protocol == HTTP_2 {
            self.phase = Phase::Http2(Box::new(Http2Session::new(state, self.front, self.shown)));
        }
    }

    fn secured(&mut self, state: &mut LoopState, actions: &mut Actions<'_>, is_resumed: bool) {
        state.counters.count_handshake(is_resumed);
        if let Phase::Http2(streams) = &mut self.phase {
            streams.start(actions);
            if self.is_draining {
                streams.on_shutdown(state, actions, &mut self.client);
            }
        }
    }

    #[cold]
    fn tls_failed(&mut self, state: &mut LoopState, actions: &Actions<'_>, error: Option<&Error>) {
        // A client that ends the connection in its handshake, as checks of ports do, asks for nothing.
        let Some(error) = error else { return };
        state.counters.add(ServerCounter::TlsFailed, 1);
        state.logs.errors.report(Event::RequestRefused, state.now.unix_s, || {
            let client = self.client.name(actions);
            match error {
                Error::InvalidMessage(_) => {
                    format!("{client} does not speak TLS, which this server does: use https://")
                }
                error => match NoCertificate::of(error) {
                    Some(why) => format!("{client}: {why}"),
                    None => format!("{client}: {error}"),
                },
            }
        });
    }

    fn ends_slow_handshake(&mut self, state: &mut LoopState) -> bool {
        state.counters.add(ServerCounter::TimeoutsHandshake, 1);
        true
    }
}

#[cfg(test)]
mod tests;
