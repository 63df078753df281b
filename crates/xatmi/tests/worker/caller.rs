//! A client made of bare queues: it sends what it is told to and reads when it wants to.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use pollux_sys::mqueue::{MessageQueue, QueueSize};
use pollux_xatmi::buffer::BufferType;
use pollux_xatmi::error::Code;
use pollux_xatmi::queue::{Prefix, ServiceName};
use pollux_xatmi::wire::{Body, ClientAddress, Payload, Reply, Request};

use crate::stand_in::{MESSAGE_LEN_BYTES, StandIn};

/// One context.
pub(crate) struct Caller {
    prefix: Prefix,
    pub(crate) address: ClientAddress,
    replies: MessageQueue,
    calls: u64,
}

/// A reply, with its data copied.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) call_id: u64,
    pub(crate) error: Option<Code>,
    pub(crate) urcode: i64,
    pub(crate) bytes: Vec<u8>,
}

/// What is special about a call.
#[derive(Clone, Copy, Default)]
pub(crate) struct How {
    pub(crate) deadline_ns: u64,
    pub(crate) is_without_reply: bool,
}

static CONTEXTS: AtomicU32 = AtomicU32::new(1 << 20);

impl Caller {
    /// A context with room for `depth` replies.
    pub(crate) fn new(prefix: &Prefix, depth: u32) -> Self {
        Self::with_messages(prefix, depth, MESSAGE_LEN_BYTES)
    }

    /// The same, whose messages are of another length than those of the services.
    pub(crate) fn with_messages(prefix: &Prefix, depth: u32, message_len_bytes: u32) -> Self {
        let context = CONTEXTS.fetch_add(1, Ordering::Relaxed);
        let address =
            ClientAddress { pid: std::process::id(), context, nonce: 7 << 32 | u64::from(context) };
        let size = QueueSize { messages_max: depth, message_len_bytes };
        let name = prefix.reply_queue(address.pid, context);
        let replies = MessageQueue::create(&name, size).expect("a reply queue");
        Self { prefix: prefix.clone(), address, replies, calls: 0 }
    }

    /// Sends a request as it is; its call id, or the error of a full queue.
    pub(crate) fn try_send(
        &mut self,
        service: &str,
        payload: Payload<'_>,
        how: How,
    ) -> io::Result<u64> {
        let service = ServiceName::new(service).expect("a name");
        let queue = MessageQueue::open(&self.prefix.service_queue(&service)).expect("advertised");
        self.calls += 1;
        let request = Request {
            client: self.address,
            call_id: self.calls,
            cd: 1,
            deadline_ns: how.deadline_ns,
            is_without_reply: how.is_without_reply,
            service,
            payload,
        };
        let mut out = vec![0; MESSAGE_LEN_BYTES as usize];
        let len = request.encode(&mut out).expect("it fits");
        queue.send(&out[..len], 0).map(|()| self.calls)
    }

    /// Sends bytes, waiting for room as a client does.
    pub(crate) fn send(&mut self, stand_in: &mut StandIn, service: &str, bytes: &[u8]) -> u64 {
        self.send_how(stand_in, service, bytes, How::default())
    }

    pub(crate) fn send_how(
        &mut self,
        stand_in: &mut StandIn,
        service: &str,
        bytes: &[u8],
        how: How,
    ) -> u64 {
        let mut sent = None;
        stand_in.wait_for("room in a service queue", |_| {
            sent = self.try_send(service, carray(bytes), how).ok();
            sent.is_some()
        });
        sent.expect("waited for")
    }

    /// The next reply, if one is there.
    pub(crate) fn take(&self) -> Option<Answer> {
        let mut message = vec![0; MESSAGE_LEN_BYTES as usize];
        let (len, _) = self.replies.receive(&mut message).ok()?;
        let reply = Reply::decode(&message[..len]).expect("a reply");
        assert_eq!(reply.nonce, self.address.nonce, "somebody else's reply");
        let bytes = match reply.payload.body {
            Body::Inline(bytes) => bytes.to_vec(),
            Body::Large(large) => {
                let mut room = vec![0; large.len_bytes as usize];
                pollux_xatmi::large::fetch(&large, &mut room).expect("held by the worker");
                room
            }
        };
        Some(Answer { call_id: reply.call_id, error: reply.error, urcode: reply.urcode, bytes })
    }

    /// The next reply, waited for.
    pub(crate) fn answer(&self, stand_in: &mut StandIn) -> Answer {
        let mut answer = None;
        stand_in.wait_for("a reply", |_| {
            answer = self.take();
            answer.is_some()
        });
        answer.expect("waited for")
    }

    /// A call from end to end.
    pub(crate) fn call(&mut self, stand_in: &mut StandIn, service: &str, bytes: &[u8]) -> Answer {
        let call_id = self.send(stand_in, service, bytes);
        let answer = self.answer(stand_in);
        assert_eq!(answer.call_id, call_id);
        answer
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let name = self.prefix.reply_queue(self.address.pid, self.address.context);
        // Some tests take the name away themselves.
        let _ = MessageQueue::unlink(&name);
    }
}

pub(crate) fn carray(bytes: &[u8]) -> Payload<'_> {
    let (buffer_type, buffer_size_bytes) = (Some(BufferType::Carray), 64.max(bytes.len() as u64));
    Payload { buffer_type, buffer_size_bytes, body: Body::Inline(bytes) }
}
