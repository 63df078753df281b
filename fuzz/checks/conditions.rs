//! What holds for all field lines that ask for conditions, ranges and codings.
//!
//! The fuzz target and the corpus test call it. It panics when something does not hold.
#![cfg_attr(fuzzing, no_main)]

use pollux_http::{
    Acceptable, ContentCoding, DateCache, EntityTag, Fields, Limits, Method, Outcome, Parsed,
    Representation, Request, evaluate, parse_date,
};

/// Puts the input as field lines into a request, and asks about several representations.
pub(crate) fn holds(data: &[u8]) {
    let head = [b"GET / HTTP/1.1\r\nHost: a\r\n", data, b"\r\n\r\n"].concat();
    let Parsed::Complete(request, _) = Request::parse(&head, &Limits::default()) else { return };
    let fields = request.fields;

    for is_weak in [false, true] {
        for (modified_s, len_bytes) in
            [(None, 0), (Some(784_111_777), 1), (Some(0), 100), (Some(u64::MAX), u64::MAX)]
        {
            let etag = modified_s.map(|_| EntityTag { is_weak, opaque: b"v1" });
            the_outcome_suits(fields, &Representation { etag, modified_s, len_bytes });
        }
    }
    the_coding_is_wanted(fields);
    fields.for_each(|field| the_date_is_the_same_again(field.value));
}

fn the_outcome_suits(fields: Fields<'_>, representation: &Representation<'_>) {
    let of = |method| evaluate(method, fields, representation);
    let get = of(Method::Get);
    let head = of(Method::Head);
    let put = of(Method::Put);
    if let Outcome::Part(part) = get {
        let end = part.offset.checked_add(part.len_bytes);
        assert!(part.len_bytes > 0 && end.is_some_and(|end| end <= representation.len_bytes));
    }
    let is_ranged = matches!(get, Outcome::Part(_) | Outcome::Unsatisfiable);
    assert_eq!(head, if is_ranged { Outcome::Whole } else { get });
    assert!(matches!(put, Outcome::Whole | Outcome::PreconditionFailed));
    let has = |name| fields.first(name).is_some();
    assert!(!is_ranged || has("range"));
    assert!(get != Outcome::NotModified || has("if-none-match") || has("if-modified-since"));
    let has_precondition = has("if-match") || has("if-none-match") || has("if-unmodified-since");
    assert!(put == Outcome::Whole || has_precondition);
    if representation.etag.is_none() && representation.modified_s.is_none() {
        // Nothing is known of it: only `*` and If-Match can decide.
        assert!(get != Outcome::NotModified || fields.all("if-none-match").any(|v| v == b"*"));
    }
}

fn the_coding_is_wanted(fields: Fields<'_>) {
    use ContentCoding::{Brotli, Gzip, Identity, Zstd};
    let ready = [Brotli, Zstd, Gzip, Identity];
    let wanted = Acceptable::of(fields);
    match wanted.best(&ready) {
        Some(best) => {
            assert!(wanted.weight(best) > 0);
            assert!(ready.iter().all(|&coding| wanted.weight(coding) <= wanted.weight(best)));
            assert!(best == Identity || fields.first("accept-encoding").is_some());
        }
        None => assert!(ready.iter().all(|&coding| wanted.weight(coding) == 0)),
    }
}

fn the_date_is_the_same_again(value: &[u8]) {
    if let Some(unix_s) = parse_date(value) {
        assert_eq!(parse_date(DateCache::new(unix_s).text()), Some(unix_s));
    }
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| holds(data));
