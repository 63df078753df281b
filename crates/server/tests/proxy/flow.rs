//! Bodies of any size in both directions, sides that take nothing, requests in a row, upgrades, and
//! many clients at once whose answers carry the number of their request.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use pollux_engine::Counter;
use pollux_server::proxy::{Fault, ProxyCounter};

use crate::stage::{Backend, field, on_every_driver};

const BODY_BYTES: usize = 3_000_000;

/// Bytes that tell their place.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 7 + at % 251) as u8).collect()
}

/// Reads a body in chunks.
fn unchunked(client: &mut crate::stage::Client) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let line = client.until("\r\n");
        let len = usize::from_str_radix(line.trim(), 16).expect("a size");
        body.extend(client.bytes(len));
        assert_eq!(client.bytes(2), b"\r\n");
        if len == 0 {
            return body;
        }
    }
}

fn chunked(body: &[u8], piece: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in body.chunks(piece) {
        out.extend(format!("{:x}\r\n", chunk.len()).bytes());
        out.extend(chunk);
        out.extend(b"\r\n");
    }
    out.extend(b"0\r\n\r\n");
    out
}

/// Answers each request with its own body, framed as the path says.
fn echo() -> Backend {
    Backend::start(|_, mut client| {
        loop {
            let head = client.head();
            if head.is_empty() {
                return;
            }
            let body = match field(&head, "Content-Length") {
                Some(len) => client.bytes(len.parse().expect("a number")),
                None if field(&head, "Transfer-Encoding").is_some() => unchunked(&mut client),
                None => Vec::new(),
            };
            if head.contains(" /chunks ") {
                client.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
                client.send(chunked(&body, 100_000));
            } else if head.contains(" /close ") {
                client.send("HTTP/1.1 200 OK\r\n\r\n");
                client.send(&body);
                return;
            } else {
                client.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()));
                client.send(&body);
            }
        }
    })
}

#[test]
fn bodies_come_through_whole_however_they_are_framed() {
    let backend = echo();
    let body = pattern(BODY_BYTES);
    on_every_driver(
        &[backend.address],
        |_| {},
        |driver, proxy| {
            for path in ["/length", "/chunks", "/close"] {
                for is_chunked in [false, true] {
                    let client = proxy.client();
                    let mut writer =
                        crate::stage::Client::of(client.socket.try_clone().expect("two"));
                    let mut client = client;
                    let sent = body.clone();
                    let thread = std::thread::spawn(move || {
                        let start = format!("POST {path} HTTP/1.1\r\nHost: x\r\n");
                        if is_chunked {
                            writer.send(format!("{start}Transfer-Encoding: chunked\r\n\r\n"));
                            writer.send(chunked(&sent, 33_333));
                        } else {
                            writer.send(format!("{start}Content-Length: {}\r\n\r\n", sent.len()));
                            writer.send(&sent);
                        }
                    });
                    let head = client.head();
                    let came = match field(&head, "Content-Length") {
                        Some(len) => client.bytes(len.parse().expect("a number")),
                        None => unchunked(&mut client),
                    };
                    thread.join().expect("sent");
                    assert_eq!(came.len(), body.len(), "{driver}, {path}, {is_chunked}");
                    assert!(came == body, "{driver}, {path}, {is_chunked}: other bytes");
                }
            }
        },
    );
}

/// A client that reads nothing slows its backend down, and the proxy keeps little.
#[test]
fn what_one_side_does_not_take_the_other_side_does_not_send() {
    const MUCH: usize = 64 << 20;
    let sent = Arc::<AtomicU64>::default();
    let counted = Arc::clone(&sent);
    let backend = Backend::start(move |_, mut client| {
        client.head();
        client.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {MUCH}\r\n\r\n"));
        let piece = vec![b'x'; 64 << 10];
        for _ in 0..MUCH / piece.len() {
            client.try_send(&piece);
            counted.fetch_add(piece.len() as u64, SeqCst);
        }
    });
    on_every_driver(
        &[backend.address],
        |_| {},
        |driver, proxy| {
            sent.store(0, SeqCst);
            let mut client = proxy.client();
            client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            assert!(client.head().starts_with("HTTP/1.1 200 "), "{driver}");
            proxy.await_that("a pause", |proxy| proxy.count(ProxyCounter::Pauses) > 0);
            let engine = &proxy.server().overview().loops[0].engine;
            let came = engine.value(Counter::BytesIn);
            let gone = engine.value(Counter::BytesOut);
            // 128 KiB in the way, 64 KiB in the output, and a pool of receive buffers under way.
            assert!(came < gone + (5 << 20), "{driver}: {came} came, {gone} left");
            assert!(sent.load(SeqCst) < MUCH as u64, "{driver}: the backend was not slowed down");
            let mut left = MUCH;
            while left > 0 {
                let len = client.bytes(left.min(1 << 20)).len();
                assert!(len > 0, "{driver}: {left} bytes did not come");
                left -= len;
            }
        },
    );
}

