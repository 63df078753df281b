//! The table on the simulated kernel: scenes by name, then random operations.

mod model;
mod recorder;
mod scenes;
mod world;

use std::time::Duration;

use pollux_poller::{Error, Event, Events, Poller, Readiness, Token, Trigger};
use pollux_sim::{SimFd, World};

use self::recorder::{Calls, Recorder};
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

const READ: Due = Due { read: true, ..Due::NOTHING };
const WRITE: Due = Due { write: true, ..Due::NOTHING };

/// Shorthand for readiness bits.
const IN: Readiness = Readiness::READABLE;
const OUT: Readiness = Readiness::WRITABLE;
