//! Loops of a proxy that are turned by hand, so that counts are exact: what kept connections and takeovers
//! cost, and kept connections whose idle time ends just when they are needed.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pollux_engine::{Counter, Driver, EventLoop, Limits, ListenAddress, Listener};
use pollux_poller::Mechanism;
use pollux_server::config::LogLevel;
use pollux_server::config::ProxyConfig;
use pollux_server::{Logs, LoopState, ProxyConnection, ServerCounters};
use pollux_server::{ProxyCounter, ProxyCounters, SharedUpstreams, backends_of};
use pollux_testing::{DEADLINE, uninterrupted};

use crate::{Backend, GET, OK, on_all_drivers_at_once};

struct OneLoop {
    event_loop: EventLoop<ProxyConnection>,
    proxied: Arc<ProxyCounters>,
    clients: Vec<TcpStream>,
}

impl OneLoop {
    /// The loop with this number of a proxy to one backend, and so many clients.
    fn open(
        index: usize,
        config: &ProxyConfig,
        upstreams: &Arc<SharedUpstreams>,
        mechanism: Mechanism,
        clients: usize,
    ) -> Self {
        let any = ListenAddress::Tcp("127.0.0.1:0".parse().expect("an address"));
        let proxied = Arc::new(ProxyCounters::new(1));
        let counters = Arc::<ServerCounters>::default();
        let upstreams = Arc::clone(upstreams);
        let kept = Arc::clone(&proxied);
        let logs = Logs::new(LogLevel::Error);
        let shared = LoopState::for_proxy(index, config, &[], upstreams, counters, kept, &logs);
        let shared = shared.expect("no log is opened");
        let limits = Limits { connects_max: Some(1000), ..Limits::default() };
        let driver = Driver::Readiness(mechanism);
        let mut event_loop = EventLoop::open(driver, shared, limits).expect("epoll is there");
        let listener = Listener::open(&any, false).expect("a free port");
        let ListenAddress::Tcp(front) = listener.address().clone() else { panic!("TCP") };
        event_loop.listen(listener, false);
        let connect = |_| {
            let client = TcpStream::connect(front).expect("connected");
            client.set_read_timeout(Some(DEADLINE)).expect("set");
            client.set_nodelay(true).expect("set");
            client
        };
        Self { event_loop, proxied, clients: (0..clients).map(connect).collect() }
    }

    /// Turns until that many sends more were made.
    fn turn_until_sent(&mut self, sends: usize) {
        let counters = self.event_loop.counters();
        let end = counters.value(Counter::Sends) + sends as u64;
        while counters.value(Counter::Sends) < end {
            self.event_loop.turn(Some(Duration::from_secs(30))).expect("turned");
        }
    }
}

/// Loops of a proxy to one backend.
struct Scene {
    loops: Vec<OneLoop>,
    backend: TcpListener,
    upstreams: Vec<TcpStream>,
}

impl Scene {
    /// So many loops, each with so many clients.
    fn open(
        mechanism: Mechanism,
        threads: usize,
        clients: usize,
        set: impl FnOnce(&mut ProxyConfig),
    ) -> Self {
        let backend = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let to = ListenAddress::Tcp(backend.local_addr().expect("bound"));
        let any = ListenAddress::Tcp("127.0.0.1:0".parse().expect("an address"));
        let mut config = ProxyConfig::new(vec![any], vec![to]);
        config.loops.threads = threads;
        set(&mut config);
        let upstreams = SharedUpstreams::new(&config, backends_of(&config));
        let open = |index| OneLoop::open(index, &config, &upstreams, mechanism, clients);
        Self { loops: (0..threads).map(open).collect(), backend, upstreams: Vec::new() }
    }

    /// All clients of that loop ask.
    fn ask(&mut self, number: usize) {
        let clients = &mut self.loops[number].clients;
        clients.iter_mut().for_each(|client| client.write_all(GET.as_bytes()).expect("taken"));
    }

