//! Replies and forwarded requests by queues.
//!
//! The dispatch hands them over when a service function has returned. A message whose queue is full is kept
//! until it fits, and the worker serves other requests meanwhile; it waits for a reader only when
//! hundreds of messages are kept already.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;

use pollux_sys::mqueue::MessageQueue;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::queue_poller::QueuePoller;
use super::setup::Wake;
use crate::client::Outgoing;
use crate::error::{Code, Error};
use crate::large::Outbox;
use crate::queue::{Prefix, QueueCache, ServiceName, is_withdrawn, monotonic_ns};
use crate::slots::{Caller, Slot, Slots, Total, UNSENT_MAX, UnsentReply};
use crate::wire::{Body, ClientAddress, Payload, Reply, Request};

/// The most queues of others that a worker holds open, each a descriptor.
const QUEUES_OPEN_MAX: usize = 128;
/// How long a message for a caller without a deadline is kept.
const UNSENT_NS_MAX: u64 = 60_000_000_000;
/// How long a worker that can keep no more waits before it checks which readers are gone.
const LOOK_AGAIN_NS: u64 = 1_000_000_000;

/// The call that a message answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) client: ClientAddress,
    pub(super) call_id: u64,
    pub(super) cd: i32,
    pub(super) deadline_ns: u64,
    pub(super) is_without_reply: bool,
}

/// The result in a reply beside the data.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Verdict {
    pub(super) error: Option<Code>,
    pub(super) rval: i32,
    pub(super) urcode: i64,
}

/// The result of sending a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Posted {
    /// It is in its queue, or waits for room.
    OnTheWay,
    /// There is no such queue.
    NoQueue,
    /// It can't be sent.
    Failed,
}

