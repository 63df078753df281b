//! One connection, several loops: who may act on its socket, and how that passes from one to another.
//!
//! ```text
//!             put_down               take, by any loop
//!  held by A ─────────► put down by A ────────────────► held by B
//!      ▲                  │       │                         ▲
//!      └──────────────────┘       └───► on its way to B ────┘
//!       claim: an event, a      send_off             receive
//!       deadline, a wake at A
//! ```
//!
//! | who | does what |
//! |---|---|
//! | the holder | acts on the socket; puts it down when its session has nothing to do |
//! | the taker | takes it, and registers a descriptor of its own (a duplicate) of the socket |
//! | the sender | sends it off to another loop and tells that one by a message; meanwhile it is nobody's, so an event at the receiver, which may have been a holder before, is dropped like any other |
//! | a former holder | claims before it acts, and then finds that the connection is another's: it drops the event, and lets go of its descriptor with its next update batch, or where edges are told once with that behind a second event, unless it has taken the connection back by then |
//!
//! Descriptors are duplicates, so no loop can close or reuse a number that another one's poller still
//! watches. What was written by a holder before it put the socket down is seen by whoever takes it.
//!
//! `tests/loom_takeover.rs` takes in this file as it stands and shows on all interleavings that never
//! two loops act on a socket; so nothing here may name anything else of the crate.

use std::os::fd::OwnedFd;

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering};

/// A socket that loops run in turn; each of them has a number, below [`SharedSocket::HOLDERS_MAX`].
///
/// Any thread may call everything here.
#[derive(Debug)]
pub struct SharedSocket<F = OwnedFd> {
    socket: F,
    /// ```text
    ///  31 .. 1     0
    /// +--------+------+
    /// | number | HELD |   number: who holds it, or put it down last
    /// +--------+------+
    /// ```
    hold: AtomicU32,
}

const HELD: u32 = 1;

const fn held(by: u32) -> u32 {
    by << 1 | HELD
}

const fn put_down(by: u32) -> u32 {
    by << 1
}

/// In the place of a holder's number, of what is on its way: no loop has it.
const NOBODY: u32 = u32::MAX >> 1;

/// Whether a loop may act on a connection that others may have taken over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// It holds it.
    Held,
    /// It had put it down, and holds it again.
    Regained,
    /// Another loop has it, or had it last.
    Lost,
}

impl<F> SharedSocket<F> {
    /// Numbers of holders are below this.
    pub const HOLDERS_MAX: u32 = NOBODY;

    /// A socket that the loop with the number `by` holds.
    ///
    /// # Panics
    /// When the number is too large.
    pub fn new(socket: F, by: u32) -> Self {
        assert!(by < Self::HOLDERS_MAX, "a holder's number is below HOLDERS_MAX");
        Self { socket, hold: AtomicU32::new(held(by)) }
    }

    /// The socket, to be duplicated.
    pub fn socket(&self) -> &F {
        &self.socket
    }

    /// Takes it for the loop `by`, whoever put it down; false while somebody holds it.
    pub fn take(&self, by: u32) -> bool {
        let seen = self.hold.load(Ordering::Relaxed);
        seen & HELD == 0 && self.change(seen, held(by))
    }

    /// Lets others take it. The holder alone calls this, when it has nothing more to do with the
    /// socket in this turn.
    pub fn put_down(&self, by: u32) {
        debug_assert_eq!(self.hold.load(Ordering::Relaxed), held(by), "put down by its holder");
        self.hold.store(put_down(by), Ordering::Release);
    }

    /// Takes it for another loop, which will be told and then calls [`receive`](Self::receive); false
    /// while somebody holds it. Until then no claim succeeds, also none of that loop: it does not know
    /// yet that the connection is its own.
    pub fn send_off(&self) -> bool {
        self.take(NOBODY)
    }

    /// What was sent off has arrived at the loop `by`, which holds it from now on.
    ///
    /// # Panics
    /// When it is not on its way.
    pub fn receive(&self, by: u32) {
        assert!(self.change(held(NOBODY), held(by)), "received by the loop that it was sent to");
    }

    /// What was sent off cannot arrive: it is as if the loop `to`, which sent it, had just put it down.
    pub fn give_back(&self, to: u32) {
        debug_assert_eq!(self.hold.load(Ordering::Relaxed), held(NOBODY), "it is on its way");
        self.hold.store(put_down(to), Ordering::Release);
    }

    /// Who holds it, or put it down last.
    pub fn owner(&self) -> u32 {
        self.hold.load(Ordering::Relaxed) >> 1
    }

    /// Asks whether the loop `by` may act on it; then it holds it.
    pub fn claim(&self, by: u32) -> Claim {
        // Nobody takes it away from its holder, so what that one sees of itself is true.
        if self.hold.load(Ordering::Relaxed) == held(by) {
            return Claim::Held;
        }
        if self.change(put_down(by), held(by)) { Claim::Regained } else { Claim::Lost }
    }

    /// Whether the loop `by` holds it, or was the last to do so.
    pub fn is_with(&self, by: u32) -> bool {
        self.owner() == by
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.hold.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}
