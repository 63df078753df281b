//! What becomes of a request of HTTP/1 at a front end with sites: its route's handler answers it, or a backend, or a page that
//! leads elsewhere or refuses it.

use pollux_engine::Actions;
use pollux_http::{Method, Rejection, Request};

use crate::counters::ServerCounter;
use crate::front::ask::{self, To};
use crate::front::h1::password_check::Checking;
use crate::front::h1::{HttpSession, Phase, Reads};
use crate::front::sites::{self, Entered, Turn};
use crate::front::state::LoopState;
use crate::handlers::Handler;
use crate::handlers::answer::{Answered, Context, Persistence};
use crate::handlers::sites::{Ending, Way, is_too_long};
use crate::ids::RouteId;
use crate::record::{Cut, End, Outcome};

impl HttpSession {
    /// Finds the route of a request. Of its body nothing is read yet, and nothing may have come; without that it is through.
    #[inline(never)]
    pub(super) fn route(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        request: &Request<'_>,
        head: &[u8],
        (turn, is_body_still_to_come): (Turn, Option<bool>),
    ) {
        let arrived = (self.front, self.shown);
        let way = match sites::enter(state, actions, &mut self.client, arrived, request, turn) {
            Entered::Way(way) => way,
            Entered::Later(ticket) => {
                let is_body_still_to_come = is_body_still_to_come.unwrap_or_default();
                let kept = state.keep();
                let checking = Checking {
                    head: head.into(),
                    ticket,
                    is_body_still_to_come,
                    has_ended: false,
                    kept,
                };
                return self.wait_for_check(state, actions, checking);
            }
        };
        let route = match way {
            Way::Backend(_, route) | Way::Handler(route)
                if is_too_long(request, state.limits_of(Some(route))) =>
            {
                let ending = Ending::Unsound(Rejection::BODY_LARGE);
                return self.end_routed(state, actions, request, head, ending);
            }
            Way::Backend(group, route) => {
                let fields = state.fields_routed(self.front);
                let to = To { group, route: Some(route), fields };
                return self.pass(state, actions, request, head, to);
            }
            Way::Handler(route) => route,
            Way::Ends(Ending::Denied) => return self.deny(state, actions, head),
            Way::Ends(ending) => return self.end_routed(state, actions, request, head, ending),
        };
        if request.target.is_https() && !ask::is_secure(state.proxy(), self.front, request) {
            return self.refuse_https(state, actions, request, head);
        }
        let body = is_body_still_to_come.filter(|_| request.framing.has_body());
        let Some(is_still_to_come) = body else {
            return self.answer_routed(state, actions, request, head, route);
        };
        let sites = state.sites.as_ref().expect("it has a route");
        let handler = sites.handler(route);
        let limits = *sites.limits(route);
        if !handler.allows(request.method) {
            // The body is left unread, so nothing can follow.
            let context = self.routed_context(state, request, true);
            let answered = sites::respond(state, actions, route, request, context, true);
            sites::count(state, answered.status);
            self.answer_begun(state, actions, head, answered, true);
            return actions.linger();
        }
        let echoes = matches!(handler, Handler::Echo);
        self.begin_body(state, actions, request, head, Reads { is_still_to_come, echoes, limits });
    }

    /// Has the handler of the route answer a request whose body, if it has one, is through.
    fn answer_routed(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        request: &Request<'_>,
        head: &[u8],
        route: RouteId,
    ) {
        let is_last = !request.keep_alive || self.is_draining;
        let context = self.routed_context(state, request, is_last);
        // What is encrypted can't be sent by the loop.
        let reads_all = state.proxy().frontends.secured(self.front).is_some();
        let answered = sites::respond(state, actions, route, request, context, reads_all);
        sites::count(state, answered.status);
        self.answer_begun(state, actions, head, answered, is_last);
    }

    /// Answers a request that goes no further. Its body, if it has one, is not read.
    #[cold]
    fn end_routed(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        request: &Request<'_>,
        head: &[u8],
        ending: Ending,
    ) {
        if let Ending::Unsound(rejection) = ending {
            self.client.report_refusal(state, actions, rejection, false);
        }
        let is_last = !request.keep_alive
            || self.is_draining
            || request.framing.has_body()
            // What follows it may be meant for the tunnel, made to look like a request.
            || request.method == Method::Connect;
        let context = self.routed_context(state, request, is_last);
        let answered: Answered = sites::end(state, actions, context, ending);
        sites::count(state, answered.status);
        self.answer_begun(state, actions, head, answered, is_last);
        if is_last {
            actions.linger();
        }
    }

    /// Cuts the connection off: not even a page says that there is somebody.
    #[cold]
    fn deny(&mut self, state: &mut LoopState, actions: &mut Actions<'_>, head: &[u8]) {
        state.counters.add(ServerCounter::AccessDenied, 1);
        if state.log.is_some() {
            // The line has it.
            self.client.peer(actions);
        }
        let end = End::Cut(Cut::NotAllowed);
        self.client.book(state, Some(head), Outcome { status: None, body_bytes: 0, end });
        (self.phase, self.is_last) = (Phase::Idle, true);
        // What was answered before it still leaves.
        actions.linger();
    }

    fn routed_context(&self, state: &LoopState, request: &Request<'_>, is_last: bool) -> Context {
        Context {
            persistence: Persistence::for_client(request.version_minor, is_last),
            is_head: request.method == Method::Head,
            asked: sites::asked(state, self.front, request),
        }
    }
}
