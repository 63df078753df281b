//! Request lines: methods, targets in their four forms, versions, and what stands before them.

use super::{BODY_BYTES_MAX, Case, Expected, Interim, Setup, case, get, ok, post};

/// Lines that are taken.
const SERVED: &[(&str, &str, &str)] = &[
    ("a plain GET", "9112 3", "GET / HTTP/1.1"),
    ("a query", "9112 3.2.1", "GET /a?b=c&d HTTP/1.1"),
    ("bytes that browsers do not encode", "9112 3.2", "GET /a|b{c}[d]\"e HTTP/1.1"),
    ("a path with an empty segment", "9112 3.2.1", "GET //a HTTP/1.1"),
    ("a later minor version", "9110 2.5", "GET / HTTP/1.2"),
    ("the last minor version", "9110 2.5", "GET / HTTP/1.9"),
    ("absolute-form", "9112 3.2.2", "GET http://h/a?b HTTP/1.1"),
    ("absolute-form with a port", "9112 3.2.2", "GET http://h:8080/ HTTP/1.1"),
    ("absolute-form without a path", "9112 3.2.2", "GET http://h HTTP/1.1"),
    ("absolute-form, scheme in capitals", "9110 4.2.3", "GET HTTP://h/ HTTP/1.1"),
    ("absolute-form for another host", "9112 3.2.2", "GET http://other/ HTTP/1.1"),
];

/// Lines that are refused with 400.
const REFUSED: &[(&str, &str, &str)] = &[
    ("no method", "9112 3.1", " / HTTP/1.1"),
    ("a control byte in the method", "9112 3.1", "G\x01T / HTTP/1.1"),
    ("a method that is not a token", "9112 3.1", "G(T / HTTP/1.1"),
    ("a tab instead of a space", "9112 3", "GET\t/ HTTP/1.1"),
    ("two spaces before the target", "9112 3", "GET  / HTTP/1.1"),
    ("two spaces behind the target", "9112 3", "GET /  HTTP/1.1"),
    ("a space behind the version", "9112 3", "GET / HTTP/1.1 "),
    ("a space in the target", "9112 3.2", "GET /a b HTTP/1.1"),
    ("no target", "9112 3.2", "GET HTTP/1.1"),
    ("no version", "9112 2.3", "GET /"),
    ("NUL in the target", "9112 3.2", "GET /\0 HTTP/1.1"),
    ("DEL in the target", "9112 3.2", "GET /\x7f HTTP/1.1"),
    ("a target that is not ASCII", "9112 3.2", "GET /\u{e4} HTTP/1.1"),
    ("a fragment", "9112 3.2.1", "GET /a#b HTTP/1.1"),
    ("a target without a slash", "9112 3.2", "GET a HTTP/1.1"),
    ("asterisk-form with GET", "9112 3.2.4", "GET * HTTP/1.1"),
    ("authority-form with GET", "9112 3.2.3", "GET h:80 HTTP/1.1"),
    ("origin-form with CONNECT", "9112 3.2.3", "CONNECT / HTTP/1.1"),
    ("CONNECT without a port", "9110 9.3.6", "CONNECT h HTTP/1.1"),
    ("absolute-form with ftp", "9112 3.2.2", "GET ftp://h/ HTTP/1.1"),
    ("absolute-form without a host", "9110 4.2.1", "GET http:///a HTTP/1.1"),
    ("absolute-form with a user", "9110 4.2.4", "GET http://u@h/ HTTP/1.1"),
    ("version in lower case", "9112 2.3", "GET / http/1.1"),
    ("no minor version", "9112 2.3", "GET / HTTP/1"),
    ("an empty minor version", "9112 2.3", "GET / HTTP/1."),
    ("two digits of major version", "9112 2.3", "GET / HTTP/11.1"),
    ("two digits of minor version", "9112 2.3", "GET / HTTP/1.10"),
    ("a zero before the major version", "9112 2.3", "GET / HTTP/01.1"),
    ("a zero before the minor version", "9112 2.3", "GET / HTTP/1.01"),
    ("zeros before both versions", "9112 2.3", "GET / HTTP/01.01"),
    ("two digits of a later major version", "9112 2.3", "GET / HTTP/20.0"),
    ("a later major version alone", "9112 2.3", "GET / HTTP/2"),
    ("a later version with a space behind", "9112 2.3", "GET / HTTP/2.0 "),
    ("a plus before the version", "9112 2.3", "GET / HTTP/+1.1"),
    ("a minus before the version", "9112 2.3", "GET / HTTP/-1.1"),
    ("a comma in the version", "9112 2.3", "GET / HTTP/1,1"),
    ("a space in the version", "9112 2.3", "GET / HTTP/ 1.1"),
    ("a tab behind the version", "9112 2.3", "GET / HTTP/1.1\t"),
    ("NUL behind the version", "9112 2.3", "GET / HTTP/1.1\0"),
    ("the version's name in mixed case", "9112 2.3", "GET / Http/1.1"),
    ("a version in other digits", "9112 2.3", "GET / HTTP/\u{661}.1"),
    ("CR CR LF behind the version", "9112 2.2", "GET / HTTP/1.1\r"),
    ("another protocol", "9112 2.3", "GET / RTSP/1.0"),
];

