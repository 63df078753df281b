//! The records that the manager writes: how large the memory is, which services there are, and which workers
//! offer each.
//!
//! The manager that makes the memory chooses the numbers of the head; workers and clients read them there, by
//! mappings that they cannot write, so a manager that takes over works with what it finds. The places in all
//! three files follow from them. The ring of a service is that with the number of its row.
//!
//! ```text
//!  records    head, a row for each service                            (the manager writes)
//!  claims     a claim for each worker                  (workers write, clients do not have it)
//!  exchange   idle, spinning, present and awake bits and wake flags of workers,    (all write)
//!             blocks used, what giving way has cost, calling and asleep bits, owners and wake flags of blocks, rings, requests with
//!             their messages: BLOCK_REQUESTS belong to one block
//!
//!  a row:  word 0 life: odd while the service is offered, one more with each change
//!          word 1 length of the name     words 2 to 5 the name     words 6 on: bits of the workers
//! ```
//!
//! Only pages that were used take memory, so owners stand beside each other and are looked at without
//! touching requests.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use pollux_sys::futex::{self, Address};
use pollux_sys::shared::{ReadOnlyPart, WORDS_MAX};

use super::request::REQUEST_HEAD_WORDS;
use super::ring::RING_WORDS;
use super::workers::{CLAIM_WORDS, FLAG_WORDS};
use crate::queue::ServiceName;

/// The most services of a pool: four times what the kernel allows as queues.
pub(crate) const SERVICES_MAX: usize = 1_024;
/// The most workers: what `NDRX_SRVMAX` allows, and room for reloads.
const WORKERS_MAX: usize = 16_384;
/// Requests of one block: a context that calls has one of them out, seldom more.
pub(crate) const BLOCK_REQUESTS: usize = 4;
/// The most blocks, one for each context that a manager takes.
const BLOCKS_MAX: usize = 8_192;
/// Words with a bit for each block.
pub(crate) const BLOCK_WORDS: usize = BLOCKS_MAX / 64;
/// The longest message: longer payloads go by memfd.
const MESSAGE_LEN_BYTES_MAX: usize = 8_192;

/// What the words mean. To be raised with every change of that.
const LAYOUT: u64 = 6;
/// The first word: a name of ours, and the layout.
const STAMP: u64 = 0x504f_4c58_4d45_4d00 | LAYOUT;
/// Words of the head: stamp, workers, words of a message, blocks, contexts so far, the manager's life,
/// which records these are, whether all spin, how many workers there were at once; the rest of the second
/// cache line is not in use.
const HEAD_WORDS: usize = 16;
pub(crate) const CONTEXTS: usize = 4;
/// Its thread while a manager runs, marked by the kernel when that ends (`pollux_sys::futex::Owned`).
pub(crate) const MANAGER: usize = 5;
/// How many managers have made records for this exchange before this one.
pub(crate) const TERM: usize = 6;
/// 1 where workers and clients spin however many can run.
pub(crate) const ALWAYS_SPINS: usize = 7;
/// One more than the highest number that a worker was given: all bits of workers are below it.
pub(crate) const NUMBERS_USED: usize = 8;

const LIFE: usize = 0;
const NAME_LEN: usize = 1;
const NAME: usize = 2;
const NAME_WORDS: usize = 4;
/// Words in front of the bits of the workers.
const ROW_HEAD_WORDS: usize = NAME + NAME_WORDS;

const _: () = assert!(ServiceName::LEN_BYTES_MAX <= NAME_WORDS * size_of::<u64>());

/// The numbers that all places follow from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Geometry {
    workers: usize,
    message_words: usize,
    blocks: usize,
}

impl Geometry {
    /// Room for so many workers, and for messages of so many bytes.
    pub(crate) fn new(workers: usize, message_len_bytes: u32) -> Self {
        let len_bytes = (message_len_bytes as usize).min(MESSAGE_LEN_BYTES_MAX);
        let workers = workers.clamp(1, WORKERS_MAX).next_multiple_of(64);
        let one = Self { workers, message_words: len_bytes.div_ceil(8), blocks: 0 };
        let block_words = 1 + FLAG_WORDS + BLOCK_REQUESTS * one.request_words();
        let room = (WORDS_MAX - one.exchange_words() - FLAG_WORDS) / block_words;
        Self { blocks: room.min(BLOCKS_MAX), ..one }
    }

