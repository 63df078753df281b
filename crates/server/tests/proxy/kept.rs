//! Kept connections to a backend whose idle time ends just when they are needed.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use pollux_engine::ListenAddress;
use pollux_poller::Mechanism;
use pollux_server::proxy::{Passing, ProxyConfig, ProxyCounter, backends_of};

use crate::by_hand::OneLoop;
use crate::stage::{Backend, PATIENCE, on_every_driver};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
const IDLE_TIMEOUT: Duration = Duration::from_millis(100);

struct Scene {
    loops: Vec<OneLoop>,
    upstream: Option<TcpStream>,
    backend: TcpListener,
}

impl Scene {
    fn open(mechanism: Mechanism, threads: usize) -> Self {
        let backend = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let to = ListenAddress::Tcp(backend.local_addr().expect("bound"));
        let any = ListenAddress::Tcp("127.0.0.1:0".parse().expect("an address"));
        let mut config = ProxyConfig::new(vec![any], vec![to]);
        config.loops.threads = threads;
        config.limits.upstream_idle_timeout = IDLE_TIMEOUT;
        let passing = Passing::new(&config, backends_of(&config));
        let loops = (0..threads)
            .map(|index| OneLoop::open(index, &config, &passing, mechanism, 1))
            .collect();
        Self { loops, upstream: None, backend }
    }

    /// The client of that loop has asked.
    fn ask(&mut self, number: usize) {
        self.loops[number].clients[0].write_all(REQUEST).expect("taken");
    }

    /// That loop passes the request on, and its answer back, over the one connection that there is.
    fn pass(&mut self, number: usize) {
        let one = &mut self.loops[number];
        one.turn_until_sent(1);
        let upstream = self.upstream.get_or_insert_with(|| {
            let (upstream, _) = self.backend.accept().expect("accepted");
            upstream.set_read_timeout(Some(PATIENCE)).expect("set");
            upstream
        });
        let mut seen = [0; 1024];
        let len = upstream.read(&mut seen).expect("a request, and no end");
        assert!(seen[..len].ends_with(b"\r\n\r\n"), "its end: {}", seen[..len].escape_ascii());
        upstream.write_all(ANSWER).expect("taken");
        one.turn_until_sent(1);
        let len = one.clients[0].read(&mut seen).expect("an answer");
        assert!(seen[..len].ends_with(b"\r\n\r\nhi"), "{}", seen[..len].escape_ascii());
    }
}

/// Lets the time pass until all that is idle now was so for too long.
fn await_deadlines() {
    let end = Instant::now() + 2 * IDLE_TIMEOUT;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        std::thread::sleep(left);
    }
}

#[test]
fn a_request_that_comes_when_the_idle_time_of_a_connection_ends_is_answered() {
    for mechanism in [Mechanism::Epoll, Mechanism::EpollEt] {
        // One that no other thread can take, one that could be taken.
        for threads in [1, 2] {
            let mut scene = Scene::open(mechanism, threads);
            scene.ask(0);
            scene.pass(0);
            // The request and the deadline are seen in the same turn.
            scene.ask(0);
            await_deadlines();
            scene.pass(0);
            let one = &scene.loops[0];
            assert_eq!(one.proxied.value(ProxyCounter::Reuses), 1, "{mechanism}, {threads}");
        }
        // One that another thread has taken, and that is taken back.
        let mut scene = Scene::open(mechanism, 2);
        for number in [0, 1] {
            scene.ask(number);
            scene.pass(number);
        }
        scene.ask(0);
        await_deadlines();
        scene.pass(0);
        let one = &scene.loops[0];
        assert_eq!(one.proxied.value(ProxyCounter::TakenOver), 1, "{mechanism}: taken back");
    }
}

#[test]
fn a_slow_upload_over_a_kept_connection_takes_longer_than_it_may_be_idle() {
    let backend = Backend::start(|_, mut client| {
        loop {
            let head = client.head();
            if head.is_empty() {
                return;
            }
            if head.starts_with("POST ") {
                assert_eq!(client.bytes(4), b"abcd");
            }
            client.try_send(ANSWER);
        }
    });
    let set = |config: &mut ProxyConfig| config.limits.upstream_idle_timeout = IDLE_TIMEOUT;
    on_every_driver(&[backend.address], set, |driver, proxy| {
        let mut client = proxy.client();
        client.send(REQUEST);
        assert!(client.until("hi").ends_with("hi"), "{driver}");
        client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab");
        await_deadlines();
        client.send("cd");
        let given = client.until("hi");
        assert!(given.starts_with("HTTP/1.1 200 OK\r\n"), "{driver}: {given}");
        assert_eq!(proxy.count(ProxyCounter::Reuses), 1, "{driver}");
    });
}
