//! The table against a naive twin, which tries all routes of a site in the order of the file and compares those that fit by
//! the rules as a person reads them; and the readings of a path against both orders of resolving dots and merging slashes.

use std::collections::HashSet;

use pollux_http::{Fields, Method};
use proptest::prelude::*;
use proptest::sample::select;

use super::conditions::{ConditionInput, Conditions, Wanted};
use super::host::HostName;
use super::path::{PathPattern, PathRoom, ReadPath, Shape, behind};
use super::redirect::{RedirectTo, Values};
use super::table::{Decision, Finding, RouteInput, RouteRule, SiteRules, Table};
use crate::ids::RouteId;

const HOSTS: [&str; 9] = [
    "a.example",
    "b.example",
    "www.a.example",
    "*.a.example",
    "*.example",
    "*.b.a.example",
    "*",
    "[::1]",
    "localhost",
];
const PATTERNS: [&str; 25] = [
    "/*c",
    "/",
    "/a",
    "/a/",
    "/ab/",
    "/a/b",
    "/a/b/",
    "/a/b/c",
    "/*",
    "*",
    "*.php",
    "/a/*",
    "/a/*/c",
    "/a/*/",
    "/a*",
    "/a*b",
    "*/c",
    "/a/b*",
    "/a b/",
    "/é",
    "/@a/",
    "/a!/",
    "/a-b*",
    "/a/!b/",
    "/a/b/c/a/*",
];
const REDIRECTS: [&str; 9] = [
    "301 /{rest}",
    "301 {path}{query}",
    "302 /x/{rest}",
    "307 /{rest}{path}",
    "301 https://a.example/{rest}",
    "301 https://a.example{path}",
    "308 https://{host}/{rest}{query}",
    "301 https://a.example/?to={path}",
    "303 https://a.example{query}",
];
const METHODS: [&str; 4] = ["GET", "HEAD", "POST", "PUT"];
const ASKED_HOSTS: [&str; 16] = [
    "[0:0::1]",
    "%61.example",
    "a.example",
    "A.Example:80",
    "a.example.",
    "b.example",
    "www.a.example",
    "x.www.a.example.:1",
    "c.b.a.example",
    "b.a.example",
    "example",
    "other",
    "[::1]:80",
    "localhost",
    "",
    ".a.example",
];
const PARTS: [&str; 35] = [
    "!", "-b", ";", "/..;", "%3b", "/", "/", "/", "/", "a", "b", "c", "a", "b", "/a", "/b", "/..",
    ".", "..", "%2e", "%2E%2e", "%61", "%2f", "%5C", "%00", "%", "%zz", "\\", ".php", "%20",
    "%C3%A9", "@", "%40", "%25", "c/",
];

fn conditions() -> impl Strategy<Value = Conditions> {
    let methods = prop::collection::vec(select(&METHODS[..]).prop_map(str::to_owned), 0..2);
    let value = || prop::option::of(select(&["1", "2"][..]).prop_map(str::to_owned));
    let wanted = move |names: &'static [&'static str]| {
        let one = (select(names), value())
            .prop_map(|(name, value)| Wanted { name: name.to_owned(), value });
        prop::collection::vec(one, 0..2)
    };
    (methods, wanted(&["x", "Y"]), wanted(&["q", "r"]))
        .prop_map(|(methods, headers, queries)| Conditions { methods, headers, queries })
}

fn rule() -> impl Strategy<Value = RouteRule> {
    let none = Just(Conditions::default());
    (select(&PATTERNS[..]), prop_oneof![2 => none, 1 => conditions()]).prop_map(
        |(path, conditions)| RouteRule { path: PathPattern::read(path).expect(path), conditions },
    )
}

/// Sites whose names are each in one of them alone.
fn sites() -> impl Strategy<Value = Vec<SiteRules>> {
    let site = (
        prop::collection::vec(select(&HOSTS[..]), 1..4),
        prop::collection::vec(rule(), 0..8),
        prop::bool::weighted(0.2),
    );
    prop::collection::vec(site, 1..5).prop_map(|all| {
        let mut seen = HashSet::new();
        let site = |(hosts, routes, is_canonical): (Vec<&'static str>, Vec<RouteRule>, bool)| {
            let hosts: Vec<HostName> = hosts
                .into_iter()
                .filter(|host| seen.insert(*host))
                .map(|host| HostName::read(host).expect(host))
                .collect();
            let is_canonical = is_canonical && matches!(hosts.first(), Some(HostName::Exact(_)));
            SiteRules { hosts, is_canonical, routes }
        };
        all.into_iter().map(site).collect()
    })
}

