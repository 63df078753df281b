//! Which requests a stream ring has with the kernel, what it owns for them, and what their completions say and carry.
//!
//! The ring makes a completion of every entry in the completion queue. Ownership moves here: the buffer, the lease
//! or the descriptor that an entry stands for leaves the ring with it.
//!
//! A request whose buffer, or whose result, the ring owns is kept in a slot from the moment it is queued until its
//! last completion. The number that the kernel is given names the slot, so a completion finds it without a search,
//! and the generation in it keeps an old ticket from naming a newer request.

use std::mem;
use std::os::fd::{FromRawFd, OwnedFd};

use io_uring::cqueue;

use super::pool::{Pool, Received};

/// Marks the numbers of requests that stay armed until a completion without `has_more`.
pub(super) const ARMED: u64 = 1 << 62;

/// Marks the numbers of this table.
pub(super) const OWNED: u64 = 1 << 63;

/// A number with the mark that no slot ever has.
pub(super) const NO_SLOT: u64 = u64::MAX;

/// Slots at most. A server of a million stuck connections has other sorrows.
const SLOTS_MAX: usize = 1 << 20;

const GENERATION_MASK: u32 = u32::MAX >> 1;

/// What the kernel says about one request, with everything that it hands back. At most one of
/// `received`, `returned` and `accepted` is there.
#[derive(Debug)]
#[must_use = "it may carry a lease, a buffer or a descriptor"]
pub struct StreamCompletion {
    /// The number that the request was given.
    pub user_data: u64,
    /// A result of the operation, or a negated errno.
    pub result: i32,
    /// The request is still armed: more completions will carry this number.
    pub has_more: bool,
    /// A receive left unread bytes in the socket.
    pub has_data_left: bool,
    /// The bytes of a receive; none at the end of the stream and with an error.
    pub received: Option<Received>,
    /// The buffer of a request that owned one, whatever its result.
    pub returned: Option<Vec<u8>>,
    /// The connection of an accept, closed when it is dropped. [`StreamCompletion::accepted`]
    /// takes it out.
    accepted: Option<OwnedFd>,
}

impl StreamCompletion {
    /// Takes the accepted connection. None when the request was not an accept, failed, or was taken
    /// before.
    pub fn accepted(&mut self) -> Option<OwnedFd> {
        self.accepted.take()
    }
}

/// Which requests are with the kernel, or queued for it, and what they reference.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) pool: Pool,
    pub(super) owned: Owned,
    /// Receives and polls without their last completion.
    pub(super) armed: usize,
}

impl Ledger {
    /// Whether no request is left that could touch memory: not a send out of the arena, which
    /// is over when it was submitted.
    pub(super) fn is_clear(&self) -> bool {
        self.armed == 0 && self.owned.count() == 0
    }

    /// Reads an entry of the completion queue. None for an answer that only the ring asked for.
    #[inline]
    pub(super) fn read(&mut self, entry: &cqueue::Entry) -> Option<StreamCompletion> {
        let number = entry.user_data();
        let result = entry.result();
        let flags = entry.flags();
        if number & OWNED != 0 {
            return self.owned_ended(number, result, cqueue::more(flags));
        }
        let mut received = None;
        if number & ARMED != 0 {
            self.armed -= usize::from(!cqueue::more(flags));
            let len_bytes = u32::try_from(result).unwrap_or(0);
            let has_buffer_more = cqueue::buffer_more(flags);
            received = cqueue::buffer_select(flags)
                .map(|id| self.pool.lend(id, len_bytes, has_buffer_more));
        }
        Some(StreamCompletion {
            user_data: number & !ARMED,
            result,
            has_more: cqueue::more(flags),
            has_data_left: cqueue::sock_nonempty(flags),
            received,
            returned: None,
            accepted: None,
        })
    }

    fn owned_ended(
        &mut self,
        number: u64,
        result: i32,
        has_more: bool,
    ) -> Option<StreamCompletion> {
        if number == NO_SLOT {
            return None;
        }
        let (user_data, kept) = if has_more {
            (self.owned.peek(number), Kept::Accepting)
        } else {
            self.owned.end(number)
        };
        let (returned, accepted) = match kept {
            Kept::Sending(buffer) => (Some(buffer), None),
            // SAFETY: the result of an accept that went well is a descriptor that the kernel
            // installed for us, and its completion is read once.
            Kept::Accepting if result >= 0 => (None, Some(unsafe { OwnedFd::from_raw_fd(result) })),
            Kept::Accepting => (None, None),
        };
        let has_data_left = false;
        let received = None;
        Some(StreamCompletion {
            user_data,
            result,
            has_more,
            has_data_left,
            received,
            returned,
            accepted,
        })
    }
}

