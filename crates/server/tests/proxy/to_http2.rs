//! Backends of HTTP/2: requests of clients of either version share their connections, each on a stream of its own, and what
//! goes wrong with one does not concern the others.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use pollux_engine::{Counter, Driver};
use pollux_http::h2::{Ask, ErrorCode, Settings};
use pollux_http::{Field, Method};
use pollux_server::config::{Check, LogTarget, Protocol, ProxyConfig, ServerTls};
use pollux_server::tls::Trust;
use pollux_server::{BackendCounts, Fault, ProxyCounter};

use crate::http2_backend::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, Peer2, SETTINGS, block,
    frame,
};
use crate::http2_client::{Answer, Client2};
use crate::identity::{Identity, pattern};
use crate::{Backend, Client, Proxy, at_once, field, on_all_drivers_at_once, on_every_driver};

const OK2: &str = "HTTP/1.1 200 OK\r\n";

/// The kind of its frame.
const WINDOW_UPDATE: u8 = 8;

/// Backends that speak HTTP/2 in clear text.
pub(crate) fn h2c(config: &mut ProxyConfig) {
    config.groups[0].protocol = Protocol::H2c;
}

/// Runs `test` on every driver, with a proxy to this backend.
fn through(backend: &Backend, test: impl Fn(Driver, &Proxy)) {
    on_every_driver(&[backend.address], h2c, test);
}

/// A POST of this body by HTTP/1.1; the status of its answer, or nothing.
fn post(client: &mut Client, body: &str) -> String {
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    status_and_rest(client)
}

/// The status of the next answer, whose body is taken.
fn status_and_rest(client: &mut Client) -> String {
    let head = client.head();
    match (field(&head, "Content-Length"), field(&head, "Transfer-Encoding")) {
        (Some(len), _) => drop(client.bytes(len.parse().expect("a number"))),
        (_, Some(_)) => drop(client.until("\r\n0\r\n\r\n")),
        _ => {}
    }
    head.get(9..12).unwrap_or_default().to_owned()
}

#[test]
fn requests_of_all_clients_share_a_connection() {
    const EACH: usize = 8;
    let backend = Backend::of_http2(|_, mut peer| {
        loop {
            // All of them at once, and the last one first.
            if !peer.until(|peer| peer.asked.len() == 2 * EACH) {
                return;
            }
            let streams: Vec<u32> = peer.asked.keys().rev().copied().collect();
            for stream in streams {
                let path = peer.asked.remove(&stream).expect("there").path().to_owned();
                peer.answer(stream, OK2, path.as_bytes());
            }
        }
    });
    through(&backend, |driver, proxy| {
        let before = backend.accepted();
        let mut client = Client2::connect(proxy);
        let mut others: Vec<_> = (0..EACH).map(|_| proxy.client()).collect();
        for _ in 0..3 {
            let streams: Vec<u32> = (0..EACH).map(|at| client.get(&format!("/{at}"))).collect();
            for (at, other) in others.iter_mut().enumerate() {
                other.ask(&format!("/of-{at}"));
            }
            for (at, stream) in streams.into_iter().enumerate() {
                assert_eq!(client.answer(stream).body, format!("/{at}").as_bytes(), "{driver}");
            }
            for (at, other) in others.iter_mut().enumerate() {
                let head = other.head();
                assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{driver}: {head}");
                let chunk = other.until("0\r\n\r\n");
                assert!(chunk.contains(&format!("/of-{at}")), "{driver}: {chunk}");
            }
        }
        assert_eq!(backend.accepted() - before, 1, "{driver}");
        proxy.await_that("no request is under way", |proxy| proxy.in_use() == 0);
        let count = |of: fn(&BackendCounts) -> u64| {
            proxy.sum(|each| each.proxy.as_ref().map_or(0, |proxy| of(&proxy.backends()[0])))
        };
        assert_eq!(count(|of| of.streams_begun.value()), 3 * 2 * EACH as u64, "{driver}");
        let now = (count(BackendCounts::streams), count(BackendCounts::http2_connections));
        assert_eq!(now, (0, 1), "{driver}");
    });
}

#[test]
fn heads_and_trailers_are_translated_both_ways() {
    let backend = Backend::of_http2(|_, mut peer| {
        while let Some((stream, asked)) = peer.next_whole() {
            let got = format!("{}{}", asked.head, asked.trailers.join("~")).replace("\r\n", "~");
            let head = format!("{OK2}X-Got: {got}\r\nKept: 1\r\n\r\n");
            peer.says(|peer, out| {
                peer.send_head(
                    out,
                    stream,
                    b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
                    false,
                );
                peer.send_head(out, stream, head.as_bytes(), false);
            });
            peer.send(stream, b"hi", false);
            peer.send_trailers(stream, &[("grpc-status", "0"), ("set-cookie", "a=b")]);
        }
    });
    through(&backend, |driver, proxy| {
        let mut client = Client2::connect(proxy);
        let fields = [("te", "trailers"), ("X-Id", "7"), ("authorization", "Basic x")];
        let stream = client.ask(Method::Post, "/a?b", &fields, false);
        client.send(stream, b"body", false);
        client.send_trailers(stream, &[("x-sum", "9")]);
        let answer = client.answer(stream);
        let [early, head] = &answer.heads[..] else { panic!("{driver}: {answer:?}") };
        assert_eq!(early, "103|link: </a>", "{driver}");
        let expected = "POST /a?b HTTP/2.0~host: x~te: trailers~x-id: 7~authorization: Basic x~\
                        x-forwarded-for: 127.0.0.1~x-forwarded-proto: http~x-forwarded-host: x~via: 2.0 pollux~~x-sum: 9";
        assert!(head.starts_with(&format!("200|x-got: {expected}|kept: 1|")), "{driver}: {head}");
        assert_eq!(
            (&*answer.body, &*answer.trailers),
            (&b"hi"[..], &["grpc-status: 0".to_owned()][..])
        );
        let mut old = proxy.client();
        old.send(
            "POST /c HTTP/1.1\r\nHost: y\r\nConnection: X-Hop, upgrade\r\nX-Hop: 1\r\nUpgrade: websocket\r\nTE: trailers\r\n\
             Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
        );
        let early = old.head();
        assert!(early.starts_with("HTTP/1.1 103 \r\n"), "{driver}: {early}");
        let head = old.head();
        let got = field(&head, "X-Got").expect("what came");
        let start = "POST /c HTTP/2.0~host: y~x-forwarded-for: 127.0.0.1~";
        assert!(got.starts_with(start) && got.ends_with("via: 1.1 pollux~~"), "{driver}: {got}");
        assert!(head.contains("\r\nTransfer-Encoding: chunked\r\n"), "{driver}: {head}");
        assert_eq!(old.until("0\r\n\r\n"), "2\r\nhi\r\n0\r\n\r\n", "{driver}");
    });
}

/// A proxy passes a field on as its sender has marked it (RFC 7541 6.2.3).
#[test]
fn what_a_client_keeps_out_of_tables_stays_out_of_them() {
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let noted = Arc::clone(&seen);
    let backend = Backend::of_http2(move |_, mut peer| {
        while let Some((stream, asked)) = peer.next_whole() {
            noted.lock().expect("whole").push(asked.never_indexed.join(" "));
            peer.answer(stream, OK2, b"well");
        }
    });
    // GET, http, a path and a field that are marked, an authority and a field that are not.
    let marked = [
        &[0x82, 0x86, 0x14, 4][..],
        b"/a?b",
        &[0x10, 8],
        b"x-secret",
        &[1, b'1'],
        &[0x41, 1, b'x'],
    ];
    // Pseudo fields come first.
    let block = [
        marked[0],
        marked[1],
        marked[5],
        marked[2],
        marked[3],
        marked[4],
        &block(&[(b"x-open", b"2")]),
    ];
    let preface = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &*frame(SETTINGS, 0, 0, &[])].concat();
    through(&backend, |driver, proxy| {
        let mut client = proxy.client();
        client.send(&preface);
        for stream in [1, 3] {
            client.send(frame(HEADERS, END_HEADERS | END_STREAM, stream, &block.concat()));
        }
        pollux_testing::wait_until("both have come", || seen.lock().expect("whole").len() == 2);
        let seen = std::mem::take(&mut *seen.lock().expect("whole"));
        assert_eq!(seen, ["x-secret :path"; 2], "{driver}");
    });
}

