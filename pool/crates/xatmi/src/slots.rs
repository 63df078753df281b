//! State and counters of a pool's workers in shared memory.
//!
//! The manager makes one memfd with a [`Slot`] for each worker and hands it down when it starts
//! them. A worker writes its own slot and no other; the manager reads all of them, while they
//! live for the tables that it prints, and after a death to answer the callers of the
//! dead worker. Nothing here waits, and a word of a slot is never trusted beyond being a number.

mod record;

use std::io;
use std::ops::Index;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{self, AtomicU64, Ordering};

use pollux_sys::shared::SharedWords;

pub(crate) use record::UNSENT_MAX;
pub use record::{Caller, Inbox, Occupation, Slot, State, UnsentReply, WORDS_PER_WORKER};

/// The version of the layout, raised with every change of a meaning; a change of sizes shows by itself.
const LAYOUT: u64 = 1;
/// The first word: a name of ours, the layout, the words of a worker.
const STAMP: u64 = 0x504f_4c58 << 32 | LAYOUT << 16 | WORDS as u64;

/// The most services that one server offers (notes of the interface: 48).
pub const SERVICES_MAX: usize = 48;

const TOTALS_FIRST: usize = 5;
const SERVICES_FIRST: usize = 16;
const SERVICE_WORDS: usize = 5;

const NAME: usize = 0;
const OK: usize = 1;
const FAILED: usize = 2;
const MAX_NS: usize = 3;
const LAST_NS: usize = 4;

const _: () = assert!(LAYOUT < 1 << 16 && WORDS < 1 << 16);
/// Words in front of the workers': a cache line, of which the first one is in use.
const HEAD_WORDS: usize = 8;
/// Words of one worker: its record, its inbox, its unsent replies; as many as four pages have, so that
/// the record and the beginning of the inbox are on one.
const WORDS: usize = UNSENT_FIRST + UNSENT_MAX * record::UNSENT_WORDS;
const UNSENT_FIRST: usize = WORDS_PER_WORKER + record::INBOX_WORDS;
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
    /// Those of `memfd_create(2)`, `ftruncate(2)` and `mmap(2)`: EMFILE, ENFILE, ENOMEM.
    pub fn create(workers: usize) -> io::Result<Self> {
        let words = SharedWords::create(HEAD_WORDS + workers * WORDS)?;
        words[0].store(STAMP, Ordering::Relaxed);
        Ok(Self { words })
    }

    /// Bytes of the memfd with slots for `workers` workers.
    #[must_use]
    pub fn len_bytes(workers: usize) -> u64 {
        ((HEAD_WORDS + workers * WORDS) * size_of::<u64>()) as u64
    }

    /// Maps the slots of a memfd that was inherited.
    ///
    /// # Errors
    /// Those of `fstat(2)` and `mmap(2)`; EINVAL for another descriptor;
    /// `InvalidData` for memory that was laid out by another build of this crate.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let words = SharedWords::from_fd(fd)?;
        let stamp = words[0].load(Ordering::Relaxed);
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

    /// The memory that the requests of worker `index` are received into, none beyond the last.
    #[must_use]
    pub fn inbox(&self, index: usize) -> Option<Inbox<'_>> {
        Some(Inbox { words: &self.part(index)?[WORDS_PER_WORKER..UNSENT_FIRST] })
    }

    /// Clears the inbox and the unsent replies of the last worker at `index`. Called by the manager.
    pub fn forget(&self, index: usize) {
        for word in self.part(index).into_iter().flat_map(|part| &part[UNSENT_FIRST..]) {
            word.store(0, Ordering::Relaxed);
        }
        if let Some(inbox) = self.inbox(index) {
            inbox.empty();
        }
    }

    fn unsent_replies(&self, index: usize) -> Option<&[AtomicU64]> {
        Some(&self.part(index)?[UNSENT_FIRST..])
    }

    fn part(&self, index: usize) -> Option<&[AtomicU64; WORDS]> {
        self.words[HEAD_WORDS..].as_chunks::<WORDS>().0.get(index)
    }
}

