//! The `pollux` command: flags in, exit codes out.
//!
//! Everything that it does is in the crates below; here flags are read, progress is drawn and
//! the outcome becomes an exit code.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::FromArgMatches;

mod args;
mod demands;
mod doctor;
mod lab;
mod lab_parts;
mod load;
mod mistakes;
mod pool;
mod progress;
mod proxy;
mod run;
mod serve;
mod values;

use args::{Cli, Command};
use pollux_command::{output, pages};

fn main() -> ExitCode {
    let part = lab_parts::named(std::env::args_os().skip(1));
    let ran = part.map_or_else(handed_over_or_run, |run| run());
    match ran {
        Ok(code) => code,
        Err(failure) => {
            output::error(&failure.message);
            failure.code
        }
    }
}

/// `pollux pool` is another program's, if that is there.
fn handed_over_or_run() -> Result<ExitCode, output::Failure> {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    pool::hand_over(&words).map_or_else(parsed_and_run, Err)
}

/// Does what the command line says, or what is due where it is wrong or asks for help.
fn parsed_and_run() -> Result<ExitCode, output::Failure> {
    let mut command = args::command();
    let matches = command.try_get_matches_from_mut(std::env::args_os());
    match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => run(cli.command),
        Err(error) => pollux_command::mistakes::answer(error, &mut command, &mistakes::ELSEWHERE),
    }
}

fn run(command: Command) -> Result<ExitCode, output::Failure> {
    match command {
        Command::Lab(lab) => lab::run(*lab),
        Command::Load(command) => load::run(&command),
        Command::Pool(_) | Command::Fld(_) => Err(pool::missing()),
        Command::Serve(command) => serve::run(&command),
        Command::Proxy(flags) => proxy::run(&flags),
        Command::Run(flags) => run::run(&flags),
        Command::Doctor(flags) => doctor::run(&flags),
        Command::Completions { shell } => pages::completions(shell, args::command(), "pollux"),
        Command::Man { folder } => pages::man(&folder, args::command(), args::sections),
    }
}
