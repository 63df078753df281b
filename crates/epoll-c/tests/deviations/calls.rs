//! The functions that the scripts are run on: those of `pollux/epoll.h`, on a mechanism that is named.

use std::ffi::CString;

use libc::{c_int, epoll_event, sigset_t, timespec};
use pollux_epoll_c::{Mechanism, c};

pub(crate) fn create(mechanism: Mechanism, flags: c_int) -> c_int {
    let name = CString::new(mechanism.name()).expect("no NUL");
    // SAFETY: a string.
    unsafe { c::px_epoll_create_on(name.as_ptr(), flags) }
}

/// # Safety
/// As `epoll_ctl(2)`.
pub(crate) unsafe fn ctl(epoll: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { c::px_epoll_ctl(epoll, op, fd, event) }
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
    unsafe { c::px_epoll_pwait(epoll, events, most, timeout_ms, mask) }
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
    // SAFETY: the caller's promise.
    unsafe { c::px_epoll_pwait2(epoll, events, most, timeout, mask) }
}
