//! Settings of sites: names of hosts, and the routes that answer for them.
//!
//! What is wrong between them is found by the table that serves (`route/table.rs`), and said with the place of the
//! route: what is never reached, what leads to itself, and, as a warning, what only the order of the file decides.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use pollux_http::Method;
use pollux_settings::{Keys, Kind, Location, bytes, duration_text, integer, name, one_of};

use crate::config::access::{access, request_id, trusted_proxies};
use crate::config::added::{Added, Sum};
use crate::config::answers::{FILES, Files, LISTING_MAX, REPLY_BYTES_MAX};
use crate::config::backend_answers;
use crate::config::client_tls::{ClientCerts, SiteTls, TlsPlaces, note_useless};
use crate::config::named::place_of;
use crate::config::rates::{self, LimitConfig};
use crate::config::users::{self, UsersConfig, UsersSaid};
use crate::config::{BODY_BYTES_MAX, Frontend, GroupConfig, timeout};
use crate::ids::{RouteId, SiteId};
use crate::route::access::{AccessRules, TrustedProxies};
use crate::route::conditions::{ConditionInput, Conditions, Wanted};
use crate::route::host::HostName;
use crate::route::path::{PathPattern, PathRoom, Shape};
use crate::route::redirect::{RedirectTo, Values};
use crate::route::request_id::RequestIdConfig;
use crate::route::rewrite::{Rewrite, Slash};
use crate::route::table::{ACME, Decision, Finding, RouteInput, RouteRule, SiteRules, Table};

/// Most sites.
const SITES_MAX: usize = 1000;
/// Most names of all sites.
const HOSTS_MAX: usize = 10_000;
/// Most routes of all sites.
const ROUTES_MAX: usize = 20_000;
/// Most methods, fields or parts of a query that a route asks for.
const CONDITIONS_MAX: usize = 16;
/// Keys of what answers; a route has one of them.
const ANSWERS: [&str; 6] = ["dir", "backend", "redirect", "reply", "echo", "maintenance"];
const ABOUT: &str =
    "Names of hosts, with the routes that answer for them; a host that no site has gets 421";
const ROUTE: &str =
    "What answers for a path of the site; the most precise one does, wherever it stands";

/// What answers by name and path.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Sites {
    /// None where front ends lead to backends.
    pub(crate) all: Vec<SiteConfig>,
    /// Proxies in front that say who asks.
    pub(crate) trusted: TrustedProxies,
    /// The ids of requests that backends answer, where they have some.
    pub(crate) request_id: Option<RequestIdConfig>,
    /// Files of users, which routes name by their places.
    pub(crate) users: Vec<UsersConfig>,
    /// The folder with answers to challenges of authorities, where there is one.
    pub(crate) challenges: Option<PathBuf>,
    /// What may not be meant, each with its place.
    pub(crate) warnings: Vec<String>,
}

/// A site.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SiteConfig {
    pub(crate) hosts: Vec<HostName>,
    /// Where each of them stands, for what is wrong with it once other files are read.
    pub(crate) host_places: Vec<String>,
    /// Whether requests by other names are led to the first one.
    pub(crate) is_canonical: bool,
    pub(crate) tls: SiteTls,
    /// Who may ask it.
    pub(crate) access: AccessRules,
    /// Whose passwords are asked for where no route says otherwise, and where there is none: the users at this place.
    pub(crate) users: Option<usize>,
    /// What is done to fields, beside what its front ends do.
    pub(crate) added: Added,
    pub(crate) routes: Vec<RouteConfig>,
}

/// What answers for some paths of a site.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteConfig {
    pub(crate) rule: RouteRule,
    pub(crate) answer: RouteAnswer,
    /// What is taken away from the path, and put there.
    pub(crate) rewrite: Rewrite,
    /// Where clients are led first, as to the slash at the end of a path.
    pub(crate) slash: Option<Slash>,
    /// Who may ask it, of those whom its site takes.
    pub(crate) access: AccessRules,
    /// What is done to fields, beside what its site does.
    pub(crate) added: Added,
    /// Largest body of its requests, where that is not the one for all.
    pub(crate) body_bytes_max: Option<u64>,
    /// How long nothing may be said in tunnels that begin with its requests, where that is not the time for all.
    pub(crate) tunnel_timeout: Option<Duration>,
    /// Names of what its requests are charged to, those of its site among them.
    pub(crate) limits: Vec<String>,
    /// Whose passwords are asked for: the users at this place, none for everybody.
    pub(crate) users: Option<usize>,
    /// Whether everybody may ask it, though its site has users.
    pub(crate) loosens: bool,
}

/// What answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum RouteAnswer {
    Files(Files),
    /// The group at this place.
    Backend(usize),
    Redirect(RedirectTo),
    /// A body of so many bytes.
    Reply(u64),
    Echo,
    /// This page, with 503.
    Maintenance(PathBuf),
}

impl Sites {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Every route, in the order of the file, which is that of their numbers.
    pub(crate) fn routes(&self) -> impl Iterator<Item = &RouteConfig> {
        self.all.iter().flat_map(|site| &site.routes)
    }

    /// What this site asks its clients for.
    pub(crate) fn clients_of(&self, site: Option<SiteId>) -> Option<&ClientCerts> {
        self.all[site?.place()].tls.clients.as_ref()
    }

    /// What requests are held against.
    pub(crate) fn table(&self) -> Table {
        Table::new(self.all.iter().map(|site| SiteRules {
            hosts: site.hosts.clone(),
            is_canonical: site.is_canonical,
            routes: site.routes.iter().map(|route| route.rule.clone()).collect(),
        }))
    }
}

/// How a log and metrics call a route: no two have the same name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct RouteName {
    /// The first name of its site.
    site: String,
    /// Its path, as it is written, with what it asks for beside.
    path: String,
}

impl RouteName {
    #[cfg(test)]
    pub(crate) fn of(site: &str, path: &str) -> Self {
        Self { site: site.to_owned(), path: path.to_owned() }
    }

