//! The one place where a request gets its route, whatever its client speaks: `h1/routed.rs` and `h2/routed.rs` call it, each
//! for its own connection. It is asked anew where a request is answered later than it came, as it gives the same again.

use pollux_engine::Actions;
use pollux_http::{Request, Status};

use crate::front::ask;
use crate::front::state::LoopState;
use crate::handlers::answer;
use crate::handlers::answer::{Answered, Context};
use crate::handlers::respond::Making;
use crate::handlers::sites::{Ending, Way};
use crate::head::explanation;
use crate::ids::{FrontId, RouteId};
use crate::refusal::Refusal;

/// What becomes of a request that came by a front end with sites.
pub(super) fn decide(state: &mut LoopState, front: FrontId, request: &Request<'_>) -> Way {
    let upstreams = state.upstreams.as_ref().expect("a proxy has them");
    // What a proxy in front says of the client's scheme counts, where it is believed: else it would be led round.
    let is_secure = ask::is_secure(upstreams, front, request);
    let leads_to_https = upstreams.frontends.get(front).leads_to_https && !is_secure;
    let sites = state.sites.as_mut().expect("a front end without a backend has them");
    sites.decide(is_secure, leads_to_https, request)
}

/// Has the handler of a route answer. Files are read where bytes go through another protocol.
pub(super) fn respond(
    state: &mut LoopState,
    actions: &mut Actions<'_>,
    (front, route): (FrontId, RouteId),
    request: &Request<'_>,
    context: Context,
    reads_all: bool,
) -> Answered {
    let LoopState { sites, of_fronts, now, counters, .. } = state;
    let sites = sites.as_mut().expect("it has a route");
    let with = Making { common: &of_fronts[front.place()], now: *now, counters };
    sites.respond(route, &with, actions, request, context, reads_all)
}

/// Answers a request that goes no further.
pub(super) fn end(
    state: &LoopState,
    actions: &mut Actions<'_>,
    front: FrontId,
    context: Context,
    ending: Ending,
) -> Answered {
    let common = state.common_of(front);
    match ending {
        Ending::Refused(Refusal::OtherMethod) => {
            ask::answer_here(actions, common, context, Some(Refusal::OtherMethod))
        }
        Ending::Methods => ask::answer_here(actions, common, context, None),
        Ending::Refused(refusal) => {
            let (status, why) = (refusal.status(), refusal.reason());
            let answered = match why {
                "" => answer::page(actions, common, context, status, |_| {}),
                why => answer::explained(actions, common, context, status, why, |_| {}),
            };
            answered.refused(refusal)
        }
        Ending::Unsound(rejection) => {
            let why = explanation(&rejection, &state.head_limits);
            let answered =
                answer::explained(actions, common, context, rejection.status, &why, |_| {});
            answered.refused(Refusal::UnsoundPath)
        }
        Ending::NotFound => answer::page(actions, common, context, Status::NOT_FOUND, |_| {}),
        Ending::Moved(status) => {
            let sites = state.sites.as_ref().expect("one of them leads there");
            answer::page(actions, common, context, status, |head| {
                head.field("Location", sites.location());
            })
        }
    }
}
