//! Replies: waited for, matched to the call that they answer, kept or delivered. `call.rs` is the shortest way here.
//!
//! A reply belongs to a call if it carries the nonce of this context and the id of a call that is
//! out. Everything else is dropped and counted: a reply to a call that was given up, one for an
//! earlier owner of the queue's name, bytes that are not a reply.
//!
//! Those that are delivered are written to the caller's own memory, or to a [`Buffer`]: what a service sent is checked before it is given
//! out as fields or text.

use std::fmt;

use super::out_calls::{DESCRIPTORS_MAX, Kept, descriptor_of};
use super::{
    Arrived, Arriving, CallFlags, Client, Descriptor, ReplyError, Which, after, interrupted, late,
};
use crate::buffer::Buffer;
use crate::error::{Code, Error};
use crate::large;
use crate::queue::{Waited, monotonic_ns};
use crate::wire::{Body, Payload, Reply};

/// The most messages that are taken in one go without waiting: so many replies can be kept, and a
/// queue that is filled with other messages must not hold the caller for ever.
const TAKEN_AT_ONCE_MAX: usize = DESCRIPTORS_MAX;

/// The reply of a service.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its buffer, if it returned one.
    pub buffer: Option<Buffer>,
    /// How much of the buffer was sent; of use for bytes, which do not know their length.
    pub len_bytes: usize,
    /// The call that was answered; used up now.
    pub descriptor: Descriptor,
    /// The first argument of `tpreturn`.
    pub rval: i32,
    /// The value of `tpreturn` for `tpurcode`.
    pub urcode: i64,
}

/// Why a call did not succeed.
#[derive(Debug)]
pub enum CallError {
    /// The service returned TPFAIL: TPESVCFAIL, with its buffer.
    Failed(Answer),
    Error(Error),
}

impl CallError {
    /// The kind of error.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Failed(_) => Code::ServiceFailed,
            Self::Error(error) => error.code(),
        }
    }
}

impl From<Error> for CallError {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(answer) => {
                write!(f, "TPESVCFAIL: the service failed with the code {}", answer.urcode)
            }
            Self::Error(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CallError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Failed(_) => None,
            Self::Error(error) => std::error::Error::source(error),
        }
    }
}

