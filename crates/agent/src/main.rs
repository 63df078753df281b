//! `pollux-agent`: a load generator on a host of its own that takes orders over a NATS broker, and the commands by which
//! `pollux load` reaches such agents. The client of the broker is linked here, so that `pollux` is built without it.
//!
//! | file | one job |
//! |---|---|
//! | `flags` | the command line |
//! | `broker` | the connection to the broker, subjects, one request with its reply |
//! | `serve` | the agent: what it answers to whom, and what it refuses |
//! | `work` | one order: prepared, begun, followed, ended |
//! | `held` | loads that come in turns: connections held open, asked when it is their turn |
//! | `sandbox` | what an agent gives up before it takes orders |
//! | `agent_metrics` | what an agent has done, as a page for Prometheus |
//! | `agent_clock` | the clock that an agent shows |
//! | `drive` | the controller: from the order of `pollux load` to one result |
//! | `turns` | a load in turns on one agent: from the lines of the lab to messages and back |
//! | `pipes` | lines of JSON with the process that started this one |
//! | `list` | who is there |
#![forbid(unsafe_code)]

mod agent_clock;
mod agent_metrics;
mod broker;
mod drive;
mod flags;
mod held;
mod list;
mod pipes;
mod sandbox;
mod serve;
mod turns;
mod work;

use std::process::ExitCode;

use clap::CommandFactory;
use pollux_settings::command::help;
use pollux_settings::command::output::Failure;
use pollux_settings::command::program::{self, TextCommand};

use flags::{AgentCommand, Cli, sections};

fn main() -> ExitCode {
    program::main(command(), run)
}

fn command() -> clap::Command {
    TextCommand::hidden(help::decorated(Cli::command(), sections))
}

fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let ready = match &cli.command {
        None => Some(serve::Ready::new(&cli.agent)?),
        Some(_) => None,
    };
    // Threads of the generator are its own; one is enough for messages.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Failure::failed)?;
    match cli.command {
        None => runtime.block_on(serve::serve(&cli.agent, ready.expect("an agent has it"))),
        Some(AgentCommand::Drive(broker)) => runtime.block_on(drive::drive(&broker)),
        Some(AgentCommand::Turns(broker)) => runtime.block_on(turns::turns(&broker)),
        Some(AgentCommand::List { broker, json }) => runtime.block_on(list::list(&broker, json)),
        Some(AgentCommand::Text(text)) => text.write(command(), "pollux-agent", sections),
    }
}
