//! Many requests from few words: the lines of a file (`--requests-from`) and the numbers of a pattern
//! in a URL (`http://host/item/[1-1000]`).
//!
//! All of them are made before the run. A mistake is reported with its line and column.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use pollux_load::{LoadError, RequestList, Target};
use serde::Deserialize;

use super::values;

/// Longest line: the longest body that is sent and what stands around it.
const LINE_BYTES_MAX: u64 = 64 << 20;
/// Patterns in one URL at most.
const PATTERNS_MAX: usize = 4;

const FORM: &str = "[METHOD] [WEIGHT@]URL, or {\"url\": \"/order\", \"method\": \"POST\", \
                    \"headers\": {\"Name\": \"value\"}, \"body\": \"text\", \"weight\": 3}";

/// A line that is a JSON object.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    url: String,
    method: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<String>,
    weight: Option<u32>,
}

/// What is wrong with a line, and at which of its columns (from 1).
#[derive(Debug)]
struct Wrong {
    column: usize,
    why: String,
}

/// Adds the requests of all lines of `path` to `list`. What a line leaves out is as in `base`,
/// and all go to its server.
///
/// # Errors
/// [`LoadError::Plan`] with line and column.
pub(crate) fn read(path: &Path, base: &Target, list: &mut RequestList) -> Result<(), LoadError> {
    let refuse = |why: String| LoadError::Plan { what: "--requests-from", why };
    let name = path.display();
    let failed = |error: std::io::Error| refuse(format!("{name}: {error}"));
    let mut file = BufReader::new(File::open(path).map_err(failed)?);
    let mut bytes = Vec::new();
    for number in 1_u64.. {
        bytes.clear();
        let read = file.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut bytes);
        if read.map_err(failed)? == 0 {
            break;
        }
        let wrong =
            |Wrong { column, why }: Wrong| refuse(format!("{name}:{number}:{column}: {why}"));
        if bytes.len() as u64 > LINE_BYTES_MAX {
            let why = format!("the line is longer than {LINE_BYTES_MAX} bytes");
            return Err(wrong(Wrong { column: 1, why }));
        }
        let text = std::str::from_utf8(&bytes).map_err(|error| {
            wrong(Wrong { column: error.valid_up_to() + 1, why: "not UTF-8".to_owned() })
        })?;
        // Some editors put a mark of the byte order before the first line.
        let text = if number == 1 { text.trim_start_matches('\u{feff}') } else { text };
        add(text, base, list).map_err(wrong)?;
    }
    if list.is_empty() {
        Err(refuse(format!("{name}: no request in it; expected a line for each")))
    } else {
        Ok(())
    }
}

/// Adds what one line asks for; nothing for an empty one and a comment.
fn add(text: &str, base: &Target, list: &mut RequestList) -> Result<(), Wrong> {
    let line = text.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(());
    }
    let column = text.len() - text.trim_start().len() + 1;
    let wrong = |why: String| Wrong { column, why };
    let line = if line.starts_with('{') {
        serde_json::from_str(text.trim_end()).map_err(|error| {
            let why = error.to_string();
            let why = why.split(" at line ").next().unwrap_or_default();
            let why = why.replace("expected u32", "expected a whole number up to 4294967295");
            Wrong { column: error.column(), why: format!("{why}; expected {FORM}") }
        })?
    } else {
        plain(text)?
    };
    let target = target(line, base).map_err(wrong)?;
    expand(&target, list).map_err(|error| wrong(in_words(&error)))
}

/// `[METHOD] [WEIGHT@]URL`.
fn plain(text: &str) -> Result<Line, Wrong> {
    let at = |word: &str| word.as_ptr() as usize - text.as_ptr() as usize + 1;
    let words: Vec<&str> = text.split_whitespace().collect();
    let (method, url) = match words[..] {
        [url] => (None, url),
        [method, url] => (Some(method.to_owned()), url),
        [_, _, third, ..] => {
            let why = format!("\"{third}\" is one word too many; expected {FORM}");
            return Err(Wrong { column: at(third), why });
        }
        [] => unreachable!("an empty line is not a request"),
    };
    let weighted = values::weighted(url).map_err(|why| Wrong { column: at(url), why })?;
    let headers = BTreeMap::new();
    let body = None;
    let weight = Some(weighted.weight);
    Ok(Line { url: weighted.url, method, headers, body, weight })
}

