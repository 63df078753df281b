//! Registrations by a ring of io_uring (IORING_OP_EPOLL_CTL), as libuv makes them: counted as those of epoll_ctl(2),
//! and done by another mechanism where that takes the place of the kernel's epoll.
//!
//! A ring that was set up by syscall(2) is mapped once more. Before it is entered, what stands in its submission
//! queue is read: an update of an instance is made at once, and what the kernel finds in its place gives the same
//! answer. Behind, which of the others failed. A number that is closed by it (IORING_OP_CLOSE) is forgotten. Rings that
//! the kernel reads by itself (IORING_SETUP_SQPOLL), or whose memory is the program's, are left alone.
//!
//! What stands behind a link or a drain the kernel does later, or not at all: it is left to the kernel, and so is the
//! instance that it updates.
//!
//! Several threads may enter a ring at once. One at a time reads the queue, before its call, and each entry is read
//! once: a thread that sleeps in the call holds nothing.
//!
//! ```text
//!  free ──► read: set up, entered by so many threads ──► closed by none ──► free
//!                        │ closed                                             ▲
//!                        └──► dead: still entered by so many ──► the last one ┘
//! ```

use std::ffi::{c_int, c_long, c_void};
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use libc::epoll_event;

use crate::thread::{Thread, errno, set_errno};
use crate::{attach, emulation, past, waits};

/// Rings that are read at the same time: one for each loop of libuv. Others are left alone.
const RINGS_MAX: usize = 256;

/// States of a ring. `READ` and `DEAD` have [`ENTRANT`] added for each thread that is in it.
const FREE: u32 = 0;
const TAKEN: u32 = 1;
const READ: u32 = 2;
const DEAD: u32 = 3;
const KINDS: u32 = 3;
const ENTRANT: u32 = 4;

/// How often a thread makes room for the one that reads the queue, before it enters without having read.
const YIELDS_MAX: u32 = 10_000;

/// `IORING_OP_NOP`.
const NOP: u8 = 0;
/// `IORING_OP_EPOLL_CTL`.
const EPOLL_CTL: u8 = 29;
/// `IORING_OP_CLOSE`.
const CLOSE: u8 = 19;
/// `IOSQE_IO_DRAIN`; `IOSQE_IO_LINK` or `IOSQE_IO_HARDLINK`.
const DRAINS: u8 = 1 << 1;
const LINKS: u8 = 1 << 2 | 1 << 3;
/// Offsets at which a ring's parts are mapped.
const SUBMISSIONS: libc::off_t = 0;
const ENTRIES: libc::off_t = 0x1000_0000;
const FEATURE_SINGLE_MAP: u32 = 1;
/// Set-ups that are not read: SQPOLL, CQE32, SQE128, NO_MMAP, and those that later kernels may add.
const FLAGS_READ: u32 =
    IOPOLL | CQSIZE | CLAMP | ATTACH | DISABLED | ALL | COOP | TASKRUN | SINGLE | DEFER | NO_ARRAY;
const IOPOLL: u32 = 1;
const CQSIZE: u32 = 1 << 3;
const CLAMP: u32 = 1 << 4;
const ATTACH: u32 = 1 << 5;
const DISABLED: u32 = 1 << 6;
const ALL: u32 = 1 << 7;
const COOP: u32 = 1 << 8;
const TASKRUN: u32 = 1 << 9;
const SINGLE: u32 = 1 << 12;
const DEFER: u32 = 1 << 13;
const NO_ARRAY: u32 = 1 << 16;

/// `struct io_uring_params`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Params {
    sq_entries: u32,
    cq_entries: u32,
    flags: u32,
    sq_thread: [u32; 2],
    features: u32,
    wq_fd: u32,
    resv: [u32; 3],
    sq: SubmissionOffsets,
    cq: CompletionOffsets,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct SubmissionOffsets {
    head: u32,
    tail: u32,
    ring_mask: u32,
    ring_entries: u32,
    flags: u32,
    dropped: u32,
    array: u32,
    resv: u32,
    user_addr: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CompletionOffsets {
    head: u32,
    tail: u32,
    ring_mask: u32,
    ring_entries: u32,
    overflow: u32,
    cqes: u32,
    flags: u32,
    resv: u32,
    user_addr: u64,
}

/// The first three quarters of `struct io_uring_sqe`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Submission {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: i32,
    off: u64,
    addr: u64,
    len: u32,
    op_flags: u32,
    user_data: u64,
    buffer: u16,
    personality: u16,
    /// Of a file that is none of a number's, plus one.
    file_index: u32,
}
const SUBMISSION_BYTES: usize = 64;

