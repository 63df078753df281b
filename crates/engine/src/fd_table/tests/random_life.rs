//! Random operations: no readiness that is wanted is lost, none is reported in vain twice, and an error is
//! reported once.
//!
//! A second poller, which watches every descriptor for everything, says what really holds.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::time::Duration;

use pollux_conformance::sim::{Errno, SimFd};
use pollux_poller::{Events, Interest, Poller, Readiness, Registration, Token, Trigger};
use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Open(usize),
    Remove(usize),
    WantRead(usize),
    StopRead(usize),
    WantWrite(usize),
    StopWrite(usize),
    /// Reads one byte and leaves, as a loop does whose budget is used up.
    Taste(usize),
    Drain(usize),
    Fill(usize),
    PeerWrites(usize),
    PeerReads(usize),
    PeerShuts(usize),
    PeerCloses(usize),
    Fails(usize),
    Turn,
}

const WATCHES: [Watch; 4] = [LEVEL, EDGE, ONESHOT, LISTENER];
const LIVE_MAX: usize = 5;

fn step() -> impl Strategy<Value = Step> {
    let which = || 0..LIVE_MAX;
    prop_oneof![
        3 => (0..WATCHES.len()).prop_map(Step::Open),
        1 => which().prop_map(Step::Remove),
        5 => which().prop_map(Step::WantRead),
        3 => which().prop_map(Step::StopRead),
        4 => which().prop_map(Step::WantWrite),
        3 => which().prop_map(Step::StopWrite),
        2 => which().prop_map(Step::Taste),
        3 => which().prop_map(Step::Drain),
        3 => which().prop_map(Step::Fill),
        4 => which().prop_map(Step::PeerWrites),
        3 => which().prop_map(Step::PeerReads),
        1 => which().prop_map(Step::PeerShuts),
        1 => which().prop_map(Step::PeerCloses),
        1 => which().prop_map(Step::Fails),
        6 => Just(Step::Turn),
    ]
}

/// A connection with its peer, as long as that is open.
struct Line {
    token: Token,
    watch: Watch,
    peer: Option<SimFd>,
}

struct Life {
    rig: Rig,
    truth: Box<dyn Poller>,
    lines: Vec<Line>,
    /// Descriptors whose error was reported and still holds.
    reported_closed: BTreeSet<Token>,
}

fn sim_fd(table: &FdTable<SimFd>, token: Token) -> &SimFd {
    table.entries[token.slot() as usize].fd.as_ref().expect("live")
}

