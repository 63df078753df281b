//! Replies that came: matched to their calls, kept until asked for, delivered. Nothing here waits.
//!
//! A reply belongs to a call if it carries the nonce of this context and the id of a call that is
//! out. Everything else is dropped and counted: a reply to a call that was given up, one for an
//! earlier owner of the queue's name, bytes that are not a reply.

use super::calls::{Kept, descriptor_of};
use super::{Arrived, Arriving, Client, Descriptor, ReplyError};
use crate::error::{Code, Error};
use crate::large;
use crate::wire::{Body, Payload, Reply};

/// The most messages that are taken in one go without waiting: so many replies can be kept, and a
/// queue that is filled with other messages must not hold the caller for ever.
pub(super) const TAKEN_AT_ONCE_MAX: usize = super::DESCRIPTORS_MAX;

impl Client {
    /// Takes what is in the reply queue and keeps it until it is asked for.
    pub(super) fn take_arrived(&mut self) -> Result<(), Error> {
        for _ in 0..TAKEN_AT_ONCE_MAX {
            let Some(len) = self.transport.take(&mut self.incoming).map_err(broken)? else { break };
            self.keep_if_known(len);
        }
        Ok(())
    }

    /// Keeps the message in `incoming` if it answers a call that is out.
    pub(super) fn keep_if_known(&mut self, len: usize) {
        if let Some(call_id) = self.recognise(len) {
            self.keep_incoming(call_id, len);
        }
    }

    /// The call that the message in `incoming` answers; any other message is dropped.
    pub(super) fn recognise(&mut self, len: usize) -> Option<u64> {
        let Ok(reply) = Reply::decode(&self.incoming[..len]) else {
            self.counters.malformed += 1;
            return None;
        };
        if reply.nonce != self.address.nonce {
            self.counters.foreign += 1;
            discard(&reply.payload);
            return None;
        }
        if !self.calls.is_out(reply.call_id) {
            self.counters.late += 1;
            discard(&reply.payload);
            return None;
        }
        Some(reply.call_id)
    }

    /// Drops the reply in `incoming`, which came before its call was given up.
    pub(super) fn drop_late(&mut self, len: usize) {
        if let Ok(reply) = Reply::decode(&self.incoming[..len]) {
            self.counters.late += 1;
            discard(&reply.payload);
        }
    }

    /// Keeps the reply in `incoming`, with its data, for when its call is asked for.
    pub(super) fn keep_incoming(&mut self, call_id: u64, len: usize) {
        let Ok(reply) = Reply::decode(&self.incoming[..len]) else { return };
        let kept = match reply.payload.body {
            Body::Inline(bytes) => Kept::new(&reply, bytes.to_vec()),
            Body::Large(place) => match large::fetch_all(&place) {
                Ok(bytes) => Kept::new(&reply, bytes),
                Err(_) => {
                    let failed = Reply::failing(self.address.nonce, call_id, Code::ServiceError);
                    Kept::new(&failed, Vec::new())
                }
            },
        };
        self.calls.keep(call_id, kept);
        self.counters.kept += 1;
    }

    /// Delivers the reply in `incoming` to its call, which ends.
    pub(super) fn deliver_incoming<'b>(
        &mut self,
        call_id: u64,
        len: usize,
        room: impl FnOnce(&Arriving) -> Result<&'b mut [u8], Error>,
    ) -> Result<Arrived, ReplyError> {
        self.end(call_id);
        let descriptor = descriptor_of(call_id);
        let reply = Reply::decode(&self.incoming[..len]);
        let reply = reply.expect("it was read when it was recognised");
        self.urcode = reply.urcode;
        if reply.error == Some(Code::NoEntry) {
            // Withdrawn: the service may be offered again, by another queue, before the look ages.
            self.transport.close_withdrawn();
        }
        hand_over(descriptor, &reply, room).map_err(|error| of(Some(descriptor), error))
    }

    /// Delivers the reply that was kept for a call, which ends.
    pub(super) fn deliver_kept<'b>(
        &mut self,
        call_id: u64,
        room: impl FnOnce(&Arriving) -> Result<&'b mut [u8], Error>,
    ) -> Result<Arrived, ReplyError> {
        let descriptor = descriptor_of(call_id);
        let kept = self.end(call_id).expect("the caller saw that its reply is kept");
        let payload = Payload {
            buffer_type: kept.buffer_type,
            buffer_size_bytes: kept.buffer_size_bytes,
            body: Body::Inline(&kept.bytes),
        };
        let Kept { error, rval, urcode, .. } = kept;
        let reply = Reply { nonce: self.address.nonce, call_id, error, rval, urcode, payload };
        self.urcode = urcode;
        if error == Some(Code::NoEntry) {
            self.transport.close_withdrawn();
        }
        hand_over(descriptor, &reply, room).map_err(|error| of(Some(descriptor), error))
    }

    /// Ends an answered call, whose request was read.
    fn end(&mut self, call_id: u64) -> Option<Kept> {
        self.counters.delivered += 1;
        let (slot, kept) = self.calls.close(call_id)?;
        if slot.large_inode != 0 {
            self.outbox.release(slot.large_inode);
        }
        kept
    }

    /// Ends a call whose reply nobody waits for any more.
    pub(super) fn give_up(&mut self, call_id: u64) {
        self.calls.close(call_id);
        if let Some(len) = self.transport.give_up(call_id, &mut self.incoming) {
            self.drop_late(len);
        }
    }
}

/// Writes the data of a reply to the memory of its caller.
fn hand_over<'b>(
    descriptor: Descriptor,
    reply: &Reply<'_>,
    room: impl FnOnce(&Arriving) -> Result<&'b mut [u8], Error>,
) -> Result<Arrived, Error> {
    let is_failure = reply.error == Some(Code::ServiceFailed);
    if let Some(code) = reply.error
        && !is_failure
    {
        discard(&reply.payload);
        return Err(Error::new(code, said(code)));
    }
    let len_bytes = reply.payload.len_bytes() as usize;
    let payload = Arriving {
        buffer_type: reply.payload.buffer_type,
        buffer_size_bytes: (reply.payload.buffer_size_bytes as usize).max(len_bytes),
        len_bytes,
    };
    let place = room(&payload).inspect_err(|_| discard(&reply.payload))?;
    assert_eq!(place.len(), len_bytes, "room for the reply and no more");
    match reply.payload.body {
        Body::Inline(bytes) => place.copy_from_slice(bytes),
        Body::Large(large) => large::fetch(&large, place).map_err(|source| {
            let detail = "the payload of the reply cannot be read from its sender";
            Error::caused(Code::ServiceError, detail, source)
        })?,
    }
    Ok(Arrived { descriptor, is_failure, rval: reply.rval, urcode: reply.urcode, payload })
}

fn discard(payload: &Payload<'_>) {
    if let Body::Large(place) = payload.body {
        large::discard(&place);
    }
}

/// The error of an error number in a reply.
fn said(code: Code) -> &'static str {
    match code {
        Code::ServiceError => "the service ended without a reply, or its reply could not be made",
        Code::NoEntry => "the service was withdrawn before the request was served",
        Code::InputType => "the service does not take this type of buffer",
        Code::OutputType => "the service does not give a buffer of the type that is wanted",
        Code::Time => "the service reported that its time is over",
        _ => "the service reported it",
    }
}

pub(super) fn of(descriptor: Option<Descriptor>, error: Error) -> ReplyError {
    ReplyError { descriptor, error }
}

pub(super) fn broken(source: std::io::Error) -> Error {
    Error::os("the reply queue cannot be read", source)
}
