//! The update list: which registrations may have to change, what the change is, and carrying it out.
//!
//! The verbs of the table put a slot on the list, at most once, and [`is_settled`] says whether that is
//! needed; the loop empties the list once a turn, just before it waits. What cancelled out by then costs
//! nothing. [`update_of`] is one pure function for all pollers and triggers:
//!
//! ```text
//!                      for each direction, while no error is known
//!   wanted │ ready │ the kernel…                          level, oneshot
//!  ────────┼───────┼──────────────────────────────────────────────────────────────────
//!     1    │   –   │ has to know                          registered unless it was
//!     0    │   1   │ must not know: it would ring in vain taken back if it was registered
//!     0    │   0   │ may know                             left as it is; reading rides
//!          │       │                                      along with what changes anyway
//!   error, hang-up │ rings whatever is registered         taken out, once
//!
//!   edge: reading is registered at the first interest of any and writing at the first interest to write,
//!   which a full socket makes; each once, and never taken back
//! ```

use std::os::fd::AsFd;

use pollux_poller::{Error, Interest, Poller, Registration, Token, Trigger};

use super::entry::{Direction, Entry, State};
use super::{FdTable, Watch};
use crate::{Counter, Counters};

/// Slots to go through before the next wait, in the order in which they were named.
#[derive(Debug, Default)]
pub(super) struct Updates {
    pub(super) slots: Vec<u32>,
    /// How often something was put on the list, also when it stood there already.
    asked: u64,
}

