//! What answers at front ends that have sites: the handler of a route at once, a backend later, or a page that leads elsewhere or
//! refuses. `front/sites.rs` asks it for each request.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use pollux_engine::Actions;
use pollux_http::{Form, Framing, Method, Rejection, Request, Status};
use pollux_tls::{AuthorityId, ClientShown, ClientVerdict};

use crate::ServerError;
use crate::certificates::{authority_of, client_authorities};
use crate::config::sites::{RouteAnswer, RouteName, SiteConfig};
use crate::config::{FIELDS_BYTES_MAX, Files, ProxyConfig};
use crate::counters::ServerCounters;
use crate::handlers::answer::{Answered, Context, RouteReply, SHORT_BYTES_MAX};
use crate::handlers::files::{Folder, LOCATION_BYTES_MAX, Routed};
use crate::handlers::respond::{AnswerParts, respond};
use crate::handlers::{Handler, SHORT_ROOM_BYTES};
use crate::head::sets::{FieldSet, FieldSetTable};
use crate::head::shared_fields::Page;
use crate::ids::{FieldSetId, FrontId, GroupId, LimitId, RouteId, SiteId, UsersId};
use crate::log::Logs;
use crate::refusal::Refusal;
use crate::route::access::{AccessRules, DenyWith, TrustedProxies, Verdict};
use crate::route::conditions::ConditionInput;
use crate::route::host::without_port;
use crate::route::path::{PathPattern, PathRoom, ReadPath, behind};
use crate::route::redirect::{RedirectTo, Values, write_query};
use crate::route::request_id::{CurrentId, RequestIds};
use crate::route::rewrite::{Rewrite, Slash};
use crate::route::table::{Decision, RouteInput, Table};
use crate::site_orders::SiteOrders;

/// The sites of one loop.
#[derive(Debug)]
pub(crate) struct SiteHandlers {
    table: Table,
    /// Who may ask each site.
    access: Box<[AccessRules]>,
    /// Whether some site or route is not for everybody.
    has_access: bool,
    trusted: TrustedProxies,
    /// Whose certificates each site asks its clients for, and whether they need one; none where no site does.
    clients: Box<[Option<Asked>]>,
    /// Whose passwords each site asks for, where none of its routes says otherwise.
    users: Box<[Option<UsersId>]>,
    /// Whether some route asks for passwords.
    has_users: bool,
    /// Whether a backend gets the names of these users.
    passes_user: Box<[bool]>,
    /// In the order of the settings.
    routes: Box<[RouteHandler]>,
    sets: FieldSetTable,
    /// Which sites are in maintenance by an order; none where nobody can give one.
    orders: Option<Arc<SiteOrders>>,
    /// How a log calls the sites and the routes.
    site_names: Box<[String]>,
    route_names: Box<[RouteName]>,
    /// Whether every front end has the sites.
    are_everywhere: bool,
    /// Ids of requests, where they have some.
    ids: Option<RequestIds>,
    /// The last one is what a proxy in front has said.
    is_id_of_others: bool,
    /// How far the request got that was decided on last.
    site: Option<SiteId>,
    route: Option<RouteId>,
    room: PathRoom,
    /// The path that a handler gets, or the target of a backend, of the request that was decided on last.
    target: Vec<u8>,
    /// Where that request is led.
    location: Vec<u8>,
    /// Who asks, as a password has shown, and of which users; empty where there was none.
    user: String,
    user_of: Option<UsersId>,
}

/// What a site asks its clients for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Asked {
    pub(crate) authority: AuthorityId,
    pub(crate) is_required: bool,
}

#[derive(Debug)]
struct RouteHandler {
    answer: AnsweredBy,
    access: AccessRules,
    rewrite: Rewrite,
    slash: Option<Slash>,
    /// Of its requests.
    limits: pollux_http::Limits,
    /// What they are charged to.
    rates: Box<[LimitId]>,
    /// Whose passwords are asked for.
    users: Option<UsersId>,
    /// Who issues certificates asks it, from wherever: what the site says of who may ask does not hold.
    is_for_authorities: bool,
}

