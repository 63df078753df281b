//! TCP mode: bytes both ways between a client and a backend, as they come.
//!
//! ```text
//!  client ── on_bytes ──► message ── send ──► backend        a message that is full pauses its source
//!         ◄── send ── message ◄── on_bytes ──
//! ```
//!
//! An end on one side is passed on when what came before it has left, and the other direction
//! continues. A connection that is cut cuts the other one, so that it does not pass for an end. Both are two
//! sessions of one loop that find each other by the number of their pair.

use std::io;

use pollux_engine::{Actions, CloseCause, Command, ListenAddress, Moment};
use pollux_http::ProxyHeader;

use crate::backends::groups::hash;
use crate::config::Mode;
use crate::exchange::connections::{Outgoing, Purpose};
use crate::exchange::direction::{Direction, Side};
use crate::exchange::proxy_loop::{ProxyLoop, client_name};
use crate::exchange::table::OFFERS_MAX;
use crate::exchange::tcp_pair::TcpPair;
use crate::fault::{Fault, Party, ProxyCounter};
use crate::ids::{GroupId, TcpPairId};
use crate::log::{AccessLog, Entry, Proxied};
use crate::record::{Books, End, Outcome};
use crate::sticky::Mark;

/// One side of a pair as a session.
#[derive(Debug)]
pub(crate) struct TcpSession {
    /// None until whose connection it is was said.
    pair: Option<TcpPairId>,
    side: Side,
    group: GroupId,
    /// Whose it is, where a proxy in front said so.
    header: Option<ProxyHeader>,
    /// It is encrypted.
    is_secure: bool,
    fault: Option<Fault>,
}

impl TcpSession {
    /// A client's connection to a front end that leads to this group.
    pub(crate) fn accepted(
        proxy: &ProxyLoop,
        actions: &mut Actions<'_>,
        group: GroupId,
        is_secure: bool,
    ) -> Self {
        actions.set_deadline(proxy.deadline(proxy.limits.clients.header_timeout));
        Self { pair: None, side: Side::Client, group, header: None, is_secure, fault: None }
    }

    /// What runs on the connection to the backend of this pair.
    pub(crate) fn to_backend(pair: TcpPairId) -> Self {
        let side = Side::Backend;
        let header = None;
        let is_secure = false;
        let group = GroupId::default();
        Self { pair: Some(pair), side, group, header, is_secure, fault: None }
    }

    /// Whose connection it is, where a proxy in front says so.
    pub(crate) fn belongs_to(&mut self, header: ProxyHeader) {
        self.header = Some(header);
    }

    /// Says to the backend whose connection it is, where it wants that.
    pub(crate) fn announce(&self, proxy: &mut ProxyLoop, actions: &mut Actions<'_>) {
        if let Some(at) = self.pair {
            let pair = proxy.pairs.get_mut(at);
            let group = pair.group;
            let header = pair.header;
            proxy.announce(group, header, actions);
        }
    }

    /// The connection can be used.
    pub(crate) fn opened(&mut self, proxy: &mut ProxyLoop, actions: &mut Actions<'_>) {
        match self.side {
            Side::Client => self.begin(proxy, actions),
            Side::Backend => self.connected(proxy, actions),
        }
    }

    /// Finds a backend for the client.
    fn begin(&mut self, proxy: &mut ProxyLoop, actions: &mut Actions<'_>) {
        let header = match self.header {
            Some(header @ ProxyHeader::Of { .. }) => header,
            _ => header_of(actions),
        };
        let now = proxy.now.at;
        let is_encrypted = self.is_secure || proxy.groups[self.group.place()].tls.is_some();
        let is_spliced = !is_encrypted && proxy.pipes.is_on();
        if is_spliced {
            actions.leave_input();
        }
        // Neither direction waits for the other one.
        actions.read_on();
        let client = actions.id();
        let at = proxy.pairs.begin(TcpPair::new(client, self.group, header, is_spliced, now));
        self.pair = Some(at);
        actions.set_deadline(proxy.deadline(proxy.limits.tunnel_timeout));
        connect(proxy, at);
    }

    fn connected(&mut self, proxy: &mut ProxyLoop, actions: &mut Actions<'_>) {
        let Some(at) = self.pair else { return };
        let now = proxy.now.at;
        let pair = proxy.pairs.get_mut(at);
        pair.ids[Side::Backend as usize] = Some(actions.id());
        if pair.ids[Side::Client as usize].is_none() {
            return actions.abort();
        }
        pair.connected = Some(now);
        actions.read_on();
        if pair.is_spliced {
            actions.leave_input();
        }
        let backend = pair.chosen();
        actions.set_deadline(proxy.deadline(proxy.limits.tunnel_timeout));
        proxy.backend_answered(backend);
        self.send(proxy, actions);
    }

