//! One descriptor in words, for a person who asks what a loop waits for.
//!
//! Every invariant of the table, for tests and for a person who does not trust a running loop.
//!
//! Reads each slot, changes nothing. The verbs never call it.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use pollux_poller::{Token, Trigger};

use super::entry::{Entry, NO_SLOT, Side, State};
use super::updates::is_settled;
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

impl<F> FdTable<F> {
    /// Says what is wrong with the table, if anything is: a bug of the table.
    ///
    /// Reads every slot: about a nanosecond for each.
    ///
    /// # Errors
    /// The first invariant that does not hold, and where.
    pub fn check(&self) -> Result<(), String> {
        self.check_sizes()?;
        self.check_free_list()?;
        self.check_updates()?;
        for (slot, entry) in self.entries.iter().enumerate() {
            check_entry(entry)
                .map_err(|wrong| format!("slot {slot}: {wrong}: {:?}", entry.state))?;
        }
        Ok(())
    }

    fn check_sizes(&self) -> Result<(), String> {
        let live = self.entries.iter().filter(|entry| entry.fd.is_some()).count();
        holds(live == self.len, || format!("{live} live slots, but len is {}", self.len))?;
        let (slots, slots_max) = (self.entries.len(), self.slots_max);
        holds(slots <= slots_max, || format!("{slots} slots, more than {slots_max}"))
    }

    fn check_free_list(&self) -> Result<(), String> {
        let free = self.entries.len() - self.len;
        let mut next = self.first_free;
        for _ in 0..free {
            let entry = self.entries.get(next as usize);
            let entry = entry.ok_or_else(|| format!("the free list names slot {next}"))?;
            holds(entry.fd.is_none(), || format!("slot {next} is live and on the free list"))?;
            next = entry.next_free;
        }
        holds(next == NO_SLOT, || format!("the free list does not end after {free} slots"))
    }

    fn check_updates(&self) -> Result<(), String> {
        let listed = &self.updates.slots;
        let is_marked = |slot: &u32| {
            self.entries.get(*slot as usize).is_some_and(|entry| entry.state.is_pending())
        };
        if let Some(slot) = listed.iter().find(|slot| !is_marked(slot)) {
            return Err(format!("slot {slot} is on the update list without its mark"));
        }
        // As many marks as places, and each place marked: each is there once.
        let marked = self.entries.iter().filter(|entry| entry.state.is_pending()).count();
        holds(marked == listed.len(), || {
            format!("{marked} slots are marked, {} are on the update list", listed.len())
        })
    }
}

fn check_entry<F>(entry: &Entry<F>) -> Result<(), String> {
    let state = entry.state;
    let rule = |is_kept: bool, wrong: &str| holds(is_kept, || wrong.to_owned());
    rule(entry.generation < Token::GENERATIONS, "the generation is too big")?;
    if entry.fd.is_none() {
        let mut blank = state;
        blank.set_pending(false);
        return rule(blank == State::FREE, "a free slot remembers something");
    }
    rule(entry.next_free == NO_SLOT, "a live slot is linked to a free one")?;
    rule(is_settled(state) || state.is_pending(), "a wish is neither registered nor on the list")?;
    rule(state.is_registered() || !state.is_polled_at_all(), "polled but not registered")?;
    rule(
        !state.is_hung_up() || Side::BOTH.iter().all(|side| state.is_shut(*side)),
        "half hung up",
    )?;
    if let Watch::Listener { .. } = state.watch() {
        let is_writing = state.is_wanted(Side::Write) || state.is_polled(Side::Write);
        rule(!is_writing, "a listener writes")?;
        rule(!state.is_closed(), "a listener keeps an error")?;
    }
    rule(
        !state.is_edge() || state.is_polled(Side::Read) || !state.is_polled(Side::Write),
        "an edge watches for room alone",
    )
}

fn holds(is_kept: bool, wrong: impl FnOnce() -> String) -> Result<(), String> {
    if is_kept { Ok(()) } else { Err(wrong()) }
}
