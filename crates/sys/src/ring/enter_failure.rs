//! What the errnos of `io_uring_enter(2)` mean: the one place that says so, for every loop and poller that enters a ring.

use std::io;

/// Why an enter gave an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EnterFailure {
    /// EINTR: a signal handler ran.
    Interrupted,
    /// ETIME: the wait is over, and too little came.
    TimedOut,
    /// EAGAIN: the kernel has no memory for requests just now; EBUSY: too many completions lie untaken. Both take none of what
    /// is queued, and harvesting helps.
    Congested,
    /// Anything else: this ring can't be entered from here. EEXIST is another thread's ring or a parent's, EBADF a closed
    /// one; EBADR says that completions were lost, which no kernel with IORING_FEAT_NODROP does.
    Broken,
}

impl EnterFailure {
    /// What this error of an enter means.
    #[must_use]
    pub fn of(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EINTR) => Self::Interrupted,
            Some(libc::ETIME) => Self::TimedOut,
            Some(libc::EAGAIN | libc::EBUSY) => Self::Congested,
            _ => Self::Broken,
        }
    }

    /// Whether nothing was lost, and the next enter may do better.
    #[must_use]
    pub fn is_passing(self) -> bool {
        self != Self::Broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_enter_passes_or_the_ring_is_broken() {
        let of = |errno| EnterFailure::of(&io::Error::from_raw_os_error(errno));
        assert_eq!(of(libc::EINTR), EnterFailure::Interrupted);
        assert_eq!(of(libc::ETIME), EnterFailure::TimedOut);
        for errno in [libc::EAGAIN, libc::EBUSY] {
            assert_eq!(of(errno), EnterFailure::Congested);
        }
        assert!([libc::EINTR, libc::ETIME, libc::EAGAIN].into_iter().all(|e| of(e).is_passing()));
        for errno in [libc::EEXIST, libc::EBADF, libc::EBADR, libc::EINVAL] {
            assert!(!of(errno).is_passing(), "{errno}");
        }
    }
}
