//! Requests on their way out: the queue found, room waited for, calls opened.
//!
//! A send never blocks in the kernel. A blocked sender is served by the next receive, which moves its
//! message into the queue and wakes no poller: the message then waits while idle workers sleep. So a full queue is polled for room, and the message sent when there is some; of the
//! threads of a process one polls ([`PollLock`]). In shared memory there is no such sender; a full ring
//! is waited for on a word of its own (`mailbox`).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::num::NonZeroU32;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::thread::futex;
use rustix::time::Timespec;

use super::calls::descriptor_of;
use super::mailbox::Unsent;
use super::transport::{Queues, Transport};
use super::{CallFlags, Client, Descriptor, Outgoing, after, interrupted, late};
use crate::error::{Code, Error};
use crate::queue::{Prefix, ServiceName, monotonic_ns};
use crate::wire::{Body, PAYLOAD_LEN_BYTES_MAX, Payload, Request};

/// How long room is waited for before the queue is looked at anew: it may have been withdrawn,
/// without a worker that could make room.
const LOOK_AGAIN_NS: u64 = 1_000_000_000;

/// How long the payload of a large request without a time limit waits for a worker, a day: that of
/// a worker that was killed is not released otherwise.
const HELD_NS_MAX: u64 = 24 * 3600 * 1_000_000_000;

/// Queues that have a lock. The threads that wait for further queues all poll.
const LOCKS_MAX: usize = 64;

static LOCKS: [PollLock; LOCKS_MAX] = [const { PollLock::new() }; LOCKS_MAX];

/// The states of a lock.
const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and another thread may wait for it.
const AWAITED: u32 = 2;

/// All bits: woken by every futex::wake.
const ANY_WAKER: NonZeroU32 = NonZeroU32::MAX;

/// A request that is to be sent.
pub(super) struct OutgoingCall {
    service: ServiceName,
    flags: CallFlags,
    pub(super) call_id: u64,
    begun_ns: u64,
    /// 0 for never.
    pub(super) deadline_ns: u64,
    /// The memfd that its payload is in; 0 for none.
    pub(super) large_inode: u64,
    /// It begins a conversation: the service sees a descriptor below 0.
    pub(super) is_conversation: bool,
    /// Its reply is waited for at once.
    is_awaited: bool,
}

impl OutgoingCall {
    fn cd(&self) -> i32 {
        let number = descriptor_of(self.call_id).number();
        if self.is_conversation { -number } else { number }
    }
}

/// Why a message is not in the queue yet.
enum Obstacle {
    Full,
    /// The same, of a ring.
    Unsent(Unsent),
    Failed(Error),
}

impl Client {
    /// Sends a request whose reply is to be waited for later: `tpacall`.
    ///
    /// Waits while the queue is full, until the time for the call is over. Replies that came
    /// meanwhile are taken out of the reply queue, so that no worker waits for it.
    ///
    /// # Errors
    /// TPENOENT when the service is not offered, TPEBLOCK when its queue is full and TPNOBLOCK is
    /// given, TPETIME when it stayed full, TPELIMIT when too many calls or large payloads are
    /// out, TPGOTSIG, TPEINVAL for flags or a buffer that make no sense, TPEOS, TPESYSTEM.
    pub fn send_request(
        &mut self,
        service: &str,
        request: Outgoing<'_>,
        flags: CallFlags,
    ) -> Result<Descriptor, Error> {
        if flags.contains(CallFlags::NO_REPLY) {
            let detail = "a request with TPNOREPLY has no descriptor: use send_only";
            return Err(Error::new(Code::Invalid, detail));
        }
        self.send_call(service, request, flags, false).map(descriptor_of)
    }

