//! What the table promises, on the simulated kernel, one scene each; what these and the random tests share.

mod invariants;
mod model;
mod on_the_kernel;
mod random_life;

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use pollux_conformance::sim::{Errno, ScriptedFault, SimFd, World};
use pollux_poller::{
    Caps, Error, Event, Events, Interest, Poller, Readiness, Registration, SignalMask, Token,
    Trigger, Waker,
};

use super::entry::Direction;
use super::{FdTable, Ready, Watch};
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
    fn events(&mut self) -> Vec<(Token, Option<Ready>)> {
        let mut events = Events::with_capacity(64);
        self.poller.wait(&mut events, Some(Duration::ZERO)).expect("a look");
        let due = |event: &Event| (event.token, self.table.reported(event.token, event.readiness));
        let seen = events.iter().map(due).collect();
        self.table.check().expect("every invariant holds");
        seen
    }

    fn turn(&mut self) -> Vec<(Token, Option<Ready>)> {
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

const READ: Ready = Ready { read: true, ..Ready::NOTHING };
const WRITE: Ready = Ready { write: true, ..Ready::NOTHING };

/// Shorthand for readiness bits.
const IN: Readiness = Readiness::READABLE;
const OUT: Readiness = Readiness::WRITABLE;

fn adds(count: u64) -> Calls {
    Calls { adds: count, ..Calls::default() }
}

fn modifies(count: u64) -> Calls {
    Calls { modifies: count, ..Calls::default() }
}

fn deletes(count: u64) -> Calls {
    Calls { deletes: count, ..Calls::default() }
}

const NO_CALLS: Calls = Calls { adds: 0, modifies: 0, deletes: 0, forgets: 0 };

/// The registration of the only descriptor.
fn registered(rig: &Rig) -> Option<Registration> {
    assert!(rig.poller.registered.len() <= 1);
    rig.poller.registered.values().next().map(|(_, how)| *how)
}

#[test]
fn wanting_and_stopping_before_the_wait_costs_no_call() {
    let mut rig = Rig::new();
    let (token, _peer) = rig.connection(LEVEL);
    rig.table.want_read(token);
    rig.table.stop_read(token);
    assert_eq!(rig.apply(), NO_CALLS);
    let asked = rig.count(Counter::UpdatesAsked);
    assert_eq!((asked, rig.count(Counter::UpdatesMerged)), (1, 1));
}

#[test]
fn wanting_stopping_and_wanting_again_costs_one_call() {
    let mut rig = Rig::new();
    let (token, _peer) = rig.connection(LEVEL);
    rig.table.want_read(token);
    rig.table.stop_read(token);
    rig.table.want_read(token);
    assert_eq!(rig.apply(), adds(1));
    let counts = [Counter::UpdatesAsked, Counter::UpdatesMerged, Counter::UpdatesSent];
    assert_eq!(counts.map(|counter| rig.count(counter)), [2, 1, 1]);
}

#[test]
fn a_keep_alive_connection_is_registered_once_however_many_requests_come() {
    for watch in [LEVEL, EDGE] {
        let mut rig = Rig::new();
        let (token, peer) = rig.connection(watch);
        rig.table.want_read(token);
        for _ in 0..100 {
            rig.world.write(&peer, 10).expect("room");
            assert_eq!(rig.turn(), [(token, Some(READ))]);
            assert_eq!(rig.read_all(token), 10);
        }
        assert_eq!((rig.poller.calls, rig.count(Counter::UpdatesSent)), (adds(1), 1));
        rig.table.remove(token, &mut rig.poller).expect("the poller lets go").expect("live");
        assert_eq!(rig.poller.calls, Calls { adds: 1, forgets: 1, ..NO_CALLS });
    }
}

#[test]
fn a_late_connect_is_registered_for_both_directions_at_once() {
    let mut rig = Rig::new();
    let (token, _peer) = rig.connection(LEVEL);
    rig.table.want_read(token);
    rig.table.want_write(token);
    assert_eq!(rig.apply(), adds(1));
    assert_eq!(rig.events(), [(token, Some(WRITE))]);
    rig.table.stop_write(token);
    assert_eq!(rig.apply(), modifies(1), "writing rings for as long as there is room");
    assert_eq!(rig.events(), []);
}

#[test]
fn reading_rides_along_with_writing_and_is_not_dropped_for_being_idle() {
    let mut rig = Rig::new();
    let (token, peer) = rig.connection(LEVEL);
    rig.table.want_write(token);
    assert_eq!(rig.apply(), adds(1));
    let both = Interest::READABLE | Interest::RDHUP | Interest::WRITABLE;
    assert_eq!(registered(&rig).map(|how| how.interest), Some(both));
    rig.events();
    rig.table.stop_write(token);
    assert_eq!(rig.apply(), modifies(1));
    rig.table.want_read(token);
    assert_eq!(rig.apply(), NO_CALLS, "it is registered already");
    rig.table.stop_read(token);
    assert_eq!(rig.apply(), NO_CALLS, "taking it back is lazy");
    rig.world.write(&peer, 1).expect("room");
    assert_eq!(rig.events(), [(token, Some(Ready::NOTHING))], "one event in vain");
    assert_eq!(rig.apply(), deletes(1));
    assert_eq!(rig.events(), []);
}

#[test]
fn reading_that_is_ready_and_stopped_does_not_spin() {
    let mut rig = Rig::new();
    let (token, peer) = rig.connection(LEVEL);
    rig.table.want_read(token);
    rig.world.write(&peer, 100).expect("room");
    assert_eq!(rig.turn(), [(token, Some(READ))]);
    rig.table.stop_read(token);
    assert_eq!(rig.apply(), deletes(1));
    rig.table.want_write(token);
    rig.apply();
    let interest = registered(&rig).map(|how| how.interest);
    assert_eq!(interest, Some(Interest::WRITABLE), "what is known ready does not ride");
    rig.table.stop_write(token);
    assert!(rig.table.want_read(token), "known ready: read at once");
}

#[test]
fn an_error_is_reported_once_and_the_descriptor_taken_out_before_the_next_wait() {
    let mut rig = Rig::new();
    let (token, _peer) = rig.connection(LEVEL);
    rig.table.want_read(token);
    rig.table.want_write(token);
    rig.apply();
    let fd = rig.table.entries[0].fd.as_ref().expect("live");
    rig.world.set_error(fd);
    let due = Ready { read: true, write: true, closed: true };
    assert_eq!(rig.events(), [(token, Some(due))]);
    // The consumer is late: the next batch comes first.
    assert_eq!(rig.events(), [(token, Some(Ready::NOTHING))]);
    assert_eq!(rig.apply(), deletes(1));
    assert_eq!(rig.events(), []);
    let left = Ready { read: true, write: true, closed: false };
    assert_eq!(rig.table.ready_without_event(token), left);
    rig.table.want_read(token);
    assert_eq!(rig.apply(), NO_CALLS, "it would be reported without end");
    rig.table.remove(token, &mut rig.poller).expect("nothing to let go");
    assert_eq!(rig.poller.calls.forgets, 0);
}

#[test]
fn an_idle_connection_receives_of_a_hang_up_once() {
    let mut rig = Rig::new();
    let (token, peer) = rig.connection(LEVEL);
    rig.table.want_read(token);
    rig.apply();
    rig.table.stop_read(token);
    rig.world.close(peer);
    assert_eq!(rig.events(), [(token, Some(Ready { closed: true, ..Ready::NOTHING }))]);
    assert_eq!(rig.turn(), []);
}

#[test]
fn a_half_closed_peer_does_not_ring_while_only_writing_is_wanted() {
    let mut rig = Rig::new();
    let (token, peer) = rig.connection(LEVEL);
    rig.table.want_read(token);
    rig.world.shutdown_write(&peer);
    assert_eq!(rig.turn(), [(token, Some(READ))]);
    assert_eq!(rig.read_all(token), 0);
    rig.table.want_write(token);
    rig.table.cannot_write(token);
    rig.apply();
    assert_eq!(registered(&rig).map(|how| how.interest), Some(Interest::WRITABLE));
}

#[test]
fn an_edge_registers_each_direction_once_and_leaves_what_is_not_drained_to_the_loop() {
    let mut rig = Rig::new();
    let (token, peer) = rig.connection(EDGE);
    rig.table.want_read(token);
    rig.world.write(&peer, 100).expect("room");
    assert_eq!(rig.turn(), [(token, Some(READ))]);
    let fd = rig.table.entries[0].fd.as_ref().expect("live");
    rig.world.read(fd, 1).expect("data");
    assert_eq!(rig.turn(), []);
    assert_eq!(rig.table.ready_without_event(token), READ);
    assert!(!rig.table.want_write(token), "writing was not wanted before");
    rig.table.stop_read(token);
    assert_eq!(rig.turn(), [(token, Some(WRITE))]);
    assert_eq!(rig.table.ready_without_event(token), WRITE);
    rig.table.stop_write(token);
    assert!(rig.table.want_read(token));
    rig.read_all(token);
    assert_eq!(rig.table.ready_without_event(token), Ready::NOTHING);
    rig.table.cannot_write(token);
    rig.table.want_write(token);
    rig.apply();
    assert_eq!(rig.poller.calls, Calls { adds: 1, modifies: 1, ..NO_CALLS });
}

#[test]
fn a_connect_costs_one_call_with_an_edge_and_two_with_a_level() {
    for (watch, calls) in [(EDGE, adds(1)), (LEVEL, Calls { modifies: 1, ..adds(1) })] {
        let mut rig = Rig::new();
        let (token, peer) = rig.connection(watch);
        // No room, like a socket that has no peer yet.
        let fd = rig.table.entries[0].fd.as_ref().expect("live");
        while rig.world.write(fd, 1 << 20).is_ok() {}
        rig.table.want_write(token);
        assert_eq!(rig.turn(), []);
        while rig.world.read(&peer, 1 << 20).is_ok_and(|taken| taken > 0) {}
        rig.world.write(&peer, 10).expect("a peer that talks first");
        assert_eq!(rig.turn(), [(token, Some(WRITE))]);
        rig.table.stop_write(token);
        assert!(rig.table.want_read(token), "its bytes are known");
        let seen = (rig.turn(), rig.table.ready_without_event(token));
        let reported = if watch == EDGE {
            (vec![], READ)
        } else {
            (vec![(token, Some(READ))], Ready::NOTHING)
        };
        assert_eq!(seen, reported);
        assert_eq!(rig.poller.calls, calls);
    }
}

#[test]
fn a_oneshot_is_armed_anew_only_for_what_is_wanted() {
    let mut rig = Rig::new();
    let (token, peer) = rig.connection(ONESHOT);
    rig.table.want_read(token);
    rig.world.write(&peer, 10).expect("room");
    assert_eq!(rig.turn(), [(token, Some(READ))]);
    assert_eq!(rig.turn(), [(token, Some(READ))], "armed anew, and still ready");
    assert_eq!(rig.poller.calls, Calls { adds: 1, modifies: 1, ..NO_CALLS });
    rig.table.stop_read(token);
    assert_eq!(rig.apply(), NO_CALLS, "disarmed by its event");
    rig.table.want_read(token);
    assert_eq!(rig.apply(), modifies(1));
}

#[test]
fn a_late_event_of_a_removed_descriptor_is_stale_also_when_the_slot_lives_again() {
    let mut rig = Rig::new();
    let (first, _peer) = rig.connection(LEVEL);
    rig.table.want_read(first);
    rig.apply();
    rig.table.remove(first, &mut rig.poller).expect("the poller lets go").expect("live");
    let (second, _other) = rig.connection(LEVEL);
    assert_eq!((second.slot(), rig.table.is_current(first)), (first.slot(), false));
    rig.table.want_read(second);
    assert_eq!(rig.table.reported(first, IN), None);
    rig.table.stop_read(first);
    assert!(rig.table.state(second).expect("live").is_wanted(Direction::Read));
    assert_eq!(rig.apply(), adds(1));
    assert_eq!(rig.count(Counter::Stale), 1);
    assert!(rig.table.remove(first, &mut rig.poller).expect("nothing to do").is_none());
}

#[test]
fn a_number_closed_and_opened_again_within_the_turn_is_registered_anew() {
    let mut rig = Rig::new();
    let (first, _peer) = rig.connection(LEVEL);
    rig.table.want_read(first);
    rig.apply();
    rig.table.stop_read(first);
    drop(rig.table.remove(first, &mut rig.poller).expect("the poller lets go"));
    let (second, peer) = rig.connection(LEVEL);
    rig.table.want_read(second);
    // Tests in parallel may take the number; tests/descriptors.rs checks the same number.
    assert_eq!(second.slot(), first.slot());
    assert_eq!(rig.apply(), adds(1));
    rig.world.write(&peer, 1).expect("room");
    assert_eq!(rig.events(), [(second, Some(READ))]);
}

#[test]
fn a_refused_descriptor_is_named_with_its_reason_and_wants_nothing_more() {
    let mut rig = Rig::new();
    let (bad, _peer) = rig.connection(LEVEL);
    let (good, _other) = rig.connection(LEVEL);
    rig.world.fault(ScriptedFault::RefuseAdd(Errno::NOSPC));
    rig.table.want_read(bad);
    rig.table.want_read(good);
    rig.apply();
    let [(token, error)] = &rig.refused[..] else { panic!("one refusal: {:?}", rig.refused) };
    assert_eq!((*token, error.raw_os_error()), (bad, Some(Errno::NOSPC.raw_os_error())));
    assert_eq!(rig.poller.registered.len(), 1);
    assert_eq!(rig.apply(), NO_CALLS, "it is not tried again by itself");
    rig.table.remove(bad, &mut rig.poller).expect("nothing to let go").expect("live");
    assert!(rig.table.is_current(good));
}

#[test]
fn a_handed_over_connection_is_deleted_because_it_lives_on() {
    let mut rig = Rig::new();
    let (token, _peer) = rig.connection(LEVEL);
    rig.table.want_read(token);
    rig.apply();
    let fd = rig.table.hand_over(token, &mut rig.poller).expect("deleted").expect("live");
    assert_eq!(rig.poller.calls, Calls { adds: 1, deletes: 1, ..NO_CALLS });
    let back = rig.table.insert(fd, LEVEL).expect("room");
    rig.table.want_read(back);
    assert_eq!(rig.apply(), adds(1));
}

#[test]
fn listeners_pause_and_proceed_and_are_deleted_at_the_end() {
    for watch in [LISTENER, EXCLUSIVE] {
        let mut rig = Rig::new();
        let (token, peer) = rig.connection(watch);
        rig.table.want_read(token);
        rig.world.write(&peer, 1).expect("room");
        assert_eq!(rig.turn(), [(token, Some(READ))]);
        let how = registered(&rig).expect("registered");
        assert_eq!((how.interest, how.exclusive), (Interest::READABLE, watch == EXCLUSIVE));
        rig.table.stop_read(token);
        assert_eq!(rig.apply(), deletes(1), "a pause while connections wait");
        rig.table.want_read(token);
        assert_eq!(rig.turn(), [(token, Some(READ))]);
        rig.table.remove(token, &mut rig.poller).expect("deleted").expect("live");
        assert_eq!(rig.poller.calls, Calls { adds: 2, deletes: 2, ..NO_CALLS });
    }
}

#[test]
fn a_full_table_gives_the_descriptor_back() {
    let world = World::new();
    let mut table = FdTable::new(1);
    let token = table.insert(world.eventfd(), LEVEL).expect("room");
    let back = table.insert(world.eventfd(), LEVEL).expect_err("full");
    let mut poller = world.open();
    table.remove(token, &mut *poller).expect("never registered").expect("live");
    let next = table.insert(back, LEVEL).expect("room again");
    assert_eq!(next, token.next_generation());
    assert_eq!((table.len(), table.tokens().collect::<Vec<_>>()), (1, vec![next]));
}

#[test]
fn a_descriptor_describes_itself_in_words() {
    let mut rig = Rig::new();
    let (token, _peer) = rig.connection(LEVEL);
    rig.table.want_read(token);
    rig.apply();
    rig.table.reported(token, IN | OUT);
    rig.table.want_write(token);
    let words = format!(
        "fd {} slot 0.0 level: read wanted+ready+polled, write wanted+ready; registered; \
         update pending",
        rig.table.fd(token).expect("live").as_raw_fd()
    );
    assert_eq!(rig.table.describe(token), Some(words));
}
