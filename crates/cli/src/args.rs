//! The command line: subcommands and their flags. What their help says beside that, examples and exit codes, is in `help.txt`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand};
use pollux_lab::experiments::{self, Experiment};
use pollux_lab::job::{self, Job};
use pollux_settings::command::help::{self, Section};
use pollux_settings::command::output;
use pollux_settings::command::program::{TextCommand, long_version};
use pollux_settings::{FlagsOnly, Kind, one_of, parsed};

use crate::doctor;
use crate::load::LoadCommand;
use crate::run::RunCommand;
use crate::servers::{ProxyCommand, ServeCommand};

/// HTTP server, proxy and load generator on every Linux event mechanism, and a lab that compares them.
#[derive(Debug, Parser)]
#[command(name = "pollux", version, propagate_version = true)]
#[command(long_version = long_version(env!("CARGO_PKG_VERSION"), option_env!("POLLUX_COMMIT")))]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The command line with everything that its help says.
pub(crate) fn command() -> clap::Command {
    output::with_negative_numbers(help::decorated(Cli::command(), sections))
}

/// What stands below the flags of the command at `path`, such as `pollux lab run`.
pub(crate) fn sections(path: &str) -> Vec<Section> {
    Section::of(path, include_str!("help.txt"))
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Compare event mechanisms on this machine: select, poll, AIO poll, epoll, io_uring
    Lab(Box<Lab>),
    /// Put HTTP load on a server, and measure rate and latency
    #[command(arg_required_else_help = true)]
    Load(Box<LoadCommand>),
    /// Serve files, a fixed reply or an echo over HTTP, on any event mechanism
    Serve(Box<ServeCommand>),
    /// Pass HTTP requests on to backends, on any event mechanism
    #[command(arg_required_else_help = true)]
    Proxy(Box<ProxyCommand>),
    /// Run an unmodified program, and report what its event loop does
    #[command(arg_required_else_help = true)]
    Run(Box<RunCommand>),
    /// Run a pool of service processes, called in shared memory or by message queues (XATMI)
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Pool(HandedOver),
    /// Check what on this machine limits which experiment, and print the commands that fix it
    Doctor(DoctorFlags),
    /// Make C headers or Rust modules of field tables (.fd files)
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Fld(HandedOver),
    #[command(flatten)]
    Text(TextCommand),
}