    /// The same, with the number of the call. `is_awaited`: its reply is waited for at once.
    pub(super) fn send_call(
        &mut self,
        service: &str,
        request: Outgoing<'_>,
        flags: CallFlags,
        is_awaited: bool,
    ) -> Result<u64, Error> {
        if self.calls.out() > 0 {
            self.take_arrived()?;
        }
        let mut order = self.order(service, flags)?;
        order.is_awaited = is_awaited;
        order.call_id = self.calls.open(order.deadline_ns)?;
        if let Err(error) = self.submit(&mut order, request) {
            self.calls.close(order.call_id);
            return Err(error);
        }
        if let Some(slot) = self.calls.get_mut(order.call_id) {
            slot.large_inode = order.large_inode;
        }
        Ok(order.call_id)
    }

    /// Sends a request without a reply: `tpacall` with TPNOREPLY.
    ///
    /// # Errors
    /// As [`send_request`](Self::send_request), but for the limit on calls.
    pub fn send_only(
        &mut self,
        service: &str,
        request: Outgoing<'_>,
        flags: CallFlags,
    ) -> Result<(), Error> {
        let mut order = self.order(service, flags | CallFlags::NO_REPLY)?;
        order.call_id = self.calls.unanswered_id();
        self.submit(&mut order, request)
    }

    pub(super) fn order(&mut self, service: &str, flags: CallFlags) -> Result<OutgoingCall, Error> {
        let timeout = self.next_timeout.take().unwrap_or(self.timeout);
        let service = ServiceName::new(service).ok_or_else(|| not_offered(service))?;
        let begun_ns = monotonic_ns();
        let is_endless = flags.contains(CallFlags::NO_TIME);
        let deadline_ns = if is_endless { 0 } else { after(begun_ns, timeout) };
        self.follow_manager(deadline_ns);
        Ok(OutgoingCall {
            service,
            flags,
            call_id: 0,
            begun_ns,
            deadline_ns,
            large_inode: 0,
            is_conversation: false,
            is_awaited: false,
        })
    }

    /// Puts the request into the queue of its service; holds nothing of one that failed. A service that is
    /// not there may be offered by a pool that came after the one which this client knows.
    pub(super) fn submit(
        &mut self,
        order: &mut OutgoingCall,
        request: Outgoing<'_>,
    ) -> Result<(), Error> {
        let followed = self.counters.managers_followed;
        match self.try_submit(order, request) {
            Err(error) if error.code() == Code::NoEntry => {
                let is_new = self.counters.managers_followed != followed
                    || self.await_manager(Some(order.call_id), order.deadline_ns)?;
                if is_new { self.try_submit(order, request) } else { Err(error) }
            }
            done => done,
        }
    }

    fn try_submit(&mut self, order: &mut OutgoingCall, request: Outgoing<'_>) -> Result<(), Error> {
        let len = self.encode_request(order, request)?;
        let sent = self.send_when_room(order, len);
        match &sent {
            Ok(()) => self.counters.sent += 1,
            Err(_) if order.large_inode != 0 => {
                self.outbox.withdraw(std::mem::take(&mut order.large_inode));
            }
            Err(_) => {}
        }
        sent
    }

    fn send_when_room(&mut self, order: &OutgoingCall, len: usize) -> Result<(), Error> {
        let mut is_first = true;
        let mut guard = None;
        loop {
            match self.try_send(order, len, is_first) {
                Ok(()) => return Ok(()),
                Err(Obstacle::Failed(error)) => return Err(error),
                Err(_) if order.flags.contains(CallFlags::NO_BLOCK) => return Err(full()),
                Err(Obstacle::Full) => self.wait_for_room(order, &mut guard)?,
                Err(Obstacle::Unsent(why)) => self.wait_for_ring(order, &why)?,
            }
            is_first = false;
        }
    }

