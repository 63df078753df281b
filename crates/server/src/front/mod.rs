//! What a connection is. That of a server without backends is a client's, an [`HttpSession`], with TLS below it or
//! without. One of a proxy is a [`ProxyConnection`]: a client's of HTTP, a side of TCP mode, one to a backend for requests, or for
//! a check of it; with what lies between the connection and that: a head of the PROXY protocol, and TLS.
//!
//! | part | one job |
//! |---|---|
//! | `h1` | a client's connection of HTTP/1: its phases and deadlines; below it what it does with an exchange |
//! | `h2` | a client's connection of HTTP/2: its streams; below it what one does with an exchange |
//! | `resting` | what is left of those connections while they are idle |
//! | `sites` | which route of a site has a request, and its handler |
//! | `epoch` | the settings that requests are decided by, and those of before that some still need |
//! | `kept` | what a request keeps that is answered, or booked, later than it came |
//! | `ask` | what becomes of a request at a proxy, whatever its client speaks |
//! | `request` | what came of a request and its body |
//! | `peer` | who a client is, and the lines that are written of it |
//! | `state` | what the connections of one loop share |

mod ask;
pub(crate) mod epoch;
pub(crate) mod h1;
mod h2;
mod kept;
mod peer;
mod request;
pub(crate) mod resting;
pub(crate) mod sites;
pub(crate) mod state;

use std::io;

use pollux_engine::{Actions, CloseCause, Command, Moment, Now, Session};
use pollux_http::ProxyHeader;
use pollux_tls::{
    ClientShown, Encrypted, Error, HTTP_2, Opening, PlaintextSession, SharedTls, Tls,
};

use crate::certificates::FrontCertificates;
use crate::config::Mode;
use crate::exchange::connections::{Outgoing, Purpose};
use crate::exchange::health_check::CheckSession;
use crate::exchange::proxy_loop::ProxyLoop;
use crate::exchange::tcp::TcpSession;
use crate::exchange::upstream::Upstream;
use crate::exchange::upstream::h2::Http2Upstream;
use crate::front::h1::HttpSession;
use crate::front::state::LoopState;

/// One connection of a proxy.
#[derive(Debug)]
pub struct ProxyConnection(Wire);

/// A role, and what lies between it and the connection.
#[derive(Debug)]
enum Wire {
    Plain(Role),
    Encrypted(Encrypted<Role, Box<Tls>>),
    /// A connection to a backend, which other loops may take over with its encryption.
    ToBackend(Encrypted<Role, SharedTls>),
    /// One of the others, when a head of the PROXY protocol has come, which says whose connection it is.
    Header(Option<Box<Wire>>),
}

const _: () = assert!(size_of::<ProxyConnection>() <= 104, "a proxy has thousands that are idle");

/// What the connection of a proxy is.
#[derive(Debug)]
enum Role {
    Client(HttpSession),
    Upstream(Upstream),
    Http2Upstream(Box<Http2Upstream>),
    Check(CheckSession),
    Tcp(TcpSession),
}

/// The same call of the session on any wire.
macro_rules! on_wire {
    ($wire:expr, $session:ident => $call:expr) => {
        match $wire {
            Wire::Plain($session) => $call,
            Wire::Encrypted($session) => $call,
            Wire::ToBackend($session) => $call,
            Wire::Header(_) => unreachable!("one head stands in front"),
        }
    };
}

impl Wire {
    /// Itself, or what it will be when the head has come.
    fn behind_header(&mut self) -> &mut Self {
        match self {
            Self::Header(behind) => behind.as_mut().expect(UNTIL_HEADER),
            wire => wire,
        }
    }

    fn role(&mut self) -> &mut Role {
        match self.behind_header() {
            Self::Plain(role) => role,
            Self::Encrypted(encrypted) => encrypted.session_mut(),
            Self::ToBackend(encrypted) => encrypted.session_mut(),
            Self::Header(_) => unreachable!("one head stands in front"),
        }
    }
}

