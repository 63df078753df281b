//! `ppoll(2)` and `pselect6(2)` on descriptor *numbers*, and the signal mask of a call that waits.
//!
//! The poll and select backends call this. Both functions are safe: asking the kernel whether
//! a number is ready reads, writes and closes nothing, and a number that names no open file is
//! an answer (POLLNVAL, EBADF) and not a fault. A `BorrowedFd` for each element would promise
//! more than a poller can hold, which keeps numbers beyond the borrow with which they came.
//!
//! Both may be given a signal mask for the time of the call; neither retries after a signal.

use std::os::fd::RawFd;
use std::time::Duration;
use std::{fmt, io, ptr};

use crate::SystemCall;

/// The system calls of [`poll`].
pub const POLL_CALLS: &[SystemCall] = &[
    libc::SYS_ppoll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];
/// Those of [`select`].
pub const SELECT_CALLS: &[SystemCall] = &[
    libc::SYS_pselect6,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_select,
];

/// Bits in one word of a bitmap for [`select`].
pub const WORD_BITS: usize = u64::BITS as usize;

/// One element of the array that [`poll`] works on; the layout is that of `struct pollfd`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct PollFd {
    /// The number to ask about; negative ones are passed over.
    pub fd: RawFd,
    /// POLLIN and the like: what to ask for.
    pub events: u16,
    /// What the kernel found: bits of `events`, POLLERR, POLLHUP and POLLNVAL.
    pub revents: u16,
}

const _: () = {
    assert!(size_of::<PollFd>() == size_of::<libc::pollfd>());
    assert!(align_of::<PollFd>() == align_of::<libc::pollfd>());
    assert!(std::mem::offset_of!(PollFd, events) == std::mem::offset_of!(libc::pollfd, events));
    assert!(std::mem::offset_of!(PollFd, revents) == std::mem::offset_of!(libc::pollfd, revents));
    // Bitmaps of u64 are the kernel's arrays of unsigned long only where the two are one.
    assert!(size_of::<libc::c_ulong>() == size_of::<u64>());
};

impl PollFd {
    /// An element that asks for `events` of `fd`.
    #[must_use]
    pub const fn new(fd: RawFd, events: u16) -> Self {
        Self { fd, events, revents: 0 }
    }
}

/// Asks for the readiness of every element of `fds` and sets its `revents`; returns how many
/// are not zero. `None` waits for ever, zero only looks; the timeout counts nanoseconds.
///
/// # Errors
/// EINTR after a signal, EINVAL when `fds` is longer than RLIMIT_NOFILE, ENOMEM.
pub fn poll(
    fds: &mut [PollFd],
    timeout: Option<Duration>,
    mask: Option<&SignalMask>,
) -> io::Result<usize> {
    let time = timeout.map(timespec);
    let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
    let count = libc::nfds_t::try_from(fds.len()).expect("array lengths fit nfds_t");
    let mask = SignalMask::pointer(mask);
    // SAFETY: the pointer and the count are those of a live exclusive slice of the layout
    // asserted above; time and mask are null or live.
    let found = unsafe { libc::ppoll(fds.as_mut_ptr().cast(), count, time, mask) };
    usize::try_from(found).map_err(|_| io::Error::last_os_error())
}

/// Whether `fd` is an open descriptor of this process, also one that can't be polled (O_PATH).
/// One `fcntl(2)`.
#[must_use]
pub fn is_open(fd: RawFd) -> bool {
    // SAFETY: F_GETFD takes no pointer and changes nothing.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    flags >= 0
}

/// The three bitmaps of one [`select`]: bit `n % 64` of word `n / 64` stands for descriptor
/// `n`. Each bitmap covers every descriptor below `nfds`.
#[derive(Debug)]
pub struct Bitmaps<'a> {
    /// Readable, at the end of the stream, hung up or in error.
    pub read: &'a mut [u64],
    /// Writable or in error.
    pub write: &'a mut [u64],
    /// POLLPRI: urgent data and the like. Not errors.
    pub except: &'a mut [u64],
}

/// Asks for the readiness of every descriptor below `nfds` whose bit is set, and leaves the
/// bits of those that are ready; returns how many bits are left. There is no bound at 1024:
/// that one belongs to the C library's `fd_set`. Timeouts as with [`poll`].
///
/// # Errors
/// EBADF when a set bit names no open file (it does not say which), EINTR after a signal,
/// ENOMEM. After an error the bitmaps are as they were.
///
/// # Panics
/// When a bitmap is shorter than `nfds` bits.
pub fn select(
    nfds: usize,
    sets: Bitmaps<'_>,
    timeout: Option<Duration>,
    mask: Option<&SignalMask>,
) -> io::Result<usize> {
    let Bitmaps { read, write, except } = sets;
    let words = nfds.div_ceil(WORD_BITS);
    assert!(
        words <= read.len() && words <= write.len() && words <= except.len(),
        "select over {nfds} descriptors needs bitmaps of {words} words"
    );
    let count = libc::c_long::try_from(nfds).expect("nfds fits the kernel's int");
    // The kernel writes the time left into it; it is not read.
    let mut time = timeout.map(timespec);
    let time = time.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    // pselect6 has no seventh argument: mask and length come in a structure.
    let mask = MaskArgument { mask: SignalMask::pointer(mask), len_bytes: MASK_BYTES };
    // SAFETY: the kernel reads and writes `nfds` bits, in whole words, at each of the three
    // pointers; all are live exclusive slices of at least that length. `time` is null or
    // points to a local. The mask's structure is a local, and the mask in it null or live.
    let found = unsafe {
        libc::syscall(
            libc::SYS_pselect6,
            count,
            read.as_mut_ptr(),
            write.as_mut_ptr(),
            except.as_mut_ptr(),
            time,
            &raw const mask,
        )
    };
    usize::try_from(found).map_err(|_| io::Error::last_os_error())
}