    /// What the head says; none when it was not written by this build.
    pub(crate) fn read(head: impl Fn(usize) -> u64) -> Option<Self> {
        let number = |at| usize::try_from(head(at)).ok();
        let read = Self { workers: number(1)?, message_words: number(2)?, blocks: number(3)? };
        let is_sound = head(0) == STAMP
            && (64..=WORKERS_MAX).contains(&read.workers)
            && read.workers.is_multiple_of(64)
            && (1..=MESSAGE_LEN_BYTES_MAX / 8).contains(&read.message_words)
            && (1..=BLOCKS_MAX).contains(&read.blocks);
        is_sound.then_some(read)
    }

    /// What stands in the head.
    pub(crate) fn head(&self) -> [u64; 4] {
        [STAMP, self.workers as u64, self.message_words as u64, self.blocks as u64]
    }

    pub(crate) fn workers(&self) -> usize {
        self.workers
    }

    /// Words with a bit for each worker.
    pub(crate) fn worker_words(&self) -> usize {
        self.workers / 64
    }

    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    pub(crate) fn requests(&self) -> usize {
        self.blocks * BLOCK_REQUESTS
    }

    pub(crate) fn message_len_bytes(&self) -> usize {
        self.message_words * 8
    }

    pub(crate) fn records_words(&self) -> usize {
        self.row(SERVICES_MAX)
    }

    pub(crate) fn claims_words(&self) -> usize {
        self.workers * CLAIM_WORDS
    }

    pub(crate) fn exchange_words(&self) -> usize {
        self.request(self.requests())
    }

    // Places in the records.

    #[inline]
    pub(crate) fn row(&self, ring: usize) -> usize {
        HEAD_WORDS + ring * (ROW_HEAD_WORDS + self.worker_words())
    }

    // Places in the exchange, which begins with the idle bits.

    #[inline]
    pub(crate) fn spinning(&self) -> usize {
        self.worker_words().next_multiple_of(FLAG_WORDS)
    }

    #[inline]
    pub(crate) fn present(&self) -> usize {
        2 * self.spinning()
    }

    #[inline]
    pub(crate) fn awake(&self) -> usize {
        3 * self.spinning()
    }

    #[inline]
    pub(crate) fn wake_flag(&self, worker: usize) -> usize {
        4 * self.spinning() + worker * FLAG_WORDS
    }

    #[inline]
    pub(crate) fn blocks_used(&self) -> usize {
        self.wake_flag(self.workers)
    }

    /// In the cache line of `blocks_used`: both are seldom written.
    #[inline]
    pub(crate) fn giving_way(&self) -> usize {
        self.blocks_used() + 1
    }

    #[inline]
    pub(crate) fn calling(&self) -> usize {
        self.blocks_used() + FLAG_WORDS
    }

    #[inline]
    pub(crate) fn asleep(&self) -> usize {
        self.calling() + BLOCK_WORDS
    }

    pub(crate) fn owner(&self, block: usize) -> usize {
        self.asleep() + BLOCK_WORDS + block
    }

    #[inline]
    pub(crate) fn block_flag(&self, block: usize) -> usize {
        self.owner(self.blocks).next_multiple_of(FLAG_WORDS) + block * FLAG_WORDS
    }

    #[inline]
    pub(crate) fn ring(&self, ring: usize) -> usize {
        self.block_flag(self.blocks) + ring * RING_WORDS
    }

    /// Head and message of a request.
    #[inline]
    pub(crate) fn request(&self, request: usize) -> usize {
        self.ring(SERVICES_MAX) + request * self.request_words()
    }

    #[inline]
    pub(crate) fn message_words(&self) -> usize {
        self.message_words
    }

    #[inline]
    fn request_words(&self) -> usize {
        (REQUEST_HEAD_WORDS + self.message_words).next_multiple_of(FLAG_WORDS)
    }
}

/// Words that can be read: by processes that may write them, and by those that may not.
pub(crate) trait Words {
    /// Word `at`.
    fn word(&self, at: usize) -> u64;
}

