//! Two safe io_uring instances: [`Ring`] for requests that reference no memory, and
//! [`StreamRing`] for receiving and sending.
//!
//! The io-uring poller calls [`Ring`]. Every [`Request`] is made of numbers alone, so the kernel
//! is never handed an address that must stay valid, and the interface is sound without any rule
//! about the owner of a buffer. A request that reads or writes memory must never be added to it: the
//! completion loop's [`StreamRing`] has those, and owns what they reference.
//!
//! A ring belongs to the thread that opened it: the fastest set-up makes the kernel refuse
//! every other thread (EEXIST). Only a [`Ring`] of [`Ring::open_shared`] may be entered by one thread
//! after the other.

mod enter_failure;
mod ledger;
mod memory;
mod open;
mod pool;
mod stream;
mod stream_request;
#[cfg(test)]
mod stream_tests;
mod trial;

use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;
use std::{io, mem};

use crate::SystemCall;
use crate::poll_select::SignalMask;
use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue, types};
use open::Door;

pub use enter_failure::EnterFailure;
pub use ledger::{InFlight, StreamCompletion};
pub use memory::Sent;
pub use open::{RESTRICTED, RingUnavailable, Setup, Sizes, UNRESTRICTED, note_reasons};
pub use pool::{ReceiveBuffers, Received};
pub use stream::{StreamRing, StreamSizes};
pub use stream_request::{Bound, Sending};

/// The system call of a ring that is there: what it may be asked is restricted (`IORING_REGISTER_RESTRICTIONS`).
pub const CALLS: &[SystemCall] = &[libc::SYS_io_uring_enter];

/// One io_uring instance: a submission queue, a completion queue and their descriptor.
///
/// ```
/// use pollux_sys::ring::{Request, Ring, Shots, Sizes};
/// use std::io::Write;
/// use std::os::fd::AsRawFd;
///
/// // Where io_uring is forbidden, the error names what forbids it.
/// let Ok(mut ring) = Ring::open(Sizes { submission: 8, completion: 32 }) else { return Ok(()) };
/// let (reader, mut writer) = std::io::pipe()?;
/// let (fd, events, shots) = (reader.as_raw_fd(), 1, Shots::One);
/// ring.push(Request::PollAdd { fd, events, shots, user_data: 7 }).expect("the queue is empty");
/// writer.write_all(b"x")?;
/// ring.enter(1, None)?;
/// assert_eq!(ring.next_completion().map(|done| done.user_data), Some(7));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Ring {
    io: IoUring,
    door: Door,
    setup: Setup,
}

/// The submission queue is full: submitting makes room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueFull;

/// What the kernel says about one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The number that the request was given.
    pub user_data: u64,
    /// A result of the operation, or a negated errno.
    pub result: i32,
    /// The request is still armed: more completions will carry this number.
    pub has_more: bool,
}

impl AsRawFd for Ring {
    fn as_raw_fd(&self) -> RawFd {
        self.io.as_raw_fd()
    }
}

impl Ring {
    /// Opens a ring with the best set-up that this kernel knows and the largest size up to
    /// `wanted` that the memory limit allows.
    ///
    /// # Errors
    /// [`RingUnavailable`] says what forbids io_uring here and what would allow it.
    pub fn open(wanted: Sizes) -> Result<Self, RingUnavailable> {
        Self::open_for(wanted, open::NUMBERS)
    }

    fn open_for(wanted: Sizes, allowed: open::Allowed) -> Result<Self, RingUnavailable> {
        Ok(Self::of(open::open(wanted, allowed)?))
    }

    /// Opens a ring that several threads may enter, one after the other: without the set-ups that
    /// leave completions to one thread. What a thread has armed is cancelled when it ends.
    ///
    /// # Errors
    /// As [`Ring::open`].
    pub fn open_shared(wanted: Sizes) -> Result<Self, RingUnavailable> {
        Ok(Self::of(open::open_shared(wanted)?))
    }

    fn of((io, setup): (IoUring, Setup)) -> Self {
        let door = Door::of(&io);
        Self { io, door, setup }
    }