    pub(crate) fn parts(&self) -> (&str, &str) {
        (&self.site, &self.path)
    }
}

impl SiteConfig {
    /// How a log calls it: by its first name.
    pub(crate) fn name(&self) -> String {
        self.hosts.first().map(ToString::to_string).unwrap_or_default()
    }
}

impl Sites {
    /// The names of each site.
    pub(crate) fn host_names(&self) -> impl Iterator<Item = Vec<String>> {
        self.all.iter().map(|site| site.hosts.iter().map(ToString::to_string).collect())
    }

    /// The names of all routes, by their numbers.
    pub(crate) fn names(&self) -> Box<[RouteName]> {
        let of_site = |site: &SiteConfig| {
            let name = site.name();
            let of_route = move |route: &RouteConfig| RouteName {
                site: name.clone(),
                path: match route.rule.conditions.count() {
                    0 => route.rule.path.to_string(),
                    _ => format!("{} ({})", route.rule.path, route.rule.conditions),
                },
            };
            site.routes.iter().map(of_route).collect::<Vec<_>>()
        };
        self.all.iter().flat_map(of_site).collect()
    }
}

/// What is said of them in `--check`.
impl Sites {
    /// How many there are, in words.
    pub(crate) fn count(&self) -> String {
        let sites = self.all.len();
        let routes = self.routes().count();
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        format!("{sites} site{} with {routes} route{}", plural(sites), plural(routes))
    }

    /// A line for each site and each route, in the order in which they are tried.
    pub(crate) fn summary(&self, groups: &[GroupConfig]) -> String {
        let table = self.table();
        let routes = self.routes().collect::<Vec<_>>();
        let mut text = String::new();
        if let Some(RequestIdConfig { name, is_answered }) = &self.request_id {
            let answers = if *is_answered { ", in answers too" } else { "" };
            writeln!(text, "requests have an id, for backends in {name}{answers}")
                .expect("a string");
        }
        for (place, site) in self.all.iter().enumerate() {
            let hosts: Vec<String> = site.hosts.iter().map(ToString::to_string).collect();
            let others = if site.is_canonical { ", led to the first one" } else { "" };
            writeln!(text, "site {}{others}", hosts.join(" ")).expect("a string");
            if !site.access.is_empty() {
                writeln!(text, "  {}", site.access).expect("a string");
            }
            let passed = site.added.passed.summary();
            if !passed.is_empty() {
                let passed = passed.trim_start_matches(", ");
                writeln!(text, "  answers of backends: {passed}").expect("a string");
            }
            if let Some(clients) = &site.tls.clients {
                writeln!(text, "  {clients}").expect("a string");
            }
            if let Some(place) = site.users {
                writeln!(text, "  users {}", self.users[place].name).expect("a string");
            }
            let order = table.order(SiteId::of_place(place));
            let widest = |text: fn(&RouteRule) -> String| {
                order.iter().map(|tried| text(&tried.rule).chars().count()).max().unwrap_or(0)
            };
            let (path, conditions) = (
                |rule: &RouteRule| rule.path.to_string(),
                |rule: &RouteRule| rule.conditions.to_string(),
            );
            let path_chars = widest(path);
            let conditions_chars = widest(conditions);
            let gap = if conditions_chars == 0 { "" } else { "  " };
            for tried in order {
                let path = path(&tried.rule);
                let conditions = conditions(&tried.rule);
                let route = routes[tried.route.place()];
                let mut answer = route.answer(groups);
                match route.users {
                    Some(place) if Some(place) != site.users => {
                        write!(answer, ", users {}", self.users[place].name).expect("a string");
                    }
                    _ if route.is_for_authorities()
                        && (site.users.is_some()
                            || site.tls.clients.is_some()
                            || !site.access.is_empty()) =>
                    {
                        answer.push_str(", the site's rules for who may ask aside");
                    }
                    None if route.loosens => answer.push_str(", users none: everybody may ask"),
                    _ => {}
                }
                writeln!(text, "  {path:path_chars$}  {conditions:conditions_chars$}{gap}{answer}")
                    .expect("a string");
            }
        }
        text
    }
}

impl RouteConfig {
    /// Whether who issues certificates asks it (RFC 8555 8.3), from wherever: what its site says of who may ask does not hold.
    pub(crate) fn is_for_authorities(&self) -> bool {
        is_for_authorities(&self.rule.path)
    }

    /// What answers, in words.
    pub(crate) fn answer(&self, groups: &[GroupConfig]) -> String {
        let Rewrite { strip, add } = &self.rewrite;
        let mut text = match &self.answer {
            RouteAnswer::Files(files) if files.are_challenges => {
                return format!("answers to challenges in {}", files.root.display());
            }
            RouteAnswer::Files(files) => format!("files below {}", files.root.display()),
            RouteAnswer::Backend(group) => format!("backend \"{}\"", groups[*group].name),
            RouteAnswer::Redirect(to) => format!("redirect {}", to.text()),
            RouteAnswer::Reply(len_bytes) => format!("a reply of {len_bytes} bytes"),
            RouteAnswer::Echo => "the body of the request".to_owned(),
            RouteAnswer::Maintenance(page) => format!("503 with {}", page.display()),
        };
        for (what, path) in [("without", strip), ("with", add)] {
            if !path.is_empty() {
                write!(text, ", {what} {path}").expect("a string");
            }
        }
        if let Some(length) = self.tunnel_timeout {
            write!(text, ", WebSockets that are silent for {}", duration_text(length))
                .expect("a string");
        }
        if matches!(self.answer, RouteAnswer::Backend(_)) {
            text.push_str(&self.added.passed.summary());
        }
        if !self.limits.is_empty() {
            write!(text, ", limit {}", self.limits.join(", ")).expect("a string");
        }
        match self.slash {
            None => {}
            Some(Slash::Add) => text.push_str(", led to paths with a slash at their end"),
            Some(Slash::Remove) => text.push_str(", led to paths without a slash at their end"),
        }
        if !self.access.is_empty() {
            write!(text, "; {}", self.access).expect("a string");
        }
        text
    }
}