    /// Writes the request to `outgoing`, its payload to a memfd if it is too long for that; the
    /// length of the message.
    fn encode_request(
        &mut self,
        order: &mut OutgoingCall,
        request: Outgoing<'_>,
    ) -> Result<usize, Error> {
        let Outgoing { buffer_type, buffer_size_bytes, bytes } = request;
        if buffer_type.is_none() && !bytes.is_empty() {
            return Err(Error::new(Code::Invalid, "data without a buffer's type"));
        }
        let buffer_size_bytes = buffer_size_bytes.max(bytes.len()) as u64;
        if buffer_size_bytes > PAYLOAD_LEN_BYTES_MAX {
            let detail = format!("a buffer that is sent has at most {PAYLOAD_LEN_BYTES_MAX} bytes");
            return Err(Error::new(Code::Invalid, detail));
        }
        let body = Body::Inline(bytes);
        let mut message = Request {
            client: self.address,
            call_id: order.call_id,
            cd: order.cd(),
            deadline_ns: order.deadline_ns,
            is_without_reply: order.flags.contains(CallFlags::NO_REPLY),
            service: order.service,
            payload: Payload { buffer_type, buffer_size_bytes, body },
        };
        if let Some(len) = message.encode(&mut self.outgoing) {
            return Ok(len);
        }
        let until_ns = match order.deadline_ns {
            0 => order.begun_ns + HELD_NS_MAX,
            deadline_ns => deadline_ns,
        };
        if self.is_guest {
            let (len, most) = (bytes.len(), self.outgoing.len());
            let detail = format!(
                "{len} bytes do not fit a message of {most} (NDRX_MSGSIZEMAX of the pool), and longer \
                 requests are for clients of the pool's own user"
            );
            return Err(Error::new(Code::Limit, detail));
        }
        let large = self.outbox.put(bytes, until_ns, None, order.begun_ns)?;
        order.large_inode = large.inode;
        message.payload.body = Body::Large(large);
        Ok(message.encode(&mut self.outgoing).expect("a message holds the longest head"))
    }

