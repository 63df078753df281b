//! Receives of the loop with every form of receive buffers, few and small, on a queue that overflows: bytes arrive once
//! and in order, and a session that pauses is sent no more than the bound.

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use pollux_sys::ring::{ReceiveBuffers, Sizes, StreamSizes};

use super::connection::BOUND;
use super::{CompletionLoop, SIZES, WHOLE};
use crate::clock::Clock;
use crate::turn::TurnLoop;
use crate::{Actions, Counter, Limits, Session};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a session does with its input.
#[derive(Clone, Copy)]
enum Taker {
    /// Takes some of it and pauses until it is called again.
    Hesitant(usize),
    /// Takes what comes first, and then nothing.
    Stalled { has_taken: bool },
    /// Takes all, and asks for little each time.
    Little(usize),
    /// Takes all.
    All(usize),
}

#[derive(Default)]
struct Taken {
    bytes: Vec<Vec<u8>>,
    ended: usize,
    /// The longest input of a session that asked for little.
    longest: usize,
}

impl Session for Taker {
    type Shared = Taken;

    fn accepted(_: &mut Taken, _: &mut Actions<'_>) -> Self {
        unreachable!("connections are adopted")
    }

    fn on_bytes(&mut self, taken: &mut Taken, actions: &mut Actions<'_>, input: &[u8]) -> usize {
        match self {
            Self::Hesitant(number) => {
                let used = input.len().min(700);
                taken.bytes[*number].extend_from_slice(&input[..used]);
                actions.pause_input();
                actions.notify_when_sent();
                used
            }
            Self::Stalled { has_taken: has_taken @ false } => {
                *has_taken = true;
                input.len()
            }
            Self::Stalled { .. } => {
                actions.pause_input();
                0
            }
            Self::Little(number) => {
                taken.bytes[*number].extend_from_slice(input);
                taken.longest = taken.longest.max(input.len());
                actions.receive_little();
                input.len()
            }
            Self::All(number) => {
                taken.bytes[*number].extend_from_slice(input);
                input.len()
            }
        }
    }

    fn on_output_sent(&mut self, _: &mut Taken, actions: &mut Actions<'_>) {
        actions.resume_input();
    }

    fn on_end(&mut self, taken: &mut Taken, actions: &mut Actions<'_>) {
        taken.ended += 1;
        actions.close();
    }
}

fn open(sizes: StreamSizes, taken: Taken) -> Option<CompletionLoop<Taker>> {
    let clock = Clock::new(Arc::default());
    let limits = Limits::default();
    let opened = CompletionLoop::with_sizes(sizes, taken, limits, clock, Arc::default());
    pollux_testing::or_skip(opened)
}

/// Our end and the peer's.
fn pair() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let peer = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    let (ours, _) = listener.accept().expect("accepted");
    ours.set_nonblocking(true).expect("set");
    (ours.into(), peer)
}

fn pattern(len: usize, number: usize) -> Vec<u8> {
    (0..len).map(|at| (at ^ (at >> 8) ^ (at >> 16) ^ number) as u8).collect()
}

#[test]
fn streams_arrive_in_order_through_every_pool_however_often_their_sessions_pause() {
    const STREAMS: usize = 3;
    const BYTES: usize = 100_000;
    for (is_incremental, is_bounded) in [(false, false), (true, false), (true, true)] {
        for count in [1, 2, 4] {
            let receive = ReceiveBuffers { count, bytes: 1024, is_incremental };
            let ring = Sizes { submission: 8, completion: 8 };
            let sizes = StreamSizes { ring, receive, otherwise: None, ..SIZES };
            let bytes = vec![Vec::new(); STREAMS];
            let Some(mut this) = open(sizes, Taken { bytes, ..Taken::default() }) else { return };
            this.is_bounded &= is_bounded;
            let mut writers = Vec::new();
            for number in 0..STREAMS {
                let (ours, mut peer) = pair();
                this.adopt(ours, Taker::Hesitant(number));
                writers.push(thread::spawn(move || {
                    for piece in pattern(BYTES, number).chunks(7_001) {
                        peer.write_all(piece).expect("sent");
                    }
                    peer.shutdown(Shutdown::Write).expect("no more");
                    peer
                }));
            }
            let end = Instant::now() + PATIENCE;
            while this.state.shared.ended < STREAMS {
                assert!(Instant::now() < end, "{receive}: bytes were lost");
                this.turn(Some(Duration::from_millis(1))).expect("turned");
            }
            for (number, bytes) in this.state.shared.bytes.iter().enumerate() {
                assert!(*bytes == pattern(BYTES, number), "{receive}, stream {number}");
            }
            writers.into_iter().for_each(|writer| drop(writer.join().expect("written")));
        }
    }
}

