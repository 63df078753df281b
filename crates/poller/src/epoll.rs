//! `epoll(7)`: level, edge, oneshot and exclusive, each change one system call at once.
//!
//! The reference for the other backends: `docs/poller-differences.md` says where they differ
//! from this file. The kernel is handed number and sequence, so an event of a descriptor that
//! was closed while a duplicate kept its file alive is recognised as stale.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::table::{Entry, Key, Table};
use crate::{
    Backend, Caps, Counters, Error, Events, FilePolicy, Poller, Readiness, Registration, Token,
    Trigger, Waker,
};

/// A poller on one epoll instance.
pub(crate) struct Epoll {
    epoll: OwnedFd,
    table: Table<()>,
    buffer: Vec<epoll::Event>,
    waker: Waker,
    caps: Caps,
    counters: Arc<Counters>,
}

impl Epoll {
    pub(crate) fn open() -> Result<Self, Error> {
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(Error::system("epoll_create1"))?;
        let waker = Waker::new()?;
        let data = epoll::EventData::new_u64(Key::WAKER.0);
        epoll::add(&epoll, waker.fd(), data, epoll::EventFlags::IN | epoll::EventFlags::ET)
            .map_err(Error::system("epoll_ctl"))?;
        Ok(Self {
            epoll,
            table: Table::new(),
            buffer: Vec::new(),
            waker,
            caps: CAPS,
            counters: Arc::default(),
        })
    }

    fn count_update(&self) {
        self.counters.updates_asked.add(1);
        self.counters.updates_sent.add(1);
        self.counters.system_calls.add(1);
    }

    /// Hands what the kernel found to the caller; what no entry answers for is stale.
    fn deliver(&mut self, found: usize, events: &mut Events) {
        for event in &self.buffer[..found] {
            let key = Key(event.data.u64());
            if key == Key::WAKER {
                self.waker.acknowledge_edge();
                self.counters.wakes.add(1);
                events.set_woken();
                continue;
            }
            match self.table.by_key(key) {
                Some(entry) => {
                    let flags = event.flags;
                    let found = Readiness::from_poll_mask(flags.bits());
                    events.push(entry.token, found.visible_to(entry.how.interest));
                }
                None => self.counters.stale_events.add(1),
            }
        }
    }
}

impl Poller for Epoll {
    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, how: Registration) -> Result<(), Error> {
        self.caps.check(how)?;
        self.count_update();
        let raw = fd.as_raw_fd();
        let data = epoll::EventData::new_u64(self.table.next_key(raw).0);
        epoll::add(&self.epoll, fd, data, flags(how)).map_err(ctl_error(raw))?;
        // The kernel had forgotten what stood here: its file was closed without delete.
        if self.table.remove(raw).is_some() {
            self.counters.closed_without_delete.add(1);
        }
        self.table.insert(raw, Entry { token, how, state: () });
        Ok(())
    }

    fn modify(&mut self, fd: BorrowedFd<'_>, token: Token, how: Registration) -> Result<(), Error> {
        self.caps.check(how)?;
        let raw = fd.as_raw_fd();
        let is_exclusive = self.table.registered(fd)?.how.exclusive;
        if is_exclusive || how.exclusive {
            return Err(EXCLUSIVE_MODIFY);
        }
        self.count_update();
        let key = self.table.key(raw).expect("looked up above");
        let data = epoll::EventData::new_u64(key.0);
        epoll::modify(&self.epoll, fd, data, flags(how)).map_err(ctl_error(raw))?;
        let entry = self.table.registered(fd)?;
        (entry.token, entry.how) = (token, how);
        Ok(())
    }

    fn delete(&mut self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        let raw = fd.as_raw_fd();
        self.table.registered(fd)?;
        self.count_update();
        self.table.remove(raw);
        epoll::delete(&self.epoll, fd).map_err(ctl_error(raw))
    }

    /// No call: the last close takes the registration away, and what comes before it is stale.
    fn forget(&mut self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        self.table.registered(fd)?;
        self.table.remove(fd.as_raw_fd());
        self.counters.updates_asked.add(1);
        self.counters.updates_merged.add(1);
        Ok(())
    }

    fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> Result<(), Error> {
        events.clear();
        self.buffer.resize(events.capacity(), NO_EVENT);
        let timeout = timeout.map(timespec);
        self.counters.system_calls.add(1);
        match epoll::wait(&self.epoll, &mut self.buffer[..], timeout.as_ref()) {
            Ok(found) => self.deliver(found, events),
            Err(Errno::INTR) => {
                self.counters.interrupts.add(1);
                events.set_interrupted();
            }
            Err(errno) => return Err(Error::system("epoll_pwait2")(errno)),
        }
        self.counters.wait_ended(events.len());
        Ok(())
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }
}

const CAPS: Caps = Caps {
    backend: Backend::Epoll,
    level: true,
    edge: true,
    oneshot: true,
    exclusive: true,
    rdhup: true,
    hangup: true,
    files: FilePolicy::Refused,
    deferred_changes: false,
    holds_files: false,
    fds_max: None,
    notes: Vec::new(),
};

const NO_EVENT: epoll::Event =
    epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };

const EXCLUSIVE_MODIFY: Error = Error::Unsupported {
    backend: Backend::Epoll,
    what: "changing an exclusive registration, or to one (epoll_ctl(2): EINVAL): delete and add",
};

/// The errors of `epoll_ctl(2)` that mean something here: EEXIST, ENOENT and EPERM have names;
/// EBADF (an O_PATH descriptor), ELOOP (nested too deep), ENOSPC (`max_user_watches`) and
/// ENOMEM are passed on.
fn ctl_error(fd: RawFd) -> impl Fn(Errno) -> Error {
    move |errno| match errno {
        Errno::EXIST => Error::AlreadyRegistered { fd },
        Errno::NOENT => Error::NotRegistered { fd },
        Errno::PERM => Error::NotPollable { fd },
        other => Error::system("epoll_ctl")(other),
    }
}

fn timespec(timeout: Duration) -> Timespec {
    Timespec {
        tv_sec: timeout.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: i64::from(timeout.subsec_nanos()),
    }
}

fn flags(how: Registration) -> epoll::EventFlags {
    let mut flags = epoll::EventFlags::from_bits_retain(how.interest.poll_mask());
    flags.set(epoll::EventFlags::ET, how.trigger == Trigger::Edge);
    flags.set(epoll::EventFlags::ONESHOT, how.trigger == Trigger::Oneshot);
    flags.set(epoll::EventFlags::EXCLUSIVE, how.exclusive);
    flags
}
