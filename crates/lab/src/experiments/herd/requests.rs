//! A request and its answer, 128 bytes of which two mean something, and a source with both of its ends.
//!
//! The worker takes requests and answers them, after each wait; nothing there waits where the source was
//! opened not to, but for the request on an accepted connection, which is under way already. The callers send
//! and wait for the answer; so does the measuring process, to end workers that block. Sending never blocks on
//! a queue that is full: it waits until a message fits and tries again, because a message that a blocked sender
//! leaves behind wakes no worker (docs/findings.md).

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use pollux_sys::mqueue::MessageQueue;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::sources::Source;
use crate::error::MeasureError;

/// Longest message that the queue allows.
const BUFFER_BYTES: usize = 256;
/// How long a full queue may stay full: no worker takes anything any more.
const FULL_MAX: Duration = Duration::from_secs(10);

/// Length of a request and of an answer.
pub(super) const MESSAGE_BYTES: usize = 128;

/// Where requests go; all callers share it.
#[derive(Debug)]
pub(super) enum Requests {
    /// A message queue.
    Queue(MessageQueue),
    /// A listening socket's address.
    Socket(SocketAddr),
    /// A pipe, and the eventfd that counts what lies in it.
    Eventfd {
        events: OwnedFd,
        pipe: OwnedFd,
    },
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

/// Where requests come from, and where answers plan.
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
}
