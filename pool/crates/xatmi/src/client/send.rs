//! Requests on their way out: written, sent by a [`Transport`](super::transport::Transport), room waited for, calls opened.
//!
//! `send_call` ─► `submit` ─► `send_when_room` ─► in memory `client/mailbox.rs`, `try_send`, by queues `client/queues.rs`, `send`; there a
//! worker is woken, whose side begins in `worker/dispatch.rs`, `serve_next` or `serve_queue`.

use super::out_calls::descriptor_of;
use super::poll_lock::Guard;
use super::transport::{Message, RoomWait, SendError, not_offered};
use super::{CallFlags, Client, Descriptor, Outgoing, after, interrupted, late};
use crate::error::{Code, Error};
use crate::priority::Priority;
use crate::queue::{ServiceName, monotonic_ns};
use crate::wire::{Body, PAYLOAD_LEN_BYTES_MAX, Payload, Request};

/// How long room is waited for before the queue is looked at anew: it may have been withdrawn,
/// without a worker that could make room.
const LOOK_AGAIN_NS: u64 = 1_000_000_000;

/// How long the payload of a large request without a time limit waits for a worker, a day: that of
/// a worker that was killed is not released otherwise.
const HELD_NS_MAX: u64 = 24 * 3600 * 1_000_000_000;

/// A request that is to be sent.
pub(super) struct OutgoingCall {
    service: ServiceName,
    flags: CallFlags,
    pub(super) call_id: u64,
    begun_ns: u64,
    /// 0 for never.
    pub(super) deadline_ns: u64,
    /// The memfd that its payload is in; 0 for none.
    pub(super) large_inode: u64,
    priority: Priority,
    /// It begins a conversation: the service sees a descriptor below 0.
    pub(super) is_conversation: bool,
    /// Its reply is waited for at once.
    is_awaited: bool,
}

impl OutgoingCall {
    fn cd(&self) -> i32 {
        let number = descriptor_of(self.call_id).number();
        if self.is_conversation { -number } else { number }
    }
}

impl Client {
    /// Sends a request whose reply is to be waited for later: `tpacall`.
    ///
    /// Waits while the queue is full, until the time for the call is over. Replies that came
    /// meanwhile are taken out of the reply queue, so that no worker waits for it.
    ///
    /// # Errors
    /// TPENOENT when the service is not offered, TPEBLOCK when TPNOBLOCK is given and its queue is full or
    /// too many large payloads are out, TPETIME when the queue stayed full, TPELIMIT when too many calls or, without
    /// TPNOBLOCK, large payloads are out, TPGOTSIG, TPEINVAL for flags or a buffer that make no sense, TPEOS, TPESYSTEM.
    pub fn send_request(
        &mut self,
        service: &str,
        request: Outgoing<'_>,
        flags: CallFlags,
    ) -> Result<Descriptor, Error> {
        if flags.contains(CallFlags::NO_REPLY) {
            let detail = "a request with TPNOREPLY has no descriptor: use send_only";
            return Err(Error::new(Code::Invalid, detail));
        }
        self.send_call(service, request, flags, false).map(descriptor_of)
    }

    /// The same, with the number of the call. `is_awaited`: its reply is waited for at once.
    pub(super) fn send_call(
        &mut self,
        service: &str,
        request: Outgoing<'_>,
        flags: CallFlags,
        is_awaited: bool,
    ) -> Result<u64, Error> {
        if self.calls.out() > 0 {
            self.take_arrived()?;
        }
        let mut order = self.order(service, flags)?;
        order.is_awaited = is_awaited;
        order.call_id = self.calls.open(order.deadline_ns)?;
        if let Err(error) = self.submit(&mut order, request) {
            self.calls.close(order.call_id);
            return Err(error);
        }
        if let Some(slot) = self.calls.get_mut(order.call_id) {
            slot.large_inode = order.large_inode;
        }
        Ok(order.call_id)
    }

