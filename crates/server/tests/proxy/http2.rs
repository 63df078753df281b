//! Clients of HTTP/2: each stream is a request that goes to a backend by a connection of HTTP/1.1, and nothing but a whole
//! and sound one ever does.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use pollux_engine::Counter;
use pollux_http::h2::{Ask, ErrorCode};
use pollux_http::{Field, Method};
use pollux_server::config::{Forwarding, LogTarget, ProxyConfig};
use pollux_server::{Fault, FieldRule, ProxyCounter, ServerCounter};

use crate::heads::answer_rules;
use crate::http2_client::{Answer, Client2};
use crate::identity::{Identity, pattern};
use crate::{
    Backend, Client, Proxy, field, ok, on_all_drivers_at_once, on_every_driver, unreachable,
};

/// The window of a stream as the proxy announces it.
const WINDOW: usize = 65_535;

/// Reads a body in chunks, with its trailers.
fn unchunked(client: &mut Client) -> (Vec<u8>, String) {
    let mut body = Vec::new();
    loop {
        let line = client.until("\r\n");
        let len = usize::from_str_radix(line.trim(), 16).expect("a size");
        if len == 0 {
            let mut trailers = String::new();
            loop {
                let line = client.until("\r\n");
                if line.trim().is_empty() {
                    return (body, trailers);
                }
                trailers += &line;
            }
        }
        body.extend(client.bytes(len));
        assert_eq!(client.bytes(2), b"\r\n");
    }
}

/// The body behind a head of HTTP/1.1, however it is framed.
fn body_of(client: &mut Client, head: &str) -> Vec<u8> {
    match (field(head, "Content-Length"), field(head, "Transfer-Encoding")) {
        (Some(len), None) => client.bytes(len.parse().expect("a number")),
        (None, Some("chunked")) => unchunked(client).0,
        (None, None) => Vec::new(),
        _ => panic!("two ways to find the end: {head}"),
    }
}

#[test]
fn a_request_and_its_answer_are_translated() {
    let backend = Backend::answering(|head, _| {
        let fields = format!("Connection: close, X-Hop\r\nX-Hop: 1\r\nX-Got: {}\r\n", {
            head.trim_end().replace("\r\n", "~")
        });
        Some(ok(&fields, "hi"))
    });
    let set = |config: &mut ProxyConfig| {
        let front = &mut config.frontends[0];
        (front.x_forwarded, front.forwarded) = (Forwarding::Replace, Forwarding::Replace);
    };
    on_every_driver(&[backend.address], set, |driver, proxy| {
        let mut client = Client2::connect(proxy);
        let fields = [
            ("Cookie", "a=1"),
            ("Cookie", "b=2"),
            ("TE", "trailers"),
            ("X-Id", "7"),
            ("transfer_encoding", "chunked"),
            ("X-Forwarded-For", "6.6.6.6"),
        ];
        let stream = client.ask(Method::Get, "/a?b", &fields, true);
        let answer = client.answer(stream);
        let [head] = &answer.heads[..] else { panic!("{driver}: {answer:?}") };
        let expected = "GET /a?b HTTP/1.1~Host: x~TE: trailers~Connection: te~x-id: 7~\
                        cookie: a=1; b=2~X-Forwarded-For: 127.0.0.1~X-Forwarded-Proto: http~\
                        X-Forwarded-Host: x~Forwarded: for=127.0.0.1;proto=http;host=\"x\"~Via: 2.0 pollux|";
        assert!(head.starts_with("200|x-got: "), "{driver}: {head}");
        assert!(head.contains(expected), "{driver}: {head}");
        assert!(
            head.contains("|content-length: 2") && head.contains("|date: "),
            "{driver}: {head}"
        );
        assert!(!head.contains("hop") && !head.contains("|connection"), "{driver}: {head}");
        assert_eq!(answer.body, b"hi", "{driver}");
        // The same again is the same again.
        for _ in 0..3 {
            let stream = client.ask(Method::Get, "/a?b", &fields, true);
            assert_eq!(client.answer(stream).heads, answer.heads, "{driver}");
        }
    });
}

/// The backends get all of them at once, and answer the last one first.
#[test]
fn streams_of_one_connection_have_connections_of_their_own_which_are_kept() {
    const STREAMS: usize = 8;
    let all = Arc::new(Barrier::new(STREAMS));
    let turn = Arc::<Mutex<u32>>::default();
    let backend = Backend::answering(move |head, _| {
        all.wait();
        let path = head.split(' ').nth(1)?.to_owned();
        let number: u32 = path[1..].parse().ok()?;
        // One behind the other, from the last to the first.
        pollux_testing::wait_until("its turn", || {
            let mut turn = turn.lock().expect("whole");
            let is_next = *turn + number == STREAMS as u32 - 1;
            *turn += u32::from(is_next);
            is_next
        });
        if number == 0 {
            *turn.lock().expect("whole") = 0;
        }
        Some(ok("", &path))
    });
    backend.on_every_driver(|driver, proxy| {
        let before = backend.accepted();
        let mut client = Client2::connect(proxy);
        for _ in 0..3 {
            let streams: Vec<u32> =
                (0..STREAMS).map(|number| client.get(&format!("/{number}"))).collect();
            for (number, stream) in streams.into_iter().enumerate() {
                let answer = client.answer(stream);
                assert_eq!(answer.body, format!("/{number}").as_bytes(), "{driver}");
            }
            proxy.await_that("all are idle", |proxy| proxy.in_use() == 0);
        }
        assert_eq!(backend.accepted() - before, STREAMS as u64, "{driver}");
        assert_eq!(proxy.sum(|each| each.server.value(ServerCounter::Http2Connections)), 1);
    });
}

/// Some clients say the end of a request without a body in a frame of its own.
#[test]
fn an_end_in_an_empty_frame_behind_the_head_is_one_with_it() {
    let backend = Backend::answering(|head, client| {
        let framing = field(head, "Transfer-Encoding").or(field(head, "Content-Length"));
        let framing = framing.unwrap_or("none").to_owned();
        body_of(client, head);
        Some(ok("", &framing))
    });
    backend.on_every_driver(|driver, proxy| {
        let mut client = Client2::connect(proxy);
        let mut asked = |method, fields: &[(&'static str, &'static str)], body: &[u8]| {
            let fields: Vec<_> = fields
                .iter()
                .map(|(name, value)| Field { name, value: value.as_bytes() })
                .collect();
            let scheme = "http";
            let authority = "x";
            let path = "/";
            let ask = Ask { method, scheme, authority, path, fields: &fields };
            let stream = client.says(|client, out| {
                let stream = client.ask(out, &ask, false, ()).expect("a stream is free");
                client.send_data(out, stream, body, true);
                stream
            });
            client.answers.insert(stream, Answer::default());
            let answer = client.answer(stream);
            assert!(answer.is_whole && answer.reset.is_none(), "{driver}: {answer:?}");
            (answer.status().to_owned(), String::from_utf8(answer.body).expect("text"))
        };
        let expected = |framing: &str| ("200".to_owned(), framing.to_owned());
        assert_eq!(asked(Method::Get, &[], b""), expected("none"), "{driver}");
        assert_eq!(
            asked(Method::Get, &[("content-length", "0")], b""),
            expected("none"),
            "{driver}"
        );
        assert_eq!(asked(Method::Post, &[], b""), expected("0"), "{driver}");
        assert_eq!(asked(Method::Post, &[], b"abc"), expected("chunked"), "{driver}");
        // One that is answered here.
        assert_eq!(asked(Method::Trace, &[], b"").0, "405", "{driver}");
        let streams = |it: &Proxy| it.sum(|each| each.server.streams_open());
        proxy.await_that("no stream is open", |proxy| streams(proxy) == 0);
    });
}

