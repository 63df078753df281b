//! The words of the memory, and how its parts are claimed.
//!
//! ```text
//! header 64 | images: IMAGES_MAX × 2048 | cells: CELLS_MAX × 1024
//! ```
//!
//! Untouched parts take no memory: the file is sparse. A thread that claims a part counts up a word of the
//! header, so no part has two owners, and none is ever given back.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::cell::{CELL_WORDS, Cell, Figures};
use crate::image::{IMAGE_WORDS, Image};

/// Says that the memory is of this form; changes with it.
const MAGIC: u64 = 0x706f_6c6c_7578_0003;
const HEADER_WORDS: usize = 64;
/// Programs that use epoll, in one run: each command that a script starts is one.
const IMAGES_MAX: usize = 64;
/// Threads of all processes, in one run.
const CELLS_MAX: usize = 2048;
/// Length of the memory.
pub const WORDS: usize = HEADER_WORDS + IMAGES_MAX * IMAGE_WORDS + CELLS_MAX * CELL_WORDS;

/// Words of the header.
const IS_POLLUX: usize = 0;
const CELLS_CLAIMED: usize = 1;
const IMAGES_CLAIMED: usize = 2;
const PROGRAMS_UNCOUNTED: usize = 3;

/// The memory. Any thread and any process may use it at the same time.
#[derive(Clone, Copy, Debug)]
pub struct Region<'a> {
    words: &'a [AtomicU64],
}

impl<'a> Region<'a> {
    /// Makes fresh words the memory; nothing where they are too few.
    #[must_use]
    pub fn begin(words: &'a [AtomicU64]) -> Option<Self> {
        (words.len() >= WORDS).then(|| {
            words[IS_POLLUX].store(MAGIC, Relaxed);
            Self { words }
        })
    }

    /// Words that another process made the memory; nothing where they have another form.
    #[must_use]
    pub fn of(words: &'a [AtomicU64]) -> Option<Self> {
        let is_it = words.len() >= WORDS && words[IS_POLLUX].load(Relaxed) == MAGIC;
        is_it.then_some(Self { words })
    }

    /// A cell for the calling thread; nothing where all are taken.
    #[must_use]
    pub fn claim_cell(&self) -> Option<Cell<'a>> {
        let index = self.words[CELLS_CLAIMED].fetch_add(1, Relaxed) as usize;
        (index < CELLS_MAX).then(|| self.cell(index))
    }

    /// Room for the files of the calling program, with its number; nothing where all is taken.
    #[must_use]
    pub fn claim_image(&self) -> Option<(u64, Image<'a>)> {
        let index = self.words[IMAGES_CLAIMED].fetch_add(1, Relaxed) as usize;
        (index < IMAGES_MAX).then(|| (index as u64, self.image_at(index)))
    }

    /// The files of the program with this number.
    #[must_use]
    pub fn image(&self, number: u64) -> Option<Image<'a>> {
        let index = usize::try_from(number).ok().filter(|index| *index < IMAGES_MAX)?;
        Some(self.image_at(index))
    }

    /// The figures of every thread so far.
    #[must_use]
    pub fn figures(&self) -> Vec<Figures> {
        let claimed = self.words[CELLS_CLAIMED].load(Relaxed).min(CELLS_MAX as u64) as usize;
        (0..claimed).filter_map(|index| self.cell(index).read()).collect()
    }

    /// Threads that found no cell: their figures are missing.
    #[must_use]
    pub fn threads_lost(&self) -> u64 {
        self.words[CELLS_CLAIMED].load(Relaxed).saturating_sub(CELLS_MAX as u64)
    }

    /// Notes that a program is about to be started which cannot find this memory. It was not, where
    /// `execve(2)` comes back: see [`Self::not_started`].
    pub fn starts_uncounted(&self) {
        self.words[PROGRAMS_UNCOUNTED].fetch_add(1, Relaxed);
    }

    /// Takes back what [`Self::starts_uncounted`] noted.
    pub fn not_started(&self) {
        self.words[PROGRAMS_UNCOUNTED].fetch_sub(1, Relaxed);
    }

    /// Programs that were started without a way to find this memory.
    #[must_use]
    pub fn programs_uncounted(&self) -> u64 {
        self.words[PROGRAMS_UNCOUNTED].load(Relaxed)
    }

    fn image_at(&self, index: usize) -> Image<'a> {
        let words = &self.words[HEADER_WORDS + index * IMAGE_WORDS..];
        Image::new(words.first_chunk().expect("the length was checked"))
    }

    fn cell(&self, index: usize) -> Cell<'a> {
        let words = &self.words[HEADER_WORDS + IMAGES_MAX * IMAGE_WORDS + index * CELL_WORDS..];
        Cell::new(words.first_chunk().expect("the length was checked"))
    }
}
