//! Which connections live on, and requests that do not wait for their answers.

use crate::case::{Case, Expected, Setup, case, get, ok, post};

/// Versions and fields, and whether the connection stays.
const FIELDS: &[(&str, &str, &str, &str, bool)] = &[
    ("keep-alive by default", "RFC 9112 9.3", "1.1", "", true),
    ("keep-alive said in HTTP/1.1", "RFC 9112 9.3", "1.1", "Connection: keep-alive\r\n", true),
    ("an unknown connection option", "RFC 9110 7.6.1", "1.1", "Connection: x\r\n", true),
    (
        "an option that only contains close",
        "RFC 9110 7.6.1",
        "1.1",
        "Connection: closed, x-close\r\n",
        true,
    ),
    ("an empty Connection", "RFC 9110 7.6.1", "1.1", "Connection:\r\n", true),
    ("close", "RFC 9112 9.6", "1.1", "Connection: close\r\n", false),
    ("close in other capitals", "RFC 9110 7.6.1", "1.1", "connection: CloSe\r\n", false),
    ("close in a list", "RFC 9110 7.6.1", "1.1", "Connection: x, close ,y\r\n", false),
    (
        "close in a second field",
        "RFC 9110 7.6.1",
        "1.1",
        "Connection: x\r\nConnection: close\r\n",
        false,
    ),
    ("close beside keep-alive", "RFC 9112 9.3", "1.1", "Connection: keep-alive, close\r\n", false),
    ("close by default in HTTP/1.0", "RFC 9112 9.3", "1.0", "", false),
    ("close said in HTTP/1.0", "RFC 9112 9.3", "1.0", "Connection: close\r\n", false),
    ("both said in HTTP/1.0", "RFC 9112 9.3", "1.0", "Connection: close, keep-alive\r\n", false),
];

pub(crate) fn cases() -> Vec<Case> {
    let fields = FIELDS.iter().map(|&(name, rfc, version, fields, is_kept)| {
        let request = format!("GET / HTTP/{version}\r\nHost: h\r\n{fields}\r\n");
        let case = case(Setup::Reply, name, rfc, request);
        if is_kept { case.kept([ok()]) } else { case.closed([ok()]) }
    });
    fields.chain(pipelines()).chain(breaks()).collect()
}

fn pipelines() -> Vec<Case> {
    let reply = |name, request: String| case(Setup::Reply, name, "RFC 9112 9.3.2", request);
    let head = "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n";
    let old = "GET / HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n\r\n";
    vec![
        case(Setup::Reply, "keep-alive asked for in HTTP/1.0", "RFC 9112 9.3", old)
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
            "RFC 9112 9.3.2",
            post("Content-Length: 3\r\n", "abc")
                + &post("Transfer-Encoding: chunked\r\n", "2\r\nde\r\n0\r\n\r\n")
                + &get("")
                + &post("Content-Length: 1\r\n", "f"),
        )
        .kept([ok().body("abc"), ok().body("de"), ok().body(""), ok().body("f")]),
        case(
            Setup::Echo,
            "a body that looks like a request",
            "RFC 9112 6.2",
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
        reply("a request behind close", "RFC 9112 9.6", get("Connection: close\r\n") + &get(""))
            .closed([ok()]),
        reply(
            "a request behind HTTP/1.0",
            "RFC 9112 9.3",
            "GET / HTTP/1.0\r\n\r\n".to_owned() + &get(""),
        )
        .closed([ok()]),
        reply("nonsense behind close", "RFC 9112 9.6", get("Connection: close\r\n") + "\0\0\0")
            .closed([ok()]),
        reply("a refused request behind a good one", "RFC 9112 9.3.2", get("") + &get("X : y\r\n"))
            .closed([ok(), refused.clone()]),
        reply("a good request behind a refused one", "RFC 9112 9.3.2", get("X : y\r\n") + &get(""))
            .closed([refused.clone()]),
        reply("nonsense behind a good request", "RFC 9112 9.3.2", get("") + "\x01\x02\x03\r\n")
            .closed([ok(), refused.clone()]),
        reply(
            "more bytes than Content-Length says",
            "RFC 9112 6.3",
            get("Content-Length: 1\r\n") + "a(\r\n",
        )
        .closed([ok(), refused]),
    ]
}
