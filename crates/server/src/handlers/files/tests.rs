//! Requests for files, whole conversations without a kernel's sockets.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pollux_engine::{Moment, Now, Rehearsal};

use crate::counters::ServerCounters;
use crate::{HttpSession, Logs, LoopState};
use pollux_settings::Given;

/// Long after the files of the tests were changed.
const NOW_S: u64 = 2_000_000_000;
const CHANGED_S: u64 = 784_111_777;

struct TempFolder(tempfile::TempDir);

impl TempFolder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn put(&self, name: &str, content: &[u8]) -> &Self {
        self.put_at(name, content, CHANGED_S)
    }

    fn put_at(&self, name: &str, content: &[u8], changed_s: u64) -> &Self {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().expect("below the folder")).expect("made");
        fs::write(&path, content).expect("written");
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(changed_s);
        File::options().append(true).open(path).expect("opened").set_modified(time).expect("set");
        self
    }

    fn play(&self, more: &str) -> Rehearsal<HttpSession> {
        let text = format!("dir = {:?}\n{more}", self.0.path());
        let config = Given::from_toml(&text, "test").read().expect("right");
        let counters = Arc::new(ServerCounters::default());
        let state = LoopState::new(&config, counters, &Logs::default()).expect("a state");
        Rehearsal::new(state, Now { at: Moment::from_nanos(1), unix_s: NOW_S })
    }

    /// The answer to one GET with these further lines.
    fn get(&self, path: &str, lines: &str) -> Answer {
        self.ask("", &format!("GET {path} HTTP/1.1\r\nHost: a\r\n{lines}\r\n"))
    }

    fn ask(&self, more: &str, request: &str) -> Answer {
        let mut play = self.play(more);
        play.feed(request.as_bytes());
        assert_eq!(play.closed(), None, "{request}");
        let output = play.take_output();
        let end = output.windows(4).position(|at| at == b"\r\n\r\n").expect("a head") + 4;
        let head = String::from_utf8(output[..end].to_vec()).expect("text");
        Answer { head, body: output[end..].to_vec() }
    }
}

struct Answer {
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn status(&self) -> u16 {
        self.head[9..12].parse().expect("a status")
    }

    fn field(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines();
        lines.filter_map(|line| line.split_once(": ")).find(|(n, _)| *n == name).map(|(_, v)| v)
    }
}

