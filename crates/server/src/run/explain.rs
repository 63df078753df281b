//! What becomes of a request by the settings of a file, step by step, for `pollux serve explain`: its front end, its site, each route
//! that is tried, and what answers. The same code decides as while it serves; nothing is opened but certificates.

use std::fmt::Write;
use std::net::IpAddr;

use pollux_http::{Limits, Method, Parsed, Request, Status};
use pollux_tls::{ClientShown, ClientVerdict};

use crate::certificates::described;
use crate::config::serve_or_proxy::ServeOrProxy;
use crate::config::sites::{RouteAnswer, RouteConfig};
use crate::config::{Answer, Frontend, Mode, ProxyConfig, ServeConfig};
use crate::handlers::sites::{Arrival, Asked, Ending, SiteHandlers, Way};
use crate::head::explanation;
use crate::refusal::Refusal;
use crate::route::access::{AccessRules, Verdict};
use crate::route::conditions::ConditionInput;
use crate::route::host::without_port;
use crate::route::path::{PathRoom, ReadPath};
use crate::route::table::{Decision, RouteInput, Table};

/// A request as a person writes it.
#[derive(Clone, Debug)]
pub struct Question {
    /// As it was written.
    text: String,
    is_https: bool,
    /// The port that the URI names, or that of its scheme.
    port: u16,
    /// Who asks, where that was said.
    from: Option<IpAddr>,
    /// The head of the request.
    head: String,
}

