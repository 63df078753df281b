//! Long bodies through pipes: which ones go that way, that every byte arrives and none of what follows is swallowed, and what
//! becomes of pipes when a side leaves.

use std::cell::RefCell;
use std::io::{ErrorKind, Read};
use std::net::SocketAddr;
use std::sync::mpsc::channel;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use pollux_engine::{Counter, Driver};
use pollux_server::config::ProxyConfig;
use pollux_server::{Fault, ProxyCounter};
use pollux_testing::uninterrupted;
use rustix::net::sockopt::set_socket_recv_buffer_size;

use crate::{Backend, Client, Proxy, field, ok, on_all_drivers_at_once, on_every_driver};

/// Most of a body of that many bytes goes through pipes, whatever came with its head.
const LONG_BYTES: usize = 1 << 20;
/// Sizes on both sides of that from which on a body is spliced, and far from it.
const SIZES: [usize; 14] = [
    0,
    1,
    16_383,
    16_384,
    16_385,
    32_767,
    32_768,
    32_769,
    65_535,
    65_536,
    65_537,
    131_073,
    LONG_BYTES,
    10 << 20,
];

/// The longest body; shorter ones are its beginnings. It is made once: that takes long beside the times that tests set.
fn pattern(len: usize) -> &'static [u8] {
    static LONGEST: LazyLock<Vec<u8>> = LazyLock::new(|| crate::identity::pattern(24 << 20));
    &LONGEST[..len]
}

fn length(head: &str, name: &str) -> usize {
    field(head, name).map_or(0, |len| len.parse().expect("a number"))
}

/// Answers with the body that it was sent, and as many bytes as it was asked for behind it.
fn generous() -> Backend {
    Backend::answering(|head, client| {
        let mut body = client.bytes(length(head, "Content-Length"));
        body.extend(pattern(length(head, "X-Bytes")));
        Some([ok_of(body.len()).as_bytes(), &body].concat())
    })
}

fn ok_of(len: usize) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n")
}

fn get(len: usize) -> String {
    format!("GET / HTTP/1.1\r\nHost: x\r\nX-Bytes: {len}\r\n\r\n")
}

fn put(method: &str, len: usize) -> Vec<u8> {
    let head = format!("{method} / HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\n\r\n");
    [head.as_bytes(), pattern(len)].concat()
}

fn assert_answer(client: &mut Client, len: usize, what: &str) {
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 200 "), "{what}: {head}");
    assert_eq!(length(&head, "Content-Length"), len, "{what}");
    let body = client.bytes(len);
    assert_eq!(body.len(), len, "{what}");
    assert!(body == pattern(len), "{what}: other bytes");
}

/// Sends all this in a thread of its own while `read` reads.
fn sending(client: &mut Client, bytes: Vec<u8>, read: impl FnOnce(&mut Client)) {
    let mut writer = Client::of(client.socket.try_clone().expect("a descriptor"));
    let thread = std::thread::spawn(move || writer.send(bytes));
    read(client);
    thread.join().expect("all was taken");
}

fn is_closed(proxy: &Proxy) -> bool {
    proxy.open_connections() == 0
}

#[test]
fn long_answers_arrive_byte_for_byte_and_stay_in_the_kernel() {
    let backend = generous();
    backend.on_every_driver(|driver, proxy| {
        let mut client = proxy.client();
        for len in SIZES {
            let before = proxy.count_of_engine(Counter::BytesSpliced);
            client.send(get(len));
            assert_answer(&mut client, len, &format!("{driver}, {len} bytes"));
            let spliced = proxy.count_of_engine(Counter::BytesSpliced) - before;
            assert!(spliced <= len as u64, "{driver}: {spliced} of {len}");
            assert!(len >= 16_384 || spliced == 0, "{driver}: {spliced} of {len}");
            let is_long = len >= LONG_BYTES;
            assert!(!is_long || spliced > len as u64 * 3 / 4, "{driver}: {spliced} of {len}");
        }
        assert_eq!(backend_connections(proxy), 1, "{driver}: the connection is used again");
        assert!(proxy.count(ProxyCounter::BodiesSpliced) >= 2, "{driver}");
        drop(client);
        proxy.await_that("the answers are counted", |proxy| {
            proxy.count(ProxyCounter::AnswerBytes) == SIZES.iter().sum::<usize>() as u64
        });
    });
}