/// Words for another program, which answers all of them, `--help` too.
#[derive(Debug, Args)]
pub(crate) struct HandedOver {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorFlags {
    /// Check only what concerns this job, experiment or part of the machine
    #[arg(long = "for", value_name = "NAME", value_parser = asked())]
    pub(crate) asked: Option<&'static str>,
    /// Print the checks as JSON (see docs/doctor.md)
    #[arg(long)]
    pub(crate) json: bool,
    /// Print every remedy once as a shell script, to be read and then run by root
    #[arg(long, conflicts_with = "json")]
    pub(crate) fix_script: bool,
}

/// The names of the lab's own tables.
fn asked() -> Kind<&'static str> {
    one_of(
        "job, experiment or part of the machine",
        doctor::names().map(|(name, about)| (name, about, name)),
    )
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Lab {
    #[command(subcommand)]
    pub(crate) command: Option<LabCommand>,
    #[command(flatten)]
    pub(crate) run: RunFlags,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// List experiments, built-in jobs, mechanisms and sources of this machine
    List {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what the experiments vary: the flags for it, their values and defaults
    Axes {
        /// List only those of this experiment
        #[arg(value_name = "EXPERIMENT", value_parser = experiment())]
        experiment: Option<&'static dyn Experiment>,
    },
    /// Show what a job would run, what it would leave out, and how long it would take
    Plan {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        job: JobFlags,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Run a job file, a built-in job or an experiment
    Run {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        run: RunFlags,
    },
    /// Compare two builds of pollux: --arm old=PATH --arm new=PATH
    Version {
        #[command(flatten)]
        run: RunFlags,
    },
    /// Repeat a published benchmark: 0 epoll-bench (2006), 1 sys-epoll (2002: pipetest, dphttpd),
    /// 2 sehttpd (2020: epoll against io_uring), 3 haproxy (its pollers to 2022), 4 epollexclusive (2015),
    /// 5 echo-servers (2020: io_uring against epoll), 6 streaming (2022: the same, disputed)
    #[command(visible_alias = "seed")]
    Reproduce {
        /// Name or number of the benchmark
        #[arg(value_name = "NAME", value_parser = published())]
        job: &'static str,
        #[command(flatten)]
        run: RunFlags,
    },
    /// Make report, summary and table again from a result
    Report {
        /// A folder that a run wrote, or a result.json
        result: PathBuf,
        /// Print the summary as Markdown instead of the table
        #[arg(long, conflicts_with = "json")]
        markdown: bool,
        /// Print the result as JSON instead of the table
        #[arg(long)]
        json: bool,
        /// Write the HTML report alone, to this file, instead of both reports beside the result
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
    /// Compare two results of the same job on the same machine
    Compare {
        /// The earlier result: a folder or a result.json
        before: PathBuf,
        /// The later result
        after: PathBuf,
        /// Exit with 3 when an arm got worse in relation to its baseline, or is missing. An unclear row
        /// passes: see --strict
        #[arg(long)]
        gate: bool,
        /// Exit with 4 when a row is unclear
        #[arg(long)]
        strict: bool,
        /// Compare results of different machines or jobs
        #[arg(long)]
        across: bool,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Run a baseline server: a program that parses nothing, to compare servers with. Not a server
    #[command(hide = true, alias = "floor")]
    Baseline {
        /// The baseline server: raw-epoll or raw-uring
        server: String,
        /// Where to listen
        #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
        listen: SocketAddr,
        /// Length of the body of each reply
        #[arg(long, default_value_t = 128, value_name = "BYTES")]
        reply: usize,
        /// End the connection behind each reply
        #[arg(long)]
        close: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Target {
    #[arg(value_name = "JOB", value_parser = jobs(), hide_possible_values = true)]
    #[arg(help = job_help())]
    pub(crate) job: String,
}

/// Flags that change the job; each is the job key of the same name.
pub(crate) type JobFlags = FlagsOnly<Job>;

/// Flags of everything that runs a job.
#[derive(Debug, Args)]
pub(crate) struct RunFlags {
    #[command(flatten)]
    pub(crate) job: JobFlags,
    /// Folder for result.json and report.html; one that holds a result is refused
    /// [default: pollux-out/JOB-TIME]
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub(crate) out: Option<PathBuf>,
    /// Replace the result that the folder of --out holds
    #[arg(long, requires = "out", help_heading = "Output")]
    pub(crate) overwrite: bool,
    /// Print the result as JSON instead of the table
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
    /// Print the result as Markdown instead of the table
    #[arg(long, conflicts_with = "json", help_heading = "Output")]
    pub(crate) markdown: bool,
    /// Show no progress
    #[arg(long, short, help_heading = "Output")]
    pub(crate) quiet: bool,
    /// Exit with 3 when an arm is worse than the baseline by more than --min-effect; needs an arm
    /// beside the baseline
    #[arg(long, help_heading = "Output")]
    pub(crate) gate: bool,
    /// Exit with 4 when a verdict is undecided or the machine was not quiet
    #[arg(long, help_heading = "Output")]
    pub(crate) strict: bool,
}

/// What can be run: built-in jobs and experiments; any other text is a path.
pub(crate) fn jobs() -> Kind<String> {
    // Some jobs have the name of their experiment.
    let names: BTreeSet<_> =
        job::list().iter().map(|job| job.name).chain(experiments::names()).collect();
    parsed("JOB", "a job", |text| Ok::<_, String>(text.to_owned())).offering(names)
}

/// What stands for a job on a command line.
fn job_help() -> String {
    let experiments = experiments::names().join(", ");
    format!("A job file, a built-in job (see `pollux lab list`) or an experiment: {experiments}")
}

pub(crate) fn experiment() -> Kind<&'static dyn Experiment> {
    one_of("experiment", experiments::ALL.map(|each| (each.name, "", each)))
}

/// A published benchmark by its name or number, as the name of the job that repeats it.
pub(crate) fn published() -> Kind<&'static str> {
    let about =
        |name: &str| job::list().iter().find(|job| job.name == name).map_or("", |job| job.about);
    let names = job::PUBLISHED.map(|job| (job.trim_start_matches("published-"), about(job), job));
    let numbers = ["0", "1", "2", "3", "4", "5", "6"].into_iter().zip(job::PUBLISHED);
    one_of(
        "published benchmark",
        names.into_iter().chain(numbers.map(|(number, job)| (number, "", job))),
    )
}
