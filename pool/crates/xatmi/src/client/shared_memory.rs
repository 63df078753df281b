//! A client's requests and replies in the memory of its pool, by a [`Mailbox`].

use std::io;
use std::sync::Arc;

use super::connection::{Files, KnownContext, Welcome};
use super::mailbox::{Mailbox, Unsent};
use super::poll_lock::Guard;
use super::transport::{Message, RoomWait, SendError, Transport, not_offered};
use crate::error::{Code, Error};
use crate::memory::ClientMemory;
use crate::queue::{Prefix, ServiceName, Waited};

#[derive(Debug)]
pub(super) struct SharedMemory {
    mailbox: Mailbox,
    /// What there was no room for the last time.
    full: Unsent,
}

impl SharedMemory {
    /// The place of a context that the manager gave a number.
    ///
    /// # Errors
    /// TPESYSTEM for memory of another build, TPELIMIT when all of it is in use, TPEOS.
    pub(super) fn open(
        prefix: &Prefix,
        memory: &Files,
        context: u32,
        nonce: u64,
    ) -> Result<Self, Error> {
        let mailbox = Mailbox::open(mapped(prefix, memory)?, context, nonce)?;
        Ok(Self { mailbox, full: Unsent::NoRequest })
    }
}

impl Transport for SharedMemory {
    fn follow(
        &mut self,
        prefix: &Prefix,
        _: &Welcome,
        memory: Option<&Files>,
    ) -> Result<bool, Error> {
        let Some(memory) = memory else { return Ok(false) };
        Ok(self.mailbox.follow(mapped(prefix, memory)?))
    }

    fn known(&self) -> Option<KnownContext> {
        Some(self.mailbox.known())
    }

    #[inline]
    fn is_manager_gone(&self) -> bool {
        self.mailbox.is_manager_gone()
    }

    fn end_next(&mut self, into: &mut [u8]) -> Option<usize> {
        self.mailbox.end_next(into)
    }

    fn message_len_bytes(&self) -> usize {
        self.mailbox.message_len_bytes()
    }

    fn send(&mut self, message: &Message<'_>) -> Result<(), SendError> {
        let Message { service, call_id, wants_reply, is_awaited, bytes, .. } = *message;
        let sent = self.mailbox.send(service, call_id, wants_reply, is_awaited, bytes);
        sent.map_err(|why| match why {
            Unsent::NotOffered => SendError::Failed(not_offered(service.as_str())),
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
        // Its only error is a signal.
        let is_interrupted = self.mailbox.wait_for_room(&self.full, until_ns).is_err();
        Ok(if is_interrupted { RoomWait::Interrupted } else { RoomWait::Again })
    }

    fn take(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        Ok(self.mailbox.take(into))
    }

    #[inline]
    fn wait(&mut self, into: &mut [u8], deadline_ns: u64, look_ns: u64) -> io::Result<Waited> {
        self.mailbox.wait(into, deadline_ns, look_ns)
    }

    fn give_up(&mut self, call_id: u64, into: &mut [u8]) -> Option<usize> {
        self.mailbox.give_up(call_id, into)
    }
}

fn mapped(prefix: &Prefix, [records, exchange]: &Files) -> Result<Arc<ClientMemory>, Error> {
    ClientMemory::shared(records, exchange).map_err(|source| {
        let code = match source.kind() {
            io::ErrorKind::InvalidData => Code::System,
            _ => Code::Os,
        };
        Error::caused(code, format!("the memory of the pool {prefix} can't be used"), source)
    })
}
