//! What an idle connection costs: one that was answered once, with its deadline armed.

use crate::child::{Server, alone, raise_descriptor_limit};
use crate::closed_loop::ClosedLoop;

const CONNECTIONS: usize = 5000;
const BYTES_EACH_MAX: u64 = 256;
/// Requests of the warm-up, which touch every buffer of a loop.
const WARM_UP: u64 = 5000;

#[test]
fn an_idle_connection_costs_few_bytes() {
    let _turn = alone();
    let allowed = raise_descriptor_limit();
    assert!(allowed > CONNECTIONS + 300, "{allowed} descriptors are too few: ulimit -n");
    for driver in ["epoll-et", "uring"] {
        let Some(grown) = grown_for_each(driver) else { continue };
        assert!(grown.iter().all(|each| *each <= BYTES_EACH_MAX), "{driver}: {grown:?} bytes");
    }
}

/// Bytes for each idle connection to a new server: the first ones, and when as many were there before.
fn grown_for_each(driver: &str) -> Option<[u64; 2]> {
    let server = Server::start(driver, &["--reply", "128"])?;
    ClosedLoop::connect(server.address, 64).run(|requests| requests >= WARM_UP);
    server.await_rest();
    // The tables of the loop are small still, so their growth is counted.
    let before = server.resident_bytes();
    let grown = [(); 2].map(|()| {
        let idle = ClosedLoop::connect(server.address, CONNECTIONS);
        assert_eq!(server.metrics().sum("connections_open"), CONNECTIONS as u64);
        let each = server.resident_bytes().saturating_sub(before) / CONNECTIONS as u64;
        drop(idle);
        server.await_rest();
        each
    });
    println!("{driver}: {grown:?} bytes for each of {CONNECTIONS} idle connections");
    server.end();
    Some(grown)
}
