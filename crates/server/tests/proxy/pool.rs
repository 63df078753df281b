//! Upstream connections that threads take from each other, requests that wait for one, and clients that leave,
//! or end their side, meanwhile: in the queue, while a connection comes about, while the answer is made.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::net::TcpListener;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use pollux_engine::{Counter, Driver, Listeners};
use pollux_server::config::{Check, ProxyConfig};
use pollux_server::config::{LogFormat, LogTarget};
use pollux_server::stats;
use pollux_server::{Fault, ProxyCounter};
use pollux_testing::{DEADLINE, wait_until};
use rustix::net::sockopt::set_socket_recv_buffer_size;

use crate::{Backend, Client, GET, OK, Proxy, field, ok, on_every_driver};

/// Two threads that have as many clients each, and one connection to the backend.
fn two_threads(config: &mut ProxyConfig) {
    (config.loops.threads, config.loops.listeners) = (2, Listeners::Single);
    config.groups[0].servers[0].connections_max = Some(1);
}

/// A backend that answers with the path it was asked for.
fn echo() -> Backend {
    Backend::answering(|head, _| head.split(' ').nth(1).map(|path| ok("", path)))
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
                client.ask(&path);
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
        Backend::answering(move |head, _| {
            let path = head.split(' ').nth(1)?;
            this.asked.lock().expect("whole").push(path.to_owned());
            let may = this.may_answer.lock().expect("whole");
            *this.changed.wait_while(may, |may| *may == 0).expect("whole") -= 1;
            Some(ok("", path))
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
            client.ask(&format!("/{number}"));
            clients.push_back(client);
            let is_asked = || !slow.asked.lock().expect("whole").is_empty();
            proxy.await_that("waiting", |proxy| proxy.pool().waiting == number && is_asked());
        }
        // One more than may wait.
        let mut late = proxy.client();
        late.ask("/late");
        assert!(late.head().starts_with("HTTP/1.1 503"), "{driver}");
        assert_eq!(proxy.faults(Fault::QueueFull), 1, "{driver}");
        // One that leaves makes room, and is not missed.
        let gone = clients.remove(3).expect("it waits");
        gone.reset();
        proxy.await_that("leaving", |proxy| proxy.pool().waiting == 4);
        assert_eq!(proxy.faults(Fault::ClientGone), 1, "{driver}");
        slow.answer(5);
        for (number, client) in [0, 1, 2, 4, 5].into_iter().zip(&mut clients) {
            answer(client, &format!("/{number}"));
        }
        assert_eq!(slow.asked(), ["/0", "/1", "/2", "/4", "/5"], "{driver}");
        assert_eq!(proxy.count(ProxyCounter::Queued), 5, "{driver}");
        assert_eq!(proxy.pool().waiting, 0, "{driver}");
    });
}