const UNTIL_HEADER: &str = "it is taken when the head has come";

impl ProxyConnection {
    /// What runs on a connection that was opened for this.
    fn outgoing(Outgoing { purpose, tls }: Outgoing, proxy: &ProxyLoop) -> Self {
        let role = match purpose {
            Purpose::Http1(upstream) => Role::Upstream(Upstream::new(upstream)),
            Purpose::Http2(upstream) => {
                Role::Http2Upstream(Box::new(Http2Upstream::new(upstream, proxy)))
            }
            Purpose::Check(backend) => Role::Check(CheckSession::new(backend)),
            Purpose::Tcp(pair) => Role::Tcp(TcpSession::to_backend(pair)),
        };
        let wire = match tls {
            Some(tls) => Wire::ToBackend(Encrypted::new(role, tls)),
            None => Wire::Plain(role),
        };
        Self(wire)
    }

    /// Reads the head that says whose connection it is; the client's side gets what follows.
    fn on_header(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        match ProxyHeader::parse(input) {
            Ok(None) => 0,
            Ok(Some((header, len))) => {
                if let Wire::Header(behind) = &mut self.0 {
                    self.0 = *behind.take().expect(UNTIL_HEADER);
                }
                self.0.role().belongs_to(header);
                self.0.role().enter(state, actions);
                if let Wire::Plain(role) = &mut self.0 {
                    role.connected(state, actions);
                }
                let rest = &input[len..];
                len + if rest.is_empty() { 0 } else { self.on_bytes(state, actions, rest) }
            }
            Err(wrong) => {
                state.proxy().refuse_header(actions, &wrong);
                actions.abort();
                input.len()
            }
        }
    }
}

impl Session for ProxyConnection {
    type Shared = LoopState;

    fn opened(state: &mut LoopState, waker: &pollux_poller::Waker) {
        state.proxy().opened(waker);
    }

    fn begin_turn(state: &mut LoopState, now: Now) {
        state.begin_turn(now);
    }

    fn end_turn(state: &mut LoopState) {
        state.end_turn();
    }

    fn release_memory(state: &mut LoopState) {
        state.streams.resting.release_memory();
        state.proxy().exchanges.release_memory();
        state.proxy().connections.release_memory();
        state.proxy().ready.release_memory();
        state.proxy().pipes.release();
    }

    fn awake(state: &LoopState) -> u32 {
        state.streams.resting.awake()
    }

    fn next_command(state: &mut LoopState) -> Option<Command<Self>> {
        let proxy = state.proxy();
        let command = proxy.next_command()?;
        Some(command.map(|outgoing| Self::outgoing(outgoing, proxy)))
    }

    fn next_command_at(state: &LoopState) -> Moment {
        state.proxy.as_ref().map_or(Moment::NEVER, |proxy| proxy.next_command_at())
    }

    fn accepted(state: &mut LoopState, actions: &mut Actions<'_>) -> Self {
        let proxy = state.proxy();
        let (place, front) = proxy.front(actions);
        let mode = front.mode;
        let awaits_header = front.accepts_header;
        let tls = proxy.frontends.certificates(place).map(FrontCertificates::accepted);
        let mut role = match mode {
            Mode::Http => Role::Client(HttpSession::of_front(state, actions, place)),
            Mode::Tcp => {
                let is_secure = tls.is_some();
                let group = proxy.frontends.group(place).expect("bytes have no sites");
                Role::Tcp(TcpSession::accepted(proxy, actions, group, is_secure))
            }
        };
        if !awaits_header {
            role.enter(state, actions);
        }
        if !awaits_header && tls.is_none() {
            role.connected(state, actions);
        }
        let wire = match tls {
            Some(tls) => Wire::Encrypted(Encrypted::new(role, Box::new(tls))),
            None => Wire::Plain(role),
        };
        Self(if awaits_header { Wire::Header(Some(Box::new(wire))) } else { wire })
    }