/// A request as it is generated.
#[derive(Clone, Debug)]
struct Sent {
    leads_to_https: bool,
    host: Option<&'static str>,
    path: String,
    method: &'static str,
    query: Option<String>,
    /// Lines.
    fields: String,
}

impl Sent {
    fn came(&self) -> RouteInput<'_> {
        let asking = ConditionInput {
            method: Method::named(self.method),
            query: self.query.as_deref(),
            fields: Fields::of_trailers(self.fields.as_bytes()),
        };
        RouteInput {
            leads_to_https: self.leads_to_https,
            host: self.host,
            path: &self.path,
            asking,
        }
    }
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(select(&PARTS[..]), 0..8).prop_map(|parts| format!("/{}", parts.concat()))
}

fn sent() -> impl Strategy<Value = Sent> {
    let pairs = |names: &'static [&'static str]| {
        prop::collection::vec((select(names), select(&["1", "2"][..])), 0..3)
    };
    (
        prop::bool::weighted(0.1),
        prop::option::weighted(0.9, select(&ASKED_HOSTS[..])),
        path(),
        select(&METHODS[..]),
        prop::option::of(pairs(&["q", "r", "qq"])),
        pairs(&["x", "X", "y", "z"]),
    )
        .prop_map(|(leads_to_https, host, path, method, query, fields)| {
            let query = query.map(|pairs| {
                let parts: Vec<String> =
                    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
                parts.join("&")
            });
            let fields =
                fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            Sent { leads_to_https, host, path, method, query, fields }
        })
}

/// What the twin says.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Twin {
    UnknownHost,
    Https,
    Canonical(String),
    Unsound,
    NoRoute,
    Route(usize),
}

fn twin(sites: &[SiteRules], sent: &Sent) -> Twin {
    let host = sent.host.unwrap_or("").to_ascii_lowercase();
    if host.contains('%') {
        return Twin::Unsound;
    }
    let host = if host.starts_with('[') {
        let address = &host[1..host.find(']').expect("a literal")];
        format!("[{}]", address.parse::<std::net::Ipv6Addr>().expect("an address"))
    } else {
        host.split(':').next().expect("a part").to_owned()
    };
    let host = host.strip_suffix('.').unwrap_or(&host);
    let length = |name: &HostName| match name {
        HostName::Exact(name) => (host == name).then_some(1000),
        HostName::Below(domain) => {
            (host.ends_with(domain.as_str()) && host.len() > domain.len()).then_some(domain.len())
        }
        HostName::Any => Some(0),
    };
    let mut best: Option<(usize, usize)> = None;
    for (place, site) in sites.iter().enumerate() {
        for length in site.hosts.iter().filter_map(length) {
            if best.is_none_or(|(most, _)| length > most) {
                best = Some((length, place));
            }
        }
    }
    let Some((_, place)) = best else { return Twin::UnknownHost };
    let site = &sites[place];
    if sent.leads_to_https {
        return Twin::Https;
    }
    let first = site.hosts[0].to_string();
    if site.is_canonical && host != first {
        return Twin::Canonical(first);
    }
    let Some(path) = naive_reading(&sent.path) else { return Twin::Unsound };
    let before: usize = sites[..place].iter().map(|site| site.routes.len()).sum();
    let best = |path: &[u8]| {
        let mut best: Option<usize> = None;
        for (at, rule) in site.routes.iter().enumerate() {
            let takes = naive_match(rule.path.text(), path) && meets(&rule.conditions, sent);
            if takes && best.is_none_or(|best| comes_before(rule, &site.routes[best])) {
                best = Some(at);
            }
        }
        best
    };
    match (best(&path), best(&without_parameters(&path))) {
        (one, other) if one != other => Twin::Unsound,
        (one, _) => one.map_or(Twin::NoRoute, |at| Twin::Route(before + at)),
    }
}

/// The path as those read it who take what follows a `;` for parameters.
fn without_parameters(path: &[u8]) -> Vec<u8> {
    let parts = path[1..].split(|byte| *byte == b'/');
    let names = parts.map(|part| part.split(|byte| *byte == b';').next().expect("one").to_vec());
    let names = merged(&names.collect::<Vec<_>>());
    let mut bare = Vec::new();
    names.iter().for_each(|name| bare.extend([&b"/"[..], name].concat()));
    bare
}