#[test]
fn a_request_that_waits_too_long_gets_503_and_its_place_is_not_lost() {
    let slow = Arc::<Slow>::default();
    let backend = slow.start();
    let set = |config: &mut ProxyConfig| {
        two_threads(config);
        config.limits.queue_timeout = Duration::from_millis(250);
    };
    on_every_driver(&[backend.address], set, |driver, proxy| {
        let mut clients = [proxy.client(), proxy.client()];
        clients[0].ask("/first");
        proxy.await_that("a request", |_| !slow.asked.lock().expect("whole").is_empty());
        clients[1].ask("/second");
        let head = clients[1].head();
        assert!(head.starts_with("HTTP/1.1 503"), "{driver}: {head}");
        assert_eq!(proxy.faults(Fault::QueueTimeout), 1, "{driver}");
        let body = field(&head, "Content-Length").expect("a length");
        clients[1].bytes(body.parse().expect("a number"));
        slow.answer(1);
        answer(&mut clients[0], "/first");
        // The same connections continue.
        slow.answer(2);
        for (number, client) in clients.iter_mut().enumerate() {
            let path = format!("/again/{number}");
            client.ask(&path);
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
        config.limits.queue_timeout = DEADLINE;
        // Words to let go come late, when the connection has changed hands again.
        config.lets_go_at_once = config.loops.poller != Some(Driver::Completion);
    };
    on_every_driver(&[backend.address], set, |driver, proxy| {
        std::thread::scope(|scope| {
            for number in 0..CLIENTS {
                let mut client = proxy.client();
                scope.spawn(move || {
                    for request in 0..REQUESTS {
                        let path = format!("/{number}/{request}");
                        client.ask(&path);
                        answer(&mut client, &path);
                    }
                });
            }
        });
        let view = proxy.pool();
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
            clients.iter_mut().for_each(|client| client.ask("/"));
            clients.iter_mut().for_each(|client| answer(client, "/"));
            proxy.await_that("closing", |proxy| {
                let ends = proxy.count(ProxyCounter::Connects) - proxy.count(ProxyCounter::NotKept);
                proxy.open_connections() == 5 + ends
            });
            assert!(proxy.pool().idle <= 2, "{driver}");
        });
    }
}

/// Whether the first backend has its request, and so many wait: else another one could overtake it.
fn has_one_and(number: usize, proxy: &Proxy) -> bool {
    let view = proxy.pool();
    view.open == Some(1) && view.waiting >= number
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
    (health.interval, health.timeout) = (Duration::from_millis(5), DEADLINE);
}

#[test]
fn requests_that_wait_for_a_server_that_goes_down_move_on_at_once() {
    let is_well = Arc::new(AtomicBool::new(true));
    let first = stuck(&is_well);
    let other = echo();
    on_every_driver(&[first.address, other.address], checked, |driver, proxy| {
        let servers = &proxy.server().overview().backends;
        servers[1].set_draining(true);
        let mut clients: Vec<_> = (0..5).map(|_| proxy.client()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            client.ask(&format!("/{number}"));
            proxy.await_that("waiting", |proxy| has_one_and(number, proxy));
        }
        servers[1].set_draining(false);
        is_well.store(false, SeqCst);
        // But for the one that it has.
        for (number, client) in clients.iter_mut().enumerate().skip(1) {
            answer(client, &format!("/{number}"));
        }
        assert_eq!(proxy.count(ProxyCounter::MovedOn), 4, "{driver}");
        assert_eq!(proxy.pool().waiting, 0, "{driver}");
        is_well.store(true, SeqCst);
    });
}

#[test]
fn requests_that_wait_for_the_last_server_get_503_when_it_goes_down() {
    let is_well = Arc::new(AtomicBool::new(true));
    let only = stuck(&is_well);
    on_every_driver(&[only.address], checked, |driver, proxy| {
        let mut clients: Vec<_> = (0..3).map(|_| proxy.client()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            client.ask(&format!("/{number}"));
            proxy.await_that("waiting", |proxy| has_one_and(number, proxy));
        }
        is_well.store(false, SeqCst);
        for client in &mut clients[1..] {
            assert!(client.head().starts_with("HTTP/1.1 503 "), "{driver}");
        }
        // No request begins to wait for it either.
        let mut late = proxy.client();
        late.ask("/late");
        assert!(late.head().starts_with("HTTP/1.1 503 "), "{driver}");
        assert_eq!(proxy.faults(Fault::ConnectFailed), 3, "{driver}");
        assert_eq!(proxy.pool().waiting, 0, "{driver}");
        is_well.store(true, SeqCst);
    });
}

/// Nothing ends by itself within the time of a test.
fn patient(config: &mut ProxyConfig) {
    let long = 2 * DEADLINE;
    config.limits.queue_timeout = long;
    config.limits.connect_timeout = long;
    config.limits.first_byte_timeout = long;
}

/// The last line of the log that names a fault, once it is there.
fn logged(proxy: &Proxy, path: &std::path::Path, words: &str) {
    proxy.await_that(words, |_| std::fs::read_to_string(path).unwrap_or_default().contains(words));
}

/// Plays `scene` on every driver, with a log.
fn play(
    backend: std::net::SocketAddr,
    set: impl Fn(&mut ProxyConfig),
    scene: impl Fn(Driver, &Proxy, &std::path::Path),
) {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("access.log");
    let set = |config: &mut ProxyConfig| {
        patient(config);
        config.monitoring.access_log = Some(LogTarget::File(log.clone()));
        set(config);
    };
    on_every_driver(&[backend], set, |driver, proxy| {
        scene(driver, proxy, &log);
        std::fs::write(&log, "").expect("emptied");
    });
}

#[test]
fn a_client_that_is_gone_while_its_request_waits_is_noticed_and_the_log_says_where() {
    let backend = Backend::silent();
    let set = |config: &mut ProxyConfig| config.groups[0].servers[0].connections_max = Some(1);
    play(backend.address, set, |driver, proxy, log| {
        let mut first = proxy.client();
        first.ask("/a");
        proxy.await_that("a connection", |proxy| proxy.open_connections() == 2);
        let mut second = proxy.client();
        second.ask("/a");
        proxy.await_that("waiting", |proxy| proxy.pool().waiting == 1);
        second.reset();
        logged(proxy, log, "client_gone/queue");
        first.reset();
        logged(proxy, log, "client_gone/wait");
        assert_eq!(proxy.faults(Fault::ClientGone), 2, "{driver}");
        proxy.await_that("closing", |proxy| proxy.open_connections() == 0);
    });
}

#[test]
fn a_client_that_is_gone_while_a_connection_comes_about_is_noticed() {
    // A backlog that is full: connects wait for ever.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    set_socket_recv_buffer_size(&listener, 4096).expect("set");
    rustix::net::listen(&listener, 0).expect("a small backlog");
    let mut fill = Vec::new();
    for _ in 0..8 {
        let socket = std::thread::spawn(move || {
            std::net::TcpStream::connect_timeout(&address, Duration::from_millis(300))
        });
        fill.push(socket.join().expect("no panic"));
    }
    assert!(fill.iter().any(Result::is_err), "the backlog is full");
    play(
        address,
        |_| {},
        |driver, proxy, log| {
            let mut client = proxy.client();
            client.ask("/a");
            proxy.await_that("a connect", |proxy| proxy.open_connections() == 2);
            client.reset();
            logged(proxy, log, "client_gone/connect");
            assert_eq!(proxy.faults(Fault::ClientGone), 1, "{driver}");
        },
    );
}

#[test]
fn a_client_that_ended_its_side_is_answered_or_dropped_as_configured() {
    // The proxy knows of the end before the answer, or after it: either way the answer goes out.
    let backend = Backend::polite();
    on_every_driver(&[backend.address], patient, |driver, proxy| {
        let mut client = proxy.client();
        client.ask("/a");
        client.end();
        let answer = client.rest();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hi"), "{driver}: {answer}");
    });
    let backend = Backend::silent();
    let drops = |config: &mut ProxyConfig| config.limits.answers_half_closed = false;
    play(backend.address, drops, |driver, proxy, log| {
        let mut client = proxy.client();
        client.ask("/a");
        // A connection is counted before it is established, and nothing is asked before.
        proxy.await_that("a request", |proxy| proxy.count_of_engine(Counter::BytesOut) > 0);
        client.end();
        assert_eq!(client.rest(), "", "{driver}");
        logged(proxy, log, "client_gone/wait");
        proxy.await_that("closing", |proxy| proxy.open_connections() == 0);
    });
}

#[test]
fn connections_that_are_kept_to_one_server_make_room_for_another_one() {
    let backends = [(); 3].map(|()| Backend::polite());
    let addresses = backends.each_ref().map(|each| each.address);
    // Connections that one thread keeps for itself, and those that threads share.
    for threads in [1, 2] {
        let set = |config: &mut ProxyConfig| {
            config.loops.threads = threads;
            // Each thread may have two, and the servers take turns.
            config.limits.clients.connections_max = Some(2 * threads as u32);
        };
        on_every_driver(&addresses, set, |driver, proxy| {
            let mut client = proxy.client();
            for turn in 0..9 {
                client.send(GET);
                let answer = client.until("\r\n\r\nhi");
                assert!(answer.starts_with("HTTP/1.1 200"), "{driver}, turn {turn}: {answer}");
            }
            assert_eq!(proxy.faults(Fault::UpstreamsFull), 0, "{driver}");
            assert!(proxy.count(ProxyCounter::IdleDropped) > 0, "{driver}");
            drop(client);
            proxy.await_that("an end of every request", |proxy| proxy.in_use() == 0);
        });
    }
}

#[test]
fn a_check_that_has_no_room_says_nothing_of_the_backend() {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let backend = Backend::start(move |_, mut client| {
        if client.head().is_empty() {
            return;
        }
        wait_until("the end of the test", || over.load(SeqCst));
        client.try_send(OK);
    });
    let set = |config: &mut ProxyConfig| {
        is_over.store(false, SeqCst);
        config.limits.clients.connections_max = Some(1);
        config.groups[0].health.check = Check::Tcp;
        config.groups[0].health.interval = Duration::from_millis(2);
        config.groups[0].health.fall = 1;
    };
    on_every_driver(&[backend.address], set, |driver, proxy| {
        let mut client = proxy.client();
        client.send(GET);
        proxy.await_that("the connection", |proxy| proxy.count(ProxyCounter::Connects) > 0);
        let before = proxy.count(ProxyCounter::Checks);
        proxy.await_that("checks", |proxy| proxy.count(ProxyCounter::Checks) > before + 5);
        assert_eq!(proxy.server().overview().backends[0].falls(), 0, "{driver}");
        is_over.store(true, SeqCst);
        assert!(client.until("\r\n\r\nhi").starts_with("HTTP/1.1 200"), "{driver}");
    });
}

#[test]
fn an_answer_that_the_end_of_the_proxy_cuts_is_not_whole_and_no_backend_is_blamed() {
    // Its end would be the end of the connection.
    let backend = Backend::start(|_, mut client| {
        drop(client.head());
        client.try_send("HTTP/1.1 200 OK\r\n\r\na part");
        drop(client.rest());
    });
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let set = |config: &mut ProxyConfig| {
        // Of the driver before.
        let _ = std::fs::remove_file(&log);
        config.limits.clients.drain_timeout = Duration::from_millis(10);
        config.monitoring.access_log = Some(LogTarget::File(log.clone()));
        config.monitoring.access_log_format = LogFormat::Json;
    };
    on_every_driver(&[backend.address], set, |driver, proxy| {
        let mut client = proxy.client();
        client.send("GET / HTTP/1.0\r\nHost: x\r\n\r\n");
        assert!(client.until("a part").ends_with("a part"), "{driver}");
        proxy.server().drain();
        let rest = client.socket.read_exact(&mut [0]).map_err(|error| error.kind());
        assert_eq!(rest, Err(ErrorKind::ConnectionReset), "{driver}");
        proxy.await_that("the fault", |proxy| proxy.faults(Fault::Ended) == 1);
        let line = || std::fs::read_to_string(&log).unwrap_or_default();
        let end = "\"end\":\"proxy_ended\",\"state\":\"answer\",\"retry\":\"safe\"";
        proxy.await_that("its line", |_| line().contains(end));
        assert_eq!((proxy.faults(Fault::Cut), proxy.faults(Fault::ClientGone)), (0, 0), "{driver}");
    });
}
