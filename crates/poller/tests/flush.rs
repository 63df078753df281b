//! What `Poller::flush` promises: what was deleted and closed is let go, and nothing that it meets
//! is lost for the next wait. On every mechanism that this machine allows; with `POLLUX_FORBID_SKIP` set
//! one that it forbids is a failure.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use pollux_poller::{
    Backend, Error, Event, Events, Interest, Mechanism, Poller, Readiness, Registration, Token,
};

const DEADLINE: Duration = Duration::from_secs(20);

/// Runs `test` on a fresh poller of every mechanism that there is here.
fn on_each(test: impl Fn(Mechanism, &mut dyn Poller)) {
    for mechanism in Mechanism::ALL {
        match mechanism.open() {
            Ok(mut poller) => test(mechanism, &mut *poller),
            Err(error @ Error::Unavailable { .. }) => {
                pollux_testing::skip(format_args!("{error}"));
            }
            Err(error) => panic!("{mechanism}: {error}"),
        }
    }
}

fn pair() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    ours.set_read_timeout(Some(DEADLINE)).expect("set");
    theirs.set_nonblocking(true).expect("set");
    (ours, theirs)
}

fn watch(poller: &mut dyn Poller, mechanism: Mechanism, socket: &UnixStream, slot: u32) {
    let how = Registration::new(Interest::READABLE, mechanism.trigger());
    poller.add(socket.as_fd(), Token::new(slot, 0), how).expect("vacant");
}

fn look(poller: &mut dyn Poller, events: &mut Events) {
    poller.wait(events, Some(Duration::ZERO)).expect("a look");
}

/// Seen on uring-poll: a server that deleted and closed a connection, and then computed for a
/// while, kept its client waiting for the end all the time.
#[test]
fn the_peer_of_a_deleted_and_closed_descriptor_sees_the_end_after_a_flush() {
    on_each(|mechanism, poller| {
        let mut events = Events::with_capacity(8);
        let (mut ours, theirs) = pair();
        watch(poller, mechanism, &theirs, 1);
        look(poller, &mut events);
        poller.delete(theirs.as_fd()).expect("registered");
        drop(theirs);
        if mechanism.backend() == Backend::UringPoll {
            // Nothing was submitted to the kernel yet, and cannot have let go by itself.
            ours.set_nonblocking(true).expect("set");
            let early = ours.read(&mut [0]).expect_err("the kernel holds the file");
            assert_eq!(early.kind(), ErrorKind::WouldBlock, "{mechanism}");
            ours.set_nonblocking(false).expect("set");
        }
        poller.flush().expect("flushed");
        assert_eq!(ours.read_to_end(&mut Vec::new()).expect("in time"), 0, "{mechanism}: no end");
    });
}

#[test]
fn many_deletions_are_flushed_at_once() {
    on_each(|mechanism, poller| {
        let mut events = Events::with_capacity(8);
        let (mut ours, theirs): (Vec<_>, Vec<_>) = (0..100).map(|_| pair()).unzip();
        for (slot, socket) in (0..).zip(&theirs) {
            watch(poller, mechanism, socket, slot);
        }
        look(poller, &mut events);
        theirs.iter().for_each(|socket| poller.delete(socket.as_fd()).expect("registered"));
        drop(theirs);
        poller.flush().expect("flushed");
        for socket in &mut ours {
            assert_eq!(socket.read_to_end(&mut Vec::new()).expect("in time"), 0, "{mechanism}");
        }
    });
}

#[test]
fn events_that_a_flush_meets_are_reported_by_the_next_wait() {
    on_each(|mechanism, poller| {
        let mut events = Events::with_capacity(8);
        let (mut ours, theirs) = pair();
        ours.write_all(b"x").expect("room");
        watch(poller, mechanism, &theirs, 7);
        poller.waker().wake();
        poller.flush().expect("flushed");
        poller.flush().expect("and again");
        let mut found = Vec::new();
        let mut is_woken = false;
        for _ in 0..2 {
            if found.is_empty() || !is_woken {
                poller.wait(&mut events, Some(DEADLINE)).expect("waited");
                found.extend(events.iter().copied());
                is_woken |= events.is_woken();
            }
        }
        let readable = Event { token: Token::new(7, 0), readiness: Readiness::READABLE };
        assert_eq!(found.first(), Some(&readable), "{mechanism}");
        assert!(is_woken, "{mechanism}: the wake was lost");
    });
}

/// A condition that is over is not reported because a flush saw it while it held.
#[test]
fn a_level_that_is_over_since_the_flush_is_not_reported() {
    on_each(|mechanism, poller| {
        if mechanism.backend() != Backend::UringPoll {
            return;
        }
        let mut events = Events::with_capacity(8);
        let (mut ours, mut theirs) = pair();
        let how = Registration::new(Interest::READABLE, pollux_poller::Trigger::Level);
        poller.add(theirs.as_fd(), Token::new(1, 0), how).expect("vacant");
        ours.write_all(b"x").expect("room");
        poller.flush().expect("flushed");
        theirs.read_exact(&mut [0]).expect("it is there");
        poller.wait(&mut events, Some(Duration::from_millis(1))).expect("a look");
        assert!(events.is_empty(), "{mechanism}: {events:?}");
        ours.write_all(b"x").expect("room");
        poller.wait(&mut events, Some(DEADLINE)).expect("waited");
        assert_eq!(events.len(), 1, "{mechanism}: it is still watched");
    });
}

/// The descriptor of an epoll poller in another poller: readable exactly while a wait would find
/// something.
#[test]
fn a_poller_with_a_descriptor_can_be_watched_by_another() {
    on_each(|mechanism, poller| {
        let mut events = Events::with_capacity(8);
        let (mut ours, mut theirs) = pair();
        watch(poller, mechanism, &theirs, 1);
        look(poller, &mut events);
        let Some(fd) = poller.fd() else {
            assert_ne!(mechanism.backend(), Backend::Epoll, "{mechanism}");
            return;
        };
        let mut outer = Mechanism::Poll.open().expect("poll is always there");
        let how = Registration::new(Interest::READABLE, pollux_poller::Trigger::Level);
        outer.add(fd, Token::new(9, 0), how).expect("pollable");
        let mut seen = Events::with_capacity(1);
        look(&mut *outer, &mut seen);
        assert!(seen.is_empty(), "{mechanism}");
        ours.write_all(b"x").expect("room");
        outer.wait(&mut seen, Some(DEADLINE)).expect("waited");
        assert_eq!(seen.len(), 1, "{mechanism}");
        poller.wait(&mut events, Some(DEADLINE)).expect("waited");
        assert_eq!(events.len(), 1, "{mechanism}");
        theirs.read_exact(&mut [0]).expect("it is there");
        look(poller, &mut events);
        look(&mut *outer, &mut seen);
        assert!(seen.is_empty(), "{mechanism}: nothing is ready any more");
    });
}

#[test]
fn an_error_is_an_io_error_with_its_kind_and_itself_inside() {
    let (_, theirs) = pair();
    let mut poller = Mechanism::Poll.open().expect("poll is always there");
    let error = poller.delete(theirs.as_fd()).expect_err("not registered");
    let text = error.to_string();
    let error = std::io::Error::from(error);
    assert_eq!((error.kind(), error.to_string()), (ErrorKind::NotFound, text));
    let inside = error.get_ref().and_then(|inside| inside.downcast_ref());
    assert!(matches!(inside, Some(Error::NotRegistered { .. })));
}
