//! What answers at front ends that have sites: the handler of a route at once, a backend later, or a page that leads elsewhere or
//! refuses. `front/sites.rs` asks it for each request.

use std::sync::Arc;

use pollux_engine::Actions;
use pollux_http::{Form, Framing, Method, Rejection, Request, Status};

use crate::ServerError;
use crate::config::sites::RouteAnswer;
use crate::config::{FIELDS_BYTES_MAX, Files, ProxyConfig};
use crate::counters::ServerCounters;
use crate::handlers::Handler;
use crate::handlers::answer::{Answered, Context, RouteReply, SHORT_BYTES_MAX};
use crate::handlers::files::{LOCATION_BYTES_MAX, Routed, Site};
use crate::handlers::respond::{Making, respond_by};
use crate::ids::{GroupId, RouteId};
use crate::log::Logs;
use crate::refusal::Refusal;
use crate::route::conditions::Asking;
use crate::route::host::without_port;
use crate::route::path::{PathPattern, PathRoom, behind};
use crate::route::redirect::{RedirectTo, Values, write_query};
use crate::route::rewrite::Rewrite;
use crate::route::table::{Came, Decision, Table};

/// The sites of one loop.
#[derive(Debug)]
pub(crate) struct SiteHandlers {
    table: Table,
    /// In the order of the settings.
    routes: Box<[RouteHandler]>,
    room: PathRoom,
    /// The path that a handler gets, or the target of a backend, of the request that was decided on last.
    target: Vec<u8>,
    /// Where that request is led.
    location: Vec<u8>,
}

#[derive(Debug)]
struct RouteHandler {
    answer: AnsweredBy,
    rewrite: Rewrite,
    /// Of its requests.
    limits: pollux_http::Limits,
}

#[derive(Debug)]
enum AnsweredBy {
    Handler(Handler),
    Backend(GroupId),
    Redirect(PathPattern, RedirectTo),
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// A backend of this group answers it.
    Backend(GroupId, RouteId),
    /// The handler of this route does.
    Handler(RouteId),
    /// It goes no further.
    Ends(Ending),
}

/// How a request is answered that goes no further.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    Refused(Refusal),
    /// Its path has not one reading.
    Unsound(Rejection),
    /// No route takes it.
    NotFound,
    /// It is led elsewhere.
    Moved(Status),
    /// It asks which methods there are, of no path.
    Methods,
}

impl SiteHandlers {
    /// Those of these settings; none where they have no sites.
    ///
    /// # Errors
    /// A folder can't be opened.
    pub(crate) fn open(
        config: &ProxyConfig,
        logs: &Logs,
        counters: &Arc<ServerCounters>,
    ) -> Result<Option<Self>, ServerError> {
        if config.sites.is_empty() {
            return Ok(None);
        }
        let target_bytes_max = config.limits.clients.heads.target_bytes_max;
        let open =
            |files: &Files| Site::open(files, logs, counters, target_bytes_max).map(Handler::Files);
        Self::with(config, open).map(Some)
    }

    /// The same where nothing is answered: no folder is opened.
    pub(crate) fn unopened(config: &ProxyConfig) -> Self {
        let Ok(sites) = Self::with(config, |_| Ok::<_, std::convert::Infallible>(Handler::Echo));
        sites
    }

