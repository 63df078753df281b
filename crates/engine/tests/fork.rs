//! A process that forks keeps its loops, whatever its children do with their copies.
//!
//! A binary of its own with one test: while a child is made, no other thread of the process holds anything.
#![expect(unsafe_code, reason = "std has no fork without exec")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use pollux_engine::{Actions, CloseCause, Driver, EventLoop, Limits, LoopError, Session};
use pollux_testing::or_skip;
use rustix::process::{Pid, WaitOptions, waitpid};

/// What a child exits with when all went well; a panic gives another status.
const FINE: i32 = 42;

/// Sends back what comes.
struct Echo;

impl Session for Echo {
    type Shared = ();

    fn accepted((): &mut (), _: &mut Actions<'_>) -> Self {
        Self
    }

    fn on_bytes(&mut self, (): &mut (), actions: &mut Actions<'_>, input: &[u8]) -> usize {
        actions.send(input);
        input.len()
    }

    fn on_end(&mut self, (): &mut (), actions: &mut Actions<'_>) {
        actions.close();
    }

    fn on_shutdown(&mut self, (): &mut (), actions: &mut Actions<'_>) {
        actions.send(b"drained");
        actions.close();
    }

    fn on_wake(&mut self, (): &mut (), actions: &mut Actions<'_>) {
        actions.send(b"woken");
    }
}

/// Has a child do `act`, which ends behind it without running destructors.
fn in_a_child(act: impl FnOnce()) {
    // SAFETY: the thread of the test is the only one that does anything, so the child may do everything.
    let id = unsafe { libc::fork() };
    assert!(id >= 0, "fork");
    if id == 0 {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
        // SAFETY: ends this process and nothing else.
        unsafe { libc::_exit(if outcome.is_ok() { FINE } else { 1 }) };
    }
    let child = Pid::from_raw(id).expect("not zero in the parent");
    let ended = waitpid(Some(child), WaitOptions::empty()).expect("our child");
    assert_eq!(ended.expect("it has ended").1.exit_status(), Some(FINE), "the child failed");
}

/// Turns until this word has come back.
fn wait_for(event_loop: &mut EventLoop<Echo>, peer: &mut UnixStream, word: &[u8]) {
    let mut back = Vec::new();
    let end = Instant::now() + Duration::from_secs(60);
    while back.len() < word.len() {
        assert!(Instant::now() < end, "{back:?} came of {word:?}");
        event_loop.turn(Some(Duration::from_millis(1))).expect("turned");
        let mut piece = [0; 64];
        if let Ok(len) = peer.read(&mut piece) {
            back.extend_from_slice(&piece[..len]);
        }
    }
    assert_eq!(back, word);
}

#[test]
fn a_child_does_nothing_to_its_parents_loop_and_may_drop_its_copy() {
    for driver in Driver::ALL.iter().copied() {
        let opened = EventLoop::<Echo>::open(driver, (), Limits::default());
        let Some(mut event_loop) = or_skip(opened) else { continue };
        let (ours, mut peer) = UnixStream::pair().expect("two descriptors");
        ours.set_nonblocking(true).expect("set");
        peer.set_nonblocking(true).expect("set");
        let adopted = event_loop.adopt(ours.into(), Echo);
        let id = adopted.map_err(|(_, _, error)| error).expect("a stream socket");
        peer.write_all(b"before").expect("room");
        wait_for(&mut event_loop, &mut peer, b"before");
        // Of what waits to be taken, and to be submitted, the parent has all.
        peer.write_all(b"meanwhile").expect("room");
        let mut event_loop = Some(event_loop);
        in_a_child(|| {
            let mut copy = event_loop.take().expect("its own");
            let refused = copy.turn(Some(Duration::ZERO)).expect_err("it is the parent's");
            assert!(matches!(refused, LoopError::Poller(_)), "{driver}: {refused}");
            copy.wake(id);
            copy.run_commands();
            // A session that is called would say so to the peer, and one that is closed would end its connection.
            copy.drain();
            copy.close_all(CloseCause::LoopEnded);
            assert_eq!(copy.open_connections(), 1, "{driver}: it is the parent's");
            drop(copy);
        });
        let mut event_loop = event_loop.expect("the child took its copy, not ours");
        wait_for(&mut event_loop, &mut peer, b"meanwhile");
        peer.write_all(b"behind").expect("room");
        wait_for(&mut event_loop, &mut peer, b"behind");
    }
}
