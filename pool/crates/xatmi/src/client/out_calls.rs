//! The calls of one client that are out, and the replies that came for them and are kept until asked for.
//!
//! [`Calls`] is bookkeeping alone: `receive.rs` matches and delivers the replies.
//!
//! ```text
//!           open               keep (a reply before it is asked for)
//!   free ─────────▶ out ──────────────────────▶ kept
//!     ▲              │ close (reply, cancel)      │ close
//!     └──────────────┴────────────────────────────┘
//!
//!   call id:    63 ........ 14 | 13 .. 0        descriptor:  30 ........ 14 | 13 .. 0
//!               sequence       | slot                        1 + sequence   | slot
//!                                                            mod 131071
//! ```
//!
//! The sequence grows with every call, so a late reply matches no later call, and a descriptor is
//! not given out again before 131,071 more calls were made.

use std::collections::VecDeque;

use super::Descriptor;
use crate::buffer::BufferType;
use crate::error::{Code, Error};
use crate::wire::Reply;

/// The most calls that are out at once, as the specification's implementations have it.
pub const DESCRIPTORS_MAX: usize = 1 << SLOT_BITS;

const SLOT_BITS: u32 = 14;
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;
/// Sequences that descriptors distinguish: positive numbers of 31 bits hold so many.
const SEQUENCES: u64 = (1 << (31 - SLOT_BITS)) - 1;

/// All calls of a client.
#[derive(Debug, Default)]
pub(super) struct Calls {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Calls whose reply has not come.
    out: usize,
    /// Calls whose reply is kept.
    kept: usize,
    /// Call ids in the order in which their replies were kept; some were closed since.
    order: VecDeque<u64>,
    sequence: u64,
}

#[derive(Debug)]
pub(super) struct Slot {
    call_id: u64,
    state: State,
    /// When its caller stops waiting, in nanoseconds of the monotonic clock; 0 for never.
    pub(super) deadline_ns: u64,
    /// The memfd that its request waits in; 0 for none.
    pub(super) large_inode: u64,
}

#[derive(Debug)]
enum State {
    Free,
    Out,
    Kept(Kept),
}

/// A reply that came before it was asked for, with its data.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) error: Option<Code>,
    pub(super) rval: i32,
    pub(super) urcode: i64,
    pub(super) is_abort_only: bool,
    pub(super) buffer_type: Option<BufferType>,
    pub(super) buffer_size_bytes: u64,
    pub(super) has_info: bool,
    pub(super) bytes: Vec<u8>,
}

impl Kept {
    /// The head of `reply` with its data, wherever they were.
    pub(super) fn new(reply: &Reply<'_>, bytes: Vec<u8>) -> Self {
        Self {
            error: reply.error,
            rval: reply.rval,
            urcode: reply.urcode,
            is_abort_only: reply.is_abort_only,
            buffer_type: reply.payload.buffer_type,
            buffer_size_bytes: reply.payload.buffer_size_bytes,
            has_info: reply.payload.has_info,
            bytes,
        }
    }
}

impl Calls {
    /// A number for a call without a reply.
    pub(super) fn unanswered_id(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence << SLOT_BITS
    }

    /// Opens a call and gives its id.
    ///
    /// # Errors
    /// TPELIMIT when [`DESCRIPTORS_MAX`] are open.
    pub(super) fn open(&mut self, deadline_ns: u64) -> Result<u64, Error> {
        let slot = match self.free.pop() {
            Some(slot) => slot as usize,
            None if self.slots.len() == DESCRIPTORS_MAX => {
                let detail =
                    format!("{DESCRIPTORS_MAX} calls are out: take replies or cancel some");
                return Err(Error::new(Code::Limit, detail));
            }
            None => {
                let state = State::Free;
                self.slots.push(Slot { call_id: 0, state, deadline_ns, large_inode: 0 });
                self.slots.len() - 1
            }
        };
        self.sequence += 1;
        let call_id = (self.sequence << SLOT_BITS) | slot as u64;
        self.slots[slot] = Slot { call_id, state: State::Out, deadline_ns, large_inode: 0 };
        self.out += 1;
        Ok(call_id)
    }

