//! The access log of one loop: lines are buffered and written between turns, never waited for.
//!
//! Sessions add lines; `begin_turn` and `end_turn` of the sessions' trait drive the rest. What
//! cannot be written without waiting stays in the buffer, what does not fit the buffer is lost
//! and counted. Each loop has a descriptor of its own and appends whole lines.

mod line;

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::ServerError;
use crate::config::{LogFormat, LogTarget};
use crate::counters::{ServerCounter, ServerCounters};

pub(crate) use line::Entry;
use line::Stamp;

/// A turn with no more lines than this is one of a quiet loop, which may sleep long after it.
const LINES_FEW: u32 = 4;
/// Lines of a busy loop are written once they fill so much, or once a second.
const FLUSH_BYTES: usize = 32 * 1024;
/// Most that waits for a slow reader; a line that does not fit is lost.
const BUFFER_BYTES_MAX: usize = 256 * 1024;
/// A pipe that is ready takes so much without waiting (POSIX: PIPE_BUF).
const PIPE_BYTES: usize = 4096;
/// Of a log that is made: readable for the group, secret to the rest.
const MODE: u32 = 0o640;

/// Tells the logs of all loops to open their file again; shared by all of them.
#[derive(Clone, Debug, Default)]
pub struct ReopenSignal(Arc<AtomicU64>);

impl ReopenSignal {
    /// Has every log open its file again at its next turn. From any thread.
    pub fn raise(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// The log of one loop.
#[derive(Debug)]
pub(crate) struct AccessLog {
    target: LogTarget,
    format: LogFormat,
    fd: OwnedFd,
    is_regular: bool,
    buffer: Vec<u8>,
    /// Lines of this turn.
    lines: u32,
    stamp: Stamp,
    now_s: u64,
    flushed_s: u64,
    signal: ReopenSignal,
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
        signal: ReopenSignal,
    ) -> Result<Self, ServerError> {
        let fd = open(target).map_err(|cause| ServerError::Log { path: path(target), cause })?;
        let seen = signal.0.load(Relaxed);
        Ok(Self {
            is_regular: is_regular(&fd),
            target: target.clone(),
            format,
            fd,
            buffer: Vec::new(),
            lines: 0,
            stamp: Stamp::default(),
            now_s: 0,
            flushed_s: 0,
            signal,
            seen,
        })
    }

    /// Tells the time, and opens the file again when that was asked for.
    pub(crate) fn begin_turn(&mut self, unix_s: u64, counters: &ServerCounters) {
        self.now_s = unix_s;
        let asked = self.signal.0.load(Relaxed);
        if asked != self.seen {
            self.seen = asked;
            self.flush(counters);
            self.reopen(counters);
        }
    }

    /// Adds a line.
    pub(crate) fn add(&mut self, entry: &Entry<'_>, counters: &ServerCounters) {
        self.lines += 1;
        let before = self.buffer.len();
        self.stamp.set(self.now_s);
        line::write(&mut self.buffer, self.format, &self.stamp, entry);
        if self.buffer.len() > BUFFER_BYTES_MAX {
            self.buffer.truncate(before);
            counters.add(ServerCounter::LogLinesLost, 1);
        }
    }

    /// Writes what there is, when the loop is quiet, it is much, or a second is over.
    pub(crate) fn end_turn(&mut self, counters: &ServerCounters) {
        let is_quiet = std::mem::take(&mut self.lines) <= LINES_FEW;
        let is_due = is_quiet || self.flushed_s != self.now_s || self.buffer.len() >= FLUSH_BYTES;
        if is_due && !self.buffer.is_empty() {
            self.flushed_s = self.now_s;
            self.flush(counters);
        }
    }

    /// Writes what can be written without waiting.
    pub(crate) fn flush(&mut self, counters: &ServerCounters) {
        let mut written = 0;
        while written < self.buffer.len() {
            let rest = &self.buffer[written..];
            match write_some(&self.fd, self.is_regular, rest) {
                Ok(0) | Err(Errno::AGAIN) => break,
                Ok(taken) => written += taken,
                Err(Errno::INTR) => {}
                Err(_) => {
                    let lines = rest.iter().filter(|byte| **byte == b'\n').count();
                    counters.add(ServerCounter::LogLinesLost, lines as u64);
                    written = self.buffer.len();
                }
            }
        }
        self.buffer.drain(..written);
    }

    /// The old file is kept when the new one cannot be opened: a line there beats none.
    fn reopen(&mut self, counters: &ServerCounters) {
        match open(&self.target) {
            Ok(fd) => {
                self.is_regular = is_regular(&fd);
                self.fd = fd;
            }
            Err(_) => counters.add(ServerCounter::LogReopensFailed, 1),
        }
    }
}

fn open(target: &LogTarget) -> std::io::Result<OwnedFd> {
    match target {
        LogTarget::Stdout => std::io::stdout().as_fd().try_clone_to_owned(),
        LogTarget::File(path) => open_file(path).map(OwnedFd::from),
    }
}

fn open_file(path: &Path) -> std::io::Result<File> {
    // A named pipe without a reader is refused instead of waited for.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new().append(true).create(true).mode(MODE).custom_flags(flags).open(path)
}

fn path(target: &LogTarget) -> std::path::PathBuf {
    match target {
        LogTarget::Stdout => "-".into(),
        LogTarget::File(path) => path.clone(),
    }
}

fn is_regular(fd: &OwnedFd) -> bool {
    let stat = rustix::fs::fstat(fd);
    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
}

/// Writes the front of `bytes`; nothing when the reader has no room.
fn write_some(fd: &OwnedFd, is_regular: bool, bytes: &[u8]) -> rustix::io::Result<usize> {
    if is_regular {
        return rustix::io::write(fd, bytes);
    }
    // Standard output shares its flags with other processes, so it stays blocking: it is asked
    // first, and given no more than a ready pipe takes at once.
    let mut ready = [PollFd::new(fd, PollFlags::OUT)];
    if poll(&mut ready, Some(&Timespec::default()))? == 0 {
        return Ok(0);
    }
    rustix::io::write(fd, &bytes[..bytes.len().min(PIPE_BYTES)])
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    const ENTRY: Entry<'_> = Entry {
        peer: "::1",
        method: "GET",
        target: "/",
        is_old: false,
        status: 200,
        body_bytes: 1,
    };

