//! What completions say, answered in order: input and its end, room for output that waits, a source, the waker, the
//! timer.
//!
//! Output that waits for its peer goes to the ring, as far as it is bytes, as a request that owns them and comes back when
//! the socket has taken some. A file is sent by `sendfile(2)` as on a readiness loop, its head by `send(2)` with it, and a
//! poll when the socket is full: the kernel has no request that sends from a file without a worker thread, and reading it
//! into buffers first took four times the CPU. What is in a pipe is sent by splice(2) in the same way. One request of a
//! connection is under way.

use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd};

use pollux_poller::Token;
use pollux_sys::ring::{Received, Shots, StreamCompletion};
use rustix::io::Errno;

use super::connection::Receiving;
use super::requests::{Kind, errno, is_errno, label, numbered, read_label};
use super::{CompletionLoop, POLLIN};
use crate::output::{Flushed, Output, OutputState, PendingOutput, Piece, cause_of};
use crate::sources::SourceId;
use crate::turn::TurnLoop;
use crate::{CloseCause, ConnectionId, Counter, Session};

/// Room that the queues between two turns keep.
const QUEUE_KEPT: usize = 256;

impl<S: Session> CompletionLoop<S> {
    /// Answers all completions that are there.
    pub(super) fn complete(&mut self) {
        loop {
            while let Some(completion) = self.next_completion() {
                self.dispatch(completion);
            }
            if !self.fetch_overflow() {
                break;
            }
        }
        self.renew_arena();
        // What a storm needed is given back: it would be counted to the connections for ever.
        if self.backlog.is_empty() && self.backlog.capacity() > QUEUE_KEPT {
            self.backlog.shrink_to(QUEUE_KEPT);
        }
    }

    fn next_completion(&mut self) -> Option<StreamCompletion> {
        self.backlog.pop_front().or_else(|| self.ring.next_completion())
    }

    fn dispatch(&mut self, completion: StreamCompletion) {
        self.state.counters.count(Counter::Completions);
        let (kind, token) = read_label(completion.user_data);
        if kind == Kind::Send {
            return self.fell_short(token, completion.result);
        }
        self.renew_arena();
        match kind {
            Kind::Receive => self.received(token, completion),
            Kind::SendWaiting => self.sent_waiting(token, completion),
            Kind::Writable => self.writable(token),
            Kind::Readable => self.readable(token),
            Kind::Listener => self.accepted(token.slot(), completion),
            Kind::Source => self.source_readable(SourceId(token.slot()), completion.result),
            Kind::Waker => self.woken(completion.has_more),
            Kind::Alarm => self.alarm_rang(completion.has_more),
            // What it was for is gone already, or about to go by itself.
            Kind::Cleanup => {}
            Kind::Send => unreachable!("answered above"),
        }
    }

    fn received(&mut self, token: Token, mut completion: StreamCompletion) {
        let lease = completion.received.take();
        self.state.counters.count(Counter::Receives);
        match self.connections.get_mut(token) {
            None => self.state.counters.count(Counter::Stale),
            Some(connection) => {
                if !completion.has_more {
                    connection.receiving = Receiving::Idle;
                }
                match (&lease, completion.result) {
                    (Some(lease), 1..) => self.take_input(token, lease, completion.has_more),
                    (_, 0) => self.input_ended(token),
                    (_, result) => self.receive_failed(token, result),
                }
            }
        }
        if let Some(lease) = lease {
            self.ring.give_back(lease);
        }
    }

