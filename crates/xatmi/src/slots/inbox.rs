//! The request that a worker takes, in memory that survives its death.
//!
//! A worker can be killed when the kernel has taken a message out of the queue for it and before
//! it has noted whose it is. So the kernel writes the message here, and nothing of it is lost:
//! the manager reads the caller of a worker that died with a message in its inbox and a slot that
//! says idle. The worker empties the inbox once its slot says busy (`tests/loom_slots.rs`).

// The parent chooses the atomics, so that the loom model takes this file in as it stands.
use super::atomic::{AtomicU64, Ordering};

/// Words of one inbox: the longest message of stock limits (`fs.mqueue.msgsize_max`).
pub(super) const INBOX_WORDS: usize = 1024;
/// Words of a page, the smallest unit that can be missing.
const PAGE_WORDS: usize = 512;

/// The inbox of one worker. Copies are handles on the same words.
#[derive(Clone, Copy, Debug)]
pub struct Inbox<'a> {
    pub(super) words: &'a [AtomicU64],
}

impl<'a> Inbox<'a> {
    /// The longest message that it takes; longer ones go elsewhere and are lost with a worker.
    pub const LEN_BYTES_MAX: usize = INBOX_WORDS * size_of::<u64>();

    /// Where a message is to be written.
    #[must_use]
    pub fn words(&self) -> &'a [AtomicU64] {
        self.words
    }

    /// Has every page there: a process that is being killed gets no new ones.
    pub fn prepare(&self) {
        for word in self.words.iter().step_by(PAGE_WORDS).chain(self.words.last()) {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Nothing is in it: what begins with zero is no message. Called when the slot says busy,
    /// which nothing may move behind this: between the two the message would be nowhere.
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
