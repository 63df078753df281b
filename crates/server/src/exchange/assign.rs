//! How requests and upstream connections of one loop come together: the backend is chosen, a connection
//! found, opened or waited for, and a connection that is free again goes to a request that waits.
//!
//! | a connection | goes |
//! |---|---|
//! | of this loop, idle | to the next request of this loop, by a wake |
//! | of another loop, idle | to this loop: taken over, or taken back when it was here before |
//! | free again | kept here until the turn ends, then put down, for any loop |
//! | that loops can't share | kept by its loop; closed when a request of another loop waits |
//! | of HTTP/2 | stays with its loop, and carries many requests (`multiplex.rs`) |

use std::collections::VecDeque;
use std::sync::Arc;

use pollux_engine::{Actions, Command, Inbox};
use pollux_poller::Waker;

use crate::backends::Target;
use crate::backends::groups::Choice;
use crate::backends::names::Names;
use crate::backends::pool::{Admission, Keeping, Pool, Ticket};
use crate::backends::shared_upstreams::{Notice, Pooled, SharedUpstreams};
use crate::config::Mode;
use crate::exchange::connections::{Outgoing, Parked, Purpose};
use crate::exchange::proxy_loop::ProxyLoop;
use crate::exchange::table::{Stage, Tried};
use crate::fault::{Fault, ProxyCounter};
use crate::ids::{BackendId, ExchangeId, GroupId, UpstreamId};
use crate::sticky::Mark;

/// What one loop needs to hand connections over to others, and to get theirs.
#[derive(Debug)]
pub(crate) struct Handover {
    /// The number of this loop.
    index: u32,
    shared: Arc<SharedUpstreams>,
    /// None until the loop is there.
    inbox: Option<Inbox<Notice>>,
    notices: Vec<Notice>,
    /// Other loops can have the connections of this one.
    is_sharing: bool,
    /// Connections that became idle in this turn and will go to the pool.
    newly_idle: Vec<UpstreamId>,
    /// Tickets so far.
    tickets: u64,
    /// Requests for whose connections the loop had no room, in the order of their tries.
    without_room: VecDeque<Ticket>,
}

impl Handover {
    pub(crate) fn new(index: u32, shared: Arc<SharedUpstreams>) -> Self {
        let inbox = None;
        let notices = Vec::new();
        let newly_idle = Vec::new();
        let without_room = VecDeque::new();
        Self {
            index,
            shared,
            inbox,
            notices,
            is_sharing: false,
            newly_idle,
            tickets: 0,
            without_room,
        }
    }

    /// A new ticket for the exchange of that number.
    fn ticket(&mut self, at: ExchangeId) -> Ticket {
        self.tickets += 1;
        Ticket { by: self.index, at: at.place() as u32, number: self.tickets }
    }

    /// Whether requests wait until another connection of the loop is gone.
    pub(super) fn lacks_room(&self) -> bool {
        !self.without_room.is_empty()
    }

    /// The connections of all loops.
    pub(super) fn pool(&self) -> &Pool<Arc<Pooled>> {
        &self.shared.pool
    }

    /// What looks up the names of backends, where they have any.
    pub(crate) fn names(&self) -> Option<&Arc<Names>> {
        self.shared.names()
    }

    /// Connections of all loops to the backend that have no request.
    pub(crate) fn idle(&self, backend: usize) -> usize {
        self.shared.view(backend).idle
    }
}

/// Requests.
impl ProxyLoop {
    /// Asks the pool for a connection to the backend.
    pub(super) fn ask_pool(
        &mut self,
        at: ExchangeId,
        backend: BackendId,
    ) -> Admission<Arc<Pooled>> {
        let Handover { ref shared, is_sharing, .. } = self.handover;
        let pool = &shared.pool;
        let is_limited = pool.is_limited(backend.place());
        // A second try needs a connection that cannot have been closed long ago.
        if self.exchanges.get(at).tries > 1 && !is_limited {
            return Admission::Open;
        }
        let has_local = self.connections.has_local(backend);
        // A connection that became idle in this turn is not shared yet.
        if has_local && is_sharing && !(is_limited && pool.is_busy(backend.place())) {
            pool.release(backend.place());
            return Admission::Private;
        }
        let ticket = self.handover.ticket(at);
        let admission =
            self.handover.shared.pool.admit(backend.place(), ticket, has_local && !is_sharing);
        if let Admission::Wait(_) = admission {
            self.exchanges.get_mut(at).ticket = Some(ticket);
        }
        admission
    }

