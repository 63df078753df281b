//! Health checks: what a backend is asked, and which of its answers are good.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use pollux_engine::ListenAddress;
use pollux_server::config::{Check, ProxyConfig};
use pollux_server::{FieldRule, ProxyCounter};

use crate::{Backend, OK, Proxy, field, on_every_driver};

/// Checks every few milliseconds of which one decides.
fn often(config: &mut ProxyConfig) {
    let health = &mut config.groups[0].health;
    health.check = Check::Http("/".to_owned());
    health.interval = Duration::from_millis(10);
    health.timeout = Duration::from_secs(20);
    (health.fall, health.rise) = (1, 1);
}

/// Waits until so many more checks have ended.
fn await_checks(proxy: &Proxy, count: u64) {
    // A check begins when the one before it has ended.
    let goal = proxy.count(ProxyCounter::Checks) + count + 1;
    proxy.await_that("checks", |proxy| proxy.count(ProxyCounter::Checks) >= goal);
}

fn is_down(proxy: &Proxy) -> bool {
    proxy.server().overview().backends[0].is_down()
}

/// 200 for a head with a Host that is a name or an address, 400 as strict servers say for others.
fn by_host(head: &str) -> &'static str {
    let hosts: Vec<_> = head.lines().filter(|line| line.starts_with("Host:")).collect();
    let is_sound = hosts.len() == 1
        && field(head, "Host").is_some_and(|host| {
            !host.is_empty()
                && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte))
                && !host.starts_with("unix:")
        });
    if is_sound { OK } else { "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n" }
}

#[test]
fn a_strict_backend_on_a_unix_socket_is_up_and_answers_old_clients() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("b.sock");
    let listener = UnixListener::bind(&path).expect("bound");
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let Ok(mut socket) = socket else { return };
            std::thread::spawn(move || {
                let mut head = Vec::new();
                let mut piece = [0; 4096];
                while let Ok(len @ 1..) = socket.read(&mut piece) {
                    head.extend_from_slice(&piece[..len]);
                    if head.ends_with(b"\r\n\r\n") {
                        let answer = by_host(&String::from_utf8_lossy(&head));
                        let _ = socket.write_all(answer.as_bytes());
                        head.clear();
                    }
                }
            });
        }
    });
    let set = |config: &mut ProxyConfig| {
        often(config);
        config.groups[0].servers[0].address = ListenAddress::Unix(path.clone()).into();
    };
    on_every_driver(&["127.0.0.1:1".parse().expect("an address")], set, |driver, proxy| {
        await_checks(proxy, 2);
        assert!(!is_down(proxy), "{driver}");
        let mut client = proxy.client();
        client.send("GET / HTTP/1.0\r\n\r\n");
        let head = client.head();
        assert!(head.starts_with("HTTP/1.1 200 "), "{driver}: {head}");
    });
}

#[test]
fn checks_ask_for_the_host_that_the_settings_name() {
    let backend = Backend::answering(|head, _| {
        let is_wanted = field(head, "Host") == Some("app.example:81");
        let status = if is_wanted { "204 Well" } else { "404 Who" };
        Some(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"))
    });
    let set = |config: &mut ProxyConfig| {
        often(config);
        config.groups[0].health.host = Some("app.example:81".to_owned());
    };
    on_every_driver(&[backend.address], set, |driver, proxy| {
        await_checks(proxy, 2);
        assert!(!is_down(proxy), "{driver}");
    });
    on_every_driver(&[backend.address], often, |_, proxy| {
        proxy.await_that("its fall, as the address is not the host that it serves", is_down);
    });
}

#[test]
fn a_rule_sets_the_host_of_requests() {
    let backend = Backend::answering(|head, _| {
        let hosts: Vec<_> =
            head.lines().filter(|line| line.to_ascii_lowercase().starts_with("host:")).collect();
        let forwarded = field(head, "X-Forwarded-Host").unwrap_or_default();
        let body = format!("{hosts:?} {forwarded}");
        Some(crate::ok("", &body))
    });
    let set = |config: &mut ProxyConfig| {
        let rule = FieldRule::Set("Host".to_owned(), "app.example".to_owned());
        config.frontends[0].rules.request = vec![rule];
    };
    on_every_driver(&[backend.address], set, |driver, proxy| {
        let mut client = proxy.client();
        // The second one is the same head again.
        for _ in 0..2 {
            client.send("GET / HTTP/1.1\r\nHost: shown.example\r\n\r\n");
            client.head();
            let expected = "[\"Host: app.example\"] shown.example";
            assert_eq!(client.bytes(expected.len()), expected.as_bytes(), "{driver}");
        }
    });
}

/// Interim answers say nothing of the health of a backend, wherever the bytes are cut (RFC 9110 15.2).
#[test]
fn checks_pass_over_interim_answers_however_their_bytes_are_cut() {
    const FINAL: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let interims = [
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 102 Processing\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n",
    ];
    for interim in interims {
        let all = format!("{interim}{FINAL}");
        // The number of the check is the place of the cut; the end comes with the last byte.
        let backend = Backend::start(move |number, mut client| {
            client.head();
            let (first, second) = all.split_at(number as usize % all.len());
            client.try_send(first);
            client.try_send(second);
        });
        on_every_driver(&[backend.address], often, |driver, proxy| {
            await_checks(proxy, 3);
            let falls = proxy.server().overview().backends[0].falls();
            assert_eq!(falls, 0, "{driver}: {interim:?}");
        });
    }
    for wrong in [
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 500 Sick\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 O",
    ] {
        let backend = Backend::start(move |_, mut client| {
            client.head();
            client.try_send(wrong);
        });
        on_every_driver(&[backend.address], often, |_, proxy| {
            proxy.await_that(wrong, is_down);
        });
    }
}
