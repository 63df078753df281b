//! The access log of one loop: lines are buffered and written between turns, never waited for.
//!
//! Sessions add lines; `begin_turn` and `end_turn` of the sessions' trait drive the rest. What
//! cannot be written without waiting stays in the buffer, what does not fit the buffer is lost
//! and counted. Each loop has a descriptor of its own and appends whole lines.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use pollux_http::decimal;

use crate::ServerError;
use crate::config::{LogFormat, LogTarget};
use crate::counters::{ServerCounter, ServerCounters};
use crate::log::{Event, Logs, Sink};

/// A turn with no more lines than this is one of a quiet loop, which may sleep long after it.
const LINES_FEW: u32 = 4;
/// Lines of a busy loop are written once they fill so much, or once a second.
const FLUSH_BYTES: usize = 32 * 1024;

/// The log of one loop.
#[derive(Debug)]
pub(crate) struct AccessLog {
    format: LogFormat,
    sink: Sink,
    /// Lines of this turn.
    lines: u32,
    stamp: Stamp,
    now_s: u64,
    flushed_s: u64,
    logs: Logs,
    seen: u64,
}

impl AccessLog {
    /// Opens the log; a file is appended to, and made if need be.
    ///
    /// # Errors
    /// [`ServerError::Log`] with the path.
    pub(crate) fn open(
        target: &LogTarget,
        format: LogFormat,
        logs: Logs,
    ) -> Result<Self, ServerError> {
        let failed = |cause| ServerError::Log { log: "access", path: target.path(), cause };
        let sink = Sink::open(target, Arc::clone(&logs.is_torn)).map_err(failed)?;
        let seen = logs.reopens();
        let lines = 0;
        let stamp = Stamp::default();
        let now_s = 0;
        let flushed_s = 0;
        Ok(Self { format, sink, lines, stamp, now_s, flushed_s, logs, seen })
    }

    /// Lines have this form from now on.
    pub(crate) fn set_format(&mut self, format: LogFormat) {
        self.format = format;
    }

    /// Whether its lines say which site and which route a request has.
    pub(crate) fn names_routes(&self) -> bool {
        self.format == LogFormat::Json
    }

    /// Whether its lines say whose certificates clients have shown.
    pub(crate) fn names_clients(&self) -> bool {
        self.format == LogFormat::Json
    }

    /// Whether its lines say by what page and program was asked.
    pub(crate) fn names_agents(&self) -> bool {
        self.format == LogFormat::Combined
    }

    /// Sets the time, and opens the file again when that was asked for.
    pub(crate) fn begin_turn(&mut self, unix_s: u64, counters: &ServerCounters) {
        self.now_s = unix_s;
        let asked = self.logs.reopens();
        if asked != self.seen {
            self.seen = asked;
            self.flush(counters);
            self.reopen(counters);
        }
    }

    /// Adds a line.
    pub(crate) fn add(&mut self, entry: &Entry<'_>, counters: &ServerCounters) {
        self.lines += 1;
        let before = self.sink.buffer.len();
        self.stamp.set(self.now_s);
        write(&mut self.sink.buffer, self.format, &self.stamp, entry);
        if !self.sink.keep(before) {
            counters.add(ServerCounter::LogLinesLost, 1);
            counters.set_log_errno(None);
        }
    }

    /// Writes what there is, when the loop is quiet, it is much, or a second is over.
    pub(crate) fn end_turn(&mut self, counters: &ServerCounters) {
        let is_quiet = std::mem::take(&mut self.lines) <= LINES_FEW;
        let is_due =
            is_quiet || self.flushed_s != self.now_s || self.sink.buffer.len() >= FLUSH_BYTES;
        if is_due && !self.sink.buffer.is_empty() {
            self.flushed_s = self.now_s;
            self.flush(counters);
        }
    }

    /// Writes what can be written without waiting.
    pub(crate) fn flush(&mut self, counters: &ServerCounters) {
        if let Some(lost) = self.sink.flush() {
            counters.add(ServerCounter::LogLinesLost, lost.lines);
            counters.set_log_errno(Some(lost.errno));
        }
    }

    fn reopen(&mut self, counters: &ServerCounters) {
        if let Err(error) = self.sink.reopen() {
            counters.add(ServerCounter::LogReopensFailed, 1);
            let report = || {
                format!("the access log can't be opened again: {error}; the old file is written on")
            };
            self.logs.errors.report(Event::ReopenFailed, self.now_s, report);
        }
    }
}

