//! What a connection of a proxy is: a client's, one to a backend for requests, or for a check of it.

use std::io;
use std::sync::{Arc, Mutex};

use pollux_engine::{Actions, CloseCause, Command, Moment, Now, Session};
use pollux_http::{ProxyHeader, RequestKind, Response};

use super::client::Client;
use super::config::{Check, Mode};
use super::exchange::{Outgoing, Purpose};
use super::fault::Fault;
use super::shared::ProxyShared;
use super::stream::Stream;
use super::upstream::Upstream;
use crate::counters::ServerCounter;
use crate::tls::{PlaintextSession, SharedTls, Tls, lock};

/// One connection of a proxy.
#[derive(Debug)]
pub struct ProxySession {
    side: Role,
    /// A head of the PROXY protocol has to come first.
    awaits_header: bool,
    /// What lies between the side and the connection.
    tls: Option<SharedTls>,
}

/// The peer of a connection.
#[derive(Debug)]
pub(super) enum Role {
    Client(Client),
    Upstream(Upstream),
    Check(CheckSession),
    Stream(Stream),
}

impl ProxySession {
    /// What runs on a connection that was opened for this.
    fn outgoing(Outgoing { purpose, tls }: Outgoing) -> Self {
        let side = match purpose {
            Purpose::Requests(link) => Role::Upstream(Upstream::new(link)),
            Purpose::Check(backend) => Role::Check(CheckSession::new(backend)),
            Purpose::Stream(pair) => Role::Stream(Stream::to_backend(pair)),
        };
        Self { side, awaits_header: false, tls }
    }

    /// Reads the head that says whose connection it is; the client's side gets what follows.
    fn on_header(
        &mut self,
        shared: &mut ProxyShared,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        match ProxyHeader::parse(input) {
            Ok(None) => 0,
            Ok(Some((header, len))) => {
                self.awaits_header = false;
                self.side.belongs_to(header);
                if self.tls.is_none() {
                    self.side.connected(shared, actions);
                }
                let rest = &input[len..];
                len + if rest.is_empty() { 0 } else { self.on_bytes(shared, actions, rest) }
            }
            Err(wrong) => {
                shared.refuse_header(&wrong);
                actions.abort();
                input.len()
            }
        }
    }

    fn call(
        &mut self,
        shared: &mut ProxyShared,
        actions: &mut Actions<'_>,
        call: impl FnOnce(&mut Role, &mut ProxyShared, &mut Actions<'_>),
    ) {
        match &self.tls {
            Some(tls) => lock(tls).call(&mut self.side, shared, actions, call),
            None => call(&mut self.side, shared, actions),
        }
    }
}

impl Session for ProxySession {
    type Shared = ProxyShared;

    fn opened(shared: &mut ProxyShared, waker: &pollux_poller::Waker) {
        shared.opened(waker);
    }

    fn begin_turn(shared: &mut ProxyShared, now: Now) {
        shared.begin_turn(now);
    }

    fn end_turn(shared: &mut ProxyShared) {
        shared.end_turn();
    }

    fn release_memory(shared: &mut ProxyShared) {
        shared.exchanges.release_memory();
        shared.pipes.release();
    }

    fn next_command(shared: &mut ProxyShared) -> Option<Command<Self>> {
        Some(shared.next_command()?.map(Self::outgoing))
    }

    fn next_command_at(shared: &ProxyShared) -> Moment {
        shared.next_command_at()
    }

    fn accepted(shared: &mut ProxyShared, actions: &mut Actions<'_>) -> Self {
        let (place, front) = shared.front(actions);
        let tls = shared.frontends.secured(place).map(Tls::accepted);
        let tls = tls.map(|tls| Arc::new(Mutex::new(tls)));
        let (mode, group, awaits_header) = (front.mode, front.group, front.accepts_header);
        let mut side = match mode {
            Mode::Http => {
                let is_secure = tls.is_some();
                Role::Client(Client::accepted(shared, actions, place, group, is_secure))
            }
            Mode::Tcp => {
                let is_secure = tls.is_some();
                Role::Stream(Stream::accepted(shared, actions, group, is_secure))
            }
        };
        if !awaits_header && tls.is_none() {
            side.connected(shared, actions);
        }
        Self { side, awaits_header, tls }
    }

    fn connected(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        self.side.announce(shared, actions);
        match &self.tls {
            Some(tls) => lock(tls).connected(&mut self.side, shared, actions),
            None => self.side.connected(shared, actions),
        }
    }

    fn connect_failed(&mut self, shared: &mut ProxyShared, error: io::Error) {
        match &mut self.side {
            Role::Upstream(upstream) => upstream.connect_failed(shared, &error),
            Role::Stream(stream) => stream.connect_failed(shared, &error),
            Role::Check(check) => check.connect_failed(&error),
            Role::Client(_) => {}
        }
    }

