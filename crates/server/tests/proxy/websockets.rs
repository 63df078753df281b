//! WebSockets between clients and backends of either version: a connection that was upgraded, or a stream (RFC 8441), on each
//! side. What is a tunnel of one is a tunnel of the other, with its bytes, ends and cuts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use pollux_engine::Driver;
use pollux_http::h2::{ErrorCode, Settings};
use pollux_server::config::{LogTarget, ProxyConfig};
use pollux_server::{Fault, ProxyCounter, ServerCounter};
use pollux_testing::wait_until;

use crate::http2_backend::{END_HEADERS, END_STREAM, HEADERS, Peer2, block, frame};
use crate::http2_client::Client2;
use crate::identity::pattern;
use crate::sites::on_every_driver_with;
use crate::to_http2::h2c;
use crate::tunnels::agree;
use crate::{Backend, Client, Proxy, at_once, field, on_all_drivers_at_once, on_every_driver};

/// Of a backend that may be asked for WebSockets on streams.
const ANNOUNCED: Settings = Settings { has_connect_protocol: true, ..Settings::DEFAULT };

/// The key and its proof of RFC 6455 1.3.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const PROOF: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// One end of a tunnel in the hands of a test.
enum End {
    /// A connection, upgraded.
    Old(Client),
    /// A stream of a client's.
    Stream(Client2, u32),
    /// A stream of a backend's.
    Asked(Peer2, u32),
}

impl End {
    fn send(&mut self, bytes: &[u8]) {
        match self {
            Self::Old(client) => client.send(bytes),
            Self::Stream(client, stream) => client.send(*stream, bytes, false),
            Self::Asked(peer, stream) => peer.send(*stream, bytes, false),
        }
    }

    /// Nothing more is sent.
    fn end(&mut self) {
        match self {
            Self::Old(client) => client.end(),
            Self::Stream(client, stream) => client.send(*stream, b"", true),
            Self::Asked(peer, stream) => peer.send(*stream, b"", true),
        }
    }

    /// Leaves without a word; what is left is a client's connection that had the stream.
    fn cut(mut self) -> Option<Client2> {
        match self {
            Self::Old(client) => {
                client.reset();
                None
            }
            Self::Stream(mut client, stream) => {
                client.reset(stream, ErrorCode::CANCEL);
                Some(client)
            }
            Self::Asked(ref mut peer, stream) => {
                peer.reset(stream, ErrorCode::CANCEL);
                self.leave();
                None
            }
        }
    }

    /// A connection that had the stream ends when the proxy has read all of it.
    fn leave(self) {
        if let Self::Asked(mut peer, _) = self {
            while peer.more() {}
        }
    }

    /// So many bytes, or fewer before the end.
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        match self {
            Self::Old(client) => client.bytes(len),
            Self::Stream(client, stream) => client.bytes(*stream, len),
            Self::Asked(peer, stream) => {
                let stream = *stream;
                peer.until(|peer| peer.asked[&stream].body.len() >= len || is_over(peer, stream));
                let body = &mut peer.asked.get_mut(&stream).expect("it is there").body;
                body.drain(..len.min(body.len())).collect()
            }
        }
    }

    /// All that comes until the other side has ended, or was cut.
    fn rest(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let bytes = self.bytes(1 << 16);
            all.extend_from_slice(&bytes);
            if bytes.len() < 1 << 16 {
                return all;
            }
        }
    }
}

fn is_over(peer: &Peer2, stream: u32) -> bool {
    peer.asked[&stream].is_whole || peer.resets.iter().any(|(reset, _)| *reset == stream)
}

/// What a backend of either version does with a tunnel, which has this path.
type Play = fn(&str, End);

