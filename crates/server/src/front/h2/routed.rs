//! What becomes of a stream's request at a front end with sites, as `h1/routed.rs` has it of HTTP/1.

use pollux_http::h2::NeverIndexed;
use pollux_http::{Method, Rejection, Request, Status};

use crate::front::ask::{self, To};
use crate::front::h2::answers::{Asked, Reads};
use crate::front::h2::{Call, Streams};
use crate::front::sites;
use crate::handlers::Handler;
use crate::handlers::answer::{Context, Persistence};
use crate::handlers::sites::{Ending, Way, is_too_long};

/// A stream that is to become a WebSocket, for a route that leads to no backend.
const NO_WEBSOCKET: Rejection =
    Rejection::new(Status::NOT_IMPLEMENTED, "there is no WebSocket at this path", "RFC 8441 5");

impl Streams {
    /// Finds the route of a request. Its body follows unless it `ends`; it is asked again for one that was kept until there
    /// was room for its answer, or whose body is through.
    #[inline(never)]
    pub(super) fn route(
        &mut self,
        call: &mut Call<'_, '_>,
        stream: u32,
        (request, never_indexed): (&Request<'_>, NeverIndexed),
        head: &[u8],
        ends: bool,
    ) {
        let front = self.front;
        let way = sites::decide(call.state, front, request);
        if let Way::Backend(_, route) | Way::Handler(route) = way
            && !ends
            && is_too_long(request, call.state.limits_of(Some(route)))
        {
            return self.refuse(call, stream, Rejection::BODY_LARGE, head);
        }
        if let Way::Backend(group, route) = way {
            let to = To { group, route: Some(route) };
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
            return self.ask_later(call, stream, head, Asked::Sound(request.framing));
        }
        let context = Context {
            persistence: Persistence::Implicit,
            is_head: request.method == Method::Head,
            asked: call.state.common_of(front).asked(request),
        };
        let is_https = request.target.is_https();
        let has_begun = match way {
            Way::Handler(_)
                if is_https && !ask::is_secure(call.state.upstreams(), front, request) =>
            {
                return self.refuse(call, stream, Rejection::HTTPS_WITHOUT_TLS, head);
            }
            Way::Handler(route) => self.answer_by(call, stream, head, |state, upper| {
                sites::respond(state, upper, (front, route), request, context, true)
            }),
            Way::Ends(ending) => {
                if let Ending::Unsound(rejection) = ending {
                    call.client.report_refusal(call.state, call.actions, rejection, false);
                }
                self.answer_by(call, stream, head, |state, upper| {
                    sites::end(state, upper, front, context, ending)
                })
            }
            Way::Backend(..) => unreachable!("it was passed on"),
        };
        if !has_begun {
            self.wait_for_file(call, stream, head, request.framing);
        }
    }
}
