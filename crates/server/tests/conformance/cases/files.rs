//! Files below a directory: names, what leads out, indexes and precompressed variants.

use crate::cases::{Case, Expected, Setup, case, ok};
use crate::stage::{self, HELLO, MODIFIED};

/// Targets, and the file of the site that comes.
const SERVED: &[(&str, &str, &str, &str)] = &[
    ("a file", "9110 9.3.1", "/hello.txt", "hello.txt"),
    ("an empty file", "9110 8.6", "/empty.txt", "empty.txt"),
    ("a file below a directory", "9110 9.3.1", "/sub/page.txt", "sub/page.txt"),
    ("an encoded letter", "3986 6.2.2.2", "/%68ello.txt", "hello.txt"),
    ("an encoded space", "3986 2.1", "/a%20b.txt", "a b.txt"),
    ("a query beside a file", "3986 3.4", "/hello.txt?v=1", "hello.txt"),
    ("a file in absolute-form", "9112 3.2.2", "http://h/hello.txt", "hello.txt"),
    ("a dot segment", "3986 5.2.4", "/./sub/./page.txt", "sub/page.txt"),
    ("a double dot within the directory", "3986 5.2.4", "/sub/../hello.txt", "hello.txt"),
    (
        "an encoded double dot within the directory",
        "3986 6.2.2.3",
        "/sub/%2e%2e/hello.txt",
        "hello.txt",
    ),
    ("two slashes", "3986 3.3", "/sub//page.txt", "sub/page.txt"),
    ("the index of the root", "9110 9.3.1", "/", "index.html"),
    ("the index of a directory", "9110 9.3.1", "/sub/", "sub/index.html"),
];

/// Targets that no file comes for.
const REFUSED: &[(&str, &str, &[u16], &str)] = &[
    ("a file that is not there", "9110 15.5.5", &[404], "/nothing"),
    ("a file below a file", "9110 15.5.5", &[404], "/hello.txt/x"),
    ("a file with a slash behind", "9110 15.5.5", &[404], "/hello.txt/"),
    ("a directory without an index", "9110 15.5.4", &[403, 404], "/bare/"),
    ("a double dot above the root", "3986 5.2.4", &[400], "/../hello.txt"),
    ("a double dot above the root, later", "3986 5.2.4", &[400], "/sub/../../hello.txt"),
    ("an encoded double dot above the root", "3986 5.2.4", &[400], "/%2e%2e/hello.txt"),
    ("a double dot encoded twice", "3986 2.4", &[404], "/%252e%252e/hello.txt"),
    ("a double dot behind backslashes", "3986 3.3", &[404], "/..\\..\\hello.txt"),
    ("an encoded slash", "3986 2.2", &[404], "/sub%2Fpage.txt"),
    ("an encoded slash behind a double dot", "3986 2.2", &[404], "/..%2fhello.txt"),
    ("an encoded NUL", "3986 7.3", &[400], "/hello.txt%00.html"),
    ("a broken escape", "3986 2.1", &[400], "/hello%zz"),
    ("an escape that is cut", "3986 2.1", &[400], "/hello%2"),
    ("a link that leads out", "9110 17.3", &[403, 404], "/outside/"),
];

/// Accept-Encoding, and which variant of `/app.js` comes in which coding.
const CODINGS: &[(&str, &str, &str, Option<&str>)] = &[
    ("gzip accepted", "gzip", "app.js.gz", Some("gzip")),
    ("several codings accepted", "gzip, deflate, br", "app.js.br", Some("br")),
    ("gzip preferred by weight", "gzip;q=1, br;q=0.5", "app.js.gz", Some("gzip")),
    ("gzip refused", "gzip;q=0", "app.js", None),
    ("no coding of ours accepted", "compress", "app.js", None),
    ("identity preferred", "identity, gzip;q=0.5", "app.js", None),
    ("only zstd accepted", "zstd", "app.js.zst", Some("zstd")),
];

