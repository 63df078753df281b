//! Replies and forwarded requests on their way out of a worker.
//!
//! The dispatch hands them over once a service function is through. Nothing here waits for a
//! reader, except when hundreds of messages wait already: what finds its queue full is parked,
//! and the worker serves others meanwhile.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;

use pollux_sys::mqueue::MessageQueue;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::parked::{Destination, Letter, Parked};
use super::watch::Watch;
use crate::client::Outgoing;
use crate::clock::monotonic_ns;
use crate::error::Code;
use crate::large::Outbox;
use crate::queue::{Prefix, QueueCache, ServiceName, is_withdrawn};
use crate::slots::{Caller, Promise, Slot, Slots, Total};
use crate::wire::{Body, ClientAddress, Payload, Reply, Request};

/// The most queues of others that a worker holds open, each a descriptor.
const QUEUES_OPEN_MAX: usize = 128;
/// How long a message for a caller without a deadline is kept.
const PARKED_NS_MAX: u64 = 60_000_000_000;
/// How long a worker that can keep no more waits before it looks whose reader is gone.
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

/// What the caller is told, beside the data.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Verdict {
    pub(super) error: Option<Code>,
    pub(super) rval: i32,
    pub(super) urcode: i64,
}

/// What became of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Posted {
    /// It is in its queue, or waits for room.
    OnTheWay,
    /// There is no such queue.
    NoQueue,
    /// It can't be sent.
    Failed,
}

/// The way out.
pub(super) struct Replies {
    prefix: Prefix,
    slots: Rc<Slots>,
    /// Which of the slots is this worker's.
    slot_index: usize,
    queues: QueueCache<Destination>,
    outbox: Outbox,
    parked: Parked,
    /// A message that is being written.
    frame: Vec<u8>,
}

impl Replies {
    pub(super) fn new(prefix: Prefix, slots: Rc<Slots>, slot_index: usize) -> Self {
        Self {
            prefix,
            slots,
            slot_index,
            queues: QueueCache::new(QUEUES_OPEN_MAX),
            outbox: Outbox::default(),
            parked: Parked::default(),
            frame: Vec::new(),
        }
    }

    /// Answers `call`; data that can't be sent turns into TPESVCERR.
    #[inline]
    pub(super) fn reply(
        &mut self,
        watch: &mut Watch,
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
        match self.post(watch, slot, destination, call, data, None, encode) {
            Posted::OnTheWay => {}
            Posted::NoQueue => slot.add(Total::Gone, 1),
            Posted::Failed if verdict.error == Some(Code::ServiceError) => {
                slot.add(Total::Dropped, 1);
            }
            Posted::Failed => self.fail(watch, slot, call),
        }
    }

    /// Tells the caller that the service broke.
    pub(super) fn fail(&mut self, watch: &mut Watch, slot: Slot<'_>, call: &Call) {
        let verdict = Verdict { error: Some(Code::ServiceError), rval: 0, urcode: 0 };
        self.reply(watch, slot, call, verdict, Outgoing::NONE);
    }

    /// Passes `call` on to another service, which answers it; whether it is on the way.
    pub(super) fn forward(
        &mut self,
        watch: &mut Watch,
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
        let posted = self.post(watch, slot, destination, call, data, caller, encode);
        posted == Posted::OnTheWay
    }