    /// The open call with this id, its reply kept or not.
    pub(super) fn get_mut(&mut self, call_id: u64) -> Option<&mut Slot> {
        let slot = self.slots.get_mut((call_id & SLOT_MASK) as usize)?;
        (slot.call_id == call_id && !matches!(slot.state, State::Free)).then_some(slot)
    }

    /// Whether the call with this id is open and its reply has not come.
    pub(super) fn is_out(&mut self, call_id: u64) -> bool {
        self.get_mut(call_id).is_some_and(|slot| matches!(slot.state, State::Out))
    }

    /// The id of the open call with this descriptor.
    pub(super) fn find(&self, descriptor: Descriptor) -> Option<u64> {
        let number = u64::try_from(descriptor.number()).ok()?;
        let slot = self.slots.get((number & SLOT_MASK) as usize)?;
        let is_open = !matches!(slot.state, State::Free);
        (is_open && descriptor_of(slot.call_id) == descriptor).then_some(slot.call_id)
    }

    /// Keeps the reply of a call that is out, until it is asked for.
    pub(super) fn keep(&mut self, call_id: u64, kept: Kept) {
        debug_assert!(self.is_out(call_id), "the caller looked");
        if let Some(slot) = self.get_mut(call_id) {
            slot.state = State::Kept(kept);
            self.out -= 1;
            self.kept += 1;
            self.order.push_back(call_id);
        }
    }

    /// The call whose reply was kept first.
    pub(super) fn first_kept(&mut self) -> Option<u64> {
        while let Some(&call_id) = self.order.front() {
            if self.get_mut(call_id).is_some() {
                return Some(call_id);
            }
            self.order.pop_front();
        }
        None
    }

    /// Ends an open call; gives its last state, with the reply if one was kept.
    pub(super) fn close(&mut self, call_id: u64) -> Option<(Slot, Option<Kept>)> {
        let freed = Slot { call_id: 0, state: State::Free, deadline_ns: 0, large_inode: 0 };
        let mut slot = std::mem::replace(self.get_mut(call_id)?, freed);
        self.free.push((call_id & SLOT_MASK) as u32);
        let kept = match std::mem::replace(&mut slot.state, State::Free) {
            State::Kept(kept) => {
                self.kept -= 1;
                self.forget_closed();
                Some(kept)
            }
            State::Out | State::Free => {
                self.out -= 1;
                None
            }
        };
        Some((slot, kept))
    }

    /// Calls whose reply has not come.
    pub(super) fn out(&self) -> usize {
        self.out
    }

    /// The ids of those, in no order.
    pub(super) fn ids_out(&self) -> Vec<u64> {
        let out = self.slots.iter().filter(|slot| matches!(slot.state, State::Out));
        out.map(|slot| slot.call_id).collect()
    }

    /// Keeps the order of kept replies at most twice as long as there are some, and a few.
    fn forget_closed(&mut self) {
        if self.order.len() > 2 * self.kept + 16 {
            let mut order = std::mem::take(&mut self.order);
            order.retain(|call_id| self.get_mut(*call_id).is_some());
            self.order = order;
        }
    }
}