    /// That loop passes the requests on, and the answers back, over as many connections as it has clients.
    fn pass(&mut self, number: usize) {
        let one = &mut self.loops[number];
        let connections = one.clients.len();
        one.turn_until_sent(connections);
        while self.upstreams.len() < connections {
            let (upstream, _) = self.backend.accept().expect("accepted");
            upstream.set_read_timeout(Some(DEADLINE)).expect("set");
            upstream.set_nodelay(true).expect("set");
            self.upstreams.push(upstream);
        }
        let mut seen = [0; 1024];
        for upstream in &mut self.upstreams {
            let len = uninterrupted(|| upstream.read(&mut seen)).expect("a request, and no end");
            assert!(seen[..len].ends_with(b"\r\n\r\n"), "its end: {}", seen[..len].escape_ascii());
            upstream.write_all(OK.as_bytes()).expect("taken");
        }
        one.turn_until_sent(connections);
        for client in &mut one.clients {
            let len = uninterrupted(|| client.read(&mut seen)).expect("an answer");
            assert!(seen[..len].ends_with(b"\r\n\r\nhi"), "{}", seen[..len].escape_ascii());
        }
    }

    fn count(&self, counter: ProxyCounter) -> u64 {
        self.loops.iter().map(|one| one.proxied.value(counter)).sum()
    }
}

const KEPT: usize = 20;
const KEPT_ROUNDS: usize = 500;
/// What the document counted with the rule that learns of readiness on the way.
const CTL_MAX: u64 = 66;
const WAITS_MAX: u64 = 2_644;

/// The trace of HAProxy's "always poll for recv": 10,000 requests over 20 connections.
#[test]
fn ten_thousand_requests_over_twenty_connections_cost_few_calls_of_the_poller() {
    for (mechanism, ctl_max) in
        // Level-triggered: each one is added; those to the backend let go of writing once. Edge: one
        // call for the life of a connection. Three more are the listener, the alarm and the waker.
        [(Mechanism::Epoll, CTL_MAX), (Mechanism::EpollEt, 2 * KEPT as u64 + 3)]
    {
        let mut scene = Scene::open(mechanism, 1, KEPT, |_| {});
        for _ in 0..KEPT_ROUNDS {
            scene.ask(0);
            scene.pass(0);
        }
        let poller =
            scene.loops[0].event_loop.poller_counters().expect("it has a poller").snapshot();
        let calls = poller.updates_sent;
        let shown = format!("{mechanism}: {calls} changes, {} waits: {poller:?}", poller.waits);
        assert!(calls <= ctl_max, "{shown}");
        assert!(poller.waits <= WAITS_MAX, "{shown}");
        assert_eq!(scene.loops[0].proxied.value(ProxyCounter::Connects), KEPT as u64);
        let reuses = (KEPT * (KEPT_ROUNDS - 1)) as u64;
        assert_eq!(scene.loops[0].proxied.value(ProxyCounter::Reuses), reuses);
        let (exchanges, links) = scene.loops[0].event_loop.shared().open();
        assert_eq!((exchanges, links), (0, KEPT));
        assert_eq!(scene.loops[0].event_loop.shared().idle(0), KEPT);
    }
}

/// The document's ten million requests at 5,000 for each connection, with a part of them: 190,000
/// updates were asked for, and 14,000 calls made, which is 7 % of them.
#[test]
fn updates_are_few_among_requests_and_calls_few_among_updates_that_plain_readiness_would_need() {
    const ROUNDS: u64 = 2_500;
    const REQUESTS: u64 = ROUNDS * KEPT as u64;
    let mut scene = Scene::open(Mechanism::Epoll, 1, KEPT, |_| {});
    for _ in 0..ROUNDS {
        scene.ask(0);
        scene.pass(0);
    }
    let asked = scene.loops[0].event_loop.counters().value(Counter::UpdatesAsked);
    let poller = scene.loops[0].event_loop.poller_counters().expect("it has a poller").snapshot();
    let calls = poller.updates_sent;
    assert!(asked * 1000 <= REQUESTS * 19, "{asked} updates for {REQUESTS} requests");
    assert!(calls * 10_000 <= REQUESTS * 14, "{calls} calls for {REQUESTS} requests");
    // A wish to read at the begin of each request, and none at its end: two updates.
    assert!(calls * 100 <= 7 * 2 * REQUESTS, "{calls} calls for {REQUESTS} requests");
}