/// The order as a person reads it: exact, longer text up to a star, with a star, longer altogether, more conditions.
fn comes_before(one: &RouteRule, two: &RouteRule) -> bool {
    let is_exact =
        |rule: &RouteRule| !rule.path.text().contains('*') && !rule.path.text().ends_with('/');
    let start = |rule: &RouteRule| rule.path.text().split('*').next().expect("a part").len().max(1);
    let has_star = |rule: &RouteRule| rule.path.text().contains('*');
    let all = |rule: &RouteRule| rule.path.text().replace('*', "").len();
    if is_exact(one) != is_exact(two) {
        return is_exact(one);
    }
    if start(one) != start(two) {
        return start(one) > start(two);
    }
    if has_star(one) != has_star(two) {
        return has_star(one);
    }
    if all(one) != all(two) {
        return all(one) > all(two);
    }
    count(&one.conditions) > count(&two.conditions)
}

fn count(conditions: &Conditions) -> usize {
    let Conditions { methods, headers, queries } = conditions;
    usize::from(!methods.is_empty()) + headers.len() + queries.len()
}

/// Tries every length of each star.
fn naive_match(pattern: &str, path: &[u8]) -> bool {
    let mut pattern = pattern.to_owned();
    if pattern.ends_with('/') {
        if pattern != "/"
            && !pattern.contains('*')
            && path == &pattern.as_bytes()[..pattern.len() - 1]
        {
            return true;
        }
        pattern.push('*');
    }
    fn glob(pattern: &[u8], path: &[u8]) -> bool {
        match (pattern, path) {
            ([], []) => true,
            ([b'*', rest @ ..], _) => {
                glob(rest, path) || (!path.is_empty() && glob(pattern, &path[1..]))
            }
            ([one, rest @ ..], [byte, tail @ ..]) => one == byte && glob(rest, tail),
            _ => false,
        }
    }
    glob(pattern.as_bytes(), path)
}

fn meets(conditions: &Conditions, sent: &Sent) -> bool {
    let Conditions { methods, headers, queries } = conditions;
    let method = methods.is_empty()
        || methods
            .iter()
            .any(|name| name == sent.method || (name == "GET" && sent.method == "HEAD"));
    let value = |text: &str, by: &str, between: &str, name: &str| {
        text.split(between)
            .filter(|part| !part.is_empty())
            .filter_map(|part| part.split_once(by))
            .find(|(own, _)| *own == name)
            .map(|(_, value)| value.trim().to_owned())
    };
    let is_met = |wanted: &Wanted, found: Option<String>| match &wanted.value {
        None => found.is_some(),
        value => found == *value,
    };
    let fields = sent.fields.to_ascii_lowercase();
    method
        && headers
            .iter()
            .all(|one| is_met(one, value(&fields, ":", "\r\n", &one.name.to_ascii_lowercase())))
        && queries
            .iter()
            .all(|one| is_met(one, value(sent.query.as_deref().unwrap_or(""), "=", "&", &one.name)))
}

/// Both orders of resolving dots and merging slashes; nothing where one fails, or they differ.
fn naive_reading(path: &str) -> Option<Vec<u8>> {
    let segments: Vec<Vec<u8>> = path[1..].split('/').map(naive_decode).collect::<Option<_>>()?;
    if segments.iter().any(|one| one.starts_with(b".;") || one.starts_with(b"..;")) {
        return None;
    }
    let resolved_first = merged(&resolved(&segments)?);
    let merged_first = resolved(&merged(&segments))?;
    let one = merged(&merged_first);
    (resolved_first == one).then(|| {
        let mut path = Vec::new();
        one.iter().for_each(|segment| {
            path.push(b'/');
            path.extend_from_slice(segment);
        });
        path
    })
}

fn naive_decode(segment: &str) -> Option<Vec<u8>> {
    let mut bytes = segment.bytes();
    let mut decoded = Vec::new();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                let digits = str::from_utf8(&digits).ok()?.to_owned();
                u8::from_str_radix(&digits, 16).ok()?
            }
            byte => byte,
        };
        if byte < 0x20 || matches!(byte, b'/' | b'\\' | 0x7f) {
            return None;
        }
        decoded.push(byte);
    }
    Some(decoded)
}

/// Without empty segments, but for one at the end.
fn merged(segments: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let last = segments.len().saturating_sub(1);
    let kept = segments.iter().enumerate().filter(|(at, one)| *at == last || !one.is_empty());
    kept.map(|(_, one)| one.clone()).collect()
}