/// Where what of a route stands.
struct Places {
    path: Location,
    allow: Option<Location>,
    response_field: Option<Location>,
    redirect: Option<Location>,
    intercept: Option<Location>,
}

/// Where what of a site stands.
struct SitePlaces {
    host: Location,
    response_field: Option<Location>,
    intercept: Option<Location>,
    routes: Vec<Places>,
}

/// Where what of the sites of a file stands.
#[derive(Default)]
struct AllPlaces {
    sites: Vec<SitePlaces>,
    tls: Vec<TlsPlaces>,
}

/// What sites name.
pub(super) struct Known<'k> {
    pub(super) limits: &'k [LimitConfig],
    pub(super) users: Vec<UsersConfig>,
}

/// What a site says for all its routes.
struct OfSite<'s> {
    limits: &'s [String],
    users: UsersSaid,
    compresses: Option<bool>,
}

/// The sites of a file, where these are the names of the groups of backends, none where they are not known, these all front ends,
/// and these the limits.
pub(super) fn sites(
    keys: &mut Keys<'_>,
    groups: Option<&[String]>,
    frontends: &[Frontend],
    known: Known<'_>,
) -> Sites {
    let trusted = trusted_proxies(keys);
    let request_id = request_id(keys);
    let mut places = AllPlaces::default();
    let all =
        keys.tables("site", ABOUT, 0..=SITES_MAX, |keys| site(keys, groups, &known, &mut places));
    let mut sites = Sites { all, trusted, request_id, users: known.users, ..Sites::default() };
    if keys.is_right() && !sites.is_empty() {
        let before = keys.mistakes();
        let schemes: Vec<&str> = own(frontends).map(Frontend::scheme).collect();
        note_useless(keys, &places.tls, schemes.contains(&"https"));
        let places = &places.sites;
        note_shared_hosts(keys, &sites, places);
        note_totals(keys, &sites);
        note_sums(keys, &sites, places, frontends);
        note_access(keys, &sites, places);
        note_pages(keys, &sites, places, frontends);
        if keys.mistakes() > before {
            return sites;
        }
        sites.warnings = note_order(keys, &sites, places, &schemes);
    }
    sites
}

fn site(
    keys: &mut Keys<'_>,
    groups: Option<&[String]>,
    known: &Known<'_>,
    places: &mut AllPlaces,
) -> SiteConfig {
    let about = "The names: www.example.org, *.example.org for all below it, * for all others. The longest one that fits \
                 has the request, whatever its port";
    let hosts = keys.key("host", about).distinct(&host(), 1..=HOSTS_MAX);
    let about = "Lead requests by other names of the site to the first one (301; 308 for other methods than GET and HEAD)";
    let is_canonical = keys.key("canonical", about).switch();
    if is_canonical && keys.is_right() {
        match &hosts[..] {
            [_] => keys.note(
                "canonical",
                "has no effect where a site has one name; expected more of them in host",
            ),
            [HostName::Exact(_), ..] => {}
            [first, ..] => {
                let why = format!(
                    "leads to \"{first}\", which is more than one name; expected a name first in host"
                );
                keys.note("canonical", why);
            }
            [] => {}
        }
    }
    let (tls, tls_places) = SiteTls::read(keys, &hosts);
    let place = keys.location("host").unwrap_or_else(|| keys.here());
    let host_places = keys.item_locations("host").iter().map(whole).collect();
    let about = "Names of [[limit]] that requests of all routes are held to, which may have more";
    let of_site = rates::named(keys, known.limits, about);
    let about = "Name of the [[users]] who may ask, each with a password (401 for others); routes may say another one";
    let users = users::named(keys, &known.users, about);
    if users == UsersSaid::None && keys.is_right() {
        keys.note(
            "users",
            "\"none\" has no effect in a site; expected a name of [[users]], or none in a route",
        );
    }
    let about = "Compress text of its routes for clients that take it (br, zstd, gzip), files and answers of backends, unless one \
                 says otherwise";
    let compresses = keys.key("compress", about).switch();
    let compresses = backend_answers::said(keys, "compress", compresses);
    let of_site = OfSite { limits: &of_site, users, compresses };
    let access = access(keys);
    let added = Added::of(keys, compresses);
    let response_field = keys.location("response_field");
    let intercept = keys.location("intercept");
    let mut routes_places = Vec::new();
    let routes = keys.tables("route", ROUTE, 1..=ROUTES_MAX, |keys| {
        let route = route(keys, groups, known, &of_site);
        let path = keys.location("path").unwrap_or_else(|| keys.here());
        let [redirect, allow, response_field, intercept] =
            ["redirect", "allow", "response_field", "intercept"].map(|name| keys.location(name));
        routes_places.push(Places { path, allow, response_field, redirect, intercept });
        route
    });
    places.sites.push(SitePlaces { host: place, response_field, intercept, routes: routes_places });
    places.tls.push(tls_places);
    let routes = routes.into_iter().flatten().collect();
    let users = users.or(UsersSaid::Nothing);
    SiteConfig { hosts, host_places, is_canonical, tls, access, users, added, routes }
}

