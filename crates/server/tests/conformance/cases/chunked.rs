//! Chunked bodies: sizes, extensions, line ends and trailers.

use crate::case::{Case, Setup, case, get, ok, post};

/// Bodies that are taken, and their bytes.
const SERVED: &[(&str, &str, &str, &str)] = &[
    ("no chunk", "RFC 9112 7.1", "0\r\n\r\n", ""),
    ("several chunks", "RFC 9112 7.1", "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", "abcde"),
    ("a size in capitals", "RFC 9112 7.1", "A\r\n0123456789\r\n0\r\n\r\n", "0123456789"),
    ("a size in small letters", "RFC 9112 7.1", "a\r\n0123456789\r\n0\r\n\r\n", "0123456789"),
    ("zeros before a size", "RFC 9112 7.1", "0005\r\nhello\r\n0000\r\n\r\n", "hello"),
    ("a chunk that looks like an end", "RFC 9112 7.1", "5\r\n0\r\n\r\n\r\n0\r\n\r\n", "0\r\n\r\n"),
    ("a chunk extension", "RFC 9112 7.1.1", "5;a=b\r\nhello\r\n0;c\r\n\r\n", "hello"),
    ("a quoted chunk extension", "RFC 9112 7.1.1", "5;a=\"b;c\"\r\nhello\r\n0\r\n\r\n", "hello"),
    ("white space before an extension", "RFC 9112 7.1.1", "5 ; a\r\nhello\r\n0\r\n\r\n", "hello"),
    (
        "white space around the parts of extensions",
        "RFC 9112 7.1.1",
        "5 ;\ta \t= b ; c\r\nhello\r\n0\r\n\r\n",
        "hello",
    ),
    (
        "several chunk extensions",
        "RFC 9112 7.1.1",
        "5;a;b=c;d=\"e\";f\r\nhello\r\n0;g=h\r\n\r\n",
        "hello",
    ),
    (
        "an escaped quote in a chunk extension",
        "RFC 9110 5.6.4",
        "5;a=\"\\\";b\"\r\nhello\r\n0\r\n\r\n",
        "hello",
    ),
    (
        "an empty quoted chunk extension",
        "RFC 9110 5.6.4",
        "5;a=\"\"\r\nhello\r\n0\r\n\r\n",
        "hello",
    ),
    (
        "bytes above ASCII in a quoted chunk extension",
        "RFC 9110 5.6.4",
        "5;a=\"\u{e4}\t \"\r\nhello\r\n0\r\n\r\n",
        "hello",
    ),
    ("a trailer", "RFC 9112 7.1.2", "5\r\nhello\r\n0\r\nX: y\r\n\r\n", "hello"),
    (
        "a trailer that names Content-Length",
        "RFC 9110 6.5.1",
        "5\r\nhello\r\n0\r\nContent-Length: 99\r\n\r\n",
        "hello",
    ),
    (
        "a trailer that names Host",
        "RFC 9110 6.5.1",
        "5\r\nhello\r\n0\r\nHost: a b\r\n\r\n",
        "hello",
    ),
    (
        "a trailer that closes nothing",
        "RFC 9110 6.5.1",
        "5\r\nhello\r\n0\r\nConnection: close\r\n\r\n",
        "hello",
    ),
];

