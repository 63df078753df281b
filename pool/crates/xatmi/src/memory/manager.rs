//! What the manager does in the memory of its pool: services, answers for dead workers, ends of clients, repairs.
//!
//! Only the one thread of the manager calls this. It takes requests under a number that is not a worker's,
//! and grabs before it answers, so that a number is never in a ring and free at once.

use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::io;
use std::ops::AddAssign;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pollux_sys::futex::{self, Owned};
use pollux_sys::mqueue::QueueSize;
use pollux_sys::shared::{PublishedWords, SharedWords};
use rustix::fs::{SeekFrom, seek};

use super::records::{ALWAYS_SPINS, CONTEXTS, Geometry, MANAGER, NUMBERS_USED, SERVICES_MAX, TERM};
use super::{
    Claim, Delivery, Exchange, Files, RING_LEN, Records, Row, State, Ticket, Words, claim_in,
    claims_of, names, records, workers,
};
use crate::error::Code;
use crate::queue::{Prefix, ServiceName};

#[cfg(test)]
mod tests;

/// In place of a worker's number.
const NO_WORKER: u32 = u32::MAX;
/// Numbers of contexts that a manager leaves out when it takes over: those that one gave whose records
/// no process has any more.
const CONTEXTS_SKIPPED: u64 = 1 << 16;
/// Looks at a ring before it counts as broken: others move its ends meanwhile.
const LOOKS: usize = 3;

/// The whole memory, as its manager has it: it alone writes the records.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(super) records: PublishedWords,
    claims: SharedWords,
    pub(super) exchange: Exchange,
    exchange_fd: OwnedFd,
}

/// What became of callers that the manager answered in place of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Answers {
    /// Those that were answered.
    pub(crate) sent: u64,
    /// Those that did not wait any more.
    pub(crate) gone: u64,
    /// Rings of withdrawn services that were broken, and are rebuilt.
    pub(crate) rings_rebuilt: u64,
}

/// What an inspection of the whole memory found.
#[derive(Debug, Default)]
pub(crate) struct Inspection {
    /// Services whose ring was rebuilt.
    pub(crate) rebuilt: Vec<ServiceName>,
    /// Callers of requests that no process had any more.
    pub(crate) answers: Answers,
}

