//! One request from its queue through the service function to the reply.
//!
//! The loop calls it for every queue that became ready. It tells the worker's slot whom it works
//! for before anything else can go wrong, so that the manager can answer for a worker that dies.

use std::any::Any;
use std::cell::RefCell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use super::answering::Answering;
use super::offers::{Offer, SharedHandler};
use super::payload::{Spare, Unusable};
use super::registrations::{Registrations, Sources};
use super::replies::{Call, Replies, Verdict};
use super::rings::Taken;
use super::service::{Done, Ending, Incoming, Return};
use super::way_out::WayOut;
use crate::buffer::Buffer;
use crate::client::Outgoing;
use crate::clock::monotonic_ns;
use crate::error::{Code, Error};
use crate::large;
use crate::queue::ServiceName;
use crate::slots::{Caller, Inbox, Slot, Slots, Total};
use crate::wire::{Body, Request};

/// What a look into a queue found.
#[derive(Debug)]
pub(super) enum Found {
    /// Nothing: another worker was quicker, or the wake told of room.
    Nothing,
    /// A message, which was dealt with.
    Message,
    /// One after which the worker ends.
    Last(Ending),
}

/// What a worker needs from one request to the next.
pub(super) struct Dispatch {
    pub(super) registrations: Rc<RefCell<Registrations>>,
    pub(super) out: WayOut,
    slots: Rc<Slots>,
    slot: usize,
    /// The message that is at hand.
    inbox: Vec<u8>,
    spare: Spare,
}

/// A request whose data is in its buffer.
struct Opened {
    call: Call,
    incoming: Incoming,
    handler: SharedHandler,
}

impl Dispatch {
    pub(super) fn new(registrations: Rc<RefCell<Registrations>>) -> Self {
        let (slots, slot, prefix, is_memory) = {
            let registrations = registrations.borrow();
            let is_memory = matches!(registrations.sources, Sources::Memory(_));
            (
                Rc::clone(&registrations.slots),
                registrations.slot,
                registrations.prefix.clone(),
                is_memory,
            )
        };
        let (inbox, spare) = (Vec::new(), Spare::default());
        let out = match is_memory {
            true => WayOut::Memory(Answering::default()),
            false => {
                slots.inbox(slot).expect("as its slot").prepare();
                WayOut::Queues(Replies::new(prefix, Rc::clone(&slots), slot))
            }
        };
        Self { registrations, out, slots, slot, inbox, spare }
    }

    /// Takes one request from the queue of `entry`, if there is one, and serves it.
    ///
    /// # Errors
    /// TPEOS when the queue can't be read, which no request can cause.
    #[inline]
    pub(super) fn serve(&mut self, entry: usize, generation: u32) -> Result<Found, Error> {
        let slots = Rc::clone(&self.slots);
        let slot = slots.slot(self.slot).expect("looked up when the worker was made");
        let Some(len) = self.receive(entry, generation)? else {
            slot.add(Total::Empty, 1);
            return Ok(Found::Nothing);
        };
        let began_ns = monotonic_ns();
        let opened = self.open(entry, len, slot, began_ns);
        // The slot says whose it was.
        slots.inbox(self.slot).expect("as its slot").empty();
        let found = opened.map(|opened| self.answer_to(opened, entry, slot, began_ns));
        slot.idle();
        Ok(found.unwrap_or(Found::Message))
    }

    /// Takes the next request of any service out of shared memory, if there is one, and serves it.
    #[inline]
    pub(super) fn serve_next(&mut self) -> Found {
        let slots = Rc::clone(&self.slots);
        let slot = slots.slot(self.slot).expect("looked up when the worker was made");
        let taken = match (&mut self.registrations.borrow_mut().sources, &mut self.out) {
            (Sources::Memory(rings), WayOut::Memory(answering)) => {
                let len_bytes = rings.memory().exchange().message_len_bytes();
                self.inbox.resize(len_bytes, 0);
                rings.take(slot, &mut self.inbox).inspect(|taken| {
                    answering.begin(taken.ticket, len_bytes);
                })
            }
            _ => None,
        };
        let Some(Taken { entry, len, .. }) = taken else {
            return Found::Nothing;
        };
        let began_ns = monotonic_ns();
        let opened = self.open(entry, len, slot, began_ns);
        let is_without_reply = opened.as_ref().is_some_and(|opened| opened.call.is_without_reply);
        let found = opened.map(|opened| self.answer_to(opened, entry, slot, began_ns));
        if let (Sources::Memory(rings), WayOut::Memory(answering)) =
            (&self.registrations.borrow().sources, &mut self.out)
        {
            answering.end(rings, slot, is_without_reply);
        }
        slot.idle();
        found.unwrap_or(Found::Message)
    }

