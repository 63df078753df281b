//! What a server writes down: its answers (`access`), and what goes wrong with it ([`ErrorLog`]).
//!
//! Both logs write their lines by a [`Sink`], which never waits for a file or a stream. What cannot be
//! written at once stays in the buffer; what does not fit the buffer, or fails, is lost, and the number of
//! its lines is returned. A disk that runs full takes a part of a line: the next one then begins behind a
//! line's end of its own, also when another loop writes it.
//!
//! The error log has few lines, whatever happens:
//!
//! ```text
//!  loops ── report ──► pending lines, bounded ── write, once a second ──► file or standard error
//! ```
//!
//! Loops never write to it: they hand a line over under a lock that no thread holds while waiting. The
//! thread that waits for signals writes. Each kind of message has its number of lines a minute;
//! what is beyond it is counted, and the count is a line when the minute is over.

use std::fmt::Write;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use pollux_sys::links;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::ServerError;
use crate::config::{LogLevel, LogTarget};
use crate::system::is_folder_writable;

mod access;
pub(crate) use access::{AccessLog, Entry, Proxied};

/// Most that waits for a slow reader; a line that does not fit is lost.
const BUFFER_BYTES_MAX: usize = 256 * 1024;
/// A pipe that is ready takes so much without waiting (POSIX: PIPE_BUF).
const PIPE_BYTES: usize = 4096;
/// Of a log that is made: readable for the group, secret to the rest.
const MODE: u32 = 0o640;
/// For which each kind of message has its number of lines.
const MINUTE_S: u64 = 60;
/// Most that waits to be written; more than all kinds of messages fill in a minute.
const PENDING_BYTES_MAX: usize = 64 * 1024;
/// Longest text of one message; what a client sent may stand in it.
const TEXT_CHARS_MAX: usize = 1000;

/// What the loops of one server share for their logs; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Logs {
    reopened: Arc<AtomicU64>,
    /// Whether the access log ends in the middle of a line.
    is_torn: Arc<AtomicBool>,
    pub(crate) errors: Arc<ErrorLog>,
}

/// Whether this log could be opened; nothing is made.
///
/// # Errors
/// [`ServerError::Log`] with the path.
pub(crate) fn check(log: &'static str, target: &LogTarget) -> Result<(), ServerError> {
    let failed = |cause| ServerError::Log { log, path: target.path(), cause };
    Sink::check(target).map_err(failed)
}

impl Logs {
    /// Logs whose error log has nothing below this level.
    #[must_use]
    pub fn new(level: LogLevel) -> Self {
        Self::of_command("serve", level)
    }

    /// Those of `pollux COMMAND`.
    pub(crate) fn of_command(command: &'static str, level: LogLevel) -> Self {
        let errors = Arc::new(ErrorLog::of_command(command, level));
        Self { reopened: Arc::default(), is_torn: Arc::default(), errors }
    }

    /// Has every access log open its file again at its loop's next turn. From any thread.
    pub fn reopen(&self) {
        self.reopened.fetch_add(1, Relaxed);
    }

    /// How often that was asked for.
    fn reopens(&self) -> u64 {
        self.reopened.load(Relaxed)
    }
}

/// An open file or stream, and the lines that wait for it.
#[derive(Debug)]
struct Sink {
    target: LogTarget,
    fd: OwnedFd,
    is_regular: bool,
    buffer: Vec<u8>,
    /// Whether the file ends in the middle of a line; all that write to it share this.
    is_torn: Arc<AtomicBool>,
}

/// Lines that a write error cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Lost {
    lines: u64,
    errno: Errno,
}

impl Sink {
    /// Opens a file for appending, which is made if need be, or a stream of the process.
    fn open(target: &LogTarget, is_torn: Arc<AtomicBool>) -> std::io::Result<Self> {
        let fd = open(target)?;
        let is_regular = is_regular(&fd);
        Ok(Self { target: target.clone(), fd, is_regular, buffer: Vec::new(), is_torn })
    }

    /// Whether it could be opened; a file that is not there is not made.
    fn check(target: &LogTarget) -> std::io::Result<()> {
        match &target.led_to() {
            LogTarget::File(path) => match place_to_make(path)? {
                Some(made) => is_folder_writable(&made),
                None => open_file(path).map(drop),
            },
            target => open(target).map(drop),
        }
    }

