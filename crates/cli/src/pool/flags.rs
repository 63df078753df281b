//! The command line of `pollux pool`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use pollux_engine::ListenAddress;
use pollux_xatmi::supervisor::Selection;
use pollux_xatmi::worker::Wake;

use crate::build_program::{self, BuildClientFlags, BuildServerFlags, LayOutFlags};

/// Exit codes of `pollux pool`, shown in its help.
pub(crate) const EXIT_CODES: &str = "\
Environment:
  NDRX_QPREFIX     which pool: what the names of its queues begin with [default: /pollux]
  NDRX_CONFIG      the configuration, unless --config is given
  NDRX_TOUT        seconds that a call may take [default: 60]
  NDRX_MSGMAX, NDRX_MSGSIZEMAX  depth of service queues [10], bytes of a message [4096]
  NDRX_ULOG        folder for the log

Exit codes:
  0  done
  1  a worker is not where it should be, no pool runs, or it could not be started
  2  wrong flags or a wrong configuration";

/// Examples for the help of `pollux pool`.
pub(crate) const EXAMPLES: &str = "\
Examples:
  export NDRX_QPREFIX=/app1 NDRX_CONFIG=/opt/app1/conf/ndrxconfig.xml
  pollux pool check                        does it fit this machine?
  pollux pool start                        returns when all workers are up
  pollux pool start --wake all             every message wakes all workers: the herd
  pollux pool start --foreground --metrics 127.0.0.1:9100
  pollux pool ps                           what runs
  pollux pool services --json | jq '.[] | select(.failed > 0)'
  pollux pool restart --name banksv
  pollux pool stop";

/// What is to be done with a pool.
#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// Start a pool, or workers of the one that runs
    #[command(after_help = "Examples:\n  pollux pool start --config ndrxconfig.xml\n  \
                      pollux pool start --id 12         a standby copy of the pool that runs")]
    Start(StartFlags),
    /// Stop the pool, or some of its workers
    #[command(after_help = "Examples:\n  pollux pool stop\n  pollux pool stop --name banksv")]
    Stop {
        #[command(flatten)]
        which: Which,
        /// Kill the workers instead of letting them end their calls
        #[arg(long, conflicts_with_all = ["name", "id"])]
        now: bool,
    },
    /// Stop workers and start them again, each as soon as it is gone
    #[command(after_help = "Examples:\n  pollux pool restart --name banksv\n  pollux pool restart")]
    Restart {
        #[command(flatten)]
        which: Which,
    },
    /// Read the configuration again: new workers are started, those that are gone from it stopped
    #[command(after_help = "Example:\n  pollux pool reload")]
    Reload,
    /// Show the workers
    #[command(
        after_help = "Example:\n  pollux pool ps --json | jq '.[] | select(.state != \"up\")'"
    )]
    Ps {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the services, a row for each worker that offers one
    #[command(after_help = "Example:\n  pollux pool services")]
    Services {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the queues of the services
    #[command(after_help = "Example:\n  pollux pool queues")]
    Queues {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the client contexts
    #[command(after_help = "Example:\n  pollux pool clients")]
    Clients {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the pool itself: manager, configuration, log, what was counted
    #[command(after_help = "Example:\n  pollux pool info")]
    Info {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Check a configuration: mistakes, missing programs, limits of this machine
    #[command(after_help = "Example:\n  pollux pool check --config ndrxconfig.xml --clients 100")]
    Check {
        /// The configuration [default: NDRX_CONFIG]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Client threads to reckon with; each has a reply queue
        #[arg(long, default_value_t = 10, value_name = "N")]
        clients: u32,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Compile a server in C: headers, library and main are added
    #[command(after_help = build_program::EXAMPLES)]
    BuildServer(BuildServerFlags),
    /// Compile a client in C: headers and library are added
    #[command(after_help = build_program::EXAMPLES)]
    BuildClient(BuildClientFlags),
    /// Put headers and libraries for C below a prefix
    #[command(hide = true)]
    LayOut(LayOutFlags),
}

/// Flags of `pollux pool start`.
#[derive(Debug, Args)]
pub(crate) struct StartFlags {
    /// The configuration [default: NDRX_CONFIG]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "id"])]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) which: Which,
    /// Whom a message wakes: one of the workers, or all of them, as plain epoll does
    #[arg(long, value_name = "one|all", default_value = "one")]
    pub(crate) wake: Wake,
    /// Stay in the foreground, with the log on standard error
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Serve metrics for Prometheus at this address, under /metrics
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<ListenAddress>,
    /// The log [default: pollux-pool-PREFIX.log in NDRX_ULOG, else beside the configuration]
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// The pool behind a `start`
    #[arg(long, hide = true)]
    pub(crate) detached: bool,
}

/// Some workers.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Only the copies of this program
    #[arg(long, short = 's', value_name = "PROGRAM", conflicts_with = "id")]
    name: Option<String>,
    /// Only the worker with this server id
    #[arg(long, short = 'i', value_name = "SRVID")]
    id: Option<u32>,
}

impl Which {
    /// What is meant; none where nothing was said.
    pub(crate) fn selection(&self) -> Option<Selection> {
        let name = self.name.clone().map(Selection::Program);
        name.or(self.id.map(Selection::Id))
    }
}
