//! Responses and their verdicts, byte for byte, each whole, byte by byte and cut at every place.

use pollux_http::{
    BodyReader, Framing, HeadCache, Limits, Rejection, RequestKind, Response, ResponseBody,
    ResponseFacts,
};

/// What a client has seen when the connection ends.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Seen {
    /// The head never came to its end.
    Cut,
    /// The head was refused.
    Refused(Rejection),
    /// The head, the body's bytes, how many bytes stood behind it, and how it ended.
    Answer(ResponseFacts, Vec<u8>, usize, Result<(), Rejection>),
}

/// A client of one answer: collects the pieces of a head, then feeds its body.
fn receive<'p>(pieces: impl Iterator<Item = &'p [u8]>, to: RequestKind) -> Seen {
    let limits = Limits::default();
    let mut cache = HeadCache::new(limits);
    let mut head = Vec::new();
    let mut body = Vec::new();
    let mut behind = 0;
    let mut reading = None;
    for piece in pieces {
        let mut rest = piece.to_vec();
        if reading.is_none() {
            head.extend_from_slice(piece);
            let parsed = Response::parse(&head, &limits, to).map(|r| r.map(|r| r.facts));
            assert_eq!(cache.read(&head, to), parsed, "the cache says the same");
            assert_eq!(cache.read(&head, to), parsed, "the cache says the same again");
            match parsed {
                Ok(None) => continue,
                Err(rejection) => return Seen::Refused(rejection),
                Ok(Some(facts)) => {
                    rest = head.split_off(facts.head_len);
                    reading = Some((facts, BodyReader::of_response(facts.body, &limits)));
                }
            }
        }
        let Some((facts, reader)) = &mut reading else { continue };
        while !rest.is_empty() && !reader.is_done() {
            match reader.feed(&rest) {
                Ok(step) => {
                    body.extend_from_slice(&rest[step.data.clone()]);
                    rest.drain(..step.consumed);
                }
                Err(rejection) => return Seen::Answer(*facts, body, 0, Err(rejection)),
            }
        }
        behind += rest.len();
    }
    match reading {
        None => Seen::Cut,
        Some((facts, mut reader)) => Seen::Answer(facts, body, behind, reader.end()),
    }
}

/// The answer taken whole; every other way must give the same.
fn seen(input: &[u8], to: RequestKind) -> Seen {
    let whole = receive([input].into_iter(), to);
    assert_eq!(receive(input.chunks(1), to), whole, "{}", input.escape_ascii());
    for split in 0..=input.len() {
        let (front, back) = input.split_at(split);
        let halves = receive([front, back].into_iter(), to);
        assert_eq!(halves, whole, "{} cut at {split}", input.escape_ascii());
    }
    whole
}

const GET: RequestKind = RequestKind::Other;
const HEAD: RequestKind = RequestKind::Head;
const CONNECT: RequestKind = RequestKind::Connect;

