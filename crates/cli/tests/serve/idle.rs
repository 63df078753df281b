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
        let Some(server) = Server::start(driver, &["--reply", "128"]) else { continue };
        ClosedLoop::connect(server.address, 64).run(|requests| requests >= WARM_UP);
        server.await_rest();
        // The tables of the loop are small still, so their growth is counted.
        let before = server.resident_bytes();
        let idle = ClosedLoop::connect(server.address, CONNECTIONS);
        assert_eq!(server.metrics().sum("connections_open"), CONNECTIONS as u64);
        let grown = server.resident_bytes().saturating_sub(before);
        let each = grown / CONNECTIONS as u64;
        println!("{driver}: {each} bytes for each of {CONNECTIONS} idle connections");
        assert!(each <= BYTES_EACH_MAX, "{driver}: {each} bytes");
        drop(idle);
        server.await_rest();
        let again = ClosedLoop::connect(server.address, CONNECTIONS);
        let grown = server.resident_bytes().saturating_sub(before) / CONNECTIONS as u64;
        println!("{driver}: {grown} bytes for each when as many were there before");
        assert!(grown <= BYTES_EACH_MAX, "{driver}: {grown} bytes the second time");
        drop(again);
        server.await_rest();
        server.end();
    }
}
