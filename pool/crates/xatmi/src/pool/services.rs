//! The services of a pool: which worker offers which, and the queue of each.
//!
//! The manager alone makes and removes these queues. A service stands as long as a worker that
//! offered it lives or will be started again. When it goes, its queue loses its name at once and
//! is read for a while longer, so that a caller that found it just before gets TPENOENT.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use pollux_poller::Token;
use pollux_sys::mqueue::{MessageQueue, QueueSize};

use super::poller::{PoolPoller, Source};
use super::unsent::CallerAddress;
use crate::environment::Group;
use crate::error::Code;
use crate::link::Advert;
use crate::memory::{Answers, Memory};
use crate::queue::{Prefix, ServiceName};
use crate::slots::SERVICES_MAX;
use crate::wire::Request;

/// How long a queue without a name is read: a caller sends right after it has looked.
const WITHDRAWN_FOR: Duration = Duration::from_secs(1);
/// Requests of a withdrawn queue that one turn of the loop answers.
const DRAIN_BUDGET: usize = 64;
/// Requests that are taken out of a queue before it is closed: the deepest that there is.
const LAST_BUDGET: usize = crate::environment::MESSAGES_MAX as usize;
/// Depths that are kept for the average.
const DEPTHS_MAX: usize = 10;

/// A service that is offered.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) store: RequestStore,
    /// The workers that offer it, with the function behind it.
    pub(super) offers: BTreeMap<u32, String>,
    /// Depths at the last checks.
    pub(super) depths: VecDeque<u32>,
}

/// Where the requests for a service wait.
#[derive(Debug)]
pub(super) enum RequestStore {
    Queue(MessageQueue),
    /// The ring of this number in the memory of the pool.
    Ring(usize),
}

/// A queue that has no name any more.
#[derive(Debug)]
struct Withdrawn {
    number: u64,
    queue: MessageQueue,
    token: Token,
    until: Instant,
}

#[derive(Debug)]
pub(super) struct Services {
    prefix: Prefix,
    size: QueueSize,
    pub(super) by_name: BTreeMap<ServiceName, Service>,
    /// Offered by workers of an earlier manager that were not taken over.
    left: BTreeSet<ServiceName>,
    withdrawn: Vec<Withdrawn>,
    /// Where requests are in shared memory.
    memory: Option<Rc<Memory>>,
    /// Whose members may send requests as well.
    group: Option<Group>,
    /// Rings of services that were withdrawn, and until when they are looked at.
    resting: Vec<(usize, Instant)>,
    /// What became of the callers of such services.
    pub(super) answers: Answers,
    numbers: u64,
    pub(super) unserved: Unserved,
    /// Callers whose request stood in a queue that an earlier manager has left.
    pub(super) stranded: Vec<CallerAddress>,
}

/// Takes requests that no worker will serve out of their queue.
#[derive(Debug, Default)]
pub(super) struct Unserved {
    buffer: Vec<u8>,
    /// Requests so far.
    pub(super) requests: u64,
    /// Messages that were none.
    pub(super) malformed: u64,
}

impl Services {
    pub(super) fn new(
        prefix: Prefix,
        size: QueueSize,
        memory: Option<Rc<Memory>>,
        group: Option<Group>,
    ) -> Self {
        Self {
            prefix,
            size,
            by_name: BTreeMap::new(),
            left: BTreeSet::new(),
            withdrawn: Vec::new(),
            memory,
            group,
            resting: Vec::new(),
            answers: Answers::default(),
            numbers: 0,
            unserved: Unserved::default(),
            stranded: Vec::new(),
        }
    }

