//! The occupation of one worker: whom it works for, in words that survive its death.
//!
//! ```text
//!  word 0    state word: bits 0-2 state, bit 3 a reply is waited for, bits 8-15 service entry,
//!            bits 16-63 sequence, one more with each change
//!  words 1-4 call id, process and context of the caller, its nonce, since when (monotonic ns)
//!  words 5-  totals and one entry for each service (tally.rs)
//! ```
//!
//! One writer, the worker; any number of readers. A worker can be killed between any two
//! instructions, so the order of its stores is the protocol:
//!
//! | step | store | order |
//! |---|---|---|
//! | after a receive | words 1 to 4, then state word = busy | state word with Release: who reads busy reads these words or later ones |
//! | after the reply | state word = idle, then a Release fence | the words of the next call can't overtake it |
//!
//! So a dead worker's slot that says busy holds the whole identity of one call; a slot whose
//! words 1 to 4 were being written says idle. A reader of a living worker looks at the state word
//! before and after (a sequence lock); `tests/loom_slots.rs` tries all interleavings of this.

// The parent chooses the atomics, so that the loom model takes this file in as it stands.
use super::atomic::{AtomicU64, Ordering, fence};

/// Words of one worker's record; 2 KiB, so that no two workers write to one cache line.
pub const WORDS_PER_WORKER: usize = 256;

/// Who waits for the answer to a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Caller {
    /// Process id of the client.
    pub pid: u32,
    /// Its context, which with the process id names the reply queue.
    pub context: u32,
    /// The call's number within the context.
    pub call_id: u64,
    /// The random number of the context.
    pub nonce: u64,
}

/// What a worker does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// No worker has this slot.
    Free,
    /// Started, not yet ready to serve.
    Starting,
    /// Waits for a request.
    Idle,
    /// Inside a service.
    Busy,
}

/// A worker's state with the call that it works on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Occupation {
    /// What it does; the other fields speak of the last call unless this is [`State::Busy`].
    pub state: State,
    /// Whom it works for.
    pub caller: Caller,
    /// Whether that caller waits for a reply.
    pub wants_reply: bool,
    /// The entry of the service among the worker's services.
    pub service: usize,
    /// Since when, in nanoseconds of CLOCK_MONOTONIC.
    pub since_ns: u64,
}

/// The record of one worker. Copies are handles on the same words.
#[derive(Clone, Copy, Debug)]
pub struct Slot<'a> {
    pub(super) words: &'a [AtomicU64; WORDS_PER_WORKER],
}

const STATE: usize = 0;
const CALL_ID: usize = 1;
const CLIENT: usize = 2;
const NONCE: usize = 3;
const SINCE: usize = 4;

const STATE_MASK: u64 = 0b111;
const WANTS_REPLY: u64 = 1 << 3;
const SERVICE_SHIFT: u32 = 8;
const SEQUENCE_STEP: u64 = 1 << 16;

/// How often a reader tries for an undisturbed look at a worker that changes states all the
/// time; a call takes microseconds and a look nanoseconds.
const LOOKS_MAX: usize = 100;

impl<'a> Slot<'a> {
    /// The record on `words`.
    #[must_use]
    pub fn over(words: &'a [AtomicU64; WORDS_PER_WORKER]) -> Self {
        Self { words }
    }

    /// Takes the slot for a new worker: everything zero, state [`State::Starting`].
    /// Called by the manager before it starts the worker.
    pub fn start(&self) {
        self.clear();
        self.sit(State::Starting, 0);
    }

    /// Gives the slot back: everything zero, state [`State::Free`]. Called by the manager, never
    /// while a worker has it.
    pub fn clear(&self) {
        for word in &self.words[CALL_ID..] {
            word.store(0, Ordering::Relaxed);
        }
        self.sit(State::Free, 0);
    }

    /// The worker waits for requests. Called by the worker when it is ready, and after each
    /// reply was sent.
    #[inline]
    pub fn idle(&self) {
        self.sit(State::Idle, 0);
        fence(Ordering::Release);
    }

    /// The worker took a request of `caller` for its service entry `service`, at `now_ns`.
    /// Called by the worker at once after the receive.
    #[inline]
    pub fn begin(&self, caller: &Caller, service: usize, wants_reply: bool, now_ns: u64) {
        let client = u64::from(caller.pid) | u64::from(caller.context) << 32;
        self.words[CALL_ID].store(caller.call_id, Ordering::Relaxed);
        self.words[CLIENT].store(client, Ordering::Relaxed);
        self.words[NONCE].store(caller.nonce, Ordering::Relaxed);
        self.words[SINCE].store(now_ns, Ordering::Relaxed);
        let reply = if wants_reply { WANTS_REPLY } else { 0 };
        self.sit(State::Busy, reply | (service as u64 & 0xff) << SERVICE_SHIFT);
    }

    /// What the worker does, or did when it died. Called by the manager.
    ///
    /// The fields belong together, except where a living worker changed them a hundred times
    /// meanwhile; of a dead worker they always do.
    #[must_use]
    pub fn occupation(&self) -> Occupation {
        let mut seen = self.look();
        for _ in 1..LOOKS_MAX {
            if seen.1 {
                break;
            }
            seen = self.look();
        }
        seen.0
    }

    /// One look, and whether the worker kept its state word during it.
    fn look(&self) -> (Occupation, bool) {
        let state_word = self.words[STATE].load(Ordering::Acquire);
        let client = self.words[CLIENT].load(Ordering::Relaxed);
        let caller = Caller {
            pid: client as u32,
            context: (client >> 32) as u32,
            call_id: self.words[CALL_ID].load(Ordering::Relaxed),
            nonce: self.words[NONCE].load(Ordering::Relaxed),
        };
        let since_ns = self.words[SINCE].load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let is_settled = self.words[STATE].load(Ordering::Relaxed) == state_word;
        let occupation = Occupation {
            state: state(state_word),
            caller,
            wants_reply: state_word & WANTS_REPLY != 0,
            service: (state_word >> SERVICE_SHIFT & 0xff) as usize,
            since_ns,
        };
        (occupation, is_settled)
    }

    fn sit(&self, state: State, details: u64) {
        let sequence = self.words[STATE].load(Ordering::Relaxed) & !(SEQUENCE_STEP - 1);
        let state_word = sequence.wrapping_add(SEQUENCE_STEP) | details | number(state);
        self.words[STATE].store(state_word, Ordering::Release);
    }
}

fn number(state: State) -> u64 {
    match state {
        State::Free => 0,
        State::Starting => 1,
        State::Idle => 2,
        State::Busy => 3,
    }
}

/// A number that no worker writes reads as free: nobody is answered on its word.
fn state(state_word: u64) -> State {
    match state_word & STATE_MASK {
        1 => State::Starting,
        2 => State::Idle,
        3 => State::Busy,
        _ => State::Free,
    }
}