pub(crate) fn cases() -> Vec<Case> {
    let files = |name, rfc, method: &str, target: &str, fields: &str| {
        let request = format!("{method} {target} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        case(Setup::Files, name, rfc, request)
    };
    let served = SERVED.iter().map(|&(name, rfc, target, path)| {
        files(name, rfc, "GET", target, "").kept([ok().body(stage::content(path))])
    });
    let refused = REFUSED.iter().map(|&(name, rfc, statuses, target)| {
        files(name, rfc, "GET", target, "").either([Expected::any_of(statuses)])
    });
    let coded = CODINGS.iter().map(|&(name, accepted, path, coding)| {
        let expected = ok().body(stage::content(path)).has_any("Vary");
        let expected = match coding {
            Some(coding) => expected.has("Content-Encoding", coding),
            None => expected.lacks("Content-Encoding"),
        };
        let fields = format!("Accept-Encoding: {accepted}\r\n");
        files(name, "9110 12.5.3", "GET", "/app.js", &fields).kept([expected])
    });
    let mut cases: Vec<Case> = served.chain(refused).chain(coded).collect();
    cases.extend([
        files("the fields of a file", "9110 8.8", "GET", "/hello.txt", "")
            .kept([ok().has("Last-Modified", MODIFIED).has_any("ETag").has_any("Content-Type")]),
        files("HEAD of a file", "9110 9.3.2", "HEAD", "/hello.txt", "")
            .kept([ok().for_head().has("Content-Length", "100").has("Last-Modified", MODIFIED)]),
        files("HEAD of what is not there", "9110 9.3.2", "HEAD", "/nothing", "")
            .either([Expected::any_of(&[404]).for_head()]),
        files("a directory without its slash", "9110 15.4", "GET", "/sub", "")
            .either([Expected::any_of(&[301, 308]).has("Location", "/sub/")]),
        files(
            "no variant of a file",
            "9110 12.5.3",
            "GET",
            "/only.js",
            "Accept-Encoding: gzip\r\n",
        )
        .kept([ok().body(stage::content("only.js")).lacks("Content-Encoding")]),
        // 300 bytes; Linux allows 255.
        files("a name longer than any", "9110 15.5.5", "GET", &format!("/{:a<300}", ""), "")
            .either([Expected::any_of(&[404, 414])]),
        files("no Accept-Encoding", "9110 12.5.3", "GET", "/app.js", "")
            .kept([ok().body(stage::content("app.js")).lacks("Content-Encoding")]),
    ]);
    cases
}

/// The file's date in all its forms, and those of a second before and behind it.
const DATES: [(&str, &str); 5] = [
    ("{date}", MODIFIED),
    ("{earlier}", "Sun, 06 Nov 1994 08:49:36 GMT"),
    ("{later}", "Sun, 06 Nov 1994 08:49:38 GMT"),
    ("{in 850}", "Sunday, 06-Nov-94 08:49:37 GMT"),
    ("{in asctime}", "Sun Nov  6 08:49:37 1994"),
];

/// Name, rule, fields of a GET of the file with bars between them. [`DATES`] and the tag stand in braces.
type Row = (&'static str, &'static str, &'static str);

/// 304.
const NOT_MODIFIED: &[Row] = &[
    ("If-None-Match with the tag", "9110 13.1.2", "If-None-Match: {etag}"),
    ("If-None-Match with the tag made weak", "9110 13.1.2", "If-None-Match: W/{etag}"),
    (
        "If-None-Match with the tag in a list",
        "9110 13.1.2",
        "If-None-Match: \"a\", \"b,c\", {etag}",
    ),
    (
        "If-None-Match with the tag in a second field",
        "9110 13.1.2",
        "If-None-Match: \"a\" | If-None-Match: {etag}",
    ),
    ("If-None-Match with a star", "9110 13.1.2", "If-None-Match: *"),
    ("If-Modified-Since with the date", "9110 13.1.3", "If-Modified-Since: {date}"),
    ("If-Modified-Since with a later date", "9110 13.1.3", "If-Modified-Since: {later}"),
    ("If-Modified-Since in the form of RFC 850", "9110 5.6.7", "If-Modified-Since: {in 850}"),
    ("If-Modified-Since in the form of asctime", "9110 5.6.7", "If-Modified-Since: {in asctime}"),
    ("a range of what is not modified", "9110 13.2.2", "Range: bytes=0-9 | If-None-Match: {etag}"),
    (
        "a range behind the end of what is not modified",
        "9110 13.2.2",
        "Range: bytes=100- | If-None-Match: {etag}",
    ),
];

/// 200 and all of the file.
const WHOLE: &[Row] = &[
    ("If-None-Match with another tag", "9110 13.1.2", "If-None-Match: \"other\""),
    ("If-None-Match that is not a tag", "9110 13.1.2", "If-None-Match: other"),
    (
        "If-None-Match before If-Modified-Since",
        "9110 13.1.3",
        "If-None-Match: \"other\" | If-Modified-Since: {later}",
    ),
    ("If-Modified-Since with an earlier date", "9110 13.1.3", "If-Modified-Since: {earlier}"),
    ("If-Modified-Since that is not a date", "9110 13.1.3", "If-Modified-Since: yesterday"),
    ("If-Match with the tag", "9110 13.1.1", "If-Match: {etag}"),
    ("If-Match with a star", "9110 13.1.1", "If-Match: *"),
    (
        "If-Match before If-Unmodified-Since",
        "9110 13.1.4",
        "If-Match: {etag} | If-Unmodified-Since: {earlier}",
    ),
    ("If-Unmodified-Since with the date", "9110 13.1.4", "If-Unmodified-Since: {date}"),
    ("If-Unmodified-Since that is not a date", "9110 13.1.4", "If-Unmodified-Since: x"),
    ("several ranges", "9110 14.2", "Range: bytes=0-1,3-4"),
    ("a range backwards", "9110 14.1.1", "Range: bytes=9-0"),
    ("another unit", "9110 14.2", "Range: lines=0-9"),
    ("a range without numbers", "9110 14.1.1", "Range: bytes=-"),
    ("If-Range with another tag", "9110 13.1.5", "Range: bytes=0-9 | If-Range: \"other\""),
    ("If-Range with the tag made weak", "9110 13.1.5", "Range: bytes=0-9 | If-Range: W/{etag}"),
    ("If-Range with a later date", "9110 13.1.5", "Range: bytes=0-9 | If-Range: {later}"),
    (
        "If-Range of a range behind the end",
        "9110 13.1.5",
        "Range: bytes=100- | If-Range: \"other\"",
    ),
];

/// 412.
const FAILED: &[Row] = &[
    ("If-Match with another tag", "9110 13.1.1", "If-Match: \"other\""),
    ("If-Match with the tag made weak", "9110 13.1.1", "If-Match: W/{etag}"),
    ("If-Match before If-None-Match", "9110 13.2.2", "If-None-Match: {etag} | If-Match: \"other\""),
    ("If-Unmodified-Since with an earlier date", "9110 13.1.4", "If-Unmodified-Since: {earlier}"),
];

/// 416.
const UNSATISFIABLE: &[Row] = &[
    ("a range behind the end", "9110 15.5.17", "Range: bytes=100-"),
    ("the last zero bytes", "9110 14.1.2", "Range: bytes=-0"),
];

/// 206, and so many bytes from there.
const PARTS: &[(Row, usize, usize)] = &[
    (("the first ten bytes", "9110 14.1.2", "Range: bytes=0-9"), 0, 10),
    (("one byte", "9110 14.1.2", "Range: bytes=99-99"), 99, 1),
    (("a range with an open end", "9110 14.1.2", "Range: bytes=95-"), 95, 5),
    (("a range beyond the end", "9110 14.1.2", "Range: bytes=95-200"), 95, 5),
    (
        (
            "a range with an end beyond 64 bits",
            "9110 14.1.1",
            "Range: bytes=95-99999999999999999999",
        ),
        95,
        5,
    ),
    (("the last five bytes", "9110 14.1.2", "Range: bytes=-5"), 95, 5),
    (("the last bytes, more than there are", "9110 14.1.2", "Range: bytes=-200"), 0, 100),
    (("the unit in capitals", "9110 14.1", "Range: BYTES=0-9"), 0, 10),
    (("If-Range with the tag", "9110 13.1.5", "Range: bytes=0-9 | If-Range: {etag}"), 0, 10),
    (("If-Range with the date", "9110 13.1.5", "Range: bytes=0-9 | If-Range: {date}"), 0, 10),
];

pub(super) fn condition_cases() -> Vec<Case> {
    let whole = ok().body(HELLO).lacks("Content-Range");
    let not_modified = Expected::any_of(&[304]).body("").has_any("ETag");
    let unsatisfiable = Expected::any_of(&[416]).has("Content-Range", "bytes */100");
    let tables = [
        (WHOLE, whole),
        (NOT_MODIFIED, not_modified),
        (FAILED, Expected::any_of(&[412])),
        (UNSATISFIABLE, unsatisfiable),
    ];
    let of = |&(name, rfc, fields): &Row, expected: Expected| {
        case(Setup::Files, name, rfc, request("GET", "/hello.txt", fields)).kept([expected])
    };
    let mut condition_cases = Vec::new();
    for (rows, expected) in tables {
        condition_cases.extend(rows.iter().map(|row| of(row, expected.clone())));
    }
    for (row, offset, len) in PARTS {
        let range = format!("bytes {offset}-{}/100", offset + len - 1);
        let part = Expected::any_of(&[206]).body(&HELLO[*offset..offset + len]);
        condition_cases.push(of(row, part.has("Content-Range", range)));
    }
    let head =
        |name, rfc, fields| case(Setup::Files, name, rfc, request("HEAD", "/hello.txt", fields));
    condition_cases.extend([
        head("HEAD with If-None-Match", "9110 13.1.2", "If-None-Match: {etag}")
            .kept([Expected::any_of(&[304]).for_head()]),
        head("HEAD with a range", "9110 14.2", "Range: bytes=0-9")
            .kept([ok().for_head().has("Content-Length", "100").lacks("Content-Range")]),
        case(
            Setup::Files,
            "a range of an empty file",
            "9110 15.5.17",
            request("GET", "/empty.txt", "Range: bytes=0-"),
        )
        .kept([Expected::any_of(&[416]).has("Content-Range", "bytes */0")]),
    ]);
    condition_cases
}

fn request(method: &str, target: &str, fields: &str) -> String {
    let fields = fields.replace(" | ", "\r\n");
    let fields = DATES.iter().fold(fields, |fields, (name, date)| fields.replace(name, date));
    format!("{method} {target} HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n")
}
