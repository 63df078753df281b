//! One answer as a line of the access log: NCSA common or JSON.
//!
//! Text of the peer is escaped, so that no request can forge a line or a field.

use std::io::Write;
use std::time::Duration;

use pollux_http::decimal;

use crate::config::LogFormat;

/// What a line says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    /// Address of the peer, without its port; empty when it has none.
    pub(crate) peer: &'a str,
    /// Method as sent; empty when the head could not be read.
    pub(crate) method: &'a str,
    /// Target as sent.
    pub(crate) target: &'a str,
    /// Whether the request was HTTP/1.0.
    pub(crate) is_old: bool,
    /// Status of the answer.
    pub(crate) status: u16,
    /// Bytes of its body.
    pub(crate) body_bytes: u64,
    /// Where the client found the target, as it says; only for the combined form.
    pub(crate) referer: &'a str,
    /// What the client calls itself; only for the combined form.
    pub(crate) agent: &'a str,
    /// What a proxy adds.
    pub(crate) proxied: Option<Proxied<'a>>,
}

/// What a proxy says of a request that it passed on; times are from its head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proxied<'a> {
    /// The backend that had it last; empty for none.
    pub(crate) backend: &'a str,
    /// Until a connection was chosen or begun for it.
    pub(crate) queued: Option<Duration>,
    /// Until that was there.
    pub(crate) connected: Option<Duration>,
    /// Until the first byte of an answer.
    pub(crate) first_byte: Option<Duration>,
    /// Until the last byte was handed to the kernel, or it failed.
    pub(crate) total: Duration,
    /// Connections that had it.
    pub(crate) tries: u32,
    /// How it ended.
    pub(crate) end: &'a str,
    /// How far it had come, if it failed.
    pub(crate) state: Option<&'a str>,
    /// Whether the client may ask again, if it failed.
    pub(crate) is_retry_safe: Option<bool>,
}

/// The word for whether a request that failed may be asked again.
const fn retry(is_safe: bool) -> &'static str {
    if is_safe { "safe" } else { "unsafe" }
}

/// A second of the log, rendered for both forms.
#[derive(Clone, Debug, Default)]
pub(super) struct Stamp {
    unix_s: u64,
    common: String,
    json: String,
}

impl Stamp {
    /// Renders the second `unix_s` unless it is the one at hand.
    pub(super) fn set(&mut self, unix_s: u64) {
        if self.unix_s == unix_s && !self.common.is_empty() {
            return;
        }
        let second = i64::try_from(unix_s).unwrap_or(0);
        let time = jiff::Timestamp::from_second(second).unwrap_or_default();
        self.unix_s = unix_s;
        self.common = time.strftime("%d/%b/%Y:%H:%M:%S +0000").to_string();
        self.json = time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    }
}

/// Appends the line with its end to `out`.
pub(super) fn write(out: &mut Vec<u8>, format: LogFormat, stamp: &Stamp, entry: &Entry<'_>) {
    match format {
        LogFormat::Common | LogFormat::Combined => common(out, format, stamp, entry),
        LogFormat::Json => json(out, stamp, entry),
    }
}

fn common(out: &mut Vec<u8>, format: LogFormat, stamp: &Stamp, entry: &Entry<'_>) {
    let peer = if entry.peer.is_empty() { "-" } else { entry.peer };
    text(out, peer);
    text(out, " - - [");
    text(out, &stamp.common);
    text(out, "] \"");
    if entry.method.is_empty() {
        text(out, "-");
    } else {
        quoted(out, entry.method, common_escape);
        text(out, " ");
        quoted(out, entry.target, common_escape);
        text(out, if entry.is_old { " HTTP/1.0" } else { " HTTP/1.1" });
    }
    text(out, "\" ");
    number(out, u64::from(entry.status));
    text(out, " ");
    // The form says "-" where no byte of a body was sent.
    match entry.body_bytes {
        0 => text(out, "-"),
        body_bytes => number(out, body_bytes),
    }
    if format == LogFormat::Combined {
        for said in [entry.referer, entry.agent] {
            text(out, " \"");
            quoted(out, if said.is_empty() { "-" } else { said }, common_escape);
            text(out, "\"");
        }
    }
    if let Some(proxied) = &entry.proxied {
        common_proxied(out, proxied);
    }
    text(out, "\n");
}

fn json(out: &mut Vec<u8>, stamp: &Stamp, entry: &Entry<'_>) {
    text(out, "{\"time\":\"");
    text(out, &stamp.json);
    for (key, value) in [("peer", entry.peer), ("method", entry.method), ("target", entry.target)] {
        text(out, "\",\"");
        text(out, key);
        text(out, "\":\"");
        quoted(out, value, json_escape);
    }
    text(out, "\",\"version\":\"");
    text(out, if entry.is_old { "1.0" } else { "1.1" });
    text(out, "\",\"status\":");
    number(out, u64::from(entry.status));
    text(out, ",\"body_bytes\":");
    number(out, entry.body_bytes);
    if let Some(proxied) = &entry.proxied {
        json_proxied(out, proxied);
    }
    text(out, "}\n");
}

