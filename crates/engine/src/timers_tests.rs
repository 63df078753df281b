//! The wheel against a map of deadlines, and what it costs, in visited entries.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const SECOND_NS: u64 = 1_000_000_000;

fn at(nanoseconds: u64) -> Moment {
    Moment::from_nanos(nanoseconds)
}

fn expired(timers: &mut Timers, now: Moment) -> Vec<u32> {
    let mut fired = Vec::new();
    timers.expire(now, &mut fired);
    fired.sort_unstable();
    fired
}

#[test]
fn fires_in_the_first_tick_that_is_not_early() {
    let mut timers = Timers::new(at(0));
    timers.set(3, at(2_000_001));
    timers.set(4, at(2_000_000));
    assert_eq!(expired(&mut timers, at(1_999_999)), []);
    assert_eq!(expired(&mut timers, at(2_000_000)), [4]);
    assert_eq!(timers.next_deadline(), Some(at(3_000_000)));
    assert_eq!(expired(&mut timers, at(2_999_999)), []);
    assert_eq!(expired(&mut timers, at(3_000_000)), [3]);
    assert_eq!((timers.next_deadline(), timers.deadline(3)), (None, Moment::NEVER));
}

#[test]
fn what_is_past_already_fires_at_once() {
    let mut timers = Timers::new(at(90 * SECOND_NS));
    timers.set(0, at(1));
    assert_eq!(timers.next_deadline(), Some(at(90 * SECOND_NS)));
    assert_eq!(expired(&mut timers, at(90 * SECOND_NS)), [0]);
    assert_eq!(expired(&mut timers, at(91 * SECOND_NS)), []);
}

#[test]
fn the_end_of_time_is_not_a_deadline() {
    let mut timers = Timers::new(at(u64::MAX - SECOND_NS));
    timers.set(0, at(u64::MAX - 1));
    timers.set(1, Moment::NEVER);
    assert!(timers.next_deadline().is_some());
    assert_eq!(expired(&mut timers, at(u64::MAX)), []);
    assert_eq!(timers.next_deadline(), Some(Moment::NEVER));
}

#[test]
fn moving_later_says_so_and_nothing_else_does() {
    let mut timers = Timers::new(at(0));
    assert!(!timers.set(0, at(SECOND_NS)), "set");
    assert!(timers.set(0, at(2 * SECOND_NS)), "moved later");
    assert!(!timers.set(0, at(2 * SECOND_NS)), "not moved");
    assert!(!timers.set(0, at(SECOND_NS / 2)), "moved earlier");
    timers.clear(0);
    assert!(!timers.set(0, at(3 * SECOND_NS)), "set again");
    timers.clear(77);
    assert_eq!(timers.deadline(0), at(3 * SECOND_NS));
}

#[test]
fn a_million_extensions_move_nothing_in_the_queue() {
    let mut timers = Timers::new(at(0));
    let timeout_ns = 60 * SECOND_NS;
    timers.set(0, at(timeout_ns));
    for request in 1..=1_000_000 {
        assert!(timers.set(0, at(timeout_ns + request)));
    }
    assert_eq!((timers.queue_moves, timers.visits), (1, 0));
    assert_eq!(expired(&mut timers, at(timeout_ns)), []);
    assert_eq!(expired(&mut timers, at(timeout_ns + 1_000_000)), [0]);
    // One for each level on the way down.
    assert!(timers.queue_moves <= 4, "{}", timers.queue_moves);
}

#[test]
fn a_million_armed_deadlines_cost_a_turn_nothing() {
    const CONNECTIONS: u32 = 1_000_000;
    let mut timers = Timers::new(at(0));
    for slot in 0..CONNECTIONS {
        timers.set(slot, at(60 * SECOND_NS + u64::from(slot) * 1_000));
    }
    let mut fired = Vec::new();
    let mut now_ns = 0;
    while timers.next_deadline().expect("all are armed").as_nanos() > now_ns {
        timers.expire(at(now_ns), &mut fired);
        now_ns += 10_000_000;
    }
    assert!(now_ns > 50 * SECOND_NS, "the queue comes up after {now_ns} ns");
    assert_eq!((timers.visits, fired.len()), (0, 0));

    timers.expire(at(100 * SECOND_NS), &mut fired);
    assert_eq!((timers.visits, fired.len()), (1_000_000, 1_000_000));
    assert_eq!(timers.next_deadline(), None);
}

