//! The `pollux-pool` command, which `pollux pool` runs: flags to requests, answers to tables and exit
//! codes.
//!
//! | part | one job |
//! |---|---|
//! | `flags` | the command line |
//! | `orders` | a pool in the foreground, or behind the terminal; stop, restart, reload: what a running pool is asked to do |
//! | `show` | ps, services, queues, clients, the pool itself |
//! | `check` | a configuration against this machine |
//! | `call` | one call of a service |
//! | `convert` | a configuration of a UBBCONFIG |
//! | `build_program` | C programs: the compiler, where headers and library are |
//! | `server_main` | the services of a C server, and its `main` |
//! | `field_tables` | headers and modules of field tables |
//! | `view_files` | headers and compiled files of views |
#![forbid(unsafe_code)]

mod build_program;
mod call;
mod check;
mod convert;
mod field_tables;
mod flags;
mod orders;
mod server_main;
mod show;
mod view_files;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser, Subcommand};
use pollux_settings::command::help;
use pollux_settings::command::outline::Outline;
use pollux_settings::command::output::{self, Failure};
use pollux_settings::command::program::{self, TextCommand, long_version};
use pollux_xatmi::config::PoolConfig;
use pollux_xatmi::control::{Control, ControlError};
use pollux_xatmi::environment::Environment;
use pollux_xatmi::supervisor::Selection;
use pollux_xatmi::worker;
use pollux_xatmi_c::startup;

use flags::{PoolCommand, Wake, Which, sections};

/// Run a pool of service processes, called in shared memory or by message queues (XATMI)
#[derive(Debug, Parser)]
#[command(name = "pollux-pool", bin_name = "pollux pool", version)]
#[command(long_version = long_version(env!("CARGO_PKG_VERSION"), option_env!("POLLUX_COMMIT")))]
#[command(subcommand_required = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Pool(PoolCommand),
    #[command(flatten)]
    Text(TextCommand),
    /// Print what `pollux` completes the words by that it hands over
    #[command(hide = true)]
    Outline,
}

/// The command that hands words over to this program.
const POLLUX: &str = "pollux";

/// The command line with everything that its help says, by the name that it was called by: `pollux fld`, which
/// `pollux` hands over under its own name, else `pollux pool`.
fn command() -> clap::Command {
    let sections = |path: &str| sections(&path.replacen("pollux-pool", "pollux pool", 1));
    let command = TextCommand::hidden(Cli::command());
    let command = output::with_negative_numbers(help::decorated(command, sections));
    if std::env::args_os().next().is_some_and(|name| name == POLLUX) {
        command.bin_name(POLLUX)
    } else {
        command
    }
}

/// The commands of `pollux` that this program is: the pool, and field tables by their own name.
fn of_pollux() -> [clap::Command; 2] {
    let pool = TextCommand::hidden(Cli::command()).name("pool");
    let tables = pool.find_subcommand("fld").expect("the command of field tables").clone();
    [pool, tables]
}

/// Prints them for the completions of `pollux`.
fn outline() -> Result<ExitCode, Failure> {
    let outlines = of_pollux().map(|command| Outline::of(&command));
    output::result(&serde_json::to_string(&outlines).map_err(Failure::failed)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes their manual pages.
fn man(folder: &Path) -> Result<ExitCode, Failure> {
    let command = clap::Command::new(POLLUX).version(env!("CARGO_PKG_VERSION"));
    let mut command = command.propagate_version(true).subcommands(of_pollux());
    command.build();
    let mut pages = help::manual_pages(&command, sections);
    // Its own page is written by that program.
    pages.retain(|(name, _)| name != POLLUX);
    help::write_pages(folder, &pages)?;
    Ok(ExitCode::SUCCESS)
}

/// Longest silence of a manager that is well: it answers within milliseconds, also while it
/// works on an order, as it tells how far it is.
const SILENCE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    program::main(command(), |cli: Cli| match cli.command {
        Command::Pool(command) => run(command),
        Command::Text(TextCommand::Completions { shell }) => {
            help::completions(shell, command(), "pollux-pool")
        }
        Command::Text(TextCommand::Man { folder }) => man(&folder),
        Command::Outline => outline(),
    })
}

fn run(command: PoolCommand) -> Result<ExitCode, Failure> {
    // What NDRX_CCONFIG names holds the rest of the environment.
    startup::common_config().as_ref().map_err(Failure::usage)?;
    match command {
        PoolCommand::Start(flags) => orders::start(&flags),
        PoolCommand::Stop { which, now } => orders::stop(selection(&which), now),
        PoolCommand::Restart { which, running } => orders::restart(selection(&which), running),
        PoolCommand::Reload => orders::reload(),
        PoolCommand::Log(flags) => orders::log(&flags),
        PoolCommand::Ps(form) => show::workers(form.json),
        PoolCommand::Services(form) => show::services(form.json),
        PoolCommand::Queues(form) => show::queues(form.json),
        PoolCommand::Clients(form) => show::clients(form.json),
        PoolCommand::Info(form) => show::info(form.json),
        PoolCommand::Call(flags) => call::run(&flags),
        PoolCommand::Check { config, clients, no_ask, json } => {
            check::check(config, clients, !no_ask, json)
        }
        PoolCommand::Convert(flags) => convert::run(&flags),
        PoolCommand::BuildServer(flags) => build_program::server(&flags),
        PoolCommand::BuildClient(flags) => build_program::client(&flags),
        PoolCommand::Fld(flags) => field_tables::run(&flags),
        PoolCommand::Mkfldhdr(flags) => field_tables::run_manual(&flags),
        PoolCommand::Viewc(flags) => view_files::run(&flags),
        PoolCommand::LayOut(flags) => build_program::lay_out(&flags),
    }
}

/// The workers that flags name; none where nothing was said.
fn selection(which: &Which) -> Option<Selection> {
    let program = which.name.clone().map(Selection::Program);
    program.or(which.id.map(Selection::Id))
}

/// Workers that a message wakes, as workers have it.
fn wake(flag: Wake) -> worker::Wake {
    match flag {
        Wake::One => worker::Wake::One,
        Wake::All => worker::Wake::All,
    }
}

/// The environment's settings.
fn environment() -> Result<Environment, Failure> {
    Environment::of_process().map_err(Failure::usage)
}

/// A connection to the pool that the environment names.
fn connect() -> Result<Control, Failure> {
    Control::connect(&environment()?.prefix).map_err(|error| asked(&error))
}

/// The configuration file: the flag, else NDRX_CONFIG.
fn config_file(flag: Option<PathBuf>) -> Result<PathBuf, Failure> {
    let variable = || std::env::var_os("NDRX_CONFIG").filter(|value| !value.is_empty());
    flag.or_else(|| variable().map(PathBuf::from)).ok_or_else(|| {
        Failure::usage(
            "no configuration: give --config FILE, or set NDRX_CONFIG to the path of the \
             ndrxconfig.xml",
        )
    })
}

/// Reads a configuration. Warnings of a wrong one are shown here, those of a sound one are the caller's to show.
fn read_config(file: &Path) -> Result<PoolConfig, Failure> {
    PoolConfig::from_file(file).map_err(|error| {
        for warning in &error.warnings {
            output::remark(&format!("warning: {warning}"));
        }
        Failure::usage(error)
    })
}

fn asked(error: &ControlError) -> Failure {
    Failure::failed(output::error_chain(error))
}
