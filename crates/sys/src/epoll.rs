//! `epoll_wait(2)` and `epoll_pwait2(2)`.
//!
//! The pollers call these; instances are made elsewhere, and changed by numbers here only. The
//! two differ in more than the unit of the timeout: the newer call reads it from memory, which
//! makes a wait dearer by half an empty look, and filters older than it (Linux 5.11) refuse it.
//! Only [`wait_masked`] touches the signal mask; none retries after a signal.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::time::Duration;

use crate::SystemCall;
use crate::poll_select::{MASK_BYTES, SignalMask, timespec};

/// The system calls by which an instance is changed and waited for.
pub const CALLS: &[SystemCall] = &[
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
];

/// What the kernel found for one registration; the layout is that of `struct epoll_event`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct EpollEvent(libc::epoll_event);

impl EpollEvent {
    /// Room for an event.
    pub const NONE: Self = Self(libc::epoll_event { events: 0, u64: 0 });

    /// EPOLLIN and the like.
    #[inline]
    #[must_use]
    pub const fn flags(self) -> u32 {
        self.0.events
    }

    /// What the registration was made with.
    #[inline]
    #[must_use]
    pub const fn data(self) -> u64 {
        self.0.u64
    }
}

/// Waits `timeout_ms` at most, for ever where it is negative, and not at all where it is zero;
/// returns how many events stand at the beginning of `room`.
///
/// # Errors
/// EINTR after a signal, EINVAL when `room` is empty or `epoll` is not an epoll instance.
#[inline]
pub fn wait(epoll: BorrowedFd<'_>, room: &mut [EpollEvent], timeout_ms: i32) -> io::Result<usize> {
    let first = room.as_mut_ptr().cast();
    let len = len(room);
    // SAFETY: the kernel writes at most `len` events into a live exclusive slice of that length
    // and of its layout.
    let found = unsafe { libc::epoll_wait(epoll.as_raw_fd(), first, len, timeout_ms) };
    usize::try_from(found).map_err(|_| io::Error::last_os_error())
}

/// As [`wait`], with a timeout in nanoseconds.
///
/// # Errors
/// As [`wait`]; ENOSYS before Linux 5.11, and that or EPERM where a filter forbids the call.
#[inline]
pub fn wait_ns(
    epoll: BorrowedFd<'_>,
    room: &mut [EpollEvent],
    timeout: Duration,
) -> io::Result<usize> {
    let first = room.as_mut_ptr();
    let len = len(room);
    let time = timespec(timeout);
    let no_mask = ptr::null::<libc::sigset_t>();
    let number = libc::SYS_epoll_pwait2;
    let epoll = epoll.as_raw_fd();
    // SAFETY: as in `wait`; the time is a live local, and a null mask of any length is allowed.
    let found = unsafe { libc::syscall(number, epoll, first, len, &raw const time, no_mask, 0) };
    usize::try_from(found).map_err(|_| io::Error::last_os_error())
}

/// As [`wait_ns`], with a signal mask for the time of the call; `None` waits for ever.
///
/// # Errors
/// As [`wait_ns`].
pub fn wait_masked(
    epoll: BorrowedFd<'_>,
    room: &mut [EpollEvent],
    timeout: Option<Duration>,
    mask: &SignalMask,
) -> io::Result<usize> {
    let first = room.as_mut_ptr();
    let len = len(room);
    let time = timeout.map(timespec);
    let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
    let mask = SignalMask::pointer(Some(mask));
    let number = libc::SYS_epoll_pwait2;
    let epoll = epoll.as_raw_fd();
    // SAFETY: as in `wait`; the time is null or a live local, the mask is live and has these bytes.
    let found = unsafe { libc::syscall(number, epoll, first, len, time, mask, MASK_BYTES) };
    usize::try_from(found).map_err(|_| io::Error::last_os_error())
}

/// Adds the number `fd` to `epoll`, with EPOLLIN and the like in `flags`. For numbers that a table holds, which
/// may be closed by now.
///
/// # Errors
/// Those of `epoll_ctl(2)`, EBADF for a number that is closed among them.
pub fn add(epoll: BorrowedFd<'_>, fd: RawFd, flags: u32, data: u64) -> io::Result<()> {
    control(epoll, libc::EPOLL_CTL_ADD, fd, libc::epoll_event { events: flags, u64: data })
}

/// Takes the number `fd` out of `epoll`.
///
/// # Errors
/// Those of `epoll_ctl(2)`: ENOENT, EBADF.
pub fn delete(epoll: BorrowedFd<'_>, fd: RawFd) -> io::Result<()> {
    control(epoll, libc::EPOLL_CTL_DEL, fd, libc::epoll_event { events: 0, u64: 0 })
}

fn control(
    epoll: BorrowedFd<'_>,
    op: libc::c_int,
    fd: RawFd,
    mut event: libc::epoll_event,
) -> io::Result<()> {
    // SAFETY: the event is a live local; the kernel judges the number.
    let done = unsafe { libc::epoll_ctl(epoll.as_raw_fd(), op, fd, &raw mut event) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// More room than the kernel's count can say is not used.
fn len(room: &[EpollEvent]) -> libc::c_int {
    libc::c_int::try_from(room.len()).unwrap_or(libc::c_int::MAX)
}
