//! What a pool is started with, beside its configuration.

use std::fmt;
use std::path::PathBuf;
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
