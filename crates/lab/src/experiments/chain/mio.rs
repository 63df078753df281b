//! The chain on mio: edge-triggered epoll behind the interface that most of Rust stands on.

use std::os::fd::AsRawFd;
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use super::{EVENTS_MAX, Pairs, Watcher};
use crate::error::MeasureError;

/// A `Poll` on the readers of a chain.
pub(super) struct Mio {
    poll: Poll,
    events: Events,
}

impl Mio {
    pub(super) fn open(chain: &Pairs) -> Result<Self, MeasureError> {
        let poll = Poll::new().map_err(MeasureError::io("Poll::new"))?;
        for (index, reader) in chain.readers.iter().enumerate() {
            let fd = reader.as_raw_fd();
            poll.registry()
                .register(&mut SourceFd(&fd), Token(index), Interest::READABLE)
                .map_err(MeasureError::io("Registry::register"))?;
        }
        Ok(Self { poll, events: Events::with_capacity(EVENTS_MAX) })
    }
}

impl Watcher for Mio {
    fn turn(&mut self, chain: &mut Pairs) -> Result<(), MeasureError> {
        self.poll
            .poll(&mut self.events, Some(Duration::ZERO))
            .map_err(MeasureError::io("Poll::poll"))?;
        self.events.iter().try_for_each(|event| chain.receive(event.token().0))
    }
}