/// ` BACKEND queued/connected/first-byte/total END`, in microseconds.
fn common_proxied(out: &mut Vec<u8>, proxied: &Proxied<'_>) {
    let times = [proxied.queued, proxied.connected, proxied.first_byte, Some(proxied.total)];
    text(out, " ");
    text(out, if proxied.backend.is_empty() { "-" } else { proxied.backend });
    for (place, time) in times.into_iter().enumerate() {
        text(out, if place == 0 { " " } else { "/" });
        match time {
            Some(time) => number(out, micros(time)),
            None => text(out, "-"),
        }
    }
    text(out, " ");
    text(out, proxied.end);
    if let Some(state) = proxied.state {
        text(out, "/");
        text(out, state);
    }
    if let Some(is_safe) = proxied.is_retry_safe {
        text(out, "/");
        text(out, retry(is_safe));
    }
}

fn json_proxied(out: &mut Vec<u8>, proxied: &Proxied<'_>) {
    text(out, ",\"backend\":\"");
    quoted(out, proxied.backend, json_escape);
    text(out, "\"");
    for (key, time) in [
        (",\"queued_us\":", proxied.queued),
        (",\"connected_us\":", proxied.connected),
        (",\"first_byte_us\":", proxied.first_byte),
        (",\"total_us\":", Some(proxied.total)),
    ] {
        if let Some(time) = time {
            text(out, key);
            number(out, micros(time));
        }
    }
    text(out, ",\"tries\":");
    number(out, proxied.tries.into());
    text(out, ",\"end\":\"");
    text(out, proxied.end);
    text(out, "\"");
    if let Some(state) = proxied.state {
        text(out, ",\"state\":\"");
        text(out, state);
        text(out, "\"");
    }
    if let Some(is_safe) = proxied.is_retry_safe {
        text(out, ",\"retry\":\"");
        text(out, retry(is_safe));
        text(out, "\"");
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

fn number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(decimal(number, &mut [0; 20]));
}

/// Writes `value` and lets `escape` write each byte that is not plain.
fn quoted(out: &mut Vec<u8>, value: &str, escape: fn(&mut Vec<u8>, char)) {
    // Nearly all of them are plain.
    if value.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\') {
        return out.extend_from_slice(value.as_bytes());
    }
    for c in value.chars() {
        match c {
            ' '..='~' if c != '"' && c != '\\' => out.push(c as u8),
            c => escape(out, c),
        }
    }
}

fn common_escape(out: &mut Vec<u8>, c: char) {
    let mut bytes = [0; 4];
    for byte in c.encode_utf8(&mut bytes).bytes() {
        write!(out, "\\x{byte:02x}").expect("a vector takes everything");
    }
}

fn json_escape(out: &mut Vec<u8>, c: char) {
    match c {
        '"' => out.extend_from_slice(b"\\\""),
        '\\' => out.extend_from_slice(b"\\\\"),
        c => {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                write!(out, "\\u{unit:04x}").expect("a vector takes everything");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(format: LogFormat, method: &str, target: &str, body_bytes: u64) -> String {
        let mut stamp = Stamp::default();
        stamp.set(784_111_777);
        let (peer, is_old) = ("192.0.2.1", false);
        let mut out = Vec::new();
        let status = 200;
        let (referer, agent, proxied) = ("", target, None);
        let entry =
            Entry { peer, method, target, is_old, status, body_bytes, referer, agent, proxied };
        write(&mut out, format, &stamp, &entry);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn the_common_form_is_what_log_readers_expect() {
        assert_eq!(
            line(LogFormat::Common, "GET", "/a?b=c", 12),
            "192.0.2.1 - - [06/Nov/1994:08:49:37 +0000] \"GET /a?b=c HTTP/1.1\" 200 12\n"
        );
        assert_eq!(
            line(LogFormat::Combined, "GET", "/a", 12),
            "192.0.2.1 - - [06/Nov/1994:08:49:37 +0000] \"GET /a HTTP/1.1\" 200 12 \"-\" \"/a\"\n"
        );
        assert!(line(LogFormat::Common, "", "", 0).ends_with("] \"-\" 200 -\n"));
    }

    #[test]
    fn the_json_form_is_one_object() {
        assert_eq!(
            line(LogFormat::Json, "GET", "/\"\u{1F600}\n", 12),
            "{\"time\":\"1994-11-06T08:49:37Z\",\"peer\":\"192.0.2.1\",\"method\":\"GET\",\
             \"target\":\"/\\\"\\ud83d\\ude00\\u000a\",\"version\":\"1.1\",\"status\":200,\
             \"body_bytes\":12}\n"
        );
    }

    proptest! {
        #[test]
        fn no_target_forges_a_line_or_leaves_its_quotes(target in "\\PC{0,30}[\"\\\\\n\r]\\PC{0,9}") {
            let common = line(LogFormat::Common, "GET", &target, 1);
            prop_assert_eq!(common.matches('\n').count(), 1);
            prop_assert_eq!(common.matches('"').count(), 2);
            prop_assert!(common.is_ascii());
            let combined = line(LogFormat::Combined, "GET", &target, 1);
            prop_assert_eq!(combined.matches('\n').count(), 1);
            prop_assert_eq!(combined.matches('"').count(), 6);
            let json = line(LogFormat::Json, "GET", &target, 1);
            prop_assert_eq!(json.matches('\n').count(), 1);
            let bare = json.replace("\\\\", "").replace("\\\"", "");
            prop_assert_eq!(bare.matches('"').count(), 24);
        }
    }
}
