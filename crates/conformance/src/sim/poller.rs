//! The poller on the simulated kernel: [`pollux_poller::Poller`] with a virtual clock.
//!
//! Everything towards the caller (tokens, stale events, refusals, counters) is done as the
//! epoll backend does it, which is the reference. A wait runs what the script has for now, looks
//! for events, and moves the clock to whatever comes next; only where nothing can ever come but
//! a waker of another thread does it block.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::sim::World;
use crate::sim::kernel::PollerId;
use pollux_poller::{
    Backend, Caps, Counters, Error, Events, Poller, Registration, SignalMask, Token, Waker,
};

/// How long a wait without timeout and script waits for a waker before it calls it a deadlock:
/// far longer than a test on a busy machine needs, short enough for a person to wait for.
const DEADLOCK_AFTER: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

/// The most scripted steps that one wait takes: an action that schedules itself anew for the
/// same moment would otherwise never end.
pub(crate) const STEPS_MAX: usize = 1 << 20;

/// Names one registration towards the simulated kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    fd: RawFd,
    /// Which registration of that number it is.
    sequence: u64,
}

/// What the poller knows of a descriptor.
struct Entry {
    key: Key,
    token: Token,
    how: Registration,
}

/// Registrations by descriptor number.
#[derive(Default)]
struct Table {
    entries: HashMap<RawFd, Entry>,
    added: u64,
}

impl Table {
    fn next_key(&self, fd: RawFd) -> Key {
        Key { fd, sequence: self.added }
    }

    /// Whether the number had an entry, which is gone now.
    fn insert(&mut self, entry: Entry) -> bool {
        self.added += 1;
        self.entries.insert(entry.key.fd, entry).is_some()
    }

    fn registered(&mut self, fd: RawFd) -> Result<&mut Entry, Error> {
        self.entries.get_mut(&fd).ok_or(Error::NotRegistered { fd })
    }

    /// None for one of an earlier use of the number.
    fn by_key(&self, key: Key) -> Option<&Entry> {
        self.entries.get(&key.fd).filter(|entry| entry.key == key)
    }
}

pub(crate) struct SimPoller {
    world: World,
    id: PollerId,
    table: Table,
    waker: Waker,
    caps: Caps,
    counters: Arc<Counters>,
    overflows_seen: u64,
}

impl SimPoller {
    pub(crate) fn open(world: World) -> Result<Self, Error> {
        let waker = Waker::new()?;
        let id = world.state().kernel.open_poller();
        let overflows_seen = world.state().overflows;
        let table = Table::default();
        let counters = Arc::default();
        Ok(Self {
            world,
            id,
            table,
            waker,
            caps: Caps::complete(BACKEND),
            counters,
            overflows_seen,
        })
    }

    fn count_update(&self) {
        self.counters.updates_asked.add(1);
        self.counters.updates_sent.add(1);
        self.counters.system_calls.add(1);
    }

    fn count_overflows(&mut self) {
        let overflows = self.world.state().overflows;
        self.counters.overflows.add(overflows - self.overflows_seen);
        self.overflows_seen = overflows;
    }

    /// Takes what is ready now; says whether that ends the wait.
    fn harvest(&mut self, events: &mut Events) -> bool {
        let mut is_over = self.waker.is_pending();
        if is_over {
            self.take_wake(events);
        }
        let found = self.world.state().kernel.harvest(self.id, events.capacity());
        for (key, readiness) in found {
            is_over = true;
            match self.table.by_key(key) {
                Some(entry) => events.push(entry.token, readiness),
                None => self.counters.stale_events.add(1),
            }
        }
        is_over
    }

    fn take_wake(&self, events: &mut Events) {
        self.waker.acknowledge_level();
        self.counters.wakes.add(1);
        events.set_woken();
    }

    fn interrupt(&self, events: &mut Events) {
        self.counters.interrupts.add(1);
        events.set_interrupted();
    }