/// The records of a pool, as workers and clients have them: head and directory.
#[derive(Debug)]
pub(crate) struct Records {
    words: ReadOnlyPart,
    geometry: Geometry,
}

impl Records {
    /// Maps what a manager made.
    ///
    /// # Errors
    /// EINVAL for a file that is not such memory, `InvalidData` for that of another build.
    pub(crate) fn map(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let words = ReadOnlyPart::map_all(fd)?;
        let geometry = Geometry::read(|at| if at < words.words() { words.word(at) } else { 0 });
        let sound = geometry.filter(|geometry| geometry.records_words() == words.words());
        let geometry = sound.ok_or_else(|| {
            let what =
                "it is of another build; stop the pool and start it with programs of one build";
            io::Error::new(io::ErrorKind::InvalidData, what)
        })?;
        Ok(Self { words, geometry })
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The service of this name.
    pub(crate) fn find(&self, name: &ServiceName) -> Option<Row> {
        find(self, &self.geometry, name)
    }

    /// Whether the service is still the one that was found.
    #[inline]
    pub(crate) fn stands(&self, row: Row) -> bool {
        self.word(self.geometry.row(row.ring) + LIFE) == row.life
    }

    /// Which records these are: those of a later manager have a higher number.
    pub(crate) fn term(&self) -> u64 {
        self.word(TERM)
    }

    /// Whether workers and clients spin however many can run.
    #[inline]
    pub(crate) fn always_spins(&self) -> bool {
        self.word(ALWAYS_SPINS) != 0
    }

    /// What says which thread is the manager, or that it is gone.
    #[inline]
    pub(crate) fn manager(&self) -> u32 {
        self.word(MANAGER) as u32
    }

    /// Whether the manager ended: no process writes here any more.
    #[inline]
    pub(crate) fn is_manager_gone(&self) -> bool {
        self.manager() & futex::OWNER_DIED != 0
    }

    /// Where the word of the manager is, to sleep on it.
    pub(crate) fn manager_address(&self) -> Address<'_> {
        self.words.address(MANAGER)
    }
}

impl Words for Records {
    #[inline]
    fn word(&self, at: usize) -> u64 {
        self.words.word(at)
    }
}

impl Words for [AtomicU64] {
    fn word(&self, at: usize) -> u64 {
        self[at].load(Ordering::SeqCst)
    }
}

/// A service as it was found; it is another one, or none, when its life has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    pub(crate) ring: usize,
    life: u64,
}

/// The service of this name.
pub(crate) fn find(
    words: &(impl Words + ?Sized),
    geometry: &Geometry,
    name: &ServiceName,
) -> Option<Row> {
    let (len, packed) = packed(name);
    (0..SERVICES_MAX).find_map(|ring| {
        let row = geometry.row(ring);
        let life = words.word(row + LIFE);
        let is_it = is_offered(life)
            && words.word(row + NAME_LEN) == len
            && (0..NAME_WORDS).all(|at| words.word(row + NAME + at) == packed[at]);
        // It may have become another one during the look.
        (is_it && words.word(row + LIFE) == life).then_some(Row { ring, life })
    })
}

/// The bits of 64 workers: set for those that offer the service.
#[inline]
pub(crate) fn offers(
    words: &(impl Words + ?Sized),
    geometry: &Geometry,
    ring: usize,
    at: usize,
) -> u64 {
    words.word(geometry.row(ring) + ROW_HEAD_WORDS + at)
}

/// Words of workers' bits in which some can be set: there is room for thousands of workers, and few pools have
/// more than a word of them.
#[inline]
pub(crate) fn words_used(words: &(impl Words + ?Sized), geometry: &Geometry) -> usize {
    let numbers = usize::try_from(words.word(NUMBERS_USED)).unwrap_or(usize::MAX);
    numbers.min(geometry.workers()).div_ceil(64)
}

/// The names of all services.
pub(crate) fn all(words: &[AtomicU64], geometry: &Geometry) -> Vec<(usize, ServiceName)> {
    (0..SERVICES_MAX).filter_map(|ring| Some((ring, name(words, geometry, ring)?))).collect()
}

