//! The functions of `pollux/epoll.h`.
//!
//! Each reads what the caller hands over, asks the instance or the kernel, and turns the outcome into
//! a number and `errno`. Pointers are the caller's promise, as in C; NULL is answered by EFAULT. All of them
//! but for the kernel's own waits, which a thread may be cancelled in, are behind the border (`border.rs`).

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::slice;
use std::time::Duration;

use libc::{c_char, c_int, epoll_event, sigset_t, timespec};
use pollux_poller::Mechanism;

use crate::{Identity, Instance, Instances, border};

/// The instances of programs that link the library.
pub(crate) static INSTANCES: Instances = Instances::new(Identity::Checked);

// A thread that is cancelled in it unwinds through the two functions that call it, which hold nothing.
unsafe extern "C-unwind" {
    fn epoll_pwait(
        epoll: c_int,
        events: *mut epoll_event,
        maxevents: c_int,
        timeout_ms: c_int,
        mask: *const sigset_t,
    ) -> c_int;
}

/// Names the mechanism of instances that are created without one.
const CHOICE: &str = "PX_POLLER";

/// `epoll_create(2)`, on the mechanism that `PX_POLLER` names.
#[unsafe(no_mangle)]
pub extern "C" fn px_epoll_create(size: c_int) -> c_int {
    if size <= 0 {
        return failed(&io::Error::from_raw_os_error(libc::EINVAL));
    }
    px_epoll_create1(0)
}

/// `epoll_create1(2)`, on the mechanism that `PX_POLLER` names; EINVAL also when it names none.
#[unsafe(no_mangle)]
pub extern "C" fn px_epoll_create1(flags: c_int) -> c_int {
    answered(border::contained("px_epoll_create1", || {
        let name = std::env::var_os(CHOICE).unwrap_or_default();
        let is_named = !name.is_empty();
        create(if is_named { mechanism(name.to_str()) } else { Some(Mechanism::Epoll) }, flags)
    }))
}

/// `epoll_create1(2)`, on the mechanism `poller`; EINVAL also when there is none of this name.
///
/// # Safety
/// `poller` is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn px_epoll_create_on(poller: *const c_char, flags: c_int) -> c_int {
    if poller.is_null() {
        return failed(&io::Error::from_raw_os_error(libc::EFAULT));
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(poller) };
    let mechanism = mechanism(name.to_str().ok());
    answered(border::contained("px_epoll_create_on", || create(mechanism, flags)))
}

/// The mechanism that `epoll` stands on: "epoll" also for a number that is not an instance.
#[unsafe(no_mangle)]
pub extern "C" fn px_epoll_poller(epoll: c_int) -> *const c_char {
    let found = found("px_epoll_poller", epoll).ok().flatten();
    found.map_or(Mechanism::Epoll, Instance::mechanism).c_name().as_ptr()
}

/// `epoll_ctl(2)`.
///
/// # Safety
/// `event` is NULL or leads to an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn px_epoll_ctl(
    epoll: c_int,
    op: c_int,
    fd: c_int,
    event: *const epoll_event,
) -> c_int {
    let is_kernels = match (found("px_epoll_ctl", epoll), found("px_epoll_ctl", fd)) {
        (Ok(instance), Ok(watched)) => instance.is_none() && watched.is_none(),
        (Err(error), _) | (_, Err(error)) => return failed(&error),
    };
    if is_kernels {
        // SAFETY: the kernel judges the pointer itself, which it only reads.
        return unsafe { libc::epoll_ctl(epoll, op, fd, event.cast_mut()) };
    }
    let event = if op == libc::EPOLL_CTL_DEL || event.is_null() {
        None
    } else {
        // SAFETY: the caller's promise; C programs pack the structure or not, so it is read by bytes.
        Some(unsafe { event.read_unaligned() })
    };
    let change = || INSTANCES.ctl(epoll, op, fd, event).map(|()| 0);
    answered(border::contained("px_epoll_ctl", change))
}

/// `epoll_wait(2)`.
///
/// # Safety
/// `events` leads to `maxevents` events.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn px_epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    maxevents: c_int,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: the caller's promise; no mask.
    unsafe { px_epoll_pwait(epoll, events, maxevents, timeout_ms, std::ptr::null()) }
}

