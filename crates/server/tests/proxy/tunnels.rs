//! Streams of HTTP/2 that become WebSockets (RFC 8441): the request that a backend of HTTP/1.1 gets, and what of it becomes a
//! tunnel; bytes, ends and cuts both ways, each on its own stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use pollux_engine::Counter;
use pollux_http::h2::ErrorCode;
use pollux_server::config::{LogTarget, ProxyConfig};
use pollux_server::{Fault, ProxyCounter, ServerCounter};
use ring::digest;

use crate::http2_client::Client2;
use crate::identity::Identity;
use crate::{Backend, Client, Proxy, at_once, field, ok, on_all_drivers_at_once, on_every_driver};

/// The digits of a number of 20 bytes in base64.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bits: Vec<bool> = Vec::new();
    for byte in bytes {
        bits.extend((0..8).rev().map(|place| byte >> place & 1 == 1));
    }
    bits.resize(bits.len().next_multiple_of(6), false);
    let digit = |six: &[bool]| six.iter().fold(0, |sum, bit| 2 * sum + usize::from(*bit));
    let mut text: String = bits.chunks(6).map(|six| char::from(DIGITS[digit(six)])).collect();
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    text
}

/// What a server answers to the key of this request.
fn accept_of(head: &str) -> String {
    let key = field(head, "Sec-WebSocket-Key").expect("a key");
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    base64(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()).as_ref())
}

/// Agrees to a WebSocket, with these field lines.
pub(crate) fn agree(client: &mut Client, head: &str, fields: &str) {
    let accept = accept_of(head);
    client.send(format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n{fields}\r\n"
    ));
}

/// A backend that sends all back that comes through its WebSockets, until that is `stop` or the end; and answers `hi` else.
pub(crate) fn echoing() -> Backend {
    Backend::start(|_, mut client| {
        loop {
            let head = client.head();
            if head.is_empty() {
                return;
            }
            if field(&head, "Upgrade").is_none() {
                client.try_send(ok("", "hi"));
                continue;
            }
            agree(&mut client, &head, "");
            loop {
                let bytes = client.bytes(4);
                if bytes.is_empty() {
                    return;
                }
                client.try_send(&bytes);
                if bytes == b"stop" {
                    return;
                }
            }
        }
    })
}

/// Opens a WebSocket that is agreed to.
fn open<S: std::io::Read + std::io::Write>(client: &mut Client2<S>, path: &str) -> u32 {
    let stream = client.ask_for("websocket", path, &[("sec-websocket-version", "13")]);
    client.until(|client| !client.answers[&stream].heads.is_empty());
    assert_eq!(client.answers[&stream].status(), "200", "{:?}", client.answers[&stream]);
    stream
}

#[test]
fn a_stream_becomes_a_websocket_until_either_side_ends() {
    let backend = Backend::start(|_, mut client| {
        let head = client.head();
        let expected = "GET /chat?a HTTP/1.1\r\nHost: x\r\n";
        assert!(head.starts_with(expected), "{head}");
        for (name, value) in [
            ("Upgrade", Some("websocket")),
            ("Connection", Some("upgrade")),
            ("Sec-WebSocket-Version", Some("13")),
            ("Sec-WebSocket-Protocol", Some("chat, other")),
            ("Sec-WebSocket-Extensions", Some("permessage-deflate")),
            ("Origin", Some("http://x")),
            ("Via", Some("2.0 pollux")),
            ("Transfer-Encoding", None),
            ("Content-Length", None),
        ] {
            assert_eq!(field(&head, name), value, "{head}");
        }
        // Sixteen bytes, of the proxy's own.
        let key = field(&head, "Sec-WebSocket-Key").expect("a key");
        assert!(
            key.len() == 24 && key.ends_with("==") && key != "AAAAAAAAAAAAAAAAAAAAAA==",
            "{key}"
        );
        assert_eq!(head.matches("ec-").count(), 4, "{head}");
        assert!(client.kept.is_empty(), "nothing comes before this side has agreed");
        let fields =
            "Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Extensions: permessage-deflate\r\n";
        agree(&mut client, &head, fields);
        client.send("first");
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
        let mut client = Client2::connect(proxy);
        for last in ["stop", ""] {
            let fields = [
                ("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA=="),
                ("sec-websocket-version", "13"),
                ("sec-websocket-protocol", "chat, other"),
                ("sec-websocket-extensions", "permessage-deflate"),
                ("origin", "http://x"),
            ];
            let stream = client.ask_for("websocket", "/chat?a", &fields);
            // What is sent before the backend agreed waits for it, and is not lost.
            client.send(stream, b"ping", false);
            assert_eq!(client.bytes(stream, 9), b"firstping", "{driver}");
            let [head] = &client.answers[&stream].heads[..] else { panic!("{driver}: one head") };
            let expected =
                "200|sec-websocket-protocol: chat|sec-websocket-extensions: permessage-deflate";
            assert_eq!(head, expected, "{driver}");
            for _ in 0..50 {
                client.send(stream, b"ping", false);
                assert_eq!(client.bytes(stream, 4), b"ping", "{driver}");
            }
            client.send(stream, last.as_bytes(), true);
            let answer = client.answer(stream);
            assert_eq!((&answer.body[..], answer.reset), (last.as_bytes(), None), "{driver}");
            assert!(answer.is_whole, "{driver}: {answer:?}");
            proxy.await_that("the end of it", |proxy| proxy.in_use() == 0);
        }
        assert_eq!(proxy.count(ProxyCounter::Upgrades), 2, "{driver}");
        assert_eq!(proxy.open_connections(), 1, "{driver}: that of the client");
        let faults: u64 = Fault::ALL.into_iter().map(|fault| proxy.faults(fault)).sum();
        assert_eq!(faults, 0, "{driver}");
    });
}

