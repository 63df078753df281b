//! What workers wait for, and how.
//!
//! The measuring process opens the source and decides which process gets which end of it:
//!
//! | source | a request | its answer |
//! |---|---|---|
//! | queue | a message of 128 bytes, ten deep | a message in the caller's own queue, two deep |
//! | socket | a TCP connection and 128 bytes on it | 128 bytes, then the connection is closed |
//! | eventfd | 128 bytes in a pipe, then 1 added to the eventfd (a semaphore) | 128 bytes in the caller's own pipe |
//! | pipe | 128 bytes, written at once | 128 bytes in the caller's own pipe |
//!
//! The names of queues are removed as soon as all descriptors are open; the descriptors travel over a
//! [`pollux_host::ControlSocket`]. The worker's end is [`Intake`], the callers' end [`Requests`].
//!
//! A worker waits until there may be a request, or until it should end. Each way but blocking watches two descriptors:
//! the source, and the end of a pipe that is closed when the run is over. What follows a wake-up is the same for all.
//!
//! | way | watched by | requests taken after a wake-up |
//! |---|---|---|
//! | exclusive | an epoll instance of the worker, EPOLLIN and EPOLLEXCLUSIVE | one |
//! | epoll | the same without EPOLLEXCLUSIVE | one |
//! | edge | the same with EPOLLET | all, or the next edge would be waited for in vain |
//! | shared | one epoll instance of all workers, EPOLLIN | one |
//! | uring | a poll request of the worker's ring, with EPOLLEXCLUSIVE, made again for each wait | one |
//! | block | nothing: the receive, accept or read itself waits | one |

use std::ffi::CString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use pollux_engine::Driver;
use pollux_sys::epoll::{EpollEvent, wait};
use pollux_sys::mqueue::{MessageQueue, QueueSize};
use pollux_sys::ring::{Request, Ring, Shots, Sizes};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, VariantNames};

use super::requests::MESSAGE_BYTES;
use crate::arm::{Peer, missing_driver};
use crate::axis::Axes;
use crate::error::MeasureError;

/// Room of a message in a queue: twice what is sent.
const QUEUE_MESSAGE_BYTES: u32 = 256;
/// Depth of the queue of requests: the most that Linux allows without privilege.
const REQUESTS_DEPTH: u32 = 10;
/// Depth of a caller's queue of answers: it never has more than one call under way.
const ANSWERS_DEPTH: u32 = 2;
/// What the kernel adds to each message when it charges a queue to its user.
const QUEUE_OVERHEAD_BYTES: u64 = 96;
/// Connections that may wait for a worker; more than there can be callers.
const BACKLOG: i32 = 1024;
const _: () = assert!(MESSAGE_BYTES <= 4096);
/// What an event or a completion stands for.
const WORK: u64 = 0;
const END: u64 = 1;
/// The source and the end.
const EVENTS_MAX: usize = 2;
/// A timeout of `epoll_wait`.
const FOR_EVER: i32 = -1;
/// A ring for two requests.
const RING: Sizes = Sizes { submission: 4, completion: 8 };

/// An event source that many workers can wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, EnumString, VariantNames, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Source {
    /// A POSIX message queue.
    Queue,
    /// A listening TCP socket.
    Socket,
    /// An eventfd in semaphore mode.
    Eventfd,
    Pipe,
}

impl Source {
    /// That of a point, whose axes were checked when they were read.
    pub(super) fn of(axes: &Axes) -> Self {
        let word = axes.word("source").and_then(|word| word.parse().ok());
        word.expect("the axis has the words of this type")
    }

    /// Name in job files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::VARIANTS[self as usize]
    }
}

/// A source with its channels for answers, as descriptors for both sides.
#[derive(Debug)]
pub(super) struct Opened {
    /// For a worker: what it waits for, what it reads besides, then where each caller's answer goes.
    pub(super) workers: Vec<OwnedFd>,
    /// For the callers: where requests plan, then where each caller's answer comes from.
    pub(super) callers: Vec<OwnedFd>,
    /// Where a socket listens.
    pub(super) address: Option<SocketAddr>,
}

