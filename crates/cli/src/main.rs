//! The `pollux` command: flags in, exit codes out.
//!
//! Everything that it does is in the crates below; here flags are read, progress is drawn and
//! the outcome becomes an exit code.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use clap::FromArgMatches;
use pollux_settings::command::{foreign, help, output};
use pollux_doctor::host::{find_program_beside, own_folder};
use pollux_engine::Signals;

use args::{Cli, Command};

mod args;
mod doctor;
mod lab;
mod load;
mod process_number;
mod progress;
mod run;
mod servers;

fn main() -> ExitCode {
    let part = lab::named(std::env::args_os().skip(1));
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
    let early = servers::early_signals(&words)?;
    hand_over(&words).map_or_else(|| parsed_and_run(early), Err)
}

/// Runs the command, or prints the help or the error that the command line leads to.
fn parsed_and_run(early: Option<Signals>) -> Result<ExitCode, output::Failure> {
    let mut command = args::command();
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(why) = foreign::misread(&command, &words) {
        return Err(output::Failure::usage(why));
    }
    let matches = command.try_get_matches_from_mut(std::env::args_os());
    match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => run(cli.command, early),
        Err(error) => output::answer(error, &mut command),
    }
}

fn run(command: Command, early: Option<Signals>) -> Result<ExitCode, output::Failure> {
    match command {
        Command::Lab(lab) => lab::run(*lab),
        Command::Load(command) => load::run(&command),
        Command::Pool(_) | Command::Fld(_) => Err(pool_is_missing()),
        Command::Serve(command) => servers::serve(&command, early),
        Command::Proxy(flags) => servers::proxy(&flags, early),
        Command::Run(flags) => run::run(&flags),
        Command::Doctor(flags) => doctor::run(&flags),
        Command::Completions { shell } => help::completions(shell, args::command(), "pollux"),
        Command::Man { folder } => help::man(&folder, args::command(), args::sections),
    }
}

/// The program of `pollux pool` and `pollux fld`, as git has them for its commands: looked for beside the file of this
/// program first, then in PATH. It takes the place of this process, so its exit code and the signals that it gets are
/// its own.
const POOL: &str = "pollux-pool";

/// Runs the program in the place of this one where the first of `words` is its command. Returns where
/// another one is meant, where there is no such program, and, with a failure, where it cannot be run.
fn hand_over(words: &[OsString]) -> Option<output::Failure> {
    let (first, rest) = words.split_first()?;
    let words = match first.to_str()? {
        "pool" => rest,
        "fld" => words,
        _ => return None,
    };
    let program = find_program_beside(POOL)?;
    let mut command = std::process::Command::new(&program);
    if first == "fld" {
        // Its help and its errors show the command as it was called.
        command.arg0("pollux");
    }
    let error = command.args(words).exec();
    Some(output::Failure::failed(format!("{} could not be run: {error}", program.display())))
}

/// What is said where the program is needed and missing.
fn pool_is_missing() -> output::Failure {
    let own = own_folder().map_or_else(
        || "beside this program".to_owned(),
        |folder| format!("in {}, where this program is,", folder.display()),
    );
    output::Failure::failed(format!(
        "{POOL}, the program of `pollux pool` and `pollux fld`, was found neither {own} nor in \
         PATH; in the sources of pollux, build it with `cargo build --release -p {POOL}`, or install \
         both with `cargo xtask install --prefix DIR`"
    ))
}
