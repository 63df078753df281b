//! What becomes of a request of HTTP/1 at a front end with sites: its route's handler answers it, or a backend, or a page that
//! leads elsewhere or refuses it.

use pollux_engine::Actions;
use pollux_http::{Method, Rejection, Request};

use crate::front::ask::{self, To};
use crate::front::h1::{HttpSession, Reads};
use crate::front::sites;
use crate::front::state::LoopState;
use crate::handlers::Handler;
use crate::handlers::answer::{Answered, Context, Persistence};
use crate::handlers::sites::{Ending, Way, is_too_long};
use crate::ids::RouteId;

impl HttpSession {
    /// Finds the route of a request. Of its body nothing is read yet, and nothing may have come; without that it is through.
    #[inline(never)]
    pub(super) fn route(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        request: &Request<'_>,
        head: &[u8],
        is_body_still_to_come: Option<bool>,
    ) {
        let way = sites::decide(state, self.front, request);
        let route = match way {
            Way::Backend(_, route) | Way::Handler(route)
                if is_too_long(request, state.limits_of(Some(route))) =>
            {
                let is_head = request.method == Method::Head;
                self.refuse(state, actions, Rejection::BODY_LARGE, head, is_head, false);
                return actions.linger();
            }
            Way::Backend(group, route) => {
                return self.pass(state, actions, request, head, To { group, route: Some(route) });
            }
            Way::Handler(route) => route,
            Way::Ends(ending) => return self.end_routed(state, actions, request, head, ending),
        };
        if request.target.is_https() && !ask::is_secure(state.upstreams(), self.front, request) {
            return self.refuse_https(state, actions, request, head);
        }
        let body = is_body_still_to_come.filter(|_| request.framing.has_body());
        let Some(is_still_to_come) = body else {
            return self.answer_routed(state, actions, request, head, route);
        };
        let sites = state.sites.as_ref().expect("it has a route");
        let (handler, limits) = (sites.handler(route), *sites.limits(route));
        if !handler.allows(request.method) {
            // The body is left unread, so nothing can follow.
            let (front, context) = (self.front, self.routed_context(state, request, true));
            let answered = sites::respond(state, actions, (front, route), request, context, true);
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
        let front = self.front;
        // What is encrypted can't be sent by the loop.
        let reads_all = state.upstreams().frontends.secured(front).is_some();
        let answered = sites::respond(state, actions, (front, route), request, context, reads_all);
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
        let answered: Answered = sites::end(state, actions, self.front, context, ending);
        self.answer_begun(state, actions, head, answered, is_last);
        if is_last {
            actions.linger();
        }
    }

    fn routed_context(&self, state: &LoopState, request: &Request<'_>, is_last: bool) -> Context {
        Context {
            persistence: Persistence::of(request.version_minor, is_last),
            is_head: request.method == Method::Head,
            asked: state.common_of(self.front).asked(request),
        }
    }
}