#[test]
fn answers_without_a_body_end_with_their_heads() {
    let backend = Backend::answering(|head, _| {
        Some(match head.split(' ').nth(1)? {
            "/204" => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
            "/304" => "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n".to_owned(),
            "/empty" => ok("", ""),
            _ if head.starts_with("HEAD") => {
                "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n".to_owned()
            }
            other => panic!("{other}"),
        })
    });
    backend.on_every_driver(|driver, proxy| {
        let mut client = Client2::connect(proxy);
        for (method, path, status, length) in [
            (Method::Get, "/204", "204", None),
            (Method::Get, "/304", "304", Some("9")),
            (Method::Head, "/", "200", Some("9")),
            (Method::Get, "/empty", "200", Some("0")),
            (Method::Post, "/empty", "200", Some("0")),
        ] {
            let stream = client.ask(method, path, &[], true);
            let answer = client.answer(stream);
            let said =
                answer.heads[0].split('|').find_map(|each| each.strip_prefix("content-length: "));
            assert_eq!((answer.status(), said), (status, length), "{driver}: {path}");
            assert!(answer.is_whole && answer.body.is_empty(), "{driver}: {path}");
        }
    });
}

#[test]
fn bodies_come_through_both_ways_on_many_streams_however_they_are_framed() {
    const STREAMS: usize = 10;
    const BODY_BYTES: usize = 700_001;
    let backend = Backend::answering(|head, client| {
        let body = body_of(client, head);
        let start = "HTTP/1.1 200 OK\r\n";
        let chunked = || {
            let mut out = format!("{start}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
            for chunk in body.chunks(70_000) {
                out.extend(format!("{:x}\r\n", chunk.len()).bytes());
                out.extend_from_slice(chunk);
                out.extend(b"\r\n");
            }
            out.extend(b"0\r\n\r\n");
            out
        };
        match head.split(' ').nth(1)? {
            "/chunks" => Some(chunked()),
            "/close" => {
                client.send(format!("{start}\r\n"));
                client.try_send(&body);
                None
            }
            _ => Some(
                [format!("{start}Content-Length: {}\r\n\r\n", body.len()).as_bytes(), &body]
                    .concat(),
            ),
        }
    });
    let sent = pattern(BODY_BYTES);
    let length = BODY_BYTES.to_string();
    backend.on_every_driver(|driver, proxy| {
        let mut client = Client2::with_window(proxy, 40_000);
        let streams: Vec<u32> = (0..STREAMS)
            .map(|number| {
                let path = ["/length", "/chunks", "/close"][number % 3];
                let fields = [("content-length", length.as_str())];
                let fields = if number % 2 == 0 { &fields[..] } else { &[] };
                client.ask(Method::Post, path, fields, false)
            })
            .collect();
        let mut at = [0; STREAMS];
        while at.iter().any(|at| *at < BODY_BYTES) {
            let mut sent_bytes = 0;
            for (stream, at) in streams.iter().zip(&mut at) {
                if *at < BODY_BYTES {
                    let some = client.send_some(*stream, &sent[*at..], true);
                    (*at, sent_bytes) = (*at + some, sent_bytes + some);
                }
            }
            assert!(sent_bytes > 0 || client.more(), "{driver}: the connection ended");
        }
        for stream in streams {
            let answer = client.answer(stream);
            assert_eq!((answer.status(), answer.body.len()), ("200", BODY_BYTES), "{driver}");
            assert!(answer.body == sent, "{driver}: other bytes");
        }
        proxy.await_that("no request is under way", |proxy| proxy.in_use() == 0);
    });
}

#[test]
fn trailers_pass_both_ways_as_far_as_they_may() {
    let backend = Backend::answering(|head, client| {
        let (body, trailers) = unchunked(client);
        assert_eq!(body, b"abc");
        assert!(head.contains("\r\nTE: trailers\r\nConnection: te\r\n"), "{head}");
        let got = trailers.trim_end().replace("\r\n", "~");
        Some(format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-Got: {got}\r\n\
             Grpc-Status:0\r\nContent-Length: 5\r\nConnection: x\r\n\r\n"
        ))
    });
    backend.on_every_driver(|driver, proxy| {
        let mut client = Client2::connect(proxy);
        for _ in 0..2 {
            let stream = client.ask(Method::Post, "/", &[("te", "trailers")], false);
            client.send(stream, b"abc", false);
            client.send_trailers(
                stream,
                &[("x-sum", "7"), ("x-forwarded-for", "6.6.6.6"), ("x-y", "8")],
            );
            let answer = client.answer(stream);
            assert_eq!(answer.trailers, ["x-got: x-sum: 7~x-y: 8", "grpc-status: 0"], "{driver}");
            assert_eq!(answer.body, b"hi", "{driver}");
        }
        assert_eq!(proxy.count(ProxyCounter::Connects), 1, "{driver}");
    });
}

#[test]
fn rules_for_fields_hold_behind_bodies_too_and_what_belongs_in_front_does_not_trail() {
    let backend = Backend::answering(|_, client| {
        let (_, trailers) = unchunked(client);
        let got = trailers.trim_end().replace("\r\n", "~");
        Some(format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Got: {got}\r\nX-Secret: 1\r\n\
             Set-Cookie: a\r\n\r\n"
        ))
    });
    let set = |config: &mut ProxyConfig| {
        let rules = &mut config.frontends[0].rules;
        rules.request = vec![FieldRule::Remove("X-User".to_owned())];
        rules.response = answer_rules(&["remove X-Secret"]);
    };
    on_every_driver(&[backend.address], set, |driver, proxy| {
        let mut client = Client2::connect(proxy);
        let stream = client.ask(Method::Post, "/", &[], false);
        let trailers =
            [("x-user", "root"), ("authorization", "b"), ("content-type", "c"), ("x-sum", "7")];
        client.send_trailers(stream, &trailers);
        assert_eq!(client.answer(stream).trailers, ["x-got: x-sum: 7"], "{driver}");
    });
}

#[test]
fn interim_answers_pass_and_a_body_that_waits_for_one_comes() {
    let backend = Backend::answering(|head, client| {
        assert!(head.contains("\r\nExpect: 100-continue\r\n"), "{head}");
        client.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n");
        let body = body_of(client, head);
        Some(ok("", str::from_utf8(&body).expect("text")))
    });
    backend.on_every_driver(|driver, proxy| {
        let mut client = Client2::connect(proxy);
        let fields = [("expect", "100-continue"), ("content-length", "5")];
        let stream = client.ask(Method::Put, "/", &fields, false);
        client.until(|client| client.answers[&stream].heads.len() == 2);
        assert_eq!(client.answers[&stream].heads, ["103|link: </a>", "100"], "{driver}");
        client.send(stream, b"hello", true);
        let answer = client.answer(stream);
        assert_eq!((answer.status(), &answer.body[..]), ("200", &b"hello"[..]), "{driver}");
    });
}