/// The descriptor of the call with this id.
pub(super) fn descriptor_of(call_id: u64) -> Descriptor {
    let sequence = 1 + (call_id >> SLOT_BITS) % SEQUENCES;
    let number = (sequence << SLOT_BITS) | (call_id & SLOT_MASK);
    Descriptor(i32::try_from(number).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// A call in the model: its deadline, and when its reply was kept.
    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Known {
        deadline_ns: u64,
        kept_at: Option<usize>,
    }

    fn kept(mark: i64) -> Kept {
        let bytes = Vec::new();
        let buffer_type = None;
        let error = None;
        let rval = 0;
        let is_abort_only = false;
        let buffer_size_bytes = 0;
        let has_info = false;
        Kept {
            error,
            rval,
            urcode: mark,
            is_abort_only,
            buffer_type,
            buffer_size_bytes,
            has_info,
            bytes,
        }
    }

    fn check(calls: &mut Calls, model: &BTreeMap<u64, Known>) {
        let out = model.values().filter(|known| known.kept_at.is_none()).count();
        assert_eq!((calls.out(), calls.kept), (out, model.len() - out));
        let first = model.iter().filter(|(_, known)| known.kept_at.is_some());
        let first = first.min_by_key(|(_, known)| known.kept_at).map(|(call_id, _)| *call_id);
        assert_eq!(calls.first_kept(), first);
        for (&call_id, known) in model {
            assert_eq!(calls.find(descriptor_of(call_id)), Some(call_id));
            assert_eq!(calls.is_out(call_id), known.kept_at.is_none());
            assert_eq!(
                calls.get_mut(call_id).map(|slot| slot.deadline_ns),
                Some(known.deadline_ns)
            );
        }
    }

    proptest! {
        /// Opened, kept and closed at random, beside a map that does the same.
        #[test]
        fn calls_do_what_a_map_does(steps in vec((0..4_u8, any::<prop::sample::Index>()), 1..120)) {
            let mut calls = Calls::default();
            let mut model = BTreeMap::<u64, Known>::new();
            let mut ended = Vec::new();
            for (step, (what, which)) in steps.into_iter().enumerate() {
                let ids: Vec<u64> = model.keys().copied().collect();
                match what {
                    0 => {
                        let call_id = calls.open(step as u64).expect("far from the limit");
                        assert!(!ended.contains(&call_id), "an id was given out twice");
                        let known = Known { deadline_ns: step as u64, kept_at: None };
                        assert_eq!(model.insert(call_id, known), None);
                    }
                    1 if !ids.is_empty() => {
                        let call_id = *which.get(&ids);
                        let known = model.get_mut(&call_id).expect("it is open");
                        if known.kept_at.is_none() {
                            known.kept_at = Some(step);
                            calls.keep(call_id, kept(step as i64));
                        }
                    }
                    2 if !ids.is_empty() => {
                        let call_id = *which.get(&ids);
                        let known = model.remove(&call_id).expect("it is open");
                        let (slot, reply) = calls.close(call_id).expect("it is open");
                        assert_eq!(slot.deadline_ns, known.deadline_ns);
                        assert_eq!(reply.map(|kept| kept.urcode as usize), known.kept_at);
                        ended.push(call_id);
                    }
                    _ => {
                        for &call_id in &ended {
                            assert!(calls.get_mut(call_id).is_none() && !calls.is_out(call_id));
                            assert_eq!(calls.find(descriptor_of(call_id)), None);
                            assert!(calls.close(call_id).is_none());
                        }
                    }
                }
                check(&mut calls, &model);
            }
        }
    }

    #[test]
    fn the_order_of_kept_replies_does_not_grow_without_end() {
        let mut calls = Calls::default();
        let first = calls.open(0).expect("room");
        calls.keep(first, kept(0));
        for _ in 0..1000 {
            let call_id = calls.open(0).expect("room");
            calls.keep(call_id, kept(0));
            calls.close(call_id).expect("it is open");
        }
        assert!(calls.order.len() < 32, "{} remembered", calls.order.len());
        assert_eq!(calls.first_kept(), Some(first));
    }

    #[test]
    fn descriptors_are_positive_at_both_ends() {
        for sequence in [1, SEQUENCES - 1, SEQUENCES, SEQUENCES + 1] {
            for slot in [0, SLOT_MASK] {
                let number = descriptor_of((sequence << SLOT_BITS) | slot).number();
                assert!(number >= 1 << SLOT_BITS, "{number}");
            }
        }
        let largest = descriptor_of(((SEQUENCES - 1) << SLOT_BITS) | SLOT_MASK);
        assert_eq!(largest.number(), i32::MAX);
    }
}
