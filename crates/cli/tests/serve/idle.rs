//! What an idle connection costs: one that was answered once, with its deadline armed.

use crate::child::{Server, alone, raise_descriptor_limit};
use crate::closed_loop::ClosedLoop;

const CONNECTIONS: usize = 5000;
const BYTES_EACH_MAX: u64 = 256;
const SERVERS_MAX: usize = 8;
/// Requests of the warm-up, which touch every buffer of a loop.
const WARM_UP: u64 = 5000;

#[test]
fn an_idle_connection_costs_few_bytes() {
    let _turn = alone();
    let allowed = raise_descriptor_limit();
    assert!(allowed > CONNECTIONS + 300, "{allowed} descriptors are too few: ulimit -n");
    for driver in ["epoll-et", "uring"] {
        // Tables that grew leave their old memory to the allocator, which has it in use again or not, by
        // the addresses that it was given: 24 bytes for each of so many. So the least of some counts.
        let least = |found: &[[u64; 2]], time: usize| found.iter().map(|each| each[time]).min();
        let mut found = Vec::new();
        while found.len() < SERVERS_MAX
            && [0, 1]
                .iter()
                .any(|time| least(&found, *time).is_none_or(|each| each > BYTES_EACH_MAX))
        {
            let Some(grown) = grown_for_each(driver) else { break };
            found.push(grown);
        }
        for time in [0, 1] {
            let Some(each) = least(&found, time) else { continue };
            assert!(each <= BYTES_EACH_MAX, "{driver}: {each} bytes of {found:?}");
        }
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
