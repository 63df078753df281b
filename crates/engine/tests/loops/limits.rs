//! Limits, slow peers and the end, on every driver.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use pollux_engine::{CloseCause, Counter, Listeners};
use pollux_testing::wait_until;

use crate::peer::{Server, drivers, read, read_all};

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
fn draining_tells_every_session_and_ends_the_loop() {
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
fn what_is_open_at_the_drain_deadline_is_cut() {
    for driver in drivers() {
        let mut server = Server::of(driver);
        let mut peer = server.connect();
        // Output that nobody reads can't leave.
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
            match peer.read(&mut piece) {
                Ok(0) => panic!("{driver}: an end behind a part"),
                Ok(_) => {}
                Err(error) => break error.kind(),
            }
        };
        assert_eq!(end, ErrorKind::ConnectionReset, "{driver}");
    }
}
