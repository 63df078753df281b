//! `pollux pool` and `pollux fld`: handed over to `pollux-pool`, a program of its own, as git does
//! with its commands.
//!
//! That program takes the place of this process, so its exit code and the signals that it gets are
//! its own. It is looked for beside this program's file first, then in PATH.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{Access, access};

use crate::output::Failure;

/// The program.
const PROGRAM: &str = "pollux-pool";

/// Runs the program in the place of this one where the first of `words` is its command. Returns where
/// another one is meant, where there is no such program, and, with a failure, where it cannot be run.
pub(crate) fn hand_over(words: &[OsString]) -> Option<Failure> {
    let (first, rest) = words.split_first()?;
    let words = match first.to_str()? {
        "pool" => rest,
        "fld" => words,
        _ => return None,
    };
    let program = found()?;
    let error = Command::new(&program).args(words).exec();
    Some(Failure::failed(format!("{} could not be run: {error}", program.display())))
}

/// What is said where the program is needed and missing.
pub(crate) fn missing() -> Failure {
    let own = own_folder().map_or_else(
        || "this program".to_owned(),
        |folder| folder.join("pollux").display().to_string(),
    );
    Failure::failed(format!(
        "{PROGRAM}, the program of `pollux pool` and `pollux fld`, was found neither beside {own} nor in \
         PATH; in the sources of pollux, build it with `cargo build --release -p {PROGRAM}`, or install \
         both with `cargo xtask install --prefix DIR`"
    ))
}

fn found() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path);
    let folders = own_folder().into_iter().chain(in_path);
    // An empty folder in PATH is the current one.
    folders.map(|folder| folder.join(OsStr::new(PROGRAM))).find(|file| is_executable(file))
}

/// The folder of this program's file, whatever links led to it.
fn own_folder() -> Option<PathBuf> {
    let own = std::env::current_exe().and_then(std::fs::canonicalize).ok()?;
    own.parent().map(Path::to_owned)
}

fn is_executable(file: &Path) -> bool {
    file.is_file() && access(file, Access::EXEC_OK).is_ok()
}