/// The same of trailers, and of what a backend says.
#[test]
fn what_a_backend_keeps_out_of_tables_stays_out_of_them_and_so_do_marked_trailers() {
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let noted = Arc::clone(&seen);
    let secret = |name: &[u8]| [&[0x10, 8][..], name, &[1, b's']].concat();
    let backend = Backend::of_http2(move |_, mut peer| {
        while let Some((stream, asked)) = peer.next_whole() {
            noted.lock().expect("whole").push(asked.never_indexed.join(" "));
            let open = block(&[(b"x-open", b"1")]);
            let head = [&[0x88][..], &open, &secret(b"x-secret")].concat();
            let trailers = [open, secret(b"x-hidden")].concat();
            let frames = [
                frame(HEADERS, END_HEADERS, stream, &head),
                frame(DATA, 0, stream, b"well"),
                frame(HEADERS, END_HEADERS | END_STREAM, stream, &trailers),
            ];
            peer.raw(&frames.concat());
            // The stream has ended there, too.
            peer.says(|peer, _| peer.forget(stream));
        }
    });
    through(&backend, |driver, proxy| {
        let mut client = Client2::connect(proxy);
        // Twice, so that what is known of the first one counts.
        for _ in 0..2 {
            let stream = client.ask(Method::Post, "/", &[("x-plain", "1")], false);
            let trailers =
                [Field { name: "x-quiet", value: b"1" }, Field { name: "x-loud", value: b"2" }];
            client.says(|client, out| {
                client.send_data(out, stream, b"body", false);
                client.send_trailers_marked(out, stream, &trailers, b"x-quiet\n");
            });
            let answer = client.answer(stream);
            assert_eq!(answer.never_indexed, ["x-secret", "x-hidden"], "{driver}");
            let seen = std::mem::take(&mut *seen.lock().expect("whole"));
            assert_eq!(seen, ["x-quiet"], "{driver}");
        }
    });
}

#[test]
fn answers_without_a_body_end_with_their_heads() {
    let backend = Backend::answering2(|asked| {
        let status = asked.path()[1..].to_owned();
        (format!("HTTP/1.1 {status} x\r\nX-A: b\r\n"), Vec::new())
    });
    through(&backend, |driver, proxy| {
        let mut client = Client2::connect(proxy);
        let mut old = proxy.client();
        for status in ["200", "204", "304", "404"] {
            for method in [Method::Get, Method::Head, Method::Post] {
                let stream = client.ask(method, &format!("/{status}"), &[], true);
                let answer = client.answer(stream);
                assert_eq!((answer.status(), &*answer.body), (status, &b""[..]), "{driver}");
            }
            old.ask(&format!("/{status}"));
            let head = old.head();
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{driver}: {head}");
            let length = field(&head, "Content-Length");
            assert_eq!(length, matches!(status, "200" | "404").then_some("0"), "{driver}: {head}");
        }
    });
}

/// An answer of gRPC that has failed is one head, which ends its stream: a frame behind it would hide the status.
#[test]
fn an_answer_of_trailers_alone_stays_one_head() {
    let backend = Backend::answering2(|_| {
        let head = format!("{OK2}Content-Type: application/grpc\r\nGrpc-Status: 5\r\n");
        (head, Vec::new())
    });
    through(&backend, |driver, proxy| {
        let mut client = Client2::connect(proxy);
        let stream = client.ask(Method::Post, "/s/m", &[("te", "trailers")], true);
        client.until(|client| !client.answers[&stream].heads.is_empty());
        let answer = client.answer(stream);
        assert!(answer.ended_with_head, "{driver}: {answer:?}");
        assert!(answer.heads[0].contains("|grpc-status: 5"), "{driver}: {answer:?}");
    });
}

#[test]
fn bodies_come_through_both_ways_on_many_streams() {
    bodies(10, 700_001, &Driver::ALL);
}

/// 64 MiB each way, of which each window takes a thousandth.
#[test]
fn long_bodies_come_through_both_ways_on_ten_streams() {
    let drivers = Driver::ALL
        .iter()
        .copied()
        .filter(|driver| matches!(driver.to_string().as_str(), "epoll-et" | "uring"));
    let drivers: Vec<Driver> = drivers.collect();
    assert_eq!(drivers.len(), 2);
    bodies(10, (64 << 20) / 10, &drivers);
}

/// Echoes of so many streams at once, each of so many bytes.
fn bodies(streams: usize, len: usize, drivers: &[Driver]) {
    let backend = Backend::of_http2(|_, mut peer| {
        // What came of each stream goes back at once, as far as windows allow.
        let mut sent = std::collections::BTreeMap::<u32, usize>::new();
        loop {
            let mut is_stuck = true;
            let all: Vec<u32> = peer.asked.keys().copied().collect();
            for stream in all {
                let done = *sent.entry(stream).or_insert_with(|| {
                    peer.says(|peer, out| {
                        peer.send_head(out, stream, b"HTTP/1.1 200 OK\r\n\r\n", false);
                    });
                    0
                });
                let asked = &peer.asked[&stream];
                let whole = asked.is_whole;
                let rest = asked.body[done..].to_vec();
                let more = peer.send_some(stream, &rest, whole);
                is_stuck &= more == 0;
                *sent.get_mut(&stream).expect("it is there") += more;
                if whole && more == rest.len() {
                    let _ = peer.connection.take_done(stream);
                    peer.asked.remove(&stream);
                    is_stuck = false;
                }
            }
            if is_stuck && !peer.more() {
                return;
            }
        }
    });
    let sent = pattern(len);
    for driver in drivers {
        let Some(proxy) = Proxy::start(*driver, &[backend.address], h2c) else { continue };
        let mut client = Client2::connect(&proxy);
        let ids: Vec<u32> =
            (0..streams).map(|_| client.ask(Method::Post, "/", &[], false)).collect();
        let mut done = vec![0; streams];
        while done.iter().any(|done| *done < len) {
            let mut is_stuck = true;
            for (at, stream) in ids.iter().enumerate() {
                if done[at] < len {
                    let rest = &sent[done[at]..];
                    let more = client.send_some(
                        *stream,
                        &rest[..rest.len().min(100_000)],
                        rest.len() <= 100_000,
                    );
                    done[at] += more;
                    is_stuck &= more == 0;
                }
            }
            assert!(!is_stuck || client.more(), "{driver}: the connection ended");
        }
        for stream in ids {
            let answer = client.answer(stream);
            assert!(
                answer.body == sent,
                "{driver}: {} bytes, {:?}",
                answer.body.len(),
                answer.reset
            );
        }
        proxy.await_that("no request is under way", |proxy| proxy.in_use() == 0);
    }
}

#[test]
fn a_request_of_http1_has_its_body_passed_on_as_it_comes() {
    let backend = Backend::of_http2(|_, mut peer| {
        while let Some(stream) = peer.next_head() {
            // It answers each piece before the next one comes.
            peer.says(|peer, out| peer.send_head(out, stream, b"HTTP/1.1 200 OK\r\n\r\n", false));
            for piece in ["one", "two"] {
                peer.until(|peer| peer.asked[&stream].body.ends_with(piece.as_bytes()));
                peer.send(stream, piece.as_bytes(), false);
            }
            peer.until(|peer| peer.asked[&stream].is_whole);
            peer.send(stream, b"end", true);
            let _ = peer.connection.take_done(stream);
            peer.asked.remove(&stream);
        }
    });
    through(&backend, |driver, proxy| {
        let mut client = proxy.client();
        client.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n");
        assert!(client.head().starts_with("HTTP/1.1 200 "), "{driver}");
        assert_eq!(client.until("one\r\n"), "3\r\none\r\n", "{driver}");
        client.send("3\r\ntwo\r\n");
        assert_eq!(client.until("two\r\n"), "3\r\ntwo\r\n", "{driver}");
        client.send("0\r\n\r\n");
        assert_eq!(client.until("0\r\n\r\n"), "3\r\nend\r\n0\r\n\r\n", "{driver}");
    });
}

#[test]
fn another_connection_is_opened_when_a_backend_takes_no_more_streams_on_those_that_are_there() {
    let all = Arc::new(Barrier::new(3));
    let settings = Settings { streams_max: 2, ..Settings::DEFAULT };
    let backend = Backend::with_settings(settings, move |_, mut peer| {
        while peer.until(|peer| peer.asked.values().filter(|asked| asked.is_whole).count() == 2) {
            // Each of three connections has two.
            all.wait();
            for (stream, asked) in std::mem::take(&mut peer.asked) {
                peer.answer(stream, OK2, asked.path().as_bytes());
            }
        }
    });
    through(&backend, |driver, proxy| {
        let before = backend.accepted();
        let mut client = Client2::connect(proxy);
        for _ in 0..3 {
            let streams: Vec<u32> = (0..6).map(|at| client.get(&format!("/{at}"))).collect();
            for (at, stream) in streams.into_iter().enumerate() {
                let answer = client.answer(stream);
                assert_eq!(answer.body, format!("/{at}").as_bytes(), "{driver}: {answer:?}");
            }
        }
        assert_eq!(backend.accepted() - before, 3, "{driver}");
        assert_eq!(proxy.count(ProxyCounter::Retries), 0, "{driver}");
    });
}

