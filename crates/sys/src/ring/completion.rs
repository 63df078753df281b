//! What a completion of a stream ring says and carries.
//!
//! The stream ring makes one of every entry in the completion queue. Ownership moves here: the
//! buffer, the lease or the descriptor that an entry stands for leaves the ring with it.

use std::os::fd::{FromRawFd, OwnedFd};

use io_uring::cqueue;

use super::owned::{Kept, NO_SLOT, OWNED, Owned};
use super::pool::{Pool, Received};

/// Marks the numbers of requests that stay armed until a completion without `has_more`.
pub(super) const ARMED: u64 = 1 << 62;

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
        let (number, result, flags) = (entry.user_data(), entry.result(), entry.flags());
        if number & OWNED != 0 {
            return self.owned_ended(number, result, cqueue::more(flags));
        }
        let mut received = None;
        if number & ARMED != 0 {
            self.armed -= usize::from(!cqueue::more(flags));
            let len_bytes = u32::try_from(result).unwrap_or(0);
            received = cqueue::buffer_select(flags).map(|id| self.pool.lend(id, len_bytes));
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
        let (has_data_left, received) = (false, None);
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