    /// Worker `id` offers `adverts`: all queues stand afterwards, or none that is new.
    /// `adopts` keeps a queue that stands already, for workers that read it.
    ///
    /// # Errors
    /// The number and the sentence for the worker.
    pub(super) fn advertise(
        &mut self,
        id: u32,
        adverts: &[Advert],
        adopts: bool,
    ) -> Result<(), (Code, String)> {
        // Those of the process before it stay its own until it offers them again.
        let is_new = |name: &ServiceName| adverts.iter().all(|advert| advert.name != name.as_str());
        let others = self
            .by_name
            .iter()
            .filter(|(name, service)| service.offers.contains_key(&id) && is_new(name));
        if others.count() + adverts.len() > SERVICES_MAX {
            let why = format!("a worker offers at most {SERVICES_MAX} services");
            return Err((Code::Limit, why));
        }
        let mut made = Vec::new();
        for advert in adverts {
            match self.offer(id, advert, adopts) {
                Ok(None) => {}
                Ok(Some(name)) => made.push(name),
                Err(refused) => {
                    for name in made {
                        self.by_name.remove(&name);
                        // No request has been sent there yet.
                        let _ = self.discard(&name);
                    }
                    return Err(refused);
                }
            }
        }
        Ok(())
    }

    /// Worker `id` offers one service; the name when its queue is new.
    fn offer(
        &mut self,
        id: u32,
        advert: &Advert,
        adopts: bool,
    ) -> Result<Option<ServiceName>, (Code, String)> {
        let name = ServiceName::new(&advert.name).ok_or_else(|| {
            let wanted = "give 1 to 30 printable characters without , and /";
            (Code::Invalid, format!("\"{}\" can't be a service: {wanted}", advert.name))
        })?;
        if let Some(service) = self.by_name.get_mut(&name) {
            service.offers.insert(id, advert.function.clone());
            return Ok(None);
        }
        let store = self.store(&name, adopts)?;
        let offers = BTreeMap::from([(id, advert.function.clone())]);
        self.by_name.insert(name, Service { store, offers, depths: VecDeque::new() });
        Ok(Some(name))
    }

    fn store(&mut self, name: &ServiceName, adopts: bool) -> Result<RequestStore, (Code, String)> {
        let Some(memory) = &self.memory else {
            let queue = self.queue(name, adopts);
            return queue.map(RequestStore::Queue).map_err(|error| self.no_queue(name, &error));
        };
        let is_resting = |ring| self.resting.iter().any(|(known, _)| *known == ring);
        memory.offer(name, is_resting).map(RequestStore::Ring).ok_or_else(|| {
            let why = format!("{name}: the memory of the pool has no room for a further service");
            (Code::Limit, why)
        })
    }

    /// The ring of a service.
    pub(super) fn ring(&self, name: &ServiceName) -> Option<usize> {
        match self.by_name.get(name)?.store {
            RequestStore::Ring(ring) => Some(ring),
            RequestStore::Queue(_) => None,
        }
    }

