//! The `pollux` command: flags in, exit codes out.
//!
//! Everything that it does is in the crates below; here flags are read, progress is drawn and
//! the outcome becomes an exit code.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::FromArgMatches;
use pollux_command::mistakes::Elsewhere;
use pollux_command::{output, pages};

use args::{Cli, Command};

mod args;
mod doctor;
mod lab;
mod load;
mod pool;
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
    pool::hand_over(&words).map_or_else(parsed_and_run, Err)
}

/// Does what the command line says, or what is due where it is wrong or asks for help.
fn parsed_and_run() -> Result<ExitCode, output::Failure> {
    let mut command = args::command();
    let matches = command.try_get_matches_from_mut(std::env::args_os());
    match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => run(cli.command),
        Err(error) => pollux_command::mistakes::answer(error, &mut command, &ELSEWHERE),
    }
}

fn run(command: Command) -> Result<ExitCode, output::Failure> {
    match command {
        Command::Lab(lab) => lab::run(*lab),
        Command::Load(command) => load::run(&command),
        Command::Pool(_) | Command::Fld(_) => Err(pool::missing()),
        Command::Serve(command) => servers::serve(&command),
        Command::Proxy(flags) => servers::proxy(&flags),
        Command::Run(flags) => run::run(&flags),
        Command::Doctor(flags) => doctor::run(&flags),
        Command::Completions { shell } => pages::completions(shell, args::command(), "pollux"),
        Command::Man { folder } => pages::man(&folder, args::command(), args::sections),
    }
}

/// Flags of other programs and of earlier versions that people try, by command, with what they mean here.
const ELSEWHERE: [Elsewhere; 11] = [
    elsewhere("pollux serve", "--port", IN_LISTEN),
    elsewhere("pollux serve", "--bind", IN_LISTEN),
    elsewhere("pollux serve", "--host", IN_LISTEN),
    elsewhere("pollux serve", "--tls", "TLS takes a certificate: --cert FILE --key FILE"),
    elsewhere("pollux load", "--tls", "TLS is asked for by the URL: https://HOST/"),
    elsewhere("pollux load", "--port", "the port is part of the URL, as in http://127.0.0.1:8080/"),
    elsewhere("pollux load", "--rps", "the requests per second are --rate"),
    elsewhere("pollux lab", "--poller", "mechanisms are arms, as in --arm epoll,uring"),
    elsewhere("pollux lab", "--wait", "ways of waiting are arms, as in --arm exclusive,epoll"),
    elsewhere("pollux lab", "--peer", "other systems are arms, as in --arm epoll,nginx"),
    elsewhere("pollux lab", "--binary", "builds are arms, as in --arm old=pollux:PATH"),
];

const IN_LISTEN: &str = "the port is part of --listen, as in --listen 127.0.0.1:8080";

const fn elsewhere(command: &'static str, flag: &'static str, hint: &'static str) -> Elsewhere {
    Elsewhere { command, flag, hint }
}