#[test]
fn requests_in_a_row_are_answered_in_their_order() {
    let backend = Backend::start(|_, mut client| {
        loop {
            let head = client.head();
            let Some(id) = field(&head, "X-Id") else { return };
            client.send(format!("HTTP/1.1 200 OK\r\nX-Id: {id}\r\nContent-Length: 2\r\n\r\nhi"));
        }
    });
    on_every_driver(
        &[backend.address],
        |_| {},
        |driver, proxy| {
            let mut client = proxy.client();
            let request = |id: usize| format!("GET / HTTP/1.1\r\nHost: x\r\nX-Id: {id}\r\n\r\n");
            client.send((0..200).map(request).collect::<String>());
            for id in 0..200 {
                let head = client.head();
                assert_eq!(field(&head, "X-Id"), Some(id.to_string().as_str()), "{driver}");
                assert_eq!(client.bytes(2), b"hi", "{driver}");
            }
        },
    );
}

/// Answers carry the number of their request; some backends close, some answer late, some clients
/// go away in the middle.
#[test]
fn no_answer_goes_to_another_request() {
    const CLIENTS: u64 = 16;
    const REQUESTS: u64 = 60;
    let turn = Arc::<AtomicU64>::default();
    let backend = move || {
        let turn = Arc::clone(&turn);
        Backend::start(move |_, mut client| {
            loop {
                let head = client.head();
                let Some(id) = field(&head, "X-Id") else { return };
                let number = turn.fetch_add(1, SeqCst);
                if number % 13 == 5 {
                    // The answer, and the end without a word.
                    client.try_send(format!(
                        "HTTP/1.1 200 OK\r\nX-Id: {id}\r\nContent-Length: 2\r\n\r\nhi"
                    ));
                    return;
                }
                if number % 17 == 3 {
                    return;
                }
                let answer =
                    format!("HTTP/1.1 200 OK\r\nX-Id: {id}\r\nTransfer-Encoding: chunked\r\n\r\n");
                client.try_send(answer);
                client.try_send(chunked(id.as_bytes(), 3));
            }
        })
    };
    let (one, two) = (backend(), backend());
    on_every_driver(
        &[one.address, two.address],
        |config| config.loops.threads = 2,
        |driver, proxy| {
            let barrier = Barrier::new(CLIENTS as usize);
            std::thread::scope(|scope| {
                for number in 0..CLIENTS {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        barrier.wait();
                        let mut client = proxy.client();
                        for request in 0..REQUESTS {
                            let id = format!("{number}-{request}");
                            client.try_send(format!(
                                "GET / HTTP/1.1\r\nHost: x\r\nX-Id: {id}\r\n\r\n"
                            ));
                            if (number + request) % 11 == 0 {
                                // Gone before its answer.
                                client = proxy.client();
                                continue;
                            }
                            let head = client.head();
                            if head.starts_with("HTTP/1.1 502 ") {
                                let len = field(&head, "Content-Length").expect("a length");
                                client.bytes(len.parse().expect("a number"));
                                continue;
                            }
                            assert_eq!(field(&head, "X-Id"), Some(id.as_str()), "{driver}: {head}");
                            match field(&head, "Content-Length") {
                                Some(_) => assert_eq!(client.bytes(2), b"hi", "{driver}"),
                                None => {
                                    assert_eq!(unchunked(&mut client), id.as_bytes(), "{driver}");
                                }
                            }
                        }
                    });
                }
            });
            proxy.await_that("the end of all requests", |proxy| {
                let loops = &proxy.server().overview().loops;
                let asked: u64 = loops.iter().map(|each| each.server.requests_total()).sum();
                let answered: u64 = loops.iter().map(|each| each.server.answers(1)).sum();
                let failed: u64 = Fault::ALL.iter().map(|fault| proxy.faults(*fault)).sum();
                answered + failed >= asked
            });
        },
    );
}

