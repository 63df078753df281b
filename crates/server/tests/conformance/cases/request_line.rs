//! Request lines: methods, targets in their four forms, versions, and what stands before them.

use crate::case::{Case, Expected, Setup, case, get, ok};

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
