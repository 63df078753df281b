//! Linux AIO poll: one-shot polls, handed in by the batch, with completions that are read from
//! shared memory.
//!
//! The AIO backend of the poller calls this. A context owns the control block of every poll in
//! flight in memory that never moves, because `io_cancel(2)` looks at it again; a slot is free
//! only when its completion was read. Nothing here arms a poll a second time, blocks outside
//! [`AioContext::wait`] or knows what `data` means.
//!
//! ```text
//!  free ──submit──▶ in flight ──ready──▶ completed ──read or wait──▶ free
//!                       └──cancel──▶ cancelled ──(a moment later)──┘
//! ```
//!
//! Sources: `io_setup(2)`, `io_submit(2)`, `io_getevents(2)`, the kernel's `fs/aio.c`.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, io};

use crate::SystemCall;
use crate::poll_select::{MASK_BYTES, MaskArgument, SignalMask, timespec};

/// The system calls of a context; one of them makes a larger one, as a context of polls grows. It reads, writes and polls what
/// is open, and no more.
pub const CALLS: &[SystemCall] = &[
    libc::SYS_io_setup,
    libc::SYS_io_submit,
    libc::SYS_io_getevents,
    libc::SYS_io_cancel,
    libc::SYS_io_destroy,
];

/// The most polls that one `io_submit(2)` carries: bounds how long the kernel is kept busy.
pub const BATCH_MAX: usize = 1024;

/// One poll to hand in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AioPoll {
    /// The number whose file is watched. The file is held open until the poll completes.
    pub fd: RawFd,
    /// POLLIN and the like; POLLERR and POLLHUP are always watched for.
    pub events: u16,
    /// Comes back in [`AioCompletion::data`].
    pub data: u64,
}

/// Names a poll in flight, until its completion was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AioSlot(u32);

/// The end of one poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AioCompletion {
    /// What the poll was handed in with.
    pub data: u64,
    /// The poll mask that was found, with bits that were not asked for (POLLRDNORM); zero for a
    /// poll that was cancelled.
    pub result: i64,
}

/// One AIO context, for polls only. Used by one thread at a time.
pub struct AioContext {
    id: ContextId,
    /// The process that it belongs to: a child of `fork(2)` has this value, but not the context.
    process: u32,
    /// `None` where the kernel's ring is not the known one: every look is a system call then.
    ring: Option<Ring>,
    iocbs: Box<[Iocb]>,
    free: Vec<u32>,
    /// The eventfd that completions are added to.
    notified: Option<RawFd>,
    /// What the last submit handed in, and where it lies.
    submitted: Vec<AioSlot>,
    batch: Vec<*mut Iocb>,
    /// Where completions are taken to: as long as the largest number that was asked for, and
    /// never cleared, which would cost each wait more than its system call.
    buffer: Vec<IoEvent>,
}

impl AioContext {
    /// A context for `slots` polls in flight; they count against `fs.aio-max-nr`, which all
    /// processes share.
    ///
    /// # Errors
    /// EAGAIN at `fs.aio-max-nr`, ENOMEM, EINVAL for none or far too many, ENOSYS where the
    /// kernel was built without AIO.
    pub fn new(slots: u32) -> io::Result<Self> {
        let id = setup(slots)?;
        let ring = Ring::at(id);
        Ok(Self {
            id,
            process: std::process::id(),
            ring,
            iocbs: vec![Iocb::poll(-1, 0, 0); slots as usize].into_boxed_slice(),
            free: (0..slots).rev().collect(),
            notified: None,
            submitted: Vec::new(),
            batch: Vec::new(),
            buffer: Vec::new(),
        })
    }

    /// Tries the other calls that the context needs, which filters may forbid one by one: with
    /// nothing to submit, nothing to wait for and nothing to cancel.
    ///
    /// # Errors
    /// Of a filter, most often EPERM or ENOSYS.
    pub fn check_calls(&mut self) -> io::Result<()> {
        take_events(self.id, 0, &mut [], Some(&mut timespec(Duration::ZERO)), None)?;
        // SAFETY: no pointer is handed over.
        unsafe { submit(self.id, &mut []) }?;
        self.cancel(AioSlot(0))
    }

