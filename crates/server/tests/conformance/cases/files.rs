//! Files below a directory: names, what leads out, indexes and precompressed variants.

use Comes::{Failed, NotModified, Part, Unsatisfiable, Whole};

use crate::cases::{Case, Expected, Setup, case, ok};
use crate::stage::{self, HELLO, MODIFIED};

/// Targets, and the file of the site that comes.
const SERVED: &[(&str, &str, &str, &str)] = &[
    ("a file", "RFC 9110 9.3.1", "/hello.txt", "hello.txt"),
    ("an empty file", "RFC 9110 8.6", "/empty.txt", "empty.txt"),
    ("a file below a directory", "RFC 9110 9.3.1", "/sub/page.txt", "sub/page.txt"),
    ("an encoded letter", "RFC 3986 6.2.2.2", "/%68ello.txt", "hello.txt"),
    ("an encoded space", "RFC 3986 2.1", "/a%20b.txt", "a b.txt"),
    ("a query beside a file", "RFC 3986 3.4", "/hello.txt?v=1", "hello.txt"),
    ("a file in absolute-form", "RFC 9112 3.2.2", "http://h/hello.txt", "hello.txt"),
    ("a dot segment", "RFC 3986 5.2.4", "/./sub/./page.txt", "sub/page.txt"),
    ("a double dot within the directory", "RFC 3986 5.2.4", "/sub/../hello.txt", "hello.txt"),
    (
        "an encoded double dot within the directory",
        "RFC 3986 6.2.2.3",
        "/sub/%2e%2e/hello.txt",
        "hello.txt",
    ),
    ("two slashes", "RFC 3986 3.3", "/sub//page.txt", "sub/page.txt"),
    ("the index of the root", "RFC 9110 9.3.1", "/", "index.html"),
    ("the index of a directory", "RFC 9110 9.3.1", "/sub/", "sub/index.html"),
];

/// Targets that no file comes for.
const REFUSED: &[(&str, &str, &[u16], &str)] = &[
    ("a file that is not there", "RFC 9110 15.5.5", &[404], "/nothing"),
    ("a file below a file", "RFC 9110 15.5.5", &[404], "/hello.txt/x"),
    ("a file with a slash behind", "RFC 9110 15.5.5", &[404], "/hello.txt/"),
    ("a name longer than any", "RFC 9110 15.5.5", &[404, 414], LONG),
    ("a directory without an index", "RFC 9110 15.5.4", &[403, 404], "/bare/"),
    ("a double dot above the root", "RFC 3986 5.2.4", &[400], "/../hello.txt"),
    ("a double dot above the root, later", "RFC 3986 5.2.4", &[400], "/sub/../../hello.txt"),
    ("an encoded double dot above the root", "RFC 3986 5.2.4", &[400], "/%2e%2e/hello.txt"),
    ("a double dot encoded twice", "RFC 3986 2.4", &[404], "/%252e%252e/hello.txt"),
    ("a double dot behind backslashes", "RFC 3986 3.3", &[404], "/..\\..\\hello.txt"),
    ("an encoded slash", "RFC 3986 2.2", &[404], "/sub%2Fpage.txt"),
    ("an encoded slash behind a double dot", "RFC 3986 2.2", &[404], "/..%2fhello.txt"),
    ("an encoded NUL", "RFC 3986 7.3", &[400], "/hello.txt%00.html"),
    ("a broken escape", "RFC 3986 2.1", &[400], "/hello%zz"),
    ("an escape that is cut", "RFC 3986 2.1", &[400], "/hello%2"),
    ("a link that leads out", "RFC 9110 17.3", &[403, 404], "/outside/"),
];

/// 300 bytes; Linux allows 255.
const LONG: &str = "/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\
aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\
aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

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
        files(name, "RFC 9110 12.5.3", "GET", "/app.js", &fields).kept([expected])
    });
    let mut cases: Vec<Case> = served.chain(refused).chain(coded).collect();
    cases.extend([
        files("the fields of a file", "RFC 9110 8.8", "GET", "/hello.txt", "")
            .kept([ok().has("Last-Modified", MODIFIED).has_any("ETag").has_any("Content-Type")]),
        files("HEAD of a file", "RFC 9110 9.3.2", "HEAD", "/hello.txt", "")
            .kept([ok().for_head().has("Content-Length", "100").has("Last-Modified", MODIFIED)]),
        files("HEAD of what is not there", "RFC 9110 9.3.2", "HEAD", "/nothing", "")
            .either([Expected::any_of(&[404]).for_head()]),
        files("a directory without its slash", "RFC 9110 15.4", "GET", "/sub", "")
            .either([Expected::any_of(&[301, 308]).has("Location", "/sub/")]),
        files(
            "no variant of a file",
            "RFC 9110 12.5.3",
            "GET",
            "/only.js",
            "Accept-Encoding: gzip\r\n",
        )
        .kept([ok().body(stage::content("only.js")).lacks("Content-Encoding")]),
        files("no Accept-Encoding", "RFC 9110 12.5.3", "GET", "/app.js", "")
            .kept([ok().body(stage::content("app.js")).lacks("Content-Encoding")]),
    ]);
    cases
}

// Conditional requests and ranges of `/hello.txt`, whose bytes, date and tag are known.

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

pub(super) fn condition_cases() -> Vec<Case> {
    let mut condition_cases: Vec<Case> = CONDITIONS
        .iter()
        .chain(RANGES)
        .map(|(name, rfc, fields, comes)| {
            case(Setup::Files, name, rfc, request("GET", "/hello.txt", fields))
                .kept([expected(comes)])
        })
        .collect();
    let head =
        |name, rfc, fields| case(Setup::Files, name, rfc, request("HEAD", "/hello.txt", fields));
    condition_cases.extend([
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
    condition_cases
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
