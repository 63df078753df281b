//! The sites and their routes in the order in which they are tried, made once of what the settings say.
//!
//! | of | the first one |
//! |---|---|
//! | sites | the name itself, then the longest domain (`*.example.org`), then `*` |
//! | routes | one path; then those whose text up to the first `*` is longer; of equal texts those with a `*`, the longer one first; then those that ask for more beside the path; then by their order in the file |
//!
//! How long a rule is as a text decides nothing, and neither does the order of the file but for routes of which all else is
//! equal: of those two that one request may take are named when the settings are read.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::Range;

use pollux_http::Rejection;

use crate::ids::{RouteId, SiteId};
use crate::route::conditions::{ConditionInput, Conditions};
use crate::route::host::{HOST_BYTES_MAX, HostName, folded, has_one_reading};
use crate::route::path::{PathPattern, PathRoom, ReadPath, Shape, TWO_ROUTES};

/// What is asked for below it is for those who issue certificates, by whatever name and scheme they ask.
pub(crate) const ACME: &[u8] = b"/.well-known/acme-challenge/";

/// A site as the settings have it.
#[derive(Clone, Debug)]
pub(crate) struct SiteRules {
    pub(crate) hosts: Vec<HostName>,
    /// Whether requests by other names are led to the first one.
    pub(crate) is_canonical: bool,
    pub(crate) routes: Vec<RouteRule>,
}

/// A route as the settings have it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RouteRule {
    pub(crate) path: PathPattern,
    pub(crate) conditions: Conditions,
}

/// What becomes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decision<'t> {
    /// No site has its host.
    UnknownHost,
    /// It is led to https, at the same host.
    Https,
    /// It is led to this name of its site.
    Canonical(&'t str),
    /// No route of its site takes it.
    NoRoute,
    Route(RouteId),
}

/// What was decided, and what is known by then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Decided<'t, 'r> {
    pub(crate) decision: Decision<'t>,
    /// That of its host.
    pub(crate) site: Option<SiteId>,
    /// None where the path did not matter.
    pub(crate) path: Option<ReadPath<'r>>,
}

/// A request, as far as it decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouteInput<'r> {
    /// Whether the front end leads everything to https.
    pub(crate) leads_to_https: bool,
    /// As it was sent, with its port.
    pub(crate) host: Option<&'r str>,
    /// As it was sent.
    pub(crate) path: &'r str,
    pub(crate) asking: ConditionInput<'r>,
}

/// All sites.
#[derive(Debug)]
pub(crate) struct Table {
    /// By name; that of all below a domain has its dot in front.
    by_host: HashMap<Box<[u8]>, SiteId>,
    has_domains: bool,
    any: Option<SiteId>,
    sites: Box<[Site]>,
}

#[derive(Debug)]
struct Site {
    /// Where requests by its other names are led.
    canonical: Option<String>,
    order: Box<[Tried]>,
    /// Of routes for one path, which stand first.
    by_path: HashMap<Box<[u8]>, Range<usize>>,
    /// Of the others, by what they begin with.
    starts: Box<[Start]>,
}

/// Routes whose patterns begin with the same text, of those of a site in the order of these texts.
///
/// All texts that a path begins with are the one next before it in that order, or that one's `shorter`, or that one's, and so
/// on: so those routes that may take a path are found by a search in halves, however many there are.
#[derive(Debug)]
struct Start {
    text: Box<[u8]>,
    /// Where they stand in the order.
    routes: Range<usize>,
    /// The longest one of the others that this one begins with.
    shorter: Option<usize>,
}

/// A route in its place.
#[derive(Debug)]
pub(crate) struct Tried {
    pub(crate) route: RouteId,
    pub(crate) rule: RouteRule,
}

/// What of two routes of a site a person has to know: the first one is tried before the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Finding {
    /// All that the second one takes is taken by the first.
    NeverReached(RouteId, RouteId),
    /// Only their order in the file says which of both takes a request that fits both.
    OnlyByOrder(RouteId, RouteId),
}

impl Table {
    /// That of these sites. Their routes are numbered through, in the order of the file.
    pub(crate) fn new(sites: impl IntoIterator<Item = SiteRules>) -> Self {
        let mut table =
            Self { by_host: HashMap::new(), has_domains: false, any: None, sites: Box::default() };
        let mut all = Vec::new();
        let mut first = 0;
        for (place, rules) in sites.into_iter().enumerate() {
            let id = SiteId::of_place(place);
            for host in &rules.hosts {
                match host {
                    HostName::Any => table.any = Some(id),
                    HostName::Exact(name) | HostName::Below(name) => {
                        table.has_domains |= matches!(host, HostName::Below(_));
                        table.by_host.insert(name.as_bytes().into(), id);
                    }
                }
            }
            let count = rules.routes.len();
            all.push(Site::new(rules, first));
            first += count;
        }
        table.sites = all.into();
        table
    }