/// Bodies that are refused with 400 before a byte of them has come.
const REFUSED: &[(&str, &str, &str)] = &[
    ("a bare LF behind a size", "RFC 9112 7.1", "5\nhello\r\n0\r\n\r\n"),
    ("a CR alone behind a size", "RFC 9112 7.1", "5\rhello\r\n0\r\n\r\n"),
    ("a bare LF behind an extension", "RFC 9112 7.1.1", "5;a\nhello\r\n0\r\n\r\n"),
    ("a space before a size", "RFC 9112 7.1", " 5\r\nhello\r\n0\r\n\r\n"),
    ("a space behind a size", "RFC 9112 7.1", "5 \r\nhello\r\n0\r\n\r\n"),
    ("a minus before a size", "RFC 9112 7.1", "-5\r\nhello\r\n0\r\n\r\n"),
    ("a plus before a size", "RFC 9112 7.1", "+5\r\nhello\r\n0\r\n\r\n"),
    ("0x before a size", "RFC 9112 7.1", "0x5\r\nhello\r\n0\r\n\r\n"),
    ("an underscore in a size", "RFC 9112 7.1", "0_5\r\nhello\r\n0\r\n\r\n"),
    ("a size that is not a number", "RFC 9112 7.1", "g\r\nhello\r\n0\r\n\r\n"),
    ("no size", "RFC 9112 7.1", "\r\nhello\r\n0\r\n\r\n"),
    ("an extension without a size", "RFC 9112 7.1.1", ";a\r\nhello\r\n0\r\n\r\n"),
    ("a size of 17 digits", "RFC 9112 7.1", "10000000000000005\r\nhello\r\n0\r\n\r\n"),
    ("an extension without a name", "RFC 9112 7.1.1", "5;\r\nhello\r\n0\r\n\r\n"),
    ("an extension of white space", "RFC 9112 7.1.1", "5; \r\nhello\r\n0\r\n\r\n"),
    ("an extension without a name at the end", "RFC 9112 7.1.1", "5;a;\r\nhello\r\n0\r\n\r\n"),
    ("two semicolons before an extension", "RFC 9112 7.1.1", "5;;a\r\nhello\r\n0\r\n\r\n"),
    ("an extension that is a value alone", "RFC 9112 7.1.1", "5;=b\r\nhello\r\n0\r\n\r\n"),
    ("an extension without its value", "RFC 9112 7.1.1", "5;a=\r\nhello\r\n0\r\n\r\n"),
    ("an extension with two values", "RFC 9112 7.1.1", "5;a=b=c\r\nhello\r\n0\r\n\r\n"),
    ("an extension of two words", "RFC 9112 7.1.1", "5;a b\r\nhello\r\n0\r\n\r\n"),
    ("a bracket in an extension", "RFC 9112 7.1.1", "5;bad[=x\r\nhello\r\n0\r\n\r\n"),
    ("a comma in an extension's value", "RFC 9112 7.1.1", "5;a=b,c\r\nhello\r\n0\r\n\r\n"),
    (
        "an extension's value that is not ASCII",
        "RFC 9112 7.1.1",
        "5;a=\u{e4}\r\nhello\r\n0\r\n\r\n",
    ),
    ("an extension's quote that does not end", "RFC 9110 5.6.4", "5;a=\"b\r\nhello\r\n0\r\n\r\n"),
    ("an extension behind an escaped quote", "RFC 9110 5.6.4", "5;a=\"b\\\"\r\nhello\r\n0\r\n\r\n"),
    (
        "a control byte in an extension's quote",
        "RFC 9110 5.6.4",
        "5;a=\"\x01\"\r\nhello\r\n0\r\n\r\n",
    ),
    ("an extension's word behind its quote", "RFC 9112 7.1.1", "5;a=\"b\"c\r\nhello\r\n0\r\n\r\n"),
    ("a space behind an extension", "RFC 9112 7.1.1", "5;a \r\nhello\r\n0\r\n\r\n"),
    ("a space behind an extension's value", "RFC 9112 7.1.1", "5;a=b \r\nhello\r\n0\r\n\r\n"),
    ("a space behind an extension's quote", "RFC 9112 7.1.1", "5;a=\"b\" \r\nhello\r\n0\r\n\r\n"),
    ("an extension of the last chunk without a name", "RFC 9112 7.1.1", "0;\r\n\r\n"),
    ("a tab behind a size", "RFC 9112 7.1", "5\t\r\nhello\r\n0\r\n\r\n"),
    ("a decimal point in a size", "RFC 9112 7.1", "5.0\r\nhello\r\n0\r\n\r\n"),
    ("an h behind a size", "RFC 9112 7.1", "5h\r\nhello\r\n0\r\n\r\n"),
    ("a size in other digits", "RFC 9112 7.1", "\u{665}\r\nhello\r\n0\r\n\r\n"),
    ("17 zeros as a size", "RFC 9112 7.1", "00000000000000000\r\n\r\n"),
    ("CR CR LF behind a size", "RFC 9112 7.1", "5\r\r\nhello\r\n0\r\n\r\n"),
    ("NUL behind a size", "RFC 9112 7.1", "5\0\r\nhello\r\n0\r\n\r\n"),
    ("NUL in an extension", "RFC 9112 7.1.1", "5;\0\r\nhello\r\n0\r\n\r\n"),
    ("a trailer without a colon", "RFC 9112 7.1.2", "0\r\nX\r\n\r\n"),
    ("a space before the colon of a trailer", "RFC 9112 5.1", "0\r\nX : y\r\n\r\n"),
    ("a folded trailer", "RFC 9112 5.2", "0\r\nX: y\r\n z\r\n\r\n"),
    ("NUL in a trailer", "RFC 9110 5.5", "0\r\nX: \0\r\n\r\n"),
    ("a bare LF behind a trailer", "RFC 9112 2.2", "0\r\nX: y\n\r\n"),
    (
        "a request where the empty line should be",
        "RFC 9112 7.1",
        "0\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
    ),
];

/// Bodies whose fault stands behind their first bytes.
const BROKEN: &[(&str, &str, &str)] = &[
    ("a bare LF behind a chunk", "RFC 9112 7.1", "5\r\nhello\n0\r\n\r\n"),
    ("a bare LF at the end", "RFC 9112 7.1", "5\r\nhello\r\n0\r\n\n"),
    ("a chunk longer than its size", "RFC 9112 7.1", "5\r\nhello!\r\n0\r\n\r\n"),
    ("a chunk shorter than its size", "RFC 9112 7.1", "6\r\nhello\r\n0\r\n\r\n"),
    ("a second size that is not a number", "RFC 9112 7.1", "5\r\nhello\r\ng\r\n"),
    ("a broken trailer behind a chunk", "RFC 9112 7.1.2", "5\r\nhello\r\n0\r\nX\r\n\r\n"),
];

const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";

pub(crate) fn cases() -> Vec<Case> {
    let echo = |name, rfc, body: &str| case(Setup::Echo, name, rfc, post(CHUNKED, body));
    // What stands behind a whole body is a request of its own.
    let served = SERVED.iter().map(|&(name, rfc, wire, body)| {
        echo(name, rfc, &format!("{wire}{}", get(""))).kept([ok().body(body), ok().body("")])
    });
    let refused = REFUSED.iter().map(|&(name, rfc, wire)| echo(name, rfc, wire).refused(&[400]));
    let broken =
        BROKEN.iter().map(|&(name, rfc, wire)| echo(name, rfc, wire).refused_or_cut(&[400]));
    let mut cases: Vec<Case> = served.chain(refused).chain(broken).collect();
    let small = "1\r\nx\r\n".repeat(500) + "0\r\n\r\n";
    cases.extend([
        echo("500 chunks of one byte", "RFC 9112 7.1", &small).kept([ok().body("x".repeat(500))]),
        echo("a chunk that is not whole", "RFC 9112 8", "5\r\nhel").waiting(),
        echo("a body without its last chunk", "RFC 9112 8", "5\r\nhello\r\n").waiting(),
        echo("a trailer section without its end", "RFC 9112 7.1.2", "0\r\nX: y\r\n").waiting(),
    ]);
    cases
}
