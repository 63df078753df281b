//! What every backend has.

use std::sync::Arc;

use crate::{Caps, Counters, Error, Events, SignalMask, Waker};

/// The parts of a backend that do not depend on its mechanism.
pub(crate) struct Parts {
    pub(crate) caps: Caps,
    pub(crate) counters: Arc<Counters>,
    pub(crate) waker: Waker,
    /// Signals that are blocked while it waits.
    pub(crate) mask: Option<SignalMask>,
}

impl Parts {
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

/// The methods of [`Poller`](crate::Poller) that `self.parts` answers.
macro_rules! parts_methods {
    () => {
        fn set_signal_mask(&mut self, mask: Option<SignalMask>) {
            self.parts.mask = mask;
        }

        fn waker(&self) -> Waker {
            self.parts.waker.clone()
        }

        fn caps(&self) -> &Caps {
            &self.parts.caps
        }

        fn counters(&self) -> &Arc<Counters> {
            &self.parts.counters
        }
    };
}

pub(crate) use parts_methods;
