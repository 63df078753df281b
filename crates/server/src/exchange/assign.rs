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

use crate::backends::groups::Choice;
use crate::backends::names::Names;
use crate::backends::passing::{Notice, Passing, Pooled};
use crate::backends::pool::{Admission, Keeping, Pool, Ticket};
use crate::config::Mode;
use crate::exchange::table::{Idle, Outgoing, Purpose, Stage, Tried};
use crate::exchange::upstreams::Upstreams;
use crate::fault::{Fault, ProxyCounter};
use crate::ids::{BackendId, ExchangeId, GroupId, UpstreamId};

/// What one loop needs to pass connections on.
#[derive(Debug)]
pub(crate) struct Exchanger {
    /// The number of this loop.
    me: u32,
    passing: Arc<Passing>,
    /// None until the loop is there.
    inbox: Option<Inbox<Notice>>,
    notices: Vec<Notice>,
    /// Other loops can have the connections of this one.
    is_sharing: bool,
    /// Links that became idle in this turn and will be upstreams.
    newly_idle: Vec<UpstreamId>,
    /// Tickets so far.
    tickets: u64,
    /// Requests for whose connections the loop had no room, in the order of their tries.
    without_room: VecDeque<Ticket>,
}

impl Exchanger {
    pub(crate) fn new(me: u32, passing: Arc<Passing>) -> Self {
        let (inbox, notices, newly_idle) = (None, Vec::new(), Vec::new());
        let without_room = VecDeque::new();
        Self {
            me,
            passing,
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
        Ticket { by: self.me, at: at.place() as u32, number: self.tickets }
    }

    /// Whether requests wait until another connection of the loop is gone.
    pub(super) fn lacks_room(&self) -> bool {
        !self.without_room.is_empty()
    }

    /// The connections of all loops.
    pub(super) fn pool(&self) -> &Pool<Arc<Pooled>> {
        &self.passing.pool
    }

    /// What looks up the names of backends, where they have any.
    pub(crate) fn names(&self) -> Option<&Arc<Names>> {
        self.passing.names()
    }

    /// Connections of all loops to the backend that have no request.
    pub(crate) fn idle(&self, backend: usize) -> usize {
        self.passing.view(backend).idle
    }
}

/// Requests.
impl Upstreams {
    /// Asks the pool for a connection to the backend.
    pub(super) fn ask_pool(
        &mut self,
        at: ExchangeId,
        backend: BackendId,
    ) -> Admission<Arc<Pooled>> {
        let Exchanger { ref passing, is_sharing, .. } = self.exchanger;
        let pool = &passing.pool;
        let is_limited = pool.is_limited(backend.place());
        // A second try needs a connection that cannot have been closed long ago.
        if self.exchanges.get(at).tries > 1 && !is_limited {
            return Admission::Open;
        }
        let has_here = self.links.has_here(backend);
        // A connection that became idle in this turn is not shared yet.
        if has_here && is_sharing && !(is_limited && pool.is_busy(backend.place())) {
            pool.release(backend.place());
            return Admission::Private;
        }
        let ticket = self.exchanger.ticket(at);
        let admission =
            self.exchanger.passing.pool.admit(backend.place(), ticket, has_here && !is_sharing);
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
            self.exchanger.passing.ask(keeper, backend);
        }
    }

    /// The backend of the group whose turn it is; those that were tried and failed come last. None when all
    /// are drained, or have no address.
    pub(crate) fn pick_backend(
        &mut self,
        group: GroupId,
        tried: &Tried,
        key: u64,
    ) -> Option<BackendId> {
        let now = self.now.at;
        let (counts, pool) = (self.proxied.backends(), &self.exchanger.passing.pool);
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
        let all = group.members().map(|place| match self.are_there[place.place()] {
            true => Choice {
                share: self.backends[place.place()].share(now),
                in_use: counts[place.place()].in_use(),
                is_busy: pool.is_busy(place.place()),
                is_drained: self.backends[place.place()].is_draining(),
            },
            false => Choice { share: 0, in_use: 0, is_busy: false, is_drained: true },
        });
        let is_tried = |at| tried.has(BackendId::of_place(first.place() + at));
        let chosen = group.balancer.choose(all, is_tried, key);
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
        let link = self.links.begin(backend, Some(at));
        let tls = self.tls_to(backend, Mode::Http);
        self.links.get_mut(link).tls = tls.clone();
        let exchange = self.exchanges.get_mut(at);
        (exchange.link, exchange.is_reused) = (Some(link), false);
        exchange.reach(Stage::Connecting);
        exchange.times.assigned.get_or_insert(now);
        self.proxied.count(ProxyCounter::Connects);
        let to = self.to(backend);
        let deadline = now + self.limits.connect_timeout;
        let session = Outgoing { purpose: Purpose::Requests(link), tls };
        self.commands.push_back(Command::Connect { to, session, deadline });
    }

