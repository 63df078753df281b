//! What the kernel has to be told of one descriptor: one pure function for all pollers and
//! triggers.
//!
//! The update list calls [`plan`] once for each descriptor and turn, the verbs of the table ask
//! [`is_settled`] whether it is worth a place on that list. Nothing here changes anything.
//!
//! ```text
//!                      for each direction, while no error is known
//!   wanted │ ready │ the kernel…                          level, oneshot
//!  ────────┼───────┼──────────────────────────────────────────────────────────────────
//!     1    │   –   │ has to know                          told unless it was
//!     0    │   1   │ must not know: it would ring in vain taken back if it was told
//!     0    │   0   │ may know                             left as it is; reading rides
//!          │       │                                      along with what is told anyway
//!   error, hang-up │ rings whatever it is told            taken out, once
//!
//!   edge: told of reading at the first wish of any and of writing at the first wish to write,
//!   which a full socket makes; each once, and never taken back
//! ```

use pollux_poller::{Interest, Registration, Trigger};

use super::Watch;
use super::entry::{Side, State};

/// A change of the registration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Op {
    Add(Registration),
    Modify(Registration),
    Delete,
}

/// The change that brings the kernel from what it was told to what is wanted, if any is needed.
pub(super) fn plan(state: State, has_rdhup: bool) -> Option<Op> {
    if is_settled(state) {
        return None;
    }
    let how = match state.watch() {
        Watch::Connection(trigger @ Trigger::Edge) => {
            let is_writing = state.is_wanted(Side::Write) || state.is_polled(Side::Write);
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
        (_, true) => Op::Delete,
        (true, false) => Op::Modify(how),
        (false, false) => Op::Add(how),
    })
}

/// Whether the kernel has to be told nothing.
#[inline]
pub(super) fn is_settled(state: State) -> bool {
    if state.is_edge() {
        return state.is_closed() || !state.is_unheard();
    }
    if state.is_closed() {
        return !state.is_polled_at_all();
    }
    !state.is_unheard() && !state.rings_in_vain()
}

/// What to register when something is registered at all.
fn target(state: State, has_rdhup: bool) -> Interest {
    if state.is_closed() {
        return Interest::NONE;
    }
    let mut interest = Interest::NONE;
    if state.is_wanted(Side::Read) || !state.is_ready(Side::Read) {
        interest |= reading(has_rdhup);
    }
    if state.is_wanted(Side::Write) {
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
    fn naive_plan(state: State, has_rdhup: bool) -> Option<Op> {
        let set = |holds: fn(State, Side) -> bool| -> Vec<Side> {
            Side::BOTH.into_iter().filter(|side| holds(state, *side)).collect()
        };
        let wanted = set(State::is_wanted);
        let ready = set(State::is_ready);
        let told = set(State::is_polled);
        let wish: Vec<Side> = match state.watch() {
            Watch::Connection(Trigger::Edge) => {
                if state.is_closed() || wanted.iter().all(|side| told.contains(side)) {
                    return None;
                }
                let is_writing = wanted.contains(&Side::Write) || told.contains(&Side::Write);
                let wish = if is_writing { &Side::BOTH[..] } else { &[Side::Read] };
                let how = how(state, wish, has_rdhup);
                return Some(if state.is_registered() { Op::Modify(how) } else { Op::Add(how) });
            }
            _ if state.is_closed() => Vec::new(),
            _ => {
                let is_missing = wanted.iter().any(|side| !told.contains(side));
                let is_in_vain =
                    told.iter().any(|side| !wanted.contains(side) && ready.contains(side));
                if !is_missing && !is_in_vain {
                    return None;
                }
                let mut wish = wanted.clone();
                if !wanted.contains(&Side::Read) && !ready.contains(&Side::Read) {
                    wish.push(Side::Read);
                }
                wish
            }
        };
        match (wish.is_empty(), told.is_empty(), state.is_registered()) {
            (true, true, _) => None,
            (true, false, _) => Some(Op::Delete),
            (false, _, true) => Some(Op::Modify(how(state, &wish, has_rdhup))),
            (false, _, false) => Some(Op::Add(how(state, &wish, has_rdhup))),
        }
    }

    fn how(state: State, sides: &[Side], has_rdhup: bool) -> Registration {
        let is_listener = matches!(state.watch(), Watch::Listener { .. });
        let mut interest = Interest::NONE;
        for side in sides {
            interest |= match side {
                Side::Read if has_rdhup && !is_listener => Interest::READABLE | Interest::RDHUP,
                Side::Read => Interest::READABLE,
                Side::Write => Interest::WRITABLE,
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
        let states = (0..State::PLANNED).filter_map(State::nth);
        states.flat_map(|state| [(state, false), (state, true)])
    }

    #[test]
    fn over_all_inputs_the_plan_is_the_naive_one() {
        let mut inputs = 0;
        for (state, has_rdhup) in all() {
            assert_eq!(plan(state, has_rdhup), naive_plan(state, has_rdhup), "{state:?}");
            inputs += 1;
        }
        assert_eq!(inputs, 5 * 2 * (1 << 11));
    }

    #[test]
    fn over_all_inputs_one_change_settles() {
        for (state, has_rdhup) in all() {
            let mut after = state;
            match plan(state, has_rdhup) {
                Some(Op::Add(how) | Op::Modify(how)) => after.told(Some(how)),
                Some(Op::Delete) => after.told(None),
                None => {}
            }
            assert_eq!(plan(after, has_rdhup), None, "{state:?} became {after:?}");
        }
    }

    #[test]
    fn over_all_inputs_an_exclusive_registration_is_never_modified_but_to_itself() {
        for (state, has_rdhup) in all() {
            let is_writing = state.is_wanted(Side::Write) || state.is_polled(Side::Write);
            let is_kept = state.is_registered() == state.is_polled_at_all();
            let is_exclusive = state.watch() == Watch::Listener { exclusive: true };
            // Only states that a listener can be in: it never writes and never gets sticky.
            if is_exclusive && is_kept && !is_writing && !state.is_closed() {
                let planned = plan(state, has_rdhup);
                assert!(!matches!(planned, Some(Op::Modify(_))), "{state:?}: {planned:?}");
            }
        }
    }
}
