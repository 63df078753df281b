//! One request from its queue through the service function to the reply, and the buffer it is received into.
//!
//! `serve_next` or `serve_queue` ─► `open` ─► `answer_to`: the service function (of C `pool/crates/xatmi-c/src/service.rs`, `run_function`), then
//! `finish` ─► `reply.rs` ─► `mailbox.rs` or `queues.rs`, `send`.
//!
//! The loop calls it in memory for the next request of any service, by queues for every queue that became ready. It records the caller in the worker's slot before
//! anything else can fail, so that the manager can answer for a worker that dies.

use std::any::Any;
use std::cell::RefCell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use super::continued::Waiting;
use super::mailbox::Taken;
use super::queues::Queues;
use super::registrations::{Registrations, Sources};
use super::reply::{Call, ReplyStatus, Transport, fail};
use super::service::{Done, Ending, Incoming, Offer, Return, SharedHandler};
use crate::buffer::{Buffer, BufferError, BufferType};
use crate::call_info;
use crate::client::Outgoing;
use crate::error::{Code, Error};
use crate::large;
use crate::queue::{ServiceName, monotonic_ns};
use crate::slots::{Caller, Inbox, Slot, Slots, Total};
use crate::ubf::UbfMut;
use crate::wire::{Body, Payload, Request};

/// Buffers larger than this are given back to the allocator instead of being cleared and kept.
const KEPT_LEN_BYTES_MAX: usize = 4 << 20;

/// The result of serving a queue.
#[derive(Debug)]
pub(super) enum DispatchResult {
    /// Nothing: another worker was quicker, or the wake was for room in a queue.
    Nothing,
    /// A message, which was dealt with.
    Message,
    /// One after which the worker ends.
    Last(Ending),
}

/// The state of a worker from one request to the next.
pub(super) struct Dispatch {
    pub(super) registrations: Rc<RefCell<Registrations>>,
    slots: Rc<Slots>,
    slot: usize,
    /// The message that is at hand.
    inbox: Vec<u8>,
    spare: Spare,
    /// When the last service function ended.
    pub(super) ended_ns: u64,
}

/// A request whose data is in its buffer.
struct Opened {
    call: Call,
    incoming: Incoming,
    handler: SharedHandler,
}

impl Dispatch {
    pub(super) fn new(registrations: Rc<RefCell<Registrations>>) -> Self {
        let (slots, slot) = {
            let registrations = registrations.borrow();
            (Rc::clone(&registrations.slots), registrations.slot)
        };
        Self { registrations, slots, slot, inbox: Vec::new(), spare: Spare::default(), ended_ns: 0 }
    }

    /// Takes one request from the queue of `entry`, if there is one, and serves it.
    ///
    /// # Errors
    /// TPEOS when the queue can't be read, which no request can cause.
    #[inline]
    pub(super) fn serve_queue(
        &mut self,
        entry: usize,
        generation: u32,
    ) -> Result<DispatchResult, Error> {
        let slots = Rc::clone(&self.slots);
        let slot = slots.slot(self.slot).expect("looked up when the worker was made");
        let Some(len) = self.receive(entry, generation)? else {
            slot.add(Total::Empty, 1);
            return Ok(DispatchResult::Nothing);
        };
        let began_ns = monotonic_ns();
        let opened = self.open(entry, len, slot, began_ns);
        // The slot names its caller.
        slots.inbox(self.slot).expect("as its slot").empty();
        let found = opened.map(|opened| self.answer_to(opened, entry, slot, began_ns));
        slot.idle();
        Ok(found.unwrap_or(DispatchResult::Message))
    }

    /// Takes the next request of any service out of shared memory, if there is one, and serves it.
    #[inline]
    pub(super) fn serve_next(&mut self) -> DispatchResult {
        let slots = Rc::clone(&self.slots);
        let slot = slots.slot(self.slot).expect("looked up when the worker was made");
        let taken = match &mut self.registrations.borrow_mut().sources {
            Sources::Memory(mailbox) => {
                self.inbox.resize(mailbox.message_len_bytes_max(), 0);
                mailbox.take(slot, &mut self.inbox)
            }
            Sources::Queues(_) => None,
        };
        let Some(Taken { entry, len }) = taken else { return DispatchResult::Nothing };
        let began_ns = monotonic_ns();
        let opened = self.open(entry, len, slot, began_ns);
        let is_without_reply = opened.as_ref().is_some_and(|opened| opened.call.is_without_reply);
        let found = opened.map(|opened| self.answer_to(opened, entry, slot, began_ns));
        self.end_request(slot, is_without_reply);
        slot.idle();
        found.unwrap_or(DispatchResult::Message)
    }