/// A stream whose client opens no window costs little, slows its backend down and no other stream, and ends in time.
#[test]
fn a_client_that_takes_nothing_of_one_stream_gets_the_others() {
    const MUCH: usize = 64 << 20;
    let backend = Backend::answering(|head, client| {
        if !head.contains(" /much ") {
            return Some(ok("", "hi").into_bytes());
        }
        client.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {MUCH}\r\n\r\n"));
        let piece = vec![b'x'; 64 << 10];
        for _ in 0..MUCH / piece.len() {
            client.try_send(&piece);
        }
        None
    });
    let set = |_, config: &mut ProxyConfig| {
        config.limits.clients.write_timeout = Duration::from_secs(1);
    };
    on_all_drivers_at_once(&[backend.address], set, |driver, proxy| {
        let mut client = Client2::with_window(proxy, 1000);
        client.releases = false;
        let much = client.get("/much");
        client.until(|client| client.answers[&much].body.len() == 1000);
        proxy.await_that("the backend is paused", |proxy| proxy.count(ProxyCounter::Pauses) > 0);
        let came = proxy.count_of_engine(Counter::BytesIn);
        assert!(came < 1 << 20, "{driver}: {came} bytes are kept");
        for _ in 0..20 {
            assert_eq!(client.answer_to("/").body, b"hi", "{driver}");
        }
        let answer = client.answer(much);
        assert_eq!(answer.reset, Some(ErrorCode::CANCEL), "{driver}");
        let timeouts = proxy.sum(|each| each.server.value(ServerCounter::Http2WindowTimeouts));
        assert_eq!((timeouts, proxy.faults(Fault::ClientTimeout)), (1, 1), "{driver}");
        assert_eq!(client.answer_to("/").body, b"hi", "{driver}");
        proxy.await_that("no request is under way", |proxy| proxy.in_use() == 0);
    });
}

/// Those that have waited longest go for those that come.
#[test]
fn streams_that_hold_too_much_together_are_cut_and_others_are_served() {
    const MOST: usize = 1 << 20;
    const STREAMS: usize = 60;
    let body = "x".repeat(90_000);
    let backend = Backend::answering(move |head, client| {
        if head.contains(" /wait ") {
            client.rest();
            return None;
        }
        Some(ok("", if head.contains(" /much ") { &body } else { "hi" }))
    });
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.log");
    let set = |config: &mut ProxyConfig| {
        config.limits.http2_waiting_max = MOST;
        config.monitoring.access_log = Some(LogTarget::File(path.clone()));
    };
    on_every_driver(&[backend.address], set, |driver, proxy| {
        std::fs::write(&path, "").expect("emptied");
        let mut client = Client2::with_window(proxy, 10);
        client.releases = false;
        // One that waits for its backend may go too.
        let waits = client.ask(Method::Post, "/wait", &[], false);
        client.send(waits, b"abc", false);
        proxy.await_that("it has come", |proxy| proxy.in_use() == 1);
        let streams: Vec<u32> = (0..STREAMS).map(|_| client.get("/much")).collect();
        let cut = |client: &Client2| {
            let is_cut = |stream: &&u32| {
                let answer = &client.answers[*stream];
                answer.reset.is_some() || answer.status() == "503"
            };
            streams.iter().filter(is_cut).count()
        };
        // What is left holds no more than that, and each at least 32 KiB.
        client.until(|client| cut(client) >= STREAMS - MOST / (32 << 10));
        let held = || proxy.sum(|each| each.proxy.as_ref().map_or(0, |proxy| proxy.held_bytes()));
        // What came last is counted before others are cut for it.
        proxy.await_that("what is held has its bound", |_| held() <= MOST as u64);
        for stream in streams.iter().filter(|stream| client.answers[stream].reset.is_some()) {
            let answer = &client.answers[stream];
            assert_eq!(answer.reset, Some(ErrorCode::ENHANCE_YOUR_CALM), "{driver}: {answer:?}");
            assert!(!answer.is_whole && answer.status() == "200", "{driver}: {answer:?}");
        }
        assert_eq!(client.answer_to("/").body, b"hi", "{driver}");
        for stream in streams.iter().chain([&waits]) {
            client.reset(*stream, ErrorCode::CANCEL);
        }
        proxy.await_that("no request is under way", |proxy| proxy.in_use() == 0);
        proxy.await_that("nothing is held", |_| held() == 0);
        let cut = proxy.count(ProxyCounter::StreamsCut);
        assert_eq!(proxy.faults(Fault::StreamsFull), cut, "{driver}");
        let read = || std::fs::read_to_string(&path).unwrap_or_default();
        let lines = || read().matches(" proxy_streams_full/").count() as u64;
        proxy.await_that("their lines", |_| lines() == cut);
    });
}

#[test]
fn a_client_that_reads_nothing_is_cut_with_all_that_it_has_asked_for() {
    const MUCH: usize = 64 << 20;
    const STREAMS: u64 = 5;
    let backend = Backend::answering(|_, client| {
        client.try_send(format!("HTTP/1.1 200 OK\r\nContent-Length: {MUCH}\r\n\r\n"));
        let piece = vec![b'x'; 64 << 10];
        for _ in 0..MUCH / piece.len() {
            client.try_send(&piece);
        }
        None::<String>
    });
    let set = |_, config: &mut ProxyConfig| {
        config.limits.clients.write_timeout = Duration::from_secs(1);
    };
    on_all_drivers_at_once(&[backend.address], set, |driver, proxy| {
        let mut client = Client2::connect(proxy);
        for _ in 0..STREAMS {
            client.get("/");
        }
        proxy.await_that("a full socket", |proxy| proxy.count_of_engine(Counter::SendsShort) > 0);
        proxy.await_that("no request is under way", |proxy| proxy.in_use() == 0);
        let came = proxy.count_of_engine(Counter::BytesIn);
        let gone = proxy.count_of_engine(Counter::BytesOut);
        // Of each stream 96 KiB, and a pool of receive buffers under way.
        assert!(came < gone + (5 << 20), "{driver}: {came} came, {gone} left");
        assert_eq!(proxy.faults(Fault::ClientTimeout), STREAMS, "{driver}");
    });
}

/// What a backend does not take is not acknowledged.
#[test]
fn a_client_may_send_no_more_than_a_window_before_the_backend_takes_it() {
    let backend = Backend::start(|_, mut client| {
        let head = client.head();
        if head.contains(" /go ") {
            client.try_send(ok("", "hi"));
            return;
        }
        // Until the test says so.
        pollux_testing::wait_until("go", || GO.load(SeqCst) > 0);
        let body = body_of(&mut client, &head);
        client.try_send(ok("", &body.len().to_string()));
    });
    static GO: AtomicU64 = AtomicU64::new(0);
    const MUCH: usize = 48 << 20;
    backend.on_every_driver(|driver, proxy| {
        GO.store(0, SeqCst);
        let mut client = Client2::connect(proxy);
        let stream = client.ask(Method::Post, "/", &[], false);
        let body = vec![b'x'; MUCH];
        let mut sent = 0;
        pollux_testing::wait_until("a full socket", || {
            sent += client.send_some(stream, &body[sent..], true);
            assert!(sent < MUCH, "{driver}: the client was not slowed down");
            let beside = client.answer_to("/go");
            assert_eq!(beside.body, b"hi", "{driver}");
            proxy.count_of_engine(Counter::SendsShort) > 0
        });
        // All that was acknowledged has gone to the backend, but for what its connection waits with.
        let gone = proxy.count_of_engine(Counter::BytesOut);
        assert!(sent as u64 <= gone + 3 * WINDOW as u64, "{driver}: {sent} came, {gone} left");
        GO.store(1, SeqCst);
        client.send(stream, &body[sent..], true);
        let answer = client.answer(stream);
        assert_eq!(answer.body, MUCH.to_string().as_bytes(), "{driver}");
    });
}

