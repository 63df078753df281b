//! The manager's log: one line for each thing that happened, with the time in UTC.
//!
//! A log that can't be written any more (a full disk) must not end the pool: the line is lost.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Where the manager writes, and its workers without a file of their own.
#[derive(Debug)]
pub struct Log {
    file: File,
    path: Option<PathBuf>,
}

impl Log {
    /// Appends to `path`, which is made if need be.
    ///
    /// # Errors
    /// What `open(2)` gives.
    pub fn append_to(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file, path: Some(path.to_owned()) })
    }

    /// Writes to standard error.
    ///
    /// # Errors
    /// EMFILE, or standard error is closed.
    pub fn to_standard_error() -> io::Result<Self> {
        use std::os::fd::AsFd;
        let file = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        Ok(Self { file, path: None })
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
        let _ = (&self.file).write_all(format!("{now:.3} {text}\n").as_bytes());
    }
}