/// The last argument of `pselect6(2)`, and that of `io_pgetevents(2)`.
#[repr(C)]
pub(crate) struct MaskArgument {
    pub(crate) mask: *const libc::sigset_t,
    pub(crate) len_bytes: usize,
}

/// `timeout` as the kernel takes it; more seconds than it can count are for ever anyhow.
pub(crate) fn timespec(timeout: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::c_long::try_from(timeout.as_secs()).unwrap_or(libc::c_long::MAX),
        tv_nsec: libc::c_long::from(timeout.subsec_nanos()),
    }
}

/// The signals that are blocked for the time of one system call.
///
/// The kernel puts it in place and takes it back within the call that blocks (`ppoll(2)`, `pselect6(2)`,
/// `io_pgetevents(2)`, `io_uring_enter(2)`, `epoll_pwait(2)`), so that no signal comes between the mask and the
/// wait. Nothing here changes the mask of a thread.
#[derive(Clone, Copy)]
pub struct SignalMask(libc::sigset_t);

/// What the kernel's set of signals has; the C library's is larger.
pub(crate) const MASK_BYTES: usize = 8;

impl SignalMask {
    /// What a system call is handed: null for no mask.
    pub(crate) fn pointer(mask: Option<&Self>) -> *const libc::sigset_t {
        mask.map_or(ptr::null(), |mask| &raw const mask.0)
    }
}

impl From<libc::sigset_t> for SignalMask {
    fn from(set: libc::sigset_t) -> Self {
        Self(set)
    }
}

impl fmt::Debug for SignalMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SignalMask")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    #[test]
    fn poll_reports_ready_dead_and_disabled_numbers_each_in_its_way() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        writer.write_all(b"x").expect("room in the pipe");
        let open_max = 1 << 30;
        let mut fds = [
            PollFd::new(reader.as_raw_fd(), libc::POLLIN as u16),
            PollFd::new(!reader.as_raw_fd(), libc::POLLIN as u16),
            PollFd::new(open_max, libc::POLLIN as u16),
        ];
        assert_eq!(poll(&mut fds, None, None).expect("poll"), 2);
        let seen = fds.map(|fd| fd.revents);
        assert_eq!(seen, [libc::POLLIN as u16, 0, libc::POLLNVAL as u16]);
    }

    #[test]
    fn poll_and_select_count_nanoseconds() {
        let short = Some(Duration::from_nanos(200_000));
        let start = std::time::Instant::now();
        assert_eq!(poll(&mut [], short, None).expect("poll"), 0);
        let sets = Bitmaps { read: &mut [], write: &mut [], except: &mut [] };
        assert_eq!(select(0, sets, short, None).expect("select"), 0);
        assert!(start.elapsed() >= Duration::from_nanos(400_000));
    }

    #[test]
    fn select_leaves_the_bits_of_what_is_ready() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        writer.write_all(b"x").expect("room in the pipe");
        let ready = reader.as_raw_fd() as usize;
        let other = writer.as_raw_fd() as usize;
        let nfds = ready.max(other) + 1;
        let empty = vec![0u64; nfds.div_ceil(WORD_BITS)];
        let mut read = empty.clone();
        let mut write = empty.clone();
        let mut except = empty.clone();
        read[ready / WORD_BITS] |= 1 << (ready % WORD_BITS);
        write[other / WORD_BITS] |= 1 << (other % WORD_BITS);
        except[ready / WORD_BITS] |= 1 << (ready % WORD_BITS);
        let asked = (read.clone(), write.clone());
        let sets = Bitmaps { read: &mut read, write: &mut write, except: &mut except };
        assert_eq!(select(nfds, sets, None, None).expect("select"), 2);
        assert_eq!((read, write, except), (asked.0, asked.1, empty));
    }

    #[test]
    #[should_panic(expected = "needs bitmaps of 2 words")]
    fn select_refuses_bitmaps_that_are_too_short() {
        let sets = Bitmaps { read: &mut [0], write: &mut [0, 0], except: &mut [0, 0] };
        let _ = select(65, sets, Some(Duration::ZERO), None);
    }
}
