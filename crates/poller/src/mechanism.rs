//! The names under which mechanisms are chosen, and what opens the chosen one.
//!
//! The same names stand on every command line, in job files, results and charts. A mechanism is
//! a backend together with the trigger that it is named for.
//!
//! What is opened serves the process that opened it, and refuses a child of `fork(2)`: a child shares the
//! epoll instance and the eventfd of its parent. Its changes would be the parent's, and a wait would take the
//! parent's events; AIO and io_uring refuse it in words of their own, select and poll would keep using a copy.
//! Here all of them refuse alike (`docs/engine-internals.md`).

use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use pollux_sys::process::ForkMark;

use crate::aio::{Aio, AioPool};
use crate::beside::Release;
use crate::epoll::Epoll;
use crate::poll::Poll;
use crate::select::Select;
use crate::uring_poll::UringPoll;
use crate::{
    Backend, Caps, Counters, Error, Events, Expected, Poller, Registration, SignalMask, Threads,
    Token, Trigger, Waker,
};

/// A backend with the trigger that it is compared under.
///
/// ```
/// use pollux_poller::{Mechanism, Trigger};
///
/// let mechanism: Mechanism = "epoll-et".parse()?;
/// assert_eq!(mechanism.trigger(), Trigger::Edge);
/// let poller = mechanism.open()?;
/// assert!(poller.caps().serves(mechanism.trigger()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Mechanism {
    /// `select`: level.
    Select,
    /// `poll`: level.
    Poll,
    /// `aio`: Linux AIO poll, level by arming again. Dropping a poller, and each doubling of the most
    /// descriptors that one watched, takes 30 to 40 ms: `io_destroy(2)` waits for a grace period (RCU).
    Aio,
    /// `epoll`: level.
    Epoll,
    /// `epoll-et`: edge.
    EpollEt,
    /// `epoll-oneshot`: oneshot, modified after each event.
    EpollOneshot,
    /// `uring-poll`: io_uring multishot poll, edge.
    UringPoll,
}

impl Mechanism {
    /// Every mechanism, in the order in which tables show them.
    pub const ALL: [Self; 7] = [
        Self::Select,
        Self::Poll,
        Self::Aio,
        Self::Epoll,
        Self::EpollEt,
        Self::EpollOneshot,
        Self::UringPoll,
    ];

    /// One for each kernel interface, with the trigger that it has by itself.
    pub const PLAIN: [Self; 5] =
        [Self::Select, Self::Poll, Self::Aio, Self::Epoll, Self::UringPoll];

    /// The name on command lines and in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Select => "select",
            Self::Poll => "poll",
            Self::Aio => "aio",
            Self::Epoll => "epoll",
            Self::EpollEt => "epoll-et",
            Self::EpollOneshot => "epoll-oneshot",
            Self::UringPoll => "uring-poll",
        }
    }

    /// The kernel interface.
    #[must_use]
    pub const fn backend(self) -> Backend {
        match self {
            Self::Select => Backend::Select,
            Self::Poll => Backend::Poll,
            Self::Aio => Backend::Aio,
            Self::Epoll | Self::EpollEt | Self::EpollOneshot => Backend::Epoll,
            Self::UringPoll => Backend::Uring,
        }
    }

    /// The trigger to register with.
    #[must_use]
    pub const fn trigger(self) -> Trigger {
        match self {
            Self::Select | Self::Poll | Self::Aio | Self::Epoll => Trigger::Level,
            Self::EpollEt | Self::UringPoll => Trigger::Edge,
            Self::EpollOneshot => Trigger::Oneshot,
        }
    }

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
        self.open_with(threads, Release::Later, Expected::Many, None)
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
        self.open_with(threads, Release::AtOnce, expected, Some(contexts))
    }

    fn open_with(
        self,
        threads: Threads,
        release: Release,
        expected: Expected,
        contexts: Option<&Arc<AioPool>>,
    ) -> Result<Box<dyn Poller + Send>, Error> {
        Ok(match self {
            Self::Select => Box::new(Owned::new(Select::open()?)?),
            Self::Poll => Box::new(Owned::new(Poll::open()?)?),
            Self::Aio => Box::new(Owned::new(Aio::open(release, contexts)?)?),
            Self::Epoll | Self::EpollEt | Self::EpollOneshot => {
                Box::new(Owned::new(Epoll::open()?)?)
            }
            Self::UringPoll => Box::new(Owned::new(UringPoll::open(threads, expected, release)?)?),
        })
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Mechanism {
    type Err = UnknownMechanism;

    fn from_str(name: &str) -> Result<Self, UnknownMechanism> {
        let found = Self::ALL.into_iter().find(|mechanism| mechanism.name() == name);
        found.ok_or_else(|| UnknownMechanism { name: name.to_owned() })
    }
}

/// No mechanism has this name.
#[derive(Clone, PartialEq, Eq)]
pub struct UnknownMechanism {
    name: String,
}

impl fmt::Display for UnknownMechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<&str> = Mechanism::ALL.iter().map(|known| known.name()).collect();
        write!(f, "unknown mechanism \"{}\"; expected one of {}", self.name, known.join(", "))?;
        match self.name.as_str() {
            "uring" => f.write_str(
                "; uring is not a poller: it is Driver::Completion of pollux-engine, which runs sessions",
            ),
            _ => Ok(()),
        }
    }
}

/// As it is displayed: a `main` that returns it prints this.
impl fmt::Debug for UnknownMechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for UnknownMechanism {}

impl From<UnknownMechanism> for std::io::Error {
    fn from(error: UnknownMechanism) -> Self {
        Self::new(std::io::ErrorKind::InvalidInput, error)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_finds_its_mechanism() {
        for mechanism in Mechanism::ALL {
            assert_eq!(mechanism.name().parse(), Ok(mechanism));
        }
    }

    #[test]
    fn uring_is_said_to_be_a_driver_also_where_a_main_returns_the_error() {
        let error = "uring".parse::<Mechanism>().expect_err("no poller of that name");
        let printed = format!("{error:?}");
        assert!(printed.starts_with("unknown mechanism \"uring\"; expected one of select, "));
        assert!(
            printed.ends_with("it is Driver::Completion of pollux-engine, which runs sessions")
        );
        let other = "urin".parse::<Mechanism>().expect_err("no poller of that name");
        assert!(!other.to_string().contains("Driver"), "{other}");
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = "kqueue".parse::<Mechanism>().expect_err("no such mechanism here");
        assert!(error.to_string().contains("epoll-oneshot"), "{error}");
    }
}
