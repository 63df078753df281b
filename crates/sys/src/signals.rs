//! A signal mask for the time of one system call.
//!
//! The kernel puts it in place and takes it back within the call that blocks (`ppoll(2)`,
//! `pselect6(2)`, `io_pgetevents(2)`, `io_uring_enter(2)`, `epoll_pwait(2)`), so that no signal comes
//! between the mask and the wait. Nothing here changes the mask of a thread.

use std::fmt;
use std::ptr;

/// The signals that are blocked meanwhile.
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