/// A route; none where that is a mistake.
fn route(
    keys: &mut Keys<'_>,
    groups: Option<&[String]>,
    known: &Known<'_>,
    of_site: &OfSite<'_>,
) -> Option<RouteConfig> {
    let about = "/feed.xml: this path alone; /api/: all below it, and /api; with *, which is anything: /u/*/edit, *.php. It is \
                 matched decoded, with . and .. resolved and // as one slash";
    let of_path =
        Kind::new("PATH", "a path that begins with /, or a pattern with *", PathPattern::read);
    let path = keys.key("path", about).example("\"/api/\"").required(&of_path);
    let conditions = conditions(keys);
    let (mut answer, compresses) = answer(keys, groups);
    let compresses = backend_answers::said(keys, "compress", compresses);
    if let Some(RouteAnswer::Files(files)) = &mut answer {
        files.compresses = compresses.or(of_site.compresses).unwrap_or_default();
    }
    let rewrite = rewrite(keys, path.as_ref());
    let slash = slash(keys);
    let body_bytes_max = body_bytes_max(keys);
    let about = "Time without a byte in a WebSocket that begins with its requests, in place of that of all routes";
    let key = keys.key("tunnel_timeout", about).otherwise("tunnel_timeout at the top");
    let key = key.needs("backend", "applies only to requests to backends");
    let tunnel_timeout = key.optional(&timeout());
    let limits = limits(keys, known, of_site);
    let users = users_of_route(keys, known, of_site);
    let loosens = users == UsersSaid::None;
    let is_for_authorities = path.as_ref().is_some_and(is_for_authorities);
    let of_site_users = if is_for_authorities { UsersSaid::Nothing } else { of_site.users };
    let users = users.or(of_site_users);
    let access = access(keys);
    let added = Added::of(keys, compresses.filter(|_| !keys.has("dir")));
    note_without_backend(keys, &added, compresses.is_some());
    let rule = RouteRule { path: path?, conditions };
    Some(RouteConfig {
        rule,
        answer: answer?,
        rewrite,
        slash,
        access,
        added,
        body_bytes_max,
        tunnel_timeout,
        limits,
        users,
        loosens,
    })
}

/// What a request has to have beside its path.
fn conditions(keys: &mut Keys<'_>) -> Conditions {
    let about = "Take these methods alone; HEAD as well where GET is one";
    let methods = keys.key("method", about).otherwise("all").list(&method(), 0..=CONDITIONS_MAX);
    let about = "Take requests alone that have these fields: NAME, or \"NAME: VALUE\"";
    let of_header = Kind::new("FIELD", "\"NAME\" or \"NAME: VALUE\"", Wanted::read_header);
    let headers = keys.key("header", about).list(&of_header, 0..=CONDITIONS_MAX);
    let about =
        "Take requests alone whose query has these parts: NAME, or NAME=VALUE as it is sent";
    let of_query = Kind::new("PART", "\"NAME\" or \"NAME=VALUE\"", Wanted::read_query);
    let queries = keys.key("query", about).list(&of_query, 0..=CONDITIONS_MAX);
    Conditions { methods, headers, queries }
}

/// Whether clients are led by the slash at the end of a path, and to which.
fn slash(keys: &mut Keys<'_>) -> Option<Slash> {
    let ways = [
        ("add", "to the path with one, where its last part has no dot", Slash::Add),
        ("remove", "to the path without", Slash::Remove),
    ];
    let about = "Lead clients by the slash at the end of the path first (301; 308 for other methods than GET and HEAD)";
    let key = keys.key("slash", about).otherwise("either is passed on");
    let key = key.needs("backend", "applies only to requests to backends");
    key.optional(&one_of("way", ways))
}

fn body_bytes_max(keys: &mut Keys<'_>) -> Option<u64> {
    let key = keys.key("max_body", "Largest request body, in place of that of all routes");
    let body_bytes_max = key.otherwise("max_body at the top").optional(&bytes(0..=BODY_BYTES_MAX));
    let takes_none = ["dir", "redirect", "maintenance"].into_iter().find(|name| keys.has(name));
    if let Some(answer) = takes_none.filter(|_| body_bytes_max.is_some()) {
        keys.note(
            "max_body",
            format!("has no effect beside {answer}, which takes no body; expected none"),
        );
    }
    body_bytes_max
}

/// What the requests of a route are held to, what its site says included.
fn limits(keys: &mut Keys<'_>, known: &Known<'_>, of_site: &OfSite<'_>) -> Vec<String> {
    let about = "Names of [[limit]] that its requests are held to, beside those of the site";
    let limits = rates::named(keys, known.limits, about);
    if keys.has("redirect") {
        if !limits.is_empty() {
            let why = "has no effect beside redirect, which costs nothing; expected none";
            keys.note("limit", why);
        }
        return limits;
    }
    let more = limits.iter().filter(|name| !of_site.limits.contains(name)).cloned();
    of_site.limits.iter().cloned().chain(more).collect()
}

/// Who may ask a route, as it says itself.
fn users_of_route(keys: &mut Keys<'_>, known: &Known<'_>, of_site: &OfSite<'_>) -> UsersSaid {
    let about =
        "Name of the [[users]] who may ask it, in place of those of its site; none: everybody may";
    let users = users::named(keys, &known.users, about);
    if users == UsersSaid::None && !matches!(of_site.users, UsersSaid::Of(_)) && keys.is_right() {
        keys.note(
            "users",
            "\"none\" has no effect where the site has no users; expected none of it",
        );
    }
    users
}

/// Notes what has no effect on what does not come from a backend.
fn note_without_backend(keys: &mut Keys<'_>, added: &Added, compresses: bool) {
    if compresses && !keys.has("dir") && !keys.has("backend") {
        keys.note(
            "compress",
            "applies only to files and to answers of backends; expected dir or backend as well",
        );
    }
    for name in ["compress_types", "compress_min", "intercept"] {
        if keys.has(name) && !keys.has("backend") {
            keys.note(name, "applies only to answers of backends; expected backend as well");
        }
    }
    if !added.rules.request.is_empty() && !keys.has("backend") {
        keys.note(
            "request_field",
            "applies only to requests to backends; expected backend as well",
        );
    }
}

