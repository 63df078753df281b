//! What holds for every stream that starts with a request head.
//!
//! The fuzz target and the corpus test call it. It panics when something does not hold.
#![cfg_attr(fuzzing, no_main)]

use pollux_http::{Framing, Limits, Parsed, Request};

/// Splits are tried at every byte up to here; the rest of a long input is taken in strides.
const DENSE_BYTES: usize = 1024;
const STRIDE_BYTES: usize = 61;

/// Checks the input under the default limits and under ones that are easily exceeded.
pub(crate) fn holds(data: &[u8]) {
    let tight = Limits {
        head_bytes: 200,
        target_bytes: 24,
        fields: 5,
        body_bytes: 100,
        ..Limits::default()
    };
    for limits in [Limits::default(), tight] {
        let verdict = Request::parse(data, &limits);
        no_split_changes_it(data, &limits, &verdict);
        httparse_finds_the_same_fields(data, &limits, &verdict);
        if let Parsed::Complete(request, len) = verdict {
            the_head_keeps_the_rules(&request, &data[..len], &limits);
        }
    }
}

fn no_split_changes_it(data: &[u8], limits: &Limits, verdict: &Parsed<'_>) {
    let dense = 0..data.len().min(DENSE_BYTES);
    let sparse = (dense.end..data.len()).step_by(STRIDE_BYTES);
    for split in dense.chain(sparse) {
        let early = Request::parse(&data[..split], limits);
        assert!(
            early == Parsed::Incomplete || early == *verdict,
            "at {split}: {early:?}, in the end: {verdict:?}"
        );
    }
    if data.len() >= limits.head_bytes + 64 {
        assert_ne!(*verdict, Parsed::Incomplete, "an endless head must be refused");
    }
}

/// The oracle for field lines: an older parser, which also takes a bare LF for a line end. What
/// is taken here, it splits into the same lines; what is refused as no field line, or is not
/// whole yet, it does not take either.
fn httparse_finds_the_same_fields(data: &[u8], limits: &Limits, verdict: &Parsed<'_>) {
    let Some(block) = behind_request_line(data) else { return };
    let mut slots = [httparse::EMPTY_HEADER; 128];
    let read = httparse::parse_headers(block, &mut slots);
    match verdict {
        Parsed::Complete(request, len) => {
            let head = data.len() - block.len();
            let Ok(httparse::Status::Complete((block_len, headers))) = read else {
                panic!("taken here, but not by httparse: {read:?}")
            };
            assert_eq!(head + block_len, *len);
            let fields = request.fields.map(|field| (field.name, field.value));
            assert!(fields.eq(headers.iter().map(|header| (header.name, header.value))));
        }
        Parsed::Rejected(rejection) => {
            let is_syntax = matches!(rejection.rfc, "RFC 9112 5" | "RFC 9110 5.5");
            let is_taken = matches!(read, Ok(httparse::Status::Complete(_)));
            assert!(!is_syntax || !is_taken, "{rejection}, but httparse takes it");
        }
        Parsed::Incomplete => {
            assert!(block.len() > limits.head_bytes || read == Ok(httparse::Status::Partial));
        }
    }
}

/// What follows the first line that is not empty.
fn behind_request_line(data: &[u8]) -> Option<&[u8]> {
    let start = data.iter().position(|b| !matches!(b, b'\r' | b'\n'))?;
    let len = data[start..].iter().position(|&b| b == b'\n')?;
    Some(&data[start + len + 1..])
}

fn the_head_keeps_the_rules(request: &Request<'_>, head: &[u8], limits: &Limits) {
    assert!(head.ends_with(b"\r\n\r\n"));
    let bare = |at: usize| head[at] == b'\n' && (at == 0 || head[at - 1] != b'\r');
    assert!(!(0..head.len()).any(bare), "a bare LF was taken for a line end");

    let fields: Vec<_> = request.fields.collect();
    assert!(fields.len() <= limits.fields);
    assert_eq!(fields.len(), lines_of(head) - 2, "a line got lost or was made up");
    for field in &fields {
        assert!(!field.name.is_empty() && !field.name.contains([' ', '\t', '\r', '\n', ':']));
        assert!(!field.value.iter().any(|b| matches!(b, b'\r' | b'\n' | 0)));
    }
    let count = |name: &str| request.fields.all(name).count();
    match request.framing {
        Framing::None => assert_eq!(count("content-length") + count("transfer-encoding"), 0),
        Framing::Length(len) => {
            assert_eq!((count("content-length"), count("transfer-encoding")), (1, 0));
            assert!(len <= limits.body_bytes);
        }
        Framing::Chunked => {
            assert_eq!((count("content-length"), request.version_minor), (0, 1));
        }
    }
    assert!(request.version_minor == 0 || (count("host") == 1 && request.host().is_some()));
    if let Some(path) = request.target.path() {
        assert!(path.starts_with('/') && path.len() <= limits.target_bytes);
    }
}

/// Lines from the request line to the empty one.
fn lines_of(head: &[u8]) -> usize {
    let start = head.iter().position(|b| !matches!(b, b'\r' | b'\n')).unwrap_or(0);
    head[start..].iter().filter(|&&b| b == b'\n').count()
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| holds(data));
