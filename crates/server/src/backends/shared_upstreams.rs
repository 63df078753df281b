//! What the loops of a proxy tell each other: idle connections, permissions to open one, and that something changed.
//!
//! Each loop has an inbox; a loop that has a connection for a request of another loop sends it there and
//! wakes that loop. One that cannot be delivered goes to the next request that waits.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

use pollux_engine::{ConnectionId, Inbox, Sender, SharedSocket};
use pollux_poller::Waker;
use pollux_tls::SharedTls;

use crate::backends::Backend;
use crate::backends::counted_routes::CountedRoutes;
use crate::backends::names::{Names, places_of};
use crate::backends::pool::{Idle, Pool, PoolLimits, PoolView, Ticket};
use crate::config::{BackendConfig, ProxyConfig};
use crate::ids::{BackendId, UpstreamId};
use crate::site_orders::SiteOrders;

/// Messages that wait for a loop: one for each request that waits, and few others.
const MESSAGES_MAX: usize = 1 << 20;

/// A connection that the loops of a proxy share.
#[derive(Debug)]
pub(crate) struct Pooled {
    pub(crate) socket: Arc<SharedSocket>,
    /// Its encryption, which only the holder of the socket touches.
    pub(crate) tls: Option<SharedTls>,
    /// For each loop one more than the number of its connection, while it has one; written by that loop.
    connections: Box<[AtomicU32]>,
}

impl Pooled {
    pub(crate) fn new(socket: Arc<SharedSocket>, tls: Option<SharedTls>, loops: u32) -> Arc<Self> {
        let connections = (0..loops).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Self { socket, tls, connections })
    }

    /// The connection that the loop has for it, if it has not let go of it.
    pub(crate) fn upstream_of(&self, of: u32) -> Option<UpstreamId> {
        let number = self.connections[of as usize].load(Relaxed).checked_sub(1)?;
        Some(UpstreamId::of_place(number as usize))
    }

    /// Notes the connection that the loop, which calls this, has for it.
    pub(crate) fn set_upstream(&self, of: u32, upstream: Option<UpstreamId>) {
        self.connections[of as usize]
            .store(upstream.map_or(0, |upstream| upstream.place() as u32 + 1), Relaxed);
    }
}

impl Idle for Arc<Pooled> {
    fn take(&self, by: u32) -> bool {
        self.socket.take(by)
    }

    fn start_transfer(&self) -> bool {
        self.socket.start_transfer()
    }

    fn owner(&self) -> u32 {
        self.socket.owner()
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(self, other)
    }
}

/// What one loop tells another one.
#[derive(Debug)]
pub(crate) enum Notice {
    /// The request that waited has this connection, which was sent off to its loop.
    Connection(Ticket, BackendId, Arc<Pooled>),
    /// The request that waited may open a connection.
    OpenGranted(Ticket, BackendId),
    /// The request that waited for this backend has to go elsewhere: it is down.
    Reassign(Ticket, BackendId),
    /// Close an idle connection to this backend: a request waits to open one in its stead.
    CloseIdle(BackendId),
    /// This connection was taken over; let go of it now.
    Release(UpstreamId),
    /// Names of backends have other addresses.
    AddressesChanged,
    /// What a client of this connection waits for is known.
    Wake(ConnectionId),
}

/// The upstream connections of all loops of a proxy.
#[derive(Debug)]
pub struct SharedUpstreams {
    pub(crate) backends: Arc<[Backend]>,
    /// Which sites are in maintenance.
    sites: Mutex<Arc<SiteOrders>>,
    /// Where answers of the routes of sites are counted.
    pub(crate) routes: CountedRoutes,
    pub(crate) pool: Pool<Arc<Pooled>>,
    /// What looks up the names of backends, where they have any.
    names: OnceLock<Arc<Names>>,
    senders: Box<[OnceLock<Sender<Notice, Waker>>]>,
    /// Whether a loop that lost a connection is notified at once, instead of finding out by itself.
    notifies_at_once: bool,
}

impl SharedUpstreams {
    /// For the loops of a proxy that is configured so, with the backends that it has.
    #[must_use]
    pub fn new(config: &ProxyConfig, backends: Arc<[Backend]>) -> Arc<Self> {
        let loops = config.loops.threads as u32;
        let most = |server: &BackendConfig| {
            std::iter::repeat_n(server.connections_max, places_of(&server.address))
        };
        let open_max: Vec<_> = config.servers().flat_map(most).collect();
        // A client has one request under way, so more connections than clients are never of use.
        let clients_max = config.connections_max() as usize;
        let limits = PoolLimits {
            idle_max: config.limits.upstream_idle_max.unwrap_or(clients_max),
            idle_total_max: config.limits.upstream_idle_total.unwrap_or(clients_max),
            queue_max: config.limits.queue_max,
        };
        let mut pool = Pool::new(loops, &open_max, limits);
        for (place, backend) in backends.iter().enumerate() {
            if config.groups[backend.group.place()].protocol.is_http2() {
                pool.count_requests(place);
            }
        }
        let routes = CountedRoutes::default();
        routes.places(&config.sites.names());
        Arc::new(Self {
            backends,
            sites: Mutex::new(Arc::new(SiteOrders::none(&config.sites))),
            routes,
            pool,
            names: OnceLock::new(),
            senders: (0..loops).map(|_| OnceLock::new()).collect(),
            notifies_at_once: config.lets_go_at_once,
        })
    }

