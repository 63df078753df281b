//! Groups of several loops, on every driver and listener strategy.

use std::time::Duration;

use pollux_engine::{Counter, Listeners};
use pollux_testing::wait_until;

use crate::peer::{Server, drivers, read};

const CONNECTIONS: usize = 40;

#[test]
fn every_strategy_serves_every_connection() {
    for driver in drivers() {
        for strategy in Listeners::ALL {
            let server = Server::start(driver, 3, strategy, |_| {}).expect("started");
            let mut peers: Vec<_> = (0..CONNECTIONS).map(|_| server.connect()).collect();
            for peer in &mut peers {
                assert_eq!(read(peer, 6), b"hello\n", "{driver} {strategy}");
            }
            let open = |index| server.counters(index).open();
            assert_eq!((0..3).map(open).sum::<u64>(), CONNECTIONS as u64, "{driver} {strategy}");
            if strategy == Listeners::Single {
                let handed = server.counters(0).value(Counter::HandedOut);
                assert!(handed > 0, "{driver}: the first loop kept everything");
                assert!((0..3).all(|index| open(index) > 0), "{driver}: a loop got nothing");
            }
            let lines = server.group().dumper().descriptors().expect("all loops answer");
            let connections: usize = lines.iter().map(Vec::len).sum();
            assert!(connections >= CONNECTIONS, "{driver} {strategy}: {lines:?}");
            drop(peers);
            wait_until("all closed", || (0..3).all(|index| open(index) == 0));
        }
    }
}

/// Peers that were greeted, as many as there is room for.
fn greeted(server: &Server, count: usize, what: &str) -> Vec<std::net::TcpStream> {
    let mut peers: Vec<_> = (0..count).map(|_| server.connect()).collect();
    for peer in &mut peers {
        assert_eq!(read(peer, 6), b"hello\n", "{what}");
    }
    peers
}

#[test]
fn a_full_loop_leaves_connections_to_those_with_capacity() {
    for driver in drivers() {
        for strategy in [Listeners::Exclusive, Listeners::Single] {
            let what = format!("{driver} {strategy}");
            let server = Server::start(driver, 2, strategy, |limits| {
                limits.connections_max = 8;
                limits.accept_pause = Duration::from_millis(2);
            });
            let server = server.expect("started");
            let mut peers = greeted(&server, 8, &what);
            let open = |index| server.counters(index).open();
            assert_eq!([open(0), open(1)], [4, 4], "{what}");
            for _ in 0..8 {
                drop(peers.remove(0));
                wait_until("a close", || open(0) + open(1) == 7);
                // Either loop is full now; the other one takes the next connection.
                peers.extend(greeted(&server, 1, &what));
            }
            wait_until("all counted", || open(0) + open(1) == 8);
        }
    }
}
