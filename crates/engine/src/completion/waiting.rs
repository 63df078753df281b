//! Output that waits for its peer on the completion loop, files and pipes.
//!
//! Bytes go to the ring as a request that owns them and comes back when the socket has taken
//! some. A file is sent by `sendfile(2)` as on a readiness loop, its head by `send(2)` with it, and a
//! poll when the socket is full: the kernel has no request that sends from a file without a worker
//! thread, and reading it into buffers first took four times the CPU. What is in a pipe is sent by
//! splice(2) in the same way. One request of a connection is under way.

use std::os::fd::{AsFd, AsRawFd};

use pollux_poller::Token;
use pollux_sys::ring::{InFlight, QueueFull, Shots, StreamCompletion};

use super::CompletionLoop;
use super::slots::{Kind, label, numbered};
use super::turns::errno;
use crate::ending::Tail;
use crate::output::{Flushed, Output, Piece, UnderWay, broken};
use crate::{ConnectionId, Counter, Session};

/// `poll(2)` bit: something is in the socket, or its peer has ended.
pub(super) const POLLIN: u32 = 1;
/// `poll(2)` bit: the socket is writable.
pub(super) const POLLOUT: u32 = 4;

impl<S: Session> CompletionLoop<S> {
    /// Sends the next piece of what waits; when all of it has left, the session continues.
    pub(super) fn flush(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        let Tail::Waiting(output) = &mut connection.tail else { return };
        if output.is_in_flight() {
            return;
        }
        if output.is_connecting() {
            return self.connected(token);
        }
        if connection.marks.submission == self.submission {
            // A send in front of this one rides with the next submission and may fall short.
            return self.unfinished.push(ConnectionId(token));
        }
        if output.begins_with_source() {
            return self.flush_source(token);
        }
        let socket = connection.socket.as_raw_fd();
        let Some(Piece::Bytes(bytes, from)) = output.pop_front() else {
            connection.tail = Tail::None;
            connection.conversation.output_left();
            return self.play(token, None, None);
        };
        self.counters.count(Counter::Sends);
        let request = self.queue(bytes, |ring, bytes| {
            ring.send_owned(socket, bytes, from, label(Kind::SendWaiting, token))
        });
        self.set_under_way(token, UnderWay::Send(request, from));
    }

    /// Sends from a file or a pipe until the socket is full.
    fn flush_source(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        let Tail::Waiting(output) = &mut connection.tail else { return };
        let (socket, now) = (connection.socket.as_fd(), self.clock.now().at);
        match output.flush(socket, &self.counters, &mut connection.flow, now, &self.limits) {
            Ok(Flushed::All) => self.flush(token),
            Ok(Flushed::Budget) => self.unfinished.push(ConnectionId(token)),
            Ok(Flushed::Full) => self.watch_room(token),
            Err(cause) => self.close(token, cause),
        }
    }

    /// Output waits for room in a socket that was full.
    pub(super) fn watch_room(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        let fd = connection.socket.as_raw_fd();
        let watch = label(Kind::Writable, token);
        self.push(|ring| ring.poll(fd, POLLOUT, Shots::One, watch));
        self.set_under_way(token, UnderWay::Poll);
    }

    /// A full socket is writable again, or failed, which sending will show.
    pub(super) fn writable(&mut self, token: Token) {
        if self.under_way(token).is_some() {
            self.flush(token);
        }
    }

    /// The socket took some of a piece, or failed.
    pub(super) fn sent_waiting(&mut self, token: Token, completion: StreamCompletion) {
        let now = self.clock.now().at;
        let Some((output, UnderWay::Send(_, from))) = self.under_way(token) else { return };
        let Ok(taken) = usize::try_from(completion.result) else {
            return self.close(token, broken(errno(completion.result)));
        };
        let bytes = completion.returned.expect("the request owned its buffer");
        output.push_front(Piece::Bytes(bytes, from + taken));
        self.counters.add(Counter::BytesOut, taken as u64);
        if let Some(connection) = self.connections.get_mut(token) {
            connection.flow.sent(taken, now, &self.limits);
        }
        self.flush(token);
    }

    /// Lets go of output that nobody will take: what is under way is cancelled.
    pub(super) fn abandon(&mut self, token: Token, output: &mut Output) {
        match output.under_way.take() {
            Some(UnderWay::Send(request, _)) => {
                self.push(|ring| ring.cancel_owned(request, numbered(Kind::Errand, 0)));
            }
            Some(UnderWay::Poll) => {
                let watch = label(Kind::Writable, token);
                self.push(|ring| ring.cancel(watch, numbered(Kind::Errand, 0)));
            }
            None => {}
        }
    }

    fn under_way(&mut self, token: Token) -> Option<(&mut Output, UnderWay)> {
        let found = self.connections.get_mut(token).map(|connection| &mut connection.tail);
        match found {
            Some(Tail::Waiting(output)) => {
                let under_way = output.under_way.take()?;
                Some((output, under_way))
            }
            _ => {
                self.counters.count(Counter::Stale);
                None
            }
        }
    }

    fn set_under_way(&mut self, token: Token, under_way: UnderWay) {
        if let Some(connection) = self.connections.get_mut(token)
            && let Tail::Waiting(output) = &mut connection.tail
        {
            output.under_way = Some(under_way);
        }
    }

    /// Queues a request that owns `buffer`, making room in the queue where needed.
    fn queue(
        &mut self,
        mut buffer: Vec<u8>,
        mut request: impl FnMut(
            &mut pollux_sys::ring::StreamRing,
            Vec<u8>,
        ) -> Result<InFlight, (QueueFull, Vec<u8>)>,
    ) -> InFlight {
        self.is_mixed = true;
        for _ in 0..super::SUBMITS_MAX {
            match request(&mut self.ring, buffer) {
                Ok(in_flight) => return in_flight,
                Err((QueueFull, returned)) => {
                    buffer = returned;
                    self.submit();
                }
            }
        }
        panic!("the kernel takes no requests from a full queue");
    }
}