    /// Opens the target again. The old file is kept when that fails: a line there beats none.
    ///
    /// # Errors
    /// Why not, and what to do.
    fn reopen(&mut self) -> Result<(), String> {
        let fd = open(&self.target).map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => format!(
                "{error}; let the server's user write it, or restart the server where its folder was replaced, \
                 as the sandbox of the start does not reach the new one"
            ),
            _ => error.to_string(),
        })?;
        self.is_regular = is_regular(&fd);
        self.fd = fd;
        Ok(())
    }

    /// Keeps what was added behind the first `before` bytes of the buffer, if it fits.
    fn keep(&mut self, before: usize) -> bool {
        let fits = self.buffer.len() <= BUFFER_BYTES_MAX;
        if !fits {
            self.buffer.truncate(before);
        }
        fits
    }

    /// Writes what can be written without waiting.
    fn flush(&mut self) -> Option<Lost> {
        let mut written = 0;
        let mut lost = None;
        let was_torn =
            !self.buffer.is_empty() && self.is_torn.swap(false, Relaxed) && !is_empty(&self.fd);
        if was_torn {
            self.buffer.insert(0, b'\n');
        }
        while written < self.buffer.len() {
            let rest = &self.buffer[written..];
            match write_some(&self.fd, self.is_regular, rest) {
                Ok(0) | Err(Errno::AGAIN) => break,
                Ok(taken) => written += taken,
                Err(Errno::INTR) => {}
                Err(errno) => {
                    let is_torn = match written {
                        0 => was_torn,
                        _ => self.buffer[written - 1] != b'\n',
                    };
                    self.is_torn.fetch_or(is_torn, Relaxed);
                    // The line's end that was put before them ends no line of theirs.
                    let own = &rest[usize::from(was_torn && written == 0)..];
                    let lines = own.iter().filter(|byte| **byte == b'\n').count() as u64;
                    lost = Some(Lost { lines, errno });
                    written = self.buffer.len();
                }
            }
        }
        self.buffer.drain(..written);
        lost
    }
}

fn open(target: &LogTarget) -> std::io::Result<OwnedFd> {
    match &target.led_to() {
        LogTarget::Stdout => std::io::stdout().as_fd().try_clone_to_owned(),
        LogTarget::Stderr => std::io::stderr().as_fd().try_clone_to_owned(),
        LogTarget::File(path) => open_file(path).map(OwnedFd::from),
    }
}

/// Where a file is made by this path, which is where its links lead; none where one is there.
///
/// # Errors
/// It can be neither opened nor made, as a link that leads to itself.
fn place_to_make(path: &Path) -> std::io::Result<Option<PathBuf>> {
    match rustix::fs::stat(path) {
        Ok(_) => return Ok(None),
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    Ok(Some(links::end(path)?))
}

fn open_file(path: &Path) -> std::io::Result<File> {
    // A named pipe without a reader is refused instead of waited for.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let opened =
        OpenOptions::new().append(true).create(true).mode(MODE).custom_flags(flags).open(path);
    opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NXIO) => without_reader(path, error),
        _ => error,
    })
}

/// What ENXIO means for a log, by what stands there (`open(2)`).
fn without_reader(path: &Path, error: std::io::Error) -> std::io::Error {
    let is = |kind| {
        let stat = rustix::fs::stat(path);
        stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == kind)
    };
    if is(FileType::Fifo) {
        return std::io::Error::other("no program reads this named pipe; start its reader first");
    }
    if is(FileType::Socket) {
        return std::io::Error::other(
            "this is a socket; expected a file, a named pipe or a device",
        );
    }
    error
}

fn is_regular(fd: &OwnedFd) -> bool {
    let stat = rustix::fs::fstat(fd);
    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
}

/// Whether a file was emptied meanwhile.
fn is_empty(fd: &OwnedFd) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|stat| stat.st_size == 0)
}

