//! Output that waits for its peer on the completion loop, and files.
//!
//! A piece goes to the ring as a request that owns it and comes back when the socket has taken
//! some of it. A file is read piece by piece into such a buffer: the kernel has no request that
//! sends from a file without a worker thread. At most one request of a connection is under way.

use std::os::fd::AsRawFd;

use pollux_poller::Token;
use pollux_sys::ring::{InFlight, QueueFull, StreamCompletion};

use super::CompletionLoop;
use super::label::{Kind, label, numbered};
use super::turns::errno;
use crate::ending::Tail;
use crate::output::{Output, Piece, UnderWay, broken};
use crate::{CloseCause, ConnectionId, Counter, FileRange, Session};

/// Bytes of a file that are read at once.
const FILE_CHUNK: u64 = 64 * 1024;

impl<S: Session> CompletionLoop<S> {
    /// Sends the next piece of what waits; when all of it has left, the session goes on.
    pub(super) fn flush(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        let Tail::Waiting(output) = &mut connection.tail else { return };
        if output.is_in_flight() {
            return;
        }
        if connection.marks.submission == self.submission {
            // A send in front of this one rides with the next submission and may fall short.
            return self.unfinished.push(ConnectionId(token));
        }
        let socket = connection.socket.as_raw_fd();
        match output.pop_front() {
            None => {
                connection.tail = Tail::None;
                connection.conversation.output_left();
                self.play(token, None, None);
            }
            Some(Piece::Bytes(bytes, from)) => {
                self.counters.count(Counter::Sends);
                let request = self.queue(bytes, |ring, bytes| {
                    ring.send_owned(socket, bytes, from, label(Kind::SendWaiting, token))
                });
                self.set_under_way(token, UnderWay { request, from, file: None });
            }
            Some(Piece::File(range)) => {
                let (file, offset) = (range.file.as_raw_fd(), range.offset);
                let len = range.len.min(FILE_CHUNK) as u32;
                let request = self.queue(Vec::new(), |ring, bytes| {
                    ring.read_owned(file, offset, bytes, len, label(Kind::ReadFile, token))
                });
                self.set_under_way(token, UnderWay { request, from: 0, file: Some(range) });
            }
        }
    }

    /// The socket took some of a piece, or failed.
    pub(super) fn sent_waiting(&mut self, token: Token, completion: StreamCompletion) {
        let Some((output, under_way)) = self.under_way(token) else { return };
        let Ok(taken) = usize::try_from(completion.result) else {
            return self.close(token, broken(errno(completion.result)));
        };
        output.moved(taken);
        let bytes = completion.returned.expect("the request owned its buffer");
        output.push_front(Piece::Bytes(bytes, under_way.from + taken));
        self.counters.add(Counter::BytesOut, taken as u64);
        self.flush(token);
    }

    /// A piece of a file was read, or the file turned out shorter than was promised.
    pub(super) fn file_read(&mut self, token: Token, completion: StreamCompletion) {
        let Some((output, under_way)) = self.under_way(token) else { return };
        let read = u64::try_from(completion.result).unwrap_or(0);
        let (1.., Some(bytes)) = (read, completion.returned) else {
            return self.close(token, CloseCause::SocketError);
        };
        if let Some(FileRange { file, offset, len }) = under_way.file {
            let rest = FileRange { file, offset: offset + read, len: len - read };
            output.push_front(Piece::File(rest));
        }
        output.push_front(Piece::Bytes(bytes, 0));
        self.flush(token);
    }

    /// Lets go of output that nobody will take: the request under way is cancelled, and its
    /// file closed behind it.
    pub(super) fn abandon(&mut self, output: &mut Output) {
        let Some(UnderWay { request, file, .. }) = output.under_way.take() else { return };
        self.push(|ring| ring.cancel_owned(request, numbered(Kind::Errand, 0)));
        if let Some(FileRange { file, .. }) = file {
            self.close_fd(file);
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