impl Question {
    /// Reads `[METHOD] http[s]://HOST[:PORT]/PATH[?QUERY]`, with these fields, each as `NAME: VALUE`, by a connection from this
    /// address, if it matters.
    ///
    /// # Errors
    /// What is wrong with it, and what is expected.
    pub fn read(text: &str, fields: &[String], from: Option<IpAddr>) -> Result<Self, String> {
        let expected = "expected a method, if it is not GET, and a URI, such as \"POST https://www.example.org/api/x\"";
        let (method, uri) = text.trim().split_once(' ').unwrap_or(("GET", text.trim()));
        let (scheme, rest) = uri
            .trim_start()
            .split_once("://")
            .ok_or_else(|| format!("\"{uri}\" is not a URI; {expected}"))?;
        let (is_https, port) = match scheme.to_ascii_lowercase().as_str() {
            "http" => (false, 80),
            "https" => (true, 443),
            _ => return Err(format!("{scheme} is neither http nor https; {expected}")),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (host, target) = rest.split_at(end);
        let name = without_port(host.as_bytes());
        let said = host[name.len()..].strip_prefix(':').filter(|port| !port.is_empty());
        let said = said.map(|port| {
            port.parse::<u16>().map_err(|_| format!("{port} is not a port; {expected}"))
        });
        let slash = if target.starts_with('/') { "" } else { "/" };
        let target = target.split('#').next().unwrap_or_default();
        let mut head = format!("{method} {slash}{target} HTTP/1.1\r\nHost: {host}\r\n");
        for field in fields {
            if field.contains(['\r', '\n']) || !field.contains(':') {
                return Err(format!("\"{field}\" is not a field; expected \"NAME: VALUE\""));
            }
            write!(head, "{field}\r\n").expect("a string");
        }
        head.push_str("\r\n");
        Ok(Self {
            text: text.trim().to_owned(),
            is_https,
            port: said.transpose()?.unwrap_or(port),
            from: from.map(|from| from.to_canonical()),
            head,
        })
    }
}

/// What becomes of a request, a line for each step.
///
/// # Errors
/// Why no front end of the settings gets it.
pub fn explain(settings: &ServeOrProxy, question: &Question) -> Result<String, String> {
    let head = question.head.as_bytes();
    let clients = match settings {
        ServeOrProxy::Answers(config) => &config.limits,
        ServeOrProxy::Passes(config) => &config.limits.clients,
    };
    let limits = clients.heads.with_body(u64::MAX);
    let mut lines = Lines::default();
    lines.add("request", &question.text);
    let request = match Request::parse(head, &limits) {
        Parsed::Complete(request, _) => request,
        Parsed::Incomplete => return Err("the request is not whole".to_owned()),
        Parsed::Rejected(rejection) => {
            lines.add(
                "answer",
                &format!("{}: {}", rejection.status, explanation(&rejection, &limits)),
            );
            return Ok(lines.0);
        }
    };
    match settings {
        ServeOrProxy::Answers(config) => explain_answer(config, &mut lines),
        ServeOrProxy::Passes(config) => explain_front(config, question, &request, &mut lines)?,
    }
    Ok(lines.0)
}

/// Of a file that has one answer for all requests.
fn explain_answer(config: &ServeConfig, lines: &mut Lines) {
    let listen: Vec<String> = config.listen.iter().map(ToString::to_string).collect();
    lines.add("front end", &listen.join(" "));
    lines.add("site", "*, as there is no [[site]]");
    lines.add(
        "answer",
        &match &config.answer {
            Answer::Files(files) => format!("files below {}", files.root.display()),
            Answer::Reply { len_bytes, .. } => format!("a reply of {len_bytes} bytes"),
            Answer::Echo => "the body of the request".to_owned(),
        },
    );
}

fn explain_front(
    config: &ProxyConfig,
    question: &Question,
    request: &Request<'_>,
    lines: &mut Lines,
) -> Result<(), String> {
    let (front, note) = front_of(config, question)?;
    let listen: Vec<String> = front.listen.iter().map(ToString::to_string).collect();
    lines.add("front end", &format!("{}{note}", listen.join(" ")));
    if question.is_https && front.tls.is_on() && !explain_certificate(front, config, request, lines)
    {
        return Ok(());
    }
    if let Some(group) = front.group {
        lines.add("site", "*, as the front end leads to a backend");
        let answer = format!("backend \"{}\"", config.groups[group].name);
        let refused = refused(&RouteAnswer::Backend(group), request.method);
        lines.add("answer", &with_refusal(answer, refused));
        return Ok(());
    }
    let mut sites = SiteHandlers::unopened(config);
    let is_secure = question.is_https;
    let leads_to_https = front.leads_to_https && !is_secure;
    let mut peer = || question.from;
    let mut arrival = Arrival { is_secure, leads_to_https, peer: &mut peer };
    let way = sites.decide(&mut arrival, request);
    let routes: Vec<&RouteConfig> = config.sites.routes().collect();
    explain_site(&sites, config, &routes, (question, leads_to_https), request, lines);
    if let Way::Backend(_, route) | Way::Handler(route) = way {
        for limit in sites.rates(route) {
            let limit = &config.rates[limit.place()];
            lines.add("limit", &format!("{}: {limit}", limit.name));
        }
    }
    let is_encrypted = is_secure && front.tls.is_on();
    let way = explain_clients(&mut sites, config, way, is_encrypted, request, lines);
    if let Some(users) = sites.users(way) {
        let users = &config.sites.users[users.place()];
        let file = users.file.display();
        let text = format!("{}: 401 without a name and password of {file}", users.name);
        lines.add("users", &text);
    }
    lines.add("answer", &answer_of(&sites, config, &routes, way, request));
    Ok(())
}

/// What a client of this name is shown; false where the handshake ends there.
fn explain_certificate(
    front: &Frontend,
    config: &ProxyConfig,
    request: &Request<'_>,
    lines: &mut Lines,
) -> bool {
    let host = without_port(request.host().unwrap_or_default().as_bytes());
    match described(front, config, &String::from_utf8_lossy(host)) {
        Ok(Some(shown)) => lines.add("cert", &shown),
        Err(wrong) => lines.add("cert", &format!("it can't be read: {wrong}")),
        Ok(None) => {
            lines.add("cert", "none is for this name");
            lines.add("answer", "none: the handshake fails with the alert unrecognized_name");
            return false;
        }
    }
    true
}

/// The site, who may ask it, and its routes in the order in which they are tried.
fn explain_site(
    sites: &SiteHandlers,
    config: &ProxyConfig,
    routes: &[&RouteConfig],
    (question, leads_to_https): (&Question, bool),
    request: &Request<'_>,
    lines: &mut Lines,
) {
    let host = request.host();
    let Some(site) = sites.table().site(host) else { return };
    let names = config.sites.all[site.place()].hosts.iter().map(ToString::to_string);
    lines.add("site", &names.collect::<Vec<_>>().join(" "));
    let client = sites.trusted().client(question.from, request.fields);
    let path = request.target.path().unwrap_or("/");
    let came = RouteInput { leads_to_https, host, path, asking: asking(request) };
    let decided = sites.table().decide(&came, &mut PathRoom::default()).map(|it| it.decision);
    match decided {
        Ok(Decision::Route(route)) if sites.is_for_authorities(route) => {}
        _ => explain_access(sites.access(site), client, lines),
    }
    if !matches!(decided, Ok(Decision::Https | Decision::Canonical(_))) {
        explain_routes(sites.table(), request, routes, lines);
    }
    if let Ok(Decision::Route(route)) = decided {
        explain_access(sites.route_access(route), client, lines);
    }
}

/// Which certificate a client has to have, and the way of the request without one.
fn explain_clients(
    sites: &mut SiteHandlers,
    config: &ProxyConfig,
    way: Way,
    is_encrypted: bool,
    request: &Request<'_>,
    lines: &mut Lines,
) -> Way {
    let unknown = |asked: Asked| {
        let verdict = ClientVerdict::Nothing;
        ClientShown { asked: asked.authority, verdict }
    };
    let shown = sites.asked().map(unknown).filter(|_| is_encrypted);
    let way = match sites.refuse_client(way, shown.as_ref()) {
        // Whether there is one is not known here.
        None | Some(Ending::Refused(Refusal::NoCertificate)) => way,
        Some(ending) => Way::Ends(ending),
    };
    if let Some(clients) = config.sites.clients_of(sites.table().site(request.host()))
        && !matches!(way, Way::Ends(Ending::Moved(_) | Ending::Refused(_) | Ending::Denied))
    {
        let without = if clients.is_required { "403 without one" } else { "403 with another one" };
        lines.add("client", &format!("{clients}: {without}"));
    }
    way
}

fn answer_of(
    sites: &SiteHandlers,
    config: &ProxyConfig,
    routes: &[&RouteConfig],
    way: Way,
    request: &Request<'_>,
) -> String {
    let sent = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let ending = match way {
        Way::Backend(_, route) | Way::Handler(route) => {
            let answer = routes[route.place()].answer(&config.groups);
            return match refused(&routes[route.place()].answer, request.method) {
                None => format!("{answer}: asked for {}", sent(sites.target())),
                refused => with_refusal(answer, refused),
            };
        }
        Way::Ends(ending) => ending,
    };
    match ending {
        Ending::Moved(status) => format!("{status}, to {}", sent(sites.location())),
        Ending::NotFound => "404 Not Found: no route takes it".to_owned(),
        Ending::Unsound(rejection) => {
            format!("{}: {}", rejection.status, explanation(&rejection, &Limits::DEFAULT))
        }
        Ending::Refused(Refusal::UnknownHost) => {
            "421 Misdirected Request: no site has this host; \"*\" in host takes all others"
                .to_owned()
        }
        Ending::Refused(refusal @ Refusal::NotAsked) => {
            format!("{}: {}", refusal.status(), refusal.reason())
        }
        Ending::Refused(refusal) => refusal.status().to_string(),
        Ending::TooOften(_)
        | Ending::NoPassword(_)
        | Ending::TooManyTries(_)
        | Ending::PasswordsBusy => unreachable!("nobody asks here"),
        Ending::Maintenance(Some(route)) => routes[route.place()].answer(&config.groups),
        Ending::Maintenance(None) => "503, as its site is in maintenance".to_owned(),
        Ending::Denied => "none: the connection is cut off".to_owned(),
        Ending::Methods => "204 No Content: the methods that there are".to_owned(),
    }
}

/// What answers, or the status of a method that it does not take.
fn with_refusal(answer: String, refused: Option<Status>) -> String {
    match refused {
        Some(status) => format!("{status}: {answer}, which does not take the method"),
        None => answer,
    }
}

/// What `allow` and `deny` say of who asks.
fn explain_access(rules: &AccessRules, client: Option<IpAddr>, lines: &mut Lines) {
    if rules.is_empty() {
        return;
    }
    let who = match client {
        Some(client) => client.to_string(),
        None => "an address that is not known (--from says one)".to_owned(),
    };
    let verdict = match rules.verdict(client) {
        Verdict::Allowed(Some(by)) => format!("takes {who}, by allow {by}"),
        Verdict::Allowed(None) => format!("takes {who}, which no deny names"),
        Verdict::Denied(Some(by)) => format!("denies {who}, by deny {by}"),
        Verdict::Denied(None) => format!("denies {who}, which no allow names"),
    };
    lines.add("access", &verdict);
}

/// The status of a method that what answers does not take.
fn refused(answer: &RouteAnswer, method: Method<'_>) -> Option<Status> {
    let is_backend = matches!(answer, RouteAnswer::Backend(_));
    match (answer, method) {
        (_, Method::Trace | Method::Connect) => Some(Status::METHOD_NOT_ALLOWED),
        (_, Method::Other(_)) if !is_backend => Some(Status::NOT_IMPLEMENTED),
        (RouteAnswer::Files(_), Method::Get | Method::Head | Method::Options) => None,
        (RouteAnswer::Files(_), _) => Some(Status::METHOD_NOT_ALLOWED),
        _ => None,
    }
}

fn asking<'r>(request: &Request<'r>) -> ConditionInput<'r> {
    ConditionInput { method: request.method, query: request.target.query(), fields: request.fields }
}

