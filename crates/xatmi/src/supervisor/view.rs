//! A worker as tables show it.
//!
//! The pool reads it for its tables and for orders that wait; it is a copy of one moment.

use std::time::Duration;

/// One worker, for tables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberView {
    /// Its id.
    pub id: u32,
    /// Its program.
    pub program: String,
    /// What it is doing.
    pub state: State,
    /// How long it has been doing so.
    pub age: Duration,
    /// Whether a stop that is under way is followed by a start.
    pub starts_again: bool,
    /// Until the next start of one that waits for it, as far as that is known.
    pub next_start: Option<Duration>,
    /// Processes started so far.
    pub starts: u32,
    /// Failures in a row.
    pub failures: u32,
    /// Why it is not up, as far as that is known.
    pub cause: Option<String>,
}

/// What a worker is doing, in a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Not running, not wanted.
    Down,
    /// About to be started.
    Queued,
    /// Started, not ready.
    Starting,
    /// Ready.
    Up,
    /// Gives no answer to pings, or did not report to the new manager, and may not be killed.
    Silent,
    /// Told to stop.
    Stopping,
    /// Being sent signals.
    Killing,
    /// Died; will be started again.
    Waiting,
    /// Of an earlier manager, has not reported yet.
    Orphan,
}

impl State {
    /// The word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Queued => "queued",
            Self::Starting => "starting",
            Self::Up => "up",
            Self::Silent => "silent",
            Self::Stopping => "stopping",
            Self::Killing => "killing",
            Self::Waiting => "waiting",
            Self::Orphan => "orphan",
        }
    }
}