    fn take_input(&mut self, token: Token, lease: &Received, has_more: bool) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        let bytes = lease.len_bytes();
        self.state.counters.add(Counter::BytesIn, bytes as u64);
        let is_many = connection.shots == Shots::Many;
        if connection.has_received && is_many && !has_more {
            self.state.counters.count(Counter::Rearms);
        }
        connection.received(bytes);
        connection.conversation.has_received();
        if let OutputState::Lingering(linger) = &mut connection.output_state {
            if linger.drops(bytes) {
                return self.receive_as_wanted(token);
            }
            return self.close_connection(token, CloseCause::Session);
        }
        self.call_session(token, None, Some(lease));
    }

    fn receive_failed(&mut self, token: Token, result: i32) {
        if is_errno(result, Errno::NOBUFS) {
            // All buffers go back before the next submission, so it is armed with a full pool.
            self.state.counters.count(Counter::BufferStarvations);
        } else if !is_errno(result, Errno::CANCELED) && !is_errno(result, Errno::INTR) {
            return self.close_connection(token, cause_of(errno(result)));
        }
        self.state.counters.count(Counter::Rearms);
        self.receive_as_wanted(token);
    }

    /// The socket of a session that reads it itself is readable.
    fn readable(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else {
            return self.state.counters.count(Counter::Stale);
        };
        connection.receiving = Receiving::Idle;
        if connection.conversation.wants_input() && connection.conversation.leaves_input() {
            connection.looks = false;
            self.call_readable(token);
        } else {
            self.receive_as_wanted(token);
        }
    }

    /// Sends the next piece of what waits; when all of it has left, the session continues.
    pub(super) fn send_waiting(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        let OutputState::Waiting(output) = &mut connection.output_state else { return };
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
        if output.begins_with_payload() {
            return self.flush_source(token);
        }
        let socket = connection.socket.as_raw_fd();
        let Some(Piece::Bytes(bytes, from)) = output.pop_front() else {
            connection.output_state = OutputState::None;
            connection.conversation.output_left();
            return self.call_session(token, None, None);
        };
        self.state.counters.count(Counter::Sends);
        let len = bytes.len();
        let request = self.queue(bytes, |ring, bytes| {
            ring.send_owned(socket, bytes, from, label(Kind::SendWaiting, token))
        });
        self.set_under_way(token, PendingOutput::Send { request, from, len });
    }

    /// Sends from a file or a pipe until the socket is full.
    fn flush_source(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        let OutputState::Waiting(output) = &mut connection.output_state else { return };
        let socket = connection.socket.as_fd();
        let now = self.state.clock.now().at;
        match output.flush(
            socket,
            &self.state.counters,
            &mut connection.flow,
            now,
            &self.state.limits,
        ) {
            Ok(Flushed::All) => self.send_waiting(token),
            Ok(Flushed::Budget) => self.state.unfinished.push(ConnectionId(token)),
            Ok(Flushed::Full) => self.watch_room(token),
            Err(cause) => self.send_failed(token, cause),
        }
    }

    /// A full socket is writable again, or failed, which sending will show.
    fn writable(&mut self, token: Token) {
        if self.under_way(token).is_some() {
            self.send_waiting(token);
        }
    }

    /// The socket took some of a piece, or failed. EINTR is not a failure, and nothing was taken: the kernel gave the send to a
    /// thread of its own, and the process was stopped while that waited. ECANCELED follows from [`Self::abandon`] alone, whose
    /// output has nothing under way any more.
    fn sent_waiting(&mut self, token: Token, completion: StreamCompletion) {
        let now = self.state.clock.now().at;
        let Some((output, PendingOutput::Send { from, .. })) = self.under_way(token) else {
            return;
        };
        let Ok(taken) = usize::try_from(completion.result) else {
            if let Some(bytes) = completion.returned {
                output.push_front(Piece::Bytes(bytes, from));
            }
            if is_errno(completion.result, Errno::INTR) {
                self.state.counters.count(Counter::SendsShort);
                return self.send_waiting(token);
            }
            return self.send_failed(token, cause_of(errno(completion.result)));
        };
        let bytes = completion.returned.expect("the request owned its buffer");
        output.push_front(Piece::Bytes(bytes, from + taken));
        self.state.counters.add(Counter::BytesOut, taken as u64);
        if let Some(connection) = self.connections.get_mut(token) {
            connection.flow.sent(taken, now, &self.state.limits);
        }
        self.send_waiting(token);
    }

    fn under_way(&mut self, token: Token) -> Option<(&mut Output, PendingOutput)> {
        let found = self.connections.get_mut(token).map(|connection| &mut connection.output_state);
        match found {
            Some(OutputState::Waiting(output)) => {
                let under_way = output.under_way.take()?;
                Some((output, under_way))
            }
            _ => {
                self.state.counters.count(Counter::Stale);
                None
            }
        }
    }

    /// A poll has ended: the source is readable, or the poll was cancelled or refused.
    fn source_readable(&mut self, id: SourceId, result: i32) {
        let now = self.state.clock.now();
        if result < 0 {
            // A refusal stays one: the source can do no more. One that was cancelled is gone already.
            if self.state.sources.fd(id).is_some() {
                self.state.counters.count(Counter::SourcesFailed);
            }
            return self.state.sources.remove(id);
        }
        let Some(answer) = self.state.sources.readable(id, &mut self.state.shared, now) else {
            return self.state.counters.count(Counter::Stale);
        };
        self.state.counters.count(Counter::SourcesReadable);
        match answer {
            ControlFlow::Continue(()) => self.arm_source(id),
            ControlFlow::Break(()) => self.state.sources.remove(id),
        }
    }

    pub(super) fn arm_source(&mut self, id: SourceId) {
        let Some(fd) = self.state.sources.fd(id).map(|fd| fd.as_raw_fd()) else { return };
        self.push(|ring| ring.poll(fd, POLLIN, Shots::One, numbered(Kind::Source, id.0)));
    }

    fn alarm_rang(&mut self, has_more: bool) {
        self.state.alarm.rang();
        if !has_more {
            self.watch_alarm();
        }
    }

    fn woken(&mut self, has_more: bool) {
        self.waker.acknowledge_edge();
        self.is_woken = true;
        if !has_more {
            self.watch_waker();
        }
    }

    pub(super) fn watch_alarm(&mut self) {
        let fd = self.state.alarm.fd().as_raw_fd();
        self.push(|ring| ring.poll(fd, POLLIN, Shots::Many, numbered(Kind::Alarm, 0)));
    }

    pub(super) fn watch_waker(&mut self) {
        let fd = self.waker.fd().as_raw_fd();
        self.push(|ring| ring.poll(fd, POLLIN, Shots::Many, numbered(Kind::Waker, 0)));
    }
}

