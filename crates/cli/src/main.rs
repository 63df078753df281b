//! The `pollux` command: flags in, exit codes out.
//!
//! Everything that it does is in the crates below; here flags are read, progress is drawn and
//! the outcome becomes an exit code.
#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::FromArgMatches;

mod args;
mod build_home;
mod build_program;
mod demands;
mod doctor;
mod fld;
mod help;
mod lab;
mod lab_parts;
mod load;
mod mistakes;
mod output;
mod pages;
mod pool;
mod progress;
mod proxy;
mod serve;
mod service_table;
mod values;

use args::{Cli, Command};

fn main() -> ExitCode {
    let ran = match started_as().as_deref().and_then(OsStr::to_str) {
        Some(pollux_xatmi::pool::BRIDGE_PROGRAM) => return pool::bridge(),
        Some(pollux_lab::experiments::herd::bank::PROGRAM) => lab_parts::herd_server(),
        _ => lab_parts::named(std::env::args_os().skip(1)).map_or_else(parsed_and_run, |run| run()),
    };
    match ran {
        Ok(code) => code,
        Err(failure) => {
            output::error(&failure.message);
            failure.code
        }
    }
}

/// Does what the command line says, or what is due where it is wrong or asks for help.
fn parsed_and_run() -> Result<ExitCode, output::Failure> {
    let mut command = args::command();
    let matches = command.try_get_matches_from_mut(std::env::args_os());
    match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => run(cli.command),
        Err(error) => mistakes::answer(error, &mut command),
    }
}

fn run(command: Command) -> Result<ExitCode, output::Failure> {
    match command {
        Command::Lab(lab) => lab::run(*lab),
        Command::Load(flags) => load::run(&flags),
        Command::Pool(command) => pool::run(*command),
        Command::Serve(flags) => serve::run(&flags),
        Command::Proxy(flags) => proxy::run(&flags),
        Command::Doctor(flags) => doctor::run(&flags),
        Command::Fld(flags) => fld::run(&flags),
        Command::Completions { shell } => pages::completions(shell),
        Command::Man { folder } => pages::man(&folder),
    }
}

/// The name that this program was started under: the manager of a pool has others for it.
fn started_as() -> Option<OsString> {
    let path = std::env::args_os().next()?;
    Path::new(&path).file_name().map(OsStr::to_owned)
}