    /// What was granted at open.
    #[must_use]
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Queues a request; it reaches the kernel with the next [`Ring::submit`] or
    /// [`Ring::enter`].
    ///
    /// # Errors
    /// [`QueueFull`]; nothing was queued.
    pub fn push(&mut self, request: Request) -> Result<(), QueueFull> {
        let entry = request.entry();
        // SAFETY: `push` asks that what the entry references stays valid while the request
        // runs; `Request` has no variant that references memory (see the head of this module).
        unsafe { self.io.submission().push(&entry) }.map_err(|_| QueueFull)
    }

    /// How many requests are queued and not submitted yet.
    #[must_use]
    pub fn queued(&mut self) -> usize {
        self.io.submission().len()
    }

    /// Hands the queued requests to the kernel and says how many it took. Waits for nothing
    /// and leaves deferred completions where they are.
    ///
    /// # Errors
    /// `io_uring_enter(2)`: [`EnterFailure`] says what its errnos mean.
    pub fn submit(&mut self) -> io::Result<usize> {
        self.call(0, EnterFlags::empty(), None)
    }

    /// Submits what is queued, lets the kernel finish its deferred work and waits until
    /// `completions_min` completions lie in the queue or `timeout` is over; says how many
    /// requests were taken.
    ///
    /// No timer is armed without a timeout, nor when enough completions are there already.
    /// A thread whose set-up defers work gets at most max(20, `completions_min`) completions
    /// out of it in one call (Linux 6.13); [`Ring::has_deferred_work`] says whether more is left.
    ///
    /// # Errors
    /// As [`Ring::submit`], and ETIME and EINTR when nothing was submitted in the same call:
    /// a number of requests taken hides both.
    pub fn enter(&mut self, completions_min: u32, timeout: Option<Duration>) -> io::Result<usize> {
        let timeout = timeout.filter(|_| completions_min > 0);
        self.call(completions_min, EnterFlags::GETEVENTS, timeout)
    }

    /// Enters without waiting where that would bring anything, and says whether it did: the memory
    /// that is shared with the kernel shows whether requests are queued, deferred work waits, or
    /// completions did not fit the queue. Where a set-up has no flag for deferred work, the kernel
    /// interrupts the thread for it.
    ///
    /// What a busy-polling loop does again and again: nearly none of its checks is a system call.
    ///
    /// # Errors
    /// As [`Ring::enter`]; the call was made then.
    #[inline]
    pub fn look(&mut self) -> io::Result<bool> {
        let submission = self.io.submission();
        let is_quiet = submission.is_empty() && !submission.taskrun() && !submission.cq_overflow();
        drop(submission);
        if is_quiet {
            return Ok(false);
        }
        self.enter(0, None).map(|_| true)
    }

    /// As [`Ring::enter`], with a signal mask for the time of the call.
    ///
    /// # Errors
    /// As [`Ring::enter`].
    pub fn enter_masked(
        &mut self,
        completions_min: u32,
        timeout: Option<Duration>,
        mask: &SignalMask,
    ) -> io::Result<usize> {
        let queued = u32::try_from(self.queued()).expect("the queue's size is a u32");
        self.door.enter_masked(queued, completions_min, EnterFlags::GETEVENTS, timeout, mask)
    }

    /// Takes the oldest completion out of the queue.
    pub fn next_completion(&mut self) -> Option<Completion> {
        let entry = self.io.completion().next()?;
        Some(Completion {
            user_data: entry.user_data(),
            result: entry.result(),
            has_more: cqueue::more(entry.flags()),
        })
    }

    /// Whether a completion lies in the queue.
    #[must_use]
    pub fn has_completions(&mut self) -> bool {
        !self.io.completion().is_empty()
    }

    /// Whether the kernel holds completions back until this thread enters it. Always false
    /// where the set-up has no flag for it.
    ///
    /// May be true with nothing held back: who adds such work sets the flag after it, and where
    /// this thread has finished the work in between, the flag stays until the next work (seen on
    /// Linux 6.18, a terminal once in some 300 runs). An enter brings nothing then, however
    /// often.
    #[must_use]
    pub fn has_deferred_work(&mut self) -> bool {
        self.io.submission().taskrun()
    }

    /// Whether completions did not fit the queue: the kernel keeps them and moves them in at
    /// the next [`Ring::enter`]. Multishot requests may have been ended by it.
    #[must_use]
    pub fn has_overflow(&mut self) -> bool {
        self.io.submission().cq_overflow()
    }

    fn call(
        &mut self,
        completions_min: u32,
        flags: EnterFlags,
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        let queued = u32::try_from(self.queued()).expect("the queue's size is a u32");
        self.door.enter(queued, completions_min, flags, timeout)
    }
}

