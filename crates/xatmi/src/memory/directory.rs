//! Which services there are, which ring each has, and which workers offer it.
//!
//! The manager writes it; workers and clients read it, by mappings that they cannot write. The ring of a
//! service is that with the number of its row.
//!
//! ```text
//!  a row:  word 0 life: odd while the service is offered, one more with each change
//!          word 1 length of the name     words 2 to 5 the name     words 6 on: bits of the workers
//! ```

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use pollux_sys::futex::{self, Address};
use pollux_sys::shared::ReadOnlyPart;

use super::geometry::{Geometry, MANAGER, SERVICES_MAX, TERM};
use crate::queue::ServiceName;

const LIFE: usize = 0;
const NAME_LEN: usize = 1;
const NAME: usize = 2;
const NAME_WORDS: usize = 4;
/// Words in front of the bits of the workers.
pub(super) const ROW_HEAD_WORDS: usize = NAME + NAME_WORDS;

const _: () = assert!(ServiceName::LEN_BYTES_MAX <= NAME_WORDS * size_of::<u64>());

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
    match does {
        true => word.fetch_or(bit, Ordering::SeqCst),
        false => word.fetch_and(!bit, Ordering::SeqCst),
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