/// Writes the front of `bytes`; nothing when the reader has no room.
fn write_some(fd: &OwnedFd, is_regular: bool, bytes: &[u8]) -> rustix::io::Result<usize> {
    if is_regular {
        return rustix::io::write(fd, bytes);
    }
    // A stream of the process shares its flags with other processes, so it stays blocking: it is
    // asked first, and given no more than a ready pipe takes at once.
    let mut ready = [PollFd::new(fd, PollFlags::OUT)];
    if poll(&mut ready, Some(&Timespec::default()))? == 0 {
        return Ok(0);
    }
    rustix::io::write(fd, piece(bytes))
}

/// What a pipe takes at once, and of that whole lines: other loops write to it in between.
fn piece(bytes: &[u8]) -> &[u8] {
    let most = &bytes[..bytes.len().min(PIPE_BYTES)];
    let lines = most.iter().rposition(|byte| *byte == b'\n');
    lines.map_or(most, |end| &most[..=end])
}

/// Where all parts of a server report what goes wrong. From any thread.
#[derive(Debug)]
pub(crate) struct ErrorLog {
    /// Word of the command line that started it.
    command: &'static str,
    level: LogLevel,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pending: String,
    lost: u64,
    quotas: [Quota; Event::COUNT],
}

/// One kind of message in the minute that began with its first line.
#[derive(Clone, Copy, Debug, Default)]
struct Quota {
    began_s: u64,
    written: u32,
    more: u64,
}

impl Default for ErrorLog {
    /// Errors only.
    fn default() -> Self {
        Self::of_command("serve", LogLevel::Error)
    }
}

impl ErrorLog {
    pub(super) fn of_command(command: &'static str, level: LogLevel) -> Self {
        Self { command, level, state: Mutex::default() }
    }

    /// Reports `event` at this second since 1970; `text` is made only when it is written.
    pub(crate) fn report(&self, event: Event, unix_s: u64, text: impl FnOnce() -> String) {
        if event.level() > self.level {
            return;
        }
        let mut state = self.state();
        let quota = &mut state.quotas[event as usize];
        if quota.written == 0 {
            quota.began_s = unix_s;
        }
        if quota.written == event.rule().1 {
            quota.more += 1;
            return;
        }
        quota.written += 1;
        state.add(self.command, event.level(), unix_s, &text());
    }