    /// Runs the service function and sends what it wants sent.
    #[inline]
    fn answer_to(&mut self, opened: Opened, entry: usize, slot: Slot<'_>, began_ns: u64) -> Found {
        slot.add(Total::Calls, 1);
        let Opened { call, incoming, handler } = opened;
        let service = incoming.service;
        let (is_ok, found) = match run(&handler, incoming) {
            Ok(done) => self.finish(slot, &call, done),
            Err(message) => {
                self.fail(slot, &call);
                (false, Found::Last(Ending::Panicked { service, message }))
            }
        };
        slot.served(entry, is_ok, monotonic_ns().saturating_sub(began_ns));
        if !is_ok {
            slot.add(Total::Failed, 1);
        }
        found
    }

    /// A queue that was full has room.
    pub(super) fn flush(&mut self, place: usize, generation: u32) {
        if let (Sources::Queues(watch), WayOut::Queues(replies)) =
            (&mut self.registrations.borrow_mut().sources, &mut self.out)
        {
            replies.flush(watch, place, generation);
        }
    }

    /// One message into the inbox; its length.
    fn receive(&mut self, entry: usize, generation: u32) -> Result<Option<usize>, Error> {
        let registrations = self.registrations.borrow();
        let Sources::Queues(watch) = &registrations.sources else { return Ok(None) };
        // Withdrawn by a service function while its event was under way.
        let Some(queue) = watch.queue(entry, generation) else { return Ok(None) };
        let len_bytes = watch.message_len_bytes_max();
        if self.inbox.len() < len_bytes {
            self.inbox.resize(len_bytes, 0);
        }
        let shared = self.slots.inbox(self.slot).expect("as its slot");
        let is_shared = len_bytes <= Inbox::LEN_BYTES_MAX;
        loop {
            let received = match is_shared {
                true => queue.receive_shared(shared.words()),
                false => queue.receive(&mut self.inbox).map(|(len, _)| len),
            };
            match received {
                Ok(len) => {
                    if is_shared {
                        shared.copy_to(&mut self.inbox[..len]);
                    }
                    return Ok(Some(len));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::os("a service queue can't be read", error)),
            }
        }
    }

    /// Reads the message in the inbox; nothing when it must not be served.
    fn open(&mut self, entry: usize, len: usize, slot: Slot<'_>, now_ns: u64) -> Option<Opened> {
        let Ok(request) = Request::decode(&self.inbox[..len]) else {
            slot.add(Total::Malformed, 1);
            if let (Sources::Memory(rings), WayOut::Memory(answering)) =
                (&self.registrations.borrow().sources, &mut self.out)
            {
                answering.fail(rings, slot, Code::ServiceError);
            }
            return None;
        };
        let Request { client, call_id, cd, deadline_ns, is_without_reply, service, payload } =
            request;
        let caller =
            Caller { pid: client.pid, context: client.context, call_id, nonce: client.nonce };
        slot.begin(&caller, entry, !is_without_reply, now_ns);
        let call = Call { client, call_id, cd, deadline_ns, is_without_reply };
        if deadline_ns != 0 && now_ns > deadline_ns {
            slot.add(Total::Late, 1);
            if let Body::Large(reference) = payload.body {
                large::discard(&reference);
            }
            return None;
        }
        let offer = self.offer(entry, &service);
        let filled = offer.map(|offer| (offer, self.spare.fill(&payload)));
        let (body, len_bytes) = (payload.body, payload.len_bytes() as usize);
        slot.add(Total::PayloadBytes, payload.len_bytes());
        if let Some((Offer { function, handler, .. }, Ok(buffer))) = filled {
            let incoming = Incoming {
                service,
                function,
                buffer,
                len_bytes,
                is_without_reply,
                cd,
                client,
                deadline_ns,
            };
            return Some(Opened { call, incoming, handler });
        }
        slot.add(Total::Malformed, 1);
        if let Body::Large(reference) = body
            && !matches!(filled, Some((_, Err(Unusable::Gone))))
        {
            large::discard(&reference);
        }
        self.fail(slot, &call);
        None
    }

