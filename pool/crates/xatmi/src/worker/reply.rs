//! What goes back for a request, one path for every transport: a reply, an error, or the request itself, on to another
//! service.
//!
//! ```text
//!  a service function ended (dispatch) ──► Replies::reply / forward ──► Transport::send (queues.rs | mailbox.rs)
//!                                             │ data too long for a message: a memfd      │
//!                                             ▼                                           ▼
//!                                         withdrawn again, unless the message is on its way: Posted
//! ```
//!
//! Where a reply goes to a caller that died, or does not wait any more: nowhere. It is dropped, its memfd is closed,
//! and the slot of the worker counts it (`Total::Gone`); nobody is notified. How each transport knows:
//!
//! | when the caller died | by queues | in memory |
//! |---|---|---|
//! | before the reply is sent | its reply queue has no name: `send` says `NoReceiver` | its request is abandoned: `send` says `NoReceiver` and frees it |
//! | while the reply waits for room | the manager has workers `sweep`: `Queues::close_abandoned` | no reply waits: it overwrites its request |
//! | when the reply is there | the manager removes the queue | the manager frees the request |
//!
//! A *worker* that dies is the manager's affair: `worker_died` in `pool/crates/xatmi/src/pool/workers.rs`.

use std::os::fd::BorrowedFd;

use crate::client::Outgoing;
use crate::error::{Code, Error};
use crate::large::Outbox;
use crate::memory::Ticket;
use crate::priority::Priority;
use crate::queue::{ServiceName, monotonic_ns};
use crate::slots::{Slot, Total};
use crate::wire::{Body, ClientAddress, Payload, Reply, Request};

/// How long a message or payload for a caller without a deadline is kept.
const KEPT_NS_MAX: u64 = 60_000_000_000;

/// The call that a message answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) client: ClientAddress,
    pub(super) call_id: u64,
    pub(super) cd: i32,
    /// In nanoseconds of the monotonic clock; 0 for none.
    pub(super) deadline_ns: u64,
    pub(super) is_without_reply: bool,
    pub(super) is_in_transaction: bool,
    /// What it is passed on with.
    pub(super) priority: Priority,
}

impl Call {
    /// How long what is sent for it is of use, in nanoseconds of the monotonic clock.
    pub(super) fn kept_until_ns(&self) -> u64 {
        if self.deadline_ns == 0 { monotonic_ns() + KEPT_NS_MAX } else { self.deadline_ns }
    }
}

/// The result in a reply beside the data.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReplyStatus {
    pub(super) error: Option<Code>,
    pub(super) rval: i32,
    pub(super) urcode: i64,
    pub(super) is_abort_only: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Destination {
    /// The caller, with a reply.
    Client(ClientAddress),
    /// Another service, with the request.
    Service(ServiceName),
}

/// The result of sending a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Posted {
    /// It is where it belongs, or waits for room there.
    OnTheWay,
    /// The caller ended or does not wait any more; no worker offers the service.
    NoReceiver,
    /// It is longer than the messages there.
    TooLong,
    /// The service has no room, and none came in time.
    Full,
    /// The machine refuses.
    Failed,
}

/// How requests come to a worker, and how messages leave it: queues, or shared memory.
///
/// Requests are taken by the two loops of `mod.rs`, as the one waits for descriptors and the other for a word in
/// memory; all else is asked for here.
pub(super) trait Transport {
    /// Takes requests for a service from now on.
    ///
    /// # Errors
    /// TPENOENT when the manager has none such, TPEOS.
    fn take_requests_for(&mut self, entry: usize, name: &ServiceName) -> Result<(), Error>;

    /// Takes no more requests for a service.
    fn withdraw(&mut self, entry: usize);

    /// Takes no more requests at all: they wake others from now on.
    fn leave_all(&mut self);

