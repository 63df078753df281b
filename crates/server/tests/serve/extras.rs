//! What settings add to answers: fields, CORS, pages for errors, an application in one page, the combined form
//! of the log; and files that are compressed on their way: the same bytes after decoding, and what is never
//! compressed.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use pollux_server::config::ServeConfig;
use pollux_server::{Server, ServerCounter};
use pollux_settings::Given;

use crate::{causes, client, configured, count, end, last_answer, start};

const CODINGS: [&str; 3] = ["gzip", "zstd", "br"];
/// Around what is sent at once, with a room's size behind decoding, and the largest one.
const SIZES: [usize; 5] = [1024, 33_000, 70_000, 300_000, 512 * 1024];

/// Starts a server, has it answer the requests in turn, each on a connection of its own, and ends it.
fn answers(settings: &str, requests: &[&str]) -> Vec<String> {
    let server = start(settings);
    let ask = |request: &&str| {
        let (line, fields) = request.split_once('\n').unwrap_or((request, ""));
        let fields = fields.replace('\n', "\r\n");
        let sent = format!("{line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n");
        last_answer(client(&server), sent.as_bytes())
    };
    let answers = requests.iter().map(ask).collect();
    end(server);
    answers
}

/// Why a server does not start, nor pass a check: the same words.
fn refusal(settings: &str) -> String {
    let config = configured(settings);
    let started = causes(&Server::start(&config).map(drop).expect_err(settings));
    let checked = causes(&Server::check(&config).expect_err(settings)[0]);
    assert!(started.ends_with(&checked), "{checked}: {started}");
    checked
}

fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).expect("written");
}

fn site() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), "app.html", "the application");
    write(folder.path(), "style.css", "a {}");
    std::fs::create_dir(folder.path().join("empty")).expect("made");
    let settings = format!("dir = {:?}", folder.path());
    (folder, settings)
}