impl Opened {
    /// Opens `source` for so many callers. `blocks`: the worker's own read of it waits.
    pub(super) fn open(source: Source, callers: usize, blocks: bool) -> Result<Self, MeasureError> {
        match source {
            Source::Queue => queues(callers, blocks),
            Source::Socket => socket(blocks),
            Source::Eventfd => {
                let flags = EventfdFlags::SEMAPHORE | EventfdFlags::CLOEXEC;
                let flags = if blocks { flags } else { flags | EventfdFlags::NONBLOCK };
                let events = eventfd(0, flags).map_err(MeasureError::io("eventfd2"))?;
                let adds = cloned(&events)?;
                // What the eventfd counts lies in the pipe before it is counted.
                pipes(callers, false, Some((events, adds)))
            }
            Source::Pipe => pipes(callers, blocks, None),
        }
    }

    /// The worker's descriptors, to be sent.
    pub(super) fn for_workers(&self) -> Vec<BorrowedFd<'_>> {
        self.workers.iter().map(AsFd::as_fd).collect()
    }

    /// The callers' descriptors, to be sent.
    pub(super) fn for_callers(&self) -> Vec<BorrowedFd<'_>> {
        self.callers.iter().map(AsFd::as_fd).collect()
    }
}

fn queues(callers: usize, blocks: bool) -> Result<Opened, MeasureError> {
    let (requests, waiting) = queue(0, REQUESTS_DEPTH, callers)?;
    let mut opened = Opened { workers: Vec::new(), callers: Vec::new(), address: None };
    // A sender must never block on the queue that all workers wait for: what it leaves there when a
    // receiver takes a message wakes no worker (docs/findings.md).
    opened.callers.push(cloned(&requests)?);
    opened.workers.push(if blocks { waiting } else { requests }.into());
    for caller in 0..callers {
        let (answers, waiting) = queue(1 + caller, ANSWERS_DEPTH, callers)?;
        opened.workers.push(answers.into());
        opened.callers.push(waiting.into());
    }
    Ok(opened)
}

/// A new queue twice: a descriptor that never waits, and one that does. Its name is gone.
fn queue(
    number: usize,
    depth: u32,
    callers: usize,
) -> Result<(MessageQueue, MessageQueue), MeasureError> {
    let name = format!("/pollux-herd-{}-{number}", std::process::id());
    let name = CString::new(name).expect("no zero byte");
    let size = QueueSize { messages_max: depth, message_len_bytes: QUEUE_MESSAGE_BYTES };
    let made = MessageQueue::create(&name, size).map_err(|cause| MeasureError::Setup {
        what: queue_in_words(&cause, number, callers),
        cause,
    })?;
    let waiting = MessageQueue::open_blocking(&name);
    let unlinked = MessageQueue::unlink(&name);
    let setup = MeasureError::setup("a message queue");
    unlinked.map_err(setup)?;
    Ok((made, waiting.map_err(setup)?))
}

/// Which limit an errno of mq_open(3) is about.
fn queue_in_words(cause: &io::Error, number: usize, callers: usize) -> String {
    let number = number + 1;
    let count = callers + 1;
    let which = format!("message queue {number} of {count}");
    let errno = cause.raw_os_error().map(Errno::from_raw_os_error);
    match errno {
        Some(Errno::MFILE) => {
            let limit = getrlimit(Resource::Msgqueue).current;
            let limit = limit.map_or("unlimited".to_owned(), |bytes| format!("{bytes} bytes"));
            let needed = needed_bytes(callers as u64);
            format!(
                "{which}: RLIMIT_MSGQUEUE is {limit} for all queues of this user, this run needs \
                 {needed} of them (raise it with ulimit -q, or remove queues below /dev/mqueue)"
            )
        }
        Some(Errno::NOSPC) => format!(
            "{which}: fs.mqueue.queues_max is reached (raise it with sysctl, or remove queues below \
             /dev/mqueue)"
        ),
        Some(Errno::INVAL) => format!(
            "{which}: fs.mqueue.msg_max is below {REQUESTS_DEPTH} or fs.mqueue.msgsize_max below \
             {QUEUE_MESSAGE_BYTES} (raise them with sysctl)"
        ),
        _ => which,
    }
}

