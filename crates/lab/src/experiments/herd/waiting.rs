//! How a worker waits until there may be a request, or until it should end.
//!
//! Each way but blocking watches two descriptors: the source, and the end of a pipe that is closed when the run is
//! over. What follows a wake-up is the same for all.
//!
//! | way | watched by | requests taken after a wake-up |
//! |---|---|---|
//! | exclusive | an epoll instance of the worker, EPOLLIN and EPOLLEXCLUSIVE | one |
//! | epoll | the same without EPOLLEXCLUSIVE | one |
//! | edge | the same with EPOLLET | all, or the next edge would be waited for in vain |
//! | shared | one epoll instance of all workers, EPOLLIN | one |
//! | uring | a poll request of the worker's ring, with EPOLLEXCLUSIVE, made again for each wait | one |
//! | block | nothing: the receive, accept or read itself waits | one |

use crate::arm::{Peer, missing_driver};
use crate::error::MeasureError;
use pollux_engine::Driver;
use pollux_sys::epoll::{EpollEvent, wait};
use pollux_sys::ring::{Request, Ring, Shots, Sizes};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use strum::{Display, EnumString, VariantNames};

/// What an event or a completion stands for.
const WORK: u64 = 0;
const END: u64 = 1;
/// The source and the end.
const EVENTS_MAX: usize = 2;
/// A timeout of `epoll_wait`.
const FOR_EVER: i32 = -1;
/// A ring for two requests.
const RING: Sizes = Sizes { submission: 4, completion: 8 };

/// Why a wait is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Woken {
    /// There may be a request.
    Work,
    /// The run is over.
    End,
}

/// A way of waiting, set up.
pub(super) enum Waiting {
    /// On an epoll instance.
    Epoll { epoll: OwnedFd, events: Vec<EpollEvent> },
    /// On a ring.
    Ring(Box<Polls>),
    /// Not here.
    Block,
}

/// The poll requests of a ring.
pub(super) struct Polls {
    ring: Ring,
    work: i32,
    is_armed: bool,
}

impl Waiting {
    /// Sets up `wait` for one worker; `shared` is the instance of all workers, where there is one.
    pub(super) fn open(
        wait: Wait,
        work: BorrowedFd<'_>,
        end: BorrowedFd<'_>,
        shared: Option<OwnedFd>,
    ) -> Result<Self, MeasureError> {
        let epoll = match (wait, shared) {
            (Wait::Block, _) => return Ok(Self::Block),
            (Wait::Uring, _) => return Ok(Self::Ring(Box::new(Polls::open(work, end)?))),
            (Wait::Shared, Some(shared)) => shared,
            (Wait::Shared, None) => {
                return Err(MeasureError::Protocol("no epoll instance came".to_owned()));
            }
            (Wait::Exclusive, _) => instance(work, end, EventFlags::EXCLUSIVE)?,
            (Wait::Epoll, _) => instance(work, end, EventFlags::empty())?,
            (Wait::Edge, _) => instance(work, end, EventFlags::ET)?,
        };
        Ok(Self::Epoll { epoll, events: vec![EpollEvent::NONE; EVENTS_MAX] })
    }

    /// Waits.
    pub(super) fn wait(&mut self) -> Result<Woken, MeasureError> {
        match self {
            Self::Epoll { epoll, events } => {
                let found = match wait(epoll.as_fd(), events, FOR_EVER) {
                    Ok(found) => found,
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => 0,
                    Err(cause) => return Err(MeasureError::Io { call: "epoll_wait", cause }),
                };
                let is_over = events[..found].iter().any(|event| event.data() == END);
                Ok(if is_over { Woken::End } else { Woken::Work })
            }
            Self::Ring(polls) => polls.wait(),
            Self::Block => Ok(Woken::Work),
        }
    }
}

impl Polls {
    fn open(work: BorrowedFd<'_>, end: BorrowedFd<'_>) -> Result<Self, MeasureError> {
        let ring = Ring::open(RING);
        let ring = ring.map_err(|refused| MeasureError::Setup {
            what: format!("a ring: {refused}"),
            cause: refused.cause,
        })?;
        let mut polls = Self { ring, work: work.as_raw_fd(), is_armed: false };
        polls.arm(end.as_raw_fd(), EventFlags::IN, END)?;
        Ok(polls)
    }

    fn arm(&mut self, fd: i32, events: EventFlags, user_data: u64) -> Result<(), MeasureError> {
        let (events, shots) = (events.bits(), Shots::One);
        let pushed = self.ring.push(Request::PollAdd { fd, events, shots, user_data });
        pushed.map_err(|_| MeasureError::Protocol("two requests fill the ring".to_owned()))
    }

    fn wait(&mut self) -> Result<Woken, MeasureError> {
        if !self.is_armed {
            // On arming the kernel looks whether there is something already.
            self.arm(self.work, EventFlags::IN | EventFlags::EXCLUSIVE, WORK)?;
            self.is_armed = true;
        }
        match self.ring.enter(1, None) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(MeasureError::Io { call: "io_uring_enter", cause }),
        }
        let mut woken = Woken::Work;
        while let Some(completion) = self.ring.next_completion() {
            if completion.result < 0 {
                let cause = std::io::Error::from_raw_os_error(-completion.result);
                return Err(MeasureError::Io { call: "a poll request", cause });
            }
            match completion.user_data {
                END => woken = Woken::End,
                _ => self.is_armed = false,
            }
        }
        Ok(woken)
    }
}

/// An epoll instance on a source, watched in this way, and on the end.
pub(super) fn instance(
    work: BorrowedFd<'_>,
    end: BorrowedFd<'_>,
    how: EventFlags,
) -> Result<OwnedFd, MeasureError> {
    let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(MeasureError::io("epoll_create1"))?;
    epoll::add(&epoll, work, EventData::new_u64(WORK), EventFlags::IN | how)
        .map_err(MeasureError::io("epoll_ctl"))?;
    epoll::add(&epoll, end, EventData::new_u64(END), EventFlags::IN)
        .map_err(MeasureError::io("epoll_ctl"))?;
    Ok(epoll)
}

/// A way of waiting.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Debug,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    VariantNames,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub(super) enum Wait {
    /// An epoll instance for each worker, EPOLLEXCLUSIVE.
    Exclusive,
    /// An epoll instance for each worker, level-triggered: what the published servers did before.
    Epoll,
    /// The same, edge-triggered.
    Edge,
    /// One level-triggered epoll instance for all workers.
    Shared,
    /// No poller: a receive, accept or read that blocks.
    Block,
    /// An exclusive poll request of io_uring, with a ring for each worker.
    Uring,
}

impl Wait {
    /// Name of the arm, and in job files.
    pub(super) const fn name(self) -> &'static str {
        <Self as VariantNames>::VARIANTS[self as usize]
    }

    /// As an arm.
    pub(super) const fn way(self) -> Peer {
        match self {
            Self::Uring => {
                Peer { name: self.name(), missing: || missing_driver(Driver::Completion) }
            }
            _ => Peer::of_pollux(self.name()),
        }
    }
}
