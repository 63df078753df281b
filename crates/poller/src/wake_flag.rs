//! The protocol behind [`crate::Waker`]: one flag in front of an eventfd, so that a thousand wakes
//! before the next wait write once.
//!
//! ```text
//!  any thread:   data published → set flag; was it clear? → signal the eventfd
//!  poller:       eventfd reported → [level backends: drain it] → clear flag → return
//!  owner:        reads the data after wait returned
//! ```
//!
//! The flag is cleared after the eventfd is drained: the other order could swallow the signal of a
//! wake that came between the two and leave a set flag behind, after which no wake signals.
//! `tests/loom_waker.rs` takes in this file as it stands and shows both on all interleavings;
//! so nothing here may name anything else of the crate.

#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering};

/// What ends the wait of a sleeping poller: an eventfd, or its model.
pub(crate) trait WakeFd {
    /// Makes it readable. Signals that were not taken yet are one.
    fn signal(&self);
    /// Takes all signals at once, reported or not.
    fn drain(&self);
}

/// An eventfd that is signalled at most once for all wakes that were not acknowledged.
#[derive(Debug)]
pub(crate) struct WakeFlag<B> {
    is_pending: AtomicBool,
    fd: B,
}

impl<B: WakeFd> WakeFlag<B> {
    pub(crate) fn new(fd: B) -> Self {
        Self { is_pending: AtomicBool::new(false), fd }
    }

    pub(crate) fn fd(&self) -> &B {
        &self.fd
    }

    /// Everything that the caller wrote before is seen by the owner after it acknowledged.
    pub(crate) fn wake(&self) {
        if !self.is_pending.swap(true, Ordering::AcqRel) {
            self.fd.signal();
        }
    }

    /// Whether a wake stands that was not acknowledged.
    pub(crate) fn is_pending(&self) -> bool {
        self.is_pending.load(Ordering::Acquire)
    }

    /// For pollers that report each signal once.
    pub(crate) fn acknowledge_edge(&self) {
        self.is_pending.swap(false, Ordering::AcqRel);
    }

    /// For pollers that report signals until they are taken.
    pub(crate) fn acknowledge_level(&self) {
        self.fd.drain();
        self.acknowledge_edge();
    }
}