/// A backend of HTTP/1.1, or of HTTP/2, that agrees to every WebSocket.
fn backend(is_http2: bool, play: Play) -> Backend {
    if is_http2 {
        return Backend::with_settings(ANNOUNCED, move |_, mut peer| {
            let Some(stream) = peer.next_head() else { return };
            let asked = peer.asked.get_mut(&stream).expect("it is there");
            // It is the request for one, and what comes is its bytes.
            let head = asked.head.clone();
            let path = asked.path().to_owned();
            asked.is_whole = false;
            for part in ["\r\nsec-websocket-version: 13\r\n", "\r\nupgrade: websocket\r\n"] {
                assert!(head.contains(part), "{head}");
            }
            assert!(!head.contains("sec-websocket-key"), "{head}");
            let agreed = b"HTTP/1.1 200 OK\r\nSec-WebSocket-Protocol: chat\r\n\r\n";
            peer.says(|peer, out| {
                peer.send_head(out, stream, agreed, false);
                // Another one has another connection, which is played like this one.
                peer.end(out);
            });
            play(&path, End::Asked(peer, stream));
        });
    }
    Backend::start(move |_, mut client| {
        let head = client.head();
        let Some(path) = head.split(' ').nth(1) else { return };
        agree(&mut client, &head, "Sec-WebSocket-Protocol: chat\r\n");
        play(path, End::Old(client));
    })
}

/// Opens a WebSocket by a connection of HTTP/1.1, or by a stream, on one of its own.
fn open(proxy: &Proxy, by_stream: bool, path: &str) -> End {
    if by_stream {
        let mut client = Client2::connect(proxy);
        let stream = client.ask_for("websocket", path, &[("sec-websocket-version", "13")]);
        client.until(|client| !client.answers[&stream].heads.is_empty());
        let head = &client.answers[&stream].heads[0];
        assert_eq!(head, "200|sec-websocket-protocol: chat");
        return End::Stream(client, stream);
    }
    let mut client = proxy.client();
    client.send(request(path, &format!("Sec-WebSocket-Key: {KEY}\r\n")));
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    for (name, value) in [
        ("Upgrade", "websocket"),
        ("Connection", "upgrade"),
        ("Sec-WebSocket-Protocol", "chat"),
        ("Sec-WebSocket-Accept", PROOF),
    ] {
        assert_eq!(field(&head, name), Some(value), "{head}");
    }
    assert_eq!(head.matches("ccept").count(), 1, "{head}");
    End::Old(client)
}

/// A request for a WebSocket in HTTP/1.1, with these lines.
fn request(path: &str, lines: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\n{lines}\r\n"
    )
}

/// Runs `test` for clients and backends of both versions on every driver; it learns whether the client has a stream, and what
/// it is about.
fn for_all_pairs(
    play: Play,
    set: impl Fn(&mut ProxyConfig),
    test: impl Fn(Driver, &Proxy, bool, &str),
) {
    for is_http2 in [false, true] {
        let backend = backend(is_http2, play);
        let set = |config: &mut ProxyConfig| {
            if is_http2 {
                h2c(config);
            }
            set(config);
        };
        on_every_driver(&[backend.address], set, |driver, proxy| {
            for by_stream in [false, true] {
                let name = |is_two: bool| if is_two { "2" } else { "1.1" };
                let what = format!("{driver}, {} to {}", name(by_stream), name(is_http2));
                test(driver, proxy, by_stream, &what);
                proxy.await_that("no request is under way", |proxy| proxy.in_use() == 0);
            }
            assert_eq!(proxy.faults_total(), 0, "{driver}: a tunnel comes to its end");
        });
    }
}