/// What a line says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    /// Address of the peer, without its port; empty when it has none.
    pub(crate) peer: &'a str,
    /// Method as sent; empty when there was no request line.
    pub(crate) method: &'a str,
    /// Target as sent. Any bytes, where it was refused.
    pub(crate) target: &'a [u8],
    /// Version of HTTP, as `1.1`; empty when none was sent.
    pub(crate) version: &'a str,
    /// Status of the answer.
    pub(crate) status: u16,
    /// Bytes of its body.
    pub(crate) body_bytes: u64,
    /// Where the client found the target, as it says; only for the combined form. Any bytes.
    pub(crate) referer: &'a [u8],
    /// What the client calls itself; only for the combined form. Any bytes.
    pub(crate) agent: &'a [u8],
    /// The site that the request has, and its route, as they are written; only for JSON. Empty where there is none.
    pub(crate) site: &'a str,
    pub(crate) route: &'a str,
    /// Who asked, as a password has shown; empty for nobody.
    pub(crate) user: &'a str,
    /// Subject and SHA-256 of the certificate that its client has shown; only for JSON. Empty where there was none.
    pub(crate) client: (&'a str, &'a str),
    /// The id of the request; only for JSON. Empty where it has none.
    pub(crate) request_id: &'a str,
    /// Why it did not come to its end, where it did not; what a proxy adds has that of its own.
    pub(crate) cut: Option<&'a str>,
    /// What a proxy adds.
    pub(crate) proxied: Option<Proxied<'a>>,
}

/// What a proxy says of a request; times are from its head, and none stand for one that no backend had.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proxied<'a> {
    /// The backend that had it last; empty for none.
    pub(crate) backend: &'a str,
    /// Until a connection was chosen or begun for it.
    pub(crate) queued: Option<Duration>,
    /// Until that was there.
    pub(crate) connected: Option<Duration>,
    /// Until the head of the answer proper was there; in TCP mode until the first byte.
    pub(crate) first_byte: Option<Duration>,
    /// Until the last byte was handed to the kernel, or it failed; none for one that was answered here.
    pub(crate) total: Option<Duration>,
    /// Connections that had it.
    pub(crate) tries: u32,
    /// How it ended.
    pub(crate) end: &'a str,
    /// How far it had come, if it failed.
    pub(crate) state: Option<&'a str>,
    /// Whether the client may ask again, if it failed.
    pub(crate) is_retry_safe: Option<bool>,
}

impl<'a> Proxied<'a> {
    /// Of a request that no backend had, and that ended so.
    pub(crate) const fn here(end: &'a str) -> Self {
        Self {
            backend: "",
            queued: None,
            connected: None,
            first_byte: None,
            total: None,
            tries: 0,
            end,
            state: None,
            is_retry_safe: None,
        }
    }
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
///
/// Text of the peer is escaped, so that no request can forge a line or a field.
pub(super) fn write(out: &mut Vec<u8>, format: LogFormat, stamp: &Stamp, entry: &Entry<'_>) {
    match format {
        LogFormat::Common | LogFormat::Combined => common(out, format, stamp, entry),
        LogFormat::Json => json(out, stamp, entry),
    }
}

fn common(out: &mut Vec<u8>, format: LogFormat, stamp: &Stamp, entry: &Entry<'_>) {
    let peer = if entry.peer.is_empty() { "-" } else { entry.peer };
    text(out, peer);
    text(out, " - ");
    let user = if entry.user.is_empty() { "-" } else { entry.user };
    for (place, word) in user.split(' ').enumerate() {
        // A column is one word.
        text(out, if place > 0 { "\\x20" } else { "" });
        quoted(out, word.as_bytes(), Escape::Hex);
    }
    text(out, " [");
    text(out, &stamp.common);
    text(out, "] \"");
    if entry.method.is_empty() {
        text(out, "-");
    } else {
        quoted(out, entry.method.as_bytes(), Escape::Hex);
        text(out, " ");
        quoted(out, entry.target, Escape::Hex);
        if !entry.version.is_empty() {
            text(out, " HTTP/");
            text(out, entry.version);
        }
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
            quoted(out, if said.is_empty() { b"-" } else { said }, Escape::Hex);
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
    let peer = entry.peer.as_bytes();
    let method = entry.method.as_bytes();
    for (key, value) in [("peer", peer), ("method", method), ("target", entry.target)] {
        text(out, "\",\"");
        text(out, key);
        text(out, "\":\"");
        quoted(out, value, Escape::Json);
    }
    if !entry.version.is_empty() {
        text(out, "\",\"version\":\"");
        text(out, entry.version);
    }
    text(out, "\",\"status\":");
    number(out, u64::from(entry.status));
    text(out, ",\"body_bytes\":");
    number(out, entry.body_bytes);
    let names = [
        (",\"request_id\":\"", entry.request_id),
        (",\"user\":\"", entry.user),
        (",\"client_subject\":\"", entry.client.0),
        (",\"client_sha256\":\"", entry.client.1),
        (",\"site\":\"", entry.site),
        (",\"route\":\"", entry.route),
    ];
    for (key, name) in names {
        if !name.is_empty() {
            text(out, key);
            quoted(out, name.as_bytes(), Escape::Json);
            text(out, "\"");
        }
    }
    if let Some(cut) = entry.cut {
        text(out, ",\"end\":\"");
        text(out, cut);
        text(out, "\"");
    }
    if let Some(proxied) = &entry.proxied {
        json_proxied(out, proxied);
    }
    text(out, "}\n");
}

/// ` BACKEND queued/connected/first-byte/total END`, in microseconds.
fn common_proxied(out: &mut Vec<u8>, proxied: &Proxied<'_>) {
    let times = [proxied.queued, proxied.connected, proxied.first_byte, proxied.total];
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
    quoted(out, proxied.backend.as_bytes(), Escape::Json);
    text(out, "\"");
    for (key, time) in [
        (",\"queued_us\":", proxied.queued),
        (",\"connected_us\":", proxied.connected),
        (",\"first_byte_us\":", proxied.first_byte),
        (",\"total_us\":", proxied.total),
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

/// How a character that is not plain is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Escape {
    Hex,
    Json,
}

/// Writes `value`, and each character that is not plain as `escape` says. Bytes that are not UTF-8 are `\xHH` in
/// every form: a client that puts one into a value hides nothing.
fn quoted(out: &mut Vec<u8>, value: &[u8], escape: Escape) {
    // Nearly all of them are plain.
    if value.iter().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\')) {
        return out.extend_from_slice(value);
    }
    for chunk in value.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                ' '..='~' if c != '"' && c != '\\' => out.push(c as u8),
                c if escape == Escape::Json => json_escape(out, c),
                c => hex_escape(out, c),
            }
        }
        for byte in chunk.invalid() {
            // In a string of JSON two backslashes are one.
            text(out, if escape == Escape::Json { "\\\\x" } else { "\\x" });
            write!(out, "{byte:02x}").expect("a vector takes everything");
        }
    }
}

