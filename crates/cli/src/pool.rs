//! `pollux pool` and `pollux fld`: handed over to `pollux-pool`, a program of its own, as git does
//! with its commands.
//!
//! That program takes the place of this process, so its exit code and the signals that it gets are
//! its own. It is looked for beside this program's file first, then in PATH.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use pollux_doctor::host::programs::{find_beside, own_folder};

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
    let program = find_beside(PROGRAM)?;
    let error = Command::new(&program).args(words).exec();
    Some(Failure::failed(format!("{} could not be run: {error}", program.display())))
}

/// What is said where the program is needed and missing.
pub(crate) fn missing() -> Failure {
    let own = own_folder().map_or_else(
        || "beside this program".to_owned(),
        |folder| format!("in {}, where this program is,", folder.display()),
    );
    Failure::failed(format!(
        "{PROGRAM}, the program of `pollux pool` and `pollux fld`, was found neither {own} nor in \
         PATH; in the sources of pollux, build it with `cargo build --release -p {PROGRAM}`, or install \
         both with `cargo xtask install --prefix DIR`"
    ))
}