impl AsFd for Slots {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.words.as_fd()
    }
}

/// The counters of a worker over all its services. Only the worker adds. Counters are zero when it is started and
/// stay until its slot is taken again, so those of a dead one can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Total {
    /// Requests given to a service.
    Calls,
    /// Those that ended otherwise than with success or a forward.
    Failed,
    /// Requests not served because their deadline was over.
    Late,
    /// Replies thrown away: their deadline was over while their queue was full.
    Dropped,
    /// Replies that had to wait for room.
    Deferred,
    /// Replies whose caller was gone.
    Gone,
    /// Messages that were not a request, or whose payload could not be obtained.
    Malformed,
    /// Wakes that found nothing: another worker was quicker, or there was only room.
    Empty,
    /// Messages that a wake_all found waiting.
    Nudged,
    /// Bytes of the payloads of requests and replies.
    PayloadBytes,
}

impl Total {
    /// All of them, in the order of their words.
    pub const ALL: [Self; 10] = [
        Self::Calls,
        Self::Failed,
        Self::Late,
        Self::Dropped,
        Self::Deferred,
        Self::Gone,
        Self::Malformed,
        Self::Empty,
        Self::Nudged,
        Self::PayloadBytes,
    ];
}

/// The totals of one worker at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals([u64; Total::ALL.len()]);

impl Index<Total> for Totals {
    type Output = u64;

    fn index(&self, total: Total) -> &u64 {
        &self.0[total as usize]
    }
}

/// The counters of a worker for one of its services.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServiceTally {
    /// Its entry, see [`Occupation::service`].
    pub entry: usize,
    /// [`name_hash`] of the service's name.
    pub name_hash: u64,
    /// Calls that ended with success or a forward.
    pub ok: u64,
    /// Calls that ended otherwise.
    pub failed: u64,
    /// The longest call, in nanoseconds.
    pub max_ns: u64,
    /// The last call, in nanoseconds.
    pub last_ns: u64,
}

/// The number under which a service's name stands in a slot; never zero (FNV-1a, 64 bits).
#[must_use]
pub fn name_hash(name: &str) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x100_0000_01b3;
    let hash = name.bytes().fold(BASIS, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    hash.max(1)
}

impl Slot<'_> {
    /// Adds `more` to a total. Called by the worker.
    #[inline]
    pub fn add(&self, total: Total, more: u64) {
        add(&self.words[TOTALS_FIRST + total as usize], more);
    }

    /// Gives entry `entry` to the service `name`, with nothing counted. Called by the worker.
    ///
    /// # Panics
    /// When `entry` is not below [`SERVICES_MAX`].
    pub fn offer(&self, entry: usize, name: &str) {
        let words = self.service(entry);
        for word in &words[OK..] {
            word.store(0, Ordering::Relaxed);
        }
        words[NAME].store(name_hash(name), Ordering::Release);
    }

    /// Gives the entry back. Called by the worker.
    ///
    /// # Panics
    /// When `entry` is not below [`SERVICES_MAX`].
    pub fn withdraw(&self, entry: usize) {
        self.service(entry)[NAME].store(0, Ordering::Release);
    }

    /// Counts a call of the service that took `took_ns`. Called by the worker.
    ///
    /// # Panics
    /// When `entry` is not below [`SERVICES_MAX`].
    #[inline]
    pub fn served(&self, entry: usize, is_ok: bool, took_ns: u64) {
        let words = self.service(entry);
        add(&words[if is_ok { OK } else { FAILED }], 1);
        words[LAST_NS].store(took_ns, Ordering::Relaxed);
        if took_ns > words[MAX_NS].load(Ordering::Relaxed) {
            words[MAX_NS].store(took_ns, Ordering::Relaxed);
        }
    }

    /// The totals. Called by the manager.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let word = |index: usize| self.words[TOTALS_FIRST + index].load(Ordering::Relaxed);
        Totals(std::array::from_fn(word))
    }

    /// The counters of each service on offer. Called by the manager.
    #[must_use]
    pub fn services(&self) -> Vec<ServiceTally> {
        (0..SERVICES_MAX).filter_map(|entry| self.tally(entry)).collect()
    }

    fn tally(&self, entry: usize) -> Option<ServiceTally> {
        let words = self.service(entry);
        let name_hash = words[NAME].load(Ordering::Acquire);
        let word = |index: usize| words[index].load(Ordering::Relaxed);
        let ok = word(OK);
        let failed = word(FAILED);
        let max_ns = word(MAX_NS);
        let last_ns = word(LAST_NS);
        (name_hash != 0).then_some(ServiceTally { entry, name_hash, ok, failed, max_ns, last_ns })
    }

    fn service(&self, entry: usize) -> &[AtomicU64] {
        assert!(entry < SERVICES_MAX, "service entry {entry}: a server offers {SERVICES_MAX}");
        let first = SERVICES_FIRST + entry * SERVICE_WORDS;
        &self.words[first..first + SERVICE_WORDS]
    }
}

