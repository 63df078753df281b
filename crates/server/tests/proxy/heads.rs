//! Heads, framing and interim answers: what the backend sees of a request, and what the client sees
//! of an answer, byte for byte.

use std::io::Read;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pollux_http::{ProxyHeader, ProxyVersion};
use pollux_server::config::{AnswerRule, ProxyConfig};
use pollux_server::{FieldRule, ProxyCounter};
use pollux_settings::Given;

use crate::{Backend, GET, OK, field, ok, on_all_drivers_at_once, on_every_driver};

/// One request with its answer.
struct Row {
    name: &'static str,
    /// What the client sends.
    request: &'static str,
    /// What the backend gets: the whole of it.
    seen: &'static str,
    /// What it answers.
    answer: &'static str,
    /// Whether the backend ends the connection behind it.
    ends: bool,
    /// What the client gets: the whole of it.
    given: &'static str,
    /// Whether the client's connection ends with it.
    is_last: bool,
}

const SIMPLE: Row = Row {
    name: "a request and its answer",
    request: "GET /a?b HTTP/1.1\r\nHost: x\r\nAccept:   */*  \r\n\r\n",
    seen: "GET /a?b HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n@\r\n",
    answer: "HTTP/1.1 200 Fine\r\nDate: d\r\nContent-Length: 2\r\nServer:  s\r\n\r\nhi",
    ends: false,
    given: "HTTP/1.1 200 Fine\r\nDate: d\r\nServer: s\r\nContent-Length: 2\r\n\r\nhi",
    is_last: false,
};

const PLAIN: Row = Row { request: GET, seen: "GET / HTTP/1.1\r\nHost: x\r\n@\r\n", ..SIMPLE };

const HEAD: Row = Row {
    request: "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n",
    seen: "HEAD / HTTP/1.1\r\nHost: x\r\n@\r\n",
    ..SIMPLE
};

/// `@` stands for what the proxy says of itself.
const FORWARDED: &str = "X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\n\
                         X-Forwarded-Host: x\r\nVia: 1.1 pollux\r\n";