    /// Gives the exchange an idle connection that this loop keeps.
    pub(super) fn reuse_here(&mut self, at: ExchangeId, backend: BackendId) {
        let link = self.links.take_here(backend).expect("it keeps one");
        self.reuse(at, link);
    }

    /// Gives the exchange a connection of this loop. Its session is still to be woken.
    fn reuse(&mut self, at: ExchangeId, link: UpstreamId) {
        self.proxied.count(ProxyCounter::Reuses);
        let taken = self.links.get_mut(link);
        (taken.exchange, taken.idle) = (Some(at), Idle::No);
        self.note_connection(at, link);
    }

    fn note_connection(&mut self, at: ExchangeId, link: UpstreamId) {
        let now = self.now.at;
        let exchange = self.exchanges.get_mut(at);
        (exchange.link, exchange.is_reused) = (Some(link), true);
        exchange.reach(Stage::Requesting);
        exchange.times.assigned.get_or_insert(now);
        exchange.times.connected = Some(now);
    }

    /// Gives the exchange an idle connection that this loop had put down.
    pub(super) fn take_own(&mut self, at: ExchangeId, backend: BackendId, pooled: Arc<Pooled>) {
        match pooled.link_of(self.exchanger.me) {
            Some(link) => self.reuse(at, link),
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
        let me = self.exchanger.me;
        self.exchanger.passing.took(me, &pooled);
        // It was here before, and this loop has not let go of it yet.
        let (link, command) = if let Some(link) = pooled.link_of(me) {
            let back = self.links.get_mut(link);
            (back.exchange, back.idle) = (at, Idle::No);
            (back.is_woken, back.is_cut) = (false, false);
            let id = back.id.take().expect("a connection that was idle has its session");
            (link, Command::TakeBack(id))
        } else {
            let link = self.links.begin(backend, at);
            pooled.set_link(me, Some(link));
            let socket = Arc::clone(&pooled.socket);
            let tls = pooled.tls.clone();
            self.links.get_mut(link).pooled = Some(pooled);
            let session = Outgoing { purpose: Purpose::Requests(link), tls };
            let deadline = self.deadline(self.limits.connect_timeout);
            (link, Command::TakeOver { socket, owner: me, session, deadline })
        };
        if let Some(at) = at {
            self.note_connection(at, link);
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
        for ticket in self.exchanger.passing.evict(self.exchanger.me, backend) {
            self.reassign(ticket, backend);
        }
    }

    /// A request that has waited for a backend that is down goes to another one, which it may have to wait
    /// for, or fails at once when there is none.
    fn reassign(&mut self, ticket: Ticket, backend: BackendId) {
        let Some(at) = self.take_ticket(ticket) else { return };
        self.proxied.backends()[backend.place()].ended.add(1);
        let (now, group) = (self.now.at, self.exchanges.get(at).group);
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
        if self.exchanger.without_room.len() >= self.limits.queue_max {
            return false;
        }
        self.detach(at);
        self.proxied.count(ProxyCounter::Queued);
        let (now, ticket) = (self.now.at, self.exchanger.ticket(at));
        let exchange = self.exchanges.get_mut(at);
        exchange.ticket = Some(ticket);
        exchange.times.queued.get_or_insert(now);
        // Its deadline is that of a queue from now on.
        (exchange.was_queued, exchange.is_asker_woken) = (true, true);
        let backend = exchange.backend;
        exchange.asker.wake_later(&mut self.ready, &mut self.commands);
        self.proxied.backends()[backend.expect("one was chosen").place()].begun.add(1);
        self.exchanger.without_room.push_back(ticket);
        self.close_idle();
        true
    }

    /// A connection of this loop is gone: the request that has waited longest for room tries again.
    pub(crate) fn room_is_free(&mut self) {
        while let Some(ticket) = self.exchanger.without_room.pop_front() {
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
        let Exchanger { me, ref passing, is_sharing, .. } = self.exchanger;
        let link = if let Some(link) = self.links.take_oldest_here() {
            let backend = self.links.get_mut(link).backend;
            if is_sharing {
                passing.pool.release(backend.place());
            } else {
                passing.pool.remove_idle(backend.place(), me);
            }
            link
        } else if let Some((place, pooled)) = passing.pool.oldest(me) {
            let backend = BackendId::of_place(place);
            let Some(link) = pooled.link_of(me) else {
                // No loop watches it: it is closed with its last owner.
                drop(pooled);
                return self.may_open_another(backend);
            };
            self.links.get_mut(link).idle = Idle::No;
            link
        } else {
            self.close_idle_multiplexed();
            return;
        };
        self.proxied.count(ProxyCounter::IdleDropped);
        self.cut(link);
    }

    /// Closes the connections of this loop to the backend that have no request.
    pub(super) fn drop_idle(&mut self, backend: BackendId) {
        self.leave_multiplexed(backend);
        while let Some(link) = self.links.take_here(backend) {
            let Exchanger { me, ref passing, is_sharing, .. } = self.exchanger;
            if is_sharing {
                passing.pool.release(backend.place());
            } else {
                passing.pool.remove_idle(backend.place(), me);
            }
            self.proxied.count(ProxyCounter::IdleDropped);
            self.cut(link);
        }
        while let Some(pooled) =
            self.exchanger.passing.pool.take_own(backend.place(), self.exchanger.me)
        {
            self.proxied.count(ProxyCounter::IdleDropped);
            match pooled.link_of(self.exchanger.me) {
                Some(link) => {
                    self.links.get_mut(link).idle = Idle::No;
                    self.cut(link);
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
        self.exchanger.passing.pool.leave(backend.place(), ticket);
        self.proxied.backends()[backend.place()].ended.add(1);
    }

    /// Has the upstream connection of the exchange, if it is there, send what there is.
    pub(super) fn wake_all(&mut self, at: ExchangeId) {
        self.make_ready(at);
        let Some(link) = self.exchanges.get_mut(at).link else { return };
        let link = self.links.get_mut(link);
        if let Some(id) = link.id
            && !std::mem::replace(&mut link.is_woken, true)
        {
            self.commands.push_back(Command::Wake(id));
        }
    }
}

/// Connections.
impl Upstreams {
    /// Keeps an upstream connection for another request; false when it has to be closed.
    pub(super) fn park(&mut self, link: UpstreamId, actions: &mut Actions<'_>) -> bool {
        let me = self.exchanger.me;
        let backend = self.links.get_mut(link).backend;
        // One that began with a client's address is that client's.
        let is_for_all = self.group_of(backend).sends_header.is_none();
        let passing = &self.exchanger.passing;
        let is_there = self.backends[backend.place()].is_there();
        if self.is_draining || !is_there || !is_for_all || !passing.pool.reserve(backend.place()) {
            self.proxied.count(ProxyCounter::Refused);
            return false;
        }
        if passing.loops() > 1 && actions.can_share() {
            let parked = self.links.get_mut(link);
            if parked.pooled.is_none() {
                let Some(socket) = actions.share(me) else {
                    passing.pool.release(backend.place());
                    return false;
                };
                let pooled = Pooled::new(socket, parked.tls.take(), passing.loops());
                pooled.set_link(me, Some(link));
                parked.pooled = Some(pooled);
            }
            self.exchanger.is_sharing = true;
            self.exchanger.newly_idle.push(link);
            self.links.keep_here(link);
        } else if !self.keep_private(link, backend) {
            return false;
        }
        self.proxied.count(ProxyCounter::Parked);
        true
    }

    /// Keeps a connection that only this loop can use, or gives it to the next request of this
    /// loop. False when it has to be closed.
    fn keep_private(&mut self, link: UpstreamId, backend: BackendId) -> bool {
        loop {
            let Exchanger { me, ref passing, .. } = self.exchanger;
            match passing.pool.keep(backend.place(), me) {
                Keeping::Kept => {
                    self.links.keep_here(link);
                    return true;
                }
                Keeping::Close => {
                    self.proxied.count(ProxyCounter::IdleDropped);
                    return false;
                }
                Keeping::For(ticket) => {
                    if let Some(at) = self.take_ticket(ticket) {
                        self.reuse(at, link);
                        self.wake_all(at);
                        return true;
                    }
                    self.exchanger.passing.pool.reserve_anyway(backend.place());
                }
            }
        }
    }

    /// The turn is over: what became idle in it is put down, for any loop.
    pub(crate) fn release(&mut self) {
        while let Some(link) = self.exchanger.newly_idle.pop() {
            if !self.links.remove_idle_local(link) {
                continue;
            }
            let put = self.links.get_mut(link);
            put.idle = Idle::Shelved;
            let backend = put.backend;
            let Some(pooled) = put.pooled.clone() else { continue };
            let me = self.exchanger.me;
            pooled.socket.release(me);
            let Some((ticket, _)) = self.exchanger.passing.put(me, backend, pooled) else {
                continue;
            };
            // A request of this loop has waited for it.
            if let Some(at) = self.take_ticket(ticket) {
                self.reuse(at, link);
                self.wake_all(at);
            } else {
                self.exchanger.passing.pool.reserve_anyway(backend.place());
                self.links.keep_here(link);
                self.exchanger.newly_idle.push(link);
            }
        }
    }

    /// Takes an idle connection, for which something happened, from where others could take it.
    /// False when it was not there.
    pub(super) fn take_from_pool(&mut self, link: UpstreamId) -> bool {
        let taken = self.links.get_mut(link);
        if taken.idle != Idle::Shelved {
            return false;
        }
        taken.idle = Idle::No;
        let Some(pooled) = &taken.pooled else { return false };
        self.exchanger.passing.pool.remove(taken.backend.place(), self.exchanger.me, pooled);
        true
    }

    /// Forgets an upstream connection that is gone, or that another loop has taken over.
    pub(super) fn end_link(&mut self, link: UpstreamId, is_taken_over: bool) {
        let me = self.exchanger.me;
        let backend = self.links.get_mut(link).backend;
        if self.links.remove_idle_local(link) {
            let pool = &self.exchanger.passing.pool;
            if self.exchanger.is_sharing {
                pool.release(backend.place());
            } else {
                pool.remove_idle(backend.place(), me);
            }
        }
        self.take_from_pool(link);
        if let Some(pooled) = &self.links.get_mut(link).pooled {
            pooled.set_link(me, None);
        }
        self.links.end(link);
        if !is_taken_over {
            self.may_open_another(backend);
        }
    }

    /// There may be one connection more to the backend; or one request, where connections carry many.
    pub(super) fn may_open_another(&mut self, backend: BackendId) {
        while let Some(ticket) = self.exchanger.passing.closed(self.exchanger.me, backend) {
            if let Some(at) = self.take_ticket(ticket) {
                self.open_for(at, backend);
                return self.wake_all(at);
            }
        }
    }
}

/// Messages of other loops.
impl Upstreams {
    /// The loop is there: others can reach it from now on.
    pub(crate) fn opened(&mut self, waker: &Waker) {
        let exchanger = &mut self.exchanger;
        exchanger.inbox = Some(exchanger.passing.open(exchanger.me, waker));
        // No message came before.
        self.moved();
    }

    /// Handles the notices of other loops.
    pub(super) fn read_messages(&mut self) {
        let Some(inbox) = &mut self.exchanger.inbox else { return };
        inbox.drain(&mut self.exchanger.notices);
        if self.exchanger.notices.is_empty() {
            return;
        }
        let mut notices = std::mem::take(&mut self.exchanger.notices);
        for message in notices.drain(..) {
            match message {
                Notice::Connection(ticket, backend, pooled) => {
                    pooled.socket.receive(self.exchanger.me);
                    let at = self.take_ticket(ticket);
                    self.take_over(at, backend, pooled);
                }
                Notice::MayOpen(ticket, backend) => match self.take_ticket(ticket) {
                    Some(at) => {
                        self.open_for(at, backend);
                        self.wake_all(at);
                    }
                    None => self.may_open_another(backend),
                },
                Notice::MoveOn(ticket, backend) => self.reassign(ticket, backend),
                Notice::GiveUp(backend) => self.give_up_idle(backend),
                Notice::LetGo(link) => self.let_go(link),
                Notice::Moved => self.moved(),
            }
        }
        self.exchanger.notices = notices;
    }

    /// Closes an idle connection that only this loop can use.
    fn give_up_idle(&mut self, backend: BackendId) {
        if self.exchanger.is_sharing {
            return;
        }
        let Some(link) = self.links.take_here(backend) else { return };
        self.exchanger.passing.pool.remove_idle(backend.place(), self.exchanger.me);
        self.cut(link);
    }

    /// Has a connection that was idle end.
    fn cut(&mut self, link: UpstreamId) {
        let link = self.links.get_mut(link);
        link.is_cut = true;
        let id = link.id.expect("an idle connection is connected");
        self.commands.push_back(Command::Wake(id));
    }

    fn let_go(&mut self, link: UpstreamId) {
        if let Some(id) = self.links.id_of_shelved(link) {
            self.commands.push_back(Command::Wake(id));
        }
    }
}
