//! The checks of the fuzz targets, on the stable compiler, over their corpus and over random inputs that look like
//! what they read; and the way of a body from writer to reader.

use pollux_http::{
    BodyReader, CHUNK_END, Framing, HeadWriter, LAST_CHUNK, Limits, Status, write_chunk_head,
};
use pollux_testing::replay;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

#[path = "../../../fuzz/checks/body.rs"]
mod body;
#[path = "../../../fuzz/checks/conditions.rs"]
mod conditions;
#[path = "../../../fuzz/checks/h2_client.rs"]
mod h2_client;
#[path = "../../../fuzz/checks/h2_server.rs"]
mod h2_server;
#[path = "../../../fuzz/checks/path.rs"]
mod path;
#[path = "../../../fuzz/checks/proxy_header.rs"]
mod proxy_header;
#[path = "../../../fuzz/checks/request.rs"]
mod request;
#[path = "../../../fuzz/checks/response.rs"]
mod response;

/// Fewer files than this mean that the corpus was not found.
const FILES_MIN: usize = 20;

#[test]
fn every_request_of_the_corpus_holds() {
    replay("request", FILES_MIN, request::holds);
}

#[test]
fn every_response_of_the_corpus_holds() {
    replay("response", FILES_MIN, response::holds);
}

#[test]
fn every_body_of_the_corpus_holds() {
    replay("body", FILES_MIN, body::holds);
}

#[test]
fn every_path_of_the_corpus_holds() {
    replay("path", FILES_MIN, path::holds);
}

#[test]
fn every_condition_of_the_corpus_holds() {
    replay("conditions", FILES_MIN, conditions::holds);
}

#[test]
fn every_proxy_header_of_the_corpus_holds() {
    replay("proxy_header", FILES_MIN, proxy_header::holds);
}

#[test]
fn every_client_of_the_corpus_holds() {
    replay("h2_server", FILES_MIN, h2_server::holds);
}

#[test]
fn every_server_of_the_corpus_holds() {
    replay("h2_client", FILES_MIN, h2_client::holds);
}

/// What heads are made of, sound and not, with bars between them; put together at random.
const HEAD_PARTS: &str = "\
    GET |POST |OPTIONS |CONNECT |BREW |PRI * HTTP/2.0|/|/a?b|*|a:80|http://a/b| |  |\t|HTTP/1.1|\
    HTTP/1.0|HTTP/1.2|HTTP/2.0|HTTP/1.|\r\n|\r\n|\r\n|\r\n\r\n|\n|\r|:|: |\0|\u{e4}|Host|\
    Host: a|Host: [::1]:80|Host: a b|Content-Length|Content-Length: 5|Content-Length: 5, 5|\
    Content-Length: 99999999999999999999|Transfer-Encoding: chunked|\
    Transfer-Encoding: gzip, chunked|Transfer-Encoding : chunked|chunked|Connection: close|\
    Expect: 100-continue|Expect: x| folded|X: |x-long-name-of-a-field: and its value";

/// What follows a sound request line.
const FIELD_PARTS: &str = "\
    Host: a\r\n|Host:a:80\r\n|Content-Length: 5\r\n|Content-Length: 0\r\n|\
    Transfer-Encoding: chunked\r\n|transfer-encoding: x\r\n|Connection: close\r\n|\
    Connection: keep-alive, x\r\n|Expect: 100-continue\r\n|X: y\r\n|X:\r\n|X: y\n|X : y\r\n|\
    \x20y\r\n|: y\r\n|X: \0\r\n|X: y\rz\r\n|\r\n|\n";

/// What answers are made of, sound and not.
const ANSWER_PARTS: &str = "\
    HTTP/1.1 200 OK\r\n|HTTP/1.1 200 OK\r\n|HTTP/1.0 200 OK\r\n|HTTP/1.1 100 Continue\r\n\r\n|\
    HTTP/1.1 204\r\n|HTTP/1.1 304 \r\n|HTTP/1.1 101 x\r\n|HTTP/1.1 |200| |\r\n|\r\n\r\n|\n|\r|\
    \0|\u{e4}|abc";

/// What follows a sound status line.
const ANSWER_FIELD_PARTS: &str = "\
    Content-Length: 3\r\n|Content-Length: 3\r\n|Content-Length: 3, 3\r\n|Content-Length: 4\r\n|\
    content-length: x\r\n|Content-Length: 99999999999999999999\r\n|\
    Transfer-Encoding: chunked\r\n|transfer-encoding: gzip\r\n|Connection: close\r\n|\
    Connection: keep-alive, x\r\n|Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n|Server: x\r\n|X:\r\n|\
    X: y\n| folded\r\n|X : y\r\n|X: \0\r\n";

const BODY_PARTS: &str = "\
    0|1|5|a|F|00|12c|12d|ffffffffffffffff|;|;x=y|=|\"|\\|[| |\t|\r\n|\r\n|\r\n|\r\n|\r|\n|a|\
    hello|0\r\n\r\n|5\r\nhello\r\n|1\r\nx\r\n|X: y\r\n|X:|:|GET / HTTP/1.1\r\n\r\n|\0";

const PATH_PARTS: &str = "\
    /|/|.|..|a|b.c|%2e|%2E%2e|%2f|%00|%|%4|%41|%25|\u{e4}";