    /// The request waits for a connection to the backend; a loop that keeps idle ones for itself is asked for one.
    pub(super) fn wait(&mut self, at: ExchangeId, backend: BackendId, keeper: Option<u32>) {
        self.proxied.count(ProxyCounter::Queued);
        let now = self.now.at;
        self.exchanges.get_mut(at).times.queued.get_or_insert(now);
        if self.backends[backend.place()].is_down() {
            // All are. A check that finds it down after this moves those that wait.
            self.leave_queue(at);
            self.give_up_later(at, Fault::ConnectFailed);
        } else if let Some(keeper) = keeper {
            self.handover.shared.ask(keeper, backend);
        }
    }

    /// The backend of the group whose turn it is; those that were tried and failed come last. None when all
    /// are drained, or have no address. One that has this mark comes first while it may have requests.
    pub(crate) fn pick_backend(
        &mut self,
        group: GroupId,
        tried: &Tried,
        key: u64,
        mark: Mark,
    ) -> Option<BackendId> {
        let now = self.now.at;
        let counts = self.proxied.backends();
        let pool = &self.handover.shared.pool;
        let group = &mut self.groups[group.place()];
        let first = group.first();
        let is_out = |place: BackendId| {
            !self.are_there[place.place()] || self.backends[place.place()].is_draining()
        };
        if group.len() == 1 {
            return Some(first).filter(|first| !is_out(*first));
        }
        if group.members().all(is_out) {
            return None;
        }
        let all = group.members().map(|place| {
            if self.are_there[place.place()] {
                Choice {
                    share: self.backends[place.place()].share(now),
                    in_use: counts[place.place()].in_use(),
                    is_busy: pool.is_busy(place.place()),
                    is_drained: self.backends[place.place()].is_draining(),
                }
            } else {
                Choice { share: 0, in_use: 0, is_busy: false, is_drained: true }
            }
        });
        let is_tried = |at| tried.has(BackendId::of_place(first.place() + at));
        let kept = if mark.is_none() {
            None
        } else {
            marked(&self.targets[first.place()..][..group.len()], mark)
        };
        let chosen = group.balancer.choose(all, is_tried, key, kept);
        Some(group.member(chosen))
    }

    /// Why no backend of the group can be chosen.
    #[cold]
    pub(super) fn why_none(&self, group: GroupId) -> Fault {
        if self.members_there(group) > 0 { Fault::AllDrained } else { Fault::NoAddress }
    }

    /// Whether [`Self::pick_backend`] would find a backend that has not failed by then, when this one has too.
    pub(super) fn has_another(&self, group: GroupId, tried: &Tried, failed: BackendId) -> bool {
        let now = self.now.at;
        let may_have =
            |it: &BackendId| self.are_there[it.place()] && !self.backends[it.place()].is_draining();
        let usable = || self.groups[group.place()].members().filter(may_have);
        // When all are down, all are tried.
        let all_down = usable().all(|place| self.backends[place.place()].share(now) == 0);
        usable().any(|place| {
            let has_share = all_down || self.backends[place.place()].share(now) > 0;
            has_share && place != failed && !tried.has(place)
        })
    }

    /// Opens a connection for the exchange; one of HTTP/2 may be there.
    pub(super) fn open_for(&mut self, at: ExchangeId, backend: BackendId) {
        if self.exchanges.get(at).is_multiplexed {
            return self.join(at, backend);
        }
        let now = self.now.at;
        let upstream = self.connections.begin(backend, Some(at));
        let tls = self.tls_to(backend, Mode::Http);
        self.connections.get_mut(upstream).tls = tls.clone();
        let exchange = self.exchanges.get_mut(at);
        (exchange.upstream, exchange.is_reused) = (Some(upstream), false);
        exchange.reach(Stage::Connecting);
        exchange.times.assigned.get_or_insert(now);
        self.proxied.count(ProxyCounter::Connects);
        let to = self.to(backend);
        let deadline = now + self.limits.connect_timeout;
        let session = Outgoing { purpose: Purpose::Http1(upstream), tls };
        self.commands.push_back(Command::Connect { to, session, deadline });
    }

