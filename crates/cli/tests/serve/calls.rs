//! How many system calls a connection and a request take, from the server's own counters, which
//! are exact: they are counted where the calls are made.

use std::net::TcpStream;

use crate::child::Wire;
use crate::child::{Metrics, Server, alone, raise_descriptor_limit};
use crate::storm::ClosedLoop;

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

// Connections that only wait, on a server of files under a small descriptor limit.

/// Descriptors that the server may have.
const DESCRIPTORS: u32 = 1024;
/// More than half of what is left beside listeners, logs and endpoints; less than three quarters.
const SILENT: usize = 500;

#[test]
fn silent_connections_beside_a_small_descriptor_limit_stop_no_answer() {
    let _turn = alone();
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("index.html"), "hello").expect("written");
    std::fs::write(folder.path().join("large"), vec![b'x'; 1 << 20]).expect("written");
    let folder = folder.path().to_str().expect("a plain path");
    for driver in ["epoll", "uring"] {
        let flags = [folder, "--header-timeout", "10m"];
        let Some(server) = Server::start_within(driver, &flags, Some(DESCRIPTORS)) else {
            continue;
        };
        let connect = |_| TcpStream::connect(server.address).expect("connected");
        let silent: Vec<TcpStream> = (0..SILENT).map(connect).collect();
        let mut live = Wire::connect(server.address);
        for (path, bytes) in [("/", 5), ("/large", 1 << 20)] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
            let answers = live.ask(request.as_bytes(), &[false]).expect("answered");
            assert_eq!((answers[0].status, answers[0].body.len()), (200, bytes), "{driver}");
        }
        let metrics = server.metrics();
        assert_eq!(metrics.sum("connections_open"), SILENT as u64 + 1, "{driver}");
        assert_eq!(metrics.sum("loop_full_pauses_total"), 0, "{driver}");
        drop((silent, live));
        server.await_rest();
        server.end();
    }
}

// What an idle connection costs: one that was answered once, with its deadline armed.

const IDLE: usize = 5000;
const BYTES_EACH_MAX: u64 = 256;
/// Requests of the warm-up, which touch every buffer of a loop.
const WARM_UP: u64 = 5000;

#[test]
fn an_idle_connection_costs_few_bytes() {
    let _turn = alone();
    let allowed = raise_descriptor_limit();
    assert!(allowed > IDLE + 300, "{allowed} descriptors are too few: ulimit -n");
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
        let idle = ClosedLoop::connect(server.address, IDLE);
        assert_eq!(server.metrics().sum("connections_open"), IDLE as u64);
        let each = server.resident_bytes().saturating_sub(before) / IDLE as u64;
        drop(idle);
        server.await_rest();
        each
    });
    println!("{driver}: {grown:?} bytes for each of {CONNECTIONS} idle connections");
    server.end();
    Some(grown)
}
