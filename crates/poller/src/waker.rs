//! Ends a wait from another thread or from a signal handler.
//!
//! An eventfd that the backend watches, behind the flag of `wake_flag.rs`, which is the whole
//! protocol. Backends acknowledge a wake when it is reported, as their trigger needs it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

use crate::Error;
use crate::wake_flag::{WakeFd, WakeFlag};

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
        let eventfd = eventfd(0, flags).map_err(Error::system("eventfd"))?;
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
