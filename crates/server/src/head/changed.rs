//! What becomes of answers of backends beside their fields: they are compressed for clients that take it, or a page takes the
//! place of an error. What of that a request wants, which answers it is done to, and what their heads say then.
//!
//! | an answer | is |
//! |---|---|
//! | 200 of a type and length that are compressed, with a body, without a coding and without `no-transform` | compressed, or as it is, and says `Vary: Accept-Encoding` either way |
//! | compressed | without length, digests and Accept-Ranges, its ETag weak: other bytes are as good |
//! | 206, 304, an answer to HEAD, all others | as it is |
//! | of a status that a page takes the place of | dropped, unless its client wants JSON and no HTML |

use std::path::PathBuf;

use pollux_http::{Fields, Request, Response, ResponseBody, Status};

use crate::coding;
use crate::coding::Coding;
use crate::config::backend_answers::{Compress, PassedAnswers};
use crate::fields;
use crate::head::Version;
use crate::head::media_types::content_type;
use crate::head::rules::Applying;

/// Fields that say something of the bytes as the backend sends them.
const OF_BYTES: [&str; 5] =
    ["accept-ranges", "content-digest", "content-md5", "digest", "repr-digest"];

/// What is done to the answers of a set.
#[derive(Debug, Default)]
pub(crate) struct AnswerChanges {
    pub(crate) compress: Option<Compress>,
    /// Statuses that a page takes the place of, and whether that is JSON.
    replaced: Box<[(u16, bool)]>,
}

/// What of that a request wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Wishes {
    /// Something is done to answers of its set.
    pub(crate) has_changes: bool,
    /// What its client likes to get them in.
    pub(crate) coding: Option<Coding>,
    /// It wants JSON and no HTML.
    wants_json: bool,
}

