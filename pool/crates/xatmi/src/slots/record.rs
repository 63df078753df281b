//! The record of one worker, in words that survive its death: its state and caller, the request that it
//! takes, and its unsent replies.
//!
//! ```text
//!  word 0    state word: bits 0-2 state, bit 3 a reply is waited for, bits 8-15 service entry,
//!            bits 16-63 sequence, one more with each change
//!  words 1-4 call id, process and context of the caller, its nonce, since when (monotonic ns)
//!  words 5-  totals and one entry for each service (slots.rs)
//! ```
//!
//! One writer, the worker; any number of readers. A worker can be killed between any two
//! instructions, so the order of its stores is the protocol:
//!
//! | step | store | order |
//! |---|---|---|
//! | after a receive | words 1 to 4, then state word = busy | state word with Release: a reader of busy reads these words or later ones |
//! | after the reply | state word = idle, then a Release fence | the words of the next call can't overtake it |
//!
//! So a dead worker's slot that says busy holds the whole identity of one call; a slot whose
//! words 1 to 4 were being written says idle. A reader of a living worker looks at the state word
//! before and after (a sequence lock); `tests/loom_pool.rs` tries all interleavings of this.

// The parent chooses the atomics, so that the loom model takes this file in as it stands.
use std::rc::Rc;

use super::Slots;
use super::atomic::{AtomicU64, Ordering, fence};

/// Words of one worker's record; 2 KiB, so that no two workers write to one cache line.
pub const WORDS_PER_WORKER: usize = 256;

/// Words of one inbox: the longest message of stock limits (`fs.mqueue.msgsize_max`).
pub(super) const INBOX_WORDS: usize = 1024;
/// Words of a page, the smallest unit that can be missing.
const PAGE_WORDS: usize = 512;
/// Most unsent replies of one worker.
pub(crate) const UNSENT_MAX: usize = 256;
/// Process and context of the caller (zero for none), its nonce, the number of the call.
pub(super) const UNSENT_WORDS: usize = 3;

/// The caller of a call, which waits for its reply.
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

/// The state of a worker.
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
    /// Its state; the other fields are those of the last call unless this is [`State::Busy`].
    pub state: State,
    /// The caller whose request it serves.
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
        self.set_state(State::Starting, 0);
    }

    /// Gives the slot back: everything zero, state [`State::Free`]. Called by the manager, never
    /// while a worker has it.
    pub fn clear(&self) {
        for word in &self.words[CALL_ID..] {
            word.store(0, Ordering::Relaxed);
        }
        self.set_state(State::Free, 0);
    }

    /// The worker waits for requests. Called by the worker when it is ready, and after each
    /// reply was sent.
    #[inline]
    pub fn idle(&self) {
        self.set_state(State::Idle, 0);
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
        self.set_state(State::Busy, reply | (service as u64 & 0xff) << SERVICE_SHIFT);
    }

    /// The occupation of the worker, or the last one when it died. Called by the manager.
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

    fn set_state(&self, state: State, details: u64) {
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

/// A number that no worker writes reads as free, so that no caller is answered because of it.
fn state(state_word: u64) -> State {
    match state_word & STATE_MASK {
        1 => State::Starting,
        2 => State::Idle,
        3 => State::Busy,
        _ => State::Free,
    }
}

/// The request that a worker takes, in memory that survives its death. Copies are handles on the same words.
///
/// A worker can be killed when the kernel has taken a message out of the queue for it and before it has
/// recorded its caller. So the kernel writes the message here: the manager reads the caller of a worker that
/// died with a message in its inbox and a slot that says idle. The worker empties the inbox once its slot
/// says busy (`tests/loom_pool.rs`).
#[derive(Clone, Copy, Debug)]
pub struct Inbox<'a> {
    pub(super) words: &'a [AtomicU64],
}

impl<'a> Inbox<'a> {
    /// The longest message that it takes; longer ones are received elsewhere and are lost with a worker.
    pub const LEN_BYTES_MAX: usize = INBOX_WORDS * size_of::<u64>();

    /// The words that a message is received into.
    #[must_use]
    pub fn words(&self) -> &'a [AtomicU64] {
        self.words
    }

    /// Touches every page: a process that is being killed gets no new ones.
    pub fn prepare(&self) {
        for word in self.words.iter().step_by(PAGE_WORDS).chain(self.words.last()) {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Empties it: zero is not the beginning of a message. Called when the slot says busy, and that
    /// store must not move behind this one: between the two the message would be lost.
    #[inline]
    pub fn empty(&self) {
        self.words[0].store(0, Ordering::Release);
    }

    /// Copies the first bytes to `out`, which is at most [`Inbox::LEN_BYTES_MAX`] long.
    #[inline]
    pub fn copy_to(&self, out: &mut [u8]) {
        for (bytes, word) in out.chunks_mut(size_of::<u64>()).zip(self.words) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes()[..bytes.len()]);
        }
    }

    /// All of it, for the manager.
    #[must_use]
    pub fn content(&self) -> Vec<u8> {
        let mut bytes = vec![0; Self::LEN_BYTES_MAX];
        self.copy_to(&mut bytes);
        bytes
    }
}

/// A reply that a worker still has to send, noted in memory that survives its death until this is dropped.
///
/// A reply that finds its queue full waits in the worker, which serves others meanwhile. If the worker ends
/// then, the manager finds the caller here and answers it. As with the record, the order of the stores is the
/// protocol: what a killed worker leaves names one caller or none (`tests/loom_pool.rs`).
#[derive(Debug)]
pub struct UnsentReply {
    slots: Rc<Slots>,
    worker: usize,
    at: usize,
}

impl UnsentReply {
    /// Notes that `worker` has a reply for `caller`; `None` when `UNSENT_MAX` are noted.
    #[must_use]
    pub fn note(slots: &Rc<Slots>, worker: usize, caller: &Caller) -> Option<Self> {
        let (entries, _) = slots.unsent_replies(worker)?.as_chunks::<UNSENT_WORDS>();
        let at = entries.iter().position(|[client, ..]| client.load(Ordering::Relaxed) == 0)?;
        let [client, nonce, call_id] = &entries[at];
        // The words of this caller can't come under the name of an earlier one.
        fence(Ordering::Release);
        nonce.store(caller.nonce, Ordering::Relaxed);
        call_id.store(caller.call_id, Ordering::Relaxed);
        let name = u64::from(caller.pid) | u64::from(caller.context) << 32;
        client.store(name, Ordering::Release);
        Some(Self { slots: Rc::clone(slots), worker, at })
    }

    /// Leaves the note to the manager: the worker ends and will not send the reply.
    pub fn leave(self) {
        std::mem::forget(self);
    }

    /// The callers of the unsent replies of `worker`. Called by the manager when it is dead.
    #[must_use]
    pub fn all(slots: &Slots, worker: usize) -> Vec<Caller> {
        let words = slots.unsent_replies(worker).unwrap_or_default();
        let read = |[client, nonce, call_id]: &[AtomicU64; UNSENT_WORDS]| {
            let name = client.load(Ordering::Acquire);
            let pid = name as u32;
            let context = (name >> 32) as u32;
            let nonce = nonce.load(Ordering::Relaxed);
            let call_id = call_id.load(Ordering::Relaxed);
            (name != 0).then_some(Caller { pid, context, call_id, nonce })
        };
        words.as_chunks().0.iter().filter_map(read).collect()
    }
}

impl Drop for UnsentReply {
    fn drop(&mut self) {
        let words = self.slots.unsent_replies(self.worker).unwrap_or_default();
        words[self.at * UNSENT_WORDS].store(0, Ordering::Release);
    }
}
