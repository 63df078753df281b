//! How requests of one loop come to connections of HTTP/2: which of them takes another one, when one is opened, and what
//! becomes of one that takes no more.
//!
//! ```text
//!  request ─► the oldest one that takes another one ─► its stream
//!         └─► none does: another one is opened, and waited for until its backend has said how many streams it takes
//! ```
//!
//! Such a connection stays with its loop: what it knows of windows and of HPACK is worth nothing elsewhere. The pool of all
//! loops counts requests where it counts connections of HTTP/1.1, so that a limit of a backend means the same for both.
//! What a session does with the requests that its connection carries stands in `upstream/h2.rs`.

use std::time::Duration;

use pollux_engine::{Command, Moment};

use crate::config::Mode;
use crate::exchange::connections::{
    Multiplexed, Outgoing, Purpose, UpstreamConnection, UpstreamConnections,
};
use crate::exchange::proxy_loop::ProxyLoop;
use crate::exchange::table::{Next, OFFERS_MAX, Stage};
use crate::fault::{Fault, ProxyCounter};
use crate::ids::{BackendId, ExchangeId, UpstreamId};

/// A connection whose output has waited so long gets no other request meanwhile.
const STANDS_MAX: Duration = Duration::from_secs(1);

/// Requests that a connection has at a time, however many more its backend allows: what goes wrong with it costs no others.
pub(super) const STREAMS_MAX: u32 = 100;

impl UpstreamConnection {
    /// Of a connection of HTTP/2.
    pub(super) fn streams(&mut self) -> &mut Multiplexed {
        self.streams.as_mut().expect("it carries requests on streams")
    }

    fn takes_more(&self) -> bool {
        self.streams.as_ref().is_some_and(|streams| streams.carried < streams.streams_max)
    }
}

impl UpstreamConnections {
    /// A connection to `backend` that takes another request, whose output has not waited for long, and of which it is not asked
    /// whether its backend is there.
    fn with_room(&self, backend: BackendId, now: Moment) -> Option<UpstreamId> {
        let mut all = self.multiplexed[backend.place()].iter().copied();
        all.find(|upstream| {
            let upstream = self.get(*upstream);
            let moves = |streams: &Multiplexed| {
                !streams.is_asked && streams.stands_since.is_none_or(|it| it + STANDS_MAX > now)
            };
            upstream.takes_more() && upstream.streams.as_deref().is_some_and(moves)
        })
    }

    /// One that has no request, to any backend.
    fn idle_multiplexed(&self) -> Option<UpstreamId> {
        let mut all = self.multiplexed.iter().flatten().copied();
        all.find(|upstream| {
            self.get(*upstream).streams.as_ref().is_some_and(|streams| streams.is_idle)
        })
    }

    /// It takes no more requests.
    fn remove_multiplexed(&mut self, upstream: UpstreamId) {
        let backend = self.get(upstream).backend;
        self.multiplexed[backend.place()].retain(|each| *each != upstream);
    }
}

/// Requests.
impl ProxyLoop {
    /// Gives the request a place on a connection of HTTP/2. Its session is still to be woken.
    pub(super) fn join(&mut self, at: ExchangeId, backend: BackendId) {
        let found = self.connections.with_room(backend, self.now.at);
        let upstream = found.unwrap_or_else(|| self.open_multiplexed(backend));
        if found.is_some() {
            self.proxied.count(ProxyCounter::Reuses);
        }
        let now = self.now.at;
        let joined = self.connections.get_mut(upstream);
        let is_connected = joined.id.is_some();
        let streams = joined.streams();
        streams.carried += 1;
        streams.ready.push(at);
        if std::mem::take(&mut streams.is_idle) {
            self.handover.pool().release(backend.place());
        }
        let exchange = self.exchanges.get_mut(at);
        (exchange.upstream, exchange.stream, exchange.is_ready) = (Some(upstream), 0, true);
        exchange.is_reused = is_connected;
        exchange.times.assigned.get_or_insert(now);
        if is_connected {
            exchange.times.connected = Some(now);
        }
        exchange.reach(if is_connected { Stage::Requesting } else { Stage::Connecting });
    }

    fn open_multiplexed(&mut self, backend: BackendId) -> UpstreamId {
        let upstream = self.connections.begin(backend, None);
        let tls = self.tls_to(backend, Mode::Http);
        let streams_max = self.connections.streams_max[backend.place()].clamp(1, STREAMS_MAX);
        let opened = self.connections.get_mut(upstream);
        opened.tls.clone_from(&tls);
        opened.streams = Some(Box::new(Multiplexed {
            carried: 0,
            streams_max,
            is_idle: false,
            ready: Vec::new(),
            stands_since: None,
            is_asked: false,
            dropped: Vec::new(),
        }));
        self.connections.multiplexed[backend.place()].push(upstream);
        self.proxied.count(ProxyCounter::Connects);
        let to = self.to(backend);
        let deadline = self.now.at + self.limits.connect_timeout;
        let session = Outgoing { purpose: Purpose::Http2(upstream), tls };
        self.commands.push_back(Command::Connect { to, session, deadline });
        upstream
    }

