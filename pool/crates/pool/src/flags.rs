//! The command line of the service pool: flags, values, and what stands below them in the help.
//!
//! `pollux` knows none of it: it hands words over, and asks for manual pages and for what completions are made of
//! (`pollux-pool man`, `pollux-pool outline`).

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use pollux_engine::ListenAddress;
use pollux_settings::command::help::Section;
use pollux_settings::integer;

/// What stands below the flags of the command at `path`, such as `pollux pool start`, in help and manual.
pub(crate) fn sections(path: &str) -> Vec<Section> {
    Section::of(path, include_str!("help.txt"))
}

/// What is to be done with a pool.
#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// Start a pool, or workers of the one that runs
    Start(StartFlags),
    /// Stop the pool, or some of its workers
    Stop {
        /// Workers to act on [default: all]
        #[command(flatten)]
        which: Which,
        /// Kill the workers instead of letting them end their calls
        #[arg(long, conflicts_with_all = ["name", "id"])]
        now: bool,
    },
    /// Stop workers and start them again, each as soon as it is gone
    Restart {
        /// Workers to act on [default: all]
        #[command(flatten)]
        which: Which,
        /// Only those that run: one that was stopped stays so, also where --id means it
        #[arg(long)]
        running: bool,
    },
    /// Read the configuration again: new workers are started, those that are gone from it stopped
    Reload,
    /// Open the logs again, or change what programs log
    Log(LogFlags),
    /// Show the workers
    Ps(Form),
    /// Show the services, a row for each worker that offers one
    Services(Form),
    /// Show where requests wait: the queues of the services, or their rings in shared memory
    Queues(Form),
    /// Show the client contexts
    Clients(Form),
    /// Show the pool itself: manager, configuration, transport, log, what was counted
    Info(Form),
    /// Call a service, with fields from a file or standard input, and print what it answers
    Call(ServiceCallFlags),
    /// Check a configuration: mistakes, missing programs, limits of this machine
    Check {
        /// The configuration [default: NDRX_CONFIG, else that of the pool that runs]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Client threads to count in; with the transport by queues each has a reply queue
        #[arg(long, default_value_t = 10, value_name = "N", value_parser = integer::<u32>(0..=u32::MAX.into()))]
        clients: u32,
        /// Do not start the programs, each up to its tpsvrinit, to ask for their services; each then
        /// counts as one service
        #[arg(long)]
        no_ask: bool,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Make an ndrxconfig.xml of a UBBCONFIG, the configuration of Tuxedo
    Convert(ConvertFlags),
    /// Compile a server in C: headers, library and main are added
    BuildServer(BuildServerFlags),
    /// Compile a client in C: headers and library are added
    BuildClient(BuildClientFlags),
    /// Make C headers or Rust modules of field tables (.fd files)
    Fld(FldFlags),
    /// Make headers of field tables as the manuals' mkfldhdr does
    #[command(hide = true)]
    Mkfldhdr(MkfldhdrFlags),
    /// Make C headers and compiled files of views (.v files)
    Viewc(ViewFlags),
    /// Put headers and libraries for C below a prefix
    #[command(hide = true)]
    LayOut(LayOutFlags),
}

/// `pollux pool log`
#[derive(Debug, Args)]
#[group(id = "change", required = true, multiple = true, args = ["level", "is_opened_again"])]
pub(crate) struct LogFlags {
    /// Workers to act on [default: all, and the log of the manager]
    #[command(flatten)]
    pub(crate) which: Which,
    /// The highest level that programs in C write from now on, until they end: 0 (nothing) to 6 (dumps)
    #[arg(long, value_name = "LEVEL", value_parser = integer::<u8>(0..=6))]
    pub(crate) level: Option<u8>,
    /// Open files by their names again, as after logrotate(8) moved them: the log of the manager, and what -e
    /// and -o of `sysopt` name
    #[arg(long = "reopen")]
    pub(crate) is_opened_again: bool,
}