    fn connected(&mut self, state: &mut LoopState, actions: &mut Actions<'_>) {
        self.0.role().announce(state, actions);
        on_wire!(self.0.behind_header(), each => each.connected(state, actions));
    }

    fn connect_failed(&mut self, state: &mut LoopState, error: io::Error) {
        self.0.role().connect_failed(state, error);
    }

    #[inline]
    fn on_bytes(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        match &mut self.0 {
            Wire::Plain(role) => role.on_bytes(state, actions, input),
            Wire::Encrypted(encrypted) => encrypted.on_bytes(state, actions, input),
            Wire::ToBackend(encrypted) => encrypted.on_bytes(state, actions, input),
            Wire::Header(_) => self.on_header(state, actions, input),
        }
    }

    fn on_readable(&mut self, state: &mut LoopState, actions: &mut Actions<'_>) {
        on_wire!(self.0.behind_header(), each => each.on_readable(state, actions));
    }

    fn on_end(&mut self, state: &mut LoopState, actions: &mut Actions<'_>) {
        on_wire!(self.0.behind_header(), each => each.on_end(state, actions));
    }

    fn on_output_sent(&mut self, state: &mut LoopState, actions: &mut Actions<'_>) {
        on_wire!(self.0.behind_header(), each => each.on_output_sent(state, actions));
    }

    fn on_deadline(&mut self, state: &mut LoopState, actions: &mut Actions<'_>) {
        on_wire!(self.0.behind_header(), each => each.on_deadline(state, actions));
    }

    fn on_wake(&mut self, state: &mut LoopState, actions: &mut Actions<'_>) {
        on_wire!(self.0.behind_header(), each => each.on_wake(state, actions));
    }

    fn on_shutdown(&mut self, state: &mut LoopState, actions: &mut Actions<'_>) {
        state.proxy().drain();
        on_wire!(self.0.behind_header(), each => each.on_shutdown(state, actions));
    }

    fn output_lost(&mut self, bytes: u64) {
        self.0.role().output_lost(bytes);
    }

    fn closed(self, state: &mut LoopState, cause: CloseCause) {
        let wire = match self.0 {
            Wire::Header(behind) => *behind.expect(UNTIL_HEADER),
            wire => wire,
        };
        on_wire!(wire, each => each.closed(state, cause));
    }
}

impl Role {
    /// Whose connection it is, where a proxy in front says so.
    fn belongs_to(&mut self, header: ProxyHeader) {
        match self {
            Self::Client(client) => client.belongs_to(header),
            Self::Tcp(session) => session.belongs_to(header),
            Self::Upstream(_) | Self::Http2Upstream(_) | Self::Check(_) => {}
        }
    }

    /// Counts a client's connection once it is known whose it is.
    fn enter(&mut self, state: &LoopState, actions: &mut Actions<'_>) {
        if let Self::Client(client) = self {
            client.enter(state, actions);
        }
    }

    /// Says to a backend whose connection it is, where it wants that; in front of all encryption.
    fn announce(&self, state: &mut LoopState, actions: &mut Actions<'_>) {
        match self {
            Self::Upstream(upstream) => upstream.announce(state.proxy(), actions),
            Self::Tcp(session) => session.announce(state.proxy(), actions),
            Self::Check(check) => check.announce(state.proxy(), actions),
            // It carries requests of many clients.
            Self::Http2Upstream(_) | Self::Client(_) => {}
        }
    }

    /// The connection was refused for want of room, so that its end makes none.
    fn was_refused(&self) -> bool {
        match self {
            Self::Client(_) => false,
            Self::Upstream(upstream) => upstream.was_refused(),
            Self::Http2Upstream(upstream) => upstream.was_refused(),
            Self::Tcp(session) => session.was_refused(),
            Self::Check(check) => check.was_refused(),
        }
    }
}

/// On plain bytes: those of the connection, or decrypted ones.
impl Session for Role {
    type Shared = LoopState;

    fn accepted(_: &mut LoopState, _: &mut Actions<'_>) -> Self {
        unreachable!("`ProxyConnection` accepts it, which knows its front end")
    }