#[test]
fn an_early_answer_ends_the_request_and_a_late_one_comes_beside_its_body() {
    let backend = Backend::start(|_, mut client| {
        let head = client.head();
        if head.contains(" /early ") {
            client.try_send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nno\n");
            client.rest();
            return;
        }
        // As each piece comes, it goes back.
        client.send("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n");
        for _ in 0..3 {
            let piece = client.until("\r\n");
            let data = client.until("\r\n");
            assert_eq!(piece, "2\r\n");
            client.send(data.trim_end());
        }
    });
    let as_it_is = |_, _: &mut ProxyConfig| {};
    on_all_drivers_at_once(&[backend.address], as_it_is, |driver, proxy| {
        let mut client = Client2::connect(proxy);
        let early = client.ask(Method::Post, "/early", &[("content-length", "1000000")], false);
        let sent = client.send_some(early, &[b'x'; 100], false);
        assert_eq!(sent, 100);
        client.until(|client| client.answers[&early].reset.is_some());
        let answer = client.answer(early);
        assert_eq!((answer.status(), &answer.body[..]), ("413", &b"no\n"[..]), "{driver}");
        assert!(answer.is_whole && answer.reset == Some(ErrorCode::NO_ERROR), "{driver}");
        let late = client.ask(Method::Post, "/late", &[], false);
        for count in 1..=3 {
            client.send(late, b"ab", false);
            client.until(|client| client.answers[&late].body.len() == 2 * count);
        }
        let answer = client.answer(late);
        assert_eq!((answer.status(), &answer.body[..]), ("200", &b"ababab"[..]), "{driver}");
        proxy.await_that("no request is under way", |proxy| proxy.in_use() == 0);
    });
}

/// Many clients read no answer before they have sent all: httpx and Java's take RST_STREAM for an error.
#[test]
fn a_client_that_sends_all_of_a_body_that_is_too_long_reads_413() {
    let backend = Backend::start(|_, mut client| {
        let head = client.head();
        if head.contains(" /theirs ") {
            client.try_send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nno\n");
        }
        client.rest();
    });
    let small = |config: &mut ProxyConfig| config.limits.clients.body_bytes_max = Some(100_000);
    on_every_driver(&[backend.address], small, |driver, proxy| {
        let mut client = Client2::connect(proxy);
        for (path, length, len) in [
            ("/own", None, 3_000_000),
            ("/own", Some("3000000"), 3_000_000),
            ("/theirs", None, 90_000),
        ] {
            let fields: Vec<_> =
                length.map(|length| ("content-length", length)).into_iter().collect();
            let stream = client.ask(Method::Post, path, &fields, false);
            if path == "/theirs" {
                client.until(|client| client.answers[&stream].is_whole);
            }
            client.send(stream, &vec![b'x'; len], true);
            let answer = client.answer(stream);
            assert_eq!(answer.status(), "413", "{driver}: {path} {length:?}");
        }
        proxy.await_that("no stream", |it| it.sum(|each| each.server.streams_open()) == 0);
        let resets = proxy.sum(|each| each.server.resets_sent(ErrorCode::NO_ERROR.index()));
        assert_eq!(resets, 0, "{driver}: none was needed");
    });
}

#[test]
fn a_backend_that_dies_costs_its_stream_and_no_other() {
    let seen = Arc::<AtomicU64>::default();
    let kept = Arc::clone(&seen);
    // It dies when the client has what came before.
    let die = move || {
        pollux_testing::wait_until("the client", || kept.swap(0, SeqCst) > 0);
        None
    };
    let backend = Backend::answering(move |head, client| match head.split(' ').nth(1)? {
        "/body" => {
            client.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc");
            die()
        }
        "/chunks" => {
            client.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
            die()
        }
        "/before" => None,
        "/wrong" => Some("HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n".to_owned()),
        "/switch" => {
            Some("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n".to_owned())
        }
        "/large" => Some(format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(60_000))),
        _ => Some(ok("", "hi")),
    });
    let set = |config: &mut ProxyConfig| config.limits.clients.heads.bytes_max = 100_000;
    on_every_driver(&[backend.address], set, |driver, proxy| {
        let mut client = Client2::connect(proxy);
        for path in ["/body", "/chunks"] {
            let stream = client.get(path);
            client.until(|client| client.answers[&stream].body == b"abc");
            seen.store(1, SeqCst);
            let answer = client.answer(stream);
            assert_eq!(answer.reset, Some(ErrorCode::INTERNAL_ERROR), "{driver}: {answer:?}");
            assert_eq!(answer.status(), "200", "{driver}");
        }
        for path in ["/before", "/wrong", "/switch", "/large"] {
            let stream = client.ask(Method::Post, path, &[], true);
            let answer = client.answer(stream);
            assert_eq!(answer.status(), "502", "{driver}, {path}: {answer:?}");
            assert!(
                answer.heads[0].contains("|proxy-status: pollux;error="),
                "{driver}: {answer:?}"
            );
            assert!(answer.is_whole && !answer.body.is_empty(), "{driver}: {answer:?}");
            assert!(!answer.heads[0].contains("|connection"), "{driver}: {answer:?}");
        }
        let stream = client.ask(Method::Head, "/switch", &[], true);
        let answer = client.answer(stream);
        assert!(answer.status() == "502" && answer.body.is_empty(), "{driver}: {answer:?}");
        assert_eq!(client.answer_to("/").body, b"hi", "{driver}");
        assert_eq!(proxy.faults(Fault::Cut), 2, "{driver}");
        proxy.await_that("no request is under way", |proxy| proxy.in_use() == 0);
    });
    on_every_driver(
        &[unreachable()],
        |_| {},
        |driver, proxy| {
            assert_eq!(Client2::connect(proxy).answer_to("/").status(), "503", "{driver}");
        },
    );
}

#[test]
fn a_client_that_resets_a_stream_ends_what_it_has_at_the_backend() {
    let backend = Backend::answering(|head, client| {
        if head.contains(" /wait ") {
            client.rest();
            return None;
        }
        if head.contains(" /body ") {
            client.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc");
            client.rest();
            return None;
        }
        Some(ok("", "hi"))
    });
    let set = |config: &mut ProxyConfig| config.groups[0].servers[0].connections_max = Some(4);
    on_every_driver(&[backend.address], set, |driver, proxy| {
        let mut client = Client2::connect(proxy);
        let streams =
            ["/wait", "/body", "/wait", "/wait", "/wait", "/wait"].map(|path| client.get(path));
        client.until(|client| client.answers[&streams[1]].body.len() == 3);
        // Two of them wait for a connection.
        proxy.await_that("all have come", |proxy| proxy.in_use() == 6);
        for stream in streams {
            client.reset(stream, ErrorCode::CANCEL);
        }
        proxy.await_that("no request is under way", |proxy| proxy.in_use() == 0);
        assert_eq!(client.answer_to("/").body, b"hi", "{driver}");
        assert_eq!(proxy.faults(Fault::ClientGone), 6, "{driver}");
        // A connection that ends takes its streams with it.
        let mut other = Client2::connect(proxy);
        other.get("/wait");
        proxy.await_that("it has come", |proxy| proxy.in_use() == 1);
        other.leave();
        proxy.await_that("no request is under way", |proxy| proxy.in_use() == 0);
        assert_eq!(proxy.faults(Fault::ClientGone), 7, "{driver}");
    });
}