/// Not of the first ones, perhaps: a receive that was armed before brings what comes.
#[test]
fn of_a_long_body_behind_others_little_more_than_the_head_is_received() {
    let backend = generous();
    let len = 96 << 10;
    let both_ways = 2 * (len - (8 << 10)) as u64;
    backend.on_every_driver(|driver, proxy| {
        let client = RefCell::new(proxy.client());
        proxy.await_that("both bodies stay in the kernel", |proxy| {
            let before = proxy.count_of_engine(Counter::BytesSpliced);
            sending(&mut client.borrow_mut(), put("POST", len), |client| {
                assert_answer(client, len, &format!("{driver}"));
            });
            proxy.count_of_engine(Counter::BytesSpliced) - before >= both_ways
        });
    });
}

fn backend_connections(proxy: &Proxy) -> u64 {
    proxy.count(ProxyCounter::Connects)
}

#[test]
fn long_requests_arrive_byte_for_byte_and_stay_in_the_kernel() {
    let backend = generous();
    backend.on_every_driver(|driver, proxy| {
        for method in ["POST", "PUT"] {
            let mut client = proxy.client();
            for len in SIZES {
                let what = format!("{driver}, {method} of {len} bytes");
                sending(&mut client, put(method, len), |client| assert_answer(client, len, &what));
            }
        }
        // Of both ways.
        let sum = 2 * 2 * SIZES.iter().sum::<usize>() as u64;
        let spliced = proxy.count_of_engine(Counter::BytesSpliced);
        assert!(spliced > sum * 3 / 4, "{driver}: {spliced} of {sum}");
    });
}

/// A receive for the last of a body brought the next body as well.
#[test]
fn the_last_bytes_of_a_long_request_stay_in_the_kernel_too() {
    const LAST_BYTES: usize = 1000;
    let backend = Backend::answering(|head, client| {
        assert!(client.bytes(length(head, "Content-Length")) == pattern(LONG_BYTES));
        Some(ok("", "whole"))
    });
    backend.on_every_driver(|driver, proxy| {
        let mut client = proxy.client();
        let request = put("PUT", LONG_BYTES);
        let (first, last) = request.split_at(request.len() - LAST_BYTES);
        client.send(first);
        proxy.await_that("all of it has left", |proxy| {
            let least = (LONG_BYTES - LAST_BYTES) as u64;
            let counted = [Counter::BytesIn, Counter::BytesOut].map(|it| proxy.count_of_engine(it));
            counted[0] == first.len() as u64 && counted[1] >= least
        });
        let before = proxy.count_of_engine(Counter::BytesSpliced);
        client.send(last);
        assert!(client.head().starts_with("HTTP/1.1 200 "), "{driver}");
        assert_eq!(client.bytes(5), b"whole", "{driver}");
        let spliced = proxy.count_of_engine(Counter::BytesSpliced) - before;
        assert_eq!(spliced, LAST_BYTES as u64, "{driver}");
    });
}

#[test]
fn what_follows_a_body_is_the_next_message() {
    let backend = generous();
    let lens = [100_000, 3, 300_000, 0, 65_536, LONG_BYTES, 1, 33_000];
    backend.on_every_driver(|driver, proxy| {
        let requests = lens.iter().map(|len| put("POST", *len)).collect::<Vec<_>>().concat();
        let mut client = proxy.client();
        sending(&mut client, requests, |client| {
            for len in lens {
                assert_answer(client, len, &format!("{driver}, {len} bytes in a row"));
            }
        });
        let requests = lens.iter().map(|len| get(*len)).collect::<String>();
        sending(&mut client, requests.into_bytes(), |client| {
            for len in lens {
                assert_answer(client, len, &format!("{driver}, {len} bytes asked for in a row"));
            }
        });
    });
}

#[test]
fn an_answer_that_ends_with_its_connection_goes_through_a_pipe_to_a_client_of_http_1_0() {
    let backend = Backend::start(|_, mut client| {
        client.head();
        client.send("HTTP/1.1 200 OK\r\n\r\n");
        client.send(pattern(4 * LONG_BYTES));
    });
    backend.on_every_driver(|driver, proxy| {
        let mut client = proxy.client();
        client.send("GET / HTTP/1.0\r\n\r\n");
        assert!(client.head().starts_with("HTTP/1.1 200 "), "{driver}");
        while client.more() {}
        assert!(client.kept == pattern(4 * LONG_BYTES), "{driver}: {} bytes", client.kept.len());
        let spliced = proxy.count_of_engine(Counter::BytesSpliced);
        assert!(spliced > 3 * LONG_BYTES as u64, "{driver}: {spliced}");
    });
}

