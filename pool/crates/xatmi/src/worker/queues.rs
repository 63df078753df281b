//! Requests and replies of a worker by queues.
//!
//! The counterpart of `mailbox`. A message whose queue is full is kept until it fits, and the worker serves other
//! requests meanwhile; it waits for a reader only when hundreds of messages are kept already.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use pollux_sys::mqueue::MessageQueue;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::queue_poller::QueuePoller;
use super::reply::{self, Call, Destination, Posted, Transport};
use super::setup::Wake;
use super::unsent_messages::{UnsentMessage, UnsentMessages};
use crate::error::{Code, Error};
use crate::queue::{Prefix, QueueCache, ServiceName, is_withdrawn, monotonic_ns};
use crate::slots::{Caller, Slot, Slots, Total, UnsentReply};
use crate::wire::{ClientAddress, Reply};

/// The most queues of others that a worker holds open, each a descriptor.
const QUEUES_OPEN_MAX: usize = 128;
/// How long a worker that can keep no more waits before it checks which readers are gone.
const LOOK_AGAIN_NS: u64 = 1_000_000_000;

/// The queues of a worker: those that it takes requests from, and those that it sends to.
pub(super) struct Queues {
    pub(super) poller: QueuePoller,
    prefix: Prefix,
    slots: Rc<Slots>,
    /// Which of the slots is this worker's.
    slot_index: usize,
    queues: QueueCache<Destination>,
    unsent: UnsentMessages,
}

impl Queues {
    /// None yet, for the worker with the slot `slot_index`.
    ///
    /// # Errors
    /// TPEOS without descriptors or epoll.
    pub(super) fn open(
        wake: Wake,
        prefix: Prefix,
        slots: Rc<Slots>,
        slot_index: usize,
    ) -> Result<Self, Error> {
        slots.inbox(slot_index).expect("as its slot").prepare();
        Ok(Self {
            poller: QueuePoller::open(wake)?,
            prefix,
            slots,
            slot_index,
            queues: QueueCache::new(QUEUES_OPEN_MAX),
            unsent: UnsentMessages::default(),
        })
    }

    /// Sends what fits into a queue that was full. Called when it is writable.
    pub(super) fn flush(&mut self, index: usize, generation: u32) {
        if self.unsent.is_current(index, generation) && self.unsent.flush(index) {
            self.close(index);
        }
    }

    #[inline]
    fn try_send(
        &mut self,
        slot: Slot<'_>,
        destination: Destination,
        call: &Call,
        message: &[u8],
    ) -> io::Result<()> {
        let waiting = if self.unsent.is_empty() { None } else { self.unsent.find(&destination) };
        // Messages that wait already are sent first.
        match waiting {
            Some((_, full)) if message.len() > full.message_len_bytes_max => {
                return Err(Errno::MSGSIZE.into());
            }
            Some(_) => {}
            None => {
                let name = || name_of(&self.prefix, &destination);
                let queue = match destination {
                    Destination::Client(_) => self.queues.open(destination, name)?,
                    Destination::Service(_) => self.queues.open_named(destination, name)?,
                };
                match queue.send(message, rank(&destination, call)) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    sent => return sent,
                }
                if is_withdrawn(queue) {
                    self.queues.close(destination);
                    return Err(Errno::NOENT.into());
                }
            }
        }
        self.defer(slot, destination, call, message.into())
    }

    /// Keeps a message until there is room.
    fn defer(
        &mut self,
        slot: Slot<'_>,
        destination: Destination,
        call: &Call,
        bytes: Box<[u8]>,
    ) -> io::Result<()> {
        while self.unsent.is_full() {
            self.wait_for_room(slot);
        }
        let index = match self.unsent.find(&destination) {
            Some((index, _)) => index,
            None => self.open_full_queue(destination)?,
        };
        let note = (!call.is_without_reply).then(|| {
            let ClientAddress { pid, context, nonce } = call.client;
            let caller = Caller { pid, context, call_id: call.call_id, nonce };
            UnsentReply::note(&self.slots, self.slot_index, &caller)
        });
        let is_forwarded = matches!(destination, Destination::Service(_));
        let message = UnsentMessage {
            bytes,
            rank: rank(&destination, call),
            note: note.flatten(),
            until_ns: call.kept_until_ns(),
            forwarded: is_forwarded.then_some(*call),
        };
        self.unsent.add(index, message);
        slot.add(Total::Deferred, 1);
        Ok(())
    }

    /// Opens a full queue for the messages that wait for it, and watches it for room.
    fn open_full_queue(&mut self, destination: Destination) -> io::Result<usize> {
        // A queue of its own, as the cache may close its one at any time.
        let queue = MessageQueue::open(&name_of(&self.prefix, &destination))?;
        let len_bytes = queue.state()?.size.message_len_bytes as usize;
        let (index, generation) = self.unsent.open(destination, queue, len_bytes);
        let (_, opened) = self.unsent.find(&destination).expect("just opened");
        if let Err(error) = self.poller.await_room(index, generation, opened.queue.as_fd()) {
            self.unsent.close(index);
            return Err(io::Error::other(error));
        }
        Ok(index)
    }

    /// Answers the callers of requests that could not be forwarded; replies that were not sent are dropped.
    fn fail_callers(&mut self, slot: Slot<'_>, messages: impl IntoIterator<Item = UnsentMessage>) {
        // Each message keeps its note until the caller was answered.
        for message in messages {
            if let Some(call) = message.forwarded {
                // Its deadline may be over: the error is kept as for a call without one.
                let call = Call { deadline_ns: 0, ..call };
                reply::fail(self, slot, &call, Code::ServiceError);
            }
        }
    }

    /// Waits for a moment until one of the messages that are kept is not any more: sent, too
    /// late, or for a reader that is gone.
    fn wait_for_room(&mut self, slot: Slot<'_>) {
        let until_ns = self.unsent.first_until_ns().unwrap_or(0);
        self.wait_for_room_until(slot, until_ns.min(monotonic_ns() + LOOK_AGAIN_NS));
        self.close_abandoned(slot, self.unsent.is_full());
    }

    fn wait_for_room_until(&mut self, slot: Slot<'_>, until_ns: u64) {
        let (indices, mut fds): (Vec<_>, Vec<_>) = self
            .unsent
            .queues()
            .map(|(index, full)| (index, PollFd::new(&full.queue, PollFlags::OUT)))
            .unzip();
        let left = std::time::Duration::from_nanos(until_ns.saturating_sub(monotonic_ns()));
        // A signal ends the wait early, which costs one more.
        let _ = rustix::event::poll(&mut fds, left.try_into().ok().as_ref());
        let is_writable: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        for (index, _) in indices.into_iter().zip(is_writable).filter(|(_, ready)| *ready) {
            if self.unsent.flush(index) {
                self.close(index);
            }
        }
        self.expire(slot, monotonic_ns());
    }

    /// Drops messages whose readers are gone: of callers that died, and of services that were withdrawn.
    fn close_abandoned(&mut self, slot: Slot<'_>, is_asking_kernel: bool) {
        for index in self.unsent.abandoned(is_asking_kernel) {
            let left = self.close(index);
            slot.add(Total::Gone, left.len() as u64);
            self.fail_callers(slot, left);
        }
    }

    /// Closes a full queue; the messages that waited for it.
    fn close(&mut self, index: usize) -> VecDeque<UnsentMessage> {
        let Some(closed) = self.unsent.close(index) else { return VecDeque::new() };
        self.poller.forget(closed.queue.as_fd());
        closed.waiting
    }
}