#[test]
fn each_deadline_is_visited_at_most_once_a_level() {
    const CONNECTIONS: u32 = 10_000;
    let mut timers = Timers::new(at(0));
    for slot in 0..CONNECTIONS {
        timers.set(slot, at(3_600 * SECOND_NS + u64::from(slot) * 777_777));
    }
    let mut fired = Vec::new();
    let mut wakes = 0;
    while let Some(next) = timers.next_deadline() {
        timers.expire(next, &mut fired);
        wakes += 1;
    }
    assert_eq!(fired.len(), CONNECTIONS as usize);
    let visits = timers.visits / u64::from(CONNECTIONS);
    assert!(visits <= 4, "an hour is four levels high, not {visits}");
    assert!(wakes < 8_200, "a wake for each tick of 7.8 s and a few more, not {wakes}");
}

/// What the wheel must be like: every deadline in a map.
#[derive(Default)]
struct Model {
    deadlines: BTreeMap<u32, u64>,
}

impl Model {
    fn set(&mut self, slot: u32, deadline: Moment) {
        if deadline.is_finite() {
            self.deadlines.insert(slot, deadline.as_nanos());
        } else {
            self.deadlines.remove(&slot);
        }
    }

    /// Slots whose deadlines, rounded up to a tick, have come.
    fn expire(&mut self, now_ns: u64) -> Vec<u32> {
        let is_due = |deadline: &u64| deadline.div_ceil(TICK_NS) <= now_ns / TICK_NS;
        let due = self.deadlines.iter().filter(|(_, deadline)| is_due(deadline));
        let slots: Vec<u32> = due.map(|(slot, _)| *slot).collect();
        self.deadlines.retain(|_, deadline| !is_due(deadline));
        slots
    }

    fn earliest_ns(&self) -> Option<u64> {
        self.deadlines.values().min().map(|deadline| deadline.div_ceil(TICK_NS) * TICK_NS)
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A deadline that long after now, or before it.
    Set(u32, i64),
    SetNever(u32),
    Clear(u32),
    /// Time passes that far, or seems to go back.
    Advance(i64),
    /// Time passes until the wheel wants to be called.
    AdvanceToNext,
}

/// Spans as servers have them: nothing, parts of a tick, ticks, timeouts, hours, years.
fn span_ns() -> impl Strategy<Value = i64> {
    prop_oneof![
        Just(0),
        -2_000_000..3_000_000i64,
        (0..200i64).prop_map(|ticks| ticks * 1_000_000),
        0..70_000_000_000i64,
        0..100_000_000_000_000i64,
        0..1_000_000_000_000_000_000i64,
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let slot = 0..40u32;
    prop_oneof![
        6 => (slot.clone(), span_ns()).prop_map(|(slot, span)| Step::Set(slot, span)),
        1 => slot.clone().prop_map(Step::SetNever),
        1 => slot.prop_map(Step::Clear),
        3 => span_ns().prop_map(Step::Advance),
        3 => Just(Step::AdvanceToNext),
    ]
}

/// Does one step to both, and compares all that can be seen.
fn check(timers: &mut Timers, model: &mut Model, now_ns: &mut u64, step: &Step) {
    match *step {
        Step::Set(slot, span) => {
            let deadline = at(now_ns.saturating_add_signed(span));
            timers.set(slot, deadline);
            model.set(slot, deadline);
        }
        Step::SetNever(slot) => {
            timers.set(slot, Moment::NEVER);
            model.set(slot, Moment::NEVER);
        }
        Step::Clear(slot) => {
            timers.clear(slot);
            model.set(slot, Moment::NEVER);
        }
        Step::Advance(span) => {
            let seen_ns = now_ns.saturating_add_signed(span);
            *now_ns = seen_ns.max(*now_ns);
            assert_eq!(expired(timers, at(seen_ns)), model.expire(*now_ns));
        }
        Step::AdvanceToNext => {
            let next_ns = timers.next_deadline().map_or(0, Moment::as_nanos);
            *now_ns = next_ns.max(*now_ns);
            assert_eq!(expired(timers, at(*now_ns)), model.expire(*now_ns));
        }
    }
    for slot in 0..40 {
        let expected = model.deadlines.get(&slot).map_or(Moment::NEVER, |deadline| at(*deadline));
        assert_eq!(timers.deadline(slot), expected);
    }
    if let Some(earliest_ns) = model.earliest_ns() {
        let next = timers.next_deadline().expect("something is armed");
        // What is overdue comes up at the last tick that was seen.
        assert!(next.as_nanos() <= earliest_ns.max(*now_ns), "{next:?} after {earliest_ns}");
    }
}

proptest! {
    #[test]
    fn the_wheel_is_a_map_of_deadlines(
        start_ns in 0..2_000_000_000_000_000_000u64,
        steps in vec(step(), 1..120),
    ) {
        let mut now_ns = start_ns;
        let mut timers = Timers::new(at(start_ns));
        let mut model = Model::default();
        for step in &steps {
            check(&mut timers, &mut model, &mut now_ns, step);
        }
    }
}
