//! Conditional requests and ranges of `/hello.txt`, whose bytes, date and tag are known.

use crate::case::{Case, Expected, Setup, case, ok};
use crate::site::{HELLO, MODIFIED};

/// What comes for one GET of the file.
enum Comes {
    /// 200 and all of it.
    Whole,
    /// 206 and these bytes.
    Part(usize, usize, &'static str),
    /// 304.
    NotModified,
    /// 412.
    Failed,
    /// 416.
    Unsatisfiable,
}

use Comes::{Failed, NotModified, Part, Unsatisfiable, Whole};

const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
const SAME_850: &str = "Sunday, 06-Nov-94 08:49:37 GMT";
const SAME_ASCTIME: &str = "Sun Nov  6 08:49:37 1994";

/// Name, rule, fields (name and value), what comes.
type Row = (&'static str, &'static str, &'static [(&'static str, &'static str)], Comes);

const CONDITIONS: &[Row] = &[
    ("If-None-Match with the tag", "RFC 9110 13.1.2", &[("If-None-Match", "{etag}")], NotModified),
    (
        "If-None-Match with the tag made weak",
        "RFC 9110 13.1.2",
        &[("If-None-Match", "W/{etag}")],
        NotModified,
    ),
    (
        "If-None-Match with the tag in a list",
        "RFC 9110 13.1.2",
        &[("If-None-Match", "\"a\", \"b,c\", {etag}")],
        NotModified,
    ),
    (
        "If-None-Match with the tag in a second field",
        "RFC 9110 13.1.2",
        &[("If-None-Match", "\"a\""), ("If-None-Match", "{etag}")],
        NotModified,
    ),
    ("If-None-Match with a star", "RFC 9110 13.1.2", &[("If-None-Match", "*")], NotModified),
    ("If-None-Match with another tag", "RFC 9110 13.1.2", &[("If-None-Match", "\"other\"")], Whole),
    ("If-None-Match that is not a tag", "RFC 9110 13.1.2", &[("If-None-Match", "other")], Whole),
    (
        "If-None-Match before If-Modified-Since",
        "RFC 9110 13.1.3",
        &[("If-None-Match", "\"other\""), ("If-Modified-Since", AFTER)],
        Whole,
    ),
    (
        "If-Modified-Since with the date",
        "RFC 9110 13.1.3",
        &[("If-Modified-Since", MODIFIED)],
        NotModified,
    ),
    (
        "If-Modified-Since with a later date",
        "RFC 9110 13.1.3",
        &[("If-Modified-Since", AFTER)],
        NotModified,
    ),
    (
        "If-Modified-Since with an earlier date",
        "RFC 9110 13.1.3",
        &[("If-Modified-Since", BEFORE)],
        Whole,
    ),
    (
        "If-Modified-Since in the form of RFC 850",
        "RFC 9110 5.6.7",
        &[("If-Modified-Since", SAME_850)],
        NotModified,
    ),
    (
        "If-Modified-Since in the form of asctime",
        "RFC 9110 5.6.7",
        &[("If-Modified-Since", SAME_ASCTIME)],
        NotModified,
    ),
    (
        "If-Modified-Since that is not a date",
        "RFC 9110 13.1.3",
        &[("If-Modified-Since", "yesterday")],
        Whole,
    ),
    ("If-Match with the tag", "RFC 9110 13.1.1", &[("If-Match", "{etag}")], Whole),
    ("If-Match with a star", "RFC 9110 13.1.1", &[("If-Match", "*")], Whole),
    ("If-Match with another tag", "RFC 9110 13.1.1", &[("If-Match", "\"other\"")], Failed),
    ("If-Match with the tag made weak", "RFC 9110 13.1.1", &[("If-Match", "W/{etag}")], Failed),
    (
        "If-Match before If-Unmodified-Since",
        "RFC 9110 13.1.4",
        &[("If-Match", "{etag}"), ("If-Unmodified-Since", BEFORE)],
        Whole,
    ),
    (
        "If-Match before If-None-Match",
        "RFC 9110 13.2.2",
        &[("If-None-Match", "{etag}"), ("If-Match", "\"other\"")],
        Failed,
    ),
    (
        "If-Unmodified-Since with the date",
        "RFC 9110 13.1.4",
        &[("If-Unmodified-Since", MODIFIED)],
        Whole,
    ),
    (
        "If-Unmodified-Since with an earlier date",
        "RFC 9110 13.1.4",
        &[("If-Unmodified-Since", BEFORE)],
        Failed,
    ),
    (
        "If-Unmodified-Since that is not a date",
        "RFC 9110 13.1.4",
        &[("If-Unmodified-Since", "x")],
        Whole,
    ),
];

const RANGES: &[Row] = &[
    (
        "the first ten bytes",
        "RFC 9110 14.1.2",
        &[("Range", "bytes=0-9")],
        Part(0, 10, "bytes 0-9/100"),
    ),
    ("one byte", "RFC 9110 14.1.2", &[("Range", "bytes=99-99")], Part(99, 1, "bytes 99-99/100")),
    (
        "a range with an open end",
        "RFC 9110 14.1.2",
        &[("Range", "bytes=95-")],
        Part(95, 5, "bytes 95-99/100"),
    ),
    (
        "a range beyond the end",
        "RFC 9110 14.1.2",
        &[("Range", "bytes=95-200")],
        Part(95, 5, "bytes 95-99/100"),
    ),
    (
        "a range with an end beyond 64 bits",
        "RFC 9110 14.1.1",
        &[("Range", "bytes=95-99999999999999999999")],
        Part(95, 5, "bytes 95-99/100"),
    ),
    (
        "the last five bytes",
        "RFC 9110 14.1.2",
        &[("Range", "bytes=-5")],
        Part(95, 5, "bytes 95-99/100"),
    ),
    (
        "the last bytes, more than there are",
        "RFC 9110 14.1.2",
        &[("Range", "bytes=-200")],
        Part(0, 100, "bytes 0-99/100"),
    ),
    (
        "the unit in capitals",
        "RFC 9110 14.1",
        &[("Range", "BYTES=0-9")],
        Part(0, 10, "bytes 0-9/100"),
    ),
    ("a range behind the end", "RFC 9110 15.5.17", &[("Range", "bytes=100-")], Unsatisfiable),
    ("the last zero bytes", "RFC 9110 14.1.2", &[("Range", "bytes=-0")], Unsatisfiable),
    ("several ranges", "RFC 9110 14.2", &[("Range", "bytes=0-1,3-4")], Whole),
    ("a range backwards", "RFC 9110 14.1.1", &[("Range", "bytes=9-0")], Whole),
    ("another unit", "RFC 9110 14.2", &[("Range", "lines=0-9")], Whole),
    ("a range without numbers", "RFC 9110 14.1.1", &[("Range", "bytes=-")], Whole),
    (
        "If-Range with the tag",
        "RFC 9110 13.1.5",
        &[("Range", "bytes=0-9"), ("If-Range", "{etag}")],
        Part(0, 10, "bytes 0-9/100"),
    ),
    (
        "If-Range with another tag",
        "RFC 9110 13.1.5",
        &[("Range", "bytes=0-9"), ("If-Range", "\"other\"")],
        Whole,
    ),
    (
        "If-Range with the tag made weak",
        "RFC 9110 13.1.5",
        &[("Range", "bytes=0-9"), ("If-Range", "W/{etag}")],
        Whole,
    ),
    (
        "If-Range with the date",
        "RFC 9110 13.1.5",
        &[("Range", "bytes=0-9"), ("If-Range", MODIFIED)],
        Part(0, 10, "bytes 0-9/100"),
    ),
    (
        "If-Range with a later date",
        "RFC 9110 13.1.5",
        &[("Range", "bytes=0-9"), ("If-Range", AFTER)],
        Whole,
    ),
    (
        "If-Range of a range behind the end",
        "RFC 9110 13.1.5",
        &[("Range", "bytes=100-"), ("If-Range", "\"other\"")],
        Whole,
    ),
    (
        "a range of what is not modified",
        "RFC 9110 13.2.2",
        &[("Range", "bytes=0-9"), ("If-None-Match", "{etag}")],
        NotModified,
    ),
    (
        "a range behind the end of what is not modified",
        "RFC 9110 13.2.2",
        &[("Range", "bytes=100-"), ("If-None-Match", "{etag}")],
        NotModified,
    ),
];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = CONDITIONS
        .iter()
        .chain(RANGES)
        .map(|(name, rfc, fields, comes)| {
            case(Setup::Files, name, rfc, request("GET", "/hello.txt", fields))
                .kept([expected(comes)])
        })
        .collect();
    let head =
        |name, rfc, fields| case(Setup::Files, name, rfc, request("HEAD", "/hello.txt", fields));
    cases.extend([
        head("HEAD with If-None-Match", "RFC 9110 13.1.2", &[("If-None-Match", "{etag}")])
            .kept([Expected::any_of(&[304]).for_head()]),
        head("HEAD with a range", "RFC 9110 14.2", &[("Range", "bytes=0-9")])
            .kept([ok().for_head().has("Content-Length", "100").lacks("Content-Range")]),
        case(
            Setup::Files,
            "a range of an empty file",
            "RFC 9110 15.5.17",
            request("GET", "/empty.txt", &[("Range", "bytes=0-")]),
        )
        .kept([Expected::any_of(&[416]).has("Content-Range", "bytes */0")]),
    ]);
    cases
}

fn request(method: &str, target: &str, fields: &[(&str, &str)]) -> String {
    let fields: String =
        fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("{method} {target} HTTP/1.1\r\nHost: h\r\n{fields}\r\n")
}

fn expected(comes: &Comes) -> Expected {
    match *comes {
        Whole => ok().body(HELLO).lacks("Content-Range"),
        Part(offset, len, range) => {
            Expected::any_of(&[206]).body(&HELLO[offset..offset + len]).has("Content-Range", range)
        }
        NotModified => Expected::any_of(&[304]).body("").has_any("ETag"),
        Failed => Expected::any_of(&[412]),
        Unsatisfiable => Expected::any_of(&[416]).has("Content-Range", "bytes */100"),
    }
}
