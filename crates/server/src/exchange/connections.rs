//! The upstream connections of a loop: which requests each has, and where one without a request is kept.
//!
//! A connection is known by its number; an exchange says which one has it, and that one which exchange it has: both change
//! together, in [`ProxyLoop`](crate::exchange::proxy_loop::ProxyLoop).

use std::sync::Arc;

use pollux_engine::{ConnectionId, Moment};
use pollux_tls::SharedTls;

use crate::backends::shared_upstreams::Pooled;
use crate::ids::{BackendId, ExchangeId, TcpPairId, UpstreamId};
use crate::places::Places;

/// One upstream connection.
///
/// ```text
///  Connecting ── connected ──► Busy ── answer whole ──► Idle ── next request ──► Busy
///       └────────── closed ──────┴──────── closed ────────┴──► gone
///
///  Parked:  Local ── end of the turn, where other loops may take it ──► Pooled ── taken ──► elsewhere
/// ```
///
/// One that another loop has taken keeps its number until this loop lets go of its descriptor. One of HTTP/2 stays with its
/// loop, and carries many requests (`multiplex.rs`).
#[derive(Debug)]
pub(crate) struct UpstreamConnection {
    pub(super) backend: BackendId,
    /// None until it is connected.
    pub(crate) id: Option<ConnectionId>,
    /// The request that it has, where it has one at a time.
    pub(crate) exchange: Option<ExchangeId>,
    /// Those that it has, where it carries many.
    pub(super) streams: Option<Box<Multiplexed>>,
    /// It was woken and has not been called yet.
    pub(super) is_woken: bool,
    /// Its request was taken away in the middle: nothing that comes belongs to another one.
    pub(super) is_cut: bool,
    pub(crate) parked: Parked,
    /// Its encryption, until other loops may take it.
    pub(crate) tls: Option<SharedTls>,
    /// What other loops may take it by.
    pub(super) pooled: Option<Arc<Pooled>>,
}

/// What a loop knows of a connection of HTTP/2 beside its session.
#[derive(Debug)]
pub(super) struct Multiplexed {
    /// Requests that it has, with a stream or without.
    pub(super) carried: u32,
    /// So many it may have.
    pub(super) streams_max: u32,
    /// It has none, and is counted as such.
    pub(super) is_idle: bool,
    /// Requests that its session has to look at.
    pub(super) ready: Vec<ExchangeId>,
    /// Since when its output waits.
    pub(super) stands_since: Option<Moment>,
    /// Nothing has come for long, and its backend was asked whether it is there.
    pub(super) is_asked: bool,
    /// Streams whose requests were taken from it: each has its place until its reset has left.
    pub(super) dropped: Vec<u32>,
}

/// Where an upstream connection without a request is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Parked {
    /// It is not idle, or another loop has it.
    No,
    /// With this loop.
    Local,
    /// In the pool of all loops.
    Pooled,
}

/// What a connection to a backend is opened for, with its encryption: the session on it is made of this.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) purpose: Purpose,
    pub(crate) tls: Option<SharedTls>,
}

/// What a connection to a backend is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// Requests one at a time, by the connection of this number.
    Http1(UpstreamId),
    /// Requests on its streams.
    Http2(UpstreamId),
    /// A check of this backend.
    Check(BackendId),
    /// Bytes of this pair, in TCP mode.
    Tcp(TcpPairId),
}

/// The upstream connections of one loop, by number, and those of each backend that it keeps idle.
#[derive(Debug)]
pub(crate) struct UpstreamConnections {
    all: Places<UpstreamId, UpstreamConnection>,
    /// The one that was used last is taken first: the others may be closed in peace.
    local: Vec<Vec<UpstreamId>>,
    /// Those of HTTP/2 that take requests, by backend.
    pub(super) multiplexed: Vec<Vec<UpstreamId>>,
    /// How many of them each backend has allowed on a connection last.
    pub(super) streams_max: Vec<u32>,
}

impl UpstreamConnections {
    pub(crate) fn new(backends: usize) -> Self {
        let none = || vec![Vec::new(); backends];
        let streams_max = vec![u32::MAX; backends];
        Self { all: Places::default(), local: none(), multiplexed: none(), streams_max }
    }

