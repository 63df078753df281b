//! What becomes of a stream's request at a front end with sites, as `h1/routed.rs` has it of HTTP/1.

use pollux_http::h2::{ErrorCode, NeverIndexed};
use pollux_http::{Method, Rejection, Request, Status};

use crate::counters::ServerCounter;
use crate::front::h2::answers::{Asked, Reads};
use crate::front::h2::{Call, Http2Session};
use crate::front::sites::{self, Entered, Occasion, Step};
use crate::handlers::answer::{Context, Persistence};
use crate::handlers::sites::Ending;
use crate::ids::RouteId;
use crate::record::Cut;

/// A stream that is to become a WebSocket, for a route that leads to no backend.
const NO_WEBSOCKET: Rejection =
    Rejection::new(Status::NOT_IMPLEMENTED, "there is no WebSocket at this path", "RFC 8441 5");

/// Who answers a request of which no body is read any more.
#[derive(Clone, Copy)]
enum Answer {
    By(RouteId),
    End(Ending),
}

impl Http2Session {
    /// Finds the route of a request. Its body follows unless it `ends`; it is asked again for one that was kept until there
    /// was room for its answer, or whose body is through, or whose password was looked at: `occasion` says which.
    #[inline(never)]
    pub(super) fn route(
        &mut self,
        call: &mut Call<'_, '_>,
        stream: u32,
        (request, never_indexed): (&Request<'_>, NeverIndexed),
        head: &[u8],
        (ends, occasion): (bool, Occasion),
    ) {
        let front = self.front;
        let arrived = (front, self.shown);
        let entered =
            sites::enter(call.state, call.actions, call.client, arrived, request, occasion);
        let way = match entered {
            Entered::Way(way) => way,
            Entered::Later(ticket) => {
                let request = (request, never_indexed);
                return self.wait_for_check(call, stream, request, head, ends, ticket);
            }
        };
        let step = sites::step(call.state, front, request, way, !ends);
        match step {
            Step::Deny => return self.deny(call, stream, head),
            Step::Pass(to) => {
                return self.pass_to(call, stream, (request, never_indexed), head, ends, to);
            }
            _ => {}
        }
        if call.state.log.is_some() {
            // The line has it.
            call.client.peer(call.actions);
        }
        // Nothing else of HTTP/2 has this field, and a handler's 200 would be taken for the agreement.
        let is_handled = !matches!(step, Step::End(_));
        if is_handled && request.fields.first("upgrade").is_some() {
            return self.refuse(call, stream, NO_WEBSOCKET, head);
        }
        let answer = match step {
            Step::Answer(route) => Answer::By(route),
            Step::End(ending) => Answer::End(ending),
            Step::ReadBody { echoes, limits } => {
                let reads = Reads { echoes, bytes_max: limits.body_bytes };
                return self.begin_body(call, stream, request, head, reads);
            }
            Step::WithoutTls => {
                return self.refuse(call, stream, Rejection::HTTPS_WITHOUT_TLS, head);
            }
            Step::Deny | Step::Pass(_) => unreachable!("done above"),
        };
        self.answer_routed(call, stream, (request, ends), head, answer);
    }

    /// Answers a request of which no body is read any more; later where there is no room for it now.
    fn answer_routed(
        &mut self,
        call: &mut Call<'_, '_>,
        stream: u32,
        (request, ends): (&Request<'_>, bool),
        head: &[u8],
        answer: Answer,
    ) {
        if let Some(task) = self.connection.data_mut(stream).filter(|_| !ends) {
            task.is_judged_on = true;
        }
        if !self.takes_answer(call) {
            let asked = match answer {
                Answer::End(ending) if ending.is_once() => Asked::Ended(request.framing, ending),
                _ => Asked::Sound(request.framing),
            };
            return self.ask_later(call, stream, head, asked);
        }
        let context = Context {
            persistence: Persistence::Implicit,
            is_head: request.method == Method::Head,
            asked: sites::asked(call.state, self.front, request),
        };
        if let Answer::End(Ending::Unsound(rejection)) = answer {
            call.client.report_refusal(call.state, call.actions, rejection, false);
        }
        let mut status = None;
        let has_begun = self.answer_by(call, stream, head, |state, upper| {
            let answered = match answer {
                Answer::By(route) => sites::respond(state, upper, route, request, context, true),
                Answer::End(ending) => sites::end(state, upper, context, ending),
            };
            status = Some(answered.status);
            answered
        });
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