const CONDITION_PARTS: &str = "\
    If-Match: |If-None-Match: |If-Modified-Since: |If-Unmodified-Since: |If-Range: |\
    Range: bytes=|Accept-Encoding: |\"v1\"|W/\"v1\"|\"x\"|*|,|, |-|0|1|99|18446744073709551616|\
    Sun, 06 Nov 1994 08:49:37 GMT|Mon, 07 Nov 1994 08:49:37 GMT|Thu, 01 Jan 1970 00:00:00 GMT|\
    gzip|br|identity|;q=0|;q=0.5|;q=1|\r\n|\r\n|\r\n";

/// One of the parts.
fn part(parts: &'static str) -> impl Strategy<Value = &'static str> {
    select(parts.split('|').collect::<Vec<_>>())
}

fn soup(parts: &'static str) -> impl Strategy<Value = Vec<u8>> {
    vec(part(parts), 0..24).prop_map(|parts| parts.concat().into_bytes())
}

/// Sound heads and nearly sound ones, with many fields now and then.
fn head() -> impl Strategy<Value = Vec<u8>> {
    let fields = vec(part(FIELD_PARTS), 0..8);
    (
        select(&["GET / HTTP/1.1\r\n", "POST /a HTTP/1.0\r\n"][..]),
        fields,
        0..120usize,
        any::<bool>(),
    )
        .prop_map(|(line, fields, many, is_many)| {
            let many = if is_many { "X: y\r\n".repeat(many) } else { String::new() };
            format!("{line}Host: h\r\n{many}{}\r\n", fields.concat()).into_bytes()
        })
}

/// Sound answers and nearly sound ones, with something behind them.
fn answer() -> impl Strategy<Value = Vec<u8>> {
    let line = select(ANSWER_PARTS.split('|').take(7).collect::<Vec<_>>());
    (line, vec(part(ANSWER_FIELD_PARTS), 0..4), soup(BODY_PARTS)).prop_map(
        |(line, fields, behind)| {
            let head = format!("{line}{}\r\n", fields.concat());
            [head.as_bytes(), &behind].concat()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn heads_hold(data in prop_oneof![soup(HEAD_PARTS), head(), vec(any::<u8>(), 0..300)]) {
        request::holds(&data);
    }

    #[test]
    fn responses_hold(data in prop_oneof![soup(ANSWER_PARTS), answer(), vec(any::<u8>(), 0..200)]) {
        response::holds(&data);
    }

    #[test]
    fn bodies_hold(data in prop_oneof![soup(BODY_PARTS), vec(any::<u8>(), 0..100)]) {
        body::holds(&data);
    }

    #[test]
    fn paths_hold(data in prop_oneof![soup(PATH_PARTS), vec(any::<u8>(), 0..50)]) {
        path::holds(&data);
    }

    #[test]
    fn conditions_hold(data in soup(CONDITION_PARTS)) {
        conditions::holds(&data);
    }

    #[test]
    fn a_chunked_body_arrives_as_it_was_sent(
        chunks in vec(vec(any::<u8>(), 1..300), 0..8),
        extension in "([ \t]?;[ \t]?[a-z!~]{1,6}([ \t]?=[ \t]?([a-z0-9]{1,6}|\"([ !#-\\[\\]-~]|\\\\[ -~]){0,9}\"))?){0,3}",
        trailers in select(&["", "A: b\r\n", "A:\r\nB: c\r\n"][..]),
        piece in 1..700usize,
    ) {
        let mut wire = Vec::new();
        for chunk in &chunks {
            let mut line = [0; 18];
            let len = write_chunk_head(&mut line, chunk.len() as u64).expect("room");
            wire.extend_from_slice(&line[..len - 2]);
            wire.extend_from_slice(extension.as_bytes());
            wire.extend_from_slice(b"\r\n");
            wire.extend_from_slice(chunk);
            wire.extend_from_slice(CHUNK_END);
        }
        let (zero, end) = LAST_CHUNK.split_at(3);
        wire.extend_from_slice(&[zero, trailers.as_bytes(), end].concat());
        let body_bytes = wire.len();
        wire.extend_from_slice(b"what follows");

        let mut reader = BodyReader::new(Framing::Chunked, &Limits::default());
        let mut body = Vec::new();
        let mut at = 0;
        while !reader.is_done() {
            let input = &wire[at..wire.len().min(at + piece)];
            let step = reader.feed(input).expect("sound");
            body.extend_from_slice(&input[step.data]);
            at += step.consumed;
        }
        prop_assert_eq!(body, chunks.concat());
        prop_assert_eq!(at, body_bytes);
    }
    #[test]
    fn a_head_that_is_written_is_one_sound_head(
        code in 200..600u16,
        values in vec(vec(any::<u8>(), 0..40), 0..6),
        room in 0..400usize,
    ) {
        let mut out = vec![0; room];
        let mut head = HeadWriter::new(&mut out, Status::of(code));
        for value in &values {
            head.field("X-Value", value);
        }
        let Ok(len) = head.content_length(7).connection(1, true).finish() else { return Ok(()) };

        let mut slots = [httparse::EMPTY_HEADER; 8];
        let mut read = httparse::Response::new(&mut slots);
        prop_assert_eq!(read.parse(&out[..len]), Ok(httparse::Status::Complete(len)));
        prop_assert_eq!(read.code, Some(code));
        prop_assert_eq!(read.headers.len(), values.len() + 2);
        for (field, value) in read.headers.iter().zip(&values) {
            let clean: Vec<u8> = value
                .iter()
                .map(|&b| if b == b'\t' || (b >= b' ' && b != 0x7f) { b } else { b' ' })
                .collect();
            prop_assert_eq!(field.value, clean.trim_ascii());
        }
    }
}
