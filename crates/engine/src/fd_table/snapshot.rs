//! The table looked at from outside: a descriptor in words, for dumps, and every invariant, for tests.
//!
//! Reads slots, changes nothing. The verbs never call it.

use std::os::fd::{AsFd, AsRawFd};

use pollux_poller::{Token, Trigger};

use super::entry::{Entry, NO_SLOT, Side, State};
use super::updates::is_settled;
use super::{FdTable, Watch};

impl<F: AsFd> FdTable<F> {
    /// What is known of the descriptor of `token`, in one line.
    #[must_use]
    pub fn describe(&self, token: Token) -> Option<String> {
        let (fd, state) = (self.fd(token)?.as_raw_fd(), self.state(token)?);
        let watch = match state.watch() {
            Watch::Connection(Trigger::Level) => "level",
            Watch::Connection(Trigger::Edge) => "edge",
            Watch::Connection(Trigger::Oneshot) => "oneshot",
            Watch::Listener { exclusive: false } => "listener",
            Watch::Listener { exclusive: true } => "exclusive listener",
        };
        let sides = Side::BOTH.map(|side| {
            let marks = [
                (state.is_wanted(side), "wanted"),
                (state.is_ready(side), "ready"),
                (state.is_shut(side), "shut"),
                (state.is_polled(side), "polled"),
            ];
            let words = set(&marks);
            if words.is_empty() { "idle".to_owned() } else { words.join("+") }
        });
        let marks = [
            (state.has_error(), "error"),
            (state.is_hung_up(), "hung up"),
            (state.is_registered(), "registered"),
            (state.is_pending(), "update pending"),
        ];
        let (slot, generation, [read, write]) = (token.slot(), token.generation(), sides);
        let line = format!("fd {fd} slot {slot}.{generation} {watch}: read {read}, write {write}");
        Some([&[&*line], &set(&marks)[..]].concat().join("; "))
    }
}

/// The words whose marks are set.
fn set<'a>(marks: &[(bool, &'a str)]) -> Vec<&'a str> {
    marks.iter().filter(|(is_set, _)| *is_set).map(|(_, word)| *word).collect()
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
    rule(
        is_settled(state) || state.is_pending(),
        "an interest is neither registered nor on the list",
    )?;
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
