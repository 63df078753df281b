//! How many system calls a connection and a request take, from the server's own counters, which
//! are exact: they are counted where the calls are made.

use crate::child::{Server, alone};
use crate::closed_loop::ClosedLoop;
use crate::metrics::Metrics;

const CONNECTIONS: usize = 256;
const REQUESTS: u64 = 20_000;

/// Calls that change what the poller watches.
fn changes(metrics: &Metrics) -> u64 {
    metrics.sum("poller_system_calls_total") - metrics.sum("poller_waits_total")
}

#[test]
fn a_keep_alive_connection_is_registered_and_no_more() {
    let _turn = alone();
    for driver in ["epoll", "epoll-et"] {
        let Some(server) = Server::start(driver, &["--reply", "128"]) else { continue };
        let before = changes(&server.metrics());
        ClosedLoop::connect(server.address, CONNECTIONS).run(|requests| requests >= REQUESTS);
        let each = (changes(&server.await_rest()) - before) as f64 / CONNECTIONS as f64;
        println!("{driver}: {each} epoll_ctl calls for each keep-alive connection");
        assert!(each <= 2.0, "{driver}: {each} epoll_ctl calls for each connection");
        server.end();
    }
}

#[test]
fn a_request_takes_few_system_calls() {
    let _turn = alone();
    let of_readiness: &[&str] =
        &["poller_system_calls_total", "loop_receives_total", "loop_sends_total"];
    let of_completion: &[&str] = &["loop_ring_enters_total"];
    for (driver, calls, calls_max) in
        [("epoll-et", of_readiness, 2.15), ("uring", of_completion, 0.15)]
    {
        let Some(server) = Server::start(driver, &["--reply", "128"]) else { continue };
        let sum = |metrics: &Metrics| calls.iter().map(|name| metrics.sum(name)).sum::<u64>();
        let mut live = ClosedLoop::connect(server.address, CONNECTIONS);
        let before = sum(&server.metrics());
        let requests = live.run(|requests| requests >= REQUESTS).requests();
        let each = (sum(&server.metrics()) - before) as f64 / requests as f64;
        println!("{driver}: {each:.3} system calls for each of {requests} requests");
        assert!(each <= calls_max, "{driver}: {each} system calls for each request");
        drop(live);
        server.await_rest();
        server.end();
    }
}
