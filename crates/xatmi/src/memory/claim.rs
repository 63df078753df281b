//! What one worker takes, in memory that survives its death and that clients cannot write.
//!
//! ```text
//!  nothing ──begin──▶ claims (ring, position, request) ──hold──▶ claims and holds ──settle──▶ holds
//!     ▲                  │ withdraw (another was quicker)                                      │
//!     └──────────────────┴───────────────────────── let_go (answered, freed or passed on) ─────┘
//! ```
//!
//! One writer, the worker; the manager reads after its death. It can be killed between any two
//! instructions, so the order of the stores is the protocol (`tests/loom_memory.rs`):
//!
//! | killed after | the manager sees | and does |
//! |---|---|---|
//! | begin | a claim; the cell is not taken by this worker | nothing |
//! | the cell was grabbed | a claim; the cell is taken by this worker | frees the cell, answers the claimed request |
//! | hold | both | the same; the request is the same |
//! | the cell was freed, settle | what it holds | answers that |
//! | the answer | what it holds; the request is not asked any more | nothing |

// The parent chooses the atomics, so that the loom model takes this file in as it stands.
use super::atomic::{AtomicU64, Ordering};

/// Words of one worker: a cache line, so that no two workers write to one.
pub(crate) const CLAIM_WORDS: usize = 8;

const POSITION: usize = 0;
const REQUEST: usize = 1;
const HELD: usize = 2;
const PID: usize = 3;

/// Bits of a position within the claim, as many as a cell tells; the ring is above them.
const POSITION_BITS: u32 = 40;
const POSITION_MASK: u64 = (1 << POSITION_BITS) - 1;

/// A request under way: its number, and which use of that number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Ticket {
    pub(crate) request: u32,
    pub(crate) generation: u32,
    /// How often it was passed on from service to service.
    pub(crate) hops: u8,
}

/// What a worker was about to take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Claimed {
    pub(crate) ring: usize,
    /// The last bits of it: enough to know it again.
    pub(crate) position: u64,
    pub(crate) request: u32,
}

/// The record of one worker. Copies are handles on the same words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim<'a> {
    words: &'a [AtomicU64; CLAIM_WORDS],
}

impl<'a> Claim<'a> {
    pub(crate) fn over(words: &'a [AtomicU64; CLAIM_WORDS]) -> Self {
        Self { words }
    }

    /// Notes what is about to be taken. Called by the worker, before it grabs the cell.
    pub(crate) fn begin(&self, ring: usize, position: u64, request: u32) {
        self.words[REQUEST].store(request.into(), Ordering::Relaxed);
        let claim = (ring as u64 + 1) << POSITION_BITS | position & POSITION_MASK;
        self.words[POSITION].store(claim, Ordering::Release);
    }

    /// Another worker was quicker.
    pub(crate) fn withdraw(&self) {
        self.words[POSITION].store(0, Ordering::Release);
    }

    /// The request is this worker's. Called before it frees the cell.
    pub(crate) fn hold(&self, ticket: Ticket) {
        self.words[HELD].store(packed(ticket), Ordering::Release);
    }

    /// The cell is free again: only the request is left.
    pub(crate) fn settle(&self) {
        self.words[POSITION].store(0, Ordering::Release);
    }

    /// The request is not this worker's any more.
    pub(crate) fn let_go(&self) {
        self.words[HELD].store(0, Ordering::Release);
    }

    pub(crate) fn claimed(&self) -> Option<Claimed> {
        let claim = self.words[POSITION].load(Ordering::Acquire);
        let ring = usize::try_from(claim >> POSITION_BITS).ok()?.checked_sub(1)?;
        let request = self.words[REQUEST].load(Ordering::Relaxed) as u32;
        Some(Claimed { ring, position: claim & POSITION_MASK, request })
    }

    pub(crate) fn held(&self) -> Option<Ticket> {
        let held = self.words[HELD].load(Ordering::Acquire);
        let request = (held & 0xff_ffff).checked_sub(1)? as u32;
        Some(Ticket { request, generation: (held >> 32) as u32, hops: (held >> 24) as u8 })
    }

    /// The process that has this record; 0 for none. Written by the manager.
    pub(crate) fn pid(&self) -> u32 {
        self.words[PID].load(Ordering::Acquire) as u32
    }

    /// Gives the record to a process, with nothing claimed; 0 for none. Called by the manager.
    pub(crate) fn give_to(&self, pid: u32) {
        for word in [POSITION, REQUEST, HELD] {
            self.words[word].store(0, Ordering::Relaxed);
        }
        self.words[PID].store(pid.into(), Ordering::Release);
    }

    /// The process is known now, which the worker may be quicker than. Called by the manager.
    pub(crate) fn name(&self, pid: u32) {
        self.words[PID].store(pid.into(), Ordering::Release);
    }
}

impl Claimed {
    /// Whether this speaks of the position.
    pub(crate) fn is_at(&self, position: u64) -> bool {
        self.position == position & POSITION_MASK
    }
}

/// A request's number has 24 bits: more than there are requests.
fn packed(ticket: Ticket) -> u64 {
    let Ticket { request, generation, hops } = ticket;
    u64::from(generation) << 32 | u64::from(hops) << 24 | (u64::from(request & 0xff_ffff) + 1)
}