impl Client {
    /// Waits for a reply, which is written to the memory that `room` gives for it: `tpgetrply`.
    ///
    /// `room` is called once, when the reply is there, and must return exactly as many bytes as it
    /// is given. Replies to other calls are kept for them. A wait for one call lasts until that
    /// call's time is over; a further wait afterwards lasts as long as a call may take. A wait
    /// for any reply lasts as long as a call may take.
    ///
    /// # Errors
    /// TPEBADDESC when no such call, or for [`Which::Any`] none at all, is out; TPETIME and
    /// TPGOTSIG, after which the call may be asked for again; TPEBLOCK when TPNOBLOCK is given,
    /// none is there and the call's time is not over; what the reply carries (TPESVCERR, TPENOENT, ...); TPESVCERR when its
    /// payload cannot be read; errors of `room`; TPEOS.
    pub fn wait_reply<'b>(
        &mut self,
        which: Which,
        flags: CallFlags,
        room: impl FnOnce(&Arriving) -> Result<&'b mut [u8], Error>,
    ) -> Result<Arrived, ReplyError> {
        let next_timeout = self.next_timeout.take();
        let timeout = next_timeout.unwrap_or(self.timeout);
        let (wanted, kept, call_deadline_ns) = match which {
            Which::One(descriptor) => {
                let call_id = self.calls.find(descriptor);
                let call_id = call_id.ok_or_else(|| reply_error(None, unknown(descriptor)))?;
                let is_kept = !self.calls.is_out(call_id);
                let deadline_ns = self.calls.get_mut(call_id).map_or(0, |slot| slot.deadline_ns);
                (Some(call_id), is_kept.then_some(call_id), deadline_ns)
            }
            Which::Any => (None, self.calls.first_kept(), 0),
        };
        if let Some(call_id) = kept {
            return self.deliver_kept(call_id, room);
        }
        if wanted.is_none() && self.calls.out() == 0 {
            return Err(reply_error(None, nothing_out(flags)));
        }
        let deadline_ns = match next_timeout {
            _ if flags.contains(CallFlags::NO_TIME) => 0,
            None if call_deadline_ns != 0 => call_deadline_ns,
            _ => after(monotonic_ns(), timeout),
        };
        let arrived = self.wait_until(wanted, deadline_ns, flags, room);
        if let (Err(failed), Some(call_id)) = (&arrived, wanted)
            && failed.code() == Code::Time
            && let Some(slot) = self.calls.get_mut(call_id)
        {
            // A further wait begins when it is asked for, however long the program does something else before.
            slot.deadline_ns = 0;
        }
        arrived
    }

    /// Waits for the reply to `wanted`, or any, until the monotonic clock shows `deadline_ns`: each message comes of
    /// `next_message`, which asks the transport, and is matched by `recognise`.
    pub(super) fn wait_until<'b>(
        &mut self,
        wanted: Option<u64>,
        deadline_ns: u64,
        flags: CallFlags,
        room: impl FnOnce(&Arriving) -> Result<&'b mut [u8], Error>,
    ) -> Result<Arrived, ReplyError> {
        let descriptor = wanted.map(descriptor_of);
        let mut unmatched = 0;
        loop {
            let next = self
                .next_message(deadline_ns, flags)
                .map_err(|error| reply_error(descriptor, error))?;
            let Some(len) = next else {
                // Its answer is looked for again, and the reply meanwhile.
                self.follow_manager(1);
                // With another memory all calls have ended, and what became of them is kept.
                let kept = match wanted {
                    Some(call_id) => (!self.calls.is_out(call_id)).then_some(call_id),
                    None => self.calls.first_kept(),
                };
                match kept {
                    Some(call_id) => return self.deliver_kept(call_id, room),
                    None => continue,
                }
            };
            if let Some(call_id) = self.recognise(len) {
                if wanted.is_none_or(|wanted| wanted == call_id) {
                    return self.deliver_incoming(call_id, len, room);
                }
                self.keep_incoming(call_id, len);
            }
            unmatched += 1;
            let is_late = deadline_ns != 0 && monotonic_ns() >= deadline_ns;
            let is_enough = flags.contains(CallFlags::NO_BLOCK) && unmatched >= TAKEN_AT_ONCE_MAX;
            if is_late || is_enough {
                return Err(reply_error(descriptor, if is_late { late() } else { none_yet() }));
            }
        }
    }

    /// The length of the next message in `incoming`; none when the manager is gone and another one is to be
    /// looked for.
    fn next_message(&mut self, deadline_ns: u64, flags: CallFlags) -> Result<Option<usize>, Error> {
        if flags.contains(CallFlags::NO_BLOCK) {
            let taken = self.transport.take(&mut self.incoming).map_err(broken)?;
            // A caller that never waits comes to the next manager too, and learns what became of its calls.
            let is_look_due =
                self.transport.is_manager_gone() && monotonic_ns() >= self.successor.look_ns;
            if taken.is_some() || is_look_due {
                return Ok(taken);
            }
            // A caller that only looks learns, too, that the call's time is over.
            let is_late = deadline_ns != 0 && monotonic_ns() >= deadline_ns;
            return Err(if is_late { late() } else { none_yet() });
        }
        loop {
            let look_ns = self.successor.look_ns;
            match self.transport.wait(&mut self.incoming, deadline_ns, look_ns).map_err(broken)? {
                Waited::Message(len) => return Ok(Some(len)),
                Waited::Abandoned => return Ok(None),
                Waited::Late => return Err(late()),
                Waited::Interrupted if flags.contains(CallFlags::SIGNAL_RESTART) => {}
                Waited::Interrupted => return Err(interrupted()),
            }
        }
    }

    /// Gives up a call: its reply, if one comes, is dropped. The service is not notified: `tpcancel`.
    ///
    /// # Errors
    /// TPEBADDESC when no such call is out.
    pub fn cancel(&mut self, descriptor: Descriptor) -> Result<(), Error> {
        let call_id = self.calls.find(descriptor).ok_or_else(|| unknown(descriptor))?;
        self.give_up(call_id);
        Ok(())
    }

    /// Waits for an answer; `tpgetrply`.
    ///
    /// # Errors
    /// [`CallError::Failed`] with the service's buffer, else as
    /// [`wait_reply`](Self::wait_reply); TPESVCERR when the answer is not of its type.
    pub fn answer(&mut self, which: Which, flags: CallFlags) -> Result<Answer, CallError> {
        let mut buffer = None;
        let arrived = self
            .wait_reply(which, flags, |arriving| room(&mut buffer, arriving))
            .map_err(Error::from)?;
        answered(&arrived, buffer)
    }
}

