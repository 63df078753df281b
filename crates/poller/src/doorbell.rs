//! The protocol behind [`crate::Waker`]: one flag in front of a bell, so that a thousand wakes
//! before the next wait ring once.
//!
//! ```text
//!  any thread:   data published → set flag; was it clear? → ring the bell
//!  poller:       bell reported → [level backends: empty the bell] → clear flag → return
//!  owner:        looks at the data after wait returned
//! ```
//!
//! The flag is cleared after the bell is emptied: the other order could swallow the ring of a
//! wake that came between the two and leave a set flag behind, after which no wake rings.
//! `tests/loom_waker.rs` takes in this file as it stands and shows both on all interleavings;
//! so nothing here may name anything else of the crate.

#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering};

/// What makes a sleeping poller look: an eventfd, or its model.
pub(crate) trait Bell {
    /// Lets the poller hear of it. Rings that nobody heard yet are one.
    fn ring(&self);
    /// Takes all rings at once, heard or not.
    fn empty(&self);
}

/// A bell that is rung at most once for all wakes that were not acknowledged.
#[derive(Debug)]
pub(crate) struct Doorbell<B> {
    is_pending: AtomicBool,
    bell: B,
}

impl<B: Bell> Doorbell<B> {
    pub(crate) fn new(bell: B) -> Self {
        Self { is_pending: AtomicBool::new(false), bell }
    }

    pub(crate) fn bell(&self) -> &B {
        &self.bell
    }

    /// Everything that the caller wrote before is seen by the owner after it acknowledged.
    pub(crate) fn wake(&self) {
        if !self.is_pending.swap(true, Ordering::AcqRel) {
            self.bell.ring();
        }
    }

    /// Whether a wake stands that was not acknowledged.
    pub(crate) fn is_pending(&self) -> bool {
        self.is_pending.load(Ordering::Acquire)
    }

    /// For pollers that hear each ring once.
    pub(crate) fn acknowledge_edge(&self) {
        self.is_pending.swap(false, Ordering::AcqRel);
    }

    /// For pollers that hear of rings until they are taken.
    pub(crate) fn acknowledge_level(&self) {
        self.bell.empty();
        self.acknowledge_edge();
    }
}