impl Updates {
    /// Reserves one mention of each of `slots` slots, so that asking never allocates.
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
    /// Passes what changed since the last call to `poller`: once a turn, just before the wait.
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
            match submit_update(entry, slot, poller, has_rdhup) {
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

/// Carries out the update of one entry; says whether there was one.
fn submit_update<F: AsFd>(
    entry: &mut Entry<F>,
    slot: u32,
    poller: &mut dyn Poller,
    has_rdhup: bool,
) -> Result<bool, Error> {
    // The slot was freed since it was put on the list.
    let Some(fd) = &entry.fd else { return Ok(false) };
    let fd = fd.as_fd();
    let token = entry.token(slot);
    match update_of(entry.state, has_rdhup) {
        None => return Ok(false),
        Some(Update::Add(how)) => {
            poller.add(fd, token, how)?;
            entry.state.registered(Some(how));
        }
        Some(Update::Modify(how)) => {
            poller.modify(fd, token, how)?;
            entry.state.registered(Some(how));
        }
        Some(Update::Delete) => {
            poller.delete(fd)?;
            entry.state.registered(None);
        }
    }
    Ok(true)
}

/// A change of the registration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Update {
    Add(Registration),
    Modify(Registration),
    Delete,
}

/// The change that brings the kernel from what is registered to what is wanted, if any is needed.
fn update_of(state: State, has_rdhup: bool) -> Option<Update> {
    if is_settled(state) {
        return None;
    }
    let how = match state.watch() {
        Watch::Connection(trigger @ Trigger::Edge) => {
            let is_writing = state.is_wanted(Direction::Write) || state.is_polled(Direction::Write);
            let writing = if is_writing { Interest::WRITABLE } else { Interest::NONE };
            Registration::new(reading(has_rdhup) | writing, trigger)
        }
        Watch::Connection(trigger) => Registration::new(target(state, has_rdhup), trigger),
        Watch::Listener { exclusive } => {
            let interest = target(state, false);
            Registration { interest, trigger: Trigger::Level, exclusive }
        }
    };
    Some(match (state.is_registered(), how.interest.is_empty()) {
        (_, true) => Update::Delete,
        (true, false) => Update::Modify(how),
        (false, false) => Update::Add(how),
    })
}

/// Whether the registration needs no change.
#[inline]
pub(super) fn is_settled(state: State) -> bool {
    if state.is_edge() {
        return state.is_closed() || !state.has_unpolled_interest();
    }
    if state.is_closed() {
        return !state.is_polled_at_all();
    }
    !state.has_unpolled_interest() && !state.rings_in_vain()
}

/// What to register when something is registered at all.
fn target(state: State, has_rdhup: bool) -> Interest {
    if state.is_closed() {
        return Interest::NONE;
    }
    let mut interest = Interest::NONE;
    if state.is_wanted(Direction::Read) || !state.is_ready(Direction::Read) {
        interest |= reading(has_rdhup);
    }
    if state.is_wanted(Direction::Write) {
        interest |= Interest::WRITABLE;
    }
    interest
}

/// The end of the input comes with the input.
fn reading(has_rdhup: bool) -> Interest {
    let end = if has_rdhup { Interest::RDHUP } else { Interest::NONE };
    Interest::READABLE | end
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same rules, said slowly: sets of directions instead of bits.
    fn naive_update(state: State, has_rdhup: bool) -> Option<Update> {
        let set = |holds: fn(State, Direction) -> bool| -> Vec<Direction> {
            Direction::BOTH.into_iter().filter(|side| holds(state, *side)).collect()
        };
        let wanted = set(State::is_wanted);
        let ready = set(State::is_ready);
        let polled = set(State::is_polled);
        let interest: Vec<Direction> = match state.watch() {
            Watch::Connection(Trigger::Edge) => {
                if state.is_closed() || wanted.iter().all(|side| polled.contains(side)) {
                    return None;
                }
                let is_writing =
                    wanted.contains(&Direction::Write) || polled.contains(&Direction::Write);
                let interest = if is_writing { &Direction::BOTH[..] } else { &[Direction::Read] };
                let how = how(state, interest, has_rdhup);
                return Some(if state.is_registered() {
                    Update::Modify(how)
                } else {
                    Update::Add(how)
                });
            }
            _ if state.is_closed() => Vec::new(),
            _ => {
                let is_missing = wanted.iter().any(|side| !polled.contains(side));
                let is_in_vain =
                    polled.iter().any(|side| !wanted.contains(side) && ready.contains(side));
                if !is_missing && !is_in_vain {
                    return None;
                }
                let mut interest = wanted.clone();
                if !wanted.contains(&Direction::Read) && !ready.contains(&Direction::Read) {
                    interest.push(Direction::Read);
                }
                interest
            }
        };
        match (interest.is_empty(), polled.is_empty(), state.is_registered()) {
            (true, true, _) => None,
            (true, false, _) => Some(Update::Delete),
            (false, _, true) => Some(Update::Modify(how(state, &interest, has_rdhup))),
            (false, _, false) => Some(Update::Add(how(state, &interest, has_rdhup))),
        }
    }

    fn how(state: State, sides: &[Direction], has_rdhup: bool) -> Registration {
        let is_listener = matches!(state.watch(), Watch::Listener { .. });
        let mut interest = Interest::NONE;
        for side in sides {
            interest |= match side {
                Direction::Read if has_rdhup && !is_listener => {
                    Interest::READABLE | Interest::RDHUP
                }
                Direction::Read => Interest::READABLE,
                Direction::Write => Interest::WRITABLE,
            };
        }
        match state.watch() {
            Watch::Connection(trigger) => Registration::new(interest, trigger),
            Watch::Listener { exclusive } => {
                Registration { interest, trigger: Trigger::Level, exclusive }
            }
        }
    }

    fn all() -> impl Iterator<Item = (State, bool)> {
        let states = (0..State::COMBINATIONS).filter_map(State::nth);
        states.flat_map(|state| [(state, false), (state, true)])
    }

    #[test]
    fn over_all_inputs_the_update_is_the_naive_one() {
        let mut inputs = 0;
        for (state, has_rdhup) in all() {
            assert_eq!(update_of(state, has_rdhup), naive_update(state, has_rdhup), "{state:?}");
            inputs += 1;
        }
        assert_eq!(inputs, 5 * 2 * (1 << 11));
    }

    #[test]
    fn over_all_inputs_one_change_settles() {
        for (state, has_rdhup) in all() {
            let mut after = state;
            match update_of(state, has_rdhup) {
                Some(Update::Add(how) | Update::Modify(how)) => after.registered(Some(how)),
                Some(Update::Delete) => after.registered(None),
                None => {}
            }
            assert_eq!(update_of(after, has_rdhup), None, "{state:?} became {after:?}");
        }
    }

    #[test]
    fn over_all_inputs_an_exclusive_registration_is_never_modified_but_to_itself() {
        for (state, has_rdhup) in all() {
            let is_writing = state.is_wanted(Direction::Write) || state.is_polled(Direction::Write);
            let is_kept = state.is_registered() == state.is_polled_at_all();
            let is_exclusive = state.watch() == Watch::Listener { exclusive: true };
            // Only states that a listener can be in: it never writes and never gets sticky.
            if is_exclusive && is_kept && !is_writing && !state.is_closed() {
                let update = update_of(state, has_rdhup);
                assert!(!matches!(update, Some(Update::Modify(_))), "{state:?}: {update:?}");
            }
        }
    }
}