impl AnswerChanges {
    /// Those that are said so, with these pages.
    pub(crate) fn of(passed: &PassedAnswers, pages: &[(u16, PathBuf)]) -> Self {
        let mut replaced: Vec<(u16, bool)> = Vec::new();
        for (status, page) in pages.iter().filter(|(status, _)| passed.intercepts(*status)) {
            // Of several for a status the first one is sent.
            if replaced.iter().all(|(other, _)| other != status) {
                let kind = content_type(page.as_os_str().as_encoded_bytes());
                replaced.push((*status, is_json(coding::media_type(kind))));
            }
        }
        Self { compress: passed.compress(), replaced: replaced.into() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.compress.is_none() && self.replaced.is_empty()
    }

    /// What of them this request wants.
    #[inline]
    pub(crate) fn wished(&self, request: &Request<'_>, version: Version) -> Wishes {
        if self.is_empty() { Wishes::default() } else { self.wished_of_some(request, version) }
    }

    #[inline(never)]
    fn wished_of_some(&self, request: &Request<'_>, version: Version) -> Wishes {
        // Who speaks HTTP/1.0 may not know the end of what has no length, and some take what they don't know.
        let takes = self.compress.is_some()
            && version != Version::Http10
            && !has_no_transform(request.fields);
        Wishes {
            has_changes: true,
            coding: takes.then(|| Coding::best(request.fields)).flatten(),
            wants_json: !self.replaced.is_empty() && wants_json(request.fields),
        }
    }

    /// Whether a page takes the place of an answer with this status.
    pub(crate) fn replaces(&self, status: Status, wishes: Wishes) -> bool {
        let replaced = self.replaced.iter().find(|(other, _)| *other == status.code());
        replaced.is_some_and(|(_, is_json)| *is_json || !wishes.wants_json)
    }

    /// Whether an answer is compressed where its client takes that, with these rules for its fields.
    pub(crate) fn compresses(&self, response: &Response<'_>, rules: Applying<'_>) -> bool {
        let Some(compress) = &self.compress else { return false };
        let is_long = match response.facts.body {
            ResponseBody::None => false,
            ResponseBody::Length(len) => len >= compress.len_min.max(1),
            ResponseBody::Chunked | ResponseBody::UntilClose => true,
        };
        let fields = response.fields;
        let kind = fields.first("content-type").and_then(|it| str::from_utf8(it).ok());
        is_long
            && response.facts.status == Status::OK
            && kind.is_some_and(|kind| compress.takes(kind))
            && fields.first("content-encoding").is_none()
            && fields.first("content-range").is_none()
            && !has_no_transform(fields)
            && !rules.adds("content-encoding")
    }
}

/// Whether a body is to stay as it is, byte for byte (RFC 9111 5.2.1.6, 5.2.2.6).
fn has_no_transform(fields: Fields<'_>) -> bool {
    let mut said = fields.all("cache-control").flat_map(fields::options);
    said.any(|it| it.eq_ignore_ascii_case(b"no-transform"))
}

fn is_json(media_type: &str) -> bool {
    let kind = media_type.to_ascii_lowercase();
    kind == "application/json" || kind.ends_with("+json")
}

/// Whether a program asks, which makes nothing of HTML: it names JSON, and HTML not at all.
fn wants_json(fields: Fields<'_>) -> bool {
    let ranges = fields.all("accept").flat_map(fields::options);
    let mut names_json = false;
    for range in ranges.filter_map(|range| str::from_utf8(range).ok()) {
        let kind = coding::media_type(range);
        if kind.eq_ignore_ascii_case("text/html") {
            return false;
        }
        names_json |= is_json(kind);
    }
    names_json
}

/// Has the head of an answer, whose lines begin at `from`, say that its body is in this coding.
pub(crate) fn encode_head(out: &mut Vec<u8>, from: usize, coding: Coding) {
    let head = out.split_off(from);
    for (number, line) in head.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let colon = line.iter().position(|byte| *byte == b':').filter(|_| number > 0);
        let (name, value) = line.split_at(colon.unwrap_or(0));
        if OF_BYTES.iter().any(|of| name.eq_ignore_ascii_case(of.as_bytes())) {
            continue;
        }
        match value.strip_prefix(b": ") {
            Some(tag) if name.eq_ignore_ascii_case(b"etag") && tag.starts_with(b"\"") => {
                out.extend_from_slice(name);
                out.extend_from_slice(b": W/");
                out.extend_from_slice(tag);
            }
            _ => out.extend_from_slice(line),
        }
    }
    fields::write(out, "Content-Encoding", coding.name().as_bytes());
}

/// Has the head of an answer, whose lines begin at `from`, say that another client might get another one.
pub(crate) fn vary_by_coding(out: &mut Vec<u8>, from: usize) {
    let said = |line: &[u8]| {
        let value =
            line.split_at_checked(5).filter(|(name, _)| name.eq_ignore_ascii_case(b"vary:"));
        value.is_some_and(|(_, value)| {
            let mut names = fields::options(value.trim_ascii());
            names.any(|name| name == b"*" || name.eq_ignore_ascii_case(b"accept-encoding"))
        })
    };
    if !out[from..].split(|byte| *byte == b'\n').any(said) {
        fields::write(out, "Vary", b"Accept-Encoding");
    }
}

#[cfg(test)]
mod tests {
    use pollux_settings::Given;

    use super::*;
    use crate::config::ProxyConfig;
    use crate::head::sets::FieldSet;

    /// What holds for requests of the route.
    fn of_route(front: &str, site: &str, route: &str) -> FieldSet {
        let text = format!(
            "[[frontend]]\nlisten = \":80\"\n{front}\n[[backend]]\nname = \"api\"\n[[backend.server]]\naddress = \"10.0.0.1:80\"\n\
             [[site]]\nhost = \"*\"\n{site}\nroute = [{{ path = \"/\", backend = \"api\"{route} }}]\n"
        );
        let config: ProxyConfig =
            Given::from_toml(&text, "p.toml").read().unwrap_or_else(|wrong| panic!("{wrong}"));
        FieldSet::all(&config).0.pop().expect("a set")
    }

