//! Memory for one payload that sender and receiver map: a copy in and a copy out, and no system call once
//! both have mapped it. Never for payloads that are longer than [`LEN_BYTES_MAX`].
//!
//! ```text
//!   word 0  state: WAITING or TAKEN     word 1  bytes of the payload     word 2 on  the payload
//! ```
//!
//! The size is sealed, so neither side can take pages from under the other. A receiver's copy is
//! its own, whatever the sender does afterwards; its content is looked at there.

use std::cell::RefCell;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use pollux_sys::shared::{SharedPart, SharedWords};

use super::{open, other_file};
use crate::needs::fits_file_size;
use crate::wire::LargeRef;

/// The longest payload that is mapped.
pub(super) const LEN_BYTES_MAX: u64 = (4 << 20) - (HEAD_WORDS * size_of::<u64>()) as u64;
/// The least that is made: a sender's payloads differ, and memory that fits them all is used again.
const CAPACITY_BYTES_MIN: usize = 64 << 10;
/// Memory of senders that a thread keeps mapped: as many as it usually serves.
const OPENED_MAX: usize = 8;

const STATE: usize = 0;
const LEN: usize = 1;
const HEAD_WORDS: usize = 2;
const WAITING: u64 = 1;
const TAKEN: u64 = 2;

/// Memory of a sender that a receiver has mapped.
struct Opened {
    /// Process, descriptor and inode that name it. The inode is not used again while it is mapped.
    key: (u32, i32, u64),
    words: SharedPart,
}

thread_local! {
    /// The one that was used last stands last.
    static OPENED: RefCell<Vec<Opened>> = const { RefCell::new(Vec::new()) };
}

/// Memory for a payload of so many bytes.
///
/// # Errors
/// EMFILE, ENFILE, ENOMEM.
pub(super) fn create(len_bytes: usize) -> io::Result<SharedWords> {
    let needed = HEAD_WORDS * size_of::<u64>() + len_bytes;
    let capacity = needed.next_power_of_two().max(CAPACITY_BYTES_MIN);
    fits_file_size(capacity)?;
    SharedWords::create_named(c"pollux-payload", capacity / size_of::<u64>())
}

/// Whether a payload of so many bytes fits.
pub(super) fn fits(words: &[AtomicU64], len_bytes: usize) -> bool {
    len_bytes.div_ceil(size_of::<u64>()) + HEAD_WORDS <= words.len()
}

/// Puts a payload in, which fits. Called by the sender, while it cannot be read.
pub(super) fn put(words: &[AtomicU64], payload: &[u8]) {
    let (whole, rest) = payload.as_chunks::<8>();
    let mut places = words[HEAD_WORDS..].iter();
    for (bytes, word) in whole.iter().zip(&mut places) {
        word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
    }
    if !rest.is_empty()
        && let Some(word) = places.next()
    {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        word.store(u64::from_le_bytes(last), Ordering::Relaxed);
    }
    words[LEN].store(payload.len() as u64, Ordering::Relaxed);
    words[STATE].store(WAITING, Ordering::Release);
}

/// Whether it was read, or will not be. Called by the sender.
pub(super) fn is_taken(words: &[AtomicU64]) -> bool {
    words[STATE].load(Ordering::Acquire) == TAKEN
}

/// Reads the payload into `room`, which is as long, and marks it as taken.
///
/// # Errors
/// As [`super::fetch`].
pub(super) fn take(large: &LargeRef, room: &mut [u8]) -> io::Result<()> {
    with(large, |words| {
        let (whole, rest) = room.as_chunks_mut::<8>();
        let mut places = words[HEAD_WORDS..].iter();
        for (bytes, word) in whole.iter_mut().zip(&mut places) {
            *bytes = word.load(Ordering::Relaxed).to_le_bytes();
        }
        if let Some(word) = places.next() {
            let last = word.load(Ordering::Relaxed).to_le_bytes();
            rest.copy_from_slice(&last[..rest.len()]);
        }
        words[STATE].store(TAKEN, Ordering::Release);
    })
}

/// Marks a payload that will not be read as taken.
///
/// # Errors
/// As [`super::fetch`].
pub(super) fn discard(large: &LargeRef) -> io::Result<()> {
    with(large, |words| words[STATE].store(TAKEN, Ordering::Release))
}

/// Whether the payload is there.
pub(super) fn is_there(large: &LargeRef) -> bool {
    with(large, |_| ()).is_ok()
}

/// Does something with the memory of a payload, which is mapped unless it is already.
fn with<T>(large: &LargeRef, use_it: impl FnOnce(&[AtomicU64]) -> T) -> io::Result<T> {
    let key = (large.pid, large.fd, large.inode);
    OPENED.with_borrow_mut(|opened| {
        match opened.iter().position(|known| known.key == key) {
            Some(at) => opened[at..].rotate_left(1),
            None => {
                let file = open(large)?;
                let len = file.metadata()?.len() as usize / size_of::<u64>();
                let words = SharedPart::map(file.as_fd(), 0, len)?;
                if opened.len() == OPENED_MAX {
                    opened.remove(0);
                }
                opened.push(Opened { key, words });
            }
        }
        let words = &opened.last().expect("just put there").words;
        let len_bytes = usize::try_from(large.len_bytes).map_err(|_| other_file())?;
        let is_its = words.len() >= HEAD_WORDS
            && fits(words, len_bytes)
            && words[LEN].load(Ordering::Acquire) == large.len_bytes;
        if is_its { Ok(use_it(words)) } else { Err(other_file()) }
    })
}
