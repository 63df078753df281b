//! One connection, several loops: which of them may act on its socket, and how that passes to another.
//!
//! ```text
//!              release               take, by any loop
//!  owned by A ─────────► put down by A ────────────────► owned by B
//!       ▲                  │       │                         ▲
//!       └──────────────────┘       └───► on its way to B ────┘
//!        claim: an event, a      start_transfer             receive
//!        deadline, a wake at A
//! ```
//!
//! | loop | does what |
//! |---|---|
//! | the owner | acts on the socket; puts it down when its session has nothing to do |
//! | the taker | takes it, and registers a descriptor of its own (a duplicate) of the socket |
//! | the sender | sends it off to another loop by a message; meanwhile no loop owns it, so an event at the receiver, which may have been an owner before, is dropped like any other |
//! | a former owner | claims before it acts, and then finds that the connection is another's: it drops the event, and lets go of its descriptor with its next update batch, or where edges are reported once with that behind a second event, unless it has taken the connection back by then |
//!
//! Descriptors are duplicates, so no loop can close or reuse a number that another one's poller still
//! watches. What was written by an owner before it put the socket down is seen by the loop that takes it.
//!
//! `tests/loom_threads.rs` takes in this file as it stands and shows on all interleavings that never
//! two loops act on a socket; so nothing here may name anything else of the crate.

use std::os::fd::OwnedFd;

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering};

/// A socket that loops run in turn; each of them has a number, below [`SharedSocket::OWNERS_MAX`].
///
/// Any thread may call everything here.
#[derive(Debug)]
pub struct SharedSocket<F = OwnedFd> {
    socket: F,
    /// ```text
    ///  31 .. 1      0
    /// +--------+-------+
    /// | number | OWNED |   number: of the loop that owns it, or put it down last
    /// +--------+-------+
    /// ```
    owner: AtomicU32,
}

const OWNED: u32 = 1;

const fn owned(by: u32) -> u32 {
    by << 1 | OWNED
}

const fn release(by: u32) -> u32 {
    by << 1
}

/// In the place of an owner's number, of what is on its way: no loop has it.
const NO_OWNER: u32 = u32::MAX >> 1;

/// Whether a loop may act on a connection that others may have taken over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// It owns it.
    Owned,
    /// It had released it, and owns it again.
    Regained,
    /// Another loop has it, or had it last.
    Lost,
}

impl<F> SharedSocket<F> {
    /// Numbers of owners are below this.
    pub const OWNERS_MAX: u32 = NO_OWNER;

    /// A socket that the loop with the number `by` holds.
    ///
    /// # Panics
    /// When the number is too large.
    pub fn new(socket: F, by: u32) -> Self {
        assert!(by < Self::OWNERS_MAX, "an owner's number is below OWNERS_MAX");
        Self { socket, owner: AtomicU32::new(owned(by)) }
    }

    /// The socket, to be duplicated.
    pub fn socket(&self) -> &F {
        &self.socket
    }

    /// Takes it for the loop `by`; false while a loop owns it.
    pub fn take(&self, by: u32) -> bool {
        let seen = self.owner.load(Ordering::Relaxed);
        seen & OWNED == 0 && self.change(seen, owned(by))
    }

    /// Lets others take it. The owner alone calls this, when it has nothing more to do with the
    /// socket in this turn.
    pub fn release(&self, by: u32) {
        debug_assert_eq!(self.owner.load(Ordering::Relaxed), owned(by), "put down by its owner");
        self.owner.store(release(by), Ordering::Release);
    }

    /// Takes it for another loop, which is notified and then calls [`receive`](Self::receive); false
    /// while a loop owns it. Until then no claim succeeds, also none of that loop: it does not know
    /// yet that the connection is its own.
    pub fn start_transfer(&self) -> bool {
        self.take(NO_OWNER)
    }

    /// What was sent off has arrived at the loop `by`, which owns it from now on.
    ///
    /// # Panics
    /// When it is not on its way.
    pub fn receive(&self, by: u32) {
        assert!(
            self.change(owned(NO_OWNER), owned(by)),
            "received by the loop that it was sent to"
        );
    }

    /// What was sent off cannot arrive: it is as if the loop `to`, which sent it, had just put it down.
    pub fn give_back(&self, to: u32) {
        debug_assert_eq!(self.owner.load(Ordering::Relaxed), owned(NO_OWNER), "it is on its way");
        self.owner.store(release(to), Ordering::Release);
    }

    /// The loop that owns it, or put it down last.
    pub fn owner(&self) -> u32 {
        self.owner.load(Ordering::Relaxed) >> 1
    }

    /// Asks whether the loop `by` may act on it; then it owns it.
    pub fn claim(&self, by: u32) -> Claim {
        // No other loop takes it away from its owner, so what the owner reads of itself is true.
        if self.owner.load(Ordering::Relaxed) == owned(by) {
            return Claim::Owned;
        }
        if self.change(release(by), owned(by)) { Claim::Regained } else { Claim::Lost }
    }

    /// Whether the loop `by` owns it, or was the last to do so.
    pub fn is_last_owner(&self, by: u32) -> bool {
        self.owner() == by
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.owner.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}
