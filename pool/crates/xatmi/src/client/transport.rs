//! How messages travel between a client and the workers: by queues, or as requests in shared memory. The rest, calls,
//! matching, payloads, is the same, and does not know which it is.

use std::fmt::Debug;
use std::io;

use super::connection::{ClientFiles, KnownContext, Welcome};
use super::poll_lock::Guard;
use crate::error::{Code, Error};
use crate::priority::Priority;
use crate::queue::{Prefix, ServiceName, Waited};

/// A message to a service.
#[derive(Debug)]
pub(super) struct Message<'m> {
    pub(super) service: ServiceName,
    pub(super) call_id: u64,
    pub(super) wants_reply: bool,
    /// Its reply is waited for at once, by [`wait`](Transport::wait).
    pub(super) is_awaited: bool,
    /// At the first try when the call began: that trusts a look at the queue of a moment ago. Later ones look again, as
    /// the service may have gone meanwhile.
    pub(super) begun_ns: Option<u64>,
    pub(super) priority: Priority,
    pub(super) bytes: &'m [u8],
}

/// Why a message is not on its way.
#[derive(Debug)]
pub(super) enum SendError {
    /// There is no room for it now.
    Full,
    Failed(Error),
}

/// How a wait for room ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RoomWait {
    /// There may be room, or the time is over.
    Again,
    /// Replies came, which are to be taken, so that no worker waits for that.
    Replies,
    /// A signal handler ran.
    Interrupted,
}

/// Sends the messages of one client, and takes its replies.
pub(super) trait Transport: Debug + Send {
    /// Continues with the same queues, or the same memory, under another manager; whether it can.
    ///
    /// # Errors
    /// TPESYSTEM for memory of another build.
    fn follow(
        &mut self,
        prefix: &Prefix,
        welcome: &Welcome,
        memory: Option<&ClientFiles>,
    ) -> Result<bool, Error>;

    /// Its context in shared memory, for the next manager.
    fn known(&self) -> Option<KnownContext> {
        None
    }

    /// Whether the manager that this works with is gone: in shared memory the kernel marks that at once, with
    /// queues the connection is asked.
    fn is_manager_gone(&self) -> bool {
        false
    }

    /// Gives up the call that was made first among those that are out; the length of its reply in `into`, or
    /// of an error that stands for one. None when none is out, and with queues.
    fn end_next(&mut self, _into: &mut [u8]) -> Option<usize> {
        None
    }

    /// Bytes of the longest message.
    fn message_len_bytes(&self) -> usize;

    /// Sends a message if there is room.
    fn send(&mut self, message: &Message<'_>) -> Result<(), SendError>;

    /// Waits until there may be room for the message that was not sent last, to this service, until the monotonic clock
    /// shows `until_ns`. `awaits_others`: this client waits for replies to other calls. `lock` is held until the message
    /// is sent.
    ///
    /// # Errors
    /// TPEOS.
    fn wait_for_room(
        &mut self,
        service: ServiceName,
        awaits_others: bool,
        until_ns: u64,
        lock: &mut Option<Guard>,
    ) -> Result<RoomWait, Error>;

    /// Takes a message that came, without waiting.
    ///
    /// # Errors
    /// Those of the reply queue.
    fn take(&mut self, into: &mut [u8]) -> io::Result<Option<usize>>;

    /// Takes a message, waiting for it until the monotonic clock shows `deadline_ns` (0 for as long as it
    /// takes). From `look_ns` on it is an end of the wait that the manager is gone.
    ///
    /// # Errors
    /// Those of the reply queue.
    fn wait(&mut self, into: &mut [u8], deadline_ns: u64, look_ns: u64) -> io::Result<Waited>;

    /// Closes the queues of services that were withdrawn. In shared memory each call looks.
    fn close_withdrawn(&mut self) {}

    /// A call is not waited for any more; the length of its reply in `into`, if that had come. With queues it is known by
    /// its number when it comes, and dropped.
    fn give_up(&mut self, _call_id: u64, _into: &mut [u8]) -> Option<usize> {
        None
    }
}

/// The error of a call to a service that is not there.
pub(super) fn not_offered(service: &str) -> Error {
    Error::new(Code::NoEntry, format!("the service '{}' is not offered", service.escape_debug()))
}
