//! The client's side of an exchange ([`Phase::Later`]): what a client gives to it (the head of its request, the body
//! behind it, its end), what it gets (the answer of a backend, one of the proxy, or a cut), and what follows that.
//!
//! The steps of the request itself are in `exchange/request.rs`, which this calls; the side of the backend is
//! `exchange/upstream.rs`.

use std::time::Duration;

use pollux_engine::{Actions, CloseCause};
use pollux_http::h2::NeverIndexed;
use pollux_http::{Method, Rejection, Request};

use crate::counters::ServerCounter;
use crate::exchange::asker::Asker;
use crate::exchange::deadlines::Expired;
use crate::exchange::direction::Side;
use crate::exchange::table::Next;
use crate::fault::Fault;
use crate::front::ask::{self, Origin, Passed, To, Verdict};
use crate::front::h1::{HttpSession, Phase};
use crate::front::sites::Occasion;
use crate::front::state::LoopState;
use crate::handlers::answer;
use crate::handlers::answer::Persistence;
use crate::head::{Version, explanation};
use crate::ids::ExchangeId;
use crate::refusal::Refusal;

/// What the client gives.
impl HttpSession {
    /// Begins a request that a backend answers, unless it is answered here, or has a route that says what does.
    #[inline(never)]
    pub(super) fn ask(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        request: &Request<'_>,
        head: &[u8],
        is_body_still_to_come: bool,
    ) {
        state.identify(&mut self.client, actions, request);
        match state.proxy().frontends.group(self.front) {
            Some(group) => {
                let to = To::of_front(self.front, group);
                self.pass(state, actions, request, head, to);
            }
            None => {
                let come = (Occasion::New, Some(is_body_still_to_come));
                self.route(state, actions, request, head, come);
            }
        }
    }

    /// Begins a request that a backend answers, unless it goes no further.
    pub(super) fn pass(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        request: &Request<'_>,
        head: &[u8],
        to: To,
    ) {
        let is_last = !request.keep_alive || self.is_draining;
        let version = Version::of_minor(request.version_minor);
        let proxy = state.proxy.as_mut().expect("a proxy has backends");
        let verdict =
            ask::judge(proxy, actions, &mut self.client, self.front, request, version, to);
        let (facts, max_forwards) = match verdict {
            Verdict::Passed(facts, max_forwards) => (facts, max_forwards),
            Verdict::Https => return self.refuse_https(state, actions, request, head),
            Verdict::Here(refusal) => {
                // What follows CONNECT may be meant for the tunnel, made to look like a request.
                let is_last = is_last || request.method == Method::Connect;
                return self.answer_here(state, actions, request, head, refusal, is_last);
            }
        };
        let origin = self.origin(actions);
        let never_indexed = NeverIndexed::default();
        let passed = Passed { request, head, facts, max_forwards, never_indexed };
        let at = ask::begin(state, actions, &self.client, origin, passed);
        state.proxy().set_asker_deadline(at, actions);
        self.phase = Phase::Later(at);
        if request.framing.has_body() {
            // An answer that begins early does not hold up the body.
            actions.read_on();
        }
    }

    /// Answers a request that goes no further: refuses it, or says which methods there are. Its body, if it has one, is not
    /// read.
    pub(super) fn answer_here(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        request: &Request<'_>,
        head: &[u8],
        refusal: Option<Refusal>,
        is_last: bool,
    ) {
        let is_last = is_last || request.framing.has_body();
        let common = state.common_routed(self.front);
        let context = answer::Context {
            persistence: Persistence::for_client(request.version_minor, is_last),
            is_head: request.method == Method::Head,
            asked: common.asked(request),
        };
        let answered = ask::answer_here(actions, common, context, refusal);
        self.answer_begun(state, actions, head, answered, is_last);
        if is_last {
            actions.linger();
        }
    }

