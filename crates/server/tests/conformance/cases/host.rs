//! Host: there, once, and sound.

use crate::case::{Case, Setup, case, ok};

/// Host lines of an HTTP/1.1 request that are taken.
const SERVED: &[(&str, &str, &str)] = &[
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
const REFUSED: &[(&str, &str, &str)] = &[
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

pub(crate) fn cases() -> Vec<Case> {
    let reply = |name, rfc, line: &str, fields: &str| {
        case(Setup::Reply, name, rfc, format!("{line}\r\n{fields}\r\n"))
    };
    let served = SERVED
        .iter()
        .map(|&(name, rfc, fields)| reply(name, rfc, "GET / HTTP/1.1", fields).kept([ok()]));
    let refused = REFUSED
        .iter()
        .map(|&(name, rfc, fields)| reply(name, rfc, "GET / HTTP/1.1", fields).refused(&[400]));
    let mut cases: Vec<Case> = served.chain(refused).collect();
    let absolute = "GET http://a/ HTTP/1.1";
    cases.extend([
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
    cases
}