/// How often a poll request completes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shots {
    /// Once, at once if a condition holds already.
    One,
    /// With every wake-up of the file, until it is cancelled or the completion queue is full.
    Many,
}

/// A request made of numbers.
///
/// Descriptors are plain numbers, because a request may wait in the queue longer than any
/// borrow. A number that was closed meanwhile gives EBADF, one that was used again is polled:
/// that shows the readiness of another file and touches neither its data nor memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// Watches `fd` for `events` (`poll(2)` bits, and EPOLLEXCLUSIVE).
    PollAdd {
        /// Number of the descriptor when the request is submitted.
        fd: RawFd,
        /// Conditions to report; error and hang-up are always among them.
        events: u32,
        /// How often.
        shots: Shots,
        /// Comes back with every completion.
        user_data: u64,
    },
    /// Gives the poll request `target` other events and another number, and looks at its
    /// readiness anew. Completes only when that failed: ENOENT when no such request is armed,
    /// EALREADY when it is just about to complete and stays as it was.
    PollUpdate {
        /// `user_data` of the request to change.
        target: u64,
        /// Its `user_data` from now on.
        becomes: u64,
        /// Conditions to report from now on.
        events: u32,
        /// What the request was armed with: an update can't change it.
        shots: Shots,
        /// Comes back with a failure.
        user_data: u64,
    },
    /// Ends the request `target`, which completes with ECANCELED. Completes itself only when
    /// there is no such request (ENOENT).
    ///
    /// This is the general cancellation. IORING_OP_POLL_REMOVE costs the same but leaves a
    /// poll armed that is just about to complete (EALREADY).
    Cancel {
        /// `user_data` of the request to end.
        target: u64,
        /// Comes back with a failure.
        user_data: u64,
    },
}

impl Request {
    fn entry(self) -> squeue::Entry {
        match self {
            Self::PollAdd { fd, events, shots, user_data } => {
                opcode::PollAdd::new(types::Fd(fd), events)
                    .multi(shots == Shots::Many)
                    .build()
                    .user_data(user_data)
            }
            Self::PollUpdate { target, becomes, events, shots, user_data } => {
                poll_update(target, becomes, events, shots)
                    .flags(squeue::Flags::SKIP_SUCCESS)
                    .user_data(user_data)
            }
            Self::Cancel { target, user_data } => opcode::AsyncCancel::new(target)
                .build()
                .flags(squeue::Flags::SKIP_SUCCESS)
                .user_data(user_data),
        }
    }
}

/// The poll update, for which the io-uring crate has no opcode: `struct io_uring_sqe` of the kernel's interface, as IORING_OP_POLL_REMOVE reads it.
#[repr(C)]
struct PollRemoveEntry {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: i32,
    new_user_data: u64,
    target: u64,
    update_flags: u32,
    events: u32,
    user_data: u64,
    unused: [u64; 3],
}

const OP_POLL_REMOVE: u8 = opcode::PollRemove::CODE;
const POLL_ADD_MULTI: u32 = 1 << 0;
const POLL_UPDATE_EVENTS: u32 = 1 << 1;
const POLL_UPDATE_USER_DATA: u32 = 1 << 2;