#[test]
fn a_backend_that_takes_no_streams_is_asked_no_more_than_three_times() {
    let settings = Settings { streams_max: 0, ..Settings::DEFAULT };
    let backend = Backend::with_settings(settings, |_, mut peer| while peer.more() {});
    through(&backend, |driver, proxy| {
        let before = backend.accepted();
        let answer = Client2::connect(proxy).answer_to("/");
        assert_eq!(answer.status(), "503", "{driver}");
        assert_eq!(backend.accepted() - before, 3, "{driver}");
        assert_eq!(proxy.faults(Fault::Refused), 1, "{driver}");
    });
}

#[test]
fn streams_above_the_last_one_of_a_goaway_are_sent_again_whatever_they_ask_and_the_others_end_well()
{
    let backend = Backend::of_http2(|number, mut peer| {
        if number % 2 == 1 {
            while let Some((stream, asked)) = peer.next_whole() {
                peer.answer(stream, OK2, &[b"second ", &*asked.body].concat());
            }
            return;
        }
        peer.until(|peer| peer.asked.values().filter(|asked| asked.is_whole).count() == 3);
        let first = *peer.asked.keys().next().expect("three");
        peer.raw(&frame(GOAWAY, 0, 0, &[&first.to_be_bytes()[..], &[0; 4]].concat()));
        let asked = peer.asked.remove(&first).expect("it is there");
        peer.answer(first, OK2, &[b"first ", &*asked.body].concat());
        while peer.more() {}
    });
    through(&backend, |driver, proxy| {
        let before = backend.accepted();
        assert_eq!(before % 2, 0, "{driver}");
        let mut client = Client2::connect(proxy);
        let bodies = ["a", "b", "c"];
        let streams = bodies.map(|body| {
            let stream = client.ask(Method::Post, "/", &[], false);
            client.send(stream, body.as_bytes(), true);
            stream
        });
        let answers = streams.map(|stream| String::from_utf8(client.answer(stream).body));
        assert_eq!(
            answers.map(Result::unwrap_or_default),
            ["first a", "second b", "second c"],
            "{driver}"
        );
        assert_eq!(backend.accepted() - before, 2, "{driver}");
        assert_eq!(proxy.count(ProxyCounter::Retries), 2, "{driver}");
        assert_eq!(proxy.faults(Fault::Refused), 0, "{driver}");
    });
}

#[test]
fn a_stream_that_was_refused_is_sent_again_whatever_it_asks() {
    let times = Arc::<AtomicU64>::default();
    let refused = Arc::clone(&times);
    let backend = Backend::of_http2(move |_, mut peer| {
        while let Some((stream, asked)) = peer.next_whole() {
            match asked.body.first() {
                Some(b'!') => peer.reset(stream, ErrorCode::REFUSED_STREAM),
                _ if refused.fetch_add(1, SeqCst) % 2 == 0 => {
                    peer.reset(stream, ErrorCode::REFUSED_STREAM);
                }
                _ => peer.answer(stream, OK2, &asked.body),
            }
        }
    });
    through(&backend, |driver, proxy| {
        let mut client = proxy.client();
        assert_eq!(post(&mut client, "once"), "200", "{driver}");
        assert_eq!(proxy.count(ProxyCounter::Retries), 1, "{driver}");
        // No more than three times.
        assert_eq!(post(&mut client, "!"), "503", "{driver}");
        assert_eq!(proxy.count(ProxyCounter::Retries), 3, "{driver}");
        assert_eq!(proxy.faults(Fault::Refused), 1, "{driver}");
        // What is not kept any more cannot be sent again.
        let mut client = Client2::connect(proxy);
        let stream = client.ask(Method::Post, "/", &[], false);
        client.send(stream, &[b'!'; 200_000], true);
        assert_eq!(client.answer(stream).status(), "503", "{driver}");
        assert_eq!(proxy.count(ProxyCounter::Retries), 3, "{driver}");
    });
}

#[test]
fn resets_of_a_backend_reach_the_clients_and_no_other_request() {
    let backend = Backend::of_http2(|_, mut peer| {
        while let Some((stream, asked)) = peer.next_whole() {
            match asked.path() {
                "/before" => peer.reset(stream, ErrorCode::INTERNAL_ERROR),
                "/within" => {
                    peer.says(|peer, out| {
                        peer.send_head(out, stream, b"HTTP/1.1 200 OK\r\n\r\n", false);
                        peer.send_data(out, stream, b"part", false);
                    });
                    // Until the client has it.
                    peer.until(|peer| peer.asked.values().any(|asked| asked.path() == "/go"));
                    let go = *peer.asked.keys().next().expect("it came");
                    peer.asked.remove(&go);
                    peer.reset(stream, ErrorCode::ENHANCE_YOUR_CALM);
                    peer.answer(go, OK2, b"gone");
                }
                _ => peer.answer(stream, OK2, b"well"),
            }
        }
    });
    through(&backend, |driver, proxy| {
        let before = backend.accepted();
        let mut client = Client2::connect(proxy);
        let answer = client.answer_to("/before");
        assert_eq!(answer.status(), "502", "{driver}");
        assert_eq!(proxy.faults(Fault::Reset), 1, "{driver}");
        let stream = client.get("/within");
        client.until(|client| client.answers[&stream].body == b"part");
        assert_eq!(client.answer_to("/go").body, b"gone", "{driver}");
        let answer = client.answer(stream);
        assert_eq!(answer.reset, Some(ErrorCode::ENHANCE_YOUR_CALM), "{driver}: {answer:?}");
        // A client of HTTP/1.1 is cut.
        let mut old = proxy.client();
        let mut other = proxy.client();
        old.ask("/within");
        old.until("part");
        other.ask("/go");
        assert_eq!(old.rest(), "\r\n", "{driver}");
        assert_eq!(status_and_rest(&mut other), "200", "{driver}");
        assert_eq!(client.answer_to("/").body, b"well", "{driver}");
        assert_eq!(backend.accepted() - before, 1, "{driver}");
    });
}

#[test]
fn a_client_that_goes_away_has_its_stream_reset_and_no_other() {
    let resets = Arc::<Mutex<Vec<ErrorCode>>>::default();
    let go = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&resets);
    let went = Arc::clone(&go);
    let backend = Backend::of_http2(move |_, mut peer| {
        loop {
            if !peer.until(|peer| peer.asked.values().filter(|asked| asked.is_whole).count() == 3) {
                return;
            }
            went.fetch_add(1, SeqCst);
            peer.until(|peer| peer.resets.len() == 2);
            let codes = std::mem::take(&mut peer.resets);
            seen.lock().expect("whole").extend(codes.iter().map(|(_, code)| code));
            for (stream, asked) in std::mem::take(&mut peer.asked) {
                if codes.iter().all(|(reset, _)| *reset != stream) {
                    peer.answer(stream, OK2, asked.path().as_bytes());
                }
            }
        }
    });
    through(&backend, |driver, proxy| {
        let before = backend.accepted();
        go.store(0, SeqCst);
        let mut client = Client2::connect(proxy);
        let stays = client.get("/stays");
        let goes = client.get("/goes");
        let mut old = proxy.client();
        old.ask("/of-old");
        pollux_testing::wait_until("all are there", || go.load(SeqCst) == 1);
        client.reset(goes, ErrorCode::CANCEL);
        old.reset();
        assert_eq!(client.answer(stays).body, b"/stays", "{driver}");
        let resets = std::mem::take(&mut *resets.lock().expect("whole"));
        assert_eq!(resets, [ErrorCode::CANCEL; 2], "{driver}");
        assert_eq!(backend.accepted() - before, 1, "{driver}");
    });
}