/// The request of a line, its pattern unexpanded.
fn target(line: Line, base: &Target) -> Result<Target, String> {
    let Line { url, method, headers, body, weight } = line;
    let method = match (method, &body) {
        (Some(method), _) => values::method(&method)?,
        (None, Some(_)) if base.method == "GET" => "POST".to_owned(),
        (None, _) => base.method.clone(),
    };
    let mut host = base.host.clone();
    let mut fields = base.fields.clone();
    for (name, value) in headers {
        let (name, value) = values::field(&format!("{name}: {value}"))?;
        if name.eq_ignore_ascii_case("host") {
            host = value;
            continue;
        }
        fields.retain(|(other, _)| !other.eq_ignore_ascii_case(&name));
        fields.push((name, value));
    }
    let weight = weight.unwrap_or(1);
    if weight == 0 {
        return Err("weight 0 means never; leave the line out".to_owned());
    }
    Ok(Target {
        path: path_of(&url, base)?,
        url,
        method,
        host,
        fields,
        body: body.map_or_else(|| base.body.clone(), String::into_bytes),
        weight,
        ..base.clone()
    })
}

/// Path and query of a URL of the server of `base`, or of a path alone.
fn path_of(url: &str, base: &Target) -> Result<String, String> {
    let whole = url.split('#').next().unwrap_or_default();
    if whole.starts_with('/') {
        return Ok(whole.to_owned());
    }
    // Scheme and host, as far as the path of the base's URL.
    let after_scheme = base.url.find("://").map_or(0, |at| at + 3);
    let host_len = base.url[after_scheme..].find(['/', '?', '#']);
    let origin = &base.url[..host_len.map_or(base.url.len(), |len| after_scheme + len)];
    match whole.strip_prefix(origin) {
        Some("") => Ok("/".to_owned()),
        Some(path) if path.starts_with('/') => Ok(path.to_owned()),
        Some(query) if query.starts_with('?') => Ok(format!("/{query}")),
        _ => {
            Err(format!("\"{url}\" is not at {origin}; expected a path such as /a, or a URL there"))
        }
    }
}

/// Whether there is a pattern in a URL.
pub(crate) fn has_pattern(url: &str) -> bool {
    let path_at = url.find("://").and_then(|at| url[at + 3..].find('/').map(|len| at + 3 + len));
    path_at.is_some_and(|at| matches!(pattern(&url[at..]), Ok(Some(_)) | Err(_)))
}

/// Adds the request of `target` for each number of the patterns in its path.
///
/// # Errors
/// [`LoadError::Plan`] when a pattern can't be read, or the list is full.
pub(crate) fn expand(target: &Target, list: &mut RequestList) -> Result<(), LoadError> {
    expand_some(target, list, PATTERNS_MAX)
}

fn expand_some(target: &Target, list: &mut RequestList, left: usize) -> Result<(), LoadError> {
    let refuse = |why: String| LoadError::Plan { what: "URL", why };
    let path = &target.path;
    let Some(pattern) = pattern(path).map_err(refuse)? else { return list.push(target) };
    if left == 0 {
        return Err(refuse(format!("more than {PATTERNS_MAX} patterns in {}", target.url)));
    }
    let before = &path[..pattern.begin];
    let after = &path[pattern.end..];
    for number in pattern.first..=pattern.last {
        let path = format!("{before}{number:0width$}{after}", width = pattern.width);
        expand_some(&Target { path, ..target.clone() }, list, left - 1)?;
    }
    Ok(())
}

/// `[FIRST-LAST]` in a path.
struct Pattern {
    begin: usize,
    end: usize,
    first: u64,
    last: u64,
    /// Digits at least, where the first number has zeros in front.
    width: usize,
}

/// The first pattern of a path; brackets with anything else in them are none.
fn pattern(path: &str) -> Result<Option<Pattern>, String> {
    for (begin, _) in path.match_indices('[') {
        let Some(len) = path[begin..].find(']') else { continue };
        let inner = &path[begin + 1..begin + len];
        let Some((first, last)) = inner.split_once('-') else { continue };
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(first) || !is_number(last) {
            continue;
        }
        let width = if first.starts_with('0') { first.len() } else { 0 };
        return match (first.parse::<u64>(), last.parse::<u64>()) {
            (Ok(first), Ok(last)) if first <= last => {
                Ok(Some(Pattern { begin, end: begin + len + 1, first, last, width }))
            }
            _ => Err(format!("[{inner}]: expected two numbers that rise, such as [1-1000]")),
        };
    }
    Ok(None)
}