    fn connected(&mut self, state: &mut LoopState, actions: &mut Actions<'_>) {
        match self {
            Self::Client(_) => {}
            Self::Upstream(upstream) => upstream.connected(state.proxy(), actions),
            Self::Http2Upstream(upstream) => upstream.connected(state.proxy(), actions),
            Self::Tcp(session) => session.opened(state.proxy(), actions),
            Self::Check(check) => check.connected(state.proxy(), actions),
        }
    }

    fn connect_failed(&mut self, state: &mut LoopState, error: io::Error) {
        match self {
            Self::Upstream(upstream) => upstream.connect_failed(state.proxy(), &error),
            Self::Http2Upstream(upstream) => upstream.connect_failed(state.proxy(), &error),
            Self::Tcp(session) => session.connect_failed(state.proxy(), &error),
            Self::Check(check) => check.connect_failed(&error),
            Self::Client(_) => {}
        }
    }

    fn on_bytes(
        &mut self,
        state: &mut LoopState,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        match self {
            Self::Client(client) => client.on_bytes(state, actions, input),
            Self::Upstream(upstream) => upstream.on_bytes(state.proxy(), actions, input),
            Self::Http2Upstream(upstream) => upstream.on_bytes(state.proxy(), actions, input),
            Self::Tcp(session) => session.on_bytes(state.proxy(), actions, input),
            Self::Check(check) => check.on_bytes(state.proxy(), actions, input),
        }
    }

    fn on_readable(&mut self, state: &mut LoopState, actions: &mut Actions<'_>) {
        match self {
            Self::Tcp(session) => session.on_readable(state.proxy(), actions),
            Self::Upstream(upstream) => upstream.on_readable(state.proxy(), actions),
            Self::Client(client) => client.on_readable(state, actions),
            // They do not leave their input in the socket.
            Self::Http2Upstream(_) | Self::Check(_) => actions.take_input(),
        }
    }

    fn on_end(&mut self, state: &mut LoopState, actions: &mut Actions<'_>) {
        match self {
            Self::Client(client) => client.on_end(state, actions),
            Self::Upstream(upstream) => upstream.on_end(state.proxy(), actions),
            Self::Http2Upstream(upstream) => upstream.on_end(state.proxy(), actions),
            Self::Tcp(session) => session.on_end(state.proxy(), actions),
            Self::Check(check) => check.on_end(state.proxy(), actions),
        }
    }

    fn on_output_sent(&mut self, state: &mut LoopState, actions: &mut Actions<'_>) {
        match self {
            Self::Client(client) => client.on_output_sent(state, actions),
            Self::Upstream(upstream) => upstream.on_output_sent(state.proxy(), actions),
            Self::Http2Upstream(upstream) => upstream.on_output_sent(state.proxy(), actions),
            Self::Tcp(session) => session.on_output_sent(state.proxy(), actions),
            Self::Check(_) => {}
        }
    }

    fn on_deadline(&mut self, state: &mut LoopState, actions: &mut Actions<'_>) {
        match self {
            Self::Client(client) => client.on_deadline(state, actions),
            Self::Upstream(upstream) => upstream.on_deadline(state.proxy(), actions),
            Self::Http2Upstream(upstream) => upstream.on_deadline(state.proxy(), actions),
            Self::Tcp(session) => session.on_deadline(state.proxy(), actions),
            Self::Check(check) => check.on_deadline(state.proxy(), actions),
        }
    }

    fn on_wake(&mut self, state: &mut LoopState, actions: &mut Actions<'_>) {
        match self {
            Self::Client(client) => client.on_wake(state, actions),
            Self::Upstream(upstream) => upstream.on_wake(state.proxy(), actions),
            Self::Http2Upstream(upstream) => upstream.on_wake(state.proxy(), actions),
            Self::Tcp(session) => session.on_wake(state.proxy(), actions),
            Self::Check(_) => {}
        }
    }