    /// Which sites are in maintenance.
    pub(crate) fn site_orders(&self) -> Arc<SiteOrders> {
        Arc::clone(&self.sites.lock().expect("nothing panics under this lock"))
    }

    /// There are other sites, with these orders of their own: those that have a name of before get its order.
    pub(crate) fn replace_sites(&self, new: &Arc<SiteOrders>) {
        let mut orders = self.sites.lock().expect("nothing panics under this lock");
        new.restore("", &orders.lines());
        *orders = Arc::clone(new);
    }

    /// These look up the names of backends.
    pub(crate) fn set_names(&self, names: Arc<Names>) {
        assert!(self.names.set(names).is_ok(), "a proxy is started once");
    }

    /// What looks up the names of backends, where they have any.
    pub(crate) fn names(&self) -> Option<&Arc<Names>> {
        self.names.get()
    }

    /// Has all loops look where backends are.
    pub(crate) fn notify_of_addresses(&self) {
        for to in 0..self.loops() {
            // One that has not begun looks then.
            let _ = self.send(to, Notice::AddressesChanged);
        }
    }

    /// Tells a loop something from a thread that is none. One that has ended has nobody who waits.
    pub(crate) fn notify(&self, to: u32, message: Notice) {
        let _ = self.send(to, message);
    }

    /// What can be read of the backend at this place.
    #[must_use]
    pub fn view(&self, backend: usize) -> PoolView {
        self.pool.view(backend)
    }

    pub(crate) fn loops(&self) -> u32 {
        self.senders.len() as u32
    }

    /// The inbox of the loop `of`, whose waits `waker` ends.
    pub(crate) fn open(&self, of: u32, waker: &Waker) -> Inbox<Notice> {
        let (inbox, sender) = Inbox::new(MESSAGES_MAX, waker.clone());
        let is_first = self.senders[of as usize].set(sender).is_ok();
        assert!(is_first, "each loop has a number of its own");
        inbox
    }

    fn send(&self, to: u32, message: Notice) -> Result<(), Notice> {
        let Some(sender) = self.senders[to as usize].get() else { return Err(message) };
        sender.send(message).map_err(pollux_engine::Undelivered::into_message)
    }

    /// Puts a connection that the calling loop `index` has reserved and put down into the pool. When a
    /// request of the same loop has waited for it, it is given back.
    pub(crate) fn put(
        &self,
        index: u32,
        backend: BackendId,
        mut connection: Arc<Pooled>,
    ) -> Option<(Ticket, Arc<Pooled>)> {
        loop {
            let (ticket, taken) = self.pool.put(backend.place(), connection)?;
            if ticket.by == index {
                return Some((ticket, taken));
            }
            match self.send(ticket.by, Notice::Connection(ticket, backend, taken)) {
                Err(Notice::Connection(_, _, back)) => {
                    // That loop has ended.
                    back.socket.give_back(index);
                    self.pool.reserve_anyway(backend.place());
                    connection = back;
                }
                _ => return None,
            }
        }
    }

    /// A connection to the backend is closed, or was not opened. When a request of the loop
    /// `index` may open one now, its ticket is given back.
    pub(crate) fn closed(&self, index: u32, backend: BackendId) -> Option<Ticket> {
        loop {
            let ticket = self.pool.closed(backend.place())?;
            if ticket.by == index {
                return Some(ticket);
            }
            if self.send(ticket.by, Notice::OpenGranted(ticket, backend)).is_ok() {
                return None;
            }
        }
    }

    /// The backend is down: the loops of requests that wait for it are notified, but for those of the
    /// loop `index`, whose tickets are given back.
    pub(crate) fn evict(&self, index: u32, backend: BackendId) -> Vec<Ticket> {
        let mut own = Vec::new();
        for ticket in self.pool.evict(backend.place()) {
            if ticket.by == index {
                own.push(ticket);
            } else {
                // A loop that is gone has no requests any more.
                let _ = self.send(ticket.by, Notice::Reassign(ticket, backend));
            }
        }
        own
    }

    /// Asks a loop to close an idle connection. A loop that has ended has closed them all.
    pub(crate) fn ask(&self, keeper: u32, backend: BackendId) {
        let _ = self.send(keeper, Notice::CloseIdle(backend));
    }

    /// The loop `index` has taken a connection over: those that had it are notified, if they are not to
    /// find out by themselves.
    pub(crate) fn took(&self, index: u32, connection: &Pooled) {
        if !self.notifies_at_once {
            return;
        }
        for other in (0..self.loops()).filter(|other| *other != index) {
            if let Some(upstream) = connection.upstream_of(other) {
                let _ = self.send(other, Notice::Release(upstream));
            }
        }
    }
}
