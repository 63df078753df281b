//! The loop on a ring so small that completions overflow it: what came late is still in order.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pollux_sys::ring::{Sizes, StreamSizes};
use rustix::net::sockopt::set_socket_send_buffer_size;

use super::CompletionLoop;
use crate::clock::Clock;
use crate::{Actions, Counter, Limits, Session};

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

    fn on_deadline(&mut self, (): &mut (), _: &mut Actions<'_>) {}

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
    while this.counters.value(Counter::BytesIn) < 41 {
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
    assert!(received[..FIRST_BYTES].iter().all(|byte| *byte == b'1'), "the second came too early");
    assert!(received.ends_with(b"second"));
}
