//! The one place where a request gets its route, and where it is decided what follows from that, whatever its client speaks:
//! `h1/routed.rs` and `h2/routed.rs` do it, each for its own connection. It is asked anew where a request is answered later than it came, as it gives the same again.

use std::net::IpAddr;
use std::sync::Arc;

use pollux_engine::Actions;
use pollux_http::{HeadWriter, Limits, Rejection, Request, Status};
use pollux_tls::{ClientVerdict, ShownId};

use crate::front::ask::{self, To};
use crate::front::peer::Client;
use crate::front::state::LoopState;
use crate::handlers::Handler;
use crate::handlers::answer;
use crate::handlers::answer::{Answered, Context};
use crate::handlers::respond::AnswerParts;
use crate::handlers::sites::{Arrival, Ending, Way, is_too_long};
use crate::head::explanation;
use crate::head::shared_fields::FieldContext;
use crate::ids::{FrontId, LimitId, RouteId, UsersId};
use crate::log::Event;
use crate::passwords::{Caller, Checked, Credentials, Ticket};
use crate::rates::Limit;
use crate::refusal::Refusal;

/// Seconds after which clients ask again for what is in maintenance.
const RETRY_AFTER_S: &[u8] = b"300";

/// Seconds after which one asks again whose password could not be checked.
const BUSY_RETRY_AFTER_S: &[u8] = b"5";

/// How a request comes to be decided on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Occasion {
    /// It has just come.
    New,
    /// Its password was looked at: whether it is right; none where that took too long.
    Checked(Option<bool>),
    /// It was let through before.
    Kept,
    /// It was decided before how it ends.
    Ended(Ending),
}

/// What comes of that.
#[derive(Debug)]
pub(super) enum Entered {
    Way(Way),
    /// Its password is looked at first.
    Later(Arc<Ticket>),
}

/// What follows for a request whose way is known.
#[derive(Debug)]
pub(super) enum Step {
    /// A backend answers it.
    Pass(To),
    /// Its body is read, and then the handler of its route answers it.
    ReadBody { echoes: bool, limits: Limits },
    /// The handler of its route answers it now; a body that is still to come is not read.
    Answer(RouteId),
    /// It is for an https URI, the connection has no TLS, and its route has a handler.
    WithoutTls,
    /// Nothing is answered.
    Deny,
    /// It goes no further.
    End(Ending),
}

/// Decides what follows for a request that goes this way. `has_body`: one is still to come.
pub(super) fn step(
    state: &LoopState,
    front: FrontId,
    request: &Request<'_>,
    way: Way,
    has_body: bool,
) -> Step {
    if let Way::Backend(_, route) | Way::Handler(route) = way
        && is_too_long(request, state.limits_of(Some(route)))
    {
        return Step::End(Ending::Unsound(Rejection::BODY_LARGE));
    }
    let route = match way {
        Way::Ends(Ending::Denied) => return Step::Deny,
        Way::Ends(ending) => return Step::End(ending),
        Way::Backend(group, route) => {
            let fields = state.fields_routed(front);
            return Step::Pass(To { group, route: Some(route), fields });
        }
        Way::Handler(route) => route,
    };
    let proxy = state.proxy.as_ref().expect("a proxy has them");
    if request.target.is_https() && !ask::is_secure(proxy, front, request) {
        return Step::WithoutTls;
    }
    let sites = state.sites.as_ref().expect("it has a route");
    let handler = sites.handler(route);
    if has_body && handler.allows(request.method) {
        let echoes = matches!(handler, Handler::Echo);
        return Step::ReadBody { echoes, limits: *sites.limits(route) };
    }
    Step::Answer(route)
}

/// What becomes of a request that came by a front end with sites: its route, whether that takes it as often, and from whom.
pub(super) fn enter(
    state: &mut LoopState,
    actions: &Actions<'_>,
    client: &mut Client,
    arrived: (FrontId, Option<ShownId>),
    request: &Request<'_>,
    occasion: Occasion,
) -> Entered {
    let way = decide(state, actions, client, arrived, request);
    let verdict = match occasion {
        Occasion::New => match admit(state, actions, client, way, request) {
            Some(ending) => return Entered::Way(Way::Ends(ending)),
            None => None,
        },
        Occasion::Checked(verdict) => Some(verdict),
        Occasion::Kept => return Entered::Way(way),
        Occasion::Ended(ending) => return Entered::Way(Way::Ends(ending)),
    };
    let shown = client.shown();
    if let Some(ending) = state.sites.as_ref().and_then(|sites| sites.refuse_client(way, shown)) {
        report_client(state, actions, client);
        return Entered::Way(Way::Ends(ending));
    }
    match state.sites.as_ref().and_then(|sites| sites.users(way)) {
        None => Entered::Way(way),
        Some(users) => authenticate(state, actions, client, (way, users), request, verdict),
    }
}