    /// Runs the service function, the handler that was offered for it, and sends what it wants sent: `finish`, by `Replies`.
    #[inline]
    fn answer_to(
        &mut self,
        opened: Opened,
        entry: usize,
        slot: Slot<'_>,
        began_ns: u64,
    ) -> DispatchResult {
        slot.add(Total::Calls, 1);
        let Opened { call, incoming, handler } = opened;
        let service = incoming.service;
        let (is_ok, found) = match run(&handler, incoming) {
            Ok(done) => self.finish(slot, &call, done),
            Err(message) => {
                self.fail(slot, &call);
                (false, DispatchResult::Last(Ending::Panicked { service, message }))
            }
        };
        self.ended_ns = monotonic_ns();
        slot.served(entry, is_ok, self.ended_ns.saturating_sub(began_ns));
        if !is_ok {
            slot.add(Total::Failed, 1);
        }
        found
    }

    /// Sends to a queue that was full and is writable.
    pub(super) fn flush(&self, index: usize, generation: u32) {
        if let Sources::Queues(queues) = &mut self.registrations.borrow_mut().sources {
            queues.flush(index, generation);
        }
    }

    /// One message into the inbox; its length.
    fn receive(&mut self, entry: usize, generation: u32) -> Result<Option<usize>, Error> {
        let registrations = self.registrations.borrow();
        let Sources::Queues(Queues { poller, .. }) = &registrations.sources else {
            return Ok(None);
        };
        // Withdrawn by a service function while its event was under way.
        let Some(queue) = poller.queue(entry, generation) else { return Ok(None) };
        let len_bytes = poller.message_len_bytes_max();
        if self.inbox.len() < len_bytes {
            self.inbox.resize(len_bytes, 0);
        }
        let shared = self.slots.inbox(self.slot).expect("as its slot");
        let is_shared = len_bytes <= Inbox::LEN_BYTES_MAX;
        loop {
            let received = if is_shared {
                queue.receive_shared(shared.words())
            } else {
                queue.receive(&mut self.inbox).map(|(len, _)| len)
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
            if let Sources::Memory(mailbox) = &mut self.registrations.borrow_mut().sources {
                mailbox.fail_unread(slot);
            }
            return None;
        };
        let Request { client, call_id, cd, deadline_ns, service, payload, .. } = request;
        let Request { is_without_reply, is_in_transaction, priority, .. } = request;
        let caller =
            Caller { pid: client.pid, context: client.context, call_id, nonce: client.nonce };
        slot.begin(&caller, entry, !is_without_reply, now_ns);
        let call = Call {
            client,
            call_id,
            cd,
            deadline_ns,
            is_without_reply,
            is_in_transaction,
            priority,
        };
        if deadline_ns != 0 && now_ns > deadline_ns {
            slot.add(Total::Late, 1);
            if let Body::Large(reference) = payload.body {
                large::discard(&reference);
            }
            return None;
        }
        let offer = self.offer(entry, &service);
        let filled = offer.map(|offer| (offer, self.spare.fill_beside_info(&payload)));
        let body = payload.body;
        slot.add(Total::PayloadBytes, payload.len_bytes());
        if let Some((Offer { function, handler, .. }, Ok((buffer, call_info)))) = filled {
            let beside = call_info.as_deref().map_or(0, call_info::len_bytes);
            let len_bytes = payload.len_bytes() as usize - beside;
            let incoming = Incoming {
                service,
                function,
                buffer,
                len_bytes,
                call_info,
                is_without_reply,
                is_in_transaction,
                priority,
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
    fn finish(&mut self, slot: Slot<'_>, call: &Call, done: Done) -> (bool, DispatchResult) {
        match done {
            Done::Return(returned) => {
                let is_exit = returned.is_exit();
                let is_ok = self.answer(slot, call, returned);
                (
                    is_ok,
                    if is_exit {
                        DispatchResult::Last(Ending::Exited)
                    } else {
                        DispatchResult::Message
                    },
                )
            }
            Done::Forward { service, buffer, len_bytes, call_info, priority } => {
                let priority = call.priority.changed_by(priority);
                let call = &Call { priority, ..*call };
                let Registrations { replies, sources, .. } = &mut *self.registrations.borrow_mut();
                let transport = sources.transport();
                let data = data(buffer.as_ref(), len_bytes);
                let joined = joined(data, call_info.as_deref());
                let is_on_the_way = match data.map(|data| beside_info(data, &joined)) {
                    Some(data) => replies.forward(transport, slot, call, service, data),
                    None => {
                        fail(transport, slot, call, Code::ServiceError);
                        false
                    }
                };
                self.spare.keep(buffer);
                (is_on_the_way, DispatchResult::Message)
            }
            Done::Continue(number) => {
                let Registrations { continued, sources, .. } =
                    &mut *self.registrations.borrow_mut();
                let transport = sources.transport();
                let ticket = transport.set_aside();
                let is_kept = continued.keep(number, Waiting { call: *call, ticket });
                if !is_kept {
                    transport.take_back(ticket);
                    fail(transport, slot, call, Code::ServiceError);
                }
                (is_kept, DispatchResult::Message)
            }
            Done::NoReturn => {
                self.fail(slot, call);
                (false, DispatchResult::Message)
            }
        }
    }

    /// Sends what other threads of the program answered; how the work ended, if it did.
    pub(super) fn finish_continued(&mut self) -> Option<Ending> {
        let slots = Rc::clone(&self.slots);
        let slot = slots.slot(self.slot).expect("looked up when the worker was made");
        loop {
            let next = self.registrations.borrow_mut().continued.next_answered();
            let (Waiting { call, ticket }, done) = next?;
            self.registrations.borrow_mut().sources.transport().take_back(ticket);
            let (is_ok, found) = self.finish(slot, &call, done);
            self.end_request(slot, call.is_without_reply);
            if !is_ok {
                slot.add(Total::Failed, 1);
            }
            if let DispatchResult::Last(ending) = found {
                return Some(ending);
            }
        }
    }

    /// Answers the callers of calls that no thread has answered, where they do not wait any more at `now_ns`, or all.
    pub(super) fn fail_continued(&mut self, now_ns: Option<u64>) {
        let slots = Rc::clone(&self.slots);
        let slot = slots.slot(self.slot).expect("looked up when the worker was made");
        let over = self.registrations.borrow_mut().continued.take_over(now_ns);
        for Waiting { call, ticket } in over {
            self.registrations.borrow_mut().sources.transport().take_back(ticket);
            if now_ns.is_none() {
                self.fail(slot, &call);
            }
            self.end_request(slot, call.is_without_reply);
        }
    }

    /// The request at hand is over, answered or not.
    fn end_request(&self, slot: Slot<'_>, is_without_reply: bool) {
        if let Sources::Memory(mailbox) = &mut self.registrations.borrow_mut().sources {
            mailbox.end(slot, is_without_reply);
        }
    }

    /// Replies with what `tpreturn` was given; whether that was success.
    fn answer(&mut self, slot: Slot<'_>, call: &Call, returned: Return) -> bool {
        let is_success = returned.is_success();
        let data = data(returned.buffer.as_ref(), returned.len_bytes);
        let joined = joined(data, returned.call_info.as_deref());
        let data = data.map(|data| beside_info(data, &joined));
        let error = match (returned.soft_error, data) {
            (Some(code), _) => Some(code),
            (None, None) => Some(Code::ServiceError),
            (None, Some(_)) if is_success => None,
            (None, Some(_)) => Some(Code::ServiceFailed),
        };
        if !call.is_without_reply {
            let carries = matches!(error, None | Some(Code::ServiceFailed));
            let sent = data.filter(|_| carries).unwrap_or(Outgoing::NONE);
            let Return { rval, urcode, is_abort_only, .. } = returned;
            let status = ReplyStatus { error, rval, urcode, is_abort_only };
            let Registrations { replies, sources, .. } = &mut *self.registrations.borrow_mut();
            replies.reply(sources.transport(), slot, call, status, sent);
        }
        self.spare.keep(returned.buffer);
        is_success && error.is_none()
    }

    /// Answers the caller with TPESVCERR, if it waits.
    fn fail(&self, slot: Slot<'_>, call: &Call) {
        let sources = &mut self.registrations.borrow_mut().sources;
        fail(sources.transport(), slot, call, Code::ServiceError);
    }
}

/// The part of `buffer` that is sent; `None` when it can't be.
fn data(buffer: Option<&Buffer>, len_bytes: usize) -> Option<Outgoing<'_>> {
    let Some(buffer) = buffer else { return Some(Outgoing::NONE) };
    let used = buffer.used_len(len_bytes).ok()?;
    Some(Outgoing {
        buffer_type: Some(buffer.buffer_type()),
        buffer_size_bytes: buffer.size(),
        has_info: false,
        bytes: &buffer.as_bytes()[..used],
    })
}

/// The data with the fields beside them, where there are some.
fn joined(data: Option<Outgoing<'_>>, info: Option<&[u8]>) -> Option<Vec<u8>> {
    Some(call_info::joined(data?.bytes, info?))
}

fn beside_info<'a>(data: Outgoing<'a>, joined: &'a Option<Vec<u8>>) -> Outgoing<'a> {
    match joined {
        Some(bytes) if data.buffer_type.is_some() => Outgoing { has_info: true, bytes, ..data },
        _ => data,
    }
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

/// The buffer that is used again from call to call: a request of the type and size of the last reply's buffer
/// allocates nothing.
#[derive(Debug, Default)]
pub(super) struct Spare(Option<Buffer>);

/// Fields that came beside the data of a request, as they came.
type FieldsBeside = Box<[u8]>;

/// Why a request's data could not be obtained.
#[derive(Debug)]
pub(super) enum Unusable {
    /// The bytes are not of the type that they claim to be.
    Content,
    /// The memfd could not be read: its sender is dead or has released it.
    Gone,
}

impl Spare {
    /// Keeps `buffer` for a later request.
    pub(super) fn keep(&mut self, buffer: Option<Buffer>) {
        if let Some(buffer) = buffer
            && buffer.size() <= KEPT_LEN_BYTES_MAX
        {
            self.0 = Some(buffer);
        }
    }

    /// The data of a request, and the fields that came beside them.
    ///
    /// # Errors
    /// When the data cannot be obtained.
    #[inline]
    pub(super) fn fill_beside_info(
        &mut self,
        payload: &Payload<'_>,
    ) -> Result<(Option<Buffer>, Option<FieldsBeside>), Unusable> {
        if !payload.has_info {
            return Ok((self.fill(payload)?, None));
        }
        let bytes = match payload.body {
            Body::Inline(bytes) => bytes.to_vec(),
            Body::Large(reference) if !large::is_there(&reference) => return Err(Unusable::Gone),
            Body::Large(reference) => {
                large::fetch_all(&reference).map_err(|_| Unusable::Content)?
            }
        };
        let (data, info) = call_info::split(&bytes).ok_or(Unusable::Content)?;
        let data = Payload { has_info: false, body: Body::Inline(data), ..*payload };
        Ok((self.fill(&data)?, Some(info.into())))
    }

    /// The data of a request; `None` when it came without.
    ///
    /// # Errors
    /// When the data cannot be obtained.
    pub(super) fn fill(&mut self, payload: &Payload<'_>) -> Result<Option<Buffer>, Unusable> {
        let Some(kind) = payload.buffer_type else { return Ok(None) };
        let size = payload.buffer_size_bytes.max(payload.len_bytes()) as usize;
        match payload.body {
            Body::Inline(bytes) => self.filled(kind, size, bytes.len(), |room| {
                room.copy_from_slice(bytes);
                Ok(())
            }),
            // Its length is only claimed until then.
            Body::Large(reference) if !large::is_there(&reference) => Err(Unusable::Gone),
            Body::Large(reference) => {
                let len = reference.len_bytes as usize;
                self.filled(kind, size, len, |room| large::fetch(&reference, room))
            }
        }
        .map(Some)
    }

    /// A buffer whose first `len` bytes `fetch` writes.
    fn filled(
        &mut self,
        kind: BufferType,
        size: usize,
        len: usize,
        fetch: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> Result<Buffer, Unusable> {
        let reused = self.0.take_if(|spare| {
            spare.buffer_type() == kind && spare.size() == size && spare.subtype().is_empty()
        });
        let is_new = reused.is_none();
        let mut buffer = match reused {
            Some(buffer) => buffer,
            None => Buffer::new(kind, "", size).map_err(|_| Unusable::Content)?,
        };
        let room = buffer.as_bytes_mut().get_mut(..len).ok_or(Unusable::Content)?;
        fetch(room).map_err(|_| Unusable::Gone)?;
        let checked =
            if is_new { buffer.received(len).map(|()| buffer) } else { refilled(buffer, len) };
        checked.map_err(|_| Unusable::Content)
    }
}

/// Writes over what follows, so that no service sees what was another caller's, and looks at the content.
fn refilled(mut buffer: Buffer, len: usize) -> Result<Buffer, BufferError> {
    buffer.as_bytes_mut()[len..].fill(0);
    match buffer.buffer_type() {
        BufferType::Ubf => {
            UbfMut::adopt(buffer.as_bytes_mut())?;
        }
        BufferType::String | BufferType::Json if buffer.used_len(0)? != len => {
            return Err(BufferError::NoNul { name: buffer.buffer_type().name() });
        }
        _ => {}
    }
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(kind: BufferType, size: u64, bytes: &[u8]) -> Payload<'_> {
        let body = Body::Inline(bytes);
        Payload { buffer_type: Some(kind), buffer_size_bytes: size, has_info: false, body }
    }

    #[test]
    fn memory_is_used_again_and_holds_nothing_of_before() {
        let mut spare = Spare::default();
        let secret = payload(BufferType::Carray, 64, b"a secret of the last caller");
        let first = spare.fill(&secret).expect("good").expect("a buffer");
        let at = first.as_bytes().as_ptr();
        spare.keep(Some(first));
        let second = spare.fill(&payload(BufferType::Carray, 64, b"x")).expect("good");
        let second = second.expect("a buffer");
        assert_eq!(second.as_bytes().as_ptr(), at);
        assert_eq!(second.as_bytes()[0], b'x');
        assert!(second.as_bytes()[1..].iter().all(|byte| *byte == 0));
        spare.keep(Some(second));
        let other = spare.fill(&payload(BufferType::String, 64, b"y\0")).expect("good");
        assert_eq!(other.expect("a buffer").buffer_type(), BufferType::String);
    }

    #[test]
    fn content_that_is_not_of_its_type_is_refused_in_new_and_used_memory() {
        let mut spare = Spare::default();
        for _ in 0..2 {
            let text = payload(BufferType::String, 8, b"no nul");
            assert!(matches!(spare.fill(&text), Err(Unusable::Content)));
            let fields = payload(BufferType::Ubf, 1024, &[7; 100]);
            assert!(matches!(spare.fill(&fields), Err(Unusable::Content)));
            spare.keep(Some(Buffer::new(BufferType::String, "", 8).expect("memory")));
            let text = payload(BufferType::String, 8, b"a\0b\0");
            assert!(matches!(spare.fill(&text), Err(Unusable::Content)));
            spare.keep(Some(Buffer::alloc("UBF", "", 1024).expect("memory")));
        }
    }

    #[test]
    fn a_memfd_that_is_gone_is_an_error_of_its_own() {
        let reference = crate::wire::LargeRef { pid: 1, fd: 9999, inode: 1, len_bytes: 5 };
        let body = Body::Large(reference);
        let payload = Payload { body, ..payload(BufferType::Carray, 5, b"") };
        assert!(matches!(Spare::default().fill(&payload), Err(Unusable::Gone)));
        assert!(matches!(Spare::default().fill(&Payload::NONE), Ok(None)));
    }
}