    #[expect(clippy::too_many_arguments, reason = "the one way that both kinds of message take")]
    fn post(
        &mut self,
        watch: &mut Watch,
        slot: Slot<'_>,
        destination: Destination,
        call: &Call,
        data: Outgoing<'_>,
        caller: Option<(ClientAddress, u64)>,
        encode: impl Fn(&Payload<'_>, &mut [u8]) -> Option<usize>,
    ) -> Posted {
        slot.add(Total::PayloadBytes, data.bytes.len() as u64);
        self.frame.resize(watch.message_len_bytes_max(), 0);
        let payload = Payload {
            buffer_type: data.buffer_type,
            buffer_size_bytes: data.buffer_size_bytes as u64,
            body: Body::Inline(data.bytes),
        };
        if let Some(len) = encode(&payload, &mut self.frame) {
            match self.send(watch, slot, destination, call, len, caller) {
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
            Some(len) => self.send(watch, slot, destination, call, len, caller),
            None => Err(Errno::MSGSIZE.into()),
        };
        if sent.is_err() {
            self.outbox.withdraw(large.inode);
        }
        posted(&sent)
    }

    /// Sends the first `len` bytes of the frame, or parks them.
    #[inline]
    fn send(
        &mut self,
        watch: &mut Watch,
        slot: Slot<'_>,
        destination: Destination,
        call: &Call,
        len: usize,
        caller: Option<(ClientAddress, u64)>,
    ) -> io::Result<()> {
        let full = if self.parked.is_empty() { None } else { self.parked.find(&destination) };
        // What waits there already goes first.
        match full {
            Some((_, place)) if len > place.message_len_bytes_max => {
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
        self.park(watch, slot, destination, call, len, caller)
    }

    /// Keeps the first `len` bytes of the frame until there is room.
    fn park(
        &mut self,
        watch: &mut Watch,
        slot: Slot<'_>,
        destination: Destination,
        call: &Call,
        len: usize,
        caller: Option<(ClientAddress, u64)>,
    ) -> io::Result<()> {
        let bytes: Box<[u8]> = self.frame[..len].into();
        while self.parked.is_full() {
            self.wait_for_room(watch, slot);
        }
        let place = match self.parked.find(&destination) {
            Some((place, _)) => place,
            None => self.open_place(watch, destination)?,
        };
        let promise = (!call.is_without_reply).then(|| {
            let ClientAddress { pid, context, nonce } = call.client;
            let caller = Caller { pid, context, call_id: call.call_id, nonce };
            Promise::note(&self.slots, self.slot_index, &caller)
        });
        let until_ns = wanted_until_ns(call.deadline_ns);
        let letter = Letter { bytes, promise: promise.flatten(), until_ns, caller };
        self.parked.add(place, letter);
        slot.add(Total::Parked, 1);
        Ok(())
    }

    /// A place for a full queue, which is watched for room from now on.
    fn open_place(&mut self, watch: &mut Watch, destination: Destination) -> io::Result<usize> {
        // A queue of its own, as the cache may close its one at any time.
        let queue = MessageQueue::open(&name_of(&self.prefix, &destination))?;
        let len_bytes = queue.state()?.size.message_len_bytes as usize;
        let (place, generation) = self.parked.open(destination, queue, len_bytes);
        let (_, opened) = self.parked.find(&destination).expect("just opened");
        if let Err(error) = watch.await_room(place, generation, opened.queue.as_fd()) {
            self.parked.close(place);
            return Err(io::Error::other(error));
        }
        Ok(place)
    }

    /// Sends what a queue has room for. Called when it has some.
    pub(super) fn flush(&mut self, watch: &mut Watch, place: usize, generation: u32) {
        if self.parked.is_current(place, generation) && self.parked.flush(place) {
            self.close(watch, place);
        }
    }

    /// When something that waits is not wanted any more, in nanoseconds of the monotonic clock.
    #[inline]
    pub(super) fn first_until_ns(&self) -> Option<u64> {
        if self.parked.is_empty() { None } else { self.parked.first_until_ns() }
    }

    /// Drops what waited too long, and tells the callers of requests that could not be forwarded.
    pub(super) fn expire(&mut self, watch: &mut Watch, slot: Slot<'_>, now_ns: u64) {
        if self.first_until_ns().is_none_or(|until_ns| until_ns > now_ns) {
            return;
        }
        let late = self.parked.expire(now_ns);
        self.close_abandoned(watch, slot, false);
        slot.add(Total::Dropped, late.len() as u64);
        self.tell_callers(watch, slot, late);
    }

    /// Tells the callers of requests that could not be forwarded.
    fn tell_callers(
        &mut self,
        watch: &mut Watch,
        slot: Slot<'_>,
        letters: impl IntoIterator<Item = Letter>,
    ) {
        // A letter's promise goes when the caller has been told.
        for letter in letters {
            let Some((client, call_id)) = letter.caller else { continue };
            let deadline_ns = monotonic_ns() + PARKED_NS_MAX;
            let call = Call { client, call_id, cd: 0, deadline_ns, is_without_reply: false };
            self.fail(watch, slot, &call);
        }
    }

    /// Closes queues that lost their name, and gives up what waits for them.
    pub(super) fn sweep(&mut self, watch: &mut Watch, slot: Slot<'_>) {
        self.queues.close_withdrawn();
        self.close_abandoned(watch, slot, true);
        self.outbox.sweep(monotonic_ns());
    }

    /// Sends what can be sent until `until_ns`, and holds what readers have not fetched yet; the
    /// manager tells those who wait for the rest. Called before the worker ends.
    pub(super) fn finish(&mut self, watch: &mut Watch, slot: Slot<'_>, until_ns: u64) {
        while !self.parked.is_empty() && monotonic_ns() < until_ns {
            self.wait_for_room_until(watch, slot, until_ns);
        }
        slot.add(Total::Dropped, self.parked.leave() as u64);
        self.outbox.finish(until_ns);
    }

    /// Waits for a moment until one of the messages that are kept is not any more: sent, too
    /// late, or for a reader that is gone.
    fn wait_for_room(&mut self, watch: &mut Watch, slot: Slot<'_>) {
        let until_ns = self.parked.first_until_ns().unwrap_or(0);
        self.wait_for_room_until(watch, slot, until_ns.min(monotonic_ns() + LOOK_AGAIN_NS));
        self.close_abandoned(watch, slot, self.parked.is_full());
    }

    fn wait_for_room_until(&mut self, watch: &mut Watch, slot: Slot<'_>, until_ns: u64) {
        let (places, mut fds): (Vec<_>, Vec<_>) = self
            .parked
            .places()
            .map(|(at, place)| (at, PollFd::new(&place.queue, PollFlags::OUT)))
            .unzip();
        let left = std::time::Duration::from_nanos(until_ns.saturating_sub(monotonic_ns()));
        // A signal ends the wait early, which costs one more.
        let _ = rustix::event::poll(&mut fds, left.try_into().ok().as_ref());
        let has_room: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        for (place, _) in places.into_iter().zip(has_room).filter(|(_, has_room)| *has_room) {
            if self.parked.flush(place) {
                self.close(watch, place);
            }
        }
        self.expire(watch, slot, monotonic_ns());
    }

    fn close_abandoned(&mut self, watch: &mut Watch, slot: Slot<'_>, is_asking_kernel: bool) {
        for place in self.parked.abandoned(is_asking_kernel) {
            let left = self.close(watch, place);
            slot.add(Total::Gone, left.len() as u64);
            self.tell_callers(watch, slot, left);
        }
    }

    /// Takes a place away; what waited there.
    fn close(&mut self, watch: &mut Watch, place: usize) -> VecDeque<Letter> {
        let Some(closed) = self.parked.close(place) else { return VecDeque::new() };
        watch.forget(closed.queue.as_fd());
        closed.waiting
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
    if deadline_ns == 0 { monotonic_ns() + PARKED_NS_MAX } else { deadline_ns }
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}
