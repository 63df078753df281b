//! The worker's end of a source: what it waits for, how it takes one request and answers it.
//!
//! Called by `worker` after each wait. Nothing here waits where the source was opened not to; the
//! request on an accepted connection is the one exception, as it is under way already.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use pollux_sys::mqueue::MessageQueue;
use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::message::{Bytes, MESSAGE_BYTES, Message, Purpose};
use super::source::Source;
use crate::error::MeasureError;

/// Longest message that the queue allows.
const BUFFER_BYTES: usize = 256;

/// Where requests come from, and where answers go.
pub(super) struct Intake {
    requests: Requests,
    answers: Vec<OwnedFd>,
}

enum Requests {
    Queue { requests: MessageQueue, answers: Vec<MessageQueue> },
    Socket(OwnedFd),
    Eventfd { events: OwnedFd, pipe: OwnedFd },
    Pipe(OwnedFd),
}

impl Intake {
    /// Puts the descriptors of [`super::source::Opened::for_workers`] in their places.
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
                Requests::Queue { requests, answers }
            }
            Source::Socket => Requests::Socket(next()?),
            Source::Eventfd => Requests::Eventfd { events: next()?, pipe: next()? },
            Source::Pipe => Requests::Pipe(next()?),
        };
        Ok(Self { requests, answers: fds.collect() })
    }

    /// What to wait for.
    pub(super) fn waited_for(&self) -> BorrowedFd<'_> {
        match &self.requests {
            Requests::Queue { requests, .. } => requests.as_fd(),
            Requests::Socket(fd) | Requests::Eventfd { events: fd, .. } | Requests::Pipe(fd) => {
                fd.as_fd()
            }
        }
    }

    /// Takes one request and answers it, unless it says stop; none when there was none to take.
    pub(super) fn serve(&self) -> Result<Option<Message>, MeasureError> {
        match &self.requests {
            Requests::Queue { requests, answers } => {
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
            Requests::Socket(listener) => accepted(listener),
            Requests::Eventfd { events, pipe } => {
                if taken(rustix::io::read(events, &mut [0; 8]).map_err(io::Error::from))?.is_none()
                {
                    return Ok(None);
                }
                let message = self.piped(pipe)?;
                let lost = || MeasureError::Protocol("counted, but not in the pipe".to_owned());
                message.map(Some).ok_or_else(lost)
            }
            Requests::Pipe(pipe) => self.piped(pipe),
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