    /// Ends the minutes that are over, all of them when the server ends.
    fn end_minutes(&self, unix_s: u64, is_end: bool) {
        let mut state = self.state();
        for event in Event::ALL {
            let quota = &mut state.quotas[event as usize];
            // A clock that was set back begins the minute anew.
            let is_over = is_end || unix_s.abs_diff(quota.began_s) >= MINUTE_S;
            if quota.written > 0 && is_over {
                let more = std::mem::take(quota).more;
                if more > 0 {
                    let text = format!("{more} more like this ({})", event.rule().2);
                    state.add(self.command, event.level(), unix_s, &text);
                }
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics under this lock")
    }
}

impl State {
    fn add(&mut self, command: &str, level: LogLevel, unix_s: u64, text: &str) {
        if self.pending.len() >= PENDING_BYTES_MAX {
            self.lost += 1;
            return;
        }
        let second = i64::try_from(unix_s).unwrap_or(0);
        let time = jiff::Timestamp::from_second(second).unwrap_or_default();
        let time = time.strftime("%Y-%m-%dT%H:%M:%SZ");
        let level = level.name();
        write!(self.pending, "{time} pollux {command}: {level}: ")
            .expect("a string takes everything");
        // Nothing of a client can begin a line or move the cursor.
        let plain = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
        self.pending.extend(plain.take(TEXT_CHARS_MAX));
        self.pending.push('\n');
    }
}

/// Writes the lines of an [`ErrorLog`]; one thread has it.
#[derive(Debug)]
pub(crate) struct ErrorWriter {
    sink: Sink,
    lost: u64,
}

impl ErrorWriter {
    /// Opens the file or stream.
    ///
    /// # Errors
    /// [`ServerError::Log`].
    pub(crate) fn open(target: &LogTarget) -> Result<Self, ServerError> {
        let failed = |cause| ServerError::Log { log: "error", path: target.path(), cause };
        Ok(Self { sink: Sink::open(target, Arc::default()).map_err(failed)?, lost: 0 })
    }

    /// Writes what was reported, as far as that needs no waiting.
    pub(crate) fn write(&mut self, log: &ErrorLog, unix_s: u64, is_end: bool) {
        log.end_minutes(unix_s, is_end);
        let lines = {
            let mut state = log.state();
            self.lost += std::mem::take(&mut state.lost);
            if self.lost > 0 && self.sink.buffer.is_empty() {
                let lost = std::mem::take(&mut self.lost);
                let lines = if lost == 1 {
                    "1 line of this log was"
                } else {
                    &*format!("{lost} lines of this log were")
                };
                let text = format!("{lines} lost: it could not be written");
                state.add(log.command, LogLevel::Error, unix_s, &text);
            }
            std::mem::take(&mut state.pending)
        };
        let before = self.sink.buffer.len();
        self.sink.buffer.extend_from_slice(lines.as_bytes());
        if !self.sink.keep(before) {
            self.lost += lines.lines().count() as u64;
        }
        self.lost += self.sink.flush().map_or(0, |lost| lost.lines);
    }

    /// Opens the file again, after it was renamed perhaps.
    ///
    /// # Errors
    /// Why not, and what to do.
    pub(crate) fn reopen(&mut self) -> Result<(), String> {
        self.sink.reopen()
    }
}

/// The second since 1970.
pub(crate) fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A kind of message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// There are as many connections as there may be.
    ConnectionsFull,
    /// There is room for connections again.
    ConnectionsFree,
    /// An accept failed, and the listener waits.
    AcceptPaused,
    /// No descriptor or memory was left for a file: 503.
    FileRefused,
    /// A file or folder could not be read: 500.
    FileFailed,
    /// Another folder stands in the place of the served one.
    FolderReplaced,
    /// No folder that can be served stands in its place.
    FolderMissed,
    /// Lines of the access log were lost.
    AccessLogLost,
    /// A log could not be opened again.
    ReopenFailed,
    /// New settings or a new certificate can't be used.
    ReloadFailed,
    /// Clients will not like a certificate that is shown.
    Certificate,
    /// A client speaks TLS.
    TlsSpoken,
    /// Bytes that are not a request.
    RequestRefused,
    /// No connection to a backend came about.
    BackendLost,
    /// A backend answered wrongly, or not in time.
    BackendFailed,
    /// A backend came up or went down.
    BackendHealth,
    /// What the server gave up at its start.
    Sandbox,
    /// What the server does by a signal.
    Signal,
    /// A signal that does nothing, though its sender expects something.
    SignalIgnored,
}

impl Event {
    /// All of them, in order.
    pub(super) const ALL: [Self; 19] = [
        Self::ConnectionsFull,
        Self::ConnectionsFree,
        Self::AcceptPaused,
        Self::FileRefused,
        Self::FileFailed,
        Self::FolderReplaced,
        Self::FolderMissed,
        Self::AccessLogLost,
        Self::ReopenFailed,
        Self::ReloadFailed,
        Self::Certificate,
        Self::TlsSpoken,
        Self::RequestRefused,
        Self::BackendLost,
        Self::BackendFailed,
        Self::BackendHealth,
        Self::Sandbox,
        Self::Signal,
        Self::SignalIgnored,
    ];
    /// How many there are.
    pub(super) const COUNT: usize = Self::ALL.len();

    /// From which level on it is written.
    const fn level(self) -> LogLevel {
        self.rule().0
    }

