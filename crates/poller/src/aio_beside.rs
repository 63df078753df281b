//! What Linux AIO cannot watch, in an epoll beside the context, which also learns of completions: so one
//! call waits for both.
//!
//! Only the AIO backend calls this. It waits and changes; which file is watched here, and what an event
//! means, it does not know.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use pollux_sys::epoll::{EpollEvent, wait, wait_masked, wait_ns};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;

use crate::table::Key;
use crate::{Counters, Error, Readiness, Registration, SignalMask, Trigger};

/// Files that are watched beside an AIO context.
pub(crate) struct Beside {
    epoll: OwnedFd,
    /// The context adds to it with each completion. It is never read: each addition is an edge.
    completions: OwnedFd,
    room: Vec<EpollEvent>,
    found: Vec<(Key, Readiness)>,
}

impl Beside {
    /// Nothing but the completions.
    ///
    /// # Errors
    /// [`Error::System`] where no descriptor or no memory is left.
    pub(crate) fn open(counters: &Counters) -> Result<Self, Error> {
        counters.system_calls.add(3);
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(Error::system("epoll_create1"))?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let completions = eventfd(0, flags).map_err(Error::system("eventfd"))?;
        let (none, edge) = (epoll::EventData::new_u64(Key::IGNORED.0), epoll::EventFlags::ET);
        epoll::add(&epoll, &completions, none, epoll::EventFlags::IN | edge)
            .map_err(Error::system("epoll_ctl"))?;
        Ok(Self { epoll, completions, room: Vec::new(), found: Vec::new() })
    }

    /// What a context notifies of completions.
    pub(crate) fn completions(&self) -> BorrowedFd<'_> {
        self.completions.as_fd()
    }

    pub(crate) fn descriptors(&self) -> [RawFd; 2] {
        [self.epoll.as_raw_fd(), self.completions.as_raw_fd()]
    }

    /// Watches the file of `key`, level-triggered or once.
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
        self.room.resize(most, EpollEvent::NONE);
        let (epoll, room) = (self.epoll.as_fd(), &mut self.room[..]);
        let found = match (mask, timeout) {
            (Some(mask), _) => wait_masked(epoll, room, timeout, mask),
            (None, None) => wait(epoll, room, -1),
            (None, Some(Duration::ZERO)) => wait(epoll, room, 0),
            (None, Some(timeout)) => match wait_ns(epoll, room, timeout) {
                Err(refused) if is_forbidden(&refused) => wait(epoll, room, rounded_up_ms(timeout)),
                outcome => outcome,
            },
        }?;
        let found = self.room[..found].iter();
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
