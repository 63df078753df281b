//! How a handler answers a sound request: by its own kind, but for OPTIONS and methods that are not for it.

use pollux_engine::{Actions, Now};
use pollux_http::{HeadWriter, Method, Request, Status};

use crate::counters::{ServerCounter, ServerCounters};
use crate::handlers::Handler;
use crate::handlers::answer;
use crate::handlers::answer::{Answered, Context, Left, Persistence};
use crate::handlers::files::Routed;
use crate::head::shared_fields::Common;
use crate::refusal::Refusal;

/// What a handler makes its answers with.
pub(crate) struct AnswerParts<'m> {
    pub(crate) common: &'m Common,
    pub(crate) now: Now,
    pub(crate) counters: &'m ServerCounters,
}

/// Has a handler send its answer to a sound request; none where backends answer. Of a route with what that has made of the path.
#[inline]
pub(crate) fn respond(
    handler: &mut Handler,
    with: &AnswerParts<'_>,
    actions: &mut Actions<'_>,
    request: &Request<'_>,
    routed: Option<Routed<'_>>,
    context: Context,
) -> Option<Answered> {
    if !handler.allows(request.method) || request.method == Method::Options {
        return Some(respond_without_handler(handler, with, actions, request, context));
    }
    Some(match handler {
        Handler::Reply(reply) => {
            let left = reply.send(actions, with.common, context);
            let body_bytes = if context.is_head { 0 } else { reply.len_bytes() };
            let left = left.map_or(Left::Nothing, Left::Unsent);
            Answered::new(Status::OK, body_bytes, left)
        }
        Handler::RouteReply(reply) => reply.send(actions, with.common, context),
        Handler::Status(pages) => {
            let page = pages.page(request.target.path());
            respond_with_page(with.common, actions, context, page)
        }
        Handler::Proxy => return None,
        Handler::Echo => answer::empty(actions, with.common, context, Status::OK, |_| {}),
        Handler::Files(folder) => {
            let answered = folder.answer(actions, with.common, with.now, request, routed, context);
            if matches!(answered.left, Left::File) {
                with.counters.add(ServerCounter::FilesSent, 1);
            }
            answered
        }
    })
}

/// The pages of the metrics endpoint.
#[cold]
fn respond_with_page(
    common: &Common,
    actions: &mut Actions<'_>,
    context: Context,
    page: Option<(&'static str, String)>,
) -> Answered {
    match page {
        Some((format, page)) => answer::document(actions, common, context, format, page),
        None => answer::page(actions, common, context, Status::NOT_FOUND, |_| {}),
    }
}

/// OPTIONS, and methods that are not for this server.
#[cold]
fn respond_without_handler(
    handler: &Handler,
    with: &AnswerParts<'_>,
    actions: &mut Actions<'_>,
    request: &Request<'_>,
    context: Context,
) -> Answered {
    let allow = handler.allow();
    let common = with.common;
    let add_allow = |head: &mut HeadWriter<'_>| {
        head.field("Allow", allow);
    };
    let refusal = match request.method {
        Method::Options if context.asked.is_from_another_origin() => {
            return answer::empty(actions, common, context, Status::NO_CONTENT, |head| {
                add_allow(head);
                head.field("Access-Control-Allow-Methods", b"GET, HEAD");
                head.field("Access-Control-Allow-Headers", b"*");
                head.field("Access-Control-Max-Age", b"86400");
            });
        }
        Method::Options => {
            return answer::empty(actions, common, context, Status::NO_CONTENT, add_allow);
        }
        Method::Other(_) => Refusal::UnknownMethod,
        _ => Refusal::OtherMethod,
    };
    if request.method == Method::Connect {
        // The bytes behind it may be meant for the tunnel, made to look like a request.
        let context = Context { persistence: Persistence::Close, ..context };
        let page = answer::other_method(actions, common, context, refusal, allow);
        actions.linger();
        return Answered { left: Left::End, ..page };
    }
    answer::other_method(actions, common, context, refusal, allow)
}
