//! The table on the simulated kernel. This file holds what the tests share.

mod model;
mod random_life;
mod scenes;

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use pollux_poller::{
    Caps, Error, Event, Events, Poller, Readiness, Registration, SignalMask, Token, Trigger, Waker,
};
use pollux_sim::{SimFd, World};

use super::entry::Side;
use super::{Due, FdTable, Watch};
use crate::{Counter, Counters};

const LEVEL: Watch = Watch::Connection(Trigger::Level);
const EDGE: Watch = Watch::Connection(Trigger::Edge);
const ONESHOT: Watch = Watch::Connection(Trigger::Oneshot);
const LISTENER: Watch = Watch::Listener { exclusive: false };
const EXCLUSIVE: Watch = Watch::Listener { exclusive: true };

/// A table over a recorded poller on a simulated kernel.
struct Rig {
    world: World,
    poller: Recorder,
    table: FdTable<SimFd>,
    counters: Counters,
    refused: Vec<(Token, Error)>,
}

impl Rig {
    fn new() -> Self {
        let world = World::new();
        let poller = Recorder::new(world.open());
        let table = FdTable::new(1 << 10);
        Self { world, poller, table, counters: Counters::default(), refused: Vec::new() }
    }

    /// A connection and its peer.
    fn connection(&mut self, watch: Watch) -> (Token, SimFd) {
        let (ours, theirs) = self.world.socketpair();
        (self.table.insert(ours, watch).expect("room"), theirs)
    }

    /// What stands before a wait; the calls that it made.
    fn apply(&mut self) -> Calls {
        let before = self.poller.calls;
        self.table.apply(&mut self.poller, &self.counters, &mut self.refused);
        self.table.check().expect("every invariant holds");
        let after = self.poller.calls;
        Calls {
            adds: after.adds - before.adds,
            modifies: after.modifies - before.modifies,
            deletes: after.deletes - before.deletes,
            forgets: after.forgets - before.forgets,
        }
    }

    /// A look at the kernel, and what the table makes of it.
    fn events(&mut self) -> Vec<(Token, Option<Due>)> {
        let mut events = Events::with_capacity(64);
        self.poller.wait(&mut events, Some(Duration::ZERO)).expect("a look");
        let due = |event: &Event| (event.token, self.table.reported(event.token, event.readiness));
        let seen = events.iter().map(due).collect();
        self.table.check().expect("every invariant holds");
        seen
    }

    fn turn(&mut self) -> Vec<(Token, Option<Due>)> {
        self.apply();
        self.events()
    }

    /// Reads until it would block or the end, as a loop does; how many bytes.
    fn read_all(&mut self, token: Token) -> usize {
        let mut sum = 0;
        loop {
            let fd = self.table.entries[token.slot() as usize].fd.as_ref().expect("live");
            match self.world.read(fd, 1 << 20) {
                Ok(0) => {
                    self.table.read_ended(token);
                    return sum;
                }
                Ok(taken) => sum += taken,
                Err(_) => {
                    self.table.cannot_read(token);
                    return sum;
                }
            }
        }
    }

    fn count(&self, counter: Counter) -> u64 {
        self.counters.value(counter)
    }
}

/// How often each change was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Calls {
    adds: u64,
    modifies: u64,
    deletes: u64,
    forgets: u64,
}

impl Calls {
    fn updates(self) -> u64 {
        self.adds + self.modifies + self.deletes
    }
}

/// A poller that records each registration and passes it on.
struct Recorder {
    inner: Box<dyn Poller>,
    registered: BTreeMap<RawFd, (Token, Registration)>,
    calls: Calls,
}

impl Recorder {
    fn new(inner: Box<dyn Poller>) -> Self {
        Self { inner, registered: BTreeMap::new(), calls: Calls::default() }
    }
}

impl Poller for Recorder {
    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, how: Registration) -> Result<(), Error> {
        self.calls.adds += 1;
        self.inner.add(fd, token, how)?;
        let before = self.registered.insert(fd.as_raw_fd(), (token, how));
        assert_eq!(before, None, "added twice");
        Ok(())
    }

    fn modify(&mut self, fd: BorrowedFd<'_>, token: Token, how: Registration) -> Result<(), Error> {
        self.calls.modifies += 1;
        self.inner.modify(fd, token, how)?;
        self.registered.insert(fd.as_raw_fd(), (token, how)).expect("added before");
        Ok(())
    }

    fn delete(&mut self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        self.calls.deletes += 1;
        self.inner.delete(fd)?;
        self.registered.remove(&fd.as_raw_fd()).expect("added before");
        Ok(())
    }

    fn forget(&mut self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        self.calls.forgets += 1;
        self.inner.forget(fd)?;
        self.registered.remove(&fd.as_raw_fd()).expect("added before");
        Ok(())
    }

    fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> Result<(), Error> {
        self.inner.wait(events, timeout)
    }

    fn set_signal_mask(&mut self, mask: Option<SignalMask>) {
        self.inner.set_signal_mask(mask);
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }

    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn counters(&self) -> &Arc<pollux_poller::Counters> {
        self.inner.counters()
    }
}

const READ: Due = Due { read: true, ..Due::NOTHING };
const WRITE: Due = Due { write: true, ..Due::NOTHING };

/// Shorthand for readiness bits.
const IN: Readiness = Readiness::READABLE;
const OUT: Readiness = Readiness::WRITABLE;
