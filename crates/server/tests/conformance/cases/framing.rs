//! Content-Length and Transfer-Encoding: every way to be understood in two ways is refused.
//!
//! Behind each refused head stands a request that must not be answered.

use crate::case::{Case, Expected, Setup, case, get, ok, post};

/// Fields that say the body has five bytes.
const FIVE: &[(&str, &str, &str)] = &[
    ("Content-Length", "RFC 9112 6.2", "Content-Length: 5\r\n"),
    ("Content-Length with zeros in front", "RFC 9110 8.6", "Content-Length: 0005\r\n"),
    ("Content-Length in other capitals", "RFC 9110 5.1", "CONTENT-LENGTH: 5\r\n"),
    ("Content-Length with white space around", "RFC 9112 5.1", "Content-Length:\t5 \r\n"),
];

/// Fields that say the body is chunked.
const CHUNKED: &[(&str, &str, &str)] = &[
    ("chunked", "RFC 9112 7.1", "Transfer-Encoding: chunked\r\n"),
    ("chunked in other capitals", "RFC 9112 7", "Transfer-Encoding: cHuNkEd\r\n"),
    ("chunked with white space around", "RFC 9112 5.1", "Transfer-Encoding: \tchunked\t\r\n"),
];

/// Heads of a POST that are refused, and how.
const REFUSED: &[(&str, &str, &[u16], &str)] = &[
    ("Content-Length with a plus", "RFC 9110 8.6", &[400], "Content-Length: +5\r\n"),
    ("Content-Length with a minus", "RFC 9110 8.6", &[400], "Content-Length: -5\r\n"),
    ("Content-Length in hex", "RFC 9110 8.6", &[400], "Content-Length: 0x5\r\n"),
    ("Content-Length with decimals", "RFC 9110 8.6", &[400], "Content-Length: 5.0\r\n"),
    ("Content-Length with a unit", "RFC 9110 8.6", &[400], "Content-Length: 5B\r\n"),
    ("Content-Length of two numbers", "RFC 9110 8.6", &[400], "Content-Length: 5 5\r\n"),
    ("Content-Length in quotes", "RFC 9110 8.6", &[400], "Content-Length: \"5\"\r\n"),
    ("an empty Content-Length", "RFC 9110 8.6", &[400], "Content-Length:\r\n"),
    ("Content-Length in other digits", "RFC 9110 8.6", &[400], "Content-Length: \u{665}\r\n"),
    (
        "Content-Length beyond 64 bits",
        "RFC 9110 8.6",
        &[400, 413],
        "Content-Length: 18446744073709551621\r\n",
    ),
    (
        "Content-Length of 40 digits",
        "RFC 9110 8.6",
        &[400, 413],
        "Content-Length: 5555555555555555555555555555555555555555\r\n",
    ),
    ("a list of equal Content-Lengths", "RFC 9112 6.3", &[400], "Content-Length: 5, 5\r\n"),
    ("a list of differing Content-Lengths", "RFC 9112 6.3", &[400], "Content-Length: 5, 6\r\n"),
    (
        "Content-Length twice and equal",
        "RFC 9112 6.3",
        &[400],
        "Content-Length: 5\r\nContent-Length: 5\r\n",
    ),
    (
        "Content-Length twice and differing",
        "RFC 9112 6.3",
        &[400],
        "Content-Length: 5\r\nContent-Length: 6\r\n",
    ),
    (
        "chunked behind Content-Length",
        "RFC 9112 6.1",
        &[400],
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    ),
    (
        "chunked before Content-Length",
        "RFC 9112 6.1",
        &[400],
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
    ),
    (
        "an unknown coding beside Content-Length",
        "RFC 9112 6.3",
        &[400],
        "Transfer-Encoding: x\r\nContent-Length: 5\r\n",
    ),
    ("a last coding that is not chunked", "RFC 9112 6.3", &[400], "Transfer-Encoding: gzip\r\n"),
    ("identity as a transfer coding", "RFC 9112 6.3", &[400], "Transfer-Encoding: identity\r\n"),
    ("a coding before chunked", "RFC 9112 6.1", &[501], "Transfer-Encoding: gzip, chunked\r\n"),
    (
        "a coding before chunked, in two fields",
        "RFC 9112 6.1",
        &[501],
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
    ),
    ("chunked twice in a list", "RFC 9112 6.1", &[400], "Transfer-Encoding: chunked, chunked\r\n"),
    (
        "chunked twice in two fields",
        "RFC 9112 6.1",
        &[400],
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    ),
    ("a coding behind chunked", "RFC 9112 6.3", &[400], "Transfer-Encoding: chunked, gzip\r\n"),
    (
        "identity behind chunked",
        "RFC 9112 6.3",
        &[400],
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
    ),
    ("an empty Transfer-Encoding", "RFC 9112 6.1", &[400], "Transfer-Encoding:\r\n"),
    ("a comma before chunked", "RFC 9112 6.1", &[400], "Transfer-Encoding: ,chunked\r\n"),
    ("a comma behind chunked", "RFC 9112 6.1", &[400], "Transfer-Encoding: chunked,\r\n"),
    ("a coding that ends like chunked", "RFC 9112 6.3", &[400], "Transfer-Encoding: xchunked\r\n"),
    ("chunked with a parameter", "RFC 9112 7.1", &[400], "Transfer-Encoding: chunked;a=b\r\n"),
    ("chunked in quotes", "RFC 9112 7", &[400], "Transfer-Encoding: \"chunked\"\r\n"),
    ("a vertical tab before chunked", "RFC 9110 5.5", &[400], "Transfer-Encoding: \x0bchunked\r\n"),
    (
        "a space before the colon of Transfer-Encoding",
        "RFC 9112 5.1",
        &[400],
        "Transfer-Encoding : chunked\r\n",
    ),
    ("a folded Transfer-Encoding", "RFC 9112 5.2", &[400], "Transfer-Encoding:\r\n chunked\r\n"),
];

