//! The rows of the tables that a running pool gives: what is in them, in which unit.
//!
//! The manager fills them, the command line shows them, as a table or as JSON under these names.

use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WorkerRow {
    pub program: String,
    /// Its server id.
    pub srvid: u32,
    /// Its process, if there is one.
    pub pid: Option<u32>,
    /// What it is doing, see [`crate::supervisor::State`].
    pub state: String,
    /// Processes that were started for this id before the one that runs.
    pub restarts: u32,
    /// Failures in a row, by which the pause before the next start grows.
    pub failures: u32,
    /// Seconds until that start, of one that waits for it.
    pub next_start_s: Option<u64>,
    /// Seconds since the state began.
    pub since_s: u64,
    /// Whether it is inside a service.
    pub is_busy: bool,
    /// The service that it is inside of.
    #[serde(default)]
    pub service: Option<String>,
    /// Milliseconds since that call began.
    #[serde(default)]
    pub busy_ms: Option<u64>,
    /// Requests given to a service.
    pub calls: u64,
    /// Those that ended otherwise than with success.
    pub failed: u64,
    /// Requests not served, as no caller waited any more.
    pub late: u64,
    /// Replies that could not be delivered.
    pub dropped: u64,
    /// Why it is not up, as far as that is known.
    pub cause: Option<String>,
}

/// A service, as one worker offers it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ServiceRow {
    pub service: String,
    /// The function behind it.
    pub function: String,
    /// The worker's program.
    pub program: String,
    /// The worker's server id.
    pub srvid: u32,
    /// Calls that ended with success.
    pub ok: u64,
    /// Calls that ended otherwise.
    pub failed: u64,
    /// The longest call, in nanoseconds.
    pub max_ns: u64,
    /// The last call, in nanoseconds.
    pub last_ns: u64,
    /// `avail`, `busy` or `down`.
    pub state: String,
}

/// Where the requests for a service wait: its queue, or its ring in shared memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct QueueRow {
    /// Name of the queue; none where requests are in shared memory.
    pub queue: Option<String>,
    pub service: String,
    /// Requests that wait.
    pub depth: u32,
    /// Requests that can wait.
    pub depth_max: u32,
    /// Bytes of a message.
    pub message_len_bytes: u32,
    /// Mean depth at the last ten checks, if `gather_pq_stats` is on and one has been.
    pub average: Option<f64>,
    /// Workers that offer the service.
    pub workers: usize,
    /// Those of them that are inside a service, this one or another.
    pub busy: usize,
    /// Those of them that wait for requests.
    pub idle: usize,
}

/// A client context.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClientRow {
    pub pid: u32,
    /// The program, as the kernel calls it; none when it can't be read any more.
    pub program: Option<String>,
    /// Its number within the process.
    pub context: u32,
    /// Name of its reply queue; none where requests are in shared memory.
    pub queue: Option<String>,
    /// Requests of it that wait, are served, or whose reply it has not taken; none where they travel by
    /// queues.
    pub requests: Option<usize>,
    /// Seconds since it came.
    pub since_s: u64,
}

/// The pool as a whole.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolInfo {
    /// What the names of its queues begin with.
    pub prefix: String,
    /// Process of the manager.
    pub pid: u32,
    /// The configuration file.
    pub config: String,
    /// How requests travel: `memory` or `queues`.
    pub transport: String,
    /// How workers wait: `one` or `all` are woken by a message.
    pub wake: String,
    /// Seconds since the manager began.
    pub since_s: u64,
    /// Whether workers of an earlier manager may still report.
    pub is_learning: bool,
    /// The manager's log; none when it goes to standard error.
    pub log: Option<String>,
    /// Where metrics are served.
    pub metrics: Option<String>,
    /// What happened so far, by name.
    pub counts: Vec<(String, u64)>,
}

/// Where unsolicited messages for a context come to, and what the context called itself.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MailboxRow {
    pub pid: u32,
    /// Its number within the process.
    pub context: u32,
    /// Its random number.
    pub nonce: u64,
    /// `usrname` of its TPINIT.
    pub usrname: String,
    /// `cltname` of its TPINIT.
    pub cltname: String,
}

/// The subscriber of an event: a service or a mailbox.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SubscriberRow {
    /// What the data have to be like; empty for any.
    pub filter: String,
    /// The service that gets it.
    pub service: Option<String>,
    /// The mailbox that gets it, where there is no service.
    pub mailbox: Option<MailboxRow>,
}