const IDLE_TIMEOUT: Duration = Duration::from_millis(100);

fn shortly(config: &mut ProxyConfig) {
    config.limits.upstream_idle_timeout = IDLE_TIMEOUT;
}

/// Lets the time pass until all that is idle now was so for too long.
fn await_deadlines(idle_timeout: Duration) {
    let end = Instant::now() + 2 * idle_timeout;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        std::thread::sleep(left);
    }
}

#[test]
fn a_request_that_comes_when_the_idle_time_of_a_connection_ends_is_answered() {
    for mechanism in [Mechanism::Epoll, Mechanism::EpollEt] {
        // One that no other thread can take, one that could be taken.
        for threads in [1, 2] {
            let mut scene = Scene::open(mechanism, threads, 1, shortly);
            scene.ask(0);
            scene.pass(0);
            // The request and the deadline are seen in the same turn.
            scene.ask(0);
            await_deadlines(IDLE_TIMEOUT);
            scene.pass(0);
            let one = &scene.loops[0];
            assert_eq!(one.proxied.value(ProxyCounter::Reuses), 1, "{mechanism}, {threads}");
        }
        // One that another thread has taken, and that is taken back.
        let mut scene = Scene::open(mechanism, 2, 1, shortly);
        for number in [0, 1] {
            scene.ask(number);
            scene.pass(number);
        }
        scene.ask(0);
        await_deadlines(IDLE_TIMEOUT);
        scene.pass(0);
        let one = &scene.loops[0];
        assert_eq!(one.proxied.value(ProxyCounter::TakenOver), 1, "{mechanism}: taken back");
    }
}

#[test]
fn a_slow_upload_over_a_kept_connection_takes_longer_than_it_may_be_idle() {
    let backend = Backend::answering(|head, client| {
        if head.starts_with("POST ") {
            assert_eq!(client.bytes(4), b"abcd");
        }
        Some(OK)
    });
    // Longer than a machine that is busy takes from one request to the next.
    let idle_timeout = Duration::from_secs(1);
    let set = |_, config: &mut ProxyConfig| config.limits.upstream_idle_timeout = idle_timeout;
    on_all_drivers_at_once(&[backend.address], set, |driver, proxy| {
        let mut client = proxy.client();
        client.send(GET);
        assert!(client.until("hi").ends_with("hi"), "{driver}");
        client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab");
        await_deadlines(idle_timeout);
        client.send("cd");
        let given = client.until("hi");
        assert!(given.starts_with("HTTP/1.1 200 OK\r\n"), "{driver}: {given}");
        assert_eq!(proxy.count(ProxyCounter::Reuses), 1, "{driver}");
    });
}

/// Connections to the backend, and clients of each loop.
const SHARED: usize = 8;
const SHARED_ROUNDS: usize = 50;

fn changes(of: &OneLoop) -> u64 {
    of.event_loop.poller_counters().expect("it has a poller").snapshot().updates_sent
}

#[test]
fn takeovers_need_fewer_calls_of_the_poller_when_letting_go_is_put_off() {
    for mechanism in [Mechanism::Epoll, Mechanism::EpollEt] {
        let [deferred, at_once] = [false, true].map(|lets_go_at_once| {
            let mut scene = Scene::open(mechanism, 2, SHARED, |config| {
                config.lets_go_at_once = lets_go_at_once;
                config.groups[0].servers[0].connections_max = Some(SHARED as u32);
            });
            for round in 0..SHARED_ROUNDS {
                scene.ask(round % 2);
                scene.pass(round % 2);
                // The messages of a loop meanwhile, and what it keeps for its next batch.
                for one in &mut scene.loops {
                    one.event_loop.turn(Some(Duration::ZERO)).expect("turned");
                }
            }
            assert_eq!(scene.count(ProxyCounter::Connects), SHARED as u64, "{mechanism}");
            let taken = scene.count(ProxyCounter::TakenOver);
            assert_eq!(taken, ((SHARED_ROUNDS - 1) * SHARED) as u64, "{mechanism}");
            scene.loops.iter().map(changes).sum::<u64>()
        });
        assert!(deferred * 100 <= at_once * 75, "{mechanism}: {deferred} and {at_once}");
    }
}