    /// Gives the exchange an idle connection that this loop keeps.
    pub(super) fn reuse_local(&mut self, at: ExchangeId, backend: BackendId) {
        let upstream = self.connections.take_local(backend).expect("it keeps one");
        self.reuse(at, upstream);
    }

    /// Gives the exchange a connection of this loop. Its session is still to be woken.
    fn reuse(&mut self, at: ExchangeId, upstream: UpstreamId) {
        self.proxied.count(ProxyCounter::Reuses);
        let taken = self.connections.get_mut(upstream);
        (taken.exchange, taken.parked) = (Some(at), Parked::No);
        self.note_connection(at, upstream);
    }

    fn note_connection(&mut self, at: ExchangeId, upstream: UpstreamId) {
        let now = self.now.at;
        let exchange = self.exchanges.get_mut(at);
        (exchange.upstream, exchange.is_reused) = (Some(upstream), true);
        exchange.reach(Stage::Requesting);
        exchange.times.assigned.get_or_insert(now);
        exchange.times.connected = Some(now);
    }

    /// Gives the exchange an idle connection that this loop had put down.
    pub(super) fn take_own(&mut self, at: ExchangeId, backend: BackendId, pooled: Arc<Pooled>) {
        match pooled.upstream_of(self.handover.index) {
            Some(upstream) => self.reuse(at, upstream),
            None => self.take_over(Some(at), backend, pooled),
        }
    }

    /// Has this loop run a connection that another one had, for the exchange or to be kept.
    pub(super) fn take_over(
        &mut self,
        at: Option<ExchangeId>,
        backend: BackendId,
        pooled: Arc<Pooled>,
    ) {
        self.proxied.count(ProxyCounter::TakenOver);
        let index = self.handover.index;
        self.handover.shared.took(index, &pooled);
        // It was here before, and this loop has not let go of it yet.
        let (upstream, command) = if let Some(upstream) = pooled.upstream_of(index) {
            let back = self.connections.get_mut(upstream);
            (back.exchange, back.parked) = (at, Parked::No);
            (back.is_woken, back.is_cut) = (false, false);
            let id = back.id.take().expect("a connection that was idle has its session");
            (upstream, Command::TakeBack(id))
        } else {
            let upstream = self.connections.begin(backend, at);
            pooled.set_upstream(index, Some(upstream));
            let socket = Arc::clone(&pooled.socket);
            let tls = pooled.tls.clone();
            self.connections.get_mut(upstream).pooled = Some(pooled);
            let session = Outgoing { purpose: Purpose::Http1(upstream), tls };
            let deadline = self.deadline(self.limits.connect_timeout);
            (upstream, Command::TakeOver { socket, owner: index, session, deadline })
        };
        if let Some(at) = at {
            self.note_connection(at, upstream);
        }
        self.commands.push_back(command);
    }

    /// The exchange that this ticket is of, if it waits still: it waits no more.
    fn take_ticket(&mut self, ticket: Ticket) -> Option<ExchangeId> {
        let at = ExchangeId::of_place(ticket.at as usize);
        let exchange = self.exchanges.find_mut(at)?;
        exchange.ticket.take_if(|known| *known == ticket)?;
        // Its deadline was that of the queue.
        (exchange.was_queued, exchange.is_asker_woken) = (true, true);
        exchange.asker.wake_later(&mut self.ready, &mut self.commands);
        Some(at)
    }

    /// The backend is down: requests that wait for it go elsewhere.
    pub(super) fn reassign_all(&mut self, backend: BackendId) {
        for ticket in self.handover.shared.evict(self.handover.index, backend) {
            self.reassign(ticket, backend);
        }
    }

