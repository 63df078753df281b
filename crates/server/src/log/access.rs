//! The access log of one loop: lines are buffered and written between turns, never waited for.
//!
//! Sessions add lines; `begin_turn` and `end_turn` of the sessions' trait drive the rest. What
//! cannot be written without waiting stays in the buffer, what does not fit the buffer is lost
//! and counted. Each loop has a descriptor of its own and appends whole lines.

use std::sync::Arc;

use super::Logs;
use super::event::Event;
use super::line::{self, Entry, Stamp};
use super::sink::Sink;
use crate::ServerError;
use crate::config::{LogFormat, LogTarget};
use crate::counters::{ServerCounter, ServerCounters};

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
        let (lines, stamp, now_s, flushed_s) = (0, Stamp::default(), 0, 0);
        Ok(Self { format, sink, lines, stamp, now_s, flushed_s, logs, seen })
    }

    /// Whether its lines say by what page and program was asked.
    pub(crate) fn names_agents(&self) -> bool {
        self.format == LogFormat::Combined
    }

    /// Tells the time, and opens the file again when that was asked for.
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
        line::write(&mut self.sink.buffer, self.format, &self.stamp, entry);
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

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::io::Read;
    use std::path::{Path, PathBuf};

    use rustix::fs::FileType;

    use super::super::sink::BUFFER_BYTES_MAX;
    use super::*;

    const ENTRY: Entry<'_> = Entry {
        peer: "::1",
        method: "GET",
        target: "/",
        is_old: false,
        status: 200,
        body_bytes: 1,
        referer: "",
        agent: "",
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
        let (path, old) = (folder.path().join("log"), folder.path().join("old"));
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
        let (mut text, mut part) = (Vec::new(), vec![0; 3000]);
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
    fn a_full_disk_costs_lines_that_are_counted() {
        let counters = ServerCounters::default();
        let mut log = log(Path::new("/dev/full"), &Logs::default());
        log.begin_turn(5, &counters);
        log.add(&ENTRY, &counters);
        log.add(&ENTRY, &counters);
        log.end_turn(&counters);
        assert_eq!(counters.value(ServerCounter::LogLinesLost), 2);
    }
}