#[expect(clippy::too_many_lines, reason = "a table")]
fn rows() -> Vec<Row> {
    vec![
        SIMPLE,
        Row {
            name: "fields of the connection end at the proxy, in both directions",
            request: "GET / HTTP/1.1\r\nHost: x\r\nConnection: close, X-Foo, keep-alive\r\nX-Foo: 1\r\n\
                      X-Bar: 2\r\nTE: trailers\r\nKeep-Alive: a\r\nProxy-Connection: b\r\n\
                      Proxy-Authorization: c\r\n\r\n",
            seen: "GET / HTTP/1.1\r\nHost: x\r\nX-Bar: 2\r\n@\r\n",
            answer: "HTTP/1.1 200 OK\r\nDate: d\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 1\r\n\
                     Proxy-Connection: x\r\nUpgrade: h2c\r\nTrailer: y\r\nContent-Length: 0\r\n\r\n",
            given: "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            is_last: true,
            ..SIMPLE
        },
        Row {
            name: "the proxy alone names the client",
            request: "GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 6.6.6.6\r\nForwarded: for=1\r\n\
                      X_Forwarded_For: 7\r\nX-Forwarded-Proto: https\r\n\r\n",
            ..PLAIN
        },
        Row {
            name: "an absolute target says which host is meant",
            request: "GET http://x/y HTTP/1.1\r\nHost: evil\r\n\r\n",
            seen: "GET /y HTTP/1.1\r\nHost: x\r\n@\r\n",
            ..SIMPLE
        },
        Row {
            name: "chunks are made anew, extensions and trailers end at the proxy",
            request: "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n\
                      3;a=b\r\nabc\r\n0;z\r\nX-Trailer: 1\r\nContent-Length: 9\r\n\r\n",
            seen: "POST / HTTP/1.1\r\nHost: x\r\n@Transfer-Encoding: chunked\r\n\r\n\
                   3\r\nabc\r\n0\r\n\r\n",
            answer: "HTTP/1.1 200 OK\r\nDate: d\r\nTransfer-Encoding: chunked\r\n\r\n\
                     00002;x\r\nhi\r\n0\r\nX: y\r\n\r\n",
            given: "HTTP/1.1 200 OK\r\nDate: d\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
            ..SIMPLE
        },
        Row {
            name: "a length with zeros in front is a number",
            request: "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 003\r\n\r\nabc",
            seen: "POST / HTTP/1.1\r\nHost: x\r\n@Content-Length: 3\r\n\r\nabc",
            answer: "HTTP/1.1 201 Made\r\nDate: d\r\nContent-Length: 02, 2\r\n\r\nhi",
            given: "HTTP/1.1 201 Made\r\nDate: d\r\nContent-Length: 2\r\n\r\nhi",
            ..SIMPLE
        },
        Row {
            name: "a request of HTTP/1.0 that names no host gets the backend's",
            request: "GET / HTTP/1.0\r\nX: y\r\n\r\n",
            seen: "GET / HTTP/1.1\r\nHost: #\r\nX: y\r\nX-Forwarded-For: 127.0.0.1\r\n\
                   X-Forwarded-Proto: http\r\nVia: 1.0 pollux\r\n\r\n",
            given: "HTTP/1.1 200 Fine\r\nDate: d\r\nServer: s\r\nContent-Length: 2\r\n\
                    Connection: close\r\n\r\nhi",
            is_last: true,
            ..SIMPLE
        },
        Row {
            name: "a client of HTTP/1.0 gets no chunks",
            request: "GET / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n",
            seen: "GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 127.0.0.1\r\n\
                   X-Forwarded-Proto: http\r\nX-Forwarded-Host: x\r\nVia: 1.0 pollux\r\n\r\n",
            answer: "HTTP/1.1 200 OK\r\nDate: d\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
            given: "HTTP/1.1 200 OK\r\nDate: d\r\nConnection: close\r\n\r\nhi",
            is_last: true,
            ..SIMPLE
        },
        Row {
            name: "a client of HTTP/1.0 that asks for it is kept",
            request: "GET / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n",
            seen: "GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 127.0.0.1\r\n\
                   X-Forwarded-Proto: http\r\nX-Forwarded-Host: x\r\nVia: 1.0 pollux\r\n\r\n",
            given: "HTTP/1.1 200 Fine\r\nDate: d\r\nServer: s\r\nContent-Length: 2\r\n\
                    Connection: keep-alive\r\n\r\nhi",
            ..SIMPLE
        },
        Row {
            name: "an answer that lasts until the end of the connection becomes chunks",
            answer: "HTTP/1.0 200 OK\r\nDate: d\r\n\r\nhi",
            ends: true,
            given: "HTTP/1.1 200 OK\r\nDate: d\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
            ..PLAIN
        },
        Row {
            name: "an answer to HEAD has the length of GET and no body",
            answer: "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 1000\r\n\r\n",
            given: "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 1000\r\n\r\n",
            ..HEAD
        },
        Row {
            name: "a length that chunks overrule is not that of GET",
            answer: "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\n\
                     Transfer-Encoding: chunked\r\n\r\n",
            given: "HTTP/1.1 200 OK\r\nDate: d\r\n\r\n",
            ..HEAD
        },
        Row {
            name: "of two lengths neither is that of GET",
            answer: "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n",
            given: "HTTP/1.1 200 OK\r\nDate: d\r\n\r\n",
            ..HEAD
        },
        Row {
            name: "a body behind an answer to HEAD goes to no client",
            answer: "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\n\r\nhi",
            given: "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\n\r\n",
            ..HEAD
        },
        Row {
            name: "nor do chunks behind 304",
            answer: "HTTP/1.1 304 Same\r\nDate: d\r\nTransfer-Encoding: chunked\r\n\r\n\
                     2\r\nhi\r\n0\r\n\r\n",
            given: "HTTP/1.1 304 Same\r\nDate: d\r\n\r\n",
            ..PLAIN
        },
        Row {
            name: "204 has no length",
            answer: "HTTP/1.1 204 No\r\nDate: d\r\nContent-Length: 5\r\n\r\n",
            given: "HTTP/1.1 204 No\r\nDate: d\r\n\r\n",
            ..PLAIN
        },
        Row {
            name: "304 may have the length of 200",
            answer: "HTTP/1.1 304 Same\r\nDate: d\r\nContent-Length: 5\r\nETag: \"e\"\r\n\r\n",
            given: "HTTP/1.1 304 Same\r\nDate: d\r\nETag: \"e\"\r\nContent-Length: 5\r\n\r\n",
            ..PLAIN
        },
        Row {
            name: "hints come through in front of the answer",
            answer: "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nConnection: x\r\n\r\n\
                     HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\n\r\nhi",
            given: "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
                    HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\n\r\nhi",
            ..PLAIN
        },
        Row {
            name: "no upgrade but to a WebSocket is asked for",
            request: "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\n\
                      Upgrade: h2c\r\nHTTP2-Settings: AAA\r\n\r\n",
            ..PLAIN
        },
        Row {
            name: "OPTIONS loses one of its hops",
            request: "OPTIONS * HTTP/1.1\r\nHost: x\r\nMax-Forwards: 3\r\n\r\n",
            seen: "OPTIONS * HTTP/1.1\r\nHost: x\r\nMax-Forwards: 2\r\n@\r\n",
            ..SIMPLE
        },
        Row {
            name: "an unknown method is passed on",
            request: "BREW /pot HTTP/1.1\r\nHost: x\r\n\r\n",
            seen: "BREW /pot HTTP/1.1\r\nHost: x\r\n@\r\n",
            ..SIMPLE
        },
    ]
}

