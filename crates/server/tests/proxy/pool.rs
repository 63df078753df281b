//! Upstream connections that threads take from each other, and requests that wait for one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use pollux_engine::{Driver, Listeners};
use pollux_server::proxy::{Check, Fault, ProxyConfig, ProxyCounter};
use pollux_server::stats;

use crate::stage::{Backend, Client, Proxy, on_every_driver};

/// Two threads that have as many clients each, and one connection to the backend.
fn two_threads(config: &mut ProxyConfig) {
    (config.loops.threads, config.loops.listeners) = (2, Listeners::Single);
    config.groups[0].servers[0].connections_max = Some(1);
}

/// A backend that answers with the path it was asked for.
fn echo() -> Backend {
    Backend::start(|_, mut client| {
        loop {
            let head = client.head();
            let Some(path) = head.split(' ').nth(1) else { return };
            let len = path.len();
            client.try_send(format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n{path}"));
        }
    })
}

fn ask(client: &mut Client, path: &str) {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
}

fn answer(client: &mut Client, path: &str) {
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head}");
    assert_eq!(client.bytes(path.len()), path.as_bytes());
}

#[test]
fn a_thread_uses_the_connection_that_another_one_opened() {
    let backend = echo();
    on_every_driver(&[backend.address], two_threads, |driver, proxy| {
        let before = backend.accepted();
        let mut clients = [proxy.client(), proxy.client()];
        for round in 0..20 {
            for (number, client) in clients.iter_mut().enumerate() {
                let path = format!("/{round}/{number}");
                ask(client, &path);
                answer(client, &path);
            }
        }
        let opened = backend.accepted() - before;
        if driver == Driver::Completion {
            // What its receive is armed for can't change hands: each gives its place to the other.
            assert!(opened > 1, "{driver}: {opened}");
            assert_eq!(proxy.count(ProxyCounter::TakenOver), 0, "{driver}");
        } else {
            assert_eq!(opened, 1, "{driver}: one connection for both threads");
            assert!(proxy.count(ProxyCounter::TakenOver) >= 20, "{driver}");
            assert_eq!(proxy.count(ProxyCounter::Connects), 1, "{driver}");
        }
        let text = stats::pools(proxy.server().overview());
        let line = text.lines().nth(1).expect("a line for the backend");
        let columns: Vec<_> = line.split_whitespace().skip(2).collect();
        assert_eq!(columns, ["1", "1", "0"], "{driver}: open, most and waiting of\n{text}");
        assert!(text.contains("taken_over"), "{text}");
    });
}

/// A backend that answers one request at a time, on demand, and notes what it was asked.
#[derive(Default)]
struct Slow {
    asked: Mutex<Vec<String>>,
    may_answer: Mutex<u64>,
    changed: Condvar,
}

impl Slow {
    fn start(self: &Arc<Self>) -> Backend {
        let this = Arc::clone(self);
        Backend::start(move |_, mut client| {
            loop {
                let head = client.head();
                let Some(path) = head.split(' ').nth(1) else { return };
                this.asked.lock().expect("whole").push(path.to_owned());
                let mut may = this.may_answer.lock().expect("whole");
                while *may == 0 {
                    may = this.changed.wait(may).expect("whole");
                }
                *may -= 1;
                drop(may);
                let len = path.len();
                client.try_send(format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n{path}"));
            }
        })
    }

    fn answer(&self, requests: u64) {
        *self.may_answer.lock().expect("whole") += requests;
        self.changed.notify_all();
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().expect("whole"))
    }
}

fn waiting(proxy: &Proxy) -> usize {
    let passing = proxy.server().overview().passing.as_ref().expect("a proxy");
    passing.view(0).waiting
}

