//! `epoll(7)`: level, edge, oneshot and exclusive, each change one system call at once.
//!
//! The reference for the other backends: `docs/reference/poller-differences.md` says where they differ
//! from this file. The kernel is handed number and sequence, so an event of a descriptor that
//! was closed while a duplicate kept its file alive is recognised as stale.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use pollux_sys::epoll::{EpollEvent, wait, wait_masked, wait_ns};
use rustix::event::epoll;
use rustix::io::Errno;

use crate::backend_base::{BackendBase, base_methods};
use crate::table::{Entry, Key, Table};
use crate::{
    Backend, Caps, Counters, Error, Events, Poller, Readiness, Registration, SignalMask, Token,
    Trigger, Waker,
};

const MILLISECOND: Duration = Duration::from_millis(1);

/// From this timeout on `epoll_wait(2)` is fine enough: of a second the kernel takes the
/// liberty of a millisecond, and of more a thousandth (`select_estimate_accuracy`).
const COARSE_FROM: Duration = Duration::from_secs(1);

/// 24 days and some hours.
const LONGEST_IN_MS: Duration = Duration::from_millis(i32::MAX as u64);

/// A poller on one epoll instance.
pub(crate) struct Epoll {
    epoll: OwnedFd,
    table: Table<()>,
    buffer: Vec<EpollEvent>,
    base: BackendBase,
}

impl Epoll {
    pub(crate) fn open() -> Result<Self, Error> {
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(Error::system("epoll_create1"))?;
        let mut caps = Caps::complete(Backend::Epoll);
        if let Err(refused) = wait_ns(epoll.as_fd(), &mut [EpollEvent::NONE], Duration::ZERO) {
            lose_nanoseconds(&mut caps, &refused);
        }
        let base = BackendBase::new(caps)?;
        let data = epoll::EventData::new_u64(Key::WAKER.0);
        epoll::add(&epoll, base.waker.fd(), data, epoll::EventFlags::IN | epoll::EventFlags::ET)
            .map_err(Error::system("epoll_ctl"))?;
        Ok(Self { epoll, table: Table::new(), buffer: Vec::new(), base })
    }

    fn count_update(&self) {
        self.base.counters.updates_asked.add(1);
        self.base.counters.updates_sent.add(1);
        self.base.counters.system_calls.add(1);
    }

    /// One look, with the cheaper call wherever that keeps the time: its timeout is a number,
    /// not a structure to be fetched, which is worth half an empty look.
    #[inline]
    fn look(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        self.base.counters.system_calls.add(1);
        let epoll = self.epoll.as_fd();
        let buffer = &mut self.buffer[..];
        if let Some(mask) = &self.base.mask {
            return wait_masked(epoll, buffer, timeout, mask);
        }
        let Some(timeout) = timeout else { return wait(epoll, buffer, -1) };
        if self.base.caps.timeout_step > Duration::from_nanos(1) || !needs_nanoseconds(timeout) {
            return wait(epoll, buffer, rounded_up_ms(timeout));
        }
        match wait_ns(epoll, buffer, timeout) {
            // A filter was put over this process since the poller was opened.
            Err(refused) if is_forbidden(&refused) => {
                lose_nanoseconds(&mut self.base.caps, &refused);
                self.base.counters.system_calls.add(1);
                wait(epoll, buffer, rounded_up_ms(timeout))
            }
            outcome => outcome,
        }
    }

    /// Hands what the kernel found to the caller; what no entry answers for is stale.
    fn deliver(&mut self, found: usize, events: &mut Events) {
        for event in &self.buffer[..found] {
            let key = Key(event.data());
            if key == Key::WAKER {
                self.base.waker.acknowledge_edge();
                self.base.counters.wakes.add(1);
                events.set_woken();
                continue;
            }
            match self.table.by_key(key) {
                Some(entry) => {
                    let found = Readiness::from_poll_mask(event.flags());
                    events.push(entry.token, found.visible_to(entry.how.interest));
                }
                None => self.base.counters.stale_events.add(1),
            }
        }
    }
}