    /// Has each completion of polls that are handed in from now on add one to `eventfd`, so that another
    /// interface can wait for them. It stays open as long as polls are handed in; a closed one is EBADF then.
    pub fn notify(&mut self, eventfd: BorrowedFd<'_>) {
        self.notified = Some(eventfd.as_raw_fd());
    }

    /// How many polls can be in flight.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.iocbs.len()
    }

    /// Whether completions are read without a system call.
    #[must_use]
    pub fn has_user_ring(&self) -> bool {
        self.ring.is_some()
    }

    /// Hands in `polls` from the front, at most [`BATCH_MAX`] and as many as slots are free,
    /// with one system call; returns the slots of those that were accepted, in order. It makes
    /// no call, and accepts none, when there is nothing to hand in or no slot is free.
    ///
    /// # Errors
    /// Why the kernel refused the first of `polls`: EBADF for a number that names no open file,
    /// EAGAIN at a limit. A refusal of a later one shows when it comes first.
    pub fn submit(&mut self, polls: &[AioPoll]) -> io::Result<&[AioSlot]> {
        self.submitted.clear();
        for poll in polls.iter().take(BATCH_MAX) {
            let Some(slot) = self.free.pop() else { break };
            let iocb = Iocb::poll(poll.fd, poll.events, poll.data);
            self.iocbs[slot as usize] =
                self.notified.map_or(iocb, |eventfd| iocb.notifying(eventfd));
            self.submitted.push(AioSlot(slot));
        }
        if self.submitted.is_empty() {
            return Ok(&[]);
        }
        let first = self.iocbs.as_mut_ptr();
        self.batch.clear();
        self.batch.extend(self.submitted.iter().map(|slot| first.wrapping_add(slot.0 as usize)));
        // SAFETY: every pointer leads into `self.iocbs`, which is borrowed exclusively here, and
        // they hold poll commands only.
        let accepted = unsafe { submit(self.id, &mut self.batch) };
        let kept = *accepted.as_ref().unwrap_or(&0);
        self.free.extend(self.submitted.drain(kept..).rev().map(|slot| slot.0));
        accepted.map(|_| &self.submitted[..])
    }

    /// Asks for the end of a poll in flight. Its completion still comes, with the result zero
    /// and a moment later, or with the readiness that was found before.
    ///
    /// # Errors
    /// None that a correct caller meets: EINPROGRESS is the kernel's yes, EINVAL its word that
    /// the completion is there already. Others are passed on.
    ///
    /// # Panics
    /// When `slot` is of another context.
    pub fn cancel(&mut self, slot: AioSlot) -> io::Result<()> {
        let iocb = &raw mut self.iocbs[slot.0 as usize];
        // SAFETY: the pointer leads into `self.iocbs`, which is borrowed exclusively here.
        match unsafe { cancel(self.id, iocb) } {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::EINPROGRESS | libc::EINVAL) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Whether the context belongs to this process, and not to one that forked it.
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    /// Asks for the end of every poll in flight, as [`AioContext::cancel`] does.
    ///
    /// # Errors
    /// As [`AioContext::cancel`].
    pub fn cancel_all(&mut self) -> io::Result<()> {
        let mut is_free = vec![false; self.iocbs.len()];
        self.free.iter().for_each(|slot| is_free[*slot as usize] = true);
        (0..)
            .zip(is_free)
            .filter(|(_, is_free)| !is_free)
            .try_for_each(|(slot, _)| self.cancel(AioSlot(slot)))
    }

    /// Waits at most `timeout` until no poll is in flight; completions are dropped, and from then on nothing is
    /// notified. Says whether that is so: the context is as a new one then.
    ///
    /// # Errors
    /// As [`AioContext::wait`]; EINVAL also in a child of the process that made the context.
    pub fn drain(&mut self, timeout: Duration) -> io::Result<bool> {
        let end = Instant::now() + timeout;
        let mut dropped = Vec::new();
        while self.free.len() < self.iocbs.len() {
            dropped.clear();
            let rest = end.saturating_duration_since(Instant::now());
            if self.wait(&mut dropped, self.iocbs.len() - self.free.len(), Some(rest))? == 0 {
                return Ok(false);
            }
        }
        self.notified = None;
        Ok(true)
    }

    /// Moves up to `most` completions to the end of `found` without blocking; returns how many.
    ///
    /// # Errors
    /// Of `io_getevents(2)`, and only without a user ring.
    pub fn read(&mut self, found: &mut Vec<AioCompletion>, most: usize) -> io::Result<usize> {
        let Some(ring) = &mut self.ring else {
            return self.wait(found, most, Some(Duration::ZERO));
        };
        let most = most.min(self.iocbs.len());
        let count = ring.take(room(&mut self.buffer, most));
        self.settle(count, found);
        Ok(count)
    }

    /// Blocks until a completion is there or `timeout` is over (`None`: for ever), and moves up
    /// to `most` (at least one) to the end of `found`; returns how many.
    ///
    /// # Errors
    /// EINTR after a signal.
    pub fn wait(
        &mut self,
        found: &mut Vec<AioCompletion>,
        most: usize,
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        self.wait_masked(found, most, timeout, None)
    }

    /// As [`AioContext::wait`], with a signal mask for the time of the call (`io_pgetevents(2)`, Linux
    /// 4.18).
    ///
    /// # Errors
    /// As [`AioContext::wait`].
    pub fn wait_masked(
        &mut self,
        found: &mut Vec<AioCompletion>,
        most: usize,
        timeout: Option<Duration>,
        mask: Option<&SignalMask>,
    ) -> io::Result<usize> {
        let room = room(&mut self.buffer, most.clamp(1, self.iocbs.len()));
        let mut time = timeout.map(timespec);
        let count = take_events(self.id, 1, room, time.as_mut(), mask)?;
        self.settle(count, found);
        Ok(count)
    }

    /// Hands the first `count` events of the buffer out and frees their slots.
    fn settle(&mut self, count: usize, found: &mut Vec<AioCompletion>) {
        let first = self.iocbs.as_ptr().addr() as u64;
        for event in &self.buffer[..count] {
            let slot = (event.iocb - first) / size_of::<Iocb>() as u64;
            self.free.push(u32::try_from(slot).expect("completions are of our own blocks"));
            found.push(AioCompletion { data: event.data, result: event.result });
        }
    }
}