#[test]
fn an_upgrade_becomes_a_tunnel_until_either_side_ends() {
    let backend = Backend::start(|_, mut client| {
        let head = client.head();
        assert_eq!(field(&head, "Upgrade"), Some("websocket"), "{head}");
        client.send(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: k\r\n\r\nfirst",
        );
        loop {
            let bytes = client.bytes(4);
            if bytes.is_empty() {
                return;
            }
            client.send(&bytes);
            if bytes == b"stop" {
                return;
            }
        }
    });
    on_every_driver(
        &[backend.address],
        |_| {},
        |driver, proxy| {
            for last in ["stop", ""] {
                let mut client = proxy.client();
                client.send(
                    "GET /chat HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\n\
                 Upgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\nping",
                );
                let head = client.head();
                assert!(head.starts_with("HTTP/1.1 101 "), "{driver}: {head}");
                assert_eq!(field(&head, "Upgrade"), Some("websocket"), "{driver}");
                // What was sent before the backend agreed waits for it, and is not lost.
                assert_eq!(client.bytes(9), b"firstping", "{driver}");
                for _ in 0..50 {
                    client.send("ping");
                    assert_eq!(client.bytes(4), b"ping", "{driver}");
                }
                client.send(last);
                if last.is_empty() {
                    client.end();
                }
                assert_eq!(client.rest(), last, "{driver}");
                drop(client);
                proxy.await_that("the end of both", |proxy| proxy.open_connections() == 0);
            }
            assert_eq!(proxy.count(ProxyCounter::Upgrades), 2, "{driver}");
        },
    );
}

#[test]
fn the_end_of_one_side_of_a_tunnel_is_passed_on_and_cuts_nothing() {
    let backend = Backend::start(|_, mut client| {
        let head = client.head();
        client.send(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        );
        if head.contains(" /client ") {
            // The client has ended, and waits for what this makes of it.
            let said = client.rest();
            client.send(format!("received {said}"));
        } else {
            client.send("over");
            client.end();
            let said = client.rest();
            assert_eq!(said, "still here", "what comes behind the own end");
        }
    });
    on_every_driver(
        &[backend.address],
        |_| {},
        |driver, proxy| {
            let upgrade = |path: &str| {
                let mut client = proxy.client();
                client.send(format!(
                    "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
                ));
                assert!(client.head().starts_with("HTTP/1.1 101 "), "{driver}");
                client
            };
            let mut client = upgrade("/client");
            client.send("last words");
            client.end();
            assert_eq!(client.rest(), "received last words", "{driver}");
            let mut client = upgrade("/backend");
            assert_eq!(client.rest(), "over", "{driver}: its end arrives");
            client.send("still here");
            client.end();
            proxy.await_that("the end of both", |proxy| proxy.open_connections() == 0);
        },
    );
}

#[test]
fn a_client_that_waits_for_leave_gets_that_of_the_backend() {
    let backend = Backend::start(|_, mut client| {
        loop {
            let head = client.head();
            if head.is_empty() {
                return;
            }
            assert_eq!(field(&head, "Expect"), Some("100-continue"), "{head}");
            if head.contains(" /no ") {
                client.send("HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n");
                return;
            }
            client.send("HTTP/1.1 100 Continue\r\n\r\n");
            assert_eq!(client.bytes(3), b"abc");
            client.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    on_every_driver(
        &[backend.address],
        |_| {},
        |driver, proxy| {
            let request = |path: &str| {
                format!(
                    "POST {path} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
                )
            };
            let mut client = proxy.client();
            client.send(request("/"));
            assert_eq!(client.head(), "HTTP/1.1 100 Continue\r\n\r\n", "{driver}");
            client.send("abc");
            assert!(client.head().starts_with("HTTP/1.1 200 "), "{driver}");
            let mut client = proxy.client();
            client.send(request("/no"));
            assert!(client.head().starts_with("HTTP/1.1 403 "), "{driver}");
            client.end();
            assert_eq!(client.rest(), "", "{driver}");
        },
    );
}

#[test]
fn a_drained_proxy_ends_what_is_under_way_and_nothing_is_lost() {
    let backend = Backend::start(|_, mut client| {
        loop {
            let head = client.head();
            if head.is_empty() {
                return;
            }
            client.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n");
            if head.contains(" /slow ") {
                // Until the proxy drains: its listener is gone then.
                let deadline = std::time::Instant::now() + crate::stage::PATIENCE;
                let address = field(&head, "Host").expect("the proxy").to_owned();
                let address: std::net::SocketAddr = address.parse().expect("an address");
                while std::net::TcpStream::connect(address).is_ok() {
                    assert!(std::time::Instant::now() < deadline, "it still listens");
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            client.send("hi");
        }
    });
    on_every_driver(
        &[backend.address],
        |_| {},
        |driver, proxy| {
            let mut idle = proxy.client();
            idle.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            assert!(idle.until("\r\n\r\nhi").starts_with("HTTP/1.1 200 "), "{driver}");
            let mut busy = proxy.client();
            busy.send(format!("GET /slow HTTP/1.1\r\nHost: {}\r\n\r\n", proxy.address));
            assert!(busy.head().starts_with("HTTP/1.1 200 "), "{driver}");
            proxy.server().drain();
            assert_eq!(idle.rest(), "", "{driver}: an idle connection is closed");
            assert_eq!(busy.rest(), "hi", "{driver}: what is under way comes to its end");
        },
    );
}
