//! Content-Length and Transfer-Encoding: every way to be understood in two ways is refused.
//!
//! Behind each refused head stands a request that must not be answered.

use super::{Case, Expected, Setup, case, get, lines, ok, post};

/// Fields that say the body has five bytes, with bars between lines.
const FIVE: &[(&str, &str, &str)] = &[
    ("Content-Length", "9112 6.2", "Content-Length: 5"),
    ("Content-Length with zeros in front", "9110 8.6", "Content-Length: 0005"),
    ("Content-Length in other capitals", "9110 5.1", "CONTENT-LENGTH: 5"),
    ("Content-Length with white space around", "9112 5.1", "Content-Length:\t5 "),
];

/// Fields that say the body is chunked.
const CHUNKED: &[(&str, &str, &str)] = &[
    ("chunked", "9112 7.1", "Transfer-Encoding: chunked"),
    ("chunked in other capitals", "9112 7", "Transfer-Encoding: cHuNkEd"),
    ("chunked with white space around", "9112 5.1", "Transfer-Encoding: \tchunked\t"),
];

/// Fields of a POST that are refused with 400.
const REFUSED: &[(&str, &str, &str)] = &[
    ("Content-Length with a plus", "9110 8.6", "Content-Length: +5"),
    ("Content-Length with a minus", "9110 8.6", "Content-Length: -5"),
    ("Content-Length in hex", "9110 8.6", "Content-Length: 0x5"),
    ("Content-Length with decimals", "9110 8.6", "Content-Length: 5.0"),
    ("Content-Length with a unit", "9110 8.6", "Content-Length: 5B"),
    ("Content-Length of two numbers", "9110 8.6", "Content-Length: 5 5"),
    ("Content-Length in quotes", "9110 8.6", "Content-Length: \"5\""),
    ("an empty Content-Length", "9110 8.6", "Content-Length:"),
    ("Content-Length in other digits", "9110 8.6", "Content-Length: \u{665}"),
    ("a list of equal Content-Lengths", "9112 6.3", "Content-Length: 5, 5"),
    ("a list of differing Content-Lengths", "9112 6.3", "Content-Length: 5, 6"),
    ("Content-Length twice and equal", "9112 6.3", "Content-Length: 5 | Content-Length: 5"),
    ("Content-Length twice and differing", "9112 6.3", "Content-Length: 5 | Content-Length: 6"),
    ("chunked behind Content-Length", "9112 6.1", "Content-Length: 5 | Transfer-Encoding: chunked"),
    ("chunked before Content-Length", "9112 6.1", "Transfer-Encoding: chunked | Content-Length: 5"),
    (
        "an unknown coding beside Content-Length",
        "9112 6.3",
        "Transfer-Encoding: x | Content-Length: 5",
    ),
    ("a last coding that is not chunked", "9112 6.3", "Transfer-Encoding: gzip"),
    ("identity as a transfer coding", "9112 6.3", "Transfer-Encoding: identity"),
    ("chunked twice in a list", "9112 6.1", "Transfer-Encoding: chunked, chunked"),
    (
        "chunked twice in two fields",
        "9112 6.1",
        "Transfer-Encoding: chunked | Transfer-Encoding: chunked",
    ),
    ("a coding behind chunked", "9112 6.3", "Transfer-Encoding: chunked, gzip"),
    (
        "identity behind chunked",
        "9112 6.3",
        "Transfer-Encoding: chunked | Transfer-Encoding: identity",
    ),
    ("an empty Transfer-Encoding", "9112 6.1", "Transfer-Encoding:"),
    ("a comma before chunked", "9112 6.1", "Transfer-Encoding: ,chunked"),
    ("a comma behind chunked", "9112 6.1", "Transfer-Encoding: chunked,"),
    ("a coding that ends like chunked", "9112 6.3", "Transfer-Encoding: xchunked"),
    ("chunked with a parameter", "9112 7.1", "Transfer-Encoding: chunked;a=b"),
    ("chunked in quotes", "9112 7", "Transfer-Encoding: \"chunked\""),
    ("a vertical tab before chunked", "9110 5.5", "Transfer-Encoding: \x0bchunked"),
    ("a space before the colon of Transfer-Encoding", "9112 5.1", "Transfer-Encoding : chunked"),
    ("a folded Transfer-Encoding", "9112 5.2", "Transfer-Encoding: |  chunked"),
];

