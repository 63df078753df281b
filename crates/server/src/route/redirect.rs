//! Where a redirect leads: a text with the path, the query or the host of the request in it.
//!
//! What comes of the request cannot lead to another host than the one that was written: a host stands whole in front of it, and where
//! there is none a single slash does.

use pollux_http::is_host_and_port;

/// Longest text.
const TEXT_BYTES_MAX: usize = 4 * 1024;
/// Redirects: 301 and 308 for good, 302, 303 and 307 for now.
const STATUSES: [u16; 5] = [301, 302, 303, 307, 308];
const EXPECTED: &str = "a status (301, 302, 303, 307 or 308) and where it leads, such as \
                        \"301 https://blog.example.org/{rest}\"";

/// A redirect as it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RedirectTo {
    /// As it was written.
    text: String,
    pub(crate) status: u16,
    parts: Vec<Part>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    Text(String),
    /// Of the request; whether it stands in the query.
    Value(Value, bool),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Value {
    /// What follows the path of the route.
    Rest,
    Path,
    /// With its `?`, where there is one.
    Query,
    Host,
}

const VALUES: [(&str, Value); 4] =
    [("rest", Value::Rest), ("path", Value::Path), ("query", Value::Query), ("host", Value::Host)];

/// What of a request may stand in where it is led.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Values<'r> {
    pub(crate) rest: &'r [u8],
    /// Begins with a slash.
    pub(crate) path: &'r [u8],
    /// Without its `?`.
    pub(crate) query: Option<&'r str>,
    /// Without its port.
    pub(crate) host: &'r [u8],
}

impl RedirectTo {
    /// Reads a status and a text.
    ///
    /// # Errors
    /// What is wrong with it, and what is expected.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let expected = |why: &str| format!("{why}; expected {EXPECTED}");
        let (status, to) = text.split_once(' ').ok_or_else(|| expected("lacks a status"))?;
        let status = status.parse().ok().filter(|status| STATUSES.contains(status));
        let status =
            status.ok_or_else(|| expected("does not begin with a status of a redirect"))?;
        let to = to.trim();
        if to.len() > TEXT_BYTES_MAX || !to.bytes().all(|byte| byte.is_ascii_graphic()) {
            let why = "has a byte that no URI has";
            return Err(format!(
                "{why}; expected visible ASCII, at most {TEXT_BYTES_MAX} bytes, others as %XX"
            ));
        }
        let parts = parts(to)?;
        is_safe(to)?;
        Ok(Self { text: text.to_owned(), status, parts })
    }

    /// As it was written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether it leads to the host of the request, which has to have one.
    pub(crate) fn needs_host(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Value(Value::Host, _)))
    }

    /// Writes where this request is led, as far as it is not longer than `bytes_max` already.
    pub(crate) fn write(&self, values: &Values<'_>, out: &mut Vec<u8>, bytes_max: usize) {
        let start = out.len();
        self.write_parts(values, out, bytes_max);
        // Two slashes in front would name a host, whatever the path behind them is.
        let slashes = out[start..].iter().take_while(|byte| **byte == b'/').count();
        out.drain(start..start + slashes.saturating_sub(1));
    }

    fn write_parts(&self, values: &Values<'_>, out: &mut Vec<u8>, bytes_max: usize) {
        for part in &self.parts {
            if out.len() > bytes_max {
                return;
            }
            let (value, is_in_query) = match part {
                Part::Text(text) => {
                    out.extend_from_slice(text.as_bytes());
                    continue;
                }
                Part::Value(value, is_in_query) => (value, *is_in_query),
            };
            match value {
                Value::Rest => write_value(values.rest, is_in_query, out),
                Value::Path => write_value(one_slash(values.path), is_in_query, out),
                Value::Host => write_value(values.host, is_in_query, out),
                Value::Query => write_query(values.query, out),
            }
        }
    }
}

/// Writes a query behind its `?`, where there is one.
pub(crate) fn write_query(query: Option<&str>, out: &mut Vec<u8>) {
    if let Some(query) = query {
        out.push(b'?');
        out.extend_from_slice(query.as_bytes());
    }
}

/// A path with one slash in front.
fn one_slash(path: &[u8]) -> &[u8] {
    let slashes = path.iter().take_while(|byte| **byte == b'/').count();
    &path[slashes.saturating_sub(1)..]
}

/// In a query `&` and others would mean something.
fn write_value(value: &[u8], is_in_query: bool, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in value {
        let is_kept = byte.is_ascii_alphanumeric() || b"-._~/".contains(byte);
        if is_kept || !is_in_query {
            out.push(*byte);
        } else {
            out.extend_from_slice(&[
                b'%',
                HEX[usize::from(byte >> 4)],
                HEX[usize::from(byte & 15)],
            ]);
        }
    }
}

fn parts(to: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut rest = to;
    let mut is_in_query = false;
    while let Some(open) = rest.find('{') {
        let (text, tail) = rest.split_at(open);
        is_in_query |= text.contains('?');
        let end = tail
            .find('}')
            .ok_or("has a { without its }; expected {rest}, {path}, {query} or {host}")?;
        let name = &tail[1..end];
        let value = VALUES.iter().find(|(own, _)| *own == name).map(|(_, value)| *value);
        let value = value.ok_or_else(|| {
            format!("{{{name}}} is nothing of a request; expected {{rest}}, {{path}}, {{query}} or {{host}}")
        })?;
        if value == Value::Query && is_in_query {
            return Err("has {query} behind a query, of which it has its own ?; expected it without the first one"
                .to_owned());
        }
        if !text.is_empty() {
            parts.push(Part::Text(text.to_owned()));
        }
        parts.push(Part::Value(value, is_in_query));
        is_in_query |= value == Value::Query;
        rest = &tail[end + 1..];
    }
    if rest.contains('}') {
        return Err("has a } without its {; expected {rest}, {path}, {query} or {host}".to_owned());
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest.to_owned()));
    }
    Ok(parts)
}

