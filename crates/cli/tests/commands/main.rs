//! `pollux` as a user calls it: help, manual pages, completions, wrong command lines, and the commands that
//! only look and print.
//!
//! | file | subject |
//! |---|---|
//! | `mistakes` | what a wrong command line is answered with, and what a shell completes |
//! | `printed` | manual pages beside `--help`; summaries through a pipe and in the letters of the locale |
//! | `doctor` | `pollux doctor` on this machine, whatever it is |
//! | `pool` | `pollux pool` and `pollux fld` as they find and run `pollux-pool` |

mod doctor;
mod mistakes;
mod pool;
mod printed;

use std::process::{Command, Output, Stdio};

/// `pollux` with these words, to its end.
fn pollux(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.args(words).stdin(Stdio::null()).output().expect("pollux runs")
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("UTF-8")
}
