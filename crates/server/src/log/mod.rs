//! What a server writes down: its answers, and what goes wrong with it.
//!
//! | part | one job |
//! |---|---|
//! | `access`, `line` | the access log of one loop, and its lines |
//! | `error`, `event` | the error log of the server, and what it can say |
//! | `sink` | lines for a file or a stream, written without waiting |

mod access;
mod error;
mod event;
mod line;
mod sink;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

pub(crate) use access::AccessLog;
pub(crate) use error::ErrorLog;
pub(crate) use error::{ErrorWriter, unix_s};
pub(crate) use event::Event;
pub(crate) use line::{Entry, Proxied};

use crate::ServerError;
use crate::config::{LogLevel, LogTarget};

/// What the loops of one server share for their logs; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Logs {
    reopened: Arc<AtomicU64>,
    /// Whether the access log ends in the middle of a line.
    is_torn: Arc<AtomicBool>,
    pub(crate) errors: Arc<ErrorLog>,
}

/// Whether this log could be opened; nothing is made.
///
/// # Errors
/// [`ServerError::Log`] with the path.
pub(crate) fn check(log: &'static str, target: &LogTarget) -> Result<(), ServerError> {
    let failed = |cause| ServerError::Log { log, path: target.path(), cause };
    sink::Sink::check(target).map_err(failed)
}

impl Logs {
    /// Logs whose error log has nothing below this level.
    #[must_use]
    pub fn new(level: LogLevel) -> Self {
        Self::of("serve", level)
    }

    /// Those of `pollux COMMAND`.
    pub(crate) fn of(command: &'static str, level: LogLevel) -> Self {
        let errors = Arc::new(ErrorLog::of(command, level));
        Self { reopened: Arc::default(), is_torn: Arc::default(), errors }
    }

    /// Has every access log open its file again at its loop's next turn. From any thread.
    pub fn reopen(&self) {
        self.reopened.fetch_add(1, Relaxed);
    }

    /// How often that was asked for.
    fn reopens(&self) -> u64 {
        self.reopened.load(Relaxed)
    }
}
