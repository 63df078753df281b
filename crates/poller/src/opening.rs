//! Opens the chosen mechanism: which backend that is stands in the table of `mechanism.rs`.
//!
//! What is opened serves the process that opened it, and refuses a child of `fork(2)`: a child shares the
//! epoll instance and the eventfd of its parent. Its changes would be the parent's, and a wait would take the
//! parent's events; AIO and io_uring refuse it in words of their own, select and poll would keep using a copy.
//! Here all of them refuse alike (`docs/engine-internals.md`).

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use pollux_sys::process::ForkMark;

use crate::aio::AioPool;
use crate::epoll_beside::Release;
use crate::mechanism::mechanisms;
use crate::{
    Caps, Counters, Error, Events, Expected, Mechanism, Poller, Registration, SignalMask, Threads,
    Token, Waker,
};

/// What a backend is opened for.
struct Opening<'a> {
    threads: Threads,
    release: Release,
    expected: Expected,
    contexts: Option<&'a Arc<AioPool>>,
}

/// The constructor of each backend, out of the table.
macro_rules! openers {
    ($(
        $(#[$of_backend:meta])*
        $Backend:ident is $Type:ident in $module:ident, needs $Facility:ident, keeps $Keeps:ident,
        waits by $calls:expr,
        opens |$how:ident| $open:expr => {$(
            $(#[$of_mechanism:meta])*
            $Name:ident = $name:literal, $Trigger:ident, $about:literal;
        )+}
    )+) => {
        $(use crate::$module::$Type;)+

        fn open(mechanism: Mechanism, how: &Opening<'_>) -> Result<Box<dyn Poller + Send>, Error> {
            Ok(match mechanism {
                $($(Mechanism::$Name)|+ => {
                    let $how = how;
                    Box::new(Owned::new($open?)?)
                })+
            })
        }
    };
}

mechanisms!(openers);

impl Mechanism {
    /// Opens a poller on this mechanism, owned by the calling thread.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the reason where the kernel forbids it.
    pub fn open(self) -> Result<Box<dyn Poller>, Error> {
        self.open_for(Threads::One).map(|poller| poller as Box<dyn Poller>)
    }

    /// Opens a poller that may be handed from thread to thread, where `threads` says how it is used.
    ///
    /// # Errors
    /// As [`Mechanism::open`].
    pub fn open_for(self, threads: Threads) -> Result<Box<dyn Poller + Send>, Error> {
        let release = Release::Later;
        let expected = Expected::Many;
        open(self, &Opening { threads, release, expected, contexts: None })
    }

    /// As [`Mechanism::open_for`], to stand in for the epoll of a program that was not written for it: a listener or
    /// a pipe that is deleted is let go of at once, so that nobody connects to it, or writes to it, once it is closed.
    /// On AIO these are therefore watched by an epoll beside the context, which would let go of them a tick of the
    /// kernel's clock later, and on io_uring listeners that are not exclusive, which a ring holds some milliseconds
    /// longer than a process that is killed; all else is polled by requests. The context of AIO is one of `contexts`
    /// and goes back there.
    ///
    /// # Errors
    /// As [`Mechanism::open`].
    pub fn open_in_place_of_epoll(
        self,
        threads: Threads,
        expected: Expected,
        contexts: &Arc<AioPool>,
    ) -> Result<Box<dyn Poller + Send>, Error> {
        let release = Release::AtOnce;
        let contexts = Some(contexts);
        open(self, &Opening { threads, release, expected, contexts })
    }
}

/// A poller of the process that opened it.
struct Owned<P> {
    poller: P,
    mark: ForkMark,
}

impl<P: Poller> Owned<P> {
    fn new(poller: P) -> Result<Self, Error> {
        let mark = ForkMark::new().map_err(|cause| Error::System { call: "mmap", cause })?;
        Ok(Self { poller, mark })
    }

    /// The poller, refused in a child of its process.
    fn poller(&mut self) -> Result<&mut P, Error> {
        if self.mark.is_here() { Ok(&mut self.poller) } else { Err(Error::Inherited) }
    }
}

impl<P: Poller> Poller for Owned<P> {
    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, how: Registration) -> Result<(), Error> {
        let poller = self.poller()?;
        let raw = fd.as_raw_fd();
        if raw < 0 {
            return Err(Error::NotOpen { fd: raw });
        }
        poller.add(fd, token, how)
    }

    fn modify(&mut self, fd: BorrowedFd<'_>, token: Token, how: Registration) -> Result<(), Error> {
        self.poller()?.modify(fd, token, how)
    }

    fn delete(&mut self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        self.poller()?.delete(fd)
    }

    fn forget(&mut self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        self.poller()?.forget(fd)
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.poller()?.flush()
    }

    fn descriptors(&self) -> Vec<RawFd> {
        self.poller.descriptors()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.poller.fd()
    }

    fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> Result<(), Error> {
        let poller = self.poller().inspect_err(|_| events.clear())?;
        poller.wait(events, timeout)
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
