//! Request lines: methods, targets in their four forms, versions, and what stands before them.

use super::{BODY_BYTES_MAX, Case, Expected, Interim, Setup, case, get, ok, post};

/// Lines that are taken.
const SERVED: &[(&str, &str, &str)] = &[
    ("a plain GET", "RFC 9112 3", "GET / HTTP/1.1"),
    ("a query", "RFC 9112 3.2.1", "GET /a?b=c&d HTTP/1.1"),
    ("bytes that browsers do not encode", "RFC 9112 3.2", "GET /a|b{c}[d]\"e HTTP/1.1"),
    ("a path with an empty segment", "RFC 9112 3.2.1", "GET //a HTTP/1.1"),
    ("a later minor version", "RFC 9110 2.5", "GET / HTTP/1.2"),
    ("the last minor version", "RFC 9110 2.5", "GET / HTTP/1.9"),
    ("absolute-form", "RFC 9112 3.2.2", "GET http://h/a?b HTTP/1.1"),
    ("absolute-form with a port", "RFC 9112 3.2.2", "GET http://h:8080/ HTTP/1.1"),
    ("absolute-form without a path", "RFC 9112 3.2.2", "GET http://h HTTP/1.1"),
    ("absolute-form, scheme in capitals", "RFC 9110 4.2.3", "GET HTTP://h/ HTTP/1.1"),
    ("absolute-form with https", "RFC 9112 3.2.2", "GET https://h/ HTTP/1.1"),
    ("absolute-form for another host", "RFC 9112 3.2.2", "GET http://other/ HTTP/1.1"),
];

/// Lines that are refused with one status.
const REFUSED: &[(&str, &str, &[u16], &str)] = &[
    ("no method", "RFC 9112 3.1", &[400], " / HTTP/1.1"),
    ("a control byte in the method", "RFC 9112 3.1", &[400], "G\x01T / HTTP/1.1"),
    ("a method that is not a token", "RFC 9112 3.1", &[400], "G(T / HTTP/1.1"),
    ("a tab instead of a space", "RFC 9112 3", &[400], "GET\t/ HTTP/1.1"),
    ("two spaces before the target", "RFC 9112 3", &[400], "GET  / HTTP/1.1"),
    ("two spaces behind the target", "RFC 9112 3", &[400], "GET /  HTTP/1.1"),
    ("a space behind the version", "RFC 9112 3", &[400], "GET / HTTP/1.1 "),
    ("a space in the target", "RFC 9112 3.2", &[400], "GET /a b HTTP/1.1"),
    ("no target", "RFC 9112 3.2", &[400], "GET HTTP/1.1"),
    ("no version", "RFC 9112 2.3", &[400], "GET /"),
    ("NUL in the target", "RFC 9112 3.2", &[400], "GET /\0 HTTP/1.1"),
    ("DEL in the target", "RFC 9112 3.2", &[400], "GET /\x7f HTTP/1.1"),
    ("a target that is not ASCII", "RFC 9112 3.2", &[400], "GET /\u{e4} HTTP/1.1"),
    ("a fragment", "RFC 9112 3.2.1", &[400], "GET /a#b HTTP/1.1"),
    ("a target without a slash", "RFC 9112 3.2", &[400], "GET a HTTP/1.1"),
    ("asterisk-form with GET", "RFC 9112 3.2.4", &[400], "GET * HTTP/1.1"),
    ("authority-form with GET", "RFC 9112 3.2.3", &[400], "GET h:80 HTTP/1.1"),
    ("origin-form with CONNECT", "RFC 9112 3.2.3", &[400], "CONNECT / HTTP/1.1"),
    ("CONNECT without a port", "RFC 9110 9.3.6", &[400], "CONNECT h HTTP/1.1"),
    ("absolute-form with ftp", "RFC 9112 3.2.2", &[400], "GET ftp://h/ HTTP/1.1"),
    ("absolute-form without a host", "RFC 9110 4.2.1", &[400], "GET http:///a HTTP/1.1"),
    ("absolute-form with a user", "RFC 9110 4.2.4", &[400], "GET http://u@h/ HTTP/1.1"),
    ("version in lower case", "RFC 9112 2.3", &[400], "GET / http/1.1"),
    ("no minor version", "RFC 9112 2.3", &[400], "GET / HTTP/1"),
    ("an empty minor version", "RFC 9112 2.3", &[400], "GET / HTTP/1."),
    ("two digits of major version", "RFC 9112 2.3", &[400], "GET / HTTP/11.1"),
    ("two digits of minor version", "RFC 9112 2.3", &[400], "GET / HTTP/1.10"),
    ("a zero before the major version", "RFC 9112 2.3", &[400], "GET / HTTP/01.1"),
    ("a zero before the minor version", "RFC 9112 2.3", &[400], "GET / HTTP/1.01"),
    ("zeros before both versions", "RFC 9112 2.3", &[400], "GET / HTTP/01.01"),
    ("two digits of a later major version", "RFC 9112 2.3", &[400], "GET / HTTP/20.0"),
    ("a later major version alone", "RFC 9112 2.3", &[400], "GET / HTTP/2"),
    ("a later version with a space behind", "RFC 9112 2.3", &[400], "GET / HTTP/2.0 "),
    ("a plus before the version", "RFC 9112 2.3", &[400], "GET / HTTP/+1.1"),
    ("a minus before the version", "RFC 9112 2.3", &[400], "GET / HTTP/-1.1"),
    ("a comma in the version", "RFC 9112 2.3", &[400], "GET / HTTP/1,1"),
    ("a space in the version", "RFC 9112 2.3", &[400], "GET / HTTP/ 1.1"),
    ("a tab behind the version", "RFC 9112 2.3", &[400], "GET / HTTP/1.1\t"),
    ("NUL behind the version", "RFC 9112 2.3", &[400], "GET / HTTP/1.1\0"),
    ("the version's name in mixed case", "RFC 9112 2.3", &[400], "GET / Http/1.1"),
    ("a version in other digits", "RFC 9112 2.3", &[400], "GET / HTTP/\u{661}.1"),
    ("CR CR LF behind the version", "RFC 9112 2.2", &[400], "GET / HTTP/1.1\r"),
    ("another protocol", "RFC 9112 2.3", &[400], "GET / RTSP/1.0"),
    ("version 2.0 in this syntax", "RFC 9110 15.6.6", &[505], "GET / HTTP/2.0"),
    ("version 0.9 spelled out", "RFC 9110 15.6.6", &[505], "GET / HTTP/0.9"),
    ("the preface of HTTP/2", "RFC 9113 3.4", &[505], "PRI * HTTP/2.0"),
    (
        "a method longer than any",
        "RFC 9112 3",
        &[501],
        "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJ / HTTP/1.1",
    ),
];

