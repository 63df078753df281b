//! Output beyond the room of one call: what is left of a body, sent piece by piece.
//!
//! The session keeps one while it asks to be called again; nothing is copied twice.

use std::sync::Arc;

use pollux_engine::Actions;

/// A block of bytes, sent once or over and over, up to a length.
#[derive(Debug)]
pub(crate) struct Rest {
    block: Arc<[u8]>,
    sent_bytes: u64,
    len_bytes: u64,
}

impl Rest {
    /// `len_bytes` of output that consists of `block`, again and again.
    pub(crate) fn repeated(block: Arc<[u8]>, len_bytes: u64) -> Self {
        assert!(!block.is_empty(), "nothing repeated is nothing");
        Self { block, sent_bytes: 0, len_bytes }
    }

    /// `bytes`, once.
    pub(crate) fn once(bytes: Vec<u8>) -> Self {
        let len_bytes = bytes.len() as u64;
        Self { block: bytes.into(), sent_bytes: 0, len_bytes }
    }

    /// Sends what the room takes; says whether that was all.
    pub(crate) fn send(&mut self, actions: &mut Actions<'_>) -> bool {
        while self.sent_bytes < self.len_bytes && actions.room() > 0 {
            let at =
                usize::try_from(self.sent_bytes % self.block.len() as u64).expect("in a block");
            let left = usize::try_from(self.len_bytes - self.sent_bytes).unwrap_or(usize::MAX);
            let piece = (self.block.len() - at).min(left).min(actions.room());
            actions.send(&self.block[at..at + piece]);
            self.sent_bytes += piece as u64;
        }
        self.sent_bytes == self.len_bytes
    }
}