#[test]
fn a_client_that_takes_nothing_holds_up_its_own_stream_alone() {
    const BODY_BYTES: usize = 1 << 20;
    let sent = Arc::<AtomicU64>::default();
    let counted = Arc::clone(&sent);
    let backend = Backend::of_http2(move |_, mut peer| {
        let body = pattern(BODY_BYTES);
        let mut stalled: Option<(u32, usize)> = None;
        loop {
            let whole = peer.asked.iter().find(|(_, asked)| asked.is_whole);
            let whole = whole.map(|(stream, asked)| (*stream, asked.path() == "/stalled"));
            match whole {
                Some((stream, is_stalled)) => {
                    peer.asked.remove(&stream);
                    peer.says(|peer, out| {
                        peer.send_head(out, stream, b"HTTP/1.1 200 OK\r\n\r\n", false);
                    });
                    if is_stalled {
                        stalled = Some((stream, 0));
                    } else {
                        peer.send(stream, &body, true);
                        let _ = peer.connection.take_done(stream);
                    }
                }
                None if !peer.more() => return,
                None => {}
            }
            if let Some((stream, at)) = &mut stalled {
                *at += peer.send_some(*stream, &body[*at..], true);
                counted.store(*at as u64, SeqCst);
                if *at == BODY_BYTES {
                    let _ = peer.connection.take_done(*stream);
                    stalled = None;
                }
            }
        }
    });
    through(&backend, |driver, proxy| {
        let before = backend.accepted();
        let mut slow = Client2::with_window(proxy, 1000);
        slow.releases = false;
        let stalled = slow.get("/stalled");
        slow.until(|client| client.answers[&stalled].body.len() == 1000);
        let mut client = Client2::connect(proxy);
        for _ in 0..5 {
            let streams: Vec<u32> = (0..5).map(|_| client.get("/")).collect();
            for stream in streams {
                assert_eq!(client.answer(stream).body.len(), BODY_BYTES, "{driver}");
            }
        }
        let held = sent.load(SeqCst);
        assert!(held <= 1000 + 2 * 65_535, "{driver}: {held} bytes for one that takes 1000");
        // It continues when its client does.
        slow.releases = true;
        slow.says(|client, out| client.release(out, stalled, 1000));
        assert_eq!(slow.answer(stalled).body, pattern(BODY_BYTES), "{driver}");
        assert_eq!(backend.accepted() - before, 1, "{driver}");
    });
}

/// Each piece ends a wait for the window, and all of them together are not enough.
#[test]
fn a_backend_that_opens_its_window_by_little_is_given_up() {
    // It counts on no window, and says none but that of the standard.
    let settings =
        Settings { stream_window: 1 << 30, connection_window: 65_535, ..Settings::DEFAULT };
    let backend = Backend::start(move |_, client| {
        let mut peer = Peer2::silent(client.socket, settings);
        peer.raw(&frame(SETTINGS, 0, 0, &[]));
        peer.releases = false;
        let Some(stream) = peer.next_head() else { return };
        let mut got = 65_535;
        while peer.until(|peer| peer.asked[&stream].body.len() >= got || !peer.resets.is_empty())
            && peer.resets.is_empty()
        {
            // Less would be taken for a flood.
            peer.raw(&frame(WINDOW_UPDATE, 0, stream, &200_u32.to_be_bytes()));
            got += 200;
        }
        while peer.more() {}
    });
    let fast = |config: &mut ProxyConfig| {
        h2c(config);
        config.limits.clients.write_timeout = Duration::from_millis(500);
        config.limits.clients.read_rate_min_bytes = 1 << 30;
    };
    on_every_driver(&[backend.address], fast, |driver, proxy| {
        let mut client = Client2::connect(proxy);
        let stream = client.ask(Method::Post, "/", &[], false);
        let body = vec![0; 64 << 20];
        let mut sent = 0;
        while !client.answers[&stream].is_over() {
            sent += client.send_some(stream, &body[sent..], true);
            assert!(client.more(), "{driver}");
        }
        assert!((65_535..body.len()).contains(&sent), "{driver}: {sent}");
        assert_eq!(client.answer(stream).status(), "504", "{driver}");
        assert_eq!(proxy.count(ProxyCounter::Http2WindowTimeouts), 1, "{driver}");
    });
}

#[test]
fn a_backend_that_takes_nothing_of_a_body_holds_up_that_stream_alone() {
    let backend = Backend::of_http2(|_, mut peer| {
        // Only by what is asked for its windows open.
        peer.releases = false;
        loop {
            if !peer.until(|peer| peer.asked.values().any(|asked| asked.is_whole)) {
                return;
            }
            let (stream, asked) = peer.next_whole().expect("one is whole");
            if asked.path() == "/go" {
                peer.releases = true;
                let all: Vec<_> = peer.asked.iter().map(|(at, of)| (*at, of.body.len())).collect();
                for (stream, len) in all {
                    peer.says(|peer, out| peer.release(out, stream, len));
                }
            }
            peer.answer(stream, OK2, asked.body.len().to_string().as_bytes());
        }
    });
    through(&backend, |driver, proxy| {
        let mut client = Client2::connect(proxy);
        let stream = client.ask(Method::Post, "/", &[], false);
        let body = pattern(600_000);
        // All that the windows on the way take.
        let mut sent = 0;
        for _ in 0..3 {
            sent += client.send_some(stream, &body[sent..], true);
            assert_eq!(client.answer_to("/small").body, b"0", "{driver}");
        }
        assert!(sent < 300_000, "{driver}: {sent} bytes were taken for one that takes 65,535");
        assert_eq!(client.answer_to("/go").body, b"0", "{driver}");
        client.send(stream, &body[sent..], true);
        assert_eq!(client.answer(stream).body, b"600000", "{driver}");
    });
}

/// What others let through, or end all for.
#[test]
fn malformed_answers_are_not_passed_on_and_cost_no_other_request() {
    type Head = &'static [(&'static [u8], &'static [u8])];
    let heads: [(&str, Head); 13] = [
        ("connection", &[(b":status", b"200"), (b"connection", b"close")]),
        ("keep-alive", &[(b":status", b"200"), (b"keep-alive", b"1")]),
        ("transfer-encoding", &[(b":status", b"200"), (b"transfer-encoding", b"chunked")]),
        ("upper case", &[(b":status", b"200"), (b"X-Upper", b"1")]),
        ("a line end", &[(b":status", b"200"), (b"a", b"b\r\nc: d")]),
        ("a bare CR", &[(b":status", b"200"), (b"a", b"b\rc")]),
        ("a status that is none", &[(b":status", b"2x0")]),
        ("no status", &[(b"a", b"b")]),
        ("two", &[(b":status", b"200"), (b":status", b"200")]),
        ("a status behind a field", &[(b"a", b"b"), (b":status", b"200")]),
        ("a pseudo field of requests", &[(b":status", b"200"), (b":path", b"/")]),
        (
            "two lengths",
            &[(b":status", b"200"), (b"content-length", b"1"), (b"content-length", b"2")],
        ),
        ("an upgrade", &[(b":status", b"101")]),
    ];
    let backend = Backend::of_http2(move |_, mut peer| {
        while let Some((stream, asked)) = peer.next_whole() {
            let place: usize = asked.path()[1..].parse().expect("a number");
            match heads.get(place) {
                Some((_, head)) => peer.raw(&frame(HEADERS, END_HEADERS, stream, &block(head))),
                None => peer.answer(stream, OK2, b"well"),
            }
            // The proxy has reset it.
            if place < heads.len() {
                peer.until(|peer| !peer.resets.is_empty());
                peer.resets.clear();
            }
        }
    });
    through(&backend, |driver, proxy| {
        let before = backend.accepted();
        let mut client = Client2::connect(proxy);
        for (place, (name, _)) in heads.iter().enumerate() {
            let answer = client.answer_to(&format!("/{place}"));
            assert_eq!(answer.status(), "502", "{driver}: {name}: {answer:?}");
        }
        assert_eq!(proxy.faults(Fault::BadAnswer), heads.len() as u64, "{driver}");
        assert_eq!(client.answer_to("/99").body, b"well", "{driver}");
        assert_eq!(backend.accepted() - before, 1, "{driver}");
    });
}

#[test]
fn bodies_that_are_not_as_long_as_was_said_are_cut() {
    let backend = Backend::of_http2(|_, mut peer| {
        while let Some((stream, asked)) = peer.next_whole() {
            let head = block(&[(b":status", b"200"), (b"content-length", b"4")]);
            let ends = |ends: bool| if ends { END_STREAM } else { 0 };
            let data = |body: &[u8], is_end| frame(DATA, ends(is_end), stream, body);
            let bytes = match asked.path() {
                "/more" => [frame(HEADERS, END_HEADERS, stream, &head), data(b"12345", false)],
                "/less" => [frame(HEADERS, END_HEADERS, stream, &head), data(b"12", true)],
                "/none" => [frame(HEADERS, END_HEADERS | END_STREAM, stream, &head), Vec::new()],
                "/before" => [data(b"1234", false), Vec::new()],
                "/trailers" => {
                    let trailers = block(&[(b"a", b"b")]);
                    let part = [data(b"12", false), frame(HEADERS, END_HEADERS, stream, &trailers)];
                    [frame(HEADERS, END_HEADERS, stream, &head), part.concat()]
                }
                other => panic!("{other}"),
            };
            peer.raw(&bytes.concat());
        }
    });
    through(&backend, |driver, proxy| {
        let mut client = Client2::connect(proxy);
        for path in ["/more", "/less", "/none", "/before", "/trailers"] {
            let answer = client.answer_to(path);
            // What has come of the head by then may have left.
            let is_cut = answer.reset == Some(ErrorCode::INTERNAL_ERROR);
            assert!(is_cut || answer.status() == "502", "{driver}: {path}: {answer:?}");
            assert!(
                answer.body.len() < 4 || is_cut || answer.status() == "502",
                "{driver}: {answer:?}"
            );
            let mut old = proxy.client();
            old.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
            let all = old.rest();
            assert!(!all.contains("\r\n\r\n1234"), "{driver}: {path}: {all}");
        }
    });
}