#[test]
fn bytes_go_both_ways_until_both_sides_have_ended() {
    let echo = |_: &str, mut end: End| {
        end.send(b"hello");
        loop {
            let bytes = end.bytes(4);
            end.send(&bytes);
            if bytes == b"last" {
                end.end();
                // The end of the other side.
                assert_eq!(end.bytes(1), b"");
                return;
            }
        }
    };
    for_all_pairs(
        echo,
        |_| {},
        |_, proxy, by_stream, what| {
            let before = proxy.count(ProxyCounter::Upgrades);
            let mut end = open(proxy, by_stream, "/chat?a");
            assert_eq!(end.bytes(5), b"hello", "{what}");
            for _ in 0..50 {
                end.send(b"ping");
                assert_eq!(end.bytes(4), b"ping", "{what}");
            }
            end.send(b"last");
            assert_eq!(end.rest(), b"last", "{what}");
            end.end();
            proxy.await_that("both have ended", |proxy| proxy.in_use() == 0);
            assert_eq!(proxy.count(ProxyCounter::Upgrades), before + 1, "{what}");
        },
    );
}

#[test]
fn long_bytes_go_both_ways_within_the_windows() {
    const LEN: usize = 3_000_000;
    let echo = |_: &str, mut end: End| {
        // Whole first: what waits meanwhile is bounded by windows and buffers.
        let all = end.rest();
        assert!(all == pattern(LEN), "{} bytes", all.len());
        end.send(&all);
        end.end();
        // An end that is not waited for would be a cut.
        end.leave();
    };
    for_all_pairs(
        echo,
        |_| {},
        |_, proxy, by_stream, what| {
            let mut end = open(proxy, by_stream, "/long");
            end.send(&pattern(LEN));
            end.end();
            let all = end.rest();
            assert!(all == pattern(LEN), "{what}: {} bytes", all.len());
        },
    );
}

#[test]
fn the_end_of_a_backend_leaves_its_client_time_to_speak() {
    let over = |_: &str, mut end: End| {
        end.send(b"over");
        end.end();
        assert_eq!(end.rest(), b"still here");
    };
    for_all_pairs(
        over,
        |_| {},
        |_, proxy, by_stream, what| {
            let mut end = open(proxy, by_stream, "/over");
            assert_eq!(end.rest(), b"over", "{what}");
            end.send(b"still here");
            end.end();
        },
    );
}

#[test]
fn a_cut_of_either_side_is_the_end_of_the_other() {
    static ENDED: AtomicU64 = AtomicU64::new(0);
    let cut = |path: &str, mut end: End| {
        end.send(b"some");
        assert_eq!(end.bytes(4), b"now!");
        if path == "/cut" {
            end.cut();
            return;
        }
        end.send(b"got!");
        assert_eq!(end.rest(), b"");
        ENDED.fetch_add(1, SeqCst);
    };
    for_all_pairs(
        cut,
        |_| {},
        |_, proxy, by_stream, what| {
            let mut end = open(proxy, by_stream, "/cut");
            assert_eq!(end.bytes(4), b"some", "{what}");
            end.send(b"now!");
            assert_eq!(end.rest(), b"", "{what}");
            if let End::Stream(client, stream) = &mut end {
                let answer = client.answer(*stream);
                assert_eq!(answer.reset, Some(ErrorCode::CANCEL), "{what}: {answer:?}");
            }
            let before = ENDED.load(SeqCst);
            let mut end = open(proxy, by_stream, "/goes");
            assert_eq!(end.bytes(4), b"some", "{what}");
            end.send(b"now!");
            assert_eq!(end.bytes(4), b"got!", "{what}");
            let _connection = end.cut();
            wait_until("its backend knows", || ENDED.load(SeqCst) == before + 1);
        },
    );
}

#[test]
fn a_tunnel_in_which_nothing_is_said_ends_in_its_time() {
    let quiet = |_: &str, mut end: End| drop(end.rest());
    let soon = |config: &mut ProxyConfig| {
        config.limits.tunnel_timeout = Duration::from_millis(2_500);
        // Those of requests are not for tunnels.
        config.limits.request_timeout = Duration::from_secs(2);
        config.limits.first_byte_timeout = Duration::from_secs(2);
        config.limits.clients.idle_timeout = Duration::from_secs(2);
    };
    for is_http2 in [false, true] {
        let backend = backend(is_http2, quiet);
        let set = |_, config: &mut ProxyConfig| {
            if is_http2 {
                h2c(config);
            }
            soon(config);
        };
        on_all_drivers_at_once(&[backend.address], set, |driver, proxy| {
            for mut end in [false, true].map(|by_stream| open(proxy, by_stream, "/quiet")) {
                assert_eq!(end.rest(), b"", "{driver} to {is_http2}");
            }
            proxy.await_that("no request is under way", |proxy| proxy.in_use() == 0);
            assert_eq!(proxy.faults_total(), 0, "{driver}: a tunnel comes to its end");
        });
    }
}