    /// What becomes of a request.
    ///
    /// # Errors
    /// Its host or its path has not one reading.
    #[inline]
    pub(crate) fn decide<'t, 'r>(
        &'t self,
        came: &RouteInput<'r>,
        room: &'r mut PathRoom,
    ) -> Result<Decided<'t, 'r>, Rejection> {
        has_one_reading(came.host.unwrap_or_default())?;
        let ends = |decision, site| Ok(Decided { decision, site, path: None });
        let Some(id) = self.site(came.host) else { return ends(Decision::UnknownHost, None) };
        let site = &self.sites[id.place()];
        if !came.path.as_bytes().starts_with(ACME) {
            if came.leads_to_https {
                return ends(Decision::Https, Some(id));
            }
            if let Some(name) = site.canonical_for(came.host) {
                return ends(Decision::Canonical(name), Some(id));
            }
        }
        let path = ReadPath::of(came.path.as_bytes(), room)?;
        let route = site.route(path.matched, &came.asking);
        // What follows a ; is left out by some backends: no stricter route may be passed by so.
        if path.bare.is_some_and(|bare| site.route(bare, &came.asking) != route) {
            return Err(TWO_ROUTES);
        }
        let decision = route.map_or(Decision::NoRoute, Decision::Route);
        Ok(Decided { decision, site: Some(id), path: Some(path) })
    }

    /// The site that has this host.
    pub(crate) fn site(&self, host: Option<&str>) -> Option<SiteId> {
        let mut room = [0; HOST_BYTES_MAX];
        let host = host.and_then(|host| folded(host.as_bytes(), &mut room)).unwrap_or_default();
        // That would be the name of a domain, which itself is none of the hosts below it.
        let is_name = !host.starts_with(b".");
        if let Some(id) = self.by_host.get(host).filter(|_| is_name) {
            return Some(*id);
        }
        if self.has_domains {
            let dots = host.iter().enumerate().filter(|(at, byte)| **byte == b'.' && *at > 0);
            let mut domains = dots.map(|(at, _)| &host[at..]);
            if let Some(id) = domains.find_map(|domain| self.by_host.get(domain)) {
                return Some(*id);
            }
        }
        self.any
    }

    /// The routes of a site, in the order in which they are tried.
    pub(crate) fn order(&self, site: SiteId) -> &[Tried] {
        &self.sites[site.place()].order
    }

    /// What a person has to know of the routes of all sites.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        self.sites.iter().flat_map(Site::findings).collect()
    }
}

impl Site {
    fn new(rules: SiteRules, first: usize) -> Self {
        let canonical = rules.hosts.first().map(ToString::to_string);
        let numbered = rules.routes.into_iter().enumerate();
        let mut order: Vec<Tried> = numbered
            .map(|(place, rule)| Tried { route: RouteId::of_place(first + place), rule })
            .collect();
        // Stable: what is equal stays as it is in the file.
        order.sort_by_cached_key(|tried| tried.rule.rank());
        let patterns_from = order.partition_point(|tried| tried.exact().is_some());
        // Those of one path stand together, whatever else of the same length there is.
        order[..patterns_from].sort_by(|one, two| one.exact().cmp(&two.exact()));
        // So do those that begin with the same text, within those that begin with one as long.
        order[patterns_from..].sort_by(|one, two| {
            let one = one.rule.path.start();
            let two = two.rule.path.start();
            two.len().cmp(&one.len()).then_with(|| one.cmp(two))
        });
        let mut by_path: HashMap<Box<[u8]>, Range<usize>> = HashMap::new();
        for (at, tried) in order[..patterns_from].iter().enumerate() {
            let path = tried.exact().unwrap_or_default();
            by_path.entry(path.into()).or_insert(at..at).end = at + 1;
        }
        Self {
            canonical: canonical.filter(|_| rules.is_canonical),
            starts: Start::all(&order, patterns_from),
            order: order.into(),
            by_path,
        }
    }