#[derive(Debug)]
enum AnsweredBy {
    Handler(Handler),
    Backend(GroupId),
    Redirect(PathPattern, RedirectTo),
    /// This page, with 503; none where the one for all is sent.
    Maintenance(Option<Page>),
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
    /// Its client has asked too often, and may again after so many seconds.
    TooOften(u64),
    /// It has to say who asks, with the password of one of these users.
    NoPassword(UsersId),
    /// Its client has tried too many wrong passwords, and may try again after so many seconds.
    TooManyTries(u64),
    /// Too many wait for the check of their passwords, or it took too long.
    PasswordsBusy,
    /// What it is for is not there for now: by this route, or by an order for its site.
    Maintenance(Option<RouteId>),
    /// It is cut off, as its site or its route takes nothing from where it comes.
    Denied,
}

/// How a request came, beside its bytes.
pub(crate) struct Arrival<'a> {
    /// The client speaks TLS.
    pub(crate) is_secure: bool,
    /// The front end leads to https what comes without.
    pub(crate) leads_to_https: bool,
    /// The address of the connection, asked for where that matters; none where there is none.
    pub(crate) peer: &'a mut dyn FnMut() -> Option<IpAddr>,
}

impl Ending {
    /// Whether it is not said anew where the request is decided on once more.
    pub(crate) fn is_once(&self) -> bool {
        matches!(
            self,
            Self::TooOften(_)
                | Self::NoPassword(_)
                | Self::TooManyTries(_)
                | Self::PasswordsBusy
                // An order that is taken back lets through nobody whose password was not asked for.
                | Self::Maintenance(None)
        )
    }
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
        let open = |files: &Files| {
            Folder::open(files, logs, counters, target_bytes_max).map(Handler::Files)
        };
        Self::with(config, open, |path| Page::read(path).map(Some)).map(Some)
    }

    /// With orders about these sites.
    pub(crate) fn ordered(self, orders: Arc<SiteOrders>) -> Self {
        Self { orders: Some(orders), ..self }
    }

    /// Whether some site is in maintenance by an order, so that what was decided before may not hold.
    pub(crate) fn has_orders(&self) -> bool {
        self.orders.as_ref().is_some_and(|orders| orders.is_any())
    }

    /// The same where nothing is answered: no folder is opened.
    pub(crate) fn unopened(config: &ProxyConfig) -> Self {
        let open = |_: &Files| Ok::<_, std::convert::Infallible>(Handler::Echo);
        let Ok(sites) = Self::with(config, open, |_| Ok(None));
        sites
    }

    fn with<E>(
        config: &ProxyConfig,
        open: impl Fn(&Files) -> Result<Handler, E>,
        read: impl Fn(&Path) -> Result<Option<Page>, E>,
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
                RouteAnswer::Maintenance(page) => AnsweredBy::Maintenance(read(page)?),
            };
            let otherwise = match answer {
                AnsweredBy::Backend(_) => limits.passed_body_bytes_max(),
                AnsweredBy::Handler(_) | AnsweredBy::Redirect(..) | AnsweredBy::Maintenance(_) => {
                    limits.own_body_bytes_max()
                }
            };
            let body_bytes = route.body_bytes_max.unwrap_or(otherwise);
            let limits = limits.heads.with_body(body_bytes);
            let place = |name: &String| config.rates.iter().position(|limit| limit.name == *name);
            let rates = route.limits.iter().filter_map(place).map(LimitId::of_place).collect();
            let access = route.access.clone();
            let rewrite = route.rewrite.clone();
            let slash = route.slash;
            let users = route.users.map(UsersId::of_place);
            let is_for_authorities = route.is_for_authorities();
            routes.push(RouteHandler {
                answer,
                access,
                rewrite,
                slash,
                limits,
                rates,
                users,
                is_for_authorities,
            });
        }
        let access: Box<[AccessRules]> =
            config.sites.all.iter().map(|site| site.access.clone()).collect();
        let mut rules = access.iter().chain(routes.iter().map(|route| &route.access));
        let has_access = rules.any(|rules| !rules.is_empty());
        Ok(Self {
            table: config.sites.table(),
            has_access,
            trusted: config.sites.trusted.clone(),
            clients: sites_clients(&config.sites.all),
            users: sites_users(&config.sites.all),
            has_users: config.sites.routes().any(|route| route.users.is_some()),
            passes_user: config.sites.users.iter().map(|users| users.passes_user).collect(),
            access,
            routes: routes.into(),
            sets: FieldSet::all(config).1,
            orders: None,
            site_names: config.sites.all.iter().map(SiteConfig::name).collect(),
            route_names: config.sites.names(),
            are_everywhere: config.frontends.iter().all(|front| front.group.is_none()),
            ids: config.sites.request_id.as_ref().map(RequestIds::new),
            is_id_of_others: false,
            site: None,
            route: None,
            room: PathRoom::default(),
            target: Vec::new(),
            location: Vec::new(),
            user: String::new(),
            user_of: None,
        })
    }

    /// Room without which no request is looked at.
    pub(crate) fn room_bytes_min(&self) -> usize {
        let of_handler = |route: &RouteHandler| match &route.answer {
            AnsweredBy::Handler(handler) => handler.room_bytes_min(),
            AnsweredBy::Maintenance(page) => {
                let page_bytes = page.as_ref().map_or(0, |page| page.text.len());
                SHORT_ROOM_BYTES + FIELDS_BYTES_MAX + page_bytes
            }
            AnsweredBy::Backend(_) | AnsweredBy::Redirect(..) => 0,
        };
        let most = self.routes.iter().map(of_handler).max().unwrap_or(0);
        most.max(SHORT_BYTES_MAX + FIELDS_BYTES_MAX)
    }

    /// The handler of this route, which has one.
    pub(crate) fn handler(&self, route: RouteId) -> &Handler {
        match &self.routes[route.place()].answer {
            AnsweredBy::Handler(handler) => handler,
            AnsweredBy::Backend(_) | AnsweredBy::Redirect(..) | AnsweredBy::Maintenance(_) => {
                unreachable!("a handler answers it")
            }
        }
    }

    /// What requests of this route may have.
    pub(crate) fn limits(&self, route: RouteId) -> &pollux_http::Limits {
        &self.routes[route.place()].limits
    }

    /// What a request of this route is charged to.
    #[inline]
    pub(crate) fn rates(&self, route: RouteId) -> &[LimitId] {
        &self.routes[route.place()].rates
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

    /// What is done to the fields of that request, which came by this front end, and of its answer.
    pub(crate) fn fields(&self, front: FrontId) -> FieldSetId {
        self.sets.of(front, self.site, self.route)
    }

    /// How a log calls the site and the route that a request has, whatever became of it; empty where there is none, or where it
    /// may have come by a front end that leads to backends.
    pub(crate) fn names(&self, request: &Request<'_>) -> (&str, &str) {
        match self.place(request) {
            (None, _) => ("", ""),
            (Some(site), None) => (&self.site_names[site.place()], ""),
            (Some(_), Some(route)) => self.route_names[route.place()].parts(),
        }
    }

    /// How a log calls a route, and its site.
    pub(crate) fn names_of(&self, route: RouteId) -> (&str, &str) {
        self.route_names[route.place()].parts()
    }

    /// Whether the request that was answered has the route of users.
    pub(crate) fn had_password(&self, request: &Request<'_>) -> bool {
        self.place(request).1.is_some_and(|route| self.is_guarded(route))
    }

    /// The site and the route of a request, as for a log.
    fn place(&self, request: &Request<'_>) -> (Option<SiteId>, Option<RouteId>) {
        let host = request.host();
        let Some(site) = self.table.site(host).filter(|_| self.are_everywhere) else {
            return (None, None);
        };
        let Some(path) = request.target.path() else { return (Some(site), None) };
        let query = request.target.query();
        let asking = ConditionInput { method: request.method, query, fields: request.fields };
        let came = RouteInput { leads_to_https: false, host, path, asking };
        let decided = self.table.decide(&came, &mut PathRoom::default()).map(|it| it.decision);
        match decided {
            Ok(Decision::Route(route)) => (Some(site), Some(route)),
            _ => (Some(site), None),
        }
    }

    /// The page of a route in maintenance, where it has one.
    pub(crate) fn page(&self, route: RouteId) -> Option<&Page> {
        match &self.routes[route.place()].answer {
            AnsweredBy::Maintenance(page) => page.as_ref(),
            AnsweredBy::Handler(_) | AnsweredBy::Backend(_) | AnsweredBy::Redirect(..) => None,
        }
    }

    /// The route of the request that was decided on last, where it has one.
    pub(crate) fn route(&self) -> Option<RouteId> {
        self.route
    }

    /// Who may ask this site.
    pub(crate) fn access(&self, site: SiteId) -> &AccessRules {
        &self.access[site.place()]
    }

    /// Whether the rules of its site for who may ask don't hold for this route.
    pub(crate) fn is_for_authorities(&self, route: RouteId) -> bool {
        self.routes[route.place()].is_for_authorities
    }

    /// Who may ask this route, of those whom its site takes.
    pub(crate) fn route_access(&self, route: RouteId) -> &AccessRules {
        &self.routes[route.place()].access
    }

    pub(crate) fn trusted(&self) -> &TrustedProxies {
        &self.trusted
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// Has the handler of this route answer the request that was decided on last. Files are read where bytes go through another
    /// protocol.
    pub(crate) fn respond(
        &mut self,
        route: RouteId,
        with: &AnswerParts<'_>,
        actions: &mut Actions<'_>,
        request: &Request<'_>,
        context: Context,
        reads_all: bool,
    ) -> Answered {
        let RouteHandler { answer, rewrite, .. } = &mut self.routes[route.place()];
        let AnsweredBy::Handler(handler) = answer else { unreachable!("a handler answers it") };
        handler.set_reads_all(reads_all);
        // Visible ASCII, as all that comes of a target.
        let path = str::from_utf8(&self.target).unwrap_or("/");
        let routed = Some(Routed { path, prefix: &rewrite.strip });
        let answered = respond(handler, with, actions, request, routed, context);
        answered.expect("it answers at once")
    }

    /// Whether requests have ids.
    #[inline]
    pub(crate) fn has_ids(&self) -> bool {
        self.ids.is_some()
    }

    /// Has ids there, of a loop.
    pub(crate) fn share_ids(&mut self, current: &CurrentId) {
        if let Some(ids) = &mut self.ids {
            ids.share(current);
        }
    }

    /// Gives a request its id, that came by a connection of this address.
    pub(crate) fn identify(
        &mut self,
        peer: impl FnOnce() -> Option<IpAddr>,
        request: &Request<'_>,
        unix_s: u64,
    ) {
        if let Some(ids) = &mut self.ids {
            self.is_id_of_others = ids.of(&self.trusted, peer, request.fields, unix_s);
        }
    }

    /// Gives one to a request of which nothing is known, or that is like the last one.
    pub(crate) fn identify_again(&mut self, unix_s: u64) {
        if let Some(ids) = &mut self.ids {
            ids.make(unix_s);
            self.is_id_of_others = false;
        }
    }

    /// Whether the next one with the same head may have another id.
    pub(crate) fn may_repeat_id(&self) -> bool {
        !self.is_id_of_others
    }

    /// Nothing was decided on last.
    pub(crate) fn forget(&mut self) {
        (self.site, self.route) = (None, None);
        self.forget_user();
    }

    #[inline]
    fn forget_user(&mut self) {
        if self.has_users {
            self.user.clear();
            self.user_of = None;
        }
    }

    /// Whose password is asked for before the request goes this way, which was decided on last; none where everybody may.
    #[inline]
    pub(crate) fn users(&self, way: Way) -> Option<UsersId> {
        if !self.has_users {
            return None;
        }
        let of_route = |route: RouteId| self.routes[route.place()].users;
        match way {
            Way::Backend(_, route) | Way::Handler(route) => of_route(route),
            // What there is below a site is nobody else's business either.
            Way::Ends(Ending::NotFound) => self.site.and_then(|site| self.users[site.place()]),
            // Without a route it is led to https, or to another name, before it says a password.
            Way::Ends(Ending::Moved(_) | Ending::Maintenance(Some(_))) => {
                self.route.and_then(of_route)
            }
            Way::Ends(_) => None,
        }
    }

    /// What the site of the request that was decided on last asks its clients for.
    #[inline]
    pub(crate) fn asked(&self) -> Option<Asked> {
        self.clients.get(self.site?.place()).copied().flatten()
    }

    /// What becomes of a request that was decided to go this way, where its site asks for a certificate of its client, which has
    /// shown this; none where it goes that way.
    #[inline]
    pub(crate) fn refuse_client(&self, way: Way, shown: Option<&ClientShown>) -> Option<Ending> {
        let asked = if self.clients.is_empty() { None } else { self.asked() };
        self.refuse_unknown(asked?, way, shown)
    }

    fn refuse_unknown(
        &self,
        Asked { authority, is_required }: Asked,
        way: Way,
        shown: Option<&ClientShown>,
    ) -> Option<Ending> {
        match (way, self.route) {
            // It is refused already.
            (Way::Ends(Ending::Denied | Ending::Refused(_)), _) => return None,
            // It is led to https, or to another name, before it is asked for one.
            (Way::Ends(Ending::Moved(_)), None) => return None,
            (_, Some(route)) if self.is_for_authorities(route) => return None,
            _ => {}
        }
        let refusal = match shown {
            // Without TLS, for one.
            None => Refusal::NotAsked,
            Some(shown) if shown.asked != authority => Refusal::NotAsked,
            Some(ClientShown { verdict, .. }) => match verdict {
                ClientVerdict::Believed(_) => return None,
                ClientVerdict::Nothing if !is_required => return None,
                ClientVerdict::Nothing => Refusal::NoCertificate,
                ClientVerdict::Refused(_) => Refusal::BadCertificate,
            },
        };
        Some(Ending::Refused(refusal))
    }

    /// Whether this route asks for passwords.
    pub(crate) fn is_guarded(&self, route: RouteId) -> bool {
        self.routes[route.place()].users.is_some()
    }

    /// This user asks, as a password has shown.
    pub(crate) fn set_user(&mut self, of: UsersId, name: &str) {
        self.user.clear();
        self.user.push_str(name);
        self.user_of = Some(of);
    }

    /// Who asks; empty where no password was asked for.
    pub(crate) fn user(&self) -> &str {
        &self.user
    }

    /// The same for a backend that is to get it.
    pub(crate) fn user_passed(&self) -> &str {
        match self.user_of {
            Some(of) if self.passes_user[of.place()] => &self.user,
            _ => "",
        }
    }

    /// Whether some route asks for passwords.
    pub(crate) fn has_users(&self) -> bool {
        self.has_users
    }

    /// What becomes of a request.
    pub(crate) fn decide(&mut self, arrival: &mut Arrival<'_>, request: &Request<'_>) -> Way {
        self.forget_user();
        let mut way = self.find(arrival, request);
        if self.has_orders() && self.is_away(request) {
            way = Way::Ends(Ending::Maintenance(None));
        }
        if !self.has_access {
            return way;
        }
        // Before all else that may come of it, and before its body is looked at.
        let route = self.route.map(|route| &self.routes[route.place()]);
        let is_for_authorities = route.is_some_and(|route| route.is_for_authorities);
        let site = self.site.filter(|_| !is_for_authorities);
        let site = site.map(|site| &self.access[site.place()]);
        let route = route.map(|route| &route.access);
        let mut rules = site.into_iter().chain(route).filter(|rules| !rules.is_empty()).peekable();
        if rules.peek().is_none() {
            return way;
        }
        let client = self.trusted.client((arrival.peer)(), request.fields);
        match rules.find(|rules| matches!(rules.verdict(client), Verdict::Denied(_))) {
            None => way,
            Some(AccessRules { deny_with: DenyWith::Close, .. }) => Way::Ends(Ending::Denied),
            Some(_) => Way::Ends(Ending::Refused(Refusal::NotAllowed)),
        }
    }

    /// Whether the site of the request is in maintenance by an order, which does not hold below `/.well-known/`: who issues
    /// certificates asks there.
    #[cold]
    fn is_away(&self, request: &Request<'_>) -> bool {
        // As routes read it: dots lead out of a folder.
        let mut room = PathRoom::default();
        let path =
            request.target.path().and_then(|path| ReadPath::of(path.as_bytes(), &mut room).ok());
        let is_known = path.is_some_and(|path| {
            [Some(path.matched), path.bare]
                .iter()
                .flatten()
                .all(|it| it.starts_with(b"/.well-known/"))
        });
        let is_in =
            |orders: &SiteOrders| self.site.is_some_and(|site| orders.is_in_maintenance(site));
        !is_known && self.orders.as_deref().is_some_and(is_in)
    }

    /// What becomes of a request, for all clients alike.
    fn find(&mut self, arrival: &Arrival<'_>, request: &Request<'_>) -> Way {
        let Arrival { is_secure, leads_to_https, .. } = *arrival;
        let host = request.host();
        (self.site, self.route) = (None, None);
        let path = request.target.path().filter(|_| !is_of_server(request));
        let Some(path) = path else { return self.without_path(host, request.target.form()) };
        let query = request.target.query();
        let asking = ConditionInput { method: request.method, query, fields: request.fields };
        let input = RouteInput { leads_to_https, host, path, asking };
        let decided = match self.table.decide(&input, &mut self.room) {
            Ok(decided) => decided,
            Err(rejection) => {
                // Of whom it may have been is known all the same.
                self.site = self.table.site(host);
                return Way::Ends(Ending::Unsound(rejection));
            }
        };
        self.site = decided.site;
        self.location.clear();
        let sent = Sent {
            host: host.unwrap_or_default().as_bytes(),
            path: path.as_bytes(),
            query,
            method: request.method,
        };
        let led = match decided.decision {
            Decision::UnknownHost => Err(Way::Ends(Ending::Refused(Refusal::UnknownHost))),
            Decision::NoRoute => Err(Way::Ends(Ending::NotFound)),
            Decision::Https => sent.write_https(&mut self.location).map_err(Way::Ends),
            Decision::Canonical(name) => {
                Ok(sent.write_named(name.as_bytes(), is_secure, &mut self.location))
            }
            Decision::Route(id) => {
                let read = decided.path.expect("a route was found by it");
                self.route = Some(id);
                self.target.clear();
                let route = &self.routes[id.place()];
                route.way(id, read.passed, &sent, &mut self.target, &mut self.location)
            }
        };
        match led {
            Err(way) => way,
            Ok(status) if self.location.len() <= LOCATION_BYTES_MAX => {
                Way::Ends(Ending::Moved(status))
            }
            Ok(_) => Way::Ends(Ending::Refused(Refusal::LongLocation)),
        }
    }

    /// What becomes of a request whose target names no path.
    fn without_path(&mut self, host: Option<&str>, form: Form) -> Way {
        self.site = self.table.site(host);
        Way::Ends(match form {
            Form::Absolute | Form::Asterisk if self.site.is_some() => Ending::Methods,
            Form::Absolute | Form::Asterisk => Ending::Refused(Refusal::UnknownHost),
            _ => Ending::Refused(Refusal::OtherMethod),
        })
    }
}

/// What of a request is said again where it is led elsewhere.
struct Sent<'r> {
    /// With its port; empty where none was named.
    host: &'r [u8],
    path: &'r [u8],
    query: Option<&'r str>,
    method: Method<'r>,
}