/// Names a request that the ring keeps something for: what [`super::StreamRing::cancel_owned`]
/// takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InFlight {
    slot: u32,
    generation: u32,
}

impl InFlight {
    pub(super) fn number(self) -> u64 {
        OWNED | u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    fn from_number(number: u64) -> Self {
        let generation = (number >> 32) as u32 & GENERATION_MASK;
        Self { slot: number as u32, generation }
    }
}

/// What the ring keeps for a request.
#[derive(Debug)]
pub(super) enum Kept {
    /// Bytes that the kernel reads.
    Sending(Vec<u8>),
    /// Nothing, but its results are descriptors.
    Accepting,
}

impl Kept {
    /// The buffer of a request that could not be queued.
    pub(super) fn into_buffer(self) -> Vec<u8> {
        match self {
            Self::Sending(buffer) => buffer,
            Self::Accepting => Vec::new(),
        }
    }
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    user_data: u64,
    kept: Option<Kept>,
}

#[derive(Debug, Default)]
pub(super) struct Owned {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Owned {
    pub(super) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.count() == SLOTS_MAX
    }

    pub(super) fn keep(&mut self, user_data: u64, kept: Kept) -> InFlight {
        assert!(!self.is_full(), "the caller looks first");
        let Some(slot) = self.free.pop() else {
            let slot = u32::try_from(self.slots.len()).expect("SLOTS_MAX is less");
            self.slots.push(Slot { generation: 0, user_data, kept: Some(kept) });
            return InFlight { slot, generation: 0 };
        };
        let entry = &mut self.slots[slot as usize];
        entry.user_data = user_data;
        entry.kept = Some(kept);
        InFlight { slot, generation: entry.generation }
    }

    /// The caller's number of a request that stays armed. Only accepts do.
    fn peek(&self, number: u64) -> u64 {
        let slot = &self.slots[self.index(number)];
        assert!(matches!(slot.kept, Some(Kept::Accepting)), "a buffer has one completion");
        slot.user_data
    }

    /// The caller's number of a request that has ended, and what was kept for it.
    pub(super) fn end(&mut self, number: u64) -> (u64, Kept) {
        let index = self.index(number);
        let slot = &mut self.slots[index];
        slot.generation = slot.generation.wrapping_add(1) & GENERATION_MASK;
        let kept = slot.kept.take().expect("a request ends once");
        self.free.push(index as u32);
        (slot.user_data, kept)
    }

    /// Gives up everything without freeing it: the kernel may still reference it.
    pub(super) fn leak(&mut self) {
        mem::forget(mem::take(self));
    }

    fn index(&self, number: u64) -> usize {
        let InFlight { slot, generation } = InFlight::from_number(number);
        let known = self.slots.get(slot as usize);
        assert!(known.is_some_and(|known| known.generation == generation), "a request of ours");
        slot as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_that_wraps_names_another_request_than_before() {
        let mut owned = Owned::default();
        let first = owned.keep(7, Kept::Accepting);
        owned.slots[0].generation = GENERATION_MASK;
        let last = InFlight { slot: 0, generation: GENERATION_MASK };
        // The number without a slot is that of the last one, which the table never has.
        assert_ne!(last.number(), NO_SLOT);
        assert_eq!(owned.end(last.number()).0, 7);
        let again = owned.keep(8, Kept::Accepting);
        assert_eq!((again.generation, again.slot), (0, 0));
        assert_eq!(again.number(), first.number());
        assert_ne!(again.number(), last.number());
        assert_eq!(InFlight::from_number(last.number()), last);
    }

    #[test]
    #[should_panic(expected = "a request of ours")]
    fn a_number_of_the_request_before_is_refused() {
        let mut owned = Owned::default();
        let gone = owned.keep(7, Kept::Accepting);
        owned.end(gone.number());
        owned.keep(8, Kept::Accepting);
        owned.end(gone.number());
    }
}