    /// Where a request by this host is led, if that is another name than the first.
    fn canonical_for(&self, host: Option<&str>) -> Option<&str> {
        let first = self.canonical.as_deref()?;
        let mut room = [0; HOST_BYTES_MAX];
        let host = host.and_then(|host| folded(host.as_bytes(), &mut room));
        (host != Some(first.as_bytes())).then_some(first)
    }

    #[inline]
    fn route(&self, path: &[u8], asking: &ConditionInput<'_>) -> Option<RouteId> {
        let takes = |tried: &&Tried| tried.rule.conditions.lacking(asking).is_none();
        let of_path = if self.by_path.is_empty() { None } else { self.by_path.get(path) };
        let of_path = of_path.and_then(|range| self.order[range.clone()].iter().find(takes));
        let found = of_path.or_else(|| {
            let mut starts = Start::before(&self.starts, path);
            starts.find_map(|start| {
                let mut routes = self.order[start.routes.clone()].iter();
                routes.find(|tried| tried.rule.path.matches(path) && takes(tried))
            })
        });
        found.map(|tried| tried.route)
    }

    fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        // Routes that differ in their start have little to do with each other: they are compared by it.
        let mut by_start: HashMap<&[u8], Vec<&Tried>> = HashMap::new();
        for tried in &self.order {
            let earlier = by_start.entry(tried.rule.path.start()).or_default();
            let mut before = earlier.iter().copied();
            if let Some(one) = before.clone().find(|one| one.rule.covers(&tried.rule)) {
                findings.push(Finding::NeverReached(one.route, tried.route));
            } else if let Some(one) = before.find(|one| one.rule.is_equal_to(&tried.rule)) {
                findings.push(Finding::OnlyByOrder(one.route, tried.route));
            }
            earlier.push(tried);
        }
        findings
    }
}

impl Start {
    /// Those of the routes of a site, behind so many for one path.
    fn all(order: &[Tried], patterns_from: usize) -> Box<[Self]> {
        let mut starts: Vec<Self> = Vec::new();
        for (at, tried) in order.iter().enumerate().skip(patterns_from) {
            let text = tried.rule.path.start();
            match starts.last_mut().filter(|last| *last.text == *text) {
                Some(last) => last.routes.end = at + 1,
                None => starts.push(Self { text: text.into(), routes: at..at + 1, shorter: None }),
            }
        }
        starts.sort_by(|one, two| one.text.cmp(&two.text));
        // What this one begins with stands before it, and so does all that begins with that.
        let mut open: Vec<usize> = Vec::new();
        for at in 0..starts.len() {
            while open.last().is_some_and(|last| !starts[at].text.starts_with(&starts[*last].text))
            {
                open.pop();
            }
            starts[at].shorter = open.last().copied();
            open.push(at);
        }
        starts.into()
    }

    /// Those of these that a path may begin with, the longest first: with a slash behind it as well, as a folder may be asked for
    /// without its own.
    #[inline]
    fn before<'s>(starts: &'s [Self], path: &[u8]) -> impl Iterator<Item = &'s Self> {
        let is_not_behind = |start: &Self| {
            let text = &*start.text;
            match text.get(path.len()) {
                None => text <= path,
                Some(byte) => match text[..path.len()].cmp(path) {
                    Ordering::Equal => {
                        *byte == b'/' && text.len() == path.len() + 1 || *byte < b'/'
                    }
                    order => order.is_lt(),
                },
            }
        };
        let first = starts.partition_point(is_not_behind).checked_sub(1);
        std::iter::successors(first, |at| starts[*at].shorter).map(|at| &starts[at])
    }
}

impl Tried {
    /// The path, of a route for one.
    fn exact(&self) -> Option<&[u8]> {
        match self.rule.path.shape() {
            Shape::Exact(path) => Some(path),
            Shape::Below(_) | Shape::Parts(_) => None,
        }
    }
}

impl RouteRule {
    /// By what it comes before others, the first ones first.
    fn rank(&self) -> impl Ord + use<> {
        (self.path.rank(), std::cmp::Reverse(self.conditions.count()))
    }

    fn covers(&self, other: &Self) -> bool {
        self.path.covers(&other.path) && self.conditions.are_no_more_than(&other.conditions)
    }

    /// Whether nothing but the order of the file says which of both takes a request that both may take.
    fn is_equal_to(&self, other: &Self) -> bool {
        self.rank() == other.rank()
            && self.path.may_meet(&other.path)
            && self.conditions.may_meet(&other.conditions)
    }
}
