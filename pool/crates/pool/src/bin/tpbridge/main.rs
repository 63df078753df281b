//! `tpbridge`, the bridge of a service pool over a NATS broker. The manager of a pool starts it, from
//! PATH or from beside its own program; to a user it says what it is.
//!
//! | file | one job |
//! |---|---|
//! | `worker` | its life as a worker of this pool: offers what others have, carries calls to them |
//! | `settings` | options in the configuration, names of subjects at the broker |
//! | `exchange` | which pool offers what, by lists that all send |
//! | `host` | calls of others to the services of this pool |
//! | `broker` | the connection to the broker, in a thread of its own |
//! | `envelope` | a call and its answer as messages |
//! | `log` | what it says, once |
#![forbid(unsafe_code)]

mod broker;
mod envelope;
mod exchange;
mod host;
mod log;
mod settings;
mod worker;

use std::process::ExitCode;

use clap::Command;
use pollux_settings::command::help::{self, Section};
use pollux_settings::command::{output, program};

fn main() -> ExitCode {
    let asks = |word: &str| ["-h", "--help", "-V", "--version"].contains(&word);
    let ran = match std::env::args().nth(1) {
        Some(word) if asks(&word) => answer(),
        _ => worker::run(std::env::args_os())
            .map(|_| ExitCode::SUCCESS)
            .map_err(|error| output::Failure::failed(output::error_chain(&error))),
    };
    ran.unwrap_or_else(|failure| {
        output::error(&failure.message);
        failure.code
    })
}

/// Answers a user who asks for help or for the version.
fn answer() -> Result<ExitCode, output::Failure> {
    let version = env!("CARGO_PKG_VERSION");
    let command = Command::new("tpbridge")
        .version(version)
        .long_version(program::long_version(version, option_env!("POLLUX_COMMIT")))
        .about("Share the services of a pool with those of other hosts, over a NATS broker")
        .override_usage("<server name=\"tpbridge\"> in the configuration of a pool")
        .args(settings::options());
    let mut command = help::decorated(command, |path| Section::of(path, HELP));
    let asked = command.try_get_matches_from_mut(std::env::args_os().take(2));
    asked.map_or_else(|error| output::answer(error, &mut command), |_| Ok(ExitCode::SUCCESS))
}

const HELP: &str = "= tpbridge
== Examples
| <server name=\"tpbridge\">
|   <srvid>900</srvid> <min>4</min> <max>4</max>
|   <appopt>--nats nats://10.0.0.1:4222 --domain bank</appopt>
| </server>
== Environment
POLLUX_NATS  the addresses of the broker, unless --nats is given: no list of processes shows them
== What it does not do
It is a worker: the manager of a pool starts it (`pollux pool start`), and it ends with the pool. What is offered to
other hosts stands in <exportsvcs> of the servers that serve it.
";
