//! Who the client of a connection is, and what is written down of it: the lines of its requests, and of what it did wrong.

use pollux_engine::Actions;
use pollux_http::{ProxyHeader, Rejection};

use crate::front::request::{RequestLine, field, request_line};
use crate::front::state::LoopState;
use crate::head::explanation;
use crate::log::{AccessLog, Entry, Event, Proxied};
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
    pub(super) record: Option<Box<Record>>,
    /// What of it was lost when the connection ended.
    pub(super) lost_bytes: u64,
}

/// A request whose answer has not left.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) head: Box<[u8]>,
    /// Of the whole body.
    pub(super) body_bytes: u64,
}

impl Client {
    /// One of whom a proxy in front says this.
    pub(super) fn of_header(header: ProxyHeader) -> Self {
        let ProxyHeader::Of { source, .. } = header else { return Self(None) };
        let address = source.ip().to_canonical().to_string().into();
        let peer = Peer { address, header: Some(header), record: None, lost_bytes: 0 };
        Self(Some(Box::new(peer)))
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
        self.0.get_or_insert_with(|| {
            let address = address_text(actions);
            Box::new(Peer { address, header: None, record: None, lost_bytes: 0 })
        })
    }

    /// The address of the client, if it was asked for.
    pub(super) fn address(&self) -> &str {
        self.0.as_ref().map_or("", |peer| &peer.address)
    }

    /// Books a request that a handler has answered, or was to; without its head there is no line, as of one that began
    /// before there was a log.
    pub(super) fn book(&self, state: &mut LoopState, head: Option<&[u8]>, outcome: Outcome) {
        let LoopState { counters, log, upstreams, .. } = state;
        let log = log.as_mut().filter(|_| head.is_some());
        let books = Books { counters, proxied: None, log };
        let head = head.unwrap_or_default();
        books.book(outcome, |log, outcome| self.entry(log, outcome, head, upstreams.is_some()));
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
        let (referer, agent) = match log.names_agents() {
            true => (field(head, "referer"), field(head, "user-agent")),
            false => (&b""[..], &b""[..]),
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
        let (errors, now_s) = (&state.logs.errors, state.now.unix_s);
        if is_tls {
            let program = if state.upstreams.is_some() { "proxy" } else { "server" };
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

/// The address of the peer without its port; empty on a unix socket.
fn address_text(actions: &Actions<'_>) -> Box<str> {
    let address = actions.peer().map(|peer| peer.ip().to_canonical());
    address.map_or_else(String::new, |address| address.to_string()).into()
}
