//! The command line of `pollux-agent`: the agent's own flags, and the commands by which `pollux load` uses it.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use pollux_engine::CpuList;
use pollux_load::campaign::{AgentName, AllowedTarget, LoadBounds};
use pollux_settings::command::help::Section;
use pollux_settings::command::program::{TextCommand, long_version};
use pollux_settings::quantity;

/// The broker when nothing is said.
pub(crate) const NATS_DEFAULT: &str = "nats://127.0.0.1:4222";

/// Threads of an order at most where nothing is said: more than a load has a use for.
const THREADS_PER_CPU: u64 = 4;
const THREADS_LEAST: u64 = 16;

/// What stands below the flags, in help and manual.
pub(crate) fn sections(path: &str) -> Vec<Section> {
    Section::of(path, include_str!("help.txt"))
}

/// Put HTTP load on servers of this network, as `pollux load --agents` or `pollux lab` orders over a NATS broker
#[derive(Debug, Parser)]
#[command(name = "pollux-agent", version)]
#[command(long_version = long_version(env!("CARGO_PKG_VERSION"), option_env!("POLLUX_COMMIT")))]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<AgentCommand>,
    #[command(flatten)]
    pub(crate) agent: AgentFlags,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Drive agents as standard input says: `pollux load --agents` runs it
    #[command(hide = true)]
    Drive(BrokerFlags),
    /// Have an agent give a load in turns as standard input says: `pollux lab run http --generator agent:NAME` runs it
    #[command(hide = true)]
    Turns(BrokerFlags),
    /// List the agents: `pollux load agents` runs it
    #[command(hide = true)]
    List {
        #[command(flatten)]
        broker: BrokerFlags,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    #[command(flatten)]
    Text(TextCommand),
}

/// Where the broker is, and which agents belong together.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Broker")]
pub(crate) struct BrokerFlags {
    /// Addresses of the broker's servers, with commas between them: nats://HOST:PORT, tls:// to demand encryption
    /// [default: nats://127.0.0.1:4222]
    #[arg(long, value_name = "URL")]
    pub(crate) nats: Option<String>,
    /// A file with what logs in to the broker: USER:PASSWORD or TOKEN
    #[arg(long, value_name = "FILE")]
    pub(crate) nats_login: Option<PathBuf>,
    /// Certificates (PEM) that the broker's own is checked with, instead of the machine's
    #[arg(long, value_name = "FILE")]
    pub(crate) nats_ca: Option<PathBuf>,
    /// Agents of one group take orders together
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) group: AgentName,
}

#[derive(Debug, Args)]
pub(crate) struct AgentFlags {
    #[command(flatten)]
    pub(crate) broker: BrokerFlags,
    /// Name of this agent among those of its group [default: the name of the host]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<AgentName>,
    /// A target that orders may name: HOST:PORT, HOST for all its ports, NETWORK/BITS or NETWORK/BITS:PORT; may be
    /// repeated [default: loopback alone]
    #[arg(long, value_name = "TARGET", help_heading = "What an order may ask for")]
    pub(crate) allow: Vec<AllowedTarget>,
    /// Connections of one order at most, those beside the active ones too
    #[arg(long, value_name = "N", default_value = "10000", value_parser = count)]
    #[arg(help_heading = "What an order may ask for")]
    pub(crate) max_connections: u64,
    /// Requests per second of this agent at most; a closed loop, which has no rate, is refused then [default: any]
    #[arg(long, value_name = "RATE", value_parser = rate, help_heading = "What an order may ask for")]
    pub(crate) max_rate: Option<f64>,
    /// Longest time of one order, warm-up included; one that ends by --requests ends then as well. Opening connections
    /// and waiting for last answers may take as long again, a minute at most
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration)]
    #[arg(help_heading = "What an order may ask for")]
    pub(crate) max_duration: Duration,
    /// Bytes of all request bodies of one order
    #[arg(long, value_name = "BYTES", default_value = "1MiB", value_parser = size)]
    #[arg(help_heading = "What an order may ask for")]
    pub(crate) max_body: u64,
    /// Threads of one order at most [default: four for each CPU, and 16 at least]
    #[arg(long, value_name = "N", value_parser = count, help_heading = "What an order may ask for")]
    pub(crate) max_threads: Option<u64>,
    /// An address of this host that connections come from, in turn with others: each has the kernel's ports for each target;
    /// may be repeated
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) source: Vec<IpAddr>,
    /// Write the result of each order into this folder as well, as CAMPAIGN.json
    #[arg(long, value_name = "DIR")]
    pub(crate) results: Option<PathBuf>,
    /// Offer a page of metrics for Prometheus at this address: HOST:PORT
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub(crate) prometheus: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) sandbox: SandboxFlags,
    /// Add so many nanoseconds to the clock, and let it drift by so many parts in a million: NS,PPM. For tests
    #[arg(long, hide = true, value_name = "NS,PPM", allow_hyphen_values = true, value_parser = clock)]
    pub(crate) test_clock: Option<(i64, f64)>,
}

/// What the agent gives up.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Sandbox")]
pub(crate) struct SandboxFlags {
    /// Run without the sandbox; by default the agent restricts itself, before it takes orders, to the files and the system
    /// calls that sending requests needs
    #[arg(long)]
    pub(crate) no_sandbox: bool,
    /// Do not start where the kernel lacks a part of the sandbox [default: a part that it lacks is reported and left out]
    #[arg(long, conflicts_with = "no_sandbox")]
    pub(crate) require_sandbox: bool,
}

impl AgentFlags {
    pub(crate) fn bounds(&self) -> LoadBounds {
        LoadBounds {
            allowed: self.allow.clone(),
            connections_max: self.max_connections,
            rate_max: self.max_rate,
            duration_max: self.max_duration,
            body_bytes_max: self.max_body,
            threads_max: self.threads_max(),
        }
    }
}

impl AgentFlags {
    fn threads_max(&self) -> u32 {
        let cpus = CpuList::allowed().map_or(1, |cpus| cpus.as_slice().len());
        let usual = (cpus as u64 * THREADS_PER_CPU).max(THREADS_LEAST);
        u32::try_from(self.max_threads.unwrap_or(usual)).unwrap_or(u32::MAX)
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected an address with a port, such as 127.0.0.1:9100".to_owned())
}

fn count(text: &str) -> Result<u64, String> {
    let wrong = || "expected a whole number of 1 or more".to_owned();
    text.parse().ok().filter(|count| *count > 0).ok_or_else(wrong)
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| "expected requests per second, above 0".to_owned())
}

fn duration(text: &str) -> Result<Duration, String> {
    let read = quantity::duration(text).map_err(|_| "expected a time such as 90s or 1h".to_owned());
    read.and_then(
        |time| if time.is_zero() { Err("expected more than 0".to_owned()) } else { Ok(time) },
    )
}

fn size(text: &str) -> Result<u64, String> {
    quantity::size(text).ok_or_else(|| "expected a size such as 64KiB or 1MiB".to_owned())
}

fn clock(text: &str) -> Result<(i64, f64), String> {
    let parts = text.split_once(',');
    let read = parts.and_then(|(ns, ppm)| Some((ns.parse().ok()?, ppm.parse().ok()?)));
    read.ok_or_else(|| "expected NS,PPM".to_owned())
}
