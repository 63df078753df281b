//! What comes from another process: standard output, which the thread that waits for it reads, the lines of standard
//! error, which a thread of their own reads to the end; and waiting for a descriptor in slices, so that an interruption
//! from outside is noticed.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, PipeReader, Read as _};
use std::os::fd::AsFd;
use std::process::ChildStdout;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::Error;

/// Bytes of standard error, from the first, that are kept as lines.
const SAID_BYTES_MAX: usize = 1 << 20;
/// Lines of its last words, and how much of each.
const LAST_LINES: usize = 3;
const LAST_LINE_CHARS_MAX: usize = 4096;
/// Longest line of standard error; the rest of it counts as another.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// How long an interruption from outside may go unnoticed.
pub(crate) const SLICE: Duration = Duration::from_millis(50);

/// Standard output, read by the thread that waits for it.
#[derive(Debug)]
pub(crate) struct Output {
    /// None at its end.
    pub(crate) from: Option<ChildStdout>,
    pub(crate) read: Vec<u8>,
    pub(crate) is_over: bool,
}

impl Output {
    /// The next whole line that has been read, or what was left at the end.
    pub(crate) fn next_line(&mut self) -> Option<String> {
        let end = self.read.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        let rest = || (self.from.is_none() && !self.read.is_empty()).then_some(self.read.len());
        let line: Vec<u8> = self.read.drain(..end.or_else(rest)?).collect();
        Some(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    pub(crate) fn read_on(&mut self) {
        let mut part = [0; 4096];
        match self.from.as_mut().map_or(Ok(0), |from| from.read(&mut part)) {
            Ok(read @ 1..) => self.read.extend_from_slice(&part[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => (self.from, self.is_over) = (None, true),
        }
    }

    pub(crate) fn keep_last(&mut self, bytes_max: usize) {
        let surplus = self.read.len().saturating_sub(bytes_max);
        self.read.drain(..surplus);
    }
}

/// The last that a process said on standard error, and how much it was in all.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) last: VecDeque<String>,
    pub(crate) bytes: u64,
}

/// The lines of standard error as they come, and the last of them.
pub(crate) fn listen(mut said: PipeReader, last: Arc<Mutex<Said>>) -> Receiver<String> {
    let (sender, lines) = channel();
    // Ends with the process; all is read, so that the process never waits for a reader.
    std::thread::spawn(move || {
        let mut said = BufReader::new(&mut said);
        let mut line = Vec::new();
        let mut kept = 0;
        while let Ok(1..) = said.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            let line_bytes = line.len() as u64;
            let text =
                String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(&line)).into_owned();
            line.clear();
            let mut said = last.lock().unwrap_or_else(PoisonError::into_inner);
            said.bytes += line_bytes;
            said.last.push_back(text.chars().take(LAST_LINE_CHARS_MAX).collect());
            let over = said.last.len().saturating_sub(LAST_LINES);
            said.last.drain(..over);
            drop(said);
            kept += text.len() + 1;
            if kept <= SAID_BYTES_MAX {
                // The receiver goes away with the process.
                let _ = sender.send(text);
            }
        }
    });
    lines
}

/// Waits until there is something to read, or the end; for at most `time`, a fraction of a second.
pub(crate) fn is_ready(fd: &impl AsFd, time: Duration) -> Result<bool, Error> {
    let time = Timespec::try_from(time).expect("a fraction of a second");
    match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&time)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(Error::io("poll")(errno)),
    }
}

/// The same for any time, until it is interrupted from outside.
pub(crate) fn is_ready_within(
    fd: &impl AsFd,
    time: Duration,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<bool, Error> {
    let start = Instant::now();
    loop {
        if is_interrupted() {
            return Err(Error::Interrupted);
        }
        let left = time.saturating_sub(start.elapsed());
        if is_ready(fd, left.min(SLICE))? {
            return Ok(true);
        }
        if left.is_zero() {
            return Ok(false);
        }
    }
}
