//! Filters of system calls, seccomp(2): a program that locks itself up allows the calls that it makes itself, and may be
//! killed for any other. From then on this library makes none of its own, and what takes one is not known.
//!
//! Noted by the names and by the number, before the kernel is asked. One that was set before this program started is
//! not known: containers have one as well, and the calls that are made when the library starts have passed it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

static IS_SET: AtomicBool = AtomicBool::new(false);
/// The process, read before the filter.
static PID: AtomicU32 = AtomicU32::new(0);

/// Whether a filter may kill this process for a call that the program does not make itself.
#[inline]
pub(crate) fn is_set() -> bool {
    IS_SET.load(Relaxed)
}

/// The process, where a filter is set.
pub(crate) fn pid() -> Option<u32> {
    is_set().then(|| PID.load(Relaxed))
}

/// This is a forked child, whose one thread has its number.
pub(crate) fn forked() {
    if is_set() {
        PID.store(own_tid(), Relaxed);
    }
}

/// The number of this thread, without a system call: a mutex that is locked has its owner's.
pub(crate) fn own_tid() -> u32 {
    const OWNER: usize = 8;
    let mut lock = libc::PTHREAD_MUTEX_INITIALIZER;
    let place = &raw mut lock;
    // SAFETY: a mutex of this function alone, which is initialized.
    unsafe { libc::pthread_mutex_trylock(place) };
    // SAFETY: within the mutex, and aligned as it is.
    let owner = unsafe { place.cast::<u32>().wrapping_byte_add(OWNER).read_volatile() };
    // SAFETY: locked by this thread a moment ago.
    unsafe { libc::pthread_mutex_unlock(place) };
    owner
}

/// A filter is about to be set; what is asked for later is asked for now.
pub(crate) fn setting() {
    PID.store(std::process::id(), Relaxed);
    IS_SET.store(true, Relaxed);
}

/// The kernel refused it.
pub(crate) fn refused() {
    IS_SET.store(false, Relaxed);
}
