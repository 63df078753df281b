//! Replies that are waited for, of which `call.rs` is the shortest way.
//!
//! They are written to the caller's own memory, or to a [`Buffer`]: what a service sent is checked before it is given
//! out as fields or text.

use std::fmt;

use super::out_calls::{TAKEN_AT_ONCE_MAX, broken, descriptor_of, reply_error};
use super::{
    Arrived, Arriving, CallFlags, Client, Descriptor, ReplyError, Which, after, interrupted, late,
};
use crate::buffer::Buffer;
use crate::error::{Code, Error};
use crate::queue::{Waited, monotonic_ns};

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
            slot.deadline_ns = after(monotonic_ns(), self.timeout);
        }
        arrived
    }

    /// Waits for the reply to `wanted`, or any, until the monotonic clock shows `deadline_ns`.
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
