//! What becomes of a request at a proxy, whatever its client speaks: it goes to a backend, or is answered here.
//!
//! `h1/later.rs` and `h2/later.rs` call it, each for its own connection; the steps behind it are those of
//! `exchange/request.rs`.

use pollux_engine::Actions;
use pollux_http::h2::NeverIndexed;
use pollux_http::{Method, Request, RequestKind, Status};
use pollux_tls::ShownId;

use crate::backends::groups::hash;
use crate::config::Balance;
use crate::counters::index_of;
use crate::exchange::asker::Asker;
use crate::exchange::proxy_loop::ProxyLoop;
use crate::exchange::request::{Asked, NewHead};
use crate::exchange::tcp::header_of;
use crate::fault::Fault;
use crate::front::peer::Client;
use crate::front::state::LoopState;
use crate::handlers::answer;
use crate::handlers::answer::{Answered, Context, Persistence};
use crate::handlers::sites::SiteHandlers;
use crate::head::Version;
use crate::head::cache::{RequestFacts, RequestKey};
use crate::head::proxied::is_idempotent;
use crate::head::shared_fields::{Common, FieldContext};
use crate::ids::{ExchangeId, FieldSetId, FrontId, GroupId, RouteId};
use crate::refusal::Refusal;
use crate::sticky::Brought;

/// Methods that are passed on.
const ALLOW: &[u8] = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// What becomes of a request.
#[derive(Debug)]
pub(super) enum Verdict {
    /// A backend answers it; with what is left of Max-Forwards, where it counts.
    Passed(RequestFacts, Option<u64>),
    /// It goes no further: it is refused, or asks which methods there are.
    Here(Option<Refusal>),
    /// It is for an https URI, and the connection has no TLS.
    Https,
}

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) asker: Asker,
    pub(super) front: FrontId,
    /// The certificate that its client has seen, where there are several by name.
    pub(super) shown: Option<ShownId>,
    /// No other one follows on its connection.
    pub(super) is_last: bool,
}

/// Where a request goes that is passed on.
#[derive(Clone, Copy, Debug)]
pub(super) struct To {
    pub(super) group: GroupId,
    /// The route that leads there, where there are sites.
    pub(super) route: Option<RouteId>,
    /// What is done to its fields, and those of its answer.
    pub(super) fields: FieldSetId,
}

impl To {
    /// Where a front end without sites leads to.
    pub(super) fn of_front(front: FrontId, group: GroupId) -> Self {
        Self { group, route: None, fields: FieldSetId::of_front(front) }
    }
}

/// A request that is passed on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed<'a> {
    pub(super) request: &'a Request<'a>,
    pub(super) head: &'a [u8],
    pub(super) facts: RequestFacts,
    pub(super) max_forwards: Option<u64>,
    /// What of it is put into no table at the next hop.
    pub(super) never_indexed: NeverIndexed,
}

/// What becomes of a sound request; who asked is known from then on where it is passed on.
pub(super) fn judge(
    proxy: &ProxyLoop,
    actions: &Actions<'_>,
    client: &mut Client,
    front: FrontId,
    request: &Request<'_>,
    version: Version,
    to: To,
) -> Verdict {
    let Ok(max_forwards) = max_forwards(request) else { return Verdict::Here(None) };
    if request.target.is_https() && !is_secure(proxy, front, request) {
        return Verdict::Https;
    }
    if matches!(request.method, Method::Connect | Method::Trace) {
        return Verdict::Here(Some(Refusal::OtherMethod));
    }
    client.peer(actions);
    let facts = RequestFacts {
        method: index_of(request.method),
        kind: RequestKind::of(request.method),
        is_idempotent: is_idempotent(request.method),
        version,
        keep_alive: request.keep_alive,
        key: match proxy.balance(to.group) {
            Balance::Client => hash(client.address().as_bytes()),
            Balance::Path => hash(request.target.path_and_query().unwrap_or_default()),
            _ => 0,
        },
        brought: match &proxy.groups[to.group.place()].cookie {
            None => Brought::default(),
            Some(cookie) => Brought {
                mark: cookie.brought(request),
                is_secure: is_secure(proxy, front, request),
            },
        },
        fields: to.fields,
        rules: proxy.rules(to.fields).for_request(request),
        group: to.group,
        route: to.route,
        wishes: proxy.changes(to.fields).wished(request, version),
    };
    Verdict::Passed(facts, max_forwards)
}

