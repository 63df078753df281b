//! A client's own reply queue, and the queues of services that it sends to.
//!
//! A send never blocks in the kernel. A blocked sender is served by the next receive, which moves its
//! message into the queue and wakes no poller: the message then waits while idle workers sleep. So a full queue is polled
//! for room, and the message sent when there is some; of the threads of a process one polls ([`PollLock`]).

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use pollux_sys::mqueue::QueueSize;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::connection::{ClientFiles, Connection, Welcome};
use super::poll_lock::{Guard, Locked, PollLock};
use super::transport::{Message, RoomWait, SendError, Transport, not_offered};
use crate::error::{Code, Error};
use crate::queue::{Prefix, QueueCache, ReplyQueue, ServiceName, Waited, monotonic_ns};

/// The most service queues that a client holds open, each a descriptor.
const SERVICES_OPEN_MAX: usize = 64;

/// The queues that a client has open.
#[derive(Debug)]
pub(super) struct Queues {
    prefix: Prefix,
    replies: ReplyQueue,
    services: QueueCache<ServiceName>,
    message_len_bytes: usize,
}

impl Queues {
    /// Makes the reply queue, unless the manager has.
    ///
    /// # Errors
    /// TPEOS.
    pub(super) fn open(
        prefix: &Prefix,
        connection: &Connection,
        welcome: &Welcome,
    ) -> Result<Self, Error> {
        let address = connection.address();
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
        Ok(Self {
            prefix: prefix.clone(),
            replies: replies.map_err(no_reply_queue)?,
            services: QueueCache::of_messages(SERVICES_OPEN_MAX, welcome.message_len_bytes),
            message_len_bytes: welcome.message_len_bytes as usize,
        })
    }

    /// Waits until the queue of the service may take a message, or a reply is there.
    fn poll_for_room(&mut self, service: ServiceName, until_ns: u64) -> Result<RoomWait, Error> {
        let Self { prefix, replies, services, .. } = self;
        let Ok(queue) = services.open(service, || prefix.service_queue(&service)) else {
            return Ok(RoomWait::Again); // Withdrawn; the next try to send fails.
        };
        let left = Duration::from_nanos(until_ns.saturating_sub(monotonic_ns()));
        let left = Timespec::try_from(left).expect("a second at most");
        let mut watched = [
            PollFd::from_borrowed_fd(queue.as_fd(), PollFlags::OUT),
            PollFd::from_borrowed_fd(replies.as_fd(), PollFlags::IN),
        ];
        match poll(&mut watched, Some(&left)) {
            Err(Errno::INTR) => return Ok(RoomWait::Interrupted),
            Ok(_) => {}
            Err(errno) => return Err(Error::os("a full queue cannot be watched", errno.into())),
        }
        let has_reply = watched[1].revents().contains(PollFlags::IN);
        Ok(if has_reply { RoomWait::Replies } else { RoomWait::Again })
    }
}

impl Transport for Queues {
    fn follow(
        &mut self,
        _: &Prefix,
        welcome: &Welcome,
        memory: Option<&ClientFiles>,
    ) -> Result<bool, Error> {
        // One that the manager made anew has to be opened, one for shorter or longer replies to be made.
        let is_same =
            !welcome.has_made_queue && self.message_len_bytes == welcome.message_len_bytes as usize;
        Ok(memory.is_none() && is_same)
    }

    fn message_len_bytes(&self) -> usize {
        self.message_len_bytes
    }

    fn send(&mut self, message: &Message<'_>) -> Result<(), SendError> {
        let Message { service, begun_ns, priority, bytes, .. } = *message;
        let Self { prefix, services, .. } = self;
        let name = || prefix.service_queue(&service);
        let queue = match begun_ns {
            Some(begun_ns) => services.open_named_lately(service, begun_ns, name),
            None => services.open_named(service, name),
        };
        let queue = queue.map_err(|source| {
            SendError::Failed(match Errno::from_io_error(&source) {
                Some(Errno::NOENT) => not_offered(service.as_str()),
                // Made by a manager that this client has not greeted yet.
                Some(Errno::MSGSIZE) => {
                    let detail = format!(
                        "the queue of {service} has messages of another size than the pool"
                    );
                    Error::caused(Code::NoEntry, detail, source)
                }
                _ => Error::os(format!("the queue of {service} cannot be opened"), source),
            })
        })?;
        queue.send(bytes, priority.number().into()).map_err(|source| {
            if source.kind() == io::ErrorKind::WouldBlock {
                return SendError::Full;
            }
            let len = bytes.len();
            let detail = format!(
                "the queue of {service} does not take a message of {len} bytes: its size is not \
                 that of the pool"
            );
            SendError::Failed(Error::caused(Code::System, detail, source))
        })
    }

    /// A thread that waits for no reply holds the lock of the queue by then.
    fn wait_for_room(
        &mut self,
        service: ServiceName,
        awaits_others: bool,
        until_ns: u64,
        lock: &mut Option<Guard>,
    ) -> Result<RoomWait, Error> {
        if lock.is_none()
            && !awaits_others
            && let Some(own) = PollLock::of_queue(&self.prefix, &service)
        {
            match own.lock(until_ns) {
                Locked::Held(held) => *lock = Some(held),
                Locked::Late => return Ok(RoomWait::Again),
                Locked::Interrupted => return Ok(RoomWait::Interrupted),
            }
        }
        self.poll_for_room(service, until_ns)
    }

    fn take(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        self.replies.take(into)
    }

    #[inline]
    fn wait(&mut self, into: &mut [u8], deadline_ns: u64, _: u64) -> io::Result<Waited> {
        self.replies.wait(into, deadline_ns)
    }

    fn close_withdrawn(&mut self) {
        self.services.close_withdrawn();
    }
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
