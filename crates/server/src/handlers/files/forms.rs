//! The forms of a file that is compressed for clients that take it, once for each state of the file; what was
//! made is kept.
//!
//! ```text
//!  kept? ── yes ──► sent
//!    │ no
//!  time left this second? ── no ──► the file as it is, counted
//!    │ yes
//!  made; room, once those that are not being sent and were asked for longest ago are dropped?
//!    │ yes                └── no ──► the file as it is, counted
//!    ▼
//!  kept if it is smaller, and sent
//! ```
//!
//! A loop serves no other client while it compresses, so both bounds are small: a file has [`BYTES_MAX`] at
//! most, and what is compressed in a second [`BYTES_PER_SECOND`], whatever clients ask for. Each loop keeps
//! its own.

use std::collections::HashMap;
use std::sync::Arc;

use crate::coding;
use crate::coding::Coding;
use crate::handlers::files::folder::Meta;

/// Largest file that is compressed: it takes a few milliseconds to some tens of them.
const BYTES_MAX: u64 = 512 * 1024;
/// Smallest one: below, the answer is one packet anyhow.
const BYTES_MIN: u64 = 1024;
/// What a loop compresses in a second at most, of files as they are.
const BYTES_PER_SECOND: u64 = 4 << 20;
/// What a loop keeps at most, of files as they were made.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// Most files that it remembers, those that compression does nothing for among them.
const KEPT_MAX: usize = 4096;
/// What is gained has to be at least this part of a file: one in so many.
const GAIN_PART: usize = 16;

/// A state of a file in one coding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key {
    pub(super) meta: Meta,
    pub(super) coding: Coding,
}

/// Whether a file of this type and size is compressed at all.
pub(super) fn is_worth(content_type: &str, len_bytes: u64) -> bool {
    coding::is_text(coding::media_type(content_type))
        && (BYTES_MIN..=BYTES_MAX).contains(&len_bytes)
}

/// What came of an attempt.
#[derive(Debug)]
pub(super) enum Compressed {
    Kept(Arc<[u8]>),
    Made(Arc<[u8]>),
    /// It is hardly smaller.
    Useless,
    /// This second's share is used up.
    NoTime,
    /// So much is on its way to slow clients that it can't be kept.
    BufferFull,
}

/// What one loop has compressed.
#[derive(Debug, Default)]
pub(super) struct Compressor {
    kept: HashMap<Key, Entry>,
    kept_bytes: usize,
    /// Counts uses, for the age of entries.
    uses: u64,
    second: u64,
    spent_bytes: u64,
}

#[derive(Debug)]
struct Entry {
    /// Empty where compression is of no use.
    bytes: Arc<[u8]>,
    used: u64,
}