/// Begins the exchange of a request that is passed on.
pub(super) fn begin(
    state: &mut LoopState,
    actions: &Actions<'_>,
    client: &Client,
    origin: Origin,
    passed: Passed<'_>,
) -> ExchangeId {
    let Passed { request, head, mut facts, max_forwards, never_indexed } = passed;
    let LoopState { proxy, log, head_limits, sites, current_id, .. } = state;
    let proxy = proxy.as_mut().expect("a proxy has backends");
    let is_last = origin.is_last || !facts.keep_alive;
    let asked = asked(proxy, actions, client, Origin { is_last, ..origin }, facts.group);
    let log = log.as_ref();
    let is_of_site = facts.route.is_some();
    let sites = sites.as_deref();
    // What another proxy says of one is not said of the next one.
    let may_repeat_id = sites.is_none_or(SiteHandlers::may_repeat_id);
    let user =
        sites.filter(|_| is_of_site).map_or(("", ""), |sites| (sites.user(), sites.user_passed()));
    // A connection that has shown another certificate, or none, may send the same bytes.
    let asks_client = sites.is_some_and(|sites| is_of_site && sites.asked().is_some());
    let client_shown = client.identity();
    let (target, limits, may_repeat) = match (facts.route, sites) {
        // Each request is charged to what the route is held to.
        (Some(route), Some(sites)) => {
            let is_held = !sites.rates(route).is_empty() || sites.is_guarded(route);
            let may_repeat = may_repeat_id && !is_held && client.shown().is_none() && !asks_client;
            (Some(sites.target()), sites.limits(route), may_repeat)
        }
        _ => (None, &*head_limits, may_repeat_id),
    };
    if let Some(target) = target
        && proxy.balance(facts.group) == Balance::Path
    {
        // However it was spelled.
        facts.key = hash(target);
    }
    let names = match (facts.route, sites) {
        (Some(route), Some(sites)) if log.is_some() => sites.names_of(route),
        _ => ("", ""),
    };
    let has_ids = sites.is_some_and(SiteHandlers::has_ids);
    let id = if has_ids { current_id.with(str::to_owned) } else { String::new() };
    let new = NewHead {
        request,
        head,
        // One of settings before these says nothing of the next one.
        may_repeat: may_repeat && proxy.epochs.current() == proxy.epochs.newest(),
        names,
        target,
        user,
        client: client_shown,
        client_passed: asks_client,
        id: &id,
        facts,
        max_forwards,
        never_indexed,
        limits,
        log,
    };
    proxy.begin(&asked, &new)
}

/// The same, if the head in front of `input` is the last one of this loop again; says how long that is too.
pub(super) fn begin_again(
    state: &mut LoopState,
    actions: &Actions<'_>,
    client: &Client,
    origin: Origin,
    input: &[u8],
) -> Option<(ExchangeId, usize)> {
    if state.sites.as_ref().is_some_and(|sites| sites.has_orders()) {
        // What was decided before may not hold.
        return None;
    }
    let proxy = state.proxy();
    let is_secure = proxy.frontends.secured(origin.front).is_some();
    let Origin { front, shown, .. } = origin;
    let is_stream = origin.asker.is_stream();
    let by = RequestKey { front, is_secure, is_stream, shown, peer: &client.known()?.address };
    let last = proxy.repeats.request.take_if(|last| last.is(input, by))?;
    state.counters.count_request_at(last.facts.method);
    let LoopState { proxy, sites, current_id, .. } = state;
    let proxy = proxy.as_mut().expect("a proxy has backends");
    let is_last = origin.is_last || !last.facts.keep_alive;
    let to = last.facts.group;
    let asked = asked(proxy, actions, client, Origin { is_last, ..origin }, to);
    let at = match sites.as_mut().filter(|sites| sites.has_ids()) {
        Some(sites) => {
            sites.identify_again(proxy.now.unix_s);
            current_id.with(|id| proxy.begin_again(&asked, &last, id))
        }
        None => proxy.begin_again(&asked, &last, ""),
    };
    let head_bytes = last.len();
    proxy.repeats.request = Some(last);
    Some((at, head_bytes))
}