#[test]
fn what_is_framed_anew_goes_through_buffers() {
    let backend = Backend::answering(|_, _| {
        let len = LONG_BYTES;
        let head = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{len:x}\r\n");
        Some([head.as_bytes(), pattern(len), b"\r\n0\r\n\r\n"].concat())
    });
    backend.on_every_driver(|driver, proxy| {
        let mut client = proxy.client();
        client.ask("/");
        client.head();
        let mut body = Vec::new();
        let mut len = 1;
        while len > 0 {
            len = usize::from_str_radix(client.until("\r\n").trim(), 16).expect("a size");
            body.extend(client.bytes(len));
            client.bytes(2);
        }
        assert!(body == pattern(LONG_BYTES), "{driver}");
        assert_eq!(proxy.count_of_engine(Counter::BytesSpliced), 0, "{driver}");
    });
}

#[test]
fn without_pipes_long_bodies_go_through_buffers() {
    let backend = generous();
    let without = |config: &mut ProxyConfig| config.limits.pipes_max = 0;
    on_every_driver(&[backend.address], without, |driver, proxy| {
        let mut client = proxy.client();
        sending(&mut client, put("POST", LONG_BYTES), |client| {
            assert_answer(client, LONG_BYTES, &format!("{driver}"));
        });
        assert_eq!(proxy.count_of_engine(Counter::BytesSpliced), 0, "{driver}");
        assert_eq!(proxy.count(ProxyCounter::PipesMissing), 0, "{driver}: none is meant to be");
    });
}

/// A client that takes little at a time.
fn slow(proxy: &Proxy) -> Client {
    let client = proxy.client();
    set_socket_recv_buffer_size(&client.socket, 16 << 10).expect("set");
    client
}

/// One pipe at most, which the first slow client has.
fn with_one_pipe(config: &mut ProxyConfig) {
    config.limits.pipes_max = 1;
}

#[test]
fn a_client_that_reads_slowly_gets_every_byte_and_holds_one_pipe() {
    let len = 24 << 20;
    let backend = generous();
    on_every_driver(&[backend.address], with_one_pipe, |driver, proxy| {
        let mut client = slow(proxy);
        client.send(get(len));
        proxy.await_that("a full socket", |proxy| proxy.count_of_engine(Counter::SendsShort) > 0);
        proxy.await_that("a pipe", |proxy| proxy.count(ProxyCounter::BodiesSpliced) > 0);
        let came = proxy.count_of_engine(Counter::BytesIn);
        let gone = proxy.count_of_engine(Counter::BytesOut);
        // What a pipe holds at most, and the buffers beside it.
        assert!(came < gone + (2 << 20), "{driver}: {came} came, {gone} left");
        // One request after the other, until the pipe is taken for good.
        let other = RefCell::new(proxy.client());
        proxy.await_that("a body without a pipe", |proxy| {
            other.borrow_mut().send(get(LONG_BYTES));
            assert_answer(&mut other.borrow_mut(), LONG_BYTES, &format!("{driver}, beside it"));
            proxy.count(ProxyCounter::PipesMissing) > 0
        });
        assert_answer(&mut client, len, &format!("{driver}, slowly"));
        let before = proxy.count(ProxyCounter::BodiesSpliced);
        let mut other = other.into_inner();
        other.send(get(LONG_BYTES));
        assert_answer(&mut other, LONG_BYTES, &format!("{driver}, with the pipe"));
        assert_eq!(proxy.count(ProxyCounter::BodiesSpliced), before + 1, "{driver}");
    });
}

/// After `part` the one pipe that there may be is there again, and nothing is left open.
fn check_the_pipe_comes_back(
    backends: &[SocketAddr],
    set: impl Fn(&mut ProxyConfig),
    part: impl Fn(Driver, &Proxy),
) {
    let set = |config: &mut ProxyConfig| {
        with_one_pipe(config);
        set(config);
    };
    on_every_driver(backends, set, |driver, proxy| {
        part(driver, proxy);
        check_the_pipe_is_back(driver, proxy);
    });
}

