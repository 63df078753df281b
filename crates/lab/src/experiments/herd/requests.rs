//! The callers' end of a source: sending a request, and waiting for its answer.
//!
//! Used by the threads of `callers`, and by the measuring process, which sends what ends workers
//! that block. Sending never blocks on a queue that is full: it waits until there is room and tries
//! again, because a message that a blocked sender leaves behind wakes nobody (docs/herd.md).

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use pollux_sys::mqueue::MessageQueue;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::message::{Bytes, MESSAGE_BYTES, Message};
use super::source::Source;
use crate::error::MeasureError;

/// Longest message that the queue allows.
const BUFFER_BYTES: usize = 256;
/// How long a full queue may stay full: nobody takes anything any more.
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
    /// Puts the descriptors of [`super::source::Opened::for_callers`] in their places: the requests,
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
            Self::Queue(queue) => send_when_there_is_room(queue, &bytes).map(|()| None),
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

fn send_when_there_is_room(queue: &MessageQueue, bytes: &Bytes) -> Result<(), MeasureError> {
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
