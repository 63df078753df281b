//! The chain on a poller of pollux, as `pipes` and `streams` use it.

use std::os::fd::AsFd;
use std::time::Duration;

use pollux_poller::{
    CountersSnapshot, Events, Interest, Mechanism, Poller, Registration, Token, Trigger,
};

use super::{EVENTS_MAX, Pairs, Watcher};
use crate::error::MeasureError;
use crate::turns::Described;

/// A poller that watches the readers of a chain.
pub(super) struct Pollux {
    mechanism: Mechanism,
    poller: Box<dyn Poller>,
    how: Registration,
    events: Events,
}

impl Pollux {
    pub(super) fn open(mechanism: Mechanism, chain: &Pairs) -> Result<Self, MeasureError> {
        let how = Registration::new(Interest::READABLE, mechanism.trigger());
        let mut poller = mechanism.open()?;
        for (index, reader) in chain.readers.iter().enumerate() {
            poller.add(reader.as_fd(), Token::new(index as u32, 0), how)?;
        }
        Ok(Self { mechanism, poller, how, events: Events::with_capacity(EVENTS_MAX) })
    }
}

impl Watcher for Pollux {
    fn turn(&mut self, chain: &mut Pairs) -> Result<(), MeasureError> {
        self.poller.wait(&mut self.events, Some(Duration::ZERO))?;
        for event in &self.events {
            let index = event.token.slot() as usize;
            chain.receive(index)?;
            if self.how.trigger == Trigger::Oneshot {
                self.poller.modify(chain.readers[index].as_fd(), event.token, self.how)?;
            }
        }
        Ok(())
    }

    fn counters(&self) -> Option<CountersSnapshot> {
        Some(self.poller.counters().snapshot())
    }

    fn described(&self) -> Described {
        Described::of_poller(&*self.poller, self.mechanism)
    }
}
