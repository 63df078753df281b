//! The first words between a client context and the manager.
//!
//! The client says who it is and keeps the connection open as long as it lives, so that the
//! manager learns at once when it ends, however it ends, and removes its reply queue. The answer
//! tells the sizes that the pool works with. Both are JSON within one message of the control
//! socket; the manager's own messages wrap them.

use serde::{Deserialize, Serialize};

/// The longest message of the control socket that a client reads.
pub const GREETING_LEN_BYTES_MAX: usize = 4096;

/// What a client context says first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClientHello {
    /// Its process.
    pub pid: u32,
    /// Its number within the process.
    pub context: u32,
    /// Its random number, which replies to it carry.
    pub nonce: u64,
    /// The name of its reply queue, with the slash; it is made after the welcome.
    pub queue: String,
    /// What it has in the memory that it worked with so far, when the manager before this one ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<KnownContext>,
}

/// A context in shared memory, which it keeps if the manager works with the same memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KnownContext {
    /// Its number there.
    pub context: u32,
    /// The inode of the file with the requests.
    pub exchange: u64,
}

/// What the manager answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// Bytes of a message, on service queues and reply queues.
    pub message_len_bytes: u32,
    /// Messages that a reply queue holds.
    pub reply_depth: u32,
    /// How long a call may take where the client's environment does not say.
    pub timeout_s: u32,
    /// The name of the pool, for messages.
    pub pool: String,
    /// Where the pool has its requests in shared memory, the number of this context there. The descriptors
    /// of records and exchange come beside the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u32>,
    /// Whether the manager has made the reply queue already: it does so for a client of another user.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_made_queue: bool,
}

/// The client's message, as it is on the socket.
#[derive(Serialize)]
pub(super) enum ToManager {
    Client(ClientHello),
}

/// The manager's answers that a client understands.
#[derive(Deserialize)]
pub(super) enum ToClient {
    Welcome(Welcome),
    Refused { why: String },
    Forbidden { why: String },
}