    /// The service of `entry`, if it is the one that a request names.
    fn offer(&self, entry: usize, service: &ServiceName) -> Option<Offer> {
        self.registrations
            .borrow()
            .offers
            .get(entry)
            .filter(|offer| offer.name == *service)
            .cloned()
    }

    /// Sends what the service function wants sent; whether the call counts as good.
    fn finish(&mut self, slot: Slot<'_>, call: &Call, done: Done) -> (bool, Found) {
        match done {
            Done::Return(returned) => {
                let is_exit = returned.is_exit();
                let is_ok = self.answer(slot, call, returned);
                (is_ok, if is_exit { Found::Last(Ending::Exited) } else { Found::Message })
            }
            Done::Forward { service, buffer, len_bytes } => {
                let is_on_the_way = match data(buffer.as_ref(), len_bytes) {
                    Some(data) => {
                        let sources = &mut self.registrations.borrow_mut().sources;
                        self.out.forward(sources, slot, call, service, data)
                    }
                    None => false,
                };
                if !is_on_the_way {
                    self.fail(slot, call);
                }
                self.spare.keep(buffer);
                (is_on_the_way, Found::Message)
            }
            Done::NoReturn => {
                self.fail(slot, call);
                (false, Found::Message)
            }
        }
    }

    /// Replies as `tpreturn` was told; whether the service said that all went well.
    fn answer(&mut self, slot: Slot<'_>, call: &Call, returned: Return) -> bool {
        let is_success = returned.is_success();
        let data = data(returned.buffer.as_ref(), returned.len_bytes);
        let error = match (returned.soft_error, data) {
            (Some(code), _) => Some(code),
            (None, None) => Some(Code::ServiceError),
            (None, Some(_)) if is_success => None,
            (None, Some(_)) => Some(Code::ServiceFailed),
        };
        if !call.is_without_reply {
            let carries = matches!(error, None | Some(Code::ServiceFailed));
            let sent = data.filter(|_| carries).unwrap_or(Outgoing::NONE);
            let verdict = Verdict { error, rval: returned.rval, urcode: returned.urcode };
            let sources = &mut self.registrations.borrow_mut().sources;
            self.out.reply(sources, slot, call, verdict, sent);
        }
        self.spare.keep(returned.buffer);
        is_success && error.is_none()
    }

    /// Tells the caller that the service broke, if it waits.
    fn fail(&mut self, slot: Slot<'_>, call: &Call) {
        if !call.is_without_reply {
            self.out.fail(&mut self.registrations.borrow_mut().sources, slot, call);
        }
    }
}

/// What of `buffer` is sent; nothing when it can't be.
fn data(buffer: Option<&Buffer>, len_bytes: usize) -> Option<Outgoing<'_>> {
    let Some(buffer) = buffer else { return Some(Outgoing::NONE) };
    let used = buffer.used_len(len_bytes).ok()?;
    Some(Outgoing {
        buffer_type: Some(buffer.buffer_type()),
        buffer_size_bytes: buffer.size(),
        bytes: &buffer.as_bytes()[..used],
    })
}

/// Calls the service function; what it panicked with, if it did.
fn run(handler: &SharedHandler, incoming: Incoming) -> Result<Done, String> {
    let called = catch_unwind(AssertUnwindSafe(|| (handler.borrow_mut())(incoming)));
    called.map_err(|panic| panic_message(panic.as_ref()))
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "without a message".to_owned())
}