#[test]
fn requests_beyond_the_most_connections_wait_in_their_order_whatever_thread_has_them() {
    let slow = Arc::<Slow>::default();
    let backend = slow.start();
    let set = |config: &mut ProxyConfig| {
        two_threads(config);
        config.limits.queue_max = 5;
        config.limits.queue_timeout = Duration::from_secs(3600);
    };
    on_every_driver(&[backend.address], set, |driver, proxy| {
        let mut clients: VecDeque<Client> = VecDeque::new();
        for number in 0..6 {
            let mut client = proxy.client();
            ask(&mut client, &format!("/{number}"));
            clients.push_back(client);
            let is_asked = || !slow.asked.lock().expect("whole").is_empty();
            proxy.await_that("waiting", |proxy| waiting(proxy) == number && is_asked());
        }
        // One more than may wait.
        let mut late = proxy.client();
        ask(&mut late, "/late");
        assert!(late.head().starts_with("HTTP/1.1 503"), "{driver}");
        assert_eq!(proxy.faults(Fault::QueueFull), 1, "{driver}");
        // One that leaves makes room, and is not missed.
        let gone = clients.remove(3).expect("it waits");
        gone.reset();
        proxy.await_that("leaving", |proxy| waiting(proxy) == 4);
        assert_eq!(proxy.faults(Fault::ClientGone), 1, "{driver}");
        slow.answer(5);
        for (number, client) in [0, 1, 2, 4, 5].into_iter().zip(&mut clients) {
            answer(client, &format!("/{number}"));
        }
        assert_eq!(slow.asked(), ["/0", "/1", "/2", "/4", "/5"], "{driver}");
        assert_eq!(proxy.count(ProxyCounter::Queued), 5, "{driver}");
        assert_eq!(waiting(proxy), 0, "{driver}");
    });
}

#[test]
fn a_request_that_waits_too_long_gets_503_and_its_place_is_not_lost() {
    let slow = Arc::<Slow>::default();
    let backend = slow.start();
    let set = |config: &mut ProxyConfig| {
        two_threads(config);
        config.limits.queue_timeout = Duration::from_millis(50);
    };
    on_every_driver(&[backend.address], set, |driver, proxy| {
        let mut clients = [proxy.client(), proxy.client()];
        ask(&mut clients[0], "/first");
        proxy.await_that("a request", |_| !slow.asked.lock().expect("whole").is_empty());
        ask(&mut clients[1], "/second");
        let head = clients[1].head();
        assert!(head.starts_with("HTTP/1.1 503"), "{driver}: {head}");
        assert_eq!(proxy.faults(Fault::QueueTimeout), 1, "{driver}");
        let body = crate::stage::field(&head, "Content-Length").expect("a length");
        clients[1].bytes(body.parse().expect("a number"));
        slow.answer(1);
        answer(&mut clients[0], "/first");
        // The same connections continue.
        slow.answer(2);
        for (number, client) in clients.iter_mut().enumerate() {
            let path = format!("/again/{number}");
            ask(client, &path);
            answer(client, &path);
        }
        slow.asked();
    });
}

#[test]
fn many_clients_over_few_shared_connections_get_their_own_answers() {
    const CLIENTS: usize = 12;
    const REQUESTS: usize = 40;
    let backend = echo();
    let set = |config: &mut ProxyConfig| {
        two_threads(config);
        config.loops.threads = 3;
        config.groups[0].servers[0].connections_max = Some(4);
        config.limits.queue_timeout = crate::stage::PATIENCE;
        // Words to let go come late, when the connection has changed hands again.
        config.lets_go_at_once = config.loops.poller != Some(Driver::Completion);
    };
    on_every_driver(&[backend.address], set, |driver, proxy| {
        let done = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for number in 0..CLIENTS {
                let (done, mut client) = (&done, proxy.client());
                scope.spawn(move || {
                    for request in 0..REQUESTS {
                        let path = format!("/{number}/{request}");
                        ask(&mut client, &path);
                        answer(&mut client, &path);
                        done.fetch_add(1, SeqCst);
                    }
                });
            }
        });
        assert_eq!(done.into_inner(), (CLIENTS * REQUESTS) as u64, "{driver}");
        let passing = proxy.server().overview().passing.as_ref().expect("a proxy");
        let view = passing.view(0);
        assert!(view.open <= Some(4) && view.waiting == 0, "{driver}: {view:?}");
        for fault in Fault::ALL {
            assert!(fault == Fault::ClientGone || proxy.faults(fault) == 0, "{driver}: {fault:?}");
        }
    });
}

