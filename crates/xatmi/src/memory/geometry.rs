//! Where in the three files of a pool's memory everything is.
//!
//! The manager that makes the memory chooses the numbers and writes them to the head of the records;
//! workers and clients read them there, so a manager that takes over works with what it finds. Pure
//! arithmetic.
//!
//! ```text
//!  records    head, a row for each service                            (the manager writes)
//!  claims     a claim for each worker                  (workers write, clients do not have it)
//!  exchange   idle bits, spinning bits, wake flags of workers, owners and          (all write)
//!             wake flags of blocks, rings, requests with their messages:
//!             BLOCK_REQUESTS belong to one block
//! ```
//!
//! Only pages that were used take memory, so owners stand beside each other and are looked at without
//! touching requests.

use pollux_sys::shared::WORDS_MAX;

use super::claim::CLAIM_WORDS;
use super::directory::ROW_HEAD_WORDS;
use super::idle::FLAG_WORDS;
use super::request::REQUEST_HEAD_WORDS;
use super::ring::RING_WORDS;

/// The most services of a pool: four times what the kernel allows as queues.
pub(crate) const SERVICES_MAX: usize = 1_024;
/// The most workers: what `NDRX_SRVMAX` allows, and room for reloads.
const WORKERS_MAX: usize = 16_384;
/// Requests of one block: a context that calls has one of them out, seldom more.
pub(crate) const BLOCK_REQUESTS: usize = 4;
/// The most blocks, one for each context that a manager takes.
const BLOCKS_MAX: usize = 8_192;
/// The longest message: longer payloads go by memfd.
const MESSAGE_LEN_BYTES_MAX: usize = 8_192;

/// What the words mean. To be raised with every change of that.
const LAYOUT: u64 = 3;
/// The first word: a name of ours, and the layout.
const STAMP: u64 = 0x504f_4c58_4d45_4d00 | LAYOUT;
/// Words of the head: stamp, workers, words of a message, blocks, contexts so far, the manager's life,
/// which records these are.
const HEAD_WORDS: usize = 8;
pub(crate) const CONTEXTS: usize = 4;
/// Its thread while a manager runs, marked by the kernel when that ends (`pollux_sys::futex::Owned`).
pub(crate) const MANAGER: usize = 5;
/// How many managers have made records for this exchange before this one.
pub(crate) const TERM: usize = 6;

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
    pub(crate) fn wake_flag(&self, worker: usize) -> usize {
        2 * self.spinning() + worker * FLAG_WORDS
    }

    pub(crate) fn owner(&self, block: usize) -> usize {
        self.wake_flag(self.workers) + block
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
