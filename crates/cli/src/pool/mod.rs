//! `pollux pool`: flags to requests, answers to tables and exit codes.
//!
//! | part | one job |
//! |---|---|
//! | `flags` | the command line |
//! | `start` | a pool in the foreground, or behind the terminal |
//! | `orders` | stop, restart, reload: what a running pool is told |
//! | `show` | ps, services, queues, clients |
//! | `check` | a configuration against this machine |
//! | `table` | columns |

mod check;
mod flags;
mod orders;
mod show;
mod start;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use pollux_xatmi::control::{AskError, Control};
use pollux_xatmi::environment::Environment;

use crate::build_program;
use crate::output::{self, Failure};

pub(crate) use flags::{NOTES, PoolCommand, notes_of};

/// Longest silence of a manager that is well: it answers within milliseconds, also while it
/// works on an order, as it tells how far it is.
const SILENCE: Duration = Duration::from_secs(10);

/// Runs the command.
pub(crate) fn run(command: PoolCommand) -> Result<ExitCode, Failure> {
    match command {
        PoolCommand::Start(flags) => start::start(&flags),
        PoolCommand::Stop { which, now } => orders::stop(which.selection(), now),
        PoolCommand::Restart { which } => orders::restart(which.selection()),
        PoolCommand::Reload => orders::reload(),
        PoolCommand::Ps { json } => show::workers(json),
        PoolCommand::Services { json } => show::services(json),
        PoolCommand::Queues { json } => show::queues(json),
        PoolCommand::Clients { json } => show::clients(json),
        PoolCommand::Info { json } => show::info(json),
        PoolCommand::Check { config, clients, json } => check::check(config, clients, json),
        PoolCommand::BuildServer(flags) => build_program::server(&flags),
        PoolCommand::BuildClient(flags) => build_program::client(&flags),
        PoolCommand::LayOut(flags) => build_program::lay_out(&flags),
    }
}

/// Runs as a bridge: the manager started this program under that name.
pub(crate) fn bridge() -> ExitCode {
    match pollux_xatmi_nats::run(std::env::args_os()) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&pollux_lab::error::in_words(&error));
            ExitCode::FAILURE
        }
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

fn asked(error: &AskError) -> Failure {
    Failure::failed(pollux_lab::error::in_words(error))
}
