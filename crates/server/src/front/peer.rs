//! Who the client of a connection is, and what is written down of it: the lines of its requests, and of what it did wrong.

use pollux_engine::Actions;
use pollux_http::{Framing, Limits, Parsed, ProxyHeader, Rejection, Request, Status};
use pollux_tls::{ClientIdentity, ClientShown, ClientVerdict};

use crate::front::kept::Kept;
use crate::front::request::{RequestLine, field, request_line};
use crate::front::state::LoopState;
use crate::handlers::sites::SiteHandlers;
use crate::head::explanation;
use crate::log::{AccessLog, Entry, Event, Proxied};
use crate::passwords::Credentials;
use crate::rates::Rates;
use crate::record::{Books, End, Outcome};

/// The client of a connection. A connection that is idle, and needs no name, has none.
#[derive(Default, Debug)]
pub(super) struct Client(Option<Box<Peer>>);

/// What is known of a client.
#[derive(Debug)]
pub(super) struct Peer {
    /// Its address without the port; empty on a unix socket.
    pub(super) address: Box<str>,
    /// What a proxy in front said of it.
    pub(super) header: Option<ProxyHeader>,
    /// The answer of HTTP/1 that is under way, where there is a log.
    pub(super) unbooked: Option<Box<Unbooked>>,
    /// What of it was lost when the connection ended.
    pub(super) lost_bytes: u64,
    /// Its connection is one of so many that it may have.
    pub(super) is_counted: bool,
    /// What it has shown that was asked for a certificate.
    pub(super) shown: Option<Box<ClientShown>>,
}

impl Peer {
    fn of(address: Box<str>, header: Option<ProxyHeader>) -> Self {
        Self { address, header, unbooked: None, lost_bytes: 0, is_counted: false, shown: None }
    }
}

/// A request whose answer has not left.
#[derive(Debug)]
pub(super) struct Unbooked {
    pub(super) head: Box<[u8]>,
    /// Of the whole body.
    pub(super) body_bytes: u64,
    pub(super) kept: Kept,
}

impl Client {
    /// One of whom a proxy in front says this.
    pub(super) fn of_header(header: ProxyHeader) -> Self {
        let ProxyHeader::Of { source, .. } = header else { return Self(None) };
        let address = source.ip().to_canonical().to_string().into();
        Self(Some(Box::new(Peer::of(address, Some(header)))))
    }

    /// Counts its connection at a front end that takes so many of each client; whether it may stay.
    pub(super) fn enter(&mut self, rates: &Rates, actions: &Actions<'_>, most: u32) -> bool {
        let peer = self.peer(actions);
        // One of a unix socket has no address.
        let Ok(address) = peer.address.parse() else { return true };
        peer.is_counted = rates.connections.enter(address, most);
        peer.is_counted
    }

    /// Its connection has ended.
    pub(super) fn leave(&mut self, rates: Option<&Rates>) {
        if let (Some(peer), Some(rates)) = (self.0.as_deref_mut(), rates)
            && std::mem::take(&mut peer.is_counted)
            && let Ok(address) = peer.address.parse()
        {
            rates.connections.leave(address);
        }
    }

    /// What is known of it.
    pub(super) fn known(&self) -> Option<&Peer> {
        self.0.as_deref()
    }

    /// The same, to be changed.
    pub(super) fn known_mut(&mut self) -> Option<&mut Peer> {
        self.0.as_deref_mut()
    }

    /// Who the client is: a system call where that was not asked for before.
    pub(super) fn peer(&mut self, actions: &Actions<'_>) -> &mut Peer {
        self.0.get_or_insert_with(|| Box::new(Peer::of(address_text(actions), None)))
    }

    /// The address of the client, if it was asked for.
    pub(super) fn address(&self) -> &str {
        self.0.as_ref().map_or("", |peer| &peer.address)
    }

    /// What it has shown where it was asked for a certificate.
    pub(super) fn shown(&self) -> Option<&ClientShown> {
        self.0.as_ref()?.shown.as_deref()
    }

    /// Who it is, as a certificate says that is believed.
    pub(super) fn identity(&self) -> Option<&ClientIdentity> {
        match &self.shown()?.verdict {
            ClientVerdict::Believed(identity) => Some(identity),
            ClientVerdict::Nothing | ClientVerdict::Refused(_) => None,
        }
    }

