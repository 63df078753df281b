//! What a client gets from its exchange: the answer of a backend, one of the proxy, or a cut; and what follows it.

use pollux_engine::Actions;
use pollux_http::{Method, Rejection, Request, RequestKind, Status};

use crate::exchange::deadlines::Due;
use crate::exchange::direction::Side;
use crate::exchange::table::Next;
use crate::fault::Fault;
use crate::front::h1::{HttpSession, Phase};
use crate::front::state::LoopState;
use crate::handlers::answer;
use crate::handlers::answer::Persistence;
use crate::head::common::FieldContext;
use crate::head::explanation;
use crate::ids::ExchangeId;
use crate::refusal::Refusal;

impl HttpSession {
    /// Something happened to the exchange: it failed, has something to send, or takes input again.
    pub(super) fn exchange_moved(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        at: ExchangeId,
    ) {
        let upstreams = state.upstreams();
        let exchange = upstreams.exchange(at);
        exchange.is_asker_woken = false;
        let was_queued = std::mem::take(&mut exchange.was_queued);
        if let Some(next) = exchange.next() {
            return self.ends_by(state, actions, at, next, None);
        }
        if was_queued {
            upstreams.set_asker_deadline(at, actions);
        }
        let exchange = upstreams.exchange(at);
        // What came early, behind a request that became a tunnel, is part of it.
        let waits = exchange.is_asker_paused || exchange.is_tunnel();
        if exchange.is_tunnel() {
            actions.read_on();
        }
        if waits && !exchange.request.is_full() {
            exchange.is_asker_paused = false;
            actions.resume_input();
            upstreams.set_asker_deadline(at, actions);
            upstreams.leave_long_body(at, Side::Client, actions);
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
        let upstreams = state.upstreams();
        if upstreams.exchanges.get_mut(at).response.has_left(&mut upstreams.pipes) {
            upstreams.wake_upstream(at, actions);
        }
        if !upstreams.exchange(at).request.is_whole() {
            upstreams.set_asker_deadline(at, actions);
        }
        self.send(state, actions, at);
    }

    /// Sends on what the answer has; ends the exchange when that was all.
    fn send(&mut self, state: &mut LoopState, actions: &mut Actions<'_>, at: ExchangeId) {
        if state.upstreams().answer_leaves(at, actions) {
            self.finish(state, actions, at, None);
        }
    }

    /// The exchange is over. Continues with the next request, or ends.
    fn finish(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        at: ExchangeId,
        fault: Option<Fault>,
    ) {
        let LoopState { upstreams, log, .. } = state;
        let upstreams = upstreams.as_mut().expect("a proxy has backends");
        let exchange = upstreams.exchange(at);
        let is_read = exchange.request.is_whole();
        let is_last = exchange.is_last || self.is_last || !is_read;
        let is_input_used_up = is_read && !exchange.is_tunnel() && !actions.is_input_paused();
        upstreams.finish(at, fault, self.address(), log.as_mut());
        (self.phase, self.is_last) = (Phase::Idle, is_last);
        if !is_last {
            actions.resume_input();
        }
        self.settle(state, actions, is_input_used_up);
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
        let why = explanation(&rejection, &state.head_limits);
        self.report_refusal(state, actions, rejection, false);
        self.fail(state, actions, at, Fault::BadRequest(rejection.status), Some(&why));
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
        let next = state.upstreams().fault(at, fault);
        self.ends_by(state, actions, at, next, because);
    }

    #[cold]
    fn ends_by(
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
        let exchange = state.upstreams().exchange(at);
        let is_last = exchange.is_last || self.is_last || !exchange.request.is_whole();
        let context = answer::Context {
            persistence: Persistence::of(exchange.minor, is_last),
            is_head: exchange.kind == RequestKind::Head,
            asked: FieldContext::of_rules(exchange.rules),
        };
        // An interim answer may still stand in front.
        exchange.response.send(actions);
        let (status, details) = (fault.status(), exchange.details(fault));
        let proxy_status = format!("pollux;error={};details=\"{details}\"", fault.error_type());
        let why = because.unwrap_or(&details);
        let common = state.common_of(self.front);
        let answered = answer::explained(actions, common, context, status, why, |head| {
            head.field("Proxy-Status", proxy_status.as_bytes());
        });
        let exchange = state.upstreams().exchange(at);
        (exchange.status, exchange.refusal) = (Some(status), Refusal::of_page(fault));
        exchange.response.set_body_bytes(answered.body_bytes);
        self.finish(state, actions, at, Some(fault));
    }

    /// The deadline of a request that has an exchange is over.
    pub(super) fn later_too_long(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        at: ExchangeId,
    ) {
        match state.upstreams().due(at) {
            None => state.upstreams().set_asker_deadline(at, actions),
            Some(Due::Drain) => {
                let next = state.upstreams().drained(at);
                self.ends_by(state, actions, at, next, None);
            }
            Some(Due::Request) => self.fail(state, actions, at, Fault::RequestTimeout, None),
            Some(Due::Queue) => self.fail(state, actions, at, Fault::QueueTimeout, None),
            Some(Due::Body) => {
                let refusal = Refusal::LateBody;
                refusal.count(&state.counters);
                self.is_last = true;
                self.fail(state, actions, at, Fault::ClientTimeout, Some(refusal.reason()));
            }
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
        let context = answer::Context {
            persistence: Persistence::of(request.version_minor, is_last),
            is_head: request.method == Method::Head,
            asked: state.common_of(self.front).asked(request),
        };
        let allow: &[u8] = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
        let common = state.common_of(self.front);
        let answered = match refusal {
            Some(refusal) => answer::other_method(actions, common, context, refusal, allow),
            None => answer::empty(actions, common, context, Status::NO_CONTENT, |head| {
                head.field("Allow", allow);
            }),
        };
        self.answered(state, actions, head, answered, is_last);
        if is_last {
            actions.linger();
        }
    }
}
