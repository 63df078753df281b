//! What every backend has.

use std::sync::Arc;

use crate::{Caps, Counters, Error, SignalMask, Waker};

/// The parts of a backend that do not depend on its mechanism.
pub(crate) struct Common {
    pub(crate) caps: Caps,
    pub(crate) counters: Arc<Counters>,
    pub(crate) waker: Waker,
    /// Signals that are blocked while it waits.
    pub(crate) mask: Option<SignalMask>,
}

impl Common {
    pub(crate) fn new(caps: Caps) -> Result<Self, Error> {
        Ok(Self { caps, counters: Arc::default(), waker: Waker::new()?, mask: None })
    }
}

/// The methods of [`Poller`](crate::Poller) that `self.common` answers.
macro_rules! common_methods {
    () => {
        fn set_signal_mask(&mut self, mask: Option<SignalMask>) {
            self.common.mask = mask;
        }

        fn waker(&self) -> Waker {
            self.common.waker.clone()
        }

        fn caps(&self) -> &Caps {
            &self.common.caps
        }

        fn counters(&self) -> &Arc<Counters> {
            &self.common.counters
        }
    };
}

pub(crate) use common_methods;
