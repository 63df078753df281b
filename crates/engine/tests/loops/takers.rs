//! Peers that take their output slowly, steadily or not at all, on every driver.
//!
//! Buffers are small and times are short: half a second stands for a minute.

use std::cell::Cell;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use pollux_engine::{Actions, CloseCause, Counter, Driver, FileRange, Limits};
use pollux_poller::Mechanism;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};

use crate::puppet::{Call, Causes, Puppet, Stage};
use crate::server::{DEADLINE, Lines, drivers};

/// Time in which a peer has to take something.
const WRITE_TIMEOUT: Duration = Duration::from_millis(600);
/// The send buffer that is asked for; the kernel gives twice as much.
const HELD_BYTES: usize = 200_000;
/// What a steady peer takes in a second. The kernel reports room when a third of the buffer is
/// free, and that is less often than `WRITE_TIMEOUT`; a step of a unix socket takes less.
const RATE: usize = 200_000;
/// More than the kernel holds.
const LONG_BYTES: usize = 900_000;

trait Peer: Read + Write {}
impl<P: Read + Write> Peer for P {}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Family {
    Tcp,
    Unix,
}

/// A connected pair, the first of it the server's, with small buffers.
fn pair(family: Family) -> (OwnedFd, Box<dyn Peer>) {
    let small = |socket: &dyn AsFd| {
        set_socket_send_buffer_size(socket, HELD_BYTES).expect("set");
    };
    match family {
        Family::Unix => {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            small(&ours);
            ours.set_nonblocking(true).expect("set");
            theirs.set_nonblocking(true).expect("set");
            (ours.into(), Box::new(theirs))
        }
        Family::Tcp => {
            let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
            // Before the connect, so that the first window is small already.
            set_socket_recv_buffer_size(&listener, 4096).expect("set");
            let ours = TcpStream::connect(listener.local_addr().expect("bound")).expect("there");
            let (theirs, _) = listener.accept().expect("accepted");
            small(&ours);
            ours.set_nonblocking(true).expect("set");
            theirs.set_nonblocking(true).expect("set");
            (ours.into(), Box::new(theirs))
        }
    }
}

/// A file with the bytes of `Lines`, which need not be removed.
fn file_of(len: usize) -> OwnedFd {
    let mut file = File::from(memfd_create("lines", MemfdFlags::CLOEXEC).expect("created"));
    let bytes: Vec<u8> = (0..len).map(Lines::byte).collect();
    file.write_all(&bytes).expect("written");
    file.into()
}

fn limits() -> Limits {
    Limits { write_timeout: WRITE_TIMEOUT, ..Limits::default() }
}

/// Plays a scene on every driver and both families, all at once: they mostly wait.
fn everywhere(scene: impl Fn(Driver, Family) + Sync) {
    std::thread::scope(|scope| {
        for driver in drivers() {
            for family in [Family::Tcp, Family::Unix] {
                let scene = &scene;
                scope.spawn(move || scene(driver, family));
            }
        }
    });
}

/// Says the bytes of `Lines` up to `len` when it is woken, in pieces or from the file, and then
/// `lingers` or waits.
fn speaker(causes: &Causes, len: usize, is_file: bool, lingers: bool) -> Puppet {
    let mut said = 0;
    let file = file_of(len);
    let at_end = move |actions: &mut Actions<'_>| {
        if lingers {
            actions.linger();
        }
    };
    Puppet::watched(causes, move |call, actions| {
        match call {
            Call::Wake if is_file => {
                let file = file.try_clone().expect("a descriptor is left");
                actions.send_file(FileRange { file, offset: 0, len: len as u64 });
                said = len;
                at_end(actions);
            }
            Call::Wake | Call::Drained => {
                let piece = actions.room().min(len - said).min(16_000);
                let bytes: Vec<u8> = (said..said + piece).map(Lines::byte).collect();
                actions.send(&bytes);
                said += piece;
                if said < len { actions.notify_when_sent() } else { at_end(actions) }
            }
            Call::Bytes(input) => return input.len(),
            _ => {}
        }
        0
    })
}

