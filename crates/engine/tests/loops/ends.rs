//! Limits and ends: how a peer's end and its last bytes come together, turn by turn, on every driver.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use pollux_engine::{CloseCause, Counter, Driver, Limits, Listeners};
use pollux_testing::{uninterrupted, wait_until};

use crate::puppet::{Call, Causes, Puppet, Stage, take};
use crate::server::{Server, drivers, read, read_all};

/// Keeps what comes and closes at the end.
fn keeper(causes: &Causes, kept: &Rc<RefCell<Vec<u8>>>) -> Puppet {
    let kept = Rc::clone(kept);
    Puppet::watched(causes, move |call, actions| match call {
        Call::Bytes(input) => {
            kept.borrow_mut().extend_from_slice(input);
            input.len()
        }
        Call::End => {
            actions.close();
            0
        }
        _ => 0,
    })
}

fn tcp() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let theirs = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    let (ours, _) = listener.accept().expect("it waits");
    ours.set_nonblocking(true).expect("set");
    (ours.into(), theirs)
}

/// Some exchanges, then the last bytes and the end between two turns.
fn exchange(stage: &mut Stage, ours: OwnedFd, mut theirs: impl Write, end: impl FnOnce()) {
    let causes = Causes::default();
    let kept = Rc::default();
    stage.adopt_socket(ours, keeper(&causes, &kept));
    for len in [3, 6] {
        theirs.write_all(b"abc").expect("room");
        stage.turn_until("some bytes", |_| kept.borrow().len() == len);
    }
    theirs.write_all(b"last").expect("room");
    end();
    drop(theirs);
    stage.turn_until("the end", |_| !causes.borrow().is_empty());
    assert_eq!(*kept.borrow(), b"abcabclast", "{}", stage.driver);
    assert_eq!(*causes.borrow(), [CloseCause::PeerClosed], "{}", stage.driver);
    stage.assert_balanced();
}

#[test]
fn the_last_bytes_and_the_end_between_two_turns_are_both_seen() {
    for driver in drivers() {
        let mut stage = Stage::open(driver, Limits::default());
        let (ours, theirs) = tcp();
        let again = theirs.try_clone().expect("a descriptor is left");
        exchange(&mut stage, ours, theirs, || again.shutdown(Shutdown::Write).expect("open"));
        let (ours, theirs) = tcp();
        exchange(&mut stage, ours, theirs, || {});
        let (ours, theirs) = UnixStream::pair().expect("two descriptors");
        ours.set_nonblocking(true).expect("set");
        let again = theirs.try_clone().expect("a descriptor is left");
        exchange(&mut stage, ours.into(), theirs, || {
            again.shutdown(Shutdown::Write).expect("open");
        });
        let (ours, theirs) = UnixStream::pair().expect("two descriptors");
        ours.set_nonblocking(true).expect("set");
        exchange(&mut stage, ours.into(), theirs, || {});
    }
}

/// Pauses at the first bytes, until it is woken.
fn pauser(causes: &Causes, received: &Rc<Cell<usize>>) -> Puppet {
    let received = Rc::clone(received);
    Puppet::watched(causes, move |call, actions| {
        match call {
            Call::Bytes(input) => {
                if received.replace(received.get() + input.len()) == 0 {
                    actions.pause_input();
                }
                return input.len();
            }
            Call::Wake => actions.resume_input(),
            Call::End => actions.close(),
            _ => {}
        }
        0
    })
}

/// More than a multishot receive takes at once, after which the kernel puts it off: with a unix
/// socket it then misses the end behind the last bytes (seen on Linux 6.18).
#[test]
fn the_end_behind_many_bytes_that_came_while_input_was_paused_is_seen() {
    for driver in drivers() {
        let (ours, theirs) = tcp();
        pause_and_end(driver, ours, theirs.into());
        let (ours, theirs) = UnixStream::pair().expect("two descriptors");
        ours.set_nonblocking(true).expect("set");
        pause_and_end(driver, ours.into(), theirs.into());
    }
}

fn pause_and_end(driver: Driver, ours: OwnedFd, theirs: OwnedFd) {
    const PIECES: [usize; 3] = [40_000, 60_000, 50_000];
    let mut stage = Stage::open(driver, Limits::default());
    let causes = Causes::default();
    let received = Rc::new(Cell::new(0));
    let id = stage.adopt_socket(ours, pauser(&causes, &received));
    let mut theirs = File::from(theirs);
    theirs.write_all(b"abc").expect("room");
    stage.turn_until("some bytes", |_| received.get() == 3);
    for piece in PIECES {
        theirs.write_all(&vec![b'x'; piece]).expect("room");
    }
    rustix::net::shutdown(&theirs, rustix::net::Shutdown::Write).expect("open");
    stage.event_loop.wake(id);
    stage.turn_until("the end", |_| !causes.borrow().is_empty());
    assert_eq!(received.get(), PIECES.iter().sum::<usize>() + 3, "{driver}");
    assert_eq!(*causes.borrow(), [CloseCause::PeerClosed], "{driver}");
    stage.assert_balanced();
}