impl Poller for Epoll {
    #[inline]
    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, how: Registration) -> Result<(), Error> {
        self.base.caps.check(how)?;
        self.count_update();
        let raw = fd.as_raw_fd();
        let data = epoll::EventData::new_u64(self.table.next_key(raw).0);
        epoll::add(&self.epoll, fd, data, flags(how)).map_err(ctl_error(raw))?;
        // The kernel had forgotten what stood here: its file was closed without delete.
        if self.table.remove(raw).is_some() {
            self.base.counters.closed_without_delete.add(1);
        }
        self.table.insert(raw, Entry { token, how, state: () });
        Ok(())
    }

    #[inline]
    fn modify(&mut self, fd: BorrowedFd<'_>, token: Token, how: Registration) -> Result<(), Error> {
        self.base.caps.check(how)?;
        let raw = fd.as_raw_fd();
        let before = self.table.registered(fd)?.how;
        self.base.caps.check_modify(before, how)?;
        self.count_update();
        let key = self.table.key(raw).expect("looked up above");
        let data = epoll::EventData::new_u64(key.0);
        epoll::modify(&self.epoll, fd, data, flags(how)).map_err(ctl_error(raw))?;
        let entry = self.table.registered(fd)?;
        (entry.token, entry.how) = (token, how);
        Ok(())
    }

    #[inline]
    fn delete(&mut self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        let raw = fd.as_raw_fd();
        self.table.registered(fd)?;
        self.count_update();
        self.table.remove(raw);
        epoll::delete(&self.epoll, fd).map_err(ctl_error(raw))
    }

    /// No call: the last close takes the registration away, and what comes before it is stale.
    #[inline]
    fn forget(&mut self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        self.table.registered(fd)?;
        self.table.remove(fd.as_raw_fd());
        self.base.counters.updates_asked.add(1);
        self.base.counters.updates_merged.add(1);
        Ok(())
    }

    #[inline]
    fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> Result<(), Error> {
        events.clear();
        self.buffer.resize(events.capacity(), EpollEvent::NONE);
        match self.look(timeout) {
            Ok(found) => self.deliver(found, events),
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {
                self.base.counters.interrupts.add(1);
                events.set_interrupted();
            }
            Err(cause) => return Err(Error::System { call: "epoll_wait", cause }),
        }
        self.base.counters.wait_ended(events.len());
        Ok(())
    }

    fn descriptors(&self) -> Vec<RawFd> {
        vec![self.base.waker.fd().as_raw_fd(), self.epoll.as_raw_fd()]
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    base_methods!();
}

/// The errors of `epoll_ctl(2)` that mean something here: EEXIST, ENOENT, EBADF and EPERM have
/// names; ELOOP (nested too deep), ENOSPC (`max_user_watches`) and
/// ENOMEM are passed on.
fn ctl_error(fd: RawFd) -> impl Fn(Errno) -> Error {
    move |errno| match errno {
        Errno::EXIST => Error::AlreadyRegistered { fd },
        Errno::NOENT => Error::NotRegistered { fd },
        Errno::BADF => Error::NotOpen { fd },
        Errno::PERM => Error::NotPollable { fd },
        other => Error::system("epoll_ctl")(other),
    }
}

/// `epoll_pwait2(2)` itself gives neither: the kernel is older than the call (5.11), or a
/// filter or an emulation does not know it.
fn is_forbidden(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSYS | Errno::PERM))
}

fn lose_nanoseconds(caps: &mut Caps, refused: &io::Error) {
    caps.timeout_step = MILLISECOND;
    caps.notes
        .push(format!("no epoll_pwait2 ({refused}): timeouts are rounded up to milliseconds"));
}

/// Whether `timeout` can't be expressed in the milliseconds of `epoll_wait(2)` well enough.
fn needs_nanoseconds(timeout: Duration) -> bool {
    let is_whole = timeout.subsec_nanos().is_multiple_of(MILLISECOND.subsec_nanos());
    timeout < COARSE_FROM && !is_whole || timeout > LONGEST_IN_MS
}

fn rounded_up_ms(timeout: Duration) -> i32 {
    let rest_ms = timeout.subsec_nanos().div_ceil(MILLISECOND.subsec_nanos());
    let rounded_up = timeout.as_secs().saturating_mul(1000).saturating_add(rest_ms.into());
    i32::try_from(rounded_up).unwrap_or(i32::MAX)
}

fn flags(how: Registration) -> epoll::EventFlags {
    let mut flags = epoll::EventFlags::from_bits_retain(how.interest.poll_mask());
    flags.set(epoll::EventFlags::ET, how.trigger == Trigger::Edge);
    flags.set(epoll::EventFlags::ONESHOT, how.trigger == Trigger::Oneshot);
    flags.set(epoll::EventFlags::EXCLUSIVE, how.exclusive);
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_milliseconds_measure_goes_by_milliseconds() {
        for nanoseconds in [1, 999_999, 1_000_001, 999_999_999] {
            assert!(needs_nanoseconds(Duration::from_nanos(nanoseconds)), "{nanoseconds}");
        }
        for nanoseconds in [0, 1_000_000, 999_000_000, 1_000_000_000, 1_000_000_001] {
            assert!(!needs_nanoseconds(Duration::from_nanos(nanoseconds)), "{nanoseconds}");
        }
        assert!(!needs_nanoseconds(LONGEST_IN_MS));
        assert!(needs_nanoseconds(LONGEST_IN_MS + Duration::from_nanos(1)));
    }

    #[test]
    fn milliseconds_are_rounded_up() {
        let ms = |nanoseconds| rounded_up_ms(Duration::from_nanos(nanoseconds));
        assert_eq!((ms(0), ms(1), ms(1_000_000), ms(1_000_001)), (0, 1, 1, 2));
        assert_eq!((ms(999_999_999), ms(1_000_000_001)), (1000, 1001));
        assert_eq!(rounded_up_ms(LONGEST_IN_MS), i32::MAX);
        assert_eq!(rounded_up_ms(Duration::MAX), i32::MAX);
    }
}