    /// A connection that is about to be there.
    pub(crate) fn begin(&mut self, backend: BackendId, exchange: Option<ExchangeId>) -> UpstreamId {
        self.all.put(UpstreamConnection {
            backend,
            id: None,
            exchange,
            streams: None,
            is_woken: false,
            is_cut: false,
            parked: Parked::No,
            tls: None,
            pooled: None,
        })
    }

    pub(crate) fn get_mut(&mut self, at: UpstreamId) -> &mut UpstreamConnection {
        self.all.get_mut(at)
    }

    pub(crate) fn get(&self, at: UpstreamId) -> &UpstreamConnection {
        self.all.get(at)
    }

    /// Whether this loop keeps an idle connection to `backend`.
    pub(super) fn has_local(&self, backend: BackendId) -> bool {
        !self.local[backend.place()].is_empty()
    }

    /// Takes an idle connection to `backend` that this loop keeps.
    pub(super) fn take_local(&mut self, backend: BackendId) -> Option<UpstreamId> {
        let at = self.local[backend.place()].pop()?;
        self.all.get_mut(at).parked = Parked::No;
        Some(at)
    }

    /// Takes the one that this loop has kept longest, to the backend to which it keeps most.
    pub(super) fn take_oldest_local(&mut self) -> Option<UpstreamId> {
        let local = self.local.iter_mut().max_by_key(|local| local.len())?;
        if local.is_empty() {
            return None;
        }
        let at = local.remove(0);
        self.all.get_mut(at).parked = Parked::No;
        Some(at)
    }

    /// Keeps a connection that has no request.
    pub(super) fn keep_local(&mut self, at: UpstreamId) {
        let connection = self.all.get_mut(at);
        connection.parked = Parked::Local;
        self.local[connection.backend.place()].push(at);
    }

    /// Keeps it here no more; false when it was not.
    pub(super) fn remove_idle_local(&mut self, at: UpstreamId) -> bool {
        let connection = self.all.get_mut(at);
        if connection.parked != Parked::Local {
            return false;
        }
        connection.parked = Parked::No;
        let local = &mut self.local[connection.backend.place()];
        let place = local.iter().rposition(|each| *each == at);
        local.remove(place.expect("what is idle here is on the list"));
        true
    }

    /// Forgets a connection that is gone, and was taken out of the idle ones.
    pub(crate) fn end(&mut self, at: UpstreamId) {
        let connection = self.all.get_mut(at);
        (connection.tls, connection.pooled, connection.streams) = (None, None, None);
        self.all.free(at);
    }

    /// Drops the places behind the last one that is in use.
    pub(crate) fn release_memory(&mut self) {
        self.all.release_memory(|_| {});
        self.local.iter_mut().chain(&mut self.multiplexed).for_each(Vec::shrink_to_fit);
    }

    /// The session of a connection, if that is in the pool, or was taken from there.
    pub(super) fn id_of_pooled(&self, at: UpstreamId) -> Option<ConnectionId> {
        let connection = self.all.find(at)?;
        connection.id.filter(|_| connection.parked == Parked::Pooled)
    }

    /// Connections that are open or being opened.
    pub(crate) fn open(&self) -> usize {
        self.all.in_use()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_are_gone_keep_no_places_behind_the_last_one() {
        let mut connections = UpstreamConnections::new(1);
        let all: Vec<_> =
            (0..100).map(|_| connections.begin(BackendId::of_place(0), None)).collect();
        all.iter().for_each(|at| connections.keep_local(*at));
        for at in all.iter().filter(|at| at.place() != 10) {
            assert!(connections.remove_idle_local(*at));
            connections.end(*at);
        }
        connections.release_memory();
        assert_eq!((connections.all.size(), connections.open()), ((11, 10), 1));
        assert_eq!(connections.local[0].capacity(), 1);
        assert_eq!(connections.take_local(BackendId::of_place(0)), Some(all[10]));
        // One that is no more is not found.
        assert_eq!(connections.id_of_pooled(all[50]), None);
        let mut places: Vec<_> =
            (0..12).map(|_| connections.begin(BackendId::of_place(0), None).place()).collect();
        places.sort_unstable();
        assert_eq!(places, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12]);
    }
}