#[cfg(test)]
mod tests {
    //! The loop on a ring so small that completions overflow it: what came late is still in order.

    use std::io::{ErrorKind, Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use pollux_sys::ring::{ReceiveBuffers, Sizes, StreamSizes};
    use rustix::net::sockopt::set_socket_send_buffer_size;

    use super::*;
    use crate::clock::Clock;
    use crate::{Actions, Limits};

    /// Eight completions fit.
    const TINY: StreamSizes = StreamSizes {
        ring: Sizes { submission: 8, completion: 8 },
        receive: ReceiveBuffers::whole(64, 4096),
        otherwise: None,
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
        fn on_shutdown(&mut self, (): &mut (), actions: &mut Actions<'_>) {
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

    /// What the kernel refuses once, as for lack of memory, can't be had by a test: the completion is made here.
    #[test]
    fn a_source_that_the_kernel_refuses_is_dropped_and_counted() {
        let clock = Clock::new(Arc::default());
        let opened = CompletionLoop::<Speaker>::with_sizes(
            TINY,
            (),
            Limits::default(),
            clock,
            Arc::default(),
        );
        let Some(mut this) = pollux_testing::or_skip(opened) else { return };
        let (ours, mut theirs) = UnixStream::pair().expect("two descriptors");
        let id = this.watch(ours, |_, (), _| ControlFlow::Continue(())).expect("watched");
        this.source_readable(id, -Errno::NOMEM.raw_os_error());
        assert_eq!(this.state.counters.value(Counter::SourcesFailed), 1);
        assert_eq!(theirs.read(&mut [0]).expect("it was dropped"), 0);
        // Its end comes as well, and counts once.
        this.source_readable(id, -Errno::CANCELED.raw_os_error());
        assert_eq!(this.state.counters.value(Counter::SourcesFailed), 1);
    }

    /// A test can't have the kernel's own thread interrupted while that sends: a send that was cancelled is made one here.
    #[test]
    fn a_waiting_send_that_was_interrupted_is_made_again() {
        let clock = Clock::new(Arc::default());
        let opened = CompletionLoop::with_sizes(TINY, (), Limits::default(), clock, Arc::default());
        let Some(mut this) = pollux_testing::or_skip(opened) else { return };
        let (ours, mut peer) = UnixStream::pair().expect("two descriptors");
        set_socket_send_buffer_size(&ours, 2_000).expect("set");
        ours.set_nonblocking(true).expect("set");
        let ConnectionId(token) = this.adopt(ours.into(), Speaker { is_first: true });
        this.drain();
        let end = Instant::now() + Duration::from_secs(60);
        let request = loop {
            assert!(Instant::now() < end, "no send waits");
            this.turn(Some(Duration::from_millis(1))).expect("turned");
            let state = this.connections.get_mut(token).map(|found| &found.output_state);
            if let Some(OutputState::Waiting(output)) = state
                && let Some(PendingOutput::Send { request, .. }) = &output.under_way
            {
                break *request;
            }
        };
        this.push(|ring| ring.cancel_owned(request, numbered(Kind::Cleanup, 0)));
        let mut completion = loop {
            assert!(Instant::now() < end, "it is not cancelled");
            match this.next_completion() {
                Some(it) if read_label(it.user_data).0 == Kind::SendWaiting => break it,
                Some(other) => this.dispatch(other),
                None => drop(this.ring.enter(1, Some(Duration::from_millis(1)))),
            }
        };
        assert_eq!(completion.result, -Errno::CANCELED.raw_os_error());
        completion.result = -Errno::INTR.raw_os_error();
        this.dispatch(completion);
        peer.set_nonblocking(true).expect("set");
        let mut received = Vec::new();
        while received.len() < FIRST_BYTES {
            assert!(Instant::now() < end, "{} bytes came", received.len());
            this.turn(Some(Duration::from_millis(1))).expect("turned");
            let mut piece = [0; 4096];
            match peer.read(&mut piece) {
                Ok(0) => panic!("the connection was closed after {} bytes", received.len()),
                Ok(len) => received.extend_from_slice(&piece[..len]),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        assert!(received.iter().all(|byte| *byte == b'1'));
    }

    /// The completion that reports the cut answer lies behind more receives than the queue holds,
    /// and the first of those is of the same connection.
    #[test]
    fn an_answer_to_early_input_does_not_overtake_a_cut_one() {
        let clock = Clock::new(Arc::default());
        let opened = CompletionLoop::with_sizes(TINY, (), Limits::default(), clock, Arc::default());
        let Some(mut this) = pollux_testing::or_skip(opened) else { return };
        let mut peer = speak(&mut this, true);
        let _others: Vec<UnixStream> = (0..40).map(|_| speak(&mut this, false)).collect();
        this.drain();
        assert!(this.ring.has_overflow(), "the queue is too large");
        peer.set_nonblocking(true).expect("set");
        let mut received = Vec::new();
        let end = Instant::now() + Duration::from_secs(20);
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