    /// Looks, while it waits, for the program's own descriptor to become readable.
    ///
    /// # Errors
    /// TPEOS.
    fn watch_program(&mut self, program: BorrowedFd<'_>) -> Result<(), Error>;

    /// Looks, while it waits, at the link to the manager.
    ///
    /// # Errors
    /// TPEOS.
    fn watch_link(&mut self, link: BorrowedFd<'_>) -> Result<(), Error>;

    /// Looks at the link no longer. Called before that is closed.
    fn forget_link(&mut self, link: BorrowedFd<'_>);

    /// Bytes of the longest message that any destination takes; one of them may take less.
    fn message_len_bytes_max(&self) -> usize;

    /// Sends a message for `call`, or keeps it until there is room.
    fn send(
        &mut self,
        slot: Slot<'_>,
        destination: Destination,
        call: &Call,
        message: &[u8],
    ) -> Posted;

    /// Answers the caller with an error and no data.
    fn send_error(&mut self, slot: Slot<'_>, call: &Call, code: Code) -> Posted;

    /// The request at hand is answered later, by another thread of the program.
    fn set_aside(&mut self) -> Option<Ticket> {
        None
    }

    /// A request that was set aside is at hand again.
    fn take_back(&mut self, _ticket: Option<Ticket>) {}

    /// When the first message that is kept is dropped, in nanoseconds of the monotonic clock.
    fn first_until_ns(&self) -> Option<u64> {
        None
    }

    /// Drops what was kept too long, and answers the callers of requests that could not be forwarded.
    fn expire(&mut self, _slot: Slot<'_>, _now_ns: u64) {}

    /// Drops what is kept for clients that ended.
    fn sweep(&mut self, _slot: Slot<'_>) {}

    /// Sends what can be sent until `until_ns`. Called before the worker ends.
    fn finish(&mut self, _slot: Slot<'_>, _until_ns: u64) {}
}

/// Sends what service functions want sent.
#[derive(Debug, Default)]
pub(super) struct Replies {
    /// Payloads that are too long for a message.
    outbox: Outbox,
    /// A message that is being written.
    frame: Vec<u8>,
}

impl Replies {
    /// Answers `call`; data that can't be sent turns into TPESVCERR.
    #[inline]
    pub(super) fn reply(
        &mut self,
        transport: &mut dyn Transport,
        slot: Slot<'_>,
        call: &Call,
        status: ReplyStatus,
        data: Outgoing<'_>,
    ) {
        let nonce = call.client.nonce;
        let call_id = call.call_id;
        let ReplyStatus { error, rval, urcode, is_abort_only } = status;
        let encode = |payload: &Payload<'_>, out: &mut [u8]| {
            let payload = *payload;
            Reply { nonce, call_id, error, rval, urcode, is_abort_only, payload }.encode(out)
        };
        let caller = Destination::Client(call.client);
        match self.post(transport, slot, caller, call, data, encode) {
            Posted::OnTheWay => {}
            Posted::NoReceiver => slot.add(Total::Gone, 1),
            Posted::TooLong | Posted::Full | Posted::Failed => {
                fail(transport, slot, call, Code::ServiceError);
            }
        }
    }

    /// Passes `call` on to another service, which answers it; whether it is on the way. If not, the caller was answered
    /// with an error: TPELIMIT where that service has no room, else TPESVCERR.
    pub(super) fn forward(
        &mut self,
        transport: &mut dyn Transport,
        slot: Slot<'_>,
        call: &Call,
        service: ServiceName,
        data: Outgoing<'_>,
    ) -> bool {
        let Call { client, call_id, cd, deadline_ns, is_without_reply, .. } = *call;
        let Call { is_in_transaction, priority, .. } = *call;
        let encode = |payload: &Payload<'_>, out: &mut [u8]| {
            let request = Request {
                client,
                call_id,
                cd,
                deadline_ns,
                is_without_reply,
                is_in_transaction,
                priority,
                service,
                payload: *payload,
            };
            request.encode(out)
        };
        let destination = Destination::Service(service);
        let code = match self.post(transport, slot, destination, call, data, encode) {
            Posted::OnTheWay => return true,
            Posted::Full => Code::Limit,
            Posted::NoReceiver | Posted::TooLong | Posted::Failed => Code::ServiceError,
        };
        fail(transport, slot, call, code);
        false
    }

    /// Writes a message and sends it, its data in a memfd if they are too long for it.
    #[inline]
    fn post(
        &mut self,
        transport: &mut dyn Transport,
        slot: Slot<'_>,
        destination: Destination,
        call: &Call,
        data: Outgoing<'_>,
        encode: impl Fn(&Payload<'_>, &mut [u8]) -> Option<usize>,
    ) -> Posted {
        slot.add(Total::PayloadBytes, data.bytes.len() as u64);
        self.frame.resize(transport.message_len_bytes_max(), 0);
        let payload = Payload {
            buffer_type: data.buffer_type,
            buffer_size_bytes: data.buffer_size_bytes as u64,
            has_info: data.has_info,
            body: Body::Inline(data.bytes),
        };
        if let Some(len) = encode(&payload, &mut self.frame) {
            match transport.send(slot, destination, call, &self.frame[..len]) {
                Posted::TooLong => {}
                posted => return posted,
            }
        }
        let receiver = match destination {
            Destination::Client(client) => Some(client.pid),
            Destination::Service(_) => None,
        };
        let until_ns = call.kept_until_ns();
        let now_ns = monotonic_ns();
        let Ok(large) = self.outbox.put(data.bytes, until_ns, receiver, now_ns) else {
            return Posted::Failed;
        };
        let len = encode(&Payload { body: Body::Large(large), ..payload }, &mut self.frame);
        let posted = len.map_or(Posted::TooLong, |len| {
            transport.send(slot, destination, call, &self.frame[..len])
        });
        if posted != Posted::OnTheWay {
            self.outbox.withdraw(large.inode);
        }
        posted
    }

    /// Drops messages and payloads for clients that ended, and payloads that were read.
    pub(super) fn sweep(&mut self, transport: &mut dyn Transport, slot: Slot<'_>) {
        transport.sweep(slot);
        self.outbox.sweep(monotonic_ns());
    }

    /// Sends what can be sent until `until_ns`, and holds payloads until they are read. Called before the worker ends;
    /// the manager answers the callers of the rest.
    pub(super) fn finish(&mut self, transport: &mut dyn Transport, slot: Slot<'_>, until_ns: u64) {
        transport.finish(slot, until_ns);
        self.outbox.finish(until_ns);
    }
}

/// Answers the caller with an error, if it waits for an answer.
pub(super) fn fail(transport: &mut dyn Transport, slot: Slot<'_>, call: &Call, code: Code) {
    if call.is_without_reply {
        return;
    }
    match transport.send_error(slot, call, code) {
        Posted::OnTheWay => {}
        Posted::NoReceiver => slot.add(Total::Gone, 1),
        Posted::TooLong | Posted::Full | Posted::Failed => slot.add(Total::Dropped, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::BufferType;
    use crate::slots::Slots;

    /// Takes messages up to a length, and says of them what the test wants.
    #[derive(Default)]
    struct Scripted {
        said: Option<Posted>,
        said_of_errors: Option<Posted>,
        sent: Vec<(Destination, Vec<u8>)>,
        errors: Vec<Code>,
    }

    const LEN_BYTES_MAX: usize = 256;

    impl Transport for Scripted {
        fn take_requests_for(&mut self, _: usize, _: &ServiceName) -> Result<(), Error> {
            Ok(())
        }
        fn withdraw(&mut self, _: usize) {}
        fn leave_all(&mut self) {}
        fn watch_program(&mut self, _: BorrowedFd<'_>) -> Result<(), Error> {
            Ok(())
        }
        fn watch_link(&mut self, _: BorrowedFd<'_>) -> Result<(), Error> {
            Ok(())
        }
        fn forget_link(&mut self, _: BorrowedFd<'_>) {}
        fn message_len_bytes_max(&self) -> usize {
            LEN_BYTES_MAX
        }
        fn send(&mut self, _: Slot<'_>, to: Destination, _: &Call, message: &[u8]) -> Posted {
            self.sent.push((to, message.to_vec()));
            self.said.unwrap_or(Posted::OnTheWay)
        }
        fn send_error(&mut self, _: Slot<'_>, _: &Call, code: Code) -> Posted {
            self.errors.push(code);
            self.said_of_errors.unwrap_or(Posted::OnTheWay)
        }
    }

    const CALL: Call = Call {
        client: ClientAddress { pid: 1, context: 2, nonce: 3 },
        call_id: 4,
        cd: 5,
        deadline_ns: 0,
        is_without_reply: false,
        is_in_transaction: false,
        priority: Priority::USUAL,
    };

    fn carray(bytes: &[u8]) -> Outgoing<'_> {
        let buffer_type = Some(BufferType::Carray);
        Outgoing { buffer_type, buffer_size_bytes: bytes.len(), has_info: false, bytes }
    }

    #[test]
    fn a_reply_to_a_caller_that_died_is_dropped_and_counted() {
        let slots = Slots::create(1).expect("memory");
        let slot = slots.slot(0).expect("one");
        let mut transport = Scripted { said: Some(Posted::NoReceiver), ..Scripted::default() };
        let mut replies = Replies::default();
        let status = ReplyStatus::default();
        replies.reply(&mut transport, slot, &CALL, status, carray(b"short"));
        replies.reply(&mut transport, slot, &CALL, status, carray(&[7; 1_000]));
        assert_eq!(slot.totals()[Total::Gone], 2);
        assert_eq!(slot.totals()[Total::Dropped], 0);
        assert!(transport.errors.is_empty(), "nobody is there to receive one");
        assert!(replies.outbox.is_empty(), "its payload is held for nobody");
    }

    #[test]
    fn data_longer_than_a_message_goes_by_a_memfd() {
        let slots = Slots::create(1).expect("memory");
        let slot = slots.slot(0).expect("one");
        let mut transport = Scripted::default();
        let mut replies = Replies::default();
        replies.reply(&mut transport, slot, &CALL, ReplyStatus::default(), carray(&[7; 1_000]));
        assert_eq!(replies.outbox.len(), 1);
        let (to, message) = &transport.sent[0];
        assert_eq!(*to, Destination::Client(CALL.client));
        let reply = Reply::decode(message).expect("a reply");
        assert!(matches!(reply.payload.body, Body::Large(large) if large.len_bytes == 1_000));
    }

    #[test]
    fn a_forward_that_fails_is_an_error_for_a_caller_that_waits() {
        let slots = Slots::create(1).expect("memory");
        let slot = slots.slot(0).expect("one");
        let mut replies = Replies::default();
        let service = ServiceName::new("NEXT").expect("a name");
        let outcomes = [
            (Posted::Full, Code::Limit),
            (Posted::NoReceiver, Code::ServiceError),
            (Posted::TooLong, Code::ServiceError),
            (Posted::Failed, Code::ServiceError),
        ];
        for (said, code) in outcomes {
            let said = Some(said);
            let mut transport = Scripted { said, ..Scripted::default() };
            let is_on = replies.forward(&mut transport, slot, &CALL, service, Outgoing::NONE);
            assert!(!is_on);
            assert_eq!(transport.errors, [code], "{said:?}");
            transport.errors.clear();
            let call = Call { is_without_reply: true, ..CALL };
            assert!(!replies.forward(&mut transport, slot, &call, service, Outgoing::NONE));
            assert!(transport.errors.is_empty(), "{said:?}");
        }
        let said_of_errors = Some(Posted::NoReceiver);
        let mut transport =
            Scripted { said: Some(Posted::NoReceiver), said_of_errors, ..Scripted::default() };
        assert!(!replies.forward(&mut transport, slot, &CALL, service, Outgoing::NONE));
        assert_eq!(slot.totals()[Total::Gone], 1, "the caller died meanwhile");
    }
}
