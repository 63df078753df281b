//! Requests and replies of a worker in shared memory: the rings of its services, its wake flag, and replies
//! written over the requests that they answer.
//!
//! The counterpart of `queues`. The loop takes requests here and sleeps here; the registry adds and removes services;
//! `dispatch` serves them, as with queues.
//!
//! ```text
//!   awake ──(no request in any ring)──▶ armed ──(a last look finds none)──▶ asleep
//!     ▲                                   │ found one                          │
//!     └───────────────────────────────────┴────── the wake flag is set, or time ───┘
//! ```

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pollux_sys::futex;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::reply::{Call, Destination, Posted, Transport};
use crate::error::{Code, Error, is_errno};
use crate::large;
use crate::memory::{
    Claim, Delivery, Exchange, Patience, Row, State, Ticket, WorkerMemory, workers,
};
use crate::queue::{ServiceName, monotonic_ns};
use crate::slots::{Slot, Total};
use crate::wire::{Body, Payload, Request};

/// The end of the manager does not end a sleep of this length.
const NAP_NS: u64 = 1_000_000_000;
/// How long a request that is passed on waits for room in its ring.
const ROOM_NS_MAX: u64 = 1_000_000_000;
/// How long it waits for the manager to repair the ring before it looks again.
const LOOK_AGAIN_NS: u64 = 1_000_000;

/// The rings that a worker takes requests from.
pub(super) struct Mailbox {
    memory: WorkerMemory,
    /// The number of this worker in the memory.
    number: usize,
    /// The services with their entries.
    rows: Vec<(usize, Row)>,
    /// Among them the one at which the next look begins: behind that which was served last.
    next: usize,
    patience: Patience,
    /// The word of the manager at the last look.
    manager: u32,
    /// The request at hand. Its reply is written over it, so there is always room for that.
    held: Option<Ticket>,
    /// It has taken nothing since it slept: requests may be left to it alone.
    is_fresh: Cell<bool>,
}

/// A request that is this worker's now.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) entry: usize,
    /// Bytes of its message.
    pub(super) len: usize,
}

impl Mailbox {
    /// None yet.
    ///
    /// # Errors
    /// TPESYSTEM for a number beyond the memory.
    pub(super) fn open(memory: WorkerMemory, number: usize) -> Result<Self, Error> {
        if memory.claim(number).is_none() {
            let detail = format!("worker {number} is beyond the memory of the pool");
            return Err(Error::new(Code::System, detail));
        }
        let manager = memory.records().manager();
        memory.exchange().serve_here(number);
        let rows = Vec::new();
        let patience = Patience::default();
        let is_fresh = Cell::new(true);
        Ok(Self { memory, number, rows, next: 0, patience, manager, held: None, is_fresh })
    }

    /// Another manager took this worker over, and writes these records.
    ///
    /// # Errors
    /// As [`WorkerMemory::follow`].
    pub(super) fn follow(&mut self, records: OwnedFd) -> std::io::Result<()> {
        self.memory.follow(records)?;
        self.manager = self.memory.records().manager();
        Ok(())
    }

    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// Takes the next request, its message into `inbox`.
    #[inline]
    pub(super) fn take(&mut self, slot: Slot<'_>, inbox: &mut [u8]) -> Option<Taken> {
        let first = self.next.min(self.rows.len());
        for at in (first..self.rows.len()).chain(0..first) {
            let (entry, row) = self.rows[at];
            if let Some((ticket, len)) = self.take_from(row.ring, slot, inbox) {
                self.next = at + 1;
                self.held = Some(ticket);
                self.hand_over();
                return Some(Taken { entry, len });
            }
        }
        None
    }

    /// Wakes another worker for what waits, if this one has not looked since it slept: no other may have been woken, as
    /// this one was coming. Called when it has taken something, and before it does something else.
    #[inline]
    pub(super) fn hand_over(&self) {
        if !self.is_fresh.replace(false) {
            return;
        }
        let exchange = self.memory.exchange();
        for (_, row) in &self.rows {
            if exchange.ring(row.ring).is_some_and(|ring| matches!(ring.first(), Ok(Some(_)))) {
                exchange.wake_one_if_none_comes(self.memory.records(), row.ring);
            }
        }
    }

    /// Lets others have the CPU.
    pub(super) fn give_way(&self) {
        if let Some(giving_way) = self.memory.exchange().giving_way(self.memory.records()) {
            giving_way.give_way();
        }
    }

