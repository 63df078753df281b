//! How messages travel between a client and the workers.

use std::io;
use std::sync::Arc;

use pollux_sys::mqueue::QueueSize;
use rustix::io::Errno;

use super::connection::{Connection, Files};
use super::mailbox::Mailbox;
use super::{KnownContext, Welcome};
use crate::error::{Code, Error};
use crate::memory::ClientMemory;
use crate::queue::{Prefix, QueueCache, ReplyQueue, ServiceName, Waited};

/// The most service queues that a client holds open, each a descriptor.
const SERVICES_OPEN_MAX: usize = 64;

/// By queues, or as requests in shared memory. The rest, calls, matching, payloads, is the same.
#[derive(Debug)]
pub(super) enum Transport {
    Queues(Queues),
    Memory(Mailbox),
}

/// The queues that a client has open.
#[derive(Debug)]
pub(super) struct Queues {
    pub(super) replies: ReplyQueue,
    pub(super) services: QueueCache<ServiceName>,
    message_len_bytes: usize,
}

impl Transport {
    /// The transport that the manager offers: its memory, else queues.
    ///
    /// # Errors
    /// TPESYSTEM for memory of another build, TPELIMIT when all of it is in use, TPEOS.
    pub(super) fn open(
        prefix: &Prefix,
        connection: &Connection,
        welcome: &Welcome,
        memory: Option<&Files>,
    ) -> Result<Self, Error> {
        let address = connection.address();
        let (Some(context), Some(memory)) = (welcome.memory, memory) else {
            let size = QueueSize {
                messages_max: welcome.reply_depth,
                message_len_bytes: welcome.message_len_bytes,
            };
            let name = prefix.reply_queue(address.pid, address.context);
            let replies = if welcome.has_made_queue {
                ReplyQueue::open(name)
            } else {
                connection.when_queues_fit(|| ReplyQueue::create(name.clone(), size))
            };
            return Ok(Self::Queues(Queues {
                replies: replies.map_err(no_reply_queue)?,
                services: QueueCache::of_messages(SERVICES_OPEN_MAX, welcome.message_len_bytes),
                message_len_bytes: welcome.message_len_bytes as usize,
            }));
        };
        let memory = mapped(prefix, memory)?;
        Ok(Self::Memory(Mailbox::open(memory, context, address.nonce)?))
    }

    /// Continues with the same queues, or the same memory, under another manager; whether it can.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(super) fn follow(
        &mut self,
        prefix: &Prefix,
        welcome: &Welcome,
        memory: Option<&Files>,
    ) -> Result<bool, Error> {
        Ok(match (self, memory) {
            // One that the manager made anew has to be opened, one for shorter or longer replies to be made.
            (Self::Queues(queues), None) => {
                !welcome.has_made_queue
                    && queues.message_len_bytes == welcome.message_len_bytes as usize
            }
            (Self::Memory(mailbox), Some(memory)) => mailbox.follow(mapped(prefix, memory)?),
            (Self::Queues(_), Some(_)) | (Self::Memory(_), None) => false,
        })
    }

    /// Its context in shared memory, for the next manager.
    pub(super) fn known(&self) -> Option<KnownContext> {
        match self {
            Self::Queues(_) => None,
            Self::Memory(mailbox) => Some(mailbox.known()),
        }
    }

    /// Whether the manager that this works with is gone: in shared memory the kernel marks that at once, with
    /// queues the connection is asked.
    #[inline]
    pub(super) fn is_manager_gone(&self) -> bool {
        match self {
            Self::Queues(_) => false,
            Self::Memory(mailbox) => mailbox.is_manager_gone(),
        }
    }

    /// Gives up the call that was made first among those that are out; the length of its reply in `into`, or
    /// of an error that stands for one. None when none is out, and with queues.
    pub(super) fn end_next(&mut self, into: &mut [u8]) -> Option<usize> {
        match self {
            Self::Queues(_) => None,
            Self::Memory(mailbox) => mailbox.end_next(into),
        }
    }

    /// Bytes of the longest message.
    pub(super) fn message_len_bytes(&self) -> usize {
        match self {
            Self::Queues(queues) => queues.message_len_bytes,
            Self::Memory(mailbox) => mailbox.message_len_bytes(),
        }
    }

    /// Takes a message that came, without waiting.
    ///
    /// # Errors
    /// Those of the reply queue.
    pub(super) fn take(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        match self {
            Self::Queues(queues) => queues.replies.take(into),
            Self::Memory(mailbox) => Ok(mailbox.take(into)),
        }
    }

    /// Takes a message, waiting for it until the monotonic clock shows `deadline_ns` (0 for as long as it
    /// takes). From `look_ns` on it is an end of the wait that the manager is gone.
    ///
    /// # Errors
    /// Those of the reply queue.
    #[inline]
    pub(super) fn wait(
        &mut self,
        into: &mut [u8],
        deadline_ns: u64,
        look_ns: u64,
    ) -> io::Result<Waited> {
        match self {
            Self::Queues(queues) => queues.replies.wait(into, deadline_ns),
            Self::Memory(mailbox) => mailbox.wait(into, deadline_ns, look_ns),
        }
    }

    /// Closes the queues of services that were withdrawn.
    pub(super) fn close_withdrawn(&mut self) {
        match self {
            Self::Queues(queues) => queues.services.close_withdrawn(),
            // It checks with each call.
            Self::Memory(_) => {}
        }
    }

    /// A call is not waited for any more; the length of its reply in `into`, if that had come.
    pub(super) fn give_up(&mut self, call_id: u64, into: &mut [u8]) -> Option<usize> {
        match self {
            // Its reply is known by its number, and dropped.
            Self::Queues(_) => None,
            Self::Memory(mailbox) => mailbox.give_up(call_id, into),
        }
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

fn no_reply_queue(source: io::Error) -> Error {
    let detail = match Errno::from_io_error(&source) {
        // EMFILE stands for the limit on bytes too.
        Some(Errno::MFILE | Errno::NOSPC) => {
            "no room for a reply queue within the limits on descriptors, on bytes of queues \
             (RLIMIT_MSGQUEUE) and on their number (fs.mqueue.queues_max): `pollux pool check` \
             shows which one is short"
        }
        _ => "the reply queue cannot be made",
    };
    Error::os(detail, source)
}