#[test]
fn an_application_in_one_page_gets_its_places_and_no_file_that_is_missing() {
    let (_folder, settings) = site();
    let asked = [
        "GET /orders/7",
        "GET /orders/7/?x=1.2",
        "HEAD /orders",
        "GET /style.css",
        "GET /missing.js",
        "GET /.git",
        "GET /.git/HEAD",
        "GET /.well-known/acme-challenge/x",
        "GET /empty/",
        "POST /orders",
    ];
    let all = answers(&format!("{settings}\nspa = \"app.html\""), &asked);
    for answer in &all[..2] {
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("\r\nContent-Type: text/html; charset=utf-8\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\nthe application"), "{answer}");
    }
    let head = &all[2];
    assert!(head.contains("\r\nContent-Length: 15\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    assert!(all[3].ends_with("a {}"), "{}", all[3]);
    let codes: Vec<&str> = all[4..].iter().map(|answer| &answer[9..12]).collect();
    assert_eq!(codes, ["404", "404", "404", "404", "403", "405"]);
    // A page outside of the folder is none.
    for wrong in ["missing.html", "../etc/passwd", "/etc/passwd", "empty"] {
        let message = refusal(&format!("{settings}\nspa = \"{wrong}\""));
        assert!(message.contains("cannot be served: no file below "), "{wrong}: {message}");
    }
}

#[test]
fn own_pages_are_sent_with_the_status_and_its_fields_for_every_refusal() {
    let (folder, settings) = site();
    // As large as one may be: behind any head there is room for it.
    let large = "x".repeat(32 * 1024);
    write(folder.path(), "404.html", &large);
    write(folder.path(), "bad.txt", "no");
    let page = |name| folder.path().join(name);
    let pages = format!(
        "error_page = [\"404 {0}\", \"405 {1}\", \"400 {1}\"]",
        page("404.html").display(),
        page("bad.txt").display()
    );
    let asked = [
        "GET /missing",
        "HEAD /missing",
        "POST /",
        "CONNECT a:1",
        "GET /%zz",
        "GET /\nBad Name: x\n",
    ];
    let is_page = |answer: &str, status: &str| {
        let is_right = answer.starts_with(&format!("HTTP/1.1 {status} "));
        assert!(is_right && answer.ends_with("\r\n\r\nno"), "{answer}");
    };
    for site in [&settings, "reply = 30000", "echo = true"] {
        let all = answers(&format!("{site}\n{pages}"), &asked);
        if site == settings {
            assert!(all[0].starts_with("HTTP/1.1 404 ") && all[0].ends_with(&large), "{}", all[0]);
            assert!(all[0].contains("\r\nContent-Type: text/html; charset=utf-8\r\n"));
            let (head, body) = all[1].split_once("\r\n\r\n").expect("a head");
            assert!(head.contains("\r\nContent-Length: 32768\r\n") && body.is_empty(), "{head}");
            assert!(all[2].contains("\r\nAllow: GET, HEAD, OPTIONS\r\n"), "{}", all[2]);
            is_page(&all[2], "405");
            is_page(&all[4], "400");
        }
        is_page(&all[3], "405");
        is_page(&all[5], "400");
    }
    write(folder.path(), "large", &"x".repeat(32 * 1024 + 1));
    for wrong in ["large", "missing", ""] {
        let text = format!("{settings}\nerror_page = \"404 {}\"", page(wrong).display());
        let message = refusal(&text);
        assert!(
            message.contains("the page ") && message.contains(" cannot be served: "),
            "{message}"
        );
    }
}

#[test]
fn rules_reach_every_answer_and_pages_of_named_origins_may_read() {
    let (_folder, settings) = site();
    let text = format!(
        "{settings}\nresponse_field = [\"set Cache-Control: max-age=60\", \"set server: s\"]\n\
         cors = [\"https://app.example\", \"http://localhost:3000\"]"
    );
    let origin = "Origin: https://app.example\n";
    let preflight = format!("OPTIONS /style.css\n{origin}Access-Control-Request-Method: GET\n");
    let all = answers(
        &text,
        &[
            "GET /style.css",
            &format!("GET /style.css\n{origin}"),
            &format!("GET /missing\n{origin}"),
            &preflight,
            "GET /style.css\nOrigin: https://app.example.evil\n",
            "GET /empty",
            "GET /\nBad Name: x\n",
        ],
    );
    for answer in &all {
        assert!(answer.contains("\r\nServer: s\r\n"), "{answer}");
        assert!(answer.contains("\r\nCache-Control: max-age=60\r\n"), "{answer}");
        assert!(answer.contains("\r\nVary: Origin\r\n"), "{answer}");
    }
    let allows = "\r\nAccess-Control-Allow-Origin: https://app.example\r\n";
    let allowed: Vec<bool> = all.iter().map(|answer| answer.contains(allows)).collect();
    assert_eq!(allowed, [false, true, true, true, false, false, false]);
    assert!(!all[4].contains("Access-Control"), "{}", all[4]);
    assert!(all[3].starts_with("HTTP/1.1 204 "), "{}", all[3]);
    assert!(all[3].contains("\r\nAccess-Control-Allow-Methods: GET, HEAD\r\n"), "{}", all[3]);
    // The fixed reply, made beforehand, has them as well.
    let reply = answers("reply = 1\nresponse_field = \"add X-A: 1\"", &["GET /", "DELETE /"]);
    assert!(reply.iter().all(|answer| answer.contains("\r\nX-A: 1\r\n")), "{reply:?}");
}

#[test]
fn rules_are_for_the_paths_and_statuses_that_they_name() {
    let (_folder, site) = site();
    let rules = "response_field = [\"set Cache-Control: no-cache\", \"/style.css 2xx,304 set \
                 Cache-Control: max-age=9\", \"4xx set X-Lost: 1\", \"/empty/ set X-In: 1\"]";
    let asked = [
        "GET /style.css",
        "HEAD /%73tyle.css",
        "GET /style.css\nIf-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT\n",
        "GET /style.cs",
        "GET /empty/a",
        "GET /\nBad Name: x\n",
        "OPTIONS *",
    ];
    let found = |answer: &String, settled: &str| {
        let has = |field: &str| u8::from(answer.contains(&format!("\r\n{field}\r\n")));
        let fields =
            ["Cache-Control: no-cache", "Cache-Control: max-age=9", "X-Lost: 1", "X-In: 1"];
        assert!(answer.starts_with("HTTP/1.1 "), "{settled}: {answer}");
        fields.map(has)
    };
    let all = answers(&format!("{site}\n{rules}"), &asked);
    let of_files: Vec<_> = all.iter().map(|answer| found(answer, "files")).collect();
    let [plain, style] = [[1, 0, 0, 0], [0, 1, 0, 0]];
    assert_eq!(of_files[..3], [style, style, style]);
    assert_eq!(of_files[3..], [[1, 0, 1, 0], [1, 0, 1, 1], [1, 0, 1, 0], plain]);
    for answer in ["reply = 30000", "reply = 70000", "echo = true"] {
        let asked =
            ["GET /style.css", "GET /x", "POST /empty/\nContent-Length: 0\n", "GET /empty/a/b"];
        let all = answers(&format!("{answer}\n{rules}"), &asked);
        let found: Vec<_> = all.iter().map(|one| found(one, answer)).collect();
        assert_eq!(found, [style, plain, [1, 0, 0, 1], [1, 0, 0, 1]], "{answer}");
    }
}

#[test]
fn wrong_rules_origins_and_pages_are_reported() {
    for (text, message) in [
        ("response_field = \"set Content-Length: 1\"", "frames messages"),
        ("response_field = \"set ETag: x\"", "the server writes etag itself"),
        ("response_field = \"remove ETag\"", "only Server can be removed"),
        ("response_field = \"/a 4xx remove ETag\"", "only Server can be removed"),
        ("response_field = \"/a 7xx set X-A: 1\"", "\"7xx\" is not a status; expected 200 to 599"),
        ("response_field = \"assets set X-A: 1\"", "expected \"set NAME: VALUE\""),
        ("response_field = \"assets set X-A: 1\"", "with a path and a status before it"),
        ("cors = \"app.example\"", "expected * or an origin such as https://app.example"),
        ("cors = \"https://app.example/\"", "ends behind host and port"),
        ("cors = [\"*\", \"https://a\"]", "* means all; expected it alone"),
        ("error_page = \"200 a.html\"", "expected a status from 400 to 599 and a file"),
        ("error_page = \"404\"", "expected a status from 400 to 599 and a file"),
    ] {
        let read: Result<ServeConfig, _> =
            Given::from_toml(&format!("dir = \".\"\n{text}"), "p").read();
        let mistakes = read.expect_err(text).to_string();
        assert!(mistakes.contains(message), "{text}: {mistakes}");
    }
}

#[test]
fn the_combined_log_has_page_and_program_and_no_field_leaves_its_quotes() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let settings = format!("reply = 1\naccess_log = {log:?}\naccess_log_format = \"combined\"");
    answers(
        &settings,
        &[
            "GET /a\nReferer: http://b/\nUser-Agent: curl/8 \"x\"\n",
            "GET /b",
            "GET /\nBad Name: x\n",
            "GET /e\nExpect: foo\nUser-Agent: evil\"scanner\nReferer: http://b/\n",
            "POST /l\nContent-Length: 1\nContent-Length: 2\nUser-Agent: evil\n",
            "POST /t\nTransfer-Encoding: gzip\nUser-Agent: evil\n",
            "POST /b\nContent-Length: 99999999999\nUser-Agent: evil\n",
            "G\u{e4}T /\n",
        ],
    );
    let lines = std::fs::read_to_string(&log).expect("written");
    let ends = lines.lines().filter_map(|line| line.split_once("] ")).map(|it| it.1);
    // How long a page for an error is says nothing here.
    let without_length = |end: &str| {
        let mut words: Vec<&str> = end.split(' ').collect();
        if let Some(at) = words.iter().position(|word| word.starts_with('4') && word.len() == 3) {
            words[at + 1] = "BODY";
        }
        words.join(" ")
    };
    let ends: Vec<String> = ends.map(without_length).collect();
    assert_eq!(
        ends,
        [
            "\"GET /a HTTP/1.1\" 200 1 \"http://b/\" \"curl/8 \\x22x\\x22\"",
            "\"GET /b HTTP/1.1\" 200 1 \"-\" \"-\"",
            "\"GET / HTTP/1.1\" 400 BODY \"-\" \"-\"",
            "\"GET /e HTTP/1.1\" 417 BODY \"http://b/\" \"evil\\x22scanner\"",
            "\"POST /l HTTP/1.1\" 400 BODY \"-\" \"evil\"",
            "\"POST /t HTTP/1.1\" 400 BODY \"-\" \"evil\"",
            "\"POST /b HTTP/1.1\" 413 BODY \"-\" \"evil\"",
            "\"-\" 400 BODY \"-\" \"-\"",
        ]
    );
}