/// Whether the host that it leads to is the one that was written, whatever is asked for.
fn is_safe(to: &str) -> Result<(), String> {
    let lower = to.to_ascii_lowercase();
    let scheme = ["https://", "http://"].into_iter().find(|scheme| lower.starts_with(scheme));
    let Some(scheme) = scheme else {
        return match to.as_bytes() {
            [b'/', b'/', ..] => {
                Err("begins with //, which names a host; expected https:// in front of it"
                    .to_owned())
            }
            [b'/', ..] if to.starts_with("/{path}") => {
                Err("begins with /{path}, which has a slash of its own; expected {path}".to_owned())
            }
            [b'/', ..] => Ok(()),
            _ if to.starts_with("{path}") => Ok(()),
            _ => Err(format!("leads nowhere; expected {EXPECTED}, or a path that begins with /")),
        };
    };
    let rest = &to[scheme.len()..];
    let ends = ["/", "?", "#", "{path}", "{query}"];
    let end = ends.iter().filter_map(|end| rest.find(end)).min().unwrap_or(rest.len());
    let authority = rest[..end].replacen("{host}", "host.example", 1);
    if !authority.is_empty() && is_host_and_port(authority.as_bytes()) {
        Ok(())
    } else {
        Err(format!(
            "\"{}\" is not a host that stays the same; expected a name with a / behind it, such as \
             https://blog.example.org/{{rest}}",
            &rest[..end]
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn led(text: &str) -> String {
        let values = Values {
            rest: b"b/c%20d",
            path: b"//a/b/c%20d&e",
            query: Some("x=1&y"),
            host: b"www.example.org",
        };
        let mut out = Vec::new();
        RedirectTo::read(text).expect(text).write(&values, &mut out, usize::MAX);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn what_stands_in_braces_is_that_of_the_request() {
        for (text, expected) in [
            ("301 https://blog.example.org/{rest}", "https://blog.example.org/b/c%20d"),
            ("302 /new/{rest}{query}", "/new/b/c%20d?x=1&y"),
            ("308 https://{host}{path}{query}", "https://www.example.org/a/b/c%20d&e?x=1&y"),
            ("307 {path}", "/a/b/c%20d&e"),
            ("303 https://login.example/?to={path}", "https://login.example/?to=/a/b/c%2520d%26e"),
            ("301 https://{host}:8443/", "https://www.example.org:8443/"),
            ("301 https://a.example", "https://a.example"),
        ] {
            assert_eq!(led(text), expected, "{text}");
        }
    }

    #[test]
    fn a_rest_that_begins_with_a_slash_names_nobody() {
        for (text, rest, expected) in [
            ("301 /{rest}", "/evil.example/x", "/evil.example/x"),
            ("301 /{rest}", "///evil.example", "/evil.example"),
            ("302 /{rest}/index.html", "", "/index.html"),
            ("302 /a/{rest}", "/b", "/a//b"),
            ("301 https://a.example/{rest}", "/b", "https://a.example//b"),
        ] {
            let values = Values { rest: rest.as_bytes(), path: b"/", query: None, host: b"a" };
            let mut out = Vec::new();
            RedirectTo::read(text).expect(text).write(&values, &mut out, usize::MAX);
            assert_eq!(String::from_utf8_lossy(&out), expected, "{text} {rest}");
        }
        let many = RedirectTo::read(&format!("301 /{}", "a{path}".repeat(500))).expect("right");
        let path = [b"/", &[b'x'; 1500][..]].concat();
        let values = Values { rest: b"", path: &path, query: None, host: b"" };
        let mut out = Vec::new();
        many.write(&values, &mut out, 1000);
        assert!(out.len() < 3000, "{}", out.len());
    }

    #[test]
    fn no_request_leads_to_another_host_than_was_written() {
        for (text, why) in [
            ("https://a.example/", "lacks a status"),
            ("301", "lacks a status"),
            ("200 /a", "does not begin with a status of a redirect"),
            ("301 a.example", "leads nowhere; expected a status"),
            ("301 //a.example", "begins with //, which names a host"),
            ("301 /{path}", "begins with /{path}"),
            (
                "301 https://a.example{rest}",
                "\"a.example{rest}\" is not a host that stays the same",
            ),
            ("301 https://{rest}/", "\"{rest}\" is not a host that stays the same"),
            ("301 https:///x", "\"\" is not a host that stays the same"),
            ("301 https://{host}{host}/", "is not a host that stays the same"),
            ("301 {rest}", "leads nowhere"),
            ("301 /{request_uri}", "{request_uri} is nothing of a request"),
            ("301 /a{rest", "has a { without its }"),
            ("301 /a}", "has a } without its {"),
            ("301 /a?b=1{query}", "has {query} behind a query"),
            ("301 /a\u{e9}", "has a byte that no URI has"),
        ] {
            let wrong = RedirectTo::read(text).expect_err(text);
            assert!(wrong.contains(why) && wrong.contains("expected"), "{text}: {wrong}");
        }
    }
}