#[test]
fn heads_and_bodies_are_written_anew_on_every_driver() {
    let rows = Arc::new(rows());
    let seen: Arc<Mutex<Vec<(usize, String)>>> = Arc::default();
    let played = Arc::clone(&rows);
    let message = Arc::clone(&seen);
    // Which row it is the backend knows by a field that no row has.
    let backend = Backend::start(move |_, mut client| {
        loop {
            let head = client.head();
            if head.is_empty() {
                return;
            }
            let (mark, head) = cut_mark(&head);
            let row = &played[mark];
            let body_bytes = row.seen.split_once("\r\n\r\n").map_or(0, |(_, body)| body.len());
            let body = String::from_utf8(client.bytes(body_bytes)).expect("ASCII");
            message.lock().expect("no panic").push((mark, head + &body));
            client.try_send(row.answer);
            if row.ends {
                return;
            }
        }
    });
    backend.on_every_driver(|driver, proxy| {
        seen.lock().expect("no panic").clear();
        let mut before = None;
        // Each twice: a head that comes again is not read again.
        let rows = rows.iter().enumerate().flat_map(|each| [each; 2]);
        for (mark, row) in rows {
            let mut client = proxy.client();
            let line_end = row.request.find("\r\n").expect("a line") + 2;
            let (line, rest) = row.request.split_at(line_end);
            client.send(format!("{line}X-Mark: {mark}\r\n{rest}"));
            let given = String::from_utf8(client.bytes(row.given.len())).expect("ASCII");
            assert_eq!(given, row.given, "{driver}: {}", row.name);
            if row.is_last {
                assert_eq!(client.rest(), "", "{driver}: {}", row.name);
            }
            let (at, came) = seen.lock().expect("no panic").pop().expect("it was asked");
            assert_eq!(at, mark, "{driver}: {}", row.name);
            let expected = row.seen.replace('@', FORWARDED);
            let expected = expected.replace('#', &backend.address.to_string());
            assert_eq!(came, expected, "{driver}: {}", row.name);
            if !row.is_last && before.replace(mark) == Some(mark) {
                // Nothing is left over, in either direction.
                client.send("GET / HTTP/1.1\r\nHost: x\r\nX-Mark: 0\r\n\r\n");
                let again = String::from_utf8(client.bytes(SIMPLE.given.len())).expect("ASCII");
                assert_eq!(again, SIMPLE.given, "{driver}: behind {}", row.name);
                seen.lock().expect("no panic").pop();
            }
        }
    });
}