#[test]
fn streams_that_become_websockets_do_so_in_tls() {
    let identity = Identity::make();
    let backend = echoing();
    let secure = |config: &mut ProxyConfig| config.frontends[0].tls = identity.keys().into();
    on_every_driver(&[backend.address], secure, |driver, proxy| {
        let stream = identity.connect_by(proxy.address, pollux_tls::HTTP_2);
        let mut client = Client2::on(stream, 1 << 20);
        let tunnels = [open(&mut client, "/one"), open(&mut client, "/two")];
        for round in 0..20 {
            for tunnel in tunnels {
                let bytes = format!("{round:02}{tunnel:02}");
                client.send(tunnel, bytes.as_bytes(), false);
                assert_eq!(client.bytes(tunnel, 4), bytes.as_bytes(), "{driver}");
            }
        }
        assert_eq!(client.answer_to("/").body, b"hi", "{driver}");
        for tunnel in tunnels {
            client.send(tunnel, b"stop", true);
            let answer = client.answer(tunnel);
            assert_eq!((&answer.body[..], answer.is_whole), (&b"stop"[..], true), "{driver}");
        }
        proxy.await_that("their ends", |proxy| proxy.in_use() == 0);
    });
}

#[test]
fn the_end_of_one_side_of_a_stream_is_passed_on_and_cuts_nothing() {
    let backend = Backend::start(|_, mut client| {
        let head = client.head();
        agree(&mut client, &head, "");
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
        let mut client = Client2::connect(proxy);
        let stream = open(&mut client, "/client");
        client.send(stream, b"last words", true);
        let answer = client.answer(stream);
        assert_eq!(answer.body, b"received last words", "{driver}");
        assert!(answer.is_whole && answer.reset.is_none(), "{driver}: {answer:?}");
        let stream = open(&mut client, "/backend");
        client.until(|client| client.answers[&stream].is_whole);
        assert_eq!(client.answers[&stream].body, b"over", "{driver}: its end arrives");
        client.send(stream, b"still here", true);
        proxy.await_that("the end of both", |proxy| proxy.in_use() == 0);
        proxy.await_that("no stream", |it| it.sum(|each| each.server.streams_open()) == 0);
    });
}

#[test]
fn a_cut_of_either_side_is_one_of_the_other_and_of_that_stream_alone() {
    let ended = Arc::<AtomicU64>::default();
    let counted = Arc::clone(&ended);
    let backend = Backend::start(move |_, mut client| {
        let head = client.head();
        if field(&head, "Upgrade").is_none() {
            return client.try_send(ok("Connection: close\r\n", "hi"));
        }
        agree(&mut client, &head, "");
        client.send("some");
        if head.contains(" /cut ") {
            // Once the client has it.
            client.bytes(4);
            return client.reset();
        }
        client.rest();
        counted.fetch_add(1, SeqCst);
    });
    backend.on_every_driver(|driver, proxy| {
        ended.store(0, SeqCst);
        let mut client = Client2::connect(proxy);
        let cut = open(&mut client, "/cut");
        let other = open(&mut client, "/other");
        assert_eq!(client.bytes(cut, 4), b"some", "{driver}");
        client.send(cut, b"now!", false);
        let answer = client.answer(cut);
        assert_eq!((answer.reset, answer.is_whole), (Some(ErrorCode::CANCEL), false), "{driver}");
        assert_eq!(client.bytes(other, 4), b"some", "{driver}: another one lives");
        client.reset(other, ErrorCode::CANCEL);
        proxy.await_that("the backend has lost it", |_| ended.load(SeqCst) == 1);
        assert_eq!(client.answer_to("/").body, b"hi", "{driver}");
        // A connection that ends takes its tunnels with it.
        open(&mut client, "/gone");
        drop(client);
        proxy.await_that("the backend has lost it", |_| ended.load(SeqCst) == 2);
        proxy.await_that("no request is under way", |proxy| proxy.in_use() == 0);
        let incomplete = proxy.sum(|each| each.server.value(ServerCounter::Incomplete));
        assert_eq!((incomplete, proxy.faults(Fault::ClientGone)), (0, 0), "{driver}");
    });
}