fn hex_escape(out: &mut Vec<u8>, c: char) {
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
    use std::fs::{File, OpenOptions};
    use std::io::Read;
    use std::path::{Path, PathBuf};

    use proptest::prelude::*;
    use rustix::fs::FileType;

    use super::*;
    use crate::log::BUFFER_BYTES_MAX;
    use pollux_settings::command::output::error_chain;

    const ENTRY: Entry<'_> = Entry {
        peer: "::1",
        method: "GET",
        target: b"/",
        version: "1.1",
        status: 200,
        body_bytes: 1,
        referer: b"",
        agent: b"",
        user: "",
        client: ("", ""),
        request_id: "",
        site: "",
        route: "",
        cut: None,
        proxied: None,
    };

    fn log(path: &Path, logs: &Logs) -> AccessLog {
        let target = LogTarget::File(path.to_owned());
        AccessLog::open(&target, LogFormat::Common, logs.clone()).expect("opened")
    }

    /// A named pipe, and its reader, which keeps it open.
    fn pipe_in(folder: &Path) -> (PathBuf, File) {
        let path = folder.join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, mode, 0).expect("made");
        let both_ends = OpenOptions::new().read(true).write(true).open(&path);
        (path, both_ends.expect("both ends opened"))
    }

    fn lines(path: &Path) -> usize {
        std::fs::read_to_string(path).expect("read").lines().count()
    }

    #[test]
    fn lines_of_a_busy_loop_wait_for_company_or_the_next_second() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let counters = ServerCounters::default();
        let mut log = log(&path, &Logs::default());
        let mut turn = |second, number| {
            log.begin_turn(second, &counters);
            for _ in 0..number {
                log.add(&ENTRY, &counters);
            }
            log.end_turn(&counters);
            lines(&path)
        };
        assert_eq!((turn(5, 1), turn(5, 2)), (1, 3));
        assert_eq!((turn(5, 10), turn(6, 10)), (3, 23));
        assert_eq!((turn(6, 10), turn(6, 1000)), (23, 1033));
        assert_eq!((turn(6, 10), turn(6, 0)), (1033, 1043));
    }

    #[test]
    fn a_rotated_file_is_left_when_the_signal_comes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let old = folder.path().join("old");
        let counters = ServerCounters::default();
        let logs = Logs::default();
        let mut log = log(&path, &logs);
        log.begin_turn(5, &counters);
        log.add(&ENTRY, &counters);
        std::fs::rename(&path, &old).expect("renamed");
        logs.reopen();
        log.begin_turn(6, &counters);
        log.add(&ENTRY, &counters);
        log.end_turn(&counters);
        assert_eq!((lines(&old), lines(&path)), (1, 1));
    }

    #[test]
    fn a_reader_that_stopped_costs_lines_and_never_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, mut reader) = pipe_in(folder.path());
        let counters = ServerCounters::default();
        let mut log = log(&path, &Logs::default());
        log.begin_turn(5, &counters);
        for _ in 0..4000 {
            for _ in 0..5 {
                log.add(&ENTRY, &counters);
            }
            log.end_turn(&counters);
        }
        let lost = counters.value(ServerCounter::LogLinesLost);
        assert!(lost > 1000, "{lost}");
        assert!(log.sink.buffer.len() <= BUFFER_BYTES_MAX);
        let mut read = vec![0; 1 << 20];
        let got = reader.read(&mut read).expect("what the pipe held");
        log.flush(&counters);
        assert!(got > 0 && counters.value(ServerCounter::LogLinesLost) == lost);
    }

    #[test]
    fn loops_that_share_a_pipe_write_whole_lines() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, mut reader) = pipe_in(folder.path());
        let counters = ServerCounters::default();
        let logs = Logs::default();
        let mut loops = [log(&path, &logs), log(&path, &logs)];
        let mut text = Vec::new();
        let mut part = vec![0; 3000];
        for (at, log) in loops.iter_mut().enumerate() {
            log.begin_turn(5, &counters);
            let peer = ["::1", "a-longer-name"][at];
            (0..2000).for_each(|_| log.add(&Entry { peer, ..ENTRY }, &counters));
        }
        for at in (0..2).cycle() {
            loops[at].flush(&counters);
            let len = reader.read(&mut part).expect("something");
            text.extend_from_slice(&part[..len]);
            let is_written = loops.iter().all(|log| log.sink.buffer.is_empty());
            if is_written && text.iter().filter(|byte| **byte == b'\n').count() == 4000 {
                break;
            }
        }
        let text = String::from_utf8(text).expect("text");
        let whole = |line: &str| line.ends_with("] \"GET / HTTP/1.1\" 200 1");
        for peer in ["::1 - - [", "a-longer-name - - ["] {
            let lines = text.lines().filter(|line| line.starts_with(peer) && whole(line)).count();
            assert_eq!(lines, 2000, "{peer}");
        }
    }

    #[test]
    fn a_pipe_without_a_reader_is_named_as_that_at_the_start_and_when_it_is_opened_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let mut log = log(&path, &Logs::default());
        std::fs::remove_file(&path).expect("removed");
        let (pipe, reader) = pipe_in(folder.path());
        drop(reader);
        std::fs::rename(pipe, &path).expect("renamed");
        let expected = "no program reads this named pipe; start its reader first";
        assert_eq!(log.sink.reopen().expect_err("nobody reads"), expected);
        let target = LogTarget::File(path.clone());
        let error =
            AccessLog::open(&target, LogFormat::Common, Logs::default()).expect_err("as well");
        let ServerError::Log { cause, .. } = error else { panic!("{error}") };
        assert_eq!(cause.to_string(), expected);
        let error = crate::log::check("access", &target).expect_err("as well");
        assert!(error_chain(&error).ends_with(&format!("cannot be opened: {expected}")), "{error}");
        std::fs::remove_file(&path).expect("removed");
        let _socket = std::os::unix::net::UnixListener::bind(&path).expect("bound");
        let error = log.sink.reopen().expect_err("a socket");
        assert!(error.starts_with("this is a socket; expected"), "{error}");
    }

    #[test]
    fn a_full_disk_costs_lines_that_are_counted() {
        let counters = ServerCounters::default();
        let mut log = log(Path::new("/dev/full"), &Logs::default());
        log.begin_turn(5, &counters);
        log.add(&ENTRY, &counters);
        log.add(&ENTRY, &counters);
        log.end_turn(&counters);
        assert_eq!(counters.value(ServerCounter::LogLinesLost), 2);
    }

    fn line(format: LogFormat, method: &str, target: &str, body_bytes: u64) -> String {
        let mut stamp = Stamp::default();
        stamp.set(784_111_777);
        let peer = "192.0.2.1";
        let version = if method.is_empty() { "" } else { "1.1" };
        let mut out = Vec::new();
        let status = 200;
        let target = target.as_bytes();
        let referer = b"".as_slice();
        let agent = target;
        let proxied = None;
        let entry = Entry {
            peer,
            method,
            target,
            version,
            status,
            body_bytes,
            referer,
            agent,
            user: "",
            client: ("", ""),
            request_id: "",
            site: "",
            route: "",
            cut: None,
            proxied,
        };
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
        let mut out = Vec::new();
        json(&mut out, &Stamp::default(), &Entry { site: "*", route: "/\"/", ..ENTRY });
        let text = String::from_utf8(out).expect("ASCII");
        assert!(
            text.ends_with("\"body_bytes\":1,\"site\":\"*\",\"route\":\"/\\\"/\"}\n"),
            "{text}"
        );
        // Other protocols have no version of HTTP.
        assert!(line(LogFormat::Json, "", "", 0).contains("\"target\":\"\",\"status\":200,"));
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