    pub(crate) fn connect_failed(&mut self, proxy: &mut ProxyLoop, error: &io::Error) {
        let Some(at) = self.pair else { return };
        self.fault.get_or_insert(Fault::of_connect(error));
        let backend = proxy.pairs.get(at).chosen();
        proxy.report_connect(backend, error);
    }

    pub(crate) fn on_bytes(
        &mut self,
        proxy: &mut ProxyLoop,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        let Some(at) = self.pair else { return 0 };
        let now = proxy.now.at;
        let pair = proxy.pairs.get_mut(at);
        pair.active = now;
        if self.side == Side::Backend {
            pair.first_byte.get_or_insert(now);
        }
        let direction = &mut pair.directions[self.side as usize];
        let used = direction.take_raw(input);
        if direction.is_full() {
            pair.is_paused[self.side as usize] = true;
            actions.pause_input();
            proxy.proxied.count(ProxyCounter::Pauses);
        }
        if proxy.pairs.get_mut(at).is_spliced && proxy.pipes.has_one() {
            // There was none before.
            actions.leave_input();
        }
        proxy.wake_side(at, self.side.other(), actions);
        used
    }

    /// Takes what is in the socket into a pipe, unless there is one already: a pipe that is not empty does not tell whether it
    /// is full.
    pub(crate) fn on_readable(&mut self, proxy: &mut ProxyLoop, actions: &mut Actions<'_>) {
        let Some(at) = self.pair else { return };
        let own = self.side as usize;
        let pair = proxy.pairs.get_mut(at);
        if pair.directions[own].is_full() {
            pair.is_paused[own] = true;
            return actions.pause_input();
        }
        let Some((pipe, bytes)) = proxy.splice_in(u64::MAX, actions) else { return };
        let now = proxy.now.at;
        let pair = proxy.pairs.get_mut(at);
        pair.active = now;
        if self.side == Side::Backend {
            pair.first_byte.get_or_insert(now);
        }
        pair.directions[own].take_piped(pipe, bytes);
        pair.is_paused[own] = true;
        actions.pause_input();
        proxy.wake_side(at, self.side.other(), actions);
    }

    pub(crate) fn on_end(&mut self, proxy: &mut ProxyLoop, actions: &mut Actions<'_>) {
        let Some(at) = self.pair else { return actions.close() };
        proxy.pairs.get_mut(at).directions[self.side as usize].set_whole(true);
        proxy.wake_side(at, self.side.other(), actions);
        self.send(proxy, actions);
    }

    pub(crate) fn is_of_client(&self) -> bool {
        self.side == Side::Client
    }

    /// The end of the connection without one of its encryption: an attacker on the path may have ended it.
    pub(crate) fn on_cut(&mut self, actions: &mut Actions<'_>) {
        let fault = if self.side == Side::Client { Fault::ClientGone } else { Fault::Cut };
        self.fault.get_or_insert(fault);
        actions.abort();
    }

    pub(crate) fn tls_failed(
        &mut self,
        proxy: &mut ProxyLoop,
        actions: &Actions<'_>,
        error: Option<&pollux_tls::Error>,
    ) {
        match (self.side, self.pair) {
            (Side::Client, _) => {
                proxy.refuse_tls(&client_name(actions, self.header.as_ref()), error);
            }
            (Side::Backend, Some(at)) => self.backend_tls_failed(proxy, at, error),
            (Side::Backend, None) => {}
        }
    }

    /// The encryption with the backend of the pair at `at` did not come about.
    fn backend_tls_failed(
        &mut self,
        proxy: &mut ProxyLoop,
        at: TcpPairId,
        error: Option<&pollux_tls::Error>,
    ) {
        self.fault.get_or_insert(Fault::TlsFailed);
        let backend = proxy.pairs.get(at).chosen();
        proxy.report_tls(backend, error);
    }

    pub(crate) fn on_output_sent(&mut self, proxy: &mut ProxyLoop, actions: &mut Actions<'_>) {
        let Some(at) = self.pair else { return };
        let other = self.side.other();
        let pair = proxy.pairs.get_mut(at);
        let direction = &mut pair.directions[other as usize];
        if direction.has_left(&mut proxy.pipes) {
            proxy.wake_side(at, other, actions);
        }
        self.send(proxy, actions);
    }