pub(crate) fn cases() -> Vec<Case> {
    let five = FIVE.iter().map(|&(name, rfc, fields)| {
        case(Setup::Echo, name, rfc, post(fields, "hello")).kept([ok().body("hello")])
    });
    let chunked = CHUNKED.iter().map(|&(name, rfc, fields)| {
        let request = post(fields, "5\r\nhello\r\n0\r\n\r\n");
        case(Setup::Echo, name, rfc, request).kept([ok().body("hello")])
    });
    let refused = REFUSED.iter().map(|&(name, rfc, statuses, fields)| {
        let request = post(fields, "0\r\n\r\n") + &get("");
        case(Setup::Echo, name, rfc, request).refused(statuses)
    });
    five.chain(chunked).chain(refused).chain(others()).collect()
}

fn others() -> Vec<Case> {
    let echo = |name, rfc, request: String| case(Setup::Echo, name, rfc, request);
    let old = "POST / HTTP/1.0\r\nHost: h\r\n";
    vec![
        echo("POST without any length", "RFC 9112 6.3", post("", "")).kept([ok().body("")]),
        echo("Content-Length: 0", "RFC 9112 6.2", post("Content-Length: 0\r\n", ""))
            .kept([ok().body("")]),
        echo("a body that is not whole", "RFC 9112 8", post("Content-Length: 5\r\n", "hell"))
            .waiting(),
        echo(
            "chunked in HTTP/1.0",
            "RFC 9112 6.1",
            format!("{old}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        )
        .refused(&[400]),
        echo(
            "both lengths in HTTP/1.0",
            "RFC 9112 6.1",
            format!("{old}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        )
        .refused(&[400]),
        echo(
            "Content-Length in HTTP/1.0",
            "RFC 9112 6.2",
            format!("{old}Content-Length: 5\r\n\r\nhello"),
        )
        .closed([ok().body("hello")]),
        echo(
            "a name like Transfer-Encoding frames nothing",
            "RFC 9112 6.3",
            post("Transfer_Encoding: chunked\r\n", "0\r\n\r\n"),
        )
        .closed([ok().body(""), Expected::any_of(&[400])]),
        case(
            Setup::Reply,
            "GET with a body",
            "RFC 9110 9.3.1",
            get("Content-Length: 5\r\n") + "hello" + &get(""),
        )
        .kept([ok(), ok()]),
        case(
            Setup::Reply,
            "GET with a chunked body",
            "RFC 9110 9.3.1",
            get("Transfer-Encoding: chunked\r\n") + "5\r\nhello\r\n0\r\n\r\n" + &get(""),
        )
        .kept([ok(), ok()]),
    ]
}