#[test]
fn an_answer_that_agrees_to_nothing_opens_nothing() {
    // What comes behind the head of a request that a backend refuses is not the next one.
    const EARLY: &[u8] = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
    let backend = Backend::answering(|head, client| {
        assert!(!head.contains("smuggled"), "{head}");
        let path = head.split(' ').nth(1)?.to_owned();
        let upgrade = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n";
        let accept = || accept_of(head);
        Some(match &*path {
            "/denied" => "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno".to_owned(),
            "/moved" => {
                "HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n".to_owned()
            }
            "/version" => "HTTP/1.1 426 Upgrade Required\r\nSec-WebSocket-Version: 13\r\n\
                           Upgrade: websocket\r\nConnection: upgrade\r\nContent-Length: 0\r\n\r\n"
                .to_owned(),
            "/fine" => ok("", "hi"),
            "/empty" => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
            "/key" => format!("{upgrade}Upgrade: websocket\r\nSec-WebSocket-Accept: k\r\n\r\n"),
            "/keyless" => format!("{upgrade}Upgrade: websocket\r\n\r\n"),
            "/other" => {
                format!("{upgrade}Upgrade: h2c\r\nSec-WebSocket-Accept: {}\r\n\r\n", accept())
            }
            "/slow" => {
                client.rest();
                return None;
            }
            _ => ok("", "hi"),
        })
    });
    let set = |_, config: &mut ProxyConfig| {
        config.limits.first_byte_timeout = Duration::from_secs(2);
    };
    on_all_drivers_at_once(&[backend.address], set, |driver, proxy| {
        let mut client = Client2::connect(proxy);
        // So that its answer is known when it comes to a request for a WebSocket.
        for path in ["/fine", "/fine"] {
            assert_eq!(client.answer_to(path).body, b"hi", "{driver}");
        }
        for (path, status, part) in [
            ("/denied", "403", "|content-length: 2"),
            ("/moved", "302", "|location: /x"),
            ("/version", "426", "|sec-websocket-version: 13"),
            ("/fine", "502", "|proxy-status: pollux;error=http_protocol_error"),
            ("/empty", "502", "|proxy-status: pollux;error=http_protocol_error"),
            ("/key", "502", "|proxy-status: pollux;error=http_protocol_error"),
            ("/keyless", "502", "|proxy-status: pollux;error=http_protocol_error"),
            ("/other", "502", "|proxy-status: pollux;error=http_protocol_error"),
            ("/slow", "504", "|proxy-status: pollux;error=http_response_timeout"),
        ] {
            for early in [&b""[..], EARLY] {
                let stream = client.ask_for("websocket", path, &[]);
                client.send(stream, early, false);
                client.until(|client| client.answers[&stream].reset.is_some());
                let answer = client.answer(stream);
                let [head] = &answer.heads[..] else { panic!("{driver}, {path}: {answer:?}") };
                assert!(head.starts_with(status) && head.contains(part), "{driver}: {head}");
                assert!(!head.contains("|upgrade") && !head.contains("|connection"), "{head}");
                // What the client would still send is not wanted.
                assert_eq!(answer.reset, Some(ErrorCode::NO_ERROR), "{driver}, {path}");
                assert!(answer.is_whole, "{driver}, {path}: {answer:?}");
            }
        }
        for protocol in ["connect-udp", "h2c"] {
            let stream = client.ask_for(protocol, "/", &[]);
            client.until(|client| client.answers[&stream].reset.is_some());
            assert_eq!(client.answer(stream).status(), "501", "{driver}");
        }
        assert_eq!(client.answer_to("/").body, b"hi", "{driver}");
        assert_eq!(proxy.count(ProxyCounter::Upgrades), 0, "{driver}");
        proxy.await_that("no request is under way", |proxy| proxy.in_use() == 0);
    });
}