impl Memory {
    /// New memory for a pool.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub(crate) fn create(
        prefix: &Prefix,
        workers: usize,
        message_len_bytes: u32,
    ) -> io::Result<Self> {
        let geometry = Geometry::new(workers, message_len_bytes);
        let [_, claims, exchange] = names(prefix);
        let shared = |name, words| SharedWords::create_named(&CString::new(name)?, words);
        let claims = shared(claims, geometry.claims_words())?;
        let exchange = shared(exchange, geometry.exchange_words())?;
        let records = published(prefix, &geometry)?;
        for (at, number) in geometry.head().into_iter().enumerate() {
            records[at].store(number, Ordering::Relaxed);
        }
        let exchange_fd = exchange.as_fd().try_clone_to_owned()?;
        let exchange = Exchange::map(exchange_fd.as_fd(), geometry)?;
        Ok(Self { records, claims, exchange, exchange_fd })
    }

    /// The memory of an earlier manager, with new records that are a copy of its own.
    ///
    /// # Errors
    /// As [`create`](Self::create); EINVAL for files that do not belong together.
    pub(crate) fn take_over(
        prefix: &Prefix,
        old: &Records,
        claims: OwnedFd,
        exchange_fd: OwnedFd,
    ) -> io::Result<Self> {
        let geometry = *old.geometry();
        let claims = claims_of(claims, &geometry)?;
        let exchange = Exchange::map(exchange_fd.as_fd(), geometry)?;
        let records = published(prefix, &geometry)?;
        let written = (0..geometry.records_words()).map(|at| (at, old.word(at)));
        for (at, word) in written.filter(|(at, word)| *word != 0 && *at != MANAGER) {
            records[at].store(word, Ordering::Relaxed);
        }
        records[CONTEXTS].fetch_add(CONTEXTS_SKIPPED, Ordering::Relaxed);
        records[TERM].fetch_add(1, Ordering::Relaxed);
        Ok(Self { records, claims, exchange, exchange_fd })
    }

    /// The descriptors of its files.
    pub(crate) fn files(&self) -> Files<BorrowedFd<'_>> {
        [self.records.as_fd(), self.claims.as_fd(), self.exchange_fd.as_fd()]
    }

    pub(crate) fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    /// The record of worker `worker`, none beyond the last.
    pub(crate) fn claim(&self, worker: usize) -> Option<Claim<'_>> {
        claim_in(&self.claims, worker)
    }

    /// The service of this name.
    pub(crate) fn find(&self, name: &ServiceName) -> Option<Row> {
        records::find(&*self.records, self.geometry(), name)
    }

    /// Makes this thread the manager, whose end the kernel tells workers and clients.
    ///
    /// # Errors
    /// As [`Owned::take`].
    pub(crate) fn lead(&self) -> io::Result<Owned> {
        Owned::take(Arc::clone(self.records.part()), MANAGER)
    }

    /// Whether workers and clients spin however many can run.
    pub(crate) fn set_always_spins(&self, always_spins: bool) {
        self.records[ALWAYS_SPINS].store(always_spins.into(), Ordering::Relaxed);
    }

    /// A number for a context, which is never used again.
    pub(crate) fn next_context(&self) -> u32 {
        self.records[CONTEXTS].fetch_add(1, Ordering::SeqCst) as u32
    }

    fn geometry(&self) -> &Geometry {
        self.exchange.geometry()
    }

    /// Offers a service; its ring. None when there are as many as there can be. `is_resting` tells which
    /// rings were withdrawn a moment ago.
    pub(crate) fn offer(
        &self,
        name: &ServiceName,
        is_resting: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        if let Some(row) = self.find(name) {
            return Some(row.ring);
        }
        let used: HashSet<usize> = self.services().into_iter().map(|(ring, _)| ring).collect();
        let ring = (0..SERVICES_MAX).find(|ring| !used.contains(ring) && !is_resting(*ring))?;
        records::offer(&self.records, self.geometry(), ring, name);
        Some(ring)
    }

    /// How many requests a ring holds, and the bytes of the longest.
    pub(crate) fn ring_size(&self) -> QueueSize {
        let message_len_bytes = self.exchange.message_len_bytes() as u32;
        QueueSize { messages_max: RING_LEN as u32, message_len_bytes }
    }

    /// The rings of services and their names.
    pub(crate) fn services(&self) -> Vec<(usize, ServiceName)> {
        records::all(&self.records, self.geometry())
    }

    /// Says that `worker` offers the service of `ring`, or does not.
    pub(crate) fn set_offer(&self, ring: usize, worker: usize, does: bool) {
        records::set(&self.records, self.geometry(), ring, worker, does);
    }

    /// Offers a service no longer; callers that wait for it get TPENOENT.
    pub(crate) fn withdraw(&self, ring: usize) -> Answers {
        records::withdraw(&self.records, self.geometry(), ring);
        self.drain(ring)
    }

    /// Takes what stands in the ring of a service that was withdrawn, and rebuilds the ring if it is broken;
    /// its callers get TPENOENT.
    pub(crate) fn drain(&self, ring: usize) -> Answers {
        let mut answers = Answers::default();
        let Some(its) = self.exchange.ring(ring) else { return answers };
        while let Ok(Some((at, number))) = its.first() {
            if its.grab(at, number, NO_WORKER) {
                answers.add(self.answer_number(number, Code::NoEntry));
                its.free(at, NO_WORKER);
            }
        }
        if !self.is_sound(ring) {
            answers.rings_rebuilt += 1;
            for number in its.rebuild() {
                answers.add(self.answer_number(number, Code::NoEntry));
            }
        }
        self.exchange.tell_room(&its);
        answers
    }

    /// A number for a worker that is about to be started.
    pub(crate) fn take_number(&self) -> Option<usize> {
        let mut workers = 0..self.geometry().workers();
        let worker = workers.find(|worker| self.process_of(*worker).is_none())?;
        self.exchange.idle().disarm(worker);
        self.exchange.idle().stop_spinning(worker);
        self.exchange.runnable().set_present(worker, false);
        self.exchange.wake_flag(worker).store(0, Ordering::SeqCst);
        self.claim(worker)?.give_to(NO_WORKER);
        self.records[NUMBERS_USED].fetch_max(worker as u64 + 1, Ordering::SeqCst);
        Some(worker)
    }

    /// The process of a worker that was started.
    pub(crate) fn name(&self, worker: usize, pid: u32) {
        if let Some(claim) = self.claim(worker) {
            claim.name(pid);
        }
    }

    /// All numbers in use, with their processes.
    pub(crate) fn numbers(&self) -> Vec<(usize, u32)> {
        let workers = 0..self.geometry().workers();
        workers.filter_map(|worker| Some((worker, self.process_of(worker)?))).collect()
    }

    /// The process that has the number of a worker; none when it is free.
    pub(crate) fn process_of(&self, worker: usize) -> Option<u32> {
        self.claim(worker).map(|claim| claim.pid()).filter(|pid| *pid != 0)
    }

    /// A worker is dead: what it began is finished, its caller is answered, and another one is
    /// woken for what it was woken for. `true` when it was not clear whether it had passed its request
    /// on: then [`inspect`](Self::inspect) has to find out.
    pub(crate) fn answer_callers_of_dead(&self, worker: usize) -> (Answers, bool) {
        let mut answers = Answers::default();
        let mut is_unclear = false;
        let Some(claim) = self.claim(worker) else { return (answers, false) };
        let name = worker as u32;
        let mut is_answered = false;
        if let Some(claimed) = claim.claimed()
            && let Some(ring) = self.exchange.ring(claimed.ring)
            && let Some(at) = ring.taken_by(name, |at| claimed.is_at(at))
        {
            answers.add(self.answer_number(claimed.request, Code::ServiceError));
            ring.free(at, name);
            is_answered = true;
        }
        if let Some(ticket) = claim.held().filter(|_| !is_answered) {
            let passed_on = Ticket { hops: ticket.hops.wrapping_add(1), ..ticket };
            let seen = self.exchange.request(ticket.request).map(|request| request.state());
            is_unclear = seen.is_some_and(|(state, now)| state.is_under_way() && now == passed_on);
            answers.add(self.answer(ticket, Code::ServiceError));
        }
        claim.give_to(0);
        self.exchange.idle().disarm(worker);
        self.exchange.idle().stop_spinning(worker);
        self.exchange.runnable().set_present(worker, false);
        for (ring, _) in self.services() {
            self.set_offer(ring, worker, false);
        }
        self.wake_for_queued();
        (answers, is_unclear)
    }

    /// A context, or all of a process (`context` is none), ended: its requests are free, or will be. `true`
    /// when some will be: it may have died between a request and its push, so [`inspect`](Self::inspect) has to
    /// find out whether a process has them.
    pub(crate) fn end_client(&self, pid: u32, context: Option<u32>) -> bool {
        let mut is_left = false;
        for block in self.exchange.blocks() {
            let owner = block.owner();
            let is_its =
                (owner >> 32) as u32 == pid && context.is_none_or(|own| own == owner as u32);
            if owner == 0 || !is_its {
                continue;
            }
            for number in block.requests() {
                if let Some(request) = self.exchange.request(number) {
                    request.give_up();
                    is_left |= request.state().0.is_under_way();
                }
            }
            block.set_calling(false);
            block.give_back(owner);
        }
        // It may have died between a push and the wake for it.
        self.wake_for_queued();
        is_left
    }

    /// Processes that have blocks.
    pub(crate) fn clients(&self) -> HashSet<u32> {
        let owners = self.exchange.blocks().map(|block| (block.owner() >> 32) as u32);
        owners.filter(|pid| *pid != 0).collect()
    }

    /// How many requests each context has, by process and number of the context; none where it has none.
    pub(crate) fn open_requests(&self) -> HashMap<(u32, u32), usize> {
        let mut open = HashMap::new();
        for block in self.exchange.blocks().filter(|block| block.owner() != 0) {
            let states = block.requests().filter_map(|number| self.exchange.request(number));
            let count = states.filter(|request| request.state().0 != State::Free).count();
            if count > 0 {
                let owner = block.owner();
                *open.entry(((owner >> 32) as u32, owner as u32)).or_default() += count;
            }
        }
        open
    }

    /// Wakes as many workers as there are requests, and those that may sleep without being known to: the
    /// wake for them may have died with its sender.
    pub(crate) fn wake_for_queued(&self) -> u64 {
        let mut woken = 0;
        for (ring, _) in self.services() {
            let waiting = self.exchange.ring(ring).map_or(0, |ring| ring.waiting());
            let wake = |_: &usize| self.exchange.wake_one(&*self.records, ring);
            woken += (0..waiting).take_while(wake).count() as u64;
        }
        for worker in (0..self.geometry().workers()).filter(|worker| self.may_be_lost(*worker)) {
            self.exchange.wake_flag(worker).fetch_or(workers::WORK, Ordering::SeqCst);
            // Also where the wake flag seems to be set: the process that set it may have died before this.
            futex::wake(self.exchange.wake_flag(worker), 1);
        }
        woken
    }

    /// Wakes workers if a request stands at the head of a ring where it stood at the last look: a worker that
    /// was woken for it may be stopped or have taken another one, and the sender of a request without a
    /// reply does not look again. `heads` are the places of that look, and of this one afterwards.
    pub(crate) fn rouse_if_stuck(&self, heads: &mut Vec<(usize, u64)>) -> u64 {
        let now: Vec<(usize, u64)> = self
            .services()
            .into_iter()
            .filter_map(|(ring, _)| Some((ring, self.exchange.ring(ring)?.first().ok()??.0)))
            .collect();
        let is_stuck = now.iter().any(|head| heads.contains(head));
        *heads = now;
        if !is_stuck {
            return 0;
        }
        for (ring, _) in &*heads {
            self.exchange.doubt(&*self.records, *ring);
        }
        self.wake_for_queued()
    }

    /// Sets the wake flags of all workers for what is on their links.
    pub(crate) fn ring_all(&self) {
        let workers = 0..self.geometry().workers();
        for worker in workers.filter(|worker| self.process_of(*worker).is_some()) {
            self.exchange.set_wake_flag(worker, workers::LINK);
        }
    }

    /// Looks at every ring and rebuilds what is broken, and at every request when `is_suspicious`. Requests
    /// for services that are withdrawn, which a client may push that knows an earlier manager, get TPENOENT.
    /// `suspects` are requests that no process had at the last check; those that no process has now either are
    /// answered, and the others are the next suspects.
    pub(crate) fn inspect(
        &self,
        is_suspicious: bool,
        suspects: &mut HashSet<Ticket>,
    ) -> Inspection {
        let mut inspection = Inspection::default();
        for (ring, name) in self.services() {
            if !self.is_sound(ring) {
                self.rebuild(ring);
                inspection.rebuilt.push(name);
            }
        }
        for ring in records::withdrawn(&*self.records, self.geometry()) {
            let its = self.exchange.ring(ring);
            if its.is_some_and(|its| its.waiting() > 0) || !self.is_sound(ring) {
                inspection.answers += self.drain(ring);
            }
        }
        let last = std::mem::take(suspects);
        let is_rebuilt = !inspection.rebuilt.is_empty() || inspection.answers.rings_rebuilt > 0;
        if is_suspicious || is_rebuilt || !last.is_empty() {
            let orphans = self.orphans().into_iter();
            let (old, new): (HashSet<_>, HashSet<_>) =
                orphans.partition(|ticket| last.contains(ticket));
            *suspects = new;
            old.into_iter()
                .for_each(|ticket| inspection.answers.add(self.answer(ticket, Code::ServiceError)));
        }
        inspection
    }

    fn is_sound(&self, ring: usize) -> bool {
        let Some(its) = self.exchange.ring(ring) else { return true };
        let is_claimed = |at: u64, worker: u32| {
            let claim = self.claim(worker as usize).and_then(|claim| claim.claimed());
            claim.is_some_and(|claimed| claimed.ring == ring && claimed.is_at(at))
        };
        (0..LOOKS).any(|_| {
            its.settle();
            its.is_sound(is_claimed)
        })
    }

    fn rebuild(&self, ring: usize) {
        let Some(its) = self.exchange.ring(ring) else { return };
        let mut seen = HashSet::new();
        for number in its.rebuild() {
            let request = self.exchange.request(number);
            let is_under_way = request.is_some_and(|request| request.state().0.is_under_way());
            if is_under_way && seen.insert(number) {
                // What it had fits in an empty ring.
                let _ = its.push(number);
                self.exchange.wake_one(&*self.records, ring);
            }
        }
        self.exchange.tell_room(&its);
    }

    /// Requests that are under way, in no ring and with no worker. Rings are looked at before workers, as
    /// requests go from those to these; one that is passed on goes back, and is another ticket then.
    fn orphans(&self) -> Vec<Ticket> {
        let states = self.requests_used().into_iter().filter_map(|number| {
            let (state, ticket) = self.exchange.request(number)?.state();
            state.is_under_way().then_some(ticket)
        });
        let under_way: Vec<Ticket> = states.collect();
        let rings = self.services().into_iter().filter_map(|(ring, _)| self.exchange.ring(ring));
        let mut known: HashSet<u32> =
            rings.flat_map(|ring| ring.requests().collect::<Vec<_>>()).collect();
        for worker in 0..self.geometry().workers() {
            let Some(claim) = self.claim(worker) else { continue };
            known.extend(claim.claimed().map(|claimed| claimed.request));
            known.extend(claim.held().map(|ticket| ticket.request));
        }
        // Behind the claims: what a worker sets aside has its mark before the claim is let go.
        let pids: HashSet<u32> = self.numbers().into_iter().map(|(_, pid)| pid).collect();
        let is_kept = |ticket: &Ticket| {
            let keeper = self.exchange.request(ticket.request).and_then(|one| one.keeper(*ticket));
            keeper.is_some_and(|pid| pids.contains(&pid))
        };
        let is_lost = |ticket: &Ticket| !known.contains(&ticket.request) && !is_kept(ticket);
        under_way.into_iter().filter(is_lost).collect()
    }

    /// The numbers of all requests in pages that were written: a look at any other would give it memory.
    /// Their clients may be gone, and their blocks without an owner.
    fn requests_used(&self) -> Vec<u32> {
        let geometry = self.geometry();
        let place = |number: usize| (geometry.request(number) * size_of::<u64>()) as u64;
        let mut used = Vec::new();
        let mut number = 0;
        while number < geometry.requests()
            // ENXIO behind the last page.
            && let Ok(data) = seek(&self.exchange_fd, SeekFrom::Data(place(number)))
            && let Ok(hole) = seek(&self.exchange_fd, SeekFrom::Hole(data))
        {
            let numbers = number..geometry.requests();
            let in_data = numbers.skip_while(|at| place(*at) < data);
            let before = used.len();
            used.extend(in_data.take_while(|at| place(*at) < hole).map(|at| at as u32));
            number = used[before..].last().map_or(number, |last| *last as usize) + 1;
        }
        used
    }

    /// Whether a worker may sleep although no process would wake it.
    fn may_be_lost(&self, worker: usize) -> bool {
        let Some(claim) = self.claim(worker) else { return false };
        let is_idle = claim.pid() != 0 && claim.held().is_none() && claim.claimed().is_none();
        let wake_flag = self.exchange.wake_flag(worker).load(Ordering::SeqCst);
        is_idle && (!self.exchange.idle().is_armed(worker) || wake_flag != 0)
    }

    fn answer_number(&self, number: u32, code: Code) -> Delivery {
        match self.exchange.request(number) {
            Some(request) => self.answer(request.state().1, code),
            None => Delivery::Late,
        }
    }

    fn answer(&self, ticket: Ticket, code: Code) -> Delivery {
        let Some(request) = self.exchange.request(ticket.request) else { return Delivery::Late };
        let delivery = request.answer(ticket, code.number() as u8);
        if delivery == Delivery::Done {
            self.exchange.wake_client(&request);
        }
        delivery
    }
}

fn published(prefix: &Prefix, geometry: &Geometry) -> io::Result<PublishedWords> {
    let [name, ..] = names(prefix);
    PublishedWords::create_named(&CString::new(name)?, geometry.records_words())
}

impl AddAssign for Answers {
    fn add_assign(&mut self, more: Self) {
        self.sent += more.sent;
        self.gone += more.gone;
        self.rings_rebuilt += more.rings_rebuilt;
    }
}

impl Answers {
    fn add(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::Done => self.sent += 1,
            Delivery::Abandoned => self.gone += 1,
            Delivery::Late => {}
        }
    }
}
