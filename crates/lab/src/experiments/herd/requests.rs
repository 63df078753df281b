//! A request and its answer, 128 bytes of which two mean something, and a source with both of its ends.
//!
//! The worker takes requests and answers them, after each wait; nothing there waits where the source was
//! opened not to, but for the request on an accepted connection, which is under way already. The callers send
//! and wait for the answer; so does the measuring process, to end workers that block. Sending never blocks on
//! a queue that is full: it waits until a message fits and tries again, because a message that a blocked sender
//! leaves behind wakes no worker (docs/herd.md).

use std::ffi::CString;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use pollux_sys::mqueue::{MessageQueue, QueueSize};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};
use strum::{EnumString, VariantNames};

use crate::axis::Axes;
use crate::error::MeasureError;

/// Longest message that the queue allows.
const BUFFER_BYTES: usize = 256;
/// How long a full queue may stay full: no worker takes anything any more.
const FULL_MAX: Duration = Duration::from_secs(10);

/// Where requests go; all callers share it.
#[derive(Debug)]
pub(super) enum Requests {
    /// A message queue.
    Queue(MessageQueue),
    /// A listening socket's address.
    Socket(SocketAddr),
    /// A pipe, and the eventfd that counts what lies in it.
    Eventfd { events: OwnedFd, pipe: OwnedFd },
    /// A pipe.
    Pipe(OwnedFd),
}

/// Where one caller's answers come from.
#[derive(Debug)]
pub(super) enum Answers {
    /// Its queue, whose receive waits.
    Queue(MessageQueue),
    /// Its pipe, whose read waits.
    Pipe(OwnedFd),
    /// The connection of each request.
    Connection,
}

impl Requests {
    /// Sorts the descriptors of [`Opened::for_callers`]: the requests,
    /// and the answers of each caller.
    pub(super) fn new(
        source: Source,
        address: Option<SocketAddr>,
        fds: Vec<OwnedFd>,
        callers: usize,
    ) -> Result<(Self, Vec<Answers>), MeasureError> {
        let lacking = || MeasureError::Protocol("too few descriptors came".to_owned());
        let mut fds = fds.into_iter();
        let mut next = || fds.next().ok_or_else(lacking);
        let requests = match source {
            Source::Queue => Self::Queue(next()?.into()),
            Source::Socket => Self::Socket(address.ok_or_else(lacking)?),
            Source::Eventfd => Self::Eventfd { events: next()?, pipe: next()? },
            Source::Pipe => Self::Pipe(next()?),
        };
        let answers = match source {
            Source::Queue => fds.map(|fd| Answers::Queue(fd.into())).collect(),
            Source::Socket => (0..callers).map(|_| Answers::Connection).collect(),
            Source::Eventfd | Source::Pipe => fds.map(Answers::Pipe).collect(),
        };
        Ok((requests, answers))
    }

    /// Sends one request; gives the connection, where the answer comes over it.
    pub(super) fn send(&self, message: Message) -> Result<Option<TcpStream>, MeasureError> {
        let bytes = message.bytes();
        match self {
            Self::Queue(queue) => send_when_it_fits(queue, &bytes).map(|()| None),
            Self::Socket(address) => connected(*address, &bytes).map(Some),
            Self::Eventfd { events, pipe } => {
                written(pipe, &bytes)?;
                written(events, &1u64.to_ne_bytes())?;
                Ok(None)
            }
            Self::Pipe(pipe) => written(pipe, &bytes).map(|()| None),
        }
    }

    /// One call: a request and its answer.
    pub(super) fn call(&self, answers: &Answers, message: Message) -> Result<(), MeasureError> {
        let connection = self.send(message)?;
        let mut buffer = [0; BUFFER_BYTES];
        let len = match (answers, connection) {
            (Answers::Queue(queue), _) => again(|| queue.receive(&mut buffer).map(|(len, _)| len)),
            (Answers::Pipe(pipe), _) => again(|| Ok(rustix::io::read(pipe, &mut buffer)?)),
            (Answers::Connection, Some(mut connection)) => again(|| connection.read(&mut buffer)),
            (Answers::Connection, None) => unreachable!("a socket's request has a connection"),
        };
        let len = len.map_err(MeasureError::io("waiting for an answer"))?;
        let expected = message.bytes();
        if buffer[..len] != expected {
            return Err(MeasureError::Protocol(format!(
                "caller {} was given another's answer, or {len} bytes of {MESSAGE_BYTES}",
                message.caller
            )));
        }
        Ok(())
    }
}

fn send_when_it_fits(queue: &MessageQueue, bytes: &Bytes) -> Result<(), MeasureError> {
    let patience = Timespec::try_from(FULL_MAX).expect("some seconds");
    loop {
        match queue.send(bytes, 0) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(MeasureError::Io { call: "mq_send", cause }),
        }
        match poll(&mut [PollFd::new(queue, PollFlags::OUT)], Some(&patience)) {
            Ok(0) => return Err(MeasureError::Silent(FULL_MAX, "while the queue was full")),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(MeasureError::io("poll")(errno)),
        }
    }
}

