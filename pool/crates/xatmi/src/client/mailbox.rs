//! The requests of one client in the memory of its pool: sent, waited for, given up.
//!
//! The [`Transport`] of `send` and `receive` in place of queues; a reply is handed to them as the bytes of a message, so
//! that the rest is the same. Only [`wait`](Transport::wait) waits for a worker.
//!
//! A request that leaves is written to its cell (`memory/request.rs`) and its number put into the ring of the service
//! (`memory/ring.rs`); a worker takes it out in `worker/mailbox.rs`, `take`, and answers it there, `send`.

use std::cell::Cell;
use std::io;
use std::sync::Arc;

use rustix::io::Errno;

use super::connection::{ClientFiles, KnownContext, Welcome};
use super::poll_lock::Guard;
use super::transport::{Message, RoomWait, SendError, Transport, not_offered};
use crate::error::{Code, Error, is_errno};
use crate::memory::{Block, ClientMemory, Patience, Row, State, Ticket, owner_of};
use crate::queue::{Prefix, ServiceName, Waited, monotonic_ns};
use crate::wire::Reply;

/// Services whose row is remembered.
const SERVICES_KNOWN_MAX: usize = 64;
/// The longest sleep: another client that writes where it should not may take the wake for a reply away.
const SLEEP_NS_MAX: u64 = 1_000_000_000;
/// The first sleep, after which it looks whether a worker has the request: the one that was woken for it
/// may be stopped, or have taken another request, while others are idle.
const SLEEP_NS_MIN: u64 = 50_000_000;
/// How long it waits for a request of its own, or for the manager to repair a ring, before it looks again.
const LOOK_AGAIN_NS: u64 = 1_000_000;

/// With more calls out it sleeps at once: a look at all of them takes too long.
const LOOKS_AT_MAX: usize = 8;

/// Requests of one context.
#[derive(Debug)]
pub(super) struct Mailbox {
    memory: Arc<ClientMemory>,
    pid: u32,
    /// The number of the context in the memory.
    context: u32,
    owner: u64,
    nonce: u64,
    blocks: Vec<usize>,
    /// Requests of ours, to be used again; some may still be with a worker.
    free: Vec<u32>,
    /// Requests whose reply is awaited, in the order of their calls.
    out: Vec<Out>,
    services: Vec<(ServiceName, Row)>,
    /// No worker was woken for the last request, as one was looking for it.
    is_unwoken: bool,
    /// It counts as a thread that can run.
    is_calling: bool,
    patience: Patience,
    /// What there was no room for the last time.
    full: Unsent,
}

#[derive(Debug)]
struct Out {
    ticket: Ticket,
    call_id: u64,
    /// Where the request was pushed.
    ring: usize,
    at: u64,
}

/// Why a request is not on its way.
#[derive(Debug)]
enum Unsent {
    /// The service is not offered.
    NotOffered,
    /// Its ring is full, or broken for the moment.
    Full(usize),
    /// All requests that this client can have are out.
    NoRequest,
}

impl Mailbox {
    /// A mailbox for a context that the manager gave a number.
    ///
    /// # Errors
    /// TPESYSTEM for memory of another build, TPELIMIT when all of it is in use, TPEOS.
    pub(super) fn open(
        prefix: &Prefix,
        memory: &ClientFiles,
        context: u32,
        nonce: u64,
    ) -> Result<Self, Error> {
        let pid = std::process::id();
        let mut mailbox = Self {
            memory: mapped(prefix, memory)?,
            pid,
            context,
            owner: owner_of(pid, context),
            nonce,
            blocks: Vec::new(),
            free: Vec::new(),
            out: Vec::new(),
            services: Vec::new(),
            is_unwoken: false,
            is_calling: false,
            patience: Patience::default(),
            full: Unsent::NoRequest,
        };
        if mailbox.add_block() {
            return Ok(mailbox);
        }
        let detail = "the pool has no room for a further client context";
        Err(Error::new(Code::Limit, detail))
    }
}

impl Transport for Mailbox {
    fn follow(
        &mut self,
        prefix: &Prefix,
        _: &Welcome,
        memory: Option<&ClientFiles>,
    ) -> Result<bool, Error> {
        let Some(memory) = memory else { return Ok(false) };
        let memory = mapped(prefix, memory)?;
        let is_same = memory.exchange.inode() == self.memory.exchange.inode();
        if is_same {
            self.memory = memory;
        }
        Ok(is_same)
    }