/// What is not known of a stream that costs too much ends with all others.
#[test]
fn a_client_that_resets_too_many_streams_leaves_nothing_behind() {
    let backend = Backend::answering(|head, client| {
        if head.starts_with("POST") {
            client.rest();
            return None;
        }
        Some(ok("", "hi"))
    });
    backend.on_every_driver(|driver, proxy| {
        let mut client = Client2::connect(proxy);
        client.answer_to("/");
        let is_gone = |client: &Client2| !client.gone.is_empty() || client.is_closed;
        for _ in 0..600 {
            let stream = client.ask(Method::Post, "/", &[("content-length", "9")], false);
            client.send_some(stream, b"abc", false);
            client.reset(stream, ErrorCode::CANCEL);
        }
        client.until(is_gone);
        assert_eq!(client.gone[0].1, ErrorCode::ENHANCE_YOUR_CALM, "{driver}");
        proxy.await_that("no request is under way", |proxy| proxy.in_use() == 0);
        drop(client);
        for _ in 0..2 {
            assert_eq!(Client2::connect(proxy).answer_to("/").body, b"hi", "{driver}");
        }
    });
}

/// Each of them costs a connection to the backend.
#[test]
fn a_client_that_cuts_answer_after_answer_is_cut_itself() {
    let backend = Backend::answering(|_, client| {
        client.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc");
        client.rest();
        None::<String>
    });
    backend.on_every_driver(|driver, proxy| {
        let mut client = Client2::connect(proxy);
        let mut cuts = 0;
        while client.gone.is_empty() {
            let stream = client.get("/");
            let has_more = |client: &Client2| client.answers[&stream].body.len() == 3;
            client.until(|client| has_more(client) || !client.gone.is_empty());
            client.reset(stream, ErrorCode::CANCEL);
            cuts += 1;
        }
        assert_eq!(client.gone[0].1, ErrorCode::ENHANCE_YOUR_CALM, "{driver}");
        assert!((500..2000).contains(&cuts), "{driver}: {cuts}");
        proxy.await_that("no request is under way", |proxy| proxy.in_use() == 0);
    });
}

#[test]
fn requests_that_are_given_up_at_once_open_no_connections() {
    const BURST: usize = 400;
    let backend = Backend::polite();
    backend.on_every_driver(|driver, proxy| {
        let before = backend.accepted();
        let mut client = Client2::connect(proxy);
        let fields = [];
        let method = Method::Get;
        let scheme = "http";
        let ask = Ask { method, scheme, authority: "x", path: "/", fields: &fields };
        client.says(|connection, out| {
            for _ in 0..BURST {
                let stream = connection.ask(out, &ask, true, ()).expect("a stream is free");
                connection.reset(out, stream, ErrorCode::CANCEL);
            }
        });
        assert_eq!(client.answer_to("/").body, b"hi", "{driver}");
        // It may come in more than one piece.
        let opened = backend.accepted() - before;
        assert!(opened < BURST as u64 / 8, "{driver}: {opened}");
        assert_eq!(proxy.faults(Fault::ClientGone), BURST as u64, "{driver}");
        proxy.await_that("no request is under way", |proxy| proxy.in_use() == 0);
    });
}

#[test]
fn lines_of_a_stream_are_not_taken_for_a_request_of_http_1() {
    let backend = Backend::polite();
    backend.on_every_driver(|driver, proxy| {
        assert_eq!(Client2::connect(proxy).answer_to("/").status(), "200", "{driver}");
        for host in ["host", "Host"] {
            let mut client = proxy.client();
            client.send(format!("GET / HTTP/2.0\r\n{host}: x\r\n\r\n"));
            assert!(client.rest().starts_with("HTTP/1.1 505 "), "{driver}");
        }
    });
}

#[test]
fn a_page_that_its_client_does_not_take_ends_in_time() {
    let backend = Backend::silent();
    let set = |_, config: &mut ProxyConfig| {
        config.limits.first_byte_timeout = Duration::from_millis(100);
        let limits = &mut config.limits.clients;
        limits.body_timeout = Duration::from_millis(100);
        limits.write_timeout = Duration::from_millis(300);
        limits.idle_timeout = Duration::from_millis(300);
    };
    on_all_drivers_at_once(&[backend.address], set, |driver, proxy| {
        let mut client = Client2::with_window(proxy, 0);
        let late = client.ask(Method::Post, "/", &[], false);
        let unanswered = client.get("/");
        for (stream, status) in [(late, "408"), (unanswered, "504")] {
            let answer = client.answer(stream);
            assert_eq!(answer.status(), status, "{driver}: {answer:?}");
            assert_eq!(answer.reset, Some(ErrorCode::CANCEL), "{driver}: {answer:?}");
        }
        assert_eq!(proxy.in_use(), 0, "{driver}");
        while client.more() {}
    });
}

#[test]
fn deadlines_are_those_of_each_stream() {
    let backend = Backend::answering(|head, client| match head.split(' ').nth(1)? {
        "/" => Some(ok("", "hi")),
        "/begin" => {
            client.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc");
            client.rest();
            None
        }
        _ => {
            client.rest();
            None
        }
    });
    let set = |_, config: &mut ProxyConfig| {
        let limits = &mut config.limits;
        limits.queue_timeout = Duration::from_millis(500);
        limits.first_byte_timeout = Duration::from_millis(1_500);
        limits.clients.body_timeout = Duration::from_millis(2_500);
        limits.request_timeout = Duration::from_millis(3_500);
        config.groups[0].servers[0].connections_max = Some(3);
    };
    on_all_drivers_at_once(&[backend.address], set, |driver, proxy| {
        let mut client = Client2::connect(proxy);
        let silent = client.get("/silent");
        let begun = client.get("/begin");
        let body = client.ask(Method::Post, "/body", &[("content-length", "9")], false);
        client.send_some(body, b"abc", false);
        let queued = client.get("/");
        assert_eq!(client.answer(queued).status(), "503", "{driver}");
        assert_eq!(client.answer(silent).status(), "504", "{driver}");
        let late = client.answer(body);
        assert_eq!(late.status(), "408", "{driver}: {late:?}");
        assert_eq!(client.answer(begun).reset, Some(ErrorCode::INTERNAL_ERROR), "{driver}");
        assert_eq!(client.answer_to("/").body, b"hi", "{driver}");
        for fault in [Fault::QueueTimeout, Fault::FirstByteTimeout, Fault::ClientTimeout] {
            assert_eq!(proxy.faults(fault), 1, "{driver}: {fault:?}");
        }
        proxy.await_that("no request is under way", |proxy| proxy.in_use() == 0);
    });
}

#[test]
fn a_body_beyond_the_limit_is_refused_whether_it_says_so_or_not() {
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let kept = Arc::clone(&seen);
    let backend = Backend::start(move |_, mut client| {
        let came = client.rest();
        kept.lock().expect("whole").push(came);
    });
    let set = |config: &mut ProxyConfig| config.limits.clients.body_bytes_max = Some(1000);
    on_every_driver(&[backend.address], set, |driver, proxy| {
        let mut client = Client2::connect(proxy);
        let said = client.ask(Method::Post, "/", &[("content-length", "1001")], false);
        assert_eq!(client.answer(said).status(), "413", "{driver}");
        let before = backend.accepted();
        let unsaid = client.ask(Method::Post, "/", &[], false);
        client.send_some(unsaid, &[b'x'; 1000], false);
        // One that is refused before its backend is asked opens no connection.
        proxy.await_that("the backend is asked", |_| backend.accepted() > before);
        client.send_some(unsaid, b"x", true);
        assert_eq!(client.answer(unsaid).status(), "413", "{driver}");
        proxy.await_that("the backend has seen its end", |_| {
            !seen.lock().expect("whole").is_empty()
        });
        let came = seen.lock().expect("whole").pop().expect("one");
        assert!(!came.contains("\r\n0\r\n"), "{driver}: it ends as a whole one: {came}");
    });
}

