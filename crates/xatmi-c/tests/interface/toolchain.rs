//! A prefix with headers and library, and C programs that are built with it and run.

use std::path::{Path, PathBuf};
use std::process::Command;

use pollux_testing::{Ended, Process, has};
use pollux_xatmi_c::layout::{self, Library};
use tempfile::TempDir;

/// A compiler with all that a program needs.
pub(crate) struct Toolchain {
    compiler: &'static str,
    folder: TempDir,
}

impl Toolchain {
    /// `None`, with the reason printed, where the compiler is missing.
    pub(crate) fn of(compiler: &'static str) -> Option<Self> {
        if !has(compiler) {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let tests = std::env::current_exe().expect("the own path");
        let built = tests.parent().expect("a folder").join(layout::BUILT_NAME);
        layout::lay_out(folder.path(), &built, Library::Linked).expect("laid out");
        Some(Self { compiler, folder })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs the compiler with our headers.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        let mut command = Command::new(self.compiler);
        command.arg("-I").arg(self.path("include")).args(arguments);
        Process::run(command.current_dir(self.folder.path()))
    }

    /// Builds a program of `tests/interface` without a warning and returns its path.
    pub(crate) fn program(&self, source: &str) -> PathBuf {
        self.program_with(source, &[])
    }

    /// The same with further options.
    pub(crate) fn program_with(&self, source: &str, more: &[&str]) -> PathBuf {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interface").join(source);
        let (path, output) = (path.display().to_string(), self.path("program"));
        let lib = self.path("lib").display().to_string();
        let common = [
            "-std=c11",
            "-D_POSIX_C_SOURCE=200809L",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-o",
            &output.display().to_string(),
            &path,
            &format!("-L{lib}"),
            &format!("-Wl,-rpath,{lib}"),
            "-lpollux_xatmi",
            "-lpthread",
        ];
        let built = self.run(&[&common[..], more].concat());
        assert!(built.status.success(), "{}", built.stderr);
        output
    }
}