    fn known(&self) -> Option<KnownContext> {
        Some(KnownContext { context: self.context, exchange: self.memory.exchange.inode() })
    }

    #[inline]
    fn is_manager_gone(&self) -> bool {
        self.memory.records.is_manager_gone()
    }

    /// The error in place of a reply is TPENOENT for a request that no worker took and none will serve, else
    /// TPESVCERR.
    fn end_next(&mut self, into: &mut [u8]) -> Option<usize> {
        if let Some(len) = self.take_one(into) {
            return Some(len);
        }
        let Out { ticket, call_id, ring, at } = *self.out.first()?;
        let len = self.give_up(call_id, into);
        len.or_else(|| {
            // A worker that takes it from now on sees that it was given up.
            let ring = self.memory.exchange.ring(ring);
            let is_waiting = ring.is_some_and(|ring| ring.is_waiting(at, ticket.request));
            let code = if is_waiting { Code::NoEntry } else { Code::ServiceError };
            self.failing(call_id, code, into)
        })
    }

    fn message_len_bytes(&self) -> usize {
        self.memory.exchange.message_len_bytes()
    }

    fn send(&mut self, message: &Message<'_>) -> Result<(), SendError> {
        self.try_send(message).map_err(|why| match why {
            Unsent::NotOffered => SendError::Failed(not_offered(message.service.as_str())),
            full => {
                self.full = full;
                SendError::Full
            }
        })
    }

    /// A full ring is waited for on a word of its own; the wait may end early or late.
    fn wait_for_room(
        &mut self,
        _: ServiceName,
        _: bool,
        until_ns: u64,
        _: &mut Option<Guard>,
    ) -> Result<RoomWait, Error> {
        let exchange = &self.memory.exchange;
        let soon_ns = until_ns.min(monotonic_ns() + LOOK_AGAIN_NS);
        let waited = match &self.full {
            Unsent::Full(ring) if exchange.announce_wait_for_room(*ring) => {
                exchange.wait_for_room(*ring, until_ns)
            }
            _ => self.home().map_or(Ok(()), |home| {
                home.arm();
                let waited = home.sleep(soon_ns);
                home.disarm();
                waited
            }),
        };
        // Its only error is a signal.
        let is_interrupted = interruption(waited).is_err();
        Ok(if is_interrupted { RoomWait::Interrupted } else { RoomWait::Again })
    }

    fn take(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        Ok(self.take_one(into))
    }

    #[inline]
    fn wait(&mut self, into: &mut [u8], deadline_ns: u64, look_ns: u64) -> io::Result<Waited> {
        self.set_calling(true);
        let waited = self.wait_counted(into, deadline_ns, look_ns);
        self.set_calling(false);
        waited
    }

    fn give_up(&mut self, call_id: u64, into: &mut [u8]) -> Option<usize> {
        let at = self.out.iter().position(|out| out.call_id == call_id)?;
        let Out { ticket, .. } = self.out.remove(at);
        let request = self.memory.exchange.request(ticket.request)?;
        let is_answered = request.give_up();
        // It is not written before it is asked again.
        let len = is_answered.then(|| request.read(ticket, into)).flatten();
        self.free.insert(0, ticket.request);
        len
    }
}