/// What an exchange has to know of the client.
#[inline]
fn asked<'c>(
    proxy: &ProxyLoop,
    actions: &Actions<'_>,
    client: &'c Client,
    origin: Origin,
    group: GroupId,
) -> Asked<'c> {
    let Origin { asker, front, shown, is_last } = origin;
    // Its PROXY head in front of a connection to a backend.
    let header = proxy.groups[group.place()].sends_header.is_some().then(|| {
        let said = client.known().and_then(|peer| peer.header);
        said.unwrap_or_else(|| header_of(actions))
    });
    let is_secure = proxy.frontends.secured(front).is_some();
    Asked { asker, front, is_secure, shown, group, peer: client.address(), header, is_last }
}

/// Answers a request that goes no further: refuses it, or says which methods there are.
pub(super) fn answer_here(
    actions: &mut Actions<'_>,
    common: &Common,
    context: Context,
    refusal: Option<Refusal>,
) -> Answered {
    match refusal {
        Some(refusal) => answer::other_method(actions, common, context, refusal, ALLOW),
        None => answer::empty(actions, common, context, Status::NO_CONTENT, |head| {
            head.field("Allow", ALLOW);
        }),
    }
}

/// An answer of the proxy in place of one of the backend.
pub(super) fn answer_fault(
    state: &mut LoopState,
    actions: &mut Actions<'_>,
    at: ExchangeId,
    fault: Fault,
    because: Option<&str>,
    persistence: Persistence,
) -> Answered {
    let exchange = state.proxy().exchange(at);
    let context = Context {
        persistence,
        is_head: exchange.kind == RequestKind::Head,
        asked: FieldContext::of_rules(exchange.fields, exchange.rules),
    };
    let status = fault.status();
    let details = exchange.details(fault);
    let proxy_status = match fault {
        // Nothing has gone wrong here (RFC 9209 2.1.5).
        Fault::Replaced(status) => format!("pollux;received-status={}", status.code()),
        _ => format!("pollux;error={};details=\"{details}\"", fault.error_type()),
    };
    let why = because.unwrap_or(&details);
    let exchange = state.proxy().exchange(at);
    let id = exchange.request_id().to_owned();
    state.current_id.set(&id);
    let common = state.common_by(context.asked);
    let answered = answer::explained(actions, common, context, status, why, |head| {
        head.field("Proxy-Status", proxy_status.as_bytes());
    });
    let exchange = state.proxy().exchange(at);
    (exchange.status, exchange.refusal) = (Some(status), Refusal::of_page(fault));
    answered
}

/// Whether the client speaks TLS: with this proxy, or with one in front that says so and is believed.
#[inline]
pub(super) fn is_secure(proxy: &ProxyLoop, front: FrontId, request: &Request<'_>) -> bool {
    let frontends = &proxy.frontends;
    frontends.secured(front).is_some()
        || (frontends.get(front).x_forwarded.believes() && is_said_secure(request))
}

/// Whether a proxy in front says that the client speaks TLS with it.
#[cold]
fn is_said_secure(request: &Request<'_>) -> bool {
    let said = request.fields.first("x-forwarded-proto");
    said.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"https"))
}

/// What is left of Max-Forwards for the next one, where it counts: with OPTIONS (TRACE goes no
/// further anyway). An error when it is used up (RFC 9110 7.6.2).
fn max_forwards(request: &Request<'_>) -> Result<Option<u64>, ()> {
    if request.method != Method::Options {
        return Ok(None);
    }
    let Some(value) = request.fields.first("max-forwards") else { return Ok(None) };
    // A number that does not fit is more than this proxy counts (RFC 9110 7.6.2).
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let number = str::from_utf8(value).ok().filter(|_| is_number);
    match number.map(|text| text.parse::<u64>().unwrap_or(u64::MAX)) {
        Some(0) => Err(()),
        Some(left) => Ok(Some(left - 1)),
        None => Ok(None),
    }
}