/// What answers, none where that is a mistake; and whether it is compressed, where that is said.
fn answer(keys: &mut Keys<'_>, groups: Option<&[String]>) -> (Option<RouteAnswer>, bool) {
    let key =
        keys.key("dir", "Answer with the files below this folder, by the whole path without strip");
    let key = key.excludes(&["backend", "redirect", "reply", "echo", "maintenance"]);
    let dir: Option<PathBuf> = key.optional(&pollux_settings::path().called("DIR"));
    let listing =
        keys.key("listing", "List folders that have no index.html").needs("dir", FILES).switch();
    let key = keys.key("listing_max", "Most names of a listing").default("10000");
    let key = key.needs("listing", "applies only to listings");
    let listing_max = key.one(&integer(1..=LISTING_MAX));
    let about = "Serve FILE.br, FILE.zst or FILE.gz to clients that take it";
    let has_precompressed = keys.key("precompressed", about).needs("dir", FILES).switch();
    let about = "Send this file below the folder, with 200, where there is none and the last part of the path has no dot";
    let spa = keys
        .key("spa", about)
        .needs("dir", FILES)
        .optional(&pollux_settings::path().called("FILE"));
    let about = "Compress text for clients that take it (br, zstd, gzip): files, of which what was made is kept in memory, or answers of \
                 a backend";
    let compresses = keys.key("compress", about).switch();
    let key = keys.key("backend", "Pass requests on to this [[backend]]");
    let key = key.excludes(&["redirect", "reply", "echo", "maintenance"]);
    let backend = key.optional(&name());
    let about = "Lead clients elsewhere: a status and a path or URI, with {rest} (of the path, behind that of the route), {path}, \
                 {query} (with its ?) and {host}";
    let key = keys.key("redirect", about).excludes(&["reply", "echo", "maintenance"]);
    let key = key.example("\"301 https://blog.example.org/{rest}\"");
    let redirect = key.optional(&Kind::new(
        "'STATUS WHERE'",
        "a status (301, 302, 303, 307, 308) and where it leads",
        RedirectTo::read,
    ));
    let key = keys.key("reply", "Answer with a fixed body of this size");
    let reply = key.excludes(&["echo", "maintenance"]).optional(&bytes(0..=REPLY_BYTES_MAX));
    let key = keys.key("echo", "Answer with the body of the request");
    let echo = key.excludes(&["maintenance"]).switch();
    let about = "Answer 503 with this file, to be asked again in 5 minutes; its path is that from the working folder, or begins \
                 with /";
    let key = keys.key("maintenance", about).example("\"sorry.html\"");
    let maintenance: Option<PathBuf> = key.optional(&pollux_settings::path().called("FILE"));
    if !ANSWERS.iter().any(|name| keys.has(name)) {
        keys.refuse(format!("a route without an answer; expected one of {}", ANSWERS.join(", ")));
        return (None, compresses);
    }
    let answer = match (dir, backend, redirect, reply) {
        (Some(root), ..) => Some(RouteAnswer::Files(Files {
            root,
            listing_max: listing.then_some(listing_max),
            has_precompressed,
            compresses,
            spa,
            are_challenges: false,
        })),
        (None, Some(wanted), ..) => groups.and_then(|groups| {
            let known = groups.iter().map(String::as_str);
            place_of(keys, "backend", "backend", &wanted, known).map(RouteAnswer::Backend)
        }),
        (None, None, Some(to), _) => Some(RouteAnswer::Redirect(to)),
        (None, None, None, Some(len_bytes)) => Some(RouteAnswer::Reply(len_bytes)),
        (None, None, None, None) => {
            let page = maintenance.map(RouteAnswer::Maintenance);
            page.or_else(|| echo.then_some(RouteAnswer::Echo))
        }
    };
    (answer, compresses)
}

fn is_for_authorities(path: &PathPattern) -> bool {
    path.start().starts_with(ACME)
}

fn rewrite(keys: &mut Keys<'_>, path: Option<&PathPattern>) -> Rewrite {
    let kind = Kind::new("PATH", "a path without its query, such as /api", Rewrite::read);
    let about = "Take this away from the beginning of the path; a backend gets it as X-Forwarded-Prefix, and where it leads clients \
                 to by Location gets it back";
    let strip = keys.key("strip", about).otherwise("the whole path").optional(&kind);
    let key = keys.key("add", "Put this in front of the path, behind what strip left of it");
    let add = key.needs("backend", "applies only to requests to backends").optional(&kind);
    if let Some(strip) = &strip
        && !keys.has("dir")
        && !keys.has("backend")
    {
        keys.note(
            "strip",
            format!("{strip} is taken away for nobody; expected dir or backend as well"),
        );
    }
    if let (Some(strip), Some(path)) = (&strip, path) {
        let rest = path.start().strip_prefix(strip.as_bytes());
        let has_star = matches!(path.shape(), Shape::Parts(_));
        let is_whole = |rest: &[u8]| rest.first().map_or(!has_star, |byte| *byte == b'/');
        if has_star && rest == Some(b"") {
            keys.note(
                "strip",
                format!("\"{strip}\" ends within a part of path \"{path}\"; expected whole parts, as of {strip}/*"),
            );
        } else if !rest.is_some_and(is_whole) {
            let start = String::from_utf8_lossy(path.start());
            let expected = match start.trim_end_matches('/') {
                "" => "none, or a longer path".to_owned(),
                start => start.to_owned(),
            };
            keys.note("strip", format!("\"{strip}\" does not stand at the beginning of path \"{path}\"; expected {expected}"));
        }
    }
    Rewrite { strip: strip.unwrap_or_default(), add: add.unwrap_or_default() }
}

/// The front ends whose requests have sites.
fn own(frontends: &[Frontend]) -> impl Iterator<Item = &Frontend> {
    frontends.iter().filter(|front| front.group.is_none())
}