impl Mailbox {
    #[inline]
    fn try_send(&mut self, message: &Message<'_>) -> Result<(), Unsent> {
        let Message { service, call_id, wants_reply, is_awaited, priority, bytes, .. } = *message;
        let row = self.find(service).ok_or(Unsent::NotOffered)?;
        let ticket = self.open_request().ok_or(Unsent::NoRequest)?;
        // Before a worker is woken, which may take this thread's CPU at once.
        self.set_calling(is_awaited);
        let exchange = &self.memory.exchange;
        let (Some(request), Some(ring)) =
            (exchange.request(ticket.request), exchange.ring(row.ring))
        else {
            return Err(Unsent::NotOffered);
        };
        request.write(ticket, bytes);
        request.ask(ticket, wants_reply);
        let Ok(Some(at)) = ring.push_with(ticket.request, priority) else {
            request.take_back(ticket);
            self.free.push(ticket.request);
            self.set_calling(false);
            return Err(Unsent::Full(row.ring));
        };
        self.is_unwoken = is_awaited && exchange.is_looked_into(&self.memory.records, row.ring);
        if !self.is_unwoken {
            exchange.wake_one_if_none_comes(&self.memory.records, row.ring);
        }
        if !self.memory.records.stands(row) && ring.is_waiting(at, ticket.request) {
            // Withdrawn meanwhile: the ring may have been emptied before. A request that was taken is
            // served or answered.
            request.give_up();
            self.free.insert(0, ticket.request);
            self.set_calling(false);
            return Err(Unsent::NotOffered);
        }
        if wants_reply {
            self.out.push(Out { ticket, call_id, ring: row.ring, at });
        } else {
            self.free.insert(0, ticket.request);
        }
        Ok(())
    }

    /// Takes a reply if one is there; its length in `into`.
    #[inline]
    fn take_one(&mut self, into: &mut [u8]) -> Option<usize> {
        for at in 0..self.out.len() {
            let Out { ticket, call_id, .. } = self.out[at];
            let request = self.memory.exchange.request(ticket.request)?;
            let (state, now) = request.state();
            let is_its = now.generation == ticket.generation;
            let len = match state {
                State::Asked if is_its => continue,
                State::Answered(None) if is_its => request.read(ticket, into),
                State::Answered(Some(number)) if is_its => {
                    let code = Code::from_number(number.into()).unwrap_or(Code::ServiceError);
                    self.failing(call_id, code, into)
                }
                // Another process wrote there.
                _ => None,
            };
            request.close(ticket);
            self.out.remove(at);
            self.free.push(ticket.request);
            return len.or_else(|| self.failing(call_id, Code::ServiceError, into));
        }
        None
    }

    #[inline]
    fn wait_counted(
        &mut self,
        into: &mut [u8],
        deadline_ns: u64,
        look_ns: u64,
    ) -> io::Result<Waited> {
        if self.out.len() <= LOOKS_AT_MAX {
            self.wait_a_moment();
        }
        let mut sleep_ns = SLEEP_NS_MIN;
        loop {
            if let Some(len) = self.take_one(into) {
                return Ok(Waited::Message(len));
            }
            if std::mem::take(&mut self.is_unwoken) {
                self.wake_for(self.out.last());
            }
            let now_ns = monotonic_ns();
            if deadline_ns != 0 && now_ns >= deadline_ns {
                return Ok(Waited::Late);
            }
            let mut most_ns = now_ns + sleep_ns;
            if self.is_manager_gone() {
                if now_ns >= look_ns {
                    return Ok(Waited::Abandoned);
                }
                most_ns = most_ns.min(look_ns);
            }
            if let Some(home) = self.home() {
                home.arm();
            }
            let taken = self.take_one(into);
            let Some(home) = self.home() else { return Err(Errno::INVAL.into()) };
            if let Some(len) = taken {
                home.disarm();
                return Ok(Waited::Message(len));
            }
            let until_ns = if deadline_ns == 0 { most_ns } else { most_ns.min(deadline_ns) };
            let waited = home.sleep(until_ns);
            home.disarm();
            let is_over = waited.as_ref().is_err_and(|error| is_errno(error, Errno::TIMEDOUT));
            if interruption(waited).is_err() {
                return Ok(Waited::Interrupted);
            }
            if is_over {
                for out in self.out.iter().filter(|out| self.is_waiting(out)) {
                    self.memory.exchange.doubt(&self.memory.records, out.ring);
                }
                let is_another_woken = self.wake_for(&self.out);
                sleep_ns = if is_another_woken { SLEEP_NS_MIN } else { SLEEP_NS_MAX };
            }
        }
    }

    /// Says whether this thread is in a call, where others look at that.
    #[inline]
    fn set_calling(&mut self, is_calling: bool) {
        if self.is_calling != is_calling
            && !(is_calling && self.memory.records.always_spins())
            && let Some(home) = self.home()
        {
            home.set_calling(is_calling);
            self.memory.exchange.set_worker_here(!is_calling);
            self.is_calling = is_calling;
        }
    }