struct Site {
    folder: tempfile::TempDir,
    server: Option<Server>,
}

struct Answer {
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn status(&self) -> &str {
        &self.head[9..12]
    }

    fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(own, _)| *own == name).map(|(_, value)| value)
    }

    fn coding(&self) -> &str {
        self.field("Content-Encoding").unwrap_or("none")
    }

    /// The body as the file has it.
    fn decoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut decoder: Box<dyn Read> = match self.coding() {
            "gzip" => Box::new(flate2::read::GzDecoder::new(&*self.body)),
            "zstd" => Box::new(zstd::stream::read::Decoder::new(&*self.body).expect("zstd")),
            "br" => Box::new(brotli::Decompressor::new(&*self.body, 4096)),
            _ => Box::new(&*self.body),
        };
        decoder.read_to_end(&mut out).expect("sound");
        drop(decoder);
        out
    }
}

impl Site {
    fn start(files: &[(&str, Vec<u8>)], more: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, bytes) in files {
            write_old(&folder.path().join(name), bytes, 100);
        }
        let server = start(&format!("dir = {:?}\ncompress = true\n{more}", folder.path()));
        Self { server: Some(server), folder }
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }

    fn count(&self, counter: ServerCounter) -> u64 {
        count(self.server(), counter)
    }

    fn ask(&self, method: &str, path: &str, fields: &str) -> Answer {
        let mut stream = client(self.server());
        let request =
            format!("{method} /{path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).expect("a line") > 0, "ended: {head}");
        }
        let mut body = Vec::new();
        reader.read_to_end(&mut body).expect("a body");
        Answer { head, body }
    }

    fn get(&self, path: &str, codings: &str) -> Answer {
        self.ask("GET", path, &format!("Accept-Encoding: {codings}\r\n"))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            end(server);
        }
    }
}