fn poll_update(target: u64, becomes: u64, events: u32, shots: Shots) -> squeue::Entry {
    let multi = if shots == Shots::Many { POLL_ADD_MULTI } else { 0 };
    // The kernel reads the two halves of the mask in the order that older ones had.
    let events = if cfg!(target_endian = "big") { events.rotate_left(16) } else { events };
    let entry = PollRemoveEntry {
        opcode: OP_POLL_REMOVE,
        flags: 0,
        ioprio: 0,
        fd: -1,
        new_user_data: becomes,
        target,
        update_flags: POLL_UPDATE_EVENTS | POLL_UPDATE_USER_DATA | multi,
        events,
        user_data: 0,
        unused: [0; 3],
    };
    // SAFETY: `Entry` is repr(C) over the kernel's 64-byte `io_uring_sqe`, all integers and
    // unions of integers, so every bit pattern is one; `PollRemoveEntry` lays the same fields
    // out at the same places without padding, and `transmute` checks the size.
    unsafe { mem::transmute::<PollRemoveEntry, squeue::Entry>(entry) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use pollux_testing::or_skip;

    const POLLIN: u32 = libc::POLLIN as u32;

    fn ring() -> Option<Ring> {
        or_skip(Ring::open(Sizes { submission: 8, completion: 32 }))
    }

    #[test]
    fn a_multishot_poll_reports_each_arrival_until_it_is_cancelled() {
        let Some(mut ring) = ring() else { return };
        let (mut ours, theirs) = UnixStream::pair().expect("a socket pair");
        let fd = theirs.as_raw_fd();
        let shots = Shots::Many;
        ring.push(Request::PollAdd { fd, events: POLLIN, shots, user_data: 7 }).expect("room");
        for _ in 0..2 {
            ours.write_all(b"x").expect("a byte sent");
            ring.enter(1, None).expect("entered");
            let seen = ring.next_completion().expect("an arrival");
            assert_eq!((seen.user_data, seen.has_more), (7, true));
            assert_ne!(seen.result as u32 & POLLIN, 0);
        }
        ring.push(Request::Cancel { target: 7, user_data: 8 }).expect("room");
        ring.enter(1, None).expect("entered");
        let last = ring.next_completion().expect("the end of the poll");
        let cancelled = Completion { user_data: 7, result: -libc::ECANCELED, has_more: false };
        assert_eq!((last, ring.next_completion()), (cancelled, None));
    }

    #[test]
    fn an_update_renames_the_request_and_looks_again() {
        let Some(mut ring) = ring() else { return };
        let (_ours, theirs) = UnixStream::pair().expect("a socket pair");
        let fd = theirs.as_raw_fd();
        let shots = Shots::Many;
        ring.push(Request::PollAdd { fd, events: POLLIN, shots, user_data: 7 }).expect("room");
        ring.enter(0, None).expect("entered");
        assert!(!ring.has_completions());
        let events = libc::POLLOUT as u32;
        ring.push(Request::PollUpdate { target: 7, becomes: 9, events, shots, user_data: 1 })
            .expect("room");
        ring.enter(1, None).expect("entered");
        let seen = ring.next_completion().expect("writable at once");
        assert_eq!((seen.user_data, seen.has_more), (9, true));
    }

    #[test]
    fn an_update_of_nothing_says_so() {
        let Some(mut ring) = ring() else { return };
        let shots = Shots::Many;
        ring.push(Request::PollUpdate { target: 7, becomes: 9, events: 1, shots, user_data: 1 })
            .expect("room");
        ring.enter(1, None).expect("entered");
        let refused = Completion { user_data: 1, result: -libc::ENOENT, has_more: false };
        assert_eq!(ring.next_completion(), Some(refused));
    }

    #[test]
    fn a_wait_ends_with_its_timeout() {
        let Some(mut ring) = ring() else { return };
        let error = ring.enter(1, Some(Duration::from_micros(50))).expect_err("nothing comes");
        assert_eq!(error.raw_os_error(), Some(libc::ETIME));
    }

    #[test]
    fn a_look_enters_only_when_something_would_come_of_it() {
        let Some(mut ring) = ring() else { return };
        assert!(ring.setup().flags.contains(&"TASKRUN_FLAG"), "{:?}", ring.setup());
        let (mut ours, theirs) = UnixStream::pair().expect("a socket pair");
        let fd = theirs.as_raw_fd();
        let shots = Shots::Many;
        assert!(!ring.look().expect("looked"), "nothing is queued");
        ring.push(Request::PollAdd { fd, events: POLLIN, shots, user_data: 7 }).expect("room");
        assert!(ring.look().expect("looked"), "a request is queued");
        assert!(!ring.look().expect("looked"), "it is armed, and nothing has come");
        ours.write_all(b"x").expect("a byte sent");
        assert!(ring.look().expect("looked"), "work was left to this thread");
        assert_eq!(ring.next_completion().map(|seen| seen.user_data), Some(7));
        assert!(!ring.look().expect("looked"));
    }

    #[test]
    fn a_ring_that_leaves_no_work_to_its_thread_is_looked_at_without_a_call() {
        let sizes = Sizes { submission: 8, completion: 32 };
        let Some(mut ring) = or_skip(Ring::open_shared(sizes)) else { return };
        let (mut ours, theirs) = UnixStream::pair().expect("a socket pair");
        let fd = theirs.as_raw_fd();
        let shots = Shots::Many;
        ring.push(Request::PollAdd { fd, events: POLLIN, shots, user_data: 7 }).expect("room");
        assert!(ring.look().expect("looked"), "a request is queued");
        ours.write_all(b"x").expect("a byte sent");
        assert!(!ring.look().expect("looked"), "the kernel has put it into the queue by itself");
        assert_eq!(ring.next_completion().map(|seen| seen.user_data), Some(7));
    }

    #[test]
    fn a_ring_of_either_kind_takes_no_request_that_leads_out() {
        use io_uring::{opcode, squeue, types};

        let sizes = Sizes { submission: 8, completion: 32 };
        let streams = StreamSizes {
            ring: sizes,
            receive: ReceiveBuffers::whole(4, 64),
            otherwise: None,
            arena_bytes: 64,
        };
        let Some(mut plain) = ring() else { return };
        let mut stream = StreamRing::open(streams).expect("as the first");
        let mut shared = Ring::open_shared(sizes).expect("as the first");
        let path = c"/etc/hostname";
        let socket = std::net::TcpListener::bind("127.0.0.1:0");
        let socket = types::Fd(socket.as_ref().expect("bound").as_raw_fd());
        let fd = types::Fd(libc::AT_FDCWD);
        let name = path.as_ptr();
        let poll = opcode::PollAdd::new(socket, POLLIN);
        let leading_out: [(&str, squeue::Entry); 7] = [
            ("open", opcode::OpenAt::new(fd, name).build()),
            ("openat2", opcode::OpenAt2::new(fd, name, std::ptr::null()).build()),
            ("connect", opcode::Connect::new(socket, std::ptr::null(), 0).build()),
            ("socket", opcode::Socket::new(libc::AF_INET, libc::SOCK_STREAM, 0).build()),
            ("unlink", opcode::UnlinkAt::new(fd, name).build()),
            ("read", opcode::Read::new(socket, std::ptr::null_mut(), 0).build()),
            // A kind that is allowed, with a flag that is not.
            ("linked poll", poll.build().flags(squeue::Flags::IO_LINK)),
        ];
        for ring in [&mut plain, &mut shared, &mut stream.ring] {
            assert!(ring.setup().is_restricted, "{:?}", ring.setup().refused);
            for (what, entry) in &leading_out {
                // SAFETY: the path lives for the whole test, the other addresses are null and
                // have no length; nothing is kept in flight, as each request fails at once.
                unsafe { ring.io.submission().push(&entry.clone().user_data(3)) }.expect("room");
                ring.enter(1, None).expect("entered");
                let refused = ring.next_completion().expect("refused at once");
                assert_eq!(refused.result, -libc::EACCES, "{what}");
            }
            let registered = ring.io.submitter().register_files(&[socket.0]);
            let refused = registered.expect_err("nothing more is registered");
            assert_eq!(refused.raw_os_error(), Some(libc::EACCES));
        }
    }

    #[test]
    fn a_full_queue_refuses_and_fits_again_after_submitting() {
        let Some(mut ring) = ring() else { return };
        let nothing = Request::Cancel { target: 1, user_data: 2 };
        while ring.push(nothing).is_ok() {}
        assert_eq!(ring.queued(), 8);
        assert_eq!(ring.submit().expect("submitted"), 8);
        assert_eq!(ring.push(nothing), Ok(()));
    }

    #[test]
    fn the_layout_of_a_poll_update_is_that_of_the_kernel_header() {
        assert_eq!(size_of::<PollRemoveEntry>(), 64);
        assert_eq!(mem::offset_of!(PollRemoveEntry, fd), 4);
        assert_eq!(mem::offset_of!(PollRemoveEntry, new_user_data), 8);
        assert_eq!(mem::offset_of!(PollRemoveEntry, target), 16);
        assert_eq!(mem::offset_of!(PollRemoveEntry, update_flags), 24);
        assert_eq!(mem::offset_of!(PollRemoveEntry, events), 28);
        assert_eq!(mem::offset_of!(PollRemoveEntry, user_data), 32);
    }

    #[test]
    fn the_crate_reads_our_entry_as_its_own() {
        let entry = poll_update(1, 2, 3, Shots::One).user_data(4);
        assert_eq!(entry.get_opcode(), u32::from(OP_POLL_REMOVE));
        assert_eq!(entry.get_user_data(), 4);
    }
}