/// Each route of the site, and why it was not taken.
fn explain_routes(
    table: &Table,
    request: &Request<'_>,
    routes: &[&RouteConfig],
    lines: &mut Lines,
) {
    let Some(site) = table.site(request.host()) else { return };
    let Some(path) = request.target.path() else { return };
    let mut room = PathRoom::default();
    let Ok(read) = ReadPath::of(path.as_bytes(), &mut room) else { return };
    let matched = String::from_utf8_lossy(read.matched);
    if matched == path {
        lines.add("path", path);
    } else {
        lines.add("path", &format!("{path}, read as {matched}"));
    }
    let mut is_taken = false;
    for tried in table.order(site) {
        let rule = &routes[tried.route.place()].rule;
        let lacking = rule.conditions.lacking(&asking(request));
        let verdict = match lacking {
            _ if is_taken => "not tried".to_owned(),
            _ if !rule.path.matches(read.matched) => "another path".to_owned(),
            Some(lacking) => format!("lacks {lacking}"),
            None => {
                is_taken = true;
                "takes it".to_owned()
            }
        };
        let conditions = match rule.conditions.count() {
            0 => String::new(),
            _ => format!(" ({})", rule.conditions),
        };
        lines.add("route", &format!("{}{conditions}: {verdict}", rule.path));
    }
}