    fn with<E>(
        config: &ProxyConfig,
        open: impl Fn(&Files) -> Result<Handler, E>,
    ) -> Result<Self, E> {
        let limits = &config.limits.clients;
        let mut routes = Vec::new();
        for route in config.sites.routes() {
            let answer = match &route.answer {
                RouteAnswer::Files(files) => AnsweredBy::Handler(open(files)?),
                RouteAnswer::Reply(len_bytes) => {
                    AnsweredBy::Handler(Handler::RouteReply(RouteReply::new(*len_bytes)))
                }
                RouteAnswer::Echo => AnsweredBy::Handler(Handler::Echo),
                RouteAnswer::Backend(group) => AnsweredBy::Backend(GroupId::of_place(*group)),
                RouteAnswer::Redirect(to) => {
                    AnsweredBy::Redirect(route.rule.path.clone(), to.clone())
                }
            };
            let otherwise = match answer {
                AnsweredBy::Backend(_) => limits.passed_body_bytes_max(),
                AnsweredBy::Handler(_) | AnsweredBy::Redirect(..) => limits.own_body_bytes_max(),
            };
            let body_bytes = route.body_bytes_max.unwrap_or(otherwise);
            let limits = limits.heads.with_body(body_bytes);
            routes.push(RouteHandler { answer, rewrite: route.rewrite.clone(), limits });
        }
        Ok(Self {
            table: config.sites.table(),
            routes: routes.into(),
            room: PathRoom::default(),
            target: Vec::new(),
            location: Vec::new(),
        })
    }

    /// Room without which no request is looked at.
    pub(crate) fn room_bytes_min(&self) -> usize {
        let of_handler = |route: &RouteHandler| match &route.answer {
            AnsweredBy::Handler(handler) => handler.room_bytes_min(),
            AnsweredBy::Backend(_) | AnsweredBy::Redirect(..) => 0,
        };
        let most = self.routes.iter().map(of_handler).max().unwrap_or(0);
        most.max(SHORT_BYTES_MAX + FIELDS_BYTES_MAX)
    }

    /// The handler of this route, which has one.
    pub(crate) fn handler(&self, route: RouteId) -> &Handler {
        match &self.routes[route.place()].answer {
            AnsweredBy::Handler(handler) => handler,
            AnsweredBy::Backend(_) | AnsweredBy::Redirect(..) => {
                unreachable!("a handler answers it")
            }
        }
    }

    /// What requests of this route may have.
    pub(crate) fn limits(&self, route: RouteId) -> &pollux_http::Limits {
        &self.routes[route.place()].limits
    }

    /// Largest body that some route takes.
    pub(crate) fn body_bytes_max(&self) -> u64 {
        self.routes.iter().map(|route| route.limits.body_bytes).max().unwrap_or(0)
    }

    /// The path that a handler gets, or the target of a backend, of the request that was decided on last.
    pub(crate) fn target(&self) -> &[u8] {
        &self.target
    }

