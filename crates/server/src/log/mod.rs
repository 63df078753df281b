//! What a server writes down: its answers (`access`), and what goes wrong with it (`error`).
//!
//! Both logs write their lines by a [`Sink`], which never waits for a file or a stream. What cannot be
//! written at once stays in the buffer; what does not fit the buffer, or fails, is lost, and the number of
//! its lines is returned. A disk that runs full takes a part of a line: the next one then begins behind a
//! line's end of its own, also when another loop writes it.

mod access;
mod error;

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::ServerError;
use crate::config::{LogLevel, LogTarget};
use crate::system::is_folder_writable;

pub(crate) use access::{AccessLog, Entry, Proxied};
pub(crate) use error::{ErrorLog, ErrorWriter, Event, unix_s};

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
        Self::of("serve", level)
    }

    /// Those of `pollux COMMAND`.
    pub(crate) fn of(command: &'static str, level: LogLevel) -> Self {
        let errors = Arc::new(ErrorLog::of(command, level));
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

/// Most that waits for a slow reader; a line that does not fit is lost.
const BUFFER_BYTES_MAX: usize = 256 * 1024;
/// A pipe that is ready takes so much without waiting (POSIX: PIPE_BUF).
const PIPE_BYTES: usize = 4096;
/// Of a log that is made: readable for the group, secret to the rest.
const MODE: u32 = 0o640;

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
        match target {
            LogTarget::File(path) if !path.exists() => is_folder_writable(path),
            target => open(target).map(drop),
        }
    }

    /// Opens the target again. The old file is kept when that fails: a line there beats none.
    fn reopen(&mut self) -> std::io::Result<()> {
        let fd = open(&self.target)?;
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
    match target {
        LogTarget::Stdout => std::io::stdout().as_fd().try_clone_to_owned(),
        LogTarget::Stderr => std::io::stderr().as_fd().try_clone_to_owned(),
        LogTarget::File(path) => open_file(path).map(OwnedFd::from),
    }
}

fn open_file(path: &Path) -> std::io::Result<File> {
    // A named pipe without a reader is refused instead of waited for.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new().append(true).create(true).mode(MODE).custom_flags(flags).open(path)
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
