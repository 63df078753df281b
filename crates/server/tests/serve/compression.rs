//! Files that are compressed on their way: the same bytes after decoding, and what is never compressed.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use pollux_server::{Server, ServerCounter};

use crate::{client, count, end, start};

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
            write(&folder.path().join(name), bytes, 100);
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
fn write(path: &Path, bytes: &[u8], ago_s: u64) {
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

const CODINGS: [&str; 3] = ["gzip", "zstd", "br"];
/// Around what is sent at once, with a room's size behind decoding, and the largest one.
const SIZES: [usize; 5] = [1024, 33_000, 70_000, 300_000, 512 * 1024];

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
    write(&site.folder.path().join("fresh.html"), &text(5000), 0);
    let fresh = site.get("fresh.html", "gzip");
    assert!(fresh.coding() == "none" && fresh.field("ETag").expect("a tag").starts_with("W/"));
    // A change is seen.
    let old = site.get("a.html", "gzip");
    write(&site.folder.path().join("a.html"), &text(6000), 50);
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
