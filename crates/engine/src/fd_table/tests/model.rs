//! Random verbs and events against a model that keeps sets and says the rules slowly.

use std::collections::{BTreeMap, BTreeSet};

use pollux_poller::Interest;
use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Insert(usize),
    Remove(usize),
    HandOver(usize),
    Want(usize, bool),
    Stop(usize, bool),
    WouldBlock(usize, bool),
    ReadEnded(usize),
    Event(usize, u8),
    Apply,
}

const WATCHES: [Watch; 5] = [LEVEL, EDGE, ONESHOT, LISTENER, EXCLUSIVE];
/// Few, so that lives of one slot follow each other.
const LIVE_MAX: usize = 6;
const BITS: [Readiness; 5] = [IN, OUT, Readiness::RDHUP, Readiness::HUP, Readiness::ERROR];

fn step() -> impl Strategy<Value = Step> {
    let which = 0..LIVE_MAX + 2;
    prop_oneof![
        2 => (0..WATCHES.len()).prop_map(Step::Insert),
        1 => which.clone().prop_map(Step::Remove),
        1 => which.clone().prop_map(Step::HandOver),
        6 => (which.clone(), any::<bool>()).prop_map(|(which, is_read)| Step::Want(which, is_read)),
        4 => (which.clone(), any::<bool>()).prop_map(|(which, is_read)| Step::Stop(which, is_read)),
        3 => (which.clone(), any::<bool>())
            .prop_map(|(which, is_read)| Step::WouldBlock(which, is_read)),
        1 => which.clone().prop_map(Step::ReadEnded),
        // Errors and hang-ups are rarer than data.
        5 => (which.clone(), 0_u8..4).prop_map(|(which, bits)| Step::Event(which, bits)),
        1 => (which, 0_u8..32).prop_map(|(which, bits)| Step::Event(which, bits)),
        3 => Just(Step::Apply),
    ]
}

type Sides = BTreeSet<&'static str>;

fn side(is_read: bool) -> &'static str {
    if is_read { "read" } else { "write" }
}

struct Life {
    watch: Watch,
    wanted: Sides,
    ready: Sides,
    ended: Sides,
    has_error: bool,
    is_hung_up: bool,
    /// What was registered, and what of it an event has not disarmed.
    registered: Option<Sides>,
    armed: Sides,
    is_changed: bool,
}

impl Life {
    fn new(watch: Watch) -> Self {
        let (wanted, ready, ended, armed) = Default::default();
        let has_error = false;
        let is_hung_up = false;
        let is_changed = false;
        let registered = None;
        Self { watch, wanted, ready, ended, has_error, is_hung_up, registered, armed, is_changed }
    }

    fn is_listener(&self) -> bool {
        matches!(self.watch, Watch::Listener { .. })
    }

    fn is_closed(&self) -> bool {
        self.has_error || self.is_hung_up
    }

    fn is_ready(&self, side: &str) -> bool {
        self.has_error || self.ready.contains(side) || self.ended.contains(side)
    }

    fn event(&mut self, found: Readiness, masks_ends: bool) -> Ready {
        let ends = [Readiness::RDHUP, Readiness::HUP, Readiness::ERROR];
        let is_masked = masks_ends && self.wanted.contains("read");
        let has_end = ends.into_iter().any(|end| found.contains(end));
        let says = |bit| {
            if is_masked && has_end {
                bit == IN || (!ends.contains(&bit) && found.contains(bit))
            } else {
                found.contains(bit)
            }
        };
        let fails = says(Readiness::HUP) || says(Readiness::ERROR);
        if self.is_listener() {
            let is_ready = says(IN) || fails;
            if is_ready {
                self.ready.insert("read");
            }
            return Ready { read: is_ready && self.wanted.contains("read"), ..Ready::NOTHING };
        }
        if self.watch == ONESHOT {
            self.armed.clear();
        }
        let was_closed = self.is_closed();
        let mut reported = Sides::new();
        if says(IN) {
            self.ready.insert("read");
            reported.insert("read");
        }
        if says(OUT) {
            self.ready.insert("write");
            reported.insert("write");
        }
        if says(Readiness::RDHUP) {
            self.ended.insert("read");
            reported.insert("read");
        }
        if fails {
            reported.extend(["read", "write"]);
        }
        if says(Readiness::HUP) {
            self.is_hung_up = true;
            self.ended.extend(["read", "write"]);
        }
        self.has_error |= says(Readiness::ERROR);
        if was_closed {
            return Ready::NOTHING;
        }
        let is_due = |side| reported.contains(side) && self.wanted.contains(side);
        Ready { read: is_due("read"), write: is_due("write"), closed: fails }
    }

