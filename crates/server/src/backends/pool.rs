//! The idle upstream connections, and the requests that wait for one: one pool for all threads of a
//! proxy.
//!
//! ```text
//!                        a request comes
//!                               │ others wait already? ── yes ──► behind them, or refused
//!                               ▼
//!   own idle list ─► those of other threads ─► fewer open than the server's limit? ─► wait
//!
//!   a connection is free, or gone: the oldest request gets it, or opens another; else it is shelved
//! ```
//!
//! Each thread has a list of idle connections for each server, and takes from those of others when its own is empty. What
//! is on a list was released by its thread; a thread that has an event for it claims it without this
//! pool, so a taker skips what it can't take.
//!
//! A server with a limit of connections has a gate. A request that finds no connection looks once more and
//! joins the queue under its lock, and a thread that lists one looks at the queue under it, so no request
//! waits beside a free connection; requests are served in the order of arrival.
//!
//! `tests/loom_pool.rs` takes in this file as it stands; so nothing here may name anything else of the
//! crate.

use std::collections::VecDeque;

#[cfg(loom)]
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};

/// What lies on lists.
pub(crate) trait Idle {
    /// Takes it for the thread `by`; false when its own thread is just doing something with it.
    fn take(&self, by: u32) -> bool;
    /// Takes it for another thread, which owns it from its message on; false as with `take`.
    fn start_transfer(&self) -> bool;
    /// The thread that put it down.
    fn owner(&self) -> u32;
    /// Whether both are the same connection.
    fn is(&self, other: &Self) -> bool;
}

/// Bounds of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PoolLimits {
    /// Most connections to a server without a request.
    pub(crate) idle_max: usize,
    /// Most connections to all servers without a request.
    pub(crate) idle_total_max: usize,
    /// Most requests that wait for a connection to a server.
    pub(crate) queue_max: usize,
}

/// A request that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticket {
    /// Its thread.
    pub(crate) by: u32,
    /// Its place there.
    pub(crate) at: u32,
    /// Not used for another one of that thread.
    pub(crate) number: u64,
}

/// What a request gets.
#[derive(Debug)]
pub(crate) enum Admission<C> {
    /// A connection of its own thread that was idle.
    Own(C),
    /// An idle connection of another thread.
    Other(C),
    /// The one that its thread keeps for itself.
    Private,
    /// A place for a new connection.
    Open,
    /// It waits. When a thread keeps idle connections for itself, it is to be asked for one.
    Wait(Option<u32>),
    /// As many wait as may.
    Full,
}

/// What becomes of a connection that a thread would keep for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keeping {
    /// It is kept.
    Kept,
    /// A request of the same thread has waited for it.
    For(Ticket),
    /// A request of another thread waits: it gets the place when this one is closed.
    Close,
}

/// What can be read of a server's part of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolView {
    /// Connections without a request.
    pub idle: usize,
    /// Connections that are open or being opened; none where they are not counted.
    pub open: Option<u32>,
    /// The most of them; none for no limit.
    pub open_max: Option<u32>,
    /// Requests that wait.
    pub waiting: usize,
}

/// The idle connections of all threads, by server.
#[derive(Debug)]
pub(crate) struct Pool<C> {
    servers: Box<[Server<C>]>,
    limits: PoolLimits,
    idle: AtomicUsize,
}

#[derive(Debug)]
struct Server<C> {
    open_max: Option<u32>,
    /// Each of its connections carries many requests, which are counted in their stead.
    counts_requests: bool,
    idle: AtomicUsize,
    lists: Box<[IdleList<C>]>,
    gate: Mutex<Gate>,
    /// A request that comes now would wait: a hint for the balancer.
    busy: AtomicUsize,
}

#[derive(Debug)]
struct IdleList<C> {
    /// How many lie on it: an empty one is not locked.
    len: AtomicUsize,
    idle: Mutex<Vec<C>>,
}

#[derive(Debug)]
struct Gate {
    open: u32,
    waiting: VecDeque<Ticket>,
    /// Connections that each thread keeps for itself.
    private: Box<[u32]>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nothing panics under this lock")
}

impl<C: Idle> Pool<C> {
    /// A pool of `threads` threads for servers that have so many connections at most.
    pub(crate) fn new(threads: u32, open_max: &[Option<u32>], limits: PoolLimits) -> Self {
        let list = |_| IdleList { len: AtomicUsize::new(0), idle: Mutex::new(Vec::new()) };
        let gate = || Gate {
            open: 0,
            waiting: VecDeque::new(),
            private: vec![0; threads as usize].into(),
        };
        let server = |open_max: &Option<u32>| Server {
            open_max: *open_max,
            counts_requests: false,
            idle: AtomicUsize::new(0),
            lists: (0..threads).map(list).collect(),
            gate: Mutex::new(gate()),
            busy: AtomicUsize::new(0),
        };
        Self { servers: open_max.iter().map(server).collect(), limits, idle: AtomicUsize::new(0) }
    }