/// How a list is shown.
#[derive(Debug, Args)]
pub(crate) struct Form {
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Flags of `pollux pool start`.
#[derive(Debug, Args)]
pub(crate) struct StartFlags {
    /// The configuration [default: NDRX_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Only these workers; where no pool runs, one begins with them alone
    #[command(flatten)]
    pub(crate) which: Which,
    /// Workers that a message wakes: one, or all of them, as plain epoll does
    #[arg(long, value_name = "one|all", hide_possible_values = true, default_value_t = Wake::One)]
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
    /// The process that `start` leaves in the background
    #[arg(long, hide = true)]
    pub(crate) detached: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Only the copies of this program
    #[arg(long, short = 's', value_name = "PROGRAM", conflicts_with = "id")]
    pub(crate) name: Option<String>,
    /// Only the worker with this server id
    #[arg(long, short = 'i', value_name = "SRVID", value_parser = integer::<u32>(0..=u32::MAX.into()))]
    pub(crate) id: Option<u32>,
}

/// Workers that a message wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Wake {
    /// One of the workers that wait (EPOLLEXCLUSIVE)
    One,
    /// All of them: the herd, to be measured
    All,
}

impl Wake {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::All => "all",
        }
    }
}

impl std::fmt::Display for Wake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// `pollux pool build-client`
#[derive(Debug, Args)]
pub(crate) struct BuildClientFlags {
    /// The program to make
    #[arg(short, long = "output", value_name = "FILE", default_value = "client")]
    pub(crate) output: PathBuf,
    /// A workstation client of Tuxedo
    #[arg(short = 'w', hide = true)]
    pub(crate) is_workstation: bool,
    /// What a client and a server have.
    #[command(flatten)]
    pub(crate) build: BuildFlags,
}

/// `pollux pool build-server`
#[derive(Debug, Args)]
pub(crate) struct BuildServerFlags {
    /// The program to make
    #[arg(short, long = "output", value_name = "FILE", default_value = "SERVER")]
    pub(crate) output: PathBuf,
    /// Services to offer from the start: A,B (each its own function), A,B:FUNCTION, or @FILE with
    /// one of these in each line; :FUNCTION only links one in
    #[arg(short, long = "services", value_name = "LIST")]
    pub(crate) services: Vec<String>,
    /// Keep the source of main, as FILE.main.c beside the program
    #[arg(short, long)]
    pub(crate) keep: bool,
    /// A server of Tuxedo with several threads
    #[arg(short = 't', hide = true)]
    pub(crate) is_threaded: bool,
    /// What a client and a server have.
    #[command(flatten)]
    pub(crate) build: BuildFlags,
}

