//! `raw-epoll`: one thread, one edge-triggered epoll, one buffer.
//!
//! A connection is registered once and never changed. An edge is read until a read comes back
//! short, or to the end of the stream where the edge says that the peer has finished: its data
//! and its end may share one edge, and a second one would not come. A reply that the socket does
//! not take whole ends the connection: constants are small, and a baseline server does not queue.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use pollux_sys::epoll::{EpollEvent, wait};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags};

use crate::baselines::BaselineError;
use crate::baselines::reply::{Replies, Unfinished};

/// Events that one wait may bring.
const EVENTS_MAX: usize = 512;
/// Room for what one read brings: more than the pipelined requests of any generator.
const BUFFER_BYTES: usize = 64 << 10;
/// Stands for the listener: no descriptor has this number.
const LISTENER: u64 = u64::MAX;

/// A timeout of `epoll_wait`.
const FOR_EVER: i32 = -1;
/// The flags of a peer that has ended.
const ENDED: u32 = EventFlags::RDHUP.union(EventFlags::HUP).bits();

/// A connection, with what has come of a request that is not whole.
struct Connection {
    socket: OwnedFd,
    unfinished: Unfinished,
}

/// What is left of a connection after an edge.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    Open,
    Closed,
}

pub(super) struct Server<'a> {
    epoll: OwnedFd,
    listener: &'a OwnedFd,
    replies: &'a Replies,
}

impl<'a> Server<'a> {
    /// Opens the epoll, which watches the listener from then on.
    pub(super) fn open(listener: &'a OwnedFd, replies: &'a Replies) -> Result<Self, BaselineError> {
        let epoll =
            epoll::create(CreateFlags::CLOEXEC).map_err(BaselineError::io("epoll_create1"))?;
        epoll::add(&epoll, listener, EventData::new_u64(LISTENER), EventFlags::IN)
            .map_err(BaselineError::io("epoll_ctl"))?;
        Ok(Self { epoll, listener, replies })
    }

    /// Answers until the process is ended.
    pub(super) fn serve(&mut self) -> Result<(), BaselineError> {
        let mut connections: Vec<Option<Connection>> = Vec::new();
        let mut events = vec![EpollEvent::NONE; EVENTS_MAX];
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let found = match wait(self.epoll.as_fd(), &mut events, FOR_EVER) {
                Ok(found) => found,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(cause) => return Err(BaselineError::Io { call: "epoll_wait", cause }),
            };
            for event in &events[..found] {
                let data = event.data();
                if data == LISTENER {
                    accept_all(&self.epoll, self.listener, &mut connections)?;
                    continue;
                }
                let slot = &mut connections[data as usize];
                let Some(connection) = slot else { continue };
                let has_ended = event.flags() & ENDED != 0;
                if answer(connection, has_ended, self.replies, &mut buffer) == After::Closed {
                    *slot = None;
                }
            }
        }
    }
}

fn accept_all(
    epoll: &OwnedFd,
    listener: &OwnedFd,
    connections: &mut Vec<Option<Connection>>,
) -> Result<(), BaselineError> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    loop {
        let socket = match rustix::net::accept_with(listener, flags) {
            Ok(socket) => socket,
            Err(Errno::AGAIN) => return Ok(()),
            Err(Errno::CONNABORTED | Errno::INTR) => continue,
            Err(errno) => return Err(BaselineError::io("accept4")(errno)),
        };
        let index = socket.as_raw_fd() as usize;
        let interest = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(epoll, &socket, EventData::new_u64(index as u64), interest)
            .map_err(BaselineError::io("epoll_ctl"))?;
        if connections.len() <= index {
            connections.resize_with(index + 1, || None);
        }
        connections[index] = Some(Connection { socket, unfinished: Unfinished::default() });
    }
}

/// Reads what an edge brought and answers it.
#[inline]
fn answer(
    connection: &mut Connection,
    has_ended: bool,
    replies: &Replies,
    buffer: &mut [u8],
) -> After {
    loop {
        let len = match rustix::net::recv(&connection.socket, &mut *buffer, RecvFlags::empty()) {
            Ok((_, len @ 1..)) => len,
            Err(Errno::AGAIN) => return After::Open,
            Err(Errno::INTR) => continue,
            Ok(_) | Err(_) => return After::Closed,
        };
        if let Some(answer) = replies.answer(&buffer[..len], &mut connection.unfinished) {
            let mut bytes = answer.bytes;
            let mut unanswered = answer.unanswered;
            while !bytes.is_empty() {
                match rustix::net::send(&connection.socket, bytes, SendFlags::NOSIGNAL) {
                    Ok(sent) if sent == bytes.len() => {}
                    Ok(_) | Err(_) => return After::Closed,
                }
                bytes = replies.further(&mut unanswered);
            }
            if answer.is_last {
                return After::Closed;
            }
        }
        if len < buffer.len() && !has_ended {
            return After::Open;
        }
    }
}