    /// What should be registered when the loop waits.
    fn settle(&mut self) {
        if self.watch == EDGE {
            let registered = self.registered.clone().unwrap_or_default();
            if !self.is_closed() && !self.wanted.is_subset(&registered) {
                let interest = &(&registered | &self.wanted) | &Sides::from(["read"]);
                self.registered = Some(interest);
            }
            return;
        }
        let is_needed = !self.is_closed() && !self.wanted.is_subset(&self.armed);
        let is_vain = |side: &&&str| !self.wanted.contains(**side) && self.is_ready(side);
        let is_vain = self.armed.iter().any(|side| is_vain(&side));
        let is_ringing = self.is_closed() && !self.armed.is_empty();
        if !is_needed && !is_vain && !is_ringing {
            return;
        }
        let mut interest = Sides::new();
        if !self.is_closed() {
            interest = self.wanted.clone();
            if !self.is_ready("read") {
                interest.insert("read");
            }
        }
        self.registered = (!interest.is_empty()).then(|| interest.clone());
        self.armed = interest;
    }

    fn interest(&self) -> Option<Interest> {
        let sides = self.registered.as_ref()?;
        let mut interest = Interest::NONE;
        if sides.contains("read") {
            interest |= Interest::READABLE;
            if !self.is_listener() {
                interest |= Interest::RDHUP;
            }
        }
        if sides.contains("write") {
            interest |= Interest::WRITABLE;
        }
        Some(interest)
    }
}

/// [`FdTable::remove`] or [`FdTable::hand_over`].
type Part = fn(&mut FdTable<SimFd>, Token, &mut dyn Poller) -> Result<Option<SimFd>, Error>;

struct Pair {
    rig: Rig,
    masks_ends: bool,
    lives: BTreeMap<Token, Life>,
    /// Every token ever, live or not, and their peers.
    tokens: Vec<Token>,
    peers: Vec<SimFd>,
}

impl Pair {
    fn token(&self, which: usize) -> Option<Token> {
        self.tokens.iter().rev().nth(which).copied()
    }

    fn step(&mut self, step: Step) {
        let rig = &mut self.rig;
        let lives = &mut self.lives;
        match step {
            Step::Insert(watch) if lives.len() < LIVE_MAX => {
                let (token, peer) = rig.connection(WATCHES[watch]);
                self.tokens.push(token);
                self.peers.push(peer);
                let before = self.lives.insert(token, Life::new(WATCHES[watch]));
                assert!(before.is_none(), "a token is given out once");
            }
            Step::Insert(_) => {}
            Step::Apply => self.apply(),
            Step::Remove(which) => self.part(which, FdTable::remove),
            Step::HandOver(which) => self.part(which, FdTable::hand_over),
            Step::Want(which, is_read) => self.want(which, is_read),
            Step::Stop(which, is_read) => {
                let Some(token) = self.token(which) else { return };
                let stop = if is_read { FdTable::stop_read } else { FdTable::stop_write };
                stop(&mut self.rig.table, token);
                self.change(token, |life| {
                    life.wanted.remove(side(is_read));
                });
            }
            Step::WouldBlock(which, is_read) => {
                let Some(token) = self.token(which) else { return };
                let cannot = if is_read { FdTable::cannot_read } else { FdTable::cannot_write };
                cannot(&mut self.rig.table, token);
                self.change(token, |life| {
                    life.has_error = false;
                    life.ready.remove(side(is_read));
                });
            }
            Step::ReadEnded(which) => {
                let Some(token) = self.token(which) else { return };
                self.rig.table.read_ended(token);
                self.change(token, |life| {
                    life.wanted.remove("read");
                    life.ended.insert("read");
                });
            }
            Step::Event(which, bits) => self.event(which, bits),
        }
    }