/// Lines that are refused with another status.
const REFUSED_OTHERWISE: &[(&str, &str, &[u16], &str)] = &[
    ("version 2.0 in this syntax", "9110 15.6.6", &[505], "GET / HTTP/2.0"),
    ("version 0.9 spelled out", "9110 15.6.6", &[505], "GET / HTTP/0.9"),
    ("the preface of HTTP/2", "9113 3.4", &[505], "PRI * HTTP/2.0"),
    (
        "a method longer than any",
        "9112 3",
        &[501],
        "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJ / HTTP/1.1",
    ),
    ("https on a connection without TLS", "9110 7.4", &[421, 400], "GET https://h/ HTTP/1.1"),
];

pub(crate) fn cases() -> Vec<Case> {
    let of = |name, rfc, line| case(Setup::Reply, name, rfc, format!("{line}\r\nHost: h\r\n\r\n"));
    let served = SERVED.iter().map(|&(name, rfc, line)| of(name, rfc, line).kept([ok()]));
    let refused = REFUSED.iter().map(|&(name, rfc, line)| of(name, rfc, line).refused(&[400]));
    let otherwise = REFUSED_OTHERWISE
        .iter()
        .map(|&(name, rfc, statuses, line)| of(name, rfc, line).refused(statuses));
    let starts = STARTS_REFUSED
        .iter()
        .map(|&(name, rfc, request)| case(Setup::Reply, name, rfc, request).refused(&[400]));
    let parts =
        PARTS.iter().map(|&(name, rfc, part)| case(Setup::Reply, name, rfc, part).waiting());
    let mut cases: Vec<Case> =
        served.chain(refused).chain(otherwise).chain(starts).chain(parts).collect();
    let after_empty_line = format!("\r\n{}", get(""));
    let tunnel = "CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n";
    cases.extend([
        case(Setup::Reply, "an empty line before the request", "9112 2.2", after_empty_line)
            .kept([ok()]),
        case(Setup::Reply, "CONNECT to a server that is not a proxy", "9110 9.3.6", tunnel)
            .either([Expected::any_of(&[400, 403, 405, 501])]),
    ]);
    cases
}