/// RFC section, what is answered, status line behind `HTTP/`, fields, keep-alive, body.
type Taken = (&'static str, RequestKind, &'static str, &'static str, bool, ResponseBody);

use ResponseBody::{Chunked, Length, None as NoBody, UntilClose};

/// Sound heads; the empty line is added.
const TAKEN: &[Taken] = &[
    ("9112 4", GET, "1.1 200 OK", "Content-Length: 5\r\n", true, Length(5)),
    ("9112 4", GET, "1.1 200 ", "Content-Length: 0\r\n", true, Length(0)),
    ("9112 4", GET, "1.1 200", "Content-Length: 0\r\n", true, Length(0)),
    ("9112 4", GET, "1.1 404 N\u{e4} da\tist nix", "content-length:5\r\n", true, Length(5)),
    ("9110 15", GET, "1.1 799 ?", "Content-Length: 5\r\n", true, Length(5)),
    ("9110 2.5", GET, "1.2 200 OK", "Content-Length: 5\r\n", true, Length(5)),
    ("9112 6.3 (1)", HEAD, "1.1 200 OK", "Content-Length: 5\r\n", true, NoBody),
    ("9112 6.3 (1)", HEAD, "1.1 200 OK", "Transfer-Encoding: chunked\r\n", true, NoBody),
    ("9112 6.3 (1)", HEAD, "1.1 200 OK", "", true, NoBody),
    ("9112 6.3 (1)", HEAD, "1.1 200 OK", "Content-Length: 5, 6\r\n", false, NoBody),
    ("9112 6.3 (1)", GET, "1.1 100 Continue", "", true, NoBody),
    ("9112 6.3 (1)", GET, "1.1 103 Early Hints", "Link: </a>\r\n", true, NoBody),
    ("9110 15.2.2", GET, "1.1 101 Switching", "Upgrade: x\r\n", false, NoBody),
    ("9112 6.3 (1)", GET, "1.1 204 No Content", "Content-Length: 5\r\n", true, NoBody),
    ("9112 6.3 (1)", GET, "1.1 304 Not Modified", "Content-Length: 5\r\n", true, NoBody),
    ("9112 6.3 (1)", GET, "1.0 304 Not Modified", "Transfer-Encoding: chunked\r\n", false, NoBody),
    ("9112 6.3 (2)", CONNECT, "1.1 200 OK", "Content-Length: 5\r\n", false, NoBody),
    ("9112 6.3 (2)", CONNECT, "1.1 200 OK", "Transfer-Encoding: x, y\r\n", false, NoBody),
    ("9112 6.3 (2)", CONNECT, "1.1 403 No", "Content-Length: 5\r\n", true, Length(5)),
    (
        "9112 6.3 (3)",
        GET,
        "1.1 200 OK",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        false,
        Chunked,
    ),
    ("9112 6.3 (4)", GET, "1.1 200 OK", "transfer-encoding:\tCHUNKED \r\n", true, Chunked),
    ("9112 6.3 (4)", GET, "1.1 200 OK", "Transfer-Encoding: gzip, chunked\r\n", true, Chunked),
    (
        "9112 6.3 (4)",
        GET,
        "1.1 200 OK",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
        true,
        Chunked,
    ),
    ("9112 6.3 (4)", GET, "1.1 200 OK", "Transfer-Encoding: gzip\r\n", false, UntilClose),
    (
        "9112 6.3 (4)",
        GET,
        "1.1 200 OK",
        "Transfer-Encoding: xchunked\r\nContent-Length: 5\r\n",
        false,
        UntilClose,
    ),
    ("9112 6.3 (5)", GET, "1.1 200 OK", "Content-Length: 5, 5\r\n", true, Length(5)),
    (
        "9112 6.3 (5)",
        GET,
        "1.1 200 OK",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        true,
        Length(5),
    ),
    ("9112 6.3 (8)", GET, "1.1 200 OK", "", false, UntilClose),
    ("9112 6.3 (8)", GET, "1.1 200 OK", "Connection: keep-alive\r\n", false, UntilClose),
    ("9112 6.3 (8)", GET, "1.0 500 No", "Server: x\r\n", false, UntilClose),
    (
        "9112 9.3",
        GET,
        "1.1 200 OK",
        "Content-Length: 5\r\nConnection: x, CLOSE\r\n",
        false,
        Length(5),
    ),
    ("9112 9.3", GET, "1.1 200 OK", "Content-Length: 5\r\nConnection: closed\r\n", true, Length(5)),
    ("9112 9.3", GET, "1.0 200 OK", "Content-Length: 5\r\n", false, Length(5)),
    (
        "9112 9.3",
        GET,
        "1.0 200 OK",
        "Content-Length: 5\r\nConnection: Keep-Alive\r\n",
        true,
        Length(5),
    ),
    (
        "9112 9.3",
        GET,
        "1.0 200 OK",
        "Content-Length: 5\r\nConnection: keep-alive\r\nConnection: close\r\n",
        false,
        Length(5),
    ),
    ("9110 5.5", GET, "1.1 200 OK", "Content-Length: 5\r\nX: \u{e4}\t \r\nY:\r\n", true, Length(5)),
];

#[test]
fn sound_heads_are_taken_with_their_facts() {
    for (rfc, to, line, fields, keep_alive, body) in TAKEN {
        let input = format!("HTTP/{line}\r\n{fields}\r\n");
        let Seen::Answer(facts, data, 0, _) = seen(input.as_bytes(), *to) else {
            panic!("RFC {rfc}: {input:?}")
        };
        assert_eq!(facts.status.code().to_string(), line[4..7], "RFC {rfc}: {input:?}");
        assert_eq!((facts.body, facts.head_len), (*body, input.len()), "RFC {rfc}: {input:?}");
        assert_eq!(facts.keep_alive, *keep_alive, "RFC {rfc}: {input:?}");
        assert!(data.is_empty());
    }
}

/// RFC section, and bytes that must be refused though everything may follow.
const REFUSED: &[(&str, &[u8])] = &[
    ("RFC 9112 4", b"\r\nHTTP/1.1 200 OK\r\n\r\n"),
    ("RFC 9112 4", b"HTTP/1.1\t200 OK\r\n\r\n"),
    ("RFC 9112 4", b"HTTP/1.1  200 OK\r\n\r\n"),
    ("RFC 9112 4", b"HTTP/1.1 20 OK\r\n\r\n"),
    ("RFC 9112 4", b"HTTP/1.1 2000 OK\r\n\r\n"),
    ("RFC 9112 4", b"HTTP/1.1 099 OK\r\n\r\n"),
    ("RFC 9112 4", b"HTTP/1.1 +20 OK\r\n\r\n"),
    ("RFC 9112 4", b"HTTP/1.1 200 OK\n\r\n"),
    ("RFC 9112 4", b"HTTP/1.1 200 O\rK\r\n\r\n"),
    ("RFC 9112 4", b"HTTP/1.1 200 O\0K\r\n\r\n"),
    ("RFC 9112 4", b"http/1.1 200 OK\r\n\r\n"),
    ("RFC 9112 4", b"HTTP/1.x 200 OK\r\n\r\n"),
    ("RFC 9112 4", b"ICY 200 OK\r\n\r\n"),
    ("RFC 9112 4", b"\x15\x03\x01\0\x02\x02\x46"),
    ("RFC 9112 4", b"SSH-2.0-x\r\n"),
    ("RFC 9110 15.6.6", b"HTTP/2.0 200 OK\r\n\r\n"),
    ("RFC 9112 5", b"HTTP/1.1 200 OK\r\n X: y\r\n\r\n"),
    ("RFC 9112 5", b"HTTP/1.1 200 OK\r\nX: y\r\n z\r\n\r\n"),
    ("RFC 9112 5", b"HTTP/1.1 200 OK\r\nX: y\r\n\tz\r\n\r\n"),
    ("RFC 9112 5", b"HTTP/1.1 200 OK\r\nX : y\r\n\r\n"),
    ("RFC 9112 5", b"HTTP/1.1 200 OK\r\n: y\r\n\r\n"),
    ("RFC 9112 5", b"HTTP/1.1 200 OK\r\nX\r\n\r\n"),
    ("RFC 9110 5.5", b"HTTP/1.1 200 OK\r\nX: y\rz\r\n\r\n"),
    ("RFC 9110 5.5", b"HTTP/1.1 200 OK\r\nX: y\0\r\n\r\n"),
    ("RFC 9112 2.2", b"HTTP/1.1 200 OK\r\nX: y\n\r\n"),
    ("RFC 9112 2.2", b"HTTP/1.1 200 OK\r\nX: y\r\n\n"),
    ("RFC 9112 2.2", b"HTTP/1.1 200 OK\r\nX: y\r\n\rz"),
    ("RFC 9112 6.3", b"HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\n"),
    ("RFC 9112 6.3", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n"),
    ("RFC 9112 6.3", b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n"),
    ("RFC 9112 6.3", b"HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n"),
    ("RFC 9112 6.3", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: x\r\n\r\n"),
    ("RFC 9110 15.5.14", b"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551621\r\n\r\n"),
    ("RFC 9112 6.1", b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
    ("RFC 9112 6.1", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n"),
    ("RFC 9112 6.1", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\n"),
    ("RFC 9112 6.1", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: ,chunked\r\n\r\n"),
];

#[test]
fn wrong_heads_are_refused_with_their_rule_as_a_bad_gateway() {
    for (rfc, input) in REFUSED {
        match seen(input, GET) {
            Seen::Refused(rejection) => {
                assert_eq!(rejection.rfc, *rfc, "{}: {rejection}", input.escape_ascii());
                assert_eq!(rejection.status.code(), 502);
            }
            other => panic!("{rfc} {}: {other:?}", input.escape_ascii()),
        }
    }
}

/// RFC section, head behind `HTTP/`, what follows it, the body's bytes, how many stand behind it, whether
/// it broke the rule of that section.
type Stream = (&'static str, &'static str, &'static str, &'static str, usize, bool);

/// The head of a chunked answer.
const CHUNKS: &str = "1.1 200 OK\r\nTransfer-Encoding: chunked\r\n";

const STREAMS: &[Stream] = &[
    ("9112 6.2", "1.1 200 OK\r\nContent-Length: 3\r\n", "abcHTTP/1.1", "abc", 8, false),
    ("9112 8", "1.1 200 OK\r\nContent-Length: 3\r\n", "ab", "ab", 0, true),
    ("9112 7.1", CHUNKS, "2\r\nab\r\n1;x\r\nc\r\n0\r\nX: y\r\n\r\nHT", "abc", 2, false),
    ("9112 8", CHUNKS, "3\r\nabc\r\n", "abc", 0, true),
    ("9112 8", CHUNKS, "3\r\nabc\r\n0\r\n", "abc", 0, true),
    ("9112 7.1", CHUNKS, "2\r\nabc\r\n", "ab", 0, true),
    ("9112 7.1", CHUNKS, "x\r\n", "", 0, true),
    ("9112 7.1", CHUNKS, "1\na\r\n", "", 0, true),
    ("9112 7.1.2", CHUNKS, "0\r\n y\r\n\r\n", "", 0, true),
    ("9110 15.5.14", CHUNKS, "40000001\r\n", "", 0, true),
    (
        "9112 6.3 (8)",
        "1.0 200 OK\r\n",
        "abcHTTP/1.1 200 OK\r\n\r\n",
        "abcHTTP/1.1 200 OK\r\n\r\n",
        0,
        false,
    ),
    ("9112 6.3 (8)", "1.0 200 OK\r\n", "", "", 0, false),
    ("9112 6.3 (1)", "1.1 204 No Content\r\nContent-Length: 3\r\n", "HTTP", "", 4, false),
    ("9110 15.2", "1.1 100 Continue\r\n", "HTTP/1.1 200", "", 12, false),
];

#[test]
fn bodies_end_where_the_head_says() {
    for (rfc, head, stream, body, behind, is_broken) in STREAMS {
        let input = format!("HTTP/{head}\r\n{stream}");
        let Seen::Answer(_, data, left, end) = seen(input.as_bytes(), GET) else {
            panic!("RFC {rfc}: {input:?}")
        };
        assert_eq!((data.as_slice(), left), (body.as_bytes(), *behind), "RFC {rfc}: {input:?}");
        let rule = format!("RFC {rfc}");
        let broken = is_broken.then_some((502, rule.as_str()));
        let found = end.err().map(|rejection| (rejection.status.code(), rejection.rfc));
        assert_eq!(found, broken, "{input:?}");
    }
}

#[test]
fn every_prefix_of_a_sound_head_is_cut() {
    let input = b"HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Length: 5\r\n\r\n";
    for end in 0..input.len() {
        assert_eq!(seen(&input[..end], GET), Seen::Cut, "{end}");
    }
}

#[test]
fn a_head_gives_its_reason_and_fields() {
    let input =
        b"HTTP/1.0 302 Found it\r\nLocation: /a \r\nSet-Cookie: a\r\nset-cookie: b\r\n\r\nx";
    let limits = Limits::default();
    let response = Response::parse(input, &limits, GET).expect("sound").expect("whole");
    assert_eq!((response.reason, response.facts.version_minor), (&b"Found it"[..], 0));
    assert_eq!(response.fields.first("location"), Some(&b"/a"[..]));
    assert_eq!(response.fields.all("Set-Cookie").count(), 2);
    assert_eq!(response.facts.head_len, input.len() - 1);
}

#[test]
fn interim_answers_are_distinguished_from_the_last_one() {
    for (code, is_interim) in [(100, true), (101, false), (103, true), (199, true), (200, false)] {
        let input = format!("HTTP/1.1 {code} \r\n\r\n");
        let response = Response::parse(input.as_bytes(), &Limits::default(), GET);
        let facts = response.expect("sound").expect("whole").facts;
        assert_eq!(facts.is_interim(), is_interim, "{code}");
    }
}

#[test]
fn limits_of_heads_and_bodies_hold() {
    let limits = Limits { head_bytes: 60, fields: 2, body_bytes: 5, ..Limits::default() };
    let refused = |input: &str| {
        Response::parse(input.as_bytes(), &limits, GET).err().map(|rejection| rejection.rfc)
    };
    let endless = format!("HTTP/1.1 200 {}", "a".repeat(80));
    assert_eq!((refused(&endless[..59]), refused(&endless[..60])), (None, Some("RFC 6585 5")));
    let lines = |count: usize| format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(count));
    assert_eq!((refused(&lines(2)), refused(&lines(3))), (None, Some("RFC 6585 5")));
    let length = |len: u64| format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n");
    assert_eq!((refused(&length(5)), refused(&length(6))), (None, Some("RFC 9110 15.5.14")));

    let mut reader = BodyReader::of_response(UntilClose, &limits);
    assert!(reader.feed(b"abcde").is_ok_and(|step| step.data == (0..5) && !step.is_done));
    let error = reader.feed(b"f").expect_err("too long");
    assert_eq!((error.status.code(), error.rfc), (502, "RFC 9110 15.5.14"));
    assert_eq!((reader.feed(b"f"), reader.end()), (Err(error), Err(error)));
}

#[test]
fn a_request_that_is_cut_is_a_bad_request() {
    let mut reader = BodyReader::new(Framing::Length(3), &Limits::default());
    assert_eq!(reader.end().map_err(|rejection| rejection.status.code()), Err(400));
    let mut done = BodyReader::new(Framing::None, &Limits::default());
    assert_eq!(done.end(), Ok(()));
}
