//! What takeovers cost in calls of the poller: two loops that take the same connections from each
//! other, turned by hand so that the counts are exact.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use pollux_engine::ListenAddress;
use pollux_poller::Mechanism;
use pollux_server::proxy::{Passing, ProxyConfig, ProxyCounter, backends_of};

use crate::by_hand::OneLoop;

/// Connections to the backend, and clients of each loop.
const CONNECTIONS: usize = 8;
const ROUNDS: u64 = 50;
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

fn changes(of: &OneLoop) -> u64 {
    of.event_loop.poller_counters().expect("it has a poller").snapshot().updates_sent
}

struct Scene {
    loops: [OneLoop; 2],
    backend: TcpListener,
    upstreams: Vec<TcpStream>,
}

impl Scene {
    fn open(mechanism: Mechanism, lets_go_at_once: bool) -> Self {
        let backend = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let to = ListenAddress::Tcp(backend.local_addr().expect("bound"));
        let any = ListenAddress::Tcp("127.0.0.1:0".parse().expect("an address"));
        let mut config = ProxyConfig::new(vec![any], vec![to]);
        (config.loops.threads, config.lets_go_at_once) = (2, lets_go_at_once);
        config.groups[0].servers[0].connections_max = Some(CONNECTIONS as u32);
        let passing = Passing::new(&config, backends_of(&config));
        let loops =
            [0, 1].map(|index| OneLoop::open(index, &config, &passing, mechanism, CONNECTIONS));
        Self { loops, backend, upstreams: Vec::new() }
    }

    /// All clients of one loop ask at once, and get their answers over all connections there are.
    fn round(&mut self, number: usize) {
        let one = &mut self.loops[number];
        one.clients.iter_mut().for_each(|client| client.write_all(REQUEST).expect("taken"));
        one.turn_until_sent(CONNECTIONS);
        while self.upstreams.len() < CONNECTIONS {
            self.upstreams.push(self.backend.accept().expect("accepted").0);
        }
        for upstream in &mut self.upstreams {
            let mut seen = [0; 1024];
            let len = upstream.read(&mut seen).expect("a request");
            assert!(seen[..len].ends_with(b"\r\n\r\n"));
            upstream.write_all(ANSWER).expect("taken");
        }
        one.turn_until_sent(CONNECTIONS);
        for client in &mut one.clients {
            let mut seen = [0; 1024];
            let len = client.read(&mut seen).expect("an answer");
            assert!(seen[..len].ends_with(b"\r\n\r\nhi"));
        }
        // The messages of a loop meanwhile, and what it keeps for its next batch.
        self.loops.iter_mut().for_each(|one| {
            one.event_loop.turn(Some(Duration::ZERO)).expect("turned");
        });
    }

    fn count(&self, counter: ProxyCounter) -> u64 {
        self.loops.iter().map(|one| one.proxied.value(counter)).sum()
    }
}

#[test]
fn takeovers_need_fewer_calls_of_the_poller_when_letting_go_is_put_off() {
    for mechanism in [Mechanism::Epoll, Mechanism::EpollEt] {
        let [deferred, at_once] = [false, true].map(|lets_go_at_once| {
            let mut scene = Scene::open(mechanism, lets_go_at_once);
            (0..ROUNDS).for_each(|round| scene.round(round as usize % 2));
            assert_eq!(scene.count(ProxyCounter::Connects), CONNECTIONS as u64, "{mechanism}");
            let taken = scene.count(ProxyCounter::TakenOver);
            assert_eq!(taken, (ROUNDS - 1) * CONNECTIONS as u64, "{mechanism}");
            scene.loops.iter().map(changes).sum::<u64>()
        });
        println!("{mechanism}: {deferred} changes with deferral, {at_once} without");
        assert!(deferred * 100 <= at_once * 75, "{mechanism}: {deferred} and {at_once}");
    }
}