/// Without dots; nothing where they lead above the root.
fn resolved(segments: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
    let mut out: Vec<Vec<u8>> = Vec::new();
    for (at, segment) in segments.iter().enumerate() {
        match &segment[..] {
            b"." => {}
            b".." => {
                out.pop()?;
            }
            _ => {
                out.push(segment.clone());
                continue;
            }
        }
        if at + 1 == segments.len() {
            out.push(Vec::new());
        }
    }
    Some(out)
}

fn decided(table: &Table, sent: &Sent) -> Twin {
    let mut room = PathRoom::default();
    match table.decide(&sent.came(), &mut room) {
        Err(rejection) => {
            assert_eq!(rejection.status.code(), 400);
            Twin::Unsound
        }
        Ok(decided) => match decided.decision {
            Decision::UnknownHost => Twin::UnknownHost,
            Decision::Https => Twin::Https,
            Decision::Canonical(name) => Twin::Canonical(name.to_owned()),
            Decision::NoRoute => Twin::NoRoute,
            Decision::Route(route) => Twin::Route(route.place()),
        },
    }
}

/// The route of this number.
fn route(sites: &[SiteRules], number: usize) -> &RouteRule {
    sites.iter().flat_map(|site| &site.routes).nth(number).expect("there is one")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn the_table_decides_as_its_naive_twin(sites in sites(), sent in prop::collection::vec(sent(), 1..20)) {
        let table = Table::new(sites.clone());
        for sent in &sent {
            prop_assert_eq!(decided(&table, sent), twin(&sites, sent), "{:?}", sent);
        }
    }

    #[test]
    fn the_order_of_the_file_decides_nothing_but_what_was_warned_of(
        sites in sites(),
        sent in prop::collection::vec(sent(), 1..20),
    ) {
        let table = Table::new(sites.clone());
        let mut turned = sites.clone();
        turned.reverse();
        turned.iter_mut().for_each(|site| site.routes.reverse());
        let other = Table::new(turned.clone());
        let findings = table.findings();
        for sent in &sent {
            match (decided(&table, sent), decided(&other, sent)) {
                (Twin::Route(one), Twin::Route(two)) => {
                    let first = route(&sites, one);
                    let second = route(&turned, two);
                    let is_same = first.path.text() == second.path.text()
                        && first.conditions == second.conditions;
                    let is_named = findings.iter().any(|finding| match *finding {
                        Finding::NeverReached(a, b) | Finding::OnlyByOrder(a, b) => {
                            [a, b].contains(&RouteId::of_place(one))
                        }
                    });
                    prop_assert!(is_same || is_named, "{:?}: {:?} {:?}", sent, first, second);
                }
                (one, two) => prop_assert_eq!(one, two),
            }
        }
    }

    #[test]
    fn what_is_never_reached_takes_no_request(sites in sites(), sent in prop::collection::vec(sent(), 1..40)) {
        let table = Table::new(sites);
        let never: Vec<usize> = table
            .findings()
            .iter()
            .filter_map(|finding| match finding {
                Finding::NeverReached(_, route) => Some(route.place()),
                Finding::OnlyByOrder(..) => None,
            })
            .collect();
        for sent in &sent {
            if let Twin::Route(route) = decided(&table, sent) {
                prop_assert!(!never.contains(&route), "{:?}", sent);
            }
        }
    }

    #[test]
    fn a_redirect_leads_to_the_host_that_was_written_whatever_is_asked_for(
        pattern in select(&PATTERNS[..]),
        text in select(&REDIRECTS[..]),
        path in path(),
    ) {
        let pattern = PathPattern::read(pattern).expect("right");
        let to = RedirectTo::read(text).expect("right");
        let mut room = PathRoom::default();
        let Ok(read) = ReadPath::of(path.as_bytes(), &mut room) else { return Ok(()) };
        if !pattern.matches(read.matched) {
            return Ok(());
        }
        let rest = pattern.rest(read.passed);
        let values = Values { rest, path: read.passed, query: Some("//q"), host: b"own.example" };
        let mut out = Vec::new();
        to.write(&values, &mut out, usize::MAX);
        let led = String::from_utf8(out).expect("ASCII");
        let host = match led.split_once("://").filter(|(scheme, _)| *scheme == "https") {
            Some((_, rest)) => rest.split(['/', '?', '#']).next().unwrap_or_default(),
            None => {
                prop_assert!(led.starts_with('/') && !led.starts_with("//"), "{}: {}", path, led);
                "own.example"
            }
        };
        let written = if text.contains("a.example") { "a.example" } else { "own.example" };
        prop_assert_eq!(host, written, "{}: {}", path, led);
    }

    #[test]
    fn a_path_has_the_reading_that_both_orders_give(path in path()) {
        let mut room = PathRoom::default();
        let read = ReadPath::of(path.as_bytes(), &mut room);
        let matched = read.map(|read| read.matched.to_vec()).ok();
        prop_assert_eq!(&matched, &naive_reading(&path), "{}", path);
        if let Ok(read) = read {
            // What is passed on has the same reading, and stays as it is.
            let mut room = PathRoom::default();
            let again = ReadPath::of(read.passed, &mut room).expect("it was read before");
            prop_assert_eq!((again.matched, again.passed), (read.matched, read.passed));
            prop_assert_eq!(behind(read.passed, read.matched), Some(&b""[..]));
        }
    }
}

