//! A number that is closed and opened again within one turn is another descriptor.
//!
//! Alone in its binary: no other test may take the number in between.

use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use pollux_engine::{Counters, Due, FdTable, Watch};
use pollux_poller::{Backend, Error, Events, Mechanism, Poller, Token};
use rustix::io::fcntl_dupfd_cloexec;

const DEADLINE: Duration = Duration::from_secs(60);

#[test]
fn a_number_closed_and_opened_again_within_the_turn_is_registered_anew() {
    for mechanism in Mechanism::ALL {
        match mechanism.open() {
            Ok(poller) => reuse(mechanism, poller),
            Err(error @ Error::Unavailable { .. }) => pollux_testing::skip(error),
            Err(error) => panic!("{mechanism}: {error}"),
        }
    }
}

fn reuse(mechanism: Mechanism, mut poller: Box<dyn Poller>) {
    let mut table: FdTable<OwnedFd> = FdTable::new(8);
    let watch = Watch::Connection(mechanism.trigger());
    let (ours, _theirs) = UnixStream::pair().expect("two descriptors");
    let number = ours.as_raw_fd();
    let first = table.insert(ours.into(), watch).expect("room");
    table.want_read(first);
    apply(&mut table, &mut *poller);
    wait(&mut table, &mut *poller, Duration::ZERO);

    // Within one turn: closed, its number opened, and the same interest again.
    table.stop_read(first);
    drop(table.remove(first, &mut *poller).expect("the poller lets go").expect("live"));
    let (successor, mut peer) = UnixStream::pair().expect("two descriptors");
    let reused = if successor.as_raw_fd() == number {
        OwnedFd::from(successor)
    } else {
        fcntl_dupfd_cloexec(&successor, number).expect("the number is free")
    };
    assert_eq!(reused.as_raw_fd(), number);
    let second = table.insert(reused, watch).expect("room");
    assert_eq!((second.slot(), second == first), (first.slot(), false));
    table.want_read(second);
    let calls_before = poller.counters().snapshot().system_calls;
    apply(&mut table, &mut *poller);
    if mechanism.backend() == Backend::Epoll {
        let calls = poller.counters().snapshot().system_calls - calls_before;
        assert_eq!(calls, 1, "{mechanism}: one addition");
    }

    peer.write_all(b"x").expect("room");
    let seen = wait(&mut table, &mut *poller, DEADLINE);
    let read = Due { read: true, ..Due::NOTHING };
    assert_eq!(seen, [(second, Some(read))], "{mechanism}");
    assert_eq!(poller.counters().snapshot().closed_without_delete, 0, "{mechanism}");
}

fn apply(table: &mut FdTable<OwnedFd>, poller: &mut dyn Poller) {
    let mut refused = Vec::new();
    table.apply(poller, &Counters::default(), &mut refused);
    assert!(refused.is_empty(), "{refused:?}");
    table.check().expect("every invariant holds");
}

/// What one wait brings; an edge may report room to write before it reports data.
fn wait(
    table: &mut FdTable<OwnedFd>,
    poller: &mut dyn Poller,
    timeout: Duration,
) -> Vec<(Token, Option<Due>)> {
    let mut events = Events::with_capacity(8);
    poller.wait(&mut events, Some(timeout)).expect("wait");
    events.iter().map(|event| (event.token, table.reported(event.token, event.readiness))).collect()
}
