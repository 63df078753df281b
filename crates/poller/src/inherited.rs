//! A poller serves the process that opened it, and refuses a child of `fork(2)`.
//!
//! A child shares the epoll instance and the eventfd of its parent. Its changes would be the parent's, and a wait
//! would take the parent's events; AIO and io_uring refuse it in words of their own, select and poll would keep
//! using a copy. Here all of them refuse alike. `docs/fork.md` has the reasons. [`crate::Mechanism::open`] puts
//! [`Owned`] around what it opens.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use pollux_sys::process::ForkMark;

use crate::{Caps, Counters, Error, Events, Poller, Registration, SignalMask, Token, Waker};

/// A poller of the process that opened it.
pub(crate) struct Owned<P> {
    poller: P,
    mark: ForkMark,
}

impl<P: Poller> Owned<P> {
    pub(crate) fn new(poller: P) -> Result<Self, Error> {
        let mark = ForkMark::new().map_err(|cause| Error::System { call: "mmap", cause })?;
        Ok(Self { poller, mark })
    }
}

impl<P: Poller> Poller for Owned<P> {
    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, how: Registration) -> Result<(), Error> {
        if !self.mark.is_here() {
            return Err(Error::Inherited);
        }
        let raw = fd.as_raw_fd();
        if raw < 0 {
            return Err(Error::NotOpen { fd: raw });
        }
        self.poller.add(fd, token, how)
    }

    fn modify(&mut self, fd: BorrowedFd<'_>, token: Token, how: Registration) -> Result<(), Error> {
        if !self.mark.is_here() {
            return Err(Error::Inherited);
        }
        self.poller.modify(fd, token, how)
    }

    fn delete(&mut self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        if !self.mark.is_here() {
            return Err(Error::Inherited);
        }
        self.poller.delete(fd)
    }

    fn forget(&mut self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        if !self.mark.is_here() {
            return Err(Error::Inherited);
        }
        self.poller.forget(fd)
    }

    fn flush(&mut self) -> Result<(), Error> {
        if !self.mark.is_here() {
            return Err(Error::Inherited);
        }
        self.poller.flush()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.poller.fd()
    }

    fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> Result<(), Error> {
        if !self.mark.is_here() {
            events.clear();
            return Err(Error::Inherited);
        }
        self.poller.wait(events, timeout)
    }

    fn set_signal_mask(&mut self, mask: Option<SignalMask>) {
        self.poller.set_signal_mask(mask);
    }

    fn waker(&self) -> Waker {
        self.poller.waker()
    }

    fn caps(&self) -> &Caps {
        self.poller.caps()
    }

    fn counters(&self) -> &Arc<Counters> {
        self.poller.counters()
    }
}
