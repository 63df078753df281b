//! The reusable list that a wait fills.
//!
//! The caller owns it and hands it to every wait, so that a running loop allocates nothing.
//! An implementation of [`crate::Poller`] fills it; it holds no reference into a backend.

use crate::{Readiness, Token};

/// One ready registration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// The token that the registration carries.
    pub token: Token,
    /// What was found, limited to what was asked for and error and hang-up.
    pub readiness: Readiness,
}

/// What one wait found: up to `capacity` events, and why else it ended.
#[derive(Debug)]
pub struct Events {
    list: Vec<Event>,
    capacity: usize,
    is_woken: bool,
    is_interrupted: bool,
}

impl Events {
    /// The most events that one wait may be asked for: bounds the memory of a backend.
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
        debug_assert!(!self.is_full(), "a backend gave more events than were asked for");
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