fn check_the_pipe_is_back(driver: Driver, proxy: &Proxy) {
    proxy.await_that("all connections close", is_closed);
    let before = proxy.count(ProxyCounter::BodiesSpliced);
    assert!(before > 0, "{driver}: a pipe was in use");
    let mut client = proxy.client();
    client.send(get(LONG_BYTES));
    assert_answer(&mut client, LONG_BYTES, &format!("{driver}, afterwards"));
    assert_eq!(proxy.count(ProxyCounter::BodiesSpliced), before + 1, "{driver}");
}

#[test]
fn a_client_that_leaves_in_the_middle_gives_its_pipe_back() {
    let backend = generous();
    check_the_pipe_comes_back(
        &[backend.address],
        |_| {},
        |driver, proxy| {
            for resets in [true, false] {
                let mut client = slow(proxy);
                client.send(get(24 << 20));
                proxy.await_that("a pipe", |proxy| proxy.count(ProxyCounter::BodiesSpliced) > 0);
                assert!(client.head().starts_with("HTTP/1.1 200 "), "{driver}");
                if resets {
                    client.reset();
                } else {
                    drop(client);
                }
                proxy.await_that("all connections close", is_closed);
            }
            assert_eq!(proxy.faults(Fault::ClientGone), 2, "{driver}");
        },
    );
}

#[test]
fn a_client_that_leaves_in_its_request_gives_its_pipe_back() {
    let backend = generous();
    check_the_pipe_comes_back(
        &[backend.address],
        |_| {},
        |driver, proxy| {
            let mut client = proxy.client();
            let request = put("POST", 24 << 20);
            client.send(&request[..3 << 20]);
            proxy.await_that("a pipe", |proxy| proxy.count(ProxyCounter::BodiesSpliced) > 0);
            client.end();
            assert_eq!(client.rest(), "", "{driver}: no answer to a part");
        },
    );
}

/// Sends half of what its head says to those that ask for `/cut`, and to `/still`, where it does not end then.
fn cutting() -> Backend {
    Backend::start(|_, mut client| {
        loop {
            let head = client.head();
            if head.starts_with("GET /cut ") || head.starts_with("GET /still ") {
                client.try_send(ok_of(8 * LONG_BYTES));
                client.try_send(pattern(4 * LONG_BYTES));
            }
            if head.starts_with("GET /still ") {
                client.rest();
            }
            if !head.starts_with("GET / ") {
                return;
            }
            let len = length(&head, "X-Bytes");
            client.try_send([ok_of(len).as_bytes(), pattern(len)].concat());
        }
    })
}

/// All that comes, and whether a cut is behind it.
fn cut_body(client: &mut Client) -> (usize, bool) {
    let mut bytes = client.kept.len();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match uninterrupted(|| client.socket.read(&mut buffer)) {
            Ok(0) => return (bytes, false),
            Ok(read) => bytes += read,
            Err(error) => return (bytes, error.kind() == ErrorKind::ConnectionReset),
        }
    }
}

#[test]
fn a_body_that_is_cut_is_cut_for_the_client_too() {
    let backend = cutting();
    check_the_pipe_comes_back(
        &[backend.address],
        |_| {},
        |driver, proxy| {
            let mut client = proxy.client();
            client.ask("/cut");
            assert!(client.head().starts_with("HTTP/1.1 200 "), "{driver}");
            let (bytes, is_reset) = cut_body(&mut client);
            assert!(bytes <= 4 * LONG_BYTES && is_reset, "{driver}: {bytes} bytes, an end");
            proxy.await_that("it is counted", |proxy| proxy.faults(Fault::Cut) == 1);
        },
    );
}

#[test]
fn a_body_that_stands_still_has_the_time_of_a_body() {
    pattern(0);
    let backend = cutting();
    let soon = |_, config: &mut ProxyConfig| {
        with_one_pipe(config);
        config.limits.clients.body_timeout = Duration::from_secs(3);
    };
    on_all_drivers_at_once(&[backend.address], soon, |driver, proxy| {
        let mut client = proxy.client();
        client.ask("/still");
        assert!(client.head().starts_with("HTTP/1.1 200 "), "{driver}");
        let (bytes, is_reset) = cut_body(&mut client);
        assert!(bytes <= 4 * LONG_BYTES && is_reset, "{driver}: {bytes} bytes, an end");
        proxy.await_that("it is counted", |proxy| proxy.faults(Fault::BodyTimeout) == 1);
        check_the_pipe_is_back(driver, proxy);
    });
}