    /// The reasons for which the wake flag was set since the last look.
    #[inline]
    pub(super) fn take_wake_flag(&self) -> u64 {
        workers::take_flag(self.memory.exchange().wake_flag(self.number))
    }

    /// Waits a moment for a request or the wake flag, as far as that pays; whether there is one. For a call that is
    /// waited for, no other worker is woken meanwhile.
    #[inline]
    pub(super) fn wait_a_moment(&mut self) -> bool {
        let Self { memory, number, rows, patience, .. } = self;
        let exchange = memory.exchange();
        if rows.is_empty() {
            return false;
        }
        let is_there = || has_work(exchange, *number, rows);
        let is_crowded = || exchange.is_crowded(memory.records());
        exchange.idle().spin(*number);
        let is_found =
            patience.wait(exchange.giving_way(memory.records()), is_there, is_crowded, || {});
        exchange.idle().stop_spinning(*number);
        is_found
    }

    /// Whether the manager ended or another one came since the last look.
    #[inline]
    pub(super) fn is_manager_new(&mut self) -> bool {
        let now = self.memory.records().manager();
        let is_new = now != std::mem::replace(&mut self.manager, now);
        if is_new && self.is_manager_gone() {
            // The kernel woke one of the workers that sleep.
            futex::wake(self.memory.records().manager_address(), u32::MAX >> 1);
        }
        is_new
    }

    /// Whether the manager was gone at the last look, and no other one took this worker over.
    pub(super) fn is_manager_gone(&self) -> bool {
        self.manager & futex::OWNER_DIED != 0
    }

    /// Sleeps until the wake flag is set, the manager ends or the monotonic clock shows `until_ns`, if no
    /// request waits. The end of the manager ends a sleep of more than [`NAP_NS`] only: a wait for two
    /// words costs more, which a worker that is busy need not pay.
    pub(super) fn sleep(&self, until_ns: u64) {
        let exchange = self.memory.exchange();
        exchange.idle().arm(self.number);
        if !has_work(exchange, self.number, &self.rows) {
            let flag = exchange.wake_flag(self.number);
            let nap_ns = monotonic_ns() + NAP_NS;
            // However it ends, the wake flag and the clock are looked at.
            let slept = futex::wait(flag, 0, Some(nap_ns.min(until_ns)));
            if nap_ns < until_ns && slept.is_err_and(|error| is_errno(&error, Errno::TIMEDOUT)) {
                let manager = self.memory.records().manager_address();
                let words = [(flag.into(), 0), (manager, self.manager)];
                let _ = futex::wait_for_either(words, until_ns);
            }
        }
        exchange.idle().disarm(self.number);
        exchange.idle().come(self.number);
        self.is_fresh.set(true);
    }

    /// Answers the caller of the request at hand, which can't be read, with an error.
    pub(super) fn fail_unread(&mut self, slot: Slot<'_>) {
        if let Some(ticket) = self.held.take() {
            self.end_with(slot, ticket, Code::ServiceError);
        }
    }

    /// The request is over. One that was not answered, as its caller does not wait or its time was over, is freed.
    pub(super) fn end(&mut self, slot: Slot<'_>, is_without_reply: bool) {
        let Some(ticket) = self.held.take() else { return };
        let request = self.memory.exchange().request(ticket.request);
        if is_without_reply && request.is_some_and(|request| request.drop_unwanted(ticket)) {
            return self.claim().let_go();
        }
        self.end_with(slot, ticket, Code::Time);
    }

