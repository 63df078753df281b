//! The update list: which descriptors the kernel may have to be told of, and the telling.
//!
//! The verbs of the table put a slot on the list, at most once; the loop empties it once a turn,
//! just before it waits. What cancelled out by then costs nothing.

use std::os::fd::AsFd;

use pollux_poller::{Error, Poller, Token};

use super::FdTable;
use super::entry::{Entry, State};
use super::plan::{Op, plan};
use crate::{Counter, Counters};

/// Slots to look at before the next wait, in the order in which they were named.
#[derive(Debug, Default)]
pub(super) struct Updates {
    pub(super) slots: Vec<u32>,
    /// How often something was put on the list, also when it stood there already.
    asked: u64,
}

impl Updates {
    /// Makes room for one mention of each of `slots` slots, so that asking never allocates.
    pub(super) fn reserve_for(&mut self, slots: usize) {
        self.slots.reserve(slots.saturating_sub(self.slots.len()));
    }

    #[inline]
    pub(super) fn ask(&mut self, slot: u32, state: &mut State) {
        self.asked += 1;
        if !state.is_pending() {
            state.set_pending(true);
            self.slots.push(slot);
        }
    }
}

impl<F: AsFd> FdTable<F> {
    /// Tells `poller` what changed since the last call: once a turn, just before the wait.
    ///
    /// Descriptors that it refuses (a full table, a kind that can't be watched) are appended to
    /// `refused` with the reason. Nothing of them is wanted any more; the caller closes them.
    /// Interfaces with deferred changes refuse in the next wait instead, by an error event.
    ///
    /// Books the updates and the stale events of the turn in `counters`.
    pub fn apply(
        &mut self,
        poller: &mut dyn Poller,
        counters: &Counters,
        refused: &mut Vec<(Token, Error)>,
    ) {
        let has_rdhup = poller.caps().rdhup;
        let mut sent = 0;
        for slot in self.updates.slots.drain(..) {
            let entry = &mut self.entries[slot as usize];
            entry.state.set_pending(false);
            match tell(entry, slot, poller, has_rdhup) {
                Ok(is_sent) => sent += u64::from(is_sent),
                Err(error) => {
                    entry.state.refused();
                    refused.push((entry.token(slot), error));
                    sent += 1;
                }
            }
        }
        let asked = std::mem::take(&mut self.updates.asked);
        counters.add(Counter::UpdatesAsked, asked);
        counters.add(Counter::UpdatesSent, sent);
        counters.add(Counter::UpdatesMerged, asked - sent);
        counters.add(Counter::Stale, std::mem::take(&mut self.stale));
    }
}

/// Carries out the plan for one entry; says whether there was anything to do.
fn tell<F: AsFd>(
    entry: &mut Entry<F>,
    slot: u32,
    poller: &mut dyn Poller,
    has_rdhup: bool,
) -> Result<bool, Error> {
    // The slot was freed since it was put on the list.
    let Some(fd) = &entry.fd else { return Ok(false) };
    let (fd, token) = (fd.as_fd(), entry.token(slot));
    match plan(entry.state, has_rdhup) {
        None => return Ok(false),
        Some(Op::Add(how)) => {
            poller.add(fd, token, how)?;
            entry.state.told(Some(how));
        }
        Some(Op::Modify(how)) => {
            poller.modify(fd, token, how)?;
            entry.state.told(Some(how));
        }
        Some(Op::Delete) => {
            poller.delete(fd)?;
            entry.state.told(None);
        }
    }
    Ok(true)
}
