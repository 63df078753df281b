//! The requests that a [`super::Ring`] takes, and their form for the kernel.
//!
//! The io-uring crate builds all of them but the poll update, which it has no opcode for.

use std::mem;
use std::os::fd::RawFd;

use io_uring::{opcode, squeue, types};

/// How often a poll request completes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shots {
    /// Once, at once if a condition holds already.
    One,
    /// With every wake-up of the file, until it is cancelled or the completion queue is full.
    Many,
}

/// A request made of numbers.
///
/// Descriptors are plain numbers, because a request may wait in the queue longer than any
/// borrow. A number that was closed meanwhile gives EBADF, one that was used again is polled:
/// that shows the readiness of another file and touches neither its data nor memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// Watches `fd` for `events` (`poll(2)` bits, and EPOLLEXCLUSIVE).
    PollAdd {
        /// Number of the descriptor when the request is submitted.
        fd: RawFd,
        /// Conditions to report; error and hang-up are always among them.
        events: u32,
        /// How often.
        shots: Shots,
        /// Comes back with every completion.
        user_data: u64,
    },
    /// Gives the poll request `target` other events and another number, and looks at its
    /// readiness anew. Completes only when that failed: ENOENT when no such request is armed,
    /// EALREADY when it is just about to complete and stays as it was.
    PollUpdate {
        /// `user_data` of the request to change.
        target: u64,
        /// Its `user_data` from now on.
        becomes: u64,
        /// Conditions to report from now on.
        events: u32,
        /// What the request was armed with: an update can't change it.
        shots: Shots,
        /// Comes back with a failure.
        user_data: u64,
    },
    /// Ends the request `target`, which completes with ECANCELED. Completes itself only when
    /// there is no such request (ENOENT).
    ///
    /// This is the general cancellation. IORING_OP_POLL_REMOVE costs the same but leaves a
    /// poll armed that is just about to complete (EALREADY).
    Cancel {
        /// `user_data` of the request to end.
        target: u64,
        /// Comes back with a failure.
        user_data: u64,
    },
}

impl Request {
    pub(super) fn entry(self) -> squeue::Entry {
        match self {
            Self::PollAdd { fd, events, shots, user_data } => {
                opcode::PollAdd::new(types::Fd(fd), events)
                    .multi(shots == Shots::Many)
                    .build()
                    .user_data(user_data)
            }
            Self::PollUpdate { target, becomes, events, shots, user_data } => {
                poll_update(target, becomes, events, shots)
                    .flags(squeue::Flags::SKIP_SUCCESS)
                    .user_data(user_data)
            }
            Self::Cancel { target, user_data } => opcode::AsyncCancel::new(target)
                .build()
                .flags(squeue::Flags::SKIP_SUCCESS)
                .user_data(user_data),
        }
    }
}

/// `struct io_uring_sqe` of the kernel's interface, as IORING_OP_POLL_REMOVE reads it.
#[repr(C)]
struct PollRemoveEntry {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: i32,
    new_user_data: u64,
    target: u64,
    update_flags: u32,
    events: u32,
    user_data: u64,
    unused: [u64; 3],
}

const OP_POLL_REMOVE: u8 = opcode::PollRemove::CODE;
const POLL_ADD_MULTI: u32 = 1 << 0;
const POLL_UPDATE_EVENTS: u32 = 1 << 1;
const POLL_UPDATE_USER_DATA: u32 = 1 << 2;

fn poll_update(target: u64, becomes: u64, events: u32, shots: Shots) -> squeue::Entry {
    let multi = if shots == Shots::Many { POLL_ADD_MULTI } else { 0 };
    // The kernel reads the two halves of the mask in the order that older ones had.
    let events = if cfg!(target_endian = "big") { events.rotate_left(16) } else { events };
    let entry = PollRemoveEntry {
        opcode: OP_POLL_REMOVE,
        flags: 0,
        ioprio: 0,
        fd: -1,
        new_user_data: becomes,
        target,
        update_flags: POLL_UPDATE_EVENTS | POLL_UPDATE_USER_DATA | multi,
        events,
        user_data: 0,
        unused: [0; 3],
    };
    // SAFETY: `Entry` is repr(C) over the kernel's 64-byte `io_uring_sqe`, all integers and
    // unions of integers, so every bit pattern is one; `PollRemoveEntry` lays the same fields
    // out at the same places without padding, and `transmute` checks the size.
    unsafe { mem::transmute::<PollRemoveEntry, squeue::Entry>(entry) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_that_of_the_kernel_header() {
        assert_eq!(size_of::<PollRemoveEntry>(), 64);
        assert_eq!(mem::offset_of!(PollRemoveEntry, fd), 4);
        assert_eq!(mem::offset_of!(PollRemoveEntry, new_user_data), 8);
        assert_eq!(mem::offset_of!(PollRemoveEntry, target), 16);
        assert_eq!(mem::offset_of!(PollRemoveEntry, update_flags), 24);
        assert_eq!(mem::offset_of!(PollRemoveEntry, events), 28);
        assert_eq!(mem::offset_of!(PollRemoveEntry, user_data), 32);
    }

    #[test]
    fn the_crate_reads_our_entry_as_its_own() {
        let entry = poll_update(1, 2, 3, Shots::One).user_data(4);
        assert_eq!(entry.get_opcode(), u32::from(OP_POLL_REMOVE));
        assert_eq!(entry.get_user_data(), 4);
    }
}