/// `struct io_uring_cqe`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Completion {
    user_data: u64,
    result: i32,
    flags: u32,
}

/// When the kernel closes a number.
#[derive(Clone, Copy)]
pub(crate) enum Closes {
    Now,
    /// Behind other requests: what watched it is the kernel's.
    Later,
}

/// An update that the kernel decides on: which one, with what, by which name.
struct Left {
    update: (c_int, c_int, c_int),
    event: Option<epoll_event>,
    user_data: u64,
}

/// What was read of a queue before a call: up to where, and what is counted behind it.
struct Seen {
    head: u32,
    end: u32,
    left: Vec<(u32, Left)>,
}

/// A ring of the program's. What is behind the state is there as long as a thread is in it.
struct Ring {
    state: AtomicU32,
    /// A thread reads the queue.
    is_being_read: AtomicBool,
    /// The place up to which the queue was read.
    read_to: AtomicU32,
    fd: AtomicI32,
    rings: AtomicPtr<c_void>,
    rings_bytes: AtomicUsize,
    entries: AtomicPtr<c_void>,
    entries_bytes: AtomicUsize,
    /// Offsets of the submission queue: head, tail, mask, array (0 for none).
    sq: [AtomicU32; 4],
    /// Offsets of the completion queue: head, tail, mask, completions.
    cq: [AtomicU32; 4],
}

static RINGS: [Ring; RINGS_MAX] = [const { Ring::new() }; RINGS_MAX];
/// Places beyond which none was ever taken.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Notes what io_uring_setup(2) made.
///
/// # Safety
/// `params` is the address that was given to the call.
pub(crate) unsafe fn made(fd: c_long, params: c_long) {
    if fd < 0 || !(attach::is_counted() || emulation::is_chosen()) {
        return;
    }
    // SAFETY: the kernel wrote the structure, as the call succeeded.
    let params = unsafe { (params as *const Params).read_unaligned() };
    if params.flags & !FLAGS_READ != 0 || params.features & FEATURE_SINGLE_MAP == 0 {
        return;
    }
    let before = errno();
    let thread = Thread::here();
    thread.inside(|| {
        let take = |ring: &&Ring| ring.state.compare_exchange(FREE, TAKEN, AcqRel, Relaxed).is_ok();
        let Some(place) = RINGS.iter().position(|ring| take(&ring)) else { return };
        USED.fetch_max(place + 1, AcqRel);
        let is_mapped = RINGS[place].map(fd as c_int, &params);
        RINGS[place].state.store(if is_mapped { READ } else { FREE }, Release);
    });
    set_errno(before);
}

/// Enters a ring by `kernel` and counts what was registered by it; `closing` is notified of numbers that it closes.
///
/// # Safety
/// The program's own call, so that what stands in the queue leads to events where it should.
pub(crate) unsafe fn entered(
    fd: c_int,
    submitted_max: c_long,
    caller: u64,
    closing: fn(c_int, Closes),
    kernel: impl FnOnce() -> c_long,
) -> c_long {
    let used = RINGS[..USED.load(Acquire)].iter();
    let mut used = used.filter(|ring| submitted_max > 0 && ring.fd.load(Relaxed) == fd);
    let Some(ring) = used.find(|ring| ring.enter()) else { return kernel() };
    let before = errno();
    // SAFETY: the caller's promise.
    let seen = unsafe { ring.look(submitted_max.unsigned_abs() as u32, caller, closing) };
    set_errno(before);
    let result = kernel();
    let before = errno();
    if let Some(seen) = seen {
        ring.count(seen, u32::try_from(result).unwrap_or(0), caller);
    }
    ring.leave();
    set_errno(before);
    result
}