    /// Books a request that a handler has answered, or was to; without its head there is no line, as of one that began
    /// before there was a log.
    pub(super) fn book(&self, state: &mut LoopState, head: Option<&[u8]>, outcome: Outcome) {
        let LoopState { counters, log, proxy, sites, current_id, .. } = state;
        let log = log.as_mut().filter(|_| head.is_some());

        let head = head.unwrap_or_default();
        let sites = sites.as_deref();
        let is_guarded = log.is_some() && sites.is_some_and(SiteHandlers::has_users);
        let user = sites.filter(|_| is_guarded).and_then(|sites| user(sites, head, &outcome));
        let user = user.as_deref().unwrap_or_default();
        let has_id = log.as_ref().is_some_and(|log| log.names_routes())
            && sites.is_some_and(SiteHandlers::has_ids);
        let id = if has_id { current_id.with(str::to_owned) } else { String::new() };
        let request_id = id.as_str();
        let books = Books { counters, proxied: None, log };
        books.book(outcome, |log, outcome| {
            let entry =
                Entry { user, request_id, ..self.entry(log, outcome, head, proxy.is_some()) };
            match sites.filter(|_| log.names_routes()) {
                Some(sites) => with_route(entry, sites, head),
                None => entry,
            }
        });
    }

    /// What the log says of it. A line of a proxy has the columns of all others.
    #[cold]
    fn entry<'a>(
        &'a self,
        log: &AccessLog,
        outcome: &Outcome,
        head: &'a [u8],
        is_of_proxy: bool,
    ) -> Entry<'a> {
        let RequestLine { method, target, version } = request_line(head);
        let (referer, agent) = if log.names_agents() {
            (field(head, "referer"), field(head, "user-agent"))
        } else {
            (&b""[..], &b""[..])
        };
        let cut = match outcome.end {
            End::Cut(cut) => Some(cut.name()),
            _ => None,
        };
        Entry {
            peer: self.address(),
            method,
            target,
            version,
            status: outcome.status_logged(),
            body_bytes: outcome.body_bytes,
            referer,
            agent,
            user: "",
            client: self.identity().map_or(("", ""), |it| (&it.subject, &it.sha256)),
            request_id: "",
            site: "",
            route: "",
            cut: cut.filter(|_| !is_of_proxy),
            proxied: is_of_proxy.then(|| Proxied::here(outcome.end.word())),
        }
    }

    /// Reports what was wrong with a client's bytes.
    #[cold]
    pub(super) fn report_refusal(
        &self,
        state: &LoopState,
        actions: &Actions<'_>,
        rejection: Rejection,
        is_tls: bool,
    ) {
        let errors = &state.logs.errors;
        let now_s = state.now.unix_s;
        if is_tls {
            let program = if state.proxy.is_some() { "proxy" } else { "server" };
            errors.report(Event::TlsSpoken, now_s, || {
                let client = self.name(actions);
                format!(
                    "{client} speaks TLS, which this {program} does not: use http://, or give it --cert and --key"
                )
            });
        } else {
            errors.report(Event::RequestRefused, now_s, || {
                let why = explanation(&rejection, &state.head_limits);
                format!("{}: {}: {why}", self.name(actions), rejection.status)
            });
        }
    }

    /// The client as the error log names it.
    pub(super) fn name(&self, actions: &Actions<'_>) -> Box<str> {
        let address = match &self.0 {
            Some(peer) => peer.address.clone(),
            None => address_text(actions),
        };
        if address.is_empty() { "a client of a unix socket".into() } else { address }
    }
}

/// The same, with the site and the route that the request has: that is decided by its head alone, which is read again for
/// this line.
#[cold]
fn with_route<'a>(entry: Entry<'a>, sites: &'a SiteHandlers, head: &'a [u8]) -> Entry<'a> {
    let (site, route) = read_again(head).map_or(("", ""), |request| sites.names(&request));
    Entry { site, route, ..entry }
}

/// Who asked, of a request whose route has users, and that was let through.
#[cold]
fn user(sites: &SiteHandlers, head: &[u8], outcome: &Outcome) -> Option<String> {
    if !matches!(outcome.end, End::Whole | End::Cut(_)) || outcome.status.is_none() {
        return None;
    }
    // A password is asked for behind what leads to https, and behind an order for maintenance.
    let may_be_in_front =
        |status: Status| matches!(status.code(), 300..=399) || status == Status::UNAVAILABLE;
    if outcome.status.is_some_and(may_be_in_front) {
        return None;
    }
    let request = read_again(head).filter(|request| sites.had_password(request))?;
    let credentials = request.fields.first("authorization").and_then(Credentials::read)?;
    Some(credentials.name().to_owned())
}

/// A head that was read before.
fn read_again(head: &[u8]) -> Option<Request<'_>> {
    let limits = Limits {
        head_bytes: usize::MAX,
        target_bytes: usize::MAX,
        fields: usize::MAX,
        body_bytes: u64::MAX,
        ..Limits::DEFAULT
    };
    match request_line(head).version {
        "2.0" => Request::of_stream(head, Framing::None, false),
        _ => match Request::parse(head, &limits) {
            Parsed::Complete(request, _) => Some(request),
            Parsed::Incomplete | Parsed::Rejected(_) => None,
        },
    }
}

/// The address of the peer without its port; empty on a unix socket.
fn address_text(actions: &Actions<'_>) -> Box<str> {
    let address = actions.peer().map(|peer| peer.ip().to_canonical());
    address.map_or_else(String::new, |address| address.to_string()).into()
}