    /// A request that has waited for a backend that is down goes to another one, which it may have to wait
    /// for, or fails at once when there is none.
    fn reassign(&mut self, ticket: Ticket, backend: BackendId) {
        let Some(at) = self.take_ticket(ticket) else { return };
        self.proxied.backends()[backend.place()].ended.add(1);
        let now = self.now.at;
        let group = self.exchanges.get(at).group;
        let mut members = self.groups[group.place()].members();
        if members.any(|member| {
            self.are_there[member.place()] && self.backends[member.place()].share(now) > 0
        }) {
            self.proxied.count(ProxyCounter::MovedOn);
            // It has not had a connection.
            self.exchanges.get_mut(at).tries -= 1;
            self.choose(at);
            self.wake_all(at);
        } else {
            self.give_up_later(at, Fault::ConnectFailed);
        }
    }

    /// The loop has no room for the connection that was opened for the exchange: an idle one makes room,
    /// and the exchange waits for that, as in a queue. False when as many wait as may.
    pub(super) fn wait_for_room(&mut self, at: ExchangeId) -> bool {
        if self.handover.without_room.len() >= self.limits.queue_max {
            return false;
        }
        self.detach(at);
        self.proxied.count(ProxyCounter::Queued);
        let now = self.now.at;
        let ticket = self.handover.ticket(at);
        let exchange = self.exchanges.get_mut(at);
        exchange.ticket = Some(ticket);
        exchange.times.queued.get_or_insert(now);
        // Its deadline is that of a queue from now on.
        (exchange.was_queued, exchange.is_asker_woken) = (true, true);
        let backend = exchange.backend;
        exchange.asker.wake_later(&mut self.ready, &mut self.commands);
        self.proxied.backends()[backend.expect("one was chosen").place()].begun.add(1);
        self.handover.without_room.push_back(ticket);
        self.close_idle();
        true
    }

    /// A connection of this loop is gone: the request that has waited longest for room tries again.
    pub(crate) fn room_is_free(&mut self) {
        while let Some(ticket) = self.handover.without_room.pop_front() {
            let Some(at) = self.take_ticket(ticket) else { continue };
            let exchange = self.exchanges.get_mut(at);
            // That was not a try, nor has the backend failed.
            exchange.tries -= 1;
            let backend = exchange.backend.take().expect("one was chosen");
            self.proxied.backends()[backend.place()].ended.add(1);
            self.choose(at);
            return self.wake_all(at);
        }
    }

    /// Closes the connection that this loop has kept longest without a request, if it has any.
    fn close_idle(&mut self) {
        let Handover { index, ref shared, is_sharing, .. } = self.handover;
        let upstream = if let Some(upstream) = self.connections.take_oldest_local() {
            let backend = self.connections.get_mut(upstream).backend;
            if is_sharing {
                shared.pool.release(backend.place());
            } else {
                shared.pool.remove_idle(backend.place(), index);
            }
            upstream
        } else if let Some((place, pooled)) = shared.pool.oldest(index) {
            let backend = BackendId::of_place(place);
            let Some(upstream) = pooled.upstream_of(index) else {
                // No loop watches it: it is closed with its last owner.
                drop(pooled);
                return self.may_open_another(backend);
            };
            self.connections.get_mut(upstream).parked = Parked::No;
            upstream
        } else {
            self.close_idle_multiplexed();
            return;
        };
        self.proxied.count(ProxyCounter::IdleDropped);
        self.cut(upstream);
    }

    /// Closes the connections of this loop to the backend that have no request.
    pub(super) fn drop_idle(&mut self, backend: BackendId) {
        self.leave_multiplexed(backend);
        while let Some(upstream) = self.connections.take_local(backend) {
            let Handover { index, ref shared, is_sharing, .. } = self.handover;
            if is_sharing {
                shared.pool.release(backend.place());
            } else {
                shared.pool.remove_idle(backend.place(), index);
            }
            self.proxied.count(ProxyCounter::IdleDropped);
            self.cut(upstream);
        }
        while let Some(pooled) =
            self.handover.shared.pool.take_own(backend.place(), self.handover.index)
        {
            self.proxied.count(ProxyCounter::IdleDropped);
            match pooled.upstream_of(self.handover.index) {
                Some(upstream) => {
                    self.connections.get_mut(upstream).parked = Parked::No;
                    self.cut(upstream);
                }
                // No loop watches it: it is closed with its last owner.
                None => {
                    drop(pooled);
                    self.may_open_another(backend);
                }
            }
        }
    }

