//! Clients that leave, or end their side, while their request is under way: in the queue, while a
//! connection comes about, while the answer is made.

use std::io::{ErrorKind, Read};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use pollux_engine::{Counter, Driver};
use pollux_server::config::{LogFormat, LogTarget};
use pollux_server::proxy::{Check, Fault, ProxyConfig, ProxyCounter};
use pollux_testing::DEADLINE;
use rustix::net::sockopt::set_socket_recv_buffer_size;

use crate::stage::{Backend, GET, OK, Proxy, on_every_driver};

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
            config.limits.connections_max = Some(2 * threads as u32);
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
        while !over.load(SeqCst) {
            std::thread::yield_now();
        }
        client.try_send(OK);
    });
    let set = |config: &mut ProxyConfig| {
        is_over.store(false, SeqCst);
        config.limits.connections_max = Some(1);
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
        config.limits.drain_timeout = Duration::from_millis(10);
        config.monitoring.access_log = Some(LogTarget::File(log.clone()));
        config.monitoring.access_log_format = LogFormat::Json;
    };
    on_every_driver(&[backend.address], set, |driver, proxy| {
        let mut client = proxy.client();
        client.send("GET / HTTP/1.0\r\nHost: x\r\n\r\n");
        assert!(client.until("a part").ends_with("a part"), "{driver}");
        proxy.server().drain();
        let rest = client.socket.read(&mut [0; 64]).map_err(|error| error.kind());
        assert_eq!(rest, Err(ErrorKind::ConnectionReset), "{driver}");
        proxy.await_that("the fault", |proxy| proxy.faults(Fault::Ended) == 1);
        let line = || std::fs::read_to_string(&log).unwrap_or_default();
        let end = "\"end\":\"proxy_ended\",\"state\":\"answer\",\"retry\":\"safe\"";
        proxy.await_that("its line", |_| line().contains(end));
        assert_eq!((proxy.faults(Fault::Cut), proxy.faults(Fault::ClientGone)), (0, 0), "{driver}");
    });
}