    fn on_bytes(
        &mut self,
        shared: &mut ProxyShared,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        if self.awaits_header {
            return self.on_header(shared, actions, input);
        }
        match &self.tls {
            Some(tls) => lock(tls).on_bytes(&mut self.side, shared, actions, input),
            None => self.side.on_bytes(shared, actions, input),
        }
    }

    fn on_readable(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        match &mut self.side {
            Role::Stream(stream) => stream.on_readable(shared, actions),
            Role::Upstream(upstream) => upstream.on_readable(shared, actions),
            Role::Client(client) => client.on_readable(shared, actions),
            // It does not leave its input in the socket.
            Role::Check(_) => actions.take_input(),
        }
    }

    fn on_end(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        match &self.tls {
            Some(tls) => lock(tls).on_end(&mut self.side, shared, actions),
            None => self.side.on_end(shared, actions),
        }
    }

    fn on_drained(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        match &self.tls {
            Some(tls) => lock(tls).on_drained(&mut self.side, shared, actions),
            None => self.side.on_drained(shared, actions),
        }
    }

    fn on_deadline(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        let is_in_handshake = self.tls.as_ref().is_some_and(|tls| lock(tls).is_in_handshake());
        if is_in_handshake && matches!(self.side, Role::Client(_)) {
            shared.counters.add(ServerCounter::TimeoutsHandshake, 1);
            return actions.close();
        }
        self.call(shared, actions, Role::on_deadline);
    }

    fn on_wake(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        self.call(shared, actions, Role::on_wake);
    }

    fn on_drain(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        shared.drain();
        self.call(shared, actions, Role::on_drain);
    }

    fn closed(self, shared: &mut ProxyShared, cause: CloseCause) {
        let was_refused = self.side.was_refused();
        match self.side {
            Role::Client(client) => client.closed(shared, cause),
            Role::Upstream(upstream) => upstream.closed(shared, cause),
            Role::Stream(stream) => stream.closed(shared, cause),
            Role::Check(check) => check.closed(shared),
        }
        if !was_refused {
            shared.room_is_free();
        }
    }
}

/// The calls of a session, on plain bytes.
impl Role {
    fn is_of_client(&self) -> bool {
        match self {
            Self::Client(_) => true,
            Self::Stream(stream) => stream.is_of_client(),
            Self::Upstream(_) | Self::Check(_) => false,
        }
    }

    /// Whose connection it is, where a proxy in front says so.
    fn belongs_to(&mut self, header: ProxyHeader) {
        match self {
            Self::Client(client) => client.belongs_to(header),
            Self::Stream(stream) => stream.belongs_to(header),
            Self::Upstream(_) | Self::Check(_) => {}
        }
    }

    /// Says to a backend whose connection it is, where it wants that; in front of all encryption.
    fn announce(&self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        match self {
            Self::Upstream(upstream) => upstream.announce(shared, actions),
            Self::Stream(stream) => stream.announce(shared, actions),
            Self::Check(check) => check.announce(shared, actions),
            Self::Client(_) => {}
        }
    }

    /// The connection is there, and its encryption where it has any.
    pub(super) fn connected(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        match self {
            Self::Client(_) => {}
            Self::Upstream(upstream) => upstream.connected(shared, actions),
            Self::Stream(stream) => stream.opened(shared, actions),
            Self::Check(check) => check.connected(shared, actions),
        }
    }

    fn on_deadline(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        match self {
            Self::Client(client) => client.on_deadline(shared, actions),
            Self::Upstream(upstream) => upstream.on_deadline(shared, actions),
            Self::Stream(stream) => stream.on_deadline(shared, actions),
            Self::Check(check) => check.give_up(actions),
        }
    }

    fn on_wake(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        match self {
            Self::Client(client) => client.on_wake(shared, actions),
            Self::Upstream(upstream) => upstream.on_wake(shared, actions),
            Self::Stream(stream) => stream.on_wake(shared, actions),
            Self::Check(_) => {}
        }
    }

    fn on_drain(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        match self {
            Self::Client(client) => client.on_drain(shared, actions),
            Self::Upstream(upstream) => upstream.on_drain(shared, actions),
            // Nothing says where a stream could end: it has the time of the drain.
            Self::Stream(_) => {}
            Self::Check(check) => check.on_drain(actions),
        }
    }

    /// The connection was refused for want of room, so that its end makes none.
    fn was_refused(&self) -> bool {
        match self {
            Self::Client(_) => false,
            Self::Upstream(upstream) => upstream.was_refused(),
            Self::Stream(stream) => stream.was_refused(),
            Self::Check(check) => check.was_refused(),
        }
    }
}

/// The same calls, on decrypted bytes.
impl PlaintextSession for Role {
    type Shared = ProxyShared;

    fn plain_room(shared: &mut ProxyShared) -> &mut Vec<u8> {
        &mut shared.plain_room
    }