/// What both have.
#[derive(Debug, Args)]
pub(crate) struct BuildFlags {
    /// Sources and objects
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<OsString>,
    /// Sources, objects and flags before the library; several may stand in one, between blanks
    #[arg(short, visible_short_alias = 'a', long, value_name = "FILE", allow_hyphen_values = true)]
    pub(crate) first: Vec<String>,
    /// The same, behind the library
    #[arg(short, long, value_name = "FILE", allow_hyphen_values = true)]
    pub(crate) last: Vec<String>,
    /// Print the compiler's command
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// `pollux pool lay-out`, for installers: what C programs are built with, below a prefix.
#[derive(Debug, Args)]
pub(crate) struct LayOutFlags {
    /// The folder that gets include and lib
    #[arg(value_name = "PREFIX")]
    pub(crate) prefix: PathBuf,
    /// The library as cargo built it
    #[arg(long, value_name = "FILE")]
    pub(crate) library: PathBuf,
}

/// `pollux fld`, and `pollux pool fld`
#[derive(Debug, Args)]
pub(crate) struct FldFlags {
    /// Field tables; without any, those that FLDTBLDIR and FIELDTBLS name, else FLDTBLDIR32 and FIELDTBLS32
    #[arg(value_name = "TABLE")]
    pub(crate) tables: Vec<PathBuf>,
    /// Folder for what is written; it is made if need be [default: that of each table]
    #[arg(short = 'd', long = "dir", value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// What is written
    #[arg(short = 'm', long, value_enum, default_value_t = Language::C)]
    pub(crate) lang: Language,
}

/// `mkfldhdr`, with the flags that manuals name
#[derive(Debug, Args)]
pub(crate) struct MkfldhdrFlags {
    /// Field tables; without any, those that FLDTBLDIR and FIELDTBLS name
    #[arg(value_name = "TABLE")]
    pub(crate) tables: Vec<PathBuf>,
    /// Folder for what is written, which is there
    #[arg(short = 'd', value_name = "DIR", default_value = ".")]
    pub(crate) folder: PathBuf,
    /// What is written: 0 a C header, 1 constants of Go, 2 a class of Java, 3 a module of Python
    #[arg(short = 'm', value_name = "LANGUAGE", default_value_t = 0, value_parser = integer::<u8>(0..=3))]
    pub(crate) language: u8,
    /// The package of Go or Java
    #[arg(short = 'p', value_name = "PACKAGE", default_value = "")]
    pub(crate) package: String,
    /// Not looked at
    #[arg(short = 'D', value_name = "LEVEL")]
    pub(crate) debug_level: Option<String>,
}

/// `pollux pool call`
#[derive(Debug, Args)]
pub(crate) struct ServiceCallFlags {
    /// The service
    #[arg(value_name = "SERVICE")]
    pub(crate) service: String,
    /// Fields to send, a line with name, tab and value for each, as Bprint prints them; - is standard input
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub(crate) fields: PathBuf,
    /// Fields are a JSON object, and so is what is printed
    #[arg(long)]
    pub(crate) json: bool,
    /// Send this text in a STRING buffer, and read no fields
    #[arg(long, value_name = "TEXT", conflicts_with = "fields")]
    pub(crate) string: Option<String>,
    /// Seconds that the call may take [default: NDRX_TOUT, else that of the pool]
    #[arg(long, value_name = "SECONDS", value_parser = integer::<u32>(1..=u32::MAX.into()))]
    pub(crate) timeout: Option<u32>,
    /// Send, and wait for no reply
    #[arg(long = "no-reply")]
    pub(crate) is_without_reply: bool,
}

/// `pollux pool convert`
#[derive(Debug, Args)]
pub(crate) struct ConvertFlags {
    /// The UBBCONFIG, as tmloadcf takes it and tmunloadcf prints it
    #[arg(value_name = "UBBCONFIG")]
    pub(crate) file: PathBuf,
    /// The machine whose servers are taken, by its name in the pool [default: the first of MASTER]
    #[arg(long, value_name = "LMID")]
    pub(crate) machine: Option<String>,
    /// Write to this file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Write what a shell reads before the pool is started to this file: variables, and the folder to start in
    #[arg(short, long, value_name = "FILE")]
    pub(crate) environment: Option<PathBuf>,
    /// Leave out the notes on what is not needed here
    #[arg(long = "no-notes")]
    pub(crate) is_without_notes: bool,
}

/// `pollux pool viewc`
#[derive(Debug, Args)]
pub(crate) struct ViewFlags {
    /// Files of views: each becomes NAME.h and NAME.V
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Do not look whether the field tables have the fields of the members
    #[arg(short = 'n', long = "no-fields")]
    pub(crate) is_without_fields: bool,
    /// Folder for the compiled files; headers are written to the one that it is called in [default: that one]
    #[arg(short = 'd', long = "dir", value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Of Enduro/X: where libraries of its own small program are
    #[arg(short = 'L', hide = true)]
    pub(crate) libraries: Option<PathBuf>,
    /// Of Enduro/X: flags for the compiler of that program
    #[arg(short = 'b', hide = true, allow_hyphen_values = true)]
    pub(crate) compiler_flags: Option<String>,
    /// Of Enduro/X: the language, C
    #[arg(short = 'm', hide = true, value_parser = ["0"])]
    pub(crate) language: Option<String>,
}

/// What is written for a table.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Language {
    /// A header with a define for each field: TABLE.h
    C,
    /// A module with a constant for each field: TABLE.rs, with _ for what a module name cannot have
    Rust,
}
