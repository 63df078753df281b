//! `pollux serve`: flags and file to a configuration, and a server that runs until a signal.
//!
//! The flags are made from the server's own table of settings, so flags, keys of the file and
//! defaults cannot differ.

use std::process::ExitCode;

use pollux_engine::{Signal, Signals};
use pollux_server::config::ServeConfig;
use pollux_server::system::{activation, privileged};
use pollux_server::{OwnProcess, Server};
use pollux_settings::Flags;

use crate::output::{self, Failure};

/// The command line of `pollux serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeCommand {
    #[command(flatten)]
    flags: Flags<ServeConfig>,
    /// Read all settings and the files that they name, say what the server would do, and end
    #[arg(long, help_heading = "Running")]
    check: bool,
}

/// Runs the server until a signal ends it.
pub(crate) fn run(command: &ServeCommand) -> Result<ExitCode, Failure> {
    if let Some(done) = privileged::run() {
        return done.map(|()| ExitCode::SUCCESS).map_err(Failure::failed);
    }
    let config = command.flags.read().map_err(Failure::usage)?;
    if command.check {
        let plan = Server::check(&config);
        let plan = plan.map_err(|error| Failure::usage(pollux_lab::error::in_words(&error)))?;
        output::result(&plan)?;
        return Ok(ExitCode::SUCCESS);
    }
    // Before anything else is opened: a number that was not passed must not be one of our own.
    let passed = activation::sockets().map_err(Failure::failed)?;
    pollux_command::limits::raise_descriptor_limit().map_err(Failure::failed)?;
    let signals = [Signal::Terminate, Signal::Interrupt, Signal::HangUp];
    let mut signals = Signals::catch(&signals).map_err(Failure::failed)?;
    let failed = |error| Failure::failed(pollux_lab::error::in_words(&error));
    let words = ["serve".into()];
    let process =
        OwnProcess { sockets: passed, settings: command.flags.path(), privileged: Some(&words) };
    let mut server = Server::start_on(&config, process).map_err(failed)?;
    let flags = command.flags.clone();
    server.read_settings_by(move || flags.read().map_err(|mistakes| mistakes.to_string()));
    if !config.monitoring.is_quiet {
        server.banner().iter().for_each(|line| output::remark(&format!("pollux serve: {line}")));
    }
    server.notify_manager();
    server.run(&mut signals).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}