    /// Sends a request without a reply: `tpacall` with TPNOREPLY.
    ///
    /// # Errors
    /// As [`send_request`](Self::send_request), but for the limit on calls.
    pub fn send_only(
        &mut self,
        service: &str,
        request: Outgoing<'_>,
        flags: CallFlags,
    ) -> Result<(), Error> {
        let mut order = self.order(service, flags | CallFlags::NO_REPLY)?;
        order.call_id = self.calls.unanswered_id();
        self.submit(&mut order, request)
    }

    pub(super) fn order(&mut self, service: &str, flags: CallFlags) -> Result<OutgoingCall, Error> {
        let timeout = self.next_timeout.take().unwrap_or(self.timeout);
        let service = ServiceName::new(service).ok_or_else(|| not_offered(service))?;
        let begun_ns = monotonic_ns();
        let is_endless = flags.contains(CallFlags::NO_TIME);
        let deadline_ns = if is_endless { 0 } else { after(begun_ns, timeout) };
        self.follow_manager(deadline_ns);
        let priority = self.take_priority(&service);
        Ok(OutgoingCall {
            service,
            flags,
            call_id: 0,
            begun_ns,
            deadline_ns,
            large_inode: 0,
            priority,
            is_conversation: false,
            is_awaited: false,
        })
    }

    /// Puts the request into the queue of its service; holds nothing of one that failed. A service that is
    /// not there may be offered by a pool that came after the one which this client knows.
    pub(super) fn submit(
        &mut self,
        order: &mut OutgoingCall,
        request: Outgoing<'_>,
    ) -> Result<(), Error> {
        let followed = self.counters.managers_followed;
        match self.try_submit(order, request) {
            Err(error) if error.code() == Code::NoEntry => {
                let is_new = self.counters.managers_followed != followed
                    || self.await_manager(Some(order.call_id), order.deadline_ns)?;
                if is_new { self.try_submit(order, request) } else { Err(error) }
            }
            done => done,
        }
    }

    fn try_submit(&mut self, order: &mut OutgoingCall, request: Outgoing<'_>) -> Result<(), Error> {
        let len = self.encode_request(order, request)?;
        let sent = self.send_when_room(order, len);
        match &sent {
            Ok(()) => self.counters.sent += 1,
            Err(_) if order.large_inode != 0 => {
                self.outbox.withdraw(std::mem::take(&mut order.large_inode));
            }
            Err(_) => {}
        }
        sent
    }

    /// Hands it to the transport: `Mailbox::send` in memory, `Queues::send` by queues; waits for room and tries again.
    fn send_when_room(&mut self, order: &OutgoingCall, len: usize) -> Result<(), Error> {
        let mut begun_ns = Some(order.begun_ns);
        let mut lock = None;
        loop {
            let message = Message {
                service: order.service,
                call_id: order.call_id,
                wants_reply: !order.flags.contains(CallFlags::NO_REPLY),
                is_awaited: order.is_awaited,
                begun_ns: begun_ns.take(),
                priority: order.priority,
                bytes: &self.outgoing[..len],
            };
            match self.transport.send(&message) {
                Ok(()) => return Ok(()),
                Err(SendError::Failed(error)) => return Err(error),
                Err(SendError::Full) if order.flags.contains(CallFlags::NO_BLOCK) => {
                    return Err(full());
                }
                Err(SendError::Full) => self.wait_for_room(order, &mut lock)?,
            }
        }
    }

