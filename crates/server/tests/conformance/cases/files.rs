//! Files below a directory: names, what leads out, indexes and precompressed variants.

use crate::case::{Case, Expected, Setup, case, ok};
use crate::site::{self, MODIFIED};

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
        files(name, rfc, "GET", target, "").kept([ok().body(site::content(path))])
    });
    let refused = REFUSED.iter().map(|&(name, rfc, statuses, target)| {
        files(name, rfc, "GET", target, "").either([Expected::any_of(statuses)])
    });
    let coded = CODINGS.iter().map(|&(name, accepted, path, coding)| {
        let expected = ok().body(site::content(path)).has_any("Vary");
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
        .kept([ok().body(site::content("only.js")).lacks("Content-Encoding")]),
        files("no Accept-Encoding", "RFC 9110 12.5.3", "GET", "/app.js", "")
            .kept([ok().body(site::content("app.js")).lacks("Content-Encoding")]),
    ]);
    cases
}