/// What would be an attack of a client is one of a backend, too: it ends its connection, with a word on why.
#[test]
fn a_backend_that_floods_is_left() {
    let many = |frame: Vec<u8>, count: usize| frame.repeat(count);
    let headers = |stream, flags, block: &[u8]| frame(HEADERS, flags, stream, block);
    let bomb = {
        // A large field in the table, and thousands of references to it.
        let mut block = [&[0x88, 0x40, 1, b'a', 0x7f, 0xc1, 0x1e][..], &[b'x'; 4000]].concat();
        block.extend([0xbe; 9000]);
        block
    };
    let backend = Backend::of_http2(move |_, mut peer| {
        let Some((stream, asked)) = peer.next_whole() else { return };
        match asked.path() {
            "/pings" => peer.raw(&many(frame(PING, 0, 0, &[7; 8]), 20_000)),
            "/settings" => peer.raw(&many(frame(SETTINGS, 0, 0, &[]), 20_000)),
            "/empty" => {
                let head = headers(stream, END_HEADERS, &[0x88]);
                peer.raw(&[head, many(frame(DATA, 0, stream, &[]), 100)].concat());
            }
            "/interim" => {
                let interim = headers(stream, END_HEADERS, &block(&[(b":status", b"103")]));
                peer.raw(&many(interim, 30_000));
            }
            "/continuation" => {
                let part = frame(CONTINUATION, 0, stream, &[0, 1, b'a', 1, b'b'].repeat(1000));
                peer.raw(&[headers(stream, 0, &[0x88]), many(part, 200)].concat());
            }
            "/bomb" => peer.raw(&headers(stream, END_HEADERS, &bomb)),
            "/push" => peer.raw(&frame(5, END_HEADERS, stream, &[0, 0, 0, 2, 0x88])),
            "/http1" => peer.raw(b"HTTP/1.1 200 OK\r\n\r\n"),
            other => panic!("{other}"),
        }
        while peer.more() {}
        assert!(peer.gone.len() <= 1);
    });
    through(&backend, |driver, proxy| {
        for path in [
            "/pings",
            "/settings",
            "/empty",
            "/interim",
            "/continuation",
            "/bomb",
            "/push",
            "/http1",
        ] {
            let before = backend.accepted();
            let mut client = Client2::connect(proxy);
            let stream = client.get(path);
            let answer = client.answer(stream);
            let is_cut = answer.reset.is_some() && matches!(path, "/empty" | "/interim");
            assert!(is_cut || answer.status() == "502", "{driver}: {path}: {answer:?}");
            assert_eq!(backend.accepted() - before, 1, "{driver}: {path}");
            proxy.await_that("it is left", |proxy| proxy.open_connections() <= 1);
        }
    });
}

#[test]
fn a_backend_that_is_slow_is_given_up_by_its_stream() {
    let soon = |config: &mut ProxyConfig| {
        h2c(config);
        config.limits.first_byte_timeout = Duration::from_secs(1);
        config.limits.clients.body_timeout = Duration::from_secs(1);
    };
    at_once(|driver| {
        let backend = Backend::of_http2(|_, mut peer| {
            while let Some((stream, asked)) = peer.next_whole() {
                match asked.path() {
                    "/never" => {}
                    "/part" => peer.says(|peer, out| {
                        peer.send_head(out, stream, b"HTTP/1.1 200 OK\r\n\r\n", false);
                        peer.send_data(out, stream, b"part", false);
                    }),
                    _ => peer.answer(stream, OK2, b"well"),
                }
            }
        });
        let Some(proxy) = Proxy::start(driver, &[backend.address], soon) else { return };
        let mut client = Client2::connect(&proxy);
        let never = client.get("/never");
        let part = client.get("/part");
        assert_eq!(client.answer(never).status(), "504", "{driver}");
        assert_eq!(client.answer(part).reset, Some(ErrorCode::INTERNAL_ERROR), "{driver}");
        assert_eq!(client.answer_to("/").body, b"well", "{driver}");
        assert_eq!(proxy.faults(Fault::FirstByteTimeout), 1, "{driver}");
        assert_eq!(proxy.faults(Fault::BodyTimeout), 1, "{driver}");
        // It has answered a PING, so no other connection was needed, or one at most.
        assert!(backend.accepted() <= 2, "{driver}");
    });
}

#[test]
fn a_connection_that_is_dead_gets_no_other_request() {
    let soon = |config: &mut ProxyConfig| {
        h2c(config);
        config.limits.first_byte_timeout = Duration::from_secs(1);
        config.limits.connect_timeout = Duration::from_secs(1);
    };
    at_once(|driver| {
        let backend = Backend::start(|number, client| {
            let mut peer = Peer2::on(client.socket, Settings::DEFAULT);
            if number > 0 {
                while let Some((stream, _)) = peer.next_whole() {
                    peer.answer(stream, OK2, b"well");
                }
                return;
            }
            // It says its first words, and neither reads nor writes from then on.
            peer.until(|peer| !peer.asked.is_empty());
            let mut byte = [0];
            while matches!(std::io::Read::read(&mut peer.socket, &mut byte), Ok(1..)) {}
        });
        let Some(proxy) = Proxy::start(driver, &[backend.address], soon) else { return };
        let mut client = Client2::connect(&proxy);
        let stream = client.ask(Method::Post, "/", &[], true);
        assert_eq!(client.answer(stream).status(), "504", "{driver}");
        assert_eq!(client.answer_to("/").body, b"well", "{driver}");
        proxy.await_that("it is closed", |proxy| proxy.open_connections() == 2);
    });
}

#[test]
fn a_connection_that_is_dead_is_found_out_before_the_time_of_an_answer_is_over() {
    let soon = |config: &mut ProxyConfig| {
        h2c(config);
        config.limits.first_byte_timeout = Duration::from_secs(8);
        config.limits.connect_timeout = Duration::from_secs(1);
    };
    at_once(|driver| {
        let backend = Backend::start(|number, client| {
            let mut peer = Peer2::on(client.socket, Settings::DEFAULT);
            while let Some((stream, _)) = peer.next_whole() {
                peer.answer(stream, OK2, b"well");
                if number % 2 == 0 {
                    // It reads, and says nothing from then on.
                    while matches!(std::io::Read::read(&mut peer.socket, &mut [0; 1024]), Ok(1..)) {
                    }
                    return;
                }
            }
        });
        let Some(proxy) = Proxy::start(driver, &[backend.address], soon) else { return };
        let mut client = Client2::connect(&proxy);
        for _ in 0..2 {
            assert_eq!(client.answer_to("/").body, b"well", "{driver}");
        }
        assert_eq!(backend.accepted(), 2, "{driver}");
        assert_eq!(proxy.faults_total(), 0, "{driver}");
    });
}

/// A backend that is slow, and lives, is asked for more on the same connection.
#[test]
fn a_connection_that_was_silent_and_lives_gets_other_requests() {
    let soon = |config: &mut ProxyConfig| {
        h2c(config);
        config.limits.first_byte_timeout = Duration::from_secs(4);
    };
    at_once(|driver| {
        let backend = Backend::of_http2(|_, mut peer| {
            let mut slow = Vec::new();
            while let Some((stream, asked)) = peer.next_whole() {
                match asked.path() {
                    "/slow" => slow.push(stream),
                    _ => {
                        peer.answer(stream, OK2, b"well");
                        for stream in slow.drain(..) {
                            peer.answer(stream, OK2, b"late");
                        }
                    }
                }
            }
        });
        let Some(proxy) = Proxy::start(driver, &[backend.address], soon) else { return };
        let mut client = Client2::connect(&proxy);
        let slow = client.get("/slow");
        proxy.await_that("a PING", |proxy| proxy.count(ProxyCounter::Http2Pings) == 1);
        // Until that is answered others may go elsewhere.
        while !client.answers[&slow].is_over() {
            assert_eq!(client.answer_to("/").body, b"well", "{driver}");
        }
        assert_eq!(client.answer(slow).body, b"late", "{driver}");
        assert!(backend.accepted() <= 2, "{driver}");
    });
}

