//! Ends a wait from another thread or from a signal handler.
//!
//! An eventfd that the backend watches, with one flag in front of it so that a thousand wakes
//! before the next wait cost one write. The protocol, modelled in `tests/loom_waker.rs`:
//!
//! ```text
//!  any thread:   data published → set flag; was it clear? → write eventfd
//!  poller:       eventfd reported → [level backends: read it empty] → clear flag → return
//!  owner:        looks at the data after wait returned
//! ```
//!
//! The flag is cleared after the eventfd is emptied: the other order could swallow the write of
//! a wake that came between the two and leave a set flag behind, after which no wake writes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

use crate::Error;

/// Ends the current or the next wait of the poller that made it.
///
/// Any thread may call [`Waker::wake`], and so may a signal handler: it takes no lock,
/// allocates nothing and makes at most one `write(2)`.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    is_pending: AtomicBool,
    eventfd: OwnedFd,
}

impl Waker {
    /// A waker with its eventfd.
    ///
    /// # Errors
    /// [`Error::System`] when no descriptor is left.
    pub(crate) fn new() -> Result<Self, Error> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let eventfd = eventfd(0, flags).map_err(Error::system("eventfd"))?;
        Ok(Self(Arc::new(Inner { is_pending: AtomicBool::new(false), eventfd })))
    }

    /// Ends the current wait, or the next one if none is under way. Wakes are merged, not
    /// counted.
    pub fn wake(&self) {
        if !self.0.is_pending.swap(true, Ordering::AcqRel) {
            // The write fails only when the counter is full, and then the eventfd is readable.
            let _ = rustix::io::write(&self.0.eventfd, &1u64.to_ne_bytes());
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.eventfd.as_fd()
    }

    /// Takes the wake-up, for backends that hear of each write (edge).
    pub(crate) fn acknowledge_edge(&self) {
        self.0.is_pending.swap(false, Ordering::AcqRel);
    }

    /// Takes the wake-up, for backends that report a readable eventfd again and again (level).
    pub(crate) fn acknowledge_level(&self) {
        // EAGAIN means that nothing was written since, which is as good as empty.
        let _ = rustix::io::read(&self.0.eventfd, &mut [0u8; 8]);
        self.acknowledge_edge();
    }
}