    /// Writes the request to `outgoing`, its payload to a memfd if it is too long for that; the
    /// length of the message.
    fn encode_request(
        &mut self,
        order: &mut OutgoingCall,
        request: Outgoing<'_>,
    ) -> Result<usize, Error> {
        let Outgoing { buffer_type, buffer_size_bytes, has_info, bytes } = request;
        if buffer_type.is_none() && !bytes.is_empty() {
            return Err(Error::new(Code::Invalid, "data without a buffer's type"));
        }
        let buffer_size_bytes = buffer_size_bytes.max(bytes.len()) as u64;
        if buffer_size_bytes > PAYLOAD_LEN_BYTES_MAX {
            let detail = format!("a buffer that is sent has at most {PAYLOAD_LEN_BYTES_MAX} bytes");
            return Err(Error::new(Code::Invalid, detail));
        }
        let body = Body::Inline(bytes);
        let mut message = Request {
            client: self.address,
            call_id: order.call_id,
            cd: order.cd(),
            deadline_ns: order.deadline_ns,
            is_without_reply: order.flags.contains(CallFlags::NO_REPLY),
            is_in_transaction: order.flags.contains(CallFlags::TRANSACTION),
            priority: order.priority,
            service: order.service,
            payload: Payload { buffer_type, buffer_size_bytes, has_info, body },
        };
        if let Some(len) = message.encode(&mut self.outgoing) {
            return Ok(len);
        }
        let until_ns = match order.deadline_ns {
            0 => order.begun_ns + HELD_NS_MAX,
            deadline_ns => deadline_ns,
        };
        if self.is_guest {
            let len = bytes.len();
            let most = self.outgoing.len();
            let detail = format!(
                "{len} bytes do not fit a message of {most} (NDRX_MSGSIZEMAX of the pool), and longer \
                 requests are for clients of the pool's own user"
            );
            return Err(Error::new(Code::Limit, detail));
        }
        let held = self.outbox.put(bytes, until_ns, None, order.begun_ns);
        let large = held.map_err(|error| match error.code() {
            // A client that can't wait gets the error that a full queue has.
            Code::Limit if order.flags.contains(CallFlags::NO_BLOCK) => {
                Error::new(Code::Block, error.to_string())
            }
            _ => error,
        })?;
        order.large_inode = large.inode;
        message.payload.body = Body::Large(large);
        Ok(message.encode(&mut self.outgoing).expect("a message holds the longest head"))
    }

    /// Waits for room, and takes replies that come meanwhile. `lock` is that of the queue, where there is one.
    fn wait_for_room(
        &mut self,
        order: &OutgoingCall,
        lock: &mut Option<Guard>,
    ) -> Result<(), Error> {
        self.counters.waits_for_room += 1;
        let until_ns = next_check(order)?;
        if self.transport.is_manager_gone() && self.await_manager(Some(order.call_id), 1)? {
            // The message in `outgoing` is for the pool before: the request is written anew.
            return Err(not_offered(order.service.as_str()));
        }
        let own = usize::from(!order.flags.contains(CallFlags::NO_REPLY));
        let awaits_others = self.calls.out() > own;
        match self.transport.wait_for_room(order.service, awaits_others, until_ns, lock)? {
            RoomWait::Again => Ok(()),
            RoomWait::Replies => self.take_arrived(),
            RoomWait::Interrupted => after_signal(order),
        }
    }
}

/// Until when room is waited for before the next check.
fn next_check(order: &OutgoingCall) -> Result<u64, Error> {
    let now_ns = monotonic_ns();
    let deadline_ns = order.deadline_ns;
    if deadline_ns != 0 && now_ns >= deadline_ns {
        return Err(late());
    }
    let look_ns = now_ns + LOOK_AGAIN_NS;
    Ok(if deadline_ns == 0 { look_ns } else { look_ns.min(deadline_ns) })
}

/// The result of a signal in a wait for room.
fn after_signal(order: &OutgoingCall) -> Result<(), Error> {
    let restarts = order.flags.contains(CallFlags::SIGNAL_RESTART);
    if restarts { Ok(()) } else { Err(interrupted()) }
}

fn full() -> Error {
    Error::new(
        Code::Block,
        "the service has as many requests as fit, and TPNOBLOCK forbids to wait",
    )
}
