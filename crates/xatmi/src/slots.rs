//! What the workers of a pool tell about themselves in shared memory.
//!
//! The manager makes one memfd with a [`Slot`] for each worker and hands it down when it starts
//! them. A worker writes its own slot and no other; the manager reads all of them, while they
//! live for the tables that it prints, and after a death to answer the caller who waits for the
//! dead. Nothing here waits, and no word of a slot is ever trusted beyond being a number.

mod inbox;
mod promise;
mod record;
mod tally;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic;

use pollux_sys::shared::SharedWords;

pub use inbox::Inbox;
pub(crate) use promise::PROMISES_MAX;
pub use promise::Promise;
pub use record::{Caller, Occupation, Slot, State, WORDS_PER_WORKER};
pub use tally::{SERVICES_MAX, ServiceTally, Total, Totals, name_hash};

/// What the words mean. To be raised with every change of that; a change of sizes shows by itself.
const LAYOUT: u64 = 1;
/// The first word: a name of ours, the layout, the words of a worker.
const STAMP: u64 = 0x504f_4c58 << 32 | LAYOUT << 16 | WORDS as u64;
const _: () = assert!(LAYOUT < 1 << 16 && WORDS < 1 << 16);
/// Words in front of the workers': a cache line, of which the first one is in use.
const HEAD_WORDS: usize = 8;
/// Words of one worker: its record, its inbox, its promises; as many as four pages have, so that
/// the record and the beginning of the inbox are on one.
const WORDS: usize = PROMISES_FIRST + PROMISES_MAX * promise::PROMISE_WORDS;
const PROMISES_FIRST: usize = WORDS_PER_WORKER + inbox::INBOX_WORDS;
const _: () = assert!(WORDS == 2048);

/// The slots of all workers of one pool.
#[derive(Debug)]
pub struct Slots {
    words: SharedWords,
}

impl Slots {
    /// Makes slots for `workers` workers, all [`State::Free`], in a new memfd.
    ///
    /// # Errors
    /// What `memfd_create(2)`, `ftruncate(2)` and `mmap(2)` give: EMFILE, ENFILE, ENOMEM.
    pub fn create(workers: usize) -> io::Result<Self> {
        let words = SharedWords::create(HEAD_WORDS + workers * WORDS)?;
        words[0].store(STAMP, atomic::Ordering::Relaxed);
        Ok(Self { words })
    }

    /// Bytes of the memfd with slots for `workers` workers.
    #[must_use]
    pub fn len_bytes(workers: usize) -> u64 {
        ((HEAD_WORDS + workers * WORDS) * size_of::<u64>()) as u64
    }

    /// Maps the slots behind a memfd that somebody else made.
    ///
    /// # Errors
    /// What `fstat(2)` and `mmap(2)` give; EINVAL for a descriptor that is no such memory;
    /// `InvalidData` for memory that was laid out by another build of this crate.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let words = SharedWords::from_fd(fd)?;
        let stamp = words[0].load(atomic::Ordering::Relaxed);
        if stamp != STAMP || words.len() < HEAD_WORDS {
            let what = format!(
                "its layout is {stamp:#x} and not {STAMP:#x}: manager and worker are of different \
                 builds; stop the pool and start it with programs of one build"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(Self { words })
    }

    /// How many workers have a slot.
    #[must_use]
    pub fn len(&self) -> usize {
        (self.words.len() - HEAD_WORDS) / WORDS
    }

    /// Whether there is no slot at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slot of worker `index`, none beyond the last.
    #[must_use]
    pub fn slot(&self, index: usize) -> Option<Slot<'_>> {
        self.part(index)?.first_chunk().map(Slot::over)
    }

    /// Where worker `index` has its requests written, none beyond the last.
    #[must_use]
    pub fn inbox(&self, index: usize) -> Option<Inbox<'_>> {
        Some(Inbox { words: &self.part(index)?[WORDS_PER_WORKER..PROMISES_FIRST] })
    }

    /// Forgets what the last worker at `index` had taken and promised. Called by the manager.
    pub fn forget(&self, index: usize) {
        for word in self.part(index).into_iter().flat_map(|part| &part[PROMISES_FIRST..]) {
            word.store(0, atomic::Ordering::Relaxed);
        }
        if let Some(inbox) = self.inbox(index) {
            inbox.empty();
        }
    }

    fn promises(&self, index: usize) -> Option<&[atomic::AtomicU64]> {
        Some(&self.part(index)?[PROMISES_FIRST..])
    }

    fn part(&self, index: usize) -> Option<&[atomic::AtomicU64; WORDS]> {
        self.words[HEAD_WORDS..].as_chunks::<WORDS>().0.get(index)
    }
}