    /// Its level; how often it is written in a minute, as the rest is counted; what the messages are about,
    /// for the line that counts those that were not written.
    const fn rule(self) -> (LogLevel, u32, &'static str) {
        match self {
            Self::ConnectionsFull => (LogLevel::Warn, 1, "full connections"),
            Self::ConnectionsFree => (LogLevel::Info, 1, "free connections"),
            Self::AcceptPaused => (LogLevel::Warn, 1, "pauses of a listener"),
            Self::FileRefused => (LogLevel::Warn, 5, "files without a descriptor"),
            Self::FileFailed => (LogLevel::Error, 5, "files that failed"),
            Self::FolderReplaced => (LogLevel::Info, 5, "folders that were replaced"),
            Self::FolderMissed => (LogLevel::Error, 5, "folders that are not there"),
            // The reporter reports them once a minute.
            Self::AccessLogLost => (LogLevel::Warn, 2, "lost lines of the access log"),
            // A signal was sent for each, and its sender waits for the outcome.
            Self::ReopenFailed => (LogLevel::Error, 60, "logs that could not be opened again"),
            Self::ReloadFailed => (LogLevel::Error, 60, "reloads that failed"),
            Self::Certificate => (LogLevel::Warn, 60, "certificates that clients refuse"),
            Self::TlsSpoken => (LogLevel::Warn, 1, "clients that speak TLS"),
            Self::RequestRefused => (LogLevel::Debug, 60, "refused requests"),
            Self::BackendLost => (LogLevel::Warn, 5, "connects to backends that failed"),
            Self::BackendFailed => (LogLevel::Warn, 5, "answers of backends that failed"),
            Self::BackendHealth => (LogLevel::Warn, 60, "backends that came up or went down"),
            Self::Sandbox => (LogLevel::Info, 1, "the sandbox"),
            Self::Signal => (LogLevel::Info, 60, "signals"),
            Self::SignalIgnored => (LogLevel::Warn, 5, "ignored signals"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON_S: u64 = 784_111_777;

    fn written(log: &ErrorLog, unix_s: u64, is_end: bool) -> Vec<String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let mut writer = ErrorWriter::open(&LogTarget::File(path.clone())).expect("opened");
        writer.write(log, unix_s, is_end);
        let text = std::fs::read_to_string(path).expect("written");
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_storm_of_one_message_is_a_few_lines_and_a_count() {
        let log = ErrorLog::of_command("serve", LogLevel::Warn);
        for number in 0..1000 {
            log.report(Event::FileRefused, NOON_S, || format!("file {number}"));
        }
        let lines = written(&log, NOON_S + 1, false);
        assert_eq!(lines.len(), 5, "{lines:?}");
        assert_eq!(lines[0], "1994-11-06T08:49:37Z pollux serve: warn: file 0");
        let lines = written(&log, NOON_S + MINUTE_S, false);
        let expected = "995 more like this (files without a descriptor)";
        assert!(lines.len() == 1 && lines[0].ends_with(expected), "{lines:?}");
        log.report(Event::FileRefused, NOON_S + MINUTE_S, || "again".to_owned());
        assert_eq!(written(&log, NOON_S + MINUTE_S, true).len(), 1);
    }

    #[test]
    fn each_of_many_failed_reloads_is_reported_at_once() {
        let log = ErrorLog::of_command("serve", LogLevel::Error);
        for number in 0..20 {
            log.report(Event::ReloadFailed, NOON_S + number, || format!("mistake {number}"));
            let lines = written(&log, NOON_S + number, false);
            assert!(
                lines.len() == 1 && lines[0].ends_with(&format!("mistake {number}")),
                "{lines:?}"
            );
        }
    }

    #[test]
    fn what_is_below_the_level_is_not_even_made() {
        let log = ErrorLog::of_command("serve", LogLevel::Warn);
        log.report(Event::Signal, NOON_S, || unreachable!("below the level"));
        log.report(Event::FileFailed, NOON_S, || "seen".to_owned());
        assert_eq!(written(&log, NOON_S, true).len(), 1);
    }

    #[test]
    fn no_text_of_a_client_makes_a_line() {
        let log = ErrorLog::of_command("serve", LogLevel::Warn);
        log.report(Event::FileFailed, NOON_S, || format!("/a\n\x1b[2J{}", "x".repeat(9000)));
        let lines = written(&log, NOON_S, true);
        assert!(lines.len() == 1 && !lines[0].contains('\x1b'), "{lines:?}");
        assert!(lines[0].len() < 2 * TEXT_CHARS_MAX);
    }

    #[test]
    fn lines_lost_to_a_full_disk_are_reported_when_there_is_space_again() {
        let log = ErrorLog::of_command("serve", LogLevel::Warn);
        let mut writer = ErrorWriter::open(&LogTarget::File("/dev/full".into())).expect("opened");
        log.report(Event::FileFailed, NOON_S, || "one".to_owned());
        writer.write(&log, NOON_S, false);
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let target = LogTarget::File(path.clone());
        writer.sink = Sink::open(&target, Arc::default()).expect("opened");
        writer.write(&log, NOON_S, false);
        let text = std::fs::read_to_string(path).expect("written");
        assert!(text.contains("error: 1 line of this log was lost"), "{text}");
    }
}
