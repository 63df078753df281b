//! What every backend has: capabilities, counters, a waker, a signal mask, and waits with an end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::{Caps, Counters, Error, Events, SignalMask, Waker};

/// The parts of a backend that do not depend on its mechanism.
pub(crate) struct BackendBase {
    pub(crate) caps: Caps,
    pub(crate) counters: Arc<Counters>,
    pub(crate) waker: Waker,
    /// Signals that are blocked while it waits.
    pub(crate) mask: Option<SignalMask>,
}

impl BackendBase {
    pub(crate) fn new(caps: Caps) -> Result<Self, Error> {
        Ok(Self { caps, counters: Arc::default(), waker: Waker::new()?, mask: None })
    }

    /// Takes a wake that a level-triggered wait found, and reports it.
    pub(crate) fn acknowledge_level_wake(&self, events: &mut Events) {
        self.waker.acknowledge_level();
        self.counters.system_calls.add(1);
        self.counters.wakes.add(1);
        events.set_woken();
    }
}

/// The methods of [`Poller`](crate::Poller) that `self.base` answers.
macro_rules! base_methods {
    () => {
        fn set_signal_mask(&mut self, mask: Option<SignalMask>) {
            self.base.mask = mask;
        }

        fn waker(&self) -> Waker {
            self.base.waker.clone()
        }

        fn caps(&self) -> &Caps {
            &self.base.caps
        }

        fn counters(&self) -> &Arc<Counters> {
            &self.base.counters
        }
    };
}

pub(crate) use base_methods;

/// The end of one wait.
///
/// For backends that may find only stale or dead registrations and look again; most waits look once.
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
    fn a_timeout_that_is_over_leaves_zero() {
        assert_eq!(Deadline::after(Some(Duration::ZERO)).remaining(), Some(Duration::ZERO));
        let past = Deadline::At(Instant::now());
        assert_eq!(past.remaining(), Some(Duration::ZERO));
    }
}