    /// Counts requests of this server and not connections: each of those carries many, and none is put here.
    pub(crate) fn count_requests(&mut self, server: usize) {
        self.servers[server].counts_requests = true;
    }

    /// Whether requests of this server are counted.
    pub(crate) fn counts_requests(&self, server: usize) -> bool {
        self.servers[server].counts_requests
    }

    /// Whether a server has a limit of connections.
    pub(crate) fn is_limited(&self, server: usize) -> bool {
        self.servers[server].open_max.is_some()
    }

    /// Whether a request to the server would wait, when that was known last.
    pub(crate) fn is_busy(&self, server: usize) -> bool {
        self.servers[server].busy.load(Relaxed) != 0
    }

    /// Counts a connection that will be kept without a request; false when enough are.
    pub(crate) fn reserve(&self, server: usize) -> bool {
        let of_server = &self.servers[server].idle;
        if of_server.fetch_add(1, Relaxed) >= self.limits.idle_max {
            of_server.fetch_sub(1, Relaxed);
            return false;
        }
        if self.idle.fetch_add(1, Relaxed) >= self.limits.idle_total_max {
            self.release(server);
            return false;
        }
        true
    }

    /// Counts one more, also when there are too many.
    pub(crate) fn reserve_anyway(&self, server: usize) {
        self.servers[server].idle.fetch_add(1, Relaxed);
        self.idle.fetch_add(1, Relaxed);
    }

    /// A connection that was reserved is used, or gone.
    pub(crate) fn release(&self, server: usize) {
        self.servers[server].idle.fetch_sub(1, Relaxed);
        self.idle.fetch_sub(1, Relaxed);
    }

    /// What a request of the thread `ticket.by` gets. `has_private` says that the thread keeps an
    /// idle connection for itself.
    pub(crate) fn admit(&self, server: usize, ticket: Ticket, has_private: bool) -> Admission<C> {
        let of_server = &self.servers[server];
        let Some(open_max) = of_server.open_max else {
            if has_private {
                self.release(server);
                return Admission::Private;
            }
            return self.find(server, ticket.by);
        };
        let mut gate = lock(&of_server.gate);
        let mut admission = Admission::Full;
        if gate.waiting.is_empty() {
            admission = if has_private {
                gate.private[ticket.by as usize] -= 1;
                self.release(server);
                Admission::Private
            } else {
                self.find(server, ticket.by)
            };
            if matches!(admission, Admission::Open) {
                if gate.open < open_max {
                    gate.open += 1;
                } else {
                    admission = Admission::Full;
                }
            }
        }
        let is_full = matches!(admission, Admission::Full);
        if is_full && gate.waiting.len() < self.limits.queue_max {
            gate.waiting.push_back(ticket);
            let keeper = gate.private.iter().position(|kept| *kept > 0);
            admission = Admission::Wait(keeper.map(|keeper| keeper as u32));
        }
        self.hint(server, &gate);
        admission
    }

    /// An idle connection of any thread, its own ones first; else one may be opened.
    fn find(&self, server: usize, by: u32) -> Admission<C> {
        let lists = &self.servers[server].lists;
        let (before, from) = lists.split_at(by as usize);
        for (place, list) in from.iter().chain(before).enumerate() {
            if let Some(found) = list.take(by) {
                self.release(server);
                return if place == 0 { Admission::Own(found) } else { Admission::Other(found) };
            }
        }
        Admission::Open
    }

    /// Takes the connection that has lain longest on the longest list of the thread `by`, which wants to
    /// close one; says which server it is to.
    pub(crate) fn oldest(&self, by: u32) -> Option<(usize, C)> {
        let list = |server: &Server<C>| server.lists[by as usize].len.load(Relaxed);
        let (server, fullest) =
            self.servers.iter().enumerate().max_by_key(|(_, server)| list(server))?;
        let found = fullest.lists[by as usize].take_oldest(by)?;
        self.release(server);
        Some((server, found))
    }

    /// Takes a connection to the server off the list of the thread `by`, which wants to close it.
    pub(crate) fn take_own(&self, server: usize, by: u32) -> Option<C> {
        let found = self.servers[server].lists[by as usize].take_oldest(by)?;
        self.release(server);
        Some(found)
    }

    /// A connection that its thread, which calls this, has put down: for the request that has waited
    /// longest, or for the list of its thread. It is reserved. What goes to another thread is in transfer.
    pub(crate) fn put(&self, server: usize, connection: C) -> Option<(Ticket, C)> {
        let of_server = &self.servers[server];
        let owner = connection.owner();
        let list = &of_server.lists[owner as usize];
        if of_server.open_max.is_none() {
            list.put(connection);
            return None;
        }
        let mut gate = lock(&of_server.gate);
        let next = gate.waiting.pop_front();
        let goes_to =
            |by| if by == owner { connection.take(owner) } else { connection.start_transfer() };
        let given = match next {
            Some(ticket) if goes_to(ticket.by) => {
                self.release(server);
                Some((ticket, connection))
            }
            // Its thread has something to do with it and puts it anew.
            Some(ticket) => {
                gate.waiting.push_front(ticket);
                list.put(connection);
                None
            }
            None => {
                list.put(connection);
                None
            }
        };
        self.hint(server, &gate);
        given
    }

