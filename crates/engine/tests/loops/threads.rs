//! Groups of several loops, on every driver and listener strategy.

use pollux_engine::{Counter, Listeners};

use crate::peer::{Server, await_that, drivers, read};

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
            let lines = server.group().look().descriptors().expect("all loops rest");
            let connections: usize = lines.iter().map(Vec::len).sum();
            assert!(connections >= CONNECTIONS, "{driver} {strategy}: {lines:?}");
            drop(peers);
            await_that("all closed", || (0..3).all(|index| open(index) == 0));
        }
    }
}