    fn log(path: &Path, signal: &ReopenSignal) -> AccessLog {
        let target = LogTarget::File(path.to_owned());
        AccessLog::open(&target, LogFormat::Common, signal.clone()).expect("opened")
    }

    fn lines(path: &Path) -> usize {
        std::fs::read_to_string(path).expect("read").lines().count()
    }

    #[test]
    fn lines_of_a_busy_loop_wait_for_company_or_the_next_second() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let counters = ServerCounters::default();
        let mut log = log(&path, &ReopenSignal::default());
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
        let signal = ReopenSignal::default();
        let mut log = log(&path, &signal);
        log.begin_turn(5, &counters);
        log.add(&ENTRY, &counters);
        std::fs::rename(&path, &old).expect("renamed");
        signal.raise();
        log.begin_turn(6, &counters);
        log.add(&ENTRY, &counters);
        log.end_turn(&counters);
        assert_eq!((lines(&old), lines(&path)), (1, 1));
    }

    #[test]
    fn a_reader_that_stopped_costs_lines_and_never_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, mode, 0).expect("made");
        let mut reader =
            OpenOptions::new().read(true).write(true).open(&path).expect("both ends opened");
        let counters = ServerCounters::default();
        let mut log = log(&path, &ReopenSignal::default());
        log.begin_turn(5, &counters);
        for _ in 0..4000 {
            for _ in 0..5 {
                log.add(&ENTRY, &counters);
            }
            log.end_turn(&counters);
        }
        let lost = counters.value(ServerCounter::LogLinesLost);
        assert!(lost > 1000, "{lost}");
        assert!(log.buffer.len() <= BUFFER_BYTES_MAX);
        let mut read = vec![0; 1 << 20];
        let got = reader.read(&mut read).expect("what the pipe held");
        log.flush(&counters);
        assert!(got > 0 && counters.value(ServerCounter::LogLinesLost) == lost);
    }

    #[test]
    fn a_full_disk_costs_lines_that_are_counted() {
        let counters = ServerCounters::default();
        let mut log = log(Path::new("/dev/full"), &ReopenSignal::default());
        log.begin_turn(5, &counters);
        log.add(&ENTRY, &counters);
        log.add(&ENTRY, &counters);
        log.end_turn(&counters);
        assert_eq!(counters.value(ServerCounter::LogLinesLost), 2);
    }
}
