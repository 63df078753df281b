//! `pollux-acme`: gets the certificates of sites from an authority that speaks ACME, and renews them. A program of its own, so
//! that servers hold neither the key of the account nor a client of HTTP.
//!
//! | file | one job |
//! |---|---|
//! | `flags` | the command line |
//! | `wanted` | which certificates there should be, by settings or by names |
//! | `held` | a certificate in its file: what it says, when it is due, how it is replaced |
//! | `authority` | the account, its key, the terms; when the authority wants a renewal |
//! | `acme_http` | requests to the authority |
//! | `order` | one order: challenges answered, a certificate got |
//! | `trouble` | what went wrong, in words |
//! | `reload` | the server is asked to read them |
//! | `rounds` | all certificates, again and again, with pauses |
#![forbid(unsafe_code)]

mod acme_http;
mod authority;
mod flags;
mod held;
mod order;
mod reload;
mod rounds;
mod trouble;
mod wanted;

use std::process::ExitCode;

use clap::CommandFactory;
use pollux_settings::command::help;
use pollux_settings::command::output::Failure;
use pollux_settings::command::program::{self, TextCommand};

use flags::{AcmeFlags, Cli, sections};

fn main() -> ExitCode {
    program::main(command(), |cli: Cli| run(&cli))
}

fn command() -> clap::Command {
    TextCommand::hidden(help::decorated(Cli::command(), sections))
}

fn run(cli: &Cli) -> Result<ExitCode, Failure> {
    match &cli.text {
        Some(text) => text.write(command(), "pollux-acme", sections),
        None if cli.flags.check => rounds::check(&cli.flags),
        None => get(&cli.flags),
    }
}

fn get(flags: &AcmeFlags) -> Result<ExitCode, Failure> {
    if flags.json && !flags.once {
        return Err(Failure::usage("--json belongs to --once or --check; expected one of them"));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(Failure::failed)?.block_on(rounds::run(flags))
}