fn cut_mark(head: &str) -> (usize, String) {
    let start = head.find("X-Mark: ").expect("every request has one");
    let end = start + head[start..].find("\r\n").expect("a line") + 2;
    let mark = head[start + 8..end - 2].parse().expect("a number");
    (mark, head[..start].to_owned() + &head[end..])
}

#[test]
fn a_head_that_comes_again_means_what_it_means_for_the_client_that_asks_now() {
    let backend = Backend::answering(|head, _| {
        Some(if head.starts_with("HEAD") { &OK[..OK.len() - 2] } else { OK })
    });
    let asked = |line: &str, more: &str| format!("{line}\r\nHost: x\r\n{more}\r\n");
    let get = asked("GET / HTTP/1.1", "");
    let others = [
        (asked("HEAD / HTTP/1.1", ""), "", ""),
        (asked("GET / HTTP/1.0", ""), "Connection: close\r\n", "hi"),
        (asked("GET / HTTP/1.1", "Connection: close\r\n"), "Connection: close\r\n", "hi"),
        (asked("GET / HTTP/1.0", "Connection: keep-alive\r\n"), "Connection: keep-alive\r\n", "hi"),
    ];
    backend.on_every_driver(|driver, proxy| {
        for (other, fields, body) in &others {
            for (request, fields, body) in
                [(&get, "", "hi"), (other, *fields, *body), (&get, "", "hi")]
            {
                for round in ["first", "second"] {
                    let mut client = proxy.client();
                    client.send(request);
                    let head = client.head();
                    let place = format!("{driver}, {round}: {request}{head}");
                    let framing = format!("Content-Length: 2\r\n{fields}\r\n");
                    assert!(head.contains("\r\nDate: ") && head.ends_with(&framing), "{place}");
                    assert_eq!(client.bytes(body.len()), body.as_bytes(), "{place}");
                    if fields.contains("close") {
                        assert_eq!(client.rest(), "", "{place}");
                    } else {
                        client.send(&get);
                        let next = client.head();
                        assert!(next.starts_with("HTTP/1.1 200 OK\r\nDate: "), "{place}{next}");
                        assert_eq!(client.bytes(2), b"hi", "{place}");
                    }
                }
            }
        }
    });
}

#[test]
fn an_https_target_is_for_connections_that_are_secured() {
    let backend = Backend::answering(|_, _| Some(ok("", "")));
    let asks = |proto: &str| {
        format!("GET https://x/y HTTP/1.1\r\nHost: x\r\nX-Forwarded-Proto: {proto}\r\n\r\n")
    };
    backend.on_every_driver(|driver, proxy| {
        let mut client = proxy.client();
        client.send(asks("https"));
        assert!(client.rest().starts_with("HTTP/1.1 421 "), "{driver}");
    });
    let believe = |config: &mut ProxyConfig| {
        config.frontends[0].x_forwarded = pollux_server::config::Forwarding::Add;
    };
    on_every_driver(&[backend.address], believe, |driver, proxy| {
        let mut client = proxy.client();
        client.send(asks("https"));
        assert!(client.head().starts_with("HTTP/1.1 200 "), "{driver}: a proxy in front says so");
        client.send(asks("http"));
        assert!(client.rest().starts_with("HTTP/1.1 421 "), "{driver}");
    });
}

#[test]
fn rules_of_a_front_end_change_fields_and_nothing_else() {
    let backend = Backend::answering(|head, _| {
        Some(ok("Server: secret\r\nX-Keep: 1\r\n", &head.replace("\r\n", "|")))
    });
    let set = |config: &mut ProxyConfig| {
        let rules = &mut config.frontends[0].rules;
        rules.request = vec![
            FieldRule::Set("X-Env".to_owned(), "prod".to_owned()),
            FieldRule::Add("Accept".to_owned(), "b".to_owned()),
            FieldRule::Remove("Cookie".to_owned()),
        ];
        rules.response = answer_rules(&["set Server: front"]);
    };
    on_every_driver(&[backend.address], set, |driver, proxy| {
        let mut client = proxy.client();
        client.send(
            "GET / HTTP/1.1\r\nHost: x\r\nx-env: dev\r\nAccept: a\r\ncookie: c=1\r\nCookie: d=2\r\n\r\n",
        );
        let head = client.head();
        assert!(head.contains("X-Keep: 1\r\nServer: front\r\n"), "{driver}: {head}");
        assert!(!head.contains("secret"), "{driver}: {head}");
        let len = field(&head, "Content-Length").expect("a length").parse().expect("a number");
        let asked = String::from_utf8(client.bytes(len)).expect("text");
        assert!(
            asked.starts_with(
                "GET / HTTP/1.1|Host: x|Accept: a|X-Env: prod|Accept: b|X-Forwarded-For"
            ),
            "{driver}: {asked}"
        );
        assert!(!asked.contains("ookie") && !asked.contains("dev"), "{driver}: {asked}");
    });
}

