//! What holds for every stream that starts with a response head.
//!
//! The fuzz target and the corpus test call it. It panics when something does not hold.
#![cfg_attr(fuzzing, no_main)]

use pollux_http::{
    BodyReader, HeadCache, Limits, Rejection, RequestKind, Response, ResponseBody, ResponseFacts,
};

/// Splits are tried at every byte up to here; the rest of a long input is taken in strides.
const DENSE_BYTES: usize = 512;
const STRIDE_BYTES: usize = 61;

type Verdict<'b> = Result<Option<Response<'b>>, Rejection>;

/// Checks the input as an answer to each kind of request, under the default limits and under
/// ones that are easily exceeded.
pub(crate) fn holds(data: &[u8]) {
    let tight = Limits { head_bytes: 120, fields: 3, body_bytes: 50, ..Limits::default() };
    for limits in [Limits::default(), tight] {
        let mut cache = HeadCache::new(limits);
        for to in [RequestKind::Other, RequestKind::Head, RequestKind::Connect] {
            let verdict = Response::parse(data, &limits, to);
            no_split_changes_it(data, &limits, to, &verdict);
            the_cache_says_the_same(&mut cache, data, &limits, to);
            httparse_finds_the_same(data, &limits, &verdict);
            match verdict {
                Ok(Some(response)) => {
                    the_head_keeps_the_rules(&response, data, to);
                    the_body_ends_where_it_is_said(&response.facts, data, &limits);
                }
                Ok(None) => assert!(data.len() < limits.head_bytes, "an endless head"),
                Err(rejection) => assert_eq!(rejection.status.code(), 502),
            }
        }
    }
}

fn no_split_changes_it(data: &[u8], limits: &Limits, to: RequestKind, verdict: &Verdict<'_>) {
    let dense = 0..data.len().min(DENSE_BYTES);
    let sparse = (dense.end..data.len()).step_by(STRIDE_BYTES);
    for split in dense.chain(sparse) {
        let early = Response::parse(&data[..split], limits, to);
        assert!(
            early == Ok(None) || early == *verdict,
            "at {split}: {early:?}, in the end: {verdict:?}"
        );
    }
}

/// A cache that has seen the head, or a neighbour of it, or a part, answers like a reader.
fn the_cache_says_the_same(cache: &mut HeadCache, data: &[u8], limits: &Limits, to: RequestKind) {
    let mut other = data.to_vec();
    let middle = data.len() / 3;
    if let Some(b) = other.get_mut(middle) {
        *b ^= 1;
    }
    for input in [data, data, &other, &other, data, &data[..middle], data] {
        let parsed = Response::parse(input, limits, to).map(|whole| whole.map(|r| r.facts));
        if let Some(facts) = cache.lookup(input, to) {
            assert_eq!(parsed, Ok(Some(facts)));
        }
        assert_eq!(cache.read(input, to), parsed);
    }
}

/// The oracle: an older parser, which also takes bare LFs and empty lines in front, but knows no
/// version beyond 1.1.
fn httparse_finds_the_same(data: &[u8], limits: &Limits, verdict: &Verdict<'_>) {
    let mut slots = [httparse::EMPTY_HEADER; 128];
    let mut oracle = httparse::Response::new(&mut slots);
    let mut known = data.to_vec();
    if let [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor @ b'2'..=b'9', ..] = &mut known[..] {
        *minor = b'1';
    }
    let read = oracle.parse(&known);
    match verdict {
        Ok(Some(response)) => {
            assert_eq!(read, Ok(httparse::Status::Complete(response.facts.head_len)));
            assert_eq!(oracle.code, Some(response.facts.status.code()));
            // It knows no phrases but ASCII ones, and gives the empty one for the others.
            let reason = if response.reason.is_ascii() { response.reason } else { b"" };
            assert_eq!(oracle.reason.map(str::as_bytes), Some(reason));
            let fields = response.fields.map(|field| (field.name, field.value));
            assert!(fields.eq(oracle.headers.iter().map(|header| (header.name, header.value))));
        }
        Ok(None) => {
            assert!(data.len() > limits.head_bytes || read == Ok(httparse::Status::Partial));
        }
        Err(rejection) => {
            let is_syntax = matches!(rejection.rfc, "RFC 9112 5" | "RFC 9110 5.5");
            let is_taken = matches!(read, Ok(httparse::Status::Complete(_)));
            assert!(!is_syntax || !is_taken, "{rejection}, but httparse takes it");
        }
    }
}

fn the_head_keeps_the_rules(response: &Response<'_>, data: &[u8], to: RequestKind) {
    let facts = response.facts;
    let head = &data[..facts.head_len];
    assert!(head.ends_with(b"\r\n\r\n"));
    let bare = |at: usize| head[at] == b'\n' && (at == 0 || head[at - 1] != b'\r');
    assert!(!(0..head.len()).any(bare), "a bare LF was taken for a line end");
    let lines = head.iter().filter(|&&b| b == b'\n').count();
    assert_eq!(response.fields.count(), lines - 2, "a line got lost or was made up");

    let count = |name: &str| response.fields.all(name).count();
    let lengths = count("content-length");
    let codings = count("transfer-encoding");
    match facts.body {
        ResponseBody::None => {
            let never = !facts.status.allows_body();
            assert!(never || to == RequestKind::Head || to.leaves_http(facts.status));
        }
        ResponseBody::Length(_) => assert!(lengths > 0 && codings == 0),
        ResponseBody::Chunked => assert!(codings > 0 && facts.version_minor == 1),
        ResponseBody::UntilClose => assert!(codings > 0 || lengths == 0),
    }
    if facts.keep_alive {
        assert!(facts.body != ResponseBody::UntilClose && !to.leaves_http(facts.status));
        assert!(lengths == 0 || codings == 0);
        assert!(facts.version_minor == 1 || count("connection") > 0);
    }
}

/// Pieces of every size give the same bytes and the same end.
fn the_body_ends_where_it_is_said(facts: &ResponseFacts, data: &[u8], limits: &Limits) {
    let behind = &data[facts.head_len..];
    let whole = read(facts.body, behind, limits, behind.len().max(1));
    if let (ResponseBody::Length(len), Ok((body, at))) = (facts.body, &whole) {
        assert_eq!((body.len() as u64, *at as u64), (len, len));
    }
    for piece in [1, 3, 7] {
        assert_eq!(read(facts.body, behind, limits, piece), whole, "in pieces of {piece}");
    }
}

/// The body's bytes and how many bytes it took, when the connection ends behind `data`.
fn read(
    body: ResponseBody,
    data: &[u8],
    limits: &Limits,
    piece: usize,
) -> Result<(Vec<u8>, usize), Rejection> {
    let mut reader = BodyReader::of_response(body, limits);
    let mut bytes = Vec::new();
    let mut at = 0;
    while at < data.len() && !reader.is_done() {
        let piece = &data[at..data.len().min(at + piece)];
        let step = reader.feed(piece)?;
        assert!(0 < step.consumed && step.consumed <= piece.len(), "it must continue");
        bytes.extend_from_slice(&piece[step.data]);
        at += step.consumed;
    }
    reader.end()?;
    Ok((bytes, at))
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| holds(data));