pub(crate) fn cases() -> Vec<Case> {
    let served = SERVED.iter().map(|&(name, rfc, line)| {
        case(Setup::Reply, name, rfc, format!("{line}\r\nHost: h\r\n\r\n")).kept([ok()])
    });
    let refused = REFUSED.iter().map(|&(name, rfc, statuses, line)| {
        case(Setup::Reply, name, rfc, format!("{line}\r\nHost: h\r\n\r\n")).refused(statuses)
    });
    served.chain(refused).chain(line_ends()).collect()
}

/// What stands before the line and at its end.
fn line_ends() -> Vec<Case> {
    let reply = |name, rfc, request: &[u8]| case(Setup::Reply, name, rfc, request);
    let plain = get("");
    vec![
        reply(
            "an empty line before the request",
            "RFC 9112 2.2",
            format!("\r\n{plain}").as_bytes(),
        )
        .kept([ok()]),
        reply("a bare LF before the request", "RFC 9112 2.2", format!("\n{plain}").as_bytes())
            .refused(&[400]),
        reply("a CR alone before the request", "RFC 9112 2.2", format!("\r{plain}").as_bytes())
            .refused(&[400]),
        reply(
            "a bare LF behind the request line",
            "RFC 9112 2.2",
            b"GET / HTTP/1.1\nHost: h\r\n\r\n",
        )
        .refused(&[400]),
        reply(
            "a CR alone behind the request line",
            "RFC 9112 2.2",
            b"GET / HTTP/1.1\rHost: h\r\n\r\n",
        )
        .refused(&[400]),
        reply("bare LF everywhere", "RFC 9112 2.2", b"GET / HTTP/1.1\nHost: h\n\n").refused(&[400]),
        reply("a TLS ClientHello", "RFC 9112 3", b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03")
            .refused(&[400]),
        reply("half a request line", "RFC 9112 3", b"GET / HT").waiting(),
        reply("a head without its end", "RFC 9112 2.1", b"GET / HTTP/1.1\r\nHost: h\r\n").waiting(),
        reply("only an empty line", "RFC 9112 2.2", b"\r\n").waiting(),
        reply(
            "CONNECT to a server that is not a proxy",
            "RFC 9110 9.3.6",
            b"CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n",
        )
        .either([Expected::any_of(&[400, 403, 405, 501])]),
    ]
}

// Sizes: what must be taken, and what is refused as soon as it is too much.

/// Head of the limits, as `cases.rs` has them.
const HEAD_BYTES_MAX: usize = 16 * 1024;
const TARGET_BYTES_MAX: usize = 8000;

pub(super) fn limit_cases() -> Vec<Case> {
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

// Methods that are served, known or unknown, and expectations.

pub(super) fn method_cases() -> Vec<Case> {
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

// Host: there, once, and sound.

/// Host lines of an HTTP/1.1 request that are taken.
const HOSTS_SERVED: &[(&str, &str, &str)] = &[
    ("Host with a port", "RFC 9110 7.2", "Host: example.org:8080\r\n"),
    ("Host with an empty port", "RFC 3986 3.2.3", "Host: example.org:\r\n"),
    ("Host as an IPv4 address", "RFC 3986 3.2.2", "Host: 127.0.0.1\r\n"),
    ("Host as an IPv6 address", "RFC 3986 3.2.2", "Host: [::1]:80\r\n"),
    ("Host with an encoded byte", "RFC 3986 3.2.2", "Host: a%20b\r\n"),
    ("Host with an underscore", "RFC 3986 3.2.2", "Host: a_b\r\n"),
    ("Host in other capitals", "RFC 9110 5.1", "hOsT: h\r\n"),
    ("Host with white space around", "RFC 9112 5.1", "Host:\t h \r\n"),
    ("an empty Host", "RFC 9112 3.2", "Host:\r\n"),
];

/// Host lines of an HTTP/1.1 request that are refused with 400.
const HOSTS_REFUSED: &[(&str, &str, &str)] = &[
    ("no Host", "RFC 9112 3.2", ""),
    ("Host twice", "RFC 9112 3.2", "Host: a\r\nHost: b\r\n"),
    ("Host twice and equal", "RFC 9112 3.2", "Host: a\r\nhost: a\r\n"),
    ("Host with a space", "RFC 9112 3.2", "Host: a b\r\n"),
    ("Host with a path", "RFC 9112 3.2", "Host: a/b\r\n"),
    ("Host with a user", "RFC 9110 7.2", "Host: u@a\r\n"),
    ("Host with a scheme", "RFC 9110 7.2", "Host: http://a\r\n"),
    ("Host with a port that is not a number", "RFC 3986 3.2.3", "Host: a:b\r\n"),
    ("Host with a port beyond all", "RFC 3986 3.2.3", "Host: a:65536\r\n"),
    ("Host with two ports", "RFC 3986 3.2.3", "Host: a:1:2\r\n"),
    ("Host with an open bracket", "RFC 3986 3.2.2", "Host: [::1\r\n"),
    ("Host as IPv6 without brackets", "RFC 3986 3.2.2", "Host: ::1\r\n"),
    ("Host with a broken escape", "RFC 3986 2.1", "Host: a%2\r\n"),
    ("Host that is not ASCII", "RFC 9110 7.2", "Host: \u{e4}\r\n"),
    ("a space before the colon of Host", "RFC 9112 5.1", "Host : a\r\n"),
];

pub(super) fn host_cases() -> Vec<Case> {
    let reply = |name, rfc, line: &str, fields: &str| {
        case(Setup::Reply, name, rfc, format!("{line}\r\n{fields}\r\n"))
    };
    let served = HOSTS_SERVED
        .iter()
        .map(|&(name, rfc, fields)| reply(name, rfc, "GET / HTTP/1.1", fields).kept([ok()]));
    let refused = HOSTS_REFUSED
        .iter()
        .map(|&(name, rfc, fields)| reply(name, rfc, "GET / HTTP/1.1", fields).refused(&[400]));
    let mut host_cases: Vec<Case> = served.chain(refused).collect();
    let absolute = "GET http://a/ HTTP/1.1";
    host_cases.extend([
        reply("no Host in HTTP/1.0", "RFC 9112 3.2", "GET / HTTP/1.0", "").closed([ok()]),
        reply("a broken Host in HTTP/1.0", "RFC 9112 3.2", "GET / HTTP/1.0", "Host: a b\r\n")
            .refused(&[400]),
        reply("Host twice in HTTP/1.0", "RFC 9112 3.2", "GET / HTTP/1.0", "Host: a\r\nHost: a\r\n")
            .refused(&[400]),
        reply("another Host beside absolute-form", "RFC 9112 3.2.2", absolute, "Host: b\r\n")
            .kept([ok()]),
        reply("no Host beside absolute-form", "RFC 9112 3.2", absolute, "").refused(&[400]),
        reply("a broken Host beside absolute-form", "RFC 9112 3.2", absolute, "Host: a b\r\n")
            .refused(&[400]),
    ]);
    host_cases
}

// Field lines: their syntax, white space, folding and line ends.

/// Field lines that are taken.
const FIELDS_SERVED: &[(&str, &str, &str)] = &[
    ("a field without a value", "RFC 9110 5.5", "X:\r\n"),
    ("no white space behind the colon", "RFC 9112 5.1", "X:y\r\n"),
    ("white space around a value", "RFC 9112 5.1", "X: \t y \t \r\n"),
    ("bytes above ASCII in a value", "RFC 9110 5.5", "X: \u{e4}\u{20ac}\r\n"),
    ("every token byte in a name", "RFC 9110 5.6.2", "!#$%&'*+-.^_`|~09aZ: y\r\n"),
    ("a colon in a value", "RFC 9110 5.5", "X: a:b:c\r\n"),
    ("an unknown field twice", "RFC 9110 5.3", "X: y\r\nX: y\r\n"),
    ("an unknown Upgrade", "RFC 9110 7.8", "Connection: upgrade\r\nUpgrade: h2c\r\n"),
];

/// Field lines that are refused with 400.
const FIELDS_REFUSED: &[(&str, &str, &str)] = &[
    ("a space before the colon", "RFC 9112 5.1", "X : y\r\n"),
    ("a tab before the colon", "RFC 9112 5.1", "X\t: y\r\n"),
    ("a space before the colon of Content-Length", "RFC 9112 5.1", "Content-Length : 0\r\n"),
    ("no colon", "RFC 9112 5", "X\r\n"),
    ("no name", "RFC 9110 5.1", ": y\r\n"),
    ("a space in a name", "RFC 9110 5.1", "X Y: z\r\n"),
    ("a bracket in a name", "RFC 9110 5.1", "X(Y): z\r\n"),
    ("a control byte in a name", "RFC 9110 5.1", "X\x01: y\r\n"),
    ("NUL in a name", "RFC 9110 5.1", "X\0: y\r\n"),
    ("a name that is not ASCII", "RFC 9110 5.1", "\u{e4}: y\r\n"),
    ("a folded line", "RFC 9112 5.2", "X: y\r\n z\r\n"),
    ("a line folded with a tab", "RFC 9112 5.2", "X: y\r\n\tz\r\n"),
    ("a folded line without content", "RFC 9112 5.2", "X: y\r\n \r\n"),
    ("NUL in a value", "RFC 9110 5.5", "X: a\0b\r\n"),
    ("DEL in a value", "RFC 9110 5.5", "X: a\x7fb\r\n"),
    ("a bell in a value", "RFC 9110 5.5", "X: \x07\r\n"),
    ("a vertical tab in a value", "RFC 9110 5.5", "X: a\x0bb\r\n"),
    ("a CR in a value", "RFC 9110 5.5", "X: a\rb\r\n"),
    ("a CR behind a value", "RFC 9112 2.2", "X: a\r\r\n"),
    ("a bare LF behind a value", "RFC 9112 2.2", "X: y\nZ: z\r\n"),
    ("a bare LF behind the last value", "RFC 9112 2.2", "X: y\n"),
    ("a bare LF behind an empty value", "RFC 9112 2.2", "X:\n"),
    ("a bare LF as the empty line", "RFC 9112 2.2", "\n"),
];

pub(super) fn field_cases() -> Vec<Case> {
    let served = FIELDS_SERVED
        .iter()
        .map(|&(name, rfc, fields)| case(Setup::Reply, name, rfc, get(fields)).kept([ok()]));
    let refused = FIELDS_REFUSED
        .iter()
        .map(|&(name, rfc, fields)| case(Setup::Reply, name, rfc, get(fields)).refused(&[400]));
    let mut field_cases: Vec<Case> = served.chain(refused).collect();
    field_cases.push(
        case(
            Setup::Reply,
            "white space before the first field",
            "RFC 9112 2.2",
            "GET / HTTP/1.1\r\n X: y\r\nHost: h\r\n\r\n",
        )
        .refused(&[400]),
    );
    field_cases
}
