//! Ends a wait from another thread or from a signal handler: one flag in front of an eventfd that the
//! backend watches, so that a thousand wakes before the next wait write once.
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
//! so nothing of the crate but [`Error`] may be named here.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering};
use rustix::event::{EventfdFlags, eventfd};

use crate::Error;

/// Ends the current or the next wait of the poller that made it.
///
/// Any thread may call [`Waker::wake`], and so may a signal handler: it takes no lock,
/// allocates nothing and makes at most one `write(2)`.
///
/// ```
/// use pollux_poller::{Events, Mechanism};
///
/// let mut poller = Mechanism::Epoll.open()?;
/// let waker = poller.waker();
/// let thread = std::thread::spawn(move || waker.wake());
/// let mut events = Events::with_capacity(64);
/// poller.wait(&mut events, None)?;
/// assert!(events.is_woken() && events.is_empty());
/// thread.join().expect("it does not panic");
/// # Ok::<(), pollux_poller::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Waker(Arc<WakeFlag<OwnedFd>>);

impl Waker {
    /// A waker with its eventfd.
    ///
    /// # Errors
    /// [`Error::System`] when no descriptor is left.
    pub fn new() -> Result<Self, Error> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let eventfd = eventfd(0, flags)
            .map_err(|errno| Error::System { call: "eventfd", cause: errno.into() })?;
        Ok(Self(Arc::new(WakeFlag::new(eventfd))))
    }

    /// Ends the current wait, or the next one if none is under way. Wakes are merged, not
    /// counted.
    pub fn wake(&self) {
        self.0.wake();
    }

    /// The eventfd, for loops that watch it by a mechanism of their own. It becomes readable
    /// once for all wakes until they are acknowledged.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd().as_fd()
    }

    /// Whether a wake stands that was not acknowledged.
    pub fn is_pending(&self) -> bool {
        self.0.is_pending()
    }

    /// Takes the wake-up, for backends that report each write once (edge).
    pub fn acknowledge_edge(&self) {
        self.0.acknowledge_edge();
    }

    /// Takes the wake-up, for backends that report a readable eventfd again and again (level).
    pub fn acknowledge_level(&self) {
        self.0.acknowledge_level();
    }
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

/// What ends the wait of a sleeping poller: an eventfd, or its model.
pub(crate) trait WakeFd {
    /// Makes it readable. Signals that were not taken yet are one.
    fn signal(&self);
    /// Takes all signals at once, reported or not.
    fn drain(&self);
}

impl WakeFd for OwnedFd {
    fn signal(&self) {
        // The write fails only when the counter is full, and then the eventfd is readable.
        let _ = rustix::io::write(self, &1u64.to_ne_bytes());
    }

    fn drain(&self) {
        // EAGAIN means that nothing was written since, which is as good as empty.
        let _ = rustix::io::read(self, &mut [0u8; 8]);
    }
}