#[test]
fn idle_connections_have_a_most_of_their_own() {
    let backend = echo();
    for total in [false, true] {
        let set = |config: &mut ProxyConfig| {
            if total {
                config.limits.upstream_idle_total = Some(2);
            } else {
                config.limits.upstream_idle_max = Some(2);
            }
        };
        on_every_driver(&[backend.address], set, |driver, proxy| {
            let mut clients: Vec<_> = (0..5).map(|_| proxy.client()).collect();
            clients.iter_mut().for_each(|client| ask(client, "/"));
            clients.iter_mut().for_each(|client| answer(client, "/"));
            proxy.await_that("closing", |proxy| {
                let ends = proxy.count(ProxyCounter::Connects) - proxy.count(ProxyCounter::Refused);
                proxy.open_connections() == 5 + ends
            });
            let passing = proxy.server().overview().passing.as_ref().expect("a proxy");
            assert!(passing.view(0).idle <= 2, "{driver}");
        });
    }
}

/// Whether the first backend has its request, and so many wait: else another one could overtake it.
fn has_one_and(number: usize, proxy: &Proxy) -> bool {
    let passing = proxy.server().overview().passing.as_ref().expect("a proxy");
    passing.view(0).open == Some(1) && waiting(proxy) >= number
}

/// Answers checks as `is_well` says, and nothing else.
fn stuck(is_well: &Arc<AtomicBool>) -> Backend {
    let is_well = Arc::clone(is_well);
    Backend::start(move |_, mut client| {
        if client.head().starts_with("GET /health ") {
            let status = if is_well.load(SeqCst) { "200 OK" } else { "500 Sick" };
            client.try_send(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"));
        }
        client.rest();
    })
}

/// Two threads, a place for each server, checks without a pause, and all the time to wait.
fn checked(config: &mut ProxyConfig) {
    two_threads(config);
    config.limits.queue_timeout = Duration::from_secs(3600);
    let health = &mut config.groups[0].health;
    (health.check, health.rise, health.fall) = (Check::Http("/health".to_owned()), 1, 1);
    // Only what a check is answered counts.
    (health.interval, health.timeout) = (Duration::from_millis(5), crate::stage::PATIENCE);
}

#[test]
fn requests_that_wait_for_a_server_that_goes_down_move_on_at_once() {
    let is_well = Arc::new(AtomicBool::new(true));
    let (first, other) = (stuck(&is_well), echo());
    for driver in Driver::ALL {
        let Some(proxy) = Proxy::start(driver, &[first.address, other.address], checked) else {
            continue;
        };
        let servers = &proxy.server().overview().backends;
        servers[1].set_draining(true);
        let mut clients: Vec<_> = (0..5).map(|_| proxy.client()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            ask(client, &format!("/{number}"));
            proxy.await_that("waiting", |proxy| has_one_and(number, proxy));
        }
        servers[1].set_draining(false);
        is_well.store(false, SeqCst);
        // But for the one that it has.
        for (number, client) in clients.iter_mut().enumerate().skip(1) {
            answer(client, &format!("/{number}"));
        }
        assert_eq!(proxy.count(ProxyCounter::MovedOn), 4, "{driver}");
        assert_eq!(waiting(&proxy), 0, "{driver}");
        is_well.store(true, SeqCst);
    }
}

#[test]
fn requests_that_wait_for_the_last_server_get_503_when_it_goes_down() {
    let is_well = Arc::new(AtomicBool::new(true));
    let only = stuck(&is_well);
    for driver in Driver::ALL {
        let Some(proxy) = Proxy::start(driver, &[only.address], checked) else { continue };
        let mut clients: Vec<_> = (0..3).map(|_| proxy.client()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            ask(client, &format!("/{number}"));
            proxy.await_that("waiting", |proxy| has_one_and(number, proxy));
        }
        is_well.store(false, SeqCst);
        for client in &mut clients[1..] {
            assert!(client.head().starts_with("HTTP/1.1 503 "), "{driver}");
        }
        // No request begins to wait for it either.
        let mut late = proxy.client();
        ask(&mut late, "/late");
        assert!(late.head().starts_with("HTTP/1.1 503 "), "{driver}");
        assert_eq!(proxy.faults(Fault::ConnectFailed), 3, "{driver}");
        assert_eq!(waiting(&proxy), 0, "{driver}");
        is_well.store(true, SeqCst);
    }
}