#[test]
fn a_request_has_its_time_though_its_body_goes_through_a_pipe() {
    pattern(0);
    let backend = generous();
    let soon = |_, config: &mut ProxyConfig| {
        config.limits.request_timeout = Duration::from_secs(3);
    };
    on_all_drivers_at_once(&[backend.address], soon, |driver, proxy| {
        let mut client = slow(proxy);
        client.send(get(24 << 20));
        assert!(client.head().starts_with("HTTP/1.1 200 "), "{driver}");
        proxy.await_that("the time is over", |proxy| proxy.faults(Fault::RequestTimeout) == 1);
        let (bytes, is_reset) = cut_body(&mut client);
        assert!(bytes < 24 << 20 && is_reset, "{driver}: {bytes} bytes, an end");
        proxy.await_that("all connections close", is_closed);
    });
}

#[test]
fn a_backend_that_says_more_than_its_length_is_not_asked_again() {
    let backend = Backend::start(|number, mut client| {
        while !client.head().is_empty() {
            let more = if number == 0 { ok("X-Id: wrong\r\n", "no") } else { String::new() };
            let head = ok_of(LONG_BYTES);
            client.try_send([head.as_bytes(), pattern(LONG_BYTES), more.as_bytes()].concat());
        }
    });
    for driver in Driver::ALL {
        // Of which the first connection says too much.
        let backend = &backend;
        let Some(proxy) = Proxy::start(driver, &[backend.address], |_| {}) else { continue };
        let mut client = proxy.client();
        for _ in 0..3 {
            client.send(get(LONG_BYTES));
            assert_answer(&mut client, LONG_BYTES, &format!("{driver}"));
        }
    }
}

#[test]
fn a_client_that_ended_its_side_gets_a_long_answer_whole() {
    let backend = generous();
    backend.on_every_driver(|driver, proxy| {
        let mut client = slow(proxy);
        client.send(get(8 * LONG_BYTES));
        client.end();
        assert_answer(&mut client, 8 * LONG_BYTES, &format!("{driver}"));
        assert_eq!(client.rest(), "", "{driver}");
    });
}

#[test]
fn a_long_answer_under_way_is_whole_when_the_proxy_drains() {
    let backend = generous();
    let patient = |config: &mut ProxyConfig| {
        config.limits.clients.drain_timeout = Duration::from_secs(60);
    };
    on_every_driver(&[backend.address], patient, |driver, proxy| {
        let mut client = slow(proxy);
        client.send(get(24 << 20));
        proxy.await_that("a pipe", |proxy| proxy.count(ProxyCounter::BodiesSpliced) > 0);
        proxy.server().drain();
        assert_answer(&mut client, 24 << 20, &format!("{driver}"));
        assert_eq!(client.rest(), "", "{driver}");
    });
}

/// The backend answers, and closes, before it has read all of the request.
#[test]
fn an_early_answer_to_a_long_request_arrives() {
    let (go, goes) = channel::<()>();
    let goes = Mutex::new(goes);
    let backend = Backend::start(move |_, mut client| {
        client.head();
        goes.lock().expect("whole").recv().expect("the test continues");
        client.try_send("HTTP/1.1 413 Too Much\r\nContent-Length: 2\r\n\r\nno");
        // What is left unread would reset the connection, and take the answer with it.
        client.rest();
    });
    on_every_driver(&[backend.address], with_one_pipe, |driver, proxy| {
        let mut client = proxy.client();
        let request = put("POST", 24 << 20);
        client.send(&request[..LONG_BYTES]);
        proxy.await_that("a pipe", |proxy| proxy.count(ProxyCounter::BodiesSpliced) > 0);
        go.send(()).expect("the backend waits");
        assert!(client.head().starts_with("HTTP/1.1 413 "), "{driver}");
        assert_eq!(client.bytes(2), b"no", "{driver}");
        drop(client);
        proxy.await_that("all connections close", is_closed);
    });
}