    /// The exchange waits no more for a connection.
    pub(super) fn leave_queue(&mut self, at: ExchangeId) {
        let exchange = self.exchanges.get_mut(at);
        let (Some(ticket), Some(backend)) = (exchange.ticket.take(), exchange.backend) else {
            return;
        };
        // What is on its way to it goes to the next one when it arrives.
        self.handover.shared.pool.leave(backend.place(), ticket);
        self.proxied.backends()[backend.place()].ended.add(1);
    }

    /// Has the upstream connection of the exchange, if it is there, send what there is.
    pub(super) fn wake_all(&mut self, at: ExchangeId) {
        self.make_ready(at);
        let Some(upstream) = self.exchanges.get_mut(at).upstream else { return };
        let upstream = self.connections.get_mut(upstream);
        if let Some(id) = upstream.id
            && !std::mem::replace(&mut upstream.is_woken, true)
        {
            self.commands.push_back(Command::Wake(id));
        }
    }
}

/// Connections.
impl ProxyLoop {
    /// Keeps an upstream connection for another request; false when it has to be closed.
    pub(super) fn park(&mut self, upstream: UpstreamId, actions: &mut Actions<'_>) -> bool {
        let index = self.handover.index;
        let backend = self.connections.get_mut(upstream).backend;
        // One that began with a client's address is that client's.
        let is_for_all = self.group_of(backend).sends_header.is_none();
        let shared = &self.handover.shared;
        let is_there = self.backends[backend.place()].is_there();
        if self.is_draining || !is_there || !is_for_all || !shared.pool.reserve(backend.place()) {
            self.proxied.count(ProxyCounter::NotKept);
            return false;
        }
        if shared.loops() > 1 && actions.can_share() {
            let parked = self.connections.get_mut(upstream);
            if parked.pooled.is_none() {
                let Some(socket) = actions.share(index) else {
                    shared.pool.release(backend.place());
                    return false;
                };
                let pooled = Pooled::new(socket, parked.tls.take(), shared.loops());
                pooled.set_upstream(index, Some(upstream));
                parked.pooled = Some(pooled);
            }
            self.handover.is_sharing = true;
            self.handover.newly_idle.push(upstream);
            self.connections.keep_local(upstream);
        } else if !self.keep_private(upstream, backend) {
            return false;
        }
        self.proxied.count(ProxyCounter::Parked);
        true
    }

    /// Keeps a connection that only this loop can use, or gives it to the next request of this
    /// loop. False when it has to be closed.
    fn keep_private(&mut self, upstream: UpstreamId, backend: BackendId) -> bool {
        loop {
            let Handover { index, ref shared, .. } = self.handover;
            match shared.pool.keep(backend.place(), index) {
                Keeping::Kept => {
                    self.connections.keep_local(upstream);
                    return true;
                }
                Keeping::Close => {
                    self.proxied.count(ProxyCounter::IdleDropped);
                    return false;
                }
                Keeping::For(ticket) => {
                    if let Some(at) = self.take_ticket(ticket) {
                        self.reuse(at, upstream);
                        self.wake_all(at);
                        return true;
                    }
                    self.handover.shared.pool.reserve_anyway(backend.place());
                }
            }
        }
    }

    /// The turn is over: what became idle in it is put down, for any loop.
    pub(crate) fn release(&mut self) {
        while let Some(upstream) = self.handover.newly_idle.pop() {
            if !self.connections.remove_idle_local(upstream) {
                continue;
            }
            let put = self.connections.get_mut(upstream);
            put.parked = Parked::Pooled;
            let backend = put.backend;
            let Some(pooled) = put.pooled.clone() else { continue };
            let index = self.handover.index;
            pooled.socket.release(index);
            let Some((ticket, _)) = self.handover.shared.put(index, backend, pooled) else {
                continue;
            };
            // A request of this loop has waited for it.
            if let Some(at) = self.take_ticket(ticket) {
                self.reuse(at, upstream);
                self.wake_all(at);
            } else {
                self.handover.shared.pool.reserve_anyway(backend.place());
                self.connections.keep_local(upstream);
                self.handover.newly_idle.push(upstream);
            }
        }
    }