/// The front end that gets the request, with what there is to say of that.
fn front_of<'c>(
    config: &'c ProxyConfig,
    question: &Question,
) -> Result<(&'c Frontend, &'static str), String> {
    let fronts = || config.frontends.iter().filter(|front| front.mode == Mode::Http);
    let has_port = |front: &&Frontend| {
        front.listen.iter().any(|address| address.port() == Some(question.port))
    };
    let is_of_scheme = |front: &&Frontend| front.tls.is_on() == question.is_https;
    let of_port = fronts().filter(is_of_scheme).find(has_port);
    if let Some(front) = of_port.or_else(|| fronts().find(is_of_scheme)) {
        let elsewhere =
            ", which does not listen at this port: as behind something that leads there";
        let note = if has_port(&front) { "" } else { elsewhere };
        return Ok((front, note));
    }
    match fronts().next() {
        Some(front) if question.is_https && front.x_forwarded.believes() => {
            Ok((front, ", which speaks no TLS: as behind a proxy that does and is believed"))
        }
        Some(_) if question.is_https => Err("no front end speaks TLS, and none believes a proxy that does (x_forwarded); expected http:// in \
                                             the request"
            .to_owned()),
        _ => Err("no front end speaks http; expected https:// in the request".to_owned()),
    }
}

/// Lines with what they are about in front.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, about: &str, text: &str) {
        writeln!(self.0, "{about:10} {text}").expect("a string");
    }
}
