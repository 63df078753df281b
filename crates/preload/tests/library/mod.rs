//! Where cargo has built the library, and a memory to count in.

use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::Command;

use pollux_loop_stats::{Region, VARIABLE, WORDS};
use pollux_sys::shared::SharedWords;

/// The library as cargo built it for the tests of this package.
pub(crate) fn built() -> PathBuf {
    let tests = std::env::current_exe().expect("the own path");
    let folder = tests.parent().expect("a folder");
    let library = folder.join("libpollux_preload.so");
    assert!(library.exists(), "{}: cargo builds it with this test", library.display());
    library
}

/// A memory that a program counts in as long as this lives.
pub(crate) struct Memory(SharedWords);

impl Memory {
    pub(crate) fn new() -> Self {
        let words = SharedWords::create(WORDS).expect("memory");
        Region::begin(&words).expect("as many words as it has");
        Self(words)
    }

    /// Has a program count here.
    pub(crate) fn count(&self, command: &mut Command) {
        let fd = self.0.as_fd().as_raw_fd();
        let path = Path::new("/proc").join(std::process::id().to_string()).join(format!("fd/{fd}"));
        command.env(VARIABLE, path);
    }
}