    /// Takes a connection off the list of its thread; false when another thread has taken it.
    pub(crate) fn remove(&self, server: usize, by: u32, connection: &C) -> bool {
        let is_removed = self.servers[server].lists[by as usize].remove(connection);
        if is_removed {
            self.release(server);
        }
        is_removed
    }

    /// A connection that the thread `by` has reserved and would keep for itself.
    pub(crate) fn keep(&self, server: usize, by: u32) -> Keeping {
        let of_server = &self.servers[server];
        if of_server.open_max.is_none() {
            return Keeping::Kept;
        }
        let mut gate = lock(&of_server.gate);
        let keeping = match gate.waiting.front() {
            Some(ticket) if ticket.by == by => Keeping::For(*ticket),
            Some(_) => Keeping::Close,
            None => Keeping::Kept,
        };
        match keeping {
            Keeping::For(_) => drop(gate.waiting.pop_front()),
            Keeping::Kept => gate.private[by as usize] += 1,
            Keeping::Close => {}
        }
        if keeping != Keeping::Kept {
            self.release(server);
        }
        self.hint(server, &gate);
        keeping
    }

    /// A connection that the thread `by` had kept for itself is kept no more.
    pub(crate) fn remove_idle(&self, server: usize, by: u32) {
        self.release(server);
        if self.is_limited(server) {
            let mut gate = lock(&self.servers[server].gate);
            gate.private[by as usize] -= 1;
            self.hint(server, &gate);
        }
    }

    /// A connection is closed, or was not opened: the request that has waited longest may open one.
    pub(crate) fn closed(&self, server: usize) -> Option<Ticket> {
        if !self.is_limited(server) {
            return None;
        }
        let mut gate = lock(&self.servers[server].gate);
        let next = gate.waiting.pop_front();
        if next.is_none() {
            gate.open -= 1;
        }
        self.hint(server, &gate);
        next
    }

    /// A request waits no more; false when it is not in the queue: what it gets is on its way.
    pub(crate) fn leave(&self, server: usize, ticket: Ticket) -> bool {
        let mut gate = lock(&self.servers[server].gate);
        let place = gate.waiting.iter().position(|each| *each == ticket);
        let was_there = place.and_then(|place| gate.waiting.remove(place)).is_some();
        self.hint(server, &gate);
        was_there
    }

    /// The server is down: no request waits for it any more. Returns those that did.
    pub(crate) fn evict(&self, server: usize) -> VecDeque<Ticket> {
        let mut gate = lock(&self.servers[server].gate);
        let waiting = std::mem::take(&mut gate.waiting);
        self.hint(server, &gate);
        waiting
    }

    /// What can be read of a server.
    pub(crate) fn view(&self, server: usize) -> PoolView {
        let of_server = &self.servers[server];
        let gate = lock(&of_server.gate);
        PoolView {
            idle: of_server.idle.load(Relaxed),
            open: of_server.open_max.map(|_| gate.open),
            open_max: of_server.open_max,
            waiting: gate.waiting.len(),
        }
    }

    fn hint(&self, server: usize, gate: &Gate) {
        let of_server = &self.servers[server];
        let is_full = of_server.open_max.is_some_and(|open_max| gate.open >= open_max);
        let has_idle = !of_server.counts_requests && of_server.idle.load(Relaxed) > 0;
        let is_busy = !gate.waiting.is_empty() || is_full && !has_idle;
        of_server.busy.store(usize::from(is_busy), Relaxed);
    }
}

impl<C: Idle> IdleList<C> {
    /// The one that was put there last: the others may be closed in peace.
    fn take(&self, by: u32) -> Option<C> {
        self.take_one(|idle| idle.iter().rposition(|each| each.take(by)))
    }

    fn take_oldest(&self, by: u32) -> Option<C> {
        self.take_one(|idle| idle.iter().position(|each| each.take(by)))
    }

    fn take_one(&self, choose: impl FnOnce(&[C]) -> Option<usize>) -> Option<C> {
        if self.len.load(Relaxed) == 0 {
            return None;
        }
        let mut idle = lock(&self.idle);
        let found = choose(&idle).map(|place| idle.remove(place));
        self.len.store(idle.len(), Relaxed);
        found
    }

    fn put(&self, connection: C) {
        let mut idle = lock(&self.idle);
        idle.push(connection);
        self.len.store(idle.len(), Relaxed);
    }

    fn remove(&self, connection: &C) -> bool {
        let mut idle = lock(&self.idle);
        let place = idle.iter().rposition(|each| each.is(connection));
        let is_there = place.map(|place| idle.remove(place)).is_some();
        self.len.store(idle.len(), Relaxed);
        is_there
    }
}