/// Whether a number is that of a ring, which IORING_OP_CLOSE does not close.
fn is_ring(fd: c_int) -> bool {
    RINGS[..USED.load(Acquire)].iter().any(|ring| ring.fd.load(Relaxed) == fd)
}

/// A number is about to be closed.
pub(crate) fn closing(fd: c_int) {
    for ring in &RINGS[..USED.load(Acquire)] {
        if ring.fd.load(Relaxed) != fd {
            continue;
        }
        // The last thread that is in it ends it.
        let dead = |state: u32| (state & KINDS == READ).then_some(state - READ + DEAD);
        if ring.state.fetch_update(AcqRel, Relaxed, dead) == Ok(READ) {
            ring.unmap();
        }
    }
}

/// The same for all from `first` to `last`.
pub(crate) fn closing_range(first: u32, last: u32) {
    for ring in &RINGS[..USED.load(Acquire)] {
        let fd = ring.fd.load(Relaxed);
        if (first..=last).contains(&fd.cast_unsigned()) {
            closing(fd);
        }
    }
}

impl Ring {
    const fn new() -> Self {
        Self {
            state: AtomicU32::new(FREE),
            is_being_read: AtomicBool::new(false),
            read_to: AtomicU32::new(0),
            fd: AtomicI32::new(-1),
            rings: AtomicPtr::new(ptr::null_mut()),
            rings_bytes: AtomicUsize::new(0),
            entries: AtomicPtr::new(ptr::null_mut()),
            entries_bytes: AtomicUsize::new(0),
            sq: [const { AtomicU32::new(0) }; 4],
            cq: [const { AtomicU32::new(0) }; 4],
        }
    }

    fn map(&self, fd: c_int, params: &Params) -> bool {
        let sq = &params.sq;
        let cq = &params.cq;
        let has_array = params.flags & NO_ARRAY == 0;
        let sq_bytes = sq.array as usize + params.sq_entries as usize * size_of::<u32>();
        let cq_bytes = cq.cqes as usize + params.cq_entries as usize * size_of::<Completion>();
        let rings_bytes = sq_bytes.max(cq_bytes);
        let entries_bytes = params.sq_entries as usize * SUBMISSION_BYTES;
        let Some(rings) = mapped(fd, rings_bytes, SUBMISSIONS) else { return false };
        let Some(entries) = mapped(fd, entries_bytes, ENTRIES) else {
            unmapped(rings, rings_bytes);
            return false;
        };
        self.rings.store(rings, Relaxed);
        self.rings_bytes.store(rings_bytes, Relaxed);
        self.entries.store(entries, Relaxed);
        self.entries_bytes.store(entries_bytes, Relaxed);
        let of_sq = [sq.head, sq.tail, sq.ring_mask, if has_array { sq.array } else { 0 }];
        let of_cq = [cq.head, cq.tail, cq.ring_mask, cq.cqes];
        self.sq.iter().zip(of_sq).for_each(|(to, value)| to.store(value, Relaxed));
        self.cq.iter().zip(of_cq).for_each(|(to, value)| to.store(value, Relaxed));
        self.read_to.store(self.sq_head(), Relaxed);
        self.fd.store(fd, Relaxed);
        true
    }

    /// Whether it is read, and stays there until the thread leaves.
    fn enter(&self) -> bool {
        let entered = |state: u32| (state & KINDS == READ).then_some(state + ENTRANT);
        self.state.fetch_update(AcqRel, Relaxed, entered).is_ok()
    }

    fn leave(&self) {
        if self.state.fetch_sub(ENTRANT, AcqRel) == DEAD + ENTRANT {
            self.unmap();
        }
    }

    /// Ends what no other thread has.
    fn unmap(&self) {
        self.fd.store(-1, Relaxed);
        unmapped(self.rings.load(Relaxed), self.rings_bytes.load(Relaxed));
        unmapped(self.entries.load(Relaxed), self.entries_bytes.load(Relaxed));
        self.state.store(FREE, Release);
    }