#[test]
fn each_spelling_of_a_path_takes_the_route_of_that_path_or_is_refused() {
    let rule = |path: &str| RouteRule {
        path: PathPattern::read(path).expect(path),
        conditions: Conditions::default(),
    };
    let site = SiteRules {
        hosts: vec![HostName::Any],
        is_canonical: false,
        routes: vec![rule("/"), rule("/admin/")],
    };
    let table = Table::new([site]);
    for (path, expected) in [
        ("/admin", Twin::Route(1)),
        ("/admin/", Twin::Route(1)),
        ("/%61dmin", Twin::Route(1)),
        ("/adm%69n/x", Twin::Route(1)),
        ("//admin", Twin::Route(1)),
        ("/./admin", Twin::Route(1)),
        ("/%2e/admin", Twin::Route(1)),
        ("/x/../admin", Twin::Route(1)),
        ("/x/%2e%2E/admin", Twin::Route(1)),
        ("/x/..//admin/", Twin::Route(1)),
        ("/x//../admin", Twin::Unsound),
        ("/..%2fadmin", Twin::Unsound),
        ("/x%2f..%2fadmin", Twin::Unsound),
        ("/x%5c..%5cadmin", Twin::Unsound),
        ("/x\\..\\admin", Twin::Unsound),
        ("/admin%00", Twin::Unsound),
        ("/admin%0a", Twin::Unsound),
        ("/../admin", Twin::Unsound),
        ("/%zzadmin", Twin::Unsound),
        ("/x/..;/admin/", Twin::Unsound),
        ("/x/..%3b/admin/", Twin::Unsound),
        ("/x/%2e%2e;a=1/admin/", Twin::Unsound),
        ("/.;/admin/", Twin::Unsound),
        ("/admin;a=1", Twin::Unsound),
        ("/admin;a=1/x", Twin::Unsound),
        ("/;a/admin/", Twin::Unsound),
        ("/admin%3B/x", Twin::Unsound),
        ("/admin/x;a=1", Twin::Route(1)),
        ("/x;a=1/y", Twin::Route(0)),
        // These name something else, to all who decode once.
        ("/%2561dmin", Twin::Route(0)),
        ("/admin%20", Twin::Route(0)),
        ("/admins", Twin::Route(0)),
        ("/Admin", Twin::Route(0)),
        ("/admin%2e", Twin::Route(0)),
        ("/admin/..", Twin::Route(0)),
    ] {
        let sent = Sent {
            leads_to_https: false,
            host: None,
            path: path.to_owned(),
            method: "GET",
            query: None,
            fields: String::new(),
        };
        assert_eq!(decided(&table, &sent), expected, "{path}");
    }
}

#[test]
fn a_host_that_is_nothing_but_a_domain_is_not_below_it() {
    let site = SiteRules {
        hosts: vec![HostName::read("*.a.example").expect("right")],
        is_canonical: false,
        routes: Vec::new(),
    };
    let table = Table::new([site]);
    assert!(table.site(Some("b.a.example")).is_some());
    for host in ["a.example", ".a.example", "ba.example", "", "."] {
        assert!(table.site(Some(host)).is_none(), "{host}");
    }
    assert!(table.site(None).is_none());
}

