//! What the event loop of a program did, in memory that the program and its observer share.
//!
//! The preloaded library (`crates/preload`) writes, `pollux run` (`crates/run`) reads at the same time.
//! A thread writes to a cell of its own, so nothing is locked and nothing allocates; all of it may be
//! called in a signal handler.
//!
//! The memory has a header, images and cells:
//!
//! ```text
//! header 64 | images: IMAGES_MAX × 2048 | cells: CELLS_MAX × 1024
//! ```
//!
//! Untouched parts take no memory: the file is sparse. A thread that claims a part counts up a word of the
//! header, so no part has two owners, and none is ever given back.
//!
//! | file | subject |
//! |---|---|
//! | here | the words of the memory, claiming them; which files lie where in a program |
//! | `counter.rs` | what is counted, with one line about each |
//! | `cell.rs` | the figures of a thread: counters, histograms, call sites, its longest turns; room for its notes |
//! | `verdict.rs` | where the time of a long turn went |
//!
//! Nothing here knows where a figure comes from.
#![forbid(unsafe_code)]

mod cell;
mod counter;
mod verdict;

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use self::cell::CELL_WORDS;
pub use cell::{
    CALLS_MAX, CallRecord, Cell, Figures, NOTES_MAX, SiteFigure, Turn, events_of, time_of,
};
pub use counter::{Call, Counter, Histogram, Site};
pub use verdict::{LONG_NS, NESTED_WAITS_MAX, TurnKinds, turn_kinds};

/// Variable of the environment that names the file of the memory.
pub const VARIABLE: &str = "POLLUX_LOOP_STATS";

/// Says that the memory is of this form; changes with it.
const MAGIC: u64 = 0x706f_6c6c_7578_0004;
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

/// Words of an image.
const IMAGE_WORDS: usize = 2048;
const IMAGE_HEADER_WORDS: usize = 8;
const MODULE_WORDS: usize = 32;
const MODULES_MAX: usize = (IMAGE_WORDS - IMAGE_HEADER_WORDS) / MODULE_WORDS;
const PATH_WORDS: usize = MODULE_WORDS - 4;

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
        Image { words: words.first_chunk().expect("the length was checked") }
    }

    fn cell(&self, index: usize) -> Cell<'a> {
        let words = &self.words[HEADER_WORDS + IMAGES_MAX * IMAGE_WORDS + index * CELL_WORDS..];
        Cell::new(words.first_chunk().expect("the length was checked"))
    }
}

/// A file that lies in the memory of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its first address.
    pub start: u64,
    /// Behind its last address.
    pub end: u64,
    /// What an address in the memory has more than in the file's own symbols.
    pub bias: u64,
    /// Where the file is, cut at 224 bytes.
    pub path: PathBuf,
}

impl Module {
    fn read(words: &[AtomicU64]) -> Self {
        let word = |index: usize| words[index].load(Relaxed);
        let mut path: Vec<u8> =
            (4..MODULE_WORDS).flat_map(|index| word(index).to_le_bytes()).collect();
        path.truncate(word(3) as usize);
        let path = PathBuf::from(OsString::from_vec(path));
        debug_assert!(path.as_os_str().as_bytes().len() <= PATH_WORDS * 8);
        Self { start: word(0), end: word(1), bias: word(2), path }
    }
}

/// Which files lie where in the memory of a program, so that a call site can be named when the program is
/// gone. Processes that were forked have the same image.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    words: &'a [AtomicU64; IMAGE_WORDS],
}

impl<'a> Image<'a> {
    /// Adds a file; what is beyond the room is left out. Only for the thread that claimed it.
    pub fn add(&self, start: u64, end: u64, bias: u64, path: &[u8]) {
        let index = self.words[0].load(Relaxed) as usize;
        if index >= MODULES_MAX {
            return;
        }
        let module = &self.words[IMAGE_HEADER_WORDS + index * MODULE_WORDS..][..MODULE_WORDS];
        let path = &path[..path.len().min(PATH_WORDS * 8)];
        for (word, value) in module.iter().zip([start, end, bias, path.len() as u64]) {
            word.store(value, Relaxed);
        }
        for (word, bytes) in module[4..].iter().zip(path.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(whole), Relaxed);
        }
        self.words[0].store(index as u64 + 1, Release);
    }

    /// The files so far.
    #[must_use]
    pub fn modules(&self) -> Vec<Module> {
        let count = (self.words[0].load(Acquire) as usize).min(MODULES_MAX);
        let at =
            |index: usize| &self.words[IMAGE_HEADER_WORDS + index * MODULE_WORDS..][..MODULE_WORDS];
        (0..count).map(|index| Module::read(at(index))).collect()
    }
}
