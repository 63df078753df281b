//! What becomes of a stream's request at a front end with sites, as `h1/routed.rs` has it of HTTP/1.

use pollux_http::h2::NeverIndexed;
use pollux_http::{Framing, Method, Rejection, Request};

use crate::front::ask::{self, To};
use crate::front::h2::{Asked, Call, Streams};
use crate::front::sites;
use crate::handlers::Handler;
use crate::handlers::answer::{Context, Persistence};
use crate::handlers::sites::{Ending, Way};

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
        if let Way::Backend(group, route) = way {
            let to = To { group, route: Some(route) };
            return self.pass_to(call, stream, (request, never_indexed), head, ends, to);
        }
        if call.state.log.is_some() {
            // The line has it.
            call.client.peer(call.actions);
        }
        if let Way::Handler(route) = way
            && !ends
        {
            let sites = call.state.sites.as_ref().expect("it has a route");
            let (handler, limits) = (sites.handler(route), sites.own_limits);
            if handler.allows(request.method) {
                if matches!(request.framing, Framing::Length(len) if len > limits.body_bytes) {
                    return self.refuse(call, stream, Rejection::BODY_LARGE, head);
                }
                let echoes = matches!(handler, Handler::Echo);
                return self.begin_body(call, stream, request, head, echoes);
            }
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