/// Neither a client that takes nothing of a tunnel nor a backend that does holds up another stream; what they keep is little.
#[test]
fn a_tunnel_that_stands_still_holds_up_no_other_stream() {
    const MUCH: usize = 8 << 20;
    let set = |config: &mut ProxyConfig| {
        config.limits.clients.write_timeout = Duration::from_secs(1);
    };
    at_once(|driver| {
        let goes = Arc::<AtomicU64>::default();
        let go = Arc::clone(&goes);
        let backend = Backend::start(move |_, mut client| {
            let head = client.head();
            if field(&head, "Upgrade").is_none() {
                return client.try_send(ok("Connection: close\r\n", "hi"));
            }
            agree(&mut client, &head, "");
            if head.contains(" /much ") {
                let piece = vec![b'x'; 64 << 10];
                for _ in 0..MUCH / piece.len() {
                    client.try_send(&piece);
                }
            }
            // Reads nothing until the proxy has left.
            pollux_testing::wait_until("go", || go.load(SeqCst) > 0);
        });
        let Some(proxy) = Proxy::start(driver, &[backend.address], set) else { return };
        let proxy = &proxy;
        let mut client = Client2::with_window(proxy, 1000);
        client.releases = false;
        let silent = open(&mut client, "/silent");
        let mut sent = 0;
        let body = vec![b'x'; 64 << 20];
        pollux_testing::wait_until("a full socket", || {
            sent += client.send_some(silent, &body[sent..], false);
            assert!(sent < body.len(), "{driver}: the client was not slowed down");
            assert_eq!(client.answer_to("/").body, b"hi", "{driver}");
            proxy.count_of_engine(Counter::SendsShort) > 0
        });
        let gone = proxy.count_of_engine(Counter::BytesOut);
        assert!(sent as u64 <= gone + 3 * 65_535, "{driver}: {sent} came, {gone} left");
        let much = open(&mut client, "/much");
        client.until(|client| client.answers[&much].body.len() == 1000);
        proxy.await_that("the backend is paused", |proxy| proxy.count(ProxyCounter::Pauses) > 0);
        for _ in 0..20 {
            assert_eq!(client.answer_to("/").body, b"hi", "{driver}");
        }
        let answer = client.answer(much);
        assert_eq!(answer.reset, Some(ErrorCode::CANCEL), "{driver}");
        let timeouts = proxy.sum(|each| each.server.value(ServerCounter::Http2WindowTimeouts));
        assert_eq!(timeouts, 1, "{driver}");
        client.reset(silent, ErrorCode::CANCEL);
        goes.store(1, SeqCst);
        proxy.await_that("no request is under way", |proxy| proxy.in_use() == 0);
        assert_eq!(client.answer_to("/").body, b"hi", "{driver}");
    });
}

#[test]
fn a_tunnel_in_which_nothing_is_said_is_cut_in_its_time_alone() {
    let backend = echoing();
    let set = |_, config: &mut ProxyConfig| {
        config.limits.tunnel_timeout = Duration::from_secs(3);
        // Those of requests are not for tunnels.
        config.limits.request_timeout = Duration::from_secs(1);
        config.limits.clients.body_timeout = Duration::from_secs(1);
        config.limits.clients.idle_timeout = Duration::from_secs(1);
    };
    on_all_drivers_at_once(&[backend.address], set, |driver, proxy| {
        let mut client = Client2::connect(proxy);
        let quiet = open(&mut client, "/quiet");
        let lively = open(&mut client, "/lively");
        while client.answers[&quiet].reset.is_none() {
            client.send(lively, b"ping", false);
            assert_eq!(client.bytes(lively, 4), b"ping", "{driver}");
        }
        assert_eq!(client.answer(quiet).reset, Some(ErrorCode::CANCEL), "{driver}");
        client.send(lively, b"stop", true);
        assert_eq!(client.answer(lively).body, b"stop", "{driver}");
        proxy.await_that("no request is under way", |proxy| proxy.in_use() == 0);
    });
}

#[test]
fn a_shutdown_leaves_tunnels_their_time_and_the_log_has_a_line_of_each() {
    let backend = echoing();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.log");
    let set = |config: &mut ProxyConfig| {
        config.monitoring.access_log = Some(LogTarget::File(path.clone()));
    };
    on_every_driver(&[backend.address], set, |driver, proxy| {
        std::fs::write(&path, "").expect("emptied");
        let mut client = Client2::connect(proxy);
        let tunnel = open(&mut client, "/chat");
        let denied = client.ask_for("h2c", "/other", &[]);
        client.answer(denied);
        proxy.server().drain();
        client.until(|client| client.gone.len() == 2);
        for _ in 0..5 {
            client.send(tunnel, b"ping", false);
            assert_eq!(client.bytes(tunnel, 4), b"ping", "{driver}");
        }
        client.send(tunnel, b"stop", true);
        assert_eq!(client.answer(tunnel).body, b"stop", "{driver}");
        while client.more() {}
        let read = || std::fs::read_to_string(&path).unwrap_or_default();
        proxy.await_that("both lines", |_| read().lines().count() == 2);
        let log = read();
        for (part, end) in [
            ("\"GET /other HTTP/2.0\" 501 ", " client_bad_request"),
            ("\"GET /chat HTTP/2.0\" 200 24 ", " ok"),
        ] {
            let is_it = |line: &str| line.contains(part) && line.contains(end);
            assert!(log.lines().any(is_it), "{driver}, {part}: {log}");
        }
    });
}