/// What stands before the request line or at its end, and is refused with 400.
const STARTS_REFUSED: &[(&str, &str, &[u8])] = &[
    ("a bare LF before the request", "9112 2.2", b"\nGET / HTTP/1.1\r\nHost: h\r\n\r\n"),
    ("a CR alone before the request", "9112 2.2", b"\rGET / HTTP/1.1\r\nHost: h\r\n\r\n"),
    ("a bare LF behind the request line", "9112 2.2", b"GET / HTTP/1.1\nHost: h\r\n\r\n"),
    ("a CR alone behind the request line", "9112 2.2", b"GET / HTTP/1.1\rHost: h\r\n\r\n"),
    ("bare LF everywhere", "9112 2.2", b"GET / HTTP/1.1\nHost: h\n\n"),
    ("a TLS ClientHello", "9112 3", b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03"),
];

/// Heads that are not whole.
const PARTS: &[(&str, &str, &str)] = &[
    ("half a request line", "9112 3", "GET / HT"),
    ("a head without its end", "9112 2.1", "GET / HTTP/1.1\r\nHost: h\r\n"),
    ("only an empty line", "9112 2.2", "\r\n"),
];

/// Head of the limits, as `cases.rs` has them.
const HEAD_BYTES_MAX: usize = 40 * 1024;
const TARGET_BYTES_MAX: usize = 8 * 1024;

pub(super) fn limit_cases() -> Vec<Case> {
    heads().into_iter().chain(bodies()).collect()
}

fn heads() -> Vec<Case> {
    let target = |len: usize| format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(len - 1));
    let head = |len: usize| get(&format!("X: {}\r\n", "y".repeat(len - get("X: \r\n").len())));
    let fields = |count: usize| get(&"X: y\r\n".repeat(count - 1));
    let line = "GET / HTTP/1.1\r\nHost: h\r\n";
    let served = [
        ("a target as long as the limit", "9112 3", target(TARGET_BYTES_MAX)),
        ("a head as long as the limit", "6585 5", head(HEAD_BYTES_MAX)),
        ("17 fields", "9110 5.4", fields(17)),
        ("1000 fields", "9110 5.4", fields(1000)),
        ("a value of 8000 bytes", "9110 5.4", get(&format!("X: {}\r\n", "y".repeat(8000)))),
    ];
    let refused: [(_, _, &[u16], _); 8] = [
        ("a target longer than the limit", "9110 15.5.15", &[414], target(TARGET_BYTES_MAX + 1)),
        ("a request line without an end", "9110 15.5.15", &[414], format!("GET /{:a<20000}", "")),
        (
            "a query longer than the limit",
            "9110 15.5.15",
            &[414],
            format!("GET /?{:a<9000} HTTP/1.1\r\n", ""),
        ),
        ("a head longer than the limit", "6585 5", &[431], head(HEAD_BYTES_MAX + 1)),
        ("a field without an end", "6585 5", &[431], format!("{line}X: {:y<50000}", "")),
        ("a name without an end", "6585 5", &[431], format!("{line}{:y<50000}", "")),
        ("1001 fields", "6585 5", &[431], fields(1001)),
        ("20 empty lines before a request", "9112 2.2", &[400], "\r\n".repeat(20) + &get("")),
    ];
    let reply = |name, rfc, request: String| case(Setup::Reply, name, rfc, request);
    let served = served.map(|(name, rfc, request)| reply(name, rfc, request).kept([ok()]));
    let refused =
        refused.map(|(name, rfc, statuses, request)| reply(name, rfc, request).refused(statuses));
    served.into_iter().chain(refused).collect()
}

fn bodies() -> Vec<Case> {
    const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";
    let sized = |len: usize| format!("Content-Length: {len}\r\n");
    let body = "b".repeat(BODY_BYTES_MAX);
    let in_two_chunks = |second: &str| format!("{BODY_BYTES_MAX:x}\r\n{body}\r\n{second}");
    let chunked = |wire: &str| post(CHUNKED, wire);
    let many_extensions = format!("1;{:a<1000}\r\nx\r\n", "").repeat(40);
    let echo = |name, rfc, request: String| case(Setup::Echo, name, rfc, request);
    let large = "9110 15.5.14";
    let served = [
        ("a body of 100 kB", "9112 6.2", post(&sized(100_000), &body[..100_000]), &body[..100_000]),
        ("a body as large as the limit", large, post(&sized(body.len()), &body), &body),
        ("chunks as large as the limit", large, chunked(&in_two_chunks("0\r\n\r\n")), &body),
    ];
    let refused: [(_, _, &[u16], _); 6] = [
        ("an announced body above the limit", large, &[413], post(&sized(BODY_BYTES_MAX + 1), "")),
        ("an announced chunk above the limit", large, &[413], chunked("7fffffff\r\n")),
        ("the largest chunk there is", "9112 7.1", &[413], chunked("ffffffffffffffff\r\n")),
        (
            "a chunk extension without an end",
            "9112 7.1.1",
            &[400],
            chunked(&format!("5;{:a<5000}", "")),
        ),
        ("an endless trailer", "6585 5", &[431], chunked(&format!("0\r\nX: {:y<10000}", ""))),
        (
            "1001 trailers",
            "6585 5",
            &[431],
            chunked(&format!("0\r\n{}\r\n", "X: y\r\n".repeat(1001))),
        ),
    ];
    let served =
        served.map(|(name, rfc, request, body)| echo(name, rfc, request).kept([ok().body(body)]));
    let refused =
        refused.map(|(name, rfc, statuses, request)| echo(name, rfc, request).refused(statuses));
    let cut = [
        echo("chunks above the limit", large, chunked(&in_two_chunks("1\r\n")))
            .refused_or_cut(&[413]),
        echo("more extensions than body", "9112 7.1.1", chunked(&many_extensions))
            .refused_or_cut(&[400]),
    ];
    served.into_iter().chain(refused).chain(cut).collect()
}

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
        reply("HEAD of a reply", "9110 9.3.2", "HEAD")
            .kept([ok().for_head().has("Content-Length", "128")]),
        reply("GET of a reply", "9110 9.3.1", "GET").kept([ok().has("Content-Length", "128")]),
        reply("POST of a reply", "9110 9.3.3", "POST").either([Expected::any_of(&[200, 405])]),
        reply("TRACE", "9110 9.3.8", "TRACE").either([Expected::any_of(&[405, 501])]),
        reply("OPTIONS of a target", "9110 9.3.7", "OPTIONS")
            .either([Expected::any_of(&[200, 204, 405])]),
        case(Setup::Reply, "OPTIONS of the server", "9112 3.2.4", request("OPTIONS", "*"))
            .either([Expected::any_of(&[200, 204, 405])]),
        reply_raw("HEAD that is refused", "9110 9.3.2", "HEAD / HTTP/1.1\r\n\r\n".to_owned())
            .closed([Expected::any_of(&[400]).for_head()]),
        reply_raw(
            "CONNECT, and what may be meant for the tunnel",
            "9110 9.3.6",
            format!("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n{}", request("GET", "/")),
        )
        .closed([Expected::any_of(&[405])]),
        case(
            Setup::Echo,
            "GET of an echo, with a body",
            "9110 9.3.1",
            get("Content-Length: 2\r\n") + "ok",
        )
        .kept([ok().body("ok")]),
        echo("GET of an echo", "9110 9.3.1", "GET").kept([ok().body("")]),
        echo("HEAD of an echo", "9110 9.3.2", "HEAD").kept([ok().for_head()]),
        case(
            Setup::Echo,
            "PUT to an echo",
            "9110 9.3.4",
            "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nok",
        )
        .kept([ok().body("ok")]),
    ]
}

