//! The functions that the scripts are run on: those of the C library by their own names, or what is before
//! it. The mechanism is in the environment of the process.

use libc::{c_int, epoll_event, sigset_t, timespec};
use pollux_epoll_c::Mechanism;

pub(crate) fn create(_: Mechanism, flags: c_int) -> c_int {
    // SAFETY: takes no pointer.
    unsafe { libc::epoll_create1(flags) }
}

/// # Safety
/// As `epoll_ctl(2)`.
pub(crate) unsafe fn ctl(epoll: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { libc::epoll_ctl(epoll, op, fd, event) }
}

/// # Safety
/// As `epoll_pwait(2)`.
pub(crate) unsafe fn pwait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout_ms: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { libc::epoll_pwait(epoll, events, most, timeout_ms, mask) }
}

/// # Safety
/// As `epoll_pwait2(2)`.
pub(crate) unsafe fn pwait2(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // The crate libc does not have it.
    unsafe extern "C" {
        fn epoll_pwait2(
            epoll: c_int,
            events: *mut epoll_event,
            most: c_int,
            timeout: *const timespec,
            mask: *const sigset_t,
        ) -> c_int;
    }
    // SAFETY: the caller's promise.
    unsafe { epoll_pwait2(epoll, events, most, timeout, mask) }
}