    fn queue(&mut self, service: &ServiceName, adopts: bool) -> io::Result<MessageQueue> {
        let name = self.prefix.service_queue(service);
        let queue = match MessageQueue::create(&name, self.size) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && adopts => {
                MessageQueue::open(&name)
            }
            // Left behind by a manager that was killed, with its workers gone as well.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.discard(service)?;
                MessageQueue::create(&name, self.size)
            }
            other => other,
        }?;
        if let Some(group) = &self.group {
            group.admit_to(&queue)?;
        }
        Ok(queue)
    }

    /// Removes a queue that an earlier manager has left; callers that wait for an answer are `stranded`.
    ///
    /// # Errors
    /// What `mq_unlink(3)` gives: EACCES for a queue of another user.
    pub(super) fn discard(&mut self, service: &ServiceName) -> io::Result<()> {
        if let Some(row) = self.memory.as_ref().and_then(|memory| memory.find(service)) {
            self.withdraw_ring(row.ring, Instant::now());
            return Ok(());
        }
        let name = self.prefix.service_queue(service);
        let queue = MessageQueue::open(&name);
        MessageQueue::unlink(&name)?;
        if let Ok(queue) = queue {
            self.unserved.take(&queue, LAST_BUDGET, &mut self.stranded);
        }
        Ok(())
    }

    fn withdraw_ring(&mut self, ring: usize, now: Instant) {
        if let Some(memory) = &self.memory {
            self.answers += memory.withdraw(ring);
            self.resting.push((ring, now + WITHDRAWN_FOR));
        }
    }

    fn no_queue(&self, name: &ServiceName, error: &io::Error) -> (Code, String) {
        let depth = self.size.messages_max;
        let len = self.size.message_len_bytes;
        let remedy = match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
            Some(rustix::io::Errno::MFILE) => {
                "RLIMIT_MSGQUEUE or the descriptor limit is reached; see `pollux pool check`"
            }
            Some(rustix::io::Errno::NOSPC) => {
                "fs.mqueue.queues_max is reached; see `pollux pool check`"
            }
            Some(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => {
                "another user has a queue of this name; give this pool another NDRX_QPREFIX"
            }
            _ => "see `pollux pool check`",
        };
        let what = format!("the queue of {name}, {depth} messages of {len} bytes");
        (Code::Os, format!("{what}, can't be made: {error}: {remedy}"))
    }

    /// Notes what a worker of an earlier manager offers that is not taken over: its queues are
    /// ours to remove, also where no list of queues can be read.
    pub(super) fn leave(&mut self, adverts: &[Advert]) {
        self.left.extend(adverts.iter().filter_map(|advert| ServiceName::new(&advert.name)));
    }

    /// Makes what was left services that no worker offers, which the next [`Self::retire`] withdraws.
    /// Not while other workers may still report that they offer them.
    pub(super) fn take_in_left(&mut self) {
        for name in std::mem::take(&mut self.left) {
            if self.by_name.contains_key(&name) {
                continue;
            }
            let store = match &self.memory {
                Some(memory) => memory.find(&name).map(|row| RequestStore::Ring(row.ring)),
                None => {
                    let queue = MessageQueue::open(&self.prefix.service_queue(&name));
                    queue.ok().map(RequestStore::Queue)
                }
            };
            if let Some(store) = store {
                let offers = BTreeMap::new();
                let depths = VecDeque::new();
                self.by_name.insert(name, Service { store, offers, depths });
            }
        }
    }

    /// Worker `id` offers the service no more.
    pub(super) fn unadvertise(&mut self, id: u32, name: &str) {
        if let Some(service) = ServiceName::new(name).and_then(|name| self.by_name.get_mut(&name)) {
            service.offers.remove(&id);
        }
    }

    /// Keeps only the offers of worker `id` that are in `adverts`.
    pub(super) fn keep(&mut self, id: u32, adverts: &[Advert]) {
        for (name, service) in &mut self.by_name {
            if !adverts.iter().any(|advert| advert.name == name.as_str()) {
                service.offers.remove(&id);
            }
        }
    }

    /// Withdraws the services that no worker offers or will offer again.
    pub(super) fn retire(
        &mut self,
        is_expected: impl Fn(u32) -> bool,
        poller: &mut PoolPoller,
        now: Instant,
    ) {
        let mut gone = Vec::new();
        for (name, service) in &mut self.by_name {
            service.offers.retain(|id, _| is_expected(*id));
            if service.offers.is_empty() {
                gone.push(*name);
            }
        }
        for name in gone {
            let queue = match self.by_name.remove(&name).expect("found above").store {
                RequestStore::Queue(queue) => queue,
                RequestStore::Ring(ring) => {
                    self.withdraw_ring(ring, now);
                    continue;
                }
            };
            // Another process may have removed the name; that it is gone is what counts.
            let _ = MessageQueue::unlink(&self.prefix.service_queue(&name));
            self.numbers += 1;
            let number = self.numbers;
            use std::os::fd::AsFd;
            if let Ok(token) = poller.add(queue.as_fd(), Source::Withdrawn(number)) {
                self.withdrawn.push(Withdrawn { number, queue, token, until: now + WITHDRAWN_FOR });
            }
        }
    }

    /// Takes requests out of a withdrawn queue, up to a budget.
    pub(super) fn drain(&mut self, number: u64, out: &mut Vec<CallerAddress>) {
        let found = self.withdrawn.iter().find(|withdrawn| withdrawn.number == number);
        let Some(Withdrawn { queue, .. }) = found else { return };
        self.unserved.take(queue, DRAIN_BUDGET, out);
    }

    /// Closes withdrawn queues whose time is over, all of them at the `end`; what is still in
    /// them is given out.
    pub(super) fn close_withdrawn(
        &mut self,
        poller: &mut PoolPoller,
        now: Instant,
        is_end: bool,
        out: &mut Vec<CallerAddress>,
    ) {
        use std::os::fd::AsFd;
        let is_over = |withdrawn: &Withdrawn| is_end || now >= withdrawn.until;
        let over: Vec<u64> =
            self.withdrawn.iter().filter(|w| is_over(w)).map(|w| w.number).collect();
        for number in over {
            let at = self.withdrawn.iter().position(|w| w.number == number).expect("found above");
            let withdrawn = self.withdrawn.swap_remove(at);
            self.unserved.take(&withdrawn.queue, LAST_BUDGET, out);
            poller.remove(withdrawn.queue.as_fd(), withdrawn.token);
        }
        let Some(memory) = &self.memory else { return };
        // A client that found the service just before it went may have sent just after.
        let over = self.resting.extract_if(.., |(_, until)| is_end || now >= *until);
        over.for_each(|(ring, _)| self.answers += memory.drain(ring));
    }

    /// When a withdrawn queue is to be closed.
    pub(super) fn next_moment(&self) -> Option<Instant> {
        let queues = self.withdrawn.iter().map(|withdrawn| withdrawn.until);
        queues.chain(self.resting.iter().map(|(_, until)| *until)).min()
    }

    /// Notes the depth of each queue.
    pub(super) fn note_depths(&mut self) {
        for service in self.by_name.values_mut() {
            if let Some(depth) = depth(&service.store, self.memory.as_deref()) {
                service.depths.truncate(DEPTHS_MAX - 1);
                service.depths.push_front(depth);
            }
        }
    }

    /// Requests that wait for a service, how many can, and the bytes of the longest.
    pub(super) fn depth_of(&self, service: &Service) -> Option<(u32, QueueSize)> {
        let waiting = depth(&service.store, self.memory.as_deref())?;
        let size = match (&service.store, &self.memory) {
            (RequestStore::Queue(queue), _) => queue.state().ok()?.size,
            (RequestStore::Ring(_), memory) => memory.as_ref()?.ring_size(),
        };
        Some((waiting, size))
    }

    /// Services in whose queue messages wait: how many, and the workers that could take them.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (u32, &BTreeMap<u32, String>)> {
        self.by_name.values().filter_map(|service| {
            let RequestStore::Queue(queue) = &service.store else { return None };
            let waiting = queue.state().ok()?.messages_waiting;
            (waiting > 0).then_some((waiting, &service.offers))
        })
    }
}

fn depth(store: &RequestStore, memory: Option<&Memory>) -> Option<u32> {
    match store {
        RequestStore::Queue(queue) => Some(queue.state().ok()?.messages_waiting),
        RequestStore::Ring(ring) => Some(memory?.exchange().ring(*ring)?.waiting() as u32),
    }
}

impl Unserved {
    /// Takes up to `budget` messages out of `queue`.
    fn take(&mut self, queue: &MessageQueue, budget: usize, out: &mut Vec<CallerAddress>) {
        let Ok(state) = queue.state() else { return };
        self.buffer.resize(state.size.message_len_bytes as usize, 0);
        for _ in 0..budget {
            let Ok((len, _)) = queue.receive(&mut self.buffer) else { return };
            match Request::decode(&self.buffer[..len]) {
                Ok(request) => {
                    self.requests += 1;
                    if !request.is_without_reply {
                        out.push(caller_of(&request));
                    }
                }
                Err(_) => self.malformed += 1,
            }
        }
    }
}

pub(super) fn caller_of(request: &Request<'_>) -> CallerAddress {
    let client = request.client;
    let call_id = request.call_id;
    CallerAddress { pid: client.pid, context: client.context, nonce: client.nonce, call_id }
}