/// A new connection with the request on it. It is reset when it is dropped: a port that lingers
/// after each call would be used up within seconds.
fn connected(address: SocketAddr, bytes: &Bytes) -> Result<TcpStream, MeasureError> {
    let failed = |call| move |cause| MeasureError::Io { call, cause };
    let mut connection = TcpStream::connect(address).map_err(failed("connect"))?;
    rustix::net::sockopt::set_socket_linger(&connection, Some(Duration::ZERO))
        .map_err(MeasureError::io("setsockopt"))?;
    connection.write_all(bytes).map_err(failed("write of a request"))?;
    Ok(connection)
}

/// Pipes and eventfds take it at once: callers are few, and each has one request under way.
fn written(fd: &OwnedFd, bytes: &[u8]) -> Result<(), MeasureError> {
    let wrote = again(|| Ok(rustix::io::write(fd, bytes)?));
    match wrote {
        Ok(len) if len == bytes.len() => Ok(()),
        Ok(len) => Err(MeasureError::Protocol(format!("{len} of {} bytes written", bytes.len()))),
        Err(cause) => Err(MeasureError::Io { call: "write of a request", cause }),
    }
}

/// Repeats a call that a signal interrupted.
fn again<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Length of a request and of an answer.
pub(super) const MESSAGE_BYTES: usize = 128;

/// The bytes of a message.
pub(super) type Bytes = [u8; MESSAGE_BYTES];

/// What a request is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// A call before the window.
    Ramp,
    /// A call in it.
    Window,
    /// The worker that takes it ends, unanswered.
    Stop,
}

/// What the two bytes say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Message {
    /// Number of the caller.
    pub(super) caller: u8,
    /// What it is for.
    pub(super) purpose: Purpose,
}

impl Message {
    /// The message as it travels.
    pub(super) fn bytes(self) -> Bytes {
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[0] = self.caller;
        bytes[1] = self.purpose as u8;
        bytes
    }

    /// Reads what travelled.
    pub(super) fn read(bytes: &Bytes) -> Result<Self, MeasureError> {
        let purposes = [Purpose::Ramp, Purpose::Window, Purpose::Stop];
        let purpose = purposes.into_iter().find(|purpose| *purpose as u8 == bytes[1]);
        let purpose = purpose.ok_or_else(|| {
            MeasureError::Protocol(format!("a request with the purpose {}", bytes[1]))
        })?;
        Ok(Self { caller: bytes[0], purpose })
    }
}

/// Where requests come from, and where answers go.
pub(super) struct Intake {
    requests: Incoming,
    answers: Vec<OwnedFd>,
}

enum Incoming {
    Queue { requests: MessageQueue, answers: Vec<MessageQueue> },
    Socket(OwnedFd),
    Eventfd { events: OwnedFd, pipe: OwnedFd },
    Pipe(OwnedFd),
}

impl Intake {
    /// Sorts the descriptors of [`Opened::for_workers`].
    pub(super) fn new(source: Source, fds: Vec<OwnedFd>) -> Result<Self, MeasureError> {
        let mut fds = fds.into_iter();
        let mut next = || {
            let lacking = || MeasureError::Protocol("too few descriptors came".to_owned());
            fds.next().ok_or_else(lacking)
        };
        let requests = match source {
            Source::Queue => {
                let requests = next()?.into();
                let answers = fds.by_ref().map(MessageQueue::from).collect();
                Incoming::Queue { requests, answers }
            }
            Source::Socket => Incoming::Socket(next()?),
            Source::Eventfd => Incoming::Eventfd { events: next()?, pipe: next()? },
            Source::Pipe => Incoming::Pipe(next()?),
        };
        Ok(Self { requests, answers: fds.collect() })
    }