    fn take_from(&self, ring: usize, slot: Slot<'_>, inbox: &mut [u8]) -> Option<(Ticket, usize)> {
        let exchange = self.memory.exchange();
        let its = exchange.ring(ring)?;
        let claim = self.claim();
        let name = self.number as u32;
        // A broken ring is repaired by the manager.
        while let Ok(Some((at, number))) = its.next() {
            claim.begin(ring, at, number);
            if !its.grab(at, number, name) {
                claim.withdraw();
                continue;
            }
            let request = exchange.request(number);
            let state = request.map(|request| request.state());
            if let Some((_, ticket)) = state {
                claim.hold(ticket);
            }
            its.free(at, name);
            claim.settle();
            exchange.tell_room(&its);
            if let (Some(request), Some((state, ticket))) = (request, state) {
                match state {
                    State::Asked | State::Sent => match request.read(ticket, inbox) {
                        Some(len) => return Some((ticket, len)),
                        None => {
                            slot.add(Total::Malformed, 1);
                            self.end_with(slot, ticket, Code::ServiceError);
                        }
                    },
                    State::Abandoned => {
                        slot.add(Total::Late, 1);
                        if let Some(len) = request.read(ticket, inbox) {
                            discard_payload(&inbox[..len]);
                        }
                        request.drop_unwanted(ticket);
                    }
                    State::Free | State::Open | State::Answered(_) | State::Strange => {
                        slot.add(Total::Malformed, 1);
                    }
                }
            } else {
                slot.add(Total::Malformed, 1);
            }
            claim.let_go();
        }
        None
    }

    /// The error is the answer, to a caller that may be gone.
    fn end_with(&self, slot: Slot<'_>, ticket: Ticket, error: Code) {
        if self.answer(ticket, Some(error)) == Posted::NoReceiver {
            slot.add(Total::Gone, 1);
        }
    }

    /// The answer is written, or `error` is it. The request is not this worker's afterwards.
    #[inline]
    fn answer(&self, ticket: Ticket, error: Option<Code>) -> Posted {
        let exchange = self.memory.exchange();
        let Some(request) = exchange.request(ticket.request) else { return Posted::Failed };
        let number = error.map_or(0, |code| code.number() as u8);
        let delivery = request.answer(ticket, number);
        if delivery == Delivery::Done {
            exchange.wake_client(&request);
        }
        self.claim().let_go();
        match delivery {
            Delivery::Done => Posted::OnTheWay,
            Delivery::Abandoned | Delivery::Late => Posted::NoReceiver,
        }
    }

    /// Passes the request of `call` on to the service of `row`; waits a moment for room in its ring, not beyond the
    /// time of the call.
    fn pass_on(&self, ticket: Ticket, row: Row, call: &Call) -> Posted {
        let exchange = self.memory.exchange();
        let (Some(request), Some(ring)) =
            (exchange.request(ticket.request), exchange.ring(row.ring))
        else {
            return Posted::Failed;
        };
        let Some(next) = request.pass_on(ticket) else { return Posted::NoReceiver };
        let mut until_ns = None;
        loop {
            let pushed = ring.push_with(ticket.request, call.priority);
            if matches!(pushed, Ok(Some(_))) {
                break;
            }
            let now_ns = monotonic_ns();
            let most_ns = *until_ns.get_or_insert_with(|| match call.deadline_ns {
                0 => now_ns + ROOM_NS_MAX,
                deadline_ns => deadline_ns.min(now_ns + ROOM_NS_MAX),
            });
            // Its own ring it cannot wait for.
            if now_ns >= most_ns || !self.memory.is_offered_beside(row.ring, self.number) {
                self.claim().hold(next);
                return Posted::Full;
            }
            // However a wait ends, it is tried again.
            let _ = match (exchange.announce_wait_for_room(row.ring), pushed) {
                (true, Ok(_)) => exchange.wait_for_room(row.ring, most_ns),
                // The manager repairs it, and wakes all that wait there.
                (_, Err(_)) => {
                    exchange.wait_for_room(row.ring, most_ns.min(now_ns + LOOK_AGAIN_NS))
                }
                (false, Ok(_)) => Ok(()),
            };
        }
        self.claim().let_go();
        exchange.wake_one_if_none_comes(self.memory.records(), row.ring);
        Posted::OnTheWay
    }

    fn claim(&self) -> Claim<'_> {
        self.memory.claim(self.number).expect("looked at when it was opened")
    }

    fn leave(&self, row: Row) {
        let exchange = self.memory.exchange();
        if exchange.ring(row.ring).is_some_and(|ring| ring.waiting() > 0) {
            exchange.wake_one(self.memory.records(), row.ring);
        }
    }
}

impl Mailbox {
    /// Ends a sleep of this worker, from any thread.
    pub(super) fn waker(&self) -> impl Fn() + Send + Sync + use<> {
        let exchange = Arc::clone(self.memory.exchange());
        let number = self.number;
        move || exchange.set_wake_flag(number, workers::PROGRAM)
    }
}