/// Notes rules for answers that are too many for one of them.
fn note_sums(keys: &mut Keys<'_>, sites: &Sites, places: &[SitePlaces], frontends: &[Frontend]) {
    let of_fronts =
        own(frontends).map(|front| Sum::of(&front.rules.response)).fold(Sum::default(), Sum::max);
    for (site, place) in sites.all.iter().zip(places) {
        let of_site = of_fronts.and(Sum::of(&site.added.rules.response));
        if let Some(place) = &place.response_field {
            of_site.note(keys, place);
        }
        for (route, place) in site.routes.iter().zip(&place.routes) {
            if let Some(place) = &place.response_field {
                of_site.and(Sum::of(&route.added.rules.response)).note(keys, place);
            }
        }
    }
}

/// Notes statuses that no page takes the place of, though something says so.
fn note_pages(keys: &mut Keys<'_>, sites: &Sites, places: &[SitePlaces], frontends: &[Frontend]) {
    let of_fronts: Vec<_> = own(frontends).flat_map(|front| front.pages.clone()).collect();
    for (site, place) in sites.all.iter().zip(places) {
        let outer = [&of_fronts[..], &site.added.pages].concat();
        for (route, place) in site.routes.iter().zip(&place.routes) {
            let pages = [&outer[..], &route.added.pages].concat();
            let missing = route.added.passed.without_page(&pages);
            if let Some((why, place)) = missing.zip(place.intercept.as_ref()) {
                keys.note_at(place.clone(), format!("intercept: {why}"));
            }
        }
        let of_routes = site.routes.iter().flat_map(|route| &route.added.pages).cloned();
        let pages: Vec<_> = outer.into_iter().chain(of_routes).collect();
        let missing = site.added.passed.without_page(&pages);
        if let Some((why, place)) = missing.zip(place.intercept.as_ref()) {
            keys.note_at(place.clone(), format!("intercept: {why}"));
        }
    }
}

/// Notes routes that nobody may ask whom their site takes.
fn note_access(keys: &mut Keys<'_>, sites: &Sites, places: &[SitePlaces]) {
    for (site, place) in sites.all.iter().zip(places) {
        for (route, place) in site.routes.iter().zip(&place.routes) {
            if let Some(place) = &place.allow
                && !route.is_for_authorities()
                && !site.access.may_meet(&route.access)
            {
                let why = "allow: the site takes none of these addresses, and its rules hold for all its routes; expected some \
                           of those that it takes";
                keys.note_at(place.clone(), why);
            }
        }
    }
}

fn host() -> Kind<HostName> {
    let accepts = "a name such as www.example.org, *.example.org, an address, or * for all";
    Kind::new("HOST", accepts, HostName::read)
}

fn method() -> Kind<String> {
    Kind::new("METHOD", "a method in capital letters, such as POST", |text| {
        let is_one =
            Method::is_name(text.as_bytes()) && !text.bytes().any(|byte| byte.is_ascii_lowercase());
        if is_one { Ok(text.to_owned()) } else { Err(String::new()) }
    })
}

fn note_shared_hosts(keys: &mut Keys<'_>, sites: &Sites, places: &[SitePlaces]) {
    let mut owners: HashMap<&HostName, &Location> = HashMap::new();
    for (site, place) in sites.all.iter().zip(places) {
        for host in &site.hosts {
            if let Some(other) = owners.insert(host, &place.host) {
                let why = format!(
                    "host: \"{host}\" belongs to the site in {} as well; expected each name once",
                    line(other, &place.host)
                );
                keys.note_at(place.host.clone(), why);
            }
        }
    }
}

fn note_totals(keys: &mut Keys<'_>, sites: &Sites) {
    let hosts = sites.all.iter().map(|site| site.hosts.len()).sum::<usize>();
    let routes = sites.routes().count();
    for (found, most, what) in [(hosts, HOSTS_MAX, "names"), (routes, ROUTES_MAX, "routes")] {
        if found > most {
            keys.refuse(format!("the sites have {found} {what} together; expected at most {most}"));
        }
    }
}

/// Notes what the order of the routes makes useless, and says what may not be meant.
fn note_order(
    keys: &mut Keys<'_>,
    sites: &Sites,
    places: &[SitePlaces],
    schemes: &[&str],
) -> Vec<String> {
    let table = sites.table();
    let routes: Vec<&RouteConfig> = sites.routes().collect();
    let places_of: Vec<&Places> = places.iter().flat_map(|site| &site.routes).collect();
    let of = |route: RouteId| (&routes[route.place()].rule, &places_of[route.place()].path);
    let mut warnings = Vec::new();
    for finding in table.findings() {
        match finding {
            Finding::NeverReached(first, route) => {
                let ((first, at), (rule, place)) = (of(first), of(route));
                keys.note_at(place.clone(), never_reached(first, &line(at, place), rule));
            }
            Finding::OnlyByOrder(first, route) => {
                let ((first, at), (rule, place)) = (of(first), of(route));
                let what = format!(
                    "path: \"{}\" ({}) and that in {} ({}) may take the same request, and the one that stands first in the file \
                     does; expected conditions that one of them has alone",
                    rule.path,
                    rule.conditions,
                    line(at, place),
                    first.conditions,
                );
                warnings.push(placed(place, &what));
            }
        }
    }
    let first_routes = sites.all.iter().scan(0, |first, site| {
        let at = *first;
        *first += site.routes.len();
        Some((at, site))
    });
    for (first, site) in first_routes {
        for (number, route) in site.routes.iter().enumerate() {
            let id = RouteId::of_place(first + number);
            let places = places_of[first + number];
            if let (RouteAnswer::Redirect(to), Some(place)) = (&route.answer, &places.redirect)
                && let Some(round) = leads_to_itself(&table, site, id, &route.rule, to, schemes)
            {
                keys.note_at(place.clone(), format!("redirect: {round}; expected another place"));
            }
            warnings.extend(alone(route).map(|what| placed(&places.path, &what)));
        }
    }
    warnings
}

fn never_reached(first: &RouteRule, line: &str, rule: &RouteRule) -> String {
    let why = if first.path != rule.path {
        format!(
            "{line} (\"{}\") is tried first and takes all of it; expected another path",
            first.path
        )
    } else if first.conditions.count() == 0 {
        format!("{line} has the same path; expected a method or header here, or one of both alone")
    } else {
        format!(
            "{line} has the same path and asks for no more; expected another method or header here"
        )
    };
    format!("path: \"{}\" is never reached: {why}", rule.path)
}