    /// Sends what is in `outgoing` if there is room. The first try trusts a look at the queue of
    /// a moment ago; later ones look again, as the service may have gone meanwhile.
    fn try_send(
        &mut self,
        order: &OutgoingCall,
        len: usize,
        is_first: bool,
    ) -> Result<(), Obstacle> {
        let service = order.service;
        let queues = match &mut self.transport {
            Transport::Queues(queues) => queues,
            Transport::Memory(mailbox) => {
                let wants_reply = !order.flags.contains(CallFlags::NO_REPLY);
                let message = &self.outgoing[..len];
                let sent =
                    mailbox.send(service, order.call_id, wants_reply, order.is_awaited, message);
                return sent.map_err(|why| match why {
                    Unsent::NotOffered => Obstacle::Failed(not_offered(service.as_str())),
                    why => Obstacle::Unsent(why),
                });
            }
        };
        let name = || self.prefix.service_queue(&service);
        let queue = if is_first {
            queues.services.open_named_lately(service, order.begun_ns, name)
        } else {
            queues.services.open_named(service, name)
        };
        let queue = queue.map_err(|source| {
            Obstacle::Failed(match Errno::from_io_error(&source) {
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
        queue.send(&self.outgoing[..len], 0).map_err(|source| {
            if source.kind() == io::ErrorKind::WouldBlock {
                return Obstacle::Full;
            }
            let detail = format!(
                "the queue of {service} does not take a message of {len} bytes: its size is not \
                 that of the pool"
            );
            Obstacle::Failed(Error::caused(Code::System, detail, source))
        })
    }

    /// Waits for room in the ring of the service.
    fn wait_for_ring(&mut self, order: &OutgoingCall, why: &Unsent) -> Result<(), Error> {
        self.counters.waits_for_room += 1;
        let until_ns = next_check(order)?;
        if self.transport.is_manager_gone() && self.await_manager(Some(order.call_id), 1)? {
            // The message in `outgoing` is for the pool before: the request is written anew.
            return Err(not_offered(order.service.as_str()));
        }
        let Transport::Memory(mailbox) = &self.transport else { return Ok(()) };
        // Its only error is a signal.
        mailbox.wait_for_room(why, until_ns).or_else(|_| after_signal(order))
    }

    /// Waits for room in the queue of the service, and takes replies that come meanwhile. A thread that waits
    /// for no reply holds the lock of the queue by then, in `guard`.
    fn wait_for_room(
        &mut self,
        order: &OutgoingCall,
        guard: &mut Option<Guard>,
    ) -> Result<(), Error> {
        let service = order.service;
        self.counters.waits_for_room += 1;
        let until_ns = next_check(order)?;
        let own = usize::from(!order.flags.contains(CallFlags::NO_REPLY));
        if guard.is_none()
            && self.calls.out() <= own
            && let Some(lock) = PollLock::of(&self.prefix, &service)
        {
            match lock.lock(until_ns) {
                Locked::Held(held) => *guard = Some(held),
                Locked::Late => return Ok(()),
                Locked::Interrupted => return after_signal(order),
            }
        }
        self.poll_for_room(order, until_ns)
    }

    fn poll_for_room(&mut self, order: &OutgoingCall, until_ns: u64) -> Result<(), Error> {
        let service = order.service;
        let name = || self.prefix.service_queue(&service);
        let Transport::Queues(Queues { replies, services, .. }) = &mut self.transport else {
            return Ok(()); // Rings are waited for elsewhere.
        };
        let Ok(queue) = services.open(service, name) else {
            return Ok(()); // Withdrawn; the next try to send fails.
        };
        let left = Duration::from_nanos(until_ns.saturating_sub(monotonic_ns()));
        let left = Timespec::try_from(left).expect("a second at most");
        let mut watched = [
            PollFd::from_borrowed_fd(queue.as_fd(), PollFlags::OUT),
            PollFd::from_borrowed_fd(replies.as_fd(), PollFlags::IN),
        ];
        match poll(&mut watched, Some(&left)) {
            Err(Errno::INTR) => return after_signal(order),
            Ok(_) => {}
            Err(errno) => return Err(Error::os("a full queue cannot be watched", errno.into())),
        }
        if watched[1].revents().contains(PollFlags::IN) { self.take_arrived() } else { Ok(()) }
    }
}

/// Until when room is waited for before the next check.
fn next_check(order: &OutgoingCall) -> Result<u64, Error> {
    let (now_ns, deadline_ns) = (monotonic_ns(), order.deadline_ns);
    if deadline_ns != 0 && now_ns >= deadline_ns {
        return Err(late());
    }
    let look_ns = now_ns + LOOK_AGAIN_NS;
    Ok(if deadline_ns == 0 { look_ns } else { look_ns.min(deadline_ns) })
}

/// The result of a signal in a wait for room.
fn after_signal(order: &OutgoingCall) -> Result<(), Error> {
    let restarts = order.flags.contains(CallFlags::SIGNAL_RESTART);
    if restarts { Ok(()) } else { Err(interrupted()) }
}

fn not_offered(service: &str) -> Error {
    Error::new(Code::NoEntry, format!("the service '{}' is not offered", service.escape_debug()))
}

fn full() -> Error {
    Error::new(Code::Block, "the queue of the service is full, and TPNOBLOCK forbids to wait")
}

/// Which thread of this process polls one full queue; the others wait for the lock.
///
/// poll(2) wakes every thread that waits for room as soon as there is room for one message; with 64 threads
/// most of their CPU time is spent on that. Here the others sleep in futex(2), and each that unlocks wakes one.
///
/// Nothing is allocated: a lock is given to a queue by a compare-and-swap of its key, and none is held in a
/// child of `fork(2)`, which has keys of its own. A thread that never unlocks (a signal handler jumped out of
/// it) costs the others no more than the time that they were ready to wait: each tries to send at the end of it.
#[derive(Debug)]
struct PollLock {
    /// A hash of process, pool and service; 0 when it is free.
    key: AtomicU64,
    state: AtomicU32,
}

/// Holds the lock until it is dropped.
#[derive(Debug)]
struct Guard {
    lock: &'static PollLock,
}

/// How a wait for the lock ended.
#[derive(Debug)]
enum Locked {
    /// This thread has it.
    Held(Guard),
    /// `until_ns` has come.
    Late,
    /// A signal handler ran.
    Interrupted,
}

impl PollLock {
    const fn new() -> Self {
        Self { key: AtomicU64::new(0), state: AtomicU32::new(FREE) }
    }

    /// The one of a queue; `None` when all belong to other queues.
    fn of(prefix: &Prefix, service: &ServiceName) -> Option<&'static Self> {
        let mut hasher = DefaultHasher::new();
        (std::process::id(), prefix.as_str(), service.as_str()).hash(&mut hasher);
        Self::with_key(hasher.finish().max(1))
    }

    fn with_key(key: u64) -> Option<&'static Self> {
        let first = (key % LOCKS_MAX as u64) as usize;
        let (before, from) = LOCKS.split_at(first);
        from.iter().chain(before).find(|lock| {
            let found = lock.key.compare_exchange(0, key, Relaxed, Relaxed);
            found.map_or_else(|owner| owner == key, |_| true)
        })
    }

    /// Waits for the lock until the monotonic clock shows `until_ns`.
    fn lock(&'static self, until_ns: u64) -> Locked {
        let until = Duration::from_nanos(until_ns);
        let until = Timespec::try_from(until).expect("nanoseconds in 64 bits are few seconds");
        let flags = futex::Flags::PRIVATE;
        if self.state.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok() {
            return Locked::Held(Guard { lock: self });
        }
        while self.state.swap(AWAITED, Acquire) != FREE {
            match futex::wait_bitset(&self.state, flags, AWAITED, Some(&until), ANY_WAKER) {
                Ok(()) | Err(Errno::AGAIN) => {}
                Err(Errno::INTR) => return Locked::Interrupted,
                // ETIMEDOUT; after other errors too the caller tries to send and comes again.
                Err(_) => return Locked::Late,
            }
        }
        Locked::Held(Guard { lock: self })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let state = &self.lock.state;
        if state.swap(FREE, Release) == AWAITED {
            // It fails for no reason but a bad address.
            let _ = futex::wake(state, futex::Flags::PRIVATE, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn one_thread_holds_the_lock_and_each_gets_it() {
        let lock = PollLock::with_key(0x1001).expect("a free one");
        let (inside, rounds) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        let Locked::Held(guard) = lock.lock(monotonic_ns() + 60 * SECOND_NS) else {
                            panic!("a minute is enough");
                        };
                        assert_eq!(inside.fetch_add(1, Relaxed), 0);
                        rounds.fetch_add(1, Relaxed);
                        inside.fetch_sub(1, Relaxed);
                        drop(guard);
                    }
                });
            }
        });
        assert_eq!(rounds.into_inner(), 8_000);
    }

    #[test]
    fn a_wait_ends_at_its_time_and_the_lock_is_to_be_had_later() {
        let lock = PollLock::with_key(0x1002).expect("a free one");
        let far = monotonic_ns() + 60 * SECOND_NS;
        let Locked::Held(guard) = lock.lock(far) else { panic!("it was free") };
        let until_ns = monotonic_ns() + SECOND_NS / 100;
        assert!(matches!(lock.lock(until_ns), Locked::Late));
        assert!(monotonic_ns() >= until_ns);
        drop(guard);
        assert!(matches!(lock.lock(far), Locked::Held(_)));
    }

    #[test]
    fn each_queue_has_its_own_and_the_same_one_each_time() {
        let prefix = Prefix::new("/poll-lock").expect("a prefix");
        let service = |name| ServiceName::new(name).expect("a service");
        let of = |name| PollLock::of(&prefix, &service(name)).expect("a free one");
        assert!(std::ptr::eq(of("A"), of("A")));
        assert!(!std::ptr::eq(of("A"), of("B")));
    }
}