    /// Waits a moment for a reply, as far as that pays.
    fn wait_a_moment(&mut self) {
        // It learns while the rest is looked at.
        let mut patience = std::mem::take(&mut self.patience);
        let exchange = &self.memory.exchange;
        let is_unwoken = Cell::new(self.is_unwoken);
        let is_answered = || {
            self.out.iter().any(|Out { ticket, .. }| {
                let request = exchange.request(ticket.request);
                request.is_none_or(|request| request.state().0 != State::Asked)
            })
        };
        let is_crowded = || exchange.is_crowded(&self.memory.records);
        let missed = || {
            // The worker that was looking has had its turn.
            if is_unwoken.take() {
                self.wake_for(self.out.last());
            }
        };
        patience.wait(exchange.giving_way(&self.memory.records), is_answered, is_crowded, missed);
        self.is_unwoken = is_unwoken.get();
        self.patience = patience;
    }

    /// Wakes a worker for each of these requests that still waits in its ring; whether one was idle.
    fn wake_for<'a>(&self, requests: impl IntoIterator<Item = &'a Out>) -> bool {
        let exchange = &self.memory.exchange;
        let waiting = requests.into_iter().filter(|out| self.is_waiting(out));
        waiting.filter(|out| exchange.wake_one(&self.memory.records, out.ring)).count() > 0
    }

    /// Whether no worker has taken the request.
    fn is_waiting(&self, out: &Out) -> bool {
        let ring = self.memory.exchange.ring(out.ring);
        ring.is_some_and(|ring| ring.is_waiting(out.at, out.ticket.request))
    }

    /// The row of a service, looked up anew when it has changed.
    fn find(&mut self, service: ServiceName) -> Option<Row> {
        let known = self.services.iter().position(|(name, _)| *name == service);
        if let Some(at) = known {
            let row = self.services[at].1;
            if self.memory.records.stands(row) {
                return Some(row);
            }
            self.services.swap_remove(at);
        }
        let row = self.memory.records.find(&service)?;
        self.services.truncate(SERVICES_KNOWN_MAX - 1);
        self.services.push((service, row));
        Some(row)
    }

    /// A request for a call: the one that was used last if it is free, else another one, else one of a
    /// further block.
    fn open_request(&mut self) -> Option<Ticket> {
        let home = *self.blocks.first()?;
        loop {
            for at in (0..self.free.len()).rev() {
                let request = self.memory.exchange.request(self.free[at])?;
                if let Some(ticket) = request.open(home) {
                    self.free.remove(at);
                    return Some(ticket);
                }
            }
            if !self.add_block() {
                return None;
            }
        }
    }

    fn add_block(&mut self) -> bool {
        let Some(block) = self.memory.exchange.take_block(self.owner) else { return false };
        self.blocks.push(block.number);
        self.free.extend(block.requests());
        true
    }

    fn home(&self) -> Option<Block<'_>> {
        self.memory.exchange.block(*self.blocks.first()?)
    }

    fn failing(&self, call_id: u64, code: Code, into: &mut [u8]) -> Option<usize> {
        Reply::failing(self.nonce, call_id, code).encode(into)
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        // A child after fork(2) has what is its parent's.
        if std::process::id() != self.pid {
            return;
        }
        for Out { ticket, .. } in &self.out {
            if let Some(request) = self.memory.exchange.request(ticket.request) {
                request.give_up();
            }
        }
        self.set_calling(false);
        for block in self.blocks.iter().filter_map(|block| self.memory.exchange.block(*block)) {
            block.give_back(self.owner);
        }
    }
}

/// Only a signal is an error: a wait may end early or late for any reason.
fn interruption(waited: io::Result<()>) -> io::Result<()> {
    waited.or_else(|error| match Errno::from_io_error(&error) {
        Some(Errno::INTR) => Err(error),
        _ => Ok(()),
    })
}

fn mapped(prefix: &Prefix, [records, exchange]: &ClientFiles) -> Result<Arc<ClientMemory>, Error> {
    ClientMemory::shared(records, exchange).map_err(|source| {
        let code = match source.kind() {
            io::ErrorKind::InvalidData => Code::System,
            _ => Code::Os,
        };
        Error::caused(code, format!("the memory of the pool {prefix} can't be used"), source)
    })
}