/// The first `most` places of `buffer`, which grows to have them.
fn room(buffer: &mut Vec<IoEvent>, most: usize) -> &mut [IoEvent] {
    if buffer.len() < most {
        buffer.resize(most, IoEvent::default());
    }
    &mut buffer[..most]
}

impl Drop for AioContext {
    /// Ends every poll in flight. Takes 30 to 40 ms: `io_destroy(2)` waits for a grace period (RCU).
    fn drop(&mut self) {
        self.ring = None;
        if !self.is_here() {
            return;
        }
        // SAFETY: the ring was given up above. The kernel keeps no pointer to the blocks.
        let destroyed = unsafe { destroy(self.id) };
        // A child with the number of its parent, in a namespace of its own: EINVAL.
        let is_inherited =
            destroyed.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL));
        debug_assert!(
            destroyed.is_ok() || is_inherited,
            "io_destroy of a live context: {destroyed:?}"
        );
    }
}

// SAFETY: a context belongs to the process and not to a thread (`io_setup(2)`); its pointers lead into
// its own memory and into the ring that the kernel mapped for the process, and every method that
// follows one borrows the context exclusively.
unsafe impl Send for AioContext {}

impl fmt::Debug for AioContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AioContext")
            .field("capacity", &self.capacity())
            .field("free", &self.free.len())
            .field("has_user_ring", &self.has_user_ring())
            .finish()
    }
}

/// The completion ring that the kernel shares with us. It writes events and then `tail`; we
/// read events and then write `head`. While this lives, only it takes from there.
struct Ring {
    header: *const RingHeader,
    events: *const IoEvent,
    len: u32,
}

impl Ring {
    /// The ring of context `id`, if it is of the kind known here.
    fn at(id: ContextId) -> Option<Self> {
        let header = id as *const RingHeader;
        // SAFETY: `io_setup` mapped a ring at the address that is the id, and it begins with
        // this header, in every kernel that has IOCB_CMD_POLL (4.19).
        let fields = unsafe { &*header };
        let is_known = fields.magic == RING_MAGIC
            && fields.incompat_features == 0
            && fields.header_len_bytes as usize == size_of::<RingHeader>()
            && fields.events > 0;
        let events = header.wrapping_add(1).cast();
        is_known.then_some(Self { header, events, len: fields.events })
    }

