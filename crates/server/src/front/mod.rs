//! What a connection of a proxy is: a client's of HTTP, a side of TCP mode, one to a backend for requests, or for a check
//! of it; and what lies between the connection and that: a head of the PROXY protocol, and TLS.
//!
//! | part | one job |
//! |---|---|
//! | `h1` | a client's connection of HTTP/1: its phases and deadlines; below it what it does with an exchange |
//! | `request` | what came of a request and its body |
//! | `shared` | what the connections of one loop share, and what answers |

pub(crate) mod h1;
mod request;
pub(crate) mod shared;

use std::io;
use std::sync::{Arc, Mutex};

use pollux_engine::{Actions, CloseCause, Command, Moment, Now, Session};
use pollux_http::ProxyHeader;

use crate::config::Mode;
use crate::counters::ServerCounter;
use crate::exchange::check::CheckSession;
use crate::exchange::stream::Stream;
use crate::exchange::table::{Outgoing, Purpose};
use crate::exchange::upstream::Upstream;
use crate::front::h1::HttpSession;
use crate::front::shared::Shared;
use crate::tls::{PlaintextSession, SharedTls, Tls, lock};

/// One connection of a proxy.
#[derive(Debug)]
pub struct FrontSession {
    side: Role,
    /// A head of the PROXY protocol has to come first.
    awaits_header: bool,
    /// What lies between the side and the connection.
    tls: Option<SharedTls>,
}

/// The peer of a connection.
#[derive(Debug)]
enum Role {
    Client(HttpSession),
    Upstream(Upstream),
    Check(CheckSession),
    Stream(Stream),
}

impl FrontSession {
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
    fn on_header(&mut self, shared: &mut Shared, actions: &mut Actions<'_>, input: &[u8]) -> usize {
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
                shared.upstreams().refuse_header(actions, &wrong);
                actions.abort();
                input.len()
            }
        }
    }

    fn call(
        &mut self,
        shared: &mut Shared,
        actions: &mut Actions<'_>,
        call: impl FnOnce(&mut Role, &mut Shared, &mut Actions<'_>),
    ) {
        match &self.tls {
            Some(tls) => lock(tls).call(&mut self.side, shared, actions, call),
            None => call(&mut self.side, shared, actions),
        }
    }
}

impl Session for FrontSession {
    type Shared = Shared;

    fn opened(shared: &mut Shared, waker: &pollux_poller::Waker) {
        shared.upstreams().opened(waker);
    }

    fn begin_turn(shared: &mut Shared, now: Now) {
        shared.begin_turn(now);
    }

    fn end_turn(shared: &mut Shared) {
        shared.end_turn();
    }

    fn release_memory(shared: &mut Shared) {
        shared.upstreams().exchanges.release_memory();
        shared.upstreams().pipes.release();
    }

    fn next_command(shared: &mut Shared) -> Option<Command<Self>> {
        Some(shared.upstreams().next_command()?.map(Self::outgoing))
    }

    fn next_command_at(shared: &Shared) -> Moment {
        shared.upstreams.as_ref().map_or(Moment::NEVER, |upstreams| upstreams.next_command_at())
    }

    fn accepted(shared: &mut Shared, actions: &mut Actions<'_>) -> Self {
        let upstreams = shared.upstreams();
        let (place, front) = upstreams.front(actions);
        let (mode, group, awaits_header) = (front.mode, front.group, front.accepts_header);
        let tls = upstreams.frontends.secured(place).map(Tls::accepted);
        let tls = tls.map(|tls| Arc::new(Mutex::new(tls)));
        let mut side = match mode {
            Mode::Http => Role::Client(HttpSession::of_front(shared, actions, place)),
            Mode::Tcp => {
                let is_secure = tls.is_some();
                Role::Stream(Stream::accepted(upstreams, actions, group, is_secure))
            }
        };
        if !awaits_header && tls.is_none() {
            side.connected(shared, actions);
        }
        Self { side, awaits_header, tls }
    }

    fn connected(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        self.side.announce(shared, actions);
        match &self.tls {
            Some(tls) => lock(tls).connected(&mut self.side, shared, actions),
            None => self.side.connected(shared, actions),
        }
    }

    fn connect_failed(&mut self, shared: &mut Shared, error: io::Error) {
        match &mut self.side {
            Role::Upstream(upstream) => upstream.connect_failed(shared.upstreams(), &error),
            Role::Stream(stream) => stream.connect_failed(shared.upstreams(), &error),
            Role::Check(check) => check.connect_failed(&error),
            Role::Client(_) => {}
        }
    }

    fn on_bytes(&mut self, shared: &mut Shared, actions: &mut Actions<'_>, input: &[u8]) -> usize {
        if self.awaits_header {
            return self.on_header(shared, actions, input);
        }
        match &self.tls {
            Some(tls) => lock(tls).on_bytes(&mut self.side, shared, actions, input),
            None => self.side.on_bytes(shared, actions, input),
        }
    }

    fn on_readable(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        match &mut self.side {
            Role::Stream(stream) => stream.on_readable(shared.upstreams(), actions),
            Role::Upstream(upstream) => upstream.on_readable(shared.upstreams(), actions),
            Role::Client(client) => Session::on_readable(client, shared, actions),
            // It does not leave its input in the socket.
            Role::Check(_) => actions.take_input(),
        }
    }

    fn on_end(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        match &self.tls {
            Some(tls) => lock(tls).on_end(&mut self.side, shared, actions),
            None => self.side.on_end(shared, actions),
        }
    }

