//! The arena of one turn: bytes that are written in place and sent from there.
//!
//! The stream ring owns one. It is filled from the front; what a send references lies in front
//! of `used` and is only read from then on, the rest is spare and nobody else's. The owner must
//! not reset it while a request that references it waits in the queue.

use std::io;
use std::slice;

use super::memory::Memory;

/// What one send took out of the arena. Good until the arena is reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    start: usize,
    len_bytes: usize,
    generation: u32,
}

impl Sent {
    /// How many bytes the request was to send.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }
}

#[derive(Debug)]
pub(super) struct Arena {
    memory: Memory,
    used: usize,
    generation: u32,
}

impl Arena {
    pub(super) fn new(len_bytes: usize) -> io::Result<Self> {
        Ok(Self { memory: Memory::zeroed(len_bytes)?, used: 0, generation: 0 })
    }

    #[inline]
    pub(super) fn spare(&mut self) -> &mut [u8] {
        let start = self.memory.at(self.used).as_ptr();
        let len = self.memory.len_bytes() - self.used;
        // SAFETY: the range ends with the block, is initialised since `Memory::zeroed`, and no
        // request references it: `take` moves `used` past what one will. The borrow of `self`
        // keeps every other access out.
        unsafe { slice::from_raw_parts_mut(start, len) }
    }

    /// The address of the first spare byte, if `len_bytes` are spare from there.
    ///
    /// # Panics
    /// When fewer are.
    #[inline]
    pub(super) fn front(&self, len_bytes: usize) -> *const u8 {
        assert!(
            len_bytes > 0 && len_bytes <= self.memory.len_bytes() - self.used,
            "a send takes between 1 byte and what is spare"
        );
        self.memory.at(self.used).as_ptr()
    }

    /// Takes the first `len_bytes` spare bytes, which must be as many as [`Arena::front`] was
    /// asked for: they are only read from now on.
    #[inline]
    pub(super) fn take(&mut self, len_bytes: usize) -> Sent {
        let start = self.used;
        self.used += len_bytes;
        Sent { start, len_bytes, generation: self.generation }
    }

    pub(super) fn bytes(&self, sent: Sent) -> Option<&[u8]> {
        let Sent { start, len_bytes, generation } = sent;
        // The second condition holds for a `Sent` of this arena; one of another ring may pass.
        let known = generation == self.generation && start + len_bytes <= self.used;
        // SAFETY: the range lies in front of `used`: initialised and, by the kernel as by us,
        // only read until `reset`, which needs the arena exclusively and ends this borrow.
        known.then(|| unsafe { slice::from_raw_parts(self.memory.at(start).as_ptr(), len_bytes) })
    }

    /// Makes everything spare again. No queued or running request may reference the arena.
    pub(super) fn reset(&mut self) {
        self.used = 0;
        self.generation = self.generation.wrapping_add(1);
    }

    pub(super) fn leak(&mut self) {
        self.memory.leak();
    }
}