/// Fields of a POST that are refused with other statuses.
const REFUSED_OTHERWISE: &[(&str, &str, &[u16], &str)] = &[
    (
        "Content-Length beyond 64 bits",
        "9110 8.6",
        &[400, 413],
        "Content-Length: 18446744073709551621",
    ),
    (
        "Content-Length of 40 digits",
        "9110 8.6",
        &[400, 413],
        "Content-Length: 5555555555555555555555555555555555555555",
    ),
    ("a coding before chunked", "9112 6.1", &[501], "Transfer-Encoding: gzip, chunked"),
    (
        "a coding before chunked, in two fields",
        "9112 6.1",
        &[501],
        "Transfer-Encoding: gzip | Transfer-Encoding: chunked",
    ),
];

pub(crate) fn cases() -> Vec<Case> {
    let five = FIVE.iter().map(|&(name, rfc, fields)| {
        case(Setup::Echo, name, rfc, post(&lines(fields), "hello")).kept([ok().body("hello")])
    });
    let chunked = CHUNKED.iter().map(|&(name, rfc, fields)| {
        let request = post(&lines(fields), "5\r\nhello\r\n0\r\n\r\n");
        case(Setup::Echo, name, rfc, request).kept([ok().body("hello")])
    });
    let refused = REFUSED.iter().map(|&(name, rfc, fields)| (name, rfc, &[400][..], fields));
    let refused = refused.chain(REFUSED_OTHERWISE.iter().copied());
    let refused = refused.map(|(name, rfc, statuses, fields)| {
        let request = post(&lines(fields), "0\r\n\r\n") + &get("");
        case(Setup::Echo, name, rfc, request).refused(statuses)
    });
    five.chain(chunked).chain(refused).chain(others()).collect()
}