/// Says why the certificate of a client is not believed, where it has shown one.
#[cold]
fn report_client(state: &LoopState, actions: &Actions<'_>, client: &Client) {
    if let Some(ClientVerdict::Refused(why)) = client.shown().map(|shown| &shown.verdict) {
        state.logs.errors.report(Event::RequestRefused, state.now.unix_s, || {
            format!("{}: the client certificate is not believed: {why}", client.name(actions))
        });
    }
}

/// Holds the password of a request against those of users, where it was not looked at before.
#[inline(never)]
fn authenticate(
    state: &mut LoopState,
    actions: &Actions<'_>,
    client: &mut Client,
    (way, users): (Way, UsersId),
    request: &Request<'_>,
    verdict: Option<Option<bool>>,
) -> Entered {
    let ends = |ending| Entered::Way(Way::Ends(ending));
    let mut said = request.fields.all("authorization");
    let credentials = said.next().filter(|_| said.next().is_none()).and_then(Credentials::read);
    let Some(credentials) = credentials else { return ends(Ending::NoPassword(users)) };
    let name = credentials.name().to_owned();
    let sites = state.sites.as_ref().expect("it has users");
    let address: &str = &client.peer(actions).address;
    let checked = match verdict {
        Some(Some(true)) => Checked::Right,
        Some(Some(false)) => {
            state.logs.errors.report(Event::RequestRefused, state.now.unix_s, || {
                format!("{address}: a wrong password for \"{}\"", name.escape_debug())
            });
            return ends(Ending::NoPassword(users));
        }
        Some(None) => Checked::Full,
        None => {
            let Some((passwords, of_loop)) = &state.passwords else {
                return ends(Ending::PasswordsBusy);
            };
            let asker = sites.trusted().client(address.parse().ok(), request.fields);
            let caller = Caller { of_loop: *of_loop, connection: actions.id() };
            passwords.check(users, credentials, asker, caller, state.now.at)
        }
    };
    match checked {
        Checked::Right => {
            if let Some(sites) = &mut state.sites {
                sites.set_user(users, &name);
            }
            Entered::Way(way)
        }
        Checked::Later(ticket) => Entered::Later(ticket),
        Checked::TooOften(wait_s) => ends(Ending::TooManyTries(wait_s)),
        Checked::Full => ends(Ending::PasswordsBusy),
    }
}

/// What becomes of a request that came by a front end with sites, on a connection whose client has seen this certificate.
fn decide(
    state: &mut LoopState,
    actions: &Actions<'_>,
    client: &mut Client,
    (front, shown): (FrontId, Option<ShownId>),
    request: &Request<'_>,
) -> Way {
    let proxy = state.proxy.as_ref().expect("a proxy has them");
    if let Some(certificates) = proxy.frontends.certificates(front)
        && !certificates.is_of_host(shown, request.host())
    {
        // Nothing of the request before is meant.
        if let Some(sites) = &mut state.sites {
            sites.forget();
        }
        return Way::Ends(Ending::Refused(Refusal::OtherCertificate));
    }
    // What a proxy in front says of the client's scheme counts, where it is believed: else it would be led round.
    let is_secure = ask::is_secure(proxy, front, request);
    let leads_to_https = proxy.frontends.get(front).leads_to_https && !is_secure;
    let sites = state.sites.as_mut().expect("a front end without a backend has them");
    let mut peer = || client.peer(actions).address.parse::<IpAddr>().ok();
    sites.decide(&mut Arrival { is_secure, leads_to_https, peer: &mut peer }, request)
}

/// What the answer to the request that was decided on last depends on.
pub(super) fn asked(state: &LoopState, front: FrontId, request: &Request<'_>) -> FieldContext {
    state.common_routed(front).asked(request)
}

/// Charges a request of which this becomes to what its route is held to, once; how it is answered where that is too much.
#[inline]
fn admit(
    state: &LoopState,
    actions: &Actions<'_>,
    client: &mut Client,
    way: Way,
    request: &Request<'_>,
) -> Option<Ending> {
    let (Way::Backend(_, route) | Way::Handler(route)) = way else { return None };
    let limits = state.sites.as_ref().expect("it has a route").rates(route);
    match limits {
        [] => None,
        limits => charge(state, actions, client, limits, request),
    }
}