/// A path without its slash, that a folder or a backend stands behind.
fn alone(route: &RouteConfig) -> Option<String> {
    let path = &route.rule.path;
    let is_path = matches!(path.shape(), Shape::Exact(_)) && route.rule.conditions.count() == 0;
    let is_named = path.text().rsplit('/').next().is_some_and(|name| name.contains('.'));
    let has_more = matches!(route.answer, RouteAnswer::Files(_) | RouteAnswer::Backend(_));
    (is_path && !is_named && has_more)
        .then(|| format!("path: \"{path}\" is this path alone; \"{path}/\" takes all below it"))
}

/// How a request that takes this route comes back to it, if it does.
fn leads_to_itself(
    table: &Table,
    site: &SiteConfig,
    id: RouteId,
    rule: &RouteRule,
    to: &RedirectTo,
    schemes: &[&str],
) -> Option<String> {
    let host = match site.hosts.first()? {
        HostName::Exact(name) => name.clone(),
        HostName::Below(domain) => format!("www{domain}"),
        HostName::Any => "host.example".to_owned(),
    };
    let path = rule.path.sample();
    let mut led = Vec::new();
    let values = Values {
        rest: rule.path.rest(path.as_bytes()),
        path: path.as_bytes(),
        query: None,
        host: host.as_bytes(),
    };
    to.write(&values, &mut led, usize::MAX);
    let led = String::from_utf8(led).ok()?;
    let (to_host, rest) = match led.split_once("://") {
        Some((scheme, rest)) => {
            let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            let (to_host, rest) = rest.split_at(end);
            // Another scheme is asked for elsewhere, and so may be a name that the site has by * alone.
            let has_name = |name: &HostName| match name {
                HostName::Exact(name) => name == to_host,
                HostName::Below(domain) => to_host.ends_with(domain.as_str()),
                HostName::Any => to_host == host,
            };
            if !schemes.contains(&scheme) || !site.hosts.iter().any(has_name) {
                return None;
            }
            (to_host, rest)
        }
        None => (&*host, &*led),
    };
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    let to_path = if rest[..end].is_empty() { "/" } else { &rest[..end] };
    let method = rule.conditions.methods.first().map_or("GET", String::as_str);
    let asking = ConditionInput {
        method: Method::named(method),
        query: None,
        fields: pollux_http::Fields::of_trailers(b""),
    };
    let came = RouteInput { leads_to_https: false, host: Some(to_host), path: to_path, asking };
    let mut room = PathRoom::default();
    let decided = table.decide(&came, &mut room).ok()?;
    (decided.decision == Decision::Route(id))
        .then(|| format!("leads to itself: {method} {path} at {host} is led to {led}"))
}

/// A warning with its place in front, as mistakes have it.
fn placed(place: &Location, what: &str) -> String {
    match place {
        Location::File { .. } => format!("{}: {what}", whole(place)),
        Location::Flag(_) | Location::Whole => what.to_owned(),
    }
}

/// A place with its file.
fn whole(place: &Location) -> String {
    match place {
        Location::File { file, line, column } => format!("{file}:{line}:{column}"),
        Location::Flag(_) | Location::Whole => "the settings".to_owned(),
    }
}

