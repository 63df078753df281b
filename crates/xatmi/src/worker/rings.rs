//! Where a worker waits when requests are in shared memory: the rings of its services, and its bell.
//!
//! The other form of `watch`. The loop takes requests here and sleeps here; the registry adds and removes
//! services. What is done for them is in `dispatch` and `answering`, as with queues.
//!
//! ```text
//!   awake ──(no request in any ring)──▶ armed ──(a last look finds none)──▶ asleep
//!     ▲                                   │ found one                          │
//!     └───────────────────────────────────┴────── the bell is rung, or time ───┘
//! ```

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pollux_sys::futex;
use rustix::event::{PollFd, PollFlags, poll};

use crate::error::{Code, Error};
use crate::memory::{Claim, Delivery, Memory, Row, State, Ticket, idle};
use crate::queue::ServiceName;
use crate::slots::{SERVICES_MAX, Slot, Total};

/// The rings that a worker takes requests from.
pub(super) struct Rings {
    memory: Arc<Memory>,
    /// The number of this worker in the memory.
    number: usize,
    /// The service of each entry.
    rows: Vec<Option<Row>>,
    /// The entry at which the next look begins: the one behind that which was served last.
    next: usize,
}

/// A request that is this worker's now.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) entry: usize,
    pub(super) ticket: Ticket,
    /// Bytes of its message.
    pub(super) len: usize,
}

impl Rings {
    /// None yet.
    ///
    /// # Errors
    /// TPESYSTEM for a number beyond the memory.
    pub(super) fn open(memory: Arc<Memory>, number: usize) -> Result<Self, Error> {
        if memory.claim(number).is_none() {
            let detail = format!("worker {number} is beyond the memory of the pool");
            return Err(Error::new(Code::System, detail));
        }
        Ok(Self { memory, number, rows: vec![None; SERVICES_MAX], next: 0 })
    }

    pub(super) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// Takes requests for a service from now on.
    ///
    /// # Errors
    /// TPENOENT when the manager does not have it.
    pub(super) fn serve(&mut self, entry: usize, name: &ServiceName) -> Result<(), Error> {
        let row = self.memory.find(name).ok_or_else(|| {
            let detail = format!("service {name} is not in the memory of the pool");
            Error::new(Code::NoEntry, detail)
        })?;
        self.rows[entry] = Some(row);
        Ok(())
    }

    /// Takes no more requests for a service.
    pub(super) fn withdraw(&mut self, entry: usize) {
        if let Some(row) = self.rows[entry].take() {
            self.leave(row);
        }
    }

    /// Takes no more requests at all, and has others woken for those that wait.
    pub(super) fn leave_all(&mut self) {
        for row in self.rows.iter_mut().filter_map(Option::take).collect::<Vec<_>>() {
            self.leave(row);
        }
    }

    /// Takes the next request, its message into `inbox`.
    #[inline]
    pub(super) fn take(&mut self, slot: Slot<'_>, inbox: &mut [u8]) -> Option<Taken> {
        for offset in 0..self.rows.len() {
            let entry = (self.next + offset) % self.rows.len();
            let Some(row) = self.rows[entry] else { continue };
            if let Some((ticket, len)) = self.take_from(row.ring, slot, inbox) {
                self.next = (entry + 1) % self.rows.len();
                return Some(Taken { entry, ticket, len });
            }
        }
        None
    }

    /// What the bell was rung for since the last look.
    #[inline]
    pub(super) fn heard(&self) -> u64 {
        idle::heard(self.memory.exchange().bell(self.number))
    }

    /// Sleeps until the bell is rung or the monotonic clock shows `until_ns`, if no request waits.
    pub(super) fn rest(&self, until_ns: u64) {
        let exchange = self.memory.exchange();
        let bell = exchange.bell(self.number);
        exchange.idle().arm(self.number);
        let is_awaited = |row: &Row| {
            exchange.ring(row.ring).is_some_and(|ring| matches!(ring.first(), Ok(Some(_))))
        };
        if bell.load(Ordering::SeqCst) as u32 == 0 && !self.rows.iter().flatten().any(is_awaited) {
            // However it ends, the bell and the clock are looked at.
            let _ = futex::wait(bell, 0, Some(until_ns));
        }
        exchange.idle().disarm(self.number);
    }

    /// Has the bell rung when a descriptor is readable, by a thread of its own: a futex and a descriptor
    /// cannot be waited for at once.
    ///
    /// # Errors
    /// TPEOS without a thread.
    pub(super) fn attend_to(&self, fd: OwnedFd) -> Result<(), Error> {
        let (memory, number) = (Arc::clone(&self.memory), self.number);
        let watch = move || {
            let mut wait = [PollFd::new(&fd, PollFlags::IN)];
            while poll(&mut wait, None).is_ok_and(|_| wait[0].revents().contains(PollFlags::IN)) {
                // The next look comes when somebody writes again.
                let _ = rustix::io::read(fd.as_fd(), &mut [0; 8]);
                memory.exchange().ring_bell(number, idle::PROGRAM);
            }
        };
        let named = std::thread::Builder::new().name("pollux-attend".to_owned());
        let spawned = named.spawn(watch).map(drop);
        spawned.map_err(|source| Error::os("no thread to attend to a descriptor", source))
    }

    fn take_from(&self, ring: usize, slot: Slot<'_>, inbox: &mut [u8]) -> Option<(Ticket, usize)> {
        let exchange = self.memory.exchange();
        let its = exchange.ring(ring)?;
        let (claim, name) = (self.claim(), self.number as u32);
        // What is broken is mended by the manager.
        while let Ok(Some((at, number))) = its.first() {
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
                            self.answer(slot, ticket, Some(Code::ServiceError));
                        }
                    },
                    State::Abandoned => {
                        slot.add(Total::Late, 1);
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

    /// The answer is written, or `error` is it. The request is not this worker's afterwards.
    #[inline]
    pub(super) fn answer(&self, slot: Slot<'_>, ticket: Ticket, error: Option<Code>) {
        let exchange = self.memory.exchange();
        let Some(request) = exchange.request(ticket.request) else { return };
        let number = error.map_or(0, |code| code.number() as u8);
        match request.answer(ticket, number) {
            Delivery::Done => exchange.wake_client(&request),
            Delivery::Abandoned | Delivery::Late => slot.add(Total::Gone, 1),
        }
        self.claim().let_go();
    }

    /// Passes a request on to the service of `row`; false when there is no room, or nobody waits.
    pub(super) fn pass_on(&self, ticket: Ticket, row: Row) -> bool {
        let exchange = self.memory.exchange();
        let (Some(request), Some(ring)) =
            (exchange.request(ticket.request), exchange.ring(row.ring))
        else {
            return false;
        };
        let Some(next) = request.pass_on(ticket) else { return false };
        if ring.push(ticket.request) != Ok(true) {
            self.claim().hold(next);
            return false;
        }
        self.claim().let_go();
        exchange.wake_one(self.memory.records(), row.ring);
        true
    }

    pub(super) fn claim(&self) -> Claim<'_> {
        self.memory.claim(self.number).expect("looked at when it was opened")
    }

    fn leave(&self, row: Row) {
        let exchange = self.memory.exchange();
        if exchange.ring(row.ring).is_some_and(|ring| ring.waiting() > 0) {
            exchange.wake_one(self.memory.records(), row.ring);
        }
    }
}
