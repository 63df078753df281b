//! What requests and answers carry by HTTP/2: trailers, interim answers, cookies, bodies, lists of requests; and what is
//! counted of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use pollux_http::Field;
use pollux_http::h2::Settings;
use pollux_load::{Errors, RequestList, RequestOrder, Target};

use crate::streams::{H2, Seen, all_right, first_driver, streams};
use crate::{Server, is_sound, on_every_driver, try_run};

/// As gRPC has it: a message in the body of a POST, one in that of the answer, and its status in the trailers; or, where
/// there is no message, in the head, which is all then.
#[test]
fn calls_of_grpc_are_counted_with_their_trailers() {
    const MESSAGE: &[u8] = b"\0\0\0\0\x05hello";
    let server = Server::start(|peer| {
        let mut h2 = H2::new(peer, Settings::DEFAULT);
        while let Some((stream, head)) = h2.request() {
            assert!(head.contains("\r\nte: trailers\r\n"), "{head}");
            assert!(head.contains("\r\ncontent-type: application/grpc\r\n"), "{head}");
            let has_message = !head.starts_with("POST /trailers-only ");
            h2.say(|connection, out| {
                let status = if has_message { "" } else { "grpc-status: 5\r\n" };
                let head =
                    format!("HTTP/1.1 200 x\r\ncontent-type: application/grpc\r\n{status}\r\n");
                connection.send_head(out, stream, head.as_bytes(), !has_message);
                if has_message {
                    connection.send_data(out, stream, MESSAGE, false);
                    let status = Field { name: "grpc-status", value: b"0" };
                    connection.send_trailers(out, stream, &[status]);
                }
                connection.take_done(stream).expect("both have ended");
            });
        }
    });
    for (path, each) in [("/a.B/C", MESSAGE.len()), ("/trailers-only", 0)] {
        on_every_driver(
            |driver| {
                let mut plan = streams(driver, &server.url(path), 2, 4, 200);
                let target = &mut plan.targets[0];
                (target.method, target.body) = ("POST".to_owned(), MESSAGE.to_vec());
                let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
                target.fields =
                    vec![field("TE", "trailers"), field("Content-Type", "application/grpc")];
                plan.expect.body_bytes = Some(each as u64);
                plan
            },
            |outcome| {
                all_right(outcome, 200);
                assert_eq!(outcome.totals.body_bytes_in, 200 * each as u64);
                assert_eq!(outcome.statuses, BTreeMap::from([(200, 200)]));
                let http2 = outcome.http2.as_ref().expect("it was spoken");
                let heads = if each > 0 { 400 } else { 200 };
                assert_eq!(http2.frames_in["headers"], heads, "{http2:?}");
                assert_eq!(http2.frames_in.get("data").copied().unwrap_or(0), heads - 200);
                assert_eq!((http2.frames_out["headers"], http2.frames_out["data"]), (200, 200));
            },
        );
    }
}

/// Hundreds of them for each request: no connection ends for it, and the last answer counts.
#[test]
fn many_interim_answers_cost_nothing_but_their_bytes() {
    let server = Server::start(|peer| {
        let mut h2 = H2::new(peer, Settings::DEFAULT);
        while let Some((stream, _)) = h2.request() {
            for _ in 0..400 {
                h2.say(|connection, out| {
                    let hint = b"HTTP/1.1 103 x\r\nlink: </a>\r\n\r\n";
                    connection.send_head(out, stream, hint, false);
                });
            }
            h2.answer(stream);
        }
    });
    on_every_driver(
        |driver| streams(driver, &server.url("/"), 1, 2, 40),
        |outcome| {
            all_right(outcome, 40);
            assert_eq!(outcome.totals.connects, 1);
            let http2 = outcome.http2.as_ref().expect("it was spoken");
            assert_eq!(http2.frames_in["headers"], 40 * 401);
        },
    );
}

/// What an answer sets that comes when its connection has been replaced is sent on the new one: the old one is answered
/// when the new one has asked once, and that is answered behind it.
#[test]
fn cookies_of_a_connection_that_leaves_are_sent_on_the_next_one() {
    let state = Arc::new((Mutex::new((false, false)), Condvar::new()));
    let seen = Arc::clone(&state);
    let server = Server::start(move |peer| {
        let is_first = peer.number == 0;
        let mut h2 = H2::new(peer, Settings::DEFAULT);
        let (both, changed) = &*seen;
        let set = |change: fn(&mut (bool, bool))| {
            change(&mut both.lock().expect("no panic"));
            changed.notify_all();
        };
        let wait = |is_before: fn(&mut (bool, bool)) -> bool| {
            let waited = changed.wait_while(both.lock().expect("no panic"), is_before);
            drop(waited.expect("no panic"));
        };
        let (stream, head) = h2.request().expect("a request");
        assert!(!head.contains("cookie:"), "{head}");
        if is_first {
            // One of two that are under way is taken, and the other one sent again.
            h2.request().expect("a second one");
            h2.goaway(stream, 0);
            wait(|(has_asked, _)| !*has_asked);
            h2.say(|connection, out| {
                let head = b"HTTP/1.1 204 x\r\nset-cookie: late=1\r\n\r\n";
                connection.send_head(out, stream, head, true);
                connection.take_done(stream).expect("done");
            });
            while h2.next().is_some() {}
            return set(|(_, has_ended)| *has_ended = true);
        }
        set(|(has_asked, _)| *has_asked = true);
        // The client has read the late answer when it ends the old connection.
        wait(|(_, has_ended)| !*has_ended);
        h2.answer(stream);
        let mut later = 0;
        while let Some((stream, head)) = h2.request() {
            // The second stream may have been asked before.
            later += u32::from(head.contains("\r\ncookie: late=1\r\n"));
            h2.answer(stream);
        }
        assert!(later >= 15, "{later}");
    });
    let mut plan = streams(first_driver(), &server.url("/"), 1, 2, 20);
    plan.keeps_cookies = true;
    let outcome = try_run(plan).expect("poll is everywhere");
    all_right(&outcome, 20);
    assert_eq!((outcome.totals.cookies_set, outcome.totals.connects), (1, 2));
}