    /// Begins a request whose head is the last one of this loop again; says how long that is.
    pub(super) fn ask_again(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> Option<usize> {
        let origin = self.origin(actions);
        let (at, head_bytes) = ask::begin_again(state, actions, &self.client, origin, input)?;
        state.proxy().set_asker_deadline(at, actions);
        self.phase = Phase::Later(at);
        Some(head_bytes)
    }

    #[inline]
    fn origin(&self, actions: &Actions<'_>) -> Origin {
        let asker = Asker::of_session(actions);
        Origin { asker, front: self.front, shown: self.shown, is_last: self.is_draining }
    }

    /// Input while a request is under way: its body, or what follows it.
    pub(super) fn request_continues(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        at: ExchangeId,
        input: &[u8],
    ) -> usize {
        match state.proxy().request_bytes(at, actions, input) {
            Ok(used) => used,
            Err(rejection) => {
                self.is_last = true;
                self.refuse_body(state, actions, at, rejection);
                input.len()
            }
        }
    }

    /// The body of a request is not sound, or too large.
    #[cold]
    pub(super) fn refuse_body(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        at: ExchangeId,
        rejection: Rejection,
    ) {
        let route = state.proxy().exchange(at).route;
        let epoch = state.proxy().exchange(at).epoch();
        let why = state.under(epoch, |state| explanation(&rejection, state.limits_of(route)));
        self.client.report_refusal(state, actions, rejection, false);
        self.fail(state, actions, at, Fault::BadRequest(rejection.status), Some(&why));
    }

    /// The client sends nothing more.
    pub(super) fn asker_ended(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        at: ExchangeId,
    ) {
        let proxy = state.proxy();
        let answers = proxy.limits.answers_half_closed;
        let exchange = proxy.exchange(at);
        if exchange.is_tunnel() {
            exchange.request.set_whole(true);
            proxy.wake_upstream(at, actions);
        } else if exchange.request.is_whole() && answers {
            // What was asked for is still sent to a client that only stopped talking.
            exchange.is_last = true;
            self.is_last = true;
        } else {
            let is_whole = exchange.request.is_whole();
            let is_cut = exchange.is_committed();
            state.counters.add(ServerCounter::Incomplete, u64::from(!is_whole));
            // A part of an answer must not pass for the whole.
            if is_cut { actions.reset() } else { actions.abort() }
        }
    }
}

/// What the client gets.
impl HttpSession {
    /// Something happened to the exchange: it failed, has something to send, or takes input again.
    pub(super) fn exchange_moved(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        at: ExchangeId,
    ) {
        let proxy = state.proxy();
        let exchange = proxy.exchange(at);
        exchange.is_asker_woken = false;
        let was_queued = std::mem::take(&mut exchange.was_queued);
        if let Some(next) = exchange.next() {
            return self.end_by(state, actions, at, next, None);
        }
        if was_queued {
            proxy.set_asker_deadline(at, actions);
        }
        let exchange = proxy.exchange(at);
        // What came early, behind a request that became a tunnel, is part of it.
        let waits = exchange.is_asker_paused || exchange.is_tunnel();
        if exchange.is_tunnel() {
            actions.read_on();
        }
        if waits && !exchange.request.is_full() {
            exchange.is_asker_paused = false;
            actions.resume_input();
            proxy.set_asker_deadline(at, actions);
            proxy.leave_long_body(at, Side::Client, actions);
        }
        self.send(state, actions, at);
    }

    /// What was sent of the answer has left.
    pub(super) fn answer_left(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        at: ExchangeId,
    ) {
        let proxy = state.proxy();
        proxy.answer_left(at, actions);
        if !proxy.exchange(at).request.is_whole() {
            proxy.set_asker_deadline(at, actions);
        }
        self.send(state, actions, at);
    }

    /// Sends on what the answer has; ends the exchange when that was all.
    fn send(&mut self, state: &mut LoopState, actions: &mut Actions<'_>, at: ExchangeId) {
        if state.proxy().answer_leaves(at, actions) {
            self.end_exchange(state, actions, at, None);
        }
    }

