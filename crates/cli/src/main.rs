//! The `pollux` command: flags in, exit codes out.
//!
//! Everything that it does is in the crates below; here flags are read, progress is drawn and
//! the outcome becomes an exit code.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

mod args;
mod axis_flags;
mod build_home;
mod build_program;
mod doctor;
mod fld;
mod lab;
mod lab_parts;
mod load;
mod output;
mod pages;
mod pool;
mod progress;
mod serve;
mod service_table;

use args::{Cli, Command};

fn main() -> ExitCode {
    if is_bridge() {
        return pool::bridge();
    }
    let cli = Cli::parse();
    let ran = match cli.command {
        Command::Lab(lab) => lab::run(*lab),
        Command::Load(flags) => load::run(&flags),
        Command::Pool(command) => pool::run(*command),
        Command::Serve(flags) => serve::run(*flags),
        Command::Doctor(flags) => doctor::run(&flags),
        Command::Fld(flags) => fld::run(&flags),
        Command::Completions { shell } => pages::completions(shell),
        Command::Man { folder } => pages::man(&folder),
    };
    match ran {
        Ok(code) => code,
        Err(failure) => {
            output::error(&failure.message);
            failure.code
        }
    }
}

/// Whether the manager of a pool started this program as a bridge.
fn is_bridge() -> bool {
    let name = std::env::args_os().next();
    let name = name.as_deref().map(std::path::Path::new).and_then(std::path::Path::file_name);
    name.is_some_and(|name| name == pollux_xatmi::pool::BRIDGE_PROGRAM)
}
