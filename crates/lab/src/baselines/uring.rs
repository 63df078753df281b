//! `raw-uring`: one thread, one ring, one system call for a turn while connections are kept.
//!
//! Accepts and receives stay armed, receives take buffers that all connections share, replies are
//! copied into the arena of the turn and sent from there. A reply that the socket does not take
//! whole ends the connection, as in `raw-epoll`.
//!
//! A connection is ended by shutdown(2) once its reply was submitted. The ring's own request would
//! be carried out by a worker thread, which looks the descriptor up only then: by that time its
//! number may be another connection's.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use pollux_sys::ring::{
    QueueFull, ReceiveBuffers, Received, Shots, Sizes, StreamCompletion, StreamRing, StreamSizes,
};

use crate::baselines::BaselineError;
use crate::baselines::reply::{Replies, Unfinished};

/// The ring. Two of the longest answers fit into the arena.
const SIZES: StreamSizes = StreamSizes {
    ring: Sizes { submission: 4096, completion: 32_768 },
    receive: ReceiveBuffers::whole(4096, 4096),
    otherwise: None,
    arena_bytes: 2 << 20,
};
/// Numbers of requests: a receive carries its descriptor, the others a mark above it.
const MARKS: u64 = !0 << 32;
const ACCEPT: u64 = 1 << 32;
const SEND: u64 = 2 << 32;
const END: u64 = 3 << 32;

/// A connection, with what has come of a request that is not whole.
struct Connection {
    socket: OwnedFd,
    unfinished: Unfinished,
}

pub(super) struct Server<'a> {
    ring: StreamRing,
    listener: &'a OwnedFd,
    replies: &'a Replies,
    /// By descriptor.
    connections: Vec<Option<Connection>>,
    /// Connections whose last reply is queued.
    ending: Vec<RawFd>,
}

impl<'a> Server<'a> {
    /// Opens the ring, which accepts from then on.
    pub(super) fn open(listener: &'a OwnedFd, replies: &'a Replies) -> Result<Self, BaselineError> {
        let ring = StreamRing::open(SIZES).map_err(|refused| BaselineError::Setup {
            what: format!("a ring ({refused})"),
            cause: io::Error::other("io_uring is not available"),
        })?;
        // A ring waits for connections by itself; the socket must not say that there are none.
        rustix::io::ioctl_fionbio(listener, false).map_err(BaselineError::io("ioctl"))?;
        let connections = Vec::new();
        let ending = Vec::new();
        let mut server = Self { ring, listener, replies, connections, ending };
        server.accept()?;
        Ok(server)
    }

    /// Answers until the process is ended.
    pub(super) fn serve(&mut self) -> Result<(), BaselineError> {
        loop {
            match self.ring.enter(1, None) {
                Err(cause) if cause.kind() != io::ErrorKind::Interrupted => {
                    return Err(entered(cause));
                }
                _ => {}
            }
            self.ring.reset_arena();
            while let Some(completion) = self.ring.next_completion() {
                self.complete(completion)?;
            }
            self.end_connections()?;
        }
    }

    #[inline]
    fn complete(&mut self, completion: StreamCompletion) -> Result<(), BaselineError> {
        let fd = completion.user_data as u32 as RawFd;
        match completion.user_data & MARKS {
            ACCEPT => self.accepted(completion),
            // Sends complete only when they were cut short or failed.
            SEND => {
                self.ending.push(fd);
                Ok(())
            }
            END => Ok(()),
            _ => self.received(fd, completion),
        }
    }

    fn accept(&mut self) -> Result<(), BaselineError> {
        let listener = self.listener.as_raw_fd();
        self.queue(|ring| ring.accept(listener, Shots::Many, ACCEPT).map(|_| ()))
    }

