//! The system calls of this crate, on numbers: a number that is closed, or another file by now, is
//! an answer of the kernel's and not a fault.
//!
//! Nothing here retries or knows what an instance is.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use libc::{c_int, epoll_event, sigset_t};

/// Whether a file can have an event at all, as far as its kind shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A socket or a pipe.
    Pollable,
    /// Only the kernel knows.
    Unknown,
}

/// What an open file is recognised by: device and inode. All anonymous files of the kernel
/// (eventfd and the like) have the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

/// Identity and kind of the file behind `fd`, `None` for a number that is not open.
pub(crate) fn identity(fd: RawFd) -> Option<(Identity, Kind)> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel writes one `stat` to a live local of that type.
    if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } < 0 {
        return None;
    }
    // SAFETY: the call succeeded, and then it has written the whole structure.
    let stat = unsafe { stat.assume_init() };
    let kind = match stat.st_mode & libc::S_IFMT {
        libc::S_IFSOCK | libc::S_IFIFO => Kind::Pollable,
        _ => Kind::Unknown,
    };
    Some((Identity { device: stat.st_dev, inode: stat.st_ino }, kind))
}

impl Identity {
    /// Whether the other one is on the same device: all anonymous files of the kernel are.
    pub(crate) fn is_beside(self, other: Self) -> bool {
        self.device == other.device
    }
}

/// Whether `fd` is open as a path only (O_PATH), which has no events.
pub(crate) fn is_path(fd: RawFd) -> bool {
    // SAFETY: F_GETFL takes no pointer and changes nothing.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_PATH != 0
}

/// `epoll_create1(2)`.
pub(crate) fn create(flags: c_int) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer.
    owned(unsafe { libc::epoll_create1(flags) })
}

/// `epoll_ctl(2)`.
pub(crate) fn ctl(
    epoll: RawFd,
    op: c_int,
    fd: RawFd,
    event: Option<epoll_event>,
) -> io::Result<()> {
    let mut event = event;
    let event = event.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    // SAFETY: the pointer is null or leads to a live local.
    let done = unsafe { libc::epoll_ctl(epoll, op, fd, event) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `epoll_pwait2(2)`, which `rest` ends; `None` waits for ever. It sleeps in `ppoll(2)`, which the kernel
/// continues where no handler ran: a ring that was closed tidies up in the threads that used it by what ends an
/// `epoll_wait(2)` with EINTR.
pub(crate) fn wait(
    epoll: RawFd,
    room: &mut [MaybeUninit<epoll_event>],
    rest: impl Fn() -> Option<Duration>,
    mask: Option<&sigset_t>,
) -> io::Result<usize> {
    let len = c_int::try_from(room.len()).unwrap_or(c_int::MAX);
    let first = room.as_mut_ptr().cast::<epoll_event>();
    loop {
        // SAFETY: the kernel writes at most `len` events to a live exclusive slice of that length.
        let found = unsafe { libc::epoll_wait(epoll, first, len, 0) };
        let found = usize::try_from(found).map_err(|_| io::Error::last_os_error())?;
        if found > 0 || !is_readable(epoll, rest(), mask)? {
            return Ok(found);
        }
    }
}

/// Waits until `fd` is readable or closed. `false`: the time is over.
fn is_readable(fd: RawFd, timeout: Option<Duration>, mask: Option<&sigset_t>) -> io::Result<bool> {
    let mut fd = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let time = timeout.map(timespec);
    let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
    let mask = mask.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: one element at a live local; time and mask are null or live.
    let found = unsafe { libc::ppoll(&raw mut fd, 1, time, mask) };
    if found < 0 { Err(io::Error::last_os_error()) } else { Ok(found > 0) }
}

/// What the kernel's `sigset_t` has.
pub(crate) const SIGSET_BYTES: usize = 8;

fn timespec(timeout: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(timeout.subsec_nanos()),
    }
}

/// An eventfd that counts down by one with each read, and never blocks.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer.
    owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK | libc::EFD_SEMAPHORE) })
}

/// Adds one to an eventfd, for one thread that waits for it.
pub(crate) fn post(semaphore: &OwnedFd) {
    let one = 1_u64;
    // SAFETY: reads eight bytes of a live local. It fails only when the counter is full.
    unsafe { libc::write(semaphore.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
}

/// Waits until `semaphore` was posted, and takes one from it. `false`: the time is over.
///
/// # Errors
/// EINTR after a signal.
pub(crate) fn await_post(
    semaphore: RawFd,
    timeout: Option<Duration>,
    mask: Option<&sigset_t>,
) -> io::Result<bool> {
    let is_posted = is_readable(semaphore, timeout, mask)?;
    let mut count = 0_u64;
    // SAFETY: writes eight bytes to a live local. EAGAIN: another thread was faster, which is as good.
    unsafe { libc::read(semaphore, (&raw mut count).cast(), size_of::<u64>()) };
    Ok(is_posted)
}

fn owned(fd: c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether `fd` is open in the program that this one becomes by `execve(2)`.
pub(crate) fn survives_exec(fd: RawFd) -> bool {
    // SAFETY: F_GETFD takes no pointer and changes nothing.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    flags >= 0 && flags & libc::FD_CLOEXEC == 0
}

/// A further number of the file behind `fd`, which does not survive `execve(2)`.
pub(crate) fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: makes a new number and touches no memory.
    owned(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) })
}

/// `close(2)` of a number whose owner was forgotten.
pub(crate) fn close(fd: RawFd) {
    // SAFETY: takes no pointer; the caller is the only one that knows the number.
    unsafe { libc::close(fd) };
}

/// Has `number`, which survives `execve(2)`, name the file behind `fd`.
pub(crate) fn rename(number: RawFd, fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: takes no pointer; the owner of the number asks for it.
    let done = unsafe { libc::dup3(fd.as_raw_fd(), number, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Has the three called around every `fork(3)`: before, then in the parent or in the child.
pub(crate) fn at_fork(before: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
    // SAFETY: the functions live as long as the program, and take and give nothing.
    let refused = unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
    assert_eq!(refused, 0, "pthread_atfork fails only without memory");
}

/// What an epoll of the kernel's watches, as far as `/proc` shows.
pub(crate) fn watched_by(epoll: RawFd) -> Vec<RawFd> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{epoll}")).unwrap_or_default();
    let of = |line: &str| line.strip_prefix("tfd:")?.split_whitespace().next()?.parse().ok();
    text.lines().filter_map(of).collect()
}

/// Every open descriptor, as far as `/proc` shows.
pub(crate) fn open_numbers() -> Vec<RawFd> {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