#[test]
fn patterns_that_no_path_fits_are_refused_with_what_is_expected() {
    for (text, why) in [
        ("api", "does not begin with /; expected a path such as"),
        ("/a?b", "has a query; expected the path alone, /a"),
        ("/a#b", "has a fragment; expected the path alone, /a"),
        ("/a//b", "has // in it"),
        ("/a/../b", "has . or .. in it"),
        ("/a/%2e/b", "has . or .. in it"),
        ("/a%2fb", "has an escaped slash"),
        ("/a%", "has a % without two hex digits; expected %25"),
        ("/a%00", "has a backslash or a control byte"),
        ("/a\\b", "has a backslash or a control byte"),
    ] {
        let wrong = PathPattern::read(text).expect_err(text);
        assert!(wrong.contains(why) && wrong.contains("expected"), "{text}: {wrong}");
    }
    let long = format!("/{}", "a".repeat(9000));
    assert!(PathPattern::read(&long).expect_err("long").contains("expected at most 8192"));
    assert!(matches!(PathPattern::read("/a/").expect("right").shape(), Shape::Below(_)));
}

#[test]
fn findings_name_what_is_never_reached_and_what_only_the_file_decides() {
    let rule = |path: &str, methods: &[&str]| RouteRule {
        path: PathPattern::read(path).expect(path),
        conditions: Conditions {
            methods: methods.iter().map(|&name| name.to_owned()).collect(),
            ..Conditions::default()
        },
    };
    let header = |path: &str| RouteRule {
        path: PathPattern::read(path).expect(path),
        conditions: Conditions {
            headers: vec![Wanted::read_header("X").expect("right")],
            ..Conditions::default()
        },
    };
    let findings = |routes: Vec<RouteRule>| {
        Table::new([SiteRules { hosts: vec![HostName::Any], is_canonical: false, routes }])
            .findings()
    };
    let id = RouteId::of_place;
    let never = |one, two| vec![Finding::NeverReached(id(one), id(two))];
    let by_order = |one, two| vec![Finding::OnlyByOrder(id(one), id(two))];
    for (routes, expected) in [
        (vec![rule("/a", &[]), rule("/a", &[])], never(0, 1)),
        (vec![rule("/a", &["GET", "POST"]), rule("/a", &["POST"])], never(0, 1)),
        (vec![rule("/a", &["GET"]), rule("/a", &["HEAD"])], never(0, 1)),
        (vec![rule("/a", &["GET"]), rule("/a", &["POST"])], vec![]),
        (vec![rule("/a", &[]), rule("/a", &["POST"])], vec![]),
        (vec![rule("/a", &["POST"]), header("/a")], by_order(0, 1)),
        (vec![rule("/", &[]), rule("*.php", &[])], vec![]),
        (vec![rule("/", &[]), rule("*", &[])], never(1, 0)),
        (vec![rule("/*c", &[]), rule("*/c", &[])], by_order(0, 1)),
        (vec![rule("/u/", &[]), rule("/u/*/edit", &[])], vec![]),
        (vec![rule("/", &[]), rule("/*", &[])], never(1, 0)),
        (vec![rule("/u/", &[]), rule("/u/*", &[])], vec![]),
        (vec![rule("/u/*/a", &[]), rule("/u/*/b", &[])], vec![]),
        (vec![rule("/u/*b/a", &[]), rule("/u/b*/a", &[])], vec![]),
        (vec![rule("/u/*bb/", &[]), rule("/u/*cc/", &[])], by_order(0, 1)),
        (vec![rule("/a/", &[]), rule("/b/", &[])], vec![]),
    ] {
        assert_eq!(findings(routes.clone()), expected, "{routes:?}");
    }
}

#[test]
fn a_pattern_that_begins_with_a_star_wins_over_the_root_alone() {
    let rule = |path: &str| RouteRule {
        path: PathPattern::read(path).expect(path),
        conditions: Conditions::default(),
    };
    let routes = ["/", "*.php", "/app/", "/app/*.php"].map(rule).to_vec();
    let table = Table::new([SiteRules { hosts: vec![HostName::Any], is_canonical: false, routes }]);
    for (path, expected) in
        [("/x", 0), ("/x.php", 1), ("/x/y.php", 1), ("/app/x", 2), ("/app/x.php", 3)]
    {
        let sent = Sent {
            leads_to_https: false,
            host: None,
            path: path.to_owned(),
            method: "GET",
            query: None,
            fields: String::new(),
        };
        assert_eq!(decided(&table, &sent), Twin::Route(expected), "{path}");
    }
}
