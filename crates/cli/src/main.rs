//! The `pollux` command: flags in, exit codes out.
//!
//! Everything that it does is in the crates below; here flags are read, progress is drawn and
//! the outcome becomes an exit code. What its modules call `crate::output` is
//! that of `pollux_settings::command`.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

use clap::FromArgMatches;
use pollux_engine::Signals;
use pollux_settings::command::program::{self, TextCommand};
use pollux_settings::command::{foreign, help, output};

use args::{Cli, Command};

mod args;
mod doctor;
mod lab;
mod load;
mod password;
mod pool;
mod process_number;
mod progress;
mod run;
mod servers;

fn main() -> ExitCode {
    let internal = lab::processes::find_internal(std::env::args_os().skip(1));
    program::ended(internal.map_or_else(handed_over_or_run, |run| run()))
}

/// `pollux pool` is another program's, if that is there.
fn handed_over_or_run() -> Result<ExitCode, output::Failure> {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let early = servers::early_signals(&words)?;
    pool::hand_over(&words).map_or_else(|| parsed_and_run(early), Err)
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
        Command::Pool(_) | Command::Fld(_) => Err(pool::is_missing()),
        Command::Serve(command) => servers::serve(&command, early),
        Command::Proxy(flags) => servers::proxy(&flags, early),
        Command::Run(flags) => run::run(&flags),
        Command::Doctor(flags) => doctor::run(&flags),
        Command::Text(TextCommand::Completions { shell }) => {
            help::completions(shell, pool::with_its_commands(args::command()), "pollux")
        }
        Command::Text(TextCommand::Man { folder }) => man(&folder),
    }
}

/// Writes the manual pages: those of this program, and of the one that it hands words over to.
fn man(folder: &Path) -> Result<ExitCode, output::Failure> {
    let mut command = args::command();
    command.build();
    let mut pages = help::manual_pages(&command, args::sections);
    pages.retain(|(name, _)| !pool::has_page(name));
    help::write_pages(folder, &pages)?;
    pool::write_pages(folder)?;
    output::remark(&format!("manual pages written to {}", folder.display()));
    Ok(ExitCode::SUCCESS)
}
