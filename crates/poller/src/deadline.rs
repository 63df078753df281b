//! How much of a timeout is left when a wait has to look more than once.
//!
//! The backends that may find only stale or dead registrations use it; most waits look once.

use std::time::{Duration, Instant};

/// The end of one wait.
#[derive(Clone, Copy)]
pub(crate) enum Deadline {
    /// None: the wait has no end.
    Never,
    /// The wait only looks.
    Now,
    /// The wait ends then.
    At(Instant),
}

impl Deadline {
    pub(crate) fn after(timeout: Option<Duration>) -> Self {
        match timeout {
            None => Self::Never,
            Some(Duration::ZERO) => Self::Now,
            // A moment beyond what the clock can count never comes.
            Some(timeout) => Instant::now().checked_add(timeout).map_or(Self::Never, Self::At),
        }
    }

    /// The timeout for the next look; zero when the time is over.
    pub(crate) fn remaining(self) -> Option<Duration> {
        match self {
            Self::Never => None,
            Self::Now => Some(Duration::ZERO),
            Self::At(end) => Some(end.saturating_duration_since(Instant::now())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_beyond_the_clock_is_for_ever() {
        assert_eq!(Deadline::after(Some(Duration::MAX)).remaining(), None);
        assert_eq!(Deadline::after(None).remaining(), None);
    }

    #[test]
    fn what_is_over_leaves_zero() {
        assert_eq!(Deadline::after(Some(Duration::ZERO)).remaining(), Some(Duration::ZERO));
        let past = Deadline::At(Instant::now());
        assert_eq!(past.remaining(), Some(Duration::ZERO));
    }
}