    /// Takes an idle connection, for which something happened, from where others could take it.
    /// False when it was not there.
    pub(super) fn take_from_pool(&mut self, upstream: UpstreamId) -> bool {
        let taken = self.connections.get_mut(upstream);
        if taken.parked != Parked::Pooled {
            return false;
        }
        taken.parked = Parked::No;
        let Some(pooled) = &taken.pooled else { return false };
        self.handover.shared.pool.remove(taken.backend.place(), self.handover.index, pooled);
        true
    }

    /// Forgets an upstream connection that is gone, or that another loop has taken over.
    pub(super) fn end_upstream(&mut self, upstream: UpstreamId, is_taken_over: bool) {
        let index = self.handover.index;
        let backend = self.connections.get_mut(upstream).backend;
        if self.connections.remove_idle_local(upstream) {
            let pool = &self.handover.shared.pool;
            if self.handover.is_sharing {
                pool.release(backend.place());
            } else {
                pool.remove_idle(backend.place(), index);
            }
        }
        self.take_from_pool(upstream);
        if let Some(pooled) = &self.connections.get_mut(upstream).pooled {
            pooled.set_upstream(index, None);
        }
        self.connections.end(upstream);
        if !is_taken_over {
            self.may_open_another(backend);
        }
    }

    /// There may be one connection more to the backend; or one request, where connections carry many.
    pub(super) fn may_open_another(&mut self, backend: BackendId) {
        while let Some(ticket) = self.handover.shared.closed(self.handover.index, backend) {
            if let Some(at) = self.take_ticket(ticket) {
                self.open_for(at, backend);
                return self.wake_all(at);
            }
        }
    }
}

/// Messages of other loops.
impl ProxyLoop {
    /// The loop is there: others can reach it from now on.
    pub(crate) fn opened(&mut self, waker: &Waker) {
        let handover = &mut self.handover;
        handover.inbox = Some(handover.shared.open(handover.index, waker));
        // No message came before.
        self.addresses_changed();
    }

    /// Handles the notices of other loops.
    pub(super) fn read_messages(&mut self) {
        let Some(inbox) = &mut self.handover.inbox else { return };
        inbox.drain(&mut self.handover.notices);
        if self.handover.notices.is_empty() {
            return;
        }
        let mut notices = std::mem::take(&mut self.handover.notices);
        for message in notices.drain(..) {
            match message {
                Notice::Connection(ticket, backend, pooled) => {
                    pooled.socket.receive(self.handover.index);
                    let at = self.take_ticket(ticket);
                    self.take_over(at, backend, pooled);
                }
                Notice::OpenGranted(ticket, backend) => match self.take_ticket(ticket) {
                    Some(at) => {
                        self.open_for(at, backend);
                        self.wake_all(at);
                    }
                    None => self.may_open_another(backend),
                },
                Notice::Reassign(ticket, backend) => self.reassign(ticket, backend),
                Notice::CloseIdle(backend) => self.close_private(backend),
                Notice::Release(upstream) => self.release_taken(upstream),
                Notice::AddressesChanged => self.addresses_changed(),
                Notice::Wake(connection) => self.commands.push_back(Command::Wake(connection)),
            }
        }
        self.handover.notices = notices;
    }

    /// Closes an idle connection that only this loop can use.
    fn close_private(&mut self, backend: BackendId) {
        if self.handover.is_sharing {
            return;
        }
        let Some(upstream) = self.connections.take_local(backend) else { return };
        self.handover.shared.pool.remove_idle(backend.place(), self.handover.index);
        self.cut(upstream);
    }

    /// Has a connection that was idle end.
    fn cut(&mut self, upstream: UpstreamId) {
        let upstream = self.connections.get_mut(upstream);
        upstream.is_cut = true;
        let id = upstream.id.expect("an idle connection is connected");
        self.commands.push_back(Command::Wake(id));
    }

    fn release_taken(&mut self, upstream: UpstreamId) {
        if let Some(id) = self.connections.id_of_pooled(upstream) {
            self.commands.push_back(Command::Wake(id));
        }
    }
}

/// The place of the backend that has this mark.
#[cold]
fn marked(targets: &[Option<Arc<Target>>], mark: Mark) -> Option<usize> {
    let has_it = |target: &Arc<Target>| target.mark == mark;
    targets.iter().position(|target| target.as_ref().is_some_and(has_it))
}