    /// Moves events to the beginning of `room`; says how many.
    fn take(&mut self, room: &mut [IoEvent]) -> usize {
        // SAFETY: the ring is mapped until the context is destroyed, which ends `self` first;
        // what changes in the header meanwhile is atomic.
        let header = unsafe { &*self.header };
        // Acquire: what lies before the tail was written before the tail was.
        let tail = header.tail.load(Ordering::Acquire) % self.len;
        let mut head = header.head.load(Ordering::Relaxed) % self.len;
        let mut taken = 0;
        while head != tail && taken < room.len() {
            let event = self.events.wrapping_add(head as usize);
            // SAFETY: `head < len` events lie behind the header, and the kernel does not write
            // between head and tail.
            room[taken] = unsafe { event.read_volatile() };
            taken += 1;
            head = (head + 1) % self.len;
        }
        if taken > 0 {
            // Release: the events were read before the kernel may write over them.
            header.head.store(head, Ordering::Release);
        }
        taken
    }
}

/// The kernel's name for a context; it is also the address of its completion ring.
type ContextId = libc::c_ulong;

/// IOCB_CMD_POLL: a one-shot poll with a mask of 16 bits.
const COMMAND_POLL: u16 = 5;

/// What a completion ring that user space may read begins with.
const RING_MAGIC: u32 = 0xa10a_10a1;

/// `struct iocb`. The kernel copies it at submission and writes `key` back, which
/// `io_cancel(2)` wants to see again at the same address.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Iocb {
    data: u64,
    #[cfg(target_endian = "little")]
    key: u32,
    rw_flags: u32,
    #[cfg(target_endian = "big")]
    key: u32,
    command: u16,
    priority: i16,
    fd: u32,
    /// The poll mask, in its lowest 16 bits; all others must be clear.
    buffer: u64,
    len_bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    eventfd: u32,
}

impl Iocb {
    fn poll(fd: i32, events: u16, data: u64) -> Self {
        Self {
            data,
            key: 0,
            rw_flags: 0,
            command: COMMAND_POLL,
            priority: 0,
            fd: fd as u32,
            buffer: u64::from(events),
            len_bytes: 0,
            offset: 0,
            reserved: 0,
            flags: 0,
            eventfd: 0,
        }
    }
}

impl Iocb {
    fn notifying(self, eventfd: RawFd) -> Self {
        Self { flags: FLAG_EVENTFD, eventfd: eventfd as u32, ..self }
    }
}

/// IOCB_FLAG_RESFD.
const FLAG_EVENTFD: u32 = 1;

/// `struct io_event`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct IoEvent {
    data: u64,
    /// Address of the iocb.
    iocb: u64,
    result: i64,
    result2: i64,
}

/// `struct aio_ring`: the head of the completion ring; events follow.
#[derive(Debug)]
#[repr(C)]
struct RingHeader {
    id: u32,
    events: u32,
    head: AtomicU32,
    tail: AtomicU32,
    magic: u32,
    compat_features: u32,
    incompat_features: u32,
    header_len_bytes: u32,
}

const _: () = {
    assert!(size_of::<Iocb>() == 64);
    assert!(std::mem::offset_of!(Iocb, command) == 16);
    assert!(std::mem::offset_of!(Iocb, fd) == 20);
    assert!(std::mem::offset_of!(Iocb, buffer) == 24);
    assert!(std::mem::offset_of!(Iocb, eventfd) == 60);
    assert!(size_of::<IoEvent>() == 32);
    assert!(std::mem::offset_of!(IoEvent, result) == 16);
    assert!(size_of::<RingHeader>() == 32);
    assert!(std::mem::offset_of!(RingHeader, head) == 8);
    assert!(std::mem::offset_of!(RingHeader, tail) == 12);
};