    /// A word of the rings, which the kernel and the program change.
    fn word(&self, offset: u32) -> u32 {
        let offset = offset as usize;
        if offset + size_of::<u32>() > self.rings_bytes.load(Relaxed) {
            return 0;
        }
        let at = self.rings.load(Relaxed).wrapping_byte_add(offset).cast::<u32>();
        // SAFETY: within the mapping, at an offset that the kernel gave out, which is a multiple of four.
        let word = unsafe { AtomicU32::from_ptr(at) };
        word.load(Acquire)
    }

    fn sq_head(&self) -> u32 {
        self.word(self.sq[0].load(Relaxed))
    }

    /// Where the entry of this place of the submission queue is.
    fn entry(&self, place: u32) -> Option<*mut Submission> {
        let [_, _, mask, array] = self.sq.each_ref().map(|word| word.load(Relaxed));
        let index = place & self.word(mask);
        let index = if array == 0 { index } else { self.word(array + index * 4) } as usize;
        let offset = index * SUBMISSION_BYTES;
        if offset + SUBMISSION_BYTES > self.entries_bytes.load(Relaxed) {
            return None;
        }
        Some(self.entries.load(Relaxed).wrapping_byte_add(offset).cast::<Submission>())
    }

    /// What stands at this place of the submission queue.
    fn submission(&self, place: u32) -> Option<Submission> {
        let at = self.entry(place)?;
        // SAFETY: within the mapping and aligned; the program leaves it alone while it enters the ring.
        Some(unsafe { at.read_volatile() })
    }

    /// Puts something else at this place.
    fn replace(&self, place: u32, with: Submission) {
        if let Some(at) = self.entry(place) {
            // SAFETY: as above; threads that submit it wait until it was read.
            unsafe { at.write_volatile(with) };
        }
    }

    /// Whether this one failed, as far as that is known by now.
    fn has_failed(&self, user_data: u64) -> bool {
        let [head, tail, mask, cqes] = self.cq.each_ref().map(|word| word.load(Relaxed));
        let head = self.word(head);
        let tail = self.word(tail);
        let mask = self.word(mask);
        let completion = |place: u32| {
            let offset = cqes as usize + (place & mask) as usize * size_of::<Completion>();
            if offset + size_of::<Completion>() > self.rings_bytes.load(Relaxed) {
                return None;
            }
            let at = self.rings.load(Relaxed).wrapping_byte_add(offset).cast::<Completion>();
            // SAFETY: within the mapping and aligned; the kernel has written it before the tail.
            Some(unsafe { at.read_volatile() })
        };
        let there = (0..tail.wrapping_sub(head).min(mask.wrapping_add(1)))
            .filter_map(|index| completion(head.wrapping_add(index)));
        let mut failed = there.filter(|one| one.result < 0);
        failed.any(|one| one.user_data == user_data)
    }

    /// Reads what is new of the next so many entries; nothing where another thread does not come to an end with that.
    ///
    /// # Safety
    /// They lead to events where they should.
    unsafe fn look(&self, submitted: u32, caller: u64, closing: fn(c_int, Closes)) -> Option<Seen> {
        let mut yields = 0;
        while self.is_being_read.swap(true, Acquire) {
            yields += 1;
            if yields > YIELDS_MAX {
                return None;
            }
            std::thread::yield_now();
        }
        let head = self.sq_head();
        let tail = self.word(self.sq[1].load(Relaxed));
        let read = self.read_to.load(Relaxed).wrapping_sub(head);
        let there = tail.wrapping_sub(head);
        // What other threads have read and not submitted yet is theirs.
        let first = if read <= there { read } else { 0 };
        let count = submitted.min(there - first);
        let mut seen = Seen { head: head.wrapping_add(first), end: 0, left: Vec::new() };
        seen.end = seen.head.wrapping_add(count);
        let mut is_linked = false;
        let mut is_drained = false;
        for index in 0..count {
            let place = seen.head.wrapping_add(index);
            let Some(one) = self.submission(place) else { continue };
            is_drained |= one.flags & DRAINS != 0;
            let is_later = is_linked || is_drained;
            is_linked = one.flags & LINKS != 0;
            match one.opcode {
                EPOLL_CTL => {
                    // SAFETY: the caller's promise.
                    let left = unsafe { self.update(place, one, is_later, caller) };
                    seen.left.extend(left.map(|left| (index, left)));
                }
                CLOSE if one.file_index == 0 && !is_ring(one.fd) => {
                    self.close(place, one, is_later, closing);
                }
                _ => {}
            }
        }
        self.read_to.store(seen.end, Relaxed);
        self.is_being_read.store(false, Release);
        Some(seen)
    }

