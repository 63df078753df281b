//! Sizes: what must be taken, and what is refused as soon as it is too much.

use crate::case::{BODY_BYTES_MAX, Case, Setup, case, get, ok, post};

/// Head of the limits, as `case.rs` has them.
const HEAD_BYTES_MAX: usize = 16 * 1024;
const TARGET_BYTES_MAX: usize = 8000;

pub(crate) fn cases() -> Vec<Case> {
    heads().into_iter().chain(bodies()).collect()
}

fn heads() -> Vec<Case> {
    let reply = |name, rfc, request: String| case(Setup::Reply, name, rfc, request);
    let target = |len: usize| {
        let path = "a".repeat(len - 1);
        format!("GET /{path} HTTP/1.1\r\nHost: h\r\n\r\n")
    };
    let head = |len: usize| get(&format!("X: {}\r\n", "y".repeat(len - get("X: \r\n").len())));
    let fields = |count: usize| get(&"X: y\r\n".repeat(count - 1));
    vec![
        reply("a target as long as the limit", "RFC 9112 3", target(TARGET_BYTES_MAX)).kept([ok()]),
        reply("a target longer than the limit", "RFC 9110 15.5.15", target(TARGET_BYTES_MAX + 1))
            .refused(&[414]),
        reply(
            "a request line without an end",
            "RFC 9110 15.5.15",
            "GET /".to_owned() + &"a".repeat(20_000),
        )
        .refused(&[414]),
        reply(
            "a query longer than the limit",
            "RFC 9110 15.5.15",
            format!("GET /?{} HTTP/1.1\r\n", "a".repeat(9000)),
        )
        .refused(&[414]),
        reply("a head as long as the limit", "RFC 6585 5", head(HEAD_BYTES_MAX)).kept([ok()]),
        reply("a head longer than the limit", "RFC 6585 5", head(HEAD_BYTES_MAX + 1))
            .refused(&[431]),
        reply(
            "a field without an end",
            "RFC 6585 5",
            "GET / HTTP/1.1\r\nHost: h\r\nX: ".to_owned() + &"y".repeat(20_000),
        )
        .refused(&[431]),
        reply(
            "a name without an end",
            "RFC 6585 5",
            "GET / HTTP/1.1\r\nHost: h\r\n".to_owned() + &"y".repeat(20_000),
        )
        .refused(&[431]),
        reply("17 fields", "RFC 9110 5.4", fields(17)).kept([ok()]),
        reply("100 fields", "RFC 9110 5.4", fields(100)).kept([ok()]),
        reply("101 fields", "RFC 6585 5", fields(101)).refused(&[431]),
        reply(
            "a value of 8000 bytes",
            "RFC 9110 5.4",
            get(&format!("X: {}\r\n", "y".repeat(8000))),
        )
        .kept([ok()]),
        reply("20 empty lines before a request", "RFC 9112 2.2", "\r\n".repeat(20) + &get(""))
            .refused(&[400]),
    ]
}

fn bodies() -> Vec<Case> {
    const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";
    let echo = |name, rfc, request: String| case(Setup::Echo, name, rfc, request);
    let sized = |len: usize| format!("Content-Length: {len}\r\n");
    let body = "b".repeat(BODY_BYTES_MAX);
    let in_two_chunks = |second: &str| format!("{BODY_BYTES_MAX:x}\r\n{body}\r\n{second}");
    vec![
        echo("a body of 100 kB", "RFC 9112 6.2", post(&sized(100_000), &"b".repeat(100_000)))
            .kept([ok().body("b".repeat(100_000))]),
        echo("a body as large as the limit", "RFC 9110 15.5.14", post(&sized(body.len()), &body))
            .kept([ok().body(body.clone())]),
        echo(
            "an announced body above the limit",
            "RFC 9110 15.5.14",
            post(&sized(BODY_BYTES_MAX + 1), ""),
        )
        .refused(&[413]),
        echo(
            "chunks as large as the limit",
            "RFC 9110 15.5.14",
            post(CHUNKED, &in_two_chunks("0\r\n\r\n")),
        )
        .kept([ok().body(body.clone())]),
        echo("chunks above the limit", "RFC 9110 15.5.14", post(CHUNKED, &in_two_chunks("1\r\n")))
            .refused_or_cut(&[413]),
        echo(
            "an announced chunk above the limit",
            "RFC 9110 15.5.14",
            post(CHUNKED, "7fffffff\r\n"),
        )
        .refused(&[413]),
        echo("the largest chunk there is", "RFC 9112 7.1", post(CHUNKED, "ffffffffffffffff\r\n"))
            .refused(&[413]),
        echo(
            "a chunk extension without an end",
            "RFC 9112 7.1.1",
            post(CHUNKED, &format!("5;{}", "a".repeat(5000))),
        )
        .refused(&[400]),
        echo(
            "more extensions than body",
            "RFC 9112 7.1.1",
            post(CHUNKED, &format!("1;{}\r\nx\r\n", "a".repeat(1000)).repeat(40)),
        )
        .refused_or_cut(&[400]),
        echo(
            "an endless trailer",
            "RFC 6585 5",
            post(CHUNKED, &format!("0\r\nX: {}", "y".repeat(10_000))),
        )
        .refused(&[431]),
        echo(
            "101 trailers",
            "RFC 6585 5",
            post(CHUNKED, &format!("0\r\n{}\r\n", "X: y\r\n".repeat(101))),
        )
        .refused(&[431]),
    ]
}
