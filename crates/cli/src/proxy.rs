//! `pollux proxy`: flags and file to a configuration, and a proxy that runs until a signal.

use std::process::ExitCode;

use pollux_engine::{Signal, Signals};
use pollux_server::Server;
use pollux_server::proxy::ProxyConfig;
use pollux_settings::Flags;

use crate::help::Section;
use crate::output::{self, Failure};

/// The command line of `pollux proxy`.
#[derive(Debug, clap::Args)]
pub(crate) struct ProxyCommand {
    #[command(flatten)]
    flags: Flags<ProxyConfig>,
    /// Read all settings, say what the proxy would do, and end
    #[arg(long, help_heading = "Running")]
    check: bool,
}

/// What stands below the flags.
pub(crate) const NOTES: &[Section] = &[
    Section::Examples(
        "\
# requests to 127.0.0.1:8080 go to a server on port 9000
pollux proxy --backend 127.0.0.1:9000
# two servers that take turns, two threads, a log with timings
pollux proxy --listen [::]:80 --backend 10.0.0.1:9000 --backend 10.0.0.2:9000 --threads 2 \\
    --access-log /var/log/pollux-proxy.log
# a server behind a unix socket, on io_uring by completion
pollux proxy --backend unix:/run/app.sock --poller uring
# the emptier of two backends, those that answer /health well
pollux proxy --backend 10.0.0.1:9000 --backend 10.0.0.2:9000 --balance random \\
    --health-check http --health-path /health
# what the settings of a file mean, or everything that is wrong with them
pollux proxy --config proxy.toml --check
# metrics for Prometheus, and a socket that answers commands
pollux proxy --backend 127.0.0.1:9000 --stats 127.0.0.1:9100 --control unix:proxy.sock
echo 'show servers' | socat - unix:proxy.sock
echo 'set server 127.0.0.1:9000 drain' | socat - unix:proxy.sock",
    ),
    Section::Lines(
        "Configuration file (the same names, with _ for -)",
        "\
listen = \"[::]:8080\"
balance = \"least\"
health_check = \"http\"
[[server]]
address = \"10.0.0.1:9000\"
weight = 2
[[server]]
address = \"10.0.0.2:9000\"",
    ),
    Section::Text(
        "What clients get when a backend fails",
        "503 when no backend accepts a connection, 504 when one takes too long, 502 when one \
         answers wrongly or closes the connection before its answer. Once an answer has begun the \
         client's connection is cut, so that a part never passes for the whole. The access log \
         names the fault and who is to blame.",
    ),
    Section::Signals(&[
        ("SIGTERM, SIGINT", "take no new connection, let open ones end; a second one ends at once"),
        ("SIGHUP", "open the logs again"),
    ]),
    Section::ExitCodes(&[
        ("0", "ended by a signal, or --check found nothing wrong"),
        ("1", "could not be started, or a loop failed"),
        ("2", "wrong flags or a wrong configuration file, also with --check"),
    ]),
];

/// Runs the proxy until a signal ends it.
pub(crate) fn run(command: &ProxyCommand) -> Result<ExitCode, Failure> {
    let config = command.flags.read().map_err(Failure::usage)?;
    if command.check {
        output::result(&config.plan())?;
        return Ok(ExitCode::SUCCESS);
    }
    crate::lab::raise_descriptor_limit().map_err(Failure::failed)?;
    let signals = [Signal::Terminate, Signal::Interrupt, Signal::HangUp];
    let mut signals = Signals::catch(&signals).map_err(Failure::failed)?;
    let failed = |error| Failure::failed(pollux_lab::error::in_words(&error));
    let proxy = Server::start_proxy(&config).map_err(failed)?;
    if !config.watching.is_quiet {
        proxy.banner().iter().for_each(|line| output::remark(&format!("pollux proxy: {line}")));
    }
    proxy.run(&mut signals).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}