#[inline(never)]
fn charge(
    state: &LoopState,
    actions: &Actions<'_>,
    client: &mut Client,
    limits: &[LimitId],
    request: &Request<'_>,
) -> Option<Ending> {
    let rates = state.rates.as_ref()?;
    let report = |limit: &Limit, how: &str, client: &str| {
        state.logs.errors.report(Event::RequestRefused, state.now.unix_s, || {
            format!("{client}: more often than limit \"{}\" allows{how}", limit.name())
        });
    };
    let address: &str = &client.peer(actions).address;
    // Behind proxies that are trusted they say whose request it is. One that says nothing sound of it is charged itself.
    let trusted = state.sites.as_ref().map(|sites| sites.trusted());
    let said = trusted.filter(|trusted| !trusted.is_empty()).and_then(|trusted| {
        trusted.client(address.parse().ok(), request.fields).map(|client| client.to_string())
    });
    let address = said.as_deref().unwrap_or(address);
    let excused = |limit: &Limit| report(limit, ", which is a dry run", address);
    let over = rates.admit(limits, address, request, state.now.at, excused).err()?;
    report(over.limit, "", address);
    Some(Ending::TooOften(over.wait_s))
}

/// Has the handler of a route answer. Files are read where bytes go through another protocol.
pub(super) fn respond(
    state: &mut LoopState,
    actions: &mut Actions<'_>,
    route: RouteId,
    request: &Request<'_>,
    context: Context,
    reads_all: bool,
) -> Answered {
    let LoopState { sites, commons, now, counters, .. } = state;
    let sites = sites.as_mut().expect("it has a route");
    let common = &commons[context.asked.set().place()];
    let with = AnswerParts { common, now: *now, counters };
    sites.respond(route, &with, actions, request, context, reads_all)
}

/// Counts an answer of the route of the request that was decided on last, where it has one.
pub(super) fn count(state: &LoopState, status: Status) {
    let route = state.sites.as_ref().and_then(|sites| sites.route());
    if let (Some(route), Some(proxy)) = (route, &state.proxy) {
        let counted = proxy.epochs.now().counted[route.place()];
        proxy.proxied.count_route(counted, status);
    }
}

/// Answers a request that goes no further.
pub(super) fn end(
    state: &LoopState,
    actions: &mut Actions<'_>,
    context: Context,
    ending: Ending,
) -> Answered {
    let common = state.common_by(context.asked);
    match ending {
        Ending::Refused(Refusal::OtherMethod) => {
            ask::answer_here(actions, common, context, Some(Refusal::OtherMethod))
        }
        Ending::Methods => ask::answer_here(actions, common, context, None),
        Ending::Refused(refusal) => {
            refusal.count(&state.counters);
            let status = refusal.status();
            let why = refusal.reason();
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
        Ending::TooOften(wait_s) => {
            let wait = wait_s.to_string();
            refuse_for(state, actions, context, Refusal::TooOften, wait.as_bytes())
        }
        Ending::NoPassword(users) => {
            let refusal = Refusal::NoPassword;
            refusal.count(&state.counters);
            let answered = answer::page(actions, common, context, refusal.status(), |head| {
                if let Some((passwords, _)) = &state.passwords {
                    head.field("WWW-Authenticate", passwords.challenge(users).as_bytes());
                }
            });
            answered.refused(refusal)
        }
        Ending::TooManyTries(wait_s) => {
            let wait = wait_s.to_string();
            refuse_for(state, actions, context, Refusal::TooManyTries, wait.as_bytes())
        }
        Ending::PasswordsBusy => {
            refuse_for(state, actions, context, Refusal::PasswordsBusy, BUSY_RETRY_AFTER_S)
        }
        Ending::Maintenance(route) => {
            let sites = state.sites.as_ref().expect("one of them is in maintenance");
            let add = |head: &mut HeadWriter<'_>| {
                head.field("Retry-After", RETRY_AFTER_S).field("Cache-Control", b"no-store");
            };
            let page = route.and_then(|route| sites.page(route));
            answer::page_of(actions, common, context, Status::UNAVAILABLE, page, add)
        }
        Ending::Denied => unreachable!("it gets no answer"),
        Ending::NotFound => answer::page(actions, common, context, Status::NOT_FOUND, |_| {}),
        Ending::Moved(status) => {
            let sites = state.sites.as_ref().expect("one of them leads there");
            answer::page(actions, common, context, status, |head| {
                head.field("Location", sites.location());
            })
        }
    }
}

/// Refuses a request for now; after so many seconds it may come again.
fn refuse_for(
    state: &LoopState,
    actions: &mut Actions<'_>,
    context: Context,
    refusal: Refusal,
    wait_s: &[u8],
) -> Answered {
    refusal.count(&state.counters);
    let common = state.common_by(context.asked);
    let status = refusal.status();
    let why = refusal.reason();
    let answered = answer::explained(actions, common, context, status, why, |head| {
        head.field("Retry-After", wait_s).field("Cache-Control", b"no-store");
    });
    answered.refused(refusal)
}