/// Files are only read: every other known method is refused.
fn not_allowed() -> Vec<Case> {
    let files = |name, request: String| {
        case(Setup::Files, name, "9110 15.5.6", request)
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
        case(Setup::Reply, name, "9110 15.6.2", request(method, "/"))
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
    let echo = |name, request: String| case(Setup::Echo, name, "9110 10.1.1", request);
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

/// Host lines of an HTTP/1.1 request that are taken.
const HOSTS_SERVED: &[(&str, &str, &str)] = &[
    ("Host with a port", "9110 7.2", "Host: example.org:8080\r\n"),
    ("Host with an empty port", "3986 3.2.3", "Host: example.org:\r\n"),
    ("Host as an IPv4 address", "3986 3.2.2", "Host: 127.0.0.1\r\n"),
    ("Host as an IPv6 address", "3986 3.2.2", "Host: [::1]:80\r\n"),
    ("Host with an encoded byte", "3986 3.2.2", "Host: a%20b\r\n"),
    ("Host with an underscore", "3986 3.2.2", "Host: a_b\r\n"),
    ("Host in other capitals", "9110 5.1", "hOsT: h\r\n"),
    ("Host with white space around", "9112 5.1", "Host:\t h \r\n"),
    ("an empty Host", "9112 3.2", "Host:\r\n"),
];

/// Host lines of an HTTP/1.1 request that are refused with 400.
const HOSTS_REFUSED: &[(&str, &str, &str)] = &[
    ("no Host", "9112 3.2", ""),
    ("Host twice", "9112 3.2", "Host: a\r\nHost: b\r\n"),
    ("Host twice and equal", "9112 3.2", "Host: a\r\nhost: a\r\n"),
    ("Host with a space", "9112 3.2", "Host: a b\r\n"),
    ("Host with a path", "9112 3.2", "Host: a/b\r\n"),
    ("Host with a user", "9110 7.2", "Host: u@a\r\n"),
    ("Host with a scheme", "9110 7.2", "Host: http://a\r\n"),
    ("Host with a port that is not a number", "3986 3.2.3", "Host: a:b\r\n"),
    ("Host with a port beyond all", "3986 3.2.3", "Host: a:65536\r\n"),
    ("Host with two ports", "3986 3.2.3", "Host: a:1:2\r\n"),
    ("Host with an open bracket", "3986 3.2.2", "Host: [::1\r\n"),
    ("Host as IPv6 without brackets", "3986 3.2.2", "Host: ::1\r\n"),
    ("Host with a broken escape", "3986 2.1", "Host: a%2\r\n"),
    ("Host that is not ASCII", "9110 7.2", "Host: \u{e4}\r\n"),
    ("a space before the colon of Host", "9112 5.1", "Host : a\r\n"),
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
        reply("no Host in HTTP/1.0", "9112 3.2", "GET / HTTP/1.0", "").closed([ok()]),
        reply("a broken Host in HTTP/1.0", "9112 3.2", "GET / HTTP/1.0", "Host: a b\r\n")
            .refused(&[400]),
        reply("Host twice in HTTP/1.0", "9112 3.2", "GET / HTTP/1.0", "Host: a\r\nHost: a\r\n")
            .refused(&[400]),
        reply("another Host beside absolute-form", "9112 3.2.2", absolute, "Host: b\r\n")
            .kept([ok()]),
        reply("no Host beside absolute-form", "9112 3.2", absolute, "").refused(&[400]),
        reply("a broken Host beside absolute-form", "9112 3.2", absolute, "Host: a b\r\n")
            .refused(&[400]),
    ]);
    host_cases
}

