//! Heads of requests, one by one: what is taken, what is refused, and with which status; and those that a client
//! writes, which are read back as they were meant, or refused before a byte.

use pollux_http::{
    Field, Form, Framing, Limits, Method, Parsed, Request, RequestFault, RequestHead,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// The head of a request, or a failed test.
fn taken(input: &str) -> (Request<'_>, usize) {
    match Request::parse(input.as_bytes(), &Limits::default()) {
        Parsed::Complete(request, len) => (request, len),
        other => panic!("{input:?}: {other:?}"),
    }
}

fn refused(input: &str, limits: &Limits) -> Option<u16> {
    match Request::parse(input.as_bytes(), limits) {
        Parsed::Rejected(rejection) => {
            assert!(rejection.rfc.starts_with("RFC "), "{rejection}");
            Some(rejection.status.code())
        }
        Parsed::Incomplete | Parsed::Complete(..) => None,
    }
}

#[test]
fn a_plain_head_gives_its_facts() {
    let input = "GET /a?b HTTP/1.1\r\nHost: h:1\r\nX: y\r\n\r\nbody";
    let (request, len) = taken(input);
    assert_eq!(len, input.len() - 4);
    assert_eq!(request.method, Method::Get);
    assert_eq!((request.target.path(), request.target.query()), (Some("/a"), Some("b")));
    assert_eq!((request.version_minor, request.framing), (1, Framing::None));
    assert!(request.keep_alive && !request.expects_continue);
    assert_eq!(request.host(), Some("h:1"));
    assert_eq!(request.fields.first("x"), Some(&b"y"[..]));
}

#[test]
fn every_prefix_of_a_sound_head_is_incomplete() {
    let input = "\r\nPOST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n";
    for end in 0..input.len() {
        let parsed = Request::parse(&input.as_bytes()[..end], &Limits::default());
        assert_eq!(parsed, Parsed::Incomplete, "{end}");
    }
    assert_eq!(taken(input).0.framing, Framing::Length(3));
}

#[test]
fn the_target_overrides_host_but_host_must_stand_there() {
    let (request, _) = taken("GET http://t/a HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!((request.host(), request.target.path()), (Some("t"), Some("/a")));
    assert_eq!(refused("GET http://t/a HTTP/1.1\r\n\r\n", &Limits::default()), Some(400));
}

#[test]
fn http_1_0_needs_no_host_and_closes() {
    let (request, _) = taken("GET / HTTP/1.0\r\n\r\n");
    assert_eq!((request.host(), request.keep_alive, request.version_minor), (None, false, 0));
    assert!(taken("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").0.keep_alive);
}

#[test]
fn unknown_methods_are_passed_on() {
    let (request, _) = taken("BREW / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(request.method, Method::Other("BREW"));
}

#[test]
fn as_many_fields_are_taken_as_the_limit_says() {
    let head = |fields: usize| {
        format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "X: y\r\n".repeat(fields - 1))
    };
    for fields in [1, 16, 17, 120, 1000] {
        assert_eq!(taken(&head(fields)).0.fields.count(), fields);
    }
    assert_eq!(refused(&head(1001), &Limits::default()), Some(431));
    let few = Limits { fields: 3, ..Limits::default() };
    assert_eq!((refused(&head(3), &few), refused(&head(4), &few)), (None, Some(431)));
}

#[test]
fn endless_heads_are_refused_at_the_limit() {
    let limits = Limits { head_bytes: 100, target_bytes: 50, ..Limits::default() };
    let target = format!("GET /{}", "a".repeat(200));
    let line = format!("GET / HTTP/1.1\r\nHost: {}", "a".repeat(200));
    let fields = format!("GET / HTTP/1.1\r\nHost: a\r\n{}", "X: y\r\n".repeat(40));
    for (input, code, at) in [(&target, 414, 55), (&line, 431, 100), (&fields, 431, 100)] {
        assert_eq!(refused(&input[..at - 1], &limits), None, "{input}");
        assert_eq!(refused(&input[..at], &limits), Some(code), "{input}");
        assert_eq!(refused(input, &limits), Some(code), "{input}");
    }
    let short = Limits { head_bytes: 30, ..Limits::default() };
    assert_eq!(refused(&target, &short), Some(414), "a request line that fills the head");
}

#[test]
fn a_head_may_be_as_long_as_the_limit() {
    let head = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    let limits = |head_bytes| Limits { head_bytes, ..Limits::default() };
    assert_eq!(refused(head, &limits(head.len())), None);
    assert_eq!(refused(head, &limits(head.len() - 1)), Some(431));
}

/// What stands between `GET / HTTP/1.1`, a sound Host and the empty line, and its status.
const FIELDS: &[(&str, u16)] = &[
    ("Host: h\r\n", 400),
    (" X: y\r\n", 400),
    ("X : y\r\n", 400),
    ("X\t: y\r\n", 400),
    ("X\r\n", 400),
    (": y\r\n", 400),
    ("X: y\r\n z\r\n", 400),
    ("X: y\r\n\tz\r\n", 400),
    ("X: y\rz\r\n", 400),
    ("X: y\0\r\n", 400),
    ("X: y\x7f\r\n", 400),
    ("X(: y\r\n", 400),
    ("X: y\n", 400),
    ("X: y\nZ: z\r\n", 400),
    ("X:\n", 400),
    ("\n", 400),
    ("Content-Length: 1\r\nContent-Length: 1\r\n", 400),
    ("Content-Length: 1, 1\r\n", 400),
    ("Content-Length: 1 1\r\n", 400),
    ("Content-Length: +1\r\n", 400),
    ("Content-Length: 99999999999999999999\r\n", 413),
    ("Content-Length: 1073741825\r\n", 413),
    ("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", 400),
    ("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n", 400),
    ("Transfer-Encoding: gzip\r\n", 400),
    ("Transfer-Encoding: gzip, chunked\r\n", 501),
    ("Transfer-Encoding: chunked, chunked\r\n", 400),
    ("Transfer-Encoding: \x0bchunked\r\n", 400),
    ("Transfer-Encoding\t: chunked\r\n", 400),
    ("Expect: tea\r\n", 417),
];

#[test]
fn unsound_fields_are_refused() {
    for (fields, code) in FIELDS {
        for input in [
            format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n"),
            // Behind more fields than fit at first.
            format!("GET / HTTP/1.1\r\nHost: h\r\n{}{fields}\r\n", "A: b\r\n".repeat(40)),
        ] {
            assert_eq!(refused(&input, &Limits::default()), Some(*code), "{input:?}");
        }
    }
}

#[test]
fn a_wrong_line_is_refused_before_the_head_is_whole() {
    for (line, code) in [
        ("Host: a b\r\n", 400),
        ("Host: h\r\nHost: h\r\n", 400),
        ("Content-Length: x\r\n", 400),
        ("X ", 400),
        ("X: y\0", 400),
        ("X: y\n", 400),
    ] {
        let input = format!("GET / HTTP/1.1\r\nA: b\r\n{line}");
        assert_eq!(refused(&input, &Limits::default()), Some(code), "{input:?}");
        let before = &input[..input.len() - 1];
        assert_eq!(refused(before, &Limits::default()), None, "{before:?}");
    }
}

#[test]
fn expectations_and_framing_are_reported() {
    let head =
        "PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n";
    let (request, _) = taken(head);
    assert!(request.expects_continue);
    assert_eq!(request.framing, Framing::Chunked);
    let (bare, _) = taken("GET / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n");
    assert!(!bare.expects_continue, "there is no body to wait for");
    let (old, _) = taken("PUT / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n");
    assert!(!old.expects_continue);
}

const PLAIN: RequestHead<'_> = RequestHead {
    method: Method::Get,
    target: "/",
    host: "localhost:8080",
    fields: &[],
    framing: Framing::None,
};

fn written(head: &RequestHead<'_>) -> String {
    let mut out = b"before ".to_vec();
    head.write(&mut out).expect("sound");
    String::from_utf8(out).expect("UTF-8").strip_prefix("before ").expect("appended").to_owned()
}

fn fault(head: &RequestHead<'_>) -> Option<RequestFault> {
    let mut out = b"before".to_vec();
    let fault = head.write(&mut out).err();
    assert!(fault.is_none() || out == b"before", "a refused head leaves nothing");
    fault
}

#[test]
fn a_head_is_written_line_by_line() {
    assert_eq!(written(&PLAIN), "GET / HTTP/1.1\r\nHost: localhost:8080\r\n\r\n");
    let fields = [Field { name: "Accept", value: b"*/*" }, Field { name: "X", value: b"" }];
    let head = RequestHead { method: Method::Post, target: "/a?b", fields: &fields, ..PLAIN };
    let lines = "POST /a?b HTTP/1.1\r\nHost: localhost:8080\r\nAccept: */*\r\nX: \r\n";
    for (framing, line) in [
        (Framing::None, ""),
        (Framing::Length(0), "Content-Length: 0\r\n"),
        (Framing::Length(u64::MAX), "Content-Length: 18446744073709551615\r\n"),
        (Framing::Chunked, "Transfer-Encoding: chunked\r\n"),
    ] {
        assert_eq!(written(&RequestHead { framing, ..head }), format!("{lines}{line}\r\n"));
    }
}

#[test]
fn each_method_has_its_targets() {
    let connect = RequestHead { method: Method::Connect, target: "a:1", ..PLAIN };
    let options = RequestHead { method: Method::Options, target: "*", ..PLAIN };
    let proxied = RequestHead { target: "http://a/b", ..PLAIN };
    for (head, form) in
        [(connect, Form::Authority), (options, Form::Asterisk), (proxied, Form::Absolute)]
    {
        let text = written(&head);
        let Parsed::Complete(request, _) = Request::parse(text.as_bytes(), &Limits::default())
        else {
            panic!("{text}")
        };
        assert_eq!(request.target.form(), form);
    }
    for (method, target) in [(Method::Connect, "/"), (Method::Get, "*"), (Method::Get, "a:1")] {
        assert_eq!(fault(&RequestHead { method, target, ..PLAIN }), Some(RequestFault::Target));
    }
}

#[test]
fn nothing_can_end_its_line_or_frame_the_request_anew() {
    let long = "A".repeat(Method::BYTES_MAX + 1);
    for name in ["", "G T", "GET /\r\n", "G\0", "\u{e4}", &long] {
        let head = RequestHead { method: Method::Other(name), ..PLAIN };
        assert_eq!(fault(&head), Some(RequestFault::Method), "{name:?}");
    }
    for target in ["", "a", "/a b", "/\r\nX: y", "/\n", "/\0", "/#a", "/\u{e4}", "/\t"] {
        let head = RequestHead { target, ..PLAIN };
        assert_eq!(fault(&head), Some(RequestFault::Target), "{target:?}");
    }
    for host in ["a b", "a\r\nX: y", "a\n", "a\0", "u@a", "a:99999"] {
        assert_eq!(fault(&RequestHead { host, ..PLAIN }), Some(RequestFault::Host), "{host:?}");
    }
    let sound = Field { name: "X", value: b"y" };
    for name in ["", "X Y", "X:", "X\r\n", "X\0", "\u{e4}"] {
        let fields = [sound, Field { name, value: b"" }];
        let head = RequestHead { fields: &fields, ..PLAIN };
        assert_eq!(fault(&head), Some(RequestFault::FieldName(1)), "{name:?}");
    }
    for value in [&b"a\r\nY: z"[..], b"\r", b"\n", b"\0", b"\x7f"] {
        let fields = [sound, sound, Field { name: "X", value }];
        let head = RequestHead { fields: &fields, ..PLAIN };
        assert_eq!(fault(&head), Some(RequestFault::FieldValue(2)), "{}", value.escape_ascii());
    }
    for name in ["Host", "content-length", "Transfer-ENCODING"] {
        let fields = [Field { name, value: b"1" }];
        let head = RequestHead { fields: &fields, ..PLAIN };
        assert_eq!(fault(&head), Some(RequestFault::FieldReserved(0)), "{name}");
    }
}

#[test]
fn a_fault_says_where_it_is() {
    assert!(RequestFault::FieldValue(2).to_string().contains("field 2"));
    assert!(RequestFault::Method.to_string().contains("32 bytes"));
}

proptest! {
    #[test]
    fn what_is_written_reads_as_it_was_meant(
        method in select(&["GET", "HEAD", "POST", "BREW", "G T"][..]),
        target in "/[ -~\r\n]{0,12}",
        host in "[a-z:.0-9 \n]{0,8}",
        parts in vec(("[A-Za-z-]{0,6}[: \r]?", vec(any::<u8>(), 0..8)), 0..5),
        len in 0..1000u64,
    ) {
        let fields: Vec<_> = parts.iter().map(|(name, value)| Field { name, value }).collect();
        let head = RequestHead {
            method: Method::named(method),
            target: &target,
            host: &host,
            fields: &fields,
            framing: Framing::Length(len),
        };
        let mut out = Vec::new();
        if head.write(&mut out).is_ok() {
            let Parsed::Complete(request, read) = Request::parse(&out, &Limits::default()) else {
                panic!("{}", out.escape_ascii())
            };
            prop_assert_eq!(read, out.len());
            prop_assert_eq!(request.method, head.method);
            prop_assert_eq!((request.host(), request.framing), (Some(&host[..]), head.framing));
            prop_assert_eq!(request.fields.count(), fields.len() + 2);
            for (field, read) in fields.iter().zip(request.fields.skip(1)) {
                prop_assert_eq!((field.name, field.value.trim_ascii()), (read.name, read.value));
            }
        }
    }
}
