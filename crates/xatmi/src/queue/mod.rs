//! The queues of a pool: what they are called, and how clients and workers hold them open.
//!
//! | file | subject |
//! |---|---|
//! | `name` | the prefix of a pool, names of services and of queues |
//! | `cache` | queues of others, held open, a bounded number of them |
//! | `reply` | the queue that a client context makes, reads and removes |
//!
//! Only the manager makes and removes the queues of services. Nobody ever waits in a send: what
//! is full is watched for room instead, because a sender who blocks is handed over by the kernel
//! without waking anybody (`docs/service-calls.md`).

mod cache;
mod name;
mod reply;

pub use cache::{QueueCache, is_withdrawn};
pub use name::{Prefix, PrefixMistake, QueueName, ServiceName};
pub use reply::{ReplyQueue, Waited};