#[test]
fn a_tunnel_has_the_time_of_its_route_and_others_that_of_all() {
    let echo = |_: &str, mut end: End| {
        loop {
            let bytes = end.bytes(4);
            if bytes.is_empty() {
                return end.end();
            }
            end.send(&bytes);
        }
    };
    for is_http2 in [false, true] {
        let backend = backend(is_http2, echo);
        let protocol = if is_http2 { "protocol = \"h2c\"\n" } else { "" };
        let text = format!(
            "tunnel_timeout = \"1h\"\n[[backend]]\nname = \"chat\"\n{protocol}[[backend.server]]\naddress = \"{}\"\n\
             [[site]]\nhost = \"*\"\nroute = [\n\
             {{ path = \"/soon/\", backend = \"chat\", tunnel_timeout = \"300ms\" }},\n\
             {{ path = \"/\", backend = \"chat\" }} ]\n",
            backend.address
        );
        for by_stream in [false, true] {
            on_every_driver_with(
                &text,
                |_| {},
                |driver, proxy| {
                    let what = format!("{driver} {is_http2} {by_stream}");
                    let mut others = open(proxy, by_stream, "/chat");
                    let mut soon = open(proxy, by_stream, "/soon/chat");
                    for end in [&mut others, &mut soon] {
                        end.send(b"ping");
                        assert_eq!(end.bytes(4), b"ping", "{what}");
                    }
                    // What is said begins the time anew.
                    let began = Instant::now();
                    assert_eq!(soon.rest(), b"", "{what}");
                    assert!(
                        began.elapsed() >= Duration::from_millis(250),
                        "{what}: {:?}",
                        began.elapsed()
                    );
                    others.send(b"pong");
                    assert_eq!(others.bytes(4), b"pong", "{what}");
                },
            );
        }
    }
}

#[test]
fn a_tunnel_stays_where_the_proxy_ends_and_has_a_line_in_the_log() {
    let echo = |_: &str, mut end: End| {
        loop {
            let bytes = end.bytes(4);
            if bytes.is_empty() {
                return end.end();
            }
            end.send(&bytes);
        }
    };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.log");
    for is_http2 in [false, true] {
        let backend = backend(is_http2, echo);
        for by_stream in [false, true] {
            let set = |config: &mut ProxyConfig| {
                if is_http2 {
                    h2c(config);
                }
                config.monitoring.access_log = Some(LogTarget::File(path.clone()));
            };
            on_every_driver(&[backend.address], set, |driver, proxy| {
                std::fs::write(&path, "").expect("emptied");
                let mut end = open(proxy, by_stream, "/chat");
                proxy.server().drain();
                for _ in 0..5 {
                    end.send(b"ping");
                    assert_eq!(end.bytes(4), b"ping", "{driver}");
                }
                end.end();
                assert_eq!(end.rest(), b"", "{driver}");
                let read = || std::fs::read_to_string(&path).unwrap_or_default();
                proxy.await_that("its line", |_| read().lines().count() == 1);
                let (version, status) = if by_stream { ("2.0", 200) } else { ("1.1", 101) };
                let part = format!("\"GET /chat HTTP/{version}\" {status} 20 ");
                let log = read();
                assert!(log.contains(&part) && log.contains(" ok"), "{driver}: {log}");
            });
        }
    }
}