/// Windows that never close send no update when the last of a body has left: nothing but that tells the client that it may
/// ask again.
#[test]
fn a_client_asks_again_when_the_rest_of_an_answered_request_has_left() {
    let settings =
        Settings { stream_window: 1 << 30, connection_window: 1 << 30, ..Settings::DEFAULT };
    let server = Server::start(move |peer| {
        let mut h2 = H2::new(peer, settings);
        while let Some(seen) = h2.next() {
            if let Seen::Request { stream, .. } = seen {
                h2.answer(stream);
            }
        }
    });
    for think_time in [Duration::ZERO, Duration::from_millis(2)] {
        on_every_driver(
            |driver| {
                let mut plan = streams(driver, &server.url("/"), 1, 1, 8);
                (plan.think_time, plan.request_timeout) = (think_time, Duration::from_secs(60));
                plan.targets[0].method = "POST".to_owned();
                plan.targets[0].body = vec![b'x'; 1 << 20];
                plan
            },
            |outcome| {
                all_right(outcome, 8);
                assert!(outcome.measured < Duration::from_secs(50), "{:?}", outcome.measured);
                assert!(outcome.measured >= think_time * 7, "{:?}", outcome.measured);
                assert_eq!(outcome.totals.connects, 1);
            },
        );
    }
}

/// More requests than a connection knows one by one: what they share takes a byte for each field, and each its path.
#[test]
fn a_long_list_is_asked_with_heads_that_are_packed_once() {
    let asked = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&asked);
    let server = Server::start(move |peer| {
        let mut h2 = H2::new(peer, Settings::DEFAULT);
        while let Some((stream, head)) = h2.request() {
            let number: u32 = head
                .strip_prefix("GET /items/")
                .or_else(|| head.strip_prefix("DELETE /items/"))
                .and_then(|rest| rest.split([' ', '?']).next()?.parse().ok())
                .expect("a number");
            assert_eq!(head.starts_with("DELETE"), number.is_multiple_of(5), "{head}");
            assert!(head.contains("\r\nx-own: a value that is the same\r\n"), "{head}");
            counted.fetch_add(number, SeqCst);
            h2.answer(stream);
        }
    });
    on_every_driver(
        |driver| {
            asked.store(0, SeqCst);
            let mut plan = streams(driver, &server.url("/"), 1, 4, 1_000);
            let mut list = RequestList::new(false);
            for number in 0..100 {
                let url = server.url(&format!("/items/{number}?long=query"));
                let mut target = Target::parse(&url, None).expect("a URL");
                target.fields.push(("X-Own".to_owned(), "a value that is the same".to_owned()));
                target.method = if number % 5 == 0 { "DELETE" } else { "GET" }.to_owned();
                list.push(&target).expect("it fits");
            }
            plan.list = Some((Arc::new(list), RequestOrder::InTurn));
            plan
        },
        |outcome| {
            all_right(outcome, 1_000);
            assert_eq!(asked.load(SeqCst), 10 * (0..100).sum::<u32>());
            let http2 = outcome.http2.as_ref().expect("it was spoken");
            let each = http2.header_bytes_out as f64 / 1_000.0;
            // The path takes 18 to 19 of these, packed.
            assert!((20.0..26.0).contains(&each), "{each}");
            assert!(http2.header_text_bytes_out > 80 * 1_000, "{http2:?}");
        },
    );
}

#[test]
fn frames_are_counted_by_kind_and_heads_beside_their_text() {
    let server = Server::start(|peer| H2::new(peer, Settings::DEFAULT).answer_all());
    on_every_driver(
        |driver| streams(driver, &server.url("/"), 2, 8, 500),
        |outcome| {
            is_sound(outcome);
            assert_eq!(outcome.errors, Errors::default());
            let http2 = outcome.http2.as_ref().expect("it was spoken");
            let came = &http2.frames_in;
            let sent = &http2.frames_out;
            assert_eq!((came["headers"], came["data"], sent["headers"]), (500, 500, 500));
            // Both ends of each connection say theirs, and that they know the other's.
            assert_eq!((came["settings"], sent["settings"]), (4, 4), "{http2:?}");
            assert!(!sent.contains_key("data") && !came.contains_key("other"), "{http2:?}");
            let text = "HTTP/1.1 200 OK\r\nserver: test\r\ncontent-length: 5\r\n\r\n";
            assert_eq!(http2.header_text_bytes_in, 500 * text.len() as u64);
            let under_way = http2.streams_under_way.expect("answers");
            assert!(under_way > 0.0 && under_way < 8.5, "{under_way}");
        },
    );
}
