//! The reusable list that a wait fills: events, each with the token of its registration.
//!
//! The caller owns the list and hands it to every wait, so that a running loop allocates nothing.
//! An implementation of [`crate::Poller`] fills it; it holds no reference into a backend.

use std::fmt;

use crate::Readiness;

/// One ready registration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// The token that the registration carries.
    pub token: Token,
    /// What was found: conditions of the interest, error and hang-up.
    pub readiness: Readiness,
}

/// What one wait found: up to `capacity` events, and why else it ended.
///
/// ```
/// use pollux_poller::{Events, Mechanism};
/// use std::time::Duration;
///
/// let mut poller = Mechanism::Poll.open()?;
/// let mut events = Events::with_capacity(64);
/// poller.wait(&mut events, Some(Duration::ZERO))?;
/// assert!(events.is_empty() && !events.is_woken());
/// for event in &events {
///     println!("{:?} {:?}", event.token, event.readiness);
/// }
/// # Ok::<(), pollux_poller::Error>(())
/// ```
#[derive(Debug)]
pub struct Events {
    list: Vec<Event>,
    capacity: usize,
    is_woken: bool,
    is_interrupted: bool,
}

impl Events {
    /// The most events that one wait may give: bounds the memory of a backend.
    pub const CAPACITY_MAX: usize = 1 << 16;

    /// A list for up to `capacity` events a wait, held between 1 and [`Events::CAPACITY_MAX`].
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        let capacity = capacity.clamp(1, Self::CAPACITY_MAX);
        Self {
            list: Vec::with_capacity(capacity),
            capacity,
            is_woken: false,
            is_interrupted: false,
        }
    }

    /// The events in the order in which the backend found them.
    pub fn iter(&self) -> std::slice::Iter<'_, Event> {
        self.list.iter()
    }

    /// The events as a slice, for loops that change their own state meanwhile.
    #[must_use]
    pub fn as_slice(&self) -> &[Event] {
        &self.list
    }

    /// How many events the last wait found. A wake-up or a signal is not an event.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether the last wait found no event.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The most events that a wait puts in here (`maxevents`).
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether the last wait ended because a [`crate::Waker`] was used.
    #[must_use]
    pub fn is_woken(&self) -> bool {
        self.is_woken
    }

    /// Whether a signal handler ran and ended the last wait early (`EINTR`).
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.is_interrupted
    }

    /// Empties it: the beginning of every wait.
    pub fn clear(&mut self) {
        self.list.clear();
        self.is_woken = false;
        self.is_interrupted = false;
    }

    /// Whether no event fits any more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.list.len() >= self.capacity
    }

    /// Adds an event, for which there is room.
    pub fn push(&mut self, token: Token, readiness: Readiness) {
        debug_assert!(!self.is_full(), "a backend gave more events than fit");
        self.list.push(Event { token, readiness });
    }

    /// A waker was used.
    pub fn set_woken(&mut self) {
        self.is_woken = true;
    }

    /// A signal handler ran.
    pub fn set_interrupted(&mut self) {
        self.is_interrupted = true;
    }
}

impl<'a> IntoIterator for &'a Events {
    type Item = &'a Event;
    type IntoIter = std::slice::Iter<'a, Event>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Names a registration: one use of one slot of the caller's table.
///
/// The caller's table owns both numbers. The slot is an index that is used again; the generation says which
/// use of the slot is meant, so that an event for an earlier use is recognised. A token never holds a pointer
/// or a descriptor.
///
/// The generation must change whenever the file behind the slot changes: two registrations
/// with equal tokens are promised to be the same open file.
///
/// ```text
///  63      56 55            32 31                              0
/// +----------+----------------+---------------------------------+
/// |    0     |   generation   |              slot               |
/// +----------+----------------+---------------------------------+
/// ```
///
/// ```
/// use pollux_poller::Token;
///
/// let (first, second) = (Token::new(7, 0), Token::new(7, 1));
/// assert_eq!((first.slot(), second.slot()), (7, 7));
/// assert_ne!(first, second, "an event for the first use of the slot is not one for the second");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(u64);

impl Token {
    /// Generations count modulo 2^24: 16 million reuses of one slot before a number returns.
    pub const GENERATIONS: u32 = 1 << 24;

    /// A token for `slot`; only the low 24 bits of `generation` are kept.
    #[must_use]
    pub const fn new(slot: u32, generation: u32) -> Self {
        Self(((generation % Self::GENERATIONS) as u64) << 32 | slot as u64)
    }

    /// Index into the caller's table.
    #[must_use]
    pub const fn slot(self) -> u32 {
        self.0 as u32
    }

    /// Which use of the slot is meant, below [`Token::GENERATIONS`].
    #[must_use]
    pub const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The token for the next use of the same slot.
    #[must_use]
    pub const fn next_generation(self) -> Self {
        Self::new(self.slot(), self.generation().wrapping_add(1))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}.{})", self.slot(), self.generation())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_gives_back_slot_and_generation() {
        let token = Token::new(u32::MAX, Token::GENERATIONS - 1);
        assert_eq!((token.slot(), token.generation()), (u32::MAX, Token::GENERATIONS - 1));
    }

    #[test]
    fn generations_wrap_without_touching_the_slot() {
        let last = Token::new(9, Token::GENERATIONS - 1);
        assert_eq!(last.next_generation(), Token::new(9, 0));
    }
}
