//! One descriptor of the table: sixteen bytes, with everything that is known of it in one word.
//!
//! The table and the update list call it. It knows bits and what an event means for them; it knows no
//! list, no poller and no other entry. What the verbs use on the way of every event is marked
//! for inlining: without it the same verbs take three times as long from another crate
//! (`benches/reenter.rs`).
//!
//! ```text
//!  14  12    11         10       9     8      7 .. 4       3 .. 0
//! +------+---------+------------+-----+-------+----------+----------+
//! | watch| PENDING | REGISTERED | HUP | ERROR |  write   |   read   |
//! +------+---------+------------+-----+-------+----------+----------+
//!                                              3 POLLED  registered with the kernel
//!                                              2 SHUT    known: ready for ever
//!                                              1 READY   known: would not block
//!                                              0 WANTED  by the session
//! ```

use std::fmt;

use pollux_poller::{Interest, Readiness, Registration, Token, Trigger};

use super::{Ready, Watch};

/// The end of the free list.
pub(super) const NO_SLOT: u32 = u32::MAX;

/// A slot of the table.
#[derive(Debug)]
pub(super) struct Entry<F> {
    /// `None` while the slot is free.
    pub(super) fd: Option<F>,
    /// Which life of the slot this is, or will be when it is free; below `Token::GENERATIONS`.
    pub(super) generation: u32,
    pub(super) state: State,
    /// The next free slot, while this one is free.
    pub(super) next_free: u32,
}

/// A direction, by the place of its four bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    Read = 0,
    Write = 4,
}

impl Direction {
    pub(super) const BOTH: [Self; 2] = [Self::Read, Self::Write];
}

/// What is wanted, known and registered, see the map above.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct State(u32);

const WANTED: u32 = 1;
const READY: u32 = 1 << 1;
const SHUT: u32 = 1 << 2;
const POLLED: u32 = 1 << 3;
const ERROR: u32 = 1 << 8;
const HUP: u32 = 1 << 9;
const REGISTERED: u32 = 1 << 10;
const PENDING: u32 = 1 << 11;
const WATCH_SHIFT: u32 = 12;

/// Bits of one direction.
#[inline]
const fn of(side: Direction, bits: u32) -> u32 {
    bits << side as u32
}

/// The same bits of both directions.
#[inline]
const fn both(bits: u32) -> u32 {
    of(Direction::Read, bits) | of(Direction::Write, bits)
}

/// The bits, or none.
#[inline]
const fn when(is_set: bool, bits: u32) -> u32 {
    if is_set { bits } else { 0 }
}

impl State {
    /// Of a free slot.
    pub(super) const FREE: Self = Self(0);

    /// Of a descriptor of which nothing is wanted, known or registered.
    pub(super) const fn new(watch: Watch) -> Self {
        Self(watch_bits(watch) << WATCH_SHIFT)
    }

    #[inline]
    pub(super) const fn watch(self) -> Watch {
        match self.0 >> WATCH_SHIFT {
            0 => Watch::Connection(Trigger::Level),
            1 => Watch::Connection(Trigger::Edge),
            2 => Watch::Connection(Trigger::Oneshot),
            3 => Watch::Listener { exclusive: false },
            _ => Watch::Listener { exclusive: true },
        }
    }

    pub(super) const fn is_wanted(self, side: Direction) -> bool {
        self.0 & of(side, WANTED) != 0
    }

    /// It is known that a call would not block: data, room, an end or an error.
    #[inline]
    pub(super) const fn is_ready(self, side: Direction) -> bool {
        self.0 & (of(side, READY | SHUT) | ERROR) != 0
    }

    pub(super) const fn is_shut(self, side: Direction) -> bool {
        self.0 & of(side, SHUT) != 0
    }

    pub(super) const fn is_polled(self, side: Direction) -> bool {
        self.0 & of(side, POLLED) != 0
    }

    #[inline]
    pub(super) const fn is_polled_at_all(self) -> bool {
        self.0 & both(POLLED) != 0
    }

    pub(super) const fn has_error(self) -> bool {
        self.0 & ERROR != 0
    }

    pub(super) const fn is_hung_up(self) -> bool {
        self.0 & HUP != 0
    }