    /// Lives through the time until something is ready or `deadline`.
    fn sleep(&mut self, events: &mut Events, deadline: Option<Duration>) {
        for _ in 0..STEPS_MAX {
            self.world.run_due();
            if self.harvest(events) || deadline.is_some_and(|end| end <= self.world.now()) {
                return;
            }
            if self.world.state().take_interrupt() {
                return self.interrupt(events);
            }
            let next = self.world.state().next_moment(deadline);
            let Some(moment) = next else { return self.block(events) };
            self.world.state().pass_to(moment, self.id);
        }
        panic!("the script took {STEPS_MAX} steps within one wait: does an action repeat itself?");
    }

    /// Nothing is scripted and no timeout runs: only a waker can end this wait.
    fn block(&self, events: &mut Events) {
        let mut fds = [PollFd::from_borrowed_fd(self.waker.fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&DEADLOCK_AFTER)) {
            Ok(0) => panic!(
                "simulated deadlock: a wait without timeout, nothing scripted, and no waker \
                 used within {} s",
                DEADLOCK_AFTER.tv_sec
            ),
            Ok(_) => self.take_wake(events),
            Err(Errno::INTR) => self.interrupt(events),
            Err(errno) => panic!("poll(2) of the waker's eventfd failed: {errno}"),
        }
    }
}

impl Poller for SimPoller {
    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, how: Registration) -> Result<(), Error> {
        self.caps.check(how)?;
        self.count_update();
        let raw = fd.as_raw_fd();
        if let Some(errno) = self.world.state().take_refusal() {
            return Err(ctl_error(raw)(errno));
        }
        let key = self.table.next_key(raw);
        self.world.state().kernel.add(self.id, raw, key, how).map_err(ctl_error(raw))?;
        if self.table.insert(Entry { key, token, how }) {
            self.counters.closed_without_delete.add(1);
        }
        Ok(())
    }

    fn modify(&mut self, fd: BorrowedFd<'_>, token: Token, how: Registration) -> Result<(), Error> {
        self.caps.check(how)?;
        let raw = fd.as_raw_fd();
        let Entry { key, how: before, .. } = *self.table.registered(raw)?;
        self.caps.check_modify(before, how)?;
        self.count_update();
        self.world.state().kernel.modify(self.id, raw, key, how).map_err(ctl_error(raw))?;
        let entry = self.table.registered(raw)?;
        (entry.token, entry.how) = (token, how);
        Ok(())
    }

    fn delete(&mut self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        let raw = fd.as_raw_fd();
        self.table.registered(raw)?;
        self.count_update();
        self.table.entries.remove(&raw);
        self.world.state().kernel.delete(self.id, raw).map_err(ctl_error(raw))
    }

    fn forget(&mut self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        self.table.registered(fd.as_raw_fd())?;
        self.table.entries.remove(&fd.as_raw_fd());
        self.counters.updates_asked.add(1);
        self.counters.updates_merged.add(1);
        Ok(())
    }

    fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> Result<(), Error> {
        events.clear();
        self.counters.system_calls.add(1);
        self.count_overflows();
        if let Some(errno) = self.world.state().take_wait_error() {
            return Err(Error::System { call: "epoll_wait", cause: errno.into() });
        }
        let deadline = timeout.map(|timeout| self.world.now().saturating_add(timeout));
        self.sleep(events, deadline);
        self.world.state().kernel.set_waiting(self.id, false);
        self.counters.wait_ended(events.len());
        Ok(())
    }

    fn set_signal_mask(&mut self, mask: Option<SignalMask>) {
        // No signal ever comes there.
        let _ = mask;
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

impl Drop for SimPoller {
    fn drop(&mut self) {
        self.world.state().kernel.close_poller(self.id);
    }
}

/// The simulated backend, in capabilities, errors and reports.
pub const BACKEND: Backend = Backend::Other("sim");

/// The errors of the simulated `epoll_ctl(2)`, and those that a fault script asks for.
fn ctl_error(fd: RawFd) -> impl Fn(Errno) -> Error {
    move |errno| match errno {
        Errno::EXIST => Error::AlreadyRegistered { fd },
        Errno::NOENT => Error::NotRegistered { fd },
        Errno::PERM => Error::NotPollable { fd },
        other => Error::System { call: "epoll_ctl", cause: other.into() },
    }
}