    fn accepted(&mut self, mut completion: StreamCompletion) -> Result<(), BaselineError> {
        if let Some(socket) = completion.accepted() {
            let fd = socket.as_raw_fd();
            let index = fd as usize;
            if self.connections.len() <= index {
                self.connections.resize_with(index + 1, || None);
            }
            self.connections[index] =
                Some(Connection { socket, unfinished: Unfinished::default() });
            self.receive(fd)?;
        }
        if completion.has_more { Ok(()) } else { self.accept() }
    }

    fn receive(&mut self, fd: RawFd) -> Result<(), BaselineError> {
        self.queue(|ring| ring.receive(fd, Shots::Many, fd as u64))
    }

    #[inline]
    fn received(&mut self, fd: RawFd, completion: StreamCompletion) -> Result<(), BaselineError> {
        let is_out_of_buffers = completion.result == -rustix::io::Errno::NOBUFS.raw_os_error();
        match completion.received {
            Some(received) => self.answer(fd, received)?,
            None if is_out_of_buffers => {}
            // The end of the stream or an error: nothing is armed any more.
            None => return self.close(fd),
        }
        if completion.has_more { Ok(()) } else { self.receive(fd) }
    }

    #[inline]
    fn answer(&mut self, fd: RawFd, received: Received) -> Result<(), BaselineError> {
        let Some(connection) = &mut self.connections[fd as usize] else {
            self.ring.give_back(received);
            return Ok(());
        };
        let replies = self.replies;
        let answer = replies.answer(self.ring.bytes(&received), &mut connection.unfinished);
        self.ring.give_back(received);
        let Some(answer) = answer else { return Ok(()) };
        let mut bytes = answer.bytes;
        let mut unanswered = answer.unanswered;
        while !bytes.is_empty() {
            self.send(fd, bytes)?;
            bytes = replies.further(&mut unanswered);
        }
        if answer.is_last {
            self.ending.push(fd);
        }
        Ok(())
    }

    #[inline]
    fn send(&mut self, fd: RawFd, bytes: &[u8]) -> Result<(), BaselineError> {
        if self.ring.spare().len() < bytes.len() {
            self.submit()?;
        }
        self.queue(|ring| {
            ring.spare()[..bytes.len()].copy_from_slice(bytes);
            ring.send_spare(fd, bytes.len(), SEND | fd as u64).map(|_| ())
        })
    }

    /// Ends the connections whose last reply is on its way; their receives then end by themselves.
    fn end_connections(&mut self) -> Result<(), BaselineError> {
        if self.ending.is_empty() {
            return Ok(());
        }
        self.submit()?;
        for fd in self.ending.drain(..) {
            if let Some(connection) = &self.connections[fd as usize] {
                // One that the client has ended already says so by an error.
                let _ = rustix::net::shutdown(&connection.socket, rustix::net::Shutdown::Both);
            }
        }
        Ok(())
    }

    fn close(&mut self, fd: RawFd) -> Result<(), BaselineError> {
        let Some(connection) = self.connections[fd as usize].take() else { return Ok(()) };
        // Its number may be another connection's before the turn is over.
        self.ending.retain(|ending| *ending != fd);
        // Where the queue is full the descriptor is closed by dropping it.
        let _ = self.ring.close(connection.socket, END);
        Ok(())
    }

    /// Queues a request; where the queue is full, after what it holds was submitted.
    #[inline]
    fn queue(
        &mut self,
        request: impl Fn(&mut StreamRing) -> Result<(), QueueFull>,
    ) -> Result<(), BaselineError> {
        if request(&mut self.ring).is_ok() {
            return Ok(());
        }
        self.submit()?;
        request(&mut self.ring).map_err(|_| {
            BaselineError::Ring("the queue of a ring is full right after it was submitted".into())
        })
    }

    fn submit(&mut self) -> Result<(), BaselineError> {
        self.ring.submit().map_err(entered)?;
        self.ring.reset_arena();
        Ok(())
    }
}

fn entered(cause: io::Error) -> BaselineError {
    BaselineError::Io { call: "io_uring_enter", cause }
}