    /// Makes an update of an instance; otherwise what the kernel has to decide on.
    ///
    /// # Safety
    /// It leads to an event where it should.
    unsafe fn update(
        &self,
        place: u32,
        one: Submission,
        is_later: bool,
        caller: u64,
    ) -> Option<Left> {
        let op = one.len.cast_signed();
        let fd = one.off as c_int;
        let update = (one.fd, op, fd);
        let event = one.addr as *const epoll_event;
        let reads = op != libc::EPOLL_CTL_DEL && !event.is_null();
        // SAFETY: the caller's promise: it is entered later in this thread, and the kernel reads it there.
        let wanted = reads.then(|| unsafe { event.read_unaligned() });
        let left = Left { update, event: wanted, user_data: one.user_data };
        if !emulation::is_chosen() {
            return Some(left);
        }
        if is_later {
            let is_new = [one.fd, fd].map(emulation::hand_over).contains(&true);
            past::say_if(is_new, past::LINKED);
            return Some(left);
        }
        // SAFETY: the caller's promise.
        match unsafe { emulation::ctl(one.fd, op, fd, event) } {
            None => Some(left),
            Some(0) => {
                // The kernel has nothing to do, which succeeds.
                let off = 0;
                let addr = 0;
                let len = 0;
                let op_flags = 0;
                let nothing = Submission { opcode: NOP, fd: -1, off, addr, len, op_flags, ..one };
                self.replace(place, nothing);
                if attach::is_counted() {
                    waits::updated(update, wanted, caller, true);
                }
                None
            }
            // The kernel's epoll, which has nothing but the tag, refuses it alike, or is made to.
            Some(_) => {
                match (errno(), emulation::tag(one.fd)) {
                    (libc::EEXIST, Some(tag)) => {
                        self.replace(place, Submission { off: tag as u64, ..one });
                    }
                    (libc::EBADF | libc::EPERM | libc::ENOENT | libc::ELOOP, _) => {}
                    _ => self.replace(place, Submission { len: 0, ..one }),
                }
                Some(left)
            }
        }
    }

    /// Forgets a number that is closed.
    fn close(&self, place: u32, one: Submission, is_later: bool, closing: fn(c_int, Closes)) {
        let number = one.fd.cast_unsigned();
        if !emulation::held(number, number).is_empty() {
            // The kernel refuses it: EBADF.
            self.replace(place, Submission { fd: -1, ..one });
        } else if is_later {
            let is_new = emulation::hand_over_watching(one.fd);
            past::say_if(is_new, past::LINKED);
            closing(one.fd, Closes::Later);
        } else {
            closing(one.fd, Closes::Now);
        }
    }

    /// Counts what the kernel decided on, of so many that it took.
    fn count(&self, seen: Seen, submitted: u32, caller: u64) {
        // What it did not take is read once more, unless another thread has read on.
        let taken = seen.head.wrapping_add(submitted);
        if seen.end.wrapping_sub(seen.head) > submitted {
            let _ = self.read_to.compare_exchange(seen.end, taken, Relaxed, Relaxed);
        }
        if !attach::is_counted() {
            return;
        }
        for (_, left) in seen.left.into_iter().filter(|(index, _)| *index < submitted) {
            let is_done = !self.has_failed(left.user_data);
            let event = left.event.filter(|_| is_done);
            waits::updated(left.update, event, caller, is_done);
        }
    }
}

fn mapped(fd: c_int, bytes: usize, offset: libc::off_t) -> Option<*mut c_void> {
    // SAFETY: a mapping of its own, at a place that the kernel chooses.
    let at = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            fd,
            offset,
        )
    };
    (at != libc::MAP_FAILED).then_some(at)
}

fn unmapped(at: *mut c_void, bytes: usize) {
    // SAFETY: mapped by this file, and nobody reads it any more.
    unsafe { libc::munmap(at, bytes) };
}