/// Plays a scene with a steady peer, and again where it failed and this thread did not run for half of the time in which
/// a peer has to take something: the loop was right then, as its peer had stopped with it.
fn unless_held_up(play: impl Fn(&Cell<Duration>)) {
    const TRIES: u32 = 5;
    for one in 1.. {
        let longest = Cell::default();
        match catch_unwind(AssertUnwindSafe(|| play(&longest))) {
            Ok(()) => return,
            Err(_) if longest.get() >= WRITE_TIMEOUT / 2 && one < TRIES => {}
            Err(failed) => resume_unwind(failed),
        }
    }
}

/// Turns, and takes what a peer with `RATE` takes, until `len` bytes came or the stream ends. `longest` is the longest time
/// in which nothing could be taken, as this thread was elsewhere.
fn take_steadily(
    stage: &mut Stage,
    peer: &mut dyn Peer,
    len: usize,
    longest: &Cell<Duration>,
) -> Vec<u8> {
    let begin = Instant::now();
    let mut looked = begin;
    let mut taken = Vec::new();
    let mut buffer = vec![0; RATE];
    while taken.len() < len {
        longest.set(longest.get().max(looked.elapsed()));
        looked = Instant::now();
        let due = (begin.elapsed().as_millis() as usize * RATE / 1000).min(len);
        // All that is due, however late this thread comes: a late one is not a slow peer.
        let most = due.saturating_sub(taken.len()).min(buffer.len());
        match peer.read(&mut buffer[..most]) {
            Ok(0) if most > 0 => break,
            Ok(read) => taken.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("{} after {} bytes: {error}", stage.driver, taken.len()),
        }
        assert!(begin.elapsed() < DEADLINE, "{}: {} bytes came", stage.driver, taken.len());
        stage.event_loop.turn(Some(Duration::from_millis(5))).expect("turned");
    }
    taken
}

/// Turns until a session has ended; says how long that took.
fn until_closed(stage: &mut Stage, causes: &Causes) -> Duration {
    let begin = Instant::now();
    stage.turn_until("the cut", |_| !causes.borrow().is_empty());
    begin.elapsed()
}

#[test]
fn a_peer_that_takes_its_output_slowly_and_steadily_gets_all_of_it() {
    for is_file in [true, false] {
        everywhere(|driver, family| {
            unless_held_up(|longest| {
                let mut stage = Stage::open(driver, limits());
                let (ours, mut theirs) = pair(family);
                let causes = Causes::default();
                let session = speaker(&causes, LONG_BYTES, is_file, false);
                let id = stage.adopt_socket(ours, session);
                stage.event_loop.wake(id);
                let taken = take_steadily(&mut stage, &mut *theirs, LONG_BYTES, longest);
                assert_eq!(taken.len(), LONG_BYTES, "{driver} {family:?}: {:?}", causes.borrow());
                assert!(taken.iter().enumerate().all(|(at, byte)| *byte == Lines::byte(at)));
                assert!(causes.borrow().is_empty(), "{driver} {family:?}: {:?}", causes.borrow());
            });
        });
    }
}

#[test]
fn a_peer_that_takes_nothing_is_cut_at_the_write_timeout_also_when_the_kernel_has_it_all() {
    for len in [HELD_BYTES / 2, LONG_BYTES] {
        everywhere(|driver, family| {
            let mut stage = Stage::open(driver, limits());
            let (ours, mut theirs) = pair(family);
            let causes = Causes::default();
            let id = stage.adopt_socket(ours, speaker(&causes, len, true, false));
            stage.event_loop.wake(id);
            let took = until_closed(&mut stage, &causes);
            assert_eq!(*causes.borrow(), [CloseCause::SlowReader], "{driver} {family:?}");
            assert!(took >= WRITE_TIMEOUT, "{driver} {family:?}: {took:?}");
            // A loaded machine is late, and then looks less often.
            let looks = stage.count(Counter::UntakenLooks);
            assert!(looks <= 2 * 16, "{driver} {family:?}: {looks} looks");
            stage.assert_idle();
            // The peer gets a reset, in place of megabytes that are kept for it.
            if family == Family::Tcp {
                let mut rest = Vec::new();
                stage.turn_until("the reset", |_| {
                    let end = theirs.read_to_end(&mut rest).expect_err("no clean end");
                    end.kind() == ErrorKind::ConnectionReset
                });
                // The kernel lets go of a socket that AIO has watched in a thread of its own, so
                // this peer may still have taken something.
                let is_late = driver == Driver::Readiness(Mechanism::Aio);
                assert!(is_late || rest.len() < len, "{driver}: {} bytes", rest.len());
            }
        });
    }
}

