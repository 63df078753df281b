//! What a pool is started with, beside its configuration, and its log: one line for each event, with the time in UTC.
//!
//! A log that can't be written any more (a full disk, the limit on the size of files) must not end
//! the pool: lines are lost and counted, and the next line that can be written reports how many.

use std::cell::Cell;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use pollux_engine::ListenAddress;
use pollux_sys::mqueue::QueueSize;

use super::SLOTS_SPARE;
use crate::config::PoolConfig;
use crate::environment::{
    DEFAULT_MESSAGE_LEN_BYTES, DEFAULT_TIMEOUT, Environment, MESSAGE_LEN_BYTES_MIN, Transport,
};
use crate::memory::{len_bytes, limits as memory_limits};
use crate::needs::MemoryRoom;
use crate::slots::Slots;
use crate::supervisor::Selection;
use crate::worker::Wake;

/// Depth of a service queue by default: what an unprivileged user may have.
const SERVICE_DEPTH: u32 = 10;
/// Depth of a reply queue. A context takes replies as they come, so two never stall a worker.
const REPLY_DEPTH: u32 = 2;

impl Wake {
    /// The name on command lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::All => "all",
        }
    }
}

impl fmt::Display for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Wake {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = [Self::One, Self::All];
        let found = all.into_iter().find(|known| known.name() == name);
        found.ok_or_else(|| format!("\"{name}\" is neither one nor all"))
    }
}

/// What a pool is started with.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// The configuration file, to be read again on reload.
    pub config: PathBuf,
    /// Prefix, sizes and time-out.
    pub environment: Environment,
    /// How many workers a message wakes.
    pub wake: Wake,
    /// Where metrics are served over HTTP.
    pub metrics: Option<ListenAddress>,
    /// The workers that it begins with; the others are down until they are ordered.
    pub only: Selection,
}

impl PoolOptions {
    /// How requests travel: as the environment says, else the configuration. The herd is one of queues.
    pub(super) fn transport(&self, config: &PoolConfig) -> Transport {
        match self.wake {
            Wake::One => self.environment.transport_of(config),
            Wake::All => Transport::Queues,
        }
    }
}

/// The sizes of a pool's queues and the time-out of its calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Of a service queue.
    pub service: QueueSize,
    /// Of a reply queue.
    pub reply: QueueSize,
    /// How long a call may take.
    pub timeout: Duration,
}

impl Sizes {
    /// What `environment` asks for, within what the kernel allows at this moment.
    #[must_use]
    pub fn new(environment: &Environment) -> Self {
        let depth_limit = limit("msg_max").unwrap_or(SERVICE_DEPTH);
        let len_limit = limit("msgsize_max").unwrap_or(DEFAULT_MESSAGE_LEN_BYTES);
        let depth = environment.messages_max.unwrap_or(SERVICE_DEPTH).min(depth_limit);
        let wanted = environment.message_len_bytes.unwrap_or(DEFAULT_MESSAGE_LEN_BYTES);
        // Where the limit is below what a head needs, `check` says so and no queue is made.
        let message_len_bytes = wanted.min(len_limit).max(MESSAGE_LEN_BYTES_MIN);
        Self {
            service: QueueSize { messages_max: depth, message_len_bytes },
            reply: QueueSize { messages_max: REPLY_DEPTH.min(depth_limit), message_len_bytes },
            timeout: environment.timeout.unwrap_or(DEFAULT_TIMEOUT),
        }
    }
}

/// The most that fits in shared memory in a pool of `workers` with messages of this size.
#[must_use]
pub fn memory_room(workers: u32, sizes: &Sizes) -> MemoryRoom {
    let (services, contexts) =
        memory_limits(workers as usize + SLOTS_SPARE, sizes.service.message_len_bytes);
    MemoryRoom { services: services as u64, contexts: contexts as u64 }
}

/// Bytes of the longest file in memory that a pool of `workers` with messages of this size makes.
#[must_use]
pub fn memory_len_bytes(transport: Transport, workers: u32, sizes: &Sizes) -> u64 {
    let workers = workers as usize + SLOTS_SPARE;
    let slots = Slots::len_bytes(workers);
    match transport {
        Transport::Queues => slots,
        Transport::Memory => slots.max(len_bytes(workers, sizes.service.message_len_bytes)),
    }
}

/// A limit of the kernel for queues (`mq_overview(7)`); none where it can't be read.
fn limit(name: &str) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/sys/fs/mqueue/{name}")).ok()?;
    text.trim().parse().ok()
}

/// Where the manager writes, and its workers without a file of their own.
#[derive(Debug)]
pub struct Log {
    file: File,
    path: Option<PathBuf>,
    /// Lines that could not be written: all, and those of which the log does not speak yet.
    lost: Cell<u64>,
    unreported: Cell<u64>,
}

impl Log {
    /// Appends to `path`, which is made if need be.
    ///
    /// # Errors
    /// What `open(2)` gives.
    pub fn append_to(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self::to(file, Some(path.to_owned())))
    }

    /// Writes to standard error.
    ///
    /// # Errors
    /// EMFILE, or standard error is closed.
    pub fn to_standard_error() -> io::Result<Self> {
        use std::os::fd::AsFd;
        let file = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        Ok(Self::to(file, None))
    }

    fn to(file: File, path: Option<PathBuf>) -> Self {
        Self { file, path, lost: Cell::default(), unreported: Cell::default() }
    }

    /// The file, unless it is standard error.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Opens the file by its name again: the one that is open may have been moved away.
    ///
    /// # Errors
    /// What `open(2)` gives; lines go to the open one then.
    pub(super) fn open_again(&mut self) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        self.file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(())
    }

    /// A handle for the output of a worker.
    pub(super) fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    pub(super) fn line(&self, text: &str) {
        let now = jiff::Timestamp::now();
        let lost = match self.unreported.get() {
            0 => String::new(),
            lost => format!("{now:.3} {lost} lines before this one could not be written\n"),
        };
        match (&self.file).write_all(format!("{lost}{now:.3} {text}\n").as_bytes()) {
            Ok(()) => self.unreported.set(0),
            Err(_) => {
                self.unreported.update(|lost| lost + 1);
                self.lost.update(|lost| lost + 1);
            }
        }
    }

    /// Lines that could not be written so far.
    pub(super) fn lost(&self) -> u64 {
        self.lost.get()
    }
}