/// One writer, so no locked instruction is needed.
#[inline]
fn add(word: &AtomicU64, more: u64) {
    word.store(word.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use Ordering;

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
    fn the_inbox_of_one_mapping_is_seen_by_the_other() {
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
    fn unsent_replies_are_seen_until_they_are_sent() {
        let slots = std::rc::Rc::new(Slots::create(2).expect("memory"));
        let first = UnsentReply::note(&slots, 1, &CALLER).expect("room");
        let rest: Vec<_> = (1..UNSENT_MAX).map(|_| UnsentReply::note(&slots, 1, &CALLER)).collect();
        assert!(
            rest.iter().all(Option::is_some) && UnsentReply::note(&slots, 1, &CALLER).is_none()
        );
        drop(rest);
        assert_eq!(
            (UnsentReply::all(&slots, 0), UnsentReply::all(&slots, 1)),
            (vec![], vec![CALLER])
        );
        drop(first);
        assert_eq!(UnsentReply::all(&slots, 1), []);
        UnsentReply::note(&slots, 1, &CALLER).expect("room").leave();
        assert_eq!(UnsentReply::all(&slots, 1), [CALLER]);
        slots.forget(1);
        assert_eq!(UnsentReply::all(&slots, 1), []);
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

    fn words() -> Box<[AtomicU64; WORDS_PER_WORKER]> {
        Box::new(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    #[test]
    fn a_service_is_counted_under_its_entry_and_gone_when_withdrawn() {
        let words = words();
        let slot = Slot::over(&words);
        slot.offer(0, "BALANCE");
        slot.offer(47, "DEBIT");
        slot.served(47, true, 30);
        slot.served(47, true, 900);
        slot.served(47, false, 20);
        let debit = ServiceTally {
            entry: 47,
            name_hash: name_hash("DEBIT"),
            ok: 2,
            failed: 1,
            max_ns: 900,
            last_ns: 20,
        };
        assert_eq!(slot.services()[1], debit);
        slot.withdraw(47);
        assert_eq!(slot.services().len(), 1);
        slot.offer(47, "CREDIT");
        assert_eq!(slot.services()[1].ok, 0);
    }

    #[test]
    fn totals_stand_beside_each_other() {
        let words = words();
        let slot = Slot::over(&words);
        for (count, total) in Total::ALL.into_iter().enumerate() {
            slot.add(total, count as u64 + 1);
        }
        let totals = slot.totals();
        for (count, total) in Total::ALL.into_iter().enumerate() {
            assert_eq!(totals[total], count as u64 + 1, "{total:?}");
        }
        assert!(slot.services().is_empty());
    }
}