#[test]
fn what_no_backend_gets_is_answered_here() {
    let backend = Backend::polite();
    backend.on_every_driver(|driver, proxy| {
        let before = backend.accepted();
        let mut client = Client2::connect(proxy);
        let mut ask = |method, path: &str, fields: &[_]| {
            let stream = client.ask(method, path, fields, true);
            client.answer(stream)
        };
        let trace = ask(Method::Trace, "/", &[]);
        assert_eq!(trace.status(), "405", "{driver}");
        assert!(trace.heads[0].contains("|allow: GET, HEAD, POST"), "{driver}: {trace:?}");
        let options = ask(Method::Options, "*", &[("max-forwards", "0")]);
        assert_eq!(options.status(), "204", "{driver}");
        assert_eq!(ask(Method::Options, "*", &[("max-forwards", "3")]).status(), "200", "{driver}");
        assert_eq!(backend.accepted() - before, 1, "{driver}");
        assert_eq!(ask(Method::Get, "/", &[]).body, b"hi", "{driver}");
    });
}

#[test]
fn lines_of_the_log_say_the_version_and_what_became_of_a_stream() {
    let seen = Arc::<AtomicU64>::default();
    let kept = Arc::clone(&seen);
    let backend = Backend::answering(move |head, client| {
        if head.contains(" /cut ") {
            client.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc");
            pollux_testing::wait_until("the client", || kept.swap(0, SeqCst) > 0);
            return None;
        }
        if head.contains(" /wait ") {
            client.rest();
            return None;
        }
        Some(ok("", "hi"))
    });
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.log");
    let log = |config: &mut ProxyConfig| {
        config.monitoring.access_log = Some(LogTarget::File(path.clone()));
    };
    on_every_driver(&[backend.address], log, |driver, proxy| {
        std::fs::write(&path, "").expect("emptied");
        let mut client = Client2::connect(proxy);
        client.answer_to("/one");
        let cut = client.get("/cut");
        client.until(|client| client.answers[&cut].body == b"abc");
        seen.store(1, SeqCst);
        client.answer(cut);
        let waits = client.get("/wait");
        proxy.await_that("it has come", |proxy| proxy.in_use() == 1);
        client.reset(waits, ErrorCode::CANCEL);
        let trace = client.ask(Method::Trace, "/trace", &[], true);
        client.answer(trace);
        let read = || std::fs::read_to_string(&path).unwrap_or_default();
        proxy.await_that("every line", |_| read().lines().count() == 4);
        let log = read();
        for (line, part, end) in [
            (0, "\"GET /one HTTP/2.0\" 200 2 ", " ok"),
            (1, "\"GET /cut HTTP/2.0\" 200 3 ", " upstream_cut/answer/safe"),
            (2, "\"GET /wait HTTP/2.0\" 499 - ", " client_gone/wait/safe"),
            (3, "\"TRACE /trace HTTP/2.0\" 405 ", " client_bad_request"),
        ] {
            let line = log.lines().nth(line).expect("a line");
            assert!(line.starts_with("127.0.0.1 ") && line.contains(part), "{driver}: {line}");
            assert!(line.contains(end), "{driver}: {line}");
        }
    });
}

#[test]
fn a_proxy_that_ends_says_so_twice_and_finishes_what_it_has() {
    let backend = Backend::answering(|head, client| {
        if head.contains(" /wait ") {
            pollux_testing::wait_until("the second word", || ENDING.load(SeqCst) > 0);
        }
        let _ = client;
        Some(ok("", "hi"))
    });
    static ENDING: AtomicU64 = AtomicU64::new(0);
    backend.on_every_driver(|driver, proxy| {
        ENDING.store(0, SeqCst);
        let mut client = Client2::connect(proxy);
        assert_eq!(client.answer_to("/").body, b"hi", "{driver}");
        let waits = client.get("/wait");
        proxy.await_that("it has come", |proxy| proxy.in_use() == 1);
        proxy.server().drain();
        client.until(|client| client.gone.len() == 2);
        let last = u32::MAX >> 1;
        assert_eq!(
            client.gone,
            [(last, ErrorCode::NO_ERROR), (waits, ErrorCode::NO_ERROR)],
            "{driver}"
        );
        ENDING.store(1, SeqCst);
        assert_eq!(client.answer(waits).body, b"hi", "{driver}");
        while client.more() {}
    });
}

#[test]
fn a_stream_has_no_more_time_than_the_proxy_has_to_end() {
    let backend = Backend::answering(|head, client| {
        if head.contains(" /body ") {
            client.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc");
        }
        client.rest();
        None::<String>
    });
    let set = |_, config: &mut ProxyConfig| {
        config.limits.clients.drain_timeout = Duration::from_millis(300);
    };
    on_all_drivers_at_once(&[backend.address], set, |driver, proxy| {
        let mut client = Client2::connect(proxy);
        let streams = ["/silent", "/body"].map(|path| client.get(path));
        client.until(|client| client.answers[&streams[1]].body.len() == 3);
        proxy.await_that("both have come", |proxy| proxy.in_use() == 2);
        proxy.server().drain();
        for stream in streams {
            // It may be reset before the connection ends.
            while !client.answers[&stream].is_over() && client.more() {}
            assert!(!client.answers[&stream].is_whole, "{driver}");
        }
        proxy.await_that("no request is under way", |proxy| proxy.in_use() == 0);
        assert_eq!(proxy.faults(Fault::Ended), 2, "{driver}");
    });
}

/// A backend that closes a kept connection as a request comes by it: what may be done twice is asked again.
#[test]
fn a_post_is_sent_once_and_a_get_again_when_a_kept_connection_dies() {
    let posts = Arc::<AtomicU64>::default();
    let counted = Arc::clone(&posts);
    let backend = Backend::start(move |_, mut client| {
        let head = client.head();
        counted.fetch_add(u64::from(head.starts_with("POST")), SeqCst);
        client.try_send(ok("", "hi"));
        // The next one gets its end.
        let head = client.head();
        counted.fetch_add(u64::from(head.starts_with("POST")), SeqCst);
    });
    backend.on_every_driver(|driver, proxy| {
        posts.store(0, SeqCst);
        let mut client = Client2::connect(proxy);
        assert_eq!(client.answer_to("/").body, b"hi", "{driver}");
        assert_eq!(client.answer_to("/").body, b"hi", "{driver}: asked again");
        let stream = client.ask(Method::Post, "/", &[("content-length", "3")], false);
        client.send(stream, b"abc", true);
        assert_eq!(client.answer(stream).status(), "502", "{driver}");
        assert_eq!(posts.load(SeqCst), 1, "{driver}");
        assert_eq!(proxy.count(ProxyCounter::Retries), 1, "{driver}");
    });
}