impl Sent<'_> {
    /// Writes the same with https; an error where there is nowhere to lead to.
    fn write_https(&self, location: &mut Vec<u8>) -> Result<Status, Ending> {
        let host = self.named_host()?;
        [b"https://", host, self.path].iter().for_each(|part| location.extend_from_slice(part));
        write_query(self.query, location);
        Ok(for_good(self.method))
    }

    /// Writes the same of the host with this name, at the same port.
    fn write_named(&self, name: &[u8], is_secure: bool, location: &mut Vec<u8>) -> Status {
        let scheme: &[u8] = if is_secure { b"https://" } else { b"http://" };
        let port = &self.host[without_port(self.host).len()..];
        [scheme, name, port, self.path].iter().for_each(|part| location.extend_from_slice(part));
        write_query(self.query, location);
        for_good(self.method)
    }

    /// The host without its port; an error where none was named.
    fn named_host(&self) -> Result<&[u8], Ending> {
        Some(without_port(self.host))
            .filter(|host| !host.is_empty())
            .ok_or(Ending::Refused(Refusal::UnknownHost))
    }
}

impl RouteHandler {
    /// What becomes of a request of this path: `target` is what a handler or a backend gets then. The status where its client
    /// is led elsewhere, to `location`.
    fn way(
        &self,
        id: RouteId,
        passed: &[u8],
        sent: &Sent<'_>,
        target: &mut Vec<u8>,
        location: &mut Vec<u8>,
    ) -> Result<Status, Way> {
        match &self.answer {
            AnsweredBy::Maintenance(_) => Err(Way::Ends(Ending::Maintenance(Some(id)))),
            AnsweredBy::Backend(group) => {
                if self.slash.is_some_and(|slash| slash.write(passed, location)) {
                    write_query(sent.query, location);
                    return Ok(for_good(sent.method));
                }
                self.rewrite.write_path(passed, target);
                write_query(sent.query, target);
                Err(Way::Backend(*group, id))
            }
            AnsweredBy::Handler(Handler::Files(_)) if is_folder(&self.rewrite, passed) => {
                location.extend_from_slice(self.rewrite.strip.as_bytes());
                location.push(b'/');
                write_query(sent.query, location);
                Ok(Status::MOVED_PERMANENTLY)
            }
            AnsweredBy::Handler(_) => {
                self.rewrite.write_path(passed, target);
                Err(Way::Handler(id))
            }
            AnsweredBy::Redirect(pattern, to) => {
                if to.needs_host() {
                    sent.named_host().map_err(Way::Ends)?;
                }
                let host = without_port(sent.host);
                let rest = pattern.rest(passed);
                let values = Values { rest, path: passed, query: sent.query, host };
                to.write(&values, location, LOCATION_BYTES_MAX);
                Ok(Status::of(to.status))
            }
        }
    }
}

