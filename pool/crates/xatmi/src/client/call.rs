//! A request and what comes of it in one: a call, which waits for the reply; a request that is sent and not waited for; the begin
//! of a conversation, which waits for the service to join, or for a reply in its place.
//!
//! A call goes `send.rs` (out) ─► in memory `client/mailbox.rs`, by queues `client/queues.rs` ─► the worker,
//! `worker/dispatch.rs` ─► `receive.rs` (back), here as elsewhere. Calls are there with the caller's own memory for the
//! reply, and on those with a [`Buffer`] each way.

use std::time::Duration;

use super::out_calls::descriptor_of;
use super::receive::{answered, room};
use super::send::OutgoingCall;
use super::{
    Answer, Arrived, Arriving, CallError, CallFlags, Client, Descriptor, Outgoing, Which, late,
};
use crate::buffer::{Buffer, BufferType};
use crate::conversation::{Conversation, Rendezvous};
use crate::error::{Code, Error};
use crate::queue::monotonic_ns;

/// How often it is checked whether the request for a conversation was answered instead of joined.
const RENDEZVOUS_CHECK: Duration = Duration::from_millis(20);

impl Client {
    /// Sends a request and waits for its reply, which is written to the memory that `room` gives
    /// for it: `tpcall`.
    ///
    /// `room` is called once, when the reply is there, and must return exactly as many bytes as it
    /// is given. The call is over afterwards, whatever came of it. TPNOBLOCK forbids to wait for
    /// room in the queue only; TPNOREPLY and TPGETANY have no meaning here.
    ///
    /// The way: `send_call` (`send.rs`), then `wait_until` (`receive.rs`).
    ///
    /// # Errors
    /// Those of [`send_request`](Self::send_request), of
    /// [`wait_reply`](Self::wait_reply) and of `room`.
    pub fn call_into<'b>(
        &mut self,
        service: &str,
        request: Outgoing<'_>,
        flags: CallFlags,
        room: impl FnOnce(&Arriving) -> Result<&'b mut [u8], Error>,
    ) -> Result<Arrived, Error> {
        let sending = flags.without(CallFlags::NO_REPLY);
        let call_id = self.send_call(service, request, sending, true)?;
        let deadline_ns = self.calls.get_mut(call_id).map_or(0, |slot| slot.deadline_ns);
        let waiting = flags.without(CallFlags::NO_BLOCK);
        let arrived = self.wait_until(Some(call_id), deadline_ns, waiting, room);
        if arrived.is_err() {
            self.give_up(call_id);
        }
        arrived.map_err(Error::from)
    }

    /// Calls a service and waits for its answer; `tpcall`. All of a buffer of bytes is sent. With
    /// TPNOCHANGE the answer must have the type of the request.
    ///
    /// # Errors
    /// [`CallError::Failed`] with the service's buffer, else as
    /// [`call_into`](Self::call_into); TPESVCERR when the answer is not of its type, TPEOTYPE when
    /// TPNOCHANGE is given and it is of another type.
    pub fn call(
        &mut self,
        service: &str,
        request: &Buffer,
        flags: CallFlags,
    ) -> Result<Answer, CallError> {
        let only = Some(request.buffer_type()).filter(|_| flags.contains(CallFlags::NO_CHANGE));
        let request = Outgoing::of(request, request.size())?;
        let mut buffer = None;
        let arrived = self.call_into(service, request, flags, |arriving| {
            match (arriving.buffer_type, only) {
                (Some(came), Some(only)) if came != only => Err(other_type(came, only)),
                _ => room(&mut buffer, arriving),
            }
        })?;
        answered(&arrived, buffer)
    }

    /// Sends a request and does not wait; `tpacall`. All of a buffer of bytes is sent.
    ///
    /// # Errors
    /// As [`send_request`](Self::send_request).
    pub fn call_async(
        &mut self,
        service: &str,
        request: &Buffer,
        flags: CallFlags,
    ) -> Result<Descriptor, Error> {
        self.send_request(service, Outgoing::of(request, request.size())?, flags)
    }

    /// Begins a conversation: `tpconnect`. This side has control, or the service has.
    ///
    /// The descriptor is the conversation's; no reply comes for it.
    ///
    /// # Errors
    /// As [`send_request`](Self::send_request); TPESVCERR when the service ended before it had joined,
    /// TPETIME when it has not joined in the time of a call.
    pub fn converse(
        &mut self,
        service: &str,
        request: Outgoing<'_>,
        has_control: bool,
        flags: CallFlags,
    ) -> Result<(Descriptor, Conversation), Error> {
        if self.calls.out() > 0 {
            self.take_arrived()?;
        }
        let mut order = self.order(service, flags.without(CallFlags::NO_REPLY))?;
        order.is_conversation = true;
        order.call_id = self.calls.open(order.deadline_ns)?;
        let begun = self.await_service(&mut order, request, has_control, flags);
        // The reply of the worker when the service has ended is ignored.
        self.give_up(order.call_id);
        Ok((descriptor_of(order.call_id), begun?))
    }

    fn await_service(
        &mut self,
        order: &mut OutgoingCall,
        request: Outgoing<'_>,
        has_control: bool,
        flags: CallFlags,
    ) -> Result<Conversation, Error> {
        let descriptor = descriptor_of(order.call_id);
        let rendezvous = Rendezvous::open(&self.prefix, &self.address, descriptor.number())?;
        self.submit(order, request)?;
        let joined = loop {
            match rendezvous.take(RENDEZVOUS_CHECK, self.group.as_ref()) {
                Ok(Some(socket)) => break Ok(socket),
                Ok(None) => {}
                Err(error) if error.code() == Code::GotSignal => {
                    if !flags.contains(CallFlags::SIGNAL_RESTART) {
                        break Err(error);
                    }
                }
                Err(error) => break Err(error),
            }
            // A request that will not be served is answered as every request.
            let answer = self.wait_reply(Which::One(descriptor), CallFlags::NO_BLOCK, |_| {
                Err(Error::new(Code::Protocol, "the service answers calls and does not converse"))
            });
            match answer {
                Err(failed) if failed.code() == Code::Block => {}
                Err(failed) if failed.code() == Code::Protocol => {
                    let detail = "the service does not converse: it answers calls, or it is that of \
                                  another pool, and bridges carry no conversations";
                    break Err(Error::new(Code::Protocol, detail));
                }
                Err(failed) => break Err(failed.error),
                Ok(_) => break Err(Error::new(Code::ServiceError, "the service did not converse")),
            }
            if order.deadline_ns != 0 && monotonic_ns() >= order.deadline_ns {
                break Err(late());
            }
        };
        // A service that did not join may still read it.
        if order.large_inode != 0 && joined.is_ok() {
            self.outbox.release(order.large_inode);
        }
        Conversation::begin(joined?, has_control)
    }
}

fn other_type(came: BufferType, only: BufferType) -> Error {
    let came = came.name();
    let only = only.name();
    let detail = format!("the answer is {came}, and TPNOCHANGE allows only {only}");
    Error::new(Code::OutputType, detail)
}
