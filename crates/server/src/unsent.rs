//! Output beyond the room of one call: what is left of a body, sent piece by piece.
//!
//! The session keeps one while it asks to be called again; nothing is copied twice.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use pollux_engine::{Actions, FileRange};
use rustix::io::Errno;

/// What is left of a body.
#[derive(Debug)]
pub(crate) enum Unsent {
    /// A block of bytes, sent once or over and over, up to a length.
    Block { block: Arc<[u8]>, sent_bytes: u64, len_bytes: u64 },
    /// Part of a file that the loop can't send.
    File(FileRange),
}

impl Unsent {
    /// `len_bytes` of output that consists of `block`, again and again.
    pub(crate) fn repeated(block: Arc<[u8]>, len_bytes: u64) -> Self {
        assert!(!block.is_empty(), "nothing repeated is nothing");
        Self::Block { block, sent_bytes: 0, len_bytes }
    }

    /// `bytes`, once.
    pub(crate) fn once(bytes: Vec<u8>) -> Self {
        let len_bytes = bytes.len() as u64;
        Self::Block { block: bytes.into(), sent_bytes: 0, len_bytes }
    }

    /// A part of a file, read as far as it fits into each call: that blocks the loop as long as the disk
    /// takes.
    pub(crate) fn file(range: FileRange) -> Self {
        Self::File(range)
    }

    /// Sends what the room takes; says whether that was all.
    ///
    /// # Errors
    /// The file can't be read, or is shorter than it was.
    pub(crate) fn send(&mut self, actions: &mut Actions<'_>) -> Result<bool, Errno> {
        match self {
            Self::Block { block, sent_bytes, len_bytes } => {
                while *sent_bytes < *len_bytes && actions.room() > 0 {
                    let at = usize::try_from(*sent_bytes % block.len() as u64).expect("in a block");
                    let left = usize::try_from(*len_bytes - *sent_bytes).unwrap_or(usize::MAX);
                    let piece = (block.len() - at).min(left).min(actions.room());
                    actions.send(&block[at..at + piece]);
                    *sent_bytes += piece as u64;
                }
                Ok(*sent_bytes == *len_bytes)
            }
            Self::File(range) => {
                let left = usize::try_from(range.len).unwrap_or(usize::MAX);
                let piece = left.min(actions.room());
                read_exactly(&range.file, &mut actions.spare()[..piece], range.offset)?;
                actions.advance(piece);
                range.offset += piece as u64;
                range.len -= piece as u64;
                Ok(range.len == 0)
            }
        }
    }
}

/// Fills `into` with what stands in the file from `offset` on.
///
/// # Errors
/// It can't be read; it ends before, with `EIO`.
pub(crate) fn read_exactly(file: &OwnedFd, into: &mut [u8], offset: u64) -> Result<(), Errno> {
    let mut at = 0;
    while at < into.len() {
        match rustix::io::pread(file, &mut into[at..], offset + at as u64) {
            // The file was truncated after its length was read.
            Ok(0) => return Err(Errno::IO),
            Ok(read) => at += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
