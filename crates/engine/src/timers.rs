//! One deadline for each connection slot, for the loops.
//!
//! The usual deadline of a server is moved later with each request and never fires. So moving
//! one later (clearing it is moving it to never) only stores the new time; where the entry is
//! queued too early is found out when its place comes up, which is once for many requests.
//! Moving one earlier queues it anew. A turn with nothing due looks at a few words, however
//! many deadlines are armed.
//!
//! The queue is a hierarchical wheel: levels of 64 lists, a tick of the lowest is one
//! millisecond, a list of each next level covers all of the level below. Eight levels reach
//! beyond the clock, so there is no overflow list. Wheels on crates.io keep one node for each
//! timer and unlink it at every change; none has deadlines that are moved in place.
//!
//! ```text
//!  elapsed = 0b…_000010_000101          a tick: 6 bits a level, level 0 rightmost
//!  level 0: lists 5..=63 of this level-1 list     everything queued agrees with `elapsed`
//!  level 1: lists 3..=63 of this level-2 list     left of its level and is greater in it
//! ```
//!
//! So the lists of a level come up in the order of their numbers, all of them before those of
//! the next level, and the first one that is not empty is where time has to stop next.
//!
//! Nothing here may read a clock or allocate in a turn, growth for a new slot apart.

use std::time::Duration;

use crate::Moment;

/// Resolution: what a deadline may fire late.
pub(crate) const TICK: Duration = Duration::from_millis(1);

const TICK_NS: u64 = TICK.as_nanos() as u64;
const LEVEL_BITS: u32 = 6;
const LISTS_PER_LEVEL: usize = 1 << LEVEL_BITS;
/// Enough for every tick of a 64-bit clock in nanoseconds.
const LEVELS: usize = 8;
const _: () = assert!((u64::MAX / TICK_NS) >> (LEVEL_BITS as usize * LEVELS) == 0);

/// No slot, or no place in the queue.
const NONE: u32 = u32::MAX;

/// A slot's deadline and where it is queued: `place` is the number of a list, or `NONE`.
#[derive(Clone, Copy, Debug)]
struct Entry {
    deadline: Moment,
    place: u32,
    next: u32,
    previous: u32,
}

impl Entry {
    const EMPTY: Self = Self { deadline: Moment::NEVER, place: NONE, next: NONE, previous: NONE };
}

const _: () = assert!(size_of::<Entry>() <= 24, "a million connections pay for each byte");

/// The deadlines of all slots of one loop.
#[derive(Debug)]
pub(crate) struct Timers {
    entries: Vec<Entry>,
    /// First slot of each list, level by level.
    heads: Vec<u32>,
    /// Which lists of a level hold something, one bit each.
    occupied: [u64; LEVELS],
    /// Everything queued is at this tick or later.
    elapsed: u64,
    /// How often an entry was put into a list, and how often one was found in a list that came
    /// up: what the tests judge instead of time.
    queue_moves: u64,
    visits: u64,
}

impl Timers {
    /// No deadlines, on a clock that shows `now`.
    pub(crate) fn new(now: Moment) -> Self {
        Self {
            entries: Vec::new(),
            heads: vec![NONE; LEVELS * LISTS_PER_LEVEL],
            occupied: [0; LEVELS],
            elapsed: now.as_nanos() / TICK_NS,
            queue_moves: 0,
            visits: 0,
        }
    }

    /// Sets, moves or (with [`Moment::NEVER`]) clears the deadline of `slot`. Says whether one
    /// that was set moved later without touching the queue.
    ///
    /// Slots count from zero without large gaps: memory is kept for all up to the highest.
    #[inline]
    pub(crate) fn set(&mut self, slot: u32, deadline: Moment) -> bool {
        let index = slot as usize;
        if index >= self.entries.len() {
            self.entries.resize(index + 1, Entry::EMPTY);
        }
        let entry = &mut self.entries[index];
        let before = std::mem::replace(&mut entry.deadline, deadline);
        let place = entry.place;
        // No entry is queued behind its deadline, so a later one leaves it where it is.
        if deadline > before && place != NONE {
            return true;
        }
        if place == NONE {
            if deadline.is_finite() {
                self.link(slot);
            }
            return false;
        }
        if first_tick_due(deadline) < self.first_tick(place) {
            self.unlink(slot);
            self.link(slot);
        }
        false
    }

    /// Clears the deadline of `slot`, if there is one.
    pub(crate) fn clear(&mut self, slot: u32) {
        if let Some(entry) = self.entries.get_mut(slot as usize) {
            entry.deadline = Moment::NEVER;
        }
    }

    /// The deadline of `slot`; [`Moment::NEVER`] when none is set.
    #[cfg(test)]
    pub(crate) fn deadline(&self, slot: u32) -> Moment {
        self.entries.get(slot as usize).map_or(Moment::NEVER, |entry| entry.deadline)
    }

    /// When [`Timers::expire`] has to be called next: never later than the earliest deadline,
    /// rounded up to a tick. It may be earlier, and then that call moves entries and fires none.
    pub(crate) fn next_deadline(&self) -> Option<Moment> {
        let place = self.first_occupied()?;
        Some(Moment::from_nanos(self.first_tick(place).saturating_mul(TICK_NS)))
    }