    fn opened(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>, is_resumed: bool) {
        if self.is_of_client() {
            shared.counters.count_handshake(is_resumed);
        }
        self.connected(shared, actions);
    }

    fn tls_failed(
        &mut self,
        shared: &mut ProxyShared,
        _: &Actions<'_>,
        error: Option<&pollux_tls::Error>,
    ) {
        match self {
            Self::Client(_) => shared.refuse_tls(error),
            Self::Upstream(upstream) => upstream.tls_failed(shared, error),
            Self::Stream(stream) => stream.tls_failed(shared, error),
            Self::Check(check) => check.tls_failed(shared, error),
        }
    }

    fn answers_http(&self) -> bool {
        matches!(self, Self::Client(_))
    }

    fn on_bytes(
        &mut self,
        shared: &mut ProxyShared,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        match self {
            Self::Client(client) => client.on_bytes(shared, actions, input),
            Self::Upstream(upstream) => upstream.on_bytes(shared, actions, input),
            Self::Stream(stream) => stream.on_bytes(shared, actions, input),
            Self::Check(check) => check.on_bytes(shared, actions, input),
        }
    }

    fn on_end(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        match self {
            Self::Client(client) => client.on_end(shared, actions),
            Self::Upstream(upstream) => upstream.on_end(shared, actions),
            Self::Stream(stream) => stream.on_end(shared, actions),
            Self::Check(check) => check.give_up(actions),
        }
    }

    fn on_cut(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        match self {
            // A request says itself where it ends.
            Self::Client(client) => client.on_end(shared, actions),
            Self::Upstream(upstream) => upstream.on_cut(shared, actions),
            Self::Stream(stream) => stream.on_cut(actions),
            Self::Check(check) => check.give_up(actions),
        }
    }

    fn on_drained(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        match self {
            Self::Client(client) => client.on_drained(shared, actions),
            Self::Upstream(upstream) => upstream.on_drained(shared, actions),
            Self::Stream(stream) => stream.on_drained(shared, actions),
            Self::Check(_) => {}
        }
    }
}

/// One check under way.
///
/// A check of a backend: whether it accepts connections, or answers a request well.
///
/// The first loop of a proxy makes them, each on a connection of its own, as its sessions are asked
/// for commands.
#[derive(Debug)]
pub(super) struct CheckSession {
    backend: usize,
    /// Whether it has passed; none when it says nothing of the backend.
    verdict: Option<bool>,
}

impl CheckSession {
    pub(super) fn new(backend: usize) -> Self {
        Self { backend, verdict: Some(false) }
    }

    /// Says that it is the proxy's own connection, where the backend wants that.
    pub(super) fn announce(&self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        let is_http = matches!(shared.group_of(self.backend).check, Check::Http(_));
        if is_http || shared.group_of(self.backend).tls.is_some() {
            shared.announce(shared.backends[self.backend].group, ProxyHeader::Own, actions);
        }
    }

    pub(super) fn tls_failed(&self, shared: &ProxyShared, error: Option<&pollux_tls::Error>) {
        shared.report_tls(self.backend, error);
    }

    pub(super) fn connected(&mut self, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
        let group = shared.group_of(self.backend);
        let Check::Http(path) = &group.check else {
            self.verdict = Some(true);
            return actions.abort();
        };
        let host = group.check_host.as_ref().unwrap_or(&shared.backends[self.backend].host);
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: pollux-check\r\nConnection: \
             close\r\n\r\n"
        );
        actions.send(request.as_bytes());
    }

    pub(super) fn on_bytes(
        &mut self,
        shared: &mut ProxyShared,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        let mut used = 0;
        // What follows an interim answer may be here already, with the end of the connection behind it.
        loop {
            let rest = &input[used..];
            match Response::parse(rest, &shared.answer_limits, RequestKind::Other) {
                Ok(None) => return used,
                Ok(Some(response)) if response.facts.is_interim() => {
                    used += response.facts.head_len;
                }
                Ok(Some(response)) => {
                    self.verdict = Some(matches!(response.facts.status.code(), 200..=399));
                    break;
                }
                Err(_) => break,
            }
        }
        actions.abort();
        input.len()
    }

    pub(super) fn connect_failed(&mut self, error: &io::Error) {
        if Fault::of_connect(error) == Fault::UpstreamsFull {
            self.verdict = None;
        }
    }

    /// There was no room for its connection.
    pub(super) fn was_refused(&self) -> bool {
        self.verdict.is_none()
    }

    /// No more comes, or not in time.
    pub(super) fn give_up(&self, actions: &mut Actions<'_>) {
        actions.abort();
    }

    /// The proxy ends, before the backend could show how it is.
    pub(super) fn on_drain(&mut self, actions: &mut Actions<'_>) {
        self.verdict = None;
        actions.abort();
    }

    pub(super) fn closed(self, shared: &mut ProxyShared) {
        shared.checked(self.backend, self.verdict);
    }
}