#[test]
fn a_small_file_is_sent_with_all_that_is_known_of_it() {
    let folder = TempFolder::new();
    let answer = folder.put("a b/c.txt", b"hello").get("/a%20b/./x/../c.txt?q", "");
    assert_eq!((answer.status(), answer.body.as_slice()), (200, b"hello".as_slice()));
    assert_eq!(answer.field("Content-Type"), Some("text/plain; charset=utf-8"));
    assert_eq!(answer.field("Content-Length"), Some("5"));
    assert_eq!(answer.field("Last-Modified"), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
    assert_eq!(answer.field("Accept-Ranges"), Some("bytes"));
    assert!(answer.field("ETag").is_some_and(|tag| tag.starts_with('"')));
    assert_eq!(answer.field("Vary"), None);
}

#[test]
fn files_of_every_size_around_the_limit_come_whole_and_pipelined() {
    let folder = TempFolder::new();
    for len in [0, 1, 32 * 1024, 32 * 1024 + 1, 300_000] {
        let content: Vec<u8> = (0..len).map(|at: u32| at.to_le_bytes()[0]).collect();
        folder.put("f", &content);
        let mut play = folder.play("");
        play.feed("GET /f HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3).as_bytes());
        let output = play.take_output();
        let head = output.windows(4).position(|at| at == b"\r\n\r\n").expect("a head") + 4;
        let one = head + content.len();
        assert_eq!(output.len(), 3 * one, "{len}");
        assert!(output[head..one] == content && output[2 * one + head..] == content, "{len}");
    }
}

#[test]
fn a_part_of_a_large_file_follows_the_head_of_the_file() {
    let folder = TempFolder::new();
    let content: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    folder.put("f", &content);
    let part = folder.get("/f", "Range: bytes=100001-700000\r\n");
    assert!(part.status() == 206 && part.body == content[100_001..=700_000]);
    let part = "GET /f HTTP/1.1\r\nHost: a\r\nRange: bytes=1-2\r\n\r\n";
    let head = folder.ask("", &format!("HEAD /f HTTP/1.1\r\nHost: a\r\n\r\n{part}"));
    assert_eq!((head.status(), head.field("Content-Length")), (200, Some("800000")));
    assert!(head.body.starts_with(b"HTTP/1.1 206 ") && head.body.ends_with(&content[1..3]));
}

#[test]
fn what_the_client_has_is_not_sent_again() {
    let folder = TempFolder::new();
    folder.put("f", b"hello");
    let tag = folder.get("/f", "").field("ETag").expect("a tag").to_owned();
    let same = folder.get("/f", &format!("If-None-Match: \"x\", {tag}\r\n"));
    assert_eq!((same.status(), same.body.len(), same.field("Content-Length")), (304, 0, None));
    assert_eq!(same.field("ETag"), Some(tag.as_str()));
    let since = "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    assert_eq!(folder.get("/f", since).status(), 304);
    assert_eq!(folder.get("/f", "If-Match: \"x\"\r\n").status(), 412);
    folder.put("f", b"hello!");
    assert_eq!(folder.get("/f", &format!("If-None-Match: {tag}\r\n")).status(), 200);
}

#[test]
fn a_file_that_has_just_changed_has_a_weak_tag() {
    let folder = TempFolder::new();
    let answer = folder.put_at("f", b"x", NOW_S - 1).get("/f", "");
    assert!(answer.field("ETag").is_some_and(|tag| tag.starts_with("W/\"")));
}

#[test]
fn no_answer_says_that_a_file_was_changed_in_the_future() {
    let folder = TempFolder::new();
    let answer = folder.put_at("f", b"x", NOW_S + 1000).get("/f", "");
    assert_eq!(answer.field("Last-Modified"), answer.field("Date"));
}

#[test]
fn nothing_hidden_and_nothing_outside_is_served() {
    let folder = TempFolder::new();
    folder.put(".secret", b"x").put(".git/config", b"x").put(".well-known/acme", b"x");
    symlink("/etc/passwd", folder.0.path().join("link")).expect("linked");
    for path in ["/.secret", "/.git/config", "/%2esecret", "/link", "/none", "/a%2Fb"] {
        assert_eq!(folder.get(path, "").status(), 404, "{path}");
    }
    for path in ["/../etc/passwd", "/%2e%2e/etc/passwd", "/%00", "/%zz"] {
        assert_eq!(folder.get(path, "").status(), 400, "{path}");
    }
    assert_eq!(folder.get("/.well-known/acme", "").status(), 200);
}

#[test]
fn a_visible_link_serves_nothing_hidden() {
    let folder = TempFolder::new();
    folder
        .put(".secret", b"secret")
        .put(".git/config", b"secret")
        .put(".site/index.html", b"secret");
    folder.put("plain.js", b"plain").put(".packed", b"secret").put("sub/page", b"page");
    folder.put("..2026_11_22/key", b"of a volume").put(".well-known/acme", b"token");
    for (target, link) in [
        (".secret", "file"),
        (".git", "folder"),
        ("../.secret", "sub/up"),
        ("file", "twice"),
        (".site/index.html", "index.html"),
        (".site", "site"),
        (".packed", "plain.js.gz"),
        ("sub", ".way"),
        (".way/page", "through"),
        ("..2026_11_22", "..data"),
        ("..data/key", "key"),
        (".well-known/acme", "acme"),
    ] {
        symlink(target, folder.0.path().join(link)).expect("linked");
    }
    for path in ["/file", "/folder/config", "/folder/", "/sub/up", "/twice", "/site/", "/site"] {
        assert_eq!(folder.get(path, "").status(), 404, "{path}");
    }
    assert_eq!(folder.get("/", "").status(), 403, "its index.html leads to a hidden file");
    // What counts is the file that is served, not the way to it.
    for (path, body) in [("/through", "page"), ("/key", "of a volume"), ("/acme", "token")] {
        let answer = folder.get(path, "");
        assert_eq!((answer.status(), answer.body.as_slice()), (200, body.as_bytes()), "{path}");
    }
    let packed = "GET /plain.js HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n";
    assert_eq!(folder.ask("precompressed = true", packed).body, b"plain");
    let page = folder.ask("listing = true", "GET / HTTP/1.1\r\nHost: a\r\n\r\n").body;
    let page = String::from_utf8(page).expect("text");
    for shown in ["./through\"", "./key\"", "./acme\"", "./plain.js\"", "./sub/\""] {
        assert!(page.contains(shown), "{shown} in {page}");
    }
    for hidden in ["./file\"", "./folder", "./twice\"", "./index.html\"", "./site", "plain.js.gz"] {
        assert!(!page.contains(hidden), "{hidden} in {page}");
    }
}

#[test]
fn folders_are_redirected_indexed_listed_or_forbidden() {
    let folder = TempFolder::new();
    folder.put("with/index.html", b"<p>").put("with out/x", b"");
    let redirect = folder.get("/with%20out?a=b", "");
    assert_eq!((redirect.status(), redirect.field("Location")), (301, Some("/with%20out/?a=b")));
    let elsewhere = folder.get("//with/../with", "");
    assert_eq!(elsewhere.field("Location"), Some("/with/"));
    let index = folder.get("/with/", "");
    assert_eq!((index.status(), index.body.as_slice()), (200, b"<p>".as_slice()));
    assert_eq!(index.field("Content-Type"), Some("text/html; charset=utf-8"));
    assert_eq!(folder.get("/with%20out/", "").status(), 403);
    assert_eq!(folder.get("/with/index.html/", "").status(), 404);
    let listing = folder.ask("listing = true", "GET /with%20out/ HTTP/1.1\r\nHost: a\r\n\r\n");
    let page = String::from_utf8(listing.body).expect("text");
    assert!(listing.head.contains("text/html") && page.contains("href=\"./x\""), "{page}");
}

#[test]
fn a_listing_shows_nothing_of_what_lies_outside() {
    let folder = TempFolder::new();
    folder.put("inside", b"12345");
    symlink("/etc/passwd", folder.0.path().join("leads-out")).expect("linked");
    symlink("inside", folder.0.path().join("stays")).expect("linked");
    let listing = folder.ask("listing = true", "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let page = String::from_utf8(listing.body).expect("text");
    assert!(page.contains("./stays\">stays</a><td>5\n") && !page.contains("leads-out"), "{page}");
}

#[test]
fn a_long_listing_comes_whole() {
    let folder = TempFolder::new();
    for n in 0..1500 {
        folder.put(&format!("a-file-with-a-rather-long-name-{n}"), b"");
    }
    let listing = folder.ask("listing = true", "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(listing.field("Content-Length"), Some(listing.body.len().to_string().as_str()));
    assert!(listing.body.len() > 128 * 1024 && listing.body.ends_with(b"</html>\n"));
}

#[test]
fn the_best_form_that_lies_ready_and_is_not_stale_is_sent() {
    let folder = TempFolder::new();
    folder.put("f.js", b"plain").put("f.js.gz", b"gzip").put("f.js.br", b"brotli");
    folder.put("g.js", b"plain").put_at("g.js.gz", b"stale", CHANGED_S - 9);
    let get = |path: &str, accept: &str| {
        let lines = format!("Host: a\r\nAccept-Encoding: {accept}\r\n");
        folder.ask("precompressed = true", &format!("GET {path} HTTP/1.1\r\n{lines}\r\n"))
    };
    for (accept, body, coding) in [
        ("gzip, br", "brotli", Some("br")),
        ("gzip", "gzip", Some("gzip")),
        ("gzip, br;q=0.5", "gzip", Some("gzip")),
        ("deflate", "plain", None),
        ("br;q=0", "plain", None),
    ] {
        let answer = get("/f.js", accept);
        assert_eq!(String::from_utf8_lossy(&answer.body), body, "{accept}");
        assert_eq!(answer.field("Content-Encoding"), coding, "{accept}");
        assert_eq!(answer.field("Content-Type"), Some("text/javascript; charset=utf-8"));
        assert_eq!(answer.field("Vary"), Some("Accept-Encoding"));
    }
    assert_eq!(get("/g.js", "gzip").body, b"plain");
    assert_eq!(folder.get("/f.js", "Accept-Encoding: br\r\n").body, b"plain");
}

#[test]
fn a_file_dated_ahead_has_a_strong_tag_is_not_sent_again_and_is_compressed() {
    let folder = TempFolder::new();
    let text = b"a{b:c}\n".repeat(900);
    let ahead_s = NOW_S + 3_600 * 24 * 365 * 50;
    folder.put_at("a.css", &text, ahead_s);
    let answer = folder.get("/a.css", "");
    let tag = answer.field("ETag").expect("a tag").to_owned();
    assert!(tag.starts_with('"'), "{tag}");
    // It has not changed since that second, whatever its own date is.
    let date = answer.field("Last-Modified").expect("a date").to_owned();
    assert_eq!(Some(&*date), answer.field("Date"));
    let since = folder.get("/a.css", &format!("If-Modified-Since: {date}\r\n"));
    assert_eq!(since.status(), 304);
    let part = folder.get("/a.css", &format!("Range: bytes=0-9\r\nIf-Range: {tag}\r\n"));
    assert_eq!((part.status(), part.body.len()), (206, 10));
    let request = "GET /a.css HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n";
    let compressed = folder.ask("compress = true", request);
    assert_eq!(compressed.field("Content-Encoding"), Some("gzip"), "{}", compressed.head);
}

#[test]
fn files_that_the_kernel_makes_when_they_are_read_come_as_they_are() {
    let ask = |root: &str, path: &str, method: &str, lines: &str| {
        let config = Given::from_toml(&format!("dir = {root:?}"), "test").read().expect("right");
        let counters = Arc::new(ServerCounters::default());
        let state = LoopState::new(&config, counters, &Logs::default()).expect("a state");
        let now = Now { at: Moment::from_nanos(1), unix_s: NOW_S };
        let mut play = Rehearsal::<HttpSession>::new(state, now);
        play.feed(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{lines}\r\n").as_bytes());
        let output = play.take_output();
        let end = output.windows(4).position(|at| at == b"\r\n\r\n").expect("a head") + 4;
        let head = String::from_utf8(output[..end].to_vec()).expect("text");
        Answer { head, body: output[end..].to_vec() }
    };
    // Of a length that is said to be 0, and of one that is said to be a page.
    for (root, path) in
        [("/proc", "/filesystems"), ("/sys/kernel", "/profiling"), ("/proc/sys", "/kernel/ostype")]
    {
        let Ok(text) = fs::read(format!("{root}{path}")) else {
            pollux_testing::skip(format_args!("no {root}{path}"));
            continue;
        };
        for lines in
            ["", "Range: bytes=0-0\r\n", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT\r\n"]
        {
            let answer = ask(root, path, "GET", lines);
            assert_eq!((answer.status(), &answer.body), (200, &text), "{root}{path} {lines}");
            assert_eq!(answer.field("Content-Length"), Some(&*text.len().to_string()));
            assert!(answer.field("ETag").is_none() && answer.field("Last-Modified").is_none());
        }
        let head = ask(root, path, "HEAD", "");
        assert_eq!(head.field("Content-Length"), Some(&*text.len().to_string()), "{root}{path}");
        assert!(head.body.is_empty());
    }
    // An empty file is one.
    let folder = TempFolder::new();
    let empty = folder.put("empty", b"").get("/empty", "");
    assert!(empty.status() == 200 && empty.field("ETag").is_some(), "{}", empty.head);
}

#[test]
fn a_folder_that_is_missed_for_another_reason_is_reported_again() {
    let folder = TempFolder::new();
    let path = folder.0.path().join("site");
    fs::create_dir(&path).expect("made");
    let root = crate::handlers::files::folder::Root::open(&path).expect("opened");
    let mut served =
        crate::handlers::files::Served { root, looked: Moment::from_nanos(0), missed: None };
    let mut look = || {
        let logs = Logs::default();
        served.look(Now { at: Moment::from_nanos(1), unix_s: NOW_S }, &logs);
        let log = folder.0.path().join("errors");
        let file = crate::config::LogTarget::File;
        let mut writer = crate::log::ErrorWriter::open(&file(log.clone())).expect("opened");
        writer.write(&logs.errors, NOW_S, false);
        let said = fs::read_to_string(&log).expect("written");
        fs::remove_file(log).expect("removed");
        said
    };
    assert_eq!(look(), "");
    fs::remove_dir(&path).expect("removed");
    assert!(look().contains("cannot be served: No such file or directory"));
    assert_eq!(look(), "");
    fs::write(&path, "a file").expect("written");
    assert!(look().contains("cannot be served: Not a directory"));
    assert_eq!(look(), "");
    fs::remove_file(&path).expect("removed");
    assert!(look().contains("cannot be served: No such file or directory"));
}
