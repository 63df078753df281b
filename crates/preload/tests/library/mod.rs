//! Where cargo has built the library, a memory to count in, and the functions that the scripts are run on: those of
//! the C library by their own names, or what is before it.

use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::Command;

use libc::{c_int, epoll_event, sigset_t, timespec};
use pollux_epoll_c::Mechanism;
use pollux_sys::loop_stats::{Region, VARIABLE, WORDS};
use pollux_sys::shared::SharedWords;

/// The library as cargo built it for the tests of this package.
pub(crate) fn built() -> PathBuf {
    let tests = std::env::current_exe().expect("the own path");
    let folder = tests.parent().expect("a folder");
    let library = folder.join("libpollux_preload.so");
    assert!(library.exists(), "{}: cargo builds it with this test", library.display());
    library
}

/// A memory that a program counts in as long as this lives.
pub(crate) struct Memory(SharedWords);

impl Memory {
    pub(crate) fn new() -> Self {
        let words = SharedWords::create(WORDS).expect("memory");
        Region::begin(&words).expect("as many words as it has");
        Self(words)
    }

    /// Has a program count here.
    pub(crate) fn count(&self, command: &mut Command) {
        let fd = self.0.as_fd().as_raw_fd();
        let path = Path::new("/proc").join(std::process::id().to_string()).join(format!("fd/{fd}"));
        command.env(VARIABLE, path);
    }
}

/// On the mechanism that the environment of the process names.
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
