//! What keeping connections costs in calls of the kernel: the trace of HAProxy's "always poll for
//! recv" (10,000 requests over 20 connections), turned by hand so that the counts are exact.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use pollux_engine::{Counter, ListenAddress};
use pollux_poller::Mechanism;
use pollux_server::proxy::{Passing, ProxyConfig, ProxyCounter, backends_of};

use crate::by_hand::OneLoop;

const CONNECTIONS: usize = 20;
const ROUNDS: usize = 500;
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// What the document counted with the rule that learns of readiness on the way.
const CTL_MAX: u64 = 66;
const WAITS_MAX: u64 = 2_644;

struct Scene {
    one: OneLoop,
    backend: TcpListener,
    upstreams: Vec<TcpStream>,
}

impl Scene {
    fn open(mechanism: Mechanism) -> Self {
        let backend = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let to = ListenAddress::Tcp(backend.local_addr().expect("bound"));
        let any = ListenAddress::Tcp("127.0.0.1:0".parse().expect("an address"));
        let config = ProxyConfig::new(vec![any], vec![to]);
        let passing = Passing::new(&config, backends_of(&config));
        let one = OneLoop::open(0, &config, &passing, mechanism, CONNECTIONS);
        Self { one, backend, upstreams: Vec::new() }
    }

    fn round(&mut self) {
        self.one.clients.iter_mut().for_each(|client| client.write_all(REQUEST).expect("taken"));
        self.one.turn_until_sent(CONNECTIONS);
        while self.upstreams.len() < CONNECTIONS {
            let (upstream, _) = self.backend.accept().expect("accepted");
            upstream.set_nodelay(true).expect("set");
            self.upstreams.push(upstream);
        }
        for upstream in &mut self.upstreams {
            let mut seen = [0; 1024];
            let len = upstream.read(&mut seen).expect("a request");
            assert!(seen[..len].ends_with(b"\r\n\r\n"));
            upstream.write_all(ANSWER).expect("taken");
        }
        self.one.turn_until_sent(CONNECTIONS);
        for client in &mut self.one.clients {
            let mut seen = [0; 1024];
            let len = client.read(&mut seen).expect("an answer");
            assert!(seen[..len].ends_with(b"\r\n\r\nhi"));
        }
    }
}

#[test]
fn ten_thousand_requests_over_twenty_connections_cost_few_calls_of_the_poller() {
    for (mechanism, ctl_max) in
        // Level-triggered: each one is added; those to the backend let go of writing once. Edge: one
        // call for the life of a connection. Three more are the listener, the alarm and the waker.
        [(Mechanism::Epoll, CTL_MAX), (Mechanism::EpollEt, 2 * CONNECTIONS as u64 + 3)]
    {
        let mut scene = Scene::open(mechanism);
        (0..ROUNDS).for_each(|_| scene.round());
        let poller = scene.one.event_loop.poller_counters().expect("it has a poller").snapshot();
        let calls = poller.updates_sent;
        let shown = format!("{mechanism}: {calls} changes, {} waits: {poller:?}", poller.waits);
        println!("{mechanism}: {calls} changes, {} waits", poller.waits);
        assert!(calls <= ctl_max, "{shown}");
        assert!(poller.waits <= WAITS_MAX, "{shown}");
        assert_eq!(scene.one.proxied.value(ProxyCounter::Connects), CONNECTIONS as u64);
        let reuses = (CONNECTIONS * (ROUNDS - 1)) as u64;
        assert_eq!(scene.one.proxied.value(ProxyCounter::Reuses), reuses);
        let (exchanges, links) = scene.one.event_loop.shared().open();
        assert_eq!((exchanges, links), (0, CONNECTIONS));
        assert_eq!(scene.one.event_loop.shared().idle(0), CONNECTIONS);
    }
}

/// The document's ten million requests at 5,000 for each connection, with a part of them: 190,000
/// updates were asked for, and 14,000 calls made, which is 7 % of them.
#[test]
fn updates_are_few_among_requests_and_calls_few_among_updates_that_plain_readiness_would_need() {
    const ROUNDS: u64 = 2_500;
    const REQUESTS: u64 = ROUNDS * CONNECTIONS as u64;
    let mut scene = Scene::open(Mechanism::Epoll);
    (0..ROUNDS).for_each(|_| scene.round());
    let asked = scene.one.event_loop.counters().value(Counter::UpdatesAsked);
    let poller = scene.one.event_loop.poller_counters().expect("it has a poller").snapshot();
    let calls = poller.updates_sent;
    println!("{REQUESTS} requests: {asked} updates asked for, {calls} changes");
    assert!(asked * 1000 <= REQUESTS * 19, "{asked} updates for {REQUESTS} requests");
    assert!(calls * 10_000 <= REQUESTS * 14, "{calls} calls for {REQUESTS} requests");
    // A wish to read at the begin of each request, and none at its end: two updates.
    assert!(calls * 100 <= 7 * 2 * REQUESTS, "{calls} calls for {REQUESTS} requests");
}
