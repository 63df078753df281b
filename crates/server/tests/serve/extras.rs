//! What settings add to answers: fields, CORS, pages for errors, an application in one page, and the
//! combined form of the log.

use std::path::Path;

use pollux_server::Server;
use pollux_server::config::ServeConfig;
use pollux_settings::Given;

use crate::{causes, client, configured, end, last_answer, start};

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
    let checked = causes(&Server::check(&config).expect_err(settings));
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
        assert!(message.contains("cannot be served: no file of "), "{wrong}: {message}");
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
        ],
    );
    let lines = std::fs::read_to_string(&log).expect("written");
    let ends: Vec<&str> =
        lines.lines().filter_map(|line| line.split_once("] ")).map(|it| it.1).collect();
    assert_eq!(
        ends,
        [
            "\"GET /a HTTP/1.1\" 200 1 \"http://b/\" \"curl/8 \\x22x\\x22\"",
            "\"GET /b HTTP/1.1\" 200 1 \"-\" \"-\"",
            "\"-\" 400 97 \"-\" \"-\"",
        ]
    );
}
