//! Methods that are served, known or unknown, and expectations.

use crate::case::{BODY_BYTES_MAX, Case, Expected, Interim, Setup, case, get, ok, post};

pub(crate) fn cases() -> Vec<Case> {
    known().into_iter().chain(not_allowed()).chain(unknown()).chain(expectations()).collect()
}

fn request(method: &str, target: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nHost: h\r\n\r\n")
}

fn known() -> Vec<Case> {
    let reply = |name, rfc, method| case(Setup::Reply, name, rfc, request(method, "/"));
    let reply_raw = |name, rfc, request: String| case(Setup::Reply, name, rfc, request);
    let echo = |name, rfc, method| case(Setup::Echo, name, rfc, request(method, "/"));
    vec![
        reply("HEAD of a reply", "RFC 9110 9.3.2", "HEAD")
            .kept([ok().for_head().has("Content-Length", "128")]),
        reply("GET of a reply", "RFC 9110 9.3.1", "GET").kept([ok().has("Content-Length", "128")]),
        reply("POST of a reply", "RFC 9110 9.3.3", "POST").either([Expected::any_of(&[200, 405])]),
        reply("TRACE", "RFC 9110 9.3.8", "TRACE").either([Expected::any_of(&[405, 501])]),
        reply("OPTIONS of a target", "RFC 9110 9.3.7", "OPTIONS")
            .either([Expected::any_of(&[200, 204, 405])]),
        case(Setup::Reply, "OPTIONS of the server", "RFC 9112 3.2.4", request("OPTIONS", "*"))
            .either([Expected::any_of(&[200, 204, 405])]),
        reply_raw("HEAD that is refused", "RFC 9110 9.3.2", "HEAD / HTTP/1.1\r\n\r\n".to_owned())
            .closed([Expected::any_of(&[400]).for_head()]),
        reply_raw(
            "CONNECT, and what may be meant for the tunnel",
            "RFC 9110 9.3.6",
            format!("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n{}", request("GET", "/")),
        )
        .closed([Expected::any_of(&[405, 501])]),
        case(
            Setup::Echo,
            "GET of an echo, with a body",
            "RFC 9110 9.3.1",
            get("Content-Length: 2\r\n") + "ok",
        )
        .kept([ok().body("ok")]),
        echo("GET of an echo", "RFC 9110 9.3.1", "GET").kept([ok().body("")]),
        echo("HEAD of an echo", "RFC 9110 9.3.2", "HEAD").kept([ok().for_head()]),
        case(
            Setup::Echo,
            "PUT to an echo",
            "RFC 9110 9.3.4",
            "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nok",
        )
        .kept([ok().body("ok")]),
    ]
}

/// Files are only read: every other known method is refused.
fn not_allowed() -> Vec<Case> {
    let files = |name, request: String| {
        case(Setup::Files, name, "RFC 9110 15.5.6", request)
            .either([Expected::any_of(&[405]).has_any("Allow")])
    };
    vec![
        files("POST to a file", request("POST", "/hello.txt")),
        files("PUT to a file", request("PUT", "/hello.txt")),
        files("DELETE of a file", request("DELETE", "/hello.txt")),
        files("PATCH of a file", request("PATCH", "/hello.txt")),
        files("POST to a file, with a body", post("Content-Length: 5\r\n", "hello")),
        files(
            "POST to a file, by a client that waits for 100",
            post("Expect: 100-continue\r\nContent-Length: 5\r\n", ""),
        ),
    ]
}

fn unknown() -> Vec<Case> {
    let reply = |name, method| {
        case(Setup::Reply, name, "RFC 9110 15.6.2", request(method, "/"))
            .either([Expected::any_of(&[501])])
    };
    vec![
        reply("an unknown method", "BREW"),
        reply("a known method in small letters", "get"),
        reply("a known method with more behind", "GETS"),
        reply("a method of token bytes that are not letters", "!#$%&'*+-.^_`|~"),
    ]
}

fn expectations() -> Vec<Case> {
    let echo = |name, request: String| case(Setup::Echo, name, "RFC 9110 10.1.1", request);
    let five = "Expect: 100-continue\r\nContent-Length: 5\r\n";
    let chunked = "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n";
    let hello = || ok().body("hello");
    let large = format!("Expect: 100-continue\r\nContent-Length: {}\r\n", BODY_BYTES_MAX + 1);
    vec![
        echo("a client that waits for 100", post(five, ""))
            .then("hello")
            .kept([hello().interim(Interim::Must)]),
        echo("a client that waits for 100 with chunks", post(chunked, ""))
            .then("5\r\nhello\r\n0\r\n\r\n")
            .kept([hello().interim(Interim::Must)]),
        echo("a client that does not wait for 100", post(five, "hello"))
            .kept([hello().interim(Interim::May)]),
        echo(
            "100-continue in other capitals",
            post("Expect: 100-CONTINUE\r\nContent-Length: 5\r\n", ""),
        )
        .then("hello")
        .kept([hello().interim(Interim::Must)]),
        echo("100-continue without a body", get("Expect: 100-continue\r\n"))
            .kept([ok().interim(Interim::May)]),
        echo("100-continue in HTTP/1.0", format!("POST / HTTP/1.0\r\n{five}\r\nhello"))
            .closed([hello()]),
        echo("100-continue for too large a body", post(&large, "")).refused(&[413]),
        echo("another expectation", post("Expect: tea\r\nContent-Length: 5\r\n", ""))
            .refused(&[417]),
        echo(
            "another expectation beside 100-continue",
            post("Expect: 100-continue, tea\r\nContent-Length: 5\r\n", ""),
        )
        .refused(&[417]),
        echo(
            "another expectation in a second field",
            post("Expect: tea\r\nExpect: 100-continue\r\nContent-Length: 5\r\n", ""),
        )
        .refused(&[417]),
    ]
}