    fn on_drained(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        match &self.tls {
            Some(tls) => lock(tls).on_drained(&mut self.side, shared, actions),
            None => self.side.on_drained(shared, actions),
        }
    }

    fn on_deadline(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        let is_in_handshake = self.tls.as_ref().is_some_and(|tls| lock(tls).is_in_handshake());
        if is_in_handshake && matches!(self.side, Role::Client(_)) {
            shared.counters.add(ServerCounter::TimeoutsHandshake, 1);
            return actions.close();
        }
        self.call(shared, actions, Role::on_deadline);
    }

    fn on_wake(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        self.call(shared, actions, Role::on_wake);
    }

    fn on_drain(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        shared.upstreams().drain();
        self.call(shared, actions, Role::on_drain);
    }

    fn closed(self, shared: &mut Shared, cause: CloseCause) {
        let was_refused = self.side.was_refused();
        match self.side {
            Role::Client(client) => Session::closed(client, shared, cause),
            Role::Upstream(upstream) => upstream.closed(shared.upstreams(), cause),
            Role::Stream(stream) => {
                let Shared { upstreams, log, .. } = shared;
                let upstreams = upstreams.as_mut().expect("a proxy has backends");
                stream.closed(upstreams, log.as_mut(), cause);
            }
            Role::Check(check) => check.closed(shared.upstreams()),
        }
        if !was_refused {
            shared.upstreams().room_is_free();
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
    fn announce(&self, shared: &mut Shared, actions: &mut Actions<'_>) {
        match self {
            Self::Upstream(upstream) => upstream.announce(shared.upstreams(), actions),
            Self::Stream(stream) => stream.announce(shared.upstreams(), actions),
            Self::Check(check) => check.announce(shared.upstreams(), actions),
            Self::Client(_) => {}
        }
    }

    /// The connection is there, and its encryption where it has any.
    pub(crate) fn connected(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        match self {
            Self::Client(_) => {}
            Self::Upstream(upstream) => upstream.connected(shared.upstreams(), actions),
            Self::Stream(stream) => stream.opened(shared.upstreams(), actions),
            Self::Check(check) => check.connected(shared.upstreams(), actions),
        }
    }

    fn on_deadline(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        match self {
            Self::Client(client) => Session::on_deadline(client, shared, actions),
            Self::Upstream(upstream) => upstream.on_deadline(shared.upstreams(), actions),
            Self::Stream(stream) => stream.on_deadline(shared.upstreams(), actions),
            Self::Check(check) => check.give_up(actions),
        }
    }

    fn on_wake(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        match self {
            Self::Client(client) => Session::on_wake(client, shared, actions),
            Self::Upstream(upstream) => upstream.on_wake(shared.upstreams(), actions),
            Self::Stream(stream) => stream.on_wake(shared.upstreams(), actions),
            Self::Check(_) => {}
        }
    }

    fn on_drain(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        match self {
            Self::Client(client) => Session::on_drain(client, shared, actions),
            Self::Upstream(upstream) => upstream.on_drain(shared.upstreams(), actions),
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
    type Shared = Shared;

    fn plain_room(shared: &mut Shared) -> &mut Vec<u8> {
        &mut shared.plain_room
    }

    fn opened(&mut self, shared: &mut Shared, actions: &mut Actions<'_>, is_resumed: bool) {
        if self.is_of_client() {
            shared.counters.count_handshake(is_resumed);
        }
        self.connected(shared, actions);
    }

    fn tls_failed(
        &mut self,
        shared: &mut Shared,
        actions: &Actions<'_>,
        error: Option<&pollux_tls::Error>,
    ) {
        match self {
            Self::Client(client) => client.tls_failed(shared, actions, error),
            Self::Upstream(upstream) => upstream.tls_failed(shared.upstreams(), error),
            Self::Stream(stream) => stream.tls_failed(shared.upstreams(), actions, error),
            Self::Check(check) => check.tls_failed(shared.upstreams(), error),
        }
    }

    fn answers_http(&self) -> bool {
        matches!(self, Self::Client(_))
    }

    fn on_bytes(&mut self, shared: &mut Shared, actions: &mut Actions<'_>, input: &[u8]) -> usize {
        match self {
            Self::Client(client) => Session::on_bytes(client, shared, actions, input),
            Self::Upstream(upstream) => upstream.on_bytes(shared.upstreams(), actions, input),
            Self::Stream(stream) => stream.on_bytes(shared.upstreams(), actions, input),
            Self::Check(check) => check.on_bytes(shared.upstreams(), actions, input),
        }
    }

    fn on_end(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        match self {
            Self::Client(client) => Session::on_end(client, shared, actions),
            Self::Upstream(upstream) => upstream.on_end(shared.upstreams(), actions),
            Self::Stream(stream) => stream.on_end(shared.upstreams(), actions),
            Self::Check(check) => check.give_up(actions),
        }
    }

    fn on_cut(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        match self {
            // A request says itself where it ends.
            Self::Client(client) => Session::on_end(client, shared, actions),
            Self::Upstream(upstream) => upstream.on_cut(shared.upstreams(), actions),
            Self::Stream(stream) => stream.on_cut(actions),
            Self::Check(check) => check.give_up(actions),
        }
    }

    fn on_drained(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        match self {
            Self::Client(client) => Session::on_drained(client, shared, actions),
            Self::Upstream(upstream) => upstream.on_drained(shared.upstreams(), actions),
            Self::Stream(stream) => stream.on_drained(shared.upstreams(), actions),
            Self::Check(_) => {}
        }
    }
}
