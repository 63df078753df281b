//! What becomes of a stream's request at a front end with sites, as `h1/routed.rs` has it of HTTP/1.

use pollux_http::h2::{ErrorCode, NeverIndexed};
use pollux_http::{Method, Rejection, Request, Status};

use crate::counters::ServerCounter;
use crate::front::ask::{self, To};
use crate::front::h2::answers::{Asked, Reads};
use crate::front::h2::{Call, Http2Session};
use crate::front::sites::{self, Entered, Turn};
use crate::handlers::Handler;
use crate::handlers::answer::{Context, Persistence};
use crate::handlers::sites::{Ending, Way, is_too_long};
use crate::record::Cut;

/// A stream that is to become a WebSocket, for a route that leads to no backend.
const NO_WEBSOCKET: Rejection =
    Rejection::new(Status::NOT_IMPLEMENTED, "there is no WebSocket at this path", "RFC 8441 5");

impl Http2Session {
    /// Finds the route of a request. Its body follows unless it `ends`; it is asked again for one that was kept until there
    /// was room for its answer, or whose body is through, or whose password was looked at: `turn` says which.
    #[inline(never)]
    pub(super) fn route(
        &mut self,
        call: &mut Call<'_, '_>,
        stream: u32,
        (request, never_indexed): (&Request<'_>, NeverIndexed),
        head: &[u8],
        (ends, turn): (bool, Turn),
    ) {
        let front = self.front;
        let arrived = (front, self.shown);
        let entered = sites::enter(call.state, call.actions, call.client, arrived, request, turn);
        let mut way = match entered {
            Entered::Way(way) => way,
            Entered::Later(ticket) => {
                let request = (request, never_indexed);
                return self.wait_for_check(call, stream, request, head, ends, ticket);
            }
        };
        if let Way::Backend(_, route) | Way::Handler(route) = way
            && is_too_long(request, call.state.limits_of(Some(route)))
        {
            way = Way::Ends(Ending::Unsound(Rejection::BODY_LARGE));
        }
        if let Way::Ends(Ending::Denied) = way {
            return self.deny(call, stream, head);
        }
        if let Way::Backend(group, route) = way {
            let fields = call.state.fields_routed(front);
            let to = To { group, route: Some(route), fields };
            return self.pass_to(call, stream, (request, never_indexed), head, ends, to);
        }
        if call.state.log.is_some() {
            // The line has it.
            call.client.peer(call.actions);
        }
        // Nothing else of HTTP/2 has this field, and a handler's 200 would be taken for the agreement.
        if matches!(way, Way::Handler(_)) && request.fields.first("upgrade").is_some() {
            return self.refuse(call, stream, NO_WEBSOCKET, head);
        }
        if let Way::Handler(route) = way
            && !ends
        {
            let sites = call.state.sites.as_ref().expect("it has a route");
            let handler = sites.handler(route);
            if handler.allows(request.method) {
                let echoes = matches!(handler, Handler::Echo);
                let reads = Reads { echoes, bytes_max: sites.limits(route).body_bytes };
                return self.begin_body(call, stream, request, head, reads);
            }
        }
        if let Some(task) = self.connection.data_mut(stream).filter(|_| !ends) {
            task.is_judged_on = true;
        }
        if !self.takes_answer(call) {
            let asked = match way {
                Way::Ends(ending) if ending.is_once() => Asked::Ended(request.framing, ending),
                _ => Asked::Sound(request.framing),
            };
            return self.ask_later(call, stream, head, asked);
        }
        let context = Context {
            persistence: Persistence::Implicit,
            is_head: request.method == Method::Head,
            asked: sites::asked(call.state, front, request),
        };
        let is_https = request.target.is_https();
        let mut status = None;
        let has_begun = match way {
            Way::Handler(_) if is_https && !ask::is_secure(call.state.proxy(), front, request) => {
                return self.refuse(call, stream, Rejection::HTTPS_WITHOUT_TLS, head);
            }
            Way::Handler(route) => self.answer_by(call, stream, head, |state, upper| {
                let answered = sites::respond(state, upper, route, request, context, true);
                status = Some(answered.status);
                answered
            }),
            Way::Ends(ending) => {
                if let Ending::Unsound(rejection) = ending {
                    call.client.report_refusal(call.state, call.actions, rejection, false);
                }
                self.answer_by(call, stream, head, |state, upper| {
                    let answered = sites::end(state, upper, context, ending);
                    status = Some(answered.status);
                    answered
                })
            }
            Way::Backend(..) => unreachable!("it was passed on"),
        };
        if let Some(status) = status.filter(|_| has_begun) {
            sites::count(call.state, status);
        }
        if !has_begun {
            self.wait_for_file(call, stream, head, request.framing);
        }
    }

    /// Ends the stream without an answer.
    #[cold]
    fn deny(&mut self, call: &mut Call<'_, '_>, stream: u32, head: &[u8]) {
        call.count(ServerCounter::AccessDenied);
        if call.state.log.is_some() {
            // The line has it.
            call.client.peer(call.actions);
        }
        if let Some(task) = self.connection.data_mut(stream) {
            task.head = head.into();
        }
        self.reset(call, stream, ErrorCode::CANCEL, Cut::NotAllowed);
    }
}
