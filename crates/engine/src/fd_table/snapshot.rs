//! One descriptor in words, for a person who asks what a loop waits for.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use pollux_poller::{Token, Trigger};

use super::entry::{Side, State};
use super::{FdTable, Watch};

/// Everything that the table knows of one descriptor at one moment; prints as one line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FdSnapshot {
    /// The table's name for it: slot and generation.
    pub token: Token,
    /// Its number.
    pub fd: RawFd,
    /// How it is watched.
    pub watch: Watch,
    /// Its input.
    pub read: DirectionSnapshot,
    /// Its output.
    pub write: DirectionSnapshot,
    /// An error was reported.
    pub has_error: bool,
    /// A hang-up was reported.
    pub is_hung_up: bool,
    /// The poller has a registration, armed or not.
    pub is_registered: bool,
    /// It is on the update list.
    pub is_update_pending: bool,
}

/// One direction of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectionSnapshot {
    /// The session wants it.
    pub is_wanted: bool,
    /// It is known not to block.
    pub is_ready: bool,
    /// It has ended.
    pub is_shut: bool,
    /// It is registered with the kernel.
    pub is_polled: bool,
}

impl<F: AsFd> FdTable<F> {
    /// What is known of the descriptor of `token`.
    #[must_use]
    pub fn describe(&self, token: Token) -> Option<FdSnapshot> {
        let (fd, state) = (self.fd(token)?, self.state(token)?);
        Some(FdSnapshot {
            token,
            fd: fd.as_raw_fd(),
            watch: state.watch(),
            read: DirectionSnapshot::new(state, Side::Read),
            write: DirectionSnapshot::new(state, Side::Write),
            has_error: state.has_error(),
            is_hung_up: state.is_hung_up(),
            is_registered: state.is_registered(),
            is_update_pending: state.is_pending(),
        })
    }
}

impl DirectionSnapshot {
    fn new(state: State, side: Side) -> Self {
        Self {
            is_wanted: state.is_wanted(side),
            is_ready: state.is_ready(side),
            is_shut: state.is_shut(side),
            is_polled: state.is_polled(side),
        }
    }
}

impl fmt::Display for FdSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (slot, generation) = (self.token.slot(), self.token.generation());
        let watch = match self.watch {
            Watch::Connection(Trigger::Level) => "level",
            Watch::Connection(Trigger::Edge) => "edge",
            Watch::Connection(Trigger::Oneshot) => "oneshot",
            Watch::Listener { exclusive: false } => "listener",
            Watch::Listener { exclusive: true } => "exclusive listener",
        };
        write!(f, "fd {} slot {slot}.{generation} {watch}: ", self.fd)?;
        write!(f, "read {}, write {}", self.read, self.write)?;
        let marks = [
            (self.has_error, "error"),
            (self.is_hung_up, "hung up"),
            (self.is_registered, "registered"),
            (self.is_update_pending, "update pending"),
        ];
        let set = marks.into_iter().filter(|(is_set, _)| *is_set);
        set.map(|(_, word)| word).try_for_each(|word| write!(f, "; {word}"))
    }
}

impl fmt::Display for DirectionSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let marks = [
            (self.is_wanted, "wanted"),
            (self.is_ready, "ready"),
            (self.is_shut, "shut"),
            (self.is_polled, "polled"),
        ];
        let set: Vec<&str> =
            marks.into_iter().filter(|(is_set, _)| *is_set).map(|(_, word)| word).collect();
        f.write_str(if set.is_empty() { "idle" } else { "" })?;
        f.write_str(&set.join("+"))
    }
}
