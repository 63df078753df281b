//! Bodies of any size in both directions, sides that take nothing, requests in a row, upgrades, and
//! many clients at once whose answers carry the number of their request.

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier};

use pollux_engine::Counter;
use pollux_server::{Fault, ProxyCounter};
use pollux_testing::wait_until;

use crate::identity::pattern;
use crate::{Backend, Client, OK, field, ok, on_every_driver};

const BODY_BYTES: usize = 3_000_000;

/// Reads a body in chunks.
fn unchunked(client: &mut Client) -> Vec<u8> {
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

/// The body that belongs to a head.
fn body(client: &mut Client, head: &str) -> Vec<u8> {
    match field(head, "Content-Length") {
        Some(len) => client.bytes(len.parse().expect("a number")),
        None => unchunked(client),
    }
}

/// Answers each request with its own body, framed as the path says.
fn echo() -> Backend {
    Backend::answering(|head, client| {
        let body = body(client, head);
        let answer = |fields: &str, body: &[u8]| {
            [format!("HTTP/1.1 200 OK\r\n{fields}\r\n").as_bytes(), body].concat()
        };
        if head.contains(" /chunks ") {
            let body = chunked(&body, 100_000);
            return Some(answer("Transfer-Encoding: chunked\r\n", &body));
        }
        if head.contains(" /close ") {
            client.send(answer("", &body));
            return None;
        }
        Some(answer(&format!("Content-Length: {}\r\n", body.len()), &body))
    })
}

#[test]
fn bodies_come_through_whole_however_they_are_framed() {
    let backend = echo();
    let sent = pattern(BODY_BYTES);
    backend.on_every_driver(|driver, proxy| {
        for path in ["/length", "/chunks", "/close"] {
            for is_chunked in [false, true] {
                let mut client = proxy.client();
                let mut writer = Client::of(client.socket.try_clone().expect("two"));
                let sent = sent.clone();
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
                let came = body(&mut client, &head);
                thread.join().expect("sent");
                assert_eq!(came.len(), BODY_BYTES, "{driver}, {path}, {is_chunked}");
                assert!(came == pattern(BODY_BYTES), "{driver}, {path}, {is_chunked}: other bytes");
            }
        }
    });
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
    backend.on_every_driver(|driver, proxy| {
        sent.store(0, SeqCst);
        let mut client = proxy.client();
        client.ask("/");
        assert!(client.head().starts_with("HTTP/1.1 200 "), "{driver}");
        proxy.await_that("a full socket", |proxy| proxy.count_of_engine(Counter::SendsShort) > 0);
        let came = proxy.count_of_engine(Counter::BytesIn);
        let gone = proxy.count_of_engine(Counter::BytesOut);
        // 128 KiB in the way, 64 KiB in the output, and a pool of receive buffers under way.
        assert!(came < gone + (5 << 20), "{driver}: {came} came, {gone} left");
        assert!(sent.load(SeqCst) < MUCH as u64, "{driver}: the backend was not slowed down");
        let mut left = MUCH;
        while left > 0 {
            let len = client.bytes(left.min(1 << 20)).len();
            assert!(len > 0, "{driver}: {left} bytes did not come");
            left -= len;
        }
    });
}

#[test]
fn requests_in_a_row_are_answered_in_their_order() {
    let backend = Backend::answering(|head, _| {
        field(head, "X-Id").map(|id| ok(&format!("X-Id: {id}\r\n"), "hi"))
    });
    backend.on_every_driver(|driver, proxy| {
        let mut client = proxy.client();
        let request = |id: usize| format!("GET / HTTP/1.1\r\nHost: x\r\nX-Id: {id}\r\n\r\n");
        client.send((0..200).map(request).collect::<String>());
        for id in 0..200 {
            let head = client.head();
            assert_eq!(field(&head, "X-Id"), Some(id.to_string().as_str()), "{driver}");
            assert_eq!(client.bytes(2), b"hi", "{driver}");
        }
    });
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
        Backend::answering(move |head, client| {
            let id = field(head, "X-Id")?;
            let number = turn.fetch_add(1, SeqCst);
            if number % 13 == 5 {
                // The answer, and the end without a word.
                client.try_send(ok(&format!("X-Id: {id}\r\n"), "hi"));
                return None;
            }
            if number % 17 == 3 {
                return None;
            }
            let fields = format!("X-Id: {id}\r\nTransfer-Encoding: chunked\r\n");
            client.try_send(format!("HTTP/1.1 200 OK\r\n{fields}\r\n"));
            Some(chunked(id.as_bytes(), 3))
        })
    };
    let one = backend();
    let two = backend();
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
                            let came = body(&mut client, &head);
                            if head.starts_with("HTTP/1.1 502 ") {
                                continue;
                            }
                            assert_eq!(field(&head, "X-Id"), Some(id.as_str()), "{driver}: {head}");
                            assert!(came == b"hi" || came == id.as_bytes(), "{driver}: {head}");
                        }
                    });
                }
            });
            proxy.await_that("the end of all requests", |proxy| {
                let asked = proxy.sum(|each| each.server.requests_total());
                let answered = proxy.sum(|each| each.server.answers(1));
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
    backend.on_every_driver(|driver, proxy| {
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
    });
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
    backend.on_every_driver(|driver, proxy| {
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
    });
}

#[test]
fn a_client_that_waits_for_leave_gets_that_of_the_backend() {
    let backend = Backend::answering(|head, client| {
        assert_eq!(field(head, "Expect"), Some("100-continue"), "{head}");
        if head.contains(" /no ") {
            client.send("HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n");
            return None;
        }
        client.send("HTTP/1.1 100 Continue\r\n\r\n");
        assert_eq!(client.bytes(3), b"abc");
        Some(ok("", ""))
    });
    backend.on_every_driver(|driver, proxy| {
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
    });
}

#[test]
fn a_drained_proxy_ends_what_is_under_way_and_nothing_is_lost() {
    let backend = Backend::answering(|head, client| {
        client.send(OK.strip_suffix("hi").expect("its body"));
        if head.contains(" /slow ") {
            // Until the proxy drains: its listener is gone then.
            let address: SocketAddr = field(head, "Host")?.parse().expect("an address");
            wait_until("the end of the listener", || TcpStream::connect(address).is_err());
        }
        Some("hi")
    });
    backend.on_every_driver(|driver, proxy| {
        let mut idle = proxy.client();
        idle.ask("/");
        assert!(idle.until("\r\n\r\nhi").starts_with("HTTP/1.1 200 "), "{driver}");
        let mut busy = proxy.client();
        busy.send(format!("GET /slow HTTP/1.1\r\nHost: {}\r\n\r\n", proxy.address));
        assert!(busy.head().starts_with("HTTP/1.1 200 "), "{driver}");
        proxy.server().drain();
        assert_eq!(idle.rest(), "", "{driver}: an idle connection is closed");
        assert_eq!(busy.rest(), "hi", "{driver}: what is under way comes to its end");
    });
}