/// Rules for answers, as the settings have them.
pub(crate) fn answer_rules(rules: &[&str]) -> Vec<AnswerRule> {
    let list: Vec<_> = rules.iter().map(|rule| format!("{rule:?}")).collect();
    let text =
        format!("response_field = [{}]\n[[server]]\naddress = \"127.0.0.1:9\"", list.join(", "));
    let config: ProxyConfig = Given::from_toml(&text, "test").read().expect("right");
    config.frontends[0].rules.response.clone()
}

/// The fields of an answer that rules are about here.
fn ruled(head: &str) -> String {
    let names = ["Strict-Transport-Security", "Cache-Control", "X-Own", "Content-Type", "Location"];
    let is_ruled = |line: &&str| names.iter().any(|name| line.starts_with(name));
    head.lines().filter(is_ruled).collect::<Vec<_>>().join("|")
}

#[test]
fn rules_for_answers_reach_those_of_the_proxy_too_and_are_for_their_paths_and_statuses() {
    let backend = Backend::answering(|head, _| {
        let fields = "Cache-Control: private\r\nX-Own: b\r\nContent-Type: text/html\r\n";
        match head.split(' ').nth(1) {
            Some("/bad") => Some("SSH-2.0-x\r\n".to_owned()),
            Some(_) => Some(ok(fields, "hi")),
            None => None,
        }
    });
    let set = |config: &mut ProxyConfig| {
        config.frontends[0].rules.response = answer_rules(&[
            "set Strict-Transport-Security: max-age=9",
            "/assets/ 2xx set Cache-Control: max-age=7",
            "5xx add X-Own: failed",
            "remove X-Own",
            "add X-Own: c",
            // What an answer of the proxy says of itself stays true.
            "set Content-Type: text/plain",
        ]);
    };
    let sts = "Strict-Transport-Security: max-age=9";
    on_every_driver(&[backend.address], set, |driver, proxy| {
        // Each twice: the second head is the last one of the loop again.
        for _ in 0..2 {
            for (request, expected) in [
                ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "Cache-Control: private"),
                ("GET /assets/a HTTP/1.1\r\nHost: x\r\n\r\n", "Cache-Control: max-age=7"),
            ] {
                let mut client = proxy.client();
                client.send(request);
                let head = client.head();
                let found = ruled(&head);
                assert!(found.contains(sts) && found.contains(expected), "{driver}: {head}");
                assert_eq!(found.matches("X-Own").count(), 1, "{driver}: {head}");
                assert!(found.contains("X-Own: c"), "{driver}: {head}");
                assert!(found.contains("Content-Type: text/plain"), "{driver}: {head}");
                assert!(!found.contains("text/html"), "{driver}: {head}");
            }
            for (request, status) in [
                ("GET /bad HTTP/1.1\r\nHost: x\r\n\r\n", 502),
                ("GET / HTTP/1.1\r\n\r\n", 400),
                ("TRACE / HTTP/1.1\r\nHost: x\r\n\r\n", 405),
            ] {
                let mut client = proxy.client();
                client.send(request);
                let head = client.head();
                assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{driver}: {head}");
                let expected = format!("Content-Type: text/plain; charset=utf-8|{sts}|X-Own: c");
                let mut found: Vec<_> = ruled(&head).split('|').map(str::to_owned).collect();
                found.sort();
                assert_eq!(found.join("|"), expected, "{driver}: {head}");
            }
        }
    });
}