/// The line of a place, for what stands elsewhere: in another file with that.
fn line(place: &Location, seen_from: &Location) -> String {
    match (place, seen_from) {
        (Location::File { file, line, .. }, Location::File { file: own, .. }) if file != own => {
            format!("{file}:{line}")
        }
        (Location::File { line, .. }, _) => format!("line {line}"),
        (Location::Flag(_) | Location::Whole, _) => "the settings".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    //! Where sites, routes and what stands beside them contradict each other, and what `--check` says of what is right.

    use pollux_settings::Given;

    use crate::config::serve_or_proxy::{ProxySettings, proxy_of};
    use crate::config::sites::{ROUTES_MAX, SITES_MAX};

    const BACKEND: &str =
        "[[backend]]\nname = \"api\"\n[[backend.server]]\naddress = \"10.0.0.1:80\"\n";

    /// A site with these routes, from line 7 on.
    fn with_routes(routes: &[&str]) -> String {
        let routes: String = routes.iter().map(|route| format!("  {{ {route} }},\n")).collect();
        format!("{BACKEND}[[site]]\nhost = \"*\"\nroute = [\n{routes}]\n")
    }

    #[test]
    fn who_may_ask_is_held_against_the_site_and_printed() {
        let file = |site: &str, route: &str| {
            format!(
                "[[site]]\nhost = \"*\"\n{site}route = [{{ path = \"/\", reply = 1{route} }}]\n"
            )
        };
        let wrong = proxy_of(&file("allow = \"10.0.0.0/8\"\n", ", allow = \"192.0.2.1\""));
        assert_eq!(
            wrong.expect_err("nobody may ask"),
            "p.toml:4:43: allow: the site takes none of these addresses, and its rules hold for all its routes; expected \
             some of those that it takes"
        );
        let text =
            file("allow = \"10.0.0.0/8\"\n", ", deny = [\"10.1.0.0/16\"], deny_with = \"close\"");
        let config = proxy_of(&text).expect("right");
        assert_eq!(
            config.sites.summary(&config.groups),
            "site *\n  allow 10.0.0.0/8; all others get 403\n  \
             /  a reply of 1 bytes; deny 10.1.0.0/16; they are cut off\n"
        );
        let text = format!("trusted_proxies = [\"10.0.0.0/8\", \"unix:\"]\n{}", file("", ""));
        let trusted = proxy_of(&text).expect("right").sites.trusted;
        assert!(trusted.has_unix_sockets && trusted.networks.len() == 1);
    }

    #[test]
    fn rules_that_are_too_many_for_an_answer_have_the_place_of_the_last_ones() {
        let rules = |count: usize| vec!["\"add A: 1\""; count].join(", ");
        let file = |site: usize, route: usize| {
            format!(
                "response_field = [{}]\n[[site]]\nhost = \"*\"\nresponse_field = [{}]\n\
                 route = [{{ path = \"/\", reply = 1, response_field = [{}] }}]\n",
                rules(20),
                rules(site),
                rules(route)
            )
        };
        proxy_of(&file(24, 20)).expect("64 are right");
        let wrong = proxy_of(&file(24, 21)).expect_err("one too many");
        let expected = "response_field: with those of the front end and of the site there are 65; expected at most 64";
        assert_eq!(wrong, format!("p.toml:5:52: {expected}"));
        assert!(proxy_of(&file(45, 0)).expect_err("too many").contains("there are 65"));
    }

    #[test]
    fn a_redirect_to_another_site_scheme_or_host_does_not_come_back() {
        for (front, redirect) in [
            ("", "301 https://www.example.org{path}"),
            ("", "301 https://other.example{path}"),
            ("", "301 http://other.example/x/{rest}"),
            ("", "302 /b/"),
        ] {
            let text = format!(
                "{front}[[site]]\nhost = [\"www.example.org\", \"*\"]\nroute = [{{ path = \"/a/\", redirect = \"{redirect}\" }}]"
            );
            proxy_of(&text).unwrap_or_else(|wrong| panic!("{redirect}: {wrong}"));
        }
        let text = "[[site]]\nhost = [\"www.example.org\", \"*\"]\nroute = [{ path = \"/a/\", redirect = \"301 http://www.example.org{path}\" }]";
        assert!(proxy_of(text).expect_err("a round").contains("leads to itself"));
    }

    #[test]
    fn what_may_not_be_meant_is_a_warning_with_its_place() {
        let warnings =
            |routes: &[&str]| proxy_of(&with_routes(routes)).expect("right").sites.warnings;
        assert_eq!(
            warnings(&["path = \"/api\", backend = \"api\""]),
            ["p.toml:8:12: path: \"/api\" is this path alone; \"/api/\" takes all below it"]
        );
        let both = warnings(&[
            "path = \"/a\", method = \"POST\", backend = \"api\"",
            "path = \"/a\", header = \"X-Beta\", reply = 1",
        ]);
        assert_eq!(
            both,
            [
                "p.toml:9:12: path: \"/a\" (header \"X-Beta\") and that in line 8 (POST) may take the same request, and the \
              one that stands first in the file does; expected conditions that one of them has alone"
            ]
        );
        for right in [
            &["path = \"/feed.xml\", backend = \"api\""][..],
            &["path = \"/api/login\", method = \"POST\", backend = \"api\""],
            &["path = \"/api\", reply = 1"],
            &[
                "path = \"/a\", method = \"POST\", reply = 1",
                "path = \"/a\", method = \"PUT\", reply = 2",
            ],
        ] {
            assert_eq!(warnings(right), [""; 0], "{right:?}");
        }
    }

    #[test]
    fn as_many_routes_as_may_be_are_read_and_mistakes_of_the_last_one_have_their_place() {
        let file = |last: &str| {
            let mut text = BACKEND.to_owned();
            for site in 0..SITES_MAX {
                text += &format!("[[site]]\nhost = \"s{site}.example\"\nroute = [\n");
                for route in 0..ROUTES_MAX / SITES_MAX {
                    text += &format!("  {{ path = \"/r{route}/\", backend = \"api\" }},\n");
                }
                if site + 1 == SITES_MAX {
                    text += last;
                }
                text += "]\n";
            }
            text
        };
        let config = proxy_of(&file("")).expect("right");
        assert_eq!(config.sites.count(), "1000 sites with 20000 routes");
        // By one program: that both read alike is seen of smaller files.
        let read = |text: &str| Given::from_toml(text, "p.toml").read::<ProxySettings>();
        let wrong = |text: &str| read(text).map(drop).expect_err("wrong").to_string();
        let one_too_many = wrong(&file("  { path = \"/r/\", reply = 1 },\n"));
        assert_eq!(one_too_many, "the sites have 20001 routes together; expected at most 20000");
        let all = file("");
        let (most, last) = all.rsplit_once("\"/r19/\", backend = \"api\"").expect("the last one");
        let twice = wrong(&format!("{most}\"/r18/\", reply = 1{last}"));
        let line = most.lines().count();
        let expected = format!(
            "p.toml:{line}:12: path: \"/r18/\" is never reached: line {} has the same path",
            line - 1
        );
        assert!(twice.starts_with(&expected), "{twice}\n{expected}");
    }

    #[test]
    fn a_check_prints_routes_in_the_order_in_which_they_are_tried() {
        let text = with_routes(&[
            "path = \"/\", dir = \"/srv/www\"",
            "path = \"/api/\", backend = \"api\", strip = \"/api\", add = \"/v2\"",
            "path = \"/api/login\", method = [\"POST\"], header = [\"X-A: 1\", \"X-B\"], query = [\"q\", \"r=1\"], echo = true",
            "path = \"/u/\", reply = 5",
            "path = \"/u/*/edit\", redirect = \"301 https://x.example/{rest}\"",
        ]);
        let config = proxy_of(&text).expect("right");
        let summary = config.sites.summary(&config.groups);
        assert_eq!(
            summary,
            "site *\n  \
             /api/login  POST header \"X-A: 1\" header \"X-B\" query \"q\" query \"r=1\"  the body of the request\n  \
             /api/                                                                backend \"api\", without /api, with /v2\n  \
             /u/*/edit                                                            redirect 301 https://x.example/{rest}\n  \
             /u/                                                                  a reply of 5 bytes\n  \
             /                                                                    files below /srv/www\n"
        );
        assert_eq!(config.sites.count(), "1 site with 5 routes");
    }
}