/// The queues of a worker: those that it takes requests from, and those that it sends to.
pub(super) struct Queues {
    pub(super) poller: QueuePoller,
    prefix: Prefix,
    slots: Rc<Slots>,
    /// Which of the slots is this worker's.
    slot_index: usize,
    queues: QueueCache<Destination>,
    outbox: Outbox,
    unsent: UnsentMessages,
    /// A message that is being written.
    frame: Vec<u8>,
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
            outbox: Outbox::default(),
            unsent: UnsentMessages::default(),
            frame: Vec::new(),
        })
    }

    /// Answers `call`; data that can't be sent turns into TPESVCERR.
    #[inline]
    pub(super) fn reply(
        &mut self,
        slot: Slot<'_>,
        call: &Call,
        verdict: Verdict,
        data: Outgoing<'_>,
    ) {
        let (nonce, call_id) = (call.client.nonce, call.call_id);
        let encode = |payload: &Payload<'_>, out: &mut [u8]| {
            let Verdict { error, rval, urcode } = verdict;
            Reply { nonce, call_id, error, rval, urcode, payload: *payload }.encode(out)
        };
        let destination = Destination::Client(call.client);
        match self.post(slot, destination, call, data, None, encode) {
            Posted::OnTheWay => {}
            Posted::NoQueue => slot.add(Total::Gone, 1),
            Posted::Failed if verdict.error == Some(Code::ServiceError) => {
                slot.add(Total::Dropped, 1);
            }
            Posted::Failed => self.fail(slot, call),
        }
    }

    /// Answers the caller with TPESVCERR.
    pub(super) fn fail(&mut self, slot: Slot<'_>, call: &Call) {
        let verdict = Verdict { error: Some(Code::ServiceError), rval: 0, urcode: 0 };
        self.reply(slot, call, verdict, Outgoing::NONE);
    }

    /// Passes `call` on to another service, which answers it; whether it is on the way.
    pub(super) fn forward(
        &mut self,
        slot: Slot<'_>,
        call: &Call,
        service: ServiceName,
        data: Outgoing<'_>,
    ) -> bool {
        let encode = |payload: &Payload<'_>, out: &mut [u8]| {
            let request = Request {
                client: call.client,
                call_id: call.call_id,
                cd: call.cd,
                deadline_ns: call.deadline_ns,
                is_without_reply: call.is_without_reply,
                service,
                payload: *payload,
            };
            request.encode(out)
        };
        let caller = (!call.is_without_reply).then_some((call.client, call.call_id));
        let destination = Destination::Service(service);
        let posted = self.post(slot, destination, call, data, caller, encode);
        posted == Posted::OnTheWay
    }

    fn post(
        &mut self,
        slot: Slot<'_>,
        destination: Destination,
        call: &Call,
        data: Outgoing<'_>,
        caller: Option<(ClientAddress, u64)>,
        encode: impl Fn(&Payload<'_>, &mut [u8]) -> Option<usize>,
    ) -> Posted {
        slot.add(Total::PayloadBytes, data.bytes.len() as u64);
        self.frame.resize(self.poller.message_len_bytes_max(), 0);
        let payload = Payload {
            buffer_type: data.buffer_type,
            buffer_size_bytes: data.buffer_size_bytes as u64,
            body: Body::Inline(data.bytes),
        };
        if let Some(len) = encode(&payload, &mut self.frame) {
            match self.send(slot, destination, call, len, caller) {
                Err(error) if is(&error, Errno::MSGSIZE) => {}
                sent => return posted(&sent),
            }
        }
        // It is longer than the messages of that queue.
        let (now_ns, until_ns) = (monotonic_ns(), wanted_until_ns(call.deadline_ns));
        let receiver = match destination {
            Destination::Client(client) => Some(client.pid),
            Destination::Service(_) => None,
        };
        let Ok(large) = self.outbox.put(data.bytes, until_ns, receiver, now_ns) else {
            return Posted::Failed;
        };
        let len = encode(&Payload { body: Body::Large(large), ..payload }, &mut self.frame);
        let sent = match len {
            Some(len) => self.send(slot, destination, call, len, caller),
            None => Err(Errno::MSGSIZE.into()),
        };
        if sent.is_err() {
            self.outbox.withdraw(large.inode);
        }
        posted(&sent)
    }

    /// Sends the first `len` bytes of the frame, or keeps them.
    #[inline]
    fn send(
        &mut self,
        slot: Slot<'_>,
        destination: Destination,
        call: &Call,
        len: usize,
        caller: Option<(ClientAddress, u64)>,
    ) -> io::Result<()> {
        let waiting = if self.unsent.is_empty() { None } else { self.unsent.find(&destination) };
        // Messages that wait already are sent first.
        match waiting {
            Some((_, full)) if len > full.message_len_bytes_max => {
                return Err(Errno::MSGSIZE.into());
            }
            Some(_) => {}
            None => {
                let name = || name_of(&self.prefix, &destination);
                let queue = match destination {
                    Destination::Client(_) => self.queues.open(destination, name)?,
                    Destination::Service(_) => self.queues.open_named(destination, name)?,
                };
                match queue.send(&self.frame[..len], 0) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    sent => return sent,
                }
                if is_withdrawn(queue) {
                    self.queues.close(destination);
                    return Err(Errno::NOENT.into());
                }
            }
        }
        self.defer(slot, destination, call, len, caller)
    }

    /// Keeps the first `len` bytes of the frame until there is room.
    fn defer(
        &mut self,
        slot: Slot<'_>,
        destination: Destination,
        call: &Call,
        len: usize,
        caller: Option<(ClientAddress, u64)>,
    ) -> io::Result<()> {
        let bytes: Box<[u8]> = self.frame[..len].into();
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
        let until_ns = wanted_until_ns(call.deadline_ns);
        let message = UnsentMessage { bytes, note: note.flatten(), until_ns, caller };
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

    /// Sends what fits into a queue that was full. Called when it is writable.
    pub(super) fn flush(&mut self, index: usize, generation: u32) {
        if self.unsent.is_current(index, generation) && self.unsent.flush(index) {
            self.close(index);
        }
    }

    /// When the first message that waits is dropped, in nanoseconds of the monotonic clock.
    #[inline]
    pub(super) fn first_until_ns(&self) -> Option<u64> {
        if self.unsent.is_empty() { None } else { self.unsent.first_until_ns() }
    }

    /// Drops what waited too long, and answers the callers of requests that could not be forwarded.
    pub(super) fn expire(&mut self, slot: Slot<'_>, now_ns: u64) {
        if self.first_until_ns().is_none_or(|until_ns| until_ns > now_ns) {
            return;
        }
        let late = self.unsent.expire(now_ns);
        self.close_abandoned(slot, false);
        slot.add(Total::Dropped, late.len() as u64);
        self.fail_callers(slot, late);
    }

    /// Answers the callers of requests that could not be forwarded.
    fn fail_callers(&mut self, slot: Slot<'_>, messages: impl IntoIterator<Item = UnsentMessage>) {
        // Each message keeps its note until the caller was answered.
        for message in messages {
            let Some((client, call_id)) = message.caller else { continue };
            let deadline_ns = monotonic_ns() + UNSENT_NS_MAX;
            let call = Call { client, call_id, cd: 0, deadline_ns, is_without_reply: false };
            self.fail(slot, &call);
        }
    }

    /// Closes queues that lost their name, and drops what waits for them.
    pub(super) fn sweep(&mut self, slot: Slot<'_>) {
        self.queues.close_withdrawn();
        self.close_abandoned(slot, true);
        self.outbox.sweep(monotonic_ns());
    }

    /// Sends what can be sent until `until_ns`, and holds what readers have not fetched yet; the
    /// manager answers the callers of the rest. Called before the worker ends.
    pub(super) fn finish(&mut self, slot: Slot<'_>, until_ns: u64) {
        while !self.unsent.is_empty() && monotonic_ns() < until_ns {
            self.wait_for_room_until(slot, until_ns);
        }
        slot.add(Total::Dropped, self.unsent.leave() as u64);
        self.outbox.finish(until_ns);
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

/// Where a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Destination {
    /// To a client's reply queue.
    Client(ClientAddress),
    /// On to another service.
    Service(ServiceName),
}

/// A message that waits for room in its queue.
#[derive(Debug)]
struct UnsentMessage {
    bytes: Box<[u8]>,
    /// Names its caller to the manager while it waits, and for good when it is left.
    note: Option<UnsentReply>,
    /// When it is dropped, in nanoseconds of the monotonic clock.
    until_ns: u64,
    /// Of a forwarded request that wants a reply: its caller and call, for an error when it is dropped.
    caller: Option<(ClientAddress, u64)>,
}

/// All messages that wait, at most [`UNSENT_MAX`]: far more than the callers of a pool within the limits of
/// the kernel, and a megabyte at most at the usual size. It never waits and never opens a queue.
#[derive(Debug, Default)]
struct UnsentMessages {
    queues: Vec<Option<FullQueue>>,
    /// Messages of all queues.
    count: usize,
    generation: u32,
}

/// A full queue with the messages that wait for it.
#[derive(Debug)]
struct FullQueue {
    destination: Destination,
    queue: MessageQueue,
    /// The longest message that the queue takes.
    message_len_bytes_max: usize,
    generation: u32,
    waiting: VecDeque<UnsentMessage>,
}

impl UnsentMessages {
    fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn is_full(&self) -> bool {
        self.count >= UNSENT_MAX
    }

    /// The queue for which messages wait already, with its index.
    pub(super) fn find(&self, destination: &Destination) -> Option<(usize, &FullQueue)> {
        self.queues().find(|(_, full)| full.destination == *destination)
    }

    /// Adds a full queue, whose messages have `message_len_bytes_max` at most; its index and generation.
    fn open(
        &mut self,
        destination: Destination,
        queue: MessageQueue,
        message_len_bytes_max: usize,
    ) -> (usize, u32) {
        // Wraps as tokens do, so that both are the same number.
        self.generation = (self.generation + 1) % pollux_poller::Token::GENERATIONS;
        let generation = self.generation;
        let waiting = VecDeque::new();
        let full = FullQueue { destination, queue, message_len_bytes_max, generation, waiting };
        let free = self.queues.iter().position(Option::is_none);
        let at = free.unwrap_or_else(|| {
            self.queues.push(None);
            self.queues.len() - 1
        });
        self.queues[at] = Some(full);
        (at, generation)
    }

    /// Puts a message behind those that wait for the queue at `index`.
    fn add(&mut self, index: usize, message: UnsentMessage) {
        let full = self.queues[index].as_mut().expect("the caller just looked it up");
        full.waiting.push_back(message);
        self.count += 1;
    }

    /// Whether the queue at `index` is still that of `generation`.
    fn is_current(&self, index: usize, generation: u32) -> bool {
        let full = self.queues.get(index).and_then(Option::as_ref);
        full.is_some_and(|full| full.generation == generation)
    }

    /// All full queues with their indices.
    fn queues(&self) -> impl Iterator<Item = (usize, &FullQueue)> {
        self.queues.iter().enumerate().filter_map(|(at, full)| Some((at, full.as_ref()?)))
    }

    /// Sends what fits into the queue at `index`; whether nothing waits for it any more.
    fn flush(&mut self, index: usize) -> bool {
        let Some(full) = &mut self.queues[index] else { return false };
        while let Some(message) = full.waiting.front() {
            match full.queue.send(&message.bytes, 0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                // Its length fits this queue: nothing else can fail.
                _ => {
                    full.waiting.pop_front();
                    self.count -= 1;
                }
            }
        }
        true
    }

    /// Takes the queue at `index` away, with the messages that still wait for it.
    fn close(&mut self, index: usize) -> Option<FullQueue> {
        let full = self.queues[index].take()?;
        self.count -= full.waiting.len();
        Some(full)
    }

    /// Drops everything, as the worker ends, and leaves the notes to the manager; how many there were.
    fn leave(&mut self) -> usize {
        let messages: Vec<_> =
            self.queues.drain(..).flatten().flat_map(|full| full.waiting).collect();
        let count = messages.len();
        messages.into_iter().filter_map(|message| message.note).for_each(UnsentReply::leave);
        self.count = 0;
        count
    }

    /// Takes out the messages whose time is over.
    fn expire(&mut self, now_ns: u64) -> Vec<UnsentMessage> {
        let mut late = Vec::new();
        for full in self.queues.iter_mut().flatten() {
            let (over, waiting) =
                full.waiting.drain(..).partition::<Vec<_>, _>(|message| message.until_ns <= now_ns);
            full.waiting = waiting.into();
            late.extend(over);
        }
        self.count -= late.len();
        late
    }

    /// Queues for which nothing waits, and those that lost their name, as the reader is gone.
    fn abandoned(&self, is_asking_kernel: bool) -> Vec<usize> {
        let is_abandoned = |full: &FullQueue| {
            full.waiting.is_empty() || (is_asking_kernel && is_withdrawn(&full.queue))
        };
        self.queues().filter(|(_, full)| is_abandoned(full)).map(|(at, _)| at).collect()
    }

    /// When the first of them is dropped.
    fn first_until_ns(&self) -> Option<u64> {
        let messages = self.queues.iter().flatten().flat_map(|full| &full.waiting);
        messages.map(|message| message.until_ns).min()
    }
}

fn name_of(prefix: &Prefix, destination: &Destination) -> std::ffi::CString {
    match destination {
        Destination::Client(client) => prefix.reply_queue(client.pid, client.context),
        Destination::Service(service) => prefix.service_queue(service),
    }
}

fn posted(sent: &io::Result<()>) -> Posted {
    match sent {
        Ok(()) => Posted::OnTheWay,
        Err(error) if is(error, Errno::NOENT) => Posted::NoQueue,
        Err(_) => Posted::Failed,
    }
}

fn wanted_until_ns(deadline_ns: u64) -> u64 {
    if deadline_ns == 0 { monotonic_ns() + UNSENT_NS_MAX } else { deadline_ns }
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}