    pub(crate) fn on_wake(&mut self, proxy: &mut ProxyLoop, actions: &mut Actions<'_>) {
        let Some(at) = self.pair else { return };
        let pair = proxy.pairs.get_mut(at);
        let own = self.side as usize;
        pair.is_woken[own] = false;
        if pair.fault.is_some() {
            return actions.reset();
        }
        if pair.is_paused[own] && !pair.directions[own].is_full() {
            pair.is_paused[own] = false;
            actions.resume_input();
        }
        self.send(proxy, actions);
    }

    pub(crate) fn on_deadline(&mut self, proxy: &mut ProxyLoop, actions: &mut Actions<'_>) {
        let Some(at) = self.pair else { return actions.close() };
        let timeout = proxy.limits.tunnel_timeout;
        let now = proxy.now.at;
        let pair = proxy.pairs.get_mut(at);
        let is_connecting = self.side == Side::Backend && pair.connected.is_none();
        if !is_connecting && pair.active + timeout > now {
            return actions.set_deadline(pair.active + timeout);
        }
        self.fault =
            Some(if is_connecting { Fault::ConnectTimeout } else { Fault::RequestTimeout });
        actions.abort();
    }

    /// There was no room for its connection.
    pub(crate) fn was_refused(&self) -> bool {
        self.fault == Some(Fault::UpstreamsFull)
    }

    pub(crate) fn closed(
        mut self,
        proxy: &mut ProxyLoop,
        log: Option<&mut AccessLog>,
        cause: CloseCause,
    ) {
        let Some(at) = self.pair else { return };
        self.fault = self.fault.or_else(|| Fault::of_end(cause));
        let own = self.side as usize;
        let pair = proxy.pairs.get_mut(at);
        pair.sides -= 1;
        pair.ids[own] = None;
        let has_client = pair.ids[Side::Client as usize].is_some();
        let is_unconnected = self.side == Side::Backend && pair.connected.is_none();
        if is_unconnected && has_client && self.fault.is_none() {
            // The connection came about, but not its encryption.
            self.backend_tls_failed(proxy, at, None);
        }
        if self.side == Side::Backend {
            let backend = proxy.pairs.get(at).chosen();
            let fault = self.fault;
            proxy.proxied.backends()[backend.place()].ended.add(1);
            if fault.is_some_and(|fault| is_unconnected && fault.party() == Party::Upstream) {
                proxy.backend_failed(backend);
            }
        }
        let pair = proxy.pairs.get_mut(at);
        let group = pair.group;
        let has_another = pair.tries < OFFERS_MAX && {
            let tried = pair.tried;
            let backend = pair.backend;
            backend.is_some_and(|failed| proxy.has_another(group, &tried, failed))
        };
        let pair = proxy.pairs.get_mut(at);
        if is_unconnected
            && has_client
            && has_another
            && self.fault.is_none_or(|fault| fault.party() != Party::Proxy)
        {
            proxy.proxied.count(ProxyCounter::Retries);
            return connect(proxy, at);
        }
        let has_ended = pair.directions.iter().all(Direction::is_whole);
        if !has_ended {
            let other = if self.side == Side::Client { Fault::ClientGone } else { Fault::Cut };
            pair.fault.get_or_insert(self.fault.unwrap_or(other));
        }
        if let Some(id) = pair.ids[self.side.other() as usize] {
            proxy.commands.push_back(Command::Wake(id));
        }
        record(proxy, log, at);
        let pair = proxy.pairs.get_mut(at);
        if pair.sides == 0 {
            pair.directions.iter_mut().for_each(|direction| direction.drop_piped(&mut proxy.pipes));
            proxy.pairs.end(at);
        }
    }

    /// Sends on what the other side has said; passes its end on, and closes when both have ended.
    fn send(&mut self, proxy: &mut ProxyLoop, actions: &mut Actions<'_>) {
        let Some(at) = self.pair else { return };
        let own = self.side as usize;
        let other = self.side.other();
        let pair = proxy.pairs.get_mut(at);
        let direction = &mut pair.directions[other as usize];
        if direction.is_leaving {
            return;
        }
        let sent_bytes = direction.send(actions);
        if sent_bytes > 0 {
            direction.is_leaving = true;
            actions.notify_when_sent();
            return;
        }
        if pair.is_done(other) && !std::mem::replace(&mut pair.has_ended_output[own], true) {
            actions.end_output();
        }
        if pair.has_ended_output[own] && pair.is_done(self.side) {
            actions.close();
        } else if pair.has_ended_output[own] && pair.directions[own].is_whole() {
            // The other side closes when it has sent the rest.
            proxy.wake_side(at, other, actions);
        }
    }
}

