//! The configuration of a server, checked: from flags, from a TOML file, or from both.
//!
//! [`pollux_settings::Given`] says what was said; `table.rs` is what it is read by. The command line
//! and the lab make one; nothing is opened here.

pub(crate) mod table;

use std::path::PathBuf;
use std::time::Duration;

use pollux_engine::{CpuList, Driver, ListenAddress, Listeners};
use pollux_settings::Given;
use pollux_tls::Keys;

pub use crate::answer_rules::AnswerRule;
pub use crate::sandbox::SandboxMode;
use crate::system::Identity;

/// What requests are answered with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// A fixed body of so many bytes.
    Reply {
        /// Size of the body.
        len_bytes: u64,
        /// Whether head and body are two writes, and TCP_NODELAY is not set: a classic mistake,
        /// kept for showing what it costs.
        is_split: bool,
    },
    /// The body of the request.
    Echo,
    /// The files below a folder.
    Files(Files),
}

/// How the files below a folder are served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Files {
    /// The folder.
    pub root: PathBuf,
    /// Whether folders without `index.html` are listed.
    pub has_listing: bool,
    /// Whether `FILE.br`, `FILE.zst` and `FILE.gz` are served for FILE.
    pub has_precompressed: bool,
    /// Whether text is compressed that does not lie ready so.
    pub compresses: bool,
    /// The file below the folder that is sent for pages that there are none of.
    pub spa: Option<PathBuf>,
}

/// What is added to answers of every kind.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Extras {
    /// What is done to the fields of every answer.
    pub fields: Vec<AnswerRule>,
    /// Origins whose pages may read the answers, or `*` alone for all.
    pub cors: Vec<String>,
    /// Files that are sent with these status codes, in the place of one line of text.
    pub error_pages: Vec<(u16, PathBuf)>,
}

/// Form of a line of the access log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// The NCSA common log format.
    Common,
    /// The same with the page that led there and the client's program behind it.
    Combined,
    /// One JSON object for each answer.
    Json,
}

/// Where a log goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A file that is appended to.
    File(PathBuf),
}

impl LogTarget {
    /// Its path, or the word that stands for it on the command line.
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Self::Stdout => "-".into(),
            Self::Stderr => "stderr".into(),
            Self::File(path) => path.clone(),
        }
    }
}

/// What the error log is told, each level with those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    /// What the server could not do and nobody asked it not to.
    Error,
    /// What costs clients time or answers, and has a remedy.
    Warn,
    /// What the server does by itself or was told to do.
    Info,
    /// What clients did wrong.
    Debug,
}

impl LogLevel {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [Self::Error, Self::Warn, Self::Info, Self::Debug];

    /// Name on the command line and in the log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

/// Times and amounts that a client may take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// For a whole request head, from its first byte; for the first one from the accept.
    pub header_timeout: Duration,
    /// For a request body, beside what `body_rate_min_bytes` allows.
    pub body_timeout: Duration,
    /// Each such amount of body allows a second more; 0 allows none.
    pub body_rate_min_bytes: u64,
    /// Between two requests.
    pub idle_timeout: Duration,
    /// In which something must be taken of what was sent.
    pub write_timeout: Duration,
    /// Output that must be taken in a second while some waits; 0 for any.
    pub read_rate_min_bytes: u64,
    /// For open connections to end once the server drains.
    pub drain_timeout: Duration,
    /// Largest request body.
    pub body_bytes_max: u64,
    /// Most connections at once; none for what the descriptor limit allows.
    pub connections_max: Option<u32>,
}

impl Default for Limits {
    /// As the table of settings says.
    fn default() -> Self {
        Given::default().read().expect("the defaults are right")
    }
}

/// A server's configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServeConfig {
    /// What is answered.
    pub answer: Answer,
    /// What is added to answers.
    pub extras: Extras,
    /// Where; at least one.
    pub listen: Vec<ListenAddress>,
    /// Its certificate, where clients speak TLS at all addresses.
    pub tls: Option<Keys>,
    /// Whom it goes on as once its sockets are open; none for the user that it was started by.
    pub identity: Option<Identity>,
    /// What it gives up once it serves.
    pub sandbox: SandboxConfig,
    /// What runs it.
    pub loops: Loops,
    /// Times and amounts.
    pub limits: Limits,
    /// How it is watched.
    pub watching: Watching,
    /// Whether the time of each request inside its loop is counted.
    pub is_timing_requests: bool,
}

/// What a server gives up once it serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SandboxConfig {
    /// Whether it does.
    pub mode: SandboxMode,
    /// Folders that are in reach beside what the settings name, for what a reload may name.
    pub paths: Vec<PathBuf>,
}

/// What runs a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loops {
    /// On which loop; none for the best that the kernel allows.
    pub poller: Option<Driver>,
    /// Threads, at least one.
    pub threads: usize,
    /// How they share the addresses.
    pub listeners: Listeners,
    /// CPUs that the threads are pinned to in turn.
    pub pin: Option<CpuList>,
    /// Whether loops spin instead of sleeping.
    pub is_busy_polling: bool,
    /// Whether they take error, hang-up and end of stream for readable.
    pub masks_ends: bool,
}

impl Default for Loops {
    /// As the table of settings says.
    fn default() -> Self {
        Given::default().read().expect("the defaults are right")
    }
}

/// How a server is watched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Watching {
    /// The access log; none for no log.
    pub access_log: Option<LogTarget>,
    /// Form of its lines.
    pub access_log_format: LogFormat,
    /// Where the server says what goes wrong.
    pub error_log: LogTarget,
    /// How much it says.
    pub log_level: LogLevel,
    /// Where metrics are served; none for nowhere.
    pub stats: Option<ListenAddress>,
    /// Path of the socket for commands.
    pub control: Option<PathBuf>,
    /// Where the id of the process stands while it runs.
    pub pid_file: Option<PathBuf>,
    /// Whether only errors are printed.
    pub is_quiet: bool,
}

impl Default for Watching {
    /// As the table of settings says.
    fn default() -> Self {
        Given::default().read().expect("the defaults are right")
    }
}