    /// Appends to `fired` the slots whose deadlines came by `now`, and clears those deadlines.
    /// None is early, and none that came a [`TICK`] before `now` is missing. Their order is not
    /// that of their deadlines. An earlier `now` than last time is taken as that one.
    pub(crate) fn expire(&mut self, now: Moment, fired: &mut Vec<u32>) {
        let target = self.elapsed.max(now.as_nanos() / TICK_NS);
        while let Some(place) = self.first_occupied() {
            let tick = self.first_tick(place);
            if tick > target {
                break;
            }
            self.elapsed = tick;
            self.empty(place, target, fired);
        }
        self.elapsed = target;
    }

    /// Takes all entries out of a list that came up: fires, forgets or queues anew.
    fn empty(&mut self, place: u32, target: u64, fired: &mut Vec<u32>) {
        let mut slot = std::mem::replace(&mut self.heads[place as usize], NONE);
        self.mark_empty(place);
        while slot != NONE {
            self.visits += 1;
            let entry = &mut self.entries[slot as usize];
            let next = entry.next;
            entry.place = NONE;
            if first_tick_due(entry.deadline) <= target {
                entry.deadline = Moment::NEVER;
                fired.push(slot);
            } else if entry.deadline.is_finite() {
                self.link(slot);
            }
            slot = next;
        }
    }

    /// Queues `slot`, which is in no list, by its deadline.
    fn link(&mut self, slot: u32) {
        self.queue_moves += 1;
        let due = first_tick_due(self.entries[slot as usize].deadline).max(self.elapsed);
        // The highest bit in which the two differ gives the level; the lowest when none does.
        let level = (63 - ((due ^ self.elapsed) | 1).leading_zeros()) / LEVEL_BITS;
        let list = (due >> (LEVEL_BITS * level)) as u32 % LISTS_PER_LEVEL as u32;
        self.occupied[level as usize] |= 1 << list;
        let place = level * LISTS_PER_LEVEL as u32 + list;
        let next = std::mem::replace(&mut self.heads[place as usize], slot);
        if next != NONE {
            self.entries[next as usize].previous = slot;
        }
        let entry = &mut self.entries[slot as usize];
        *entry = Entry { deadline: entry.deadline, place, next, previous: NONE };
    }

    /// Takes `slot` out of its list.
    fn unlink(&mut self, slot: u32) {
        let Entry { place, next, previous, .. } = self.entries[slot as usize];
        if next != NONE {
            self.entries[next as usize].previous = previous;
        }
        if previous != NONE {
            self.entries[previous as usize].next = next;
            return;
        }
        self.heads[place as usize] = next;
        if next == NONE {
            self.mark_empty(place);
        }
    }

    fn mark_empty(&mut self, place: u32) {
        self.occupied[place as usize / LISTS_PER_LEVEL] &=
            !(1 << (place as usize % LISTS_PER_LEVEL));
    }

    /// The list that comes up first.
    fn first_occupied(&self) -> Option<u32> {
        let level = self.occupied.iter().position(|lists| *lists != 0)?;
        Some((level * LISTS_PER_LEVEL) as u32 + self.occupied[level].trailing_zeros())
    }

    /// When a list comes up: the first tick that it covers.
    fn first_tick(&self, place: u32) -> u64 {
        let level = place / LISTS_PER_LEVEL as u32;
        let list = u64::from(place % LISTS_PER_LEVEL as u32);
        let covered_by_level = LEVEL_BITS * (level + 1);
        (self.elapsed >> covered_by_level << covered_by_level) | list << (LEVEL_BITS * level)
    }
}

/// The first tick that does not begin before `deadline`, so that nothing fires early. That of
/// [`Moment::NEVER`] is beyond every clock.
fn first_tick_due(deadline: Moment) -> u64 {
    deadline.as_nanos().div_ceil(TICK_NS)
}

#[cfg(test)]
mod tests {
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
        assert_eq!(expired(&mut timers, at(1_999_999)), [0_u32; 0]);
        assert_eq!(expired(&mut timers, at(2_000_000)), [4]);
        assert_eq!(timers.next_deadline(), Some(at(3_000_000)));
        assert_eq!(expired(&mut timers, at(2_999_999)), [0_u32; 0]);
        assert_eq!(expired(&mut timers, at(3_000_000)), [3]);
        assert_eq!((timers.next_deadline(), timers.deadline(3)), (None, Moment::NEVER));
    }

    #[test]
    fn a_deadline_in_the_past_fires_at_once() {
        let mut timers = Timers::new(at(90 * SECOND_NS));
        timers.set(0, at(1));
        assert_eq!(timers.next_deadline(), Some(at(90 * SECOND_NS)));
        assert_eq!(expired(&mut timers, at(90 * SECOND_NS)), [0]);
        assert_eq!(expired(&mut timers, at(91 * SECOND_NS)), [0_u32; 0]);
    }

    #[test]
    fn the_end_of_time_is_not_a_deadline() {
        let mut timers = Timers::new(at(u64::MAX - SECOND_NS));
        timers.set(0, at(u64::MAX - 1));
        timers.set(1, Moment::NEVER);
        assert!(timers.next_deadline().is_some());
        assert_eq!(expired(&mut timers, at(u64::MAX)), [0_u32; 0]);
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
        assert_eq!(expired(&mut timers, at(timeout_ns)), [0_u32; 0]);
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
            let expected =
                model.deadlines.get(&slot).map_or(Moment::NEVER, |deadline| at(*deadline));
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
}
