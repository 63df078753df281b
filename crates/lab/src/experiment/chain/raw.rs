//! The chain on bare level-triggered epoll: the floor for everything that waits for readiness.

use std::os::fd::OwnedFd;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use super::{Chain, EVENTS_MAX, Watcher};
use crate::error::MeasureError;

/// Returns at once with what there is.
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// An epoll instance on the readers of a chain.
pub(super) struct RawEpoll {
    epoll: OwnedFd,
    events: Vec<Event>,
}

impl RawEpoll {
    pub(super) fn open(chain: &Chain) -> Result<Self, MeasureError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC);
        let epoll = epoll.map_err(MeasureError::io("epoll_create1"))?;
        for (index, reader) in chain.readers.iter().enumerate() {
            epoll::add(&epoll, reader, EventData::new_u64(index as u64), EventFlags::IN)
                .map_err(MeasureError::io("epoll_ctl"))?;
        }
        Ok(Self { epoll, events: Vec::with_capacity(EVENTS_MAX) })
    }
}

impl Watcher for RawEpoll {
    fn turn(&mut self, chain: &mut Chain) -> Result<(), MeasureError> {
        let room = rustix::buffer::spare_capacity(&mut self.events);
        epoll::wait(&self.epoll, room, Some(&NOW)).map_err(MeasureError::io("epoll_wait"))?;
        for event in self.events.drain(..) {
            chain.receive(event.data.u64() as usize)?;
        }
        Ok(())
    }
}