    fn change(&mut self, token: Token, change: impl FnOnce(&mut Life)) {
        if let Some(life) = self.lives.get_mut(&token) {
            change(life);
            life.is_changed = true;
        }
    }

    fn want(&mut self, which: usize, is_read: bool) {
        let Some(token) = self.token(which) else { return };
        let life = self.lives.get_mut(&token);
        if !is_read && life.as_ref().is_some_and(|life| life.is_listener()) {
            return;
        }
        let want = if is_read { FdTable::want_read } else { FdTable::want_write };
        let is_ready = want(&mut self.rig.table, token);
        let expected = life.is_some_and(|life| {
            life.wanted.insert(side(is_read));
            life.is_ready(side(is_read))
        });
        assert_eq!(is_ready, expected);
    }

    fn event(&mut self, which: usize, bits: u8) {
        let Some(token) = self.token(which) else { return };
        let set = BITS.into_iter().enumerate().filter(|(bit, _)| bits & (1 << bit) != 0);
        let found = set.fold(Readiness::NONE, |all, (_, bit)| all | bit);
        // No event comes of what is not registered.
        let is_possible = self.lives.get(&token).is_none_or(|life| life.registered.is_some());
        if is_possible {
            let expected =
                self.lives.get_mut(&token).map(|life| life.event(found, self.masks_ends));
            assert_eq!(self.rig.table.reported(token, found), expected);
        }
    }

    fn part(&mut self, which: usize, part: Part) {
        let Some(token) = self.token(which) else { return };
        let gone = part(&mut self.rig.table, token, &mut self.rig.poller).expect("lets go");
        assert_eq!(gone.is_some(), self.lives.remove(&token).is_some());
    }

    fn apply(&mut self) {
        let calls = self.rig.apply();
        self.lives.values_mut().for_each(Life::settle);
        let registered: BTreeMap<Token, Interest> = self
            .rig
            .poller
            .registered
            .values()
            .map(|(token, how)| (*token, how.interest))
            .collect();
        let expected = self.lives.iter();
        let expected = expected.filter_map(|(token, life)| Some((*token, life.interest()?)));
        assert_eq!(registered, expected.collect());
        assert_eq!(self.rig.refused.len(), 0);
        assert!(calls.updates() <= self.lives.len() as u64, "one change for each at most");
    }

    fn check(&self) {
        self.rig.table.check().expect("every invariant holds");
        assert_eq!(
            self.rig.table.tokens().collect::<BTreeSet<_>>(),
            self.lives.keys().copied().collect()
        );
        for (token, life) in &self.lives {
            let seen = self.rig.table.state(*token).expect("live");
            for (name, side) in [("read", Direction::Read), ("write", Direction::Write)] {
                assert_eq!(seen.is_wanted(side), life.wanted.contains(name));
                assert_eq!(seen.is_ready(side), life.is_ready(name));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(250) })]

    #[test]
    fn the_table_registers_what_the_naive_model_says(
        steps in prop::collection::vec(step(), 1..120), masks_ends: bool
    ) {
        let mut rig = Rig::new();
        if masks_ends {
            rig.table.mask_ends();
        }
        let mut pair = Pair {
            rig, masks_ends, lives: BTreeMap::new(), tokens: Vec::new(), peers: Vec::new(),
        };
        for step in steps {
            pair.step(step);
            pair.check();
        }
        pair.apply();
        let counted = |counter| pair.rig.counters.value(counter);
        let merged = counted(Counter::UpdatesMerged);
        let sent = counted(Counter::UpdatesSent);
        prop_assert_eq!(counted(Counter::UpdatesAsked), merged + sent);
        prop_assert!(sent <= pair.rig.poller.calls.updates());
    }
}
