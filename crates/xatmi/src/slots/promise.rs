//! Answers that a worker still has to send, in memory that survives its death.
//!
//! An answer that finds its queue full waits in the worker, which works for others meanwhile. If
//! the worker ends then, the manager finds here who has to be told. As with the record, the order
//! of the stores is the protocol: what a killed worker leaves names one caller or none
//! (`tests/loom_slots.rs`).

use std::rc::Rc;

// The parent chooses the atomics, so that the loom model takes this file in as it stands.
use super::atomic::{AtomicU64, Ordering, fence};
use super::{Caller, Slots};

/// Answers of one worker that are noted: as many as wait in one at most.
pub(crate) const PROMISES_MAX: usize = 256;
/// Process and context of the caller (zero for none), its nonce, the number of the call.
pub(super) const PROMISE_WORDS: usize = 3;

/// A noted answer; the note goes with it.
#[derive(Debug)]
pub struct Promise {
    slots: Rc<Slots>,
    worker: usize,
    at: usize,
}

impl Promise {
    /// Notes that `worker` owes `caller` an answer; nothing when it owes as many as there are
    /// places for.
    #[must_use]
    pub fn note(slots: &Rc<Slots>, worker: usize, caller: &Caller) -> Option<Self> {
        let (entries, _) = slots.promises(worker)?.as_chunks::<PROMISE_WORDS>();
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

    /// Leaves the note behind, for the manager: the worker ends and will not send the answer.
    pub fn leave(self) {
        std::mem::forget(self);
    }

    /// Whom `worker` owes an answer. Called by the manager when it is dead.
    #[must_use]
    pub fn all(slots: &Slots, worker: usize) -> Vec<Caller> {
        let words = slots.promises(worker).unwrap_or_default();
        let read = |[client, nonce, call_id]: &[AtomicU64; PROMISE_WORDS]| {
            let name = client.load(Ordering::Acquire);
            let (pid, context) = (name as u32, (name >> 32) as u32);
            let (nonce, call_id) = (nonce.load(Ordering::Relaxed), call_id.load(Ordering::Relaxed));
            (name != 0).then_some(Caller { pid, context, call_id, nonce })
        };
        words.as_chunks().0.iter().filter_map(read).collect()
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        let words = self.slots.promises(self.worker).unwrap_or_default();
        words[self.at * PROMISE_WORDS].store(0, Ordering::Release);
    }
}