/// Begins a connection to the backend whose turn it is.
fn connect(proxy: &mut ProxyLoop, at: TcpPairId) {
    let now = proxy.now.at;
    let pair = proxy.pairs.get_mut(at);
    if let Some(failed) = pair.backend {
        pair.tried.add(failed);
    }
    let group = pair.group;
    let tried = pair.tried;
    let key = hash(pair.peer.as_bytes());
    let chosen = proxy.pick_backend(group, &tried, key, Mark::default());
    let Some(backend) = chosen else {
        let why_none = proxy.why_none(group);
        let pair = proxy.pairs.get_mut(at);
        pair.fault.get_or_insert(why_none);
        if let Some(client) = pair.ids[Side::Client as usize] {
            proxy.commands.push_back(Command::Wake(client));
        }
        return;
    };
    let pair = proxy.pairs.get_mut(at);
    (pair.backend, pair.sides) = (Some(backend), pair.sides + 1);
    pair.tries += 1;
    proxy.proxied.backends()[backend.place()].begun.add(1);
    proxy.proxied.count(ProxyCounter::Connects);
    let to = proxy.to(backend);
    let deadline = now + proxy.limits.connect_timeout;
    let purpose = Purpose::Tcp(at);
    let tls = proxy.tls_to(backend, Mode::Tcp);
    let session = Outgoing { purpose, tls };
    proxy.commands.push_back(Command::Connect { to, session, deadline });
}

/// A line of the log, and the fault, once.
fn record(proxy: &mut ProxyLoop, log: Option<&mut AccessLog>, at: TcpPairId) {
    let pair = proxy.pairs.get_mut(at);
    if std::mem::replace(&mut pair.is_recorded, true) {
        return;
    }
    let outcome = Outcome {
        status: None,
        body_bytes: pair.directions[Side::Backend as usize].body_bytes(),
        end: pair.fault.map_or(End::Whole, |fault| End::Failed(fault, None)),
    };
    let proxy = &*proxy;
    let books = Books { counters: &proxy.counters, proxied: Some(&proxy.proxied), log };
    books.book(outcome, |_, outcome| entry(proxy, at, outcome));
}

/// What the log says of it.
fn entry<'a>(proxy: &'a ProxyLoop, at: TcpPairId, outcome: &Outcome) -> Entry<'a> {
    let now = proxy.now.at;
    let pair = proxy.pairs.get(at);
    let since = |moment: Option<Moment>| moment.map(|moment| moment - pair.began);
    let proxied = Proxied {
        backend: pair.backend.map_or("", |backend| proxy.name(backend)),
        queued: since(Some(pair.began)),
        connected: since(pair.connected),
        first_byte: since(pair.first_byte),
        total: Some(now - pair.began),
        tries: pair.tries as u32,
        end: outcome.end.word(),
        state: None,
        is_retry_safe: None,
    };
    Entry {
        peer: &pair.peer,
        method: "",
        target: b"",
        version: "",
        // No status of HTTP.
        status: 0,
        body_bytes: outcome.body_bytes,
        referer: b"",
        agent: b"",
        user: "",
        client: ("", ""),
        request_id: "",
        site: "",
        route: "",
        cut: None,
        proxied: Some(proxied),
    }
}

impl ProxyLoop {
    /// Has a side of the pair look at it, if it is there.
    fn wake_side(&mut self, at: TcpPairId, side: Side, actions: &mut Actions<'_>) {
        let pair = self.pairs.get_mut(at);
        let is_there = side == Side::Client || pair.connected.is_some();
        if let Some(id) = pair.ids[side as usize].filter(|_| is_there)
            && !std::mem::replace(&mut pair.is_woken[side as usize], true)
        {
            actions.wake(id);
        }
    }
}

/// Whose connection it is when no proxy in front says so.
pub(crate) fn header_of(actions: &Actions<'_>) -> ProxyHeader {
    let destination = match actions.local() {
        Some(ListenAddress::Tcp(destination)) => Some(destination),
        _ => None,
    };
    ProxyHeader::of(actions.peer(), destination)
}