/// What the sites ask their clients for; nothing where none does.
fn sites_clients(sites: &[SiteConfig]) -> Box<[Option<Asked>]> {
    let all = client_authorities(sites);
    let of_site = |site: &SiteConfig| {
        let authority = authority_of(site, &all)?;
        let is_required = site.tls.clients.as_ref().is_some_and(|clients| clients.is_required);
        Some(Asked { authority, is_required })
    };
    if all.is_empty() { Box::default() } else { sites.iter().map(of_site).collect() }
}

/// Whose passwords the sites ask for.
fn sites_users(sites: &[SiteConfig]) -> Box<[Option<UsersId>]> {
    sites.iter().map(|site| site.users.map(UsersId::of_place)).collect()
}

/// Whether a body says that it is longer than its route takes: none of it is asked for.
pub(crate) fn is_too_long(request: &Request<'_>, limits: &pollux_http::Limits) -> bool {
    matches!(request.framing, Framing::Length(len) if len > limits.body_bytes)
}

/// Whether it asks for the options of the whole server in absolute form, which has no path then (RFC 9112 3.2.4).
fn is_of_server(request: &Request<'_>) -> bool {
    request.method == Method::Options
        && request.target.form() == Form::Absolute
        && request.target.path_and_query().is_none_or(<[u8]>::is_empty)
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