fn checked(result: libc::c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// `io_setup(2)` for `requests` requests in flight.
fn setup(requests: u32) -> io::Result<ContextId> {
    let mut id: ContextId = 0;
    // SAFETY: the kernel writes one context id to a live local, which is zero as it demands.
    checked(unsafe { libc::syscall(libc::SYS_io_setup, requests, &raw mut id) })?;
    Ok(id)
}

/// `io_destroy(2)`: cancels everything in flight and waits for it.
///
/// # Safety
/// The completion ring of `id` is unmapped: it must not be read afterwards.
unsafe fn destroy(id: ContextId) -> io::Result<usize> {
    // SAFETY: passes a number; what it unmaps is given up by the caller.
    checked(unsafe { libc::syscall(libc::SYS_io_destroy, id) })
}

/// `io_submit(2)`: how many of `batch` were accepted, or why the first was not.
///
/// # Safety
/// Every pointer leads to a live [`Iocb`] that is not touched elsewhere during the call, of a
/// command that takes no buffer.
unsafe fn submit(id: ContextId, batch: &mut [*mut Iocb]) -> io::Result<usize> {
    let count = batch.len() as libc::c_long;
    let first = batch.as_mut_ptr();
    // SAFETY: `first` and `count` are those of a live slice, whose elements the caller vouches for.
    checked(unsafe { libc::syscall(libc::SYS_io_submit, id, count, first) })
}

/// `io_cancel(2)`.
///
/// # Safety
/// `iocb` leads to a live [`Iocb`].
unsafe fn cancel(id: ContextId, iocb: *mut Iocb) -> io::Result<usize> {
    // The kernel no longer fills it in: the result comes through the ring.
    let mut unused = IoEvent::default();
    // SAFETY: the kernel reads the key at `iocb`, alive by the caller's word, and may write one
    // event to a live local.
    checked(unsafe { libc::syscall(libc::SYS_io_cancel, id, iocb, &raw mut unused) })
}

/// The number of `io_pgetevents(2)`, which libc has for few architectures: that of x86-64, that of POWER, and the one
/// that newer architectures share.
const IO_PGETEVENTS: libc::c_long = if cfg!(target_arch = "x86_64") {
    333
} else if cfg!(target_arch = "powerpc64") {
    388
} else {
    292
};

/// `io_getevents(2)`, with a mask `io_pgetevents(2)`: waits for at least `least` events and takes what
/// fits into `events`.
fn take_events(
    id: ContextId,
    least: usize,
    events: &mut [IoEvent],
    timeout: Option<&mut libc::timespec>,
    mask: Option<&SignalMask>,
) -> io::Result<usize> {
    let least = least as libc::c_long;
    let most = events.len() as libc::c_long;
    let time = timeout.map_or(std::ptr::null_mut(), std::ptr::from_mut);
    let first = events.as_mut_ptr();
    if mask.is_some() {
        let mask = MaskArgument { mask: SignalMask::pointer(mask), len_bytes: MASK_BYTES };
        let number = IO_PGETEVENTS;
        let mask = &raw const mask;
        // SAFETY: as below; the mask's structure is a local, and the mask in it live.
        return checked(unsafe { libc::syscall(number, id, least, most, first, time, mask) });
    }
    // SAFETY: the kernel writes at most `most` events into a live exclusive slice of that
    // length; `time` is null or points to a live timespec.
    checked(unsafe { libc::syscall(libc::SYS_io_getevents, id, least, most, first, time) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{PipeReader, PipeWriter, Write};
    use std::os::fd::{AsFd, AsRawFd, FromRawFd};

    const IN: u16 = libc::POLLIN as u16;
    const LONG: Option<Duration> = Some(Duration::from_secs(20));

    fn pipe() -> (PipeReader, PipeWriter) {
        io::pipe().expect("a pipe")
    }

    fn poll(reader: &PipeReader, data: u64) -> AioPoll {
        AioPoll { fd: reader.as_raw_fd(), events: IN, data }
    }

    #[test]
    fn a_ready_file_completes_at_once_and_is_read_without_blocking() {
        let mut context = AioContext::new(8).expect("AIO");
        let (reader, mut writer) = pipe();
        writer.write_all(b"x").expect("room");
        assert_eq!(context.submit(&[poll(&reader, 7)]).expect("submit").len(), 1);
        let mut found = Vec::new();
        assert_eq!(context.read(&mut found, 8).expect("read"), 1);
        assert_eq!((found[0].data, found[0].result & i64::from(IN)), (7, i64::from(IN)));
        assert_eq!(context.read(&mut found, 8).expect("read"), 0, "a poll fires once");
    }

    #[test]
    fn a_wait_ends_with_the_event_or_the_timeout() {
        let mut context = AioContext::new(8).expect("AIO");
        let (reader, mut writer) = pipe();
        context.submit(&[poll(&reader, 1)]).expect("submit");
        let mut found = Vec::new();
        let short = Some(Duration::from_micros(300));
        assert_eq!(context.wait(&mut found, 8, short).expect("wait"), 0);
        writer.write_all(b"x").expect("room");
        assert_eq!(context.wait(&mut found, 8, LONG).expect("wait"), 1);
    }

    #[test]
    fn a_slot_is_free_only_after_the_completion_of_a_cancelled_poll() {
        let mut context = AioContext::new(1).expect("AIO");
        let (reader, _writer) = pipe();
        let slot = context.submit(&[poll(&reader, 1)]).expect("submit")[0];
        context.cancel(slot).expect("EINPROGRESS is a yes");
        assert!(context.submit(&[poll(&reader, 2)]).expect("no slot is not an error").is_empty());
        let mut found = Vec::new();
        assert_eq!(context.wait(&mut found, 1, LONG).expect("wait"), 1);
        assert_eq!(found, [AioCompletion { data: 1, result: 0 }]);
        assert_eq!(context.submit(&[poll(&reader, 2)]).expect("free again").len(), 1);
    }

    #[test]
    fn a_completion_is_added_to_the_eventfd_that_is_to_be_notified() {
        let mut context = AioContext::new(8).expect("AIO");
        // SAFETY: takes no pointer.
        let eventfd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        assert!(eventfd >= 0, "an eventfd");
        // SAFETY: made above, and of nobody else.
        let eventfd = unsafe { std::os::fd::OwnedFd::from_raw_fd(eventfd) };
        context.notify(eventfd.as_fd());
        let (reader, mut writer) = pipe();
        context.submit(&[poll(&reader, 1)]).expect("submit");
        writer.write_all(b"x").expect("room");
        let mut fd = libc::pollfd { fd: eventfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one element at a live local.
        assert_eq!(unsafe { libc::poll(&raw mut fd, 1, 20_000) }, 1, "notified");
        let mut found = Vec::new();
        assert_eq!(context.read(&mut found, 8).expect("read"), 1, "it is there by then");
    }

    #[test]
    fn a_dead_number_stops_the_batch_and_is_named_when_it_comes_first() {
        let mut context = AioContext::new(8).expect("AIO");
        let (reader, _writer) = pipe();
        let dead = AioPoll { fd: 1 << 30, events: IN, data: 2 };
        let polls = [poll(&reader, 1), dead, poll(&reader, 3)];
        assert_eq!(context.submit(&polls).expect("the first").len(), 1);
        let error = context.submit(&polls[1..]).expect_err("the second");
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        assert_eq!(context.submit(&polls[2..]).expect("the third").len(), 1);
        assert_eq!(context.free.len(), 6, "a refused poll holds no slot");
    }

    #[test]
    fn the_ring_wraps_without_losing_or_repeating_an_event() {
        let mut context = AioContext::new(4).expect("AIO");
        let (reader, mut writer) = pipe();
        writer.write_all(b"x").expect("room");
        let mut found = Vec::new();
        for round in 0..2000 {
            let polls = [poll(&reader, 2 * round), poll(&reader, 2 * round + 1)];
            assert_eq!(context.submit(&polls).expect("submit").len(), 2);
            // Both ways of taking events share one head.
            let taken = if round % 3 == 0 {
                context.wait(&mut found, 8, LONG)
            } else {
                context.read(&mut found, 8)
            };
            assert_eq!(taken.expect("two events"), 2);
        }
        let seen: Vec<u64> = found.iter().map(|completion| completion.data).collect();
        assert_eq!(seen, (0..4000).collect::<Vec<u64>>());
    }
}