/// As the idle timeout of a server does, which falls into a slow download.
#[test]
fn a_session_that_closes_while_its_output_is_taken_slowly_does_not_cut_it() {
    const LEN: usize = HELD_BYTES;
    for is_taken in [true, false] {
        everywhere(|driver, family| {
            unless_held_up(|longest| {
                let mut stage = Stage::open(driver, limits());
                let (ours, mut theirs) = pair(family);
                let causes = Causes::default();
                let file = file_of(LEN);
                let session = Puppet::watched(&causes, move |call, actions| {
                    match call {
                        Call::Wake => {
                            let file = file.try_clone().expect("a descriptor is left");
                            actions.send_file(FileRange { file, offset: 0, len: LEN as u64 });
                            actions.set_deadline(actions.now().at + WRITE_TIMEOUT / 3);
                        }
                        Call::Deadline => actions.close(),
                        Call::Bytes(input) => return input.len(),
                        _ => {}
                    }
                    0
                });
                let id = stage.adopt_socket(ours, session);
                stage.event_loop.wake(id);
                if !is_taken {
                    until_closed(&mut stage, &causes);
                    assert_eq!(*causes.borrow(), [CloseCause::SlowReader], "{driver} {family:?}");
                    return;
                }
                let mut taken = take_steadily(&mut stage, &mut *theirs, LEN / 2, longest);
                theirs.write_all(b"and another thing").expect("written");
                taken.extend(take_steadily(&mut stage, &mut *theirs, LEN / 2, longest));
                assert_eq!(taken.len(), LEN, "{driver} {family:?}: {:?}", causes.borrow());
                until_closed(&mut stage, &causes);
                assert_eq!(*causes.borrow(), [CloseCause::Session], "{driver} {family:?}");
            });
        });
    }
}

#[test]
fn an_answer_that_is_taken_slowly_survives_its_close_and_a_peer_that_talks_on() {
    const LEN: usize = HELD_BYTES;
    everywhere(|driver, family| {
        unless_held_up(|longest| {
            let limits = Limits { linger_time: Duration::from_millis(50), ..limits() };
            let mut stage = Stage::open(driver, limits);
            let (ours, mut theirs) = pair(family);
            let causes = Causes::default();
            let session = speaker(&causes, LEN, true, true);
            let id = stage.adopt_socket(ours, session);
            stage.event_loop.wake(id);
            let mut taken = take_steadily(&mut stage, &mut *theirs, LEN / 2, longest);
            // On a closed socket this would reset the connection, and the rest would be lost.
            theirs.write_all(b"and another thing").expect("written");
            taken.extend(take_steadily(&mut stage, &mut *theirs, LEN / 2, longest));
            assert_eq!(taken.len(), LEN, "{driver} {family:?}: {:?}", causes.borrow());
            until_closed(&mut stage, &causes);
            assert_eq!(*causes.borrow(), [CloseCause::Session], "{driver} {family:?}");
            assert!(matches!(theirs.read(&mut [0; 1]), Ok(0)), "{driver} {family:?}");
        });
    });
}

#[test]
fn a_busy_connection_is_not_looked_at_and_an_idle_one_once() {
    everywhere(|driver, family| {
        let limits = Limits { write_timeout: Duration::from_secs(16), ..Limits::default() };
        let mut stage = Stage::open(driver, limits);
        let (ours, mut theirs) = pair(family);
        let echo = Puppet::new(|call, actions| {
            let Call::Bytes(input) = call else { return 0 };
            actions.send(input);
            input.len()
        });
        stage.adopt_socket(ours, echo);
        let begin = Instant::now();
        let mut rounds = 0;
        while begin.elapsed() < Duration::from_millis(500) {
            theirs.write_all(b"x").expect("written");
            stage.turn_until("the echo", |_| theirs.read(&mut [0; 1]).is_ok());
            rounds += 1;
        }
        let looks = |stage: &Stage| stage.count(Counter::UntakenLooks);
        assert!(looks(&stage) <= rounds / 100, "{driver} {family:?}: in {rounds} rounds");
        stage.turn_until("the look", |stage| looks(stage) > 0);
        let looked = looks(&stage);
        stage.assert_idle();
        assert_eq!(looks(&stage), looked, "{driver} {family:?}");
    });
}
