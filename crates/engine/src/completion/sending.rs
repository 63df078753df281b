//! What waits for its peer on the completion loop.
//!
//! Bytes go to the ring as a request that owns them and comes back when the socket has taken some. A file is sent by
//! `sendfile(2)` as on a readiness loop, its head by `send(2)` with it, and a poll when the socket is full: the kernel has
//! no request that sends from a file without a worker thread, and reading it into buffers first took four times the CPU.
//! What is in a pipe is sent by splice(2) in the same way. One request of a connection is under way.

use std::os::fd::{AsFd, AsRawFd};

use pollux_poller::Token;
use pollux_sys::ring::{InFlight, QueueFull, Shots, StreamCompletion, StreamRing};

use super::{CompletionLoop, Kind, POLLOUT, SUBMITS_MAX, errno, label};
use crate::tail::{Flushed, Output, Piece, Tail, UnderWay, broken};
use crate::turn::Turning;
use crate::{ConnectionId, Counter, Session};

impl<S: Session> CompletionLoop<S> {
    /// Sends the next piece of what waits; when all of it has left, the session continues.
    pub(super) fn send_waiting(&mut self, token: Token) {
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
            return self.state.unfinished.push(ConnectionId(token));
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
        self.state.counters.count(Counter::Sends);
        let request = self.queue(bytes, |ring, bytes| {
            ring.send_owned(socket, bytes, from, label(Kind::SendWaiting, token))
        });
        self.set_under_way(token, UnderWay::Send(request, from));
    }

    /// Sends from a file or a pipe until the socket is full.
    fn flush_source(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        let Tail::Waiting(output) = &mut connection.tail else { return };
        let (socket, now) = (connection.socket.as_fd(), self.state.clock.now().at);
        match output.flush(
            socket,
            &self.state.counters,
            &mut connection.flow,
            now,
            &self.state.limits,
        ) {
            Ok(Flushed::All) => self.flush(token),
            Ok(Flushed::Budget) => self.state.unfinished.push(ConnectionId(token)),
            Ok(Flushed::Full) => self.watch_room(token),
            Err(cause) => self.close(token, cause),
        }
    }

    /// Nothing is watched when the session has ended the connection already.
    pub(super) fn watch_connect(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        let fd = connection.socket.as_raw_fd();
        self.push(|ring| ring.poll(fd, POLLOUT, Shots::One, label(Kind::Writable, token)));
    }

    /// A full socket is writable again, or failed, which sending will show.
    pub(super) fn writable(&mut self, token: Token) {
        if self.under_way(token).is_some() {
            self.flush(token);
        }
    }

    /// The socket took some of a piece, or failed.
    pub(super) fn sent_waiting(&mut self, token: Token, completion: StreamCompletion) {
        let now = self.state.clock.now().at;
        let Some((output, UnderWay::Send(_, from))) = self.under_way(token) else { return };
        let Ok(taken) = usize::try_from(completion.result) else {
            return self.close(token, broken(errno(completion.result)));
        };
        let bytes = completion.returned.expect("the request owned its buffer");
        output.push_front(Piece::Bytes(bytes, from + taken));
        self.state.counters.add(Counter::BytesOut, taken as u64);
        if let Some(connection) = self.connections.get_mut(token) {
            connection.flow.sent(taken, now, &self.state.limits);
        }
        self.flush(token);
    }

    fn under_way(&mut self, token: Token) -> Option<(&mut Output, UnderWay)> {
        let found = self.connections.get_mut(token).map(|connection| &mut connection.tail);
        match found {
            Some(Tail::Waiting(output)) => {
                let under_way = output.under_way.take()?;
                Some((output, under_way))
            }
            _ => {
                self.state.counters.count(Counter::Stale);
                None
            }
        }
    }

    /// Queues a request that owns `buffer`, making room in the queue where needed.
    fn queue(
        &mut self,
        mut buffer: Vec<u8>,
        mut request: impl FnMut(&mut StreamRing, Vec<u8>) -> Result<InFlight, (QueueFull, Vec<u8>)>,
    ) -> InFlight {
        self.is_mixed = true;
        for _ in 0..SUBMITS_MAX {
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

#[cfg(test)]
mod tests {
    //! The loop on a ring so small that completions overflow it: what came late is still in order.

    use std::io::{ErrorKind, Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use pollux_sys::ring::{Sizes, StreamSizes};
    use rustix::net::sockopt::set_socket_send_buffer_size;

    use super::*;
    use crate::clock::Clock;
    use crate::{Actions, Limits};

    /// Eight completions fit.
    const TINY: StreamSizes = StreamSizes {
        ring: Sizes { submission: 8, completion: 8 },
        buffers: 64,
        buffer_bytes: 4096,
        arena_bytes: 1 << 20,
    };

    const FIRST_BYTES: usize = 60_000;

    /// Sends a long answer when the loop drains, and a short one to its input.
    struct Speaker {
        is_first: bool,
    }

    impl Session for Speaker {
        type Shared = ();

        fn accepted((): &mut (), _: &mut Actions<'_>) -> Self {
            Self { is_first: false }
        }

        fn on_bytes(&mut self, (): &mut (), actions: &mut Actions<'_>, input: &[u8]) -> usize {
            if self.is_first {
                actions.send(b"second");
            }
            input.len()
        }

        fn on_end(&mut self, (): &mut (), _: &mut Actions<'_>) {}
        fn on_drain(&mut self, (): &mut (), actions: &mut Actions<'_>) {
            if self.is_first {
                actions.spare()[..FIRST_BYTES].fill(b'1');
                actions.advance(FIRST_BYTES);
            }
        }
    }

    /// A connection whose input lies ready when its receive is armed.
    fn speak(this: &mut CompletionLoop<Speaker>, is_first: bool) -> UnixStream {
        let (ours, mut theirs) = UnixStream::pair().expect("two descriptors");
        set_socket_send_buffer_size(&ours, 2_000).expect("set");
        ours.set_nonblocking(true).expect("set");
        theirs.write_all(b"x").expect("room");
        this.adopt(ours.into(), Speaker { is_first });
        theirs
    }

    /// The completion that reports the cut answer lies behind more receives than the queue holds,
    /// and the first of those is of the same connection.
    #[test]
    fn an_answer_to_early_input_does_not_overtake_a_cut_one() {
        let clock = Clock::new(Arc::default());
        let opened = CompletionLoop::with_sizes(TINY, (), Limits::default(), clock, Arc::default());
        let mut this = opened.expect("io_uring is allowed here");
        let mut peer = speak(&mut this, true);
        let _others: Vec<UnixStream> = (0..40).map(|_| speak(&mut this, false)).collect();
        this.drain();
        assert!(this.ring.has_overflow(), "the queue is too large");
        peer.set_nonblocking(true).expect("set");
        let (mut received, end) = (Vec::new(), Instant::now() + Duration::from_secs(20));
        // Nothing is read before both answers are made.
        while this.state.counters.value(Counter::BytesIn) < 41 {
            assert!(Instant::now() < end, "input was lost");
            this.turn(Some(Duration::from_millis(1))).expect("turned");
        }
        while received.len() < FIRST_BYTES + b"second".len() {
            assert!(Instant::now() < end, "{} bytes came", received.len());
            this.turn(Some(Duration::from_millis(1))).expect("turned");
            let mut piece = [0; 4096];
            match peer.read(&mut piece) {
                Ok(len) => received.extend_from_slice(&piece[..len]),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        assert!(
            received[..FIRST_BYTES].iter().all(|byte| *byte == b'1'),
            "the second came too early"
        );
        assert!(received.ends_with(b"second"));
    }
}
