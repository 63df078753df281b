//! The chain on bare level-triggered epoll: the baseline for everything that waits for readiness.

use std::os::fd::{AsFd, OwnedFd};

use pollux_sys::epoll::{EpollEvent, wait};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::{EVENTS_MAX, Pairs, Watcher};
use crate::error::MeasureError;

/// An epoll instance on the readers of a chain.
pub(super) struct RawEpoll {
    epoll: OwnedFd,
    events: Vec<EpollEvent>,
}

impl RawEpoll {
    pub(super) fn open(chain: &Pairs) -> Result<Self, MeasureError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC);
        let epoll = epoll.map_err(MeasureError::io("epoll_create1"))?;
        for (index, reader) in chain.readers.iter().enumerate() {
            epoll::add(&epoll, reader, EventData::new_u64(index as u64), EventFlags::IN)
                .map_err(MeasureError::io("epoll_ctl"))?;
        }
        Ok(Self { epoll, events: vec![EpollEvent::NONE; EVENTS_MAX] })
    }
}

impl Watcher for RawEpoll {
    fn turn(&mut self, chain: &mut Pairs) -> Result<(), MeasureError> {
        let found = wait(self.epoll.as_fd(), &mut self.events, 0);
        let found = found.map_err(MeasureError::io("epoll_wait"))?;
        self.events[..found].iter().try_for_each(|event| chain.receive(event.data() as usize))
    }
}