impl Transport for Queues {
    fn take_requests_for(&mut self, entry: usize, name: &ServiceName) -> Result<(), Error> {
        self.poller.watch_service(entry, &self.prefix.service_queue(name))
    }

    fn withdraw(&mut self, entry: usize) {
        self.poller.withdraw(entry);
    }

    fn leave_all(&mut self) {
        let poller = &mut self.poller;
        poller.services().into_iter().for_each(|(entry, _)| poller.ignore(entry));
    }

    fn watch_program(&mut self, program: BorrowedFd<'_>) -> Result<(), Error> {
        self.poller.watch_program(program)
    }

    fn watch_link(&mut self, link: BorrowedFd<'_>) -> Result<(), Error> {
        self.poller.watch_link(link)
    }

    fn forget_link(&mut self, link: BorrowedFd<'_>) {
        self.poller.forget(link);
    }

    #[inline]
    fn message_len_bytes_max(&self) -> usize {
        self.poller.message_len_bytes_max()
    }

    #[inline]
    fn send(
        &mut self,
        slot: Slot<'_>,
        destination: Destination,
        call: &Call,
        message: &[u8],
    ) -> Posted {
        let Err(error) = self.try_send(slot, destination, call, message) else {
            return Posted::OnTheWay;
        };
        match Errno::from_io_error(&error) {
            Some(Errno::NOENT) => Posted::NoReceiver,
            Some(Errno::MSGSIZE) => Posted::TooLong,
            _ => Posted::Failed,
        }
    }

    fn send_error(&mut self, slot: Slot<'_>, call: &Call, code: Code) -> Posted {
        let mut message = [0; Reply::len_bytes(0)];
        let error = Reply::failing(call.client.nonce, call.call_id, code);
        let len = error.encode(&mut message).expect("it has the length of a reply without data");
        self.send(slot, Destination::Client(call.client), call, &message[..len])
    }

    #[inline]
    fn first_until_ns(&self) -> Option<u64> {
        if self.unsent.is_empty() { None } else { self.unsent.first_until_ns() }
    }

    fn expire(&mut self, slot: Slot<'_>, now_ns: u64) {
        if self.first_until_ns().is_none_or(|until_ns| until_ns > now_ns) {
            return;
        }
        let late = self.unsent.expire(now_ns);
        self.close_abandoned(slot, false);
        slot.add(Total::Dropped, late.len() as u64);
        self.fail_callers(slot, late);
    }

    fn sweep(&mut self, slot: Slot<'_>) {
        self.queues.close_withdrawn();
        self.close_abandoned(slot, true);
    }

    fn finish(&mut self, slot: Slot<'_>, until_ns: u64) {
        while !self.unsent.is_empty() && monotonic_ns() < until_ns {
            self.wait_for_room_until(slot, until_ns);
        }
        slot.add(Total::Dropped, self.unsent.leave() as u64);
    }
}

/// The priority of a message among those of its queue: replies have one and the same.
fn rank(destination: &Destination, call: &Call) -> u32 {
    match destination {
        Destination::Client(_) => 0,
        Destination::Service(_) => call.priority.number().into(),
    }
}

fn name_of(prefix: &Prefix, destination: &Destination) -> std::ffi::CString {
    match destination {
        Destination::Client(client) => prefix.reply_queue(client.pid, client.context),
        Destination::Service(service) => prefix.service_queue(service),
    }
}