#[test]
fn a_backend_that_says_nothing_at_the_start_costs_a_connect_timeout_and_another_one_is_asked() {
    let silent = Backend::silent();
    let well = Backend::answering2(|_| (OK2.to_owned(), b"well".to_vec()));
    let soon = |_, config: &mut ProxyConfig| {
        h2c(config);
        config.limits.connect_timeout = Duration::from_secs(1);
    };
    on_all_drivers_at_once(&[silent.address, well.address], soon, |driver, proxy| {
        let mut client = proxy.client();
        for _ in 0..2 {
            assert_eq!(post(&mut client, "once"), "200", "{driver}");
        }
        assert_eq!(proxy.count(ProxyCounter::Retries), 1, "{driver}");
    });
}

#[test]
fn a_backend_of_http1_is_found_out_before_anything_is_sent() {
    let old =
        Backend::answering(|_, _| Some("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"));
    through(&old, |driver, proxy| {
        let mut client = proxy.client();
        assert_eq!(post(&mut client, "once"), "502", "{driver}");
        assert_eq!(proxy.faults(Fault::NoHttp2), 1, "{driver}");
    });
    let well = Backend::answering2(|_| (OK2.to_owned(), b"well".to_vec()));
    on_every_driver(&[old.address, well.address], h2c, |driver, proxy| {
        let mut client = proxy.client();
        // Nothing of it was sent.
        for _ in 0..2 {
            assert_eq!(post(&mut client, "once"), "200", "{driver}");
        }
    });
}

#[test]
fn the_end_of_a_connection_fails_what_cannot_be_sent_again() {
    let other = Backend::answering2(|asked| (OK2.to_owned(), asked.path().as_bytes().to_vec()));
    let backend = Backend::of_http2(|_, mut peer| {
        peer.until(|peer| peer.asked.values().filter(|asked| asked.is_whole).count() == 2);
    });
    let first = |config: &mut ProxyConfig| {
        h2c(config);
        config.groups[0].servers[0].weight = 256;
    };
    on_every_driver(&[backend.address, other.address], first, |driver, proxy| {
        let mut client = Client2::connect(proxy);
        let get = client.get("/get");
        let post = client.ask(Method::Post, "/post", &[], true);
        assert_eq!(client.answer(get).body, b"/get", "{driver}");
        assert_eq!(client.answer(post).status(), "502", "{driver}");
        let failed = proxy
            .sum(|each| each.proxy.as_ref().map_or(0, |proxy| proxy.backends()[0].failed.value()));
        assert_eq!(failed, 1, "{driver}: one connection is one failure");
    });
}

#[test]
fn a_limit_of_connections_is_one_of_requests() {
    let most = Arc::<AtomicU64>::default();
    let now = Arc::<AtomicU64>::default();
    let wait = Arc::<AtomicBool>::default();
    let seen = Arc::clone(&most);
    let open = Arc::clone(&now);
    let others_wait = Arc::clone(&wait);
    let backend = Backend::of_http2(move |_, mut peer| {
        let mut counted = 0;
        loop {
            let there = peer.asked.len() as u64;
            seen.fetch_max(there, SeqCst);
            if there > counted {
                open.fetch_add(there - counted, SeqCst);
                counted = there;
            }
            let go = peer.asked.iter().find(|(_, asked)| asked.is_whole).map(|(stream, _)| *stream);
            match go {
                Some(stream) if there == 2 || open.load(SeqCst) >= 6 => {
                    pollux_testing::wait_until("the others wait", || others_wait.load(SeqCst));
                    let asked = peer.asked.remove(&stream).expect("there");
                    counted -= 1;
                    peer.answer(stream, OK2, asked.path().as_bytes());
                }
                _ if !peer.more() => return,
                _ => {}
            }
        }
    });
    let two = |config: &mut ProxyConfig| {
        h2c(config);
        config.groups[0].servers[0].connections_max = Some(2);
    };
    on_every_driver(&[backend.address], two, |driver, proxy| {
        now.store(0, SeqCst);
        wait.store(false, SeqCst);
        let mut client = Client2::connect(proxy);
        let streams: Vec<u32> = (0..6).map(|at| client.get(&format!("/{at}"))).collect();
        proxy.await_that("four wait", |proxy| proxy.count(ProxyCounter::Queued) == 4);
        wait.store(true, SeqCst);
        for (at, stream) in streams.into_iter().enumerate() {
            assert_eq!(client.answer(stream).body, format!("/{at}").as_bytes(), "{driver}");
        }
        assert_eq!(most.load(SeqCst), 2, "{driver}");
        assert_eq!(proxy.count(ProxyCounter::Queued), 4, "{driver}");
        proxy.await_that("no place is taken", |proxy| proxy.pool().open == Some(0));
    });
}

#[test]
fn a_connection_without_requests_ends_with_a_goaway() {
    let ends = Arc::<Mutex<Vec<ErrorCode>>>::default();
    let seen = Arc::clone(&ends);
    let backend = Backend::of_http2(move |_, mut peer| {
        while let Some((stream, _)) = peer.next_whole() {
            peer.answer(stream, OK2, b"well");
        }
        seen.lock().expect("whole").extend(&peer.gone);
    });
    let soon = |config: &mut ProxyConfig| {
        h2c(config);
        config.limits.upstream_idle_timeout = Duration::from_millis(100);
    };
    on_every_driver(&[backend.address], soon, |driver, proxy| {
        let mut client = Client2::connect(proxy);
        for _ in 0..2 {
            assert_eq!(client.answer_to("/").body, b"well", "{driver}");
            assert!(proxy.pool().idle <= 1, "{driver}");
            proxy.await_that("it is closed", |proxy| proxy.open_connections() == 1);
            pollux_testing::wait_until("its backend knows", || {
                ends.lock().expect("whole").len() == 1
            });
            assert_eq!(std::mem::take(&mut *ends.lock().expect("whole")), [ErrorCode::NO_ERROR]);
            assert_eq!(proxy.pool().idle, 0, "{driver}");
        }
        assert_eq!(proxy.count(ProxyCounter::IdleDropped), 2, "{driver}");
    });
}

#[test]
fn what_is_under_way_at_a_shutdown_ends_well() {
    let backend = Backend::of_http2(|_, mut peer| {
        let Some(stream) = peer.next_head() else { return };
        peer.until(|peer| peer.asked[&stream].is_whole);
        peer.answer(stream, OK2, b"well");
        while peer.more() {}
        assert_eq!(peer.gone, [ErrorCode::NO_ERROR]);
    });
    through(&backend, |driver, proxy| {
        let mut client = proxy.client();
        client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbo");
        proxy.await_that("it is under way", |proxy| proxy.in_use() == 1);
        proxy.server().drain();
        client.send("dy");
        assert!(client.rest().contains("well"), "{driver}");
    });
}

/// Backends that speak HTTP/2 in TLS with this identity.
fn h2(identity: &Identity) -> impl Fn(&mut ProxyConfig) {
    move |config| {
        let group = &mut config.groups[0];
        let trust = Trust::File(identity.ca());
        group.tls = Some(ServerTls { name: Some("localhost".to_owned()), trust });
        group.protocol = Protocol::H2;
    }
}

#[test]
fn backends_are_spoken_to_in_tls_where_they_choose_it() {
    let identity = Arc::new(Identity::make());
    let own = Arc::clone(&identity);
    let backend = Backend::start(move |_, client| {
        let stream = own.accept_by(client.socket, &[b"h2", b"http/1.1"]);
        let mut peer = Peer2::on(stream, Settings::DEFAULT);
        while let Some((stream, asked)) = peer.next_whole() {
            peer.answer(stream, OK2, &asked.body);
        }
    });
    on_every_driver(&[backend.address], h2(&identity), |driver, proxy| {
        let before = backend.accepted();
        let mut client = Client2::connect(proxy);
        let sent = pattern(300_000);
        let streams: Vec<u32> = (0..3)
            .map(|_| {
                let stream = client.ask(Method::Post, "/", &[], false);
                client.send(stream, &sent, true);
                stream
            })
            .collect();
        for stream in streams {
            assert!(client.answer(stream).body == sent, "{driver}");
        }
        assert_eq!(post(&mut proxy.client(), "once"), "200", "{driver}");
        assert_eq!(backend.accepted() - before, 1, "{driver}");
    });
}