/// Field lines that are taken.
const FIELDS_SERVED: &[(&str, &str, &str)] = &[
    ("a field without a value", "9110 5.5", "X:\r\n"),
    ("no white space behind the colon", "9112 5.1", "X:y\r\n"),
    ("white space around a value", "9112 5.1", "X: \t y \t \r\n"),
    ("bytes above ASCII in a value", "9110 5.5", "X: \u{e4}\u{20ac}\r\n"),
    ("every token byte in a name", "9110 5.6.2", "!#$%&'*+-.^_`|~09aZ: y\r\n"),
    ("a colon in a value", "9110 5.5", "X: a:b:c\r\n"),
    ("an unknown field twice", "9110 5.3", "X: y\r\nX: y\r\n"),
    ("an unknown Upgrade", "9110 7.8", "Connection: upgrade\r\nUpgrade: h2c\r\n"),
];

/// Field lines that are refused with 400.
const FIELDS_REFUSED: &[(&str, &str, &str)] = &[
    ("a space before the colon", "9112 5.1", "X : y\r\n"),
    ("a tab before the colon", "9112 5.1", "X\t: y\r\n"),
    ("a space before the colon of Content-Length", "9112 5.1", "Content-Length : 0\r\n"),
    ("no colon", "9112 5", "X\r\n"),
    ("no name", "9110 5.1", ": y\r\n"),
    ("a space in a name", "9110 5.1", "X Y: z\r\n"),
    ("a bracket in a name", "9110 5.1", "X(Y): z\r\n"),
    ("a control byte in a name", "9110 5.1", "X\x01: y\r\n"),
    ("NUL in a name", "9110 5.1", "X\0: y\r\n"),
    ("a name that is not ASCII", "9110 5.1", "\u{e4}: y\r\n"),
    ("a folded line", "9112 5.2", "X: y\r\n z\r\n"),
    ("a line folded with a tab", "9112 5.2", "X: y\r\n\tz\r\n"),
    ("a folded line without content", "9112 5.2", "X: y\r\n \r\n"),
    ("NUL in a value", "9110 5.5", "X: a\0b\r\n"),
    ("DEL in a value", "9110 5.5", "X: a\x7fb\r\n"),
    ("a bell in a value", "9110 5.5", "X: \x07\r\n"),
    ("a vertical tab in a value", "9110 5.5", "X: a\x0bb\r\n"),
    ("a CR in a value", "9110 5.5", "X: a\rb\r\n"),
    ("a CR behind a value", "9112 2.2", "X: a\r\r\n"),
    ("a bare LF behind a value", "9112 2.2", "X: y\nZ: z\r\n"),
    ("a bare LF behind the last value", "9112 2.2", "X: y\n"),
    ("a bare LF behind an empty value", "9112 2.2", "X:\n"),
    ("a bare LF as the empty line", "9112 2.2", "\n"),
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
            "9112 2.2",
            "GET / HTTP/1.1\r\n X: y\r\nHost: h\r\n\r\n",
        )
        .refused(&[400]),
    );
    field_cases
}