    #[test]
    fn the_innermost_says_what_is_compressed() {
        let compress = |front, site, route| of_route(front, site, route).passed.compress();
        assert_eq!(compress("", "", ""), None);
        assert_eq!(compress("compress = true", "", "").expect("on").len_min, 1024);
        assert_eq!(compress("compress = true", "compress = false", ""), None);
        let of_all =
            compress("compress = true\ncompress_min = 0", "", ", compress_types = \"Text/*\"");
        let of_all = of_all.expect("on");
        assert_eq!(of_all.len_min, 0);
        for (kind, is_taken) in [
            ("text/html; charset=utf-8", true),
            ("TEXT/css", true),
            ("text/event-stream", false),
            ("application/json", false),
        ] {
            assert_eq!(of_all.takes(kind), is_taken, "{kind}");
        }
        let usual = compress("", "compress = true", "").expect("on");
        for (kind, is_taken) in [
            ("application/json", true),
            ("image/svg+xml", true),
            ("image/png", false),
            ("Text/Event-Stream;x", false),
        ] {
            assert_eq!(usual.takes(kind), is_taken, "{kind}");
        }
    }

    #[test]
    fn pages_take_the_place_of_statuses_that_are_named_and_have_one() {
        let of = |front, site, route| {
            let set = of_route(front, site, route);
            AnswerChanges::of(&set.passed, &set.pages).replaced.to_vec()
        };
        let pages = "error_page = [\"502 a.html\", \"404 b.json\"]";
        assert_eq!(of("", pages, ""), []);
        assert_eq!(of("", pages, ", intercept = [\"5xx\"]"), [(502, false)]);
        let both = of(
            "intercept = \"404\"",
            pages,
            ", intercept = [\"5xx\"], error_page = \"502 c.json\"",
        );
        assert_eq!(both, [(502, true), (404, true)]);
    }

    #[test]
    fn a_program_gets_no_html_that_asks_for_json() {
        for (accept, is_it) in [
            ("", false),
            ("*/*", false),
            ("application/json", true),
            ("application/problem+json;q=0.9, */*;q=0.1", true),
            ("application/json, text/plain, */*", true),
            ("text/html, application/json", false),
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", false),
        ] {
            let line = format!("Accept: {accept}\r\n\r\n");
            assert_eq!(wants_json(Fields::of_trailers(line.as_bytes())), is_it, "{accept}");
        }
    }

    #[test]
    fn the_head_of_a_compressed_body_says_nothing_of_the_bytes_before() {
        let head = "HTTP/1.1 200 OK\r\nETag: \"a\"\r\naccept-ranges: bytes\r\nDigest: x\r\nX-A: etag: \"b\"\r\nVary: Origin\r\n";
        let mut out = format!("before{head}").into_bytes();
        encode_head(&mut out, 6, Coding::Zstd);
        vary_by_coding(&mut out, 6);
        assert_eq!(
            String::from_utf8(out.clone()).expect("text"),
            "beforeHTTP/1.1 200 OK\r\nETag: W/\"a\"\r\nX-A: etag: \"b\"\r\nVary: Origin\r\n\
             Content-Encoding: zstd\r\nVary: Accept-Encoding\r\n"
        );
        let len = out.len();
        vary_by_coding(&mut out, 6);
        assert_eq!(out.len(), len, "it is said already");
        let mut weak = b"HTTP/1.1 200 OK\r\nETag: W/\"a\"\r\nVary: *\r\n".to_vec();
        encode_head(&mut weak, 0, Coding::Gzip);
        vary_by_coding(&mut weak, 0);
        assert!(weak.ends_with(b"ETag: W/\"a\"\r\nVary: *\r\nContent-Encoding: gzip\r\n"));
    }
}