/// The rings of services that were offered and are not any more.
pub(crate) fn withdrawn<'a>(
    words: &'a (impl Words + ?Sized),
    geometry: &'a Geometry,
) -> impl Iterator<Item = usize> + 'a {
    (0..SERVICES_MAX).filter(|ring| {
        let life = words.word(geometry.row(*ring) + LIFE);
        life != 0 && !is_offered(life)
    })
}

/// Offers a service in a free row, with no worker yet. Called by the manager.
pub(crate) fn offer(words: &[AtomicU64], geometry: &Geometry, ring: usize, name: &ServiceName) {
    let row = geometry.row(ring);
    let (len, packed) = packed(name);
    words[row + NAME_LEN].store(len, Ordering::Relaxed);
    for (at, word) in packed.into_iter().enumerate() {
        words[row + NAME + at].store(word, Ordering::Relaxed);
    }
    for at in 0..geometry.worker_words() {
        words[row + ROW_HEAD_WORDS + at].store(0, Ordering::Relaxed);
    }
    live(&words[row + LIFE], true);
}

/// Offers the service no longer. Called by the manager.
pub(crate) fn withdraw(words: &[AtomicU64], geometry: &Geometry, ring: usize) {
    live(&words[geometry.row(ring) + LIFE], false);
}

/// Whether `worker` offers the service. Called by the manager.
pub(crate) fn set(
    words: &[AtomicU64],
    geometry: &Geometry,
    ring: usize,
    worker: usize,
    does: bool,
) {
    let word = &words[geometry.row(ring) + ROW_HEAD_WORDS + worker / 64];
    let bit = 1 << (worker % 64);
    if does {
        word.fetch_or(bit, Ordering::SeqCst)
    } else {
        word.fetch_and(!bit, Ordering::SeqCst)
    };
}

fn name(words: &[AtomicU64], geometry: &Geometry, ring: usize) -> Option<ServiceName> {
    let row = geometry.row(ring);
    if !is_offered(words.word(row + LIFE)) {
        return None;
    }
    let bytes: Vec<u8> =
        (0..NAME_WORDS).flat_map(|at| words.word(row + NAME + at).to_le_bytes()).collect();
    let len = usize::try_from(words.word(row + NAME_LEN)).ok()?;
    ServiceName::new(str::from_utf8(bytes.get(..len)?).ok()?)
}

fn live(life: &AtomicU64, is_offered_now: bool) {
    let seen = life.load(Ordering::SeqCst);
    if is_offered(seen) != is_offered_now {
        life.store(seen.wrapping_add(1), Ordering::SeqCst);
    }
}

fn is_offered(life: u64) -> bool {
    life & 1 == 1
}

fn packed(name: &ServiceName) -> (u64, [u64; NAME_WORDS]) {
    let mut bytes = [0; NAME_WORDS * size_of::<u64>()];
    let name = name.as_str().as_bytes();
    bytes[..name.len()].copy_from_slice(name);
    let words = std::array::from_fn(|at| {
        let mut word = [0; size_of::<u64>()];
        word.copy_from_slice(&bytes[at * size_of::<u64>()..][..size_of::<u64>()]);
        u64::from_le_bytes(word)
    });
    (name.len() as u64, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_has_its_place_and_what_the_head_says_is_looked_at() {
        for (workers, len_bytes) in [(1, 256), (506, 4096), (10_256, 8192), (100_000, 16 << 20)] {
            let geometry = Geometry::new(workers, len_bytes);
            assert!(geometry.records_words() <= WORDS_MAX && geometry.blocks() >= 1_024);
            assert!(geometry.exchange_words() <= WORDS_MAX, "{geometry:?}");
            assert!(geometry.request(geometry.requests()) <= geometry.exchange_words());
            assert_eq!(Geometry::read(|at| geometry.head()[at]), Some(geometry));
            for (at, wrong) in [(0, 0), (1, 63), (1, u64::MAX), (2, 0), (2, 9_999), (3, 0)] {
                let head = |word| if word == at { wrong } else { geometry.head()[word] };
                assert_eq!(Geometry::read(head), None, "word {at} is {wrong}");
            }
        }
    }
}
