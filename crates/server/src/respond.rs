//! Which answer a sound request gets: by its method, then by the configured answer.
//!
//! The sessions call it once for each request whose body is through.

use std::sync::Arc;

use pollux_engine::Actions;
use pollux_http::{HeadWriter, Method, Request, Status};

use crate::answer::{self, Answered, Context, Left, Persistence};
use crate::counters::ServerCounter;
use crate::shared::{Handler, Shared};
use crate::stats::{self, Overview};

/// Sends the answer to a sound request.
#[inline]
pub(crate) fn respond(
    shared: &mut Shared,
    actions: &mut Actions<'_>,
    request: &Request<'_>,
    context: Context,
) -> Answered {
    if !shared.handler.allows(request.method) || request.method == Method::Options {
        return respond_without_handler(shared, actions, request, context);
    }
    match &mut shared.handler {
        Handler::Reply(reply) => {
            let left = reply.send(actions, &shared.common, context);
            let body_bytes = if context.is_head { 0 } else { reply.len_bytes() };
            let left = left.map_or(Left::Nothing, Left::Unsent);
            Answered { status: Status::OK, body_bytes, left }
        }
        Handler::Metrics(overview) => {
            let overview = Arc::clone(overview);
            respond_with_metrics(shared, actions, request, context, &overview)
        }
        Handler::Echo => answer::empty(actions, &shared.common, context, Status::OK, |_| {}),
        Handler::Files(site) => {
            let answered =
                site.answer(actions, &shared.common, shared.now.unix_s, request, context);
            if matches!(answered.left, Left::File) {
                shared.counters.add(ServerCounter::FilesSent, 1);
            }
            if answered.status == Status::UNAVAILABLE {
                shared.counters.add(ServerCounter::FilesRefused, 1);
            }
            answered
        }
    }
}

/// The pages of the metrics endpoint.
#[cold]
fn respond_with_metrics(
    shared: &Shared,
    actions: &mut Actions<'_>,
    request: &Request<'_>,
    context: Context,
    overview: &Overview,
) -> Answered {
    const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";
    const HTML: &str = "text/html; charset=utf-8";
    let is_proxy = overview.passing.is_some();
    let (format, page) = match request.target.path() {
        Some("/metrics") => (FORMAT, overview.supervised.with_ended(stats::metrics(overview))),
        Some("/status") if is_proxy => (HTML, stats::STATUS_PAGE.to_owned()),
        Some("/status.json") if is_proxy => ("application/json", stats::status(overview)),
        _ => return answer::page(actions, &shared.common, context, Status::NOT_FOUND, |_| {}),
    };
    answer::document(actions, &shared.common, context, format, page)
}

/// OPTIONS, and methods that are not for this server.
#[cold]
fn respond_without_handler(
    shared: &Shared,
    actions: &mut Actions<'_>,
    request: &Request<'_>,
    context: Context,
) -> Answered {
    let allow = shared.handler.allow();
    let add_allow = |head: &mut HeadWriter<'_>| {
        head.field("Allow", allow);
    };
    let status = match request.method {
        Method::Options if context.asked.is_from_another_origin() => {
            return answer::empty(actions, &shared.common, context, Status::NO_CONTENT, |head| {
                add_allow(head);
                head.field("Access-Control-Allow-Methods", b"GET, HEAD");
                head.field("Access-Control-Allow-Headers", b"*");
                head.field("Access-Control-Max-Age", b"86400");
            });
        }
        Method::Options => {
            return answer::empty(actions, &shared.common, context, Status::NO_CONTENT, add_allow);
        }
        Method::Other(_) => Status::NOT_IMPLEMENTED,
        _ => Status::METHOD_NOT_ALLOWED,
    };
    shared.counters.count_refusal(status);
    if request.method == Method::Connect {
        // The bytes behind it may be meant for the tunnel, made to look like a request.
        let context = Context { persistence: Persistence::Close, ..context };
        let page = answer::page(actions, &shared.common, context, status, add_allow);
        actions.linger();
        return Answered { left: Left::End, ..page };
    }
    answer::page(actions, &shared.common, context, status, add_allow)
}