/// What the kernel charges the queues of a run to their user.
pub(super) const fn needed_bytes(callers: u64) -> u64 {
    let each = QUEUE_MESSAGE_BYTES as u64 + QUEUE_OVERHEAD_BYTES;
    (REQUESTS_DEPTH as u64 + callers * ANSWERS_DEPTH as u64) * each
}

fn socket(blocks: bool) -> Result<Opened, MeasureError> {
    let flags = SocketFlags::CLOEXEC;
    let flags = if blocks { flags } else { flags | SocketFlags::NONBLOCK };
    let listener = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
    let listener = listener.map_err(MeasureError::io("socket"))?;
    rustix::net::bind(&listener, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
        .map_err(MeasureError::io("bind"))?;
    rustix::net::listen(&listener, BACKLOG).map_err(MeasureError::io("listen"))?;
    let address = rustix::net::getsockname(&listener).map_err(MeasureError::io("getsockname"))?;
    let address = SocketAddr::try_from(address).map_err(MeasureError::io("getsockname"))?;
    Ok(Opened { workers: vec![listener], callers: Vec::new(), address: Some(address) })
}

/// A pipe for requests, behind an eventfd where there is one, and a pipe for each caller's answers.
fn pipes(
    callers: usize,
    blocks: bool,
    events: Option<(OwnedFd, OwnedFd)>,
) -> Result<Opened, MeasureError> {
    let pair = || pipe_with(PipeFlags::CLOEXEC).map_err(MeasureError::io("pipe2"));
    let (read, write) = pair()?;
    if !blocks {
        rustix::io::ioctl_fionbio(&read, true).map_err(MeasureError::io("ioctl"))?;
    }
    let mut workers = vec![read];
    let mut senders = vec![write];
    if let Some((waited, adds)) = events {
        workers.insert(0, waited);
        senders.insert(0, adds);
    }
    for _ in 0..callers {
        let (read, write) = pair()?;
        workers.push(write);
        senders.push(read);
    }
    Ok(Opened { workers, callers: senders, address: None })
}

fn cloned(fd: &impl AsFd) -> Result<OwnedFd, MeasureError> {
    let clone = fd.as_fd().try_clone_to_owned();
    clone.map_err(MeasureError::io("fcntl"))
}

// Written at once, so that no two requests mix: pipe(7) promises it up to 4096 bytes.
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

    pub(super) fn wait(&mut self) -> Result<Woken, MeasureError> {
        match self {
            Self::Epoll { epoll, events } => {
                let found = match wait(epoll.as_fd(), events, FOR_EVER) {
                    Ok(found) => found,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
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
        let events = events.bits();
        let shots = Shots::One;
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
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(MeasureError::Io { call: "io_uring_enter", cause }),
        }
        let mut woken = Woken::Work;
        while let Some(completion) = self.ring.next_completion() {
            if completion.result < 0 {
                let cause = io::Error::from_raw_os_error(-completion.result);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_named_with_its_remedy() {
        let words = |errno: Errno| queue_in_words(&errno.into(), 3, 10);
        assert!(words(Errno::MFILE).starts_with("message queue 4 of 11: RLIMIT_MSGQUEUE is "));
        assert!(words(Errno::MFILE).contains("needs 10560 of them"));
        assert!(words(Errno::NOSPC).contains("fs.mqueue.queues_max"));
        assert!(words(Errno::INVAL).contains("fs.mqueue.msg_max"));
        assert_eq!(words(Errno::ACCESS), "message queue 4 of 11");
    }

    #[test]
    fn both_sides_have_a_descriptor_for_each_caller() {
        for (source, own) in [(Source::Queue, 1), (Source::Eventfd, 2), (Source::Pipe, 1)] {
            let opened = Opened::open(source, 3, false).expect("opened");
            assert_eq!((opened.workers.len(), opened.callers.len()), (own + 3, own + 3));
        }
        let socket = Opened::open(Source::Socket, 3, true).expect("opened");
        assert!(socket.address.is_some_and(|address| address.port() > 0));
    }
}
