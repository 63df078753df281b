//! `pollux run` as a user starts it, on small programs in C whose loops are known to the last call.
//!
//! | file | what it holds the command to |
//! |---|---|
//! | `advice` | each planted fault is named with its line, and a clean program gets no advice |
//! | `attach` | a process that already runs is followed by tracepoints, with the same counts |
//! | `passing` | streams, exit codes and signals are those of the program; what is out of reach is refused |
//! | `pollers` | programs do the same on every mechanism |
//! | `servers` | installed programs answer on other mechanisms, each answer checked |
//!
//! Here they are built and run. Counts are judged, never times.

mod advice;
mod attach;
mod passing;
mod pollers;
mod servers;

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pollux_testing::skip;
use serde_json::Value;
use tempfile::TempDir;

/// Where the sources stand.
pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/run").join(name)
}

/// A program of this folder, built with these flags; nothing, with the reason printed, without a compiler.
pub(crate) fn built(name: &str, flags: &[&str]) -> Option<(TempDir, PathBuf)> {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-g", "-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]);
    let output = compiler.arg(&program).arg(source(&format!("{name}.c"))).args(flags).output();
    let Ok(output) = output else {
        skip("no compiler");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some((folder, program))
}

/// `pollux run` with these words.
pub(crate) fn run(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.arg("run").args(words).stdin(Stdio::null());
    command
}

/// What was printed and written.
pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// The figures of a program of this folder, run to its end.
pub(crate) fn figures(name: &str) -> Option<Value> {
    let (folder, program) = built(name, &[])?;
    let json = folder.path().join("figures.json");
    let words = ["--quiet", "--json", json.to_str()?, "--", program.to_str()?];
    let output = run(&words).output().expect("pollux starts");
    assert!(output.status.success(), "{output:?}");
    Some(read(&json, &output))
}

pub(crate) fn read(json: &Path, output: &impl Debug) -> Value {
    let read = std::fs::read_to_string(json).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    serde_json::from_str(&read).expect("JSON")
}