/// Uploads in a row to a proxy that leaves their bodies in the socket: one in four came through a buffer all the same.
#[test]
fn a_session_that_asked_for_little_gets_little_also_when_no_buffer_was_left_at_first() {
    const ROUNDS: usize = 50;
    for is_incremental in [false, true] {
        let receive = ReceiveBuffers { count: 1, bytes: 8192, is_incremental };
        let ring = Sizes { submission: 16, completion: 64 };
        let sizes = StreamSizes { ring, receive, otherwise: None, ..SIZES };
        let bytes = vec![Vec::new(); 2];
        let Some(mut this) = open(sizes, Taken { bytes, ..Taken::default() }) else { return };
        let (all, mut all_peer) = pair();
        let (little, mut little_peer) = pair();
        this.adopt(all, Taker::All(0));
        this.adopt(little, Taker::Little(1));
        let end = Instant::now() + PATIENCE;
        let mut sent = [0; 2];
        for round in 0..=ROUNDS {
            // The first time it has not asked yet.
            let lengths = if round == 0 { [1, 1] } else { [8192, 20_000] };
            all_peer.write_all(&vec![b'a'; lengths[0]]).expect("room");
            little_peer.write_all(&vec![b'b'; lengths[1]]).expect("room");
            sent = [sent[0] + lengths[0], sent[1] + lengths[1]];
            while this.state.shared.bytes.iter().zip(sent).any(|(bytes, sent)| bytes.len() < sent) {
                assert!(Instant::now() < end, "{receive}: bytes were lost");
                this.turn(Some(Duration::from_millis(1))).expect("turned");
            }
        }
        assert!(this.state.counters.value(Counter::BufferStarvations) > 0, "{receive}");
        assert!(this.state.shared.longest <= 4096, "{receive}: {}", this.state.shared.longest);
    }
}

/// Whatever the form of the pool: where the kernel takes no bound, by the pool and the cancellation.
#[test]
fn a_session_that_pauses_is_sent_no_more_than_the_bound() {
    let whole = StreamSizes { receive: WHOLE, otherwise: None, ..SIZES };
    for (sizes, is_bounded) in [(SIZES, true), (SIZES, false), (whole, false)] {
        let Some(mut this) = open(sizes, Taken::default()) else { return };
        this.is_bounded &= is_bounded;
        let (ours, mut peer) = pair();
        this.adopt(ours, Taker::Stalled { has_taken: false });
        peer.write_all(b"begin").expect("room");
        let end = Instant::now() + PATIENCE;
        while this.state.counters.value(Counter::BytesIn) < 5 {
            assert!(Instant::now() < end, "the beginning did not come");
            this.turn(Some(Duration::from_millis(1))).expect("turned");
        }
        // Until both sockets are full, and nothing has moved for a while.
        peer.set_nonblocking(true).expect("set");
        let piece = vec![b'x'; 1 << 16];
        let mut idle_turns = 0;
        while idle_turns < 50 {
            assert!(Instant::now() < end, "more and more is taken");
            let before = this.state.counters.value(Counter::BytesIn);
            let sent = match peer.write(&piece) {
                Ok(sent) => sent,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    0
                }
            };
            this.turn(Some(Duration::from_millis(1))).expect("turned");
            let has_moved = sent > 0 || this.state.counters.value(Counter::BytesIn) > before;
            idle_turns = if has_moved { 0 } else { idle_turns + 1 };
        }
        let kept = this.state.counters.value(Counter::BytesIn) - 5;
        let bound = if this.is_bounded { u64::from(BOUND.each + BOUND.enough) } else { 1 << 20 };
        assert!((1..=bound).contains(&kept), "{kept} bytes are kept");
    }
}