    /// An error or a hang-up was reported, and no call has shown since that it is over.
    #[inline]
    pub(super) const fn is_closed(self) -> bool {
        self.0 & (ERROR | HUP) != 0
    }

    /// The poller has a registration, armed or not.
    pub(super) const fn is_registered(self) -> bool {
        self.0 & REGISTERED != 0
    }

    /// The slot is on the update list.
    pub(super) const fn is_pending(self) -> bool {
        self.0 & PENDING != 0
    }

    #[inline]
    pub(super) const fn is_edge(self) -> bool {
        self.0 >> WATCH_SHIFT == watch_bits(Watch::Connection(Trigger::Edge))
    }

    /// Some direction is wanted that is not registered with the kernel.
    #[inline]
    pub(super) const fn has_unpolled_interest(self) -> bool {
        let is_unpolled = !self.0 >> 3;
        self.0 & is_unpolled & both(WANTED) != 0
    }

    /// Some direction that is not wanted would be reported at once by a level trigger.
    #[inline]
    pub(super) const fn rings_in_vain(self) -> bool {
        let is_ready = (self.0 >> 1) | (self.0 >> 2);
        let is_polled = self.0 >> 3;
        !self.0 & is_ready & is_polled & both(WANTED) != 0
    }
}

/// What the verbs of the table change.
impl State {
    #[inline]
    pub(super) fn want(&mut self, side: Direction) {
        self.0 |= of(side, WANTED);
    }

    #[inline]
    pub(super) fn stop(&mut self, side: Direction) {
        self.0 &= !of(side, WANTED);
    }

    /// An error that a call did not return has passed: another call took it. Ends stay.
    #[inline]
    pub(super) fn would_block(&mut self, side: Direction) {
        self.0 &= !(of(side, READY) | ERROR);
    }

    pub(super) fn shut(&mut self, side: Direction) {
        self.0 |= of(side, SHUT);
    }

    #[inline]
    pub(super) fn set_pending(&mut self, is_pending: bool) {
        self.0 = (self.0 & !PENDING) | when(is_pending, PENDING);
    }

    /// The life ends. Only the place on the update list is kept: the list still names the slot.
    pub(super) fn end(&mut self) {
        self.0 &= PENDING;
    }

    /// A life begins in a slot that may be on the update list.
    pub(super) fn begin(&mut self, watch: Watch) {
        self.0 = (self.0 & PENDING) | Self::new(watch).0;
    }

    /// The poller has taken `how`, or nothing is registered any more.
    pub(super) fn registered(&mut self, how: Option<Registration>) {
        self.0 &= !(both(POLLED) | REGISTERED);
        let Some(Registration { interest, .. }) = how else { return };
        self.0 |= REGISTERED
            | when(interest.contains(Interest::READABLE), of(Direction::Read, POLLED))
            | when(interest.contains(Interest::WRITABLE), of(Direction::Write, POLLED));
    }

    /// The poller has refused: nothing is wanted any more and nothing is armed.
    pub(super) fn refused(&mut self) {
        self.0 &= !both(WANTED | POLLED);
    }

    /// Takes in what an event says, and says what of it is new to the session.
    #[inline]
    pub(super) fn learn(&mut self, found: Readiness) -> Ready {
        let was_closed = self.is_closed();
        match self.watch() {
            Watch::Listener { .. } => return self.learn_listener(found),
            // An event disarms the whole registration.
            Watch::Connection(Trigger::Oneshot) => self.0 &= !both(POLLED),
            Watch::Connection(_) => {}
        }
        let has_input_ended = found.contains(Readiness::RDHUP);
        self.0 |= when(found.is_readable(), of(Direction::Read, READY))
            | when(has_input_ended, of(Direction::Read, SHUT))
            | when(found.is_writable(), of(Direction::Write, READY))
            | when(found.contains(Readiness::HUP), HUP | both(SHUT))
            | when(found.contains(Readiness::ERROR), ERROR);
        if was_closed {
            return Ready::NOTHING;
        }
        let closed = found.is_closed();
        Ready {
            read: self.is_wanted(Direction::Read)
                && (found.is_readable() || has_input_ended || closed),
            write: self.is_wanted(Direction::Write) && (found.is_writable() || closed),
            closed,
        }
    }

