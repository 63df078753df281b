//! Hostile clients, and backends that fail: what reaches a backend, and what is tried again. What a
//! client gets of a backend in trouble is the table of `troubles`.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use pollux_engine::Driver;
use pollux_server::config::ProxyConfig;
use pollux_server::config::{LogFormat, LogTarget};
use pollux_server::{Fault, ProxyCounter};
use pollux_testing::DEADLINE;

use crate::{
    Backend, GET, OK, field, ok, on_all_drivers_at_once, on_every_driver, text, unreachable,
};

/// Requests that two parties could read in two ways, and what is refused for other reasons: none of
/// them reaches the backend.
const REFUSED: &[(&str, &str, u16)] = &[
    (
        "a coding in HTTP/1.0",
        "POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
        400,
    ),
    ("a folded line", "GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", 400),
    (
        "a space before the colon",
        "GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n",
        400,
    ),
    ("a bare LF", "GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n", 400),
    ("a bare CR in a value", "GET / HTTP/1.1\r\nHost: x\r\nA: b\rc\r\n\r\n", 400),
    ("a NUL in a value", "GET / HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n", 400),
    ("no host", "GET / HTTP/1.1\r\n\r\n", 400),
    ("two hosts", "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
    ("a host with a path", "GET / HTTP/1.1\r\nHost: x/y\r\n\r\n", 400),
    ("a user in the target", "GET http://u:p@x/ HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    ("an absolute target without a host", "GET http:///a HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    ("a port beyond all ports", "GET http://x:99999999/ HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    ("another scheme", "GET ftp://x/ HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    ("the whole server with GET", "GET * HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    ("a target with a space", "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    (
        "a tunnel",
        "CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n",
        405,
    ),
    ("TRACE with a body", "TRACE / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", 405),
    ("a version of HTTP that has streams", "GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505),
];

const POST: &str = "POST / HTTP/1.1\r\nHost: x\r\n";

/// The same, behind the request line and the host of a POST.
const POSTS_REFUSED: &[(&str, &str, u16)] = &[
    (
        "a length and chunks",
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    ("two lengths", "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400),
    ("two equal lengths", "Content-Length: 3, 3\r\n\r\nabc", 400),
    ("a length with a sign", "Content-Length: +3\r\n\r\nabc", 400),
    ("a length beyond all numbers", "Content-Length: 99999999999999999999\r\n\r\n", 413),
    ("chunks that are not last", "Transfer-Encoding: chunked, gzip\r\n\r\n", 400),
    ("a coding with a control byte", "Transfer-Encoding: \x0bchunked\r\n\r\n", 400),
    ("an unknown coding", "Transfer-Encoding: gzip, chunked\r\n\r\n", 501),
    ("another expectation", "Expect: tea\r\nContent-Length: 1\r\n\r\na", 417),
];

#[test]
fn what_could_be_read_in_two_ways_never_reaches_a_backend() {
    let backend = Backend::start(|_, mut client| {
        client.head();
        client.try_send("HTTP/1.1 200 Smuggled\r\nContent-Length: 0\r\n\r\n");
    });
    backend.on_every_driver(|driver, proxy| {
        let post = |(name, rest, status): &(_, _, _)| (*name, format!("{POST}{rest}"), *status);
        let requests =
            REFUSED.iter().map(|&(name, request, status)| (name, request.to_owned(), status));
        for (name, request, status) in requests.chain(POSTS_REFUSED.iter().map(post)) {
            let mut client = proxy.client();
            client.try_send(request);
            let given = client.rest();
            let line = format!("HTTP/1.1 {status} ");
            assert!(given.starts_with(&line), "{driver}, {name}: {given:?}");
            assert!(!given.contains("\nHTTP/1.1 "), "{driver}, {name}: {given:?}");
        }
        let fields = format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "A: b\r\n".repeat(1000));
        let value = format!("GET / HTTP/1.1\r\nHost: x\r\nA: {}\r\n\r\n", "a".repeat(50_000));
        for long in [fields, value] {
            let mut client = proxy.client();
            client.try_send(long);
            assert!(client.rest().starts_with("HTTP/1.1 431 "), "{driver}");
        }
    });
    assert_eq!(backend.accepted(), 0, "a refused request reached the backend");
}

const CHUNKED_POST: &str = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";

/// What a body may hold beside its bytes has a limit, whichever side sends it.
#[test]
fn a_megabyte_of_extensions_or_trailers_is_refused_in_both_directions() {
    let parts = [
        ("one extension", format!("1;a={}", "b".repeat(1 << 20)), 400),
        ("many extensions", "1;aaaaaaaa\r\na\r\n".repeat(1 << 16), 400),
        ("trailers", format!("0\r\n{}", "A: bbbbbbbbbbbb\r\n".repeat(1 << 16)), 431),
        ("a folded trailer", "0\r\nA: b\r\n c\r\n\r\n".to_owned(), 400),
    ];
    for (name, part, status) in parts {
        let silent = Backend::silent();
        let answer = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{part}");
        let talker = Backend::start(move |_, mut client| {
            client.head();
            client.try_send(&answer);
            client.rest();
        });
        silent.on_every_driver(|driver, proxy| {
            let mut client = proxy.client();
            client.try_send(CHUNKED_POST);
            client.try_send(&part);
            let given = client.rest();
            let line = format!("HTTP/1.1 {status} ");
            assert!(given.starts_with(&line), "{driver}, {name}: {given:?}");
            assert_eq!(given.matches("HTTP/1.1 ").count(), 1, "{driver}, {name}: {given:?}");
        });
        talker.on_every_driver(|driver, proxy| {
            let mut client = proxy.client();
            client.send(GET);
            client.end();
            let given = client.rest();
            let is_refused = given.starts_with("HTTP/1.1 502 ") || !given.ends_with("0\r\n\r\n");
            assert!(is_refused, "{driver}, {name}: {given:?}");
            proxy.await_that("the fault", |proxy| proxy.faults(Fault::BadAnswer) == 1);
        });
    }
}

/// Old servers pad the sizes of chunks with blanks; a size may have any number of zeros in front.
#[test]
fn an_answer_with_padded_chunk_sizes_passes() {
    for answer in [
        "5 \r\nhello\r\n0 \r\n\r\n",
        "5      \r\nhello\r\n0\t\r\n\r\n",
        "00000000000000000000005\r\nhello\r\n00000000000000000000\r\n\r\n",
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{answer}");
        let backend = Backend::answering(move |_, _| Some(answer.clone()));
        backend.on_every_driver(|driver, proxy| {
            let mut client = proxy.client();
            for _ in 0..2 {
                client.send(GET);
                assert!(client.head().starts_with("HTTP/1.1 200 "), "{driver}");
                assert_eq!(client.until("0\r\n\r\n"), "5\r\nhello\r\n0\r\n\r\n", "{driver}");
            }
        });
        let silent = Backend::silent();
        silent.on_every_driver(|driver, proxy| {
            let mut client = proxy.client();
            client.send([CHUNKED_POST, "5 \r\nhello\r\n"].concat());
            assert!(client.rest().starts_with("HTTP/1.1 400 "), "{driver}: never in requests");
        });
    }
}

/// Interim answers without end, few and long or many and short, and no answer behind them: those that the
/// client gets are whole, and the page for the fault stands behind them.
#[test]
fn a_flood_of_interim_answers_ends_in_a_page() {
    for (link_bytes, count) in [(15_000, 15), (4, 1_100)] {
        let link = "a".repeat(link_bytes);
        let hint = format!("HTTP/1.1 103 Early Hints\r\nLink: {link}\r\n\r\n");
        let flood = hint.repeat(count) + "SSH-2.0-x\r\n";
        let backend = Backend::start(move |_, mut client| {
            client.head();
            client.try_send(&flood);
            client.rest();
        });
        backend.on_every_driver(|driver, proxy| {
            // The loop that refused one serves the next.
            for _ in 0..2 {
                let mut client = proxy.client();
                client.send(GET);
                client.end();
                let given = client.rest();
                let behind = &given[given.matches(&hint).count() * hint.len()..];
                assert!(behind.starts_with("HTTP/1.1 502 "), "{driver}: {behind:.100}");
            }
        });
    }
}

/// A backend that is started anew closes what it has: a GET is asked elsewhere, and nothing that may have been done
/// is done twice (RFC 9110 9.2.2).
#[test]
fn a_get_is_answered_by_another_backend_when_one_closes_before_an_answer() {
    let posts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&posts);
    let closing = Backend::start(move |_, mut client| {
        if client.head().starts_with("POST ") {
            counted.fetch_add(1, SeqCst);
        }
    });
    let good = Backend::polite();
    let set = |config: &mut ProxyConfig| config.groups[0].health.fall = 1000;
    on_every_driver(&[closing.address, good.address], set, |driver, proxy| {
        for _ in 0..20 {
            let mut client = proxy.client();
            client.send(GET);
            let head = client.head();
            assert!(head.starts_with("HTTP/1.1 200 "), "{driver}: {head}");
        }
        assert!(proxy.count(ProxyCounter::Retries) >= 9, "{driver}");
        let before = (posts.load(SeqCst), proxy.count(ProxyCounter::Retries));
        let answers: Vec<String> = (0..4)
            .map(|_| {
                let mut client = proxy.client();
                client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
                client.head()
            })
            .collect();
        let failed = answers.iter().filter(|head| head.starts_with("HTTP/1.1 502 ")).count();
        assert_eq!(posts.load(SeqCst) - before.0, failed, "{driver}: one was asked twice");
        assert!(failed >= 1, "{driver}: {answers:?}");
        assert_eq!(proxy.count(ProxyCounter::Retries), before.1, "{driver}");
    });
}

/// A request that kills what it is sent to is sent to each backend once, and is one failure of each.
#[test]
fn a_request_that_ends_its_backend_is_not_sent_there_again() {
    let play = || {
        let kills = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&kills);
        let backend = Backend::answering(move |head, _| {
            let is_deadly = head.starts_with("GET /kill ");
            counted.fetch_add(usize::from(is_deadly), SeqCst);
            (!is_deadly).then_some(OK)
        });
        (backend, kills)
    };
    let ((one, kills_one), (two, kills_two)) = (play(), play());
    let set = |config: &mut ProxyConfig| {
        config.loops.threads = 1;
        config.groups[0].health.fall = 2;
    };
    let kill = "GET /kill HTTP/1.1\r\nHost: x\r\n\r\n";
    let ask = |proxy: &crate::Proxy, request: &str, status: &str| {
        let mut client = proxy.client();
        client.send(request);
        let head = client.head();
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
    };
    let counts = || (kills_one.swap(0, SeqCst), kills_two.swap(0, SeqCst));
    let falls = |proxy: &crate::Proxy| {
        pollux_server::stats::servers(proxy.server().overview()).matches(" down ").count()
    };
    on_every_driver(&[one.address, two.address], set, |driver, proxy| {
        ask(proxy, kill, "502");
        assert_eq!(counts(), (1, 1), "{driver}");
        assert_eq!(falls(proxy), 0, "{driver}");
        (0..4).for_each(|_| ask(proxy, GET, "200"));
    });
    on_every_driver(&[one.address], set, |driver, proxy| {
        ask(proxy, kill, "502");
        assert_eq!(counts().0, 1, "{driver}: a new connection");
        ask(proxy, GET, "200");
        // It may have been closed before the request came: that does not count as a failure, and it is sent once more.
        ask(proxy, kill, "502");
        assert_eq!((counts().0, falls(proxy)), (2, 0), "{driver}: a kept connection");
    });
    // The other one is down: that makes nothing of this one's better.
    on_every_driver(&[one.address, unreachable()], set, |driver, proxy| {
        (0..6).for_each(|_| ask(proxy, GET, "200"));
        assert_eq!(falls(proxy), 1, "{driver}");
        counts();
        ask(proxy, &kill.replace("Host: x", "Host: x\r\nConnection: close"), "502");
        assert!(counts().0 <= 2, "{driver}: a kept one, and a new one");
    });
}

/// The body of a PUT is kept up to a bound: within it the request is whole again for the next backend.
#[test]
fn a_put_is_repeated_with_all_of_its_body_or_not_at_all() {
    let good = Backend::answering(|head, client| {
        let len = field(head, "Content-Length").and_then(|len| len.parse().ok()).unwrap_or(0);
        let body = client.bytes(len);
        assert!(body.iter().all(|byte| *byte == b'a'), "a body that is not the client's");
        Some(ok("", &body.len().to_string()))
    });
    for (len, is_repeated) in [(1000, true), (1_000_000, false)] {
        let closing = Backend::start(move |_, mut client| {
            client.head();
            client.bytes(len);
        });
        let set = |config: &mut ProxyConfig| config.groups[0].health.fall = 1000;
        on_every_driver(&[closing.address, good.address], set, |driver, proxy| {
            for _ in 0..4 {
                let mut client = proxy.client();
                client.send(format!("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\n\r\n"));
                client.try_send("a".repeat(len));
                let head = client.head();
                let is_answered = head.starts_with("HTTP/1.1 200 ");
                assert!(
                    is_answered || !is_repeated && head.starts_with("HTTP/1.1 502 "),
                    "{driver}: {head}"
                );
                if is_answered {
                    let expected = len.to_string();
                    assert_eq!(client.bytes(expected.len()), expected.as_bytes(), "{driver}");
                }
            }
        });
    }
}

/// Each interim answer says that the backend is at work (RFC 2518 10.1); bytes of a head that never ends do not.
#[test]
fn interim_answers_give_a_backend_more_time_and_a_head_in_drops_does_not() {
    let log = tempfile::tempdir().expect("a folder");
    let path_of = |driver: Driver| log.path().join(driver.to_string());
    let time = Duration::from_secs(1);
    let set = |driver, config: &mut ProxyConfig| {
        // Of the proxy before.
        let _ = std::fs::remove_file(path_of(driver));
        config.limits.first_byte_timeout = time;
        config.monitoring.access_log = Some(LogTarget::File(path_of(driver)));
        config.monitoring.access_log_format = LogFormat::Json;
    };
    let patient = Backend::start(|_, mut client| {
        client.head();
        for _ in 0..5 {
            client.try_send("HTTP/1.1 102 Processing\r\n\r\n");
            std::thread::sleep(Duration::from_millis(300));
        }
        client.try_send(OK);
    });
    on_all_drivers_at_once(&[patient.address], set, |driver, proxy| {
        let mut client = proxy.client();
        client.send(GET);
        let given = client.until("\r\n\r\nhi");
        assert!(given.contains("HTTP/1.1 200 OK"), "{driver}: {given}");
    });
    let dripping = Backend::start(|_, mut client| {
        client.head();
        client.try_send("HTTP/1.1 200 OK\r\n");
        // Until the proxy has closed.
        for at in 0_u32.. {
            std::thread::sleep(Duration::from_millis(50));
            if client.socket.write_all(format!("A{at}: b\r\n").as_bytes()).is_err() {
                return;
            }
        }
    });
    on_all_drivers_at_once(&[dripping.address], set, |driver, proxy| {
        let mut client = proxy.client();
        client.send(GET);
        let head = client.head();
        assert!(head.starts_with("HTTP/1.1 504 "), "{driver}: {head}");
        let lines = || std::fs::read_to_string(path_of(driver)).unwrap_or_default();
        proxy.await_that("its line", |_| lines().ends_with('\n'));
        let line = lines();
        assert!(line.contains("upstream_first_byte_timeout"), "{driver}: {line}");
        assert!(!line.contains("first_byte_us"), "{driver}: a time of what did not come: {line}");
    });
}

/// Whether it announces that or not, no request is lost, and no answer is another request's.
#[test]
fn requests_in_a_row_are_answered_by_a_backend_that_closes_behind_each_answer() {
    for close in ["Connection: close\r\n", ""] {
        let backend = Backend::start(move |_, mut client| {
            let head = client.head();
            let path = head.split(' ').nth(1).unwrap_or_default();
            client.try_send(ok(close, path));
        });
        backend.on_every_driver(|driver, proxy| {
            let mut client = proxy.client();
            let paths: Vec<String> = (0..50).map(|at| format!("/{at}")).collect();
            let request = |path: &String| format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
            client.send(paths.iter().map(request).collect::<String>());
            for path in paths {
                let head = client.head();
                assert!(head.starts_with("HTTP/1.1 200 "), "{driver}, {path}: {head}");
                assert_eq!(client.bytes(path.len()), path.as_bytes(), "{driver}: {head}");
            }
        });
    }
}

/// Bodies that turn out wrong when the backend has seen their beginning: it never sees an end.
#[test]
fn a_body_that_breaks_its_framing_is_never_completed_for_the_backend() {
    let ends = Arc::new(AtomicUsize::new(0));
    let whole = Arc::clone(&ends);
    let backend = Backend::start(move |_, mut client| {
        client.head();
        if client.rest().ends_with("0\r\n\r\n") {
            whole.fetch_add(1, SeqCst);
        }
    });
    backend.on_every_driver(|driver, proxy| {
        for broken in [
            "3\r\nabcX\r\n0\r\n\r\n",
            "3\nabc\r\n0\r\n\r\n",
            "-1\r\n",
            "3\r\nabc\r\n0\r\nA b\r\n\r\n",
        ] {
            let mut client = proxy.client();
            client.send(format!("{CHUNKED_POST}1\r\na\r\n"));
            client.try_send(broken);
            let given = client.rest();
            assert!(given.starts_with("HTTP/1.1 400 "), "{driver}, {broken:?}: {given:?}");
        }
    });
    assert_eq!(ends.load(SeqCst), 0, "a broken body was completed");
}

#[test]
fn a_post_goes_to_another_backend_when_one_accepts_no_connection() {
    let backend = Backend::polite();
    on_every_driver(
        &[unreachable(), backend.address],
        |_| {},
        |driver, proxy| {
            for _ in 0..4 {
                let mut client = proxy.client();
                client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
                let head = client.head();
                assert!(head.starts_with("HTTP/1.1 200 "), "{driver}: {head}");
            }
            assert!(proxy.count(ProxyCounter::Retries) >= 1, "{driver}");
        },
    );
}

#[test]
fn a_request_body_that_stands_still_ends_the_exchange_on_both_sides() {
    let backend = Backend::silent();
    let short = |_, config: &mut ProxyConfig| {
        config.limits.clients.body_timeout = Duration::from_millis(50);
    };
    on_all_drivers_at_once(&[backend.address], short, |driver, proxy| {
        let mut client = proxy.client();
        client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc");
        assert!(client.rest().starts_with("HTTP/1.1 408 "), "{driver}");
        proxy.await_that("the fault", |proxy| proxy.faults(Fault::ClientTimeout) == 1);
        proxy.await_that("the end of all", |proxy| proxy.open_connections() == 0);
    });
}

#[test]
fn a_request_body_that_comes_byte_by_byte_has_not_the_time_of_the_whole_request() {
    let backend = Backend::silent();
    let short = |_, config: &mut ProxyConfig| {
        config.limits.clients.body_timeout = Duration::from_millis(300);
    };
    on_all_drivers_at_once(&[backend.address], short, |driver, proxy| {
        let mut client = proxy.client();
        client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n");
        let mut answer = [0; 13];
        // A byte each time that no answer has come for a while.
        client.socket.set_read_timeout(Some(Duration::from_millis(20))).expect("set");
        let began = Instant::now();
        while client.socket.read_exact(&mut answer).is_err() {
            assert!(began.elapsed() < DEADLINE, "{driver}: still taken");
            client.try_send("x");
        }
        assert_eq!(text(&answer), "HTTP/1.1 408 ", "{driver}");
    });
}

/// Bytes that come before a request was sent on a connection answer no request.
#[test]
fn an_answer_that_was_not_asked_for_goes_to_no_client() {
    let backend = Backend::start(|_, mut client| {
        client.head();
        client.send(OK);
        client.try_send("HTTP/1.1 200 Unasked\r\nContent-Length: 2\r\n\r\nno");
        client.rest();
    });
    backend.on_every_driver(|driver, proxy| {
        for _ in 0..3 {
            let mut client = proxy.client();
            client.send(GET);
            assert!(client.until("hi").starts_with("HTTP/1.1 200 OK"), "{driver}");
            // What comes behind a whole answer ends the connection to the backend.
            proxy.await_that("the end of it", |proxy| proxy.open_connections() == 1);
            drop(client);
            proxy.await_that("the end of all", |proxy| proxy.open_connections() == 0);
        }
        assert!(proxy.count(ProxyCounter::Unasked) >= 3, "{driver}");
    });
}

/// The length in an answer to HEAD is that of another answer (RFC 9110 9.3.2): the connection is kept, until
/// bytes come on it.
#[test]
fn a_late_body_behind_an_answer_to_head_is_not_the_answer_to_the_next_request() {
    let may_send = Arc::new(Barrier::new(2));
    let sends = Arc::clone(&may_send);
    let backend = Backend::answering(move |head, client| {
        if !head.starts_with("HEAD") {
            return Some(OK.to_owned());
        }
        let other = "HTTP/1.1 200 Other\r\nContent-Length: 2\r\n\r\nno";
        client.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", other.len()));
        sends.wait();
        Some(other.to_owned())
    });
    backend.on_every_driver(|driver, proxy| {
        let before = backend.accepted();
        let mut client = proxy.client();
        client.send("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(client.head().starts_with("HTTP/1.1 200 OK"), "{driver}");
        proxy.await_that("an idle connection", |proxy| proxy.pool().idle == 1);
        may_send.wait();
        proxy.await_that("its end", |proxy| proxy.open_connections() == 1);
        assert_eq!(proxy.count(ProxyCounter::Unasked), 1, "{driver}");
        client.send(GET);
        assert!(client.until("hi").starts_with("HTTP/1.1 200 OK"), "{driver}");
        assert_eq!(backend.accepted() - before, 2, "{driver}");
    });
}

#[test]
fn a_client_that_goes_away_takes_its_upstream_connection_along() {
    let received = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&received);
    let backend = Backend::start(move |_, mut client| {
        if !client.head().is_empty() {
            counted.fetch_add(1, SeqCst);
        }
        client.rest();
    });
    backend.on_every_driver(|driver, proxy| {
        for _ in 0..3 {
            let before = received.load(SeqCst);
            let mut client = proxy.client();
            client.send(GET);
            // Earlier than that the connection is unused, and is kept for other clients.
            proxy.await_that("the request at the backend", |_| received.load(SeqCst) > before);
            client.reset();
            proxy.await_that("the end of both", |proxy| proxy.open_connections() == 0);
        }
        assert_eq!(proxy.faults(Fault::ClientGone), 3, "{driver}");
    });
}

#[test]
fn an_early_answer_comes_through_and_the_rest_of_the_body_ends_with_the_connection() {
    let backend = Backend::start(|_, mut client| {
        client.head();
        client.send("HTTP/1.1 413 Too Much\r\nDate: d\r\nContent-Length: 2\r\n\r\nno");
        client.rest();
    });
    backend.on_every_driver(|driver, proxy| {
        let mut client = proxy.client();
        client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nabc");
        let given = client.until("\r\n\r\nno");
        assert!(given.starts_with("HTTP/1.1 413 Too Much\r\n"), "{driver}: {given}");
        client.try_send("GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n");
        client.end();
        assert_eq!(client.rest(), "", "{driver}: nothing more is answered");
    });
}

/// A client of HTTP/1.0 takes the end of the connection for the end of the answer: it has to see an
/// error instead.
#[test]
fn a_cut_answer_is_not_an_end_for_a_client_that_waits_for_one() {
    use std::io::{ErrorKind, Read};
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let backend = Backend::start(move |_, mut client| {
        client.head();
        client.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
        // Ends only when the client has got that.
        wait.lock().expect("no panic").recv().expect("message");
    });
    backend.on_every_driver(|driver, proxy| {
        let mut client = proxy.client();
        client.send("GET / HTTP/1.0\r\n\r\n");
        assert!(client.head().ends_with("Connection: close\r\n\r\n"), "{driver}");
        assert_eq!(client.bytes(3), b"abc", "{driver}");
        release.send(()).expect("it waits");
        let end = client.socket.read_exact(&mut [0]).map_err(|error| error.kind());
        assert_eq!(end, Err(ErrorKind::ConnectionReset), "{driver}: it looks like an end");
    });
}
