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
        // The highest bit in which the two differ tells the level; the lowest when none does.
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
#[path = "timers_tests.rs"]
mod tests;