impl Compressor {
    /// The file in this state, compressed; `read` reads it whole.
    ///
    /// # Errors
    /// What `read` gave.
    pub(super) fn get<E>(
        &mut self,
        key: Key,
        now_s: u64,
        read: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Compressed, E> {
        self.uses += 1;
        if let Some(entry) = self.kept.get_mut(&key) {
            entry.used = self.uses;
            return Ok(if entry.bytes.is_empty() {
                Compressed::Useless
            } else {
                Compressed::Kept(Arc::clone(&entry.bytes))
            });
        }
        if self.second != now_s {
            (self.second, self.spent_bytes) = (now_s, 0);
        }
        if self.spent_bytes + key.meta.len_bytes > BYTES_PER_SECOND {
            return Ok(Compressed::NoTime);
        }
        self.spent_bytes += key.meta.len_bytes;
        let plain = read()?;
        let limit = plain.len() - plain.len() / GAIN_PART;
        let made = key.coding.encode(&plain).ok().filter(|made| made.len() < limit);
        let bytes: Arc<[u8]> = made.unwrap_or_default().into();
        if !self.make_room(bytes.len()) {
            return Ok(Compressed::BufferFull);
        }
        self.kept_bytes += bytes.len();
        self.kept.insert(key, Entry { bytes: Arc::clone(&bytes), used: self.uses });
        Ok(if bytes.is_empty() { Compressed::Useless } else { Compressed::Made(bytes) })
    }

    /// Drops what was asked for longest ago until so many bytes fit; a quarter at once, so that looking
    /// for them is rare. What is being sent stays in memory as long as its client takes, so it stays here
    /// too, and counts; whether there is room then.
    fn make_room(&mut self, len_bytes: usize) -> bool {
        let is_full =
            |kept: usize, bytes: usize| kept >= KEPT_MAX || bytes + len_bytes > KEPT_BYTES_MAX;
        if !is_full(self.kept.len(), self.kept_bytes) {
            return true;
        }
        let unused = self.kept.iter().filter(|(_, it)| Arc::strong_count(&it.bytes) == 1);
        let mut ages: Vec<(u64, Key)> = unused.map(|(key, it)| (it.used, *key)).collect();
        ages.sort_unstable_by_key(|(used, _)| *used);
        let most = (KEPT_MAX * 3 / 4, KEPT_BYTES_MAX * 3 / 4);
        for (_, key) in ages {
            if self.kept.len() < most.0 && self.kept_bytes + len_bytes <= most.1 {
                break;
            }
            if let Some(entry) = self.kept.remove(&key) {
                self.kept_bytes -= entry.bytes.len();
            }
        }
        !is_full(self.kept.len(), self.kept_bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn key(inode: u64, len_bytes: usize, coding: Coding) -> Key {
        let len_bytes = len_bytes as u64;
        let is_folder = false;
        let modified_s = 1;
        let modified_ns = 0;
        let device = 1;
        let changed_ns = 0;
        let meta =
            Meta { is_folder, len_bytes, modified_s, modified_ns, inode, device, changed_ns };
        Key { meta, coding }
    }

    /// Bytes without a pattern, by a generator that is always the same (xorshift).
    fn noise(len: usize) -> Vec<u8> {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        (0..len).map(|_| next()).collect()
    }

    #[test]
    fn what_is_made_once_is_kept_until_the_file_changes() {
        let mut compressor = Compressor::default();
        let text = "the same words again and again ".repeat(1000).into_bytes();
        for coding in [Coding::Gzip, Coding::Zstd, Coding::Brotli] {
            let key = key(1, text.len(), coding);
            let read = || Ok::<_, Infallible>(text.clone());
            let Ok(Compressed::Made(made)) = compressor.get(key, 1, read) else {
                panic!("{coding:?}")
            };
            assert!(made.len() < text.len() / 10, "{coding:?}: {}", made.len());
            let unread = || -> Result<Vec<u8>, Infallible> { panic!("it is kept") };
            let Ok(Compressed::Kept(again)) = compressor.get(key, 1, unread) else {
                panic!("{coding:?}")
            };
            assert_eq!(again, made);
            // Of another time, by hand the old time, or of another file system.
            for other in [
                Meta { modified_ns: 1, ..key.meta },
                Meta { changed_ns: 1, ..key.meta },
                Meta { device: 2, ..key.meta },
            ] {
                let got = compressor.get(Key { meta: other, ..key }, 1, read);
                assert!(matches!(got, Ok(Compressed::Made(_))), "{coding:?} {other:?}");
            }
        }
    }

    #[test]
    fn time_and_memory_are_bounded_whatever_is_asked_for() {
        let mut compressor = Compressor::default();
        // Half of it is noise: the result is half as large as the file.
        let len = BYTES_MAX as usize;
        let file = [noise(len / 2), vec![b'a'; len / 2]].concat();
        let read = || Ok::<_, Infallible>(file.clone());
        let mut made = 0;
        for inode in 0..200 {
            // Each second has eight files.
            let second = inode / 10;
            let place = inode % 10;
            let got = compressor.get(key(inode, len, Coding::Zstd), second, read).expect("read");
            let is_in_time = place < BYTES_PER_SECOND / BYTES_MAX;
            assert_eq!(matches!(got, Compressed::Made(_)), is_in_time, "{inode}: {got:?}");
            assert_eq!(matches!(got, Compressed::NoTime), !is_in_time, "{inode}");
            made += u64::from(is_in_time);
            assert!(compressor.kept_bytes <= KEPT_BYTES_MAX, "{inode}");
        }
        assert_eq!(made, 160);
        let summed: usize = compressor.kept.values().map(|entry| entry.bytes.len()).sum();
        assert_eq!(summed, compressor.kept_bytes);
        assert!(summed > KEPT_BYTES_MAX / 2, "{summed}");
    }

    #[test]
    fn what_slow_clients_are_sent_counts_until_they_have_it() {
        let mut compressor = Compressor::default();
        let len = BYTES_MAX as usize;
        let file = [noise(len / 2), vec![b'a'; len / 2]].concat();
        let read = || Ok::<_, Infallible>(file.clone());
        let mut sent = Vec::new();
        let mut refused = 0;
        for inode in 0..200 {
            match compressor.get(key(inode, len, Coding::Zstd), inode, read).expect("read") {
                Compressed::Made(bytes) => sent.push(bytes),
                Compressed::BufferFull => refused += 1,
                other => panic!("{other:?}"),
            }
            let under_way: usize = sent.iter().map(|bytes| bytes.len()).sum();
            assert!(under_way <= KEPT_BYTES_MAX, "{inode}: {under_way}");
            assert!(compressor.kept_bytes <= KEPT_BYTES_MAX, "{inode}");
        }
        assert!(sent.len() > 50 && refused > 100, "{} {refused}", sent.len());
        // The first of them is served on, and once one has it there is room again.
        let first = compressor.get(key(0, len, Coding::Zstd), 200, read).expect("kept");
        assert!(matches!(first, Compressed::Kept(_)), "{first:?}");
        drop((sent, first));
        let next = compressor.get(key(300, len, Coding::Zstd), 200, read).expect("read");
        assert!(matches!(next, Compressed::Made(_)), "{next:?}");
    }

    #[test]
    fn what_does_not_get_smaller_is_remembered_as_that() {
        let mut compressor = Compressor::default();
        let file = noise(4096);
        let key = key(1, file.len(), Coding::Gzip);
        let read = || Ok::<_, Infallible>(file.clone());
        assert!(matches!(compressor.get(key, 1, read), Ok(Compressed::Useless)));
        let unread = || -> Result<Vec<u8>, Infallible> { panic!("it is known") };
        assert!(matches!(compressor.get(key, 1, unread), Ok(Compressed::Useless)));
        for inode in 2..2 * KEPT_MAX as u64 {
            let key = Key { meta: Meta { inode, ..key.meta }, ..key };
            let _ = compressor.get(key, inode, read);
            assert!(compressor.kept.len() <= KEPT_MAX);
        }
    }

    #[test]
    fn only_text_of_a_middle_size_is_worth_it() {
        for (content_type, len, is_it) in [
            ("text/html; charset=utf-8", 1024, true),
            ("text/html", 1023, false),
            ("text/css", BYTES_MAX, true),
            ("text/css", BYTES_MAX + 1, false),
            ("image/svg+xml", 5000, true),
            ("application/json", 5000, true),
            ("image/png", 5000, false),
            ("application/zip", 5000, false),
            ("font/woff2", 5000, false),
            ("video/mp4", 5000, false),
            ("application/octet-stream", 5000, false),
        ] {
            assert_eq!(is_worth(content_type, len), is_it, "{content_type} {len}");
        }
    }
}
