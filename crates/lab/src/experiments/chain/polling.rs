//! The chain on polling: level-triggered epoll behind the interface that smol stands on.
//!
//! Its default is one-shot; level is the mode that raw epoll and the poller `epoll` have here.

use std::num::NonZeroUsize;
use std::rc::Rc;

use pollux_peer_polling::Watch;

use super::{EVENTS_MAX, Pairs, Watcher};
use crate::error::MeasureError;

/// A `Poller` of the library on the readers of a chain.
pub(super) struct Polling(Watch);

impl Polling {
    pub(super) fn open(chain: &Pairs) -> Result<Self, MeasureError> {
        const ROOM: NonZeroUsize = NonZeroUsize::new(EVENTS_MAX).expect("room for events");
        let watch = Watch::open(Rc::clone(&chain.readers), ROOM);
        Ok(Self(watch.map_err(MeasureError::io("Poller::add_with_mode"))?))
    }
}

impl Watcher for Polling {
    fn turn(&mut self, chain: &mut Pairs) -> Result<(), MeasureError> {
        self.0
            .look()
            .map_err(MeasureError::io("Poller::wait"))?
            .try_for_each(|index| chain.receive(index))
    }
}