/// Writes a file that was changed so many seconds ago.
fn write_old(path: &Path, bytes: &[u8], ago_s: u64) {
    std::fs::write(path, bytes).expect("written");
    let file = std::fs::File::options().write(true).open(path).expect("just written");
    file.set_modified(SystemTime::now() - Duration::from_secs(ago_s)).expect("set");
}

/// Words of a text, so many bytes.
fn text(len: usize) -> Vec<u8> {
    let words = ["poll ", "epoll ", "event ", "ring ", "loop ", "<p>", "\n", "wait "];
    let mut state = 1_usize;
    let mut out = Vec::new();
    while out.len() < len {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        out.extend_from_slice(words[(state >> 33) % words.len()].as_bytes());
    }
    out.truncate(len);
    out
}

#[test]
fn every_file_is_the_same_after_decoding_in_every_coding_and_again() {
    let names: Vec<String> = SIZES.iter().map(|size| format!("{size}.html")).collect();
    let files: Vec<(&str, Vec<u8>)> =
        names.iter().zip(SIZES).map(|(name, size)| (name.as_str(), text(size))).collect();
    for poller in ["epoll-et", "poll"] {
        let site = Site::start(&files, &format!("poller = \"{poller}\""));
        for (name, bytes) in &files {
            let plain = site.get(name, "identity");
            assert_eq!((plain.coding(), plain.field("Vary")), ("none", Some("Accept-Encoding")));
            assert!(plain.body == *bytes);
            for coding in CODINGS {
                let mut tags = Vec::new();
                for _ in 0..3 {
                    let answer = site.get(name, coding);
                    assert_eq!((answer.status(), answer.coding()), ("200", coding), "{name}");
                    assert_eq!(answer.field("Vary"), Some("Accept-Encoding"), "{name}");
                    let len = answer.field("Content-Length").expect("a length");
                    assert_eq!(len, answer.body.len().to_string(), "{name}");
                    assert!(
                        answer.body.len() < bytes.len() && answer.decoded() == *bytes,
                        "{name}"
                    );
                    tags.push(answer.field("ETag").expect("a tag").to_owned());
                }
                assert!(tags[0] == tags[1] && tags[1] == tags[2] && !tags[0].starts_with("W/"));
                assert_ne!(Some(tags[0].as_str()), plain.field("ETag"), "{name} {coding}");
                let head = site.ask("HEAD", name, &format!("Accept-Encoding: {coding}\r\n"));
                assert_eq!((head.coding(), head.field("ETag")), (coding, Some(tags[0].as_str())));
                assert!(head.body.is_empty() && head.field("Content-Length").is_some());
            }
        }
        // A second has a share: what was beyond it came as it was and would have failed above.
        assert_eq!(site.count(ServerCounter::Compressions), 15, "{poller}");
        assert_eq!(site.count(ServerCounter::CompressedSent), 60, "{poller}");
    }
}