impl Transport for Mailbox {
    fn take_requests_for(&mut self, entry: usize, name: &ServiceName) -> Result<(), Error> {
        let row = self.memory.records().find(name).ok_or_else(|| {
            let detail = format!("service {name} is not in the memory of the pool");
            Error::new(Code::NoEntry, detail)
        })?;
        self.rows.push((entry, row));
        Ok(())
    }

    fn withdraw(&mut self, entry: usize) {
        if let Some(at) = self.rows.iter().position(|(its, _)| *its == entry) {
            let (_, row) = self.rows.swap_remove(at);
            self.leave(row);
        }
    }

    fn leave_all(&mut self) {
        for (_, row) in std::mem::take(&mut self.rows) {
            self.leave(row);
        }
    }

    /// By a thread of its own, which sets the wake flag: a futex and a descriptor cannot be waited for at once.
    fn watch_program(&mut self, program: BorrowedFd<'_>) -> Result<(), Error> {
        let copy = program.try_clone_to_owned();
        let fd = copy.map_err(|source| Error::os("dup failed", source))?;
        let wake = self.waker();
        let watch = move || {
            let mut wait = [PollFd::new(&fd, PollFlags::IN)];
            while poll(&mut wait, None).is_ok_and(|_| wait[0].revents().contains(PollFlags::IN)) {
                // Readable again after the next write.
                let _ = rustix::io::read(fd.as_fd(), &mut [0; 8]);
                wake();
            }
        };
        let named = std::thread::Builder::new().name("pollux-attend".to_owned());
        let spawned = named.spawn(watch).map(drop);
        spawned.map_err(|source| Error::os("no thread to watch a descriptor", source))
    }

    /// The manager sets the wake flag when it writes to the link.
    fn watch_link(&mut self, _: BorrowedFd<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn forget_link(&mut self, _: BorrowedFd<'_>) {}

    #[inline]
    fn message_len_bytes_max(&self) -> usize {
        self.memory.exchange().message_len_bytes()
    }

    /// Over the request at hand: so there is always room for a reply.
    #[inline]
    fn send(
        &mut self,
        _: Slot<'_>,
        destination: Destination,
        call: &Call,
        message: &[u8],
    ) -> Posted {
        let Some(ticket) = self.held else { return Posted::Failed };
        let Some(request) = self.memory.exchange().request(ticket.request) else {
            return Posted::Failed;
        };
        match destination {
            Destination::Client(_) => {
                request.write(ticket, message);
                self.held = None;
                self.answer(ticket, None)
            }
            Destination::Service(service) => {
                let Some(row) = self.memory.records().find(&service) else {
                    return Posted::NoReceiver;
                };
                request.write(ticket, message);
                let posted = self.pass_on(ticket, row, call);
                // If it was not passed on, it may have a hop more by now.
                self.held = if posted == Posted::OnTheWay { None } else { self.claim().held() };
                posted
            }
        }
    }

    fn set_aside(&mut self) -> Option<Ticket> {
        let ticket = self.held.take()?;
        if let Some(request) = self.memory.exchange().request(ticket.request) {
            request.set_aside(ticket, self.claim().pid());
        }
        self.claim().let_go();
        Some(ticket)
    }

    fn take_back(&mut self, ticket: Option<Ticket>) {
        if let Some(ticket) = ticket {
            self.claim().hold(ticket);
        }
        self.held = ticket;
    }

    fn send_error(&mut self, _: Slot<'_>, _: &Call, code: Code) -> Posted {
        match self.held.take() {
            Some(ticket) => self.answer(ticket, Some(code)),
            None => Posted::Failed,
        }
    }
}

/// Whether the worker's wake flag was set, or a request waits in one of its rings.
#[inline]
fn has_work(exchange: &Exchange, number: usize, rows: &[(usize, Row)]) -> bool {
    let is_awaited = |(_, row): &(usize, Row)| {
        exchange.ring(row.ring).is_some_and(|ring| matches!(ring.first(), Ok(Some(_))))
    };
    exchange.wake_flag(number).load(Ordering::SeqCst) as u32 != 0 || rows.iter().any(is_awaited)
}

/// The payload of a request that is not served: its sender need not hold it any longer.
fn discard_payload(message: &[u8]) {
    if let Ok(Request { payload: Payload { body: Body::Large(place), .. }, .. }) =
        Request::decode(message)
    {
        large::discard(&place);
    }
}