#[test]
fn clients_in_tls_agree_on_it() {
    let identity = Identity::make();
    let backend = Backend::answering(|head, client| {
        let body = body_of(client, head);
        let scheme = field(head, "X-Forwarded-Proto").unwrap_or("none").to_owned();
        Some(ok(&format!("X-Scheme: {scheme}\r\n"), &body.len().to_string()))
    });
    let secure = |config: &mut ProxyConfig| config.frontends[0].tls = identity.keys().into();
    on_every_driver(&[backend.address], secure, |driver, proxy| {
        let stream = identity.connect_by(proxy.address, pollux_tls::HTTP_2);
        let mut client = Client2::on(stream, 1 << 20);
        let body = vec![b'x'; 300_000];
        let posted = client.ask(Method::Post, "/", &[], false);
        client.send(posted, &body, true);
        let answer = client.answer(posted);
        assert!(answer.heads[0].contains("|x-scheme: https"), "{driver}: {answer:?}");
        assert_eq!(answer.body, b"300000", "{driver}");
    });
    let off = |config: &mut ProxyConfig| {
        config.frontends[0].tls = identity.keys().into();
        config.http2.is_off = true;
    };
    on_every_driver(&[backend.address], off, |driver, proxy| {
        let mut stream = identity.connect(proxy.address);
        std::io::Write::write_all(&mut stream, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
        assert!(crate::identity::head(&mut stream).starts_with("HTTP/1.1 200 "), "{driver}");
        assert_eq!(stream.conn.alpn_protocol(), Some(pollux_tls::HTTP_1_1), "{driver}");
    });
}

#[test]
fn without_it_a_preface_is_a_request_of_another_version() {
    let backend = Backend::polite();
    let off = |config: &mut ProxyConfig| config.http2.is_off = true;
    on_every_driver(&[backend.address], off, |driver, proxy| {
        let mut client = proxy.client();
        client.send(pollux_http::h2::PREFACE);
        assert!(client.rest().starts_with("HTTP/1.1 505 "), "{driver}");
    });
}

/// A request of raw fields, none of them from a table and none compressed, with a body in DATA.
struct Payload {
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    data: Option<Vec<u8>>,
    trailers: Option<Vec<(Vec<u8>, Vec<u8>)>>,
}

/// What the proxy makes of a payload.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Verdict {
    /// The stream was reset with this code, or the connection ended.
    Reset(u32),
    Status(u16),
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = payload.len() as u32;
    [&len.to_be_bytes()[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A field block of literals without indexing.
fn block(fields: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let text = |text: &[u8]| {
        let len = u8::try_from(text.len()).expect("short");
        assert!(len < 127, "one byte of length");
        [&[len], text].concat()
    };
    let literal = |(name, value): &(Vec<u8>, Vec<u8>)| [vec![0], text(name), text(value)].concat();
    fields.iter().flat_map(literal).collect()
}

impl Payload {
    fn bytes(&self) -> Vec<u8> {
        const END_STREAM: u8 = 1;
        const END_HEADERS: u8 = 4;
        let ends = |has_more: bool| if has_more { 0 } else { END_STREAM };
        let mut bytes = pollux_http::h2::PREFACE.to_vec();
        bytes.extend(frame(4, 0, 0, &[]));
        let has_body = self.data.is_some() || self.trailers.is_some();
        bytes.extend(frame(1, END_HEADERS | ends(has_body), 1, &block(&self.fields)));
        if let Some(data) = &self.data {
            bytes.extend(frame(0, ends(self.trailers.is_some()), 1, data));
        }
        if let Some(trailers) = &self.trailers {
            bytes.extend(frame(1, END_HEADERS | END_STREAM, 1, &block(trailers)));
        }
        bytes
    }

    /// Sends it, and waits for its end.
    fn play(&self, proxy: &Proxy) -> Verdict {
        let mut client = proxy.client();
        client.try_send(self.bytes());
        loop {
            let head = client.bytes(9);
            let [a, b, c, kind, flags, rest @ ..] = &head[..] else { return Verdict::Reset(0) };
            let len = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            let stream = u32::from_be_bytes(rest.try_into().expect("four"));
            let payload = client.bytes(len);
            match (kind, stream) {
                (3, 1) => {
                    return Verdict::Reset(u32::from_be_bytes(
                        payload[..].try_into().expect("four"),
                    ));
                }
                // A status of the static table, or a literal with the name of one; updates of the table may stand in front.
                (1, 1) => {
                    let _ = flags;
                    return Verdict::Status(match payload[..] {
                        [0x88, ..] => 200,
                        [0x8c, ..] => 400,
                        [0x8e, ..] => 500,
                        _ => {
                            let digits =
                                payload.windows(3).find(|it| it.iter().all(u8::is_ascii_digit));
                            digits.map_or(1, |it| {
                                str::from_utf8(it).expect("digits").parse().expect("digits")
                            })
                        }
                    });
                }
                (7, _) => return Verdict::Reset(0),
                _ => {}
            }
        }
    }
}

const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "x")];
const POST: [(&str, &str); 4] = [(":method", "POST"), GET[1], GET[2], GET[3]];

type Text = &'static str;

fn fields(all: &[(&str, &str)]) -> Vec<(Vec<u8>, Vec<u8>)> {
    all.iter().map(|(name, value)| (name.bytes().collect(), value.bytes().collect())).collect()
}

fn with(more: &[(Text, Text)]) -> Payload {
    let all = [&GET[..], more].concat();
    Payload { fields: fields(&all), data: None, trailers: None }
}

fn posted(more: &[(Text, Text)], data: &str) -> Payload {
    let all = [&POST[..], more].concat();
    Payload { fields: fields(&all), data: Some(data.into()), trailers: None }
}

fn of(place: usize, value: Text) -> Payload {
    let mut all = GET;
    all[place].1 = value;
    Payload { fields: fields(&all), data: None, trailers: None }
}

/// What others have passed on to a server of HTTP/1.1, which read something else in it; all of them are to be reset.
fn smuggled() -> Vec<Payload> {
    let mut all = vec![
        posted(&[("content-length", "0")], "abcde"),
        posted(&[("content-length", "3")], "abcde"),
        posted(&[("content-length", "9")], "abcde"),
        posted(&[("transfer-encoding", "chunked")], "0\r\n\r\nGET /x HTTP/1.1\r\nHost: x\r\n\r\n"),
        posted(&[("transfer-encoding", "identity")], "0\r\n\r\nGET /x HTTP/1.1\r\nHost: x\r\n\r\n"),
        posted(&[("content-length", "5"), ("content-length", "5")], "abcde"),
        posted(&[("content-length", "5"), ("content-length", "6")], "abcde"),
        with(&[("content-length", "5")]),
        with(&[("te", "gzip")]),
        with(&[("te", "trailers, deflate")]),
        with(&[("connection", "close")]),
        with(&[("connection", "")]),
        with(&[("keep-alive", "5")]),
        with(&[("proxy-connection", "x")]),
        with(&[("upgrade", "websocket")]),
        with(&[("host", "other")]),
        with(&[("host", "x"), ("host", "x")]),
        with(&[(":status", "200")]),
        with(&[(":foo", "x")]),
        with(&[(":protocol", "websocket")]),
        with(&[("a", "b"), (":path", "/x")]),
    ];
    for length in ["5, 5", "+5", "-5", "0x5", "", "18446744073709551621"] {
        all.push(posted(&[("content-length", length)], "abcde"));
    }
    for value in [
        "a\r\ntransfer-encoding: chunked",
        "a\r\n\r\nGET /x HTTP/1.1\r\nHost: x\r\n\r\n",
        "a\nb",
        "a\rb",
        "a\0",
        "\u{1}",
        "\u{7f}",
        " a",
        "a\t",
    ] {
        all.push(with(&[("a", value)]));
    }
    for name in [
        "a\r\nb",
        "a:b",
        "transfer-encoding:",
        "a b",
        "a ",
        "Transfer-Encoding",
        "",
        "a\0",
        "\u{80}",
        "(",
    ] {
        all.push(with(&[(name, "chunked")]));
    }
    for method in ["GET /x HTTP/1.1\r\nA: b", "GET x", ""] {
        all.push(of(0, method));
    }
    for scheme in ["http://evil/x?", "", "ht\r\ntp"] {
        all.push(of(1, scheme));
    }
    for path in [
        "/ HTTP/1.1\r\nA: b",
        "/ HTTP/1.1 x",
        "/\t",
        "/\0",
        "/#x",
        "/\u{80}",
        "http://evil/x",
        "index.html",
        "",
        "*",
        "@evil/",
        ":80/",
    ] {
        all.push(of(2, path));
    }
    for authority in ["u@h", "h/x", "h h", "", "h\r\nA: b"] {
        all.push(of(3, authority));
    }
    let connect = [(":method", "CONNECT"), GET[1], GET[2], GET[3]];
    let connecting = |more: &[(Text, Text)]| {
        let fields = fields(&[&connect[..], more].concat());
        Payload { fields, data: Some(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n".into()), trailers: None }
    };
    all.push(connecting(&[]));
    for more in [
        (":protocol", "websocket"),
        ("content-length", "0"),
        ("content-length", "27"),
        ("transfer-encoding", "chunked"),
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("host", "other"),
    ] {
        all.push(connecting(&[(":protocol", "websocket"), more]));
    }
    for protocol in ["", "web socket", "websocket\r\nA: b", "websocket, h2c"] {
        all.push(connecting(&[(":protocol", protocol)]));
    }
    for place in 1..4 {
        let mut without = [&connect[..], &[(":protocol", "websocket")]].concat();
        without.remove(place);
        all.push(Payload { fields: fields(&without), data: None, trailers: None });
    }
    for (place, pseudo) in GET.into_iter().enumerate() {
        all.push(with(&[pseudo]));
        let mut without = GET.to_vec();
        without.remove(place);
        all.push(Payload { fields: fields(&without), data: None, trailers: None });
    }
    for name in [":path", "content-length", "transfer-encoding", "host", "te", "a\r\nb"] {
        let trailers = Some(fields(&[(name, "1")]));
        all.push(Payload { trailers, ..posted(&[], "abc") });
    }
    all
}

type Ended = (Vec<String>, String);

/// A backend that keeps what it reads, and answers nothing but whole and sound requests.
struct Recorder {
    backend: Backend,
    /// Of each connection, once it has ended: whole requests, and what stood behind them.
    ended: Arc<Mutex<Vec<Ended>>>,
}

impl Recorder {
    fn start() -> Self {
        let ended = Arc::<Mutex<Vec<_>>>::default();
        let kept = Arc::clone(&ended);
        let backend = Backend::start(move |_, mut client| {
            let mut whole = Vec::new();
            loop {
                let head = client.head();
                if !head.ends_with("\r\n\r\n") {
                    break kept.lock().expect("whole").push((whole, head));
                }
                // The body as far as it comes; of one that is cut less than it says.
                let mut request = head.clone();
                let mut is_whole = true;
                match (field(&head, "Content-Length"), field(&head, "Transfer-Encoding")) {
                    (Some(len), None) => {
                        let len = len.parse().expect("a number");
                        let body = client.bytes(len);
                        is_whole = body.len() == len;
                        request += &String::from_utf8_lossy(&body);
                    }
                    (None, Some("chunked")) => loop {
                        let line = client.until("\r\n");
                        let Ok(len) = usize::from_str_radix(line.trim(), 16) else {
                            is_whole = false;
                            break;
                        };
                        let chunk = client.bytes(len + 2);
                        request += &String::from_utf8_lossy(&chunk);
                        if len == 0 {
                            break;
                        }
                    },
                    (None, None) => {}
                    other => panic!("two ways to find an end: {other:?}"),
                }
                if !is_whole {
                    break kept.lock().expect("whole").push((whole, request));
                }
                whole.push(request);
                client.try_send(ok("", "hi"));
            }
        });
        Self { backend, ended }
    }
}

#[test]
fn no_payload_reaches_a_backend_as_anything_but_one_whole_request() {
    let recorder = Recorder::start();
    recorder.backend.on_every_driver(|driver, proxy| {
        for (at, payload) in smuggled().into_iter().enumerate() {
            let verdict = payload.play(proxy);
            let shown = String::from_utf8_lossy(&payload.bytes()).into_owned();
            // A length beyond every number is too large, and sound.
            let expected = if shown.contains("18446744073709551621") {
                Verdict::Status(413)
            } else {
                Verdict::Reset(1)
            };
            assert_eq!(verdict, expected, "{driver}, {at}: {shown:?}");
        }
        proxy.await_that("no request is under way", |proxy| proxy.in_use() == 0);
        // What is sound passes, and stands for itself.
        let served = [
            (with(&[("transfer_encoding", "chunked")]), "GET / HTTP/1.1\r\nHost: x\r\n"),
            (of(2, "//x"), "GET //x HTTP/1.1\r\nHost: x\r\n"),
            (with(&[("host", "x")]), "GET / HTTP/1.1\r\nHost: x\r\n"),
            (
                posted(&[], "0\r\n\r\nGET /x HTTP/1.1\r\nHost: x\r\n\r\n"),
                "POST / HTTP/1.1\r\nHost: x\r\n",
            ),
            (of(0, "FOO"), "FOO / HTTP/1.1\r\nHost: x\r\n"),
        ];
        // Sound, and not served here.
        let connect = fields(&[(":method", "CONNECT"), (":authority", "x:1")]);
        let payload = Payload { fields: connect, data: None, trailers: None };
        assert_eq!(payload.play(proxy), Verdict::Status(405), "{driver}");
        for (payload, _) in &served {
            assert_eq!(payload.play(proxy), Verdict::Status(200), "{driver}");
        }
        proxy.server().drain();
        proxy.await_that("all connections have ended", |proxy| proxy.open_connections() == 0);
        let accepted = recorder.backend.accepted() as usize;
        pollux_testing::wait_until("the backend's ends", || {
            recorder.ended.lock().expect("whole").len() == accepted
        });
        let mut all = recorder.ended.lock().expect("whole");
        let mut whole: Vec<String> = all.iter().flat_map(|(whole, _)| whole.clone()).collect();
        for (_, cut) in all.iter() {
            // A body that turned out to be another than was said: cut, so that it is none.
            let is_begun = cut.is_empty() || cut.starts_with("POST / HTTP/1.1\r\nHost: x\r\n");
            assert!(is_begun && !cut.contains("GET"), "{driver}: {cut:?}");
        }
        for (_, start) in &served {
            let found = whole.iter().position(|request| request.starts_with(start));
            whole.remove(found.unwrap_or_else(|| panic!("{driver}: {start} in {whole:?}")));
        }
        assert!(whole.is_empty(), "{driver}: {whole:?}");
        all.clear();
        recorder.backend.accepted.store(0, SeqCst);
    });
}