/// Tunnels, requests and their ends on one connection to a backend.
#[test]
fn tunnels_share_a_connection_to_a_backend_with_requests() {
    let resets = Arc::<AtomicU64>::default();
    let seen = Arc::clone(&resets);
    let backend = Backend::with_settings(ANNOUNCED, move |_, mut peer| {
        loop {
            seen.fetch_add(std::mem::take(&mut peer.resets).len() as u64, SeqCst);
            let all: Vec<_> = peer.asked.iter_mut().collect();
            let mut said = Vec::new();
            for (stream, asked) in all {
                if !asked.head.contains("\r\nupgrade: websocket\r\n") {
                    if asked.is_whole {
                        said.push((*stream, None, true));
                    }
                } else if asked.trailers.is_empty() {
                    // Agreed to, as this notes.
                    asked.trailers.push("agreed".to_owned());
                    said.push((*stream, Some(Vec::new()), false));
                } else if !asked.body.is_empty() || asked.is_whole {
                    said.push((*stream, Some(std::mem::take(&mut asked.body)), asked.is_whole));
                }
            }
            let is_stuck = said.is_empty();
            for (stream, bytes, ends) in said {
                match bytes {
                    None => {
                        peer.asked.remove(&stream);
                        peer.answer(stream, "HTTP/1.1 200 OK\r\n", b"well");
                    }
                    Some(bytes) if bytes.is_empty() && !ends => peer.says(|peer, out| {
                        peer.send_head(out, stream, b"HTTP/1.1 200 OK\r\n\r\n", false);
                    }),
                    Some(bytes) => peer.send(stream, &bytes, ends),
                }
                if ends {
                    peer.asked.remove(&stream);
                    let _ = peer.connection.take_done(stream);
                }
            }
            if is_stuck && !peer.more() {
                return;
            }
        }
    });
    on_every_driver(&[backend.address], h2c, |driver, proxy| {
        let before = backend.accepted();
        resets.store(0, SeqCst);
        let mut client = Client2::connect(proxy);
        let mut tunnels: Vec<u32> = Vec::new();
        for _ in 0..20 {
            let tunnel = client.ask_for("websocket", "/chat", &[]);
            client.until(|client| !client.answers[&tunnel].heads.is_empty());
            tunnels.push(tunnel);
        }
        for round in 0..10 {
            for tunnel in &tunnels {
                client.send(*tunnel, format!("{round}{tunnel:03}").as_bytes(), false);
            }
            assert_eq!(client.answer_to("/").body, b"well", "{driver}");
            for tunnel in &tunnels {
                let expected = format!("{round}{tunnel:03}");
                assert_eq!(client.bytes(*tunnel, 4), expected.as_bytes(), "{driver}");
            }
        }
        // Half of them are cut, the others come to their end.
        for (at, tunnel) in tunnels.into_iter().enumerate() {
            if at % 2 == 0 {
                client.reset(tunnel, ErrorCode::CANCEL);
            } else {
                client.send(tunnel, b"last", true);
                let answer = client.answer(tunnel);
                assert_eq!((&answer.body[..], answer.is_whole), (&b"last"[..], true), "{driver}");
            }
        }
        wait_until("its backend knows", || resets.load(SeqCst) == 10);
        assert_eq!(client.answer_to("/").body, b"well", "{driver}");
        proxy.await_that("no request is under way", |proxy| proxy.in_use() == 0);
        assert_eq!(backend.accepted() - before, 1, "{driver}");
        assert_eq!(proxy.count(ProxyCounter::Upgrades), 20, "{driver}");
    });
}