impl Client {
    /// Takes the replies that are there and keeps them until they are asked for.
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
    fn recognise(&mut self, len: usize) -> Option<u64> {
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
    fn drop_late(&mut self, len: usize) {
        if let Ok(reply) = Reply::decode(&self.incoming[..len]) {
            self.counters.late += 1;
            discard(&reply.payload);
        }
    }

    /// Keeps the reply in `incoming`, with its data, for when its call is asked for.
    fn keep_incoming(&mut self, call_id: u64, len: usize) {
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
    fn deliver_incoming<'b>(
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
        hand_over(descriptor, &reply, &mut self.call_info, room)
            .map_err(|error| reply_error(Some(descriptor), error))
    }

    /// Delivers the reply that was kept for a call, which ends.
    fn deliver_kept<'b>(
        &mut self,
        call_id: u64,
        room: impl FnOnce(&Arriving) -> Result<&'b mut [u8], Error>,
    ) -> Result<Arrived, ReplyError> {
        let descriptor = descriptor_of(call_id);
        let kept = self.end(call_id).expect("the caller saw that its reply is kept");
        let payload = Payload {
            buffer_type: kept.buffer_type,
            buffer_size_bytes: kept.buffer_size_bytes,
            has_info: kept.has_info,
            body: Body::Inline(&kept.bytes),
        };
        let Kept { error, rval, urcode, is_abort_only, .. } = kept;
        let nonce = self.address.nonce;
        let reply = Reply { nonce, call_id, error, rval, urcode, is_abort_only, payload };
        self.urcode = urcode;
        if error == Some(Code::NoEntry) {
            self.transport.close_withdrawn();
        }
        hand_over(descriptor, &reply, &mut self.call_info, room)
            .map_err(|error| reply_error(Some(descriptor), error))
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

/// A new buffer for what arrives, and its memory; without a buffer there is nothing to write.
pub(super) fn room<'b>(
    buffer: &'b mut Option<Buffer>,
    arriving: &Arriving,
) -> Result<&'b mut [u8], Error> {
    let Some(buffer_type) = arriving.buffer_type else { return Ok(&mut []) };
    let made = Buffer::new(buffer_type, "", arriving.buffer_size_bytes)?;
    Ok(&mut buffer.insert(made).as_bytes_mut()[..arriving.len_bytes])
}

/// The result for the caller, once the bytes are known to be of their type.
pub(super) fn answered(arrived: &Arrived, mut buffer: Option<Buffer>) -> Result<Answer, CallError> {
    let len_bytes = arrived.payload.len_bytes;
    if let Some(buffer) = &mut buffer {
        buffer.received(len_bytes).map_err(|error| {
            Error::new(Code::ServiceError, format!("the answer is damaged: {error}"))
        })?;
    }
    let Arrived { descriptor, rval, urcode, is_failure, .. } = *arrived;
    let answer = Answer { buffer, len_bytes, descriptor, rval, urcode };
    if is_failure { Err(CallError::Failed(answer)) } else { Ok(answer) }
}

fn unknown(descriptor: Descriptor) -> Error {
    let detail = format!("no call with the descriptor {} is out", descriptor.number());
    Error::new(Code::BadDescriptor, detail)
}

fn nothing_out(flags: CallFlags) -> Error {
    if flags.contains(CallFlags::NO_BLOCK) {
        return none_yet();
    }
    Error::new(Code::BadDescriptor, "no call is out, so there is no reply to wait for")
}

fn none_yet() -> Error {
    Error::new(Code::Block, "no reply is there yet, and TPNOBLOCK forbids to wait")
}

/// Writes the data of a reply to the memory of its caller.
fn hand_over<'b>(
    descriptor: Descriptor,
    reply: &Reply<'_>,
    call_info: &mut Option<Box<[u8]>>,
    room: impl FnOnce(&Arriving) -> Result<&'b mut [u8], Error>,
) -> Result<Arrived, Error> {
    *call_info = None;
    let is_failure = reply.error == Some(Code::ServiceFailed);
    if let Some(code) = reply.error
        && !is_failure
    {
        discard(&reply.payload);
        return Err(Error::new(code, said(code)));
    }
    if reply.payload.has_info {
        let bytes = match reply.payload.body {
            Body::Inline(bytes) => Ok(bytes.to_vec()),
            Body::Large(large) => large::fetch_all(&large),
        };
        let bytes = bytes.map_err(unread)?;
        let damaged = || Error::new(Code::ServiceError, "what came beside the reply is damaged");
        let (data, info) = crate::call_info::split(&bytes).ok_or_else(damaged)?;
        let payload = Payload { has_info: false, body: Body::Inline(data), ..reply.payload };
        let handed_over = hand_over(descriptor, &Reply { payload, ..*reply }, call_info, room);
        *call_info = Some(info.into());
        return handed_over;
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
        Body::Large(large) => large::fetch(&large, place).map_err(unread)?,
    }
    let Reply { rval, urcode, is_abort_only, .. } = *reply;
    Ok(Arrived { descriptor, is_failure, rval, urcode, is_abort_only, payload })
}

fn unread(source: std::io::Error) -> Error {
    let detail = "the payload of the reply cannot be read from its sender";
    Error::caused(Code::ServiceError, detail, source)
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

fn reply_error(descriptor: Option<Descriptor>, error: Error) -> ReplyError {
    ReplyError { descriptor, error }
}

fn broken(source: std::io::Error) -> Error {
    Error::os("replies cannot be read", source)
}