    /// Where that request is led.
    pub(crate) fn location(&self) -> &[u8] {
        &self.location
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// Has the handler of this route answer the request that was decided on last. Files are read where bytes go through another
    /// protocol.
    pub(crate) fn respond(
        &mut self,
        route: RouteId,
        with: &Making<'_>,
        actions: &mut Actions<'_>,
        request: &Request<'_>,
        context: Context,
        reads_all: bool,
    ) -> Answered {
        let RouteHandler { answer, rewrite, .. } = &mut self.routes[route.place()];
        let AnsweredBy::Handler(handler) = answer else { unreachable!("a handler answers it") };
        handler.read_all(reads_all);
        // Visible ASCII, as all that comes of a target.
        let path = str::from_utf8(&self.target).unwrap_or("/");
        let routed = Some(Routed { path, prefix: &rewrite.strip });
        let answered = respond_by(handler, with, actions, request, routed, context);
        answered.expect("it answers at once")
    }

    /// What becomes of a request whose client speaks TLS or does not, at a front end that leads to https or does not.
    pub(crate) fn decide(
        &mut self,
        is_secure: bool,
        leads_to_https: bool,
        request: &Request<'_>,
    ) -> Way {
        let ends = |ending| Way::Ends(ending);
        let host = request.host();
        let Some(path) = request.target.path() else {
            return ends(match request.target.form() {
                Form::Asterisk if self.table.site(host).is_some() => Ending::Methods,
                Form::Asterisk => Ending::Refused(Refusal::UnknownHost),
                _ => Ending::Refused(Refusal::OtherMethod),
            });
        };
        let query = request.target.query();
        let asking = Asking { method: request.method, query, fields: request.fields };
        let came = Came { leads_to_https, host, path, asking };
        let decided = match self.table.decide(&came, &mut self.room) {
            Ok(decided) => decided,
            Err(rejection) => return ends(Ending::Unsound(rejection)),
        };
        let sent_host = host.unwrap_or_default();
        self.location.clear();
        let status = match decided.decision {
            Decision::UnknownHost => return ends(Ending::Refused(Refusal::UnknownHost)),
            Decision::NoRoute => return ends(Ending::NotFound),
            // Nowhere to lead to.
            Decision::Https if without_port(sent_host.as_bytes()).is_empty() => {
                return ends(Ending::Refused(Refusal::UnknownHost));
            }
            Decision::Https => {
                let parts = ["https://".as_bytes(), without_port(sent_host.as_bytes())];
                parts.iter().for_each(|part| self.location.extend_from_slice(part));
                self.location.extend_from_slice(path.as_bytes());
                write_query(query, &mut self.location);
                for_good(request.method)
            }
            Decision::Canonical(name) => {
                let scheme = if is_secure { "https://" } else { "http://" };
                let port = &sent_host.as_bytes()[without_port(sent_host.as_bytes()).len()..];
                [scheme.as_bytes(), name.as_bytes(), port, path.as_bytes()]
                    .iter()
                    .for_each(|part| self.location.extend_from_slice(part));
                write_query(query, &mut self.location);
                for_good(request.method)
            }
            Decision::Route(id) => {
                let route = &self.routes[id.place()];
                let read = decided.path.expect("a route was found by it");
                self.target.clear();
                match &route.answer {
                    AnsweredBy::Handler(Handler::Files(_))
                        if is_folder(&route.rewrite, read.passed) =>
                    {
                        self.location.extend_from_slice(route.rewrite.strip.as_bytes());
                        self.location.push(b'/');
                        write_query(query, &mut self.location);
                        Status::MOVED_PERMANENTLY
                    }
                    AnsweredBy::Handler(_) => {
                        route.rewrite.write_path(read.passed, &mut self.target);
                        return Way::Handler(id);
                    }
                    AnsweredBy::Backend(group) => {
                        route.rewrite.write_path(read.passed, &mut self.target);
                        write_query(query, &mut self.target);
                        return Way::Backend(*group, id);
                    }
                    AnsweredBy::Redirect(_, to)
                        if to.needs_host() && without_port(sent_host.as_bytes()).is_empty() =>
                    {
                        return ends(Ending::Refused(Refusal::UnknownHost));
                    }
                    AnsweredBy::Redirect(pattern, to) => {
                        let rest = pattern.rest(read.passed);
                        let host = without_port(sent_host.as_bytes());
                        let values = Values { rest, path: read.passed, query, host };
                        to.write(&values, &mut self.location, LOCATION_BYTES_MAX);
                        Status::of(to.status)
                    }
                }
            }
        };
        match self.location.len() <= LOCATION_BYTES_MAX {
            true => ends(Ending::Moved(status)),
            false => ends(Ending::Refused(Refusal::LongLocation)),
        }
    }
}

/// Whether a body says that it is longer than its route takes: none of it is asked for.
pub(crate) fn is_too_long(request: &Request<'_>, limits: &pollux_http::Limits) -> bool {
    matches!(request.framing, Framing::Length(len) if len > limits.body_bytes)
}

/// Whether a folder is asked for without the slash that its pages are relative to, as it is taken away whole.
fn is_folder(rewrite: &Rewrite, passed: &[u8]) -> bool {
    !rewrite.strip.is_empty() && behind(passed, rewrite.strip.as_bytes()) == Some(b"")
}

/// What leads somewhere else for good: a method that is not GET stays what it is.
fn for_good(method: Method<'_>) -> Status {
    match method {
        Method::Get | Method::Head => Status::MOVED_PERMANENTLY,
        _ => Status::PERMANENT_REDIRECT,
    }
}