    fn on_shutdown(&mut self, state: &mut LoopState, actions: &mut Actions<'_>) {
        match self {
            Self::Client(client) => client.on_shutdown(state, actions),
            Self::Upstream(upstream) => upstream.on_shutdown(state.proxy(), actions),
            Self::Http2Upstream(upstream) => upstream.on_shutdown(state.proxy(), actions),
            // Nothing says where bytes in TCP mode could end: it has the time of the drain.
            Self::Tcp(_) => {}
            Self::Check(check) => check.on_shutdown(actions),
        }
    }

    fn output_lost(&mut self, bytes: u64) {
        if let Self::Client(client) = self {
            client.output_lost(bytes);
        }
    }

    fn closed(self, state: &mut LoopState, cause: CloseCause) {
        let was_refused = self.was_refused();
        match self {
            Self::Client(client) => client.closed(state, cause),
            Self::Upstream(upstream) => upstream.closed(state.proxy(), cause),
            Self::Http2Upstream(upstream) => upstream.closed(state.proxy(), cause),
            Self::Tcp(session) => {
                let LoopState { proxy, log, .. } = state;
                let proxy = proxy.as_mut().expect("a proxy has backends");
                session.closed(proxy, log.as_mut(), cause);
            }
            Self::Check(check) => check.closed(state.proxy()),
        }
        if !was_refused {
            state.proxy().room_is_free();
        }
    }
}

impl PlaintextSession for Role {
    fn plain_room(state: &mut LoopState) -> &mut Vec<u8> {
        &mut state.plain_room
    }

    fn opening(&self, start: &[u8]) -> Opening {
        match self {
            Self::Client(client) => client.opening(start),
            _ => Opening::Tls,
        }
    }

    fn named(&mut self, state: &mut LoopState, name: Option<&str>) {
        if let Self::Client(client) = self {
            client.named(state, name);
        }
    }

    fn identified(&mut self, state: &mut LoopState, actions: &Actions<'_>, shown: ClientShown) {
        if let Self::Client(client) = self {
            client.identified(state, actions, shown);
        }
    }

    fn agreed(&mut self, state: &mut LoopState, protocol: &[u8]) {
        match self {
            Self::Client(client) => client.agreed(state, protocol),
            Self::Http2Upstream(upstream) if protocol == HTTP_2 => upstream.agreed(),
            Self::Check(check) if protocol == HTTP_2 => check.agreed(),
            _ => {}
        }
    }

    fn secured(&mut self, state: &mut LoopState, actions: &mut Actions<'_>, is_resumed: bool) {
        match self {
            Self::Client(client) => client.secured(state, actions, is_resumed),
            Self::Tcp(session) if session.is_of_client() => {
                state.counters.count_handshake(is_resumed);
            }
            _ => {}
        }
        self.connected(state, actions);
    }

    fn tls_failed(&mut self, state: &mut LoopState, actions: &Actions<'_>, error: Option<&Error>) {
        match self {
            Self::Client(client) => client.tls_failed(state, actions, error),
            Self::Upstream(upstream) => upstream.tls_failed(state.proxy(), error),
            Self::Http2Upstream(upstream) => upstream.tls_failed(state.proxy(), error),
            Self::Tcp(session) => session.tls_failed(state.proxy(), actions, error),
            Self::Check(check) => check.tls_failed(state.proxy(), error),
        }
    }

    fn ends_slow_handshake(&mut self, state: &mut LoopState) -> bool {
        match self {
            Self::Client(client) => client.ends_slow_handshake(state),
            _ => false,
        }
    }

    fn on_cut(&mut self, state: &mut LoopState, actions: &mut Actions<'_>) {
        match self {
            Self::Client(client) => client.on_cut(state, actions),
            Self::Upstream(upstream) => upstream.on_cut(state.proxy(), actions),
            Self::Http2Upstream(upstream) => upstream.on_end(state.proxy(), actions),
            Self::Tcp(session) => session.on_cut(actions),
            Self::Check(check) => check.on_end(state.proxy(), actions),
        }
    }
}