impl AsFd for Slots {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.words.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use atomic::Ordering;

    use super::*;

    const CALLER: Caller = Caller { pid: 77, context: 3, call_id: 12, nonce: u64::MAX };

    #[test]
    fn a_second_mapping_sees_what_the_first_wrote() {
        let slots = Slots::create(3).expect("memory");
        let fd = slots.as_fd().try_clone_to_owned().expect("a descriptor");
        let other = Slots::from_fd(fd).expect("the same memory");
        assert_eq!(other.len(), 3);
        let slot = slots.slot(2).expect("three of them");
        slot.start();
        slot.begin(&CALLER, 1, true, 500);
        let seen = other.slot(2).expect("three of them").occupation();
        assert_eq!(seen.state, State::Busy);
        assert_eq!(seen.caller, CALLER);
        assert_eq!(other.slot(1).expect("three of them").occupation().state, State::Free);
        assert!(other.slot(3).is_none());
    }

    #[test]
    fn what_is_in_the_inbox_of_one_is_seen_by_the_other_and_in_no_record() {
        let slots = Slots::create(2).expect("memory");
        let fd = slots.as_fd().try_clone_to_owned().expect("a descriptor");
        let other = Slots::from_fd(fd).expect("the same memory");
        let inbox = slots.inbox(0).expect("two of them");
        inbox.prepare();
        assert_eq!(size_of_val(inbox.words()), Inbox::LEN_BYTES_MAX);
        for (number, word) in inbox.words().iter().enumerate() {
            word.store(u64::from_ne_bytes([number as u8 | 1; 8]), Ordering::Relaxed);
        }
        let mut copy = [0; 11];
        other.inbox(0).expect("two of them").copy_to(&mut copy);
        assert_eq!(copy, [1; 11]);
        assert_eq!(other.inbox(0).expect("two of them").content()[16..24], [3; 8]);
        for index in [0, 1] {
            assert_eq!(other.slot(index).expect("two").occupation().state, State::Free);
        }
        assert!(other.inbox(1).expect("two").content().iter().all(|byte| *byte == 0));
        inbox.empty();
        assert_eq!(other.inbox(0).expect("two").content()[..9], [0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert!(other.inbox(2).is_none());
    }

    #[test]
    fn promises_are_seen_until_they_are_kept() {
        let slots = std::rc::Rc::new(Slots::create(2).expect("memory"));
        let first = Promise::note(&slots, 1, &CALLER).expect("room");
        let rest: Vec<_> = (1..PROMISES_MAX).map(|_| Promise::note(&slots, 1, &CALLER)).collect();
        assert!(rest.iter().all(Option::is_some) && Promise::note(&slots, 1, &CALLER).is_none());
        drop(rest);
        assert_eq!((Promise::all(&slots, 0), Promise::all(&slots, 1)), (vec![], vec![CALLER]));
        drop(first);
        assert_eq!(Promise::all(&slots, 1), []);
        Promise::note(&slots, 1, &CALLER).expect("room").leave();
        assert_eq!(Promise::all(&slots, 1), [CALLER]);
        slots.forget(1);
        assert_eq!(Promise::all(&slots, 1), []);
    }

    #[test]
    fn words_that_no_worker_wrote_are_read_without_a_panic() {
        let slots = Slots::create(1).expect("memory");
        for word in &slots.words[HEAD_WORDS..] {
            word.store(u64::MAX, Ordering::Relaxed);
        }
        let slot = slots.slot(0).expect("one");
        assert_eq!(slot.occupation().state, State::Free);
        assert_eq!(slot.services().len(), SERVICES_MAX);
        assert_eq!(slot.totals()[Total::Calls], u64::MAX);
    }

    #[test]
    fn memory_of_another_layout_is_refused() {
        let slots = Slots::create(1).expect("memory");
        slots.words[0].store(STAMP + (1 << 16), Ordering::Relaxed);
        let fd = slots.as_fd().try_clone_to_owned().expect("a descriptor");
        let error = Slots::from_fd(fd).expect_err("of another build");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains("different builds"), "{error}");
        let short = SharedWords::create(1).expect("memory");
        short[0].store(STAMP, Ordering::Relaxed);
        let fd = short.as_fd().try_clone_to_owned().expect("a descriptor");
        assert!(Slots::from_fd(fd).is_err(), "it has no room for anything");
    }
}
