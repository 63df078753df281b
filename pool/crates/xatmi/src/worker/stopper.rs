//! The end of a worker that any thread of its program asks for.
//!
//! Made by the registry. It sets a flag that the loop looks at with the link, and ends the loop's wait.

use std::fmt;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

use super::queue_poller::QueuePoller;
use crate::error::Error;

/// Ends a worker after the request at hand, at once where there is none; its manager starts another in its place.
pub struct Stopper {
    asked: Arc<AtomicBool>,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl Stopper {
    pub(super) fn new(asked: Arc<AtomicBool>, wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { asked, wake: Box::new(wake) }
    }

    /// With an eventfd that the poller watches, for as long as this lives.
    pub(super) fn by_descriptor(
        asked: Arc<AtomicBool>,
        poller: &mut QueuePoller,
    ) -> Result<Self, Error> {
        let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let stop = made.map_err(|errno| Error::os("eventfd", errno.into()))?;
        poller.watch_stop(stop.as_fd())?;
        Ok(Self::new(asked, move || {
            // Full only where it was written to already.
            let _ = rustix::io::write(&stop, &1_u64.to_ne_bytes());
        }))
    }

    /// Ends the worker. From any thread.
    pub fn stop(&self) {
        self.asked.store(true, Ordering::Release);
        (self.wake)();
    }
}

impl fmt::Debug for Stopper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stopper").field("asked", &self.asked).finish_non_exhaustive()
    }
}