#[test]
fn a_client_is_the_one_that_the_proxy_in_front_names() {
    // Answers each request with the client that the proxy names.
    let backend = Backend::answering(|head, _| {
        field(head, "X-Forwarded-For").map(|named| ok(&format!("X-Client: {named}\r\n"), ""))
    });
    let accept = |_, config: &mut ProxyConfig| {
        config.frontends[0].accepts_header = true;
        config.limits.clients.header_timeout = Duration::from_secs(2);
    };
    on_all_drivers_at_once(&[backend.address], accept, |driver, proxy| {
        let own = "127.0.0.1";
        let mut binary = Vec::new();
        let [source, destination] =
            ["[2001:db8::7]:9", "[::1]:80"].map(|it| it.parse().expect("one"));
        ProxyHeader::Of { source, destination }.write(ProxyVersion::V2, &mut binary);
        let line = b"PROXY TCP4 10.1.2.3 10.0.0.1 4000 80\r\n".to_vec();
        for (header, named) in [
            (line.clone(), "10.1.2.3"),
            (binary, "2001:db8::7"),
            (b"PROXY UNKNOWN\r\n".to_vec(), own),
        ] {
            // With the request behind it, and byte by byte; the next request needs none.
            let mut client = proxy.client();
            client.send([header.as_slice(), GET.as_bytes()].concat());
            assert_eq!(field(&client.head(), "X-Client"), Some(named), "{driver}");
            client.send(GET);
            assert_eq!(field(&client.head(), "X-Client"), Some(named), "{driver}");
            let mut client = proxy.client();
            for byte in &header {
                client.send([*byte]);
            }
            client.send(GET);
            assert_eq!(field(&client.head(), "X-Client"), Some(named), "{driver}");
        }
        // Required where it is switched on; and a second one is not a request.
        for wrong in [GET.as_bytes(), b"PROXY TCP4 1.1.1.1 2.2.2.2 1\r\n", b"PROXY\r\n"] {
            let mut client = proxy.client();
            client.send(wrong);
            assert_eq!(client.rest(), "", "{driver}");
        }
        assert_eq!(proxy.count(ProxyCounter::HeadersRefused), 3, "{driver}");
        let mut client = proxy.client();
        client.send([line.as_slice(), line.as_slice()].concat());
        assert!(client.head().starts_with("HTTP/1.1 400 "), "{driver}");
        // A part of one has the time of a head.
        let mut client = proxy.client();
        client.send("PROXY TC");
        assert_eq!(client.rest(), "", "{driver}");
    });
}

#[test]
fn a_backend_learns_whose_connection_it_is_and_no_other_client_has_it() {
    let (seen, sees) = channel();
    let backend = Backend::start(move |_, mut client| {
        let mut bytes = Vec::new();
        let (header, len) = loop {
            let mut byte = [0];
            if client.socket.read_exact(&mut byte).is_ok() {
                bytes.push(byte[0]);
            } else {
                return;
            }
            match ProxyHeader::parse(&bytes) {
                Ok(Some(found)) => break found,
                Ok(None) => {}
                Err(wrong) => panic!("{wrong}: {bytes:?}"),
            }
        };
        assert_eq!(len, bytes.len());
        if client.head().starts_with("GET / ") {
            let _ = seen.send(header);
            client.try_send(ok("", ""));
        }
    });
    for version in [ProxyVersion::V1, ProxyVersion::V2] {
        let send = |config: &mut ProxyConfig| {
            config.groups[0].sends_header = Some(version);
        };
        on_every_driver(&[backend.address], send, |driver, proxy| {
            let before = backend.accepted();
            for _ in 0..2 {
                let mut client = proxy.client();
                for _ in 0..2 {
                    client.send(GET);
                    assert!(client.head().starts_with("HTTP/1.1 200 "), "{driver}");
                    let source = client.socket.local_addr().expect("connected");
                    let expected = ProxyHeader::Of { source, destination: proxy.address };
                    assert_eq!(sees.recv(), Ok(expected), "{driver}");
                }
            }
            assert_eq!(backend.accepted() - before, 4, "{driver}");
        });
    }
}
