//! Every invariant of the table.

use pollux_poller::Token;

use crate::fd_table::entry::{Direction, Entry, NO_SLOT, State};
use crate::fd_table::updates::is_settled;
use crate::fd_table::{FdTable, Watch};

impl<F> FdTable<F> {
    /// Says what is wrong with the table, if anything is: the first invariant that does not hold, and where.
    pub(super) fn check(&self) -> Result<(), String> {
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
        let slots = self.entries.len();
        let slots_max = self.slots_max;
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
        !state.is_hung_up() || Direction::BOTH.iter().all(|side| state.is_shut(*side)),
        "half hung up",
    )?;
    if let Watch::Listener { .. } = state.watch() {
        let is_writing = state.is_wanted(Direction::Write) || state.is_polled(Direction::Write);
        rule(!is_writing, "a listener writes")?;
        rule(!state.is_closed(), "a listener keeps an error")?;
    }
    rule(
        !state.is_edge() || state.is_polled(Direction::Read) || !state.is_polled(Direction::Write),
        "an edge watches for room alone",
    )
}

fn holds(is_kept: bool, wrong: impl FnOnce() -> String) -> Result<(), String> {
    if is_kept { Ok(()) } else { Err(wrong()) }
}
