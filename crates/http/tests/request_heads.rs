//! Request heads that a client writes: read back as they were meant, or refused before a byte.

use pollux_http::{
    Field, Form, Framing, Limits, Method, Parsed, Request, RequestFault, RequestHead,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

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
