//! The calls of one client that are out, and the replies that came before they were asked for.
//!
//! Pure bookkeeping: no queue, no clock. The client asks here which call a reply belongs to.
//!
//! ```text
//!           open               keep (a reply that nobody waits for yet)
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
use crate::error::Code;
use crate::wire::Reply;

/// The most calls that are out at once, as the specification's implementations have it.
pub const DESCRIPTORS_MAX: usize = 1 << SLOT_BITS;

const SLOT_BITS: u32 = 14;
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;
/// Sequences as descriptors tell them apart: positive numbers of 31 bits hold so many.
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

/// One call.
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
    pub(super) buffer_type: Option<BufferType>,
    pub(super) buffer_size_bytes: u64,
    pub(super) bytes: Vec<u8>,
}

impl Kept {
    /// The head of `reply` with its data, wherever they were.
    pub(super) fn new(reply: &Reply<'_>, bytes: Vec<u8>) -> Self {
        Self {
            error: reply.error,
            rval: reply.rval,
            urcode: reply.urcode,
            buffer_type: reply.payload.buffer_type,
            buffer_size_bytes: reply.payload.buffer_size_bytes,
            bytes,
        }
    }
}

impl Calls {
    /// A number for a call that nobody waits for.
    pub(super) fn unanswered_id(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence << SLOT_BITS
    }

    /// Opens a call and gives its id; `None` when [`DESCRIPTORS_MAX`] are open.
    pub(super) fn open(&mut self, deadline_ns: u64) -> Option<u64> {
        let slot = match self.free.pop() {
            Some(slot) => slot as usize,
            None if self.slots.len() == DESCRIPTORS_MAX => return None,
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
        Some(call_id)
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
