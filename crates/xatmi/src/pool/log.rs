//! The manager's log: one line for each event, with the time in UTC.
//!
//! A log that can't be written any more (a full disk, the limit on the size of files) must not end
//! the pool: lines are lost and counted, and the next line that can be written reports how many.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Where the manager writes, and its workers without a file of their own.
#[derive(Debug)]
pub struct Log {
    file: File,
    path: Option<PathBuf>,
    /// Lines that could not be written: all, and those of which the log does not speak yet.
    lost: Cell<u64>,
    unreported: Cell<u64>,
}

impl Log {
    /// Appends to `path`, which is made if need be.
    ///
    /// # Errors
    /// What `open(2)` gives.
    pub fn append_to(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self::to(file, Some(path.to_owned())))
    }

    /// Writes to standard error.
    ///
    /// # Errors
    /// EMFILE, or standard error is closed.
    pub fn to_standard_error() -> io::Result<Self> {
        use std::os::fd::AsFd;
        let file = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        Ok(Self::to(file, None))
    }

    fn to(file: File, path: Option<PathBuf>) -> Self {
        Self { file, path, lost: Cell::default(), unreported: Cell::default() }
    }

    /// The file, unless it is standard error.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// A handle for the output of a worker.
    pub(super) fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    pub(super) fn line(&self, text: &str) {
        let now = jiff::Timestamp::now();
        let lost = match self.unreported.get() {
            0 => String::new(),
            lost => format!("{now:.3} {lost} lines before this one could not be written\n"),
        };
        match (&self.file).write_all(format!("{lost}{now:.3} {text}\n").as_bytes()) {
            Ok(()) => self.unreported.set(0),
            Err(_) => {
                self.unreported.update(|lost| lost + 1);
                self.lost.update(|lost| lost + 1);
            }
        }
    }

    /// Lines that could not be written so far.
    pub(super) fn lost(&self) -> u64 {
        self.lost.get()
    }
}