fn in_words(error: &LoadError) -> String {
    match error {
        LoadError::Plan { why, .. } => why.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn base() -> Target {
        let fields = vec![("Accept".to_owned(), "*/*".to_owned())];
        Target { fields, ..Target::parse("http://127.0.0.1:1/base", None).expect("a URL") }
    }

    fn listed(text: &[u8]) -> Result<RequestList, String> {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(text).expect("written");
        let mut list = RequestList::new(false);
        let read = read(file.path(), &base(), &mut list);
        let name = file.path().display().to_string();
        read.map(|()| list).map_err(|error| error.to_string().replace(&name, "FILE"))
    }

    #[test]
    fn a_line_is_a_request() {
        let text = "# orders\n\n/a\nDELETE 3@http://127.0.0.1:1/b?x#y\n{\"url\": \"/c\", \"body\": \
                    \"x=1\", \"headers\": {\"accept\": \"text/plain\", \"Host\": \"h\"}}\n/d/[08-11]";
        let list = listed(text.as_bytes()).expect("requests");
        assert_eq!((list.len(), list.is_weighted()), (7, true));
        // As editors of other systems write it.
        let other = format!("\u{feff}{}", text.replace('\n', "\r\n"));
        assert_eq!(listed(other.as_bytes()).expect("requests").len(), 7);
        let json =
            r#"{"url": "/c", "body": "x=1", "headers": {"accept": "text/plain", "Host": "h"}}"#;
        let line = target(serde_json::from_str(json).expect("a line"), &base()).expect("a request");
        assert_eq!((&*line.method, &*line.host, &*line.path), ("POST", "h", "/c"));
        assert_eq!(line.fields, [("accept".to_owned(), "text/plain".to_owned())]);
    }

    #[test]
    fn mistakes_are_reported_with_line_and_column() {
        for (text, why) in [
            ("", "no request in it"),
            ("# nothing\n", "no request in it"),
            ("/a\nGET /b c\n", "FILE:2:8: \"c\" is one word too many"),
            ("/a\n  0@/b\n", "FILE:2:3: weight 0"),
            ("G(T /b\n", "FILE:1:1: a method is one word"),
            (
                "http://127.0.0.1:2/\n",
                "FILE:1:1: \"http://127.0.0.1:2/\" is not at http://127.0.0.1:1",
            ),
            ("http://127.0.0.1:11/\n", "is not at http://127.0.0.1:1;"),
            ("b\n", "expected a path such as /a"),
            ("/a\n{\"url\": 5}\n", "FILE:2:9: invalid type"),
            ("{\"url\": \"/a\", \"bdy\": 1}\n", "unknown field `bdy`"),
            ("{\"url\": \"/a\"\n", "FILE:1:12: EOF"),
            ("{\"url\": \"/a\", \"headers\": {\"A B\": \"c\"}}\n", "\"A B\" is not a field name"),
            ("{\"url\": \"/a\", \"weight\": 0}\n", "weight 0"),
            (
                "{\"url\": \"/a\", \"weight\": -1}\n",
                "expected a whole number up to 4294967295; expected [M",
            ),
            ("/a/[9-1]\n", "FILE:1:1: [9-1]: expected two numbers that rise"),
            ("/[1-2]/[1-2]/[1-2]/[1-2]/[1-2]\n", "more than 4 patterns"),
            ("/[1-1001]/[1-1000]\n", "more than 1000000 requests"),
        ] {
            let message = listed(text.as_bytes()).expect_err(text);
            assert!(message.contains(why), "{text}: {message}");
        }
        let message = listed(b"/a\n/b\xff\n").expect_err("not text");
        assert!(message.contains("FILE:2:3: not UTF-8"), "{message}");
    }

    #[test]
    fn brackets_without_numbers_are_not_a_pattern() {
        for (url, is_one) in [
            ("http://h/a/[1-9]", true),
            ("http://h/a?b=[001-200]&c", true),
            ("http://[::1]:80/a", false),
            ("http://h/a?b[]=1", false),
            ("http://h/a[1]", false),
            ("http://h/[a-z]", false),
        ] {
            assert_eq!(has_pattern(url), is_one, "{url}");
        }
    }
}