    /// The exchange is over. Continues with the next request, or ends.
    fn end_exchange(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        at: ExchangeId,
        fault: Option<Fault>,
    ) {
        let LoopState { proxy, log, .. } = state;
        let proxy = proxy.as_mut().expect("a proxy has backends");
        let exchange = proxy.exchange(at);
        let is_read = exchange.request.is_whole();
        let is_last = exchange.is_last || self.is_last || !is_read;
        let is_input_used_up = is_read && !exchange.is_tunnel() && !actions.is_input_paused();
        proxy.finish(at, fault, self.client.address(), log.as_mut());
        (self.phase, self.is_last) = (Phase::Idle, is_last);
        if !is_last {
            actions.resume_input();
        }
        self.settle(state, actions, is_input_used_up);
    }

    /// The exchange fails by what this side did, or did not do in time; the client gets the reason where it is to blame.
    #[cold]
    fn fail(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        at: ExchangeId,
        fault: Fault,
        because: Option<&str>,
    ) {
        let next = state.proxy().fault(at, fault);
        self.end_by(state, actions, at, next, because);
    }

    #[cold]
    fn end_by(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        at: ExchangeId,
        next: Next,
        because: Option<&str>,
    ) {
        match next {
            Next::Retry => {}
            // `closed` records it.
            Next::Cut => actions.reset(),
            Next::Page(fault) => self.page(state, actions, at, fault, because),
        }
    }

    /// An answer of the proxy in place of one of the backend.
    fn page(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        at: ExchangeId,
        fault: Fault,
        because: Option<&str>,
    ) {
        let exchange = state.proxy().exchange(at);
        let is_last = exchange.is_last || self.is_last || !exchange.request.is_whole();
        let persistence = match exchange.version {
            Version::Http10 => Persistence::for_client(0, is_last),
            _ => Persistence::for_client(1, is_last),
        };
        // An interim answer may still stand in front.
        exchange.response.send(actions);
        let epoch = exchange.epoch();
        let answered = state.under(epoch, |state| {
            ask::answer_fault(state, actions, at, fault, because, persistence)
        });
        state.proxy().exchange(at).response.set_body_bytes(answered.body_bytes);
        self.end_exchange(state, actions, at, Some(fault));
    }

    /// The deadline of a request that has an exchange is over.
    pub(super) fn later_too_long(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        at: ExchangeId,
    ) {
        match state.proxy().expired(at, Some(Duration::ZERO)) {
            None => state.proxy().set_asker_deadline(at, actions),
            Some(Expired::Drain) => {
                let next = state.proxy().drained(at);
                self.end_by(state, actions, at, next, None);
            }
            Some(Expired::Request) => self.fail(state, actions, at, Fault::RequestTimeout, None),
            Some(Expired::Queue) => self.fail(state, actions, at, Fault::QueueTimeout, None),
            Some(Expired::Body) => {
                let refusal = Refusal::LateBody;
                refusal.count(&state.counters);
                self.is_last = true;
                self.fail(state, actions, at, Fault::ClientTimeout, Some(refusal.reason()));
            }
        }
    }

    /// The client is gone, and its exchange with it.
    pub(super) fn asker_closed(self, state: &mut LoopState, at: ExchangeId, cause: CloseCause) {
        let LoopState { proxy, log, .. } = state;
        let proxy = proxy.as_mut().expect("a proxy has backends");
        let exchange = proxy.exchange(at);
        // What cut the connection from here has said so.
        let fault = exchange.fault.or_else(|| Fault::of_end(cause)).or(match cause {
            _ if exchange.is_tunnel() => None,
            CloseCause::SlowReader => Some(Fault::ClientTimeout),
            _ => Some(Fault::ClientGone),
        });
        proxy.finish(at, fault, self.client.address(), log.as_mut());
    }
}
