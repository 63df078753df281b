//! A proxy that has no room for a connection to a backend: what it keeps idle makes room, and no backend is
//! blamed for it. And one that ends with answers under way.

use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use pollux_server::config::{LogFormat, LogTarget};
use pollux_server::proxy::{Check, Fault, ProxyConfig, ProxyCounter};

use crate::stage::{Backend, on_every_driver};

const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const HI: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

fn polite() -> Backend {
    Backend::start(|_, mut client| {
        while !client.head().is_empty() {
            client.try_send(HI);
        }
    })
}

#[test]
fn connections_that_are_kept_to_one_server_make_room_for_another_one() {
    let backends = [polite(), polite(), polite()];
    let addresses = [0, 1, 2].map(|place: usize| backends[place].address);
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
            proxy.await_that("an end of every request", |proxy| {
                let counts = proxy.server().overview().loops.iter();
                let counts = counts.filter_map(|each| each.proxy.as_ref());
                counts.flat_map(|each| each.backends()).all(|of| of.in_use() == 0)
            });
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
        client.try_send(HI);
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
