//! Registrations by a ring of io_uring (IORING_OP_EPOLL_CTL), as libuv makes them: counted as those of epoll_ctl(2),
//! and done by another mechanism where that takes the place of the kernel's epoll.
//!
//! A ring that was set up by syscall(2) is mapped once more. Before it is entered, what stands in its submission
//! queue is read: an update of an instance is made at once, and what the kernel finds in its place gives the same
//! answer. Behind, which of the others failed. Rings that the kernel reads by itself (IORING_SETUP_SQPOLL), or
//! whose memory is the program's, are left alone.
//!
//! ```text
//!  free ──► read: set up ──► entered (the thread has it) ──► read
//!    ▲                          │ closed meanwhile
//!    └────── closed ────────────┴──► dead ──► free
//! ```

use std::ffi::{c_int, c_long, c_void};
use std::ptr;
use std::sync::atomic::{
    AtomicI32, AtomicPtr, AtomicU32, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use libc::epoll_event;

use crate::thread::{Thread, errno, set_errno};
use crate::{attach, emulation, waits};

/// Rings that are read at the same time: one for each loop of libuv. Others are left alone.
const RINGS_MAX: usize = 256;

/// States of a ring.
const FREE: u32 = 0;
const TAKEN: u32 = 1;
const READ: u32 = 2;
const ENTERED: u32 = 3;
const DEAD: u32 = 4;

/// `IORING_OP_NOP`.
const NOP: u8 = 0;
/// `IORING_OP_EPOLL_CTL`.
const EPOLL_CTL: u8 = 29;
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

/// The first half of `struct io_uring_sqe`.
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

/// A ring of the program's. What is behind the state belongs to the thread that put it there.
struct Ring {
    state: AtomicU32,
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

/// Enters a ring by `kernel` and counts what was registered by it.
///
/// # Safety
/// The program's own call, so that what stands in the queue leads to events where it should.
pub(crate) unsafe fn entered(
    fd: c_int,
    submitted_max: c_long,
    caller: u64,
    kernel: impl FnOnce() -> c_long,
) -> c_long {
    let enter = |ring: &&Ring| {
        ring.fd.load(Relaxed) == fd
            && ring.state.compare_exchange(READ, ENTERED, AcqRel, Relaxed).is_ok()
    };
    let used = RINGS[..USED.load(Acquire)].iter();
    let Some(ring) = used.filter(|_| submitted_max > 0).find(enter) else { return kernel() };
    let head = ring.sq_head();
    let is_asked = emulation::is_chosen();
    let before = errno();
    if is_asked {
        // SAFETY: the caller's promise.
        unsafe { ring.update_instances(head, submitted_max.unsigned_abs() as u32, caller) };
    }
    set_errno(before);
    let result = kernel();
    let before = errno();
    if result > 0 && attach::is_counted() {
        // SAFETY: the caller's promise.
        unsafe { ring.count(head, result as u32, caller) };
    }
    if ring.state.compare_exchange(ENTERED, READ, AcqRel, Relaxed).is_err() {
        ring.unmap();
    }
    set_errno(before);
    result
}

/// A number is about to be closed.
pub(crate) fn closing(fd: c_int) {
    for ring in &RINGS[..USED.load(Acquire)] {
        if ring.fd.load(Relaxed) != fd {
            continue;
        }
        if ring.state.compare_exchange(READ, TAKEN, AcqRel, Relaxed).is_ok() {
            ring.unmap();
        } else {
            // The thread that has it ends it.
            let _ = ring.state.compare_exchange(ENTERED, DEAD, AcqRel, Relaxed);
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
        let (sq, cq) = (&params.sq, &params.cq);
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
        self.fd.store(fd, Relaxed);
        true
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
            // SAFETY: as above; the kernel reads it when it is entered, later in this thread.
            unsafe { at.write_volatile(with) };
        }
    }

    /// Whether this one failed, as far as that is known by now.
    fn has_failed(&self, user_data: u64) -> bool {
        let [head, tail, mask, cqes] = self.cq.each_ref().map(|word| word.load(Relaxed));
        let (head, tail, mask) = (self.word(head), self.word(tail), self.word(mask));
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

    /// Makes the updates of instances among the next so many from `head`.
    ///
    /// # Safety
    /// They lead to events where they should.
    unsafe fn update_instances(&self, head: u32, submitted: u32, caller: u64) {
        let tail = self.word(self.sq[1].load(Relaxed));
        for index in 0..submitted.min(tail.wrapping_sub(head)) {
            let place = head.wrapping_add(index);
            let Some(one) = self.submission(place).filter(|one| one.opcode == EPOLL_CTL) else {
                continue;
            };
            let (op, fd) = (one.len.cast_signed(), one.off as c_int);
            let event = one.addr as *const epoll_event;
            // SAFETY: the caller's promise.
            match unsafe { emulation::ctl(one.fd, op, fd, event) } {
                None => {}
                Some(0) => {
                    // The kernel has nothing to do, which succeeds.
                    let (off, addr, len, op_flags) = (0, 0, 0, 0);
                    self.replace(
                        place,
                        Submission { opcode: NOP, fd: -1, off, addr, len, op_flags, ..one },
                    );
                    if attach::is_counted() {
                        let reads = op != libc::EPOLL_CTL_DEL;
                        // SAFETY: it was read a moment ago.
                        let event = reads.then(|| unsafe { event.read_unaligned() });
                        waits::updated((one.fd, op, fd), event, caller, true);
                    }
                }
                // The kernel's epoll, which has nothing but the tag, refuses it alike, or is made to.
                Some(_) => match (errno(), emulation::tag(one.fd)) {
                    (libc::EEXIST, Some(tag)) => {
                        self.replace(place, Submission { off: tag as u64, ..one });
                    }
                    (libc::EBADF | libc::EPERM | libc::ENOENT | libc::ELOOP, _) => {}
                    _ => self.replace(place, Submission { len: 0, ..one }),
                },
            }
        }
    }

    /// Counts what was registered by the next so many from `head`.
    ///
    /// # Safety
    /// They lead to events where they should.
    unsafe fn count(&self, head: u32, submitted: u32, caller: u64) {
        let [_, _, mask, _] = self.sq.each_ref().map(|word| word.load(Relaxed));
        for index in 0..submitted.min(self.word(mask).wrapping_add(1)) {
            let Some(one) = self.submission(head.wrapping_add(index)) else { return };
            if one.opcode != EPOLL_CTL {
                continue;
            }
            let is_done = !self.has_failed(one.user_data);
            let (op, fd) = (one.len.cast_signed(), one.off as c_int);
            let reads = is_done && op != libc::EPOLL_CTL_DEL;
            // SAFETY: the kernel took the event a moment ago.
            let event = reads.then(|| unsafe { (one.addr as *const epoll_event).read_unaligned() });
            waits::updated((one.fd, op, fd), event, caller, is_done);
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