#[test]
fn many_senders_at_once_lose_nothing_when_buffers_run_out() {
    // More senders than the ring has buffers, each with more than one buffer.
    const SENDERS: usize = 300;
    const BYTES: usize = 10_000;
    for driver in drivers() {
        let mut stage = Stage::open(driver, Limits::default());
        let causes = Causes::default();
        let kept = Rc::new(RefCell::new(Vec::new()));
        let mut peers: Vec<TcpStream> = (0..SENDERS)
            .map(|_| {
                let (ours, theirs) = tcp();
                stage.adopt_socket(ours, keeper(&causes, &kept));
                theirs
            })
            .collect();
        for round in 1..=3 {
            for peer in &mut peers {
                peer.write_all(&[b'x'; BYTES]).expect("room");
            }
            let all = round * SENDERS * BYTES;
            stage.turn_until("all bytes", |_| kept.borrow().len() == all);
            assert_eq!(stage.count(Counter::BytesIn), all as u64, "{driver}");
        }
        stage.assert_idle();
        drop(peers);
        stage.turn_until("all ends", |stage| stage.event_loop.open_connections() == 0);
        assert_eq!(causes.borrow().len(), SENDERS, "{driver}");
        stage.assert_balanced();
    }
}

#[test]
fn a_session_that_ends_its_output_continues_with_its_input() {
    for driver in drivers() {
        let mut stage = Stage::open(driver, Limits::default());
        let received = Rc::new(RefCell::new(Vec::new()));
        let kept = Rc::clone(&received);
        let (id, mut peer) = stage.adopt(Puppet::new(move |call, actions| match call {
            Call::Wake => {
                actions.send(b"last words");
                actions.end_output();
                0
            }
            Call::Bytes(bytes) => {
                kept.borrow_mut().extend_from_slice(bytes);
                bytes.len()
            }
            Call::End => {
                actions.close();
                0
            }
            _ => 0,
        }));
        stage.event_loop.wake(id);
        let mut bytes = Vec::new();
        stage.turn_until("the end of the output", |_| take(&mut peer, &mut bytes, 100));
        assert_eq!(bytes, b"last words", "{driver}");
        assert_eq!(stage.event_loop.open_connections(), 1, "{driver}");
        peer.write_all(b"still here").expect("taken");
        stage.turn_until("input", |_| received.borrow().len() == 10);
        drop(peer);
        stage.turn_until("the end", |stage| stage.event_loop.open_connections() == 0);
        assert_eq!(*received.borrow(), b"still here", "{driver}");
    }
}

#[test]
fn a_peer_that_never_reads_is_cut_at_the_write_deadline() {
    for driver in drivers() {
        let server = Server::start(driver, 1, Listeners::Single, |limits| {
            limits.write_timeout = Duration::from_millis(50);
        });
        let server = server.expect("started");
        let mut peer = server.connect();
        peer.write_all(b"big 100000000\n").expect("written");
        let counters = server.counters(0);
        wait_until("the cut", || counters.closed(CloseCause::SlowReader) == 1);
        assert!(read_all(&mut peer).len() < 100_000_000, "{driver}");
    }
}

#[test]
fn at_the_limit_the_listener_pauses_and_recovers() {
    for driver in drivers() {
        let server = Server::start(driver, 1, Listeners::Single, |limits| {
            limits.connections_max = 2;
        });
        let server = server.expect("started");
        let counters = server.counters(0);
        let mut first = [server.connect(), server.connect()];
        first.iter_mut().for_each(|peer| assert_eq!(read(peer, 6), b"hello\n"));
        let mut third = server.connect();
        wait_until("the pause", || counters.value(Counter::FullPauses) > 0);
        assert_eq!(counters.open(), 2, "{driver}");
        drop(first);
        assert_eq!(read(&mut third, 6), b"hello\n", "{driver}");
    }
}

#[test]
fn draining_reaches_every_session_and_ends_the_loop() {
    for driver in drivers() {
        let mut server = Server::of(driver);
        let mut peers = [server.connect(), server.connect()];
        peers.iter_mut().for_each(|peer| assert_eq!(read(peer, 6), b"hello\n"));
        let group = server.group.take().expect("running");
        let counters = group.views()[0].counters.clone();
        group.drain(Duration::from_secs(20));
        for peer in &mut peers {
            assert_eq!(read_all(peer), b"drained\n", "{driver}");
        }
        group.join().expect("ended well");
        assert_eq!(counters.closed(CloseCause::Session), 2, "{driver}");
    }
}

#[test]
fn connections_that_are_open_at_the_drain_deadline_are_cut() {
    for driver in drivers() {
        let mut server = Server::of(driver);
        let mut peer = server.connect();
        // Output that is not read can't leave.
        peer.write_all(b"big 100000000\n").expect("written");
        let group = server.group.take().expect("running");
        let counters = group.views()[0].counters.clone();
        wait_until("some of it sent", || counters.value(Counter::BytesOut) > 100_000);
        group.drain(Duration::from_millis(20));
        group.join().expect("ended well");
        assert_eq!(counters.closed(CloseCause::Drained), 1, "{driver}");
        assert_eq!(counters.open(), 0, "{driver}");
        // A part of it never passes for the whole.
        let mut piece = vec![0; 64 * 1024];
        let end = loop {
            match uninterrupted(|| peer.read(&mut piece)) {
                Ok(0) => panic!("{driver}: an end behind a part"),
                Ok(_) => {}
                Err(error) => break error.kind(),
            }
        };
        assert_eq!(end, ErrorKind::ConnectionReset, "{driver}");
    }
}