impl Life {
    fn new() -> Self {
        let rig = Rig::new();
        let truth = rig.world.open();
        Self { rig, truth, lines: Vec::new(), reported_closed: BTreeSet::new() }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Open(watch) if self.lines.len() < LIVE_MAX => self.open(WATCHES[watch]),
            Step::Open(_) => {}
            Step::Turn => self.turn(),
            Step::Remove(which) => {
                if which < self.lines.len() {
                    self.remove(which);
                }
            }
            Step::WantRead(which)
            | Step::StopRead(which)
            | Step::WantWrite(which)
            | Step::StopWrite(which)
            | Step::Taste(which)
            | Step::Drain(which)
            | Step::Fill(which)
            | Step::PeerWrites(which)
            | Step::PeerReads(which)
            | Step::PeerShuts(which)
            | Step::PeerCloses(which)
            | Step::Fails(which) => {
                if which < self.lines.len() {
                    self.on_line(step, which);
                }
            }
        }
        self.rig.table.check().expect("every invariant holds");
    }

    fn open(&mut self, watch: Watch) {
        let (token, peer) = self.rig.connection(watch);
        let how = Registration::new(Interest::READABLE | Interest::WRITABLE, Trigger::Level);
        let fd = self.rig.table.fd(token).expect("live");
        self.truth.add(fd, token, how).expect("the truth watches everything");
        self.lines.push(Line { token, watch, peer: Some(peer) });
    }

    fn remove(&mut self, which: usize) {
        let line = self.lines.swap_remove(which);
        let table = &mut self.rig.table;
        let fd = table.remove(line.token, &mut self.rig.poller).expect("lets go").expect("live");
        self.truth.delete(fd.as_fd()).expect("watched");
        assert!(!self.rig.table.is_current(line.token));
    }

    fn on_line(&mut self, step: Step, which: usize) {
        let Self { rig, lines, reported_closed, .. } = self;
        let Line { token, watch, peer } = &mut lines[which];
        let token = *token;
        let is_listener = *watch == LISTENER;
        let Rig { world, table, .. } = rig;
        match (step, peer.as_ref()) {
            (Step::WantRead(_), _) => {
                table.want_read(token);
            }
            (Step::StopRead(_), _) => table.stop_read(token),
            (Step::WantWrite(_), _) if !is_listener => {
                table.want_write(token);
            }
            (Step::StopWrite(_), _) => table.stop_write(token),
            (Step::Taste(_), _) => {
                let read = world.read(sim_fd(table, token), 1);
                if read == Err(Errno::AGAIN) {
                    table.cannot_read(token);
                    reported_closed.remove(&token);
                }
            }
            (Step::Drain(_), _) => {
                let end = loop {
                    match world.read(sim_fd(table, token), 1 << 20) {
                        Ok(0) => break None,
                        Ok(_) => {}
                        Err(errno) => break Some(errno),
                    }
                };
                if end == Some(Errno::AGAIN) {
                    table.cannot_read(token);
                    reported_closed.remove(&token);
                }
            }
            (Step::Fill(_), _) if !is_listener => {
                let end = loop {
                    if let Err(errno) = world.write(sim_fd(table, token), 1 << 20) {
                        break errno;
                    }
                };
                if end == Errno::AGAIN {
                    table.cannot_write(token);
                    reported_closed.remove(&token);
                }
            }
            (Step::PeerWrites(_), Some(peer)) => {
                let _ = world.write(peer, 100);
            }
            (Step::PeerReads(_), Some(peer)) => {
                while world.read(peer, 1 << 20).is_ok_and(|n| n > 0) {}
            }
            (Step::PeerShuts(_), Some(peer)) => world.shutdown_write(peer),
            (Step::PeerCloses(_), _) => *peer = None,
            (Step::Fails(_), _) => world.set_error(sim_fd(table, token)),
            _ => {}
        }
    }

    /// What really holds of each descriptor.
    fn truth(&mut self) -> BTreeMap<Token, Readiness> {
        let mut events = Events::with_capacity(64);
        self.truth.wait(&mut events, Some(Duration::ZERO)).expect("a look");
        events.iter().map(|event| (event.token, event.readiness)).collect()
    }

    fn turn(&mut self) {
        let truth = self.truth();
        let mut reported: BTreeMap<Token, Ready> = BTreeMap::new();
        for (token, due) in self.rig.turn() {
            let due = due.expect("forgotten and closed: nothing is late");
            if due.closed {
                assert!(self.reported_closed.insert(token), "{token:?}: reported twice");
            }
            reported.insert(token, due);
        }
        for line in &self.lines {
            let holds = truth.get(&line.token).copied().unwrap_or(Readiness::NONE);
            let due = reported.get(&line.token).copied().unwrap_or_default();
            self.check_reported(line, holds, due);
        }
        for (token, due) in self.rig.turn() {
            assert_ne!(due, Some(Ready::NOTHING), "{token:?} rings in vain again");
        }
    }

    /// What is wanted and holds was reported now, or is known to be left to the loop.
    fn check_reported(&self, line: &Line, holds: Readiness, due: Ready) {
        let seen = self.rig.table.state(line.token).expect("live");
        let left = self.rig.table.ready_without_event(line.token);
        let can_read = holds.is_readable() || holds.is_closed();
        if seen.is_wanted(Direction::Read) && can_read {
            assert!(due.read || left.read, "{seen:?}: {holds:?} was not reported");
        }
        let can_write = holds.is_writable() || holds.is_closed();
        if seen.is_wanted(Direction::Write) && can_write {
            assert!(due.write || left.write, "{seen:?}: {holds:?} was not reported");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(250) })]

    #[test]
    fn nothing_wanted_is_lost_and_nothing_rings_in_vain_twice(
        steps in prop::collection::vec(step(), 1..100)
    ) {
        let mut life = Life::new();
        for step in steps {
            life.step(step);
        }
        life.turn();
        prop_assert_eq!(life.rig.count(Counter::Stale), 0);
        prop_assert!(life.rig.refused.is_empty());
    }
}
