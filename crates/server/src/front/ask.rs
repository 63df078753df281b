//! What becomes of a request at a proxy, whatever its client speaks: it goes to a backend, or is answered here.
//!
//! `h1/later.rs` and `h2/later.rs` call it, each for its own connection; the steps behind it are those of
//! `exchange/request.rs`.

use pollux_engine::Actions;
use pollux_http::h2::NeverIndexed;
use pollux_http::{Method, Request, RequestKind, Status};

use crate::backends::groups::hash;
use crate::config::Balance;
use crate::counters::index_of;
use crate::exchange::asker::Asker;
use crate::exchange::request::{Asked, NewHead};
use crate::exchange::stream::header_of;
use crate::exchange::upstreams::Upstreams;
use crate::fault::Fault;
use crate::front::client::Client;
use crate::front::state::LoopState;
use crate::handlers::answer;
use crate::handlers::answer::{Answered, Context, Persistence};
use crate::head::Version;
use crate::head::cache::{RequestFacts, RequestKey};
use crate::head::common::{Common, FieldContext};
use crate::head::proxied::is_idempotent;
use crate::ids::{ExchangeId, FrontId, GroupId, RouteId};
use crate::refusal::Refusal;

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
    /// No other one follows on its connection.
    pub(super) is_last: bool,
}

/// Where a request goes that is passed on.
#[derive(Clone, Copy, Debug)]
pub(super) struct To {
    pub(super) group: GroupId,
    /// The route that leads there, where there are sites.
    pub(super) route: Option<RouteId>,
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
    upstreams: &Upstreams,
    actions: &Actions<'_>,
    client: &mut Client,
    front: FrontId,
    request: &Request<'_>,
    version: Version,
    to: To,
) -> Verdict {
    let Ok(max_forwards) = max_forwards(request) else { return Verdict::Here(None) };
    let frontends = &upstreams.frontends;
    if request.target.is_https() && !is_secure(upstreams, front, request) {
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
        key: match upstreams.balance(to.group) {
            Balance::Client => hash(client.address().as_bytes()),
            Balance::Path => hash(request.target.path_and_query().unwrap_or_default()),
            _ => 0,
        },
        rules: frontends.rules(front).for_request(request),
        group: to.group,
        route: to.route,
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
    let LoopState { upstreams, log, head_limits, sites, .. } = state;
    let upstreams = upstreams.as_mut().expect("a proxy has backends");
    let is_last = origin.is_last || !facts.keep_alive;
    let asked = asked(upstreams, actions, client, Origin { is_last, ..origin }, facts.group);
    let log = log.as_ref();
    let (target, limits) = match (facts.route, sites) {
        (Some(route), Some(sites)) => (Some(sites.target()), sites.limits(route)),
        _ => (None, &*head_limits),
    };
    if let Some(target) = target
        && upstreams.balance(facts.group) == Balance::Path
    {
        // However it was spelled.
        facts.key = hash(target);
    }
    let new = NewHead { request, head, target, facts, max_forwards, never_indexed, limits, log };
    upstreams.begin(&asked, &new)
}

/// The same, if the head in front of `input` is the last one of this loop again; says how long that is too.
pub(super) fn begin_again(
    state: &mut LoopState,
    actions: &Actions<'_>,
    client: &Client,
    origin: Origin,
    input: &[u8],
) -> Option<(ExchangeId, usize)> {
    let upstreams = state.upstreams();
    let is_secure = upstreams.frontends.secured(origin.front).is_some();
    let (front, is_stream) = (origin.front, origin.asker.is_stream());
    let by = RequestKey { front, is_secure, is_stream, peer: &client.known()?.address };
    let last = upstreams.repeats.request.take_if(|last| last.is(input, by))?;
    state.counters.count_request_at(last.facts.method);
    let upstreams = state.upstreams();
    let is_last = origin.is_last || !last.facts.keep_alive;
    let to = last.facts.group;
    let asked = asked(upstreams, actions, client, Origin { is_last, ..origin }, to);
    let at = upstreams.begin_again(&asked, &last);
    let head_bytes = last.len();
    upstreams.repeats.request = Some(last);
    Some((at, head_bytes))
}

/// What an exchange has to know of the client.
#[inline]
fn asked<'c>(
    upstreams: &Upstreams,
    actions: &Actions<'_>,
    client: &'c Client,
    origin: Origin,
    group: GroupId,
) -> Asked<'c> {
    let Origin { asker, front, is_last } = origin;
    // Its PROXY head in front of a connection to a backend.
    let header = upstreams.groups[group.place()].sends_header.is_some().then(|| {
        let said = client.known().and_then(|peer| peer.header);
        said.unwrap_or_else(|| header_of(actions))
    });
    let is_secure = upstreams.frontends.secured(front).is_some();
    Asked { asker, front, is_secure, group, peer: client.address(), header, is_last }
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
    let exchange = state.upstreams().exchange(at);
    let context = Context {
        persistence,
        is_head: exchange.kind == RequestKind::Head,
        asked: FieldContext::of_rules(exchange.rules),
    };
    let (front, status, details) = (exchange.front, fault.status(), exchange.details(fault));
    let proxy_status = format!("pollux;error={};details=\"{details}\"", fault.error_type());
    let why = because.unwrap_or(&details);
    let common = state.common_of(front);
    let answered = answer::explained(actions, common, context, status, why, |head| {
        head.field("Proxy-Status", proxy_status.as_bytes());
    });
    let exchange = state.upstreams().exchange(at);
    (exchange.status, exchange.refusal) = (Some(status), Refusal::of_page(fault));
    answered
}

/// Whether the client speaks TLS: with this proxy, or with one in front that says so and is believed.
#[inline]
pub(super) fn is_secure(upstreams: &Upstreams, front: FrontId, request: &Request<'_>) -> bool {
    let frontends = &upstreams.frontends;
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