#[test]
fn a_backend_that_announces_no_websockets_is_not_asked_for_one_and_another_one_is() {
    let plain = Backend::answering2(|asked| {
        assert!(!asked.head.contains("pgrade"), "{}", asked.head);
        ("HTTP/1.1 200 OK\r\n".to_owned(), b"well".to_vec())
    });
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("errors");
    let logged = |config: &mut ProxyConfig| {
        h2c(config);
        config.groups[0].health.fall = 1;
        config.monitoring.log_level = pollux_server::config::LogLevel::Warn;
        config.monitoring.error_log = LogTarget::File(log.clone());
    };
    let asked = request("/chat", &format!("Sec-WebSocket-Key: {KEY}\r\n"));
    on_every_driver(&[plain.address], logged, |driver, proxy| {
        let mut client = Client2::connect(proxy);
        let stream = client.ask_for("websocket", "/chat", &[]);
        let head = client.answer(stream).heads.remove(0);
        assert!(head.starts_with("502") && head.contains("error=http_upgrade_failed"), "{head}");
        let mut old = proxy.client();
        old.send(&asked);
        let head = old.head();
        assert!(head.starts_with("HTTP/1.1 502 "), "{driver}: {head}");
        assert!(head.contains("upstream_no_websocket"), "{driver}: {head}");
        assert_eq!(proxy.faults(Fault::NoWebSocket), 2, "{driver}");
        // It has not failed, and serves on.
        assert_eq!(client.answer_to("/").body, b"well", "{driver}");
        assert!(!proxy.server().overview().backends[0].is_down(), "{driver}");
    });
    let lines = std::fs::read_to_string(&log).expect("lines");
    assert!(
        lines.contains("HTTP/2: it takes no WebSocket on a stream, as its SETTINGS"),
        "{lines}"
    );
    let well = backend(true, |_, mut end| {
        end.send(b"hello");
        end.end();
        end.rest();
    });
    let first = |config: &mut ProxyConfig| {
        h2c(config);
        config.groups[0].servers[0].weight = 256;
    };
    on_every_driver(&[plain.address, well.address], first, |driver, proxy| {
        for by_stream in [false, true] {
            let mut end = open(proxy, by_stream, "/chat");
            assert_eq!(end.rest(), b"hello", "{driver}");
            end.end();
        }
    });
}

#[test]
fn an_answer_that_agrees_to_nothing_is_passed_on_and_cuts_nothing() {
    let backend = Backend::with_settings(ANNOUNCED, |_, mut peer| {
        while let Some(stream) = peer.next_head() {
            let asked = peer.asked.remove(&stream).expect("it is there");
            match asked.path() {
                // The end of one that was answered.
                "" => drop(peer.connection.take_done(stream)),
                "/denied" => peer.answer(stream, "HTTP/1.1 403 x\r\n", b"no"),
                "/moved" => peer.answer(stream, "HTTP/1.1 302 x\r\nLocation: /x\r\n", b""),
                "/reset" => peer.reset(stream, ErrorCode::INTERNAL_ERROR),
                // Trailers behind an answer are that, and none in a tunnel.
                "/trailers" => {
                    peer.says(|peer, out| {
                        peer.send_head(out, stream, b"HTTP/1.1 200 OK\r\n\r\n", false);
                    });
                    let end = block(&[(b"a", b"b")]);
                    peer.raw(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &end));
                }
                _ => peer.answer(stream, "HTTP/1.1 200 OK\r\n", b"well"),
            }
        }
    });
    on_every_driver(&[backend.address], h2c, |driver, proxy| {
        let before = backend.accepted();
        let mut client = Client2::connect(proxy);
        for (path, status, body) in
            [("/denied", "403", "no"), ("/moved", "302", ""), ("/reset", "502", "")]
        {
            let stream = client.ask_for("websocket", path, &[]);
            let answer = client.answer(stream);
            assert_eq!(answer.status(), status, "{driver}: {path}");
            assert!(answer.body.starts_with(body.as_bytes()), "{driver}: {path}: {answer:?}");
            let mut old = proxy.client();
            old.send(request(path, &format!("Sec-WebSocket-Key: {KEY}\r\n")));
            let head = old.head();
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{driver}: {head}");
            assert!(!head.contains("pgrade"), "{driver}: {head}");
        }
        let stream = client.ask_for("websocket", "/trailers", &[]);
        let answer = client.answer(stream);
        assert_eq!(answer.reset, Some(ErrorCode::CANCEL), "{driver}: {answer:?}");
        // Who has no key to be answered asks for a page.
        for lines in ["", "Sec-WebSocket-Key: k\r\n"] {
            let mut old = proxy.client();
            old.send(request("/page", lines));
            let head = old.head();
            assert!(head.starts_with("HTTP/1.1 200 ") && !head.contains("pgrade"), "{head}");
        }
        assert_eq!(client.answer_to("/").body, b"well", "{driver}");
        assert_eq!(proxy.count(ProxyCounter::Upgrades), 1, "{driver}: that with trailers");
        assert_eq!(backend.accepted() - before, 1, "{driver}: all on one connection");
        proxy.await_that("no request is under way", |proxy| proxy.in_use() == 0);
    });
}