#[test]
fn a_backend_that_does_not_choose_http2_gets_nothing_and_is_down_with_a_reason() {
    let identity = Arc::new(Identity::make());
    let folder = tempfile::tempdir().expect("a folder");
    for protocols in [&[&b"http/1.1"[..]][..], &[]] {
        let own = Arc::clone(&identity);
        let protocols = protocols.to_vec();
        let backend = Backend::start(move |_, client| {
            let mut stream = own.accept_by(client.socket, &protocols);
            let mut all = Vec::new();
            let _ = std::io::Read::read_to_end(&mut stream, &mut all);
            assert_eq!(all, b"", "nothing of a request");
        });
        let log = folder.path().join("errors");
        let logged = |config: &mut ProxyConfig| {
            h2(&identity)(config);
            config.groups[0].health.fall = 2;
            config.monitoring.log_level = pollux_server::config::LogLevel::Warn;
            config.monitoring.error_log = LogTarget::File(log.clone());
        };
        on_every_driver(&[backend.address], logged, |driver, proxy| {
            let mut client = proxy.client();
            for _ in 0..2 {
                assert_eq!(post(&mut client, "once"), "502", "{driver}");
            }
            assert_eq!(proxy.faults(Fault::NoHttp2), 2, "{driver}");
            assert!(proxy.server().overview().backends[0].is_down(), "{driver}");
        });
        let lines = std::fs::read_to_string(&log).expect("lines");
        assert!(lines.contains("HTTP/2: it did not choose h2 by ALPN; expected"), "{lines}");
        assert!(lines.contains("is down: it gets no more requests"), "{lines}");
    }
}

/// Checks every few milliseconds, each of which decides.
fn checked(config: &mut ProxyConfig, check: Check) {
    h2c(config);
    let health = &mut config.groups[0].health;
    (health.check, health.fall, health.rise) = (check, 1, 1);
    health.interval = Duration::from_millis(10);
    health.timeout = Duration::from_secs(20);
}

fn is_down(proxy: &Proxy) -> bool {
    proxy.server().overview().backends[0].is_down()
}

#[test]
fn the_health_service_of_grpc_says_whether_a_backend_is_up() {
    let status = Arc::new(AtomicU64::new(1));
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let says = Arc::clone(&status);
    let seen = Arc::clone(&asked);
    let backend = Backend::of_http2(move |_, mut peer| {
        let Some((stream, asked)) = peer.next_whole() else { return };
        let message = &asked.body;
        *seen.lock().expect("whole") =
            vec![asked.head.replace("\r\n", "~"), format!("{message:?}")];
        match says.load(SeqCst) {
            // Of a service that it does not know.
            404 => {
                peer.answer(
                    stream,
                    &format!("{OK2}Content-Type: application/grpc\r\nGrpc-Status: 5\r\n"),
                    b"",
                );
            }
            // It answers by a page.
            503 => peer.answer(stream, "HTTP/1.1 503 x\r\n", b"no"),
            serving => {
                let message = [0, 0, 0, 0, 2, 8, u8::try_from(serving).expect("a status")];
                let head = b"HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\n\r\n";
                peer.says(|peer, out| peer.send_head(out, stream, head, false));
                peer.send(stream, &message, false);
                peer.send_trailers(stream, &[("grpc-status", "0")]);
            }
        }
        while peer.more() {}
    });
    for service in ["", "a.B"] {
        let grpc = |config: &mut ProxyConfig| checked(config, Check::Grpc(service.to_owned()));
        on_every_driver(&[backend.address], grpc, |driver, proxy| {
            for said in [1, 2, 1, 404, 1, 503, 1] {
                status.store(said, SeqCst);
                proxy.await_that(&format!("{driver}: {said}"), |proxy| {
                    is_down(proxy) == (said != 1)
                });
            }
            let asked = asked.lock().expect("whole");
            let start = "POST /grpc.health.v1.Health/Check HTTP/2.0~host: 127.0.0.1:";
            assert!(asked[0].starts_with(start), "{driver}: {asked:?}");
            assert!(
                asked[0].contains("~content-type: application/grpc~te: trailers~"),
                "{driver}: {asked:?}"
            );
            let message = match service {
                "" => "[0, 0, 0, 0, 0]",
                _ => "[0, 0, 0, 0, 5, 10, 3, 97, 46, 66]",
            };
            assert_eq!(asked[1], message, "{driver}");
        });
    }
}

#[test]
fn a_check_of_a_path_is_asked_by_http2() {
    let status = Arc::new(AtomicU64::new(204));
    let gone = Arc::<Mutex<Vec<ErrorCode>>>::default();
    let says = Arc::clone(&status);
    let seen = Arc::clone(&gone);
    let backend = Backend::of_http2(move |_, mut peer| {
        let Some((stream, asked)) = peer.next_whole() else { return };
        assert!(asked.head.starts_with("GET /up HTTP/2.0\r\nhost: 127.0.0.1:"), "{}", asked.head);
        match says.load(SeqCst) {
            0 => peer.reset(stream, ErrorCode::INTERNAL_ERROR),
            // A stream that nobody has begun.
            1 => peer.raw(&frame(DATA, 0, 99, b"x")),
            status => peer.answer(stream, &format!("HTTP/1.1 {status} x\r\n"), b""),
        }
        while peer.more() {}
        seen.lock().expect("whole").append(&mut peer.gone);
    });
    let path = |config: &mut ProxyConfig| checked(config, Check::Http("/up".to_owned()));
    on_every_driver(&[backend.address], path, |driver, proxy| {
        for said in [204, 500, 302, 404] {
            status.store(said, SeqCst);
            proxy.await_that(&format!("{driver}: {said}"), |proxy| is_down(proxy) == (said >= 400));
        }
    });
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("errors");
    let logged = |config: &mut ProxyConfig| {
        path(config);
        config.monitoring.log_level = pollux_server::config::LogLevel::Warn;
        config.monitoring.error_log = LogTarget::File(log.clone());
    };
    // What is wrong stands in the log, and the backend learns that nothing else comes.
    for (said, why, code) in [
        (500, "status 500; expected one from 200 to 399", ErrorCode::NO_ERROR),
        (0, "its stream was reset: internal_error", ErrorCode::NO_ERROR),
        (1, "protocol_error: a frame for a stream that was not begun", ErrorCode::PROTOCOL_ERROR),
    ] {
        status.store(said, SeqCst);
        on_every_driver(&[backend.address], logged, |driver, proxy| {
            gone.lock().expect("whole").clear();
            proxy.await_that(&format!("{driver}: {said}"), is_down);
            proxy.await_that("its GOAWAY", |_| gone.lock().expect("whole").contains(&code));
        });
        let lines = std::fs::read_to_string(&log).expect("lines");
        assert!(lines.contains(&format!(": HTTP/2: a check: {why}")), "{lines}");
    }
    // A backend of HTTP/1.1 does not pass.
    let old = Backend::polite();
    on_every_driver(&[old.address], path, |driver, proxy| {
        proxy.await_that(&format!("{driver}: it is down"), is_down);
    });
}

#[test]
fn connections_that_are_kept_to_one_server_make_room_for_another_one() {
    let backends = [(); 3].map(|()| Backend::answering2(|_| (OK2.to_owned(), b"well".to_vec())));
    let addresses = backends.each_ref().map(|each| each.address);
    let few = |config: &mut ProxyConfig| {
        h2c(config);
        // The thread may have two, the servers take turns, and each may have two requests.
        config.limits.clients.connections_max = Some(2);
        for server in &mut config.groups[0].servers {
            server.connections_max = Some(2);
        }
    };
    on_every_driver(&addresses, few, |driver, proxy| {
        let mut client = Client2::connect(proxy);
        for turn in 0..9 {
            let streams = [(); 4].map(|()| client.get("/"));
            for stream in streams {
                let answer = client.answer(stream);
                assert_eq!(answer.body, b"well", "{driver}, turn {turn}: {answer:?}");
            }
        }
        assert_eq!(proxy.faults(Fault::UpstreamsFull), 0, "{driver}");
        assert!(proxy.count(ProxyCounter::IdleDropped) > 0, "{driver}");
        proxy.await_that("an end of every request", |proxy| proxy.in_use() == 0);
        for server in 0..3 {
            let view = proxy.server().overview().upstreams.as_ref().expect("a proxy").view(server);
            assert_eq!((view.open, view.waiting), (Some(0), 0), "{driver}");
        }
    });
}

#[test]
fn a_backend_that_goes_away_at_the_start_is_asked_three_times_and_then_another_one() {
    let away = Backend::start(|_, client| {
        let mut peer = Peer2::silent(client.socket, Settings::DEFAULT);
        let goaway = frame(GOAWAY, 0, 0, &[&0x7fff_ffff_u32.to_be_bytes()[..], &[0; 4]].concat());
        peer.raw(&[frame(SETTINGS, 0, 0, &[]), goaway].concat());
        while std::io::Read::read(&mut peer.socket, &mut [0; 1024]).is_ok_and(|len| len > 0) {}
    });
    through(&away, |driver, proxy| {
        let before = away.accepted();
        assert_eq!(post(&mut proxy.client(), "once"), "503", "{driver}");
        assert_eq!(proxy.faults(Fault::Refused), 1, "{driver}");
        assert_eq!(away.accepted() - before, 3, "{driver}");
    });
    let well = Backend::answering2(|_| (OK2.to_owned(), b"well".to_vec()));
    on_every_driver(&[away.address, well.address], h2c, |driver, proxy| {
        let mut client = proxy.client();
        for _ in 0..4 {
            assert_eq!(post(&mut client, "once"), "200", "{driver}");
        }
    });
}

