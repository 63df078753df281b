//! What becomes of a request of HTTP/1 at a front end with sites: its route's handler answers it, or a backend, or a page that
//! leads elsewhere or refuses it.

use pollux_engine::Actions;
use pollux_http::{Method, Request};

use crate::counters::ServerCounter;
use crate::front::h1::password_check::Checking;
use crate::front::h1::{HttpSession, Phase, Reads};
use crate::front::sites::{self, Entered, Occasion, Step};
use crate::front::state::LoopState;
use crate::handlers::answer::{Answered, Context, Persistence};
use crate::handlers::sites::Ending;
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
        (occasion, is_body_still_to_come): (Occasion, Option<bool>),
    ) {
        let arrived = (self.front, self.shown);
        let way = match sites::enter(state, actions, &mut self.client, arrived, request, occasion) {
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
        let body = is_body_still_to_come.filter(|_| request.framing.has_body());
        match sites::step(state, self.front, request, way, body.is_some()) {
            Step::Pass(to) => self.pass(state, actions, request, head, to),
            Step::ReadBody { echoes, limits } => {
                let is_still_to_come = body.unwrap_or_default();
                let reads = Reads { is_still_to_come, echoes, limits };
                self.begin_body(state, actions, request, head, reads);
            }
            Step::Answer(route) => {
                self.answer_routed(state, actions, request, head, (route, body.is_some()));
            }
            Step::WithoutTls => self.refuse_https(state, actions, request, head),
            Step::Deny => self.deny(state, actions, head),
            Step::End(ending) => self.end_routed(state, actions, request, head, ending),
        }
    }

    /// Has the handler of the route answer a request. Where its body is left unread, nothing can follow.
    fn answer_routed(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        request: &Request<'_>,
        head: &[u8],
        (route, leaves_body): (RouteId, bool),
    ) {
        let is_last = !request.keep_alive || self.is_draining || leaves_body;
        let context = self.routed_context(state, request, is_last);
        // What is encrypted can't be sent by the loop.
        let reads_all = state.proxy().frontends.secured(self.front).is_some();
        let answered = sites::respond(state, actions, route, request, context, reads_all);
        sites::count(state, answered.status);
        self.answer_begun(state, actions, head, answered, is_last);
        if leaves_body {
            actions.linger();
        }
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