    /// What to wait for.
    pub(super) fn waited_for(&self) -> BorrowedFd<'_> {
        match &self.requests {
            Incoming::Queue { requests, .. } => requests.as_fd(),
            Incoming::Socket(fd) | Incoming::Eventfd { events: fd, .. } | Incoming::Pipe(fd) => {
                fd.as_fd()
            }
        }
    }

    /// Takes one request and answers it, unless it says stop; none when there was none to take.
    pub(super) fn serve(&self) -> Result<Option<Message>, MeasureError> {
        match &self.requests {
            Incoming::Queue { requests, answers } => {
                let mut buffer = [0; BUFFER_BYTES];
                let Some(len) = taken(requests.receive(&mut buffer).map(|(len, _)| len))? else {
                    return Ok(None);
                };
                let (bytes, message) = whole(&buffer[..len])?;
                if message.purpose != Purpose::Stop {
                    let answers = of_caller(answers, message)?;
                    answers.send(&bytes, 0).map_err(failed("mq_send of an answer"))?;
                }
                Ok(Some(message))
            }
            Incoming::Socket(listener) => accepted(listener),
            Incoming::Eventfd { events, pipe } => {
                if taken(rustix::io::read(events, &mut [0; 8]).map_err(io::Error::from))?.is_none()
                {
                    return Ok(None);
                }
                let message = self.piped(pipe)?;
                let lost = || MeasureError::Protocol("counted, but not in the pipe".to_owned());
                message.map(Some).ok_or_else(lost)
            }
            Incoming::Pipe(pipe) => self.piped(pipe),
        }
    }

    fn piped(&self, pipe: &OwnedFd) -> Result<Option<Message>, MeasureError> {
        let mut buffer = [0; MESSAGE_BYTES];
        let read = rustix::io::read(pipe, &mut buffer).map_err(io::Error::from);
        let Some(len) = taken(read)? else { return Ok(None) };
        let (bytes, message) = whole(&buffer[..len])?;
        if message.purpose != Purpose::Stop {
            let answers = of_caller(&self.answers, message)?;
            rustix::io::write(answers, &bytes).map_err(MeasureError::io("write of an answer"))?;
        }
        Ok(Some(message))
    }
}

/// One connection from its accept to its close.
fn accepted(listener: &OwnedFd) -> Result<Option<Message>, MeasureError> {
    let connection = rustix::net::accept_with(listener, SocketFlags::CLOEXEC);
    let Some(connection) = taken(connection.map_err(io::Error::from))? else { return Ok(None) };
    let mut buffer = [0; MESSAGE_BYTES];
    let len = loop {
        match rustix::io::read(&connection, &mut buffer) {
            Ok(len) => break len,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(MeasureError::io("read of a request")(errno)),
        }
    };
    // Sent by one write, and far shorter than a segment.
    let (bytes, message) = whole(&buffer[..len])?;
    if message.purpose != Purpose::Stop {
        rustix::io::write(&connection, &bytes).map_err(MeasureError::io("write of an answer"))?;
    }
    Ok(Some(message))
}

/// What was taken; none where there was nothing, or a signal came first.
fn taken<T>(result: io::Result<T>) -> Result<Option<T>, MeasureError> {
    match result {
        Ok(taken) => Ok(Some(taken)),
        Err(error) => match error.kind() {
            // A connection that is gone before it was accepted is none.
            io::ErrorKind::WouldBlock
            | io::ErrorKind::Interrupted
            | io::ErrorKind::ConnectionAborted => Ok(None),
            _ => Err(failed("taking a request")(error)),
        },
    }
}

fn failed(call: &'static str) -> impl Fn(io::Error) -> MeasureError {
    move |cause| MeasureError::Io { call, cause }
}

fn whole(bytes: &[u8]) -> Result<(Bytes, Message), MeasureError> {
    let len = bytes.len();
    let bytes: Bytes = bytes
        .try_into()
        .map_err(|_| MeasureError::Protocol(format!("a request of {len} bytes")))?;
    Ok((bytes, Message::read(&bytes)?))
}

fn of_caller<T>(answers: &[T], message: Message) -> Result<&T, MeasureError> {
    let caller = message.caller;
    answers
        .get(usize::from(caller))
        .ok_or_else(|| MeasureError::Protocol(format!("a request of the unknown caller {caller}")))
}

// What workers wait for, opened by the measuring process, and which process gets which end of it.
//
// | source | a request | its answer |
// |---|---|---|
// | queue | a message of 128 bytes, ten deep | a message in the caller's own queue, two deep |
// | socket | a TCP connection and 128 bytes on it | 128 bytes, then the connection is closed |
// | eventfd | 128 bytes in a pipe, then 1 added to the eventfd (a semaphore) | 128 bytes in the caller's own pipe |
// | pipe | 128 bytes, written at once | 128 bytes in the caller's own pipe |
//
// The names of queues are removed as soon as all descriptors are open; the descriptors travel over
// a [`pollux_processes::ControlSocket`]. The worker's end is [`Intake`], the callers' end [`Requests`].

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
    /// A pipe.
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
    /// For the callers: where requests go, then where each caller's answer comes from.
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
    // receiver takes a message wakes no worker (docs/herd.md).
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
    let (number, count) = (number + 1, callers + 1);
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
    let (mut workers, mut senders) = (vec![read], vec![write]);
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
const _: () = assert!(MESSAGE_BYTES <= 4096);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_travelled_is_what_was_sent() {
        for purpose in [Purpose::Ramp, Purpose::Window, Purpose::Stop] {
            let sent = Message { caller: 63, purpose };
            assert_eq!(Message::read(&sent.bytes()).expect("a message"), sent);
        }
        assert!(Message::read(&[9; MESSAGE_BYTES]).is_err());
    }

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