    /// A hang-up of a listener may pass, and an error is for `accept(2)` to say: neither stays.
    fn learn_listener(&mut self, found: Readiness) -> Ready {
        let is_ready = found.is_readable() || found.is_closed();
        self.0 |= when(is_ready, of(Direction::Read, READY));
        Ready { read: is_ready && self.is_wanted(Direction::Read), ..Ready::NOTHING }
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 12] = [
            "read wanted",
            "read ready",
            "read shut",
            "read polled",
            "write wanted",
            "write ready",
            "write shut",
            "write polled",
            "error",
            "hup",
            "registered",
            "pending",
        ];
        write!(f, "{:?}", self.watch())?;
        let set = NAMES.iter().enumerate().filter(|(bit, _)| self.0 & (1 << bit) != 0);
        set.map(|(_, name)| name).try_for_each(|name| write!(f, ", {name}"))
    }
}

const fn watch_bits(watch: Watch) -> u32 {
    match watch {
        Watch::Connection(Trigger::Level) => 0,
        Watch::Connection(Trigger::Edge) => 1,
        Watch::Connection(Trigger::Oneshot) => 2,
        Watch::Listener { exclusive: false } => 3,
        Watch::Listener { exclusive: true } => 4,
    }
}

impl<F> Entry<F> {
    /// The name of the life that `slot` has now, or will have.
    pub(super) fn token(&self, slot: u32) -> Token {
        Token::new(slot, self.generation)
    }
}

#[cfg(test)]
impl State {
    /// How many values the bits have that an update depends on: all but the mark of the update list.
    pub(super) const COMBINATIONS: u32 = 1 << 14;

    /// Every combination of what is wanted, known, registered and watched; `None` beyond the watches.
    pub(super) fn nth(number: u32) -> Option<Self> {
        let low = number % (1 << 11);
        let watch = number >> 11;
        (watch <= 4).then_some(Self(low | (watch << WATCH_SHIFT)))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    #[test]
    fn an_entry_has_sixteen_bytes() {
        assert_eq!(size_of::<Entry<OwnedFd>>(), 16);
    }

    #[test]
    fn a_watch_survives_its_bits() {
        let triggers = [Trigger::Level, Trigger::Edge, Trigger::Oneshot].map(Watch::Connection);
        let listeners = [false, true].map(|exclusive| Watch::Listener { exclusive });
        for watch in triggers.into_iter().chain(listeners) {
            let mut state = State::new(watch);
            state.set_pending(true);
            state.want(Direction::Write);
            assert_eq!(state.watch(), watch);
            assert_eq!(state.is_edge(), watch == Watch::Connection(Trigger::Edge));
        }
    }

    #[test]
    fn a_listener_forgets_hang_ups_and_errors() {
        let mut state = State::new(Watch::Listener { exclusive: true });
        state.want(Direction::Read);
        let due = state.learn(Readiness::HUP | Readiness::ERROR);
        assert_eq!(due, Ready { read: true, ..Ready::NOTHING });
        state.would_block(Direction::Read);
        assert!(!state.is_ready(Direction::Read) && !state.is_closed());
    }

    #[test]
    fn an_error_is_over_when_a_call_would_block_and_the_next_one_is_reported() {
        let mut state = State::new(Watch::Connection(Trigger::Level));
        assert!(state.learn(Readiness::ERROR).closed);
        assert!(!state.learn(Readiness::ERROR).closed, "reported once");
        state.would_block(Direction::Read);
        assert!(!state.is_closed() && !state.is_ready(Direction::Read));
        assert!(state.learn(Readiness::ERROR | Readiness::HUP).closed);
        state.would_block(Direction::Read);
        assert!(state.is_closed(), "a hang-up stays");
    }

    #[test]
    fn the_end_of_input_stays_ready_whatever_a_call_says() {
        let mut state = State::new(Watch::Connection(Trigger::Level));
        state.learn(Readiness::READABLE | Readiness::RDHUP);
        state.would_block(Direction::Read);
        assert!(state.is_ready(Direction::Read) && !state.is_ready(Direction::Write));
    }
}
