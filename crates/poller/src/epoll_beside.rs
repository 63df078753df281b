//! Files that poll requests cannot watch, or would hold open too long, in an epoll beside the requests.
//!
//! The backends for AIO and io_uring call this: with AIO the epoll also learns of completions, so that one call waits
//! for both; a ring polls the epoll. It waits and changes; which file is watched here, and what an event means, it
//! does not know.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use pollux_sys::epoll::{EpollEvent, wait, wait_masked, wait_ns};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;

use crate::table::Key;
use crate::{Counters, Error, Readiness, Registration, SignalMask, Trigger};

/// By what listeners and pipes are watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Release {
    /// By poll requests, as other files are, which hold them. AIO lets go of a file whose poll was cancelled a tick of
    /// the clock later, a ring of those that nobody cancelled (a process that is killed) in a thread of its own: until
    /// then a closed listener takes connections, and a pipe what is written to it, which are lost.
    Later,
    /// By the epoll beside them, which holds no file: listeners, and with AIO pipes.
    AtOnce,
}

/// Files that are watched beside poll requests.
pub(crate) struct Beside {
    epoll: OwnedFd,
    buffer: Vec<EpollEvent>,
    found: Vec<(Key, Readiness)>,
}

impl Beside {
    /// One that watches nothing.
    ///
    /// # Errors
    /// [`Error::System`] where no descriptor or no memory is left.
    pub(crate) fn open(counters: &Counters) -> Result<Self, Error> {
        counters.system_calls.add(1);
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(Error::system("epoll_create1"))?;
        Ok(Self { epoll, buffer: Vec::new(), found: Vec::new() })
    }

    /// An eventfd that notifies of completions, which have the key of no registration. It is never read: each
    /// addition is an edge.
    ///
    /// # Errors
    /// As [`Beside::open`].
    pub(crate) fn completions(&self, counters: &Counters) -> Result<OwnedFd, Error> {
        counters.system_calls.add(1);
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let completions = eventfd(0, flags).map_err(Error::system("eventfd"))?;
        self.watch_completions(&completions, counters)?;
        Ok(completions)
    }

    /// Has that eventfd notify here.
    ///
    /// # Errors
    /// As [`Beside::open`].
    pub(crate) fn watch_completions(
        &self,
        completions: &OwnedFd,
        counters: &Counters,
    ) -> Result<(), Error> {
        counters.system_calls.add(1);
        let none = epoll::EventData::new_u64(Key::IGNORED.0);
        let edge = epoll::EventFlags::ET;
        epoll::add(&self.epoll, completions, none, epoll::EventFlags::IN | edge)
            .map_err(Error::system("epoll_ctl"))
    }

    /// The epoll: readable while it has an event.
    pub(crate) fn fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// Watches the file of `key`.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    pub(crate) fn add(
        &self,
        key: Key,
        how: Registration,
        counters: &Counters,
    ) -> Result<(), Error> {
        counters.system_calls.add(1);
        let mut flags = epoll::EventFlags::from_bits_retain(how.interest.poll_mask());
        flags.set(epoll::EventFlags::ONESHOT, how.trigger == Trigger::Oneshot);
        flags.set(epoll::EventFlags::ET, how.trigger == Trigger::Edge);
        pollux_sys::epoll::add(self.epoll.as_fd(), key.fd(), flags.bits(), key.0)
            .map_err(|cause| Error::System { call: "epoll_ctl", cause })
    }

    /// Ends the watch of `fd`. Where it was closed the kernel has done so.
    pub(crate) fn delete(&self, fd: RawFd, counters: &Counters) {
        counters.system_calls.add(1);
        // ENOENT and EBADF: closed, or another file by now.
        let _ = pollux_sys::epoll::delete(self.epoll.as_fd(), fd);
    }

    /// Waits at most `timeout` for `most` files (at least one), or for completions, which have the key of no
    /// registration.
    ///
    /// # Errors
    /// EINTR after a signal.
    pub(crate) fn wait(
        &mut self,
        most: usize,
        timeout: Option<Duration>,
        mask: Option<&SignalMask>,
    ) -> io::Result<&[(Key, Readiness)]> {
        self.buffer.resize(most, EpollEvent::NONE);
        let epoll = self.epoll.as_fd();
        let buffer = &mut self.buffer[..];
        let found = match (mask, timeout) {
            (Some(mask), _) => wait_masked(epoll, buffer, timeout, mask),
            (None, None) => wait(epoll, buffer, -1),
            (None, Some(Duration::ZERO)) => wait(epoll, buffer, 0),
            (None, Some(timeout)) => match wait_ns(epoll, buffer, timeout) {
                Err(refused) if is_forbidden(&refused) => {
                    wait(epoll, buffer, rounded_up_ms(timeout))
                }
                outcome => outcome,
            },
        }?;
        let found = self.buffer[..found].iter();
        self.found.clear();
        self.found.extend(
            found.map(|event| (Key(event.data()), Readiness::from_poll_mask(event.flags()))),
        );
        Ok(&self.found)
    }
}

/// The kernel is older than the call (5.11 for `epoll_pwait2(2)`), or a filter does not allow it.
pub(crate) fn is_forbidden(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSYS | Errno::PERM))
}

fn rounded_up_ms(timeout: Duration) -> i32 {
    i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
}