/// `epoll_pwait(2)`.
///
/// # Safety
/// As [`px_epoll_wait`]; `mask` is NULL or leads to a set of signals.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn px_epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    maxevents: c_int,
    timeout_ms: c_int,
    mask: *const sigset_t,
) -> c_int {
    match found("px_epoll_wait", epoll) {
        // SAFETY: the kernel judges the pointers itself.
        Ok(None) => unsafe { epoll_pwait(epoll, events, maxevents, timeout_ms, mask) },
        Ok(Some(instance)) => {
            let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
            // SAFETY: the caller's promise.
            unsafe { wait((instance, epoll), events, maxevents, timeout, mask) }
        }
        Err(error) => failed(&error),
    }
}

/// `epoll_pwait2(2)`.
///
/// # Safety
/// As [`px_epoll_pwait`]; `timeout` is NULL or leads to a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn px_epoll_pwait2(
    epoll: c_int,
    events: *mut epoll_event,
    maxevents: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let instance = match found("px_epoll_pwait2", epoll) {
        Ok(instance) => instance,
        Err(error) => return failed(&error),
    };
    let Some(instance) = instance else {
        let number = libc::SYS_epoll_pwait2;
        let bytes = crate::kernel::SIGSET_BYTES;
        // SAFETY: the kernel judges the pointers itself.
        let found =
            unsafe { libc::syscall(number, epoll, events, maxevents, timeout, mask, bytes) };
        return c_int::try_from(found).unwrap_or(-1);
    };
    // SAFETY: the caller's promise.
    let timeout = unsafe { timeout.as_ref() }.map(duration).transpose();
    match timeout {
        // SAFETY: the caller's promise.
        Ok(timeout) => unsafe { wait((instance, epoll), events, maxevents, timeout, mask) },
        Err(error) => failed(&error),
    }
}

/// A wait on an instance.
///
/// # Safety
/// As [`px_epoll_pwait`].
unsafe fn wait(
    (instance, epoll): (&Instance, RawFd),
    events: *mut epoll_event,
    maxevents: c_int,
    timeout: Option<Duration>,
    mask: *const sigset_t,
) -> c_int {
    let room = match usize::try_from(maxevents) {
        Ok(0) | Err(_) => return failed(&io::Error::from_raw_os_error(libc::EINVAL)),
        Ok(_) if events.is_null() => return failed(&io::Error::from_raw_os_error(libc::EFAULT)),
        Ok(len) => {
            let first = events.cast::<MaybeUninit<epoll_event>>();
            // SAFETY: the caller's promise; the type asks for nothing of what is there, and on x86 it
            // has no alignment, elsewhere that of C.
            unsafe { slice::from_raw_parts_mut(first, len) }
        }
    };
    // SAFETY: the caller's promise.
    let mask = unsafe { mask.as_ref() };
    answered(border::contained("px_epoll_wait", || {
        let found = instance.wait(epoll, room, timeout, mask)?;
        Ok(c_int::try_from(found).unwrap_or(c_int::MAX))
    }))
}

/// The instance of this number, if it is one, for the function `call`.
fn found(call: &str, epoll: RawFd) -> io::Result<Option<&'static Instance>> {
    if INSTANCES.is_empty() {
        return Ok(None);
    }
    border::contained(call, || Ok(INSTANCES.find(epoll)))
}

fn create(mechanism: Option<Mechanism>, flags: c_int) -> io::Result<c_int> {
    let mechanism = mechanism.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    if mechanism != Mechanism::Epoll {
        INSTANCES.guard_forks();
    }
    INSTANCES.create(mechanism, flags)
}

fn mechanism(name: Option<&str>) -> Option<Mechanism> {
    Mechanism::PLAIN.into_iter().find(|mechanism| Some(mechanism.name()) == name)
}

fn duration(time: &timespec) -> io::Result<Duration> {
    let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
    let seconds = u64::try_from(time.tv_sec).map_err(|_| invalid())?;
    let nanoseconds = u32::try_from(time.tv_nsec).map_err(|_| invalid())?;
    if nanoseconds >= 1_000_000_000 {
        return Err(invalid());
    }
    Ok(Duration::new(seconds, nanoseconds))
}

/// The number, or -1 with `errno`.
fn answered(done: io::Result<c_int>) -> c_int {
    done.unwrap_or_else(|error| failed(&error))
}

/// Leaves `error` to the caller in `errno`.
fn failed(error: &io::Error) -> c_int {
    // SAFETY: gives the address of the thread's own number.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the address above is valid and of this thread alone.
    unsafe { *errno = error.raw_os_error().unwrap_or(libc::EIO) };
    -1
}