#[test]
fn a_stream_that_asks_for_a_websocket_never_gets_a_2xx_of_a_backend_of_http2() {
    let backend = Backend::answering2(|_| (OK2.to_owned(), b"well".to_vec()));
    through(&backend, |driver, proxy| {
        let mut client = Client2::connect(proxy);
        // The settings of the proxy say that it may be asked so.
        assert_eq!(client.answer_to("/").body, b"well", "{driver}");
        for _ in 0..3 {
            let ask = Ask {
                method: Method::Connect,
                scheme: "http",
                authority: "x",
                path: "/",
                fields: &[],
            };
            let stream =
                client.says(|client, out| client.ask_for_protocol(out, &ask, "websocket", ()));
            let stream = stream.expect("it is announced");
            client.answers.insert(stream, Answer::default());
            client.says(|client, out| client.send_data(out, stream, &[], true));
            assert_eq!(client.answer(stream).status(), "502", "{driver}");
        }
    });
}

#[test]
fn a_backend_that_breaks_the_rules_costs_what_can_be_asked_elsewhere_nothing() {
    let well = Backend::answering2(|asked| (OK2.to_owned(), asked.path().as_bytes().to_vec()));
    let broken = Backend::of_http2(|_, mut peer| {
        peer.until(|peer| peer.asked.values().filter(|asked| asked.is_whole).count() == 3);
        peer.raw(&frame(DATA, 0, 99, b"of a stream that was not begun"));
        while peer.more() {}
    });
    let first = |config: &mut ProxyConfig| {
        h2c(config);
        config.groups[0].servers[0].weight = 256;
    };
    on_every_driver(&[broken.address, well.address], first, |driver, proxy| {
        let mut client = Client2::connect(proxy);
        let one = client.get("/1");
        let two = client.get("/2");
        let post = client.ask(Method::Post, "/post", &[], true);
        assert_eq!(client.answer(one).body, b"/1", "{driver}");
        assert_eq!(client.answer(two).body, b"/2", "{driver}");
        assert_eq!(client.answer(post).status(), "502", "{driver}");
        let failed = proxy
            .sum(|each| each.proxy.as_ref().map_or(0, |proxy| proxy.backends()[0].failed.value()));
        assert_eq!(failed, 1, "{driver}: one connection is one failure");
    });
}

#[test]
fn a_connection_on_which_many_streams_were_reset_gets_no_other_request() {
    let backend = Backend::of_http2(|_, mut peer| {
        while let Some((stream, asked)) = peer.next_whole() {
            match asked.path() {
                "/" => peer.answer(stream, OK2, b"well"),
                _ => peer.says(|peer, out| {
                    peer.send_head(out, stream, b"HTTP/1.1 200 OK\r\n\r\n", false);
                }),
            }
        }
    });
    through(&backend, |driver, proxy| {
        let before = backend.accepted();
        let mut client = Client2::connect(proxy);
        for _ in 0..150 {
            let stream = client.get("/begun");
            client.until(|client| !client.answers[&stream].heads.is_empty());
            client.reset(stream, ErrorCode::CANCEL);
        }
        assert_eq!(client.answer_to("/").body, b"well", "{driver}");
        assert_eq!(backend.accepted() - before, 2, "{driver}");
        proxy.await_that("no request is under way", |proxy| proxy.in_use() == 0);
    });
}

/// Its place is free when the backend can know that it has one request less.
#[test]
fn a_place_of_a_stream_that_its_client_has_left_is_free_when_its_reset_has_left() {
    let continues = Arc::new(AtomicBool::new(false));
    let waits = Arc::clone(&continues);
    let wide = Settings { stream_window: 1 << 30, connection_window: 1 << 30, ..Settings::DEFAULT };
    let backend = Backend::start(move |_, client| {
        let mut peer = Peer2::on(client.socket, wide);
        // It opens its windows, and reads no more than the first head for a while.
        peer.until(|peer| !peer.asked.is_empty());
        pollux_testing::wait_until("the word to continue", || waits.load(SeqCst));
        while !peer.asked.values().any(|asked| asked.path() == "/other") && peer.more() {}
        assert_eq!(peer.resets.len(), 1, "the reset of the first one comes before the second one");
        while let Some((stream, asked)) = peer.next_whole() {
            if asked.path() == "/other" {
                peer.answer(stream, OK2, b"well");
            }
        }
    });
    let one = |config: &mut ProxyConfig| {
        h2c(config);
        config.groups[0].servers[0].connections_max = Some(1);
        config.limits.queue_timeout = Duration::from_secs(60);
    };
    on_every_driver(&[backend.address], one, |driver, proxy| {
        continues.store(false, SeqCst);
        let mut client = Client2::connect(proxy);
        let slow = client.ask(Method::Post, "/", &[], false);
        let body = vec![0; 1 << 20];
        let mut stuck = 0;
        let before = proxy.count_of_engine(Counter::BytesOut);
        pollux_testing::wait_until("it takes no more", || {
            let sent = client.send_some(slow, &body, false);
            let written = proxy.count_of_engine(Counter::BytesOut) - before;
            stuck = if sent > 0 || written < BEYOND_FIRST_WINDOWS { 0 } else { stuck + 1 };
            // What comes before its answer is there then.
            client.says(|client, out| client.ping(out, [7; 8]));
            assert!(client.more(), "{driver}");
            stuck == 50
        });
        client.reset(slow, ErrorCode::CANCEL);
        proxy.await_that("it is gone", |proxy| proxy.faults(Fault::ClientGone) == 1);
        let other = client.get("/other");
        proxy.await_that("it waits", |proxy| proxy.count(ProxyCounter::Queued) == 1);
        assert_eq!(proxy.pool().open, Some(1), "{driver}");
        continues.store(true, SeqCst);
        assert_eq!(client.answer(other).body, b"well", "{driver}");
        proxy.await_that("no request is under way", |proxy| proxy.in_use() == 0);
        assert_eq!(proxy.pool().open, Some(0), "{driver}");
    });
}

/// What a proxy can have sent to a backend only when that has opened its windows: it is its socket that takes no more then.
const BEYOND_FIRST_WINDOWS: u64 = 2 * 65_535;

#[test]
fn a_request_behind_output_that_stands_goes_to_another_connection() {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let wide = Settings { stream_window: 1 << 30, connection_window: 1 << 30, ..Settings::DEFAULT };
    let backend = Backend::start(move |_, client| {
        let mut peer = Peer2::on(client.socket, wide);
        peer.until(|peer| !peer.asked.is_empty());
        if peer.asked.values().any(|asked| asked.path() == "/slow") {
            // It has opened its windows, and reads no more than the first head.
            pollux_testing::wait_until("the end", || over.load(SeqCst));
            return;
        }
        while let Some((stream, _)) = peer.next_whole() {
            peer.answer(stream, OK2, b"well");
        }
    });
    let soon = |config: &mut ProxyConfig| {
        h2c(config);
        config.limits.connect_timeout = Duration::from_millis(300);
    };
    on_every_driver(&[backend.address], soon, |driver, proxy| {
        is_over.store(false, SeqCst);
        let mut slow = proxy.client();
        slow.send("POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n");
        let socket = slow.socket.try_clone().expect("a second one");
        let sender = std::thread::spawn(move || {
            let _ = std::io::Write::write_all(&mut &socket, &vec![0; 100_000_000]);
        });
        let before = proxy.count_of_engine(Counter::BytesOut);
        let mut seen = (0, 0);
        pollux_testing::wait_until("it takes no more", || {
            let now = proxy.count_of_engine(Counter::BytesOut) - before;
            seen = if now == seen.0 { (now, seen.1 + 1) } else { (now, 0) };
            now > BEYOND_FIRST_WINDOWS && seen.1 == 50
        });
        let mut client = Client2::connect(proxy);
        assert_eq!(client.answer_to("/").body, b"well", "{driver}");
        // More than once where the next connection takes its time to open, too.
        assert!(proxy.count(ProxyCounter::Http2Moved) >= 1, "{driver}");
        is_over.store(true, SeqCst);
        slow.reset();
        sender.join().expect("well");
        proxy.await_that("no request is under way", |proxy| proxy.in_use() == 0);
    });
}