/// Neither a client that takes nothing of a tunnel nor a backend that does holds up another stream.
#[test]
fn a_tunnel_that_stands_still_to_a_backend_of_http2_holds_up_no_other() {
    let play = |_, mut peer: Peer2| {
        peer.releases = false;
        let mut much: Option<(u32, usize)> = None;
        loop {
            let fresh: Vec<(u32, String, bool)> = (peer.asked.iter())
                .filter(|(_, asked)| asked.trailers.is_empty())
                .map(|(stream, asked)| (*stream, asked.path().to_owned(), asked.is_whole))
                .collect();
            for (stream, path, is_whole) in fresh {
                if path == "/" && is_whole {
                    peer.asked.remove(&stream);
                    peer.answer(stream, "HTTP/1.1 200 OK\r\n", b"well");
                } else if path != "/" {
                    peer.asked.get_mut(&stream).expect("there").trailers.push(String::new());
                    peer.says(|peer, out| {
                        peer.send_head(out, stream, b"HTTP/1.1 200 OK\r\n\r\n", false);
                    });
                    much = (path == "/much").then_some((stream, 0)).or(much);
                }
            }
            if let Some((stream, sent)) = &mut much {
                *sent += peer.send_some(*stream, &[b'x'; 100_000], false);
                assert!(*sent < 300_000, "the proxy takes it all");
            }
            if !peer.more() {
                return;
            }
        }
    };
    let soon = |config: &mut ProxyConfig| {
        h2c(config);
        config.limits.clients.write_timeout = Duration::from_secs(2);
    };
    at_once(|driver| {
        let backend = Backend::with_settings(ANNOUNCED, play);
        let Some(proxy) = &Proxy::start(driver, &[backend.address], soon) else { return };
        let mut client = Client2::with_window(proxy, 1000);
        client.releases = false;
        let much = client.ask_for("websocket", "/much", &[]);
        client.until(|client| client.answers[&much].body.len() == 1000);
        let silent = client.ask_for("websocket", "/silent", &[]);
        client.until(|client| !client.answers[&silent].heads.is_empty());
        let mut sent = 0;
        for _ in 0..5 {
            sent += client.send_some(silent, &[b'x'; 400_000], false);
            assert_eq!(client.answer_to("/").body, b"well", "{driver}");
        }
        assert!((65_535..400_000).contains(&sent), "{driver}: {sent}");
        // Both end in the time of a window.
        for stream in [much, silent] {
            let answer = client.answer(stream);
            assert_eq!(answer.reset, Some(ErrorCode::CANCEL), "{driver}");
        }
        let of_clients = proxy.sum(|each| each.server.value(ServerCounter::Http2WindowTimeouts));
        assert_eq!(of_clients, 1, "{driver}");
        assert_eq!(proxy.count(ProxyCounter::Http2WindowTimeouts), 1, "{driver}");
        assert_eq!(client.answer_to("/").body, b"well", "{driver}");
        assert_eq!(backend.accepted(), 1, "{driver}");
        proxy.await_that("no request is under way", |proxy| proxy.in_use() == 0);
    });
}