#[test]
fn conditions_are_about_the_form_and_parts_about_the_file_as_it_is() {
    let site = Site::start(&[("a.css", text(40_000))], "");
    let gzip = "Accept-Encoding: gzip\r\n";
    let first = site.get("a.css", "gzip");
    let tag = first.field("ETag").expect("a tag").to_owned();
    let plain = site.get("a.css", "identity");
    let plain_tag = plain.field("ETag").expect("a tag").to_owned();
    let again = site.ask("GET", "a.css", &format!("{gzip}If-None-Match: {tag}\r\n"));
    assert_eq!((again.status(), again.field("Vary")), ("304", Some("Accept-Encoding")));
    assert_eq!(again.field("ETag"), Some(tag.as_str()));
    // The other form is another one.
    let other = site.ask("GET", "a.css", &format!("{gzip}If-None-Match: {plain_tag}\r\n"));
    assert_eq!((other.status(), other.coding()), ("200", "gzip"));
    let changed = site.ask("GET", "a.css", &format!("{gzip}If-Match: {plain_tag}\r\n"));
    assert_eq!(changed.status(), "412");
    for (range, status, expected) in [
        ("bytes=10-19", "206", &plain.body[10..20]),
        ("bytes=-5", "206", &plain.body[39_995..]),
        ("bytes=0-", "206", &plain.body[..]),
    ] {
        let part = site.ask("GET", "a.css", &format!("{gzip}Range: {range}\r\n"));
        assert_eq!((part.status(), part.coding()), (status, "none"), "{range}");
        assert!(part.body == expected, "{range}");
        assert_eq!(part.field("Vary"), Some("Accept-Encoding"));
        assert_eq!(part.field("ETag"), Some(plain_tag.as_str()));
    }
    // The rest of a form that was compressed is not available: all of the file is sent.
    let rest = site.ask("GET", "a.css", &format!("{gzip}Range: bytes=10-\r\nIf-Range: {tag}\r\n"));
    assert_eq!((rest.status(), rest.coding()), ("200", "none"));
    assert!(rest.body == plain.body);
    assert_eq!(site.ask("GET", "a.css", &format!("{gzip}Range: bytes=99999-\r\n")).status(), "416");
}

#[test]
fn what_is_small_large_compressed_already_or_not_wanted_comes_as_it_is() {
    let noise: Vec<u8> = {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        (0..5000).map(|_| next()).collect()
    };
    let site = Site::start(
        &[
            ("tiny.html", text(1023)),
            ("large.html", text(512 * 1024 + 1)),
            ("a.png", text(5000)),
            ("a.zip", text(5000)),
            ("a.woff2", text(5000)),
            ("unknown", text(5000)),
            ("noise.txt", noise),
            ("a.html", text(5000)),
            ("ready.html", text(5000)),
            ("ready.html.gz", b"ready".to_vec()),
        ],
        "precompressed = true",
    );
    for name in ["tiny.html", "large.html", "a.png", "a.zip", "a.woff2", "unknown", "noise.txt"] {
        for _ in 0..2 {
            let answer = site.get(name, "gzip, br, zstd");
            let file = std::fs::read(site.folder.path().join(name)).expect("written");
            assert_eq!((answer.status(), answer.coding()), ("200", "none"), "{name}");
            assert!(answer.body == file, "{name}");
        }
    }
    for (codings, expected) in [
        ("", "none"),
        ("identity", "none"),
        ("gzip;q=0, br;q=0, zstd;q=0", "none"),
        ("deflate", "none"),
        ("gzip;q=0.1", "gzip"),
        ("gzip, br;q=0.5", "gzip"),
        ("*", "br"),
        ("gzip;q=0.5, identity", "none"),
    ] {
        assert_eq!(site.get("a.html", codings).coding(), expected, "{codings}");
    }
    // A form that lies ready goes before one that is made.
    let ready = site.get("ready.html", "gzip");
    assert_eq!((ready.coding(), ready.body.as_slice()), ("gzip", &b"ready"[..]));
    // One that may still change has a weak tag and is not kept.
    write_old(&site.folder.path().join("fresh.html"), &text(5000), 0);
    let fresh = site.get("fresh.html", "gzip");
    assert!(fresh.coding() == "none" && fresh.field("ETag").expect("a tag").starts_with("W/"));
    // A change is seen.
    let old = site.get("a.html", "gzip");
    write_old(&site.folder.path().join("a.html"), &text(6000), 50);
    let new = site.get("a.html", "gzip");
    assert!(new.decoded() == text(6000) && new.field("ETag") != old.field("ETag"));
}

#[test]
fn a_second_has_its_share_and_the_rest_comes_as_it_is() {
    let names: Vec<String> = (0..64).map(|at| format!("{at}.html")).collect();
    let files: Vec<(&str, Vec<u8>)> =
        names.iter().map(|name| (name.as_str(), text(512 * 1024))).collect();
    let site = Site::start(&files, "");
    for (name, bytes) in &files {
        let answer = site.get(name, "zstd");
        assert!(answer.status() == "200" && answer.decoded() == *bytes, "{name}");
    }
    let made = site.count(ServerCounter::Compressions);
    let put_off = site.count(ServerCounter::CompressionsPutOff);
    // Eight in each second that it took.
    assert!(made >= 8 && made + put_off == 64, "{made} {put_off}");
}
