//! What a program writes: standard output, which the thread that waits for it reads, and the lines of standard error,
//! which a thread of their own reads to the end.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, PipeReader, Read as _};
use std::process::ChildStdout;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of standard error, from the first, that are kept as lines.
const SAID_BYTES_MAX: usize = 1 << 20;
/// Lines of its last words, and how much of each.
const LAST_LINES: usize = 3;
const LAST_LINE_CHARS_MAX: usize = 4096;
/// Longest line of standard error; the rest of it counts as another.
const LINE_BYTES_MAX: u64 = 1 << 20;

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

    /// Reads once.
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

/// The lines of standard error as they come, and the last of them.
pub(crate) fn listen(mut said: PipeReader, last: Arc<Mutex<VecDeque<String>>>) -> Receiver<String> {
    let (sender, lines) = channel();
    // Ends with the process; all is read, so that the process never waits for a reader.
    std::thread::spawn(move || {
        let mut said = BufReader::new(&mut said);
        let (mut line, mut kept) = (Vec::new(), 0);
        while let Ok(1..) = said.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            let text =
                String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(&line)).into_owned();
            line.clear();
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            last.push_back(text.chars().take(LAST_LINE_CHARS_MAX).collect());
            let over = last.len().saturating_sub(LAST_LINES);
            last.drain(..over);
            drop(last);
            kept += text.len() + 1;
            if kept <= SAID_BYTES_MAX {
                // The receiver goes away with the process.
                let _ = sender.send(text);
            }
        }
    });
    lines
}