fn others() -> Vec<Case> {
    let echo = |name, rfc, request: String| case(Setup::Echo, name, rfc, request);
    let old = "POST / HTTP/1.0\r\nHost: h\r\n";
    vec![
        echo("POST without any length", "9112 6.3", post("", "")).kept([ok().body("")]),
        echo("Content-Length: 0", "9112 6.2", post("Content-Length: 0\r\n", ""))
            .kept([ok().body("")]),
        echo("a body that is not whole", "9112 8", post("Content-Length: 5\r\n", "hell")).waiting(),
        echo(
            "chunked in HTTP/1.0",
            "9112 6.1",
            format!("{old}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        )
        .refused(&[400]),
        echo(
            "both lengths in HTTP/1.0",
            "9112 6.1",
            format!("{old}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        )
        .refused(&[400]),
        echo(
            "Content-Length in HTTP/1.0",
            "9112 6.2",
            format!("{old}Content-Length: 5\r\n\r\nhello"),
        )
        .closed([ok().body("hello")]),
        echo(
            "a name like Transfer-Encoding frames nothing",
            "9112 6.3",
            post("Transfer_Encoding: chunked\r\n", "0\r\n\r\n"),
        )
        .closed([ok().body(""), Expected::any_of(&[400])]),
        case(
            Setup::Reply,
            "GET with a body",
            "9110 9.3.1",
            get("Content-Length: 5\r\n") + "hello" + &get(""),
        )
        .kept([ok(), ok()]),
        case(
            Setup::Reply,
            "GET with a chunked body",
            "9110 9.3.1",
            get("Transfer-Encoding: chunked\r\n") + "5\r\nhello\r\n0\r\n\r\n" + &get(""),
        )
        .kept([ok(), ok()]),
    ]
}

/// Versions and fields, and whether the connection stays.
const FIELDS: &[(&str, &str, &str, &str, bool)] = &[
    ("keep-alive by default", "9112 9.3", "1.1", "", true),
    ("keep-alive said in HTTP/1.1", "9112 9.3", "1.1", "Connection: keep-alive", true),
    ("an unknown connection option", "9110 7.6.1", "1.1", "Connection: x", true),
    (
        "an option that only contains close",
        "9110 7.6.1",
        "1.1",
        "Connection: closed, x-close",
        true,
    ),
    ("an empty Connection", "9110 7.6.1", "1.1", "Connection:", true),
    ("close", "9112 9.6", "1.1", "Connection: close", false),
    ("close in other capitals", "9110 7.6.1", "1.1", "connection: CloSe", false),
    ("close in a list", "9110 7.6.1", "1.1", "Connection: x, close ,y", false),
    ("close in a second field", "9110 7.6.1", "1.1", "Connection: x | Connection: close", false),
    ("close beside keep-alive", "9112 9.3", "1.1", "Connection: keep-alive, close", false),
    ("close by default in HTTP/1.0", "9112 9.3", "1.0", "", false),
    ("close said in HTTP/1.0", "9112 9.3", "1.0", "Connection: close", false),
    ("both said in HTTP/1.0", "9112 9.3", "1.0", "Connection: close, keep-alive", false),
];

pub(super) fn persistence_cases() -> Vec<Case> {
    let fields = FIELDS.iter().map(|&(name, rfc, version, fields, is_kept)| {
        let fields = lines(fields);
        let request = format!("GET / HTTP/{version}\r\nHost: h\r\n{fields}\r\n");
        let case = case(Setup::Reply, name, rfc, request);
        if is_kept { case.kept([ok()]) } else { case.closed([ok()]) }
    });
    fields.chain(pipelines()).chain(breaks()).collect()
}

fn pipelines() -> Vec<Case> {
    let reply = |name, request: String| case(Setup::Reply, name, "9112 9.3.2", request);
    let head = "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n";
    let old = "GET / HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n\r\n";
    vec![
        case(Setup::Reply, "keep-alive asked for in HTTP/1.0", "9112 9.3", old)
            .kept([ok().has("Connection", "keep-alive")]),
        reply("two requests at once", get("").repeat(2)).kept([ok(), ok()]),
        reply("a hundred requests at once", get("").repeat(100)).kept(vec![ok(); 100]),
        reply("HEAD between two GETs", format!("{}{head}{}", get(""), get(""))).kept([
            ok(),
            ok().for_head(),
            ok(),
        ]),
        reply("HTTP/1.0 with keep-alive before HTTP/1.1", format!("{old}{}", get("")))
            .kept([ok(), ok()]),
        reply("an empty line between two requests", format!("{}\r\n{}", get(""), get("")))
            .kept([ok(), ok()]),
        reply("a request and the start of another", get("") + "GET /").either([ok()]),
        case(
            Setup::Echo,
            "bodies of both framings in a row",
            "9112 9.3.2",
            post("Content-Length: 3\r\n", "abc")
                + &post("Transfer-Encoding: chunked\r\n", "2\r\nde\r\n0\r\n\r\n")
                + &get("")
                + &post("Content-Length: 1\r\n", "f"),
        )
        .kept([ok().body("abc"), ok().body("de"), ok().body(""), ok().body("f")]),
        case(
            Setup::Echo,
            "a body that looks like a request",
            "9112 6.2",
            post(&format!("Content-Length: {}\r\n", get("").len()), &get("")),
        )
        .kept([ok().body(get(""))]),
    ]
}

/// What ends a connection ends it for all that stands behind.
fn breaks() -> Vec<Case> {
    let reply = |name, rfc, request: String| case(Setup::Reply, name, rfc, request);
    let refused = Expected::any_of(&[400]);
    vec![
        reply("a request behind close", "9112 9.6", get("Connection: close\r\n") + &get(""))
            .closed([ok()]),
        reply(
            "a request behind HTTP/1.0",
            "9112 9.3",
            "GET / HTTP/1.0\r\n\r\n".to_owned() + &get(""),
        )
        .closed([ok()]),
        reply("nonsense behind close", "9112 9.6", get("Connection: close\r\n") + "\0\0\0")
            .closed([ok()]),
        reply("a refused request behind a good one", "9112 9.3.2", get("") + &get("X : y\r\n"))
            .closed([ok(), refused.clone()]),
        reply("a good request behind a refused one", "9112 9.3.2", get("X : y\r\n") + &get(""))
            .closed([refused.clone()]),
        reply("nonsense behind a good request", "9112 9.3.2", get("") + "\x01\x02\x03\r\n")
            .closed([ok(), refused.clone()]),
        reply(
            "more bytes than Content-Length says",
            "9112 6.3",
            get("Content-Length: 1\r\n") + "a(\r\n",
        )
        .closed([ok(), refused]),
    ]
}

/// Bodies that are taken, and their bytes.
const CHUNKS_SERVED: &[(&str, &str, &str, &str)] = &[
    ("no chunk", "9112 7.1", "0\r\n\r\n", ""),
    ("17 zeros as a size", "9112 7.1", "00000000000000000\r\n\r\n", ""),
    ("several chunks", "9112 7.1", "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", "abcde"),
    ("a size in capitals", "9112 7.1", "A\r\n0123456789\r\n0\r\n\r\n", "0123456789"),
    ("a size in small letters", "9112 7.1", "a\r\n0123456789\r\n0\r\n\r\n", "0123456789"),
    ("zeros before a size", "9112 7.1", "0005\r\nhello\r\n0000\r\n\r\n", "hello"),
    ("a chunk that looks like an end", "9112 7.1", "5\r\n0\r\n\r\n\r\n0\r\n\r\n", "0\r\n\r\n"),
    ("a chunk extension", "9112 7.1.1", "5;a=b\r\nhello\r\n0;c\r\n\r\n", "hello"),
    ("a quoted chunk extension", "9112 7.1.1", "5;a=\"b;c\"\r\nhello\r\n0\r\n\r\n", "hello"),
    ("white space before an extension", "9112 7.1.1", "5 ; a\r\nhello\r\n0\r\n\r\n", "hello"),
    (
        "white space around the parts of extensions",
        "9112 7.1.1",
        "5 ;\ta \t= b ; c\r\nhello\r\n0\r\n\r\n",
        "hello",
    ),
    (
        "several chunk extensions",
        "9112 7.1.1",
        "5;a;b=c;d=\"e\";f\r\nhello\r\n0;g=h\r\n\r\n",
        "hello",
    ),
    (
        "an escaped quote in a chunk extension",
        "9110 5.6.4",
        "5;a=\"\\\";b\"\r\nhello\r\n0\r\n\r\n",
        "hello",
    ),
    ("an empty quoted chunk extension", "9110 5.6.4", "5;a=\"\"\r\nhello\r\n0\r\n\r\n", "hello"),
    (
        "bytes above ASCII in a quoted chunk extension",
        "9110 5.6.4",
        "5;a=\"\u{e4}\t \"\r\nhello\r\n0\r\n\r\n",
        "hello",
    ),
    ("a trailer", "9112 7.1.2", "5\r\nhello\r\n0\r\nX: y\r\n\r\n", "hello"),
    (
        "a trailer that names Content-Length",
        "9110 6.5.1",
        "5\r\nhello\r\n0\r\nContent-Length: 99\r\n\r\n",
        "hello",
    ),
    ("a trailer that names Host", "9110 6.5.1", "5\r\nhello\r\n0\r\nHost: a b\r\n\r\n", "hello"),
    (
        "a trailer that closes nothing",
        "9110 6.5.1",
        "5\r\nhello\r\n0\r\nConnection: close\r\n\r\n",
        "hello",
    ),
];

/// Bodies that are refused with 400 before a byte of them has come.
const CHUNKS_REFUSED: &[(&str, &str, &str)] = &[
    ("a bare LF behind a size", "9112 7.1", "5\nhello\r\n0\r\n\r\n"),
    ("a CR alone behind a size", "9112 7.1", "5\rhello\r\n0\r\n\r\n"),
    ("a bare LF behind an extension", "9112 7.1.1", "5;a\nhello\r\n0\r\n\r\n"),
    ("a space before a size", "9112 7.1", " 5\r\nhello\r\n0\r\n\r\n"),
    ("a space behind a size", "9112 7.1", "5 \r\nhello\r\n0\r\n\r\n"),
    ("a minus before a size", "9112 7.1", "-5\r\nhello\r\n0\r\n\r\n"),
    ("a plus before a size", "9112 7.1", "+5\r\nhello\r\n0\r\n\r\n"),
    ("0x before a size", "9112 7.1", "0x5\r\nhello\r\n0\r\n\r\n"),
    ("an underscore in a size", "9112 7.1", "0_5\r\nhello\r\n0\r\n\r\n"),
    ("a size that is not a number", "9112 7.1", "g\r\nhello\r\n0\r\n\r\n"),
    ("no size", "9112 7.1", "\r\nhello\r\n0\r\n\r\n"),
    ("an extension without a size", "9112 7.1.1", ";a\r\nhello\r\n0\r\n\r\n"),
    ("a size of 17 digits", "9112 7.1", "10000000000000005\r\nhello\r\n0\r\n\r\n"),
    ("an extension without a name", "9112 7.1.1", "5;\r\nhello\r\n0\r\n\r\n"),
    ("an extension of white space", "9112 7.1.1", "5; \r\nhello\r\n0\r\n\r\n"),
    ("an extension without a name at the end", "9112 7.1.1", "5;a;\r\nhello\r\n0\r\n\r\n"),
    ("two semicolons before an extension", "9112 7.1.1", "5;;a\r\nhello\r\n0\r\n\r\n"),
    ("an extension that is a value alone", "9112 7.1.1", "5;=b\r\nhello\r\n0\r\n\r\n"),
    ("an extension without its value", "9112 7.1.1", "5;a=\r\nhello\r\n0\r\n\r\n"),
    ("an extension with two values", "9112 7.1.1", "5;a=b=c\r\nhello\r\n0\r\n\r\n"),
    ("an extension of two words", "9112 7.1.1", "5;a b\r\nhello\r\n0\r\n\r\n"),
    ("a bracket in an extension", "9112 7.1.1", "5;bad[=x\r\nhello\r\n0\r\n\r\n"),
    ("a comma in an extension's value", "9112 7.1.1", "5;a=b,c\r\nhello\r\n0\r\n\r\n"),
    ("an extension's value that is not ASCII", "9112 7.1.1", "5;a=\u{e4}\r\nhello\r\n0\r\n\r\n"),
    ("an extension's quote that does not end", "9110 5.6.4", "5;a=\"b\r\nhello\r\n0\r\n\r\n"),
    ("an extension behind an escaped quote", "9110 5.6.4", "5;a=\"b\\\"\r\nhello\r\n0\r\n\r\n"),
    ("a control byte in an extension's quote", "9110 5.6.4", "5;a=\"\x01\"\r\nhello\r\n0\r\n\r\n"),
    ("an extension's word behind its quote", "9112 7.1.1", "5;a=\"b\"c\r\nhello\r\n0\r\n\r\n"),
    ("a space behind an extension", "9112 7.1.1", "5;a \r\nhello\r\n0\r\n\r\n"),
    ("a space behind an extension's value", "9112 7.1.1", "5;a=b \r\nhello\r\n0\r\n\r\n"),
    ("a space behind an extension's quote", "9112 7.1.1", "5;a=\"b\" \r\nhello\r\n0\r\n\r\n"),
    ("an extension of the last chunk without a name", "9112 7.1.1", "0;\r\n\r\n"),
    ("a tab behind a size", "9112 7.1", "5\t\r\nhello\r\n0\r\n\r\n"),
    ("a decimal point in a size", "9112 7.1", "5.0\r\nhello\r\n0\r\n\r\n"),
    ("an h behind a size", "9112 7.1", "5h\r\nhello\r\n0\r\n\r\n"),
    ("a size in other digits", "9112 7.1", "\u{665}\r\nhello\r\n0\r\n\r\n"),
    (
        "65 zeros as a size",
        "9112 7.1",
        "00000000000000000000000000000000000000000000000000000000000000000\r\n\r\n",
    ),
    ("CR CR LF behind a size", "9112 7.1", "5\r\r\nhello\r\n0\r\n\r\n"),
    ("NUL behind a size", "9112 7.1", "5\0\r\nhello\r\n0\r\n\r\n"),
    ("NUL in an extension", "9112 7.1.1", "5;\0\r\nhello\r\n0\r\n\r\n"),
    ("a trailer without a colon", "9112 7.1.2", "0\r\nX\r\n\r\n"),
    ("a space before the colon of a trailer", "9112 5.1", "0\r\nX : y\r\n\r\n"),
    ("a folded trailer", "9112 5.2", "0\r\nX: y\r\n z\r\n\r\n"),
    ("NUL in a trailer", "9110 5.5", "0\r\nX: \0\r\n\r\n"),
    ("a bare LF behind a trailer", "9112 2.2", "0\r\nX: y\n\r\n"),
    (
        "a request where the empty line should be",
        "9112 7.1",
        "0\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
    ),
];

/// Bodies whose fault stands behind their first bytes.
const BROKEN: &[(&str, &str, &str)] = &[
    ("a bare LF behind a chunk", "9112 7.1", "5\r\nhello\n0\r\n\r\n"),
    ("a bare LF at the end", "9112 7.1", "5\r\nhello\r\n0\r\n\n"),
    ("a chunk longer than its size", "9112 7.1", "5\r\nhello!\r\n0\r\n\r\n"),
    ("a chunk shorter than its size", "9112 7.1", "6\r\nhello\r\n0\r\n\r\n"),
    ("a second size that is not a number", "9112 7.1", "5\r\nhello\r\ng\r\n"),
    ("a broken trailer behind a chunk", "9112 7.1.2", "5\r\nhello\r\n0\r\nX\r\n\r\n"),
];

const CHUNKED_FIELD: &str = "Transfer-Encoding: chunked\r\n";

pub(super) fn chunked_cases() -> Vec<Case> {
    let echo = |name, rfc, body: &str| case(Setup::Echo, name, rfc, post(CHUNKED_FIELD, body));
    // What stands behind a whole body is a request of its own.
    let served = CHUNKS_SERVED.iter().map(|&(name, rfc, wire, body)| {
        echo(name, rfc, &format!("{wire}{}", get(""))).kept([ok().body(body), ok().body("")])
    });
    let refused =
        CHUNKS_REFUSED.iter().map(|&(name, rfc, wire)| echo(name, rfc, wire).refused(&[400]));
    let broken =
        BROKEN.iter().map(|&(name, rfc, wire)| echo(name, rfc, wire).refused_or_cut(&[400]));
    let mut chunked_cases: Vec<Case> = served.chain(refused).chain(broken).collect();
    let small = "1\r\nx\r\n".repeat(500) + "0\r\n\r\n";
    chunked_cases.extend([
        echo("500 chunks of one byte", "9112 7.1", &small).kept([ok().body("x".repeat(500))]),
        echo("a chunk that is not whole", "9112 8", "5\r\nhel").waiting(),
        echo("a body without its last chunk", "9112 8", "5\r\nhello\r\n").waiting(),
        echo("a trailer section without its end", "9112 7.1.2", "0\r\nX: y\r\n").waiting(),
    ]);
    chunked_cases
}