    /// Has the session of its connection of HTTP/2 look at the request, once that is called.
    pub(super) fn make_ready(&mut self, at: ExchangeId) {
        let exchange = self.exchanges.get_mut(at);
        if let Some(upstream) = exchange.upstream.filter(|_| exchange.is_multiplexed)
            && !std::mem::replace(&mut exchange.is_ready, true)
        {
            self.connections.get_mut(upstream).streams().ready.push(at);
        }
    }

    /// A request that was not sent by its connection, which takes no more, goes to another one: that was not a try. One that
    /// did so too often fails.
    pub(super) fn move_on(&mut self, at: ExchangeId) {
        self.detach(at);
        let exchange = self.exchanges.get_mut(at);
        exchange.moves += 1;
        if exchange.moves > OFFERS_MAX {
            if self.fault(at, Fault::Refused) != Next::Retry {
                self.wake_asker_later(at);
            }
            return;
        }
        self.proxied.count(ProxyCounter::Http2Moved);
        let exchange = self.exchanges.get_mut(at);
        exchange.tries -= 1;
        // Nor has the backend failed.
        exchange.backend = None;
        self.choose(at);
        self.wake_all(at);
    }

    /// A connection has lost a request, whose stream, if it has one, is not ended: that keeps its place until it is.
    pub(super) fn drop_stream(&mut self, upstream: UpstreamId, stream: u32) {
        let lost = self.connections.get_mut(upstream);
        if stream != 0 {
            lost.streams().dropped.push(stream);
        }
        let is_empty = lost.streams().carried == 0;
        match lost.id {
            Some(id) if !std::mem::replace(&mut lost.is_woken, true) => {
                self.commands.push_back(Command::Wake(id));
            }
            Some(_) => {}
            None if is_empty => self.forget_connect(upstream),
            None => {}
        }
    }
}

/// Connections.
impl ProxyLoop {
    /// A connection has no request. Whether it is kept for others.
    pub(super) fn park_multiplexed(&mut self, upstream: UpstreamId) -> bool {
        let backend = self.connections.get(upstream).backend;
        let is_open = self.connections.multiplexed[backend.place()].contains(&upstream);
        let is_there = self.backends[backend.place()].is_there();
        if self.is_draining || !is_there || !is_open {
            return false;
        }
        if self.handover.lacks_room() {
            self.proxied.count(ProxyCounter::IdleDropped);
            return false;
        }
        let streams = self.connections.get_mut(upstream).streams();
        if !streams.is_idle {
            if !self.handover.pool().reserve(backend.place()) {
                self.proxied.count(ProxyCounter::NotKept);
                return false;
            }
            streams.is_idle = true;
            self.proxied.count(ProxyCounter::Parked);
        }
        true
    }

    /// A connection takes no more requests; those that it has are finished.
    pub(super) fn close_to_others(&mut self, upstream: UpstreamId) {
        self.connections.remove_multiplexed(upstream);
        let UpstreamConnection { backend, streams, .. } = self.connections.get_mut(upstream);
        if let Some(streams) = streams
            && std::mem::take(&mut streams.is_idle)
        {
            self.handover.pool().release(backend.place());
        }
    }

    /// It is gone, and has no request any more.
    pub(super) fn end_multiplexed(&mut self, upstream: UpstreamId) {
        self.close_to_others(upstream);
        self.connections.end(upstream);
    }

    /// Closes one that has no request, for want of room; false when there is none.
    pub(super) fn close_idle_multiplexed(&mut self) -> bool {
        let Some(upstream) = self.connections.idle_multiplexed() else { return false };
        self.proxied.count(ProxyCounter::IdleDropped);
        self.close_to_others(upstream);
        self.wake_multiplexed(upstream);
        true
    }

    /// The backend is gone, or has another address: its connections end when their requests do.
    pub(super) fn leave_multiplexed(&mut self, backend: BackendId) {
        while let Some(upstream) = self.connections.multiplexed[backend.place()].last().copied() {
            self.close_to_others(upstream);
            self.wake_multiplexed(upstream);
        }
    }

    fn wake_multiplexed(&mut self, upstream: UpstreamId) {
        let woken = self.connections.get_mut(upstream);
        if let Some(id) = woken.id
            && !std::mem::replace(&mut woken.is_woken, true)
        {
            self.commands.push_back(Command::Wake(id));
        }
    }
}
